//! The ledger's spans of time, as a stack configures them.

use jiff::{SignedDuration, Timestamp};

use super::transition::later;

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

/// A span that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidLimits(&'static str);

/// Shortest retention: GitHub redelivers for 3 days, so a redelivery on the last of them must still be a duplicate.
const RETENTION_DAYS_MIN: i64 = 4;
/// What happened longer ago than the retention less this is stale: its first identity may be about to expire.
const CUT_OFF_MARGIN: SignedDuration = SignedDuration::from_hours(48);

impl Limits {
    /// These limits, if they agree with one another.
    ///
    /// # Errors
    /// [`InvalidLimits`] names the rule that is broken: change the parameter it names.
    pub fn checked(self) -> Result<Self, InvalidLimits> {
        let rules = [
            (self.lease > self.skew, "LEASE_SECONDS must be longer than SKEW_SECONDS"),
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
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, broken)) => Err(InvalidLimits(broken)),
            None => Ok(self),
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
