//! What a feed cannot tell of yet: it is left, tried again and given up in the end, and nothing else waits for it.

use forebay_core::api::Answer;
use forebay_core::ports::ErrorClass;
use forebay_core::source::SourceId;
use forebay_core::source::github::FeedKind;
use forebay_tests::github::{HookTarget, Hooked, Occasion, What, lock};
use forebay_tests::polling::{Bench, token};
use forebay_tests::samples::secs;

const APP: &str = "acme/app";

/// A bench whose events feed has been polled once, a minute ago.
async fn bench() -> (Bench, SourceId) {
    let mut bench = Bench::new();
    let feed = bench.add_feed(FeedKind::Events, APP, token());
    let opened = Occasion::of(APP, What::pull_request("fix")).hooked(Hooked::Silent);
    bench.happen_ago(&opened.shown_after(None), 3_600);
    bench.round().await;
    bench.pass(60);
    (bench, feed)
}

fn comment() -> Occasion {
    Occasion::of(APP, What::comment(1, "Look")).hooked(Hooked::Silent)
}

/// Closes `number`, told by the feed alone, a little after it happened.
fn closed(number: u64) -> Occasion {
    let closed = Occasion::of(APP, What::Closed { number }).hooked(Hooked::Silent);
    closed.written_after(secs(2))
}

fn reopened(number: u64) -> Occasion {
    Occasion::of(APP, What::Reopened { number }).hooked(Hooked::Silent)
}

/// Makes answers to requests with this in their URL so many times one of this status.
fn answer_with(bench: &Bench, part: &str, times: usize, status: u16) {
    bench.wire.bend(part, times, move |answer| {
        let body = b"{}".to_vec();
        Ok(Answer { status, body, ..answer })
    });
}

#[tokio::test]
async fn a_closing_whose_history_gives_no_answer_keeps_nothing_else_waiting_and_is_given_up_in_the_end() {
    // Invariant 10
    let (bench, feed) = bench().await;
    bench.happen(&closed(1));
    answer_with(&bench, "/issues/1/events", usize::MAX, 502);
    bench.pass(2);
    let (mut tries, mut failures, mut gaps) = (0, 0, 0);
    for turn in 0..(26 * 12) {
        // The list has room for what happens in this time.
        let told = (turn % 2 == 0).then(|| bench.happen(&comment()));
        let round = bench.round().await;
        if let Some(told) = told {
            assert_eq!(round.written.accepted, 1, "{turn}");
            assert_eq!(bench.sent().last().map(String::as_str), told.event_id());
        }
        if turn == 0 {
            assert_eq!(bench.row(&feed).note.as_deref(), Some("server_fault"));
            assert_eq!(round.tally.errors[0].1.word(), "server_fault");
        }
        tries += round.asked("/issues/1/events");
        failures += round.tally.failures;
        gaps += round.tally.counts.gaps;
        bench.pass(300);
    }
    // At growing intervals, and no more than a few times.
    assert_eq!((gaps, failures, tries), (1, 14, 14));
    assert_eq!((bench.row(&feed).note, bench.sent().len()), (None, 156));
}

#[tokio::test]
async fn an_hour_of_histories_without_an_answer_loses_no_closing() {
    let (bench, _) = bench().await;
    let closing = bench.happen(&closed(1));
    bench
        .wire
        .bend("/issues/", usize::MAX, |_| Err(ErrorClass::ServerFault));
    let mut gaps = 0;
    for minute in 0..240 {
        if minute == 60 {
            bench.wire.mend();
        }
        gaps += bench.round().await.tally.counts.gaps;
        bench.pass(60);
    }
    assert_eq!(
        (gaps, bench.events().await),
        (0, vec![closing.event_id().unwrap().to_owned()])
    );
}

#[tokio::test]
async fn one_refusal_loses_no_closing() {
    for status in [403, 404] {
        let (bench, _) = bench().await;
        let closing = bench.happen(&closed(1));
        answer_with(&bench, "/issues/1/events", 1, status);
        let mut gaps = 0;
        for _ in 0..6 {
            gaps += bench.round().await.tally.counts.gaps;
            bench.pass(60);
        }
        assert_eq!(
            (gaps, bench.events().await),
            (0, vec![closing.event_id().unwrap().to_owned()]),
            "{status}"
        );
    }
}

#[tokio::test]
async fn a_closing_that_was_left_has_its_webhooks_id_when_its_history_is_there_again() {
    let (bench, _) = bench().await;
    let closing = bench.happen(&closed(1));
    let told = bench.happen(&comment());
    answer_with(&bench, "/issues/1/events", 2, 502);
    bench.pass(2);
    for _ in 0..6 {
        bench.round().await;
        bench.pass(60);
    }
    let ids = [told.event_id().unwrap(), closing.event_id().unwrap()];
    assert_eq!(bench.sent(), ids);
    let row = bench.event(ids[1]).await.unwrap();
    assert_eq!(
        row.event.occurred_at,
        Some(closing.at),
        "what comes late can be put in order"
    );
}

#[tokio::test]
async fn what_may_not_be_asked_for_is_given_up_after_a_few_tries_and_no_time_is_made_up_for_it() {
    for status in [403, 404] {
        let (bench, _) = bench().await;
        bench.happen(&closed(1));
        bench.happen(&comment());
        answer_with(&bench, "/issues/1/events", usize::MAX, status);
        bench.pass(2);
        let (mut tries, mut failures, mut gaps) = (0, 0, 0);
        for minute in 0..60 {
            let round = bench.round().await;
            assert_eq!(round.written.accepted, u64::from(minute == 0), "{status} {minute}");
            tries += round.asked("/issues/1/events");
            failures += round.tally.failures;
            gaps += round.tally.counts.gaps;
            bench.pass(60);
        }
        assert_eq!((tries, failures, gaps), (5, 5, 1), "{status}");
        assert_eq!(bench.round().await.requests.len(), 1, "{status}");
        assert_eq!(bench.events().await.len(), 1, "{status}");
    }
}

#[tokio::test]
async fn an_earlier_attempt_that_cannot_be_had_keeps_no_other_run_waiting() {
    for status in [502, 403] {
        let mut bench = Bench::new();
        let feed = bench.add_feed(FeedKind::Runs, APP, token());
        bench.round().await;
        bench.pass(60);
        let run = || Occasion::of(APP, What::run("fix", "failure")).hooked(Hooked::Silent);
        let one = bench.happen_ago(&run(), 30);
        let conclusion = "failure".to_owned();
        let again = Occasion::of(
            APP,
            What::Rerun {
                run: one.id,
                conclusion,
            },
        )
        .hooked(Hooked::Silent);
        bench.happen(&again);
        answer_with(&bench, "/attempts/", usize::MAX, status);
        let (mut failures, mut gaps, mut asked) = (0, 0, 0);
        for minute in 0..60 {
            bench.happen(&run());
            let round = bench.round().await;
            // The run's last attempt needs nobody to be asked.
            assert_eq!(
                round.written.accepted,
                if minute == 0 { 2 } else { 1 },
                "{status} {minute}"
            );
            failures += round.tally.failures;
            gaps += round.tally.counts.gaps;
            asked += round.asked("/attempts/");
            bench.pass(60);
        }
        // What fails is tried for longer than this hour.
        let (tries, lost) = if status == 502 { (6, 0) } else { (5, 1) };
        assert_eq!((failures, gaps), (tries, lost), "{status}");
        assert_eq!(u64::try_from(asked).unwrap(), tries, "{status}");
        assert_eq!((bench.sent().len(), bench.row(&feed).note), (61, None), "{status}");
    }
}

#[tokio::test]
async fn the_page_that_spent_the_last_request_is_taken_but_for_what_needs_another() {
    // S3-20
    let (bench, _) = bench().await;
    let closing = bench.happen_ago(&closed(1), 50);
    for seconds in (0..40).rev() {
        bench.happen_ago(&comment(), seconds);
    }
    lock(&bench.fake).leave("token", 1, bench.now() + secs(600));
    let last = bench.round().await;
    assert_eq!((last.requests.len(), last.written.accepted), (1, 40));
    assert_eq!((last.tally.throttled, last.tally.failures), (0, 0));
    for _ in 0..10 {
        bench.pass(60);
        assert_eq!(bench.round().await.requests, []);
    }
    bench.pass(5);
    assert_eq!(bench.round().await.written.accepted, 1);
    assert_eq!(bench.sent().last().map(String::as_str), closing.event_id());
}

#[tokio::test]
async fn many_that_get_no_answer_cost_a_bounded_number_of_requests_and_each_is_given_up() {
    let (bench, feed) = bench().await;
    for branch in 0..39 {
        let opened = Occasion::of(APP, What::pull_request(&format!("b{branch}"))).hooked(Hooked::Silent);
        bench.happen_ago(&opened.shown_after(None), 60);
    }
    for number in 1..=40 {
        bench.happen(&closed(number));
    }
    answer_with(&bench, "/issues/", usize::MAX, 502);
    bench.pass(2);
    let (mut gaps, mut length) = (0, 0);
    for turn in 0..(30 * 12) {
        let told = (turn % 3 == 0).then(|| bench.happen(&comment()));
        let round = bench.round().await;
        assert_eq!(round.written.accepted, u64::from(told.is_some()));
        assert!(round.requests.len() <= 13, "{:?}", round.requests);
        gaps += round.tally.counts.gaps;
        length = bench.cursor(&feed).unwrap().len().max(length);
        bench.pass(300);
    }
    assert_eq!(gaps, 40);
    assert!(length < 20_000, "{length}");
    assert_eq!(bench.events().await.len(), 120);
}

/// What is asked for in two quiet hours, after two others: by how many requests, and what that loses.
async fn two_quiet_hours(bench: &Bench) -> (usize, u64) {
    let (mut requests, mut gaps) = (0, 0);
    for minute in 0..240 {
        bench.pass(60);
        let round = bench.round().await;
        if minute >= 120 {
            requests += round.requests.len();
            gaps += round.tally.counts.gaps;
        }
    }
    (requests, gaps)
}

#[tokio::test]
async fn an_attempt_that_was_left_and_is_too_old_to_be_asked_for_is_given_up() {
    let mut bench = Bench::new();
    let feed = bench.add_feed(FeedKind::Runs, APP, token());
    bench.round().await;
    bench.pass(60);
    let run = || Occasion::of(APP, What::run("fix", "failure")).hooked(Hooked::Silent);
    let one = bench.happen_ago(&run(), 30);
    for _ in 0..250 {
        bench.happen_ago(&run(), 30);
    }
    let again = || {
        let conclusion = "failure".to_owned();
        Occasion::of(
            APP,
            What::Rerun {
                run: one.id,
                conclusion,
            },
        )
        .hooked(Hooked::Silent)
    };
    bench.happen(&again());
    answer_with(&bench, "/attempts/1", 1, 502);
    bench.round().await;
    assert!(bench.cursor(&feed).unwrap().contains("\"left\""));
    for _ in 0..11 {
        bench.happen(&again());
    }
    bench.pass(300);
    assert_eq!(bench.round().await.tally.counts.gaps, 1);
    assert!(!bench.cursor(&feed).unwrap().contains("\"left\""));
    let (requests, gaps) = two_quiet_hours(&bench).await;
    assert!(requests <= 130 && gaps == 0, "{requests} {gaps}");
}

#[tokio::test]
async fn a_closing_that_was_left_and_says_its_time_later_on_is_left_no_more() {
    let (bench, feed) = bench().await;
    for seconds in (0..250).rev() {
        bench.happen_ago(&comment(), seconds);
    }
    let closing = bench.happen(&closed(1));
    answer_with(&bench, "/issues/1/events", usize::MAX, 502);
    bench.pass(2);
    bench.round().await;
    assert!(bench.cursor(&feed).unwrap().contains("\"left\""));
    let at = closing.at.to_string();
    bench.wire.bend("/repos/acme/app/events", usize::MAX, move |answer| {
        let Ok(mut items) = serde_json::from_slice::<Vec<serde_json::Value>>(&answer.body) else {
            return Ok(answer);
        };
        for item in &mut items {
            if item["payload"]["action"] == "closed" {
                item["payload"]["pull_request"]["closed_at"] = at.clone().into();
            }
        }
        let body = serde_json::to_vec(&items).unwrap();
        Ok(Answer { body, ..answer })
    });
    let (requests, gaps) = two_quiet_hours(&bench).await;
    assert_eq!(bench.sent().last().map(String::as_str), closing.event_id());
    assert!(!bench.cursor(&feed).unwrap().contains("\"left\""));
    assert!(requests <= 130 && gaps == 0, "{requests} {gaps}");
}

#[tokio::test]
async fn what_was_left_and_stands_behind_a_page_that_is_never_read_costs_few_readings() {
    for status in [502, 403] {
        let (bench, _) = bench().await;
        for seconds in (0..250).rev() {
            bench.happen_ago(&comment(), seconds);
        }
        bench.round().await;
        bench.pass(60);
        bench.happen(&closed(1));
        answer_with(&bench, "/issues/1/events", usize::MAX, 502);
        bench.pass(2);
        bench.round().await;
        // So many newer ones push it out.
        for _ in 0..320 {
            bench.happen(&comment());
        }
        answer_with(&bench, "page=3", usize::MAX, status);
        let (requests, gaps) = two_quiet_hours(&bench).await;
        assert!(requests <= 160 && gaps <= 4, "{status} {requests} {gaps}");
    }
}

#[tokio::test]
async fn a_place_that_gives_no_answer_is_given_up_and_what_comes_late_before_it_is_found_meanwhile() {
    // COND-08: what is remembered of a place does not put off the reading of all pages.
    let (bench, feed) = bench().await;
    for seconds in (0..250).rev() {
        bench.happen_ago(&comment(), seconds);
    }
    answer_with(&bench, "page=3", usize::MAX, 502);
    let first = bench.round().await;
    assert_eq!((first.written.accepted, first.tally.failures), (200, 1));
    assert_eq!(bench.row(&feed).note.as_deref(), Some("server_fault"));
    let late = bench.happen_ago(&comment().shown_after(Some(secs(1_200))), 150);
    let (mut gaps, mut failures, mut requests) = (0, 0, 0);
    for _ in 0..(3 * 60) {
        bench.pass(60);
        let round = bench.round().await;
        gaps += round.tally.counts.gaps;
        failures += round.tally.failures;
        requests += round.requests.len();
    }
    assert_eq!(bench.sent().last().map(String::as_str), late.event_id());
    // It is tried five times in each hour's reading, and each time it is given up.
    assert!(
        (3..=4).contains(&gaps) && (15..=20).contains(&failures),
        "{gaps} {failures}"
    );
    assert!(requests <= 240, "{requests}");
    // It is found once it can be read.
    bench.wire.mend();
    for _ in 0..61 {
        bench.pass(60);
        bench.round().await;
    }
    assert_eq!(bench.sent().len(), 251);
}

#[tokio::test]
async fn all_pages_are_read_again_in_time_although_a_list_is_never_read_to_its_end() {
    // COND-08
    let (bench, _) = bench().await;
    for seconds in (0..250).rev() {
        bench.happen_ago(&comment(), seconds);
    }
    // A limit is no failure: the place stays.
    let limit = |answer| {
        let body = br#"{"message":"You have exceeded a secondary rate limit."}"#.to_vec();
        Ok(Answer {
            status: 429,
            body,
            ..answer
        })
    };
    bench.wire.bend("page=3", usize::MAX, limit);
    assert_eq!(bench.round().await.written.accepted, 200);
    let late = bench.happen_ago(&comment().shown_after(Some(secs(1_200))), 150);
    for _ in 0..(8 * 60) {
        bench.pass(60);
        bench.round().await;
    }
    assert_eq!(bench.sent().last().map(String::as_str), late.event_id());
}

#[tokio::test]
async fn a_closing_at_the_end_of_a_long_history_is_the_one_that_its_webhook_tells_of() {
    let (bench, _) = bench().await;
    bench.add_hook(&HookTarget::Repository(APP.to_owned()));
    for day in (1..=300).rev() {
        bench.happen_ago(&closed(1).shown_after(None), day * 86_400);
        bench.happen_ago(&reopened(1).shown_after(None), day * 86_400 - 60);
    }
    let last = bench.happen(&closed(1).hooked(Hooked::Delivered));
    bench.deliver().await;
    bench.pass(2);
    let round = bench.round().await;
    assert_eq!((round.written.accepted, round.written.duplicates), (0, 1));
    assert_eq!(bench.sent(), [last.event_id().unwrap()]);
    assert_eq!(bench.events().await, [last.event_id().unwrap()]);
    // Its beginning, and from its end back to what was long before.
    assert_eq!(round.asked("/issues/1/events"), 3);
}

#[tokio::test]
async fn a_history_that_leads_to_another_issues_gives_no_time_of_the_others() {
    let (bench, _) = bench().await;
    let opened = Occasion::of(APP, What::pull_request("other")).hooked(Hooked::Silent);
    bench.happen_ago(&opened.shown_after(None), 50);
    let closing = bench.happen_ago(&closed(1), 10);
    bench.happen_ago(&closed(2).shown_after(None), 8);
    bench.wire.bend("/issues/1/events", usize::MAX, |answer| {
        let last = "https://api.github.com/repos/acme/app/issues/2/events?per_page=100&page=1";
        Ok(Answer {
            last: Some(last.to_owned()),
            ..answer
        })
    });
    let round = bench.round().await;
    assert_eq!(bench.events().await, [closing.event_id().unwrap()]);
    assert_eq!(round.asked("/issues/"), 1);
}

#[tokio::test]
async fn a_closing_in_the_middle_of_a_very_long_history_is_given_up_and_has_no_time_made_up() {
    let (bench, _) = bench().await;
    let flip = |ago: i64| {
        bench.happen_ago(&closed(1).shown_after(None), ago);
        bench.happen_ago(&reopened(1).shown_after(None), ago - 30);
    };
    (0..100).for_each(|number| flip(80_000 - 60 * number));
    bench.happen_ago(&closed(1), 70_000);
    bench.happen_ago(&reopened(1).shown_after(None), 69_000);
    (0..400).for_each(|number| flip(60_000 - 60 * number));
    let (mut gaps, mut asked) = (0, 0);
    for _ in 0..60 {
        let round = bench.round().await;
        gaps += round.tally.counts.gaps;
        asked = round.asked("/issues/").max(asked);
        bench.pass(60);
    }
    assert_eq!((gaps, asked, bench.events().await.len()), (1, 6, 0));
}

#[tokio::test]
async fn a_page_that_is_too_large_is_read_in_smaller_ones() {
    // S3-17: a comment's item carries the issue's text and its own.
    let (bench, _) = bench().await;
    for seconds in (0..140).rev() {
        let said = "x".repeat(20_000);
        let comment = Occasion::of(APP, What::comment(1, &said)).hooked(Hooked::Silent);
        bench.happen_ago(&comment, seconds);
    }
    let limited = |answer: Answer| {
        if answer.body.len() > 1_024 * 1_024 {
            Err(ErrorClass::TooLarge)
        } else {
            Ok(answer)
        }
    };
    bench.wire.bend("/events", usize::MAX, limited);
    let round = bench.round().await;
    assert_eq!((round.written.accepted, round.tally.failures), (140, 0));
    assert!(round.requests.len() <= 9, "{:?}", round.requests);
    // Its validator is that of the smaller page.
    bench.pass(60);
    let unchanged = bench.round().await;
    assert_eq!((unchanged.requests.len(), unchanged.tally.counts.not_modified), (1, 1));
    bench.happen(&comment());
    bench.pass(60);
    let next = bench.round().await;
    assert_eq!((next.requests.len(), next.written.accepted), (2, 1));
}

#[tokio::test]
async fn a_page_that_is_too_large_behind_the_first_is_read_in_smaller_ones() {
    let (bench, _) = bench().await;
    for seconds in (0..250).rev() {
        bench.happen_ago(&comment(), seconds);
    }
    for large in ["per_page=100&page=2", "per_page=50&page=3"] {
        bench.wire.bend(large, usize::MAX, |_| Err(ErrorClass::TooLarge));
    }
    let round = bench.round().await;
    assert_eq!((round.written.accepted, round.tally.failures), (250, 0));
    assert_eq!(round.tally.counts.gaps, 0);
    assert!(round.requests.len() <= 10, "{:?}", round.requests);
}

#[tokio::test]
async fn a_page_that_is_too_large_whatever_its_size_is_a_failure_after_a_few_requests() {
    let (bench, feed) = bench().await;
    bench.happen(&comment());
    bench.wire.bend("/events", usize::MAX, |_| Err(ErrorClass::TooLarge));
    let round = bench.round().await;
    assert_eq!((round.requests.len(), round.tally.failures), (5, 1));
    assert_eq!(bench.row(&feed).note.as_deref(), Some("too_large"));
    bench.wire.mend();
    bench.pass(3_600);
    assert_eq!(bench.round().await.written.accepted, 1);
}
