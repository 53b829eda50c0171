//! GitHub's feeds and delivery logs as sources.

mod feed;
mod recovery;

use jiff::{SignedDuration, Timestamp};

use super::{Cursor, FailedPoll, Poll, PollCounts, PollError, Polled, SourceId, Turn};
use crate::api::{ANONYMOUS_SPACING, Answer, Api, Credential, Limits, Method, Request, Right, Standing};
use crate::ports::ErrorClass;

pub use feed::{Feed, FeedConfig, FeedKind};
pub use recovery::{Becomes, HookLog, Lost, Missing, MissingStore, Recovery, RecoveryConfig, Remedy, Word};

/// Longest least time between two polls that an answer may ask for: a header must not silence a feed.
const INTERVAL_MAX: SignedDuration = SignedDuration::from_secs(3_600);
/// A request is not begun with less of the turn left: it may take that long.
pub const REQUEST_TIME_MAX: SignedDuration = SignedDuration::from_secs(10);

/// The requests of one poll, and what they say together.
struct Round<'a, A> {
    api: &'a A,
    credential: &'a Credential,
    limits: Limits,
    turn: Turn<'a>,
    counts: PollCounts,
    slowest: Option<SignedDuration>,
    interval_s: Option<u32>,
    rest: Option<SignedDuration>,
    /// There is no request left, or a limit was met.
    is_spent: bool,
}

/// What came of one request.
enum Asked {
    /// The answer.
    Fine(Answer),
    /// Nothing has changed since the validator.
    NotModified(Answer),
    /// There is nothing behind this.
    Ended,
    /// The rest of the turn is too short for it, or the right is used up, as far as this poll and those beside it know.
    OutOfTime,
    /// No more requests for so long.
    Throttled(SignedDuration),
    /// It cannot be had as things are configured.
    Misconfigured(&'static str),
    /// There was no answer.
    Unanswered(&'static str),
}

impl<'a, A: Api> Round<'a, A> {
    fn new(api: &'a A, credential: &'a Credential, limits: Limits, turn: Turn<'a>) -> Self {
        Self {
            api,
            credential,
            limits,
            turn,
            counts: PollCounts::default(),
            slowest: None,
            interval_s: None,
            rest: None,
            is_spent: false,
        }
    }

    fn now(&self) -> Timestamp {
        self.turn.time.now()
    }

    /// Whether the turn lasts for one more request, and GitHub has one more for us.
    fn may_ask(&mut self) -> bool {
        let now = self.now();
        if let Some(left) = self.turn.rests.left(&self.credential.target, now) {
            self.rest = self.rest.max(Some(left));
            return false;
        }
        !self.is_spent && self.turn.end.duration_since(now) >= REQUEST_TIME_MAX
    }

    async fn get(&mut self, url: &str) -> Asked {
        self.ask(Request::get(url, self.credential)).await
    }

    async fn ask(&mut self, request: Request<'_>) -> Asked {
        if !self.may_ask() {
            return Asked::OutOfTime;
        }
        let (began, method) = (self.now(), request.method);
        let answer = self.api.ask(request).await;
        let now = self.now();
        self.counts.requests = self.counts.requests.saturating_add(1);
        // What is to be done waits for its turn behind others' first: that says nothing of GitHub.
        if method == Method::Get {
            self.slowest = self.slowest.max(Some(now.duration_since(began)));
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if error.class == ErrorClass::Denied => return Asked::Misconfigured(error.class.as_str()),
            Err(error) => return Asked::Unanswered(error.class.as_str()),
        };
        let mut rest = self.limits.rest(&answer, &self.credential.right, now);
        if self.credential.right == Right::Anonymous {
            let asked = i32::try_from(self.counts.requests).unwrap_or(i32::MAX);
            rest = rest.max(ANONYMOUS_SPACING.checked_mul(asked));
        }
        self.rest = self.rest.max(rest);
        self.interval_s = self.interval_s.max(answer.poll_interval_s);
        let standing = self.limits.judge(&answer, now, self.turn.strikes);
        let limited = match standing {
            Standing::Limited(span) => Some(span),
            Standing::Fine
            | Standing::NotModified
            | Standing::Misconfigured(_)
            | Standing::Ended
            | Standing::Failed => rest.filter(|_| answer.remaining == Some(0)),
        };
        if let Some(span) = limited {
            self.is_spent = true;
            let until = now.saturating_add(span).unwrap_or(Timestamp::MAX);
            self.turn.rests.tell(&self.credential.target, until);
        }
        match standing {
            Standing::Fine => Asked::Fine(answer),
            Standing::NotModified => Asked::NotModified(answer),
            Standing::Limited(span) => Asked::Throttled(span),
            Standing::Misconfigured(word) => Asked::Misconfigured(word),
            Standing::Ended => Asked::Ended,
            Standing::Failed => Asked::Unanswered(ErrorClass::ServerFault.as_str()),
        }
    }

    /// The poll that these requests were.
    fn poll(self, polled: Polled) -> Poll {
        Poll {
            interval: self
                .interval_s
                .map(|seconds| SignedDuration::from_secs(seconds.into()).min(INTERVAL_MAX)),
            rest: self.rest,
            latency: self.slowest,
            has_called: self.counts.requests > 0,
            // It was held back before it began: it is still due.
            more: self.counts.requests == 0 && self.rest.is_some(),
            counts: self.counts,
            ..polled.into()
        }
    }

    /// The poll that these requests were, where it failed.
    fn failed(self, error: PollError, cursor: Option<Cursor>) -> Box<FailedPoll> {
        Box::new(FailedPoll {
            error,
            cursor,
            rest: self.rest,
            counts: self.counts,
        })
    }
}

/// Why a poll ends that has done nothing yet. `None` where it goes on.
fn refused(source_id: &SourceId, asked: &Asked) -> Option<Result<Polled, PollError>> {
    let source_id = source_id.clone();
    match asked {
        Asked::Fine(_) | Asked::NotModified(_) => None,
        Asked::Throttled(span) => Some(Ok(Polled::Throttled(*span))),
        Asked::OutOfTime => Some(Ok(Polled::Empty)),
        Asked::Ended => Some(Err(PollError::Misconfigured {
            source_id,
            word: "refused",
        })),
        Asked::Misconfigured(word) => Some(Err(PollError::Misconfigured { source_id, word })),
        Asked::Unanswered(word) => Some(Err(PollError::Unanswered { source_id, word })),
    }
}
