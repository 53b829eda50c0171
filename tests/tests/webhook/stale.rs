//! What happened before the cut-off.

use forebay_core::ledger::{Reason, Status};
use forebay_core::ports::{Ledger, TimeAndChance};
use forebay_tests::table::{TABLE, Table};
use forebay_tests::webhook::Stand;

use crate::payloads::{changed, comment, counts, delivery, pass, reached, row, rows, standing};

const DAY: i64 = 86_400;

#[tokio::test]
async fn what_happened_before_the_cut_off_is_recorded_and_sent_nowhere() {
    let table = Table::start().await;
    let changes = [("ROUTES", "acme/app=reviewer"), ("RETENTION_DAYS", "35")];
    let stand = Stand::with(table.ledger(), changed(&changes));
    // The comments are from an hour before the stand's clock; the cut-off is 33 days back.
    pass(&stand, 33 * DAY - 3_600);
    stand.post(&delivery(1, "issue_comment", &comment(8, "dev1"))).await;
    assert_eq!(
        standing(&stand, "github/comment/8").await,
        (Status::Processed, Some(Reason::Delivered)),
        "exactly on it"
    );
    pass(&stand, 1);
    let answer = stand.post(&delivery(2, "issue_comment", &comment(9, "dev1"))).await;
    assert_eq!(answer.status(), 202);
    assert_eq!(
        standing(&stand, "github/comment/9").await,
        (Status::Processed, Some(Reason::Stale))
    );
    assert_eq!(reached(&stand), ["reviewer"]);
}

#[tokio::test]
async fn an_event_whose_rows_expired_does_not_come_back_to_life() {
    // DDBL-09, DDBL-08, LEAS-08
    let table = Table::start().await;
    let changes = [("ROUTES", "acme/app=reviewer"), ("RETENTION_DAYS", "35")];
    let stand = Stand::with(table.ledger(), changed(&changes));
    let request = delivery(1, "issue_comment", &comment(8, "dev1"));
    stand.post(&request).await;
    let expires_at = row(&stand, "github/comment/8").await.state.expires_at.unwrap();
    assert_eq!(
        expires_at,
        forebay_tests::webhook::noon() + jiff::SignedDuration::from_hours(35 * 24)
    );
    pass(&stand, 40 * DAY);
    expire(&table, "delivery#github#42#", &crate::payloads::guid(1)).await;
    expire(&table, "event#", "github/comment/8").await;
    assert_eq!(rows(&table).await, counts([]));
    assert_eq!(stand.post(&request).await.status(), 202);
    assert_eq!(
        standing(&stand, "github/comment/8").await,
        (Status::Processed, Some(Reason::Stale))
    );
    assert_eq!(reached(&stand), ["reviewer"], "once, in its first life");
}

#[tokio::test]
async fn with_the_shortest_retention_a_redelivery_on_the_third_day_is_a_duplicate() {
    // DDBL-09: GitHub redelivers for three days.
    let table = Table::start().await;
    let changes = [("ROUTES", "acme/app=reviewer"), ("RETENTION_DAYS", "4")];
    let stand = Stand::with(table.ledger(), changed(&changes));
    let request = delivery(1, "issue_comment", &comment(8, "dev1"));
    assert_eq!(stand.post(&request).await.status(), 202);
    pass(&stand, 3 * DAY);
    let event = row(&stand, "github/comment/8").await.state.expires_at.unwrap();
    let kept = stand.ledger.delivery(&crate::payloads::key(1)).await.unwrap().unwrap();
    for expires_at in [event, kept.expires_at] {
        assert!(
            expires_at >= stand.time.now() + jiff::SignedDuration::from_hours(24),
            "a day to spare: {expires_at}"
        );
    }
    assert_eq!(stand.post(&request).await.status(), 200);
    assert_eq!(stand.inboxes.sends(), 1);
    let too_short = changed(&[("RETENTION_DAYS", "3")]);
    assert!(forebay_aws::config::Config::read(too_short).is_err());
}

/// Removes a row, as the table's time-to-live does some day. The attribute is epoch seconds, as a number.
async fn expire(table: &Table, prefix: &str, rest: &str) {
    let key = [("pk", format!("{prefix}{rest}")), ("sk", "row".to_owned())];
    let key = key.map(|(name, value)| (name.to_owned(), aws_sdk_dynamodb::types::AttributeValue::S(value)));
    let deleted = table
        .client()
        .delete_item()
        .table_name(TABLE)
        .set_key(Some(key.into()))
        .return_values(aws_sdk_dynamodb::types::ReturnValue::AllOld)
        .send()
        .await
        .unwrap();
    let expires_at = deleted.attributes.expect("it was there")["expires_at"]
        .as_n()
        .unwrap()
        .clone();
    assert_eq!(expires_at.len(), "1767323045".len(), "seconds: {expires_at}");
}
