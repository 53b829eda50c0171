//! The poller as a whole, on an embedded table: what it plans, what it asks for, and what it says of a run.

use std::sync::Arc;

use forebay_aws::config::PollerConfig;
use forebay_aws::dynamodb::DynamoLedger;
use forebay_aws::metrics::Metrics;
use forebay_aws::secrets::ReadError;
use forebay_core::api::{Answer, Api, ApiError, GithubAccess, Request};
use forebay_core::ports::{ErrorClass, TimeAndChance as _};
use forebay_core::shed::memory::MemoryTargets;
use forebay_core::source::SourceId;
use forebay_tests::fakes::{ManualTime, RecordingInboxes, Written};
use forebay_tests::github::{FakeGithub, HookTarget, Hooked, InProcess, Occasion, Outcome, Shared, What, lock};
use forebay_tests::polling::{BASE, ENDPOINT, Wire};
use forebay_tests::samples::secs;
use forebay_tests::table::Table;
use forebay_tests::webhook::{SECRET, environment, noon};
use poller::{Accesses, Poller, Report};

/// The way to the fake, with a token.
#[derive(Clone, Debug)]
struct Reach(Wire);

impl Api for Reach {
    async fn ask(&self, request: Request<'_>) -> Result<Answer, ApiError> {
        self.0.ask(request).await
    }
}

impl Accesses for Reach {
    async fn access(&self) -> Result<Arc<GithubAccess>, ReadError> {
        let document = r#"{"github": {"token": "token"}}"#;
        Ok(Arc::new(GithubAccess::parse(document).unwrap()))
    }
}

/// GitHub with `acme/app`, and what pollers share.
struct Stage {
    table: Table,
    fake: Shared,
    wire: Wire,
    time: ManualTime,
    inboxes: RecordingInboxes,
    metrics: Written,
    config: PollerConfig,
}

type Env = Poller<Reach, DynamoLedger, RecordingInboxes, MemoryTargets, ManualTime>;

impl Stage {
    async fn start(variables: &[(&str, &str)]) -> Self {
        let mut environment = environment();
        environment.insert("ROUTES".to_owned(), "acme/app=reviewer".to_owned());
        for (name, value) in variables {
            environment.insert((*name).to_owned(), (*value).to_owned());
        }
        let mut fake = FakeGithub::new(BASE, 0);
        fake.add_organization("acme");
        fake.add_repository("acme/app");
        let (fake, time) = (fake.shared(), ManualTime::at(noon()));
        let api = InProcess {
            fake: Arc::clone(&fake),
            time: time.clone(),
        };
        Self {
            table: Table::start().await,
            fake,
            wire: Wire::to(api),
            time,
            inboxes: RecordingInboxes::default(),
            metrics: Written::default(),
            config: PollerConfig::read(environment).unwrap(),
        }
    }

    /// A new environment, which knows nothing yet.
    fn environment(&self) -> Env {
        Poller::on(
            self.config.clone(),
            Reach(self.wire.clone()),
            self.table.ledger(),
            self.inboxes.clone(),
            MemoryTargets::new(),
            self.time.clone(),
            Metrics::to("Forebay", Box::new(self.metrics.clone())),
        )
    }

    async fn run(&self, poller: &Env) -> Report {
        Box::pin(poller.run(self.time.now() + secs(50))).await.unwrap()
    }

    fn happen(&self, what: What, hooked: Hooked) {
        let occasion = Occasion::of("acme/app", what).hooked(hooked);
        lock(&self.fake).happen(&occasion, self.time.now()).unwrap();
    }
}

#[tokio::test]
async fn a_run_says_what_it_did_and_leaves_no_payload_behind() {
    // S3-22, S3-17
    let stage = Stage::start(&[("POLL_REPOSITORIES", "routes"), ("RECOVER_REPOSITORIES", "acme/app")]).await;
    lock(&stage.fake).add_hook(&HookTarget::Repository("acme/app".to_owned()), ENDPOINT, SECRET);
    stage.happen(What::pull_request("fix"), Hooked::Silent);
    stage.happen(What::comment(1, "confidential"), Hooked::Lost(Outcome::unreachable()));
    stage.happen(What::run("fix", "failure"), Hooked::Silent);
    let poller = stage.environment();
    let first = stage.run(&poller).await;
    let expected = Report {
        sources: 3,
        polls: 3,
        requests: 4,
        accepted: 3,
        delivered: 3,
        ..Report::default()
    };
    assert_eq!(first, expected);
    stage.time.pass(secs(301));
    let second = stage.run(&poller).await;
    let expected = Report {
        sources: 3,
        polls: 3,
        requests: 5,
        not_modified: 2,
        missing: 1,
        redeliveries: 1,
        ..Report::default()
    };
    assert_eq!(second, expected);
    lock(&stage.fake).leave("token", 0, stage.time.now() + secs(600));
    stage.time.pass(secs(61));
    let limited = stage.run(&poller).await;
    assert_eq!((limited.polls, limited.rate_limited, limited.accepted), (1, 1, 0));
    let until = stage.time.now() + secs(540);
    assert_eq!(limited.backoff_until, Some(until.to_string()));
    let text = stage.metrics.text();
    assert!(!text.contains("confidential") && text.lines().count() >= 3);
    // S3-25: an event counts by its kind, whichever net caught it first.
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut kinds: Vec<_> = lines
        .filter_map(|line| Some(line["Kind"].as_str()?.to_owned()))
        .collect();
    kinds.sort();
    assert_eq!(kinds, ["check_failure", "comment", "pull_request_opened"]);
    assert!(!serde_json::to_string(&limited).unwrap().contains("confidential"));
}

#[tokio::test]
async fn repositories_of_an_owner_are_not_listed_while_its_credential_rests() {
    // RATE-01
    let stage = Stage::start(&[("POLL_REPOSITORIES", "acme/*")]).await;
    let poller = stage.environment();
    assert_eq!(stage.run(&poller).await.polls, 2);
    lock(&stage.fake).leave("token", 0, stage.time.now() + secs(600));
    stage.time.pass(secs(61));
    assert!(stage.run(&poller).await.rate_limited > 0);
    let before = lock(&stage.fake).requests().len();
    for _ in 0..8 {
        stage.time.pass(secs(60));
        // Each in an environment that has to list them first.
        stage.run(&stage.environment()).await;
    }
    assert_eq!(lock(&stage.fake).requests().len(), before);
    stage.time.pass(secs(70));
    let report = stage.run(&stage.environment()).await;
    assert_eq!((report.polls, report.rate_limited), (2, 0));
}

#[tokio::test]
async fn a_listing_that_met_a_limit_rests_its_credential() {
    // RATE-01
    let stage = Stage::start(&[("POLL_REPOSITORIES", "acme/*")]).await;
    lock(&stage.fake).leave("token", 0, stage.time.now() + secs(600));
    stage.run(&stage.environment()).await;
    assert_eq!(lock(&stage.fake).requests().len(), 1);
    stage.time.pass(secs(400));
    stage.run(&stage.environment()).await;
    assert_eq!(lock(&stage.fake).requests().len(), 1);
    stage.time.pass(secs(205));
    assert_eq!(stage.run(&stage.environment()).await.polls, 2);
}

#[tokio::test]
async fn a_listing_that_fails_in_a_new_environment_puts_no_source_off() {
    // FEED-14, S3-27
    let stage = Stage::start(&[("POLL_REPOSITORIES", "acme/*,solo/app")]).await;
    lock(&stage.fake).add_repository("solo/app");
    assert_eq!(stage.run(&stage.environment()).await.polls, 4);
    stage.time.pass(secs(120));
    stage.wire.cut("/orgs/acme/repos", 1, ErrorClass::ServerFault);
    assert_eq!(stage.run(&stage.environment()).await.polls, 2);
    stage.time.pass(secs(1));
    assert_eq!(stage.run(&stage.environment()).await.polls, 2, "they are still due");
    // What is configured no more is put off, and looked at now and then.
    stage.time.pass(secs(120));
    let other = Stage {
        config: Stage::start(&[("POLL_REPOSITORIES", "acme/none")]).await.config,
        ..stage
    };
    other.run(&other.environment()).await;
    let known = ["github.com/events/acme/app", "github.com/runs/acme/app"].map(SourceId::new);
    let states = other.table.ledger().source_states(&known).await.unwrap();
    assert_eq!(states.len(), 2);
    for (source, state) in states {
        assert_eq!(state.due_at, other.time.now() + secs(900), "{source}");
    }
}
