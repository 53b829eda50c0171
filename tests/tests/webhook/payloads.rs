//! Small payloads in GitHub's shape, and short ways to what a test looks at.

use std::collections::BTreeMap;

use forebay_core::delivery::DeliveryKey;
use forebay_core::drive::Driver;
use forebay_core::event::{EventId, Repository};
use forebay_core::ledger::memory::MemoryLedger;
use forebay_core::ledger::{EventRow, Reason, Status};
use forebay_core::ports::{Ledger, TimeAndChance as _};
use forebay_core::session::{AgentName, Opened, Phase, Session, SessionId};
use forebay_tests::scripted::Scripted;
use forebay_tests::table::{TABLE, Table};
use forebay_tests::webhook::{Request, Stand, environment};
use jiff::SignedDuration;
use serde_json::{Value, json};

/// When the small payloads happened: an hour before the stand's clock.
pub(crate) const AT: &str = "2026-11-29T11:00:00Z";

/// The `n`th GUID.
pub(crate) fn guid(n: u64) -> String {
    format!("6f1c2b9a-0000-4000-8000-{n:012}")
}

/// The key of the `n`th delivery of hook 42.
pub(crate) fn key(n: u64) -> DeliveryKey {
    DeliveryKey::parse(&format!("42/{}", guid(n))).expect("a well-formed key")
}

/// The `n`th delivery of hook 42.
pub(crate) fn delivery(n: u64, event: &str, payload: &Value) -> Request {
    Request::new(event, &guid(n), payload.to_string())
}

fn repository() -> Value {
    json!({"id": 1, "full_name": "acme/app", "html_url": "https://github.com/acme/app"})
}

/// A comment on pull request 12.
pub(crate) fn comment(id: u64, login: &str) -> Value {
    json!({
        "action": "created",
        "issue": {"id": 5, "number": 12, "pull_request": {"url": "u"}, "user": {"login": "dev1"}},
        "comment": {"id": id, "user": {"login": login}, "body": "please look", "created_at": AT},
        "repository": repository(),
        "sender": {"login": login},
    })
}

fn pull() -> Value {
    json!({
        "id": 70, "number": 12, "title": "Fix", "user": {"login": "dev1"}, "created_at": AT, "updated_at": AT,
        "head": {"ref": "fix", "sha": "aa", "repo": repository()},
        "base": {"ref": "main", "sha": "bb", "repo": repository()},
    })
}

/// Something that happened to pull request 12 of branch `fix`; `more` goes into the pull request.
pub(crate) fn pull_request(action: &str, more: &Value) -> Value {
    let mut pull = pull();
    for (name, value) in more.as_object().expect("fields") {
        pull[name] = value.clone();
    }
    json!({"action": action, "pull_request": pull, "repository": repository(), "sender": {"login": "dev1"}})
}

/// The merge of pull request 12 by `login`.
pub(crate) fn merge(login: &str) -> Value {
    let merged = json!({"merged": true, "merged_at": AT, "closed_at": AT, "merged_by": {"login": login}});
    pull_request("closed", &merged)
}

/// A review of pull request 12.
pub(crate) fn review(id: u64) -> Value {
    json!({
        "action": "submitted",
        "review": {"id": id, "user": {"login": "dev1"}, "state": "approved", "body": "good", "submitted_at": AT},
        "pull_request": pull(), "repository": repository(), "sender": {"login": "dev1"},
    })
}

/// A push of commit `after` to branch `main`.
pub(crate) fn push(before: &str, after: &str) -> Value {
    json!({
        "ref": "refs/heads/main", "before": before, "after": after,
        "head_commit": {"id": after, "message": "Change", "timestamp": AT},
        "repository": repository(), "pusher": {"name": "dev1"}, "sender": {"login": "dev1"},
    })
}

/// A stand on a scripted ledger in memory: for what a real table cannot be made to do.
pub(crate) fn scripted() -> Stand<Scripted<MemoryLedger>> {
    scripted_with(&[])
}

/// [`scripted`] with other values of some variables.
pub(crate) fn scripted_with(changes: &[(&str, &str)]) -> Stand<Scripted<MemoryLedger>> {
    Stand::with(Scripted::new(MemoryLedger::new()), changed(changes))
}

/// The tests' environment with other values of some variables.
pub(crate) fn changed(changes: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut environment = environment();
    environment.extend(
        changes
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    );
    environment
}

/// The row of an event.
pub(crate) async fn row<L: Ledger + Clone>(stand: &Stand<L>, id: &str) -> EventRow {
    let row = stand.ledger.event(&EventId::new(id)).await.expect("the ledger answers");
    row.unwrap_or_else(|| panic!("no event {id}"))
}

/// Where an event stands and why.
pub(crate) async fn standing<L: Ledger + Clone>(stand: &Stand<L>, id: &str) -> (Status, Option<Reason>) {
    let state = row(stand, id).await.state;
    (state.status, state.reason)
}

/// How many rows of each kind the table holds, by the first word of their keys.
pub(crate) async fn rows(table: &Table) -> BTreeMap<String, usize> {
    let output = table.client().scan().table_name(TABLE).send().await.expect("a scan");
    let mut rows = BTreeMap::new();
    for item in output.items() {
        let pk = item["pk"].as_s().expect("a text key");
        let kind = pk.split('#').next().unwrap_or_default().to_owned();
        *rows.entry(kind).or_insert(0) += 1;
    }
    rows
}

/// `rows` as a map.
pub(crate) fn counts<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    counts.map(|(kind, count)| (kind.to_owned(), count)).into()
}

/// The inboxes of every message so far.
pub(crate) fn reached<L: Ledger + Clone>(stand: &Stand<L>) -> Vec<String> {
    stand.inboxes.all().into_iter().map(|message| message.inbox).collect()
}

/// A session of `agent` in `acme/app`.
pub(crate) fn session<L: Ledger + Clone>(
    stand: &Stand<L>,
    agent: &str,
    branch: Option<&str>,
    pull: Option<u64>,
) -> Session {
    let now = stand.time.now();
    Session {
        id: SessionId::parse(&format!("session-{agent}")).expect("plain"),
        agent: AgentName::parse(agent).expect("plain"),
        repository: Repository::new("acme/app").expect("plain"),
        branch: branch.map(str::to_owned),
        pull,
        phase: Phase::Open,
        opened_at: now,
        live_until: now + SignedDuration::from_hours(1),
    }
}

/// Opens a session and drives what waited for it, as its opener does.
pub(crate) async fn open<L: Ledger + Clone>(stand: &Stand<L>, session: &Session) {
    let opened = stand.ledger.open_session(session, stand.time.now()).await;
    let Opened::Live(keys) = opened.expect("the ledger answers") else {
        panic!("held")
    };
    let driver = Driver {
        ledger: &stand.ledger,
        inboxes: &stand.inboxes,
        time: &stand.time,
        routing: &stand.config.routing,
        limits: &stand.config.limits,
    };
    for key in keys {
        for (_, driven) in driver.wake(&key).await.expect("the ledger answers") {
            driven.expect("the ledger answers");
        }
    }
}

/// Moves the stand's clock.
pub(crate) fn pass<L>(stand: &Stand<L>, seconds: i64) {
    stand.time.pass(SignedDuration::from_secs(seconds));
}
