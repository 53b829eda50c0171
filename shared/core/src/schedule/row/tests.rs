//! The whole table, every way of a few steps, and the sentences that matter most.

#![expect(clippy::arithmetic_side_effects, reason = "instants of a few minutes, in tests")]

use std::fmt::Write as _;

use super::*;
use crate::schedule::memory::new_row;
use crate::testing::{at, secs};

fn row() -> SourceState {
    SourceState {
        token: Token::from_number(3),
        nonce: Nonce::from_random(3),
        lease_until: None,
        due_at: at(0),
        interval: secs(60),
        failures: 0,
        note: None,
        claimed_at: None,
    }
}

fn claim(now: i64, nonce: u64) -> SourceStep {
    SourceStep::Claim(SourceClaim {
        now: at(now),
        nonce: Nonce::from_random(nonce),
        lease: secs(50),
        skew: secs(5),
    })
}

fn applied(verdict: SourceVerdict) -> SourceState {
    match verdict {
        SourceVerdict::Applied(state) => state,
        other @ (SourceVerdict::Already | SourceVerdict::Refused(_)) => panic!("{other:?}"),
    }
}

fn refused(verdict: SourceVerdict) -> SourceRefused {
    match verdict {
        SourceVerdict::Refused(refused) => refused,
        other @ (SourceVerdict::Already | SourceVerdict::Applied(_)) => panic!("{other:?}"),
    }
}

fn give_back(now: i64, state: &SourceState) -> SourceStep {
    SourceStep::GiveBack {
        now: at(now),
        token: state.token,
        nonce: state.nonce,
        given: GivenBack {
            cursor: None,
            due_at: at(500),
            interval: secs(300),
            failures: 2,
            note: Some("timed_out".to_owned()),
        },
    }
}

#[test]
fn a_claim_moves_the_due_time_so_that_an_unchanged_poll_needs_no_second_write() {
    let claimed = applied(source_transition(Some(&row()), &claim(10, 9)));
    assert_eq!((claimed.token.number(), claimed.due_at), (4, at(70)));
    assert_eq!((claimed.lease_until, claimed.claimed_at), (Some(at(60)), Some(at(10))));
    assert_eq!(source_transition(Some(&claimed), &claim(10, 9)), SourceVerdict::Already);
}

#[test]
fn nobody_claims_what_is_not_due_or_held() {
    // SCHD-01, SCHD-03
    let claimed = applied(source_transition(Some(&row()), &claim(0, 9)));
    let second = refused(source_transition(Some(&claimed), &claim(1, 10)));
    assert_eq!(second, SourceRefused::Held(at(50)));
    let again = applied(source_transition(Some(&claimed), &claim(60, 10)));
    assert_eq!(again.token.number(), 5);
    let early = refused(source_transition(Some(&claimed), &claim(56, 10)));
    assert_eq!(early, SourceRefused::NotDue(at(60)));
    assert_eq!(refused(source_transition(None, &claim(0, 9))), SourceRefused::Missing);
    // A lease that was lengthened beyond the stored interval still keeps others out.
    let long = SourceState {
        due_at: at(0),
        lease_until: Some(at(50)),
        ..row()
    };
    assert_eq!(
        refused(source_transition(Some(&long), &claim(55, 9))),
        SourceRefused::Held(at(50))
    );
    assert_eq!(applied(source_transition(Some(&long), &claim(56, 9))).token.number(), 4);
}

#[test]
fn who_comes_late_gives_nothing_back() {
    // Invariant 4
    let ours = applied(source_transition(Some(&row()), &claim(0, 9)));
    let kept = applied(source_transition(Some(&ours), &give_back(49, &ours)));
    assert_eq!(
        (kept.lease_until, kept.due_at, kept.interval),
        (None, at(500), secs(300))
    );
    assert_eq!((kept.failures, kept.note.as_deref()), (2, Some("timed_out")));
    assert_eq!(
        source_transition(Some(&kept), &give_back(49, &ours)),
        SourceVerdict::Already
    );
    let late = refused(source_transition(Some(&ours), &give_back(50, &ours)));
    assert_eq!(late, SourceRefused::Lapsed(at(50)));
    let theirs = applied(source_transition(Some(&ours), &claim(60, 10)));
    let fenced = refused(source_transition(Some(&theirs), &give_back(61, &ours)));
    assert_eq!(fenced, SourceRefused::Fenced(theirs.token));
}

#[test]
fn what_is_put_off_keeps_its_claim_and_only_what_was_found_is_put_off() {
    let put_off = |found| SourceStep::PutOff {
        found_due_at: at(found),
        until: at(900),
        now: at(10),
        skew: secs(5),
    };
    let later = applied(source_transition(Some(&row()), &put_off(0)));
    assert_eq!((later.due_at, later.token), (at(900), row().token));
    assert_eq!(
        refused(source_transition(Some(&row()), &put_off(1))),
        SourceRefused::NotDue(at(0))
    );
    let held = SourceState {
        lease_until: Some(at(30)),
        ..row()
    };
    assert_eq!(
        refused(source_transition(Some(&held), &put_off(0))),
        SourceRefused::Held(at(30))
    );
}

// --- the table ------------------------------------------------------------------------------------------------------------

const A: Nonce = Nonce::from_random(0xA);
const B: Nonce = Nonce::from_random(0xB);
const C: Nonce = Nonce::from_random(0xC);

fn ms(span_ms: i64) -> SignedDuration {
    SignedDuration::from_millis(span_ms)
}

/// `at` as `T`, `T+30` or `T-5.001`: all steps of the table are taken at T.
fn shown(instant: Timestamp) -> String {
    let ms = instant.duration_since(at(0)).as_millis();
    match (ms, ms % 1_000) {
        (0, _) => "T".to_owned(),
        (_, 0) => format!("T{:+}", ms / 1_000),
        (_, _) => format!("T{:+.3}", ms as f64 / 1_000.0),
    }
}

fn shown_state(state: &SourceState) -> String {
    let nonce = match state.nonce {
        A => "A",
        C => "C",
        _ => "-",
    };
    let lease = state.lease_until.map_or_else(|| "-".to_owned(), shown);
    let mut text = format!(
        "token {} {nonce} lease {lease} due {}",
        state.token,
        shown(state.due_at)
    );
    write!(text, " every {} failures {}", state.interval.as_secs(), state.failures).unwrap();
    if let Some(note) = &state.note {
        write!(text, " {note}").unwrap();
    }
    text
}

fn shown_verdict(verdict: &SourceVerdict) -> String {
    let refused = match verdict {
        SourceVerdict::Applied(state) => return shown_state(state),
        SourceVerdict::Already => return "already".to_owned(),
        SourceVerdict::Refused(refused) => refused,
    };
    match refused {
        SourceRefused::NotDue(due_at) => format!("refused: not due before {}", shown(*due_at)),
        SourceRefused::Held(until) => format!("refused: held until {}", shown(*until)),
        SourceRefused::Lapsed(until) => format!("refused: lapsed at {}", shown(*until)),
        SourceRefused::Missing | SourceRefused::Fenced(_) | SourceRefused::Newer(_) => format!("refused: {refused}"),
    }
}

/// Every situation of a row that A claimed last with token 4: how its lease stands, and when it is due.
fn situations() -> Vec<SourceState> {
    let leases = [
        None,
        Some(at(10)),
        Some(at(0)),
        Some(at(-5)),
        Some(at(-5) - ms(1)),
        Some(at(-600)),
    ];
    let of = |lease_until| {
        let dues = [at(-60), at(0), at(0) + ms(1)];
        dues.map(|due_at| SourceState {
            token: Token::from_number(4),
            nonce: A,
            lease_until,
            due_at,
            failures: 1,
            ..row()
        })
    };
    leases.into_iter().flat_map(of).collect()
}

fn claim_as(nonce: Nonce) -> SourceStep {
    SourceStep::Claim(SourceClaim {
        now: at(0),
        nonce,
        lease: secs(50),
        skew: secs(5),
    })
}

fn give_back_as(token: u64, nonce: Nonce) -> SourceStep {
    let of = SourceState {
        token: Token::from_number(token),
        nonce,
        ..row()
    };
    give_back(0, &of)
}

fn put_off_found(found_due_at: Timestamp) -> SourceStep {
    SourceStep::PutOff {
        found_due_at,
        until: at(900),
        now: at(0),
        skew: secs(5),
    }
}

fn table() -> String {
    let mut text = String::new();
    let situations = situations().into_iter().map(Some);
    for state in [None].into_iter().chain(situations) {
        text.push_str(if text.is_empty() { "" } else { "\n" });
        let heading = state.as_ref().map_or_else(|| "no row".to_owned(), shown_state);
        writeln!(text, "{heading}").unwrap();
        let due_at = state.as_ref().map_or(at(0), |state| state.due_at);
        for (name, step) in [
            ("claim as C", claim_as(C)),
            ("claim as A again", claim_as(A)),
            ("give back 4 A", give_back_as(4, A)),
            ("give back 3 A", give_back_as(3, A)),
            ("give back 5 A", give_back_as(5, A)),
            ("give back 4 B", give_back_as(4, B)),
            ("put off as found", put_off_found(due_at)),
            ("put off as it was", put_off_found(due_at - ms(1))),
        ] {
            let verdict = shown_verdict(&source_transition(state.as_ref(), &step));
            writeln!(text, "  {name:<18}{verdict}").unwrap();
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

// --- every way of a few steps ---------------------------------------------------------------------------------------------

/// Steps of one way.
const STEPS: usize = 5;
/// Every way begins at 0 and goes on by one of these.
const SPANS_MS: [i64; 4] = [1, 50_000, 55_000, 55_001];

/// A right that was handed out and not given back.
#[derive(Clone, Copy)]
struct Right {
    token: Token,
    nonce: Nonce,
    until: Timestamp,
}

/// Takes every step there is from here, at every time, and looks at what came of it. Gives how many steps it took.
fn walk(state: &SourceState, rights: &[Right], now: Timestamp, left: usize) -> usize {
    if left == 0 {
        return 0;
    }
    let mut taken = 0;
    for span_ms in SPANS_MS {
        let now = now + ms(span_ms);
        // Everybody's numbers are their own.
        let nonce = Nonce::from_random(now.as_millisecond().unsigned_abs());
        let claim = SourceClaim {
            now,
            nonce,
            lease: secs(50),
            skew: secs(5),
        };
        let (after, rights_after) = after_claim(state, rights, &claim);
        taken += 1 + walk(&after, &rights_after, now, left - 1);
        for right in rights {
            let (after, rights_after) = after_giving_back(state, rights, right, now);
            taken += 1 + walk(&after, &rights_after, now, left - 1);
        }
        let put_off = SourceStep::PutOff {
            found_due_at: state.due_at,
            until: now + ms(1),
            now,
            skew: secs(5),
        };
        if let SourceVerdict::Applied(after) = source_transition(Some(state), &put_off) {
            assert_eq!(
                (after.token, after.nonce, after.lease_until),
                (state.token, state.nonce, state.lease_until)
            );
            let is_live = rights.iter().any(|right| right.until + secs(5) >= now);
            assert!(!is_live, "nothing that somebody may be polling is put off");
            taken += 1 + walk(&after, rights, now, left - 1);
        }
    }
    taken
}

fn after_claim(state: &SourceState, rights: &[Right], claim: &SourceClaim) -> (SourceState, Vec<Right>) {
    let SourceVerdict::Applied(after) = source_transition(Some(state), &SourceStep::Claim(*claim)) else {
        return (state.clone(), rights.to_vec());
    };
    assert!(after.token > state.token, "tokens only grow");
    assert!(after.due_at > claim.now, "it is not due again at once");
    assert!(state.due_at <= claim.now, "only what is due is claimed");
    // Whose clock is behind by no more than the skew knows that its right is over.
    let live = rights.iter().find(|right| right.until >= claim.now - claim.skew);
    assert!(live.is_none(), "two would hold it");
    let mut rights = rights.to_vec();
    rights.push(Right {
        token: after.token,
        nonce: claim.nonce,
        until: after.lease_until.unwrap(),
    });
    let again = source_transition(Some(&after), &SourceStep::Claim(*claim));
    assert_eq!(
        again,
        SourceVerdict::Already,
        "behind a lost answer it is the same right"
    );
    (after, rights)
}

fn after_giving_back(
    state: &SourceState,
    rights: &[Right],
    right: &Right,
    now: Timestamp,
) -> (SourceState, Vec<Right>) {
    let step = SourceStep::GiveBack {
        now,
        token: right.token,
        nonce: right.nonce,
        given: GivenBack {
            cursor: None,
            due_at: now,
            interval: state.interval,
            failures: 0,
            note: None,
        },
    };
    let is_last = state.token == right.token;
    match source_transition(Some(state), &step) {
        SourceVerdict::Applied(after) => {
            assert!(is_last && now < right.until, "only who holds it gives it back");
            assert_eq!((after.token, after.lease_until), (state.token, None));
            assert_eq!(source_transition(Some(&after), &step), SourceVerdict::Already);
            let kept = rights.iter().filter(|other| other.token != right.token);
            (after, kept.copied().collect())
        }
        SourceVerdict::Already => panic!("a right that was not given back"),
        SourceVerdict::Refused(refused) => {
            let expected = if is_last {
                SourceRefused::Lapsed(right.until)
            } else {
                SourceRefused::Fenced(state.token)
            };
            assert_eq!(refused, expected);
            (state.clone(), rights.to_vec())
        }
    }
}

#[test]
fn whatever_follows_whatever_tokens_only_grow_and_nobody_holds_what_another_holds() {
    // Invariants 4 and 11
    for interval in [1, 50, 60] {
        let taken = walk(&new_row(secs(interval), at(0)), &[], at(0), STEPS);
        assert!(taken > 10_000, "{taken}");
    }
}

#[test]
fn the_end_of_time_is_no_overflow() {
    let last = SourceStep::Claim(SourceClaim {
        now: Timestamp::MAX,
        nonce: C,
        lease: secs(50),
        skew: secs(5),
    });
    let claimed = applied(source_transition(Some(&row()), &last));
    assert_eq!(
        (claimed.lease_until, claimed.due_at),
        (Some(Timestamp::MAX), Timestamp::MAX)
    );
    let first = SourceStep::Claim(SourceClaim {
        now: Timestamp::MIN,
        nonce: C,
        lease: secs(50),
        skew: secs(5),
    });
    let refused = refused(source_transition(Some(&row()), &first));
    assert_eq!(refused, SourceRefused::NotDue(at(0)));
}
