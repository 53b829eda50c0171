//! The fake behind the core's port, under a clock that tests move.

use forebay_core::api::{Answer, Api, ApiError, Method, Right};
use forebay_core::ports::{ErrorClass, TimeAndChance as _};

use super::page::{Reply, Request};
use super::{Shared, lock};
use crate::fakes::ManualTime;

/// Redirects that are followed for one request.
const REDIRECTS_MAX: usize = 3;

/// The REST interface of a fake in this process. A right's name is its caller's: `anonymous`, `token`, `app`,
/// `installation:<account>`.
#[derive(Clone, Debug)]
pub struct InProcess {
    /// Who answers.
    pub fake: Shared,
    /// When.
    pub time: ManualTime,
}

impl InProcess {
    fn once(&self, request: &Request<'_>) -> Option<Reply> {
        lock(&self.fake).handle(request, self.time.now())
    }
}

impl Api for InProcess {
    /// Lets other tasks run before the request is handled and before it is answered, as a network does. Where no answer ever
    /// comes, the request has timed out; no time has passed by it.
    async fn ask(&self, request: forebay_core::api::Request<'_>) -> Result<Answer, ApiError> {
        let authorization = match &request.credential.right {
            Right::Anonymous => None,
            Right::Token => Some("Bearer token".to_owned()),
            Right::App => Some("Bearer app".to_owned()),
            Right::Installation(login) => Some(format!("Bearer installation:{login}")),
        };
        let method = match request.method {
            Method::Get => "GET",
            Method::Post => "POST",
        };
        tokio::task::yield_now().await;
        let mut target = request.url.to_owned();
        let mut reply = None;
        for _ in 0..=REDIRECTS_MAX {
            let one = Request {
                method,
                target: &target,
                authorization: authorization.as_deref(),
                if_none_match: request.etag,
            };
            reply = self.once(&one);
            let location = reply.as_ref().and_then(|reply| reply.header("location"));
            let Some(location) = location else { break };
            target = location.to_owned();
        }
        tokio::task::yield_now().await;
        let reply = reply.ok_or_else(|| ApiError {
            on: request.url.split('?').next().unwrap_or_default().to_owned(),
            class: ErrorClass::TimedOut,
            source: None,
        })?;
        let header = |name: &'static str| reply.header(name);
        Ok(Answer::read(reply.status, header, reply.body.clone().into_bytes()))
    }
}
