//! A reaper beside a webhook, on one ledger, with one clock and one set of inboxes.

use std::collections::BTreeMap;

use forebay_aws::config::ReaperConfig;
use forebay_aws::metrics::Metrics;
use forebay_core::ports::{Inboxes, Ledger};
use jiff::Timestamp;
use reaper::Reaper;

use crate::fakes::ManualTime;

/// A reaper on `ledger` with `environment`, which may hold more than it reads.
///
/// # Panics
/// Where `environment` is unusable.
#[must_use]
pub fn reaper<L: Ledger + 'static, I: Inboxes + 'static>(
    ledger: L,
    inboxes: I,
    time: ManualTime,
    environment: BTreeMap<String, String>,
) -> Reaper<L, I, ManualTime> {
    let config = ReaperConfig::read(environment).expect("a usable environment");
    let metrics = Metrics::to("Forebay", Box::new(std::io::sink()));
    Reaper::new(&config, ledger, inboxes, time, metrics)
}

/// A deadline that no run of a test comes near.
pub const NO_DEADLINE: Timestamp = Timestamp::MAX;
