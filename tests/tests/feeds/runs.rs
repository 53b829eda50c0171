//! Runs of workflows: each attempt that ended badly is an event, once, however late it is heard of.

use forebay_core::api::Answer;
use forebay_core::ledger::Reason;
use forebay_core::ports::ErrorClass;
use forebay_core::source::github::FeedKind;
use forebay_tests::github::{Happening, HookTarget, Hooked, Occasion, What, lock};
use forebay_tests::polling::{Bench, token};

const APP: &str = "acme/app";

/// A bench whose runs are polled.
fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.add_feed(FeedKind::Runs, APP, token());
    bench
}

fn run(conclusion: &str) -> Occasion {
    Occasion::of(APP, What::run("fix", conclusion)).hooked(Hooked::Silent)
}

fn rerun(of: &Happening, conclusion: &str) -> Occasion {
    let conclusion = conclusion.to_owned();
    Occasion::of(APP, What::Rerun { run: of.id, conclusion }).hooked(Hooked::Silent)
}

fn attempt(of: &Happening, attempt: u64) -> String {
    format!("github/run/{}/attempt/{attempt}", of.id)
}

#[tokio::test]
async fn each_attempt_that_ends_badly_is_an_event_and_a_third_round_finds_none() {
    // FEED-11, S3-17
    let bench = bench();
    let failed = bench.happen(&run("failure"));
    bench.happen(&run("success"));
    assert_eq!(bench.round().await.written.accepted, 1);
    bench.pass(60);
    bench.happen(&rerun(&failed, "timed_out"));
    assert_eq!(bench.round().await.written.accepted, 1);
    bench.pass(60);
    assert_eq!(bench.round().await.written.accepted, 0);
    assert_eq!(bench.sent(), [attempt(&failed, 1), attempt(&failed, 2)]);
}

#[tokio::test]
async fn a_failure_that_webhook_and_feeds_tell_of_is_one_event_and_one_message() {
    // FEED-05, S3-21: ids are the same across feeds, polls and nets.
    let mut bench = bench();
    bench.add_feed(FeedKind::Events, APP, token());
    bench.add_hook(&HookTarget::Repository(APP.to_owned()));
    let failed = bench.happen(&run("failure").hooked(Hooked::Delivered));
    assert_eq!(bench.deliver().await, [202]);
    let round = bench.round().await;
    assert_eq!((round.written.accepted, round.written.duplicates), (0, 1));
    assert_eq!(bench.sent(), [attempt(&failed, 1)]);
    assert_eq!(bench.events().await.len(), 1);
}

#[tokio::test]
async fn an_attempt_that_failed_between_two_polls_and_was_started_again_is_found() {
    // FEED-11: the list shows the last attempt only.
    let bench = bench();
    bench.round().await;
    bench.pass(60);
    let failed = bench.happen_ago(&run("failure"), 50);
    bench.happen_ago(&rerun(&failed, "startup_failure"), 30);
    bench.happen(&rerun(&failed, "success"));
    let round = bench.round().await;
    assert_eq!((round.written.accepted, round.asked("/attempts/")), (2, 2));
    assert_eq!(bench.sent(), [attempt(&failed, 1), attempt(&failed, 2)]);
    bench.pass(60);
    assert_eq!(bench.round().await.asked("/attempts/"), 0);
}

#[tokio::test]
async fn an_attempt_of_long_ago_wakes_nobody_when_its_run_is_started_again() {
    // S3-21: what happened before the backlog is skipped and counted, on whatever way it is met.
    let bench = bench();
    let old = bench.happen_ago(&run("failure"), 40 * 3_600);
    bench.happen(&rerun(&old, "failure"));
    let round = bench.round().await;
    assert_eq!(bench.events().await, [attempt(&old, 2)]);
    assert_eq!((round.written.accepted, round.tally.counts.skipped), (1, 1));
}

#[tokio::test]
async fn a_failure_of_forty_days_ago_wakes_nobody_when_it_is_first_met() {
    let bench = bench();
    bench.happen_ago(&run("failure"), 40 * 86_400);
    let round = bench.round().await;
    assert_eq!((round.tally.counts.skipped, bench.events().await.len()), (1, 0));
    assert_eq!(bench.sent(), [""; 0]);
}

#[tokio::test]
async fn a_failure_of_forty_days_ago_wakes_nobody_when_it_is_met_later() {
    let bench = bench();
    bench.round().await;
    bench.pass(50 * 86_400);
    let old = bench.happen_ago(&run("failure"), 40 * 86_400);
    let round = bench.round().await;
    assert_eq!((round.written.accepted, round.written.delivered), (1, 0));
    let row = bench.event(old.event_id().unwrap()).await.unwrap();
    assert_eq!(row.state.reason, Some(Reason::Stale));
    assert_eq!(bench.sent(), [""; 0]);
}

/// The next list of runs shows none of them as over.
fn unfinish(bench: &Bench) {
    bench.wire.bend("/actions/runs", 1, |answer| {
        let text = String::from_utf8(answer.body.clone()).unwrap();
        let body = text.replace("\"completed\"", "\"in_progress\"").into_bytes();
        Ok(Answer {
            status: 200,
            body,
            etag: None,
            ..answer
        })
    });
}

#[tokio::test]
async fn a_run_that_is_not_over_is_no_failure_whatever_else_its_item_says() {
    // ORD-02, the other way round: of two items with the same time the one that is over counts.
    let bench = bench();
    let failed = bench.happen(&run("failure"));
    unfinish(&bench);
    assert_eq!(bench.round().await.written.accepted, 0);
    bench.pass(60);
    assert_eq!(bench.round().await.written.accepted, 1);
    assert_eq!(bench.sent(), [attempt(&failed, 1)]);
}

#[tokio::test]
async fn a_run_that_was_over_stays_so_though_an_item_of_the_same_time_says_otherwise() {
    // ORD-02: a, which is completed, then b, which is in progress.
    let bench = bench();
    let failed = bench.happen(&run("failure"));
    assert_eq!(bench.round().await.written.accepted, 1);
    let before = bench.event(&attempt(&failed, 1)).await.unwrap().event;
    bench.pass(60);
    bench.happen_ago(&run("success"), 3_600);
    unfinish(&bench);
    let round = bench.round().await;
    assert_eq!((round.requests[0].status, round.written.accepted), (Some(200), 0));
    assert_eq!(bench.event(&attempt(&failed, 1)).await.unwrap().event, before);
    bench.pass(60);
    let round = bench.round().await;
    assert_eq!((round.written.accepted, round.written.duplicates), (0, 0));
    assert_eq!(bench.sent(), [attempt(&failed, 1)]);
}

#[tokio::test]
async fn a_list_of_exactly_as_many_pages_as_are_read_is_read_once() {
    // A search shows a thousand runs at most: every busy repository's list is ten pages long.
    let bench = bench();
    for seconds in (0..1_200).rev() {
        bench.happen_ago(&run("success"), seconds);
    }
    let first = bench.round().await;
    assert_eq!((first.requests.len(), first.tally.counts.gaps), (10, 0));
    bench.pass(60);
    let second = bench.round().await;
    assert_eq!((second.requests.len(), second.tally.counts.not_modified), (1, 1));
    // More than it shows have ended since: some were never seen.
    bench.pass(86_400);
    for seconds in (0..1_200).rev() {
        bench.happen_ago(&run("success"), seconds);
    }
    assert_eq!(bench.round().await.tally.counts.gaps, 1);
}

#[tokio::test]
async fn nothing_more_is_asked_behind_a_page_that_met_a_limit() {
    // RATE-01, S3-20: what the first page shows is taken all the same, as far as it needs nobody to be asked.
    let bench = bench();
    bench.round().await;
    bench.pass(60);
    let again = bench.happen_ago(&run("failure"), 40);
    bench.happen_ago(&rerun(&again, "failure"), 30);
    for seconds in (0..120).rev() {
        bench.happen_ago(&run("failure"), seconds);
    }
    bench.wire.bend("page=2", 1, |answer| {
        let body = br#"{"message":"You have exceeded a secondary rate limit."}"#.to_vec();
        Ok(Answer {
            status: 403,
            body,
            ..answer
        })
    });
    bench.happen(&rerun(&again, "failure"));
    let limited = bench.round().await;
    assert_eq!((limited.requests.len(), limited.tally.throttled), (2, 1));
    // Behind the limit the list goes on first, and then what was left of it.
    for _ in 0..2 {
        bench.pass(60);
        bench.round().await;
    }
    assert_eq!(bench.sent().len(), 123);
}

#[tokio::test]
async fn an_earlier_attempt_that_gets_no_answer_is_asked_for_again() {
    let bench = bench();
    let failed = bench.happen_ago(&run("failure"), 40);
    bench.happen(&rerun(&failed, "failure"));
    bench.wire.bend("/attempts/", 1, |_| Err(ErrorClass::TimedOut));
    bench.round().await;
    bench.pass(180);
    bench.round().await;
    // The last attempt did not wait for it.
    assert_eq!(bench.sent(), [attempt(&failed, 2), attempt(&failed, 1)]);
}

#[tokio::test]
async fn a_late_attempt_of_a_run_on_a_later_page_is_found_when_all_pages_are_read() {
    // FEED-11: a run stands where it began, however late it is started again.
    let bench = bench();
    let old = bench.happen_ago(&run("success"), 20_000);
    for seconds in (0..150).rev() {
        bench.happen_ago(&run("success"), seconds);
    }
    bench.round().await;
    bench.pass(60);
    bench.happen(&rerun(&old, "failure"));
    for _ in 0..61 {
        bench.round().await;
        bench.pass(60);
    }
    assert_eq!(bench.sent(), [attempt(&old, 2)]);
    assert!(lock(&bench.fake).asked("page=2") < 4);
}
