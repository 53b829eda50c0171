//! Observations, counted in slots, and the window over them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::ShedderConfig;

/// Length of a slot. A constant of the table's format: rows of two lengths could not be told apart.
pub const SLOT: SignedDuration = SignedDuration::from_secs(5);
const SLOT_MS: i64 = 5_000;
const _: () = assert!(SLOT.as_millis() == SLOT_MS as i128);

/// Upper bounds of the histogram of latencies, in milliseconds; one more bucket holds what is above them all.
///
/// A constant of the table's format. A threshold is one of them, so that comparing with it is exact.
pub const LATENCY_BOUNDS_MS: [u32; 11] = [10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000];
/// Buckets of the histogram.
const BUCKETS: usize = LATENCY_BOUNDS_MS.len() + 1;

/// What was seen of a target in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// It did what was asked, after this long.
    Success(SignedDuration),
    /// It failed, or did not answer in time.
    Error,
}

/// The number of a slot: how many have begun since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotNumber(i64);

impl SlotNumber {
    /// The slot that `at` is in.
    #[must_use]
    pub fn of(at: Timestamp) -> Self {
        Self(at.as_millisecond().div_euclid(SLOT_MS))
    }

    /// The slot that a stored number is.
    #[must_use]
    pub const fn from_number(number: i64) -> Self {
        Self(number)
    }

    /// The slot as a number.
    #[must_use]
    pub const fn number(self) -> i64 {
        self.0
    }

    /// When it begins.
    #[must_use]
    pub fn begins_at(self) -> Timestamp {
        Timestamp::from_millisecond(self.0.saturating_mul(SLOT_MS)).unwrap_or(Timestamp::MAX)
    }

    /// When it ends: the first instant of the next one.
    #[must_use]
    pub fn ends_at(self) -> Timestamp {
        Self(self.0.saturating_add(1)).begins_at()
    }
}

/// What was observed in one slot, or in several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Errors.
    pub errors: u64,
    /// Successes, by latency: bucket `i` holds those up to `LATENCY_BOUNDS_MS[i]`, the last one what is above.
    pub successes: [u64; BUCKETS],
}

impl Counts {
    /// Counts one observation.
    pub fn add(&mut self, observation: Observation) {
        match observation {
            Observation::Error => self.errors = self.errors.saturating_add(1),
            Observation::Success(latency) => {
                let within = |bound: &u32| latency <= SignedDuration::from_millis(i64::from(*bound));
                let bucket = LATENCY_BOUNDS_MS.iter().position(within);
                let bucket = self.successes.get_mut(bucket.unwrap_or(LATENCY_BOUNDS_MS.len()));
                if let Some(count) = bucket {
                    *count = count.saturating_add(1);
                }
            }
        }
    }

    /// Counts all of `other` too.
    pub fn merge(&mut self, other: &Self) {
        self.errors = self.errors.saturating_add(other.errors);
        for (count, more) in self.successes.iter_mut().zip(other.successes) {
            *count = count.saturating_add(more);
        }
    }

    /// Successes of whatever latency.
    #[must_use]
    pub fn successes(&self) -> u64 {
        self.successes.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// All observations.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.successes().saturating_add(self.errors)
    }

    /// Whether nothing was observed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples() == 0
    }

    /// The latency that at least half of the successes keep to, as a bound in milliseconds: the smallest that does.
    ///
    /// `None` without a success; `Some(None)` where it is above the largest bound.
    #[must_use]
    pub fn p50_ms(&self) -> Option<Option<u32>> {
        let half = self.successes().div_ceil(2);
        if half == 0 {
            return None;
        }
        let mut seen = 0_u64;
        let bound = LATENCY_BOUNDS_MS.iter().zip(self.successes).find(|(_, count)| {
            seen = seen.saturating_add(*count);
            seen >= half
        });
        Some(bound.map(|(bound, _)| *bound))
    }

    /// Whether these are enough observations, and too many of them errors or too many slow.
    #[must_use]
    pub fn is_bad(&self, config: &ShedderConfig) -> bool {
        let samples = self.samples();
        if samples < u64::from(config.samples_min) {
            return false;
        }
        // Multiplied out, so that no rate is rounded.
        let too_many_errors = u128::from(self.errors).saturating_mul(100)
            > u128::from(samples).saturating_mul(u128::from(config.error_percent));
        let too_slow = self
            .p50_ms()
            .is_some_and(|p50| p50.is_none_or(|bound| bound > config.latency_ms_max));
        too_many_errors || too_slow
    }
}

/// Counts by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots(pub BTreeMap<SlotNumber, Counts>);

impl Slots {
    /// Counts one observation at its time.
    pub fn add(&mut self, at: Timestamp, observation: Observation) {
        self.0.entry(SlotNumber::of(at)).or_default().add(observation);
    }

    /// Adds `counts` to one slot.
    pub fn merge(&mut self, slot: SlotNumber, counts: &Counts) {
        self.0.entry(slot).or_default().merge(counts);
    }

    /// Adds all of `other`.
    pub fn merge_all(&mut self, other: &Self) {
        for (slot, counts) in &other.0 {
            self.merge(*slot, counts);
        }
    }

    /// Everything together.
    #[must_use]
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        for counts in self.0.values() {
            total.merge(counts);
        }
        total
    }

    /// Forgets what is older than the slot.
    pub fn forget_before(&mut self, slot: SlotNumber) {
        self.0 = self.0.split_off(&slot);
    }

    /// The last slot with an error, from `from` on and no later than clocks may run ahead of `now`.
    #[must_use]
    pub fn last_error(&self, from: SlotNumber, now: Timestamp, config: &ShedderConfig) -> Option<SlotNumber> {
        let until = latest(now, config);
        let mut known = self
            .0
            .iter()
            .rev()
            .filter(|(slot, _)| **slot >= from && **slot <= until);
        known.find(|(_, counts)| counts.errors > 0).map(|(slot, _)| *slot)
    }
}

/// The latest slot that somebody whose clock runs ahead may have counted in.
fn latest(now: Timestamp, config: &ShedderConfig) -> SlotNumber {
    SlotNumber::of(now.saturating_add(config.skew).unwrap_or(Timestamp::MAX))
}

/// A rolling window: the slots that overlap so long a span before now, and those that a clock running ahead may have counted
/// in already.
///
/// It rolls by whole slots, so that it reaches back up to one slot more than its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    from: SlotNumber,
    until: SlotNumber,
}

impl Window {
    /// The window at `now`.
    #[must_use]
    pub fn at(now: Timestamp, config: &ShedderConfig) -> Self {
        Self {
            from: SlotNumber::of(now.saturating_sub(config.window).unwrap_or(Timestamp::MIN)),
            until: latest(now, config),
        }
    }

    /// This window without the slots that ended by `begin`.
    #[must_use]
    pub fn since(self, begin: Timestamp) -> Self {
        Self {
            from: self.from.max(SlotNumber::of(begin)),
            ..self
        }
    }

    /// Its first slot.
    #[must_use]
    pub const fn from(self) -> SlotNumber {
        self.from
    }

    /// What is in it.
    #[must_use]
    pub fn over(self, slots: &Slots) -> Counts {
        let mut total = Counts::default();
        // A range that ends before it begins would panic.
        if self.from <= self.until {
            for counts in slots.0.range(self.from..=self.until).map(|(_, counts)| counts) {
                total.merge(counts);
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    fn ms(ms: i64) -> SignedDuration {
        SignedDuration::from_millis(ms)
    }

    fn counts(errors: u64, latencies_ms: &[i64]) -> Counts {
        let mut counts = Counts {
            errors,
            ..Counts::default()
        };
        for latency in latencies_ms {
            counts.add(Observation::Success(ms(*latency)));
        }
        counts
    }

    #[test]
    fn a_slot_holds_its_first_instant_and_not_its_last() {
        let slot = SlotNumber::of(at(0));
        assert_eq!(SlotNumber::of(slot.begins_at()), slot);
        assert_eq!(slot.ends_at().duration_since(slot.begins_at()), SLOT);
        assert_eq!(SlotNumber::of(slot.ends_at()).number(), slot.number() + 1);
        let before_epoch = Timestamp::from_millisecond(-1).unwrap();
        assert_eq!(SlotNumber::of(before_epoch).number(), -1);
    }

    #[test]
    fn a_latency_is_in_the_bucket_of_the_smallest_bound_that_it_keeps_to() {
        for (index, bound) in LATENCY_BOUNDS_MS.iter().enumerate() {
            assert_eq!(counts(0, &[i64::from(*bound)]).successes[index], 1, "{bound}");
            assert_eq!(counts(0, &[i64::from(*bound) + 1]).successes[index + 1], 1, "{bound}");
        }
        // A clock that was set back.
        assert_eq!(counts(0, &[-5]).successes[0], 1);
    }

    #[test]
    fn the_middle_latency_is_the_bound_that_half_of_the_successes_keep_to() {
        assert_eq!(counts(3, &[]).p50_ms(), None);
        assert_eq!(counts(0, &[7]).p50_ms(), Some(Some(10)));
        assert_eq!(counts(0, &[7, 400]).p50_ms(), Some(Some(10)));
        assert_eq!(counts(0, &[7, 400, 400]).p50_ms(), Some(Some(500)));
        assert_eq!(counts(9, &[40_000, 40_000, 7]).p50_ms(), Some(None));
    }

    #[test]
    fn a_window_is_bad_above_its_thresholds_and_not_at_them() {
        // S1-05
        let config = ShedderConfig::default();
        let fast = |count: usize| vec![7; count];
        assert!(!counts(25, &fast(75)).is_bad(&config));
        assert!(counts(26, &fast(74)).is_bad(&config));
        let slow = |slow: usize, fast: usize| [vec![5_001; slow], vec![5_000; fast]].concat();
        assert!(!counts(0, &slow(50, 50)).is_bad(&config));
        assert!(counts(0, &slow(51, 50)).is_bad(&config));
    }

    #[test]
    fn two_or_three_samples_shed_nothing() {
        // BRKR-06
        let config = ShedderConfig::default();
        assert!(!counts(1, &[7]).is_bad(&config));
        assert!(!counts(9, &[]).is_bad(&config));
        assert!(counts(10, &[]).is_bad(&config));
        assert!(!counts(0, &[9_000; 9]).is_bad(&config));
        assert!(counts(0, &[9_000; 10]).is_bad(&config));
    }
}
