//! The whole table, and the sentences that matter most in it.

use std::fmt::Write as _;

use super::*;
use crate::event::EventId;
use crate::ledger::Lease;
use crate::session::OwnerKey;
use crate::testing::{at, repository, secs};

const A: Nonce = Nonce::from_random(0xA);
const B: Nonce = Nonce::from_random(0xB);
const C: Nonce = Nonce::from_random(0xC);
const SKEW: SignedDuration = SignedDuration::from_secs(5);
const LEASE: SignedDuration = SignedDuration::from_secs(30);

/// A row that A claimed with token 4, its third failure if nothing else is said.
fn claimed(lease_until: impl Into<Option<Timestamp>>) -> State {
    let lease_until = lease_until.into();
    State {
        status: Status::Claimed,
        reason: None,
        token: Token::from_number(4),
        nonce: A,
        lease_until,
        failures: 3,
        tries: 1,
        due_at: lease_until.map(|until| later(until, SKEW)),
        waiting_for: None,
        destinations: BTreeMap::from([("reviewer".to_owned(), Sent::Yes)]),
        generation: 1,
        expires_at: None,
    }
}

fn settled(status: Status, due_at: Option<Timestamp>) -> State {
    State {
        status,
        reason: Some(Reason::Failed),
        failures: 2,
        due_at,
        waiting_for: (status == Status::Parked).then(|| OwnerKey::pull(&repository("acme/app"), 12)),
        expires_at: status.is_terminal().then(|| at(86_400)),
        ..claimed(None)
    }
}

fn received() -> State {
    State {
        reason: None,
        token: Token::NONE,
        nonce: Nonce::from_random(0),
        failures: 0,
        tries: 0,
        ..settled(Status::Received, Some(at(0)))
    }
}

fn settlement(ending: Ending) -> Settlement {
    let status = ending.status();
    Settlement {
        ending,
        reason: Reason::Failed,
        failures: 2,
        tries: 2,
        due_at: (!status.is_terminal()).then(|| at(60)),
        waiting_for: (status == Status::Parked).then(|| OwnerKey::pull(&repository("acme/app"), 12)),
        destinations: BTreeMap::from([("reviewer".to_owned(), Sent::Yes)]),
        expires_at: status.is_terminal().then(|| at(86_400)),
    }
}

fn claim(nonce: Nonce, cause: Cause) -> Step {
    claim_at(at(0), nonce, cause)
}

fn claim_at(now: Timestamp, nonce: Nonce, cause: Cause) -> Step {
    Step::Claim(Claim {
        now,
        nonce,
        lease: LEASE,
        skew: SKEW,
        cause,
    })
}

fn settle(ending: Ending, token: u64, nonce: Nonce) -> Step {
    Step::Settle(Settle {
        now: at(0),
        token: Token::from_number(token),
        nonce,
        settlement: settlement(ending),
    })
}

fn renew(token: u64, nonce: Nonce) -> Step {
    Step::Renew(Renew {
        now: at(0),
        token: Token::from_number(token),
        nonce,
        term: Term {
            lease: LEASE,
            skew: SKEW,
        },
    })
}

fn raise(nonce: Nonce, seen: Timestamp) -> Step {
    Step::Raise(Raise {
        now: at(0),
        seen,
        nonce,
        wait_min: secs(15),
        wait_max: secs(3_600),
        failures_max: 4,
        expires_at: at(86_400),
    })
}

fn refused(state: &State, step: &Step) -> Option<Refused> {
    match transition(Some(state), step) {
        Verdict::Refused(refused) => Some(refused),
        Verdict::Applied(_) | Verdict::Already => None,
    }
}

#[track_caller]
fn applied(state: &State, step: &Step) -> State {
    match transition(Some(state), step) {
        Verdict::Applied(state) => state,
        other @ (Verdict::Already | Verdict::Refused(_)) => panic!("{other:?}"),
    }
}

/// `at` as `T`, `T+30` or `T-5.001`: all steps of the table are taken at T.
fn shown(instant: Timestamp) -> String {
    let ms = instant.duration_since(at(0)).as_millis();
    if instant == Timestamp::MIN {
        return "no time".to_owned();
    }
    match (ms, ms % 1_000) {
        (0, _) => "T".to_owned(),
        (_, 0) => format!("T{:+}", ms / 1_000),
        (_, _) => format!("T{:+.3}", ms as f64 / 1_000.0),
    }
}

fn shown_state(state: &State) -> String {
    let nonce = match state.nonce {
        A => "A",
        C => "C",
        _ => "-",
    };
    let mut text = format!("{} token {} {nonce}", state.status, state.token);
    let times = [
        ("lease", state.lease_until),
        ("due", state.due_at),
        ("expires", state.expires_at),
    ];
    for (name, time) in times {
        if let Some(time) = time {
            write!(text, " {name} {}", shown(time)).unwrap();
        }
    }
    write!(text, " failures {} tries {}", state.failures, state.tries).unwrap();
    if state.waiting_for.is_some() {
        text.push_str(" waiting");
    }
    text
}

fn shown_verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Applied(state) => shown_state(state),
        Verdict::Already => "already".to_owned(),
        Verdict::Refused(Refused::Held { until }) => format!("refused: held until {}", shown(*until)),
        Verdict::Refused(Refused::NotDue { due_at }) => format!("refused: not due before {}", shown(*due_at)),
        Verdict::Refused(Refused::Lapsed { until }) => format!("refused: lease ended at {}", shown(*until)),
        Verdict::Refused(refused) => format!("refused: {refused}"),
    }
}

/// Every status in every situation of its lease or due time, with every step.
fn table() -> String {
    let ended_ms_ago = |ms| at(-5).saturating_sub(SignedDuration::from_millis(ms)).unwrap();
    let states = [
        None,
        Some(received()),
        Some(claimed(at(10))),
        Some(claimed(at(0))),
        Some(claimed(at(-5))),
        Some(claimed(ended_ms_ago(1))),
        Some(claimed(at(-600))),
        Some(claimed(None)),
        Some(settled(Status::FailedRetryable, Some(at(10)))),
        Some(settled(Status::FailedRetryable, Some(at(0)))),
        Some(settled(Status::FailedRetryable, None)),
        Some(settled(Status::Parked, Some(at(10)))),
        Some(settled(Status::Parked, Some(at(0)))),
        Some(settled(Status::Processed, None)),
        Some(settled(Status::FailedPermanent, None)),
    ];
    let steps = [
        ("claim as C, due", claim(C, Cause::Due)),
        ("claim as C, owner appeared", claim(C, Cause::OwnerAppeared)),
        ("claim as A again, due", claim(A, Cause::Due)),
        ("claim as A again, owner", claim(A, Cause::OwnerAppeared)),
        ("settle 4 A processed", settle(Ending::Processed, 4, A)),
        ("settle 4 A retryable", settle(Ending::FailedRetryable, 4, A)),
        ("settle 4 A permanent", settle(Ending::FailedPermanent, 4, A)),
        ("settle 4 A parked", settle(Ending::Parked, 4, A)),
        ("settle 3 A processed", settle(Ending::Processed, 3, A)),
        ("settle 5 A processed", settle(Ending::Processed, 5, A)),
        ("settle 4 B processed", settle(Ending::Processed, 4, B)),
        ("renew 4 A", renew(4, A)),
        ("renew 3 A", renew(3, A)),
        ("renew 4 B", renew(4, B)),
        ("raise as C, seen at T", raise(C, at(0))),
        ("raise as C, seen at T-5", raise(C, at(-5))),
        ("raise as A after its claim", raise(A, at(-60))),
    ];
    let mut text = String::new();
    for state in &states {
        text.push_str(if text.is_empty() { "" } else { "\n" });
        let heading = state.as_ref().map_or_else(|| "no row".to_owned(), shown_state);
        writeln!(text, "{heading}").unwrap();
        for (name, step) in &steps {
            let verdict = shown_verdict(&transition(state.as_ref(), step));
            writeln!(text, "  {name:<27}{verdict}").unwrap();
        }
    }
    text
}

#[test]
fn the_whole_table_is_as_it_was_agreed() {
    let (now, agreed) = (table(), include_str!("table.txt"));
    assert!(
        now == agreed,
        "the table has changed; if it should, commit this:\n{now}"
    );
}

#[test]
fn the_table_has_every_status() {
    for status in Status::ALL {
        let heads = include_str!("table.txt").lines().filter(|line| !line.starts_with(' '));
        assert!(
            heads.into_iter().any(|line| line.starts_with(status.as_str())),
            "{status}"
        );
    }
}

#[test]
fn a_stale_token_cannot_settle_or_renew() {
    // S2-10, invariant 4
    let stale = Some(Refused::Stale {
        current: Token::from_number(4),
    });
    assert_eq!(refused(&claimed(at(10)), &settle(Ending::Processed, 3, A)), stale);
    assert_eq!(refused(&claimed(at(10)), &renew(3, A)), stale);
}

#[test]
fn an_owner_whose_own_lease_has_ended_cannot_settle_or_renew() {
    // S2-10
    for until in [at(0), at(-1)] {
        let lapsed = Some(Refused::Lapsed { until });
        assert_eq!(refused(&claimed(until), &settle(Ending::Processed, 4, A)), lapsed);
        assert_eq!(refused(&claimed(until), &renew(4, A)), lapsed);
    }
}

#[test]
fn the_prior_owner_loses_after_a_newer_claim_even_while_its_clock_says_it_holds() {
    // S2-10, LEAS-01, DEDU-12, DDBC-04, invariant 11
    let taken_over = applied(&claimed(at(-600)), &claim(C, Cause::Due));
    let late = Step::Settle(Settle {
        now: at(-700),
        token: Token::from_number(4),
        nonce: A,
        settlement: settlement(Ending::Processed),
    });
    let current = Token::from_number(5);
    assert_eq!(refused(&taken_over, &late), Some(Refused::Stale { current }));
}

#[test]
fn a_claim_takes_the_next_token_and_a_fresh_lease_from_its_own_now() {
    // S2-08
    let won = applied(&received(), &claim_at(at(100), C, Cause::Due));
    assert_eq!((won.token, won.nonce, won.status), (Token::FIRST, C, Status::Claimed));
    assert_eq!((won.lease_until, won.due_at), (Some(at(130)), Some(at(135))));
    let again = applied(&won, &claim_at(at(200), A, Cause::Due));
    assert_eq!((again.token.number(), again.lease_until), (2, Some(at(230))));
}

#[test]
fn a_claim_keeps_what_the_destinations_got_and_the_redrive_generation() {
    let row = settled(Status::FailedRetryable, Some(at(0)));
    let won = applied(&row, &claim(C, Cause::Due));
    assert_eq!((&won.destinations, won.generation), (&row.destinations, row.generation));
    assert_eq!(won.tries, row.tries);
}

#[test]
fn a_lease_is_taken_over_only_after_its_end_plus_the_skew() {
    // LEAS-02, DEDU-09
    let until = at(-5);
    assert_eq!(
        refused(&claimed(until), &claim(C, Cause::Due)),
        Some(Refused::Held { until })
    );
    assert_eq!(
        refused(&claimed(until), &claim(C, Cause::OwnerAppeared)),
        Some(Refused::Held { until })
    );
    let won = applied(&claimed(until), &claim_at(at(1), C, Cause::Due));
    assert_eq!(won.token.number(), 5);
}

#[test]
fn a_dead_owner_is_replaced_on_the_first_try() {
    // LEAS-05, DEDU-09: one second after the end plus skew; the reaper finds it by its due time.
    let dead = claimed(at(-6));
    assert!(dead.due_at.is_some_and(|due_at| due_at < at(0)), "invariant 5");
    assert_eq!(applied(&dead, &claim(C, Cause::Due)).nonce, C);
}

#[test]
fn a_lease_in_milliseconds_is_compared_with_seconds_in_one_unit() {
    // DEDU-11
    let until = Timestamp::from_millisecond(1_767_323_045_123).unwrap();
    let now = Timestamp::from_second(1_767_323_046).unwrap();
    let mine = Step::Settle(Settle {
        now,
        token: Token::from_number(4),
        nonce: A,
        settlement: settlement(Ending::Processed),
    });
    assert_eq!(refused(&claimed(until), &mine), Some(Refused::Lapsed { until }));
    let other = Step::Claim(Claim {
        now,
        nonce: C,
        lease: LEASE,
        skew: SignedDuration::ZERO,
        cause: Cause::Due,
    });
    assert_eq!(applied(&claimed(until), &other).token.number(), 5);
}

#[test]
fn a_claim_counts_a_failure_beforehand_so_that_a_dying_owner_has_told_it() {
    let mut row = received();
    for lapse in 1..=9 {
        row = applied(
            &row,
            &claim_at(
                at(i64::from(lapse) * 100),
                Nonce::from_random(u64::from(lapse)),
                Cause::Due,
            ),
        );
        assert_eq!((row.failures, row.token.number()), (lapse, u64::from(lapse)));
    }
}

#[test]
fn nobody_claims_what_is_terminal() {
    // S2-09, DDBL-03
    for status in [Status::Processed, Status::FailedPermanent] {
        for cause in [Cause::Due, Cause::OwnerAppeared] {
            let step = claim_at(at(1_000_000), C, cause);
            assert_eq!(refused(&settled(status, None), &step), Some(Refused::Terminal(status)));
        }
    }
}

#[test]
fn a_parked_event_is_claimed_when_it_is_due_or_its_owner_appears_and_not_before() {
    let parked = settled(Status::Parked, Some(at(10)));
    let due_at = at(10);
    assert_eq!(
        refused(&parked, &claim(C, Cause::Due)),
        Some(Refused::NotDue { due_at })
    );
    let woken = applied(&parked, &claim(C, Cause::OwnerAppeared));
    assert_eq!((woken.status, woken.waiting_for), (Status::Claimed, None));
    assert_eq!(
        applied(&parked, &claim_at(due_at, C, Cause::Due)).status,
        Status::Claimed
    );
}

#[test]
fn an_appearing_owner_does_not_cut_a_back_off_short() {
    let retryable = settled(Status::FailedRetryable, Some(at(10)));
    let due_at = at(10);
    assert_eq!(
        refused(&retryable, &claim(C, Cause::OwnerAppeared)),
        Some(Refused::NotDue { due_at })
    );
}

#[test]
fn an_owner_from_an_earlier_life_of_the_row_is_refused_although_its_token_fits() {
    // LEAS-08: the row expired and came back, and starts at token 1 again.
    let second_life = applied(&received(), &claim(C, Cause::Due));
    let current = Token::FIRST;
    assert_eq!(
        refused(&second_life, &settle(Ending::Processed, 1, A)),
        Some(Refused::Stale { current })
    );
    assert_eq!(refused(&second_life, &renew(1, A)), Some(Refused::Stale { current }));
}

#[test]
fn an_owner_recognises_its_own_settlement_behind_a_lost_answer() {
    // DDBC-03
    for ending in Ending::ALL {
        let step = settle(ending, 4, A);
        let settled = applied(&claimed(at(10)), &step);
        assert_eq!(settled.status, ending.status());
        assert_eq!(transition(Some(&settled), &step), Verdict::Already, "{ending:?}");
    }
}

#[test]
fn a_claimant_recognises_its_own_claim_behind_a_lost_answer() {
    // DDBC-01: no second token, and the lease that it has is the one that was written.
    let step = claim(C, Cause::Due);
    let won = applied(&received(), &step);
    assert_eq!(
        transition(Some(&won), &claim_at(at(2), C, Cause::Due)),
        Verdict::Already
    );
    let lease = Lease::proven_by(&EventId::new("e"), &won, C).unwrap();
    assert_eq!((lease.token(), lease.until()), (Token::FIRST, at(30)));
}

#[test]
fn a_real_loser_stays_a_loser() {
    // DDBC-04, S2-14: both claims fit the row as it was; the second finds the first one's.
    let won = applied(&received(), &claim(A, Cause::Due));
    let until = at(30);
    assert_eq!(refused(&won, &claim(C, Cause::Due)), Some(Refused::Held { until }));
    assert_eq!(Lease::proven_by(&EventId::new("e"), &won, C), None);
    let settled = applied(&won, &settle(Ending::Processed, 1, A));
    assert_eq!(
        refused(&settled, &settle(Ending::Processed, 1, C)),
        Some(Refused::Stale { current: Token::FIRST })
    );
}

#[test]
fn a_renewal_lengthens_the_lease_and_moves_the_due_time_with_it() {
    let renewed = applied(&claimed(at(10)), &renew(4, A));
    let expected = State {
        lease_until: Some(at(30)),
        due_at: Some(at(35)),
        ..claimed(at(10))
    };
    assert_eq!(renewed, expected);
}

#[test]
fn a_late_repeat_of_an_earlier_renewal_does_not_shorten_the_lease() {
    // Invariant 3. Found by the model: the repeat cut the lease short, another owner claimed, and both sent.
    let renewed = claimed(at(60));
    assert_eq!(transition(Some(&renewed), &renew(4, A)), Verdict::Already);
    assert_eq!(transition(Some(&claimed(at(30))), &renew(4, A)), Verdict::Already);
}

#[test]
fn a_row_without_a_lease_end_is_free_to_claim_and_nobodys_to_settle() {
    // A claimed row that lost its lease must not stay claimed for ever. Invariant 5.
    assert_eq!(applied(&claimed(None), &claim(C, Cause::Due)).token.number(), 5);
    assert_eq!(
        refused(&claimed(None), &settle(Ending::Processed, 4, A)),
        Some(Refused::Lapsed { until: Timestamp::MIN })
    );
}

#[test]
fn what_is_not_terminal_has_a_due_time_and_what_is_terminal_has_an_end() {
    // Invariant 5
    let rows = [
        applied(&received(), &claim(C, Cause::Due)),
        applied(&claimed(at(10)), &renew(4, A)),
        applied(&claimed(at(10)), &settle(Ending::FailedRetryable, 4, A)),
        applied(&claimed(at(10)), &settle(Ending::Parked, 4, A)),
        applied(&claimed(at(10)), &settle(Ending::Processed, 4, A)),
        applied(&claimed(at(10)), &settle(Ending::FailedPermanent, 4, A)),
        applied(&received(), &raise(C, at(0))),
        applied(&claimed(at(-5)), &raise(C, at(0))),
    ];
    for row in rows {
        assert_eq!(row.due_at.is_some(), !row.status.is_terminal(), "{row:?}");
        assert_eq!(row.expires_at.is_some(), row.status.is_terminal(), "{row:?}");
        assert_eq!(row.lease_until.is_some(), row.status == Status::Claimed, "{row:?}");
    }
}

#[test]
fn raising_counts_once_and_longer_each_time_until_it_ends_the_row() {
    let first = applied(&received(), &raise(C, at(0)));
    assert_eq!((first.status, first.failures), (Status::FailedRetryable, 1));
    assert!((at(15)..=at(30)).contains(&first.due_at.unwrap()));
    let claimed_by_us = claimed(at(30));
    let second = applied(&claimed_by_us, &raise(A, at(-60)));
    assert_eq!(second.failures, claimed_by_us.failures, "the claim has counted already");
    let last = applied(&claimed(at(-5)), &raise(C, at(0)));
    assert_eq!((last.status, last.failures), (Status::FailedPermanent, 4));
    assert_eq!(last.reason, Some(Reason::TooManyFailures));
}

#[test]
fn raising_takes_nothing_from_a_living_owner_and_fences_a_dead_one() {
    // Invariant 4
    let held = claimed(at(10));
    assert_eq!(
        refused(&held, &raise(C, at(15))),
        Some(Refused::NotDue { due_at: at(15) })
    );
    let raised = applied(
        &State {
            failures: 1,
            ..claimed(at(-5))
        },
        &raise(C, at(0)),
    );
    for ending in Ending::ALL {
        assert!(matches!(
            refused(&raised, &settle(ending, 4, A)),
            Some(Refused::Stale { .. })
        ));
    }
    assert_eq!(transition(Some(&raised), &raise(C, at(0))), Verdict::Already);
}

#[test]
fn the_end_of_time_is_no_overflow() {
    let step = claim_at(Timestamp::MAX, C, Cause::Due);
    assert_eq!(applied(&received(), &step).lease_until, Some(Timestamp::MAX));
    let last = State {
        token: Token::from_number(u64::MAX),
        failures: u32::MAX,
        ..claimed(at(-600))
    };
    assert_eq!(applied(&last, &claim(C, Cause::Due)).failures, u32::MAX);
    assert_eq!(later(Timestamp::MAX, secs(1)), Timestamp::MAX);
}
