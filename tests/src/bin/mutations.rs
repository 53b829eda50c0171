//! Puts bugs in, one at a time, and says whether the checks see them.
//!
//! `cargo run --bin mutations` copies the workspace to under `target/mutations`, runs the checks there as they are, and then
//! once for each mutation. It ends with `mutations N caught N missed 0`; the program exits with 1 where one was missed, does
//! not build or is stale. The first run builds everything once more; every other takes a build of what each mutation changes.
//! `--only NAME` tries those whose names begin so. The list is `tests/src/mutations/list.rs`.

#![expect(clippy::print_stdout, reason = "what was found is what this program is for")]

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use forebay_tests::mutations::{Bench, Found, LIST, Mutation};

/// Puts bugs in, and says whether the checks see them.
#[derive(Parser)]
struct Arguments {
    /// Try only mutations whose names begin so.
    #[arg(long, default_value = "")]
    only: String,
    /// Where the copy and its build output go: `target/mutations` unless said otherwise.
    #[arg(long)]
    target: Option<PathBuf>,
}

fn main() -> io::Result<ExitCode> {
    let arguments = Arguments::parse();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let target = arguments.target.unwrap_or_else(|| root.join("target/mutations"));
    let mutations: Vec<&Mutation> = LIST
        .iter()
        .filter(|known| known.name.starts_with(&arguments.only))
        .collect();
    let bench = Bench::set_up(root, &std::path::absolute(target)?)?;
    // A check that fails by itself would catch anything.
    let checks: BTreeSet<_> = mutations.iter().map(|mutation| mutation.check).collect();
    for check in checks {
        if bench.try_check(check)? != Found::Missed {
            println!("{check} fails without any mutation");
            return Ok(ExitCode::FAILURE);
        }
    }
    let (mut caught, mut missed) = (0_usize, 0_usize);
    for mutation in &mutations {
        let Mutation { name, why, check, .. } = mutation;
        match bench.try_mutation(mutation)? {
            Found::Caught => {
                caught += 1;
                println!("{name:<40} caught by {check}");
            }
            Found::Missed => {
                missed += 1;
                println!("{name:<40} MISSED by {check}: {why}");
            }
            Found::Unbuilt => {
                missed += 1;
                println!("{name:<40} DOES NOT BUILD for {check}");
            }
        }
    }
    println!("mutations {} caught {caught} missed {missed}", mutations.len());
    let all_caught = missed == 0 && !mutations.is_empty();
    Ok(if all_caught {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
