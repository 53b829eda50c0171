//! Requests in every shape that Lambda hands them over in.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::*;

fn event(json: Value) -> HttpEvent {
    serde_json::from_value(json).unwrap()
}

const BYTES_MAX: usize = 1_000;

#[test]
fn a_headers_name_arrives_in_any_case() {
    // HTTP-01: a REST API keeps the case, HTTP APIs and function URLs lower it.
    for name in ["X-Hub-Signature-256", "x-hub-signature-256", "X-HUB-SIGNATURE-256"] {
        for field in ["headers", "multiValueHeaders"] {
            let value = if field == "headers" {
                json!("sha256=1")
            } else {
                json!(["sha256=1"])
            };
            let event = event(json!({field: {name: value}}));
            assert_eq!(event.header("x-hub-signature-256"), Some("sha256=1"), "{field} {name}");
        }
    }
}

#[test]
fn two_values_of_one_header_are_two_and_none_is_picked() {
    // HTTP-03
    let both = event(json!({
        "headers": {"x-hub-signature-256": "b"},
        "multiValueHeaders": {"x-hub-signature-256": ["a", "b"]},
    }));
    assert_eq!(both.header_values("x-hub-signature-256"), ["a", "b"]);
    assert_eq!(both.header("x-hub-signature-256"), None);
    // In two spellings they are one header as well.
    let spelt = event(json!({"headers": {"X-Hub-Signature-256": "a", "x-hub-signature-256": "b"}}));
    assert_eq!(
        (
            spelt.header_values("x-hub-signature-256").len(),
            spelt.header("x-hub-signature-256")
        ),
        (2, None)
    );
    // Joined by a comma they stay one text, which is no signature.
    let joined = event(json!({"headers": {"x-hub-signature-256": "sha256=00,sha256=01"}}));
    assert_eq!(joined.header("x-hub-signature-256"), Some("sha256=00,sha256=01"));
}

#[test]
fn odd_headers_are_no_reason_to_fail() {
    // HTTP-04
    let odd = event(json!({
        "headers": {
            "user-agent": "caf\u{e9}-agent 🚀 \u{0}",
            "": "nameless",
            "x-null": null,
            "x-bool": true,
            "x-number": 7,
            "x-negative": -7,
            "x-fraction": 1.5,
            "x-object": {"a": ["b"]},
            "x-list": ["a", null, ["b"]],
            "x-github-event": "ping",
        },
    }));
    assert_eq!(odd.header("x-github-event"), Some("ping"));
    assert_eq!(odd.header("user-agent"), Some("caf\u{e9}-agent 🚀 \u{0}"));
    assert_eq!((odd.header("x-null"), odd.header("x-object")), (None, None));
    assert_eq!(
        (odd.header("x-number"), odd.header_values("x-list")),
        (Some("7"), vec!["a", "b"])
    );
}

#[test]
fn an_event_without_anything_is_a_request_for_nothing() {
    for empty in [
        json!({}),
        json!({"headers": null, "multiValueHeaders": null, "body": null, "requestContext": null}),
    ] {
        let empty = event(empty);
        assert_eq!((empty.method(), empty.path(), empty.source()), ("", "", None));
        assert_eq!(empty.header("x-github-event"), None);
        assert_eq!(empty.into_body(BYTES_MAX), Ok(Vec::new()));
    }
}

#[test]
fn the_flag_says_whether_a_body_is_base64_and_its_look_never_does() {
    // SIG-01, SIG-02
    let text = "eyJ6ZW4iOiJ4In0=";
    let body = |flag: Value| event(json!({"body": text, "isBase64Encoded": flag})).into_body(BYTES_MAX);
    assert_eq!(body(json!(true)), Ok(b"{\"zen\":\"x\"}".to_vec()), "decoded, once");
    for flag in [json!(false), json!(null)] {
        assert_eq!(body(flag), Ok(text.as_bytes().to_vec()));
    }
    assert_eq!(
        event(json!({"body": text})).into_body(BYTES_MAX),
        Ok(text.as_bytes().to_vec())
    );
    let twice = event(json!({"body": STANDARD.encode(text), "isBase64Encoded": true}));
    assert_eq!(twice.into_body(BYTES_MAX), Ok(text.as_bytes().to_vec()));
}

#[test]
fn a_body_that_is_marked_as_base64_and_is_not_is_refused() {
    for text in [
        "{}",
        "e",
        "eyJ6ZW4iOiJ4In0",
        "eyJ6 ZW4iOiJ4In0=",
        "eyJ6ZW4iOiJ4In0=\n",
        "🚀",
    ] {
        let marked = event(json!({"body": text, "isBase64Encoded": true}));
        assert_eq!(marked.into_body(BYTES_MAX), Err(BodyError::NotBase64), "{text:?}");
    }
}

#[test]
fn a_body_is_taken_up_to_its_limit_in_decoded_bytes() {
    for (bytes, fits) in [
        (0, true),
        (998, true),
        (999, true),
        (1_000, true),
        (1_001, false),
        (1_003, false),
        (9_000, false),
    ] {
        let body = vec![b'x'; bytes];
        let expected = if fits {
            Ok(body.clone())
        } else {
            Err(BodyError::TooLarge)
        };
        let encoded = event(json!({"body": STANDARD.encode(&body), "isBase64Encoded": true}));
        assert_eq!(encoded.into_body(BYTES_MAX), expected, "{bytes} bytes in base64");
        let plain = event(json!({"body": String::from_utf8(body).unwrap()}));
        assert_eq!(plain.into_body(BYTES_MAX), expected, "{bytes} bytes");
    }
    // Bytes, not characters.
    let rockets = event(json!({"body": "🚀".repeat(251)}));
    assert_eq!(rockets.into_body(BYTES_MAX), Err(BodyError::TooLarge));
}

#[test]
fn the_path_is_what_was_sent_without_the_stage() {
    let path = |raw: &str, stage: &str| {
        let event = event(json!({"rawPath": raw, "requestContext": {"stage": stage}}));
        event.path().to_owned()
    };
    assert_eq!(path("/api/intake/github", "$default"), "/api/intake/github");
    assert_eq!(path("/prod/api/intake/github", "prod"), "/api/intake/github");
    assert_eq!(path("/production/api", "prod"), "/production/api");
    assert_eq!(path("/prod", "prod"), "/prod");
    assert_eq!(path("/a%2Fb/../c//d", ""), "/a%2Fb/../c//d", "nothing is normalised");
    let rest = event(json!({"path": "/api", "httpMethod": "POST"}));
    assert_eq!((rest.path(), rest.method()), ("/api", "POST"));
}

#[test]
fn the_caller_is_who_the_platform_says_and_not_who_a_header_claims() {
    let claimed = json!({"x-forwarded-for": "6.6.6.6, 7.7.7.7"});
    let url = event(json!({"headers": claimed, "requestContext": {"http": {"sourceIp": "1.2.3.4"}}}));
    assert_eq!(url.source(), "1.2.3.4".parse().ok());
    let rest = event(json!({"headers": claimed, "requestContext": {"identity": {"sourceIp": "2001:db8::1"}}}));
    assert_eq!(rest.source(), "2001:db8::1".parse().ok());
    // A load balancer names no caller; it appends what it saw.
    let balancer = event(json!({"headers": claimed, "requestContext": {"elb": {}}}));
    assert_eq!(balancer.source(), "7.7.7.7".parse().ok());
    for odd in ["", "unknown", "1.2.3.4, nobody"] {
        assert_eq!(
            event(json!({"headers": {"x-forwarded-for": odd}})).source(),
            None,
            "{odd:?}"
        );
    }
}

#[test]
fn an_answer_has_an_integer_status_and_its_headers() {
    // HTTP-07: else GitHub would see a 200 with this JSON for a body.
    let answer = HttpAnswer::json(401, "{\"outcome\":\"refused\"}".to_owned()).with_header("allow", "POST");
    let expected = json!({
        "statusCode": 401,
        "headers": {"content-type": "application/json", "allow": "POST"},
        "body": "{\"outcome\":\"refused\"}",
        "isBase64Encoded": false,
    });
    assert_eq!(serde_json::to_value(&answer).unwrap(), expected);
}

/// The recorded events, which stand beside the workspace on the machines that have them.
fn recordings(folder: &str) -> Vec<PathBuf> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let folder = above
        .map(|folder_above| folder_above.join("shared/data").join(folder))
        .find(|folder| folder.is_dir());
    let Some(folder) = folder else {
        println!("no recordings here: {folder:?} is skipped");
        return Vec::new();
    };
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files
        .filter(|file| file.extension().is_some_and(|kind| kind == "json"))
        .collect()
}

#[test]
fn every_recorded_http_event_is_read() {
    let folders = [
        "aws-lambda-events",
        "aws-lambda-events/lambda_http",
        "aws-powertools-events",
    ];
    for file in folders.iter().flat_map(|folder| recordings(folder)) {
        let text = std::fs::read_to_string(&file).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        let has_path = json["rawPath"].is_string() || json["path"].is_string();
        let is_http = has_path && (json["httpMethod"].is_string() || json["requestContext"]["http"].is_object());
        if !is_http {
            continue;
        }
        let event: HttpEvent =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(
            event.path().starts_with('/') && !event.method().is_empty(),
            "{}",
            file.display()
        );
        let headers = json["headers"].as_object().into_iter().flatten();
        for (name, value) in headers.filter(|(_, value)| value.is_string()) {
            let values = event.header_values(&name.to_ascii_lowercase());
            assert!(values.contains(&value.as_str().unwrap()), "{}: {name}", file.display());
        }
        assert!(event.into_body(1 << 20).is_ok(), "{}", file.display());
    }
}
