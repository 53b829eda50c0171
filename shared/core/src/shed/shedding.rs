//! The shedder in front of inboxes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::{join, join_all};
use jiff::{SignedDuration, Timestamp};

use super::ShedderConfig;
use super::judge::{Health, Judgement, TargetState, judge, probed};
use super::slots::{Counts, Observation, SLOT, SlotNumber, Slots, Window};
use super::store::{Moved, ReadTarget, SLOT_SHARDS, TargetStore};
use crate::backoff::scramble;
use crate::ledger::{Nonce, Sent};
use crate::ports::{Inboxes, LedgerError, Outgoing, TimeAndChance};
use crate::target::TargetKey;

/// An environment writes what it has seen of a target no more often than this, apart from a first error.
const FLUSH_EVERY: SignedDuration = SLOT;
const FLUSH_EVERY_MS: i64 = 5_000;
const _: () = assert!(FLUSH_EVERY.as_millis() == FLUSH_EVERY_MS as i128);
/// An error is written at once if none was written for this long. Fifty environments then stay under twelve writes a second
/// together whatever the share of errors is: ten flushes, and at most 50 / (15 s · e) first errors.
const ERROR_QUIET: SignedDuration = SignedDuration::from_secs(15);
/// Fewest observations without an error that are worth a write.
const FLUSH_SAMPLES_MIN: u64 = 10;
/// How long fewer than that are held back. Then each of them counts for ten with a chance of one in ten, and for nothing
/// otherwise: what is counted stays right in the mean, and a write is worth ten all the same. To drop them instead would
/// leave the errors of many quiet environments without the successes beside them.
const HELD_MAX: SignedDuration = SignedDuration::from_secs(15);
/// Most changes of a target's state that one send goes through. Each but the last was lost to somebody else.
const ROUNDS_MAX: usize = 4;
/// Most changes that are kept for whoever asks for them.
const NOTES_MAX: usize = 64;
/// How long a state that was written here outranks an older one that is read: reads may lag.
const OWN_WRITE_KNOWN: SignedDuration = SignedDuration::from_secs(10);

/// A change of a target's state that was made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The inbox behind which the target is.
    pub inbox: String,
    /// The target.
    pub target: TargetKey,
    /// How it stood.
    pub from: Health,
    /// How it stands.
    pub to: Health,
}

/// What happened since it was last asked for.
#[derive(Debug, Default)]
pub struct Notes {
    /// Messages that were not sent because their target is shed.
    pub shed: u64,
    /// Changes of states, at most 64.
    pub changed: Vec<Changed>,
    /// Calls of the shedder's own store that failed; the work was let through.
    pub unavailable: u64,
    /// The last of these failures.
    pub trouble: Option<LedgerError>,
}

/// Inboxes behind a shedder: what is meant for a shed target is not sent and says so.
#[derive(Debug)]
pub struct Shedding<I, S, T> {
    inner: I,
    store: S,
    time: T,
    config: ShedderConfig,
    /// The target behind each inbox.
    targets: BTreeMap<String, TargetKey>,
    shard: u64,
    /// Where this environment's intervals between two flushes begin, so that those of many are spread.
    phase_ms: i64,
    known: Mutex<BTreeMap<String, Known>>,
    notes: Mutex<Notes>,
}

/// What this environment knows of one target.
#[derive(Debug, Default)]
struct Known {
    read: Option<Read>,
    /// Observed here and not written yet.
    pending: Slots,
    flushed_in: Option<i64>,
    error_flushed_at: Option<Timestamp>,
}

#[derive(Debug)]
struct Read {
    /// When it was asked for: it is at least as old as that.
    asked_at: Timestamp,
    /// What was read; `None` where the store failed.
    target: Option<ReadTarget>,
}

/// Whether a message goes to its target.
enum Verdict {
    Open,
    /// One does, under the lease in this state.
    Probe(TargetState),
    Shed,
}

impl<I: Inboxes, S: TargetStore, T: TimeAndChance> Shedding<I, S, T> {
    /// A shedder in front of `inner`, for the targets behind these inboxes. Others pass.
    #[must_use]
    pub fn new(inner: I, store: S, time: T, config: ShedderConfig, targets: BTreeMap<String, TargetKey>) -> Self {
        let chance = time.random();
        Self {
            inner,
            store,
            shard: chance.checked_rem(SLOT_SHARDS).unwrap_or_default(),
            // The upper half, or the shard would say when its environments write.
            phase_ms: i64::try_from(chance >> 33)
                .unwrap_or_default()
                .wrapping_rem(FLUSH_EVERY_MS),
            time,
            config,
            targets,
            known: Mutex::default(),
            notes: Mutex::default(),
        }
    }

    /// The inboxes behind it.
    pub fn inner(&self) -> &I {
        &self.inner
    }

    /// Its store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// What happened since this was last asked.
    pub fn take_notes(&self) -> Notes {
        std::mem::take(&mut *self.notes())
    }

    async fn send_to(&self, inbox: &str, messages: Vec<Outgoing>) -> Vec<Sent> {
        let Some(target) = self.targets.get(inbox) else {
            return self.inner.send(messages).await;
        };
        let count = messages.len();
        match self.verdict(inbox, target).await {
            Verdict::Open => {
                let (outcomes, observation, now) = self.call(messages).await;
                self.observe(inbox, target, observation, now).await;
                outcomes
            }
            Verdict::Probe(probing) => {
                // One message is enough to ask by, and one is all that is risked.
                let mut messages = messages;
                messages.truncate(1);
                let (mut outcomes, observation, now) = self.call(messages).await;
                let told = async {
                    if let Some(health) = probed(observation, &self.config) {
                        self.change(inbox, target, &probing, health).await;
                    }
                };
                join(told, self.observe(inbox, target, observation, now)).await;
                self.note_shed(count.saturating_sub(outcomes.len()));
                outcomes.resize(count, Sent::Shed);
                outcomes
            }
            Verdict::Shed => {
                self.note_shed(count);
                vec![Sent::Shed; count]
            }
        }
    }

    /// Sends, and says what that showed of the target, and when.
    async fn call(&self, messages: Vec<Outgoing>) -> (Vec<Sent>, Option<Observation>, Timestamp) {
        let began = self.time.now();
        let outcomes = self.inner.send(messages).await;
        let now = self.time.now();
        let observation = observation(&outcomes, now.duration_since(began));
        (outcomes, observation, now)
    }

    async fn verdict(&self, inbox: &str, target: &TargetKey) -> Verdict {
        let now = self.time.now();
        if self.wants_read(inbox, now, self.config.cache) {
            self.read(inbox, target, now).await;
        }
        for _ in 0..ROUNDS_MAX {
            let Some((state, judgement)) = self.judged(inbox, now) else {
                return Verdict::Open;
            };
            match judgement {
                Judgement::Open => return Verdict::Open,
                Judgement::Shed => return Verdict::Shed,
                Judgement::Ramp(share) if share.admits(self.time.random()) => return Verdict::Open,
                Judgement::Ramp(_) => return Verdict::Shed,
                Judgement::Change(health) => match self.change(inbox, target, &state, health).await {
                    Some(changed) if health == Health::Probing => return Verdict::Probe(changed),
                    Some(_) => {}
                    None if self.state_is(inbox, &state) => return as_it_stands(state.health),
                    // Somebody was faster, and what became of it is known now.
                    None => {}
                },
            }
        }
        self.judged(inbox, now)
            .map_or(Verdict::Open, |(state, _)| as_it_stands(state.health))
    }

    /// Reads what is known of a target, and writes beside that what is due to be written. What is read may be without it, and
    /// then it is known here from the next read on: to count it twice for that long could shed what is well.
    async fn read(&self, inbox: &str, target: &TargetKey, now: Timestamp) {
        let reach = now.saturating_sub(self.config.reach()).unwrap_or(Timestamp::MIN);
        let chance = self.time.random();
        let due = self
            .known()
            .entry(inbox.to_owned())
            .or_default()
            .take_due(now, self.phase_ms, &self.config, chance);
        let flush = async {
            match due {
                Some(batch) => self.flush(target, &batch).await,
                None => Ok(()),
            }
        };
        let (read, flushed) = join(self.store.read(target, SlotNumber::of(reach)), flush).await;
        let read = self.answered(read);
        self.answered(flushed);
        self.known().entry(inbox.to_owned()).or_default().learn(now, read);
    }

    async fn flush(&self, target: &TargetKey, batch: &Batch) -> Result<(), LedgerError> {
        self.store.add(target, batch.slot, self.shard, &batch.counts).await
    }

    /// Keeps an observation. The first error in a while is written at once, and so is what follows from it.
    async fn observe(&self, inbox: &str, target: &TargetKey, observation: Option<Observation>, now: Timestamp) {
        let Some(observation) = observation else { return };
        let chance = self.time.random();
        self.known()
            .entry(inbox.to_owned())
            .or_default()
            .pending
            .add(now, observation);
        let judged = match observation {
            Observation::Error => self.judged(inbox, now),
            Observation::Success(_) => None,
        };
        let due = {
            let mut known = self.known();
            let known = known.entry(inbox.to_owned()).or_default();
            match observation {
                Observation::Error => known.take_error(now, self.phase_ms, &self.config),
                Observation::Success(_) => known.take_first(now, self.phase_ms, &self.config, chance),
            }
        };
        let flush = async {
            let Some(batch) = due else { return };
            let flushed = self.flush(target, &batch).await;
            if self.answered(flushed).is_some() {
                // Until it is read again, it is known here all the same.
                self.known().entry(inbox.to_owned()).or_default().add_read(&batch);
            }
        };
        let change = async {
            if let Some((state, Judgement::Change(Health::Shed))) = judged {
                self.change(inbox, target, &state, Health::Shed).await;
            }
        };
        join(flush, change).await;
    }

    /// Moves a target on. Gives its state if that was done here.
    async fn change(&self, inbox: &str, target: &TargetKey, from: &TargetState, health: Health) -> Option<TargetState> {
        let to = from.next(
            health,
            Nonce::from_random(self.time.random()),
            self.time.now(),
            &self.config,
        );
        let moved = self.store.change(target, from, &to).await;
        let (state, done) = match self.answered(moved)? {
            Moved::Done => (to, true),
            Moved::Lost(current) => (current, false),
        };
        if let Some(read) = self.known().entry(inbox.to_owned()).or_default().read_target() {
            read.state = state;
        }
        if !done {
            return None;
        }
        let mut notes = self.notes();
        if notes.changed.len() < NOTES_MAX {
            notes.changed.push(Changed {
                inbox: inbox.to_owned(),
                target: target.clone(),
                from: from.health,
                to: health,
            });
        }
        Some(to)
    }

    /// What follows for a target from what was read of it and seen of it here. `None` where nothing could be read.
    fn judged(&self, inbox: &str, now: Timestamp) -> Option<(TargetState, Judgement)> {
        let known = self.known();
        let known = known.get(inbox)?;
        let read = known.read.as_ref()?.target.as_ref()?;
        let mut slots = read.slots.clone();
        slots.merge_all(&known.pending);
        Some((read.state, judge(&read.state, &slots, now, &self.config)))
    }

    fn state_is(&self, inbox: &str, state: &TargetState) -> bool {
        self.known()
            .get_mut(inbox)
            .and_then(Known::read_target)
            .is_none_or(|read| read.state.is_same_as(state))
    }

    /// Whether what is known of a target is older than `age_max`, or it is time to write something.
    fn wants_read(&self, inbox: &str, now: Timestamp, age_max: SignedDuration) -> bool {
        let known = self.known();
        known.get(inbox).is_none_or(|known| {
            !known.is_fresh(now, age_max, &self.config) || known.is_due(now, self.phase_ms, &self.config)
        })
    }

    /// What the store answered; a failure is counted and costs nothing else.
    fn answered<R>(&self, answer: Result<R, LedgerError>) -> Option<R> {
        answer
            .map_err(|error| {
                let mut notes = self.notes();
                notes.unavailable = notes.unavailable.saturating_add(1);
                notes.trouble = Some(error);
            })
            .ok()
    }

    fn note_shed(&self, messages: usize) {
        let mut notes = self.notes();
        notes.shed = notes.shed.saturating_add(u64::try_from(messages).unwrap_or(u64::MAX));
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        // Whole entries are left behind by a panic: each is changed in one go.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a target gets whose next state could not be written: as much as in the state that it is in.
fn as_it_stands(health: Health) -> Verdict {
    match health {
        Health::Healthy | Health::Probation => Verdict::Open,
        Health::Shed | Health::Probing => Verdict::Shed,
    }
}

/// What the outcomes of one call show of its target: one observation, however many messages it carried.
///
/// That a target is busy, that we may not use it, and that it refuses a message say nothing of its health.
fn observation(outcomes: &[Sent], latency: SignedDuration) -> Option<Observation> {
    if outcomes.contains(&Sent::Unreachable) {
        Some(Observation::Error)
    } else if outcomes.contains(&Sent::Yes) {
        Some(Observation::Success(latency))
    } else {
        None
    }
}

impl Known {
    fn is_fresh(&self, now: Timestamp, age_max: SignedDuration, config: &ShedderConfig) -> bool {
        self.read.as_ref().is_some_and(|read| {
            let age = now.duration_since(read.asked_at);
            // A store that fails is not asked more often than that: whoever asks waits.
            let age_max = if read.target.is_some() { age_max } else { config.cache };
            // A clock that was set back makes nothing fresh.
            !age.is_negative() && age < age_max
        })
    }

    fn read_target(&mut self) -> Option<&mut ReadTarget> {
        self.read.as_mut()?.target.as_mut()
    }

    /// Takes what was read, unless something newer was read meanwhile.
    fn learn(&mut self, asked_at: Timestamp, mut target: Option<ReadTarget>) {
        let overtaken = self.read.as_ref().is_some_and(|read| {
            let ahead = read.asked_at.duration_since(asked_at);
            // Further ahead than that it is the clock that was set back.
            ahead.is_positive() && ahead < OWN_WRITE_KNOWN
        });
        if overtaken {
            return;
        }
        let own = self.read_target().map(|read| read.state);
        if let (Some(own), Some(target)) = (own, target.as_mut()) {
            let lags = target.state.token < own.token && asked_at.duration_since(own.since) < OWN_WRITE_KNOWN;
            if lags {
                target.state = own;
            }
        }
        self.read = Some(Read { asked_at, target });
    }

    fn add_read(&mut self, batch: &Batch) {
        if let Some(read) = self.read_target() {
            read.slots.merge(batch.slot, &batch.counts);
        }
    }

    /// Whether something is to be written in the ordinary course: once in an interval, and only if it is worth it.
    fn is_due(&self, now: Timestamp, phase_ms: i64, config: &ShedderConfig) -> bool {
        if self.pending.0.is_empty() || self.flushed_in == Some(interval(now, phase_ms)) {
            return false;
        }
        let held_too_long = self.pending.0.keys().next().is_some_and(|slot| {
            let held = now.duration_since(slot.begins_at());
            held >= HELD_MAX
        });
        is_worth_a_write(&self.held(now, config)) || held_too_long
    }

    fn take_due(&mut self, now: Timestamp, phase_ms: i64, config: &ShedderConfig, chance: u64) -> Option<Batch> {
        let due = self.is_due(now, phase_ms, config);
        due.then(|| self.take(now, phase_ms, config))
            .and_then(|batch| batch.worth(chance))
    }

    /// What is to be written right after a first success: of an environment that begins, or begins anew. It is thinned like
    /// what was held too long. Errors are written at once, and without the successes of the same moment they would be all that
    /// is known when many begin together.
    fn take_first(&mut self, now: Timestamp, phase_ms: i64, config: &ShedderConfig, chance: u64) -> Option<Batch> {
        let idle_since = interval(now, phase_ms).saturating_sub(1);
        let begins = self.flushed_in.is_none_or(|last| last < idle_since);
        let first = begins && self.pending.total().samples() == 1;
        first
            .then(|| self.take(now, phase_ms, config))
            .and_then(|batch| batch.worth(chance))
    }

    /// What is to be written right after an error, if no other error was written lately.
    fn take_error(&mut self, now: Timestamp, phase_ms: i64, config: &ShedderConfig) -> Option<Batch> {
        let lately = self.error_flushed_at.is_some_and(|at| {
            let since = now.duration_since(at);
            !since.is_negative() && since < ERROR_QUIET
        });
        (!lately).then(|| self.take(now, phase_ms, config))
    }

    /// Takes all that is held back, for one slot: one write.
    fn take(&mut self, now: Timestamp, phase_ms: i64, config: &ShedderConfig) -> Batch {
        let batch = Batch {
            slot: self.date(now),
            counts: self.held(now, config),
        };
        self.flushed_in = Some(interval(now, phase_ms));
        if batch.counts.errors > 0 {
            self.error_flushed_at = Some(now);
        }
        self.pending = Slots::default();
        batch
    }

    /// The slot that what is held back is counted in. Of a healthy target that is the present one or the one before, whichever
    /// more of it was seen in: what changes at one instant then leaves the window half a slot late at most. Otherwise it is
    /// the slot of the last of it, since an error must not be dated before a target was shed or probed.
    fn date(&self, now: Timestamp) -> SlotNumber {
        let last = self.pending.0.last_key_value().map(|(slot, _)| *slot);
        let last = last.unwrap_or_else(|| SlotNumber::of(now));
        let read = self.read.as_ref().and_then(|read| read.target.as_ref());
        if read.is_some_and(|read| read.state.health != Health::Healthy) {
            return last;
        }
        let before = SlotNumber::from_number(last.number().saturating_sub(1));
        let seen = |slot| self.pending.0.get(&slot).map_or(0, Counts::samples);
        if seen(before) > seen(last) { before } else { last }
    }

    /// What is held back and still in the window.
    fn held(&self, now: Timestamp, config: &ShedderConfig) -> Counts {
        Window::at(now, config).over(&self.pending)
    }
}

/// What is written at once.
struct Batch {
    slot: SlotNumber,
    counts: Counts,
}

impl Batch {
    /// This batch, thinned where it is not worth a write as it is. `None` where nothing is left of it.
    fn worth(self, chance: u64) -> Option<Self> {
        if is_worth_a_write(&self.counts) {
            return Some(self);
        }
        let counts = thinned(&self.counts, chance);
        (!counts.is_empty()).then_some(Self { counts, ..self })
    }
}

fn is_worth_a_write(counts: &Counts) -> bool {
    counts.errors > 0 || counts.samples() >= FLUSH_SAMPLES_MIN
}

/// Successes of which each counts for ten with a chance of one in ten. Fewer than ten of them.
fn thinned(counts: &Counts, chance: u64) -> Counts {
    let mut thinned = Counts::default();
    let mut drawn = chance;
    for (kept, count) in thinned.successes.iter_mut().zip(counts.successes) {
        for _ in 0..count.min(FLUSH_SAMPLES_MIN) {
            drawn = scramble(drawn.wrapping_add(1));
            if drawn.is_multiple_of(FLUSH_SAMPLES_MIN) {
                *kept = kept.saturating_add(FLUSH_SAMPLES_MIN);
            }
        }
    }
    thinned
}

/// The number of the interval between two flushes that `now` is in.
fn interval(now: Timestamp, phase_ms: i64) -> i64 {
    now.as_millisecond().saturating_add(phase_ms).div_euclid(FLUSH_EVERY_MS)
}

impl<I: Inboxes, S: TargetStore, T: TimeAndChance> Inboxes for Shedding<I, S, T> {
    async fn send(&self, messages: Vec<Outgoing>) -> Vec<Sent> {
        let mut outcomes = vec![Sent::Unreachable; messages.len()];
        let mut by_inbox: BTreeMap<String, (Vec<usize>, Vec<Outgoing>)> = BTreeMap::new();
        for (position, message) in messages.into_iter().enumerate() {
            let (positions, messages) = by_inbox.entry(message.inbox.clone()).or_default();
            positions.push(position);
            messages.push(message);
        }
        // Boxed: the futures of all the calls in a row are too large to be moved about.
        let sends = by_inbox.into_iter().map(|(inbox, (positions, messages))| {
            Box::pin(async move { (positions, self.send_to(&inbox, messages).await) })
        });
        for (positions, sent) in join_all(sends).await {
            for (position, outcome) in positions.into_iter().zip(sent) {
                if let Some(slot) = outcomes.get_mut(position) {
                    *slot = outcome;
                }
            }
        }
        outcomes
    }

    async fn prepare(&self, inboxes: &BTreeSet<String>) {
        let now = self.time.now();
        // Long before it would have to be read in front of a send: beside the admission it costs no time.
        let age_max = self.config.cache.checked_div(4).unwrap_or(self.config.cache);
        let wanted = inboxes
            .iter()
            .filter_map(|inbox| Some((inbox, self.targets.get(inbox)?)));
        let stale = wanted.filter(|(inbox, _)| self.wants_read(inbox, now, age_max));
        join_all(stale.map(|(inbox, target)| Box::pin(self.read(inbox, target, now)))).await;
    }
}

#[cfg(test)]
mod tests;
