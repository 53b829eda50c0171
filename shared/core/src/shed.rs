//! The shedder: which targets are left alone for a while, and when they are tried again.
//!
//! What is observed of a target is counted in slots of five seconds, which all environments share. [`judge`] is a pure
//! function over what is stored of a target, what is counted, and the time; [`Shedding`] puts it in front of inboxes.

mod config;
mod judge;
pub mod memory;
mod shedder;
mod shedding;
mod slots;
mod store;

pub use config::{InvalidShedder, ShedderConfig};
pub use judge::{Health, Judgement, Share, TargetState, judge, probed};
pub use shedder::{Changed, Notes, Shedder};
pub use shedding::Shedding;
pub use slots::{Counts, LATENCY_BOUNDS_MS, Observation, SLOT, SlotNumber, Slots, Window};
pub use store::{Moved, ReadTarget, SLOT_KEPT, SLOT_SHARDS, STATE_KEPT, TargetStore};
