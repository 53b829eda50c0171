//! The ledger's adapter when calls fail on the way, in every manner that AWS knows. Time is paused where nothing answers.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::collections::BTreeSet;

use forebay_aws::dynamodb::DynamoLedger;
use forebay_core::delivery::{Delivery, Ignored, Outcome};
use forebay_core::drive::{Driven, Driver, SEND_TIME_MAX};
use forebay_core::event::EventId;
use forebay_core::ledger::{Admitted, Claimed, Lease, Limits, Nonce, Raise, Reason, Refused, Settled, Status, Token};
use forebay_core::ports::{ErrorClass, ErrorKind, Ledger, LedgerError, Raised, Redacted, Renewed};
use forebay_core::route::{IgnoredActors, QueueRoutes, Routes, Routing};
use forebay_core::session::{Opened, Pointers};
use forebay_tests::engine::{Embedded, Engine, text};
use forebay_tests::fakes::{ManualTime, RecordingInboxes};
use forebay_tests::fault::{Call, Fault, Faults};
use forebay_tests::samples::*;
use forebay_tests::table::config;
use serde_json::{Value, json};

/// Most transactions of one admission.
const ADMISSIONS_MAX: usize = 8;
/// Most HTTP requests of one call: the SDK's own tries.
const ATTEMPTS_MAX: usize = 3;

/// A ledger that `faults` stand in front of.
fn ledger_behind(engine: &Embedded, faults: &Faults) -> DynamoLedger {
    let config = engine.table.config().http_client(faults.clone()).build();
    ledger_on(aws_sdk_dynamodb::Client::from_conf(config))
}

/// A ledger that only `faults` answer.
fn ledger_of(faults: &Faults) -> DynamoLedger {
    let config = config("http://127.0.0.1:1").http_client(faults.clone()).build();
    ledger_on(aws_sdk_dynamodb::Client::from_conf(config))
}

fn done() -> Fault {
    Fault::Answer(200, json!({}))
}

fn ping(key: &str) -> Delivery {
    delivery(key, Outcome::Ignored(Ignored::Ping))
}

/// The rows that an admission writes, as DynamoDB would show them: delivery and event.
async fn rows_of(delivery: &Delivery, nonce: u64) -> [Value; 2] {
    let faults = Faults::alone().always(done());
    admit(&ledger_of(&faults), delivery, nonce).await.unwrap();
    let calls = faults.calls();
    let item = |entry: usize| calls[0].body["TransactItems"][entry]["Put"]["Item"].clone();
    [item(0), item(1)]
}

fn operations(faults: &Faults, operation: &str) -> Vec<Call> {
    faults
        .calls()
        .into_iter()
        .filter(|call| call.operation == operation)
        .collect()
}

// --- the answer is lost, the work is done ---------------------------------------------------------------------------------

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_won_with_the_same_token() {
    // DDBC-01
    let engine = Embedded::start().await;
    let lease = admit_event(&*engine.ledger(), "e", 1).await;
    engine.ledger().settle(lease, at(1), failed(at(10))).await.unwrap();
    let faults = Faults::on_the_way().at(0, Fault::AnswerLost);
    let claimed = ledger_behind(&engine, &faults)
        .claim(&EventId::new("e"), claim(at(10), 2))
        .await
        .unwrap();
    let Claimed::Won { row, lease } = claimed else {
        panic!("{claimed:?}")
    };
    assert_eq!((lease.token().number(), row.state.token.number()), (2, 2));
    assert_eq!(faults.operations(), ["UpdateItem", "UpdateItem"]);
    let row = engine.ledger().event(&EventId::new("e")).await.unwrap().unwrap();
    assert_eq!(row.state.token.number(), 2, "no second token");
}

#[tokio::test]
async fn a_settlement_whose_answer_was_lost_is_done() {
    // DDBC-03
    for settlement in [
        processed(at(1)),
        failed(at(10)),
        given_up(at(1)),
        parked(pull(12), at(10)),
    ] {
        let engine = Embedded::start().await;
        let lease = admit_event(&*engine.ledger(), "e", 1).await;
        let faults = Faults::on_the_way().at(0, Fault::AnswerLost);
        let ledger = ledger_behind(&engine, &faults);
        let status = settlement.ending.status();
        assert_eq!(ledger.settle(lease, at(1), settlement).await.unwrap(), Settled::Done);
        assert_eq!(faults.operations(), ["UpdateItem", "UpdateItem"]);
        let row = ledger.event(&EventId::new("e")).await.unwrap().unwrap();
        assert_eq!(row.state.status, status);
    }
}

#[tokio::test]
async fn a_renewal_whose_answer_was_lost_is_kept() {
    let engine = Embedded::start().await;
    let mut lease = admit_event(&*engine.ledger(), "e", 1).await;
    let faults = Faults::on_the_way().at(0, Fault::AnswerLost);
    let ledger = ledger_behind(&engine, &faults);
    let renewed = ledger.renew(&mut lease, at(20), TERM).await.unwrap();
    assert_eq!((renewed, lease.until()), (Renewed::Kept, at(50)));
}

/// A raise at 40 by nonce 2 of what was found due at 35.
fn raise(failures_max: u32) -> Raise {
    Raise {
        now: at(40),
        seen: at(35),
        nonce: Nonce::from_random(2),
        wait_min: secs(15),
        wait_max: secs(3_600),
        failures_max,
        expires_at: at(40) + RETENTION,
    }
}

#[tokio::test]
async fn a_raise_whose_answer_was_lost_says_what_it_did_and_counts_once() {
    // DDBC-03: whoever is told that it was overtaken does not count the row that it has ended.
    for (failures_max, expected) in [(3, Raised::Later), (2, Raised::Ended)] {
        let engine = Embedded::start().await;
        drop(admit_event(&*engine.ledger(), "e", 1).await);
        // The look at the row, then the write.
        let faults = Faults::on_the_way().at(1, Fault::AnswerLost);
        let ledger = ledger_behind(&engine, &faults);
        let raised = ledger.raise(&EventId::new("e"), raise(failures_max)).await.unwrap();
        assert_eq!(raised, expected);
        assert_eq!(faults.operations(), ["GetItem", "UpdateItem", "UpdateItem"]);
        let state = ledger.event(&EventId::new("e")).await.unwrap().unwrap().state;
        assert_eq!(
            (state.status.is_terminal(), state.failures),
            (expected == Raised::Ended, 2)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_raise_that_is_overtaken_says_by_what_and_one_without_an_answer_says_nothing() {
    // Invariant 4, DDBC-04, DDBC-06
    let [_, row] = rows_of(&accepted("42/a1", "e"), 1).await;
    let changed = |changes: &[(&str, Value)]| {
        let mut row = row.clone();
        for (name, value) in changes {
            row[*name] = value.clone();
        }
        Some(row)
    };
    let number = |number: i64| json!({"N": number.to_string()});
    let claimed_by = |nonce: i64| {
        changed(&[
            ("token", number(2)),
            ("nonce", number(nonce)),
            ("lease_until", number(at(70).as_millisecond())),
            ("due_at", number(at(75).as_millisecond())),
        ])
    };
    let current = Token::from_number(2);
    for (now, refused) in [
        (None, Refused::Missing),
        (claimed_by(9), Refused::NotDue { due_at: at(75) }),
        (claimed_by(2), Refused::Stale { current }),
        (
            changed(&[("status", json!({"S": "processed"}))]),
            Refused::Terminal(Status::Processed),
        ),
        (changed(&[("v", number(2))]), Refused::Newer(2)),
    ] {
        let faults = Faults::alone()
            .at(0, Fault::Answer(200, json!({"Item": row})))
            .at(1, Fault::condition_failed(now));
        let answer = ledger_of(&faults).raise(&EventId::new("e"), raise(8)).await.unwrap();
        assert_eq!((answer, faults.calls().len()), (Raised::Lost(refused), 2));
    }
    let faults = Faults::alone()
        .at(0, Fault::Answer(200, json!({"Item": row})))
        .always(Fault::refused("ThrottlingException"));
    let error = ledger_of(&faults)
        .raise(&EventId::new("e"), raise(8))
        .await
        .unwrap_err();
    assert_eq!(
        (error.class, faults.calls().len()),
        (ErrorClass::Throttled, 1 + ATTEMPTS_MAX)
    );
}

#[tokio::test]
async fn an_admission_whose_answer_was_lost_is_created_with_its_right() {
    // DDBC-01: by the SDK's repeat with the same token, and by ours, which is a new transaction.
    for lost in 1..=ATTEMPTS_MAX {
        let engine = Embedded::start().await;
        let faults = Faults::on_the_way().at(0, Fault::AnswerLost);
        let faults = (1..lost).fold(faults, |faults, call| faults.at(call, Fault::Reset));
        let answer = admit(&ledger_behind(&engine, &faults), &accepted("42/a1", "e"), 1)
            .await
            .unwrap();
        assert!(
            matches!(&answer, Admitted::Created { lease: Some(lease) } if lease.until() == at(30)),
            "{answer:?}"
        );
        assert_eq!(faults.calls().len(), lost + 1);
        assert_eq!(engine.counts().await, (1, 1));
    }
}

#[tokio::test]
async fn a_delivery_without_event_whose_answer_was_lost_is_created() {
    let engine = Embedded::start().await;
    let faults = Faults::on_the_way().at(0, Fault::AnswerLost);
    let answer = admit(&ledger_behind(&engine, &faults), &ping("42/a1"), 1)
        .await
        .unwrap();
    assert_eq!(answer, Admitted::Created { lease: None });
    assert_eq!(faults.operations(), ["PutItem", "PutItem"]);
}

#[tokio::test]
async fn a_session_whose_answer_was_lost_is_live() {
    let engine = Embedded::start().await;
    // The row before, then the transaction.
    let faults = Faults::on_the_way().at(1, Fault::AnswerLost);
    let ledger = ledger_behind(&engine, &faults);
    let opened = ledger
        .open_session(&session("s1", Some("fix"), Some(12)), at(0))
        .await
        .unwrap();
    assert_eq!(opened, Opened::Live(vec![branch("fix"), pull(12)]));
}

#[tokio::test]
async fn a_real_loser_behind_a_lost_answer_stays_a_loser() {
    // DDBC-04: the call never arrived, and meanwhile somebody else was there.
    let engine = Embedded::start().await;
    let paused = admit_event(&*engine.ledger(), "e", 1).await;
    engine
        .ledger()
        .claim(&EventId::new("e"), claim(at(36), 2))
        .await
        .unwrap();
    let faults = Faults::on_the_way().at(0, Fault::Reset);
    let ledger = ledger_behind(&engine, &faults);
    let settled = ledger.settle(paused, at(29), processed(at(29))).await.unwrap();
    assert!(matches!(settled, Settled::Lost(Refused::Stale { .. })), "{settled:?}");
}

// --- throttles and failures are no verdicts --------------------------------------------------------------------------------

/// The lease of whoever admitted event `e` at 0 by nonce 1.
fn first_lease() -> Lease {
    let state = claimed(event("e"), 1, at(0)).state;
    Lease::proven_by(&EventId::new("e"), &state, Nonce::from_random(1)).unwrap()
}

/// What every kind of write says when each of its requests is refused with `fault`, and how many requests that took.
async fn failures(fault: &Fault) -> Vec<(&'static str, LedgerError, usize)> {
    let mut failures = Vec::new();
    let mut note = |name, error: Option<LedgerError>, faults: &Faults| {
        failures.push((name, error.expect("no verdict without an answer"), faults.calls().len()));
    };
    let faults = || Faults::alone().always(fault.clone());
    let lease = first_lease;
    let wire = faults();
    note(
        "admit",
        admit(&ledger_of(&wire), &accepted("42/a1", "e"), 1).await.err(),
        &wire,
    );
    let wire = faults();
    note("keep", admit(&ledger_of(&wire), &ping("42/a1"), 1).await.err(), &wire);
    let wire = faults();
    note(
        "claim",
        ledger_of(&wire).claim(&EventId::new("e"), claim(at(0), 1)).await.err(),
        &wire,
    );
    let wire = faults();
    note(
        "settle",
        ledger_of(&wire).settle(lease(), at(1), processed(at(1))).await.err(),
        &wire,
    );
    let wire = faults();
    let ledger = ledger_of(&wire);
    note("renew", ledger.renew(&mut lease(), at(1), TERM).await.err(), &wire);
    let wire = faults();
    let (ledger, key) = (ledger_of(&wire), accepted("42/a1", "e").key);
    note("redact", ledger.redact(&lease(), &key, at(1)).await.err(), &wire);
    let wire = faults();
    let owner = session("s1", None, None).owner();
    note("own", ledger_of(&wire).own(&pull(12), &owner, at(0)).await.err(), &wire);
    let wire = faults();
    note(
        "open",
        ledger_of(&wire)
            .open_session(&session("s1", None, Some(12)), at(0))
            .await
            .err(),
        &wire,
    );
    failures
}

#[tokio::test(start_paused = true)]
async fn throttling_is_never_taken_for_a_duplicate_a_holder_or_a_fence() {
    // DDBC-06, DDBC-10
    for (code, class) in [
        ("ProvisionedThroughputExceededException", ErrorClass::Throttled),
        ("ThrottlingException", ErrorClass::Throttled),
        ("RequestLimitExceeded", ErrorClass::Throttled),
        ("InternalServerError", ErrorClass::ServerFault),
        ("TransactionConflictException", ErrorClass::Conflict),
        ("TransactionInProgressException", ErrorClass::Conflict),
    ] {
        for (name, error, calls) in failures(&Fault::refused(code)).await {
            assert_eq!((error.class, error.kind()), (class, ErrorKind::Retry), "{code}: {name}");
            let most = if ["admit", "keep"].contains(&name) {
                ADMISSIONS_MAX * ATTEMPTS_MAX
            } else {
                ATTEMPTS_MAX
            };
            assert!((1..=most).contains(&calls), "{code}: {name} took {calls} requests");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_repeat_can_mend_is_not_repeated() {
    for (code, kind) in [
        ("AccessDeniedException", ErrorKind::Fix),
        ("ResourceNotFoundException", ErrorKind::Fix),
        ("ValidationException", ErrorKind::Bug),
    ] {
        for (name, error, calls) in failures(&Fault::refused(code)).await {
            assert_eq!((error.kind(), calls), (kind, 1), "{code}: {name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn silence_ends_with_the_time_out_and_is_no_verdict() {
    let started = tokio::time::Instant::now();
    let faults = Faults::alone().always(Fault::Silence);
    let error = ledger_of(&faults)
        .claim(&EventId::new("e"), claim(at(0), 1))
        .await
        .unwrap_err();
    assert_eq!((error.class, error.kind()), (ErrorClass::TimedOut, ErrorKind::Retry));
    assert!(
        started.elapsed() <= std::time::Duration::from_millis(3_600),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_reset_is_tried_again_and_then_said_to_be_unreachable() {
    let faults = Faults::alone();
    let error = ledger_of(&faults)
        .claim(&EventId::new("e"), claim(at(0), 1))
        .await
        .unwrap_err();
    assert_eq!(
        (error.class, faults.calls().len()),
        (ErrorClass::Unreachable, ATTEMPTS_MAX)
    );
}

#[tokio::test]
async fn a_claim_that_is_throttled_twice_is_won_at_the_third_try() {
    // S2-08: the tries share one request, whose lease counts from when it was first made. Its owner's time for the work does too.
    let engine = Embedded::start().await;
    let lease = admit_event(&*engine.ledger(), "e", 1).await;
    engine.ledger().settle(lease, at(1), failed(at(10))).await.unwrap();
    let throttled = Fault::refused("ThrottlingException");
    let faults = Faults::on_the_way().at(0, throttled.clone()).at(1, throttled);
    let claimed = ledger_behind(&engine, &faults)
        .claim(&EventId::new("e"), claim(at(10), 2))
        .await
        .unwrap();
    let Claimed::Won { lease, .. } = claimed else {
        panic!("{claimed:?}")
    };
    assert_eq!((lease.token().number(), lease.until()), (2, at(10) + LEASE));
    assert_eq!(faults.operations(), ["UpdateItem"; 3]);
}

/// What became of event `e` when its owner's renewal at 20 was throttled at each try, and it drove the event at `second`.
async fn driven_after_a_throttled_renewal(second: i64) -> (Driven, usize) {
    let engine = Embedded::start().await;
    let mut lease = admit_event(&*engine.ledger(), "e", 1).await;
    let before = engine.row("event#e").await;
    let throttled = Fault::refused("ThrottlingException");
    let faults = (0..ATTEMPTS_MAX).fold(Faults::on_the_way(), |faults, call| faults.at(call, throttled.clone()));
    let ledger = ledger_behind(&engine, &faults);
    let error = ledger.renew(&mut lease, at(20), TERM).await.unwrap_err();
    assert_eq!((error.class, error.kind()), (ErrorClass::Throttled, ErrorKind::Retry));
    assert_eq!(faults.calls().len(), ATTEMPTS_MAX);
    assert_eq!(
        (lease.until(), engine.row("event#e").await),
        (at(30), before),
        "as it was"
    );
    let (inboxes, time) = (RecordingInboxes::default(), ManualTime::at(at(second)));
    let agents = BTreeSet::from(["reviewer".to_owned()]);
    let routing = Routing {
        queues: QueueRoutes::default(),
        routes: Routes::parse("acme/app=reviewer", &agents).unwrap(),
        ignored: IgnoredActors::parse(""),
    };
    let driver = Driver {
        ledger: &ledger,
        inboxes: &inboxes,
        time: &time,
        routing: &routing,
        limits: &Limits::default(),
    };
    let row = ledger.event(&EventId::new("e")).await.unwrap().unwrap();
    let driven = driver.drive(&row, lease, &Pointers::default()).await.unwrap();
    (driven, inboxes.sends())
}

#[tokio::test]
async fn an_owner_whose_renewal_is_throttled_works_on_and_stops_before_the_end_that_it_knows() {
    // LEAS-04: three throttles are not a lost lease, and no side effect begins that the lease might not outlast.
    let last_start = 30 - SEND_TIME_MAX.as_secs();
    for second in [20, last_start] {
        let delivered = Driven::Settled {
            status: Status::Processed,
            reason: Reason::Delivered,
            sent_to: BTreeSet::from(["reviewer".to_owned()]),
        };
        assert_eq!(
            driven_after_a_throttled_renewal(second).await,
            (delivered, 1),
            "{second}"
        );
    }
    for second in [last_start + 1, 29] {
        let given_back = Driven::Settled {
            status: Status::FailedRetryable,
            reason: Reason::Unreachable,
            sent_to: BTreeSet::new(),
        };
        assert_eq!(
            driven_after_a_throttled_renewal(second).await,
            (given_back, 0),
            "{second}"
        );
    }
    for second in [30, 600] {
        let lapsed = Driven::Lost(Refused::Lapsed { until: at(30) });
        assert_eq!(driven_after_a_throttled_renewal(second).await, (lapsed, 0), "{second}");
    }
}

#[tokio::test]
async fn an_owner_whose_renewal_got_no_answer_asks_again_and_is_the_one_owner_still() {
    // LEAS-04: whether the first renewal was carried out or not.
    for fault in [Fault::AnswerLost, Fault::Reset] {
        let engine = Embedded::start().await;
        let mut lease = admit_event(&*engine.ledger(), "e", 1).await;
        let faults = Faults::on_the_way().at(0, fault.clone());
        let faults = (1..ATTEMPTS_MAX).fold(faults, |faults, call| faults.at(call, Fault::Reset));
        let ledger = ledger_behind(&engine, &faults);
        let error = ledger.renew(&mut lease, at(20), TERM).await.unwrap_err();
        assert_eq!((error.class, lease.until()), (ErrorClass::Unreachable, at(30)));
        assert_eq!(ledger.renew(&mut lease, at(25), TERM).await.unwrap(), Renewed::Kept);
        assert_eq!((lease.token().number(), lease.until()), (1, at(55)), "{fault:?}");
        let claimed = ledger.claim(&EventId::new("e"), claim(at(60), 2)).await.unwrap();
        assert_eq!(claimed, Claimed::Lost(Refused::Held { until: at(55) }));
        assert_eq!(
            ledger.settle(lease, at(54), processed(at(54))).await.unwrap(),
            Settled::Done
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_loser_asks_once_and_does_not_poll() {
    // DDBL-06
    let [_, held] = rows_of(&accepted("42/a1", "e"), 1).await;
    let faults = Faults::alone().always(Fault::condition_failed(Some(held)));
    let answer = ledger_of(&faults)
        .claim(&EventId::new("e"), claim(at(10), 2))
        .await
        .unwrap();
    assert_eq!(answer, Claimed::Lost(Refused::Held { until: at(30) }));
    assert_eq!(faults.operations(), ["UpdateItem"]);
    let faults = Faults::alone().always(Fault::condition_failed(None));
    let answer = ledger_of(&faults)
        .claim(&EventId::new("e"), claim(at(10), 2))
        .await
        .unwrap();
    assert_eq!((answer, faults.calls().len()), (Claimed::Lost(Refused::Missing), 1));
}

// --- cancelled transactions -------------------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn each_reason_is_read_for_the_entry_it_belongs_to() {
    // DDBC-07
    let copy = accepted("42/a1", "e");
    let [delivery_row, event_row] = rows_of(&copy, 7).await;
    let failed = "ConditionalCheckFailed";
    // Only the event was there: it is joined.
    let faults = Faults::alone()
        .at(
            0,
            Fault::cancelled(&[("None", None), (failed, Some(event_row.clone()))]),
        )
        .always(done());
    let answer = admit(&ledger_of(&faults), &copy, 1).await.unwrap();
    assert!(matches!(answer, Admitted::Joined { event: Some(_), .. }), "{answer:?}");
    let second = &faults.calls()[1].body["TransactItems"][1];
    assert!(second["Update"].is_object(), "the event is not put again");
    // Only the delivery was there.
    let faults = Faults::alone().always(Fault::cancelled(&[
        (failed, Some(delivery_row.clone())),
        ("None", None),
    ]));
    let answer = admit(&ledger_of(&faults), &copy, 1).await.unwrap();
    assert_eq!(
        answer,
        Admitted::Duplicate {
            conflict: false,
            event: None
        }
    );
    // Both were.
    let both = Fault::cancelled(&[(failed, Some(delivery_row)), (failed, Some(event_row))]);
    let faults = Faults::alone().always(both);
    let answer = admit(&ledger_of(&faults), &copy, 1).await.unwrap();
    assert!(
        matches!(
            answer,
            Admitted::Duplicate {
                conflict: false,
                event: Some(_)
            }
        ),
        "{answer:?}"
    );
    assert_eq!(faults.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_worst_of_mixed_reasons_decides() {
    // DDBC-09
    let copy = accepted("42/a1", "e");
    let [delivery_row, event_row] = rows_of(&copy, 7).await;
    let (conflict, failed) = (("TransactionConflict", None), "ConditionalCheckFailed");
    // Permanent: at once, and no repeat.
    for (code, class) in [
        ("ValidationError", ErrorClass::Invalid),
        ("ItemCollectionSizeLimitExceeded", ErrorClass::TooLarge),
        ("AccessDenied", ErrorClass::Denied),
    ] {
        for reasons in [[conflict.clone(), (code, None)], [(code, None), conflict.clone()]] {
            let faults = Faults::alone().always(Fault::cancelled(&reasons));
            let error = admit(&ledger_of(&faults), &copy, 1).await.unwrap_err();
            assert_eq!((error.class, faults.calls().len()), (class, 1), "{reasons:?}");
        }
    }
    // Back off.
    for code in ["ThrottlingError", "ProvisionedThroughputExceeded"] {
        let faults = Faults::alone().always(Fault::cancelled(&[conflict.clone(), (code, None)]));
        let error = admit(&ledger_of(&faults), &copy, 1).await.unwrap_err();
        assert_eq!(
            (error.class, faults.calls().len()),
            (ErrorClass::Throttled, ADMISSIONS_MAX)
        );
    }
    // Read again and decide.
    let faults = Faults::alone()
        .at(0, Fault::cancelled(&[conflict.clone(), (failed, Some(event_row))]))
        .always(done());
    let answer = admit(&ledger_of(&faults), &copy, 1).await.unwrap();
    assert!(matches!(answer, Admitted::Joined { .. }), "{answer:?}");
    let faults = Faults::alone().always(Fault::cancelled(&[(failed, Some(delivery_row)), conflict]));
    let answer = admit(&ledger_of(&faults), &copy, 1).await.unwrap();
    assert!(matches!(answer, Admitted::Duplicate { .. }), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_redaction_is_judged_by_the_reason_of_each_entry() {
    // S2-18, DDBC-07, DDBC-09, invariant 4: the event's comes first; who lost it learns nothing of the delivery.
    let (failed, conflict) = ("ConditionalCheckFailed", ("TransactionConflict", None));
    let [delivery_row, event_row] = rows_of(&accepted("42/a1", "e"), 1).await;
    let event_with = |name: &str, number: &str| {
        let mut row = event_row.clone();
        row[name] = json!({"N": number});
        (failed, Some(row))
    };
    let none = ("None", None);
    let not_its_own = (failed, Some(delivery_row));
    let redact = async |reasons: &[(&str, Option<Value>)]| {
        let faults = Faults::alone().always(Fault::cancelled(reasons));
        let key = accepted("42/a1", "e").key;
        let redacted = ledger_of(&faults).redact(&first_lease(), &key, at(1)).await;
        assert_eq!(faults.operations(), ["TransactWriteItems"], "{reasons:?}");
        redacted.map_err(|error| error.class)
    };
    let stale = Refused::Stale { current: Token::FIRST };
    for (reasons, expected) in [
        ([(failed, None), none.clone()], Ok(Redacted::Lost(Refused::Missing))),
        (
            [(failed, None), not_its_own.clone()],
            Ok(Redacted::Lost(Refused::Missing)),
        ),
        ([event_with("nonce", "9"), none.clone()], Ok(Redacted::Lost(stale))),
        (
            [event_with("nonce", "9"), not_its_own.clone()],
            Ok(Redacted::Lost(stale)),
        ),
        (
            [event_with("v", "2"), none.clone()],
            Ok(Redacted::Lost(Refused::Newer(2))),
        ),
        ([none.clone(), not_its_own.clone()], Ok(Redacted::NotItsOwn)),
        // Nothing is known of the event, or nothing of either.
        ([conflict.clone(), not_its_own], Err(ErrorClass::Conflict)),
        ([conflict, none.clone()], Err(ErrorClass::Conflict)),
        ([none.clone(), ("ThrottlingError", None)], Err(ErrorClass::Throttled)),
        ([none.clone(), none.clone()], Err(ErrorClass::Conflict)),
        // The row is as the owner knows it: then the condition is wrong, and that is said.
        ([(failed, Some(event_row.clone())), none], Err(ErrorClass::Invalid)),
    ] {
        assert_eq!(redact(&reasons).await, expected, "{reasons:?}");
    }
    assert_eq!(redact(&[]).await, Err(ErrorClass::ServerFault));
}

#[tokio::test(start_paused = true)]
async fn an_admission_under_conflict_is_tried_again_within_its_bound() {
    let conflict = Fault::cancelled(&[("TransactionConflict", None), ("None", None)]);
    for conflicts in [1, ADMISSIONS_MAX - 1] {
        let faults = Faults::alone().always(done());
        let faults = (0..conflicts).fold(faults, |faults, call| faults.at(call, conflict.clone()));
        let answer = admit(&ledger_of(&faults), &accepted("42/a1", "e"), 1).await.unwrap();
        assert!(matches!(answer, Admitted::Created { lease: Some(_) }), "{answer:?}");
        assert_eq!(faults.calls().len(), conflicts + 1);
    }
    let started = tokio::time::Instant::now();
    let faults = Faults::alone().always(conflict);
    let error = admit(&ledger_of(&faults), &accepted("42/a1", "e"), 1)
        .await
        .unwrap_err();
    assert_eq!(
        (error.class, faults.calls().len()),
        (ErrorClass::Conflict, ADMISSIONS_MAX)
    );
    assert!(
        started.elapsed() < std::time::Duration::from_secs(4),
        "inside a delivery's eight seconds"
    );
}

#[tokio::test(start_paused = true)]
async fn two_admissions_in_conflict_do_not_wait_in_step() {
    let conflict = Fault::cancelled(&[("TransactionConflict", None), ("None", None)]);
    let mut spans = BTreeSet::new();
    for nonce in [0x1111_2222_3333_4444, 0x9999_8888_7777_6666, 0xabcd_ef01_2345_6789] {
        let started = tokio::time::Instant::now();
        let faults = Faults::alone().always(conflict.clone());
        admit(&ledger_of(&faults), &accepted("42/a1", "e"), nonce)
            .await
            .unwrap_err();
        spans.insert(started.elapsed());
    }
    assert_eq!(spans.len(), 3, "{spans:?}");
}

#[tokio::test(start_paused = true)]
async fn a_second_copy_is_a_duplicate_only_when_the_first_is_durable() {
    // DEDU-03: while the first is under way its copy gets no 2xx; once it is there, it does.
    let copy = accepted("42/a1", "e");
    let conflict = Fault::cancelled(&[("TransactionConflict", None), ("TransactionConflict", None)]);
    let faults = Faults::alone().always(conflict.clone());
    let error = admit(&ledger_of(&faults), &copy, 2).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry);
    let [delivery_row, event_row] = rows_of(&copy, 1).await;
    let failed = "ConditionalCheckFailed";
    let faults = Faults::alone()
        .at(0, conflict.clone())
        .at(1, conflict)
        .always(Fault::cancelled(&[
            (failed, Some(delivery_row)),
            (failed, Some(event_row)),
        ]));
    let answer = admit(&ledger_of(&faults), &copy, 2).await.unwrap();
    let Admitted::Duplicate {
        conflict: false,
        event: Some(row),
    } = answer
    else {
        panic!("{answer:?}")
    };
    assert_eq!(row.state.status, Status::Claimed, "the first copy's owner has it");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_vanishes_while_it_is_joined_is_put_after_all() {
    let copy = accepted("42/a1", "e");
    let [_, event_row] = rows_of(&copy, 7).await;
    let failed = "ConditionalCheckFailed";
    let faults = Faults::alone()
        .at(0, Fault::cancelled(&[("None", None), (failed, Some(event_row))]))
        .at(1, Fault::cancelled(&[("None", None), (failed, None)]))
        .always(done());
    let answer = admit(&ledger_of(&faults), &copy, 1).await.unwrap();
    assert!(matches!(answer, Admitted::Created { lease: Some(_) }), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_without_reasons_is_no_verdict() {
    let faults = Faults::alone().always(Fault::cancelled(&[]));
    let error = admit(&ledger_of(&faults), &accepted("42/a1", "e"), 1)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry);
}

#[tokio::test(start_paused = true)]
async fn a_session_under_conflict_is_not_said_to_be_held() {
    // DDBC-10 for sessions.
    let reasons = [("None", None), ("TransactionConflict", None)];
    let faults = Faults::alone().at(0, done()).always(Fault::cancelled(&reasons));
    let error = ledger_of(&faults)
        .open_session(&session("s1", None, Some(12)), at(0))
        .await
        .unwrap_err();
    assert_eq!((error.class, error.kind()), (ErrorClass::Conflict, ErrorKind::Retry));
}

// --- bodies ------------------------------------------------------------------------------------------------------------------

/// A body that is kept in three chunks.
fn large() -> Vec<u8> {
    let words = (0..250_000_u32).map(|word| word.wrapping_mul(2_654_435_761).rotate_left(word % 31));
    words.flat_map(u32::to_le_bytes).collect()
}

#[tokio::test(start_paused = true)]
async fn no_row_is_written_before_all_of_its_body() {
    // SIZE-04
    let body = large();
    let delivery = with_body(accepted("42/a1", "e"), &body);
    let faults = Faults::alone().always(done());
    ledger_of(&faults).admit(&admission(&delivery, &body, 1)).await.unwrap();
    let chunks = operations(&faults, "PutItem").len();
    assert!(chunks > 1, "{chunks}");
    assert_eq!(
        faults.operations().last().map(String::as_str),
        Some("TransactWriteItems")
    );
    // Whichever chunk cannot be written: no transaction.
    for broken in 0..chunks {
        let faults = Faults::alone()
            .at(broken, Fault::refused("ValidationException"))
            .always(done());
        let error = ledger_of(&faults)
            .admit(&admission(&delivery, &body, 1))
            .await
            .unwrap_err();
        assert_eq!(error.class, ErrorClass::Invalid);
        assert!(operations(&faults, "TransactWriteItems").is_empty());
    }
}

#[tokio::test]
async fn a_body_without_its_row_harms_nobody_and_the_repeat_succeeds() {
    // SIZE-04: chunks are in, the transaction is refused.
    let engine = Embedded::start().await;
    let body = large();
    let delivery = with_body(accepted("42/a1", "e"), &body);
    let faults = Faults::on_the_way();
    let chunks = body.len().div_ceil(390_000);
    let faults = faults.at(chunks, Fault::refused("AccessDeniedException"));
    let ledger = ledger_behind(&engine, &faults);
    ledger.admit(&admission(&delivery, &body, 1)).await.unwrap_err();
    assert_eq!(engine.counts().await, (0, 0));
    assert_eq!(engine.rows().await.len(), chunks, "orphans, which expire");
    let answer = ledger.admit(&admission(&delivery, &body, 2)).await.unwrap();
    assert!(matches!(answer, Admitted::Created { lease: Some(_) }), "{answer:?}");
    assert!(ledger.body(&delivery.key).await.unwrap() == Some(body));
}

#[tokio::test]
async fn a_redaction_that_fails_changes_nothing_and_one_that_fails_halfway_is_completed_by_its_repeat() {
    // S2-18
    let engine = Embedded::start().await;
    let body = large();
    let delivery = with_body(accepted("42/a1", "e"), &body);
    let admitted = engine.ledger().admit(&admission(&delivery, &body, 1)).await.unwrap();
    let Admitted::Created { lease: Some(lease) } = admitted else {
        panic!("it is new")
    };
    let before = engine.rows().await;
    let refused = || Fault::refused("AccessDeniedException");
    let ledger = ledger_behind(&engine, &Faults::on_the_way().at(0, refused()));
    let error = ledger.redact(&lease, &delivery.key, at(1)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Denied);
    assert_eq!(engine.rows().await, before, "body, quotation and chunks are there");
    // The transaction, the look at the row, and one of the chunks.
    let ledger = ledger_behind(&engine, &Faults::on_the_way().at(3, refused()));
    ledger.redact(&lease, &delivery.key, at(1)).await.unwrap_err();
    let with_bytes = |rows: &[forebay_tests::engine::Item]| {
        let chunks = rows
            .iter()
            .filter(|row| text(row, "pk").is_some_and(|pk| pk.starts_with("body#")));
        chunks.filter(|row| row.contains_key("bytes")).count()
    };
    assert_eq!(with_bytes(&engine.rows().await), 2, "the first one is empty");
    assert_eq!(
        ledger.body(&delivery.key).await.unwrap(),
        None,
        "and nobody reads the rest"
    );
    assert_eq!(
        ledger.redact(&lease, &delivery.key, at(2)).await.unwrap(),
        Redacted::Done
    );
    assert_eq!(with_bytes(&engine.rows().await), 0);
    let kept = ledger.delivery(&delivery.key).await.unwrap().unwrap();
    assert_eq!((kept.redacted_at, kept.delivery), (Some(at(1)), delivery));
}

/// Removes the second of a body's chunks.
async fn lose_a_chunk(engine: &Embedded) {
    let rows = engine.rows().await;
    let chunk = rows
        .iter()
        .find(|row| row["pk"].as_s().is_ok_and(|pk| pk.ends_with("#001")))
        .unwrap();
    let delete = engine.client().delete_item().table_name(forebay_tests::table::TABLE);
    delete
        .key("pk", chunk["pk"].clone())
        .key("sk", chunk["sk"].clone())
        .send()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_body_that_lost_a_chunk_is_an_error_and_never_a_shorter_body() {
    let engine = Embedded::start().await;
    let body = large();
    let delivery = with_body(accepted("42/a1", "e"), &body);
    engine.ledger().admit(&admission(&delivery, &body, 1)).await.unwrap();
    lose_a_chunk(&engine).await;
    let error = engine.ledger().body(&delivery.key).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Unreadable);
}

#[tokio::test]
async fn a_body_that_lost_a_chunk_is_redacted_like_any_other_and_the_chunk_does_not_come_back() {
    // S2-18
    let engine = Embedded::start().await;
    let body = large();
    let delivery = with_body(accepted("42/a1", "e"), &body);
    let admitted = engine.ledger().admit(&admission(&delivery, &body, 1)).await.unwrap();
    assert!(matches!(admitted, Admitted::Created { lease: Some(_) }), "{admitted:?}");
    lose_a_chunk(&engine).await;
    let redacted = engine
        .ledger()
        .redact(&first_lease(), &delivery.key, at(1))
        .await
        .unwrap();
    assert_eq!(redacted, Redacted::Done);
    let rows = engine.rows().await;
    let chunks: Vec<_> = rows
        .iter()
        .filter(|row| text(row, "pk").is_some_and(|pk| pk.starts_with("body#")))
        .collect();
    assert_eq!(chunks.len(), 2, "{chunks:?}");
    assert!(chunks.iter().all(|row| !row.contains_key("bytes")), "{chunks:?}");
}

// --- what errors say -----------------------------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn no_error_shows_a_row_or_a_payload() {
    // S2-11, invariant 8
    let mut row = rows_of(&accepted("42/a1", "e"), 7).await[1].clone();
    row["summary"] = json!({"S": "payload-text"});
    row["status"] = json!({"N": "1"});
    let faults = Faults::alone().always(Fault::condition_failed(Some(row)));
    let error = ledger_of(&faults)
        .claim(&EventId::new("e"), claim(at(10), 2))
        .await
        .unwrap_err();
    assert_eq!(error.class, ErrorClass::Unreadable);
    let source = std::error::Error::source(&error).map(ToString::to_string);
    let shown = format!("{error} {error:?} {source:?}");
    assert!(!shown.contains("payload-text"), "{shown}");
}
