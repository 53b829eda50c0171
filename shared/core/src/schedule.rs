//! The scheduler: which source is polled next, by whom, and when again.
//!
//! A source's claim is a row with a token, a nonce and a lease like an event's. The claim itself moves the next due time, so that
//! a poll that finds nothing costs no second write. What was read is given back under the same fence: a poller that comes
//! late changes nothing.

mod fenced;
pub mod memory;
mod row;
mod store;

use std::future::Future;

use jiff::{SignedDuration, Timestamp};

use crate::backoff;
use crate::ports::LedgerError;
use crate::source::{Cursor, Placement, Poll, PollError, Polled, Source, SourceId};
use crate::target::TargetKey;

pub use fenced::{LedgerScheduler, NaiveScheduler};
pub use row::{SourceLease, SourceRefused, SourceState, SourceStep, SourceVerdict, source_transition};
pub use store::{DueSource, GivenBack, Reading, Resting, SourceClaim, SourceClaimed, SourceStore, Storing};

/// How long a source that cannot be polled as things are configured is left alone.
pub const MISCONFIGURED_WAIT: SignedDuration = SignedDuration::from_secs(3_600);
/// How long a source that this poller does not know is left alone: it may be another version's.
pub const UNKNOWN_WAIT: SignedDuration = SignedDuration::from_secs(900);
/// Longest wait between two tries of a source that gives no answer.
pub const FAILED_WAIT_MAX: SignedDuration = SignedDuration::from_secs(1_800);
/// Longest least time between two polls that a source may ask for: a header must not silence a feed.
pub const INTERVAL_MAX: SignedDuration = SignedDuration::from_secs(3_600);

/// The spans of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleConfig {
    /// How long a claim gives the right to a source. Longer than a poll may take.
    pub lease: SignedDuration,
    /// How far apart two clocks may be.
    pub skew: SignedDuration,
}

impl ScheduleConfig {
    /// The shortest time from one claim of a source to the next: nobody is due while somebody may be polling.
    #[must_use]
    pub fn interval_min(&self) -> SignedDuration {
        self.lease.saturating_add(self.skew)
    }
}

/// What a scheduler has to know of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// The source.
    pub id: SourceId,
    /// Where it may be polled.
    pub placement: Placement,
    /// Its target.
    pub target: TargetKey,
    /// Its own interval.
    pub interval: SignedDuration,
}

impl Scheduled {
    /// The least time from one claim to the next.
    #[must_use]
    pub fn least(&self, config: &ScheduleConfig) -> SignedDuration {
        match self.placement {
            Placement::PerReplica => self.interval,
            Placement::ClusterSingleton | Placement::Scheduled => self.interval.max(config.interval_min()),
        }
    }

    /// What a scheduler has to know of `source`.
    #[must_use]
    pub fn of(source: &dyn Source) -> Self {
        Self {
            id: source.id().clone(),
            placement: source.placement(),
            target: source.target().clone(),
            interval: source.interval(),
        }
    }
}

/// A source that is to be polled now, by whoever holds this. One right, one use.
#[derive(Debug)]
pub struct Held {
    /// Which.
    pub source: SourceId,
    /// How far it has been read.
    pub cursor: Option<Cursor>,
    /// Limits that its target has set in a row.
    pub strikes: u32,
    pub(crate) lease: SourceLease,
    pub(crate) state: SourceState,
    pub(crate) placement: Placement,
}

impl Held {
    /// When the right ends.
    #[must_use]
    pub fn until(&self) -> Timestamp {
        self.lease.until()
    }
}

/// What came of giving a source back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// It is remembered. Nothing may have had to be written for it.
    Kept,
    /// The right was not ours any more: nothing is remembered, and what was read will be read again.
    Lost(SourceRefused),
}

/// Why a source that was claimed is given back.
#[derive(Debug)]
pub enum Ended<'a> {
    /// It was polled, or that failed.
    Polled(&'a Result<Poll, PollError>),
    /// It was not polled: its target is shed.
    Shed,
}

/// Which source is polled next.
pub trait Scheduler: Send + Sync {
    /// The source that has been due for the longest time, if any is, and the right to poll it. `None` also where every target is
    /// to be left alone, and after `last_start`.
    ///
    /// # Errors
    /// [`LedgerError`] where nobody can say. The run is over then; what is due stays due.
    fn next(&self, last_start: Timestamp) -> impl Future<Output = Result<Option<Held>, LedgerError>> + Send;

    /// Gives a source back, with what is to be remembered of its poll.
    ///
    /// # Errors
    /// [`LedgerError`] where nobody can say whether it is. What was read will be read again.
    fn give_back(&self, held: Held, ended: Ended<'_>) -> impl Future<Output = Result<Returned, LedgerError>> + Send;
}

/// What follows from how a turn ended: for the source's row, and for its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) given: GivenBack,
    /// How long the target is left alone.
    pub(crate) rests: Option<SignedDuration>,
    /// That was because of a limit.
    pub(crate) is_strike: bool,
}

/// Works out what is to be remembered. `least` is the least time between two claims of the source.
pub(crate) fn outcome(
    state: &SourceState,
    ended: &Ended<'_>,
    least: SignedDuration,
    now: Timestamp,
    seed: u64,
) -> Outcome {
    let after = |span: SignedDuration| now.saturating_add(span).unwrap_or(Timestamp::MAX);
    let mut given = GivenBack {
        cursor: None,
        due_at: state.due_at,
        interval: state.interval.max(least),
        failures: 0,
        note: None,
    };
    let mut rests = None;
    let mut is_strike = false;
    let failed = state.failures.saturating_add(1);
    match ended {
        Ended::Shed => {
            given.failures = state.failures;
            given.note = Some("shed".to_owned());
        }
        Ended::Polled(Ok(poll)) => {
            given.cursor.clone_from(&poll.cursor);
            if let Some(asked) = poll.interval {
                given.interval = asked.min(INTERVAL_MAX).max(least);
            }
            // The claim went by what was known before.
            if given.interval != state.interval {
                given.due_at = after(given.interval);
            }
            if poll.more {
                given.due_at = now;
            }
            rests = poll.rest;
            if let Polled::Throttled(span) = poll.polled {
                rests = Some(span);
                is_strike = true;
                given.note = Some("throttled".to_owned());
                given.due_at = given.due_at.max(after(span));
            }
        }
        Ended::Polled(Err(error)) => {
            given.failures = failed;
            given.note = Some(error.word().to_owned());
            let wait = match error {
                PollError::Misconfigured { .. } => MISCONFIGURED_WAIT,
                PollError::Unanswered { .. } => backoff::wait(state.failures, least, FAILED_WAIT_MAX.max(least), seed),
                PollError::Unkept { .. } => least,
            };
            given.due_at = given.due_at.max(after(wait));
        }
    }
    Outcome {
        given,
        rests,
        is_strike,
    }
}
