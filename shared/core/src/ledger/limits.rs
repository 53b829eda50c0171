//! The ledger's spans of time, as a stack configures them.

use jiff::{SignedDuration, Timestamp};

use super::transition::later;
use crate::drive::SEND_TIME_MAX;

/// Spans and ceilings that decide when an event is driven again, given up or forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a claim lasts. At least the function's timeout plus `skew`, so that a lease outlives its owner.
    pub lease: SignedDuration,
    /// How far two clocks may differ.
    pub skew: SignedDuration,
    /// First wait after trouble.
    pub retry_min: SignedDuration,
    /// Longest wait after trouble.
    pub retry_max: SignedDuration,
    /// Failures of its own handling after which an event is given up.
    pub failures_max: u32,
    /// Age after which an event whose destinations stay unreachable is given up.
    pub age_max: SignedDuration,
    /// How long an event waits for an owner.
    pub park: SignedDuration,
    /// How long terminal rows, and the bodies of deliveries, are kept.
    pub retention: SignedDuration,
}

/// Spans that break rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct InvalidLimits(Vec<&'static str>);

impl InvalidLimits {
    /// Every rule that is broken, each beginning with the parameter that breaks it.
    #[must_use]
    pub fn rules(&self) -> &[&'static str] {
        &self.0
    }
}

/// Shortest retention: GitHub redelivers for 3 days, so a redelivery on the last of them must still be a duplicate.
const RETENTION_DAYS_MIN: i64 = 4;
/// What happened longer ago than the retention less this is stale: its first identity may be about to expire.
const CUT_OFF_MARGIN: SignedDuration = SignedDuration::from_hours(48);

impl Limits {
    /// These limits, if they agree with one another.
    ///
    /// # Errors
    /// [`InvalidLimits`] names every rule that is broken: change the parameters it names.
    pub fn checked(self) -> Result<Self, InvalidLimits> {
        let rules = [
            (self.lease > self.skew, "LEASE_SECONDS must be longer than SKEW_SECONDS"),
            (
                self.lease > SEND_TIME_MAX,
                "LEASE_SECONDS must be longer than a send may take (4), or nothing would ever be sent",
            ),
            (!self.skew.is_negative(), "SKEW_SECONDS must not be negative"),
            (self.retry_min.is_positive(), "RETRY_SECONDS_MIN must be at least 1"),
            (
                self.retry_max >= self.retry_min,
                "RETRY_SECONDS_MAX must be at least RETRY_SECONDS_MIN",
            ),
            (self.failures_max > 0, "FAILURES_MAX must be at least 1"),
            (
                self.retention >= SignedDuration::from_hours(RETENTION_DAYS_MIN.saturating_mul(24)),
                "RETENTION_DAYS must be at least 4, longer than GitHub redelivers",
            ),
            (self.park.is_positive(), "PARK_DAYS must be at least 1"),
            (self.age_max.is_positive(), "AGE_DAYS_MAX must be at least 1"),
        ];
        let broken: Vec<_> = rules
            .iter()
            .filter(|(holds, _)| !holds)
            .map(|(_, rule)| *rule)
            .collect();
        if broken.is_empty() {
            Ok(self)
        } else {
            Err(InvalidLimits(broken))
        }
    }

    /// What happened before this is stale at `now`.
    #[must_use]
    pub fn cut_off(&self, now: Timestamp) -> Timestamp {
        now.saturating_sub(self.retention.saturating_sub(CUT_OFF_MARGIN))
            .unwrap_or(Timestamp::MIN)
    }

    /// When a row that became terminal at `now` may go.
    #[must_use]
    pub fn event_expires_at(&self, now: Timestamp) -> Timestamp {
        later(now, self.retention)
    }

    /// When the row of a delivery received at `now` may go: not before its event's row, which can stay open for the longest
    /// of its waits first.
    #[must_use]
    pub fn delivery_expires_at(&self, now: Timestamp) -> Timestamp {
        later(later(now, self.retention), self.park.max(self.age_max))
    }
}

impl Default for Limits {
    /// The template's defaults.
    fn default() -> Self {
        let days = |days: i64| SignedDuration::from_hours(days.saturating_mul(24));
        Self {
            lease: SignedDuration::from_secs(30),
            skew: SignedDuration::from_secs(5),
            retry_min: SignedDuration::from_secs(15),
            retry_max: SignedDuration::from_secs(3_600),
            failures_max: 8,
            age_max: days(3),
            park: days(3),
            retention: days(35),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, days, secs};

    const GOOD: fn() -> Limits = Limits::default;

    #[test]
    fn the_defaults_agree_with_one_another() {
        assert_eq!(GOOD().checked(), Ok(GOOD()));
        assert!(GOOD().failures_max == 8 && GOOD().park == days(3) && GOOD().retention == days(35));
    }

    #[test]
    fn every_rule_refuses_what_breaks_it_and_takes_what_just_keeps_it() {
        #[track_caller]
        fn check(named: &str, broken: Limits, kept: Limits) {
            let invalid = broken.checked().unwrap_err();
            let names = invalid.rules().iter().filter(|rule| rule.starts_with(named));
            assert_eq!(names.count(), 1, "{named}: {invalid}");
            assert_eq!(kept.checked(), Ok(kept), "{named}");
        }
        let good = GOOD();
        let ms = SignedDuration::from_millis;
        let with_lease = |lease, skew| Limits { lease, skew, ..good };
        check(
            "LEASE_SECONDS",
            with_lease(secs(30), secs(30)),
            with_lease(secs(31), secs(30)),
        );
        // Every drive would find too little lease left and try again for ever.
        check(
            "LEASE_SECONDS",
            with_lease(secs(4), secs(0)),
            with_lease(secs(5), secs(0)),
        );
        check(
            "SKEW_SECONDS",
            with_lease(secs(30), ms(-1)),
            with_lease(secs(30), secs(0)),
        );
        let with_retry = |retry_min, retry_max| Limits {
            retry_min,
            retry_max,
            ..good
        };
        check(
            "RETRY_SECONDS_MIN",
            with_retry(secs(0), secs(1)),
            with_retry(secs(1), secs(1)),
        );
        check(
            "RETRY_SECONDS_MAX",
            with_retry(secs(2), secs(1)),
            with_retry(secs(2), secs(2)),
        );
        let with_failures = |failures_max| Limits { failures_max, ..good };
        check("FAILURES_MAX", with_failures(0), with_failures(1));
        let with_waits = |park, age_max| Limits { park, age_max, ..good };
        check("PARK_DAYS", with_waits(secs(0), days(1)), with_waits(secs(1), days(1)));
        check(
            "AGE_DAYS_MAX",
            with_waits(days(1), secs(0)),
            with_waits(days(1), secs(1)),
        );
    }

    #[test]
    fn every_broken_rule_is_named_at_once() {
        // LAMB-07
        let broken = Limits {
            skew: secs(-1),
            retry_max: secs(0),
            failures_max: 0,
            ..GOOD()
        };
        let invalid = broken.checked().unwrap_err();
        let names: Vec<_> = invalid
            .rules()
            .iter()
            .filter_map(|rule| rule.split(' ').next())
            .collect();
        assert_eq!(names, ["SKEW_SECONDS", "RETRY_SECONDS_MAX", "FAILURES_MAX"]);
        assert_eq!(invalid.to_string(), invalid.rules().join("; "));
    }

    #[test]
    fn a_retention_shorter_than_redelivery_is_refused() {
        // DDBL-09
        let kept_for = |retention| Limits { retention, ..GOOD() }.checked();
        assert!(kept_for(SignedDuration::from_hours(24)).is_err());
        assert!(kept_for(days(4) - secs(1)).is_err());
        assert!(kept_for(days(4)).is_ok());
    }

    #[test]
    fn an_identity_outlives_the_cut_off_so_that_it_never_comes_back_to_life() {
        // Whatever is young enough to be driven at `now` was terminal at the earliest when it happened, so its first row
        // is still there.
        for retention in [days(4), days(35), days(400)] {
            let limits = Limits { retention, ..GOOD() };
            let first_seen = limits.cut_off(at(0));
            assert_eq!(
                limits.event_expires_at(first_seen),
                at(0) + days(2),
                "two days of margin"
            );
        }
    }

    #[test]
    fn a_deliverys_row_stays_as_long_as_its_events_waits_may_last() {
        let limits = GOOD();
        assert_eq!(limits.delivery_expires_at(at(0)), at(0) + days(38));
        assert!(limits.delivery_expires_at(at(0)) >= limits.event_expires_at(at(0) + limits.park));
    }

    #[test]
    fn the_ends_of_time_are_no_overflow() {
        let limits = Limits {
            retention: SignedDuration::MAX,
            ..GOOD()
        };
        assert_eq!(limits.cut_off(at(0)), Timestamp::MIN);
        assert_eq!(limits.event_expires_at(at(0)), Timestamp::MAX);
        assert_eq!(limits.delivery_expires_at(Timestamp::MAX), Timestamp::MAX);
    }
}
