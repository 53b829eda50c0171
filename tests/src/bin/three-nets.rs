//! Lets things happen beside a deployed stack that hears of them by webhook, feeds and recovery, and counts what was lost, doubled
//! or misattributed.
//!
//! `cargo run --bin three-nets -- --happenings 1000` ends with `happenings N lost 0 doubled 0 misattributed 0`, or exits with 1; see
//! [`forebay_tests::three_nets`] for what these words count. It needs what `forebay demo` needs. Everything is on 127.0.0.1,
//! and nothing is left running, after Ctrl-C neither.

#![expect(clippy::print_stdout, reason = "what happened is what this program is for")]

use std::process::ExitCode;

use clap::Parser;
use forebay::trial::{Ended, INTERRUPTED, failure};
use forebay_tests::three_nets::play;

/// Lets things happen in a fake GitHub, and counts what was lost, doubled or misattributed.
#[derive(Parser)]
struct Arguments {
    /// Things that happen.
    #[arg(long, default_value_t = 200)]
    happenings: usize,
    /// What chance begins with.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Arguments { happenings, seed } = Arguments::parse();
    match Box::pin(play(happenings, seed)).await {
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
