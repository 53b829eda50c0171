//! Lines of metrics, held to the documented format
//! (<https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html>).

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_core::event::Kind;
use serde_json::Value;

use super::*;

/// Output that a test reads.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

const AT_MS: i64 = 1_767_323_045_678;

fn records() -> Vec<Record> {
    let timestamp = system_time(Timestamp::from_millisecond(AT_MS).unwrap());
    vec![
        Record::Answered(DeliveryAnswered {
            timestamp,
            outcome: "duplicate",
            deliveries: 1,
            conflicts: 1,
            sent: 1,
            parked: 0,
            pending: 0,
            silenced: Some(1),
            duration_ms: 12,
        }),
        Record::Refused(DeliveryRefused {
            timestamp,
            outcome: "refused",
            refusal: "bad_signature",
            deliveries: 1,
            duration_ms: 3,
        }),
        Record::Caught(EventCaught {
            timestamp,
            kind: "comment",
            events: 1,
            latency_ms: 0,
        }),
        Record::Reaped(Reaped {
            timestamp,
            redriven: 3,
            skipped: 1,
            permanent: 1,
            parked: 0,
            backlog: 2,
            oldest_due_seconds: 61,
            duration_ms: 250,
        }),
        Record::Shedder(Shedder {
            timestamp,
            shed: 2,
            targets_shed: 1,
            targets_reopened: 0,
            shedder_unavailable: 1,
        }),
        Record::Polled(Polled {
            timestamp,
            polls: 3,
            requests: 4,
            not_modified: 2,
            rate_limited: 0,
            failures: 0,
            misconfigured: 0,
            accepted: 1,
            duplicates: 0,
            skipped: 0,
            malformed: 0,
            gaps: 0,
            missing: 2,
            redeliveries: 1,
            recovered: 0,
            lost: 1,
            duration_ms: 900,
        }),
        Record::SeenOnlyBy(SeenOnlyBy::new(timestamp, Net::Feed, -1)),
        Record::Batch(QueueBatch {
            timestamp,
            messages: 10,
            created: 8,
            duplicates: 1,
            malformed: 1,
            unkept: 0,
            returned: 0,
            sent: 8,
            pending: 0,
            duration_ms: 30,
        }),
    ]
}

fn lines() -> Vec<Value> {
    let written = Written::default();
    let metrics = Metrics::to("Forebay/Test", Box::new(written.clone()));
    for record in records() {
        metrics.emit(record);
    }
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    assert!(text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect()
}

#[test]
fn each_record_is_one_line_in_the_embedded_format() {
    let lines = lines();
    assert_eq!(lines.len(), 8);
    for line in &lines {
        assert_eq!(line["_aws"]["Timestamp"].as_i64(), Some(AT_MS), "milliseconds: {line}");
        for directive in line["_aws"]["CloudWatchMetrics"].as_array().unwrap() {
            assert_eq!(directive["Namespace"], "Forebay/Test");
            let metrics = directive["Metrics"].as_array().unwrap();
            assert!((1..=100).contains(&metrics.len()));
            for metric in metrics {
                let name = metric["Name"].as_str().unwrap();
                let value = &line[name];
                assert!(value.is_number() || value.is_array(), "{name}: {line}");
            }
            for set in directive["Dimensions"].as_array().unwrap() {
                let dimensions = names(set);
                assert!(dimensions.len() <= 30);
                for name in dimensions {
                    let value = line[name].as_str().unwrap_or_default();
                    assert!((1..=1_024).contains(&value.len()), "{name}: {line}");
                }
            }
        }
    }
}

#[test]
fn deliveries_are_counted_by_outcome_and_refusal_events_and_latency_by_kind() {
    // S3-25, S3-09
    let lines = lines();
    let dimensions = |line: &Value| -> BTreeSet<Vec<String>> {
        let directives = line["_aws"]["CloudWatchMetrics"].as_array().unwrap().iter();
        let sets = directives.flat_map(|directive| directive["Dimensions"].as_array().unwrap().clone());
        sets.map(|set| names(&set).into_iter().map(str::to_owned).collect())
            .collect()
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(dimensions(&lines[0]), BTreeSet::from([set(&["Outcome"])]));
    assert_eq!(
        dimensions(&lines[1]),
        BTreeSet::from([set(&["Outcome"]), set(&["Outcome", "Refusal"])])
    );
    assert_eq!(dimensions(&lines[2]), BTreeSet::from([set(&["Kind"])]));
    assert_eq!(
        (&lines[0]["Outcome"], &lines[0]["Conflicts"]),
        (&"duplicate".into(), &1.into())
    );
    assert_eq!(
        (&lines[1]["Refusal"], &lines[1]["Deliveries"]),
        (&"bad_signature".into(), &1.into())
    );
    assert_eq!(
        (&lines[2]["Kind"], &lines[2]["Events"], &lines[2]["LatencyMs"]),
        (&"comment".into(), &1.into(), &0.into())
    );
}

#[test]
fn what_was_silenced_is_named_only_where_there_is_some() {
    // ROUT-01: a name without a value would be a metric of every outcome.
    assert_eq!(lines()[0]["Silenced"], 1);
    let written = Written::default();
    let mut records = records();
    let Record::Answered(none) = &mut records[0] else {
        panic!()
    };
    none.silenced = None;
    Metrics::to("Forebay/Test", Box::new(written.clone())).emit(records.swap_remove(0));
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("Pending") && !text.contains("Silenced"), "{text}");
}

#[test]
fn the_readme_says_how_many_metrics_there_can_be() {
    let mut sum = 0;
    for line in lines() {
        let values = |dimension: &str| match dimension {
            "Outcome" if line["Refusal"].is_string() => 1,
            // What is not refused; and what can be refused once the configuration is right.
            "Outcome" | "Refusal" => 4,
            // All but a queue's message, which is counted by batches.
            "Kind" => Kind::ALL.len() - 1,
            "Net" => [Net::Feed, Net::Recovery].len(),
            _ => panic!("{dimension}"),
        };
        let directive = &line["_aws"]["CloudWatchMetrics"][0];
        for set in directive["Dimensions"].as_array().unwrap() {
            let combinations: usize = names(set).into_iter().map(values).product();
            for metric in directive["Metrics"].as_array().unwrap() {
                sum += if metric["Name"] == "Silenced" { 1 } else { combinations };
            }
        }
    }
    let said = format!("each metric that occurs, at most {sum}.");
    let readme = include_str!("../../../../README.md");
    assert!(readme.contains(&said), "put into README: {said}");
}

#[test]
fn a_run_of_the_reaper_is_one_line_without_dimensions() {
    let line = &lines()[3];
    let directive = &line["_aws"]["CloudWatchMetrics"][0];
    assert_eq!(directive["Dimensions"], serde_json::json!([[]]));
    let metrics: BTreeSet<_> = directive["Metrics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|metric| metric["Name"].as_str().unwrap())
        .collect();
    let expected = [
        "Redriven",
        "Skipped",
        "Permanent",
        "Parked",
        "Backlog",
        "OldestDueSeconds",
        "DurationMs",
    ];
    assert_eq!(metrics, expected.into());
    assert_eq!((&line["Backlog"], &line["OldestDueSeconds"]), (&2.into(), &61.into()));
}

#[test]
fn a_run_of_the_poller_is_one_line_and_what_one_net_alone_has_seen_is_counted_by_net() {
    let lines = lines();
    assert_eq!(
        (&lines[5]["PollerLost"], &lines[5]["PollerMissing"]),
        (&1.into(), &2.into())
    );
    let directive = &lines[5]["_aws"]["CloudWatchMetrics"][0];
    assert_eq!(directive["Dimensions"], serde_json::json!([[]]));
    assert_eq!(
        (&lines[6]["Net"], lines[6]["SeenOnlyBy"].as_f64()),
        (&"feed".into(), Some(-1.0))
    );
    let directive = &lines[6]["_aws"]["CloudWatchMetrics"][0];
    assert_eq!(directive["Dimensions"], serde_json::json!([["Net"]]));
}

#[test]
fn a_line_that_cannot_be_written_fails_nothing() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _bytes: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
    }
    let metrics = Metrics::to("Forebay", Box::new(Full));
    for record in records() {
        metrics.emit(record);
    }
}

#[test]
fn a_time_before_the_epoch_is_the_epoch() {
    assert_eq!(system_time(Timestamp::MIN), SystemTime::UNIX_EPOCH);
}
