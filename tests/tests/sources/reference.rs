//! Reference test: whatever is asked of sources in whatever order, their rows in DynamoDB answer and stand as those in memory
//! do, which are the transition function and maps.
//!
//! `PROPTEST_CASES=2000 cargo test --test sources reference` walks further along the same sequence of random operations.

use std::fmt::Debug;

use forebay_aws::dynamodb::DynamoLedger;
use forebay_core::ledger::Nonce;
use forebay_core::ports::LedgerError;
use forebay_core::schedule::memory::MemorySources;
use forebay_core::schedule::{DueSource, GivenBack, Resting, SourceClaim, SourceClaimed, SourceLease, SourceStore};
use forebay_core::source::Cursor;
use forebay_tests::engine::{Embedded, Engine};
use forebay_tests::samples::{LEASE, SKEW, at, secs};
use jiff::{SignedDuration, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::{Shown, copy_of, source, target};

/// Cases unless `PROPTEST_CASES` says otherwise, and the longest sequence of each.
const CASES: u32 = 20;
const STEPS_MAX: usize = 50;
const SOURCES: [&str; 3] = ["a", "b", "c"];
const TARGETS: [&str; 2] = ["app", "other"];
const INTERVALS_S: [i64; 4] = [0, 1, 35, 300];

/// One call, or one turn of the world. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Op {
    Register {
        source: usize,
        interval: usize,
    },
    Claim(usize),
    /// An earlier claim once more, to the letter: its answer was lost.
    ClaimAgain(usize),
    /// Somebody gives back under a right that was handed out at some time, current or not.
    GiveBack {
        lease: usize,
        cursor: bool,
        due_ms: i64,
        interval: usize,
        failures: u32,
    },
    /// What was found due, or was at some time before, is put off.
    PutOff {
        source: usize,
        off_by_ms: i64,
        until_ms: i64,
    },
    Rest {
        target: usize,
        until_ms: i64,
        strikes: u32,
    },
    /// Time passes, or a clock is behind.
    Pass(i64),
}

/// Spans around which something changes: nothing, a lease, a lease and its skew, an interval; and any other.
fn span_ms() -> impl Strategy<Value = i64> {
    let edges = [0, 1, LEASE.as_secs(), (LEASE + SKEW).as_secs(), 300].map(|edge| edge * 1_000);
    prop_oneof![
        4 => (proptest::sample::select(edges.to_vec()), -1..=1_i64).prop_map(|(edge, by)| edge + by),
        1 => -40_000..400_000_i64,
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let some = 0..100_usize;
    let few = 0..3_u32;
    prop_oneof![
        2 => (some.clone(), some.clone()).prop_map(|(source, interval)| Op::Register { source, interval }),
        5 => some.clone().prop_map(Op::Claim),
        1 => some.clone().prop_map(Op::ClaimAgain),
        4 => (some.clone(), any::<bool>(), span_ms(), some.clone(), few.clone()).prop_map(
            |(lease, cursor, due_ms, interval, failures)| Op::GiveBack { lease, cursor, due_ms, interval, failures }
        ),
        2 => (some.clone(), prop_oneof![3 => Just(0), 1 => -1..=1_i64], span_ms())
            .prop_map(|(source, off_by_ms, until_ms)| Op::PutOff { source, off_by_ms, until_ms }),
        1 => (some, span_ms(), few).prop_map(|(target, until_ms, strikes)| Op::Rest { target, until_ms, strikes }),
        4 => span_ms().prop_map(Op::Pass),
        1 => span_ms().prop_map(|span_ms| Op::Pass(-span_ms)),
    ]
}

struct World {
    memory: MemorySources,
    embedded: Embedded,
    now: Timestamp,
    nonces: u64,
    claims: Vec<(usize, SourceClaim)>,
    leases: Vec<SourceLease>,
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

fn ms(span_ms: i64) -> SignedDuration {
    SignedDuration::from_millis(span_ms)
}

impl World {
    async fn new() -> Self {
        Self {
            memory: MemorySources::new(),
            embedded: Embedded::start().await,
            now: at(0),
            nonces: 0,
            claims: Vec::new(),
            leases: Vec::new(),
        }
    }

    async fn run(&mut self, ops: &[Op]) -> Checked {
        for (number, op) in ops.iter().enumerate() {
            let done = self.step(op).await;
            let checked = match done {
                Ok(()) => self.compare().await,
                Err(difference) => Err(difference),
            };
            checked.map_err(|difference| format!("after step {number}, {op:?}: {difference}"))?;
        }
        Ok(())
    }

    async fn step(&mut self, op: &Op) -> Checked {
        let dynamodb = self.embedded.ledger();
        match *op {
            Op::Register { source: name, interval } => {
                let interval = secs(INTERVALS_S[interval % INTERVALS_S.len()]);
                let rows = [(source(SOURCES[name % SOURCES.len()]), interval)];
                let memory = self.memory.register_sources(&rows, self.now).await;
                same("register", memory, dynamodb.register_sources(&rows, self.now).await).map(drop)
            }
            Op::Claim(name) => {
                self.nonces += 1;
                let claim = SourceClaim {
                    now: self.now,
                    nonce: Nonce::from_random(self.nonces),
                    lease: LEASE,
                    skew: SKEW,
                };
                self.claims.push((name % SOURCES.len(), claim));
                self.claim(&dynamodb, self.claims.len() - 1).await
            }
            Op::ClaimAgain(index) if !self.claims.is_empty() => self.claim(&dynamodb, index % self.claims.len()).await,
            Op::GiveBack {
                lease,
                cursor,
                due_ms,
                interval,
                failures,
            } if !self.leases.is_empty() => {
                let lease = &self.leases[lease % self.leases.len()];
                let given = GivenBack {
                    cursor: cursor.then(|| Cursor::new(format!("{}", self.now)).unwrap()),
                    due_at: self.now + ms(due_ms),
                    interval: secs(INTERVALS_S[interval % INTERVALS_S.len()]),
                    failures,
                    note: (failures > 0).then(|| "timed_out".to_owned()),
                };
                let memory = self
                    .memory
                    .give_back_source(copy_of(lease), self.now, given.clone())
                    .await;
                let found = dynamodb.give_back_source(copy_of(lease), self.now, given).await;
                same("give back", memory, found).map(drop)
            }
            Op::PutOff {
                source: name,
                off_by_ms,
                until_ms,
            } => {
                let source = source(SOURCES[name % SOURCES.len()]);
                let due_at = self.memory.state(&source).map_or(self.now, |state| state.due_at);
                let found = DueSource {
                    due_at: due_at + ms(off_by_ms),
                    source,
                };
                let until = self.now + ms(until_ms);
                let memory = self.memory.put_off_source(&found, until, self.now, SKEW).await;
                same(
                    "put off",
                    memory,
                    dynamodb.put_off_source(&found, until, self.now, SKEW).await,
                )
            }
            Op::Rest {
                target: name,
                until_ms,
                strikes,
            } => {
                let target = target(TARGETS[name % TARGETS.len()]);
                let resting = Resting {
                    until: self.now + ms(until_ms),
                    strikes,
                };
                let memory = self.memory.rest_target(&target, resting).await;
                same("rest", memory, dynamodb.rest_target(&target, resting).await)
            }
            Op::Pass(span_ms) => {
                self.now += ms(span_ms);
                Ok(())
            }
            Op::ClaimAgain(_) | Op::GiveBack { .. } => Ok(()),
        }
    }

    async fn claim(&mut self, dynamodb: &DynamoLedger, index: usize) -> Checked {
        let (name, claim) = &self.claims[index];
        let source = source(SOURCES[*name]);
        let memory = self.memory.claim_source(&source, *claim).await;
        let found = dynamodb.claim_source(&source, *claim).await;
        if let SourceClaimed::Won(lease, _) = same("claim", memory, found)? {
            self.leases.push(lease);
        }
        Ok(())
    }

    /// Every row, as both tell of it.
    async fn compare(&self) -> Checked {
        let dynamodb = self.embedded.ledger();
        let targets = TARGETS.map(target);
        for name in SOURCES {
            let source = source(name);
            let (memory, found) = (self.memory.shown(&source).await, dynamodb.shown(&source).await);
            same(name, Ok(memory), Ok(found))?;
            let memory = self.memory.read_source(&source, &targets[0]).await;
            same("reading", memory, dynamodb.read_source(&source, &targets[0]).await)?;
        }
        let memory = self.memory.resting_targets(&targets).await;
        same("resting", memory, dynamodb.resting_targets(&targets).await)?;
        let sorted = |found: Result<Vec<DueSource>, LedgerError>| {
            found.map(|mut due| {
                due.sort_by(|one, other| (one.due_at, &one.source).cmp(&(other.due_at, &other.source)));
                due
            })
        };
        let memory = sorted(self.memory.due_sources(self.now, None, 10).await);
        same("due", memory, sorted(dynamodb.due_sources(self.now, None, 10).await))?;
        Ok(())
    }
}

#[test]
fn both_stores_answer_and_keep_the_same_whatever_is_asked() {
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
        let run = async { World::new().await.run(&ops).await };
        runtime.block_on(run).map_err(TestCaseError::fail)
    });
    if let Err(found) = tested {
        panic!("{found}");
    }
}
