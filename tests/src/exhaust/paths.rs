//! The ways through the system: what happens, and what must have come of it in the end.

use std::collections::{BTreeMap, BTreeSet};

use forebay_core::delivery::DeliveryKey;
use forebay_core::event::Repository;
use forebay_core::ledger::{Reason, Status};
use forebay_core::session::{AgentName, Phase, Session, SessionId};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::webhook::Request;

/// One invocation.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// GitHub posts this.
    Post(Box<Request>),
    /// The builder opens its session, as `forebay session open` does.
    Open {
        branch: Option<&'static str>,
        pull: Option<u64>,
    },
    /// The reaper's schedule comes round.
    Reap,
    /// The poller's schedule comes round, when everything is due again.
    Poll,
    /// GitHub posts what it was asked to deliver again.
    Deliver,
}

/// How GitHub tells of the comment on a way with polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The repository's feed shows it, and no webhook tells of it.
    Feed,
    /// The same, and there are two feeds under one credential that is held back at first.
    LimitedFeeds,
    /// Its delivery never arrived: only the hook's log shows it.
    Log,
}

/// What happened before any call is counted.
#[derive(Clone, Debug)]
pub(super) enum Past {
    /// It went well.
    Well(Act),
    /// The function died when it was about to send.
    DiedAtSend(Act),
    /// No inbox could be reached.
    WithoutInboxes(Act),
    /// Time passed.
    Passed(SignedDuration),
}

/// One way, and its end.
#[derive(Clone, Debug)]
pub struct Path {
    /// Its name.
    pub name: &'static str,
    /// The route of `acme/app`, if it has one.
    pub(super) routes: Option<&'static str>,
    /// What GitHub tells of, where it is polled.
    pub(super) told: Option<Told>,
    pub(super) past: Vec<Past>,
    /// The invocations whose calls are counted.
    pub(super) acts: Vec<Act>,
    /// What comes when the trouble is over.
    pub(super) later: Vec<Act>,
    /// Where each event must stand in the end.
    pub(super) events: BTreeMap<&'static str, (Status, Reason)>,
    /// Deliveries that GitHub posts on the way, by hook and GUID.
    pub(super) deliveries: BTreeSet<&'static str>,
    /// The event that each inbox must have got; all other inboxes stay empty.
    pub(super) inboxes: BTreeMap<&'static str, &'static str>,
}

/// When all of it happened: an hour before the clock's start.
const AT: &str = "2026-11-29T11:00:00Z";
/// A lease and its skew, and a second more.
const LAPSED: SignedDuration = SignedDuration::from_secs(36);
/// Longer than the longest back-off.
const BACKED_OFF: SignedDuration = SignedDuration::from_hours(2);
const DELIVERED: (Status, Reason) = (Status::Processed, Reason::Delivered);
const COMMENT: &str = "github/comment/8";
const MERGE: &str = "github/pull_request/70/merged";
const PUSH: &str = "github/push/1/6f1c2b9a-0000-4000-8000-000000000001";
/// The comment of a way with polls, by the fake's own numbers.
const SHOWN: &str = "github/comment/3500000007";
const LOST: &str = "github/comment/3500000008";
const RECOVERED: &str = "517000006/26ca4eb8-4002-a4b7-4ed3-90de25023bc2";
const ROUTE: Option<&str> = Some("acme/app=reviewer");
/// Bytes of a text that makes a body too large for its delivery's row.
const LONG: usize = 8_000;

impl Path {
    fn new(name: &'static str, acts: Vec<Act>) -> Self {
        Self {
            name,
            routes: None,
            told: None,
            past: Vec::new(),
            acts,
            later: Vec::new(),
            events: BTreeMap::new(),
            deliveries: BTreeSet::new(),
            inboxes: BTreeMap::new(),
        }
    }

    fn polled(self, told: Told) -> Self {
        let told = Some(told);
        Self { told, ..self }
    }

    fn brought(self, delivery: &'static str) -> Self {
        let deliveries = BTreeSet::from([delivery]);
        Self { deliveries, ..self }
    }

    fn routed(self) -> Self {
        Self { routes: ROUTE, ..self }
    }

    fn after(self, past: Vec<Past>) -> Self {
        Self { past, ..self }
    }

    fn then(self, later: Vec<Act>) -> Self {
        Self { later, ..self }
    }

    fn ends(mut self, event: &'static str, standing: (Status, Reason), inboxes: &[&'static str]) -> Self {
        self.events.insert(event, standing);
        self.inboxes = inboxes.iter().map(|inbox| (*inbox, event)).collect();
        self
    }

    /// Every delivery that is posted on the way.
    pub(super) fn requests(&self) -> impl Iterator<Item = &Request> {
        let past = self.past.iter().filter_map(|past| match past {
            Past::Well(act) | Past::DiedAtSend(act) | Past::WithoutInboxes(act) => Some(act),
            Past::Passed(_) => None,
        });
        let acts = past.chain(&self.acts).chain(&self.later);
        acts.filter_map(|act| match act {
            Act::Post(request) => Some(&**request),
            Act::Open { .. } | Act::Reap | Act::Poll | Act::Deliver => None,
        })
    }
}

/// Every way.
#[must_use]
pub fn paths() -> Vec<Path> {
    let first = || post(1, "issue_comment", &comment("please look"));
    let labeled = |n| post(n, "pull_request", &pull_request("labeled", &json!({})));
    let merged = json!({"merged": true, "merged_at": AT, "closed_at": AT, "merged_by": {"login": "dev1"}});
    let merge = || post(1, "pull_request", &pull_request("closed", &merged));
    vec![
        Path::new("accepted", vec![first()])
            .routed()
            .ends(COMMENT, DELIVERED, &["reviewer"]),
        Path::new("wanted-by-nobody", vec![post(1, "push", &push())]).ends(
            PUSH,
            (Status::Processed, Reason::Unrouted),
            &[],
        ),
        Path::new("ignored", vec![labeled(1)]),
        Path::new(
            "malformed",
            vec![Act::Post(Box::new(Request::new("issue_comment", &guid(1), "{")))],
        ),
        Path::new("duplicate", vec![first(), first()])
            .routed()
            .ends(COMMENT, DELIVERED, &["reviewer"]),
        Path::new("duplicate-of-a-dead-one", vec![first()])
            .routed()
            .after(vec![Past::DiedAtSend(first()), Past::Passed(LAPSED)])
            .ends(COMMENT, DELIVERED, &["reviewer"]),
        Path::new("body-beside-its-row", vec![post(1, "issue_comment", &comment(&long()))])
            .routed()
            .ends(COMMENT, DELIVERED, &["reviewer"]),
        Path::new("two-destinations", vec![merge()])
            .routed()
            .ends(MERGE, DELIVERED, &["dispatcher", "reviewer"]),
        Path::new("joined-by-another-hook", vec![first(), by_another_hook(first())])
            .routed()
            .ends(COMMENT, DELIVERED, &["reviewer"]),
        Path::new("parked-then-its-owner-opens", vec![first(), open_pull()]).ends(COMMENT, DELIVERED, &["builder"]),
        Path::new("parked-then-its-branch-is-named", vec![first(), labeled(2)])
            .after(vec![Past::Well(open_branch())])
            // Who could not point the pull request to the branch's owner leaves that to the next that names them.
            .then(vec![labeled(3)])
            .ends(COMMENT, DELIVERED, &["builder"]),
        Path::new("reaper-of-a-lapsed-lease", vec![Act::Reap])
            .routed()
            .after(vec![Past::DiedAtSend(first()), Past::Passed(LAPSED)])
            .ends(COMMENT, DELIVERED, &["reviewer"]),
        Path::new("reaper-of-a-retryable", vec![Act::Reap])
            .routed()
            .after(vec![Past::WithoutInboxes(first()), Past::Passed(BACKED_OFF)])
            .ends(COMMENT, DELIVERED, &["reviewer"]),
        Path::new("feed-with-a-new-event", vec![Act::Poll])
            .routed()
            .polled(Told::Feed)
            .ends(SHOWN, DELIVERED, &["reviewer"]),
        Path::new("feed-without-news", vec![Act::Poll])
            .routed()
            .polled(Told::Feed)
            .after(vec![Past::Well(Act::Poll)])
            .ends(SHOWN, DELIVERED, &["reviewer"]),
        Path::new("feeds-under-a-limit", vec![Act::Poll])
            .routed()
            .polled(Told::LimitedFeeds)
            .ends(SHOWN, DELIVERED, &["reviewer"]),
        Path::new("delivery-that-is-recovered", vec![Act::Poll, Act::Deliver, Act::Poll])
            .routed()
            .polled(Told::Log)
            .brought(RECOVERED)
            .ends(LOST, DELIVERED, &["reviewer"]),
    ]
}

/// The key of a delivery.
pub(super) fn key_of(request: &Request) -> DeliveryKey {
    let header = |name: &str| {
        let found = request.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    };
    let key = format!("{}/{}", header("x-github-hook-id"), header("x-github-delivery"));
    DeliveryKey::parse(&key).expect("every request of a way has a hook and a GUID")
}

/// The builder's session.
pub(super) fn session(branch: Option<&str>, pull: Option<u64>, now: Timestamp) -> Session {
    Session {
        id: SessionId::parse("session-builder").expect("letters"),
        agent: AgentName::parse("builder").expect("letters"),
        repository: Repository::new("acme/app").expect("an owner and a name"),
        branch: branch.map(str::to_owned),
        pull,
        phase: Phase::Open,
        opened_at: now,
        live_until: now.saturating_add(SignedDuration::from_hours(24)).unwrap_or(now),
    }
}

const fn open_pull() -> Act {
    Act::Open {
        branch: None,
        pull: Some(12),
    }
}

const fn open_branch() -> Act {
    Act::Open {
        branch: Some("fix"),
        pull: None,
    }
}

fn guid(n: u64) -> String {
    format!("6f1c2b9a-0000-4000-8000-{n:012}")
}

fn post(n: u64, event: &str, payload: &Value) -> Act {
    Act::Post(Box::new(Request::new(event, &guid(n), payload.to_string())))
}

fn by_another_hook(act: Act) -> Act {
    match act {
        Act::Post(request) => Act::Post(Box::new(request.header("x-github-hook-id", Some("43")))),
        other @ (Act::Open { .. } | Act::Reap | Act::Poll | Act::Deliver) => other,
    }
}

fn repository() -> Value {
    json!({"id": 1, "full_name": "acme/app", "html_url": "https://github.com/acme/app"})
}

fn comment(text: &str) -> Value {
    json!({
        "action": "created",
        "issue": {"id": 5, "number": 12, "pull_request": {"url": "u"}, "user": {"login": "dev1"}},
        "comment": {"id": 8, "user": {"login": "dev1"}, "body": text, "created_at": AT},
        "repository": repository(),
        "sender": {"login": "dev1"},
    })
}

/// Something that happened to pull request 12 of branch `fix`; `more` goes into the pull request.
fn pull_request(action: &str, more: &Value) -> Value {
    let mut pull = json!({
        "id": 70, "number": 12, "title": "Fix", "user": {"login": "dev1"}, "created_at": AT, "updated_at": AT,
        "head": {"ref": "fix", "sha": "aa", "repo": repository()},
        "base": {"ref": "main", "sha": "bb", "repo": repository()},
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        pull[name] = value.clone();
    }
    json!({"action": action, "pull_request": pull, "repository": repository(), "sender": {"login": "dev1"}})
}

fn push() -> Value {
    json!({
        "ref": "refs/heads/main", "before": "aa", "after": "bb",
        "head_commit": {"id": "bb", "message": "Change", "timestamp": AT},
        "repository": repository(), "pusher": {"name": "dev1"}, "sender": {"login": "dev1"},
    })
}

/// A text that no compressor makes much of.
fn long() -> String {
    use base64::Engine as _;
    let words = (0_u64..).map(|word| {
        (word ^ (word << 31))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    });
    let words = words.map(|word| (word ^ (word >> 27)).wrapping_mul(0xbf58_476d_1ce4_e5b9));
    let bytes: Vec<u8> = words.take(LONG / 8 * 3 / 4 + 1).flat_map(u64::to_le_bytes).collect();
    let mut text = base64::engine::general_purpose::STANDARD.encode(bytes);
    text.truncate(LONG);
    text
}
