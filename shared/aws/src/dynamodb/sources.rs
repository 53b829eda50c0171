//! Sources: their claims, their cursors, and when their targets may be asked again.
//!
//! The conditions mirror the core's function over a claim's row, and ask it why one failed.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, Put, ReturnValue, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use forebay_core::ports::{ErrorClass, LedgerError};
use forebay_core::schedule::{
    DueSource, GivenBack, Reading, Resting, Returned, SourceClaim, SourceClaimed, SourceLease, SourceRefused,
    SourceState, SourceStep, SourceStore, SourceVerdict, Storing, source_transition,
};
use forebay_core::source::SourceId;
use forebay_core::target::TargetKey;
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};

use super::items::sources::{self, SOURCES_SHARD, attribute, claim_key, cursor_key, limit_key, span};
use super::items::{self, Item, Unreadable, millis, name, number, text};
use super::{DUE_INDEX, DynamoLedger, Write, after, before, failed_condition, unreadable_row};
use crate::fault::{class_of_code, ledger_error};

/// Most rows that are put at one time.
const PUTS_AT_ONCE: usize = 16;

const CLAIM_SOURCE: &str = "claim source";
const GIVE_BACK: &str = "give back source";

impl DynamoLedger {
    /// How sources' claims stand, for an operator. Those without a readable row are left out.
    ///
    /// # Errors
    /// [`LedgerError`] where the rows could not be read.
    pub async fn source_states(&self, sources: &[SourceId]) -> Result<Vec<(SourceId, SourceState)>, LedgerError> {
        let keys = sources.iter().map(claim_key).collect();
        let rows = self.get_many("read sources", SOURCES_SHARD, keys).await?;
        let state = |item: &Item| Some((sources::source_of(item)?, sources::read_claim(item).ok()?));
        Ok(rows.iter().filter_map(state).collect())
    }

    /// Puts a row unless it is there. Says whether it was put.
    pub(super) async fn put_if_absent(
        &self,
        attempted: &'static str,
        on: &str,
        item: Item,
    ) -> Result<bool, LedgerError> {
        let sent = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression("attribute_not_exists(#pk)")
            .expression_attribute_names("#pk", name::PK)
            .send()
            .await;
        match sent {
            Ok(_) => Ok(true),
            Err(error) if super::admit::is_failed_condition(&error) => Ok(false),
            Err(error) => Err(ledger_error(attempted, on, &error)),
        }
    }

    /// Puts rows that are not there, so many at a time. Gives how many were put.
    pub(super) async fn put_absent(
        &self,
        attempted: &'static str,
        rows: Vec<(String, Item)>,
    ) -> Result<u64, LedgerError> {
        let mut put: u64 = 0;
        for batch in rows.chunks(PUTS_AT_ONCE) {
            let puts = batch
                .iter()
                .map(|(on, item)| Box::pin(self.put_if_absent(attempted, on, item.clone())));
            for done in join_all(puts).await {
                put = put.saturating_add(u64::from(done?));
            }
        }
        Ok(put)
    }

    async fn give_back_alone(&self, lease: &SourceLease, write: Write, step: &SourceStep) -> Storing<Returned> {
        let sent = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(claim_key(lease.source())))
            .update_expression(write.update)
            .condition_expression(write.condition)
            .set_expression_attribute_names(Some(write.names))
            .set_expression_attribute_values(Some(write.values))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        match sent {
            Ok(_) => Ok(Returned::Kept),
            Err(error) => match failed_condition(&error) {
                None => Err(ledger_error(GIVE_BACK, lease.source(), &error)),
                Some(item) => returned(lease.source(), item, step),
            },
        }
    }

    /// Claim and cursor change together: a poller that comes late moves neither.
    async fn give_back_with(
        &self,
        lease: &SourceLease,
        write: Write,
        step: &SourceStep,
        cursor: Item,
    ) -> Storing<Returned> {
        let on = lease.source();
        let failed = |class| LedgerError {
            attempted: GIVE_BACK,
            on: on.to_string(),
            class,
            source: None,
        };
        let update = Update::builder()
            .table_name(&self.table)
            .set_key(Some(claim_key(on)))
            .update_expression(write.update)
            .condition_expression(write.condition)
            .set_expression_attribute_names(Some(write.names))
            .set_expression_attribute_values(Some(write.values))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build();
        let put = Put::builder().table_name(&self.table).set_item(Some(cursor)).build();
        let (Ok(update), Ok(put)) = (update, put) else {
            return Err(failed(ErrorClass::Invalid));
        };
        let sent = self
            .client
            .transact_write_items()
            .transact_items(TransactWriteItem::builder().update(update).build())
            .transact_items(TransactWriteItem::builder().put(put).build())
            .send()
            .await;
        let Err(error) = sent else { return Ok(Returned::Kept) };
        let SdkError::ServiceError(service) = &error else {
            return Err(ledger_error(GIVE_BACK, on, &error));
        };
        let TransactWriteItemsError::TransactionCanceledException(canceled) = service.err() else {
            return Err(ledger_error(GIVE_BACK, on, &error));
        };
        let reasons = canceled.cancellation_reasons();
        match reasons.first().map(|reason| (reason.code(), reason.item())) {
            Some((Some(super::admit::CONDITION_FAILED), item)) => {
                returned(on, item.filter(|item| !item.is_empty()), step)
            }
            _ => {
                let codes = reasons.iter().filter_map(|reason| reason.code());
                let mut classes = codes.filter(|code| *code != "None").map(class_of_code);
                Err(failed(classes.next().unwrap_or(ErrorClass::Conflict)))
            }
        }
    }
}

/// Why a source could not be given back, as the core sees it.
fn returned(source: &SourceId, item: Option<&Item>, step: &SourceStep) -> Storing<Returned> {
    let row = match item.map(sources::read_claim).transpose() {
        Ok(row) => row,
        Err(Unreadable::Newer(format)) => return Ok(Returned::Lost(SourceRefused::Newer(format))),
        Err(unreadable @ Unreadable::Attribute(_)) => return Err(unreadable_row(GIVE_BACK, source, unreadable)),
    };
    match source_transition(row.as_ref(), step) {
        SourceVerdict::Already => Ok(Returned::Kept),
        SourceVerdict::Refused(refused) => Ok(Returned::Lost(refused)),
        SourceVerdict::Applied(_) => Err(disagreement(GIVE_BACK, source)),
    }
}

/// The core would have taken the step: the condition says something else than the function. A bug, and said so.
fn disagreement(attempted: &'static str, source: &SourceId) -> LedgerError {
    LedgerError {
        attempted,
        on: source.to_string(),
        class: ErrorClass::Invalid,
        source: Some("the condition and the transition function disagree".into()),
    }
}

fn claim_write(claim: &SourceClaim) -> Write {
    let write = Write {
        update: "SET #token = #token + :one, #nonce = :nonce, #lease_until = :until, #due_at = :now + #interval, \
                 #claimed_at = :now"
            .to_owned(),
        // What is counted with has to be a number: else the call would be called invalid, and not the row unreadable.
        condition:
            "#v <= :format AND #due_at <= :now AND attribute_type(#token, :n) AND attribute_type(#interval, :n) \
                    AND (attribute_not_exists(#lease_until) OR #lease_until < :lapsed)"
                .to_owned(),
        ..Write::default()
    };
    write
        .name(&[name::FORMAT, name::TOKEN, name::NONCE, name::LEASE_UNTIL, name::DUE_AT])
        .name(&[attribute::INTERVAL, attribute::CLAIMED_AT])
        .value(":format", number(items::FORMAT))
        .value(":n", text("N"))
        .value(":one", number(1))
        .value(":nonce", number(claim.nonce.number()))
        .value(":until", millis(after(claim.now, claim.lease)))
        .value(":now", millis(claim.now))
        .value(":lapsed", millis(before(claim.now, claim.skew)))
}

fn give_back_write(lease: &SourceLease, now: Timestamp, given: &GivenBack) -> Write {
    let write = Write {
        update: "SET #due_at = :due_at, #interval = :interval".to_owned(),
        condition: "#v <= :format AND #token = :token AND #nonce = :nonce AND #lease_until > :now".to_owned(),
        ..Write::default()
    };
    let optional = [
        (name::FAILURES, (given.failures > 0).then(|| number(given.failures))),
        (attribute::NOTE, given.note.as_deref().map(text)),
    ];
    write
        .set_or_remove(optional, &[name::LEASE_UNTIL])
        .name(&[name::FORMAT, name::TOKEN, name::NONCE, name::LEASE_UNTIL, name::DUE_AT])
        .name(&[attribute::INTERVAL, name::FAILURES, attribute::NOTE])
        .value(":format", number(items::FORMAT))
        .value(":token", number(lease.token().number()))
        .value(":nonce", number(lease.nonce().number()))
        .value(":now", millis(now))
        .value(":due_at", millis(given.due_at))
        .value(":interval", span(given.interval))
}

impl SourceStore for DynamoLedger {
    async fn register_sources(&self, sources: &[(SourceId, SignedDuration)], now: Timestamp) -> Storing<usize> {
        const ATTEMPTED: &str = "register sources";
        // A key that is asked for twice makes the whole call invalid.
        let distinct: BTreeMap<&SourceId, &SignedDuration> =
            sources.iter().rev().map(|(id, span)| (id, span)).collect();
        let keys = distinct.keys().map(|source| claim_key(source)).collect();
        let known = self.get_many(ATTEMPTED, SOURCES_SHARD, keys).await?;
        let known: BTreeSet<SourceId> = known.iter().filter_map(sources::source_of).collect();
        let new = distinct.into_iter().filter(|(source, _)| !known.contains(source));
        let rows = new.map(|(source, interval)| (source.to_string(), sources::new_claim(source, *interval, now)));
        let put = self.put_absent(ATTEMPTED, rows.collect()).await?;
        Ok(usize::try_from(put).unwrap_or(usize::MAX))
    }

    async fn due_sources(&self, until: Timestamp, after: Option<&DueSource>, limit: usize) -> Storing<Vec<DueSource>> {
        let start = after.map(|mark| {
            let mut key = claim_key(&mark.source);
            key.insert(name::DUE_SHARD.to_owned(), text(SOURCES_SHARD));
            key.insert(name::DUE_AT.to_owned(), millis(mark.due_at));
            key
        });
        let page = self
            .query_due("list due sources of", SOURCES_SHARD, until, start, limit)
            .await?;
        let due = page.places.iter().filter_map(|(due_at, key)| {
            Some(DueSource {
                due_at: *due_at,
                source: sources::source_of(key)?,
            })
        });
        Ok(due.collect())
    }

    async fn claim_source(&self, source: &SourceId, claim: SourceClaim) -> Storing<SourceClaimed> {
        let write = claim_write(&claim);
        let sent = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(claim_key(source)))
            .update_expression(write.update)
            .condition_expression(write.condition)
            .set_expression_attribute_names(Some(write.names))
            .set_expression_attribute_values(Some(write.values))
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let unreadable = |unreadable| unreadable_row(CLAIM_SOURCE, source, unreadable);
        let state = match sent {
            Ok(output) => sources::read_claim(&output.attributes.unwrap_or_default()).map_err(unreadable)?,
            Err(error) => {
                let row = match failed_condition(&error) {
                    None => return Err(ledger_error(CLAIM_SOURCE, source, &error)),
                    Some(item) => match item.map(sources::read_claim).transpose() {
                        Err(Unreadable::Newer(format)) => {
                            return Ok(SourceClaimed::Lost(SourceRefused::Newer(format)));
                        }
                        read => read.map_err(unreadable)?,
                    },
                };
                match (source_transition(row.as_ref(), &SourceStep::Claim(claim)), row) {
                    (SourceVerdict::Already, Some(row)) => row,
                    (SourceVerdict::Refused(refused), _) => return Ok(SourceClaimed::Lost(refused)),
                    (SourceVerdict::Already | SourceVerdict::Applied(_), _) => {
                        return Err(disagreement(CLAIM_SOURCE, source));
                    }
                }
            }
        };
        match SourceLease::proven_by(source, &state, claim.nonce) {
            Some(lease) => Ok(SourceClaimed::Won(lease, state)),
            None => Err(unreadable(Unreadable::Attribute(name::LEASE_UNTIL))),
        }
    }

    async fn read_source(&self, source: &SourceId, target: &TargetKey) -> Storing<Reading> {
        const ATTEMPTED: &str = "read source";
        let unreadable = |unreadable| unreadable_row(ATTEMPTED, source, unreadable);
        let keys = vec![cursor_key(source), limit_key(target)];
        let mut reading = Reading::default();
        for item in self.get_many(ATTEMPTED, source.as_str(), keys).await? {
            if sources::is_limit(&item) {
                reading.resting = Some(sources::read_limit(&item).map_err(unreadable)?);
            } else {
                reading.cursor = Some(sources::read_cursor(&item).map_err(unreadable)?);
            }
        }
        Ok(reading)
    }

    async fn resting_targets(&self, targets: &[TargetKey]) -> Storing<Vec<Option<Resting>>> {
        const ATTEMPTED: &str = "read limits";
        let distinct: BTreeSet<&TargetKey> = targets.iter().collect();
        let keys = distinct.into_iter().map(limit_key).collect();
        let rows = self.get_many(ATTEMPTED, "targets", keys).await?;
        let of = |target: &TargetKey| {
            let key = limit_key(target);
            let row = rows.iter().find(|row| row.get(name::PK) == key.get(name::PK))?;
            match sources::read_limit(row) {
                Ok(resting) => Some(resting),
                // It fails alone: whoever polls this target's sources is told by the reading before the poll.
                Err(unreadable) => {
                    tracing::warn!("skip the limit of {target}: {unreadable}");
                    None
                }
            }
        };
        Ok(targets.iter().map(of).collect())
    }

    async fn give_back_source(&self, lease: SourceLease, now: Timestamp, given: GivenBack) -> Storing<Returned> {
        let write = give_back_write(&lease, now, &given);
        let cursor = match &given.cursor {
            None => None,
            Some(cursor) => Some(sources::cursor_item(lease.source(), cursor).ok_or_else(|| LedgerError {
                attempted: GIVE_BACK,
                on: lease.source().to_string(),
                class: ErrorClass::Unreadable,
                source: None,
            })?),
        };
        let step = SourceStep::GiveBack {
            now,
            token: lease.token(),
            nonce: lease.nonce(),
            given,
        };
        match cursor {
            None => self.give_back_alone(&lease, write, &step).await,
            Some(cursor) => self.give_back_with(&lease, write, &step, cursor).await,
        }
    }

    async fn put_off_source(
        &self,
        due: &DueSource,
        until: Timestamp,
        now: Timestamp,
        skew: SignedDuration,
    ) -> Storing<()> {
        let sent = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(claim_key(&due.source)))
            .update_expression("SET #due_at = :until")
            .condition_expression(
                "#v <= :format AND #due_at = :found AND (attribute_not_exists(#lease_until) OR #lease_until < :lapsed)",
            )
            .expression_attribute_names("#v", name::FORMAT)
            .expression_attribute_names("#due_at", name::DUE_AT)
            .expression_attribute_names("#lease_until", name::LEASE_UNTIL)
            .expression_attribute_values(":format", number(items::FORMAT))
            .expression_attribute_values(":until", millis(until))
            .expression_attribute_values(":found", millis(due.due_at))
            .expression_attribute_values(":lapsed", millis(before(now, skew)))
            .send()
            .await;
        match sent {
            Ok(_) => Ok(()),
            Err(error) if failed_condition(&error).is_some() => Ok(()),
            Err(error) => Err(ledger_error("put off source", &due.source, &error)),
        }
    }

    async fn rest_target(&self, target: &TargetKey, resting: Resting) -> Storing<()> {
        let sent = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(limit_key(target)))
            .update_expression("SET #v = :format, #until = :until, #strikes = :strikes, #expires_at = :expires_at")
            .condition_expression("attribute_not_exists(#until) OR (#v <= :format AND #until < :until)")
            .expression_attribute_names("#v", name::FORMAT)
            .expression_attribute_names("#until", attribute::UNTIL)
            .expression_attribute_names("#strikes", attribute::STRIKES)
            .expression_attribute_names("#expires_at", name::EXPIRES_AT)
            .expression_attribute_values(":format", number(items::FORMAT))
            .expression_attribute_values(":until", millis(resting.until))
            .expression_attribute_values(":strikes", number(resting.strikes))
            .expression_attribute_values(":expires_at", sources::limit_expires_at(&resting))
            .send()
            .await;
        match sent {
            Ok(_) => Ok(()),
            Err(error) if failed_condition(&error).is_some() => Ok(()),
            Err(error) => Err(ledger_error("leave target alone", target, &error)),
        }
    }
}

impl DynamoLedger {
    /// A page of places in one shard of the `due` index, oldest first.
    pub(super) async fn query_due(
        &self,
        attempted: &'static str,
        shard: &str,
        until: Timestamp,
        start: Option<Item>,
        limit: usize,
    ) -> Result<DuePlaces, LedgerError> {
        if limit == 0 {
            return Ok(DuePlaces::default());
        }
        let output = self
            .client
            .query()
            .table_name(&self.table)
            .index_name(DUE_INDEX)
            .key_condition_expression("#shard = :shard AND #due_at <= :until")
            .expression_attribute_names("#shard", name::DUE_SHARD)
            .expression_attribute_names("#due_at", name::DUE_AT)
            .expression_attribute_values(":shard", text(shard))
            .expression_attribute_values(":until", millis(until))
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .set_exclusive_start_key(start)
            .send()
            .await
            .map_err(|error| ledger_error(attempted, shard, &error))?;
        let place = |item: Item| {
            let due_at: i64 = item
                .get(name::DUE_AT)
                .and_then(|at: &AttributeValue| at.as_n().ok()?.parse().ok())?;
            Some((Timestamp::from_millisecond(due_at).ok()?, item))
        };
        Ok(DuePlaces {
            places: output.items.unwrap_or_default().into_iter().filter_map(place).collect(),
            next: output.last_evaluated_key,
        })
    }
}

/// A page of what is due in one shard.
#[derive(Default)]
pub(super) struct DuePlaces {
    /// When, and the primary key.
    pub(super) places: Vec<(Timestamp, Item)>,
    /// Where the next page begins, if there may be one.
    pub(super) next: Option<Item>,
}
