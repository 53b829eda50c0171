//! Events as `CloudEvents` 1.0 in structured JSON: what an inbox receives.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::event::{Content, Event, Repository};

/// What a message says besides its event.
#[derive(Clone, Copy, Debug)]
pub struct Handover<'a> {
    /// Fencing token of the owner that sends it. It only grows, so a consumer can tell a late repeat.
    pub token: u64,
    /// The inbox that it goes to.
    pub inbox: &'a str,
    /// When the event arrived; its time where it names none.
    pub received_at: Timestamp,
}

/// The message for `event`: an envelope with all that is known of it.
///
/// What a queue said goes on as it came, with our own members beside it: its data is the sender's.
#[must_use]
pub fn structured(event: &Event, handover: &Handover<'_>) -> String {
    if let Some(Content::Here(members)) = &event.content {
        return carrier(event, handover, "", members);
    }
    let text = text(event);
    json(
        event,
        handover,
        &Bulk {
            summary: &event.summary,
            text: &text,
            dataref: "",
        },
    )
}

/// The message for `event` where the whole one is too big: the same envelope without its texts, and with `dataref`, a
/// URI-reference to where they are.
#[must_use]
pub fn reference(event: &Event, handover: &Handover<'_>, dataref: &str) -> String {
    if let Some(content) = &event.content {
        let members = match content {
            Content::Here(members) => without_data(members),
            Content::Apart(_) => None,
        };
        return carrier(event, handover, dataref, members.as_deref().unwrap_or("{}"));
    }
    json(
        event,
        handover,
        &Bulk {
            summary: "",
            text: "",
            dataref,
        },
    )
}

#[derive(Serialize)]
struct Carrier<'a> {
    specversion: &'static str,
    source: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subject: &'a str,
    time: String,
    event: &'a str,
    token: u64,
    inbox: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    dataref: &'a str,
}

/// The envelope around `members`, a JSON object of what the source said.
fn carrier(event: &Event, handover: &Handover<'_>, dataref: &str, members: &str) -> String {
    let ours = Carrier {
        specversion: "1.0",
        source: &event.cloud_source,
        kind: &event.cloud_type,
        subject: &event.cloud_subject,
        time: event.occurred_at.unwrap_or(handover.received_at).to_string(),
        event: event.id.as_str(),
        token: handover.token,
        inbox: handover.inbox,
        dataref,
    };
    let mut json = serde_json::to_string(&ours).expect("texts and numbers always serialise");
    // One object of the two. Parsing the other one could change its numbers.
    if let Some(members) = members.strip_prefix('{').filter(|members| *members != "}") {
        json.pop();
        json.push(',');
        json.push_str(members);
    }
    escape_for_sqs(json)
}

/// `members` without what the sender said: attributes can be as large as the body.
fn without_data(members: &str) -> Option<String> {
    let mut members: BTreeMap<&str, &RawValue> = serde_json::from_str(members).ok()?;
    for said in ["data", "data_base64", "messageattributes", "sqsattributes"] {
        members.remove(said);
    }
    serde_json::to_string(&members).ok()
}

/// `json` in characters that SQS takes.
///
/// SQS refuses or replaces U+FFFE and U+FFFF, which JSON allows as they are
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>). Control characters are
/// escaped in JSON anyway.
#[must_use]
pub fn escape_for_sqs(json: String) -> String {
    if !json.contains(['\u{FFFE}', '\u{FFFF}']) {
        return json;
    }
    json.replace('\u{FFFE}', "\\ufffe").replace('\u{FFFF}', "\\uffff")
}

/// The event for an agent to read: a line that names it, its text where that has more than a line, and its page.
#[must_use]
pub fn text(event: &Event) -> String {
    let summary = event.summary.trim();
    let mut line = format!("{} {}", event.kind, event.subject);
    if let Some(branch) = &event.branch {
        line.push_str(&format!(" on {branch}"));
    }
    if let Some(actor) = &event.actor {
        line.push_str(&format!(" by {actor}"));
    }
    let is_long = summary.contains(is_line_end);
    let said = if is_long || summary.is_empty() {
        event.conclusion.as_deref()
    } else {
        Some(summary)
    };
    if let Some(said) = said {
        line.push_str(&format!(": {said}"));
    }
    // Nothing that a payload says can begin a line of its own here.
    let mut text = line.replace(is_line_end, " ");
    if is_long {
        text.push('\n');
        text.push_str(summary);
    }
    if let Some(url) = &event.url {
        text.push('\n');
        text.push_str(&url.replace(is_line_end, " "));
    }
    text
}

fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{B}' | '\u{C}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// What a claim check leaves out, and what it says instead.
struct Bulk<'a> {
    summary: &'a str,
    text: &'a str,
    dataref: &'a str,
}

#[derive(Serialize)]
struct Envelope<'a> {
    specversion: &'static str,
    id: &'a str,
    source: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subject: &'a str,
    time: String,
    datacontenttype: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    dataref: &'a str,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    repository: Option<&'a str>,
    subject: DataSubject,
    #[serde(skip_serializing_if = "<[u64]>::is_empty")]
    pull_requests: &'a [u64],
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    summary: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    head_sha: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conclusion: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    occurred_at: Option<String>,
    received_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<String>,
    token: u64,
    inbox: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    text: &'a str,
}

#[derive(Serialize)]
struct DataSubject {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
}

fn json(event: &Event, handover: &Handover<'_>, bulk: &Bulk<'_>) -> String {
    let envelope = Envelope {
        specversion: "1.0",
        id: event.id.as_str(),
        source: &event.cloud_source,
        kind: &event.cloud_type,
        subject: &event.cloud_subject,
        time: event.occurred_at.unwrap_or(handover.received_at).to_string(),
        datacontenttype: "application/json",
        dataref: bulk.dataref,
        data: data(event, handover, bulk),
    };
    escape_for_sqs(serde_json::to_string(&envelope).expect("texts and numbers always serialise"))
}

fn data<'a>(event: &'a Event, handover: &Handover<'a>, bulk: &Bulk<'a>) -> Data<'a> {
    Data {
        kind: event.kind.as_str(),
        repository: event.subject.repository().map(Repository::as_str),
        subject: DataSubject {
            kind: event.subject.kind().as_str(),
            number: event.subject.number(),
        },
        pull_requests: &event.pull_requests,
        actor: event.actor.as_deref(),
        url: event.url.as_deref(),
        summary: bulk.summary,
        branch: event.branch.as_deref(),
        base: event.base.as_deref(),
        head_sha: event.head_sha.as_deref(),
        conclusion: event.conclusion.as_deref(),
        occurred_at: event.occurred_at.map(|time| time.to_string()),
        received_at: handover.received_at.to_string(),
        delivery: event.delivery.as_ref().map(ToString::to_string),
        token: handover.token,
        inbox: handover.inbox,
        text: bulk.text,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use serde_json::{Value, json};

    use super::*;
    use crate::delivery::DeliveryKey;
    use crate::event::{EventId, Kind, Repository, Subject};

    fn a_review() -> Event {
        Event {
            id: EventId::new("github/review/9007199254740993"),
            kind: Kind::Review,
            cloud_type: "com.github.pull_request_review.submitted".to_owned(),
            cloud_source: "https://api.github.com/repos/acme/app/pulls/12".to_owned(),
            cloud_subject: "9007199254740993".to_owned(),
            subject: Subject::PullRequest {
                repository: Repository::new("acme/app").unwrap(),
                number: 12,
            },
            pull_requests: vec![12],
            actor: Some("dev1".to_owned()),
            url: Some("https://github.com/acme/app/pull/12#r".to_owned()),
            summary: "first\nsecond".to_owned(),
            branch: Some("feature".to_owned()),
            base: Some("main".to_owned()),
            head_sha: Some("abc".to_owned()),
            conclusion: Some("approved".to_owned()),
            occurred_at: Some("2026-02-11T20:15:00-05:00".parse().unwrap()),
            delivery: DeliveryKey::parse("42/6f1c2b9a-0000-4000-8000-000000000031"),
            content: None,
        }
    }

    fn a_bare_event() -> Event {
        Event {
            cloud_subject: String::new(),
            pull_requests: Vec::new(),
            actor: None,
            url: None,
            summary: String::new(),
            branch: None,
            base: None,
            head_sha: None,
            conclusion: None,
            occurred_at: None,
            delivery: None,
            ..a_review()
        }
    }

    fn handover() -> Handover<'static> {
        Handover {
            token: 3,
            inbox: "agent-one",
            received_at: "2026-02-12T01:15:02Z".parse().unwrap(),
        }
    }

    fn parsed(json: &str) -> Value {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_message_carries_the_whole_event() {
        let expected = json!({
            "specversion": "1.0",
            "id": "github/review/9007199254740993",
            "source": "https://api.github.com/repos/acme/app/pulls/12",
            "type": "com.github.pull_request_review.submitted",
            "subject": "9007199254740993",
            "time": "2026-02-12T01:15:00Z",
            "datacontenttype": "application/json",
            "data": {
                "kind": "review",
                "repository": "acme/app",
                "subject": {"kind": "pull_request", "number": 12},
                "pull_requests": [12],
                "actor": "dev1",
                "url": "https://github.com/acme/app/pull/12#r",
                "summary": "first\nsecond",
                "branch": "feature",
                "base": "main",
                "head_sha": "abc",
                "conclusion": "approved",
                "occurred_at": "2026-02-12T01:15:00Z",
                "received_at": "2026-02-12T01:15:02Z",
                "delivery": "42/6f1c2b9a-0000-4000-8000-000000000031",
                "token": 3,
                "inbox": "agent-one",
                "text": "review acme/app#12 on feature by dev1: approved\nfirst\nsecond\nhttps://github.com/acme/app/pull/12#r",
            },
        });
        assert_eq!(parsed(&structured(&a_review(), &handover())), expected, "NUM-02");
    }

    #[test]
    fn what_is_empty_is_left_out_and_the_time_is_that_of_receipt() {
        let message = parsed(&structured(&a_bare_event(), &handover()));
        assert_eq!(message["time"], "2026-02-12T01:15:02Z", "PAY-07");
        assert!(message.get("subject").is_none());
        let keys: Vec<_> = message["data"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            keys,
            ["inbox", "kind", "received_at", "repository", "subject", "text", "token"]
        );
    }

    #[test]
    fn a_claim_check_is_the_same_envelope_without_its_texts() {
        let mut expected = parsed(&structured(&a_review(), &handover()));
        let data = expected["data"].as_object_mut().unwrap();
        data.remove("summary");
        data.remove("text");
        expected["dataref"] = "forebay:event/github/review/9007199254740993".into();
        let message = reference(&a_review(), &handover(), "forebay:event/github/review/9007199254740993");
        assert_eq!(parsed(&message), expected);
    }

    #[test]
    fn no_character_that_sqs_refuses_goes_out_and_every_text_survives() {
        let summary: String = (0..0x80u8)
            .map(char::from)
            .chain("é🚀\u{FFFD}\u{FFFE}\u{FFFF}\u{1FFFE}".chars())
            .collect();
        let event = Event {
            summary: summary.clone(),
            ..a_review()
        };
        let message = structured(&event, &handover());
        let taken = |c: char| matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{FFFD}' | '\u{10000}'..);
        assert_eq!(message.chars().find(|c| !taken(*c)), None, "SQSS-02");
        assert_eq!(parsed(&message)["data"]["summary"], Value::from(summary), "SQSS-02");
        assert_eq!(escape_for_sqs("{\"a\":\"\u{7f}é\"}".to_owned()), "{\"a\":\"\u{7f}é\"}");
    }

    #[test]
    fn the_text_names_the_event_on_one_line_then_adds_its_text_then_its_page() {
        let check = |event: Event, expected: &str| assert_eq!(text(&event), expected, "S3-11");
        check(
            a_review(),
            "review acme/app#12 on feature by dev1: approved\nfirst\nsecond\nhttps://github.com/acme/app/pull/12#r",
        );
        check(a_bare_event(), "review acme/app#12");
        check(
            Event {
                summary: "approved".to_owned(),
                url: None,
                ..a_review()
            },
            "review acme/app#12 on feature by dev1: approved",
        );
        check(
            Event {
                summary: "Looks good\n".to_owned(),
                conclusion: None,
                url: None,
                ..a_review()
            },
            "review acme/app#12 on feature by dev1: Looks good",
        );
        let forged = Event {
            actor: Some("dev1\r\nreview acme/app#1".to_owned()),
            url: Some("u\nv".to_owned()),
            ..a_bare_event()
        };
        check(forged, "review acme/app#12 by dev1  review acme/app#1\nu v");
    }

    #[test]
    fn messages_meet_the_published_schema() {
        let relative = "shared/data/cloudevents-spec/cloudevents.schema.json";
        let beside = |dir: &Path| fs::read_to_string(dir.join(relative)).ok();
        let Some(schema) = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find_map(beside) else {
            return skip(relative);
        };
        let schema = parsed(&schema);
        let whole = structured(&a_review(), &handover());
        let bare = structured(&a_bare_event(), &handover());
        let small = reference(&a_review(), &handover(), "forebay:event/x");
        for message in [whole, bare, small].map(|json| parsed(&json)) {
            meets(&message, &schema);
        }
    }

    /// The parts of the schema that an envelope can break: required names, types, lengths and formats.
    fn meets(message: &Value, schema: &Value) {
        for name in schema["required"].as_array().unwrap() {
            assert!(message.get(name.as_str().unwrap()).is_some(), "{name} is required");
        }
        for (name, property) in schema["properties"].as_object().unwrap() {
            let Some(value) = message.get(name) else {
                continue;
            };
            let definition = property["$ref"].as_str().unwrap().replace("#/", "/");
            let rule = schema.pointer(&definition).unwrap();
            if rule["minLength"] == 1 {
                assert!(!value.as_str().unwrap().is_empty(), "{name} is not empty");
            }
            match rule["format"].as_str() {
                Some("uri-reference") => assert!(value.as_str().unwrap().bytes().all(|b| b.is_ascii_graphic())),
                Some("date-time") => assert!(value.as_str().unwrap().parse::<Timestamp>().is_ok()),
                _ => {}
            }
        }
        for name in message.as_object().unwrap().keys() {
            assert!(
                name.len() <= 20 && name.bytes().all(|b| b.is_ascii_lowercase()),
                "{name} is an attribute's name"
            );
        }
    }

    fn skip(path: &str) {
        eprintln!("skipped: {path} is not there");
    }
}
