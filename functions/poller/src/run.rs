//! One run: plan what is polled, poll what is due, tell what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_aws::clock::{System, pause};
use forebay_aws::config::{POLLER_SECONDS_MAX, PollerConfig};
use forebay_aws::dynamodb::{DynamoLedger, DynamoTargets};
use forebay_aws::github::GithubApi;
use forebay_aws::metrics::{EventCaught, Metrics, Polled as RunPolled, Record, SeenOnlyBy, system_time};
use forebay_aws::secrets::{Documents, ReadError, Store};
use forebay_aws::shedder::{self, ShedInboxes};
use forebay_aws::start::PollerClients;
use forebay_core::api::{Api, GithubAccess};
use forebay_core::drive::Driver;
use forebay_core::event::{Net, Repository};
use forebay_core::ingest::{IngestTally, Ingestor, LedgerWriter, Sources, WriteCounts};
use forebay_core::ports::{ErrorKind, Inboxes, Ledger, LedgerError, TimeAndChance};
use forebay_core::schedule::{LedgerScheduler, Resting, Scheduled, SourceStore};
use forebay_core::shed::{Shedder, ShedderConfig, TargetStore};
use forebay_core::source::SourceId;
use forebay_core::source::github::MissingStore;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Mutex;

use crate::owners::repositories;
use crate::plan::{Plan, owners, plan};
use crate::report::Report;

/// Longest time of one poll. A feed of three pages, all of it new, takes about ten seconds.
pub const POLL_TIME_MAX: SignedDuration = SignedDuration::from_secs(25);
/// No poll is begun with less time than this: itself, giving it back, and the report.
pub const STOP_MARGIN: SignedDuration = SignedDuration::from_secs(30);
const _: () = assert!(
    STOP_MARGIN.as_secs() < POLLER_SECONDS_MAX,
    "a part of a run is for beginning polls"
);
/// Time for the report.
const REPORT_TIME: SignedDuration = SignedDuration::from_secs(2);
/// What is due this soon is waited for, so long in all of a run. Runs begin a minute apart and sources are due a minute after their
/// last poll, so that they would be missed by a moment every time.
const LOOK_AHEAD: SignedDuration = SignedDuration::from_secs(5);
/// Longest time of a run that goes into listing what owners have: about three thousand repositories.
const OWNERS_TIME_MAX: Duration = Duration::from_secs(10);
/// Rows that are looked through for what is due soon.
const DUE_ROWS: usize = 50;
/// How long it is known which repositories an owner has.
const OWNERS_KEPT: SignedDuration = SignedDuration::from_secs(3_600);
/// How long after a failure to list them that is tried again.
const OWNERS_RETRY: SignedDuration = SignedDuration::from_secs(300);

/// The poller: ports and configuration.
#[derive(Debug)]
pub struct Poller<A = GithubApi<Store, System>, L = DynamoLedger, I = ShedInboxes, D = DynamoTargets, T = System> {
    config: PollerConfig,
    api: Arc<A>,
    ledger: L,
    inboxes: I,
    shedder: Shedder<D, T>,
    time: T,
    metrics: Metrics,
    /// What this environment knows.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Sources that have rows.
    registered: BTreeSet<SourceId>,
    /// The repositories of owners.
    owned: BTreeMap<String, Owned>,
}

/// What is known of an owner's repositories.
#[derive(Debug)]
struct Owned {
    /// `None` where they have never been listed here.
    repositories: Option<BTreeSet<Repository>>,
    /// When they are to be listed again.
    list_at: Timestamp,
    /// The last list had nothing in it.
    was_empty: bool,
}

impl Owned {
    /// Takes in what was listed of `owner`, and says for how long that is known. That there is nothing is believed the second time
    /// in a row: one empty answer would leave all of an owner's repositories unpolled until the next one.
    fn take(&mut self, owner: &str, repositories: BTreeSet<Repository>) -> SignedDuration {
        let (is_empty, was_empty) = (repositories.is_empty(), self.was_empty);
        self.was_empty = is_empty;
        if is_empty && !was_empty {
            tracing::warn!("list repositories of {owner}: there are none; those that were known before are polled");
            return OWNERS_RETRY;
        }
        if is_empty {
            tracing::warn!("list repositories of {owner}: there are none, again; none is polled");
        }
        self.repositories = Some(repositories);
        OWNERS_KEPT
    }
}

/// Something that says what GitHub is asked with.
pub trait Accesses: Send + Sync {
    /// What it is asked with now.
    ///
    /// # Errors
    /// [`ReadError`] where the secret cannot be read.
    fn access(&self) -> impl Future<Output = Result<Arc<GithubAccess>, ReadError>> + Send;
}

impl<D: Documents, T: TimeAndChance> Accesses for GithubApi<D, T> {
    async fn access(&self) -> Result<Arc<GithubAccess>, ReadError> {
        Self::access(self).await
    }
}

/// A run that did nothing.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The secret cannot be read.
    #[error("poll GitHub: {0}")]
    Secret(#[from] ReadError),
    /// The ledger gave no answer.
    #[error("poll GitHub: {0}; what is due stays due")]
    Ledger(#[from] LedgerError),
}

impl Poller {
    /// The poller on these clients.
    #[must_use]
    pub fn new(config: PollerConfig, clients: PollerClients, metrics: Metrics) -> Self {
        Self::on(
            config,
            clients.api,
            clients.ledger,
            clients.inboxes,
            clients.targets,
            System,
            metrics,
        )
    }
}

impl<A, L, I, D, T> Poller<A, L, I, D, T>
where
    A: Api + Accesses + 'static,
    L: Ledger + SourceStore + MissingStore + Clone + 'static,
    I: Inboxes,
    D: TargetStore,
    T: TimeAndChance + Clone,
{
    /// The poller on these ports.
    #[must_use]
    pub fn on(config: PollerConfig, api: A, ledger: L, inboxes: I, targets: D, time: T, metrics: Metrics) -> Self {
        // A probe is a whole poll, and there is one at a time.
        let shedder = ShedderConfig {
            probe: config
                .shedder
                .probe
                .max(POLL_TIME_MAX.saturating_add(config.shedder.skew)),
            ..config.shedder
        };
        Self {
            shedder: Shedder::new(targets, time.clone(), shedder),
            config,
            api: Arc::new(api),
            ledger,
            inboxes,
            time,
            metrics,
            known: Mutex::default(),
        }
    }

    /// One run, over before `deadline`. What goes wrong with a source is counted and logged, and is its own alone.
    ///
    /// # Errors
    /// [`RunError`] where nothing could be polled.
    pub async fn run(&self, deadline: Timestamp) -> Result<Report, RunError> {
        let began = self.time.now();
        // A deadline further away than the function's own timeout is none that anybody keeps.
        let longest = began.saturating_add(SignedDuration::from_secs(POLLER_SECONDS_MAX));
        let deadline = deadline.min(longest.unwrap_or(Timestamp::MAX));
        let last_start = deadline.saturating_sub(STOP_MARGIN).unwrap_or(Timestamp::MIN);
        let poll_end = last_start.saturating_add(POLL_TIME_MAX).unwrap_or(Timestamp::MAX);
        let access = self.api.access().await?;
        let mut known = self.known.lock().await;
        let listing = Box::pin(self.list_owners(&access, &mut known));
        match tokio::time::timeout(OWNERS_TIME_MAX, listing).await {
            Ok(listed) => listed?,
            Err(_elapsed) => {
                tracing::warn!("list repositories of owners: out of time; what was known before is polled")
            }
        }
        let owned = known.owned.values();
        let is_partial = owned.clone().any(|owned| owned.repositories.is_none());
        let found: BTreeSet<Repository> = owned.filter_map(|owned| owned.repositories.clone()).flatten().collect();
        let Plan { sources, problems } = plan(&self.config, &access, &found, &self.api, &self.ledger);
        for problem in &problems {
            tracing::error!("{problem}");
        }
        let scheduled = sources.values().map(|source| Scheduled::of(source.as_ref()));
        let mut scheduler =
            LedgerScheduler::new(self.ledger.clone(), self.time.clone(), self.config.schedule, scheduled);
        if is_partial {
            scheduler = scheduler.partial();
        }
        let ids: BTreeSet<SourceId> = sources.keys().cloned().collect();
        if ids != known.registered {
            let made = scheduler.register().await?;
            tracing::info!(sources = ids.len(), made, "register sources");
            known.registered = ids;
        }
        drop(known);
        let driver = Driver {
            ledger: &self.ledger,
            inboxes: &self.inboxes,
            time: &self.time,
            routing: &self.config.routing,
            limits: &self.config.limits,
        };
        let writer = LedgerWriter::new(driver, Net::Feed, poll_end);
        let ingestor = Ingestor {
            scheduler: &scheduler,
            shedder: &self.shedder,
            writer: &writer,
            time: &self.time,
            concurrency: self.config.concurrency,
            poll_time_max: POLL_TIME_MAX,
        };
        let mut tally = IngestTally::default();
        let polling = async {
            let mut left_to_wait = LOOK_AHEAD;
            loop {
                let before = tally.polls;
                ingestor.run_into(&sources, last_start, poll_end, &mut tally).await;
                if tally.trouble.is_some() {
                    return Ok::<_, LedgerError>(());
                }
                let Some(waited) = self.wait_for_due(last_start, left_to_wait, &sources).await? else {
                    return Ok(());
                };
                // What is due and was not polled just now is not for this run: its credential rests, or somebody has it.
                if waited.is_zero() && tally.polls == before {
                    return Ok(());
                }
                left_to_wait = left_to_wait.saturating_sub(waited);
            }
        };
        // Every request and write in it has a shorter time of its own; should they add up, what is told is what was done.
        let left = deadline.duration_since(self.time.now()).saturating_sub(REPORT_TIME);
        match tokio::time::timeout(Duration::try_from(left).unwrap_or_default(), Box::pin(polling)).await {
            Ok(Ok(())) => {}
            // What was done before is told first: a lost delivery is counted once in all time.
            Ok(Err(trouble)) => tally.trouble = Some(trouble),
            Err(_elapsed) => tracing::warn!("poll what is due: out of time; what was under way is due again"),
        }
        let written = writer.take_counts();
        let report = Report::of(sources.len(), &tally, &written);
        self.tell(&report, &tally, &written, began);
        match tally.trouble {
            Some(trouble) if tally.polls == 0 => Err(trouble.into()),
            Some(_) | None => Ok(report),
        }
    }

    /// Waits for what is due in a moment, so long at most. Says how long; `None` where nothing is.
    async fn wait_for_due(
        &self,
        last_start: Timestamp,
        longest: SignedDuration,
        planned: &Sources,
    ) -> Result<Option<SignedDuration>, LedgerError> {
        let now = self.time.now();
        let until = now.saturating_add(longest).unwrap_or(Timestamp::MAX);
        let due = self.ledger.due_sources(until, None, DUE_ROWS).await?;
        let due: Vec<_> = due.iter().filter(|due| planned.contains_key(&due.source)).collect();
        // What is due already and was not polled just now may be held or rest: the next one may not.
        let soon = due.iter().find(|due| due.due_at > now).or(due.first());
        let Some(soon) = soon.filter(|due| due.due_at <= last_start) else {
            return Ok(None);
        };
        let wait = soon.due_at.duration_since(now).max(SignedDuration::ZERO);
        pause(Duration::try_from(wait).unwrap_or_default()).await;
        Ok(Some(wait))
    }

    /// Lists the repositories of owners all of whose are polled. Those that cannot be listed now are those that were known.
    async fn list_owners(&self, access: &GithubAccess, known: &mut Known) -> Result<(), LedgerError> {
        let began = self.time.now();
        // All of them first: where the time is over before one's turn, it is known that its list is not.
        for owner in owners(&self.config) {
            known.owned.entry(owner.to_owned()).or_insert_with(|| Owned {
                repositories: None,
                list_at: began,
                was_empty: false,
            });
        }
        for owner in owners(&self.config) {
            let now = self.time.now();
            let Some(entry) = known.owned.get_mut(owner) else {
                continue;
            };
            if entry.list_at > now {
                continue;
            }
            let credential = access.for_owner(&self.config.api.host(), owner);
            let target = &credential.target;
            let resting = self.ledger.resting_targets(std::slice::from_ref(target)).await?;
            let resting = resting.into_iter().next().flatten();
            let before = resting.as_ref().map_or(0, |resting| resting.strikes);
            if let Some(resting) = resting.filter(|resting| now < resting.until) {
                entry.list_at = resting.until;
                continue;
            }
            // If the time is over in the middle of it, others come first next time.
            entry.list_at = now.saturating_add(OWNERS_RETRY).unwrap_or(Timestamp::MAX);
            let listed = repositories(&*self.api, owner, &credential, &self.config.feed.limits, now, before).await;
            let (kept, rest, strikes) = match listed {
                Ok(listed) => (entry.take(owner, listed.repositories), listed.rest, 0),
                Err(unlisted) => {
                    tracing::warn!("{unlisted}");
                    (OWNERS_RETRY, unlisted.rest, before.saturating_add(1))
                }
            };
            entry.list_at = now.saturating_add(kept).unwrap_or(Timestamp::MAX);
            if let Some(rest) = rest {
                let until = now.saturating_add(rest).unwrap_or(Timestamp::MAX);
                self.ledger.rest_target(target, Resting { until, strikes }).await?;
            }
        }
        Ok(())
    }

    fn tell(&self, report: &Report, tally: &IngestTally, written: &WriteCounts, began: Timestamp) {
        for (source, error) in &tally.errors {
            tracing::warn!(source.id = %source, "{error}");
        }
        for (event, error) in &written.troubles {
            tracing::warn!(event.id = %event, error = %error.cause(), "{error}; it is due again later");
        }
        if let Some(trouble) = &tally.trouble {
            match trouble.kind() {
                ErrorKind::Retry => tracing::warn!(error = %trouble.cause(), "{trouble}; what is due stays due"),
                ErrorKind::Reject | ErrorKind::Fix | ErrorKind::Bug => {
                    tracing::error!(error = %trouble.cause(), "{trouble}; what is due stays due");
                }
            }
        }
        if report.lost > 0 {
            tracing::error!(
                lost = report.lost,
                "deliveries are lost: GitHub will not deliver them again"
            );
        }
        let now = self.time.now();
        let duration_ms = u64::try_from(now.duration_since(began).as_millis()).unwrap_or(0);
        tracing::info!(
            polls = report.polls,
            not_modified = report.not_modified,
            rate_limited = report.rate_limited,
            failures = report.failures,
            accepted = report.accepted,
            duplicates = report.duplicates,
            missing = report.missing,
            redeliveries = report.redeliveries,
            duration_ms,
            "poll what is due"
        );
        shedder::tell(&self.shedder.take_notes(), now, &self.metrics);
        let timestamp = system_time(began);
        self.metrics.emit(Record::Polled(RunPolled {
            timestamp,
            polls: report.polls,
            requests: report.requests,
            not_modified: report.not_modified,
            rate_limited: report.rate_limited,
            failures: report.failures,
            misconfigured: report.misconfigured,
            accepted: report.accepted,
            duplicates: report.duplicates,
            skipped: report.skipped,
            malformed: report.malformed,
            gaps: report.gaps,
            missing: report.missing,
            redeliveries: report.redeliveries,
            recovered: report.recovered,
            lost: report.lost,
            duration_ms,
        }));
        for caught in &written.caught {
            let latency = caught
                .occurred_at
                .map(|at| caught.admitted_at.duration_since(at).as_millis());
            self.metrics.emit(Record::Caught(EventCaught {
                timestamp: system_time(caught.admitted_at),
                kind: caught.kind.as_str(),
                events: 1,
                latency_ms: latency.and_then(|latency| u64::try_from(latency).ok()).unwrap_or(0),
            }));
        }
        let alone = |net| written.seen_only_by.get(&net).copied().unwrap_or_default();
        let attributed = i64::try_from(tally.counts.attributed).unwrap_or(i64::MAX);
        for (net, events) in [
            (Net::Feed, alone(Net::Feed)),
            (Net::Recovery, alone(Net::Recovery).saturating_add(attributed)),
        ] {
            if events != 0 {
                let seen = SeenOnlyBy::new(timestamp, net, events);
                self.metrics.emit(Record::SeenOnlyBy(seen));
            }
        }
    }
}
