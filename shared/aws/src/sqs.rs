//! Inboxes in SQS, and the queues that messages come from.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, MessageAttributeValue, QueueAttributeName, SendMessageBatchRequestEntry,
};
use forebay_core::ledger::Sent;
use forebay_core::ports::{ErrorClass, HeldBack, Inboxes, Outgoing, Queues};
use tokio::task::JoinSet;

use crate::fault::{class_of_code, classify};

/// Largest message, and largest batch, in bytes, attributes included
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html>).
pub const MESSAGE_BYTES_MAX: usize = 1_048_576;
/// Most messages of one batch, from the same page.
const BATCH_MAX: usize = 10;
/// The attribute that says how to read the body.
const CONTENT_TYPE: &str = "content-type";
/// `CloudEvents` in structured mode.
const CLOUD_EVENT: &str = "application/cloudevents+json";
/// What the attribute adds to a message: name, type and value.
const ATTRIBUTE_BYTES: usize = CONTENT_TYPE.len() + "String".len() + CLOUD_EVENT.len();

/// The queues behind the inboxes' names.
#[derive(Clone, Debug)]
pub struct SqsInboxes {
    client: Client,
    urls: BTreeMap<String, String>,
}

/// A message and its place in what was asked for.
struct Placed {
    position: usize,
    message: Outgoing,
}

impl SqsInboxes {
    /// Inboxes at these queue URLs.
    #[must_use]
    pub fn new(client: Client, urls: BTreeMap<String, String>) -> Self {
        Self { client, urls }
    }
}

impl Inboxes for SqsInboxes {
    async fn send(&self, messages: Vec<Outgoing>) -> Vec<Sent> {
        // What nobody says otherwise about was not sent.
        let mut outcomes = vec![Sent::Unreachable; messages.len()];
        let mut by_inbox: BTreeMap<String, Vec<Placed>> = BTreeMap::new();
        for (position, message) in messages.into_iter().enumerate() {
            by_inbox
                .entry(message.inbox.clone())
                .or_default()
                .push(Placed { position, message });
        }
        let mut queues = JoinSet::new();
        for (inbox, messages) in by_inbox {
            match self.urls.get(&inbox) {
                Some(url) => {
                    queues.spawn(send_to_queue(self.client.clone(), url.clone(), messages));
                }
                // A session can outlive the stack's knowledge of its agent: when the agent comes back, so does its inbox.
                None => {
                    tracing::error!(inbox = %inbox, "send to inbox {inbox}: no such inbox; add it to the agents");
                    for placed in messages {
                        if let Some(slot) = outcomes.get_mut(placed.position) {
                            *slot = Sent::Denied;
                        }
                    }
                }
            }
        }
        while let Some(finished) = queues.join_next().await {
            for (position, outcome) in finished.unwrap_or_default() {
                if let Some(slot) = outcomes.get_mut(position) {
                    *slot = outcome;
                }
            }
        }
        outcomes
    }
}

/// Sends one queue's messages, in order.
async fn send_to_queue(client: Client, url: String, messages: Vec<Placed>) -> Vec<(usize, Sent)> {
    let mut outcomes = Vec::with_capacity(messages.len());
    for batch in batches(messages) {
        outcomes.extend(send_batch(&client, &url, batch).await);
    }
    outcomes
}

/// Cuts messages into batches that SQS takes. What is too large alone is replaced by its reference.
fn batches(messages: Vec<Placed>) -> Vec<Vec<(usize, String, Outgoing)>> {
    let mut batches: Vec<Vec<(usize, String, Outgoing)>> = Vec::new();
    let mut bytes = 0;
    for Placed { position, mut message } in messages {
        let whole = message.body.len().saturating_add(ATTRIBUTE_BYTES) <= MESSAGE_BYTES_MAX;
        let body = std::mem::take(if whole {
            &mut message.body
        } else {
            &mut message.reference
        });
        let size = body.len().saturating_add(ATTRIBUTE_BYTES);
        match batches.last_mut() {
            Some(batch) if batch.len() < BATCH_MAX && bytes + size <= MESSAGE_BYTES_MAX => {
                bytes += size;
                batch.push((position, body, message));
            }
            Some(_) | None => {
                bytes = size;
                batches.push(vec![(position, body, message)]);
            }
        }
    }
    batches
}

/// Sends one batch; every entry has an outcome of its own.
async fn send_batch(client: &Client, url: &str, batch: Vec<(usize, String, Outgoing)>) -> Vec<(usize, Sent)> {
    let positions: Vec<usize> = batch.iter().map(|(position, ..)| *position).collect();
    let content_type = MessageAttributeValue::builder()
        .data_type("String")
        .string_value(CLOUD_EVENT)
        .build();
    let entries = batch.into_iter().map(|(position, body, message)| {
        let mut entry = SendMessageBatchRequestEntry::builder()
            .id(position.to_string())
            .message_body(body)
            .message_group_id(message.group)
            .message_deduplication_id(message.deduplication);
        if let Ok(content_type) = &content_type {
            entry = entry.message_attributes(CONTENT_TYPE, content_type.clone());
        }
        entry.build()
    });
    let Ok(entries) = entries.collect::<Result<Vec<_>, _>>() else {
        tracing::error!("send to {url}: an entry was not built; report this");
        return all(&positions, Sent::Rejected);
    };
    let output = match client
        .send_message_batch()
        .queue_url(url)
        .set_entries(Some(entries))
        .send()
        .await
    {
        Ok(output) => output,
        Err(error) => {
            let (class, fault) = classify(&error);
            tracing::warn!("send to {url}: {} ({fault})", class.as_str());
            return all(&positions, of_class(class));
        }
    };
    let position = |id: &str| id.parse::<usize>().ok();
    let sent = output
        .successful()
        .iter()
        .filter_map(|entry| Some((position(entry.id())?, Sent::Yes)));
    let failed = output.failed().iter().filter_map(|entry| {
        tracing::warn!("send to {url}: an entry failed: {}", entry.code());
        let outcome = of_class(class_of_code(entry.code()));
        // Without a fault of the sender it was not the message.
        let innocent = outcome == Sent::Rejected && !entry.sender_fault();
        let outcome = if innocent { Sent::Unreachable } else { outcome };
        Some((position(entry.id())?, outcome))
    });
    sent.chain(failed).collect()
}

fn all(positions: &[usize], outcome: Sent) -> Vec<(usize, Sent)> {
    positions.iter().map(|position| (*position, outcome)).collect()
}

/// Only the message itself counts against its event; a queue that is busy, gone or forbidden is trouble of the surroundings.
fn of_class(class: ErrorClass) -> Sent {
    match class {
        ErrorClass::Throttled => Sent::Throttled,
        ErrorClass::Denied | ErrorClass::NotFound => Sent::Denied,
        ErrorClass::Conflict | ErrorClass::TimedOut | ErrorClass::Unreachable | ErrorClass::ServerFault => {
            Sent::Unreachable
        }
        ErrorClass::TooLarge | ErrorClass::Invalid | ErrorClass::Unreadable => Sent::Rejected,
    }
}

/// The queues that messages come from.
#[derive(Debug)]
pub struct SqsQueues {
    client: Client,
    /// What is known of queues, by ARN.
    known: Mutex<BTreeMap<String, KnownQueue>>,
}

/// What is asked of a queue once.
#[derive(Clone, Debug)]
struct KnownQueue {
    url: String,
    /// Its own visibility timeout, in seconds.
    visibility: u32,
}

impl SqsQueues {
    /// Queues behind this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
        }
    }

    /// What there is to know of the queue with this ARN, asked for once.
    async fn queue(&self, arn: &str) -> Option<KnownQueue> {
        let known = self
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(arn)
            .cloned();
        if known.is_some() {
            return known;
        }
        let mut parts = arn.rsplitn(3, ':');
        let (name, account) = (parts.next()?, parts.next()?);
        let request = self
            .client
            .get_queue_url()
            .queue_name(name)
            .queue_owner_aws_account_id(account);
        let url = told("look for the URL of queue", arn, request.send().await)?.queue_url?;
        let request = self.client.get_queue_attributes().queue_url(&url);
        let request = request.attribute_names(QueueAttributeName::VisibilityTimeout).send();
        let attributes = told("ask for the visibility timeout of queue", arn, request.await)?.attributes;
        let seconds = attributes.and_then(|mut all| all.remove(&QueueAttributeName::VisibilityTimeout));
        let queue = KnownQueue {
            url,
            visibility: seconds.and_then(|digits| digits.parse().ok()).unwrap_or(0),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(arn.to_owned(), queue.clone());
        Some(queue)
    }

    async fn hold_back_batch(&self, url: &str, batch: &[HeldBack]) {
        let entries = batch.iter().enumerate().map(|(position, message)| {
            ChangeMessageVisibilityBatchRequestEntry::builder()
                .id(position.to_string())
                .receipt_handle(&message.receipt_handle)
                .visibility_timeout(i32::try_from(message.seconds).unwrap_or(i32::MAX))
                .build()
        });
        let Ok(entries) = entries.collect::<Result<Vec<_>, _>>() else {
            tracing::error!("hold back messages of {url}: an entry was not built; report this");
            return;
        };
        let request = self.client.change_message_visibility_batch();
        match request.queue_url(url).set_entries(Some(entries)).send().await {
            Ok(output) => {
                for failed in output.failed() {
                    tracing::warn!("hold back a message of {url}: {}", failed.code());
                }
            }
            Err(error) => {
                let (class, fault) = classify(&error);
                tracing::warn!("hold back messages of {url}: {} ({fault})", class.as_str());
            }
        }
    }
}

/// What SQS answered, or a line in the log.
fn told<T, E: ProvideErrorMetadata, R>(attempted: &str, on: &str, answer: Result<T, SdkError<E, R>>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(error) => {
            let (class, fault) = classify(&error);
            tracing::warn!("{attempted} {on}: {} ({fault})", class.as_str());
            None
        }
    }
}

impl Queues for SqsQueues {
    async fn hold_back(&self, messages: Vec<HeldBack>) {
        let mut by_queue: BTreeMap<String, Vec<HeldBack>> = BTreeMap::new();
        for message in messages {
            by_queue.entry(message.queue.clone()).or_default().push(message);
        }
        for (queue, messages) in by_queue {
            let Some(known) = self.queue(&queue).await else {
                continue;
            };
            // A queue that holds its messages back for longer by itself needs nothing: this would shorten it.
            let longer = messages
                .into_iter()
                .filter(|message| message.seconds > known.visibility);
            let longer: Vec<HeldBack> = longer.collect();
            for batch in longer.chunks(BATCH_MAX) {
                self.hold_back_batch(&known.url, batch).await;
            }
        }
    }
}

#[cfg(test)]
mod tests;
