//! A simulation of everything at once, from one seed: the real webhook, reaper and ledger rules in a troubled world.
//!
//! Several workers, each with a clock of its own, share the ledger in memory; every call may be late, lost or unanswered.
//!
//! One step lets one call of one worker through, on its way there or back, or kills a worker where it stands: its future is
//! dropped, and the tasks that it has spawned with it. Which, and how much time passes between, is drawn from the seed; nothing
//! else is random, so that the same seed is the same story. After a while the trouble ends: GitHub delivers again what it got
//! no 2xx for, and the reaper runs until nothing is due. What must hold is checked after every step, and at the end that
//! nothing was lost.
//!
//! In three of four stories all clocks are within the skew, and a send ends in its time; then nothing at all is sent after
//! its send was recorded. In the others clocks are minutes apart and processes stall in the middle of a send: there the
//! clock must decide liveness only (invariant 11), and a late send is told by its deduplication id.

mod checks;
mod ports;
mod story;
mod workers;

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use forebay_aws::config::{Config, ReaperConfig};
use forebay_core::event::EventId;
use forebay_core::ledger::{Reason, Sent, Status};
use forebay_core::ports::{ErrorClass, Ledger as _};
use forebay_core::session::OwnerKey;
use jiff::{SignedDuration, Timestamp};
use tokio::runtime::Runtime;

use crate::chance::Chance;
use crate::webhook::{environment, noon};
use ports::{Passage, Ports, World, at_once};
use story::{Fate, PULLS, Telling};
use workers::{Done, Role};

/// How often a worker is polled in one step. A drive ends, the reaper hears of it and spawns the next one, and that comes to
/// its first gate: three times, and once more.
const TURNS: usize = 4;
/// Steps of trouble in one story.
const TROUBLE_STEPS: usize = 1_200;
/// Most steps of one story: what is not quiet then never will be.
const STEPS_MAX: usize = 60_000;

/// A bug that is put in on purpose, to see it found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutation {
    /// None.
    #[default]
    None,
    /// A settlement needs no token.
    SettleUnconditional,
    /// A claim takes a lease that still runs.
    ClaimIgnoresLease,
    /// An event that is claimed is not listed as due, even after its owner died.
    DueRemovedAtClaim,
    /// What could not be admitted is said to be.
    AnswersBeforeDurable,
}

/// What came of one seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// Steps that were taken.
    pub steps: usize,
    /// Messages that arrived.
    pub messages: usize,
    /// What must not have happened, if something did.
    pub violated: Option<String>,
    /// What happened, line by line.
    pub trace: Vec<String>,
}

/// Plays the story of `seed`.
#[must_use]
pub fn run(seed: u64) -> Run {
    run_with(seed, Mutation::None)
}

/// Plays the story of `seed` with a bug in it.
///
/// # Panics
/// Where the simulation itself is broken.
#[must_use]
pub fn run_with(seed: u64, mutation: Mutation) -> Run {
    // The functions bound their work by tokio's timers, and the reaper spawns a task for each drive. The runtime is turned at
    // each step, for as long as it takes until every task waits at a gate again. The timers go by real seconds, and a story
    // takes a tenth of one: none ever fires. Running out of time is a crash here, at a step that the seed draws.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without input or output");
    let mut play = Play::new(seed, mutation, runtime);
    play.trouble();
    play.calm_down();
    play.check_the_end();
    let mut inner = play.world.inner();
    Run {
        seed,
        steps: play.steps,
        messages: inner.checks.landings,
        violated: inner.checks.violated.take(),
        trace: std::mem::take(&mut inner.trace),
    }
}

type Task = Pin<Box<dyn Future<Output = Done>>>;

/// A worker, at work or not.
struct Worker {
    role: Role,
    ports: Ports,
    task: Option<Task>,
}

struct Play {
    runtime: Runtime,
    chance: Chance,
    config: Arc<Config>,
    reaper: Arc<ReaperConfig>,
    world: Arc<World>,
    workers: Vec<Worker>,
    tellings: Vec<Telling>,
    steps: usize,
    sessions: usize,
}

impl Play {
    fn new(seed: u64, mutation: Mutation, runtime: Runtime) -> Self {
        let mut chance = Chance::new(seed);
        let mut environment = environment();
        environment.insert("RETENTION_DAYS".to_owned(), "35".to_owned());
        environment.insert("ROUTES".to_owned(), "acme/app#7=reviewer".to_owned());
        // Small enough that a run of the reaper reads several pages and drives several events at one time.
        environment.insert("REAP_PAGE_ROWS".to_owned(), "2".to_owned());
        environment.insert("REAP_CONCURRENCY".to_owned(), "3".to_owned());
        let reaper = Arc::new(ReaperConfig::read(environment.clone()).expect("a usable environment"));
        let config = Arc::new(Config::read(environment).expect("a usable environment"));
        let sane = seed % 4 != 3;
        let world = Arc::new(World::new(seed, noon().as_millisecond(), sane, mutation));
        let tellings = story::tell(&mut chance, &config, noon());
        let roles = [
            Role::Webhook,
            Role::Webhook,
            Role::Webhook,
            Role::Reaper,
            Role::Reaper,
            Role::Slow,
            Role::Slow,
            Role::Agent,
        ];
        let workers = roles.into_iter().enumerate().map(|(worker, role)| Worker {
            role,
            ports: Ports {
                world: Arc::clone(&world),
                worker,
                ahead_ms: 0,
            },
            task: None,
        });
        let mut play = Self {
            runtime,
            chance,
            config,
            reaper,
            workers: workers.collect(),
            world,
            tellings,
            steps: 0,
            sessions: 0,
        };
        for worker in 0..play.workers.len() {
            play.set_clock(worker);
        }
        play
    }

    /// A new process has a new clock.
    fn set_clock(&mut self, worker: usize) {
        let skew_ms = i64::try_from(self.config.limits.skew.as_millis()).unwrap_or(0);
        let far_ms = if self.world.inner().checks.sane {
            skew_ms / 2
        } else {
            120_000
        };
        self.workers[worker].ports.ahead_ms = self.chance.within(-far_ms..far_ms + 1);
    }

    fn is_broken(&self) -> bool {
        self.world.inner().checks.violated.is_some()
    }

    fn pass(&mut self, span_ms: i64) {
        self.world.inner().now_ms += span_ms;
    }

    fn trouble(&mut self) {
        while self.steps < TROUBLE_STEPS && !self.is_broken() {
            let span_ms = match self.chance.below(100) {
                0..80 => self.chance.within(0..300),
                80..97 => self.chance.within(300..4_000),
                _ => self.chance.within(4_000..60_000),
            };
            self.pass(span_ms);
            let lag_ms = self.chance.within(0..20_000);
            self.world.inner().lag_ms = lag_ms;
            match self.chance.below(100) {
                0..20 => self.start_somebody(),
                20..23 => self.kill_somebody(),
                23 => self.turn_an_inbox(),
                _ => self.let_something_through(true),
            }
        }
    }

    fn start_somebody(&mut self) {
        let worker = self.chance.below(self.workers.len());
        if self.workers[worker].task.is_none() {
            self.start(worker);
        }
    }

    fn start(&mut self, worker: usize) {
        let Worker { role, ports, .. } = &self.workers[worker];
        let (role, ports, config) = (*role, ports.clone(), Arc::clone(&self.config));
        let task: Option<Task> = match role {
            Role::Webhook => self.next_telling().map(|telling| {
                self.tellings[telling].under_way = true;
                self.tellings[telling].attempts += 1;
                let event = self.tellings[telling].request.to_event();
                Box::pin(workers::answer(ports, config, telling, event)) as Task
            }),
            Role::Reaper => Some(Box::pin(workers::reap(ports, Arc::clone(&self.reaper))) as Task),
            Role::Slow => self.some_event().map(|event| {
                let renew = self.chance.percent(50);
                Box::pin(workers::dawdle(ports, config, event, renew)) as Task
            }),
            Role::Agent => {
                let errand = self.errand();
                Some(Box::pin(workers::run_errand(ports, config, errand)) as Task)
            }
        };
        self.workers[worker].task = task;
        self.poll(worker);
    }

    /// In no order: what GitHub got no 2xx for, at times once more what it did, at times while it is under way.
    fn next_telling(&mut self) -> Option<usize> {
        let telling = self.chance.below(self.tellings.len());
        let Telling {
            acknowledged,
            under_way,
            ..
        } = self.tellings[telling];
        let again = if acknowledged || under_way { 10 } else { 100 };
        self.chance.percent(again).then_some(telling)
    }

    fn some_event(&mut self) -> Option<EventId> {
        let telling = self.chance.below(self.tellings.len());
        self.tellings[telling].event.as_ref().map(|(event, _)| event.clone())
    }

    fn errand(&mut self) -> workers::Errand {
        let pull = 1 + self.chance.next() % PULLS;
        if self.chance.percent(30) {
            return workers::Errand::Close(pull);
        }
        self.sessions += 1;
        workers::Errand::Open {
            pull,
            by_branch: self.chance.percent(50),
            agent: if self.chance.percent(50) { "reviewer" } else { "builder" },
            minutes: self.chance.within(1..30),
        }
    }

    fn kill_somebody(&mut self) {
        let worker = self.chance.below(self.workers.len());
        let Some(task) = self.workers[worker].task.take() else {
            return;
        };
        // The tasks that it has spawned end with it, before anybody does anything else.
        self.runtime.block_on(async {
            drop(task);
            turn().await;
        });
        let now_ms = self.world.inner().now_ms;
        self.world.inner().tell(format!("{now_ms} worker {worker} dies"));
        self.steps += 1;
        self.forget_requests();
        self.set_clock(worker);
    }

    /// A telling whose webhook died is under way no more. Two may be at once; then it may be told once more, no harm.
    fn forget_requests(&mut self) {
        if !self
            .workers
            .iter()
            .any(|worker| worker.role == Role::Webhook && worker.task.is_some())
        {
            for telling in &mut self.tellings {
                telling.under_way = false;
            }
        }
    }

    fn turn_an_inbox(&mut self) {
        let inbox = ["reviewer", "builder", "dispatcher", "notice"][self.chance.below(4)];
        let outcome = [Sent::Yes, Sent::Yes, Sent::Unreachable, Sent::Rejected][self.chance.below(4)];
        self.world.inner().outages.insert(inbox.to_owned(), outcome);
    }

    fn let_something_through(&mut self, trouble: bool) {
        let waiting = self.world.inner().waiting.clone();
        if waiting.is_empty() {
            // Whoever is at work and at no gate has only been asked to be polled again.
            self.steps += 1;
            for worker in 0..self.workers.len() {
                self.poll(worker);
            }
            return;
        }
        let waiting = &waiting[self.chance.below(waiting.len())];
        // Slow workers are let through rarely, so that their leases end under them.
        if trouble && self.workers[waiting.worker].role == Role::Slow && self.chance.percent(70) {
            return;
        }
        let passage = match self.chance.below(100) {
            0..4 if trouble => Passage::Error(ErrorClass::Throttled),
            4..8 if trouble => Passage::Repeat,
            8..10 if trouble => Passage::Error(ErrorClass::TimedOut),
            // An answer that cannot be understood: the reaper counts that against the event.
            10 if trouble => Passage::Error(ErrorClass::Unreadable),
            _ => Passage::Through,
        };
        let now_ms = self.world.inner().now_ms;
        let line = format!("{now_ms} worker {} {}: {passage:?}", waiting.worker, waiting.call);
        self.world.inner().tell(line);
        self.world.inner().passage = Some((waiting.gate, passage));
        waiting.waker.wake_by_ref();
        self.steps += 1;
        self.poll(waiting.worker);
    }

    fn poll(&mut self, worker: usize) {
        let Some(task) = &mut self.workers[worker].task else {
            return;
        };
        let Some(done) = self.runtime.block_on(polled(task)) else {
            return;
        };
        self.workers[worker].task = None;
        match done {
            Done::Answered { telling, status } => self.hear(telling, status),
            Done::Worked => {}
        }
    }

    /// GitHub hears an answer. Invariant 1: what it hears 2xx for is in the ledger, with its event.
    fn hear(&mut self, telling: usize, status: u16) {
        let telling = &mut self.tellings[telling];
        telling.under_way = false;
        telling.acknowledged |= (200..300).contains(&status);
        if !(200..300).contains(&status) {
            return;
        }
        let kept = at_once(self.world.memory.delivery(&telling.key))
            .ok()
            .flatten()
            .is_some();
        let known = telling
            .event
            .as_ref()
            .is_none_or(|(event, _)| self.world.row(event).is_some());
        if !kept || !known {
            let key = &telling.key;
            self.world
                .inner()
                .checks
                .violate(format!("{key} was answered {status} and is not in the ledger"));
        }
    }

    /// The trouble is over: everything under way ends, GitHub delivers again, the reaper runs until nothing is due.
    fn calm_down(&mut self) {
        self.world.inner().outages.clear();
        self.world.inner().lag_ms = 0;
        self.finish();
        for telling in 0..self.tellings.len() {
            if !self.tellings[telling].acknowledged {
                self.tellings[telling].under_way = true;
                let (ports, config) = (self.workers[0].ports.clone(), Arc::clone(&self.config));
                let event = self.tellings[telling].request.to_event();
                self.workers[0].task = Some(Box::pin(workers::answer(ports, config, telling, event)));
                self.poll(0);
                self.finish();
            }
        }
        // One pull request has an owner in the end, the others have not.
        let errand = workers::Errand::Open {
            pull: 1,
            by_branch: false,
            agent: "reviewer",
            minutes: 60 * 24 * 30,
        };
        // Whoever owned it in the trouble is gone by now.
        self.pass(60 * 60_000);
        let agent = self.workers.len() - 1;
        let (ports, config) = (self.workers[agent].ports.clone(), Arc::clone(&self.config));
        self.workers[agent].task = Some(Box::pin(workers::run_errand(ports, config, errand)));
        self.poll(agent);
        self.finish();
        while self.steps < STEPS_MAX && !self.is_broken() {
            let rows = self.world.rows();
            let unsettled = rows.iter().filter(|row| !row.state.status.is_terminal());
            let Some(due_at) = unsettled.filter_map(|row| row.state.due_at).min() else {
                break;
            };
            let due_ms = due_at.as_millisecond() + 130_000;
            let now_ms = self.world.inner().now_ms;
            self.pass((due_ms - now_ms).max(1_000));
            self.steps += 1;
            self.start(3);
            self.finish();
            let after_ms = self.world.inner().now_ms;
            // Nothing that is due may stay: the reaper has just run. A year is beyond every wait.
            if after_ms - noon().as_millisecond() > 365 * 86_400_000 {
                break;
            }
        }
    }

    /// Lets everything through until nobody is at work.
    fn finish(&mut self) {
        while self.steps < STEPS_MAX && !self.is_broken() && self.workers.iter().any(|worker| worker.task.is_some()) {
            self.pass(5);
            self.let_something_through(false);
        }
    }

    /// Nothing was lost, and what should not be sent was not.
    fn check_the_end(&mut self) {
        if self.is_broken() {
            return;
        }
        let mut problems = Vec::new();
        let rows: BTreeMap<EventId, _> = self
            .world
            .rows()
            .into_iter()
            .map(|row| (row.event.id.clone(), row))
            .collect();
        let owned = OwnerKey::pull(&story::repository(), 1);
        for telling in &self.tellings {
            if !telling.acknowledged {
                problems.push(format!("{} was never acknowledged", telling.key));
            }
            let Some((event, fate)) = &telling.event else { continue };
            let Some(row) = rows.get(event) else {
                problems.push(format!("{event} is not in the ledger"));
                continue;
            };
            let inner = self.world.inner();
            let landed = |inbox: &str| inner.checks.landed.contains(&(event.to_string(), inbox.to_owned()));
            let state = &row.state;
            if !state.status.is_terminal() {
                problems.push(format!(
                    "{event} is still {} and due at {:?}",
                    state.status, state.due_at
                ));
            }
            match fate {
                Fate::Recorded(reason) => {
                    let sent = inner.checks.landed.iter().any(|(known, _)| known == event.as_str());
                    if sent || state.reason != Some(*reason) {
                        problems.push(format!("{event} is {reason}, and yet {state:?}"));
                    }
                }
                Fate::Sent(..) if state.status == Status::FailedPermanent => {
                    // Every claim may have been a failure, and nothing else counts as one.
                    let claims = inner.checks.claims.get(event).copied().unwrap_or(0);
                    if state.reason != Some(Reason::TooManyFailures) || claims < self.config.limits.failures_max {
                        problems.push(format!("{event} was given up after {claims} claims: {state:?}"));
                    }
                }
                Fate::Sent(fixed, owner_keys) => {
                    let missing = fixed.iter().any(|inbox| !landed(inbox));
                    let waited = fixed.is_empty() && owner_keys.contains(&owned);
                    let anywhere = inner.checks.landed.iter().any(|(known, _)| known == event.as_str());
                    // What an owner got before it left may be nobody's in the end, if that it got it was not recorded.
                    let right = match state.reason {
                        Some(Reason::Delivered) => anywhere,
                        Some(Reason::NoOwner) => fixed.is_empty(),
                        _ => false,
                    };
                    if missing || (waited && !anywhere) || !right {
                        problems.push(format!("{event} has not reached everybody: {state:?}"));
                    }
                }
            }
        }
        let mut inner = self.world.inner();
        for problem in problems {
            inner.checks.violate(problem);
        }
    }
}

/// What `task` came to, if it did: it and the tasks that it has spawned run until all of them wait at their gates.
async fn polled(task: &mut Task) -> Option<Done> {
    for _ in 0..TURNS {
        if let Poll::Ready(done) = poll_fn(|context| Poll::Ready(task.as_mut().poll(context))).await {
            return Some(done);
        }
        turn().await;
    }
    None
}

/// Lets every spawned task run that can.
async fn turn() {
    tokio::task::yield_now().await;
}

/// When a session that is opened now lapses.
fn live_until(now: Timestamp, minutes: i64) -> Timestamp {
    now + SignedDuration::from_secs(60 * minutes)
}
