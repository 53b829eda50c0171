//! The repositories of an owner all of whose are polled.

use std::collections::BTreeSet;

use forebay_core::api::{Answer, Api, Credential, Limits, Request, Right, Standing};
use forebay_core::event::Repository;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Most pages of an owner's repositories: five thousand repositories.
const PAGES_MAX: usize = 50;
const PAGE_ITEMS: usize = 100;

/// Why an owner's repositories are not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("list repositories of {owner}: {word}; those that were known before are polled")]
pub(crate) struct Unlisted {
    pub(crate) owner: String,
    pub(crate) word: &'static str,
    /// How long the credential rests, where a limit was the reason.
    pub(crate) rest: Option<SignedDuration>,
}

/// The repositories of an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) repositories: BTreeSet<Repository>,
    /// How long the credential rests although it was answered well.
    pub(crate) rest: Option<SignedDuration>,
}

/// Each is read alone: one that is odd must not hide all others.
#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Named(Named),
    Odd(IgnoredAny),
}

#[derive(Deserialize)]
struct Named {
    full_name: String,
    /// Whatever is not plainly archived is polled: that costs little, and the other way round events are missed.
    #[serde(default)]
    archived: Value,
}

#[derive(Deserialize)]
struct OfInstallation {
    repositories: Vec<Entry>,
}

/// What a list says, as far as it was read.
#[derive(Default)]
struct Entries {
    live: BTreeSet<Repository>,
    archived: usize,
    odd: usize,
}

impl Entries {
    fn take(&mut self, page: Vec<Entry>) {
        for entry in page {
            let named = match entry {
                Entry::Named(named) => Repository::new(&named.full_name).map(|name| (name, named.archived == true)),
                Entry::Odd(IgnoredAny) => None,
            };
            match named {
                Some((_, true)) => self.archived = self.archived.saturating_add(1),
                Some((name, false)) => drop(self.live.insert(name)),
                None => self.odd = self.odd.saturating_add(1),
            }
        }
    }

    /// The repositories. `None` where all of it is odd: it is the form that has changed, and says nothing of what there is.
    fn live(self, owner: &str) -> Option<BTreeSet<Repository>> {
        let Self { live, archived, odd } = self;
        if odd > 0 && live.is_empty() && archived == 0 {
            return None;
        }
        if odd > 0 {
            tracing::warn!("list repositories of {owner}: {odd} entries cannot be read, and are not polled");
        }
        Some(live)
    }
}

/// All repositories of `owner` that `credential` may read. Archived ones have no news. `strikes` limits that named no wait came before in a row.
pub(crate) async fn repositories<A: Api>(
    api: &A,
    owner: &str,
    credential: &Credential,
    limits: &Limits,
    now: Timestamp,
    strikes: u32,
) -> Result<Listed, Unlisted> {
    let unlisted = |(word, rest)| Unlisted {
        owner: owner.to_owned(),
        word,
        rest,
    };
    let is_installation = matches!(credential.right, Right::Installation(_));
    let mut url = if is_installation {
        format!("/installation/repositories?per_page={PAGE_ITEMS}")
    } else {
        format!("/orgs/{owner}/repos?per_page={PAGE_ITEMS}")
    };
    let (mut rest, mut entries) = (None, Entries::default());
    let mut is_whole = false;
    for page in 0..PAGES_MAX {
        let mut asked = ask(api, &url, credential, limits, now, strikes).await;
        if page == 0 && !is_installation && asked == Err(("not_found", None)) {
            // An account that is no organisation.
            url = format!("/users/{owner}/repos?per_page={PAGE_ITEMS}");
            asked = ask(api, &url, credential, limits, now, strikes).await;
        }
        let answer = asked.map_err(unlisted)?;
        rest = rest.max(limits.rest(&answer, &credential.right, now));
        let listed: Option<Vec<Entry>> = if is_installation {
            serde_json::from_slice::<OfInstallation>(&answer.body)
                .ok()
                .map(|page| page.repositories)
        } else {
            serde_json::from_slice(&answer.body).ok()
        };
        entries.take(listed.ok_or_else(|| unlisted(("shape", None)))?);
        match answer.next {
            // There is no request left for what is behind this.
            Some(_) if answer.remaining == Some(0) => return Err(unlisted(("throttled", rest))),
            Some(next) => url = next,
            None => {
                is_whole = true;
                break;
            }
        }
    }
    if !is_whole {
        tracing::warn!(
            "list repositories of {owner}: there are more than {PAGES_MAX} pages of {PAGE_ITEMS}; the rest is not polled"
        );
    }
    let repositories = entries.live(owner).ok_or_else(|| unlisted(("shape", None)))?;
    Ok(Listed { repositories, rest })
}

async fn ask<A: Api>(
    api: &A,
    url: &str,
    credential: &Credential,
    limits: &Limits,
    now: Timestamp,
    strikes: u32,
) -> Result<Answer, (&'static str, Option<SignedDuration>)> {
    let answer = api.ask(Request::get(url, credential)).await;
    let answer = answer.map_err(|error| (error.class.as_str(), None))?;
    let rest = limits.rest(&answer, &credential.right, now);
    match limits.judge(&answer, now, strikes) {
        Standing::Fine => Ok(answer),
        Standing::Limited(span) => Err(("throttled", Some(span))),
        Standing::Misconfigured(word) => Err((word, rest)),
        Standing::NotModified | Standing::Ended | Standing::Failed => Err(("server_fault", rest)),
    }
}
