//! The shedder in front of inboxes.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};

use super::ShedderConfig;
use super::shedder::{Notes, Shedder, Verdict};
use super::slots::Observation;
use super::store::TargetStore;
use crate::ledger::Sent;
use crate::ports::{Inboxes, Outgoing, TimeAndChance};
use crate::target::TargetKey;

/// Inboxes behind a shedder: what is meant for a shed target is not sent and says so.
#[derive(Debug)]
pub struct Shedding<I, S, T> {
    inner: I,
    shedder: Shedder<S, T>,
    /// The target behind each inbox.
    targets: BTreeMap<String, TargetKey>,
}

impl<I: Inboxes, S: TargetStore, T: TimeAndChance> Shedding<I, S, T> {
    /// A shedder in front of `inner`, for the targets behind these inboxes. Others pass.
    #[must_use]
    pub fn new(inner: I, store: S, time: T, config: ShedderConfig, targets: BTreeMap<String, TargetKey>) -> Self {
        Self {
            inner,
            shedder: Shedder::new(store, time, config),
            targets,
        }
    }

    /// The inboxes behind it.
    pub fn inner(&self) -> &I {
        &self.inner
    }

    /// Its store.
    pub fn store(&self) -> &S {
        self.shedder.store()
    }

    /// What happened since this was last asked.
    pub fn take_notes(&self) -> Notes {
        self.shedder.take_notes()
    }

    async fn send_to(&self, inbox: &str, messages: Vec<Outgoing>) -> Vec<Sent> {
        let Some(target) = self.targets.get(inbox) else {
            return self.inner.send(messages).await;
        };
        let count = messages.len();
        match self.shedder.verdict(inbox, target).await {
            Verdict::Open => {
                let (outcomes, observation, now) = self.call(messages).await;
                self.shedder.observe(inbox, target, observation, now).await;
                outcomes
            }
            Verdict::Probe(probing) => {
                // One message is enough to ask by, and one is all that is risked.
                let mut messages = messages;
                messages.truncate(1);
                let (mut outcomes, observation, now) = self.call(messages).await;
                self.shedder.tell_probe(inbox, target, &probing, observation, now).await;
                self.shedder.note_shed(count.saturating_sub(outcomes.len()));
                outcomes.resize(count, Sent::Shed);
                outcomes
            }
            Verdict::Shed => {
                self.shedder.note_shed(count);
                vec![Sent::Shed; count]
            }
        }
    }

    /// Sends, and says what that showed of the target, and when.
    async fn call(&self, messages: Vec<Outgoing>) -> (Vec<Sent>, Option<Observation>, Timestamp) {
        let began = self.shedder.now();
        let outcomes = self.inner.send(messages).await;
        let now = self.shedder.now();
        let observation = observation(&outcomes, now.duration_since(began));
        (outcomes, observation, now)
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
        let now = self.shedder.now();
        let age_max = self.shedder.age_max_beside();
        let wanted = inboxes
            .iter()
            .filter_map(|inbox| Some((inbox, self.targets.get(inbox)?)));
        let stale = wanted.filter(|(inbox, _)| self.shedder.wants_read(inbox, now, age_max));
        join_all(stale.map(|(inbox, target)| Box::pin(self.shedder.read(inbox, target, now)))).await;
    }
}

#[cfg(test)]
mod tests;
