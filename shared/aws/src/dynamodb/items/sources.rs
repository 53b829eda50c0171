//! The rows of sources, of when targets may be asked again, and of missing deliveries.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use forebay_core::delivery::{DeliveryKey, Digest};
use forebay_core::ledger::{Nonce, Token};
use forebay_core::schedule::{Resting, SourceState};
use forebay_core::source::github::{Lost, Missing};
use forebay_core::source::{Cursor, SourceId};
use forebay_core::target::TargetKey;
use jiff::{SignedDuration, Timestamp};

use super::{
    FORMAT, Item, Reader, Row, StoredBody, StoredContent, Unreadable, millis, name, number, put_body, row_key, seconds,
    stored_content, target_row, text, unpack_content,
};
use crate::dynamodb::body::{Packed, pack};

/// Sort keys of a source's two rows.
const CLAIM: &str = "claim";
const CURSOR: &str = "cursor";
/// Sort key of when a target may be asked again. It sorts in front of its slots and its state.
const LIMIT: &str = "limit";
/// The one shard of the `due` index that sources are in: a claim a second each would be sixty thousand sources.
pub(crate) const SOURCES_SHARD: &str = "source";
/// How long it is remembered that a target asked to be left alone: longer than any wait, and than limits count as one in a row.
const LIMIT_KEPT: SignedDuration = SignedDuration::from_hours(24);
/// How long it is remembered what has become of a missing delivery: longer than any log shows it.
const MISSING_KEPT: SignedDuration = SignedDuration::from_hours(10 * 24);

/// Name of the webhook event of a missing delivery.
const EVENT_NAME: &str = "event_name";
/// What has become of a missing delivery that is here.
pub(crate) const HERE: &str = "here";
/// The one shard of the `recent` index that lost deliveries are in: there are few, or there is an alarm.
pub(crate) const LOST_SHARD: &str = "lost";

/// Attribute names that only these rows have.
pub(crate) mod attribute {
    pub(crate) const INTERVAL: &str = "interval";
    pub(crate) const NOTE: &str = "note";
    pub(crate) const CLAIMED_AT: &str = "claimed_at";
    pub(crate) const UNTIL: &str = "until";
    pub(crate) const STRIKES: &str = "strikes";
    pub(crate) const ASKED: &str = "asked";
    pub(crate) const BECAME: &str = "became";
    pub(crate) const ATTEMPT: &str = "attempt";
    pub(crate) const TOO_LARGE: &str = "too_large";
    pub(crate) const DELIVERED_AT: &str = "delivered_at";
}

fn source_pk(source: &SourceId) -> String {
    format!("source#{source}")
}

fn source_row(source: &SourceId, sk: &str) -> Item {
    Item::from([
        (name::PK.to_owned(), text(source_pk(source))),
        (name::SK.to_owned(), text(sk)),
    ])
}

/// The primary key of a source's claim.
pub(crate) fn claim_key(source: &SourceId) -> Item {
    source_row(source, CLAIM)
}

/// The primary key of a source's cursor.
pub(crate) fn cursor_key(source: &SourceId) -> Item {
    source_row(source, CURSOR)
}

/// The primary key of when a target may be asked again.
pub(crate) fn limit_key(target: &TargetKey) -> Item {
    target_row(target, LIMIT)
}

/// Whose row `item` is, by its sort key.
pub(crate) fn is_limit(item: &Item) -> bool {
    Reader(item).text(name::SK) == Some(LIMIT)
}

/// The source in a primary key.
pub(crate) fn source_of(item: &Item) -> Option<SourceId> {
    Reader(item).text(name::PK)?.strip_prefix("source#").map(SourceId::new)
}

/// The claim that a source begins with.
pub(crate) fn new_claim(source: &SourceId, interval: SignedDuration, now: Timestamp) -> Item {
    let mut row = Row(claim_key(source));
    row.put(name::FORMAT, number(FORMAT));
    row.put(name::TOKEN, number(0));
    row.put(name::NONCE, number(0));
    row.put(name::DUE_SHARD, text(SOURCES_SHARD));
    row.put(name::DUE_AT, millis(now));
    row.put(attribute::INTERVAL, span(interval));
    row.0
}

/// A span as the table holds it: milliseconds, so that it can be added to a time there.
pub(crate) fn span(span: SignedDuration) -> AttributeValue {
    number(span.as_millis())
}

/// Reads a source's claim.
pub(crate) fn read_claim(item: &Item) -> Result<SourceState, Unreadable> {
    let reader = Reader::new(item)?;
    Ok(SourceState {
        token: Token::from_number(reader.number(name::TOKEN)?),
        nonce: Nonce::from_random(reader.number(name::NONCE)?),
        lease_until: reader.time(name::LEASE_UNTIL)?,
        due_at: reader.needed_time(name::DUE_AT)?,
        interval: SignedDuration::from_millis(reader.number(attribute::INTERVAL)?),
        failures: reader.counter(name::FAILURES)?,
        note: reader.owned(attribute::NOTE),
        claimed_at: reader.time(attribute::CLAIMED_AT)?,
    })
}

/// A source's cursor, compressed. `None` without memory for it.
pub(crate) fn cursor_item(source: &SourceId, cursor: &Cursor) -> Option<Item> {
    let Packed { stored, .. } = pack(cursor.as_str().as_bytes(), usize::MAX).ok()?;
    let mut row = Row(cursor_key(source));
    row.put(name::FORMAT, number(FORMAT));
    row.put("size", number(cursor.as_str().len()));
    let digest = Digest::of(cursor.as_str().as_bytes());
    row.put("sha256", AttributeValue::B(Blob::new(digest.as_bytes())));
    put_body(&mut row, &stored);
    Some(row.0)
}

/// Reads a source's cursor.
pub(crate) fn read_cursor(item: &Item) -> Result<Cursor, Unreadable> {
    let unreadable = Unreadable::Attribute(name::BODY);
    let content = stored_content(&Reader::new(item)?)?.ok_or(unreadable)?;
    let StoredContent {
        body: StoredBody::Inline { bytes, dictionary },
        ..
    } = &content
    else {
        return Err(unreadable);
    };
    Cursor::new(unpack_content(&content, bytes, *dictionary)?).ok_or(unreadable)
}

/// Reads when a target may be asked again.
pub(crate) fn read_limit(item: &Item) -> Result<Resting, Unreadable> {
    let reader = Reader::new(item)?;
    Ok(Resting {
        until: reader.needed_time(attribute::UNTIL)?,
        strikes: reader.counter(attribute::STRIKES)?,
    })
}

/// When a target's limit may go.
pub(crate) fn limit_expires_at(resting: &Resting) -> AttributeValue {
    seconds(resting.until.saturating_add(LIMIT_KEPT).unwrap_or(Timestamp::MAX))
}

fn missing_pk(key: &DeliveryKey) -> String {
    format!("missing#{}#{}", key.hook.as_str(), key.guid.as_str())
}

/// The primary key of a missing delivery.
pub(crate) fn missing_key(key: &DeliveryKey) -> Item {
    row_key(missing_pk(key))
}

/// The shard of the `due` index that a log's missing deliveries are in.
pub(crate) fn missing_shard(log: &SourceId) -> String {
    format!("missing#{log}")
}

/// A missing delivery's row.
pub(crate) fn missing_item(log: &SourceId, missing: &Missing) -> Item {
    let mut row = Row(missing_key(&missing.key));
    row.put(name::FORMAT, number(FORMAT));
    row.put(attribute::ATTEMPT, number(missing.attempt_id));
    row.put(EVENT_NAME, text(missing.event_name.as_str()));
    row.put(attribute::DELIVERED_AT, millis(missing.delivered_at));
    row.put_counter(attribute::ASKED, missing.asked);
    row.put_some(
        attribute::TOO_LARGE,
        missing.too_large.then_some(AttributeValue::Bool(true)),
    );
    row.put(name::DUE_SHARD, text(missing_shard(log)));
    row.put(name::DUE_AT, millis(missing.due_at));
    row.0
}

/// Reads a missing delivery's row. `None` where it is settled.
pub(crate) fn read_missing(item: &Item) -> Result<Option<Missing>, Unreadable> {
    let reader = Reader::new(item)?;
    let Some(due_at) = reader.time(name::DUE_AT)? else {
        return Ok(None);
    };
    Ok(Some(Missing {
        key: missing_of(&reader)?,
        attempt_id: reader.number(attribute::ATTEMPT)?,
        event_name: reader.needed(EVENT_NAME)?.to_owned(),
        delivered_at: reader.needed_time(attribute::DELIVERED_AT)?,
        too_large: item.contains_key(attribute::TOO_LARGE),
        asked: reader.counter(attribute::ASKED)?,
        due_at,
    }))
}

/// Reads the row of a missing delivery that is lost.
pub(crate) fn read_lost(item: &Item) -> Result<Lost, Unreadable> {
    let reader = Reader::new(item)?;
    Ok(Lost {
        key: missing_of(&reader)?,
        event_name: reader.needed(EVENT_NAME)?.to_owned(),
        delivered_at: reader.needed_time(attribute::DELIVERED_AT)?,
        asked: reader.counter(attribute::ASKED)?,
        reason: reader.needed(attribute::BECAME)?.to_owned(),
        since: reader.needed_time(name::RECENT_AT)?,
    })
}

/// The delivery that a missing one's row is of.
fn missing_of(reader: &Reader<'_>) -> Result<DeliveryKey, Unreadable> {
    let key = reader.needed(name::PK)?.strip_prefix("missing#");
    let key = key.and_then(|key| DeliveryKey::parse(&key.replacen('#', "/", 1)));
    key.ok_or(Unreadable::Attribute(name::PK))
}

/// When a settled row of a missing delivery may go.
pub(crate) fn missing_expires_at(now: Timestamp) -> AttributeValue {
    seconds(now.saturating_add(MISSING_KEPT).unwrap_or(Timestamp::MAX))
}
