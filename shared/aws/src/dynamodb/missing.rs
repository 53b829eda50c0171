//! Deliveries that GitHub made and the ledger lacks, and what has become of them.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use forebay_core::delivery::{DeliveryKey, Outcome};
use forebay_core::event::{EventId, Net};
use forebay_core::ports::{ErrorClass, Ledger as _, LedgerError};
use forebay_core::source::SourceId;
use forebay_core::source::github::{Becomes, Missing, MissingStore};
use jiff::Timestamp;

use super::items::sources::{self, attribute, missing_key, missing_shard};
use super::items::{self, delivery_pk, event_pk, millis, name, number, row_key, text};
use super::{DynamoLedger, failed_condition};
use crate::fault::ledger_error;

/// Most tries of saying who has seen an event. Each but the last was overtaken by somebody else who has seen it.
const TRIES_MAX: usize = 5;

impl MissingStore for DynamoLedger {
    async fn kept(&self, keys: &[DeliveryKey]) -> Result<BTreeSet<DeliveryKey>, LedgerError> {
        let wanted = keys.iter().map(|key| row_key(delivery_pk(key))).collect();
        let rows = self.get_many("look for deliveries", "a log's page", wanted).await?;
        // A row that this version cannot read is there all the same.
        let there: BTreeSet<String> = rows
            .iter()
            .filter_map(|row| row.get(name::PK)?.as_s().ok().cloned())
            .collect();
        let kept = keys.iter().filter(|key| there.contains(&delivery_pk(key)));
        Ok(kept.cloned().collect())
    }

    async fn note_missing(&self, log: &SourceId, missing: &[Missing]) -> Result<u64, LedgerError> {
        let rows = missing
            .iter()
            .map(|missing| (missing.key.to_string(), sources::missing_item(log, missing)));
        self.put_absent("note missing delivery", rows.collect()).await
    }

    async fn due_missing(&self, log: &SourceId, until: Timestamp, limit: usize) -> Result<Vec<Missing>, LedgerError> {
        const ATTEMPTED: &str = "list missing deliveries of";
        let shard = missing_shard(log);
        let places = self.query_due(ATTEMPTED, &shard, until, None, limit).await?;
        let key = |(_, item): (Timestamp, items::Item)| {
            let pk = item.get(name::PK)?.as_s().ok()?;
            Some(row_key(pk.clone()))
        };
        let keys = places.into_iter().filter_map(key).collect();
        let mut due = Vec::new();
        for item in self.get_many(ATTEMPTED, &shard, keys).await? {
            match sources::read_missing(&item) {
                Ok(missing) => due.extend(missing.filter(|missing| missing.due_at <= until)),
                // It fails alone; a newer version's is none of ours.
                Err(unreadable) => tracing::warn!("skip a missing delivery of {log}: {unreadable}"),
            }
        }
        due.sort_by_key(|missing| missing.due_at);
        Ok(due)
    }

    async fn settle_missing(
        &self,
        _log: &SourceId,
        missing: &Missing,
        becomes: Becomes,
        now: Timestamp,
    ) -> Result<(), LedgerError> {
        let update = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(missing_key(&missing.key)))
            .condition_expression("attribute_exists(#pk) AND #v <= :format")
            .expression_attribute_names("#pk", name::PK)
            .expression_attribute_names("#v", name::FORMAT)
            .expression_attribute_names("#due_at", name::DUE_AT)
            .expression_attribute_values(":format", number(items::FORMAT));
        let update = match becomes {
            Becomes::Asked(due_at) => update
                .update_expression("SET #asked = :asked, #due_at = :due_at")
                .expression_attribute_names("#asked", attribute::ASKED)
                .expression_attribute_values(":asked", number(missing.asked.saturating_add(1)))
                .expression_attribute_values(":due_at", millis(due_at)),
            Becomes::Here | Becomes::Lost(_) => {
                let word = match becomes {
                    Becomes::Lost(word) => word,
                    Becomes::Here | Becomes::Asked(_) => "here",
                };
                update
                    .update_expression("SET #became = :became, #expires_at = :expires_at REMOVE #due_shard, #due_at")
                    .expression_attribute_names("#became", attribute::BECAME)
                    .expression_attribute_names("#expires_at", name::EXPIRES_AT)
                    .expression_attribute_names("#due_shard", name::DUE_SHARD)
                    .expression_attribute_values(":became", text(word))
                    .expression_attribute_values(":expires_at", sources::missing_expires_at(now))
            }
        };
        match update.send().await {
            Ok(_) => Ok(()),
            // It has gone, or is a newer version's: there is nothing to remember.
            Err(error) if failed_condition(&error).is_some() => Ok(()),
            Err(error) => Err(ledger_error("settle missing delivery", &missing.key, &error)),
        }
    }

    async fn attribute(&self, key: &DeliveryKey) -> Result<bool, LedgerError> {
        const ATTEMPTED: &str = "attribute delivery";
        let Some(read) = self.read_delivery(key).await? else {
            return Ok(false);
        };
        if read.row.delivery.net != Net::Webhook {
            return Ok(false);
        }
        let alone = match &read.row.delivery.outcome {
            Outcome::Accepted(event) => self.attribute_event(event, key).await?,
            Outcome::Ignored(_) | Outcome::Malformed(_) => false,
        };
        // Last: as long as the delivery says webhook, this is done again.
        let sent = self
            .update(delivery_pk(key))
            .update_expression("SET #net = :recovery")
            .condition_expression("attribute_exists(#pk)")
            .expression_attribute_names("#pk", name::PK)
            .expression_attribute_names("#net", "net")
            .expression_attribute_values(":recovery", text(Net::Recovery.as_str()))
            .send()
            .await;
        match sent {
            Ok(_) => Ok(alone),
            Err(error) if failed_condition(&error).is_some() => Ok(alone),
            Err(error) => Err(ledger_error(ATTEMPTED, key, &error)),
        }
    }
}

impl DynamoLedger {
    async fn attribute_event(&self, event: &EventId, key: &DeliveryKey) -> Result<bool, LedgerError> {
        const ATTEMPTED: &str = "attribute event";
        for _ in 0..TRIES_MAX {
            let Some(row) = self.event(event).await? else {
                return Ok(false);
            };
            let (first_seen, seen_by) = row.recovered_through(key);
            let set =
                |nets: &BTreeSet<Net>| AttributeValue::Ss(nets.iter().map(|net| net.as_str().to_owned()).collect());
            let sent = self
                .update(event_pk(event))
                .update_expression("SET #first_seen = :first_seen, #seen_by = :seen_by")
                .condition_expression("#seen_by = :before")
                .expression_attribute_names("#first_seen", "first_seen")
                .expression_attribute_names("#seen_by", name::SEEN_BY)
                .expression_attribute_values(":first_seen", text(first_seen.as_str()))
                .expression_attribute_values(":seen_by", set(&seen_by))
                .expression_attribute_values(":before", set(&row.seen_by))
                .send()
                .await;
            match sent {
                Ok(_) => return Ok(seen_by.len() == 1),
                Err(error) if failed_condition(&error).is_some() => {}
                Err(error) => return Err(ledger_error(ATTEMPTED, event, &error)),
            }
        }
        Err(LedgerError {
            attempted: ATTEMPTED,
            on: event.to_string(),
            class: ErrorClass::Conflict,
            source: None,
        })
    }
}
