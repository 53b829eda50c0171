//! The contract of the rows behind the poller: every promise of both ports, held in memory and on DynamoDB's semantics.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of tests fails as a test does"
)]

mod faults;
mod missing;
mod missing_rows;
mod reference;
mod rows;
mod schedule;
mod turns;

use std::future::Future;
use std::sync::Arc;

use forebay_aws::dynamodb::DynamoLedger;
use forebay_core::ledger::{Nonce, Token};
use forebay_core::schedule::memory::MemorySources;
use forebay_core::schedule::{
    DueSource, GivenBack, Resting, Returned, SourceClaim, SourceClaimed, SourceLease, SourceRefused, SourceState,
    SourceStore,
};
use forebay_core::source::{Cursor, SourceId};
use forebay_core::target::TargetKey;
use forebay_tests::engine::{Embedded, Engine};
use forebay_tests::samples::{LEASE, SKEW, at, secs};
use jiff::SignedDuration;
use tokio::task::JoinSet;

/// The interval that sources are registered with: shorter than a lease, so that both conditions of a claim are met.
const INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// A store whose claim rows a test can look at.
trait Shown: SourceStore + 'static {
    /// How a source's claim stands.
    fn shown(&self, source: &SourceId) -> impl Future<Output = Option<SourceState>> + Send;
}

impl Shown for MemorySources {
    async fn shown(&self, source: &SourceId) -> Option<SourceState> {
        self.state(source)
    }
}

impl Shown for DynamoLedger {
    async fn shown(&self, source: &SourceId) -> Option<SourceState> {
        let states = self.source_states(std::slice::from_ref(source)).await.unwrap();
        states.into_iter().next().map(|(_, state)| state)
    }
}

/// A store with what has to live as long.
struct Store<S> {
    sources: Arc<S>,
    engine: Option<Embedded>,
}

fn in_memory() -> Store<MemorySources> {
    Store {
        sources: Arc::default(),
        engine: None,
    }
}

async fn on_dynamodb() -> Store<DynamoLedger> {
    let engine = Embedded::start().await;
    Store {
        sources: engine.ledger(),
        engine: Some(engine),
    }
}

forebay_tests::promised_on_both!(
    super::in_memory(),
    super::on_dynamodb().await;
    a_source_is_registered_once_and_due_at_once,
    registering_again_leaves_what_is_there,
    a_source_that_is_named_twice_is_one,
    simultaneous_registrations_make_each_row_once,
    what_is_due_is_listed_oldest_first_and_no_more_than_asked_for,
    pages_behind_a_mark_show_each_due_source_once,
    of_sixteen_simultaneous_claims_one_wins,
    a_claim_moves_the_due_time_by_the_stored_interval,
    a_claim_again_by_its_own_nonce_is_the_same_right,
    every_claim_has_a_higher_token,
    a_running_lease_keeps_others_out_until_the_skew_is_over_too,
    what_is_not_due_is_not_claimed,
    what_has_no_row_is_missing_and_stays_so,
    a_turn_is_remembered_whole,
    a_turn_without_a_cursor_leaves_the_cursor,
    who_comes_late_moves_neither_claim_nor_cursor,
    a_frozen_poller_moves_neither_claim_nor_cursor,
    an_owner_with_the_right_token_and_another_nonce_is_fenced,
    giving_back_again_is_recognised_until_somebody_else_has_it,
    what_is_put_off_keeps_its_claim,
    only_what_was_found_is_put_off_and_never_a_live_lease,
    a_target_rests_as_long_as_anybody_said,
    resting_targets_are_told_in_order,
    what_is_read_is_the_sources_and_the_targets_own,
    a_large_cursor_comes_back_to_the_letter,
);

// --- small steps ----------------------------------------------------------------------------------------------------------

fn source(name: &str) -> SourceId {
    SourceId::new(&format!("github.com/events/acme/{name}"))
}

fn target(name: &str) -> TargetKey {
    TargetKey::labeled_principal("github.com", name, "")
}

fn wish(second: i64, nonce: u64) -> SourceClaim {
    SourceClaim {
        now: at(second),
        nonce: Nonce::from_random(nonce),
        lease: LEASE,
        skew: SKEW,
    }
}

/// A turn after which nothing but the due time and the cursor is new.
fn read_to(cursor: &str, due_second: i64) -> GivenBack {
    GivenBack {
        cursor: Some(Cursor::new(cursor.to_owned()).unwrap()),
        ..nothing_new(due_second)
    }
}

fn nothing_new(due_second: i64) -> GivenBack {
    GivenBack {
        cursor: None,
        due_at: at(due_second),
        interval: INTERVAL,
        failures: 0,
        note: None,
    }
}

/// The same right once more: a poller that does not know it has lost it.
fn copy_of(lease: &SourceLease) -> SourceLease {
    lease_of(lease.source(), lease.token(), lease.nonce(), lease.until())
}

fn lease_of(source: &SourceId, token: Token, nonce: Nonce, until: jiff::Timestamp) -> SourceLease {
    let state = SourceState {
        token,
        nonce,
        lease_until: Some(until),
        due_at: until,
        interval: INTERVAL,
        failures: 0,
        note: None,
        claimed_at: None,
    };
    SourceLease::proven_by(source, &state, nonce).unwrap()
}

fn due(second: i64, name: &str) -> DueSource {
    DueSource {
        due_at: at(second),
        source: source(name),
    }
}

/// What `task` gives for each number, all at once.
async fn at_once<T: Send + 'static, F>(count: u32, task: impl Fn(u32) -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
{
    let tasks: JoinSet<T> = (1..=count).map(task).collect();
    tasks.join_all().await
}

impl<S: Shown> Store<S> {
    async fn register(&self, names: &[&str], second: i64) -> usize {
        let rows: Vec<_> = names.iter().map(|name| (source(name), INTERVAL)).collect();
        self.sources.register_sources(&rows, at(second)).await.unwrap()
    }

    async fn state(&self, name: &str) -> SourceState {
        self.sources.shown(&source(name)).await.unwrap()
    }

    async fn won(&self, name: &str, second: i64, nonce: u64) -> SourceLease {
        match self
            .sources
            .claim_source(&source(name), wish(second, nonce))
            .await
            .unwrap()
        {
            SourceClaimed::Won(lease, _) => lease,
            SourceClaimed::Lost(refused) => panic!("{name}: {refused}"),
        }
    }

    async fn lost(&self, name: &str, second: i64, nonce: u64) -> SourceRefused {
        match self
            .sources
            .claim_source(&source(name), wish(second, nonce))
            .await
            .unwrap()
        {
            SourceClaimed::Won(lease, _) => panic!("{name}: won {lease:?}"),
            SourceClaimed::Lost(refused) => refused,
        }
    }

    async fn give_back(&self, lease: &SourceLease, second: i64, given: GivenBack) -> Returned {
        self.sources
            .give_back_source(copy_of(lease), at(second), given)
            .await
            .unwrap()
    }

    async fn put_off(&self, found: &DueSource, until: i64, second: i64) {
        let put_off = self.sources.put_off_source(found, at(until), at(second), SKEW).await;
        put_off.unwrap();
    }

    async fn cursor(&self, name: &str) -> Option<String> {
        let reading = self.sources.read_source(&source(name), &target("app")).await.unwrap();
        reading.cursor.map(|cursor| cursor.as_str().to_owned())
    }

    async fn due(&self, second: i64, after: Option<&DueSource>, limit: usize) -> Vec<DueSource> {
        self.sources.due_sources(at(second), after, limit).await.unwrap()
    }

    async fn rest(&self, name: &str, second: i64, strikes: u32) {
        let resting = Resting {
            until: at(second),
            strikes,
        };
        self.sources.rest_target(&target(name), resting).await.unwrap();
    }

    async fn resting(&self, names: &[&str]) -> Vec<Option<Resting>> {
        let targets: Vec<_> = names.iter().map(|name| target(name)).collect();
        self.sources.resting_targets(&targets).await.unwrap()
    }
}

// --- registration ---------------------------------------------------------------------------------------------------------

async fn a_source_is_registered_once_and_due_at_once(store: Store<impl Shown>) {
    // SCHD-01
    assert_eq!(store.register(&["a", "b"], 0).await, 2);
    assert_eq!(store.register(&["a", "b", "c"], 5).await, 1);
    let fresh = SourceState {
        token: Token::NONE,
        nonce: Nonce::from_random(0),
        lease_until: None,
        due_at: at(0),
        interval: INTERVAL,
        failures: 0,
        note: None,
        claimed_at: None,
    };
    assert_eq!(store.state("a").await, fresh);
    assert_eq!(
        store.due(5, None, 10).await,
        [due(0, "a"), due(0, "b"), due(5, "c")],
        "due at once"
    );
    assert_eq!(store.sources.register_sources(&[], at(0)).await.unwrap(), 0);
}

async fn registering_again_leaves_what_is_there(store: Store<impl Shown>) {
    store.register(&["a"], 0).await;
    let lease = store.won("a", 0, 1).await;
    store.give_back(&lease, 1, read_to("one", 300)).await;
    store.won("a", 300, 2).await;
    let before = store.state("a").await;
    let again = store
        .sources
        .register_sources(&[(source("a"), secs(99))], at(301))
        .await;
    assert_eq!(again.unwrap(), 0);
    assert_eq!(store.state("a").await, before);
    assert_eq!(store.cursor("a").await.as_deref(), Some("one"));
}

async fn a_source_that_is_named_twice_is_one(store: Store<impl Shown>) {
    assert_eq!(store.register(&["a", "b", "a"], 0).await, 2);
    assert_eq!(store.due(0, None, 10).await.len(), 2);
}

async fn simultaneous_registrations_make_each_row_once(store: Store<impl Shown>) {
    // More than one read of many keys, and more than one batch of writes.
    let rows: Vec<_> = (0..130)
        .map(|number| (source(&format!("{number:03}")), INTERVAL))
        .collect();
    let made = at_once(4, |task| {
        let (sources, rows) = (Arc::clone(&store.sources), rows.clone());
        async move { sources.register_sources(&rows, at(task.into())).await.unwrap() }
    });
    assert_eq!(made.await.iter().sum::<usize>(), rows.len());
    assert_eq!(store.due(10, None, 200).await.len(), rows.len());
}

// --- what is due ----------------------------------------------------------------------------------------------------------

async fn what_is_due_is_listed_oldest_first_and_no_more_than_asked_for(store: Store<impl Shown>) {
    for (second, name) in [(30, "c"), (10, "a"), (20, "d"), (40, "b")] {
        store.register(&[name], second).await;
    }
    let all = [due(10, "a"), due(20, "d"), due(30, "c"), due(40, "b")];
    assert_eq!(store.due(40, None, 10).await, all);
    assert_eq!(store.due(39, None, 10).await, all[..3], "due in a second is not due");
    assert_eq!(store.due(40, None, 2).await, all[..2]);
    assert_eq!(store.due(40, None, 0).await, []);
    assert_eq!(store.due(9, None, 10).await, []);
    assert_eq!(store.due(40, Some(&all[1]), 10).await, all[2..]);
    assert_eq!(store.due(40, Some(&all[3]), 10).await, []);
    // Who holds one has moved it.
    store.won("a", 40, 1).await;
    assert_eq!(store.due(40, None, 10).await, all[1..]);
    assert_eq!(store.due(40, Some(&all[0]), 10).await, all[1..], "the mark may be gone");
}

async fn pages_behind_a_mark_show_each_due_source_once(store: Store<impl Shown>) {
    let names: Vec<String> = (0..9).map(|number| format!("s{number}")).collect();
    for (place, name) in names.iter().enumerate() {
        // Seven of them are due at one time.
        store.register(&[name], if place < 7 { 10 } else { 20 }).await;
    }
    for limit in 1..=names.len() + 1 {
        let mut found = Vec::new();
        loop {
            let page = store.due(20, found.last(), limit).await;
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            found.extend(page);
            assert!(found.len() <= names.len(), "each once: {found:?}");
        }
        assert!(found.is_sorted_by_key(|due| due.due_at), "pages of {limit}");
        let mut sources: Vec<_> = found.into_iter().map(|due| due.source).collect();
        sources.sort();
        let all: Vec<_> = names.iter().map(|name| source(name)).collect();
        assert_eq!(sources, all, "pages of {limit}");
    }
}

// --- claims ---------------------------------------------------------------------------------------------------------------

async fn of_sixteen_simultaneous_claims_one_wins(store: Store<impl Shown>) {
    // SCHD-03, invariant 4
    store.register(&["a"], 0).await;
    let claims = at_once(16, |nonce| {
        let sources = Arc::clone(&store.sources);
        async move { sources.claim_source(&source("a"), wish(0, nonce.into())).await.unwrap() }
    });
    let (mut won, mut lost) = (Vec::new(), Vec::new());
    for claim in claims.await {
        match claim {
            SourceClaimed::Won(lease, state) => won.push((lease, state)),
            SourceClaimed::Lost(refused) => lost.push(refused),
        }
    }
    assert_eq!((won.len(), lost.len()), (1, 15));
    let (lease, state) = won.remove(0);
    assert_eq!(state, store.state("a").await);
    assert_eq!((lease.token(), lease.until()), (Token::FIRST, at(0) + LEASE));
    assert_eq!(lost, [SourceRefused::Held(at(0) + LEASE); 15]);
}

async fn a_claim_moves_the_due_time_by_the_stored_interval(store: Store<impl Shown>) {
    // One write is all that an unchanged poll costs.
    store.register(&["a"], 0).await;
    let lease = store.won("a", 3, 1).await;
    let claimed = SourceState {
        token: Token::FIRST,
        nonce: Nonce::from_random(1),
        lease_until: Some(at(3) + LEASE),
        due_at: at(3) + INTERVAL,
        interval: INTERVAL,
        failures: 0,
        note: None,
        claimed_at: Some(at(3)),
    };
    assert_eq!(store.state("a").await, claimed);
    let given = GivenBack {
        interval: secs(300),
        ..nothing_new(100)
    };
    store.give_back(&lease, 4, given).await;
    store.won("a", 100, 2).await;
    assert_eq!(store.state("a").await.due_at, at(400));
    assert_eq!(store.due(399, None, 10).await, []);
    assert_eq!(store.due(400, None, 10).await, [due(400, "a")]);
}

async fn a_claim_again_by_its_own_nonce_is_the_same_right(store: Store<impl Shown>) {
    // DDBC-01: behind a lost answer it is sent again, to the letter.
    store.register(&["a"], 0).await;
    let first = store.won("a", 0, 1).await;
    let before = store.state("a").await;
    let again = store.won("a", 0, 1).await;
    assert_eq!((again, store.state("a").await), (first, before));
}

async fn every_claim_has_a_higher_token(store: Store<impl Shown>) {
    store.register(&["a"], 0).await;
    let mut tokens = vec![Token::NONE];
    for turn in 1..=4_u32 {
        let second = i64::from(turn) * 100;
        let lease = store.won("a", second, turn.into()).await;
        // Half of them are given back, the others lapse.
        if turn % 2 == 0 {
            store.give_back(&lease, second + 1, nothing_new(second + 2)).await;
        }
        tokens.push(lease.token());
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

async fn a_running_lease_keeps_others_out_until_the_skew_is_over_too(store: Store<impl Shown>) {
    // Invariant 11: it is due again long before.
    store.register(&["a"], 0).await;
    store.won("a", 0, 1).await;
    let until = at(0) + LEASE;
    let over = (LEASE + SKEW).as_secs();
    for second in [1, LEASE.as_secs() - 1, LEASE.as_secs(), over] {
        assert_eq!(store.lost("a", second, 2).await, SourceRefused::Held(until), "{second}");
    }
    assert_eq!(store.won("a", over + 1, 2).await.token().number(), 2);
}

async fn what_is_not_due_is_not_claimed(store: Store<impl Shown>) {
    store.register(&["a"], 50).await;
    assert_eq!(store.lost("a", 49, 1).await, SourceRefused::NotDue(at(50)));
    let lease = store.won("a", 50, 2).await;
    store.give_back(&lease, 51, nothing_new(90)).await;
    assert_eq!(store.lost("a", 89, 3).await, SourceRefused::NotDue(at(90)));
    assert_eq!(store.won("a", 90, 3).await.token().number(), 2);
}

async fn what_has_no_row_is_missing_and_stays_so(store: Store<impl Shown>) {
    assert_eq!(store.lost("a", 0, 1).await, SourceRefused::Missing);
    let lease = lease_of(&source("a"), Token::FIRST, Nonce::from_random(1), at(30));
    let missing = Returned::Lost(SourceRefused::Missing);
    assert_eq!(store.give_back(&lease, 1, nothing_new(9)).await, missing);
    assert_eq!(store.give_back(&lease, 1, read_to("one", 9)).await, missing);
    store.put_off(&due(0, "a"), 9, 0).await;
    assert_eq!(store.sources.shown(&source("a")).await, None);
    assert_eq!(store.cursor("a").await, None);
    assert_eq!(store.due(1_000, None, 10).await, []);
}

// --- giving back ----------------------------------------------------------------------------------------------------------

async fn a_turn_is_remembered_whole(store: Store<impl Shown>) {
    store.register(&["a"], 0).await;
    let lease = store.won("a", 0, 1).await;
    let given = GivenBack {
        interval: secs(300),
        failures: 3,
        note: Some("timed_out".to_owned()),
        ..read_to("one", 77)
    };
    assert_eq!(store.give_back(&lease, 1, given).await, Returned::Kept);
    let expected = SourceState {
        token: Token::FIRST,
        nonce: Nonce::from_random(1),
        lease_until: None,
        due_at: at(77),
        interval: secs(300),
        failures: 3,
        note: Some("timed_out".to_owned()),
        claimed_at: Some(at(0)),
    };
    assert_eq!(store.state("a").await, expected);
    assert_eq!(store.cursor("a").await.as_deref(), Some("one"));
    // A turn that goes well says so.
    let lease = store.won("a", 77, 2).await;
    assert_eq!(store.give_back(&lease, 78, read_to("two", 90)).await, Returned::Kept);
    let state = store.state("a").await;
    assert_eq!((state.failures, state.note, state.interval), (0, None, INTERVAL));
    assert_eq!(store.cursor("a").await.as_deref(), Some("two"));
    assert_eq!(store.due(90, None, 10).await, [due(90, "a")]);
}

async fn a_turn_without_a_cursor_leaves_the_cursor(store: Store<impl Shown>) {
    store.register(&["a"], 0).await;
    let lease = store.won("a", 0, 1).await;
    store.give_back(&lease, 1, read_to("one", 10)).await;
    let lease = store.won("a", 10, 2).await;
    assert_eq!(store.give_back(&lease, 11, nothing_new(20)).await, Returned::Kept);
    assert_eq!(store.cursor("a").await.as_deref(), Some("one"));
    assert_eq!(store.state("a").await.due_at, at(20));
}

async fn who_comes_late_moves_neither_claim_nor_cursor(store: Store<impl Shown>) {
    // Invariants 4 and 6
    store.register(&["a"], 0).await;
    let lease = store.won("a", 0, 1).await;
    let before = store.state("a").await;
    let lapsed = Returned::Lost(SourceRefused::Lapsed(lease.until()));
    for late in [LEASE.as_secs(), LEASE.as_secs() + 1, 5_000] {
        assert_eq!(
            store.give_back(&lease, late, read_to("late", 1)).await,
            lapsed,
            "{late}"
        );
        assert_eq!(store.give_back(&lease, late, nothing_new(1)).await, lapsed, "{late}");
    }
    assert_eq!((store.state("a").await, store.cursor("a").await), (before, None));
    let last = LEASE.as_secs() - 1;
    assert_eq!(store.give_back(&lease, last, read_to("one", 99)).await, Returned::Kept);
    assert_eq!(store.cursor("a").await.as_deref(), Some("one"));
}

async fn a_frozen_poller_moves_neither_claim_nor_cursor(store: Store<impl Shown>) {
    // Invariants 4 and 6: its clock stands still, so that it believes in its lease.
    store.register(&["a"], 0).await;
    let frozen = store.won("a", 0, 1).await;
    let second = store.won("a", 100, 2).await;
    let fenced = Returned::Lost(SourceRefused::Fenced(second.token()));
    let held = store.state("a").await;
    assert_eq!(store.give_back(&frozen, 1, read_to("frozen", 1)).await, fenced);
    assert_eq!(store.give_back(&frozen, 1, nothing_new(1)).await, fenced);
    assert_eq!((store.state("a").await, store.cursor("a").await), (held, None));
    assert_eq!(store.give_back(&second, 101, read_to("two", 200)).await, Returned::Kept);
    let kept = store.state("a").await;
    assert_eq!(store.give_back(&frozen, 1, read_to("frozen", 1)).await, fenced);
    assert_eq!(store.state("a").await, kept);
    assert_eq!(store.cursor("a").await.as_deref(), Some("two"));
}

async fn an_owner_with_the_right_token_and_another_nonce_is_fenced(store: Store<impl Shown>) {
    // Invariant 4: a row that was made again starts at token 1 again.
    store.register(&["a"], 0).await;
    let lease = store.won("a", 0, 1).await;
    let before = store.state("a").await;
    let other = lease_of(lease.source(), lease.token(), Nonce::from_random(9), lease.until());
    let older = lease_of(lease.source(), Token::NONE, lease.nonce(), lease.until());
    let fenced = Returned::Lost(SourceRefused::Fenced(Token::FIRST));
    for lease in [other, older] {
        assert_eq!(store.give_back(&lease, 1, read_to("one", 1)).await, fenced);
        assert_eq!(store.give_back(&lease, 1, nothing_new(1)).await, fenced);
    }
    assert_eq!((store.state("a").await, store.cursor("a").await), (before, None));
}

async fn giving_back_again_is_recognised_until_somebody_else_has_it(store: Store<impl Shown>) {
    // DDBC-03
    store.register(&["a"], 0).await;
    for (nonce, second, given) in [(1, 0, read_to("one", 50)), (2, 100, nothing_new(150))] {
        let lease = store.won("a", second, nonce).await;
        assert_eq!(store.give_back(&lease, second + 1, given.clone()).await, Returned::Kept);
        let state = store.state("a").await;
        // Also after the lease would have been over.
        for again in [second + 1, second + 500] {
            assert_eq!(store.give_back(&lease, again, given.clone()).await, Returned::Kept);
        }
        assert_eq!(store.state("a").await, state);
    }
    let first = lease_of(&source("a"), Token::FIRST, Nonce::from_random(1), at(30));
    let fenced = Returned::Lost(SourceRefused::Fenced(Token::from_number(2)));
    assert_eq!(store.give_back(&first, 1, read_to("one", 50)).await, fenced);
}

// --- putting off ----------------------------------------------------------------------------------------------------------

async fn what_is_put_off_keeps_its_claim(store: Store<impl Shown>) {
    store.register(&["a"], 0).await;
    let lease = store.won("a", 0, 1).await;
    store.give_back(&lease, 1, read_to("one", 50)).await;
    let before = store.state("a").await;
    store.put_off(&due(50, "a"), 500, 60).await;
    let expected = SourceState {
        due_at: at(500),
        ..before
    };
    assert_eq!(store.state("a").await, expected);
    assert_eq!(store.due(499, None, 10).await, []);
    assert_eq!(store.due(500, None, 10).await, [due(500, "a")]);
    // Behind a lost answer it is sent again; by then it is not what was found.
    store.put_off(&due(50, "a"), 600, 60).await;
    assert_eq!(store.state("a").await, expected);
}

async fn only_what_was_found_is_put_off_and_never_a_live_lease(store: Store<impl Shown>) {
    store.register(&["a"], 10).await;
    let before = store.state("a").await;
    for found in [9, 11] {
        store.put_off(&due(found, "a"), 500, 60).await;
    }
    assert_eq!(store.state("a").await, before);
    store.won("a", 10, 1).await;
    let held = store.state("a").await;
    let found = DueSource {
        due_at: held.due_at,
        source: source("a"),
    };
    let over = 10 + (LEASE + SKEW).as_secs();
    for second in [20, 10 + LEASE.as_secs(), over] {
        store.put_off(&found, 500, second).await;
        assert_eq!(store.state("a").await, held, "{second}");
    }
    store.put_off(&found, 500, over + 1).await;
    let expected = SourceState {
        due_at: at(500),
        ..held
    };
    assert_eq!(store.state("a").await, expected);
}

// --- targets --------------------------------------------------------------------------------------------------------------

async fn a_target_rests_as_long_as_anybody_said(store: Store<impl Shown>) {
    // S1-03
    let rests = |second: i64, strikes| {
        [Some(Resting {
            until: at(second),
            strikes,
        })]
    };
    assert_eq!(store.resting(&["app"]).await, [None]);
    store.rest("app", 60, 1).await;
    assert_eq!(store.resting(&["app"]).await, rests(60, 1));
    for (second, strikes) in [(59, 9), (60, 2), (-60, 0)] {
        store.rest("app", second, strikes).await;
        assert_eq!(store.resting(&["app"]).await, rests(60, 1), "never shortened");
    }
    store.rest("app", 61, 2).await;
    assert_eq!(store.resting(&["app"]).await, rests(61, 2));
    store.rest("app", 3_600, 0).await;
    assert_eq!(store.resting(&["app"]).await, rests(3_600, 0));
    let said = at_once(8, |number| {
        let sources = Arc::clone(&store.sources);
        let resting = Resting {
            until: at(4_000 + i64::from(number)),
            strikes: 7,
        };
        async move { sources.rest_target(&target("app"), resting).await.unwrap() }
    });
    said.await;
    assert_eq!(store.resting(&["app"]).await, rests(4_008, 7));
}

async fn resting_targets_are_told_in_order(store: Store<impl Shown>) {
    let names: Vec<String> = (0..120).map(|number| format!("t{number:03}")).collect();
    let every: Vec<&str> = names.iter().rev().map(String::as_str).collect();
    for (number, name) in (0..).zip(&every).filter(|(number, _)| number % 40 == 0) {
        store.rest(name, number, 0).await;
    }
    let told = store.resting(&every).await;
    assert_eq!(told.len(), every.len());
    for (number, resting) in (0..).zip(told) {
        let expected = (number % 40 == 0).then(|| at(number));
        assert_eq!(resting.map(|resting| resting.until), expected, "{number}");
    }
    assert_eq!(store.resting(&[]).await, []);
    let twice = store.resting(&[every[0], "other", every[0]]).await;
    assert_eq!(twice[0], twice[2]);
    assert!(twice[0].is_some() && twice[1].is_none());
}

// --- cursors --------------------------------------------------------------------------------------------------------------

async fn what_is_read_is_the_sources_and_the_targets_own(store: Store<impl Shown>) {
    let read = async |name: &str, of: &str| {
        let reading = store.sources.read_source(&source(name), &target(of)).await.unwrap();
        let cursor = reading.cursor.map(|cursor| cursor.as_str().to_owned());
        (cursor, reading.resting.map(|resting| resting.strikes))
    };
    assert_eq!(read("a", "app").await, (None, None));
    store.register(&["a", "b"], 0).await;
    assert_eq!(read("a", "app").await, (None, None), "a claim row says neither");
    let lease = store.won("a", 0, 1).await;
    store.give_back(&lease, 1, read_to("one", 50)).await;
    store.rest("app", 60, 4).await;
    assert_eq!(read("a", "app").await, (Some("one".to_owned()), Some(4)));
    assert_eq!(read("a", "other").await, (Some("one".to_owned()), None));
    assert_eq!(read("b", "app").await, (None, Some(4)));
}

/// Text of so many bytes that no compressor makes much of.
fn noise(bytes: usize) -> String {
    let mut state = 7_u64;
    let letters = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(b' ' + u8::try_from((state >> 40) % 95).unwrap())
    });
    letters.take(bytes).collect()
}

async fn a_large_cursor_comes_back_to_the_letter(store: Store<impl Shown>) {
    store.register(&["a"], 0).await;
    let marks: Vec<String> = (0..10_000).map(|number| format!("\"4{number:010}\"")).collect();
    let json = format!("{{\"since\":0,\"marks\":[{}]}}", marks.join(","));
    let cursors = [
        json,
        "ü\u{1f980}".repeat(30_000),
        noise(Cursor::BYTES_MAX - 1),
        noise(Cursor::BYTES_MAX),
        String::new(),
    ];
    for (turn, cursor) in (1_u32..).zip(cursors) {
        let second = i64::from(turn) * 100;
        let lease = store.won("a", second, turn.into()).await;
        let returned = store.give_back(&lease, second + 1, read_to(&cursor, second + 2)).await;
        assert_eq!(returned, Returned::Kept);
        assert!(store.cursor("a").await == Some(cursor), "turn {turn}");
    }
    if let Some(engine) = &store.engine {
        assert_eq!(engine.rows().await.len(), 2, "one row each for claim and cursor");
    }
}
