//! Sessions get what is theirs, whenever they open.

use forebay_core::ledger::{Reason, Status};
use forebay_core::ports::Ledger as _;
use forebay_core::session::SessionId;
use forebay_tests::table::Table;
use forebay_tests::webhook::{Stand, noon};
use serde_json::json;

use crate::payloads::{comment, delivery, open, pull_request, reached, scripted, session, standing};

const NOBODY: [&str; 0] = [];

#[tokio::test]
async fn a_branchs_session_gets_its_pull_requests_comments_once_a_payload_named_both() {
    for is_named_first in [true, false] {
        let table = Table::start().await;
        let stand = Stand::start(&table).await;
        // Any payload with the pull request does: the action means nothing to us.
        let named = delivery(1, "pull_request", &pull_request("synchronize", &json!({})));
        if is_named_first {
            assert!(stand.post(&named).await.body().contains("ignored"));
        }
        open(&stand, &session(&stand, "builder", Some("fix"), None)).await;
        if !is_named_first {
            stand.post(&named).await;
        }
        stand.post(&delivery(2, "issue_comment", &comment(8, "dev1"))).await;
        assert_eq!(
            reached(&stand),
            ["builder"],
            "named before the opening: {is_named_first}"
        );
    }
}

#[tokio::test]
async fn a_comment_that_came_before_its_session_is_delivered_when_that_opens() {
    for (branch, pull) in [(None, Some(12)), (Some("fix"), None), (Some("fix"), Some(12))] {
        let table = Table::start().await;
        let stand = Stand::start(&table).await;
        stand
            .post(&delivery(1, "pull_request", &pull_request("opened", &json!({}))))
            .await;
        stand.post(&delivery(2, "issue_comment", &comment(8, "dev1"))).await;
        assert_eq!(reached(&stand), NOBODY);
        assert_eq!(
            standing(&stand, "github/comment/8").await,
            (Status::Parked, Some(Reason::Waiting))
        );
        open(&stand, &session(&stand, "builder", branch, pull)).await;
        assert_eq!(reached(&stand), ["builder"], "{branch:?} {pull:?}");
        assert_eq!(
            standing(&stand, "github/comment/8").await,
            (Status::Processed, Some(Reason::Delivered))
        );
    }
}

#[tokio::test]
async fn a_comment_that_came_before_anything_named_its_branch_is_delivered_when_something_does() {
    let table = Table::start().await;
    let stand = Stand::start(&table).await;
    open(&stand, &session(&stand, "builder", Some("fix"), None)).await;
    stand.post(&delivery(1, "issue_comment", &comment(8, "dev1"))).await;
    assert_eq!(reached(&stand), NOBODY);
    stand
        .post(&delivery(2, "pull_request", &pull_request("edited", &json!({}))))
        .await;
    assert_eq!(reached(&stand), ["builder"]);
}

#[tokio::test]
async fn a_redelivery_brings_what_its_first_did_not_live_to_remember() {
    // The first was kept, and its function died before the branch's pull request was remembered.
    let stand = scripted();
    stand.ledger.once(
        forebay_tests::scripted::Call::Learn,
        forebay_tests::scripted::Script::Hang,
    );
    let opened = delivery(1, "pull_request", &pull_request("opened", &json!({})));
    {
        let mut first = Box::pin(stand.post(&opened));
        for _ in 0..50 {
            let polled = std::future::poll_fn(|context| std::task::Poll::Ready(first.as_mut().poll(context))).await;
            assert!(polled.is_pending());
        }
    }
    assert_eq!(stand.post(&opened).await.status(), 200);
    open(&stand, &session(&stand, "builder", Some("fix"), None)).await;
    stand.post(&delivery(2, "issue_comment", &comment(8, "dev1"))).await;
    assert_eq!(reached(&stand), ["builder"]);
}

#[tokio::test]
async fn a_closed_or_lapsed_session_gets_nothing() {
    let table = Table::start().await;
    let stand = Stand::start(&table).await;
    open(&stand, &session(&stand, "builder", None, Some(12))).await;
    let closed = SessionId::parse("session-builder").unwrap();
    stand.ledger.close_session(&closed, noon()).await.unwrap();
    stand.post(&delivery(1, "issue_comment", &comment(8, "dev1"))).await;
    assert_eq!(reached(&stand), NOBODY);
    open(&stand, &session(&stand, "reviewer", None, Some(12))).await;
    assert_eq!(reached(&stand), ["reviewer"], "the next one gets what waited");
    crate::payloads::pass(&stand, 3_600);
    stand.post(&delivery(2, "issue_comment", &comment(9, "dev1"))).await;
    assert_eq!(reached(&stand), ["reviewer"], "its claim lapsed by itself");
}
