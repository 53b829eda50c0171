//! The one place that asks the operating system for time and chance, and the one that waits.

use std::time::Duration;

use forebay_core::ports::TimeAndChance;
use jiff::Timestamp;

/// The system's clock and random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl TimeAndChance for System {
    /// In whole milliseconds: what the ledger stores is what was compared.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
    }

    fn random(&self) -> u64 {
        getrandom::u64().unwrap_or_else(|_unavailable| {
            // Without the system's generator a nonce must still differ from its neighbours: nanoseconds do that.
            u64::try_from(self.now().as_nanosecond().unsigned_abs() & u128::from(u64::MAX)).unwrap_or_default()
        })
    }
}

/// Waits. Every caller bounds how often and how long.
#[expect(clippy::disallowed_methods, reason = "this is the one place that waits")]
pub async fn pause(span: Duration) {
    tokio::time::sleep(span).await;
}
