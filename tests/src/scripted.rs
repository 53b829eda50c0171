//! A ledger around another that counts its calls and does what a test's script says: fails, never answers, waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_core::delivery::DeliveryKey;
use forebay_core::event::{EventId, Repository};
use forebay_core::ledger::{
    Admission, Admitted, Claim, Claimed, DeliveryRow, EventAdmission, EventRow, Lease, Raise, Settled, Settlement, Term,
};
use forebay_core::ports::{DuePage, DueQuery, ErrorClass, Ledger, LedgerError, Listing, Raised, Redacted, Renewed};
use forebay_core::session::{Opened, Owner, OwnerKey, Pointer, Pointers, Session, SessionId};
use forebay_core::source::SourceId;
use forebay_core::source::github::{Becomes, Lost, Missing, MissingStore, Word};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

use crate::fakes::ManualTime;
use crate::samples::copy_of;
/// A method of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the method of that name")]
pub enum Call {
    Admit,
    AdmitEvent,
    Claim,
    Settle,
    Renew,
    Raise,
    Due,
    Redact,
    Event,
    Delivery,
    Body,
    Content,
    Events,
    Deliveries,
    Pointers,
    Learn,
    Own,
    OpenSession,
    CloseSession,
    Sessions,
    Waiting,
    Kept,
    NoteMissing,
    DueMissing,
    SettleMissing,
    Attribute,
}

/// What becomes of a call.
#[derive(Clone, Debug)]
pub enum Script {
    /// Nothing happens, and it fails.
    Fail(ErrorClass),
    /// Nothing happens, and no answer ever comes.
    Hang,
    /// It happens, and no answer ever comes.
    LoseAnswer,
    /// It happens when the test says so.
    Hold(Arc<Notify>),
    /// It happens after so long.
    Wait(Duration),
    /// It happens, and so much time passes on this clock.
    Pass(ManualTime, SignedDuration),
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<Call>,
    next: BTreeMap<Call, VecDeque<Script>>,
    always: BTreeMap<Call, Script>,
}

/// A ledger whose calls are counted and scripted. Each call lets other tasks run before it happens and before it answers,
/// as a call over a network does.
#[derive(Debug)]
pub struct Scripted<L> {
    inner: Arc<L>,
    state: Arc<Mutex<State>>,
}

impl<L> Clone for Scripted<L> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            state: Arc::clone(&self.state),
        }
    }
}

impl<L: Ledger> Scripted<L> {
    /// `ledger`, as yet without a script.
    pub fn new(ledger: L) -> Self {
        Self {
            inner: Arc::new(ledger),
            state: Arc::default(),
        }
    }

    /// The ledger inside, whose calls nobody counts.
    #[must_use]
    pub fn inner(&self) -> &L {
        &self.inner
    }

    /// Every call so far, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// The next `call` ends like this.
    pub fn once(&self, call: Call, script: Script) {
        self.state().next.entry(call).or_default().push_back(script);
    }

    /// Every `call` ends like this from now on.
    pub fn always(&self, call: Call, script: Script) {
        self.state().always.insert(call, script);
    }

    /// Every call of every kind ends like this from now on.
    pub fn everything(&self, script: &Script) {
        for call in [
            Call::Admit,
            Call::AdmitEvent,
            Call::Claim,
            Call::Settle,
            Call::Renew,
            Call::Event,
            Call::Delivery,
            Call::Body,
            Call::Content,
            Call::Events,
            Call::Deliveries,
            Call::Pointers,
            Call::Learn,
            Call::Own,
            Call::OpenSession,
            Call::CloseSession,
            Call::Sessions,
            Call::Waiting,
        ] {
            self.always(call, script.clone());
        }
    }

    /// Forgets all scripts.
    pub fn mend(&self) {
        let mut state = self.state();
        state.next.clear();
        state.always.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn act<R>(
        &self,
        call: Call,
        inner: impl Future<Output = Result<R, LedgerError>> + Send,
    ) -> Result<R, LedgerError> {
        let script = {
            let mut state = self.state();
            state.calls.push(call);
            let next = state.next.get_mut(&call).and_then(VecDeque::pop_front);
            next.or_else(|| state.always.get(&call).cloned())
        };
        // Boxed: futures within futures are too large for the stack of a test's thread.
        let inner = Box::pin(inner);
        tokio::task::yield_now().await;
        match script {
            None => {}
            Some(Script::Fail(class)) => return Err(scripted(call, class)),
            Some(Script::Hang) => std::future::pending().await,
            Some(Script::LoseAnswer) => {
                drop(inner.await);
                return std::future::pending().await;
            }
            Some(Script::Hold(release)) => release.notified().await,
            Some(Script::Wait(span)) => wait(span).await,
            Some(Script::Pass(time, span)) => time.pass(span),
        }
        let answer = inner.await;
        tokio::task::yield_now().await;
        answer
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "for tests on a paused clock, which nothing else moves"
)]
async fn wait(span: Duration) {
    tokio::time::sleep(span).await;
}

fn scripted(call: Call, class: ErrorClass) -> LedgerError {
    LedgerError {
        attempted: "do as the script says",
        on: format!("{call:?}"),
        class,
        source: None,
    }
}

impl<L: Ledger> Ledger for Scripted<L> {
    async fn admit(&self, admission: &Admission<'_>) -> Result<Admitted, LedgerError> {
        self.act(Call::Admit, self.inner.admit(admission)).await
    }

    async fn admit_event(&self, admission: &EventAdmission<'_>) -> Result<Admitted, LedgerError> {
        self.act(Call::AdmitEvent, self.inner.admit_event(admission)).await
    }

    async fn claim(&self, event: &EventId, claim: Claim) -> Result<Claimed, LedgerError> {
        self.act(Call::Claim, self.inner.claim(event, claim)).await
    }

    async fn settle(&self, lease: Lease, now: Timestamp, settlement: Settlement) -> Result<Settled, LedgerError> {
        self.act(Call::Settle, self.inner.settle(lease, now, settlement)).await
    }

    async fn renew(&self, lease: &mut Lease, now: Timestamp, term: Term) -> Result<Renewed, LedgerError> {
        // Its owner learns of a longer right by the answer only.
        let mut renewed = copy_of(lease);
        let answer = self.act(Call::Renew, self.inner.renew(&mut renewed, now, term)).await?;
        *lease = renewed;
        Ok(answer)
    }

    async fn raise(&self, event: &EventId, raise: Raise) -> Result<Raised, LedgerError> {
        self.act(Call::Raise, self.inner.raise(event, raise)).await
    }

    async fn due(&self, query: &DueQuery) -> Result<DuePage, LedgerError> {
        self.act(Call::Due, self.inner.due(query)).await
    }

    async fn redact(&self, lease: &Lease, key: &DeliveryKey, now: Timestamp) -> Result<Redacted, LedgerError> {
        self.act(Call::Redact, self.inner.redact(lease, key, now)).await
    }

    async fn event(&self, event: &EventId) -> Result<Option<EventRow>, LedgerError> {
        self.act(Call::Event, self.inner.event(event)).await
    }

    async fn delivery(&self, key: &DeliveryKey) -> Result<Option<DeliveryRow>, LedgerError> {
        self.act(Call::Delivery, self.inner.delivery(key)).await
    }

    async fn body(&self, key: &DeliveryKey) -> Result<Option<Vec<u8>>, LedgerError> {
        self.act(Call::Body, self.inner.body(key)).await
    }

    async fn content(&self, event: &EventId) -> Result<Option<String>, LedgerError> {
        self.act(Call::Content, self.inner.content(event)).await
    }

    async fn events(&self, listing: &Listing) -> Result<Vec<EventRow>, LedgerError> {
        self.act(Call::Events, self.inner.events(listing)).await
    }

    async fn deliveries(&self, listing: &Listing) -> Result<Vec<DeliveryRow>, LedgerError> {
        self.act(Call::Deliveries, self.inner.deliveries(listing)).await
    }

    async fn pointers(&self, keys: &[OwnerKey]) -> Result<Pointers, LedgerError> {
        // Without keys nothing is asked of a ledger.
        if keys.is_empty() {
            return self.inner.pointers(keys).await;
        }
        self.act(Call::Pointers, self.inner.pointers(keys)).await
    }

    async fn learn(
        &self,
        repository: &Repository,
        branch: &str,
        pull: u64,
        now: Timestamp,
    ) -> Result<Pointer, LedgerError> {
        self.act(Call::Learn, self.inner.learn(repository, branch, pull, now))
            .await
    }

    async fn own(&self, key: &OwnerKey, owner: &Owner, now: Timestamp) -> Result<bool, LedgerError> {
        self.act(Call::Own, self.inner.own(key, owner, now)).await
    }

    async fn open_session(&self, session: &Session, now: Timestamp) -> Result<Opened, LedgerError> {
        self.act(Call::OpenSession, self.inner.open_session(session, now)).await
    }

    async fn close_session(&self, id: &SessionId, expires_at: Timestamp) -> Result<Option<Session>, LedgerError> {
        self.act(Call::CloseSession, self.inner.close_session(id, expires_at))
            .await
    }

    async fn sessions(&self, limit: usize) -> Result<Vec<Session>, LedgerError> {
        self.act(Call::Sessions, self.inner.sessions(limit)).await
    }

    async fn waiting(&self, key: &OwnerKey, limit: usize) -> Result<Vec<EventId>, LedgerError> {
        self.act(Call::Waiting, self.inner.waiting(key, limit)).await
    }
}

impl<L: Ledger + MissingStore> MissingStore for Scripted<L> {
    async fn kept(&self, keys: &[DeliveryKey]) -> Result<BTreeSet<DeliveryKey>, LedgerError> {
        self.act(Call::Kept, self.inner.kept(keys)).await
    }

    async fn note_missing(&self, log: &SourceId, missing: &[Missing]) -> Result<u64, LedgerError> {
        self.act(Call::NoteMissing, self.inner.note_missing(log, missing)).await
    }

    async fn due_missing(&self, log: &SourceId, until: Timestamp, limit: usize) -> Result<Vec<Missing>, LedgerError> {
        self.act(Call::DueMissing, self.inner.due_missing(log, until, limit))
            .await
    }

    async fn settle_missing(
        &self,
        log: &SourceId,
        missing: &Missing,
        becomes: Becomes,
        now: Timestamp,
    ) -> Result<Word, LedgerError> {
        let inner = self.inner.settle_missing(log, missing, becomes, now);
        self.act(Call::SettleMissing, inner).await
    }

    async fn lost(&self, since: Timestamp, limit: usize) -> Result<Vec<Lost>, LedgerError> {
        // For the operator: no function asks.
        self.inner.lost(since, limit).await
    }

    async fn attribute(&self, key: &DeliveryKey) -> Result<bool, LedgerError> {
        self.act(Call::Attribute, self.inner.attribute(key)).await
    }
}
