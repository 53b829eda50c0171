//! The rows themselves, as DynamoDB has them: their shape, those of a newer version, and those that cannot be read.

use aws_sdk_dynamodb::types::AttributeValue;
use forebay_core::event::EventId;
use forebay_core::ledger::{Nonce, Token};
use forebay_core::ports::{DUE_SHARDS, DueQuery, ErrorClass, ErrorKind, Ledger};
use forebay_core::schedule::{Returned, SourceClaimed, SourceRefused, SourceStore};
use forebay_core::source::github::MissingStore;
use forebay_tests::engine::{Embedded, Engine, Item, number, text};
use forebay_tests::samples::*;

use super::missing::{log, missing};
use super::{INTERVAL, Store, due, lease_of, nothing_new, on_dynamodb, read_to, source, target, wish};

pub(super) fn engine_of<S>(store: &Store<S>) -> &Embedded {
    store.engine.as_ref().unwrap()
}

pub(super) async fn row(engine: &Embedded, pk: &str, sk: &str) -> Item {
    let rows = engine.rows().await;
    let ours = rows
        .into_iter()
        .find(|row| text(row, "pk") == Some(pk) && text(row, "sk") == Some(sk));
    ours.unwrap_or_else(|| panic!("{pk} {sk} is not there"))
}

/// The row with this attribute instead of its own.
pub(super) async fn change(engine: &Embedded, pk: &str, sk: &str, name: &str, value: AttributeValue) -> Item {
    let mut changed = row(engine, pk, sk).await;
    changed.insert(name.to_owned(), value);
    engine.put(changed.clone()).await;
    changed
}

pub(super) fn n(number: i64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

pub(super) fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn source_pk(name: &str) -> String {
    format!("source#{}", source(name))
}

#[tokio::test]
async fn rows_of_a_source_have_a_format_and_only_its_claim_is_in_an_index() {
    // DDBL-08
    let store = on_dynamodb().await;
    store.register(&["a"], 0).await;
    let lease = store.won("a", 0, 1).await;
    store.give_back(&lease, 1, read_to("one", 50)).await;
    store.rest("app", 60, 1).await;
    let engine = engine_of(&store);
    let rows = engine.rows().await;
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| number(row, "v") == Some(1)), "{rows:?}");
    let claim = row(engine, &source_pk("a"), "claim").await;
    assert_eq!(text(&claim, "due_shard"), Some("source"));
    assert_eq!(number(&claim, "due_at"), Some(at(50).as_millisecond()));
    assert!(!claim.contains_key("expires_at"), "a source is not forgotten");
    let cursor = row(engine, &source_pk("a"), "cursor").await;
    let limit = row(engine, &format!("target#{}", target("app")), "limit").await;
    for index in ["due_shard", "due_at", "waiting_for", "recent_shard"] {
        assert!(!cursor.contains_key(index) && !limit.contains_key(index), "{index}");
    }
    assert!(!cursor.contains_key("expires_at"));
    let day = at(60) + secs(86_400);
    assert_eq!(number(&limit, "expires_at"), Some(day.as_second()));
}

#[tokio::test]
async fn sources_events_and_missing_deliveries_are_due_each_among_their_own() {
    let store = on_dynamodb().await;
    let ledger = engine_of(&store).ledger();
    store.register(&["a"], 0).await;
    drop(admit_event(&*ledger, "e", 1).await);
    ledger.note_missing(&log("app"), &[missing("a1", 0)]).await.unwrap();
    assert_eq!(store.due(1_000, None, 10).await, [due(0, "a")]);
    let missing_due = ledger.due_missing(&log("app"), at(1_000), 10).await.unwrap();
    assert_eq!(missing_due, [missing("a1", 0)]);
    let mut events = Vec::new();
    for shard in 0..DUE_SHARDS {
        let query = DueQuery {
            shard,
            until: at(1_000),
            after: None,
            limit: 10,
        };
        events.extend(ledger.due(&query).await.unwrap().events);
    }
    let events: Vec<_> = events.into_iter().map(|due| due.event).collect();
    assert_eq!(events, [EventId::new("e")]);
}

#[tokio::test]
async fn a_claim_of_a_newer_format_is_left_alone_and_said() {
    let store = on_dynamodb().await;
    store.register(&["a"], 0).await;
    let held = store.won("a", 0, 1).await;
    let newer = change(engine_of(&store), &source_pk("a"), "claim", "v", n(2)).await;
    assert_eq!(store.lost("a", 1_000, 2).await, SourceRefused::Newer(2));
    let said = Returned::Lost(SourceRefused::Newer(2));
    assert_eq!(store.give_back(&held, 1, read_to("one", 50)).await, said);
    assert_eq!(store.give_back(&held, 1, nothing_new(50)).await, said);
    assert_eq!(store.register(&["a"], 5).await, 0);
    let found = forebay_core::schedule::DueSource {
        due_at: at(0) + INTERVAL,
        source: source("a"),
    };
    store.put_off(&found, 9_000, 1_000).await;
    assert_eq!(engine_of(&store).rows().await, [newer]);
}

#[tokio::test]
async fn a_limit_or_a_cursor_of_a_newer_format_is_left_alone_and_said() {
    let store = on_dynamodb().await;
    store.register(&["a", "b"], 0).await;
    let lease = store.won("a", 0, 1).await;
    store.give_back(&lease, 1, read_to("one", 50)).await;
    store.rest("app", 60, 1).await;
    let engine = engine_of(&store);
    let limit_pk = format!("target#{}", target("app"));
    let newer = change(engine, &limit_pk, "limit", "v", n(2)).await;
    store.rest("app", 600, 2).await;
    assert_eq!(row(engine, &limit_pk, "limit").await, newer);
    let error = store
        .sources
        .read_source(&source("b"), &target("app"))
        .await
        .unwrap_err();
    assert_eq!(error.class, ErrorClass::Unreadable);
    let newer = change(engine, &source_pk("a"), "cursor", "v", n(2)).await;
    let error = store
        .sources
        .read_source(&source("a"), &target("other"))
        .await
        .unwrap_err();
    assert_eq!(error.class, ErrorClass::Unreadable);
    assert_eq!(row(engine, &source_pk("a"), "cursor").await, newer);
}

#[tokio::test]
async fn a_claim_that_cannot_be_read_fails_alone() {
    // Invariant 10
    for (name, value) in [
        ("lease_until", s("tomorrow")),
        ("interval", s("often")),
        ("token", s("three")),
    ] {
        let store = on_dynamodb().await;
        store.register(&["a", "b"], 0).await;
        change(engine_of(&store), &source_pk("a"), "claim", name, value).await;
        let error = store.sources.claim_source(&source("a"), wish(0, 1)).await.unwrap_err();
        assert_eq!(
            (error.class, error.kind()),
            (ErrorClass::Unreadable, ErrorKind::Reject),
            "{name}"
        );
        assert!(!format!("{error:?}").contains("tomorrow"), "invariant 8");
        store.won("b", 0, 2).await;
        let states = store.sources.source_states(&[source("a"), source("b")]).await.unwrap();
        assert_eq!(states.len(), 1, "an operator sees the other");
    }
    // What it lacks altogether is no different.
    let store = on_dynamodb().await;
    store.register(&["a"], 0).await;
    let mut broken = row(engine_of(&store), &source_pk("a"), "claim").await;
    broken.remove("interval");
    engine_of(&store).put(broken).await;
    let error = store.sources.claim_source(&source("a"), wish(0, 1)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Unreadable);
    let lease = lease_of(&source("a"), Token::FIRST, Nonce::from_random(1), at(30));
    let error = store.sources.give_back_source(lease, at(1), read_to("one", 50)).await;
    assert_eq!(error.unwrap_err().class, ErrorClass::Unreadable);
}

#[tokio::test]
async fn one_targets_limit_that_cannot_be_read_hides_no_others() {
    // Invariant 10: whoever polls that target's sources is told when it reads them.
    let store = on_dynamodb().await;
    store.rest("app", 60, 1).await;
    store.rest("other", 70, 2).await;
    let pk = format!("target#{}", target("app"));
    for (name, value) in [("until", s("tomorrow")), ("v", n(2))] {
        change(engine_of(&store), &pk, "limit", name, value).await;
        let told = store.resting(&["app", "other"]).await;
        assert_eq!((told[0], told[1].map(|resting| resting.strikes)), (None, Some(2)));
        let error = store
            .sources
            .read_source(&source("a"), &target("app"))
            .await
            .unwrap_err();
        assert_eq!(error.class, ErrorClass::Unreadable);
    }
}

#[tokio::test]
async fn a_won_claim_is_the_row_as_it_stands() {
    let store = on_dynamodb().await;
    store.register(&["a"], 0).await;
    let claimed = store
        .sources
        .claim_source(&source("a"), wish(0, u64::MAX))
        .await
        .unwrap();
    let SourceClaimed::Won(lease, state) = claimed else {
        panic!("{claimed:?}")
    };
    assert_eq!(state, store.state("a").await);
    assert_eq!(lease.nonce(), Nonce::from_random(u64::MAX));
}
