//! The contract of the shedder's store: every promise of the port, held in memory and on DynamoDB's semantics.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::sync::Arc;

use forebay_aws::dynamodb::DynamoTargets;
use forebay_core::ledger::Nonce;
use forebay_core::ports::ErrorClass;
use forebay_core::shed::memory::MemoryTargets;
use forebay_core::shed::{
    Counts, Health, LATENCY_BOUNDS_MS, Moved, Observation, ReadTarget, SLOT_SHARDS, ShedderConfig, SlotNumber,
    TargetState, TargetStore,
};
use forebay_core::target::TargetKey;
use forebay_tests::engine::{Embedded, Engine, Item, number, text};
use forebay_tests::fault::{Fault, Faults};
use forebay_tests::samples::at;
use forebay_tests::table::{TABLE, config};
use jiff::SignedDuration;
use tokio::task::JoinSet;

/// A store with what has to live as long.
struct Store<S> {
    targets: Arc<S>,
    engine: Option<Embedded>,
}

fn in_memory() -> Store<MemoryTargets> {
    Store {
        targets: Arc::default(),
        engine: None,
    }
}

async fn on_dynamodb() -> Store<DynamoTargets> {
    let engine = Embedded::start().await;
    Store {
        targets: Arc::new(DynamoTargets::new(engine.client().clone(), TABLE).patient()),
        engine: Some(engine),
    }
}

forebay_tests::promised_on_both!(
    super::in_memory(),
    super::on_dynamodb().await;
    an_unknown_target_is_healthy_and_has_no_counts,
    counts_add_up_over_environments_and_shards,
    a_read_begins_with_the_slot_that_it_asks_for,
    every_bucket_comes_back_as_it_was,
    targets_are_kept_apart,
    a_state_changes_only_from_the_one_that_was_seen,
    a_change_recognises_itself_behind_a_lost_answer,
    every_state_comes_back_as_it_was,
    of_fifty_that_would_probe_at_once_one_may,
    a_state_and_its_counts_are_read_together,
);

fn target() -> TargetKey {
    TargetKey::queue("https://sqs.us-east-1.amazonaws.com/000000000000/builder.fifo")
}

fn slot(later: i64) -> SlotNumber {
    SlotNumber::from_number(SlotNumber::of(at(0)).number() + later)
}

fn errors(errors: u64) -> Counts {
    Counts {
        errors,
        ..Counts::default()
    }
}

fn next(from: &TargetState, health: Health, nonce: u64) -> TargetState {
    from.next(health, Nonce::from_random(nonce), at(0), &ShedderConfig::default())
}

impl<S: TargetStore> Store<S> {
    async fn read(&self) -> ReadTarget {
        self.targets.read(&target(), slot(-6)).await.unwrap()
    }

    async fn add(&self, slot: SlotNumber, shard: u64, counts: &Counts) {
        self.targets.add(&target(), slot, shard, counts).await.unwrap();
    }

    async fn change(&self, from: &TargetState, to: &TargetState) -> Moved {
        self.targets.change(&target(), from, to).await.unwrap()
    }
}

async fn an_unknown_target_is_healthy_and_has_no_counts(store: Store<impl TargetStore>) {
    assert_eq!(store.read().await, ReadTarget::default());
}

async fn counts_add_up_over_environments_and_shards(store: Store<impl TargetStore + 'static>) {
    // DDBL-05: the counters of one slot are several items, so that a busy target has no hot one.
    let mut adds = JoinSet::new();
    for environment in 0..20 {
        let targets = Arc::clone(&store.targets);
        adds.spawn(async move {
            let mut counts = errors(2);
            counts.add(Observation::Success(SignedDuration::from_millis(70)));
            targets
                .add(&target(), slot(0), environment % SLOT_SHARDS, &counts)
                .await
                .unwrap();
        });
    }
    adds.join_all().await;
    let read = store.read().await;
    assert_eq!(read.slots.0.len(), 1);
    assert_eq!((read.slots.total().errors, read.slots.total().successes()), (40, 20));
    if let Some(engine) = &store.engine {
        let errors: Vec<_> = engine.rows().await.iter().map(|row| number(row, "errors")).collect();
        assert_eq!(errors, [Some(10); 4], "a shard has its own share");
    }
}

async fn a_read_begins_with_the_slot_that_it_asks_for(store: Store<impl TargetStore>) {
    for later in [-7, -6, -5, 0, 1] {
        store.add(slot(later), 0, &errors(1)).await;
        store.add(slot(later), 3, &errors(1)).await;
    }
    let read = store.read().await;
    let slots: Vec<_> = read.slots.0.keys().copied().collect();
    assert_eq!(slots, [-6, -5, 0, 1].map(slot));
    assert!(read.slots.0.values().all(|counts| counts.errors == 2));
}

async fn every_bucket_comes_back_as_it_was(store: Store<impl TargetStore>) {
    let mut counts = errors(1);
    for (number, bound) in (1..).zip(LATENCY_BOUNDS_MS.into_iter().chain([30_001])) {
        for _ in 0..number {
            counts.add(Observation::Success(SignedDuration::from_millis(i64::from(bound))));
        }
    }
    store.add(slot(0), 0, &counts).await;
    assert_eq!(store.read().await.slots.0[&slot(0)], counts);
}

async fn targets_are_kept_apart(store: Store<impl TargetStore>) {
    // S1-03
    let other = TargetKey::queue("https://sqs.us-east-1.amazonaws.com/000000000000/reviewer.fifo");
    store.add(slot(0), 0, &errors(1)).await;
    store
        .change(&TargetState::default(), &next(&TargetState::default(), Health::Shed, 1))
        .await;
    assert_eq!(
        store.targets.read(&other, slot(-6)).await.unwrap(),
        ReadTarget::default()
    );
}

async fn a_state_changes_only_from_the_one_that_was_seen(store: Store<impl TargetStore>) {
    // Invariants 4 and 11, for targets: token and nonce decide, and no clock.
    let fresh = TargetState::default();
    let shed = next(&fresh, Health::Shed, 1);
    assert_eq!(store.change(&fresh, &shed).await, Moved::Done);
    // Another one saw it healthy too.
    assert_eq!(
        store.change(&fresh, &next(&fresh, Health::Shed, 2)).await,
        Moved::Lost(shed)
    );
    let probing = next(&shed, Health::Probing, 3);
    assert_eq!(store.change(&shed, &probing).await, Moved::Done);
    assert_eq!(
        store.change(&shed, &next(&shed, Health::Probing, 4)).await,
        Moved::Lost(probing)
    );
    // The right token, of another life.
    let other_life = TargetState {
        nonce: Nonce::from_random(9),
        ..probing
    };
    let stolen = next(&other_life, Health::Probation, 5);
    assert_eq!(store.change(&other_life, &stolen).await, Moved::Lost(probing));
    assert_eq!(store.read().await.state, probing);
}

async fn a_change_recognises_itself_behind_a_lost_answer(store: Store<impl TargetStore>) {
    // DDBC-01
    let fresh = TargetState::default();
    let shed = next(&fresh, Health::Shed, 1);
    assert_eq!(store.change(&fresh, &shed).await, Moved::Done);
    assert_eq!(store.change(&fresh, &shed).await, Moved::Done);
    let probing = next(&shed, Health::Probing, 2);
    assert_eq!(store.change(&shed, &probing).await, Moved::Done);
    assert_eq!(store.change(&shed, &probing).await, Moved::Done);
    assert_eq!(store.read().await.state, probing);
}

async fn every_state_comes_back_as_it_was(store: Store<impl TargetStore>) {
    let mut state = TargetState::default();
    for (nonce, health) in (u64::MAX - 10..).zip([Health::Shed, Health::Probing, Health::Probation, Health::Healthy]) {
        let to = next(&state, health, nonce);
        assert_eq!(store.change(&state, &to).await, Moved::Done);
        assert_eq!(store.read().await.state, to, "{health}");
        state = to;
    }
}

async fn of_fifty_that_would_probe_at_once_one_may(store: Store<impl TargetStore + 'static>) {
    let shed = next(&TargetState::default(), Health::Shed, 1);
    store.change(&TargetState::default(), &shed).await;
    let mut tries = JoinSet::new();
    for nonce in 100..150 {
        let targets = Arc::clone(&store.targets);
        tries.spawn(async move {
            targets
                .change(&target(), &shed, &next(&shed, Health::Probing, nonce))
                .await
                .unwrap()
        });
    }
    let moved = tries.join_all().await;
    let winners = moved.iter().filter(|moved| **moved == Moved::Done).count();
    assert_eq!(winners, 1);
    let probing = store.read().await.state;
    let losers = moved.iter().filter(|moved| **moved == Moved::Lost(probing)).count();
    assert_eq!(losers, 49, "each loser learns who probes without a read");
}

async fn a_state_and_its_counts_are_read_together(store: Store<impl TargetStore>) {
    let shed = next(&TargetState::default(), Health::Shed, 1);
    store.change(&TargetState::default(), &shed).await;
    for later in -6..=1 {
        for shard in 0..SLOT_SHARDS {
            store.add(slot(later), shard, &errors(1)).await;
        }
    }
    let read = store.read().await;
    assert_eq!((read.state, read.slots.total().errors), (shed, 32));
    if let Some(engine) = &store.engine {
        // The most that one judgement reads by default: below two read units.
        let rows = engine.rows().await;
        assert_eq!(rows.len(), 33);
    }
}

// --- rows -----------------------------------------------------------------------------------------------------------------

async fn rows_of(store: &Store<DynamoTargets>) -> Vec<Item> {
    store.engine.as_ref().unwrap().rows().await
}

#[tokio::test]
async fn rows_of_a_target_have_a_format_and_a_time_to_live_and_are_in_no_index() {
    // DDBL-08
    let store = on_dynamodb().await;
    store.add(slot(0), 2, &errors(1)).await;
    let shed = next(&TargetState::default(), Health::Shed, 1);
    store.change(&TargetState::default(), &shed).await;
    let rows = rows_of(&store).await;
    let keys: Vec<_> = rows.iter().map(|row| text(row, "sk").unwrap()).collect();
    let slot_sk = format!("slot#{:010}#2", slot(0).number());
    assert_eq!(keys, [slot_sk.as_str(), "state"]);
    let pk = format!("target#{}", target());
    assert!(
        rows.iter()
            .all(|row| text(row, "pk") == Some(&pk) && number(row, "v") == Some(1))
    );
    let hour = slot(0).ends_at() + SignedDuration::from_hours(1);
    let day = at(0) + SignedDuration::from_hours(24);
    assert_eq!(number(&rows[0], "expires_at"), Some(hour.as_second()));
    assert_eq!(number(&rows[1], "expires_at"), Some(day.as_second()));
    for index in ["due_shard", "waiting_for", "recent_shard"] {
        assert!(rows.iter().all(|row| !row.contains_key(index)), "{index}");
    }
}

#[tokio::test]
async fn a_slot_that_cannot_be_read_spoils_itself_alone_and_a_newer_state_is_not_judged() {
    // Invariant 10
    let store = on_dynamodb().await;
    store.add(slot(0), 0, &errors(3)).await;
    let engine = store.engine.as_ref().unwrap();
    let mut broken = rows_of(&store).await.remove(0);
    broken.insert(
        "sk".to_owned(),
        aws_sdk_dynamodb::types::AttributeValue::S(format!("slot#{:010}#x#", slot(0).number())),
    );
    broken.insert(
        "v".to_owned(),
        aws_sdk_dynamodb::types::AttributeValue::N("2".to_owned()),
    );
    engine.put(broken.clone()).await;
    assert_eq!(store.read().await.slots.total().errors, 3);
    broken.insert(
        "sk".to_owned(),
        aws_sdk_dynamodb::types::AttributeValue::S("state".to_owned()),
    );
    engine.put(broken).await;
    let refused = store.targets.read(&target(), slot(-6)).await.unwrap_err();
    assert_eq!(refused.class, ErrorClass::Unreadable);
    let fresh = TargetState::default();
    let change = store
        .targets
        .change(&target(), &fresh, &next(&fresh, Health::Shed, 1))
        .await;
    assert!(change.is_err(), "and it is left alone");
}

// --- faults ---------------------------------------------------------------------------------------------------------------

fn behind(faults: &Faults) -> DynamoTargets {
    let config = config("http://127.0.0.1:1").http_client(faults.clone()).build();
    DynamoTargets::new(aws_sdk_dynamodb::Client::from_conf(config), TABLE)
}

#[tokio::test(start_paused = true)]
async fn no_call_of_the_store_waits_longer_than_its_time() {
    // Invariant 9
    let targets = behind(&Faults::alone().always(Fault::Silence));
    let started = tokio::time::Instant::now();
    let read = targets.read(&target(), slot(0)).await;
    assert_eq!(
        (read.unwrap_err().class, started.elapsed().as_millis()),
        (ErrorClass::TimedOut, 500)
    );
    let added = targets.add(&target(), slot(0), 0, &errors(1)).await;
    assert_eq!(
        (added.unwrap_err().class, started.elapsed().as_millis()),
        (ErrorClass::TimedOut, 800)
    );
    let fresh = TargetState::default();
    let changed = targets.change(&target(), &fresh, &next(&fresh, Health::Shed, 1)).await;
    assert_eq!(
        (changed.unwrap_err().class, started.elapsed().as_millis()),
        (ErrorClass::TimedOut, 1_300)
    );
}

#[tokio::test(start_paused = true)]
async fn counting_is_tried_once_since_it_may_have_been_done() {
    for fault in [
        Fault::Reset,
        Fault::refused("InternalServerError"),
        Fault::refused("ThrottlingException"),
    ] {
        let faults = Faults::alone().always(fault);
        let added = behind(&faults).add(&target(), slot(0), 0, &errors(1)).await;
        assert!(added.is_err());
        assert_eq!(faults.operations(), ["UpdateItem"]);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_to_count_is_no_call() {
    let faults = Faults::alone();
    behind(&faults)
        .add(&target(), slot(0), 0, &Counts::default())
        .await
        .unwrap();
    assert!(faults.calls().is_empty());
}

#[tokio::test]
async fn a_change_whose_answer_was_lost_is_done() {
    // DDBC-01
    let engine = Embedded::start().await;
    let faults = Faults::on_the_way().at(0, Fault::AnswerLost);
    let config = engine.table.config().http_client(faults.clone()).build();
    let targets = DynamoTargets::new(aws_sdk_dynamodb::Client::from_conf(config), TABLE).patient();
    let fresh = TargetState::default();
    let shed = next(&fresh, Health::Shed, 1);
    assert_eq!(targets.change(&target(), &fresh, &shed).await.unwrap(), Moved::Done);
    assert_eq!(faults.operations(), ["UpdateItem", "UpdateItem"]);
    assert_eq!(targets.read(&target(), slot(0)).await.unwrap().state, shed);
}
