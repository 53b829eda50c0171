//! GitHub's REST interface over HTTP: the core's port `Api`.
//!
//! Carries requests and bytes, and proves the right that a request is made under. Nothing that it sends goes to another host
//! than the API's own, and no error, printed value or log line has a token in it.

mod app;
mod base;
mod exchange;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_core::api::{Answer, Api, ApiError, ApiToken, GithubAccess, Method, Request, Right};
use forebay_core::ports::{ErrorClass, TimeAndChance};
use jiff::{SignedDuration, Timestamp};

use crate::clock::pause;
use crate::secrets::{AccessCache, Documents, ReadError};

use app::{Granted, Installations, prove};
use base::Place;
use exchange::{Ask, Exchange, failed, not_yet};

pub use base::{ApiBase, BaseError};

/// How long a try may take in all once it is its turn: its token, its redirects and its answer's body. GitHub ends a request
/// after ten seconds itself.
pub const TRY_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a connection may take to be made, name and TLS included.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// How long the head of an answer may take. Shorter than a try, which has its body still to read.
const READ_TIME_MAX: Duration = Duration::from_secs(8);
const _: () = assert!(READ_TIME_MAX.as_millis() < TRY_TIME_MAX.as_millis());
const _: () = assert!(CONNECT_TIME_MAX.as_millis() < READ_TIME_MAX.as_millis());
/// Shortest time between two requests that ask for something to be done:
/// <https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api#pause-between-mutative-requests>
const POST_SPACING: SignedDuration = SignedDuration::from_secs(1);
/// Longest that a post waits for its turn. Who asks has at least so much of its own time left, and what waited beyond it would be
/// cut off in the middle: noted as asked for, and never sent.
const POST_WAIT_MAX: SignedDuration = SignedDuration::from_secs(10);

/// The client's bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) connect_time_max: Duration,
    pub(crate) read_time_max: Duration,
    pub(crate) try_time_max: Duration,
    pub(crate) post_spacing: SignedDuration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_time_max: CONNECT_TIME_MAX,
            read_time_max: READ_TIME_MAX,
            try_time_max: TRY_TIME_MAX,
            post_spacing: POST_SPACING,
        }
    }
}

/// Why a request was not made, or not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum RequestError {
    #[error("the secret has no token for GitHub")]
    NoToken,
    #[error("the secret has no App for GitHub")]
    NoApp,
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
}

/// The client of one API, with what the secret document has for it. Connections and tokens are kept while it lives.
#[derive(Debug)]
pub struct GithubApi<D, T> {
    exchange: Exchange,
    access: AccessCache<D>,
    installations: Installations,
    time: T,
    settings: Settings,
    /// When the last request is sent that asks for something to be done. Up to [`POST_WAIT_MAX`] from now, where some wait.
    posted_at: Mutex<Option<Timestamp>>,
}

/// What a request is made with.
enum Pass {
    Nothing,
    /// The document's own token, or the App's proof.
    Own(ApiToken),
    Installation(ApiToken),
    /// There is no token to be had: GitHub's answer to the App.
    Refused(Answer),
}

/// What came of a try, and the installation's token that it was made with.
struct Tried {
    answer: Answer,
    token: Option<ApiToken>,
}

impl<D: Documents, T: TimeAndChance> GithubApi<D, T> {
    /// A client of the API at `base`. Makes no call.
    #[must_use]
    pub fn new(base: ApiBase, access: AccessCache<D>, time: T) -> Self {
        Self::with(base, access, time, Settings::default())
    }

    /// As [`GithubApi::new`], with bounds of its own.
    pub(crate) fn with(base: ApiBase, access: AccessCache<D>, time: T, settings: Settings) -> Self {
        Self {
            exchange: Exchange::new(base, &settings),
            access,
            installations: Installations::default(),
            time,
            settings,
            posted_at: Mutex::new(None),
        }
    }

    /// The API's host, as the targets of its credentials name it.
    #[must_use]
    pub fn host(&self) -> String {
        self.exchange.base().host()
    }

    /// What there is to ask with now. Credentials are made of it, with [`GithubApi::host`].
    ///
    /// # Errors
    /// [`ReadError`] where the secret document could not be read and none is kept.
    pub async fn access(&self) -> Result<Arc<GithubAccess>, ReadError> {
        self.access.current(self.time.now()).await
    }

    async fn attempt(
        &self,
        access: &GithubAccess,
        request: &Request<'_>,
        place: &Place,
        refused: Option<&ApiToken>,
    ) -> Result<Tried, ApiError> {
        let pass = self.pass(access, &request.credential.right, place, refused).await?;
        let (token, installation) = match pass {
            Pass::Nothing => (None, None),
            Pass::Own(token) => (Some(token), None),
            Pass::Installation(token) => (Some(token.clone()), Some(token)),
            Pass::Refused(answer) => return Ok(Tried { answer, token: None }),
        };
        let ask = Ask {
            method: request.method,
            place,
            token: token.as_ref(),
            etag: request.etag,
        };
        let answer = self.exchange.ask(ask).await?;
        Ok(Tried {
            answer,
            token: installation,
        })
    }

    /// What proves `right`.
    async fn pass(
        &self,
        access: &GithubAccess,
        right: &Right,
        place: &Place,
        refused: Option<&ApiToken>,
    ) -> Result<Pass, ApiError> {
        let now = self.time.now();
        let denied = |error| Err(failed(place.path(), ErrorClass::Denied, error));
        match (right, access) {
            (Right::Anonymous, _) => Ok(Pass::Nothing),
            (Right::Token, GithubAccess::Token(token)) => Ok(Pass::Own(token.clone())),
            (Right::Token, GithubAccess::Anonymous | GithubAccess::App(_)) => denied(RequestError::NoToken),
            (Right::App, GithubAccess::App(app)) => prove(app, now, place.path()).map(Pass::Own),
            (Right::Installation(owner), GithubAccess::App(app)) => {
                let granted = self
                    .installations
                    .token(&self.exchange, app, owner, now, refused)
                    .await?;
                Ok(match granted {
                    Granted::Yes(token) => Pass::Installation(token),
                    Granted::No(answer) => Pass::Refused(answer),
                })
            }
            (Right::App | Right::Installation(_), GithubAccess::Anonymous | GithubAccess::Token(_)) => {
                denied(RequestError::NoApp)
            }
        }
    }

    /// Takes the next turn to ask for something to be done, and says how long it is until then. Where that is too long nobody's
    /// turn is taken: the error is how much too early it is.
    fn take_turn(&self) -> Result<Duration, SignedDuration> {
        let mut posted_at = self.posted_at.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.time.now();
        let wait = wait_to_post(*posted_at, now, self.settings.post_spacing);
        let too_early = wait.saturating_sub(POST_WAIT_MAX);
        if too_early.is_positive() {
            return Err(too_early);
        }
        *posted_at = Some(now.saturating_add(wait).unwrap_or(Timestamp::MAX));
        Ok(Duration::try_from(wait).unwrap_or_default())
    }

    async fn ask_at(&self, place: &Place, request: &Request<'_>) -> Result<Answer, ApiError> {
        let right = &request.credential.right;
        if *right == Right::Anonymous {
            let tried = self.attempt(&GithubAccess::Anonymous, request, place, None).await?;
            return Ok(tried.answer);
        }
        let access = self.access().await.map_err(|error| unread(place, error))?;
        let first = self.attempt(&access, request, place, None).await?;
        if first.answer.status != 401 {
            return Ok(first.answer);
        }
        let newer = self.access.refreshed(self.time.now()).await;
        let newer = newer.filter(|newer| *newer != access);
        if newer.is_none() && first.token.is_none() {
            return Ok(first.answer);
        }
        let access = newer.unwrap_or(access);
        let second = self.attempt(&access, request, place, first.token.as_ref()).await?;
        Ok(second.answer)
    }
}

/// How long the next post waits, behind those that wait already.
fn wait_to_post(posted_at: Option<Timestamp>, now: Timestamp, spacing: SignedDuration) -> SignedDuration {
    let Some(posted_at) = posted_at else {
        return SignedDuration::ZERO;
    };
    // No turn is given further ahead than that: the clock was put back.
    let ahead = Some(posted_at.duration_since(now)).filter(|ahead| *ahead <= POST_WAIT_MAX);
    ahead
        .unwrap_or_default()
        .saturating_add(spacing)
        .max(SignedDuration::ZERO)
}

impl<D: Documents, T: TimeAndChance> Api for GithubApi<D, T> {
    /// A refused token is asked with once: then the secret is read again, an installation's token is got anew, and where either
    /// is another one, the request is made a second time. All of it has the time of one try, and what asks for something to be
    /// done waits for its turn before: in it, those behind many others would time out unsent, as if GitHub had not answered. A
    /// second time needs no turn of its own, since the first did nothing.
    async fn ask(&self, request: Request<'_>) -> Result<Answer, ApiError> {
        let place = self.exchange.locate(request.url)?;
        match request.method {
            Method::Get => {}
            Method::Post => match self.take_turn() {
                Ok(wait) => pause(wait).await,
                // No error: nothing is wrong with the credential, and it was no attempt.
                Err(too_early) => return Ok(not_yet(too_early)),
            },
        }
        let time_max = self.settings.try_time_max;
        match tokio::time::timeout(time_max, Box::pin(self.ask_at(&place, &request))).await {
            Ok(answered) => answered,
            Err(_elapsed) => Err(failed(
                place.path(),
                ErrorClass::TimedOut,
                RequestError::TimedOut(time_max),
            )),
        }
    }
}

/// A request that was not made, since the secret could not be read.
fn unread(place: &Place, error: ReadError) -> ApiError {
    let class = match &error {
        ReadError::Store { class, .. } => *class,
        ReadError::TimedOut => ErrorClass::TimedOut,
        ReadError::File { .. } | ReadError::Exposed { .. } | ReadError::Form(_) | ReadError::Access(_) => {
            ErrorClass::Denied
        }
    };
    failed(place.path(), class, error)
}

#[cfg(test)]
mod tests;
