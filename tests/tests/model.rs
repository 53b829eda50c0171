//! The model of the ledger's protocol: what it finds under the core's rules, and that it finds rules that are wrong.

use forebay_core::ledger::{Claim, Renew, Settle, State, Step, Term, Verdict, transition};
use forebay_tests::model::{Bounds, Protocol, Rule, check_all};
use jiff::SignedDuration;

#[test]
fn the_cores_rules_hold_in_every_state_that_can_be_reached() {
    // Invariants 3, 4 and 5
    let found = check_all(&Bounds::SHORT);
    assert!(found.holds(), "{found}");
    assert!(found.states > 10_000, "{found}");
}

/// Some property of `named` fails under `rule`.
#[track_caller]
fn check(rule: Rule, named: &[&str]) {
    let found = Protocol {
        bounds: Bounds::SHORT[0],
        rule,
    }
    .check();
    let caught = found.violated.iter().any(|(property, _)| named.contains(property));
    assert!(caught, "{found}");
}

/// What the core says to the same step at another time.
fn at_another_time(state: &State, step: &Step, by: SignedDuration) -> Verdict {
    let step = match step.clone() {
        Step::Claim(claim) => Step::Claim(Claim {
            now: claim.now + by,
            lease: claim.lease - by,
            ..claim
        }),
        Step::Settle(settle) => Step::Settle(Settle {
            now: settle.now + by,
            ..settle
        }),
        Step::Renew(renew) => Step::Renew(Renew {
            now: renew.now + by,
            term: Term {
                lease: renew.term.lease - by,
                ..renew.term
            },
            ..renew
        }),
        raise @ Step::Raise(_) => raise,
    };
    transition(Some(state), &step)
}

#[test]
fn a_settlement_that_shows_no_token_is_caught() {
    fn unconditional(state: Option<&State>, step: &Step) -> Verdict {
        let (Some(state), Step::Settle(settle)) = (state, step) else {
            return transition(state, step);
        };
        let settle = Settle {
            token: state.token,
            nonce: state.nonce,
            ..settle.clone()
        };
        transition(Some(state), &Step::Settle(settle))
    }
    check(unconditional, &["a stale owner changes nothing"]);
}

#[test]
fn a_claim_that_asks_for_no_lapsed_lease_is_caught() {
    fn greedy(state: Option<&State>, step: &Step) -> Verdict {
        match (state, step) {
            (Some(state), Step::Claim(_)) => at_another_time(state, step, SignedDuration::from_hours(1)),
            (state, step) => transition(state, step),
        }
    }
    check(greedy, &["at most one owner holds a lease that runs"]);
}

#[test]
fn a_settlement_under_a_lease_that_has_ended_is_caught() {
    fn patient(state: Option<&State>, step: &Step) -> Verdict {
        match (state, step) {
            (Some(state), Step::Settle(_)) => at_another_time(state, step, -SignedDuration::from_hours(1)),
            (state, step) => transition(state, step),
        }
    }
    check(patient, &["nobody settles under a lease that has ended"]);
}

#[test]
fn a_claim_that_takes_the_due_time_away_is_caught() {
    fn forgetful(state: Option<&State>, step: &Step) -> Verdict {
        match transition(state, step) {
            Verdict::Applied(state) => Verdict::Applied(State { due_at: None, ..state }),
            verdict @ (Verdict::Already | Verdict::Refused(_)) => verdict,
        }
    }
    check(
        forgetful,
        &["what is not terminal is due, and then anybody may claim it"],
    );
}

#[test]
fn a_claim_that_does_not_count_up_is_caught() {
    fn standing(state: Option<&State>, step: &Step) -> Verdict {
        match (state, step, transition(state, step)) {
            (Some(before), Step::Claim(_), Verdict::Applied(after)) => Verdict::Applied(State {
                token: before.token,
                ..after
            }),
            (_, _, verdict) => verdict,
        }
    }
    check(standing, &["tokens only grow"]);
}
