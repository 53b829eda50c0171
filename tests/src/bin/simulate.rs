//! Plays stories of workers, crashes and lost answers over the real core, one for each seed, and says what broke.
//!
//! `cargo run --bin simulate -- --seeds 500` plays seeds 0 to 499 and ends with `seeds N steps M violated 0`; a violation
//! is printed with its seed, and the program exits with 1. `--seed 17` (or `FOREBAY_SEED=17`) plays that one alone and
//! prints all that happens in it. A long run, for a night: `cargo run --release --bin simulate -- --seeds 1000000`.

#![expect(clippy::print_stdout, reason = "what happened is what this program is for")]

use std::process::ExitCode;

use clap::Parser;
use forebay_tests::simulate::run;

/// Simulates the whole of the core, from seeds.
#[derive(Parser)]
struct Arguments {
    /// How many seeds to play.
    #[arg(long, default_value_t = 500)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Play this seed alone, and print what happens.
    #[arg(long, env = "FOREBAY_SEED")]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = match arguments.seed {
        Some(seed) => seed..seed.saturating_add(1),
        None => arguments.from..arguments.from.saturating_add(arguments.seeds),
    };
    let (mut played, mut steps, mut violated) = (0_u64, 0_usize, 0_u64);
    for seed in seeds {
        let run = run(seed);
        if arguments.seed.is_some() {
            println!("{}", run.trace.join("\n"));
        }
        if let Some(what) = &run.violated {
            println!("seed {seed}: {what}; see all of it with FOREBAY_SEED={seed}");
            violated += 1;
        }
        played += 1;
        steps += run.steps;
    }
    println!("seeds {played} steps {steps} violated {violated}");
    if violated == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
