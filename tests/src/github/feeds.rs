//! What the REST interface lists of the happenings: the events feed, workflow runs, the history of an issue.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::bodies::{Bodies, time};
use super::page::{Query, Reply, page};
use super::repository::Repository;

/// <https://docs.github.com/en/rest/activity/events>
const EVENTS_MAX: usize = 300;
const EVENTS_AGE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// <https://docs.github.com/en/rest/actions/workflow-runs>
const RUNS_MAX: usize = 1_000;

/// An item of the events feed.
#[derive(Debug)]
pub(super) struct Item {
    repository_id: u64,
    created_at: Timestamp,
    visible_at: Timestamp,
    json: Value,
}

impl Item {
    /// The item of type `kind` with `payload`, by `login`. `number` is new with each item, and grows; the item's own id does
    /// not: each type counts in a range of its own.
    pub(super) fn new(
        bodies: &Bodies<'_>,
        repository: &Repository,
        (kind, payload): (&'static str, Value),
        (login, number): (&str, u64),
        created_at: Timestamp,
    ) -> Self {
        let id = number
            + match kind {
                "PushEvent" => 6_000_000_000,
                "IssueCommentEvent" => 46_700_000_000,
                "PullRequestEvent" => 9_100_000_000,
                _ => 17_100_000_000,
            };
        let full_name = repository.full_name();
        let account = bodies.account(login);
        let mut json = json!({
            "id": id.to_string(), "type": kind,
            "actor": {
                "id": account["id"], "login": login, "display_login": login.trim_end_matches("[bot]"),
                "gravatar_id": "", "url": account["url"], "avatar_url": account["avatar_url"],
            },
            "repo": {"id": repository.id, "name": full_name, "url": bodies.url(repository)},
            "payload": payload, "public": repository.private_to.is_none(), "created_at": time(created_at),
        });
        if let Some(organization) = bodies.organization(&repository.owner) {
            json["org"] = organization;
        }
        Self {
            repository_id: repository.id,
            created_at,
            visible_at: created_at,
            json,
        }
    }

    /// The same, shown from then on only.
    pub(super) fn visible_from(self, visible_at: Timestamp) -> Self {
        Self { visible_at, ..self }
    }
}

/// The events of a repository, newest first, whenever they became visible.
pub(super) fn events(feed: &[Item], repository: &Repository, query: &Query, url: &str, now: Timestamp) -> Reply {
    if query.skipped() >= EVENTS_MAX {
        let text = "In order to keep the API fast for everyone, pagination is limited for this resource.";
        return Reply::message(422, text);
    }
    let is_shown = |item: &&Item| {
        item.repository_id == repository.id
            && item.visible_at <= now
            && now.duration_since(item.created_at) < EVENTS_AGE
    };
    let mut shown: Vec<&Item> = feed.iter().rev().filter(is_shown).collect();
    // Stable: of one second, the last one first.
    shown.sort_by_key(|item| std::cmp::Reverse(item.created_at));
    shown.truncate(EVENTS_MAX);
    let (items, link) = page(shown, query, url);
    let items: Vec<&Value> = items.into_iter().map(|item| &item.json).collect();
    linked(Reply::ok(&json!(items)), link)
}

/// The workflow runs of a repository, newest first, each with its last attempt.
pub(super) fn runs(bodies: &Bodies<'_>, repository: &Repository, query: &Query, url: &str, now: Timestamp) -> Reply {
    let since = match query.get("created").map(since) {
        None => Timestamp::MIN,
        Some(Some(since)) => since,
        Some(None) => return Reply::message(422, "Only >=DATE is known here."),
    };
    let status = query.get("status").unwrap_or("completed");
    let mut runs: Vec<_> = repository
        .runs
        .iter()
        .rev()
        .filter(|run| run.created_at >= since)
        .collect();
    runs.sort_by_key(|run| std::cmp::Reverse(run.created_at));
    let runs = runs.into_iter().filter_map(|run| {
        let mut attempts = run.attempts.iter().rev();
        let attempt = attempts.find(|attempt| attempt.visible_at.is_some_and(|visible_at| visible_at <= now))?;
        (status == "completed" || status == attempt.conclusion).then_some((run, attempt))
    });
    let mut runs: Vec<_> = runs.collect();
    let total = runs.len();
    runs.truncate(RUNS_MAX);
    let (runs, link) = page(runs, query, url);
    let runs: Vec<Value> = runs
        .into_iter()
        .map(|(run, attempt)| bodies.run(repository, run, attempt))
        .collect();
    linked(Reply::ok(&json!({"total_count": total, "workflow_runs": runs})), link)
}

/// One attempt of a run, be it the last or not.
pub(super) fn attempt(bodies: &Bodies<'_>, repository: &Repository, run: &str, number: &str, now: Timestamp) -> Reply {
    let run = repository.runs.iter().find(|known| known.id.to_string() == run);
    let attempt = run.and_then(|run| {
        let mut attempts = run.attempts.iter();
        let attempt = attempts.find(|known| known.number.to_string() == number)?;
        let is_shown = attempt.visible_at.is_some_and(|visible_at| visible_at <= now);
        is_shown.then_some((run, attempt))
    });
    attempt.map_or_else(Reply::not_found, |(run, attempt)| {
        Reply::ok(&bodies.run(repository, run, attempt))
    })
}

/// The instant that `>=DATE` begins with.
fn since(range: &str) -> Option<Timestamp> {
    let text = range.strip_prefix(">=")?;
    text.parse().ok().or_else(|| format!("{text}T00:00:00Z").parse().ok())
}

/// What became of an issue or a pull request, oldest first.
pub(super) fn history(bodies: &Bodies<'_>, repository: &Repository, number: u64, query: &Query, url: &str) -> Reply {
    let Some(thread) = repository.threads.get(&number) else {
        return Reply::not_found();
    };
    let entries = thread.history.iter().map(|entry| {
        json!({
            "id": entry.id, "node_id": format!("E_{}", entry.id), "event": entry.event,
            "url": format!("{}/issues/events/{}", bodies.url(repository), entry.id),
            "actor": bodies.account(&entry.by), "commit_id": null, "commit_url": null, "created_at": time(entry.at),
        })
    });
    let (entries, link) = page(entries.collect::<Vec<_>>(), query, url);
    linked(Reply::ok(&json!(entries)), link)
}

pub(super) fn linked(mut reply: Reply, link: Option<String>) -> Reply {
    if let Some(link) = link {
        reply.set("link", link);
    }
    reply
}
