//! GitHub's limits: when the next request may be made, and what an answer is besides.
//!
//! Sources: <https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api> for the order of the rules,
//! <https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api> for what to do.

use jiff::{SignedDuration, Timestamp};

use super::{Answer, Right};

/// The wait after a limit that names none: at least a minute, and longer each time.
const UNNAMED_MIN: SignedDuration = SignedDuration::from_secs(60);
/// Doublings of that.
const DOUBLINGS_MAX: u32 = 10;
/// What is added to a reset: its second may not be over on GitHub's side.
const RESET_MARGIN: SignedDuration = SignedDuration::from_secs(1);
/// The least time between two requests without a right: there are sixty of them an hour, and thousands with one.
pub(crate) const ANONYMOUS_SPACING: SignedDuration = SignedDuration::from_secs(60);

/// What an answer says about its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Here it is.
    Fine,
    /// Nothing has changed since the validator.
    NotModified,
    /// Too many requests: none for so long.
    Limited(SignedDuration),
    /// As things are configured there is no such thing for this right: forbidden, or not there, which is how GitHub answers for
    /// what one may not know of.
    Misconfigured(&'static str),
    /// GitHub will not do this, now or later: there are no pages behind this, or the thing is past it.
    Ended,
    /// GitHub failed.
    Failed,
}

/// How waits are bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// No wait is longer, whatever an answer asks for.
    pub wait_max: SignedDuration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wait_max: SignedDuration::from_secs(3_600),
        }
    }
}

impl Limits {
    /// What `answer` says about its request. `strikes` limits that named no wait came before it in a row.
    #[must_use]
    pub fn judge(&self, answer: &Answer, now: Timestamp, strikes: u32) -> Standing {
        match answer.status {
            200..=299 => Standing::Fine,
            304 => Standing::NotModified,
            403 | 429 if is_limit(answer) => Standing::Limited(self.wait(answer, now, strikes)),
            401 => Standing::Misconfigured("unauthorized"),
            403 => Standing::Misconfigured("forbidden"),
            404 | 410 => Standing::Misconfigured("not_found"),
            // Left where a redirect leads off the API's host, or in circles.
            301 | 302 | 307 | 308 => Standing::Misconfigured("moved"),
            400 | 422 => Standing::Ended,
            _ => Standing::Failed,
        }
    }

    /// How long the right rests after an answer that was none of a limit: until the reset where it was the last request, and
    /// without a right so that the hour's few requests last.
    #[must_use]
    pub fn rest(&self, answer: &Answer, right: &Right, now: Timestamp) -> Option<SignedDuration> {
        if answer.remaining == Some(0) {
            return Some(self.wait(answer, now, 0));
        }
        if *right != Right::Anonymous {
            return None;
        }
        let spaced = ANONYMOUS_SPACING;
        let left = self.until_reset(answer, now).zip(answer.remaining);
        let by_budget = left.and_then(|(span, remaining)| span.checked_div(i32::try_from(remaining).ok()?));
        Some(by_budget.unwrap_or(spaced).max(spaced).min(self.wait_max))
    }

    fn wait(&self, answer: &Answer, now: Timestamp, strikes: u32) -> SignedDuration {
        let named = match answer.retry_after_s {
            Some(seconds @ 1..) => Some(SignedDuration::from_secs(i64::from(seconds))),
            Some(0) | None if answer.remaining == Some(0) => self.until_reset(answer, now),
            Some(0) | None => None,
        };
        let unnamed = UNNAMED_MIN.saturating_mul(1_i32 << strikes.min(DOUBLINGS_MAX));
        named.unwrap_or(unnamed).min(self.wait_max)
    }

    /// Measured by GitHub's own clock: ours may be minutes away from it.
    fn until_reset(&self, answer: &Answer, now: Timestamp) -> Option<SignedDuration> {
        let span = answer.reset?.duration_since(answer.date.unwrap_or(now));
        Some(
            span.max(SignedDuration::ZERO)
                .saturating_add(RESET_MARGIN)
                .min(self.wait_max),
        )
    }
}

/// Whether a refusal is for too many requests. A plain 403 with budget left is a matter of permission.
fn is_limit(answer: &Answer) -> bool {
    answer.status == 429
        || answer.retry_after_s.is_some()
        || answer.remaining == Some(0)
        || says_rate_limit(&answer.body)
}

/// A secondary limit may show in nothing but its text.
fn says_rate_limit(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Refusal {
        message: String,
    }
    let refusal = serde_json::from_slice::<Refusal>(body);
    // Older Enterprise servers call it abuse.
    refusal.is_ok_and(|refusal| {
        let message = refusal.message.to_ascii_lowercase();
        ["rate limit", "abuse detection"]
            .iter()
            .any(|words| message.contains(words))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, secs};

    fn refused(status: u16) -> Answer {
        Answer {
            status,
            date: Some(at(0)),
            ..Answer::default()
        }
    }

    fn judge(answer: &Answer) -> Standing {
        Limits::default().judge(answer, at(0), 0)
    }

    #[test]
    fn a_spent_budget_waits_until_its_reset_and_a_second() {
        // RATE-01, S3-20
        let spent = Answer {
            remaining: Some(0),
            reset: Some(at(60)),
            ..refused(403)
        };
        assert_eq!(judge(&spent), Standing::Limited(secs(61)));
    }

    #[test]
    fn a_stated_wait_is_kept_whatever_the_status() {
        // RATE-04
        for status in [403, 429] {
            let asked = Answer {
                retry_after_s: Some(37),
                remaining: Some(0),
                reset: Some(at(600)),
                ..refused(status)
            };
            assert_eq!(judge(&asked), Standing::Limited(secs(37)));
        }
    }

    #[test]
    fn a_limit_that_names_no_wait_waits_a_minute_and_longer_each_time() {
        // S3-20
        let secondary = Answer {
            body: br#"{"message":"You have exceeded a secondary rate limit."}"#.to_vec(),
            remaining: Some(4_000),
            ..refused(403)
        };
        let wait = |strikes| Limits::default().judge(&secondary, at(0), strikes);
        assert_eq!(wait(0), Standing::Limited(secs(60)));
        assert_eq!(wait(1), Standing::Limited(secs(120)));
        assert_eq!(wait(3), Standing::Limited(secs(480)));
        assert_eq!(wait(u32::MAX), Standing::Limited(secs(3_600)));
        assert_eq!(judge(&refused(429)), Standing::Limited(secs(60)));
    }

    #[test]
    fn a_limit_in_the_words_of_an_older_server_is_one() {
        // S3-20
        let body = br#"{"message":"You have triggered an abuse detection mechanism. Please wait a few minutes before you try again."}"#;
        let older = Answer {
            body: body.to_vec(),
            remaining: Some(4_000),
            ..refused(403)
        };
        assert_eq!(judge(&older), Standing::Limited(secs(60)));
    }

    #[test]
    fn a_stated_wait_that_cannot_be_read_is_a_limit_that_names_none() {
        // RATE-04
        let asked = Answer {
            retry_after_s: Some(0),
            remaining: Some(4_000),
            ..refused(403)
        };
        assert_eq!(Limits::default().judge(&asked, at(0), 2), Standing::Limited(secs(240)));
        let spent = Answer {
            remaining: Some(0),
            reset: Some(at(600)),
            ..asked
        };
        assert_eq!(judge(&spent), Standing::Limited(secs(601)));
    }

    #[test]
    fn a_refusal_without_signs_of_a_limit_is_a_matter_of_permission() {
        // RATE-03
        let forbidden = Answer {
            remaining: Some(4_711),
            body: br#"{"message":"Resource not accessible by integration"}"#.to_vec(),
            ..refused(403)
        };
        assert_eq!(judge(&forbidden), Standing::Misconfigured("forbidden"));
        assert_eq!(judge(&refused(404)), Standing::Misconfigured("not_found"), "FEED-14");
        assert_eq!(judge(&refused(401)), Standing::Misconfigured("unauthorized"));
        assert_eq!(judge(&refused(422)), Standing::Ended, "FEED-08");
        assert_eq!(judge(&refused(502)), Standing::Failed);
        assert_eq!(judge(&refused(301)), Standing::Misconfigured("moved"), "FEED-13");
    }

    #[test]
    fn waits_are_measured_by_githubs_clock_and_are_neither_negative_nor_absurd() {
        // RATE-06
        let spent = |reset, date| Answer {
            remaining: Some(0),
            reset: Some(reset),
            date,
            ..refused(403)
        };
        let ahead = Limits::default().judge(&spent(at(60), Some(at(0))), at(600), 0);
        assert_eq!(ahead, Standing::Limited(secs(61)));
        assert_eq!(judge(&spent(at(-60), Some(at(0)))), Standing::Limited(secs(1)));
        assert_eq!(judge(&spent(at(90_000), None)), Standing::Limited(secs(3_600)));
    }

    #[test]
    fn the_last_request_of_a_budget_gives_its_page_and_then_rests() {
        // S3-20
        let last = Answer {
            status: 200,
            remaining: Some(0),
            reset: Some(at(120)),
            date: Some(at(0)),
            ..Answer::default()
        };
        assert_eq!(judge(&last), Standing::Fine);
        assert_eq!(Limits::default().rest(&last, &Right::Token, at(0)), Some(secs(121)));
    }

    #[test]
    fn without_a_right_the_hours_few_requests_are_spread() {
        // COND-03: budget comes from the headers, also of an answer without change.
        let rest = |remaining, reset| {
            let answer = Answer {
                status: 304,
                remaining: Some(remaining),
                reset: Some(reset),
                date: Some(at(0)),
                ..Answer::default()
            };
            Limits::default().rest(&answer, &Right::Anonymous, at(0))
        };
        assert_eq!(rest(59, at(3_539)), Some(secs(60)));
        assert_eq!(rest(10, at(3_599)), Some(secs(360)));
        let unknown = Limits::default().rest(&Answer::default(), &Right::Anonymous, at(0));
        assert_eq!(unknown, Some(secs(60)));
        let with_right = Answer {
            remaining: Some(10),
            ..Answer::default()
        };
        assert_eq!(Limits::default().rest(&with_right, &Right::Token, at(0)), None);
    }
}
