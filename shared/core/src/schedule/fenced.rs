//! The scheduler over rows of sources: in the ledger, so that many pollers share it, or in memory, for one that is alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use super::memory::MemorySources;
use super::row::{SourceLease, SourceState};
use super::store::{DueSource, Resting, SourceClaim, SourceClaimed, SourceStore};
use super::{Ended, Held, Returned, ScheduleConfig, Scheduled, Scheduler, UNKNOWN_WAIT, outcome};
use crate::ledger::Nonce;
use crate::ports::{ErrorClass, LedgerError, TimeAndChance};
use crate::source::{FailedPoll, Placement, Poll, PollError, SourceId};
use crate::target::TargetKey;

/// Sources that are looked for at once.
const DUE_ROWS: usize = 50;
/// Sources that have waited for less than this keep their order when they are put off.
const ORDER_KEPT: SignedDuration = SignedDuration::from_hours(24);
/// Over how long a time they are spread then. A minute's wait is three milliseconds.
const ORDER_SPREAD: SignedDuration = SignedDuration::from_secs(4);
const ORDER_SCALE: i32 = 21_600;
const _: () = assert!(ORDER_KEPT.as_secs() == ORDER_SPREAD.as_secs() * ORDER_SCALE as i64);
/// How long after its end a limit still counts as one in a row.
const STRIKES_KEPT: SignedDuration = SignedDuration::from_secs(900);

/// Hands out sources by their rows in a store that pollers share: oldest due first, each to one poller at a time.
///
/// What is to be polled by everybody is kept in memory: there is nothing to agree on.
#[derive(Debug)]
pub struct LedgerScheduler<S, T> {
    store: S,
    own: MemorySources,
    time: T,
    config: ScheduleConfig,
    sources: BTreeMap<SourceId, Scheduled>,
    /// Not all that there are: rows of others are left as they are.
    is_partial: bool,
    run: Mutex<Run>,
}

/// What one run has found so far.
#[derive(Debug, Default)]
struct Run {
    found: VecDeque<DueSource>,
    /// Where the next page of what is due begins.
    after: Option<DueSource>,
    /// Behind that there was nothing.
    all_found: bool,
    resting: Option<BTreeMap<TargetKey, Resting>>,
    /// What was handed out last is polled by everybody: something else has its turn.
    was_own: bool,
    /// A row that could not be read. It is told when everything else has had its turn.
    unreadable: Option<LedgerError>,
}

impl<S: SourceStore, T: TimeAndChance> LedgerScheduler<S, T> {
    /// A scheduler of `sources` over `store`. Those that have no row yet are not handed out before [`Self::register`].
    #[must_use]
    pub fn new(store: S, time: T, config: ScheduleConfig, sources: impl IntoIterator<Item = Scheduled>) -> Self {
        Self {
            store,
            own: MemorySources::new(),
            time,
            config,
            sources: sources.into_iter().map(|source| (source.id.clone(), source)).collect(),
            is_partial: false,
            run: Mutex::default(),
        }
    }

    /// The same, where it could not be learnt what all the sources are. Those that it does not know are not put off, as they
    /// would be if nobody polled them any more.
    #[must_use]
    pub fn partial(self) -> Self {
        Self {
            is_partial: true,
            ..self
        }
    }

    /// Makes rows for the sources that have none. Gives how many.
    ///
    /// # Errors
    /// [`LedgerError`] where that is not known: do it again before the next run.
    pub async fn register(&self) -> Result<usize, LedgerError> {
        let now = self.time.now();
        let (own, shared): (Vec<&Scheduled>, Vec<&Scheduled>) = self
            .sources
            .values()
            .partition(|source| source.placement == Placement::PerReplica);
        let rows = |sources: Vec<&Scheduled>| -> Vec<(SourceId, SignedDuration)> {
            let row = |source: &Scheduled| (source.id.clone(), source.least(&self.config));
            sources.into_iter().map(row).collect()
        };
        let made = self.own.register_sources(&rows(own), now).await?;
        Ok(made.saturating_add(self.store.register_sources(&rows(shared), now).await?))
    }

    /// The rows.
    pub fn store(&self) -> &S {
        &self.store
    }

    fn run(&self) -> MutexGuard<'_, Run> {
        // Whatever a panic leaves behind is only a reading of rows, whose claims decide.
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn targets(&self) -> Vec<TargetKey> {
        let distinct: BTreeSet<&TargetKey> = self.sources.values().map(|source| &source.target).collect();
        distinct.into_iter().cloned().collect()
    }

    /// Reads once in a run which targets are to be left alone.
    async fn learn_resting(&self) -> Result<(), LedgerError> {
        if self.run().resting.is_some() {
            return Ok(());
        }
        let targets = self.targets();
        let read = self.store.resting_targets(&targets).await?;
        let resting = targets.into_iter().zip(read);
        let resting = resting
            .filter_map(|(target, resting)| Some((target, resting?)))
            .collect();
        self.run().resting = Some(resting);
        Ok(())
    }

    fn resting(&self, target: &TargetKey, now: Timestamp) -> Option<Resting> {
        let run = self.run();
        let resting = run.resting.as_ref()?.get(target)?;
        (now < resting.until).then_some(*resting)
    }

    /// Never shortens what was noted.
    fn note_resting(&self, target: &TargetKey, resting: Resting) {
        let mut run = self.run();
        let noted = run.resting.get_or_insert_default();
        let noted = noted.entry(target.clone()).or_insert(resting);
        if noted.until < resting.until {
            *noted = resting;
        }
    }

    fn all_rest(&self, now: Timestamp) -> bool {
        self.sources
            .values()
            .all(|source| self.resting(&source.target, now).is_some())
    }

    /// The next row that is due. Starts anew after the last one.
    async fn find(&self, now: Timestamp) -> Result<Option<DueSource>, LedgerError> {
        let (found, all_found, after) = {
            let mut run = self.run();
            (run.found.pop_front(), run.all_found, run.after.clone())
        };
        if found.is_some() {
            return Ok(found);
        }
        if all_found {
            self.forget_place();
            return Ok(None);
        }
        let page = self.store.due_sources(now, after.as_ref(), DUE_ROWS).await?;
        let mut run = self.run();
        run.all_found = page.len() < DUE_ROWS;
        run.after = page.last().cloned();
        run.found = page.into();
        let first = run.found.pop_front();
        drop(run);
        if first.is_none() {
            self.forget_place();
        }
        Ok(first)
    }

    fn forget_place(&self) {
        let mut run = self.run();
        run.after = None;
        run.all_found = false;
    }

    fn claim_now(&self) -> SourceClaim {
        SourceClaim {
            now: self.time.now(),
            nonce: Nonce::from_random(self.time.random()),
            lease: self.config.lease,
            skew: self.config.skew,
        }
    }

    /// The next of those that everybody polls.
    async fn next_own(&self, now: Timestamp) -> Result<Option<Held>, LedgerError> {
        for due in self.own.due_sources(now, None, usize::MAX).await? {
            let Some(source) = self.sources.get(&due.source) else {
                continue;
            };
            if self.resting(&source.target, now).is_some() {
                continue;
            }
            if let SourceClaimed::Won(lease, state) = self.own.claim_source(&due.source, self.claim_now()).await? {
                let cursor = self.own.cursor(&due.source);
                return Ok(Some(self.held(source, lease, state, cursor, 0)));
            }
        }
        Ok(None)
    }

    fn held(
        &self,
        source: &Scheduled,
        lease: SourceLease,
        state: SourceState,
        cursor: Option<crate::source::Cursor>,
        strikes: u32,
    ) -> Held {
        Held {
            source: source.id.clone(),
            cursor,
            strikes,
            lease,
            state,
            placement: source.placement,
        }
    }

    /// Claims what was found due, unless it is not to be polled now.
    async fn take(&self, due: &DueSource) -> Result<Option<Held>, LedgerError> {
        let now = self.time.now();
        let put_off = async |until| self.store.put_off_source(due, until, now, self.config.skew).await;
        let Some(source) = self.sources.get(&due.source) else {
            if self.is_partial {
                return Ok(None);
            }
            put_off(now.saturating_add(UNKNOWN_WAIT).unwrap_or(Timestamp::MAX)).await?;
            return Ok(None);
        };
        if let Some(resting) = self.resting(&source.target, now) {
            put_off(in_order(due, resting.until)).await?;
            return Ok(None);
        }
        let (lease, state) = match self.store.claim_source(&due.source, self.claim_now()).await {
            Ok(SourceClaimed::Won(lease, state)) => (lease, state),
            Ok(SourceClaimed::Lost(_)) => return Ok(None),
            Err(error) if error.class == ErrorClass::Unreadable => {
                // Invariants 5 and 10: it fails alone, and is moved on.
                self.run().unreadable = Some(error);
                put_off(now.saturating_add(UNKNOWN_WAIT).unwrap_or(Timestamp::MAX)).await?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let reading = match self.store.read_source(&due.source, &source.target).await {
            Err(error) if error.class == ErrorClass::Unreadable => {
                // How far it has been read is not known, nor whether its target may be asked: it is not polled.
                self.give_back_unread(source, lease, &state, error).await?;
                return Ok(None);
            }
            read => read?,
        };
        let now = self.time.now();
        if let Some(resting) = reading.resting.filter(|resting| now < resting.until) {
            // Another poller was told meanwhile.
            self.note_resting(&source.target, resting);
            let mut given = outcome(&state, &Ended::Shed, source.least(&self.config), now, 0).given;
            given.due_at = in_order(due, resting.until);
            given.note.clone_from(&state.note);
            self.store.give_back_source(lease, now, given).await?;
            return Ok(None);
        }
        let strikes = reading.resting.filter(|resting| {
            let still = resting.until.saturating_add(STRIKES_KEPT).unwrap_or(Timestamp::MAX);
            now < still
        });
        let strikes = strikes.map_or(0, |resting| resting.strikes);
        Ok(Some(self.held(source, lease, state, reading.cursor, strikes)))
    }

    /// Gives back a source that cannot be polled because of a row that cannot be read. Its own row says so.
    async fn give_back_unread(
        &self,
        source: &Scheduled,
        lease: SourceLease,
        state: &SourceState,
        error: LedgerError,
    ) -> Result<(), LedgerError> {
        let now = self.time.now();
        let unkept: Result<Poll, Box<FailedPoll>> = Err(PollError::Unkept {
            source_id: source.id.clone(),
            source: error,
        }
        .into());
        let given = outcome(state, &Ended::Polled(&unkept), source.least(&self.config), now, 0).given;
        if let Err(failed) = unkept
            && let PollError::Unkept { source, .. } = failed.error
        {
            self.run().unreadable = Some(source);
        }
        self.store.give_back_source(lease, now, given).await.map(drop)
    }
}

/// When a source is due whose target rests until then: whoever has waited longer is due sooner. Put off to one and the same
/// instant, those that come last in the alphabet would never be polled where a target lets few be.
fn in_order(due: &DueSource, until: Timestamp) -> Timestamp {
    let waited = until.duration_since(due.due_at);
    let behind = ORDER_KEPT.saturating_sub(waited).max(SignedDuration::ZERO);
    let spread = behind.checked_div(ORDER_SCALE).unwrap_or_default();
    until.saturating_add(spread.min(ORDER_SPREAD)).unwrap_or(until)
}

impl<S: SourceStore, T: TimeAndChance> Scheduler for LedgerScheduler<S, T> {
    async fn next(&self, last_start: Timestamp) -> Result<Option<Held>, LedgerError> {
        self.learn_resting().await?;
        loop {
            let now = self.time.now();
            if now > last_start || self.all_rest(now) {
                return Ok(None);
            }
            // What everybody polls may always be due. It takes turns with the others.
            let was_own = std::mem::take(&mut self.run().was_own);
            if !was_own && let Some(held) = self.next_own(now).await? {
                self.run().was_own = true;
                return Ok(Some(held));
            }
            let found = match self.find(now).await? {
                Some(due) => self.take(&due).await?,
                None if was_own => self.next_own(now).await?,
                None => {
                    let unreadable = self.run().unreadable.take();
                    return unreadable.map_or(Ok(None), Err);
                }
            };
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    async fn give_back(&self, held: Held, ended: Ended<'_>) -> Result<Returned, LedgerError> {
        let now = self.time.now();
        let Some(source) = self.sources.get(&held.source) else {
            return Ok(Returned::Kept);
        };
        let outcome = outcome(&held.state, &ended, source.least(&self.config), now, self.time.random());
        if let Some(span) = outcome.rests {
            let resting = Resting {
                until: now.saturating_add(span).unwrap_or(Timestamp::MAX),
                strikes: if outcome.is_strike {
                    held.strikes.saturating_add(1)
                } else {
                    held.strikes
                },
            };
            self.note_resting(&source.target, resting);
            self.store.rest_target(&source.target, resting).await?;
        }
        if held.placement == Placement::PerReplica {
            return self.own.give_back_source(held.lease, now, outcome.given).await;
        }
        if outcome.given.is_known_to(&held.state) {
            return Ok(Returned::Kept);
        }
        self.store.give_back_source(held.lease, now, outcome.given).await
    }
}

/// Hands out sources without agreeing with anybody: for development, tests, and a process that is alone.
#[derive(Debug)]
pub struct NaiveScheduler<T>(LedgerScheduler<MemorySources, T>);

impl<T: TimeAndChance> NaiveScheduler<T> {
    /// A scheduler of `sources`, all of them due at once.
    ///
    /// # Errors
    /// Never, in memory.
    pub async fn new(
        time: T,
        config: ScheduleConfig,
        sources: impl IntoIterator<Item = Scheduled>,
    ) -> Result<Self, LedgerError> {
        let scheduler = LedgerScheduler::new(MemorySources::new(), time, config, sources);
        scheduler.register().await?;
        Ok(Self(scheduler))
    }
}

impl<T: TimeAndChance> Scheduler for NaiveScheduler<T> {
    async fn next(&self, last_start: Timestamp) -> Result<Option<Held>, LedgerError> {
        self.0.next(last_start).await
    }

    async fn give_back(&self, held: Held, ended: Ended<'_>) -> Result<Returned, LedgerError> {
        self.0.give_back(held, ended).await
    }
}
