//! Rounds of the poller on the embedded table: a fake GitHub, and the core's own pieces between the two, under one clock.

use std::fmt;
use std::sync::Arc;

use forebay_aws::config::Config;
use forebay_aws::dynamodb::{DynamoLedger, DynamoTargets};
use forebay_core::api::{Credential, Limits, Right};
use forebay_core::drive::Driver;
use forebay_core::event::{Net, Repository};
use forebay_core::ingest::{IngestTally, Ingestor, LedgerWriter, Sources};
use forebay_core::ports::TimeAndChance as _;
use forebay_core::schedule::{Ended, LedgerScheduler, ScheduleConfig, Scheduled, Scheduler as _, SourceStore as _};
use forebay_core::shed::Shedder;
use forebay_core::source::github::{Feed, FeedConfig, FeedKind};
use forebay_core::source::{Placement, Poll, Polled, Source as _, SourceId};
use forebay_core::target::TargetKey;
use jiff::{SignedDuration, Timestamp};

use crate::counting::Counter;
use crate::fakes::{ManualTime, RecordingInboxes};
use crate::github::{FakeGithub, Hooked, InProcess, Occasion, Shared, What, lock};
use crate::table::{TABLE, Table};
use crate::webhook::{environment, noon};

/// The poller's own spans: a lease outlives its longest poll.
const SCHEDULE: ScheduleConfig = ScheduleConfig {
    lease: SignedDuration::from_secs(50),
    skew: SignedDuration::from_secs(5),
};
/// Longest time of one poll.
const POLL_TIME_MAX: SignedDuration = SignedDuration::from_secs(25);
/// What a source is left alone for between two polls.
const INTERVAL: SignedDuration = SignedDuration::from_secs(60);

/// The events of `acme/app`, and what polls them.
pub struct Rounds {
    /// GitHub. Pull request 1 is open, and nothing tells of it.
    pub fake: Shared,
    /// The clock.
    pub time: ManualTime,
    /// What gets the comments on pull requests.
    pub inboxes: RecordingInboxes,
    ledger: DynamoLedger,
    shedder: Shedder<DynamoTargets, ManualTime>,
    config: Config,
    sources: Sources,
}

impl fmt::Debug for Rounds {
    /// What is polled.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sources.keys()).finish()
    }
}

/// The right that everything is polled with.
fn credential() -> Credential {
    Credential {
        right: Right::Token,
        target: TargetKey::labeled_principal("api.github.com", "token", "github"),
    }
}

impl Rounds {
    /// A feed that has a row and has not been polled yet, on the table of `ledger` and `targets`.
    ///
    /// # Panics
    /// Where the embedded table fails.
    pub async fn start(ledger: DynamoLedger, targets: DynamoTargets) -> Self {
        let mut environment = environment();
        environment.insert("ROUTES".to_owned(), "acme/app=reviewer".to_owned());
        let config = Config::read(environment).expect("a usable environment");
        let time = ManualTime::at(noon());
        let mut fake = FakeGithub::new("https://api.github.com", 0);
        fake.add_repository("acme/app");
        let silent = Occasion::of("acme/app", What::pull_request("fix"))
            .hooked(Hooked::Silent)
            .shown_after(None);
        fake.happen(&silent, time.now() - INTERVAL)
            .expect("a repository takes a pull request");
        let fake = fake.shared();
        let api = InProcess {
            fake: Arc::clone(&fake),
            time: time.clone(),
        };
        let feed = FeedConfig {
            host: None,
            interval: INTERVAL,
            read_all_every: SignedDuration::from_hours(24 * 365),
            backlog: SignedDuration::from_hours(24),
            limits: Limits::default(),
        };
        let repository = Repository::new("acme/app").expect("an owner and a name");
        let feed = Feed::new(
            Arc::new(api),
            FeedKind::Events,
            repository,
            credential(),
            Arc::new(feed),
        );
        let rounds = Self {
            fake,
            shedder: Shedder::new(targets, time.clone(), config.shedder),
            time,
            inboxes: RecordingInboxes::default(),
            ledger,
            config,
            sources: Sources::from([(feed.id().clone(), Box::new(feed) as Box<_>)]),
        };
        let registered = rounds.scheduler().register().await;
        assert_eq!(registered.expect("the embedded table answers"), 1);
        rounds
    }

    /// A scheduler, as every run makes one.
    fn scheduler(&self) -> LedgerScheduler<DynamoLedger, ManualTime> {
        let scheduled = self.sources.values().map(|source| Scheduled::of(source.as_ref()));
        LedgerScheduler::new(self.ledger.clone(), self.time.clone(), SCHEDULE, scheduled)
    }

    /// Somebody comments on the pull request, and no webhook tells of it.
    ///
    /// # Panics
    /// Never: it is open.
    pub fn comment(&self, text: &str) {
        let silent = Occasion::of("acme/app", What::comment(1, text)).hooked(Hooked::Silent);
        let commented = lock(&self.fake).happen(&silent, self.time.now());
        commented.expect("an open pull request takes comments");
    }

    /// Lets the interval pass, and polls what is due.
    pub async fn round(&self) -> IngestTally {
        self.time.pass(INTERVAL + SignedDuration::from_secs(1));
        let deadline = self.time.now() + POLL_TIME_MAX;
        let driver = Driver {
            ledger: &self.ledger,
            inboxes: &self.inboxes,
            time: &self.time,
            routing: &self.config.routing,
            limits: &self.config.limits,
        };
        let ingestor = Ingestor {
            scheduler: &self.scheduler(),
            shedder: &self.shedder,
            writer: &LedgerWriter::new(driver, Net::Feed, deadline),
            time: &self.time,
            concurrency: 1,
            poll_time_max: POLL_TIME_MAX,
        };
        Box::pin(ingestor.run(&self.sources, self.time.now(), deadline)).await
    }
}

/// What one round of the scheduler took, from what is due to the last source given back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundReads {
    /// Sources that it handed out.
    pub held: u64,
    /// Its calls of the ledger, writes included.
    pub calls: usize,
    /// Read units of these calls.
    pub read_units: f64,
    /// Their write units, with indexes.
    pub write_units: f64,
}

/// What two rounds took among `others` sources that are not due: one that finds three due ones, and an idle one after it.
///
/// # Panics
/// Where the embedded database fails.
pub async fn rounds_beside(others: usize) -> [RoundReads; 2] {
    let table = Table::start().await;
    let counter = Counter::default();
    let client = table.config().interceptor(counter.clone()).build();
    let ledger = DynamoLedger::new(aws_sdk_dynamodb::Client::from_conf(client), TABLE);
    let time = ManualTime::at(noon());
    let names = |kind: &'static str, count: usize| {
        (0..count).map(move |number| SourceId::new(&format!("github.com/events/acme/{kind}{number}")))
    };
    for (ids, due_at) in [
        (names("due", 3), time.now()),
        (names("later", others), time.now() + SignedDuration::from_hours(24)),
    ] {
        let rows: Vec<_> = ids.map(|id| (id, INTERVAL)).collect();
        let registered = ledger.register_sources(&rows, due_at).await;
        registered.expect("the embedded table answers");
    }
    let scheduled = names("due", 3).chain(names("later", others)).map(|id| Scheduled {
        id,
        placement: Placement::Scheduled,
        target: credential().target,
        interval: INTERVAL,
    });
    let scheduled: Vec<_> = scheduled.collect();
    drop(counter.take());
    let round = async || {
        let scheduler = LedgerScheduler::new(ledger.clone(), time.clone(), SCHEDULE, scheduled.clone());
        let mut held = 0;
        while let Some(source) = scheduler
            .next(Timestamp::MAX)
            .await
            .expect("the embedded table answers")
        {
            held += 1;
            let unchanged = Ok(Poll::from(Polled::Empty));
            let returned = scheduler.give_back(source, Ended::Polled(&unchanged)).await;
            returned.expect("the embedded table answers");
        }
        let counts = counter.take();
        RoundReads {
            held,
            calls: counts.calls,
            read_units: counts.read_units,
            write_units: counts.write_units + counts.refused_units,
        }
    };
    [round().await, round().await]
}
