//! Taking a body out of the ledger, under the fence.

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{CancellationReason, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use forebay_core::delivery::{DeliveryKey, Digest};
use forebay_core::ledger::{Lease, Refused, refusal};
use forebay_core::ports::{ErrorClass, LedgerError, Redacted};
use jiff::Timestamp;

use super::items::{
    self, StoredBody, Unreadable, chunk_key, chunk_pk, event_pk, millis, name, number, row_key, seconds, text,
};
use super::{DynamoLedger, OWNED, Write, failed_condition, owned, unreadable_row};
use crate::fault::{class_of_code, ledger_error};

const ATTEMPTED: &str = "redact body of";

impl DynamoLedger {
    /// One transaction takes the body out of its row and the quotation out of the event's, if the lease is still good. Chunks
    /// follow: the row goes on naming them, so that a repeat finds those that are left.
    pub(super) async fn redact_body(
        &self,
        lease: &Lease,
        key: &DeliveryKey,
        now: Timestamp,
    ) -> Result<Redacted, LedgerError> {
        let incomplete = |_incomplete| failed(key, ErrorClass::Invalid);
        let event = self.forget_summary(lease, now).map_err(incomplete)?;
        let delivery = self.forget_body(lease, key, now).map_err(incomplete)?;
        let request = self.client.transact_write_items();
        if let Err(error) = request.transact_items(event).transact_items(delivery).send().await {
            return match error.as_service_error() {
                Some(TransactWriteItemsError::TransactionCanceledException(canceled)) => {
                    judge(lease, key, now, canceled.cancellation_reasons())
                }
                _ => Err(ledger_error(ATTEMPTED, key, &error)),
            };
        }
        let read = self.read_delivery(key).await?;
        if let Some(StoredBody::Redacted {
            chunks: Some((digest, count)),
            ..
        }) = read.map(|read| read.body)
        {
            self.empty_chunks(key, &digest, count, now).await?;
        }
        Ok(Redacted::Done)
    }

    fn forget_summary(&self, lease: &Lease, now: Timestamp) -> Result<TransactWriteItem, BuildError> {
        let write = Write {
            update: format!("REMOVE #{}", name::SUMMARY),
            condition: OWNED.to_owned(),
            ..Write::default()
        };
        let mut write = owned(write, lease, now).name(&[name::SUMMARY]);
        // Settling and renewing move the due time; this does not, and DynamoDB refuses names that nobody uses.
        write
            .names
            .retain(|_, name| name != name::DUE_SHARD && name != name::DUE_AT);
        self.update_in_transaction(event_pk(lease.event()), write)
    }

    fn forget_body(&self, lease: &Lease, key: &DeliveryKey, now: Timestamp) -> Result<TransactWriteItem, BuildError> {
        let write = Write {
            update: "SET #redacted_at = if_not_exists(#redacted_at, :now) REMOVE #body".to_owned(),
            condition: "#v <= :format AND #event = :event".to_owned(),
            ..Write::default()
        };
        let write = write
            .name(&[name::REDACTED_AT, name::BODY, name::FORMAT, name::EVENT])
            .value(":now", millis(now))
            .value(":format", number(items::FORMAT))
            .value(":event", text(lease.event().as_str()));
        self.update_in_transaction(items::delivery_pk(key), write)
    }

    fn update_in_transaction(&self, pk: String, write: Write) -> Result<TransactWriteItem, BuildError> {
        let update = Update::builder()
            .table_name(&self.table)
            .set_key(Some(row_key(pk)))
            .update_expression(write.update)
            .condition_expression(write.condition)
            .set_expression_attribute_names(Some(write.names))
            .set_expression_attribute_values(Some(write.values))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    /// Empties chunks at once and lets their rows go. A later delivery of the same bytes writes them again.
    async fn empty_chunks(
        &self,
        key: &DeliveryKey,
        digest: &Digest,
        count: usize,
        now: Timestamp,
    ) -> Result<(), LedgerError> {
        for position in 0..count {
            let sent = self
                .client
                .update_item()
                .table_name(&self.table)
                .set_key(Some(chunk_key(chunk_pk(digest, position))))
                .update_expression("SET #expires_at = :now REMOVE #bytes")
                .condition_expression("attribute_exists(#pk)")
                .expression_attribute_names("#pk", name::PK)
                .expression_attribute_names("#expires_at", name::EXPIRES_AT)
                .expression_attribute_names("#bytes", name::BYTES)
                .expression_attribute_values(":now", seconds(now))
                .send()
                .await;
            match sent {
                Ok(_) => {}
                Err(error) if failed_condition(&error).is_some() => {}
                Err(error) => return Err(ledger_error(ATTEMPTED, key, &error)),
            }
        }
        Ok(())
    }
}

/// Why nothing was redacted. The event's own condition comes first: who is no longer the owner learns nothing else.
fn judge(
    lease: &Lease,
    key: &DeliveryKey,
    now: Timestamp,
    reasons: &[CancellationReason],
) -> Result<Redacted, LedgerError> {
    let [event, delivery] = reasons else {
        return Err(failed(key, ErrorClass::ServerFault));
    };
    let is_condition = |reason: &CancellationReason| reason.code() == Some("ConditionalCheckFailed");
    if is_condition(event) {
        let Some(item) = event.item().filter(|item| !item.is_empty()) else {
            return Ok(Redacted::Lost(Refused::Missing));
        };
        return match items::read_event(item) {
            Ok(row) => refusal(Some(&row.state), lease, now)
                .map(Redacted::Lost)
                .ok_or_else(|| failed(key, ErrorClass::Invalid)),
            Err(Unreadable::Newer(format)) => Ok(Redacted::Lost(Refused::Newer(format))),
            Err(unreadable @ Unreadable::Attribute(_)) => Err(unreadable_row(ATTEMPTED, key, unreadable)),
        };
    }
    let codes = [event, delivery].map(|reason| reason.code().unwrap_or("None"));
    let other = codes
        .into_iter()
        .find(|code| !["None", "ConditionalCheckFailed"].contains(code));
    match other {
        Some(code) => Err(failed(key, class_of_code(code))),
        None if is_condition(delivery) => Ok(Redacted::NotItsOwn),
        None => Err(failed(key, ErrorClass::Conflict)),
    }
}

fn failed(key: &DeliveryKey, class: ErrorClass) -> LedgerError {
    LedgerError {
        attempted: ATTEMPTED,
        on: key.to_string(),
        class,
        source: None,
    }
}
