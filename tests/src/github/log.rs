//! Deliveries: how each ended, what is still to be posted, and what a hook's log shows of them.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::Numbers;
use super::bodies::time;
use super::feeds::linked;
use super::happening::Hooked;
use super::hooks::Letter;
use super::page::{Query, Reply};

/// How long logs keep a delivery.
/// <https://docs.github.com/en/webhooks/testing-and-troubleshooting-webhooks/redelivering-webhooks>
const RETENTION: SignedDuration = SignedDuration::from_hours(3 * 24);
/// Deliveries count from here: where a program keeps numbers as floating point, neighbours become one.
const FIRST_DELIVERY: u64 = 1 << 60;

/// How a delivery ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// In words.
    pub status: String,
    /// In a number.
    pub status_code: u16,
}

impl Outcome {
    /// The endpoint answered with this status.
    #[must_use]
    pub fn answered(status_code: u16) -> Self {
        let status = match status_code {
            200..=299 => "OK".to_owned(),
            _ => format!("Invalid HTTP Response: {status_code}"),
        };
        Self { status, status_code }
    }

    /// Nobody was there.
    #[must_use]
    pub fn unreachable() -> Self {
        Self {
            status: "failed to connect to host".to_owned(),
            status_code: 502,
        }
    }

    /// No answer came in ten seconds.
    #[must_use]
    pub fn timed_out() -> Self {
        Self {
            status: "timed out".to_owned(),
            status_code: 504,
        }
    }
}

/// A delivery that is to be posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// The delivery's own id.
    pub delivery: u64,
    /// Where to.
    pub url: String,
    /// All of GitHub's headers.
    pub headers: Vec<(&'static str, String)>,
    /// The exact bytes, which are JSON.
    pub body: String,
}

impl Post {
    /// The value of a header, by GitHub's spelling of its name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

fn header<'a>(headers: &'a [(&'static str, String)], name: &str) -> Option<&'a str> {
    let known = headers.iter().find(|(known, _)| *known == name);
    known.map(|(_, value)| value.as_str())
}

/// One time that a letter is sent.
#[derive(Debug)]
struct Delivery {
    id: u64,
    letter: Arc<Letter>,
    redelivery: bool,
    is_logged: bool,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Pending,
    UnderWay,
    Done {
        at: Timestamp,
        outcome: Outcome,
        took: SignedDuration,
    },
}

impl Stage {
    fn done(outcome: Outcome, took: SignedDuration, at: Timestamp) -> Self {
        Self::Done { at, outcome, took }
    }
}

impl Delivery {
    fn entry(&self) -> Option<Value> {
        let Stage::Done { at, outcome, took } = &self.stage else {
            return None;
        };
        let letter = &self.letter;
        Some(json!({
            "id": self.id, "guid": header(&letter.headers, "X-GitHub-Delivery"), "delivered_at": time(*at),
            "redelivery": self.redelivery, "duration": took.as_secs_f64(), "status": outcome.status,
            "status_code": outcome.status_code, "event": header(&letter.headers, "X-GitHub-Event"),
            "action": letter.action, "installation_id": letter.installation, "repository_id": letter.repository_id,
            "throttled_at": null,
        }))
    }

    /// Whether its log shows it.
    fn is_shown(&self, now: Timestamp) -> bool {
        let is_kept = matches!(self.stage, Stage::Done { at, .. } if now.duration_since(at) < RETENTION);
        self.is_logged && is_kept
    }

    /// Whether it is among those that the list's parameter `status` asks for.
    fn ended(&self, status: Option<&str>) -> bool {
        let Stage::Done { outcome, .. } = &self.stage else {
            return false;
        };
        match status {
            Some("success") => (200..400).contains(&outcome.status_code),
            Some("failure") => (400..600).contains(&outcome.status_code),
            Some(_) | None => true,
        }
    }
}

/// All deliveries of all hooks.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// By id.
    deliveries: Vec<Delivery>,
    pub(super) outage: Option<Outcome>,
}

impl Log {
    /// Takes in what a hook sends.
    pub(super) fn add(&mut self, letter: Letter, hooked: &Hooked, numbers: &mut Numbers, at: Timestamp) {
        let (stage, is_logged) = match hooked {
            Hooked::Delivered => (Stage::Pending, true),
            Hooked::Unlogged => (Stage::Pending, false),
            Hooked::Lost(outcome) => (Stage::done(outcome.clone(), SignedDuration::ZERO, at), true),
            Hooked::Silent => return,
        };
        self.deliveries.push(Delivery {
            id: FIRST_DELIVERY + numbers.next(),
            letter: Arc::new(letter),
            redelivery: false,
            is_logged,
            stage,
        });
    }

    /// Gives each pending delivery once; while endpoints are down, ends them instead.
    pub(super) fn take_pending(&mut self, now: Timestamp) -> Vec<Post> {
        let mut posts = Vec::new();
        let deliveries = self.deliveries.iter_mut();
        for delivery in deliveries.filter(|known| known.stage == Stage::Pending) {
            if let Some(outcome) = &self.outage {
                delivery.stage = Stage::done(outcome.clone(), SignedDuration::ZERO, now);
                continue;
            }
            delivery.stage = Stage::UnderWay;
            posts.push(Post {
                delivery: delivery.id,
                url: delivery.letter.url.clone(),
                headers: delivery.letter.headers.clone(),
                body: delivery.letter.body.clone(),
            });
        }
        posts
    }

    pub(super) fn record(&mut self, delivery: u64, outcome: Outcome, took: SignedDuration, now: Timestamp) {
        if let Some(known) = self.deliveries.iter_mut().find(|known| known.id == delivery) {
            known.stage = Stage::done(outcome, took, now);
        }
    }

    /// A hook's log, reached at `url`: the newest first, the next page after the last id of this one.
    pub(super) fn list(&self, hook: u64, query: &Query, url: &str, now: Timestamp) -> Reply {
        let before = query
            .get("cursor")
            .map_or(Some(u64::MAX), |cursor| cursor.strip_prefix("v1_")?.parse().ok());
        let Some(before) = before else {
            return Reply::message(422, "Invalid cursor");
        };
        let shown = self.deliveries.iter().rev().filter(|delivery| {
            let is_asked = delivery.id < before && delivery.ended(query.get("status"));
            delivery.letter.hook == hook && delivery.is_shown(now) && is_asked
        });
        let mut shown: Vec<&Delivery> = shown.collect();
        let is_last = shown.len() <= query.per_page();
        shown.truncate(query.per_page());
        let link = shown.last().filter(|_| !is_last).map(|last| {
            let cursor = format!("v1_{}", last.id);
            format!("<{url}?{}>; rel=\"next\"", query.with("cursor", &cursor))
        });
        let entries: Vec<Value> = shown.into_iter().filter_map(Delivery::entry).collect();
        linked(Reply::ok(&json!(entries)), link)
    }

    fn logged(&self, hook: u64, id: &str, now: Timestamp) -> Option<&Delivery> {
        let id: u64 = id.parse().ok()?;
        let known = self
            .deliveries
            .iter()
            .find(|known| known.id == id && known.letter.hook == hook);
        known.filter(|known| known.is_shown(now))
    }

    /// One delivery, with what was sent.
    pub(super) fn detail(&self, hook: u64, id: &str, now: Timestamp) -> Reply {
        let known = self.logged(hook, id, now);
        let Some((delivery, mut entry)) = known.and_then(|known| Some((known, known.entry()?))) else {
            return Reply::not_found();
        };
        let letter = &delivery.letter;
        let headers = letter
            .headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)));
        let payload: Value = serde_json::from_str(&letter.body).unwrap_or_default();
        entry["url"] = json!(letter.url);
        entry["request"] = json!({"headers": headers.collect::<Map<_, _>>(), "payload": payload});
        entry["response"] = json!({"headers": {}, "payload": null});
        Reply::ok(&entry)
    }

    /// Sends the same letter once more.
    pub(super) fn again(&mut self, hook: u64, id: &str, numbers: &mut Numbers, now: Timestamp) -> Reply {
        let Some(delivery) = self.logged(hook, id, now) else {
            return Reply::not_found();
        };
        let again = Delivery {
            id: FIRST_DELIVERY + numbers.next(),
            letter: Arc::clone(&delivery.letter),
            redelivery: true,
            is_logged: true,
            stage: Stage::Pending,
        };
        self.deliveries.push(again);
        Reply::with(202, &json!({}))
    }
}
