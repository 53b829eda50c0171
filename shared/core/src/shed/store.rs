//! What the shedder asks of the ledger: the rows of a target.

use std::future::Future;

use jiff::SignedDuration;

use super::judge::TargetState;
use super::slots::{Counts, SlotNumber, Slots};
use crate::ports::LedgerError;
use crate::target::TargetKey;

/// Shards of one slot: a table's row takes 1,000 writes a second, and an outage makes every environment write at once.
pub const SLOT_SHARDS: u64 = 4;
/// How long a slot's row is kept. No judgement looks back further.
pub const SLOT_KEPT: SignedDuration = SignedDuration::from_hours(1);
/// How long a state is kept after its last change. A target that nobody called for so long begins anew.
pub const STATE_KEPT: SignedDuration = SignedDuration::from_hours(24);

/// What is stored of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadTarget {
    /// Its state; the one that every target begins with where there is no row.
    pub state: TargetState,
    /// What was counted, all shards together.
    pub slots: Slots,
}

/// What came of changing a target's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// It is in the new state, by this call or by an earlier try of it.
    Done,
    /// Somebody was faster: it is in this state, and nothing has changed.
    Lost(TargetState),
}

/// The rows of targets. Every call ends in a time of its own, whatever the store does: whoever asks has somebody waiting.
///
/// # Errors
/// All methods give [`LedgerError`] where no answer could be had in time. Whoever asked lets the work through and counts it.
pub trait TargetStore: Send + Sync {
    /// A target's state, and its counts from the slot `from` on. May lag behind the last writes.
    fn read(
        &self,
        target: &TargetKey,
        from: SlotNumber,
    ) -> impl Future<Output = Result<ReadTarget, LedgerError>> + Send;

    /// Adds to the counts of one shard (one of [`SLOT_SHARDS`]) of a slot. Never tried twice: adding is not idempotent, and
    /// a failed call may have been carried out.
    fn add(
        &self,
        target: &TargetKey,
        slot: SlotNumber,
        shard: u64,
        counts: &Counts,
    ) -> impl Future<Output = Result<(), LedgerError>> + Send;

    /// Moves a target from one state to the next, if it is still in the first by token and nonce.
    fn change(
        &self,
        target: &TargetKey,
        from: &TargetState,
        to: &TargetState,
    ) -> impl Future<Output = Result<Moved, LedgerError>> + Send;
}
