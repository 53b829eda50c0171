//! Sources: what is polled for events.
//!
//! A source says what it is and polls once when it is told to. Who polls it and when is the scheduler's, whether its target
//! is well enough is the shedder's, and what becomes of what it finds is the writer's: a new kind of source is one type that
//! implements [`Source`], and nothing else changes.

mod sqs;

use std::future::Future;

use jiff::SignedDuration;

use crate::event::Event;
use crate::ports::LedgerError;
use crate::target::TargetKey;

pub use sqs::{InvalidSqsSource, PulledQueue, SqsSource, SqsSourceConfig};

/// Where a source may be polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// By everybody at once: its queue hands each message to one of them.
    PerReplica,
    /// By one at a time.
    ClusterSingleton,
    /// By one at a time, when its time has come.
    Scheduled,
}

/// What came of one poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// So many events are durable now that were not before, or were found to be. At least one.
    Emitted(usize),
    /// There was nothing.
    Empty,
    /// The target asked to be left alone for so long.
    Throttled(SignedDuration),
}

/// A poll that failed. It says something about the target's health.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// The source gave no answer: poll it again later.
    #[error("poll {source_id}: {word}")]
    Unanswered {
        /// Which source.
        source_id: String,
        /// Why, in one word.
        word: &'static str,
    },
    /// The ledger did not take what the source gave. What it gave stays with the source, or is given again.
    #[error("keep what {source_id} gave")]
    Unkept {
        /// Which source.
        source_id: String,
        /// Why.
        source: LedgerError,
    },
}

/// Where a source's events go: each is durable when `write` says so, and from then on like any other.
pub trait Writer: Send + Sync {
    /// Makes an event durable, once.
    ///
    /// # Errors
    /// [`LedgerError`] where nobody can say that it is. Whoever wrote it must not take it for done.
    fn write(&self, event: Event) -> impl Future<Output = Result<(), LedgerError>> + Send;
}

/// Something that is polled for events.
pub trait Source: Send + Sync {
    /// Its name among all sources, for claims, cursors and logs.
    fn id(&self) -> &str;

    /// What kind of source it is, such as `sqs`.
    fn scheme(&self) -> &'static str;

    /// Where it may be polled.
    fn placement(&self) -> Placement;

    /// Whose health a poll says something about.
    fn target(&self) -> &TargetKey;

    /// Polls once, and gives what it finds to `writer`. What the source remembers of it, it remembers after that.
    ///
    /// # Errors
    /// [`PollError`]: poll again later. Nothing that was given is lost.
    fn poll(&self, writer: &impl Writer) -> impl Future<Output = Result<Polled, PollError>> + Send;
}
