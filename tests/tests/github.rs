//! The fake GitHub itself: that it tells of what happens as GitHub does, and refuses as GitHub does.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use forebay_core::api::{Answer, Api as _, Credential, Limits, Method, Right, Standing};
use forebay_core::delivery::{DeliveryKey, EventName};
use forebay_core::github::{Envelope, Meaning, read};
use forebay_core::ports::ErrorClass;
use forebay_core::target::TargetKey;
use forebay_tests::fakes::ManualTime;
use forebay_tests::github::{
    FakeGithub, Happening, HookTarget, Hooked, Impossible, InProcess, Occasion, Outage, Outcome, Post, Reply, Request,
    Secondary, What, lock,
};
use forebay_tests::samples::{at, secs};
use jiff::SignedDuration;
use serde_json::{Value, json};

const BASE: &str = "https://api.github.com";
const APP: &str = "acme/app";

/// An organization's repository with pull request 1 and issue 2, which nothing tells of.
fn github() -> FakeGithub {
    let mut fake = FakeGithub::new(BASE, 0);
    fake.add_organization("acme");
    fake.add_repository(APP);
    for what in [What::pull_request("fix/overflow"), issue()] {
        let silent = Occasion::of(APP, what).hooked(Hooked::Silent).shown_after(None);
        fake.happen(&silent, at(-600)).unwrap();
    }
    fake
}

fn issue() -> What {
    let title = "It overflows".to_owned();
    What::Issue { title }
}

/// Lets `what` happen in `acme/app`, `seconds` after the tests' zero.
fn happen(fake: &mut FakeGithub, what: What, seconds: i64) -> Happening {
    fake.happen(&Occasion::of(APP, what), at(seconds)).unwrap()
}

/// The answer to `GET target` by `caller`.
fn get(fake: &mut FakeGithub, caller: &str, target: &str, seconds: i64) -> Reply {
    conditional(fake, caller, target, None, seconds)
}

fn conditional(fake: &mut FakeGithub, caller: &str, target: &str, etag: Option<&str>, seconds: i64) -> Reply {
    let authorization = format!("Bearer {caller}");
    let request = Request {
        method: "GET",
        target,
        authorization: (caller != "anonymous").then_some(&authorization),
        if_none_match: etag,
    };
    fake.handle(&request, at(seconds)).unwrap()
}

fn post(fake: &mut FakeGithub, caller: &str, target: &str, seconds: i64) -> Reply {
    let authorization = format!("Bearer {caller}");
    let request = Request {
        method: "POST",
        target,
        authorization: Some(&authorization),
        if_none_match: None,
    };
    fake.handle(&request, at(seconds)).unwrap()
}

/// The target of `rel="next"`, as the core reads it.
fn next(reply: &Reply) -> Option<String> {
    Answer::read(reply.status, |name| reply.header(name), Vec::new()).next
}

/// The `field` of every entry of a list.
fn all(list: &Value, field: &str) -> Vec<Value> {
    let list = list.as_array().unwrap().iter();
    list.map(|entry| entry[field].clone()).collect()
}

/// What the core reads in a delivery.
fn meaning(post: &Post) -> Meaning {
    let hook = post.header("X-GitHub-Hook-ID").unwrap();
    let guid = post.header("X-GitHub-Delivery").unwrap();
    let envelope = Envelope {
        host: None,
        key: Some(&DeliveryKey::parse(&format!("{hook}/{guid}")).unwrap()),
        event_name: &EventName::parse(post.header("X-GitHub-Event").unwrap()).unwrap(),
        content_type: post.header("Content-Type"),
    };
    read(&envelope, post.body.as_bytes()).meaning
}

/// One of everything that can happen in `github()`.
fn everything(run: u64) -> Vec<What> {
    let (branch, text, base) = ("fix/overflow".to_owned(), "Look".to_owned(), "main".to_owned());
    vec![
        What::pull_request("feature/cart"),
        What::PullRequest {
            branch: branch.clone(),
            base,
            from: Some("dev9/app".to_owned()),
        },
        issue(),
        What::comment(1, "Please look"),
        What::comment(2, "Please look"),
        What::Review {
            number: 1,
            state: "changes_requested".to_owned(),
        },
        What::ReviewComment { number: 1, text },
        What::Closed { number: 1 },
        What::Reopened { number: 1 },
        What::Merged { number: 1 },
        What::Closed { number: 2 },
        What::Reopened { number: 2 },
        What::Release { tag: "v1".to_owned() },
        What::run("fix/overflow", "success"),
        What::run("fix/overflow", "timed_out"),
        What::Rerun {
            run,
            conclusion: "failure".to_owned(),
        },
        What::Push { branch },
    ]
}

#[test]
fn every_body_means_the_event_that_its_happening_promises() {
    let mut fake = github();
    for target in [
        HookTarget::Repository(APP.to_owned()),
        HookTarget::Organization("acme".to_owned()),
        HookTarget::App,
    ] {
        fake.add_hook(&target, "http://127.0.0.1:1/", "secret");
    }
    fake.install_app("acme");
    let run = happen(&mut fake, What::run("fix/overflow", "failure"), -60).id;
    fake.take_pending(at(0));
    for (what, seconds) in everything(run).into_iter().zip(0..) {
        let happening = happen(&mut fake, what.clone(), seconds);
        let posts = fake.take_pending(at(seconds));
        assert_eq!(posts.len(), 3, "{what:?}");
        for post in posts {
            assert_eq!(post.header("X-GitHub-Delivery"), Some(happening.guid.as_str()));
            let event = match meaning(&post) {
                Meaning::Event(event) => Some(event),
                Meaning::Ignored(_) => None,
                Meaning::Malformed(why) => panic!("{what:?}: {why}"),
            };
            let id = event.as_ref().map(|event| event.id.as_str());
            assert_eq!(id, happening.event_id(), "{what:?}");
            if let Some(event) = event {
                assert_eq!(event.occurred_at, Some(at(seconds)), "{what:?}");
                assert_eq!(event.actor.as_deref(), Some("dev1"), "{what:?}");
                assert!(happening.number.is_none() || event.subject.number() == happening.number);
            }
        }
    }
}

#[test]
fn what_happens_again_has_another_id_and_a_run_keeps_its_own() {
    let mut fake = github();
    let first = happen(&mut fake, What::Closed { number: 1 }, 0);
    happen(&mut fake, What::Reopened { number: 1 }, 10);
    let second = happen(&mut fake, What::Closed { number: 1 }, 20);
    assert_eq!(first.id, second.id);
    assert_ne!(first.event_id(), second.event_id());
    let run = happen(&mut fake, What::run("main", "failure"), 30);
    let conclusion = "failure".to_owned();
    let again = happen(
        &mut fake,
        What::Rerun {
            run: run.id,
            conclusion,
        },
        40,
    );
    assert_eq!(again.event_id().unwrap(), format!("github/run/{}/attempt/2", run.id));
    let list = get(&mut fake, "token", "/repos/acme/app/actions/runs", 50).json();
    assert_eq!(all(&list["workflow_runs"], "run_attempt"), [json!(2)]);
    assert_eq!(list["workflow_runs"][0]["created_at"], json!(at(30).to_string()));
    for attempt in [1, 2] {
        let one = format!("/repos/acme/app/actions/runs/{}/attempts/{attempt}", run.id);
        let one = get(&mut fake, "token", &one, 50).json();
        assert_eq!((&one["id"], &one["run_attempt"]), (&json!(run.id), &json!(attempt)));
    }
    let none = format!("/repos/acme/app/actions/runs/{}/attempts/3", run.id);
    assert_eq!(get(&mut fake, "token", &none, 50).status, 404);
}

#[test]
fn nothing_happens_where_it_cannot() {
    let mut fake = github();
    let mut refused = |repository, what| fake.happen(&Occasion::of(repository, what), at(0)).unwrap_err();
    assert_eq!(refused("acme/none", issue()), Impossible::NoRepository);
    assert_eq!(refused(APP, What::comment(9, "?")), Impossible::NoNumber);
    assert_eq!(refused(APP, What::Merged { number: 2 }), Impossible::NotAPull);
    assert_eq!(refused(APP, What::Reopened { number: 1 }), Impossible::Already);
    let conclusion = "failure".to_owned();
    assert_eq!(refused(APP, What::Rerun { run: 1, conclusion }), Impossible::NoRun);
    happen(&mut fake, What::Merged { number: 1 }, 0);
    let reopened = fake.happen(&Occasion::of(APP, What::Reopened { number: 1 }), at(1));
    assert_eq!(reopened, Err(Impossible::Merged));
    assert_eq!(fake.happenings().len(), 3);
}

#[test]
fn the_feed_shows_trimmed_items_under_its_own_words() {
    let mut fake = github();
    for (what, seconds) in everything(0).into_iter().zip(0..) {
        if !matches!(what, What::Rerun { .. }) {
            happen(&mut fake, what, seconds);
        }
    }
    let feed = get(&mut fake, "token", "/repos/acme/app/events?per_page=100", 60).json();
    let told = feed.as_array().unwrap().iter().rev().map(|item| {
        let kind = item["type"].as_str().unwrap();
        format!("{kind} {}", item["payload"]["action"].as_str().unwrap_or("-"))
    });
    let told: Vec<_> = told.collect();
    let expected = [
        "PullRequestEvent opened",
        "PullRequestEvent opened",
        "IssuesEvent opened",
        "IssueCommentEvent created",
        "IssueCommentEvent created",
        "PullRequestReviewEvent created",
        "PullRequestReviewCommentEvent created",
        "PullRequestEvent closed",
        "PullRequestEvent reopened",
        "PullRequestEvent merged",
        "IssuesEvent closed",
        "IssuesEvent reopened",
        "ReleaseEvent published",
        "PushEvent -",
    ];
    assert_eq!(told, expected);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let oldest = feed.as_array().unwrap().last().unwrap();
    assert_eq!(
        keys(&oldest["payload"]["pull_request"]),
        ["base", "head", "id", "number", "url"]
    );
    assert_eq!(
        keys(&oldest["payload"]["pull_request"]["head"]["repo"]),
        ["id", "name", "url"]
    );
    let push = ["before", "head", "push_id", "ref", "repository_id"];
    assert_eq!(keys(&feed[0]["payload"]), push);
    let ids: Vec<u64> = all(&feed, "id")
        .iter()
        .map(|id| id.as_str().unwrap().parse().unwrap())
        .collect();
    assert!(!ids.is_sorted() && !ids.iter().rev().is_sorted(), "{ids:?}");
}

#[test]
fn a_late_item_stands_where_its_time_belongs() {
    let mut fake = github();
    let late = Occasion::of(APP, What::comment(1, "late")).shown_after(Some(secs(3_600)));
    let late = fake.happen(&late, at(10)).unwrap();
    let soon = happen(&mut fake, What::comment(1, "soon"), 20);
    let never = Occasion::of(APP, What::comment(1, "never")).shown_after(None);
    fake.happen(&never, at(30)).unwrap();
    let mut shown = |seconds| {
        let feed = get(&mut fake, "token", "/repos/acme/app/events", seconds).json();
        let ids = feed
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["payload"]["comment"]["id"].clone());
        (ids.collect::<Vec<_>>(), all(&feed, "created_at"))
    };
    assert_eq!(shown(40).0, [json!(soon.id)]);
    let times = [json!(at(20).to_string()), json!(at(10).to_string())];
    assert_eq!(shown(3_610), (vec![json!(soon.id), json!(late.id)], times.to_vec()));
    assert_eq!(shown(31 * 86_400).0, Vec::<Value>::new());
}

#[test]
fn the_feed_has_three_pages_and_the_fourth_is_refused() {
    let mut fake = github();
    for seconds in 0..310 {
        happen(&mut fake, What::comment(1, "again"), seconds);
    }
    let mut url = "/repos/acme/app/events?per_page=1000".to_owned();
    let (mut pages, mut seen) = (0, Vec::new());
    loop {
        let reply = get(&mut fake, "token", &url, 400);
        seen.extend(all(&reply.json(), "id"));
        pages += 1;
        assert!(pages <= 3);
        let Some(following) = next(&reply) else { break };
        assert!(reply.header("link").unwrap().contains("page=3>; rel=\"last\""));
        url = following;
    }
    seen.dedup();
    assert_eq!((pages, seen.len()), (3, 300));
    assert!(url.starts_with("https://api.github.com/repositories/"), "{url}");
    let fourth = get(&mut fake, "token", "/repos/acme/app/events?per_page=100&page=4", 400);
    assert_eq!(fourth.status, 422);
    assert!(fourth.body.contains("pagination is limited"));
    let usual = get(&mut fake, "token", "/repos/acme/app/events", 400);
    assert_eq!(usual.json().as_array().unwrap().len(), 30);
    let unchanged = conditional(&mut fake, "token", "/repos/acme/app/events", usual.header("etag"), 400);
    assert_eq!((unchanged.status, next(&unchanged)), (304, next(&usual)));
}

#[test]
fn runs_are_found_by_how_they_ended_and_since_when() {
    let mut fake = github();
    for (conclusion, seconds) in ["failure", "success", "timed_out"]
        .into_iter()
        .zip([0, 86_400, 2 * 86_400])
    {
        happen(&mut fake, What::run("fix/overflow", conclusion), seconds);
    }
    let mut found = |query: &str| {
        let list = get(
            &mut fake,
            "token",
            &format!("/repos/acme/app/actions/runs?{query}"),
            3 * 86_400,
        )
        .json();
        (list["total_count"].clone(), all(&list["workflow_runs"], "conclusion"))
    };
    let expect = |total: u64, shown: &[&str]| (json!(total), shown.iter().map(|text| json!(text)).collect::<Vec<_>>());
    assert_eq!(
        found("status=completed"),
        expect(3, &["timed_out", "success", "failure"])
    );
    assert_eq!(found("status=failure"), expect(1, &["failure"]));
    assert_eq!(found("created=%3E%3D2026-01-03"), expect(2, &["timed_out", "success"]));
    assert_eq!(found("per_page=1&page=2"), expect(3, &["success"]));
    assert_eq!(
        get(&mut fake, "token", "/repos/acme/app/actions/runs?created=2026", 0).status,
        422
    );
}

#[test]
fn the_list_of_runs_ends_after_a_thousand() {
    let mut fake = github();
    for seconds in 0..1_001 {
        happen(&mut fake, What::run("fix/overflow", "failure"), seconds);
    }
    let mut page = |page| {
        get(
            &mut fake,
            "token",
            &format!("/repos/acme/app/actions/runs?per_page=100&page={page}"),
            1_001,
        )
    };
    assert!(page(1).header("link").unwrap().contains("page=10>; rel=\"last\""));
    assert_eq!((page(10).status, next(&page(10))), (200, None));
    assert_eq!(page(11).json(), json!({"total_count": 1_001, "workflow_runs": []}));
}

#[test]
fn a_validator_is_good_for_one_credential_and_one_url() {
    let mut fake = github();
    happen(&mut fake, What::comment(1, "first"), 0);
    let url = "/repos/acme/app/events";
    let first = get(&mut fake, "token", url, 10);
    let etag = first.header("etag").unwrap();
    let mut status = |caller, url, etag| conditional(&mut fake, caller, url, Some(etag), 20).status;
    assert_eq!(status("token", url, etag), 304);
    assert_eq!(status("token", url, etag.strip_prefix("W/").unwrap()), 304);
    assert_eq!(status("other", url, etag), 200);
    assert_eq!(status("token", "/repos/acme/app/events?per_page=30", etag), 200);
    fake.set_poll_interval_s(90);
    let unchanged = conditional(&mut fake, "token", url, Some(etag), 30);
    assert_eq!((unchanged.status, unchanged.body.as_str()), (304, ""));
    assert_eq!(unchanged.header("x-poll-interval"), Some("90"));
    assert_eq!(unchanged.header("etag"), Some(etag));
    happen(&mut fake, What::comment(1, "second"), 40);
    assert_eq!(conditional(&mut fake, "token", url, Some(etag), 50).status, 200);
}

#[test]
fn an_answer_without_news_is_free_with_a_credential_only() {
    let mut fake = github();
    let url = "/repos/acme/app/events";
    for (caller, left) in [("token", ["4999", "4999"]), ("anonymous", ["59", "58"])] {
        let first = get(&mut fake, caller, url, 0);
        assert_eq!(first.header("x-ratelimit-remaining"), Some(left[0]));
        let second = conditional(&mut fake, caller, url, first.header("etag"), 10);
        assert_eq!(
            (second.status, second.header("x-ratelimit-remaining")),
            (304, Some(left[1]))
        );
        assert_eq!(
            second.header("x-ratelimit-reset"),
            Some(at(3_600).as_second().to_string().as_str())
        );
    }
}

/// `GET url` in process, with the right of the token.
async fn ask(api: &InProcess, right: Right, url: &str) -> Answer {
    let target = TargetKey::labeled_principal("api.github.com", "token", "");
    let credential = Credential { right, target };
    api.ask(forebay_core::api::Request::get(url, &credential))
        .await
        .unwrap()
}

fn in_process(fake: FakeGithub) -> InProcess {
    let time = ManualTime::at(at(0));
    let fake = fake.shared();
    InProcess { fake, time }
}

#[tokio::test]
async fn a_spent_hour_is_refused_until_githubs_clock_says_otherwise() {
    let api = in_process(github());
    let url = "/repos/acme/app/events";
    lock(&api.fake).set_clock_offset(secs(7_200));
    lock(&api.fake).leave("token", 1, at(60));
    let last = ask(&api, Right::Token, url).await;
    assert_eq!(
        (last.status, last.remaining, last.reset),
        (200, Some(0), Some(at(7_260)))
    );
    assert_eq!(last.date, Some(at(7_200)));
    let refused = ask(&api, Right::Token, url).await;
    assert_eq!(refused.status, 403);
    let standing = Limits::default().judge(&refused, at(0), 0);
    assert_eq!(standing, Standing::Limited(secs(61)));
    assert_eq!(ask(&api, Right::App, url).await.status, 200);
    api.time.pass(secs(60));
    assert_eq!(ask(&api, Right::Token, url).await.remaining, Some(4_999));
}

#[tokio::test]
async fn a_secondary_limit_holds_one_caller_back_with_or_without_a_stated_wait() {
    let api = in_process(github());
    let url = "/repos/acme/app/events";
    for (status, retry_after_s, wait) in [(429, Some(37), 37), (403, None, 60)] {
        let until = at(300);
        let limit = Secondary {
            status,
            retry_after_s,
            until,
        };
        lock(&api.fake).hold_back("token", limit);
        let refused = ask(&api, Right::Token, url).await;
        assert_eq!((refused.status, refused.remaining), (status, Some(5_000)));
        let standing = Limits::default().judge(&refused, at(0), 0);
        assert_eq!(standing, Standing::Limited(secs(wait)));
        let other = Right::Installation("acme".to_owned());
        assert_eq!(ask(&api, other, url).await.status, 200);
    }
    api.time.pass(secs(300));
    assert_eq!(ask(&api, Right::Token, url).await.status, 200);
}

#[tokio::test]
async fn a_renamed_repository_is_found_where_it_was_sent_on_to() {
    let mut fake = github();
    happen(&mut fake, What::comment(1, "before"), 0);
    fake.rename(APP, "acme/shop");
    let moved = get(&mut fake, "token", "/repos/acme/app/events?per_page=5", 0);
    assert_eq!(moved.status, 301);
    let location = moved.header("location").unwrap();
    assert!(location.starts_with("https://api.github.com/repositories/") && location.ends_with("/events?per_page=5"));
    assert_eq!(moved.json()["url"], location);
    let api = in_process(fake);
    let answer = ask(&api, Right::Token, "/repos/acme/app/events?per_page=5").await;
    assert_eq!(answer.status, 200);
    let statuses = lock(&api.fake)
        .requests()
        .iter()
        .map(|asked| asked.status)
        .collect::<Vec<_>>();
    assert_eq!(statuses, [Some(301), Some(301), Some(200)]);
}

#[test]
fn a_private_repository_is_not_there_for_others() {
    let mut fake = github();
    fake.make_private(APP, &["token"]);
    fake.rename(APP, "acme/secret");
    for target in [
        "/repos/acme/secret/events",
        "/repos/acme/app/events",
        "/repos/acme/secret/hooks",
    ] {
        for caller in ["anonymous", "other", "installation:elsewhere"] {
            assert_eq!(get(&mut fake, caller, target, 0).status, 404, "{caller} {target}");
        }
    }
    for caller in ["token", "installation:acme"] {
        assert_eq!(
            get(&mut fake, caller, "/repos/acme/secret/events", 0).status,
            200,
            "{caller}"
        );
    }
    assert_eq!(get(&mut fake, "other", "/orgs/acme/repos", 0).json(), json!([]));
    fake.revoke("token");
    assert_eq!(get(&mut fake, "token", "/repos/acme/secret/events", 0).status, 401);
}

#[test]
fn the_history_of_a_pull_request_says_when_it_was_closed_each_time() {
    let mut fake = github();
    let closed = Occasion::of(APP, What::Closed { number: 1 }).written_after(secs(2));
    fake.happen(&closed, at(10)).unwrap();
    happen(&mut fake, What::Reopened { number: 1 }, 20);
    happen(&mut fake, What::Merged { number: 1 }, 30);
    let history = get(&mut fake, "token", "/repos/acme/app/issues/1/events", 40).json();
    assert_eq!(all(&history, "event"), ["closed", "reopened", "merged", "closed"]);
    let times = [10, 20, 30, 30].map(|seconds| json!(at(seconds).to_string()));
    assert_eq!(all(&history, "created_at"), times);
    let feed = get(&mut fake, "token", "/repos/acme/app/events", 40).json();
    assert_eq!(feed[2]["created_at"], json!(at(12).to_string()));
    let first = get(&mut fake, "token", "/repos/acme/app/issues/1/events?per_page=3", 40);
    assert_eq!(
        all(&get(&mut fake, "token", &next(&first).unwrap(), 40).json(), "event"),
        ["closed"]
    );
}

/// A hook of `acme/app`, and its path.
fn hook(fake: &mut FakeGithub) -> String {
    let hook = fake.add_hook(&HookTarget::Repository(APP.to_owned()), "http://127.0.0.1:1/", "secret");
    format!("/repos/acme/app/hooks/{hook}/deliveries")
}

#[test]
fn a_log_shows_what_it_is_told_to_and_pages_by_cursor() {
    let mut fake = github();
    let log = hook(&mut fake);
    let ways = [
        Hooked::Delivered,
        Hooked::Unlogged,
        Hooked::Lost(Outcome::answered(200)),
        Hooked::Lost(Outcome::unreachable()),
        Hooked::Silent,
    ];
    for (hooked, seconds) in ways.into_iter().zip(0..) {
        let occasion = Occasion::of(APP, What::comment(1, "Look")).hooked(hooked);
        fake.happen(&occasion, at(seconds)).unwrap();
    }
    let pending = fake.take_pending(at(10));
    assert_eq!((pending.len(), fake.take_pending(at(10)).len()), (2, 0));
    for post in pending {
        fake.record(post.delivery, Outcome::answered(503), secs(1), at(11));
    }
    let list = get(&mut fake, "token", &log, 20).json();
    assert_eq!(
        all(&list, "status"),
        ["failed to connect to host", "OK", "Invalid HTTP Response: 503"]
    );
    assert_eq!(all(&list, "status_code"), [502, 200, 503]);
    let ids = all(&list, "id");
    // Beyond what a floating-point number tells apart.
    assert!(ids.iter().all(|id| id.as_u64().unwrap() > 1 << 53));
    let failures = get(&mut fake, "token", &format!("{log}?status=failure"), 20).json();
    assert_eq!(all(&failures, "status_code"), [502, 503]);
    let first = get(&mut fake, "token", &format!("{log}?per_page=2"), 20);
    let rest = get(&mut fake, "token", &next(&first).unwrap(), 20);
    assert_eq!((all(&rest.json(), "id"), next(&rest)), (vec![ids[2].clone()], None));
}

#[test]
fn a_redelivery_sends_the_same_letter_under_an_id_of_its_own() {
    let mut fake = github();
    let log = hook(&mut fake);
    happen(&mut fake, What::comment(1, "Look"), 0);
    let first = fake.take_pending(at(0)).remove(0);
    fake.record(first.delivery, Outcome::timed_out(), secs(10), at(10));
    let asked = post(&mut fake, "token", &format!("{log}/{}/attempts", first.delivery), 20);
    assert_eq!((asked.status, asked.body.as_str()), (202, "{}"));
    assert_eq!(all(&get(&mut fake, "token", &log, 21).json(), "redelivery"), [false]);
    let again = fake.take_pending(at(22)).remove(0);
    assert_ne!(again.delivery, first.delivery);
    assert_eq!((&again.headers, &again.body), (&first.headers, &first.body));
    fake.record(again.delivery, Outcome::answered(202), secs(1), at(23));
    let list = get(&mut fake, "token", &log, 30).json();
    assert_eq!(all(&list, "redelivery"), [true, false]);
    assert_eq!(list[0]["guid"], list[1]["guid"]);
    let detail = get(&mut fake, "token", &format!("{log}/{}", again.delivery), 30).json();
    assert_eq!(
        detail["request"]["payload"],
        serde_json::from_str::<Value>(&again.body).unwrap()
    );
    let headers = &detail["request"]["headers"];
    assert_eq!(headers["X-GitHub-Delivery"], list[0]["guid"]);
    assert_eq!(headers["X-GitHub-Event"], "issue_comment");
}

#[test]
fn a_log_forgets_after_three_days() {
    let mut fake = github();
    let log = hook(&mut fake);
    let lost = Occasion::of(APP, What::comment(1, "Look")).hooked(Hooked::Lost(Outcome::unreachable()));
    fake.happen(&lost, at(0)).unwrap();
    let last = 3 * 86_400 - 1;
    let list = get(&mut fake, "token", &log, last).json();
    let one = format!("{log}/{}", list[0]["id"]);
    assert_eq!(get(&mut fake, "token", &one, last).status, 200);
    assert_eq!(get(&mut fake, "token", &log, last + 1).json(), json!([]));
    assert_eq!(get(&mut fake, "token", &one, last + 1).status, 404);
    assert_eq!(
        post(&mut fake, "token", &format!("{one}/attempts"), last + 1).status,
        404
    );
}

#[test]
fn while_endpoints_are_down_deliveries_end_without_them() {
    let mut fake = github();
    let log = hook(&mut fake);
    fake.set_hook_outage(Some(Outcome::answered(503)));
    happen(&mut fake, What::comment(1, "Look"), 0);
    assert_eq!(fake.take_pending(at(1)), []);
    assert_eq!(all(&get(&mut fake, "token", &log, 2).json(), "status_code"), [503]);
    fake.set_hook_outage(None);
    assert_eq!(fake.take_pending(at(3)), []);
}

#[test]
fn hooks_are_listed_for_those_with_a_credential() {
    let mut fake = github();
    hook(&mut fake);
    fake.add_hook(&HookTarget::Organization("acme".to_owned()), "http://127.0.0.1:2/", "");
    for (target, url) in [
        ("/repos/acme/app/hooks", "http://127.0.0.1:1/"),
        ("/orgs/acme/hooks", "http://127.0.0.1:2/"),
    ] {
        let list = get(&mut fake, "token", target, 0).json();
        assert_eq!(
            all(&list, "config")
                .iter()
                .map(|config| &config["url"])
                .collect::<Vec<_>>(),
            [url]
        );
        assert_eq!(get(&mut fake, "anonymous", target, 0).status, 404);
    }
}

#[test]
fn the_app_has_a_log_without_hook_ids_and_tokens_for_where_it_is_installed() {
    let mut fake = github();
    fake.add_repository("elsewhere/app");
    let hook = fake.add_hook(&HookTarget::App, "http://127.0.0.1:1/", "secret");
    fake.install_app("acme");
    for repository in [APP, "elsewhere/app"] {
        let occasion = Occasion::of(repository, issue()).hooked(Hooked::Lost(Outcome::unreachable()));
        fake.happen(&occasion, at(0)).unwrap();
    }
    let log = "/app/hook/deliveries";
    assert_eq!(get(&mut fake, "token", log, 1).status, 401);
    let list = get(&mut fake, "app", log, 1).json();
    let installation = get(&mut fake, "app", "/orgs/acme/installation", 1).json();
    assert_eq!(all(&list, "installation_id"), [installation["id"].clone()]);
    assert!(!list.to_string().contains(&hook.to_string()));
    let detail = get(&mut fake, "app", &format!("{log}/{}", list[0]["id"]), 1).json();
    assert_eq!(
        detail["request"]["headers"]["X-GitHub-Hook-ID"],
        json!(hook.to_string())
    );
    assert_eq!(detail["request"]["payload"]["installation"]["id"], installation["id"]);
    assert_eq!(get(&mut fake, "app", "/users/acme/installation", 1).status, 404);
    assert_eq!(get(&mut fake, "app", "/users/elsewhere/installation", 1).status, 404);

    let tokens = installation["access_tokens_url"].as_str().unwrap();
    assert_eq!(post(&mut fake, "token", tokens, 1).status, 401);
    let issued = post(&mut fake, "app", tokens, 1);
    assert_eq!(
        (issued.status, issued.json()["expires_at"].clone()),
        (201, json!(at(3_601).to_string()))
    );
    let token = issued.json()["token"].as_str().unwrap().to_owned();
    let list = get(&mut fake, &token, "/installation/repositories", 2).json();
    assert_eq!(
        (list["total_count"].clone(), all(&list["repositories"], "full_name")),
        (json!(1), vec![json!(APP)])
    );
    assert_eq!(fake.requests().back().unwrap().caller, "installation:acme");
    assert_eq!(get(&mut fake, &token, "/installation/repositories", 3_601).status, 401);
}

#[test]
fn a_json_web_token_is_the_apps_while_it_is_young() {
    let mut fake = github();
    fake.install_app("acme");
    let jwt = |issued: i64, life: i64| {
        let issued = at(issued).as_second();
        let claims = json!({"iss": "Iv1", "iat": issued, "exp": issued + life}).to_string();
        format!(
            "e30.{}.c2ln",
            base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, claims)
        )
    };
    for (token, status) in [
        (jwt(-60, 600), 200),
        (jwt(-700, 600), 401),
        (jwt(0, 3_600), 401),
        (jwt(300, 60), 401),
    ] {
        assert_eq!(get(&mut fake, &token, "/orgs/acme/installation", 0).status, status);
    }
    assert_eq!(get(&mut fake, "a.b.c", "/orgs/acme/installation", 0).status, 401);
}

#[tokio::test]
async fn an_outage_fails_every_request_or_answers_none() {
    let api = in_process(github());
    lock(&api.fake).set_outage(Some(Outage::Failing));
    assert_eq!(ask(&api, Right::Token, "/repos/acme/app/events").await.status, 502);
    lock(&api.fake).set_outage(Some(Outage::Hanging));
    let target = TargetKey::labeled_principal("api.github.com", "token", "");
    let right = Right::Token;
    let credential = Credential { right, target };
    let request = forebay_core::api::Request {
        method: Method::Post,
        ..forebay_core::api::Request::get("/x?y=1", &credential)
    };
    let error = api.ask(request).await.unwrap_err();
    assert_eq!((error.on.as_str(), error.class), ("/x", ErrorClass::TimedOut));
    let fake = lock(&api.fake);
    assert_eq!(fake.asked("/"), 2);
    let last = fake.requests().back().unwrap();
    assert_eq!(
        (last.caller.as_str(), last.method.as_str(), last.status),
        ("token", "POST", None)
    );
}

#[test]
fn time_of_a_happening_is_in_whole_seconds() {
    let mut fake = github();
    let occasion = Occasion::of(APP, issue()).by("acme-builder[bot]");
    let happening = fake
        .happen(&occasion, at(0) + SignedDuration::from_millis(700))
        .unwrap();
    assert_eq!(happening.at, at(0));
    let feed = get(&mut fake, "token", "/repos/acme/app/events", 1).json();
    assert_eq!(feed[0]["actor"]["display_login"], "acme-builder");
    assert_eq!(feed[0]["org"]["login"], "acme");
}
