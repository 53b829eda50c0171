//! The poller as a whole, on an embedded table: what it plans, what it asks for, and what it says of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::query::QueryInput;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::BeforeSerializationInterceptorContextRef;
use aws_smithy_runtime_api::client::interceptors::{Intercept, dyn_dispatch_hint};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;
use forebay_aws::config::PollerConfig;
use forebay_aws::dynamodb::DynamoLedger;
use forebay_aws::metrics::Metrics;
use forebay_aws::secrets::ReadError;
use forebay_core::api::{Answer, Api, ApiError, GithubAccess, Request};
use forebay_core::ports::{ErrorClass, TimeAndChance as _};
use forebay_core::shed::memory::MemoryTargets;
use forebay_core::source::SourceId;
use forebay_core::source::github::MissingStore as _;
use forebay_tests::fakes::{ManualTime, RecordingInboxes, Written};
use forebay_tests::github::{FakeGithub, HookTarget, Hooked, InProcess, Occasion, Outcome, Shared, What, lock};
use forebay_tests::polling::{BASE, ENDPOINT, Wire, deliver};
use forebay_tests::samples::secs;
use forebay_tests::table::{TABLE, Table};
use forebay_tests::webhook::{SECRET, Stand, environment, noon};
use poller::{Accesses, Poller, Report};

/// Counts the queries of a client, and refuses one of them.
#[derive(Clone, Debug, Default)]
struct Queries {
    seen: Arc<AtomicUsize>,
    refused: Option<usize>,
}

#[dyn_dispatch_hint]
impl Intercept for Queries {
    fn name(&self) -> &'static str {
        "Queries"
    }

    fn read_before_serialization(
        &self,
        context: &BeforeSerializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if context.input().downcast_ref::<QueryInput>().is_none() {
            return Ok(());
        }
        let number = self.seen.fetch_add(1, Ordering::SeqCst);
        if self.refused == Some(number) {
            return Err("refused by the test".into());
        }
        Ok(())
    }
}

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
        self.environment_on(self.table.ledger())
    }

    fn environment_on(&self, ledger: DynamoLedger) -> Env {
        Poller::on(
            self.config.clone(),
            Reach(self.wire.clone()),
            ledger,
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

/// The sum of the metric `name` over `lines`, those of one net or all.
fn sum(lines: &[serde_json::Value], name: &str, net: Option<&str>) -> i64 {
    let lines = lines.iter().filter(|line| net.is_none_or(|net| line["Net"] == net));
    let values = lines.filter_map(|line| line[name].as_f64());
    // Counts are whole numbers, however they are spelt.
    values.map(|value| format!("{value:.0}").parse::<i64>().unwrap()).sum()
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

/// A stage on which one delivery is lost and one comment is told of by the feed alone, after a run whose query number `refused`
/// is refused; and how many queries the run made.
async fn after_a_run_that_loses(refused: Option<usize>) -> (Stage, usize) {
    let stage = Stage::start(&[("POLL_REPOSITORIES", "routes"), ("RECOVER_REPOSITORIES", "acme/app")]).await;
    lock(&stage.fake).add_hook(&HookTarget::Repository("acme/app".to_owned()), ENDPOINT, SECRET);
    stage.happen(What::pull_request("fix"), Hooked::Silent);
    stage.happen(What::comment(1, "too much"), Hooked::Lost(Outcome::answered(413)));
    stage.time.pass(secs(300));
    let queries = Queries {
        refused,
        ..Queries::default()
    };
    let config = stage.table.config().interceptor(queries.clone()).build();
    let poller = stage.environment_on(DynamoLedger::new(Client::from_conf(config), TABLE));
    // What it answers is not what counts here.
    drop(Box::pin(poller.run(stage.time.now() + secs(50))).await);
    (stage, queries.seen.load(Ordering::SeqCst))
}

#[tokio::test]
async fn what_a_run_did_is_told_also_where_its_last_look_into_the_ledger_fails() {
    // A delivery is counted as lost once in all time: whoever does not tell it then never does, and no alarm goes off.
    let (stage, queries) = after_a_run_that_loses(None).await;
    assert_eq!(sum(&stage.metrics.lines(), "PollerLost", None), 1);
    assert_eq!(sum(&stage.metrics.lines(), "SeenOnlyBy", Some("feed")), 2);
    for refused in 0..queries {
        let (stage, _) = after_a_run_that_loses(Some(refused)).await;
        let lost = stage.table.ledger().lost(noon(), 10).await.unwrap().len();
        let told = sum(&stage.metrics.lines(), "PollerLost", None);
        assert_eq!(told, i64::try_from(lost).unwrap(), "query {refused}");
    }
}

#[tokio::test]
async fn the_metric_of_what_webhooks_lost_sums_up_to_what_they_lost() {
    // S3-25
    let stage = Stage::start(&[("POLL_REPOSITORIES", "routes"), ("RECOVER_REPOSITORIES", "acme/app")]).await;
    lock(&stage.fake).add_hook(&HookTarget::Repository("acme/app".to_owned()), ENDPOINT, SECRET);
    let webhook = Stand::start(&stage.table).await;
    let poller = stage.environment();
    let push = || What::Push {
        branch: "main".to_owned(),
    };
    stage.happen(What::pull_request("fix"), Hooked::Delivered);
    stage.happen(What::comment(1, "told by both"), Hooked::Delivered);
    stage.happen(What::comment(1, "told by the feed"), Hooked::Silent);
    stage.happen(
        What::comment(1, "shown, and lost"),
        Hooked::Lost(Outcome::unreachable()),
    );
    stage.happen(push(), Hooked::Delivered);
    stage.happen(push(), Hooked::Lost(Outcome::unreachable()));
    // The feed is first with what the webhook is yet to bring.
    stage.run(&poller).await;
    deliver(&stage.fake, &webhook).await;
    for _ in 0..2 {
        for time in [&stage.time, &webhook.time] {
            time.pass(secs(301));
        }
        stage.run(&poller).await;
        deliver(&stage.fake, &webhook).await;
    }
    let told = |net| {
        let lines = [stage.metrics.lines(), webhook.metrics.lines()].concat();
        sum(&lines, "SeenOnlyBy", Some(net))
    };
    // What the feed showed and GitHub delivered again when it was asked to is recovery's in the end: three are lost, and no more.
    assert_eq!((told("feed"), told("recovery")), (1, 2));
    assert_eq!(sum(&stage.metrics.lines(), "PollerRecovered", None), 2);
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
async fn a_listing_at_a_limit_that_names_no_wait_waits_twice_as_long_the_next_time() {
    // RATE-01
    let stage = Stage::start(&[("POLL_REPOSITORIES", "acme/*")]).await;
    stage.wire.bend("/orgs/acme/repos", 9, |_| {
        Ok(Answer {
            status: 403,
            body: br#"{"message": "You have exceeded a secondary rate limit"}"#.to_vec(),
            ..Answer::default()
        })
    });
    for (passed, asked) in [(0, 1), (61, 2), (61, 2), (60, 3)] {
        stage.time.pass(secs(passed));
        stage.run(&stage.environment()).await;
        assert_eq!(lock(&stage.fake).requests().len(), asked, "{passed} s later");
    }
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

/// Nobody has any repository.
fn nothing(answer: Answer) -> Result<Answer, ErrorClass> {
    let body = b"[]".to_vec();
    Ok(Answer { body, ..answer })
}

#[tokio::test]
async fn an_owner_that_has_nothing_any_more_is_believed_the_second_time() {
    // FEED-14, S3-27
    let stage = Stage::start(&[("POLL_REPOSITORIES", "acme/*")]).await;
    assert_eq!(stage.run(&stage.environment()).await.polls, 2);
    stage.time.pass(secs(120));
    // An environment that knows of nothing takes no source's turn away for it, and lists again soon.
    stage.wire.bend("/orgs/acme/repos", 1, nothing);
    let poller = stage.environment();
    assert_eq!(stage.run(&poller).await.polls, 0);
    stage.time.pass(secs(301));
    assert_eq!(stage.run(&poller).await.polls, 2);
    // One that knows better polls what it knew.
    stage.wire.bend("/orgs/acme/repos", 1, nothing);
    stage.time.pass(secs(3_601));
    assert_eq!(stage.run(&poller).await.polls, 2, "as before");
    stage.time.pass(secs(301));
    assert_eq!(stage.run(&poller).await.polls, 2, "they were there all the time");
    stage.wire.bend("/orgs/acme/repos", 2, nothing);
    stage.time.pass(secs(3_601));
    assert_eq!(stage.run(&poller).await.polls, 2, "as before");
    stage.time.pass(secs(301));
    let report = stage.run(&poller).await;
    assert_eq!((report.sources, report.polls), (0, 0), "twice in a row");
}

#[tokio::test]
async fn an_odd_entry_in_the_list_of_an_owners_repositories_spoils_none_of_the_others() {
    let odd = serde_json::json!([
        { "full_name": null, "archived": false },
        "acme/text",
        { "full_name": "acme/app/more" },
        { "full_name": "acme/old", "archived": true },
        { "full_name": "acme/app", "archived": null },
    ]);
    let only_odd = serde_json::json!([{ "name": "app" }, 7]);
    for (first, second, sources) in [
        (odd, None, 2),
        (serde_json::json!([{ "full_name": "acme/app" }]), Some(&only_odd), 2),
        // Another form, rather than an owner that has nothing.
        (only_odd.clone(), None, 0),
    ] {
        let stage = Stage::start(&[("POLL_REPOSITORIES", "acme/*")]).await;
        if let Some(second) = second {
            let body = second.to_string().into_bytes();
            stage
                .wire
                .bend("/orgs/acme/repos?per_page=100&page=2", 1, move |answer| {
                    let body = body.clone();
                    Ok(Answer { body, ..answer })
                });
        }
        let next = second.map(|_| format!("{BASE}/orgs/acme/repos?per_page=100&page=2"));
        stage.wire.bend("/orgs/acme/repos", 1, move |answer| {
            let (body, next) = (first.to_string().into_bytes(), next.clone());
            Ok(Answer { body, next, ..answer })
        });
        assert_eq!(stage.run(&stage.environment()).await.sources, sources);
    }
}
