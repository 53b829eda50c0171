//! Admission: a delivery and its event, together, each once; or an event that is its own record.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::put_item::{PutItemError, PutItemOutput};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, CancellationReason, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use forebay_core::backoff;
use forebay_core::delivery::{Digest, Outcome};
use forebay_core::event::{Content, EventId, Net};
use forebay_core::ledger::{Admission, Admitted, Admittee, EventAdmission, EventRow, Lease, Nonce};
use forebay_core::ports::{ErrorClass, ErrorKind, Ledger as _, LedgerError};
use jiff::{SignedDuration, Timestamp};
use tokio::task::JoinSet;

use super::DynamoLedger;
use super::body::{CHUNK_BYTES, EVENT_INLINE_BYTES_MAX, INLINE_BYTES_MAX, Packed, pack};
use super::items::{self, Item, StoredBody, StoredContent, Unreadable, name, row_key};
use crate::clock::pause;
use crate::fault::{class_of_code, ledger_error};

/// Most tries of one admission. Identical deliveries that arrive at once conflict until the first of them is written.
const TRIES_MAX: u32 = 8;
/// Shortest and longest wait between them.
const WAIT_MIN: SignedDuration = SignedDuration::from_millis(20);
const WAIT_MAX: SignedDuration = SignedDuration::from_millis(400);
/// Most chunks on their way at one time: each holds a connection, and its bytes a second time.
const CHUNKS_AT_ONCE: usize = 4;

const ATTEMPTED: &str = "admit delivery";
const ATTEMPTED_EVENT: &str = "admit event";
const WRITE_BODY: &str = "write body of";

/// What one try of an admission's transaction found.
enum Tried {
    /// Both rows are there now.
    Written,
    /// The delivery was there.
    DeliveryExists { delivery: Item, event: Option<Item> },
    /// The delivery was not there, the event was.
    EventExists(Item),
    /// The event that was there before has gone.
    EventVanished,
    /// Nothing can be said; again.
    Again(LedgerError),
}

/// What the second entry of the transaction does.
#[derive(Clone, Copy)]
enum EventEntry {
    /// Puts the event, which must not exist.
    Put,
    /// Adds this net to those that have seen it; it must exist.
    Join,
}

impl DynamoLedger {
    pub(super) async fn admit_delivery(&self, admission: &Admission<'_>) -> Result<Admitted, LedgerError> {
        let packed =
            pack(admission.body, INLINE_BYTES_MAX).map_err(|_no_memory| failed(admission, ErrorClass::Unreadable))?;
        let on = admission.delivery.key.to_string();
        self.write_chunks(&on, &packed, admission.expires_at).await?;
        let delivery = items::delivery_item(
            admission.delivery,
            &packed.stored,
            admission.nonce,
            admission.expires_at,
        );
        match &admission.event {
            None => self.put_delivery(admission, delivery).await,
            Some(admittee) => self.put_both(admission, admittee, delivery).await,
        }
    }

    /// Chunks go first. They are keyed by their content, so that a repeat changes nothing and an orphan harms nobody.
    async fn write_chunks(&self, on: &str, packed: &Packed, expires_at: Timestamp) -> Result<(), LedgerError> {
        let StoredBody::Chunks { digest, .. } = &packed.stored else {
            return Ok(());
        };
        let mut under_way = JoinSet::new();
        for (position, bytes) in packed.outside.chunks(CHUNK_BYTES).enumerate() {
            if under_way.len() >= CHUNKS_AT_ONCE {
                finish(on, &mut under_way).await?;
            }
            let chunk = items::chunk_item(digest, position, bytes, expires_at);
            under_way.spawn(put_chunk(self.client.clone(), self.table.clone(), chunk, expires_at));
        }
        while !under_way.is_empty() {
            finish(on, &mut under_way).await?;
        }
        Ok(())
    }

    /// One plain conditional put: nothing else is to be written with it.
    async fn put_delivery(&self, admission: &Admission<'_>, delivery: Item) -> Result<Admitted, LedgerError> {
        let mut error = failed(admission, ErrorClass::Conflict);
        for tries in 0..TRIES_MAX {
            error = match self.put_once(delivery.clone()).await {
                Ok(_) => return Ok(Admitted::Created { lease: None }),
                Err(error) => match existing(&error) {
                    Some(item) => return Ok(self.known_delivery(admission, item, None).await),
                    None => again(ledger_error(ATTEMPTED, &admission.delivery.key, &error))?,
                },
            };
            wait(admission.nonce, tries).await;
        }
        Err(error)
    }

    async fn put_once(&self, item: Item) -> Result<PutItemOutput, SdkError<PutItemError>> {
        self.client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression("attribute_not_exists(#pk)")
            .expression_attribute_names("#pk", name::PK)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await
    }

    /// An event that no delivery keeps: what its source said goes first where it is large, then one conditional put.
    pub(super) async fn admit_alone(&self, admission: &EventAdmission<'_>) -> Result<Admitted, LedgerError> {
        let Admittee { event, state } = admission.admittee;
        let id = &event.id;
        let unkept = |class| LedgerError {
            attempted: ATTEMPTED_EVENT,
            on: id.to_string(),
            class,
            source: None,
        };
        let content = match &event.content {
            Some(Content::Here(text)) => {
                let packed = pack(text.as_bytes(), EVENT_INLINE_BYTES_MAX);
                let packed = packed.map_err(|_no_memory| unkept(ErrorClass::Unreadable))?;
                self.write_chunks(id.as_str(), &packed, admission.expires_at).await?;
                Some(StoredContent {
                    body: packed.stored,
                    size: u64::try_from(text.len()).unwrap_or(u64::MAX),
                    digest: Digest::of(text.as_bytes()),
                })
            }
            // Whoever admits an event has what its source said.
            Some(Content::Apart(_)) => return Err(unkept(ErrorClass::Invalid)),
            None => None,
        };
        let item = items::event_item(event, state, admission.received_at, admission.net, content.as_ref());
        let mut error = unkept(ErrorClass::Conflict);
        for tries in 0..TRIES_MAX {
            error = match self.put_once(item.clone()).await {
                Ok(_) => {
                    let lease = Lease::proven_by(id, state, admission.nonce);
                    return Ok(Admitted::Created { lease });
                }
                Err(error) => match existing(&error) {
                    Some(item) => return self.known_event(admission, item).await,
                    None => again(ledger_error(ATTEMPTED_EVENT, id, &error))?,
                },
            };
            wait(admission.nonce, tries).await;
        }
        Err(error)
    }

    /// The event was there: our own write whose answer was lost, or somebody else's.
    async fn known_event(&self, admission: &EventAdmission<'_>, item: &Item) -> Result<Admitted, LedgerError> {
        let id = &admission.admittee.event.id;
        let row = match items::read_event(item) {
            Ok(row) => row,
            Err(unreadable) => {
                tracing::warn!(event.id = %id, "leave the row of event {id} as it is: {unreadable}");
                return Ok(Admitted::Duplicate {
                    conflict: false,
                    event: None,
                });
            }
        };
        if row.state.nonce == admission.nonce {
            let lease = Lease::proven_by(id, &row.state, admission.nonce);
            return Ok(Admitted::Created { lease });
        }
        if row.seen_by.contains(&admission.net) {
            return Ok(Admitted::Duplicate {
                conflict: false,
                event: Some(Box::new(row)),
            });
        }
        let seen = self
            .update(items::event_pk(id))
            .update_expression(JOIN)
            .condition_expression("attribute_exists(#pk)")
            .expression_attribute_names("#pk", name::PK)
            .expression_attribute_names("#seen_by", name::SEEN_BY)
            .expression_attribute_values(":net", nets(admission.net))
            .send()
            .await;
        match seen {
            Ok(_) => {
                let mut row = row;
                row.seen_by.insert(admission.net);
                Ok(Admitted::Joined {
                    event: Some(Box::new(row)),
                    is_new_to_net: true,
                })
            }
            Err(error) => Err(ledger_error(ATTEMPTED_EVENT, id, &error)),
        }
    }

    async fn put_both(
        &self,
        admission: &Admission<'_>,
        admittee: &Admittee,
        delivery: Item,
    ) -> Result<Admitted, LedgerError> {
        let mut entry = EventEntry::Put;
        let mut joined = None;
        let mut error = failed(admission, ErrorClass::Conflict);
        for tries in 0..TRIES_MAX {
            match self.try_both(admission, admittee, &delivery, entry).await? {
                Tried::Written => return Ok(written(admission, admittee, entry, joined)),
                Tried::DeliveryExists { delivery, event } => {
                    return Ok(self.known_delivery(admission, &delivery, event.as_ref()).await);
                }
                Tried::EventExists(item) => {
                    joined = readable(admission, items::read_event(&item));
                    entry = EventEntry::Join;
                }
                Tried::EventVanished => {
                    joined = None;
                    entry = EventEntry::Put;
                }
                Tried::Again(retryable) => {
                    error = retryable;
                    wait(admission.nonce, tries).await;
                }
            }
        }
        Err(error)
    }

    /// The delivery was there: our own write whose answer was lost, or a duplicate.
    ///
    /// A row that cannot be read is there all the same, and never makes a duplicate an error. What counts is the event that
    /// the kept bytes mean; other bytes may mean another one, which is there for reasons of its own.
    async fn known_delivery(&self, admission: &Admission<'_>, delivery: &Item, event: Option<&Item>) -> Admitted {
        let beside = event.and_then(|item| readable(admission, items::read_event(item)));
        let Some(known) = readable(admission, items::read_delivery(delivery)) else {
            return Admitted::Duplicate {
                conflict: false,
                event: beside.map(Box::new),
            };
        };
        let kept = known.row.delivery;
        let event = match (&kept.outcome, beside) {
            (Outcome::Accepted(id), Some(row)) if row.event.id == *id => Some(row),
            // The answer did not show it: these bytes mean another event or none, or a conflict hid it.
            (Outcome::Accepted(id), _) => self.kept_event(id).await,
            (Outcome::Ignored(_) | Outcome::Malformed(_), _) => None,
        };
        if known.nonce == admission.nonce {
            let lease = event.and_then(|row| Lease::proven_by(&row.event.id, &row.state, admission.nonce));
            return Admitted::Created { lease };
        }
        Admitted::Duplicate {
            conflict: admission.delivery.conflicts_with(&kept),
            event: event.map(Box::new),
        }
    }

    /// The event's row, where it can be had. Whoever asks has a durable delivery and loses nothing without it.
    async fn kept_event(&self, id: &EventId) -> Option<EventRow> {
        self.event(id).await.unwrap_or_else(|error| {
            tracing::warn!(event.id = %id, "{error}; leave the event until it is due");
            None
        })
    }

    async fn try_both(
        &self,
        admission: &Admission<'_>,
        admittee: &Admittee,
        delivery: &Item,
        entry: EventEntry,
    ) -> Result<Tried, LedgerError> {
        let incomplete = |_incomplete| failed(admission, ErrorClass::Invalid);
        let event = match entry {
            EventEntry::Put => {
                let received_at = admission.delivery.received_at;
                let net = admission.delivery.net;
                let item = items::event_item(&admittee.event, &admittee.state, received_at, net, None);
                self.put_new(item).map_err(incomplete)?
            }
            EventEntry::Join => self.join(admission, admittee).map_err(incomplete)?,
        };
        let sent = self
            .client
            .transact_write_items()
            .transact_items(self.put_new(delivery.clone()).map_err(incomplete)?)
            .transact_items(event)
            .send()
            .await;
        match sent {
            Ok(_) => Ok(Tried::Written),
            Err(error) => match error.as_service_error() {
                Some(TransactWriteItemsError::TransactionCanceledException(canceled)) => {
                    judge(admission, canceled.cancellation_reasons(), entry)
                }
                _ => again(ledger_error(ATTEMPTED, &admission.delivery.key, &error)).map(Tried::Again),
            },
        }
    }

    fn put_new(&self, item: Item) -> Result<TransactWriteItem, aws_sdk_dynamodb::error::BuildError> {
        let put = Put::builder()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression("attribute_not_exists(#pk)")
            .expression_attribute_names("#pk", name::PK)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    fn join(
        &self,
        admission: &Admission<'_>,
        admittee: &Admittee,
    ) -> Result<TransactWriteItem, aws_sdk_dynamodb::error::BuildError> {
        let update = Update::builder()
            .table_name(&self.table)
            .set_key(Some(row_key(items::event_pk(&admittee.event.id))))
            .update_expression(JOIN)
            .condition_expression("attribute_exists(#pk)")
            .expression_attribute_names("#pk", name::PK)
            .expression_attribute_names("#seen_by", name::SEEN_BY)
            .expression_attribute_values(":net", nets(admission.delivery.net))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()?;
        Ok(TransactWriteItem::builder().update(update).build())
    }
}

/// Adds a net to those that have seen an event.
const JOIN: &str = "ADD #seen_by :net";

fn nets(net: Net) -> AttributeValue {
    AttributeValue::Ss(vec![net.as_str().to_owned()])
}

/// Puts a chunk, unless it is there and stays at least as long: another delivery with the same body may count on it for
/// longer than this one does.
async fn put_chunk(
    client: Client,
    table: String,
    chunk: Item,
    expires_at: Timestamp,
) -> Result<(), SdkError<PutItemError>> {
    let sent = client
        .put_item()
        .table_name(table)
        .set_item(Some(chunk))
        .condition_expression("attribute_not_exists(#pk) OR #expires_at < :expires_at")
        .expression_attribute_names("#pk", name::PK)
        .expression_attribute_names("#expires_at", name::EXPIRES_AT)
        .expression_attribute_values(":expires_at", items::seconds(expires_at))
        .send()
        .await;
    match sent {
        Ok(_) => Ok(()),
        Err(error) if is_failed_condition(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Waits for one of the chunks under way.
async fn finish(on: &str, under_way: &mut JoinSet<Result<(), SdkError<PutItemError>>>) -> Result<(), LedgerError> {
    match under_way.join_next().await {
        None | Some(Ok(Ok(()))) => Ok(()),
        Some(Ok(Err(error))) => Err(ledger_error(WRITE_BODY, on, &error)),
        Some(Err(_panicked)) => Err(LedgerError {
            attempted: WRITE_BODY,
            on: on.to_owned(),
            class: ErrorClass::ServerFault,
            source: None,
        }),
    }
}

pub(super) fn is_failed_condition(error: &SdkError<PutItemError>) -> bool {
    matches!(
        error.as_service_error(),
        Some(PutItemError::ConditionalCheckFailedException(_))
    )
}

/// The delivery is in, with its event or beside the one that was there.
fn written(admission: &Admission<'_>, admittee: &Admittee, entry: EventEntry, joined: Option<EventRow>) -> Admitted {
    match entry {
        EventEntry::Put => Admitted::Created {
            lease: Lease::proven_by(&admittee.event.id, &admittee.state, admission.nonce),
        },
        EventEntry::Join => {
            let net = admission.delivery.net;
            let is_new_to_net = joined.as_ref().is_some_and(|row| !row.seen_by.contains(&net));
            let joined = joined.map(|mut row| {
                row.seen_by.insert(net);
                Box::new(row)
            });
            Admitted::Joined {
                event: joined,
                is_new_to_net,
            }
        }
    }
}

/// What a cancelled transaction says, by the reason of each entry. `None` proves nothing about absence: that entry may
/// just not have been looked at.
fn judge(admission: &Admission<'_>, reasons: &[CancellationReason], entry: EventEntry) -> Result<Tried, LedgerError> {
    let [delivery, event] = reasons else {
        return Err(failed(admission, ErrorClass::ServerFault));
    };
    if let Some(item) = exists(delivery) {
        return Ok(Tried::DeliveryExists {
            delivery: item.clone(),
            event: exists(event).cloned(),
        });
    }
    // One conflict does not make all of it worth a repeat in place: the worst of the reasons decides.
    let classes = [delivery, event].map(class_of);
    let worst = |class| classes.contains(&Some(class));
    for class in [ErrorClass::Invalid, ErrorClass::TooLarge, ErrorClass::Denied] {
        if worst(class) {
            return Err(failed(admission, class));
        }
    }
    match (event.code(), exists(event), entry) {
        (Some(CONDITION_FAILED), Some(item), EventEntry::Put) => Ok(Tried::EventExists(item.clone())),
        (Some(CONDITION_FAILED), _, EventEntry::Join) => Ok(Tried::EventVanished),
        _ => {
            let class = if worst(ErrorClass::Throttled) {
                ErrorClass::Throttled
            } else {
                ErrorClass::Conflict
            };
            Ok(Tried::Again(failed(admission, class)))
        }
    }
}

pub(super) const CONDITION_FAILED: &str = "ConditionalCheckFailed";

/// The row that made an entry's condition fail.
fn exists(reason: &CancellationReason) -> Option<&Item> {
    (reason.code() == Some(CONDITION_FAILED))
        .then(|| reason.item())
        .flatten()
        .filter(|item| !item.is_empty())
}

/// Why an entry failed, where it was not its condition.
fn class_of(reason: &CancellationReason) -> Option<ErrorClass> {
    match reason.code()? {
        "None" | CONDITION_FAILED => None,
        code => Some(class_of_code(code)),
    }
}

/// The row behind the failed condition of a put.
fn existing(error: &SdkError<PutItemError>) -> Option<&Item> {
    let PutItemError::ConditionalCheckFailedException(failed) = error.as_service_error()? else {
        return None;
    };
    failed.item()
}

fn readable<R>(admission: &Admission<'_>, row: Result<R, Unreadable>) -> Option<R> {
    row.inspect_err(|unreadable| {
        tracing::warn!(delivery.id = %admission.delivery.key, "skip a row beside the delivery: {unreadable}");
    })
    .ok()
}

fn failed(admission: &Admission<'_>, class: ErrorClass) -> LedgerError {
    LedgerError {
        attempted: ATTEMPTED,
        on: admission.delivery.key.to_string(),
        class,
        source: None,
    }
}

/// `error` where another try may help, else the end of it.
fn again(error: LedgerError) -> Result<LedgerError, LedgerError> {
    match error.kind() {
        ErrorKind::Retry => Ok(error),
        ErrorKind::Reject | ErrorKind::Fix | ErrorKind::Bug => Err(error),
    }
}

async fn wait(nonce: Nonce, tries: u32) {
    let span = backoff::wait(tries, WAIT_MIN, WAIT_MAX, nonce.number());
    pause(Duration::try_from(span).unwrap_or_default()).await;
}
