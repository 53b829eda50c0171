//! Time that tests move, chance that repeats, inboxes that record, secrets that are given.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_aws::secrets::{Document, Documents, ReadError};
use forebay_core::ledger::Sent;
use forebay_core::ports::{Inboxes, Outgoing, TimeAndChance};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

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

/// A clock that a test moves and that the runtime's waits move as well: a time-out of the one is time on the other.
#[derive(Clone, Debug)]
pub struct RunningTime {
    /// What a test moves.
    pub moved: ManualTime,
    began: Instant,
}

impl RunningTime {
    /// A clock that shows `at` now.
    #[must_use]
    pub fn from(at: Timestamp) -> Self {
        Self {
            moved: ManualTime::at(at),
            began: Instant::now(),
        }
    }
}

impl TimeAndChance for RunningTime {
    /// In whole milliseconds, as the system's.
    fn now(&self) -> Timestamp {
        let waited_ms = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX);
        let waited = SignedDuration::from_millis(waited_ms);
        self.moved.now().saturating_add(waited).unwrap_or(Timestamp::MAX)
    }

    fn random(&self) -> u64 {
        self.moved.random()
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
    /// Lets other tasks run before it takes the messages and before it says so, as a send over a network does.
    async fn send(&self, messages: Vec<Outgoing>) -> Vec<Sent> {
        tokio::task::yield_now().await;
        let outcomes = self.state().take(messages);
        tokio::task::yield_now().await;
        outcomes
    }
}

impl Recorded {
    fn take(&mut self, messages: Vec<Outgoing>) -> Vec<Sent> {
        let mut outcomes = Vec::new();
        for message in messages {
            self.sends += 1;
            let outcome = self.outcomes.get(&message.inbox).copied().unwrap_or(Sent::Yes);
            let fresh =
                outcome == Sent::Yes && self.seen.insert((message.inbox.clone(), message.deduplication.clone()));
            if fresh {
                self.messages.push(message);
            }
            outcomes.push(outcome);
        }
        outcomes
    }
}

/// What is written to a sink, such as lines of metrics or logs.
#[derive(Clone, Debug, Default)]
pub struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    /// All that was written.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Every line, read as JSON.
    ///
    /// # Panics
    /// Where a line is not JSON.
    #[must_use]
    pub fn lines(&self) -> Vec<serde_json::Value> {
        let text = self.text();
        let read = |line| serde_json::from_str(line).expect("each line is JSON");
        text.lines().map(read).collect()
    }
}

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A secret document that a test sets, and a count of its reads.
#[derive(Clone, Debug, Default)]
pub struct GivenSecrets {
    state: Arc<Mutex<Given>>,
}

#[derive(Debug, Default)]
struct Given {
    document: Option<String>,
    reads: usize,
    hangs: bool,
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
        self.state().document = document;
    }

    /// From now on no read is ever answered.
    pub fn hang(&self) {
        self.state().hangs = true;
    }

    /// How often it was read.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.state().reads
    }

    fn state(&self) -> MutexGuard<'_, Given> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Documents for GivenSecrets {
    async fn read(&self) -> Result<Document, ReadError> {
        let (document, hangs) = {
            let mut state = self.state();
            state.reads += 1;
            (state.document.clone(), state.hangs)
        };
        tokio::task::yield_now().await;
        if hangs {
            std::future::pending::<()>().await;
        }
        match document {
            Some(current) => Ok(Document {
                current,
                previous: None,
            }),
            None => Err(ReadError::File {
                path: "given".into(),
                source: std::io::Error::from(std::io::ErrorKind::NotFound),
            }),
        }
    }
}
