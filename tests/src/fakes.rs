//! Time that tests move, chance that repeats, inboxes that record, secrets that are given.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_aws::secrets::{Document, Documents, ReadError};
use forebay_core::ledger::Sent;
use forebay_core::ports::{Inboxes, Outgoing, TimeAndChance};
use jiff::{SignedDuration, Timestamp};

/// A clock that stands until it is moved, and numbers that are never twice the same.
#[derive(Clone, Debug)]
pub struct ManualTime {
    now_ms: Arc<AtomicI64>,
    drawn: Arc<AtomicU64>,
}

impl ManualTime {
    /// A clock that stands at `at`.
    #[must_use]
    pub fn at(at: Timestamp) -> Self {
        Self {
            now_ms: Arc::new(AtomicI64::new(at.as_millisecond())),
            drawn: Arc::new(AtomicU64::new(1)),
        }
    }

    /// Moves the clock.
    ///
    /// # Panics
    /// Where `span` does not fit the clock.
    pub fn pass(&self, span: SignedDuration) {
        let span_ms = i64::try_from(span.as_millis()).expect("a span of a test fits");
        self.now_ms.fetch_add(span_ms, Ordering::SeqCst);
    }
}

impl TimeAndChance for ManualTime {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.now_ms.load(Ordering::SeqCst)).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    fn random(&self) -> u64 {
        // Odd multiples of an odd number: all different, and far apart.
        self.drawn
            .fetch_add(1, Ordering::SeqCst)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Inboxes that keep what they get, drop what their deduplication knows, and fail where a test says so.
#[derive(Clone, Debug, Default)]
pub struct RecordingInboxes {
    state: Arc<Mutex<Recorded>>,
}

#[derive(Debug, Default)]
struct Recorded {
    messages: Vec<Outgoing>,
    seen: BTreeSet<(String, String)>,
    outcomes: BTreeMap<String, Sent>,
    sends: usize,
}

impl RecordingInboxes {
    /// From now on, sends to `inbox` end like this. `Sent::Yes` mends it.
    pub fn set_outcome(&self, inbox: &str, outcome: Sent) {
        self.state().outcomes.insert(inbox.to_owned(), outcome);
    }

    /// Every message of `inbox`, in order.
    #[must_use]
    pub fn messages(&self, inbox: &str) -> Vec<Outgoing> {
        self.state()
            .messages
            .iter()
            .filter(|message| message.inbox == inbox)
            .cloned()
            .collect()
    }

    /// Every message of every inbox, in order.
    #[must_use]
    pub fn all(&self) -> Vec<Outgoing> {
        self.state().messages.clone()
    }

    /// How often something was sent, whatever came of it.
    #[must_use]
    pub fn sends(&self) -> usize {
        self.state().sends
    }

    fn state(&self) -> MutexGuard<'_, Recorded> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inboxes for RecordingInboxes {
    async fn send(&self, messages: Vec<Outgoing>) -> Vec<Sent> {
        let mut state = self.state();
        let mut outcomes = Vec::new();
        for message in messages {
            state.sends += 1;
            let outcome = state.outcomes.get(&message.inbox).copied().unwrap_or(Sent::Yes);
            let fresh = outcome == Sent::Yes
                && state
                    .seen
                    .insert((message.inbox.clone(), message.deduplication.clone()));
            if fresh {
                state.messages.push(message);
            }
            outcomes.push(outcome);
        }
        outcomes
    }
}

/// A secret document that a test sets, and a count of its reads.
#[derive(Clone, Debug, Default)]
pub struct GivenSecrets {
    state: Arc<Mutex<(Option<String>, usize)>>,
}

impl GivenSecrets {
    /// One secret.
    #[must_use]
    pub fn single(secret: &str) -> Self {
        let given = Self::default();
        given.set(Some(
            serde_json::json!({"github": {"webhook_secret": secret}}).to_string(),
        ));
        given
    }

    /// Sets the document; `None` makes every read fail as if the file were gone.
    pub fn set(&self, document: Option<String>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 = document;
    }

    /// How often it was read.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

impl Documents for GivenSecrets {
    async fn read(&self) -> Result<Document, ReadError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 += 1;
        match &state.0 {
            Some(current) => Ok(Document {
                current: current.clone(),
                previous: None,
            }),
            None => Err(ReadError::File {
                path: "given".into(),
                source: std::io::Error::from(std::io::ErrorKind::NotFound),
            }),
        }
    }
}
