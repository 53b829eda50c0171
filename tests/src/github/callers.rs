//! Who asks, and how much more they may ask.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::json;

use super::page::Reply;
use super::{APP, Numbers, hex_of};

/// Requests of an hour, with a credential and without.
/// <https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api>
const REQUESTS_AN_HOUR: u32 = 5_000;
const ANONYMOUS_REQUESTS_AN_HOUR: u32 = 60;
/// How long an installation's token lives.
const TOKEN_LIFE: SignedDuration = SignedDuration::from_hours(1);
/// Longest life of the App's own token, in seconds, and what is allowed for clocks that differ.
const JWT_LIFE_S: i64 = 600;
const JWT_SKEW_S: i64 = 60;

/// A secondary limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Secondary {
    /// 403 or 429.
    pub status: u16,
    /// What `Retry-After` says; without it, only the text of the answer tells.
    pub retry_after_s: Option<u32>,
    /// How long it lasts.
    pub until: Timestamp,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    Anonymous,
    Token(String),
    App,
    Installation(String),
}

impl Caller {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Anonymous => "anonymous".to_owned(),
            Self::Token(token) => token.clone(),
            Self::App => "app".to_owned(),
            Self::Installation(login) => format!("installation:{login}"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Budget {
    limit: u32,
    used: u32,
    reset: Timestamp,
}

#[derive(Debug)]
struct Issued {
    login: String,
    until: Timestamp,
}

/// What is known of all callers.
#[derive(Debug, Default)]
pub(super) struct Callers {
    budgets: BTreeMap<String, Budget>,
    held_back: BTreeMap<String, Secondary>,
    issued: BTreeMap<String, Issued>,
    revoked: BTreeSet<String>,
}

impl Callers {
    /// Who a request's `Authorization` says is asking; `None` where that is no credential.
    pub(super) fn identify(&self, authorization: Option<&str>, now: Timestamp) -> Option<Caller> {
        let Some(authorization) = authorization else {
            return Some(Caller::Anonymous);
        };
        let (_, text) = authorization.split_once(' ')?;
        if self.revoked.contains(text) || text == "anonymous" {
            return None;
        }
        if text.starts_with("ghs_") {
            let issued = self.issued.get(text).filter(|issued| now < issued.until)?;
            return Some(Caller::Installation(issued.login.clone()));
        }
        if let Some(login) = text.strip_prefix("installation:") {
            return Some(Caller::Installation(login.to_owned()));
        }
        if text == "app" {
            return Some(Caller::App);
        }
        if text.split('.').count() == 3 {
            return is_current(text, now).then_some(Caller::App);
        }
        Some(Caller::Token(text.to_owned()))
    }

    /// A token for the App's installation, as long as GitHub's are today.
    pub(super) fn issue(&mut self, login: &str, numbers: &mut Numbers, now: Timestamp) -> (String, Timestamp) {
        let part = |number| hex_of(&format!("token {number}"));
        let (head, body) = (part(numbers.next()), part(numbers.next()));
        let token = format!("ghs_{APP}_{head}.{body}.{head}");
        let until = now + TOKEN_LIFE;
        let issued = Issued {
            login: login.to_owned(),
            until,
        };
        self.issued.insert(token.clone(), issued);
        (token, until)
    }

    pub(super) fn revoke(&mut self, token: &str) {
        self.revoked.insert(token.to_owned());
    }

    pub(super) fn leave(&mut self, caller: &str, remaining: u32, reset: Timestamp) {
        let limit = limit_of(caller).max(remaining);
        let used = limit - remaining;
        self.budgets.insert(caller.to_owned(), Budget { limit, used, reset });
    }

    pub(super) fn hold_back(&mut self, caller: &str, limit: Secondary) {
        self.held_back.insert(caller.to_owned(), limit);
    }

    /// The refusal of a caller that has asked too much.
    pub(super) fn refuse(&mut self, caller: &Caller, now: Timestamp) -> Option<Reply> {
        let name = caller.name();
        if let Some(limit) = self.held_back.get(&name).filter(|limit| now < limit.until) {
            let text = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.";
            let mut refusal = Reply::message(limit.status, text);
            if let Some(seconds) = limit.retry_after_s {
                refusal.set("retry-after", seconds.to_string());
            }
            return Some(refusal);
        }
        let budget = self.budget(&name, now);
        let is_spent = budget.used >= budget.limit;
        is_spent.then(|| Reply::message(403, &format!("API rate limit exceeded for {name}.")))
    }

    /// Counts an answer against its caller's hour. One without news is free, but not for anybody without a credential.
    pub(super) fn count(&mut self, caller: &Caller, reply: &Reply, now: Timestamp) {
        if reply.status != 304 || *caller == Caller::Anonymous {
            self.budget(&caller.name(), now).used += 1;
        }
    }

    /// Says in the headers of an answer what its caller has left, by a clock that is so far ahead.
    pub(super) fn show(&mut self, caller: &Caller, reply: &mut Reply, ahead: SignedDuration, now: Timestamp) {
        let Budget { limit, used, reset } = *self.budget(&caller.name(), now);
        reply.set("x-ratelimit-limit", limit.to_string());
        reply.set("x-ratelimit-remaining", (limit - used).to_string());
        reply.set("x-ratelimit-used", used.to_string());
        reply.set("x-ratelimit-reset", (reset + ahead).as_second().to_string());
        reply.set("x-ratelimit-resource", "core".to_owned());
    }

    fn budget(&mut self, name: &str, now: Timestamp) -> &mut Budget {
        let fresh = Budget {
            limit: limit_of(name),
            used: 0,
            reset: now + SignedDuration::from_hours(1),
        };
        let budget = self.budgets.entry(name.to_owned()).or_insert(fresh);
        if budget.reset <= now {
            *budget = fresh;
        }
        budget
    }
}

fn limit_of(caller: &str) -> u32 {
    if caller == "anonymous" {
        ANONYMOUS_REQUESTS_AN_HOUR
    } else {
        REQUESTS_AN_HOUR
    }
}

/// Whether a JSON web token names an issuer and is neither from the future nor too old.
fn is_current(token: &str, now: Timestamp) -> bool {
    #[derive(Deserialize)]
    struct Claims {
        iss: serde_json::Value,
        iat: i64,
        exp: i64,
    }
    let claims = token
        .split('.')
        .nth(1)
        .and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let claims = claims.and_then(|bytes| serde_json::from_slice::<Claims>(&bytes).ok());
    claims.is_some_and(|claims| {
        let now_s = now.as_second();
        let is_begun = claims.iat <= now_s + JWT_SKEW_S;
        let is_alive = now_s < claims.exp && claims.exp <= now_s + JWT_LIFE_S + JWT_SKEW_S;
        claims.iss != json!(null) && is_begun && is_alive
    })
}
