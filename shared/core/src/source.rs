//! Sources: what is polled for events.
//!
//! A source says what it is and polls once when it is told to. Who polls it and when is the scheduler's, whether its target
//! is well enough is the shedder's, and what becomes of what it finds is the writer's: a new kind of source is one type that
//! implements [`Source`], and nothing else changes.

pub mod github;
mod sqs;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};

use crate::delivery::{DeliveryKey, EventName};
use crate::event::Event;
use crate::github::Named;
use crate::ports::{ErrorClass, LedgerError, TimeAndChance};
use crate::target::TargetKey;
use crate::text::key_part;

pub use sqs::{InvalidSqsSource, PulledQueue, SqsSource, SqsSourceConfig};

/// A source's name among all sources, for claims, cursors and logs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(String);

impl SourceId {
    /// The id that `name` spells; an over-long one is replaced by its digest.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(key_part(name))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How far a source has been read, in its own words: JSON that nobody else reads. At most [`Cursor::BYTES_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(String);

impl Cursor {
    /// Longest cursor. A row of the ledger holds 400 KB, and a cursor is written whole.
    pub const BYTES_MAX: usize = 200 * 1_024;

    /// The cursor that is this text. `None` where it is too long: the source has to remember less.
    #[must_use]
    pub fn new(text: String) -> Option<Self> {
        (text.len() <= Self::BYTES_MAX).then_some(Self(text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

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
    /// The target asked to be left alone for so long: nobody calls it until then.
    Throttled(SignedDuration),
}

/// What is counted of polls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollCounts {
    /// Requests that were made.
    pub requests: u64,
    /// Polls that found nothing changed.
    pub not_modified: u64,
    /// Items that mean nothing to us, or happened before the source's first day.
    pub skipped: u64,
    /// Items that could not be read.
    pub malformed: u64,
    /// Rounds in which something may have fallen out of the feed before it was seen, and items that were given up.
    pub gaps: u64,
    /// Deliveries that were made and never arrived, found now.
    pub missing: u64,
    /// Deliveries that were asked for again.
    pub redeliveries: u64,
    /// Missing deliveries that are here now.
    pub recovered: u64,
    /// Recovered deliveries whose events no webhook has told of by itself.
    pub attributed: u64,
    /// Missing deliveries that nobody will ever get.
    pub lost: u64,
}

impl PollCounts {
    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.requests, other.requests),
            (&mut self.not_modified, other.not_modified),
            (&mut self.skipped, other.skipped),
            (&mut self.malformed, other.malformed),
            (&mut self.gaps, other.gaps),
            (&mut self.missing, other.missing),
            (&mut self.redeliveries, other.redeliveries),
            (&mut self.recovered, other.recovered),
            (&mut self.attributed, other.attributed),
            (&mut self.lost, other.lost),
        ];
        for (sum, more) in pairs {
            *sum = sum.saturating_add(more);
        }
    }
}

/// A poll that has been made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "what a poll has read is not remembered before its cursor is stored"]
pub struct Poll {
    /// What came of it.
    pub polled: Polled,
    /// How far the source has been read now; `None` where that is as far as before. Everything before it is durable.
    pub cursor: Option<Cursor>,
    /// The least time between two polls that the source asks for from now on; `None` where it says nothing new.
    pub interval: Option<SignedDuration>,
    /// How long the target wants to be left alone although it answered well.
    pub rest: Option<SignedDuration>,
    /// How long the target's slowest answer took; `None` where the whole poll says it.
    pub latency: Option<SignedDuration>,
    /// Its target was called. One that ended before it called anybody says nothing of its target's health.
    pub has_called: bool,
    /// There is more: poll again without waiting for the interval.
    pub more: bool,
    /// Why a part of it could not be read although the rest was, in a word.
    pub trouble: Option<&'static str>,
    /// What is counted of it.
    pub counts: PollCounts,
}

impl Poll {
    /// How long the target is to be left alone, whatever says so.
    #[must_use]
    pub fn rests(&self) -> Option<SignedDuration> {
        match self.polled {
            Polled::Throttled(span) => self.rest.max(Some(span)),
            Polled::Emitted(_) | Polled::Empty => self.rest,
        }
    }
}

impl From<Polled> for Poll {
    fn from(polled: Polled) -> Self {
        Self {
            polled,
            cursor: None,
            interval: None,
            rest: None,
            latency: None,
            has_called: true,
            more: false,
            trouble: None,
            counts: PollCounts::default(),
        }
    }
}

/// A poll that failed.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// The source gave no answer: poll it again later. It says something about the target's health.
    #[error("poll {source_id}: {word}")]
    Unanswered {
        /// Which source.
        source_id: SourceId,
        /// Why, in one word.
        word: &'static str,
    },
    /// As things are configured the source cannot be polled: it is not there, or not for us. Says nothing of its health.
    #[error("poll {source_id}: {word}; mend its name or what its credential may read")]
    Misconfigured {
        /// Which source.
        source_id: SourceId,
        /// Why, in one word.
        word: &'static str,
    },
    /// The ledger did not take what the source gave. What it gave stays with the source, or is given again.
    #[error("keep what {source_id} gave")]
    Unkept {
        /// Which source.
        source_id: SourceId,
        /// Why.
        source: LedgerError,
    },
}

impl PollError {
    /// The reason, in one word.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Unanswered { word, .. } | Self::Misconfigured { word, .. } => word,
            Self::Unkept { source, .. } => source.class.as_str(),
        }
    }
}

/// A poll that failed, and what had come of it by then.
#[derive(Debug)]
pub struct FailedPoll {
    /// Why.
    pub error: PollError,
    /// How far the source has been read nevertheless; `None` where that is as far as before.
    pub cursor: Option<Cursor>,
    /// How long the target wants to be left alone.
    pub rest: Option<SignedDuration>,
    /// What is counted of it.
    pub counts: PollCounts,
}

impl From<PollError> for Box<FailedPoll> {
    fn from(error: PollError) -> Self {
        Self::new(FailedPoll {
            error,
            cursor: None,
            rest: None,
            counts: PollCounts::default(),
        })
    }
}

/// When targets may be asked again, as the polls that are under way beside one another are told. What one of them learns holds
/// for all of them at once, long before it is over and its scheduler learns it.
#[derive(Debug, Default)]
pub struct Rests(Mutex<BTreeMap<TargetKey, Timestamp>>);

impl Rests {
    /// Nobody asks `target` before `until`. Never shortens what was told before.
    pub fn tell(&self, target: &TargetKey, until: Timestamp) {
        let mut rests = self.rests();
        let known = rests.entry(target.clone()).or_insert(until);
        *known = until.max(*known);
    }

    /// How much longer `target` is to be left alone; `None` where it may be asked.
    #[must_use]
    pub fn left(&self, target: &TargetKey, now: Timestamp) -> Option<SignedDuration> {
        let until = self.rests().get(target).copied()?;
        (now < until).then(|| until.duration_since(now))
    }

    fn rests(&self) -> MutexGuard<'_, BTreeMap<TargetKey, Timestamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a source found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The happening.
    pub event: Event,
    /// Pull requests that it names, with their branches.
    pub names: Vec<Named>,
}

impl From<Event> for Found {
    fn from(event: Event) -> Self {
        Self {
            event,
            names: Vec::new(),
        }
    }
}

/// Whether what was written was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is new.
    New,
    /// It was known.
    Known,
}

/// Where a source's events go: each is durable when `write` says so, and from then on like any other.
pub trait Writer: Send + Sync {
    /// Makes an event durable, once.
    ///
    /// # Errors
    /// [`LedgerError`] where nobody can say that it is. Whoever wrote it must not take it for done.
    fn write<'a>(&'a self, found: Found) -> BoxFuture<'a, Result<Written, LedgerError>>;

    /// Makes a delivery durable that was read back from GitHub's log, and the event that it means. Most writers keep none.
    ///
    /// # Errors
    /// As [`Self::write`]; a writer that keeps no deliveries refuses each with [`ErrorClass::Invalid`].
    fn write_delivery<'a>(&'a self, readback: Readback) -> BoxFuture<'a, Result<Written, LedgerError>> {
        Box::pin(std::future::ready(Err(LedgerError {
            attempted: "keep delivery",
            on: readback.key.to_string(),
            class: ErrorClass::Invalid,
            source: None,
        })))
    }
}

/// A delivery as GitHub's log has it: its payload is the same JSON in other bytes, so that nothing of it can be verified but
/// who was asked for it.
#[derive(Clone, PartialEq, Eq)]
pub struct Readback {
    /// GitHub Enterprise host; `None` for github.com.
    pub host: Option<String>,
    /// Its identity.
    pub key: DeliveryKey,
    /// Name of the webhook event.
    pub event_name: EventName,
    /// The payload, as JSON.
    pub payload: Vec<u8>,
}

impl fmt::Debug for Readback {
    /// Without the payload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Readback({} {} bytes)", self.key, self.payload.len())
    }
}

/// One poll's right, and what it may use.
#[derive(Clone, Copy)]
pub struct Turn<'a> {
    /// How far the source has been read; `None` at first contact.
    pub cursor: Option<&'a Cursor>,
    /// Time and chance.
    pub time: &'a dyn TimeAndChance,
    /// By then the poll is over. What was not done by then stays undone, and the cursor says so.
    pub end: Timestamp,
    /// Limits that the target has set in a row.
    pub strikes: u32,
    /// What the polls beside this one are told of targets.
    pub rests: &'a Rests,
    /// Where events go.
    pub writer: &'a dyn Writer,
}

impl fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Turn(until {}, {:?})", self.end, self.cursor)
    }
}

/// Something that is polled for events.
pub trait Source: Send + Sync {
    /// Its name among all sources.
    fn id(&self) -> &SourceId;

    /// What kind of source it is, such as `sqs`.
    fn scheme(&self) -> &'static str;

    /// Where it may be polled.
    fn placement(&self) -> Placement;

    /// Whose health a poll says something about.
    fn target(&self) -> &TargetKey;

    /// How long it is left alone between two polls where it asks for nothing else.
    fn interval(&self) -> SignedDuration;

    /// Polls once, and gives what it finds to the turn's writer. What is to be remembered of it is in the [`Poll`]: it is stored
    /// after that, and only if the turn is still the poller's.
    ///
    /// # Errors
    /// [`FailedPoll`]: poll again later. Nothing that was given is lost.
    fn poll<'a>(&'a self, turn: Turn<'a>) -> BoxFuture<'a, Result<Poll, Box<FailedPoll>>>;
}
