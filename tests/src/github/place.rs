//! The repository's side of a happening: what changes in it, and what is told of that in each net's words.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Numbers;
use super::bodies::{Bodies, time};
use super::happening::{Impossible, What};
use super::repository::{Attempt, Entry, Pull, Repository, Run, Stage, Thread};

/// What is told of one happening.
pub(super) struct Told {
    pub(super) event: &'static str,
    pub(super) action: Option<&'static str>,
    /// What of a webhook's body is this kind's own.
    pub(super) body: Value,
    /// Type and payload of its item in the feed.
    pub(super) feed: Option<(&'static str, Value)>,
    pub(super) event_id: Option<String>,
    pub(super) number: Option<u64>,
    pub(super) id: u64,
}

/// Where and when something happens.
pub(super) struct Place<'a> {
    pub(super) bodies: Bodies<'a>,
    pub(super) repository: &'a mut Repository,
    pub(super) guid: String,
    pub(super) numbers: &'a mut Numbers,
    pub(super) by: &'a str,
    pub(super) at: Timestamp,
    pub(super) visible_at: Option<Timestamp>,
}

impl Place<'_> {
    /// Changes the repository, and says what is told of that.
    pub(super) fn happen(&mut self, what: &What) -> Result<Told, Impossible> {
        match what {
            What::PullRequest { branch, base, from } => self.pull_opened(branch, base, from.as_deref()),
            What::Issue { title } => {
                let id = 3_000_000_000 + self.numbers.next();
                let number = self.repository.open(id, title, self.by, self.at, None);
                self.issue(number, "opened", Some("opened".to_owned()))
            }
            What::Closed { number } => self.closed(*number),
            What::Merged { number } => self.merged(*number),
            What::Reopened { number } => self.reopened(*number),
            What::Comment { number, text } => self.comment(*number, text),
            What::Review { number, state } => self.review(*number, state),
            What::ReviewComment { number, text } => self.review_comment(*number, text),
            What::Release { tag } => Ok(self.release(tag)),
            What::Run { branch, conclusion } => self.run(branch, conclusion),
            What::Rerun { run, conclusion } => self.attempt(*run, conclusion),
            What::Push { branch } => Ok(self.push(branch)),
        }
    }

    fn pull_opened(&mut self, branch: &str, base: &str, from: Option<&str>) -> Result<Told, Impossible> {
        let head_sha = match from {
            Some(_) => self.numbers.sha(),
            None => self.repository.head(branch, self.numbers),
        };
        let pull = Pull {
            id: 2_200_000_000 + self.numbers.next(),
            branch: branch.to_owned(),
            head_sha,
            from: from.map(str::to_owned),
            base: base.to_owned(),
            base_sha: self.repository.head(base, self.numbers),
        };
        let id = 3_000_000_000 + self.numbers.next();
        let title = format!("Change {branch}");
        let number = self.repository.open(id, &title, self.by, self.at, Some(pull));
        self.pull(number, "opened", "opened", Some("opened".to_owned()))
    }

    fn thread(&self, number: u64) -> Result<&Thread, Impossible> {
        self.repository.threads.get(&number).ok_or(Impossible::NoNumber)
    }

    fn thread_mut(&mut self, number: u64) -> Result<&mut Thread, Impossible> {
        self.repository.threads.get_mut(&number).ok_or(Impossible::NoNumber)
    }

    fn pull_of(&self, number: u64) -> Result<(&Thread, &Pull), Impossible> {
        let thread = self.thread(number)?;
        Ok((thread, thread.pull.as_ref().ok_or(Impossible::NotAPull)?))
    }

    /// Moves an issue or a pull request on, and notes that in its history.
    fn advance(&mut self, number: u64, stage: Stage, entries: &[&'static str]) -> Result<(), Impossible> {
        if (self.thread(number)?.stage == Stage::Open) == (stage == Stage::Open) {
            return Err(Impossible::Already);
        }
        for event in entries {
            let entry = Entry {
                id: 15_000_000_000 + self.numbers.next(),
                event,
                by: self.by.to_owned(),
                at: self.at,
            };
            self.thread_mut(number)?.history.push(entry);
        }
        self.thread_mut(number)?.stage = stage;
        Ok(())
    }

    fn closed(&mut self, number: u64) -> Result<Told, Impossible> {
        let at = self.at;
        self.advance(number, Stage::Closed { at }, &["closed"])?;
        let name = Some(format!("closed/{}", at.as_second()));
        if self.thread(number)?.pull.is_some() {
            self.pull(number, "closed", "closed", name)
        } else {
            self.issue(number, "closed", name)
        }
    }

    fn merged(&mut self, number: u64) -> Result<Told, Impossible> {
        self.pull_of(number)?;
        let (at, by) = (self.at, self.by.to_owned());
        self.advance(number, Stage::Merged { at, by }, &["merged", "closed"])?;
        self.pull(number, "closed", "merged", Some("merged".to_owned()))
    }

    fn reopened(&mut self, number: u64) -> Result<Told, Impossible> {
        if let Stage::Merged { .. } = self.thread(number)?.stage {
            return Err(Impossible::Merged);
        }
        self.advance(number, Stage::Open, &["reopened"])?;
        if self.thread(number)?.pull.is_some() {
            self.pull(number, "reopened", "reopened", None)
        } else {
            self.issue(number, "reopened", None)
        }
    }

    /// A pull request's own event: webhooks and the feed have different words for a merge.
    fn pull(&self, number: u64, action: &'static str, in_feed: &str, name: Option<String>) -> Result<Told, Impossible> {
        let (thread, pull) = self.pull_of(number)?;
        let trimmed = self.bodies.trimmed(self.repository, thread, pull);
        Ok(Told {
            event: "pull_request",
            action: Some(action),
            body: json!({"number": number, "pull_request": self.bodies.whole_pull(self.repository, thread, pull)}),
            feed: Some((
                "PullRequestEvent",
                json!({"action": in_feed, "number": number, "pull_request": trimmed}),
            )),
            event_id: name.map(|name| format!("github/pull_request/{}/{name}", pull.id)),
            number: Some(number),
            id: pull.id,
        })
    }

    fn issue(&self, number: u64, action: &'static str, name: Option<String>) -> Result<Told, Impossible> {
        let thread = self.thread(number)?;
        let issue = self.bodies.issue(self.repository, thread);
        Ok(Told {
            event: "issues",
            action: Some(action),
            body: json!({"issue": issue}),
            feed: Some(("IssuesEvent", json!({"action": action, "issue": issue}))),
            event_id: name.map(|name| format!("github/issue/{}/{name}", thread.id)),
            number: Some(number),
            id: thread.id,
        })
    }

    fn comment(&mut self, number: u64, text: &str) -> Result<Told, Impossible> {
        let id = 3_500_000_000 + self.numbers.next();
        let thread = self.thread(number)?;
        let issue = self.bodies.issue(self.repository, thread);
        let page = issue["html_url"].as_str().unwrap_or_default();
        let comment = json!({
            "url": format!("{}/issues/comments/{id}", self.bodies.url(self.repository)),
            "html_url": format!("{page}#issuecomment-{id}"), "issue_url": issue["url"], "id": id,
            "node_id": format!("IC_{id}"), "user": self.bodies.account(self.by), "created_at": time(self.at),
            "updated_at": time(self.at), "author_association": "MEMBER", "body": text,
        });
        Ok(Told {
            event: "issue_comment",
            action: Some("created"),
            body: json!({"issue": issue, "comment": comment}),
            feed: Some((
                "IssueCommentEvent",
                json!({"action": "created", "issue": issue, "comment": comment}),
            )),
            event_id: Some(format!("github/comment/{id}")),
            number: Some(number),
            id,
        })
    }

    fn review(&mut self, number: u64, state: &str) -> Result<Told, Impossible> {
        let id = 1_900_000_000 + self.numbers.next();
        let (thread, pull) = self.pull_of(number)?;
        let page = Bodies::page(self.repository, &format!("pull/{number}"));
        let review = json!({
            "id": id, "node_id": format!("PRR_{id}"), "user": self.bodies.account(self.by), "body": null,
            "commit_id": pull.head_sha, "submitted_at": time(self.at), "state": state,
            "html_url": format!("{page}#pullrequestreview-{id}"),
            "pull_request_url": format!("{}/pulls/{number}", self.bodies.url(self.repository)),
            "author_association": "MEMBER",
        });
        let trimmed = self.bodies.trimmed(self.repository, thread, pull);
        Ok(Told {
            event: "pull_request_review",
            action: Some("submitted"),
            body: json!({"review": review, "pull_request": self.bodies.pull(self.repository, thread, pull)}),
            feed: Some((
                "PullRequestReviewEvent",
                json!({"action": "created", "review": review, "pull_request": trimmed}),
            )),
            event_id: Some(format!("github/review/{id}")),
            number: Some(number),
            id,
        })
    }

    fn review_comment(&mut self, number: u64, text: &str) -> Result<Told, Impossible> {
        let id = 2_100_000_000 + self.numbers.next();
        let (thread, pull) = self.pull_of(number)?;
        let page = Bodies::page(self.repository, &format!("pull/{number}"));
        let comment = json!({
            "url": format!("{}/pulls/comments/{id}", self.bodies.url(self.repository)),
            "pull_request_review_id": id + 1, "id": id, "node_id": format!("PRRC_{id}"),
            "diff_hunk": "@@ -1 +1 @@", "path": "src/lib.rs", "position": 1, "commit_id": pull.head_sha,
            "user": self.bodies.account(self.by), "body": text, "created_at": time(self.at),
            "updated_at": time(self.at), "html_url": format!("{page}#discussion_r{id}"), "line": 1, "side": "RIGHT",
        });
        let trimmed = self.bodies.trimmed(self.repository, thread, pull);
        Ok(Told {
            event: "pull_request_review_comment",
            action: Some("created"),
            body: json!({"comment": comment, "pull_request": self.bodies.pull(self.repository, thread, pull)}),
            feed: Some((
                "PullRequestReviewCommentEvent",
                json!({"action": "created", "comment": comment, "pull_request": trimmed}),
            )),
            event_id: Some(format!("github/review_comment/{id}")),
            number: Some(number),
            id,
        })
    }

    fn release(&mut self, tag: &str) -> Told {
        let id = 260_000_000 + self.numbers.next();
        let release = json!({
            "url": format!("{}/releases/{id}", self.bodies.url(self.repository)),
            "html_url": Bodies::page(self.repository, &format!("releases/tag/{tag}")), "id": id,
            "author": self.bodies.account(self.by), "node_id": format!("RE_{id}"), "tag_name": tag,
            "target_commitish": "main", "name": tag, "draft": false, "prerelease": false, "created_at": time(self.at),
            "published_at": time(self.at), "assets": [], "body": "What changed.",
        });
        Told {
            event: "release",
            action: Some("published"),
            body: json!({"release": release}),
            feed: Some(("ReleaseEvent", json!({"action": "published", "release": release}))),
            event_id: Some(format!("github/release/{id}/{}", self.at.as_second())),
            number: None,
            id,
        }
    }

    fn run(&mut self, branch: &str, conclusion: &str) -> Result<Told, Impossible> {
        let run = Run {
            id: 19_000_000_000 + self.numbers.next(),
            run_number: u64::try_from(self.repository.runs.len()).unwrap_or(0) + 1,
            branch: branch.to_owned(),
            head_sha: self.repository.head(branch, self.numbers),
            created_at: self.at,
            attempts: Vec::new(),
        };
        let id = run.id;
        self.repository.runs.push(run);
        self.attempt(id, conclusion)
    }

    fn attempt(&mut self, id: u64, conclusion: &str) -> Result<Told, Impossible> {
        let mut runs = self.repository.runs.iter_mut();
        let run = runs.find(|run| run.id == id).ok_or(Impossible::NoRun)?;
        let attempt = Attempt {
            number: run.attempts.last().map_or(1, |last| last.number + 1),
            conclusion: conclusion.to_owned(),
            by: self.by.to_owned(),
            at: self.at,
            visible_at: self.visible_at,
        };
        run.attempts.push(attempt.clone());
        let runs = &self.repository.runs;
        let run = runs.iter().find(|run| run.id == id).ok_or(Impossible::NoRun)?;
        let shown = self.bodies.run(self.repository, run, &attempt);
        let is_bad = matches!(conclusion, "failure" | "timed_out" | "startup_failure");
        Ok(Told {
            event: "workflow_run",
            action: Some("completed"),
            body: json!({"workflow_run": shown, "workflow": self.bodies.workflow(self.repository)}),
            feed: None,
            event_id: is_bad.then(|| format!("github/run/{id}/attempt/{}", attempt.number)),
            number: None,
            id,
        })
    }

    fn push(&mut self, branch: &str) -> Told {
        let id = 28_000_000_000 + self.numbers.next();
        let before = self.repository.head(branch, self.numbers);
        let head = self.numbers.sha();
        self.repository.heads.insert(branch.to_owned(), head.clone());
        self.repository.pushed_at = self.at;
        let git_ref = format!("refs/heads/{branch}");
        let author = json!({"name": self.by, "email": format!("{}@users.noreply.github.com", self.by)});
        let commit = json!({
            "id": head, "tree_id": self.numbers.sha(), "distinct": true, "message": format!("Change {branch}"),
            "timestamp": time(self.at), "url": Bodies::page(self.repository, &format!("commit/{head}")),
            "author": author, "committer": author, "added": [], "removed": [], "modified": ["src/lib.rs"],
        });
        let short = |sha: &str| sha.chars().take(12).collect::<String>();
        let compare = format!("compare/{}...{}", short(&before), short(&head));
        Told {
            event: "push",
            action: None,
            body: json!({
                "ref": git_ref, "before": before, "after": head, "pusher": author, "created": false, "deleted": false,
                "forced": false, "base_ref": null, "compare": Bodies::page(self.repository, &compare),
                "commits": [commit], "head_commit": commit,
            }),
            feed: Some((
                "PushEvent",
                json!({
                    "repository_id": self.repository.id, "push_id": id, "ref": git_ref, "head": head, "before": before,
                }),
            )),
            event_id: Some(format!("github/push/{}/{}", self.repository.id, self.guid)),
            number: None,
            id,
        }
    }
}

/// The repository as webhooks of this kind carry it.
pub(super) fn home(bodies: &Bodies<'_>, repository: &Repository, event: &str) -> Value {
    let mut home = bodies.repository(repository);
    if event == "push" {
        // Here the URL is the page's, and times are numbers.
        home["url"] = home["html_url"].clone();
        home["pushed_at"] = json!(repository.pushed_at.as_second());
    }
    home
}
