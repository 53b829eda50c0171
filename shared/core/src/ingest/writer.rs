//! The writer into the ledger: admit, drive, and remember what an event's names teach.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::{BoxFuture, join};
use jiff::Timestamp;

use crate::delivery::{Delivery, Digest, Outcome, READ_BACK};
use crate::drive::{Driven, Driver, NAMES_MAX, admittee, keys_beside};
use crate::event::{EventId, Kind, Net};
use crate::github::{Envelope, Meaning, Named, read};
use crate::ledger::{Admission, Admitted, Admittee, EventAdmission, EventRow, Nonce, Reason, Status};
use crate::ports::{Inboxes, Ledger, LedgerError, TimeAndChance};
use crate::session::Pointers;
use crate::source::{Found, Readback, Writer, Written};

/// An event that was new to the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caught {
    /// What happened.
    pub kind: Kind,
    /// When it happened.
    pub occurred_at: Option<Timestamp>,
    /// When it was written.
    pub admitted_at: Timestamp,
}

/// What is counted of what was written.
#[derive(Debug, Default)]
pub struct WriteCounts {
    /// Events that are new.
    pub accepted: u64,
    /// Events that were known.
    pub duplicates: u64,
    /// Events that an inbox got.
    pub delivered: u64,
    /// Events that nobody wants.
    pub unrouted: u64,
    /// Events that were given up.
    pub undeliverable: u64,
    /// How many more events webhooks have lost, by the net that has caught them.
    pub seen_only_by: BTreeMap<Net, i64>,
    /// The events that are new, with what each happened and when it was written. At most [`WriteCounts::CAUGHT_MAX`].
    pub caught: Vec<Caught>,
    /// What could not be driven, for the log. It is due again later.
    pub troubles: Vec<(EventId, LedgerError)>,
}

impl WriteCounts {
    /// Most troubles that are kept.
    pub const TROUBLES_MAX: usize = 50;
    /// Most new events that are told of one by one: more than a run can write.
    pub const CAUGHT_MAX: usize = 5_000;

    /// Counts whether webhooks have lost an event, from what its admission found.
    pub fn see(&mut self, admitted: &Admitted, net: Net) {
        if let Some((net, change)) = lost_by_webhooks(admitted, net) {
            let sum = self.seen_only_by.entry(net).or_default();
            *sum = sum.saturating_add(change);
        }
    }
}

/// How an admission by `net` changes how many events webhooks have lost, by the net that has caught them.
///
/// One more for each that another net tells of first, one less when a webhook tells of it after all. Added up, that is what
/// webhooks lost.
#[must_use]
pub fn lost_by_webhooks(admitted: &Admitted, net: Net) -> Option<(Net, i64)> {
    match admitted {
        Admitted::Created { .. } if net != Net::Webhook => Some((net, 1)),
        Admitted::Joined {
            event: Some(row),
            is_new_to_net: true,
        } if net == Net::Webhook => Some((row.first_seen, -1)),
        Admitted::Created { .. } | Admitted::Joined { .. } | Admitted::Duplicate { .. } => None,
    }
}

/// Writes what sources find into the ledger, and drives it as long as there is time. What is not driven is due later.
#[derive(Debug)]
pub struct LedgerWriter<'a, L, I, T> {
    driver: Driver<'a, L, I, T>,
    net: Net,
    /// Nothing is driven after this.
    drive_until: Timestamp,
    counts: Mutex<WriteCounts>,
}

impl<'a, L: Ledger, I: Inboxes, T: TimeAndChance> LedgerWriter<'a, L, I, T> {
    /// The writer of what `net` catches, with `driver`'s ports and rules.
    #[must_use]
    pub fn new(driver: Driver<'a, L, I, T>, net: Net, drive_until: Timestamp) -> Self {
        Self {
            driver,
            net,
            drive_until,
            counts: Mutex::default(),
        }
    }

    /// What has been counted since this was last asked.
    pub fn take_counts(&self) -> WriteCounts {
        std::mem::take(&mut *self.counts())
    }

    fn counts(&self) -> MutexGuard<'_, WriteCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn keep(&self, found: Found) -> Result<Written, LedgerError> {
        let Found { event, names } = found;
        let Driver {
            ledger,
            time,
            routing,
            limits,
            ..
        } = self.driver;
        let now = time.now();
        let nonce = Nonce::from_random(time.random());
        let admittee = admittee(event, routing, limits, nonce, now);
        let admission = EventAdmission {
            admittee: &admittee,
            net: self.net,
            received_at: now,
            nonce,
            expires_at: limits.event_expires_at(now),
        };
        let keys = keys_beside(Some(&admittee), &names);
        let (admitted, pointers) = join(ledger.admit_event(&admission), ledger.pointers(&keys)).await;
        Ok(self
            .kept(admitted?, Some(admittee), &names, pointers, self.net, now)
            .await)
    }

    async fn keep_delivery(&self, readback: Readback) -> Result<Written, LedgerError> {
        let Driver {
            ledger,
            time,
            routing,
            limits,
            ..
        } = self.driver;
        let now = time.now();
        let nonce = Nonce::from_random(time.random());
        let envelope = Envelope {
            host: readback.host.as_deref(),
            key: Some(&readback.key),
            event_name: &readback.event_name,
            content_type: None,
        };
        let reading = read(&envelope, &readback.payload);
        let (outcome, event) = match reading.meaning {
            Meaning::Event(event) => (Outcome::Accepted(event.id.clone()), Some(*event)),
            Meaning::Ignored(why) => (Outcome::Ignored(why), None),
            Meaning::Malformed(why) => (Outcome::Malformed(why), None),
        };
        let delivery = Delivery {
            key: readback.key,
            event_name: readback.event_name,
            action: reading.action,
            headers: Vec::new(),
            digest: Digest::of(&readback.payload),
            size: u64::try_from(readback.payload.len()).unwrap_or(u64::MAX),
            verified_by: READ_BACK.to_owned(),
            net: Net::Recovery,
            outcome,
            received_at: now,
        };
        let event = event.map(|event| admittee(event, routing, limits, nonce, now));
        let keys = keys_beside(event.as_ref(), &reading.names);
        let admission = Admission {
            delivery: &delivery,
            body: &readback.payload,
            event,
            nonce,
            expires_at: limits.delivery_expires_at(now),
        };
        let (admitted, pointers) = join(ledger.admit(&admission), ledger.pointers(&keys)).await;
        let admitted = admitted?;
        let event = admission.event;
        Ok(self
            .kept(admitted, event, &reading.names, pointers, Net::Recovery, now)
            .await)
    }

    /// What is durable is counted and driven. From here on nothing that fails is the source's.
    async fn kept(
        &self,
        admitted: Admitted,
        admittee: Option<Admittee>,
        names: &[Named],
        pointers: Result<Pointers, LedgerError>,
        net: Net,
        now: Timestamp,
    ) -> Written {
        let written = match &admitted {
            Admitted::Created { .. } => Written::New,
            Admitted::Joined { .. } | Admitted::Duplicate { .. } => Written::Known,
        };
        if let Some(admittee) = admittee {
            let id = admittee.event.id.clone();
            let row = EventRow {
                event: admittee.event,
                state: admittee.state,
                admitted_at: now,
                first_seen: net,
                seen_by: BTreeSet::from([net]),
            };
            self.count_written(&admitted, &row, written, net);
            match self.drive(admitted, &row, &pointers).await {
                Ok(driven) => self.count_driven(driven.as_ref()),
                Err(error) => self.trouble(id, error),
            }
        }
        let Ok(pointers) = pointers else { return written };
        for named in names.iter().take(NAMES_MAX) {
            match self.driver.remember(named, &pointers).await {
                Ok(woken) => {
                    for (event, driven) in woken {
                        match driven {
                            Ok(driven) => self.count_driven(Some(&driven)),
                            Err(error) => self.trouble(event, error),
                        }
                    }
                }
                Err(error) => self.trouble(EventId::new(named.repository.as_str()), error),
            }
        }
        written
    }

    fn count_written(&self, admitted: &Admitted, row: &EventRow, written: Written, net: Net) {
        let mut counts = self.counts();
        counts.see(admitted, net);
        let one = |count: &mut u64| *count = count.saturating_add(1);
        match written {
            Written::New => {
                one(&mut counts.accepted);
                if counts.caught.len() < WriteCounts::CAUGHT_MAX {
                    counts.caught.push(Caught {
                        kind: row.event.kind,
                        occurred_at: row.event.occurred_at,
                        admitted_at: row.admitted_at,
                    });
                }
                if row.state.status != Status::Claimed {
                    one(&mut counts.unrouted);
                }
            }
            Written::Known => one(&mut counts.duplicates),
        }
    }

    async fn drive(
        &self,
        admitted: Admitted,
        row: &EventRow,
        pointers: &Result<Pointers, LedgerError>,
    ) -> Result<Option<Driven>, LedgerError> {
        let has_time = self.driver.time.now() < self.drive_until;
        let driven = match admitted {
            Admitted::Created { lease: Some(lease) } => match pointers {
                Ok(pointers) if has_time => self.driver.drive(row, lease, pointers).await,
                // A lease that is left to lapse would count as a failure of the event's own handling.
                Ok(_) | Err(_) => self.driver.postpone(row, lease).await,
            },
            Admitted::Joined { event: Some(known), .. } | Admitted::Duplicate { event: Some(known), .. }
                if has_time =>
            {
                self.driver.drive_if_due(&known).await
            }
            Admitted::Created { lease: None } | Admitted::Joined { .. } | Admitted::Duplicate { .. } => {
                return Ok(None);
            }
        };
        driven.map(Some)
    }

    fn count_driven(&self, driven: Option<&Driven>) {
        let Some(Driven::Settled {
            status,
            reason,
            sent_to,
        }) = driven
        else {
            return;
        };
        let mut counts = self.counts();
        if !sent_to.is_empty() {
            counts.delivered = counts.delivered.saturating_add(1);
        }
        match (status, reason) {
            (Status::FailedPermanent, _) => counts.undeliverable = counts.undeliverable.saturating_add(1),
            (Status::Processed, Reason::Unrouted | Reason::Silenced | Reason::Stale | Reason::NoOwner) => {
                counts.unrouted = counts.unrouted.saturating_add(1);
            }
            _ => {}
        }
    }

    fn trouble(&self, event: EventId, error: LedgerError) {
        let mut counts = self.counts();
        if counts.troubles.len() < WriteCounts::TROUBLES_MAX {
            counts.troubles.push((event, error));
        }
    }
}

impl<L: Ledger, I: Inboxes, T: TimeAndChance> Writer for LedgerWriter<'_, L, I, T> {
    fn write<'a>(&'a self, found: Found) -> BoxFuture<'a, Result<Written, LedgerError>> {
        Box::pin(self.keep(found))
    }

    fn write_delivery<'a>(&'a self, readback: Readback) -> BoxFuture<'a, Result<Written, LedgerError>> {
        Box::pin(self.keep_delivery(readback))
    }
}
