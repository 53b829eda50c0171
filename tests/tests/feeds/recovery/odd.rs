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
