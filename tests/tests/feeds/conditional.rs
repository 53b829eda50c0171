//! Validators: what an answer without news costs, whose it is, and how long it is believed.

use forebay_core::api::{Answer, Credential};
use forebay_core::ports::ErrorClass;
use forebay_core::source::SourceId;
use forebay_core::source::github::FeedKind;
use forebay_core::target::TargetKey;
use forebay_tests::github::{Hooked, Occasion, What, lock};
use forebay_tests::polling::{Bench, StoreCall, installation, token};
use forebay_tests::samples::secs;

const APP: &str = "acme/app";

fn bench() -> (Bench, SourceId) {
    let mut bench = Bench::new();
    let feed = bench.add_feed(FeedKind::Events, APP, token());
    let opened = Occasion::of(APP, What::pull_request("fix")).hooked(Hooked::Silent);
    bench.happen_ago(&opened.shown_after(None), 3_600);
    (bench, feed)
}

fn comment() -> Occasion {
    Occasion::of(APP, What::comment(1, "Look")).hooked(Hooked::Silent)
}

/// Makes `answer` one without news.
fn unchanged(answer: Answer) -> Answer {
    Answer {
        status: 304,
        body: Vec::new(),
        next: None,
        ..answer
    }
}

#[tokio::test]
async fn an_answer_without_news_costs_one_request_and_one_write() {
    // S3-18, S3-22
    let (bench, _) = bench();
    bench.happen(&comment());
    bench.round().await;
    bench.pass(60);
    let before = bench.stand.ledger.calls().len();
    let scheduler = bench.scheduler().await;
    let round = bench.round_by(&scheduler).await;
    assert_eq!((round.requests.len(), round.tally.counts.not_modified), (1, 1));
    assert_eq!(round.requests[0].status, Some(304));
    assert_eq!(round.writes(), 1, "{:?}", round.store);
    assert_eq!(bench.stand.ledger.calls().len(), before);
    let expected = [
        StoreCall::RestingTargets,
        StoreCall::Due,
        StoreCall::Claim,
        StoreCall::Read,
    ];
    assert_eq!(round.store, expected);
}

#[tokio::test]
async fn a_validator_belongs_to_its_credential_and_a_full_answer_to_another_doubles_nothing() {
    // COND-02
    let (mut bench, feed) = bench();
    bench.happen(&comment());
    bench.round().await;
    let before = bench.cursor(&feed);
    bench.sources.clear();
    let renewed = Credential {
        target: TargetKey::labeled_principal("api.github.com", "another token", "github"),
        ..token()
    };
    for credential in [renewed, installation("acme")] {
        bench.sources.clear();
        bench.add_feed(FeedKind::Events, APP, credential);
        bench.pass(60);
        let first = bench.round().await;
        assert_eq!(first.requests[0].status, Some(200));
        assert_eq!((first.written.accepted, first.written.duplicates), (0, 0));
        assert_ne!(bench.cursor(&feed), before, "the validator is replaced");
        bench.pass(60);
        assert_eq!(bench.round().await.requests[0].status, Some(304));
    }
    assert_eq!(bench.sent().len(), 1);
}

#[tokio::test]
async fn an_answer_without_news_that_names_no_interval_leaves_the_one_that_was_known() {
    // COND-05
    let (bench, feed) = bench();
    lock(&bench.fake).set_poll_interval_s(120);
    bench.round().await;
    assert_eq!(bench.row(&feed).interval, secs(120));
    bench.pass(120);
    bench.wire.bend("/events", 1, |answer| {
        Ok(Answer {
            poll_interval_s: None,
            ..answer
        })
    });
    let round = bench.round().await;
    assert_eq!((round.tally.counts.not_modified, round.tally.failures), (1, 0));
    assert_eq!((bench.row(&feed).interval, bench.row(&feed).note), (secs(120), None));
    bench.pass(119);
    assert_eq!(bench.round().await.requests, []);
}

#[tokio::test]
async fn an_interval_that_grows_on_an_answer_without_news_holds_for_every_environment() {
    // COND-06, S3-19
    let (bench, _) = bench();
    bench.round().await;
    bench.pass(60);
    lock(&bench.fake).set_poll_interval_s(300);
    assert_eq!(bench.round().await.requests[0].status, Some(304));
    for _ in 0..4 {
        bench.pass(60);
        assert_eq!(bench.round().await.requests, []);
    }
    bench.pass(60);
    lock(&bench.fake).set_poll_interval_s(60);
    assert_eq!(bench.round().await.requests.len(), 1);
    bench.pass(60);
    assert_eq!(bench.round().await.requests.len(), 1, "it shrinks again");
}

#[tokio::test]
async fn no_poll_follows_sooner_than_the_longest_interval_that_a_page_asked_for() {
    // S3-19
    let (bench, feed) = bench();
    for _ in 0..150 {
        bench.happen(&comment());
    }
    bench.wire.bend("page=2", 1, |answer| {
        let poll_interval_s = Some(300);
        Ok(Answer {
            poll_interval_s,
            ..answer
        })
    });
    bench.round().await;
    assert_eq!(bench.row(&feed).interval, secs(300));
}

#[tokio::test]
async fn answers_without_news_that_are_wrong_are_believed_for_a_bounded_time() {
    // COND-08
    let (bench, _) = bench();
    bench.round().await;
    bench.pass(60);
    let missed = bench.happen(&comment());
    bench.wire.bend("/events", 40, |answer| Ok(unchanged(answer)));
    let mut rounds = 0;
    while bench.sent().is_empty() {
        // Nobody wrongly says of a request without a validator that nothing has changed.
        let round = bench.round().await;
        let last = round.requests.last().unwrap();
        if rounds >= 59 {
            bench.wire.mend();
        }
        assert!(rounds <= 61, "{last:?}");
        bench.pass(60);
        rounds += 1;
    }
    assert_eq!(bench.sent(), [missed.event_id().unwrap()]);
}

#[tokio::test]
async fn a_second_page_that_came_behind_an_unchanged_first_is_read() {
    // COND-11
    let (bench, _) = bench();
    bench.happen(&comment());
    bench.round().await;
    bench.pass(60);
    let behind = bench.happen_ago(&comment(), 3_000);
    bench.wire.bend("/events", 1, |answer| {
        let next = Some("/repos/acme/app/events?per_page=1&page=2".to_owned());
        Ok(Answer {
            next,
            ..unchanged(answer)
        })
    });
    let round = bench.round().await;
    assert_eq!((round.requests.len(), round.written.accepted), (2, 1));
    assert!(bench.sent().contains(&behind.event_id().unwrap().to_owned()));
}

#[tokio::test]
async fn a_validator_or_a_place_that_is_too_long_to_be_kept_keeps_nothing_else_from_being_remembered() {
    for lengthen in ["etag", "next"] {
        let (bench, feed) = bench();
        for seconds in (0..150).rev() {
            bench.happen_ago(&comment(), seconds);
        }
        if lengthen == "next" {
            bench.wire.bend("page=2", usize::MAX, |_| Err(ErrorClass::ServerFault));
        }
        bench.wire.bend("/repos/acme/app/events", usize::MAX, move |answer| {
            let long = "x".repeat(210 * 1_024);
            Ok(match lengthen {
                "etag" => Answer {
                    etag: Some(long),
                    ..answer
                },
                _ => Answer {
                    next: answer.next.map(|next| format!("{next}&{long}")),
                    ..answer
                },
            })
        });
        bench.round().await;
        assert!(bench.cursor(&feed).unwrap().contains("IssueCommentEvent"), "{lengthen}");
        bench.pass(60);
        bench.happen(&comment());
        let round = bench.round().await;
        assert_eq!((round.written.accepted, round.written.duplicates), (1, 0), "{lengthen}");
    }
}
