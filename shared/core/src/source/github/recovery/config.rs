//! Whose delivery logs are read, and how.

use std::collections::BTreeSet;

use jiff::SignedDuration;

use crate::api::Limits;
use crate::event::Repository;
use crate::source::SourceId;

/// Whose delivery log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookLog {
    /// Those of a repository's hooks.
    Repository(Repository),
    /// Those of an organisation's hooks.
    Organization(String),
    /// That of the App's one hook.
    App,
}

/// What stands behind the host in a log's id.
pub(super) const LOGS: &str = "deliveries";

impl HookLog {
    /// Whether `source` is one that reads a log.
    #[must_use]
    pub fn is_of(source: &SourceId) -> bool {
        source.as_str().split('/').nth(1) == Some(LOGS)
    }
}

/// How a missing delivery is got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// GitHub is asked to deliver it again.
    Redeliver,
    /// Its payload is read from the log: for when our own address is what fails.
    Fetch,
}

/// How delivery logs are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryConfig {
    /// GitHub Enterprise host; `None` for github.com.
    pub host: Option<String>,
    /// How long a log is left alone between two polls.
    pub interval: SignedDuration,
    /// How long GitHub keeps an entry: three days, a week on Enterprise.
    pub retention: SignedDuration,
    /// The address by which a hook is known to be ours, or its end. A slash behind it does not count.
    pub address: String,
    /// Names of events that are recovered; empty for all.
    pub events: BTreeSet<String>,
    /// How a missing delivery is got.
    pub remedy: Remedy,
    /// Most pages of logs of one poll.
    pub pages_max: usize,
    /// Most deliveries that one poll asks for.
    pub requests_max: usize,
    /// Most times that one delivery is asked for.
    pub attempts_max: u32,
    /// How long a delivery that was asked for may take to come, the first time; each further time longer.
    pub patience: SignedDuration,
    /// How waits are bounded.
    pub limits: Limits,
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        Self {
            host: None,
            interval: SignedDuration::from_secs(300),
            retention: SignedDuration::from_hours(3 * 24),
            address: "/api/intake/github".to_owned(),
            events: BTreeSet::new(),
            remedy: Remedy::Redeliver,
            pages_max: 20,
            requests_max: 20,
            attempts_max: 6,
            patience: SignedDuration::from_secs(60),
            limits: Limits::default(),
        }
    }
}
