//! Whole turns on DynamoDB's semantics: a feed, its rows and its events.

use aws_sdk_dynamodb::Client;
use forebay_aws::dynamodb::DynamoTargets;
use forebay_core::ports::TimeAndChance as _;
use forebay_tests::engine::{Embedded, Engine};
use forebay_tests::fault::{Fault, Faults};
use forebay_tests::github::{Hooked, Occasion, What, lock};
use forebay_tests::rounds::Rounds;
use forebay_tests::samples::{ledger_on, secs};
use forebay_tests::table::TABLE;
use jiff::SignedDuration;

/// Turns whose ledger `faults` stand in front of. The feed has been polled once, and was empty.
async fn turns(engine: &Embedded, faults: &Faults) -> Rounds {
    let config = engine.table.config().http_client(faults.clone()).build();
    let targets = DynamoTargets::new(engine.client().clone(), TABLE).patient();
    let rounds = Rounds::start(ledger_on(Client::from_conf(config)), targets).await;
    let first = rounds.round().await;
    assert_eq!((first.polls, first.emitted, first.failures), (1, 0, 0));
    rounds
}

#[tokio::test]
async fn no_validator_and_no_mark_passes_an_event_that_is_not_durable() {
    // Invariant 6
    let engine = Embedded::start().await;
    let faults = Faults::on_the_way();
    let turns = turns(&engine, &faults).await;
    turns.comment("one");
    let is_event = |pk: &serde_json::Value| pk.as_str().is_some_and(|pk| pk.starts_with("event#"));
    faults.choose(move |_, call| {
        let is_admission = call.operation == "PutItem" && is_event(&call.body["Item"]["pk"]["S"]);
        is_admission.then(|| Fault::refused("AccessDeniedException"))
    });
    for _ in 0..2 {
        let failed = turns.round().await;
        assert_eq!((failed.polls, failed.failures, failed.emitted), (1, 1, 0));
        assert_eq!(engine.counts().await, (0, 0));
    }
    faults.mend();
    let tally = turns.round().await;
    assert_eq!((tally.polls, tally.failures, tally.emitted), (1, 0, 1));
    assert_eq!((engine.counts().await, turns.inboxes.all().len()), ((0, 1), 1));
    let tally = turns.round().await;
    assert_eq!((tally.polls, tally.counts.not_modified), (1, 1));
}

#[tokio::test]
async fn a_page_with_something_new_is_followed_by_the_next_whatever_else_is_on_it() {
    let engine = Embedded::start().await;
    let turns = turns(&engine, &Faults::on_the_way()).await;
    let hour = SignedDuration::from_hours(1);
    for number in 0..30 {
        let comment = What::comment(1, &format!("late {number}"));
        let late = Occasion::of("acme/app", comment)
            .hooked(Hooked::Silent)
            .shown_after(Some(hour));
        lock(&turns.fake).happen(&late, turns.time.now() - secs(10)).unwrap();
    }
    // All but one item of the page that the next poll begins with.
    for number in 0..99 {
        turns.comment(&format!("in time {number}"));
    }
    turns.round().await;
    assert_eq!(engine.counts().await, (0, 99));
    turns.time.pass(hour);
    turns.comment("new");
    turns.round().await;
    assert_eq!(engine.counts().await, (0, 99 + 1 + 30));
}
