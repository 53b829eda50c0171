//! What came of it, seen from outside.

use std::collections::{BTreeMap, BTreeSet};

use forebay::trial::Error;
use forebay_aws::clock::System;
use forebay_core::event::{EventId, Net};
use forebay_core::ledger::{EventRow, Status};
use forebay_core::ports::{Ledger as _, Listed, Listing, TimeAndChance as _};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::plan::{Expected, Plan};
use super::{Nets, Outcome, REMEDY};
use crate::drain::drain;

/// Longer than any of this.
const AGE_MAX: SignedDuration = SignedDuration::from_hours(2);

impl Nets {
    /// What has not come yet, of `pending`.
    pub(super) async fn still_missing<'p>(&self, pending: Vec<&'p Expected>) -> Result<Vec<&'p Expected>, Error> {
        let mut missing = Vec::new();
        for expected in pending {
            let row = self.row(&expected.id).await?;
            let has_come = row.is_some_and(|row| row.state.status.is_terminal() && row.seen_by == expected.seen_by);
            if !has_come {
                missing.push(expected);
            }
        }
        Ok(missing)
    }

    async fn row(&self, id: &EventId) -> Result<Option<EventRow>, Error> {
        let row = self.ledger.event(id).await;
        row.map_err(|error| Error::because("look into the ledger", REMEDY, error))
    }

    /// Compares ledger and inboxes with what happened.
    pub(super) async fn check(&self, plan: &Plan, outcome: &mut Outcome) -> Result<(), Error> {
        for expected in &plan.expected {
            match self.row(&expected.id).await? {
                None => outcome.lose(&expected.id, "is not in the ledger"),
                Some(row) => look_at(expected, &row, outcome),
            }
        }
        self.strangers(plan, outcome).await?;
        self.inboxes(plan, outcome).await
    }

    /// Looks for events that nobody made happen.
    async fn strangers(&self, plan: &Plan, outcome: &mut Outcome) -> Result<(), Error> {
        let now = System.now();
        let known: BTreeSet<&EventId> = plan.expected.iter().map(|expected| &expected.id).collect();
        let listing = Listing {
            what: Listed::Events,
            since: now.saturating_sub(AGE_MAX).unwrap_or(Timestamp::MIN),
            until: now,
            limit: known.len() * 2 + 1,
        };
        let rows = self.ledger.events(&listing).await;
        for row in rows.map_err(|error| Error::because("list the ledger's events", REMEDY, error))? {
            if !known.contains(&row.event.id) {
                outcome.double(&row.event.id, "never happened");
            }
        }
        Ok(())
    }

    /// Takes everything out of the inboxes.
    async fn inboxes(&self, plan: &Plan, outcome: &mut Outcome) -> Result<(), Error> {
        let mut came: BTreeMap<(String, EventId), usize> = BTreeMap::new();
        for (inbox, url) in self.trial.inboxes()? {
            for body in drain(&self.sqs, &url, REMEDY).await? {
                let message: Value = serde_json::from_str(&body).unwrap_or_default();
                let id = EventId::new(message["id"].as_str().unwrap_or_default());
                *came.entry((inbox.clone(), id)).or_default() += 1;
            }
        }
        for expected in &plan.expected {
            for inbox in &expected.inboxes {
                match came.remove(&(inbox.clone(), expected.id.clone())) {
                    None => outcome.lose(&expected.id, &format!("is not in {inbox}")),
                    Some(1) => {}
                    Some(count) => outcome.double(&expected.id, &format!("is {count} times in {inbox}")),
                }
            }
        }
        for (inbox, id) in came.into_keys() {
            outcome.double(&id, &format!("was not to come to {inbox}"));
        }
        Ok(())
    }
}

fn look_at(expected: &Expected, row: &EventRow, outcome: &mut Outcome) {
    if row.state.status != Status::Processed {
        outcome.lose(&expected.id, &format!("stands at {}", row.state.status));
    }
    let words = |nets: &BTreeSet<Net>| {
        let words: Vec<&str> = nets.iter().map(|net| net.as_str()).collect();
        words.join(", ")
    };
    *outcome.seen_by.entry(words(&row.seen_by)).or_default() += 1;
    if row.seen_by != expected.seen_by || !expected.seen_by.contains(&row.first_seen) {
        let told = format!(
            "was seen by {} first and by {}, which should be {}",
            row.first_seen,
            words(&row.seen_by),
            words(&expected.seen_by)
        );
        outcome.misattribute(&expected.id, &told);
    }
}

impl Outcome {
    fn lose(&mut self, id: &EventId, problem: &str) {
        self.lost.insert(id.to_string());
        self.tell(format!("event {id} {problem}"));
    }

    fn double(&mut self, id: &EventId, problem: &str) {
        self.doubled.insert(id.to_string());
        self.tell(format!("event {id} {problem}"));
    }

    fn misattribute(&mut self, id: &EventId, problem: &str) {
        self.misattributed.insert(id.to_string());
        self.tell(format!("event {id} {problem}"));
    }
}
