//! Times as they are shown and as they are asked for.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Serialize, Serializer};

/// Longest span that is looked back over, in days: the longest retention.
const DAYS_MAX: i64 = 3_660;

/// A time as it is shown: RFC 3339, for people in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub(crate) Timestamp);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = Timestamp::from_second(self.0.as_second()).unwrap_or(self.0);
        write!(f, "{seconds}")
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// How far a listing goes back: a span before now, or a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// So long ago.
    Span(SignedDuration),
    /// At this time.
    At(Timestamp),
}

impl Since {
    /// Reads `90s`, `15m`, `2h`, `3d`, `2w`, or a time such as `2026-11-16T15:40:00Z`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Ok(at) = text.parse() {
            return Ok(Self::At(at));
        }
        span(text).map(Self::Span).ok_or_else(|| {
            format!("give a span such as 90s, 15m, 2h, 3d or 2w, at most {DAYS_MAX} days, or a time such as 2026-11-16T15:40:00Z")
        })
    }

    /// The time that is meant, at `now`.
    pub(crate) fn before(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Span(span) => now.saturating_sub(span).unwrap_or(Timestamp::MIN),
            Self::At(at) => at,
        }
    }
}

/// The span that a number and a unit's letter spell.
fn span(text: &str) -> Option<SignedDuration> {
    const UNITS: [(char, i64); 5] = [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400), ('w', 604_800)];
    let (unit, seconds) = UNITS.into_iter().find(|(unit, _)| text.ends_with(*unit))?;
    let digits = text.strip_suffix(unit)?;
    // `parse` alone would take a sign.
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = digits.parse().ok().filter(|_| plain)?;
    let seconds = number.checked_mul(seconds)?;
    (1..=DAYS_MAX * 86_400)
        .contains(&seconds)
        .then(|| SignedDuration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let now = at("2026-11-16T15:40:00Z");
        assert_eq!(Since::parse(text).unwrap().before(now), at(expected), "{text}");
    }

    #[test]
    fn a_span_counts_back_from_now_and_a_time_is_itself() {
        check("90s", "2026-11-16T15:38:30Z");
        check("15m", "2026-11-16T15:25:00Z");
        check("2h", "2026-11-16T13:40:00Z");
        check("3d", "2026-11-13T15:40:00Z");
        check("1w", "2026-11-09T15:40:00Z");
        check("2026-01-02T03:04:05+01:00", "2026-01-02T02:04:05Z");
    }

    #[test]
    fn what_is_neither_is_refused_with_examples() {
        for text in [
            "",
            "h",
            "2",
            "-2h",
            "+2h",
            "2 h",
            "2x",
            "0d",
            "3661d",
            "99999999999999999999d",
            "yesterday",
        ] {
            let problem = Since::parse(text).expect_err(text);
            assert!(problem.contains("2h"), "{text}: {problem}");
        }
    }

    #[test]
    fn people_read_whole_seconds_and_programs_all_there_is() {
        let time = Time(at("2026-11-16T15:40:00.123Z"));
        assert_eq!(time.to_string(), "2026-11-16T15:40:00Z");
        assert_eq!(serde_json::to_string(&time).unwrap(), "\"2026-11-16T15:40:00.123Z\"");
    }
}
