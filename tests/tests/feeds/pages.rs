//! What a feed shows is taken: all of it, once, whatever page it is on and whoever told of it before.

use forebay_core::ports::ErrorClass;
use forebay_core::source::github::FeedKind;
use forebay_tests::github::{HookTarget, Hooked, Occasion, What, lock};
use forebay_tests::polling::{Bench, token};
use forebay_tests::samples::secs;
use forebay_tests::scripted::{Call, Script};

const APP: &str = "acme/app";

/// A bench whose events feed is polled. Nothing but pull request 1 has happened, and nobody was told of it.
fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.add_feed(FeedKind::Events, APP, token());
    let opened = Occasion::of(APP, What::pull_request("fix")).hooked(Hooked::Silent);
    bench.happen_ago(&opened.shown_after(None), 3_600);
    bench
}

/// A comment that no webhook tells of.
fn comment() -> Occasion {
    Occasion::of(APP, What::comment(1, "Look")).hooked(Hooked::Silent)
}

/// Lets so many comments happen, a second apart and the last one now. Gives the ids that their events must have.
fn comments(bench: &Bench, count: usize, hooked: &Hooked) -> Vec<String> {
    let seconds = (0..i64::try_from(count).unwrap()).rev();
    let happened = seconds.map(|seconds| bench.happen_ago(&comment().hooked(hooked.clone()), seconds));
    happened.map(|happened| happened.event_id().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_hundred_and_forty_new_items_over_two_pages_are_all_taken_in_one_round_oldest_first() {
    // S3-21, S3-23, S3-27: overflow beyond one page is not lost.
    let bench = bench();
    let expected = comments(&bench, 140, &Hooked::Silent);
    let round = bench.round().await;
    assert_eq!((round.requests.len(), round.written.accepted), (2, 140));
    assert_eq!(bench.sent(), expected);
    assert_eq!(round.tally.emitted, 1);
    bench.pass(60);
    let again = bench.round().await;
    assert_eq!((again.written.accepted, again.tally.counts.not_modified), (0, 1));
    assert_eq!(bench.sent().len(), 140);
}

#[tokio::test]
async fn a_crash_after_the_first_of_three_leads_to_the_missing_two_in_the_next_round() {
    // COND-09, S3-18, invariant 6: the validator is not stored before everything of its page is durable.
    let bench = bench();
    bench.round().await;
    bench.pass(60);
    let expected = comments(&bench, 3, &Hooked::Silent);
    let throttled = Script::Fail(ErrorClass::Throttled);
    bench.stand.ledger.once(Call::AdmitEvent, Script::Pass(bench.stand.time.clone(), secs(0)));
    bench.stand.ledger.once(Call::AdmitEvent, throttled);
    let crashed = bench.round().await;
    assert_eq!((crashed.written.accepted, crashed.tally.failures), (1, 1));
    bench.pass(60);
    let next = bench.round().await;
    assert_eq!((next.requests[0].status, next.written.accepted), (Some(200), 2));
    assert_eq!(next.written.duplicates, 1);
    assert_eq!(bench.sent(), expected);
}

#[tokio::test]
async fn what_webhooks_missed_is_found_behind_a_page_of_what_they_told() {
    // S3-27: what came by webhook does not count as seen by the feed.
    let bench = bench();
    bench.add_hook(&HookTarget::Repository(APP.to_owned()));
    bench.round().await;
    bench.pass(3_600);
    let missed = comments(&bench, 5, &Hooked::Silent);
    bench.pass(300);
    comments(&bench, 100, &Hooked::Delivered);
    assert_eq!(bench.deliver().await, vec![202; 100]);
    let round = bench.round().await;
    assert_eq!((round.written.accepted, round.written.duplicates), (5, 100));
    assert_eq!(bench.sent()[100..], missed);
}

#[tokio::test]
async fn an_item_that_comes_six_hours_late_is_taken() {
    // FEED-07
    let bench = bench();
    bench.round().await;
    bench.pass(60);
    let late = bench.happen(&comment().shown_after(Some(secs(6 * 3_600))));
    bench.pass(300);
    bench.happen(&comment());
    bench.round().await;
    for _ in 0..(6 * 60) {
        bench.pass(60);
        bench.round().await;
    }
    assert_eq!(bench.sent().len(), 2);
    assert_eq!(bench.sent()[1], late.event_id().unwrap());
    let (one, all) = (bench.events().await.len(), lock(&bench.fake).happenings().len());
    assert_eq!((one, all), (2, 3));
}
