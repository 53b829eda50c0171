//! Each once: deliveries, events, messages.

use forebay_core::event::Net;
use forebay_core::ledger::{Reason, Status};
use forebay_core::ports::Ledger as _;
use forebay_tests::table::Table;
use forebay_tests::webhook::Stand;
use serde_json::json;

use crate::payloads::{
    changed, comment, counts, delivery, guid, key, merge, pull_request, push, reached, review, row, rows, standing,
};

/// A stand whose repository is routed to the reviewer.
async fn routed() -> (Table, Stand) {
    let table = Table::start().await;
    let stand = Stand::with(table.ledger(), changed(&[("ROUTES", "acme/app=reviewer")]));
    (table, stand)
}

#[tokio::test]
async fn thirty_two_identical_deliveries_at_once_are_one() {
    // Invariants 2 and 3, S2-05, S2-14, DEDU-05, DEDU-06
    let (table, stand) = routed().await;
    let stand = std::sync::Arc::new(stand);
    let request = delivery(1, "issue_comment", &comment(8, "dev1"));
    let mut posts = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (stand, request) = (stand.clone(), request.clone());
        posts.spawn(async move { stand.post(&request).await.status() });
    }
    let mut statuses = posts.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses[..31], [200; 31]);
    assert_eq!(statuses[31], 202);
    assert_eq!(rows(&table).await, counts([("delivery", 1), ("event", 1)]));
    assert_eq!(
        (reached(&stand), stand.inboxes.sends()),
        (vec!["reviewer".to_owned()], 1)
    );
    let row = row(&stand, "github/comment/8").await;
    assert_eq!(
        (row.state.reason, row.state.token.number()),
        (Some(Reason::Delivered), 1)
    );
}

#[tokio::test]
async fn one_guid_from_two_hooks_is_two_deliveries_and_one_event() {
    let (table, stand) = routed().await;
    let first = delivery(1, "push", &push("a", "b"));
    let check_run = delivery(2, "issue_comment", &comment(8, "dev1"));
    for request in [first, check_run] {
        let second = request.clone().header("x-github-hook-id", Some("43"));
        assert_eq!(stand.post(&request).await.status(), 202);
        assert_eq!(stand.post(&second).await.status(), 202, "its bytes are kept too");
    }
    assert_eq!(rows(&table).await, counts([("delivery", 4), ("event", 2)]));
    assert_eq!(reached(&stand), ["reviewer"], "a push wakes nobody, the comment once");
}

#[tokio::test]
async fn one_comment_review_or_merge_under_a_second_guid_is_one_event() {
    for (event, payload, inboxes) in [
        ("issue_comment", comment(8, "dev1"), vec!["reviewer"]),
        ("pull_request_review", review(9), vec!["reviewer"]),
        ("pull_request", merge("dev1"), vec!["dispatcher", "reviewer"]),
    ] {
        let (table, stand) = routed().await;
        for n in [1, 2] {
            let answer = stand.post(&delivery(n, event, &payload)).await;
            assert_eq!(answer.status(), 202, "{event}");
        }
        let kinds = rows(&table).await;
        assert_eq!((kinds["delivery"], kinds["event"]), (2, 1), "{event}");
        assert_eq!(reached(&stand), inboxes, "{event}");
    }
}

#[tokio::test]
async fn what_is_closed_twice_was_closed_twice() {
    let (_table, stand) = routed().await;
    let closed = |n, at: &str| {
        delivery(
            n,
            "pull_request",
            &pull_request("closed", &json!({"closed_at": at, "merged": false})),
        )
    };
    stand.post(&closed(1, "2026-11-29T10:00:00Z")).await;
    let reopened = delivery(2, "pull_request", &pull_request("reopened", &json!({})));
    assert!(stand.post(&reopened).await.body().contains("ignored"));
    stand.post(&closed(3, "2026-11-29T11:00:00Z")).await;
    for at in [1_795_946_400, 1_795_950_000] {
        let id = format!("github/pull_request/70/closed/{at}");
        assert_eq!(
            standing(&stand, &id).await,
            (Status::Processed, Some(Reason::Delivered))
        );
    }
    assert_eq!(reached(&stand), ["reviewer", "reviewer"]);
}

#[tokio::test]
async fn the_same_commits_pushed_again_are_another_push() {
    let (table, stand) = routed().await;
    for (n, before, after) in [(1, "a", "b"), (2, "b", "a"), (3, "a", "b")] {
        let answer = stand.post(&delivery(n, "push", &push(before, after))).await;
        assert_eq!(answer.status(), 202);
        let id = format!("github/push/1/{}", guid(n));
        assert_eq!(standing(&stand, &id).await, (Status::Processed, Some(Reason::Unrouted)));
    }
    assert_eq!(rows(&table).await, counts([("delivery", 3), ("event", 3)]));
}

#[tokio::test]
async fn an_ignored_actors_merge_reaches_the_dispatcher_and_its_comment_wakes_nobody() {
    // ROUT-01, S3-12
    let (table, stand) = routed().await;
    let answer = stand
        .post(&delivery(1, "issue_comment", &comment(8, "Agent-Bot[bot]")))
        .await;
    assert_eq!(answer.status(), 202);
    assert_eq!(reached(&stand), Vec::<String>::new());
    stand.post(&delivery(2, "pull_request", &merge("agent-bot[bot]"))).await;
    assert!(reached(&stand).contains(&"dispatcher".to_owned()));
    assert_eq!(
        standing(&stand, "github/comment/8").await,
        (Status::Processed, Some(Reason::Silenced))
    );
    assert_eq!(
        standing(&stand, "github/pull_request/70/merged").await,
        (Status::Processed, Some(Reason::Delivered))
    );
    let kinds = rows(&table).await;
    assert_eq!((kinds["delivery"], kinds["event"]), (2, 2), "both are in the ledger");
}

#[tokio::test]
async fn other_bytes_under_a_known_identity_change_nothing_and_mean_nothing() {
    // S2-07, DEDU-08
    let (table, stand) = routed().await;
    let first = delivery(1, "issue_comment", &comment(8, "dev1"));
    stand.post(&first).await;
    let other = delivery(1, "issue_comment", &comment(9, "dev2"));
    let answer = stand.post(&other).await;
    let expected = format!(
        r#"{{"delivery":"{}","event":"issue_comment","outcome":"duplicate"}}"#,
        guid(1)
    );
    assert_eq!((answer.status(), answer.body()), (200, expected.as_str()));
    assert_eq!(stand.ledger.body(&key(1)).await.unwrap(), Some(first.body));
    assert_eq!(rows(&table).await, counts([("delivery", 1), ("event", 1)]));
    assert_eq!(reached(&stand), ["reviewer"]);
    assert_eq!(stand.metrics.lines().last().unwrap()["Conflicts"], 1);
}

#[tokio::test]
async fn an_event_is_an_ordinary_row_that_says_which_net_caught_it() {
    // S1-01, S2-03, S2-19, S3-05
    let (_table, stand) = routed().await;
    let request = delivery(1, "issue_comment", &comment(8, "dev1"));
    stand.post(&request).await;
    let row = row(&stand, "github/comment/8").await;
    assert_eq!(
        (row.first_seen, row.event.delivery.as_ref()),
        (Net::Webhook, Some(&key(1)))
    );
    assert_eq!(row.event.subject.to_string(), "acme/app#12");
    let kept = stand.ledger.delivery(&key(1)).await.unwrap().unwrap().delivery;
    assert_eq!(kept.size, request.body.len() as u64);
    assert_eq!(kept.digest, forebay_core::delivery::Digest::of(&request.body));
    assert!(!kept.verified_by.is_empty());
    let headers: Vec<_> = kept.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(headers, ["content-type", "user-agent"], "and never a signature");
}

#[tokio::test]
async fn the_message_is_in_the_inbox_before_the_answer() {
    // S3-24, LAMB-01: nothing durable is left for after the answer, when the environment is frozen.
    let (_table, stand) = routed().await;
    stand.post(&delivery(1, "issue_comment", &comment(8, "dev1"))).await;
    // No await since the answer.
    let [message] = &stand.inboxes.messages("reviewer")[..] else {
        panic!("not one message")
    };
    let body: serde_json::Value = serde_json::from_str(&message.body).unwrap();
    assert_eq!(body["id"], "github/comment/8");
    assert_eq!(message.group, "acme/app#12");
}
