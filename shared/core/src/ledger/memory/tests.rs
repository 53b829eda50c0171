//! The ledger in memory, through its port.

use super::*;
use crate::delivery::{Delivery, Ignored};
use crate::drive;
use crate::event::{Event, Kind, Net};
use crate::ledger::{Admittee, Cause, Ending, Limits, Nonce, Reason, Sent, Status, Token};
use crate::ports::Listed;
use crate::route::Routing;
use crate::testing::{at, block_on, days, delivery, event, repository, secs, session};

const BODY: &[u8] = b"{\"a\": 1}";

fn admittee(event: Event, nonce: u64) -> Admittee {
    drive::admittee(
        event,
        &Routing::default(),
        &Limits::default(),
        Nonce::from_random(nonce),
        at(0),
    )
}

fn admit(ledger: &MemoryLedger, delivery: &Delivery, body: &[u8], event: Option<Event>, nonce: u64) -> Admitted {
    let admission = Admission {
        delivery,
        body,
        event: event.map(|event| admittee(event, nonce)),
        nonce: Nonce::from_random(nonce),
        expires_at: Limits::default().delivery_expires_at(at(0)),
    };
    block_on(ledger.admit(&admission)).unwrap()
}

fn accepted(guid: &str) -> Delivery {
    delivery(guid, BODY, Outcome::Accepted(event(Kind::Comment).id))
}

/// A ledger with one comment on a pull request, just admitted by nonce 1.
fn with_comment() -> (MemoryLedger, Lease) {
    let ledger = MemoryLedger::new();
    match admit(&ledger, &accepted("a1"), BODY, Some(event(Kind::Comment)), 1) {
        Admitted::Created { lease: Some(lease) } => (ledger, lease),
        other @ (Admitted::Created { .. } | Admitted::Joined { .. } | Admitted::Duplicate { .. }) => {
            panic!("{other:?}")
        }
    }
}

fn claim_at(now: Timestamp, nonce: u64, cause: Cause) -> Claim {
    Claim {
        now,
        nonce: Nonce::from_random(nonce),
        lease: secs(30),
        skew: secs(5),
        cause,
    }
}

fn settlement(ending: Ending, reason: Reason, waiting_for: Option<OwnerKey>) -> Settlement {
    let status = ending.status();
    Settlement {
        ending,
        reason,
        failures: 0,
        tries: 0,
        due_at: (!status.is_terminal()).then(|| at(600)),
        waiting_for,
        destinations: BTreeMap::from([("reviewer".to_owned(), Sent::Yes)]),
        expires_at: status.is_terminal().then(|| at(86_400)),
    }
}

fn row(ledger: &MemoryLedger) -> EventRow {
    block_on(ledger.event(&event(Kind::Comment).id)).unwrap().unwrap()
}

#[test]
fn a_delivery_and_its_event_become_durable_together_and_byte_for_byte() {
    // S2-03, S3-05
    let (ledger, lease) = with_comment();
    assert_eq!((lease.token(), lease.until()), (Token::FIRST, at(30)));
    let delivery = accepted("a1");
    assert_eq!(block_on(ledger.body(&delivery.key)).unwrap().as_deref(), Some(BODY));
    let kept = block_on(ledger.delivery(&delivery.key)).unwrap().unwrap();
    assert_eq!(kept.delivery, delivery);
    let row = row(&ledger);
    assert_eq!((row.state.status, row.first_seen), (Status::Claimed, Net::Webhook));
    assert_eq!(ledger.counts(), (1, 1));
}

#[test]
fn a_second_copy_is_a_duplicate_and_changes_nothing_of_the_first_ones_owner() {
    // DEDU-05, DEDU-06, S2-05
    let (ledger, _lease) = with_comment();
    let before = row(&ledger);
    let second = admit(&ledger, &accepted("a1"), BODY, Some(event(Kind::Comment)), 2);
    let expected = Admitted::Duplicate {
        conflict: false,
        event: Some(Box::new(before.clone())),
    };
    assert_eq!(second, expected);
    assert_eq!(row(&ledger), before);
    assert_eq!(ledger.counts(), (1, 1));
}

#[test]
fn eight_admissions_at_once_give_one_created_and_one_row() {
    // S2-05, invariant 2
    let ledger = MemoryLedger::new();
    let created = std::thread::scope(|scope| {
        let admissions: Vec<_> = (1..=8)
            .map(|nonce| {
                let ledger = &ledger;
                scope.spawn(move || admit(ledger, &accepted("a1"), BODY, Some(event(Kind::Comment)), nonce))
            })
            .collect();
        let answers = admissions.into_iter().map(|admission| admission.join().unwrap());
        answers
            .filter(|answer| matches!(answer, Admitted::Created { .. }))
            .count()
    });
    assert_eq!((created, ledger.counts()), (1, (1, 1)));
}

#[test]
fn other_bytes_under_a_known_key_are_a_conflict_and_the_first_bytes_stay() {
    // DEDU-08, S2-07
    let (ledger, _lease) = with_comment();
    let other = delivery("a1", b"{}", Outcome::Accepted(event(Kind::Comment).id));
    let answer = admit(&ledger, &other, b"{}", Some(event(Kind::Comment)), 2);
    assert!(
        matches!(answer, Admitted::Duplicate { conflict: true, .. }),
        "{answer:?}"
    );
    assert_eq!(block_on(ledger.body(&other.key)).unwrap().as_deref(), Some(BODY));
}

#[test]
fn another_hooks_copy_is_kept_and_joins_the_event() {
    // Invariant 2: two delivery keys, one event.
    let (ledger, _lease) = with_comment();
    let other_hook = Delivery {
        key: DeliveryKey::parse("43/a1").unwrap(),
        net: Net::Recovery,
        ..accepted("a1")
    };
    let answer = admit(&ledger, &other_hook, BODY, Some(event(Kind::Comment)), 2);
    let row = row(&ledger);
    assert_eq!(
        answer,
        Admitted::Joined {
            event: Some(Box::new(row.clone())),
            is_new_to_net: true
        }
    );
    assert_eq!((row.state.nonce.number(), row.state.token), (1, Token::FIRST));
    assert_eq!(row.seen_by, BTreeSet::from([Net::Webhook, Net::Recovery]));
    assert_eq!(ledger.counts(), (2, 1));
}

#[test]
fn an_admission_recognises_itself_behind_a_lost_answer() {
    // DDBC-01: the same right again, and no second token.
    let (ledger, lease) = with_comment();
    let again = admit(&ledger, &accepted("a1"), BODY, Some(event(Kind::Comment)), 1);
    assert_eq!(again, Admitted::Created { lease: Some(lease) });
}

#[test]
fn a_delivery_that_means_nothing_is_kept_without_an_event() {
    let ledger = MemoryLedger::new();
    let ping = delivery("b2", BODY, Outcome::Ignored(Ignored::Ping));
    assert_eq!(admit(&ledger, &ping, BODY, None, 1), Admitted::Created { lease: None });
    let again = admit(&ledger, &ping, BODY, None, 2);
    let duplicate = Admitted::Duplicate {
        conflict: false,
        event: None,
    };
    assert_eq!(again, duplicate, "S3-05");
    assert_eq!(ledger.counts(), (1, 0));
}

#[test]
fn a_claim_waits_for_the_lease_and_the_earlier_owner_then_settles_nothing() {
    // S2-13, LEAS-01, invariant 4
    let (ledger, paused) = with_comment();
    let id = paused.event().clone();
    let early = block_on(ledger.claim(&id, claim_at(at(30), 2, Cause::Due))).unwrap();
    assert_eq!(early, Claimed::Lost(Refused::Held { until: at(30) }));
    let Claimed::Won { row: won, lease } = block_on(ledger.claim(&id, claim_at(at(36), 3, Cause::Due))).unwrap() else {
        panic!("not claimed")
    };
    assert_eq!((lease.token().number(), won.state.token.number()), (2, 2));
    let done = settlement(Ending::Processed, Reason::Delivered, None);
    let late = block_on(ledger.settle(paused, at(29), done.clone())).unwrap();
    assert_eq!(late, Settled::Lost(Refused::Stale { current: lease.token() }));
    assert_eq!(row(&ledger).state, won.state);
    assert_eq!(block_on(ledger.settle(lease, at(37), done)).unwrap(), Settled::Done);
    assert_eq!(row(&ledger).state.status, Status::Processed);
}

#[test]
fn a_renewed_right_outlasts_the_first_lease() {
    let (ledger, mut lease) = with_comment();
    let id = lease.event().clone();
    let term = Term {
        lease: secs(30),
        skew: secs(5),
    };
    let renewed = block_on(ledger.renew(&mut lease, at(20), term)).unwrap();
    assert_eq!(renewed, Renewed::Kept);
    assert_eq!((lease.until(), lease.token()), (at(50), Token::FIRST));
    let taken = block_on(ledger.claim(&id, claim_at(at(36), 2, Cause::Due))).unwrap();
    assert_eq!(taken, Claimed::Lost(Refused::Held { until: at(50) }));
    let late = block_on(ledger.renew(&mut lease, at(50), term)).unwrap();
    assert_eq!(late, Renewed::Lost(Refused::Lapsed { until: at(50) }), "S2-10");
}

#[test]
fn an_unknown_event_is_missing_and_not_an_error() {
    let ledger = MemoryLedger::new();
    let id = EventId::new("github/comment/404");
    let claimed = block_on(ledger.claim(&id, claim_at(at(0), 1, Cause::Due))).unwrap();
    assert_eq!(claimed, Claimed::Lost(Refused::Missing));
    assert_eq!(block_on(ledger.event(&id)).unwrap(), None);
    let key = DeliveryKey::parse("42/404").unwrap();
    assert_eq!(block_on(ledger.delivery(&key)).unwrap(), None);
    assert_eq!(block_on(ledger.body(&key)).unwrap(), None);
}

#[test]
fn only_terminal_events_and_old_deliveries_expire() {
    // Invariant 5, S2-17
    let (ledger, lease) = with_comment();
    ledger.expire(at(-1) + days(38));
    assert_eq!(ledger.counts(), (1, 1));
    ledger.expire(at(0) + days(38));
    assert_eq!(ledger.counts(), (0, 1));
    ledger.expire(at(0) + days(1_000));
    assert_eq!(ledger.counts(), (0, 1), "however old: it is not terminal");
    let done = settlement(Ending::Processed, Reason::Delivered, None);
    block_on(ledger.settle(lease, at(1), done)).unwrap();
    ledger.expire(at(86_399));
    assert_eq!(ledger.counts(), (0, 1));
    ledger.expire(at(86_400));
    assert_eq!(ledger.counts(), (0, 0));
}

fn pull() -> OwnerKey {
    OwnerKey::pull(&repository("acme/app"), 12)
}

fn branch() -> OwnerKey {
    OwnerKey::branch(&repository("acme/app"), "fix")
}

fn open(ledger: &MemoryLedger, session: &Session, now: Timestamp) -> Opened {
    block_on(ledger.open_session(session, now)).unwrap()
}

fn live(ledger: &MemoryLedger, key: &OwnerKey, now: Timestamp) -> Option<String> {
    let pointers = block_on(ledger.pointers(std::slice::from_ref(key))).unwrap();
    pointers.live_owner(key, now).map(|owner| owner.session.to_string())
}

#[test]
fn one_live_session_owns_a_branch_until_it_closes() {
    let ledger = MemoryLedger::new();
    let first = session("s1", "reviewer", Some("fix"), Some(12));
    assert_eq!(open(&ledger, &first, at(0)), Opened::Live(vec![branch(), pull()]));
    let second = session("s2", "builder", Some("other"), Some(12));
    let held = Opened::Held {
        key: pull(),
        owner: first.owner(),
    };
    assert_eq!(open(&ledger, &second, at(1)), held);
    let other = OwnerKey::branch(&repository("acme/app"), "other");
    assert_eq!(live(&ledger, &other, at(1)), None, "all of its pointers or none");
    let closed = block_on(ledger.close_session(&first.id, at(86_400))).unwrap().unwrap();
    assert_eq!(closed.phase, Phase::Closed);
    assert_eq!(
        (live(&ledger, &branch(), at(2)), live(&ledger, &pull(), at(2))),
        (None, None)
    );
    assert_eq!(open(&ledger, &second, at(2)), Opened::Live(vec![other, pull()]));
}

#[test]
fn a_lapsed_session_frees_what_it_owned_without_closing() {
    let ledger = MemoryLedger::new();
    open(&ledger, &session("s1", "reviewer", None, Some(12)), at(0));
    assert_eq!(live(&ledger, &pull(), at(3_599)).as_deref(), Some("s1"));
    assert_eq!(live(&ledger, &pull(), at(3_600)), None);
    let second = Session {
        live_until: at(7_200),
        ..session("s2", "builder", None, Some(12))
    };
    assert_eq!(open(&ledger, &second, at(3_600)), Opened::Live(vec![pull()]));
    assert!(
        block_on(ledger.close_session(&SessionId::parse("s1").unwrap(), at(86_400)))
            .unwrap()
            .is_some()
    );
    let owner = live(&ledger, &pull(), at(3_601));
    assert_eq!(
        owner.as_deref(),
        Some("s2"),
        "only its own pointers are a session's to remove"
    );
}

#[test]
fn opening_a_session_again_prolongs_it() {
    let ledger = MemoryLedger::new();
    open(&ledger, &session("s1", "reviewer", None, Some(12)), at(0));
    let longer = Session {
        live_until: at(9_000),
        ..session("s1", "reviewer", None, Some(12))
    };
    assert_eq!(open(&ledger, &longer, at(3_000)), Opened::Live(vec![pull()]));
    assert_eq!(live(&ledger, &pull(), at(8_999)).as_deref(), Some("s1"));
    assert_eq!(block_on(ledger.sessions(10)).unwrap(), vec![longer]);
}

#[test]
fn a_branch_brings_the_pull_requests_that_its_pointer_knows_and_names_each_once() {
    let ledger = MemoryLedger::new();
    for number in [12, 5, 7] {
        block_on(ledger.learn(&repository("Acme/App"), "fix", number, Timestamp::UNIX_EPOCH)).unwrap();
    }
    let taken = session("s0", "builder", None, Some(7));
    open(&ledger, &taken, at(0));
    let opened = open(&ledger, &session("s1", "reviewer", Some("fix"), Some(12)), at(0));
    let five = OwnerKey::pull(&repository("acme/app"), 5);
    // 7 is another's already, and was not asked for by name: the session opens without it.
    assert_eq!(opened, Opened::Live(vec![branch(), pull(), five]));
    let seven = OwnerKey::pull(&repository("acme/app"), 7);
    assert_eq!(live(&ledger, &seven, at(1)).as_deref(), Some("s0"));
}

#[test]
fn a_pull_request_of_an_owned_branch_is_pointed_to_its_owner_unless_another_has_it() {
    let ledger = MemoryLedger::new();
    let owner = session("s1", "reviewer", Some("fix"), None).owner();
    assert!(block_on(ledger.own(&pull(), &owner, at(0))).unwrap());
    let other = session("s2", "builder", None, None).owner();
    assert!(!block_on(ledger.own(&pull(), &other, at(1))).unwrap());
    assert!(block_on(ledger.own(&pull(), &other, at(3_600))).unwrap());
}

#[test]
fn closing_an_unknown_session_says_so() {
    let ledger = MemoryLedger::new();
    let id = SessionId::parse("s404").unwrap();
    assert_eq!(block_on(ledger.close_session(&id, at(0))).unwrap(), None);
}

#[test]
fn closed_sessions_are_not_listed_and_the_limit_holds() {
    let ledger = MemoryLedger::new();
    for (id, number) in [("s1", 1), ("s2", 2), ("s3", 3)] {
        open(&ledger, &session(id, "reviewer", None, Some(number)), at(0));
    }
    block_on(ledger.close_session(&SessionId::parse("s1").unwrap(), at(9))).unwrap();
    let listed = |limit| block_on(ledger.sessions(limit)).unwrap();
    let ids: Vec<_> = listed(10).iter().map(|session| session.id.to_string()).collect();
    assert_eq!((ids, listed(1).len()), (vec!["s2".to_owned(), "s3".to_owned()], 1));
}

#[test]
fn parked_events_wait_under_their_key_until_somebody_claims_them() {
    let (ledger, lease) = with_comment();
    let id = lease.event().clone();
    let parked = settlement(Ending::Parked, Reason::Waiting, Some(pull()));
    block_on(ledger.settle(lease, at(1), parked)).unwrap();
    assert_eq!(block_on(ledger.waiting(&pull(), 10)).unwrap(), vec![id.clone()]);
    assert_eq!(block_on(ledger.waiting(&pull(), 0)).unwrap(), vec![]);
    assert_eq!(block_on(ledger.waiting(&branch(), 10)).unwrap(), vec![]);
    block_on(ledger.claim(&id, claim_at(at(2), 2, Cause::OwnerAppeared))).unwrap();
    assert_eq!(block_on(ledger.waiting(&pull(), 10)).unwrap(), vec![]);
}

#[test]
fn listings_are_newest_first_within_their_times_and_their_limit() {
    let ledger = MemoryLedger::new();
    for (guid, second) in [("a", 10), ("b", 30), ("c", 20), ("d", 40)] {
        let id = EventId::new(guid);
        let accepted = Delivery {
            received_at: at(second),
            ..delivery(guid, BODY, Outcome::Accepted(id.clone()))
        };
        let happened = Event {
            id,
            ..event(Kind::Comment)
        };
        admit(&ledger, &accepted, BODY, Some(happened), 1);
        let ignored = Delivery {
            received_at: at(second),
            ..delivery(&format!("{guid}0"), BODY, Outcome::Ignored(Ignored::Ping))
        };
        admit(&ledger, &ignored, BODY, None, 2);
    }
    let listing = |what, limit| Listing {
        what,
        since: at(10),
        until: at(30),
        limit,
    };
    let events = block_on(ledger.events(&listing(Listed::Events, 10))).unwrap();
    let ids: Vec<_> = events.iter().map(|row| row.event.id.as_str()).collect();
    assert_eq!(ids, ["b", "c", "a"]);
    let deliveries = block_on(ledger.deliveries(&listing(Listed::Deliveries, 2))).unwrap();
    let keys: Vec<_> = deliveries.iter().map(|row| row.delivery.key.to_string()).collect();
    assert_eq!(keys, ["42/b0", "42/c0"], "only deliveries that mean no event");
}

#[test]
fn two_reapers_over_twenty_lapsed_rows_win_twenty_claims_together() {
    // LEAS-07, S2-15
    let ledger = MemoryLedger::new();
    let ids: Vec<_> = (0..20).map(|n| EventId::new(&format!("e{n}"))).collect();
    for (id, n) in ids.iter().zip(0..) {
        let delivery = delivery(&format!("{n:x}"), BODY, Outcome::Accepted(id.clone()));
        let happened = Event {
            id: id.clone(),
            ..event(Kind::Comment)
        };
        admit(&ledger, &delivery, BODY, Some(happened), 1);
    }
    let reap = |reaper: u64| {
        let won = ids.iter().zip(reaper..).filter(|(id, nonce)| {
            let claimed = block_on(ledger.claim(id, claim_at(at(60), *nonce, Cause::Due))).unwrap();
            matches!(claimed, Claimed::Won { .. })
        });
        won.count()
    };
    let won = std::thread::scope(|scope| {
        let reapers = [scope.spawn(|| reap(1_000)), scope.spawn(|| reap(2_000))];
        reapers.map(|reaper| reaper.join().unwrap()).iter().sum::<usize>()
    });
    assert_eq!(won, 20);
}

#[test]
fn due_rows_are_spread_over_all_shards_and_a_page_with_the_last_of_them_has_no_next() {
    let ledger = MemoryLedger::new();
    for n in 0..40 {
        let id = EventId::new(&format!("e{n}"));
        let happened = Event {
            id: id.clone(),
            ..event(Kind::Comment)
        };
        let delivery = delivery(&format!("{n:x}"), BODY, Outcome::Accepted(id));
        admit(&ledger, &delivery, BODY, Some(happened), 1);
    }
    let mut found = 0;
    for shard in 0..DUE_SHARDS {
        let page = |until, limit| {
            let query = DueQuery {
                shard,
                until,
                after: None,
                limit,
            };
            block_on(ledger.due(&query)).unwrap()
        };
        let all = page(at(35), 40);
        let rows = all.events.len();
        assert!((2..=8).contains(&rows) && all.next.is_none(), "{all:?}");
        assert_eq!(page(at(35), rows), all);
        let fewer = page(at(35), rows - 1);
        let last = &fewer.events[rows - 2];
        let mark = DueMark {
            due_at: last.due_at,
            key: last.event.to_string(),
        };
        assert_eq!((&fewer.events[..], fewer.next), (&all.events[..rows - 1], Some(mark)));
        assert_eq!(page(at(34), 40), DuePage::default());
        found += rows;
    }
    assert_eq!(found, 40);
}

#[test]
fn an_owner_redacts_what_its_event_came_by_and_nothing_else() {
    // S2-18
    let (ledger, lease) = with_comment();
    let other = EventId::new("github/comment/2");
    let happened = Event {
        id: other.clone(),
        ..event(Kind::Comment)
    };
    admit(
        &ledger,
        &delivery("b2", BODY, Outcome::Accepted(other)),
        BODY,
        Some(happened),
        2,
    );
    for key in ["42/b2", "42/404"].map(|key| DeliveryKey::parse(key).unwrap()) {
        let redacted = block_on(ledger.redact(&lease, &key, at(1))).unwrap();
        assert_eq!(redacted, Redacted::NotItsOwn, "{key}");
    }
    let kept = block_on(ledger.body(&DeliveryKey::parse("42/b2").unwrap())).unwrap();
    assert_eq!(
        (kept.as_deref(), row(&ledger).event),
        (Some(BODY), event(Kind::Comment))
    );
    let key = accepted("a1").key;
    for now in [at(1), at(2)] {
        assert_eq!(block_on(ledger.redact(&lease, &key, now)).unwrap(), Redacted::Done);
    }
    assert_eq!(block_on(ledger.body(&key)).unwrap(), None);
    let kept = block_on(ledger.delivery(&key)).unwrap().unwrap();
    assert_eq!((kept.stored_bytes, kept.redacted_at), (0, Some(at(1))));
    assert_eq!(
        (row(&ledger).event.summary.as_str(), kept.delivery),
        ("", accepted("a1"))
    );
}

#[test]
fn who_is_no_longer_the_owner_redacts_nothing() {
    // S2-18, invariant 4
    let (ledger, lease) = with_comment();
    let key = accepted("a1").key;
    let lapsed = block_on(ledger.redact(&lease, &key, at(30))).unwrap();
    assert_eq!(lapsed, Redacted::Lost(Refused::Lapsed { until: at(30) }));
    let claimed = block_on(ledger.claim(lease.event(), claim_at(at(36), 2, Cause::Due))).unwrap();
    let Claimed::Won { lease: second, .. } = claimed else {
        panic!("{claimed:?}")
    };
    let current = second.token();
    let stale = block_on(ledger.redact(&lease, &key, at(20))).unwrap();
    assert_eq!(stale, Redacted::Lost(Refused::Stale { current }));
    assert_eq!(block_on(ledger.body(&key)).unwrap().as_deref(), Some(BODY));
    assert_eq!(row(&ledger).event, event(Kind::Comment));
    let done = settlement(Ending::Processed, Reason::Delivered, None);
    block_on(ledger.settle(second, at(37), done)).unwrap();
    ledger.expire(at(86_400));
    let gone = block_on(ledger.redact(&lease, &key, at(20))).unwrap();
    assert_eq!(gone, Redacted::Lost(Refused::Missing));
}

#[test]
fn a_closed_session_goes_at_its_time_and_an_open_one_never() {
    let ledger = MemoryLedger::new();
    let [closed, reopened, open_still] = ["s1", "s2", "s3"].map(|id| session(id, "reviewer", None, None));
    for session in [&closed, &reopened, &open_still] {
        open(&ledger, session, at(0));
    }
    for session in [&closed, &reopened] {
        block_on(ledger.close_session(&session.id, at(100))).unwrap();
    }
    open(&ledger, &reopened, at(1));
    let left = |now| {
        ledger.expire(now);
        ledger
            .tables()
            .sessions
            .keys()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    // Looked at before its time too: what was not forgotten then is forgotten later.
    assert_eq!(left(at(50)), ["s1", "s2", "s3"]);
    assert_eq!(left(at(99)), ["s1", "s2", "s3"]);
    assert_eq!(left(at(100)), ["s2", "s3"]);
    assert_eq!(left(at(1_000_000)), ["s2", "s3"], "whoever opens it again keeps it");
}

#[test]
fn a_closed_session_that_is_long_past_its_time_goes_too() {
    let ledger = MemoryLedger::new();
    for (id, expires_at) in [("s1", at(50)), ("s2", at(100))] {
        let closed = session(id, "reviewer", None, None);
        open(&ledger, &closed, at(0));
        block_on(ledger.close_session(&closed.id, expires_at)).unwrap();
    }
    ledger.expire(at(100));
    for id in ["s1", "s2"].map(|id| SessionId::parse(id).unwrap()) {
        assert_eq!(block_on(ledger.close_session(&id, at(200))).unwrap(), None, "{id}");
    }
    assert!(ledger.tables().closed.is_empty(), "and nothing of it is remembered");
}
