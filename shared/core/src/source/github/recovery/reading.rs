//! Reading the logs: from the newest entry back to where they have been read before, for what the ledger lacks.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::answer::{Entry, Stop};
use super::{Missing, MissingStore, PAGE_ITEMS, Recovery};
use crate::api::Api;
use crate::delivery::{DeliveryKey, Guid, HookId};
use crate::github::time::instant;
use crate::source::PollError;
use crate::source::github::{Asked, Round};

/// A delivery that is younger than this may still be on its way.
const GRACE: SignedDuration = SignedDuration::from_secs(120);
/// The same for one that GitHub held back: what it calls delivered may be later still.
const THROTTLED_GRACE: SignedDuration = SignedDuration::from_secs(600);
/// A pass goes this much further back than the one before it went forward.
const SLACK: SignedDuration = SignedDuration::from_secs(900);
const _: () = assert!(THROTTLED_GRACE.as_secs() + GRACE.as_secs() < SLACK.as_secs());
/// So often in a row a place in a log may give no answer. Then the pass begins anew: what is newer than the place is found, whatever
/// is wrong with it.
const PLACE_FAILURES_MAX: u32 = 3;
/// The status of an answer that called a delivery too large. It is too large the next time too.
const TOO_LARGE: u16 = 413;

/// How far logs have been read.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Remembered {
    /// By hook.
    hooks: BTreeMap<String, Read>,
    /// The App's hook, which its log does not name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) app_hook: Option<String>,
}

impl Remembered {
    /// Whether any log has a pass that is not over.
    pub(super) fn is_reading(&self) -> bool {
        self.hooks.values().any(|read| read.pass.is_some())
    }
}

/// How far one log has been read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Read {
    /// Everything that was delivered before this second has been judged.
    #[serde(default)]
    through: i64,
    /// A pass that is not over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pass: Option<Pass>,
}

/// What came of reading logs.
#[derive(Default)]
pub(super) struct ReadLogs {
    /// Why the first of those that could not be read was not.
    pub(super) failed: Option<PollError>,
    /// Others had no such trouble.
    pub(super) is_any_read: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Pass {
    /// Where `through` goes when it is over.
    top: i64,
    /// Its next page: path and query, for the API may be reached under another name the next time. Older versions kept the whole URL.
    next: String,
    /// How often in a row that gave no answer.
    #[serde(default, skip_serializing_if = "is_zero")]
    failures: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out a reference")]
fn is_zero(failures: &u32) -> bool {
    *failures == 0
}

impl Pass {
    /// What is kept of a pass whose next page was not had, if it is worth being gone on with.
    fn after(self, stop: &Stop) -> Option<Self> {
        match stop {
            Stop::Over(_) | Stop::Failed(PollError::Unkept { .. }) => Some(self),
            // It will be no better the next time, and may not be there for us at all.
            Stop::Failed(PollError::Misconfigured { .. }) => None,
            Stop::Failed(PollError::Unanswered { .. }) => {
                let failures = self.failures.saturating_add(1);
                (failures < PLACE_FAILURES_MAX).then_some(Self { failures, ..self })
            }
        }
    }
}

impl<A: Api, M: MissingStore> Recovery<A, M> {
    /// Reads logs as far as the budgets go.
    pub(super) async fn read_logs(
        &self,
        round: &mut Round<'_, A>,
        memory: &mut Remembered,
        logs: &BTreeMap<String, String>,
    ) -> Result<ReadLogs, Stop> {
        memory.hooks.retain(|hook, _| logs.contains_key(hook));
        let mut pages = self.config.pages_max;
        // Half of the turn is for finding what is missing, and the rest for getting it: neither keeps the other from its end.
        let now = round.now();
        let half = round.turn.end.duration_since(now).checked_div(2).unwrap_or_default();
        let scan_end = now.saturating_add(half).unwrap_or(now);
        let mut read_logs = ReadLogs::default();
        // The log that has been read least far comes first: a busy one holds no other up.
        let mut in_order: Vec<(&String, &String)> = logs.iter().collect();
        in_order.sort_by_key(|(hook, _)| memory.hooks.get(*hook).map_or(0, |read| read.through));
        let behind = (0..in_order.len()).rev();
        for ((hook, path), behind) in in_order.into_iter().zip(behind) {
            let Some(id) = HookId::parse(Some(hook)) else { continue };
            // Nor does one whose pages go round in a circle, and which is never read far.
            let share = pages.div_ceil(behind.saturating_add(1));
            let mut left = share;
            let mut read = memory.hooks.remove(hook).unwrap_or_default();
            let scanned = self.scan(round, &id, path, &mut read, &mut left, scan_end).await;
            pages = pages.saturating_sub(share.saturating_sub(left));
            // Also where it stopped: how far it came is durable.
            memory.hooks.insert(hook.clone(), read);
            match scanned {
                Ok(()) => read_logs.is_any_read = true,
                Err(Stop::Over(None)) => {}
                // A log that cannot be read stops neither the others nor what is known to be missing.
                Err(Stop::Failed(error)) => {
                    read_logs.failed.get_or_insert(error);
                }
                Err(over @ Stop::Over(Some(_))) => return Err(over),
            }
        }
        Ok(read_logs)
    }

    /// Reads a log back to where it has been read before, or as far as the budget goes. `read` says how far that is.
    async fn scan(
        &self,
        round: &mut Round<'_, A>,
        hook: &HookId,
        path: &str,
        read: &mut Read,
        pages: &mut usize,
        scan_end: Timestamp,
    ) -> Result<(), Stop> {
        let now = round.now();
        let before = |span| now.saturating_sub(span).unwrap_or(Timestamp::MIN).as_second();
        let floor = read
            .through
            .saturating_sub(SLACK.as_secs())
            .max(before(self.config.retention));
        let first = format!("{path}?per_page={PAGE_ITEMS}");
        // What is stored of a pass that stops anywhere below is the page that it stopped at.
        let mut pass = read.pass.clone().unwrap_or_else(|| Pass {
            top: before(GRACE),
            next: first.clone(),
            failures: 0,
        });
        let mut is_resumed = pass.next != first;
        loop {
            read.pass = Some(pass.clone());
            if *pages == 0 || round.now() >= scan_end {
                return Ok(());
            }
            *pages = pages.saturating_sub(1);
            let asked = round.get(&pass.next).await;
            if let Asked::Fine(answer) = &asked
                && let Some(date) = answer.date
                && pass.next == first
            {
                // Where our clock is ahead of GitHub's, what it makes until then is not judged yet.
                let top = date.saturating_sub(GRACE).unwrap_or(Timestamp::MIN);
                pass.top = pass.top.min(top.as_second());
            }
            let is_unknown = matches!(asked, Asked::Ended | Asked::Misconfigured("not_found"));
            let page = self.fine(asked).and_then(|(body, next)| Ok((self.shape(&body)?, next)));
            let (entries, next): (Vec<Box<RawValue>>, Option<String>) = match page {
                Ok(page) => page,
                Err(stop) => {
                    // Where the pass begins anew, nothing was passed over: the mark stands where it stood.
                    read.pass = pass.after(&stop);
                    // GitHub does not know that place any more, as it happens to places. That is no failure.
                    return if is_resumed && is_unknown { Ok(()) } else { Err(stop) };
                }
            };
            is_resumed = false;
            let newest = self.judge(round, hook, &entries, now, floor).await?;
            // One entry out of its order says nothing of what is behind it, nor does a page of which nothing can be read.
            let is_through = entries.is_empty() || newest.is_some_and(|newest| newest < floor);
            match next.filter(|_| !is_through) {
                Some(next) => {
                    pass.next = match next.split_once('?') {
                        Some((_, query)) => format!("{path}?{query}"),
                        None => next,
                    };
                    pass.failures = 0;
                }
                None => {
                    read.pass = None;
                    read.through = read.through.max(pass.top);
                    return Ok(());
                }
            }
        }
    }

    /// Notes what of a page the ledger lacks. Gives the second of its newest entry.
    async fn judge(
        &self,
        round: &mut Round<'_, A>,
        hook: &HookId,
        entries: &[Box<RawValue>],
        now: Timestamp,
        floor: i64,
    ) -> Result<Option<i64>, Stop> {
        let mut newest = None;
        let mut newest_of: BTreeMap<DeliveryKey, Missing> = BTreeMap::new();
        for raw in entries {
            let entry = serde_json::from_str::<Entry>(raw.get()).ok();
            let read = entry.and_then(|entry| {
                let guid = Guid::parse(&entry.guid)?;
                let delivered_at = instant(&entry.delivered_at)?;
                Some((entry, guid, delivered_at))
            });
            let Some((entry, guid, delivered_at)) = read else {
                round.counts.malformed = round.counts.malformed.saturating_add(1);
                continue;
            };
            let second = delivered_at.as_second();
            newest = newest.max(Some(second));
            let grace = if entry.throttled_at.is_some() {
                THROTTLED_GRACE
            } else {
                GRACE
            };
            let event_name = entry.event.unwrap_or_default();
            let is_wanted = self.config.events.is_empty() || self.config.events.contains(&event_name);
            if second < floor || now.duration_since(delivered_at) < grace || !is_wanted {
                continue;
            }
            let key = DeliveryKey {
                hook: hook.clone(),
                guid,
            };
            let missing = Missing {
                key: key.clone(),
                attempt_id: entry.id,
                event_name,
                delivered_at,
                too_large: entry.status_code == Some(TOO_LARGE),
                asked: 0,
                due_at: delivered_at,
            };
            // GitHub shows the newest first, and its own example does not.
            let known = newest_of.entry(key).or_insert_with(|| missing.clone());
            if known.delivered_at < missing.delivered_at {
                *known = missing;
            }
        }
        let keys: Vec<DeliveryKey> = newest_of.keys().cloned().collect();
        if keys.is_empty() {
            return Ok(newest);
        }
        let kept = self.store.kept(&keys).await.map_err(|error| self.unkept(error))?;
        let missing: Vec<Missing> = newest_of
            .into_values()
            .filter(|missing| !kept.contains(&missing.key))
            .collect();
        if !missing.is_empty() {
            let new = self
                .store
                .note_missing(&self.id, &missing)
                .await
                .map_err(|error| self.unkept(error))?;
            round.counts.missing = round.counts.missing.saturating_add(new);
        }
        Ok(newest)
    }
}
