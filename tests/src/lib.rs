//! What more than one test needs: an embedded DynamoDB with the ledger's table, a clock that tests move, inboxes that
//! record, faults on the way to AWS, and a webhook on top of them.

pub mod chance;
pub mod counting;
pub mod counts;
mod drain;
pub mod engine;
pub mod exhaust;
pub mod fakes;
pub mod fault;
pub mod github;
mod kill;
pub mod model;
pub mod mutations;
pub mod polling;
pub mod queue_soak;
pub mod reaper;
pub mod rounds;
pub mod samples;
pub mod scripted;
pub mod simulate;
pub mod soak;
pub mod sqs;
pub mod strangers;
pub mod table;
pub mod template;
pub mod three_nets;
pub mod webhook;
