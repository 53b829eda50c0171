//! Sessions and the pointers to them.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeValue, Put, ReturnValue, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use forebay_core::ports::{ErrorClass, LedgerError};
use forebay_core::session::{Opened, Owner, OwnerKey, Phase, Pointer, Pointers, Session, SessionId};
use jiff::{SignedDuration, Timestamp};

use super::items::{self, millis, name, number, pointer_pk, row_key, seconds, session_pk, text};
use super::{DynamoLedger, failed_condition, unreadable_row};
use crate::fault::{class_of_code, ledger_error};

/// Takes a pointer that is free, lapsed, or ours.
const TAKE: &str =
    "SET #v = :format, #session = :session, #agent = :agent, #live_until = :until, #expires_at = :expires_at";
const TAKEABLE: &str = "attribute_not_exists(#session) OR #session = :session OR #live_until <= :now";

/// How long a pointer or a session stays after the last that was heard of it. A payload that names the branch again
/// brings it back; what it knew is then known anew.
const POINTER_KEPT: SignedDuration = SignedDuration::from_hours(180 * 24);

fn kept_until(last: Timestamp) -> Timestamp {
    last.saturating_add(POINTER_KEPT).unwrap_or(Timestamp::MAX)
}

impl DynamoLedger {
    pub(super) async fn read_pointers(&self, keys: &[OwnerKey]) -> Result<Pointers, LedgerError> {
        const ATTEMPTED: &str = "read owners of";
        let Some(first) = keys.first() else {
            return Ok(Pointers::default());
        };
        // A check can name a pull request twice; DynamoDB refuses a batch that does.
        let distinct: BTreeSet<&OwnerKey> = keys.iter().collect();
        let rows = distinct.into_iter().map(|key| row_key(pointer_pk(key))).collect();
        let mut pointers = Pointers::default();
        for item in self.get_many(ATTEMPTED, first.as_str(), rows).await? {
            let read = items::read_pointer(&item);
            let (key, pointer) = read.map_err(|unreadable| unreadable_row(ATTEMPTED, first, unreadable))?;
            pointers.0.insert(key, pointer);
        }
        Ok(pointers)
    }

    pub(super) async fn learn_pull(
        &self,
        branch: &OwnerKey,
        pull: u64,
        now: Timestamp,
    ) -> Result<Pointer, LedgerError> {
        const ATTEMPTED: &str = "remember a pull request of";
        let sent = self
            .update(pointer_pk(branch))
            .update_expression("SET #v = :format, #expires_at = :expires_at ADD #pulls :pull")
            .expression_attribute_names("#v", name::FORMAT)
            .expression_attribute_names("#pulls", name::PULLS)
            .expression_attribute_names("#expires_at", name::EXPIRES_AT)
            .expression_attribute_values(":expires_at", seconds(kept_until(now)))
            .expression_attribute_values(":format", number(items::FORMAT))
            .expression_attribute_values(":pull", AttributeValue::Ns(vec![pull.to_string()]))
            .return_values(ReturnValue::AllNew)
            .send()
            .await;
        let output = sent.map_err(|error| ledger_error(ATTEMPTED, branch, &error))?;
        let read = items::read_pointer(&output.attributes.unwrap_or_default());
        read.map(|(_, pointer)| pointer)
            .map_err(|unreadable| unreadable_row(ATTEMPTED, branch, unreadable))
    }

    pub(super) async fn point(&self, key: &OwnerKey, owner: &Owner, now: Timestamp) -> Result<bool, LedgerError> {
        let update = self
            .update(pointer_pk(key))
            .update_expression(TAKE)
            .condition_expression(TAKEABLE);
        match with_owner(update, owner, now).send().await {
            Ok(_) => Ok(true),
            Err(error) if failed_condition(&error).is_some() => Ok(false),
            Err(error) => Err(ledger_error("point", key, &error)),
        }
    }

    pub(super) async fn open(&self, session: &Session, now: Timestamp) -> Result<Opened, LedgerError> {
        const ATTEMPTED: &str = "open session";
        let invalid = |_incomplete| failed(session, ErrorClass::Invalid);
        let named = session.keys();
        let owner = session.owner();
        let before = self.read_session(ATTEMPTED, &session.id).await?;
        let put = Put::builder()
            .table_name(&self.table)
            .set_item(Some(items::session_item(session, kept_until(session.live_until))))
            .build();
        let put = TransactWriteItem::builder().put(put.map_err(invalid)?).build();
        let mut request = self.client.transact_write_items().transact_items(put);
        for key in &named {
            let take = self.take(key, &owner, now).map_err(invalid)?;
            request = request.transact_items(TransactWriteItem::builder().update(take).build());
        }
        if let Err(error) = request.send().await {
            let Some(TransactWriteItemsError::TransactionCanceledException(canceled)) = error.as_service_error() else {
                return Err(ledger_error(ATTEMPTED, &session.id, &error));
            };
            // The first reason is the session's own put, which has no condition.
            for (key, reason) in named.iter().zip(canceled.cancellation_reasons().iter().skip(1)) {
                let holder = reason.item().and_then(|item| items::read_pointer(item).ok());
                if let Some(owner) = holder.and_then(|(_, pointer)| pointer.owner) {
                    return Ok(Opened::Held {
                        key: key.clone(),
                        owner,
                    });
                }
            }
            let codes = canceled
                .cancellation_reasons()
                .iter()
                .filter_map(|reason| reason.code());
            let class = codes.filter(|code| *code != "None").map(class_of_code).next();
            return Err(failed(session, class.unwrap_or(ErrorClass::Conflict)));
        }
        let mut owned = named;
        for key in self.pulls_of(session).await? {
            if !owned.contains(&key) && self.point(&key, &owner, now).await? {
                owned.push(key);
            }
        }
        if let Some(before) = before {
            self.give_up(&before, session, &owned).await?;
        }
        Ok(Opened::Live(owned))
    }

    /// Frees what the session owned before it was opened again, and does not own now: closing would not find it.
    async fn give_up(&self, before: &Session, now: &Session, owned: &[OwnerKey]) -> Result<(), LedgerError> {
        let mut keys = before.keys();
        if before.branch != now.branch || before.repository != now.repository {
            keys.extend(self.pulls_of(before).await?);
        }
        for key in keys.iter().filter(|key| !owned.contains(key)) {
            self.free(key, &now.id).await?;
        }
        Ok(())
    }

    async fn read_session(&self, attempted: &'static str, id: &SessionId) -> Result<Option<Session>, LedgerError> {
        let item = self.get(attempted, id.as_str(), row_key(session_pk(id))).await?;
        let session = item.map(|item| items::read_session(&item)).transpose();
        session.map_err(|unreadable| unreadable_row(attempted, id, unreadable))
    }

    fn take(
        &self,
        key: &OwnerKey,
        owner: &Owner,
        now: Timestamp,
    ) -> Result<Update, aws_sdk_dynamodb::error::BuildError> {
        let names = OWNER_NAMES.iter().map(|name| (format!("#{name}"), (*name).to_owned()));
        Update::builder()
            .table_name(&self.table)
            .set_key(Some(row_key(pointer_pk(key))))
            .update_expression(TAKE)
            .condition_expression(TAKEABLE)
            .set_expression_attribute_names(Some(names.collect()))
            .set_expression_attribute_values(Some(owner_values(owner, now).into_iter().collect()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
    }

    /// The pull requests that payloads named with the session's branch.
    async fn pulls_of(&self, session: &Session) -> Result<Vec<OwnerKey>, LedgerError> {
        let Some(branch) = &session.branch else {
            return Ok(Vec::new());
        };
        let branch = OwnerKey::branch(&session.repository, branch);
        let pointers = self.read_pointers(std::slice::from_ref(&branch)).await?;
        let pulls = pointers
            .0
            .get(&branch)
            .map(|pointer| pointer.pulls.clone())
            .unwrap_or_default();
        Ok(pulls
            .into_iter()
            .map(|number| OwnerKey::pull(&session.repository, number))
            .collect())
    }

    /// Pointers go first: a session that still stands without them can be closed again, pointers without a session could not.
    pub(super) async fn close(&self, id: &SessionId, expires_at: Timestamp) -> Result<Option<Session>, LedgerError> {
        const ATTEMPTED: &str = "close session";
        let Some(session) = self.read_session(ATTEMPTED, id).await? else {
            return Ok(None);
        };
        let mut keys = session.keys();
        keys.extend(self.pulls_of(&session).await?);
        for key in &keys {
            self.free(key, id).await?;
        }
        let sent = self
            .update(session_pk(id))
            .update_expression("SET #phase = :closed, #expires_at = :expires_at REMOVE #recent_shard, #recent_at")
            .condition_expression("attribute_exists(#pk)")
            .expression_attribute_names("#pk", name::PK)
            .expression_attribute_names("#phase", name::PHASE)
            .expression_attribute_names("#expires_at", name::EXPIRES_AT)
            .expression_attribute_names("#recent_shard", name::RECENT_SHARD)
            .expression_attribute_names("#recent_at", name::RECENT_AT)
            .expression_attribute_values(":closed", text(Phase::Closed.as_str()))
            .expression_attribute_values(":expires_at", seconds(expires_at))
            .send()
            .await;
        sent.map_err(|error| ledger_error(ATTEMPTED, id, &error))?;
        Ok(Some(Session {
            phase: Phase::Closed,
            ..session
        }))
    }

    /// Only the session that a pointer names may remove itself from it.
    async fn free(&self, key: &OwnerKey, session: &SessionId) -> Result<(), LedgerError> {
        let sent = self
            .update(pointer_pk(key))
            .update_expression("REMOVE #session, #agent, #live_until")
            .condition_expression("#session = :session")
            .expression_attribute_names("#session", name::SESSION)
            .expression_attribute_names("#agent", name::AGENT)
            .expression_attribute_names("#live_until", name::LIVE_UNTIL)
            .expression_attribute_values(":session", text(session.as_str()))
            .send()
            .await;
        match sent {
            Ok(_) => Ok(()),
            Err(error) if failed_condition(&error).is_some() => Ok(()),
            Err(error) => Err(ledger_error("free", key, &error)),
        }
    }
}

const OWNER_NAMES: [&str; 5] = [
    name::FORMAT,
    name::SESSION,
    name::AGENT,
    name::LIVE_UNTIL,
    name::EXPIRES_AT,
];

fn owner_values(owner: &Owner, now: Timestamp) -> [(String, AttributeValue); 6] {
    [
        (":format".to_owned(), number(items::FORMAT)),
        (":session".to_owned(), text(owner.session.as_str())),
        (":agent".to_owned(), text(owner.agent.as_str())),
        (":until".to_owned(), millis(owner.live_until)),
        (":expires_at".to_owned(), seconds(kept_until(owner.live_until))),
        (":now".to_owned(), millis(now)),
    ]
}

fn with_owner(update: UpdateItemFluentBuilder, owner: &Owner, now: Timestamp) -> UpdateItemFluentBuilder {
    let names = OWNER_NAMES.iter().map(|name| (format!("#{name}"), (*name).to_owned()));
    update
        .set_expression_attribute_names(Some(names.collect()))
        .set_expression_attribute_values(Some(owner_values(owner, now).into_iter().collect()))
}

fn failed(session: &Session, class: ErrorClass) -> LedgerError {
    LedgerError {
        attempted: "open session",
        on: session.id.to_string(),
        class,
        source: None,
    }
}
