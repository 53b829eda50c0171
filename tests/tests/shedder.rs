//! The shedder at work: fifty environments on one clock, a queue that hangs, and events that wait for a shed inbox.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of tests fails as a test does"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use forebay_aws::config::ReaperConfig;
use forebay_aws::dynamodb::DynamoTargets;
use forebay_aws::metrics::Metrics;
use forebay_aws::shedder::Watched;
use forebay_aws::sqs::SqsInboxes;
use forebay_core::event::EventId;
use forebay_core::ledger::{EventRow, Nonce, Reason, Sent, Status};
use forebay_core::ports::{ErrorClass, Inboxes, Ledger, LedgerError, Outgoing, TimeAndChance};
use forebay_core::shed::memory::MemoryTargets;
use forebay_core::shed::{
    Counts, Health, Moved, Observation, ReadTarget, ShedderConfig, Shedding, SlotNumber, Slots, TargetState,
    TargetStore, Window,
};
use forebay_core::target::TargetKey;
use forebay_tests::engine::{Embedded, Engine};
use forebay_tests::fakes::{ManualTime, RecordingInboxes, Written};
use forebay_tests::fault::{Fault, Faults};
use forebay_tests::reaper::NO_DEADLINE;
use forebay_tests::samples::*;
use forebay_tests::table::{TABLE, sqs_config};
use forebay_tests::webhook::environment;
use jiff::{SignedDuration, Timestamp};
use reaper::Reaper;
use serde_json::json;
use tokio::task::JoinSet;

const INBOX: &str = "builder";
const ENVIRONMENTS: usize = 50;

fn target() -> TargetKey {
    TargetKey::labeled_principal("sqs", INBOX, "acme")
}

fn targets() -> BTreeMap<String, TargetKey> {
    BTreeMap::from([(INBOX.to_owned(), target())])
}

fn message() -> Outgoing {
    Outgoing {
        inbox: INBOX.to_owned(),
        group: "g".to_owned(),
        deduplication: "d".to_owned(),
        body: "{}".to_owned(),
        reference: "{}".to_owned(),
    }
}

fn ms(ms: i64) -> SignedDuration {
    SignedDuration::from_millis(ms)
}

/// A queue that fails as often as it is told, and knows everything that was seen of it.
#[derive(Clone, Debug)]
struct Flaky {
    time: ManualTime,
    /// Errors in a thousand calls.
    error_per_mille: Arc<AtomicU64>,
    calls: Arc<Mutex<Vec<Timestamp>>>,
    truth: Arc<Mutex<Slots>>,
    dice: Arc<AtomicU64>,
}

impl Flaky {
    fn new(time: &ManualTime) -> Self {
        Self {
            time: time.clone(),
            error_per_mille: Arc::default(),
            calls: Arc::default(),
            truth: Arc::default(),
            dice: Arc::new(AtomicU64::new(1)),
        }
    }

    fn fail(&self, error_per_mille: u64) {
        self.error_per_mille.store(error_per_mille, Ordering::SeqCst);
    }

    /// Whether the window is bad, by all that was ever seen.
    fn is_bad(&self, config: &ShedderConfig) -> bool {
        Window::at(self.time.now(), config)
            .over(&self.truth.lock().unwrap())
            .is_bad(config)
    }

    fn calls_after(&self, at: Timestamp) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| **call > at).count()
    }
}

impl Inboxes for Flaky {
    async fn send(&self, messages: Vec<Outgoing>) -> Vec<Sent> {
        let now = self.time.now();
        self.calls.lock().unwrap().push(now);
        let rolled = roll(&self.dice) % 1_000;
        let failed = rolled < self.error_per_mille.load(Ordering::SeqCst);
        let (sent, seen) = if failed {
            (Sent::Unreachable, Observation::Error)
        } else {
            (Sent::Yes, Observation::Success(ms(40)))
        };
        self.truth.lock().unwrap().add(now, seen);
        vec![sent; messages.len()]
    }
}

/// The next of a fixed sequence of numbers that look random.
fn roll(dice: &AtomicU64) -> u64 {
    let number = dice.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Targets in memory that count what is written, by row and second, and fail where they are told to.
#[derive(Clone, Debug)]
struct Counting {
    targets: MemoryTargets,
    time: ManualTime,
    writes: Arc<Mutex<BTreeMap<(i64, String), usize>>>,
    fails: Arc<Mutex<bool>>,
}

impl Counting {
    fn new(time: &ManualTime) -> Self {
        Self {
            targets: MemoryTargets::new(),
            time: time.clone(),
            writes: Arc::default(),
            fails: Arc::default(),
        }
    }

    fn write(&self, row: String) -> Result<(), LedgerError> {
        self.answer()?;
        let second = self.time.now().as_second();
        *self.writes.lock().unwrap().entry((second, row)).or_default() += 1;
        Ok(())
    }

    fn answer(&self) -> Result<(), LedgerError> {
        if *self.fails.lock().unwrap() {
            return Err(LedgerError {
                attempted: "read target",
                on: target().to_string(),
                class: ErrorClass::Throttled,
                source: None,
            });
        }
        Ok(())
    }

    async fn state(&self) -> TargetState {
        let from = SlotNumber::of(self.time.now());
        self.targets.read(&target(), from).await.unwrap().state
    }
}

impl TargetStore for Counting {
    async fn read(&self, target: &TargetKey, from: SlotNumber) -> Result<ReadTarget, LedgerError> {
        self.answer()?;
        self.targets.read(target, from).await
    }

    async fn add(&self, target: &TargetKey, slot: SlotNumber, shard: u64, counts: &Counts) -> Result<(), LedgerError> {
        self.write(format!("{}#{shard}", slot.number()))?;
        self.targets.add(target, slot, shard, counts).await
    }

    async fn change(&self, target: &TargetKey, from: &TargetState, to: &TargetState) -> Result<Moved, LedgerError> {
        self.write("state".to_owned())?;
        self.targets.change(target, from, to).await
    }
}

/// Fifty environments that share a clock, a queue and a store. One of them sends each millisecond: 1,000 observations a
/// second.
struct Fleet {
    environments: Vec<Shedding<Flaky, Counting, ManualTime>>,
    flaky: Flaky,
    store: Counting,
    time: ManualTime,
    dice: AtomicU64,
    config: ShedderConfig,
}

impl Fleet {
    fn new(seed: u64) -> Self {
        let time = ManualTime::at(at(0));
        let (flaky, store) = (Flaky::new(&time), Counting::new(&time));
        let config = ShedderConfig::default();
        let environment = |_| Shedding::new(flaky.clone(), store.clone(), time.clone(), config, targets());
        Self {
            environments: (0..ENVIRONMENTS).map(environment).collect(),
            flaky,
            store,
            time,
            dice: AtomicU64::new(seed),
            config,
        }
    }

    /// One millisecond: some environment sends, as a webhook does, prepared beside its admission.
    async fn step(&self) -> (usize, Sent) {
        self.time.pass(ms(1));
        let environment = usize::try_from(roll(&self.dice) % 50).unwrap();
        let inboxes = BTreeSet::from([INBOX.to_owned()]);
        self.environments[environment].prepare(&inboxes).await;
        let sent = self.environments[environment].send(vec![message()]).await;
        (environment, sent[0])
    }

    async fn run(&self, span: SignedDuration) {
        let end = self.time.now() + span;
        while self.time.now() < end {
            self.step().await;
        }
    }

    /// Runs until `done`, at most two minutes.
    async fn run_until(&self, health: Health) -> Timestamp {
        for _ in 0..120_000 {
            self.step().await;
            let state = self.store.state().await;
            if state.health == health {
                return state.since;
            }
        }
        panic!("not {health} within two minutes");
    }
}

#[tokio::test]
async fn every_environment_sheds_a_target_within_five_seconds_after_its_rate_passed_the_threshold() {
    // S1-05
    for (seed, error_per_mille) in [(1, 270), (2, 300), (3, 500), (4, 1_000)] {
        let fleet = Fleet::new(seed);
        fleet.run(secs(35)).await;
        fleet.flaky.fail(error_per_mille);
        let mut passed_at = None;
        let mut shed: BTreeMap<usize, SignedDuration> = BTreeMap::new();
        for _ in 0..60_000 {
            if passed_at.is_none() && fleet.flaky.is_bad(&fleet.config) {
                passed_at = Some(fleet.time.now());
            }
            let (environment, sent) = fleet.step().await;
            if sent == Sent::Shed {
                let passed_at = passed_at.unwrap_or_else(|| fleet.time.now());
                shed.entry(environment)
                    .or_insert_with(|| fleet.time.now().duration_since(passed_at));
            }
            if shed.len() == ENVIRONMENTS {
                break;
            }
        }
        assert_eq!(shed.len(), ENVIRONMENTS, "{error_per_mille} ‰");
        let last = shed.values().max().unwrap();
        println!("{error_per_mille} ‰: the last environment shed after {last:?}");
        assert!(*last <= secs(5), "{error_per_mille} ‰: {last:?}");
        // None calls it any more once what it knew is too old.
        let state = fleet.store.state().await;
        let known_until = state.since + fleet.config.cache;
        fleet.run(secs(10)).await;
        assert_eq!((state.health, fleet.flaky.calls_after(known_until)), (Health::Shed, 0));
    }
}

#[tokio::test]
async fn a_hot_target_costs_at_most_twelve_writes_a_second_whatever_share_of_its_calls_fails() {
    for (seed, error_per_mille) in [(1, 0), (2, 4), (3, 20), (4, 180)] {
        let fleet = Fleet::new(seed);
        fleet.run(secs(35)).await;
        fleet.store.writes.lock().unwrap().clear();
        fleet.flaky.fail(error_per_mille);
        fleet.run(secs(40)).await;
        let writes = fleet.store.writes.lock().unwrap();
        let total: usize = writes.values().sum();
        let hottest = writes.values().max().unwrap();
        println!("{error_per_mille} ‰: {total} writes in 40 s, at most {hottest} a second of one row");
        assert!(total <= 12 * 40, "{error_per_mille} ‰: {total} writes in 40 s");
        assert!(*hottest <= 100, "{error_per_mille} ‰: {hottest}");
        assert_eq!(fleet.flaky.calls_after(at(0)), 75_000, "none was shed");
    }
}

#[tokio::test]
async fn a_target_that_recovers_is_probed_once_and_reopens_slowly_and_one_that_relapses_is_shed_again() {
    // S1-05, S1-06, BRKR-05
    let fleet = Fleet::new(7);
    fleet.run(secs(5)).await;
    fleet.flaky.fail(1_000);
    let shed_at = fleet.run_until(Health::Shed).await;
    fleet.run(secs(20)).await;
    fleet.flaky.fail(0);
    let quiet_from = shed_at + fleet.config.cache;
    let probation_at = fleet.run_until(Health::Probation).await;
    assert_eq!(
        fleet.flaky.calls_after(quiet_from),
        1,
        "one probe, of fifty environments"
    );
    let waited = probation_at.duration_since(shed_at);
    assert!(waited >= secs(30) && waited <= secs(42), "{waited:?}");
    // A tenth at first, about half in the middle.
    let before = fleet.flaky.calls_after(probation_at);
    fleet.run(secs(3)).await;
    let first = fleet.flaky.calls_after(probation_at) - before;
    assert!((150..700).contains(&first), "{first} of 3,000");
    // A relapse, and it begins anew.
    fleet.flaky.fail(1_000);
    let shed_again_at = fleet.run_until(Health::Shed).await;
    let errors = fleet.flaky.calls_after(probation_at) - before - first;
    assert!(errors <= 3, "the first error sheds at once: {errors}");
    fleet.flaky.fail(0);
    let probation_at = fleet.run_until(Health::Probation).await;
    assert!(probation_at.duration_since(shed_again_at) >= secs(30));
    let healthy_at = fleet.run_until(Health::Healthy).await;
    assert!(healthy_at.duration_since(probation_at) >= secs(30));
    let before = fleet.flaky.calls_after(healthy_at);
    fleet.run(secs(5)).await;
    let after = fleet.flaky.calls_after(healthy_at) - before;
    assert!(after >= 4_900, "all of it again, as soon as each has heard: {after}");
}

#[tokio::test]
async fn throttled_and_forbidden_calls_never_move_a_target() {
    // BRKR-03
    let time = ManualTime::at(at(0));
    let (inboxes, store) = (RecordingInboxes::default(), Counting::new(&time));
    let shedding = Shedding::new(
        inboxes.clone(),
        store.clone(),
        time.clone(),
        ShedderConfig::default(),
        targets(),
    );
    for outcome in [Sent::Throttled, Sent::Denied, Sent::Rejected] {
        inboxes.set_outcome(INBOX, outcome);
        for _ in 0..200 {
            time.pass(ms(500));
            assert_eq!(shedding.send(vec![message()]).await, [outcome]);
        }
    }
    assert_eq!(store.state().await, TargetState::default());
    assert!(store.writes.lock().unwrap().is_empty(), "not even counted");
}

#[tokio::test]
async fn a_store_that_fails_lets_everything_through_and_shows_in_the_metrics() {
    let time = ManualTime::at(at(0));
    let (inboxes, store, lines) = (RecordingInboxes::default(), Counting::new(&time), Written::default());
    let config = ShedderConfig::default();
    let shedding = Shedding::new(inboxes.clone(), store.clone(), time.clone(), config, targets());
    let metrics = Metrics::to("Forebay", Box::new(lines.clone()));
    let watched = Watched::new(shedding, time.clone(), metrics);
    assert_eq!(watched.send(vec![message()]).await, [Sent::Yes]);
    assert!(lines.lines().is_empty(), "nothing to tell");
    *store.fails.lock().unwrap() = true;
    inboxes.set_outcome(INBOX, Sent::Unreachable);
    for _ in 0..40 {
        time.pass(secs(1));
        assert_eq!(watched.send(vec![message()]).await, [Sent::Unreachable]);
    }
    let sum = |name: &str| -> u64 { lines.lines().iter().filter_map(|line| line[name].as_u64()).sum() };
    assert!(sum("ShedderUnavailable") >= 20);
    assert_eq!((sum("Shed"), sum("TargetsShed")), (0, 0));
    // It comes back, and so does the shedder.
    *store.fails.lock().unwrap() = false;
    for _ in 0..15 {
        time.pass(secs(1));
        watched.send(vec![message()]).await;
    }
    assert!(sum("Shed") > 0);
    assert_eq!((sum("TargetsShed"), sum("TargetsReopened")), (1, 0));
    let line = lines.lines().pop().unwrap();
    assert_eq!(line["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([[]]));
}

// --- fifty at once ----------------------------------------------------------------------------------------------------------

/// A target that was shed so long ago that it is to be probed.
async fn shed_long_ago(store: &impl TargetStore, now: Timestamp) {
    let fresh = TargetState::default();
    let shed = fresh.next(
        Health::Shed,
        Nonce::from_random(1),
        now - secs(31),
        &ShedderConfig::default(),
    );
    assert_eq!(store.change(&target(), &fresh, &shed).await.unwrap(), Moved::Done);
}

/// Inboxes whose sends end only when all others have been answered.
#[derive(Clone, Debug, Default)]
struct Slow {
    calls: Arc<AtomicUsize>,
    answered: Arc<AtomicUsize>,
}

impl Inboxes for Slow {
    async fn send(&self, messages: Vec<Outgoing>) -> Vec<Sent> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let done = || self.answered.load(Ordering::SeqCst) + self.calls.load(Ordering::SeqCst);
        while done() < ENVIRONMENTS {
            tokio::task::yield_now().await;
        }
        vec![Sent::Yes; messages.len()]
    }
}

async fn fifty_probe_at_once<S: TargetStore + Clone + 'static>(store: S) {
    let time = ManualTime::at(at(0));
    let slow = Slow::default();
    shed_long_ago(&store, time.now()).await;
    let mut sends = JoinSet::new();
    for _ in 0..ENVIRONMENTS {
        let config = ShedderConfig::default();
        let shedding = Shedding::new(slow.clone(), store.clone(), time.clone(), config, targets());
        let answered = Arc::clone(&slow.answered);
        sends.spawn(async move {
            let outcomes = shedding.send(vec![message()]).await;
            answered.fetch_add(1, Ordering::SeqCst);
            outcomes
        });
    }
    let outcomes = sends.join_all().await.concat();
    let count = |wanted: Sent| outcomes.iter().filter(|sent| **sent == wanted).count();
    assert_eq!((count(Sent::Yes), count(Sent::Shed)), (1, ENVIRONMENTS - 1));
    assert_eq!(slow.calls.load(Ordering::SeqCst), 1);
    let state = store.read(&target(), SlotNumber::of(at(0))).await.unwrap().state;
    assert_eq!((state.health, state.token.number()), (Health::Probation, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_environments_at_once_one_probes_in_memory() {
    fifty_probe_at_once(MemoryTargets::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_environments_at_once_one_probes_on_dynamodb() {
    let engine = Embedded::start().await;
    // A crowded test machine is no trouble of the store, which would let all of them through.
    fifty_probe_at_once(DynamoTargets::new(engine.client().clone(), TABLE).patient()).await;
}

// --- a queue that hangs -----------------------------------------------------------------------------------------------------

fn sqs(faults: &Faults) -> SqsInboxes {
    let config = sqs_config("http://127.0.0.1:1").http_client(faults.clone()).build();
    let url = format!("http://127.0.0.1:1/000000000000/{INBOX}.fifo");
    SqsInboxes::new(
        aws_sdk_sqs::Client::from_conf(config),
        BTreeMap::from([(INBOX.to_owned(), url)]),
    )
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_hangs_ends_by_its_own_deadline_and_the_target_is_shed_anew() {
    // BRKR-08
    let (time, store) = (ManualTime::at(at(0)), MemoryTargets::new());
    shed_long_ago(&store, time.now()).await;
    let faults = Faults::alone().always(Fault::Silence);
    let config = ShedderConfig::default();
    let shedding = Shedding::new(sqs(&faults), store.clone(), time.clone(), config, targets());
    let started = tokio::time::Instant::now();
    assert_eq!(shedding.send(vec![message()]).await, [Sent::Unreachable]);
    let send_time_max = std::time::Duration::try_from(forebay_core::drive::SEND_TIME_MAX).unwrap();
    assert!(started.elapsed() < send_time_max, "{:?}", started.elapsed());
    let state = store.read(&target(), SlotNumber::of(at(0))).await.unwrap().state;
    assert_eq!((state.health, state.token.number()), (Health::Shed, 3));
    let calls = faults.calls().len();
    assert_eq!(shedding.send(vec![message()]).await, [Sent::Shed]);
    assert_eq!(faults.calls().len(), calls);
}

// --- events that wait -------------------------------------------------------------------------------------------------------

type Sheltered = Shedding<RecordingInboxes, MemoryTargets, ManualTime>;

async fn rows(engine: &Embedded, names: &[String]) -> Vec<EventRow> {
    let mut rows = Vec::new();
    for name in names {
        rows.push(engine.ledger().event(&EventId::new(name)).await.unwrap().unwrap());
    }
    rows
}

#[tokio::test]
async fn events_for_an_inbox_that_is_shed_for_twenty_minutes_stay_due_and_are_delivered_after() {
    // BRKR-02, the ledger's half: nothing is burnt while a destination is sick.
    let engine = Embedded::start().await;
    let (inboxes, targets, time) = (RecordingInboxes::default(), MemoryTargets::new(), ManualTime::at(at(0)));
    let mut environment = environment();
    environment.insert("ROUTES".to_owned(), "acme/app=reviewer".to_owned());
    let config = ReaperConfig::read(environment).unwrap();
    let keys = forebay_aws::shedder::targets(&config.inboxes);
    let shedding: Sheltered = Shedding::new(inboxes.clone(), targets, time.clone(), config.shedder, keys);
    let metrics = Metrics::to("Forebay", Box::new(std::io::sink()));
    let ledger = (*engine.ledger()).clone();
    let reaper = Reaper::new(&config, ledger, shedding, time.clone(), metrics);

    let names: Vec<String> = (0..20).map(|number| format!("e{number:02}")).collect();
    for name in &names {
        drop(admit_event(&*engine.ledger(), name, 1).await);
    }
    inboxes.set_outcome("reviewer", Sent::Unreachable);
    time.pass(LEASE + SKEW + secs(1));
    for _ in 0..20 {
        let report = reaper.run(NO_DEADLINE).await;
        assert_eq!((report.permanent, report.poison), (0, 0));
        time.pass(secs(60));
    }
    let waiting = rows(&engine, &names).await;
    // Each webhook's own lapse is the one failure there is.
    assert!(
        waiting
            .iter()
            .all(|row| (row.state.status, row.state.failures) == (Status::FailedRetryable, 1))
    );
    assert!(waiting.iter().all(|row| row.state.reason == Some(Reason::Unreachable)));
    let shed = waiting
        .iter()
        .filter(|row| row.state.destinations["reviewer"] == Sent::Shed)
        .count();
    assert!(shed > 10, "{shed} of 20 were not even tried at the last");
    let tried = inboxes.sends();
    assert!(
        tried < 60,
        "{tried} calls in twenty minutes, of 20 events that were due again and again"
    );

    inboxes.set_outcome("reviewer", Sent::Yes);
    for _ in 0..12 {
        time.pass(secs(600));
        assert_eq!(reaper.run(NO_DEADLINE).await.permanent, 0);
    }
    let ended = rows(&engine, &names).await;
    assert!(
        ended.iter().all(|row| row.state.status == Status::Processed),
        "{ended:?}"
    );
    assert_eq!(inboxes.messages("reviewer").len(), 20, "each once");
}
