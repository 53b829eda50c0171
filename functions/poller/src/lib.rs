#![doc = include_str!("../README.md")]

mod owners;
mod plan;
mod report;
mod run;

pub use report::Report;
pub use run::{Accesses, POLL_TIME_MAX, Poller, RunError, STOP_MARGIN};
