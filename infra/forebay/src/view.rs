//! Rows of the ledger as they are shown: fields for programs, lines for people.

use std::collections::BTreeMap;
use std::fmt;

use forebay_core::delivery::Outcome;
use forebay_core::event::Net;
use forebay_core::ledger::{DeliveryRow, EventRow, Sent};
use jiff::SignedDuration;
use serde::Serialize;

use crate::time::Time;

/// Width of the names before the values.
const NAME_WIDTH: usize = 14;

/// An event as it is shown.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EventView {
    /// Its id.
    pub(crate) id: String,
    /// What happened.
    pub(crate) kind: &'static str,
    /// About what: `owner/name#12`.
    pub(crate) subject: String,
    pull_requests: Vec<u64>,
    actor: Option<String>,
    summary: String,
    url: Option<String>,
    branch: Option<String>,
    base: Option<String>,
    head_sha: Option<String>,
    conclusion: Option<String>,
    status: &'static str,
    reason: Option<&'static str>,
    destinations: BTreeMap<String, &'static str>,
    token: u64,
    failures: u32,
    tries: u32,
    generation: u32,
    waiting_for: Option<String>,
    lease_until: Option<Time>,
    due_at: Option<Time>,
    occurred_at: Option<Time>,
    /// When the ledger first had it.
    pub(crate) admitted_at: Time,
    /// From the happening to its admission.
    latency_ms: Option<i64>,
    first_seen: &'static str,
    seen_by: Vec<&'static str>,
    expires_at: Option<Time>,
    delivery: Option<String>,
}

impl EventView {
    /// The view of `row`.
    pub(crate) fn of(row: &EventRow) -> Self {
        let EventRow {
            event,
            state,
            admitted_at,
            first_seen,
            seen_by,
        } = row;
        let latency = event
            .occurred_at
            .map(|at| admitted_at.as_millisecond().saturating_sub(at.as_millisecond()));
        let destinations = state.destinations.iter();
        Self {
            id: event.id.to_string(),
            kind: event.kind.as_str(),
            subject: event.subject.to_string(),
            pull_requests: event.pull_requests.clone(),
            actor: event.actor.clone(),
            summary: event.summary.clone(),
            url: event.url.clone(),
            branch: event.branch.clone(),
            base: event.base.clone(),
            head_sha: event.head_sha.clone(),
            conclusion: event.conclusion.clone(),
            status: state.status.as_str(),
            reason: state.reason.map(|reason| reason.as_str()),
            destinations: destinations
                .map(|(inbox, sent)| (inbox.clone(), sent.as_str()))
                .collect(),
            token: state.token.number(),
            failures: state.failures,
            tries: state.tries,
            generation: state.generation,
            waiting_for: state.waiting_for.as_ref().map(ToString::to_string),
            lease_until: state.lease_until.map(Time),
            due_at: state.due_at.map(Time),
            occurred_at: event.occurred_at.map(Time),
            admitted_at: Time(*admitted_at),
            latency_ms: latency,
            first_seen: first_seen.as_str(),
            seen_by: seen_by.iter().copied().map(Net::as_str).collect(),
            expires_at: state.expires_at.map(Time),
            delivery: event.delivery.as_ref().map(ToString::to_string),
        }
    }

    /// Where it stands and why, in one word or two.
    pub(crate) fn standing(&self) -> String {
        standing(self.status, self.reason)
    }

    /// Inboxes that have it.
    pub(crate) fn inboxes(&self) -> String {
        let sent = self
            .destinations
            .iter()
            .filter(|(_, sent)| **sent == Sent::Yes.as_str());
        let names: Vec<&str> = sent.map(|(inbox, _)| inbox.as_str()).collect();
        names.join(" ")
    }
}

impl fmt::Display for EventView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latency = self.latency_ms.map(SignedDuration::from_millis);
        let latency = latency
            .map(|latency| format!(" ({latency:#} later)"))
            .unwrap_or_default();
        let pulls: Vec<String> = self.pull_requests.iter().map(|number| format!("#{number}")).collect();
        let fields = [
            ("event", self.id.clone()),
            ("kind", self.kind.to_owned()),
            ("subject", self.subject.clone()),
            ("pull requests", pulls.join(" ")),
            ("actor", text(self.actor.as_ref())),
            ("summary", self.summary.clone()),
            ("url", text(self.url.as_ref())),
            ("branch", text(self.branch.as_ref())),
            ("base", text(self.base.as_ref())),
            ("head", text(self.head_sha.as_ref())),
            ("conclusion", text(self.conclusion.as_ref())),
            ("status", self.standing()),
            ("destinations", pairs(&self.destinations, ", ")),
            ("token", self.token.to_string()),
            ("failures", count(self.failures)),
            ("tries", count(self.tries)),
            ("generation", count(self.generation)),
            ("waiting for", text(self.waiting_for.as_ref())),
            ("lease until", text(self.lease_until.as_ref())),
            ("due at", text(self.due_at.as_ref())),
            ("occurred at", text(self.occurred_at.as_ref())),
            ("admitted at", format!("{}{latency}", self.admitted_at)),
            ("first seen", self.first_seen.to_owned()),
            ("seen by", self.seen_by.join(" ")),
            ("expires at", text(self.expires_at.as_ref())),
            ("delivery", text(self.delivery.as_ref())),
        ];
        lines(f, &fields)
    }
}

/// A delivery as it is shown, without its body.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DeliveryView {
    /// Its key: `<hook>/<guid>`.
    pub(crate) key: String,
    /// `X-GitHub-Event`.
    pub(crate) event_name: String,
    action: Option<String>,
    /// `accepted`, `ignored` or `malformed`.
    pub(crate) outcome: &'static str,
    reason: Option<&'static str>,
    /// Id of the event that it means.
    pub(crate) event: Option<String>,
    /// When it arrived.
    pub(crate) received_at: Time,
    net: &'static str,
    verified_by: String,
    /// Length of the body.
    pub(crate) size: u64,
    stored_bytes: u64,
    redacted_at: Option<Time>,
    sha256: String,
    headers: BTreeMap<String, String>,
    expires_at: Time,
}

impl DeliveryView {
    /// The view of `row`.
    pub(crate) fn of(row: &DeliveryRow) -> Self {
        let delivery = &row.delivery;
        let (outcome, reason, event) = match &delivery.outcome {
            Outcome::Accepted(event) => ("accepted", None, Some(event.to_string())),
            Outcome::Ignored(why) => ("ignored", Some(why.as_str()), None),
            Outcome::Malformed(why) => ("malformed", Some(why.as_str()), None),
        };
        Self {
            key: delivery.key.to_string(),
            event_name: delivery.event_name.as_str().to_owned(),
            action: delivery.action.clone(),
            outcome,
            reason,
            event,
            received_at: Time(delivery.received_at),
            net: delivery.net.as_str(),
            verified_by: delivery.verified_by.clone(),
            size: delivery.size,
            stored_bytes: row.stored_bytes,
            redacted_at: row.redacted_at.map(Time),
            sha256: delivery.digest.to_string(),
            headers: delivery.headers.iter().cloned().collect(),
            expires_at: Time(row.expires_at),
        }
    }

    /// The event that it means, or why it means none.
    pub(crate) fn meaning(&self) -> String {
        let reason = self.reason.map(str::to_owned);
        self.event.clone().or(reason).unwrap_or_default()
    }
}

impl fmt::Display for DeliveryView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [
            ("delivery", self.key.clone()),
            ("name", self.event_name.clone()),
            ("action", text(self.action.as_ref())),
            ("outcome", standing(self.outcome, self.reason)),
            ("event", text(self.event.as_ref())),
            ("received at", self.received_at.to_string()),
            ("net", self.net.to_owned()),
            ("verified by", self.verified_by.clone()),
            (
                "body",
                match self.redacted_at {
                    None => format!("{} bytes, {} in the ledger", self.size, self.stored_bytes),
                    Some(at) => format!("{} bytes, redacted at {at}", self.size),
                },
            ),
            ("sha256", self.sha256.clone()),
            ("headers", pairs(&self.headers, "\n")),
            ("expires at", self.expires_at.to_string()),
        ];
        lines(f, &fields)
    }
}

/// A word, and why.
fn standing(word: &str, reason: Option<&str>) -> String {
    let words: Vec<&str> = [word].into_iter().chain(reason).collect();
    words.join(" ")
}

/// Names and values, one a line; what is empty is left out.
fn lines(f: &mut fmt::Formatter<'_>, fields: &[(&str, String)]) -> fmt::Result {
    let there = fields.iter().filter(|(_, value)| !value.is_empty());
    let lines = there.map(|(name, value)| {
        // A text of several lines stays in its column.
        let value = value.trim_end().replace('\n', &format!("\n  {:NAME_WIDTH$}", ""));
        format!("  {name:<NAME_WIDTH$}{value}")
    });
    f.write_str(&lines.collect::<Vec<_>>().join("\n"))
}

/// `value` as text; nothing where there is none.
fn text<T: ToString>(value: Option<&T>) -> String {
    value.map(T::to_string).unwrap_or_default()
}

/// A count, where there is something to count.
fn count(number: u32) -> String {
    if number == 0 { String::new() } else { number.to_string() }
}

/// Pairs as `name value`, separated by `between`.
fn pairs<V: fmt::Display>(values: &BTreeMap<String, V>, between: &str) -> String {
    let pairs = values.iter().map(|(name, value)| format!("{name} {value}"));
    pairs.collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Block(Vec<(&'static str, String)>);

    impl fmt::Display for Block {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            lines(f, &self.0)
        }
    }

    #[test]
    fn empty_fields_are_left_out_and_long_texts_stay_in_their_column() {
        let block = Block(vec![
            ("id", "github/comment/7".to_owned()),
            ("lease until", String::new()),
            ("summary", "first\nsecond\n".to_owned()),
        ]);
        let expected = "  id            github/comment/7\n  summary       first\n                second";
        assert_eq!(block.to_string(), expected);
    }
}
