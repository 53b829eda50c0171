//! The repositories of an owner all of whose are polled.

use std::collections::BTreeSet;

use forebay_core::api::{Answer, Api, Credential, Limits, Request, Right, Standing};
use forebay_core::event::Repository;
use jiff::Timestamp;
use serde::Deserialize;

/// Most pages of an owner's repositories: five thousand repositories.
const PAGES_MAX: usize = 50;
const PAGE_ITEMS: usize = 100;

/// Why an owner's repositories are not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("list repositories of {owner}: {word}; those that were known before are polled")]
pub(crate) struct Unlisted {
    pub(crate) owner: String,
    pub(crate) word: &'static str,
}

#[derive(Deserialize)]
struct Named {
    full_name: String,
    #[serde(default)]
    archived: bool,
}

#[derive(Deserialize)]
struct OfInstallation {
    repositories: Vec<Named>,
}

/// All repositories of `owner` that `credential` may read. Archived ones have no news.
pub(crate) async fn repositories<A: Api>(
    api: &A,
    owner: &str,
    credential: &Credential,
    limits: &Limits,
    now: Timestamp,
) -> Result<BTreeSet<Repository>, Unlisted> {
    let unlisted = |word| Unlisted {
        owner: owner.to_owned(),
        word,
    };
    let is_installation = matches!(credential.right, Right::Installation(_));
    let mut url = if is_installation {
        format!("/installation/repositories?per_page={PAGE_ITEMS}")
    } else {
        format!("/orgs/{owner}/repos?per_page={PAGE_ITEMS}")
    };
    let mut found = BTreeSet::new();
    for page in 0..PAGES_MAX {
        let mut asked = ask(api, &url, credential, limits, now).await;
        if page == 0 && !is_installation && asked == Err("not_found") {
            // An account that is no organisation.
            url = format!("/users/{owner}/repos?per_page={PAGE_ITEMS}");
            asked = ask(api, &url, credential, limits, now).await;
        }
        let answer = asked.map_err(unlisted)?;
        let named: Option<Vec<Named>> = if is_installation {
            serde_json::from_slice::<OfInstallation>(&answer.body)
                .ok()
                .map(|page| page.repositories)
        } else {
            serde_json::from_slice(&answer.body).ok()
        };
        let named = named.ok_or_else(|| unlisted("shape"))?;
        let live = named.into_iter().filter(|named| !named.archived);
        found.extend(live.filter_map(|named| Repository::new(&named.full_name)));
        match answer.next {
            Some(next) => url = next,
            None => return Ok(found),
        }
    }
    Ok(found)
}

async fn ask<A: Api>(
    api: &A,
    url: &str,
    credential: &Credential,
    limits: &Limits,
    now: Timestamp,
) -> Result<Answer, &'static str> {
    let answer = api.ask(Request::get(url, credential)).await;
    let answer = answer.map_err(|error| error.class.as_str())?;
    match limits.judge(&answer, now, 0) {
        Standing::Fine => Ok(answer),
        Standing::Limited(_) => Err("throttled"),
        Standing::Misconfigured(word) => Err(word),
        Standing::NotModified | Standing::Ended | Standing::Failed => Err("server_fault"),
    }
}
