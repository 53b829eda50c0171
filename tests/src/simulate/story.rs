//! What happens at GitHub in one run: happenings, and the deliveries that tell of them.

use std::collections::BTreeSet;

use forebay_aws::config::Config;
use forebay_core::delivery::{DeliveryKey, EventName, Guid, HookId};
use forebay_core::event::{EventId, Repository};
use forebay_core::github::{Envelope, Meaning, read};
use forebay_core::ledger::Reason;
use forebay_core::route::Wanted;
use forebay_core::session::OwnerKey;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::webhook::Request;

/// Pull requests of the story; the head of number `n` is the branch `fix-n`.
pub(super) const PULLS: u64 = 3;

/// One delivery of one hook.
pub(super) struct Telling {
    pub(super) key: DeliveryKey,
    pub(super) request: Request,
    /// The event it means, and what should come of it.
    pub(super) event: Option<(EventId, Fate)>,
    /// GitHub has heard a 2xx for it.
    pub(super) acknowledged: bool,
    /// A request with it is under way.
    pub(super) under_way: bool,
    pub(super) attempts: usize,
}

/// What should come of an event in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is recorded with this reason and never sent.
    Recorded(Reason),
    /// These inboxes get it; and the owners of these keys.
    Sent(BTreeSet<String>, Vec<OwnerKey>),
}

pub(super) fn repository() -> Repository {
    crate::samples::repository()
}

/// The deliveries of one run, in the order of happening.
pub(super) fn tell(chance: &mut Chance, config: &Config, now: Timestamp) -> Vec<Telling> {
    let mut told = Vec::new();
    for number in 0..8 + chance.below(10) {
        let (name, body) = happening(chance, number, now);
        let guid = format!("{number:08x}-0000-4000-8000-{:012x}", chance.next() >> 16);
        let hooks: &[&str] = if chance.percent(25) { &["42", "43"] } else { &["42"] };
        for hook in hooks {
            told.push(telling(config, hook, &guid, name, body.to_string(), now));
        }
    }
    told
}

fn telling(config: &Config, hook: &str, guid: &str, name: &str, body: String, now: Timestamp) -> Telling {
    let key = DeliveryKey {
        hook: HookId::parse(Some(hook)).expect("digits"),
        guid: Guid::parse(guid).expect("hex digits"),
    };
    let event_name = EventName::parse(name).expect("an event's name");
    let envelope = Envelope {
        host: None,
        key: Some(&key),
        event_name: &event_name,
        content_type: Some("application/json"),
    };
    let event = match read(&envelope, body.as_bytes()).meaning {
        Meaning::Event(event) => {
            let old = event.occurred_at.is_some_and(|at| at < config.limits.cut_off(now));
            let fate = match config.routing.wanted(&event) {
                _ if old => Fate::Recorded(Reason::Stale),
                Wanted::ByNobody(reason) => Fate::Recorded(reason),
                Wanted::By { fixed, owner_keys } => Fate::Sent(fixed, owner_keys),
            };
            Some((event.id, fate))
        }
        Meaning::Ignored(_) | Meaning::Malformed(_) => None,
    };
    Telling {
        request: Request::new(name, guid, body).header("x-github-hook-id", Some(hook)),
        key,
        event,
        acknowledged: false,
        under_way: false,
        attempts: 0,
    }
}

fn happening(chance: &mut Chance, number: usize, now: Timestamp) -> (&'static str, Value) {
    let number = u64::try_from(number).unwrap_or(0);
    let pull = 1 + chance.next() % PULLS;
    let minute_ago = now - SignedDuration::from_secs(60);
    match chance.below(12) {
        0 => ("pull_request", pull_request("opened", pull, number, minute_ago)),
        1 | 2 => ("pull_request", pull_request("closed", pull, number, minute_ago)),
        3 => (
            "push",
            with_repository(json!({"ref": "refs/heads/fix-1", "head_commit": {"id": "c0ffee"}})),
        ),
        4 => (
            "release",
            with_repository(json!({
                "action": "published",
                "release": {"id": number, "tag_name": "v1", "published_at": minute_ago.to_string(),
                    "html_url": "https://github.com/acme/app/releases/1", "url": "https://api.github.com/repos/acme/app/releases/1"},
            })),
        ),
        5 => ("star", with_repository(json!({"action": "created"}))),
        6 => ("issue_comment", comment("agent-bot[bot]", pull, number, minute_ago)),
        7 => (
            "issue_comment",
            comment("dev1", pull, number, now - SignedDuration::from_hours(24 * 200)),
        ),
        8 => ("issue_comment", comment("dev1", 7, number, minute_ago)),
        _ => ("issue_comment", comment("dev1", pull, number, minute_ago)),
    }
}

fn with_repository(mut body: Value) -> Value {
    body["repository"] = json!({"id": 1, "full_name": "acme/app", "url": "https://api.github.com/repos/acme/app",
        "html_url": "https://github.com/acme/app"});
    body["sender"] = json!({"login": "dev1"});
    body
}

/// Merged into `main` where it is closed.
fn pull_request(action: &str, pull: u64, id: u64, at: Timestamp) -> Value {
    let repo = json!({"id": 1, "full_name": "acme/app"});
    let closed = action == "closed";
    with_repository(json!({
        "action": action,
        "pull_request": {
            "id": id, "number": pull, "title": "a change", "user": {"login": "dev1"}, "merged_by": {"login": "dev1"},
            "url": format!("https://api.github.com/repos/acme/app/pulls/{pull}"),
            "html_url": format!("https://github.com/acme/app/pull/{pull}"),
            "merged": closed, "created_at": at.to_string(), "updated_at": at.to_string(),
            "closed_at": closed.then(|| at.to_string()), "merged_at": closed.then(|| at.to_string()),
            "head": {"ref": format!("fix-{pull}"), "sha": "c0ffee", "repo": repo},
            "base": {"ref": "main", "sha": "decade", "repo": repo},
        },
    }))
}

fn comment(actor: &str, pull: u64, id: u64, at: Timestamp) -> Value {
    with_repository(json!({
        "action": "created",
        "issue": {"id": 90 + pull, "number": pull, "title": "a change", "user": {"login": "dev1"}, "pull_request": {},
            "url": format!("https://api.github.com/repos/acme/app/issues/{pull}"),
            "html_url": format!("https://github.com/acme/app/pull/{pull}")},
        "comment": {"id": id, "body": "please look", "user": {"login": actor}, "created_at": at.to_string(),
            "html_url": format!("https://github.com/acme/app/pull/{pull}#issuecomment-{id}")},
    }))
}
