//! What a run answers.

use forebay_core::reap::{Left, Tally, due_seconds};
use jiff::Timestamp;
use serde::Serialize;

/// What came of one run. Its JSON is the function's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Due events that were driven.
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
    /// Rows of a newer version, which were not touched.
    pub newer: u64,
    /// Events that turned out to be somebody else's.
    pub left_alone: u64,
    /// Events, and shards of the index, that the surroundings failed.
    pub troubled: u64,
    /// Rows that were due when the run began and still are.
    pub backlog: u64,
    /// Whether `backlog` is all of them, or as many as were counted.
    pub backlog_is_whole: bool,
    /// How long the oldest due row had been due when the run began, in seconds.
    pub oldest_due_seconds: u64,
}

impl Report {
    pub(crate) fn of(
        tally: &Tally,
        left: Left,
        troubled_shards: usize,
        oldest: Option<Timestamp>,
        began: Timestamp,
    ) -> Self {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Self {
            redriven: tally.redriven,
            sent: tally.sent,
            parked: tally.parked,
            pending: tally.pending,
            permanent: tally.permanent,
            poison: tally.poison,
            newer: tally.newer,
            left_alone: tally.left_alone,
            troubled: tally.troubled.saturating_add(number(troubled_shards)),
            backlog: tally.still_due().saturating_add(number(left.rows)),
            backlog_is_whole: left.whole,
            oldest_due_seconds: due_seconds(oldest, began),
        }
    }
}
