//! Batches of queue messages as Lambda hands them over, and the answer it wants.
//!
//! Read here, record by record, rather than into a ready-made type: there one odd record fails the whole invocation, and all
//! of its neighbours with it.

use std::collections::BTreeMap;
use std::fmt;

use forebay_core::queue::{Attribute, Body, Message, Value};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A batch.
#[derive(Deserialize)]
pub struct SqsEvent {
    #[serde(rename = "Records")]
    records: Vec<Box<RawValue>>,
}

impl fmt::Debug for SqsEvent {
    /// Without the records, which are payload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqsEvent({} records)", self.records.len())
    }
}

/// What a batch holds.
#[derive(Debug, Default)]
pub struct Batch {
    /// Its messages, in order.
    pub messages: Vec<Message>,
    /// Records without a usable id or queue: no answer could name them.
    pub nameless: usize,
}

impl SqsEvent {
    /// Reads the records, each on its own. A record that does not name its queue belongs to the queue of the others: a mapping
    /// has one.
    #[must_use]
    pub fn read(&self) -> Batch {
        let fields: Vec<Fields<'_>> = self.records.iter().map(|record| fields(record)).collect();
        let common = fields.iter().find_map(|fields| fields.text("eventSourceARN"));
        let mut batch = Batch::default();
        for (fields, record) in fields.iter().zip(&self.records) {
            match message(fields, record.get(), common.as_deref()) {
                Some(message) => batch.messages.push(message),
                None => batch.nameless += 1,
            }
        }
        batch
    }
}

/// Members of a JSON object by name, none of them looked at. No object has none.
struct Fields<'a>(BTreeMap<String, &'a RawValue>);

fn fields(json: &RawValue) -> Fields<'_> {
    Fields(serde_json::from_str(json.get()).unwrap_or_default())
}

impl<'a> Fields<'a> {
    /// The text of a member, where it is text and not blank.
    fn text(&self, name: &str) -> Option<String> {
        let text: String = serde_json::from_str(self.0.get(name)?.get()).ok()?;
        (!text.trim().is_empty()).then_some(text)
    }

    /// The members of a member, in no case more than there are.
    fn each(&self, name: &str) -> impl Iterator<Item = (String, &'a RawValue)> {
        let inner = self.0.get(name).map(|json| fields(json).0).unwrap_or_default();
        inner.into_iter()
    }
}

fn message(fields: &Fields<'_>, record: &str, common: Option<&str>) -> Option<Message> {
    let queue = fields.text("eventSourceARN").or_else(|| common.map(str::to_owned))?;
    let id = fields.text("messageId")?;
    let said = fields.0.get("body").and_then(|json| body(json));
    let system = fields.each("attributes").filter_map(|(name, json)| {
        let text: String = serde_json::from_str(json.get()).ok()?;
        Some((name, text))
    });
    Some(Message {
        queue,
        id,
        receipt_handle: fields.text("receiptHandle"),
        body: said.unwrap_or_else(|| Body::Malformed(record.to_owned())),
        system: system.collect(),
        attributes: fields
            .each("messageAttributes")
            .map(|(name, json)| (name, attribute(json)))
            .collect(),
    })
}

/// A string, as text where it is text. `None` where it is no string.
fn body(json: &RawValue) -> Option<Body> {
    let Text(bytes) = serde_json::from_str(json.get()).ok()?;
    Some(match String::from_utf8(bytes) {
        Ok(text) => Body::Text(text),
        Err(not_text) => Body::Bytes(not_text.into_bytes()),
    })
}

fn attribute(json: &RawValue) -> Attribute {
    let fields = fields(json);
    let text = |name| {
        let json: &&RawValue = fields.0.get(name)?;
        serde_json::from_str::<String>(json.get()).ok()
    };
    let value = match (text("stringValue"), text("binaryValue")) {
        (Some(text), _) => Value::Text(text),
        (None, Some(base64)) => Value::Base64(base64),
        (None, None) => Value::Absent,
    };
    Attribute {
        data_type: text("dataType").unwrap_or_default(),
        value,
    }
}

/// A JSON string as bytes: half a surrogate pair is no text, and no reason to lose the rest.
struct Text(Vec<u8>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }

            fn visit_str<E>(self, text: &str) -> Result<Vec<u8>, E> {
                Ok(text.as_bytes().to_vec())
            }
        }
        deserializer.deserialize_bytes(Bytes).map(Self)
    }
}

/// Which messages of a batch are to come again. All others are deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchAnswer {
    /// Those messages. Anything but ids of this very batch here would fail all of it.
    pub batch_item_failures: Vec<BatchItemFailure>,
}

/// One message that is to come again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchItemFailure {
    /// Its id.
    pub item_identifier: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const QUEUE: &str = "arn:aws:sqs:eu-west-1:000000000000:in";

    fn read(records: &str) -> Batch {
        let event: SqsEvent = serde_json::from_str(&format!("{{\"Records\":{records}}}")).unwrap();
        event.read()
    }

    fn only(record: &str) -> Message {
        let mut batch = read(&format!("[{record}]"));
        assert_eq!((batch.messages.len(), batch.nameless), (1, 0), "{record}");
        batch.messages.remove(0)
    }

    fn with_body(body: &str) -> Body {
        only(&format!(
            "{{\"messageId\":\"m1\",\"body\":{body},\"eventSourceARN\":\"{QUEUE}\"}}"
        ))
        .body
    }

    #[test]
    fn a_record_is_read_whole() {
        let record = json!({
            "messageId": "m1", "receiptHandle": "rh", "body": "Pla\u{e7}a \u{ff}", "eventSourceARN": QUEUE,
            "attributes": {"SentTimestamp": "1767323045123", "ApproximateReceiveCount": "2", "odd": 7},
            "messageAttributes": {
                "a": {"dataType": "String", "stringValue": "x"},
                "b": {"dataType": "String", "stringValue": "y", "binaryValue": null, "stringListValues": []},
                "c": {"dataType": "Binary", "binaryValue": "AA=="},
                "d": 5,
            },
        });
        let message = only(&record.to_string());
        assert_eq!((message.queue.as_str(), message.id.as_str()), (QUEUE, "m1"));
        assert_eq!((message.receipt_handle.as_deref(), message.receives()), (Some("rh"), 2));
        assert!(message.body == Body::Text("Pla\u{e7}a \u{ff}".to_owned()), "SQSA-06");
        assert_eq!(
            message.system.keys().collect::<Vec<_>>(),
            ["ApproximateReceiveCount", "SentTimestamp"]
        );
        let value = |name: &str| message.attributes[name].value.clone();
        assert!(
            value("a") == Value::Text("x".to_owned()) && value("b") == Value::Text("y".to_owned()),
            "SQSA-01"
        );
        assert!(value("c") == Value::Base64("AA==".to_owned()) && value("d") == Value::Absent);
    }

    #[test]
    fn a_record_that_is_not_as_it_should_be_is_malformed_alone() {
        // SQSB-03, SQSD-10
        let batch = read(&format!(
            "[{{\"messageId\":\"m1\",\"body\":\"{{}}\",\"eventSourceARN\":\"{QUEUE}\"}},{{\"messageId\":\"m2\",\"body\":null}},\
             {{\"messageId\":\"m3\",\"body\":{{\"a\":1}}}},{{\"messageId\":\"m4\",\"attributes\":[],\"messageAttributes\":\"x\"}}]"
        ));
        let found: Vec<_> = batch
            .messages
            .iter()
            .map(|m| (m.id.as_str(), m.is_malformed(), m.queue.as_str()))
            .collect();
        let expected = [
            ("m1", false, QUEUE),
            ("m2", true, QUEUE),
            ("m3", true, QUEUE),
            ("m4", true, QUEUE),
        ];
        assert_eq!((found.as_slice(), batch.nameless), (expected.as_slice(), 0));
    }

    #[test]
    fn a_record_without_a_usable_id_or_queue_has_no_name() {
        let batch = read(&format!(
            "[1,null,{{}},{{\"messageId\":\"\",\"eventSourceARN\":\"{QUEUE}\"}},{{\"messageId\":7}},{{\"messageId\":\" \"}}]"
        ));
        assert_eq!((batch.messages.len(), batch.nameless), (0, 6));
        assert_eq!(
            read("[{\"messageId\":\"m1\",\"body\":\"x\"}]").nameless,
            1,
            "no queue at all"
        );
        assert_eq!(read("[]").messages.len(), 0, "SQSB-04");
    }

    #[test]
    fn half_a_surrogate_pair_costs_nothing_of_its_neighbours() {
        assert!(with_body("\"a\\ud800b\"") == Body::Bytes(b"a\xed\xa0\x80b".to_vec()));
        assert!(with_body("\"\\ud83d\\ude80\"") == Body::Text("🚀".to_owned()));
        assert!(with_body("\"nul \\u0000\"") == Body::Text("nul \0".to_owned()));
        assert!(matches!(with_body("17"), Body::Malformed(_)));
    }

    #[test]
    fn the_answer_has_the_form_that_lambda_wants() {
        // SQSB-01, SQSB-04
        let text = |answer: &BatchAnswer| serde_json::to_string(answer).unwrap();
        assert_eq!(text(&BatchAnswer::default()), "{\"batchItemFailures\":[]}");
        let failure = BatchItemFailure {
            item_identifier: "m2".to_owned(),
        };
        let answer = BatchAnswer {
            batch_item_failures: vec![failure],
        };
        assert_eq!(text(&answer), "{\"batchItemFailures\":[{\"itemIdentifier\":\"m2\"}]}");
    }

    #[test]
    fn a_printed_batch_shows_no_message() {
        // Invariant 8
        let event: SqsEvent = serde_json::from_str("{\"Records\":[{\"body\":\"secret\"}]}").unwrap();
        assert_eq!(format!("{event:?}"), "SqsEvent(1 records)");
    }
}
