//! Sessions: live claims of agents to branches and pull requests, and the pointers that routing reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

use crate::event::{Repository, words};
use crate::text::key_part;

/// Longest session id, in bytes.
const SESSION_ID_BYTES_MAX: usize = 128;
/// Longest agent name, in bytes: the template names queues after agents.
const AGENT_BYTES_MAX: usize = 31;

words! {
    /// Where a session stands.
    Phase {
        /// It prepares.
        Starting = "starting",
        /// It works.
        Running = "running",
        /// It has published what it did and waits for answers.
        Open = "open",
        /// It has ended.
        Closed = "closed",
    }
}

impl Phase {
    /// Whether events go to a session in this phase.
    #[must_use]
    pub const fn is_live(self) -> bool {
        match self {
            Self::Starting | Self::Running | Self::Open => true,
            Self::Closed => false,
        }
    }
}

/// A session's name: `^[A-Za-z0-9._-]{1,128}$`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(String);

impl SessionId {
    /// The id that `text` spells. `None` where it is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let plain = !text.is_empty()
            && text.len() <= SESSION_ID_BYTES_MAX
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        plain.then(|| Self(text.to_owned()))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An agent's name, which is also its inbox's: `^[a-z][a-z0-9]{0,30}$`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentName(String);

impl AgentName {
    /// The name that `text` spells. `None` where it is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let plain = text.len() <= AGENT_BYTES_MAX
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        plain.then(|| Self(text.to_owned()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Something that a session can own: a branch or a pull request of one repository.
///
/// Its text is the key of its pointer. It cannot collide: a repository holds no `#`, and the branch comes last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerKey(String);

impl OwnerKey {
    /// A branch.
    #[must_use]
    pub fn branch(repository: &Repository, branch: &str) -> Self {
        Self(format!("{}#branch#{}", repository.key(), key_part(branch)))
    }

    /// A pull request.
    #[must_use]
    pub fn pull(repository: &Repository, number: u64) -> Self {
        Self(format!("{}#pull#{number}", repository.key()))
    }

    /// The key that a ledger stored.
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OwnerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who owns a branch or a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The session.
    pub session: SessionId,
    /// Its agent, whose inbox gets the events.
    pub agent: AgentName,
    /// When the claim lapses by itself.
    pub live_until: Timestamp,
}

/// The row behind an [`OwnerKey`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pointer {
    /// Who owns it, if anybody does; may have lapsed.
    pub owner: Option<Owner>,
    /// On a branch: the pull requests that payloads named with it. Comments carry no branch, so that this is how a session
    /// for a branch gets the comments of its pull request.
    pub pulls: BTreeSet<u64>,
}

/// The pointers that routing has read, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pointers(pub BTreeMap<OwnerKey, Pointer>);

impl Pointers {
    /// The live owner of `key` at `now`.
    #[must_use]
    pub fn live_owner(&self, key: &OwnerKey, now: Timestamp) -> Option<&Owner> {
        self.0.get(key)?.owner.as_ref().filter(|owner| now < owner.live_until)
    }
}

/// A session as an agent opens it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its name.
    pub id: SessionId,
    /// Its agent.
    pub agent: AgentName,
    /// The repository it works on.
    pub repository: Repository,
    /// The branch it owns.
    pub branch: Option<String>,
    /// The pull request it owns.
    pub pull: Option<u64>,
    /// Where it stands.
    pub phase: Phase,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When its claims lapse by themselves.
    pub live_until: Timestamp,
}

impl Session {
    /// Keys of what it owns by name. A branch brings the pull requests that its pointer knows besides.
    #[must_use]
    pub fn keys(&self) -> Vec<OwnerKey> {
        let branch = self
            .branch
            .as_deref()
            .map(|branch| OwnerKey::branch(&self.repository, branch));
        let pull = self.pull.map(|number| OwnerKey::pull(&self.repository, number));
        branch.into_iter().chain(pull).collect()
    }

    /// Its claim, as pointers hold it.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner {
            session: self.id.clone(),
            agent: self.agent.clone(),
            live_until: self.live_until,
        }
    }
}

/// What came of opening a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// It owns these keys now.
    Live(Vec<OwnerKey>),
    /// Another live session owns one of them. Nothing changed.
    Held {
        /// What is owned.
        key: OwnerKey,
        /// By whom.
        owner: Owner,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, repository, session};

    #[test]
    fn a_session_id_is_plain_and_short() {
        let longest = "s".repeat(128);
        for text in ["s1", "A.b_c-9", "..", longest.as_str()] {
            assert_eq!(SessionId::parse(text).unwrap().as_str(), text);
        }
        let too_long = "s".repeat(129);
        for text in ["", " ", "a b", "a/b", "a#b", "a:b", "a\n", "é", &too_long] {
            assert_eq!(SessionId::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_agents_name_can_name_a_queue() {
        let longest = format!("a{}", "0".repeat(30));
        for text in ["a", "reviewer2", longest.as_str()] {
            assert_eq!(AgentName::parse(text).unwrap().as_str(), text);
        }
        let too_long = format!("{longest}0");
        for text in ["", "2a", "A", "aB", "a-b", "a_b", "a.b", "a b", "á", "a\n", &too_long] {
            assert_eq!(AgentName::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn no_branch_and_no_pull_request_share_a_key() {
        // Whatever a branch is called: a repository holds no `#`, and the branch comes last.
        let app = repository("acme/app");
        let keys = [
            OwnerKey::pull(&app, 12),
            OwnerKey::branch(&app, "12"),
            OwnerKey::branch(&app, "pull#12"),
            OwnerKey::branch(&app, "#pull#12"),
            OwnerKey::branch(&app, ""),
            OwnerKey::branch(&app, "branch#12"),
            OwnerKey::branch(&app, "Fix"),
            OwnerKey::branch(&app, "fix"),
            OwnerKey::branch(&repository("acme/app2"), "fix"),
            OwnerKey::branch(&repository("acme/ap"), "p#branch#fix"),
            OwnerKey::branch(&app, &"x".repeat(5_000)),
            OwnerKey::branch(&app, &format!("{}y", "x".repeat(5_000))),
        ];
        let distinct: BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        // A DynamoDB partition key holds 2,048 bytes. S2-06
        let long = OwnerKey::branch(&repository(&format!("a/{}", "b".repeat(5_000))), &"x".repeat(1_024));
        assert!(keys.iter().chain([&long]).all(|key| key.as_str().len() < 2_000));
        for key in keys {
            assert_eq!(OwnerKey::from_stored(key.as_str()), key);
        }
    }

    #[test]
    fn one_repository_in_two_spellings_has_one_key() {
        // S3-10
        assert_eq!(
            OwnerKey::pull(&repository("Acme/App"), 12),
            OwnerKey::pull(&repository("acme/app"), 12)
        );
    }

    #[test]
    fn a_session_owns_what_it_names() {
        let both = session("s1", "reviewer", Some("fix"), Some(12));
        let app = repository("acme/app");
        assert_eq!(both.keys(), [OwnerKey::branch(&app, "fix"), OwnerKey::pull(&app, 12)]);
        assert_eq!(session("s1", "reviewer", None, None).keys(), []);
    }

    #[test]
    fn a_claim_lapses_at_the_end_of_its_life_and_not_before() {
        let session = session("s1", "reviewer", None, Some(12));
        let key = OwnerKey::pull(&repository("acme/app"), 12);
        let pointer = Pointer {
            owner: Some(session.owner()),
            ..Pointer::default()
        };
        let pointers = Pointers(BTreeMap::from([(key.clone(), pointer)]));
        assert_eq!(pointers.live_owner(&key, at(3_599)), Some(&session.owner()));
        assert_eq!(pointers.live_owner(&key, at(3_600)), None);
        assert_eq!(
            pointers.live_owner(&OwnerKey::pull(&repository("acme/app"), 1), at(0)),
            None
        );
    }

    #[test]
    fn only_a_closed_session_gets_nothing() {
        // S3-10: starting, running, open
        let live: Vec<_> = Phase::ALL.iter().filter(|phase| phase.is_live()).collect();
        assert_eq!(live, [&Phase::Starting, &Phase::Running, &Phase::Open]);
        for phase in Phase::ALL {
            assert_eq!(Phase::from_word(phase.as_str()), Some(*phase));
        }
    }
}
