//! Recovery: what GitHub made and the ledger never got is found in GitHub's log and got, or counted as lost, once.

use forebay_core::api::Answer;
use forebay_core::delivery::DeliveryKey;
use forebay_core::event::Net;
use forebay_core::ports::{ErrorClass, Ledger as _};
use forebay_core::source::SourceId;
use forebay_core::source::github::{HookLog, MissingStore as _, RecoveryConfig, Remedy};
use forebay_tests::github::{Happening, HookTarget, Hooked, Occasion, Outcome, Secondary, What, lock};
use forebay_tests::polling::{BASE, Bench, Round, app, repository, token};
use forebay_tests::samples::secs;
use forebay_tests::scripted::{Call, Script};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

mod odd;
mod overtaken;

const APP: &str = "acme/app";

/// A bench with a hook of ours whose log is read. Pull request 1 is open, and nobody was told.
fn bench_with(config: RecoveryConfig) -> (Bench, SourceId, u64) {
    let mut bench = Bench::new();
    let hook = bench.add_hook(&HookTarget::Repository(APP.to_owned()));
    let opened = Occasion::of(APP, What::pull_request("fix")).hooked(Hooked::Silent);
    bench.happen_ago(&opened.shown_after(None), 86_400);
    let log = bench.add_recovery(HookLog::Repository(repository(APP)), token(), config);
    (bench, log, hook)
}

fn bench() -> (Bench, SourceId, u64) {
    bench_with(RecoveryConfig::default())
}

fn comment(hooked: Hooked) -> Occasion {
    Occasion::of(APP, What::comment(1, "Look")).hooked(hooked)
}

fn lost(status: &str, status_code: u16) -> Hooked {
    Hooked::Lost(Outcome {
        status: status.to_owned(),
        status_code,
    })
}

fn unreachable() -> Hooked {
    Hooked::Lost(Outcome::unreachable())
}

/// The attempts that were asked for, by the id of their delivery, in order.
fn asked(round: &Round) -> Vec<u64> {
    let posts = round.requests.iter().filter(|asked| asked.method == "POST");
    let ids = posts.map(|asked| asked.target.split('/').nth_back(1).unwrap());
    ids.map(|id| id.parse().unwrap()).collect()
}

/// The log of a hook as GitHub shows it now.
fn log(bench: &Bench, hook: u64) -> Vec<Value> {
    let request = forebay_tests::github::Request {
        method: "GET",
        target: &format!("{BASE}/repos/{APP}/hooks/{hook}/deliveries?per_page=100"),
        authorization: Some("Bearer operator"),
        if_none_match: None,
    };
    let reply = lock(&bench.fake).handle(&request, bench.now()).unwrap();
    serde_json::from_str(&reply.body).unwrap()
}

/// The id of the delivery of this happening, in the log.
fn id_of(bench: &Bench, hook: u64, happening: &Happening) -> u64 {
    let entries = log(bench, hook);
    let entry = entries.iter().find(|entry| entry["guid"] == json!(happening.guid));
    entry.unwrap()["id"].as_u64().unwrap()
}

fn key(hook: u64, happening: &Happening) -> DeliveryKey {
    DeliveryKey::parse(&format!("{hook}/{}", happening.guid)).unwrap()
}

/// Polls, lets GitHub deliver, and waits until the log is due again.
async fn turn(bench: &Bench) -> Round {
    let round = bench.round().await;
    bench.deliver().await;
    bench.pass(301);
    round
}

/// GitHub refuses these requests with this status, and does nothing.
fn bend_refusals(bench: &Bench, part: &str, status: u16) {
    let refusal = Answer {
        status,
        body: br#"{"message":"Not for you"}"#.to_vec(),
        ..Answer::default()
    };
    bench.wire.cut_as(part, usize::MAX, refusal);
}

/// Bends the answers to requests for attempts.
fn bend_attempts(bench: &Bench, times: usize, status: u16) {
    bench
        .wire
        .bend("/attempts", times, move |answer| Ok(Answer { status, ..answer }));
}

#[tokio::test]
async fn an_outage_in_the_middle_is_found_behind_newer_deliveries_that_arrived() {
    // REDL-06, REDL-10, S3-16
    let (bench, _, _) = bench();
    bench.happen(&comment(Hooked::Delivered));
    bench.deliver().await;
    turn(&bench).await;
    bench.pass(600);
    let first = bench.happen(&comment(unreachable()));
    bench.pass(90 * 60);
    let second = bench.happen(&comment(lost("timed out", 504)));
    bench.pass(20 * 60);
    bench.happen(&comment(Hooked::Delivered));
    bench.deliver().await;
    bench.pass(60);
    let found = turn(&bench).await;
    assert_eq!((found.tally.counts.missing, asked(&found).len()), (2, 2));
    for happening in [first, second] {
        assert!(bench.event(happening.event_id().unwrap()).await.is_some());
    }
    assert_eq!(bench.sent().len(), 4);
    let after = turn(&bench).await;
    assert_eq!((after.tally.counts.recovered, asked(&after)), (2, vec![]));
    assert_eq!(asked(&turn(&bench).await), [0; 0]);
}

#[tokio::test]
async fn what_the_ledger_has_is_not_asked_for_whatever_github_says_of_it() {
    // REDL-01
    let (bench, _, _) = bench();
    bench.happen(&comment(Hooked::Delivered));
    let posts = lock(&bench.fake).take_pending(bench.now());
    for post in posts {
        let headers = post
            .headers
            .iter()
            .map(|(name, value)| (name.to_lowercase(), value.clone()));
        let request = forebay_tests::webhook::Request {
            headers: headers.collect(),
            body: post.body.into_bytes(),
        };
        assert_eq!(bench.stand.post(&request).await.status(), 202);
        lock(&bench.fake).record(post.delivery, Outcome::answered(500), secs(10), bench.now());
    }
    bench.pass(300);
    let round = turn(&bench).await;
    assert_eq!((round.tally.counts.missing, asked(&round)), (0, vec![]));
}

#[tokio::test]
async fn what_the_ledger_lacks_is_asked_for_whatever_github_says_of_it() {
    // REDL-03, REDL-04, REDL-13
    let (bench, _, hook) = bench();
    let ends = [
        ("OK", 200),
        ("timed out", 0),
        ("failed to connect", 502),
        ("Failed to connect to host", 502),
        ("An exception occurred", 500),
        ("something new", 299),
    ];
    let happened = ends.map(|(status, code)| bench.happen(&comment(lost(status, code))));
    bench.pass(300);
    let expected: Vec<u64> = happened
        .iter()
        .map(|happening| id_of(&bench, hook, happening))
        .collect();
    // Neighbours where numbers are kept as floating point.
    assert!(expected.iter().all(|id| *id > 1 << 53));
    let round = turn(&bench).await;
    let mut ids = asked(&round);
    ids.sort_unstable();
    assert_eq!(ids, expected);
    assert_eq!((round.tally.counts.redeliveries, bench.sent().len()), (6, 6));
}

#[tokio::test]
async fn an_event_that_came_because_it_was_asked_for_was_first_seen_by_recovery() {
    let (bench, _, hook) = bench();
    let told = bench.happen(&comment(unreachable()));
    bench.pass(300);
    turn(&bench).await;
    let round = turn(&bench).await;
    assert_eq!((round.tally.counts.recovered, round.tally.counts.attributed), (1, 1));
    let row = bench.event(told.event_id().unwrap()).await.unwrap();
    assert_eq!((row.first_seen, row.seen_by), (Net::Recovery, [Net::Recovery].into()));
    let row = bench.stand.ledger.delivery(&key(hook, &told)).await.unwrap().unwrap();
    assert_eq!(row.delivery.net, Net::Recovery);
    assert_eq!(turn(&bench).await.tally.counts.recovered, 0, "it is counted once");
}

#[tokio::test]
async fn nothing_is_asked_for_before_it_is_noted_that_it_was() {
    // Invariant 6: who dies in between leaves a delivery that recovery has asked for, and that nobody knows of.
    let (bench, _, _) = bench();
    let told = bench.happen(&comment(unreachable()));
    bench.pass(300);
    let fails = Script::Fail(ErrorClass::Throttled);
    bench.stand.ledger.once(Call::SettleMissing, fails);
    let (mut attributed, mut recovered) = (0, 0);
    for _ in 0..4 {
        let round = turn(&bench).await;
        attributed += round.tally.counts.attributed;
        recovered += round.tally.counts.recovered;
    }
    assert_eq!((recovered, attributed), (1, 1));
    let row = bench.event(told.event_id().unwrap()).await.unwrap();
    assert_eq!((row.first_seen, row.seen_by), (Net::Recovery, [Net::Recovery].into()));
}

#[tokio::test]
async fn a_request_that_a_limit_refused_is_no_attempt_and_one_without_an_answer_may_have_been_one() {
    // RATE-04, invariant 9
    let limit = Answer {
        status: 429,
        retry_after_s: Some(60),
        ..Answer::default()
    };
    let (bench, log, _) = bench();
    bench.happen(&comment(unreachable()));
    bench.pass(300);
    let row = async || {
        let rows = bench.stand.ledger.inner().due_missing(&log, Timestamp::MAX, 10).await;
        let row = rows.unwrap().remove(0);
        (row.asked, row.due_at == row.delivered_at)
    };
    bench.wire.cut_as("/attempts", 1, limit);
    turn(&bench).await;
    assert_eq!(row().await, (0, true), "it is due as before");
    // Each time, GitHub may have heard it. All of them together are no more than one.
    bench.wire.cut("/attempts", 2, ErrorClass::TimedOut);
    for _ in 0..2 {
        turn(&bench).await;
        assert_eq!(row().await, (1, false));
        bench.pass(3_600);
    }
    // The third time it does hear it.
    bench.wire.bend("/attempts", 1, |_| Err(ErrorClass::TimedOut));
    assert_eq!(turn(&bench).await.tally.failures, 1);
    bench.pass(3_600);
    let round = turn(&bench).await;
    assert_eq!((round.tally.counts.recovered, round.tally.counts.attributed), (1, 1));
}

#[tokio::test]
async fn four_thousand_are_worked_off_oldest_first_within_the_budgets_of_each_poll() {
    // REDL-16, invariant 6
    let config = RecoveryConfig {
        pages_max: 6,
        requests_max: 40,
        ..RecoveryConfig::default()
    };
    let (bench, log, _) = bench_with(config);
    for seconds in (0..4_000).rev() {
        bench.happen_ago(&comment(unreachable()), 600 + seconds);
    }
    let mut ids: Vec<Vec<u64>> = Vec::new();
    let mut found = 0;
    for _ in 0..110 {
        let round = turn(&bench).await;
        assert!(round.asked("/deliveries?") <= 6 && asked(&round).len() <= 40);
        assert_eq!(round.tally.failures, 0);
        found += round.tally.counts.missing;
        ids.push(asked(&round));
    }
    assert_eq!((found, bench.sent().len()), (4_000, 4_000));
    // The pass took seven polls to the oldest. From then on the oldest of all come first.
    let begun: Vec<u64> = ids.iter().skip(7).flatten().copied().collect();
    assert!(begun.is_sorted(), "{begun:?}");
    let mut all: Vec<u64> = ids.into_iter().flatten().collect();
    let asked = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!((all.len(), asked), (4_000, 4_000), "none is asked for twice");
    assert!(bench.cursor(&log).unwrap().len() < 500);
}

#[tokio::test]
async fn a_limit_in_the_middle_is_kept_and_the_rest_is_asked_for_behind_it() {
    // REDL-16, RATE-04
    let (bench, _, _) = bench();
    for _ in 0..10 {
        bench.happen(&comment(unreachable()));
    }
    bench.pass(300);
    bench.wire.bend("/attempts", 4, Ok);
    let until = bench.now() + secs(400);
    bend_attempts(&bench, 1, 429);
    let first = bench.round().await;
    bench.deliver().await;
    assert_eq!((asked(&first).len(), first.tally.throttled), (5, 1));
    let limit = Secondary {
        status: 429,
        retry_after_s: Some(400),
        until,
    };
    lock(&bench.fake).hold_back("token", limit);
    bench.pass(301);
    let second = bench.round().await;
    assert_eq!((second.requests.len(), second.tally.throttled), (1, 1));
    bench.pass(100);
    assert_eq!(bench.round().await.requests, []);
    bench.pass(301);
    let mut redelivered = 4;
    for _ in 0..4 {
        redelivered += turn(&bench).await.tally.counts.redeliveries;
    }
    // The one that met the limit had reached GitHub all the same, and was delivered.
    assert_eq!((redelivered, bench.sent().len()), (9, 10));
}

#[tokio::test]
async fn a_log_whose_reading_met_a_limit_is_read_on_from_there() {
    // REDL-16, invariant 6
    let (bench, log, _) = bench();
    for seconds in (0..250).rev() {
        bench.happen_ago(&comment(unreachable()), 600 + seconds);
    }
    bench.wire.bend("cursor=", 1, |answer| {
        Ok(Answer {
            status: 403,
            retry_after_s: Some(60),
            ..answer
        })
    });
    let first = turn(&bench).await;
    assert_eq!((first.tally.throttled, first.tally.counts.missing), (1, 100));
    assert!(bench.cursor(&log).unwrap().contains("cursor=v1_"));
    let second = turn(&bench).await;
    assert_eq!((second.asked("cursor="), second.tally.counts.missing), (2, 150));
}

#[tokio::test]
async fn what_was_listed_before_a_listing_failed_is_asked_for() {
    // S3-16
    let (bench, _, _) = bench();
    for seconds in (0..150).rev() {
        bench.happen_ago(&comment(unreachable()), 600 + seconds);
    }
    bench.wire.bend("cursor=", 1, |_| Err(ErrorClass::ServerFault));
    let round = turn(&bench).await;
    assert_eq!((round.tally.failures, round.tally.counts.missing), (1, 100));
    assert_eq!((asked(&round).len(), round.tally.counts.redeliveries), (20, 20));
    let next = turn(&bench).await;
    assert_eq!(next.tally.counts.missing, 50);
}

#[tokio::test]
async fn a_delivery_that_github_will_not_make_now_is_asked_for_again_and_stops_no_other() {
    // REDL-07
    for status in [400, 422] {
        let (bench, _, _) = bench();
        for _ in 0..3 {
            bench.happen(&comment(unreachable()));
        }
        bench.pass(300);
        bend_attempts(&bench, 1, status);
        let round = turn(&bench).await;
        assert_eq!((asked(&round).len(), round.tally.counts.lost), (3, 0), "{status}");
        assert_eq!((round.tally.failures, round.tally.misconfigured), (0, 0));
        let again = turn(&bench).await;
        assert_eq!((again.tally.counts.lost, again.tally.counts.recovered), (0, 3));
    }
}

#[tokio::test]
async fn a_delivery_that_is_gone_is_lost_once_and_one_that_may_not_be_asked_for_is_not() {
    // REDL-07, REDL-15: GitHub answers 404 for both.
    let (bench, _, hook) = bench();
    let gone = bench.happen(&comment(unreachable()));
    bench.happen(&comment(unreachable()));
    bench.pass(300);
    let id = id_of(&bench, hook, &gone);
    bench.wire.bend(&format!("/deliveries/{id}"), usize::MAX, |answer| {
        Ok(Answer { status: 404, ..answer })
    });
    let round = turn(&bench).await;
    assert_eq!((round.tally.counts.lost, round.tally.misconfigured), (1, 0));
    bench.happen(&comment(unreachable()));
    bench.pass(300);
    bend_attempts(&bench, usize::MAX, 404);
    let round = turn(&bench).await;
    assert_eq!((round.tally.counts.lost, round.tally.misconfigured), (0, 1));
    assert_eq!(round.tally.errors[0].1.word(), "may_not_redeliver");
    bench.wire.mend();
    bench.pass(600);
    let mended = turn(&bench).await;
    assert_eq!(
        (mended.tally.counts.lost, mended.tally.misconfigured),
        (0, 0),
        "it is not given up"
    );
}

#[tokio::test]
async fn one_delivery_that_may_not_be_asked_for_stops_no_other() {
    // REDL-07
    let (bench, _, hook) = bench();
    let refused = bench.happen(&comment(unreachable()));
    bench.pass(1);
    for _ in 0..3 {
        bench.happen(&comment(unreachable()));
    }
    bench.pass(300);
    let id = id_of(&bench, hook, &refused);
    bench.wire.bend(&format!("/{id}/attempts"), 1, |answer| {
        Ok(Answer { status: 404, ..answer })
    });
    let round = turn(&bench).await;
    assert_eq!((asked(&round).len(), round.tally.counts.lost), (4, 0));
    assert_eq!((round.tally.failures, round.tally.misconfigured), (0, 0));
    let again = turn(&bench).await;
    assert_eq!((again.tally.counts.lost, again.tally.counts.recovered), (0, 4));
}

#[tokio::test]
async fn one_delivery_whose_redelivery_is_refused_stops_no_other_and_is_lost_in_the_end() {
    // REDL-07, invariant 10
    for status in [401, 403] {
        let (bench, _, hook) = bench();
        let refused = bench.happen(&comment(unreachable()));
        bench.pass(1);
        for _ in 0..10 {
            bench.happen(&comment(unreachable()));
        }
        bench.pass(300);
        let id = id_of(&bench, hook, &refused);
        bend_refusals(&bench, &format!("/{id}/attempts"), status);
        let round = turn(&bench).await;
        // The hooks, the log, and each of them.
        assert_eq!(
            (round.tally.counts.requests, round.tally.counts.redeliveries),
            (2 + 11, 10),
            "{status}"
        );
        assert_eq!((round.tally.failures, round.tally.misconfigured), (0, 0), "{status}");
        // Alone, it is as much the credential's fault as its own, and what comes meanwhile is got within the hour.
        let mut lost = 0;
        for _ in 0..75 {
            bench.happen_ago(&comment(unreachable()), 300);
            bench.pass(3_600);
            lost += turn(&bench).await.tally.counts.lost;
        }
        assert_eq!(lost, 1, "{status}");
    }
}

#[tokio::test]
async fn a_credential_that_may_not_redeliver_for_a_day_loses_nothing_and_is_tried_with_few() {
    // REDL-07, invariant 5
    for status in [401, 403, 404] {
        let (bench, log, _) = bench();
        for seconds in (0..30).rev() {
            bench.happen_ago(&comment(unreachable()), 600 + seconds);
        }
        bend_refusals(&bench, "/attempts", status);
        let (mut lost, mut misconfigured) = (0, 0);
        for _ in 0..(24 * 12) {
            let round = bench.round().await;
            // The hooks, the log, and three of them. What may be gone is looked at.
            let requests_max = if status == 404 { 2 + 6 } else { 2 + 3 };
            assert!(round.tally.counts.requests <= requests_max, "{status}");
            lost += round.tally.counts.lost;
            misconfigured += round.tally.misconfigured;
            bench.pass(300);
        }
        assert_eq!(lost, 0, "{status}");
        assert!(misconfigured >= 24, "{status}: {misconfigured}");
        let rows = bench.stand.ledger.inner().due_missing(&log, Timestamp::MAX, 100).await;
        let attempts: u32 = rows.unwrap().iter().map(|row| row.asked).sum();
        assert_eq!(attempts, 0, "{status}: a refusal of all is no attempt at one");
        bench.wire.mend();
        bench.pass(3_600);
        for _ in 0..6 {
            turn(&bench).await;
        }
        assert_eq!(bench.sent().len(), 30, "{status}");
    }
}

#[tokio::test]
async fn the_oldest_that_are_refused_keep_none_behind_them_waiting() {
    // REDL-07, REDL-16
    for status in [403, 502] {
        let config = RecoveryConfig {
            requests_max: 5,
            ..RecoveryConfig::default()
        };
        let (bench, _, hook) = bench_with(config);
        let poison: Vec<Happening> = (0..6).map(|_| bench.happen(&comment(unreachable()))).collect();
        bench.pass(1);
        let good: Vec<Happening> = (0..4).map(|_| bench.happen(&comment(unreachable()))).collect();
        bench.pass(300);
        for happening in &poison {
            let id = id_of(&bench, hook, happening);
            bend_refusals(&bench, &format!("/{id}/attempts"), status);
        }
        for _ in 0..8 {
            turn(&bench).await;
            bench.pass(3_300);
        }
        let mut came = Vec::new();
        for happening in &good {
            came.push(bench.event(happening.event_id().unwrap()).await.is_some());
        }
        assert_eq!(came, [true; 4], "{status}");
    }
}

#[tokio::test]
async fn a_delivery_whose_redelivery_always_fails_stops_no_other_and_is_lost_in_the_end() {
    // REDL-07, invariant 10
    let (bench, _, hook) = bench();
    let poison = bench.happen(&comment(unreachable()));
    bench.pass(1);
    for _ in 0..3 {
        bench.happen(&comment(unreachable()));
    }
    bench.pass(300);
    let id = id_of(&bench, hook, &poison);
    let attempts = format!("/{id}/attempts");
    bench.wire.cut(&attempts, usize::MAX, ErrorClass::ServerFault);
    let round = turn(&bench).await;
    assert_eq!((round.tally.counts.redeliveries, round.tally.failures), (3, 0));
    assert_eq!(bench.sent().len(), 3);
    // At the latest it is lost when GitHub forgets it, and what comes meanwhile is got.
    let mut lost = 0;
    for _ in 0..75 {
        bench.happen_ago(&comment(unreachable()), 300);
        bench.pass(3_600);
        lost += turn(&bench).await.tally.counts.lost;
    }
    assert_eq!((lost, bench.sent().len()), (1, 78));
}

#[tokio::test]
async fn while_github_fails_nothing_counts_as_asked_for() {
    let (bench, _, _) = bench();
    for _ in 0..3 {
        bench.happen(&comment(unreachable()));
    }
    bench.pass(300);
    bench.wire.cut("/attempts", usize::MAX, ErrorClass::ServerFault);
    let mut lost = 0;
    for _ in 0..100 {
        lost += turn(&bench).await.tally.counts.lost;
    }
    assert_eq!(lost, 0);
    bench.wire.mend();
    bench.pass(1_800);
    turn(&bench).await;
    assert_eq!(bench.sent().len(), 3);
}

#[tokio::test]
async fn what_github_forgets_before_it_could_be_asked_for_is_lost_once() {
    // REDL-07
    let (bench, _, _) = bench();
    let old = bench.happen(&comment(unreachable()));
    bench.pass(300);
    bench.wire.cut("/attempts", usize::MAX, ErrorClass::TimedOut);
    turn(&bench).await;
    bench.pass(2 * 86_400);
    let recent = bench.happen(&comment(unreachable()));
    bench.pass(86_400 + 600);
    bench.wire.mend();
    let mut lost = 0;
    for _ in 0..10 {
        lost += turn(&bench).await.tally.counts.lost;
    }
    assert_eq!(lost, 1);
    assert!(bench.event(recent.event_id().unwrap()).await.is_some());
    assert!(bench.event(old.event_id().unwrap()).await.is_none());
}

#[tokio::test]
async fn a_delivery_that_never_comes_is_asked_for_a_bounded_number_of_times() {
    // Invariant 9
    let (bench, _, _) = bench();
    bench.happen(&comment(unreachable()));
    bench.pass(300);
    lock(&bench.fake).set_hook_outage(Some(Outcome::answered(503)));
    let (mut posts, mut lost) = (0, 0);
    let began = bench.now();
    let mut last_asked_after = SignedDuration::ZERO;
    for _ in 0..80 {
        bench.pass(3_000);
        let round = turn(&bench).await;
        let now_asked = asked(&round).len();
        if now_asked > 0 {
            last_asked_after = bench.now().duration_since(began);
        }
        posts += now_asked;
        lost += round.tally.counts.lost;
    }
    assert_eq!((posts, lost), (6, 1));
    // An outage of a day does not use up all tries.
    assert!(last_asked_after > SignedDuration::from_hours(24), "{last_asked_after}");
}

#[tokio::test]
async fn a_delivery_that_was_held_back_may_still_be_on_its_way() {
    // REDL-12
    let (bench, _, _) = bench();
    bench.happen(&comment(lost("OK", 200)));
    bench.wire.bend("/deliveries", usize::MAX, |answer| {
        let text = String::from_utf8(answer.body.clone()).unwrap();
        let body = text.replace("\"throttled_at\":null", "\"throttled_at\":\"2026-11-29T11:40:00Z\"");
        Ok(Answer {
            body: body.into_bytes(),
            ..answer
        })
    });
    bench.pass(300);
    assert_eq!(asked(&turn(&bench).await), [0; 0]);
    assert_eq!(asked(&turn(&bench).await).len(), 1, "it is asked for in the end");
}

#[tokio::test]
async fn logs_that_may_not_be_read_are_errors_with_a_reason_and_no_empty_logs() {
    // REDL-15
    for (part, status, word) in [
        ("/hooks?", 404, "not_found"),
        ("/hooks?", 403, "forbidden"),
        ("/deliveries", 404, "not_found"),
        ("/deliveries", 403, "forbidden"),
        ("/hooks?", 401, "unauthorized"),
    ] {
        let (bench, log, _) = bench();
        bench.happen(&comment(unreachable()));
        bench.pass(300);
        bench.wire.bend(part, 1, move |answer| {
            Ok(Answer {
                status,
                body: br#"{"message":"Not for you"}"#.to_vec(),
                ..answer
            })
        });
        let round = bench.round().await;
        assert_eq!(round.tally.misconfigured, 1, "{part} {status}");
        assert_eq!(round.tally.errors[0].1.word(), word);
        assert_eq!(bench.row(&log).note.as_deref(), Some(word));
        bench.pass(3_601);
        assert_eq!(asked(&bench.round().await).len(), 1, "nothing was passed over");
    }
}

#[tokio::test]
async fn only_hooks_whose_address_ends_in_our_path_are_ours_and_none_is_an_error() {
    // S3-16, REDL-15
    let mut bench = Bench::new();
    bench.add_recovery(HookLog::Repository(repository(APP)), token(), RecoveryConfig::default());
    let repository = HookTarget::Repository(APP.to_owned());
    lock(&bench.fake).add_hook(&repository, "https://elsewhere.example/api/intake/gitlab", "s");
    let round = bench.round().await;
    assert_eq!(round.tally.errors[0].1.word(), "no_hook_of_ours");
    let ours = lock(&bench.fake).add_hook(&repository, "https://forebay.example/api/intake/github/", "s");
    bench.pass(3_601);
    let round = bench.round().await;
    assert_eq!((round.tally.misconfigured, round.asked("/deliveries")), (0, 1));
    assert_eq!(
        round.asked(&format!("/hooks/{ours}/deliveries")),
        1,
        "a slash at its end does not count"
    );
}

#[tokio::test]
async fn the_apps_log_is_read_by_the_apps_right_under_the_hook_id_that_one_delivery_teaches() {
    // REDL-15, S3-16
    let mut bench = Bench::new();
    lock(&bench.fake).install_app("acme");
    let hook = bench.add_hook(&HookTarget::App);
    bench.add_recovery(HookLog::App, app(), RecoveryConfig::default());
    let empty = turn(&bench).await;
    assert_eq!(
        (empty.tally.failures, empty.requests.len()),
        (0, 1),
        "who was never told of anything missed nothing"
    );
    let told = Occasion::of(APP, What::Issue { title: "It".to_owned() });
    let kept = bench.happen(&told);
    bench.deliver().await;
    let missed = bench.happen(&told.hooked(unreachable()));
    bench.pass(300);
    let round = turn(&bench).await;
    assert!(round.requests.iter().all(|asked| asked.caller == "app"));
    assert_eq!((asked(&round).len(), round.asked("/deliveries/")), (1, 2));
    assert!(
        bench
            .stand
            .ledger
            .delivery(&key(hook, &missed))
            .await
            .unwrap()
            .is_some()
    );
    let next = turn(&bench).await;
    assert_eq!(
        (next.asked("/deliveries/"), next.tally.counts.recovered),
        (0, 1),
        "it is learnt once"
    );
    assert!(bench.event(kept.event_id().unwrap()).await.is_some());
    // Nobody else may read it.
    let mut other = Bench::new();
    other.add_recovery(HookLog::App, token(), RecoveryConfig::default());
    assert_eq!(other.round().await.tally.errors[0].1.word(), "unauthorized");
}

#[tokio::test]
async fn an_app_hook_that_its_delivery_does_not_name_is_an_error() {
    // REDL-15
    let mut bench = Bench::new();
    lock(&bench.fake).install_app("acme");
    bench.add_hook(&HookTarget::App);
    bench.add_recovery(HookLog::App, app(), RecoveryConfig::default());
    bench.happen(&Occasion::of(APP, What::Issue { title: "It".to_owned() }).hooked(unreachable()));
    bench.pass(300);
    bench.wire.bend("/deliveries/", usize::MAX, |answer| {
        let text = String::from_utf8(answer.body.clone()).unwrap();
        let body = text.replace("X-GitHub-Hook-ID", "X-Elided").into_bytes();
        Ok(Answer { body, ..answer })
    });
    let round = bench.round().await;
    assert_eq!((round.tally.misconfigured, round.tally.errors.len()), (1, 1));
    assert_eq!(round.tally.errors[0].1.word(), "no_hook_id");
}

#[tokio::test]
async fn what_was_too_large_is_lost_once_and_not_asked_for() {
    // REDL-07, invariant 9
    let (bench, _, _) = bench();
    bench.happen(&comment(lost("Invalid HTTP Response: 413", 413)));
    bench.pass(300);
    let mut lost = 0;
    for _ in 0..5 {
        let round = turn(&bench).await;
        assert_eq!(asked(&round), [0; 0]);
        lost += round.tally.counts.lost;
    }
    assert_eq!(lost, 1);
}

fn fetching() -> RecoveryConfig {
    RecoveryConfig {
        remedy: Remedy::Fetch,
        ..RecoveryConfig::default()
    }
}

#[tokio::test]
async fn where_our_address_is_what_fails_the_payload_is_read_from_the_log() {
    // S3-27
    let (bench, _, hook) = bench_with(fetching());
    let told = bench.happen(&comment(unreachable()));
    let large = bench.happen(&comment(lost("Invalid HTTP Response: 413", 413)));
    bench.pass(300);
    let round = turn(&bench).await;
    assert_eq!(
        (round.tally.failures, round.tally.counts.recovered),
        (0, 2),
        "{:?}",
        round.tally.errors
    );
    assert_eq!((asked(&round), round.written.accepted), (vec![], 2));
    for happening in [&told, &large] {
        let row = bench.event(happening.event_id().unwrap()).await.unwrap();
        assert_eq!(row.first_seen, Net::Recovery);
        let row = bench
            .stand
            .ledger
            .delivery(&key(hook, happening))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(row.delivery.net, Net::Recovery);
    }
    assert_eq!(bench.sent().len(), 2);
    // The real one comes after all, with other bytes: a duplicate, and no conflict.
    let id = id_of(&bench, hook, &told);
    let request = forebay_tests::github::Request {
        method: "POST",
        target: &format!("{BASE}/repos/{APP}/hooks/{hook}/deliveries/{id}/attempts"),
        authorization: Some("Bearer operator"),
        if_none_match: None,
    };
    lock(&bench.fake).handle(&request, bench.now()).unwrap();
    assert_eq!(bench.deliver().await, [200]);
    assert!(
        !bench.stand.metrics.text().contains("\"Conflicts\":1"),
        "{}",
        bench.stand.metrics.text()
    );
    assert_eq!(bench.sent().len(), 2);
}

#[tokio::test]
async fn two_hooks_of_ours_are_two_logs_and_a_happening_that_both_missed_is_one_event() {
    let (bench, _, one) = bench();
    let other = bench.add_hook(&HookTarget::Repository(APP.to_owned()));
    let told = bench.happen(&comment(unreachable()));
    bench.pass(300);
    let round = turn(&bench).await;
    assert_eq!((round.tally.counts.missing, asked(&round).len()), (2, 2));
    for hook in [one, other] {
        assert!(bench.stand.ledger.delivery(&key(hook, &told)).await.unwrap().is_some());
    }
    assert_eq!(bench.sent(), [told.event_id().unwrap()]);
    let mut counted = 0;
    for _ in 0..3 {
        counted += turn(&bench).await.tally.counts.attributed;
    }
    assert_eq!(counted, 1, "and webhooks lost one");
}

#[tokio::test]
async fn what_a_deleted_hook_did_not_bring_is_lost_once_also_where_it_was_the_only_one() {
    // REDL-07, REDL-15
    let (bench, log, hook) = bench();
    for _ in 0..3 {
        bench.happen(&comment(unreachable()));
    }
    bench.pass(300);
    bend_refusals(&bench, "/attempts", 502);
    turn(&bench).await;
    let other = lock(&bench.fake).add_hook(
        &HookTarget::Repository(APP.to_owned()),
        "https://elsewhere.example/api/intake/gitlab",
        "s",
    );
    // A hook that is there with another address may be ours all the same: then it is our address that is wrong.
    let hooks = |ids: &[u64]| {
        let hook = |id: &u64| json!({ "id": id, "config": { "url": "https://elsewhere.example/" } });
        let hooks: Vec<Value> = ids.iter().map(hook).collect();
        Answer {
            status: 200,
            body: serde_json::to_vec(&hooks).unwrap(),
            ..Answer::default()
        }
    };
    let mut lost = [0, 0];
    for (lost, ids) in lost.iter_mut().zip([vec![hook, other], vec![other]]) {
        bench.wire.mend();
        bench.wire.cut_as("/hooks?", usize::MAX, hooks(&ids));
        for _ in 0..4 {
            let round = turn(&bench).await;
            if !round.requests.is_empty() || !round.tally.errors.is_empty() {
                assert_eq!(bench.row(&log).note.as_deref(), Some("no_hook_of_ours"));
            }
            *lost += round.tally.counts.lost;
            bench.pass(3_300);
        }
    }
    assert_eq!(lost, [0, 3]);
}

#[tokio::test]
async fn a_hook_whose_log_always_fails_holds_no_others_pass_up() {
    // REDL-15, REDL-16
    let config = RecoveryConfig {
        pages_max: 3,
        ..RecoveryConfig::default()
    };
    let (bench, _, one) = bench_with(config);
    for seconds in (0..700).rev() {
        bench.happen_ago(&comment(lost("OK", 200)), 600 + seconds);
    }
    let other = bench.add_hook(&HookTarget::Repository(APP.to_owned()));
    assert!(one < other);
    bench
        .wire
        .bend(&format!("/hooks/{other}/deliveries"), usize::MAX, |answer| {
            Ok(Answer { status: 502, ..answer })
        });
    let mut missing = 0;
    for _ in 0..12 {
        missing += turn(&bench).await.tally.counts.missing;
        bench.pass(1_800);
    }
    assert_eq!(
        missing, 700,
        "a failure of one log does not undo how far another has been read"
    );
}

#[tokio::test]
async fn a_place_in_a_log_that_never_answers_keeps_nothing_newer_from_being_found() {
    // REDL-15, REDL-16, invariant 10
    let no_json = |answer| {
        Ok(Answer {
            body: b"<html>".to_vec(),
            ..answer
        })
    };
    let refused = |answer| Ok(Answer { status: 403, ..answer });
    type Bend = fn(Answer) -> Result<Answer, ErrorClass>;
    let bends: [(&str, Bend); 4] = [
        ("a host that is not GitHub's any more", |_| Err(ErrorClass::Denied)),
        ("forbidden", refused),
        ("fails", |_| Err(ErrorClass::ServerFault)),
        ("no JSON", no_json),
    ];
    for (name, bend) in bends {
        let config = RecoveryConfig {
            pages_max: 1,
            ..RecoveryConfig::default()
        };
        let (bench, log, _) = bench_with(config);
        for seconds in (0..150).rev() {
            bench.happen_ago(&comment(unreachable()), 600 + seconds);
        }
        turn(&bench).await;
        assert!(bench.cursor(&log).unwrap().contains("cursor="), "{name}");
        bench.wire.bend("cursor=", usize::MAX, bend);
        let (mut found, mut failed) = (0, 0);
        for minute in 0..(48 * 12) {
            if minute % 12 == 0 {
                bench.happen(&comment(unreachable()));
            }
            let round = bench.round().await;
            bench.deliver().await;
            bench.pass(300);
            found += round.tally.counts.missing;
            failed += round.tally.failures + round.tally.misconfigured;
        }
        assert!(found >= 47, "{name}: {found} of 48");
        assert!(failed > 10, "{name}: {failed}");
        // Behind it, nothing was taken for read.
        bench.wire.mend();
        bench.pass(3_600);
        for _ in 0..4 {
            found += turn(&bench).await.tally.counts.missing;
        }
        assert_eq!(found, 48 + 50, "{name}");
    }
}

#[tokio::test]
async fn a_place_in_a_log_is_kept_without_the_host_that_it_was_read_from() {
    let (bench, log, hook) = bench_with(RecoveryConfig {
        pages_max: 1,
        ..RecoveryConfig::default()
    });
    for seconds in (0..150).rev() {
        bench.happen_ago(&comment(unreachable()), 600 + seconds);
    }
    turn(&bench).await;
    let cursor = bench.cursor(&log).unwrap();
    let path = format!("\"next\":\"/repos/{APP}/hooks/{hook}/deliveries?");
    assert!(cursor.contains(&path) && !cursor.contains(BASE), "{cursor}");
    assert_eq!(turn(&bench).await.tally.counts.missing, 50);
}

#[tokio::test]
async fn a_page_of_which_nothing_can_be_read_does_not_end_the_pass() {
    // Invariants 6 and 10
    let (bench, _, _) = bench();
    for seconds in (0..150).rev() {
        bench.happen_ago(&comment(unreachable()), 600 + seconds);
    }
    bench.wire.bend("/deliveries?", 1, |answer| {
        let text = String::from_utf8(answer.body.clone()).unwrap();
        let body = text.replace("\"delivered_at\"", "\"at\"").into_bytes();
        Ok(Answer { body, ..answer })
    });
    let round = turn(&bench).await;
    assert_eq!((round.tally.counts.malformed, round.tally.counts.missing), (100, 50));
}

#[tokio::test]
async fn a_crash_before_what_is_missing_is_noted_passes_nothing_over() {
    // Invariant 6
    let (bench, _, _) = bench();
    for seconds in (0..150).rev() {
        bench.happen_ago(&comment(unreachable()), 600 + seconds);
    }
    bench
        .stand
        .ledger
        .once(Call::NoteMissing, Script::Fail(ErrorClass::Throttled));
    let failed = turn(&bench).await;
    assert_eq!((failed.tally.failures, failed.tally.counts.missing), (1, 0));
    assert_eq!(turn(&bench).await.tally.counts.missing, 150);
}

#[tokio::test]
async fn only_events_that_are_asked_for_are_recovered() {
    let config = RecoveryConfig {
        events: ["issues".to_owned()].into(),
        ..RecoveryConfig::default()
    };
    let (bench, _, _) = bench_with(config);
    bench.happen(&comment(unreachable()));
    let issue = Occasion::of(APP, What::Issue { title: "It".to_owned() });
    let issue = bench.happen(&issue.hooked(unreachable()));
    bench.pass(300);
    assert_eq!(asked(&turn(&bench).await).len(), 1);
    assert_eq!(bench.events().await, [issue.event_id().unwrap()]);
}

#[tokio::test]
async fn a_delivery_of_a_moment_ago_may_still_be_on_its_way() {
    let (bench, _, _) = bench();
    bench.happen(&comment(Hooked::Delivered));
    bench.happen(&comment(lost("OK", 200)));
    bench.pass(100);
    let round = bench.round().await;
    assert_eq!((round.tally.counts.missing, asked(&round)), (0, vec![]));
    bench.deliver().await;
    bench.pass(301);
    assert_eq!(asked(&turn(&bench).await).len(), 1);
}
