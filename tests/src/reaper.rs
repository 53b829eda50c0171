//! A reaper beside a webhook, on one ledger, with one clock and one set of inboxes.

use std::collections::BTreeMap;

use forebay_aws::config::ReaperConfig;
use forebay_aws::dynamodb::DynamoLedger;
use forebay_aws::metrics::Metrics;
use forebay_core::ports::{Inboxes, Ledger, TimeAndChance};
use jiff::Timestamp;
use reaper::Reaper;

use crate::counting::Counter;
use crate::fakes::{ManualTime, RecordingInboxes};
use crate::samples::{LEASE, SKEW, admit_event, at, processed, secs};
use crate::table::{TABLE, Table};
use crate::webhook::environment;

/// A reaper on `ledger` with `environment`, which may hold more than it reads.
///
/// # Panics
/// Where `environment` is unusable.
#[must_use]
pub fn reaper<L: Ledger + 'static, I: Inboxes + 'static, T: TimeAndChance + 'static>(
    ledger: L,
    inboxes: I,
    time: T,
    environment: BTreeMap<String, String>,
) -> Reaper<L, I, T> {
    let config = ReaperConfig::read(environment).expect("a usable environment");
    let metrics = Metrics::to("Forebay", Box::new(std::io::sink()));
    Reaper::new(&config, ledger, inboxes, time, metrics)
}

/// A deadline that no run of a test comes near.
pub const NO_DEADLINE: Timestamp = Timestamp::MAX;

/// What one run read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunReads {
    /// Events that it drove.
    pub redriven: u64,
    /// Its calls of the ledger, writes included.
    pub calls: usize,
    /// Read units of these calls.
    pub read_units: f64,
}

/// What two runs read in a table with `terminal` settled events: one that finds three due events, and an idle one after it.
///
/// # Panics
/// Where the embedded database fails.
pub async fn reads_beside(terminal: usize) -> [RunReads; 2] {
    let table = Table::start().await;
    let ledger = table.ledger();
    let lease = admit_event(&ledger, "settled", 1).await;
    let settled = ledger.settle(lease, at(1), processed(at(1))).await;
    settled.expect("the lease runs");
    table.copy_row("event#settled", terminal.saturating_sub(1));
    for name in ["a", "b", "c"] {
        drop(admit_event(&ledger, name, 1).await);
    }
    let counter = Counter::default();
    let client = table.config().interceptor(counter.clone()).build();
    let ledger = DynamoLedger::new(aws_sdk_dynamodb::Client::from_conf(client), TABLE);
    let time = ManualTime::at(at(0));
    time.pass(LEASE + SKEW + secs(1));
    let mut environment = environment();
    environment.insert("ROUTES".to_owned(), "acme/app=reviewer".to_owned());
    let reaper = reaper(ledger, RecordingInboxes::default(), time, environment);
    let run = async || {
        let redriven = reaper.run(NO_DEADLINE).await.redriven;
        let counts = counter.take();
        RunReads {
            redriven,
            calls: counts.calls,
            read_units: counts.read_units,
        }
    };
    [run().await, run().await]
}
