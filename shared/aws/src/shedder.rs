//! The shedder of a function: the core's, between the inboxes and their queues, with its lines of logs and metrics.

use std::collections::{BTreeMap, BTreeSet};

use forebay_core::ledger::Sent;
use forebay_core::ports::{Inboxes, Outgoing, TimeAndChance};
use forebay_core::shed::{Changed, Health, Notes, Shedding, TargetStore};
use forebay_core::target::TargetKey;
use jiff::Timestamp;

use crate::clock::System;
use crate::dynamodb::DynamoTargets;
use crate::metrics::{Metrics, Record, Shedder, system_time};
use crate::sqs::SqsInboxes;

/// Inboxes in SQS behind a shedder.
pub type ShedInboxes = Watched<SqsInboxes, DynamoTargets, System>;

/// The target behind each inbox, by the URLs of their queues.
#[must_use]
pub fn targets(urls: &BTreeMap<String, String>) -> BTreeMap<String, TargetKey> {
    urls.iter()
        .map(|(inbox, url)| (inbox.clone(), TargetKey::queue(url)))
        .collect()
}

/// A shedder that tells what it does: one log line for each change, one line of metrics where there is something to count.
#[derive(Debug)]
pub struct Watched<I, S, T> {
    shedding: Shedding<I, S, T>,
    time: T,
    metrics: Metrics,
}

impl<I: Inboxes, S: TargetStore, T: TimeAndChance> Watched<I, S, T> {
    /// `shedding`, told of by `metrics`.
    #[must_use]
    pub fn new(shedding: Shedding<I, S, T>, time: T, metrics: Metrics) -> Self {
        Self {
            shedding,
            time,
            metrics,
        }
    }

    fn tell(&self, notes: &Notes) {
        tell(notes, self.time.now(), &self.metrics);
    }
}

impl<I: Inboxes, S: TargetStore, T: TimeAndChance> Inboxes for Watched<I, S, T> {
    async fn send(&self, messages: Vec<Outgoing>) -> Vec<Sent> {
        let outcomes = self.shedding.send(messages).await;
        self.tell(&self.shedding.take_notes());
        outcomes
    }

    async fn prepare(&self, inboxes: &BTreeSet<String>) {
        self.shedding.prepare(inboxes).await;
        self.tell(&self.shedding.take_notes());
    }
}

/// Tells what a shedder did: a log line for each change, and a line of metrics where there is something to count.
pub fn tell(notes: &Notes, at: Timestamp, metrics: &Metrics) {
    for changed in &notes.changed {
        log(changed);
    }
    if let Some(trouble) = &notes.trouble {
        tracing::warn!(error = %trouble.cause(), "{trouble}; nothing is shed for that");
    }
    let to = |health: Health| count(notes.changed.iter().filter(|changed| changed.to == health).count());
    let told = Shedder {
        timestamp: system_time(at),
        shed: notes.shed,
        targets_shed: to(Health::Shed),
        targets_reopened: to(Health::Healthy),
        shedder_unavailable: notes.unavailable,
    };
    if told.shed + told.targets_shed + told.targets_reopened + told.shedder_unavailable > 0 {
        metrics.emit(Record::Shedder(told));
    }
}

fn log(changed: &Changed) {
    let Changed { name, target, from, to } = changed;
    match to {
        Health::Shed => tracing::warn!(
            name = %name, target = %target, "target {name} is shed (was {from}): what is meant for it stays due"
        ),
        Health::Probing | Health::Probation | Health::Healthy => {
            tracing::info!(name = %name, target = %target, "target {name} is {to} (was {from})");
        }
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
