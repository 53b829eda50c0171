use super::super::slots::Counts;
use super::*;
use crate::testing::{at, secs};

/// An instant that a slot begins with.
fn start() -> Timestamp {
    SlotNumber::of(at(0)).ends_at()
}

fn after(seconds: i64) -> Timestamp {
    start().saturating_add(secs(seconds)).unwrap()
}

fn state(health: Health) -> TargetState {
    TargetState::default().next(health, Nonce::from_random(7), start(), &ShedderConfig::default())
}

/// So many errors and successes of 7 ms, so many seconds after the start.
fn counted(entries: &[(i64, u64, u64)]) -> Slots {
    let mut slots = Slots::default();
    for (seconds, errors, successes) in entries {
        let mut counts = Counts {
            errors: *errors,
            ..Counts::default()
        };
        counts.successes[0] = *successes;
        slots.merge(SlotNumber::of(after(*seconds)), &counts);
    }
    slots
}

#[track_caller]
fn check(health: Health, entries: &[(i64, u64, u64)], seconds: i64, expected: Judgement) {
    let judgement = judge(
        &state(health),
        &counted(entries),
        after(seconds),
        &ShedderConfig::default(),
    );
    assert_eq!(judgement, expected, "{health} with {entries:?} after {seconds} s");
}

const SHED: Judgement = Judgement::Change(Health::Shed);
const PROBE: Judgement = Judgement::Change(Health::Probing);

#[test]
fn a_healthy_target_is_shed_by_a_bad_window_and_by_nothing_less() {
    // S1-05, BRKR-06
    check(Health::Healthy, &[], 60, Judgement::Open);
    check(Health::Healthy, &[(60, 1, 1)], 60, Judgement::Open);
    check(Health::Healthy, &[(60, 25, 75)], 60, Judgement::Open);
    check(Health::Healthy, &[(60, 26, 74)], 60, SHED);
    check(Health::Healthy, &[(60, 25, 75), (50, 1, 0)], 60, SHED);
    // Older than the window, or counted by a clock that runs further ahead than clocks may.
    check(Health::Healthy, &[(60, 25, 75), (20, 1, 0)], 60, Judgement::Open);
    check(Health::Healthy, &[(60, 25, 75), (70, 1, 0)], 60, Judgement::Open);
    check(Health::Healthy, &[(60, 25, 75), (65, 1, 0)], 60, SHED);
    // Before it became healthy.
    check(Health::Healthy, &[(-1, 50, 0)], 10, Judgement::Open);
    check(Health::Healthy, &[(0, 50, 0)], 10, SHED);
}

#[test]
fn a_target_that_nothing_was_ever_written_of_is_healthy() {
    let fresh = TargetState::default();
    let config = ShedderConfig::default();
    assert_eq!(judge(&fresh, &Slots::default(), after(0), &config), Judgement::Open);
    assert_eq!(judge(&fresh, &counted(&[(0, 10, 0)]), after(0), &config), SHED);
}

#[test]
fn a_shed_target_is_probed_after_thirty_seconds_without_an_error() {
    // S1-05, S1-06, BRKR-05
    check(Health::Shed, &[], 29, Judgement::Shed);
    check(Health::Shed, &[], 30, PROBE);
    // Each error begins the wait anew, at the end of its slot.
    check(Health::Shed, &[(0, 1, 0)], 34, Judgement::Shed);
    check(Health::Shed, &[(0, 1, 0)], 35, PROBE);
    check(Health::Shed, &[(12, 1, 0)], 44, Judgement::Shed);
    check(Health::Shed, &[(12, 1, 0)], 45, PROBE);
    // Successes do not wipe it, and errors from before it was shed do not prolong it.
    check(Health::Shed, &[(12, 1, 1_000)], 44, Judgement::Shed);
    check(Health::Shed, &[(-1, 100, 0)], 30, PROBE);
    // A clock that is behind whoever shed it.
    check(Health::Shed, &[], -5, Judgement::Shed);
}

#[test]
fn a_probe_that_never_ends_is_followed_by_another_when_lease_and_skew_are_over() {
    // BRKR-08
    check(Health::Probing, &[], 10, Judgement::Shed);
    check(Health::Probing, &[], 15, Judgement::Shed);
    check(Health::Probing, &[], 16, PROBE);
    let without_end = TargetState {
        lease_until: None,
        ..state(Health::Probing)
    };
    assert_eq!(
        judge(&without_end, &Slots::default(), after(0), &ShedderConfig::default()),
        PROBE
    );
}

#[test]
fn probation_admits_a_share_that_grows_from_a_tenth_to_all() {
    // S1-06
    let ramp = |thousandths| Judgement::Ramp(Share(thousandths));
    check(Health::Probation, &[], 0, ramp(100));
    check(Health::Probation, &[], 10, ramp(400));
    check(Health::Probation, &[], 29, ramp(970));
    check(Health::Probation, &[], 30, Judgement::Change(Health::Healthy));
    // A clock that is behind whoever probed.
    check(Health::Probation, &[], -5, ramp(100));
}

#[test]
fn one_error_in_probation_sheds_again_however_much_succeeds() {
    // BRKR-05
    check(Health::Probation, &[(4, 1, 0)], 5, SHED);
    check(Health::Probation, &[(4, 1, 1_000)], 5, SHED);
    check(Health::Probation, &[(4, 1, 1_000)], 40, SHED);
    // What came before the probe is over.
    check(Health::Probation, &[(-1, 100, 0)], 0, Judgement::Ramp(Share(100)));
}

#[test]
fn a_target_that_is_slow_again_in_probation_is_shed_again() {
    let mut slots = Slots::default();
    for _ in 0..10 {
        slots.add(after(3), Observation::Success(secs(6)));
    }
    let judged = |slots: &Slots| judge(&state(Health::Probation), slots, after(4), &ShedderConfig::default());
    assert_eq!(judged(&slots), SHED);
}

#[test]
fn a_share_admits_as_many_as_it_says() {
    let admitted = |share: Share| {
        // Numbers that follow one another evenly, as from a counter: they must not be taken evenly in turn.
        let drawn = (0..10_000_u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        drawn.filter(|chance| share.admits(*chance)).count()
    };
    assert!(admitted(Share(100)).abs_diff(1_000) < 120);
    assert!(admitted(Share(550)).abs_diff(5_500) < 200);
    assert_eq!(admitted(Share(1_000)), 10_000);
    assert_eq!(admitted(Share(0)), 0);
}

#[test]
fn a_probe_opens_sheds_or_says_nothing() {
    // BRKR-05, BRKR-08
    let config = ShedderConfig::default();
    let success = |latency| probed(Some(Observation::Success(latency)), &config);
    assert_eq!(success(secs(5)), Some(Health::Probation));
    assert_eq!(success(secs(6)), Some(Health::Shed));
    assert_eq!(probed(Some(Observation::Error), &config), Some(Health::Shed));
    assert_eq!(probed(None, &config), None);
}

#[test]
fn each_change_has_a_higher_token_and_only_a_probe_has_a_lease() {
    let config = ShedderConfig::default();
    let mut state = TargetState::default();
    for (number, health) in (1..).zip(Health::ALL) {
        state = state.next(*health, Nonce::from_random(number), after(0), &config);
        assert_eq!(state.token.number(), number);
        let lease = (*health == Health::Probing).then(|| after(10));
        assert_eq!(state.lease_until, lease, "{health}");
    }
}

#[test]
fn a_target_that_an_operator_sets_healthy_is_not_shed_by_what_came_before() {
    let config = ShedderConfig::default();
    let reset = state(Health::Shed).reset(Nonce::from_random(8), after(2), &config);
    assert_eq!(reset.health, Health::Healthy);
    assert_eq!(
        judge(&reset, &counted(&[(0, 100, 0)]), after(3), &config),
        Judgement::Open
    );
    assert_eq!(judge(&reset, &counted(&[(6, 100, 0)]), after(7), &config), SHED);
}
