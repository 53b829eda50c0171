//! Counts ledger calls and write units of each kind of delivery, and computes what a million of them cost.

mod model;

use std::fmt;
use std::path::{Path, PathBuf};

use forebay_aws::config::SqsConfig;
use forebay_aws::dynamodb::{DynamoLedger, DynamoTargets};
use forebay_aws::metrics::Metrics;
use forebay_aws::sqs_event::{BatchAnswer, SqsEvent};
use forebay_core::delivery::{DeliveryKey, EventName, Guid, HookId};
use forebay_core::github::{Envelope, Meaning, read};
use forebay_core::ledger::Status;
use forebay_core::ports::Ledger;
use forebay_core::shed::Shedding;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use sqs::Intake;

use crate::counting::{Counter, Counts};
use crate::fakes::{ManualTime, RecordingInboxes};
use crate::rounds::Rounds;
use crate::sqs::{ORDERS, RecordingQueues, queue_environment, record};
use crate::strangers::unfamiliar;
use crate::table::{TABLE, Table};
use crate::webhook::{Request, Stand, environment, noon};
use model::{COST_BAR, Model};

/// What every kind of delivery and message takes, and what that costs.
pub struct Counted {
    rows: Vec<Row>,
    model: Model,
}

impl Counted {
    /// Counts `bodies` and messages and polls of its own making, on tables of their own.
    pub async fn of(bodies: &[Body]) -> Self {
        let mut rows = vec![
            Row::new("accepted, delivered", Some(2), Some(12.0)),
            Row::new("accepted, parked", Some(PARKED_CALLS), Some(PARKED_UNITS)),
            Row::new("accepted, wanted by nobody", Some(2), None),
            Row::new("ignored", Some(1), Some(4.0)),
            Row::new("malformed", Some(1), Some(4.0)),
            Row::new("duplicate of an accepted one", Some(1), None),
            Row::new("queue message of 1 KB", Some(2), Some(8.0)),
            Row::new("duplicate of a queue message", Some(1), None),
            Row::new("feed poll, nothing changed", Some(4), Some(UNCHANGED_UNITS)),
            Row::new("feed poll, one new event", Some(7), None),
        ];
        count(bodies, &mut rows).await;
        count_messages(&mut rows).await;
        count_polls(&mut rows).await;
        let model = Model::of(&rows[0]);
        Self { rows, model }
    }

    /// What missed its bar.
    #[must_use]
    pub fn missed(&self) -> Vec<&'static str> {
        let rows = self.rows.iter().filter(|row| row.missed()).map(|row| row.name);
        let cost = (self.model.total() > COST_BAR).then_some("cost");
        rows.chain(cost).collect()
    }

    /// All of it, and what it is held to.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "delivery": row.name,
                    "count": row.deliveries,
                    "calls_in_a_row": row.calls_in_a_row_max,
                    "calls_bar": row.calls_bar,
                    "shedder_calls": row.mean_count(row.shedder_calls),
                    "write_units": row.units(),
                    "write_units_bar": row.units_bar,
                    "read_units": row.mean(row.read_units),
                    "missed": row.missed(),
                })
            })
            .collect();
        let parts = self.model.parts.iter();
        let parts: serde_json::Map<_, _> = parts
            .map(|(part, dollars)| ((*part).to_owned(), json!(dollars)))
            .collect();
        json!({
            "rows": rows,
            "dollars_per_million": self.model.total(),
            "parts": parts,
            "dollars_bar": COST_BAR,
        })
    }

    /// The rows of the table of deliveries and messages.
    fn write_rows(&self, to: &mut impl fmt::Write) -> fmt::Result {
        writeln!(
            to,
            "| delivery or message | count | calls in a row | bar | shedder's calls | write units | bar | read units |"
        )?;
        writeln!(to, "|---|---|---|---|---|---|---|---|")?;
        for row in &self.rows {
            let bar = |bar: Option<String>| bar.map_or_else(|| "–".to_owned(), |bar| format!("≤ {bar}"));
            writeln!(
                to,
                "| {} | {} | {} | {} | {:.1} | {:.1} | {} | {:.1} |",
                row.name,
                row.deliveries,
                row.calls_in_a_row_max,
                bar(row.calls_bar.map(|bar| bar.to_string())),
                row.mean_count(row.shedder_calls),
                row.units(),
                bar(row.units_bar.map(|bar| bar.to_string())),
                row.mean(row.read_units),
            )?;
        }
        Ok(())
    }

    /// The rows of the table of dollars.
    fn write_model(&self, to: &mut impl fmt::Write) -> fmt::Result {
        writeln!(to, "| a million accepted and delivered events | dollars |")?;
        writeln!(to, "|---|---|")?;
        for (part, dollars) in &self.model.parts {
            writeln!(to, "| {part} | {dollars:.2} |")?;
        }
        writeln!(to, "| **sum** (bar: ≤ {COST_BAR:.0}) | **{:.2}** |", self.model.total())
    }
}

impl fmt::Display for Counted {
    /// The two tables that the README shows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_rows(f)?;
        writeln!(f)?;
        self.write_model(f)
    }
}

impl fmt::Debug for Counted {
    /// Both tables: what is counted is what there is to see.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A body and the name of its event.
#[derive(Debug)]
pub struct Body {
    event: String,
    bytes: Vec<u8>,
}

/// Calls in a row of an event that is parked: its admission, the write by which it waits, and one more look for its owner, behind
/// that write. Without the look a session that opens between the first look and the write would find nothing that waits.
const PARKED_CALLS: usize = 3;
/// Write units of an event that is parked, which none of the recorded bodies exceeds: what a delivered one takes, and two for its
/// entries in the indexes of what waits and of what is due.
const PARKED_UNITS: f64 = 13.0;

/// Counts of all deliveries of one outcome.
#[derive(Default)]
struct Row {
    name: &'static str,
    deliveries: usize,
    calls_in_a_row_max: usize,
    write_units: f64,
    read_units: f64,
    refused_units: f64,
    /// Calls of the shedder. They run beside those of the ledger; their units are among the others.
    shedder_calls: usize,
    calls_bar: Option<usize>,
    units_bar: Option<f64>,
}

impl Row {
    fn new(name: &'static str, calls_bar: Option<usize>, units_bar: Option<f64>) -> Self {
        Self {
            name,
            calls_bar,
            units_bar,
            ..Self::default()
        }
    }

    fn add(&mut self, looked: &Looked) {
        self.deliveries += 1;
        self.calls_in_a_row_max = self.calls_in_a_row_max.max(looked.ledger.in_a_row);
        self.shedder_calls += looked.shedder.calls;
        for counts in [&looked.ledger, &looked.shedder] {
            self.write_units += counts.write_units;
            self.read_units += counts.read_units;
            self.refused_units += counts.refused_units;
        }
    }

    fn mean(&self, sum: f64) -> f64 {
        sum / f64::from(u32::try_from(self.deliveries.max(1)).unwrap_or(u32::MAX))
    }

    fn mean_count(&self, count: usize) -> f64 {
        self.mean(f64::from(u32::try_from(count).unwrap_or(u32::MAX)))
    }

    fn units(&self) -> f64 {
        self.mean(self.write_units + self.refused_units)
    }

    fn missed(&self) -> bool {
        self.deliveries == 0
            || self.calls_bar.is_some_and(|bar| self.calls_in_a_row_max > bar)
            || self.units_bar.is_some_and(|bar| self.units() > bar)
    }
}

/// Counts the ledger's calls and the shedder's apart.
#[derive(Default)]
struct Counters {
    ledger: Counter,
    shedder: Counter,
}

/// What both counted between two looks.
struct Looked {
    ledger: Counts,
    shedder: Counts,
}

impl Counters {
    /// Leaves what was counted so far out.
    fn forget(&self) {
        drop(self.ledger.take());
        drop(self.shedder.take());
    }

    fn take(&self) -> Looked {
        Looked {
            ledger: self.ledger.take(),
            shedder: self.shedder.take(),
        }
    }
}

/// A webhook with ledger and shedder on one table.
type Owned = Stand<DynamoLedger, DynamoTargets>;

/// Seconds from one delivery to the next: what the shedder knows of a target is too old by then, so that it reads each time.
/// The dearest case; a busier stack reads less often.
const APART: SignedDuration = SignedDuration::from_secs(3);

/// Our own recordings that are signed rightly, made unfamiliar. The large one is left out: it is no mean body.
///
/// # Panics
/// Where events/ is not as the repository has it.
#[must_use]
pub fn recordings() -> Vec<Body> {
    #[derive(Deserialize)]
    struct Manifest {
        recordings: Vec<Recording>,
    }
    #[derive(Deserialize)]
    struct Recording {
        file: PathBuf,
        event: String,
        signature: Option<String>,
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../events");
    let manifest = std::fs::read(folder.join("manifest.json")).expect("events/manifest.json is part of the repository");
    let manifest: Manifest = serde_json::from_slice(&manifest).expect("events/manifest.json is a manifest");
    let plain = manifest.recordings.into_iter().filter(|recording| {
        recording.signature.is_none() && recording.file.extension().is_some_and(|extension| extension == "json")
    });
    let bodies = plain.map(|recording| {
        let bytes = std::fs::read(folder.join(&recording.file)).expect("the manifest names files that are there");
        Body {
            event: recording.event,
            bytes: unfamiliar(&bytes),
        }
    });
    bodies.filter(|body| body.bytes.len() < LARGE_BYTES).collect()
}

/// Bodies at least this large are not mean ones.
const LARGE_BYTES: usize = 100_000;

/// Bodies in `folder`, written as GitHub writes them: without white space.
#[must_use]
pub fn bodies_under(folder: &Path) -> Vec<Body> {
    let mut bodies = Vec::new();
    for events in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let event = events.file_name().to_string_lossy().into_owned();
        for file in std::fs::read_dir(events.path()).into_iter().flatten().flatten() {
            let text = std::fs::read(file.path()).unwrap_or_default();
            if let Ok(json) = serde_json::from_slice::<Value>(&text) {
                bodies.push(Body {
                    event: event.clone(),
                    bytes: json.to_string().into_bytes(),
                });
            }
        }
    }
    bodies
}

fn guid(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// A webhook whose static routes give every repository of `bodies` an owner, or none.
async fn stand(table: &Table, counters: &Counters, bodies: &[Body], routed: bool) -> Owned {
    let client =
        |counter: &Counter| aws_sdk_dynamodb::Client::from_conf(table.config().interceptor(counter.clone()).build());
    let mut environment = environment();
    if routed {
        let names: std::collections::BTreeSet<String> =
            bodies.iter().filter_map(|body| repository(&body.bytes)).collect();
        let routes: Vec<String> = names
            .iter()
            .map(|name| format!("{}=builder", name.to_lowercase()))
            .collect();
        let distinct: std::collections::BTreeSet<String> = routes.into_iter().collect();
        environment.insert("ROUTES".to_owned(), distinct.into_iter().collect::<Vec<_>>().join(","));
    }
    let ledger = DynamoLedger::new(client(&counters.ledger), TABLE);
    let targets = DynamoTargets::new(client(&counters.shedder), TABLE).patient();
    let stand = Stand::with_targets(ledger, targets, environment);
    counters.forget();
    stand
}

fn repository(body: &[u8]) -> Option<String> {
    let json: Value = serde_json::from_slice(body).ok()?;
    Some(json.get("repository")?.get("full_name")?.as_str()?.to_owned())
}

/// Posts every body where somebody owns its repository, again as a duplicate, and where nobody does.
async fn count(bodies: &[Body], rows: &mut [Row]) {
    let [delivered, parked, unwanted, ignored, malformed, duplicate, ..] = rows else {
        return;
    };
    let counter = Counters::default();
    let table = Table::start().await;
    let owned = stand(&table, &counter, bodies, true).await;
    for (number, body) in bodies.iter().enumerate() {
        let request = Request::new(&body.event, &guid(number), body.bytes.clone());
        owned.time.pass(APART);
        let sends = owned.inboxes.sends();
        let answer = owned.post(&request).await;
        let counts = counter.take();
        let row = match (answer.body().contains("\"accepted\""), owned.inboxes.sends() > sends) {
            (true, true) => &mut *delivered,
            (true, false) => &mut *unwanted,
            (false, _) => &mut *ignored,
        };
        row.add(&counts);
        if answer.body().contains("\"accepted\"") {
            owned.time.pass(APART);
            owned.post(&request).await;
            duplicate.add(&counter.take());
        }
        let half = Request::new(
            &body.event,
            &guid(1_000_000 + number),
            &body.bytes[..body.bytes.len() / 2],
        );
        owned.post(&half).await;
        malformed.add(&counter.take());
    }
    let table = Table::start().await;
    let unowned = stand(&table, &counter, bodies, false).await;
    for (number, body) in bodies.iter().enumerate() {
        let answer = unowned
            .post(&Request::new(&body.event, &guid(number), body.bytes.clone()))
            .await;
        let counts = counter.take();
        if answer.body().contains("\"accepted\"") && is_parked(&unowned, body, &guid(number)).await {
            parked.add(&counts);
        }
        counter.forget();
    }
}

/// Messages that are counted, each a batch of its own.
const MESSAGES: usize = 50;
/// Bytes of a message's body.
const MESSAGE_BYTES: usize = 1_024;
/// Characters of a receipt handle, which SQS makes of random bytes.
const HANDLE_CHARS: usize = 412;

/// Letters that compress no better than text does.
fn letters(count: usize, seed: usize) -> String {
    let mut state = seed as u64 + 1;
    let mut letter = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap_or(0))
    };
    (0..count).map(|_| letter()).collect()
}

/// Takes messages of a queue, and each a second time.
async fn count_messages(rows: &mut [Row]) {
    let [.., taken, duplicate, _, _] = rows else {
        return;
    };
    let counters = Counters::default();
    let table = Table::start().await;
    let client =
        |counter: &Counter| aws_sdk_dynamodb::Client::from_conf(table.config().interceptor(counter.clone()).build());
    let config = SqsConfig::read(queue_environment(&[])).expect("the environment of the tests is usable");
    let time = ManualTime::at(noon());
    let shedding = Shedding::new(
        RecordingInboxes::default(),
        DynamoTargets::new(client(&counters.shedder), TABLE).patient(),
        time.clone(),
        config.shedder,
        forebay_aws::shedder::targets(&config.inboxes),
    );
    let ledger = DynamoLedger::new(client(&counters.ledger), TABLE);
    let metrics = Metrics::to("Forebay", Box::new(std::io::sink()));
    let intake = Intake::new(
        &config,
        ledger,
        shedding,
        RecordingQueues::default(),
        time.clone(),
        metrics,
    );
    counters.forget();
    for number in 0..MESSAGES {
        let body = format!("{{\"text\":\"{}\"}}", letters(MESSAGE_BYTES - 11, number));
        let mut message = record(ORDERS, &guid(number), &body);
        message["receiptHandle"] = letters(HANDLE_CHARS, MESSAGES + number).into();
        let batch: SqsEvent = serde_json::from_value(json!({ "Records": [message] })).expect("a batch");
        for row in [&mut *taken, &mut *duplicate] {
            time.pass(APART);
            let answer = Box::pin(intake.take(&batch, Timestamp::MAX)).await;
            assert_eq!(answer, Ok(BatchAnswer::default()), "every message is durable");
            row.add(&counters.take());
        }
    }
}

/// Write units of a poll that finds nothing: the claim's three, in table and index, and the shedder's share. The ledger's next
/// write would be at least one more.
const UNCHANGED_UNITS: f64 = 3.5;
/// Polls of a feed that are counted, of each kind.
const POLLS: usize = 50;

/// Polls a feed in turns: with one new comment in it, and with nothing new.
async fn count_polls(rows: &mut [Row]) {
    let [.., unchanged, changed] = rows else {
        return;
    };
    let counters = Counters::default();
    let table = Table::start().await;
    let client =
        |counter: &Counter| aws_sdk_dynamodb::Client::from_conf(table.config().interceptor(counter.clone()).build());
    let ledger = DynamoLedger::new(client(&counters.ledger), TABLE);
    let targets = DynamoTargets::new(client(&counters.shedder), TABLE).patient();
    let rounds = Rounds::start(ledger, targets).await;
    let first = rounds.round().await;
    assert_eq!((first.polls, first.trouble.is_none()), (1, true), "first contact");
    counters.forget();
    for number in 0..POLLS {
        rounds.comment(&letters(200, number));
        let tally = rounds.round().await;
        assert_eq!((tally.polls, tally.emitted), (1, 1), "it is new");
        changed.add(&counters.take());
        let tally = rounds.round().await;
        assert_eq!((tally.polls, tally.counts.not_modified), (1, 1), "nothing is new");
        unchanged.add(&counters.take());
    }
    assert_eq!(rounds.inboxes.all().len(), POLLS, "every comment got to its owner");
}

/// Whether the event that `body` means waits for an owner.
async fn is_parked(stand: &Owned, body: &Body, guid: &str) -> bool {
    let (Some(hook), Some(guid), Some(event_name)) = (
        HookId::parse(Some("42")),
        Guid::parse(guid),
        EventName::parse(&body.event),
    ) else {
        return false;
    };
    let key = DeliveryKey { hook, guid };
    let envelope = Envelope {
        host: None,
        key: Some(&key),
        event_name: &event_name,
        content_type: None,
    };
    let Meaning::Event(event) = read(&envelope, &body.bytes).meaning else {
        return false;
    };
    let row = stand.ledger.event(&event.id).await.expect("the embedded table answers");
    row.is_some_and(|row| row.state.status == Status::Parked)
}
