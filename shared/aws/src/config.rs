//! Configuration: environment variables, read once, into one typed value that reports all its problems together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use forebay_core::api;
use forebay_core::delivery::EventName;
use forebay_core::event::Repository;
use forebay_core::ledger::Limits;
use forebay_core::queue::Envelopes;
use forebay_core::reap::ReapLimits;
use forebay_core::route::{DISPATCHER, IgnoredActors, NOTICE, QueueRoutes, Routes, Routing};
use forebay_core::schedule::ScheduleConfig;
use forebay_core::session::AgentName;
use forebay_core::shed::ShedderConfig;
use forebay_core::source::github::{FeedConfig, HookLog, RecoveryConfig, Remedy};
use jiff::SignedDuration;

use crate::github::ApiBase;

mod shape;

/// What every inbox's variable begins with; its name follows.
pub const INBOX_PREFIX: &str = "INBOX_";
/// Variables of one name each that the template sets for the webhook. Inboxes come besides.
pub const VARIABLES: &[&str] = &[
    "TABLE_NAME",
    "SECRET_ID",
    "ROUTES",
    "IGNORED_ACTORS",
    "GITHUB_HOST",
    "SOURCE_RANGES",
    "BODY_BYTES_MAX",
    "SECRET_CACHE_SECONDS",
    "RETENTION_DAYS",
    "PARK_DAYS",
    "AGE_DAYS_MAX",
    "FAILURES_MAX",
    "LEASE_SECONDS",
    "SKEW_SECONDS",
    "RETRY_SECONDS_MIN",
    "RETRY_SECONDS_MAX",
    "SHED_WINDOW_SECONDS",
    "SHED_ERROR_PERCENT",
    "SHED_LATENCY_MS_MAX",
    "SHED_SAMPLES_MIN",
    "SHED_CLEAN_SECONDS",
    "SHED_PROBATION_SECONDS",
    "SHED_PROBE_SECONDS",
    "SHED_CACHE_SECONDS",
    "METRICS_NAMESPACE",
];
/// The same for the reaper, which has no secret.
pub const REAPER_VARIABLES: &[&str] = &[
    "TABLE_NAME",
    "ROUTES",
    "QUEUE_ROUTES",
    "QUEUE_INBOX",
    "IGNORED_ACTORS",
    "RETENTION_DAYS",
    "PARK_DAYS",
    "AGE_DAYS_MAX",
    "FAILURES_MAX",
    "LEASE_SECONDS",
    "SKEW_SECONDS",
    "RETRY_SECONDS_MIN",
    "RETRY_SECONDS_MAX",
    "REAP_EVENTS_MAX",
    "REAP_CONCURRENCY",
    "REAP_PAGE_ROWS",
    "SHED_WINDOW_SECONDS",
    "SHED_ERROR_PERCENT",
    "SHED_LATENCY_MS_MAX",
    "SHED_SAMPLES_MIN",
    "SHED_CLEAN_SECONDS",
    "SHED_PROBATION_SECONDS",
    "SHED_PROBE_SECONDS",
    "SHED_CACHE_SECONDS",
    "METRICS_NAMESPACE",
];
/// The same for the function behind queues, which has no secret and no routes of repositories.
pub const SQS_VARIABLES: &[&str] = &[
    "TABLE_NAME",
    "QUEUE_ROUTES",
    "QUEUE_INBOX",
    "SNS_UNWRAP",
    "RETENTION_DAYS",
    "PARK_DAYS",
    "AGE_DAYS_MAX",
    "FAILURES_MAX",
    "LEASE_SECONDS",
    "SKEW_SECONDS",
    "RETRY_SECONDS_MIN",
    "RETRY_SECONDS_MAX",
    "SHED_WINDOW_SECONDS",
    "SHED_ERROR_PERCENT",
    "SHED_LATENCY_MS_MAX",
    "SHED_SAMPLES_MIN",
    "SHED_CLEAN_SECONDS",
    "SHED_PROBATION_SECONDS",
    "SHED_PROBE_SECONDS",
    "SHED_CACHE_SECONDS",
    "METRICS_NAMESPACE",
];
/// The same for the poller.
pub const POLLER_VARIABLES: &[&str] = &[
    "TABLE_NAME",
    "SECRET_ID",
    "ROUTES",
    "IGNORED_ACTORS",
    "GITHUB_HOST",
    "GITHUB_API_URL",
    "POLL_REPOSITORIES",
    "POLL_SECONDS",
    "POLL_ALL_MINUTES",
    "POLL_BACKLOG_HOURS",
    "POLL_CONCURRENCY",
    "RECOVER_REPOSITORIES",
    "RECOVER_ORGANIZATIONS",
    "RECOVER_APP",
    "RECOVER_ADDRESS",
    "RECOVER_EVENTS",
    "RECOVER_REMEDY",
    "RECOVER_SECONDS",
    "RECOVER_LOG_DAYS",
    "RECOVER_PAGES_MAX",
    "RECOVER_REQUESTS_MAX",
    "RECOVER_ATTEMPTS_MAX",
    "LIMIT_WAIT_SECONDS_MAX",
    "SECRET_CACHE_SECONDS",
    "RETENTION_DAYS",
    "PARK_DAYS",
    "AGE_DAYS_MAX",
    "FAILURES_MAX",
    "LEASE_SECONDS",
    "SKEW_SECONDS",
    "RETRY_SECONDS_MIN",
    "RETRY_SECONDS_MAX",
    "SHED_WINDOW_SECONDS",
    "SHED_ERROR_PERCENT",
    "SHED_LATENCY_MS_MAX",
    "SHED_SAMPLES_MIN",
    "SHED_CLEAN_SECONDS",
    "SHED_PROBATION_SECONDS",
    "SHED_PROBE_SECONDS",
    "SHED_CACHE_SECONDS",
    "METRICS_NAMESPACE",
];
/// Takes the place of `SECRET_ID` on a laptop: a file with the same document.
pub const PROVIDERS_FILE: &str = "PROVIDERS_FILE";
/// The one host whose ids carry no prefix.
const GITHUB_COM: &str = "github.com";
/// Longest time that anybody works under one lease, in seconds. A lease outlives it.
///
/// For the webhook that is the function's timeout. The reaper works on one event after the other and ends each drive by then,
/// so that its own timeout can be longer and a lease need not.
pub const LEASED_SECONDS_MAX: i64 = 10;
/// The reaper's timeout, in seconds: shorter than its shortest interval, so that no run meets the next one.
pub const REAPER_SECONDS_MAX: i64 = 50;
/// The poller's timeout, in seconds: shorter than its shortest interval, so that no run meets the next one. A claim of a source
/// outlives it.
pub const POLLER_SECONDS_MAX: i64 = 50;
/// Shortest retention where feeds are polled, in days: a feed shows what happened up to 30 days ago
/// (<https://docs.github.com/en/rest/activity/events>), and what happened longer ago than the retention less 2 is stale.
const FEED_RETENTION_DAYS_MIN: i64 = 32;
/// The timeout of the function behind queues, in seconds.
///
/// A queue's visibility timeout is at least six times that, and the batching window
/// (<https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html>).
pub const SQS_SECONDS_MAX: i64 = 30;
/// Shortest visibility timeout of a queue whose mapping waits for `window_seconds`, in seconds.
///
/// A message must not come again while it is worked on, nor while Lambda tries again because it was throttled. From the page
/// above.
#[must_use]
pub const fn visibility_seconds_min(window_seconds: i64) -> i64 {
    SQS_SECONDS_MAX.saturating_mul(6).saturating_add(window_seconds)
}

/// Shortest retention where queues are sources, in days: a queue keeps a message for up to 14
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html>), and what happened
/// longer ago than the retention less 2 is stale.
const QUEUE_RETENTION_DAYS_MIN: i64 = 16;

/// Where the secret document is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// In Secrets Manager, under this id.
    SecretsManager(String),
    /// In a file that only its owner can read.
    File(PathBuf),
}

/// Bits in front of an IPv4 address that is mapped into IPv6.
const MAPPED_BITS: u32 = 96;

/// A range of addresses, such as `192.30.252.0/22`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    network: IpAddr,
    bits: u32,
}

impl AddressRange {
    /// The range that `text` spells. `None` where it is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (network, bits) = text.split_once('/')?;
        let network = IpAddr::from_str(network).ok()?;
        let bits: u32 = bits.parse().ok().filter(|bits| *bits <= width(network))?;
        // Addresses are compared in their canonical form, so a range of mapped ones is the range that it maps.
        let (canonical, mapped) = (network.to_canonical(), bits.checked_sub(MAPPED_BITS));
        match mapped {
            Some(bits) if width(canonical) < width(network) => Some(Self {
                network: canonical,
                bits,
            }),
            Some(_) | None => Some(Self { network, bits }),
        }
    }

    /// Whether `address` is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if width(address) != width(self.network) {
            return false;
        }
        let shift = width(address).saturating_sub(self.bits);
        let prefix = |address: IpAddr| number(address).checked_shr(shift).unwrap_or(0);
        prefix(address) == prefix(self.network)
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Everything that a function is told from outside.
#[derive(Clone, Debug)]
pub struct Config {
    /// The ledger's table.
    pub table: String,
    /// Where the secret document is.
    pub secret: SecretSource,
    /// URL of each inbox's queue.
    pub inboxes: BTreeMap<String, String>,
    /// Static routes and ignored actors.
    pub routing: Routing,
    /// Spans and ceilings of the ledger.
    pub limits: Limits,
    /// When a target is shed, and how it comes back.
    pub shedder: ShedderConfig,
    /// Host of a GitHub Enterprise server; `None` for github.com.
    pub github_host: Option<String>,
    /// Who may call; empty: anybody.
    pub source_ranges: Vec<AddressRange>,
    /// Largest decoded body, in bytes.
    pub body_bytes_max: usize,
    /// How long a read secret is used.
    pub secret_cache: Duration,
    /// `CloudWatch` namespace.
    pub metrics_namespace: String,
}

/// What the reaper is told from outside.
#[derive(Clone, Debug)]
pub struct ReaperConfig {
    /// The ledger's table.
    pub table: String,
    /// URL of each inbox's queue.
    pub inboxes: BTreeMap<String, String>,
    /// Static routes and ignored actors.
    pub routing: Routing,
    /// Spans and ceilings of the ledger.
    pub limits: Limits,
    /// When a target is shed, and how it comes back.
    pub shedder: ShedderConfig,
    /// How much one run takes on.
    pub reap: ReapLimits,
    /// `CloudWatch` namespace.
    pub metrics_namespace: String,
}

/// What the function behind queues is told from outside.
#[derive(Clone, Debug)]
pub struct SqsConfig {
    /// The ledger's table.
    pub table: String,
    /// URL of each inbox's queue.
    pub inboxes: BTreeMap<String, String>,
    /// Inboxes of what queues say.
    pub routing: Routing,
    /// Whether notifications of SNS topics are taken out of their envelopes.
    pub envelopes: Envelopes,
    /// Spans and ceilings of the ledger.
    pub limits: Limits,
    /// When a target is shed, and when the ledger counts as sick.
    pub shedder: ShedderConfig,
    /// `CloudWatch` namespace.
    pub metrics_namespace: String,
}

/// Which repositories are polled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Polled {
    /// This one.
    One(Repository),
    /// All of this owner's that the credential may read.
    AllOf(String),
}

/// What the poller is told from outside.
#[derive(Clone, Debug)]
pub struct PollerConfig {
    /// The ledger's table.
    pub table: String,
    /// Where the secret document is.
    pub secret: SecretSource,
    /// How long a read secret is used.
    pub secret_cache: Duration,
    /// URL of each inbox's queue.
    pub inboxes: BTreeMap<String, String>,
    /// Static routes and ignored actors.
    pub routing: Routing,
    /// Spans and ceilings of the ledger.
    pub limits: Limits,
    /// When a target is shed, and how it comes back.
    pub shedder: ShedderConfig,
    /// Where GitHub's REST interface is.
    pub api: ApiBase,
    /// Whose feeds are polled.
    pub feeds: BTreeSet<Polled>,
    /// How feeds are read.
    pub feed: FeedConfig,
    /// Whose delivery logs are read.
    pub logs: Vec<HookLog>,
    /// How delivery logs are read.
    pub recovery: RecoveryConfig,
    /// Most polls at one time.
    pub concurrency: usize,
    /// The spans of the scheduler.
    pub schedule: ScheduleConfig,
    /// `CloudWatch` namespace.
    pub metrics_namespace: String,
}

/// Everything that is wrong with the configuration, at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<String>);

impl Problems {
    /// The problems, one sentence each.
    #[must_use]
    pub fn sentences(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "read configuration from the environment: {}; mend the stack's parameters",
            self.0.join("; ")
        )
    }
}

impl std::error::Error for Problems {}

/// Gives a configuration its two ways in.
macro_rules! read_from_environment {
    ($config:ty, $read:path) => {
        impl $config {
            /// Reads the process's environment.
            ///
            /// # Errors
            /// [`Problems`] names all that is missing or malformed. The function then refuses all work and says why.
            #[expect(
                clippy::disallowed_methods,
                reason = "this is the one place that reads the environment"
            )]
            pub fn from_env() -> Result<Self, Problems> {
                Self::read(std::env::vars().collect())
            }

            /// Reads `variables`.
            ///
            /// # Errors
            /// As [`Self::from_env`].
            pub fn read(variables: BTreeMap<String, String>) -> Result<Self, Problems> {
                whole(variables, $read)
            }
        }
    };
}

read_from_environment!(Config, Reader::config);
read_from_environment!(ReaperConfig, Reader::reaper);
read_from_environment!(SqsConfig, Reader::sqs);
read_from_environment!(PollerConfig, Reader::poller);

/// What `read` makes of `variables`, if it finds no problem.
fn whole<C>(variables: BTreeMap<String, String>, read: impl Fn(&mut Reader) -> Option<C>) -> Result<C, Problems> {
    let mut reader = Reader {
        variables,
        problems: Vec::new(),
    };
    let config = read(&mut reader);
    match (config, reader.problems.is_empty()) {
        (Some(config), true) => Ok(config),
        _ => Err(Problems(reader.problems)),
    }
}

struct Reader {
    variables: BTreeMap<String, String>,
    problems: Vec<String>,
}

impl Reader {
    /// Reads everything, also behind the first problem.
    fn config(&mut self) -> Option<Config> {
        let table = self.table();
        let secret = self.secret();
        let inboxes = self.inboxes();
        let routing = self.routing(&inboxes.keys().cloned().collect());
        let limits = self.limits();
        let shedder = self.shedder();
        let github_host = self.github_host();
        let source_ranges = self.source_ranges();
        let body_bytes_max = self.number("BODY_BYTES_MAX", 6_291_456, 1_024..=6_291_456);
        let secret_cache = self.number("SECRET_CACHE_SECONDS", 300, 1..=3_600);
        let metrics_namespace = self.metrics_namespace();
        Some(Config {
            table: table?,
            secret: secret?,
            inboxes,
            routing,
            limits: limits?,
            shedder: shedder?,
            github_host,
            source_ranges,
            body_bytes_max: usize::try_from(body_bytes_max?).ok()?,
            secret_cache: Duration::from_secs(u64::try_from(secret_cache?).ok()?),
            metrics_namespace: metrics_namespace?,
        })
    }

    /// What the reaper reads of it, also behind the first problem.
    fn reaper(&mut self) -> Option<ReaperConfig> {
        let table = self.table();
        let inboxes = self.inboxes();
        let routing = self.routing(&inboxes.keys().cloned().collect());
        let limits = self.limits();
        let shedder = self.shedder();
        let events_max = self.number("REAP_EVENTS_MAX", 5_000, 1..=100_000);
        let concurrency = self.number("REAP_CONCURRENCY", 16, 1..=64);
        let page_rows = self.number("REAP_PAGE_ROWS", 100, 1..=1_000);
        let metrics_namespace = self.metrics_namespace();
        Some(ReaperConfig {
            table: table?,
            inboxes,
            routing,
            limits: limits?,
            shedder: shedder?,
            reap: ReapLimits {
                events_max: usize::try_from(events_max?).ok()?,
                concurrency: usize::try_from(concurrency?).ok()?,
                page_rows: usize::try_from(page_rows?).ok()?,
            },
            metrics_namespace: metrics_namespace?,
        })
    }

    /// What the function behind queues reads of it.
    fn sqs(&mut self) -> Option<SqsConfig> {
        let table = self.table();
        let inboxes = self.inboxes();
        let routing = Routing {
            queues: self.queue_routes(&inboxes.keys().cloned().collect()),
            ..Routing::default()
        };
        let envelopes = match self.given("SNS_UNWRAP").as_deref() {
            None | Some("false") => Envelopes::Keep,
            Some("true") => Envelopes::Unwrap,
            Some(_) => {
                self.problems.push("SNS_UNWRAP is neither true nor false".to_owned());
                Envelopes::Keep
            }
        };
        let limits = self.limits();
        let shortest = SignedDuration::from_hours(QUEUE_RETENTION_DAYS_MIN.saturating_mul(24));
        if limits.is_some_and(|limits| limits.retention < shortest) {
            self.problems.push(format!(
                "RETENTION_DAYS must be at least {QUEUE_RETENTION_DAYS_MIN} where queues are sources, which keep a message for up to 14"
            ));
        }
        let shedder = self.shedder();
        let metrics_namespace = self.metrics_namespace();
        Some(SqsConfig {
            table: table?,
            inboxes,
            routing,
            envelopes,
            limits: limits?,
            shedder: shedder?,
            metrics_namespace: metrics_namespace?,
        })
    }

    /// What the poller reads of it.
    fn poller(&mut self) -> Option<PollerConfig> {
        let table = self.table();
        let secret = self.secret();
        let secret_cache = self.number("SECRET_CACHE_SECONDS", 300, 1..=3_600);
        let inboxes = self.inboxes();
        let routing = self.routing(&inboxes.keys().cloned().collect());
        let limits = self.limits();
        let shedder = self.shedder();
        let host = self.github_host();
        let api = self.api(host.as_deref());
        let feeds = self.polled(&routing);
        let wait_max = self.number("LIMIT_WAIT_SECONDS_MAX", 3_600, 60..=86_400);
        let interval = self.number("POLL_SECONDS", 60, 60..=3_600);
        let read_all_every = self.number("POLL_ALL_MINUTES", 60, 10..=1_440);
        let backlog = self.number("POLL_BACKLOG_HOURS", 24, 0..=720);
        let concurrency = self.number("POLL_CONCURRENCY", 4, 1..=32);
        let logs = self.logs();
        let shortest = SignedDuration::from_hours(FEED_RETENTION_DAYS_MIN.saturating_mul(24));
        if !feeds.is_empty() && limits.is_some_and(|limits| limits.retention < shortest) {
            self.problems.push(format!(
                "RETENTION_DAYS must be at least {FEED_RETENTION_DAYS_MIN} where feeds are polled, which show what happened up to 30 days ago"
            ));
        }
        // Where it is malformed, that has been said; what follows is read all the same.
        let wait = wait_max.map_or_else(api::Limits::default, |seconds| api::Limits {
            wait_max: SignedDuration::from_secs(seconds),
        });
        let recovery = self.recovery(host.as_deref(), wait);
        let metrics_namespace = self.metrics_namespace();
        let limits = limits?;
        Some(PollerConfig {
            table: table?,
            secret: secret?,
            secret_cache: Duration::from_secs(u64::try_from(secret_cache?).ok()?),
            inboxes,
            routing,
            shedder: shedder?,
            api: api?,
            feeds,
            feed: FeedConfig {
                host,
                interval: SignedDuration::from_secs(interval?),
                read_all_every: SignedDuration::from_mins(read_all_every?),
                backlog: SignedDuration::from_hours(backlog?),
                limits: wait,
            },
            logs,
            recovery: recovery?,
            concurrency: usize::try_from(concurrency?).ok()?,
            schedule: ScheduleConfig {
                lease: SignedDuration::from_secs(POLLER_SECONDS_MAX).saturating_add(limits.skew),
                skew: limits.skew,
            },
            limits,
            metrics_namespace: metrics_namespace?,
        })
    }

    fn recovery(&mut self, host: Option<&str>, limits: api::Limits) -> Option<RecoveryConfig> {
        let usual = RecoveryConfig::default();
        let interval = self.number("RECOVER_SECONDS", 300, 60..=86_400);
        let log_days = self.number("RECOVER_LOG_DAYS", 3, 1..=7);
        let pages_max = self.number("RECOVER_PAGES_MAX", 20, 1..=200);
        let requests_max = self.number("RECOVER_REQUESTS_MAX", 20, 1..=100);
        let attempts_max = self.number("RECOVER_ATTEMPTS_MAX", 6, 1..=20);
        let address = self.given("RECOVER_ADDRESS").unwrap_or(usual.address);
        if address.trim_matches('/').is_empty() {
            self.problems
                .push("RECOVER_ADDRESS is no address, nor the end of one: every hook would be ours".to_owned());
        }
        let remedy = match self.given("RECOVER_REMEDY").as_deref() {
            None | Some("redeliver") => Remedy::Redeliver,
            Some("fetch") => Remedy::Fetch,
            Some(_) => {
                self.problems
                    .push("RECOVER_REMEDY is neither redeliver nor fetch".to_owned());
                Remedy::Redeliver
            }
        };
        let mut events = BTreeSet::new();
        for name in self.list("RECOVER_EVENTS") {
            match EventName::parse(&name) {
                Some(name) => {
                    events.insert(name.as_str().to_owned());
                }
                None => self
                    .problems
                    .push(format!("RECOVER_EVENTS: `{name}` is no name of a webhook event")),
            }
        }
        Some(RecoveryConfig {
            host: host.map(str::to_owned),
            interval: SignedDuration::from_secs(interval?),
            retention: SignedDuration::from_hours(log_days?.saturating_mul(24)),
            events,
            remedy,
            pages_max: usize::try_from(pages_max?).ok()?,
            requests_max: usize::try_from(requests_max?).ok()?,
            attempts_max: u32::try_from(attempts_max?).ok()?,
            limits,
            address,
            patience: usual.patience,
        })
    }

    /// The host that is not github.com. A malformed one is none, so that nothing else is made of it and named as well.
    fn github_host(&mut self) -> Option<String> {
        let host = self.given("GITHUB_HOST").map(|host| host.to_ascii_lowercase())?;
        if !shape::is_host(&host) {
            self.problems
                .push("GITHUB_HOST is no name of a host, without scheme, port or path".to_owned());
            return None;
        }
        Some(host).filter(|host| host != GITHUB_COM)
    }

    /// Where the REST interface is: where it is said to be, else where the host has it.
    fn api(&mut self, host: Option<&str>) -> Option<ApiBase> {
        let given = self.given("GITHUB_API_URL");
        let url = given.or_else(|| host.map(|host| format!("https://{host}/api/v3")));
        let Some(url) = url else {
            return Some(ApiBase::default());
        };
        let base = ApiBase::parse(&url);
        base.map_err(|error| self.problems.push(format!("GITHUB_API_URL: {error}")))
            .ok()
    }

    /// The entries of a comma separated list.
    fn list(&self, name: &str) -> Vec<String> {
        let text = self.given(name).unwrap_or_default();
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(str::to_owned).collect()
    }

    /// Repositories whose feeds are polled: by name, all of an owner's, or those that have a route.
    fn polled(&mut self, routing: &Routing) -> BTreeSet<Polled> {
        let mut polled = BTreeSet::new();
        for entry in self.list("POLL_REPOSITORIES") {
            if entry == "routes" {
                polled.extend(
                    routing
                        .routes
                        .repositories()
                        .filter_map(Repository::new)
                        .map(Polled::One),
                );
                continue;
            }
            // A star stands for names alone, and for whole ones.
            let plain = |name: &str| Repository::new(name).filter(|_| !name.contains('*'));
            let owner = entry.strip_suffix("/*");
            match (
                owner.filter(|owner| plain(&format!("{owner}/x")).is_some()),
                plain(&entry),
            ) {
                (Some(owner), _) => {
                    polled.insert(Polled::AllOf(owner.to_owned()));
                }
                (None, Some(repository)) => {
                    polled.insert(Polled::One(repository));
                }
                _ => self.problems.push(format!(
                    "POLL_REPOSITORIES: `{entry}` is none of owner/name, owner/* and routes"
                )),
            }
        }
        polled
    }

    /// Whose delivery logs are read.
    fn logs(&mut self) -> Vec<HookLog> {
        let mut logs = Vec::new();
        for entry in self.list("RECOVER_REPOSITORIES") {
            match Repository::new(&entry) {
                Some(repository) => logs.push(HookLog::Repository(repository)),
                None => self
                    .problems
                    .push(format!("RECOVER_REPOSITORIES: `{entry}` is not owner/name")),
            }
        }
        for entry in self.list("RECOVER_ORGANIZATIONS") {
            if Repository::new(&format!("{entry}/x")).is_some() {
                logs.push(HookLog::Organization(entry));
            } else {
                self.problems.push(format!(
                    "RECOVER_ORGANIZATIONS: `{entry}` is no name of an organisation"
                ));
            }
        }
        match self.given("RECOVER_APP").as_deref() {
            None | Some("false") => {}
            Some("true") => logs.push(HookLog::App),
            Some(_) => self.problems.push("RECOVER_APP is neither true nor false".to_owned()),
        }
        logs
    }

    fn metrics_namespace(&mut self) -> Option<String> {
        let given = self.given("METRICS_NAMESPACE");
        let problem =
            "METRICS_NAMESPACE is no namespace: a letter, then at most 254 letters, digits or any of _ . / # -";
        self.shaped(
            given.unwrap_or_else(|| "Forebay".to_owned()),
            shape::is_namespace,
            problem,
        )
    }

    fn table(&mut self) -> Option<String> {
        let table = self.needed("TABLE_NAME")?;
        let problem =
            "TABLE_NAME is no name of a table, of 3 to 255 letters, digits or any of _ . -, and no table's ARN";
        self.shaped(table, shape::is_table, problem)
    }

    /// `text` where it has its shape, else `problem` is one.
    fn shaped(&mut self, text: String, has_shape: fn(&str) -> bool, problem: &str) -> Option<String> {
        if has_shape(&text) {
            return Some(text);
        }
        self.problems.push(problem.to_owned());
        None
    }

    /// The variable's text, if it is there and not blank.
    fn given(&self, name: &str) -> Option<String> {
        self.variables
            .get(name)
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty())
    }

    fn needed(&mut self, name: &str) -> Option<String> {
        let given = self.given(name);
        if given.is_none() {
            self.problems.push(format!("{name} is missing or empty"));
        }
        given
    }

    fn number(&mut self, name: &str, default: i64, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        let Some(text) = self.given(name) else {
            return Some(default);
        };
        let number = text.parse().ok().filter(|number| range.contains(number));
        if number.is_none() {
            self.problems.push(format!(
                "{name} is not a whole number from {} to {}",
                range.start(),
                range.end()
            ));
        }
        number
    }

    fn secret(&mut self) -> Option<SecretSource> {
        match (self.given("SECRET_ID"), self.given(PROVIDERS_FILE)) {
            (Some(id), None) => Some(SecretSource::SecretsManager(id)),
            (None, Some(path)) => Some(SecretSource::File(PathBuf::from(path))),
            (None, None) => {
                self.problems
                    .push(format!("SECRET_ID is missing or empty (on a laptop: {PROVIDERS_FILE})"));
                None
            }
            (Some(_), Some(_)) => {
                self.problems
                    .push(format!("SECRET_ID and {PROVIDERS_FILE} are both given"));
                None
            }
        }
    }

    fn inboxes(&mut self) -> BTreeMap<String, String> {
        let mut inboxes = BTreeMap::new();
        for (variable, url) in &self.variables {
            let Some(name) = variable.strip_prefix(INBOX_PREFIX) else {
                continue;
            };
            if AgentName::parse(name).is_none() {
                self.problems.push(format!(
                    "{variable} does not name an inbox: a lower-case letter, then letters or digits"
                ));
                continue;
            }
            let url = url.trim();
            if url.is_empty() {
                self.problems.push(format!("{variable} is empty"));
            } else if !shape::is_queue_url(url) {
                self.problems.push(format!("{variable} is no URL of a queue"));
            }
            // Wherever it leads, it has a name: a route to it is no second problem.
            inboxes.insert(name.to_owned(), url.to_owned());
        }
        for reserved in [DISPATCHER, NOTICE] {
            if !self.variables.contains_key(&format!("{INBOX_PREFIX}{reserved}")) {
                self.problems.push(format!("{INBOX_PREFIX}{reserved} is missing"));
            }
        }
        inboxes
    }

    fn routing(&mut self, inboxes: &BTreeSet<String>) -> Routing {
        let routes = Routes::parse(&self.given("ROUTES").unwrap_or_default(), inboxes);
        let routes = routes.unwrap_or_else(|problems| {
            self.problems
                .extend(problems.iter().map(|problem| format!("ROUTES: {problem}")));
            Routes::default()
        });
        Routing {
            routes,
            queues: self.queue_routes(inboxes),
            ignored: IgnoredActors::parse(&self.given("IGNORED_ACTORS").unwrap_or_default()),
        }
    }

    fn queue_routes(&mut self, inboxes: &BTreeSet<String>) -> QueueRoutes {
        // Where a reserved inbox is missing, that has been said.
        let mut inboxes = inboxes.clone();
        inboxes.extend([DISPATCHER, NOTICE].map(str::to_owned));
        let otherwise = self.given("QUEUE_INBOX").unwrap_or_else(|| DISPATCHER.to_owned());
        let routes = QueueRoutes::parse(&self.given("QUEUE_ROUTES").unwrap_or_default(), &otherwise, &inboxes);
        routes.unwrap_or_else(|problems| {
            let named = problems
                .iter()
                .map(|problem| format!("QUEUE_ROUTES, QUEUE_INBOX: {problem}"));
            self.problems.extend(named);
            QueueRoutes::default()
        })
    }

    fn source_ranges(&mut self) -> Vec<AddressRange> {
        let text = self.given("SOURCE_RANGES").unwrap_or_default();
        let mut ranges = Vec::new();
        for range in text.split(',').map(str::trim).filter(|range| !range.is_empty()) {
            match AddressRange::parse(range) {
                Some(range) => ranges.push(range),
                None => self.problems.push(format!(
                    "SOURCE_RANGES: `{range}` is not a range such as 192.30.252.0/22"
                )),
            }
        }
        ranges
    }

    fn limits(&mut self) -> Option<Limits> {
        let lease = self.number("LEASE_SECONDS", 30, 1..=900);
        let skew = self.number("SKEW_SECONDS", 5, 0..=60);
        let retry_min = self.number("RETRY_SECONDS_MIN", 15, 1..=43_200);
        let retry_max = self.number("RETRY_SECONDS_MAX", 3_600, 1..=43_200);
        let failures_max = self.number("FAILURES_MAX", 8, 1..=100);
        let age = self.number("AGE_DAYS_MAX", 3, 1..=30);
        let park = self.number("PARK_DAYS", 3, 1..=30);
        let retention = self.number("RETENTION_DAYS", 35, 4..=3_650);
        let (lease, skew) = (lease?, skew?);
        if lease <= LEASED_SECONDS_MAX.saturating_add(skew) {
            self.problems.push(format!(
                "LEASE_SECONDS must be more than SKEW_SECONDS and the {LEASED_SECONDS_MAX} seconds of work under it together"
            ));
        }
        let days = |days: i64| SignedDuration::from_hours(days.saturating_mul(24));
        let limits = Limits {
            lease: SignedDuration::from_secs(lease),
            skew: SignedDuration::from_secs(skew),
            retry_min: SignedDuration::from_secs(retry_min?),
            retry_max: SignedDuration::from_secs(retry_max?),
            failures_max: u32::try_from(failures_max?).ok()?,
            age_max: days(age?),
            park: days(park?),
            retention: days(retention?),
        };
        limits
            .checked()
            .map_err(|invalid| self.problems.extend(invalid.rules().iter().map(ToString::to_string)))
            .ok()
    }

    fn shedder(&mut self) -> Option<ShedderConfig> {
        let window = self.number("SHED_WINDOW_SECONDS", 30, 10..=3_600);
        let latency_ms_max = self.number("SHED_LATENCY_MS_MAX", 5_000, 10..=30_000);
        let error_percent = self.number("SHED_ERROR_PERCENT", 25, 1..=100);
        let samples_min = self.number("SHED_SAMPLES_MIN", 10, 1..=1_000_000);
        let clean = self.number("SHED_CLEAN_SECONDS", 30, 10..=3_600);
        let probation = self.number("SHED_PROBATION_SECONDS", 30, 1..=3_600);
        let probe = self.number("SHED_PROBE_SECONDS", 10, 5..=900);
        let cache = self.number("SHED_CACHE_SECONDS", 2, 1..=5);
        // The ledger's own reading names what is wrong with it.
        let skew = self
            .given("SKEW_SECONDS")
            .and_then(|text| text.parse().ok())
            .unwrap_or(5);
        let config = ShedderConfig {
            window: SignedDuration::from_secs(window?),
            latency_ms_max: u32::try_from(latency_ms_max?).ok()?,
            error_percent: u32::try_from(error_percent?).ok()?,
            samples_min: u32::try_from(samples_min?).ok()?,
            clean: SignedDuration::from_secs(clean?),
            probation: SignedDuration::from_secs(probation?),
            probe: SignedDuration::from_secs(probe?),
            cache: SignedDuration::from_secs(cache?),
            skew: SignedDuration::from_secs(i64::max(skew, 0)),
        };
        config
            .checked()
            .map_err(|invalid| self.problems.extend(invalid.rules().iter().map(ToString::to_string)))
            .ok()
    }
}

#[cfg(test)]
mod tests;
