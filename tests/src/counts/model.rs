//! What a million accepted and delivered events cost.

use super::Row;

/// Prices of us-east-1, on demand, without free tiers, in dollars. Sources: the AWS pricing pages of DynamoDB, Lambda, SQS
/// and CloudWatch, November 2026.
mod price {
    pub(super) const WRITE_UNIT: f64 = 0.625e-6;
    pub(super) const READ_UNIT: f64 = 0.125e-6;
    /// A gigabyte for a month, with point-in-time recovery on top.
    pub(super) const STORED: f64 = 0.25 + 0.20;
    pub(super) const LAMBDA_REQUEST: f64 = 0.20e-6;
    /// A gigabyte of memory for a second, arm64.
    pub(super) const LAMBDA_SECOND: f64 = 0.000_013_333_4;
    pub(super) const SQS_FIFO_REQUEST: f64 = 0.50e-6;
    /// A gigabyte of logs taken in.
    pub(super) const LOGGED: f64 = 0.50;
}

/// The bar on the sum: dollars for a million accepted events, fixed monthly cost apart.
pub(super) const COST_BAR: f64 = 12.0;
/// Billed time of one invocation, in seconds: two ledger calls and a send in a row at about 8 ms each, and our own work. An
/// assumption; everything else is counted.
const BILLED_SECONDS: f64 = 0.030;
/// Memory of the function, in gigabytes: the template's default.
const MEMORY: f64 = 0.25;
/// SQS requests of one message: our send, and the consumer's receive and delete, each message by itself.
const SQS_REQUESTS: f64 = 3.0;
/// Months that rows are kept: the template's default retention of 35 days and the days before.
const STORED_MONTHS: f64 = 38.0 / 30.4;
/// Bytes that a delivered event leaves in the table and its indexes: 100 bytes of overhead for each row and index entry
/// besides what is counted in write units.
const STORED_OVERHEAD_BYTES: f64 = 300.0;
/// Bytes of the two log lines of an accepted delivery: what the function prints, and Lambda's own fields.
const LOGGED_BYTES: f64 = 900.0;

/// What a million accepted and delivered events cost, in dollars.
pub(super) struct Model {
    pub(super) parts: Vec<(&'static str, f64)>,
}

impl Model {
    pub(super) fn of(delivered: &Row) -> Self {
        let million = 1e6;
        // Half of a transaction's units are its second write; the first half is what is stored.
        let stored_bytes = delivered.units() / 2.0 * 1_024.0 / 2.0 + STORED_OVERHEAD_BYTES;
        let parts = vec![
            ("DynamoDB writes", delivered.units() * price::WRITE_UNIT * million),
            (
                "DynamoDB reads",
                delivered.mean(delivered.read_units) * price::READ_UNIT * million,
            ),
            (
                "DynamoDB storage and recovery",
                stored_bytes * million / 1e9 * STORED_MONTHS * price::STORED,
            ),
            (
                "Lambda",
                (price::LAMBDA_REQUEST + BILLED_SECONDS * MEMORY * price::LAMBDA_SECOND) * million,
            ),
            (
                "SQS, consumer included",
                SQS_REQUESTS * price::SQS_FIFO_REQUEST * million,
            ),
            (
                "CloudWatch Logs and metrics lines",
                LOGGED_BYTES * million / 1e9 * price::LOGGED,
            ),
        ];
        Self { parts }
    }

    pub(super) fn total(&self) -> f64 {
        self.parts.iter().map(|(_, dollars)| dollars).sum()
    }
}
