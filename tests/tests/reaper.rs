//! The reaper: what is due is driven, and nothing else is touched.

use forebay_core::event::EventId;
use forebay_core::ledger::{Reason, Status};
use forebay_core::ports::{Ledger, TimeAndChance};
use forebay_tests::engine::{Embedded, Engine};
use forebay_tests::fakes::{ManualTime, RecordingInboxes};
use forebay_tests::reaper::{NO_DEADLINE, reaper};
use forebay_tests::samples::*;
use forebay_tests::webhook::environment;

/// The environment of the tests' reaper: `acme/app` is `reviewer`'s.
fn routed() -> std::collections::BTreeMap<String, String> {
    let mut environment = environment();
    environment.insert("ROUTES".to_owned(), "acme/app=reviewer".to_owned());
    environment
}

#[tokio::test]
async fn what_a_dead_webhook_admitted_is_driven_once_its_lease_is_over() {
    // S2-12, S2-13, invariant 5
    let engine = Embedded::start().await;
    let (inboxes, time) = (RecordingInboxes::default(), ManualTime::at(at(0)));
    let reaper = reaper((*engine.ledger()).clone(), inboxes.clone(), time.clone(), routed());
    drop(admit_event(&*engine.ledger(), "a", 1).await);
    let early = reaper.run(NO_DEADLINE).await;
    assert_eq!((early.redriven, inboxes.all().len()), (0, 0), "its lease runs");
    time.pass(LEASE + SKEW + secs(1));
    let report = reaper.run(NO_DEADLINE).await;
    assert_eq!((report.redriven, report.sent, report.backlog), (1, 1, 0));
    assert_eq!(report.oldest_due_seconds, 1);
    assert_eq!(inboxes.messages("reviewer").len(), 1);
    let row = engine.ledger().event(&EventId::new("a")).await.unwrap().unwrap();
    assert_eq!(
        (row.state.status, row.state.reason, row.state.token.number()),
        (Status::Processed, Some(Reason::Delivered), 2)
    );
    time.pass(secs(3_600));
    assert_eq!(reaper.run(NO_DEADLINE).await.redriven, 0);
    assert!(time.now() > at(3_600) && inboxes.sends() == 1);
}
