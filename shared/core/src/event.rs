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
        /// Somebody put a message into a queue.
        QueueMessage = "queue_message",
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
        /// What a queue keeps in order: a message group, or a message alone.
        Group = "group",
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

/// What an event is about. Events about one subject arrive in the order of sending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A pull request.
    PullRequest {
        /// Where it is.
        repository: Repository,
        /// Its number.
        number: u64,
    },
    /// An issue.
    Issue {
        /// Where it is.
        repository: Repository,
        /// Its number.
        number: u64,
    },
    /// A repository as a whole.
    Repository(Repository),
    /// What a queue keeps in order: a message group of a FIFO queue. A message of a standard queue stands alone, under its
    /// own id.
    Group {
        /// ARN of the queue.
        queue: String,
        /// The group, or the message.
        name: String,
    },
}

impl Subject {
    /// What kind of thing it is.
    #[must_use]
    pub const fn kind(&self) -> SubjectKind {
        match self {
            Self::PullRequest { .. } => SubjectKind::PullRequest,
            Self::Issue { .. } => SubjectKind::Issue,
            Self::Repository(_) => SubjectKind::Repository,
            Self::Group { .. } => SubjectKind::Group,
        }
    }

    /// The repository, where there is one.
    #[must_use]
    pub const fn repository(&self) -> Option<&Repository> {
        match self {
            Self::PullRequest { repository, .. } | Self::Issue { repository, .. } | Self::Repository(repository) => {
                Some(repository)
            }
            Self::Group { .. } => None,
        }
    }

    /// Number of the issue or pull request.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        match self {
            Self::PullRequest { number, .. } | Self::Issue { number, .. } => Some(*number),
            Self::Repository(_) | Self::Group { .. } => None,
        }
    }

    /// The subject for comparisons and keys: one subject has one, however its repository is spelled.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::PullRequest { repository, number } | Self::Issue { repository, number } => {
                format!("{}#{number}", repository.key())
            }
            Self::Repository(repository) => repository.key(),
            Self::Group { queue, name } => format!("{queue}#{name}"),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PullRequest { repository, number } | Self::Issue { repository, number } => {
                write!(f, "{repository}#{number}")
            }
            Self::Repository(repository) => write!(f, "{repository}"),
            Self::Group { queue, name } => write!(f, "{}#{name}", queue.rsplit(':').next().unwrap_or(queue)),
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
    /// What its source said, where the event is its own record and no delivery keeps it.
    pub content: Option<Content>,
}

/// What a source said, where no delivery keeps it: members of the message that its inbox receives, as one JSON object.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    /// This.
    Here(String),
    /// So many bytes, which the ledger keeps apart from the event's row.
    Apart(u64),
}

impl fmt::Debug for Content {
    /// Without the text, which is payload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(text) => write!(f, "Here({} bytes)", text.len()),
            Self::Apart(bytes) => write!(f, "Apart({bytes} bytes)"),
        }
    }
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
            | Kind::ReleasePublished
            | Kind::QueueMessage => false,
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
    fn a_subject_reads_like_a_reference_and_its_key_ignores_how_a_repository_is_spelled() {
        #[track_caller]
        fn check(subject: &Subject, text: &str, key: &str) {
            assert_eq!((subject.to_string().as_str(), subject.key().as_str()), (text, key));
        }
        let repository = Repository::new("Acme/App").unwrap();
        let number = 12;
        check(&event(Kind::Comment).subject, "acme/app#12", "acme/app#12");
        let issue = Subject::Issue {
            repository: repository.clone(),
            number,
        };
        check(&issue, "Acme/App#12", "acme/app#12");
        check(&Subject::Repository(repository), "Acme/App", "acme/app");
        let queue = "arn:aws:sqs:eu-west-1:000000000000:orders".to_owned();
        let group = Subject::Group {
            queue,
            name: "Eu".to_owned(),
        };
        check(&group, "orders#Eu", "arn:aws:sqs:eu-west-1:000000000000:orders#Eu");
    }

    #[test]
    fn printed_content_shows_its_size_and_not_what_it_says() {
        // Invariant 8
        let printed = format!("{:?} {:?}", Content::Here("secret".to_owned()), Content::Apart(7));
        assert_eq!(printed, "Here(6 bytes) Apart(7 bytes)");
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
