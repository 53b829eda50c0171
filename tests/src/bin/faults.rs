//! Puts every fault at every outside call of every way through the system, and says what was lost or broke.
//!
//! `cargo run --bin faults` ends with `combinations N lost 0 violated 0`; what broke is printed with its combination, and
//! the program exits with 1. `--only accepted/throttled/1` plays that one alone: a way, a trouble, the number of a call;
//! the beginning of a name plays all that begin so. What is played, and what not, is said in `tests/src/exhaust.rs`.

#![expect(clippy::print_stdout, reason = "what was found is what this program is for")]

use std::process::ExitCode;

use clap::Parser;
use forebay_tests::exhaust::{Clock, Pace, paths, run};
use tokio::runtime::{Builder, Runtime};

/// Plays every fault at every outside call.
#[derive(Parser)]
struct Arguments {
    /// Play only combinations whose name begins so: `way/trouble/call`.
    #[arg(long)]
    only: Option<String>,
}

/// The clock runs here: so many combinations wait side by side.
const AT_ONCE: usize = 24;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let pace = Pace {
        runtime,
        clock: Clock::Running,
        threads,
        at_once: AT_ONCE,
    };
    let report = run(&paths(), arguments.only.as_deref(), pace);
    println!("{report}");
    // A name that is none must not look like a success.
    if report.holds() && report.combinations() > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime without input or output")
}
