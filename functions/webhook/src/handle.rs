//! One delivery, from its request to its answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_aws::config::Config;
use forebay_aws::dynamodb::DynamoLedger;
use forebay_aws::http_event::{HttpAnswer, HttpEvent};
use forebay_aws::metrics::{DeliveryAccepted, DeliveryAnswered, DeliveryRefused, Metrics, Record, system_time};
use forebay_aws::secrets::{Documents, SecretCache, Store};
use forebay_aws::sqs::SqsInboxes;
use forebay_aws::start::Clients;
use forebay_core::delivery::{Delivery, DeliveryKey, Digest, EventName, Outcome};
use forebay_core::drive::{Driven, Driver, admittee, pointer_keys};
use forebay_core::event::{Event, Kind, Net};
use forebay_core::github::{Envelope, Meaning, Named, Reading, read};
use forebay_core::ledger::{Admission, Admitted, Admittee, Cause, EventRow, Nonce, Status};
use forebay_core::ports::{Inboxes, Ledger, LedgerError, TimeAndChance};
use forebay_core::session::{OwnerKey, Pointers};
use forebay_core::signature::{Secrets, VerifiedBody};
use jiff::Timestamp;

use crate::answer::{Answer, Refusal, Verdict};
use crate::request::{self, Headers, not_ours};

/// Longest time from a request to its answer. GitHub gives up after ten seconds
/// (<https://docs.github.com/en/webhooks/using-webhooks/handling-failed-webhook-deliveries>).
const ANSWER_TIME_MAX: Duration = Duration::from_millis(7_500);
/// Longest time until a delivery is durable. What is left of the whole is for driving its event.
const ADMIT_TIME_MAX: Duration = Duration::from_millis(5_500);
/// Most branches of one payload whose pull requests are remembered.
const NAMES_MAX: usize = 10;

/// The webhook: ports and configuration.
#[derive(Debug)]
pub struct Webhook<L = DynamoLedger, I = SqsInboxes, D = Store, T = forebay_aws::clock::System> {
    config: Config,
    ledger: L,
    inboxes: I,
    secrets: SecretCache<D>,
    time: T,
    metrics: Metrics,
}

/// The answer of a function whose configuration is unusable.
#[must_use]
pub fn refuse_misconfigured(event: &HttpEvent) -> HttpAnswer {
    not_ours(event).unwrap_or_else(|| {
        let headers = Headers::of(event);
        refused(&headers, Refusal::Misconfigured).to_http()
    })
}

fn refused(headers: &Headers, refusal: Refusal) -> Answer {
    Answer {
        delivery: headers.guid.as_ref().map(|guid| guid.as_str().to_owned()),
        event: headers.event_name.as_ref().map(|name| name.as_str().to_owned()),
        verdict: Verdict::Refused(refusal),
        events: Vec::new(),
    }
}

/// A delivery whose signature and identity are right, and what it means.
struct Arrived<'a> {
    delivery: Delivery,
    body: &'a [u8],
    event: Option<Event>,
    names: Vec<Named>,
}

/// What came of a delivery and of its event, for the answer, the log and the metrics.
struct Handled {
    verdict: Verdict,
    kind: Option<Kind>,
    conflict: bool,
    created: bool,
    driven: Option<Driven>,
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
        if let Some(answer) = not_ours(&event) {
            return answer;
        }
        let started_at = self.time.now();
        let headers = Headers::of(&event);
        // Boxed: the futures of all the calls in a row are too deep a type for the compiler.
        let answer = match Box::pin(self.handle(event, &headers, started_at)).await {
            Ok((arrived_kind, handled)) => self.report(&headers, arrived_kind, &handled, started_at),
            Err(refusal) => self.report_refusal(&headers, refusal, started_at),
        };
        answer.to_http()
    }

    async fn handle(
        &self,
        event: HttpEvent,
        headers: &Headers,
        started_at: Timestamp,
    ) -> Result<(Option<Timestamp>, Handled), Refusal> {
        if !self.may_call(&event) {
            return Err(Refusal::BadSignature);
        }
        let body = request::body(event, self.config.body_bytes_max)?;
        let secrets = self.secrets(started_at).await?;
        let verified = self.verify(&secrets, headers, &body, started_at).await?;
        let (key, event_name) = headers.identity()?;
        let arrived = self.read(&verified, headers, key, event_name, started_at)?;
        let occurred_at = arrived.event.as_ref().and_then(|event| event.occurred_at);
        Ok((occurred_at, self.keep_and_drive(arrived, started_at).await))
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
            key: &key,
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

    fn driver(&self) -> Driver<'_, L, I, T> {
        Driver {
            ledger: &self.ledger,
            inboxes: &self.inboxes,
            time: &self.time,
            routing: &self.config.routing,
            limits: &self.config.limits,
        }
    }

    /// Makes the delivery durable, then drives its event as far as the time allows. From the admission on, nothing that
    /// fails changes the answer: the ledger has it.
    async fn keep_and_drive(&self, arrived: Arrived<'_>, started_at: Timestamp) -> Handled {
        let Arrived {
            delivery,
            body,
            event,
            names,
        } = arrived;
        let nonce = Nonce::from_random(self.time.random());
        let kind = event.as_ref().map(|event| event.kind);
        let admission = Admission {
            delivery: &delivery,
            body,
            event: event.map(|event| admittee(event, &self.config.routing, &self.config.limits, nonce, started_at)),
            nonce,
            expires_at: self.config.limits.delivery_expires_at(started_at),
        };
        let keys = keys_beside(admission.event.as_ref(), &names);
        // Owners are read beside the admission: for most events that is all that routing needs.
        let admitted = async { tokio::join!(self.ledger.admit(&admission), self.ledger.pointers(&keys)) };
        let (admitted, pointers) = match tokio::time::timeout(ADMIT_TIME_MAX, admitted).await {
            Ok((Ok(admitted), pointers)) => (admitted, pointers),
            Ok((Err(error), _)) => {
                tracing::error!(delivery.id = %delivery.key, error = %source_of(&error), "{error}");
                return failed(kind);
            }
            Err(_elapsed) => {
                tracing::error!(delivery.id = %delivery.key, "admit delivery {}: out of time", delivery.key);
                return failed(kind);
            }
        };
        let handled = Handled {
            verdict: match (&admitted, kind) {
                (Admitted::Duplicate { .. }, _) => Verdict::Duplicate,
                (Admitted::Created { .. } | Admitted::Joined { .. }, Some(_)) => Verdict::Accepted,
                (Admitted::Created { .. } | Admitted::Joined { .. }, None) => Verdict::Ignored,
            },
            kind,
            conflict: matches!(admitted, Admitted::Duplicate { conflict: true, .. }),
            created: matches!(admitted, Admitted::Created { .. }) && kind.is_some(),
            driven: None,
        };
        let spent = Duration::try_from(self.time.now().duration_since(started_at)).unwrap_or_default();
        let left = ANSWER_TIME_MAX.saturating_sub(spent);
        let driving = self.drive(admitted, admission.event.as_ref(), &delivery, pointers, &names);
        let driven = match tokio::time::timeout(left, driving).await {
            Ok(Ok(driven)) => driven,
            Ok(Err(error)) => {
                tracing::warn!(delivery.id = %delivery.key, error = %source_of(&error), "{error}; it is due again later");
                None
            }
            Err(_elapsed) => {
                tracing::warn!(delivery.id = %delivery.key, "drive the event of {}: out of time; it is due again later", delivery.key);
                None
            }
        };
        Handled { driven, ..handled }
    }

    async fn drive(
        &self,
        admitted: Admitted,
        admittee: Option<&Admittee>,
        delivery: &Delivery,
        pointers: Result<Pointers, LedgerError>,
        names: &[Named],
    ) -> Result<Option<Driven>, LedgerError> {
        let driver = self.driver();
        match (admitted, admittee) {
            (Admitted::Created { lease: Some(lease) }, Some(admittee)) => {
                let row = new_row(admittee, delivery);
                let (driven, ()) = match pointers {
                    Ok(pointers) => {
                        tokio::join!(driver.drive(&row, lease, &pointers), self.remember(names, &pointers))
                    }
                    Err(error) => {
                        tracing::warn!(event.id = %row.event.id, "{error}; postpone event {}", row.event.id);
                        (driver.postpone(&row, lease).await, ())
                    }
                };
                driven.map(Some)
            }
            (Admitted::Created { .. }, Some(_)) => {
                if let Ok(pointers) = pointers {
                    self.remember(names, &pointers).await;
                }
                Ok(None)
            }
            // What means no event is kept at the price of one call, unless a session stands to gain from its names.
            (Admitted::Created { .. }, None) => {
                if let Ok(pointers) = pointers {
                    let now = self.time.now();
                    let owned: Vec<Named> = names
                        .iter()
                        .filter(|named| is_owned(named, &pointers, now))
                        .cloned()
                        .collect();
                    self.remember(&owned, &pointers).await;
                }
                Ok(None)
            }
            (Admitted::Joined { event: Some(row) } | Admitted::Duplicate { event: Some(row), .. }, _) => {
                driver.drive_if_due(&row).await.map(Some)
            }
            (Admitted::Joined { event: None }, Some(admittee)) => {
                driver.claim_and_drive(&admittee.event.id, Cause::Due).await.map(Some)
            }
            (Admitted::Joined { event: None } | Admitted::Duplicate { event: None, .. }, _) => Ok(None),
        }
    }

    /// Remembers which pull requests a payload's branches have, lets the branches' sessions own them, and drives what
    /// waited for that. Comments carry no branch: this is how they find the session.
    async fn remember(&self, names: &[Named], known: &Pointers) {
        for named in names.iter().take(NAMES_MAX) {
            if let Err(error) = self.remember_one(named, known).await {
                // The next payload that names them brings it again.
                tracing::warn!(error = %source_of(&error), "{error}");
            }
        }
    }

    async fn remember_one(&self, named: &Named, known: &Pointers) -> Result<(), LedgerError> {
        let Named {
            repository,
            branch,
            pull,
        } = named;
        let branch_key = OwnerKey::branch(repository, branch);
        let pull_key = OwnerKey::pull(repository, *pull);
        let pointer = match known.0.get(&branch_key) {
            Some(pointer) if pointer.pulls.contains(pull) => pointer.clone(),
            Some(_) | None => self.ledger.learn(repository, branch, *pull, self.time.now()).await?,
        };
        let now = self.time.now();
        let Some(owner) = pointer.owner.filter(|owner| now < owner.live_until) else {
            return Ok(());
        };
        if known.live_owner(&pull_key, now).is_some() {
            return Ok(());
        }
        if self.ledger.own(&pull_key, &owner, now).await? {
            for (event, driven) in self.driver().wake(&pull_key).await? {
                if let Err(error) = driven {
                    tracing::warn!(event.id = %event, error = %source_of(&error), "{error}; it is due again later");
                }
            }
        }
        Ok(())
    }

    fn report_refusal(&self, headers: &Headers, refusal: Refusal, started_at: Timestamp) -> Answer {
        let answer = refused(headers, refusal);
        tracing::info!(
            delivery.id = answer.delivery.as_deref(),
            delivery.event = answer.event.as_deref(),
            signed = !headers.signatures.is_empty(),
            refusal = refusal.as_str(),
            "refuse delivery"
        );
        self.metrics.emit(Record::Refused(DeliveryRefused {
            timestamp: system_time(started_at),
            outcome: answer.verdict.as_str(),
            refusal: refusal.as_str(),
            deliveries: 1,
            duration_ms: self.milliseconds_since(started_at),
        }));
        answer
    }

    fn report(
        &self,
        headers: &Headers,
        occurred_at: Option<Timestamp>,
        handled: &Handled,
        started_at: Timestamp,
    ) -> Answer {
        let answer = Answer {
            verdict: handled.verdict,
            ..refused(headers, Refusal::BadDelivery)
        };
        let duration_ms = self.milliseconds_since(started_at);
        let settled = match &handled.driven {
            Some(Driven::Settled {
                status,
                reason,
                sent_to,
            }) => Some((*status, *reason, sent_to)),
            Some(Driven::Lost(_)) | None => None,
        };
        let sent = settled.map_or(0, |(_, _, sent_to)| sent_to.len());
        tracing::info!(
            delivery.id = answer.delivery.as_deref(),
            delivery.event = answer.event.as_deref(),
            outcome = answer.verdict.as_str(),
            event.kind = handled.kind.map(Kind::as_str),
            event.status = settled.map(|(status, ..)| status.as_str()),
            event.reason = settled.map(|(_, reason, _)| reason.as_str()),
            sent,
            duration_ms,
            "answer delivery"
        );
        let timestamp = system_time(started_at);
        match (handled.verdict, handled.kind) {
            (Verdict::Accepted, Some(kind)) => self.metrics.emit(Record::Accepted(DeliveryAccepted {
                timestamp,
                outcome: answer.verdict.as_str(),
                kind: kind.as_str(),
                deliveries: 1,
                events: u64::from(handled.created),
                latency_ms: occurred_at.map_or(0, |at| milliseconds(at, started_at)),
                sent: u64::try_from(sent).unwrap_or(u64::MAX),
                parked: u64::from(settled.is_some_and(|(status, ..)| status == Status::Parked)),
                pending: u64::from(settled.is_some_and(|(status, ..)| status == Status::FailedRetryable)),
                duration_ms,
            })),
            _ => self.metrics.emit(Record::Answered(DeliveryAnswered {
                timestamp,
                outcome: answer.verdict.as_str(),
                deliveries: 1,
                conflicts: u64::from(handled.conflict),
                duration_ms,
            })),
        }
        let events = match handled.verdict {
            Verdict::Accepted | Verdict::Duplicate => handled.kind.map(Kind::as_str).into_iter().collect(),
            Verdict::Ignored | Verdict::Refused(_) | Verdict::Failed => Vec::new(),
        };
        Answer { events, ..answer }
    }

    fn milliseconds_since(&self, started_at: Timestamp) -> u64 {
        milliseconds(started_at, self.time.now())
    }
}

fn milliseconds(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or(0)
}

fn failed(kind: Option<Kind>) -> Handled {
    Handled {
        verdict: Verdict::Failed,
        kind,
        conflict: false,
        created: false,
        driven: None,
    }
}

/// Pointers to read beside the admission: what routing needs, and the branches and pull requests that the payload names.
fn keys_beside(admittee: Option<&Admittee>, names: &[Named]) -> Vec<OwnerKey> {
    let unsettled = admittee.filter(|admittee| admittee.state.status == Status::Claimed);
    let routing = unsettled
        .map(|admittee| pointer_keys(&admittee.event))
        .unwrap_or_default();
    let named = names.iter().take(NAMES_MAX).flat_map(|named| {
        [
            OwnerKey::branch(&named.repository, &named.branch),
            OwnerKey::pull(&named.repository, named.pull),
        ]
    });
    let distinct: BTreeSet<OwnerKey> = routing.into_iter().chain(named).collect();
    distinct.into_iter().collect()
}

fn is_owned(named: &Named, pointers: &Pointers, now: Timestamp) -> bool {
    pointers
        .live_owner(&OwnerKey::branch(&named.repository, &named.branch), now)
        .is_some()
}

/// The event's row as its admission wrote it.
fn new_row(admittee: &Admittee, delivery: &Delivery) -> EventRow {
    EventRow {
        event: admittee.event.clone(),
        state: admittee.state.clone(),
        admitted_at: delivery.received_at,
        first_seen: delivery.net,
        seen_by: BTreeSet::from([delivery.net]),
    }
}

/// What AWS said about a failed call: a code, never content.
fn source_of(error: &LedgerError) -> String {
    std::error::Error::source(error)
        .map(ToString::to_string)
        .unwrap_or_default()
}
