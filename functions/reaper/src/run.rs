//! One run: find what is due, drive so many at a time, stop before the deadline.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_aws::config::{LEASED_SECONDS_MAX, REAPER_SECONDS_MAX, ReaperConfig};
use forebay_aws::dynamodb::DynamoLedger;
use forebay_aws::metrics::{Metrics, Reaped as RunReaped, Record, system_time};
use forebay_aws::shedder::ShedInboxes;
use forebay_core::drive::Driver;
use forebay_core::ledger::{Limits, Nonce};
use forebay_core::ports::{Due, ErrorClass, Inboxes, Ledger, LedgerError, Raised, TimeAndChance};
use forebay_core::reap::{ReapLimits, Reaped, Sweep, Tally};
use forebay_core::route::Routing;
use jiff::{SignedDuration, Timestamp};
use tokio::task::{Id, JoinError, JoinSet};

use crate::report::Report;

/// Longest time that one event is worked on. Its lease outlives that.
pub const DRIVE_TIME_MAX: Duration = Duration::from_secs(LEASED_SECONDS_MAX.cast_unsigned());
/// Longest time that what is left is counted.
const COUNT_TIME_MAX: Duration = Duration::from_secs(4);
/// No event is started with less time than this: its drive, the counting of what is left, and a second for the report.
pub const STOP_MARGIN: SignedDuration =
    SignedDuration::from_secs(LEASED_SECONDS_MAX + COUNT_TIME_MAX.as_secs().cast_signed() + 1);
const _: () = assert!(
    STOP_MARGIN.as_secs() * 2 < REAPER_SECONDS_MAX,
    "most of a run is for driving"
);
/// Most rows that are counted of what is left.
const LEFT_ROWS_MAX: usize = 10_000;

/// The reaper: ports and configuration.
#[derive(Debug)]
pub struct Reaper<L = DynamoLedger, I = ShedInboxes, T = forebay_aws::clock::System> {
    parts: Arc<Parts<L, I, T>>,
    reap: ReapLimits,
    metrics: Metrics,
}

/// What every drive needs. Each is a task of its own, so that one that panics takes no other along.
#[derive(Debug)]
struct Parts<L, I, T> {
    ledger: L,
    inboxes: I,
    time: T,
    routing: Routing,
    limits: Limits,
}

/// Drives under way.
#[derive(Default)]
struct UnderWay {
    drives: JoinSet<Reaped>,
    /// What each of them is about, for those that do not come back.
    about: HashMap<Id, (Due, Nonce)>,
}

impl<L: Ledger + 'static, I: Inboxes + 'static, T: TimeAndChance + 'static> Reaper<L, I, T> {
    /// The reaper on these ports.
    #[must_use]
    pub fn new(config: &ReaperConfig, ledger: L, inboxes: I, time: T, metrics: Metrics) -> Self {
        Self {
            parts: Arc::new(Parts {
                ledger,
                inboxes,
                time,
                routing: config.routing.clone(),
                limits: config.limits,
            }),
            reap: config.reap,
            metrics,
        }
    }

    /// Its ledger.
    #[must_use]
    pub fn ledger(&self) -> &L {
        &self.parts.ledger
    }

    /// One run, over before `deadline`. Never fails: what goes wrong is counted.
    pub async fn run(&self, deadline: Timestamp) -> Report {
        let began = self.parts.time.now();
        // A deadline further away than the function's own timeout is none that anybody keeps.
        let longest = began.saturating_add(SignedDuration::from_secs(REAPER_SECONDS_MAX));
        let deadline = deadline.min(longest.unwrap_or(Timestamp::MAX));
        let last_start = deadline.saturating_sub(STOP_MARGIN).unwrap_or(Timestamp::MIN);
        let mut sweep = Sweep::new(&self.parts.ledger, began, self.reap.page_rows);
        let tally = self.drive_all(&mut sweep, last_start).await;
        // What was not counted in time is said to be not all.
        let counted = tokio::time::timeout(COUNT_TIME_MAX, sweep.count_left(LEFT_ROWS_MAX)).await;
        if counted.is_err() {
            tracing::warn!("count what is left: out of time");
        }
        for trouble in sweep.troubles() {
            tracing::error!(error = %trouble.cause(), "{trouble}; its events wait for the next run");
        }
        let report = Report::of(&tally, sweep.left(), sweep.troubles().len(), sweep.oldest(), began);
        self.tell(&report, began);
        report
    }

    /// Drives what `sweep` finds, a bounded number at a time, and starts none after `last_start`.
    async fn drive_all(&self, sweep: &mut Sweep<'_, L>, last_start: Timestamp) -> Tally {
        let mut tally = Tally::default();
        let mut under_way = UnderWay::default();
        let mut found_all = false;
        loop {
            while !found_all && under_way.drives.len() < self.reap.concurrency {
                let taken = usize::try_from(tally.redriven).unwrap_or(usize::MAX);
                let full = taken.saturating_add(under_way.drives.len()) >= self.reap.events_max;
                if full && under_way.drives.is_empty() || self.parts.time.now() > last_start {
                    found_all = true;
                } else if full {
                    break;
                } else if let Some(due) = sweep.next().await {
                    self.start(&mut under_way, due);
                } else {
                    found_all = true;
                }
            }
            match under_way.drives.join_next_with_id().await {
                None => return tally,
                Some(ended) => tally.add(&self.ended(&mut under_way, ended).await),
            }
        }
    }

    fn start(&self, under_way: &mut UnderWay, due: Due) {
        let nonce = Nonce::from_random(self.parts.time.random());
        let (parts, about) = (Arc::clone(&self.parts), due.clone());
        let drive = under_way.drives.spawn(async move { parts.drive(&due, nonce).await });
        under_way.about.insert(drive.id(), (about, nonce));
    }

    async fn ended(&self, under_way: &mut UnderWay, ended: Result<(Id, Reaped), JoinError>) -> Reaped {
        let (id, reaped) = match ended {
            Ok((id, reaped)) => (id, Some(reaped)),
            Err(panicked) => (panicked.id(), None),
        };
        let about = under_way.about.remove(&id);
        match (reaped, about) {
            (Some(reaped), Some((due, _))) => {
                log(&due, &reaped);
                reaped
            }
            (Some(reaped), None) => reaped,
            (None, Some((due, nonce))) => {
                let error = failed("drive event", &due, ErrorClass::Invalid);
                let reaped = match self.parts.driver().raise(&due, nonce).await {
                    Ok(raised) => Reaped::Poison { raised, error },
                    Err(trouble) => Reaped::Troubled(trouble),
                };
                log(&due, &reaped);
                reaped
            }
            (None, None) => Reaped::Troubled(LedgerError {
                attempted: "drive event",
                on: "unknown".to_owned(),
                class: ErrorClass::Invalid,
                source: None,
            }),
        }
    }

    fn tell(&self, report: &Report, began: Timestamp) {
        let duration_ms = self.parts.time.now().duration_since(began).as_millis();
        let duration_ms = u64::try_from(duration_ms).unwrap_or(0);
        tracing::info!(
            redriven = report.redriven,
            poison = report.poison,
            newer = report.newer,
            permanent = report.permanent,
            troubled = report.troubled,
            backlog = report.backlog,
            oldest_due_seconds = report.oldest_due_seconds,
            duration_ms,
            "reap what is due"
        );
        self.metrics.emit(Record::Reaped(RunReaped {
            timestamp: system_time(began),
            redriven: report.redriven,
            skipped: report.poison.saturating_add(report.newer),
            permanent: report.permanent,
            parked: report.parked,
            backlog: report.backlog,
            oldest_due_seconds: report.oldest_due_seconds,
            duration_ms,
        }));
    }
}

impl<L: Ledger, I: Inboxes, T: TimeAndChance> Parts<L, I, T> {
    fn driver(&self) -> Driver<'_, L, I, T> {
        Driver {
            ledger: &self.ledger,
            inboxes: &self.inboxes,
            time: &self.time,
            routing: &self.routing,
            limits: &self.limits,
        }
    }

    async fn drive(&self, due: &Due, nonce: Nonce) -> Reaped {
        let driver = self.driver();
        // Boxed: the futures of all the calls in a row are too deep a type for the compiler.
        let drive = Box::pin(driver.reap(due, nonce));
        match tokio::time::timeout(DRIVE_TIME_MAX, drive).await {
            Ok(reaped) => reaped,
            // Every call in it has a shorter time-out, so that this is never one event's own fault.
            Err(_elapsed) => Reaped::Troubled(failed("drive event", due, ErrorClass::TimedOut)),
        }
    }
}

fn failed(attempted: &'static str, due: &Due, class: ErrorClass) -> LedgerError {
    LedgerError {
        attempted,
        on: due.event.to_string(),
        class,
        source: None,
    }
}

/// One line for what did not go well. What did is counted.
fn log(due: &Due, reaped: &Reaped) {
    let id = &due.event;
    match reaped {
        Reaped::Driven { .. } | Reaped::LeftAlone(_) => {}
        Reaped::Newer(format) => {
            tracing::warn!(event.id = %id, "skip event {id}: its row has format {format}, which is newer than this version knows");
        }
        Reaped::Poison { raised, error } => match raised {
            Raised::Ended => {
                tracing::error!(event.id = %id, error = %error.cause(), "{error}; it has failed permanently");
            }
            Raised::Later => {
                tracing::warn!(event.id = %id, error = %error.cause(), "{error}; it is counted as a failure and due again later");
            }
            Raised::Lost(refused) => {
                tracing::warn!(event.id = %id, error = %error.cause(), "{error}; it is left alone: {refused}");
            }
        },
        Reaped::Troubled(error) => {
            tracing::warn!(event.id = %id, error = %error.cause(), "{error}; it is due again later");
        }
    }
}
