//! Sessions, and what they wake, as they are shown.

use std::fmt;

use forebay_core::drive::Driven;
use forebay_core::event::EventId;
use forebay_core::ports::LedgerError;
use forebay_core::session::Session;
use jiff::Timestamp;
use serde::Serialize;

use crate::time::Time;

/// A session as it is shown.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SessionView {
    session: String,
    agent: String,
    repository: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pull: Option<u64>,
    phase: &'static str,
    opened_at: Time,
    live_until: Time,
}

impl SessionView {
    pub(super) fn of(session: &Session) -> Self {
        Self {
            session: session.id.to_string(),
            agent: session.agent.to_string(),
            repository: session.repository.as_str().to_owned(),
            branch: session.branch.clone(),
            pull: session.pull,
            phase: session.phase.as_str(),
            opened_at: Time(session.opened_at),
            live_until: Time(session.live_until),
        }
    }

    /// As a row of the list.
    pub(super) fn row(&self, now: Timestamp) -> [String; 5] {
        let branch = self.branch.clone();
        let pull = self.pull.map(|number| format!("#{number}"));
        let owns: Vec<String> = branch.into_iter().chain(pull).collect();
        let lapsed = if self.live_until.0 <= now { " (lapsed)" } else { "" };
        [
            self.session.clone(),
            self.agent.clone(),
            self.repository.clone(),
            owns.join(", "),
            format!("{}{lapsed}", self.live_until),
        ]
    }
}

/// A session that has just been opened.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Live {
    /// The session.
    #[serde(flatten)]
    pub(super) session: SessionView,
    /// Keys of what it owns now.
    pub(super) owns: Vec<String>,
    /// What had waited for it.
    pub(crate) woken: Vec<Woken>,
}

impl fmt::Display for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SessionView {
            session,
            agent,
            live_until,
            ..
        } = &self.session;
        write!(f, "session {session} of {agent} is open until {live_until}")?;
        for key in &self.owns {
            write!(f, "\n  owns {key}")?;
        }
        for woken in &self.woken {
            write!(f, "\n  {woken}")?;
        }
        Ok(())
    }
}

/// A session that has just been closed.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Closed(pub(super) SessionView);

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {} of {} is closed", self.0.session, self.0.agent)
    }
}

/// What came of an event that had waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Woken {
    /// The event.
    pub(crate) event: String,
    came: String,
    inboxes: Vec<String>,
}

impl Woken {
    pub(super) fn new(event: &EventId, driven: Result<Driven, LedgerError>) -> Self {
        let (came, inboxes) = match driven {
            Ok(Driven::Settled { reason, sent_to, .. }) => (reason.to_string(), sent_to.into_iter().collect()),
            Ok(Driven::Lost(refused)) => (format!("left alone: {refused}"), Vec::new()),
            Err(error) => (format!("due again later: {error}"), Vec::new()),
        };
        Self {
            event: event.to_string(),
            came,
            inboxes,
        }
    }
}

impl fmt::Display for Woken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} had waited: {}", self.event, self.came)?;
        if !self.inboxes.is_empty() {
            write!(f, " to {}", self.inboxes.join(", "))?;
        }
        Ok(())
    }
}
