//! Inboxes, with SQS's answers scripted.

use std::collections::BTreeMap;

use forebay_aws::sqs::{MESSAGE_BYTES_MAX, SqsInboxes};
use forebay_core::ledger::Sent;
use forebay_core::ports::{Inboxes, Outgoing};
use forebay_tests::fault::{Fault, Faults};
use forebay_tests::table::sqs_config;
use serde_json::{Value, json};

fn inboxes(faults: &Faults) -> SqsInboxes {
    let config = sqs_config("http://127.0.0.1:1").http_client(faults.clone()).build();
    let url = |name: &str| (name.to_owned(), format!("http://127.0.0.1:1/000000000000/{name}.fifo"));
    let urls = BTreeMap::from(["builder", "reviewer"].map(url));
    SqsInboxes::new(aws_sdk_sqs::Client::from_conf(config), urls)
}

fn message(inbox: &str, number: usize) -> Outgoing {
    Outgoing {
        inbox: inbox.to_owned(),
        group: "acme/app#12".to_owned(),
        deduplication: format!("d{number}"),
        body: format!("{{\"number\":{number}}}"),
        reference: "{\"reference\":true}".to_owned(),
    }
}

fn messages(count: usize) -> Vec<Outgoing> {
    (0..count).map(|number| message("reviewer", number)).collect()
}

fn sent(id: usize) -> Value {
    json!({"Id": id.to_string(), "MessageId": "m", "MD5OfMessageBody": "0"})
}

fn failed(id: usize, code: &str, sender_fault: bool) -> Value {
    json!({"Id": id.to_string(), "Code": code, "SenderFault": sender_fault, "Message": "scripted"})
}

fn answer(successful: &[Value], failed: &[Value]) -> Fault {
    Fault::Answer(200, json!({"Successful": successful, "Failed": failed}))
}

#[tokio::test(start_paused = true)]
async fn every_message_has_an_outcome_of_its_own() {
    // Invariant 10
    let faults = Faults::alone().always(answer(
        &[sent(4), sent(0)],
        &[
            failed(1, "InternalError", false),
            failed(2, "InvalidMessageContents", true),
            failed(3, "RequestThrottled", true),
        ],
    ));
    let outcomes = inboxes(&faults).send(messages(6)).await;
    let expected = [
        Sent::Yes,
        Sent::Unreachable,
        Sent::Rejected,
        Sent::Throttled,
        Sent::Yes,
        // Nobody said anything about this one.
        Sent::Unreachable,
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(faults.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_has_group_deduplication_id_and_content_type_and_is_never_empty() {
    // SQSS-03, SQSS-05
    let faults = Faults::alone().always(answer(&[sent(0)], &[]));
    assert_eq!(inboxes(&faults).send(messages(1)).await, [Sent::Yes]);
    let call = &faults.calls()[0];
    assert_eq!(call.operation, "SendMessageBatch");
    let expected = json!([{
        "Id": "0",
        "MessageBody": "{\"number\":0}",
        "MessageGroupId": "acme/app#12",
        "MessageDeduplicationId": "d0",
        "MessageAttributes": {
            "content-type": {"DataType": "String", "StringValue": "application/cloudevents+json"},
        },
    }]);
    assert_eq!(call.body["Entries"], expected);
}

#[tokio::test(start_paused = true)]
async fn eleven_messages_are_two_calls_in_order_and_keep_their_places() {
    let all: Vec<Value> = (0..11).map(sent).collect();
    let faults = Faults::alone()
        .at(0, answer(&all[..10], &[]))
        .at(1, answer(&[], &[failed(10, "InvalidMessageContents", true)]));
    let outcomes = inboxes(&faults).send(messages(11)).await;
    assert_eq!(outcomes[..10], [Sent::Yes; 10]);
    assert_eq!(outcomes[10], Sent::Rejected);
    let ids = |call: usize| faults.calls()[call].body["Entries"].as_array().map(Vec::len);
    assert_eq!((ids(0), ids(1)), (Some(10), Some(1)));
}

#[tokio::test(start_paused = true)]
async fn trouble_of_the_queue_is_told_by_its_kind_and_trouble_of_the_request_is_rejected() {
    for (fault, expected) in [
        (Fault::Reset, Sent::Unreachable),
        (Fault::Silence, Sent::Unreachable),
        (Fault::refused("RequestThrottled"), Sent::Throttled),
        (Fault::refused("InternalFailure"), Sent::Unreachable),
        (Fault::refused("AccessDeniedException"), Sent::Denied),
        (Fault::refused("QueueDoesNotExist"), Sent::Denied),
        (Fault::refused("InvalidMessageContents"), Sent::Rejected),
        (Fault::refused("BatchRequestTooLong"), Sent::Rejected),
    ] {
        let faults = Faults::alone().always(fault.clone());
        assert_eq!(inboxes(&faults).send(messages(2)).await, [expected; 2], "{fault:?}");
        assert!(faults.calls().len() <= 3, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_ends_before_the_time_that_a_send_may_take() {
    let started = tokio::time::Instant::now();
    let faults = Faults::alone().always(Fault::Silence);
    inboxes(&faults).send(messages(1)).await;
    let send_time_max = std::time::Duration::try_from(forebay_core::drive::SEND_TIME_MAX).unwrap();
    assert!(started.elapsed() < send_time_max, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_throttled_call_is_repeated_with_the_same_ids() {
    let faults = Faults::alone()
        .at(0, Fault::refused("RequestThrottled"))
        .always(answer(&[sent(0)], &[]));
    assert_eq!(inboxes(&faults).send(messages(1)).await, [Sent::Yes]);
    let calls = faults.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!(
        calls[0].body, calls[1].body,
        "so that SQS drops the second if both arrive"
    );
}

#[tokio::test(start_paused = true)]
async fn an_inbox_that_is_not_there_stops_no_other() {
    let faults = Faults::alone().always(answer(&[sent(1)], &[]));
    let outcomes = inboxes(&faults)
        .send(vec![message("nobody", 0), message("reviewer", 1)])
        .await;
    assert_eq!(outcomes, [Sent::Denied, Sent::Yes]);
}

#[tokio::test(start_paused = true)]
async fn each_inbox_has_calls_of_its_own() {
    let faults = Faults::alone().always(answer(&[sent(0), sent(1)], &[]));
    let outcomes = inboxes(&faults)
        .send(vec![message("builder", 0), message("reviewer", 1)])
        .await;
    assert_eq!(outcomes, [Sent::Yes, Sent::Yes]);
    let mut urls: Vec<_> = faults
        .calls()
        .iter()
        .map(|call| call.body["QueueUrl"].to_string())
        .collect();
    urls.sort();
    assert!(
        urls[0].contains("/builder.fifo") && urls[1].contains("/reviewer.fifo"),
        "{urls:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_large_is_sent_as_its_reference() {
    // SIZE-05
    let faults = Faults::alone().always(answer(&[sent(0)], &[]));
    let mut large = message("reviewer", 0);
    large.body = "x".repeat(MESSAGE_BYTES_MAX);
    assert_eq!(inboxes(&faults).send(vec![large]).await, [Sent::Yes]);
    assert_eq!(
        faults.calls()[0].body["Entries"][0]["MessageBody"],
        "{\"reference\":true}"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_to_send_is_no_call() {
    let faults = Faults::alone();
    assert_eq!(inboxes(&faults).send(Vec::new()).await, []);
    assert_eq!(faults.calls().len(), 0);
}
