//! What is sent, from a seed, and what must come of it.

use std::sync::Arc;

use forebay::trial::Error;
use forebay_core::delivery::{DeliveryKey, Guid, HookId};
use jiff::Timestamp;

use crate::chance::Chance;
use crate::template::WORKSPACE;

/// Parameters of the stack that the plan counts on.
///
/// A lease and a back-off as short as the template allows, so that what a killed owner held is due again within half a
/// minute. A ceiling of failures that no event reaches: here, every failure is a kill of ours.
pub(super) const PARAMETERS: &[(&str, &str)] = &[
    ("Routes", "acme/app=builder"),
    ("LeaseSeconds", "21"),
    ("SkewSeconds", "0"),
    ("RetrySecondsMin", "1"),
    ("FailuresMax", "100"),
];
/// The hook that all deliveries come from.
pub(super) const HOOK: &str = "517203941";
/// Of a hundred planned posts, so many repeat an earlier delivery under its GUID.
const REPEATS_PERCENT: usize = 5;
/// Of a hundred comments, so many are so long that their bodies are kept in chunks.
const LONG_PERCENT: usize = 4;
/// The text of a comment may have so many characters at GitHub.
const COMMENT_CHARS_MAX: usize = 65_536;
/// More text than one chunk of the ledger holds, however it is compressed. No comment is that long, and no chunked body is
/// too long for the webhook.
const LONGEST_CHARS: usize = 900_000;
/// Comments are on so many pull requests, so that each has several and their order is kept.
const PULLS: usize = 40;
/// When the recorded release was published.
const PUBLISHED_AT: &str = "2026-11-17T09:30:00Z";

/// One delivery, and what must come of it.
#[derive(Debug)]
pub(super) struct Delivery {
    /// `X-GitHub-Event`.
    pub(super) event_name: &'static str,
    /// Under what it is kept.
    pub(super) key: DeliveryKey,
    /// The exact bytes.
    pub(super) body: Arc<[u8]>,
    /// What it means; `None` where it means nothing.
    pub(super) event: Option<Wanted>,
    /// The body is so long that the ledger keeps it in chunks.
    pub(super) is_long: bool,
}

/// An event that inboxes must get.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Its id.
    pub(super) id: String,
    /// The inboxes that want it.
    pub(super) inboxes: &'static [&'static str],
}

/// Everything that is sent.
#[derive(Debug)]
pub(super) struct Plan {
    /// The deliveries, each under a GUID of its own.
    pub(super) deliveries: Vec<Delivery>,
    /// What is posted, in order: positions among the deliveries. Some come again.
    pub(super) posts: Vec<usize>,
}

/// Recorded bodies, with what in them is changed.
struct Recordings {
    comment: String,
    merged: String,
    release: String,
    run: String,
    check: String,
    ping: String,
}

impl Recordings {
    fn read() -> Result<Self, Error> {
        let read = |name: &str| {
            let path = format!("{WORKSPACE}/events/{name}.json");
            std::fs::read_to_string(&path)
                .map_err(|error| Error::because(format!("read {path}"), "restore the file", error))
        };
        Ok(Self {
            comment: read("pull_comment")?,
            merged: read("pull_request_merged")?,
            release: read("release_published")?,
            run: read("workflow_run_failed")?,
            check: read("check_run_failed")?,
            ping: read("ping")?,
        })
    }
}

/// `recorded` with each first text replaced by its second. Each must be there, or the plan would not say what is sent.
fn changed(recorded: &str, changes: &[(&str, String)]) -> Result<String, Error> {
    let mut text = recorded.to_owned();
    for (from, to) in changes {
        if !text.contains(from) {
            let remedy = "compare tests/src/soak/plan.rs with the recordings in events/";
            return Err(Error::new(format!("find {from} in a recording"), remedy));
        }
        text = text.replace(from, to);
    }
    Ok(text)
}

/// `chars` characters that hardly compress.
fn noise(chance: &mut Chance, chars: usize) -> String {
    let mut text = String::with_capacity(chars + 16);
    while text.len() < chars {
        text.push_str(&format!("{:016x}", chance.next()));
    }
    text.truncate(chars);
    text
}

impl Plan {
    /// A plan of `posts` posts.
    pub(super) fn new(posts: usize, chance: &mut Chance) -> Result<Self, Error> {
        let recordings = Recordings::read()?;
        let mut plan = Self {
            deliveries: Vec::new(),
            posts: Vec::with_capacity(posts),
        };
        while plan.posts.len() < posts {
            let known = plan.deliveries.len();
            let position = if known > 0 && chance.percent(REPEATS_PERCENT) {
                chance.below(known)
            } else {
                plan.deliveries.push(delivery(known, &recordings, chance)?);
                known
            };
            plan.posts.push(position);
        }
        Ok(plan)
    }

    /// How many messages inboxes must get.
    pub(super) fn messages(&self) -> usize {
        let events = self.deliveries.iter().filter_map(|delivery| delivery.event.as_ref());
        events.map(|event| event.inboxes.len()).sum()
    }
}

/// Delivery `number`, of a kind that chance chooses.
fn delivery(number: usize, recordings: &Recordings, chance: &mut Chance) -> Result<Delivery, Error> {
    let guid = format!("50a10000-0000-4000-8000-{number:012x}");
    let id = 7_000_000_000 + number;
    let pull = |number: usize| ("\"number\":42", format!("\"number\":{number}"));
    let branch = ("fix/overflow", format!("soak/{}", number % PULLS));
    let elsewhere = ("acme/app", "acme/site".to_owned());
    let mut is_long = false;
    let (event_name, text, event): (_, _, Option<(String, &'static [&'static str])>) = match chance.below(100) {
        0..48 => {
            let mut changes = vec![("3550000421", id.to_string()), pull(chance.below(PULLS) + 1)];
            is_long = chance.percent(LONG_PERCENT);
            if is_long {
                let chars = [COMMENT_CHARS_MAX, LONGEST_CHARS][chance.below(2)];
                changes.push(("Could the invoice total", noise(chance, chars)));
            }
            let text = changed(&recordings.comment, &changes)?;
            (
                "issue_comment",
                text,
                Some((format!("github/comment/{id}"), &["builder"])),
            )
        }
        48..60 => {
            let changes = [("2210004201", id.to_string()), pull(number + 1), branch];
            let text = changed(&recordings.merged, &changes)?;
            let inboxes: &[_] = &["builder", "dispatcher"];
            (
                "pull_request",
                text,
                Some((format!("github/pull_request/{id}/merged"), inboxes)),
            )
        }
        60..72 => {
            let changes = [("2210004201", id.to_string()), pull(number + 1), branch, elsewhere];
            let text = changed(&recordings.merged, &changes)?;
            (
                "pull_request",
                text,
                Some((format!("github/pull_request/{id}/merged"), &["dispatcher"])),
            )
        }
        72..80 => {
            let published = PUBLISHED_AT.parse::<Timestamp>().map_or(0, Timestamp::as_second);
            let text = changed(&recordings.release, &[("260000140", id.to_string()), elsewhere])?;
            (
                "release",
                text,
                Some((format!("github/release/{id}/{published}"), &["notice"])),
            )
        }
        80..88 => {
            let text = changed(&recordings.run, &[("19440000421", id.to_string()), branch])?;
            (
                "workflow_run",
                text,
                Some((format!("github/run/{id}/attempt/1"), &["builder"])),
            )
        }
        88..94 => {
            let text = changed(&recordings.check, &[("48120000421", id.to_string()), branch])?;
            (
                "check_run",
                text,
                Some((format!("github/check_run/{id}/{guid}"), &["builder"])),
            )
        }
        _ => ("ping", recordings.ping.clone(), None),
    };
    let bug = || Error::new("plan a delivery: its hook or GUID is none", "report this as a bug");
    Ok(Delivery {
        event_name,
        key: DeliveryKey {
            hook: HookId::parse(Some(HOOK)).ok_or_else(bug)?,
            guid: Guid::parse(&guid).ok_or_else(bug)?,
        },
        body: text.into_bytes().into(),
        event: event.map(|(id, inboxes)| Wanted { id, inboxes }),
        is_long,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use forebay_core::delivery::EventName;
    use forebay_core::github::{Envelope, Meaning, read};

    use super::*;

    /// What the core reads in `delivery`.
    fn meant(delivery: &Delivery) -> Option<String> {
        let envelope = Envelope {
            host: None,
            key: Some(&delivery.key),
            event_name: &EventName::parse(delivery.event_name).unwrap(),
            content_type: Some("application/json"),
        };
        match read(&envelope, &delivery.body).meaning {
            Meaning::Event(event) => Some(event.id.to_string()),
            Meaning::Ignored(_) => None,
            Meaning::Malformed(why) => panic!("{}: {why}", delivery.event_name),
        }
    }

    #[test]
    fn every_planned_delivery_means_what_the_plan_says() {
        let plan = Plan::new(400, &mut Chance::new(1)).unwrap();
        for delivery in &plan.deliveries {
            let wanted = delivery.event.as_ref().map(|event| event.id.clone());
            assert_eq!(meant(delivery), wanted, "{}", delivery.event_name);
        }
        let ids: BTreeSet<_> = plan.deliveries.iter().filter_map(meant).collect();
        let meaningful = plan.deliveries.iter().filter(|delivery| delivery.event.is_some());
        assert_eq!(ids.len(), meaningful.count());
    }

    #[test]
    fn a_plan_has_repeats_ignored_ones_long_ones_and_such_with_two_destinations() {
        let plan = Plan::new(400, &mut Chance::new(1)).unwrap();
        assert_eq!(plan.posts.len(), 400);
        assert!((370..400).contains(&plan.deliveries.len()), "{}", plan.deliveries.len());
        assert!(plan.deliveries.iter().any(|delivery| delivery.event.is_none()));
        assert!(
            plan.deliveries
                .iter()
                .any(|delivery| delivery.body.len() > LONGEST_CHARS)
        );
        let wanted = plan.deliveries.iter().filter_map(|delivery| delivery.event.as_ref());
        assert!(wanted.into_iter().any(|event| event.inboxes.len() == 2));
    }

    #[test]
    fn the_same_seed_plans_the_same() {
        let plan = || {
            let plan = Plan::new(100, &mut Chance::new(7)).unwrap();
            let bodies: Vec<_> = plan.deliveries.into_iter().map(|delivery| delivery.body).collect();
            (bodies, plan.posts)
        };
        assert_eq!(plan(), plan());
    }
}
