//! One delivery, from its request to its answer.

use std::sync::Arc;
use std::time::Duration;

use forebay_aws::config::Config;
use forebay_aws::dynamodb::DynamoLedger;
use forebay_aws::http_event::{HttpAnswer, HttpEvent};
use forebay_aws::metrics::Metrics;
use forebay_aws::secrets::{self, Documents, SecretCache, Store};
use forebay_aws::shedder::ShedInboxes;
use forebay_aws::start::Clients;
use forebay_core::delivery::{Delivery, DeliveryKey, Digest, EventName, Outcome};
use forebay_core::event::{Event, Net};
use forebay_core::github::{Envelope, Meaning, Named, Reading, read};
use forebay_core::ports::{Inboxes, Ledger, TimeAndChance};
use forebay_core::signature::{Secrets, VerifiedBody};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::answer::{Answer, Refusal, Verdict};
use crate::keep::Handled;
use crate::request::{self, Headers, not_ours};

/// Longest time from a request to its answer. GitHub gives up after ten seconds
/// (<https://docs.github.com/en/webhooks/using-webhooks/handling-failed-webhook-deliveries>).
const ANSWER_TIME_MAX: Duration = Duration::from_millis(7_500);
/// Longest time until a delivery is durable. What is left of the whole is for driving its event.
const ADMIT_TIME_MAX: Duration = Duration::from_millis(5_500);
// One delivery reads the secrets at most once, and what it then has to do must have time left.
const _: () = assert!(secrets::READ_TIME_MAX.as_millis() < ADMIT_TIME_MAX.as_millis());
const _: () = assert!(ADMIT_TIME_MAX.as_millis() < ANSWER_TIME_MAX.as_millis());

/// The webhook: ports and configuration.
#[derive(Debug)]
pub struct Webhook<L = DynamoLedger, I = ShedInboxes, D = Store, T = forebay_aws::clock::System> {
    pub(crate) config: Config,
    pub(crate) ledger: L,
    pub(crate) inboxes: I,
    pub(crate) secrets: SecretCache<D>,
    pub(crate) time: T,
    pub(crate) metrics: Metrics,
}

/// When a request began, and when its parts must have ended.
///
/// The ends are on the runtime's clock, which only goes forward: a wall clock that is set back would lengthen them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) started_at: Timestamp,
    pub(crate) admit_by: Instant,
    pub(crate) answer_by: Instant,
}

impl Schedule {
    fn from(started_at: Timestamp) -> Self {
        let now = Instant::now();
        Self {
            started_at,
            admit_by: now + ADMIT_TIME_MAX,
            answer_by: now + ANSWER_TIME_MAX,
        }
    }
}

/// The answer of a function whose configuration is unusable.
#[must_use]
pub fn refuse_misconfigured(event: &HttpEvent) -> HttpAnswer {
    let refuse = || refused(&Headers::of(event), Refusal::Misconfigured).to_http();
    not_ours(event).unwrap_or_else(refuse).in_format(event.format())
}

/// The answer to a refused delivery.
pub(crate) fn refused(headers: &Headers, refusal: Refusal) -> Answer {
    Answer {
        delivery: headers.guid.as_ref().map(|guid| guid.as_str().to_owned()),
        event: headers.event_name.as_ref().map(|name| name.as_str().to_owned()),
        verdict: Verdict::Refused(refusal),
        events: Vec::new(),
    }
}

/// A delivery whose signature and identity are right, and what it means.
pub(crate) struct Arrived<'a> {
    pub(crate) delivery: Delivery,
    pub(crate) body: &'a [u8],
    pub(crate) event: Option<Event>,
    pub(crate) names: Vec<Named>,
}

impl Webhook {
    /// The webhook on AWS.
    #[must_use]
    pub fn new(config: Config, clients: Clients, time: forebay_aws::clock::System, metrics: Metrics) -> Self {
        Self::with(config, clients.ledger, clients.inboxes, clients.secrets, time, metrics)
    }
}

impl<L: Ledger, I: Inboxes, D: Documents, T: TimeAndChance> Webhook<L, I, D, T> {
    /// The webhook on these ports.
    #[must_use]
    pub fn with(config: Config, ledger: L, inboxes: I, secrets: SecretCache<D>, time: T, metrics: Metrics) -> Self {
        Self {
            config,
            ledger,
            inboxes,
            secrets,
            time,
            metrics,
        }
    }

    /// Answers one request. Never fails: what goes wrong is an answer.
    pub async fn answer(&self, event: HttpEvent) -> HttpAnswer {
        let format = event.format();
        self.answer_plainly(event).await.in_format(format)
    }

    async fn answer_plainly(&self, event: HttpEvent) -> HttpAnswer {
        if let Some(answer) = not_ours(&event) {
            return answer;
        }
        let schedule = Schedule::from(self.time.now());
        let headers = Headers::of(&event);
        // Boxed: the futures of all the calls in a row are too deep a type for the compiler.
        let answer = match Box::pin(self.handle(event, &headers, schedule)).await {
            Ok(handled) => self.report(&headers, &handled, schedule.started_at),
            Err(refusal) => self.report_refusal(&headers, refusal, schedule.started_at),
        };
        answer.to_http()
    }

    async fn handle(&self, event: HttpEvent, headers: &Headers, schedule: Schedule) -> Result<Handled, Refusal> {
        if !self.may_call(&event) {
            return Err(Refusal::BadSignature);
        }
        let started_at = schedule.started_at;
        let body = request::body(event, self.config.body_bytes_max)?;
        let secrets = self.secrets(started_at).await?;
        let verified = self.verify(&secrets, headers, &body, started_at).await?;
        let (key, event_name) = headers.identity()?;
        let arrived = self.read(&verified, headers, key, event_name, started_at)?;
        Ok(self.keep_and_drive(arrived, schedule).await)
    }

    fn may_call(&self, event: &HttpEvent) -> bool {
        let ranges = &self.config.source_ranges;
        let inside = |address| ranges.iter().any(|range| range.contains(address));
        ranges.is_empty() || event.source().is_some_and(inside)
    }

    async fn secrets(&self, now: Timestamp) -> Result<Arc<Secrets>, Refusal> {
        match self.secrets.current(now).await {
            Ok(secrets) if secrets.is_empty() => Err(Refusal::NoWebhookSecret),
            Ok(secrets) => Ok(secrets),
            Err(error) => {
                tracing::error!("{error}; refuse deliveries until it can be read");
                Err(Refusal::NoWebhookSecret)
            }
        }
    }

    /// Checks the signature; where it fits nothing, once more with secrets read anew.
    async fn verify<'a>(
        &self,
        secrets: &Secrets,
        headers: &Headers,
        body: &'a [u8],
        now: Timestamp,
    ) -> Result<VerifiedBody<'a>, Refusal> {
        let signatures: Vec<&str> = headers.signatures.iter().map(String::as_str).collect();
        if let Some(verified) = secrets.verify(&signatures, body) {
            return Ok(verified);
        }
        let refreshed = self.secrets.refreshed(now).await.ok_or(Refusal::BadSignature)?;
        refreshed.verify(&signatures, body).ok_or(Refusal::BadSignature)
    }

    /// What the delivery means, if one of the keys that signed it may say so.
    fn read<'a>(
        &self,
        verified: &VerifiedBody<'a>,
        headers: &Headers,
        key: DeliveryKey,
        event_name: EventName,
        received_at: Timestamp,
    ) -> Result<Arrived<'a>, Refusal> {
        let body = verified.bytes();
        let envelope = Envelope {
            host: self.config.github_host.as_deref(),
            key: Some(&key),
            event_name: &event_name,
            content_type: headers.content_type.as_deref(),
        };
        let Reading {
            action,
            repository,
            meaning,
            names,
        } = read(&envelope, body);
        let verified_by = verified
            .key_for(repository.as_ref())
            .ok_or(Refusal::BadSignature)?
            .to_owned();
        let (outcome, event) = match meaning {
            Meaning::Event(event) => (Outcome::Accepted(event.id.clone()), Some(*event)),
            Meaning::Ignored(why) => (Outcome::Ignored(why), None),
            Meaning::Malformed(why) => (Outcome::Malformed(why), None),
        };
        let delivery = Delivery {
            key,
            event_name,
            action,
            headers: headers.kept.clone(),
            digest: Digest::of(body),
            size: u64::try_from(body.len()).unwrap_or(u64::MAX),
            verified_by,
            net: Net::Webhook,
            outcome,
            received_at,
        };
        Ok(Arrived {
            delivery,
            body,
            event,
            names,
        })
    }
}
