//! One state of the model, and what can happen in it.

use std::collections::BTreeMap;

use forebay_core::drive::{SEND_TIME_MAX, admittee};
use forebay_core::ledger::{
    Cause, Claim, Ending, Limits, Nonce, Reason, Renew, Sent, Settle, Settlement, State, Status, Step, Term, Token,
    Verdict,
};
use forebay_core::route::Routing;
use jiff::{SignedDuration, Timestamp};

use super::{Bounds, Rule};
use crate::samples::{at, event, pull};

/// A tick, in seconds: what a send may take.
const TICK_SECONDS: i64 = 4;
/// Three ticks: a send fits, and a second renewal comes in time.
const LEASE: SignedDuration = SignedDuration::from_secs(3 * TICK_SECONDS);
/// One tick, and that is how far the owners' clocks are apart.
const SKEW: SignedDuration = SignedDuration::from_secs(TICK_SECONDS);
/// How long a send may take.
const SEND_TICKS: u8 = 1;
const _: () = assert!(SEND_TIME_MAX.as_secs() == TICK_SECONDS, "a send may take one tick");
/// The one inbox.
const INBOX: &str = "reviewer";

/// What must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A row's token is smaller than before.
    TokenWentBack,
    /// A settle or renew with another token or nonce changed the row.
    ChangedByStaleOwner,
    /// A settle or renew at or after the lease's end changed the row.
    SettledAfterLease,
    /// A settle changed a row that was not claimed.
    SettledTwice,
    /// A terminal row changed.
    TerminalChanged,
    /// A row that is not terminal has no due time, or nobody may claim it then.
    Lost,
    /// A message arrived that the row said had arrived before.
    SentAgain,
}

/// The event's row, in few bytes: there are millions of them. Times are ticks since the model's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Row {
    status: Status,
    reason: Option<Reason>,
    token: u8,
    nonce: u8,
    lease_until: Option<u8>,
    due_at: Option<u8>,
    failures: u8,
    waits: bool,
    inbox: Option<Sent>,
}

impl Row {
    /// The core's state in short.
    ///
    /// # Panics
    /// Where the short form would leave out what the state says.
    fn of(state: &State) -> Self {
        let small = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
        let row = Self {
            status: state.status,
            reason: state.reason,
            token: small(state.token.number()),
            nonce: small(state.nonce.number()),
            lease_until: state.lease_until.map(tick_of),
            due_at: state.due_at.map(tick_of),
            failures: small(u64::from(state.failures)),
            waits: state.waiting_for.is_some(),
            inbox: state.destinations.get(INBOX).copied(),
        };
        assert_eq!(row.state(), *state, "a state in short is the whole state");
        row
    }

    /// The core's state.
    fn state(self) -> State {
        State {
            status: self.status,
            reason: self.reason,
            token: Token::from_number(u64::from(self.token)),
            nonce: nonce_of(self.nonce),
            lease_until: self.lease_until.map(instant),
            failures: u32::from(self.failures),
            tries: 0,
            due_at: self.due_at.map(instant),
            waiting_for: self.waits.then(|| pull(12)),
            destinations: destinations(self.inbox),
            generation: 0,
            expires_at: expires_at(self.status),
        }
    }

    /// The right that `nonce` has, if the row is its.
    fn right_of(self, nonce: u8) -> Option<Right> {
        let ours = self.status == Status::Claimed && self.nonce == nonce;
        Some(Right {
            token: self.token,
            nonce,
            until: self.lease_until.filter(|_| ours)?,
            sent_before: self.inbox == Some(Sent::Yes),
        })
    }
}

/// What an owner makes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Sent: `processed`.
    Sent,
    /// Not sent, the inbox could not be reached: `failed_retryable`.
    Unreachable,
    /// Nobody owns it yet: `parked`.
    NoOwner,
}

/// A right, as its owner knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Right {
    token: u8,
    nonce: u8,
    until: u8,
    /// The row said so when it was claimed.
    sent_before: bool,
}

/// A call to the ledger. Times are its owner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// The delivery and its event, new.
    Admit {
        /// The admission's nonce.
        nonce: u8,
        /// When it was made.
        at: u8,
    },
    /// A claim.
    Claim {
        /// The claim's nonce.
        nonce: u8,
        /// When it was made.
        at: u8,
        /// Because an owner has appeared, not because it is due.
        appeared: bool,
    },
    /// A renewal.
    Renew {
        /// Under which right.
        right: Right,
        /// When it was made.
        at: u8,
    },
    /// A settlement.
    Settle {
        /// Under which right.
        right: Right,
        /// When it was made.
        at: u8,
        /// What came of the event.
        outcome: Outcome,
    },
}

/// What an owner is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Idle,
    /// It has called, and waits for the answer. A renewal keeps the right meanwhile.
    Waiting(Call),
    /// It holds a right.
    Holding {
        right: Right,
        sent: bool,
    },
    /// Its message is under way since this tick.
    Sending {
        right: Right,
        since: u8,
    },
}

/// What can happen. Owners and calls are named by their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// An owner starts: admits the event.
    Admit(usize),
    /// An owner starts: claims the event.
    Claim(usize, bool),
    /// An owner asks for more time.
    Renew(usize),
    /// An owner begins to send.
    Send(usize),
    /// The message arrives, and its sender knows.
    Land(usize),
    /// The message arrives, and its sender takes the inbox for unreachable.
    LandUnheard(usize),
    /// The message is lost or too slow.
    Miss(usize),
    /// An owner settles.
    Settle(usize, Outcome),
    /// A call arrives, and its owner hears the answer if it still waits for it.
    Arrive(Call),
    /// A call arrives, and its answer is lost.
    ArriveUnheard(Call),
    /// An owner that hears nothing makes the same call again.
    Repeat(usize),
    /// An owner dies, or gives up waiting. What it called may still arrive.
    Crash(usize),
}

/// One state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    now: u8,
    row: Option<Row>,
    owners: Vec<Owner>,
    /// Calls under way, in the order of their kinds, for the network keeps no other. One that is lost stays here for ever.
    calls: Vec<Call>,
    claims: u8,
    renewals: u8,
    repeats: u8,
    crashes: u8,
    /// Messages that arrived in the inbox, its deduplication apart; counted up to two.
    pub(super) landed: u8,
    pub(super) broken: Option<Broken>,
}

/// What the ledger says to a call.
enum Answer {
    Granted(Right),
    Done,
    Refused,
}

fn nonce_of(nonce: u8) -> Nonce {
    Nonce::from_random(u64::from(nonce))
}

fn instant(tick: u8) -> Timestamp {
    at(i64::from(tick) * TICK_SECONDS)
}

fn tick_of(instant: Timestamp) -> u8 {
    u8::try_from(instant.duration_since(at(0)).as_secs() / TICK_SECONDS).unwrap_or(u8::MAX)
}

fn destinations(inbox: Option<Sent>) -> BTreeMap<String, Sent> {
    inbox.map(|sent| (INBOX.to_owned(), sent)).into_iter().collect()
}

fn expires_at(status: Status) -> Option<Timestamp> {
    status.is_terminal().then(|| at(1_000_000))
}

fn limits() -> Limits {
    Limits {
        lease: LEASE,
        skew: SKEW,
        ..Limits::default()
    }
}

impl World {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            now: 0,
            row: None,
            owners: vec![Owner::Idle; bounds.owners],
            calls: Vec::new(),
            claims: 0,
            renewals: 0,
            repeats: 0,
            crashes: 0,
            landed: 0,
            broken: None,
        }
    }

    /// An owner's clock, in ticks: every second owner's is ahead by all of the skew.
    fn clock(&self, owner: usize) -> u8 {
        self.now + u8::from(owner % 2 == 1)
    }

    pub(super) fn actions(&self, bounds: Bounds, actions: &mut Vec<Action>) {
        if self.now < bounds.ticks {
            actions.push(Action::Tick);
        }
        // Nothing that begins now can change a terminal row; what is under way already is all that is left to see.
        let over = self.row.is_some_and(|row| row.status.is_terminal());
        for (place, owner) in self.owners.iter().enumerate() {
            if over && !matches!(owner, Owner::Holding { .. } | Owner::Sending { .. }) {
                continue;
            }
            self.actions_of(place, *owner, bounds, actions);
            if !over && *owner != Owner::Idle && self.crashes < bounds.crashes {
                actions.push(Action::Crash(place));
            }
        }
        let mut known = None;
        for call in &self.calls {
            if known != Some(call) {
                actions.extend([Action::Arrive(*call), Action::ArriveUnheard(*call)]);
            }
            known = Some(call);
        }
    }

    fn actions_of(&self, place: usize, owner: Owner, bounds: Bounds, actions: &mut Vec<Action>) {
        match owner {
            Owner::Idle if self.claims < bounds.claims => match &self.row {
                None => actions.push(Action::Admit(place)),
                Some(row) => {
                    actions.push(Action::Claim(place, false));
                    // Only a listing of parked events leads to such a claim.
                    if row.status == Status::Parked {
                        actions.push(Action::Claim(place, true));
                    }
                }
            },
            Owner::Idle => {}
            Owner::Waiting(_) => {
                if self.repeats < bounds.repeats {
                    actions.push(Action::Repeat(place));
                }
            }
            Owner::Holding { right, sent } => {
                let lasts = right.until >= self.clock(place) + SEND_TICKS;
                if !sent && !right.sent_before && lasts {
                    actions.push(Action::Send(place));
                }
                if self.renewals < bounds.renewals {
                    actions.push(Action::Renew(place));
                }
                if sent || right.sent_before {
                    actions.push(Action::Settle(place, Outcome::Sent));
                } else {
                    actions.push(Action::Settle(place, Outcome::Unreachable));
                    actions.push(Action::Settle(place, Outcome::NoOwner));
                }
            }
            Owner::Sending { since, .. } => {
                // The sender's own time-out is shorter than the longest time of a send.
                if self.now - since < SEND_TICKS {
                    actions.extend([Action::Land(place), Action::LandUnheard(place)]);
                }
                actions.push(Action::Miss(place));
            }
        }
    }

    pub(super) fn take(&mut self, action: Action, rule: Rule) {
        match action {
            Action::Tick => self.now += 1,
            Action::Admit(place) => {
                let at = self.clock(place);
                let nonce = self.draw_nonce();
                self.call(place, Call::Admit { nonce, at });
            }
            Action::Claim(place, appeared) => {
                let at = self.clock(place);
                let nonce = self.draw_nonce();
                self.call(place, Call::Claim { nonce, at, appeared });
            }
            Action::Renew(place) => {
                self.renewals += 1;
                if let Some(right) = self.right(place) {
                    let at = self.clock(place);
                    self.call(place, Call::Renew { right, at });
                }
            }
            Action::Settle(place, outcome) => {
                if let Some(right) = self.right(place) {
                    let at = self.clock(place);
                    self.call(place, Call::Settle { right, at, outcome });
                }
            }
            Action::Send(place) => {
                if let Some(right) = self.right(place) {
                    self.owners[place] = Owner::Sending { right, since: self.now };
                }
            }
            Action::Land(place) => self.land(place, true),
            Action::LandUnheard(place) => self.land(place, false),
            Action::Miss(place) => self.sent(place, false),
            Action::Arrive(call) => {
                let answer = self.arrive(call, rule);
                self.hear(call, &answer);
            }
            Action::ArriveUnheard(call) => {
                self.arrive(call, rule);
            }
            Action::Repeat(place) => {
                self.repeats += 1;
                if let Owner::Waiting(call) = self.owners[place] {
                    self.call(place, call);
                }
            }
            Action::Crash(place) => {
                self.crashes += 1;
                self.owners[place] = Owner::Idle;
            }
        }
    }

    fn draw_nonce(&mut self) -> u8 {
        self.claims += 1;
        self.claims
    }

    fn right(&self, place: usize) -> Option<Right> {
        match self.owners[place] {
            Owner::Holding { right, .. } | Owner::Sending { right, .. } => Some(right),
            Owner::Waiting(Call::Renew { right, .. }) => Some(right),
            Owner::Idle | Owner::Waiting(Call::Admit { .. } | Call::Claim { .. } | Call::Settle { .. }) => None,
        }
    }

    fn call(&mut self, place: usize, call: Call) {
        self.owners[place] = Owner::Waiting(call);
        self.calls.push(call);
        self.calls.sort_unstable();
    }

    fn remove(&mut self, call: Call) {
        if let Some(place) = self.calls.iter().position(|known| *known == call) {
            self.calls.remove(place);
        }
    }

    fn land(&mut self, place: usize, heard: bool) {
        if self.is_recorded() {
            self.broken = Some(Broken::SentAgain);
        }
        self.landed = (self.landed + 1).min(2);
        self.sent(place, heard);
    }

    fn sent(&mut self, place: usize, sent: bool) {
        if let Some(right) = self.right(place) {
            self.owners[place] = Owner::Holding { right, sent };
        }
    }

    /// The call is carried out.
    fn arrive(&mut self, call: Call, rule: Rule) -> Answer {
        self.remove(call);
        let (step, nonce) = match call {
            Call::Admit { nonce, at } => return self.admit(nonce, at, rule),
            Call::Claim {
                nonce,
                at: now,
                appeared,
            } => (claim(nonce, now, appeared), nonce),
            Call::Renew { right, at: now } => (renew(right, now), right.nonce),
            Call::Settle {
                right,
                at: now,
                outcome,
            } => (settle(right, now, outcome), right.nonce),
        };
        let before = self.row.map(Row::state);
        match rule(before.as_ref(), &step) {
            Verdict::Refused(_) => return Answer::Refused,
            Verdict::Already => {}
            Verdict::Applied(after) => {
                self.broken = before.and_then(|before| broken_by(&step, &before, &after));
                self.write(&after, rule);
            }
        }
        match step {
            Step::Settle(_) => Answer::Done,
            Step::Claim(_) | Step::Renew(_) | Step::Raise(_) => self.granted(nonce),
        }
    }

    fn admit(&mut self, nonce: u8, tick: u8, rule: Rule) -> Answer {
        if self.row.is_none() {
            let admitted = admittee(
                event("e"),
                &Routing::default(),
                &limits(),
                nonce_of(nonce),
                instant(tick),
            );
            self.write(&admitted.state, rule);
        }
        self.granted(nonce)
    }

    fn granted(&self, nonce: u8) -> Answer {
        let right = self.row.and_then(|row| row.right_of(nonce));
        right.map_or(Answer::Refused, Answer::Granted)
    }

    fn write(&mut self, state: &State, rule: Rule) {
        self.row = Some(Row::of(state));
        if self.broken.is_none() && !comes_back(state, rule) {
            self.broken = Some(Broken::Lost);
        }
    }

    /// Whoever waits for the answer to `call` hears it.
    fn hear(&mut self, call: Call, answer: &Answer) {
        let Some(owner) = self.owners.iter_mut().find(|owner| **owner == Owner::Waiting(call)) else {
            return;
        };
        *owner = match answer {
            // Renewals come before a send and after it; the shorter story, to be sent again, is the harder one.
            Answer::Granted(right) => Owner::Holding {
                right: *right,
                sent: false,
            },
            Answer::Done | Answer::Refused => Owner::Idle,
        };
    }

    /// Owners whose right runs by their own clock.
    pub(super) fn live_owners(&self) -> usize {
        let live = |place: &usize| self.right(*place).is_some_and(|right| self.clock(*place) < right.until);
        (0..self.owners.len()).filter(live).count()
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.row.is_some_and(|row| row.inbox == Some(Sent::Yes))
    }

    pub(super) fn is_parked(&self) -> bool {
        self.row.is_some_and(|row| row.status == Status::Parked)
    }

    pub(super) fn token(&self) -> u8 {
        self.row.map_or(0, |row| row.token)
    }

    /// A settlement is under way whose claim has a successor.
    pub(super) fn late_settlement(&self) -> bool {
        let late = |call: &Call| matches!(call, Call::Settle { right, .. } if right.token < self.token());
        self.calls.iter().any(late)
    }
}

/// Whether the row, if it is not terminal, has a due time, from one tick after which a claim is granted.
fn comes_back(state: &State, rule: Rule) -> bool {
    let due_again = |due_at| {
        let claim = claim(u8::MAX, tick_of(due_at) + 1, false);
        matches!(rule(Some(state), &claim), Verdict::Applied(_))
    };
    state.status.is_terminal() || state.due_at.is_some_and(due_again)
}

fn claim(nonce: u8, tick: u8, appeared: bool) -> Step {
    Step::Claim(Claim {
        now: instant(tick),
        nonce: nonce_of(nonce),
        lease: LEASE,
        skew: SKEW,
        cause: if appeared { Cause::OwnerAppeared } else { Cause::Due },
    })
}

fn renew(right: Right, tick: u8) -> Step {
    Step::Renew(Renew {
        now: instant(tick),
        token: Token::from_number(u64::from(right.token)),
        nonce: nonce_of(right.nonce),
        term: Term {
            lease: LEASE,
            skew: SKEW,
        },
    })
}

fn settle(right: Right, tick: u8, outcome: Outcome) -> Step {
    let later = |ticks: u8| Some(instant(tick + ticks));
    let (ending, reason, due_at, sent) = match outcome {
        Outcome::Sent => (Ending::Processed, Reason::Delivered, None, Some(Sent::Yes)),
        Outcome::Unreachable => (
            Ending::FailedRetryable,
            Reason::Unreachable,
            later(1),
            Some(Sent::Unreachable),
        ),
        Outcome::NoOwner => (Ending::Parked, Reason::Waiting, later(2), None),
    };
    let settlement = Settlement {
        ending,
        reason,
        failures: 0,
        tries: 0,
        due_at,
        waiting_for: (ending == Ending::Parked).then(|| pull(12)),
        destinations: destinations(sent),
        expires_at: expires_at(ending.status()),
    };
    Step::Settle(Settle {
        now: instant(tick),
        token: Token::from_number(u64::from(right.token)),
        nonce: nonce_of(right.nonce),
        settlement,
    })
}

/// What `step`, which made `after` of `before`, broke: said without the rules that made it.
fn broken_by(step: &Step, before: &State, after: &State) -> Option<Broken> {
    let (now, token, nonce) = match step {
        Step::Claim(_) if before.status.is_terminal() => return Some(Broken::TerminalChanged),
        Step::Claim(_) => return (after.token <= before.token).then_some(Broken::TokenWentBack),
        // No owner's step: the model has no row that cannot be read.
        Step::Raise(_) => return (after.token < before.token).then_some(Broken::TokenWentBack),
        Step::Renew(renew) => (renew.now, renew.token, renew.nonce),
        Step::Settle(settle) => (settle.now, settle.token, settle.nonce),
    };
    let broken = [
        (before.status.is_terminal(), Broken::TerminalChanged),
        (
            token != before.token || nonce != before.nonce,
            Broken::ChangedByStaleOwner,
        ),
        (before.status != Status::Claimed, Broken::SettledTwice),
        (
            before.lease_until.is_none_or(|until| now >= until),
            Broken::SettledAfterLease,
        ),
        (after.token != before.token, Broken::TokenWentBack),
    ];
    broken.into_iter().find(|(holds, _)| *holds).map(|(_, broken)| broken)
}
