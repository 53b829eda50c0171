//! What must hold at every write, send and answer, said without the rules that are to keep it. Numbers are the invariants of
//! the core.

use std::collections::{BTreeMap, BTreeSet};

use dynoxide::types::AttributeValue;
use forebay_core::delivery::DeliveryKey;
use forebay_core::event::Net;
use forebay_core::ledger::{Sent, Status};
use forebay_core::ports::TimeAndChance as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::cloud::Item;
use super::paths::{Path, key_of};
use crate::fakes::RunningTime;

/// How long a FIFO queue knows a deduplication id
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/using-messagededuplicationid-property.html>).
const DEDUPLICATED: SignedDuration = SignedDuration::from_mins(5);

/// What must not have happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Something that was accepted is not where it belongs.
    Lost(String),
    /// Another invariant.
    Violated(String),
}

/// What was seen of rows and queues, and what broke.
#[derive(Debug)]
pub(super) struct Checks {
    time: RunningTime,
    rows: BTreeMap<String, Item>,
    /// Deliveries whose sender was told that they are new.
    created: BTreeSet<DeliveryKey>,
    /// Inbox and event of every message.
    arrived: BTreeSet<(String, String)>,
    /// When a queue last took a deduplication id, by inbox and id.
    taken: BTreeMap<(String, String), Timestamp>,
    /// Deduplication id by inbox and event.
    deduplications: BTreeMap<(String, String), String>,
    /// What broke so far.
    pub(super) broken: Vec<Broken>,
}

impl Checks {
    pub(super) fn new(time: RunningTime) -> Self {
        Self {
            time,
            rows: BTreeMap::new(),
            created: BTreeSet::new(),
            arrived: BTreeSet::new(),
            taken: BTreeMap::new(),
            deduplications: BTreeMap::new(),
            broken: Vec::new(),
        }
    }

    pub(super) fn violate(&mut self, what: impl Into<String>) {
        self.broken.push(Broken::Violated(what.into()));
    }

    pub(super) fn lose(&mut self, what: impl Into<String>) {
        self.broken.push(Broken::Lost(what.into()));
    }

    /// Invariants 1 and 2, on a 2xx.
    pub(super) fn answer(&mut self, key: &DeliveryKey, status: u16) {
        if !self.rows.contains_key(&delivery_pk(key)) {
            self.lose(format!("{key} was answered {status} and has no row"));
        }
        // 202 is said to whoever brought the delivery first, 200 to all others.
        if status == 202 && !self.created.insert(key.clone()) {
            self.violate(format!("{key} was created twice"));
        }
    }

    /// Invariants 2 and 3, at the end: each row once, and each event where it belongs.
    pub(super) fn compare(&mut self, path: &Path) {
        let mut deliveries: BTreeSet<String> = path.requests().map(|request| delivery_pk(&key_of(request))).collect();
        let posted = path.deliveries.iter().filter_map(|key| DeliveryKey::parse(key));
        deliveries.extend(posted.map(|key| delivery_pk(&key)));
        let events: BTreeSet<String> = path.events.keys().map(|id| format!("event#{id}")).collect();
        let rows: BTreeSet<String> = self.rows.keys().cloned().collect();
        for missing in deliveries.union(&events).filter(|pk| !rows.contains(*pk)) {
            self.lose(format!("{missing} is not there"));
        }
        for other in rows
            .iter()
            .filter(|pk| !deliveries.contains(*pk) && !events.contains(*pk))
        {
            self.violate(format!("{other} should not be there"));
        }
        for (id, (status, reason)) in &path.events {
            let row = self.rows.get(&format!("event#{id}"));
            let stands = row.map(|row| (word(row, "status").to_owned(), word(row, "reason").to_owned()));
            if stands != Some((status.as_str().to_owned(), reason.as_str().to_owned())) {
                self.lose(format!("{id} ends as {stands:?}"));
            }
        }
        let arrived = std::mem::take(&mut self.arrived);
        let belongs: BTreeSet<(&str, &str)> = path.inboxes.iter().map(|(inbox, event)| (*inbox, *event)).collect();
        let is: BTreeSet<(&str, &str)> = arrived
            .iter()
            .map(|(inbox, event)| (inbox.as_str(), event.as_str()))
            .collect();
        for (inbox, event) in belongs.difference(&is) {
            self.lose(format!("{event} never reached {inbox}"));
        }
        for (inbox, event) in is.difference(&belongs) {
            self.violate(format!("{event} reached {inbox}, where it does not belong"));
        }
    }

    /// When the last of the rows that are not terminal is due; `None` where all are.
    pub(super) fn last_due(&self) -> Option<Timestamp> {
        let events = self.rows.iter().filter(|(pk, _)| pk.starts_with("event#"));
        let open = events.filter(|(_, row)| !status(row).is_some_and(Status::is_terminal));
        open.filter_map(|(_, row)| time(row, "due_at")).max()
    }

    /// A row after a write that touched it.
    pub(super) fn see(&mut self, pk: &str, row: Option<Item>) {
        let Some(row) = row else {
            // The write was about a row that its condition did not let it make.
            if self.rows.contains_key(pk) {
                self.violate(format!("{pk} is gone"));
            }
            return;
        };
        let before = self.rows.get(pk);
        let broken = if pk.starts_with("delivery#") {
            before.and_then(|before| changed_delivery(before, &row))
        } else {
            never_due(&row).or_else(|| before.and_then(|before| changed_event(before, &row, self.time.now())))
        };
        if let Some(broken) = broken {
            self.violate(format!("{pk}: {broken}"));
        }
        self.rows.insert(pk.to_owned(), row);
    }

    /// A batch that arrives at a queue, and the queue's answer.
    pub(super) fn take(&mut self, batch: &Value) -> Value {
        let url = batch["QueueUrl"].as_str().unwrap_or_default();
        let inbox = url.rsplit('/').next().and_then(|name| name.strip_suffix(".fifo"));
        let inbox = inbox.unwrap_or(url).to_owned();
        let mut successful = Vec::new();
        for entry in batch["Entries"].as_array().into_iter().flatten() {
            self.arrive(&inbox, entry);
            successful.push(json!({"Id": entry["Id"], "MessageId": "m", "MD5OfMessageBody": "d"}));
        }
        json!({"Successful": successful, "Failed": []})
    }

    /// Invariant 3.
    fn arrive(&mut self, inbox: &str, entry: &Value) {
        let body = entry["MessageBody"].as_str().unwrap_or_default();
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        let event = body["id"].as_str().unwrap_or_default().to_owned();
        let deduplication = entry["MessageDeduplicationId"].as_str().unwrap_or_default().to_owned();
        let known = self.deduplications.entry((inbox.to_owned(), event.clone()));
        if *known.or_insert_with(|| deduplication.clone()) != deduplication {
            self.violate(format!("{event} was sent to {inbox} under two deduplication ids"));
        }
        match self.rows.get(&format!("event#{event}")) {
            None => self.violate(format!("{event} was sent to {inbox} and has no row")),
            Some(row) if is_recorded(row, inbox) => {
                self.violate(format!("{event} was sent to {inbox} after that was recorded"));
            }
            Some(row) if body["data"]["token"].as_u64() != number(row, "token").and_then(|n| u64::try_from(n).ok()) => {
                self.violate(format!(
                    "{event} was sent to {inbox} with a token that is not its claim's"
                ));
            }
            Some(_) => {}
        }
        let now = self.time.now();
        let before = self.taken.get(&(inbox.to_owned(), deduplication.clone()));
        if before.is_none_or(|taken| now.duration_since(*taken) > DEDUPLICATED) {
            self.taken.insert((inbox.to_owned(), deduplication), now);
            self.arrived.insert((inbox.to_owned(), event));
        }
    }
}

fn delivery_pk(key: &DeliveryKey) -> String {
    format!("delivery#github#{}#{}", key.hook.as_str(), key.guid.as_str())
}

/// Invariants 1 and 2: a delivery is written once. That recovery asked for it may be learnt later.
fn changed_delivery(before: &Item, after: &Item) -> Option<String> {
    let mut known = before.clone();
    if word(before, "net") == Net::Webhook.as_str() && word(after, "net") == Net::Recovery.as_str() {
        known.extend(
            after
                .get_key_value("net")
                .map(|(name, net)| (name.clone(), net.clone())),
        );
    }
    (known != *after).then(|| "its row changed after it was created".to_owned())
}

/// Invariant 5.
fn never_due(row: &Item) -> Option<String> {
    let open = !status(row).is_some_and(Status::is_terminal);
    let due = time(row, "due_at").is_some() && row.contains_key("due_shard");
    (open && !due).then(|| format!("it is {} and never due", word(row, "status")))
}

/// Invariant 4.
fn changed_event(before: &Item, after: &Item, now: Timestamp) -> Option<String> {
    let (token_before, token) = (number(before, "token"), number(after, "token"));
    if token < token_before {
        return Some(format!("its token went back from {token_before:?} to {token:?}"));
    }
    let stands = |row: &Item| (word(row, "status").to_owned(), number(row, "token"));
    if status(before).is_some_and(Status::is_terminal) && stands(before) != stands(after) {
        return Some(format!(
            "it was {} and is {}",
            word(before, "status"),
            word(after, "status")
        ));
    }
    let held = status(before) == Some(Status::Claimed) && time(before, "lease_until").is_some_and(|until| now <= until);
    (held && token > token_before).then(|| "it was claimed while its owner's lease ran".to_owned())
}

fn is_recorded(row: &Item, inbox: &str) -> bool {
    match row.get("destinations") {
        Some(AttributeValue::M(destinations)) => {
            matches!(destinations.get(inbox), Some(AttributeValue::S(sent)) if sent == Sent::Yes.as_str())
        }
        _ => false,
    }
}

fn word<'a>(row: &'a Item, name: &str) -> &'a str {
    match row.get(name) {
        Some(AttributeValue::S(word)) => word,
        _ => "",
    }
}

fn number(row: &Item, name: &str) -> Option<i64> {
    match row.get(name) {
        Some(AttributeValue::N(digits)) => digits.parse().ok(),
        _ => None,
    }
}

fn time(row: &Item, name: &str) -> Option<Timestamp> {
    Timestamp::from_millisecond(number(row, name)?).ok()
}

fn status(row: &Item) -> Option<Status> {
    Status::from_word(word(row, "status"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::noon;

    fn event(status: Status, token: u64) -> Item {
        let open = !status.is_terminal();
        let text = |word: &str| AttributeValue::S(word.to_owned());
        let mut row = Item::from([
            ("status".to_owned(), text(status.as_str())),
            ("token".to_owned(), AttributeValue::N(token.to_string())),
        ]);
        if open {
            row.insert("due_shard".to_owned(), text("event#1"));
            row.insert("due_at".to_owned(), AttributeValue::N("1".to_owned()));
        }
        row
    }

    fn with(mut row: Item, name: &str, value: AttributeValue) -> Item {
        row.insert(name.to_owned(), value);
        row
    }

    fn millis(at: Timestamp) -> AttributeValue {
        AttributeValue::N(at.as_millisecond().to_string())
    }

    fn send(deduplication: &str, token: u64) -> Value {
        let body = json!({"id": "e", "data": {"token": token}}).to_string();
        let entry = json!({"Id": "0", "MessageBody": body, "MessageDeduplicationId": deduplication});
        json!({"QueueUrl": "http://127.0.0.1:1/reviewer.fifo", "Entries": [entry]})
    }

    fn key() -> DeliveryKey {
        DeliveryKey::parse("42/a1").unwrap()
    }

    /// What `act` breaks, said in words that hold `expected`; nothing where that is empty.
    #[track_caller]
    fn check(expected: &str, act: impl FnOnce(&mut Checks)) {
        let mut checks = Checks::new(RunningTime::from(noon()));
        act(&mut checks);
        let told: Vec<&str> = checks
            .broken
            .iter()
            .map(|broken| match broken {
                Broken::Lost(what) | Broken::Violated(what) => what.as_str(),
            })
            .collect();
        match told.as_slice() {
            [] => assert_eq!(expected, "", "nothing was seen"),
            [what] => assert!(!expected.is_empty() && what.contains(expected), "{what}"),
            more => panic!("{more:?}"),
        }
    }

    #[test]
    fn an_answer_before_the_delivery_is_durable_is_seen() {
        check("has no row", |checks| checks.answer(&key(), 202));
    }

    #[test]
    fn a_delivery_that_is_said_to_be_new_twice_is_seen() {
        check("created twice", |checks| {
            checks.see("delivery#github#42#a1", Some(Item::new()));
            checks.answer(&key(), 202);
            checks.answer(&key(), 200);
            checks.answer(&key(), 202);
        });
    }

    #[test]
    fn a_delivery_that_changes_is_seen() {
        check("changed", |checks| {
            checks.see("delivery#github#42#a1", Some(event(Status::Received, 1)));
            checks.see("delivery#github#42#a1", Some(event(Status::Received, 2)));
        });
    }

    #[test]
    fn a_delivery_that_turns_out_to_be_of_recovery_is_none_and_one_that_turns_back_is_seen() {
        let text = |word: &str| AttributeValue::S(word.to_owned());
        for (nets, expected) in [(["webhook", "recovery"], ""), (["recovery", "webhook"], "changed")] {
            check(expected, |checks| {
                for net in nets {
                    let row = with(Item::new(), "net", text(net));
                    checks.see("delivery#github#42#a1", Some(row));
                }
            });
        }
    }

    #[test]
    fn an_event_that_is_never_due_is_seen() {
        check("never due", |checks| {
            let mut row = event(Status::Claimed, 1);
            row.remove("due_at");
            checks.see("event#e", Some(row));
        });
    }

    #[test]
    fn a_token_that_goes_back_is_seen() {
        check("went back", |checks| {
            checks.see("event#e", Some(event(Status::Claimed, 2)));
            checks.see("event#e", Some(event(Status::Claimed, 1)));
        });
    }

    #[test]
    fn an_event_that_comes_back_from_its_end_is_seen() {
        check("it was processed and is claimed", |checks| {
            checks.see("event#e", Some(event(Status::Processed, 1)));
            checks.see("event#e", Some(event(Status::Claimed, 2)));
        });
    }

    #[test]
    fn a_claim_within_a_running_lease_is_seen_and_one_after_it_is_none() {
        let minute = SignedDuration::from_secs(60);
        for (left, expected) in [(minute, "lease ran"), (-minute, "")] {
            check(expected, |checks| {
                let held = with(event(Status::Claimed, 1), "lease_until", millis(noon() + left));
                checks.see("event#e", Some(held));
                checks.see("event#e", Some(event(Status::Claimed, 2)));
            });
        }
    }

    #[test]
    fn a_message_after_its_send_was_recorded_is_seen() {
        check("after that was recorded", |checks| {
            let sent = [("reviewer".to_owned(), AttributeValue::S(Sent::Yes.as_str().to_owned()))];
            let row = with(
                event(Status::FailedRetryable, 1),
                "destinations",
                AttributeValue::M(sent.into()),
            );
            checks.see("event#e", Some(row));
            checks.take(&send("d", 1));
        });
    }

    #[test]
    fn a_repeat_under_another_deduplication_id_is_seen_and_one_under_the_same_is_none() {
        for (repeat, expected) in [("other", "two deduplication ids"), ("d", "")] {
            check(expected, |checks| {
                checks.see("event#e", Some(event(Status::Claimed, 1)));
                checks.take(&send("d", 1));
                checks.take(&send(repeat, 1));
            });
        }
    }

    #[test]
    fn a_message_of_nobodys_claim_is_seen() {
        check("a token that is not its claim's", |checks| {
            checks.see("event#e", Some(event(Status::Claimed, 2)));
            checks.take(&send("d", 1));
        });
        check("has no row", |checks| {
            checks.take(&send("d", 1));
        });
    }
}
