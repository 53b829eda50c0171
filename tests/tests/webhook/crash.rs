//! A function that dies at any point, and owners that come back too late.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use forebay_core::ledger::{Reason, Status};
use forebay_core::ports::Ledger;
use forebay_tests::scripted::{Call, Script, Scripted};
use forebay_tests::table::Table;
use forebay_tests::webhook::Stand;
use tokio::sync::Notify;

use crate::payloads::{
    changed, comment, counts, delivery, key, open, pass, reached, row, rows, scripted_with, session, standing,
};

/// A lease and its skew, and a second.
const LAPSED: i64 = 36;
const ID: &str = "github/comment/8";
const ROUTED: [(&str, &str); 1] = [("ROUTES", "acme/app=reviewer")];

/// Polls `work` so many times and then drops it, as the end of a process does. Says whether it was done.
async fn is_done_within<R>(polls: usize, work: impl Future<Output = R>) -> bool {
    let mut work = pin!(work);
    for _ in 0..polls {
        if std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context)))
            .await
            .is_ready()
        {
            return true;
        }
    }
    false
}

/// Lets `work` run until `call` was made, and drops it there.
async fn dies_at<L: Ledger, R>(ledger: &Scripted<L>, call: Call, work: impl Future<Output = R>) {
    tokio::select! {
        biased;
        () = made(ledger, call) => {}
        _ = work => panic!("done before {call:?}"),
    }
}

async fn made<L: Ledger>(ledger: &Scripted<L>, call: Call) {
    while !ledger.calls().contains(&call) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn wherever_a_function_dies_the_redelivery_ends_in_one_message() {
    // Invariants 1 and 3, S2-09, S2-13, DEDU-12, LAMB-06, LAMB-09
    let request = delivery(1, "issue_comment", &comment(8, "dev1"));
    let mut deaths = 0;
    loop {
        let stand = scripted_with(&ROUTED);
        if is_done_within(deaths, stand.post(&request)).await {
            break;
        }
        let kept = stand.ledger.inner().counts();
        assert!(matches!(kept, (0, 0) | (1, 1)), "together or not at all: {kept:?}");
        let sends = stand.inboxes.sends();
        let answer = stand.post(&request).await;
        if kept == (0, 0) {
            assert_eq!(answer.status(), 202, "death {deaths}");
        } else {
            assert_eq!(answer.status(), 200, "death {deaths}");
            assert_eq!(
                stand.inboxes.sends(),
                sends,
                "death {deaths}: a live lease is not driven twice"
            );
        }
        pass(&stand, LAPSED);
        assert_eq!(stand.post(&request).await.status(), 200);
        assert_eq!(reached(&stand), ["reviewer"], "death {deaths}");
        let expected = (Status::Processed, Some(Reason::Delivered));
        assert_eq!(standing(&stand, ID).await, expected, "death {deaths}");
        assert!(row(&stand, ID).await.state.token.number() <= 2);
        let sends = stand.inboxes.sends();
        assert_eq!(stand.post(&request).await.status(), 200);
        assert_eq!(
            stand.inboxes.sends(),
            sends,
            "death {deaths}: a processed event is not driven again"
        );
        deaths += 1;
    }
    assert!(deaths > 6, "before and after each of the calls: {deaths}");
}

#[tokio::test]
async fn wherever_a_function_dies_a_parked_comment_still_finds_its_owner() {
    let request = delivery(1, "issue_comment", &comment(8, "dev1"));
    let mut deaths = 0;
    loop {
        let stand = scripted_with(&[]);
        if is_done_within(deaths, stand.post(&request)).await {
            break;
        }
        pass(&stand, LAPSED);
        stand.post(&request).await;
        open(&stand, &session(&stand, "builder", None, Some(12))).await;
        assert_eq!(reached(&stand), ["builder"], "death {deaths}");
        deaths += 1;
    }
    assert!(deaths > 6, "{deaths}");
}

#[tokio::test]
async fn wherever_a_redelivery_dies_the_next_one_finishes_under_a_token_of_its_own() {
    // LAMB-09, S2-13: the end of a process in the middle of a claim needs no clean-up; the lease ends by itself.
    let request = delivery(1, "issue_comment", &comment(8, "dev1"));
    let (mut deaths, mut claims) = (0, 0);
    loop {
        let stand = scripted_with(&ROUTED);
        stand.ledger.once(Call::Settle, Script::Hang);
        dies_at(&stand.ledger, Call::Settle, stand.post(&request)).await;
        pass(&stand, LAPSED);
        if is_done_within(deaths, stand.post(&request)).await {
            break;
        }
        let state = row(&stand, ID).await.state;
        claims += usize::from((state.status, state.token.number()) == (Status::Claimed, 2));
        pass(&stand, LAPSED);
        assert_eq!(stand.post(&request).await.status(), 200);
        assert_eq!(reached(&stand), ["reviewer"], "death {deaths}");
        let expected = (Status::Processed, Some(Reason::Delivered));
        assert_eq!(standing(&stand, ID).await, expected, "death {deaths}");
        assert!(
            (2..=3).contains(&row(&stand, ID).await.state.token.number()),
            "death {deaths}"
        );
        deaths += 1;
    }
    assert!(claims > 2, "while it claimed, sent and settled: {claims} of {deaths}");
}

#[tokio::test]
async fn what_a_function_wrote_before_it_ended_is_driven_without_a_redelivery_and_one_that_comes_is_a_duplicate() {
    // LAMB-06: GitHub saw a time-out.
    let table = Table::start().await;
    let stand = Stand::with(Scripted::new(table.ledger()), changed(&ROUTED));
    let request = delivery(1, "issue_comment", &comment(8, "dev1"));
    stand.ledger.once(Call::Admit, Script::LoseAnswer);
    let admitted = async {
        made(&stand.ledger, Call::Admit).await;
        while stand.ledger.inner().delivery(&key(1)).await.unwrap().is_none() {}
    };
    tokio::select! {
        biased;
        () = admitted => {}
        _ = stand.post(&request) => panic!("answered"),
    }
    let (inboxes, time) = (stand.inboxes.clone(), stand.time.clone());
    let reaper = forebay_tests::reaper::reaper(table.ledger(), inboxes, time, changed(&ROUTED));
    let run = || reaper.run(forebay_tests::reaper::NO_DEADLINE);
    assert_eq!(run().await.redriven, 0, "its lease runs");
    pass(&stand, LAPSED);
    assert_eq!(run().await.redriven, 1);
    assert_eq!(
        (reached(&stand), stand.inboxes.sends()),
        (vec!["reviewer".to_owned()], 1)
    );
    let answer = stand.post(&request).await;
    let body: serde_json::Value = serde_json::from_str(answer.body()).unwrap();
    assert_eq!((answer.status(), &body["outcome"]), (200, &"duplicate".into()));
    assert_eq!(stand.inboxes.sends(), 1);
    assert_eq!(rows(&table).await, counts([("delivery", 1), ("event", 1)]));
}

#[tokio::test]
async fn a_delivery_whose_function_died_before_the_send_is_driven_by_its_redelivery_once_the_lease_is_over() {
    // S2-13, DEDU-03, DEDU-09, LEAS-05, REDL-09, on the real conditions
    let table = Table::start().await;
    let stand = Stand::with(Scripted::new(table.ledger()), changed(&ROUTED));
    let request = delivery(1, "issue_comment", &comment(8, "dev1"));
    stand.ledger.once(Call::Admit, Script::LoseAnswer);
    let admitted = async {
        made(&stand.ledger, Call::Admit).await;
        while stand.ledger.inner().delivery(&key(1)).await.unwrap().is_none() {}
    };
    tokio::select! {
        biased;
        () = admitted => {}
        _ = stand.post(&request) => panic!("answered"),
    }
    assert_eq!(stand.post(&request).await.status(), 200, "it is durable");
    assert_eq!(stand.inboxes.sends(), 0, "and another's, as far as anybody can tell");
    assert_eq!(row(&stand, ID).await.state.status, Status::Claimed);
    pass(&stand, LAPSED);
    assert_eq!(stand.post(&request).await.status(), 200);
    assert_eq!(reached(&stand), ["reviewer"]);
    let state = row(&stand, ID).await.state;
    assert_eq!(
        (state.reason, state.token.number(), state.failures),
        (Some(Reason::Delivered), 2, 1)
    );
    assert_eq!(rows(&table).await, counts([("delivery", 1), ("event", 1)]));
}

#[tokio::test]
async fn a_delivery_whose_function_died_after_the_send_is_sent_again_under_the_same_deduplication_id() {
    // Invariant 3, DEDU-12
    let table = Table::start().await;
    let stand = Stand::with(Scripted::new(table.ledger()), changed(&ROUTED));
    let request = delivery(1, "issue_comment", &comment(8, "dev1"));
    stand.ledger.once(Call::Settle, Script::Hang);
    dies_at(&stand.ledger, Call::Settle, stand.post(&request)).await;
    pass(&stand, LAPSED);
    stand.post(&request).await;
    assert_eq!(stand.inboxes.sends(), 2, "nobody could know");
    assert_eq!(reached(&stand), ["reviewer"], "and the queue dropped the repeat");
}

#[tokio::test]
async fn an_owner_that_wakes_too_late_settles_nothing() {
    // Invariant 4, S2-10, LEAS-01
    let table = Table::start().await;
    let stand = Stand::with(Scripted::new(table.ledger()), changed(&ROUTED));
    let request = delivery(1, "issue_comment", &comment(8, "dev1"));
    let release = Arc::new(Notify::new());
    stand.ledger.once(Call::Settle, Script::Hold(Arc::clone(&release)));
    let second = async {
        made(&stand.ledger, Call::Settle).await;
        pass(&stand, LAPSED);
        let answer = stand.post(&request).await;
        let row = row(&stand, ID).await;
        release.notify_one();
        (answer.status(), row)
    };
    let (first, (second, settled)) = tokio::join!(stand.post(&request), second);
    assert_eq!((first.status(), second), (202, 200));
    assert_eq!(
        (settled.state.reason, settled.state.token.number()),
        (Some(Reason::Delivered), 2)
    );
    assert_eq!(
        row(&stand, ID).await,
        settled,
        "the first one's settling changed nothing"
    );
    assert_eq!(reached(&stand), ["reviewer"]);
}

#[tokio::test]
async fn a_redelivery_drives_what_could_not_be_sent_once_it_is_due() {
    // S2-09, S2-12, DEDU-02
    let table = Table::start().await;
    let stand = Stand::with(table.ledger(), changed(&ROUTED));
    let request = delivery(1, "issue_comment", &comment(8, "dev1"));
    for outcome in [
        forebay_core::ledger::Sent::Unreachable,
        forebay_core::ledger::Sent::Rejected,
    ] {
        stand.inboxes.set_outcome("reviewer", outcome);
        stand.post(&request).await;
        assert_eq!(row(&stand, ID).await.state.status, Status::FailedRetryable);
        assert_eq!(stand.post(&request).await.status(), 200);
        pass(&stand, 3_600);
    }
    stand.inboxes.set_outcome("reviewer", forebay_core::ledger::Sent::Yes);
    assert_eq!(stand.post(&request).await.status(), 200);
    assert_eq!(reached(&stand), ["reviewer"]);
    assert_eq!(row(&stand, ID).await.state.failures, 1, "only the rejection counts");
    assert_eq!(
        stand.metrics.lines().last().unwrap()["Sent"],
        1,
        "a redelivery that drives is counted"
    );
}
