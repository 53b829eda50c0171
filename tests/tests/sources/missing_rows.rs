//! The rows of missing deliveries as DynamoDB has them, those of a newer version, and those that cannot be read.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::batch_get_item::BatchGetItemOutput;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::FinalizerInterceptorContextMut;
use aws_smithy_runtime_api::client::interceptors::{Intercept, dyn_dispatch_hint};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;
use forebay_aws::dynamodb::DynamoLedger;
use forebay_core::source::github::{Becomes, MissingStore};
use forebay_tests::engine::{Engine, number, text};
use forebay_tests::samples::*;
use forebay_tests::table::{TABLE, Table};

use super::missing::{log, missing};
use super::on_dynamodb;
use super::rows::{change, engine_of, n, row, s};

#[tokio::test]
async fn missing_deliveries_that_cannot_be_read_hide_none_behind_them() {
    // Invariants 5 and 10
    let store = on_dynamodb().await;
    let (engine, ledger) = (engine_of(&store), engine_of(&store).ledger());
    let rows: Vec<_> = (0..8).map(|second| missing(&format!("a{second}"), second)).collect();
    ledger.note_missing(&log("app"), &rows).await.unwrap();
    for (second, (name, value)) in (0..5).zip([
        ("attempt", s("first")),
        ("v", n(2)),
        ("delivered_at", s("now")),
        ("event_name", n(1)),
        ("v", n(2)),
    ]) {
        change(engine, &format!("missing#42#a{second}"), "row", name, value).await;
    }
    for limit in [1, 2, 3, 10] {
        let due = ledger.due_missing(&log("app"), at(100), limit).await.unwrap();
        assert_eq!(
            due,
            rows[5..].iter().take(limit).cloned().collect::<Vec<_>>(),
            "{limit}"
        );
    }
}

#[tokio::test]
async fn a_missing_delivery_of_a_newer_format_is_left_alone() {
    let store = on_dynamodb().await;
    let (engine, ledger) = (engine_of(&store), engine_of(&store).ledger());
    let known = missing("a1", 10);
    ledger
        .note_missing(&log("app"), std::slice::from_ref(&known))
        .await
        .unwrap();
    let newer = change(engine, "missing#42#a1", "row", "v", n(2)).await;
    for becomes in [
        Becomes::Asked(at(200)),
        Becomes::PutOff {
            due_at: at(200),
            asked: 0,
        },
        Becomes::Here,
        Becomes::Lost("expired"),
    ] {
        ledger
            .settle_missing(&log("app"), &known, becomes, at(100))
            .await
            .unwrap();
    }
    assert_eq!(ledger.note_missing(&log("app"), &[known]).await.unwrap(), 0);
    assert_eq!(engine.rows().await, [newer]);
}

#[tokio::test]
async fn a_settled_missing_delivery_keeps_what_became_of_it_and_expires() {
    let store = on_dynamodb().await;
    let (engine, ledger) = (engine_of(&store), engine_of(&store).ledger());
    let known = missing("a1", 10);
    ledger
        .note_missing(&log("app"), std::slice::from_ref(&known))
        .await
        .unwrap();
    let open = row(engine, "missing#42#a1", "row").await;
    assert!(!open.contains_key("expires_at"), "what is open is not forgotten");
    ledger
        .settle_missing(&log("app"), &known, Becomes::Here, at(100))
        .await
        .unwrap();
    let settled = row(engine, "missing#42#a1", "row").await;
    assert_eq!(text(&settled, "became"), Some("here"));
    assert!(!settled.contains_key("due_shard") && !settled.contains_key("due_at"));
    let days = at(100) + secs(10 * 86_400);
    assert_eq!(number(&settled, "expires_at"), Some(days.as_second()));
    // A frozen poller has the last word of nothing.
    for becomes in [
        Becomes::Asked(at(200)),
        Becomes::PutOff {
            due_at: at(200),
            asked: 0,
        },
        Becomes::Lost("expired"),
    ] {
        ledger
            .settle_missing(&log("app"), &known, becomes, at(300))
            .await
            .unwrap();
        assert_eq!(row(engine, "missing#42#a1", "row").await, settled, "{becomes:?}");
    }
}

#[tokio::test]
async fn a_delivery_or_an_event_that_cannot_be_read_is_kept_and_is_attributed_by_nobody() {
    // Invariant 10: one of them must not stop the recovery of all others, turn after turn.
    for (kind, name, value) in [
        ("delivery#github#42#a1", "v", n(2)),
        ("delivery#github#42#a1", "received_at", s("now")),
        ("event#e", "v", n(2)),
        ("event#e", "status", n(1)),
    ] {
        let store = on_dynamodb().await;
        let (engine, ledger) = (engine_of(&store), engine_of(&store).ledger());
        let delivery = accepted("42/a1", "e");
        admit(&*ledger, &delivery, 1).await.unwrap();
        change(engine, kind, "row", name, value).await;
        let before = engine.rows().await;
        let kept = ledger.kept(std::slice::from_ref(&delivery.key)).await.unwrap();
        assert_eq!(kept.len(), 1, "{kind} {name}");
        assert!(!ledger.attribute(&delivery.key).await.unwrap(), "{kind} {name}");
        assert_eq!(
            engine.row(kind).await,
            before.into_iter().find(|row| text(row, "pk") == Some(kind))
        );
    }
}

/// DynamoDB answers a call for many rows in any order: here, in the opposite of the one that they were asked for in.
#[derive(Debug)]
struct Reversed;

#[dyn_dispatch_hint]
impl Intercept for Reversed {
    fn name(&self) -> &'static str {
        "Reversed"
    }

    fn modify_before_completion(
        &self,
        context: &mut FinalizerInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let output = context.output_or_error_mut().and_then(|output| output.as_mut().ok());
        if let Some(output) = output.and_then(|output| output.downcast_mut::<BatchGetItemOutput>()) {
            output
                .responses
                .iter_mut()
                .flat_map(|rows| rows.values_mut())
                .for_each(|rows| rows.reverse());
        }
        Ok(())
    }
}

#[tokio::test]
async fn what_is_lost_is_listed_newest_first_in_whatever_order_its_rows_come() {
    let table = Table::start().await;
    let config = table.config().interceptor(Reversed).build();
    let ledger = DynamoLedger::new(Client::from_conf(config), TABLE);
    let rows: Vec<_> = (0..5).map(|second| missing(&format!("a{second}"), second)).collect();
    ledger.note_missing(&log("app"), &rows).await.unwrap();
    for (row, second) in rows.iter().zip(10..) {
        let lost = Becomes::Lost("gone");
        ledger.settle_missing(&log("app"), row, lost, at(second)).await.unwrap();
    }
    let lost = ledger.lost(at(0), 10).await.unwrap();
    let since: Vec<_> = lost.iter().map(|lost| lost.since).collect();
    assert_eq!(since, [14, 13, 12, 11, 10].map(at));
}
