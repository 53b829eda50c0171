//! What is polled: the sources that the configuration asks for, under the rights that there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_aws::config::{Polled, PollerConfig};
use forebay_core::api::{Api, GithubAccess};
use forebay_core::event::Repository;
use forebay_core::ingest::Sources;
use forebay_core::source::Source;
use forebay_core::source::github::{Feed, FeedKind, HookLog, MissingStore, Recovery};

/// The sources of one run.
pub(crate) struct Plan {
    pub(crate) sources: Sources,
    /// What cannot be polled for want of a right, one sentence each.
    pub(crate) problems: Vec<&'static str>,
}

/// Whose repositories are all polled.
pub(crate) fn owners(config: &PollerConfig) -> impl Iterator<Item = &str> {
    config.feeds.iter().filter_map(|polled| match polled {
        Polled::AllOf(owner) => Some(owner.as_str()),
        Polled::One(_) => None,
    })
}

/// Plans a run. `found` are the repositories of owners all of whose are polled.
pub(crate) fn plan<A, L>(
    config: &PollerConfig,
    access: &GithubAccess,
    found: &BTreeSet<Repository>,
    api: &Arc<A>,
    ledger: &L,
) -> Plan
where
    A: Api + 'static,
    L: MissingStore + Clone + 'static,
{
    let host = config.api.host();
    let mut sources = Sources::new();
    let mut problems = Vec::new();
    let feed_config = Arc::new(config.feed.clone());
    let named = config.feeds.iter().filter_map(|polled| match polled {
        Polled::One(repository) => Some(repository),
        Polled::AllOf(_) => None,
    });
    for repository in named.chain(found) {
        let credential = access.for_owner(&host, owner_of(repository));
        for kind in [FeedKind::Events, FeedKind::Runs] {
            let feed = Feed::new(
                Arc::clone(api),
                kind,
                repository.clone(),
                credential.clone(),
                Arc::clone(&feed_config),
            );
            sources.insert(feed.id().clone(), Box::new(feed));
        }
    }
    let recovery_config = Arc::new(config.recovery.clone());
    for log in &config.logs {
        let credential = match log {
            HookLog::Repository(repository) => Some(access.for_owner(&host, owner_of(repository))),
            HookLog::Organization(name) => Some(access.for_owner(&host, name)),
            HookLog::App => access.for_app(&host),
        };
        let Some(credential) = credential else {
            problems.push("RECOVER_APP is true and the secret holds no App; put github.app into it");
            continue;
        };
        let recovery = Recovery::new(
            Arc::clone(api),
            ledger.clone(),
            log.clone(),
            credential,
            Arc::clone(&recovery_config),
        );
        sources.insert(recovery.id().clone(), Box::new(recovery));
    }
    Plan { sources, problems }
}

fn owner_of(repository: &Repository) -> &str {
    repository.as_str().split_once('/').map_or("", |(owner, _)| owner)
}
