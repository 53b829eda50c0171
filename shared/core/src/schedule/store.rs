//! What the scheduler asks of the ledger: the rows of sources, and when their targets may be asked again.

use std::future::Future;

use jiff::{SignedDuration, Timestamp};

use super::Returned;
use super::row::{SourceLease, SourceRefused, SourceState};
use crate::ledger::Nonce;
use crate::ports::LedgerError;
use crate::source::{Cursor, SourceId};
use crate::target::TargetKey;

/// What a call of a [`SourceStore`] gives, in the end.
pub type Storing<T> = Result<T, LedgerError>;

/// A source that was due when it was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueSource {
    /// Since when.
    pub due_at: Timestamp,
    /// Which.
    pub source: SourceId,
}

/// A wish to poll a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceClaim {
    /// The clock's time.
    pub now: Timestamp,
    /// This claim's own random number.
    pub nonce: Nonce,
    /// How long the right is to last.
    pub lease: SignedDuration,
    /// How far apart two clocks may be.
    pub skew: SignedDuration,
}

/// What came of a claim.
#[derive(Debug, PartialEq, Eq)]
pub enum SourceClaimed {
    /// The right is ours, and the row stands like this.
    Won(SourceLease, SourceState),
    /// Somebody else's, or not due. An expected answer.
    Lost(SourceRefused),
}

/// What is remembered of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenBack {
    /// How far the source has been read; `None` leaves it as it was.
    pub cursor: Option<Cursor>,
    /// When it is due again.
    pub due_at: Timestamp,
    /// The least time between two polls from now on.
    pub interval: SignedDuration,
    /// Polls without an answer, in a row.
    pub failures: u32,
    /// Why the poll did not go well, in one word.
    pub note: Option<String>,
}

impl GivenBack {
    /// Whether the row says all of this already, by its claim.
    #[must_use]
    pub fn is_known_to(&self, state: &SourceState) -> bool {
        self.cursor.is_none()
            && self.due_at == state.due_at
            && self.interval == state.interval
            && self.failures == state.failures
            && self.note == state.note
    }
}

/// When a target may be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resting {
    /// Not before this.
    pub until: Timestamp,
    /// Limits in a row behind that.
    pub strikes: u32,
}

/// What is read before a poll.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// How far the source has been read.
    pub cursor: Option<Cursor>,
    /// When its target may be asked, where it has ever asked to be left alone.
    pub resting: Option<Resting>,
}

/// The rows of sources.
///
/// # Errors
/// All methods give [`LedgerError`] where no answer could be had.
pub trait SourceStore: Send + Sync {
    /// Makes a row for each of these that has none: due at once, with this interval. Gives how many it made.
    fn register_sources(
        &self,
        sources: &[(SourceId, SignedDuration)],
        now: Timestamp,
    ) -> impl Future<Output = Storing<usize>> + Send;

    /// Sources that are due, oldest first, behind `after`, at most `limit`. May lag behind the last writes.
    fn due_sources(
        &self,
        until: Timestamp,
        after: Option<&DueSource>,
        limit: usize,
    ) -> impl Future<Output = Storing<Vec<DueSource>>> + Send;

    /// Asks for the right to poll a source.
    fn claim_source(
        &self,
        source: &SourceId,
        claim: SourceClaim,
    ) -> impl Future<Output = Storing<SourceClaimed>> + Send;

    /// What is known of a source and its target, read consistently.
    fn read_source(&self, source: &SourceId, target: &TargetKey) -> impl Future<Output = Storing<Reading>> + Send;

    /// When targets may be asked again, read consistently, in order.
    fn resting_targets(&self, targets: &[TargetKey]) -> impl Future<Output = Storing<Vec<Option<Resting>>>> + Send;

    /// Remembers a turn. Takes the right. Cursor and claim change together or not at all.
    fn give_back_source(
        &self,
        lease: SourceLease,
        now: Timestamp,
        given: GivenBack,
    ) -> impl Future<Output = Storing<Returned>> + Send;

    /// Puts a source off that was found due. Where somebody has decided otherwise meanwhile, nothing changes.
    fn put_off_source(
        &self,
        due: &DueSource,
        until: Timestamp,
        now: Timestamp,
        skew: SignedDuration,
    ) -> impl Future<Output = Storing<()>> + Send;

    /// Remembers that a target is to be left alone. Never shortens what was remembered.
    fn rest_target(&self, target: &TargetKey, resting: Resting) -> impl Future<Output = Storing<()>> + Send;
}
