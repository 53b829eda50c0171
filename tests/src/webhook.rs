//! A webhook on an embedded table and recording inboxes, and signed requests for it.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_aws::config::Config;
use forebay_aws::dynamodb::DynamoLedger;
use forebay_aws::http_event::{HttpAnswer, HttpEvent};
use forebay_aws::metrics::Metrics;
use forebay_aws::secrets::SecretCache;
use forebay_core::ports::Ledger;
use forebay_core::shed::memory::MemoryTargets;
use forebay_core::shed::{Shedding, TargetStore};
use forebay_core::signature::Secrets;
use jiff::Timestamp;
use webhook::Webhook;

use crate::fakes::{GivenSecrets, ManualTime, RecordingInboxes, Written};
use crate::table::{TABLE, Table};

/// The secret of the tests' webhook.
pub const SECRET: &str = "hook-secret-A";

/// A webhook in process, with everything around it in the test's hands.
#[derive(Debug)]
pub struct Stand<L = DynamoLedger, S = MemoryTargets> {
    /// The webhook, its inboxes behind a shedder.
    pub webhook: Webhook<L, Shedding<RecordingInboxes, S, ManualTime>, GivenSecrets, ManualTime>,
    /// Its ledger, once more.
    pub ledger: L,
    /// The inboxes behind its shedder.
    pub inboxes: RecordingInboxes,
    /// Its secrets.
    pub secrets: GivenSecrets,
    /// Its clock.
    pub time: ManualTime,
    /// Its lines of metrics.
    pub metrics: Written,
    /// Its configuration.
    pub config: Config,
}

/// The environment of the tests' webhook: agents `builder` and `reviewer`, one ignored actor, retention of ten years, so
/// that recordings of any age are not stale.
#[must_use]
pub fn environment() -> BTreeMap<String, String> {
    let pairs = [
        ("TABLE_NAME", TABLE),
        ("SECRET_ID", "secret"),
        ("INBOX_builder", "http://127.0.0.1:1/builder.fifo"),
        ("INBOX_reviewer", "http://127.0.0.1:1/reviewer.fifo"),
        ("INBOX_dispatcher", "http://127.0.0.1:1/dispatcher.fifo"),
        ("INBOX_notice", "http://127.0.0.1:1/notice.fifo"),
        ("IGNORED_ACTORS", "agent-bot[bot]"),
        ("RETENTION_DAYS", "3650"),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

impl Stand {
    /// A webhook on a fresh table, with [`environment`], at noon of 29 November 2026.
    pub async fn start(table: &Table) -> Self {
        Self::with(table.ledger(), environment())
    }
}

impl<L: Ledger + Clone> Stand<L> {
    /// A webhook on `ledger` with `environment`. Its shedder keeps what it knows in memory.
    ///
    /// # Panics
    /// Where `environment` is unusable.
    #[must_use]
    pub fn with(ledger: L, environment: BTreeMap<String, String>) -> Self {
        Self::with_targets(ledger, MemoryTargets::new(), environment)
    }
}

impl<L: Ledger + Clone, S: TargetStore> Stand<L, S> {
    /// A webhook on `ledger` and `targets` with `environment`.
    ///
    /// # Panics
    /// Where `environment` is unusable.
    #[must_use]
    pub fn with_targets(ledger: L, targets: S, environment: BTreeMap<String, String>) -> Self {
        let config = Config::read(environment).expect("a usable environment");
        let inboxes = RecordingInboxes::default();
        let secrets = GivenSecrets::single(SECRET);
        let time = ManualTime::at(noon());
        let metrics = Written::default();
        let webhook = Webhook::with(
            config.clone(),
            ledger.clone(),
            Shedding::new(
                inboxes.clone(),
                targets,
                time.clone(),
                config.shedder,
                forebay_aws::shedder::targets(&config.inboxes),
            ),
            SecretCache::new(secrets.clone(), Duration::from_secs(300)),
            time.clone(),
            Metrics::to("Forebay", Box::new(metrics.clone())),
        );
        Self {
            webhook,
            ledger,
            inboxes,
            secrets,
            time,
            metrics,
            config,
        }
    }

    /// Posts a request.
    pub async fn post(&self, request: &Request) -> HttpAnswer {
        // Boxed: futures within futures are too large for the stack of a test's thread.
        Box::pin(self.webhook.answer(request.to_event())).await
    }
}

/// Noon of 29 November 2026, in UTC.
#[must_use]
pub fn noon() -> Timestamp {
    Timestamp::from_second(1_795_953_600).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A delivery as GitHub posts it, signed with [`SECRET`] unless a test says otherwise.
#[derive(Clone, Debug)]
pub struct Request {
    /// Headers in the order of writing.
    pub headers: Vec<(String, String)>,
    /// The exact bytes.
    pub body: Vec<u8>,
}

impl Request {
    /// A JSON delivery of hook 42.
    ///
    /// # Panics
    /// Never: the secret of the tests is not blank.
    #[must_use]
    pub fn new(event: &str, guid: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let signature = Secrets::single(SECRET)
            .signer()
            .expect("the secret is not blank")
            .sign(&body);
        let headers = [
            ("content-type", "application/json"),
            ("user-agent", "GitHub-Hookshot/0000000"),
            ("x-github-event", event),
            ("x-github-delivery", guid),
            ("x-github-hook-id", "42"),
            ("x-hub-signature-256", &signature),
        ];
        Self {
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            body,
        }
    }

    /// This request with another value of a header, or without it.
    #[must_use]
    pub fn header(mut self, name: &str, value: Option<&str>) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers
            .extend(value.map(|value| (name.to_owned(), value.to_owned())));
        self
    }

    /// The request as a function URL hands it over: text where it is text, else base64.
    ///
    /// # Panics
    /// Where the shape is not what the adapter reads: a bug.
    #[must_use]
    pub fn to_event(&self) -> HttpEvent {
        serde_json::from_value(self.to_json()).expect("the shape of a function URL's request")
    }

    /// The request as JSON, payload format 2.0.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        use base64::Engine as _;
        let headers: serde_json::Map<_, _> = self
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.clone().into()))
            .collect();
        let (body, base64) = match std::str::from_utf8(&self.body) {
            Ok(text) => (text.to_owned(), false),
            Err(_) => (base64::engine::general_purpose::STANDARD.encode(&self.body), true),
        };
        serde_json::json!({
            "version": "2.0",
            "rawPath": webhook::PATH,
            "rawQueryString": "",
            "headers": headers,
            "requestContext": {"http": {"method": "POST", "path": webhook::PATH, "sourceIp": "127.0.0.1"}},
            "body": body,
            "isBase64Encoded": base64,
        })
    }
}
