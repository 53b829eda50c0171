//! GitHub's REST interface as a port: what is asked, what is read of an answer, and what an answer says about asking again.
//!
//! The adapter carries requests and bytes. Everything that an answer means is read here.

mod credentials;
mod limit;

use std::fmt;
use std::future::Future;

use jiff::Timestamp;

use crate::ports::ErrorClass;
use crate::target::TargetKey;

pub use credentials::{AccessError, ApiToken, App, GithubAccess, anonymous};
pub(crate) use limit::ANONYMOUS_SPACING;
pub use limit::{Limits, Standing};

/// Largest body of an answer that is taken, in bytes. A page of a hundred items stays far below.
pub const ANSWER_BYTES_MAX: usize = 8 * 1_024 * 1_024;

/// Under whose right a request is made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Nobody's: 60 requests an hour for each address.
    Anonymous,
    /// The token's.
    Token,
    /// The App's own: its delivery log, its installations.
    App,
    /// Of the App, as it is installed for the account of this name.
    Installation(String),
}

/// A right, and the target that stands for it in scheduling, shedding and rate accounting. Carries no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Whose right.
    pub right: Right,
    /// GitHub, as it is reached with it: limits and validators belong to that.
    pub target: TargetKey,
}

/// How a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Asks for something to be done.
    Post,
}

/// One request. Never has a body.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// How.
    pub method: Method,
    /// A path with its query, from the API's base, or an absolute URL from a `Link` header. Anything absolute must be on the
    /// API's own host.
    pub url: &'a str,
    /// Under whose right.
    pub credential: &'a Credential,
    /// The validator of an earlier answer to the same URL under the same right: `If-None-Match`.
    pub etag: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// Reads `url`.
    #[must_use]
    pub const fn get(url: &'a str, credential: &'a Credential) -> Self {
        Self {
            method: Method::Get,
            url,
            credential,
            etag: None,
        }
    }
}

/// An answer of GitHub's, whatever its status.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The page's validator, in GitHub's spelling.
    pub etag: Option<String>,
    /// Where the next page is.
    pub next: Option<String>,
    /// Where the page before this one is.
    pub prev: Option<String>,
    /// Where the last page is, on a page that is not the last.
    pub last: Option<String>,
    /// How long GitHub wants between two polls of this feed, in seconds.
    pub poll_interval_s: Option<u32>,
    /// What GitHub's own clock said.
    pub date: Option<Timestamp>,
    /// How long to ask for nothing, in seconds. 0 is a wait that is asked for and not named.
    pub retry_after_s: Option<u32>,
    /// Requests that are left until `reset`.
    pub remaining: Option<u32>,
    /// When there are new ones.
    pub reset: Option<Timestamp>,
    /// The body, at most [`ANSWER_BYTES_MAX`] bytes.
    pub body: Vec<u8>,
}

impl fmt::Debug for Answer {
    /// Without the body, which is payload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer({} {} bytes)", self.status, self.body.len())
    }
}

impl Answer {
    /// What is read of an answer. `header` gives a header's text by its name in lower case.
    #[must_use]
    pub fn read<'a>(status: u16, header: impl Fn(&'static str) -> Option<&'a str>, body: Vec<u8>) -> Self {
        let number = |name| header(name)?.trim().parse().ok();
        let linked = |relation| header("link").and_then(|link| target_of(link, relation));
        let date = header("date").and_then(http_date);
        let reset = header("x-ratelimit-reset").and_then(|text| text.trim().parse().ok());
        Self {
            status,
            etag: header("etag").map(str::to_owned),
            next: linked("next"),
            prev: linked("prev"),
            last: linked("last"),
            poll_interval_s: number("x-poll-interval"),
            date,
            retry_after_s: header("retry-after").map(|text| wait_of(text, date)),
            remaining: number("x-ratelimit-remaining"),
            reset: reset.and_then(|epoch_s| Timestamp::from_second(epoch_s).ok()),
            body,
        }
    }
}

/// How long a `Retry-After` header asks to wait, in seconds (RFC 9110): a number of them, or until a time by the server's own clock.
/// One that cannot be read asks to wait all the same: 0, for a wait that is not named.
fn wait_of(text: &str, date: Option<Timestamp>) -> u32 {
    let text = text.trim();
    let until = || Some(http_date(text)?.duration_since(date?).as_secs().max(1));
    let until = || until().and_then(|seconds| u32::try_from(seconds).ok());
    text.parse().ok().or_else(until).unwrap_or(0)
}

/// The target of this relation in a `Link` header (RFC 8288).
fn target_of(link: &str, relation: &str) -> Option<String> {
    let mut rest = link;
    while let Some((_, after)) = rest.split_once('<') {
        let (target, after) = after.split_once('>')?;
        let (parameters, following) = match after.split_once('<') {
            Some((parameters, _)) => after.split_at_checked(parameters.len())?,
            None => (after, ""),
        };
        let is_it = parameters.split(';').any(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let value = value.trim().trim_end_matches(',').trim().trim_matches('"');
            name.trim().eq_ignore_ascii_case("rel") && value.split_whitespace().any(|rel| rel == relation)
        });
        if is_it {
            return Some(target.to_owned());
        }
        rest = following;
    }
    None
}

/// An HTTP date in its one current form (RFC 9110, section 5.6.7).
fn http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::parse(text.trim())
        .ok()
        .map(|zoned| zoned.timestamp())
}

/// A request that had no answer.
#[derive(Debug, thiserror::Error)]
#[error("ask GitHub for {on}: {}", class.as_str())]
pub struct ApiError {
    /// For what: a path without its query, never content.
    pub on: String,
    /// What went wrong. [`ErrorClass::Denied`] where there is no right to ask with: no token, or an App that is not installed
    /// there.
    pub class: ErrorClass,
    /// The adapter's error.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// GitHub's REST interface.
pub trait Api: Send + Sync {
    /// Makes one request. An answer of any status is an answer; redirects on the API's own host have been followed.
    ///
    /// # Errors
    /// [`ApiError`] where there was no answer in time, or none that can be taken.
    fn ask(&self, request: Request<'_>) -> impl Future<Output = Result<Answer, ApiError>> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(headers: &[(&str, &'static str)]) -> Answer {
        let header = |name: &'static str| headers.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
        Answer::read(200, header, b"payload".to_vec())
    }

    #[test]
    fn an_answers_headers_are_read_and_what_is_malformed_counts_as_absent() {
        let read = answer(&[
            ("etag", "W/\"abc\""),
            ("x-poll-interval", "60"),
            ("date", "Fri, 02 Jan 2026 03:04:05 GMT"),
            ("retry-after", "37"),
            ("x-ratelimit-remaining", "4711"),
            ("x-ratelimit-reset", "1767323045"),
        ]);
        assert_eq!(read.etag.as_deref(), Some("W/\"abc\""));
        assert_eq!(
            (read.poll_interval_s, read.retry_after_s, read.remaining),
            (Some(60), Some(37), Some(4_711))
        );
        // RATE-07: the header is an instant in epoch seconds, and no span.
        assert_eq!(read.reset.unwrap().to_string(), "2026-01-02T03:04:05Z");
        assert_eq!(read.date, read.reset);
        let odd = answer(&[
            ("x-poll-interval", "soon"),
            ("date", "yesterday"),
            ("x-ratelimit-remaining", ""),
            ("x-ratelimit-reset", "9999999999999999"),
        ]);
        assert_eq!(
            odd,
            Answer {
                status: 200,
                body: b"payload".to_vec(),
                ..Answer::default()
            }
        );
    }

    #[test]
    fn a_stated_wait_is_one_however_it_is_spelt() {
        // RATE-04
        let check = |text: &'static str, seconds: u32| {
            let read = answer(&[("date", "Fri, 02 Jan 2026 03:04:05 GMT"), ("retry-after", text)]);
            assert_eq!(read.retry_after_s, Some(seconds), "{text}");
        };
        check(" 37 ", 37);
        check("Fri, 02 Jan 2026 03:05:05 GMT", 60);
        check("Fri, 02 Jan 2026 03:00:00 GMT", 1);
        for odd in ["-1", "soon", "", "1.5", "99999999999"] {
            check(odd, 0);
        }
        let undated = answer(&[("retry-after", "Fri, 02 Jan 2026 03:05:05 GMT")]);
        assert_eq!(undated.retry_after_s, Some(0));
    }

    #[test]
    fn the_next_page_is_found_whatever_stands_beside_it() {
        let next = |link: &'static str| answer(&[("link", link)]).next;
        let two =
            "<https://api.github.com/x?page=1>; rel=\"prev\", <https://api.github.com/x?a=1,2&page=3>; rel=\"next\"";
        assert_eq!(next(two).as_deref(), Some("https://api.github.com/x?a=1,2&page=3"));
        assert_eq!(next("<u>; title=\"a\"; rel=\"last next\"").as_deref(), Some("u"));
        assert_eq!(next("<u>; rel=next").as_deref(), Some("u"));
        for none in [
            "",
            "<u>; rel=\"last\"",
            "<u",
            "u; rel=\"next\"",
            "<u>; rel=\"nextish\"",
            "<u>",
        ] {
            assert_eq!(next(none), None, "{none}");
        }
        let between = answer(&[("link", two)]);
        assert_eq!(between.prev.as_deref(), Some("https://api.github.com/x?page=1"));
        assert_eq!(between.last, None);
    }

    #[test]
    fn a_printed_answer_shows_its_size_and_not_what_it_says() {
        // Invariant 8
        assert_eq!(format!("{:?}", answer(&[("etag", "e")])), "Answer(200 7 bytes)");
    }
}
