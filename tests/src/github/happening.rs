//! What happens, and how it is told.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::FakeGithub;
use super::bodies::{Bodies, whole};
use super::feeds::Item;
use super::hooks::Message;
use super::log::Outcome;
use super::place::{Place, home};

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
        for letter in self.hooks.letters(&message, &self.installed) {
            self.log.add(letter, &occasion.hooked, numbers, at);
        }
        self.happenings.push(happening.clone());
        Ok(happening)
    }
}
