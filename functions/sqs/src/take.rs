//! One batch: keep every message, drive it as far as time allows, and say which are to come again.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use forebay_aws::config::{LEASED_SECONDS_MAX, SQS_SECONDS_MAX, SqsConfig};
use forebay_aws::dynamodb::DynamoLedger;
use forebay_aws::metrics::{Metrics, QueueBatch, Record, system_time};
use forebay_aws::shedder::ShedInboxes;
use forebay_aws::sqs::SqsQueues;
use forebay_aws::sqs_event::{BatchAnswer, BatchItemFailure, SqsEvent};
use forebay_core::drive::{Driven, Driver, admittee, malformed};
use forebay_core::event::{EventId, Net};
use forebay_core::ledger::{Admitted, EventAdmission, EventRow, Lease, Limits, Nonce, Refused};
use forebay_core::ports::{ErrorClass, ErrorKind, HeldBack, Inboxes, Ledger, LedgerError, Queues, TimeAndChance};
use forebay_core::queue::{self, Conversion, Message};
use forebay_core::route::Routing;
use forebay_core::shed::{Observation, ShedderConfig, SlotNumber, Slots, Window};
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, timeout, timeout_at};

use crate::lanes::{Head, Lanes, is_ordered};

/// Longest time that one round of messages is worked on. The leases of its events outlive that.
pub const ROUND_TIME_MAX: Duration = Duration::from_secs(LEASED_SECONDS_MAX.cast_unsigned());
/// Longest time that the ledger has to keep the messages of one round; the rest of the round is for sending them.
const ADMIT_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest time that messages are held back at the end.
const HOLD_BACK_TIME_MAX: Duration = Duration::from_secs(2);
/// No round begins with less time than this: itself, holding back, and a second for the answer.
const STOP_MARGIN: SignedDuration =
    SignedDuration::from_secs(LEASED_SECONDS_MAX + HOLD_BACK_TIME_MAX.as_secs().cast_signed() + 1);
const _: () = assert!(ADMIT_TIME_MAX.as_secs() < ROUND_TIME_MAX.as_secs());
const _: () = assert!(
    STOP_MARGIN.as_secs() * 2 < SQS_SECONDS_MAX,
    "a batch has time for two rounds at least"
);

/// First time that a message is held back, in seconds; each receive makes it ten times as long. A message goes to the dead
/// letters when it would be received once more than its queue allows, so that three receives bridge the first two of these:
/// 33 minutes.
const HELD_BACK_SECONDS_MIN: u32 = 180;
/// Longest time, in seconds: an hour, so that a message is not late by more once its trouble is over. SQS takes up to twelve
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html>).
const HELD_BACK_SECONDS_MAX: u32 = 3_600;

/// How long a message that was received so many times is held back, in seconds.
#[must_use]
pub fn held_back_seconds(receives: u32) -> u32 {
    let growth = 10_u32.saturating_pow(receives.saturating_sub(1));
    HELD_BACK_SECONDS_MIN.saturating_mul(growth).min(HELD_BACK_SECONDS_MAX)
}

/// Holds a whole batch back, for a function that cannot work. Its messages would use up their receives otherwise.
pub async fn hold_all_back(event: &SqsEvent, queues: &impl Queues) {
    hold_back(queues, event.read().messages.iter().filter_map(holding_back).collect()).await;
}

/// Records of a batch that no answer can name. The invocation fails on purpose, so that the queue keeps the whole batch; what
/// had a name is durable already and will be known as a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("take batch: {0} of its records have no message id; look for them among the queue's dead letters")]
pub struct Nameless(pub usize);

/// What takes batches: ports and configuration.
#[derive(Debug)]
pub struct Intake<L = DynamoLedger, I = ShedInboxes, Q = SqsQueues, T = forebay_aws::clock::System> {
    ledger: L,
    inboxes: I,
    queues: Q,
    time: T,
    routing: Routing,
    conversion: Conversion,
    limits: Limits,
    metrics: Metrics,
    /// What this environment has seen of the ledger lately. Judged by it alone: what it would share, a sick ledger would not
    /// take.
    ledger_seen: Mutex<Slots>,
    shedder: ShedderConfig,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Kept, and nothing is left to do.
    Settled,
    /// Kept; it is due again later.
    Pending,
    /// Not kept, for want of what this kind of error asks for.
    Unkept(ErrorKind),
}

/// What became of a message's admission.
enum Kept {
    /// Its event is new, and claimed by us. It is taken out to be driven.
    Ours(Option<Box<(EventRow, Lease)>>),
    /// Its event was there. Its row is taken out to be driven if it is due.
    Known(Option<Box<EventRow>>),
    /// There is nothing to drive.
    Done(Fate),
}

/// What is counted of a batch.
#[derive(Debug, Default)]
struct Counts {
    created: u64,
    duplicates: u64,
    malformed: u64,
    sent: u64,
    pending: u64,
    unkept: u64,
}

impl<L: Ledger, I: Inboxes, Q: Queues, T: TimeAndChance> Intake<L, I, Q, T> {
    /// The intake on these ports.
    #[must_use]
    pub fn new(config: &SqsConfig, ledger: L, inboxes: I, queues: Q, time: T, metrics: Metrics) -> Self {
        Self {
            ledger,
            inboxes,
            queues,
            time,
            routing: config.routing.clone(),
            conversion: config.envelopes.into(),
            limits: config.limits,
            metrics,
            ledger_seen: Mutex::default(),
            shedder: config.shedder,
        }
    }

    /// Takes one batch and is over before `deadline`. Says which messages are to come again.
    ///
    /// A message is done with as soon as it is durable. In a FIFO queue order wins: there it is done with when its event is
    /// settled, and until then what is behind it in its group comes again with it.
    ///
    /// # Errors
    /// [`Nameless`] where records have no id: the whole batch comes again.
    pub async fn take(&self, event: &SqsEvent, deadline: Timestamp) -> Result<BatchAnswer, Nameless> {
        let began = self.time.now();
        let batch = event.read();
        let taken = batch.messages.len();
        let longest = began.saturating_add(SignedDuration::from_secs(SQS_SECONDS_MAX));
        let deadline = deadline.min(longest.unwrap_or(Timestamp::MAX));
        let last_start = deadline.saturating_sub(STOP_MARGIN).unwrap_or(Timestamp::MIN);
        let mut lanes = Lanes::of(batch.messages);
        let mut counts = Counts::default();
        let mut again = Vec::new();
        let mut held_back = Vec::new();
        while self.time.now() <= last_start {
            // A sick ledger is tried with one message before it gets all of them.
            let sick = self.is_ledger_sick();
            let heads = lanes.heads(if sick { 1 } else { usize::MAX });
            if heads.is_empty() {
                break;
            }
            let messages: Vec<&Message> = heads.iter().map(|head| &head.message).collect();
            let fates = self.round(&messages, &mut counts).await;
            let stop = sick && self.is_ledger_sick();
            for (head, fate) in heads.into_iter().zip(fates) {
                self.conclude(head, &fate, &mut lanes, &mut again, &mut held_back);
            }
            if stop {
                break;
            }
        }
        let untouched: Vec<Message> = lanes.rest().collect();
        if self.is_ledger_sick() {
            held_back.extend(untouched.iter().filter_map(holding_back));
        }
        again.extend(untouched);
        hold_back(&self.queues, held_back).await;
        self.tell(began, taken, again.len(), batch.nameless, &counts);
        if batch.nameless > 0 {
            return Err(Nameless(batch.nameless));
        }
        let failures = again.into_iter().map(|message| BatchItemFailure {
            item_identifier: message.id,
        });
        Ok(BatchAnswer {
            batch_item_failures: failures.collect(),
        })
    }

    /// What becomes of a lane after its head.
    fn conclude(
        &self,
        head: Head,
        fate: &Fate,
        lanes: &mut Lanes,
        again: &mut Vec<Message>,
        held_back: &mut Vec<HeldBack>,
    ) {
        let done = match fate {
            Fate::Settled => true,
            Fate::Pending => !is_ordered(&head.message),
            Fate::Unkept(_) => false,
        };
        if done {
            lanes.go_on(head);
            return;
        }
        // What waits for its surroundings would use up its receives at the pace of the queue. One that the ledger will never
        // take uses them up, and is found among the dead letters.
        let waits = match fate {
            Fate::Settled | Fate::Pending => true,
            Fate::Unkept(kind) => match kind {
                ErrorKind::Retry | ErrorKind::Fix => true,
                ErrorKind::Reject | ErrorKind::Bug => false,
            },
        };
        if waits {
            held_back.extend(holding_back(&head.message));
        }
        again.push(head.message.clone());
        again.extend(head.behind());
    }

    /// Keeps some messages and drives their events, all at once.
    async fn round(&self, messages: &[&Message], counts: &mut Counts) -> Vec<Fate> {
        let end = Instant::now() + ROUND_TIME_MAX;
        let now = self.time.now();
        let mut kept = Vec::with_capacity(messages.len());
        // What the shedder has to ask is asked beside the admissions, and not in front of the sends.
        let preparing = async {
            let inboxes = messages
                .iter()
                .map(|message| self.routing.queues.inbox(&message.queue).to_owned())
                .collect();
            self.inboxes.prepare(&inboxes).await;
        };
        let (admitted, ()) = tokio::join!(join_all(self.keeping(messages, now)), preparing);
        for (message, (one, counted)) in messages.iter().zip(admitted) {
            counts.malformed += u64::from(message.is_malformed());
            match counted {
                Counted::Created => counts.created += 1,
                Counted::Duplicate => counts.duplicates += 1,
                Counted::Unkept(_) => counts.unkept += 1,
            }
            kept.push(one);
        }
        let driver = self.driver();
        let ours = kept.iter_mut().filter_map(|kept| match kept {
            Kept::Ours(claimed) => claimed.take().map(|claimed| *claimed),
            Kept::Known(_) | Kept::Done(_) => None,
        });
        let driving = Box::pin(driver.drive_all(ours.collect()));
        let known = kept.iter_mut().filter_map(|kept| match kept {
            Kept::Known(row) => row.take(),
            Kept::Ours(_) | Kept::Done(_) => None,
        });
        let rows: Vec<Box<EventRow>> = known.collect();
        let knowing = Box::pin(join_all(rows.iter().map(|row| driver.drive_if_due(row))));
        // What is not done by then is due again when its lease has lapsed.
        let driven = timeout_at(end, async { tokio::join!(driving, knowing) }).await;
        let (ours, known) = driven.unwrap_or_default();
        let (mut ours, mut known) = (ours.into_iter(), known.into_iter());
        let fates = messages.iter().zip(kept).map(|(message, kept)| match kept {
            Kept::Done(fate) => fate,
            Kept::Ours(_) => self.fate(message, ours.next(), counts),
            Kept::Known(_) => self.fate(message, known.next(), counts),
        });
        fates.collect()
    }

    fn keeping<'a>(
        &'a self,
        messages: &'a [&Message],
        now: Timestamp,
    ) -> impl Iterator<Item = impl Future<Output = (Kept, Counted)> + 'a> {
        // Boxed: the futures of all messages of a round lie side by side.
        messages.iter().map(move |message| {
            Box::pin(async move {
                let kept = self.keep(message, now).await;
                let then = self.time.now();
                self.note_health(&kept.1, then.duration_since(now), then);
                kept
            })
        })
    }

    /// Makes a message durable.
    async fn keep(&self, message: &Message, now: Timestamp) -> (Kept, Counted) {
        let nonce = Nonce::from_random(self.time.random());
        let event = queue::event(message, &self.conversion);
        let id = event.id.clone();
        let admittee = if message.is_malformed() {
            tracing::warn!(event.id = %id, "keep message as event {id}: no queue can have sent it, so it is not handled");
            malformed(event, &self.limits, nonce, now)
        } else {
            admittee(event, &self.routing, &self.limits, nonce, now)
        };
        let admission = EventAdmission {
            admittee: &admittee,
            net: Net::Queue,
            received_at: now,
            nonce,
            expires_at: self.limits.delivery_expires_at(now),
        };
        let admitted = timeout(ADMIT_TIME_MAX, self.ledger.admit_event(&admission)).await;
        match admitted.unwrap_or_else(|_elapsed| Err(out_of_time(&id))) {
            Ok(Admitted::Created { lease: Some(lease) }) => {
                let row = EventRow {
                    event: admittee.event,
                    state: admittee.state,
                    admitted_at: now,
                    first_seen: Net::Queue,
                    seen_by: [Net::Queue].into(),
                };
                (Kept::Ours(Some(Box::new((row, lease)))), Counted::Created)
            }
            Ok(Admitted::Created { lease: None }) => (Kept::Done(Fate::Settled), Counted::Created),
            Ok(Admitted::Joined { event: None, .. } | Admitted::Duplicate { event: None, .. }) => {
                // A row that this version cannot read is the reaper's to judge.
                (Kept::Done(Fate::Settled), Counted::Duplicate)
            }
            Ok(Admitted::Joined { event, .. } | Admitted::Duplicate { event, .. }) => {
                (Kept::Known(event), Counted::Duplicate)
            }
            Err(error) => {
                tracing::error!(event.id = %id, error = %error.cause(), "{error}; its message comes again");
                (Kept::Done(Fate::Unkept(error.kind())), Counted::Unkept(error.class))
            }
        }
    }

    /// What a drive means for the message; `None` where its time was over.
    fn fate(&self, message: &Message, driven: Option<Result<Driven, LedgerError>>, counts: &mut Counts) -> Fate {
        let fate = match driven {
            None => Fate::Pending,
            Some(Err(error)) => {
                let id = queue::event_id(&message.queue, &message.id);
                tracing::warn!(event.id = %id, error = %error.cause(), "{error}; it is due again later");
                Fate::Pending
            }
            Some(Ok(Driven::Settled { status, sent_to, .. })) => {
                counts.sent += u64::try_from(sent_to.len()).unwrap_or(u64::MAX);
                if status.is_terminal() {
                    Fate::Settled
                } else {
                    Fate::Pending
                }
            }
            Some(Ok(Driven::Lost(refused))) => match refused {
                Refused::Terminal(_) | Refused::Missing | Refused::Newer(_) => Fate::Settled,
                Refused::Held { .. } | Refused::NotDue { .. } | Refused::Stale { .. } | Refused::Lapsed { .. } => {
                    Fate::Pending
                }
            },
        };
        counts.pending += u64::from(fate == Fate::Pending);
        fate
    }

    fn driver(&self) -> Driver<'_, L, I, T> {
        Driver {
            ledger: &self.ledger,
            inboxes: &self.inboxes,
            time: &self.time,
            routing: &self.routing,
            limits: &self.limits,
        }
    }

    /// Notes how the ledger did with one message. It takes one that is kept to call a sick one well again.
    fn note_health(&self, counted: &Counted, took: SignedDuration, now: Timestamp) {
        let mut seen = self.ledger_seen.lock().unwrap_or_else(PoisonError::into_inner);
        match counted {
            Counted::Created | Counted::Duplicate => {
                if self.is_bad(&seen, now) {
                    *seen = Slots::default();
                }
                seen.add(now, Observation::Success(took));
            }
            Counted::Unkept(class) => match class {
                ErrorClass::TimedOut | ErrorClass::Unreachable | ErrorClass::ServerFault => {
                    seen.add(now, Observation::Error);
                }
                // A busy, contended or forbidden ledger is not sick, and one message that it refuses is that message's.
                ErrorClass::Throttled
                | ErrorClass::Conflict
                | ErrorClass::Denied
                | ErrorClass::NotFound
                | ErrorClass::TooLarge
                | ErrorClass::Invalid
                | ErrorClass::Unreadable => {}
            },
        }
        seen.forget_before(SlotNumber::of(before_the_window(now, &self.shedder)));
    }

    fn is_bad(&self, seen: &Slots, now: Timestamp) -> bool {
        Window::at(now, &self.shedder).over(seen).is_bad(&self.shedder)
    }

    fn is_ledger_sick(&self) -> bool {
        let seen = self.ledger_seen.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_bad(&seen, self.time.now())
    }

    fn tell(&self, began: Timestamp, taken: usize, returned: usize, nameless: usize, counts: &Counts) {
        let duration_ms = self.time.now().duration_since(began).as_millis();
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        self.metrics.emit(Record::Batch(QueueBatch {
            timestamp: system_time(began),
            messages: number(taken).saturating_add(number(nameless)),
            created: counts.created,
            duplicates: counts.duplicates,
            malformed: counts.malformed.saturating_add(number(nameless)),
            unkept: counts.unkept,
            returned: number(returned),
            sent: counts.sent,
            pending: counts.pending,
            duration_ms: u64::try_from(duration_ms).unwrap_or(0),
        }));
    }
}

/// How an admission counts.
enum Counted {
    Created,
    Duplicate,
    Unkept(ErrorClass),
}

/// An instant that no window at `now` reaches back to.
fn before_the_window(now: Timestamp, shedder: &ShedderConfig) -> Timestamp {
    now.saturating_sub(shedder.reach()).unwrap_or(Timestamp::MIN)
}

async fn hold_back(queues: &impl Queues, held_back: Vec<HeldBack>) {
    if held_back.is_empty() {
        return;
    }
    if timeout(HOLD_BACK_TIME_MAX, queues.hold_back(held_back)).await.is_err() {
        tracing::warn!("hold messages back: out of time; the queue's own time-out decides");
    }
}

/// What holds a message back, if its queue gave a handle for that.
fn holding_back(message: &Message) -> Option<HeldBack> {
    Some(HeldBack {
        queue: message.queue.clone(),
        receipt_handle: message.receipt_handle.clone()?,
        seconds: held_back_seconds(message.receives()),
    })
}

fn out_of_time(event: &EventId) -> LedgerError {
    LedgerError {
        attempted: "admit event",
        on: event.to_string(),
        class: ErrorClass::TimedOut,
        source: None,
    }
}
