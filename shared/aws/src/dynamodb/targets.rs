//! Targets: how they stand, and what is counted of them.
//!
//! One query reads both. Counts are added without a condition and never twice; a state changes only from the one that was
//! read, by token and nonce, and a change recognises itself behind a lost answer.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::Builder;
use aws_sdk_dynamodb::types::{ReturnValuesOnConditionCheckFailure, Select};
use aws_smithy_types::retry::RetryConfig;
use forebay_core::ledger::Token;
use forebay_core::ports::{ErrorClass, LedgerError};
use forebay_core::shed::{Counts, Moved, ReadTarget, SlotNumber, TargetState, TargetStore};
use forebay_core::target::TargetKey;

use super::items::{self, STATE, Unreadable, millis, name, number, slot_sk, target_pk, target_row, text};
use super::{failed_condition, unreadable_row};
use crate::fault::ledger_error;

/// Longest time that a read or a change may take. A send waits for it.
const CALL_TIME_MAX: Duration = Duration::from_millis(500);
/// Longest time that counting may take. What was sent waits for it, and counting is worth less.
const ADD_TIME_MAX: Duration = Duration::from_millis(300);
/// Longest time of any call for somebody who has nobody waiting.
const PATIENT_TIME_MAX: Duration = Duration::from_secs(20);
/// Most rows of one read: the state, and about four minutes of every shard. A longer reach sees the latest of it.
const ROWS_MAX: i32 = 200;

/// Targets in the ledger's table.
#[derive(Clone, Debug)]
pub struct DynamoTargets {
    client: Client,
    table: String,
    call_time_max: Duration,
    add_time_max: Duration,
}

impl DynamoTargets {
    /// The targets in `table`. Calls end in times of their own, whatever the client's are.
    #[must_use]
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self {
            client,
            table: table.into(),
            call_time_max: CALL_TIME_MAX,
            add_time_max: ADD_TIME_MAX,
        }
    }

    /// The same with the client's own times, for whoever wants an answer more than speed: an operator, a test.
    #[must_use]
    pub fn patient(self) -> Self {
        Self {
            call_time_max: PATIENT_TIME_MAX,
            add_time_max: PATIENT_TIME_MAX,
            ..self
        }
    }

    async fn query(&self, target: &TargetKey, from: SlotNumber) -> Result<ReadTarget, LedgerError> {
        const ATTEMPTED: &str = "read target";
        let request = self
            .client
            .query()
            .table_name(&self.table)
            .key_condition_expression("#pk = :pk AND #sk BETWEEN :from AND :state")
            .expression_attribute_names("#pk", name::PK)
            .expression_attribute_names("#sk", name::SK)
            .expression_attribute_values(":pk", text(target_pk(target)))
            .expression_attribute_values(":from", text(slot_sk(from)))
            .expression_attribute_values(":state", text(STATE))
            .select(Select::AllAttributes)
            // The state first, then the latest slots.
            .scan_index_forward(false)
            .limit(ROWS_MAX);
        let output = request
            .send()
            .await
            .map_err(|error| ledger_error(ATTEMPTED, target, &error))?;
        let mut read = ReadTarget::default();
        for item in output.items() {
            let is_state = item
                .get(name::SK)
                .and_then(|sk| sk.as_s().ok())
                .is_some_and(|sk| sk == STATE);
            if is_state {
                let state = items::read_target_state(item);
                read.state = state.map_err(|unreadable| unreadable_row(ATTEMPTED, target, unreadable))?;
            } else if let Err(unreadable) = items::read_slot(item, &mut read.slots) {
                tracing::warn!("read a slot of target {target}: {unreadable}; it is not counted");
            }
        }
        Ok(read)
    }

    async fn count(
        &self,
        target: &TargetKey,
        slot: SlotNumber,
        shard: u64,
        counts: &Counts,
    ) -> Result<(), LedgerError> {
        let added = items::added(counts);
        if added.is_empty() {
            return Ok(());
        }
        let mut request = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(target_row(target, &items::shard_sk(slot, shard))))
            .expression_attribute_names("#v", name::FORMAT)
            .expression_attribute_names("#expires_at", name::EXPIRES_AT)
            .expression_attribute_values(":v", number(items::FORMAT))
            .expression_attribute_values(":expires_at", items::slot_expires_at(slot));
        let mut terms = Vec::with_capacity(added.len());
        for (position, (name, count)) in added.into_iter().enumerate() {
            terms.push(format!("#n{position} :n{position}"));
            request = request
                .expression_attribute_names(format!("#n{position}"), name)
                .expression_attribute_values(format!(":n{position}"), number(count));
        }
        let update = format!("SET #v = :v, #expires_at = :expires_at ADD {}", terms.join(", "));
        let sent = request
            .update_expression(update)
            .customize()
            .config_override(Builder::new().retry_config(RetryConfig::disabled()))
            .send()
            .await;
        sent.map(drop)
            .map_err(|error| ledger_error("count for target", target, &error))
    }

    async fn move_on(&self, target: &TargetKey, from: &TargetState, to: &TargetState) -> Result<Moved, LedgerError> {
        const ATTEMPTED: &str = "change target";
        let lease = to.lease_until.map(millis);
        let mut update = "SET #v = :v, #health = :health, #since = :since, #token = :token, #nonce = :nonce, \
                          #expires_at = :expires_at"
            .to_owned();
        update.push_str(if lease.is_some() {
            ", #lease_until = :lease_until"
        } else {
            " REMOVE #lease_until"
        });
        let mut request = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(target_row(target, STATE)))
            .expression_attribute_names("#v", name::FORMAT)
            .expression_attribute_names("#health", name::HEALTH)
            .expression_attribute_names("#since", name::SINCE)
            .expression_attribute_names("#token", name::TOKEN)
            .expression_attribute_names("#nonce", name::NONCE)
            .expression_attribute_names("#expires_at", name::EXPIRES_AT)
            .expression_attribute_names("#lease_until", name::LEASE_UNTIL)
            .expression_attribute_values(":v", number(items::FORMAT))
            .expression_attribute_values(":health", text(to.health.as_str()))
            .expression_attribute_values(":since", millis(to.since))
            .expression_attribute_values(":token", number(to.token.number()))
            .expression_attribute_values(":nonce", number(to.nonce.number()))
            .expression_attribute_values(":expires_at", items::state_expires_at(to));
        if let Some(lease) = lease {
            request = request.expression_attribute_values(":lease_until", lease);
        }
        request = if from.token == Token::NONE {
            request
                .condition_expression("attribute_not_exists(#pk)")
                .expression_attribute_names("#pk", name::PK)
        } else {
            request
                .condition_expression("#v <= :v AND #token = :from_token AND #nonce = :from_nonce")
                .expression_attribute_values(":from_token", number(from.token.number()))
                .expression_attribute_values(":from_nonce", number(from.nonce.number()))
        };
        let sent = request
            .update_expression(update)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let Err(error) = sent else { return Ok(Moved::Done) };
        let current = match failed_condition(&error) {
            None => return Err(ledger_error(ATTEMPTED, target, &error)),
            // The row has expired: the target begins anew.
            Some(None) => return Ok(Moved::Lost(TargetState::default())),
            Some(Some(item)) => items::read_target_state(item),
        };
        let current = current.map_err(|unreadable: Unreadable| unreadable_row(ATTEMPTED, target, unreadable))?;
        Ok(if current.is_same_as(to) {
            Moved::Done
        } else {
            Moved::Lost(current)
        })
    }
}

/// What `call` answers, or that it did not in time.
async fn within<R>(
    time_max: Duration,
    attempted: &'static str,
    target: &TargetKey,
    call: impl Future<Output = Result<R, LedgerError>>,
) -> Result<R, LedgerError> {
    // Boxed: an SDK call is too large a future to be moved about.
    tokio::time::timeout(time_max, Box::pin(call))
        .await
        .unwrap_or_else(|_elapsed| {
            Err(LedgerError {
                attempted,
                on: target.to_string(),
                class: ErrorClass::TimedOut,
                source: None,
            })
        })
}

impl TargetStore for DynamoTargets {
    async fn read(&self, target: &TargetKey, from: SlotNumber) -> Result<ReadTarget, LedgerError> {
        within(self.call_time_max, "read target", target, self.query(target, from)).await
    }

    async fn add(&self, target: &TargetKey, slot: SlotNumber, shard: u64, counts: &Counts) -> Result<(), LedgerError> {
        within(
            self.add_time_max,
            "count for target",
            target,
            self.count(target, slot, shard, counts),
        )
        .await
    }

    async fn change(&self, target: &TargetKey, from: &TargetState, to: &TargetState) -> Result<Moved, LedgerError> {
        within(
            self.call_time_max,
            "change target",
            target,
            self.move_on(target, from, to),
        )
        .await
    }
}
