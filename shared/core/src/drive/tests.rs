//! Driving against a ledger in memory and inboxes that answer as told.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::delivery::Outcome;
use crate::event::{Kind, Repository, Subject};
use crate::ledger::memory::MemoryLedger;
use crate::ledger::{Admission, Admitted};
use crate::ports::{Due, POINTERS_MAX};
use crate::reap::Reaped;
use crate::route::{IgnoredActors, QueueRoutes, Routes};
use crate::session::{Opened, Session, SessionId};
use crate::testing::{at, block_on, days, delivery, event, repository, secs, session};

/// Everything outside: a ledger, inboxes that answer as told, and a clock that moves when told.
struct World {
    ledger: MemoryLedger,
    routing: Routing,
    limits: Limits,
    now: Mutex<Timestamp>,
    chance: AtomicU64,
    /// What an inbox answers; `sent` where nothing is said.
    answers: Mutex<BTreeMap<String, Sent>>,
    /// How long a send takes.
    send_time: Mutex<SignedDuration>,
    sent: Mutex<Vec<Outgoing>>,
}

impl TimeAndChance for World {
    fn now(&self) -> Timestamp {
        *self.now.lock().unwrap()
    }

    fn random(&self) -> u64 {
        self.chance.fetch_add(1, Ordering::Relaxed)
    }
}

impl Inboxes for World {
    async fn send(&self, messages: Vec<Outgoing>) -> Vec<Sent> {
        self.pass(*self.send_time.lock().unwrap());
        let answers = self.answers.lock().unwrap();
        let answer = |message: &Outgoing| answers.get(&message.inbox).copied().unwrap_or(Sent::Yes);
        let outcomes = messages.iter().map(answer).collect();
        self.sent.lock().unwrap().extend(messages);
        outcomes
    }
}

impl World {
    /// A world with the agents `reviewer` and `builder`, whose routes are `routes`.
    fn new(routes: &str) -> Self {
        let inboxes = ["reviewer", "builder", "dispatcher", "notice"].map(str::to_owned);
        Self {
            ledger: MemoryLedger::new(),
            routing: Routing {
                queues: QueueRoutes::default(),
                routes: Routes::parse(routes, &BTreeSet::from(inboxes)).unwrap(),
                ignored: IgnoredActors::parse("agent-bot[bot]"),
            },
            limits: Limits::default(),
            now: Mutex::new(at(0)),
            chance: AtomicU64::new(1),
            answers: Mutex::default(),
            send_time: Mutex::new(SignedDuration::ZERO),
            sent: Mutex::default(),
        }
    }

    fn driver(&self) -> Driver<'_, MemoryLedger, Self, Self> {
        Driver {
            ledger: &self.ledger,
            inboxes: self,
            time: self,
            routing: &self.routing,
            limits: &self.limits,
        }
    }

    fn pass(&self, span: SignedDuration) {
        let mut now = self.now.lock().unwrap();
        *now = now.saturating_add(span).unwrap();
    }

    fn answer(&self, inbox: &str, sent: Sent) {
        self.answers.lock().unwrap().insert(inbox.to_owned(), sent);
    }

    /// The messages since the last call.
    fn take_sent(&self) -> Vec<Outgoing> {
        std::mem::take(&mut *self.sent.lock().unwrap())
    }

    fn take_inboxes(&self) -> Vec<String> {
        self.take_sent().into_iter().map(|message| message.inbox).collect()
    }

    /// Admits `event` under a delivery of its own; its row and lease, if it needs driving.
    fn admit(&self, event: Event) -> (EventRow, Option<Lease>) {
        let (id, nonce) = (event.id.clone(), self.random());
        let nonce = Nonce::from_random(nonce);
        let now = self.now();
        let admission = Admission {
            delivery: &delivery(&format!("{:x}", nonce.number()), b"{}", Outcome::Accepted(id.clone())),
            body: b"{}",
            event: Some(admittee(event, &self.routing, &self.limits, nonce, now)),
            nonce,
            expires_at: self.limits.delivery_expires_at(now),
        };
        let admitted = block_on(self.ledger.admit(&admission)).unwrap();
        let Admitted::Created { lease } = admitted else {
            panic!("{admitted:?}")
        };
        let mut row = self.row(&id);
        row.admitted_at = now;
        (row, lease)
    }

    /// Admits `event` and drives it, as a webhook does.
    fn take_in(&self, event: Event) -> Driven {
        let (row, lease) = self.admit(event);
        let pointers = block_on(self.ledger.pointers(&pointer_keys(&row.event))).unwrap();
        block_on(self.driver().drive(&row, lease.unwrap(), &pointers)).unwrap()
    }

    /// Drives `id` at its due time, as a reaper does.
    fn drive_when_due(&self, id: &EventId) -> Driven {
        let due_at = self.row(id).state.due_at.unwrap();
        *self.now.lock().unwrap() = due_at.max(self.now());
        block_on(self.driver().claim_and_drive(id, Cause::Due)).unwrap()
    }

    /// Claims `id` at its due time.
    fn claim_when_due(&self, id: &EventId) -> (EventRow, Lease) {
        let due_at = self.row(id).state.due_at.unwrap();
        *self.now.lock().unwrap() = due_at.max(self.now());
        match block_on(self.driver().claim(id, Cause::Due)).unwrap() {
            Claimed::Won { row, lease } => (*row, lease),
            Claimed::Lost(refused) => panic!("{refused:?}"),
        }
    }

    fn row(&self, id: &EventId) -> EventRow {
        block_on(self.ledger.event(id)).unwrap().unwrap()
    }

    /// Opens `session` and wakes what waits for it, as a session's opening does.
    fn open(&self, session: &Session) -> Vec<EventId> {
        let Opened::Live(keys) = block_on(self.ledger.open_session(session, self.now())).unwrap() else {
            panic!("held")
        };
        let mut woken = Vec::new();
        for key in keys {
            for (id, driven) in block_on(self.driver().wake(&key)).unwrap() {
                driven.unwrap();
                woken.push(id);
            }
        }
        woken
    }
}

fn settled<const N: usize>(status: Status, reason: Reason, sent_to: [&str; N]) -> Driven {
    Driven::Settled {
        status,
        reason,
        sent_to: sent_to.map(str::to_owned).into(),
    }
}

fn comment() -> Event {
    event(Kind::Comment)
}

#[test]
fn an_event_goes_to_its_inbox_and_is_processed() {
    let world = World::new("acme/app=reviewer");
    let driven = world.take_in(comment());
    assert_eq!(driven, settled(Status::Processed, Reason::Delivered, ["reviewer"]));
    let state = world.row(&comment().id).state;
    assert_eq!((state.failures, state.tries, state.due_at), (0, 0, None));
    assert_eq!(state.expires_at, Some(at(0) + days(35)));
    assert_eq!(state.destinations, BTreeMap::from([("reviewer".to_owned(), Sent::Yes)]));
}

#[test]
fn a_message_carries_event_id_and_token_and_its_group_is_the_subject() {
    // Invariant 3, LEAS-01
    let world = World::new("acme/app=reviewer");
    world.take_in(comment());
    let [message] = &world.take_sent()[..] else {
        panic!("not one message")
    };
    for body in [&message.body, &message.reference] {
        let envelope: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(envelope["id"], "github/comment/1");
        assert_eq!(envelope["data"]["token"], 1, "{body}");
    }
    assert_eq!(
        (message.inbox.as_str(), message.group.as_str()),
        ("reviewer", "acme/app#12")
    );
}

#[test]
fn only_the_unreachable_destination_is_sent_to_again() {
    // Invariant 3, S3-14
    let world = World::new("acme/app#12=builder");
    world.open(&session("s1", "reviewer", None, Some(12)));
    world.answer("builder", Sent::Unreachable);
    let driven = world.take_in(comment());
    assert_eq!(
        driven,
        settled(Status::FailedRetryable, Reason::Unreachable, ["reviewer"])
    );
    let first: Vec<_> = world.take_sent();
    assert_eq!(first.len(), 2);

    world.answer("builder", Sent::Yes);
    let driven = world.drive_when_due(&comment().id);
    assert_eq!(driven, settled(Status::Processed, Reason::Delivered, ["builder"]));
    let [again] = &world.take_sent()[..] else {
        panic!("not one message")
    };
    let before = first.iter().find(|message| message.inbox == "builder").unwrap();
    assert_eq!(again.deduplication, before.deduplication);
    let token = |message: &Outgoing| message.body.contains("\"token\":2");
    assert_eq!((token(before), token(again)), (false, true), "LEAS-01");
}

#[test]
fn trouble_of_a_destinations_surroundings_leaves_the_event_due_and_counts_no_failure() {
    // A shed destination among them: its work is kept.
    for outcome in [Sent::Unreachable, Sent::Throttled, Sent::Denied, Sent::Shed] {
        let world = World::new("acme/app#12=builder");
        world.answer("builder", outcome);
        let driven = world.take_in(comment());
        assert_eq!(
            driven,
            settled(Status::FailedRetryable, Reason::Unreachable, []),
            "{outcome}"
        );
        let row = world.row(&comment().id);
        assert_eq!((row.state.failures, row.state.destinations["builder"]), (0, outcome));
        world.answer("builder", Sent::Yes);
        let driven = world.drive_when_due(&comment().id);
        assert_eq!(driven, settled(Status::Processed, Reason::Delivered, ["builder"]));
    }
}

#[test]
fn resends_share_a_deduplication_id_and_each_inbox_event_and_generation_has_its_own() {
    // Invariant 3, SQSS-05
    let (id, other) = (EventId::new("github/comment/1"), EventId::new("github/comment/2"));
    assert_eq!(deduplication(&id, "reviewer", 0), deduplication(&id, "reviewer", 0));
    let distinct = BTreeSet::from([
        deduplication(&id, "reviewer", 0),
        deduplication(&id, "reviewer", 1),
        deduplication(&id, "builder", 0),
        deduplication(&other, "reviewer", 0),
    ]);
    assert_eq!(distinct.len(), 4);
}

#[test]
fn two_routes_to_one_inbox_send_once() {
    let world = World::new("acme/app=reviewer");
    world.open(&session("s1", "reviewer", None, Some(12)));
    world.take_in(comment());
    assert_eq!(world.take_inboxes(), ["reviewer"]);
}

#[test]
fn a_rejected_message_counts_failures_and_ends_at_the_ceiling() {
    // S2-11: retryable, then permanent, in the row and not as an error.
    let world = World::new("acme/app=reviewer");
    world.answer("reviewer", Sent::Rejected);
    let mut driven = world.take_in(comment());
    for failures in 1..world.limits.failures_max {
        assert_eq!(driven, settled(Status::FailedRetryable, Reason::Failed, []));
        assert_eq!(world.row(&comment().id).state.failures, failures);
        driven = world.drive_when_due(&comment().id);
    }
    assert_eq!(driven, settled(Status::FailedPermanent, Reason::TooManyFailures, []));
    let state = world.row(&comment().id).state;
    assert_eq!((state.failures, state.due_at), (world.limits.failures_max, None));
    assert_eq!(
        (state.status, state.reason),
        (Status::FailedPermanent, Some(Reason::TooManyFailures))
    );
    assert_eq!(world.take_sent().len(), 8);
    assert!(
        world.now() < at(0) + world.limits.age_max,
        "before its age could end it"
    );
}

#[test]
fn an_unreachable_inbox_never_counts_failures_and_ends_only_by_age() {
    let world = World::new("acme/app=reviewer");
    world.answer("reviewer", Sent::Unreachable);
    let mut driven = world.take_in(comment());
    let mut tries = 1;
    while driven == settled(Status::FailedRetryable, Reason::Unreachable, []) {
        assert_eq!(world.row(&comment().id).state.failures, 0);
        assert!(world.now() < at(0) + days(3));
        driven = world.drive_when_due(&comment().id);
        tries += 1;
    }
    assert_eq!(driven, settled(Status::FailedPermanent, Reason::TooOld, []));
    assert!(world.now() >= at(0) + days(3));
    assert!(tries > world.limits.failures_max && tries < 200, "{tries} tries");
}

#[test]
fn an_event_that_is_always_postponed_ends_by_its_age_too() {
    let world = World::new("acme/app=reviewer");
    let (row, lease) = world.admit(comment());
    let mut driven = block_on(world.driver().postpone(&row, lease.unwrap())).unwrap();
    while driven == settled(Status::FailedRetryable, Reason::Unreachable, []) {
        assert!(world.now() < at(0) + days(3), "it never ends");
        let (row, lease) = world.claim_when_due(&comment().id);
        driven = block_on(world.driver().postpone(&row, lease)).unwrap();
        assert_eq!(world.row(&comment().id).state.failures, 0);
    }
    assert_eq!(driven, settled(Status::FailedPermanent, Reason::TooOld, []));
    assert!(world.row(&comment().id).state.expires_at.is_some());
}

#[test]
fn an_event_whose_lease_is_always_too_short_ends_by_its_age_too() {
    let world = World::new("acme/app=reviewer");
    world.admit(comment());
    world.pass(days(3));
    let (row, lease) = world.claim_when_due(&comment().id);
    world.pass(world.limits.lease - SEND_TIME_MAX + SignedDuration::from_millis(1));
    let driven = block_on(world.driver().drive(&row, lease, &Pointers::default())).unwrap();
    assert_eq!(driven, settled(Status::FailedPermanent, Reason::TooOld, []));
    assert_eq!(world.take_inboxes(), Vec::<String>::new());
}

#[test]
fn two_spellings_of_one_repository_make_one_group() {
    // GitHub's names do not depend on case, and what happens to one subject arrives in the order of sending.
    let world = World::new("");
    for (id, name) in [("github/comment/1", "acme/app"), ("github/comment/2", "Acme/App")] {
        world.open(&session("s1", "reviewer", None, Some(12)));
        let subject = Subject::PullRequest {
            repository: repository(name),
            number: 12,
        };
        let id = EventId::new(id);
        world.take_in(Event {
            id,
            subject,
            ..comment()
        });
    }
    let groups: Vec<String> = world.take_sent().into_iter().map(|message| message.group).collect();
    assert_eq!(groups, ["acme/app#12", "acme/app#12"]);
}

#[test]
fn an_inbox_that_gives_no_answer_has_not_got_the_message() {
    // Fewer outcomes than messages: what is not said to be sent is sent again. Invariant 3.
    let row = World::new("acme/app=reviewer").admit(comment()).0;
    let plan = Plan::Send(BTreeSet::from(["reviewer".to_owned()]));
    let settlement = settlement(
        &row,
        &plan,
        BTreeMap::new(),
        &Limits::default(),
        Nonce::from_random(1),
        at(0),
    );
    assert_eq!(
        (settlement.ending, settlement.reason),
        (Ending::FailedRetryable, Reason::Unreachable)
    );
}

#[test]
fn every_owner_that_died_counts_as_a_failure_the_admitting_one_too() {
    // S2-13, S2-15, invariant 5
    let world = World::new("acme/app=reviewer");
    let (row, _dead) = world.admit(comment());
    for lapses in 1..8 {
        let due_at = world.row(&row.event.id).state.due_at.unwrap();
        *world.now.lock().unwrap() = due_at + secs(1);
        let claimed = block_on(world.driver().claim(&row.event.id, Cause::Due)).unwrap();
        let Claimed::Won { row, lease } = claimed else {
            panic!("{claimed:?}")
        };
        assert_eq!(lease.until(), world.now() + world.limits.lease);
        assert_eq!(earlier_failures(&row), lapses);
    }
    world.pass(secs(60));
    let driven = block_on(world.driver().claim_and_drive(&row.event.id, Cause::Due)).unwrap();
    assert_eq!(driven, settled(Status::FailedPermanent, Reason::TooManyFailures, []));
    assert_eq!(
        world.take_inboxes(),
        Vec::<String>::new(),
        "nothing is sent past the ceiling"
    );
}

#[test]
fn a_driven_event_that_succeeds_after_a_lapse_keeps_its_count() {
    let world = World::new("acme/app=reviewer");
    let (row, _dead) = world.admit(comment());
    world.pass(secs(36));
    let driven = block_on(world.driver().claim_and_drive(&row.event.id, Cause::Due)).unwrap();
    assert_eq!(driven, settled(Status::Processed, Reason::Delivered, ["reviewer"]));
    assert_eq!(world.row(&row.event.id).state.failures, 1);
}

#[test]
fn a_claim_that_lost_takes_the_time_anew_when_it_is_made_again() {
    // S2-08: contention never shortens the lease of whoever wins in the end.
    let world = World::new("acme/app=reviewer");
    let (row, _dead) = world.admit(comment());
    let held = Refused::Held {
        until: world.now() + world.limits.lease,
    };
    let claim = || block_on(world.driver().claim(&row.event.id, Cause::Due)).unwrap();
    for _ in 0..2 {
        assert_eq!(claim(), Claimed::Lost(held));
        world.pass(secs(18));
    }
    let Claimed::Won { lease, .. } = claim() else {
        panic!("lease and skew are over")
    };
    assert_eq!(lease.until(), world.now() + world.limits.lease);
}

#[test]
fn a_comment_that_nobody_owns_is_parked_and_woken_by_an_opening_session() {
    // S3-10, S3-24
    let world = World::new("");
    assert_eq!(world.take_in(comment()), settled(Status::Parked, Reason::Waiting, []));
    let parked = world.row(&comment().id).state;
    let key = OwnerKey::pull(&repository("acme/app"), 12);
    assert_eq!((parked.waiting_for, parked.failures), (Some(key), 0));
    world.pass(secs(1));
    let woken = world.open(&session("s1", "reviewer", None, Some(12)));
    assert_eq!(woken, [comment().id]);
    assert_eq!(world.take_inboxes(), ["reviewer"]);
    assert_eq!(world.row(&comment().id).state.status, Status::Processed);
}

#[test]
fn a_session_for_a_branch_wakes_what_waits_for_its_pull_request() {
    let world = World::new("");
    world.take_in(comment());
    block_on(
        world
            .ledger
            .learn(&repository("acme/app"), "fix", 12, Timestamp::UNIX_EPOCH),
    )
    .unwrap();
    let woken = world.open(&session("s1", "reviewer", Some("fix"), None));
    assert_eq!(woken, [comment().id]);
}

#[test]
fn a_session_that_opens_between_the_look_and_the_parking_still_gets_the_event() {
    let world = World::new("");
    let (row, lease) = world.admit(comment());
    let pointers = block_on(world.ledger.pointers(&pointer_keys(&row.event))).unwrap();
    // It looks for waiting events and finds none: this one is not parked yet.
    assert_eq!(world.open(&session("s1", "reviewer", None, Some(12))), []);
    let driven = block_on(world.driver().drive(&row, lease.unwrap(), &pointers)).unwrap();
    assert_eq!(driven, settled(Status::Processed, Reason::Delivered, ["reviewer"]));
    assert_eq!(world.row(&comment().id).state.token.number(), 2);
}

#[test]
fn a_parked_event_that_nobody_came_for_ends_as_no_owner_after_its_parking_time() {
    let world = World::new("");
    let mut driven = world.take_in(comment());
    let mut looks = 0;
    while driven == settled(Status::Parked, Reason::Waiting, []) {
        assert!(world.row(&comment().id).state.due_at.unwrap() <= at(0) + days(3));
        driven = world.drive_when_due(&comment().id);
        looks += 1;
    }
    assert_eq!(driven, settled(Status::Processed, Reason::NoOwner, []));
    assert_eq!(world.now(), at(0) + days(3));
    assert!(looks <= 6, "{looks} looks for one parked event");
}

#[test]
fn a_woken_event_wakes_once_however_many_ask() {
    let world = World::new("");
    world.take_in(comment());
    let session = session("s1", "reviewer", None, Some(12));
    block_on(world.ledger.open_session(&session, world.now())).unwrap();
    let first = block_on(world.driver().claim_and_drive(&comment().id, Cause::OwnerAppeared)).unwrap();
    let second = block_on(world.driver().claim_and_drive(&comment().id, Cause::OwnerAppeared)).unwrap();
    assert_eq!(first, settled(Status::Processed, Reason::Delivered, ["reviewer"]));
    assert_eq!(second, Driven::Lost(Refused::Terminal(Status::Processed)), "S2-09");
}

#[test]
fn what_a_lagging_list_still_names_as_due_is_left_alone_and_not_sent_again() {
    // DDBL-03
    let world = World::new("acme/app=reviewer");
    world.take_in(comment());
    let other = Event {
        id: EventId::new("github/comment/2"),
        ..comment()
    };
    let (held, _lease) = world.admit(other);
    world.take_sent();
    let before = [comment().id, held.event.id].map(|id| (world.row(&id), id));
    let refused = [
        Refused::Terminal(Status::Processed),
        Refused::Held {
            until: at(0) + world.limits.lease,
        },
    ];
    for ((row, id), refused) in before.into_iter().zip(refused) {
        let due = Due {
            due_at: at(-60),
            event: id.clone(),
        };
        let reaped = block_on(world.driver().reap(&due, Nonce::from_random(99)));
        assert!(matches!(reaped, Reaped::LeftAlone(why) if why == refused), "{reaped:?}");
        assert_eq!(world.row(&id), row);
    }
    assert_eq!(world.take_inboxes(), Vec::<String>::new());
}

#[test]
fn an_appearing_owner_wakes_a_bounded_number_at_once() {
    // Invariant 9
    let world = World::new("");
    for n in 0..=WOKEN_MAX {
        world.take_in(Event {
            id: EventId::new(&format!("github/comment/{n}")),
            ..comment()
        });
    }
    assert_eq!(world.open(&session("s1", "reviewer", None, Some(12))).len(), WOKEN_MAX);
    assert_eq!(world.take_sent().len(), WOKEN_MAX);
}

#[test]
fn what_nobody_could_want_is_settled_by_its_admission() {
    let check = |event: Event, reason: Reason| {
        let world = World::new("acme/app=reviewer");
        let (row, lease) = world.admit(event);
        assert_eq!(lease, None, "{reason}");
        assert_eq!((row.state.status, row.state.reason), (Status::Processed, Some(reason)));
        assert_eq!(
            (row.state.token, row.state.due_at, row.state.failures),
            (Token::NONE, None, 0)
        );
        assert_eq!(row.state.lease_until, None, "nobody holds it");
        assert_eq!(row.state.expires_at, Some(at(0) + days(35)));
    };
    check(event(Kind::Push), Reason::Unrouted);
    let by_agent = Event {
        actor: Some("Agent-Bot[bot]".to_owned()),
        ..comment()
    };
    check(by_agent, Reason::Silenced);
    let old = |happened| Event {
        occurred_at: Some(happened),
        ..comment()
    };
    check(old(at(-1) - days(33)), Reason::Stale);
    let world = World::new("acme/app=reviewer");
    assert!(
        world.admit(old(at(0) - days(33))).1.is_some(),
        "the cut-off itself is not stale"
    );
}

#[test]
fn an_event_that_comes_back_after_its_row_expired_is_stale() {
    // DDBL-09, LEAS-08
    let world = World::new("acme/app=reviewer");
    let driven = world.take_in(comment());
    assert_eq!(driven, settled(Status::Processed, Reason::Delivered, ["reviewer"]));
    world.pass(days(35));
    world.ledger.expire(world.now());
    assert_eq!(block_on(world.ledger.event(&comment().id)).unwrap(), None);
    let (row, lease) = world.admit(comment());
    assert_eq!((row.state.reason, lease), (Some(Reason::Stale), None));
    assert_eq!(world.take_inboxes(), ["reviewer"], "once, in its first life");
}

#[test]
fn no_send_starts_with_less_lease_left_than_a_send_may_take() {
    let world = World::new("acme/app=reviewer");
    let (row, lease) = world.admit(comment());
    world.pass(world.limits.lease - SEND_TIME_MAX + SignedDuration::from_millis(1));
    let driven = block_on(world.driver().drive(&row, lease.unwrap(), &Pointers::default())).unwrap();
    assert_eq!(driven, settled(Status::FailedRetryable, Reason::Unreachable, []));
    assert_eq!(world.take_inboxes(), Vec::<String>::new());
    let state = world.row(&comment().id).state;
    assert_eq!(
        (state.due_at, state.failures),
        (Some(world.now()), 0),
        "at once, by a fresh lease"
    );
    let driven = world.drive_when_due(&comment().id);
    assert_eq!(driven, settled(Status::Processed, Reason::Delivered, ["reviewer"]));
}

#[test]
fn a_send_starts_with_just_as_much_lease_left_as_it_may_take() {
    let world = World::new("acme/app=reviewer");
    let (row, lease) = world.admit(comment());
    world.pass(world.limits.lease - SEND_TIME_MAX);
    let driven = block_on(world.driver().drive(&row, lease.unwrap(), &Pointers::default())).unwrap();
    assert_eq!(driven, settled(Status::Processed, Reason::Delivered, ["reviewer"]));
}

#[test]
fn what_every_inbox_has_is_settled_however_little_of_the_lease_is_left() {
    // No send begins, so no time is wanted for one.
    let world = World::new("acme/app=reviewer");
    let (mut row, lease) = world.admit(comment());
    row.state.destinations.insert("reviewer".to_owned(), Sent::Yes);
    world.pass(world.limits.lease - SignedDuration::from_millis(1));
    let driven = block_on(world.driver().drive(&row, lease.unwrap(), &Pointers::default())).unwrap();
    assert_eq!(driven, settled(Status::Processed, Reason::Delivered, []));
    assert_eq!(world.take_inboxes(), Vec::<String>::new());
}

#[test]
fn a_send_that_outlasts_the_lease_is_not_recorded_and_its_repeat_carries_the_same_deduplication_id() {
    // Invariants 3 and 4, DEDU-12
    let world = World::new("acme/app=reviewer");
    *world.send_time.lock().unwrap() = secs(50);
    let driven = world.take_in(comment());
    assert_eq!(driven, Driven::Lost(Refused::Lapsed { until: at(30) }));
    *world.send_time.lock().unwrap() = secs(0);
    let driven = world.drive_when_due(&comment().id);
    assert_eq!(driven, settled(Status::Processed, Reason::Delivered, ["reviewer"]));
    let [first, second] = &world.take_sent()[..] else {
        panic!("not two messages")
    };
    assert_eq!(first.deduplication, second.deduplication);
}

#[test]
fn a_session_that_closes_does_not_unsend() {
    let world = World::new("acme/app=builder");
    world.open(&session("s1", "reviewer", None, Some(12)));
    world.answer("builder", Sent::Unreachable);
    world.take_in(comment());
    block_on(world.ledger.close_session(&SessionId::parse("s1").unwrap(), at(9))).unwrap();
    world.answer("builder", Sent::Yes);
    let driven = world.drive_when_due(&comment().id);
    assert_eq!(driven, settled(Status::Processed, Reason::Delivered, ["builder"]));
    let sent = world.row(&comment().id).state.destinations;
    assert!(sent.values().all(|outcome| *outcome == Sent::Yes) && sent.len() == 2);
}

#[test]
fn what_a_closed_sessions_inbox_has_is_not_parked_for_another() {
    // The send went out, its record did not, and then the session closed.
    let world = World::new("");
    let (mut row, lease) = world.admit(comment());
    row.state.destinations.insert("reviewer".to_owned(), Sent::Yes);
    let driven = block_on(world.driver().drive(&row, lease.unwrap(), &Pointers::default())).unwrap();
    assert_eq!(driven, settled(Status::Processed, Reason::Delivered, []));
    assert_eq!(world.take_inboxes(), Vec::<String>::new());
}

#[test]
fn an_unsent_event_of_a_closed_session_waits_for_the_next_one() {
    let world = World::new("");
    world.open(&session("s1", "reviewer", None, Some(12)));
    world.answer("reviewer", Sent::Unreachable);
    world.take_in(comment());
    block_on(world.ledger.close_session(&SessionId::parse("s1").unwrap(), at(9))).unwrap();
    assert_eq!(
        world.drive_when_due(&comment().id),
        settled(Status::Parked, Reason::Waiting, [])
    );
    assert_eq!(world.open(&session("s2", "builder", None, Some(12))), [comment().id]);
    let state = world.row(&comment().id).state;
    assert_eq!(
        state.reason,
        Some(Reason::Delivered),
        "reviewer is no destination any more"
    );
}

#[test]
fn a_check_that_names_more_pull_requests_than_are_read_waits_for_its_subject() {
    // Invariant 9: the reads are bounded; the subject's is among them, or its owner would wake the event in vain.
    let failed = Event {
        pull_requests: (12..500).collect(),
        branch: Some("fix".to_owned()),
        ..event(Kind::CheckFailure)
    };
    let keys = pointer_keys(&failed);
    let subject = OwnerKey::pull(&repository("acme/app"), 12);
    assert_eq!(keys.len(), POINTERS_MAX);
    assert_eq!(keys.first(), Some(&OwnerKey::branch(&repository("acme/app"), "fix")));
    assert_eq!(keys.last(), Some(&subject));
    let world = World::new("");
    let id = failed.id.clone();
    assert_eq!(world.take_in(failed), settled(Status::Parked, Reason::Waiting, []));
    assert_eq!(world.row(&id).state.waiting_for, Some(subject));
    world.open(&session("s1", "reviewer", None, Some(12)));
    assert_eq!(world.take_inboxes(), ["reviewer"]);
}

#[test]
fn fifo_ids_fit_sqs_whatever_the_repository_is_called() {
    // S2-06, SQSS-05
    let long = format!("acme/{}", "a".repeat(300));
    for name in ["acme/app", "äcme/äpp", "acme/🚀", "a/\u{202E}b", &long, "acme/a\"b'c{}"] {
        let world = World::new("");
        world.open(&Session {
            repository: repository(name),
            ..session("s1", "reviewer", None, Some(12))
        });
        let subject = Subject::PullRequest {
            repository: Repository::new(name).unwrap(),
            number: 12,
        };
        world.take_in(Event { subject, ..comment() });
        let [message] = &world.take_sent()[..] else {
            panic!("{name}: not one message")
        };
        for id in [&message.group, &message.deduplication] {
            assert!((1..=128).contains(&id.len()), "{name}: {id}");
            assert!(id.bytes().all(|byte| byte.is_ascii_graphic()), "{name}: {id}");
        }
    }
    assert_ne!(fifo_id(&long), fifo_id(&format!("{long}a")), "two subjects, two groups");
    assert_eq!(fifo_id("").len(), 64);
}

#[test]
fn one_event_that_is_somebody_elses_does_not_stop_the_others_from_waking() {
    // Invariant 10
    let world = World::new("");
    let ids = [1, 2, 3].map(|n| EventId::new(&format!("github/comment/{n}")));
    for id in &ids {
        let id = id.clone();
        world.take_in(Event { id, ..comment() });
    }
    let key = OwnerKey::pull(&repository("acme/app"), 12);
    block_on(
        world
            .ledger
            .open_session(&session("s1", "reviewer", None, Some(12)), at(0)),
    )
    .unwrap();
    let listed = block_on(world.ledger.waiting(&key, 10)).unwrap();
    assert_eq!(listed.len(), 3);
    world.answer("reviewer", Sent::Rejected);
    let woken = block_on(world.driver().wake(&key)).unwrap();
    let failed = settled(Status::FailedRetryable, Reason::Failed, []);
    assert!(woken.iter().all(|(_, driven)| driven.as_ref().unwrap() == &failed) && woken.len() == 3);
}

/// An event that a queue said, about a group of its own.
fn said(name: &str) -> Event {
    Event {
        id: EventId::new(&format!("sqs/q/{name}")),
        subject: Subject::Group {
            queue: "q".to_owned(),
            name: name.to_owned(),
        },
        content: Some(Content::Here(format!("{{\"id\":\"{name}\"}}"))),
        ..event(Kind::QueueMessage)
    }
}

#[test]
fn events_that_are_driven_together_go_out_in_one_send_and_end_each_by_itself() {
    // Invariant 10
    let world = World::new("acme/app=builder");
    // Too little of this one's lease is left for a send.
    let (late, late_lease) = world.admit(said("late"));
    world.pass(world.limits.lease - SEND_TIME_MAX + SignedDuration::from_millis(1));
    let comment = Event {
        id: EventId::new("github/comment/1"),
        ..comment()
    };
    world.answer("builder", Sent::Unreachable);
    let claimed = [said("a"), comment, said("b")].map(|event| {
        let (row, lease) = world.admit(event);
        (row, lease.unwrap())
    });
    let [a, comment, b] = claimed;
    let driving = world.driver();
    let driven = block_on(driving.drive_all(vec![a, (late, late_lease.unwrap()), comment, b]));
    let driven: Vec<Driven> = driven.into_iter().map(Result::unwrap).collect();
    let delivered = || settled(Status::Processed, Reason::Delivered, ["dispatcher"]);
    let later = || settled(Status::FailedRetryable, Reason::Unreachable, []);
    assert_eq!(driven, [delivered(), later(), later(), delivered()], "in their order");
    let sent: Vec<String> = world.take_sent().into_iter().map(|message| message.group).collect();
    assert_eq!(sent, ["q#a", "acme/app#12", "q#b"], "and nothing of what was late");
    assert!(block_on(driving.drive_all(Vec::new())).is_empty());
}
