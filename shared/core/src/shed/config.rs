//! The shedder's thresholds and spans, as a stack configures them.

use jiff::SignedDuration;

use super::slots::{LATENCY_BOUNDS_MS, SLOT};
use super::store::SLOT_KEPT;
use crate::drive::SEND_TIME_MAX;

/// When a target is shed, and how it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShedderConfig {
    /// Length of the rolling window. A whole number of slots.
    pub window: SignedDuration,
    /// A target whose middle latency is above this is shed. In milliseconds; one of [`LATENCY_BOUNDS_MS`].
    pub latency_ms_max: u32,
    /// A target of whose calls more than this share fails is shed. In percent; 100 never sheds for errors.
    pub error_percent: u32,
    /// Fewest observations in the window that a target is judged by.
    pub samples_min: u32,
    /// How long a shed target must show no error before it is probed.
    pub clean: SignedDuration,
    /// How long a target that passed its probe is on probation.
    pub probation: SignedDuration,
    /// How long whoever probes has the right to.
    pub probe: SignedDuration,
    /// Longest time for which an environment goes by what it read of a target.
    pub cache: SignedDuration,
    /// How far two clocks may differ. The ledger's own.
    pub skew: SignedDuration,
}

/// Settings that break rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct InvalidShedder(Vec<&'static str>);

impl InvalidShedder {
    /// Every rule that is broken, each beginning with the parameter that breaks it.
    #[must_use]
    pub fn rules(&self) -> &[&'static str] {
        &self.0
    }
}

impl ShedderConfig {
    /// These settings, if they agree with one another.
    ///
    /// # Errors
    /// [`InvalidShedder`] names every rule that is broken: change the parameters it names.
    pub fn checked(self) -> Result<Self, InvalidShedder> {
        let whole_slots = self.window.as_millis().checked_rem(SLOT.as_millis()) == Some(0);
        let two_slots = SLOT.saturating_mul(2);
        let rules = [
            (
                self.window >= two_slots && whole_slots,
                "SHED_WINDOW_SECONDS must be a multiple of 5, at least 10",
            ),
            (
                LATENCY_BOUNDS_MS.contains(&self.latency_ms_max),
                "SHED_LATENCY_MS_MAX must be one of the bounds by which latencies are counted \
                 (10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000)",
            ),
            (
                (1..=100).contains(&self.error_percent),
                "SHED_ERROR_PERCENT must be from 1 to 100",
            ),
            (self.samples_min > 0, "SHED_SAMPLES_MIN must be at least 1"),
            (
                self.clean >= two_slots,
                "SHED_CLEAN_SECONDS must be at least 10, or what came before a target was shed would keep it so",
            ),
            (
                self.probation.is_positive(),
                "SHED_PROBATION_SECONDS must be at least 1",
            ),
            (
                self.probe > SEND_TIME_MAX,
                "SHED_PROBE_SECONDS must be longer than a send may take (4), or two would probe at once",
            ),
            (
                self.cache.is_positive() && self.cache <= SLOT,
                "SHED_CACHE_SECONDS must be from 1 to 5",
            ),
            (!self.skew.is_negative(), "SKEW_SECONDS must not be negative"),
            (
                self.reach() <= SLOT_KEPT,
                "SHED_WINDOW_SECONDS, SHED_CLEAN_SECONDS and SHED_PROBATION_SECONDS must be at most an hour each",
            ),
        ];
        let broken: Vec<_> = rules
            .iter()
            .filter(|(holds, _)| !holds)
            .map(|(_, rule)| *rule)
            .collect();
        if broken.is_empty() {
            Ok(self)
        } else {
            Err(InvalidShedder(broken))
        }
    }

    /// How far back a judgement looks.
    #[must_use]
    pub fn reach(&self) -> SignedDuration {
        self.window.max(self.clean).max(self.probation)
    }
}

impl Default for ShedderConfig {
    /// The template's defaults.
    fn default() -> Self {
        Self {
            window: SignedDuration::from_secs(30),
            latency_ms_max: 5_000,
            error_percent: 25,
            samples_min: 10,
            clean: SignedDuration::from_secs(30),
            probation: SignedDuration::from_secs(30),
            probe: SignedDuration::from_secs(10),
            cache: SignedDuration::from_secs(2),
            skew: SignedDuration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::secs;

    const GOOD: fn() -> ShedderConfig = ShedderConfig::default;

    #[test]
    fn the_defaults_agree_with_one_another() {
        assert_eq!(GOOD().checked(), Ok(GOOD()));
    }

    #[test]
    fn every_rule_refuses_what_breaks_it_and_takes_what_just_keeps_it() {
        #[track_caller]
        fn check(named: &str, broken: ShedderConfig, kept: ShedderConfig) {
            let invalid = broken.checked().unwrap_err();
            assert_eq!(invalid.rules().len(), 1, "{named}: {invalid}");
            assert!(invalid.rules()[0].starts_with(named), "{named}: {invalid}");
            assert_eq!(kept.checked(), Ok(kept), "{named}");
        }
        let good = GOOD();
        let window = |window| ShedderConfig { window, ..good };
        check("SHED_WINDOW_SECONDS", window(secs(5)), window(secs(10)));
        check("SHED_WINDOW_SECONDS", window(secs(31)), window(secs(35)));
        check("SHED_WINDOW_SECONDS", window(secs(3_605)), window(secs(3_600)));
        let latency = |latency_ms_max| ShedderConfig { latency_ms_max, ..good };
        check("SHED_LATENCY_MS_MAX", latency(4_999), latency(2_500));
        let percent = |error_percent| ShedderConfig { error_percent, ..good };
        check("SHED_ERROR_PERCENT", percent(0), percent(1));
        check("SHED_ERROR_PERCENT", percent(101), percent(100));
        let samples = |samples_min| ShedderConfig { samples_min, ..good };
        check("SHED_SAMPLES_MIN", samples(0), samples(1));
        let clean = |clean| ShedderConfig { clean, ..good };
        check("SHED_CLEAN_SECONDS", clean(secs(9)), clean(secs(10)));
        let probation = |probation| ShedderConfig { probation, ..good };
        check("SHED_PROBATION_SECONDS", probation(secs(0)), probation(secs(1)));
        let probe = |probe| ShedderConfig { probe, ..good };
        check("SHED_PROBE_SECONDS", probe(secs(4)), probe(secs(5)));
        let cache = |cache| ShedderConfig { cache, ..good };
        check("SHED_CACHE_SECONDS", cache(secs(0)), cache(secs(1)));
        check("SHED_CACHE_SECONDS", cache(secs(6)), cache(secs(5)));
        let skew = |skew| ShedderConfig { skew, ..good };
        check("SKEW_SECONDS", skew(secs(-1)), skew(secs(0)));
    }

    #[test]
    fn every_broken_rule_is_named_at_once() {
        // LAMB-07
        let broken = ShedderConfig {
            latency_ms_max: 1,
            error_percent: 0,
            cache: secs(0),
            ..GOOD()
        };
        let invalid = broken.checked().unwrap_err();
        let names: Vec<_> = invalid
            .rules()
            .iter()
            .filter_map(|rule| rule.split(' ').next())
            .collect();
        assert_eq!(
            names,
            ["SHED_LATENCY_MS_MAX", "SHED_ERROR_PERCENT", "SHED_CACHE_SECONDS"]
        );
    }
}
