//! What is told of a delivery: its answer, one log line, one line of metrics.

use std::collections::BTreeSet;

use forebay_aws::metrics::{DeliveryAnswered, DeliveryRefused, EventCaught, Record, SeenOnlyBy, system_time};
use forebay_aws::secrets::Documents;
use forebay_core::drive::Driven;
use forebay_core::event::Kind;
use forebay_core::ledger::{Reason, Refused, Status};
use forebay_core::ports::{Inboxes, Ledger, TimeAndChance};
use jiff::Timestamp;

use crate::answer::{Answer, Refusal, Verdict};
use crate::handle::{Webhook, refused};
use crate::keep::{Drive, Handled};
use crate::request::Headers;

impl Drive {
    fn settled(&self) -> Option<(Status, Reason, &BTreeSet<String>)> {
        match self {
            Self::Ended(Driven::Settled {
                status,
                reason,
                sent_to,
            }) => Some((*status, *reason, sent_to)),
            Self::Ended(Driven::Lost(_)) | Self::Needless | Self::Unanswered => None,
        }
    }

    /// Why the event was not this delivery's to handle, or no longer.
    fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Ended(Driven::Lost(refused)) => Some(refused),
            Self::Ended(Driven::Settled { .. }) | Self::Needless | Self::Unanswered => None,
        }
    }

    /// Inboxes that got the event.
    fn sent(&self) -> u64 {
        let sent = self.settled().map_or(0, |(_, _, sent_to)| sent_to.len());
        u64::try_from(sent).unwrap_or(u64::MAX)
    }

    fn has_parked(&self) -> bool {
        self.settled().is_some_and(|(status, ..)| status == Status::Parked)
    }

    /// Whether the event is left for later.
    fn is_pending(&self) -> bool {
        match self {
            Self::Unanswered => true,
            Self::Ended(_) | Self::Needless => self
                .settled()
                .is_some_and(|(status, ..)| status == Status::FailedRetryable),
        }
    }
}

impl<L: Ledger, I: Inboxes, D: Documents, T: TimeAndChance> Webhook<L, I, D, T> {
    pub(crate) fn report_refusal(&self, headers: &Headers, refusal: Refusal, started_at: Timestamp) -> Answer {
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
            duration_ms: milliseconds(started_at, self.time.now()),
        }));
        answer
    }

    pub(crate) fn report(&self, headers: &Headers, handled: &Handled, started_at: Timestamp) -> Answer {
        let events = match handled.verdict {
            Verdict::Accepted | Verdict::Duplicate => handled.kind.map(Kind::as_str).into_iter().collect(),
            Verdict::Ignored | Verdict::Refused(_) | Verdict::Failed => Vec::new(),
        };
        let answer = Answer {
            verdict: handled.verdict,
            events,
            ..refused(headers, Refusal::BadDelivery)
        };
        let duration_ms = milliseconds(started_at, self.time.now());
        let settled = handled.drive.settled();
        tracing::info!(
            delivery.id = answer.delivery.as_deref(),
            delivery.event = answer.event.as_deref(),
            outcome = answer.verdict.as_str(),
            event.kind = handled.kind.map(Kind::as_str),
            event.status = settled.map(|(status, ..)| status.as_str()),
            event.reason = settled.map(|(_, reason, _)| reason.as_str()),
            event.refused = handled.drive.refused().map(Refused::as_str),
            sent = handled.drive.sent(),
            duration_ms,
            "answer delivery"
        );
        if let Some(caught) = caught(handled, started_at) {
            self.metrics.emit(caught);
        }
        if let Some(net) = handled.joined {
            let joined = SeenOnlyBy::new(system_time(started_at), net, -1);
            self.metrics.emit(Record::SeenOnlyBy(joined));
        }
        self.metrics.emit(answered(handled, started_at, duration_ms));
        answer
    }
}

fn answered(handled: &Handled, started_at: Timestamp, duration_ms: u64) -> Record {
    let drive = &handled.drive;
    Record::Answered(DeliveryAnswered {
        timestamp: system_time(started_at),
        outcome: handled.verdict.as_str(),
        deliveries: 1,
        conflicts: u64::from(handled.conflict),
        sent: drive.sent(),
        parked: u64::from(drive.has_parked()),
        pending: u64::from(drive.is_pending()),
        silenced: handled.silenced.then_some(1),
        duration_ms,
    })
}

/// The event that this delivery brought, if it was the first to bring it.
fn caught(handled: &Handled, started_at: Timestamp) -> Option<Record> {
    let kind = handled.kind.filter(|_| handled.created)?;
    Some(Record::Caught(EventCaught {
        timestamp: system_time(started_at),
        kind: kind.as_str(),
        events: 1,
        latency_ms: handled.occurred_at.map_or(0, |at| milliseconds(at, started_at)),
    }))
}

fn milliseconds(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or(0)
}
