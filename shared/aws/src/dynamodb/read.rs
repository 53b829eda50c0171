//! Reads: single rows, bodies, listings. No listing of an index is trusted: rows are read from the table.

use aws_sdk_dynamodb::types::KeysAndAttributes;
use forebay_core::delivery::DeliveryKey;
use forebay_core::event::EventId;
use forebay_core::ports::{ErrorClass, LedgerError, Listed, Listing};
use forebay_core::session::{OwnerKey, Session};
use jiff::{SignedDuration, Timestamp};

use super::body::unpack;
use super::items::{
    self, Item, RECENT_SHARDS, ReadDelivery, SESSIONS_SHARD, StoredBody, Unreadable, chunk_key, chunk_pk, delivery_pk,
    event_pk, millis, name, row_key, text,
};
use super::{DynamoLedger, RECENT_INDEX, WAITING_INDEX, unreadable_row};
use crate::fault::ledger_error;

/// Most keys of one batch read
/// (<https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html>).
const BATCH_KEYS_MAX: usize = 100;
/// Most repeats for keys that a batch read left unprocessed.
const BATCH_TRIES_MAX: usize = 4;
/// Most days that one listing walks through: the longest retention.
const LISTED_DAYS_MAX: i64 = 3_660;
/// Most pages of one index query.
const PAGES_MAX: usize = 100;
/// Most keys of one such page.
const PAGE_KEYS_MAX: i32 = 1_000;

impl DynamoLedger {
    /// One row, read consistently.
    pub(super) async fn get(&self, attempted: &'static str, on: &str, key: Item) -> Result<Option<Item>, LedgerError> {
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(key))
            .consistent_read(true);
        let output = request
            .send()
            .await
            .map_err(|error| ledger_error(attempted, on, &error))?;
        Ok(output.item)
    }

    /// Rows by key, read consistently, in no order. Absent rows are absent.
    pub(super) async fn get_many(
        &self,
        attempted: &'static str,
        on: &str,
        keys: Vec<Item>,
    ) -> Result<Vec<Item>, LedgerError> {
        let mut rows = Vec::with_capacity(keys.len());
        for batch in keys.chunks(BATCH_KEYS_MAX) {
            let mut left = batch.to_vec();
            for _ in 0..BATCH_TRIES_MAX {
                if left.is_empty() {
                    break;
                }
                let wanted = KeysAndAttributes::builder()
                    .set_keys(Some(left))
                    .consistent_read(true)
                    .build();
                let wanted = wanted.map_err(|_incomplete| failed(attempted, on, ErrorClass::Invalid))?;
                let sent = self
                    .client
                    .batch_get_item()
                    .request_items(&self.table, wanted)
                    .send()
                    .await;
                let output = sent.map_err(|error| ledger_error(attempted, on, &error))?;
                rows.extend(
                    output
                        .responses
                        .and_then(|mut tables| tables.remove(&self.table))
                        .unwrap_or_default(),
                );
                let unprocessed = output
                    .unprocessed_keys
                    .and_then(|mut tables| tables.remove(&self.table));
                left = unprocessed.map(|keys| keys.keys).unwrap_or_default();
            }
            if !left.is_empty() {
                return Err(failed(attempted, on, ErrorClass::Throttled));
            }
        }
        Ok(rows)
    }

    pub(super) async fn read_delivery(&self, key: &DeliveryKey) -> Result<Option<ReadDelivery>, LedgerError> {
        const ATTEMPTED: &str = "read delivery";
        let item = self.get(ATTEMPTED, &key.to_string(), row_key(delivery_pk(key))).await?;
        let read = item.map(|item| items::read_delivery(&item)).transpose();
        read.map_err(|unreadable| unreadable_row(ATTEMPTED, key, unreadable))
    }

    pub(super) async fn read_body(&self, key: &DeliveryKey) -> Result<Option<Vec<u8>>, LedgerError> {
        const ATTEMPTED: &str = "read body of";
        let Some(read) = self.read_delivery(key).await? else {
            return Ok(None);
        };
        let Some((compressed, dictionary)) = self.compressed(ATTEMPTED, read.body).await? else {
            return Ok(None);
        };
        let delivery = &read.row.delivery;
        let body = unpack(&compressed, dictionary, delivery.size, &delivery.digest);
        body.map(Some)
            .ok_or_else(|| failed(ATTEMPTED, &key.to_string(), ErrorClass::Unreadable))
    }

    pub(super) async fn read_content(&self, event: &EventId) -> Result<Option<String>, LedgerError> {
        const ATTEMPTED: &str = "read content of event";
        let item = self.get(ATTEMPTED, event.as_str(), row_key(event_pk(event))).await?;
        let unreadable = |unreadable| unreadable_row(ATTEMPTED, event, unreadable);
        let content = item
            .map(|item| items::read_content(&item))
            .transpose()
            .map_err(unreadable)?;
        let Some(content) = content.flatten() else {
            return Ok(None);
        };
        let Some((compressed, dictionary)) = self.compressed(ATTEMPTED, content.body.clone()).await? else {
            return Ok(None);
        };
        items::unpack_content(&content, &compressed, dictionary)
            .map(Some)
            .map_err(unreadable)
    }

    /// The compressed bytes of a body, wherever they are, and the number of their dictionary. `None` where they went.
    async fn compressed(
        &self,
        attempted: &'static str,
        body: StoredBody,
    ) -> Result<Option<(Vec<u8>, u64)>, LedgerError> {
        let (digest, count, dictionary) = match body {
            StoredBody::Redacted { .. } => return Ok(None),
            StoredBody::Inline { bytes, dictionary } => return Ok(Some((bytes, dictionary))),
            StoredBody::Chunks {
                digest,
                count,
                dictionary,
                ..
            } => (digest, count, dictionary),
        };
        let on = digest.to_string();
        let mut compressed = Vec::new();
        for position in 0..count {
            let key = chunk_key(chunk_pk(&digest, position));
            let missing = || failed(attempted, &on, ErrorClass::Unreadable);
            let item = self.get(attempted, &on, key).await?.ok_or_else(missing)?;
            let bytes = items::read_chunk(&item);
            let bytes = bytes.map_err(|unreadable| unreadable_row(attempted, &on, unreadable))?;
            compressed.extend_from_slice(bytes);
        }
        Ok(Some((compressed, dictionary)))
    }

    /// Rows of one kind by time, newest first.
    pub(super) async fn list<R>(
        &self,
        listing: &Listing,
        read: impl Fn(&Item) -> Result<R, Unreadable>,
        at: impl Fn(&R) -> Timestamp,
    ) -> Result<Vec<R>, LedgerError> {
        let kind = match listing.what {
            Listed::Events => "event",
            Listed::Deliveries => "delivery",
        };
        let mut rows = Vec::new();
        let mut day = listing.until;
        for _ in 0..LISTED_DAYS_MAX {
            for shard in 0..RECENT_SHARDS {
                let shard = items::recent_shard(kind, day, shard);
                rows.extend(self.list_shard(&shard, listing, &read).await?);
            }
            day = day
                .saturating_sub(SignedDuration::from_hours(24))
                .unwrap_or(Timestamp::MIN);
            // The day of `since` itself is walked as well, whatever the time of day.
            let one_day_before = listing.since.saturating_sub(SignedDuration::from_hours(24));
            if rows.len() >= listing.limit || day <= one_day_before.unwrap_or(Timestamp::MIN) {
                break;
            }
        }
        rows.sort_by_key(|row| std::cmp::Reverse(at(row)));
        rows.truncate(listing.limit);
        Ok(rows)
    }

    /// Rows of one shard of the `recent` index, as many as the listing may hold. A row that cannot be read takes no place.
    pub(super) async fn list_shard<R>(
        &self,
        shard: &str,
        listing: &Listing,
        read: &impl Fn(&Item) -> Result<R, Unreadable>,
    ) -> Result<Vec<R>, LedgerError> {
        let mut rows = Vec::new();
        let mut start = None;
        // DynamoDB refuses a span that ends before it begins. Nothing is in it.
        if listing.since > listing.until {
            return Ok(rows);
        }
        for _ in 0..PAGES_MAX {
            let wanted = listing.limit.saturating_sub(rows.len());
            if wanted == 0 {
                break;
            }
            let (keys, next) = self.recent_keys(shard, listing, wanted, start).await?;
            for item in self.get_many("list", shard, keys).await? {
                match read(&item) {
                    Ok(row) => rows.push(row),
                    Err(unreadable) => tracing::warn!("skip an unreadable row of {shard}: {unreadable}"),
                }
            }
            start = next;
            if start.is_none() {
                break;
            }
        }
        Ok(rows)
    }

    /// A page of keys of one shard of the `recent` index, newest first, and where the next one begins.
    async fn recent_keys(
        &self,
        shard: &str,
        listing: &Listing,
        wanted: usize,
        start: Option<Item>,
    ) -> Result<(Vec<Item>, Option<Item>), LedgerError> {
        let request = self
            .client
            .query()
            .table_name(&self.table)
            .index_name(RECENT_INDEX)
            .key_condition_expression("#shard = :shard AND #at BETWEEN :since AND :until")
            .expression_attribute_names("#shard", name::RECENT_SHARD)
            .expression_attribute_names("#at", name::RECENT_AT)
            .expression_attribute_values(":shard", text(shard))
            .expression_attribute_values(":since", millis(listing.since))
            .expression_attribute_values(":until", millis(listing.until))
            .scan_index_forward(false)
            .limit(i32::try_from(wanted).unwrap_or(PAGE_KEYS_MAX).min(PAGE_KEYS_MAX))
            .set_exclusive_start_key(start);
        let output = request
            .send()
            .await
            .map_err(|error| ledger_error("list", shard, &error))?;
        let keys = output.items.unwrap_or_default().into_iter().map(primary_key);
        Ok((keys.collect(), output.last_evaluated_key))
    }

    pub(super) async fn list_sessions(&self, limit: usize) -> Result<Vec<Session>, LedgerError> {
        let listing = Listing {
            what: Listed::Events,
            since: Timestamp::UNIX_EPOCH,
            until: FAR,
            limit,
        };
        let mut sessions = self.list_shard(SESSIONS_SHARD, &listing, &items::read_session).await?;
        sessions.retain(|session| session.phase.is_live());
        sessions.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(sessions)
    }

    pub(super) async fn list_waiting(&self, key: &OwnerKey, limit: usize) -> Result<Vec<EventId>, LedgerError> {
        let request = self
            .client
            .query()
            .table_name(&self.table)
            .index_name(WAITING_INDEX)
            .key_condition_expression("#waiting_for = :key")
            .expression_attribute_names("#waiting_for", name::WAITING_FOR)
            .expression_attribute_values(":key", text(key.as_str()))
            // DynamoDB takes no limit of zero.
            .limit(i32::try_from(limit).unwrap_or(i32::MAX).max(1));
        let output = request
            .send()
            .await
            .map_err(|error| ledger_error("list events waiting for", key, &error))?;
        let items = output.items.unwrap_or_default();
        let pks = items.iter().filter_map(|item| item.get(name::PK)?.as_s().ok());
        Ok(pks.filter_map(|pk| items::event_id_of(pk)).take(limit).collect())
    }
}

/// Later than any row.
const FAR: Timestamp = Timestamp::MAX;

fn primary_key(mut item: Item) -> Item {
    item.retain(|name, _| name == name::PK || name == name::SK);
    item
}

fn failed(attempted: &'static str, on: &str, class: ErrorClass) -> LedgerError {
    LedgerError {
        attempted,
        on: on.to_owned(),
        class,
        source: None,
    }
}
