//! The shedder's window and its judgement, by random observations against a plain list of them.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use forebay_core::ledger::Nonce;
use forebay_core::shed::{
    Health, Judgement, LATENCY_BOUNDS_MS, Observation, SLOT, ShedderConfig, SlotNumber, Slots, TargetState, Window,
    judge,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

/// Observations as they were made: time in milliseconds from the start, and what was seen.
type Made = Vec<(i64, Observation)>;

fn start() -> Timestamp {
    SlotNumber::from_number(353_464_609).begins_at()
}

fn after(ms: i64) -> Timestamp {
    start() + SignedDuration::from_millis(ms)
}

fn observation() -> impl Strategy<Value = Observation> {
    let success = |ms: i64| Observation::Success(SignedDuration::from_millis(ms));
    prop_oneof![
        2 => Just(Observation::Error),
        3 => (0_i64..40_000).prop_map(success),
        // On the bounds, where a comparison could be off by one.
        3 => (0..LATENCY_BOUNDS_MS.len(), 0_i64..2).prop_map(move |(bound, more)| {
            success(i64::from(LATENCY_BOUNDS_MS[bound]) + more)
        }),
    ]
}

/// Up to two minutes of observations, many of them on the borders of slots.
fn made() -> impl Strategy<Value = Made> {
    let time = prop_oneof![
        0_i64..120_000,
        (0_i64..24, -1_i64..=1).prop_map(|(slot, ms)| slot * 5_000 + ms)
    ];
    prop::collection::vec((time, observation()), 0..200)
}

fn counted(made: &Made) -> Slots {
    let mut slots = Slots::default();
    for (ms, observation) in made {
        slots.add(after(*ms), *observation);
    }
    slots
}

/// What a window at `now_ms` should hold: whatever was made in a slot that overlaps the 30 seconds before, or the 5 seconds
/// after by which clocks may differ.
fn in_window(made: &Made, now_ms: i64) -> Vec<Observation> {
    let slot_ms = i64::try_from(SLOT.as_millis()).unwrap();
    let from = (now_ms - 30_000).div_euclid(slot_ms) * slot_ms;
    let until = (now_ms + 5_000).div_euclid(slot_ms) * slot_ms + slot_ms;
    let inside = made.iter().filter(|(ms, _)| (from..until).contains(ms));
    inside.map(|(_, observation)| *observation).collect()
}

/// The middle latency, as the histogram should round it: the smallest bound that half of the successes keep to.
fn p50_of(observations: &[Observation]) -> Option<Option<u32>> {
    let mut latencies: Vec<i128> = observations
        .iter()
        .filter_map(|observation| match observation {
            Observation::Success(latency) => Some(latency.as_millis()),
            Observation::Error => None,
        })
        .collect();
    latencies.sort_unstable();
    let middle = *latencies.get(latencies.len().div_ceil(2).checked_sub(1)?)?;
    Some(LATENCY_BOUNDS_MS.into_iter().find(|bound| i128::from(*bound) >= middle))
}

fn is_bad(observations: &[Observation], config: &ShedderConfig) -> bool {
    let count = |wanted: fn(&Observation) -> bool| observations.iter().filter(|one| wanted(one)).count();
    let errors = count(|one| *one == Observation::Error);
    let slow = observations.iter().filter(|one| match one {
        Observation::Success(latency) => *latency > SignedDuration::from_millis(i64::from(config.latency_ms_max)),
        Observation::Error => false,
    });
    let successes = observations.len() - errors;
    let rate_is_bad = errors * 100 > observations.len() * usize::try_from(config.error_percent).unwrap();
    let latency_is_bad = slow.count() * 2 > successes;
    observations.len() >= usize::try_from(config.samples_min).unwrap() && (rate_is_bad || latency_is_bad)
}

fn config() -> impl Strategy<Value = ShedderConfig> {
    let thresholds = (1_u32..=100, 0..LATENCY_BOUNDS_MS.len(), 1_u32..40);
    thresholds.prop_map(|(error_percent, bound, samples_min)| {
        let config = ShedderConfig {
            error_percent,
            latency_ms_max: LATENCY_BOUNDS_MS[bound],
            samples_min,
            ..ShedderConfig::default()
        };
        config.checked().unwrap()
    })
}

fn state() -> impl Strategy<Value = TargetState> {
    (0..Health::ALL.len(), -40_000_i64..130_000).prop_map(|(health, since_ms)| {
        TargetState::default().next(
            Health::ALL[health],
            Nonce::from_random(1),
            after(since_ms),
            &ShedderConfig::default(),
        )
    })
}

proptest! {
    #[test]
    fn a_window_holds_what_was_made_in_the_slots_that_overlap_it_and_nothing_else(made in made(), now_ms in 0_i64..150_000) {
        let window = Window::at(after(now_ms), &ShedderConfig::default()).over(&counted(&made));
        let expected = in_window(&made, now_ms);
        let errors = expected.iter().filter(|one| **one == Observation::Error).count();
        prop_assert_eq!(window.samples(), expected.len() as u64);
        prop_assert_eq!(window.errors, errors as u64);
        prop_assert_eq!(window.p50_ms(), p50_of(&expected));
    }

    #[test]
    fn a_window_is_bad_exactly_where_the_observations_themselves_are(
        made in made(), now_ms in 0_i64..150_000, config in config()
    ) {
        // S1-05: no rounding of a rate, and no bucket that hides a latency from its threshold.
        let window = Window::at(after(now_ms), &config).over(&counted(&made));
        prop_assert_eq!(window.is_bad(&config), is_bad(&in_window(&made, now_ms), &config));
    }

    #[test]
    fn observations_on_clocks_that_differ_by_the_skew_are_in_one_window(
        ages_ms in prop::collection::vec(0_i64..25_000, 1..50), skew_ms in -5_000_i64..=5_000
    ) {
        // Somebody whose clock is off by so much counted what happened at most 25 seconds ago: 30 less the skew.
        let now_ms = 60_000;
        let made: Made = ages_ms.iter().map(|age| (now_ms - age + skew_ms, Observation::Error)).collect();
        let window = Window::at(after(now_ms), &ShedderConfig::default()).over(&counted(&made));
        prop_assert_eq!(window.errors, ages_ms.len() as u64);
    }

    #[test]
    fn what_is_counted_in_parts_is_what_is_counted_at_once(made in made(), parts in 1_usize..6) {
        let mut together = Slots::default();
        for part in 0..parts {
            let own: Made = made.iter().skip(part).step_by(parts).copied().collect();
            together.merge_all(&counted(&own));
        }
        prop_assert_eq!(together, counted(&made));
    }

    #[test]
    fn a_judgement_is_one_that_its_state_allows_whatever_is_counted(
        made in made(), now_ms in -40_000_i64..200_000, state in state()
    ) {
        let config = ShedderConfig::default();
        let judgement = judge(&state, &counted(&made), after(now_ms), &config);
        let allowed = match state.health {
            Health::Healthy => matches!(judgement, Judgement::Open | Judgement::Change(Health::Shed)),
            Health::Shed => matches!(judgement, Judgement::Shed | Judgement::Change(Health::Probing)),
            Health::Probing => matches!(judgement, Judgement::Shed | Judgement::Change(Health::Probing)),
            Health::Probation => matches!(
                judgement,
                Judgement::Ramp(_) | Judgement::Change(Health::Shed | Health::Healthy)
            ),
        };
        prop_assert!(allowed, "{:?}: {:?}", state, judgement);
    }

    #[test]
    fn nobody_probes_before_thirty_seconds_without_an_error(made in made(), now_ms in 0_i64..200_000, since_ms in 0_i64..100_000) {
        // S1-06
        let config = ShedderConfig::default();
        let shed = TargetState::default().next(Health::Shed, Nonce::from_random(1), after(since_ms), &config);
        if judge(&shed, &counted(&made), after(now_ms), &config) == Judgement::Change(Health::Probing) {
            let recent = made.iter().filter(|(ms, seen)| {
                *seen == Observation::Error && *ms >= since_ms && *ms > now_ms - 30_000 && *ms <= now_ms
            });
            prop_assert_eq!(recent.count(), 0);
            prop_assert!(now_ms - since_ms >= 30_000);
        }
    }

    #[test]
    fn probation_never_admits_less_as_it_goes_on(one_ms in 0_i64..30_000, more_ms in 0_i64..30_000) {
        let config = ShedderConfig::default();
        let state = TargetState::default().next(Health::Probation, Nonce::from_random(1), start(), &config);
        let share = |ms| judge(&state, &Slots::default(), after(ms), &config);
        match (share(one_ms), share(one_ms + more_ms)) {
            (Judgement::Ramp(earlier), Judgement::Ramp(later)) => prop_assert!(earlier <= later),
            (Judgement::Ramp(_), later) => prop_assert_eq!(later, Judgement::Change(Health::Healthy)),
            (earlier, _) => prop_assert!(false, "{:?}", earlier),
        }
    }
}
