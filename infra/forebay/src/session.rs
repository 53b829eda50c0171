//! `forebay session`: what agents say they work on.

use clap::{Args, Subcommand};
use forebay_aws::clock::System;
use forebay_core::drive::{Driven, WOKEN_MAX};
use forebay_core::event::Repository;
use forebay_core::ports::{Ledger as _, LedgerError, TimeAndChance as _};
use forebay_core::session::{AgentName, Opened, OwnerKey, Phase, Session, SessionId};
use jiff::{SignedDuration, Timestamp};

use crate::connect::{Connected, StackRef, answered};
use crate::error::Error;
use crate::output::Output;
use crate::table;
use crate::time::Time;

mod view;

use view::{Closed, Live, SessionView, Woken};

/// Most sessions that are listed.
const LISTED_MAX: usize = 1_000;
/// Most times that what waits for one branch or pull request is looked for.
const WAKE_ROUNDS_MAX: usize = 40;
/// Longest time for which a session is opened, in hours; it can be prolonged.
const HOURS_MAX: i64 = 31 * 24;

/// What to do with sessions.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Say that an agent works on a branch or a pull request: its inbox gets their comments, reviews and failed checks
    ///
    /// Opening a session with the id of an open one prolongs it. What waited for an owner is delivered at once.
    Open(OpenArgs),
    /// Say that a session is over: what it owned is free
    Close(CloseArgs),
    /// List the sessions that have not been closed
    List(ListArgs),
}

/// A session to open.
#[derive(Args, Clone, Debug)]
#[command(group = clap::ArgGroup::new("owned").args(["branch", "pull"]).required(true).multiple(true))]
pub(crate) struct OpenArgs {
    /// The agent, whose inbox gets the events
    #[arg(long)]
    agent: String,
    /// Where it works
    #[arg(long, value_name = "OWNER/NAME")]
    repository: String,
    /// The branch it owns, with the pull requests that are known to come from it
    #[arg(long)]
    branch: Option<String>,
    /// The pull request it owns
    #[arg(long, value_name = "NUMBER")]
    pull: Option<u64>,
    /// The session's id [default: a new one]
    #[arg(long)]
    id: Option<String>,
    /// How long it lives if nobody prolongs or closes it
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(i64).range(1..=HOURS_MAX))]
    hours: i64,
    #[command(flatten)]
    stack: StackRef,
}

/// A session to close.
#[derive(Args, Clone, Debug)]
pub(crate) struct CloseArgs {
    /// The session's id
    id: String,
    #[command(flatten)]
    stack: StackRef,
}

/// Whose sessions to list.
#[derive(Args, Clone, Debug)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    stack: StackRef,
}

/// What a session is opened for, in the words of its user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    /// The session's id; a new one where there is none.
    pub(crate) id: Option<&'a str>,
    /// The agent.
    pub(crate) agent: &'a str,
    /// Where it works.
    pub(crate) repository: &'a str,
    /// The branch it owns.
    pub(crate) branch: Option<&'a str>,
    /// The pull request it owns.
    pub(crate) pull: Option<u64>,
    /// How long it lives.
    pub(crate) hours: i64,
}

/// Does what is asked with sessions.
pub(crate) async fn run(command: &SessionCommand, output: Output) -> Result<(), Error> {
    match command {
        SessionCommand::Open(args) => {
            let connected = Connected::find(&args.stack).await?;
            output.result(&open(&connected, args.wish()).await?)
        }
        SessionCommand::Close(args) => {
            let connected = Connected::find(&args.stack).await?;
            output.result(&Closed(close(&connected, &args.id).await?))
        }
        SessionCommand::List(args) => list(&Connected::find(&args.stack).await?, output).await,
    }
}

impl OpenArgs {
    fn wish(&self) -> Wish<'_> {
        Wish {
            id: self.id.as_deref(),
            agent: &self.agent,
            repository: &self.repository,
            branch: self.branch.as_deref(),
            pull: self.pull,
            hours: self.hours,
        }
    }
}

/// Opens a session and drives what waited for it.
pub(crate) async fn open(connected: &Connected, wish: Wish<'_>) -> Result<Live, Error> {
    // An agent without an inbox would own its work and never hear of it.
    connected.inbox_url(wish.agent)?;
    let now = System.now();
    let session = session(wish, now)?;
    let owned = match answered(connected.ledger.open_session(&session, now).await)? {
        Opened::Live(owned) => owned,
        Opened::Held { key, owner } => {
            return Err(Error::new(
                format!(
                    "open session {}: session {} of {} owns {key} until {}",
                    session.id,
                    owner.session,
                    owner.agent,
                    Time(owner.live_until)
                ),
                format!(
                    "close that one with `cargo forebay session close {}`, or wait",
                    owner.session
                ),
            ));
        }
    };
    let mut woken = Vec::new();
    for key in &owned {
        let driven = wake(connected, key).await.map_err(|error| {
            let attempted = format!("deliver what waited for {key}, though session {} is open", session.id);
            Error::because(
                attempted,
                "open it again with the same --id, or wait: it is due by itself",
                error,
            )
        })?;
        woken.extend(driven);
    }
    Ok(Live {
        session: SessionView::of(&session),
        owns: owned.iter().map(OwnerKey::to_string).collect(),
        woken,
    })
}

/// Drives what waits for `key`: all of it, as far as the bound allows. The rest is due by itself.
async fn wake(connected: &Connected, key: &OwnerKey) -> Result<Vec<Woken>, LedgerError> {
    let mut woken = Vec::new();
    for _ in 0..WAKE_ROUNDS_MAX {
        let driven = connected.driver().wake(key).await?;
        // The index may still list what was settled just now: a round that settles nothing is the last one.
        let is_last = driven.len() < WOKEN_MAX
            || driven
                .iter()
                .all(|(_, driven)| !matches!(driven, Ok(Driven::Settled { .. })));
        woken.extend(driven.into_iter().map(|(event, driven)| Woken::new(&event, driven)));
        if is_last {
            break;
        }
    }
    Ok(woken)
}

/// The session that is wished for, if its words are well-formed.
fn session(wish: Wish<'_>, now: Timestamp) -> Result<Session, Error> {
    let malformed = |what: &str, text: &str, form: &str| Error::new(format!("open a session: {what} `{text}`"), form);
    let agent = AgentName::parse(wish.agent).ok_or_else(|| {
        malformed(
            "the agent",
            wish.agent,
            "name an agent: a lower-case letter, then lower-case letters or digits",
        )
    })?;
    let repository = Repository::new(wish.repository)
        .ok_or_else(|| malformed("the repository", wish.repository, "name a repository as owner/name"))?;
    let id = match wish.id {
        Some(id) => id.to_owned(),
        None => format!("{agent}-{:016x}", System.random()),
    };
    let id = SessionId::parse(&id).ok_or_else(|| {
        malformed(
            "the id",
            &id,
            "give an id of at most 128 letters, digits, dots, dashes and underscores",
        )
    })?;
    let life = SignedDuration::from_hours(wish.hours);
    Ok(Session {
        id,
        agent,
        repository,
        branch: wish.branch.map(str::to_owned),
        pull: wish.pull,
        phase: Phase::Running,
        opened_at: now,
        live_until: now.saturating_add(life).unwrap_or(Timestamp::MAX),
    })
}

/// Closes the session called `id`.
pub(crate) async fn close(connected: &Connected, id: &str) -> Result<SessionView, Error> {
    let missing = || {
        Error::new(
            format!("close session {id}: there is none of that id"),
            "look at `cargo forebay session list`",
        )
    };
    let session_id = SessionId::parse(id).ok_or_else(missing)?;
    let expires_at = connected.config.limits.event_expires_at(System.now());
    let closed = answered(connected.ledger.close_session(&session_id, expires_at).await)?;
    Ok(SessionView::of(&closed.ok_or_else(missing)?))
}

/// Lists sessions: rows for people, one value a line for programs.
async fn list(connected: &Connected, output: Output) -> Result<(), Error> {
    let sessions = answered(connected.ledger.sessions(LISTED_MAX).await)?;
    let now = System.now();
    let views: Vec<SessionView> = sessions.iter().map(SessionView::of).collect();
    if views.is_empty() {
        output.note("no session is open");
    }
    output.list(&views, || {
        let rows: Vec<[String; 5]> = views.iter().map(|view| view.row(now)).collect();
        table::lines(["session", "agent", "repository", "owns", "until"], &rows)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISH: Wish<'_> = Wish {
        id: Some("fix-overflow"),
        agent: "builder",
        repository: "acme/app",
        branch: Some("fix/overflow"),
        pull: None,
        hours: 2,
    };

    #[test]
    fn a_session_lives_as_long_as_is_wished() {
        let session = session(WISH, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(session.live_until.as_second(), 7_200);
        assert_eq!(session.id.as_str(), "fix-overflow");
        let repository = Repository::new("acme/app").unwrap();
        assert_eq!(session.keys(), [OwnerKey::branch(&repository, "fix/overflow")]);
    }

    #[test]
    fn a_session_without_an_id_gets_one_that_names_its_agent() {
        let new = || session(Wish { id: None, ..WISH }, Timestamp::UNIX_EPOCH).unwrap().id;
        assert!(new().as_str().starts_with("builder-"));
        assert_ne!(new(), new());
    }

    #[test]
    fn each_malformed_word_is_named_with_the_right_form() {
        #[track_caller]
        fn check(wish: Wish<'_>, named: &str, form: &str) {
            let error = session(wish, Timestamp::UNIX_EPOCH).expect_err("malformed");
            assert!(error.to_string().contains(named), "{error}");
            assert!(error.remedy().contains(form), "{}", error.remedy());
        }
        check(
            Wish {
                agent: "Builder",
                ..WISH
            },
            "the agent `Builder`",
            "lower-case",
        );
        check(
            Wish {
                repository: "app",
                ..WISH
            },
            "the repository `app`",
            "owner/name",
        );
        check(
            Wish {
                id: Some("a/b"),
                ..WISH
            },
            "the id `a/b`",
            "128",
        );
    }
}
