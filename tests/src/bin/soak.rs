//! Kills the functions of a local stack while deliveries stream in, and counts what was lost or doubled by it.
//!
//! `cargo run --bin soak -- --deliveries 2000 --kills 200` ends with `deliveries N lost 0 doubled 0`, or exits with 1; see
//! [`forebay_tests::soak`] for what these words count. It needs what `forebay demo` needs, and Linux: it finds the processes
//! to kill in `/proc`, and kills none but those that its own emulator has started. Everything is on 127.0.0.1, and nothing
//! is left running, after Ctrl-C neither.

#![expect(clippy::print_stdout, reason = "what happened is what this program is for")]

use std::process::ExitCode;

use clap::Parser;
use forebay::trial::{Ended, INTERRUPTED, failure};
use forebay_tests::soak::{Options, soak};

/// Kills functions while deliveries stream in, and counts what was lost or doubled by it.
#[derive(Parser)]
struct Arguments {
    /// Deliveries to post, repeats included.
    #[arg(long, default_value_t = 150)]
    deliveries: usize,
    /// Processes to kill meanwhile.
    #[arg(long, default_value_t = 12)]
    kills: usize,
    /// What chance begins with.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Arguments {
        deliveries,
        kills,
        seed,
    } = Arguments::parse();
    let options = Options {
        deliveries,
        kills,
        seed,
    };
    match Box::pin(soak(options)).await {
        Ok(Ended::Done(outcome)) => {
            println!("{outcome}");
            for problem in outcome.problems() {
                println!("✗ {problem}");
            }
            println!("{}", outcome.verdict());
            if outcome.is_clean() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Ok(Ended::Interrupted) => ExitCode::from(INTERRUPTED),
        Err(error) => {
            failure(&error);
            ExitCode::FAILURE
        }
    }
}
