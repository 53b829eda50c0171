//! The transition function.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::rows::{Lease, Nonce, Reason, Sent, State, Status, Token};
use crate::backoff;
use crate::session::OwnerKey;

/// Why somebody asks for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its time has come, or a redelivery asks.
    Due,
    /// The owner it was parked for has appeared.
    OwnerAppeared,
}

/// A claim: give me the right to handle this event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The claimant's clock when it asks. A claim that lost is made again with the time of then.
    ///
    /// An adapter that repeats one request keeps it. That is safe: an older time takes nothing over sooner, and the time for
    /// the work under a lease is counted from before the claim, so that a lease from this time on still outlasts it.
    pub now: Timestamp,
    /// The claim's own random number.
    pub nonce: Nonce,
    /// How long the right shall last.
    pub lease: SignedDuration,
    /// How far two clocks may differ: a lease counts as lapsed only this long after its end.
    pub skew: SignedDuration,
    /// Why.
    pub cause: Cause,
}

/// How a lease ends when its owner settles: where the event stands then. Nobody settles it as `received` or `claimed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// See [`Status::Processed`].
    Processed,
    /// See [`Status::FailedRetryable`].
    FailedRetryable,
    /// See [`Status::FailedPermanent`].
    FailedPermanent,
    /// See [`Status::Parked`].
    Parked,
}

impl Ending {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Processed,
        Self::FailedRetryable,
        Self::FailedPermanent,
        Self::Parked,
    ];

    /// Where the event stands then.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::Processed => Status::Processed,
            Self::FailedRetryable => Status::FailedRetryable,
            Self::FailedPermanent => Status::FailedPermanent,
            Self::Parked => Status::Parked,
        }
    }
}

/// What an event becomes when its owner settles it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// Where it stands.
    pub ending: Ending,
    /// Why.
    pub reason: Reason,
    /// Failures of its own handling so far.
    pub failures: u32,
    /// Drives without success so far.
    pub tries: u32,
    /// When it is due again; `None` only where terminal.
    pub due_at: Option<Timestamp>,
    /// Whom it waits for, where parked.
    pub waiting_for: Option<OwnerKey>,
    /// What each destination got.
    pub destinations: BTreeMap<String, Sent>,
    /// When the row may go; only where terminal.
    pub expires_at: Option<Timestamp>,
}

/// Settle: this is what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// The owner's clock.
    pub now: Timestamp,
    /// The owner's token.
    pub token: Token,
    /// The owner's nonce.
    pub nonce: Nonce,
    /// What the event becomes.
    pub settlement: Settlement,
}

/// How long a renewed right lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// How long from now on.
    pub lease: SignedDuration,
    /// How far two clocks may differ.
    pub skew: SignedDuration,
}

/// Renew: I need longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renew {
    /// The owner's clock.
    pub now: Timestamp,
    /// The owner's token.
    pub token: Token,
    /// The owner's nonce.
    pub nonce: Nonce,
    /// How long the right shall last.
    pub term: Term,
}

impl Renew {
    /// What the owner of `lease` asks for at `now`.
    #[must_use]
    pub fn of(lease: &Lease, now: Timestamp, term: Term) -> Self {
        Self {
            now,
            token: lease.token,
            nonce: lease.nonce,
            term,
        }
    }
}

/// Raise: this row cannot be read or handled, which counts as a failure of its own. It is moved on, and ended at the ceiling.
///
/// It holds no lease. It is taken only where nothing has happened since the row was seen to be due, or where the only thing
/// that has is the asker's own claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raise {
    /// The asker's clock.
    pub now: Timestamp,
    /// The due time at which the row was found.
    pub seen: Timestamp,
    /// The nonce of the asker's claim, whether or not that claim was granted.
    pub nonce: Nonce,
    /// Shortest wait until the row is due again.
    pub wait_min: SignedDuration,
    /// Longest.
    pub wait_max: SignedDuration,
    /// Failures at which the row is ended.
    pub failures_max: u32,
    /// When the row may go, if this ends it.
    pub expires_at: Timestamp,
}

/// Everything that can be asked of an event's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// See [`Claim`].
    Claim(Claim),
    /// See [`Settle`].
    Settle(Settle),
    /// See [`Renew`].
    Renew(Renew),
    /// See [`Raise`].
    Raise(Raise),
}

/// Why a step was not taken. Expected answers, not errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no such row.
    #[error("no such event")]
    Missing,
    /// A live lease is somebody else's.
    #[error("held until {until}")]
    Held {
        /// End of that lease.
        until: Timestamp,
    },
    /// Its time has not come.
    #[error("not due before {due_at}")]
    NotDue {
        /// When it comes.
        due_at: Timestamp,
    },
    /// Nothing is left to do.
    #[error("already {0}")]
    Terminal(Status),
    /// A newer claim, or another life of the row, has taken over.
    #[error("fenced by token {current}")]
    Stale {
        /// The row's token.
        current: Token,
    },
    /// The owner's own lease has ended.
    #[error("lease ended at {until}")]
    Lapsed {
        /// When.
        until: Timestamp,
    },
    /// The row is of a newer format than this code knows.
    #[error("row format {0} is newer than this version knows")]
    Newer(u64),
}

impl Refused {
    /// The word that the log uses. Fixed, and without the time or token that the text has.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Held { .. } => "held",
            Self::NotDue { .. } => "not_due",
            Self::Terminal(_) => "terminal",
            Self::Stale { .. } => "fenced",
            Self::Lapsed { .. } => "lapsed",
            Self::Newer(_) => "newer",
        }
    }
}

/// What the function says to a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The state becomes this.
    Applied(State),
    /// The step has been applied before, by this very asker: its answer was lost on the way.
    Already,
    /// The state stays.
    Refused(Refused),
}

/// What `step` makes of `state`. Total: every pair has an answer.
#[must_use]
pub fn transition(state: Option<&State>, step: &Step) -> Verdict {
    let Some(state) = state else {
        return Verdict::Refused(Refused::Missing);
    };
    match step {
        Step::Claim(claim) => apply_claim(state, claim),
        Step::Settle(settle) => apply_settle(state, settle),
        Step::Renew(renew) => apply_renew(state, renew),
        Step::Raise(raise) => apply_raise(state, raise),
    }
}

fn apply_claim(state: &State, claim: &Claim) -> Verdict {
    if state.status == Status::Claimed && state.nonce == claim.nonce {
        return Verdict::Already;
    }
    let refused = match state.status {
        Status::Processed | Status::FailedPermanent => Some(Refused::Terminal(state.status)),
        Status::Claimed => state
            .lease_until
            .filter(|until| claim.now <= later(*until, claim.skew))
            .map(|until| Refused::Held { until }),
        Status::FailedRetryable => not_due(state, claim.now),
        Status::Parked => match claim.cause {
            Cause::Due => not_due(state, claim.now),
            Cause::OwnerAppeared => None,
        },
        Status::Received => None,
    };
    if let Some(refused) = refused {
        return Verdict::Refused(refused);
    }
    let lease_until = later(claim.now, claim.lease);
    Verdict::Applied(State {
        status: Status::Claimed,
        token: state.token.next(),
        nonce: claim.nonce,
        lease_until: Some(lease_until),
        failures: state.failures.saturating_add(1),
        due_at: Some(later(lease_until, claim.skew)),
        waiting_for: None,
        ..state.clone()
    })
}

fn apply_settle(state: &State, settle: &Settle) -> Verdict {
    let ours = state.token == settle.token && state.nonce == settle.nonce;
    if ours && state.status == settle.settlement.ending.status() {
        return Verdict::Already;
    }
    if let Some(refused) = not_owned(state, settle.token, settle.nonce, settle.now) {
        return Verdict::Refused(refused);
    }
    let Settlement {
        ending,
        reason,
        failures,
        tries,
        due_at,
        waiting_for,
        destinations,
        expires_at,
    } = settle.settlement.clone();
    Verdict::Applied(State {
        status: ending.status(),
        reason: Some(reason),
        token: state.token,
        nonce: state.nonce,
        lease_until: None,
        failures,
        tries,
        due_at,
        waiting_for,
        destinations,
        generation: state.generation,
        expires_at,
    })
}

fn apply_renew(state: &State, renew: &Renew) -> Verdict {
    if let Some(refused) = not_owned(state, renew.token, renew.nonce, renew.now) {
        return Verdict::Refused(refused);
    }
    let lease_until = later(renew.now, renew.term.lease);
    // A repeat of an earlier renewal may arrive after a later one. It must not take time away that its owner counts on, or
    // two owners would hold the event at once.
    if state.lease_until.is_some_and(|until| until >= lease_until) {
        return Verdict::Already;
    }
    Verdict::Applied(State {
        lease_until: Some(lease_until),
        due_at: Some(later(lease_until, renew.term.skew)),
        ..state.clone()
    })
}

fn apply_raise(state: &State, raise: &Raise) -> Verdict {
    let ours = state.nonce == raise.nonce;
    let failures = match state.status {
        Status::FailedRetryable | Status::FailedPermanent if ours => return Verdict::Already,
        Status::Processed | Status::FailedPermanent => return Verdict::Refused(Refused::Terminal(state.status)),
        // Our own claim has counted itself.
        Status::Claimed if ours => state.failures,
        Status::Received | Status::Claimed | Status::FailedRetryable | Status::Parked => match state.due_at {
            Some(due_at) if due_at > raise.now => return Verdict::Refused(Refused::NotDue { due_at }),
            Some(due_at) if due_at == raise.seen => state.failures.saturating_add(1),
            // Somebody has had it since.
            Some(_) | None => return Verdict::Refused(Refused::Stale { current: state.token }),
        },
    };
    let ended = failures >= raise.failures_max;
    let wait = backoff::wait(failures, raise.wait_min, raise.wait_max, raise.nonce.number());
    let (status, reason) = if ended {
        (Status::FailedPermanent, Reason::TooManyFailures)
    } else {
        (Status::FailedRetryable, Reason::Failed)
    };
    Verdict::Applied(State {
        status,
        reason: Some(reason),
        // Whoever held the row before is fenced by it.
        nonce: raise.nonce,
        lease_until: None,
        failures,
        due_at: (!ended).then(|| later(raise.now, wait)),
        waiting_for: None,
        expires_at: ended.then_some(raise.expires_at),
        ..state.clone()
    })
}

/// Why whoever holds `lease` may not change the row at `now`: what settling and renewing ask first. `None` where it may.
#[must_use]
pub fn refusal(state: Option<&State>, lease: &Lease, now: Timestamp) -> Option<Refused> {
    state.map_or(Some(Refused::Missing), |state| {
        not_owned(state, lease.token, lease.nonce, now)
    })
}

/// Why the row does not belong to whoever shows `token` and `nonce` at `now`.
fn not_owned(state: &State, token: Token, nonce: Nonce, now: Timestamp) -> Option<Refused> {
    if state.token != token || state.nonce != nonce {
        return Some(Refused::Stale { current: state.token });
    }
    match (state.status, state.lease_until) {
        (Status::Claimed, Some(until)) if now < until => None,
        (Status::Claimed, Some(until)) => Some(Refused::Lapsed { until }),
        (Status::Claimed, None) => Some(Refused::Lapsed { until: Timestamp::MIN }),
        (
            Status::Received | Status::Processed | Status::FailedRetryable | Status::FailedPermanent | Status::Parked,
            _,
        ) => Some(Refused::Terminal(state.status)),
    }
}

fn not_due(state: &State, now: Timestamp) -> Option<Refused> {
    state
        .due_at
        .filter(|due_at| *due_at > now)
        .map(|due_at| Refused::NotDue { due_at })
}

/// `at` plus `span`, at most the last instant there is.
pub(crate) fn later(at: Timestamp, span: SignedDuration) -> Timestamp {
    at.saturating_add(span).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
