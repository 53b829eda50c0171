//! What must hold after every step, said without the rules that are to keep it. Numbers are the invariants of the core.

use std::collections::{BTreeMap, BTreeSet};

use forebay_core::delivery::DeliveryKey;
use forebay_core::event::EventId;
use forebay_core::ledger::{EventRow, Nonce, Sent, State, Status, Token};
use forebay_core::ports::Outgoing;
use jiff::Timestamp;

/// What changed a row, and who asked, by its own clock.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Admit { nonce: Nonce },
    Claim { nonce: Nonce },
    Settle { token: Token, nonce: Nonce, now: Timestamp },
    Renew { token: Token, nonce: Nonce, now: Timestamp },
    Raise { nonce: Nonce },
}

/// What the world did so far, and the first thing that must not have happened.
#[derive(Debug, Default)]
pub(super) struct Checks {
    pub(super) violated: Option<String>,
    /// Clocks are within the skew, and no process stalls in the middle of a send.
    pub(super) sane: bool,
    /// How far ahead the clock of a claim's owner is, in milliseconds.
    ahead_ms: BTreeMap<Nonce, i64>,
    created: BTreeMap<DeliveryKey, Nonce>,
    /// Deduplication id by event, inbox.
    deduplications: BTreeMap<(String, String), String>,
    pub(super) landed: BTreeSet<(String, String)>,
    pub(super) landings: usize,
    /// Claims of each event, and raises: each may have counted as a failure.
    pub(super) claims: BTreeMap<EventId, u32>,
}

impl Checks {
    pub(super) fn new(sane: bool) -> Self {
        Self {
            sane,
            ..Self::default()
        }
    }

    pub(super) fn violate(&mut self, what: impl Into<String>) {
        self.violated.get_or_insert_with(|| what.into());
    }

    /// Invariant 2.
    pub(super) fn created(&mut self, key: &DeliveryKey, nonce: Nonce) {
        if *self.created.entry(key.clone()).or_insert(nonce) != nonce {
            self.violate(format!("delivery {key} was created twice"));
        }
    }

    /// Invariants 4 and 5, on a row before and after a call that was carried out at `now_ms`.
    pub(super) fn row(
        &mut self,
        asked: Asked,
        ahead_ms: i64,
        now_ms: i64,
        before: Option<&EventRow>,
        after: Option<&EventRow>,
    ) {
        let Some(after) = after else {
            if before.is_some() {
                self.violate("a row is gone");
            }
            return;
        };
        let id = &after.event.id;
        let state = &after.state;
        if !state.status.is_terminal() && state.due_at.is_none() {
            self.violate(format!("{id} is {} and never due", state.status));
        }
        let owned = state.status == Status::Claimed;
        match asked {
            Asked::Admit { nonce } | Asked::Claim { nonce } if owned && state.nonce == nonce => {
                self.ahead_ms.insert(nonce, ahead_ms);
            }
            Asked::Admit { .. }
            | Asked::Claim { .. }
            | Asked::Settle { .. }
            | Asked::Renew { .. }
            | Asked::Raise { .. } => {}
        }
        let Some(before) = before else {
            self.claims.insert(id.clone(), 1);
            return;
        };
        if before.state == *state {
            return;
        }
        if let Some(broken) = self.broken(asked, now_ms, &before.state, state) {
            self.violate(format!("{id}: {broken} ({asked:?})"));
        }
        if matches!(asked, Asked::Claim { .. } | Asked::Raise { .. }) {
            *self.claims.entry(id.clone()).or_default() += 1;
        }
    }

    fn broken(&self, asked: Asked, now_ms: i64, before: &State, after: &State) -> Option<&'static str> {
        if before.status.is_terminal() {
            return Some("a terminal row changed");
        }
        if after.token < before.token {
            return Some("a token went back");
        }
        let (token, nonce, now) = match asked {
            Asked::Admit { .. } => return Some("an admission changed a state"),
            Asked::Claim { .. } if after.token == before.token => return Some("a claim kept the token"),
            // Its own claim is there to be raised.
            Asked::Raise { nonce } if before.nonce == nonce => return None,
            Asked::Claim { .. } | Asked::Raise { .. } => {
                let until_ms = before
                    .lease_until
                    .filter(|_| before.status == Status::Claimed)?
                    .as_millisecond();
                let owners_ms = now_ms + self.ahead_ms.get(&before.nonce).copied().unwrap_or(0);
                return (self.sane && owners_ms < until_ms).then_some("taken while its owner's lease ran");
            }
            Asked::Settle { token, nonce, now } | Asked::Renew { token, nonce, now } => (token, nonce, now),
        };
        if before.status != Status::Claimed || before.token != token || before.nonce != nonce {
            return Some("a stale owner changed it");
        }
        if before.lease_until.is_none_or(|until| now >= until) {
            return Some("an owner whose lease had ended changed it");
        }
        None
    }

    /// Invariant 3, on a message that arrives. `row` is its event's at that moment.
    pub(super) fn landing(&mut self, message: &Outgoing, event: &str, row: Option<&EventRow>) {
        let place = (event.to_owned(), message.inbox.clone());
        let deduplication = message.deduplication.clone();
        if *self
            .deduplications
            .entry(place.clone())
            .or_insert_with(|| deduplication.clone())
            != deduplication
        {
            self.violate(format!("{event}: two deduplication ids for {}", message.inbox));
        }
        let Some(row) = row else {
            self.violate(format!("{event}: a message without a row"));
            return;
        };
        if self.sane && row.state.destinations.get(&message.inbox) == Some(&Sent::Yes) {
            self.violate(format!("{event}: sent to {} after that was recorded", message.inbox));
        }
        self.landings += 1;
        self.landed.insert(place);
    }
}
