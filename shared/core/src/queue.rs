//! Messages of queues, as events.
//!
//! A message is its own record: what it says goes into the ledger with its event, once, under the queue's ARN and the
//! message's id. The same content under two message ids is two events.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::value::RawValue;

use crate::event::{Content, Event, EventId, Kind, Subject};

/// Version of the members that [`event`] writes, recorded in each message.
pub const SCHEMA_VERSION: &str = "1";
/// What the envelope calls a queue's messages.
const CLOUD_TYPE: &str = "com.amazonaws.sqs.message";

/// A message as its queue handed it over.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// ARN of the queue.
    pub queue: String,
    /// The queue's name of the message.
    pub id: String,
    /// The handle of this receive.
    pub receipt_handle: Option<String>,
    /// What it says.
    pub body: Body,
    /// What the queue says of it, such as `SentTimestamp`, under the queue's own names.
    pub system: BTreeMap<String, String>,
    /// What its sender says of it, under the sender's names.
    pub attributes: BTreeMap<String, Attribute>,
}

impl std::fmt::Debug for Message {
    /// Without what it says, which is payload.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Message({} {})", self.queue, self.id)
    }
}

/// What a message says.
#[derive(Clone, PartialEq, Eq)]
pub enum Body {
    /// Text.
    Text(String),
    /// What no text is: a string with half a surrogate pair in it.
    Bytes(Vec<u8>),
    /// Nothing that a queue can have sent: the record has no body, or one that is not a string. The record, as JSON.
    Malformed(String),
}

/// One attribute of a message.
#[derive(Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Its type, which may have a label behind a dot: `Number.float`.
    pub data_type: String,
    /// Its value.
    pub value: Value,
}

/// Value of an attribute.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// Text; digits as they came.
    Text(String),
    /// Bytes, in base64 as they came.
    Base64(String),
    /// None was given.
    Absent,
}

/// Whether the notifications of SNS topics are taken out of their envelopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelopes {
    /// The data is what was published; what its envelope says is beside it.
    Unwrap,
    /// The data is the envelope.
    Keep,
}

/// How messages become events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// Whether notifications are taken out of their envelopes.
    pub envelopes: Envelopes,
    /// The project that they belong to, recorded with each.
    pub project: Option<String>,
}

impl From<Envelopes> for Conversion {
    fn from(envelopes: Envelopes) -> Self {
        Self {
            envelopes,
            project: None,
        }
    }
}

impl Message {
    /// Whether this is nothing that a queue can have sent.
    #[must_use]
    pub const fn is_malformed(&self) -> bool {
        match self.body {
            Body::Malformed(_) => true,
            Body::Text(_) | Body::Bytes(_) => false,
        }
    }

    /// The message group, in a FIFO queue.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.system.get("MessageGroupId").map(String::as_str)
    }

    /// How often it was received, this time included; at least once.
    #[must_use]
    pub fn receives(&self) -> u32 {
        let count = self.system.get("ApproximateReceiveCount");
        count.and_then(|digits| digits.parse().ok()).unwrap_or(1).max(1)
    }

    /// About how many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let body = match &self.body {
            Body::Text(text) | Body::Malformed(text) => text.len(),
            Body::Bytes(bytes) => bytes.len(),
        };
        let value = |attribute: &Attribute| match &attribute.value {
            Value::Text(text) | Value::Base64(text) => text.len(),
            Value::Absent => 0,
        };
        self.attributes.values().map(value).fold(body, usize::saturating_add)
    }

    fn time(&self, name: &str) -> Option<Timestamp> {
        let millis = self.system.get(name)?.parse().ok()?;
        Timestamp::from_millisecond(millis).ok()
    }
}

/// The name under which the ledger keeps the message `id` of `queue`.
#[must_use]
pub fn event_id(queue: &str, id: &str) -> EventId {
    EventId::new(&format!("sqs/{queue}/{id}"))
}

/// What `message` means: always one event.
#[must_use]
pub fn event(message: &Message, conversion: &Conversion) -> Event {
    Event {
        id: event_id(&message.queue, &message.id),
        kind: Kind::QueueMessage,
        cloud_type: CLOUD_TYPE.to_owned(),
        cloud_source: message.queue.clone(),
        cloud_subject: message.group().unwrap_or_default().to_owned(),
        subject: Subject::Group {
            queue: message.queue.clone(),
            name: message.group().unwrap_or(&message.id).to_owned(),
        },
        pull_requests: Vec::new(),
        actor: None,
        url: None,
        summary: String::new(),
        branch: None,
        base: None,
        head_sha: None,
        conclusion: None,
        occurred_at: message.time("SentTimestamp"),
        delivery: None,
        content: Some(Content::Here(members(message, conversion))),
    }
}

/// The members of the envelope that come from the queue, as one JSON object, what was said last.
///
/// `CloudEvents` allows no maps among them, so that a map is text that is JSON.
fn members(message: &Message, conversion: &Conversion) -> String {
    let mut members = Members::default();
    members.text("id", &message.id);
    members.text("schemaversion", SCHEMA_VERSION);
    if let Some(project) = &conversion.project {
        members.text("project", project);
    }
    if let Some(handle) = &message.receipt_handle {
        members.text("receipthandle", handle);
    }
    members.raw("receivecount", &message.receives().to_string());
    if let Some(time) = message.time("ApproximateFirstReceiveTimestamp") {
        members.text("firstreceived", &time.to_string());
    }
    if !message.system.is_empty() {
        members.text("systemattributes", &to_json(&message.system));
    }
    let notification = match (&message.body, conversion.envelopes) {
        (Body::Text(text), Envelopes::Unwrap) => notification(text),
        (Body::Text(_) | Body::Bytes(_) | Body::Malformed(_), _) => None,
    };
    match &notification {
        None => members.attributes("messageattributes", &message.attributes),
        Some(notification) => {
            members.attributes("messageattributes", &notification.attributes());
            // Those of the carrying message, should it have any of its own.
            members.attributes("sqsattributes", &message.attributes);
            members.text("snsmessageid", &notification.id);
            members.text("snstopic", &notification.topic);
            if let Some(subject) = &notification.subject {
                members.text("snssubject", subject);
            }
            if let Some(time) = &notification.time {
                members.text("snstime", time);
            }
        }
    }
    match (&notification, &message.body) {
        (Some(notification), _) => members.data(&notification.message),
        (None, Body::Text(text)) => members.data(text),
        (None, Body::Bytes(bytes)) => {
            members.text("datacontenttype", "application/octet-stream");
            members.text("data_base64", &STANDARD.encode(bytes));
        }
        (None, Body::Malformed(record)) => {
            members.text("datacontenttype", "application/json");
            members.raw("data", record);
        }
    }
    members.finish()
}

/// A JSON object in the making.
struct Members(String);

impl Default for Members {
    fn default() -> Self {
        Self("{".to_owned())
    }
}

impl Members {
    fn raw(&mut self, name: &str, json: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&format!("\"{name}\":"));
        self.0.push_str(json);
    }

    fn text(&mut self, name: &str, text: &str) {
        self.raw(name, &to_json(&text));
    }

    fn attributes(&mut self, name: &str, attributes: &BTreeMap<String, Attribute>) {
        if attributes.is_empty() {
            return;
        }
        let mut map = serde_json::Map::new();
        for (attribute, Attribute { data_type, value }) in attributes {
            let (kind, label) = match data_type.split_once('.') {
                Some((kind, label)) => (kind, Some(label)),
                None => (data_type.as_str(), None),
            };
            let mut object = serde_json::Map::from_iter([("type".to_owned(), kind.into())]);
            object.extend(label.map(|label| ("label".to_owned(), label.into())));
            match value {
                Value::Text(text) => object.insert("value".to_owned(), text.as_str().into()),
                Value::Base64(text) => object.insert("base64".to_owned(), text.as_str().into()),
                Value::Absent => None,
            };
            map.insert(attribute.clone(), object.into());
        }
        self.text(name, &to_json(&map));
    }

    /// JSON as it is, digit for digit; anything else as text. A byte order mark is no part of JSON, so that what begins with
    /// one is text. So is what a reader of the whole message would stumble over: half a surrogate pair, numbers beyond a double's
    /// range, nesting deeper than readers go.
    fn data(&mut self, text: &str) {
        let readable = serde_json::from_str::<serde_json::Value>(text).is_ok();
        match serde_json::from_str::<&RawValue>(text) {
            Ok(json) if readable => {
                self.text("datacontenttype", "application/json");
                self.raw("data", json.get());
            }
            Ok(_) | Err(_) => {
                self.text("datacontenttype", "text/plain");
                self.text("data", text);
            }
        }
    }

    fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("texts and maps of texts always serialise")
}

/// A notification of an SNS topic, around what was published.
#[derive(serde::Deserialize)]
struct Notification<'a> {
    #[serde(rename = "Type", borrow)]
    kind: Cow<'a, str>,
    #[serde(rename = "MessageId", borrow)]
    id: Cow<'a, str>,
    #[serde(rename = "TopicArn", borrow)]
    topic: Cow<'a, str>,
    #[serde(rename = "Message", borrow)]
    message: Cow<'a, str>,
    #[serde(rename = "Subject", borrow)]
    subject: Option<Cow<'a, str>>,
    #[serde(rename = "Timestamp", borrow)]
    time: Option<Cow<'a, str>>,
    #[serde(rename = "MessageAttributes", borrow)]
    attributes: Option<BTreeMap<String, NotificationAttribute<'a>>>,
}

#[derive(serde::Deserialize)]
struct NotificationAttribute<'a> {
    #[serde(rename = "Type", borrow)]
    kind: Cow<'a, str>,
    #[serde(rename = "Value", borrow)]
    value: Cow<'a, str>,
}

/// The notification that `body` is, if it is one.
fn notification(body: &str) -> Option<Notification<'_>> {
    let notification: Notification<'_> = serde_json::from_str(body).ok()?;
    (notification.kind == "Notification").then_some(notification)
}

impl Notification<'_> {
    fn attributes(&self) -> BTreeMap<String, Attribute> {
        let attributes = self.attributes.iter().flatten();
        attributes
            .map(|(name, attribute)| {
                let value = attribute.value.clone().into_owned();
                let value = if attribute.kind.starts_with("Binary") {
                    Value::Base64(value)
                } else {
                    Value::Text(value)
                };
                let data_type = attribute.kind.clone().into_owned();
                (name.clone(), Attribute { data_type, value })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
