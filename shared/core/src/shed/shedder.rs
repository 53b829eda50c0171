//! The shedder: it knows of targets what this environment saw and what others wrote, and says what goes to them.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::join;
use jiff::{SignedDuration, Timestamp};

use super::ShedderConfig;
use super::judge::{Health, Judgement, TargetState, judge, probed};
use super::slots::{Counts, Observation, SLOT, SlotNumber, Slots, Window};
use super::store::{Moved, ReadTarget, SLOT_SHARDS, TargetStore};
use crate::backoff::scramble;
use crate::ledger::Nonce;
use crate::ports::{LedgerError, TimeAndChance};
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
    /// What the target is called here: the inbox behind which it is.
    pub name: String,
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
    /// Messages that were not sent, and polls that were not made, because their target is shed.
    pub shed: u64,
    /// Changes of states, at most 64.
    pub changed: Vec<Changed>,
    /// Calls of the shedder's own store that failed; the work was let through.
    pub unavailable: u64,
    /// The last of these failures.
    pub trouble: Option<LedgerError>,
}

/// The shedder of one environment.
#[derive(Debug)]
pub struct Shedder<S, T> {
    store: S,
    time: T,
    config: ShedderConfig,
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
pub(super) enum Verdict {
    Open,
    /// One does, under the lease in this state.
    Probe(TargetState),
    Shed,
}

impl<S: TargetStore, T: TimeAndChance> Shedder<S, T> {
    /// A shedder over `store`.
    #[must_use]
    pub fn new(store: S, time: T, config: ShedderConfig) -> Self {
        let chance = time.random();
        Self {
            store,
            shard: chance.checked_rem(SLOT_SHARDS).unwrap_or_default(),
            // The upper half, or the shard would say when its environments write.
            phase_ms: i64::try_from(chance >> 33)
                .unwrap_or_default()
                .wrapping_rem(FLUSH_EVERY_MS),
            time,
            config,
            known: Mutex::default(),
            notes: Mutex::default(),
        }
    }

    /// Its store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// What happened since this was last asked.
    pub fn take_notes(&self) -> Notes {
        std::mem::take(&mut *self.notes())
    }

    /// Makes `call` unless the target is shed, and keeps what it showed. `None` where nothing was called.
    ///
    /// `name` is what the target is called here, in notes.
    pub async fn guard<R>(
        &self,
        name: &str,
        target: &TargetKey,
        call: impl Future<Output = (R, Option<Observation>)>,
    ) -> Option<R> {
        let verdict = self.verdict(name, target).await;
        if let Verdict::Shed = verdict {
            self.note_shed(1);
            return None;
        }
        let (result, observation) = call.await;
        let now = self.time.now();
        if let Verdict::Probe(probing) = &verdict {
            self.tell_probe(name, target, probing, observation, now).await;
        } else {
            self.observe(name, target, observation, now).await;
        }
        Some(result)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.time.now()
    }

    /// How old a reading may be that is renewed beside other work: long before it would have to be read in front of a call.
    pub(super) fn age_max_beside(&self) -> SignedDuration {
        self.config.cache.checked_div(4).unwrap_or(self.config.cache)
    }

    /// Keeps what a probe showed, and moves the target on.
    pub(super) async fn tell_probe(
        &self,
        name: &str,
        target: &TargetKey,
        probing: &TargetState,
        observation: Option<Observation>,
        now: Timestamp,
    ) {
        let told = async {
            if let Some(health) = probed(observation, &self.config) {
                self.change(name, target, probing, health).await;
            }
        };
        join(told, self.observe(name, target, observation, now)).await;
    }

    pub(super) async fn verdict(&self, name: &str, target: &TargetKey) -> Verdict {
        let now = self.time.now();
        if self.wants_read(name, now, self.config.cache) {
            self.read(name, target, now).await;
        }
        for _ in 0..ROUNDS_MAX {
            let Some((state, judgement)) = self.judged(name, now) else {
                return Verdict::Open;
            };
            match judgement {
                Judgement::Open => return Verdict::Open,
                Judgement::Shed => return Verdict::Shed,
                Judgement::Ramp(share) if share.admits(self.time.random()) => return Verdict::Open,
                Judgement::Ramp(_) => return Verdict::Shed,
                Judgement::Change(health) => match self.change(name, target, &state, health).await {
                    Some(changed) if health == Health::Probing => return Verdict::Probe(changed),
                    Some(_) => {}
                    None if self.state_is(name, &state) => return as_it_stands(state.health),
                    // Somebody was faster, and what became of it is known now.
                    None => {}
                },
            }
        }
        self.judged(name, now)
            .map_or(Verdict::Open, |(state, _)| as_it_stands(state.health))
    }

    /// Reads what is known of a target, and writes beside that what is due to be written. What is read may be without it, and
    /// then it is known here from the next read on: to count it twice for that long could shed what is well.
    pub(super) async fn read(&self, name: &str, target: &TargetKey, now: Timestamp) {
        let reach = now.saturating_sub(self.config.reach()).unwrap_or(Timestamp::MIN);
        let chance = self.time.random();
        let due = self
            .known()
            .entry(name.to_owned())
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
        self.known().entry(name.to_owned()).or_default().learn(now, read);
    }

    async fn flush(&self, target: &TargetKey, batch: &Batch) -> Result<(), LedgerError> {
        self.store.add(target, batch.slot, self.shard, &batch.counts).await
    }

    /// Keeps an observation. The first error in a while is written at once, and so is what follows from it.
    pub(super) async fn observe(
        &self,
        name: &str,
        target: &TargetKey,
        observation: Option<Observation>,
        now: Timestamp,
    ) {
        let Some(observation) = observation else { return };
        let chance = self.time.random();
        self.known()
            .entry(name.to_owned())
            .or_default()
            .pending
            .add(now, observation);
        let judged = match observation {
            Observation::Error => self.judged(name, now),
            Observation::Success(_) => None,
        };
        let due = {
            let mut known = self.known();
            let known = known.entry(name.to_owned()).or_default();
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
                self.known().entry(name.to_owned()).or_default().add_read(&batch);
            }
        };
        let change = async {
            if let Some((state, Judgement::Change(Health::Shed))) = judged {
                self.change(name, target, &state, Health::Shed).await;
            }
        };
        join(flush, change).await;
    }

    /// Moves a target on. Gives its state if that was done here.
    pub(super) async fn change(
        &self,
        name: &str,
        target: &TargetKey,
        from: &TargetState,
        health: Health,
    ) -> Option<TargetState> {
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
        if let Some(read) = self.known().entry(name.to_owned()).or_default().read_target() {
            read.state = state;
        }
        if !done {
            return None;
        }
        let mut notes = self.notes();
        if notes.changed.len() < NOTES_MAX {
            notes.changed.push(Changed {
                name: name.to_owned(),
                target: target.clone(),
                from: from.health,
                to: health,
            });
        }
        Some(to)
    }

    /// What follows for a target from what was read of it and seen of it here. `None` where nothing could be read.
    fn judged(&self, name: &str, now: Timestamp) -> Option<(TargetState, Judgement)> {
        let known = self.known();
        let known = known.get(name)?;
        let read = known.read.as_ref()?.target.as_ref()?;
        let mut slots = read.slots.clone();
        slots.merge_all(&known.pending);
        Some((read.state, judge(&read.state, &slots, now, &self.config)))
    }

    fn state_is(&self, name: &str, state: &TargetState) -> bool {
        self.known()
            .get_mut(name)
            .and_then(Known::read_target)
            .is_none_or(|read| read.state.is_same_as(state))
    }

    /// Whether what is known of a target is older than `age_max`, or it is time to write something.
    pub(super) fn wants_read(&self, name: &str, now: Timestamp, age_max: SignedDuration) -> bool {
        let known = self.known();
        known.get(name).is_none_or(|known| {
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

    pub(super) fn note_shed(&self, messages: usize) {
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
