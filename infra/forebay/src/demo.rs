//! `forebay demo`: one round of the whole of Forebay on the recorded inputs, compared with what must come of them.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;

use crate::connect::Connected;
use crate::control::Control;
use crate::error::Error;
use crate::http::Http;
use crate::local::{StackArgs, with_stack};
use crate::manifest::Manifest;
use crate::output::Output;
use crate::stack::{Purpose, Stack};
use crate::wait::{Ended, INTERRUPTED, Interrupts};
use crate::workspace::Workspace;

mod compare;
mod logs;
mod play;
mod report;
mod secrecy;

use play::Player;
use report::{Layout, Summary};

/// How the demonstration is run.
#[derive(Args, Clone, Debug)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    stack: StackArgs,
}

/// Brings a stack of its own up, plays the recorded inputs, says what came of each, and takes the stack down.
pub(crate) async fn run(args: &DemoArgs, output: Output) -> Result<ExitCode, Error> {
    let workspace = Workspace::find()?;
    let manifest = Manifest::read(&workspace.events())?;
    let mut interrupts = Interrupts::listen()?;
    let show = async |stack: &Stack, log: &Path| show(&workspace, &manifest, stack, log, output).await;
    let shown = Box::pin(with_stack(
        Purpose::Demo,
        &args.stack,
        &workspace,
        output,
        &mut interrupts,
        show,
    ));
    match shown.await? {
        Ended::Interrupted => Ok(ExitCode::from(INTERRUPTED)),
        Ended::Done(summary) if summary.is_as_expected() => Ok(ExitCode::SUCCESS),
        Ended::Done(summary) => Err(Error::new(
            format!("play the recorded inputs: {}", summary.verdict()),
            "compare the lines marked ✗ with events/manifest.json; one of the two is wrong",
        )),
    }
}

/// Plays every step on `stack`, then looks at the ledger as a whole and at the logs.
async fn show(
    workspace: &Workspace,
    manifest: &Manifest,
    stack: &Stack,
    log: &Path,
    output: Output,
) -> Result<Summary, Error> {
    let connected = Connected::to(stack).await?;
    let http = Http::new();
    let mut player = Player::new(workspace.events(), manifest, stack, &connected, http.clone());
    let layout = Layout::of(&manifest.demo);
    output.heading(&layout.head())?;
    let mut summary = Summary::default();
    for (number, step) in (1..).zip(&manifest.demo) {
        let played = player.play(number, step).await?;
        summary.add(&played);
        output.result(&layout.row(&played))?;
    }
    summary.ledger = compare::ledger(&connected, &manifest.demo).await?;
    let control = Control::new(http, &stack.endpoint);
    summary.logs = logs::check(&control, stack, log, player.secrecy(), summary.deliveries()).await?;
    output.result(&summary)?;
    Ok(summary)
}
