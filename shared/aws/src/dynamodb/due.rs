//! What is due, and rows that nobody can read.

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use forebay_core::event::EventId;
use forebay_core::ledger::{Raise, Refused, State, Step, Verdict, transition};
use forebay_core::ports::{Due, DueMark, DuePage, DueQuery, LedgerError, Raised};
use jiff::Timestamp;

use super::items::{self, Item, Unreadable, event_pk, millis, name, number, row_key, text};
use super::{DUE_INDEX, DynamoLedger, Write, failed_condition, unreadable_row};
use crate::fault::ledger_error;

impl DynamoLedger {
    /// A page of one shard of the `due` index.
    pub(super) async fn list_due(&self, query: &DueQuery) -> Result<DuePage, LedgerError> {
        let shard = items::due_shard(query.shard);
        let start = query.after.as_ref().map(|mark| {
            let mut key = row_key(mark.key.clone());
            key.insert(name::DUE_SHARD.to_owned(), text(shard.as_str()));
            key.insert(name::DUE_AT.to_owned(), millis(mark.due_at));
            key
        });
        let request = self
            .client
            .query()
            .table_name(&self.table)
            .index_name(DUE_INDEX)
            .key_condition_expression("#shard = :shard AND #due_at <= :until")
            .expression_attribute_names("#shard", name::DUE_SHARD)
            .expression_attribute_names("#due_at", name::DUE_AT)
            .expression_attribute_values(":shard", text(shard.as_str()))
            .expression_attribute_values(":until", millis(query.until))
            .limit(i32::try_from(query.limit).unwrap_or(i32::MAX).max(1))
            .set_exclusive_start_key(start);
        let output = request
            .send()
            .await
            .map_err(|error| ledger_error("list due events of", &shard, &error))?;
        let items = output.items.unwrap_or_default();
        // A key that is no event's is nothing that this version put there.
        let events = items.iter().filter_map(mark).filter_map(|mark| {
            Some(Due {
                due_at: mark.due_at,
                event: items::event_id_of(&mark.key)?,
            })
        });
        Ok(DuePage {
            events: events.collect(),
            next: output.last_evaluated_key.as_ref().and_then(mark),
        })
    }

    /// Reads what can be read of the row, asks the core what becomes of it, and writes that if nobody was faster.
    pub(super) async fn raise_row(&self, event: &EventId, raise: Raise) -> Result<Raised, LedgerError> {
        const ATTEMPTED: &str = "raise failures of event";
        let pk = event_pk(event);
        let Some(item) = self.get(ATTEMPTED, event.as_str(), row_key(pk.clone())).await? else {
            return Ok(Raised::Lost(Refused::Missing));
        };
        let state = match items::read_leniently(&item) {
            Ok(state) => state,
            Err(Unreadable::Newer(format)) => return Ok(Raised::Lost(Refused::Newer(format))),
            Err(unreadable @ Unreadable::Attribute(_)) => return Err(unreadable_row(ATTEMPTED, event, unreadable)),
        };
        let raised = match transition(Some(&state), &Step::Raise(raise)) {
            Verdict::Refused(refused) => return Ok(Raised::Lost(refused)),
            Verdict::Already => return Ok(Raised::of(state.status)),
            Verdict::Applied(raised) => raised,
        };
        let write = raise_write(&pk, &item, &raised);
        let sent = self
            .update(pk)
            .update_expression(write.update)
            .condition_expression(write.condition)
            .set_expression_attribute_names(Some(write.names))
            .set_expression_attribute_values(Some(write.values))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        match sent {
            Ok(_) => Ok(Raised::of(raised.status)),
            Err(error) => match failed_condition(&error) {
                None => Err(ledger_error(ATTEMPTED, event, &error)),
                Some(None) => Ok(Raised::Lost(Refused::Missing)),
                Some(Some(item)) => {
                    overtaken(item, raise).map_err(|unreadable| unreadable_row(ATTEMPTED, event, unreadable))
                }
            },
        }
    }
}

/// What became of a row that changed between the look at it and the write: by somebody else, or by this very write, whose
/// answer was lost.
fn overtaken(item: &Item, raise: Raise) -> Result<Raised, Unreadable> {
    let state = match items::read_leniently(item) {
        Ok(state) => state,
        Err(Unreadable::Newer(format)) => return Ok(Raised::Lost(Refused::Newer(format))),
        Err(unreadable @ Unreadable::Attribute(_)) => return Err(unreadable),
    };
    Ok(match transition(Some(&state), &Step::Raise(raise)) {
        Verdict::Already => Raised::of(state.status),
        Verdict::Refused(refused) => Raised::Lost(refused),
        // The asker's own claim arrived in between. The row is due again when that lease is over.
        Verdict::Applied(_) => Raised::Lost(Refused::Stale { current: state.token }),
    })
}

/// The place that an index entry stands at.
fn mark(item: &Item) -> Option<DueMark> {
    let due_at = item.get(name::DUE_AT)?.as_n().ok()?.parse().ok()?;
    Some(DueMark {
        due_at: Timestamp::from_millisecond(due_at).ok()?,
        key: item.get(name::PK)?.as_s().ok()?.clone(),
    })
}

/// What every step of the ledger changes at least one of. The row is as it was read where all of them are.
const CHANGING: [&str; 3] = [name::STATUS, name::NONCE, name::DUE_AT];

fn raise_write(pk: &str, before: &Item, raised: &State) -> Write {
    let mut write = Write {
        update: "SET #status = :to_status, #reason = :to_reason, #nonce = :to_nonce, #failures = :to_failures"
            .to_owned(),
        // A number that is greater: what is absent or no number is no newer format.
        condition: "attribute_exists(#pk) AND NOT (#v > :format)".to_owned(),
        ..Write::default()
    };
    for name in CHANGING {
        match before.get(name) {
            Some(value) => {
                write.condition.push_str(&format!(" AND #{name} = :{name}"));
                write = write.value(&format!(":{name}"), value.clone());
            }
            None => write.condition.push_str(&format!(" AND attribute_not_exists(#{name})")),
        }
    }
    let optional = [
        (name::DUE_SHARD, raised.due_at.map(|_| text(items::due_shard_of(pk)))),
        (name::DUE_AT, raised.due_at.map(millis)),
        (name::EXPIRES_AT, raised.expires_at.map(items::seconds)),
    ];
    let write = write.set_or_remove(optional, &[name::LEASE_UNTIL, name::WAITING_FOR]);
    let word = |word: Option<&'static str>| AttributeValue::S(word.unwrap_or_default().to_owned());
    write
        .name(&[name::PK, name::FORMAT, name::STATUS, name::REASON, name::NONCE])
        .name(&[name::FAILURES, name::LEASE_UNTIL, name::WAITING_FOR])
        .name(&[name::DUE_SHARD, name::DUE_AT, name::EXPIRES_AT])
        .value(":format", number(items::FORMAT))
        .value(":to_status", text(raised.status.as_str()))
        .value(":to_reason", word(raised.reason.map(|reason| reason.as_str())))
        .value(":to_nonce", number(raised.nonce.number()))
        .value(":to_failures", number(raised.failures))
}
