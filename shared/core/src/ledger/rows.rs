//! What the ledger keeps of a delivery and of an event, and the proofs that its calls hand out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

use crate::delivery::{Delivery, DeliveryKey};
use crate::event::{Event, EventId, Net, words};
use crate::session::OwnerKey;

words! {
    /// Where an event stands.
    Status {
        /// Kept; nobody has claimed it yet.
        Received = "received",
        /// Somebody holds the right to handle it, until the lease ends.
        Claimed = "claimed",
        /// Handled. Terminal.
        Processed = "processed",
        /// Not handled yet, due again later.
        FailedRetryable = "failed_retryable",
        /// Given up. Terminal, and worth an alarm.
        FailedPermanent = "failed_permanent",
        /// Work for an owner that nobody is yet.
        Parked = "parked",
    }
}

impl Status {
    /// Whether nothing is left to do.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Processed | Self::FailedPermanent => true,
            Self::Received | Self::Claimed | Self::FailedRetryable | Self::Parked => false,
        }
    }
}

words! {
    /// Why an event stands where it stands.
    Reason {
        /// Every destination has it.
        Delivered = "delivered",
        /// No route wanted it.
        Unrouted = "unrouted",
        /// An ignored actor wrote it.
        Silenced = "silenced",
        /// It happened before the cut-off.
        Stale = "stale",
        /// It waits for an owner.
        Waiting = "waiting",
        /// It waited for an owner until the end of its parking time.
        NoOwner = "no_owner",
        /// A destination was unreachable, throttled or shed.
        Unreachable = "unreachable",
        /// Its own handling failed.
        Failed = "failed",
        /// It is nothing that its source can have sent.
        Malformed = "malformed",
        /// Its own handling failed, or its lease lapsed, too often.
        TooManyFailures = "too_many_failures",
        /// Its destinations stayed unreachable until it was too old.
        TooOld = "too_old",
    }
}

words! {
    /// What is known of one destination of an event.
    Sent {
        /// The inbox has the message.
        Yes = "sent",
        /// The inbox could not be reached, or failed.
        Unreachable = "unreachable",
        /// The inbox was too busy.
        Throttled = "throttled",
        /// The inbox may not be used as things are configured: forbidden, or not there.
        Denied = "denied",
        /// The inbox is shed: nothing was sent.
        Shed = "shed",
        /// The inbox refused the message itself.
        Rejected = "rejected",
    }
}

/// The fencing token: grows with every claim in a row's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// No claim has been made.
    pub const NONE: Self = Self(0);
    /// The first claim.
    pub const FIRST: Self = Self(1);

    /// The token that a stored number is.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The token as a number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The next claim's token.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A random number that tells one claim from every other, also across two lives of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(u64);

impl Nonce {
    /// The nonce that this random number is.
    #[must_use]
    pub const fn from_random(random: u64) -> Self {
        Self(random)
    }

    /// The nonce as a number: also the seed of this claim's jitter.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// The right to handle one event until a time.
///
/// Only a claim or an admission makes one, and settling takes it. It is not `Clone`: one right, one use.
#[derive(Debug, PartialEq, Eq)]
pub struct Lease {
    pub(crate) event: EventId,
    pub(crate) token: Token,
    pub(crate) nonce: Nonce,
    pub(crate) until: Timestamp,
}

impl Lease {
    /// The lease that a stored state proves: the row is claimed, and the claim is ours by its nonce.
    ///
    /// For ledgers. Returns `None` where the state proves nothing of the kind.
    #[must_use]
    pub fn proven_by(event: &EventId, state: &State, nonce: Nonce) -> Option<Self> {
        let ours = state.status == Status::Claimed && state.nonce == nonce;
        let until = state.lease_until.filter(|_| ours)?;
        Some(Self {
            event: event.clone(),
            token: state.token,
            nonce,
            until,
        })
    }

    /// The event.
    #[must_use]
    pub fn event(&self) -> &EventId {
        &self.event
    }

    /// The fencing token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// The claim's nonce.
    #[must_use]
    pub fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// When the right ends.
    #[must_use]
    pub fn until(&self) -> Timestamp {
        self.until
    }
}

/// The changing half of an event's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Where the event stands.
    pub status: Status,
    /// Why.
    pub reason: Option<Reason>,
    /// Token of the last claim.
    pub token: Token,
    /// Nonce of the last claim; kept when it settles, so that its owner recognises its own write.
    pub nonce: Nonce,
    /// End of the lease, while claimed.
    pub lease_until: Option<Timestamp>,
    /// Lapsed leases and errors of the event's own handling. A claim counts as one until its owner settles it and says
    /// otherwise, so that an owner that dies has said so beforehand.
    pub failures: u32,
    /// Drives that ended without every destination reached: what the back-off grows with.
    pub tries: u32,
    /// When the event needs attention again. Every row that is not terminal has one.
    pub due_at: Option<Timestamp>,
    /// Whose session it waits for, while parked.
    pub waiting_for: Option<OwnerKey>,
    /// What each destination got.
    pub destinations: BTreeMap<String, Sent>,
    /// How often an operator asked for all of it to be sent again.
    pub generation: u32,
    /// When the row may go. Only terminal rows have one.
    pub expires_at: Option<Timestamp>,
}

/// An event's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// The happening, which never changes.
    pub event: Event,
    /// Where it stands.
    pub state: State,
    /// When the ledger first had it.
    pub admitted_at: Timestamp,
    /// Which net caught it first.
    pub first_seen: Net,
    /// Every net that has reported it.
    pub seen_by: BTreeSet<Net>,
}

impl EventRow {
    /// Who has seen the event first, and who at all, now that its delivery `key` is known to have come because recovery asked for
    /// it. Another hook's delivery is a webhook's all the same.
    ///
    /// The row does not say which deliveries joined an event that a feed saw first. This one is taken for the only one: with two
    /// hooks of ours, of which the other has told of it by itself, the event counts as lost to webhooks nevertheless.
    #[must_use]
    pub fn recovered_through(&self, key: &DeliveryKey) -> (Net, BTreeSet<Net>) {
        let is_this = self.is_through(key);
        let mut seen_by = self.seen_by.clone();
        seen_by.insert(Net::Recovery);
        // An event without a delivery is a feed's: the webhook that joined it was this one.
        if is_this || self.event.delivery.is_none() {
            seen_by.remove(&Net::Webhook);
        }
        let first_seen = match self.first_seen {
            Net::Webhook if is_this => Net::Recovery,
            first_seen @ (Net::Webhook | Net::Feed | Net::Recovery | Net::Queue) => first_seen,
        };
        (first_seen, seen_by)
    }

    /// Whether `key` being recovered is what tells that webhooks had lost the event, which was seen by `seen_by` before that was
    /// remembered. Several hooks of ours may each have lost it: it counts by one of their deliveries.
    #[must_use]
    pub fn is_lost_through(&self, key: &DeliveryKey, seen_by: &BTreeSet<Net>) -> bool {
        // What its own delivery says is said again where that was done before, by a poll that may not have come to its end.
        let is_told_now = seen_by.contains(&Net::Webhook) || self.is_through(key);
        is_told_now && !self.seen_by.contains(&Net::Webhook)
    }

    fn is_through(&self, key: &DeliveryKey) -> bool {
        self.event.delivery.as_ref() == Some(key)
    }
}

/// A delivery's row, without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    /// The delivery.
    pub delivery: Delivery,
    /// Bytes that the body takes in the ledger, compressed.
    pub stored_bytes: u64,
    /// When the body was taken out of the ledger, if it was.
    pub redacted_at: Option<Timestamp>,
    /// When the row may go.
    pub expires_at: Timestamp,
}

/// An event as its admission writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admittee {
    /// The happening.
    pub event: Event,
    /// Claimed by us, or settled at once because no route could want it.
    pub state: State,
}

/// One delivery and the event it means, to be written together.
#[derive(Clone)]
pub struct Admission<'a> {
    /// What arrived.
    pub delivery: &'a Delivery,
    /// Its exact bytes.
    pub body: &'a [u8],
    /// What it means, if anything.
    pub event: Option<Admittee>,
    /// This admission's nonce: how a repeated write recognises itself.
    pub nonce: Nonce,
    /// When the delivery's row may go.
    pub expires_at: Timestamp,
}

impl fmt::Debug for Admission<'_> {
    /// Without the body, which is payload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Admission({}, {} bytes)", self.delivery.key, self.body.len())
    }
}

/// An event that no delivery keeps, to be written once.
#[derive(Clone, Copy, Debug)]
pub struct EventAdmission<'a> {
    /// The event, with what its source said.
    pub admittee: &'a Admittee,
    /// By which net it was caught.
    pub net: Net,
    /// When it arrived.
    pub received_at: Timestamp,
    /// This admission's nonce: how a repeated write recognises itself. The state's own.
    pub nonce: Nonce,
    /// When what its source said may go, where that is kept apart from its row: not before the row.
    pub expires_at: Timestamp,
}

/// What an admission found.
#[derive(Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The delivery is new, and so is its event where it has one. The lease is there where the event needs driving.
    Created {
        /// The right to drive the event.
        lease: Option<Lease>,
    },
    /// The delivery is new; its event was known already: another hook, a feed or recovery came first.
    Joined {
        /// The event as it stands, if this version can read its row.
        event: Option<Box<EventRow>>,
        /// This net had not told of it before.
        is_new_to_net: bool,
    },
    /// The delivery itself was known already.
    Duplicate {
        /// The digest of the kept bytes is another one. The kept bytes stay.
        conflict: bool,
        /// The event that was found beside it, if the ledger could tell in the same call.
        event: Option<Box<EventRow>>,
    },
}

/// What came of a claim.
#[derive(Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The right is ours.
    Won {
        /// The event as it stands now.
        row: Box<EventRow>,
        /// The right.
        lease: Lease,
    },
    /// Somebody else's, or nothing to do. An expected answer.
    Lost(super::Refused),
}

/// What came of a settle or renew.
#[derive(Debug, PartialEq, Eq)]
pub enum Settled {
    /// The ledger has it.
    Done,
    /// The right was not ours any more. Nothing changed, and the owner stops.
    Lost(super::Refused),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    fn claimed() -> State {
        State {
            status: Status::Claimed,
            reason: None,
            token: Token::from_number(4),
            nonce: Nonce::from_random(7),
            lease_until: Some(at(30)),
            failures: 1,
            tries: 0,
            due_at: Some(at(35)),
            waiting_for: None,
            destinations: BTreeMap::new(),
            generation: 0,
            expires_at: None,
        }
    }

    #[test]
    fn a_lease_is_proven_by_a_claimed_row_with_its_own_nonce_and_by_nothing_else() {
        // Invariants 4 and 11
        let (id, nonce) = (EventId::new("e"), Nonce::from_random(7));
        let lease = Lease::proven_by(&id, &claimed(), nonce).unwrap();
        assert_eq!(
            (lease.event(), lease.token(), lease.nonce()),
            (&id, Token::from_number(4), nonce)
        );
        assert_eq!(lease.until(), at(30));
        assert_eq!(Lease::proven_by(&id, &claimed(), Nonce::from_random(8)), None);
        let without_end = State {
            lease_until: None,
            ..claimed()
        };
        assert_eq!(Lease::proven_by(&id, &without_end, nonce), None);
        for status in Status::ALL.iter().filter(|status| **status != Status::Claimed) {
            let other = State {
                status: *status,
                ..claimed()
            };
            assert_eq!(Lease::proven_by(&id, &other, nonce), None, "{status}");
        }
    }

    #[test]
    fn tokens_only_grow() {
        assert_eq!((Token::NONE.next(), Token::FIRST.number()), (Token::FIRST, 1));
        assert!(Token::FIRST < Token::FIRST.next());
        let last = Token::from_number(u64::MAX);
        assert_eq!(
            last.next(),
            last,
            "after 2⁶⁴ claims of one row it stands still and never starts again"
        );
    }

    #[test]
    fn every_word_of_a_row_reads_back_as_what_it_was() {
        for status in Status::ALL {
            assert_eq!(Status::from_word(status.as_str()), Some(*status));
        }
        for reason in Reason::ALL {
            assert_eq!(Reason::from_word(reason.as_str()), Some(*reason));
        }
        for sent in Sent::ALL {
            assert_eq!(Sent::from_word(sent.as_str()), Some(*sent));
        }
    }

    #[test]
    fn two_statuses_are_terminal() {
        let terminal: Vec<_> = Status::ALL.iter().filter(|status| status.is_terminal()).collect();
        assert_eq!(terminal, [&Status::Processed, &Status::FailedPermanent]);
    }
}
