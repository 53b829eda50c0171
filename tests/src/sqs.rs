//! A function behind queues in process, and batches for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_aws::config::SqsConfig;
use forebay_aws::metrics::Metrics;
use forebay_aws::sqs_event::SqsEvent;
use forebay_core::ports::{HeldBack, Inboxes, Ledger, Queues, TimeAndChance as _};
use jiff::Timestamp;
use serde_json::{Value, json};
use sqs::{Intake, Nameless};

use crate::fakes::{ManualTime, RecordingInboxes, Written};
use crate::webhook::environment;

/// A standard queue whose messages are for `builder`.
pub const ORDERS: &str = "arn:aws:sqs:eu-west-1:000000000000:orders";
/// A FIFO queue whose messages are for `reviewer`.
pub const STEPS: &str = "arn:aws:sqs:eu-west-1:000000000000:steps.fifo";

/// Queues that keep what was held back.
#[derive(Clone, Debug, Default)]
pub struct RecordingQueues(Arc<Mutex<Vec<HeldBack>>>);

impl RecordingQueues {
    /// Every message that was held back: its receipt handle, and for how many seconds.
    #[must_use]
    pub fn held_back(&self) -> Vec<(String, u32)> {
        let held_back = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held_back
            .iter()
            .map(|held| (held.receipt_handle.clone(), held.seconds))
            .collect()
    }
}

impl Queues for RecordingQueues {
    async fn hold_back(&self, messages: Vec<HeldBack>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(messages);
    }
}

/// The environment of the tests' function behind queues.
#[must_use]
pub fn queue_environment(changed: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut environment = environment();
    let ours = [("QUEUE_ROUTES", "orders=builder,steps.fifo=reviewer")];
    for (name, value) in ours.iter().chain(changed) {
        environment.insert((*name).to_owned(), (*value).to_owned());
    }
    environment
}

/// A function behind queues, with everything around it in the test's hands.
#[derive(Debug)]
pub struct QueueStand<L, I = RecordingInboxes> {
    /// The function.
    pub intake: Intake<L, I, RecordingQueues, ManualTime>,
    /// Its ledger, once more.
    pub ledger: L,
    /// Its inboxes.
    pub inboxes: I,
    /// Its queues.
    pub queues: RecordingQueues,
    /// Its clock.
    pub time: ManualTime,
    /// Its lines of metrics.
    pub metrics: Written,
}

impl<L: Ledger + Clone, I: Inboxes + Clone> QueueStand<L, I> {
    /// A function behind queues on `ledger`, with `environment`, at noon of 29 November 2026.
    ///
    /// # Panics
    /// Where `environment` is unusable.
    #[must_use]
    pub fn with(ledger: L, inboxes: I, environment: BTreeMap<String, String>) -> Self {
        let config = SqsConfig::read(environment).expect("a usable environment");
        let (queues, time) = (RecordingQueues::default(), ManualTime::at(crate::webhook::noon()));
        let metrics = Written::default();
        let lines = Metrics::to("Forebay", Box::new(metrics.clone()));
        Self {
            intake: Intake::new(
                &config,
                ledger.clone(),
                inboxes.clone(),
                queues.clone(),
                time.clone(),
                lines,
            ),
            ledger,
            inboxes,
            queues,
            time,
            metrics,
        }
    }

    /// Takes a batch, and says which messages come again.
    ///
    /// # Errors
    /// As the function.
    ///
    /// # Panics
    /// Where `records` is no list.
    pub async fn take(&self, records: &Value) -> Result<Vec<String>, Nameless> {
        self.take_until(records, Timestamp::MAX).await
    }

    /// Takes a batch before `deadline`.
    ///
    /// # Errors
    /// As the function.
    ///
    /// # Panics
    /// Where `records` is no list.
    pub async fn take_until(&self, records: &Value, deadline: Timestamp) -> Result<Vec<String>, Nameless> {
        let event: SqsEvent =
            serde_json::from_value(json!({"Records": records})).expect("a batch as Lambda hands it over");
        // Boxed: futures within futures are too large for the stack of a test's thread.
        let answer = Box::pin(self.intake.take(&event, deadline)).await?;
        let failures = answer.batch_item_failures.into_iter();
        Ok(failures.map(|failure| failure.item_identifier).collect())
    }
}

impl<L, I> QueueStand<L, I> {
    /// Now, by its clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.time.now()
    }
}

/// A record of `queue` as Lambda hands it over, received for the first time, sent at noon.
#[must_use]
pub fn record(queue: &str, id: &str, body: &str) -> Value {
    let sent_at = crate::webhook::noon().as_millisecond().to_string();
    json!({
        "messageId": id,
        "receiptHandle": format!("rh-{id}"),
        "body": body,
        "attributes": {"SentTimestamp": sent_at, "ApproximateReceiveCount": "1"},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": queue,
        "awsRegion": "eu-west-1",
    })
}

/// A record of the FIFO queue in `group`.
#[must_use]
pub fn step(group: &str, id: &str) -> Value {
    let mut record = record(STEPS, id, &format!("{{\"step\":\"{id}\"}}"));
    record["attributes"]["MessageGroupId"] = group.into();
    record
}

/// `record` after so many receives.
#[must_use]
pub fn received(mut record: Value, times: u32) -> Value {
    record["attributes"]["ApproximateReceiveCount"] = times.to_string().into();
    record
}
