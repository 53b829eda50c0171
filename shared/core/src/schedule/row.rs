//! The row of a source's claim, and the one function that says what may become of it.

use jiff::{SignedDuration, Timestamp};

use super::store::{GivenBack, SourceClaim};
use crate::ledger::{Nonce, Token};
use crate::source::SourceId;

/// The claim row of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// Token of the last claim.
    pub token: Token,
    /// Nonce of the last claim.
    pub nonce: Nonce,
    /// End of the lease; `None` where it was given back.
    pub lease_until: Option<Timestamp>,
    /// When the source is due again.
    pub due_at: Timestamp,
    /// The least time between two polls: its own, or longer where the source asked for that.
    pub interval: SignedDuration,
    /// Polls without an answer, in a row.
    pub failures: u32,
    /// Why the last poll did not go well, in one word.
    pub note: Option<String>,
    /// When it was claimed last.
    pub claimed_at: Option<Timestamp>,
}

/// The right to poll one source until a time. Only a claim makes one; giving the source back takes it.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceLease {
    pub(crate) source: SourceId,
    pub(crate) token: Token,
    pub(crate) nonce: Nonce,
    pub(crate) until: Timestamp,
}

impl SourceLease {
    /// The lease that a stored state proves: the claim is ours by its nonce. For stores.
    #[must_use]
    pub fn proven_by(source: &SourceId, state: &SourceState, nonce: Nonce) -> Option<Self> {
        let until = state.lease_until.filter(|_| state.nonce == nonce)?;
        Some(Self {
            source: source.clone(),
            token: state.token,
            nonce,
            until,
        })
    }

    /// The source.
    #[must_use]
    pub fn source(&self) -> &SourceId {
        &self.source
    }

    /// The fencing token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// The claim's nonce.
    #[must_use]
    pub fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// When the right ends.
    #[must_use]
    pub fn until(&self) -> Timestamp {
        self.until
    }
}

/// Why a step was not taken. Expected answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceRefused {
    /// There is no such row.
    #[error("missing")]
    Missing,
    /// It is not due yet.
    #[error("not due before {0}")]
    NotDue(Timestamp),
    /// Somebody is polling it.
    #[error("held until {0}")]
    Held(Timestamp),
    /// The claim is not ours any more.
    #[error("fenced by token {}", .0.number())]
    Fenced(Token),
    /// Our lease is over.
    #[error("lapsed at {0}")]
    Lapsed(Timestamp),
    /// The row has a newer format.
    #[error("row format {0} is newer than this version knows")]
    Newer(u64),
}

/// What somebody wants to do with a source's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceStep {
    /// Be the one who polls it.
    Claim(SourceClaim),
    /// Give it back.
    GiveBack {
        /// The clock's time.
        now: Timestamp,
        /// The claim's token.
        token: Token,
        /// The claim's nonce.
        nonce: Nonce,
        /// What is to be remembered.
        given: GivenBack,
    },
    /// Put it off without polling it.
    PutOff {
        /// When it was found due. Whoever changed it since has decided.
        found_due_at: Timestamp,
        /// Until when.
        until: Timestamp,
        /// The clock's time.
        now: Timestamp,
        /// How far apart two clocks may be.
        skew: SignedDuration,
    },
}

/// What becomes of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceVerdict {
    /// The row is this now.
    Applied(SourceState),
    /// It was taken before, by this very asker.
    Already,
    /// Nothing changes.
    Refused(SourceRefused),
}

/// What becomes of `row` by `step`. Total, and the only place that says so: a store mirrors it in its conditions.
#[must_use]
pub fn source_transition(row: Option<&SourceState>, step: &SourceStep) -> SourceVerdict {
    let Some(row) = row else {
        return SourceVerdict::Refused(SourceRefused::Missing);
    };
    match step {
        SourceStep::Claim(claim) => claimed(row, claim),
        SourceStep::GiveBack {
            now,
            token,
            nonce,
            given,
        } => given_back(row, *now, *token, *nonce, given),
        SourceStep::PutOff {
            found_due_at,
            until,
            now,
            skew,
        } => {
            if row.due_at != *found_due_at {
                return SourceVerdict::Refused(SourceRefused::NotDue(row.due_at));
            }
            if let Some(held) = live(row, *now, *skew) {
                return SourceVerdict::Refused(SourceRefused::Held(held));
            }
            SourceVerdict::Applied(SourceState {
                due_at: *until,
                ..row.clone()
            })
        }
    }
}

fn claimed(row: &SourceState, claim: &SourceClaim) -> SourceVerdict {
    if row.nonce == claim.nonce && row.lease_until.is_some() {
        return SourceVerdict::Already;
    }
    if let Some(held) = live(row, claim.now, claim.skew) {
        return SourceVerdict::Refused(SourceRefused::Held(held));
    }
    if row.due_at > claim.now {
        return SourceVerdict::Refused(SourceRefused::NotDue(row.due_at));
    }
    let after = |span| claim.now.saturating_add(span).unwrap_or(Timestamp::MAX);
    SourceVerdict::Applied(SourceState {
        token: row.token.next(),
        nonce: claim.nonce,
        lease_until: Some(after(claim.lease)),
        due_at: after(row.interval),
        claimed_at: Some(claim.now),
        ..row.clone()
    })
}

fn given_back(row: &SourceState, now: Timestamp, token: Token, nonce: Nonce, given: &GivenBack) -> SourceVerdict {
    if row.token != token || row.nonce != nonce {
        return SourceVerdict::Refused(SourceRefused::Fenced(row.token));
    }
    match row.lease_until {
        // Its own giving back again, behind a lost answer.
        None => SourceVerdict::Already,
        Some(until) if until <= now => SourceVerdict::Refused(SourceRefused::Lapsed(until)),
        Some(_) => SourceVerdict::Applied(SourceState {
            lease_until: None,
            due_at: given.due_at,
            interval: given.interval,
            failures: given.failures,
            note: given.note.clone(),
            ..row.clone()
        }),
    }
}

/// The end of a lease that may still run on somebody's clock.
fn live(row: &SourceState, now: Timestamp, skew: SignedDuration) -> Option<Timestamp> {
    row.lease_until
        .filter(|until| *until >= now.saturating_sub(skew).unwrap_or(Timestamp::MIN))
}

#[cfg(test)]
mod tests;
