//! Every fault at every call: what happens on each way through the system when any one of its outside calls fails, in every
//! manner there is, or when the function dies there.
//!
//! A way is played once in peace, to count its calls to DynamoDB and SQS. Then it is played again for each of them and each
//! trouble. When the trouble is over GitHub delivers again what it got no 2xx for, an opener tries again, the clock goes on,
//! the poller comes round until it finds nothing new, and the reaper runs until nothing is due. What must hold is checked at
//! every write, send and answer; at the end nothing may be missing. Calls that only the trouble provokes, such as a repeat,
//! meet a trouble of their own only where it lasts.
//!
//! The webhook, the reaper, the adapters and the SDK's client are the real ones, with the time-outs and retries of production.
//! Only HTTP ends in process, at an embedded database and queues that are a map (`cloud`): so nothing but time-outs and
//! back-offs is waited for. Under a paused clock, as in the tests, those take no time; under a running one, many
//! combinations wait side by side. The clock of the ledger goes on with the runtime's. Not covered: two troubles on one
//! way, troubles of GitHub's answers (`tests/feeds` plays them), calls that are carried out long after their maker died, two
//! owners at once (the simulation and the model play those), bodies of several chunks (`tests/faults.rs` breaks each of them).

mod checks;
mod cloud;
mod paths;
mod polls;
mod trouble;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::config::retry::RetryPartition;
use forebay_aws::config::Config;
use forebay_aws::dynamodb::DynamoLedger;
use forebay_aws::metrics::Metrics;
use forebay_aws::secrets::SecretCache;
use forebay_aws::sqs::SqsInboxes;
use forebay_core::drive::Driver;
use forebay_core::event::Net;
use forebay_core::ingest::{IngestTally, Ingestor, LedgerWriter};
use forebay_core::ports::{Ledger as _, LedgerError, TimeAndChance as _};
use forebay_core::schedule::{LedgerScheduler, Scheduled};
use forebay_core::session::Opened;
use forebay_core::shed::Shedder;
use forebay_core::shed::memory::MemoryTargets;
use forebay_core::source::github::MissingStore as _;
use jiff::{SignedDuration, Timestamp};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::Instant;
use webhook::Webhook;

use crate::fakes::{GivenSecrets, RunningTime};
use crate::fault::{Call, Fault, Faults};
use crate::reaper::{NO_DEADLINE, reaper};
use crate::table;
use crate::webhook::{Request, SECRET, environment, noon};
use checks::Checks;
use cloud::{Cloud, SEND};
use paths::{Act, Past, key_of};
use polls::{BEGINS_MAX, Github, POLL_TIME_MAX, POLLS_APART, SCHEDULE};

pub use checks::Broken;
pub use paths::{Path, paths};
pub use trouble::{Kind, Trouble};

/// GitHub waits so long for an answer
/// (<https://docs.github.com/en/webhooks/using-webhooks/handling-failed-webhook-deliveries>).
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// From an answer that was none to the next try of whoever needs one.
const TRIED_AGAIN: SignedDuration = SignedDuration::from_secs(60);
/// Tries of whoever needs an answer once the trouble is over.
const TRIES_MAX: usize = 3;
/// Runs of the poller until it finds nothing new: a limit, a redelivery that failed, and some.
const POLLS_MAX: usize = 5;
/// Runs of the reaper until nothing is due: a failure, two back-offs, and some.
const RUNS_MAX: usize = 12;
/// No combination waits longer than this. One that did would never end.
const PLAY_TIME_MAX: Duration = Duration::from_secs(600);

/// One trouble at one call of one way.
#[derive(Clone, Debug)]
pub struct Combination<'a> {
    path: &'a Path,
    trouble: Trouble,
    call: usize,
}

impl fmt::Display for Combination<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.path.name, self.trouble, self.call)
    }
}

/// What came of one way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its outside calls in peace.
    pub calls: usize,
    /// Combinations that were played.
    pub combinations: usize,
    /// Combinations that lost something.
    pub lost: usize,
    /// Combinations that broke something else.
    pub violated: usize,
}

/// What came of every way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// By name, in the order of playing.
    pub rows: Vec<(&'static str, Row)>,
    /// What broke, each with the combination that shows it.
    pub broken: Vec<String>,
}

impl Report {
    /// Whether nothing broke.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.broken.is_empty()
    }

    /// How many combinations were played.
    #[must_use]
    pub fn combinations(&self) -> usize {
        self.sum(|row| row.combinations)
    }

    fn sum(&self, of: impl Fn(&Row) -> usize) -> usize {
        self.rows.iter().map(|(_, row)| of(row)).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<32} {:>5} {:>12} {:>5} {:>8}",
            "way", "calls", "combinations", "lost", "violated"
        )?;
        for (name, row) in &self.rows {
            let Row {
                calls,
                combinations,
                lost,
                violated,
            } = row;
            writeln!(f, "{name:<32} {calls:>5} {combinations:>12} {lost:>5} {violated:>8}")?;
        }
        for broken in &self.broken {
            writeln!(f, "{broken}")?;
        }
        write!(
            f,
            "combinations {} lost {} violated {}",
            self.combinations(),
            self.sum(|row| row.lost),
            self.sum(|row| row.violated)
        )
    }
}

/// How time passes on the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// As it does: what is played side by side takes time from one another.
    Running,
    /// Only when everybody waits for it: how long an answer took is exact.
    Paused,
}

/// How combinations are played.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Makes a runtime for one thread.
    pub runtime: fn() -> Runtime,
    /// How time passes on it.
    pub clock: Clock,
    /// Threads.
    pub threads: usize,
    /// Combinations that one thread plays side by side.
    pub at_once: usize,
}

/// Plays every combination, or only those whose name begins with `only`.
///
/// # Panics
/// Where this program itself is broken.
#[must_use]
pub fn run(paths: &[Path], only: Option<&str>, pace: Pace) -> Report {
    let mut report = Report::default();
    let mut combinations = Vec::new();
    let begins = |name: &str| only.is_none_or(|only| name.starts_with(only));
    for path in paths {
        let all = format!("{}/", path.name);
        if !begins(&all) && !only.is_some_and(|only| only.starts_with(&all)) {
            continue;
        }
        let peace = (pace.runtime)().block_on(play(path, None, pace.clock));
        let troubles = |(number, call): (usize, &Call)| {
            let can = Trouble::all().filter(|trouble| trouble.can_befall(call));
            let combinations = can.map(|trouble| Combination {
                path,
                trouble,
                call: number,
            });
            combinations.collect::<Vec<_>>()
        };
        combinations.extend(peace.calls.iter().enumerate().flat_map(troubles));
        let row = Row {
            calls: peace.calls.len(),
            ..Row::default()
        };
        report.rows.push((path.name, row));
        note(&mut report, path, &format!("{}/in-peace", path.name), &peace.broken);
    }
    combinations.retain(|combination| begins(&combination.to_string()));
    for (combination, broken) in play_all(&combinations, pace) {
        if let Some((_, row)) = report.rows.iter_mut().find(|(name, _)| *name == combination.path.name) {
            row.combinations += 1;
        }
        note(&mut report, combination.path, &combination.to_string(), &broken);
    }
    report
}

fn note(report: &mut Report, path: &Path, name: &str, broken: &[Broken]) {
    let Some((_, row)) = report.rows.iter_mut().find(|(known, _)| *known == path.name) else {
        return;
    };
    row.lost += usize::from(broken.iter().any(|broken| matches!(broken, Broken::Lost(_))));
    row.violated += usize::from(broken.iter().any(|broken| matches!(broken, Broken::Violated(_))));
    for broken in broken {
        let (Broken::Lost(what) | Broken::Violated(what)) = broken;
        report.broken.push(format!("{name}: {what}"));
    }
}

type Ended<'a> = (Combination<'a>, Vec<Broken>);

/// Deals the combinations out to threads.
fn play_all<'a>(combinations: &[Combination<'a>], pace: Pace) -> Vec<Ended<'a>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..pace.threads)
            .map(|thread| {
                let mine: Vec<_> = combinations
                    .iter()
                    .skip(thread)
                    .step_by(pace.threads)
                    .cloned()
                    .collect();
                scope.spawn(move || play_some(mine, pace))
            })
            .collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().expect("no check panics"));
        ended.flatten().collect()
    })
}

fn play_some(combinations: Vec<Combination<'_>>, pace: Pace) -> Vec<Ended<'_>> {
    (pace.runtime)().block_on(async {
        let mut ended = Vec::new();
        let mut under_way = JoinSet::new();
        for (position, combination) in combinations.iter().enumerate() {
            if under_way.len() >= pace.at_once {
                ended.extend(under_way.join_next().await);
            }
            let (path, trouble) = (combination.path.clone(), (combination.trouble, combination.call));
            under_way.spawn(async move { (position, Box::pin(play(&path, Some(trouble), pace.clock)).await.broken) });
        }
        while let Some(next) = under_way.join_next().await {
            ended.push(next);
        }
        let named = ended.into_iter().map(|ended| {
            let (position, broken) = ended.expect("no check panics");
            (combinations[position].clone(), broken)
        });
        named.collect()
    })
}

/// What came of playing a way once.
struct Played {
    /// Its outside calls, in order.
    calls: Vec<Call>,
    broken: Vec<Broken>,
}

/// Plays `path`, with a trouble at the call of that number or in peace, and then all that follows until it is quiet.
async fn play(path: &Path, trouble: Option<(Trouble, usize)>, clock: Clock) -> Played {
    let stage = Stage::start(path, clock).await;
    let whole = async {
        for past in &path.past {
            stage.set_up(past).await;
        }
        let first = stage.faults.count();
        if let Some((trouble, call)) = trouble {
            let hit = first + call;
            stage.faults.choose(move |number, call| trouble.at(hit, number, call));
        }
        let mut owed = Vec::new();
        for act in &path.acts {
            if !stage.does(act).await {
                owed.push(act);
            }
            // What lasts ends with the invocation that it befell.
            if trouble.is_some_and(|(_, call)| stage.faults.count() > first + call) {
                stage.faults.mend();
            }
        }
        let last = stage.faults.count();
        stage.faults.mend();
        stage.recover(&owed, &path.later).await;
        stage.check_the_end(path).await;
        (first, last)
    };
    let (first, last) = match tokio::time::timeout(PLAY_TIME_MAX, Box::pin(whole)).await {
        Ok(counted) => counted,
        Err(_elapsed) => {
            stage.cloud.checks().violate("it never ended");
            (0, 0)
        }
    };
    let calls = match trouble {
        None => stage.faults.calls().drain(first..last).collect(),
        Some(_) => Vec::new(),
    };
    let broken = std::mem::take(&mut stage.cloud.checks().broken);
    Played { calls, broken }
}

/// Everything around the functions, for one play.
struct Stage {
    clock: Clock,
    cloud: Cloud,
    faults: Faults,
    time: RunningTime,
    environment: BTreeMap<String, String>,
    config: Config,
    ledger: DynamoLedger,
    inboxes: SqsInboxes,
    /// GitHub, where it is polled.
    github: Option<Github>,
}

impl Stage {
    async fn start(path: &Path, clock: Clock) -> Self {
        /// Retries are rationed over all clients of a partition: each play has a ration of its own.
        static PLAYS: AtomicU64 = AtomicU64::new(0);
        let partition = RetryPartition::new(format!("play-{}", PLAYS.fetch_add(1, Ordering::Relaxed)));
        let time = RunningTime::from(noon());
        let cloud = Cloud::new(Checks::new(time.clone()));
        let faults = Faults::before(cloud.clone());
        let dynamo = table::config(NOWHERE)
            .http_client(faults.clone())
            .retry_partition(partition.clone());
        let dynamo = aws_sdk_dynamodb::Client::from_conf(dynamo.build());
        cloud.create_table().await;
        let sqs = table::sqs_config(NOWHERE)
            .http_client(faults.clone())
            .retry_partition(partition);
        let mut environment = environment();
        if let Some(routes) = path.routes {
            environment.insert("ROUTES".to_owned(), routes.to_owned());
        }
        let config = Config::read(environment.clone()).expect("a usable environment");
        let ledger = DynamoLedger::new(dynamo, table::TABLE);
        let github = path
            .told
            .map(|told| Github::telling(told, &ledger, &time.moved, time.now()));
        Self {
            clock,
            cloud,
            faults,
            time,
            environment,
            ledger,
            github,
            inboxes: SqsInboxes::new(aws_sdk_sqs::Client::from_conf(sqs.build()), config.inboxes.clone()),
            config,
        }
    }

    async fn set_up(&self, past: &Past) {
        let at_send = |fault: Fault| {
            self.faults
                .choose(move |_, call| (call.operation == SEND).then(|| fault.clone()));
        };
        match past {
            Past::Well(act) => {
                self.does(act).await;
            }
            Past::DiedAtSend(act) => {
                at_send(Fault::DiesBefore);
                self.does(act).await;
            }
            Past::WithoutInboxes(act) => {
                at_send(Fault::Reset);
                self.does(act).await;
            }
            Past::Passed(span) => self.time.moved.pass(*span),
        }
        self.faults.mend();
    }

    /// Invokes. Says whether whoever did is content; if not they will do it again.
    async fn does(&self, act: &Act) -> bool {
        match act {
            Act::Post(request) => self.post(request).await,
            Act::Open { branch, pull } => {
                let opened = self.until_death(self.open(*branch, *pull)).await;
                matches!(opened, Some(Ok(())))
            }
            Act::Reap => {
                let (ledger, inboxes) = (self.ledger.clone(), self.inboxes.clone());
                let reaper = reaper(ledger, inboxes, self.time.clone(), self.environment.clone());
                self.until_death(reaper.run(NO_DEADLINE)).await;
                // The schedule comes round in any case.
                true
            }
            Act::Poll => {
                self.until_death(self.poll()).await;
                true
            }
            Act::Deliver => {
                self.deliver().await;
                // GitHub tries nothing again by itself.
                true
            }
        }
    }

    /// What one run of the poller found, in an environment of its own.
    async fn poll(&self) -> Option<IngestTally> {
        let github = self.github.as_ref()?;
        self.time.moved.pass(POLLS_APART);
        let scheduled = github.sources.values().map(|source| Scheduled::of(source.as_ref()));
        let scheduler = LedgerScheduler::new(self.ledger.clone(), self.time.clone(), SCHEDULE, scheduled);
        scheduler.register().await.ok()?;
        let last_start = self.time.now() + BEGINS_MAX;
        let deadline = last_start + POLL_TIME_MAX;
        let ingestor = Ingestor {
            scheduler: &scheduler,
            shedder: &Shedder::new(MemoryTargets::new(), self.time.clone(), self.config.shedder),
            writer: &LedgerWriter::new(self.driver(), Net::Feed, deadline),
            time: &self.time,
            concurrency: 1,
            poll_time_max: POLL_TIME_MAX,
        };
        Some(Box::pin(ingestor.run(&github.sources, last_start, deadline)).await)
    }

    /// GitHub posts what it has to post.
    async fn deliver(&self) {
        let Some(github) = &self.github else { return };
        for (delivery, request) in github.take_pending(self.time.moved.now()) {
            let is_kept = self.post(&request).await;
            github.record(delivery, is_kept, self.time.moved.now());
        }
    }

    /// What `work` comes to, if its function does not die first.
    async fn until_death<R>(&self, work: impl Future<Output = R>) -> Option<R> {
        let work = Box::pin(work);
        tokio::select! {
            biased;
            () = self.faults.died() => None,
            done = work => Some(done),
        }
    }

    async fn post(&self, request: &Request) -> bool {
        let webhook = Webhook::with(
            self.config.clone(),
            self.ledger.clone(),
            self.inboxes.clone(),
            SecretCache::new(GivenSecrets::single(SECRET), Duration::from_secs(300)),
            self.time.clone(),
            Metrics::to("Forebay", Box::new(std::io::sink())),
        );
        let began = Instant::now();
        let Some(answer) = self.until_death(webhook.answer(request.to_event())).await else {
            return false;
        };
        let key = key_of(request);
        let mut checks = self.cloud.checks();
        if self.clock == Clock::Paused && began.elapsed() > ANSWER_TIME_MAX {
            checks.violate(format!("{key} was answered after {:?}", began.elapsed()));
        }
        match answer.status() {
            status @ 200..=299 => checks.answer(&key, status),
            500 => {}
            other => checks.violate(format!("{key} was answered {other}")),
        }
        (200..=299).contains(&answer.status())
    }

    /// As `forebay session open` does it.
    async fn open(&self, branch: Option<&str>, pull: Option<u64>) -> Result<(), LedgerError> {
        let now = self.time.now();
        let session = paths::session(branch, pull, now);
        match self.ledger.open_session(&session, now).await? {
            Opened::Held { key, owner } => {
                let held = format!(
                    "{key} is held by {} before anybody else opened a session",
                    owner.session
                );
                self.cloud.checks().violate(held);
            }
            Opened::Live(keys) => {
                for key in keys {
                    self.driver().wake(&key).await?;
                }
            }
        }
        Ok(())
    }

    fn driver(&self) -> Driver<'_, DynamoLedger, SqsInboxes, RunningTime> {
        Driver {
            ledger: &self.ledger,
            inboxes: &self.inboxes,
            time: &self.time,
            routing: &self.config.routing,
            limits: &self.config.limits,
        }
    }

    /// All is well again: who is owed an answer asks again, and the reaper runs until nothing is due.
    async fn recover(&self, owed: &[&Act], later: &[Act]) {
        for act in owed.iter().copied().chain(later) {
            let mut content = false;
            for _ in 0..TRIES_MAX {
                self.time.moved.pass(TRIED_AGAIN);
                content = self.does(act).await;
                if content {
                    break;
                }
            }
            if !content {
                self.cloud
                    .checks()
                    .lose("there is still no answer after the trouble is over");
            }
        }
        if self.github.is_some() {
            self.poll_until_quiet().await;
        }
        for _ in 0..RUNS_MAX {
            let Some(due) = self.cloud.checks().last_due() else {
                return;
            };
            let until = due.duration_since(self.time.now());
            self.time
                .moved
                .pass(until.max(SignedDuration::ZERO) + SignedDuration::from_secs(1));
            self.does(&Act::Reap).await;
        }
        self.cloud
            .checks()
            .lose("something is still due after so many runs of the reaper");
    }

    /// The poller's schedule comes round until there is nothing new in it.
    async fn poll_until_quiet(&self) {
        let mut last = None;
        for _ in 0..POLLS_MAX {
            last = self.poll().await;
            self.deliver().await;
        }
        let is_quiet = last.is_some_and(|tally| {
            let went_well = tally.polls > 0 && tally.failures == 0 && tally.throttled == 0 && tally.trouble.is_none();
            went_well && tally.emitted == 0 && tally.overtaken == 0
        });
        if !is_quiet {
            self.cloud
                .checks()
                .lose("the poller finds something new after so many runs");
        }
    }

    /// Nothing is missing, and nothing is there that should not be.
    async fn check_the_end(&self, path: &Path) {
        if let Some(log) = self.github.as_ref().and_then(|github| github.log.as_ref()) {
            let missing = self.ledger.due_missing(log, Timestamp::MAX, 10).await;
            if !missing.is_ok_and(|missing| missing.is_empty()) {
                self.cloud.checks().lose("a delivery is missing still");
            }
        }
        for request in path.requests() {
            let key = key_of(request);
            match self.ledger.body(&key).await {
                Ok(Some(body)) if body == request.body => {}
                Ok(_) => self
                    .cloud
                    .checks()
                    .lose(format!("the bytes of {key} are not those that were posted")),
                Err(error) => self.cloud.checks().lose(format!("the bytes of {key}: {error}")),
            }
        }
        self.cloud.checks().compare(path);
    }
}

/// No address is ever resolved: HTTP ends in process.
const NOWHERE: &str = "http://127.0.0.1:1";

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Builder;

    fn paused() -> Runtime {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime without input or output")
    }

    #[test]
    fn what_ends_elsewhere_is_told_with_the_combination_that_shows_it() {
        let mut path = paths().remove(0);
        path.inboxes = BTreeMap::from([("builder", "github/comment/8")]);
        let pace = Pace {
            runtime: paused,
            clock: Clock::Paused,
            threads: 1,
            at_once: 2,
        };
        let report = run(&[path], Some("accepted/dies-before/"), pace);
        assert_eq!(
            report.broken.len(),
            10,
            "each of four calls and the peace, lost and violated:\n{report}"
        );
        let told = "accepted/dies-before/3: github/comment/8 never reached builder";
        assert!(report.broken.iter().any(|broken| broken == told), "{report}");
        let last = "combinations 4 lost 5 violated 5";
        assert_eq!(report.to_string().lines().last(), Some(last), "{report}");
    }
}
