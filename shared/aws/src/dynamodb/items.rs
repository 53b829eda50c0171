//! The shapes of the table's rows. The one place that knows attribute names.
//!
//! Times are epoch milliseconds, except the time-to-live, which DynamoDB wants in epoch seconds.

pub(crate) mod sources;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use forebay_core::delivery::{Delivery, DeliveryKey, Digest, EventName, Ignored, Malformed, Outcome};
use forebay_core::event::{Content, Event, EventId, Kind, Net, Repository, Subject, SubjectKind};
use forebay_core::ledger::{DeliveryRow, EventRow, Nonce, Reason, Sent, State, Status, Token};
use forebay_core::ports::DUE_SHARDS;
use forebay_core::session::{AgentName, Owner, OwnerKey, Phase, Pointer, Session, SessionId};
use forebay_core::shed::{Counts, Health, LATENCY_BOUNDS_MS, SLOT_KEPT, STATE_KEPT, SlotNumber, Slots, TargetState};
use forebay_core::target::TargetKey;
use jiff::Timestamp;
use jiff::tz::Offset;

use super::body::unpack;

/// A row as the SDK has it.
pub(crate) type Item = HashMap<String, AttributeValue>;

/// Newest row format that this code reads and writes. Formats change by expand, then contract.
pub(crate) const FORMAT: u64 = 1;
/// Sort key of every row that is alone in its partition.
const ROW: &str = "row";
/// Sort key of a body chunk.
const CHUNK: &str = "chunk";
/// Shards of the `recent` index for each kind of row and day.
pub(crate) const RECENT_SHARDS: u64 = 4;

/// Attribute names that expressions use.
pub(crate) mod name {
    pub(crate) const PK: &str = "pk";
    pub(crate) const SK: &str = "sk";
    pub(crate) const FORMAT: &str = "v";
    pub(crate) const STATUS: &str = "status";
    pub(crate) const REASON: &str = "reason";
    pub(crate) const TOKEN: &str = "token";
    pub(crate) const NONCE: &str = "nonce";
    pub(crate) const LEASE_UNTIL: &str = "lease_until";
    pub(crate) const FAILURES: &str = "failures";
    pub(crate) const TRIES: &str = "tries";
    pub(crate) const DUE_SHARD: &str = "due_shard";
    pub(crate) const DUE_AT: &str = "due_at";
    pub(crate) const WAITING_FOR: &str = "waiting_for";
    pub(crate) const DESTINATIONS: &str = "destinations";
    pub(crate) const GENERATION: &str = "generation";
    pub(crate) const EXPIRES_AT: &str = "expires_at";
    pub(crate) const SEEN_BY: &str = "seen_by";
    pub(crate) const RECENT_SHARD: &str = "recent_shard";
    pub(crate) const RECENT_AT: &str = "recent_at";
    pub(crate) const SESSION: &str = "session";
    pub(crate) const AGENT: &str = "agent";
    pub(crate) const LIVE_UNTIL: &str = "live_until";
    pub(crate) const PULLS: &str = "pulls";
    pub(crate) const PHASE: &str = "phase";
    pub(crate) const BYTES: &str = "bytes";
    pub(crate) const BODY: &str = "body";
    pub(crate) const EVENT: &str = "event";
    pub(crate) const SUMMARY: &str = "summary";
    pub(crate) const REDACTED_AT: &str = "redacted_at";
    pub(crate) const HEALTH: &str = "health";
    pub(crate) const SINCE: &str = "since";
    pub(crate) const ERRORS: &str = "errors";
}

/// A row that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    /// Written by a newer version: not ours to judge.
    #[error("row format {0} is newer than this version knows")]
    Newer(u64),
    /// An attribute is absent or not what it should be.
    #[error("attribute {0} is missing or malformed")]
    Attribute(&'static str),
}

/// Partition key of a delivery.
pub(crate) fn delivery_pk(key: &DeliveryKey) -> String {
    format!("delivery#github#{}#{}", key.hook.as_str(), key.guid.as_str())
}

/// Partition key of an event.
pub(crate) fn event_pk(id: &EventId) -> String {
    format!("event#{id}")
}

/// Partition key of one chunk of a body; the number is in it so that a large body is spread over partitions.
pub(crate) fn chunk_pk(digest: &Digest, number: usize) -> String {
    format!("body#{digest}#{number:03}")
}

/// Partition key of a pointer.
pub(crate) fn pointer_pk(key: &OwnerKey) -> String {
    format!("owner#{key}")
}

/// Partition key of a session.
pub(crate) fn session_pk(id: &SessionId) -> String {
    format!("session#{id}")
}

/// Partition key of a target.
pub(crate) fn target_pk(key: &TargetKey) -> String {
    format!("target#{key}")
}

/// Sort key of a target's state. It sorts behind every slot, so that one query reads the state and the latest slots.
pub(crate) const STATE: &str = "state";

/// Sort key of the first shard of a slot. Zero padded, so that slots sort by time; none of ours is before the epoch.
pub(crate) fn slot_sk(slot: SlotNumber) -> String {
    format!("slot#{:010}", slot.number().max(0))
}

/// Sort key of one shard of a slot.
pub(crate) fn shard_sk(slot: SlotNumber, shard: u64) -> String {
    format!("{}#{shard}", slot_sk(slot))
}

/// The primary key of one row of a target.
pub(crate) fn target_row(key: &TargetKey, sk: &str) -> Item {
    Item::from([
        (name::PK.to_owned(), text(target_pk(key))),
        (name::SK.to_owned(), text(sk)),
    ])
}

/// The primary key of the row in `pk`.
pub(crate) fn row_key(pk: String) -> Item {
    Item::from([(name::PK.to_owned(), text(pk)), (name::SK.to_owned(), text(ROW))])
}

/// The primary key of the chunk in `pk`.
pub(crate) fn chunk_key(pk: String) -> Item {
    Item::from([(name::PK.to_owned(), text(pk)), (name::SK.to_owned(), text(CHUNK))])
}

/// The event id in a partition key.
pub(crate) fn event_id_of(pk: &str) -> Option<EventId> {
    pk.strip_prefix("event#").map(EventId::new)
}

/// One shard of the `due` index. Each kind of row has its own: one partition takes 1,000 writes a second.
pub(crate) fn due_shard(shard: impl fmt::Display) -> String {
    format!("event#{shard}")
}

/// Shard of the `due` index that the event with this key is in.
pub(crate) fn due_shard_of(pk: &str) -> String {
    due_shard(shard(pk, u64::from(DUE_SHARDS)))
}

/// Shard of the `recent` index.
pub(crate) fn recent_shard(kind: &str, at: Timestamp, shard: u64) -> String {
    format!("{kind}#{}#{shard}", Offset::UTC.to_datetime(at).date())
}

/// The one shard of the `recent` index that open sessions are in: there are few.
pub(crate) const SESSIONS_SHARD: &str = "session";

/// Spreads keys evenly: FNV-1a (<http://www.isthe.com/chongo/tech/comp/fnv/>), which needs no secret here because a crowded
/// shard costs speed only.
fn shard(pk: &str, shards: u64) -> u64 {
    let hash = pk.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)) % shards
}

pub(crate) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(crate) fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// A time as the table holds it.
pub(crate) fn millis(at: Timestamp) -> AttributeValue {
    number(at.as_millisecond())
}

/// A time to live: whole seconds, rounded up.
pub(crate) fn seconds(at: Timestamp) -> AttributeValue {
    number(at.as_second().saturating_add(i64::from(at.subsec_nanosecond() > 0)))
}

/// Collects attributes, leaving out what is absent: an index key may not be empty, and bytes cost.
#[derive(Default)]
struct Row(Item);

impl Row {
    fn put(&mut self, name: &str, value: AttributeValue) {
        self.0.insert(name.to_owned(), value);
    }

    fn put_some(&mut self, name: &str, value: Option<AttributeValue>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    fn put_counter(&mut self, name: &str, value: u32) {
        self.put_some(name, (value > 0).then(|| number(value)));
    }

    fn put_recent(&mut self, kind: &str, pk: &str, at: Timestamp) {
        self.put(
            name::RECENT_SHARD,
            text(recent_shard(kind, at, shard(pk, RECENT_SHARDS))),
        );
        self.put(name::RECENT_AT, millis(at));
    }
}

/// Reads attributes of one row.
pub(crate) struct Reader<'a>(&'a Item);

impl<'a> Reader<'a> {
    /// The reader of `item`, unless a newer version wrote it.
    pub(crate) fn new(item: &'a Item) -> Result<Self, Unreadable> {
        let reader = Self(item);
        match reader.parsed::<u64>(name::FORMAT)? {
            Some(format) if format > FORMAT => Err(Unreadable::Newer(format)),
            Some(_) => Ok(reader),
            None => Err(Unreadable::Attribute(name::FORMAT)),
        }
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.0.get(name)?.as_s().ok().map(String::as_str)
    }

    fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    fn needed(&self, name: &'static str) -> Result<&'a str, Unreadable> {
        self.text(name).ok_or(Unreadable::Attribute(name))
    }

    fn parsed<T: std::str::FromStr>(&self, name: &'static str) -> Result<Option<T>, Unreadable> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        let parsed = value.as_n().ok().and_then(|digits| digits.parse().ok());
        parsed.map(Some).ok_or(Unreadable::Attribute(name))
    }

    fn number<T: std::str::FromStr>(&self, name: &'static str) -> Result<T, Unreadable> {
        self.parsed(name)?.ok_or(Unreadable::Attribute(name))
    }

    fn counter(&self, name: &'static str) -> Result<u32, Unreadable> {
        Ok(self.parsed(name)?.unwrap_or(0))
    }

    fn time(&self, name: &'static str) -> Result<Option<Timestamp>, Unreadable> {
        let time = |millis| Timestamp::from_millisecond(millis).map_err(|_range| Unreadable::Attribute(name));
        self.parsed::<i64>(name)?.map(time).transpose()
    }

    fn needed_time(&self, name: &'static str) -> Result<Timestamp, Unreadable> {
        self.time(name)?.ok_or(Unreadable::Attribute(name))
    }

    fn expiry(&self) -> Result<Option<Timestamp>, Unreadable> {
        let name = name::EXPIRES_AT;
        let time = |seconds| Timestamp::from_second(seconds).map_err(|_range| Unreadable::Attribute(name));
        self.parsed::<i64>(name)?.map(time).transpose()
    }

    fn word<T>(&self, name: &'static str, read: impl Fn(&str) -> Option<T>) -> Result<T, Unreadable> {
        read(self.needed(name)?).ok_or(Unreadable::Attribute(name))
    }

    fn bytes(&self, name: &'static str) -> Option<&'a [u8]> {
        self.0.get(name)?.as_b().ok().map(Blob::as_ref)
    }
}

/// How a body is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredBody {
    /// Compressed, in the delivery's own row.
    Inline {
        /// The compressed bytes.
        bytes: Vec<u8>,
        /// Number of the dictionary they need.
        dictionary: u64,
    },
    /// Compressed, in so many chunks, keyed by the digest of the compressed bytes: another version of the compressor makes
    /// other chunks, and never overwrites these.
    Chunks {
        /// That digest.
        digest: Digest,
        /// How many.
        count: usize,
        /// Their length together.
        bytes: usize,
        /// Number of the dictionary they need.
        dictionary: u64,
    },
    /// Not any more.
    Redacted {
        /// When it went.
        at: Timestamp,
        /// The chunks that it was in, if it was, and how many: they are emptied after the row says that they are nobody's.
        chunks: Option<(Digest, usize)>,
    },
}

impl StoredBody {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Inline { bytes, .. } => bytes.len(),
            Self::Chunks { bytes, .. } => *bytes,
            Self::Redacted { .. } => 0,
        }
    }
}

/// A delivery's row.
pub(crate) fn delivery_item(delivery: &Delivery, body: &StoredBody, nonce: Nonce, expires_at: Timestamp) -> Item {
    let pk = delivery_pk(&delivery.key);
    let mut row = Row(row_key(pk.clone()));
    row.put(name::FORMAT, number(FORMAT));
    row.put("event_name", text(delivery.event_name.as_str()));
    row.put_some("action", delivery.action.as_deref().map(text));
    let headers = delivery.headers.iter().map(|(name, value)| (name.clone(), text(value)));
    row.put("headers", AttributeValue::M(headers.collect()));
    row.put("sha256", AttributeValue::B(Blob::new(delivery.digest.as_bytes())));
    row.put("size", number(delivery.size));
    row.put("verified_by", text(&delivery.verified_by));
    row.put("net", text(delivery.net.as_str()));
    row.put("received_at", millis(delivery.received_at));
    row.put(name::NONCE, number(nonce.number()));
    row.put(name::EXPIRES_AT, seconds(expires_at));
    match &delivery.outcome {
        Outcome::Accepted(event) => {
            row.put("outcome", text("accepted"));
            row.put(name::EVENT, text(event.as_str()));
        }
        Outcome::Ignored(why) => {
            row.put("outcome", text("ignored"));
            row.put(name::REASON, text(why.as_str()));
            row.put_recent("delivery", &pk, delivery.received_at);
        }
        Outcome::Malformed(why) => {
            row.put("outcome", text("malformed"));
            row.put(name::REASON, text(why.as_str()));
            row.put_recent("delivery", &pk, delivery.received_at);
        }
    }
    put_body(&mut row, body);
    row.0
}

fn put_body(row: &mut Row, body: &StoredBody) {
    match body {
        StoredBody::Inline { bytes, dictionary } => {
            row.put(name::BODY, AttributeValue::B(Blob::new(bytes.as_slice())));
            row.put("body_dictionary", number(dictionary));
        }
        StoredBody::Chunks {
            digest,
            count,
            bytes,
            dictionary,
        } => {
            row.put("body_sha256", AttributeValue::B(Blob::new(digest.as_bytes())));
            row.put("body_chunks", number(count));
            row.put("body_bytes", number(bytes));
            row.put("body_dictionary", number(dictionary));
        }
        StoredBody::Redacted { at, .. } => row.put(name::REDACTED_AT, millis(*at)),
    }
}

/// What a delivery's row holds.
pub(crate) struct ReadDelivery {
    pub(crate) row: DeliveryRow,
    pub(crate) body: StoredBody,
    pub(crate) nonce: Nonce,
}

/// Reads a delivery's row.
pub(crate) fn read_delivery(item: &Item) -> Result<ReadDelivery, Unreadable> {
    let reader = Reader::new(item)?;
    let pk = reader.needed(name::PK)?;
    let key = pk
        .strip_prefix("delivery#github#")
        .and_then(|key| DeliveryKey::parse(&key.replacen('#', "/", 1)));
    let outcome = match reader.needed("outcome")? {
        "accepted" => Outcome::Accepted(EventId::new(reader.needed(name::EVENT)?)),
        "ignored" => Outcome::Ignored(reader.word(name::REASON, Ignored::from_word)?),
        "malformed" => Outcome::Malformed(reader.word(name::REASON, Malformed::from_word)?),
        _ => return Err(Unreadable::Attribute("outcome")),
    };
    let body = stored_body(&reader)?;
    let headers = item
        .get("headers")
        .and_then(|value| value.as_m().ok())
        .into_iter()
        .flatten();
    let mut headers: Vec<(String, String)> = headers
        .filter_map(|(name, value)| Some((name.clone(), value.as_s().ok()?.clone())))
        .collect();
    headers.sort();
    let delivery = Delivery {
        key: key.ok_or(Unreadable::Attribute(name::PK))?,
        event_name: reader.word("event_name", EventName::parse)?,
        action: reader.owned("action"),
        headers,
        digest: digest(&reader, "sha256")?,
        size: reader.number("size")?,
        verified_by: reader.needed("verified_by")?.to_owned(),
        net: reader.word("net", Net::from_word)?,
        outcome,
        received_at: reader.needed_time("received_at")?,
    };
    let stored_bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
    let redacted_at = reader.time(name::REDACTED_AT)?;
    let expires_at = reader.expiry()?.ok_or(Unreadable::Attribute(name::EXPIRES_AT))?;
    let nonce = Nonce::from_random(reader.number(name::NONCE)?);
    Ok(ReadDelivery {
        row: DeliveryRow {
            delivery,
            stored_bytes,
            redacted_at,
            expires_at,
        },
        body,
        nonce,
    })
}

fn stored_body(reader: &Reader<'_>) -> Result<StoredBody, Unreadable> {
    if let Some(at) = reader.time(name::REDACTED_AT)? {
        let chunks = digest(reader, "body_sha256").and_then(|digest| Ok((digest, reader.number("body_chunks")?)));
        return Ok(StoredBody::Redacted {
            at,
            chunks: chunks.ok(),
        });
    }
    let dictionary = reader.number("body_dictionary")?;
    Ok(match reader.bytes(name::BODY) {
        Some(bytes) => StoredBody::Inline {
            bytes: bytes.to_vec(),
            dictionary,
        },
        None => StoredBody::Chunks {
            digest: digest(reader, "body_sha256")?,
            count: reader.number("body_chunks")?,
            bytes: reader.number("body_bytes")?,
            dictionary,
        },
    })
}

fn digest(reader: &Reader<'_>, name: &'static str) -> Result<Digest, Unreadable> {
    reader
        .bytes(name)
        .and_then(Digest::from_bytes)
        .ok_or(Unreadable::Attribute(name))
}

/// What the source of an event said, as its row refers to it.
pub(crate) struct StoredContent {
    /// Where it is.
    pub(crate) body: StoredBody,
    /// Its bytes, uncompressed.
    pub(crate) size: u64,
    /// Their digest.
    pub(crate) digest: Digest,
}

/// An event's row, as its admission writes it.
pub(crate) fn event_item(
    event: &Event,
    state: &State,
    admitted_at: Timestamp,
    net: Net,
    content: Option<&StoredContent>,
) -> Item {
    let pk = event_pk(&event.id);
    let mut row = Row(row_key(pk.clone()));
    row.put(name::FORMAT, number(FORMAT));
    row.put("kind", text(event.kind.as_str()));
    row.put("cloud_type", text(&event.cloud_type));
    row.put("cloud_source", text(&event.cloud_source));
    row.put("cloud_subject", text(&event.cloud_subject));
    row.put("subject", text(event.subject.kind().as_str()));
    row.put_some(
        "repository",
        event.subject.repository().map(|repository| text(repository.as_str())),
    );
    row.put_some("number", event.subject.number().map(number));
    if let Subject::Group { name, .. } = &event.subject {
        // Its queue is the source.
        row.put("group", text(name));
    }
    let pulls = || AttributeValue::L(event.pull_requests.iter().map(number).collect());
    row.put_some("pull_requests", (!event.pull_requests.is_empty()).then(pulls));
    row.put_some("actor", event.actor.as_deref().map(text));
    row.put_some("url", event.url.as_deref().map(text));
    row.put_some(name::SUMMARY, (!event.summary.is_empty()).then(|| text(&event.summary)));
    row.put_some("branch", event.branch.as_deref().map(text));
    row.put_some("base", event.base.as_deref().map(text));
    row.put_some("head_sha", event.head_sha.as_deref().map(text));
    row.put_some("conclusion", event.conclusion.as_deref().map(text));
    row.put_some("occurred_at", event.occurred_at.map(millis));
    row.put_some("delivery", event.delivery.as_ref().map(|key| text(key.to_string())));
    if let Some(content) = content {
        row.put("sha256", AttributeValue::B(Blob::new(content.digest.as_bytes())));
        row.put("size", number(content.size));
        put_body(&mut row, &content.body);
    }
    row.put("admitted_at", millis(admitted_at));
    row.put("first_seen", text(net.as_str()));
    row.put(name::SEEN_BY, AttributeValue::Ss(vec![net.as_str().to_owned()]));
    row.put_recent("event", &pk, admitted_at);
    put_state(&mut row, &pk, state);
    row.0
}

fn put_state(row: &mut Row, pk: &str, state: &State) {
    row.put(name::STATUS, text(state.status.as_str()));
    row.put_some(name::REASON, state.reason.map(|reason| text(reason.as_str())));
    row.put(name::TOKEN, number(state.token.number()));
    row.put(name::NONCE, number(state.nonce.number()));
    row.put_some(name::LEASE_UNTIL, state.lease_until.map(millis));
    row.put_counter(name::FAILURES, state.failures);
    row.put_counter(name::TRIES, state.tries);
    row.put_some(name::DUE_SHARD, state.due_at.map(|_| text(due_shard_of(pk))));
    row.put_some(name::DUE_AT, state.due_at.map(millis));
    row.put_some(
        name::WAITING_FOR,
        state.waiting_for.as_ref().map(|key| text(key.as_str())),
    );
    row.put_some(
        name::DESTINATIONS,
        (!state.destinations.is_empty()).then(|| destinations(&state.destinations)),
    );
    row.put_counter(name::GENERATION, state.generation);
    row.put_some(name::EXPIRES_AT, state.expires_at.map(seconds));
}

/// What each destination got, as one attribute.
pub(crate) fn destinations(outcomes: &BTreeMap<String, Sent>) -> AttributeValue {
    AttributeValue::M(
        outcomes
            .iter()
            .map(|(inbox, sent)| (inbox.clone(), text(sent.as_str())))
            .collect(),
    )
}

/// Reads an event's row.
pub(crate) fn read_event(item: &Item) -> Result<EventRow, Unreadable> {
    let reader = Reader::new(item)?;
    let id = event_id_of(reader.needed(name::PK)?).ok_or(Unreadable::Attribute(name::PK))?;
    let pull_requests = match item.get("pull_requests") {
        None => Vec::new(),
        Some(list) => numbers(list).ok_or(Unreadable::Attribute("pull_requests"))?,
    };
    let event = Event {
        id,
        kind: reader.word("kind", Kind::from_word)?,
        cloud_type: reader.needed("cloud_type")?.to_owned(),
        cloud_source: reader.needed("cloud_source")?.to_owned(),
        cloud_subject: reader.needed("cloud_subject")?.to_owned(),
        subject: subject(&reader)?,
        pull_requests,
        actor: reader.owned("actor"),
        url: reader.owned("url"),
        summary: reader.owned(name::SUMMARY).unwrap_or_default(),
        branch: reader.owned("branch"),
        base: reader.owned("base"),
        head_sha: reader.owned("head_sha"),
        conclusion: reader.owned("conclusion"),
        occurred_at: reader.time("occurred_at")?,
        delivery: reader.text("delivery").and_then(DeliveryKey::parse),
        content: content(&reader)?,
    };
    Ok(EventRow {
        event,
        state: read_state(&reader)?,
        admitted_at: reader.needed_time("admitted_at")?,
        first_seen: reader.word("first_seen", Net::from_word)?,
        seen_by: seen_by(item)?,
    })
}

fn subject(reader: &Reader<'_>) -> Result<Subject, Unreadable> {
    let repository = || reader.word("repository", Repository::new);
    Ok(match reader.word("subject", SubjectKind::from_word)? {
        SubjectKind::PullRequest => Subject::PullRequest {
            repository: repository()?,
            number: reader.number("number")?,
        },
        SubjectKind::Issue => Subject::Issue {
            repository: repository()?,
            number: reader.number("number")?,
        },
        SubjectKind::Repository => Subject::Repository(repository()?),
        SubjectKind::Group => Subject::Group {
            queue: reader.needed("cloud_source")?.to_owned(),
            name: reader.needed("group")?.to_owned(),
        },
    })
}

/// What the source said, where the row holds it, or how much of it is elsewhere.
fn content(reader: &Reader<'_>) -> Result<Option<Content>, Unreadable> {
    let Some(content) = stored_content(reader)? else {
        return Ok(None);
    };
    Ok(match &content.body {
        StoredBody::Inline { bytes, dictionary } => Some(Content::Here(unpack_content(&content, bytes, *dictionary)?)),
        StoredBody::Chunks { .. } => Some(Content::Apart(content.size)),
        StoredBody::Redacted { .. } => None,
    })
}

/// The text behind `compressed`.
pub(crate) fn unpack_content(
    content: &StoredContent,
    compressed: &[u8],
    dictionary: u64,
) -> Result<String, Unreadable> {
    let bytes = unpack(compressed, dictionary, content.size, &content.digest);
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or(Unreadable::Attribute(name::BODY))
}

/// How an event's row refers to what its source said.
pub(crate) fn read_content(item: &Item) -> Result<Option<StoredContent>, Unreadable> {
    stored_content(&Reader::new(item)?)
}

fn stored_content(reader: &Reader<'_>) -> Result<Option<StoredContent>, Unreadable> {
    let Some(size) = reader.parsed("size")? else {
        return Ok(None);
    };
    Ok(Some(StoredContent {
        body: stored_body(reader)?,
        size,
        digest: digest(reader, "sha256")?,
    }))
}

fn numbers(list: &AttributeValue) -> Option<Vec<u64>> {
    list.as_l()
        .ok()?
        .iter()
        .map(|value| value.as_n().ok()?.parse().ok())
        .collect()
}

fn seen_by(item: &Item) -> Result<BTreeSet<Net>, Unreadable> {
    let words = item.get(name::SEEN_BY).and_then(|value| value.as_ss().ok());
    let words = words.ok_or(Unreadable::Attribute(name::SEEN_BY))?;
    // A net that a newer version knows is none of ours, and no reason not to read the row.
    Ok(words.iter().filter_map(|word| Net::from_word(word)).collect())
}

fn read_state(reader: &Reader<'_>) -> Result<State, Unreadable> {
    let destinations = reader
        .0
        .get(name::DESTINATIONS)
        .and_then(|value| value.as_m().ok())
        .into_iter()
        .flatten();
    let destinations = destinations.map(|(inbox, word)| {
        let sent = word.as_s().ok().and_then(|word| Sent::from_word(word));
        sent.map(|sent| (inbox.clone(), sent))
            .ok_or(Unreadable::Attribute(name::DESTINATIONS))
    });
    Ok(State {
        status: reader.word(name::STATUS, Status::from_word)?,
        reason: reader.text(name::REASON).and_then(Reason::from_word),
        token: Token::from_number(reader.number(name::TOKEN)?),
        nonce: Nonce::from_random(reader.number(name::NONCE)?),
        lease_until: reader.time(name::LEASE_UNTIL)?,
        failures: reader.counter(name::FAILURES)?,
        tries: reader.counter(name::TRIES)?,
        due_at: reader.time(name::DUE_AT)?,
        waiting_for: reader.text(name::WAITING_FOR).map(OwnerKey::from_stored),
        destinations: destinations.collect::<Result<_, _>>()?,
        generation: reader.counter(name::GENERATION)?,
        expires_at: reader.expiry()?,
    })
}

/// Reads the state of a row that may be broken: what cannot be read counts as absent, and a counter that cannot be read as
/// used up.
///
/// # Errors
/// [`Unreadable::Newer`] alone.
pub(crate) fn read_leniently(item: &Item) -> Result<State, Unreadable> {
    if let Err(newer @ Unreadable::Newer(_)) = Reader::new(item) {
        return Err(newer);
    }
    let reader = Reader(item);
    Ok(State {
        status: reader.word(name::STATUS, Status::from_word).unwrap_or(Status::Received),
        reason: reader.text(name::REASON).and_then(Reason::from_word),
        token: Token::from_number(reader.number(name::TOKEN).unwrap_or_default()),
        nonce: Nonce::from_random(reader.number(name::NONCE).unwrap_or_default()),
        lease_until: reader.time(name::LEASE_UNTIL).unwrap_or_default(),
        failures: reader.counter(name::FAILURES).unwrap_or(u32::MAX),
        tries: reader.counter(name::TRIES).unwrap_or_default(),
        due_at: reader.time(name::DUE_AT).unwrap_or_default(),
        waiting_for: reader.text(name::WAITING_FOR).map(OwnerKey::from_stored),
        destinations: BTreeMap::new(),
        generation: reader.counter(name::GENERATION).unwrap_or_default(),
        expires_at: reader.expiry().unwrap_or_default(),
    })
}

/// One chunk of a body.
pub(crate) fn chunk_item(digest: &Digest, position: usize, bytes: &[u8], expires_at: Timestamp) -> Item {
    let mut row = Row(chunk_key(chunk_pk(digest, position)));
    row.put(name::FORMAT, number(FORMAT));
    row.put(name::BYTES, AttributeValue::B(Blob::new(bytes)));
    row.put(name::EXPIRES_AT, seconds(expires_at));
    row.0
}

/// Reads a chunk's bytes.
pub(crate) fn read_chunk(item: &Item) -> Result<&[u8], Unreadable> {
    Reader::new(item)?
        .bytes(name::BYTES)
        .ok_or(Unreadable::Attribute(name::BYTES))
}

/// Reads a pointer.
pub(crate) fn read_pointer(item: &Item) -> Result<(OwnerKey, Pointer), Unreadable> {
    let reader = Reader::new(item)?;
    let key = reader
        .needed(name::PK)?
        .strip_prefix("owner#")
        .ok_or(Unreadable::Attribute(name::PK))?;
    let owner = match reader.text(name::SESSION) {
        None => None,
        Some(_) => Some(Owner {
            session: reader.word(name::SESSION, SessionId::parse)?,
            agent: reader.word(name::AGENT, AgentName::parse)?,
            live_until: reader.needed_time(name::LIVE_UNTIL)?,
        }),
    };
    let pulls = item
        .get(name::PULLS)
        .and_then(|value| value.as_ns().ok())
        .into_iter()
        .flatten();
    let pulls = pulls.filter_map(|digits| digits.parse().ok()).collect();
    Ok((OwnerKey::from_stored(key), Pointer { owner, pulls }))
}

/// A session's row.
pub(crate) fn session_item(session: &Session, expires_at: Timestamp) -> Item {
    let mut row = Row(row_key(session_pk(&session.id)));
    row.put(name::FORMAT, number(FORMAT));
    row.put(name::AGENT, text(session.agent.as_str()));
    row.put("repository", text(session.repository.as_str()));
    row.put_some("branch", session.branch.as_deref().map(text));
    row.put_some("pull", session.pull.map(number));
    row.put(name::PHASE, text(session.phase.as_str()));
    row.put("opened_at", millis(session.opened_at));
    row.put(name::LIVE_UNTIL, millis(session.live_until));
    row.put(name::EXPIRES_AT, seconds(expires_at));
    row.put(name::RECENT_SHARD, text(SESSIONS_SHARD));
    row.put(name::RECENT_AT, millis(session.opened_at));
    row.0
}

/// Reads a session's row.
pub(crate) fn read_session(item: &Item) -> Result<Session, Unreadable> {
    let reader = Reader::new(item)?;
    let id = reader
        .needed(name::PK)?
        .strip_prefix("session#")
        .and_then(SessionId::parse);
    Ok(Session {
        id: id.ok_or(Unreadable::Attribute(name::PK))?,
        agent: reader.word(name::AGENT, AgentName::parse)?,
        repository: reader.word("repository", Repository::new)?,
        branch: reader.owned("branch"),
        pull: reader.parsed("pull")?,
        phase: reader.word(name::PHASE, Phase::from_word)?,
        opened_at: reader.needed_time("opened_at")?,
        live_until: reader.needed_time(name::LIVE_UNTIL)?,
    })
}

/// The attribute that counts the successes of one bucket: `le_250`, and `over` for what is above every bound.
fn bucket_name(bucket: usize) -> String {
    LATENCY_BOUNDS_MS
        .get(bucket)
        .map_or_else(|| "over".to_owned(), |bound| format!("le_{bound}"))
}

/// What is added to a slot's row: attributes and numbers, none of them 0.
pub(crate) fn added(counts: &Counts) -> Vec<(String, u64)> {
    let buckets = counts.successes.iter().enumerate();
    let buckets = buckets.map(|(bucket, count)| (bucket_name(bucket), *count));
    let errors = (name::ERRORS.to_owned(), counts.errors);
    buckets.chain([errors]).filter(|(_, count)| *count > 0).collect()
}

/// When a slot's row may go.
pub(crate) fn slot_expires_at(slot: SlotNumber) -> AttributeValue {
    seconds(slot.ends_at().saturating_add(SLOT_KEPT).unwrap_or(Timestamp::MAX))
}

/// When a state's row may go.
pub(crate) fn state_expires_at(state: &TargetState) -> AttributeValue {
    seconds(state.since.saturating_add(STATE_KEPT).unwrap_or(Timestamp::MAX))
}

/// Adds the slot in `item` to `slots`, if it is one that can be read: a broken row spoils itself alone.
pub(crate) fn read_slot(item: &Item, slots: &mut Slots) -> Result<(), Unreadable> {
    let reader = Reader::new(item)?;
    let slot = reader.needed(name::SK)?.strip_prefix("slot#").and_then(|rest| {
        let (number, _shard) = rest.split_once('#')?;
        number.parse().ok().map(SlotNumber::from_number)
    });
    let mut counts = Counts {
        errors: reader.parsed(name::ERRORS)?.unwrap_or(0),
        ..Counts::default()
    };
    for (bucket, count) in counts.successes.iter_mut().enumerate() {
        let digits = item.get(&bucket_name(bucket)).and_then(|value| value.as_n().ok());
        *count = digits.and_then(|digits| digits.parse().ok()).unwrap_or(0);
    }
    slots.merge(slot.ok_or(Unreadable::Attribute(name::SK))?, &counts);
    Ok(())
}

/// Reads a target's state.
pub(crate) fn read_target_state(item: &Item) -> Result<TargetState, Unreadable> {
    let reader = Reader::new(item)?;
    Ok(TargetState {
        health: reader.word(name::HEALTH, Health::from_word)?,
        since: reader.needed_time(name::SINCE)?,
        lease_until: reader.time(name::LEASE_UNTIL)?,
        token: Token::from_number(reader.number(name::TOKEN)?),
        nonce: Nonce::from_random(reader.number(name::NONCE)?),
    })
}
