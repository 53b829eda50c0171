//! Keeping a delivery, and driving its event as far as the time allows.

use std::collections::BTreeSet;
use std::future::Future;

use forebay_aws::secrets::Documents;
use forebay_core::delivery::{Delivery, DeliveryKey, Outcome};
use forebay_core::drive::{Driven, Driver, NAMES_MAX, admittee, keys_beside};
use forebay_core::event::{Kind, Net};
use forebay_core::github::Named;
use forebay_core::ingest::lost_by_webhooks;
use forebay_core::ledger::{Admission, Admitted, Admittee, Cause, EventRow, Nonce, Reason, Status};
use forebay_core::ports::{ErrorClass, Inboxes, Ledger, LedgerError, TimeAndChance};
use forebay_core::session::{OwnerKey, Pointer, Pointers};
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};

use crate::answer::Verdict;
use crate::handle::{Arrived, Schedule, Webhook};

/// What came of a delivery and of its event, for the answer, the log and the metrics.
pub(crate) struct Handled {
    pub(crate) verdict: Verdict,
    /// The event's kind; `None` where these bytes mean none, or were not those that are kept.
    pub(crate) kind: Option<Kind>,
    pub(crate) occurred_at: Option<Timestamp>,
    /// Known already, with other bytes.
    pub(crate) conflict: bool,
    /// The event is new to the ledger.
    pub(crate) created: bool,
    /// It is, and an ignored actor wrote it.
    pub(crate) silenced: bool,
    /// The net that alone had seen the event until now.
    pub(crate) joined: Option<Net>,
    pub(crate) drive: Drive,
}

/// What this delivery did for its event.
pub(crate) enum Drive {
    /// There was nothing to drive.
    Needless,
    /// This.
    Ended(Driven),
    /// Nobody knows: the ledger gave no answer in time. The event is due again later.
    Unanswered,
}

impl<L: Ledger, I: Inboxes, D: Documents, T: TimeAndChance> Webhook<L, I, D, T> {
    fn driver(&self) -> Driver<'_, L, I, T> {
        Driver {
            ledger: &self.ledger,
            inboxes: &self.inboxes,
            time: &self.time,
            routing: &self.config.routing,
            limits: &self.config.limits,
        }
    }

    /// Makes the delivery durable, then drives its event as far as the time allows. From the admission on, nothing that
    /// fails changes the answer: the ledger has it.
    pub(crate) async fn keep_and_drive(&self, arrived: Arrived<'_>, schedule: Schedule) -> Handled {
        let Arrived {
            delivery,
            body,
            event,
            names,
        } = arrived;
        let started_at = schedule.started_at;
        let nonce = Nonce::from_random(self.time.random());
        let admission = Admission {
            delivery: &delivery,
            body,
            event: event.map(|event| admittee(event, &self.config.routing, &self.config.limits, nonce, started_at)),
            nonce,
            expires_at: self.config.limits.delivery_expires_at(started_at),
        };
        let keys = keys_beside(admission.event.as_ref(), &names);
        // Owners are read beside the admission: for most events that is all that routing needs. Each has the time for
        // itself, so that owners who are slow to read cannot make a delivery that is durable look lost.
        let (admitted, pointers, learnt) = tokio::join!(
            by(
                schedule.admit_by,
                "admit delivery",
                &delivery.key,
                self.ledger.admit(&admission)
            ),
            self.owners_beside(schedule.admit_by, &delivery.key, &keys, admission.event.as_ref()),
            self.learn_beside(schedule.admit_by, &delivery, &names),
        );
        let pointers = pointers.map(|mut pointers| {
            pointers.0.extend(learnt);
            pointers
        });
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(error) => {
                tracing::error!(delivery.id = %delivery.key, error = %error.cause(), "{error}");
                return handled(Verdict::Failed, admission.event.as_ref());
            }
        };
        let handled = judged(&admitted, admission.event.as_ref());
        let (drive, ()) = tokio::join!(
            async {
                let driving = self.drive(admitted, &admission, &pointers);
                match by(schedule.answer_by, "drive the event of", &delivery.key, driving).await {
                    Ok(None) => Drive::Needless,
                    Ok(Some(driven)) => Drive::Ended(driven),
                    Err(error) => {
                        warn_of_event(&delivery.key, &error);
                        Drive::Unanswered
                    }
                }
            },
            self.remember_by(schedule.answer_by, &delivery, &names, pointers.as_ref().ok()),
        );
        Handled { drive, ..handled }
    }

    /// Reads owners, and lets the inboxes that they decide on be made ready: what stands beside the admission does not stand in
    /// front of the send.
    async fn owners_beside(
        &self,
        end: Instant,
        delivery: &DeliveryKey,
        keys: &[OwnerKey],
        admittee: Option<&Admittee>,
    ) -> Result<Pointers, LedgerError> {
        let pointers = by(end, "read owners for", delivery, self.ledger.pointers(keys)).await?;
        if let Some(admittee) = unsettled(admittee) {
            let driver = self.driver();
            // What is not ready in time is found out when it is sent to.
            timeout_at(end, driver.prepare(&admittee.event, &pointers))
                .await
                .unwrap_or_default();
        }
        Ok(pointers)
    }

    async fn drive(
        &self,
        admitted: Admitted,
        admission: &Admission<'_>,
        pointers: &Result<Pointers, LedgerError>,
    ) -> Result<Option<Driven>, LedgerError> {
        let driver = self.driver();
        let driven = match (admitted, &admission.event) {
            (Admitted::Created { lease: Some(lease) }, Some(admittee)) => {
                let row = new_row(admittee, admission.delivery);
                match pointers {
                    Ok(pointers) => driver.drive(&row, lease, pointers).await,
                    Err(error) => {
                        warn_of_event(&admission.delivery.key, error);
                        driver.postpone(&row, lease).await
                    }
                }
            }
            (Admitted::Joined { event: Some(row), .. } | Admitted::Duplicate { event: Some(row), .. }, _) => {
                driver.drive_if_due(&row).await
            }
            (Admitted::Joined { event: None, .. }, Some(admittee)) => {
                driver.claim_and_drive(&admittee.event.id, Cause::Due).await
            }
            (
                Admitted::Created { .. }
                | Admitted::Joined { event: None, .. }
                | Admitted::Duplicate { event: None, .. },
                _,
            ) => return Ok(None),
        };
        driven.map(Some)
    }

    /// Remembers the names of a delivery that means no event, beside its admission: such a delivery is kept at the price of
    /// one call in a row. For an event that would be a write too many; its names are remembered where they are new.
    async fn learn_beside(&self, end: Instant, delivery: &Delivery, names: &[Named]) -> Vec<(OwnerKey, Pointer)> {
        let mut learnt = Vec::new();
        if matches!(delivery.outcome, Outcome::Accepted(_)) {
            return learnt;
        }
        for named in names.iter().take(NAMES_MAX) {
            let learning = self
                .ledger
                .learn(&named.repository, &named.branch, named.pull, self.time.now());
            match by(end, "remember a pull request of", &delivery.key, learning).await {
                Ok(pointer) => learnt.push((OwnerKey::branch(&named.repository, &named.branch), pointer)),
                Err(error) => tracing::warn!(delivery.id = %delivery.key, error = %error.cause(), "{error}"),
            }
        }
        learnt
    }

    /// Remembers which pull requests a payload's branches have, lets the branches' sessions own them, and drives what
    /// waited for that. Comments carry no branch: this is how they find the session.
    ///
    /// A redelivery does it again: whoever kept the first may have died before this, and what is known costs nothing.
    async fn remember_by(&self, end: Instant, delivery: &Delivery, names: &[Named], known: Option<&Pointers>) {
        // Without the pointers there is no telling what is new; the next payload that names them brings it again.
        let Some(known) = known else { return };
        for named in names.iter().take(NAMES_MAX) {
            let remembering = self.remember(named, known);
            if let Err(error) = by(end, "remember a pull request of", &delivery.key, remembering).await {
                tracing::warn!(delivery.id = %delivery.key, error = %error.cause(), "{error}");
            }
        }
    }

    async fn remember(&self, named: &Named, known: &Pointers) -> Result<(), LedgerError> {
        for (event, driven) in self.driver().remember(named, known).await? {
            if let Err(error) = driven {
                tracing::warn!(event.id = %event, error = %error.cause(), "{error}; it is due again later");
            }
        }
        Ok(())
    }
}

/// What `call` answers, or that it did not by `end`.
async fn by<R>(
    end: Instant,
    attempted: &'static str,
    on: &DeliveryKey,
    call: impl Future<Output = Result<R, LedgerError>>,
) -> Result<R, LedgerError> {
    timeout_at(end, call).await.unwrap_or_else(|_elapsed| {
        Err(LedgerError {
            attempted,
            on: on.to_string(),
            class: ErrorClass::TimedOut,
            source: None,
        })
    })
}

/// What an admission means for the answer, before anything is driven.
fn judged(admitted: &Admitted, admittee: Option<&Admittee>) -> Handled {
    let (conflict, created) = match admitted {
        Admitted::Created { .. } => (false, admittee.is_some()),
        Admitted::Joined { .. } => (false, false),
        Admitted::Duplicate { conflict, .. } => (*conflict, false),
    };
    let silenced = |admittee: &Admittee| admittee.state.reason == Some(Reason::Silenced);
    let verdict = match (admitted, admittee) {
        (Admitted::Duplicate { .. }, _) => Verdict::Duplicate,
        (Admitted::Created { .. } | Admitted::Joined { .. }, Some(_)) => Verdict::Accepted,
        (Admitted::Created { .. } | Admitted::Joined { .. }, None) => Verdict::Ignored,
    };
    Handled {
        conflict,
        created,
        silenced: created && admittee.is_some_and(silenced),
        joined: lost_by_webhooks(admitted, Net::Webhook)
            .filter(|(_, change)| *change < 0)
            .map(|(net, _)| net),
        // What other bytes mean under a known identity never became an event.
        ..handled(verdict, admittee.filter(|_| !conflict))
    }
}

fn handled(verdict: Verdict, admittee: Option<&Admittee>) -> Handled {
    Handled {
        verdict,
        kind: admittee.map(|admittee| admittee.event.kind),
        occurred_at: admittee.and_then(|admittee| admittee.event.occurred_at),
        conflict: false,
        created: false,
        silenced: false,
        joined: None,
        drive: Drive::Needless,
    }
}

/// What is to be driven, if it is admitted.
fn unsettled(admittee: Option<&Admittee>) -> Option<&Admittee> {
    admittee.filter(|admittee| admittee.state.status == Status::Claimed)
}

/// The event's row as its admission wrote it.
fn new_row(admittee: &Admittee, delivery: &Delivery) -> EventRow {
    EventRow {
        event: admittee.event.clone(),
        state: admittee.state.clone(),
        admitted_at: delivery.received_at,
        first_seen: delivery.net,
        seen_by: BTreeSet::from([delivery.net]),
    }
}

fn warn_of_event(delivery: &DeliveryKey, error: &LedgerError) {
    tracing::warn!(delivery.id = %delivery, error = %error.cause(), "{error}; its event is due again later");
}
