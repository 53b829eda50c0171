//! Feeds, delivery logs, their scheduler and the ingestor in process: a fake GitHub tells of what happened, late, twice or
//! never, and the ledger, the inboxes and the requests are looked at behind it.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "clippy allows it in tests, and does not take what tests call for a part of them"
)]

mod base;
mod conditional;
mod left;
mod limits;
mod pages;
mod poller;
mod recorded;
mod recovery;
mod runs;
mod schedule;
