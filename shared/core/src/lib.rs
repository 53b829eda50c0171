#![doc = include_str!("../README.md")]
#![warn(clippy::string_slice, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod api;
pub mod backoff;
pub mod cloudevent;
pub mod delivery;
pub mod drive;
pub mod event;
pub mod github;
pub mod ingest;
pub mod ledger;
pub mod ports;
pub mod queue;
pub mod reap;
pub mod route;
pub mod schedule;
pub mod session;
pub mod shed;
pub mod signature;
pub mod source;
pub mod target;
#[cfg(test)]
mod testing;
mod text;
