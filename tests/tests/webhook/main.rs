//! The webhook in process: requests go in, answers come out, and the ledger, the inboxes, the log and the metrics are
//! looked at behind it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy allows them in tests, and does not take what tests call for a part of them"
)]

mod answers;
mod cases;
mod claims;
mod corpora;
mod crash;
mod failure;
mod metrics;
mod once;
mod owners;
mod payloads;
mod recordings;
mod secrecy;
mod size;
mod stale;
