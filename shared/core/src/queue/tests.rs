use serde_json::{Value as Json, json};

use super::*;
use crate::cloudevent::{Handover, reference, structured};

const QUEUE: &str = "arn:aws:sqs:eu-west-1:000000000000:orders";

fn message(body: &str) -> Message {
    let system = [
        ("SentTimestamp", "1767323045123"),
        ("ApproximateFirstReceiveTimestamp", "1767323045200"),
        ("ApproximateReceiveCount", "3"),
    ];
    Message {
        queue: QUEUE.to_owned(),
        id: "m1".to_owned(),
        receipt_handle: Some("rh-m1".to_owned()),
        body: Body::Text(body.to_owned()),
        system: system.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        attributes: BTreeMap::new(),
    }
}

fn with_attributes(attributes: &[(&str, &str, Value)]) -> Message {
    let attributes = attributes.iter().map(|(name, data_type, value)| {
        let attribute = Attribute {
            data_type: (*data_type).to_owned(),
            value: value.clone(),
        };
        ((*name).to_owned(), attribute)
    });
    Message {
        attributes: attributes.collect(),
        ..message("{}")
    }
}

fn handover() -> Handover<'static> {
    Handover {
        token: 7,
        inbox: "builder",
        received_at: "2026-02-12T01:15:02Z".parse().unwrap(),
    }
}

fn text_sent(message: &Message, envelopes: Envelopes) -> String {
    structured(&event(message, &envelopes.into()), &handover())
}

fn sent(message: &Message) -> Json {
    serde_json::from_str(&text_sent(message, Envelopes::Keep)).unwrap()
}

fn unwrapped(message: &Message) -> Json {
    serde_json::from_str(&text_sent(message, Envelopes::Unwrap)).unwrap()
}

/// A map that goes as text.
fn map(json: &Json) -> Json {
    serde_json::from_str(json.as_str().unwrap()).unwrap()
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

#[test]
fn a_message_arrives_as_a_cloud_event_with_all_that_its_queue_said() {
    // S1-11, SQSD-11
    let system = json!({
        "ApproximateFirstReceiveTimestamp": "1767323045200",
        "ApproximateReceiveCount": "3",
        "SentTimestamp": "1767323045123",
    });
    let expected = json!({
        "specversion": "1.0",
        "source": QUEUE,
        "id": "m1",
        "type": "com.amazonaws.sqs.message",
        "time": "2026-01-02T03:04:05.123Z",
        "event": format!("sqs/{QUEUE}/m1"),
        "token": 7,
        "inbox": "builder",
        "schemaversion": "1",
        "receipthandle": "rh-m1",
        "receivecount": 3,
        "firstreceived": "2026-01-02T03:04:05.2Z",
        "systemattributes": system.to_string(),
        "datacontenttype": "application/json",
        "data": {"n": 1},
    });
    assert_eq!(sent(&message("{\"n\":1}")), expected);
}

#[test]
fn the_same_content_under_two_message_ids_is_two_events() {
    let other = Message {
        id: "m2".to_owned(),
        ..message("{}")
    };
    let [one, two] = [message("{}"), other].map(|message| event(&message, &Envelopes::Keep.into()).id);
    assert_ne!(one, two);
    assert_eq!(one, event_id(QUEUE, "m1"), "SQSB-10: and one id is one event");
}

#[test]
fn json_stays_digit_for_digit() {
    // SQSD-08, S1-11
    let body = "{\"id\":9007199254740993,\"x\":0.1000000000000000055511151231257827}";
    assert!(text_sent(&message(body), Envelopes::Keep).ends_with(&format!("\"data\":{body}}}")));
    let body = " [1e300, -0.0, {\"a\":1,\"a\":2}]\n";
    assert!(text_sent(&message(body), Envelopes::Keep).contains("[1e300, -0.0, {\"a\":1,\"a\":2}]"));
}

#[test]
fn what_is_no_json_arrives_as_the_exact_text() {
    // SQSD-07: a byte order mark is kept, and what looks like base64 is not decoded.
    for body in [
        "hello",
        "<a/>",
        "{broken",
        "eyJhIjoxfQ==",
        "\u{feff}{\"a\":1}",
        "",
        "a \u{0} b",
    ] {
        let sent = sent(&message(body));
        assert_eq!(sent["datacontenttype"], "text/plain", "{body}");
        assert_eq!(sent["data"], body);
    }
}

#[test]
fn half_a_surrogate_pair_arrives_as_its_bytes() {
    let message = Message {
        body: Body::Bytes(b"a\xed\xa0\x80".to_vec()),
        ..message("")
    };
    let sent = sent(&message);
    assert_eq!(sent["data_base64"], "Ye2ggA==");
    assert_eq!(sent["datacontenttype"], "application/octet-stream");
    assert!(!message.is_malformed());
}

#[test]
fn what_no_queue_can_have_sent_is_kept_as_the_record_that_came() {
    // SQSD-10, SQSB-12
    let message = Message {
        body: Body::Malformed("{\"messageId\":\"m1\",\"body\":{\"a\":1}}".to_owned()),
        ..message("")
    };
    assert!(message.is_malformed());
    assert_eq!(sent(&message)["data"], json!({"messageId": "m1", "body": {"a": 1}}));
}

#[test]
fn a_message_without_attributes_has_the_time_of_its_receipt() {
    // SQSD-13
    let bare = Message {
        system: BTreeMap::new(),
        receipt_handle: None,
        ..message("{}")
    };
    let sent = sent(&bare);
    assert_eq!(sent["time"], "2026-02-12T01:15:02Z");
    assert_eq!(sent["receivecount"], 1);
    for absent in [
        "firstreceived",
        "receipthandle",
        "systemattributes",
        "messageattributes",
        "subject",
    ] {
        assert!(sent.get(absent).is_none(), "{absent}");
    }
    let odd = Message {
        system: BTreeMap::from([("SentTimestamp".to_owned(), "soon".to_owned())]),
        ..message("{}")
    };
    assert_eq!(event(&odd, &Envelopes::Keep.into()).occurred_at, None);
}

#[test]
fn attributes_keep_their_names_types_labels_and_exact_values() {
    // SQSA-03, SQSA-04, SQSA-07
    let message = with_attributes(&[
        ("My-Attr", "String", text("1")),
        ("my_attr", "String", text("2")),
        ("p", "Number.float", text("3.333333333")),
        ("q", "String.Foo.Bar", text("v")),
        ("r", "Binary.png", Value::Base64("AA==".to_owned())),
        ("e", "String", text("")),
        ("f", "Weird", text("x")),
        ("g", "String", Value::Absent),
    ]);
    let expected = json!({
        "My-Attr": {"type": "String", "value": "1"},
        "my_attr": {"type": "String", "value": "2"},
        "p": {"type": "Number", "label": "float", "value": "3.333333333"},
        "q": {"type": "String", "label": "Foo.Bar", "value": "v"},
        "r": {"type": "Binary", "label": "png", "base64": "AA=="},
        "e": {"type": "String", "value": ""},
        "f": {"type": "Weird", "value": "x"},
        "g": {"type": "String"},
    });
    let sent = sent(&message);
    assert_eq!(map(&sent["messageattributes"]), expected);
    let names = sent.as_object().unwrap().keys();
    for name in names.filter(|name| *name != "data_base64") {
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        assert!(plain && name.len() <= 20, "{name} is no CloudEvents attribute name");
    }
}

fn wrapped() -> Message {
    message(
        &json!({
            "Type": "Notification", "MessageId": "s1", "TopicArn": "arn:aws:sns:eu-west-1:000000000000:t",
            "Message": "{\"n\": 1}", "Timestamp": "2026-01-02T03:04:05.606Z", "Subject": "news",
            "MessageAttributes": {"k": {"Type": "String", "Value": "v"}, "b": {"Type": "Binary", "Value": "AA=="}},
        })
        .to_string(),
    )
}

#[test]
fn a_notification_is_taken_out_of_its_envelope_where_that_is_wanted() {
    // SQSD-01
    let sent_whole = sent(&wrapped());
    assert_eq!(
        (&sent_whole["data"]["Type"], &sent_whole["id"]),
        (&json!("Notification"), &json!("m1"))
    );
    assert!(sent_whole.get("snstopic").is_none());
    let unwrapped = unwrapped(&wrapped());
    assert_eq!(unwrapped["data"], json!({"n": 1}));
    assert_eq!((&unwrapped["id"], &unwrapped["source"]), (&json!("m1"), &json!(QUEUE)));
    assert_eq!(unwrapped["snsmessageid"], "s1");
    assert_eq!(unwrapped["snstopic"], "arn:aws:sns:eu-west-1:000000000000:t");
    assert_eq!(
        (&unwrapped["snssubject"], &unwrapped["snstime"]),
        (&json!("news"), &json!("2026-01-02T03:04:05.606Z"))
    );
    let expected = json!({"k": {"type": "String", "value": "v"}, "b": {"type": "Binary", "base64": "AA=="}});
    assert_eq!(map(&unwrapped["messageattributes"]), expected);
}

#[test]
fn raw_and_wrapped_messages_of_one_queue_give_the_same_data() {
    // SQSD-02
    let raw = Message {
        attributes: with_attributes(&[("k", "String", text("raw"))]).attributes,
        ..message("{\"n\": 1}")
    };
    let [wrapped, raw] = [wrapped(), raw].map(|message| unwrapped(&message));
    assert_eq!(wrapped["data"], raw["data"]);
    assert_eq!(map(&wrapped["messageattributes"])["k"]["value"], "v");
    assert_eq!(map(&raw["messageattributes"])["k"]["value"], "raw");
}

#[test]
fn what_other_services_wrap_passes_as_it_is() {
    // SQSD-04, SQSD-05: its id, source and time do not become ours.
    for body in [
        "{\"Service\":\"Amazon S3\",\"Event\":\"s3:TestEvent\",\"Bucket\":\"b\"}",
        "{\"Records\":[{\"eventSource\":\"aws:s3\"}]}",
        "{\"version\":\"0\",\"id\":\"e1\",\"detail-type\":\"X\",\"source\":\"app\",\"time\":\"2020-01-01T00:00:00Z\"}",
        "{\"Type\":\"Notification\",\"Message\":{\"no\":\"text\"}}",
        "{\"Type\":\"SubscriptionConfirmation\",\"MessageId\":\"s\",\"TopicArn\":\"t\",\"Message\":\"m\"}",
    ] {
        let sent = unwrapped(&message(body));
        assert_eq!(sent["data"], serde_json::from_str::<Json>(body).unwrap());
        assert_eq!((&sent["id"], &sent["source"]), (&json!("m1"), &json!(QUEUE)));
        assert_eq!(sent["time"], "2026-01-02T03:04:05.123Z");
    }
}

#[test]
fn a_claim_check_leaves_out_what_was_said_and_says_where_it_is() {
    let message = with_attributes(&[("k", "String", text("v"))]);
    let mut expected = sent(&message);
    let members = expected.as_object_mut().unwrap();
    members.remove("data");
    members.remove("messageattributes");
    members.insert("dataref".to_owned(), "forebay:event/x".into());
    let reference = reference(
        &event(&message, &Envelopes::Keep.into()),
        &handover(),
        "forebay:event/x",
    );
    assert_eq!(serde_json::from_str::<Json>(&reference).unwrap(), expected);
}

#[test]
fn no_character_that_sqs_refuses_goes_out() {
    // SQSS-02, SQSS-03
    let sent_text = text_sent(
        &message("bell \u{7} nul \u{0} and \u{ffff} \u{fffe} end"),
        Envelopes::Keep,
    );
    let refused = |c: char| (c < ' ' && !matches!(c, '\t' | '\n' | '\r')) || matches!(c, '\u{fffe}' | '\u{ffff}');
    assert!(!sent_text.contains(refused));
    let sent: Json = serde_json::from_str(&sent_text).unwrap();
    assert_eq!(sent["data"], "bell \u{7} nul \u{0} and \u{ffff} \u{fffe} end");
    assert!(!text_sent(&message(""), Envelopes::Keep).is_empty());
}

#[test]
fn a_group_is_the_subject_and_a_message_of_a_standard_queue_stands_alone() {
    let grouped = Message {
        system: BTreeMap::from([("MessageGroupId".to_owned(), "eu".to_owned())]),
        ..message("{}")
    };
    assert_eq!(
        event(&grouped, &Envelopes::Keep.into()).subject.key(),
        format!("{QUEUE}#eu")
    );
    assert_eq!(sent(&grouped)["subject"], "eu");
    assert_eq!(
        event(&message("{}"), &Envelopes::Keep.into()).subject.key(),
        format!("{QUEUE}#m1")
    );
}

#[test]
fn a_printed_message_shows_which_it_is_and_not_what_it_says() {
    // Invariant 8
    assert_eq!(format!("{:?}", message("secret")), format!("Message({QUEUE} m1)"));
}
