//! Routes: who should get an event.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::event::{Event, Kind, Repository, Subject};
use crate::ledger::Reason;
use crate::ports::POINTERS_MAX;
use crate::session::{AgentName, OwnerKey, Pointers};
use crate::signature::Pattern;

/// The inbox that hears of merges into [`MAIN`].
pub const DISPATCHER: &str = "dispatcher";
/// The inbox that hears of releases.
pub const NOTICE: &str = "notice";
/// The base branch whose merges the dispatcher hears of.
pub const MAIN: &str = "main";
/// Most pull requests of an event whose owners are looked for: with its branch as many pointers as are read at once.
const PULLS_MAX: usize = POINTERS_MAX - 1;

/// A problem with the configured routes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// Not of the form `owner/name=agent` or `owner/name#12=agent`.
    #[error("route `{0}` is not of the form owner/name=agent or owner/name#12=agent")]
    Form(String),
    /// Two routes for one subject.
    #[error("two routes for {0}")]
    Twice(String),
    /// An agent without an inbox.
    #[error("route `{0}` names an agent that has no inbox")]
    NoInbox(String),
}

/// Static routes: fixed owners of repositories, or of single issues and pull requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    by_subject: BTreeMap<(String, Option<u64>), AgentName>,
}

impl Routes {
    /// Reads `owner/name#12=agent, owner/name=agent`. Blank text is no route.
    ///
    /// # Errors
    /// Every problem of the text, so that all can be mended at once.
    pub fn parse(text: &str, inboxes: &BTreeSet<String>) -> Result<Self, Vec<RouteError>> {
        let mut routes = Self::default();
        let mut problems = Vec::new();
        for route in text.split(',').map(str::trim).filter(|route| !route.is_empty()) {
            let Some((key, agent)) = parse_route(route) else {
                problems.push(RouteError::Form(route.to_owned()));
                continue;
            };
            if !inboxes.contains(agent.as_str()) {
                problems.push(RouteError::NoInbox(route.to_owned()));
            }
            if routes.by_subject.insert(key, agent).is_some() {
                let (subject, _) = route.split_once('=').unwrap_or((route, ""));
                problems.push(RouteError::Twice(subject.trim().to_owned()));
            }
        }
        if problems.is_empty() { Ok(routes) } else { Err(problems) }
    }

    /// The repositories that routes name, in key form: what is worth polling.
    pub fn repositories(&self) -> impl Iterator<Item = &str> {
        let names: BTreeSet<&str> = self
            .by_subject
            .keys()
            .map(|(repository, _)| repository.as_str())
            .collect();
        names.into_iter()
    }

    /// Agents for an event: those of its own numbers, else the repository's.
    fn agents(&self, event: &Event) -> BTreeSet<&AgentName> {
        let Some(repository) = event.subject.repository().map(Repository::key) else {
            return BTreeSet::new();
        };
        let numbers = event
            .subject
            .number()
            .into_iter()
            .chain(event.pull_requests.iter().copied());
        let own: BTreeSet<_> = numbers
            .filter_map(|number| self.by_subject.get(&(repository.clone(), Some(number))))
            .collect();
        if own.is_empty() {
            self.by_subject.get(&(repository, None)).into_iter().collect()
        } else {
            own
        }
    }
}

fn parse_route(route: &str) -> Option<((String, Option<u64>), AgentName)> {
    let (subject, agent) = route.split_once('=')?;
    let (repository, number) = match subject.trim().split_once('#') {
        Some((repository, number)) => (repository, Some(number.parse::<u64>().ok()?)),
        None => (subject.trim(), None),
    };
    Some((
        (Repository::new(repository)?.key(), number),
        AgentName::parse(agent.trim())?,
    ))
}

/// Actors whose comments and reviews wake nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredActors(Vec<Pattern>);

impl IgnoredActors {
    /// Reads a comma-separated list of logins; `*` stands for any run of characters.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Self(names.map(Pattern::new).collect())
    }

    fn silence(&self, event: &Event) -> bool {
        let written = match event.kind {
            Kind::Comment | Kind::Review | Kind::ReviewComment => true,
            Kind::PullRequestOpened
            | Kind::PullRequestMerged
            | Kind::PullRequestClosed
            | Kind::CheckRunCompleted
            | Kind::CheckSuiteCompleted
            | Kind::CheckFailure
            | Kind::Push
            | Kind::IssueOpened
            | Kind::IssueClosed
            | Kind::ReleasePublished
            | Kind::QueueMessage => false,
        };
        let by_ignored = |actor: &str| self.0.iter().any(|pattern| pattern.matches(actor));
        written && event.actor.as_deref().is_some_and(by_ignored)
    }
}

/// Who could want an event, by its kind and the configuration alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nobody, whoever opens a session: it is settled in the write that admits it.
    ByNobody(Reason),
    /// Somebody, or perhaps a session's owner.
    By {
        /// Inboxes that get it in any case.
        fixed: BTreeSet<String>,
        /// What a session would have to own to get it as well.
        owner_keys: Vec<OwnerKey>,
    },
}

/// Which inbox gets what queues say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRoutes {
    by_queue: BTreeMap<String, String>,
    otherwise: String,
}

impl Default for QueueRoutes {
    /// Everything to the dispatcher.
    fn default() -> Self {
        Self {
            by_queue: BTreeMap::new(),
            otherwise: DISPATCHER.to_owned(),
        }
    }
}

impl QueueRoutes {
    /// Reads `queue=inbox, queue=inbox`, each queue by its name or its ARN, and the inbox of all other queues.
    ///
    /// # Errors
    /// Every problem of the two, so that all can be mended at once.
    pub fn parse(text: &str, otherwise: &str, inboxes: &BTreeSet<String>) -> Result<Self, Vec<QueueRouteError>> {
        let mut routes = Self {
            by_queue: BTreeMap::new(),
            otherwise: otherwise.to_owned(),
        };
        let mut problems = Vec::new();
        if !inboxes.contains(otherwise) {
            problems.push(QueueRouteError::NoInbox(otherwise.to_owned()));
        }
        for route in text.split(',').map(str::trim).filter(|route| !route.is_empty()) {
            let Some((queue, inbox)) = route.split_once('=').map(|(queue, inbox)| (queue.trim(), inbox.trim())) else {
                problems.push(QueueRouteError::Form(route.to_owned()));
                continue;
            };
            if queue.is_empty() {
                problems.push(QueueRouteError::Form(route.to_owned()));
            }
            if !inboxes.contains(inbox) {
                problems.push(QueueRouteError::NoInbox(inbox.to_owned()));
            }
            if routes.by_queue.insert(queue.to_owned(), inbox.to_owned()).is_some() {
                problems.push(QueueRouteError::Twice(queue.to_owned()));
            }
        }
        if problems.is_empty() { Ok(routes) } else { Err(problems) }
    }

    /// The inbox for what the queue with this ARN says: by the ARN, else by the name at its end, else the common one.
    #[must_use]
    pub fn inbox(&self, queue: &str) -> &str {
        let name = queue.rsplit(':').next().unwrap_or(queue);
        let route = self.by_queue.get(queue).or_else(|| self.by_queue.get(name));
        route.unwrap_or(&self.otherwise)
    }
}

/// A problem with the configured routes of queues.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueRouteError {
    /// Not of the form `queue=inbox`.
    #[error("route `{0}` is not of the form queue=inbox")]
    Form(String),
    /// Two routes for one queue.
    #[error("two routes for queue {0}")]
    Twice(String),
    /// No such inbox.
    #[error("there is no inbox `{0}`")]
    NoInbox(String),
}

/// The configured half of routing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// Static routes.
    pub routes: Routes,
    /// Inboxes of what queues say.
    pub queues: QueueRoutes,
    /// Actors whose comments and reviews wake nobody.
    pub ignored: IgnoredActors,
}

/// Where an event goes now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// To these inboxes, at least one.
    Send(BTreeSet<String>),
    /// Nowhere yet: a session for this key would get it.
    Park(OwnerKey),
    /// Nowhere.
    Nothing(Reason),
}

impl Routing {
    /// Who could want `event`.
    #[must_use]
    pub fn wanted(&self, event: &Event) -> Wanted {
        if self.ignored.silence(event) {
            return Wanted::ByNobody(Reason::Silenced);
        }
        let mut fixed = BTreeSet::new();
        if wakes_static_routes(event) {
            fixed.extend(
                self.routes
                    .agents(event)
                    .into_iter()
                    .map(|agent| agent.as_str().to_owned()),
            );
        }
        if event.kind == Kind::PullRequestMerged && event.base.as_deref() == Some(MAIN) {
            fixed.insert(DISPATCHER.to_owned());
        }
        if event.kind == Kind::ReleasePublished {
            fixed.insert(NOTICE.to_owned());
        }
        if let Subject::Group { queue, .. } = &event.subject {
            fixed.insert(self.queues.inbox(queue).to_owned());
        }
        let owner_keys = owner_keys(event);
        if fixed.is_empty() && owner_keys.is_empty() {
            return Wanted::ByNobody(Reason::Unrouted);
        }
        Wanted::By { fixed, owner_keys }
    }

    /// Where `event` goes at `now`, given the owners that `pointers` show.
    #[must_use]
    pub fn decide(&self, event: &Event, pointers: &Pointers, now: Timestamp) -> Decision {
        let (mut inboxes, owner_keys) = match self.wanted(event) {
            Wanted::ByNobody(reason) => return Decision::Nothing(reason),
            Wanted::By { fixed, owner_keys } => (fixed, owner_keys),
        };
        let owners = owner_keys.iter().filter_map(|key| pointers.live_owner(key, now));
        inboxes.extend(owners.map(|owner| owner.agent.as_str().to_owned()));
        if !inboxes.is_empty() {
            return Decision::Send(inboxes);
        }
        // A pull request rather than its branch: a session for the branch knows the pull requests, not the other way round.
        match owner_keys.into_iter().next_back() {
            Some(key) => Decision::Park(key),
            None => Decision::Nothing(Reason::Unrouted),
        }
    }
}

/// What a session would have to own to get `event`: its branch first, then its pull requests, the subject last. At most
/// [`POINTERS_MAX`] keys.
#[must_use]
pub fn owner_keys(event: &Event) -> Vec<OwnerKey> {
    let on_pull_request = matches!(event.subject, Subject::PullRequest { .. });
    let is_work = match event.kind {
        Kind::Comment | Kind::Review | Kind::ReviewComment => on_pull_request,
        Kind::CheckRunCompleted | Kind::CheckSuiteCompleted | Kind::CheckFailure => event.is_failed_check(),
        Kind::PullRequestOpened
        | Kind::PullRequestMerged
        | Kind::PullRequestClosed
        | Kind::Push
        | Kind::IssueOpened
        | Kind::IssueClosed
        | Kind::ReleasePublished
        | Kind::QueueMessage => false,
    };
    let Some(repository) = event.subject.repository().filter(|_| is_work) else {
        return Vec::new();
    };
    let branch = event
        .branch
        .as_deref()
        .map(|branch| OwnerKey::branch(repository, branch));
    // The subject comes last: it is what an event waits for.
    let pulls = event
        .pull_requests
        .iter()
        .take(PULLS_MAX)
        .rev()
        .map(|number| OwnerKey::pull(repository, *number));
    branch.into_iter().chain(pulls).collect()
}

/// Whether a static route hears of `event`: of everything that may ask for somebody, and not of pushes and of checks that
/// went well, which an agent's own work brings forth by the dozen.
fn wakes_static_routes(event: &Event) -> bool {
    match event.kind {
        Kind::Push | Kind::QueueMessage => false,
        Kind::CheckRunCompleted | Kind::CheckSuiteCompleted | Kind::CheckFailure => event.is_failed_check(),
        Kind::PullRequestOpened
        | Kind::PullRequestMerged
        | Kind::PullRequestClosed
        | Kind::Comment
        | Kind::Review
        | Kind::ReviewComment
        | Kind::IssueOpened
        | Kind::IssueClosed
        | Kind::ReleasePublished => true,
    }
}

#[cfg(test)]
mod tests;
