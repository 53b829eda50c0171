//! The command line.

use clap::{Parser, Subcommand};

use crate::demo::DemoArgs;
use crate::enqueue::EnqueueArgs;
use crate::gaps::GapsArgs;
use crate::inbox::InboxArgs;
use crate::listing::ListingArgs;
use crate::local::StackArgs;
use crate::missing::MissingArgs;
use crate::poll::PollCommand;
use crate::send::SendArgs;
use crate::session::SessionCommand;
use crate::show::ShowArgs;
use crate::sign::SignArgs;
use crate::sources::SourcesArgs;
use crate::targets::TargetsArgs;

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
    /// Show in a minute what Forebay does: play the recorded inputs on a stack of their own, and check what comes of them
    Demo(DemoArgs),
    /// Run the real stack on this machine until Ctrl-C
    Local(StackArgs),
    /// Print the environment that `cargo lambda watch --env-file` needs to run against the local stack
    Env,
    /// Print the signature that GitHub would send with a body
    Sign(SignArgs),
    /// Post a recorded input, or any file, to a webhook as GitHub would
    Send(SendArgs),
    /// Put a message into the queue whose messages the local stack takes
    Enqueue(EnqueueArgs),
    /// Open, close and list the sessions of agents
    #[command(subcommand)]
    Session(SessionCommand),
    /// Look at the first messages of an inbox; each look counts as a receive
    ///
    /// An inbox is a FIFO queue. A look shows its head, at most ten messages; while a consumer handles a message, the rest
    /// of that message's group (one issue or pull request) is hidden. Every look counts as a receive, and after
    /// `InboxReceivesMax` receives (10 unless the stack says otherwise) a message moves to the dead letters.
    Inbox(InboxArgs),
    /// Show how the targets behind the inboxes stand, and set one healthy
    ///
    /// A target is shed when too many of its calls fail or are too slow. Its events stay due, and it comes back by itself: after
    /// a while without an error one call probes it, and a growing share follows.
    Targets(TargetsArgs),
    /// List what was delivered, the newest first
    ///
    /// A delivery that means an event is listed by it, if it was the first to tell of it. One that means none has neither
    /// a kind nor a repository, and is left out where one is asked for.
    Deliveries(ListingArgs),
    /// List what happened, the newest first
    Events(ListingArgs),
    /// Show everything that is known of a delivery or an event, or its body
    Show(ShowArgs),
    /// List what is polled at GitHub, when it was and will be, and what is wrong with it
    ///
    /// A poll that found nothing new writes nothing more: its right lapses by itself, and the source shows as held until then.
    Sources(SourcesArgs),
    /// Poll GitHub now
    #[command(subcommand)]
    Poll(PollCommand),
    /// Count what only one net has caught, and so what webhooks lost
    ///
    /// Nets are webhooks, feeds, and recovery from GitHub's delivery log. Lost is what no webhook told of by itself. The rate
    /// is of the kinds that feeds tell of, in repositories of which a feed or recovery has told anything in this time. What
    /// happened before there was a webhook, or is of a kind that it is not subscribed to, counts as lost too. What feeds are yet
    /// to show counts as seen by the webhook only, and so does for some minutes what recovery has asked GitHub to send again.
    Gaps(GapsArgs),
    /// List the deliveries that GitHub made and the ledger lacks
    ///
    /// One shows here two to three minutes after it failed. First come those that may still arrive: recovery asks GitHub to
    /// deliver them again, at growing waits, and what has arrived meanwhile says so. Then those that are lost,
    /// and why: GitHub's log forgot them (`expired`, `gone`), the function cannot take them (`too_large`), the hook is no longer there
    /// (`no_hook`), or asking was of no use (`asked_too_often`). Redeliver one by hand in GitHub's settings of the hook, if
    /// it is still shown there. Lost ones are listed for ten days.
    Missing(MissingArgs),
    /// Write events/invocations anew from the bodies and the manifest
    #[command(hide = true)]
    Record,
}
