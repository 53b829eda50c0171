//! What happens, and how it is told.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::bodies::{Bodies, time, whole};
use super::feeds::Item;
use super::hooks::{Message, Outcome};
use super::repository::{Attempt, Entry, Pull, Repository, Run, Stage, Thread};
use super::{FakeGithub, Numbers};

/// Something that can happen in a repository.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum What {
    /// A pull request is opened.
    PullRequest {
        /// Its head branch.
        branch: String,
        /// Its base branch.
        #[serde(default = "main")]
        base: String,
        /// The fork that its head is in, as `owner/name`.
        #[serde(default)]
        from: Option<String>,
    },
    /// An issue is opened.
    Issue {
        /// Its title.
        title: String,
    },
    /// An issue, or a pull request without a merge, is closed.
    Closed {
        /// Which.
        number: u64,
    },
    /// A pull request is merged.
    Merged {
        /// Which.
        number: u64,
    },
    /// An issue or a pull request is opened again.
    Reopened {
        /// Which.
        number: u64,
    },
    /// Somebody comments on an issue or on a pull request.
    Comment {
        /// On which.
        number: u64,
        /// What they say.
        text: String,
    },
    /// Somebody submits a review.
    Review {
        /// Of which pull request.
        number: u64,
        /// `approved`, `changes_requested` or `commented`.
        state: String,
    },
    /// Somebody comments on a line of a diff.
    ReviewComment {
        /// Of which pull request.
        number: u64,
        /// What they say.
        text: String,
    },
    /// A release is published.
    Release {
        /// Its tag.
        tag: String,
    },
    /// A new workflow run completes.
    Run {
        /// For which branch.
        branch: String,
        /// How it ends.
        conclusion: String,
    },
    /// A workflow run that was started again completes: under its id, as the next attempt.
    Rerun {
        /// Which.
        run: u64,
        /// How it ends this time.
        conclusion: String,
    },
    /// A commit is pushed.
    Push {
        /// To which branch.
        branch: String,
    },
}

fn main() -> String {
    "main".to_owned()
}

impl What {
    /// A pull request from `branch` into `main` is opened.
    #[must_use]
    pub fn pull_request(branch: &str) -> Self {
        let (branch, base) = (branch.to_owned(), main());
        Self::PullRequest {
            branch,
            base,
            from: None,
        }
    }

    /// Somebody says `text` on an issue or on a pull request.
    #[must_use]
    pub fn comment(number: u64, text: &str) -> Self {
        let text = text.to_owned();
        Self::Comment { number, text }
    }

    /// A new workflow run for `branch` ends with `conclusion`.
    #[must_use]
    pub fn run(branch: &str, conclusion: &str) -> Self {
        Self::Run {
            branch: branch.to_owned(),
            conclusion: conclusion.to_owned(),
        }
    }
}

/// How hooks tell of a happening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hooked {
    /// A delivery waits to be posted; its hook's log shows how it ended.
    Delivered,
    /// A delivery waits to be posted; no log ever shows it.
    Unlogged,
    /// A delivery never reaches its endpoint; its hook's log shows this end, be it a good one.
    Lost(Outcome),
    /// There is no delivery at all.
    Silent,
}

/// A happening that is to be, and how it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occasion {
    /// Where, as `owner/name`.
    pub repository: String,
    /// Whose doing it is.
    pub by: String,
    /// What.
    pub what: What,
    /// How hooks tell of it.
    pub hooked: Hooked,
    /// How long after it happened the feed, or the list of runs, shows it; `None`: never. It then stands where its time
    /// belongs, not on top.
    pub shown_after: Option<SignedDuration>,
    /// By how much the `created_at` of the item in the feed is later than the happening.
    pub written_after: SignedDuration,
}

impl Occasion {
    /// `what` happens in `repository` by `dev1`, and everything tells of it at once.
    #[must_use]
    pub fn of(repository: &str, what: What) -> Self {
        Self {
            repository: repository.to_owned(),
            by: "dev1".to_owned(),
            what,
            hooked: Hooked::Delivered,
            shown_after: Some(SignedDuration::ZERO),
            written_after: SignedDuration::ZERO,
        }
    }

    /// The same, by `login`.
    #[must_use]
    pub fn by(self, login: &str) -> Self {
        let by = login.to_owned();
        Self { by, ..self }
    }

    /// The same, told by hooks like this.
    #[must_use]
    pub fn hooked(self, hooked: Hooked) -> Self {
        Self { hooked, ..self }
    }

    /// The same, shown so late; `None`: never.
    #[must_use]
    pub fn shown_after(self, shown_after: Option<SignedDuration>) -> Self {
        Self { shown_after, ..self }
    }

    /// The same, its item in the feed written so late.
    #[must_use]
    pub fn written_after(self, written_after: SignedDuration) -> Self {
        Self { written_after, ..self }
    }
}

/// Why something cannot happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// There is no such repository.
    NoRepository,
    /// There is no issue or pull request of this number.
    NoNumber,
    /// The number is an issue's.
    NotAPull,
    /// It is open, or closed, already.
    Already,
    /// A merged pull request stays so.
    Merged,
    /// There is no such run.
    NoRun,
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRepository => "there is no such repository",
            Self::NoNumber => "there is no issue or pull request of this number",
            Self::NotAPull => "the number is an issue's",
            Self::Already => "it is so already",
            Self::Merged => "a merged pull request stays so",
            Self::NoRun => "there is no such run",
        })
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// GitHub's name of it, which all hooks share.
    pub guid: String,
    /// Where, as the repository is called at that time.
    pub repository: String,
    /// The name of its webhook event.
    pub event: &'static str,
    /// Its action, as webhooks say it.
    pub action: Option<&'static str>,
    /// Number of its issue or pull request.
    pub number: Option<u64>,
    /// Id of the pull request, issue, comment, review, run or release; a push has one of its own.
    pub id: u64,
    /// When, in whole seconds.
    pub at: Timestamp,
    event_id: Option<String>,
}

impl Happening {
    /// The natural id that Forebay must give it, whoever reports it; `None` where it is no event of Forebay's. A push's ends
    /// in the GUID, which only webhooks know.
    #[must_use]
    pub fn event_id(&self) -> Option<&str> {
        self.event_id.as_deref()
    }
}

/// What is told of one happening.
struct Told {
    event: &'static str,
    action: Option<&'static str>,
    /// What of a webhook's body is this kind's own.
    body: Value,
    /// Type and payload of its item in the feed.
    feed: Option<(&'static str, Value)>,
    event_id: Option<String>,
    number: Option<u64>,
    id: u64,
}

impl FakeGithub {
    /// Lets something happen at `now`: queues its deliveries and lists it where it is to be seen.
    ///
    /// # Errors
    /// [`Impossible`] where it cannot happen; then nothing has.
    pub fn happen(&mut self, occasion: &Occasion, now: Timestamp) -> Result<Happening, Impossible> {
        let at = whole(now);
        let bodies = Bodies {
            base: &self.base,
            organizations: &self.organizations,
        };
        let mut repositories = self.repositories.iter_mut();
        let repository = repositories.find(|known| known.is_called(&occasion.repository));
        let repository = repository.ok_or(Impossible::NoRepository)?;
        let mut place = Place {
            bodies,
            repository,
            guid: self.numbers.guid(),
            numbers: &mut self.numbers,
            by: &occasion.by,
            at,
            visible_at: occasion.shown_after.map(|late| at + late),
        };
        let told = place.happen(&occasion.what)?;
        let Place {
            repository,
            numbers,
            guid,
            ..
        } = place;
        let happening = Happening {
            guid,
            repository: repository.full_name(),
            event: told.event,
            action: told.action,
            number: told.number,
            id: told.id,
            at,
            event_id: told.event_id,
        };
        if let (Some(content), Some(late)) = (told.feed, occasion.shown_after) {
            let by = (occasion.by.as_str(), numbers.next());
            let created_at = whole(at + occasion.written_after);
            let item = Item::new(&bodies, repository, content, by, created_at);
            self.feed.push(item.visible_from(created_at + late));
        }
        let body = told.body.as_object().cloned().unwrap_or_default();
        let mut message = Message {
            guid: happening.guid.clone(),
            event: told.event,
            action: told.action,
            repository_id: repository.id,
            owner: repository.owner.clone(),
            body,
        };
        message.add("repository", Some(home(&bodies, repository, told.event)));
        message.add("organization", bodies.organization(&repository.owner));
        message.add("sender", Some(bodies.account(&occasion.by)));
        self.hooks
            .send(&message, &occasion.hooked, &self.installed, numbers, at);
        self.happenings.push(happening.clone());
        Ok(happening)
    }
}

/// The repository as webhooks of this kind carry it.
fn home(bodies: &Bodies<'_>, repository: &Repository, event: &str) -> Value {
    let mut home = bodies.repository(repository);
    if event == "push" {
        // Here the URL is the page's, and times are numbers.
        home["url"] = home["html_url"].clone();
        home["pushed_at"] = json!(repository.pushed_at.as_second());
    }
    home
}

/// Where and when something happens.
struct Place<'a> {
    bodies: Bodies<'a>,
    repository: &'a mut Repository,
    guid: String,
    numbers: &'a mut Numbers,
    by: &'a str,
    at: Timestamp,
    visible_at: Option<Timestamp>,
}

impl Place<'_> {
    fn happen(&mut self, what: &What) -> Result<Told, Impossible> {
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
