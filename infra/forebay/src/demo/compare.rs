//! What came of a step against what must come of it.

use std::collections::BTreeSet;

use forebay_aws::clock::System;
use forebay_core::ledger::EventRow;
use forebay_core::ports::{Ledger as _, Listed, Listing, TimeAndChance as _};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::connect::{Connected, answered};
use crate::error::Error;
use crate::inbox::Received;
use crate::manifest::Step;

/// More rows than any demonstration writes.
const ROWS_MAX: usize = 1_000;
/// Longer than any demonstration takes.
const DURATION_MAX: SignedDuration = SignedDuration::from_hours(1);

/// The fields in which `got` is not what was `expected`, each in words.
pub(super) fn fields<T: Serialize>(expected: &T, got: &T) -> Vec<String> {
    let (expected, got) = (object(expected), object(got));
    let names: BTreeSet<&String> = expected.keys().chain(got.keys()).collect();
    let shown = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    names
        .into_iter()
        .filter(|name| expected.get(*name) != got.get(*name))
        .map(|name| {
            format!(
                "{name}: {}, expected {}",
                shown(got.get(name)),
                shown(expected.get(name))
            )
        })
        .collect()
}

fn object(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    }
}

/// What is wrong with a message that came to `inbox` for `event`.
pub(super) fn message(inbox: &str, message: &Received, event: Option<&EventRow>) -> Option<String> {
    let Some(event) = event else {
        return Some(format!("inbox {inbox} got a message without an event in the ledger"));
    };
    let Some(got) = message.event() else {
        return Some(format!("inbox {inbox} got a message that is no event"));
    };
    let token = event.state.token.number();
    let is_right = got.id == event.event.id.as_str() && got.data.token == token && got.data.inbox == inbox;
    (!is_right).then(|| {
        format!(
            "inbox {inbox} got {} with token {} for {}, expected {} with token {token}",
            got.id, got.data.token, got.data.inbox, event.event.id
        )
    })
}

/// What is wrong with the ledger as a whole: it holds what was accepted or ignored, once, and nothing else.
pub(super) async fn ledger(connected: &Connected, demo: &[Step]) -> Result<Vec<String>, Error> {
    let now = System.now();
    let listing = |what| Listing {
        what,
        since: now.saturating_sub(DURATION_MAX).unwrap_or(Timestamp::MIN),
        until: now,
        limit: ROWS_MAX,
    };
    let events = answered(connected.ledger.events(&listing(Listed::Events)).await)?;
    let others = answered(connected.ledger.deliveries(&listing(Listed::Deliveries)).await)?;
    let checks = [
        ("events", events.len(), expected(demo, "accepted")),
        ("deliveries without an event", others.len(), expected(demo, "ignored")),
    ];
    let wrong = checks.iter().filter(|(_, got, expected)| got != expected);
    Ok(wrong
        .map(|(what, got, expected)| format!("the ledger holds {got} {what}, expected {expected}"))
        .collect())
}

/// How many steps must have this outcome.
fn expected(demo: &[Step], outcome: &str) -> usize {
    let outcomes = demo.iter().filter_map(|step| match step {
        Step::Deliver(deliver) => Some(deliver.expect.outcome.as_str()),
        Step::OpenSession(_) | Step::CloseSession(_) => None,
    });
    outcomes.filter(|found| *found == outcome).count()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::manifest::Answered;

    fn accepted() -> Answered {
        Answered {
            status: 202,
            outcome: "accepted".to_owned(),
            refusal: None,
            events: vec!["comment".to_owned()],
            ledger: Some("delivered".to_owned()),
            inboxes: vec!["builder".to_owned()],
        }
    }

    #[test]
    fn what_is_as_expected_differs_in_nothing() {
        assert_eq!(fields(&accepted(), &accepted()), Vec::<String>::new());
    }

    #[test]
    fn each_field_that_differs_is_named_with_both_values() {
        let got = Answered {
            status: 500,
            ledger: None,
            inboxes: Vec::new(),
            ..accepted()
        };
        let expected = [
            "inboxes: [], expected [\"builder\"]",
            "ledger: nothing, expected \"delivered\"",
            "status: 500, expected 202",
        ];
        assert_eq!(fields(&accepted(), &got), expected);
    }

    #[test]
    fn a_message_without_an_event_is_a_difference() {
        let received = Received {
            group: "acme/app#12".to_owned(),
            receives: 1,
            sent_at: None,
            message: json!({}),
        };
        let problem = message("builder", &received, None);
        assert_eq!(
            problem.as_deref(),
            Some("inbox builder got a message without an event in the ledger")
        );
    }
}
