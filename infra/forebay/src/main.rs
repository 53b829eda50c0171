//! The process of the operator's command.

use std::process::ExitCode;

fn main() -> ExitCode {
    forebay::main()
}
