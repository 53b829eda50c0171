//! Cases of the collection that are about the way in, each with its own input, through the whole webhook.

use forebay_core::delivery::{Ignored, Malformed, Outcome};
use forebay_core::ports::Ledger as _;
use forebay_tests::table::Table;
use forebay_tests::webhook::{Request, Stand};
use serde_json::{Value, json};

use crate::payloads::{comment, delivery, guid, key, open, push, reached, scripted, scripted_with, session};

/// Answers an invocation given as headers, body and flag.
async fn answer(headers: &Value, body: &str, base64: bool) -> (Stand<Scripted>, u16) {
    let stand = scripted();
    let event = json!({
        "rawPath": webhook::PATH, "requestContext": {"http": {"method": "POST"}},
        "headers": headers, "body": body, "isBase64Encoded": base64,
    });
    let answer = stand.webhook.answer(serde_json::from_value(event).unwrap()).await;
    (stand, answer.status())
}

type Scripted = forebay_tests::scripted::Scripted<forebay_core::ledger::memory::MemoryLedger>;

fn headers(event: &str, id: u64, content_type: &str, digits: &str) -> Value {
    json!({
        "x-github-event": event, "x-github-delivery": guid(id), "x-github-hook-id": "42",
        "content-type": content_type, "x-hub-signature-256": format!("sha256={digits}"),
    })
}

#[tokio::test]
async fn a_signature_counts_over_the_decoded_bytes_and_those_are_kept() {
    // SIG-01
    let digits = "5a141d3c2520a03159f408872fe006eb5820338bf144c633c750caf2f5ec175b";
    let body = "eyJhY3Rpb24iOiJjcmVhdGVkIiwiY29tbWVudCI6eyJpZCI6NywiYm9keSI6InNoaXAgaXQifX0=";
    let headers = headers("issue_comment", 1, "application/json", digits);
    let (stand, status) = answer(&headers, body, true).await;
    assert_eq!(status, 202);
    let kept = stand.ledger.body(&key(1)).await.unwrap().unwrap();
    assert_eq!(kept, br#"{"action":"created","comment":{"id":7,"body":"ship it"}}"#);
    // The flag decides, not the look.
    let (_, status) = answer(&headers, body, false).await;
    assert_eq!(status, 401);
}

#[tokio::test]
async fn one_signed_body_is_taken_as_text_and_as_base64() {
    // LOCL-03: what stands in front of the function decides which it is.
    let digits = "5a141d3c2520a03159f408872fe006eb5820338bf144c633c750caf2f5ec175b";
    let base64 = "eyJhY3Rpb24iOiJjcmVhdGVkIiwiY29tbWVudCI6eyJpZCI6NywiYm9keSI6InNoaXAgaXQifX0=";
    let text = r#"{"action":"created","comment":{"id":7,"body":"ship it"}}"#;
    let headers = headers("issue_comment", 1, "application/json", digits);
    for (body, is_base64) in [(text, false), (base64, true)] {
        let (stand, status) = answer(&headers, body, is_base64).await;
        assert_eq!(status, 202);
        let kept = stand.ledger.body(&key(1)).await.unwrap().unwrap();
        assert_eq!(kept, text.as_bytes());
    }
}

#[tokio::test]
async fn a_signed_body_that_is_no_text_is_kept_exactly_and_ends_as_malformed() {
    // SIG-20, S2-04
    let digits = "6e2661dac23b865d4f9cedaf4f32533be63db54d0d592e295e3037535b2ef1ec";
    let headers = headers("push", 14, "application/json", digits);
    let (stand, status) = answer(&headers, "e/99", true).await;
    assert_eq!(status, 202);
    let row = stand.ledger.delivery(&key(14)).await.unwrap().unwrap();
    assert_eq!(row.delivery.outcome, Outcome::Malformed(Malformed::NotUtf8));
    assert_eq!(stand.ledger.body(&key(14)).await.unwrap().unwrap(), b"\x7b\xff\x7d");
}

#[tokio::test]
async fn a_form_without_a_payload_is_kept_and_ends_as_malformed() {
    // FORM-04
    let digits = "cc16b668bd7c1e58f6a27a1d5b7f0ee02753692f691b0e3f715183c71710b41b";
    let headers = headers("push", 22, "application/x-www-form-urlencoded", digits);
    let (stand, status) = answer(&headers, "foo=bar", false).await;
    assert_eq!(status, 202);
    let row = stand.ledger.delivery(&key(22)).await.unwrap().unwrap();
    assert_eq!(row.delivery.outcome, Outcome::Malformed(Malformed::NoPayload));
}

#[tokio::test]
async fn header_names_count_in_any_case() {
    // HTTP-01
    for spell in [str::to_lowercase as fn(&str) -> String, str::to_uppercase, titled] {
        let stand = scripted();
        let mut event = delivery(1, "push", &push("a", "b")).to_json();
        let headers = event["headers"].as_object().unwrap().clone();
        event["headers"] = headers
            .into_iter()
            .map(|(name, value)| (spell(&name), value))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let answer = stand.webhook.answer(serde_json::from_value(event).unwrap()).await;
        assert_eq!(answer.status(), 202);
    }
}

/// `x-hub-signature-256` as `X-Hub-Signature-256`.
fn titled(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    });
    words.collect::<Vec<_>>().join("-")
}

#[tokio::test]
async fn two_signatures_are_none() {
    // HTTP-03
    let zeros = "0".repeat(64);
    let good = "3a6344e8ab25db650c22221bf5e0b637083cc12138e101e9cb13138814f4b01c";
    let (joined, two) = (
        json!(format!("sha256={zeros},sha256={good}")),
        json!([format!("sha256={zeros}"), format!("sha256={good}")]),
    );
    for (field, value) in [("headers", joined), ("multiValueHeaders", two)] {
        let stand = scripted();
        let mut event = Request::new("ping", &guid(1), "{}")
            .header("x-hub-signature-256", None)
            .to_json();
        if field == "multiValueHeaders" {
            let headers = event["headers"].as_object().unwrap().clone();
            event[field] = headers
                .into_iter()
                .map(|(name, value)| (name, json!([value])))
                .collect::<serde_json::Map<_, _>>()
                .into();
        }
        event[field]["x-hub-signature-256"] = value;
        let answer = stand.webhook.answer(serde_json::from_value(event).unwrap()).await;
        assert_eq!((answer.status(), stand.ledger.calls().len()), (401, 0), "{field}");
    }
}

#[tokio::test]
async fn an_odd_header_elsewhere_is_no_reason_to_lose_a_delivery() {
    // HTTP-04
    let digits = "b6c7a5f6b45f356f2bc446774ae419c848be23545903bdf8cd407c7aea60470b";
    let mut headers = headers("ping", 23, "application/json", digits);
    headers["user-agent"] = "café-agent".into();
    let (_, status) = answer(&headers, r#"{"zen":"z"}"#, false).await;
    assert_eq!(status, 202);
}

#[tokio::test]
async fn a_ping_without_a_repository_is_ignored() {
    // HOOK-02
    let payload = json!({"zen": "z", "hook_id": 43, "hook": {"type": "Organization", "id": 43}, "organization": {"login": "acme"}});
    let stand = scripted();
    assert_eq!(stand.post(&delivery(31, "ping", &payload)).await.status(), 202);
    let row = stand.ledger.delivery(&key(31)).await.unwrap().unwrap();
    assert_eq!(row.delivery.outcome, Outcome::Ignored(Ignored::Ping));
}

#[tokio::test]
async fn what_the_reader_cannot_read_is_kept_and_can_be_read_again_under_another_guid() {
    // PAY-23: `forebay show KEY --body` gets the bytes, and `forebay send` posts them anew once the reader is mended.
    let (table, bytes) = (Table::start().await, r#"{"action":5,"repository":"not-an-object"}"#);
    let stand = Stand::start(&table).await;
    let outcome = async |n| stand.ledger.delivery(&key(n)).await.unwrap().unwrap().delivery.outcome;
    let answer = stand.post(&Request::new("issue_comment", &guid(1), bytes)).await;
    assert_eq!(answer.status(), 202, "GitHub would not send it again by itself");
    assert_eq!(outcome(1).await, Outcome::Malformed(Malformed::Shape));
    let kept = stand.ledger.body(&key(1)).await.unwrap().unwrap();
    assert_eq!(kept, bytes.as_bytes());
    // A reader that wants nothing of these bytes stands for the mended one.
    let again = stand.post(&Request::new("star", &guid(2), kept)).await;
    assert_eq!(again.status(), 202, "no duplicate: it is read anew");
    assert_eq!(outcome(2).await, Outcome::Ignored(Ignored::UnknownEvent));
}

#[tokio::test]
async fn an_unknown_event_is_recorded_and_never_handled() {
    // S2-04, S3-07
    let table = Table::start().await;
    let stand = Stand::start(&table).await;
    let payload = json!({"action": "created", "repository": {"id": 1, "full_name": "acme/app"}});
    let answer = stand.post(&delivery(1, "sub_issues_of_2030", &payload)).await;
    assert_eq!(answer.status(), 202);
    let row = stand.ledger.delivery(&key(1)).await.unwrap().unwrap().delivery;
    assert_eq!(row.outcome, Outcome::Ignored(Ignored::UnknownEvent));
    assert_eq!(row.action.as_deref(), Some("created"));
    assert!(stand.ledger.body(&key(1)).await.unwrap().is_some());
}

#[tokio::test]
async fn a_bot_that_nobody_ignores_is_heard() {
    // ROUT-01, ROUT-02
    for (login, expected) in [
        ("agent-bot[bot]", 0),
        ("Agent-Bot[bot]", 0),
        ("dev1", 1),
        ("dependabot[bot]", 1),
    ] {
        let stand = scripted_with(&[("ROUTES", "acme/app=reviewer")]);
        stand.post(&delivery(1, "issue_comment", &comment(8, login))).await;
        assert_eq!(reached(&stand).len(), expected, "{login}");
    }
}

#[tokio::test]
async fn one_branch_name_in_two_repositories_is_two_branches() {
    // ROUT-04
    let stand = scripted();
    open(&stand, &session(&stand, "builder", Some("fix"), None)).await;
    let mut elsewhere = session(&stand, "reviewer", Some("fix"), None);
    elsewhere.repository = forebay_core::event::Repository::new("acme/web").unwrap();
    open(&stand, &elsewhere).await;
    let repository = json!({"id": 2, "full_name": "acme/web"});
    let failed = json!({
        "action": "completed", "repository": repository,
        "check_run": {"id": 7, "name": "build", "conclusion": "failure", "check_suite": {"head_branch": "fix"}, "pull_requests": []},
    });
    stand.post(&delivery(1, "check_run", &failed)).await;
    assert_eq!(reached(&stand), ["reviewer"]);
}

#[tokio::test]
async fn no_message_is_ever_empty() {
    // SQSS-03: the envelope is JSON, whatever the text is.
    let stand = scripted_with(&[("ROUTES", "acme/app=reviewer")]);
    let mut silent = comment(8, "dev1");
    silent["comment"]["body"] = "".into();
    stand.post(&delivery(1, "issue_comment", &silent)).await;
    let body: Value = serde_json::from_str(&stand.inboxes.all()[0].body).unwrap();
    assert_eq!(body["specversion"], "1.0");
}

#[tokio::test]
async fn an_unusable_configuration_refuses_every_delivery_for_each_variable_that_is_wrong() {
    // LAMB-07, invariant 7
    let wrong = [
        ("TABLE_NAME", None),
        ("TABLE_NAME", Some("")),
        ("TABLE_NAME", Some("bad name!")),
        ("SECRET_ID", None),
        ("SECRET_ID", Some(" ")),
        ("INBOX_dispatcher", None),
        ("INBOX_notice", Some("")),
        ("ROUTES", Some("acme=builder")),
        ("ROUTES", Some("acme/app=nobody")),
        ("ROUTES", Some("acme/app=builder,acme/app=reviewer")),
        ("SOURCE_RANGES", Some("everywhere")),
        ("BODY_BYTES_MAX", Some("lots")),
        ("BODY_BYTES_MAX", Some("6291457")),
        ("SECRET_CACHE_SECONDS", Some("0")),
        ("RETENTION_DAYS", Some("3")),
        ("PARK_DAYS", Some("-1")),
        ("AGE_DAYS_MAX", Some("1.5")),
        ("FAILURES_MAX", Some("0")),
        ("LEASE_SECONDS", Some("10")),
        ("SKEW_SECONDS", Some("x")),
        ("RETRY_SECONDS_MIN", Some("0")),
        ("RETRY_SECONDS_MAX", Some("1")),
        ("INBOX_Builder", Some("http://127.0.0.1:1/b.fifo")),
        ("INBOX_builder", Some("nonsense")),
        ("GITHUB_HOST", Some("no,such value/at all")),
        ("METRICS_NAMESPACE", Some("no,such value/at all")),
    ];
    for (name, value) in wrong {
        let mut environment = forebay_tests::webhook::environment();
        environment.remove(name);
        environment.extend(value.map(|value| (name.to_owned(), value.to_owned())));
        let problems = forebay_aws::config::Config::read(environment).unwrap_err();
        let [problem] = problems.sentences() else {
            panic!("{name}={value:?}: {problems}")
        };
        assert!(problem.contains(name), "{name}={value:?}: {problem}");
    }
    let request = delivery(1, "ping", &json!({}));
    let answer = webhook::refuse_misconfigured(&request.to_event());
    let expected = format!(
        r#"{{"delivery":"{}","event":"ping","outcome":"refused","refusal":"misconfigured"}}"#,
        guid(1)
    );
    assert_eq!((answer.status(), answer.body()), (503, expected.as_str()));
}
