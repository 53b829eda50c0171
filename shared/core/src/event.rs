//! Typed events: what a delivery means, in words that are the same whichever source reported it.

use std::fmt;

use jiff::Timestamp;

use crate::delivery::DeliveryKey;
use crate::text::{cut, key_part};

/// Longest summary, in UTF-8 bytes. It keeps an event row within one write unit in the mean case.
pub const SUMMARY_BYTES_MAX: usize = 1_024;

/// Declares an enum whose variants have one fixed word each, used in rows, messages and metrics.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])* $variant),+ }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word that rows, messages and metrics use.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// The value that `word` names, if any.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use words;

words! {
    /// What happened.
    Kind {
        /// A pull request was opened.
        PullRequestOpened = "pull_request_opened",
        /// A pull request was merged.
        PullRequestMerged = "pull_request_merged",
        /// A pull request was closed without a merge.
        PullRequestClosed = "pull_request_closed",
        /// Somebody commented on an issue or on a pull request.
        Comment = "comment",
        /// Somebody submitted a review.
        Review = "review",
        /// Somebody commented on a line of a diff.
        ReviewComment = "review_comment",
        /// A check run came to an end.
        CheckRunCompleted = "check_run_completed",
        /// A check suite came to an end.
        CheckSuiteCompleted = "check_suite_completed",
        /// An attempt of a workflow run ended badly.
        CheckFailure = "check_failure",
        /// Commits were pushed to a branch.
        Push = "push",
        /// An issue was opened.
        IssueOpened = "issue_opened",
        /// An issue was closed.
        IssueClosed = "issue_closed",
        /// A release was published.
        ReleasePublished = "release_published",
    }
}

words! {
    /// By which net an event was caught.
    Net {
        /// A webhook delivery.
        Webhook = "webhook",
        /// A REST feed.
        Feed = "feed",
        /// A delivery log that was read back.
        Recovery = "recovery",
        /// An SQS queue.
        Queue = "queue",
    }
}

words! {
    /// What kind of thing an event is about.
    SubjectKind {
        /// A pull request.
        PullRequest = "pull_request",
        /// An issue.
        Issue = "issue",
        /// The repository as a whole.
        Repository = "repository",
    }
}

/// The natural name of one happening, the same whoever reports it. At most 1,100 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(String);

impl EventId {
    /// The id that `name` spells; an over-long one is replaced by its digest.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(key_part(name))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A repository as `owner/name`, in the spelling of the payload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Repository(String);

impl Repository {
    /// `full_name` where it has the form `owner/name`, both parts not empty, without blanks or `#`.
    #[must_use]
    pub fn new(full_name: &str) -> Option<Self> {
        let (owner, name) = full_name.split_once('/')?;
        let plain = |part: &str| {
            !part.is_empty() && !part.contains(|c: char| c == '/' || c == '#' || c.is_whitespace() || c.is_control())
        };
        (plain(owner) && plain(name)).then(|| Self(full_name.to_owned()))
    }

    /// The name as the payload spells it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name for comparisons and keys: GitHub's names do not depend on case.
    #[must_use]
    pub fn key(&self) -> String {
        key_part(&self.0.to_lowercase())
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Where it happened.
    pub repository: Repository,
    /// What it happened to.
    pub kind: SubjectKind,
    /// Number of the issue or pull request.
    pub number: Option<u64>,
}

impl Subject {
    /// The subject for comparisons and keys: one subject has one, however its repository is spelled.
    #[must_use]
    pub fn key(&self) -> String {
        let repository = self.repository.key();
        match self.number {
            Some(number) => format!("{repository}#{number}"),
            None => repository,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            Some(number) => write!(f, "{}#{number}", self.repository),
            None => write!(f, "{}", self.repository),
        }
    }
}

/// Whether a check that ended with `conclusion` (in lower case) went wrong.
///
/// One that is not in this table did not: GitHub adds conclusions, and an agent that is woken for nothing is worse off than
/// one that looks for itself.
#[must_use]
pub fn is_failure(conclusion: &str) -> bool {
    match conclusion {
        "failure" | "timed_out" | "startup_failure" => true,
        "success" | "neutral" | "skipped" | "cancelled" | "stale" | "action_required" => false,
        _ => false,
    }
}

/// One typed happening. Carries no state: that is the ledger's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The natural id.
    pub id: EventId,
    /// What happened.
    pub kind: Kind,
    /// `CloudEvents` type, such as `com.github.pull_request.closed`.
    pub cloud_type: String,
    /// `CloudEvents` source: a URL.
    pub cloud_source: String,
    /// `CloudEvents` subject: the number, id or ref that tells it apart within the source.
    pub cloud_subject: String,
    /// What it is about.
    pub subject: Subject,
    /// All pull requests of this repository that a check names, or the one that the event is about.
    pub pull_requests: Vec<u64>,
    /// Who did it: the author of the object, else the sender. `None` where the account is gone.
    pub actor: Option<String>,
    /// Page of the happening.
    pub url: Option<String>,
    /// A title or a text, at most [`SUMMARY_BYTES_MAX`] bytes.
    pub summary: String,
    /// Head branch, where it is a branch of this repository.
    pub branch: Option<String>,
    /// Base branch of a pull request.
    pub base: Option<String>,
    /// Head commit.
    pub head_sha: Option<String>,
    /// Conclusion of a check, or state of a review, in lower case.
    pub conclusion: Option<String>,
    /// When it happened, as the payload says.
    pub occurred_at: Option<Timestamp>,
    /// The delivery that reported it first, where there was one.
    pub delivery: Option<DeliveryKey>,
}

impl Event {
    /// `text` cut to a summary.
    #[must_use]
    pub fn summarize(text: &str) -> String {
        cut(text, SUMMARY_BYTES_MAX).to_owned()
    }

    /// Whether this is a check that went wrong: work for whoever owns the branch.
    #[must_use]
    pub fn is_failed_check(&self) -> bool {
        match self.kind {
            Kind::CheckFailure => true,
            Kind::CheckRunCompleted | Kind::CheckSuiteCompleted => self.conclusion.as_deref().is_some_and(is_failure),
            Kind::PullRequestOpened
            | Kind::PullRequestMerged
            | Kind::PullRequestClosed
            | Kind::Comment
            | Kind::Review
            | Kind::ReviewComment
            | Kind::Push
            | Kind::IssueOpened
            | Kind::IssueClosed
            | Kind::ReleasePublished => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::event;

    #[test]
    fn a_repository_is_an_owner_and_a_name_and_nothing_that_breaks_a_key() {
        for name in ["acme/app", "Acme/App.js", "a/b-c_d", "é/🚀"] {
            assert_eq!(Repository::new(name).unwrap().as_str(), name);
        }
        for name in [
            "",
            "/",
            "acme",
            "acme/",
            "/app",
            "acme/app/x",
            "acme//app",
            "a#b/c",
            "a/b#c",
            "a b/c",
            "a/b\n",
            "a/\tb",
            "a/b\u{0}",
            "a/b\u{a0}",
            "a/b\u{2028}",
            " a/b",
            "a/b ",
        ] {
            assert_eq!(Repository::new(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_repositorys_key_ignores_case_and_stays_short() {
        // S3-10, S2-06
        let key = |name: &str| Repository::new(name).unwrap().key();
        assert_eq!(key("Acme/App"), "acme/app");
        assert!(key(&format!("acme/{}", "İ".repeat(2_000))).len() <= 1_024);
        assert!(!key(&format!("acme/{}", "a".repeat(2_000))).contains('#'));
    }

    #[test]
    fn an_event_id_is_its_natural_name_or_that_names_digest() {
        // S2-06
        assert_eq!(EventId::new("github/comment/7").as_str(), "github/comment/7");
        let long = format!("host/{}", "x".repeat(5_000));
        assert_eq!(EventId::new(&long), EventId::new(&long));
        assert_ne!(EventId::new(&long), EventId::new(&format!("{long}y")));
        assert!(EventId::new(&long).as_str().len() <= 1_100);
    }

    #[test]
    fn a_summary_is_cut_on_a_character() {
        // S3-08
        let text = "🚀".repeat(300);
        let summary = Event::summarize(&text);
        assert_eq!(summary.len(), SUMMARY_BYTES_MAX);
        assert!(text.starts_with(&summary));
        assert_eq!(Event::summarize(&format!("a{text}")).len(), 1_021);
        assert_eq!(Event::summarize("short"), "short");
    }

    #[test]
    fn a_subject_reads_like_a_github_reference() {
        let mut subject = event(Kind::Comment).subject;
        assert_eq!(subject.to_string(), "acme/app#12");
        subject.repository = Repository::new("Acme/App").unwrap();
        assert_eq!(
            (subject.to_string(), subject.key()),
            ("Acme/App#12".to_owned(), "acme/app#12".to_owned())
        );
        subject.number = None;
        assert_eq!(
            (subject.to_string(), subject.key()),
            ("Acme/App".to_owned(), "acme/app".to_owned())
        );
    }

    #[test]
    fn every_word_reads_back_as_what_it_was_and_no_two_are_the_same() {
        let kinds: std::collections::BTreeSet<_> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(kinds.len(), Kind::ALL.len());
        for kind in Kind::ALL {
            assert_eq!(Kind::from_word(&kind.to_string()), Some(*kind));
        }
        for net in Net::ALL {
            assert_eq!(Net::from_word(net.as_str()), Some(*net));
        }
        for kind in SubjectKind::ALL {
            assert_eq!(SubjectKind::from_word(kind.as_str()), Some(*kind));
        }
        assert_eq!(Kind::from_word("comment "), None);
    }

    #[test]
    fn only_a_check_can_be_a_failed_check() {
        // S3-10
        for kind in Kind::ALL {
            let failed = Event {
                conclusion: Some("failure".to_owned()),
                ..event(*kind)
            };
            let is_check = [Kind::CheckRunCompleted, Kind::CheckSuiteCompleted, Kind::CheckFailure].contains(kind);
            assert_eq!(failed.is_failed_check(), is_check, "{kind}");
        }
    }
}
