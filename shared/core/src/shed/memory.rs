//! Targets in memory, for tests and simulation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::judge::TargetState;
use super::slots::{Counts, SlotNumber};
use super::store::{Moved, ReadTarget, TargetStore};
use crate::ports::LedgerError;
use crate::target::TargetKey;

/// Targets in memory. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryTargets {
    rows: Arc<Mutex<BTreeMap<TargetKey, Rows>>>,
}

#[derive(Debug, Default)]
struct Rows {
    state: TargetState,
    slots: BTreeMap<(SlotNumber, u64), Counts>,
}

impl MemoryTargets {
    /// No targets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<TargetKey, Rows>> {
        // A panic in another test thread leaves whole rows behind: every change below is made in one go.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TargetStore for MemoryTargets {
    async fn read(&self, target: &TargetKey, from: SlotNumber) -> Result<ReadTarget, LedgerError> {
        let rows = self.rows();
        let mut read = ReadTarget::default();
        if let Some(rows) = rows.get(target) {
            read.state = rows.state;
            for ((slot, _), counts) in rows.slots.range((from, 0)..) {
                read.slots.merge(*slot, counts);
            }
        }
        Ok(read)
    }

    async fn add(&self, target: &TargetKey, slot: SlotNumber, shard: u64, counts: &Counts) -> Result<(), LedgerError> {
        let mut rows = self.rows();
        let rows = rows.entry(target.clone()).or_default();
        rows.slots.entry((slot, shard)).or_default().merge(counts);
        Ok(())
    }

    async fn change(&self, target: &TargetKey, from: &TargetState, to: &TargetState) -> Result<Moved, LedgerError> {
        let mut rows = self.rows();
        let stored = &mut rows.entry(target.clone()).or_default().state;
        Ok(if stored.is_same_as(to) {
            Moved::Done
        } else if stored.is_same_as(from) {
            *stored = *to;
            Moved::Done
        } else {
            Moved::Lost(*stored)
        })
    }
}
