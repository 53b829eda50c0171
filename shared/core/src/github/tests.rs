//! Whole bodies, read from their bytes.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::*;
use crate::event::{Kind, SUMMARY_BYTES_MAX, SubjectKind};

const GUID: &str = "6f1c2b9a-0000-4000-8000-000000000031";

fn read_bytes(name: &str, content_type: Option<&str>, host: Option<&str>, body: &[u8]) -> Reading {
    let key = DeliveryKey::parse(&format!("42/{GUID}")).unwrap();
    let event_name = EventName::parse(name).unwrap();
    read(
        &Envelope {
            host,
            key: Some(&key),
            event_name: &event_name,
            content_type,
        },
        body,
    )
}

fn reading(name: &str, body: &Value) -> Reading {
    read_bytes(name, Some("application/json"), None, body.to_string().as_bytes())
}

#[track_caller]
fn event(name: &str, body: &Value) -> Event {
    match reading(name, body).meaning {
        Meaning::Event(event) => *event,
        other @ (Meaning::Ignored(_) | Meaning::Malformed(_)) => panic!("{name}: {other:?}"),
    }
}

#[track_caller]
fn ignored(name: &str, body: &Value, why: Ignored, case: &str) {
    assert_eq!(reading(name, body).meaning, Meaning::Ignored(why), "{case}");
}

/// `body` with the value at `path` (slashes between the keys) replaced, or removed where there is none.
fn with(mut body: Value, path: &str, value: impl Into<Option<Value>>) -> Value {
    let (parent, key) = path.rsplit_once('/').map_or(("", path), |(parent, key)| (parent, key));
    let parent = if parent.is_empty() {
        String::new()
    } else {
        format!("/{parent}")
    };
    let object = body.pointer_mut(&parent).unwrap().as_object_mut().unwrap();
    match value.into() {
        Some(value) => object.insert(key.to_owned(), value),
        None => object.remove(key),
    };
    body
}

fn repository() -> Value {
    json!({
        "id": 1, "full_name": "acme/app", "url": "https://api.github.com/repos/acme/app",
        "html_url": "https://github.com/acme/app", "pushed_at": 2_147_483_648_u64,
    })
}

fn pull() -> Value {
    json!({
        "id": 700, "number": 12, "title": "Fix it", "merged": false, "merged_by": null, "merged_at": null,
        "url": "https://api.github.com/repos/acme/app/pulls/12", "html_url": "https://github.com/acme/app/pull/12",
        "user": {"login": "dev1"}, "body": null,
        "created_at": "2026-02-01T00:00:00Z", "updated_at": "2026-02-04T00:00:00Z",
        "closed_at": null,
        "head": {"ref": "feature", "sha": "abc", "repo": {"id": 1, "full_name": "acme/app"}},
        "base": {"ref": "main", "sha": "def", "repo": {"id": 1, "full_name": "acme/app"}},
    })
}

fn pull_request(action: &str) -> Value {
    json!({
        "action": action, "number": 12, "pull_request": pull(), "repository": repository(),
        "sender": {"login": "maintainer"},
    })
}

fn closed(is_merged: bool) -> Value {
    let body = with(pull_request("closed"), "pull_request/merged", json!(is_merged));
    let body = with(body, "pull_request/closed_at", json!("2026-02-03T00:00:00Z"));
    if !is_merged {
        return body;
    }
    let body = with(body, "pull_request/merged_at", json!("2026-02-03T00:00:00Z"));
    with(body, "pull_request/merged_by", json!({"login": "merger"}))
}

fn issue_comment(action: &str) -> Value {
    json!({
        "action": action,
        "issue": {
            "id": 800, "number": 12, "title": "Fix it", "user": {"login": "dev1"}, "pull_request": {"url": "u"},
            "url": "https://api.github.com/repos/acme/app/issues/12", "html_url": "https://github.com/acme/app/pull/12",
        },
        "comment": {
            "id": 9_007_199_254_740_993_u64, "user": {"login": "dev2"}, "body": "please\nlook",
            "html_url": "https://github.com/acme/app/pull/12#issuecomment-1", "created_at": "2026-02-02T00:00:00Z",
        },
        "repository": repository(), "sender": {"login": "maintainer"},
    })
}

fn review(action: &str, state: &str) -> Value {
    json!({
        "action": action,
        "review": {
            "id": 900, "user": {"login": "dev2"}, "body": null, "state": state, "submitted_at": "2026-02-02T00:00:00Z",
            "html_url": "https://github.com/acme/app/pull/12#pullrequestreview-900",
        },
        "pull_request": pull(), "repository": repository(), "sender": {"login": "maintainer"},
    })
}

/// A pull request in a check's list, of `acme/app` where `base_id` is 1.
fn listed(number: u64, base_id: u64) -> Value {
    json!({
        "number": number, "head": {"ref": "feature", "repo": {"id": base_id, "name": "app"}},
        "base": {"ref": "main", "repo": {"id": base_id, "name": "app"}},
    })
}

fn check_run(action: &str, pulls: Value) -> Value {
    json!({
        "action": action,
        "check_run": {
            "id": 98_765_432_109_u64, "name": "lint", "head_sha": "abc", "status": "completed", "conclusion": "failure",
            "html_url": "https://github.com/acme/app/runs/1", "completed_at": "2026-02-02T00:00:00Z",
            "check_suite": {"head_branch": "feature"}, "pull_requests": pulls,
        },
        "repository": repository(), "sender": {"login": "maintainer"},
    })
}

fn workflow_run(conclusion: impl Into<Value>) -> Value {
    json!({
        "action": "completed",
        "workflow_run": {
            "id": 33_000_000_001_u64, "run_attempt": 2, "name": "ci", "head_branch": "feature", "head_sha": "abc",
            "conclusion": conclusion.into(), "html_url": "https://github.com/acme/app/actions/runs/33000000001",
            "updated_at": "2026-02-02T00:00:00Z", "head_repository": {"id": 1, "full_name": "acme/app"},
            "pull_requests": [listed(12, 1)],
        },
        "workflow": {"name": "CI"}, "repository": repository(), "sender": {"login": "maintainer"},
    })
}

fn push(git_ref: &str) -> Value {
    json!({
        "ref": git_ref, "before": "d0", "after": "abc", "deleted": false, "created": false,
        "compare": "https://github.com/acme/app/compare/d0...abc",
        "head_commit": {
            "id": "abc", "message": "Fix it\n\nAnd more", "timestamp": "2026-02-11T20:15:00-05:00",
            "url": "https://github.com/acme/app/commit/abc",
        },
        "pusher": {"name": "pusher1"}, "repository": repository(), "sender": {"login": "dev1"},
    })
}

fn issue(action: &str) -> Value {
    json!({
        "action": action,
        "issue": {
            "id": 800, "number": 9, "title": "t", "body": null, "user": {"login": "dev1"},
            "html_url": "https://github.com/acme/app/issues/9", "created_at": "2026-02-01T00:00:00Z",
            "updated_at": "2026-02-04T00:00:00Z", "closed_at": "2026-02-03T00:00:00Z",
        },
        "repository": repository(), "sender": {"login": "maintainer"},
    })
}

fn release(action: &str) -> Value {
    json!({
        "action": action,
        "release": {
            "id": 500, "name": "First", "tag_name": "v1", "html_url": "https://github.com/acme/app/releases/tag/v1",
            "author": {"login": "dev1"}, "published_at": "2026-02-02T00:00:00Z",
        },
        "repository": repository(), "sender": {"login": "maintainer"},
    })
}

fn at(text: &str) -> Option<jiff::Timestamp> {
    Some(text.parse().unwrap())
}

#[test]
fn an_opened_pull_request_is_an_event() {
    let event = event("pull_request", &pull_request("opened"));
    assert_eq!(event.id.as_str(), "github/pull_request/700/opened", "S3-07");
    assert_eq!(event.kind, Kind::PullRequestOpened);
    assert_eq!(event.subject.to_string(), "acme/app#12");
    assert_eq!(
        (event.subject.kind(), event.pull_requests),
        (SubjectKind::PullRequest, vec![12])
    );
    assert_eq!(
        event.actor.as_deref(),
        Some("dev1"),
        "S3-08: the author, not the sender"
    );
    assert_eq!(event.url.as_deref(), Some("https://github.com/acme/app/pull/12"));
    assert_eq!(event.summary, "Fix it");
    assert_eq!(
        (event.branch.as_deref(), event.base.as_deref()),
        (Some("feature"), Some("main"))
    );
    assert_eq!(event.head_sha.as_deref(), Some("abc"));
    assert_eq!(event.conclusion, None);
    assert_eq!(event.occurred_at, at("2026-02-01T00:00:00Z"));
    assert_eq!(event.delivery.unwrap().to_string(), format!("42/{GUID}"), "S3-08");
    assert_eq!(event.cloud_type, "com.github.pull_request.opened");
    assert_eq!(event.cloud_source, "https://api.github.com/repos/acme/app");
    assert_eq!(event.cloud_subject, "12");
}

#[test]
fn a_merge_and_a_close_are_two_kinds() {
    let merged = event("pull_request", &closed(true));
    assert_eq!(merged.id.as_str(), "github/pull_request/700/merged", "S3-07");
    assert_eq!(
        (merged.kind, merged.actor.as_deref()),
        (Kind::PullRequestMerged, Some("merger"))
    );
    assert_eq!(merged.occurred_at, at("2026-02-03T00:00:00Z"));
    assert_eq!(merged.cloud_type, "com.github.pull_request.closed");
    let merged = event(
        "pull_request",
        &with(closed(true), "pull_request/merged_by", Value::Null),
    );
    assert_eq!(merged.actor.as_deref(), Some("maintainer"));

    let shut = event("pull_request", &closed(false));
    assert_eq!(shut.id.as_str(), "github/pull_request/700/closed/1770076800", "S3-07");
    assert_eq!(
        (shut.kind, shut.actor.as_deref()),
        (Kind::PullRequestClosed, Some("maintainer")),
        "PAY-17"
    );
    assert_eq!(shut.occurred_at, at("2026-02-03T00:00:00Z"));
}

#[test]
fn a_close_without_its_time_still_has_an_id() {
    let body = with(closed(false), "pull_request/closed_at", Value::Null);
    assert_eq!(
        event("pull_request", &body).id.as_str(),
        "github/pull_request/700/closed/1770163200"
    );
    let body = with(body, "pull_request/updated_at", json!("soon"));
    let event = event("pull_request", &body);
    assert_eq!(event.id.as_str(), format!("github/pull_request/700/closed/{GUID}"));
    assert_eq!(event.occurred_at, None);
}

#[test]
fn a_merge_is_judged_by_the_base_in_its_own_delivery() {
    let body = with(closed(true), "pull_request/base/ref", json!("next"));
    assert_eq!(event("pull_request", &body).base.as_deref(), Some("next"), "PAY-19");
    let mut edited = pull_request("edited");
    edited["changes"] = json!({"base": {"ref": {"from": "main"}}});
    ignored("pull_request", &edited, Ignored::UnhandledAction, "PAY-19");
}

#[test]
fn a_forks_branch_is_never_ours() {
    let gone = with(pull_request("opened"), "pull_request/head/repo", Value::Null);
    let gone = with(gone, "pull_request/head/ref", json!("main"));
    let read = reading("pull_request", &gone);
    assert_eq!(read.names, [], "PAY-04");
    assert_eq!(event("pull_request", &gone).branch, None, "PAY-04");
    let fork = json!({"id": 2, "full_name": "acme/app"});
    let fork = with(pull_request("opened"), "pull_request/head/repo", fork);
    assert_eq!(
        event("pull_request", &fork).branch,
        None,
        "an id counts more than a name"
    );
    let by_name = with(
        pull_request("opened"),
        "pull_request/head/repo",
        json!({"full_name": "Acme/App"}),
    );
    assert_eq!(event("pull_request", &by_name).branch.as_deref(), Some("feature"));
    let unnamed = with(pull_request("opened"), "pull_request/head/repo", json!({}));
    assert_eq!(event("pull_request", &unnamed).branch, None);
}

#[test]
fn every_pull_request_payload_names_its_branch_and_number() {
    let expected = [Named {
        repository: Repository::new("acme/app").unwrap(),
        branch: "feature".to_owned(),
        pull: 12,
    }];
    for action in ["opened", "synchronize", "teleported"] {
        assert_eq!(
            reading("pull_request", &pull_request(action)).names,
            expected,
            "{action}"
        );
    }
    assert_eq!(
        reading("pull_request_review", &review("dismissed", "dismissed")).names,
        expected
    );
    assert_eq!(
        reading("pull_request_review_comment", &review("edited", "x")).names,
        expected
    );
    assert_eq!(
        reading("check_run", &check_run("created", json!([listed(12, 1)]))).names,
        expected
    );
    assert_eq!(reading("workflow_run", &workflow_run("success")).names, expected);
    let fork = with(workflow_run("success"), "workflow_run/head_repository/id", json!(2));
    assert_eq!(reading("workflow_run", &fork).names, []);
    assert_eq!(reading("issue_comment", &issue_comment("created")).names, []);
}

#[test]
fn a_listed_pull_request_from_a_fork_does_not_get_the_branch() {
    let mut fork = listed(13, 1);
    fork["head"]["repo"] = Value::Null;
    let mut other = listed(14, 1);
    other["head"]["ref"] = json!("other");
    let read = reading(
        "check_run",
        &check_run("completed", json!([fork, other, listed(12, 1)])),
    );
    assert_eq!(read.names.iter().map(|named| named.pull).collect::<Vec<_>>(), [12]);
    let Meaning::Event(event) = read.meaning else { panic!() };
    assert_eq!(event.pull_requests, [13, 14, 12]);
}

#[test]
fn a_comment_is_about_an_issue_or_a_pull_request() {
    let on_pull = event("issue_comment", &issue_comment("created"));
    assert_eq!(on_pull.id.as_str(), "github/comment/9007199254740993", "NUM-02");
    assert_eq!(
        (on_pull.kind, on_pull.subject.kind()),
        (Kind::Comment, SubjectKind::PullRequest),
        "S3-07"
    );
    assert_eq!(on_pull.pull_requests, [12]);
    assert_eq!(
        (on_pull.actor.as_deref(), on_pull.summary.as_str()),
        (Some("dev2"), "please\nlook")
    );
    assert_eq!(
        on_pull.url.as_deref(),
        Some("https://github.com/acme/app/pull/12#issuecomment-1")
    );
    assert_eq!(on_pull.occurred_at, at("2026-02-02T00:00:00Z"));
    assert_eq!(on_pull.cloud_type, "com.github.issue_comment.created");
    assert_eq!(on_pull.cloud_source, "https://api.github.com/repos/acme/app/issues/12");
    assert_eq!(on_pull.cloud_subject, "9007199254740993");

    let on_issue = event(
        "issue_comment",
        &with(issue_comment("created"), "issue/pull_request", None),
    );
    assert_eq!(
        (on_issue.subject.kind(), on_issue.pull_requests),
        (SubjectKind::Issue, vec![]),
        "S3-07"
    );
    for action in ["edited", "deleted"] {
        ignored(
            "issue_comment",
            &issue_comment(action),
            Ignored::UnhandledAction,
            "PAY-16",
        );
        ignored(
            "issue_comment",
            &json!({"action": action}),
            Ignored::UnhandledAction,
            "PAY-16",
        );
    }
}

#[test]
fn the_author_of_a_deleted_account_is_a_ghost() {
    let body = json!({
        "action": "created", "issue": {"number": 5, "pull_request": {"url": "u"}, "user": null},
        "comment": {"id": 8, "user": null, "body": "hi"}, "repository": {"id": 1, "full_name": "acme/app"},
        "sender": {"login": "deploy[bot]"},
    });
    let comment = event("issue_comment", &body);
    assert_eq!(
        comment.actor.as_deref(),
        Some("ghost"),
        "PAY-01, PAY-02: the sender is not the author"
    );
    assert_eq!(comment.subject.to_string(), "acme/app#5", "PAY-01");
    assert_eq!(
        comment.cloud_source, "https://github.com/acme/app",
        "a source that is not stated is made"
    );
    let review = with(review("submitted", "approved"), "review/user", Value::Null);
    assert_eq!(
        event("pull_request_review", &review).actor.as_deref(),
        Some("ghost"),
        "PAY-01"
    );

    let absent = with(issue_comment("created"), "comment/user", None);
    assert_eq!(
        event("issue_comment", &absent).actor.as_deref(),
        Some("maintainer"),
        "S3-08"
    );
    let bot = with(
        issue_comment("created"),
        "comment/user",
        json!({"login": "deploy[bot]", "type": "Bot"}),
    );
    assert_eq!(
        event("issue_comment", &bot).actor.as_deref(),
        Some("deploy[bot]"),
        "PAY-02"
    );
    let nobody = with(
        with(pull_request("opened"), "pull_request/user", Value::Null),
        "sender",
        None,
    );
    assert_eq!(event("pull_request", &nobody).actor, None);
}

#[test]
fn a_submitted_review_has_a_state_in_lower_case() {
    for (state, expected) in [
        ("approved", "approved"),
        ("APPROVED", "approved"),
        ("changes_requested", "changes_requested"),
        ("CHANGES_REQUESTED", "changes_requested"),
    ] {
        let review = event("pull_request_review", &review("submitted", state));
        assert_eq!(review.conclusion.as_deref(), Some(expected), "ENUM-06");
        assert_eq!(review.summary, expected, "an empty review says its state");
        assert_eq!(review.id.as_str(), "github/review/900", "S3-07");
        assert_eq!((review.kind, review.actor.as_deref()), (Kind::Review, Some("dev2")));
        assert_eq!(review.cloud_source, "https://api.github.com/repos/acme/app/pulls/12");
        assert_eq!(
            (review.cloud_subject.as_str(), review.branch.as_deref()),
            ("900", Some("feature"))
        );
        assert_eq!(review.occurred_at, at("2026-02-02T00:00:00Z"));
    }
    let body = with(review("submitted", "commented"), "review/body", json!("why?"));
    assert_eq!(event("pull_request_review", &body).summary, "why?");
    let timeless = with(review("submitted", "approved"), "review/submitted_at", Value::Null);
    assert_eq!(event("pull_request_review", &timeless).occurred_at, None, "PAY-07");
}

#[test]
fn a_review_that_was_not_submitted_is_ignored() {
    for body in [
        json!({"action": "edited", "review": {"id": 1, "state": "pending", "body": "x", "submitted_at": null, "user": null},
            "pull_request": {"number": 4}}),
        json!({"action": "dismissed", "review": {"id": 1, "state": "dismissed"}, "pull_request": {"number": 4}}),
        json!({"action": "edited", "review": {"id": 1, "state": "approved"}, "pull_request": {"number": 4}}),
    ] {
        ignored("pull_request_review", &body, Ignored::UnhandledAction, "PAY-07, PAY-08");
    }
}

#[test]
fn a_review_comment_is_an_event() {
    let mut body = issue_comment("created");
    body["pull_request"] = pull();
    let event = event("pull_request_review_comment", &body);
    assert_eq!(event.id.as_str(), "github/review_comment/9007199254740993", "S3-07");
    assert_eq!(
        (event.kind, event.summary.as_str()),
        (Kind::ReviewComment, "please\nlook")
    );
    assert_eq!(
        (event.branch.as_deref(), event.base.as_deref()),
        (Some("feature"), Some("main"))
    );
    assert_eq!(event.cloud_type, "com.github.pull_request_review_comment.created");
    assert_eq!(event.cloud_source, "https://api.github.com/repos/acme/app/pulls/12");
}

#[test]
fn a_check_is_about_its_pull_requests_in_this_repository() {
    let event_of = |pulls| event("check_run", &check_run("completed", pulls));
    let check = event_of(json!([listed(12, 999), listed(7, 1)]));
    assert_eq!(
        (check.subject.to_string().as_str(), check.pull_requests),
        ("acme/app#7", vec![7]),
        "PAY-13"
    );
    let check =
        event_of(json!([{"number": 7, "base": {"repo": {"id": 1}}}, null, {"number": 8, "base": {"repo": {"id": 1}}}]));
    assert_eq!(
        (check.subject.number(), check.pull_requests),
        (Some(7), vec![7, 8]),
        "PAY-14"
    );
    for pulls in [json!([]), Value::Null] {
        let check = event_of(pulls);
        assert_eq!(
            (check.subject.to_string().as_str(), check.subject.kind()),
            ("acme/app", SubjectKind::Repository),
            "S3-08"
        );
    }
}

#[test]
fn a_completed_check_run_is_an_event() {
    let check = event("check_run", &check_run("completed", json!([listed(12, 1)])));
    assert_eq!(
        check.id.as_str(),
        format!("github/check_run/98765432109/{GUID}"),
        "NUM-01"
    );
    assert_eq!(
        (check.kind, check.summary.as_str()),
        (Kind::CheckRunCompleted, "lint: failure"),
        "S3-07"
    );
    assert_eq!(
        (check.branch.as_deref(), check.head_sha.as_deref()),
        (Some("feature"), Some("abc"))
    );
    assert_eq!(
        (check.actor.as_deref(), check.cloud_subject.as_str()),
        (Some("maintainer"), "98765432109")
    );
    assert_eq!(check.occurred_at, at("2026-02-02T00:00:00Z"));
    assert!(check.is_failed_check());
    let mut running = check_run("created", json!([]));
    running["check_run"]["conclusion"] = Value::Null;
    running["check_run"]["status"] = json!("in_progress");
    ignored("check_run", &running, Ignored::UnhandledAction, "ENUM-05");
}

#[test]
fn every_conclusion_is_carried_and_only_three_are_failures() {
    for conclusion in [
        "startup_failure",
        "stale",
        "timed_out",
        "action_required",
        "cancelled",
        "neutral",
        "skipped",
        "something_new",
        "failure",
        "success",
    ] {
        let body = with(
            check_run("completed", json!([])),
            "check_run/conclusion",
            json!(conclusion),
        );
        let check = event("check_run", &body);
        assert_eq!(check.conclusion.as_deref(), Some(conclusion), "ENUM-03");
        let is_bad = matches!(conclusion, "failure" | "timed_out" | "startup_failure");
        assert_eq!(check.is_failed_check(), is_bad, "ENUM-03: {conclusion}");
        let run = reading("workflow_run", &workflow_run(conclusion)).meaning;
        assert_eq!(matches!(run, Meaning::Event(_)), is_bad, "ENUM-03: {conclusion}");
    }
    ignored(
        "workflow_run",
        &workflow_run(Value::Null),
        Ignored::NotAFailure,
        "ENUM-03",
    );
    let body = with(check_run("completed", json!([])), "check_run/conclusion", Value::Null);
    let check = event("check_run", &body);
    assert_eq!((check.conclusion, check.summary.as_str()), (None, "lint"));
}

#[test]
fn a_completed_check_suite_is_an_event() {
    let body = json!({
        "action": "completed",
        "check_suite": {
            "id": 600, "head_branch": "feature", "head_sha": "abc", "conclusion": "timed_out", "app": {"name": "Checks"},
            "updated_at": "2026-02-02T00:00:00Z", "pull_requests": [listed(12, 1)],
        },
        "repository": repository(), "sender": {"login": "maintainer"},
    });
    let check = event("check_suite", &body);
    assert_eq!(check.id.as_str(), format!("github/check_suite/600/{GUID}"), "S3-07");
    assert_eq!(
        (check.kind, check.summary.as_str()),
        (Kind::CheckSuiteCompleted, "Checks: timed_out")
    );
    assert_eq!(
        check.url.as_deref(),
        Some("https://github.com/acme/app/commit/abc/checks")
    );
    assert_eq!(
        (check.subject.number(), check.branch.as_deref()),
        (Some(12), Some("feature"))
    );
    assert_eq!(check.occurred_at, at("2026-02-02T00:00:00Z"));
    ignored(
        "check_suite",
        &with(body, "action", json!("requested")),
        Ignored::UnhandledAction,
        "S3-07",
    );
}

#[test]
fn a_workflow_run_that_ended_badly_is_an_event_for_each_attempt() {
    let run = event("workflow_run", &workflow_run("failure"));
    assert_eq!(run.id.as_str(), "github/run/33000000001/attempt/2", "NUM-01");
    assert_eq!((run.kind, run.summary.as_str()), (Kind::CheckFailure, "ci: failure"));
    assert_eq!(run.cloud_type, "com.github.workflow_run.completed");
    assert_eq!(
        (run.cloud_subject.as_str(), run.branch.as_deref()),
        ("CI", Some("feature"))
    );
    for head in [Value::Null, json!({"id": 2, "full_name": "fork/app"})] {
        let fork = with(workflow_run("failure"), "workflow_run/head_repository", head);
        assert_eq!(event("workflow_run", &fork).branch, None);
    }
    let started = with(workflow_run(Value::Null), "action", json!("in_progress"));
    ignored("workflow_run", &started, Ignored::UnhandledAction, "ENUM-05");
    let nameless = with(workflow_run("failure"), "workflow_run/run_attempt", None);
    ignored(
        "workflow_run",
        &nameless,
        Ignored::Incomplete,
        "an attempt is part of the identity",
    );
}

#[test]
fn a_push_to_a_branch_is_an_event() {
    let pushed = event("push", &push("refs/heads/feature/a/b"));
    assert_eq!(pushed.id.as_str(), format!("github/push/1/{GUID}"), "S3-07");
    assert_eq!(
        (pushed.branch.as_deref(), pushed.head_sha.as_deref()),
        (Some("feature/a/b"), Some("abc")),
        "PAY-11"
    );
    assert_eq!(
        (pushed.summary.as_str(), pushed.actor.as_deref()),
        ("Fix it", Some("dev1")),
        "S3-07"
    );
    assert_eq!(pushed.occurred_at, at("2038-01-19T03:14:08Z"), "NUM-04");
    assert_eq!(pushed.cloud_type, "com.github.push");
    assert_eq!(pushed.cloud_subject, "refs/heads/feature/a/b");
    assert_eq!(
        pushed.url.as_deref(),
        Some("https://github.com/acme/app/compare/d0...abc")
    );
    assert_eq!(
        (pushed.subject.kind(), pushed.subject.number()),
        (SubjectKind::Repository, None)
    );
    let tagged = event("push", &push("refs/heads/refs/tags/v1"));
    assert_eq!(tagged.branch.as_deref(), Some("refs/tags/v1"), "PAY-11");

    let timeless = with(push("refs/heads/x"), "repository/pushed_at", Value::Null);
    assert_eq!(
        event("push", &timeless).occurred_at,
        at("2026-02-12T01:15:00Z"),
        "NUM-05"
    );
    let text = with(
        push("refs/heads/x"),
        "repository/pushed_at",
        json!("2026-02-12T01:15:00Z"),
    );
    assert_eq!(event("push", &text).occurred_at, at("2026-02-12T01:15:00Z"));
    assert_eq!(
        event("push", &with(text, "sender", None)).actor.as_deref(),
        Some("pusher1")
    );
}

#[test]
fn a_tag_a_deletion_and_a_push_of_nothing_are_ignored() {
    ignored("push", &push("refs/tags/main"), Ignored::NotABranch, "PAY-11");
    let deletion = json!({
        "ref": "refs/heads/tmp", "before": "d0", "after": "0000000000000000000000000000000000000000", "deleted": true,
        "created": false, "head_commit": null, "commits": [], "repository": {"id": 1, "full_name": "acme/app"},
    });
    ignored("push", &deletion, Ignored::NoHeadCommit, "PAY-10");
    ignored(
        "push",
        &with(push("refs/heads/x"), "head_commit", Value::Null),
        Ignored::NoHeadCommit,
        "S3-07",
    );
    ignored(
        "push",
        &with(push("refs/heads/x"), "deleted", json!(true)),
        Ignored::NoHeadCommit,
        "PAY-10",
    );
    let zeros = with(
        push("refs/heads/x"),
        "head_commit/id",
        json!("0000000000000000000000000000000000000000"),
    );
    ignored("push", &zeros, Ignored::NoHeadCommit, "PAY-10");
    ignored(
        "push",
        &with(push("x"), "ref", None),
        Ignored::Incomplete,
        "a push without a ref",
    );
}

#[test]
fn issues_and_releases_are_events() {
    let opened = event("issues", &issue("opened"));
    assert_eq!(opened.id.as_str(), "github/issue/800/opened", "S3-07");
    assert_eq!(
        (opened.kind, opened.subject.kind(), opened.actor.as_deref()),
        (Kind::IssueOpened, SubjectKind::Issue, Some("dev1"))
    );
    assert_eq!((opened.summary.as_str(), opened.pull_requests), ("t", vec![]), "PAY-05");
    assert_eq!(
        opened.cloud_type, "com.github.issue.opened",
        "the adapter's own spelling"
    );
    let shut = event("issues", &issue("closed"));
    assert_eq!(shut.id.as_str(), "github/issue/800/closed/1770076800", "S3-07");
    assert_eq!(
        (shut.kind, shut.actor.as_deref()),
        (Kind::IssueClosed, Some("maintainer"))
    );
    assert_eq!(shut.occurred_at, at("2026-02-03T00:00:00Z"));

    let published = event("release", &release("published"));
    assert_eq!(published.id.as_str(), "github/release/500/1769990400", "S3-07");
    assert_eq!(
        (published.kind, published.summary.as_str()),
        (Kind::ReleasePublished, "First")
    );
    assert_eq!(
        (published.actor.as_deref(), published.cloud_subject.as_str()),
        (Some("dev1"), "500")
    );
    let unnamed = event("release", &with(release("published"), "release/name", json!("")));
    assert_eq!(unnamed.summary, "v1");
    let timeless = event(
        "release",
        &with(release("published"), "release/published_at", Value::Null),
    );
    assert_eq!(timeless.id.as_str(), format!("github/release/500/{GUID}"));
    ignored("release", &release("created"), Ignored::UnhandledAction, "S3-07");
}

#[test]
fn an_issue_without_an_id_has_no_identity() {
    // PAY-05 leaves the id out, which GitHub never does, and wants an event all the same. We make none: an event's id is the
    // same whichever net tells of it, and one made of the GUID would be a second event beside the feed's. The bytes are kept.
    let body = json!({
        "action": "opened", "issue": {"number": 9, "title": "t", "body": null, "user": {"login": "dev1"}},
        "repository": {"id": 1, "full_name": "acme/app"},
    });
    ignored("issues", &body, Ignored::Incomplete, "PAY-05 without an id");
    let mut body = body;
    body["issue"]["id"] = json!(900);
    let opened = event("issues", &body);
    assert_eq!(
        (opened.kind, opened.summary.as_str()),
        (Kind::IssueOpened, "t"),
        "PAY-05: no text besides the title"
    );
}

#[test]
fn what_we_have_no_kind_for_is_ignored_and_its_action_kept() {
    let read = reading(
        "pull_request",
        &json!({"action": "teleported", "number": 1, "pull_request": {"number": 1}}),
    );
    assert_eq!(read.meaning, Meaning::Ignored(Ignored::UnhandledAction), "ENUM-02");
    assert_eq!(read.action.as_deref(), Some("teleported"), "ENUM-02");
    for body in [
        json!({"action": "review_requested", "requested_team": {"id": 1, "name": "core"}}),
        json!({"action": "enqueued", "pull_request": {"number": 1}}),
        json!({"action": "dequeued", "reason": "CI_FAILURE", "pull_request": {"number": 1}}),
        json!({"pull_request": {"number": 1}}),
    ] {
        ignored("pull_request", &body, Ignored::UnhandledAction, "PAY-20");
    }
    let read = reading("star", &json!({"action": "é".repeat(40), "repository": repository()}));
    assert_eq!(read.meaning, Meaning::Ignored(Ignored::UnknownEvent), "S3-07");
    assert_eq!(read.action, Some("é".repeat(32)));
    assert_eq!(read.repository.unwrap().as_str(), "acme/app");
}

#[test]
fn hooks_of_organisations_and_apps_need_no_repository() {
    let ping = json!({"zen": "z", "hook_id": 43, "hook": {"type": "Organization", "id": 43}, "organization": {"login": "acme"}});
    let read = reading("ping", &ping);
    assert_eq!(
        (read.meaning, read.repository),
        (Meaning::Ignored(Ignored::Ping), None),
        "HOOK-02"
    );
    for (name, body) in [
        (
            "installation_repositories",
            json!({"action": "added", "installation": {"id": 9}, "repositories_added": [{"id": 1}]}),
        ),
        (
            "security_advisory",
            json!({"action": "updated", "security_advisory": {"ghsa_id": "GHSA-xxxx"}}),
        ),
    ] {
        let read = reading(name, &body);
        assert_eq!(
            (read.meaning, read.repository),
            (Meaning::Ignored(Ignored::UnknownEvent), None),
            "HOOK-05"
        );
    }
    for repository in [json!({"id": 1, "full_name": ""}), json!({}), Value::Null] {
        let read = reading("release", &with(release("published"), "repository", repository));
        assert_eq!(
            (read.meaning, read.repository),
            (Meaning::Ignored(Ignored::Incomplete), None),
            "HOOK-05"
        );
    }
}

#[test]
fn two_hooks_report_one_event() {
    let read_of = |key: &str, body: Value| {
        let (key, event_name) = (DeliveryKey::parse(key).unwrap(), EventName::parse("push").unwrap());
        let envelope = Envelope {
            host: None,
            key: Some(&key),
            event_name: &event_name,
            content_type: None,
        };
        let Meaning::Event(event) = read(&envelope, body.to_string().as_bytes()).meaning else {
            panic!()
        };
        event.id
    };
    let with_installation = with(push("refs/heads/x"), "installation", json!({"id": 2}));
    let (one, two) = (format!("42/{GUID}"), format!("77/{GUID}"));
    assert_eq!(
        read_of(&one, push("refs/heads/x")),
        read_of(&two, with_installation),
        "HOOK-06"
    );
}

#[test]
fn an_enterprise_host_begins_the_id() {
    let body = with(
        with(release("published"), "repository/url", None),
        "repository/html_url",
        None,
    )
    .to_string();
    let read = read_bytes("release", None, Some("git.acme.test"), body.as_bytes());
    let Meaning::Event(event) = read.meaning else { panic!() };
    assert_eq!(event.id.as_str(), "git.acme.test/github/release/500/1769990400");
    assert_eq!(event.cloud_source, "https://git.acme.test/acme/app");
}

#[test]
fn a_lone_surrogate_loses_one_character_and_not_the_event() {
    let body = br#"{"action":"created","comment":{"id":1,"body":"cut \ud83d"},"issue":{"number":1},"repository":{"id":1,"full_name":"acme/app"}}"#;
    let read = read_bytes("issue_comment", Some("application/json"), None, body);
    let Meaning::Event(event) = read.meaning else {
        panic!("PAY-22")
    };
    assert_eq!(event.summary, "cut \u{FFFD}", "PAY-22");
}

#[test]
fn a_wrong_type_is_malformed_and_only_where_it_matters() {
    let wrong = json!({"action": 5, "repository": "not-an-object"});
    for name in ["issue_comment", "pull_request", "check_run"] {
        let read = reading(name, &wrong);
        assert_eq!(
            (read.meaning, read.action),
            (Meaning::Malformed(Malformed::Shape), None),
            "PAY-23: {name}"
        );
    }
    ignored(
        "star",
        &wrong,
        Ignored::UnknownEvent,
        "nothing of an unknown event is needed",
    );
    for (path, value) in [
        ("comment", json!([])),
        ("comment/id", json!("8")),
        ("comment/id", json!(-1)),
        ("comment/body", json!(5)),
        ("comment/user", json!(["dev1"])),
        ("issue/number", json!(1.5)),
        ("sender", json!(1)),
    ] {
        let body = with(
            with(issue_comment("created"), "comment/user", None),
            path,
            value.clone(),
        );
        let read = reading("issue_comment", &body);
        assert_eq!(read.meaning, Meaning::Malformed(Malformed::Shape), "{path} = {value}");
        assert_eq!(
            read.repository.unwrap().as_str(),
            "acme/app",
            "it still says whom it speaks for"
        );
        assert_eq!(read.action.as_deref(), Some("created"));
    }
    for path in [
        "release",
        "pull_request",
        "check_run",
        "comment/reactions",
        "issue/created_at",
        "issue/labels",
        "head_commit",
    ] {
        let body = with(issue_comment("created"), path, json!("nonsense"));
        assert_eq!(
            event("issue_comment", &body).kind,
            Kind::Comment,
            "{path} is of no use here"
        );
    }
    let body = with(issue_comment("created"), "repository/id", json!("one"));
    let read = reading("issue_comment", &body);
    assert_eq!(read.meaning, Meaning::Malformed(Malformed::Shape));
    assert_eq!(read.repository.unwrap().as_str(), "acme/app");
}

#[test]
fn a_body_that_is_no_object_says_what_it_is() {
    for (body, why) in [
        (&b""[..], Malformed::NotJson),
        (b"{", Malformed::NotJson),
        (b"hello", Malformed::NotJson),
        (b"[1,", Malformed::NotJson),
        (b"{} {}", Malformed::NotJson),
        (b"[]", Malformed::NotAnObject),
        (b" null ", Malformed::NotAnObject),
        (b"\"x\"", Malformed::NotAnObject),
        (b"{\"a\":\"\xff\"}", Malformed::NotUtf8),
        (b"{\"action\":\"a\",\"action\":\"b\"}", Malformed::Shape),
        (b"{\"action\":\"\\ud83\"}", Malformed::NotJson),
    ] {
        for name in ["ping", "issue_comment"] {
            let read = read_bytes(name, None, None, body);
            let shown = String::from_utf8_lossy(body.get(..20).unwrap_or(body)).into_owned();
            assert_eq!(read.meaning, Meaning::Malformed(why), "{name}: {shown}");
        }
    }
    let form = read_bytes("push", Some("application/x-www-form-urlencoded"), None, b"foo=bar");
    assert_eq!(form.meaning, Meaning::Malformed(Malformed::NoPayload), "FORM-04");
    let other = read_bytes("push", Some("text/xml"), None, b"{}");
    assert_eq!(other.meaning, Meaning::Malformed(Malformed::ContentType));
}

#[test]
fn depth_in_a_field_that_nobody_reads_costs_nothing() {
    let body = issue_comment("created").to_string();
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let at_top = body.replacen('{', &format!("{{\"zen\":{deep},"), 1);
    let inside = body.replacen("\"comment\":{", &format!("\"comment\":{{\"zen\":{deep},"), 1);
    for body in [at_top, inside] {
        let read = read_bytes("issue_comment", None, None, body.as_bytes());
        assert!(matches!(read.meaning, Meaning::Event(_)));
    }
    let read = body.replacen("\"body\":", &format!("\"body\":{deep},\"was\":"), 1);
    let read = read_bytes("issue_comment", None, None, read.as_bytes());
    assert_eq!(read.meaning, Meaning::Malformed(Malformed::Shape));
}

#[test]
fn a_form_means_what_its_json_means() {
    let body = with(push("refs/heads/fix-50%25"), "head_commit/message", json!("a+b 100%"));
    let form = form_urlencoded::Serializer::new(String::new())
        .append_pair("payload", &body.to_string())
        .finish();
    let read = read_bytes("push", Some("application/x-www-form-urlencoded"), None, form.as_bytes());
    assert_eq!(read, reading("push", &body), "FORM-01");
    let Meaning::Event(event) = read.meaning else { panic!() };
    assert_eq!(
        (event.branch.as_deref(), event.summary.as_str()),
        (Some("fix-50%25"), "a+b 100%"),
        "FORM-02"
    );
}

#[test]
fn control_characters_survive_and_a_summary_is_cut_on_a_character() {
    let text = "bell \u{7} nul \u{0} \u{FFFE}\u{FFFF} end";
    let body = with(issue_comment("created"), "comment/body", json!(text));
    assert_eq!(event("issue_comment", &body).summary, text, "SQSS-02");
    let long = format!("a{}", "🚀".repeat(1_000));
    let summary = event("issue_comment", &with(body, "comment/body", json!(long))).summary;
    assert_eq!(summary.len(), 1_021, "S3-08");
    assert!(summary.len() <= SUMMARY_BYTES_MAX && long.starts_with(&summary));
}

#[test]
fn a_list_of_pull_requests_has_a_bound() {
    let pulls: Vec<_> = (1..=1_000).map(|number| listed(number, 1)).collect();
    let read = reading("check_run", &check_run("completed", json!(pulls)));
    let Meaning::Event(event) = read.meaning else { panic!() };
    assert_eq!((event.pull_requests.len(), read.names.len()), (100, 100));
}

fn bodies() -> [(&'static str, Value); 8] {
    [
        ("pull_request", closed(true)),
        ("issue_comment", issue_comment("created")),
        ("pull_request_review", review("submitted", "approved")),
        ("check_run", check_run("completed", json!([listed(12, 1)]))),
        ("workflow_run", workflow_run("failure")),
        ("push", push("refs/heads/x")),
        ("issues", issue("closed")),
        ("release", release("published")),
    ]
}

#[test]
fn no_truncation_of_a_body_is_anything_but_malformed() {
    for (name, body) in bodies() {
        let body = body.to_string();
        for len in 0..body.len() {
            let read = read_bytes(name, None, None, body.as_bytes().get(..len).unwrap());
            assert_eq!(
                read.meaning,
                Meaning::Malformed(Malformed::NotJson),
                "{name} cut at {len}"
            );
        }
    }
}

#[test]
fn no_single_changed_byte_panics_a_reader() {
    for (name, body) in bodies() {
        let mut bytes = body.to_string().into_bytes();
        for index in 0..bytes.len() {
            for changed in [b'"', b'\\', b'{', b'[', b'0', b'-', 0, 0xFF] {
                let original = std::mem::replace(bytes.get_mut(index).unwrap(), changed);
                let read = read_bytes(name, None, None, &bytes);
                assert!(read.names.len() <= 1);
                *bytes.get_mut(index).unwrap() = original;
            }
        }
    }
}

#[test]
fn no_null_in_place_of_any_field_is_malformed() {
    fn paths(value: &Value, prefix: &str, into: &mut Vec<String>) {
        for (key, value) in value.as_object().into_iter().flatten() {
            let path = if prefix.is_empty() {
                key.clone()
            } else {
                format!("{prefix}/{key}")
            };
            paths(value, &path, into);
            into.push(path);
        }
    }
    for (name, body) in bodies() {
        let mut all = Vec::new();
        paths(&body, "", &mut all);
        for path in all {
            for value in [Some(Value::Null), None] {
                let read = reading(name, &with(body.clone(), &path, value));
                assert!(!matches!(read.meaning, Meaning::Malformed(_)), "{name} without {path}");
            }
        }
    }
}

fn recorded(relative: &str) -> Option<PathBuf> {
    let beside = |dir: &Path| Some(dir.join("shared/data").join(relative)).filter(|path| path.is_dir());
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find_map(beside)
}

fn skip(what: &str) {
    eprintln!("skipped: the recorded deliveries of {what} are not there");
}

/// Reads every file of `dir` as a delivery called what `name_of` says; for each, whether it meant an event.
fn read_all(dir: &Path, name_of: impl Fn(&Path) -> String) -> Vec<bool> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let json = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    json.map(|path| {
        let read = read_bytes(&name_of(&path), None, None, &fs::read(&path).unwrap());
        assert!(!matches!(read.meaning, Meaning::Malformed(_)), "{}", path.display());
        assert_ne!(
            read.meaning,
            Meaning::Ignored(Ignored::Incomplete),
            "{}",
            path.display()
        );
        matches!(read.meaning, Meaning::Event(_))
    })
    .collect()
}

fn assert_many(read: &[bool], files_min: usize, events_min: usize) {
    let events = read.iter().filter(|is_event| **is_event).count();
    assert!(
        read.len() > files_min && events > events_min,
        "{events} events in {} files",
        read.len()
    );
}

#[test]
fn every_recorded_delivery_can_be_read() {
    let Some(root) = recorded("octokit-webhooks-examples") else {
        return skip("octokit");
    };
    let mut read = Vec::new();
    for dir in fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
    {
        let name = dir.file_name().unwrap().to_str().unwrap().to_owned();
        if EventName::parse(&name).is_none() {
            continue; // Refused before anything is read.
        }
        read.extend(read_all(&dir, |_| name.clone()));
    }
    assert_many(&read, 300, 30);
}

#[test]
fn every_delivery_that_a_service_recorded_can_be_read() {
    let Some(root) = recorded("rust-bors") else {
        return skip("a service");
    };
    const NAMES: [&str; 7] = [
        "issue-comment",
        "pull-request-review-comment",
        "pull-request-review",
        "pull-request",
        "push",
        "workflow-run",
        "installation",
    ];
    let name_of = |path: &Path| {
        let file = path.file_stem().unwrap().to_str().unwrap();
        NAMES
            .iter()
            .find(|name| file.starts_with(**name))
            .unwrap_or(&"unknown")
            .replace('-', "_")
    };
    assert_many(&read_all(&root, name_of), 20, 5);
}
