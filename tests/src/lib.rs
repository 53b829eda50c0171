//! What more than one test needs: an embedded DynamoDB with the ledger's table, a clock that tests move, inboxes that
//! record, and a webhook on top of them.

pub mod counting;
pub mod fakes;
pub mod strangers;
pub mod table;
pub mod webhook;
