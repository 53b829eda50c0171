//! What is counted, and in which words.

use std::collections::BTreeSet;

use forebay_core::event::Kind;
use forebay_core::ledger::Sent;
use forebay_core::ports::{Ledger as _, Listed, Listing};
use forebay_tests::webhook::{Stand, noon};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::payloads::{changed, comment, delivery, guid, pull_request, push, review, scripted_with};
use crate::recordings;

/// The fields of a line that are not CloudWatch's own.
fn fields(line: &Value) -> Value {
    let mut fields = line.clone();
    fields.as_object_mut().unwrap().remove("_aws");
    fields
}

/// The line of an answer that is no refusal.
fn answered(outcome: &str, sent: u64) -> Value {
    json!({"Outcome": outcome, "Deliveries": 1, "Conflicts": 0, "Sent": sent, "Parked": 0, "Pending": 0, "DurationMs": 0})
}

#[tokio::test]
async fn every_answer_writes_a_line_and_every_new_event_another_and_their_numbers_are_true() {
    // S3-25, S3-09, S2-20
    let stand = scripted_with(&[("ROUTES", "acme/app=reviewer")]);
    let hour = 3_600_000;
    let unsigned = delivery(4, "ping", &json!({})).header("x-hub-signature-256", None);
    let mut without_time = push("a", "b");
    without_time["head_commit"].as_object_mut().unwrap().remove("timestamp");
    let caught = |kind: &str, latency_ms: u64| json!({"Kind": kind, "Events": 1, "LatencyMs": latency_ms});
    let refused = json!({"Outcome": "refused", "Refusal": "bad_signature", "Deliveries": 1, "DurationMs": 0});
    for (request, expected) in [
        (
            delivery(1, "issue_comment", &comment(8, "dev1")),
            vec![caught("comment", hour), answered("accepted", 1)],
        ),
        (
            delivery(1, "issue_comment", &comment(8, "dev1")),
            vec![answered("duplicate", 0)],
        ),
        (
            delivery(2, "issue_comment", &comment(8, "dev1")),
            vec![answered("accepted", 0)],
        ),
        (delivery(3, "ping", &json!({})), vec![answered("ignored", 0)]),
        (unsigned, vec![refused]),
        (
            delivery(5, "push", &without_time),
            vec![caught("push", 0), answered("accepted", 0)],
        ),
    ] {
        let before = stand.metrics.lines().len();
        stand.post(&request).await;
        let lines = stand.metrics.lines();
        let new: Vec<Value> = lines[before..].iter().map(fields).collect();
        assert_eq!(new, expected);
        for line in &lines[before..] {
            assert_eq!(line["_aws"]["Timestamp"].as_i64(), Some(noon().as_millisecond()));
        }
    }
}

#[tokio::test]
async fn what_waits_is_counted_as_parked_and_what_could_not_be_sent_as_pending() {
    let stand = scripted_with(&[]);
    stand.post(&delivery(1, "issue_comment", &comment(8, "dev1"))).await;
    stand.inboxes.set_outcome("dispatcher", Sent::Unreachable);
    stand
        .post(&delivery(2, "pull_request", &crate::payloads::merge("dev1")))
        .await;
    let counts: Vec<_> = stand
        .metrics
        .lines()
        .iter()
        .filter(|line| line["Outcome"].is_string())
        .map(|line| (line["Parked"].clone(), line["Pending"].clone()))
        .collect();
    assert_eq!(counts, [(json!(1), json!(0)), (json!(0), json!(1))]);
}

#[tokio::test]
async fn what_an_ignored_actor_wrote_is_counted_as_silenced() {
    // ROUT-01
    let stand = scripted_with(&[("ROUTES", "acme/app=reviewer")]);
    let mut silenced = Vec::new();
    for (n, id, login) in [
        (1, 8, "agent-bot[bot]"),
        (2, 9, "Agent-Bot[bot]"),
        (3, 10, "dev1"),
        (4, 8, "agent-bot[bot]"),
    ] {
        stand.post(&delivery(n, "issue_comment", &comment(id, login))).await;
        silenced.push(stand.metrics.lines().pop().unwrap().get("Silenced").cloned());
    }
    assert_eq!(silenced, [Some(json!(1)), Some(json!(1)), None, None], "each once");
}

#[tokio::test]
async fn what_happened_in_the_future_has_no_negative_latency() {
    let stand = scripted_with(&[]);
    let mut early = comment(8, "dev1");
    early["comment"]["created_at"] = "2026-11-29T13:00:00Z".into();
    stand.post(&delivery(1, "issue_comment", &early)).await;
    assert_eq!(stand.metrics.lines()[0]["LatencyMs"], 0);
}

#[tokio::test]
async fn dimensions_and_their_values_are_few_and_fixed() {
    // S2-20
    let stand = scripted_with(&[("ROUTES", "acme/app#41=reviewer")]);
    let manifest = recordings::manifest();
    for recording in manifest["recordings"].as_array().unwrap() {
        stand.post(&recordings::request(&manifest, recording)).await;
    }
    let kinds: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
    let lines = stand.metrics.lines();
    let answers = lines.iter().filter(|line| line["Outcome"].is_string()).count();
    assert_eq!(answers, manifest["recordings"].as_array().unwrap().len());
    for line in lines {
        let dimensions = &line["_aws"]["CloudWatchMetrics"][0]["Dimensions"];
        if let Some(outcome) = line["Outcome"].as_str() {
            assert!(["accepted", "duplicate", "ignored", "refused", "failed"].contains(&outcome));
            let allowed = [json!([["Outcome"]]), json!([["Outcome"], ["Outcome", "Refusal"]])];
            assert!(allowed.contains(dimensions), "{dimensions}");
        } else {
            assert!(kinds.contains(line["Kind"].as_str().unwrap()));
            assert_eq!(*dimensions, json!([["Kind"]]));
        }
        assert_eq!(line["_aws"]["CloudWatchMetrics"][0]["Namespace"], "Forebay");
    }
}

#[tokio::test]
async fn deliveries_events_and_what_each_route_did_can_be_read_in_order() {
    // S3-06, S2-16
    let table = forebay_tests::table::Table::start().await;
    let stand = Stand::with(table.ledger(), changed(&[("ROUTES", "acme/app=reviewer")]));
    for (n, event, payload) in [
        (1, "ping", json!({"zen": "z"})),
        (2, "issue_comment", comment(8, "dev1")),
        (3, "pull_request_review", review(9)),
        (4, "pull_request", pull_request("labeled", &json!({}))),
    ] {
        stand.post(&delivery(n, event, &payload)).await;
        crate::payloads::pass(&stand, 1);
    }
    let listing = |what| Listing {
        what,
        since: noon(),
        until: noon() + jiff::SignedDuration::from_mins(1),
        limit: 10,
    };
    let events = stand.ledger.events(&listing(Listed::Events)).await.unwrap();
    let events: Vec<_> = events
        .iter()
        .map(|row| {
            (
                row.event.id.as_str(),
                row.event.delivery.as_ref().unwrap().guid.as_str().to_owned(),
            )
        })
        .collect();
    assert_eq!(
        events,
        [("github/review/9", guid(3)), ("github/comment/8", guid(2))],
        "newest first"
    );
    let deliveries = stand.ledger.deliveries(&listing(Listed::Deliveries)).await.unwrap();
    let deliveries: Vec<_> = deliveries
        .iter()
        .map(|row| {
            (
                row.delivery.event_name.as_str(),
                row.delivery.received_at.as_second() - noon().as_second(),
            )
        })
        .collect();
    assert_eq!(deliveries, [("pull_request", 3), ("ping", 0)]);
    let row = crate::payloads::row(&stand, "github/comment/8").await;
    assert_eq!(row.state.destinations, [("reviewer".to_owned(), Sent::Yes)].into());
    assert_ne!(row.admitted_at, Timestamp::UNIX_EPOCH);
}
