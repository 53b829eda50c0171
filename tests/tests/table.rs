//! The rows and requests themselves, on an embedded table: what DESIGN §4 promises of them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a helper of tests fails, and says so, as a test does"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use forebay_aws::dynamodb::DUE_INDEX;
use forebay_core::delivery::{DeliveryKey, Ignored, Outcome};
use forebay_core::event::EventId;
use forebay_core::ledger::{Claimed, Refused, Status};
use forebay_core::ports::{DUE_SHARDS, DueQuery, Ledger, Listed, Listing, Renewed};
use forebay_core::session::Session;
use forebay_tests::engine::{Embedded, Engine, Item, number, text};
use forebay_tests::fault::Faults;
use forebay_tests::samples::*;
use forebay_tests::webhook::{Request, Stand};
use jiff::{SignedDuration, Timestamp};

/// Every state that an event can be in, by name, on one table.
async fn with_every_status() -> Embedded {
    let engine = Embedded::start().await;
    let ledger = engine.ledger();
    for (id, settlement) in [
        ("processed", Some(processed(at(1)))),
        ("given-up", Some(given_up(at(1)))),
        ("failed", Some(failed(at(10)))),
        ("parked", Some(parked(pull(12), at(10)))),
        ("claimed", None),
    ] {
        let lease = admit_event(&*ledger, id, 1).await;
        if let Some(settlement) = settlement {
            ledger.settle(lease, at(1), settlement).await.unwrap();
        }
    }
    // Claimed again after it was parked, and parked again after that.
    let lease = admit_event(&*ledger, "again", 1).await;
    ledger.settle(lease, at(1), parked(pull(12), at(10))).await.unwrap();
    ledger.claim(&EventId::new("again"), claim(at(10), 2)).await.unwrap();
    admit(&*ledger, &delivery("42/f", Outcome::Ignored(Ignored::Ping)), 1)
        .await
        .unwrap();
    engine
}

fn of_kind<'a>(rows: &'a [Item], kind: &str) -> Vec<&'a Item> {
    let ours = rows
        .iter()
        .filter(|row| text(row, "pk").is_some_and(|pk| pk.starts_with(kind)));
    ours.collect()
}

#[tokio::test]
async fn a_time_to_live_is_a_number_of_seconds() {
    // DDBL-08
    let engine = with_every_status().await;
    let large: Vec<u8> = (0..9_000_u32)
        .flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    let delivery = with_body(delivery("42/e", Outcome::Ignored(Ignored::Ping)), &large);
    engine.ledger().admit(&admission(&delivery, &large, 1)).await.unwrap();
    engine
        .ledger()
        .open_session(&session("s1", None, Some(12)), at(0))
        .await
        .unwrap();
    engine
        .ledger()
        .close_session(&session("s1", None, None).id, at(0) + RETENTION)
        .await
        .unwrap();
    let rows = engine.rows().await;
    let expiring: Vec<_> = rows.iter().filter(|row| row.contains_key("expires_at")).collect();
    for row in &expiring {
        let seconds = number(row, "expires_at").unwrap();
        // A pointer stays for half a year after the last that was heard of its session.
        let heard_last = session("s1", None, Some(12)).live_until;
        let ends = [
            at(0) + RETENTION,
            at(1) + RETENTION,
            heard_last + SignedDuration::from_hours(180 * 24),
        ];
        assert!(ends.map(Timestamp::as_second).contains(&seconds), "{row:?}");
    }
    let kinds: BTreeSet<_> = expiring
        .iter()
        .filter_map(|row| text(row, "pk")?.split('#').next())
        .collect();
    assert_eq!(kinds, BTreeSet::from(["body", "delivery", "event", "owner", "session"]));
}

#[tokio::test]
async fn a_time_to_live_is_rounded_up_so_that_nothing_goes_early() {
    let engine = Embedded::start().await;
    let delivery = delivery("42/a", Outcome::Ignored(Ignored::Ping));
    let mut admission = admission(&delivery, BODY, 1);
    admission.expires_at = at(0) + SignedDuration::from_millis(1);
    engine.ledger().admit(&admission).await.unwrap();
    let row = &engine.rows().await[0];
    assert_eq!(number(row, "expires_at"), Some(at(1).as_second()));
}

#[tokio::test]
async fn a_row_is_due_until_it_is_terminal_and_then_expires() {
    // Invariant 5, S2-17
    let rows = with_every_status().await.rows().await;
    let events = of_kind(&rows, "event#");
    assert_eq!(events.len(), 6);
    for row in events {
        let terminal = ["processed", "failed_permanent"].contains(&text(row, "status").unwrap());
        assert_eq!(row.contains_key("due_at"), !terminal, "{row:?}");
        assert_eq!(row.contains_key("due_shard"), !terminal, "{row:?}");
        assert_eq!(row.contains_key("expires_at"), terminal, "{row:?}");
    }
}

#[tokio::test]
async fn a_row_is_in_an_index_only_while_it_belongs_there() {
    // DESIGN §4: sparse
    let rows = with_every_status().await.rows().await;
    for row in of_kind(&rows, "event#") {
        let parked = text(row, "status") == Some("parked");
        assert_eq!(row.contains_key("waiting_for"), parked, "{row:?}");
        assert_eq!(
            row.contains_key("lease_until"),
            text(row, "status") == Some("claimed"),
            "{row:?}"
        );
        assert!(row.contains_key("recent_shard") && row.contains_key("recent_at"));
    }
    for row in of_kind(&rows, "delivery#") {
        // A delivery that has an event is found through it.
        let alone = text(row, "outcome") != Some("accepted");
        assert_eq!(row.contains_key("recent_shard"), alone, "{row:?}");
        assert!(
            ["due_shard", "due_at", "waiting_for"]
                .iter()
                .all(|name| !row.contains_key(*name))
        );
    }
    for row in &rows {
        assert!(number(row, "v").is_some(), "every row has its format: {row:?}");
    }
}

#[tokio::test]
async fn a_pointer_and_a_closed_session_are_in_no_index() {
    let engine = Embedded::start().await;
    let ledger = engine.ledger();
    ledger.learn(&repository(), "fix", 12, at(0)).await.unwrap();
    ledger
        .open_session(&session("s1", Some("fix"), None), at(0))
        .await
        .unwrap();
    ledger
        .close_session(&session("s1", None, None).id, at(9))
        .await
        .unwrap();
    let rows = engine.rows().await;
    assert_eq!(rows.len(), 3);
    for row in rows {
        for name in ["due_shard", "waiting_for", "recent_shard", "recent_at"] {
            assert!(!row.contains_key(name), "{row:?}");
        }
    }
}

#[tokio::test]
async fn no_index_is_read_consistently_and_every_row_is() {
    // DDBL-02: DynamoDB refuses the first.
    let engine = with_every_status().await;
    let faults = Faults::on_the_way();
    let config = engine.table.config().http_client(faults.clone()).build();
    let ledger = ledger_on(aws_sdk_dynamodb::Client::from_conf(config));
    let listing = |what| Listing {
        what,
        since: at(0),
        until: at(60),
        limit: 10,
    };
    assert_eq!(ledger.events(&listing(Listed::Events)).await.unwrap().len(), 6);
    assert_eq!(ledger.deliveries(&listing(Listed::Deliveries)).await.unwrap().len(), 1);
    ledger.waiting(&pull(12), 10).await.unwrap();
    for shard in 0..DUE_SHARDS {
        let query = DueQuery {
            shard,
            until: at(60),
            after: None,
            limit: 10,
        };
        ledger.due(&query).await.unwrap();
    }
    let asked_due = faults
        .calls()
        .into_iter()
        .filter(|call| call.body["IndexName"] == DUE_INDEX);
    assert_eq!(asked_due.count(), usize::try_from(DUE_SHARDS).unwrap());
    ledger
        .open_session(&session("s1", Some("fix"), Some(12)), at(0))
        .await
        .unwrap();
    assert_eq!(ledger.sessions(10).await.unwrap().len(), 1);
    ledger.event(&EventId::new("claimed")).await.unwrap();
    let key = DeliveryKey::parse("42/f").unwrap();
    ledger.delivery(&key).await.unwrap();
    ledger.body(&key).await.unwrap();
    ledger.pointers(&[pull(12)]).await.unwrap();
    let mut seen = BTreeSet::new();
    for call in faults.calls() {
        let consistent = match call.operation.as_str() {
            "Query" => {
                assert!(call.body["IndexName"].is_string(), "{call:?}");
                assert_ne!(call.body["ConsistentRead"], true, "{call:?}");
                false
            }
            "GetItem" => call.body["ConsistentRead"] == true,
            "BatchGetItem" => call.body["RequestItems"]["ledger"]["ConsistentRead"] == true,
            _ => continue,
        };
        assert!(consistent || call.operation == "Query", "{call:?}");
        seen.insert(call.operation);
    }
    assert_eq!(seen, ["BatchGetItem", "GetItem", "Query"].map(str::to_owned).into());
}

#[tokio::test]
async fn nothing_scans_and_nothing_deletes() {
    // The role allows neither.
    let engine = Embedded::start().await;
    let faults = Faults::on_the_way();
    let config = engine.table.config().http_client(faults.clone()).build();
    let ledger = ledger_on(aws_sdk_dynamodb::Client::from_conf(config));
    let mut lease = admit_event(&ledger, "e", 1).await;
    ledger.renew(&mut lease, at(1), TERM).await.unwrap();
    let large: Vec<u8> = (0..9_000_u32)
        .flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    let delivery = with_body(delivery("42/e", Outcome::Ignored(Ignored::Ping)), &large);
    ledger.admit(&admission(&delivery, &large, 1)).await.unwrap();
    ledger.learn(&repository(), "fix", 12, at(0)).await.unwrap();
    ledger
        .open_session(&session("s1", Some("fix"), Some(12)), at(0))
        .await
        .unwrap();
    ledger
        .close_session(&session("s1", None, None).id, at(9))
        .await
        .unwrap();
    let used: BTreeSet<String> = faults.operations().into_iter().collect();
    let expected = ["BatchGetItem", "GetItem", "PutItem", "TransactWriteItems", "UpdateItem"];
    assert_eq!(used, expected.map(str::to_owned).into());
}

#[tokio::test]
async fn what_an_index_still_shows_is_refused_quietly_by_the_row() {
    // DDBL-03: an index lags; the reaper finds what is finished or taken meanwhile.
    let engine = with_every_status().await;
    let ledger = engine.ledger();
    for (id, refused) in [
        ("processed", Refused::Terminal(Status::Processed)),
        ("given-up", Refused::Terminal(Status::FailedPermanent)),
        ("again", Refused::Held { until: at(40) }),
        ("gone", Refused::Missing),
    ] {
        let before = engine.row(&format!("event#{id}")).await;
        let answer = ledger.claim(&EventId::new(id), claim(at(20), 9)).await.unwrap();
        assert_eq!(answer, Claimed::Lost(refused));
        assert_eq!(engine.row(&format!("event#{id}")).await, before);
    }
}

#[tokio::test]
async fn due_work_and_recent_rows_are_spread_over_their_shards() {
    // DDBL-05
    let engine = Embedded::start().await;
    let ledger = engine.ledger();
    for number in 0..200 {
        admit_event(&*ledger, &format!("github/comment/{number}"), 1).await;
    }
    let rows = engine.rows().await;
    for (name, shards) in [("due_shard", 8), ("recent_shard", 4)] {
        let mut counts = std::collections::BTreeMap::new();
        for row in of_kind(&rows, "event#") {
            *counts.entry(text(row, name).unwrap()).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), shards, "{counts:?}");
        let fair = 200 / shards;
        assert!(
            counts.values().all(|count| (fair / 2..=fair * 2).contains(count)),
            "{counts:?}"
        );
    }
}

#[tokio::test]
async fn an_event_stays_in_its_shards_for_life() {
    let engine = Embedded::start().await;
    let ledger = engine.ledger();
    let mut lease = admit_event(&*ledger, "e", 1).await;
    let shard = |row: &Item| text(row, "due_shard").map(str::to_owned);
    let first = shard(&engine.row("event#e").await.unwrap());
    assert_eq!(ledger.renew(&mut lease, at(1), TERM).await.unwrap(), Renewed::Kept);
    assert_eq!(shard(&engine.row("event#e").await.unwrap()), first);
    ledger.settle(lease, at(2), failed(at(3))).await.unwrap();
    assert_eq!(shard(&engine.row("event#e").await.unwrap()), first);
    ledger.claim(&EventId::new("e"), claim(at(3), 2)).await.unwrap();
    assert_eq!(shard(&engine.row("event#e").await.unwrap()), first);
}

#[tokio::test]
async fn chunks_are_named_by_what_they_hold_and_shared() {
    let engine = Embedded::start().await;
    let ledger = engine.ledger();
    let large: Vec<u8> = (0..150_000_u32)
        .flat_map(|word| word.wrapping_mul(2_654_435_761).rotate_left(word % 31).to_le_bytes())
        .collect();
    for key in ["42/a", "77/a"] {
        let delivery = with_body(delivery(key, Outcome::Ignored(Ignored::Ping)), &large);
        ledger.admit(&admission(&delivery, &large, 1)).await.unwrap();
    }
    let rows = engine.rows().await;
    let chunks = of_kind(&rows, "body#");
    assert_eq!(chunks.len(), 2, "once for both");
    for (chunk, position) in chunks.iter().zip(["#000", "#001"]) {
        let pk = text(chunk, "pk").unwrap();
        assert_eq!(pk.len(), "body#".len() + 64 + "#000".len());
        assert!(
            chunks
                .iter()
                .any(|chunk| text(chunk, "pk").unwrap().ends_with(position))
        );
        assert_eq!(text(chunk, "sk"), Some("chunk"));
    }
    for row in of_kind(&rows, "delivery#") {
        assert!(
            size_of_item(row) < 1_000 && !row.contains_key("body"),
            "{}",
            size_of_item(row)
        );
        assert_eq!(number(row, "body_chunks"), Some(2));
    }
}

#[tokio::test]
async fn hostile_and_over_long_names_fit_every_key() {
    // S2-06: 2,048 bytes for a partition key, 1,024 for a sort key, and an index key is never empty.
    let engine = Embedded::start().await;
    let ledger = engine.ledger();
    for (number, name) in ["y".repeat(9_000), "🚀#".repeat(400), "\u{0}#/".to_owned()]
        .iter()
        .enumerate()
    {
        let id = EventId::new(&format!("ghe.acme.example/github/push/{name}"));
        let lease = admit_event(&*ledger, id.as_str(), 1).await;
        ledger.settle(lease, at(1), parked(branch(name), at(9))).await.unwrap();
        let session = Session {
            branch: Some(name.clone()),
            ..session(
                &format!("{number}{}", "s".repeat(127)),
                None,
                Some(u64::MAX - number as u64),
            )
        };
        ledger.open_session(&session, at(1)).await.unwrap();
    }
    for row in engine.rows().await {
        for (name, limit) in [
            ("pk", 2_048),
            ("sk", 1_024),
            ("waiting_for", 2_048),
            ("due_shard", 2_048),
        ] {
            if let Some(value) = row.get(name) {
                let bytes = value.as_s().unwrap().len();
                assert!((1..=limit).contains(&bytes), "{name}: {bytes}");
            }
        }
    }
}

// --- sizes, by the recorded deliveries -------------------------------------------------------------------------------------

/// Bytes that DynamoDB bills for a row
/// (<https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html>).
fn size_of_item(row: &Item) -> usize {
    row.iter().map(|(name, value)| name.len() + size_of_value(value)).sum()
}

fn size_of_value(value: &aws_sdk_dynamodb::types::AttributeValue) -> usize {
    use aws_sdk_dynamodb::types::AttributeValue as A;
    // A number takes a byte for every two digits, and one more.
    let digits = |text: &str| text.len().div_ceil(2) + 1;
    match value {
        A::S(text) => text.len(),
        A::N(text) => digits(text),
        A::B(bytes) => bytes.as_ref().len(),
        A::Bool(_) | A::Null(_) => 1,
        A::Ss(texts) => texts.iter().map(String::len).sum(),
        A::Ns(texts) => texts.iter().map(|text| digits(text)).sum(),
        A::L(values) => 3 + values.iter().map(|value| 1 + size_of_value(value)).sum::<usize>(),
        A::M(values) => {
            3 + values
                .iter()
                .map(|(name, value)| 1 + name.len() + size_of_value(value))
                .sum::<usize>()
        }
        other => panic!("no row holds {other:?}"),
    }
}

/// The recorded payloads, which stand beside the workspace on the machines that have them: event name and bytes.
fn recordings() -> Vec<(String, Vec<u8>)> {
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let data = above.find_map(|folder| Some(folder.join("shared/data")).filter(|folder| folder.is_dir()));
    let Some(data) = data else {
        println!("no recordings here: the sizes of rows are not looked at");
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = vec![data.join("octokit-webhooks-examples")];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|kind| kind == "json") {
            let event = path
                .parent()
                .and_then(Path::file_name)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            found.push((event, std::fs::read(&path).unwrap()));
        }
    }
    // These carry the event's name in their own.
    let names = [
        "pull-request-review-comment",
        "pull-request-review",
        "pull-request",
        "issue-comment",
        "check-run",
    ];
    for file in std::fs::read_dir(data.join("rust-bors")).into_iter().flatten() {
        let path = file.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if let Some(name) = names.iter().find(|name| stem.starts_with(*name)) {
            found.push((name.replace('-', "_"), std::fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

/// Largest mean of a delivery's row: two write units.
const DELIVERY_BYTES_MAX: usize = 2_048;

#[tokio::test]
async fn rows_of_recorded_deliveries_stay_small() {
    // DESIGN §4: what a write costs goes by the size of its row.
    let recordings = recordings();
    if recordings.is_empty() {
        return;
    }
    let engine = Embedded::start().await;
    let stand = Stand::start(&engine.table).await;
    let mut bodies = 0;
    for (number, (event, body)) in recordings.iter().enumerate() {
        let guid = format!("6f1c2b9a-0000-4000-8000-{number:012x}");
        let answer = stand.post(&Request::new(event, &guid, body.clone())).await;
        assert!([200, 202].contains(&answer.status()), "{event}: {}", answer.body());
        bodies += body.len();
    }
    let rows = engine.rows().await;
    let mean = |kind: &str| {
        let sizes: Vec<usize> = of_kind(&rows, kind).into_iter().map(size_of_item).collect();
        (
            sizes.len(),
            sizes.iter().sum::<usize>() / sizes.len(),
            sizes.iter().max().copied().unwrap_or_default(),
        )
    };
    let (deliveries, delivery, largest_delivery) = mean("delivery#");
    let (events, event, largest_event) = mean("event#");
    println!(
        "{deliveries} deliveries of {} bytes: rows of {delivery}, at most {largest_delivery}; {events} events: rows of \
         {event}, at most {largest_event}",
        bodies / recordings.len()
    );
    assert_eq!(deliveries, recordings.len());
    assert!(events >= 20, "{events}");
    assert!(delivery <= DELIVERY_BYTES_MAX, "{delivery}");
    assert!(event <= 1_024, "{event}");
    // The largest that is kept inline, with everything beside it, is four units.
    assert!(largest_delivery <= 4_096, "{largest_delivery}");
}
