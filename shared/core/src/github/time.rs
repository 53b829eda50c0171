//! The times of payloads.

use jiff::Timestamp;

use super::payload::{Raw, Text, value};

/// The time that a raw field holds, as RFC 3339 text or as epoch seconds.
pub(super) fn time(raw: Raw<'_>) -> Option<Timestamp> {
    let json = raw?.get();
    match json.parse::<i64>() {
        Ok(epoch_s) => Timestamp::from_second(epoch_s).ok().filter(is_plausible),
        Err(_) => instant(value::<Text<'_>>(raw).ok()??.as_str()),
    }
}

/// The instant that RFC 3339 text names, whatever its offset. `None` for anything else, before 1970 and from the year 9000 on:
/// a commit may carry any date, and one at the end of time cannot be stored and read back.
pub(crate) fn instant(text: &str) -> Option<Timestamp> {
    text.parse().ok().filter(is_plausible)
}

/// 1 January 9000, 00:00 UTC.
const YEAR_9000: Timestamp = Timestamp::constant(221_845_392_000, 0);

fn is_plausible(time: &Timestamp) -> bool {
    (Timestamp::UNIX_EPOCH..YEAR_9000).contains(time)
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn parsed(json: &str) -> Option<String> {
        let raw: &RawValue = serde_json::from_str(json).unwrap();
        time(Some(raw)).map(|time| time.to_string())
    }

    #[test]
    fn times_are_read_as_seconds_or_with_any_offset() {
        assert_eq!(parsed("2147483648").as_deref(), Some("2038-01-19T03:14:08Z"), "NUM-04");
        let offset = parsed(r#""2026-02-11T20:15:00-05:00""#);
        assert_eq!(offset.as_deref(), Some("2026-02-12T01:15:00Z"), "NUM-05");
        assert_eq!(parsed(r#""2026-02-12T01:15:00Z""#), offset);
    }

    #[test]
    fn what_is_no_time_is_none() {
        for json in [
            "null",
            "true",
            "{}",
            "[1]",
            "1.5",
            "1e3",
            "-1",
            "9223372036854775807",
            r#""""#,
            r#""soon""#,
            r#""1969-12-31T23:59:59Z""#,
            r#""9999-12-30T22:00:00.5Z""#,
            r#""2026-13-01T00:00:00Z""#,
            r#""\ud83d""#,
        ] {
            assert_eq!(parsed(json), None, "{json}");
        }
    }
}
