//! A GitHub that is made of state: tests make things happen in it, and its webhooks, feeds and logs tell of them, each in
//! its own words, late, twice or never.
//!
//! [`FakeGithub`] does no I/O and asks no clock. It is reached in process through [`InProcess`], under a clock that tests
//! move, or over HTTP through [`serve()`], which also posts its webhook deliveries and lets an operator make things happen.
//! It knows what Forebay asks for and nothing else: any other path is 404.
//!
//! A caller is known by a name, for limits, for what it may see and in the record of requests: `anonymous`, `app`,
//! `installation:<account>`, or the token's own text. `Bearer <name>` makes one such a caller; over HTTP, a JSON web token of
//! plausible age is the App as well (its signature is not verified), and a token that the App was given is its installation.

mod bodies;
mod callers;
mod control;
mod feeds;
mod happening;
mod hooks;
mod in_process;
mod log;
mod page;
mod place;
mod repository;
mod rest;
mod serve;

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_core::delivery::Digest;
use jiff::{SignedDuration, Timestamp};

use callers::Callers;
use feeds::Item;
use hooks::Hooks;
use log::Log;
use repository::Repository;

pub use callers::Secondary;
pub use happening::{Happening, Hooked, Impossible, Occasion, What};
pub use hooks::HookTarget;
pub use in_process::InProcess;
pub use log::{Outcome, Post};
pub use page::{Reply, Request};
pub use serve::{deliver, serve};

/// Requests that are remembered; of more, the oldest go.
const REQUESTS_MAX: usize = 100_000;
/// The App's id.
const APP: u64 = 421_007;

/// A fake that several hold.
pub type Shared = Arc<Mutex<FakeGithub>>;

/// The fake, for as long as the guard lives. Never held over a wait.
pub fn lock(fake: &Shared) -> MutexGuard<'_, FakeGithub> {
    fake.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How the REST interface is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Every request is answered 502.
    Failing,
    /// No request is ever answered.
    Hanging,
}

/// A request that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// When, by the test's clock.
    pub at: Timestamp,
    /// The caller's name; `refused` where the credential was none.
    pub caller: String,
    /// How.
    pub method: String,
    /// For what: a path with its query.
    pub target: String,
    /// What was answered; `None` where nothing was.
    pub status: Option<u16>,
    /// Until when the answer left nothing to ask with, by the test's clock.
    pub spent_until: Option<Timestamp>,
}

/// A GitHub.
#[derive(Debug)]
pub struct FakeGithub {
    base: String,
    numbers: Numbers,
    organizations: BTreeSet<String>,
    installed: BTreeSet<String>,
    repositories: Vec<Repository>,
    happenings: Vec<Happening>,
    feed: Vec<Item>,
    hooks: Hooks,
    log: Log,
    callers: Callers,
    outage: Option<Outage>,
    clock_offset: SignedDuration,
    poll_interval_s: u32,
    requests: VecDeque<Asked>,
}

impl FakeGithub {
    /// An empty GitHub whose REST interface is reached at `base`, without a slash at its end. The ids of what happens count
    /// from `first`: two that one ledger hears of must not share theirs.
    #[must_use]
    pub fn new(base: &str, first: u64) -> Self {
        Self {
            base: base.to_owned(),
            numbers: Numbers(first),
            organizations: BTreeSet::new(),
            installed: BTreeSet::new(),
            repositories: Vec::new(),
            happenings: Vec::new(),
            feed: Vec::new(),
            hooks: Hooks::default(),
            log: Log::default(),
            callers: Callers::default(),
            outage: None,
            clock_offset: SignedDuration::ZERO,
            poll_interval_s: 60,
            requests: VecDeque::new(),
        }
    }

    /// This GitHub, to be held by several.
    #[must_use]
    pub fn shared(self) -> Shared {
        Arc::new(Mutex::new(self))
    }

    /// From now on the account `login` is an organization. Accounts that are not are users.
    pub fn add_organization(&mut self, login: &str) {
        self.organizations.insert(login.to_owned());
    }

    /// Creates the public repository `owner/name`, or nothing where it is there. Gives its id, which depends on the name.
    ///
    /// # Panics
    /// Where the name is none.
    pub fn add_repository(&mut self, full_name: &str) -> u64 {
        if let Some(known) = self.named(full_name) {
            return known.id;
        }
        let repository = Repository::new(full_name).expect("a repository is owner/name");
        let id = repository.id;
        self.repositories.push(repository);
        id
    }

    /// From now on only `callers`, and the App's installation at its owner, know of the repository.
    ///
    /// # Panics
    /// Where there is no such repository.
    pub fn make_private(&mut self, full_name: &str, callers: &[&str]) {
        let names = callers.iter().map(|name| (*name).to_owned()).collect();
        self.named_mut(full_name)
            .expect("a repository that was added")
            .private_to = Some(names);
    }

    /// Calls the repository `old` `new`: requests for the old name are sent on.
    ///
    /// # Panics
    /// Where there is no `old`, or `new` is no name.
    pub fn rename(&mut self, old: &str, new: &str) {
        let renamed = self.named_mut(old).expect("a repository that was added");
        renamed.rename(new).expect("a repository is owner/name");
    }

    /// Installs the App for an account.
    pub fn install_app(&mut self, login: &str) {
        self.installed.insert(login.to_owned());
    }

    /// From now on every happening in reach of `target` is delivered to `url`, signed with `secret`; a blank one signs
    /// nothing. Gives the hook's id.
    ///
    /// # Panics
    /// Where the target is a repository that was not added.
    pub fn add_hook(&mut self, target: &HookTarget, url: &str, secret: &str) -> u64 {
        let target_id = match target {
            HookTarget::Repository(name) => self.named(name).expect("a repository that was added").id,
            HookTarget::Organization(login) => account_id(login),
            HookTarget::App => APP,
        };
        let id = 517_000_000 + self.numbers.next();
        self.hooks.add(id, target, target_id, url, secret);
        id
    }

    /// The REST interface is down like this until told otherwise.
    pub fn set_outage(&mut self, outage: Option<Outage>) {
        self.outage = outage;
    }

    /// Every delivery ends like this without reaching its endpoint, until told otherwise.
    pub fn set_hook_outage(&mut self, outcome: Option<Outcome>) {
        self.log.outage = outcome;
    }

    /// GitHub's own clock, which `Date` and the limits' resets show, is so far ahead of the test's.
    pub fn set_clock_offset(&mut self, ahead: SignedDuration) {
        self.clock_offset = ahead;
    }

    /// What `X-Poll-Interval` says; 60 at first.
    pub fn set_poll_interval_s(&mut self, seconds: u32) {
        self.poll_interval_s = seconds;
    }

    /// `caller` has so many requests left until `reset`.
    pub fn leave(&mut self, caller: &str, remaining: u32, reset: Timestamp) {
        self.callers.leave(caller, remaining, reset);
    }

    /// `caller` is held back by a secondary limit.
    pub fn hold_back(&mut self, caller: &str, limit: Secondary) {
        self.callers.hold_back(caller, limit);
    }

    /// From now on `token` is no credential.
    pub fn revoke(&mut self, token: &str) {
        self.callers.revoke(token);
    }

    /// Everything that has happened, in the order in which it was told to.
    #[must_use]
    pub fn happenings(&self) -> &[Happening] {
        &self.happenings
    }

    /// Every request so far, in order, but for those before the last hundred thousand.
    #[must_use]
    pub fn requests(&self) -> &VecDeque<Asked> {
        &self.requests
    }

    /// How many requests there were whose target contains `part`.
    #[must_use]
    pub fn asked(&self, part: &str) -> usize {
        self.requests.iter().filter(|asked| asked.target.contains(part)).count()
    }

    /// The deliveries that wait to be posted, each given once: say how they ended with [`Self::record`].
    pub fn take_pending(&mut self, now: Timestamp) -> Vec<Post> {
        self.log.take_pending(now)
    }

    /// A delivery ended like this, after so long. GitHub tries none again by itself.
    pub fn record(&mut self, delivery: u64, outcome: Outcome, took: SignedDuration, now: Timestamp) {
        self.log.record(delivery, outcome, took, now);
    }

    fn remember(&mut self, asked: Asked) {
        if self.requests.len() == REQUESTS_MAX {
            self.requests.pop_front();
        }
        self.requests.push_back(asked);
    }

    fn named(&self, full_name: &str) -> Option<&Repository> {
        self.repositories.iter().find(|known| known.is_called(full_name))
    }

    fn named_mut(&mut self, full_name: &str) -> Option<&mut Repository> {
        self.repositories.iter_mut().find(|known| known.is_called(full_name))
    }
}

/// Where ids come from.
#[derive(Debug)]
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    /// A commit that nobody else has.
    fn sha(&mut self) -> String {
        hex_of(&format!("commit {}", self.next())).chars().take(40).collect()
    }

    /// A GUID that nobody else has.
    fn guid(&mut self) -> String {
        let hex = hex_of(&format!("guid {}", self.next()));
        let part = |range| hex.get(range).unwrap_or_default();
        let (a, b, c, d, e) = (part(0..8), part(8..12), part(12..16), part(16..20), part(20..32));
        format!("{a}-{b}-{c}-{d}-{e}")
    }
}

fn hex_of(text: &str) -> String {
    Digest::of(text.as_bytes()).to_string()
}

/// An account's id: the same in every fake.
fn account_id(login: &str) -> u64 {
    let digest = Digest::of(login.to_lowercase().as_bytes());
    let mut id = [0; 8];
    id[4..].copy_from_slice(&digest.as_bytes()[..4]);
    u64::from_be_bytes(id)
}
