//! The reaper: what is due is driven, what is poison is moved on, and nothing else is touched.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_sdk_dynamodb::types::AttributeValue;
use forebay_aws::dynamodb::DynamoLedger;
use forebay_core::event::EventId;
use forebay_core::ledger::memory::MemoryLedger;
use forebay_core::ledger::{EventRow, Reason, Sent, Status};
use forebay_core::ports::{Inboxes, Ledger, Outgoing, TimeAndChance};
use forebay_tests::engine::{Embedded, Engine, Item, text};
use forebay_tests::fakes::{ManualTime, RecordingInboxes};
use forebay_tests::fault::{Fault, Faults};
use forebay_tests::reaper::{NO_DEADLINE, reads_beside, reaper};
use forebay_tests::samples::*;
use forebay_tests::webhook::environment;
use jiff::SignedDuration;
use reaper::{Reaper, STOP_MARGIN};
use tokio::sync::Notify;

/// The environment of the tests' reaper: `acme/app` is `reviewer`'s.
fn routed() -> BTreeMap<String, String> {
    with(&[("ROUTES", "acme/app=reviewer")])
}

fn with(changed: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut environment = environment();
    for (name, value) in changed {
        environment.insert((*name).to_owned(), (*value).to_owned());
    }
    environment
}

/// A reaper on a fresh table.
struct Stand {
    engine: Embedded,
    inboxes: RecordingInboxes,
    time: ManualTime,
    reaper: Reaper<DynamoLedger, RecordingInboxes, ManualTime>,
}

impl Stand {
    async fn start(environment: BTreeMap<String, String>) -> Self {
        let engine = Embedded::start().await;
        let (inboxes, time) = (RecordingInboxes::default(), ManualTime::at(at(0)));
        let ledger = (*engine.ledger()).clone();
        Self {
            reaper: reaper(ledger, inboxes.clone(), time.clone(), environment),
            engine,
            inboxes,
            time,
        }
    }

    /// Admits events by webhooks that die at once.
    async fn admit(&self, names: &[&str]) {
        for name in names {
            drop(admit_event(&*self.engine.ledger(), name, 1).await);
        }
    }

    /// Lets every lease lapse.
    fn let_lapse(&self) {
        self.time.pass(LEASE + SKEW + secs(1));
    }

    async fn run(&self) -> reaper::Report {
        self.reaper.run(NO_DEADLINE).await
    }

    async fn row(&self, name: &str) -> EventRow {
        self.engine.ledger().event(&EventId::new(name)).await.unwrap().unwrap()
    }

    async fn item(&self, name: &str) -> Item {
        self.engine.row(&format!("event#{name}")).await.unwrap()
    }

    /// Changes a row behind everybody's back.
    async fn damage(&self, name: &str, attribute: &str, value: Option<AttributeValue>) {
        let mut item = self.item(name).await;
        match value {
            Some(value) => item.insert(attribute.to_owned(), value),
            None => item.remove(attribute),
        };
        self.engine.put(item).await;
    }

    /// Which events the reviewer got, in order.
    fn delivered(&self) -> Vec<String> {
        let subject = |message: Outgoing| {
            let body: serde_json::Value = serde_json::from_str(&message.body).unwrap();
            body["id"].as_str().unwrap().to_owned()
        };
        self.inboxes.messages("reviewer").into_iter().map(subject).collect()
    }
}

#[tokio::test]
async fn what_a_dead_webhook_admitted_is_driven_once_its_lease_is_over() {
    // S2-12, S2-13, invariant 5
    let stand = Stand::start(routed()).await;
    stand.admit(&["a"]).await;
    let early = stand.run().await;
    assert_eq!((early.redriven, stand.inboxes.sends()), (0, 0), "its lease runs");
    stand.let_lapse();
    let report = stand.run().await;
    assert_eq!((report.redriven, report.sent, report.backlog), (1, 1, 0));
    assert!(report.backlog_is_whole);
    assert_eq!(report.oldest_due_seconds, 1);
    let state = stand.row("a").await.state;
    assert_eq!(
        (state.status, state.reason, state.token.number()),
        (Status::Processed, Some(Reason::Delivered), 2)
    );
    stand.time.pass(secs(3_600));
    assert_eq!(stand.run().await.redriven, 0);
    assert_eq!(stand.inboxes.sends(), 1);
}

#[tokio::test]
async fn lapsed_leases_are_driven_and_counted_and_living_leases_and_ended_rows_stay_as_they_are() {
    // S2-15
    let stand = Stand::start(routed()).await;
    let ledger = stand.engine.ledger();
    stand.admit(&["one", "two", "three"]).await;
    for (name, settlement) in [
        ("done", processed(at(1))),
        ("given-up", given_up(at(1))),
        ("later", failed(at(600))),
    ] {
        let lease = admit_event(&*ledger, name, 1).await;
        ledger.settle(lease, at(1), settlement).await.unwrap();
    }
    stand.admit(&["held"]).await;
    stand.let_lapse();
    drop(ledger.claim(&EventId::new("held"), claim(stand.time.now(), 9)).await);
    let untouched = ["done", "given-up", "later", "held"];
    let mut before = Vec::new();
    for name in untouched {
        before.push(stand.item(name).await);
    }
    let report = stand.run().await;
    assert_eq!((report.redriven, report.sent), (3, 3), "{report:?}");
    assert_eq!(
        stand.delivered().into_iter().collect::<BTreeSet<_>>(),
        ["one", "three", "two"].map(str::to_owned).into()
    );
    for (name, before) in untouched.into_iter().zip(before) {
        assert_eq!(stand.item(name).await, before, "{name}");
    }
}

#[tokio::test]
async fn with_three_rows_of_ten_poison_the_others_drain_in_the_same_run_and_the_poison_ends() {
    // S2-15, invariants 5 and 10
    let stand = Stand::start(routed()).await;
    let names: Vec<String> = (0..40).map(|number| format!("e{number:02}")).collect();
    stand.admit(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let number = |digits: &str| Some(AttributeValue::N(digits.to_owned()));
    let word = |word: &str| Some(AttributeValue::S(word.to_owned()));
    // Each in a way of its own: some are claimed before they turn out to be unreadable, some cannot even be claimed.
    let damages = [
        ("e00", "status", None),
        ("e01", "status", word("nonsense")),
        ("e02", "token", None),
        ("e03", "token", word("seven")),
        ("e04", "first_seen", word("rumour")),
        ("e05", "failures", word("many")),
        ("e06", "kind", word("earthquake")),
        ("e07", "lease_until", word("soon")),
        ("e08", "v", None),
        ("e09", "v", word("1")),
        ("e10", "admitted_at", None),
        ("e11", "tries", number("-4")),
    ];
    for (name, attribute, value) in damages.clone() {
        stand.damage(name, attribute, value).await;
    }
    stand.let_lapse();
    let report = stand.run().await;
    assert_eq!(
        (report.redriven, report.poison, report.troubled),
        (28, 12, 0),
        "{report:?}"
    );
    assert_eq!(report.backlog, 0);
    assert_eq!(stand.delivered().len(), 28);
    let mut runs = 1;
    let mut redriven = 0;
    let mut permanent = report.permanent;
    for _ in 0..40 {
        stand.time.pass(secs(600));
        let report = stand.run().await;
        runs += 1;
        redriven += report.redriven;
        permanent += report.permanent;
    }
    println!("{runs} runs, {permanent} ended, {redriven} mended by being raised");
    let rows = stand.engine.rows().await;
    let events: Vec<_> = rows
        .iter()
        .filter(|row| text(row, "pk").is_some_and(|pk| pk.starts_with("event#")))
        .collect();
    for row in &events {
        let status = text(row, "status");
        assert!(
            status == Some("processed") || status == Some("failed_permanent"),
            "{row:?}"
        );
        assert!(!row.contains_key("due_at") && !row.contains_key("due_shard"), "{row:?}");
        assert!(row.contains_key("expires_at"), "{row:?}");
    }
    assert_eq!(permanent + redriven, 12);
    assert!(permanent >= 8, "what no write of ours mends has ended: {permanent}");
}

#[tokio::test]
async fn a_row_of_a_newer_version_is_counted_and_left_as_it_is_to_the_byte() {
    let stand = Stand::start(routed()).await;
    stand.admit(&["newer", "a"]).await;
    stand
        .damage("newer", "v", Some(AttributeValue::N("2".to_owned())))
        .await;
    // What this version could not read of it besides.
    stand
        .damage("newer", "token", Some(AttributeValue::S("seven".to_owned())))
        .await;
    let before = stand.item("newer").await;
    for _ in 0..20 {
        stand.let_lapse();
        let report = stand.run().await;
        assert_eq!((report.newer, report.poison, report.backlog), (1, 0, 1), "{report:?}");
    }
    assert_eq!(stand.item("newer").await, before);
    assert_eq!(stand.delivered(), ["a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_reapers_at_once_drive_each_of_twenty_rows_once() {
    // SCHD-01: the schedule fires twice for one tick.
    // LEAS-07
    let stand = Stand::start(routed()).await;
    let names: Vec<String> = (0..20).map(|number| format!("e{number}")).collect();
    stand.admit(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    stand.let_lapse();
    let other = reaper(
        (*stand.engine.ledger()).clone(),
        stand.inboxes.clone(),
        stand.time.clone(),
        routed(),
    );
    let (one, two) = tokio::join!(stand.run(), tokio::spawn(async move { other.run(NO_DEADLINE).await }));
    let two = two.unwrap();
    assert_eq!(one.redriven + two.redriven, 20, "{one:?} {two:?}");
    assert_eq!(stand.inboxes.sends(), 20);
    for name in names {
        assert_eq!(stand.row(&name).await.state.token.number(), 2);
    }
}

/// Inboxes that hold the first send until they are told to go on.
#[derive(Clone, Debug)]
struct HeldInboxes {
    inner: RecordingInboxes,
    entered: Arc<Notify>,
    release: Arc<Notify>,
    sends: Arc<AtomicUsize>,
}

impl Inboxes for HeldInboxes {
    async fn send(&self, messages: Vec<Outgoing>) -> Vec<Sent> {
        if self.sends.fetch_add(1, Ordering::SeqCst) == 0 {
            self.entered.notify_one();
            self.release.notified().await;
        }
        self.inner.send(messages).await
    }
}

#[tokio::test]
async fn a_run_that_meets_a_slow_one_skips_what_that_works_on_and_takes_the_rest() {
    // SCHD-03
    let stand = Stand::start(routed()).await;
    stand.admit(&["a", "b", "c"]).await;
    stand.let_lapse();
    let held = HeldInboxes {
        inner: stand.inboxes.clone(),
        entered: Arc::default(),
        release: Arc::default(),
        sends: Arc::default(),
    };
    let alone = with(&[("ROUTES", "acme/app=reviewer"), ("REAP_CONCURRENCY", "1")]);
    let slow = reaper(
        (*stand.engine.ledger()).clone(),
        held.clone(),
        stand.time.clone(),
        alone,
    );
    let next = async {
        held.entered.notified().await;
        let report = stand.run().await;
        held.release.notify_one();
        report
    };
    let (slow, next) = tokio::join!(slow.run(NO_DEADLINE), next);
    assert_eq!((slow.sent, next.sent), (1, 2));
    let mut delivered = stand.delivered();
    delivered.sort();
    assert_eq!(delivered, ["a", "b", "c"]);
}

#[tokio::test]
async fn after_hours_without_a_run_one_run_catches_up_and_drives_each_event_once() {
    // SCHD-04
    let stand = Stand::start(routed()).await;
    for hour in 0..5 {
        stand.admit(&[&format!("e{hour}")]).await;
        stand.time.pass(secs(3_600));
    }
    let report = stand.run().await;
    assert_eq!((report.redriven, report.sent, report.backlog), (5, 5, 0), "{report:?}");
    assert_eq!(stand.run().await.redriven, 0);
    assert_eq!(stand.inboxes.sends(), 5);
}

#[tokio::test]
async fn a_run_takes_no_more_than_its_limit_and_takes_what_has_been_due_longest() {
    let stand = Stand::start(with(&[
        ("ROUTES", "acme/app=reviewer"),
        ("REAP_EVENTS_MAX", "10"),
        ("REAP_PAGE_ROWS", "1"),
    ]))
    .await;
    let ledger = stand.engine.ledger();
    let mut names = Vec::new();
    for number in 0..25_i64 {
        let name = format!("e{number:02}");
        let lease = admit_event(&*ledger, &name, 1).await;
        // The later in the alphabet, the earlier due.
        ledger.settle(lease, at(1), failed(at(100 - number))).await.unwrap();
        names.push(name);
    }
    stand.time.pass(secs(200));
    let report = stand.run().await;
    assert_eq!(
        (report.redriven, report.backlog, report.oldest_due_seconds),
        (10, 15, 124)
    );
    names.reverse();
    let first: BTreeSet<_> = stand.delivered().into_iter().collect();
    assert_eq!(first, names[..10].iter().cloned().collect());
    assert_eq!(stand.run().await.redriven, 10);
    let last = stand.run().await;
    assert_eq!((last.redriven, last.backlog), (5, 0));
}

#[tokio::test]
async fn no_event_is_started_that_could_not_be_finished_before_the_deadline() {
    // Invariant 9
    let stand = Stand::start(routed()).await;
    stand.admit(&["a", "b"]).await;
    stand.let_lapse();
    let just_too_late = stand.time.now() + STOP_MARGIN - SignedDuration::from_millis(1);
    let report = stand.reaper.run(just_too_late).await;
    assert_eq!((report.redriven, report.backlog, stand.inboxes.sends()), (0, 2, 0));
    let report = stand.reaper.run(stand.time.now() + STOP_MARGIN).await;
    assert_eq!((report.redriven, report.backlog), (2, 0));
}

/// Inboxes that count how many sends are under way at one time, and panic where an event is called `panics`.
#[derive(Clone, Debug, Default)]
struct Watched {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Inboxes for Watched {
    async fn send(&self, messages: Vec<Outgoing>) -> Vec<Sent> {
        assert!(!messages.iter().any(|message| message.body.contains("\"panics\"")));
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        self.now.fetch_sub(1, Ordering::SeqCst);
        vec![Sent::Yes; messages.len()]
    }
}

#[tokio::test]
async fn so_many_events_are_driven_at_one_time_and_no_more() {
    let (inboxes, time) = (Watched::default(), ManualTime::at(at(0)));
    let environment = with(&[("ROUTES", "acme/app=reviewer"), ("REAP_CONCURRENCY", "4")]);
    let reaper = reaper(MemoryLedger::new(), inboxes.clone(), time.clone(), environment);
    for number in 0..30 {
        drop(admit_event(reaper.ledger(), &format!("e{number}"), 1).await);
    }
    time.pass(secs(60));
    assert_eq!(reaper.run(NO_DEADLINE).await.redriven, 30);
    assert_eq!(inboxes.most.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn an_event_whose_handling_panics_takes_no_other_along_and_ends_at_the_ceiling() {
    // Invariant 10
    let time = ManualTime::at(at(0));
    let reaper = reaper(MemoryLedger::new(), Watched::default(), time.clone(), routed());
    for name in ["a", "panics", "b"] {
        drop(admit_event(reaper.ledger(), name, 1).await);
    }
    time.pass(secs(60));
    let report = reaper.run(NO_DEADLINE).await;
    assert_eq!((report.redriven, report.poison, report.permanent), (2, 1, 0));
    let mut drives = 1;
    for _ in 0..600 {
        time.pass(secs(60));
        let report = reaper.run(NO_DEADLINE).await;
        drives += report.poison;
        if report.permanent > 0 {
            break;
        }
    }
    // The webhook that died is the first failure of eight.
    assert_eq!(drives, 7);
    let row = reaper.ledger().event(&EventId::new("panics")).await.unwrap().unwrap();
    assert_eq!((row.state.status, row.state.failures), (Status::FailedPermanent, 8));
}

#[tokio::test]
async fn owners_that_die_again_and_again_end_an_event_at_the_ceiling() {
    // S2-12: permanent is terminal
    let stand = Stand::start(routed()).await;
    stand.admit(&["a"]).await;
    for nonce in 2..9 {
        stand.let_lapse();
        drop(
            stand
                .engine
                .ledger()
                .claim(&EventId::new("a"), claim(stand.time.now(), nonce))
                .await,
        );
    }
    assert_eq!(stand.row("a").await.state.failures, 8);
    stand.let_lapse();
    let report = stand.run().await;
    assert_eq!((report.redriven, report.permanent, report.sent), (1, 1, 0));
    let state = stand.row("a").await.state;
    assert_eq!(
        (state.status, state.reason),
        (Status::FailedPermanent, Some(Reason::TooManyFailures))
    );
}

#[tokio::test]
async fn an_inbox_that_is_out_of_reach_for_twenty_minutes_gets_its_event_once_and_no_failure_is_counted() {
    let stand = Stand::start(routed()).await;
    stand.inboxes.set_outcome("reviewer", Sent::Unreachable);
    stand.admit(&["a"]).await;
    let mut tries = 0;
    for _ in 0..20 {
        stand.time.pass(secs(60));
        let report = stand.run().await;
        assert_eq!((report.permanent, report.poison), (0, 0));
        tries += report.pending;
    }
    assert!((3..=10).contains(&tries), "the waits grow: {tries}");
    // The webhook's own lapse is the one failure.
    assert_eq!(stand.row("a").await.state.failures, 1);
    stand.inboxes.set_outcome("reviewer", Sent::Yes);
    for _ in 0..60 {
        stand.time.pass(secs(60));
        assert_eq!(stand.run().await.permanent, 0);
    }
    assert_eq!(stand.delivered(), ["a"]);
    assert_eq!(stand.row("a").await.state.status, Status::Processed);
}

#[tokio::test]
async fn an_event_that_nobody_comes_for_is_looked_at_a_few_times_and_then_has_no_owner() {
    let stand = Stand::start(environment()).await;
    stand.admit(&["a"]).await;
    let (mut parked, mut permanent) = (0, 0);
    for _ in 0..74 {
        stand.time.pass(secs(3_600));
        let report = stand.run().await;
        parked += report.parked;
        permanent += report.permanent;
    }
    let state = stand.row("a").await.state;
    assert_eq!((state.status, state.reason), (Status::Processed, Some(Reason::NoOwner)));
    assert_eq!(permanent, 0, "no alarm");
    assert!((2..=6).contains(&parked), "{parked}");
    assert_eq!(stand.inboxes.sends(), 0);
}

#[tokio::test]
async fn a_parked_event_whose_owner_came_unnoticed_is_delivered_when_it_is_due() {
    let stand = Stand::start(environment()).await;
    stand.admit(&["a"]).await;
    stand.let_lapse();
    assert_eq!(stand.run().await.parked, 1);
    // The session opens, and whoever opened it dies before it wakes anything.
    let (ledger, session) = (stand.engine.ledger(), session("s1", None, Some(12)));
    drop(ledger.open_session(&session, stand.time.now()).await.unwrap());
    stand.time.pass(secs(1_000));
    assert_eq!(stand.run().await.sent, 1);
    assert_eq!(stand.delivered(), ["a"]);
}

/// A reaper whose calls to the ledger go by `faults`.
fn faulty(stand: &Stand, faults: &Faults) -> Reaper<DynamoLedger, RecordingInboxes, ManualTime> {
    let client = aws_sdk_dynamodb::Client::from_conf(stand.engine.table.config().http_client(faults.clone()).build());
    reaper(ledger_on(client), stand.inboxes.clone(), stand.time.clone(), routed())
}

#[tokio::test]
async fn a_shard_that_cannot_be_read_holds_up_no_other_and_is_told() {
    let stand = Stand::start(routed()).await;
    let names: Vec<String> = (0..24).map(|number| format!("e{number}")).collect();
    stand.admit(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    stand.let_lapse();
    let denied = Fault::refused("AccessDeniedException");
    let report = faulty(&stand, &Faults::on_the_way().at(3, denied))
        .run(NO_DEADLINE)
        .await;
    assert_eq!((report.troubled, report.backlog_is_whole), (1, false));
    assert!((12..24).contains(&report.redriven), "{report:?}");
    let rest = stand.run().await;
    assert_eq!(rest.redriven + report.redriven, 24);
    assert_eq!(stand.inboxes.sends(), 24);
}

#[tokio::test]
async fn a_claim_that_the_ledger_does_not_answer_counts_nothing_against_its_event() {
    let stand = Stand::start(routed()).await;
    stand.admit(&["a"]).await;
    stand.let_lapse();
    let before = stand.item("a").await;
    // Behind the eight pages of the index.
    for code in ["AccessDeniedException", "ResourceNotFoundException"] {
        let faults = Faults::on_the_way().at(8, Fault::refused(code));
        let report = faulty(&stand, &faults).run(NO_DEADLINE).await;
        assert_eq!(
            (report.troubled, report.poison, report.backlog),
            (1, 0, 1),
            "{report:?}"
        );
        assert_eq!(stand.item("a").await, before);
    }
    assert_eq!(stand.run().await.sent, 1);
}

#[tokio::test]
async fn a_run_without_a_ledger_ends_and_says_that_it_saw_nothing() {
    let stand = Stand::start(routed()).await;
    let client = stand.engine.table.config().endpoint_url("http://127.0.0.1:1");
    let client = aws_sdk_dynamodb::Client::from_conf(client.http_client(Faults::alone()).build());
    let reaper = reaper(ledger_on(client), stand.inboxes.clone(), stand.time.clone(), routed());
    let report = reaper.run(NO_DEADLINE).await;
    assert_eq!(
        (report.troubled, report.redriven, report.backlog_is_whole),
        (8, 0, false)
    );
}

#[tokio::test]
async fn a_run_reads_the_same_however_many_settled_events_there_are() {
    let (few, many) = (reads_beside(100).await, reads_beside(10_000).await);
    assert_eq!(few, many);
    let [working, idle] = few;
    assert_eq!((working.redriven, idle.redriven), (3, 0));
    assert_eq!(idle.calls, 8, "an idle run reads one page of each shard");
}

#[tokio::test]
async fn ten_thousand_due_events_drain_in_a_bounded_number_of_runs() {
    let time = ManualTime::at(at(0));
    let environment = with(&[("ROUTES", "acme/app=reviewer"), ("REAP_EVENTS_MAX", "4000")]);
    let inboxes = RecordingInboxes::default();
    let reaper = reaper(MemoryLedger::new(), inboxes.clone(), time.clone(), environment);
    for number in 0..10_000 {
        drop(admit_event(reaper.ledger(), &format!("e{number}"), 1).await);
    }
    time.pass(secs(60));
    let mut reports = Vec::new();
    for _ in 0..3 {
        reports.push(reaper.run(NO_DEADLINE).await);
    }
    let numbers: Vec<_> = reports.iter().map(|report| (report.redriven, report.backlog)).collect();
    assert_eq!(numbers, [(4_000, 6_000), (4_000, 2_000), (2_000, 0)]);
    assert_eq!(inboxes.sends(), 10_000);
    assert!(reports.iter().all(|report| report.backlog_is_whole));
}

#[tokio::test]
async fn the_answer_is_one_object_of_numbers() {
    let stand = Stand::start(routed()).await;
    stand.admit(&["a"]).await;
    stand.let_lapse();
    let answer = serde_json::to_value(stand.run().await).unwrap();
    let expected = serde_json::json!({
        "redriven": 1, "sent": 1, "parked": 0, "pending": 0, "permanent": 0, "poison": 0, "newer": 0, "left_alone": 0,
        "troubled": 0, "backlog": 0, "backlog_is_whole": true, "oldest_due_seconds": 1,
    });
    assert_eq!(answer, expected);
}
