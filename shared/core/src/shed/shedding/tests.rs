use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::super::memory::MemoryTargets;
use super::super::{Counts, Health, Moved, ReadTarget, SlotNumber, TargetState};
use super::*;
use crate::ledger::Nonce;
use crate::ports::{ErrorClass, LedgerError};
use crate::testing::{at, block_on, secs};

/// A clock that is moved, and numbers that spread.
#[derive(Debug, Default)]
struct Time {
    now_ms: AtomicI64,
    drawn: AtomicU64,
}

impl TimeAndChance for &Time {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::from_millis(self.now_ms.load(Ordering::SeqCst));
        at(0).saturating_add(passed).unwrap()
    }

    fn random(&self) -> u64 {
        let drawn = self.drawn.fetch_add(1, Ordering::SeqCst);
        drawn.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Time {
    fn pass(&self, span: SignedDuration) {
        let span_ms = i64::try_from(span.as_millis()).unwrap();
        self.now_ms.fetch_add(span_ms, Ordering::SeqCst);
    }
}

/// Inboxes that end every send as they are told, after the time that they are told.
#[derive(Debug)]
struct Told<'a> {
    time: &'a Time,
    outcomes: Mutex<BTreeMap<String, Sent>>,
    latency: Mutex<SignedDuration>,
    calls: Mutex<Vec<(String, usize)>>,
}

impl Inboxes for &Told<'_> {
    async fn send(&self, messages: Vec<Outgoing>) -> Vec<Sent> {
        self.time.pass(*self.latency.lock().unwrap());
        let inbox = messages[0].inbox.clone();
        assert!(
            messages.iter().all(|message| message.inbox == inbox),
            "one call, one inbox"
        );
        let outcome = *self.outcomes.lock().unwrap().get(&inbox).unwrap_or(&Sent::Yes);
        self.calls.lock().unwrap().push((inbox, messages.len()));
        vec![outcome; messages.len()]
    }
}

/// A store that fails where it is told to, and counts.
#[derive(Debug, Default)]
struct Store {
    targets: MemoryTargets,
    fails: Mutex<BTreeSet<&'static str>>,
    calls: Mutex<Vec<&'static str>>,
}

impl Store {
    fn call(&self, name: &'static str) -> Result<(), LedgerError> {
        self.calls.lock().unwrap().push(name);
        if self.fails.lock().unwrap().contains(name) {
            return Err(LedgerError {
                attempted: name,
                on: "target".to_owned(),
                class: ErrorClass::TimedOut,
                source: None,
            });
        }
        Ok(())
    }

    fn fail(&self, names: &[&'static str]) {
        *self.fails.lock().unwrap() = names.iter().copied().collect();
    }

    fn take_reads(&self) -> usize {
        self.take_calls().iter().filter(|call| **call == "read").count()
    }

    fn take_calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }
}

impl TargetStore for &Store {
    async fn read(&self, target: &TargetKey, from: SlotNumber) -> Result<ReadTarget, LedgerError> {
        self.call("read")?;
        self.targets.read(target, from).await
    }

    async fn add(&self, target: &TargetKey, slot: SlotNumber, shard: u64, counts: &Counts) -> Result<(), LedgerError> {
        self.call("add")?;
        self.targets.add(target, slot, shard, counts).await
    }

    async fn change(&self, target: &TargetKey, from: &TargetState, to: &TargetState) -> Result<Moved, LedgerError> {
        self.call("change")?;
        self.targets.change(target, from, to).await
    }
}

fn target(inbox: &str) -> TargetKey {
    TargetKey::labeled_principal("sqs", inbox, "acme")
}

fn message(inbox: &str) -> Outgoing {
    Outgoing {
        inbox: inbox.to_owned(),
        group: "g".to_owned(),
        deduplication: "d".to_owned(),
        body: "{}".to_owned(),
        reference: "{}".to_owned(),
    }
}

/// One environment, or several, in a world of their own.
struct World<'a> {
    time: &'a Time,
    told: &'a Told<'a>,
    store: &'a Store,
}

type Environment<'a> = Shedding<&'a Told<'a>, &'a Store, &'a Time>;

impl<'a> World<'a> {
    fn environment(&self) -> Environment<'a> {
        let targets = ["a", "b"].map(|inbox| (inbox.to_owned(), target(inbox)));
        let config = ShedderConfig::default();
        Shedding::new(self.told, self.store, self.time, config, targets.into())
    }

    fn answer(&self, inbox: &str, outcome: Sent) {
        self.told.outcomes.lock().unwrap().insert(inbox.to_owned(), outcome);
    }

    fn calls(&self) -> usize {
        self.told.calls.lock().unwrap().len()
    }

    fn stored(&self, inbox: &str) -> ReadTarget {
        block_on(self.store.targets.read(&target(inbox), SlotNumber::from_number(0))).unwrap()
    }

    fn health(&self) -> Health {
        self.stored("a").state.health
    }

    /// Sends to inbox `a` so often, a second apart.
    fn send(&self, environment: &Environment<'_>, times: usize) -> Vec<Sent> {
        let send = |_| {
            self.time.pass(secs(1));
            send(environment, "a")
        };
        (0..times).map(send).collect()
    }
}

fn send(environment: &Environment<'_>, inbox: &str) -> Sent {
    block_on(environment.send(vec![message(inbox)]))[0]
}

fn world(test: impl FnOnce(&World<'_>)) {
    let time = Time::default();
    let told = Told {
        time: &time,
        outcomes: Mutex::default(),
        latency: Mutex::default(),
        calls: Mutex::default(),
    };
    let store = Store::default();
    test(&World {
        time: &time,
        told: &told,
        store: &store,
    });
}

#[test]
fn a_target_that_fails_is_shed_and_no_call_is_made_to_it() {
    // S1-05, BRKR-06
    world(|world| {
        let environment = world.environment();
        world.answer("a", Sent::Unreachable);
        let outcomes = world.send(&environment, 12);
        assert_eq!(outcomes[..10], [Sent::Unreachable; 10], "a minimum of samples");
        assert_eq!(outcomes[10..], [Sent::Shed; 2]);
        assert_eq!((world.calls(), world.health()), (10, Health::Shed));
        let notes = environment.take_notes();
        assert_eq!((notes.shed, notes.unavailable), (2, 0));
        assert_eq!((notes.changed.len(), notes.changed[0].to), (1, Health::Shed));
        assert_eq!(environment.take_notes().shed, 0, "each is told once");
    });
}

#[test]
fn one_shed_target_keeps_no_other_waiting_and_places_are_kept() {
    // Invariant 10
    world(|world| {
        let environment = world.environment();
        world.answer("a", Sent::Unreachable);
        world.send(&environment, 10);
        let messages = ["b", "a", "nobody", "b", "a"].map(message).to_vec();
        let outcomes = block_on(environment.send(messages));
        assert_eq!(outcomes, [Sent::Yes, Sent::Shed, Sent::Yes, Sent::Yes, Sent::Shed]);
        let calls = world.told.calls.lock().unwrap();
        assert_eq!(calls[10..], [("b".to_owned(), 2), ("nobody".to_owned(), 1)]);
    });
}

#[test]
fn one_call_is_one_observation_however_many_messages_it_carries() {
    world(|world| {
        let environment = world.environment();
        world.answer("a", Sent::Unreachable);
        block_on(environment.send(vec![message("a"); 10]));
        assert_eq!(send(&environment, "a"), Sent::Unreachable);
        assert_eq!(world.health(), Health::Healthy);
    });
}

#[test]
fn only_faults_of_the_target_count() {
    // BRKR-03
    world(|world| {
        let environment = world.environment();
        for outcome in [Sent::Denied, Sent::Rejected, Sent::Throttled, Sent::Rejected] {
            world.answer("a", outcome);
            world.send(&environment, 100);
        }
        assert_eq!(world.stored("a"), ReadTarget::default());
        world.answer("a", Sent::Unreachable);
        world.send(&environment, 5);
        world.time.pass(secs(10));
        block_on(environment.prepare(&BTreeSet::from(["a".to_owned()])));
        let total = world.stored("a").slots.total();
        assert_eq!((total.errors, total.successes()), (5, 0));
    });
}

#[test]
fn a_target_comes_back_by_thirty_clean_seconds_a_probe_and_probation() {
    // S1-05, S1-06
    world(|world| {
        let environment = world.environment();
        world.answer("a", Sent::Unreachable);
        world.send(&environment, 10);
        world.answer("a", Sent::Yes);
        let shed = world.send(&environment, 30);
        assert_eq!(shed, [Sent::Shed; 30]);
        world.time.pass(secs(5));
        assert_eq!(
            (send(&environment, "a"), world.health()),
            (Sent::Yes, Health::Probation)
        );
        let ramped = world.send(&environment, 29);
        let sent = ramped.iter().filter(|sent| **sent == Sent::Yes).count();
        assert!((8..25).contains(&sent), "{sent} of 29");
        world.time.pass(secs(1));
        assert_eq!((send(&environment, "a"), world.health()), (Sent::Yes, Health::Healthy));
        // What came before is over: nine more errors are below the minimum again.
        world.answer("a", Sent::Unreachable);
        assert_eq!(world.send(&environment, 3), [Sent::Unreachable; 3]);
    });
}

/// Until the first probe that passes.
fn probation(world: &World<'_>, environment: &Environment<'_>) {
    world.answer("a", Sent::Unreachable);
    world.send(environment, 10);
    world.answer("a", Sent::Yes);
    world.time.pass(secs(36));
    assert_eq!((send(environment, "a"), world.health()), (Sent::Yes, Health::Probation));
}

#[test]
fn one_lucky_probe_does_not_wipe_the_window_and_one_failure_after_it_sheds_at_once() {
    // BRKR-05
    world(|world| {
        let environment = world.environment();
        probation(world, &environment);
        world.answer("a", Sent::Unreachable);
        let outcomes = world.send(&environment, 20);
        let failed = outcomes.iter().filter(|sent| **sent == Sent::Unreachable).count();
        assert_eq!((failed, world.health()), (1, Health::Shed));
        // It stays so until it is clean again.
        world.answer("a", Sent::Yes);
        let since = world.stored("a").state.since;
        while send(&environment, "a") == Sent::Shed {
            world.time.pass(secs(1));
        }
        let clean = world.time.now().duration_since(since);
        assert!(clean >= secs(30) && clean <= secs(36), "{clean}");
    });
}

#[test]
fn an_error_in_probation_that_another_environment_sees_sheds_for_all() {
    world(|world| {
        let (one, other) = (world.environment(), world.environment());
        probation(world, &one);
        world.answer("a", Sent::Unreachable);
        while send(&other, "a") == Sent::Shed {}
        assert_eq!(world.health(), Health::Shed);
        world.time.pass(secs(2));
        assert_eq!(
            send(&one, "a"),
            Sent::Shed,
            "as soon as what it knows is two seconds old"
        );
    });
}

#[test]
fn a_probe_that_fails_sheds_anew() {
    world(|world| {
        let environment = world.environment();
        world.answer("a", Sent::Unreachable);
        world.send(&environment, 10);
        world.time.pass(secs(36));
        assert_eq!(
            (send(&environment, "a"), world.health()),
            (Sent::Unreachable, Health::Shed)
        );
        assert_eq!(world.send(&environment, 30), [Sent::Shed; 30]);
    });
}

#[test]
fn a_probe_that_shows_nothing_leaves_its_lease_to_lapse() {
    world(|world| {
        let environment = world.environment();
        world.answer("a", Sent::Unreachable);
        world.send(&environment, 10);
        world.answer("a", Sent::Throttled);
        world.time.pass(secs(36));
        assert_eq!(
            (send(&environment, "a"), world.health()),
            (Sent::Throttled, Health::Probing)
        );
        world.answer("a", Sent::Yes);
        assert_eq!(world.send(&environment, 15), [Sent::Shed; 15]);
        assert_eq!(world.send(&environment, 1), [Sent::Yes]);
        assert_eq!(world.health(), Health::Probation);
    });
}

#[test]
fn a_probe_is_one_message_and_the_rest_of_its_call_waits() {
    world(|world| {
        let environment = world.environment();
        world.answer("a", Sent::Unreachable);
        world.send(&environment, 10);
        world.answer("a", Sent::Yes);
        world.time.pass(secs(36));
        let outcomes = block_on(environment.send(vec![message("a"); 3]));
        assert_eq!(outcomes, [Sent::Yes, Sent::Shed, Sent::Shed]);
        assert_eq!(world.told.calls.lock().unwrap().last(), Some(&("a".to_owned(), 1)));
    });
}

#[test]
fn a_probe_that_another_has_taken_over_changes_nothing() {
    // Invariant 4, for targets: what hung comes back after its lease.
    world(|world| {
        let (one, other) = (world.environment(), world.environment());
        world.answer("a", Sent::Unreachable);
        world.send(&one, 10);
        world.time.pass(secs(36));
        let shed = world.stored("a").state;
        let config = ShedderConfig::default();
        let hung = shed.next(Health::Probing, Nonce::from_random(1), world.time.now(), &config);
        assert_eq!(
            block_on(world.store.change(&target("a"), &shed, &hung)).unwrap(),
            Moved::Done
        );
        world.time.pass(secs(16));
        world.answer("a", Sent::Yes);
        assert_eq!((send(&other, "a"), world.health()), (Sent::Yes, Health::Probation));
        let late = block_on(one.shedder.change("a", &target("a"), &hung, Health::Shed));
        assert_eq!((late, world.health()), (None, Health::Probation));
    });
}

#[test]
fn slow_successes_shed_as_errors_do() {
    // S1-05
    world(|world| {
        let environment = |latency_ms_max| {
            let config = ShedderConfig {
                latency_ms_max,
                ..ShedderConfig::default()
            };
            let targets = BTreeMap::from([("a".to_owned(), target("a"))]);
            Shedding::new(world.told, world.store, world.time, config, targets)
        };
        *world.told.latency.lock().unwrap() = SignedDuration::from_millis(900);
        let (patient, strict) = (environment(1_000), environment(500));
        for _ in 0..20 {
            assert_eq!(send(&patient, "a"), Sent::Yes, "slow, and not too slow");
        }
        world.time.pass(secs(60));
        let outcomes: Vec<_> = (0..18).map(|_| send(&strict, "a")).collect();
        assert_eq!(outcomes[..9], [Sent::Yes; 9], "a minimum of samples");
        assert_eq!((outcomes[17], world.health()), (Sent::Shed, Health::Shed));
    });
}

#[test]
fn a_store_that_fails_lets_the_work_through_and_is_counted() {
    world(|world| {
        let environment = world.environment();
        world.store.fail(&["read", "add", "change"]);
        world.answer("a", Sent::Unreachable);
        assert_eq!(world.send(&environment, 40), [Sent::Unreachable; 40]);
        let notes = environment.take_notes();
        assert!(notes.unavailable > 0 && notes.shed == 0);
        assert_eq!(notes.trouble.map(|error| error.class), Some(ErrorClass::TimedOut));
        // It is not asked in front of every send: a failure is remembered as long as an answer.
        let reads = world.store.take_calls().iter().filter(|call| **call == "read").count();
        assert!(
            reads <= 20 + 7,
            "every two seconds, and beside what is to be written: {reads}"
        );
    });
}

#[test]
fn a_shed_target_stays_so_where_only_the_right_to_probe_cannot_be_written() {
    world(|world| {
        let environment = world.environment();
        world.answer("a", Sent::Unreachable);
        world.send(&environment, 10);
        world.store.fail(&["change"]);
        world.time.pass(secs(36));
        assert_eq!(send(&environment, "a"), Sent::Shed);
        assert_eq!(environment.take_notes().unavailable, 1);
    });
}

#[test]
fn a_known_verdict_costs_no_read_and_is_asked_for_again_when_it_is_old() {
    world(|world| {
        let environment = world.environment();
        send(&environment, "a");
        assert_eq!(world.store.take_reads(), 1);
        world.time.pass(SignedDuration::from_millis(1_999));
        send(&environment, "a");
        assert_eq!(world.store.take_reads(), 0);
        world.time.pass(SignedDuration::from_millis(1));
        send(&environment, "a");
        assert_eq!(world.store.take_reads(), 1);
    });
}

#[test]
fn a_store_that_hangs_is_not_asked_again_beside_every_admission() {
    world(|world| {
        let environment = world.environment();
        world.store.fail(&["read"]);
        for _ in 0..8 {
            block_on(environment.prepare(&BTreeSet::from(["a".to_owned()])));
            world.time.pass(SignedDuration::from_millis(500));
        }
        assert_eq!(world.store.take_reads(), 2, "in four seconds");
    });
}

#[test]
fn a_prepared_send_asks_nothing_itself() {
    world(|world| {
        let environment = world.environment();
        block_on(environment.prepare(&["a", "nobody"].map(str::to_owned).into()));
        assert_eq!(world.store.take_reads(), 1);
        send(&environment, "a");
        assert_eq!(world.store.take_reads(), 0);
    });
}

/// Successes that were counted one by one, and not for ten.
fn counted_singly(world: &World<'_>) -> u64 {
    world.stored("a").slots.total().successes() % 10
}

#[test]
fn a_first_error_is_written_at_once_with_all_that_was_held_back() {
    world(|world| {
        let environment = world.environment();
        // The first of all is thinned right away.
        for _ in 0..8 {
            send(&environment, "a");
        }
        assert_eq!(counted_singly(world), 0, "fewer than ten are not worth a write");
        world.answer("a", Sent::Unreachable);
        send(&environment, "a");
        assert_eq!((world.stored("a").slots.total().errors, counted_singly(world)), (1, 7));
    });
}

#[test]
fn what_is_held_over_the_border_of_two_slots_is_counted_in_the_fuller_one() {
    world(|world| {
        let environment = world.environment();
        let border = SlotNumber::of(world.time.now()).ends_at();
        world.time.pass(border.duration_since(world.time.now()) - secs(1));
        for _ in 0..7 {
            send(&environment, "a");
        }
        world.time.pass(secs(1));
        world.answer("a", Sent::Unreachable);
        send(&environment, "a");
        let slots: Vec<_> = world
            .stored("a")
            .slots
            .0
            .into_iter()
            .filter(|(_, counts)| counts.errors > 0)
            .collect();
        assert_eq!(slots.len(), 1);
        assert_eq!(slots[0].0.ends_at(), border, "with the successes before it");
    });
}

#[test]
fn ten_successes_are_written_beside_the_next_read_and_never_by_the_send_itself() {
    world(|world| {
        let environment = world.environment();
        for _ in 0..13 {
            send(&environment, "a");
        }
        world.time.pass(secs(5));
        world.store.take_calls();
        block_on(environment.prepare(&BTreeSet::from(["a".to_owned()])));
        assert_eq!(world.store.take_calls(), ["read", "add"]);
        assert_eq!(counted_singly(world), 12 % 10);
    });
}

#[test]
fn what_a_quiet_environment_sees_is_counted_rightly_in_the_mean_at_a_tenth_of_the_writes() {
    world(|world| {
        let environments: Vec<_> = (0..2_000).map(|_| world.environment()).collect();
        for environment in &environments {
            send(environment, "a");
        }
        let adds = world.store.take_calls().iter().filter(|call| **call == "add").count();
        assert!((150..250).contains(&adds), "{adds}");
        assert_eq!(world.stored("a").slots.total().successes(), 10 * adds as u64);
        // Three in a quarter of a minute are few as well.
        for environment in &environments {
            for _ in 0..3 {
                send(environment, "a");
            }
        }
        world.time.pass(secs(20));
        for environment in &environments {
            block_on(environment.prepare(&BTreeSet::from(["a".to_owned()])));
        }
        let counted = world.stored("a").slots.total().successes() - 10 * adds as u64;
        assert!((5_300..6_700).contains(&counted), "{counted} of 6,000");
    });
}

#[test]
fn many_that_begin_together_do_not_shed_a_target_for_the_few_that_meet_an_error() {
    // Errors are written at once; the successes of the same moment must not all be held back.
    world(|world| {
        let environments: Vec<_> = (0..200).map(|_| world.environment()).collect();
        for (number, environment) in environments.iter().enumerate() {
            let failed = number % 20 == 0;
            world.answer("a", if failed { Sent::Unreachable } else { Sent::Yes });
            send(environment, "a");
        }
        let counted = world.stored("a").slots.total();
        assert_eq!((counted.errors, world.health()), (10, Health::Healthy));
    });
}

#[test]
fn the_errors_after_the_first_wait_for_the_next_flush_and_count_here_at_once() {
    world(|world| {
        let environment = world.environment();
        world.answer("a", Sent::Unreachable);
        for _ in 0..9 {
            send(&environment, "a");
        }
        let adds = world.store.take_calls().iter().filter(|call| **call == "add").count();
        assert_eq!((adds, world.stored("a").slots.total().errors), (1, 1));
        send(&environment, "a");
        assert_eq!(
            world.health(),
            Health::Shed,
            "ten are enough, wherever they are counted"
        );
        world.time.pass(secs(5));
        block_on(environment.prepare(&BTreeSet::from(["a".to_owned()])));
        assert_eq!(world.stored("a").slots.total().errors, 10);
    });
}

#[test]
fn what_is_held_back_longer_than_the_window_is_forgotten() {
    world(|world| {
        let environment = world.environment();
        for _ in 0..9 {
            send(&environment, "a");
        }
        world.time.pass(secs(40));
        world.answer("a", Sent::Unreachable);
        send(&environment, "a");
        assert_eq!((world.stored("a").slots.total().errors, counted_singly(world)), (1, 0));
    });
}

#[test]
fn a_flush_that_fails_is_not_repeated() {
    world(|world| {
        let environment = world.environment();
        world.store.fail(&["add"]);
        world.answer("a", Sent::Unreachable);
        send(&environment, "a");
        world.store.fail(&[]);
        world.answer("a", Sent::Yes);
        world.send(&environment, 8);
        assert_eq!((world.stored("a").slots.total().errors, counted_singly(world)), (0, 0));
        assert_eq!(environment.take_notes().unavailable, 1);
    });
}
