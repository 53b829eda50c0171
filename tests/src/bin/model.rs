//! Walks through every state that the protocol of the ledger can reach within bounds.
//!
//! `cargo run --bin model` takes less than half a minute and ends with `states N violated 0`; a violation is printed with
//! the shortest way to it, and the program exits with 1. What the model covers, and what not, is said in
//! `tests/src/model.rs`. `cargo run --release --bin model -- --deep` goes further and takes minutes.

#![expect(clippy::print_stdout, reason = "what was found is what this program is for")]

use std::process::ExitCode;

use clap::Parser;
use forebay_tests::model::{Bounds, check_all};

/// Checks the ledger's protocol in every state it can reach.
#[derive(Parser)]
struct Arguments {
    /// Go further. For an optimised build.
    #[arg(long)]
    deep: bool,
}

fn main() -> ExitCode {
    let walks = if Arguments::parse().deep {
        Bounds::DEEP
    } else {
        Bounds::USUAL
    };
    let found = check_all(&walks);
    println!("{found}");
    if found.holds() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
