//! How long to wait after trouble.

use jiff::SignedDuration;

/// Doublings after which the wait stops growing: 2²⁰ times the shortest wait is beyond every longest one.
const DOUBLINGS_MAX: u32 = 20;

/// The wait before try number `tries` + 1: between half and all of `min` · 2^`tries`, never more than `max`.
///
/// `seed` spreads the waits of many events; the same seed gives the same wait.
#[must_use]
pub fn wait(tries: u32, min: SignedDuration, max: SignedDuration, seed: u64) -> SignedDuration {
    let min_ms = whole_ms(min).max(1);
    let full_ms = min_ms
        .saturating_mul(1_u64 << tries.min(DOUBLINGS_MAX))
        .min(whole_ms(max))
        .max(1);
    let half_ms = full_ms.div_ceil(2);
    let spread_ms = full_ms.saturating_sub(half_ms).saturating_add(1);
    let jitter_ms = scramble(seed ^ u64::from(tries)).checked_rem(spread_ms).unwrap_or(0);
    SignedDuration::from_millis(i64::try_from(half_ms.saturating_add(jitter_ms)).unwrap_or(i64::MAX))
}

fn whole_ms(span: SignedDuration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(0)
}

/// Spreads neighbouring seeds over all 64 bits: the finaliser of splitmix64
/// (<https://prng.di.unimi.it/splitmix64.c>, public domain).
pub(crate) const fn scramble(seed: u64) -> u64 {
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: SignedDuration = SignedDuration::from_secs(15);
    const MAX: SignedDuration = SignedDuration::from_secs(3_600);

    #[test]
    fn the_wait_doubles_until_its_longest_and_never_leaves_its_bounds() {
        for seed in 0..500 {
            for tries in 0..64 {
                let full = MIN.as_secs().saturating_mul(1 << tries.min(20)).min(3_600);
                let wait = wait(tries, MIN, MAX, seed);
                assert!(wait <= SignedDuration::from_secs(full), "{tries} {seed}: {wait}");
                assert!(wait * 2 >= SignedDuration::from_secs(full), "{tries} {seed}: {wait}");
            }
        }
    }

    #[test]
    fn the_spread_is_the_published_one() {
        // The first outputs of splitmix64 from the state 1234567, whose every output is the finaliser of the next state.
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        let mut state = 1_234_567_u64;
        for output in published {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            assert_eq!(scramble(state), output);
        }
    }

    #[test]
    fn a_wait_depends_on_both_the_seed_and_the_try_and_on_nothing_else() {
        for tries in [8, 9, 12, 15] {
            let distinct: std::collections::BTreeSet<_> = (0..64).map(|seed| wait(tries, MIN, MAX, seed)).collect();
            assert_eq!(distinct.len(), 64, "of neighbouring seeds, at try {tries}");
        }
        let distinct: std::collections::BTreeSet<_> = (8..40).map(|tries| wait(tries, MIN, MAX, 0x55)).collect();
        assert_eq!(distinct.len(), 32, "of one seed, at one full length");
        assert_eq!(wait(8, MIN, MAX, 7), wait(8, MIN, MAX, 7));
    }

    #[test]
    fn a_wait_may_be_as_long_as_its_bounds_and_is_never_nothing() {
        // Both ends of the spread belong to it: one second can become any of 501 spans.
        let waits: std::collections::BTreeSet<_> = (0..20_000)
            .map(|seed| wait(0, SignedDuration::from_secs(1), MAX, seed).as_millis())
            .collect();
        assert_eq!(waits, (500..=1_000).collect());
        for (min, max) in [
            (SignedDuration::ZERO, SignedDuration::ZERO),
            (SignedDuration::from_secs(-1), MAX),
            (MIN, SignedDuration::from_secs(-1)),
        ] {
            assert_eq!(wait(0, min, max, 1), SignedDuration::from_millis(1));
        }
    }

    #[test]
    fn waits_of_many_events_spread() {
        let distinct: std::collections::BTreeSet<_> = (0..100).map(|seed| wait(8, MIN, MAX, seed)).collect();
        assert!(distinct.len() > 90);
    }
}
