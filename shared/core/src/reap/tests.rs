//! Sweeps, and what comes of due events.

use super::*;
use crate::delivery::Outcome;
use crate::drive::admittee;
use crate::event::{Event, EventId, Kind};
use crate::ledger::memory::MemoryLedger;
use crate::ledger::{Admission, Limits};
use crate::ports::ErrorClass;
use crate::route::Routing;
use crate::testing::{at, block_on, delivery, event};

/// A ledger with so many events, whose webhooks died one second after the other.
fn ledger_of(count: i64) -> MemoryLedger {
    let ledger = MemoryLedger::new();
    let routing = Routing::default();
    for number in 0..count {
        let id = EventId::new(&format!("e{number:04}"));
        let nonce = Nonce::from_random(number.unsigned_abs());
        let event = Event {
            id: id.clone(),
            ..event(Kind::Comment)
        };
        // The higher the number, the longer ago.
        let admission = Admission {
            delivery: &delivery(&format!("{number:x}"), b"{}", Outcome::Accepted(id)),
            body: b"{}",
            event: Some(admittee(
                event,
                &routing,
                &Limits::default(),
                nonce,
                at(number.saturating_neg()),
            )),
            nonce,
            expires_at: at(86_400),
        };
        block_on(ledger.admit(&admission)).unwrap();
    }
    ledger
}

fn named(sweep: &mut Sweep<'_, MemoryLedger>) -> Vec<String> {
    std::iter::from_fn(|| block_on(sweep.next()))
        .map(|due| due.event.to_string())
        .collect()
}

#[test]
fn a_sweep_names_each_due_event_once_the_oldest_of_all_shards_first() {
    // Invariant 5
    let ledger = ledger_of(100);
    for page_rows in [0, 1, 7, 1_000] {
        let mut sweep = Sweep::new(&ledger, at(35), page_rows);
        let expected: Vec<_> = (0..100).rev().map(|number| format!("e{number:04}")).collect();
        assert_eq!(named(&mut sweep), expected, "{page_rows}");
        assert_eq!(sweep.oldest(), Some(at(-64)));
        assert_eq!(sweep.left(), Left { rows: 0, whole: true });
    }
}

#[test]
fn a_sweep_leaves_what_becomes_due_after_its_beginning() {
    let ledger = ledger_of(10);
    assert_eq!(
        named(&mut Sweep::new(&ledger, at(30), 3)),
        ["e0009", "e0008", "e0007", "e0006", "e0005"]
    );
    assert_eq!(named(&mut Sweep::new(&ledger, at(25), 3)), Vec::<String>::new());
}

#[test]
fn what_a_sweep_did_not_name_is_counted_up_to_a_bound() {
    // Invariant 9
    let ledger = ledger_of(100);
    let left_of = |rows_max| {
        let mut sweep = Sweep::new(&ledger, at(35), 1);
        for _ in 0..10 {
            block_on(sweep.next()).unwrap();
        }
        block_on(sweep.count_left(rows_max));
        sweep.left()
    };
    assert_eq!(left_of(1_000), Left { rows: 90, whole: true });
    let some = left_of(20);
    assert!(!some.whole && (20..90).contains(&some.rows), "{some:?}");
}

#[test]
fn a_tally_counts_each_event_where_it_belongs() {
    let error = |class| LedgerError {
        attempted: "claim event",
        on: "e".to_owned(),
        class,
        source: None,
    };
    let driven = |status, reason, sent| Reaped::Driven { status, reason, sent };
    let mut tally = Tally::default();
    for reaped in [
        driven(Status::Processed, Reason::Delivered, 2),
        driven(Status::Processed, Reason::NoOwner, 0),
        driven(Status::Parked, Reason::Waiting, 0),
        driven(Status::FailedRetryable, Reason::Unreachable, 1),
        driven(Status::FailedPermanent, Reason::TooOld, 0),
        Reaped::LeftAlone(Refused::Missing),
        Reaped::Newer(2),
        Reaped::Poison {
            raised: Raised::Later,
            error: error(ErrorClass::Unreadable),
        },
        Reaped::Poison {
            raised: Raised::Ended,
            error: error(ErrorClass::Unreadable),
        },
        Reaped::Troubled(error(ErrorClass::Throttled)),
    ] {
        tally.add(&reaped);
    }
    let expected = Tally {
        redriven: 5,
        sent: 3,
        parked: 1,
        pending: 1,
        permanent: 2,
        poison: 2,
        newer: 1,
        left_alone: 1,
        troubled: 1,
    };
    assert_eq!((tally, tally.still_due()), (expected, 2));
}

#[test]
fn a_clock_that_is_behind_makes_nothing_older_than_new() {
    assert_eq!(due_seconds(Some(at(10)), at(0)), 0);
    assert_eq!(due_seconds(Some(at(-90)), at(0)), 90);
    assert_eq!(due_seconds(None, at(0)), 0);
}
