//! Sources in memory: for tests, and for the scheduler of a process that is alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use super::row::{SourceLease, SourceState, SourceStep, SourceVerdict, source_transition};
use super::store::{DueSource, GivenBack, Reading, Resting, SourceClaim, SourceClaimed, SourceStore, Storing};
use super::{Returned, SourceRefused};
use crate::ledger::{Nonce, Token};
use crate::source::{Cursor, SourceId};
use crate::target::TargetKey;

/// Sources in memory. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemorySources {
    rows: Arc<Mutex<Rows>>,
}

#[derive(Debug, Default)]
struct Rows {
    claims: BTreeMap<SourceId, SourceState>,
    cursors: BTreeMap<SourceId, Cursor>,
    resting: BTreeMap<TargetKey, Resting>,
}

impl MemorySources {
    /// No sources.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How a source's claim stands.
    #[must_use]
    pub fn state(&self, source: &SourceId) -> Option<SourceState> {
        self.rows().claims.get(source).cloned()
    }

    /// How far a source has been read.
    #[must_use]
    pub fn cursor(&self, source: &SourceId) -> Option<Cursor> {
        self.rows().cursors.get(source).cloned()
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        // A panic in another test thread leaves whole rows behind: every change below is made in one go.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The row that a source begins with.
pub(super) fn new_row(interval: SignedDuration, now: Timestamp) -> SourceState {
    SourceState {
        token: Token::NONE,
        nonce: Nonce::from_random(0),
        lease_until: None,
        due_at: now,
        interval,
        failures: 0,
        note: None,
        claimed_at: None,
    }
}

impl SourceStore for MemorySources {
    async fn register_sources(&self, sources: &[(SourceId, SignedDuration)], now: Timestamp) -> Storing<usize> {
        let mut rows = self.rows();
        let before = rows.claims.len();
        for (source, interval) in sources {
            rows.claims
                .entry(source.clone())
                .or_insert_with(|| new_row(*interval, now));
        }
        Ok(rows.claims.len().saturating_sub(before))
    }

    async fn due_sources(&self, until: Timestamp, after: Option<&DueSource>, limit: usize) -> Storing<Vec<DueSource>> {
        let rows = self.rows();
        let mut due: Vec<(Timestamp, &SourceId)> = rows
            .claims
            .iter()
            .map(|(source, state)| (state.due_at, source))
            .filter(|(due_at, _)| *due_at <= until)
            .collect();
        due.sort();
        let after = after.map(|mark| (mark.due_at, &mark.source));
        let behind = due.into_iter().filter(|place| after.is_none_or(|after| *place > after));
        let found = behind.take(limit).map(|(due_at, source)| DueSource {
            due_at,
            source: source.clone(),
        });
        Ok(found.collect())
    }

    async fn claim_source(&self, source: &SourceId, claim: SourceClaim) -> Storing<SourceClaimed> {
        let mut rows = self.rows();
        let row = rows.claims.get(source);
        let state = match source_transition(row, &SourceStep::Claim(claim)) {
            SourceVerdict::Applied(state) => state,
            SourceVerdict::Already => match row {
                Some(row) => row.clone(),
                None => return Ok(SourceClaimed::Lost(SourceRefused::Missing)),
            },
            SourceVerdict::Refused(refused) => return Ok(SourceClaimed::Lost(refused)),
        };
        rows.claims.insert(source.clone(), state.clone());
        Ok(match SourceLease::proven_by(source, &state, claim.nonce) {
            Some(lease) => SourceClaimed::Won(lease, state),
            None => SourceClaimed::Lost(SourceRefused::Fenced(state.token)),
        })
    }

    async fn read_source(&self, source: &SourceId, target: &TargetKey) -> Storing<Reading> {
        let rows = self.rows();
        Ok(Reading {
            cursor: rows.cursors.get(source).cloned(),
            resting: rows.resting.get(target).copied(),
        })
    }

    async fn resting_targets(&self, targets: &[TargetKey]) -> Storing<Vec<Option<Resting>>> {
        let rows = self.rows();
        Ok(targets.iter().map(|target| rows.resting.get(target).copied()).collect())
    }

    async fn give_back_source(&self, lease: SourceLease, now: Timestamp, given: GivenBack) -> Storing<Returned> {
        let mut rows = self.rows();
        let step = SourceStep::GiveBack {
            now,
            token: lease.token,
            nonce: lease.nonce,
            given: given.clone(),
        };
        match source_transition(rows.claims.get(&lease.source), &step) {
            SourceVerdict::Applied(state) => {
                rows.claims.insert(lease.source.clone(), state);
                if let Some(cursor) = given.cursor {
                    rows.cursors.insert(lease.source, cursor);
                }
                Ok(Returned::Kept)
            }
            SourceVerdict::Already => Ok(Returned::Kept),
            SourceVerdict::Refused(refused) => Ok(Returned::Lost(refused)),
        }
    }

    async fn put_off_source(
        &self,
        due: &DueSource,
        until: Timestamp,
        now: Timestamp,
        skew: SignedDuration,
    ) -> Storing<()> {
        let mut rows = self.rows();
        let step = SourceStep::PutOff {
            found_due_at: due.due_at,
            until,
            now,
            skew,
        };
        if let SourceVerdict::Applied(state) = source_transition(rows.claims.get(&due.source), &step) {
            rows.claims.insert(due.source.clone(), state);
        }
        Ok(())
    }

    async fn rest_target(&self, target: &TargetKey, resting: Resting) -> Storing<()> {
        let mut rows = self.rows();
        let known = rows.resting.entry(target.clone()).or_insert(resting);
        if known.until < resting.until {
            *known = resting;
        }
        Ok(())
    }
}
