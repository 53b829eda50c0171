//! Which hooks an owner has, and which of them are ours.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::answer::{Detail, Entry, Stop, lenient};
use super::reading::Remembered;
use super::{HookLog, MissingStore, PAGE_ITEMS, Recovery};
use crate::api::Api;
use crate::delivery::HookId;
use crate::source::github::Round;

/// Most hooks of one owner that are looked through. GitHub allows twenty for each event.
const HOOK_PAGES_MAX: usize = 3;

/// The hooks of an owner.
#[derive(Default)]
pub(super) struct Hooks {
    /// The paths of the logs that are ours, by hook.
    pub(super) logs: BTreeMap<String, String>,
    /// Hooks that deliver elsewhere.
    pub(super) others: BTreeSet<String>,
    /// There are some, and the owner has no more than these, as far as one answer can tell.
    pub(super) is_whole: bool,
}

/// A hook, as its owner lists it.
#[derive(Deserialize)]
struct Hook {
    id: u64,
    #[serde(default, deserialize_with = "lenient")]
    config: Option<HookConfig>,
}

#[derive(Deserialize)]
struct HookConfig {
    #[serde(default, deserialize_with = "lenient")]
    url: Option<String>,
}

impl<A: Api, M: MissingStore> Recovery<A, M> {
    /// The hooks that are ours, and those that are not.
    pub(super) async fn hooks(&self, round: &mut Round<'_, A>, memory: &mut Remembered) -> Result<Hooks, Stop> {
        let owner = match &self.log {
            HookLog::Repository(repository) => format!("/repos/{repository}"),
            HookLog::Organization(name) => format!("/orgs/{name}"),
            HookLog::App => {
                let path = "/app/hook/deliveries".to_owned();
                let hook = self.app_hook(round, memory, &path).await?;
                return Ok(Hooks {
                    logs: hook.map(|hook| (hook, path)).into_iter().collect(),
                    ..Hooks::default()
                });
            }
        };
        let mut found = Hooks::default();
        let mut malformed = 0_u64;
        let mut next = Some(format!("{owner}/hooks?per_page={PAGE_ITEMS}"));
        for _ in 0..HOOK_PAGES_MAX {
            let Some(url) = next.take() else { break };
            let asked = round.get(&url).await;
            let answer = self.fine(asked)?;
            let hooks: Vec<Box<RawValue>> = self.shape(&answer.0)?;
            for raw in hooks {
                let Ok(hook) = serde_json::from_str::<Hook>(raw.get()) else {
                    malformed = malformed.saturating_add(1);
                    continue;
                };
                let url = hook.config.and_then(|config| config.url).unwrap_or_default();
                let id = hook.id.to_string();
                if self.is_ours(&url) {
                    found.logs.insert(id, format!("{owner}/hooks/{}/deliveries", hook.id));
                } else {
                    found.others.insert(id);
                }
            }
            next = answer.1;
        }
        round.counts.malformed = round.counts.malformed.saturating_add(malformed);
        let is_any = !found.logs.is_empty() || !found.others.is_empty();
        found.is_whole = is_any && malformed == 0 && next.is_none();
        Ok(found)
    }

    fn is_ours(&self, url: &str) -> bool {
        let url = url.split(['?', '#']).next().unwrap_or_default();
        let plain = |address: &str| address.trim_end_matches('/').to_lowercase();
        plain(url).ends_with(&plain(&self.config.address))
    }

    /// The id of the App's hook: learnt once, from the headers of one delivery.
    async fn app_hook(
        &self,
        round: &mut Round<'_, A>,
        memory: &mut Remembered,
        path: &str,
    ) -> Result<Option<String>, Stop> {
        if memory.app_hook.is_some() {
            return Ok(memory.app_hook.clone());
        }
        let asked = round.get(&format!("{path}?per_page=1")).await;
        let entries: Vec<Entry> = self.shape(&self.fine(asked)?.0)?;
        let Some(entry) = entries.first() else { return Ok(None) };
        let asked = round.get(&format!("{path}/{}", entry.id)).await;
        let detail: Detail = self.shape(&self.fine(asked)?.0)?;
        let header = detail.request.headers.into_iter();
        let mut ids = header.filter(|(name, _)| name.eq_ignore_ascii_case("x-github-hook-id"));
        let id = ids.next().map(|(_, value)| match value.as_str() {
            Some(text) => text.to_owned(),
            None => value.to_string(),
        });
        let id = id.filter(|id| HookId::parse(Some(id)).is_some());
        // Without it nothing can be found in the ledger, and that is no empty log.
        let id = id.ok_or_else(|| self.misconfigured("no_hook_id"))?;
        memory.app_hook = Some(id);
        Ok(memory.app_hook.clone())
    }
}
