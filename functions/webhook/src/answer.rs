//! What the webhook answers.

use forebay_aws::http_event::HttpAnswer;
use serde::Serialize;

/// Why a delivery is refused: the word that the caller sees, and all that it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The signature is missing or fits no secret that may speak for the repository.
    BadSignature,
    /// Delivery id, hook id, event name or encoding is missing or malformed.
    BadDelivery,
    /// The body is over the limit.
    TooLarge,
    /// There is no secret to verify with.
    NoWebhookSecret,
    /// The function's own configuration is unusable.
    Misconfigured,
}

impl Refusal {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadSignature => "bad_signature",
            Self::BadDelivery => "bad_delivery",
            Self::TooLarge => "too_large",
            Self::NoWebhookSecret => "no_webhook_secret",
            Self::Misconfigured => "misconfigured",
        }
    }

    const fn status(self) -> u16 {
        match self {
            Self::BadSignature => 401,
            Self::BadDelivery => 400,
            Self::TooLarge => 413,
            Self::NoWebhookSecret | Self::Misconfigured => 503,
        }
    }
}

/// What came of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Kept, and it means an event.
    Accepted,
    /// Kept, and it means nothing to us.
    Ignored,
    /// Kept before.
    Duplicate,
    /// Not kept.
    Refused(Refusal),
    /// Could not be made durable.
    Failed,
}

impl Verdict {
    /// The outcome's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Ignored => "ignored",
            Self::Duplicate => "duplicate",
            Self::Refused(_) => "refused",
            Self::Failed => "failed",
        }
    }

    const fn status(self) -> u16 {
        match self {
            Self::Accepted | Self::Ignored => 202,
            Self::Duplicate => 200,
            Self::Refused(refusal) => refusal.status(),
            Self::Failed => 500,
        }
    }

    const fn refusal(self) -> Option<&'static str> {
        match self {
            Self::Refused(refusal) => Some(refusal.as_str()),
            Self::Accepted | Self::Ignored | Self::Duplicate | Self::Failed => None,
        }
    }
}

/// An answer: what was asked about, and the verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The delivery's GUID, where its header was well-formed.
    pub delivery: Option<String>,
    /// The event's name, where its header was well-formed.
    pub event: Option<String>,
    /// What came of it.
    pub verdict: Verdict,
    /// Kinds of the events that it means.
    pub events: Vec<&'static str>,
}

/// The answer as its caller reads it; what is empty is left out.
#[derive(Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'a str>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    events: &'a [&'static str],
}

impl Answer {
    /// The answer as HTTP.
    #[must_use]
    pub fn to_http(&self) -> HttpAnswer {
        let body = Body {
            delivery: self.delivery.as_deref(),
            event: self.event.as_deref(),
            outcome: self.verdict.as_str(),
            refusal: self.verdict.refusal(),
            events: &self.events,
        };
        // Text and lists of text always serialise; an empty body would still carry the status.
        let body = serde_json::to_string(&body).unwrap_or_default();
        HttpAnswer::json(self.verdict.status(), body)
    }
}
