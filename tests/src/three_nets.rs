//! Webhook, feeds and recovery beside each other: the deployed stack, a fake GitHub, and a look from outside at which net caught
//! what.
//!
//! Things happen in three repositories. Most of them are told by webhook and by feed, some by one of both; for a fifth of the time
//! the webhook is out of order, and what GitHub then says of its deliveries in their log is all that is left of them. The poller
//! runs on its schedule, and besides as often as this program starts it, so that two of them meet; now and then it is killed with
//! SIGKILL, wherever it stands.
//!
//! Counted as lost: a happening whose event is not in the ledger, not settled, or not in its inbox. Doubled: an event that is
//! more than once in an inbox, in an inbox that was not to get it, or that nobody made happen. Misattributed: an event of which
//! the ledger says that other nets saw it than those that could.

mod check;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay::trial::{Ended, Error, Ran, Trial, run};
use forebay_aws::clock::{System, pause};
use forebay_aws::dynamodb::DynamoLedger;
use forebay_core::event::Net;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use crate::chance::Chance;
use crate::github::{FakeGithub, HookTarget, Shared, deliver, lock, serve};
use crate::kill::Killer;
use crate::table;
use plan::{Plan, REPOSITORIES};

/// Longest time of all.
const LONGEST: Duration = Duration::from_secs(30 * 60);
/// How often the poller is started besides its schedule.
const POLL: Duration = Duration::from_secs(7);
/// How often it is looked whether everything has come.
const LOOK: Duration = Duration::from_secs(10);
/// How long after the last happening everything has to have come: two polls of every feed, and deliveries that are found missing, asked
/// for a second apart, and looked for again.
const QUIET_MAX: Duration = Duration::from_secs(20 * 60);
/// Happenings between two posts of deliveries.
const STRIDE: usize = 20;
/// How many of the poller's runs are killed.
const KILLS: usize = 4;
/// Longest time from the start of such a run until it is killed, in milliseconds.
const KILL_MS_MAX: usize = 1_500;
/// Most problems that are told.
const TOLD_MAX: usize = 20;
const REMEDY: &str = "look into target/forebay/three-nets-emulator.log";

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    happenings: usize,
    lost: BTreeSet<String>,
    doubled: BTreeSet<String>,
    misattributed: BTreeSet<String>,
    /// Events by the nets that saw them.
    seen_by: BTreeMap<String, usize>,
    runs: Runs,
    lasted: Duration,
    problems: Vec<String>,
}

impl Outcome {
    /// Whether everything is where it belongs, once, and by whom it was seen, though pollers were killed.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.runs.killed > 0 && self.lost.is_empty() && self.doubled.is_empty() && self.misattributed.is_empty()
    }

    /// What went wrong, for as many as are worth telling.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The last line.
    #[must_use]
    pub fn verdict(&self) -> String {
        format!(
            "happenings {} lost {} doubled {} misattributed {}",
            self.happenings,
            self.lost.len(),
            self.doubled.len(),
            self.misattributed.len()
        )
    }

    fn tell(&mut self, problem: String) {
        if self.problems.len() < TOLD_MAX {
            self.problems.push(problem);
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nets, events) in &self.seen_by {
            writeln!(f, "seen by {nets:<24} {events}")?;
        }
        writeln!(f, "{:<32} {}", "runs of the poller, besides", self.runs.started)?;
        writeln!(f, "{:<32} {}", "killed of them", self.runs.killed)?;
        writeln!(f, "{:<32} {} s", "longest of them", self.runs.longest.as_secs())?;
        write!(f, "{:<32} {} s", "lasted", self.lasted.as_secs())
    }
}

/// Runs of the poller that this program started.
#[derive(Clone, Copy, Debug, Default)]
struct Runs {
    started: usize,
    /// Those that it killed.
    killed: usize,
    longest: Duration,
}

/// What is going on.
struct Nets {
    trial: Trial,
    ledger: DynamoLedger,
    sqs: aws_sdk_sqs::Client,
    fake: Shared,
    runs: Mutex<Runs>,
}

/// Deploys a stack beside a fake GitHub, lets so much happen, and takes both down.
///
/// # Errors
/// What kept it from being played; that something was lost is an outcome.
pub async fn play(happenings: usize, seed: u64) -> Result<Ended<Outcome>, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(unserved)?;
    let base = format!("http://{}", listener.local_addr().map_err(unserved)?);
    let fake = github(&base).shared();
    let mut serving = JoinSet::new();
    let served = Arc::clone(&fake);
    serving.spawn(async move { serve(served, System, listener).await });
    let parameters = parameters(&base);
    let parameters: Vec<(&str, &str)> = parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
    run("three-nets", &parameters, async |trial| {
        let nets = Arc::new(Nets::new(trial, Arc::clone(&fake))?);
        let played = timeout(LONGEST, Box::pin(nets.play(happenings, seed))).await;
        played.map_err(|late| Error::because(format!("end within {} s", LONGEST.as_secs()), REMEDY, late))?
    })
    .await
}

fn unserved(error: std::io::Error) -> Error {
    Error::because("serve a fake GitHub on 127.0.0.1", "free a port", error)
}

fn github(base: &str) -> FakeGithub {
    let mut fake = FakeGithub::new(base, 1_000_000);
    fake.add_organization("acme");
    for (repository, _) in REPOSITORIES {
        fake.add_repository(repository);
    }
    fake
}

/// What differs from the local stack's parameters.
fn parameters(base: &str) -> Vec<(&'static str, String)> {
    let names = REPOSITORIES.map(|(repository, _)| repository).join(",");
    let routes = REPOSITORIES.map(|(repository, agent)| format!("{repository}={agent}"));
    vec![
        ("GithubApiUrl", base.to_owned()),
        ("PollRepositories", names.clone()),
        ("RecoverRepositories", names),
        ("RecoverSeconds", "60".to_owned()),
        ("RecoverAddress", "/api/intake/github".to_owned()),
        ("RecoverRequestsMax", "100".to_owned()),
        ("Routes", routes.join(",")),
    ]
}

impl Nets {
    fn new(trial: Trial, fake: Shared) -> Result<Self, Error> {
        for (repository, _) in REPOSITORIES {
            let target = HookTarget::Repository(repository.to_owned());
            lock(&fake).add_hook(&target, trial.webhook_url(), trial.webhook_secret());
        }
        let client = aws_sdk_dynamodb::Client::from_conf(table::config(trial.endpoint()).build());
        let sqs = table::sqs_config(trial.endpoint());
        Ok(Self {
            ledger: DynamoLedger::new(client, trial.table()?),
            sqs: aws_sdk_sqs::Client::from_conf(sqs.build()),
            fake,
            runs: Mutex::default(),
            trial,
        })
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn play(self: &Arc<Self>, happenings: usize, seed: u64) -> Result<Outcome, Error> {
        let began = Instant::now();
        let mut chance = Chance::new(seed);
        let mut outcome = Outcome {
            happenings,
            ..Outcome::default()
        };
        self.trial.note(format_args!(
            "let {happenings} things happen in {} repositories …",
            REPOSITORIES.len()
        ));
        let mut polling = JoinSet::new();
        let (nets, seeded) = (Arc::clone(self), chance.below(1 << 20));
        polling.spawn(async move { nets.keep_polling(seeded).await });
        let mut plan = Plan::new(happenings, &mut chance);
        for number in 0..happenings {
            plan.happen(number, &self.fake);
            if number % STRIDE == STRIDE - 1 {
                deliver(&self.fake, &System).await;
            }
        }
        deliver(&self.fake, &System).await;
        self.trial.note("wait for everything to come …");
        let end = Instant::now() + QUIET_MAX;
        let mut pending: Vec<&plan::Expected> = plan.expected.iter().collect();
        let mut looks = interval(LOOK);
        loop {
            looks.tick().await;
            if let Some(ended) = polling.try_join_next() {
                return Err(match ended {
                    Ok(Err(error)) => error,
                    Ok(Ok(never)) => match never {},
                    Err(error) => Error::because("poll", "report this as a bug", error),
                });
            }
            pending = self.still_missing(pending).await?;
            if pending.is_empty() || Instant::now() > end {
                break;
            }
            let waited_for = pending.iter().flat_map(|expected| &expected.seen_by);
            let mut nets: BTreeMap<Net, usize> = BTreeMap::new();
            for net in waited_for {
                *nets.entry(*net).or_default() += 1;
            }
            self.trial.note(format_args!(
                "{} have not all come, to be seen by {nets:?} …",
                pending.len()
            ));
        }
        outcome.runs = *self.runs();
        if outcome.runs.killed == 0 {
            outcome.tell("no run of the poller was killed: let more happen".to_owned());
        }
        polling.shutdown().await;
        self.trial.note("look into the ledger and the inboxes …");
        self.check(&plan, &mut outcome).await?;
        outcome.lasted = began.elapsed();
        Ok(outcome)
    }

    /// Starts the poller again and again, and kills some of its runs.
    async fn keep_polling(&self, seed: usize) -> Result<std::convert::Infallible, Error> {
        let mut chance = Chance::new(seed as u64);
        let killer = Killer::new(&self.trial)?;
        let mut ticks = interval(POLL);
        loop {
            ticks.tick().await;
            let Runs { started, killed, .. } = *self.runs();
            let is_shot = killed < KILLS && started % 2 == 1;
            let shoot = async {
                if is_shot {
                    let wait = u64::try_from(chance.below(KILL_MS_MAX)).unwrap_or(0);
                    pause(Duration::from_millis(wait)).await;
                    killer.poller(&mut chance).is_some()
                } else {
                    false
                }
            };
            let began = Instant::now();
            let (polled, shot) = tokio::join!(self.trial.poll(), shoot);
            // Whoever was killed, and whoever found another run under way, starts again.
            match polled? {
                Ran::Answered(_) | Ran::Died | Ran::Busy => {
                    let mut runs = self.runs();
                    runs.started += 1;
                    runs.killed += usize::from(shot);
                    runs.longest = runs.longest.max(began.elapsed());
                }
            }
        }
    }
}
