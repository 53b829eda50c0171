//! Invariant 8: what the log never shows, at its most talkative.

use forebay_aws::dynamodb::DynamoLedger;
use forebay_core::ledger::Sent;
use forebay_core::ports::ErrorClass;
use forebay_tests::fakes::Written;
use forebay_tests::scripted::{Call, Script};
use forebay_tests::table::Table;
use forebay_tests::webhook::{Request, SECRET, Stand};
use serde_json::{Value, json};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

use crate::payloads::{changed, comment, delivery, guid, pass, scripted_with};
use crate::recordings;

/// All that is logged while the guard lives: everything of ours, warnings of the rest, as in production at its loudest.
fn logged() -> (Written, impl Sized) {
    let written = Written::default();
    let writer = written.clone();
    let ours = ["forebay_core", "forebay_aws", "webhook"].map(|name| (name, LevelFilter::TRACE));
    let targets = Targets::new().with_default(LevelFilter::WARN).with_targets(ours);
    let lines = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_writer(move || writer.clone());
    let guard = tracing_subscriber::registry()
        .with(lines.with_filter(targets))
        .set_default();
    (written, guard)
}

/// Adds every text that somebody wrote: whatever holds a blank.
fn texts(payload: &Value, found: &mut Vec<String>) {
    match payload {
        Value::String(text) if text.trim().contains(' ') => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| texts(field, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn check_silent(log: &str, forbidden: &[String]) {
    for text in forbidden {
        let escaped = serde_json::to_string(text).unwrap();
        let escaped = escaped.trim_matches('"');
        assert!(!log.contains(escaped), "the log shows {text:?}");
    }
    assert!(!log.contains("sha256="), "no signature, given or computed");
    assert!(!log.contains(SECRET));
}

/// Whatever of `request` a log must not show.
fn secrets_of(request: &Request) -> Vec<String> {
    let mut found = Vec::new();
    if let Ok(payload) = serde_json::from_slice(&request.body) {
        texts(&payload, &mut found);
    }
    let signature = request.headers.iter().find(|(name, _)| name == "x-hub-signature-256");
    found.extend(signature.map(|(_, value)| value.trim_start_matches("sha256=").to_owned()));
    found
}

#[tokio::test]
async fn no_recorded_input_leaves_its_text_its_signature_or_the_secret_in_the_log() {
    let (log, _guard) = logged();
    let table = Table::start().await;
    let stand = Stand::with(table.ledger(), changed(&[("ROUTES", "acme/app=reviewer")]));
    let manifest = recordings::manifest();
    let mut forbidden = Vec::new();
    for recording in manifest["recordings"].as_array().unwrap() {
        let request = recordings::request(&manifest, recording);
        stand.post(&request).await;
        stand.post(&request).await;
        forbidden.extend(secrets_of(&request));
    }
    assert!(forbidden.len() > 50, "{}", forbidden.len());
    let log = log.text();
    check_silent(&log, &forbidden);
    assert!(log.lines().count() >= 46, "one line for each answer");
    assert!(!stand.metrics.text().contains("acme"), "nor in a metric");
}

#[tokio::test]
async fn no_failure_leaves_text_signature_or_secret_in_the_log() {
    let (log, _guard) = logged();
    let request = delivery(1, "issue_comment", &comment(8, "dev1"));
    let mut forbidden = secrets_of(&request);
    for call in [
        Call::Admit,
        Call::Pointers,
        Call::Settle,
        Call::Claim,
        Call::Learn,
        Call::Own,
    ] {
        let stand = scripted_with(&[]);
        stand.ledger.always(call, Script::Fail(ErrorClass::Denied));
        stand.post(&request).await;
        pass(&stand, 3_600);
        stand.post(&request).await;
    }
    let stand = scripted_with(&[("ROUTES", "acme/app=reviewer")]);
    stand.inboxes.set_outcome("reviewer", Sent::Rejected);
    stand.post(&request).await;
    for (header, value) in [
        ("x-hub-signature-256", Some("sha256=deadbeefdeadbeef")),
        ("x-hub-signature-256", None),
        ("x-github-delivery", Some("payload text in an id")),
        ("x-github-event", Some("payload text in a name")),
        ("content-type", Some("payload text in a type")),
    ] {
        stand.post(&request.clone().header(header, value)).await;
    }
    stand
        .post(&Request::new("push", &guid(3), "payload text that is no JSON"))
        .await;
    forbidden.extend(["deadbeefdeadbeef".to_owned(), "payload text".to_owned()]);
    // Documents that cannot be used, and none.
    for document in [Some("document with hook-secret-A inside"), Some("{}"), None] {
        let stand = scripted_with(&[]);
        stand.secrets.set(document.map(str::to_owned));
        stand.post(&request).await;
    }
    forbidden.push("document with".to_owned());
    // The real adapter, without its table and without anything that listens.
    let table = Table::start().await;
    let nowhere = table.config().endpoint_url("http://127.0.0.1:1").build();
    for ledger in [
        DynamoLedger::new(table.client(), "no-such-table"),
        DynamoLedger::new(aws_sdk_dynamodb::Client::from_conf(nowhere), "ledger"),
    ] {
        let stand = Stand::with(ledger, changed(&[]));
        assert_eq!(stand.post(&request).await.status(), 500);
    }
    let log = log.text();
    check_silent(&log, &forbidden);
    assert!(
        log.contains("admit delivery 42/"),
        "but what failed on what is said: {log}"
    );
}

#[tokio::test]
async fn a_refusal_says_which_delivery_and_whether_it_was_signed() {
    // HTTP-06
    let (log, _guard) = logged();
    let stand = scripted_with(&[]);
    let wrong = format!("sha256={}", "2".repeat(64));
    let request = delivery(1, "push", &json!({})).header("x-hub-signature-256", Some(&wrong));
    stand.post(&request).await;
    let line = log.lines().pop().unwrap();
    assert_eq!(line["delivery.id"], guid(1));
    assert_eq!(
        (&line["delivery.event"], &line["refusal"]),
        (&json!("push"), &json!("bad_signature"))
    );
    assert_eq!((&line["signed"], &line["level"]), (&json!(true), &json!("INFO")));
}

#[tokio::test]
async fn an_answer_says_in_a_fixed_word_what_became_of_the_event_or_why_it_was_not_claimed() {
    // S2-20
    let (log, _guard) = logged();
    let stand = scripted_with(&[("ROUTES", "acme/app=reviewer")]);
    stand.inboxes.set_outcome("reviewer", Sent::Unreachable);
    let mut told = Vec::new();
    for n in 1..=3 {
        // The first is driven, the second comes too early, the third when the event is over.
        if n == 3 {
            pass(&stand, 3_600);
            stand.inboxes.set_outcome("reviewer", Sent::Yes);
            stand.post(&delivery(1, "issue_comment", &comment(8, "dev1"))).await;
        }
        stand.post(&delivery(n, "issue_comment", &comment(8, "dev1"))).await;
        let line = log.lines().pop().unwrap();
        told.push((line["event.status"].clone(), line["event.refused"].clone()));
    }
    let refused = |word: &str| (Value::Null, json!(word));
    assert_eq!(
        told,
        [
            (json!("failed_retryable"), Value::Null),
            refused("not_due"),
            refused("terminal")
        ]
    );
}
