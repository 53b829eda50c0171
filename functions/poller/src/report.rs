//! What a run answers.

use forebay_core::ingest::{IngestTally, WriteCounts};
use serde::Serialize;

/// What came of one run. Its JSON is the function's answer. Its numbers only grow within a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Sources that are configured.
    pub sources: u64,
    /// Polls that were made.
    pub polls: u64,
    /// Requests to GitHub.
    pub requests: u64,
    /// Polls that found nothing changed.
    pub not_modified: u64,
    /// Polls after which a credential was to be left alone.
    pub rate_limited: u64,
    /// Polls that failed, in whole or in a part.
    pub failures: u64,
    /// Polls whose source cannot be polled as things are configured.
    pub misconfigured: u64,
    /// Polls that were not made because their target is shed.
    pub shed: u64,
    /// Polls whose claim was somebody else's in the end.
    pub overtaken: u64,
    /// Events that are new.
    pub accepted: u64,
    /// Events that were known.
    pub duplicates: u64,
    /// Items that mean nothing to us, or are older than the backlog.
    pub skipped: u64,
    /// Items that could not be read.
    pub malformed: u64,
    /// Events that an inbox got.
    pub delivered: u64,
    /// Events that nobody wants.
    pub unrouted: u64,
    /// Events that were given up.
    pub undeliverable: u64,
    /// Rounds in which something may have fallen out of a feed before it was seen, and what was given up.
    pub gaps: u64,
    /// Deliveries that GitHub made and the ledger lacked, found in this run.
    pub missing: u64,
    /// Deliveries that GitHub was asked to make again.
    pub redeliveries: u64,
    /// Missing deliveries that are here now.
    pub recovered: u64,
    /// Missing deliveries that nobody will ever get.
    pub lost: u64,
    /// When the credential that waits longest may be used again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_until: Option<String>,
}

impl Report {
    pub(crate) fn of(sources: usize, tally: &IngestTally, written: &WriteCounts) -> Self {
        let counts = &tally.counts;
        Self {
            sources: u64::try_from(sources).unwrap_or(u64::MAX),
            polls: tally.polls,
            requests: counts.requests,
            not_modified: counts.not_modified,
            rate_limited: tally.throttled,
            failures: tally.failures,
            misconfigured: tally.misconfigured,
            shed: tally.shed,
            overtaken: tally.overtaken,
            accepted: written.accepted,
            duplicates: written.duplicates,
            skipped: counts.skipped,
            malformed: counts.malformed,
            delivered: written.delivered,
            unrouted: written.unrouted,
            undeliverable: written.undeliverable,
            gaps: counts.gaps,
            missing: counts.missing,
            redeliveries: counts.redeliveries,
            recovered: counts.recovered,
            lost: counts.lost,
            backoff_until: tally.backoff_until.map(|until| until.to_string()),
        }
    }
}
