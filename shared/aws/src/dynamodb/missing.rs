//! Deliveries that GitHub made and the ledger lacks, and what has become of them.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use forebay_core::delivery::{DeliveryKey, Outcome};
use forebay_core::event::{EventId, Net};
use forebay_core::ports::{ErrorClass, Ledger as _, LedgerError, Listed, Listing};
use forebay_core::source::SourceId;
use forebay_core::source::github::{Becomes, Lost, Missing, MissingStore, Word};
use jiff::Timestamp;

use super::items::sources::{self, attribute, missing_key, missing_shard};
use super::items::{self, delivery_pk, event_pk, millis, name, number, row_key, text};
use super::{DynamoLedger, failed_condition};
use crate::fault::ledger_error;

/// Most pages of what is due of one log. Each but the last is full of rows that this version cannot read.
const DUE_PAGES_MAX: usize = 10;
/// Most tries of saying who has seen an event. Each but the last was overtaken by somebody else who has seen it.
const TRIES_MAX: usize = 5;

impl MissingStore for DynamoLedger {
    async fn kept(&self, keys: &[DeliveryKey]) -> Result<BTreeSet<DeliveryKey>, LedgerError> {
        // A key that is asked for twice makes the whole call invalid.
        let wanted: BTreeSet<String> = keys.iter().map(delivery_pk).collect();
        let wanted = wanted.into_iter().map(row_key).collect();
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
        let key = |(_, item): (Timestamp, items::Item)| {
            let pk = item.get(name::PK)?.as_s().ok()?;
            Some(row_key(pk.clone()))
        };
        let (mut due, mut start) = (Vec::new(), None);
        for _ in 0..DUE_PAGES_MAX {
            let page = self.query_due(ATTEMPTED, &shard, until, start, limit).await?;
            let keys = page.places.into_iter().filter_map(key).collect();
            for item in self.get_many(ATTEMPTED, &shard, keys).await? {
                match sources::read_missing(&item) {
                    Ok(missing) => due.extend(missing.filter(|missing| missing.due_at <= until)),
                    // It fails alone, and hides none behind it; a newer version's is none of ours.
                    Err(unreadable) => tracing::warn!("skip a missing delivery of {log}: {unreadable}"),
                }
            }
            start = page.next;
            if start.is_none() || due.len() >= limit {
                break;
            }
        }
        due.sort_by_key(|missing| missing.due_at);
        due.truncate(limit);
        Ok(due)
    }

    async fn settle_missing(
        &self,
        _log: &SourceId,
        missing: &Missing,
        becomes: Becomes,
        now: Timestamp,
    ) -> Result<Word, LedgerError> {
        let noted = missing.noted(becomes);
        // What has been settled stays so: a poller that was frozen has nothing to say of it. Nor does it take back what another
        // has noted since.
        let condition = match (&noted, missing.asked) {
            (None, _) => "#v <= :format AND attribute_exists(#due_shard)",
            (Some(_), 0) => {
                "#v <= :format AND attribute_exists(#due_shard) AND #due_at = :known_due_at \
                 AND (attribute_not_exists(#asked) OR #asked = :known_asked)"
            }
            (Some(_), _) => {
                "#v <= :format AND attribute_exists(#due_shard) AND #due_at = :known_due_at AND #asked = :known_asked"
            }
        };
        let update = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(missing_key(&missing.key)))
            .condition_expression(condition)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .expression_attribute_names("#v", name::FORMAT)
            .expression_attribute_names("#due_shard", name::DUE_SHARD)
            .expression_attribute_names("#due_at", name::DUE_AT)
            .expression_attribute_values(":format", number(items::FORMAT));
        let update = match &noted {
            Some(noted) => update
                .update_expression("SET #asked = :asked, #due_at = :due_at")
                .expression_attribute_names("#asked", attribute::ASKED)
                .expression_attribute_values(":known_asked", number(missing.asked))
                .expression_attribute_values(":known_due_at", millis(missing.due_at))
                .expression_attribute_values(":asked", number(noted.asked))
                .expression_attribute_values(":due_at", millis(noted.due_at)),
            None => update
                .expression_attribute_names("#became", attribute::BECAME)
                .expression_attribute_names("#expires_at", name::EXPIRES_AT)
                .expression_attribute_values(":expires_at", sources::missing_expires_at(now)),
        };
        let update = match becomes {
            Becomes::Asked(_) | Becomes::PutOff { .. } => update,
            Becomes::Here => update
                .update_expression("SET #became = :became, #expires_at = :expires_at REMOVE #due_shard, #due_at")
                .expression_attribute_values(":became", text(sources::HERE)),
            // The operator looks for it where everything is that happened lately.
            Becomes::Lost(word) => update
                .update_expression(
                    "SET #became = :became, #expires_at = :expires_at, #recent_shard = :lost, #recent_at = :now \
                     REMOVE #due_shard, #due_at",
                )
                .expression_attribute_names("#recent_shard", name::RECENT_SHARD)
                .expression_attribute_names("#recent_at", name::RECENT_AT)
                .expression_attribute_values(":became", text(word))
                .expression_attribute_values(":lost", text(sources::LOST_SHARD))
                .expression_attribute_values(":now", millis(now)),
        };
        let error = match update.send().await {
            Ok(_) => return Ok(Word::Ours),
            Err(error) => error,
        };
        match failed_condition(&error) {
            // It may be as this very write left it, whose answer was lost.
            Some(Some(item)) if stands_so(item, noted.as_ref(), becomes, now) => Ok(Word::Ours),
            // It has gone, is settled, is another poller's, or a newer version's: there is nothing to remember.
            Some(_) => Ok(Word::Theirs),
            None => Err(ledger_error("settle missing delivery", &missing.key, &error)),
        }
    }

    async fn lost(&self, since: Timestamp, limit: usize) -> Result<Vec<Lost>, LedgerError> {
        let listing = Listing {
            what: Listed::Deliveries,
            since,
            until: Timestamp::MAX,
            limit,
        };
        let mut lost = self
            .list_shard(sources::LOST_SHARD, &listing, &sources::read_lost)
            .await?;
        // The index has them in order, and a call for many rows answers in any.
        lost.sort_by_key(|lost| Reverse(lost.since));
        Ok(lost)
    }

    async fn attribute(&self, key: &DeliveryKey) -> Result<bool, LedgerError> {
        match self.attribute_delivery(key).await {
            // It fails alone, or nothing behind it would ever be recovered.
            Err(error) if error.class == ErrorClass::Unreadable => {
                tracing::warn!(error = %error.cause(), "{error}; it counts as a webhook's");
                Ok(false)
            }
            attributed => attributed,
        }
    }
}

/// Whether a missing delivery's row says what it would say had it become this just now.
fn stands_so(item: &items::Item, noted: Option<&Missing>, becomes: Becomes, now: Timestamp) -> bool {
    let word = match becomes {
        Becomes::Here => sources::HERE,
        Becomes::Lost(word) => word,
        Becomes::Asked(_) | Becomes::PutOff { .. } => {
            let known = |row: &Missing| (row.asked, millis(row.due_at));
            let there = sources::read_missing(item).ok().flatten();
            return there.as_ref().map(known) == noted.map(known);
        }
    };
    item.get(attribute::BECAME) == Some(&text(word))
        && item.get(name::EXPIRES_AT) == Some(&sources::missing_expires_at(now))
}

impl DynamoLedger {
    async fn attribute_delivery(&self, key: &DeliveryKey) -> Result<bool, LedgerError> {
        const ATTEMPTED: &str = "attribute delivery";
        let Some(read) = self.read_delivery(key).await? else {
            return Ok(false);
        };
        let delivery = &read.row.delivery;
        let Outcome::Accepted(event) = &delivery.outcome else {
            return if delivery.net == Net::Webhook {
                self.mark_recovered(ATTEMPTED, key).await.map(|()| false)
            } else {
                Ok(false)
            };
        };
        if delivery.net != Net::Webhook {
            // Done before, by a poll that may not have come to its end: it is answered as well as the row can tell.
            let row = self.event(event).await?;
            return Ok(row.is_some_and(|row| row.is_lost_through(key, &row.seen_by)));
        }
        let alone = self.attribute_event(event, key).await?;
        // Last: as long as the delivery says webhook, this is done again.
        self.mark_recovered(ATTEMPTED, key).await?;
        Ok(alone)
    }

    async fn mark_recovered(&self, attempted: &'static str, key: &DeliveryKey) -> Result<(), LedgerError> {
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
            Ok(_) => Ok(()),
            Err(error) if failed_condition(&error).is_some() => Ok(()),
            Err(error) => Err(ledger_error(attempted, key, &error)),
        }
    }

    async fn attribute_event(&self, event: &EventId, key: &DeliveryKey) -> Result<bool, LedgerError> {
        const ATTEMPTED: &str = "attribute event";
        for _ in 0..TRIES_MAX {
            let Some(mut row) = self.event(event).await? else {
                return Ok(false);
            };
            if row.first_seen == Net::Recovery && row.event.delivery.as_ref() == Some(key) {
                // Done before, and its delivery was not reached: a webhook that has seen it since is another hook's.
                return Ok(row.is_lost_through(key, &row.seen_by));
            }
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
                Ok(_) => {
                    let before = std::mem::replace(&mut row.seen_by, seen_by);
                    return Ok(row.is_lost_through(key, &before));
                }
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
