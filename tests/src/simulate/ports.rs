//! The ports as one worker has them: every call waits for the play to let it through, on its way there and back.

use std::fmt::Write as _;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use std::collections::BTreeMap;

use forebay_core::delivery::DeliveryKey;
use forebay_core::drive::SEND_TIME_MAX;
use forebay_core::event::{EventId, Repository};
use forebay_core::ledger::memory::MemoryLedger;
use forebay_core::ledger::{
    Admission, Admitted, Claim, Claimed, DeliveryRow, EventAdmission, EventRow, Lease, Raise, Sent, Settled,
    Settlement, State, Status, Term,
};
use forebay_core::ports::{
    DUE_SHARDS, Due, DueMark, DuePage, DueQuery, ErrorClass, Inboxes, Ledger, LedgerError, Listing, Outgoing, Raised,
    Redacted, Renewed, TimeAndChance,
};
use forebay_core::session::{Opened, Owner, OwnerKey, Pointer, Pointers, Session, SessionId};
use jiff::{SignedDuration, Timestamp};

use super::Mutation;
use super::checks::{Asked, Checks};
use crate::chance::Chance;
use crate::samples::copy_of;

/// Most times that one call is made again after its answer was lost.
const REPEATS_MAX: usize = 2;

/// What befalls a call at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    /// It goes through.
    Through,
    /// It is lost, and its caller makes it again, to the letter.
    Repeat,
    /// It is lost, and its caller gives up.
    Error(ErrorClass),
}

/// A call that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) gate: u64,
    pub(super) worker: usize,
    pub(super) call: &'static str,
    /// Who wakes the task that waits: a worker may have tasks of its own.
    pub(super) waker: Waker,
}

/// What all workers share.
#[derive(Debug)]
pub(super) struct World {
    pub(super) memory: MemoryLedger,
    inner: Mutex<Inner>,
    pub(super) mutation: Mutation,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) now_ms: i64,
    pub(super) waiting: Vec<Waiting>,
    pub(super) passage: Option<(u64, Passage)>,
    gates: u64,
    nonces: Chance,
    pub(super) checks: Checks,
    /// States of each event since when, for listings that lag.
    states: BTreeMap<EventId, Vec<(i64, State)>>,
    pub(super) lag_ms: i64,
    /// What befalls sends to an inbox.
    pub(super) outages: BTreeMap<String, Sent>,
    pub(super) trace: Vec<String>,
}

/// What a future that never really waits gives.
pub(super) fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("a ledger in memory never waits"),
    }
}

/// Any spread will do.
fn shard(event: &EventId) -> u32 {
    let sum = event.as_str().bytes().map(u32::from).fold(0, u32::wrapping_add);
    sum % DUE_SHARDS
}

impl World {
    pub(super) fn new(seed: u64, now_ms: i64, sane: bool, mutation: Mutation) -> Self {
        let checks = Checks::new(sane);
        Self {
            memory: MemoryLedger::new(),
            inner: Mutex::new(Inner {
                now_ms,
                waiting: Vec::new(),
                passage: None,
                gates: 0,
                nonces: Chance::new(!seed),
                checks,
                states: BTreeMap::new(),
                lag_ms: 0,
                outages: BTreeMap::new(),
                trace: Vec::new(),
            }),
            mutation,
        }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn row(&self, event: &EventId) -> Option<EventRow> {
        at_once(self.memory.event(event)).ok().flatten()
    }

    /// Every event's row that there is now.
    pub(super) fn rows(&self) -> Vec<EventRow> {
        let events: Vec<EventId> = self.inner().states.keys().cloned().collect();
        events.iter().filter_map(|event| self.row(event)).collect()
    }

    /// A page of due events, as an index that lags shows them.
    fn due(&self, query: &DueQuery) -> DuePage {
        let inner = self.inner();
        let seen_ms = inner.now_ms - inner.lag_ms;
        let mut due: Vec<Due> = Vec::new();
        for (event, states) in &inner.states {
            let seen = states.iter().rev().find(|(since_ms, _)| *since_ms <= seen_ms);
            let hidden =
                |state: &State| self.mutation == Mutation::DueRemovedAtClaim && state.status == Status::Claimed;
            let due_at = seen
                .filter(|(_, state)| !hidden(state))
                .and_then(|(_, state)| state.due_at);
            let due_at = due_at.filter(|due_at| *due_at <= query.until && shard(event) == query.shard);
            due.extend(due_at.map(|due_at| Due {
                due_at,
                event: event.clone(),
            }));
        }
        due.sort();
        if let Some(mark) = &query.after {
            due.retain(|due| (due.due_at, due.event.as_str()) > (mark.due_at, mark.key.as_str()));
        }
        let more = due.len() > query.limit;
        due.truncate(query.limit);
        let last = due.last().filter(|_| more);
        DuePage {
            next: last.map(|due| DueMark {
                due_at: due.due_at,
                key: due.event.to_string(),
            }),
            events: due,
        }
    }

    fn parked_for(&self, key: &OwnerKey, limit: usize) -> Vec<EventId> {
        let inner = self.inner();
        let seen_ms = inner.now_ms - inner.lag_ms;
        let waits = |states: &[(i64, State)]| {
            let seen = states.iter().rev().find(|(since_ms, _)| *since_ms <= seen_ms);
            seen.is_some_and(|(_, state)| state.waiting_for.as_ref() == Some(key))
        };
        let parked = inner.states.iter().filter(|(_, states)| waits(states));
        parked.take(limit).map(|(event, _)| event.clone()).collect()
    }
}

impl Inner {
    pub(super) fn tell(&mut self, line: String) {
        self.trace.push(line);
    }
}

/// The ports of one worker.
#[derive(Clone, Debug)]
pub(super) struct Ports {
    pub(super) world: Arc<World>,
    pub(super) worker: usize,
    /// How far this worker's clock is ahead.
    pub(super) ahead_ms: i64,
}

/// One wait of one call.
struct Gate<'a> {
    ports: &'a Ports,
    call: &'static str,
    gate: Option<u64>,
}

impl Future for Gate<'_> {
    type Output = Passage;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Passage> {
        let mut inner = self.ports.world.inner();
        let Some(gate) = self.gate else {
            inner.gates += 1;
            let gate = inner.gates;
            inner.waiting.push(Waiting {
                gate,
                worker: self.ports.worker,
                call: self.call,
                waker: context.waker().clone(),
            });
            drop(inner);
            self.gate = Some(gate);
            return Poll::Pending;
        };
        match inner.passage.take_if(|(granted, _)| *granted == gate) {
            Some((_, passage)) => Poll::Ready(passage),
            None => {
                let waiting = inner.waiting.iter_mut().find(|waiting| waiting.gate == gate);
                if let Some(waiting) = waiting {
                    waiting.waker.clone_from(context.waker());
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        let gate = self.gate;
        self.ports
            .world
            .inner()
            .waiting
            .retain(|waiting| Some(waiting.gate) != gate);
    }
}

impl Ports {
    fn gate(&self, call: &'static str) -> Gate<'_> {
        Gate {
            ports: self,
            call,
            gate: None,
        }
    }

    /// Waits, as a worker does that is busy with something else.
    pub(super) async fn think(&self) {
        self.gate("think").await;
    }

    /// Makes a call: there, carried out, and back.
    async fn call<T>(
        &self,
        there: &'static str,
        back: &'static str,
        mut carry_out: impl FnMut() -> T,
    ) -> Result<T, LedgerError> {
        let error = |class| LedgerError {
            attempted: there,
            on: String::new(),
            class,
            source: None,
        };
        let mut repeats = 0;
        loop {
            match self.gate(there).await {
                Passage::Through => {}
                Passage::Repeat if repeats < REPEATS_MAX => {
                    repeats += 1;
                    continue;
                }
                Passage::Repeat => return Err(error(ErrorClass::TimedOut)),
                Passage::Error(class) => return Err(error(class)),
            }
            let answer = carry_out();
            match self.gate(back).await {
                Passage::Through => return Ok(answer),
                Passage::Repeat if repeats < REPEATS_MAX => repeats += 1,
                Passage::Repeat | Passage::Error(_) => return Err(error(ErrorClass::TimedOut)),
            }
        }
    }

    /// Carries out a call on an event, and looks at what it did.
    fn step<T>(&self, event: &EventId, asked: Asked, carry_out: impl FnOnce(&MemoryLedger) -> T) -> T {
        let before = self.world.row(event);
        let answer = carry_out(&self.world.memory);
        let after = self.world.row(event);
        let mut inner = self.world.inner();
        let now_ms = inner.now_ms;
        inner
            .checks
            .row(asked, self.ahead_ms, now_ms, before.as_ref(), after.as_ref());
        let mut line = format!("{now_ms} worker {} {asked:?} {event}", self.worker);
        if let Some(row) = after.filter(|after| before.as_ref().map(|row| &row.state) != Some(&after.state)) {
            let state = &row.state;
            // Writing to a string cannot fail.
            write!(line, " → {} token {} due {:?}", state.status, state.token, state.due_at).unwrap_or_default();
            inner.states.entry(event.clone()).or_default().push((now_ms, row.state));
        }
        inner.tell(line);
        answer
    }

    fn admit_once(&self, admission: &Admission<'_>) -> Result<Admitted, LedgerError> {
        let nonce = admission.nonce;
        let admitted = match &admission.event {
            Some(admittee) => self.step(&admittee.event.id, Asked::Admit { nonce }, |memory| {
                at_once(memory.admit(admission))
            }),
            None => at_once(self.world.memory.admit(admission)),
        };
        if matches!(admitted, Ok(Admitted::Created { .. })) {
            self.world.inner().checks.created(&admission.delivery.key, nonce);
        }
        admitted
    }

    fn claim_once(&self, event: &EventId, claim: Claim) -> Result<Claimed, LedgerError> {
        let lapse = self.world.row(event).and_then(|row| row.state.lease_until);
        let asked = match lapse.filter(|_| self.world.mutation == Mutation::ClaimIgnoresLease) {
            // The core's rules, for a claimant that takes every lease for lapsed.
            Some(until) => {
                let now = claim.now.max(until + claim.skew + SignedDuration::from_millis(1));
                Claim {
                    now,
                    lease: claim.lease - now.duration_since(claim.now),
                    ..claim
                }
            }
            None => claim,
        };
        let nonce = claim.nonce;
        self.step(event, Asked::Claim { nonce }, |memory| {
            at_once(memory.claim(event, asked))
        })
    }

    fn settle_once(&self, lease: &Lease, now: Timestamp, settlement: Settlement) -> Result<Settled, LedgerError> {
        let asked = Asked::Settle {
            token: lease.token(),
            nonce: lease.nonce(),
            now,
        };
        let row = self.world.row(lease.event());
        let current = row.and_then(|row| Some((Lease::proven_by(lease.event(), &row.state, row.state.nonce)?, row)));
        self.step(lease.event(), asked, |memory| match current {
            // The core's rules, for an owner that knows every secret of the row.
            Some((current, row)) if self.world.mutation == Mutation::SettleUnconditional => {
                at_once(memory.settle(current, row.admitted_at, settlement))
            }
            _ => at_once(memory.settle(copy_of(lease), now, settlement)),
        })
    }
}

impl TimeAndChance for Ports {
    fn now(&self) -> Timestamp {
        let now_ms = self.world.inner().now_ms + self.ahead_ms;
        Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    fn random(&self) -> u64 {
        self.world.inner().nonces.next()
    }
}

impl Ledger for Ports {
    async fn admit(&self, admission: &Admission<'_>) -> Result<Admitted, LedgerError> {
        let admitted = self.call("admit", "admitted", || self.admit_once(admission)).await;
        match admitted {
            Err(_) if self.world.mutation == Mutation::AnswersBeforeDurable => Ok(Admitted::Created { lease: None }),
            admitted => admitted?,
        }
    }

    async fn admit_event(&self, admission: &EventAdmission<'_>) -> Result<Admitted, LedgerError> {
        self.call("admit event", "admitted", || {
            at_once(self.world.memory.admit_event(admission))
        })
        .await?
    }

    async fn claim(&self, event: &EventId, claim: Claim) -> Result<Claimed, LedgerError> {
        self.call("claim", "claimed", || self.claim_once(event, claim)).await?
    }

    async fn settle(&self, lease: Lease, now: Timestamp, settlement: Settlement) -> Result<Settled, LedgerError> {
        self.call("settle", "settled", || {
            self.settle_once(&lease, now, settlement.clone())
        })
        .await?
    }

    async fn renew(&self, lease: &mut Lease, now: Timestamp, term: Term) -> Result<Renewed, LedgerError> {
        let asked = Asked::Renew {
            token: lease.token(),
            nonce: lease.nonce(),
            now,
        };
        let answer = self.call("renew", "renewed", || {
            let mut renewed = copy_of(lease);
            self.step(lease.event(), asked, |memory| {
                at_once(memory.renew(&mut renewed, now, term)).map(|answer| (answer, renewed))
            })
        });
        // Its owner learns of a longer right by the answer only.
        let (answer, renewed) = answer.await??;
        *lease = renewed;
        Ok(answer)
    }

    async fn raise(&self, event: &EventId, raise: Raise) -> Result<Raised, LedgerError> {
        let asked = Asked::Raise { nonce: raise.nonce };
        self.call("raise event", "raised", || {
            self.step(event, asked, |memory| at_once(memory.raise(event, raise)))
        })
        .await?
    }

    async fn due(&self, query: &DueQuery) -> Result<DuePage, LedgerError> {
        self.call("list due", "due", || self.world.due(query)).await
    }

    async fn redact(&self, lease: &Lease, key: &DeliveryKey, now: Timestamp) -> Result<Redacted, LedgerError> {
        self.call("redact", "redacted", || {
            at_once(self.world.memory.redact(lease, key, now))
        })
        .await?
    }

    async fn event(&self, event: &EventId) -> Result<Option<EventRow>, LedgerError> {
        self.call("read event", "event", || at_once(self.world.memory.event(event)))
            .await?
    }

    async fn delivery(&self, key: &DeliveryKey) -> Result<Option<DeliveryRow>, LedgerError> {
        self.call("read delivery", "delivery", || at_once(self.world.memory.delivery(key)))
            .await?
    }

    async fn body(&self, key: &DeliveryKey) -> Result<Option<Vec<u8>>, LedgerError> {
        self.call("read body", "body", || at_once(self.world.memory.body(key)))
            .await?
    }

    async fn content(&self, event: &EventId) -> Result<Option<String>, LedgerError> {
        self.call("read content", "content", || at_once(self.world.memory.content(event)))
            .await?
    }

    async fn events(&self, listing: &Listing) -> Result<Vec<EventRow>, LedgerError> {
        self.call("list events", "events", || at_once(self.world.memory.events(listing)))
            .await?
    }

    async fn deliveries(&self, listing: &Listing) -> Result<Vec<DeliveryRow>, LedgerError> {
        self.call("list deliveries", "deliveries", || {
            at_once(self.world.memory.deliveries(listing))
        })
        .await?
    }

    async fn pointers(&self, keys: &[OwnerKey]) -> Result<Pointers, LedgerError> {
        self.call("read pointers", "pointers", || {
            at_once(self.world.memory.pointers(keys))
        })
        .await?
    }

    async fn learn(
        &self,
        repository: &Repository,
        branch: &str,
        pull: u64,
        now: Timestamp,
    ) -> Result<Pointer, LedgerError> {
        self.call("learn", "learnt", || {
            at_once(self.world.memory.learn(repository, branch, pull, now))
        })
        .await?
    }

    async fn own(&self, key: &OwnerKey, owner: &Owner, now: Timestamp) -> Result<bool, LedgerError> {
        self.call("own", "owned", || at_once(self.world.memory.own(key, owner, now)))
            .await?
    }

    async fn open_session(&self, session: &Session, now: Timestamp) -> Result<Opened, LedgerError> {
        self.call("open session", "opened", || {
            at_once(self.world.memory.open_session(session, now))
        })
        .await?
    }

    async fn close_session(&self, id: &SessionId, expires_at: Timestamp) -> Result<Option<Session>, LedgerError> {
        self.call("close session", "closed", || {
            at_once(self.world.memory.close_session(id, expires_at))
        })
        .await?
    }

    async fn sessions(&self, limit: usize) -> Result<Vec<Session>, LedgerError> {
        self.call("list sessions", "sessions", || {
            at_once(self.world.memory.sessions(limit))
        })
        .await?
    }

    async fn waiting(&self, key: &OwnerKey, limit: usize) -> Result<Vec<EventId>, LedgerError> {
        self.call("list waiting", "waiting", || self.world.parked_for(key, limit))
            .await
    }
}

impl Inboxes for Ports {
    async fn send(&self, messages: Vec<Outgoing>) -> Vec<Sent> {
        let unreachable = vec![Sent::Unreachable; messages.len()];
        let started_ms = self.world.inner().now_ms;
        // The sender's own time-out ends a send that takes longer than one may; a stalled process does not notice.
        let too_late = || {
            let inner = self.world.inner();
            inner.checks.sane && i128::from(inner.now_ms - started_ms) >= SEND_TIME_MAX.as_millis()
        };
        if self.gate("send").await != Passage::Through || too_late() {
            return unreachable;
        }
        let outcomes = messages.iter().map(|message| self.land(message)).collect();
        if self.gate("sent").await != Passage::Through || too_late() {
            return unreachable;
        }
        outcomes
    }
}

impl Ports {
    fn land(&self, message: &Outgoing) -> Sent {
        let envelope: serde_json::Value = serde_json::from_str(&message.body).unwrap_or_default();
        let event = envelope["id"].as_str().unwrap_or_default();
        let row = self.world.row(&EventId::new(event));
        let mut inner = self.world.inner();
        let outcome = inner.outages.get(&message.inbox).copied().unwrap_or(Sent::Yes);
        if outcome == Sent::Yes {
            inner.checks.landing(message, event, row.as_ref());
        }
        let line = format!(
            "{} worker {} send {event} to {}: {outcome}",
            inner.now_ms, self.worker, message.inbox
        );
        inner.tell(line);
        outcome
    }
}
