//! Counts ledger calls and write units of each kind of delivery, and computes what a million of them cost.
//!
//! Exits with 1 where a bar is missed. What it prints of deliveries, messages and dollars stands in the README.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use forebay_tests::counts::{Counted, bodies_under, recordings};
use forebay_tests::reaper::{RunReads, reads_beside};
use forebay_tests::rounds::{RoundReads, rounds_beside};
use serde_json::{Value, json};

/// Counts what deliveries cost, by the recordings under events/ with every name and number replaced.
#[derive(Parser)]
struct Arguments {
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Count these bodies instead: a folder of JSON files, each in a folder of its event's name.
    #[arg(long)]
    bodies: Option<PathBuf>,
    /// Settled events beside which a run of the reaper must read no more than beside a hundred.
    #[arg(long, default_value_t = 100_000)]
    terminal_rows: usize,
}

/// Settled events beside which a run of the reaper reads what it reads beside many.
const FEW_TERMINAL_ROWS: usize = 100;

/// What runs of the reaper read beside few settled events and beside many: one with three due events, and an idle one.
struct ReaperReads {
    terminal_rows: usize,
    few: [RunReads; 2],
    many: [RunReads; 2],
}

impl ReaperReads {
    async fn count(terminal_rows: usize) -> Self {
        Self {
            terminal_rows,
            few: reads_beside(FEW_TERMINAL_ROWS).await,
            many: reads_beside(terminal_rows).await,
        }
    }

    fn missed(&self) -> bool {
        self.few != self.many
    }
}

/// Sources that are not due, beside which a round of the scheduler reads what it reads beside many.
const FEW_SOURCES: usize = 10;
const MANY_SOURCES: usize = 2_000;

/// What rounds of the scheduler take beside few sources that are not due and beside many: one with three due sources, and an
/// idle one.
struct SchedulerReads {
    few: [RoundReads; 2],
    many: [RoundReads; 2],
}

impl SchedulerReads {
    async fn count() -> Self {
        Self {
            few: rounds_beside(FEW_SOURCES).await,
            many: rounds_beside(MANY_SOURCES).await,
        }
    }

    fn missed(&self) -> bool {
        self.few != self.many || self.few.map(|round| round.held) != [3, 0]
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let bodies = match &arguments.bodies {
        Some(folder) => bodies_under(folder),
        None => recordings(),
    };
    let counted = Counted::of(&bodies).await;
    let reaper = ReaperReads::count(arguments.terminal_rows).await;
    let scheduler = SchedulerReads::count().await;
    if arguments.json {
        println!("{}", to_json(&counted, &reaper, &scheduler));
    } else {
        println!("{counted}");
        println!(
            "{} bodies; write units with indexes, means; refused writes are computed, since DynamoDB reports none.",
            bodies.len()
        );
        for name in counted.missed() {
            println!("bar missed: {name}");
        }
        print_reaper(&reaper);
        print_scheduler(&scheduler);
    }
    if !counted.missed().is_empty() || reaper.missed() || scheduler.missed() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn print_reaper(reads: &ReaperReads) {
    println!();
    println!("| run of the reaper | settled events | ledger calls | read units |");
    println!("|---|---|---|---|");
    for (terminal_rows, runs) in [(FEW_TERMINAL_ROWS, &reads.few), (reads.terminal_rows, &reads.many)] {
        for run in runs {
            let (redriven, calls, read_units) = (run.redriven, run.calls, run.read_units);
            println!("| {redriven} due events | {terminal_rows} | {calls} | {read_units:.1} |");
        }
    }
    if reads.missed() {
        println!(
            "bar missed: the reaper reads more beside {} settled events",
            reads.terminal_rows
        );
    }
}

fn print_scheduler(reads: &SchedulerReads) {
    println!();
    println!("| round of the scheduler | other sources | ledger calls | read units | write units |");
    println!("|---|---|---|---|---|");
    for (others, rounds) in [(FEW_SOURCES, &reads.few), (MANY_SOURCES, &reads.many)] {
        for round in rounds {
            let RoundReads {
                held,
                calls,
                read_units,
                write_units,
            } = round;
            println!("| {held} due sources | {others} | {calls} | {read_units:.1} | {write_units:.1} |");
        }
    }
    if reads.missed() {
        println!("bar missed: the scheduler takes more beside {MANY_SOURCES} sources that are not due");
    }
}

fn to_json(counted: &Counted, reaper: &ReaperReads, scheduler: &SchedulerReads) -> Value {
    let mut all = counted.to_json();
    let runs = [(FEW_TERMINAL_ROWS, &reaper.few), (reaper.terminal_rows, &reaper.many)];
    let runs = runs.map(|(terminal_rows, runs)| {
        let runs = runs.map(|run| json!({"redriven": run.redriven, "calls": run.calls, "read_units": run.read_units}));
        json!({"terminal_rows": terminal_rows, "runs": runs})
    });
    let rounds = [(FEW_SOURCES, &scheduler.few), (MANY_SOURCES, &scheduler.many)];
    let rounds = rounds.map(|(others, rounds)| {
        let rounds = rounds.map(|round| {
            json!({
                "held": round.held,
                "calls": round.calls,
                "read_units": round.read_units,
                "write_units": round.write_units,
            })
        });
        json!({"other_sources": others, "rounds": rounds})
    });
    all["reaper"] = json!(runs);
    all["scheduler"] = json!(rounds);
    all
}
