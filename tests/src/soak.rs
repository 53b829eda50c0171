//! A soak of the real thing: the deployed stack under a stream of deliveries while its functions are killed.
//!
//! Several senders post signed deliveries to the webhook's function URL, some of them twice. Meanwhile processes of the
//! webhook and of the reaper are killed with SIGKILL, wherever they stand. What got no 2xx is posted again later under its
//! GUID, as GitHub does when it is asked to. The reaper runs on its schedule, which the template allows no shorter than a
//! minute, and besides as often as a soak needs, by Lambda's own call. When nothing is left to do, the outcome is looked at
//! from outside: in the ledger, through its adapter, and in the inboxes, by taking everything out of them.
//!
//! The seed decides what is sent, when in the stream somebody is killed, and who of those that run; the machine decides how
//! far each is by then. So a seed repeats the work, not the run: for that there is the simulation.
//!
//! Counted as lost: a delivery that the ledger does not hold as it was sent, or whose event is not settled as delivered, or
//! is missing in an inbox. Counted as doubled: an event that is more than once in an inbox, has two deduplication ids there,
//! or was not to come there; and an event in the ledger that nobody sent. An owner that dies between its send and its
//! settlement makes the next one send again. A queue drops such a repeat by its deduplication id, within five minutes, here
//! as on AWS; the next owner comes after half a minute. So a doubled event is either a repeat under another deduplication
//! id, or one that came minutes late.

mod check;
mod plan;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay::trial::{Ended, Error, Ran, Trial, run};
use forebay_aws::clock::System;
use forebay_aws::dynamodb::DynamoLedger;
use forebay_core::ports::{DUE_SHARDS, DueQuery, Ledger as _, LedgerError, TimeAndChance as _};
use jiff::{SignedDuration, Timestamp};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, interval, timeout};

use crate::chance::Chance;
use crate::kill::{Killed, Killer};
use crate::table;
use check::Found;
use plan::Plan;

/// Deliveries under way at one time: fewer than the webhook's reserved concurrency, so that nothing is throttled.
const SENDERS: usize = 8;
/// How often one delivery is posted until it is given up. Each post is killed with a probability far below a half.
const POSTS_MAX: u32 = 30;
/// How long after its failure a delivery is posted again, in milliseconds: some come while the lease of the dead runs, some
/// when it is over and the reaper looks for the same event.
const REDELIVERED_AFTER_MS: std::ops::Range<i64> = 500..25_000;
/// How often waiting parts look whether their time has come.
const LOOK: Duration = Duration::from_millis(20);
/// How often the reaper is started besides its schedule.
const REAP: Duration = Duration::from_secs(1);
/// How often progress is told.
const TELL: Duration = Duration::from_secs(5);
/// One of so many kills is kept for a reaper that has something to do.
const REAPER_KILLS: usize = 10;
/// Longest time from the start of such a run until it is killed, in milliseconds.
const REAPER_KILL_MS_MAX: usize = 150;
/// How long a function to kill may take to appear. One starts with the next delivery.
const VICTIM: Duration = Duration::from_secs(60);
/// Longest time of all.
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// Rows that one look at what is due reads from a shard.
const DUE_ROWS: usize = 1_000;
/// Further ahead than any row is due.
const ANY_TIME: SignedDuration = SignedDuration::from_hours(24 * 30);
/// What to do where the stack does not answer.
const STACK_REMEDY: &str = "look into target/forebay/soak-emulator.log";

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Posts that are planned.
    pub deliveries: usize,
    /// Processes that are killed.
    pub kills: usize,
    /// What chance begins with.
    pub seed: u64,
}

/// What came of a soak.
#[derive(Clone, Debug)]
pub struct Outcome {
    counts: Counts,
    found: Found,
    planned: usize,
    lasted: Duration,
}

/// What has happened so far.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// Planned posts that have been begun.
    begun: usize,
    /// Answers by status; 0 where none came.
    answers: BTreeMap<u16, usize>,
    redeliveries: usize,
    /// Deliveries that were posted in vain as often as they may be.
    given_up: usize,
    webhooks_killed: usize,
    reapers_killed: usize,
    runs_answered: usize,
    runs_died: usize,
    runs_refused: usize,
    runs_unanswered: usize,
    /// Events that the answered runs say to have driven.
    redriven: u64,
    /// Events that were due at the last look.
    due: usize,
}

impl Counts {
    fn kills(&self) -> usize {
        self.webhooks_killed + self.reapers_killed
    }
}

/// A post that is still to be made.
#[derive(Clone, Copy, Debug)]
struct Post {
    delivery: usize,
    posts: u32,
    not_before: Instant,
}

/// What a sender does next.
enum Next {
    Post(Post),
    Wait,
    Stop,
}

/// Posts to be made, and how many are under way: one of those may come back.
#[derive(Debug)]
struct Posts {
    waiting: VecDeque<Post>,
    under_way: usize,
}

impl Posts {
    /// Whether nothing will be posted any more.
    fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.under_way == 0
    }
}

/// A soak under way.
struct Soak {
    options: Options,
    trial: Trial,
    ledger: DynamoLedger,
    sqs: aws_sdk_sqs::Client,
    killer: Killer,
    plan: Plan,
    posts: Mutex<Posts>,
    counts: Mutex<Counts>,
    chance: Mutex<Chance>,
}

/// Deploys a stack, plays the whole soak on it, and takes it down.
///
/// # Errors
/// What kept it from being played; that something was lost is an outcome.
pub async fn soak(options: Options) -> Result<Ended<Outcome>, Error> {
    run("soak", plan::PARAMETERS, async |trial| {
        let began = Instant::now();
        let soak = Arc::new(Soak::new(trial, options)?);
        let found = timeout(LONGEST, Box::pin(soak.play())).await;
        let found = found.map_err(|late| {
            let counts = soak.counts().clone();
            Error::because(
                format!("end within {} s: {counts:?}", LONGEST.as_secs()),
                STACK_REMEDY,
                late,
            )
        })?;
        Ok(Outcome {
            found: found?,
            counts: soak.counts().clone(),
            planned: options.deliveries,
            lasted: began.elapsed(),
        })
    })
    .await
}

/// The value of `mutex`. Whoever panicked with it has failed the soak already.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the ledger answered, or that it gave none.
fn answered<T>(answer: Result<T, LedgerError>) -> Result<T, Error> {
    answer.map_err(|error| Error::because("look into the ledger", STACK_REMEDY, error))
}

/// The value of a task that ended.
fn joined<T>(ended: Result<Result<T, Error>, tokio::task::JoinError>) -> Result<T, Error> {
    ended.unwrap_or_else(|error| Err(Error::because("finish a task", "report this as a bug", error)))
}

impl Soak {
    fn new(trial: Trial, options: Options) -> Result<Self, Error> {
        let mut chance = Chance::new(options.seed);
        let plan = Plan::new(options.deliveries, &mut chance)?;
        let client = aws_sdk_dynamodb::Client::from_conf(table::config(trial.endpoint()).build());
        let sqs = table::sqs_config(trial.endpoint());
        let now = Instant::now();
        let first = |delivery: &usize| Post {
            delivery: *delivery,
            posts: 0,
            not_before: now,
        };
        Ok(Self {
            options,
            ledger: DynamoLedger::new(client, trial.table()?),
            sqs: aws_sdk_sqs::Client::from_conf(sqs.build()),
            killer: Killer::new(&trial)?,
            posts: Mutex::new(Posts {
                waiting: plan.posts.iter().map(first).collect(),
                under_way: 0,
            }),
            trial,
            plan,
            counts: Mutex::default(),
            chance: Mutex::new(chance),
        })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        locked(&self.counts)
    }

    async fn play(self: &Arc<Self>) -> Result<Found, Error> {
        self.trial.note(format_args!(
            "post {} deliveries by {SENDERS} senders, and kill {} processes …",
            self.plan.posts.len(),
            self.options.kills
        ));
        let mut told = JoinSet::new();
        told.spawn(Arc::clone(self).tell());
        // The first error ends all of them: they end with their set.
        let mut parts = JoinSet::new();
        parts.spawn(Arc::clone(self).kill_beside_the_stream());
        parts.spawn(Arc::clone(self).reap_until_nothing_is_open());
        for _ in 0..SENDERS {
            parts.spawn(Arc::clone(self).send());
        }
        while let Some(ended) = parts.join_next().await {
            joined(ended)?;
        }
        told.shutdown().await;
        self.trial.note("look into the ledger and the inboxes …");
        check::check(self).await
    }

    /// What is to be posted next.
    fn next(&self) -> Next {
        let mut posts = locked(&self.posts);
        let now = Instant::now();
        // What comes again comes first: behind all the others it would never meet them.
        let ready = |post: &Post| post.not_before <= now;
        let again = posts.waiting.iter().position(|post| post.posts > 0 && ready(post));
        let ready = again.or_else(|| posts.waiting.iter().position(ready));
        match ready.and_then(|ready| posts.waiting.remove(ready)) {
            Some(post) => {
                posts.under_way += 1;
                Next::Post(post)
            }
            None if posts.is_over() => Next::Stop,
            None => Next::Wait,
        }
    }

    /// Posts until every delivery has been answered with a 2xx.
    async fn send(self: Arc<Self>) -> Result<(), Error> {
        let mut looks = interval(LOOK);
        loop {
            match self.next() {
                Next::Stop => return Ok(()),
                Next::Wait => drop(looks.tick().await),
                Next::Post(post) => self.post(post).await,
            }
        }
    }

    async fn post(&self, post: Post) {
        let delivery = &self.plan.deliveries[post.delivery];
        {
            let mut counts = self.counts();
            if post.posts == 0 {
                counts.begun += 1;
            } else {
                counts.redeliveries += 1;
            }
        }
        let guid = delivery.key.guid.as_str();
        let answer = self.trial.post(delivery.event_name, plan::HOOK, guid, &delivery.body);
        // No answer is what a sender at GitHub would see too: it comes again.
        let status = answer.await.unwrap_or(0);
        let mut posts = locked(&self.posts);
        let mut counts = self.counts();
        *counts.answers.entry(status).or_default() += 1;
        posts.under_way -= 1;
        if (200..300).contains(&status) {
            return;
        }
        if post.posts + 1 == POSTS_MAX {
            counts.given_up += 1;
            return;
        }
        let after_ms = locked(&self.chance).within(REDELIVERED_AFTER_MS);
        posts.waiting.push_back(Post {
            posts: post.posts + 1,
            not_before: Instant::now() + Duration::from_millis(after_ms.unsigned_abs()),
            ..post
        });
    }

    /// How many kills are kept for a reaper that has something to do.
    fn reaper_kills(&self) -> usize {
        self.options.kills / REAPER_KILLS
    }

    /// Kills whoever runs, each time when the stream has come to a place that chance has chosen.
    async fn kill_beside_the_stream(self: Arc<Self>) -> Result<(), Error> {
        let kills = self.options.kills - self.reaper_kills();
        let mut places: Vec<usize> = {
            let mut chance = locked(&self.chance);
            (0..kills)
                .map(|_| chance.below(self.plan.posts.len().max(1)) + 1)
                .collect()
        };
        places.sort_unstable();
        let mut looks = interval(LOOK);
        for place in places {
            while self.counts().begun < place {
                looks.tick().await;
            }
            self.kill(&mut looks, Killer::any).await?;
            // Not two in one instant, unless chance says so again.
            looks.tick().await;
        }
        Ok(())
    }

    /// Kills a process that `choose` chooses, as soon as there is one.
    async fn kill(
        &self,
        looks: &mut Interval,
        choose: impl Fn(&Killer, &mut Chance) -> Option<Killed>,
    ) -> Result<(), Error> {
        let end = Instant::now() + VICTIM;
        while Instant::now() < end {
            let killed = choose(&self.killer, &mut locked(&self.chance));
            let mut counts = self.counts();
            match killed {
                Some(Killed::Webhook) => counts.webhooks_killed += 1,
                Some(Killed::Reaper) => counts.reapers_killed += 1,
                // Nothing is polled here.
                Some(Killed::Poller) => {}
                None => {
                    drop(counts);
                    looks.tick().await;
                    continue;
                }
            }
            return Ok(());
        }
        Err(Error::new("find a function's process to kill", STACK_REMEDY))
    }

    /// Starts the reaper again and again until the stream is over and nothing is left to do, and kills it in some runs that
    /// have something to do.
    async fn reap_until_nothing_is_open(self: Arc<Self>) -> Result<(), Error> {
        let mut pace = interval(REAP);
        let mut kills_left = self.reaper_kills();
        loop {
            pace.tick().await;
            let now = System.now();
            let is_over = locked(&self.posts).is_over();
            let due = self.due(now).await?;
            self.counts().due = due;
            let any_time = now.saturating_add(ANY_TIME).unwrap_or(Timestamp::MAX);
            let nothing_open = is_over && self.due(any_time).await? == 0;
            if nothing_open && kills_left == 0 {
                return Ok(());
            }
            // An idle reaper is not worth a kill, as long as there may be one at work.
            if kills_left > 0 && (due > 0 || nothing_open) {
                kills_left -= 1;
                let ((), killed) = tokio::join!(self.reap(), self.kill_soon());
                killed?;
            } else {
                self.reap().await;
            }
        }
    }

    /// One run of the reaper.
    async fn reap(&self) {
        let run = self.trial.reap().await;
        let mut counts = self.counts();
        match run {
            // It may take longer than anybody waits for it. Whether it did its work is seen in the ledger.
            Err(_) => counts.runs_unanswered += 1,
            Ok(Ran::Answered(report)) => {
                counts.runs_answered += 1;
                counts.redriven += report.get("redriven").and_then(serde_json::Value::as_u64).unwrap_or(0);
            }
            Ok(Ran::Died) => counts.runs_died += 1,
            Ok(Ran::Busy) => counts.runs_refused += 1,
        }
    }

    /// Kills the reaper somewhere in the run that begins now.
    async fn kill_soon(&self) -> Result<(), Error> {
        let ms = locked(&self.chance).below(REAPER_KILL_MS_MAX);
        let end = Instant::now() + Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        let mut looks = interval(Duration::from_millis(1));
        while Instant::now() < end {
            looks.tick().await;
        }
        self.kill(&mut looks, Killer::reaper).await
    }

    /// How many events are due by `until`.
    async fn due(&self, until: Timestamp) -> Result<usize, Error> {
        let mut due = 0;
        for shard in 0..DUE_SHARDS {
            let mut query = DueQuery {
                shard,
                until,
                after: None,
                limit: DUE_ROWS,
            };
            loop {
                let page = answered(self.ledger.due(&query).await)?;
                due += page.events.len();
                if page.next.is_none() {
                    break;
                }
                query.after = page.next;
            }
        }
        Ok(due)
    }

    /// Says now and then how far the stream is.
    async fn tell(self: Arc<Self>) -> Result<(), Error> {
        let mut pace = interval(TELL);
        pace.tick().await;
        loop {
            pace.tick().await;
            let counts = self.counts().clone();
            self.trial.note(format_args!(
                "{} of {} posted, {} killed, {} posted again, {} events due",
                counts.begun,
                self.plan.posts.len(),
                counts.kills(),
                counts.redeliveries,
                counts.due
            ));
        }
    }
}

impl Outcome {
    /// Whether nothing was lost or doubled.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.found.lost() == 0 && self.found.doubled() == 0
    }

    /// What is wrong, as far as it is worth reading.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        self.found.problems()
    }

    /// The last word: how many posts there were, and what was lost and doubled.
    #[must_use]
    pub fn verdict(&self) -> String {
        format!(
            "deliveries {} lost {} doubled {}",
            self.planned,
            self.found.lost(),
            self.found.doubled()
        )
    }
}

impl fmt::Display for Outcome {
    /// A small table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            counts, found, lasted, ..
        } = self;
        let answers: Vec<String> = counts
            .answers
            .iter()
            .map(|(status, count)| match status {
                0 => format!("none {count}"),
                status => format!("{status} {count}"),
            })
            .collect();
        let kills = counts.kills();
        writeln!(f, "answers        {}", answers.join(" · "))?;
        writeln!(
            f,
            "redeliveries   {} (given up: {})",
            counts.redeliveries, counts.given_up
        )?;
        writeln!(
            f,
            "kills          {kills} (webhook {}, reaper {})",
            counts.webhooks_killed, counts.reapers_killed
        )?;
        writeln!(
            f,
            "reaper runs    {} answered, {} died, {} met another one, {} took too long; {} events driven again by the first",
            counts.runs_answered, counts.runs_died, counts.runs_refused, counts.runs_unanswered, counts.redriven
        )?;
        write!(f, "{found}")?;
        write!(
            f,
            "seconds        {:.0}, without bringing the stack up and down",
            lasted.as_secs_f64()
        )
    }
}
