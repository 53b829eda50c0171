//! The function behind queues: what comes again, what never does, and in what order things arrive.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::time::Duration;

use forebay_aws::dynamodb::DynamoLedger;
use forebay_core::event::EventId;
use forebay_core::ledger::memory::MemoryLedger;
use forebay_core::ledger::{EventRow, Reason, Sent, Status};
use forebay_core::ports::{ErrorClass, Inboxes, Ledger, Outgoing};
use forebay_core::queue::event_id;
use forebay_tests::engine::{Embedded, Engine, text};
use forebay_tests::fakes::RecordingInboxes;
use forebay_tests::fault::Faults;
use forebay_tests::reaper::{NO_DEADLINE, reaper};
use forebay_tests::scripted::{Call, Script, Scripted};
use forebay_tests::sqs::{ORDERS, QueueStand, STEPS, queue_environment, received, record, step};
use forebay_tests::table::TABLE;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sqs::{Nameless, held_back_seconds};

type Scripts = Scripted<MemoryLedger>;

fn stand() -> QueueStand<Scripts> {
    stand_with(&[])
}

fn stand_with(changed: &[(&str, &str)]) -> QueueStand<Scripts> {
    let ledger = Scripted::new(MemoryLedger::new());
    QueueStand::with(ledger, RecordingInboxes::default(), queue_environment(changed))
}

fn id(queue: &str, message: &str) -> EventId {
    event_id(queue, message)
}

async fn row(stand: &QueueStand<Scripts>, queue: &str, message: &str) -> EventRow {
    stand.ledger.event(&id(queue, message)).await.unwrap().unwrap()
}

/// Message ids in an inbox, in order.
fn arrived(inboxes: &RecordingInboxes, inbox: &str) -> Vec<String> {
    let messages = inboxes.messages(inbox).into_iter();
    let ids = messages.map(|message| {
        let body: Value = serde_json::from_str(&message.body).unwrap();
        body["id"].as_str().unwrap().to_owned()
    });
    ids.collect()
}

fn orders(ids: &[&str]) -> Value {
    ids.iter().map(|id| record(ORDERS, id, "{\"n\":1}")).collect()
}

const NONE: [String; 0] = [];

// --- standard queues --------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn every_message_is_kept_once_reaches_its_inbox_and_is_done_with() {
    // S1-11, S1-12, SQSB-04
    let stand = stand();
    assert_eq!(stand.take(&orders(&["m1", "m2", "m3"])).await.unwrap(), NONE);
    assert_eq!(arrived(&stand.inboxes, "builder"), ["m1", "m2", "m3"]);
    for message in ["m1", "m2", "m3"] {
        let state = row(&stand, ORDERS, message).await.state;
        assert_eq!(
            (state.status, state.reason),
            (Status::Processed, Some(Reason::Delivered))
        );
    }
    assert_eq!(stand.take(&json!([])).await.unwrap(), NONE);
    let line = &stand.metrics.lines()[0];
    assert_eq!(
        (&line["QueueMessages"], &line["QueueCreated"], &line["QueueSent"]),
        (&json!(3), &json!(3), &json!(3))
    );
}

#[tokio::test]
async fn a_queue_without_a_route_goes_to_the_common_inbox() {
    // S1-12
    let stand = stand_with(&[("QUEUE_INBOX", "notice")]);
    let other = "arn:aws:sqs:eu-west-1:000000000000:other";
    stand
        .take(&json!([record(other, "m1", "x"), record(ORDERS, "m2", "x")]))
        .await
        .unwrap();
    assert_eq!(
        (arrived(&stand.inboxes, "notice"), arrived(&stand.inboxes, "builder")),
        (vec!["m1".to_owned()], vec!["m2".to_owned()])
    );
}

#[tokio::test]
async fn a_message_that_is_delivered_again_is_a_duplicate() {
    // SQSB-10, SQSB-13, S1-10
    let stand = stand();
    for _ in 0..2 {
        assert_eq!(stand.take(&orders(&["m1", "m1"])).await.unwrap(), NONE);
    }
    assert_eq!(arrived(&stand.inboxes, "builder"), ["m1"]);
    assert_eq!(stand.ledger.inner().counts(), (0, 1));
}

#[tokio::test]
async fn two_owners_of_one_message_at_once_make_one_event() {
    // SQSB-13, on the real conditions
    let engine = Embedded::start().await;
    let ledger = (*engine.ledger()).clone();
    let stand = QueueStand::with(ledger, RecordingInboxes::default(), queue_environment(&[]));
    let batch = orders(&["m1", "m2"]);
    let (one, two) = tokio::join!(stand.take(&batch), stand.take(&batch));
    assert_eq!((one.unwrap(), two.unwrap()), (NONE.to_vec(), NONE.to_vec()));
    assert_eq!(engine.counts().await, (0, 2));
    assert_eq!(arrived(&stand.inboxes, "builder").len(), 2);
}

#[tokio::test]
async fn only_what_the_ledger_did_not_take_comes_again() {
    // SQSB-01
    let stand = stand();
    stand.ledger.once(Call::AdmitEvent, Script::Fail(ErrorClass::Throttled));
    let again = stand.take(&orders(&["m1", "m2", "m3"])).await.unwrap();
    assert_eq!(again.len(), 1);
    assert_eq!(
        stand.queues.held_back().len(),
        1,
        "a receive is not used up for a busy ledger"
    );
    let again: Vec<&str> = again.iter().map(String::as_str).collect();
    assert_eq!(stand.take(&orders(&again)).await.unwrap(), NONE);
    assert_eq!(arrived(&stand.inboxes, "builder").len(), 3);
}

#[tokio::test]
async fn nothing_is_acknowledged_while_the_ledger_is_down_and_nothing_is_lost() {
    let stand = stand();
    stand
        .ledger
        .always(Call::AdmitEvent, Script::Fail(ErrorClass::Unreachable));
    let ids: Vec<String> = (0..10).map(|n| format!("m{n}")).collect();
    let batch = orders(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(stand.take(&batch).await.unwrap(), ids);
    let calls = stand.ledger.calls().len();
    let again = stand.take(&batch).await.unwrap();
    assert_eq!(again.len(), 10);
    assert_eq!(
        stand.ledger.calls().len(),
        calls + 1,
        "a sick ledger is tried with one message"
    );
    let held_back = stand.queues.held_back();
    assert_eq!(held_back.len(), 20, "and all of them come again later");
    stand.ledger.mend();
    assert_eq!(stand.take(&batch).await.unwrap(), NONE);
    assert_eq!(arrived(&stand.inboxes, "builder").len(), 10);
}

#[tokio::test]
async fn a_table_that_nothing_reaches_takes_no_message_and_keeps_all_once_it_is_back() {
    // On the real adapter, with every call to DynamoDB failing on the way.
    let engine = Embedded::start().await;
    let down = Faults::alone();
    let client = engine.table.config().http_client(down).build();
    let unreachable = DynamoLedger::new(aws_sdk_dynamodb::Client::from_conf(client), TABLE);
    let stand = QueueStand::with(unreachable, RecordingInboxes::default(), queue_environment(&[]));
    assert_eq!(stand.take(&orders(&["m1", "m2"])).await.unwrap(), ["m1", "m2"]);
    assert_eq!((engine.counts().await, stand.inboxes.sends()), ((0, 0), 0));
    let ledger = (*engine.ledger()).clone();
    let stand = QueueStand::with(ledger, RecordingInboxes::default(), queue_environment(&[]));
    assert_eq!(stand.take(&orders(&["m1", "m2"])).await.unwrap(), NONE);
    assert_eq!(arrived(&stand.inboxes, "builder").len(), 2);
}

#[tokio::test]
async fn a_ledger_that_is_busy_is_not_sick() {
    // BRKR-03
    for class in [ErrorClass::Throttled, ErrorClass::Denied, ErrorClass::Conflict] {
        let stand = stand();
        stand.ledger.always(Call::AdmitEvent, Script::Fail(class));
        let ids: Vec<String> = (0..20).map(|n| format!("m{n}")).collect();
        let batch = orders(&ids.iter().map(String::as_str).collect::<Vec<_>>());
        for _ in 0..2 {
            let calls = stand.ledger.calls().len();
            assert_eq!(stand.take(&batch).await.unwrap(), ids);
            assert_eq!(stand.ledger.calls().len(), calls + 20, "{class:?}");
        }
        assert_eq!(
            stand.queues.held_back().len(),
            40,
            "and nobody's receives are used up for it"
        );
    }
}

#[tokio::test]
async fn what_the_ledger_will_never_take_is_not_held_back() {
    let stand = stand();
    stand.ledger.once(Call::AdmitEvent, Script::Fail(ErrorClass::TooLarge));
    assert_eq!(stand.take(&orders(&["m1"])).await.unwrap(), ["m1"]);
    assert_eq!(stand.queues.held_back(), []);
}

/// A queue that gives a message at most so often, and then moves it to its dead letters.
struct StrictQueue {
    /// Group, id, receives so far, and from when it can be received.
    left: Vec<(&'static str, &'static str, u32, jiff::Timestamp)>,
    dead: Vec<&'static str>,
}

impl StrictQueue {
    /// Hands what can be received to the function, as a FIFO queue does: a group stands behind its first message.
    async fn give(&mut self, stand: &QueueStand<Scripts>, receives_max: u32) {
        let now = stand.now();
        let mut stopped: Vec<&str> = Vec::new();
        let mut batch = Vec::new();
        for (group, id, receives, from) in &mut self.left {
            if stopped.contains(group) || *from > now {
                stopped.push(group);
                continue;
            }
            *receives += 1;
            if *receives > receives_max {
                self.dead.push(id);
            } else {
                batch.push((*id, received(step(group, id), *receives)));
            }
        }
        let dead = self.dead.clone();
        self.left.retain(|(_, id, ..)| !dead.contains(id));
        if batch.is_empty() {
            return;
        }
        let records: Value = batch.iter().map(|(_, record)| record.clone()).collect();
        let before = stand.queues.held_back().len();
        let again = stand.take(&records).await.unwrap();
        let held_back = stand.queues.held_back().split_off(before);
        self.left.retain_mut(|(_, id, _, from)| {
            if !batch.iter().any(|(given, _)| given == id) {
                return true;
            }
            let held = held_back.iter().find(|(handle, _)| *handle == format!("rh-{id}"));
            *from = now + SignedDuration::from_secs(held.map_or(180, |(_, seconds)| i64::from(*seconds)));
            again.iter().any(|again| again == id)
        });
    }
}

#[tokio::test]
async fn twenty_minutes_of_a_sick_inbox_put_nothing_into_the_dead_letters_of_a_fifo_queue() {
    // BRKR-02
    let stand = stand();
    let reaper = reaper(
        stand.ledger.clone(),
        stand.inboxes.clone(),
        stand.time.clone(),
        queue_environment(&[]),
    );
    let start = stand.now();
    let mut queue = StrictQueue {
        left: vec![("g1", "a", 0, start), ("g1", "b", 0, start), ("g2", "x", 0, start)],
        dead: Vec::new(),
    };
    stand.inboxes.set_outcome("reviewer", Sent::Unreachable);
    for minute in 0..180 {
        if minute == 20 {
            stand.inboxes.set_outcome("reviewer", Sent::Yes);
        }
        queue.give(&stand, 3).await;
        reaper.run(NO_DEADLINE).await;
        stand.time.pass(SignedDuration::from_mins(1));
    }
    assert_eq!((queue.left.len(), queue.dead.as_slice()), (0, [].as_slice()));
    let arrived = arrived(&stand.inboxes, "reviewer");
    let group: Vec<&String> = arrived.iter().filter(|id| *id != "x").collect();
    assert_eq!(
        (arrived.len(), group),
        (
            3,
            vec!["a", "b"]
                .into_iter()
                .map(|id| arrived.iter().find(|a| *a == id).unwrap())
                .collect()
        )
    );
}

#[test]
fn what_waits_for_something_sick_waits_longer_each_time() {
    // BRKR-02: a queue with three receives bridges more than the twenty minutes of an outage.
    assert_eq!(
        [1, 2, 3, 4, 99].map(held_back_seconds),
        [180, 1_800, 3_600, 3_600, 3_600]
    );
    assert_eq!(held_back_seconds(0), 180);
    // The last receive is followed by the dead letters, whatever it is held back for.
    assert!((1..3).map(held_back_seconds).sum::<u32>() > 20 * 60);
}

#[tokio::test]
async fn a_sick_inbox_costs_no_receive_and_all_arrives_after() {
    // BRKR-02, DESIGN: the event stays due and is not failed
    let stand = stand();
    stand.inboxes.set_outcome("builder", Sent::Unreachable);
    assert_eq!(stand.take(&orders(&["m1", "m2"])).await.unwrap(), NONE);
    let reaper = reaper(
        stand.ledger.clone(),
        stand.inboxes.clone(),
        stand.time.clone(),
        queue_environment(&[]),
    );
    for _ in 0..20 {
        stand.time.pass(SignedDuration::from_mins(1));
        reaper.run(NO_DEADLINE).await;
    }
    let state = row(&stand, ORDERS, "m1").await.state;
    assert_eq!((state.status, state.failures), (Status::FailedRetryable, 0));
    stand.inboxes.set_outcome("builder", Sent::Yes);
    for _ in 0..90 {
        stand.time.pass(SignedDuration::from_mins(1));
        reaper.run(NO_DEADLINE).await;
    }
    let mut arrived = arrived(&stand.inboxes, "builder");
    arrived.sort();
    assert_eq!(arrived, ["m1", "m2"]);
}

#[tokio::test]
async fn a_record_that_no_queue_can_have_sent_is_kept_and_visible_and_stops_nobody() {
    // SQSB-03, SQSB-12, SQSD-10
    let stand = stand();
    let mut odd = record(ORDERS, "m2", "");
    odd["body"] = json!({"a": 1});
    let batch = json!([record(ORDERS, "m1", "{}"), odd, {"messageId": "m4", "body": null}, record(ORDERS, "m3", "{}")]);
    for _ in 0..2 {
        assert_eq!(stand.take(&batch).await.unwrap(), NONE, "in one place, once");
    }
    assert_eq!(arrived(&stand.inboxes, "builder"), ["m1", "m3"]);
    for message in ["m2", "m4"] {
        let state = row(&stand, ORDERS, message).await.state;
        assert_eq!(
            (state.status, state.reason),
            (Status::FailedPermanent, Some(Reason::Malformed))
        );
        assert_eq!((state.failures, state.due_at), (0, None));
    }
    let content = stand.ledger.content(&id(ORDERS, "m2")).await.unwrap().unwrap();
    assert!(content.contains("{\"a\":1}"), "what came is there");
}

#[tokio::test]
async fn a_record_without_an_id_fails_the_invocation_after_its_neighbours_are_durable() {
    let stand = stand();
    let batch = json!([record(ORDERS, "m1", "{}"), {"body": "x"}, record(ORDERS, "", "{}")]);
    assert_eq!(stand.take(&batch).await, Err(Nameless(2)));
    assert_eq!(arrived(&stand.inboxes, "builder"), ["m1"]);
    assert_eq!(
        stand.take(&orders(&["m1"])).await.unwrap(),
        NONE,
        "and is a duplicate when it comes again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_runs_out_of_time_returns_what_nobody_began() {
    // SQSB-09, LAMB-06: FIFO, so that one message follows the other.
    let stand = stand();
    stand.ledger.always(
        Call::AdmitEvent,
        Script::Pass(stand.time.clone(), SignedDuration::from_secs(4)),
    );
    let ids: Vec<String> = (0..10).map(|n| format!("m{n}")).collect();
    let batch: Value = ids.iter().map(|id| step("g", id)).collect();
    let deadline = stand.now() + SignedDuration::from_secs(20);
    let again = stand.take_until(&batch, deadline).await.unwrap();
    assert_eq!(again, ids[2..], "two had time, and the third might not have had");
    assert!(stand.now() <= deadline);
    assert_eq!(arrived(&stand.inboxes, "reviewer"), ids[..2]);
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_hangs_costs_a_batch_its_round_and_no_more() {
    let stand = stand();
    stand.ledger.once(Call::AdmitEvent, Script::Hang);
    let started = tokio::time::Instant::now();
    assert_eq!(stand.take(&orders(&["m1", "m2"])).await.unwrap().len(), 1);
    stand.ledger.once(Call::Settle, Script::Hang);
    assert_eq!(stand.take(&orders(&["m3", "m4"])).await.unwrap(), NONE, "kept is kept");
    assert!(started.elapsed() < Duration::from_secs(16));
}

#[tokio::test(start_paused = true)]
async fn ten_messages_take_no_longer_than_twice_the_time_of_one() {
    // DESIGN §8: 20 ms injected for each call, on a clock that only these waits move.
    let mut times = Vec::new();
    for count in [1, 10] {
        let ledger = Scripted::new(MemoryLedger::new());
        for call in [
            Call::AdmitEvent,
            Call::Settle,
            Call::Claim,
            Call::Content,
            Call::Pointers,
        ] {
            ledger.always(call, Script::Wait(Duration::from_millis(20)));
        }
        let inboxes = SlowInboxes(RecordingInboxes::default());
        let stand = QueueStand::with(ledger, inboxes, queue_environment(&[]));
        let ids: Vec<String> = (0..count).map(|n| format!("m{n}")).collect();
        let started = tokio::time::Instant::now();
        let batch: Value = ids.iter().map(|id| record(ORDERS, id, "{}")).collect();
        assert_eq!(stand.take(&batch).await.unwrap(), NONE);
        times.push(started.elapsed());
        assert_eq!(arrived(&stand.inboxes.0, "builder").len(), count);
    }
    assert!(times[0] >= Duration::from_millis(60), "{times:?}");
    assert!(times[1] <= times[0] * 2, "{times:?}");
}

/// Inboxes whose every call takes 20 ms, however many messages it sends.
#[derive(Clone, Debug)]
struct SlowInboxes(RecordingInboxes);

impl Inboxes for SlowInboxes {
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock of this test is paused, and moves by this alone"
    )]
    async fn send(&self, messages: Vec<Outgoing>) -> Vec<Sent> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.0.send(messages).await
    }
}

// --- FIFO queues ------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn the_first_failure_of_a_group_stops_it_and_other_groups_go_on() {
    // SQSB-06, SQSB-07
    let stand = stand();
    stand.ledger.once(Call::AdmitEvent, Script::Fail(ErrorClass::Throttled));
    let batch = json!([
        step("g1", "a"),
        step("g2", "x"),
        step("g1", "b"),
        step("g2", "y"),
        step("g1", "c")
    ]);
    assert_eq!(stand.take(&batch).await.unwrap(), ["a", "b", "c"]);
    assert_eq!(arrived(&stand.inboxes, "reviewer"), ["x", "y"]);
    assert_eq!(stand.ledger.inner().counts(), (0, 2), "what is behind it was not begun");
    let again = json!([step("g1", "a"), step("g1", "b"), step("g1", "c")]);
    assert_eq!(stand.take(&again).await.unwrap(), NONE);
    assert_eq!(arrived(&stand.inboxes, "reviewer"), ["x", "y", "a", "b", "c"]);
}

#[tokio::test]
async fn a_message_that_was_not_sent_holds_its_group_until_it_is() {
    let stand = stand();
    stand.inboxes.set_outcome("reviewer", Sent::Unreachable);
    let batch = json!([step("g1", "a"), step("g1", "b")]);
    assert_eq!(stand.take(&batch).await.unwrap(), ["a", "b"]);
    assert_eq!(stand.queues.held_back(), [("rh-a".to_owned(), 180)]);
    assert_eq!(stand.ledger.inner().counts(), (0, 1));
    stand.inboxes.set_outcome("reviewer", Sent::Yes);
    stand.time.pass(SignedDuration::from_mins(3));
    let again = json!([received(step("g1", "a"), 2), received(step("g1", "b"), 2)]);
    assert_eq!(stand.take(&again).await.unwrap(), NONE);
    assert_eq!(arrived(&stand.inboxes, "reviewer"), ["a", "b"]);
}

#[tokio::test]
async fn order_within_a_group_is_that_of_sending_whatever_fails() {
    // Every receive of the queue fails somewhere else; the queue gives what is left in order, as FIFO queues do.
    for seed in 0_u64..40 {
        let stand = stand();
        let mut left: Vec<(&str, String)> = (0..12)
            .map(|n| (["g1", "g2", "g3"][n % 3], format!("m{n:02}")))
            .collect();
        for turn in 0..60_u64 {
            if left.is_empty() {
                break;
            }
            let dice = (seed * 1_000 + turn).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
            match dice {
                0..=3 => stand.ledger.once(Call::AdmitEvent, Script::Fail(ErrorClass::Throttled)),
                4..=6 => stand.ledger.once(Call::Settle, Script::Fail(ErrorClass::TimedOut)),
                7..=9 => stand.inboxes.set_outcome("reviewer", Sent::Unreachable),
                _ => stand.inboxes.set_outcome("reviewer", Sent::Yes),
            }
            let batch: Value = left.iter().take(10).map(|(group, id)| step(group, id)).collect();
            let taken = left.len().min(10);
            let again = stand.take(&batch).await.unwrap();
            let mut place = 0;
            left.retain(|(_, id)| {
                place += 1;
                place > taken || again.contains(id)
            });
            stand.time.pass(SignedDuration::from_mins(40));
        }
        assert_eq!(left, [], "seed {seed}");
        let arrived = arrived(&stand.inboxes, "reviewer");
        for group in 0..3 {
            let expected: Vec<String> = (0..12).filter(|n| n % 3 == group).map(|n| format!("m{n:02}")).collect();
            let got: Vec<String> = arrived.iter().filter(|id| expected.contains(id)).cloned().collect();
            assert_eq!(got, expected, "seed {seed}");
        }
    }
}

// --- what arrives -----------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_large_message_goes_through_chunks_and_arrives_whole_after_a_crash() {
    let engine = Embedded::start().await;
    let ledger = Scripted::new((*engine.ledger()).clone());
    let stand = QueueStand::with(ledger, RecordingInboxes::default(), queue_environment(&[]));
    let noise: String = (0_u32..300_000)
        .map(|n| char::from(b'a' + (n.wrapping_mul(2_654_435_761) >> 24) as u8 % 26))
        .collect();
    stand.inboxes.set_outcome("builder", Sent::Unreachable);
    assert_eq!(stand.take(&json!([record(ORDERS, "m1", &noise)])).await.unwrap(), NONE);
    stand.inboxes.set_outcome("builder", Sent::Yes);
    let reaper = reaper(
        stand.ledger.clone(),
        stand.inboxes.clone(),
        stand.time.clone(),
        queue_environment(&[]),
    );
    stand.ledger.once(Call::Content, Script::Fail(ErrorClass::TimedOut));
    for _ in 0..2 {
        stand.time.pass(SignedDuration::from_mins(2));
        reaper.run(NO_DEADLINE).await;
    }
    let [message] = &stand.inboxes.messages("builder")[..] else {
        panic!("not one message")
    };
    let body: Value = serde_json::from_str(&message.body).unwrap();
    assert_eq!(body["data"], noise);
    assert_eq!(
        stand
            .ledger
            .event(&id(ORDERS, "m1"))
            .await
            .unwrap()
            .unwrap()
            .state
            .failures,
        0
    );
}

#[tokio::test]
async fn an_event_whose_content_is_gone_counts_failures_and_ends() {
    // Invariant 5
    let engine = Embedded::start().await;
    let ledger = Scripted::new((*engine.ledger()).clone());
    let stand = QueueStand::with(ledger, RecordingInboxes::default(), queue_environment(&[]));
    let noise: String = (0_u32..40_000)
        .map(|n| char::from(b'a' + (n.wrapping_mul(2_654_435_761) >> 24) as u8 % 26))
        .collect();
    stand.inboxes.set_outcome("builder", Sent::Unreachable);
    stand.take(&json!([record(ORDERS, "m1", &noise)])).await.unwrap();
    stand.inboxes.set_outcome("builder", Sent::Yes);
    for mut row in engine.rows().await {
        if text(&row, "pk").is_some_and(|pk| pk.starts_with("body#")) {
            row.retain(|name, _| name == "pk" || name == "sk");
            let delete = engine.client().delete_item().table_name(TABLE).set_key(Some(row));
            delete.send().await.unwrap();
        }
    }
    let reaper = reaper(
        stand.ledger.clone(),
        stand.inboxes.clone(),
        stand.time.clone(),
        queue_environment(&[]),
    );
    for _ in 0..10 {
        stand.time.pass(SignedDuration::from_hours(2));
        reaper.run(NO_DEADLINE).await;
    }
    let state = stand.ledger.event(&id(ORDERS, "m1")).await.unwrap().unwrap().state;
    assert_eq!(
        (state.status, state.reason),
        (Status::FailedPermanent, Some(Reason::TooManyFailures))
    );
}

#[tokio::test]
async fn a_repeat_carries_the_same_deduplication_id_and_the_consumer_gets_the_id_to_drop_it_by() {
    // SQSS-05
    let stand = stand();
    stand.ledger.once(Call::Settle, Script::Fail(ErrorClass::TimedOut));
    stand.take(&json!([step("g", "a")])).await.unwrap();
    stand.time.pass(SignedDuration::from_mins(10));
    stand.take(&json!([step("g", "a")])).await.unwrap();
    assert_eq!(stand.inboxes.sends(), 2, "ten minutes later it is sent again");
    let [message] = &stand.inboxes.messages("reviewer")[..] else {
        panic!("the inbox of the test knows the deduplication id for ever")
    };
    let body: Value = serde_json::from_str(&message.body).unwrap();
    assert_eq!(
        (&body["id"], &body["event"]),
        (&json!("a"), &json!(format!("sqs/{STEPS}/a")))
    );
    assert_eq!(message.group, format!("{STEPS}#g"), "a group is always given");
}
