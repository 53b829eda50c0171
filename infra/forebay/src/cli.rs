//! The command line.

use clap::{Parser, Subcommand};

use crate::local::StackArgs;
use crate::send::SendArgs;
use crate::sign::SignArgs;

/// The operator's command of Forebay: a local stack, a demonstration, and a look into the ledger.
#[derive(Debug, Parser)]
#[command(name = "forebay", version)]
pub(crate) struct Cli {
    /// Write results as JSON, one value a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the real stack on this machine until Ctrl-C
    Local(StackArgs),
    /// Print the environment that `cargo lambda watch --env-file` needs to run against the local stack
    Env,
    /// Print the signature that GitHub would send with a body
    Sign(SignArgs),
    /// Post a recorded input, or any file, to a webhook as GitHub would
    Send(SendArgs),
    /// Write events/invocations anew from the bodies and the manifest
    #[command(hide = true)]
    Record,
}
