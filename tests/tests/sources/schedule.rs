//! The scheduler over rows that cannot be read: what is wrong with one source is said and stops no other.

use aws_sdk_dynamodb::types::AttributeValue;
use forebay_aws::dynamodb::DynamoLedger;
use forebay_core::ports::{ErrorClass, TimeAndChance as _};
use forebay_core::schedule::{
    Ended, Held, LedgerScheduler, Returned, ScheduleConfig, Scheduled, Scheduler, UNKNOWN_WAIT,
};
use forebay_core::source::{Placement, Poll, Polled};
use forebay_tests::engine::text;
use forebay_tests::fakes::ManualTime;
use forebay_tests::rounds::rounds_beside;
use forebay_tests::samples::{LEASE, SKEW, at, secs};
use jiff::Timestamp;

use super::{Store, on_dynamodb, read_to, source, target};

const CONFIG: ScheduleConfig = ScheduleConfig {
    lease: LEASE,
    skew: SKEW,
};

/// Source `name`, whose target is `of`.
fn scheduled(name: &str, of: &str) -> Scheduled {
    Scheduled {
        id: source(name),
        placement: Placement::Scheduled,
        target: target(of),
        interval: secs(60),
    }
}

type Rounds = LedgerScheduler<DynamoLedger, ManualTime>;

/// A scheduler of `sources`, registered at 0.
async fn scheduler(store: &Store<DynamoLedger>, sources: &[(&str, &str)]) -> (Rounds, ManualTime) {
    let time = ManualTime::at(at(0));
    let sources = sources.iter().map(|(name, of)| scheduled(name, of));
    let scheduler = LedgerScheduler::new((*store.sources).clone(), time.clone(), CONFIG, sources);
    scheduler.register().await.unwrap();
    (scheduler, time)
}

async fn next(scheduler: &Rounds) -> Option<Held> {
    scheduler.next(Timestamp::MAX).await.unwrap()
}

async fn polled_empty(scheduler: &Rounds, held: Held) -> Returned {
    let polled = Ok(Poll::from(Polled::Empty));
    scheduler.give_back(held, Ended::Polled(&polled)).await.unwrap()
}

/// Gives the row of `pk` and `sk` this attribute.
async fn spoil(store: &Store<DynamoLedger>, pk: &str, sk: &str, name: &str) {
    let engine = store.engine.as_ref().unwrap();
    let rows = engine.rows().await;
    let mut row = rows
        .into_iter()
        .find(|row| text(row, "pk") == Some(pk) && text(row, "sk") == Some(sk))
        .unwrap();
    row.insert(name.to_owned(), AttributeValue::S("spoilt".to_owned()));
    engine.put(row).await;
}

#[tokio::test]
async fn a_claim_that_cannot_be_read_stops_no_other_source_and_is_said_once_they_are_polled() {
    // Invariants 5 and 10
    for name in ["interval", "token", "lease_until"] {
        let store = on_dynamodb().await;
        let (scheduler, time) = scheduler(&store, &[("a", "app"), ("b", "app"), ("c", "app")]).await;
        spoil(&store, &format!("source#{}", source("a")), "claim", name).await;
        for expected in ["b", "c"] {
            let held = next(&scheduler).await.expect(name);
            assert_eq!(held.source, source(expected), "{name}");
            polled_empty(&scheduler, held).await;
        }
        let said = scheduler.next(Timestamp::MAX).await.unwrap_err();
        assert_eq!(said.class, ErrorClass::Unreadable, "{name}");
        assert_eq!(said.on, source("a").to_string());
        if name != "lease_until" {
            // It is moved on: nobody looks at it again so soon.
            assert!(next(&scheduler).await.is_none(), "{name}");
            let due = store.due(UNKNOWN_WAIT.as_secs(), None, 10).await;
            assert_eq!(due.last().map(|due| due.due_at), Some(time.now() + UNKNOWN_WAIT));
        }
    }
}

#[tokio::test]
async fn a_cursor_that_cannot_be_read_is_no_first_contact_and_stops_no_other_source() {
    // Invariants 6 and 10
    let store = on_dynamodb().await;
    store.register(&["a"], -10).await;
    let lease = store.won("a", -10, 9).await;
    store.give_back(&lease, -9, read_to("one", -1)).await;
    let (scheduler, time) = scheduler(&store, &[("a", "app"), ("b", "app")]).await;
    spoil(&store, &format!("source#{}", source("a")), "cursor", "sha256").await;
    let held = next(&scheduler).await.unwrap();
    assert_eq!(held.source, source("b"));
    polled_empty(&scheduler, held).await;
    let said = scheduler.next(Timestamp::MAX).await.unwrap_err();
    assert_eq!(said.class, ErrorClass::Unreadable);
    let state = store.state("a").await;
    assert_eq!((state.note.as_deref(), state.failures), (Some("unreadable"), 1));
    assert!(state.due_at > time.now() && state.lease_until.is_none(), "{state:?}");
}

#[tokio::test]
async fn a_limit_that_cannot_be_read_leaves_its_own_target_alone_and_no_other() {
    // Invariant 10
    let store = on_dynamodb().await;
    store.rest("app", 600, 1).await;
    spoil(&store, &format!("target#{}", target("app")), "limit", "until").await;
    let (scheduler, _) = scheduler(&store, &[("a", "app"), ("b", "other")]).await;
    let held = next(&scheduler).await.unwrap();
    assert_eq!(held.source, source("b"));
    polled_empty(&scheduler, held).await;
    let said = scheduler.next(Timestamp::MAX).await.unwrap_err();
    assert_eq!(said.class, ErrorClass::Unreadable);
    assert_eq!(store.state("a").await.note.as_deref(), Some("unreadable"));
    assert!(next(&scheduler).await.is_none());
}

#[tokio::test]
async fn a_round_takes_no_more_beside_many_sources_that_are_not_due() {
    let few = rounds_beside(10).await;
    assert_eq!(rounds_beside(300).await, few);
    // What rests and what is due, then claim and reading of each; a poll that found nothing is no second write.
    assert_eq!(few.map(|round| (round.held, round.calls)), [(3, 2 + 3 * 2), (0, 2)]);
}
