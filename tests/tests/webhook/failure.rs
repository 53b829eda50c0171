//! What the webhook does when something outside fails or is slow: it answers in time, and says what is true.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::ledger::memory::MemoryLedger;
use forebay_core::ledger::{Reason, Sent, Status};
use forebay_core::ports::{ErrorClass, LedgerError};
use forebay_core::shed::{Counts, Moved, ReadTarget, SlotNumber, TargetState, TargetStore};
use forebay_core::target::TargetKey;
use forebay_tests::scripted::{Call, Script, Scripted};
use forebay_tests::webhook::{SECRET, Stand};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::payloads::{comment, delivery, open, pass, pull_request, reached, row, scripted_with, session, standing};

const ID: &str = "github/comment/8";
const ROUTED: [(&str, &str); 1] = [("ROUTES", "acme/app=reviewer")];
/// GitHub gives up after ten seconds.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(8);

fn routed() -> Stand<Scripted<MemoryLedger>> {
    scripted_with(&ROUTED)
}

/// Posts a comment: status and outcome, within the time.
async fn post(stand: &Stand<Scripted<MemoryLedger>>) -> (u16, String) {
    let started_at = Instant::now();
    let answer = stand.post(&delivery(1, "issue_comment", &comment(8, "dev1"))).await;
    let spent = started_at.elapsed();
    assert!(spent < ANSWER_TIME_MAX, "{spent:?}");
    let body: serde_json::Value = serde_json::from_str(answer.body()).unwrap();
    (answer.status(), body["outcome"].as_str().unwrap().to_owned())
}

fn failed() -> (u16, String) {
    (500, "failed".to_owned())
}

fn accepted() -> (u16, String) {
    (202, "accepted".to_owned())
}

#[tokio::test(start_paused = true)]
async fn an_admission_without_an_answer_fails_in_time_and_a_redelivery_mends_it() {
    for script in [
        Script::Hang,
        Script::LoseAnswer,
        Script::Fail(ErrorClass::Throttled),
        Script::Fail(ErrorClass::Unreachable),
        Script::Fail(ErrorClass::Denied),
        Script::Fail(ErrorClass::TooLarge),
    ] {
        let stand = routed();
        stand.ledger.always(Call::Admit, script.clone());
        assert_eq!(post(&stand).await, failed(), "{script:?}");
        assert_eq!(stand.inboxes.sends(), 0, "invariant 1: nothing before it is durable");
        stand.ledger.mend();
        pass(&stand, 36);
        post(&stand).await;
        assert_eq!(reached(&stand), ["reviewer"], "{script:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_call_never_answers_the_answer_comes_in_time() {
    for call in [
        Call::Admit,
        Call::Claim,
        Call::Settle,
        Call::Pointers,
        Call::Learn,
        Call::Own,
        Call::Waiting,
    ] {
        for script in [Script::Hang, Script::LoseAnswer, Script::Fail(ErrorClass::TimedOut)] {
            let stand = scripted_with(&[]);
            open(&stand, &session(&stand, "builder", Some("fix"), None)).await;
            stand.ledger.always(call, script.clone());
            let expected = if call == Call::Admit { failed() } else { accepted() };
            assert_eq!(post(&stand).await, expected, "{call:?} {script:?}");
            let opened = delivery(2, "pull_request", &pull_request("opened", &json!({})));
            let started_at = Instant::now();
            let status = stand.post(&opened).await.status();
            assert!(started_at.elapsed() < ANSWER_TIME_MAX);
            assert_eq!(status, expected.0, "{call:?} {script:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_whole_ledger_that_never_answers_is_a_failure_in_time() {
    let stand = routed();
    stand.ledger.everything(&Script::Hang);
    assert_eq!(post(&stand).await, failed());
}

#[tokio::test(start_paused = true)]
async fn an_admission_that_is_slow_leaves_the_drive_the_rest_of_the_time() {
    // Both slow: the admission answers after five seconds, the settlement never.
    let stand = routed();
    let release = Arc::new(Notify::new());
    stand.ledger.once(Call::Admit, Script::Hold(Arc::clone(&release)));
    stand.ledger.always(Call::Settle, Script::Hang);
    let later = async {
        tokio::time::advance(Duration::from_secs(5)).await;
        release.notify_one();
    };
    let (answer, ()) = tokio::join!(post(&stand), later);
    assert_eq!(answer, accepted());
}

#[tokio::test(start_paused = true)]
async fn owners_that_cannot_be_read_postpone_the_event_without_counting_a_failure() {
    // S3-14
    for script in [Script::Hang, Script::Fail(ErrorClass::Throttled)] {
        let stand = scripted_with(&[]);
        open(&stand, &session(&stand, "builder", None, Some(12))).await;
        stand.ledger.always(Call::Pointers, script.clone());
        assert_eq!(post(&stand).await, accepted(), "{script:?}: the delivery is durable");
        let state = row(&stand, ID).await.state;
        assert_eq!(
            (state.status, state.reason, state.failures),
            (Status::FailedRetryable, Some(Reason::Unreachable), 0)
        );
        // Its redelivery claims it and cannot read them either: the same.
        if matches!(script, Script::Fail(_)) {
            pass(&stand, 3_600);
            post(&stand).await;
            let state = row(&stand, ID).await.state;
            assert_eq!(
                (state.status, state.failures, state.tries),
                (Status::FailedRetryable, 0, 2)
            );
        }
        stand.ledger.mend();
        open(&stand, &session(&stand, "builder", None, Some(12))).await;
        pass(&stand, 3_000);
        post(&stand).await;
        assert_eq!(reached(&stand).len(), 1, "{script:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drive_that_fails_is_still_accepted_and_counted_as_pending() {
    let stand = routed();
    stand.ledger.once(Call::Settle, Script::Fail(ErrorClass::Unreachable));
    assert_eq!(post(&stand).await, accepted());
    let line = stand.metrics.lines().pop().unwrap();
    assert_eq!(
        (&line["Pending"], &line["Sent"]),
        (&json!(1), &json!(0)),
        "nobody knows"
    );
    assert_eq!(
        row(&stand, ID).await.state.status,
        Status::Claimed,
        "until its lease is over"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_slow_to_remember_does_not_hide_what_was_sent() {
    let stand = routed();
    stand.ledger.always(Call::Learn, Script::Hang);
    let opened = delivery(1, "pull_request", &pull_request("opened", &json!({})));
    assert_eq!(stand.post(&opened).await.status(), 202);
    let line = stand.metrics.lines().pop().unwrap();
    assert_eq!((&line["Sent"], &line["Pending"]), (&json!(1), &json!(0)));
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_inbox_is_no_failure_of_the_delivery_and_stops_no_other() {
    // S3-14, S2-11
    let stand = routed();
    stand.inboxes.set_outcome("reviewer", Sent::Unreachable);
    let merged = delivery(1, "pull_request", &crate::payloads::merge("dev1"));
    assert_eq!(stand.post(&merged).await.status(), 202);
    assert_eq!(reached(&stand), ["dispatcher"]);
    let state = row(&stand, "github/pull_request/70/merged").await.state;
    assert_eq!((state.status, state.failures), (Status::FailedRetryable, 0));
    let told = [("dispatcher", Sent::Yes), ("reviewer", Sent::Unreachable)];
    let told = told.map(|(inbox, sent)| (inbox.to_owned(), sent));
    assert_eq!(
        state.destinations,
        told.into(),
        "what each route did is in the row: S3-06"
    );
}

#[tokio::test(start_paused = true)]
async fn a_shed_inbox_leaves_its_events_due_and_not_failed() {
    // BRKR-02, the ledger's half
    let stand = routed();
    stand.inboxes.set_outcome("reviewer", Sent::Unreachable);
    for id in 1..=10 {
        stand.post(&delivery(id, "issue_comment", &comment(id, "dev1"))).await;
    }
    let tried = stand.inboxes.sends();
    let answer = stand.post(&delivery(11, "issue_comment", &comment(11, "dev1"))).await;
    assert_eq!(answer.status(), 202, "GitHub is not told: the ledger has it");
    assert_eq!((tried, stand.inboxes.sends()), (10, 10), "nothing more is sent");
    let state = row(&stand, "github/comment/11").await.state;
    assert_eq!(
        (state.status, state.reason, state.failures),
        (Status::FailedRetryable, Some(Reason::Unreachable), 0)
    );
    assert_eq!(state.destinations["reviewer"], Sent::Shed);
    assert!(state.due_at.is_some(), "invariant 5");
}

/// A store of targets whose reads release whatever waits for them.
#[derive(Debug)]
struct Releasing(Arc<Notify>);

impl TargetStore for Releasing {
    async fn read(&self, _target: &TargetKey, _from: SlotNumber) -> Result<ReadTarget, LedgerError> {
        self.0.notify_one();
        Ok(ReadTarget::default())
    }

    async fn add(&self, _: &TargetKey, _: SlotNumber, _: u64, _: &Counts) -> Result<(), LedgerError> {
        Ok(())
    }

    async fn change(&self, _: &TargetKey, _: &TargetState, _: &TargetState) -> Result<Moved, LedgerError> {
        Ok(Moved::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_shedder_reads_is_read_beside_the_admission_and_not_after_it() {
    let notify = Arc::new(Notify::new());
    let ledger = Scripted::new(MemoryLedger::new());
    // The admission ends only once the target has been read.
    ledger.always(Call::Admit, Script::Hold(Arc::clone(&notify)));
    let stand = Stand::with_targets(ledger, Releasing(notify), crate::payloads::changed(&ROUTED));
    let answer = stand.post(&delivery(1, "issue_comment", &comment(8, "dev1"))).await;
    assert_eq!((answer.status(), stand.inboxes.sends()), (202, 1));
}

#[tokio::test(start_paused = true)]
async fn a_secret_store_that_fails_refuses_and_is_asked_again_by_the_next_delivery() {
    // LAMB-04: a failed read is not kept.
    let stand = routed();
    stand.secrets.set(None);
    assert_eq!(post(&stand).await, (503, "refused".to_owned()));
    assert_eq!(stand.ledger.calls(), []);
    let document = json!({"github": {"webhook_secret": SECRET}});
    stand.secrets.set(Some(document.to_string()));
    assert_eq!(post(&stand).await, accepted());
}

#[tokio::test(start_paused = true)]
async fn a_secret_store_that_never_answers_refuses_in_time() {
    let stand = routed();
    stand.secrets.hang();
    assert_eq!(post(&stand).await, (503, "refused".to_owned()));
    assert_eq!(stand.ledger.calls(), []);
}

#[tokio::test(start_paused = true)]
async fn secrets_that_were_read_once_outlast_a_store_that_never_answers() {
    let stand = routed();
    assert_eq!(post(&stand).await, accepted());
    stand.secrets.hang();
    pass(&stand, 301);
    assert_eq!(post(&stand).await, (200, "duplicate".to_owned()));
    // Nor does a mismatch, which has them read once more, take longer.
    pass(&stand, 60);
    let forged = delivery(2, "ping", &json!({})).header("x-hub-signature-256", Some("sha256=00"));
    let started_at = Instant::now();
    assert_eq!(stand.post(&forged).await.status(), 401);
    assert!(started_at.elapsed() < ANSWER_TIME_MAX);
}

#[tokio::test(start_paused = true)]
async fn slow_secrets_and_a_slow_ledger_together_are_still_in_time() {
    let stand = routed();
    assert_eq!(post(&stand).await, accepted());
    stand.secrets.hang();
    stand.ledger.everything(&Script::Hang);
    pass(&stand, 301);
    assert_eq!(post(&stand).await, failed());
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_rotated_or_added_later_takes_effect_without_a_restart() {
    // S3-02, LAMB-03: within a bounded time, and mismatches cannot hammer the store.
    let stand = routed();
    stand.secrets.set(Some(
        json!({"github": {"webhook_secret": "hook-secret-old"}}).to_string(),
    ));
    assert_eq!(post(&stand).await, (401, "refused".to_owned()));
    stand
        .secrets
        .set(Some(json!({"github": {"webhook_secret": SECRET}}).to_string()));
    for _ in 0..20 {
        assert_eq!(post(&stand).await, (401, "refused".to_owned()), "read a moment ago");
    }
    assert_eq!(stand.secrets.reads(), 1);
    pass(&stand, 10);
    assert_eq!(post(&stand).await, accepted());
    assert_eq!(stand.secrets.reads(), 2);
    assert_eq!(standing(&stand, ID).await.0, Status::Processed);
}
