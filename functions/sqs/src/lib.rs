#![doc = include_str!("../README.md")]

mod lanes;
mod take;

pub use take::{Intake, Nameless, ROUND_TIME_MAX, held_back_seconds, hold_all_back};
