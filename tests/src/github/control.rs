//! What an operator may do to the fake, as JSON below `/_fake/`.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::callers::Secondary;
use super::happening::{Happening, Hooked, Occasion, What};
use super::log::Outcome;
use super::page::Reply;
use super::{Asked, FakeGithub, Outage};

/// What all paths of an operator begin with.
pub(super) const PREFIX: &str = "/_fake/";

#[derive(Deserialize)]
struct Wish {
    repository: String,
    by: Option<String>,
    #[serde(default)]
    webhook: Way,
    #[serde(default)]
    feed: Feed,
    #[serde(default)]
    shown_after_s: i64,
    #[serde(flatten)]
    what: What,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    #[default]
    Delivered,
    Unlogged,
    Lost,
    Silent,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Feed {
    #[default]
    Shown,
    Hidden,
}

impl Wish {
    fn occasion(self) -> Occasion {
        let hooked = match self.webhook {
            Way::Delivered => Hooked::Delivered,
            Way::Unlogged => Hooked::Unlogged,
            Way::Lost => Hooked::Lost(Outcome::unreachable()),
            Way::Silent => Hooked::Silent,
        };
        let shown_after = match self.feed {
            Feed::Shown => Some(SignedDuration::from_secs(self.shown_after_s)),
            Feed::Hidden => None,
        };
        let occasion = Occasion::of(&self.repository, self.what)
            .hooked(hooked)
            .shown_after(shown_after);
        match self.by {
            Some(login) => occasion.by(&login),
            None => occasion,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Down {
    webhook: Option<bool>,
    api: Option<Interface>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Interface {
    Up,
    Failing,
    Hanging,
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Limit {
    Primary {
        caller: String,
        remaining: u32,
        reset_s: i64,
    },
    Secondary {
        caller: String,
        status: u16,
        retry_after_s: Option<u32>,
        for_s: i64,
    },
}

impl FakeGithub {
    /// Does what an operator asks for below `/_fake/`, at `now`. Nothing of it counts as a request to GitHub.
    ///
    /// - `POST /_fake/happenings` with `{"repository": "acme/app", "kind": "comment", "number": 1, "text": "…"}`: lets something
    ///   happen. `kind` and what belongs to it are [`What`]; besides, there are `by`, `webhook` (`delivered`, `unlogged`, `lost`
    ///   or `silent`), `feed` (`shown` or `hidden`) and `shown_after_s`.
    /// - `POST /_fake/outage` with `{"webhook": true, "api": "failing"}`: `api` is `up`, `failing` or `hanging`; what is absent
    ///   stays as it is.
    /// - `POST /_fake/limit` with `{"caller": "token", "remaining": 0, "reset_s": 60}`, or for a secondary limit with
    ///   `{"caller": "token", "status": 429, "retry_after_s": 30, "for_s": 60}`.
    /// - `GET /_fake/happenings` and `GET /_fake/requests`: what there was so far.
    pub fn control(&mut self, method: &str, target: &str, body: &[u8], now: Timestamp) -> Reply {
        let reply = match (method, target.strip_prefix(PREFIX).unwrap_or_default()) {
            ("GET", "happenings") => Ok(list(self.happenings(), happening)),
            ("GET", "requests") => Ok(list(self.requests(), asked)),
            ("POST", "happenings") => parse(body).map(|wish: Wish| match self.happen(&wish.occasion(), now) {
                Ok(told) => Reply::with(201, &happening(&told)),
                Err(impossible) => Reply::message(422, &impossible.to_string()),
            }),
            ("POST", "outage") => parse(body).map(|down| self.take_down(&down)),
            ("POST", "limit") => parse(body).map(|limit| self.limit(limit, now)),
            _ => Ok(Reply::not_found()),
        };
        reply.unwrap_or_else(|refusal| refusal)
    }

    fn take_down(&mut self, down: &Down) -> Reply {
        if let Some(is_down) = down.webhook {
            self.set_hook_outage(is_down.then(Outcome::unreachable));
        }
        match down.api {
            Some(Interface::Up) => self.set_outage(None),
            Some(Interface::Failing) => self.set_outage(Some(Outage::Failing)),
            Some(Interface::Hanging) => self.set_outage(Some(Outage::Hanging)),
            None => {}
        }
        Reply::ok(&json!({}))
    }

    fn limit(&mut self, limit: Limit, now: Timestamp) -> Reply {
        let later = |seconds| now + SignedDuration::from_secs(seconds);
        match limit {
            Limit::Primary {
                caller,
                remaining,
                reset_s,
            } => self.leave(&caller, remaining, later(reset_s)),
            Limit::Secondary {
                caller,
                status,
                retry_after_s,
                for_s,
            } => {
                let until = later(for_s);
                let limit = Secondary {
                    status,
                    retry_after_s,
                    until,
                };
                self.hold_back(&caller, limit);
            }
        }
        Reply::ok(&json!({}))
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Reply> {
    serde_json::from_slice(body).map_err(|error| Reply::message(400, &error.to_string()))
}

fn list<'a, T: 'a>(all: impl IntoIterator<Item = &'a T>, show: fn(&T) -> Value) -> Reply {
    Reply::ok(&all.into_iter().map(show).collect())
}

fn happening(told: &Happening) -> Value {
    json!({
        "guid": told.guid, "repository": told.repository, "event": told.event, "action": told.action,
        "number": told.number, "id": told.id, "at": told.at.to_string(), "event_id": told.event_id(),
    })
}

fn asked(asked: &Asked) -> Value {
    json!({
        "at": asked.at.to_string(), "caller": asked.caller, "method": asked.method, "target": asked.target,
        "status": asked.status,
    })
}
