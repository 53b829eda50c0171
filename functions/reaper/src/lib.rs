#![doc = include_str!("../README.md")]

mod report;
mod run;

pub use report::Report;
pub use run::{DRIVE_TIME_MAX, Reaper, STOP_MARGIN};
