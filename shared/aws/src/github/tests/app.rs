//! The client as a GitHub App: its proof, and the tokens of its installations.

use std::path::Path;
use std::sync::LazyLock;

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::Value;

use super::double::Seen;
use super::*;

/// Thrown away with the test's process.
static KEY: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate(KeySize::Rsa2048).unwrap());
/// What stands before the PKCS#1 key in a PKCS#8 document of an RSA key of 2048 bits.
const PKCS8_HEAD_BYTES: usize = 26;

fn pkcs8() -> Vec<u8> {
    KEY.as_der().unwrap().as_ref().to_vec()
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn pkcs1_pem() -> String {
    pem("RSA PRIVATE KEY", &pkcs8()[PKCS8_HEAD_BYTES..])
}

fn app_of(private_key: &str) -> Given {
    Given::new(&serde_json::json!({ "app": { "id": 123_456, "private_key": private_key } }))
}

/// The claims of the proof that `seen` carries, which the key has signed.
fn claims(seen: &Seen) -> Value {
    let proof = seen
        .header("authorization")
        .and_then(|value| value.strip_prefix("Bearer "))
        .unwrap();
    let (signed, signature) = proof.rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, KEY.public_key().as_ref())
        .verify(signed.as_bytes(), &signature)
        .unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let read = |part: &str| -> Value { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap() };
    assert_eq!(read(header), serde_json::json!({ "alg": "RS256", "typ": "JWT" }));
    read(claims)
}

fn is_proof(seen: &Seen) -> bool {
    seen.header("authorization")
        .is_some_and(|value| value.starts_with("Bearer eyJ"))
}

/// GitHub with one App, installed for the organisation `acme` as 7, whose tokens last an hour of the tests' clock each, in
/// GitHub's newer form. `feed` answers what is asked with a token.
fn github(clock: Clock, feed: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> impl Fn(&Seen, usize) -> Reply {
    move |seen, before| match (seen.line().as_str(), is_proof(seen)) {
        ("GET /orgs/acme/installation", true) => reply(200, r#"{"id": 7, "app_id": 123456}"#),
        ("POST /app/installations/7/access_tokens", true) => {
            let expires_at = clock.now() + SignedDuration::from_hours(1);
            let token = format!("ghs_123456_{}{before}", "eyJ0.".repeat(200));
            reply(
                201,
                &serde_json::json!({ "token": token, "expires_at": expires_at.to_string() }).to_string(),
            )
        }
        (_, false) => feed(seen),
        (_, true) => reply(404, r#"{"message":"Not Found"}"#),
    }
}

const GOT: [&str; 2] = ["GET /orgs/acme/installation", "POST /app/installations/7/access_tokens"];

#[tokio::test]
async fn an_app_proves_itself_with_a_key_of_either_form() {
    for private_key in [pkcs1_pem(), pem("PRIVATE KEY", &pkcs8())] {
        let double = Double::serve(|_, _| reply(200, "[]")).await;
        let api = client(
            &double.url(),
            &app_of(&private_key),
            &Clock::default(),
            Settings::default(),
        );
        let credential = api.access().await.unwrap().for_app(&api.host()).unwrap();
        api.ask(Request::get("/app/hook/deliveries", &credential))
            .await
            .unwrap();
        let now = at(0).as_second();
        let expected = serde_json::json!({ "iat": now - 60, "exp": now + 540, "iss": "123456" });
        assert_eq!(claims(&double.seen()[0]), expected);
    }
}

#[tokio::test]
async fn an_installations_token_is_got_once_and_used_by_all_who_ask_meanwhile() {
    let clock = Clock::default();
    let double = Double::serve(github(clock.clone(), |_| reply(200, "[]"))).await;
    let api = client(&double.url(), &app_of(&pkcs1_pem()), &clock, Settings::default());
    let (first, second, third) = tokio::join!(get(&api, "/x"), get(&api, "/x"), get(&api, "/x"));
    assert_eq!([first, second, third].map(|answer| answer.unwrap().status), [200; 3]);
    assert_eq!(double.lines(), [GOT[0], GOT[1], "GET /x", "GET /x", "GET /x"]);
    claims(&double.seen()[0]);
    assert!(
        double.seen()[2]
            .header("authorization")
            .unwrap()
            .starts_with("Bearer ghs_123456_eyJ0.")
    );
}

#[tokio::test]
async fn a_recorded_token_of_an_installation_is_read() {
    let file = "octokit-openapi/examples/POST_app_installations_installation_id_access_tokens_201_default.json";
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut above = above.map(|folder| folder.join("shared/data").join(file));
    let Some(recorded) = above.find(|path| path.is_file()) else {
        println!("skipped: no folder shared/data beside the repository");
        return;
    };
    let issued = std::fs::read_to_string(recorded).unwrap();
    let double = Double::serve(move |seen, _| match (seen.line().as_str(), is_proof(seen)) {
        ("GET /orgs/acme/installation", true) => reply(200, r#"{"id": 7}"#),
        ("POST /app/installations/7/access_tokens", true) => reply(201, &issued),
        (_, _) => reply(200, "[]"),
    })
    .await;
    let api = client(
        &double.url(),
        &app_of(&pkcs1_pem()),
        &Clock::default(),
        Settings::default(),
    );
    assert_eq!(get(&api, "/x").await.unwrap().status, 200);
    assert_eq!(
        double.seen()[2].header("authorization").unwrap(),
        "Bearer ghs_EXAMPLEREDACTED"
    );
}

#[tokio::test]
async fn an_installations_token_is_got_anew_five_minutes_before_its_end() {
    let clock = Clock::default();
    let double = Double::serve(github(clock.clone(), |_| reply(200, "[]"))).await;
    let api = client(&double.url(), &app_of(&pkcs1_pem()), &clock, Settings::default());
    for (second, requests) in [(0, 3), (3_299, 4), (3_300, 7), (3_301, 8)] {
        clock.move_to(second);
        get(&api, "/x").await.unwrap();
        assert_eq!(double.seen().len(), requests, "at {second} s");
    }
}

#[tokio::test]
async fn a_refused_token_of_an_installation_is_got_anew_once() {
    let clock = Clock::default();
    let refused: Arc<StdMutex<Vec<String>>> = Arc::default();
    let known = Arc::clone(&refused);
    let feed = move |seen: &Seen| {
        let token = seen.header("authorization").unwrap_or_default().to_owned();
        let revoked = known.lock().unwrap_or_else(PoisonError::into_inner).contains(&token);
        reply(if revoked { 401 } else { 200 }, "[]")
    };
    let double = Double::serve(github(clock.clone(), feed)).await;
    let api = client(&double.url(), &app_of(&pkcs1_pem()), &clock, Settings::default());
    get(&api, "/x").await.unwrap();
    let token = double.seen()[2].header("authorization").unwrap().to_owned();
    refused.lock().unwrap_or_else(PoisonError::into_inner).push(token);
    assert_eq!(get(&api, "/x").await.unwrap().status, 200);
    assert_eq!(double.lines()[3..], ["GET /x", GOT[0], GOT[1], "GET /x"]);
}

#[tokio::test]
async fn a_refusal_that_no_new_token_lifts_is_the_answer() {
    let clock = Clock::default();
    let double = Double::serve(github(clock.clone(), |_| reply(401, "{}"))).await;
    let api = client(&double.url(), &app_of(&pkcs1_pem()), &clock, Settings::default());
    assert_eq!(get(&api, "/x").await.unwrap().status, 401);
    assert_eq!(double.lines(), [GOT[0], GOT[1], "GET /x", GOT[0], GOT[1], "GET /x"]);
}

#[tokio::test]
async fn a_refused_token_is_not_used_again_while_no_other_can_be_got() {
    let clock = Clock::default();
    let well = github(clock.clone(), |_| reply(401, "{}"));
    // The first token is given out, later ones are not.
    let double = Double::serve(move |seen, before| match (seen.method.as_str(), before) {
        ("POST", 3..) => reply(502, ""),
        _ => well(seen, before),
    })
    .await;
    let api = client(&double.url(), &app_of(&pkcs1_pem()), &clock, Settings::default());
    for _ in 0..2 {
        assert_eq!(get(&api, "/x").await.unwrap_err().class, ErrorClass::ServerFault);
    }
    assert_eq!(
        double.lines(),
        [GOT[0], GOT[1], "GET /x", GOT[0], GOT[1], GOT[0], GOT[1]]
    );
}

#[tokio::test]
async fn an_app_that_is_installed_for_a_user_is_found_there() {
    let double = Double::serve(|seen, _| match (seen.line().as_str(), is_proof(seen)) {
        ("GET /users/acme/installation", true) => reply(200, r#"{"id": 8}"#),
        ("POST /app/installations/8/access_tokens", true) => {
            reply(201, r#"{"token": "t", "expires_at": "2026-01-02T04:04:05Z"}"#)
        }
        (_, true) => reply(404, ""),
        (_, false) => reply(200, seen.header("authorization").unwrap_or_default()),
    })
    .await;
    let api = client(
        &double.url(),
        &app_of(&pkcs1_pem()),
        &Clock::default(),
        Settings::default(),
    );
    assert_eq!(get(&api, "/x").await.unwrap().body, b"Bearer t");
}

#[tokio::test]
async fn what_github_refuses_the_app_is_the_answer_to_the_request() {
    for (status, lines) in [
        (403, vec![GOT[0]]),
        (404, vec![GOT[0], "GET /users/acme/installation"]),
        (429, vec![GOT[0]]),
        (401, vec![GOT[0]]),
    ] {
        let double = Double::serve(move |_, _| reply(status, "{}").with("retry-after", "37")).await;
        let api = client(
            &double.url(),
            &app_of(&pkcs1_pem()),
            &Clock::default(),
            Settings::default(),
        );
        let answer = get(&api, "/x").await.unwrap();
        assert_eq!((answer.status, answer.retry_after_s), (status, Some(37)));
        assert_eq!(double.lines(), lines, "{status}");
    }
}

#[tokio::test]
async fn an_app_at_its_limit_is_not_asked_for_any_installation_until_its_time() {
    let clock = Clock::default();
    let double = Double::serve(move |_, before| match before {
        0 => reply(429, "{}").with("retry-after", "600"),
        _ => reply(404, "{}"),
    })
    .await;
    let api = client(&double.url(), &app_of(&pkcs1_pem()), &clock, Settings::default());
    let of = async |owner: &str| {
        let credential = api.access().await.unwrap().for_owner(&api.host(), owner);
        api.ask(Request::get("/x", &credential)).await.unwrap()
    };
    assert_eq!(of("acme").await.retry_after_s, Some(600));
    clock.move_to(200);
    for owner in ["acme", "umbrella", "initech"] {
        let answer = of(owner).await;
        assert_eq!((answer.status, answer.retry_after_s), (429, Some(401)), "{owner}");
    }
    assert_eq!(double.lines(), [GOT[0]]);
    clock.move_to(600);
    assert_eq!(of("umbrella").await.status, 404);
    assert_eq!(double.lines().len(), 3, "the organisation, then the user of that name");
}

#[tokio::test]
async fn an_answer_that_was_the_apps_last_rests_it_also_where_it_was_answered_well() {
    // RATE-01
    for (last, lines, status) in [
        ("GET /orgs/acme/installation", vec![GOT[0]], 429),
        (
            "POST /app/installations/7/access_tokens",
            vec![GOT[0], GOT[1], "GET /x"],
            200,
        ),
    ] {
        let clock = Clock::default();
        let reset = (clock.now().as_second() + 600).to_string();
        let whole = github(clock.clone(), |_| reply(200, "[]"));
        let double = Double::serve(move |seen, before| {
            let answer = whole(seen, before);
            if seen.line() == last {
                let spent = answer.with("x-ratelimit-remaining", "0");
                spent.with("x-ratelimit-reset", reset.clone())
            } else {
                answer
            }
        })
        .await;
        let api = client(&double.url(), &app_of(&pkcs1_pem()), &clock, Settings::default());
        assert_eq!(get(&api, "/x").await.unwrap().status, status, "{last}");
        let credential = api.access().await.unwrap().for_owner(&api.host(), "umbrella");
        let other = api.ask(Request::get("/x", &credential)).await.unwrap();
        // A second behind the reset, and rounded up.
        assert_eq!((other.status, other.retry_after_s), (429, Some(602)), "{last}");
        assert_eq!(double.lines(), lines);
    }
}

#[tokio::test]
async fn an_answer_to_the_app_that_gives_no_token_is_an_error_that_shows_nothing_of_it() {
    // Invariant 8
    for (status, body, class) in [
        (500, "{}", ErrorClass::ServerFault),
        (422, "{}", ErrorClass::Denied),
        (201, "material", ErrorClass::ServerFault),
        (
            201,
            r#"{"token": ["material"], "expires_at": "soon"}"#,
            ErrorClass::ServerFault,
        ),
        (
            201,
            r#"{"token": "material", "expires_at": "soon"}"#,
            ErrorClass::ServerFault,
        ),
    ] {
        let double = Double::serve(move |seen, _| match seen.method.as_str() {
            "GET" => reply(200, r#"{"id": 7}"#),
            _ => reply(status, body),
        })
        .await;
        let api = client(
            &double.url(),
            &app_of(&pkcs1_pem()),
            &Clock::default(),
            Settings::default(),
        );
        let error = get(&api, "/x").await.unwrap_err();
        assert_eq!(error.class, class, "{status} {body}");
        assert!(
            error
                .to_string()
                .starts_with("ask GitHub for /app/installations/7/access_tokens: "),
            "{error}"
        );
        assert!(!format!("{error:?} {api:?}").contains("material"), "{error:?}");
    }
}

#[tokio::test]
async fn a_key_that_is_none_sends_nothing_and_shows_nothing() {
    // Invariant 8
    let double = Double::serve(|_, _| reply(200, "")).await;
    let garbage = pem("RSA PRIVATE KEY", b"material");
    for private_key in ["material", garbage.as_str(), &pem("CERTIFICATE", b"material")] {
        let api = client(
            &double.url(),
            &app_of(private_key),
            &Clock::default(),
            Settings::default(),
        );
        let error = get(&api, "/x").await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Denied);
        let shown = format!("{error} {error:?} {api:?}");
        assert!(
            !shown.contains("material") && !shown.contains(&STANDARD.encode("material")),
            "{shown}"
        );
    }
    assert!(double.seen().is_empty());
}

#[tokio::test]
async fn an_account_with_an_odd_name_is_asked_for_nowhere() {
    let double = Double::serve(|_, _| reply(200, "")).await;
    let api = client(
        &double.url(),
        &app_of(&pkcs1_pem()),
        &Clock::default(),
        Settings::default(),
    );
    for owner in ["", "a/b", "a?b", "..%2f", "ä"] {
        let credential = api.access().await.unwrap().for_owner(&api.host(), owner);
        let error = api.ask(Request::get("/x", &credential)).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Invalid, "{owner}");
    }
    assert!(double.seen().is_empty());
}
