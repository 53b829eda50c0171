//! A ledger in memory: the transition function and maps, nothing else. For tests, simulation and reference.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use super::rows::{Admission, Admitted, Claimed, DeliveryRow, EventAdmission, EventRow, Lease, Settled, State};
use super::transition::{Claim, Raise, Refused, Renew, Settle, Settlement, Step, Term, Verdict, refusal, transition};
use crate::delivery::{DeliveryKey, Outcome};
use crate::event::{Content, EventId, Net, Repository};
use crate::ports::{
    DUE_SHARDS, Due, DueMark, DuePage, DueQuery, ErrorClass, Ledger, LedgerError, Listing, Raised, Redacted, Renewed,
};
use crate::session::{Opened, Owner, OwnerKey, Phase, Pointer, Pointers, Session, SessionId};
use crate::source::SourceId;
use crate::source::github::{Becomes, Lost, Missing, MissingStore, Word};

/// A ledger in memory.
#[derive(Debug, Default)]
pub struct MemoryLedger {
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    deliveries: BTreeMap<DeliveryKey, Kept>,
    events: BTreeMap<EventId, EventRow>,
    pointers: BTreeMap<OwnerKey, Pointer>,
    sessions: BTreeMap<SessionId, Session>,
    /// By the log that shows them.
    missing: BTreeMap<DeliveryKey, (SourceId, Missing)>,
    /// What has become of them, and when: here, or lost.
    became: BTreeMap<DeliveryKey, (Missing, Becomes, Timestamp)>,
    /// When the rows of closed sessions go.
    closed: BTreeMap<SessionId, Timestamp>,
}

#[derive(Debug)]
struct Kept {
    row: DeliveryRow,
    body: Vec<u8>,
    nonce: super::Nonce,
}

impl MemoryLedger {
    /// An empty ledger.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets every row whose time has come, as DynamoDB's time-to-live does some day.
    pub fn expire(&self, now: Timestamp) {
        let mut tables = self.tables();
        tables.deliveries.retain(|_, kept| kept.row.expires_at > now);
        tables
            .events
            .retain(|_, row| row.state.expires_at.is_none_or(|at| at > now));
        let Tables { sessions, closed, .. } = &mut *tables;
        sessions.retain(|id, _| closed.get(id).is_none_or(|at| *at > now));
        closed.retain(|_, at| *at > now);
    }

    /// How many deliveries and events there are.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let tables = self.tables();
        (tables.deliveries.len(), tables.events.len())
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // A panic in another test thread leaves whole rows behind: every change below is made in one go.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn admit(&mut self, admission: &Admission<'_>) -> Admitted {
        let delivery = admission.delivery;
        if let Some(kept) = self.deliveries.get(&delivery.key) {
            let event = match &kept.row.delivery.outcome {
                Outcome::Accepted(id) => self.events.get(id).cloned(),
                Outcome::Ignored(_) | Outcome::Malformed(_) => None,
            };
            if kept.nonce == admission.nonce {
                let lease = event.and_then(|row| Lease::proven_by(&row.event.id, &row.state, admission.nonce));
                return Admitted::Created { lease };
            }
            let conflict = delivery.conflicts_with(&kept.row.delivery);
            return Admitted::Duplicate {
                conflict,
                event: event.map(Box::new),
            };
        }
        let row = DeliveryRow {
            delivery: delivery.clone(),
            stored_bytes: delivery.size,
            redacted_at: None,
            expires_at: admission.expires_at,
        };
        let kept = Kept {
            row,
            body: admission.body.to_vec(),
            nonce: admission.nonce,
        };
        self.deliveries.insert(delivery.key.clone(), kept);
        let Some(admittee) = &admission.event else {
            return Admitted::Created { lease: None };
        };
        if let Some(known) = self.events.get_mut(&admittee.event.id) {
            let is_new_to_net = known.seen_by.insert(delivery.net);
            return Admitted::Joined {
                event: Some(Box::new(known.clone())),
                is_new_to_net,
            };
        }
        let row = EventRow {
            event: admittee.event.clone(),
            state: admittee.state.clone(),
            admitted_at: delivery.received_at,
            first_seen: delivery.net,
            seen_by: BTreeSet::from([delivery.net]),
        };
        let lease = Lease::proven_by(&row.event.id, &row.state, admission.nonce);
        self.events.insert(row.event.id.clone(), row);
        Admitted::Created { lease }
    }

    fn admit_event(&mut self, admission: &EventAdmission<'_>) -> Admitted {
        let EventAdmission { admittee, net, .. } = *admission;
        let id = &admittee.event.id;
        let Some(known) = self.events.get_mut(id) else {
            let row = EventRow {
                event: admittee.event.clone(),
                state: admittee.state.clone(),
                admitted_at: admission.received_at,
                first_seen: net,
                seen_by: BTreeSet::from([net]),
            };
            let lease = Lease::proven_by(id, &row.state, admission.nonce);
            self.events.insert(id.clone(), row);
            return Admitted::Created { lease };
        };
        if known.state.nonce == admission.nonce {
            let lease = Lease::proven_by(id, &known.state, admission.nonce);
            return Admitted::Created { lease };
        }
        let joined = known.seen_by.insert(net);
        let event = Some(Box::new(known.clone()));
        if joined {
            Admitted::Joined {
                event,
                is_new_to_net: true,
            }
        } else {
            Admitted::Duplicate { conflict: false, event }
        }
    }

    fn step(&mut self, event: &EventId, step: &Step) -> Result<&mut EventRow, Option<Refused>> {
        match transition(self.events.get(event).map(|row| &row.state), step) {
            Verdict::Refused(refused) => Err(Some(refused)),
            Verdict::Already => self.events.get_mut(event).ok_or(None),
            Verdict::Applied(state) => {
                let row = self.events.get_mut(event).ok_or(None)?;
                row.state = state;
                Ok(row)
            }
        }
    }

    fn redact(&mut self, lease: &Lease, key: &DeliveryKey, now: Timestamp) -> Redacted {
        let row = self.events.get_mut(&lease.event);
        if let Some(refused) = refusal(row.as_ref().map(|row| &row.state), lease, now) {
            return Redacted::Lost(refused);
        }
        let means = Outcome::Accepted(lease.event.clone());
        let kept = self.deliveries.get_mut(key);
        let (Some(row), Some(kept)) = (row, kept.filter(|kept| kept.row.delivery.outcome == means)) else {
            return Redacted::NotItsOwn;
        };
        row.event.summary.clear();
        kept.body.clear();
        kept.row.stored_bytes = 0;
        kept.row.redacted_at.get_or_insert(now);
        Redacted::Done
    }

    fn held_by_another(&self, key: &OwnerKey, session: &SessionId, now: Timestamp) -> Option<Owner> {
        let owner = self.pointers.get(key)?.owner.as_ref()?;
        (owner.session != *session && now < owner.live_until).then(|| owner.clone())
    }

    fn open(&mut self, session: &Session, now: Timestamp) -> Opened {
        let mut keys = session.keys();
        if let Some(branch) = &session.branch {
            let known = self.pointers.get(&OwnerKey::branch(&session.repository, branch));
            let pulls = known.map(|pointer| pointer.pulls.clone()).unwrap_or_default();
            let more = pulls.iter().map(|number| OwnerKey::pull(&session.repository, *number));
            // What it names besides is there already: each key once, or its events would be woken twice.
            keys.extend(more.filter(|key| !session.keys().contains(key)));
        }
        // What it names it gets or fails; what only its branch's pointer names it gets where it is free.
        for key in session.keys() {
            if let Some(owner) = self.held_by_another(&key, &session.id, now) {
                return Opened::Held { key, owner };
            }
        }
        keys.retain(|key| self.held_by_another(key, &session.id, now).is_none());
        for key in &keys {
            self.pointers.entry(key.clone()).or_default().owner = Some(session.owner());
        }
        // A session that moves gives up what it no longer names.
        self.free(&session.id, &keys);
        self.sessions.insert(session.id.clone(), session.clone());
        self.closed.remove(&session.id);
        Opened::Live(keys)
    }

    /// Frees what `session` owns, apart from `kept`.
    fn free(&mut self, session: &SessionId, kept: &[OwnerKey]) {
        for (key, pointer) in &mut self.pointers {
            let owns = pointer.owner.as_ref().is_some_and(|owner| owner.session == *session);
            if owns && !kept.contains(key) {
                pointer.owner = None;
            }
        }
    }

    fn close(&mut self, id: &SessionId, expires_at: Timestamp) -> Option<Session> {
        let session = self.sessions.get_mut(id)?;
        session.phase = Phase::Closed;
        let session = session.clone();
        self.free(id, &[]);
        self.closed.insert(id.clone(), expires_at);
        Some(session)
    }
}

/// The row is gone between two looks under one lock: cannot happen.
fn vanished(event: &EventId) -> LedgerError {
    LedgerError {
        attempted: "step event",
        on: event.to_string(),
        class: ErrorClass::Invalid,
        source: None,
    }
}

impl Ledger for MemoryLedger {
    async fn admit(&self, admission: &Admission<'_>) -> Result<Admitted, LedgerError> {
        Ok(self.tables().admit(admission))
    }

    async fn admit_event(&self, admission: &EventAdmission<'_>) -> Result<Admitted, LedgerError> {
        Ok(self.tables().admit_event(admission))
    }

    async fn claim(&self, event: &EventId, claim: Claim) -> Result<Claimed, LedgerError> {
        let mut tables = self.tables();
        let row = match tables.step(event, &Step::Claim(claim)) {
            Ok(row) => row.clone(),
            Err(Some(refused)) => return Ok(Claimed::Lost(refused)),
            Err(None) => return Err(vanished(event)),
        };
        let lease = Lease::proven_by(event, &row.state, claim.nonce).ok_or_else(|| vanished(event))?;
        Ok(Claimed::Won {
            row: Box::new(row),
            lease,
        })
    }

    async fn settle(&self, lease: Lease, now: Timestamp, settlement: Settlement) -> Result<Settled, LedgerError> {
        let settle = Settle {
            now,
            token: lease.token,
            nonce: lease.nonce,
            settlement,
        };
        match self.tables().step(&lease.event, &Step::Settle(settle)) {
            Ok(_) => Ok(Settled::Done),
            Err(Some(refused)) => Ok(Settled::Lost(refused)),
            Err(None) => Err(vanished(&lease.event)),
        }
    }

    async fn renew(&self, lease: &mut Lease, now: Timestamp, term: Term) -> Result<Renewed, LedgerError> {
        let step = Step::Renew(Renew::of(lease, now, term));
        let state: State = match self.tables().step(&lease.event, &step) {
            Ok(row) => row.state.clone(),
            Err(Some(refused)) => return Ok(Renewed::Lost(refused)),
            Err(None) => return Err(vanished(&lease.event)),
        };
        let renewed = Lease::proven_by(&lease.event, &state, lease.nonce);
        *lease = renewed.ok_or_else(|| vanished(&lease.event))?;
        Ok(Renewed::Kept)
    }

    async fn raise(&self, event: &EventId, raise: Raise) -> Result<Raised, LedgerError> {
        match self.tables().step(event, &Step::Raise(raise)) {
            Ok(row) => Ok(Raised::of(row.state.status)),
            Err(Some(refused)) => Ok(Raised::Lost(refused)),
            Err(None) => Err(vanished(event)),
        }
    }

    async fn due(&self, query: &DueQuery) -> Result<DuePage, LedgerError> {
        let tables = self.tables();
        let due = tables.events.values().filter_map(|row| {
            let due_at = row.state.due_at.filter(|due_at| *due_at <= query.until)?;
            Some((due_at, &row.event.id))
        });
        let after = |(due_at, id): &(Timestamp, &EventId)| match &query.after {
            Some(mark) => (*due_at, id.as_str()) > (mark.due_at, mark.key.as_str()),
            None => true,
        };
        let mut due: Vec<_> = due.filter(|(_, id)| shard(id) == query.shard).filter(after).collect();
        due.sort();
        let more = due.len() > query.limit;
        due.truncate(query.limit);
        let last = due.last().filter(|_| more);
        Ok(DuePage {
            next: last.map(|(due_at, id)| DueMark {
                due_at: *due_at,
                key: id.to_string(),
            }),
            events: due
                .into_iter()
                .map(|(due_at, id)| Due {
                    due_at,
                    event: id.clone(),
                })
                .collect(),
        })
    }

    async fn event(&self, event: &EventId) -> Result<Option<EventRow>, LedgerError> {
        Ok(self.tables().events.get(event).cloned())
    }

    async fn delivery(&self, key: &DeliveryKey) -> Result<Option<DeliveryRow>, LedgerError> {
        Ok(self.tables().deliveries.get(key).map(|kept| kept.row.clone()))
    }

    async fn redact(&self, lease: &Lease, key: &DeliveryKey, now: Timestamp) -> Result<Redacted, LedgerError> {
        Ok(self.tables().redact(lease, key, now))
    }

    async fn body(&self, key: &DeliveryKey) -> Result<Option<Vec<u8>>, LedgerError> {
        let tables = self.tables();
        let kept = tables.deliveries.get(key).filter(|kept| kept.row.redacted_at.is_none());
        Ok(kept.map(|kept| kept.body.clone()))
    }

    async fn content(&self, event: &EventId) -> Result<Option<String>, LedgerError> {
        Ok(match self.tables().events.get(event).map(|row| &row.event.content) {
            Some(Some(Content::Here(content))) => Some(content.clone()),
            Some(Some(Content::Apart(_)) | None) | None => None,
        })
    }

    async fn events(&self, listing: &Listing) -> Result<Vec<EventRow>, LedgerError> {
        let tables = self.tables();
        let rows = tables.events.values().map(|row| (row.admitted_at, row));
        Ok(newest(rows, listing))
    }

    async fn deliveries(&self, listing: &Listing) -> Result<Vec<DeliveryRow>, LedgerError> {
        let tables = self.tables();
        let without_event = tables
            .deliveries
            .values()
            .map(|kept| &kept.row)
            .filter(|row| !matches!(row.delivery.outcome, Outcome::Accepted(_)));
        Ok(newest(
            without_event.map(|row| (row.delivery.received_at, row)),
            listing,
        ))
    }

    async fn pointers(&self, keys: &[OwnerKey]) -> Result<Pointers, LedgerError> {
        let tables = self.tables();
        let found = keys
            .iter()
            .filter_map(|key| Some((key.clone(), tables.pointers.get(key)?.clone())));
        Ok(Pointers(found.collect()))
    }

    async fn learn(
        &self,
        repository: &Repository,
        branch: &str,
        pull: u64,
        _now: Timestamp,
    ) -> Result<Pointer, LedgerError> {
        let mut tables = self.tables();
        let pointer = tables.pointers.entry(OwnerKey::branch(repository, branch)).or_default();
        pointer.pulls.insert(pull);
        Ok(pointer.clone())
    }

    async fn own(&self, key: &OwnerKey, owner: &Owner, now: Timestamp) -> Result<bool, LedgerError> {
        let mut tables = self.tables();
        let free = tables.held_by_another(key, &owner.session, now).is_none();
        if free {
            tables.pointers.entry(key.clone()).or_default().owner = Some(owner.clone());
        }
        Ok(free)
    }

    async fn open_session(&self, session: &Session, now: Timestamp) -> Result<Opened, LedgerError> {
        Ok(self.tables().open(session, now))
    }

    async fn close_session(&self, id: &SessionId, expires_at: Timestamp) -> Result<Option<Session>, LedgerError> {
        Ok(self.tables().close(id, expires_at))
    }

    async fn sessions(&self, limit: usize) -> Result<Vec<Session>, LedgerError> {
        let tables = self.tables();
        Ok(tables
            .sessions
            .values()
            .filter(|session| session.phase.is_live())
            .take(limit)
            .cloned()
            .collect())
    }

    async fn waiting(&self, key: &OwnerKey, limit: usize) -> Result<Vec<EventId>, LedgerError> {
        let tables = self.tables();
        let mut rows: Vec<&EventRow> = tables
            .events
            .values()
            .filter(|row| row.state.waiting_for.as_ref() == Some(key))
            .collect();
        rows.sort_by_key(|row| row.state.due_at);
        Ok(rows.into_iter().take(limit).map(|row| row.event.id.clone()).collect())
    }
}

/// Any spread will do: nothing is stored by it.
fn shard(event: &EventId) -> u32 {
    let sum = event
        .as_str()
        .bytes()
        .fold(0_u32, |sum, byte| sum.wrapping_add(byte.into()));
    sum.checked_rem(DUE_SHARDS).unwrap_or(0)
}

fn newest<'a, R: Clone + 'a>(rows: impl Iterator<Item = (Timestamp, &'a R)>, listing: &Listing) -> Vec<R> {
    let mut rows: Vec<_> = rows
        .filter(|(at, _)| (listing.since..=listing.until).contains(at))
        .collect();
    rows.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    rows.into_iter()
        .take(listing.limit)
        .map(|(_, row)| row.clone())
        .collect()
}

impl MissingStore for MemoryLedger {
    async fn kept(&self, keys: &[DeliveryKey]) -> Result<BTreeSet<DeliveryKey>, LedgerError> {
        let tables = self.tables();
        let kept = keys.iter().filter(|key| tables.deliveries.contains_key(key));
        Ok(kept.cloned().collect())
    }

    async fn note_missing(&self, log: &SourceId, missing: &[Missing]) -> Result<u64, LedgerError> {
        let mut tables = self.tables();
        let before = tables.missing.len().saturating_add(tables.became.len());
        for missing in missing {
            if !tables.became.contains_key(&missing.key) {
                let row = || (log.clone(), missing.clone());
                tables.missing.entry(missing.key.clone()).or_insert_with(row);
            }
        }
        let after = tables.missing.len().saturating_add(tables.became.len());
        Ok(u64::try_from(after.saturating_sub(before)).unwrap_or(u64::MAX))
    }

    async fn due_missing(&self, log: &SourceId, until: Timestamp, limit: usize) -> Result<Vec<Missing>, LedgerError> {
        let tables = self.tables();
        let rows = tables.missing.values().filter(|(of, _)| of == log);
        let mut due: Vec<Missing> = rows
            .map(|(_, missing)| missing.clone())
            .filter(|missing| missing.due_at <= until)
            .collect();
        due.sort_by_key(|missing| missing.due_at);
        due.truncate(limit);
        Ok(due)
    }

    async fn settle_missing(
        &self,
        _log: &SourceId,
        missing: &Missing,
        becomes: Becomes,
        now: Timestamp,
    ) -> Result<Word, LedgerError> {
        let mut tables = self.tables();
        let known = |row: &Missing| (row.asked, row.due_at);
        let Some((_, row)) = tables.missing.get_mut(&missing.key) else {
            let before = tables.became.get(&missing.key);
            let is_ours = before.is_some_and(|(_, became, at)| (*became, *at) == (becomes, now));
            return Ok(if is_ours { Word::Ours } else { Word::Theirs });
        };
        match missing.noted(becomes) {
            Some(noted) if [known(missing), known(&noted)].contains(&known(row)) => {
                (row.asked, row.due_at) = known(&noted);
            }
            Some(_) => return Ok(Word::Theirs),
            None => {
                let row = row.clone();
                tables.missing.remove(&missing.key);
                tables.became.insert(missing.key.clone(), (row, becomes, now));
            }
        }
        Ok(Word::Ours)
    }

    async fn lost(&self, since: Timestamp, limit: usize) -> Result<Vec<Lost>, LedgerError> {
        let tables = self.tables();
        let lost = tables.became.values().filter_map(|(row, became, at)| match became {
            Becomes::Lost(word) => Some(Lost {
                key: row.key.clone(),
                event_name: row.event_name.clone(),
                delivered_at: row.delivered_at,
                asked: row.asked,
                reason: (*word).to_owned(),
                since: *at,
            }),
            Becomes::Here | Becomes::Asked(_) | Becomes::PutOff { .. } => None,
        });
        let mut lost: Vec<Lost> = lost.filter(|lost| lost.since >= since).collect();
        lost.sort_by_key(|lost| std::cmp::Reverse(lost.since));
        lost.truncate(limit);
        Ok(lost)
    }

    async fn attribute(&self, key: &DeliveryKey) -> Result<bool, LedgerError> {
        let mut tables = self.tables();
        let Some(kept) = tables.deliveries.get_mut(key) else {
            return Ok(false);
        };
        let delivery = &mut kept.row.delivery;
        let is_new = delivery.net == Net::Webhook;
        if is_new {
            delivery.net = Net::Recovery;
        }
        let Outcome::Accepted(event) = delivery.outcome.clone() else {
            return Ok(false);
        };
        let Some(row) = tables.events.get_mut(&event) else {
            return Ok(false);
        };
        let before = row.seen_by.clone();
        // Done before, by a poll that may not have come to its end: it is answered as well as the row can tell.
        if is_new {
            (row.first_seen, row.seen_by) = row.recovered_through(key);
        }
        Ok(row.is_lost_through(key, &before))
    }
}

#[cfg(test)]
mod tests;
