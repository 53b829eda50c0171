//! What a feed shows is taken: all of it, once, whatever page it is on and whoever told of it before.

use forebay_core::api::Answer;
use forebay_core::event::{Kind, Net};
use forebay_core::ledger::Status;
use forebay_core::ports::ErrorClass;
use forebay_core::source::github::FeedKind;
use forebay_tests::github::{HookTarget, Hooked, Occasion, Outcome, What, lock};
use forebay_tests::polling::{BASE, Bench, token};
use forebay_tests::samples::secs;
use forebay_tests::scripted::{Call, Script};
use forebay_tests::webhook::Request;

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
    happened
        .map(|happened| happened.event_id().unwrap().to_owned())
        .collect()
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
    // COND-09, S3-18, S3-23, invariant 6: a failed offer leaves no trace, and the validator is not stored before everything of its page is durable.
    let bench = bench();
    bench.round().await;
    bench.pass(60);
    let expected = comments(&bench, 3, &Hooked::Silent);
    let throttled = Script::Fail(ErrorClass::Throttled);
    bench
        .stand
        .ledger
        .once(Call::AdmitEvent, Script::Pass(bench.stand.time.clone(), secs(0)));
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
async fn a_poller_that_dies_in_the_middle_leaves_what_it_did_not_write_to_the_next_one() {
    // COND-09, SCHD-03
    let bench = bench();
    bench.round().await;
    bench.pass(60);
    let expected = comments(&bench, 3, &Hooked::Silent);
    let nothing = Script::Pass(bench.stand.time.clone(), secs(0));
    bench.stand.ledger.once(Call::AdmitEvent, nothing);
    bench.stand.ledger.once(Call::AdmitEvent, Script::Hang);
    let dying = async {
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        round = bench.round() => assert!(round.tally.polls == 0, "it never ends"),
        () = dying => {}
    }
    assert_eq!(bench.events().await.len(), 1);
    assert_eq!(bench.round().await.tally.polls, 0, "its lease is not over");
    bench.pass(60);
    let next = bench.round().await;
    assert_eq!((next.written.accepted, next.written.duplicates), (2, 1));
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

/// Closes pull request 1 at once, as hooks tell it.
fn closed(hooked: Hooked) -> Occasion {
    let closed = Occasion::of(APP, What::Closed { number: 1 }).hooked(hooked);
    // An item is written a little after what it tells of.
    closed.written_after(secs(2))
}

fn reopened() -> Occasion {
    Occasion::of(APP, What::Reopened { number: 1 }).hooked(Hooked::Silent)
}

#[tokio::test]
async fn a_happening_that_webhook_and_feed_tell_of_is_one_event_and_one_message() {
    // FEED-05, S1-01
    let bench = bench();
    bench.add_hook(&HookTarget::Repository(APP.to_owned()));
    let told = bench.happen(&comment().hooked(Hooked::Delivered));
    let later = bench.happen(&comment().hooked(Hooked::Delivered));
    let id = told.event_id().unwrap();
    // One is heard of by webhook first, the other by the feed.
    let posts = lock(&bench.fake).take_pending(bench.now());
    bench.round().await;
    assert_eq!(bench.sent(), [id, later.event_id().unwrap()]);
    // What ingestor and writer make of a source's item is a row like any other.
    let row = bench.event(id).await.unwrap();
    assert_eq!(
        (row.event.kind, row.event.subject.to_string().as_str()),
        (Kind::Comment, "acme/app#1")
    );
    assert_eq!((row.state.status, row.first_seen), (Status::Processed, Net::Feed));
    for post in posts {
        lock(&bench.fake).record(post.delivery, Outcome::timed_out(), secs(10), bench.now());
    }
    bench.happen(&comment().hooked(Hooked::Delivered));
    assert_eq!(bench.deliver().await, [202]);
    bench.pass(60);
    let round = bench.round().await;
    assert_eq!((round.written.accepted, round.written.duplicates), (0, 1));
    assert_eq!((bench.sent().len(), bench.events().await.len()), (3, 3));
    // The other way round: the feed was first, and the webhook comes late.
    bench.pass(60);
    let first = bench.happen(&comment().hooked(Hooked::Delivered));
    bench.round().await;
    assert_eq!(bench.deliver().await, [202]);
    assert_eq!((bench.sent().len(), bench.events().await.len()), (4, 4));
    let row = bench.event(first.event_id().unwrap()).await.unwrap();
    assert_eq!(row.first_seen, Net::Feed);
    assert_eq!(row.seen_by, [Net::Feed, Net::Webhook].into());
}

#[tokio::test]
async fn a_pull_request_that_is_closed_again_has_an_id_for_each_time_and_they_are_the_webhooks() {
    let bench = bench();
    bench.add_hook(&HookTarget::Repository(APP.to_owned()));
    let first = bench.happen_ago(&closed(Hooked::Silent), 900);
    bench.happen_ago(&reopened(), 600);
    let second = bench.happen_ago(&closed(Hooked::Delivered), 300);
    bench.happen_ago(&reopened(), 200);
    bench.deliver().await;
    let round = bench.round().await;
    assert_eq!((round.written.accepted, round.written.duplicates), (1, 1));
    assert_ne!(first.event_id(), second.event_id());
    for closing in [first, second] {
        let row = bench.event(closing.event_id().unwrap()).await.unwrap();
        // ORD-03: when it happened, and not when it was heard of.
        assert_eq!(row.event.occurred_at, Some(closing.at));
    }
    assert_eq!(bench.events().await.len(), 2);
}

#[tokio::test]
async fn what_is_delivered_again_after_a_merge_says_that_it_happened_before() {
    // ORD-03: the reopening is no event, and the closing before it is older than the merge, whenever either arrives.
    let bench = bench();
    bench.add_hook(&HookTarget::Repository(APP.to_owned()));
    let older = bench.happen_ago(&closed(Hooked::Delivered).shown_after(None), 7_200);
    bench.happen_ago(&reopened().hooked(Hooked::Delivered).shown_after(None), 3_600);
    let merged = Occasion::of(APP, What::Merged { number: 1 }).shown_after(None);
    let merged = bench.happen(&merged);
    let mut posts = lock(&bench.fake).take_pending(bench.now());
    posts.reverse();
    for post in posts {
        let headers = post.headers.iter();
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.clone()));
        let request = Request {
            headers: headers.collect(),
            body: post.body.into_bytes(),
        };
        assert_eq!(bench.stand.post(&request).await.status(), 202);
        bench.pass(60);
    }
    let [newer, older] = [merged, older].map(|happened| (happened.event_id().unwrap().to_owned(), happened.at));
    assert_eq!(bench.events().await.len(), 2);
    for (id, at) in [&newer, &older] {
        assert_eq!(bench.event(id).await.unwrap().event.occurred_at, Some(*at));
    }
    let messages = bench.stand.inboxes.all().into_iter();
    let told = messages.map(|message| serde_json::from_str::<serde_json::Value>(&message.body).unwrap());
    let mut told: Vec<(String, jiff::Timestamp)> = told
        .map(|event| {
            let text = |name: &str| event[name].as_str().unwrap().to_owned();
            (text("id"), text("time").parse().unwrap())
        })
        .collect();
    // The merge goes to two inboxes.
    told.dedup();
    assert_eq!(told, [newer, older], "whoever reads it can put it in order");
}

#[tokio::test]
async fn three_pages_are_all_there_is_and_a_refusal_behind_them_is_an_end() {
    // FEED-08
    let bench = bench();
    comments(&bench, 310, &Hooked::Silent);
    let beyond = format!("{BASE}/repositories/1/events?per_page=100&page=4");
    bench.wire.bend("page=3", usize::MAX, move |answer| {
        let next = Some(beyond.replace("/repositories/1", "/repos/acme/app"));
        Ok(Answer { next, ..answer })
    });
    let round = bench.round().await;
    let statuses: Vec<_> = round.requests.iter().map(|asked| asked.status).collect();
    assert_eq!(statuses, [Some(200), Some(200), Some(200), Some(422)]);
    assert_eq!((round.written.accepted, round.tally.failures), (300, 0));
    assert_eq!(
        round.tally.counts.gaps, 0,
        "at first contact nothing can have been missed"
    );
    // It ended well: its validator is remembered.
    bench.pass(60);
    assert_eq!(bench.round().await.tally.counts.not_modified, 1);
    // After an outage of more than the feed holds something is gone, and that is counted.
    bench.pass(86_400);
    comments(&bench, 301, &Hooked::Silent);
    let round = bench.round().await;
    assert_eq!((round.written.accepted, round.tally.counts.gaps), (300, 1));
}

#[tokio::test]
async fn a_page_that_is_shorter_than_asked_for_is_not_the_last_one() {
    // FEED-10, S3-17
    let bench = bench();
    comments(&bench, 150, &Hooked::Silent);
    bench.wire.bend("/events", 1, |answer| {
        let mut items: Vec<serde_json::Value> = serde_json::from_slice(&answer.body).unwrap();
        items.truncate(30);
        let body = serde_json::to_vec(&items).unwrap();
        Ok(Answer { body, ..answer })
    });
    let round = bench.round().await;
    assert_eq!((round.requests.len(), round.written.accepted), (2, 80));
    let per_page: Vec<_> = round
        .requests
        .iter()
        .map(|asked| asked.target.contains("per_page=100"))
        .collect();
    assert_eq!(per_page, [true, true]);
}

#[tokio::test]
async fn a_renamed_repository_is_followed_and_what_is_not_followed_is_reported_and_not_read() {
    // FEED-13, but for its last clause: routes know repositories by the names that they are written with, and no id. What happens
    // under a new name is kept, and nobody's until `ROUTES` has that name. A name alone is no proof of an owner: once a
    // repository is renamed, its old name is free for anybody, and a former name that followed by itself would send a stranger's
    // events to the owner's inbox.
    let bench = bench();
    let before = comments(&bench, 1, &Hooked::Silent);
    bench.round().await;
    lock(&bench.fake).rename(APP, "acme/shop");
    bench.pass(60);
    let after = bench.happen(&Occasion::of("acme/shop", What::comment(1, "Look")));
    let round = bench.round().await;
    let statuses: Vec<_> = round.requests.iter().map(|asked| asked.status).collect();
    assert_eq!(statuses, [Some(301), Some(200)]);
    let [kept, found] = [&before[0], after.event_id().unwrap()];
    assert!(bench.events().await.iter().all(|id| id == kept || id == found));
    assert_eq!((round.written.accepted, round.written.delivered), (1, 0));
    assert_eq!(bench.sent(), [kept]);
    // Where the way leads off the API's host, it is not gone.
    bench.pass(60);
    bench.wire.bend("/events", 1, |answer| {
        let body = br#"{"message":"Moved Permanently","url":"https://elsewhere.example/"}"#.to_vec();
        Ok(Answer {
            status: 301,
            body,
            ..answer
        })
    });
    let moved = bench.round().await;
    assert_eq!((moved.tally.misconfigured, moved.written.accepted), (1, 0));
    let (_, error) = &moved.tally.errors[0];
    assert_eq!(error.word(), "moved");
}

#[tokio::test]
async fn a_repository_that_is_not_there_is_tried_again_ever_more_slowly_and_holds_no_other_up() {
    // FEED-14
    let mut bench = bench();
    lock(&bench.fake).add_repository("acme/closed");
    lock(&bench.fake).make_private("acme/closed", &[]);
    let closed = bench.add_feed(FeedKind::Events, "acme/closed", token());
    let told = comments(&bench, 1, &Hooked::Silent);
    let round = bench.round().await;
    assert_eq!((round.tally.polls, round.tally.misconfigured), (2, 1));
    assert_eq!(bench.sent(), told);
    assert_eq!(bench.row(&closed).note.as_deref(), Some("not_found"));
    assert_eq!(bench.cursor(&closed), None, "it is no empty feed");
    let mut asked_in = [0; 3];
    for hour in &mut asked_in {
        for _ in 0..60 {
            bench.pass(60);
            *hour += bench.round().await.asked("acme/closed");
        }
    }
    assert!((2..=6).contains(&asked_in[0]), "{asked_in:?}");
    assert!((1..=2).contains(&asked_in[2]), "{asked_in:?}");
    // Nothing of what happened meanwhile is lost once it may be read.
    lock(&bench.fake).make_private("acme/closed", &["token"]);
    let opened = Occasion::of("acme/closed", What::pull_request("fix")).hooked(Hooked::Silent);
    let opened = bench.happen(&opened);
    bench.pass(3_600);
    bench.round().await;
    assert!(bench.event(opened.event_id().unwrap()).await.is_some());
}

#[tokio::test]
async fn an_item_that_cannot_be_read_fails_alone() {
    // Invariant 10, S3-23: an item without an id is refused, and leaves no event.
    let bench = bench();
    comments(&bench, 2, &Hooked::Silent);
    bench.wire.bend("/events", 1, |answer| {
        let mut items: Vec<serde_json::Value> = serde_json::from_slice(&answer.body).unwrap();
        items.insert(1, serde_json::json!({"id": 7, "type": null}));
        items.insert(0, serde_json::json!("?"));
        let body = serde_json::to_vec(&items).unwrap();
        Ok(Answer { body, ..answer })
    });
    let round = bench.round().await;
    assert_eq!((round.written.accepted, round.tally.counts.malformed), (2, 2));
    assert_eq!(bench.events().await.len(), 2);
}

#[tokio::test]
async fn an_item_that_cannot_be_read_is_counted_once_and_its_page_is_covered_all_the_same() {
    // Invariant 10
    let bench = bench();
    comments(&bench, 250, &Hooked::Silent);
    bench.wire.bend("/repos/acme/app/events?", usize::MAX, |answer| {
        let Ok(mut items) = serde_json::from_slice::<Vec<serde_json::Value>>(&answer.body) else {
            return Ok(answer);
        };
        items.push(serde_json::json!({"id": 7, "type": "IssuesEvent"}));
        let body = serde_json::to_vec(&items).unwrap();
        Ok(Answer { body, ..answer })
    });
    assert_eq!(bench.round().await.tally.counts.malformed, 1);
    for _ in 0..10 {
        bench.pass(60);
        bench.happen(&comment());
        let round = bench.round().await;
        // The first page shows one that is new, and the second one nothing.
        assert_eq!((round.tally.counts.malformed, round.requests.len()), (0, 2));
    }
}

#[tokio::test]
async fn a_feed_takes_what_a_webhook_takes() {
    // PAY-22
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let odd = [
        r#""cut \ud83d""#.to_owned(),
        format!(r#""Look","x":{deep}"#),
        r#""Look","x":1e999"#.to_owned(),
        format!(r#""Look","x":{}"#, "9".repeat(400)),
    ];
    for text in odd {
        let bench = bench();
        let told = comments(&bench, 1, &Hooked::Silent);
        let said = text.clone();
        bench.wire.bend("/repos/acme/app/events?", 1, move |answer| {
            let body = String::from_utf8(answer.body).unwrap();
            let body = body.replace("\"Look\"", &said).into_bytes();
            Ok(Answer { body, ..answer })
        });
        let round = bench.round().await;
        assert_eq!((round.written.accepted, round.tally.counts.malformed), (1, 0), "{text}");
        assert_eq!(bench.sent(), told, "{text}");
    }
}

#[tokio::test]
async fn a_page_that_is_no_list_is_a_failure_and_nothing_of_it_is_remembered() {
    // S3-18
    let bench = bench();
    let told = comments(&bench, 1, &Hooked::Silent);
    bench.wire.bend("/events", 1, |answer| {
        let body = b"<html>".to_vec();
        Ok(Answer { body, ..answer })
    });
    let round = bench.round().await;
    assert_eq!((round.tally.failures, round.written.accepted), (1, 0));
    bench.pass(600);
    let next = bench.round().await;
    assert_eq!((next.requests[0].status, bench.sent()), (Some(200), told));
}

#[tokio::test]
async fn comments_of_ignored_actors_are_recorded_and_not_sent_and_the_backlog_is_skipped_and_counted() {
    // S3-21
    let bench = bench();
    bench.happen_ago(&comment(), 25 * 3_600);
    bench.happen(&comment().by("Agent-Bot[bot]"));
    let sent = bench.happen(&comment());
    let round = bench.round().await;
    assert_eq!((round.written.accepted, round.tally.counts.skipped), (2, 1));
    assert_eq!((round.written.unrouted, round.written.delivered), (1, 1));
    assert_eq!(
        (bench.events().await.len(), bench.sent()),
        (2, vec![sent.event_id().unwrap().to_owned()])
    );
    bench.pass(60);
    assert_eq!(bench.round().await.tally.counts.skipped, 0, "it is skipped once");
}

#[tokio::test]
async fn what_was_skipped_at_first_contact_stays_skipped_when_everything_is_read_again() {
    // S3-21
    let bench = bench();
    bench.happen_ago(&comment(), 25 * 3_600);
    for _ in 0..48 {
        bench.round().await;
        bench.pass(3_600);
    }
    assert_eq!(bench.events().await, [""; 0]);
}

#[tokio::test]
async fn a_list_that_does_not_fit_one_turn_is_read_on_from_where_it_stopped() {
    let bench = bench();
    let expected = comments(&bench, 250, &Hooked::Silent);
    bench.wire.cut("page=3", 1, ErrorClass::TimedOut);
    let first = bench.round().await;
    assert_eq!((first.written.accepted, first.tally.emitted), (200, 1));
    bench.pass(61);
    // The first page has not changed: what is behind the place comes next, and nothing in between.
    let second = bench.round().await;
    assert_eq!((second.written.accepted, second.written.duplicates), (50, 0));
    assert_eq!(second.requests.len(), 2);
    assert_eq!(bench.sent().len(), expected.len());
    bench.pass(61);
    let third = bench.round().await;
    assert_eq!((third.requests.len(), third.tally.counts.not_modified), (1, 1));
}

#[tokio::test]
async fn a_place_that_cannot_be_read_again_is_given_up_and_counts_as_a_gap() {
    let bench = bench();
    comments(&bench, 250, &Hooked::Silent);
    bench
        .wire
        .bend("page=3", 2, |answer| Ok(Answer { status: 404, ..answer }));
    assert_eq!(bench.round().await.written.accepted, 200);
    bench.pass(61);
    let given_up = bench.round().await;
    assert_eq!((given_up.written.accepted, given_up.tally.counts.gaps), (0, 1));
    // It is not waited at: the feed is as it was, and the next reading of all pages finds what is behind.
    bench.pass(61);
    let unchanged = bench.round().await;
    assert_eq!((unchanged.requests.len(), unchanged.tally.counts.not_modified), (1, 1));
    bench.pass(3_600);
    assert_eq!(bench.round().await.written.accepted, 50);
}
