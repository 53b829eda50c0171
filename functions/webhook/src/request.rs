//! From an HTTP request to the parts of a delivery, refusing what is none.

use forebay_aws::http_event::{BodyError, HttpAnswer, HttpEvent};
use forebay_core::delivery::{DeliveryKey, EventName, Guid, HookId};

use crate::answer::Refusal;

/// The path that GitHub posts to; a slash at its end is ignored.
pub const PATH: &str = "/api/intake/github";
/// Longest header value that is kept for audit, in bytes.
const HEADER_BYTES_MAX: usize = 256;
/// Headers that are kept beside a delivery. None of them is secret or computed from a secret.
const KEPT_HEADERS: [&str; 5] = [
    "content-type",
    "user-agent",
    "x-github-hook-installation-target-id",
    "x-github-hook-installation-target-type",
    "x-github-enterprise-host",
];
const SIGNATURE: &str = "x-hub-signature-256";
const DELIVERY: &str = "x-github-delivery";
const EVENT: &str = "x-github-event";
const HOOK: &str = "x-github-hook-id";

/// The answer to what is no delivery at all: another path or another method.
pub(crate) fn not_ours(event: &HttpEvent) -> Option<HttpAnswer> {
    let path = event.path();
    if path.strip_suffix('/').unwrap_or(path) != PATH {
        return Some(HttpAnswer::json(404, r#"{"error":"not found"}"#.to_owned()));
    }
    if event.method() != "POST" {
        let answer = HttpAnswer::json(405, r#"{"error":"method not allowed"}"#.to_owned());
        return Some(answer.with_header("allow", "POST"));
    }
    None
}

/// What the headers say, before anything is believed. Not `Debug`: signatures are among them.
pub(crate) struct Headers {
    pub(crate) signatures: Vec<String>,
    pub(crate) guid: Option<Guid>,
    pub(crate) event_name: Option<EventName>,
    pub(crate) hook: Option<HookId>,
    pub(crate) content_type: Option<String>,
    pub(crate) kept: Vec<(String, String)>,
}

impl Headers {
    pub(crate) fn of(event: &HttpEvent) -> Self {
        let kept = KEPT_HEADERS.iter().filter_map(|name| {
            let value = event.header(name)?;
            Some((
                (*name).to_owned(),
                value[..value.floor_char_boundary(HEADER_BYTES_MAX)].to_owned(),
            ))
        });
        let hook = match event.header_values(HOOK).as_slice() {
            [] => HookId::parse(None),
            [one] => HookId::parse(Some(one)),
            _ => None,
        };
        Self {
            signatures: event.header_values(SIGNATURE).into_iter().map(str::to_owned).collect(),
            guid: event.header(DELIVERY).and_then(Guid::parse),
            event_name: event.header(EVENT).and_then(EventName::parse),
            hook,
            content_type: event.header("content-type").map(str::to_owned),
            kept: kept.collect(),
        }
    }

    /// The delivery's identity.
    pub(crate) fn identity(&self) -> Result<(DeliveryKey, EventName), Refusal> {
        match (&self.hook, &self.guid, &self.event_name) {
            (Some(hook), Some(guid), Some(name)) => Ok((
                DeliveryKey {
                    hook: hook.clone(),
                    guid: guid.clone(),
                },
                name.clone(),
            )),
            _ => Err(Refusal::BadDelivery),
        }
    }
}

/// The body's exact bytes.
pub(crate) fn body(event: HttpEvent, bytes_max: usize) -> Result<Vec<u8>, Refusal> {
    event.into_body(bytes_max).map_err(|error| match error {
        BodyError::TooLarge => Refusal::TooLarge,
        BodyError::NotBase64 => Refusal::BadDelivery,
    })
}
