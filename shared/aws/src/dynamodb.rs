//! The ledger in DynamoDB.
//!
//! It mirrors the core's transition function in conditional writes, and asks that function why one failed: DynamoDB returns
//! the old row with a failed condition, so that a loser learns why without a read.

mod admit;
mod body;
mod due;
mod items;
mod missing;
mod owners;
mod read;
mod redact;
mod sources;
mod targets;

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};
use forebay_core::delivery::DeliveryKey;
use forebay_core::event::{EventId, Repository};
use forebay_core::ledger::{
    Admission, Admitted, Cause, Claim, Claimed, DeliveryRow, EventAdmission, EventRow, Lease, Raise, Refused, Renew,
    Settle, Settled, Settlement, Status, Step, Term, Verdict, transition,
};
use forebay_core::ports::{
    DuePage, DueQuery, ErrorClass, Ledger, LedgerError, Listed, Listing, Raised, Redacted, Renewed,
};
use forebay_core::session::{Opened, Owner, OwnerKey, Pointer, Pointers, Session, SessionId};
use jiff::{SignedDuration, Timestamp};

use crate::fault::ledger_error;
pub use targets::DynamoTargets;

use items::{Item, Unreadable, event_pk, millis, name, number, row_key, text};

/// Index of every row that needs attention later.
pub const DUE_INDEX: &str = "due";
/// Index of parked events by what they wait for.
pub const WAITING_INDEX: &str = "waiting";
/// Index of events, and of deliveries without one, by time.
pub const RECENT_INDEX: &str = "recent";

/// The ledger in one DynamoDB table.
#[derive(Clone, Debug)]
pub struct DynamoLedger {
    client: Client,
    table: String,
}

impl DynamoLedger {
    /// The ledger in `table`. Its time-outs and retries are the client's.
    #[must_use]
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self {
            client,
            table: table.into(),
        }
    }

    fn update(&self, pk: String) -> UpdateItemFluentBuilder {
        self.client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(row_key(pk)))
    }

    /// Sends a conditional update of an event's row, and explains a failed condition by the core's function.
    async fn step(&self, attempted: &'static str, event: &EventId, write: Write, step: &Step) -> Stepped {
        let sent = self
            .update(event_pk(event))
            .update_expression(write.update)
            .condition_expression(write.condition)
            .set_expression_attribute_names(Some(write.names))
            .set_expression_attribute_values(Some(write.values))
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        match sent {
            Ok(output) => {
                let row = items::read_event(&output.attributes.unwrap_or_default());
                Ok(Ok(
                    row.map_err(|unreadable| unreadable_row(attempted, event, unreadable))?
                ))
            }
            Err(error) => match failed_condition(&error) {
                None => Err(ledger_error(attempted, event, &error)),
                Some(None) => Ok(Err(Refused::Missing)),
                Some(Some(item)) => explain(attempted, event, item, step),
            },
        }
    }
}

/// The row that is ours now, or why it is not.
type Stepped = Result<Result<EventRow, Refused>, LedgerError>;

/// The old row behind a failed condition: `None` where something else failed, `Some(None)` where there was no row.
fn failed_condition(error: &SdkError<UpdateItemError>) -> Option<Option<&Item>> {
    let UpdateItemError::ConditionalCheckFailedException(failed) = error.as_service_error()? else {
        return None;
    };
    Some(failed.item())
}

/// Why the condition of `step` failed on `item`, as the core sees it.
fn explain(attempted: &'static str, event: &EventId, item: &Item, step: &Step) -> Stepped {
    let row = match items::read_event(item) {
        Ok(row) => row,
        Err(Unreadable::Newer(format)) => return Ok(Err(Refused::Newer(format))),
        Err(unreadable @ Unreadable::Attribute(_)) => return Err(unreadable_row(attempted, event, unreadable)),
    };
    match transition(Some(&row.state), step) {
        Verdict::Refused(refused) => Ok(Err(refused)),
        Verdict::Already => Ok(Ok(row)),
        // The core would have taken the step: the condition says something else than the function. A bug, and said so.
        Verdict::Applied(_) => Err(LedgerError {
            attempted,
            on: event.to_string(),
            class: ErrorClass::Invalid,
            source: Some("the condition and the transition function disagree".into()),
        }),
    }
}

fn unreadable_row(attempted: &'static str, on: impl ToString, unreadable: Unreadable) -> LedgerError {
    LedgerError {
        attempted,
        on: on.to_string(),
        class: ErrorClass::Unreadable,
        source: Some(Box::new(unreadable)),
    }
}

/// A conditional update in the making.
#[derive(Default)]
struct Write {
    update: String,
    condition: String,
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
}

impl Write {
    /// `names` as placeholders (`#status` for `status`): many of them are reserved words.
    fn name(mut self, names: &[&str]) -> Self {
        self.names
            .extend(names.iter().map(|name| (format!("#{name}"), (*name).to_owned())));
        self
    }

    fn value(mut self, placeholder: &str, value: AttributeValue) -> Self {
        self.values.insert(placeholder.to_owned(), value);
        self
    }

    /// Sets each optional attribute that has a value. Removes those that have none, and what goes in any case.
    fn set_or_remove<const N: usize>(
        mut self,
        optional: [(&str, Option<AttributeValue>); N],
        removed: &[&str],
    ) -> Self {
        let mut removed: Vec<String> = removed.iter().map(|name| format!("#{name}")).collect();
        for (name, value) in optional {
            match value {
                Some(value) => {
                    self.update.push_str(&format!(", #{name} = :to_{name}"));
                    self = self.value(&format!(":to_{name}"), value);
                }
                None => removed.push(format!("#{name}")),
            }
        }
        self.update.push_str(&format!(" REMOVE {}", removed.join(", ")));
        self
    }
}

fn claim_write(pk: &str, claim: &Claim) -> Write {
    let lease_until = after(claim.now, claim.lease);
    let parked_in_any_case = match claim.cause {
        Cause::Due => "",
        Cause::OwnerAppeared => " OR #status = :parked",
    };
    let write = Write {
        update: "SET #status = :claimed, #token = #token + :one, #nonce = :nonce, #lease_until = :until, \
                 #failures = if_not_exists(#failures, :zero) + :one, #due_shard = :due_shard, #due_at = :due_at \
                 REMOVE #waiting_for"
            .to_owned(),
        condition: format!(
            "#v <= :format AND (#status = :received \
             OR (#status IN (:retryable, :parked) AND (attribute_not_exists(#due_at) OR #due_at <= :now)) \
             OR (#status = :claimed AND (attribute_not_exists(#lease_until) OR #lease_until < :lapsed))\
             {parked_in_any_case})"
        ),
        ..Write::default()
    };
    write
        .name(&[
            name::FORMAT,
            name::STATUS,
            name::TOKEN,
            name::NONCE,
            name::LEASE_UNTIL,
            name::FAILURES,
        ])
        .name(&[name::DUE_SHARD, name::DUE_AT, name::WAITING_FOR])
        .value(":format", number(items::FORMAT))
        .value(":one", number(1))
        .value(":zero", number(0))
        .value(":nonce", number(claim.nonce.number()))
        .value(":until", millis(lease_until))
        .value(":due_shard", text(items::due_shard_of(pk)))
        .value(":due_at", millis(after(lease_until, claim.skew)))
        .value(":now", millis(claim.now))
        .value(":lapsed", millis(before(claim.now, claim.skew)))
        .value(":received", text(Status::Received.as_str()))
        .value(":retryable", text(Status::FailedRetryable.as_str()))
        .value(":parked", text(Status::Parked.as_str()))
        .value(":claimed", text(Status::Claimed.as_str()))
}

/// What both settle and renew demand: invariant 4.
const OWNED: &str = "#status = :claimed AND #token = :token AND #nonce = :nonce AND #lease_until > :now";

fn owned(write: Write, lease: &Lease, now: Timestamp) -> Write {
    write
        .name(&[
            name::STATUS,
            name::TOKEN,
            name::NONCE,
            name::LEASE_UNTIL,
            name::DUE_SHARD,
            name::DUE_AT,
        ])
        .value(":claimed", text(Status::Claimed.as_str()))
        .value(":token", number(lease.token().number()))
        .value(":nonce", number(lease.nonce().number()))
        .value(":now", millis(now))
}

fn settle_write(pk: &str, lease: &Lease, now: Timestamp, settlement: &Settlement) -> Write {
    let mut set = "SET #status = :status, #reason = :reason, #failures = :failures, #tries = :tries".to_owned();
    let mut remove = " REMOVE #lease_until".to_owned();
    let mut write = owned(
        Write {
            condition: OWNED.to_owned(),
            ..Write::default()
        },
        lease,
        now,
    )
    .name(&[
        name::REASON,
        name::FAILURES,
        name::TRIES,
        name::WAITING_FOR,
        name::DESTINATIONS,
        name::EXPIRES_AT,
    ])
    .value(":status", text(settlement.ending.status().as_str()))
    .value(":reason", text(settlement.reason.as_str()))
    .value(":failures", number(settlement.failures))
    .value(":tries", number(settlement.tries));
    let destinations = &settlement.destinations;
    let optional = [
        (
            name::DUE_SHARD,
            settlement.due_at.map(|_| text(items::due_shard_of(pk))),
        ),
        (name::DUE_AT, settlement.due_at.map(millis)),
        (
            name::WAITING_FOR,
            settlement.waiting_for.as_ref().map(|key| text(key.as_str())),
        ),
        (
            name::DESTINATIONS,
            (!destinations.is_empty()).then(|| items::destinations(destinations)),
        ),
        (name::EXPIRES_AT, settlement.expires_at.map(items::seconds)),
    ];
    for (name, value) in optional {
        match value {
            Some(value) => {
                set.push_str(&format!(", #{name} = :{name}"));
                write = write.value(&format!(":{name}"), value);
            }
            None => remove.push_str(&format!(", #{name}")),
        }
    }
    Write {
        update: set + &remove,
        ..write
    }
}

fn renew_write(pk: &str, lease: &Lease, now: Timestamp, term: Term) -> Write {
    let until = after(now, term.lease);
    let write = Write {
        update: "SET #lease_until = :until, #due_shard = :due_shard, #due_at = :due_at".to_owned(),
        // A repeat of an earlier renewal that comes late must not shorten what a later one gave.
        condition: format!("{OWNED} AND #lease_until < :until"),
        ..Write::default()
    };
    owned(write, lease, now)
        .value(":until", millis(until))
        .value(":due_shard", text(items::due_shard_of(pk)))
        .value(":due_at", millis(after(until, term.skew)))
}

fn after(at: Timestamp, span: SignedDuration) -> Timestamp {
    at.saturating_add(span).unwrap_or(Timestamp::MAX)
}

fn before(at: Timestamp, span: SignedDuration) -> Timestamp {
    at.saturating_sub(span).unwrap_or(Timestamp::MIN)
}

impl Ledger for DynamoLedger {
    async fn admit(&self, admission: &Admission<'_>) -> Result<Admitted, LedgerError> {
        self.admit_delivery(admission).await
    }

    async fn admit_event(&self, admission: &EventAdmission<'_>) -> Result<Admitted, LedgerError> {
        self.admit_alone(admission).await
    }

    async fn claim(&self, event: &EventId, claim: Claim) -> Result<Claimed, LedgerError> {
        const ATTEMPTED: &str = "claim event";
        let write = claim_write(&event_pk(event), &claim);
        let row = match self.step(ATTEMPTED, event, write, &Step::Claim(claim)).await? {
            Ok(row) => row,
            Err(refused) => return Ok(Claimed::Lost(refused)),
        };
        match Lease::proven_by(event, &row.state, claim.nonce) {
            Some(lease) => Ok(Claimed::Won {
                row: Box::new(row),
                lease,
            }),
            None => Err(unreadable_row(
                ATTEMPTED,
                event,
                Unreadable::Attribute(name::LEASE_UNTIL),
            )),
        }
    }

    async fn settle(&self, lease: Lease, now: Timestamp, settlement: Settlement) -> Result<Settled, LedgerError> {
        let event = lease.event().clone();
        let write = settle_write(&event_pk(&event), &lease, now, &settlement);
        let settle = Settle {
            now,
            token: lease.token(),
            nonce: lease.nonce(),
            settlement,
        };
        Ok(
            match self.step("settle event", &event, write, &Step::Settle(settle)).await? {
                Ok(_) => Settled::Done,
                Err(refused) => Settled::Lost(refused),
            },
        )
    }

    async fn renew(&self, lease: &mut Lease, now: Timestamp, term: Term) -> Result<Renewed, LedgerError> {
        const ATTEMPTED: &str = "renew lease of event";
        let event = lease.event().clone();
        let write = renew_write(&event_pk(&event), lease, now, term);
        let step = Step::Renew(Renew::of(lease, now, term));
        let row = match self.step(ATTEMPTED, &event, write, &step).await? {
            Ok(row) => row,
            Err(refused) => return Ok(Renewed::Lost(refused)),
        };
        let renewed = Lease::proven_by(&event, &row.state, lease.nonce());
        *lease = renewed.ok_or_else(|| unreadable_row(ATTEMPTED, event, Unreadable::Attribute(name::LEASE_UNTIL)))?;
        Ok(Renewed::Kept)
    }

    async fn raise(&self, event: &EventId, raise: Raise) -> Result<Raised, LedgerError> {
        self.raise_row(event, raise).await
    }

    async fn due(&self, query: &DueQuery) -> Result<DuePage, LedgerError> {
        self.list_due(query).await
    }

    async fn event(&self, event: &EventId) -> Result<Option<EventRow>, LedgerError> {
        let item = self.get("read event", event.as_str(), row_key(event_pk(event))).await?;
        let row = item.map(|item| items::read_event(&item)).transpose();
        row.map_err(|unreadable| unreadable_row("read event", event, unreadable))
    }

    async fn delivery(&self, key: &DeliveryKey) -> Result<Option<DeliveryRow>, LedgerError> {
        Ok(self.read_delivery(key).await?.map(|read| read.row))
    }

    async fn redact(&self, lease: &Lease, key: &DeliveryKey, now: Timestamp) -> Result<Redacted, LedgerError> {
        self.redact_body(lease, key, now).await
    }

    async fn body(&self, key: &DeliveryKey) -> Result<Option<Vec<u8>>, LedgerError> {
        self.read_body(key).await
    }

    async fn content(&self, event: &EventId) -> Result<Option<String>, LedgerError> {
        self.read_content(event).await
    }

    async fn events(&self, listing: &Listing) -> Result<Vec<EventRow>, LedgerError> {
        let listing = Listing {
            what: Listed::Events,
            ..listing.clone()
        };
        self.list(&listing, items::read_event, |row| row.admitted_at).await
    }

    async fn deliveries(&self, listing: &Listing) -> Result<Vec<DeliveryRow>, LedgerError> {
        let listing = Listing {
            what: Listed::Deliveries,
            ..listing.clone()
        };
        let read = |item: &Item| items::read_delivery(item).map(|read| read.row);
        self.list(&listing, read, |row: &DeliveryRow| row.delivery.received_at)
            .await
    }

    async fn pointers(&self, keys: &[OwnerKey]) -> Result<Pointers, LedgerError> {
        self.read_pointers(keys).await
    }

    async fn learn(
        &self,
        repository: &Repository,
        branch: &str,
        pull: u64,
        now: Timestamp,
    ) -> Result<Pointer, LedgerError> {
        self.learn_pull(&OwnerKey::branch(repository, branch), pull, now).await
    }

    async fn own(&self, key: &OwnerKey, owner: &Owner, now: Timestamp) -> Result<bool, LedgerError> {
        self.point(key, owner, now).await
    }

    async fn open_session(&self, session: &Session, now: Timestamp) -> Result<Opened, LedgerError> {
        self.open(session, now).await
    }

    async fn close_session(&self, id: &SessionId, expires_at: Timestamp) -> Result<Option<Session>, LedgerError> {
        self.close(id, expires_at).await
    }

    async fn sessions(&self, limit: usize) -> Result<Vec<Session>, LedgerError> {
        self.list_sessions(limit).await
    }

    async fn waiting(&self, key: &OwnerKey, limit: usize) -> Result<Vec<EventId>, LedgerError> {
        self.list_waiting(key, limit).await
    }
}
