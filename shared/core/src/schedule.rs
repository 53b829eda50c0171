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
use crate::source::{Cursor, FailedPoll, Placement, Poll, PollError, Polled, Source, SourceId};
use crate::target::TargetKey;

pub use fenced::{LedgerScheduler, NaiveScheduler};
pub use row::{SourceLease, SourceRefused, SourceState, SourceStep, SourceVerdict, source_transition};
pub use store::{DueSource, GivenBack, Reading, Resting, SourceClaim, SourceClaimed, SourceStore, Storing};

/// How long a source that cannot be polled as things are configured is left alone: at first so short that whoever mends it sees that,
/// and no longer than this.
pub const MISCONFIGURED_WAIT_MIN: SignedDuration = SignedDuration::from_secs(300);
/// See [`MISCONFIGURED_WAIT_MIN`].
pub const MISCONFIGURED_WAIT_MAX: SignedDuration = SignedDuration::from_secs(3_600);
/// How long a source that this poller does not know is left alone: it may be another version's.
pub const UNKNOWN_WAIT: SignedDuration = SignedDuration::from_secs(900);
/// Longest wait between two tries of a source that gives no answer.
pub const FAILED_WAIT_MAX: SignedDuration = SignedDuration::from_secs(1_800);
/// Longest least time between two polls that a source may ask for.
pub const INTERVAL_MAX: SignedDuration = SignedDuration::from_hours(24);

/// The spans of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleConfig {
    /// How long a claim gives the right to a source. Longer than a poll may take.
    pub lease: SignedDuration,
    /// How far apart two clocks may be.
    pub skew: SignedDuration,
}

impl ScheduleConfig {
    /// The shortest time from one claim of a source to the next: nobody is due while somebody may be polling. At the very end of
    /// a lease somebody still may.
    #[must_use]
    pub fn interval_min(&self) -> SignedDuration {
        let held = self.lease.saturating_add(self.skew);
        held.saturating_add(SignedDuration::from_millis(1))
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
    Polled(&'a Result<Poll, Box<FailedPoll>>),
    /// It was not polled: its target is shed.
    Shed,
}

/// Which source is polled next.
pub trait Scheduler: Send + Sync {
    /// The source that has been due for the longest time, if any is, and the right to poll it. `None` also where every target is
    /// to be left alone, and after `last_start`.
    ///
    /// # Errors
    /// [`LedgerError`] where nobody can say. The run is over then; what is due stays due. A row that cannot be read is said last:
    /// everything else has been handed out by then, and the row is due again later.
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
            given.note = poll.trouble.map(str::to_owned);
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
            rests = poll.rests();
            if let Polled::Throttled(span) = poll.polled {
                is_strike = true;
                given.note = Some("throttled".to_owned());
                given.due_at = given.due_at.max(after(span));
            }
        }
        Ended::Polled(Err(poll)) => {
            given.cursor.clone_from(&poll.cursor);
            given.failures = failed;
            given.note = Some(poll.error.word().to_owned());
            rests = poll.rest;
            let growing = |min, max: SignedDuration| backoff::wait(state.failures, min, max.max(min), seed);
            let wait = match poll.error {
                PollError::Misconfigured { .. } => growing(MISCONFIGURED_WAIT_MIN.max(least), MISCONFIGURED_WAIT_MAX),
                PollError::Unanswered { .. } => growing(least, FAILED_WAIT_MAX),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Nonce, Token};
    use crate::ports::ErrorClass;
    use crate::testing::{at, secs};

    const LEAST: SignedDuration = SignedDuration::from_secs(60);

    fn claimed(interval: i64, failures: u32) -> SourceState {
        SourceState {
            token: Token::FIRST,
            nonce: Nonce::from_random(1),
            lease_until: Some(at(55)),
            due_at: at(interval),
            interval: secs(interval),
            failures,
            note: None,
            claimed_at: Some(at(0)),
        }
    }

    fn after(state: &SourceState, polled: Result<Poll, PollError>) -> Outcome {
        let polled = polled.map_err(Box::from);
        outcome(state, &Ended::Polled(&polled), LEAST, at(2), 7)
    }

    fn unanswered() -> PollError {
        PollError::Unanswered {
            source_id: SourceId::new("s"),
            word: "timed_out",
        }
    }

    #[test]
    fn a_poll_that_found_nothing_says_nothing_that_its_claim_has_not_said() {
        let state = claimed(60, 0);
        assert!(after(&state, Ok(Polled::Empty.into())).given.is_known_to(&state));
        let asked = Poll {
            interval: Some(secs(60)),
            ..Polled::Empty.into()
        };
        assert!(after(&state, Ok(asked)).given.is_known_to(&state));
        // The last one failed: that is over now, and has to be written.
        let failed = claimed(60, 2);
        assert!(!after(&failed, Ok(Polled::Empty.into())).given.is_known_to(&failed));
    }

    #[test]
    fn a_poll_that_was_troubled_says_so_in_its_row_and_is_made_again_no_later() {
        let state = claimed(60, 0);
        let troubled = Poll {
            trouble: Some("server_fault"),
            ..Polled::Empty.into()
        };
        let given = after(&state, Ok(troubled)).given;
        assert_eq!((given.note.as_deref(), given.due_at), (Some("server_fault"), at(60)));
        assert_eq!(given.failures, 0);
    }

    #[test]
    fn an_interval_that_is_asked_for_begins_with_the_answer_and_is_bounded() {
        // COND-06
        let state = claimed(60, 0);
        let asked = |seconds| Poll {
            interval: Some(secs(seconds)),
            ..Polled::Empty.into()
        };
        let longer = after(&state, Ok(asked(300))).given;
        assert_eq!((longer.interval, longer.due_at), (secs(300), at(302)));
        assert_eq!(after(&state, Ok(asked(90_000))).given.interval, INTERVAL_MAX);
        assert_eq!(after(&state, Ok(asked(1))).given.interval, LEAST);
        let back = after(&claimed(300, 0), Ok(asked(60))).given;
        assert_eq!((back.interval, back.due_at), (LEAST, at(62)));
        // COND-05: an answer that asks for nothing changes nothing.
        assert_eq!(after(&claimed(300, 0), Ok(Polled::Empty.into())).given.due_at, at(300));
    }

    #[test]
    fn a_limit_rests_the_target_and_puts_its_source_off_until_then() {
        let throttled = after(&claimed(60, 0), Ok(Polled::Throttled(secs(600)).into()));
        assert_eq!((throttled.rests, throttled.is_strike), (Some(secs(600)), true));
        assert_eq!(throttled.given.due_at, at(602));
        assert_eq!(throttled.given.note.as_deref(), Some("throttled"));
        let spent = Poll {
            rest: Some(secs(121)),
            ..Polled::Emitted(3).into()
        };
        let spent = after(&claimed(60, 0), Ok(spent));
        assert_eq!(
            (spent.rests, spent.is_strike, spent.given.due_at),
            (Some(secs(121)), false, at(60))
        );
    }

    #[test]
    fn a_source_that_fails_is_tried_again_less_and_less_often_and_one_that_cannot_be_polled_slowly() {
        // FEED-14
        let wait = |failures, error| {
            let given = after(&claimed(60, failures), Err(error)).given;
            assert_eq!(given.failures, failures + 1);
            given.due_at.duration_since(at(2))
        };
        assert_eq!(wait(0, unanswered()), secs(58), "no sooner than the claim said");
        assert!((secs(240)..=secs(480)).contains(&wait(3, unanswered())));
        assert!(wait(40, unanswered()) <= FAILED_WAIT_MAX);
        let misconfigured = || PollError::Misconfigured {
            source_id: SourceId::new("s"),
            word: "not_found",
        };
        assert!((secs(150)..=secs(300)).contains(&wait(0, misconfigured())));
        assert!((secs(1_800)..=secs(3_600)).contains(&wait(9, misconfigured())));
        let unkept = PollError::Unkept {
            source_id: SourceId::new("s"),
            source: LedgerError {
                attempted: "admit event",
                on: "e".to_owned(),
                class: ErrorClass::Throttled,
                source: None,
            },
        };
        assert_eq!(wait(5, unkept), LEAST);
    }

    #[test]
    fn what_has_more_is_due_at_once_and_what_is_shed_when_its_claim_said() {
        let more = Poll {
            more: true,
            ..Polled::Emitted(1).into()
        };
        assert_eq!(after(&claimed(60, 0), Ok(more)).given.due_at, at(2));
        let shed = outcome(&claimed(60, 1), &Ended::Shed, LEAST, at(2), 7).given;
        assert_eq!(
            (shed.due_at, shed.failures, shed.note.as_deref()),
            (at(60), 1, Some("shed"))
        );
    }
}
