//! Repositories and what lives in them: issues, pull requests, workflow runs.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::callers::Caller;
use super::{Numbers, account_id};

/// One repository.
#[derive(Debug)]
pub(super) struct Repository {
    pub(super) id: u64,
    pub(super) owner: String,
    pub(super) name: String,
    /// What it was called before, in full.
    pub(super) former: Vec<String>,
    /// Who may know of it; `None`: everybody.
    pub(super) private_to: Option<BTreeSet<String>>,
    /// Issues and pull requests share their numbers.
    pub(super) threads: BTreeMap<u64, Thread>,
    pub(super) runs: Vec<Run>,
    pub(super) pushed_at: Timestamp,
    /// The last commit of each branch that was pushed to.
    pub(super) heads: BTreeMap<String, String>,
}

impl Repository {
    pub(super) fn new(full_name: &str) -> Option<Self> {
        let (owner, name) = full_name.split_once('/')?;
        Some(Self {
            id: account_id(full_name),
            owner: owner.to_owned(),
            name: name.to_owned(),
            former: Vec::new(),
            private_to: None,
            threads: BTreeMap::new(),
            runs: Vec::new(),
            pushed_at: Timestamp::UNIX_EPOCH,
            heads: BTreeMap::new(),
        })
    }

    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    pub(super) fn is_called(&self, full_name: &str) -> bool {
        self.full_name().eq_ignore_ascii_case(full_name)
    }

    pub(super) fn was_called(&self, full_name: &str) -> bool {
        self.former.iter().any(|former| former.eq_ignore_ascii_case(full_name))
    }

    pub(super) fn rename(&mut self, new: &str) -> Option<()> {
        let (owner, name) = new.split_once('/')?;
        let old = self.full_name();
        (self.owner, self.name) = (owner.to_owned(), name.to_owned());
        self.former.push(old);
        Some(())
    }

    pub(super) fn shows_to(&self, caller: &Caller) -> bool {
        let Some(names) = &self.private_to else { return true };
        names.contains(&caller.name()) || *caller == Caller::Installation(self.owner.clone())
    }

    /// The last commit of `branch`; a branch that was never pushed to gets one.
    pub(super) fn head(&mut self, branch: &str, numbers: &mut Numbers) -> String {
        let known = self.heads.get(branch).cloned();
        known.unwrap_or_else(|| {
            let sha = numbers.sha();
            self.heads.insert(branch.to_owned(), sha.clone());
            sha
        })
    }

    /// A new number's thread.
    pub(super) fn open(&mut self, id: u64, title: &str, author: &str, at: Timestamp, pull: Option<Pull>) -> u64 {
        let number = self.threads.last_key_value().map_or(1, |(last, _)| last + 1);
        let thread = Thread {
            number,
            id,
            title: title.to_owned(),
            author: author.to_owned(),
            opened_at: at,
            stage: Stage::Open,
            history: Vec::new(),
            pull,
        };
        self.threads.insert(number, thread);
        number
    }
}

/// An issue, or a pull request and its issue.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) number: u64,
    /// The issue's. A pull request has another one.
    pub(super) id: u64,
    pub(super) title: String,
    pub(super) author: String,
    pub(super) opened_at: Timestamp,
    pub(super) stage: Stage,
    pub(super) history: Vec<Entry>,
    pub(super) pull: Option<Pull>,
}

/// What only a pull request has.
#[derive(Clone, Debug)]
pub(super) struct Pull {
    pub(super) id: u64,
    pub(super) branch: String,
    pub(super) head_sha: String,
    /// The fork that its head is in; `None`: the repository itself.
    pub(super) from: Option<String>,
    pub(super) base: String,
    pub(super) base_sha: String,
}

/// How far an issue or a pull request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Open,
    Closed { at: Timestamp },
    Merged { at: Timestamp, by: String },
}

impl Stage {
    pub(super) fn closed_at(&self) -> Option<Timestamp> {
        match self {
            Self::Open => None,
            Self::Closed { at } | Self::Merged { at, .. } => Some(*at),
        }
    }
}

/// An entry of an issue's event history.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: u64,
    pub(super) event: &'static str,
    pub(super) by: String,
    pub(super) at: Timestamp,
}

/// A workflow run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: u64,
    pub(super) run_number: u64,
    pub(super) branch: String,
    pub(super) head_sha: String,
    pub(super) created_at: Timestamp,
    /// All of its attempts, the first one first. A list shows the last that is visible.
    pub(super) attempts: Vec<Attempt>,
}

/// An attempt of a workflow run, completed.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) number: u64,
    pub(super) conclusion: String,
    pub(super) by: String,
    pub(super) at: Timestamp,
    /// From when on lists show it; `None`: never.
    pub(super) visible_at: Option<Timestamp>,
}
