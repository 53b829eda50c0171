//! Driving: claim if needed → route → send → settle, for one event.
//!
//! What is decided (where an event goes, what its settlement says) is computed; the calls between are the ports'.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};

use crate::backoff;
use crate::cloudevent::{self, Handover};
use crate::event::{Content, Event, EventId};
use crate::github::Named;
use crate::ledger::{
    Admittee, Cause, Claim, Claimed, Ending, EventRow, Lease, Limits, Nonce, Reason, Refused, Sent, Settled,
    Settlement, State, Status, Step, Token, Verdict, transition,
};
use crate::ports::{ErrorKind, Inboxes, Ledger, LedgerError, Outgoing, POINTERS_MAX, TimeAndChance};
use crate::route::{Decision, Routing, Wanted, owner_keys};
use crate::session::{OwnerKey, Pointers};

/// Longest time that one send may take. No send starts with less of the lease left; the sender's own time-out is shorter.
pub const SEND_TIME_MAX: SignedDuration = SignedDuration::from_secs(4);
/// Longest FIFO group id and deduplication id
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>).
const FIFO_ID_BYTES_MAX: usize = 128;
/// How fast the retries of a parked event thin out: with the defaults after 15 s, 16 min, 17 h, and at the end.
const PARK_DOUBLINGS_A_TRY: u32 = 6;
/// Most events that one appearing owner wakes at once. The rest follow when they are due.
pub const WOKEN_MAX: usize = 25;

/// What came of a drive.
#[derive(Debug, PartialEq, Eq)]
pub enum Driven {
    /// The ledger has this status and reason now.
    Settled {
        /// Where the event stands.
        status: Status,
        /// Why.
        reason: Reason,
        /// Inboxes that got the message in this drive.
        sent_to: BTreeSet<String>,
    },
    /// Somebody else's, or nothing to do.
    Lost(Refused),
}

/// The state in which `event` enters the ledger: claimed by `nonce`, or settled at once where nobody could want it.
#[must_use]
pub fn admittee(event: Event, routing: &Routing, limits: &Limits, nonce: Nonce, now: Timestamp) -> Admittee {
    let stale = event.occurred_at.is_some_and(|at| at < limits.cut_off(now));
    let settled = match routing.wanted(&event) {
        _ if stale => Some(Reason::Stale),
        Wanted::ByNobody(reason) => Some(reason),
        Wanted::By { .. } => None,
    };
    let state = match settled {
        None => claimed_at_once(limits, nonce, now),
        Some(reason) => settled_at_once(Status::Processed, reason, limits, nonce, now),
    };
    Admittee { event, state }
}

/// The state in which `event` enters the ledger where it is nothing that its source can have sent: kept, and not handled.
#[must_use]
pub fn malformed(event: Event, limits: &Limits, nonce: Nonce, now: Timestamp) -> Admittee {
    let state = settled_at_once(Status::FailedPermanent, Reason::Malformed, limits, nonce, now);
    Admittee { event, state }
}

fn claimed_at_once(limits: &Limits, nonce: Nonce, now: Timestamp) -> State {
    let lease_until = now.saturating_add(limits.lease).unwrap_or(Timestamp::MAX);
    State {
        status: Status::Claimed,
        reason: None,
        token: Token::FIRST,
        nonce,
        lease_until: Some(lease_until),
        // An admission is a claim, and counts as one: its owner may die like any other.
        failures: 1,
        tries: 0,
        due_at: Some(lease_until.saturating_add(limits.skew).unwrap_or(Timestamp::MAX)),
        waiting_for: None,
        destinations: BTreeMap::new(),
        generation: 0,
        expires_at: None,
    }
}

fn settled_at_once(status: Status, reason: Reason, limits: &Limits, nonce: Nonce, now: Timestamp) -> State {
    State {
        status,
        reason: Some(reason),
        token: Token::NONE,
        nonce,
        lease_until: None,
        failures: 0,
        tries: 0,
        due_at: None,
        waiting_for: None,
        destinations: BTreeMap::new(),
        generation: 0,
        expires_at: Some(limits.event_expires_at(now)),
    }
}

/// Most pull requests of one payload that are remembered.
pub const NAMES_MAX: usize = 10;

/// Pointers to read beside an admission: what routing needs, and the branches and pull requests that the payload names.
#[must_use]
pub fn keys_beside(admittee: Option<&Admittee>, names: &[Named]) -> Vec<OwnerKey> {
    let unsettled = admittee.filter(|admittee| admittee.state.status == Status::Claimed);
    let routing = unsettled
        .map(|admittee| pointer_keys(&admittee.event))
        .unwrap_or_default();
    let named = names.iter().take(NAMES_MAX).flat_map(Named::keys);
    let distinct: BTreeSet<OwnerKey> = routing.into_iter().chain(named).collect();
    distinct.into_iter().collect()
}

/// What drives events: the ports, and the configuration that decides.
#[derive(Clone, Copy, Debug)]
pub struct Driver<'a, L, I, T> {
    /// The ledger.
    pub ledger: &'a L,
    /// The inboxes.
    pub inboxes: &'a I,
    /// Time and chance.
    pub time: &'a T,
    /// The configured routes.
    pub routing: &'a Routing,
    /// The configured spans.
    pub limits: &'a Limits,
}

impl<L: Ledger, I: Inboxes, T: TimeAndChance> Driver<'_, L, I, T> {
    /// Claims an event and drives it.
    ///
    /// # Errors
    /// [`LedgerError`] where the ledger gave no answer. What was claimed is due again after a back-off, or when its lease
    /// has lapsed.
    pub async fn claim_and_drive(&self, event: &EventId, cause: Cause) -> Result<Driven, LedgerError> {
        self.claim_and_drive_as(event, Nonce::from_random(self.time.random()), cause)
            .await
    }

    /// Claims an event with this nonce, which nobody else has, and drives it.
    pub(crate) async fn claim_and_drive_as(
        &self,
        event: &EventId,
        nonce: Nonce,
        cause: Cause,
    ) -> Result<Driven, LedgerError> {
        match self.ledger.claim(event, self.claim_by(nonce, cause)).await? {
            Claimed::Lost(refused) => Ok(Driven::Lost(refused)),
            Claimed::Won { row, lease } => match self.ledger.pointers(&pointer_keys(&row.event)).await {
                Ok(pointers) => self.drive(&row, lease, &pointers).await,
                // A lease that is left to lapse would count as a failure of the event's own handling.
                Err(unread) => self.postpone(&row, lease).await.and(Err(unread)),
            },
        }
    }

    /// Drives an event under `lease`, with the owners that `pointers` show.
    ///
    /// # Errors
    /// As [`Self::claim_and_drive`].
    pub async fn drive(&self, row: &EventRow, lease: Lease, pointers: &Pointers) -> Result<Driven, LedgerError> {
        let driven = self.drive_once(row, lease, pointers).await?;
        // Parking races with a session that opens: it may have looked for waiting events just before this one was one.
        // So its owner is looked for once more, now that it waits.
        let Driven::Settled {
            status: Status::Parked, ..
        } = driven
        else {
            return Ok(driven);
        };
        let pointers = self.ledger.pointers(&pointer_keys(&row.event)).await?;
        match self.routing.decide(&row.event, &pointers, self.time.now()) {
            Decision::Park(_) | Decision::Nothing(_) => Ok(driven),
            Decision::Send(_) => match self.claim(&row.event.id, Cause::OwnerAppeared).await? {
                Claimed::Lost(_) => Ok(driven),
                Claimed::Won { row, lease } => self.drive_once(&row, lease, &pointers).await,
            },
        }
    }

    /// Claims and drives an event if its row, read a moment ago, shows that a claim would be granted.
    ///
    /// # Errors
    /// As [`Self::claim_and_drive`].
    pub async fn drive_if_due(&self, row: &EventRow) -> Result<Driven, LedgerError> {
        match transition(Some(&row.state), &Step::Claim(self.new_claim(Cause::Due))) {
            Verdict::Refused(refused) => Ok(Driven::Lost(refused)),
            Verdict::Applied(_) | Verdict::Already => self.claim_and_drive(&row.event.id, Cause::Due).await,
        }
    }

    /// Lets the inboxes find out what a drive of `event` will want to know of them. Nothing is sent.
    pub async fn prepare(&self, event: &Event, pointers: &Pointers) {
        match self.routing.decide(event, pointers, self.time.now()) {
            Decision::Send(inboxes) => self.inboxes.prepare(&inboxes).await,
            Decision::Park(_) | Decision::Nothing(_) => {}
        }
    }

    /// Gives an event back that could not be driven for want of its surroundings. It is due again later, and no failure
    /// is counted; only its age ends it.
    ///
    /// # Errors
    /// As [`Self::claim_and_drive`].
    pub async fn postpone(&self, row: &EventRow, lease: Lease) -> Result<Driven, LedgerError> {
        let now = self.time.now();
        let due_at = after_backoff(row, self.limits, lease.nonce(), now);
        let destinations = row.state.destinations.clone();
        let settlement = retry(row, Reason::Unreachable, destinations, self.limits, due_at, now);
        self.settle(lease, now, settlement, BTreeSet::new()).await
    }

    /// Drives what waits for `key`, at most [`WOKEN_MAX`] events, each on its own. Gives what came of each.
    ///
    /// # Errors
    /// [`LedgerError`] where the waiting events could not be listed. They are due again by themselves.
    pub async fn wake(&self, key: &OwnerKey) -> Result<Vec<(EventId, Result<Driven, LedgerError>)>, LedgerError> {
        let mut woken = Vec::new();
        for event in self.ledger.waiting(key, WOKEN_MAX).await? {
            let driven = self.claim_and_drive(&event, Cause::OwnerAppeared).await;
            woken.push((event, driven));
        }
        Ok(woken)
    }

    /// Remembers which pull request a branch has, lets the branch's session own it, and drives what waited for that. Comments
    /// carry no branch: this is how they find the session. `known` are the pointers of both; what they say already costs nothing.
    /// Gives what came of each event that waited.
    ///
    /// # Errors
    /// [`LedgerError`] where it is not remembered. The next payload that names both brings it again.
    pub async fn remember(
        &self,
        named: &Named,
        known: &Pointers,
    ) -> Result<Vec<(EventId, Result<Driven, LedgerError>)>, LedgerError> {
        let Named {
            repository,
            branch,
            pull,
        } = named;
        let [branch_key, pull_key] = named.keys();
        let now = self.time.now();
        let pointer = match known.0.get(&branch_key) {
            Some(pointer) if pointer.pulls.contains(pull) => pointer.clone(),
            Some(_) | None => self.ledger.learn(repository, branch, *pull, now).await?,
        };
        let Some(owner) = pointer.owner.filter(|owner| now < owner.live_until) else {
            return Ok(Vec::new());
        };
        if known.live_owner(&pull_key, now).is_some() || !self.ledger.own(&pull_key, &owner, now).await? {
            return Ok(Vec::new());
        }
        self.wake(&pull_key).await
    }

    async fn claim(&self, event: &EventId, cause: Cause) -> Result<Claimed, LedgerError> {
        self.ledger.claim(event, self.new_claim(cause)).await
    }

    fn new_claim(&self, cause: Cause) -> Claim {
        self.claim_by(Nonce::from_random(self.time.random()), cause)
    }

    fn claim_by(&self, nonce: Nonce, cause: Cause) -> Claim {
        Claim {
            now: self.time.now(),
            nonce,
            lease: self.limits.lease,
            skew: self.limits.skew,
            cause,
        }
    }

    async fn settle(
        &self,
        lease: Lease,
        now: Timestamp,
        settlement: Settlement,
        sent_to: BTreeSet<String>,
    ) -> Result<Driven, LedgerError> {
        let (status, reason) = (settlement.ending.status(), settlement.reason);
        match self.ledger.settle(lease, now, settlement).await? {
            Settled::Done => Ok(Driven::Settled {
                status,
                reason,
                sent_to,
            }),
            Settled::Lost(refused) => Ok(Driven::Lost(refused)),
        }
    }

    async fn drive_once(&self, row: &EventRow, lease: Lease, pointers: &Pointers) -> Result<Driven, LedgerError> {
        let loaded = vec![self.load(row, lease, pointers).await];
        let driven = self.send_and_settle(loaded).await.pop();
        driven.expect("every loaded event has an outcome")
    }

    /// Drives events whose owners no pointer shows, together: their sends go out in batches, and everything else overlaps.
    /// Each fails alone. Gives what came of each, in order.
    ///
    /// An inbox gets them in this order, as long as it takes them all.
    pub async fn drive_all(&self, claimed: Vec<(EventRow, Lease)>) -> Vec<Result<Driven, LedgerError>> {
        let nobody = Pointers::default();
        let (rows, leases): (Vec<EventRow>, Vec<Lease>) = claimed.into_iter().unzip();
        let preparing = rows.iter().zip(leases);
        let loaded = join_all(preparing.map(|(row, lease)| self.load(row, lease, &nobody))).await;
        self.send_and_settle(loaded).await
    }

    async fn send_and_settle(&self, loaded: Vec<Loaded<'_>>) -> Vec<Result<Driven, LedgerError>> {
        let sent = self.send(loaded).await;
        join_all(sent.into_iter().map(|sent| self.settle_sent(sent))).await
    }

    /// Decides where an event goes, and gets what goes there.
    async fn load<'r>(&self, row: &'r EventRow, lease: Lease, pointers: &Pointers) -> Loaded<'r> {
        let now = self.time.now();
        let plan = plan(row, pointers, self.routing, self.limits, now);
        let unsent = match &plan {
            Plan::Send(inboxes) => {
                let sent = |inbox: &&String| row.state.destinations.get(*inbox) != Some(&Sent::Yes);
                inboxes.iter().filter(sent).cloned().collect()
            }
            Plan::Park(_) | Plan::End(..) => Vec::new(),
        };
        let mut loaded = Loaded {
            row,
            event: Cow::Borrowed(&row.event),
            lease,
            plan,
            unsent,
            obstacle: None,
        };
        if loaded.unsent.is_empty() {
            return loaded;
        }
        if let Some(Content::Apart(_)) = &row.event.content {
            match self.ledger.content(&row.event.id).await {
                Ok(content) => loaded.event.to_mut().content = content.map(Content::Here),
                Err(error) => loaded.obstacle = Some(Obstacle::Unread(error)),
            }
        }
        if loaded.lease.until().duration_since(self.time.now()) < SEND_TIME_MAX {
            loaded.obstacle.get_or_insert(Obstacle::OutOfTime);
        }
        loaded
    }

    /// Sends what is loaded, all at once.
    async fn send<'r>(&self, loaded: Vec<Loaded<'r>>) -> Vec<SentOut<'r>> {
        let messages: Vec<Outgoing> = loaded.iter().flat_map(Loaded::messages).collect();
        let mut outcomes = if messages.is_empty() {
            Vec::new().into_iter()
        } else {
            self.inboxes.send(messages).await.into_iter()
        };
        let mut sent_out = Vec::with_capacity(loaded.len());
        for loaded in loaded {
            let mut destinations = loaded.row.state.destinations.clone();
            let mut sent_to = BTreeSet::new();
            for inbox in loaded.going() {
                // An inbox without an outcome has not got the message.
                let Some(outcome) = outcomes.next() else { break };
                destinations.insert(inbox.clone(), outcome);
                if outcome == Sent::Yes {
                    sent_to.insert(inbox.clone());
                }
            }
            sent_out.push(SentOut {
                loaded,
                destinations,
                sent_to,
            });
        }
        sent_out
    }

    /// Records what came of a send.
    async fn settle_sent(&self, sent: SentOut<'_>) -> Result<Driven, LedgerError> {
        let SentOut {
            loaded,
            destinations,
            sent_to,
        } = sent;
        let Loaded {
            row,
            lease,
            plan,
            obstacle,
            ..
        } = loaded;
        let now = self.time.now();
        let settlement = match obstacle {
            None => settlement(row, &plan, destinations, self.limits, lease.nonce(), now),
            // Due at once: a fresh lease has time enough.
            Some(Obstacle::OutOfTime) => retry(row, Reason::Unreachable, destinations, self.limits, now, now),
            Some(Obstacle::Unread(error)) => {
                return match error.kind() {
                    ErrorKind::Retry | ErrorKind::Fix => self.postpone(row, lease).await.and(Err(error)),
                    // The row itself is at fault. The claim goes on counting as a failure.
                    ErrorKind::Reject | ErrorKind::Bug => Err(error),
                };
            }
        };
        self.settle(lease, now, settlement, sent_to).await
    }
}

/// An event that is ready to be sent, or has nothing to send.
struct Loaded<'r> {
    row: &'r EventRow,
    /// The row's event, with what its source said.
    event: Cow<'r, Event>,
    lease: Lease,
    plan: Plan,
    /// Inboxes that have not got it.
    unsent: Vec<String>,
    /// Why it is not sent now, if it is not.
    obstacle: Option<Obstacle>,
}

/// What keeps an event from being sent now.
enum Obstacle {
    /// Too little of the lease is left for a send.
    OutOfTime,
    /// What its source said could not be read.
    Unread(LedgerError),
}

impl Loaded<'_> {
    /// Inboxes that it is sent to now.
    fn going(&self) -> &[String] {
        if self.obstacle.is_none() { &self.unsent } else { &[] }
    }

    fn messages(&self) -> impl Iterator<Item = Outgoing> {
        let of = |inbox| message(&self.event, self.row, self.lease.token(), inbox);
        self.going().iter().map(move |inbox| of(inbox))
    }
}

/// What came of the sends of one event.
struct SentOut<'r> {
    loaded: Loaded<'r>,
    destinations: BTreeMap<String, Sent>,
    sent_to: BTreeSet<String>,
}

/// Keys of the pointers that decide where `event` goes, at most [`POINTERS_MAX`].
#[must_use]
pub fn pointer_keys(event: &Event) -> Vec<OwnerKey> {
    let keys = owner_keys(event);
    debug_assert!(keys.len() <= POINTERS_MAX, "owner_keys keeps to the bound");
    keys
}

/// What a drive will do.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plan {
    Send(BTreeSet<String>),
    Park(OwnerKey),
    End(Ending, Reason),
}

fn plan(row: &EventRow, pointers: &Pointers, routing: &Routing, limits: &Limits, now: Timestamp) -> Plan {
    if earlier_failures(row) >= limits.failures_max {
        return Plan::End(Ending::FailedPermanent, Reason::TooManyFailures);
    }
    match routing.decide(&row.event, pointers, now) {
        Decision::Send(inboxes) => Plan::Send(inboxes),
        // Whoever it was sent to has it; that its session has closed since does not make it nobody's.
        Decision::Park(_) | Decision::Nothing(_) if sent_before(row).next().is_some() => {
            Plan::Send(sent_before(row).collect())
        }
        Decision::Park(_) if age(row, now) >= limits.park => Plan::End(Ending::Processed, Reason::NoOwner),
        Decision::Park(key) => Plan::Park(key),
        Decision::Nothing(reason) => Plan::End(Ending::Processed, reason),
    }
}

fn sent_before(row: &EventRow) -> impl Iterator<Item = String> {
    let sent = row
        .state
        .destinations
        .iter()
        .filter(|(_, outcome)| **outcome == Sent::Yes);
    sent.map(|(inbox, _)| inbox.clone())
}

/// Failures before the present claim, which the row counts as one until it is settled.
fn earlier_failures(row: &EventRow) -> u32 {
    row.state.failures.saturating_sub(1)
}

fn age(row: &EventRow, now: Timestamp) -> SignedDuration {
    now.duration_since(row.admitted_at)
}

/// What the event becomes after `plan`, with what each destination got.
fn settlement(
    row: &EventRow,
    plan: &Plan,
    destinations: BTreeMap<String, Sent>,
    limits: &Limits,
    nonce: Nonce,
    now: Timestamp,
) -> Settlement {
    let inboxes = match plan {
        Plan::Send(inboxes) => inboxes,
        Plan::End(ending, reason) => return end(row, *ending, *reason, destinations, limits, now),
        Plan::Park(key) => return park(row, key, destinations, limits, nonce, now),
    };
    // An inbox without an outcome has not got the message.
    let outcome = |inbox: &String| destinations.get(inbox).copied().unwrap_or(Sent::Unreachable);
    if inboxes.iter().all(|inbox| outcome(inbox) == Sent::Yes) {
        return end(row, Ending::Processed, Reason::Delivered, destinations, limits, now);
    }
    let rejected = inboxes.iter().any(|inbox| outcome(inbox) == Sent::Rejected);
    let failures = earlier_failures(row).saturating_add(u32::from(rejected));
    if failures >= limits.failures_max {
        let end = end(
            row,
            Ending::FailedPermanent,
            Reason::TooManyFailures,
            destinations,
            limits,
            now,
        );
        return Settlement { failures, ..end };
    }
    let reason = if rejected { Reason::Failed } else { Reason::Unreachable };
    let due_at = after_backoff(row, limits, nonce, now);
    Settlement {
        failures,
        ..retry(row, reason, destinations, limits, due_at, now)
    }
}

fn after_backoff(row: &EventRow, limits: &Limits, nonce: Nonce, now: Timestamp) -> Timestamp {
    let wait = backoff::wait(row.state.tries, limits.retry_min, limits.retry_max, nonce.number());
    now.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

fn end(
    row: &EventRow,
    ending: Ending,
    reason: Reason,
    destinations: BTreeMap<String, Sent>,
    limits: &Limits,
    now: Timestamp,
) -> Settlement {
    Settlement {
        ending,
        reason,
        failures: earlier_failures(row),
        tries: row.state.tries,
        due_at: None,
        waiting_for: None,
        destinations,
        expires_at: Some(limits.event_expires_at(now)),
    }
}

/// Again at `due_at`, or given up where it is too old for that: trouble that lasts must end too.
fn retry(
    row: &EventRow,
    reason: Reason,
    destinations: BTreeMap<String, Sent>,
    limits: &Limits,
    due_at: Timestamp,
    now: Timestamp,
) -> Settlement {
    if age(row, now) >= limits.age_max {
        return end(row, Ending::FailedPermanent, Reason::TooOld, destinations, limits, now);
    }
    Settlement {
        ending: Ending::FailedRetryable,
        reason,
        failures: earlier_failures(row),
        tries: row.state.tries.saturating_add(1),
        due_at: Some(due_at),
        waiting_for: None,
        destinations,
        expires_at: None,
    }
}

fn park(
    row: &EventRow,
    key: &OwnerKey,
    destinations: BTreeMap<String, Sent>,
    limits: &Limits,
    nonce: Nonce,
    now: Timestamp,
) -> Settlement {
    // An owner that appears wakes the event; these retries are only the net below that, so they thin out fast.
    let doublings = row.state.tries.saturating_mul(PARK_DOUBLINGS_A_TRY);
    let wait = backoff::wait(doublings, limits.retry_min, limits.park, nonce.number());
    let end = row.admitted_at.saturating_add(limits.park).unwrap_or(Timestamp::MAX);
    let due_at = now.saturating_add(wait).unwrap_or(Timestamp::MAX).min(end);
    Settlement {
        ending: Ending::Parked,
        reason: Reason::Waiting,
        failures: earlier_failures(row),
        tries: row.state.tries.saturating_add(1),
        due_at: Some(due_at),
        waiting_for: Some(key.clone()),
        destinations,
        expires_at: None,
    }
}

/// The message that `inbox` gets of an event.
fn message(event: &Event, row: &EventRow, token: Token, inbox: &str) -> Outgoing {
    let handover = Handover {
        token: token.number(),
        inbox,
        received_at: row.admitted_at,
    };
    Outgoing {
        inbox: inbox.to_owned(),
        group: fifo_id(&event.subject.key()),
        deduplication: deduplication(&event.id, inbox, row.state.generation),
        body: cloudevent::structured(event, &handover),
        reference: cloudevent::reference(event, &handover, &format!("forebay:event/{}", event.id)),
    }
}

/// Digest of event, destination and redrive generation: the same for every repeat of one send.
fn deduplication(event: &EventId, inbox: &str, generation: u32) -> String {
    hex::encode(Sha256::digest(format!("{generation}\n{inbox}\n{event}").as_bytes()))
}

/// `text` where SQS takes it as a FIFO id (at most 128 ASCII letters, digits and punctuation), else its digest.
fn fifo_id(text: &str) -> String {
    let plain = text.len() <= FIFO_ID_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
    if plain && !text.is_empty() {
        text.to_owned()
    } else {
        hex::encode(Sha256::digest(text.as_bytes()))
    }
}

#[cfg(test)]
mod tests;
