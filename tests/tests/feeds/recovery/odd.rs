//! Odd answers: one of them costs no delivery, and one log that cannot be read costs no other anything.

use super::*;

/// Changes each thing of the lists that this part of an address shows.
fn bend_each(bench: &Bench, part: &str, times: usize, bend: impl Fn(&mut Value) + Send + 'static) {
    bench.wire.bend(part, times, move |answer| {
        let Ok(mut things) = serde_json::from_slice::<Vec<Value>>(&answer.body) else {
            return Ok(answer);
        };
        things.iter_mut().for_each(&bend);
        let body = serde_json::to_vec(&things).unwrap();
        Ok(Answer { body, ..answer })
    });
}

#[tokio::test]
async fn one_hook_whose_log_always_refuses_slows_no_other_down() {
    // REDL-15, REDL-16
    for status in [403, 404, 502] {
        let (bench, log, one) = bench();
        for seconds in (0..200).rev() {
            bench.happen_ago(&comment(unreachable()), 600 + seconds);
        }
        let two = bench.add_hook(&HookTarget::Repository(APP.to_owned()));
        bend_refusals(&bench, &format!("/hooks/{two}/deliveries"), status);
        let mut got = 0;
        let mut troubled = 0;
        for _ in 0..15 {
            let round = turn(&bench).await;
            assert!(round.asked(&format!("/hooks/{one}/deliveries?")) > 0, "{status}");
            got += round.tally.counts.redeliveries;
            troubled += round.tally.failures + round.tally.misconfigured;
        }
        assert_eq!(got, 200, "{status}: twenty in each turn");
        assert_eq!(troubled, 15, "{status}: it is told each time");
        let note = bench.row(&log).note;
        assert!(note.is_some(), "{status}: and stands in the row");
    }
}

#[tokio::test]
async fn one_unreadable_answer_loses_nothing_that_is_fetched() {
    for body in [
        "<html>Unicorn!</html>",
        "{\"request\":{\"headers\":{},\"payl",
        "",
        "{\"message\":\"odd\"}",
    ] {
        let (bench, _, _) = bench_with(fetching());
        let told = bench.happen(&comment(unreachable()));
        bench.pass(300);
        bench.wire.bend("/deliveries/", 1, move |answer| {
            let body = body.as_bytes().to_vec();
            Ok(Answer { body, ..answer })
        });
        let mut lost = 0;
        for _ in 0..5 {
            lost += turn(&bench).await.tally.counts.lost;
            bench.pass(600);
        }
        assert_eq!(lost, 0, "{body}");
        assert!(bench.event(told.event_id().unwrap()).await.is_some(), "{body}");
    }
}

#[tokio::test]
async fn a_payload_that_github_does_not_keep_is_lost_once() {
    let (bench, _, _) = bench_with(fetching());
    bench.happen(&comment(unreachable()));
    bench.pass(300);
    bench.wire.bend("/deliveries/", usize::MAX, |answer| {
        let mut detail: Value = serde_json::from_slice(&answer.body).unwrap();
        detail["request"]["payload"] = Value::Null;
        let body = serde_json::to_vec(&detail).unwrap();
        Ok(Answer { body, ..answer })
    });
    let mut lost = 0;
    for _ in 0..3 {
        lost += turn(&bench).await.tally.counts.lost;
    }
    assert_eq!(lost, 1);
}

#[tokio::test]
async fn an_entry_is_got_whatever_stands_in_what_need_not_be_known_of_it() {
    for (name, odd) in [
        ("status_code", json!(99_999)),
        ("status_code", json!(502.5)),
        ("status_code", json!("502")),
        ("status_code", json!(-1)),
        ("status_code", json!({ "code": 502 })),
        ("throttled_at", json!(0)),
    ] {
        let (bench, _, _) = bench();
        bench.happen(&comment(unreachable()));
        bench.pass(900);
        let told = odd.clone();
        bend_each(&bench, "/deliveries?", usize::MAX, move |entry| {
            entry[name] = told.clone();
        });
        let round = turn(&bench).await;
        let counts = round.tally.counts;
        assert_eq!((counts.missing, counts.malformed), (1, 0), "{name} {odd}");
        assert_eq!(counts.redeliveries, 1, "{name} {odd}");
    }
}

/// Three are missing, and none could be asked for; an hour passes.
async fn three_missing(bench: &Bench) {
    for _ in 0..3 {
        bench.happen(&comment(unreachable()));
    }
    bench.pass(300);
    bench.wire.cut("/attempts", 3, ErrorClass::ServerFault);
    assert!(turn(bench).await.tally.counts.missing >= 3);
    bench.wire.mend();
    bench.pass(3_600);
}

/// What is lost, and what of the three was got, in five turns of an hour.
async fn five_turns(bench: &Bench) -> (u64, usize) {
    let mut lost = 0;
    for _ in 0..5 {
        lost += turn(bench).await.tally.counts.lost;
        bench.pass(3_300);
    }
    (lost, bench.sent().len())
}

#[tokio::test]
async fn one_list_that_shows_no_hook_loses_nothing() {
    // REDL-15
    let (bench, _, _) = bench();
    three_missing(&bench).await;
    bench.wire.bend("/hooks?", 1, |answer| {
        let body = b"[]".to_vec();
        Ok(Answer { body, ..answer })
    });
    assert_eq!(five_turns(&bench).await, (0, 3));
}

#[tokio::test]
async fn a_hook_that_points_elsewhere_for_a_moment_loses_nothing_also_beside_another() {
    // REDL-15
    let (bench, _, one) = bench();
    bench.add_hook(&HookTarget::Repository(APP.to_owned()));
    three_missing(&bench).await;
    bend_each(&bench, "/hooks?", 1, move |hook| {
        if hook["id"] == json!(one) {
            hook["config"]["url"] = json!("https://elsewhere.example/");
        }
    });
    assert_eq!(five_turns(&bench).await, (0, 3));
}

#[tokio::test]
async fn a_hook_that_cannot_be_read_stops_no_other_and_loses_nothing() {
    // REDL-15, invariant 10
    for (name, odd) in [
        ("config", json!({ "url": 5 })),
        ("config", json!(5)),
        ("id", json!("odd")),
    ] {
        let (bench, _, one) = bench();
        let two = bench.add_hook(&HookTarget::Repository(APP.to_owned()));
        three_missing(&bench).await;
        let told = odd.clone();
        bend_each(&bench, "/hooks?", 1, move |hook| {
            if hook["id"] == json!(one) {
                hook[name] = told.clone();
            }
        });
        let round = turn(&bench).await;
        assert_eq!(round.asked(&format!("/hooks/{two}/deliveries?")), 1, "{name} {odd}");
        assert_eq!(round.tally.counts.lost, 0, "{name} {odd}");
        assert_eq!(five_turns(&bench).await, (0, 3), "{name} {odd}");
    }
}

#[tokio::test]
async fn what_one_hook_is_refused_uses_up_no_attempts_while_another_is_not() {
    // REDL-07
    let (bench, log, one) = bench();
    bench.add_hook(&HookTarget::Repository(APP.to_owned()));
    bend_refusals(&bench, &format!("/hooks/{one}/deliveries/"), 403);
    for _ in 0..48 {
        bench.happen_ago(&comment(unreachable()), 300);
        assert_eq!(turn(&bench).await.tally.counts.lost, 0);
        bench.pass(1_500);
    }
    // What is refused makes room for what is not.
    for _ in 0..5 {
        turn(&bench).await;
    }
    let rows = bench.stand.ledger.inner().due_missing(&log, Timestamp::MAX, 100).await;
    let rows = rows.unwrap();
    let refused = rows.iter().filter(|row| row.key.hook.as_str() == one.to_string());
    assert_eq!(refused.map(|row| row.asked).sum::<u32>(), 0);
    assert_eq!(bench.sent().len(), 48, "the other hook brought each");
}

#[tokio::test]
async fn a_log_that_goes_in_a_circle_keeps_no_other_from_being_read() {
    // REDL-16, invariant 10
    let (bench, _, one) = bench();
    bench.add_hook(&HookTarget::Repository(APP.to_owned()));
    bench.happen_ago(&comment(unreachable()), 600);
    bench
        .wire
        .bend(&format!("/hooks/{one}/deliveries?"), usize::MAX, move |answer| {
            let next = format!("{BASE}/repos/{APP}/hooks/{one}/deliveries?per_page=100");
            Ok(Answer {
                next: Some(next),
                ..answer
            })
        });
    let mut missing = 0;
    for _ in 0..3 {
        missing += turn(&bench).await.tally.counts.missing;
    }
    assert_eq!(missing, 2);
}

#[tokio::test]
async fn a_clock_that_is_ahead_of_github_passes_no_delivery_over() {
    // Invariant 6
    let (bench, _, _) = bench();
    turn(&bench).await;
    bench.pass(6 * 3_600);
    bench.wire.bend("/deliveries?", 1, |answer| {
        let date = answer.date.map(|date| date - SignedDuration::from_hours(6));
        Ok(Answer { date, ..answer })
    });
    turn(&bench).await;
    bench.pass(-6 * 3_600);
    bench.happen(&comment(unreachable()));
    let mut missing = 0;
    for _ in 0..100 {
        missing += turn(&bench).await.tally.counts.missing;
    }
    assert_eq!(missing, 1);
}
