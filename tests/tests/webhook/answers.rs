//! What is answered, and that a refusal touches nothing.

use forebay_aws::http_event::HttpEvent;
use forebay_tests::webhook::{Request, SECRET};
use serde_json::json;
use webhook::refuse_misconfigured;

use crate::payloads::{comment, delivery, guid, push, scripted, scripted_with};

/// The answer's JSON for the first delivery's headers.
fn refused(event: &str, refusal: &str) -> String {
    let guid = guid(1);
    format!(r#"{{"delivery":"{guid}","event":"{event}","outcome":"refused","refusal":"{refusal}"}}"#)
}

/// Posts `request` and checks that it is refused with `status` and `body`, that the ledger was not called and no message
/// sent.
async fn check_refused(changes: &[(&str, &str)], request: &Request, status: u16, body: &str) {
    let stand = scripted_with(changes);
    let answer = stand.post(request).await;
    assert_eq!(
        (answer.status(), answer.body()),
        (status, body),
        "{:?}",
        request.headers
    );
    assert_eq!(stand.ledger.calls(), [], "invariant 7");
    assert_eq!(stand.inboxes.sends(), 0);
    assert!(stand.secrets.reads() <= 1, "at most the secret cache");
}

#[tokio::test]
async fn every_kept_delivery_is_answered_by_its_outcome_and_what_is_empty_is_left_out() {
    // S3-04
    let stand = scripted();
    let mut posted = Vec::new();
    for (n, event, body) in [
        (1, "issue_comment", comment(8, "dev1").to_string()),
        (1, "issue_comment", comment(8, "dev1").to_string()),
        (2, "ping", json!({"zen": "z"}).to_string()),
        (2, "ping", json!({"zen": "z"}).to_string()),
        (3, "push", "not json".to_owned()),
    ] {
        let answer = stand.post(&Request::new(event, &guid(n), body)).await;
        posted.push((answer.status(), answer.body().to_owned()));
    }
    let body = |n, event: &str, rest: &str| format!(r#"{{"delivery":"{}","event":"{event}",{rest}}}"#, guid(n));
    assert_eq!(
        posted,
        [
            (
                202,
                body(1, "issue_comment", r#""outcome":"accepted","events":["comment"]"#)
            ),
            (
                200,
                body(1, "issue_comment", r#""outcome":"duplicate","events":["comment"]"#)
            ),
            (202, body(2, "ping", r#""outcome":"ignored""#)),
            (200, body(2, "ping", r#""outcome":"duplicate""#)),
            (202, body(3, "push", r#""outcome":"ignored""#)),
        ]
    );
}

#[tokio::test]
async fn a_missing_or_wrong_signature_is_refused_and_touches_nothing() {
    // S2-01, S2-02, S3-01, S3-03, HTTP-06, HOOK-03
    let good = delivery(1, "ping", &json!({"zen": "z"}));
    let digits = "0".repeat(64);
    let wrong = format!("sha256={digits}");
    let sha1 = format!("sha1={}", "0".repeat(40));
    for value in [None, Some(""), Some(wrong.as_str()), Some(sha1.as_str()), Some(&digits)] {
        let request = good.clone().header("x-hub-signature-256", value);
        check_refused(&[], &request, 401, &refused("ping", "bad_signature")).await;
    }
}

#[tokio::test]
async fn a_right_sha1_signature_counts_for_nothing() {
    // SIG-16, SIG-17, S3-01: neither alone nor beside a wrong signature by SHA-256.
    let right = Some("sha1=2ce49d6797d3641783baed2de644f056dfe7cf72");
    let both = Request::new("push", &guid(1), "{}").header("x-hub-signature", right);
    assert_eq!(scripted().post(&both).await.status(), 202, "it does no harm either");
    let zeros = format!("sha256={}", "0".repeat(64));
    for value in [None, Some(zeros.as_str())] {
        let request = both.clone().header("x-hub-signature-256", value);
        check_refused(&[], &request, 401, &refused("push", "bad_signature")).await;
    }
}

#[tokio::test]
async fn a_request_without_a_body_is_refused_and_runs_nothing() {
    // S2-02
    for absent in [None, Some(serde_json::Value::Null)] {
        let stand = scripted();
        let mut json = delivery(1, "issue_comment", &comment(8, "dev1")).to_json();
        match absent {
            None => drop(json.as_object_mut().unwrap().remove("body").unwrap()),
            Some(null) => json["body"] = null,
        }
        let answer = stand.webhook.answer(serde_json::from_value(json).unwrap()).await;
        assert_eq!(
            (answer.status(), answer.body()),
            (401, refused("issue_comment", "bad_signature").as_str())
        );
        assert_eq!((stand.ledger.calls().len(), stand.inboxes.sends()), (0, 0));
    }
}

#[tokio::test]
async fn a_changed_body_is_refused_and_touches_nothing() {
    let mut request = delivery(1, "ping", &json!({"zen": "z"}));
    request.body.push(b' ');
    check_refused(&[], &request, 401, &refused("ping", "bad_signature")).await;
}

#[tokio::test]
async fn a_malformed_identity_is_refused_and_only_what_is_well_formed_is_repeated() {
    // S3-03: path characters included. HTTP-09
    let good = delivery(1, "ping", &json!({"zen": "z"}));
    let long = "a".repeat(65);
    for bad in [None, Some(""), Some("../../etc/x"), Some("a b"), Some(long.as_str())] {
        let request = good.clone().header("x-github-delivery", bad);
        let body = r#"{"event":"ping","outcome":"refused","refusal":"bad_delivery"}"#;
        check_refused(&[], &request, 400, body).await;
    }
    for bad in [
        None,
        Some(""),
        Some("../ping"),
        Some("PING"),
        Some("pi ng"),
        Some(long.as_str()),
    ] {
        let request = good.clone().header("x-github-event", bad);
        let body = format!(
            r#"{{"delivery":"{}","outcome":"refused","refusal":"bad_delivery"}}"#,
            guid(1)
        );
        check_refused(&[], &request, 400, &body).await;
    }
    for bad in ["", "abc", "1/2", "111111111111111111111"] {
        let request = good.clone().header("x-github-hook-id", Some(bad));
        check_refused(&[], &request, 400, &refused("ping", "bad_delivery")).await;
    }
}

#[tokio::test]
async fn a_body_that_is_not_the_base64_it_claims_to_be_is_refused() {
    let stand = scripted();
    let mut json = delivery(1, "ping", &json!({})).to_json();
    json["isBase64Encoded"] = true.into();
    json["body"] = "%%%".into();
    let answer = stand.webhook.answer(serde_json::from_value(json).unwrap()).await;
    assert_eq!(
        (answer.status(), answer.body()),
        (400, refused("ping", "bad_delivery").as_str())
    );
    assert_eq!((stand.ledger.calls().len(), stand.secrets.reads()), (0, 0));
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_any_secret_is_read() {
    // S3-03: the limit counts decoded bytes, in both encodings, and nothing is hashed.
    for filler in ["x", "\u{0}"] {
        let stand = scripted_with(&[("BODY_BYTES_MAX", "1024")]);
        let mut bytes = filler.repeat(1_024).into_bytes();
        if filler == "\u{0}" {
            bytes[0] = 0xff;
        }
        let fits = Request::new("ping", &guid(1), bytes.clone());
        assert_eq!(stand.post(&fits).await.status(), 202);
        bytes.push(b'x');
        let over = Request::new("ping", &guid(1), bytes);
        let stand = scripted_with(&[("BODY_BYTES_MAX", "1024")]);
        let answer = stand.post(&over).await;
        assert_eq!(
            (answer.status(), answer.body()),
            (413, refused("ping", "too_large").as_str())
        );
        assert_eq!((stand.ledger.calls().len(), stand.secrets.reads()), (0, 0));
    }
}

#[tokio::test]
async fn without_a_secret_everything_is_refused() {
    // SIG-07, S2-02, invariant 7
    let good = delivery(1, "ping", &json!({}));
    let unsigned = good.clone().header("x-hub-signature-256", None);
    // HMAC-SHA256 of `{}` under the empty key: right, and it counts for nothing.
    let empty = "sha256=22f8eea909400af98adf3681a9f31923ef6b7fcba4abb553d92823a3e9d5c25e";
    let by_empty_key = good.clone().header("x-hub-signature-256", Some(empty));
    for document in [
        None,
        Some("{}"),
        Some(r#"{"github":{}}"#),
        Some(r#"{"github":{"webhook_secret":""}}"#),
        Some(r#"{"github":{"webhook_secret":"   "}}"#),
        Some(r#"{"github":{"webhook_secret":"\n"}}"#),
        Some(r#"{"github":{"webhook_secret":[]}}"#),
        Some("not a document"),
    ] {
        for request in [&unsigned, &good, &by_empty_key] {
            let stand = scripted();
            stand.secrets.set(document.map(str::to_owned));
            let answer = stand.post(request).await;
            let expected = refused("ping", "no_webhook_secret");
            assert_eq!(
                (answer.status(), answer.body()),
                (503, expected.as_str()),
                "{document:?}"
            );
            assert_eq!(stand.ledger.calls(), []);
            let line = stand.metrics.lines().pop().unwrap();
            assert_eq!(
                (&line["Refusal"], &line["Deliveries"]),
                (&json!("no_webhook_secret"), &json!(1))
            );
        }
    }
}

#[tokio::test]
async fn a_secret_of_one_team_cannot_speak_for_another_teams_repository() {
    // S2-19
    let stand = scripted();
    let document =
        json!({"github": {"webhook_secret": [{"secret": SECRET, "id": "web", "repositories": ["acme/web"]}]}});
    stand.secrets.set(Some(document.to_string()));
    let answer = stand.post(&delivery(1, "issue_comment", &comment(8, "dev1"))).await;
    assert_eq!(
        (answer.status(), answer.body()),
        (401, refused("issue_comment", "bad_signature").as_str())
    );
    assert_eq!(stand.ledger.calls(), []);
}

#[tokio::test]
async fn a_caller_outside_the_ranges_is_refused_before_any_secret_is_read() {
    let request = delivery(1, "ping", &json!({}));
    let inside = scripted_with(&[("SOURCE_RANGES", "192.30.252.0/22,127.0.0.0/8")]);
    assert_eq!(inside.post(&request).await.status(), 202);
    let outside = scripted_with(&[("SOURCE_RANGES", "192.30.252.0/22")]);
    let answer = outside.post(&request).await;
    assert_eq!(
        (answer.status(), answer.body()),
        (401, refused("ping", "bad_signature").as_str())
    );
    assert_eq!((outside.ledger.calls().len(), outside.secrets.reads()), (0, 0));
}

#[tokio::test]
async fn another_path_or_method_touches_nothing_and_is_not_counted_as_refused() {
    // HTTP-10
    let stand = scripted();
    let ask = |method: &str, path: &str| -> HttpEvent {
        let http = json!({"method": method, "path": path});
        serde_json::from_value(json!({"rawPath": path, "requestContext": {"http": http}})).unwrap()
    };
    for (method, path, status) in [
        ("GET", "/", 404),
        ("HEAD", "/favicon.ico", 404),
        ("POST", "/", 404),
        ("POST", "/api/intake/github/x", 404),
        ("POST", "/api/intake/../intake/github", 404),
        ("POST", "/API/intake/github", 404),
        ("GET", webhook::PATH, 405),
        ("HEAD", webhook::PATH, 405),
        ("PUT", webhook::PATH, 405),
        ("post", webhook::PATH, 405),
    ] {
        let answer = stand.webhook.answer(ask(method, path)).await;
        assert_eq!(answer.status(), status, "{method} {path}");
        assert_eq!(
            refuse_misconfigured(&ask(method, path)),
            answer,
            "whatever the configuration"
        );
    }
    assert_eq!((stand.ledger.calls().len(), stand.secrets.reads()), (0, 0));
    assert_eq!(stand.metrics.text(), "");
}

#[tokio::test]
async fn the_path_may_end_in_a_slash() {
    let stand = scripted();
    let mut json = delivery(1, "ping", &json!({})).to_json();
    json["rawPath"] = format!("{}/", webhook::PATH).into();
    let answer = stand.webhook.answer(serde_json::from_value(json).unwrap()).await;
    assert_eq!(answer.status(), 202);
}

#[tokio::test]
async fn an_answer_has_the_shape_that_a_function_url_reads() {
    // HTTP-07: an integer status and a content type, or the caller would see 200 with the JSON as its body.
    let stand = scripted();
    let answer = stand.post(&delivery(1, "push", &push("a", "b"))).await;
    let json = serde_json::to_value(&answer).unwrap();
    assert_eq!(json["statusCode"], 202);
    assert_eq!(json["headers"]["content-type"], "application/json");
    assert_eq!(json["isBase64Encoded"], false);
    assert_eq!(
        json["cookies"],
        serde_json::json!([]),
        "cargo-lambda's local server wants the list"
    );
    assert!(json["body"].is_string());
    // HTTP-07's own input: no path of ours.
    let event = json!({
        "version": "2.0", "rawPath": "/", "requestContext": {"http": {"method": "POST", "path": "/"}},
        "headers": {"x-github-event": "ping"},
    });
    let answer = stand.webhook.answer(serde_json::from_value(event).unwrap()).await;
    assert_eq!(serde_json::to_value(&answer).unwrap()["statusCode"], 404);
}
