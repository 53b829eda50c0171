//! `forebay`, the operator's command, and [`trial`], which lends its local stack to the checks of this repository.

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};
use crate::error::{Attempt as _, Error};
use crate::output::{Format, Output};

mod bootstrap;
mod child;
mod cli;
mod connect;
mod control;
mod delivery;
mod demo;
mod deploy;
mod emulator;
mod enqueue;
mod env_file;
mod environment;
mod error;
mod gaps;
mod github;
mod http;
mod inbox;
mod invoke;
mod listing;
mod local;
mod manifest;
mod missing;
mod output;
mod poll;
mod record;
mod secret;
mod send;
mod session;
mod show;
mod sign;
mod sources;
mod stack;
mod table;
mod targets;
mod template;
mod time;
mod tools;
pub mod trial;
mod view;
mod wait;
mod workspace;

/// Runs the command that the command line names, and says how it ended.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = Output::new(if cli.json { Format::Json } else { Format::Text });
    output::hear_warnings();
    match start(cli.command, output) {
        Ok(code) => code,
        Err(error) => {
            output.failure(&error);
            ExitCode::FAILURE
        }
    }
}

/// Runs one command on a single thread: it waits far more than it computes.
fn start(command: Command, output: Output) -> Result<ExitCode, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .attempting(|| "start the runtime".to_owned(), "report this as a bug")?
        .block_on(run(command, output))
}

/// Runs one command.
async fn run(command: Command, output: Output) -> Result<ExitCode, Error> {
    match command {
        Command::Demo(args) => return Box::pin(demo::run(&args, output)).await,
        Command::Local(args) => return Box::pin(local::run(&args, output)).await,
        Command::Env => environment::run(output)?,
        Command::Sign(args) => sign::run(&args, output)?,
        Command::Send(args) => send::run(&args, output).await?,
        Command::Enqueue(args) => enqueue::run(&args, output).await?,
        Command::Session(command) => session::run(&command, output).await?,
        Command::Inbox(args) => inbox::run(&args, output).await?,
        Command::Deliveries(args) => listing::deliveries(&args, output).await?,
        Command::Events(args) => listing::events(&args, output).await?,
        Command::Targets(args) => targets::run(&args, output).await?,
        Command::Show(args) => show::run(&args, output).await?,
        Command::Sources(args) => sources::run(&args, output).await?,
        Command::Poll(command) => poll::run(&command, output).await?,
        Command::Gaps(args) => gaps::run(&args, output).await?,
        Command::Missing(args) => missing::run(&args, output).await?,
        Command::Record => record::run(output)?,
    }
    Ok(ExitCode::SUCCESS)
}
