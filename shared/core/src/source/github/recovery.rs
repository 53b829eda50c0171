//! Recovery: the deliveries that GitHub made and the ledger never got, found in GitHub's log and got.
//!
//! GitHub delivers once and never again by itself
//! (<https://docs.github.com/en/webhooks/using-webhooks/handling-failed-webhook-deliveries>). It keeps a log of what it
//! delivered for three days. The log is read from its newest entry back to where it has been read before, in passes that may take
//! several polls; what of it the ledger lacks becomes a row of its own, so that the pass can end, and is worked off oldest
//! first, since the oldest is forgotten first. Whether a delivery arrived is for the ledger to say, not for GitHub's status.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Asked, Round, refused};
use crate::api::{Api, Credential, Limits, Method, Request};
use crate::delivery::{DeliveryKey, EventName, Guid, HookId};
use crate::event::Repository;
use crate::github::time::instant;
use crate::ports::{ErrorKind, LedgerError};
use crate::source::{Cursor, FailedPoll, Placement, Poll, PollError, Polled, Readback, Source, SourceId, Turn};
use crate::target::TargetKey;

/// Entries of a page.
const PAGE_ITEMS: usize = 100;
/// Most hooks of one owner that are looked through. GitHub allows twenty for each event.
const HOOK_PAGES_MAX: usize = 3;
/// A delivery that is younger than this may still be on its way.
const GRACE: SignedDuration = SignedDuration::from_secs(120);
/// The same for one that GitHub held back: what it calls delivered may be later still.
const THROTTLED_GRACE: SignedDuration = SignedDuration::from_secs(600);
/// A pass goes this much further back than the one before it went forward.
const SLACK: SignedDuration = SignedDuration::from_secs(900);
const _: () = assert!(THROTTLED_GRACE.as_secs() + GRACE.as_secs() < SLACK.as_secs());
/// What is about to be forgotten is not asked for any more.
const RETENTION_MARGIN: SignedDuration = SignedDuration::from_secs(60);
/// The least time between two polls of a log in which there is more to be found or to be got.
const BUSY_INTERVAL: SignedDuration = SignedDuration::from_secs(60);
/// A delivery is there, and may not be asked for.
const MAY_NOT_REDELIVER: &str = "may_not_redeliver";
/// How much longer each wait for a delivery that was asked for is than the one before. From a minute on, six of them reach
/// over two days: an outage of our own must not use up all that GitHub may be asked.
const PATIENCE_GROWTH: i32 = 6;
/// The longest of them.
const PATIENCE_MAX: SignedDuration = SignedDuration::from_hours(24);
/// So many are asked for where none of them is had. What is wrong is wrong with all of them then, as far as anybody can tell: a
/// broken credential must not cost a turn's requests each turn.
const REFUSALS_MAX: usize = 3;
/// How long those are left alone then. Others have their turn meanwhile, and once that is mended none waits longer.
const PUT_OFF: SignedDuration = SignedDuration::from_mins(15);
/// So often in a row a place in a log may give no answer. Then the pass begins anew: what is newer than the place is found, whatever
/// is wrong with it.
const PLACE_FAILURES_MAX: u32 = 3;
/// The status of an answer that called a delivery too large. It is too large the next time too.
const TOO_LARGE: u16 = 413;

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
const LOGS: &str = "deliveries";

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

/// A delivery that GitHub made and the ledger lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its identity.
    pub key: DeliveryKey,
    /// Number of its newest attempt, in GitHub's log.
    pub attempt_id: u64,
    /// Name of the webhook event.
    pub event_name: String,
    /// When GitHub made it.
    pub delivered_at: Timestamp,
    /// We have called it too large.
    pub too_large: bool,
    /// How often it has been asked for.
    pub asked: u32,
    /// When it is to be looked at again. Until somebody has asked for it that is when it was made: oldest first.
    pub due_at: Timestamp,
}

impl Missing {
    /// How often it has been asked for when it has become this. For ledgers.
    #[must_use]
    pub fn asked_as(&self, becomes: Becomes) -> u32 {
        match becomes {
            Becomes::Asked(_) => self.asked.saturating_add(1),
            Becomes::PutOff(_) | Becomes::Here | Becomes::Lost(_) => self.asked,
        }
    }
}

/// What becomes of a missing delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Becomes {
    /// It was asked for, and is due again then.
    Asked(Timestamp),
    /// Asking for it came to nothing, and not by its own fault: it is due again then, and was asked for as often as it says. However
    /// long a credential is broken, that uses up no attempts.
    PutOff(Timestamp),
    /// It is here.
    Here,
    /// Nobody will ever get it, for this reason.
    Lost(&'static str),
}

/// A missing delivery that nobody will get any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its identity.
    pub key: DeliveryKey,
    /// Name of the webhook event.
    pub event_name: String,
    /// When GitHub made it.
    pub delivered_at: Timestamp,
    /// How often it has been asked for.
    pub asked: u32,
    /// Why, in one word.
    pub reason: String,
    /// Since when that is known.
    pub since: Timestamp,
}

/// The rows of missing deliveries, each log's apart from the others'.
///
/// # Errors
/// All methods give [`LedgerError`] where no answer could be had.
pub trait MissingStore: Send + Sync {
    /// Which of these deliveries are in the ledger, read consistently.
    fn kept(&self, keys: &[DeliveryKey]) -> impl Future<Output = Result<BTreeSet<DeliveryKey>, LedgerError>> + Send;

    /// Notes what `log` shows and the ledger lacks, each once in all time. Gives how many are new.
    fn note_missing(
        &self,
        log: &SourceId,
        missing: &[Missing],
    ) -> impl Future<Output = Result<u64, LedgerError>> + Send;

    /// What is to be looked at, oldest first, at most `limit`. May lag behind the last writes.
    fn due_missing(
        &self,
        log: &SourceId,
        until: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Missing>, LedgerError>> + Send;

    /// Remembers what has become of a missing delivery.
    fn settle_missing(
        &self,
        log: &SourceId,
        missing: &Missing,
        becomes: Becomes,
        now: Timestamp,
    ) -> impl Future<Output = Result<(), LedgerError>> + Send;

    /// What of all logs is known to be lost since then, the newest first, at most `limit`. It is remembered for ten days. May lag
    /// behind the last writes.
    fn lost(&self, since: Timestamp, limit: usize) -> impl Future<Output = Result<Vec<Lost>, LedgerError>> + Send;

    /// Says of a delivery that came because it was asked for, and of its event, that recovery has seen it, and not a webhook.
    /// `true` where that is what tells that webhooks had lost the event: no webhook has told of it, as far as is known then, and it
    /// does not count by another hook's delivery already. A poll that died behind this and asks again is told the same, save of an
    /// event that a feed saw first: that is not counted then.
    fn attribute(&self, key: &DeliveryKey) -> impl Future<Output = Result<bool, LedgerError>> + Send;
}

/// The delivery logs of one owner of hooks.
#[derive(Debug)]
pub struct Recovery<A, M> {
    api: Arc<A>,
    store: M,
    id: SourceId,
    log: HookLog,
    credential: Credential,
    config: Arc<RecoveryConfig>,
}

/// How far logs have been read.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Remembered {
    /// By hook.
    hooks: BTreeMap<String, Read>,
    /// The App's hook, which its log does not name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    app_hook: Option<String>,
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

/// The hooks of an owner.
#[derive(Default)]
struct Hooks {
    /// The paths of the logs that are ours, by hook.
    logs: BTreeMap<String, String>,
    /// Hooks that deliver elsewhere.
    others: BTreeSet<String>,
}

/// An entry of a log.
#[derive(Debug, Deserialize)]
struct Entry {
    id: u64,
    guid: String,
    delivered_at: String,
    #[serde(default)]
    status_code: Option<u16>,
    #[serde(default)]
    event: Option<String>,
    #[serde(default)]
    throttled_at: Option<String>,
}

/// A hook, as its owner lists it.
#[derive(Deserialize)]
struct Hook {
    id: u64,
    #[serde(default)]
    config: Option<HookConfig>,
}

#[derive(Deserialize)]
struct HookConfig {
    #[serde(default)]
    url: Option<String>,
}

/// One entry in full.
#[derive(Deserialize)]
struct Detail {
    request: DetailRequest,
}

#[derive(Deserialize)]
struct DetailRequest {
    #[serde(default)]
    headers: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    payload: Option<Box<RawValue>>,
}

/// Why a poll stops in the middle. What it has done stays done.
enum Stop {
    /// No more requests: for so long, or in this turn.
    Over(Option<SignedDuration>),
    Failed(PollError),
}

/// What came of asking for a missing delivery.
enum Got {
    /// GitHub did it, or would not do just this: it answers us, and lets us ask.
    Answer,
    /// It is gone, which says nothing of what we may ask for.
    Gone,
}

/// Whether GitHub answers us in this turn, and lets us ask.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Others {
    Had,
    #[default]
    NotHad,
}

/// A missing delivery that was asked for in vain.
struct Failed<'m> {
    missing: &'m Missing,
    /// There was no answer, and no refusal.
    is_unanswered: bool,
}

/// What came of asking for what is due.
#[derive(Default)]
struct Asking<'m> {
    /// Whether any was had.
    others: Others,
    /// What was not had. Each may have failed alone.
    failed: Vec<Failed<'m>>,
    /// Why the first of them was not.
    why: Option<PollError>,
    /// Why no more is asked for.
    over: Option<Stop>,
}

impl<'m> Asking<'m> {
    /// Whether another one is asked for.
    fn goes_on(&self) -> bool {
        self.others == Others::Had || self.failed.len() < REFUSALS_MAX
    }

    /// Takes in what came of asking for `missing`.
    fn take(&mut self, missing: &'m Missing, got: Result<Got, Stop>) -> Result<(), Stop> {
        match got {
            Ok(Got::Answer) => self.others = Others::Had,
            Ok(Got::Gone) => {}
            Err(Stop::Failed(error @ (PollError::Unanswered { .. } | PollError::Misconfigured { .. }))) => {
                let is_unanswered = matches!(error, PollError::Unanswered { .. });
                self.failed.push(Failed { missing, is_unanswered });
                self.why.get_or_insert(error);
            }
            Err(Stop::Failed(error @ PollError::Unkept { .. })) => return Err(Stop::Failed(error)),
            Err(over @ Stop::Over(_)) => self.over = Some(over),
        }
        Ok(())
    }
}

impl<A: Api, M: MissingStore> Recovery<A, M> {
    /// The logs of `log`, read with `credential`, judged by the ledger behind `store`.
    #[must_use]
    pub fn new(api: Arc<A>, store: M, log: HookLog, credential: Credential, config: Arc<RecoveryConfig>) -> Self {
        let host = config.host.as_deref().unwrap_or("github.com");
        let whose = match &log {
            HookLog::Repository(repository) => format!("repository/{}", repository.key()),
            HookLog::Organization(name) => format!("organization/{}", name.to_lowercase()),
            HookLog::App => "app".to_owned(),
        };
        Self {
            api,
            store,
            id: SourceId::new(&format!("{host}/{LOGS}/{whose}")),
            log,
            credential,
            config,
        }
    }

    async fn poll_once(&self, turn: Turn<'_>) -> Result<Poll, Box<FailedPoll>> {
        let before = turn.cursor.map(Cursor::as_str).unwrap_or_default();
        let mut memory: Remembered = serde_json::from_str(before).unwrap_or_default();
        let mut round = Round::new(&*self.api, &self.credential, self.config.limits, turn);
        let worked = self.work(&mut round, &mut memory).await;
        let after = serde_json::to_string(&memory).ok().filter(|after| after != before);
        let cursor = after.and_then(Cursor::new);
        let (polled, has_more) = match worked {
            Ok(has_more) => (None, has_more),
            Err(Stop::Over(None)) => (None, true),
            Err(Stop::Over(Some(span))) => (Some(Polled::Throttled(span)), true),
            Err(Stop::Failed(error)) => return Err(round.failed(error, cursor)),
        };
        let counts = round.counts;
        let emitted = counts.recovered.saturating_add(counts.redeliveries);
        let polled = polled.unwrap_or_else(|| match usize::try_from(emitted) {
            Ok(0) | Err(_) => Polled::Empty,
            Ok(emitted) => Polled::Emitted(emitted),
        });
        Ok(Poll {
            cursor,
            // GitHub forgets: as long as there is more to be found or got, that is gone on with as soon as may be.
            interval: Some(if has_more {
                self.interval()
            } else {
                self.config.interval
            }),
            ..round.poll(polled)
        })
    }

    /// Finds what is missing and gets it. Says whether there is more of either.
    async fn work(&self, round: &mut Round<'_, A>, memory: &mut Remembered) -> Result<bool, Stop> {
        let hooks = self.hooks(round, memory).await?;
        if hooks.logs.is_empty() && self.log != HookLog::App {
            // An App that was never told of anything has missed nothing. Anybody else has no hook for us to read of, and what is known
            // to be missing comes to its end all the same.
            self.work_off(round, &hooks).await?;
            return Err(self.misconfigured("no_hook_of_ours"));
        }
        let logs = &hooks.logs;
        memory.hooks.retain(|hook, _| logs.contains_key(hook));
        let mut pages = self.config.pages_max;
        // Half of the turn is for finding what is missing, and the rest for getting it: neither keeps the other from its end.
        let now = round.now();
        let half = round.turn.end.duration_since(now).checked_div(2).unwrap_or_default();
        let scan_end = now.saturating_add(half).unwrap_or(now);
        let mut failed = None;
        // The log that has been read least far comes first: a busy one holds no other up.
        let mut in_order: Vec<(&String, &String)> = logs.iter().collect();
        in_order.sort_by_key(|(hook, _)| memory.hooks.get(*hook).map_or(0, |read| read.through));
        for (hook, path) in in_order {
            let Some(id) = HookId::parse(Some(hook)) else { continue };
            let mut read = memory.hooks.remove(hook).unwrap_or_default();
            let scanned = self.scan(round, &id, path, &mut read, &mut pages, scan_end).await;
            // Also where it stopped: how far it came is durable.
            memory.hooks.insert(hook.clone(), read);
            match scanned {
                Ok(()) | Err(Stop::Over(None)) => {}
                // A log that cannot be read stops neither the others nor what is known to be missing.
                Err(Stop::Failed(error)) => failed = failed.or(Some(error)),
                Err(over @ Stop::Over(Some(_))) => return Err(over),
            }
        }
        let is_reading = memory.hooks.values().any(|read| read.pass.is_some());
        let worked = self.work_off(round, &hooks).await;
        match failed {
            Some(error) => Err(Stop::Failed(error)),
            None => worked.map(|has_more| has_more || is_reading),
        }
    }

    /// The hooks that are ours, and those that are not.
    async fn hooks(&self, round: &mut Round<'_, A>, memory: &mut Remembered) -> Result<Hooks, Stop> {
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
        let mut next = Some(format!("{owner}/hooks?per_page={PAGE_ITEMS}"));
        for _ in 0..HOOK_PAGES_MAX {
            let Some(url) = next.take() else { break };
            let asked = round.get(&url).await;
            let answer = self.fine(asked)?;
            let hooks: Vec<Hook> = self.shape(&answer.0)?;
            for hook in hooks {
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

    /// Body and next page of an answer, or why the poll ends.
    fn fine(&self, asked: Asked) -> Result<(Vec<u8>, Option<String>), Stop> {
        match refused(&self.id, &asked) {
            Some(Ok(Polled::Throttled(span))) => return Err(Stop::Over(Some(span))),
            Some(Ok(Polled::Empty | Polled::Emitted(_))) => return Err(Stop::Over(None)),
            Some(Err(error)) => return Err(Stop::Failed(error)),
            None => {}
        }
        match asked {
            Asked::Fine(answer) => Ok((answer.body, answer.next)),
            Asked::NotModified(_)
            | Asked::Ended
            | Asked::OutOfTime
            | Asked::Throttled(_)
            | Asked::Misconfigured(_)
            | Asked::Unanswered(_) => Err(Stop::Over(None)),
        }
    }

    fn shape<'b, T: Deserialize<'b>>(&self, body: &'b [u8]) -> Result<T, Stop> {
        serde_json::from_slice(body).map_err(|_shape| {
            Stop::Failed(PollError::Unanswered {
                source_id: self.id.clone(),
                word: "shape",
            })
        })
    }

    fn misconfigured(&self, word: &'static str) -> Stop {
        Stop::Failed(PollError::Misconfigured {
            source_id: self.id.clone(),
            word,
        })
    }

    fn unkept(&self, source: LedgerError) -> Stop {
        Stop::Failed(PollError::Unkept {
            source_id: self.id.clone(),
            source,
        })
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

    /// Asks for what is missing, oldest first, as far as the budgets go. Says whether they may have been too small.
    async fn work_off(&self, round: &mut Round<'_, A>, hooks: &Hooks) -> Result<bool, Stop> {
        let now = round.now();
        let due = self.store.due_missing(&self.id, now, self.config.requests_max).await;
        let due = due.map_err(|error| self.unkept(error))?;
        if due.is_empty() {
            return Ok(false);
        }
        let keys: Vec<DeliveryKey> = due.iter().map(|missing| missing.key.clone()).collect();
        let kept = self.store.kept(&keys).await.map_err(|error| self.unkept(error))?;
        let mut asking = Asking::default();
        for missing in &due {
            if kept.contains(&missing.key) {
                self.here(round, missing).await?;
                continue;
            }
            let log = match self.log_of(missing, hooks, now) {
                Ok(log) => log,
                Err(becomes) => {
                    self.settle(round, missing, becomes).await?;
                    continue;
                }
            };
            if !asking.goes_on() {
                continue;
            }
            let got = match self.config.remedy {
                Remedy::Redeliver => self.redeliver(round, missing, log).await,
                Remedy::Fetch => self.fetch(round, missing, log).await,
            };
            asking.take(missing, got)?;
            if asking.over.is_some() {
                break;
            }
        }
        for failed in &asking.failed {
            self.settle_failed(round, failed, asking.others).await?;
        }
        match (asking.over, asking.why) {
            (Some(over), _) => Err(over),
            (None, Some(error)) if asking.others == Others::NotHad => Err(Stop::Failed(error)),
            (None, Some(_) | None) => Ok(due.len() >= self.config.requests_max),
        }
    }

    /// Remembers of a missing delivery that it was asked for in vain.
    async fn settle_failed(&self, round: &mut Round<'_, A>, failed: &Failed<'_>, others: Others) -> Result<(), Stop> {
        let missing = failed.missing;
        match others {
            // It is this one that fails: it was asked for, and not for ever.
            Others::Had => self.settle(round, missing, self.asked_now(round, missing)).await,
            // It makes room for those behind it, or the oldest that cannot be had would keep all others waiting.
            Others::NotHad => {
                let may_be_heard = failed.is_unanswered && self.config.remedy == Remedy::Redeliver;
                let missing = Missing {
                    // GitHub may have heard what it did not answer, and it may come for that reason. However often that happens, it
                    // counts as one attempt and no more: an outage of GitHub's uses up none of the others.
                    asked: missing.asked.max(u32::from(may_be_heard)),
                    ..missing.clone()
                };
                self.settle(round, &missing, Becomes::PutOff(put_off(round.now())))
                    .await
            }
        }
    }

    /// The log that a missing delivery can be got from, or what becomes of it without being asked for.
    fn log_of<'l>(&self, missing: &Missing, hooks: &'l Hooks, now: Timestamp) -> Result<&'l str, Becomes> {
        let kept_for = self.config.retention.saturating_sub(RETENTION_MARGIN);
        let forgotten_at = missing.delivered_at.saturating_add(kept_for);
        if forgotten_at.is_ok_and(|forgotten_at| now >= forgotten_at) {
            return Err(Becomes::Lost("expired"));
        }
        let hook = missing.key.hook.as_str();
        let Some(log) = hooks.logs.get(hook) else {
            return Err(if hooks.logs.is_empty() && hooks.others.contains(hook) {
                // No hook is ours, and this one was: it may be the address that we know them by which is wrong.
                Becomes::PutOff(put_off(now))
            } else {
                Becomes::Lost("no_hook")
            });
        };
        if missing.too_large && self.config.remedy == Remedy::Redeliver {
            return Err(Becomes::Lost("too_large"));
        }
        if missing.asked >= self.config.attempts_max {
            return Err(Becomes::Lost("asked_too_often"));
        }
        Ok(log)
    }

    fn asked_now(&self, round: &Round<'_, A>, missing: &Missing) -> Becomes {
        let due_at = round.now().saturating_add(self.patience(missing.asked));
        Becomes::Asked(due_at.unwrap_or(Timestamp::MAX))
    }

    /// A missing delivery is here. Where it was asked for, that is why, as far as anybody can tell: GitHub brings none again by
    /// itself, and what it held back and brought just then, minutes late, counts as recovery's too. The other way round, what was
    /// asked for in vain would count as brought, and hide that webhooks lose.
    async fn here(&self, round: &mut Round<'_, A>, missing: &Missing) -> Result<(), Stop> {
        if missing.asked > 0 {
            let alone = self
                .store
                .attribute(&missing.key)
                .await
                .map_err(|error| self.unkept(error))?;
            if alone {
                round.counts.attributed = round.counts.attributed.saturating_add(1);
            }
            round.counts.recovered = round.counts.recovered.saturating_add(1);
        }
        self.settle(round, missing, Becomes::Here).await
    }

    /// How long a delivery that was asked for `asked` times before may take now until it is asked for again.
    fn patience(&self, asked: u32) -> SignedDuration {
        let growth = PATIENCE_GROWTH.saturating_pow(asked);
        self.config.patience.saturating_mul(growth).min(PATIENCE_MAX)
    }

    async fn redeliver(&self, round: &mut Round<'_, A>, missing: &Missing, log: &str) -> Result<Got, Stop> {
        let url = format!("{log}/{}/attempts", missing.attempt_id);
        let post = Request {
            method: Method::Post,
            ..Request::get(&url, &self.credential)
        };
        if !round.may_ask() {
            return Err(Stop::Over(None));
        }
        // First: who dies between the request and a note behind it leaves a delivery that recovery has asked for and that counts as
        // a webhook's. Who dies between this note and the request has used up an attempt, and no more.
        self.settle(round, missing, self.asked_now(round, missing)).await?;
        let got = match round.ask(post).await {
            Asked::Fine(_) => {
                round.counts.redeliveries = round.counts.redeliveries.saturating_add(1);
                return Ok(Got::Answer);
            }
            other @ (Asked::NotModified(_)
            | Asked::Ended
            | Asked::OutOfTime
            | Asked::Throttled(_)
            | Asked::Misconfigured(_)
            | Asked::Unanswered(_)) => self.refused(round, missing, log, other).await,
        };
        if let Err(Stop::Over(_)) = got {
            // GitHub did nothing, or was not asked: that was no attempt, and it is due as before.
            self.settle(round, missing, Becomes::PutOff(missing.due_at)).await?;
        }
        got
    }

    async fn fetch(&self, round: &mut Round<'_, A>, missing: &Missing, log: &str) -> Result<Got, Stop> {
        let body = match round.get(&format!("{log}/{}", missing.attempt_id)).await {
            Asked::Fine(answer) => answer.body,
            Asked::Ended => {
                self.settle(round, missing, self.asked_now(round, missing)).await?;
                return Ok(Got::Answer);
            }
            other @ (Asked::NotModified(_)
            | Asked::OutOfTime
            | Asked::Throttled(_)
            | Asked::Misconfigured(_)
            | Asked::Unanswered(_)) => return self.refused(round, missing, log, other).await,
        };
        let detail = serde_json::from_slice::<Detail>(&body).ok();
        let payload = detail.and_then(|detail| detail.request.payload);
        let readback = payload
            .zip(EventName::parse(&missing.event_name))
            .map(|(payload, event_name)| Readback {
                host: self.config.host.clone(),
                key: missing.key.clone(),
                event_name,
                payload: payload.get().as_bytes().to_vec(),
            });
        let becomes = match readback {
            None => Becomes::Lost("no_payload"),
            Some(readback) => match round.turn.writer.write_delivery(readback).await {
                Ok(_) => {
                    round.counts.recovered = round.counts.recovered.saturating_add(1);
                    Becomes::Here
                }
                Err(error) if matches!(error.kind(), ErrorKind::Reject | ErrorKind::Bug) => {
                    Becomes::Lost(error.class.as_str())
                }
                Err(error) => return Err(self.unkept(error)),
            },
        };
        self.settle(round, missing, becomes).await?;
        Ok(Got::Answer)
    }

    /// What follows for a missing delivery from a request that did not get it.
    async fn refused(&self, round: &mut Round<'_, A>, missing: &Missing, log: &str, asked: Asked) -> Result<Got, Stop> {
        match asked {
            // GitHub will not do it now. It is asked again some time, as it is noted, and no more often than anything else.
            Asked::Ended => Ok(Got::Answer),
            // GitHub answers like this for what is gone, and for what one may not do.
            Asked::Misconfigured("not_found") => match round.get(&format!("{log}/{}", missing.attempt_id)).await {
                Asked::Misconfigured("not_found") | Asked::Ended => {
                    self.settle(round, missing, Becomes::Lost("gone")).await?;
                    Ok(Got::Gone)
                }
                Asked::Fine(_) => Err(self.misconfigured(MAY_NOT_REDELIVER)),
                other @ (Asked::NotModified(_)
                | Asked::OutOfTime
                | Asked::Throttled(_)
                | Asked::Misconfigured(_)
                | Asked::Unanswered(_)) => self.fine(other).map(|_| Got::Answer),
            },
            Asked::Unanswered("too_large") => {
                self.settle(round, missing, Becomes::Lost("too_large")).await?;
                Ok(Got::Answer)
            }
            other @ (Asked::Fine(_)
            | Asked::NotModified(_)
            | Asked::OutOfTime
            | Asked::Throttled(_)
            | Asked::Misconfigured(_)
            | Asked::Unanswered(_)) => self.fine(other).map(|_| Got::Answer),
        }
    }

    async fn settle(&self, round: &mut Round<'_, A>, missing: &Missing, becomes: Becomes) -> Result<(), Stop> {
        if let Becomes::Lost(_) = becomes {
            round.counts.lost = round.counts.lost.saturating_add(1);
        }
        let settled = self.store.settle_missing(&self.id, missing, becomes, round.now()).await;
        settled.map_err(|error| self.unkept(error))
    }
}

/// When what is put off is due again.
fn put_off(now: Timestamp) -> Timestamp {
    now.saturating_add(PUT_OFF).unwrap_or(Timestamp::MAX)
}

impl<A: Api, M: MissingStore> Source for Recovery<A, M> {
    fn id(&self) -> &SourceId {
        &self.id
    }

    fn scheme(&self) -> &'static str {
        "github_deliveries"
    }

    fn placement(&self) -> Placement {
        Placement::Scheduled
    }

    fn target(&self) -> &TargetKey {
        &self.credential.target
    }

    fn interval(&self) -> SignedDuration {
        self.config.interval.min(BUSY_INTERVAL)
    }

    fn poll<'a>(&'a self, turn: Turn<'a>) -> BoxFuture<'a, Result<Poll, Box<FailedPoll>>> {
        Box::pin(self.poll_once(turn))
    }
}
