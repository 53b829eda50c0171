//! What the core asks of the world: a ledger, inboxes, time and chance. Each port has an adapter and a fake.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::future::Future;

use jiff::Timestamp;

use crate::delivery::DeliveryKey;
use crate::event::{EventId, Repository};
use crate::ledger::{
    Admission, Admitted, Claim, Claimed, DeliveryRow, EventAdmission, EventRow, Lease, Raise, Refused, Sent, Settled,
    Settlement, Status, Term,
};
use crate::session::{Opened, Owner, OwnerKey, Pointer, Pointers, Session, SessionId};

/// Time and chance.
pub trait TimeAndChance: Send + Sync {
    /// The clock's time.
    fn now(&self) -> Timestamp;
    /// A random number nobody else has.
    fn random(&self) -> u64;
}

/// What the caller of a failed port must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Try again later: the other side is busy, throttled or out of reach.
    Retry,
    /// Give this input up: it will never be taken.
    Reject,
    /// Mend the configuration: a permission, a name.
    Fix,
    /// Report it: the program is wrong.
    Bug,
}

/// A bounded word for what went wrong, for metrics and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Too many requests.
    Throttled,
    /// Another write was under way.
    Conflict,
    /// No answer in time.
    TimedOut,
    /// No connection.
    Unreachable,
    /// The other side failed.
    ServerFault,
    /// No permission.
    Denied,
    /// No such table, index or queue.
    NotFound,
    /// Larger than the other side takes.
    TooLarge,
    /// The other side calls the request invalid.
    Invalid,
    /// A row that cannot be read.
    Unreadable,
}

impl ErrorClass {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(self) -> ErrorKind {
        match self {
            Self::Throttled | Self::Conflict | Self::TimedOut | Self::Unreachable | Self::ServerFault => {
                ErrorKind::Retry
            }
            Self::TooLarge | Self::Unreadable => ErrorKind::Reject,
            Self::Denied | Self::NotFound => ErrorKind::Fix,
            Self::Invalid => ErrorKind::Bug,
        }
    }

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::Conflict => "conflict",
            Self::TimedOut => "timed_out",
            Self::Unreachable => "unreachable",
            Self::ServerFault => "server_fault",
            Self::Denied => "denied",
            Self::NotFound => "not_found",
            Self::TooLarge => "too_large",
            Self::Invalid => "invalid",
            Self::Unreadable => "unreadable",
        }
    }
}

/// A ledger call that gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("{attempted} {on}: {}", class.as_str())]
pub struct LedgerError {
    /// What was attempted, such as `admit delivery`.
    pub attempted: &'static str,
    /// On what: an id, never content.
    pub on: String,
    /// What went wrong, in one word.
    pub class: ErrorClass,
    /// The adapter's error.
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl LedgerError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.class.kind()
    }

    /// What the other side said, for logs: a code, never content. Empty where it said nothing.
    #[must_use]
    pub fn cause(&self) -> String {
        self.source.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}

/// What came of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The right lasts at least as long as was asked for; the lease says how long.
    Kept,
    /// The right was not ours any more.
    Lost(Refused),
}

/// What came of redacting a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redacted {
    /// The body is gone, and so is what the event quoted of it.
    Done,
    /// The right was not ours any more. Nothing has changed.
    Lost(Refused),
    /// There is no such delivery, or it means another event. Nothing has changed.
    NotItsOwn,
}

/// Shards in which due rows are kept apart, so that one crowded place does not slow all of them.
pub const DUE_SHARDS: u32 = 8;

/// What is asked for of the rows that are due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueQuery {
    /// One of [`DUE_SHARDS`], from 0.
    pub shard: u32,
    /// Due no later than this.
    pub until: Timestamp,
    /// Behind this row of an earlier page.
    pub after: Option<DueMark>,
    /// At most so many rows.
    pub limit: usize,
}

/// The place of a row among those of its shard, in the ledger's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueMark {
    /// When the row was due.
    pub due_at: Timestamp,
    /// Its key.
    pub key: String,
}

/// An event that was due when it was looked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due {
    /// Since when.
    pub due_at: Timestamp,
    /// Which.
    pub event: EventId,
}

/// Due rows of one shard, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DuePage {
    /// The events.
    pub events: Vec<Due>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<DueMark>,
}

/// What came of raising a row's failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    /// It is due again later.
    Later,
    /// It was the last time: the row has failed permanently.
    Ended,
    /// The row was left as it is.
    Lost(Refused),
}

impl Raised {
    /// What it means that a raised row has this status now.
    #[must_use]
    pub const fn of(status: Status) -> Self {
        if status.is_terminal() { Self::Ended } else { Self::Later }
    }
}

/// What a listing walks through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Events.
    Events,
    /// Deliveries that mean no event.
    Deliveries,
}

/// One page of a listing, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// What to list.
    pub what: Listed,
    /// Nothing older than this.
    pub since: Timestamp,
    /// Nothing newer than this.
    pub until: Timestamp,
    /// At most so many.
    pub limit: usize,
}

/// The ledger. Every method is one promise; what it says on a conflict is an answer, not an error.
///
/// # Errors
/// All methods give [`LedgerError`] where no answer could be had; its kind says what to do.
pub trait Ledger: Send + Sync {
    /// Writes a delivery and its event together, each once.
    fn admit(&self, admission: &Admission<'_>) -> impl Future<Output = Result<Admitted, LedgerError>> + Send;

    /// Writes an event that is its own record, once. What is there already stays, and is known to this net from now on.
    fn admit_event(&self, admission: &EventAdmission<'_>)
    -> impl Future<Output = Result<Admitted, LedgerError>> + Send;

    /// Asks for the right to handle an event.
    fn claim(&self, event: &EventId, claim: Claim) -> impl Future<Output = Result<Claimed, LedgerError>> + Send;

    /// Records what came of an event. Takes the right.
    fn settle(
        &self,
        lease: Lease,
        now: Timestamp,
        settlement: Settlement,
    ) -> impl Future<Output = Result<Settled, LedgerError>> + Send;

    /// Makes a right last longer.
    ///
    /// Without an answer the lease stays as its owner knows it: it may have become longer, and is never taken for lost. The
    /// owner works on until that end, and may ask again.
    fn renew(
        &self,
        lease: &mut Lease,
        now: Timestamp,
        term: Term,
    ) -> impl Future<Output = Result<Renewed, LedgerError>> + Send;

    /// Counts a failure against a row that cannot be read or handled, and moves it on.
    ///
    /// Needs no more of the row than that it is there: what cannot be read of it is taken for nothing, and a counter that
    /// cannot be read has reached the ceiling. A row of a newer format is left alone.
    fn raise(&self, event: &EventId, raise: Raise) -> impl Future<Output = Result<Raised, LedgerError>> + Send;

    /// A page of what is due. May lag behind the last writes, so that whatever it names is only worth a claim.
    fn due(&self, query: &DueQuery) -> impl Future<Output = Result<DuePage, LedgerError>> + Send;

    /// An event's row, read consistently.
    fn event(&self, event: &EventId) -> impl Future<Output = Result<Option<EventRow>, LedgerError>> + Send;

    /// A delivery's row, read consistently.
    fn delivery(&self, key: &DeliveryKey) -> impl Future<Output = Result<Option<DeliveryRow>, LedgerError>> + Send;

    /// Takes the body of a delivery that means the event of `lease`, and what the event quotes of it, out of the ledger.
    ///
    /// Under the fence: a stale owner changes nothing, and learns nothing of the body. What identifies the delivery stays,
    /// its digest included, so that it remains a duplicate of itself. A body too large for its row is kept under the digest of its
    /// bytes; it goes for every delivery of the very same bytes.
    fn redact(
        &self,
        lease: &Lease,
        key: &DeliveryKey,
        now: Timestamp,
    ) -> impl Future<Output = Result<Redacted, LedgerError>> + Send;

    /// A delivery's exact bytes. `None` where there is no such delivery, and where its body has been redacted.
    fn body(&self, key: &DeliveryKey) -> impl Future<Output = Result<Option<Vec<u8>>, LedgerError>> + Send;

    /// What the source of an event said, where no delivery keeps it. `None` where there is nothing of the kind.
    fn content(&self, event: &EventId) -> impl Future<Output = Result<Option<String>, LedgerError>> + Send;

    /// Events and deliveries by time.
    fn events(&self, listing: &Listing) -> impl Future<Output = Result<Vec<EventRow>, LedgerError>> + Send;

    /// Deliveries without an event, by time.
    fn deliveries(&self, listing: &Listing) -> impl Future<Output = Result<Vec<DeliveryRow>, LedgerError>> + Send;

    /// Pointers, read consistently, at most [`POINTERS_MAX`].
    fn pointers(&self, keys: &[OwnerKey]) -> impl Future<Output = Result<Pointers, LedgerError>> + Send;

    /// Remembers that a branch has a pull request, and gives the branch's pointer.
    fn learn(
        &self,
        repository: &Repository,
        branch: &str,
        pull: u64,
        now: Timestamp,
    ) -> impl Future<Output = Result<Pointer, LedgerError>> + Send;

    /// Points `key` to `owner` unless another live session owns it. Says whether it points there now.
    fn own(
        &self,
        key: &OwnerKey,
        owner: &Owner,
        now: Timestamp,
    ) -> impl Future<Output = Result<bool, LedgerError>> + Send;

    /// Opens a session, or prolongs it, with all its pointers or none. What it owned before and no longer names is freed.
    fn open_session(
        &self,
        session: &Session,
        now: Timestamp,
    ) -> impl Future<Output = Result<Opened, LedgerError>> + Send;

    /// Closes a session and frees what it owns. `None` where there is no such session.
    fn close_session(
        &self,
        id: &SessionId,
        expires_at: Timestamp,
    ) -> impl Future<Output = Result<Option<Session>, LedgerError>> + Send;

    /// Sessions that have not been closed, at most `limit`.
    fn sessions(&self, limit: usize) -> impl Future<Output = Result<Vec<Session>, LedgerError>> + Send;

    /// Events parked for `key`, at most `limit`. May lag behind the last writes.
    fn waiting(&self, key: &OwnerKey, limit: usize) -> impl Future<Output = Result<Vec<EventId>, LedgerError>> + Send;
}

/// Most pointers that one event needs: its branch and as many pull requests as a check may name.
pub const POINTERS_MAX: usize = 100;

/// One message on its way to an inbox.
#[derive(Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The inbox's name.
    pub inbox: String,
    /// FIFO group: what happens to one subject arrives in the order of sending.
    pub group: String,
    /// FIFO deduplication id: a repeat within SQS's five minutes is dropped.
    pub deduplication: String,
    /// The message.
    pub body: String,
    /// What is sent instead where the message is larger than a queue takes: it says where the rest is.
    pub reference: String,
}

impl fmt::Debug for Outgoing {
    /// Without the message itself, which is payload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Outgoing({} {} {} bytes)",
            self.inbox,
            self.deduplication,
            self.body.len()
        )
    }
}

/// The inboxes.
pub trait Inboxes: Send + Sync {
    /// Sends every message, batched for each queue; gives one outcome for each, in order. Never fails as a whole.
    fn send(&self, messages: Vec<Outgoing>) -> impl Future<Output = Vec<Sent>> + Send;

    /// Finds out whatever can be known before a send to these inboxes, so that the send need not wait for it. Changes nothing,
    /// and is never needed.
    fn prepare(&self, _inboxes: &BTreeSet<String>) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// A message that shall not be received again for a while.
#[derive(Clone, PartialEq, Eq)]
pub struct HeldBack {
    /// ARN of its queue.
    pub queue: String,
    /// Handle of the receive.
    pub receipt_handle: String,
    /// For how long from now, in seconds.
    pub seconds: u32,
}

impl fmt::Debug for HeldBack {
    /// Without the handle, which is a right to the message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldBack({} {} s)", self.queue, self.seconds)
    }
}

/// The queues that messages come from.
pub trait Queues: Send + Sync {
    /// Holds messages back, each on its own. One that cannot be held back comes again when its queue says so.
    fn hold_back(&self, messages: Vec<HeldBack>) -> impl Future<Output = ()> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_says_what_was_attempted_on_what_and_the_word_decides_what_to_do() {
        let error = LedgerError {
            attempted: "claim event",
            on: "github/comment/7".to_owned(),
            class: ErrorClass::Throttled,
            source: None,
        };
        assert_eq!(error.to_string(), "claim event github/comment/7: throttled");
        // DDBC-06, DDBC-10: a busy ledger is tried again and never taken for a lost race.
        assert_eq!(error.kind(), ErrorKind::Retry);
        assert_eq!(ErrorClass::Conflict.kind(), ErrorKind::Retry);
        assert_eq!(ErrorClass::Denied.kind(), ErrorKind::Fix);
        assert_eq!(ErrorClass::TooLarge.kind(), ErrorKind::Reject);
        assert_eq!(ErrorClass::Invalid.kind(), ErrorKind::Bug);
    }

    #[test]
    fn a_printed_message_shows_where_it_goes_and_not_what_it_says() {
        // Invariant 8
        let message = Outgoing {
            inbox: "reviewer".to_owned(),
            group: "acme/app#12".to_owned(),
            deduplication: "abc".to_owned(),
            body: "payload-text".to_owned(),
            reference: "payload-reference".to_owned(),
        };
        assert_eq!(format!("{message:?}"), "Outgoing(reviewer abc 12 bytes)");
    }
}
