//! What came of it, seen from outside: the ledger through its adapter, and the inboxes taken empty.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName, QueueAttributeName};
use forebay::trial::Error;
use forebay_aws::clock::System;
use forebay_core::delivery::{Digest, Outcome};
use forebay_core::event::EventId;
use forebay_core::ledger::{Reason, Sent, Status, Token};
use forebay_core::ports::{Ledger as _, Listed, Listing, TimeAndChance as _};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tokio::task::JoinSet;

use super::plan::{Delivery, Plan, Wanted};
use super::{STACK_REMEDY, Soak, answered, joined};

/// Deliveries that are looked at at one time.
const LOOKERS: usize = 8;
/// One of so many bodies is compared byte for byte, and every long one.
const COMPARED: usize = 10;
/// Most problems that are told.
const TOLD_MAX: usize = 20;
/// Most messages of one receive and of one batch.
const BATCH_MAX: i32 = 10;
/// How long a received message stays hidden: it is deleted at once.
const HIDDEN_SECONDS: i32 = 60;
/// Receives for each expected message until an inbox has to be empty.
const ROUNDS_PER_MESSAGE: usize = 2;
/// Longer than any soak.
const AGE_MAX: SignedDuration = SignedDuration::from_hours(1);

/// What was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// Deliveries of which something is missing, by their place in the plan.
    lost: BTreeSet<usize>,
    /// Events of which there is too much.
    doubled: BTreeSet<String>,
    problems: Vec<String>,
    /// Deliveries that the ledger holds.
    kept: usize,
    /// Bodies that were compared.
    compared: usize,
    /// Events by status.
    statuses: BTreeMap<Status, usize>,
    /// Events that more than one owner had.
    by_later_owners: usize,
    /// Messages by inbox.
    messages: BTreeMap<String, usize>,
}

/// The parts of a message that are looked at.
#[derive(Deserialize)]
struct CloudEvent {
    id: String,
    data: EventData,
}

/// The event in a message.
#[derive(Deserialize)]
struct EventData {
    inbox: String,
}

/// Deduplication ids of the messages of an event in an inbox, one for each message.
type Messages = BTreeMap<(String, String), Vec<String>>;

/// Looks at everything that `soak` has left behind.
pub(super) async fn check(soak: &Arc<Soak>) -> Result<Found, Error> {
    let mut found = Found::default();
    let mut lookers = JoinSet::new();
    for first in 0..LOOKERS {
        let soak = Arc::clone(soak);
        lookers.spawn(async move { look(&soak, first).await });
    }
    while let Some(looked) = lookers.join_next().await {
        found.add(joined(looked)?);
    }
    strangers(soak, &mut found).await?;
    let messages = drain_all(soak, &mut found).await?;
    compare(&soak.plan, &messages, &mut found);
    Ok(found)
}

/// Looks at every [`LOOKERS`]th delivery.
async fn look(soak: &Soak, first: usize) -> Result<Found, Error> {
    let mut found = Found::default();
    for (number, delivery) in soak.plan.deliveries.iter().enumerate().skip(first).step_by(LOOKERS) {
        look_at(soak, number, delivery, &mut found).await?;
    }
    Ok(found)
}

/// Looks at one delivery and at its event.
async fn look_at(soak: &Soak, number: usize, delivery: &Delivery, found: &mut Found) -> Result<(), Error> {
    let key = &delivery.key;
    let Some(row) = answered(soak.ledger.delivery(key).await)? else {
        found.lose(number, format!("delivery {key} is not in the ledger"));
        return Ok(());
    };
    found.kept += 1;
    if row.delivery.digest != Digest::of(&delivery.body) {
        found.lose(number, format!("delivery {key} has another digest"));
    }
    if delivery.is_long || number.is_multiple_of(COMPARED) {
        let body = answered(soak.ledger.body(key).await)?;
        found.compared += 1;
        if body.as_deref() != Some(&*delivery.body) {
            found.lose(number, format!("delivery {key} has another body"));
        }
    }
    let meant = match row.delivery.outcome {
        Outcome::Accepted(event) => Some(event),
        Outcome::Ignored(_) | Outcome::Malformed(_) => None,
    };
    let Some(wanted) = &delivery.event else {
        if let Some(event) = meant {
            found.double(
                event.as_str(),
                format!("delivery {key} means {event}, expected nothing"),
            );
        }
        return Ok(());
    };
    let id = EventId::new(&wanted.id);
    if meant.as_ref() != Some(&id) {
        found.lose(number, format!("delivery {key} does not mean {id}"));
    }
    let Some(event) = answered(soak.ledger.event(&id).await)? else {
        found.lose(number, format!("event {id} is not in the ledger"));
        return Ok(());
    };
    let state = event.state;
    *found.statuses.entry(state.status).or_default() += 1;
    if state.token > Token::FIRST {
        found.by_later_owners += 1;
    }
    let expected: BTreeMap<String, Sent> = wanted
        .inboxes
        .iter()
        .map(|name| ((*name).to_owned(), Sent::Yes))
        .collect();
    let settled = state.status == Status::Processed && state.reason == Some(Reason::Delivered);
    if !settled || state.destinations != expected {
        let destinations = state.destinations;
        found.lose(
            number,
            format!("event {id} stands at {}, sent: {destinations:?}", state.status),
        );
    }
    Ok(())
}

/// Counts the rows that nobody sent.
async fn strangers(soak: &Soak, found: &mut Found) -> Result<(), Error> {
    let now = System.now();
    let planned: BTreeSet<EventId> = events(&soak.plan).map(|(_, wanted)| EventId::new(&wanted.id)).collect();
    let listing = Listing {
        what: Listed::Events,
        since: now.saturating_sub(AGE_MAX).unwrap_or(Timestamp::MIN),
        until: now,
        limit: planned.len() * 2 + 1,
    };
    for row in answered(soak.ledger.events(&listing).await)? {
        if !planned.contains(&row.event.id) {
            found.double(row.event.id.as_str(), format!("nobody sent event {}", row.event.id));
        }
    }
    Ok(())
}

/// The planned events, each with the place of its delivery.
fn events(plan: &Plan) -> impl Iterator<Item = (usize, &Wanted)> {
    let deliveries = plan.deliveries.iter().enumerate();
    deliveries.filter_map(|(number, delivery)| Some((number, delivery.event.as_ref()?)))
}

/// Takes everything out of every inbox.
async fn drain_all(soak: &Arc<Soak>, found: &mut Found) -> Result<Messages, Error> {
    let mut drains = JoinSet::new();
    for (name, url) in soak.trial.inboxes()? {
        let soak = Arc::clone(soak);
        drains.spawn(async move { Ok((name, drain(&soak, &url).await?)) });
    }
    let mut all = Messages::new();
    while let Some(drained) = drains.join_next().await {
        let (inbox, messages): (String, Vec<Message>) = joined(drained)?;
        found.messages.insert(inbox.clone(), messages.len());
        for message in messages {
            let attribute = |name| message.attributes.as_ref()?.get(&name).cloned();
            let deduplication = attribute(MessageSystemAttributeName::MessageDeduplicationId).unwrap_or_default();
            let body = message.body.as_deref().unwrap_or_default();
            match serde_json::from_str::<CloudEvent>(body) {
                Ok(event) if event.data.inbox == inbox => {
                    all.entry((inbox.clone(), event.id)).or_default().push(deduplication);
                }
                Ok(event) => found.double(&event.id, format!("event {} is in the wrong inbox {inbox}", event.id)),
                Err(_) => found.double(&deduplication, format!("a message in inbox {inbox} is no event")),
            }
        }
    }
    Ok(all)
}

/// Takes everything out of the queue at `url`.
async fn drain(soak: &Soak, url: &str) -> Result<Vec<Message>, Error> {
    let failed = |error: aws_sdk_sqs::Error| Error::because(format!("empty {url}"), STACK_REMEDY, error);
    let mut drained = Vec::new();
    for _ in 0..=soak.plan.messages() * ROUNDS_PER_MESSAGE {
        let receive = soak.sqs.receive_message().queue_url(url).wait_time_seconds(0);
        let receive = receive
            .max_number_of_messages(BATCH_MAX)
            .visibility_timeout(HIDDEN_SECONDS);
        let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
        let received = receive.send().await.map_err(|error| failed(error.into()))?;
        let messages = received.messages.unwrap_or_default();
        if messages.is_empty() {
            if is_empty(soak, url).await? {
                return Ok(drained);
            }
            continue;
        }
        let entries = messages.iter().enumerate().filter_map(|(number, message)| {
            let entry = DeleteMessageBatchRequestEntry::builder().id(number.to_string());
            entry.receipt_handle(message.receipt_handle.as_deref()?).build().ok()
        });
        let delete = soak.sqs.delete_message_batch().queue_url(url);
        let delete = delete.set_entries(Some(entries.collect()));
        delete.send().await.map_err(|error| failed(error.into()))?;
        drained.extend(messages);
    }
    Err(Error::new(format!("empty {url}: messages keep coming"), STACK_REMEDY))
}

/// Whether a queue says that nothing is in it, hidden messages included.
async fn is_empty(soak: &Soak, url: &str) -> Result<bool, Error> {
    let names = [
        QueueAttributeName::ApproximateNumberOfMessages,
        QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
    ];
    let request = soak.sqs.get_queue_attributes().queue_url(url);
    let output = request.set_attribute_names(Some(names.to_vec())).send().await;
    let output = output.map_err(|error| Error::because(format!("count {url}"), STACK_REMEDY, error))?;
    let attributes = output.attributes.unwrap_or_default();
    Ok(names
        .iter()
        .all(|name| attributes.get(name).is_none_or(|count| count == "0")))
}

/// Compares what came with what was to come.
fn compare(plan: &Plan, messages: &Messages, found: &mut Found) {
    let mut expected = BTreeSet::new();
    for (number, wanted) in events(plan) {
        for inbox in wanted.inboxes {
            let place = ((*inbox).to_owned(), wanted.id.clone());
            let came = messages.get(&place).map_or(0, Vec::len);
            if came == 0 {
                found.lose(number, format!("event {} is not in inbox {inbox}", wanted.id));
            }
            expected.insert(place);
        }
    }
    for (place @ (inbox, id), deduplications) in messages {
        if !expected.contains(place) {
            found.double(id, format!("event {id} was not to come to inbox {inbox}"));
        }
        if deduplications.len() > 1 {
            let distinct: BTreeSet<&String> = deduplications.iter().collect();
            let (came, ids) = (deduplications.len(), distinct.len());
            found.double(
                id,
                format!("event {id} is {came} times in inbox {inbox}, by {ids} deduplication ids"),
            );
        }
    }
}

impl Found {
    /// How many deliveries lack something.
    pub(super) fn lost(&self) -> usize {
        self.lost.len()
    }

    /// Of how many events there is too much.
    pub(super) fn doubled(&self) -> usize {
        self.doubled.len()
    }

    /// What is wrong, as far as it is told.
    pub(super) fn problems(&self) -> &[String] {
        &self.problems
    }

    fn lose(&mut self, number: usize, problem: String) {
        self.lost.insert(number);
        self.tell(problem);
    }

    fn double(&mut self, event: &str, problem: String) {
        self.doubled.insert(event.to_owned());
        self.tell(problem);
    }

    fn tell(&mut self, problem: String) {
        if self.problems.len() < TOLD_MAX {
            self.problems.push(problem);
        }
    }

    fn add(&mut self, other: Self) {
        self.lost.extend(other.lost);
        self.doubled.extend(other.doubled);
        other.problems.into_iter().for_each(|problem| self.tell(problem));
        self.kept += other.kept;
        self.compared += other.compared;
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.by_later_owners += other.by_later_owners;
        self.messages.extend(other.messages);
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |counts: Vec<String>| counts.join(" · ");
        let statuses = self.statuses.iter().map(|(status, count)| format!("{status} {count}"));
        let messages = self.messages.iter().map(|(inbox, count)| format!("{inbox} {count}"));
        writeln!(
            f,
            "deliveries     {} kept, {} bodies compared",
            self.kept, self.compared
        )?;
        writeln!(
            f,
            "events         {}; {} of them had more than one owner",
            counted(statuses.collect()),
            self.by_later_owners
        )?;
        writeln!(f, "messages       {}", counted(messages.collect()))
    }
}

#[cfg(test)]
mod tests {
    use crate::chance::Chance;

    use super::*;

    /// What a run without any trouble leaves in the inboxes.
    fn all_of(plan: &Plan) -> Messages {
        let wanted = events(plan).flat_map(|(_, wanted)| wanted.inboxes.iter().map(move |inbox| (inbox, wanted)));
        wanted
            .map(|(inbox, wanted)| {
                (
                    ((*inbox).to_owned(), wanted.id.clone()),
                    vec![format!("d-{}", wanted.id)],
                )
            })
            .collect()
    }

    fn checked(change: impl FnOnce(&mut Messages)) -> (usize, usize) {
        let plan = Plan::new(50, &mut Chance::new(1)).unwrap();
        let mut messages = all_of(&plan);
        change(&mut messages);
        let mut found = Found::default();
        compare(&plan, &messages, &mut found);
        (found.lost(), found.doubled())
    }

    #[test]
    fn what_is_as_planned_is_neither_lost_nor_doubled() {
        assert_eq!(checked(|_| ()), (0, 0));
    }

    #[test]
    fn a_message_that_is_missing_is_a_lost_delivery() {
        assert_eq!(checked(|messages| drop(messages.pop_first())), (1, 0));
    }

    #[test]
    fn a_second_message_doubles_its_event_whatever_its_deduplication_id() {
        for repeat in ["d", "another"] {
            let add = |messages: &mut Messages| {
                let mut first = messages.first_entry().unwrap();
                first.get_mut().push(repeat.to_owned());
            };
            assert_eq!(checked(add), (0, 1));
        }
    }

    #[test]
    fn a_message_in_an_inbox_that_did_not_want_it_doubles_its_event() {
        let add = |messages: &mut Messages| {
            let (_, id) = messages.keys().next().unwrap().clone();
            messages.insert(("reviewer".to_owned(), id), vec!["d".to_owned()]);
        };
        assert_eq!(checked(add), (0, 1));
    }
}
