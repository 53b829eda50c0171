//! Sends messages of every shape through the mapping of a deployed stack, and counts what was lost, doubled or misplaced.
//!
//! `cargo run --bin queue-soak -- --messages 2000` ends with `messages N lost 0 doubled 0 misplaced 0`, or exits with 1; see
//! [`forebay_tests::queue_soak`] for what these words count. It needs what `forebay demo` needs. Everything is on 127.0.0.1,
//! and nothing is left running, after Ctrl-C neither.

#![expect(clippy::print_stdout, reason = "what happened is what this program is for")]

use std::process::ExitCode;

use clap::Parser;
use forebay::trial::{Ended, INTERRUPTED, failure};
use forebay_tests::queue_soak::soak;

/// Sends messages of every shape through a queue, and counts what was lost, doubled or misplaced.
#[derive(Parser)]
struct Arguments {
    /// Messages to send.
    #[arg(long, default_value_t = 200)]
    messages: usize,
    /// What chance begins with.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Arguments { messages, seed } = Arguments::parse();
    match Box::pin(soak(messages, seed)).await {
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
