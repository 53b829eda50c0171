//! The one cold start: logs, configuration, clients with explicit time-outs.

use std::collections::BTreeMap;
use std::sync::Once;
use std::time::Duration;

use aws_config::{BehaviorVersion, SdkConfig};
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use jiff::Timestamp;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use crate::clock::System;
use crate::config::{Config, PollerConfig, Problems, ReaperConfig, SecretSource, SqsConfig};
use crate::dynamodb::{DynamoLedger, DynamoTargets};
use crate::github::GithubApi;
use crate::metrics::Metrics;
use crate::secrets::{AccessCache, SecretCache, Store};
use crate::shedder::{ShedInboxes, Watched, targets};
use crate::sqs::{SqsInboxes, SqsQueues};
use forebay_core::shed::{ShedderConfig, Shedding};

/// Time-outs of one AWS call. Two tries of a call end well within the eight seconds of a delivery.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1_000);
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Shorter than [`forebay_core::drive::SEND_TIME_MAX`], which counts on it.
const CALL_TIMEOUT: Duration = Duration::from_millis(3_500);
const _: () = assert!(CALL_TIMEOUT.as_millis() < forebay_core::drive::SEND_TIME_MAX.as_millis().cast_unsigned());
/// Tries of one AWS call, and the waits between them. The ledger's own retries come on top, within their own bound.
const ATTEMPTS_MAX: u32 = 3;
const WAIT_MIN: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_millis(500);
/// Crates whose logs are ours; the rest stays silent below warnings, since the SDK's own debug output shows requests.
const OUR_CRATES: [&str; 7] = [
    "forebay_core",
    "forebay_aws",
    "forebay",
    "webhook",
    "reaper",
    "sqs",
    "poller",
];

/// What a function works with.
#[derive(Debug)]
pub struct Clients {
    /// The ledger.
    pub ledger: DynamoLedger,
    /// The inboxes, behind a shedder.
    pub inboxes: ShedInboxes,
    /// The secrets.
    pub secrets: SecretCache<Store>,
}

/// Starts logging and reads the configuration. Problems are logged once, here.
///
/// # Errors
/// [`Problems`] where the configuration is unusable: refuse every delivery, and do not exit, since a crash loop would hide
/// the reason.
pub fn configure() -> Result<Config, Problems> {
    start_logging();
    Config::from_env().inspect_err(|problems| tracing::error!("{problems}"))
}

/// As [`configure`], for the reaper.
///
/// # Errors
/// [`Problems`] where the configuration is unusable: fail every run with them.
pub fn configure_reaper() -> Result<ReaperConfig, Problems> {
    start_logging();
    ReaperConfig::from_env().inspect_err(|problems| tracing::error!("{problems}"))
}

/// Makes the reaper's clients: ledger and inboxes. Makes no call.
pub async fn connect_reaper(config: &ReaperConfig) -> (DynamoLedger, ShedInboxes) {
    let sdk = sdk_config().await;
    let dynamodb = aws_sdk_dynamodb::Client::new(&sdk);
    let shedding = shedding(
        aws_sdk_sqs::Client::new(&sdk),
        dynamodb.clone(),
        &config.table,
        &config.inboxes,
        config.shedder,
    );
    let inboxes = Watched::new(shedding, System, Metrics::to_stdout(&config.metrics_namespace));
    (DynamoLedger::new(dynamodb, &config.table), inboxes)
}

/// The inboxes of a stack, behind a shedder. Makes no call.
#[must_use]
pub fn shedding(
    sqs: aws_sdk_sqs::Client,
    dynamodb: aws_sdk_dynamodb::Client,
    table: &str,
    urls: &BTreeMap<String, String>,
    config: ShedderConfig,
) -> Shedding<SqsInboxes, DynamoTargets, System> {
    let inboxes = SqsInboxes::new(sqs, urls.clone());
    Shedding::new(
        inboxes,
        DynamoTargets::new(dynamodb, table),
        System,
        config,
        targets(urls),
    )
}

/// As [`configure`], for the function behind queues.
///
/// # Errors
/// [`Problems`] where the configuration is unusable: fail every batch with them, so that its messages stay.
pub fn configure_sqs() -> Result<SqsConfig, Problems> {
    start_logging();
    SqsConfig::from_env().inspect_err(|problems| tracing::error!("{problems}"))
}

/// Makes the clients of the function behind queues: ledger, inboxes and queues. Makes no call.
pub async fn connect_sqs(config: &SqsConfig) -> (DynamoLedger, ShedInboxes, SqsQueues) {
    let sdk = sdk_config().await;
    let dynamodb = aws_sdk_dynamodb::Client::new(&sdk);
    let sqs = aws_sdk_sqs::Client::new(&sdk);
    let shedding = shedding(
        sqs.clone(),
        dynamodb.clone(),
        &config.table,
        &config.inboxes,
        config.shedder,
    );
    let inboxes = Watched::new(shedding, System, Metrics::to_stdout(&config.metrics_namespace));
    (DynamoLedger::new(dynamodb, &config.table), inboxes, SqsQueues::new(sqs))
}

/// As [`configure`], for the poller.
///
/// # Errors
/// [`Problems`] where the configuration is unusable: fail every run with them.
pub fn configure_poller() -> Result<PollerConfig, Problems> {
    start_logging();
    PollerConfig::from_env().inspect_err(|problems| tracing::error!("{problems}"))
}

/// What the poller works with.
#[derive(Debug)]
pub struct PollerClients {
    /// GitHub.
    pub api: GithubApi<Store, System>,
    /// The ledger.
    pub ledger: DynamoLedger,
    /// The inboxes, behind a shedder.
    pub inboxes: ShedInboxes,
    /// The targets, for a shedder in front of GitHub.
    pub targets: DynamoTargets,
}

/// Makes the poller's clients. Makes no call.
pub async fn connect_poller(config: &PollerConfig) -> PollerClients {
    let sdk = sdk_config().await;
    let dynamodb = aws_sdk_dynamodb::Client::new(&sdk);
    let shedding = shedding(
        aws_sdk_sqs::Client::new(&sdk),
        dynamodb.clone(),
        &config.table,
        &config.inboxes,
        config.shedder,
    );
    let access = AccessCache::new(store(&config.secret, &sdk), config.secret_cache);
    PollerClients {
        api: GithubApi::new(config.api.clone(), access, System),
        inboxes: Watched::new(shedding, System, Metrics::to_stdout(&config.metrics_namespace)),
        targets: DynamoTargets::new(dynamodb.clone(), &config.table),
        ledger: DynamoLedger::new(dynamodb, &config.table),
    }
}

fn store(secret: &SecretSource, sdk: &SdkConfig) -> Store {
    match secret {
        SecretSource::SecretsManager(id) => Store::SecretsManager {
            client: aws_sdk_secretsmanager::Client::new(sdk),
            id: id.clone(),
        },
        SecretSource::File(path) => Store::File(path.clone()),
    }
}

/// Makes the client of the queues alone, for a function that cannot work. Makes no call.
pub async fn connect_queues() -> SqsQueues {
    SqsQueues::new(aws_sdk_sqs::Client::new(&sdk_config().await))
}

/// The instant that Lambda's deadline is, in milliseconds since the epoch.
#[must_use]
pub fn deadline(epoch_ms: u64) -> Timestamp {
    let at = i64::try_from(epoch_ms).ok().map(Timestamp::from_millisecond);
    at.and_then(Result::ok).unwrap_or(Timestamp::MAX)
}

/// Makes the clients. Makes no call.
pub async fn connect(config: &Config) -> Clients {
    let sdk = sdk_config().await;
    let store = store(&config.secret, &sdk);
    let dynamodb = aws_sdk_dynamodb::Client::new(&sdk);
    let shedding = shedding(
        aws_sdk_sqs::Client::new(&sdk),
        dynamodb.clone(),
        &config.table,
        &config.inboxes,
        config.shedder,
    );
    Clients {
        inboxes: Watched::new(shedding, System, Metrics::to_stdout(&config.metrics_namespace)),
        ledger: DynamoLedger::new(dynamodb, &config.table),
        secrets: SecretCache::new(store, config.secret_cache),
    }
}

/// The SDK's configuration: region and credentials from the environment, our time-outs and retries.
pub async fn sdk_config() -> SdkConfig {
    aws_config::defaults(BehaviorVersion::latest())
        .timeout_config(timeouts())
        .retry_config(retries())
        .load()
        .await
}

/// Time-outs of every AWS call.
#[must_use]
pub fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(ATTEMPT_TIMEOUT)
        .operation_timeout(CALL_TIMEOUT)
        .build()
}

/// Retries of every AWS call.
#[must_use]
pub fn retries() -> RetryConfig {
    RetryConfig::standard()
        .with_max_attempts(ATTEMPTS_MAX)
        .with_initial_backoff(WAIT_MIN)
        .with_max_backoff(WAIT_MAX)
}

/// JSON lines on standard output, level from the variable that Lambda sets from the function's logging configuration.
#[expect(
    clippy::disallowed_methods,
    reason = "the level is needed before anything can be reported about configuration"
)]
fn start_logging() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let level = std::env::var("AWS_LAMBDA_LOG_LEVEL").ok();
        let level = level.and_then(|level| level.parse().ok()).unwrap_or(Level::INFO);
        let targets = Targets::new()
            .with_default(Level::WARN)
            .with_targets(OUR_CRATES.map(|name| (name, level)));
        let lines = tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_target(false)
            .with_current_span(false)
            .with_span_list(false);
        tracing_subscriber::registry().with(lines.with_filter(targets)).init();
    });
}
