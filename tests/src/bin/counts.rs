//! Counts ledger calls and write units of each kind of delivery, and computes what a million of them cost.
//!
//! Exits with 1 where a bar is missed.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use forebay_aws::config::SqsConfig;
use forebay_aws::dynamodb::{DynamoLedger, DynamoTargets};
use forebay_aws::metrics::Metrics;
use forebay_aws::sqs_event::{BatchAnswer, SqsEvent};
use forebay_core::delivery::{DeliveryKey, EventName, Guid, HookId};
use forebay_core::github::{Envelope, Meaning, read};
use forebay_core::ledger::Status;
use forebay_core::ports::Ledger;
use forebay_core::shed::Shedding;
use forebay_tests::counting::{Counter, Counts};
use forebay_tests::fakes::{ManualTime, RecordingInboxes};
use forebay_tests::reaper::{RunReads, reads_beside};
use forebay_tests::rounds::{RoundReads, Rounds, rounds_beside};
use forebay_tests::sqs::{ORDERS, RecordingQueues, queue_environment, record};
use forebay_tests::strangers::unfamiliar;
use forebay_tests::table::{TABLE, Table};
use forebay_tests::webhook::{Request, Stand, environment, noon};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::json;
use sqs::Intake;

/// Counts what deliveries cost, by the recordings under events/ with every name and number replaced.
#[derive(Parser)]
struct Arguments {
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Count these bodies instead: a folder of JSON files, each in a folder of its event's name.
    #[arg(long)]
    bodies: Option<PathBuf>,
    /// Settled events beside which a run of the reaper must read no more than beside a hundred.
    #[arg(long, default_value_t = 100_000)]
    terminal_rows: usize,
}

/// Settled events beside which a run of the reaper reads what it reads beside many.
const FEW_TERMINAL_ROWS: usize = 100;

/// What runs of the reaper read beside few settled events and beside many: one with three due events, and an idle one.
struct ReaperReads {
    terminal_rows: usize,
    few: [RunReads; 2],
    many: [RunReads; 2],
}

impl ReaperReads {
    async fn count(terminal_rows: usize) -> Self {
        Self {
            terminal_rows,
            few: reads_beside(FEW_TERMINAL_ROWS).await,
            many: reads_beside(terminal_rows).await,
        }
    }

    fn missed(&self) -> bool {
        self.few != self.many
    }
}

/// Sources that are not due, beside which a round of the scheduler reads what it reads beside many.
const FEW_SOURCES: usize = 10;
const MANY_SOURCES: usize = 2_000;

/// What rounds of the scheduler take beside few sources that are not due and beside many: one with three due sources, and an
/// idle one.
struct SchedulerReads {
    few: [RoundReads; 2],
    many: [RoundReads; 2],
}

impl SchedulerReads {
    async fn count() -> Self {
        Self {
            few: rounds_beside(FEW_SOURCES).await,
            many: rounds_beside(MANY_SOURCES).await,
        }
    }

    fn missed(&self) -> bool {
        self.few != self.many || self.few.map(|round| round.held) != [3, 0]
    }
}

/// A body and the name of its event.
struct Body {
    event: String,
    bytes: Vec<u8>,
}

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

    fn add(&mut self, counted: &Counted) {
        self.deliveries += 1;
        self.calls_in_a_row_max = self.calls_in_a_row_max.max(counted.ledger.in_a_row);
        self.shedder_calls += counted.shedder.calls;
        for counts in [&counted.ledger, &counted.shedder] {
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
struct Counted {
    ledger: Counts,
    shedder: Counts,
}

impl Counters {
    /// Leaves what was counted so far out.
    fn forget(&self) {
        drop(self.ledger.take());
        drop(self.shedder.take());
    }

    fn take(&self) -> Counted {
        Counted {
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

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let bodies = match &arguments.bodies {
        Some(folder) => bodies_under(folder),
        None => recordings(),
    };
    let mut rows = vec![
        Row::new("accepted, delivered", Some(2), Some(12.0)),
        Row::new("accepted, parked", None, None),
        Row::new("accepted, wanted by nobody", Some(2), None),
        Row::new("ignored", Some(1), Some(4.0)),
        Row::new("malformed", Some(1), Some(4.0)),
        Row::new("duplicate of an accepted one", Some(1), None),
        Row::new("queue message of 1 KB", Some(2), Some(8.0)),
        Row::new("duplicate of a queue message", Some(1), None),
        Row::new("feed poll, nothing changed", Some(4), Some(UNCHANGED_UNITS)),
        Row::new("feed poll, one new event", Some(7), None),
    ];
    count(&bodies, &mut rows).await;
    count_messages(&mut rows).await;
    count_polls(&mut rows).await;
    let model = Model::of(&rows[0]);
    let reaper = ReaperReads::count(arguments.terminal_rows).await;
    let scheduler = SchedulerReads::count().await;
    if arguments.json {
        print_json(&rows, &model, &reaper, &scheduler);
    } else {
        print_table(&rows, &model, bodies.len());
        print_reaper(&reaper);
        print_scheduler(&scheduler);
    }
    let missed = rows.iter().any(Row::missed) || model.total() > COST_BAR || reaper.missed() || scheduler.missed();
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Our own recordings that are signed rightly, made unfamiliar. The large one is left out: it is no mean body.
fn recordings() -> Vec<Body> {
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
fn bodies_under(folder: &Path) -> Vec<Body> {
    let mut bodies = Vec::new();
    for events in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let event = events.file_name().to_string_lossy().into_owned();
        for file in std::fs::read_dir(events.path()).into_iter().flatten().flatten() {
            let text = std::fs::read(file.path()).unwrap_or_default();
            if let Ok(json) = serde_json::from_slice::<serde_json::Value>(&text) {
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
    let json: serde_json::Value = serde_json::from_slice(body).ok()?;
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

/// Prices of us-east-1, on demand, without free tiers, in dollars. Sources: the AWS pricing pages of DynamoDB, Lambda, SQS
/// and CloudWatch, November 2026.
mod price {
    pub(super) const WRITE_UNIT: f64 = 0.625e-6;
    pub(super) const READ_UNIT: f64 = 0.125e-6;
    /// A gigabyte for a month, with point-in-time recovery on top.
    pub(super) const STORED: f64 = 0.25 + 0.20;
    pub(super) const LAMBDA_REQUEST: f64 = 0.20e-6;
    /// A gigabyte of memory for a second, arm64.
    pub(super) const LAMBDA_SECOND: f64 = 0.000_013_333_4;
    pub(super) const SQS_FIFO_REQUEST: f64 = 0.50e-6;
    /// A gigabyte of logs taken in.
    pub(super) const LOGGED: f64 = 0.50;
}

/// The bar on the sum: dollars for a million accepted events, fixed monthly cost apart.
const COST_BAR: f64 = 12.0;
/// Billed time of one invocation, in seconds: two ledger calls and a send in a row at about 8 ms each, and our own work. An
/// assumption; everything else is counted.
const BILLED_SECONDS: f64 = 0.030;
/// Memory of the function, in gigabytes: the template's default.
const MEMORY: f64 = 0.25;
/// SQS requests of one message: our send, and the consumer's receive and delete, each message by itself.
const SQS_REQUESTS: f64 = 3.0;
/// Months that rows are kept: the template's default retention of 35 days and the days before.
const STORED_MONTHS: f64 = 38.0 / 30.4;
/// Bytes that a delivered event leaves in the table and its indexes: 100 bytes of overhead for each row and index entry
/// besides what is counted in write units.
const STORED_OVERHEAD_BYTES: f64 = 300.0;
/// Bytes of the two log lines of an accepted delivery: what the function prints, and Lambda's own fields.
const LOGGED_BYTES: f64 = 900.0;

/// What a million accepted and delivered events cost, in dollars.
struct Model {
    parts: Vec<(&'static str, f64)>,
}

impl Model {
    fn of(delivered: &Row) -> Self {
        let million = 1e6;
        // Half of a transaction's units are its second write; the first half is what is stored.
        let stored_bytes = delivered.units() / 2.0 * 1_024.0 / 2.0 + STORED_OVERHEAD_BYTES;
        let parts = vec![
            ("DynamoDB writes", delivered.units() * price::WRITE_UNIT * million),
            (
                "DynamoDB reads",
                delivered.mean(delivered.read_units) * price::READ_UNIT * million,
            ),
            (
                "DynamoDB storage and recovery",
                stored_bytes * million / 1e9 * STORED_MONTHS * price::STORED,
            ),
            (
                "Lambda",
                (price::LAMBDA_REQUEST + BILLED_SECONDS * MEMORY * price::LAMBDA_SECOND) * million,
            ),
            (
                "SQS, consumer included",
                SQS_REQUESTS * price::SQS_FIFO_REQUEST * million,
            ),
            (
                "CloudWatch Logs and metrics lines",
                LOGGED_BYTES * million / 1e9 * price::LOGGED,
            ),
        ];
        Self { parts }
    }

    fn total(&self) -> f64 {
        self.parts.iter().map(|(_, dollars)| dollars).sum()
    }
}

fn print_table(rows: &[Row], model: &Model, bodies: usize) {
    println!(
        "| delivery or message | count | calls in a row | bar | shedder's calls | write units | bar | read units |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for row in rows {
        let bar = |bar: Option<String>| bar.map_or_else(|| "–".to_owned(), |bar| format!("≤ {bar}"));
        println!(
            "| {} | {} | {} | {} | {:.1} | {:.1} | {} | {:.1} |",
            row.name,
            row.deliveries,
            row.calls_in_a_row_max,
            bar(row.calls_bar.map(|bar| bar.to_string())),
            row.mean_count(row.shedder_calls),
            row.units(),
            bar(row.units_bar.map(|bar| bar.to_string())),
            row.mean(row.read_units),
        );
    }
    println!();
    println!("| a million accepted and delivered events | dollars |");
    println!("|---|---|");
    for (part, dollars) in &model.parts {
        println!("| {part} | {dollars:.2} |");
    }
    println!("| **sum** (bar: ≤ {COST_BAR:.0}) | **{:.2}** |", model.total());
    println!();
    println!(
        "{bodies} bodies; write units with indexes, means; refused writes are computed, since DynamoDB reports none."
    );
    for row in rows.iter().filter(|row| row.missed()) {
        println!("bar missed: {}", row.name);
    }
}

fn print_reaper(reads: &ReaperReads) {
    println!();
    println!("| run of the reaper | settled events | ledger calls | read units |");
    println!("|---|---|---|---|");
    for (terminal_rows, runs) in [(FEW_TERMINAL_ROWS, &reads.few), (reads.terminal_rows, &reads.many)] {
        for run in runs {
            let (redriven, calls, read_units) = (run.redriven, run.calls, run.read_units);
            println!("| {redriven} due events | {terminal_rows} | {calls} | {read_units:.1} |");
        }
    }
    if reads.missed() {
        println!(
            "bar missed: the reaper reads more beside {} settled events",
            reads.terminal_rows
        );
    }
}

fn print_scheduler(reads: &SchedulerReads) {
    println!();
    println!("| round of the scheduler | other sources | ledger calls | read units | write units |");
    println!("|---|---|---|---|---|");
    for (others, rounds) in [(FEW_SOURCES, &reads.few), (MANY_SOURCES, &reads.many)] {
        for round in rounds {
            let RoundReads {
                held,
                calls,
                read_units,
                write_units,
            } = round;
            println!("| {held} due sources | {others} | {calls} | {read_units:.1} | {write_units:.1} |");
        }
    }
    if reads.missed() {
        println!("bar missed: the scheduler takes more beside {MANY_SOURCES} sources that are not due");
    }
}

fn print_json(rows: &[Row], model: &Model, reaper: &ReaperReads, scheduler: &SchedulerReads) {
    let rows: Vec<_> = rows
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
    let parts: serde_json::Map<_, _> = model
        .parts
        .iter()
        .map(|(part, dollars)| ((*part).to_owned(), json!(dollars)))
        .collect();
    let runs = [(FEW_TERMINAL_ROWS, &reaper.few), (reaper.terminal_rows, &reaper.many)];
    let runs = runs.map(|(terminal_rows, runs)| {
        let runs = runs.map(|run| json!({"redriven": run.redriven, "calls": run.calls, "read_units": run.read_units}));
        json!({"terminal_rows": terminal_rows, "runs": runs})
    });
    let rounds = [(FEW_SOURCES, &scheduler.few), (MANY_SOURCES, &scheduler.many)];
    let rounds = rounds.map(|(others, rounds)| {
        let rounds = rounds.map(|round| {
            json!({
                "held": round.held,
                "calls": round.calls,
                "read_units": round.read_units,
                "write_units": round.write_units,
            })
        });
        json!({"other_sources": others, "rounds": rounds})
    });
    println!(
        "{}",
        json!({
            "rows": rows,
            "dollars_per_million": model.total(),
            "parts": parts,
            "dollars_bar": COST_BAR,
            "reaper": runs,
            "scheduler": rounds,
        })
    );
}
