//! Sources on a bench: a fake GitHub, a webhook, a ledger and rows of sources in memory, and the core's own pieces between
//! them, under one clock that tests move.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_core::api::{Answer, Api, ApiError, Credential, Limits, Request, Right};
use forebay_core::drive::Driver;
use forebay_core::event::{EventId, Net, Repository};
use forebay_core::ingest::{IngestTally, Ingestor, LedgerWriter, Sources, WriteCounts};
use forebay_core::ledger::EventRow;
use forebay_core::ledger::memory::MemoryLedger;
use forebay_core::ports::{ErrorClass, Ledger, Listing, TimeAndChance as _};
use forebay_core::schedule::memory::MemorySources;
use forebay_core::schedule::{
    DueSource, GivenBack, LedgerScheduler, Reading, Resting, Returned, ScheduleConfig, Scheduled, Scheduler,
    SourceClaim, SourceClaimed, SourceLease, SourceState, SourceStore, Storing,
};
use forebay_core::shed::memory::MemoryTargets;
use forebay_core::shed::{Shedder, TargetStore};
use forebay_core::source::github::{Feed, FeedConfig, FeedKind, HookLog, Recovery, RecoveryConfig};
use forebay_core::source::{Source, SourceId};
use forebay_core::target::TargetKey;
use jiff::{SignedDuration, Timestamp};

use crate::fakes::ManualTime;
use crate::github::{Asked, FakeGithub, Happening, HookTarget, InProcess, Occasion, Outcome, Shared, lock};
use crate::scripted::Scripted;
use crate::webhook::{Request as Posted, SECRET, Stand, environment};

/// Where the REST interface of the bench's GitHub is.
pub const BASE: &str = "https://api.github.com";
/// Where its hooks deliver to.
pub const ENDPOINT: &str = "https://forebay.example/api/intake/github";
/// How long after its beginning a round begins no poll, and how long a poll may take.
const ROUND_S: i64 = 20;
const POLL_S: i64 = 25;

/// A ledger in memory whose calls are counted and scripted.
pub type Kept = Scripted<MemoryLedger>;

/// GitHub, the webhook and what is polled.
pub struct Bench {
    /// The webhook on the bench's ledger, inboxes and clock.
    pub stand: Stand<Kept>,
    /// GitHub.
    pub fake: Shared,
    /// The way to it.
    pub wire: Wire,
    /// Rows of sources, which outlive every scheduler.
    pub rows: CountedSources,
    /// What is polled.
    pub sources: Sources,
    /// What keeps sources of sick targets from being polled.
    pub shedder: Shedder<MemoryTargets, ManualTime>,
    /// How feeds are read that are added from now on.
    pub feed: FeedConfig,
    /// Spans of every scheduler.
    pub schedule: ScheduleConfig,
    /// Polls at one time.
    pub concurrency: usize,
}

impl fmt::Debug for Bench {
    /// What is polled. Sources themselves have nothing to show.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sources.keys()).finish()
    }
}

/// What came of one round.
#[derive(Debug)]
pub struct Round {
    /// What the ingestor counted.
    pub tally: IngestTally,
    /// What the writer counted.
    pub written: WriteCounts,
    /// The requests that GitHub got.
    pub requests: Vec<Asked>,
    /// The calls of the store of sources.
    pub store: Vec<StoreCall>,
}

impl Round {
    /// Requests whose target contains `part`.
    #[must_use]
    pub fn asked(&self, part: &str) -> usize {
        self.requests.iter().filter(|asked| asked.target.contains(part)).count()
    }

    /// Calls of the store that write.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.store.iter().filter(|call| call.is_write()).count()
    }
}

/// The right of the bench's token.
#[must_use]
pub fn token() -> Credential {
    Credential {
        right: Right::Token,
        target: TargetKey::labeled_principal("api.github.com", "token", "github"),
    }
}

/// The right of the App where it is installed for `owner`.
#[must_use]
pub fn installation(owner: &str) -> Credential {
    Credential {
        right: Right::Installation(owner.to_owned()),
        target: TargetKey::oauth2("api.github.com", "421007", owner, "github"),
    }
}

/// The right of the App itself.
#[must_use]
pub fn app() -> Credential {
    Credential {
        right: Right::App,
        target: TargetKey::oauth2("api.github.com", "421007", "app", "github"),
    }
}

/// A repository.
///
/// # Panics
/// Where `name` is none.
#[must_use]
pub fn repository(name: &str) -> Repository {
    Repository::new(name).expect("a repository is owner/name")
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

/// Posts `fake`'s pending deliveries to the webhook of `stand`. Gives the statuses of its answers.
pub async fn deliver<L: Ledger + Clone, S: TargetStore>(fake: &Shared, stand: &Stand<L, S>) -> Vec<u16> {
    let posts = lock(fake).take_pending(stand.time.now());
    let mut statuses = Vec::new();
    for post in posts {
        let headers = post.headers.iter();
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.clone()));
        let request = Posted {
            headers: headers.collect(),
            body: post.body.into_bytes(),
        };
        let status = stand.post(&request).await.status();
        let outcome = Outcome::answered(status);
        lock(fake).record(
            post.delivery,
            outcome,
            SignedDuration::from_millis(120),
            stand.time.now(),
        );
        statuses.push(status);
    }
    statuses
}

impl Bench {
    /// A bench whose comments go to `reviewer` where they are about `acme/app`, and which forgets after 35 days.
    #[must_use]
    pub fn new() -> Self {
        Self::with(&[("ROUTES", "acme/app=reviewer"), ("RETENTION_DAYS", "35")])
    }

    /// A bench whose webhook has these variables besides the usual ones. GitHub has `acme/app`, and nothing is polled.
    #[must_use]
    pub fn with(variables: &[(&str, &str)]) -> Self {
        let mut environment = environment();
        for (name, value) in variables {
            environment.insert((*name).to_owned(), (*value).to_owned());
        }
        let stand = Stand::with(Scripted::new(MemoryLedger::new()), environment);
        let mut fake = FakeGithub::new(BASE, 0);
        fake.add_organization("acme");
        fake.add_repository("acme/app");
        let fake = fake.shared();
        let time = stand.time.clone();
        let api = InProcess {
            fake: Arc::clone(&fake),
            time: time.clone(),
        };
        Self {
            shedder: Shedder::new(MemoryTargets::new(), time, stand.config.shedder),
            schedule: ScheduleConfig {
                lease: SignedDuration::from_secs(50),
                skew: SignedDuration::from_secs(5),
            },
            stand,
            fake,
            wire: Wire::to(api),
            rows: CountedSources::default(),
            sources: Sources::new(),
            feed: FeedConfig {
                host: None,
                interval: SignedDuration::from_secs(60),
                read_all_every: SignedDuration::from_mins(60),
                backlog: SignedDuration::from_hours(24),
                limits: Limits::default(),
            },
            concurrency: 1,
        }
    }

    /// The clock's time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.stand.time.now()
    }

    /// Moves the clock.
    pub fn pass(&self, seconds: i64) {
        self.stand.time.pass(SignedDuration::from_secs(seconds));
    }

    /// Adds a source. Gives its id.
    pub fn add(&mut self, source: impl Source + 'static) -> SourceId {
        let id = source.id().clone();
        self.sources.insert(id.clone(), Box::new(source));
        id
    }

    /// Adds a feed of the repository `name`. Gives its id.
    pub fn add_feed(&mut self, kind: FeedKind, name: &str, credential: Credential) -> SourceId {
        let config = Arc::new(self.feed.clone());
        let api = Arc::new(self.wire.clone());
        self.add(Feed::new(api, kind, repository(name), credential, config))
    }

    /// Adds the logs of `log`. Gives their source's id.
    pub fn add_recovery(&mut self, log: HookLog, credential: Credential, config: RecoveryConfig) -> SourceId {
        let api = Arc::new(self.wire.clone());
        let store = self.stand.ledger.clone();
        self.add(Recovery::new(api, store, log, credential, Arc::new(config)))
    }

    /// A hook that delivers to the bench's webhook. Gives its id.
    pub fn add_hook(&self, target: &HookTarget) -> u64 {
        lock(&self.fake).add_hook(target, ENDPOINT, SECRET)
    }

    /// Lets something happen now.
    ///
    /// # Panics
    /// Where it cannot happen.
    pub fn happen(&self, occasion: &Occasion) -> Happening {
        self.happen_ago(occasion, 0)
    }

    /// Lets something happen that is so many seconds past.
    ///
    /// # Panics
    /// Where it cannot happen.
    pub fn happen_ago(&self, occasion: &Occasion, seconds: i64) -> Happening {
        let at = self.now() - SignedDuration::from_secs(seconds);
        let happened = lock(&self.fake).happen(occasion, at);
        happened.expect("what a test lets happen can happen")
    }

    /// Posts GitHub's pending deliveries to the webhook. Gives the statuses of its answers.
    pub async fn deliver(&self) -> Vec<u16> {
        deliver(&self.fake, &self.stand).await
    }

    /// A scheduler over the bench's rows, as a new environment makes one.
    ///
    /// # Panics
    /// Never: a store in memory takes every row.
    pub async fn scheduler(&self) -> LedgerScheduler<CountedSources, ManualTime> {
        let time = self.stand.time.clone();
        let scheduler = LedgerScheduler::new(self.rows.clone(), time, self.schedule, self.scheduled());
        scheduler.register().await.expect("a store in memory takes every row");
        scheduler
    }

    /// What a scheduler has to know of the sources.
    #[must_use]
    pub fn scheduled(&self) -> Vec<Scheduled> {
        let sources = self.sources.values();
        sources.map(|source| Scheduled::of(source.as_ref())).collect()
    }

    /// Polls what is due, in an environment of its own.
    pub async fn round(&self) -> Round {
        let scheduler = self.scheduler().await;
        self.round_by(&scheduler).await
    }

    /// Polls what `scheduler` says is due.
    pub async fn round_by(&self, scheduler: &impl Scheduler) -> Round {
        let asked_before = lock(&self.fake).requests().len();
        self.rows.take_calls();
        let last_start = self.now() + SignedDuration::from_secs(ROUND_S);
        let deadline = last_start + SignedDuration::from_secs(POLL_S);
        let driver = Driver {
            ledger: &self.stand.ledger,
            inboxes: &self.stand.inboxes,
            time: &self.stand.time,
            routing: &self.stand.config.routing,
            limits: &self.stand.config.limits,
        };
        let writer = LedgerWriter::new(driver, Net::Feed, deadline);
        let ingestor = Ingestor {
            scheduler,
            shedder: &self.shedder,
            writer: &writer,
            time: &self.stand.time,
            concurrency: self.concurrency,
            poll_time_max: SignedDuration::from_secs(POLL_S),
        };
        // Boxed: futures within futures are too large for the stack of a test's thread.
        let tally = Box::pin(ingestor.run(&self.sources, last_start, deadline)).await;
        let requests = lock(&self.fake).requests().iter().skip(asked_before).cloned().collect();
        Round {
            tally,
            written: writer.take_counts(),
            requests,
            store: self.rows.take_calls(),
        }
    }

    /// How a source's claim stands.
    ///
    /// # Panics
    /// Where it has none.
    #[must_use]
    pub fn row(&self, source: &SourceId) -> SourceState {
        self.rows
            .inner
            .state(source)
            .expect("a source that has been registered")
    }

    /// How far a source has been read, in its own words.
    #[must_use]
    pub fn cursor(&self, source: &SourceId) -> Option<String> {
        let cursor = self.rows.inner.cursor(source);
        cursor.map(|cursor| cursor.as_str().to_owned())
    }

    /// An event's row.
    ///
    /// # Panics
    /// Never: a ledger in memory answers.
    pub async fn event(&self, id: &str) -> Option<EventRow> {
        let row = self.stand.ledger.inner().event(&EventId::new(id)).await;
        row.expect("a ledger in memory answers")
    }

    /// The ids of all events.
    ///
    /// # Panics
    /// Never: a ledger in memory answers.
    pub async fn events(&self) -> Vec<String> {
        let listing = Listing {
            what: forebay_core::ports::Listed::Events,
            since: Timestamp::MIN,
            until: Timestamp::MAX,
            limit: usize::MAX,
        };
        let rows = self.stand.ledger.inner().events(&listing).await;
        let rows = rows.expect("a ledger in memory answers");
        rows.into_iter().map(|row| row.event.id.to_string()).collect()
    }

    /// The ids of the events that inboxes got, in the order of sending.
    ///
    /// # Panics
    /// Where a message is no event.
    #[must_use]
    pub fn sent(&self) -> Vec<String> {
        let messages = self.stand.inboxes.all().into_iter();
        let id = |body: &str| -> String {
            let event: serde_json::Value = serde_json::from_str(body).expect("a message is JSON");
            event["id"].as_str().expect("an event has an id").to_owned()
        };
        messages.map(|message| id(&message.body)).collect()
    }
}

/// Changes answers on their way.
type Bend = Box<dyn Fn(Answer) -> Result<Answer, ErrorClass> + Send>;

struct Rule {
    part: String,
    left: usize,
    bend: Bend,
    /// Requests never arrive.
    is_cut: bool,
}

/// The way to the fake, on which a test changes answers. GitHub has got every request all the same.
#[derive(Clone)]
pub struct Wire {
    api: InProcess,
    rules: Arc<Mutex<Vec<Rule>>>,
}

impl fmt::Debug for Wire {
    /// Where it leads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

impl Wire {
    /// The way to `api`.
    #[must_use]
    pub fn to(api: InProcess) -> Self {
        Self {
            api,
            rules: Arc::default(),
        }
    }

    /// The next `times` answers to requests whose URL contains `part` become what `bend` makes of them.
    pub fn bend(&self, part: &str, times: usize, bend: impl Fn(Answer) -> Result<Answer, ErrorClass> + Send + 'static) {
        self.rules().push(Rule {
            part: part.to_owned(),
            left: times,
            bend: Box::new(bend),
            is_cut: false,
        });
    }

    /// The next `times` requests whose URL contains `part` never arrive, and fail like this.
    pub fn cut(&self, part: &str, times: usize, class: ErrorClass) {
        self.rules().push(Rule {
            part: part.to_owned(),
            left: times,
            bend: Box::new(move |_| Err(class)),
            is_cut: true,
        });
    }

    /// The next `times` requests whose URL contains `part` never arrive, and are answered like this on the way.
    pub fn cut_as(&self, part: &str, times: usize, answer: Answer) {
        self.rules().push(Rule {
            part: part.to_owned(),
            left: times,
            bend: Box::new(move |_| Ok(answer.clone())),
            is_cut: true,
        });
    }

    /// From now on answers arrive as they were given.
    pub fn mend(&self) {
        self.rules().clear();
    }

    /// What `look` makes of the rule that is for this URL.
    fn rule<R>(&self, url: &str, look: impl FnOnce(&mut Rule) -> R) -> Option<R> {
        let mut rules = self.rules();
        let mut rules = rules.iter_mut();
        rules.find(|rule| rule.left > 0 && url.contains(&rule.part)).map(look)
    }

    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Api for Wire {
    async fn ask(&self, request: Request<'_>) -> Result<Answer, ApiError> {
        let is_cut = self.rule(request.url, |rule| rule.is_cut) == Some(true);
        let answer = if is_cut {
            Answer::default()
        } else {
            self.api.ask(request).await?
        };
        let bent = self.rule(request.url, |rule| {
            rule.left -= 1;
            (rule.bend)(answer.clone())
        });
        bent.unwrap_or(Ok(answer)).map_err(|class| ApiError {
            on: request.url.to_owned(),
            class,
            source: None,
        })
    }
}

/// A call of a store of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the method of that name")]
pub enum StoreCall {
    Register,
    Due,
    Claim,
    Read,
    RestingTargets,
    GiveBack,
    PutOff,
    Rest,
}

impl StoreCall {
    /// Whether it writes.
    #[must_use]
    pub const fn is_write(self) -> bool {
        match self {
            Self::Register | Self::Claim | Self::GiveBack | Self::PutOff | Self::Rest => true,
            Self::Due | Self::Read | Self::RestingTargets => false,
        }
    }
}

/// Rows of sources in memory, whose calls are counted. Each call lets other tasks run before it happens and before it
/// answers, as a call over a network does. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct CountedSources {
    /// The rows, whose calls nobody counts.
    pub inner: MemorySources,
    calls: Arc<Mutex<Vec<StoreCall>>>,
}

impl CountedSources {
    /// The calls since this was last asked.
    pub fn take_calls(&self) -> Vec<StoreCall> {
        std::mem::take(&mut *self.calls())
    }

    /// How often each call was made.
    #[must_use]
    pub fn counted(calls: &[StoreCall]) -> BTreeMap<StoreCall, usize> {
        let mut counts = BTreeMap::new();
        for call in calls {
            *counts.entry(*call).or_default() += 1;
        }
        counts
    }

    fn calls(&self) -> MutexGuard<'_, Vec<StoreCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn count<R>(&self, call: StoreCall, inner: impl Future<Output = Storing<R>> + Send) -> Storing<R> {
        self.calls().push(call);
        tokio::task::yield_now().await;
        let answer = inner.await;
        tokio::task::yield_now().await;
        answer
    }
}

impl SourceStore for CountedSources {
    async fn register_sources(&self, sources: &[(SourceId, SignedDuration)], now: Timestamp) -> Storing<usize> {
        let inner = self.inner.register_sources(sources, now);
        self.count(StoreCall::Register, inner).await
    }

    async fn due_sources(&self, until: Timestamp, after: Option<&DueSource>, limit: usize) -> Storing<Vec<DueSource>> {
        let inner = self.inner.due_sources(until, after, limit);
        self.count(StoreCall::Due, inner).await
    }

    async fn claim_source(&self, source: &SourceId, claim: SourceClaim) -> Storing<SourceClaimed> {
        let inner = self.inner.claim_source(source, claim);
        self.count(StoreCall::Claim, inner).await
    }

    async fn read_source(&self, source: &SourceId, target: &TargetKey) -> Storing<Reading> {
        let inner = self.inner.read_source(source, target);
        self.count(StoreCall::Read, inner).await
    }

    async fn resting_targets(&self, targets: &[TargetKey]) -> Storing<Vec<Option<Resting>>> {
        let inner = self.inner.resting_targets(targets);
        self.count(StoreCall::RestingTargets, inner).await
    }

    async fn give_back_source(&self, lease: SourceLease, now: Timestamp, given: GivenBack) -> Storing<Returned> {
        let inner = self.inner.give_back_source(lease, now, given);
        self.count(StoreCall::GiveBack, inner).await
    }

    async fn put_off_source(
        &self,
        due: &DueSource,
        until: Timestamp,
        now: Timestamp,
        skew: SignedDuration,
    ) -> Storing<()> {
        let inner = self.inner.put_off_source(due, until, now, skew);
        self.count(StoreCall::PutOff, inner).await
    }

    async fn rest_target(&self, target: &TargetKey, resting: Resting) -> Storing<()> {
        let inner = self.inner.rest_target(target, resting);
        self.count(StoreCall::Rest, inner).await
    }
}
