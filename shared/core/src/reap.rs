//! Reaping: finding what is due, oldest first over all shards, and driving each on its own.
//!
//! A sweep only reads. Who drives what it finds, and how many at once, is its caller's.

use std::collections::VecDeque;

use jiff::Timestamp;

use crate::drive::{Driven, Driver};
use crate::ledger::{Cause, Nonce, Raise, Reason, Refused, Status};
use crate::ports::{
    DUE_SHARDS, Due, DueMark, DueQuery, ErrorKind, Inboxes, Ledger, LedgerError, Raised, TimeAndChance,
};

/// Most pages of one shard that may follow one another without an event in them. Then that shard is left to the next sweep.
const EMPTY_PAGES_MAX: usize = 10;
/// Rows of one page where rows are only counted.
const COUNTED_PAGE_ROWS: usize = 1_000;

/// How much one run of the reaper takes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReapLimits {
    /// Most events that one run drives.
    pub events_max: usize,
    /// Most events that are driven at one time.
    pub concurrency: usize,
    /// Rows of one page of the index of due rows.
    pub page_rows: usize,
}

impl Default for ReapLimits {
    /// The template's defaults.
    fn default() -> Self {
        Self {
            events_max: 5_000,
            concurrency: 16,
            page_rows: 100,
        }
    }
}

/// One walk over everything that was due when it began. It names no row twice: what is due again later is for the next one.
#[derive(Debug)]
pub struct Sweep<'a, L> {
    ledger: &'a L,
    until: Timestamp,
    page_rows: usize,
    shards: Vec<Shard>,
    oldest: Option<Timestamp>,
    troubles: Vec<LedgerError>,
}

/// One shard, as far as it has been read.
#[derive(Debug)]
struct Shard {
    number: u32,
    ahead: VecDeque<Due>,
    rest: Rest,
}

/// What of a shard has not been read.
#[derive(Debug)]
enum Rest {
    /// All of it.
    All,
    /// What is behind this row.
    Behind(DueMark),
    /// Nothing, or nothing that could be read.
    Nothing,
}

/// Due rows that a sweep did not get to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// How many.
    pub rows: usize,
    /// Whether these are all, or as many as were counted.
    pub whole: bool,
}

impl<'a, L: Ledger> Sweep<'a, L> {
    /// A sweep over what is due at `now`, which reads so many rows at a time.
    #[must_use]
    pub fn new(ledger: &'a L, now: Timestamp, page_rows: usize) -> Self {
        let shard = |number| Shard {
            number,
            ahead: VecDeque::new(),
            rest: Rest::All,
        };
        Self {
            ledger,
            until: now,
            page_rows: page_rows.max(1),
            shards: (0..DUE_SHARDS).map(shard).collect(),
            oldest: None,
            troubles: Vec::new(),
        }
    }

    /// The event that has been due longest, of those that this sweep has not named yet.
    ///
    /// A shard that cannot be read ends with what was read of it, and holds up no other (10).
    pub async fn next(&mut self) -> Option<Due> {
        for shard in &mut self.shards {
            for _ in 0..EMPTY_PAGES_MAX {
                if !shard.ahead.is_empty() || matches!(shard.rest, Rest::Nothing) {
                    break;
                }
                let read = shard.read(self.ledger, self.until, self.page_rows).await;
                self.troubles.extend(read.err());
            }
        }
        let heads = self.shards.iter_mut().filter(|shard| !shard.ahead.is_empty());
        let due = heads.min_by(|one, other| one.ahead.front().cmp(&other.ahead.front()))?;
        let due = due.ahead.pop_front()?;
        self.oldest.get_or_insert(due.due_at);
        Some(due)
    }

    /// Since when the first event that was found had been due.
    #[must_use]
    pub fn oldest(&self) -> Option<Timestamp> {
        self.oldest
    }

    /// Why shards could not be read.
    #[must_use]
    pub fn troubles(&self) -> &[LedgerError] {
        &self.troubles
    }

    /// What this sweep did not name, as far as it has been read.
    #[must_use]
    pub fn left(&self) -> Left {
        Left {
            rows: self.shards.iter().map(|shard| shard.ahead.len()).sum(),
            whole: self.shards.iter().all(|shard| matches!(shard.rest, Rest::Nothing)) && self.troubles.is_empty(),
        }
    }

    /// Reads on, without naming anything, until all is counted or `rows_max` are.
    pub async fn count_left(&mut self, rows_max: usize) {
        let mut counted = self.left().rows;
        for shard in &mut self.shards {
            while !matches!(shard.rest, Rest::Nothing) && counted < rows_max {
                let before = shard.ahead.len();
                let read = shard.read(self.ledger, self.until, COUNTED_PAGE_ROWS).await;
                self.troubles.extend(read.err());
                // At least one, so that pages without events end as well.
                counted = counted.saturating_add(shard.ahead.len().saturating_sub(before).max(1));
            }
        }
    }
}

impl Shard {
    async fn read(&mut self, ledger: &impl Ledger, until: Timestamp, limit: usize) -> Result<(), LedgerError> {
        let after = match std::mem::replace(&mut self.rest, Rest::Nothing) {
            Rest::All => None,
            Rest::Behind(mark) => Some(mark),
            Rest::Nothing => return Ok(()),
        };
        let query = DueQuery {
            shard: self.number,
            until,
            after,
            limit,
        };
        let page = ledger.due(&query).await?;
        self.ahead.extend(page.events);
        self.rest = page.next.map_or(Rest::Nothing, Rest::Behind);
        Ok(())
    }
}

/// What came of one due event.
#[derive(Debug)]
pub enum Reaped {
    /// It was driven, and the ledger has this status and reason now.
    Driven {
        /// Where the event stands.
        status: Status,
        /// Why.
        reason: Reason,
        /// How many inboxes got it in this drive.
        sent: usize,
    },
    /// Somebody else has it, or has had it: the index lags, or two reapers met.
    LeftAlone(Refused),
    /// A newer version wrote its row. It is left to that version.
    Newer(u64),
    /// Its row could not be read or handled, which was counted against it.
    Poison {
        /// What became of the row.
        raised: Raised,
        /// What was wrong.
        error: LedgerError,
    },
    /// The surroundings failed. Nothing is counted against it, and it is still due.
    Troubled(LedgerError),
}

impl<L: Ledger, I: Inboxes, T: TimeAndChance> Driver<'_, L, I, T> {
    /// Claims and drives a due event with this nonce, which nobody else has. Never fails: what goes wrong is an answer.
    pub async fn reap(&self, due: &Due, nonce: Nonce) -> Reaped {
        let error = match self.claim_and_drive_as(&due.event, nonce, Cause::Due).await {
            Ok(Driven::Settled {
                status,
                reason,
                sent_to,
            }) => {
                return Reaped::Driven {
                    status,
                    reason,
                    sent: sent_to.len(),
                };
            }
            Ok(Driven::Lost(Refused::Newer(format))) => return Reaped::Newer(format),
            Ok(Driven::Lost(refused)) => return Reaped::LeftAlone(refused),
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::Retry | ErrorKind::Fix => Reaped::Troubled(error),
            ErrorKind::Reject | ErrorKind::Bug => match self.raise(due, nonce).await {
                Ok(Raised::Lost(Refused::Newer(format))) => Reaped::Newer(format),
                Ok(raised) => Reaped::Poison { raised, error },
                Err(trouble) => Reaped::Troubled(trouble),
            },
        }
    }

    /// Counts a failure against an event that could not be handled under `nonce`, and moves it on: later, or to its end.
    ///
    /// # Errors
    /// [`LedgerError`] where the ledger gave no answer: the event is still due.
    pub async fn raise(&self, due: &Due, nonce: Nonce) -> Result<Raised, LedgerError> {
        let now = self.time.now();
        let raise = Raise {
            now,
            seen: due.due_at,
            nonce,
            wait_min: self.limits.retry_min,
            wait_max: self.limits.retry_max,
            failures_max: self.limits.failures_max,
            expires_at: self.limits.event_expires_at(now),
        };
        self.ledger.raise(&due.event, raise).await
    }
}

/// What came of all due events of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events that were driven: claimed, routed, sent where somebody wants them, settled.
    pub redriven: u64,
    /// Messages that inboxes got.
    pub sent: u64,
    /// Driven events that wait for an owner.
    pub parked: u64,
    /// Driven events that are due again later.
    pub pending: u64,
    /// Events that were given up, poison included.
    pub permanent: u64,
    /// Rows that could not be read or handled, and were moved on.
    pub poison: u64,
    /// Rows that a newer version wrote, and that were not touched.
    pub newer: u64,
    /// Events that turned out to be somebody else's.
    pub left_alone: u64,
    /// Events that are still due because their surroundings failed.
    pub troubled: u64,
}

impl Tally {
    /// Counts one event.
    pub fn add(&mut self, reaped: &Reaped) {
        let count = |counter: &mut u64| *counter = counter.saturating_add(1);
        match reaped {
            Reaped::Driven { status, sent, .. } => {
                count(&mut self.redriven);
                self.sent = self.sent.saturating_add(u64::try_from(*sent).unwrap_or(u64::MAX));
                match status {
                    Status::Parked => count(&mut self.parked),
                    Status::FailedRetryable => count(&mut self.pending),
                    Status::FailedPermanent => count(&mut self.permanent),
                    Status::Received | Status::Claimed | Status::Processed => {}
                }
            }
            Reaped::LeftAlone(_) => count(&mut self.left_alone),
            Reaped::Newer(_) => count(&mut self.newer),
            Reaped::Poison { raised, .. } => {
                count(&mut self.poison);
                if *raised == Raised::Ended {
                    count(&mut self.permanent);
                }
            }
            Reaped::Troubled(_) => count(&mut self.troubled),
        }
    }

    /// Rows that were found and are still due: what is newer, and what the surroundings failed.
    #[must_use]
    pub fn still_due(&self) -> u64 {
        self.newer.saturating_add(self.troubled)
    }
}

/// How long `oldest` had been due at `now`, in whole seconds.
#[must_use]
pub fn due_seconds(oldest: Option<Timestamp>, now: Timestamp) -> u64 {
    let seconds = oldest.map_or(0, |oldest| now.duration_since(oldest).as_secs());
    u64::try_from(seconds).unwrap_or(0)
}

#[cfg(test)]
mod tests;
