//! Metrics in `CloudWatch`'s embedded format: one JSON line on standard output for each unit of work.
//!
//! Every name is here. Dimensions are few and bounded: each combination of values is a metric that costs money.

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use forebay_core::event::Net;
use jiff::Timestamp;
use metrique::RootEntry;
use metrique::emf::Emf;
use metrique::unit_of_work::metrics;
use metrique::writer::format::Format as _;

/// A time as records hold it.
#[must_use]
pub fn system_time(at: Timestamp) -> SystemTime {
    let since_epoch = Duration::try_from(at.duration_since(Timestamp::UNIX_EPOCH)).unwrap_or_default();
    SystemTime::UNIX_EPOCH
        .checked_add(since_epoch)
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A delivery that was answered, of whatever outcome but refused.
#[metrics(emf::dimension_sets = [["Outcome"]], rename_all = "PascalCase")]
#[derive(Debug)]
pub struct DeliveryAnswered {
    /// When.
    #[metrics(timestamp)]
    pub timestamp: SystemTime,
    /// `accepted`, `ignored`, `duplicate` or `failed`.
    pub outcome: &'static str,
    /// Always 1.
    pub deliveries: u64,
    /// Redeliveries whose bytes were not those of the first. A count.
    pub conflicts: u64,
    /// Inboxes that got the event. A count.
    pub sent: u64,
    /// Events that wait for an owner. A count.
    pub parked: u64,
    /// Events that could not be sent yet, or that nobody has handled yet. A count.
    pub pending: u64,
    /// Events that wake nobody because an ignored actor wrote them. A count; left out where there is none, since only
    /// `accepted` ever has any and each outcome's would be a metric that costs money.
    pub silenced: Option<u64>,
    /// From the start of the work to the answer, in milliseconds.
    pub duration_ms: u64,
}

/// A delivery that was refused.
#[metrics(emf::dimension_sets = [["Outcome"], ["Outcome", "Refusal"]], rename_all = "PascalCase")]
#[derive(Debug)]
pub struct DeliveryRefused {
    /// When.
    #[metrics(timestamp)]
    pub timestamp: SystemTime,
    /// Always `refused`.
    pub outcome: &'static str,
    /// The refusal word.
    pub refusal: &'static str,
    /// Always 1.
    pub deliveries: u64,
    /// From the start of the work to the answer, in milliseconds.
    pub duration_ms: u64,
}

/// An event that was new to the ledger.
#[metrics(emf::dimension_sets = [["Kind"]], rename_all = "PascalCase")]
#[derive(Debug)]
pub struct EventCaught {
    /// When.
    #[metrics(timestamp)]
    pub timestamp: SystemTime,
    /// Its kind.
    pub kind: &'static str,
    /// Always 1.
    pub events: u64,
    /// From the happening to the ledger, in milliseconds; 0 where the payload names no time.
    pub latency_ms: u64,
}

/// One run of the reaper. No dimensions: there is one reaper.
#[metrics(emf::dimension_sets = [[]], rename_all = "PascalCase")]
#[derive(Debug)]
pub struct Reaped {
    /// When.
    #[metrics(timestamp)]
    pub timestamp: SystemTime,
    /// Due events that were driven. A count.
    pub redriven: u64,
    /// Rows that were skipped: those that could not be read or handled, and those of a newer version. A count.
    pub skipped: u64,
    /// Events that were given up. A count.
    pub permanent: u64,
    /// Driven events that wait for an owner. A count.
    pub parked: u64,
    /// Rows that were due when the run began and are still due. A count.
    pub backlog: u64,
    /// How long the oldest due row had been due when the run began, in seconds.
    pub oldest_due_seconds: u64,
    /// From the start of the run to its end, in milliseconds.
    pub duration_ms: u64,
}

/// One batch of a queue's messages. No dimensions: how many queues there are is the user's.
#[metrics(emf::dimension_sets = [[]], rename_all = "PascalCase", prefix = "queue_")]
#[derive(Debug)]
pub struct QueueBatch {
    /// When.
    #[metrics(timestamp)]
    pub timestamp: SystemTime,
    /// Messages of the batch. A count.
    pub messages: u64,
    /// Messages that were new to the ledger. A count.
    pub created: u64,
    /// Messages that the ledger had. A count.
    pub duplicates: u64,
    /// Records that no queue can have sent. A count.
    pub malformed: u64,
    /// Messages that the ledger did not take. A count.
    pub unkept: u64,
    /// Messages that come again. A count.
    pub returned: u64,
    /// Inboxes that got a message. A count.
    pub sent: u64,
    /// Messages that were kept and could not be sent yet. A count.
    pub pending: u64,
    /// From the start of the work to the answer, in milliseconds.
    pub duration_ms: u64,
}

/// What the shedder did in one send. No dimensions: which target it was is in the log.
#[metrics(emf::dimension_sets = [[]], rename_all = "PascalCase")]
#[derive(Debug)]
pub struct Shedder {
    /// When.
    #[metrics(timestamp)]
    pub timestamp: SystemTime,
    /// Messages that were not sent because their target is shed. A count.
    pub shed: u64,
    /// Targets that were shed, each time anew. A count.
    pub targets_shed: u64,
    /// Targets that became healthy again. A count.
    pub targets_reopened: u64,
    /// Calls of the shedder's own store that failed; the work was let through. A count.
    pub shedder_unavailable: u64,
}

/// One run of the poller. No dimensions: how many sources there are is the user's.
#[metrics(emf::dimension_sets = [[]], rename_all = "PascalCase", prefix = "poller_")]
#[derive(Debug)]
pub struct Polled {
    /// When.
    #[metrics(timestamp)]
    pub timestamp: SystemTime,
    /// Polls that were made. A count.
    pub polls: u64,
    /// Requests to GitHub. A count.
    pub requests: u64,
    /// Polls that found nothing changed. A count.
    pub not_modified: u64,
    /// Polls after which a credential was to be left alone. A count.
    pub rate_limited: u64,
    /// Polls that failed. A count.
    pub failures: u64,
    /// Polls whose source cannot be polled as things are configured. A count.
    pub misconfigured: u64,
    /// Events that are new. A count.
    pub accepted: u64,
    /// Events that were known. A count.
    pub duplicates: u64,
    /// Items that mean nothing to us, or are older than the backlog. A count.
    pub skipped: u64,
    /// Items that could not be read. A count.
    pub malformed: u64,
    /// Rounds in which something may have fallen out of a feed before it was seen. A count.
    pub gaps: u64,
    /// Deliveries that GitHub made and the ledger lacked, found in this run. A count.
    pub missing: u64,
    /// Deliveries that GitHub was asked to make again. A count.
    pub redeliveries: u64,
    /// Missing deliveries that are here now. A count.
    pub recovered: u64,
    /// Missing deliveries that nobody will ever get. A count.
    pub lost: u64,
    /// From the start of the run to its end, in milliseconds.
    pub duration_ms: u64,
}

/// How many events webhooks have lost, as a change, by the net that has caught them.
///
/// One more for each that a feed or recovery saw first, one less when a webhook brought it after all. The sum over time and nets
/// is what the webhooks lost.
#[metrics(emf::dimension_sets = [["Net"]], rename_all = "PascalCase")]
#[derive(Debug)]
pub struct SeenOnlyBy {
    /// When.
    #[metrics(timestamp)]
    pub timestamp: SystemTime,
    /// Which net.
    pub net: &'static str,
    /// The change.
    pub seen_only_by: f64,
}

impl SeenOnlyBy {
    /// The change for `net`.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "no run changes more than 2⁵³ events")]
    pub fn new(timestamp: SystemTime, net: Net, change: i64) -> Self {
        Self {
            timestamp,
            net: net.as_str(),
            seen_only_by: change as f64,
        }
    }
}

/// A unit of work, as a line of metrics.
#[derive(Debug)]
pub enum Record {
    /// See [`DeliveryAnswered`].
    Answered(DeliveryAnswered),
    /// See [`DeliveryRefused`].
    Refused(DeliveryRefused),
    /// See [`EventCaught`].
    Caught(EventCaught),
    /// See [`Reaped`].
    Reaped(Reaped),
    /// See [`QueueBatch`].
    Batch(QueueBatch),
    /// See [`Shedder`].
    Shedder(Shedder),
    /// See [`Polled`].
    Polled(Polled),
    /// See [`SeenOnlyBy`].
    SeenOnlyBy(SeenOnlyBy),
}

/// Where lines of metrics go.
pub struct Metrics {
    format: Mutex<Emf>,
    output: Mutex<Box<dyn Write + Send>>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    /// Metrics of this namespace, on standard output, where Lambda looks for them.
    #[must_use]
    pub fn to_stdout(namespace: &str) -> Self {
        Self::to(namespace, Box::new(std::io::stdout()))
    }

    /// Metrics of this namespace, to `output`.
    #[must_use]
    pub fn to(namespace: &str, output: Box<dyn Write + Send>) -> Self {
        let format = Emf::builder(namespace.to_owned(), vec![vec![]]).build();
        Self {
            format: Mutex::new(format),
            output: Mutex::new(output),
        }
    }

    /// Writes one line. A line that cannot be written is no reason to fail the work that it counts.
    pub fn emit(&self, record: Record) {
        let mut line = Vec::with_capacity(512);
        let mut format = self.format.lock().unwrap_or_else(PoisonError::into_inner);
        let formatted = match record {
            Record::Answered(record) => format.format(&RootEntry::new(metrique::CloseValue::close(record)), &mut line),
            Record::Refused(record) => format.format(&RootEntry::new(metrique::CloseValue::close(record)), &mut line),
            Record::Caught(record) => format.format(&RootEntry::new(metrique::CloseValue::close(record)), &mut line),
            Record::Batch(record) => format.format(&RootEntry::new(metrique::CloseValue::close(record)), &mut line),
            Record::Reaped(record) => format.format(&RootEntry::new(metrique::CloseValue::close(record)), &mut line),
            Record::Polled(record) => format.format(&RootEntry::new(metrique::CloseValue::close(record)), &mut line),
            Record::SeenOnlyBy(record) => {
                format.format(&RootEntry::new(metrique::CloseValue::close(record)), &mut line)
            }
            Record::Shedder(record) => format.format(&RootEntry::new(metrique::CloseValue::close(record)), &mut line),
        };
        drop(format);
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let written = formatted.is_ok() && output.write_all(&line).and_then(|()| output.flush()).is_ok();
        if !written {
            tracing::warn!("write a line of metrics: not written");
        }
    }
}

#[cfg(test)]
mod tests;
