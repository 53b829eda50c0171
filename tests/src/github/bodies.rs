//! How things look in GitHub's JSON: whole in webhooks, trimmed in the feed.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::account_id;
use super::repository::{Attempt, Pull, Repository, Run, Stage, Thread};

/// Pages for people.
const SITE: &str = "https://github.com";

/// What all bodies need to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bodies<'a> {
    pub(super) base: &'a str,
    pub(super) organizations: &'a BTreeSet<String>,
}

impl Bodies<'_> {
    pub(super) fn account(&self, login: &str) -> Value {
        let id = account_id(login);
        let kind = match () {
            () if self.organizations.contains(login) => "Organization",
            () if login.ends_with("[bot]") => "Bot",
            () => "User",
        };
        json!({
            "login": login, "id": id, "node_id": format!("U_{id}"), "gravatar_id": "",
            "avatar_url": format!("https://avatars.githubusercontent.com/u/{id}?v=4"),
            "url": format!("{}/users/{login}", self.base), "html_url": format!("{SITE}/{login}"),
            "type": kind, "user_view_type": "public", "site_admin": false,
        })
    }

    /// What webhooks and the feed say of an owner that is an organization.
    pub(super) fn organization(&self, login: &str) -> Option<Value> {
        let (id, url) = (account_id(login), format!("{}/orgs/{login}", self.base));
        self.organizations.contains(login).then(|| {
            json!({
                "login": login, "id": id, "node_id": format!("O_{id}"), "url": url,
                "avatar_url": format!("https://avatars.githubusercontent.com/u/{id}?v=4"),
            })
        })
    }

    /// A repository's URL in the REST interface.
    pub(super) fn url(&self, repository: &Repository) -> String {
        format!("{}/repos/{}", self.base, repository.full_name())
    }

    pub(super) fn repository(&self, repository: &Repository) -> Value {
        let (id, url, full_name) = (repository.id, self.url(repository), repository.full_name());
        let html_url = format!("{SITE}/{full_name}");
        let is_private = repository.private_to.is_some();
        json!({
            "id": id, "node_id": format!("R_{id}"), "name": repository.name, "full_name": full_name,
            "private": is_private, "owner": self.account(&repository.owner), "html_url": html_url,
            "description": null, "fork": false, "url": url,
            "hooks_url": format!("{url}/hooks"), "events_url": format!("{url}/events"),
            "issue_events_url": format!("{url}/issues/events{{/number}}"),
            "pulls_url": format!("{url}/pulls{{/number}}"), "issues_url": format!("{url}/issues{{/number}}"),
            "created_at": "2025-02-10T10:00:00Z", "updated_at": time(repository.pushed_at),
            "pushed_at": time(repository.pushed_at), "git_url": format!("git://github.com/{full_name}.git"),
            "clone_url": format!("{html_url}.git"), "language": "Rust", "archived": false, "disabled": false,
            "topics": [], "visibility": if is_private { "private" } else { "public" }, "default_branch": "main",
        })
    }

    /// A repository as trimmed things name it.
    pub(super) fn repository_ref(&self, repository: &Repository) -> Value {
        json!({"id": repository.id, "url": self.url(repository), "name": repository.name})
    }

    /// Where the head of `pull` is, if not in the repository itself.
    fn fork(pull: &Pull) -> Option<Repository> {
        Repository::new(pull.from.as_deref()?)
    }

    /// A pull request as the feed shows it since October 2025.
    /// <https://github.blog/changelog/2025-08-08-upcoming-changes-to-github-events-api-payloads/>
    pub(super) fn trimmed(&self, repository: &Repository, thread: &Thread, pull: &Pull) -> Value {
        let fork = Self::fork(pull);
        let head = self.repository_ref(fork.as_ref().unwrap_or(repository));
        json!({
            "id": pull.id, "number": thread.number,
            "url": format!("{}/pulls/{}", self.url(repository), thread.number),
            "head": {"ref": pull.branch, "sha": pull.head_sha, "repo": head},
            "base": {"ref": pull.base, "sha": pull.base_sha, "repo": self.repository_ref(repository)},
        })
    }

    /// A pull request as reviews carry it: without saying whether it was merged, except by a time.
    pub(super) fn pull(&self, repository: &Repository, thread: &Thread, pull: &Pull) -> Value {
        let number = thread.number;
        let url = format!("{}/pulls/{number}", self.url(repository));
        let html_url = format!("{SITE}/{}/pull/{number}", repository.full_name());
        let fork = Self::fork(pull);
        let side = |at: &Repository, branch: &str, sha: &str| {
            json!({
                "label": format!("{}:{branch}", at.owner), "ref": branch, "sha": sha,
                "user": self.account(&at.owner), "repo": self.repository(at),
            })
        };
        let merged_at = match &thread.stage {
            Stage::Merged { at, .. } => Some(time(*at)),
            Stage::Open | Stage::Closed { .. } => None,
        };
        json!({
            "url": url, "id": pull.id, "node_id": format!("PR_{}", pull.id), "html_url": html_url,
            "diff_url": format!("{html_url}.diff"),
            "issue_url": format!("{}/issues/{number}", self.url(repository)), "number": number,
            "state": state(thread), "locked": false, "title": thread.title, "user": self.account(&thread.author),
            "body": "See the title.", "created_at": time(thread.opened_at), "updated_at": time(updated_at(thread)),
            "closed_at": thread.stage.closed_at().map(time), "merged_at": merged_at,
            "merge_commit_sha": null, "assignees": [], "requested_reviewers": [], "requested_teams": [], "labels": [],
            "milestone": null, "draft": false,
            "head": side(fork.as_ref().unwrap_or(repository), &pull.branch, &pull.head_sha),
            "base": side(repository, &pull.base, &pull.base_sha),
            "author_association": "MEMBER", "auto_merge": null,
        })
    }

    /// A pull request as its own events carry it.
    pub(super) fn whole_pull(&self, repository: &Repository, thread: &Thread, pull: &Pull) -> Value {
        let mut whole = self.pull(repository, thread, pull);
        let merged_by = match &thread.stage {
            Stage::Merged { by, .. } => Some(self.account(by)),
            Stage::Open | Stage::Closed { .. } => None,
        };
        whole["merged"] = json!(merged_by.is_some());
        whole["merged_by"] = json!(merged_by);
        whole["commits"] = json!(1);
        whole
    }

    pub(super) fn issue(&self, repository: &Repository, thread: &Thread) -> Value {
        let number = thread.number;
        let url = format!("{}/issues/{number}", self.url(repository));
        let kind = if thread.pull.is_some() { "pull" } else { "issues" };
        let html_url = format!("{SITE}/{}/{kind}/{number}", repository.full_name());
        let mut issue = json!({
            "url": url, "repository_url": self.url(repository), "html_url": html_url, "id": thread.id,
            "node_id": format!("I_{}", thread.id), "number": number, "title": thread.title,
            "user": self.account(&thread.author), "labels": [], "state": state(thread), "locked": false,
            "assignees": [], "milestone": null, "comments": 0, "created_at": time(thread.opened_at),
            "updated_at": time(updated_at(thread)), "closed_at": thread.stage.closed_at().map(time),
            "author_association": "MEMBER", "body": "See the title.",
        });
        if thread.pull.is_some() {
            let url = format!("{}/pulls/{number}", self.url(repository));
            issue["pull_request"] = json!({"url": url, "html_url": html_url});
        }
        issue
    }

    /// A run with one of its attempts.
    pub(super) fn run(&self, repository: &Repository, run: &Run, attempt: &Attempt) -> Value {
        let url = format!("{}/actions/runs/{}", self.url(repository), run.id);
        let html_url = format!("{SITE}/{}/actions/runs/{}", repository.full_name(), run.id);
        let pulls = repository.threads.values().filter_map(|thread| {
            let pull = thread.pull.as_ref()?;
            let is_its = pull.branch == run.branch && pull.from.is_none() && thread.stage == Stage::Open;
            is_its.then(|| self.trimmed(repository, thread, pull))
        });
        let actor = run.attempts.first().map_or(&attempt.by, |first| &first.by);
        let previous = (attempt.number > 1).then(|| format!("{url}/attempts/{}", attempt.number - 1));
        json!({
            "id": run.id, "name": "ci", "node_id": format!("WFR_{}", run.id), "head_branch": run.branch,
            "head_sha": run.head_sha, "path": ".github/workflows/ci.yml", "display_title": "ci",
            "run_number": run.run_number, "event": "push", "status": "completed", "conclusion": attempt.conclusion,
            "workflow_id": WORKFLOW, "check_suite_id": run.id + 1, "url": url, "html_url": html_url,
            "pull_requests": pulls.collect::<Vec<_>>(), "created_at": time(run.created_at),
            "updated_at": time(attempt.at), "actor": self.account(actor), "run_attempt": attempt.number,
            "run_started_at": time(attempt.at), "triggering_actor": self.account(&attempt.by),
            "previous_attempt_url": previous, "head_commit": {"id": run.head_sha, "message": "Change it"},
            "repository": self.repository(repository), "head_repository": self.repository(repository),
        })
    }

    pub(super) fn workflow(&self, repository: &Repository) -> Value {
        let url = format!("{}/actions/workflows/{WORKFLOW}", self.url(repository));
        json!({
            "id": WORKFLOW, "name": "ci", "path": ".github/workflows/ci.yml", "state": "active", "url": url,
        })
    }

    /// The page of something in a repository.
    pub(super) fn page(repository: &Repository, rest: &str) -> String {
        format!("{SITE}/{}/{rest}", repository.full_name())
    }
}

/// The id of every repository's only workflow.
const WORKFLOW: u64 = 88_000_421;

/// GitHub's times are whole seconds, in UTC.
pub(super) fn time(at: Timestamp) -> String {
    whole(at).to_string()
}

pub(super) fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

fn state(thread: &Thread) -> &'static str {
    match thread.stage {
        Stage::Open => "open",
        Stage::Closed { .. } | Stage::Merged { .. } => "closed",
    }
}

fn updated_at(thread: &Thread) -> Timestamp {
    thread.history.last().map_or(thread.opened_at, |entry| entry.at)
}
