//! A soak of queues: messages of every shape through the deployed mapping, and a look from outside at what came of each.
//!
//! Messages go into the source queue and come out of it through the real event source mapping: plain JSON, big integers and
//! long decimals, control characters, text that is no JSON, text that looks like base64, binary attributes, notifications of
//! a topic, bodies too large for a row. What no queue sends on demand is handed to the function as Lambda would hand it
//! over, at the same time: messages that are delivered again, and records without a body.
//!
//! Counted as lost: a message whose event is not in the ledger, not settled, or whose data is missing in the inbox or is not
//! what was sent. Doubled: an event that is more than once in its inbox, and one that nobody sent. Misplaced: a message in
//! another inbox than its queue's, or left in the source queue or in its dead letters.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::DisplayErrorContext;
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName, SendMessageBatchRequestEntry};
use forebay::trial::{Ended, Error, Trial, run};
use forebay_aws::dynamodb::DynamoLedger;
use forebay_core::ledger::{Reason, Status};
use forebay_core::ports::Ledger as _;
use forebay_core::queue::event_id;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use crate::chance::Chance;
use crate::drain::drain;
use crate::table;

/// What differs from the local stack's parameters.
const PARAMETERS: &[(&str, &str)] = &[("SnsUnwrap", "true")];
/// The inbox of the source queue's messages.
const INBOX: &str = "builder";
/// Longest time of all.
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// How often it is looked whether the queue is empty.
const LOOK: Duration = Duration::from_millis(500);
/// Most messages of one call.
const BATCH_MAX: usize = 10;
/// Most problems that are told.
const TOLD_MAX: usize = 20;
const REMEDY: &str = "look into target/forebay/queue-soak-emulator.log";

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    messages: usize,
    lost: BTreeSet<String>,
    doubled: BTreeSet<String>,
    misplaced: usize,
    shapes: BTreeMap<&'static str, usize>,
    again: usize,
    lasted: Duration,
    problems: Vec<String>,
}

impl Outcome {
    /// Whether every message is where it belongs, once.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.doubled.is_empty() && self.misplaced == 0
    }

    /// What went wrong, for as many as are worth telling.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The last line.
    #[must_use]
    pub fn verdict(&self) -> String {
        let (lost, doubled) = (self.lost.len(), self.doubled.len());
        format!(
            "messages {} lost {lost} doubled {doubled} misplaced {}",
            self.messages, self.misplaced
        )
    }

    fn tell(&mut self, problem: String) {
        if self.problems.len() < TOLD_MAX {
            self.problems.push(problem);
        }
    }

    fn lose(&mut self, id: &str, problem: String) {
        self.lost.insert(id.to_owned());
        self.tell(problem);
    }

    fn double(&mut self, id: &str, problem: String) {
        self.doubled.insert(id.to_owned());
        self.tell(problem);
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shape, count) in &self.shapes {
            writeln!(f, "{shape:<22} {count}")?;
        }
        writeln!(f, "{:<22} {}", "delivered again", self.again)?;
        write!(f, "{:<22} {} s", "lasted", self.lasted.as_secs())
    }
}

/// A message that is to be sent.
struct Planned {
    shape: &'static str,
    body: String,
    /// A binary attribute besides.
    attribute: bool,
    /// What the inbox gets as data; nothing where it gets nothing.
    data: Option<Value>,
    /// It is delivered a second time.
    again: bool,
}

/// A message that was sent.
struct SentOut {
    id: String,
    planned: Planned,
}

fn plan(messages: usize, chance: &mut Chance) -> Vec<Planned> {
    let mut planned: Vec<Planned> = Vec::with_capacity(messages);
    for number in 0..messages {
        let mut one = match planned.last() {
            // The same content under another id.
            Some(last) if chance.percent(10) && last.shape != MALFORMED => Planned {
                shape: "repeated content",
                body: last.body.clone(),
                attribute: last.attribute,
                data: last.data.clone(),
                again: false,
            },
            _ => one_of(number, chance),
        };
        one.again = one.shape != MALFORMED && chance.percent(10);
        planned.push(one);
    }
    planned
}

const MALFORMED: &str = "no body";

fn one_of(number: usize, chance: &mut Chance) -> Planned {
    let plain = |shape, body: String, data: Value| Planned {
        shape,
        body,
        attribute: false,
        data: Some(data),
        again: false,
    };
    if chance.percent(5) {
        return Planned {
            data: None,
            ..plain(MALFORMED, String::new(), Value::Null)
        };
    }
    match chance.below(7) {
        0 => {
            // Compared as text of the message: a number that was rounded would not be found there.
            let body = format!("{{\"id\":9007199254740993,\"n\":{number},\"x\":0.1000000000000000055511151231257827}}");
            let data = Value::String(body.clone());
            plain("long numbers", body, data)
        }
        1 => {
            let said = json!({"n": number, "text": "bell \u{7} nul \u{0} \u{ffff} \u{fffe} tab \t end"});
            plain("control characters", escaped(&said), said)
        }
        2 => {
            let body = format!("{{\"n\": {number}, broken");
            plain("no JSON", body.clone(), body.into())
        }
        3 => Planned {
            attribute: true,
            ..plain(
                "binary attribute",
                format!("eyJhIjoxfQ{number}=="),
                format!("eyJhIjoxfQ{number}==").into(),
            )
        },
        4 => {
            let envelope = json!({
                "Type": "Notification", "MessageId": format!("s{number}"), "Message": format!("{{\"n\": {number}}}"),
                "TopicArn": "arn:aws:sns:us-east-1:000000000000:topic", "Timestamp": "2026-01-02T03:04:05.606Z",
            });
            plain("from a topic", envelope.to_string(), json!({"n": number}))
        }
        5 if chance.percent(20) => {
            let noise: String = (0_usize..60_000)
                .map(|_| char::from(b'a' + u8::try_from(chance.below(26)).unwrap_or(0)))
                .collect();
            plain("larger than a row", noise.clone(), noise.into())
        }
        _ => plain("plain JSON", format!("{{\"n\":{number}}}"), json!({"n": number})),
    }
}

/// JSON whose escapes SQS takes.
fn escaped(json: &Value) -> String {
    forebay_core::cloudevent::escape_for_sqs(json.to_string())
}

/// A soak under way.
struct Soak {
    trial: Trial,
    ledger: DynamoLedger,
    sqs: Client,
    queue: String,
}

/// Deploys a stack, sends so many messages through its queue, and takes it down.
///
/// # Errors
/// What kept it from being played; that something was lost is an outcome.
pub async fn soak(messages: usize, seed: u64) -> Result<Ended<Outcome>, Error> {
    run("queue-soak", PARAMETERS, async |trial| {
        let soak = Arc::new(Soak::new(trial)?);
        let played = timeout(LONGEST, Box::pin(soak.play(messages, seed))).await;
        played.map_err(|late| Error::because(format!("end within {} s", LONGEST.as_secs()), REMEDY, late))?
    })
    .await
}

fn failed<E: std::error::Error>(attempted: &str, error: &E) -> Error {
    Error::new(format!("{attempted}: {}", DisplayErrorContext(error)), REMEDY)
}

impl Soak {
    fn new(trial: Trial) -> Result<Self, Error> {
        let client = aws_sdk_dynamodb::Client::from_conf(table::config(trial.endpoint()).build());
        let sqs = table::sqs_config(trial.endpoint());
        Ok(Self {
            ledger: DynamoLedger::new(client, trial.table()?),
            sqs: Client::from_conf(sqs.build()),
            queue: trial.source_queue_arn(),
            trial,
        })
    }

    async fn play(self: &Arc<Self>, messages: usize, seed: u64) -> Result<Outcome, Error> {
        let began = Instant::now();
        let planned = plan(messages, &mut Chance::new(seed));
        let mut outcome = Outcome {
            messages,
            again: planned.iter().filter(|one| one.again).count(),
            ..Outcome::default()
        };
        for one in &planned {
            *outcome.shapes.entry(one.shape).or_default() += 1;
        }
        self.trial
            .note(format_args!("send {messages} messages through the mapping …"));
        let mut sent: Vec<SentOut> = Vec::new();
        let mut handed_over = JoinSet::new();
        let mut planned = planned.into_iter().enumerate().peekable();
        while planned.peek().is_some() {
            let batch: Vec<(usize, Planned)> = planned.by_ref().take(BATCH_MAX).collect();
            let (unsendable, batch): (Vec<_>, Vec<_>) = batch.into_iter().partition(|(_, one)| one.data.is_none());
            let mut batch = self.send(batch.into_iter().map(|(_, one)| one).collect()).await?;
            batch.extend(unsendable.into_iter().map(|(number, planned)| SentOut {
                id: format!("00000000-0000-4000-8000-{number:012}"),
                planned,
            }));
            // At the same time as the mapping has them.
            let records: Vec<Value> = batch
                .iter()
                .filter(|one| one.planned.again || one.planned.data.is_none())
                .map(|one| self.record(one))
                .collect();
            if !records.is_empty() {
                let soak = Arc::clone(self);
                handed_over.spawn(async move { soak.hand_over(records).await });
            }
            sent.extend(batch);
        }
        while let Some(ended) = handed_over.join_next().await {
            ended.map_err(|error| Error::because("hand messages over", "report this as a bug", error))??;
        }
        self.trial.note("wait for the queue to be empty …");
        self.wait_for_the_queue(&mut outcome).await?;
        self.trial.note("look into the ledger and the inboxes …");
        self.look_into_the_ledger(&sent, &mut outcome).await?;
        self.look_into_the_inboxes(&sent, &mut outcome).await?;
        outcome.lasted = began.elapsed();
        Ok(outcome)
    }

    async fn send(&self, planned: Vec<Planned>) -> Result<Vec<SentOut>, Error> {
        if planned.is_empty() {
            return Ok(Vec::new());
        }
        let mut entries = Vec::new();
        for (place, one) in planned.iter().enumerate() {
            let mut entry = SendMessageBatchRequestEntry::builder()
                .id(place.to_string())
                .message_body(&one.body);
            if one.attribute {
                let binary = MessageAttributeValue::builder()
                    .data_type("Binary.png")
                    .binary_value(Blob::new([0, 255, 7]))
                    .build()
                    .map_err(|error| failed("build an attribute", &error))?;
                entry = entry.message_attributes("My-Attr", binary);
            }
            entries.push(entry.build().map_err(|error| failed("build a message", &error))?);
        }
        let request = self.sqs.send_message_batch().queue_url(self.trial.source_queue());
        let answer = request.set_entries(Some(entries)).send().await;
        let answer = answer.map_err(|error| failed("send messages", &error))?;
        let ids: BTreeMap<&str, &str> = answer
            .successful()
            .iter()
            .map(|one| (one.id(), one.message_id()))
            .collect();
        let sent = planned.into_iter().enumerate().map(|(place, planned)| {
            let id = ids.get(place.to_string().as_str());
            let id = id.ok_or_else(|| Error::new(format!("send a message: {:?}", answer.failed()), REMEDY))?;
            Ok(SentOut {
                id: (*id).to_owned(),
                planned,
            })
        });
        sent.collect()
    }

    /// A record as Lambda would hand it over; its handle is of no use to anybody.
    fn record(&self, sent: &SentOut) -> Value {
        let mut record = json!({
            "messageId": sent.id, "receiptHandle": "again", "eventSource": "aws:sqs", "eventSourceARN": self.queue,
            "attributes": {"ApproximateReceiveCount": "2"}, "messageAttributes": {},
        });
        if sent.planned.data.is_some() {
            record["body"] = sent.planned.body.as_str().into();
        }
        record
    }

    async fn hand_over(&self, records: Vec<Value>) -> Result<(), Error> {
        let answer = self.trial.take(&json!({ "Records": records })).await?;
        if answer == json!({"batchItemFailures": []}) {
            return Ok(());
        }
        Err(Error::new(
            format!("hand {} messages over: {answer}", records.len()),
            REMEDY,
        ))
    }

    /// Waits until nothing is in the source queue, nor with anybody.
    async fn wait_for_the_queue(&self, outcome: &mut Outcome) -> Result<(), Error> {
        let mut looks = interval(LOOK);
        let end = Instant::now() + LONGEST / 3;
        let dead_letters = self.trial.source_dead_letters();
        loop {
            looks.tick().await;
            let left = self.count(self.trial.source_queue()).await?;
            if left > 0 && Instant::now() < end {
                continue;
            }
            let dead = self.count(&dead_letters).await?;
            outcome.misplaced += left + dead;
            if left + dead > 0 {
                outcome.tell(format!(
                    "{left} messages are left in the queue, {dead} among its dead letters"
                ));
            }
            return Ok(());
        }
    }

    async fn count(&self, url: &str) -> Result<usize, Error> {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let request = self.sqs.get_queue_attributes().queue_url(url);
        let answer = request.set_attribute_names(Some(names.to_vec())).send().await;
        let answer = answer.map_err(|error| failed("count messages", &error))?;
        let counts = names.iter().map(|name| {
            let count = answer.attributes().and_then(|attributes| attributes.get(name));
            count.and_then(|digits| digits.parse::<usize>().ok()).unwrap_or(0)
        });
        Ok(counts.sum())
    }

    async fn look_into_the_ledger(&self, sent: &[SentOut], outcome: &mut Outcome) -> Result<(), Error> {
        for one in sent {
            let id = event_id(&self.queue, &one.id);
            let row = self.ledger.event(&id).await;
            let row = row.map_err(|error| Error::because("look into the ledger", REMEDY, error))?;
            let expected = match one.planned.data {
                Some(_) => (Status::Processed, Some(Reason::Delivered)),
                None => (Status::FailedPermanent, Some(Reason::Malformed)),
            };
            match row {
                None => outcome.lose(
                    &one.id,
                    format!("{}: event {id} is not in the ledger", one.planned.shape),
                ),
                Some(row) if (row.state.status, row.state.reason) != expected => {
                    let state = (row.state.status, row.state.reason);
                    outcome.lose(&one.id, format!("{}: event {id} is {state:?}", one.planned.shape));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Takes everything out of the inboxes and compares it with what was sent.
    async fn look_into_the_inboxes(&self, sent: &[SentOut], outcome: &mut Outcome) -> Result<(), Error> {
        let planned: BTreeMap<&str, &SentOut> = sent.iter().map(|one| (one.id.as_str(), one)).collect();
        let mut arrived: BTreeSet<String> = BTreeSet::new();
        for (inbox, url) in self.trial.inboxes()? {
            for body in drain(&self.sqs, &url, REMEDY).await? {
                let message: Value = serde_json::from_str(&body).unwrap_or_default();
                let id = message["id"].as_str().unwrap_or_default().to_owned();
                if inbox != INBOX {
                    outcome.misplaced += 1;
                    outcome.tell(format!("message {id} is in {inbox}"));
                    continue;
                }
                let Some(one) = planned.get(id.as_str()).filter(|one| one.planned.data.is_some()) else {
                    outcome.double(&id, format!("message {id} in {inbox}, which nobody sent"));
                    continue;
                };
                if !arrived.insert(id.clone()) {
                    outcome.double(&id, format!("message {id} twice in {inbox}"));
                }
                if !says(&body, &message, &one.planned) {
                    outcome.lose(&id, format!("{}: message {id} says something else", one.planned.shape));
                }
            }
        }
        for one in sent
            .iter()
            .filter(|one| one.planned.data.is_some() && !arrived.contains(&one.id))
        {
            outcome.lose(
                &one.id,
                format!("{}: message {} is not in {INBOX}", one.planned.shape, one.id),
            );
        }
        Ok(())
    }
}

/// Whether the message says what was sent, and how.
fn says(body: &str, message: &Value, planned: &Planned) -> bool {
    let same = match &planned.data {
        // Digit for digit.
        Some(Value::String(text)) if planned.body.starts_with("{\"id\":9007199254740993") => body.contains(text),
        Some(data) => message["data"] == *data,
        None => false,
    };
    let attributes = message["messageattributes"].as_str().unwrap_or_default();
    same && (!planned.attribute || attributes.contains("\"AP8H\"") || message["receivecount"] == 2)
}
