//! Reference test: whatever is asked in whatever order, the ledger in DynamoDB answers and keeps what the ledger in memory
//! does, which is the transition function and maps.
//!
//! `PROPTEST_CASES=2000 cargo test --test reference` walks further along the same sequence of random operations. Every
//! counterexample that was ever found is a named test below.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::fmt::Debug;

use forebay_core::delivery::{Delivery, Ignored, Outcome};
use forebay_core::event::{EventId, Net};
use forebay_core::ledger::memory::MemoryLedger;
use forebay_core::ledger::{Admitted, Cause, Claim, Claimed, DeliveryRow, Lease, Nonce, Raise, Settlement, Term};
use forebay_core::ports::{DUE_SHARDS, Due, DueQuery, Ledger, LedgerError, Listed, Listing, Renewed};
use forebay_core::session::{OwnerKey, Session, SessionId};
use forebay_tests::engine::{Embedded, Engine};
use forebay_tests::samples::*;
use jiff::{SignedDuration, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Cases unless `PROPTEST_CASES` says otherwise, and the longest sequence of each.
const CASES: u32 = 24;
const STEPS_MAX: usize = 40;
const EVENTS: [&str; 3] = ["e0", "e1", "e2"];
const BRANCHES: [&str; 2] = ["fix", "other"];
const SESSIONS: [&str; 3] = ["s0", "s1", "s2"];
const HOOKS: usize = 2;
const GUIDS: usize = 3;

/// One call, or one turn of the world. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Op {
    /// A delivery arrives. Its body decides what it means.
    Admit {
        hook: usize,
        guid: usize,
        body: usize,
        net: usize,
    },
    /// An earlier admission is sent once more, to the letter: its answer was lost.
    AdmitAgain(usize),
    Claim {
        event: usize,
        owner_appeared: bool,
    },
    /// The last claim once more, to the letter.
    ClaimAgain,
    /// Somebody settles under a lease that was handed out at some time, current or not.
    Settle {
        lease: usize,
        how: usize,
    },
    Renew {
        lease: usize,
        seconds: i64,
    },
    /// The last claim's row, or another one, is raised as it was seen to be due.
    Raise {
        event: usize,
        ours: bool,
    },
    Learn {
        branch: usize,
        pull: u64,
    },
    Open {
        session: usize,
        branch: Option<usize>,
        pull: Option<u64>,
        minutes: i64,
    },
    Close(usize),
    /// What is over goes. Nobody asks for the earlier life's rows again.
    Expire,
    /// Time passes, or a clock is behind.
    Pass(i64),
}

fn op() -> impl Strategy<Value = Op> {
    let some = 0..100_usize;
    prop_oneof![
        4 => (some.clone(), some.clone(), some.clone(), some.clone())
            .prop_map(|(hook, guid, body, net)| Op::Admit { hook, guid, body, net }),
        1 => some.clone().prop_map(Op::AdmitAgain),
        4 => (some.clone(), any::<bool>()).prop_map(|(event, owner_appeared)| Op::Claim { event, owner_appeared }),
        1 => Just(Op::ClaimAgain),
        5 => (some.clone(), some.clone()).prop_map(|(lease, how)| Op::Settle { lease, how }),
        2 => (some.clone(), 1..120_i64).prop_map(|(lease, seconds)| Op::Renew { lease, seconds }),
        2 => (some.clone(), any::<bool>()).prop_map(|(event, ours)| Op::Raise { event, ours }),
        2 => (some.clone(), 1..4_u64).prop_map(|(branch, pull)| Op::Learn { branch, pull }),
        3 => (some.clone(), proptest::option::of(some.clone()), proptest::option::of(1..4_u64), 1..5_i64)
            .prop_map(|(session, branch, pull, minutes)| Op::Open { session, branch, pull, minutes }),
        1 => some.prop_map(Op::Close),
        1 => Just(Op::Expire),
        4 => (-40_000..120_000_i64).prop_map(Op::Pass),
    ]
}

/// The bodies, and the event that each means.
fn bodies() -> [(Vec<u8>, Option<usize>); 5] {
    let large: Vec<u8> = (0..8_000_u32)
        .flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    [
        (BODY.to_vec(), Some(0)),
        (b"{\"a\": 2}".to_vec(), Some(0)),
        (b"{\"a\": 3}".to_vec(), Some(1)),
        (b"{\"zen\": 1}".to_vec(), None),
        (large, Some(2)),
    ]
}

struct Sent {
    delivery: Delivery,
    body: usize,
    nonce: u64,
}

struct World {
    memory: MemoryLedger,
    embedded: Embedded,
    bodies: [(Vec<u8>, Option<usize>); 5],
    now: Timestamp,
    nonces: u64,
    sent: Vec<Sent>,
    leases: Vec<Lease>,
    claim: Option<(EventId, Claim)>,
}

/// Both answers, or what differs.
type Checked = Result<(), String>;

fn same<T: PartialEq + Debug>(
    what: &str,
    memory: Result<T, LedgerError>,
    dynamodb: Result<T, LedgerError>,
) -> Result<T, String> {
    match (memory, dynamodb) {
        (Ok(memory), Ok(dynamodb)) if memory == dynamodb => Ok(memory),
        (memory, dynamodb) => Err(format!("{what}:\n memory   {memory:?}\n dynamodb {dynamodb:?}")),
    }
}

/// Where the bytes differ, DynamoDB's ledger need not know the kept delivery's event; if it tells one, it is that one.
fn without_what_may_be_unknown(memory: &mut Result<Admitted, LedgerError>, dynamodb: &Result<Admitted, LedgerError>) {
    if let (
        Ok(Admitted::Duplicate { conflict: true, event }),
        Ok(Admitted::Duplicate {
            conflict: true,
            event: None,
        }),
    ) = (memory, dynamodb)
    {
        *event = None;
    }
}

impl World {
    async fn new() -> Self {
        Self {
            memory: MemoryLedger::new(),
            embedded: Embedded::start().await,
            bodies: bodies(),
            now: at(0),
            nonces: 0,
            sent: Vec::new(),
            leases: Vec::new(),
            claim: None,
        }
    }

    fn nonce(&mut self) -> u64 {
        self.nonces += 1;
        self.nonces
    }

    async fn run(&mut self, ops: &[Op]) -> Checked {
        for (number, op) in ops.iter().enumerate() {
            let done = self.step(op).await;
            let checked = match done {
                Ok(()) => self.compare_events_and_pointers().await,
                Err(difference) => Err(difference),
            };
            checked.map_err(|difference| format!("after step {number}, {op:?}: {difference}"))?;
        }
        self.compare_everything().await
    }

    async fn step(&mut self, op: &Op) -> Checked {
        match op {
            Op::Admit { hook, guid, body, net } => {
                let body = body % self.bodies.len();
                let outcome = match self.bodies[body].1 {
                    Some(event) => Outcome::Accepted(EventId::new(EVENTS[event])),
                    None => Outcome::Ignored(Ignored::Ping),
                };
                let key = format!("{}/{}", hook % HOOKS, guid % GUIDS);
                let delivery = Delivery {
                    received_at: self.now,
                    net: Net::ALL[net % Net::ALL.len()],
                    ..with_body(delivery(&key, outcome), &self.bodies[body].0)
                };
                let nonce = self.nonce();
                self.sent.push(Sent { delivery, body, nonce });
                self.admit(self.sent.len() - 1).await
            }
            Op::AdmitAgain(index) if !self.sent.is_empty() => self.admit(index % self.sent.len()).await,
            Op::Claim { event, owner_appeared } => {
                let claim = Claim {
                    cause: if *owner_appeared {
                        Cause::OwnerAppeared
                    } else {
                        Cause::Due
                    },
                    ..claim(self.now, self.nonce())
                };
                self.claim = Some((EventId::new(EVENTS[event % EVENTS.len()]), claim));
                self.claim().await
            }
            Op::ClaimAgain => self.claim().await,
            Op::Settle { lease, how } if !self.leases.is_empty() => {
                let lease = &self.leases[lease % self.leases.len()];
                let settlement = self.settlement(*how);
                let memory = self.memory.settle(copy_of(lease), self.now, settlement.clone()).await;
                let dynamodb = self
                    .embedded
                    .ledger()
                    .settle(copy_of(lease), self.now, settlement)
                    .await;
                same("settle", memory, dynamodb).map(drop)
            }
            Op::Renew { lease, seconds } if !self.leases.is_empty() => {
                let lease = &self.leases[lease % self.leases.len()];
                let term = Term {
                    lease: secs(*seconds),
                    ..TERM
                };
                let (mut one, mut other) = (copy_of(lease), copy_of(lease));
                let memory = self.memory.renew(&mut one, self.now, term).await;
                let dynamodb = self.embedded.ledger().renew(&mut other, self.now, term).await;
                let memory = memory.map(|answer| (answer, one));
                let dynamodb = dynamodb.map(|answer| (answer, other));
                if let (Renewed::Kept, lease) = same("renew", memory, dynamodb)? {
                    self.leases.push(lease);
                }
                Ok(())
            }
            Op::Raise { event, ours } => self.raise(EVENTS[event % EVENTS.len()], *ours).await,
            Op::Learn { branch, pull } => self.learn(BRANCHES[branch % BRANCHES.len()], *pull).await,
            Op::Open {
                session: index,
                branch,
                pull,
                minutes,
            } => {
                let session = Session {
                    opened_at: self.now,
                    live_until: self.now + secs(minutes * 60),
                    ..session(
                        SESSIONS[index % SESSIONS.len()],
                        branch.map(|branch| BRANCHES[branch % BRANCHES.len()]),
                        *pull,
                    )
                };
                let memory = self.memory.open_session(&session, self.now).await;
                let dynamodb = self.embedded.ledger().open_session(&session, self.now).await;
                same("open session", memory, dynamodb).map(drop)
            }
            Op::Close(session) => {
                let id = SessionId::parse(SESSIONS[session % SESSIONS.len()]).unwrap();
                let expires_at = self.whole_seconds() + RETENTION;
                let memory = self.memory.close_session(&id, expires_at).await;
                let dynamodb = self.embedded.ledger().close_session(&id, expires_at).await;
                same("close session", memory, dynamodb).map(drop)
            }
            Op::Expire => {
                let now = self.whole_seconds() + RETENTION;
                self.memory.expire(now);
                self.embedded.expire(now).await;
                self.sent.clear();
                Ok(())
            }
            Op::Pass(span_ms) => {
                self.now += SignedDuration::from_millis(*span_ms);
                Ok(())
            }
            Op::AdmitAgain(_) | Op::Settle { .. } | Op::Renew { .. } => Ok(()),
        }
    }

    /// Times to live are kept in whole seconds.
    fn whole_seconds(&self) -> Timestamp {
        Timestamp::from_second(self.now.as_second()).unwrap()
    }

    async fn admit(&mut self, index: usize) -> Checked {
        let sent = &self.sent[index];
        let body = &self.bodies[sent.body].0;
        let mut admission = admission(&sent.delivery, body, sent.nonce);
        admission.expires_at = Timestamp::from_second(sent.delivery.received_at.as_second()).unwrap() + RETENTION;
        let mut memory = self.memory.admit(&admission).await;
        let dynamodb = self.embedded.ledger().admit(&admission).await;
        without_what_may_be_unknown(&mut memory, &dynamodb);
        if let Admitted::Created { lease: Some(lease) } = same("admit", memory, dynamodb)? {
            self.leases.push(lease);
        }
        Ok(())
    }

    async fn claim(&mut self) -> Checked {
        let Some((event, claim)) = &self.claim else {
            return Ok(());
        };
        let memory = self.memory.claim(event, *claim).await;
        let dynamodb = self.embedded.ledger().claim(event, *claim).await;
        if let Claimed::Won { lease, .. } = same("claim", memory, dynamodb)? {
            self.leases.push(lease);
        }
        Ok(())
    }

    async fn raise(&mut self, event: &str, ours: bool) -> Checked {
        let claimed = self.claim.clone().filter(|_| ours);
        let fresh = Nonce::from_random(self.nonce());
        let (event, nonce) = match claimed {
            Some((event, claim)) => (event, claim.nonce),
            None => (EventId::new(event), fresh),
        };
        let row = self.memory.event(&event).await.map_err(|error| error.to_string())?;
        let raise = Raise {
            now: self.now,
            seen: row.and_then(|row| row.state.due_at).unwrap_or(self.now),
            nonce,
            wait_min: secs(15),
            wait_max: secs(60),
            failures_max: 4,
            expires_at: self.whole_seconds() + RETENTION,
        };
        let memory = self.memory.raise(&event, raise).await;
        let dynamodb = self.embedded.ledger().raise(&event, raise).await;
        same("raise", memory, dynamodb).map(drop)
    }

    /// As the webhook does it: what is learnt of an owned branch is pointed to its owner.
    async fn learn(&self, branch: &str, number: u64) -> Checked {
        let memory = self.memory.learn(&repository(), branch, number, self.now).await;
        let dynamodb = self
            .embedded
            .ledger()
            .learn(&repository(), branch, number, self.now)
            .await;
        let pointer = same("learn", memory, dynamodb)?;
        let Some(owner) = pointer.owner.filter(|owner| self.now < owner.live_until) else {
            return Ok(());
        };
        let memory = self.memory.own(&pull(number), &owner, self.now).await;
        let dynamodb = self.embedded.ledger().own(&pull(number), &owner, self.now).await;
        same("own", memory, dynamodb).map(drop)
    }

    fn settlement(&self, how: usize) -> Settlement {
        let now = self.whole_seconds();
        let due_at = self.now + secs(15);
        match how % 5 {
            0 => processed(now),
            1 => given_up(now),
            2 => failed(due_at),
            3 => parked(pull(how as u64 % 3 + 1), due_at),
            _ => parked(branch(BRANCHES[how % BRANCHES.len()]), due_at),
        }
    }

    fn keys() -> Vec<OwnerKey> {
        let branches = BRANCHES.iter().map(|name| branch(name));
        branches.chain((1..4).map(pull)).collect()
    }

    async fn compare_events_and_pointers(&self) -> Checked {
        let dynamodb = self.embedded.ledger();
        for event in EVENTS {
            let id = EventId::new(event);
            same(event, self.memory.event(&id).await, dynamodb.event(&id).await)?;
        }
        let keys = Self::keys();
        same(
            "pointers",
            self.memory.pointers(&keys).await,
            dynamodb.pointers(&keys).await,
        )?;
        Ok(())
    }

    async fn compare_everything(&self) -> Checked {
        let dynamodb = self.embedded.ledger();
        for hook in 0..HOOKS {
            for guid in 0..GUIDS {
                let key = forebay_core::delivery::DeliveryKey::parse(&format!("{hook}/{guid}")).unwrap();
                // How many bytes a body takes is the store's own affair.
                let plain = |row: Option<DeliveryRow>| row.map(|row| DeliveryRow { stored_bytes: 0, ..row });
                let memory = self.memory.delivery(&key).await.map(plain);
                same("delivery", memory, dynamodb.delivery(&key).await.map(plain))?;
                same("body", self.memory.body(&key).await, dynamodb.body(&key).await)?;
            }
        }
        for key in Self::keys() {
            let sorted = |mut ids: Vec<EventId>| {
                ids.sort();
                ids
            };
            let memory = self.memory.waiting(&key, 10).await.map(sorted);
            same("waiting", memory, dynamodb.waiting(&key, 10).await.map(sorted))?;
        }
        same("sessions", self.memory.sessions(10).await, dynamodb.sessions(10).await)?;
        let listing = |what| Listing {
            what,
            since: at(-86_400),
            until: at(86_400),
            limit: 100,
        };
        let memory = self.memory.events(&listing(Listed::Events)).await;
        let found = dynamodb.events(&listing(Listed::Events)).await;
        let by_id = |mut rows: Vec<forebay_core::ledger::EventRow>| {
            rows.sort_by(|one, other| one.event.id.cmp(&other.event.id));
            rows
        };
        same("events", memory.map(by_id), found.map(by_id))?;
        same(
            "due",
            due(&self.memory, self.now).await,
            due(&*dynamodb, self.now).await,
        )?;
        Ok(())
    }
}

/// What is due, of all shards.
async fn due(ledger: &impl Ledger, until: Timestamp) -> Result<Vec<Due>, LedgerError> {
    let mut all = Vec::new();
    for shard in 0..DUE_SHARDS {
        let query = DueQuery {
            shard,
            until,
            after: None,
            limit: 10,
        };
        all.extend(ledger.due(&query).await?.events);
    }
    all.sort();
    Ok(all)
}

async fn run(ops: &[Op]) -> Checked {
    World::new().await.run(ops).await
}

#[test]
fn both_ledgers_answer_and_keep_the_same_whatever_is_asked() {
    let config = Config {
        cases: match Config::default().cases {
            // Nobody asked: this is proptest's own number.
            256 => CASES,
            asked => asked,
        },
        failure_persistence: None,
        max_shrink_iters: 400,
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let tested = runner.run(&vec(op(), 1..STEPS_MAX), |ops| {
        runtime.block_on(run(&ops)).map_err(TestCaseError::fail)
    });
    if let Err(found) = tested {
        panic!("{found}");
    }
}

// --- what was found ------------------------------------------------------------------------------------------------------

async fn holds(ops: &[Op]) {
    run(ops).await.unwrap();
}

const fn admit(hook: usize, guid: usize, body: usize) -> Op {
    Op::Admit {
        hook,
        guid,
        body,
        net: 0,
    }
}

const fn open(session: usize, branch: Option<usize>, pull: Option<u64>) -> Op {
    Op::Open {
        session,
        branch,
        pull,
        minutes: 4,
    }
}

#[tokio::test]
async fn regression_a_session_that_moved_left_its_first_branch_behind() {
    holds(&[open(0, Some(0), None), open(0, Some(1), None), Op::Close(0)]).await;
}

#[tokio::test]
async fn regression_a_session_that_moved_left_the_first_branchs_pull_requests_behind() {
    let learnt = Op::Learn { branch: 0, pull: 2 };
    holds(&[
        learnt,
        open(0, Some(0), None),
        open(0, None, Some(1)),
        open(1, None, Some(2)),
    ])
    .await;
}

#[tokio::test]
async fn regression_other_bytes_brought_along_the_event_that_they_mean() {
    // Body 2 means event 1, body 0 event 0; body 3 means nothing.
    holds(&[
        admit(0, 0, 0),
        admit(0, 1, 2),
        admit(0, 0, 2),
        admit(0, 2, 3),
        admit(0, 2, 0),
    ])
    .await;
}

#[tokio::test]
async fn regression_a_closed_session_was_remembered_for_ever() {
    holds(&[
        open(0, Some(0), None),
        Op::Close(0),
        Op::Pass(1_000),
        Op::Expire,
        Op::Close(0),
    ])
    .await;
}

#[tokio::test]
async fn regression_a_session_that_opens_again_after_it_closed_does_not_expire() {
    holds(&[
        open(0, Some(0), None),
        Op::Close(0),
        open(0, Some(0), None),
        Op::Expire,
        Op::Close(0),
    ])
    .await;
}
