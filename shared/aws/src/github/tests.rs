//! The client, against a server on loopback that answers as each test says.

mod app;
mod double;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex as StdMutex, PoisonError};

use forebay_core::api::{ANSWER_BYTES_MAX, Credential, anonymous};
use forebay_core::ports::ErrorKind;
use tokio::net::TcpListener;

use super::*;
use crate::secrets::Document;

use double::{Double, FLOOD_BYTES, Reply, reply};

/// A clock in a test's hands, in seconds from the tests' own zero.
#[derive(Clone, Debug, Default)]
struct Clock(Arc<AtomicI64>);

impl Clock {
    fn move_to(&self, seconds: i64) {
        self.0.store(seconds, Ordering::SeqCst);
    }
}

impl TimeAndChance for Clock {
    fn now(&self) -> Timestamp {
        at(self.0.load(Ordering::SeqCst))
    }

    fn random(&self) -> u64 {
        0
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_323_045 + seconds).unwrap()
}

/// A secret document in a test's hands.
#[derive(Clone)]
struct Given(Arc<StdMutex<String>>);

impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Given")
    }
}

impl Given {
    fn new(github: &serde_json::Value) -> Self {
        let given = Self(Arc::default());
        given.set(github);
        given
    }

    fn token(token: &str) -> Self {
        Self::new(&serde_json::json!({ "token": token }))
    }

    fn set(&self, github: &serde_json::Value) {
        let document = serde_json::json!({ "github": github }).to_string();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = document;
    }
}

impl Documents for Given {
    async fn read(&self) -> Result<Document, ReadError> {
        Ok(Document {
            current: self.0.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            previous: None,
        })
    }
}

type TestApi = GithubApi<Given, Clock>;

fn client(base: &str, given: &Given, clock: &Clock, settings: Settings) -> TestApi {
    let access = AccessCache::new(given.clone(), Duration::from_secs(300));
    GithubApi::with(ApiBase::parse(base).unwrap(), access, clock.clone(), settings)
}

/// A client of `double` with a token.
fn client_of(double: &Double) -> TestApi {
    client(
        &double.url(),
        &Given::token("ghp_material"),
        &Clock::default(),
        Settings::default(),
    )
}

async fn credential(api: &TestApi) -> Credential {
    api.access().await.unwrap().for_owner(&api.host(), "acme")
}

async fn get(api: &TestApi, url: &str) -> Result<Answer, ApiError> {
    api.ask(Request::get(url, &credential(api).await)).await
}

async fn post(api: &TestApi, url: &str) -> Result<Answer, ApiError> {
    let credential = credential(api).await;
    api.ask(Request {
        method: Method::Post,
        ..Request::get(url, &credential)
    })
    .await
}

#[tokio::test]
async fn a_request_says_who_asks_for_what_version_and_under_which_right() {
    let double = Double::serve(|_, _| reply(200, "[]").with("etag", "W/\"e\"").with("x-poll-interval", "60")).await;
    let api = client_of(&double);
    let credential = credential(&api).await;
    let etag = Some("W/\"d\"");
    let request = Request {
        etag,
        ..Request::get("/repos/acme/app/events?per_page=100", &credential)
    };
    let answer = api.ask(request).await.unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"[]".as_slice()));
    assert_eq!(
        (answer.etag.as_deref(), answer.poll_interval_s),
        (Some("W/\"e\""), Some(60))
    );
    let seen = double.seen().remove(0);
    assert_eq!(seen.line(), "GET /repos/acme/app/events?per_page=100");
    let host = double.address.to_string();
    let expected = [
        ("accept", "application/vnd.github+json"),
        ("authorization", "Bearer ghp_material"),
        ("host", host.as_str()),
        ("if-none-match", "W/\"d\""),
        ("user-agent", concat!("forebay/", env!("CARGO_PKG_VERSION"))),
        ("x-github-api-version", "2022-11-28"),
    ];
    // Nothing else: no compression is asked for, since what unpacks has no bound.
    let headers: Vec<_> = seen
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(headers, expected);
}

#[tokio::test]
async fn an_answer_without_change_is_an_answer() {
    let double = Double::serve(|_, _| reply(304, "").with("etag", "\"e\"")).await;
    let answer = get(&client_of(&double), "/x").await.unwrap();
    assert_eq!(
        (answer.status, answer.etag.as_deref(), answer.body.len()),
        (304, Some("\"e\""), 0)
    );
}

#[tokio::test]
async fn nobodys_request_carries_no_right_whatever_the_secret_has() {
    let double = Double::serve(|_, _| reply(401, "")).await;
    let api = client_of(&double);
    let answer = api.ask(Request::get("/x", &anonymous(&api.host()))).await.unwrap();
    assert_eq!((answer.status, double.seen().len()), (401, 1));
    assert_eq!(double.seen()[0].header("authorization"), None);
}

#[tokio::test]
async fn a_request_under_a_right_that_the_secret_does_not_give_is_not_sent() {
    let double = Double::serve(|_, _| reply(200, "")).await;
    let api = client_of(&double);
    let mut credential = credential(&api).await;
    for right in [Right::App, Right::Installation("acme".to_owned())] {
        credential.right = right;
        let error = api.ask(Request::get("/x", &credential)).await.unwrap_err();
        assert_eq!(error.class.kind(), ErrorKind::Fix);
    }
    assert!(double.seen().is_empty());
}

#[tokio::test]
async fn the_next_page_is_asked_for_at_the_apis_own_host_and_nowhere_else() {
    let elsewhere = Double::serve(|_, _| reply(200, "")).await;
    let double = Double::serve(|_, _| reply(200, "")).await;
    let api = client_of(&double);
    let own = format!("{}/repositories/1/events?page=2", double.url());
    assert_eq!(get(&api, &own).await.unwrap().status, 200);
    let other = format!("{}/repositories/1/events?page=2", elsewhere.url());
    let error = get(&api, &other).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Denied);
    assert_eq!(error.to_string(), "ask GitHub for /repositories/1/events: denied");
    assert_eq!(double.lines(), ["GET /repositories/1/events?page=2"]);
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn a_redirect_on_the_apis_own_host_is_followed_with_the_right() {
    // FEED-13
    let double = Double::serve(|seen, _| match seen.target.as_str() {
        "/repos/acme/old/events" => {
            let host = seen.header("host").unwrap_or_default();
            reply(301, r#"{"message":"Moved Permanently"}"#)
                .with("location", format!("http://{host}/repositories/1/events"))
        }
        "/repositories/1/events" => reply(302, "").with("location", "/repositories/2/events"),
        _ => reply(200, "[]"),
    })
    .await;
    let answer = get(&client_of(&double), "/repos/acme/old/events").await.unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"[]".as_slice()));
    assert_eq!(
        double.lines(),
        [
            "GET /repos/acme/old/events",
            "GET /repositories/1/events",
            "GET /repositories/2/events"
        ]
    );
    for seen in double.seen() {
        assert_eq!(seen.header("authorization"), Some("Bearer ghp_material"));
    }
}

#[tokio::test]
async fn a_redirect_off_the_apis_own_host_is_the_answer() {
    // FEED-13: reported as moved, and its body is not read as events.
    let elsewhere = Double::serve(|_, _| reply(200, "[]")).await;
    let location = format!("{}/x", elsewhere.url());
    let double =
        Double::serve(move |_, _| reply(301, r#"{"message":"Moved Permanently"}"#).with("location", location.clone()))
            .await;
    let answer = get(&client_of(&double), "/x").await.unwrap();
    assert_eq!((answer.status, answer.body.len()), (301, 0));
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn redirects_in_circles_end() {
    let double = Double::serve(|_, _| reply(307, "").with("location", "/x")).await;
    assert_eq!(get(&client_of(&double), "/x").await.unwrap().status, 307);
    assert_eq!(double.seen().len(), 4, "the request and three redirects");
}

#[tokio::test]
async fn what_is_asked_to_be_done_is_asked_again_elsewhere_only_where_the_status_says_so() {
    for (status, lines) in [
        (301, vec!["POST /x"]),
        (302, vec!["POST /x"]),
        (307, vec!["POST /x", "POST /y"]),
        (308, vec!["POST /x", "POST /y"]),
    ] {
        let double = Double::serve(move |seen, _| match seen.target.as_str() {
            "/x" => reply(status, "").with("location", "/y"),
            _ => reply(202, ""),
        })
        .await;
        post(&client_of(&double), "/x").await.unwrap();
        assert_eq!(double.lines(), lines, "{status}");
    }
}

#[tokio::test]
async fn a_delivery_is_asked_for_by_the_same_digits() {
    // REDL-13: the id does not fit into a double.
    let double = Double::serve(|_, _| reply(202, "{}")).await;
    let url = "/repos/acme/app/hooks/42/deliveries/9007199254740993/attempts";
    assert_eq!(post(&client_of(&double), url).await.unwrap().status, 202);
    assert_eq!(double.lines(), [format!("POST {url}")]);
    assert_eq!(double.seen()[0].header("content-length"), Some("0"));
}

#[tokio::test]
async fn a_body_that_says_it_is_too_large_is_refused_unread() {
    let double = Double::serve(|_, _| Reply::HeadOnly {
        content_length: ANSWER_BYTES_MAX + 1,
    })
    .await;
    let error = get(&client_of(&double), "/x?secret=1").await.unwrap_err();
    assert_eq!(error.to_string(), "ask GitHub for /x: too_large");
}

#[tokio::test]
async fn a_body_that_turns_out_too_large_is_not_read_to_its_end() {
    let double = Double::serve(|_, _| Reply::Flood).await;
    let error = get(&client_of(&double), "/x").await.unwrap_err();
    assert_eq!(error.class, ErrorClass::TooLarge);
    assert!(double.flooded_bytes() < FLOOD_BYTES, "{}", double.flooded_bytes());
}

#[tokio::test]
async fn the_largest_body_is_taken() {
    let double = Double::serve(|_, _| Reply::Whole {
        status: 200,
        headers: Vec::new(),
        body: vec![b'x'; ANSWER_BYTES_MAX],
    })
    .await;
    assert_eq!(
        get(&client_of(&double), "/x").await.unwrap().body.len(),
        ANSWER_BYTES_MAX
    );
}

/// Bounds that a test can wait for.
fn short() -> Settings {
    Settings {
        connect_time_max: Duration::from_millis(40),
        read_time_max: Duration::from_millis(40),
        try_time_max: Duration::from_millis(80),
        post_spacing: SignedDuration::from_millis(50),
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let unlimited = Duration::from_secs(3_600);
    let by_try = Settings {
        read_time_max: unlimited,
        ..short()
    };
    let by_read = Settings {
        try_time_max: unlimited,
        ..short()
    };
    for (settings, given_reply) in [
        (by_read, Reply::Silence),
        (by_try, Reply::Silence),
        (by_try, Reply::HeadOnly { content_length: 1 }),
    ] {
        let double = Double::serve(move |_, _| given_reply.clone()).await;
        let api = client(
            &double.url(),
            &Given::token("ghp_material"),
            &Clock::default(),
            settings,
        );
        let error = get(&api, "/x?page=2").await.unwrap_err();
        assert_eq!(error.to_string(), "ask GitHub for /x: timed_out");
    }
}

#[tokio::test]
async fn a_server_that_does_not_greet_is_given_up() {
    // Accepts connections, by the system alone, and never says a word of TLS.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    let settings = Settings {
        connect_time_max: Duration::from_millis(40),
        ..Settings::default()
    };
    let api = client(&base, &Given::token("ghp_material"), &Clock::default(), settings);
    assert_eq!(get(&api, "/x").await.unwrap_err().class, ErrorClass::TimedOut);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let api = client(
        &base,
        &Given::token("ghp_material"),
        &Clock::default(),
        Settings::default(),
    );
    let error = get(&api, "/x").await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Unreachable);
}

#[test]
fn a_post_waits_for_what_is_left_of_the_spacing_whatever_the_clock_does() {
    let wait = |posted_at, now| wait_to_post(posted_at, at(now), SignedDuration::from_secs(10)).as_secs();
    assert_eq!(wait(None, 0), 0);
    assert_eq!(wait(Some(at(0)), 0), 10);
    assert_eq!(wait(Some(at(0)), 7), 3);
    assert_eq!(wait(Some(at(0)), 10), 0);
    assert_eq!(wait(Some(at(0)), 11), 0);
    // Somebody else's turn is yet to come.
    assert_eq!(wait(Some(at(6)), 0), 16);
    assert_eq!(wait(Some(at(3_600)), 0), 10);
}

#[tokio::test]
async fn posts_keep_their_distance_and_reads_do_not() {
    let double = Double::serve(|_, _| reply(202, "")).await;
    let settings = Settings {
        post_spacing: short().post_spacing,
        ..Settings::default()
    };
    let api = client(
        &double.url(),
        &Given::token("ghp_material"),
        &Clock::default(),
        settings,
    );
    get(&api, "/x").await.unwrap();
    get(&api, "/x").await.unwrap();
    assert!(api.posted_at.lock().unwrap().is_none());
    let start = tokio::time::Instant::now().into_std();
    let (first, second) = tokio::join!(post(&api, "/x"), post(&api, "/x"));
    assert_eq!((first.unwrap().status, second.unwrap().status), (202, 202));
    let last = double.seen().pop().unwrap();
    assert_eq!(last.method, "POST");
    assert!(last.at.duration_since(start) >= Duration::from_millis(50));
}

#[tokio::test]
async fn a_post_that_waits_for_longer_than_a_try_takes_is_sent_when_its_turn_comes() {
    let double = Double::serve(|_, _| reply(202, "")).await;
    let settings = Settings {
        try_time_max: Duration::from_secs(1),
        post_spacing: SignedDuration::from_millis(100),
        ..Settings::default()
    };
    let api = client(
        &double.url(),
        &Given::token("ghp_material"),
        &Clock::default(),
        settings,
    );
    let posts = futures_util::future::join_all((0..16).map(|_| post(&api, "/x"))).await;
    let unsent = posts.iter().filter(|answered| answered.is_err()).count();
    assert_eq!((double.seen().len(), unsent), (16, 0));
}

#[tokio::test]
async fn a_post_whose_turn_is_too_far_away_is_told_so_at_once_and_is_not_sent() {
    // RATE-01
    let (double, clock) = (Double::serve(|_, _| reply(202, "")).await, Clock::default());
    let settings = Settings {
        try_time_max: Duration::from_secs(1),
        post_spacing: SignedDuration::from_secs(100),
        ..Settings::default()
    };
    let api = client(&double.url(), &Given::token("ghp_material"), &clock, settings);
    assert_eq!(post(&api, "/x").await.unwrap().status, 202);
    clock.move_to(80);
    let refused = post(&api, "/x").await.unwrap();
    // No error, which would count against a credential that nothing is wrong with.
    assert_eq!((refused.status, refused.retry_after_s), (429, Some(11)));
    assert_eq!(double.seen().len(), 1);
    // Who was refused has taken nobody's turn.
    clock.move_to(100);
    assert_eq!(post(&api, "/x").await.unwrap().status, 202);
}

#[tokio::test]
async fn a_replaced_token_is_known_after_one_refusal() {
    let double = Double::serve(|seen, _| match seen.header("authorization") {
        Some("Bearer ghp_new") => reply(200, "[]"),
        _ => reply(401, r#"{"message":"Bad credentials"}"#),
    })
    .await;
    let (given, clock) = (Given::token("ghp_old"), Clock::default());
    let api = client(&double.url(), &given, &clock, Settings::default());
    assert_eq!(get(&api, "/x").await.unwrap().status, 401);
    assert_eq!(double.seen().len(), 1, "the secret was read just now");
    given.set(&serde_json::json!({ "token": "ghp_new" }));
    clock.move_to(10);
    assert_eq!(get(&api, "/x").await.unwrap().status, 200);
    assert_eq!(double.seen().len(), 3);
    given.set(&serde_json::json!({ "token": "ghp_bad" }));
    clock.move_to(310);
    assert_eq!(get(&api, "/x").await.unwrap().status, 401);
    assert_eq!(double.seen().len(), 4, "a refusal is not repeated with the same token");
}

#[tokio::test]
async fn a_malformed_secret_sends_nothing_and_shows_nothing() {
    // Invariant 8
    let double = Double::serve(|_, _| reply(200, "")).await;
    let api = client(
        &double.url(),
        &Given::token("material\n material"),
        &Clock::default(),
        Settings::default(),
    );
    let credential = Credential {
        right: Right::Token,
        ..anonymous(&api.host())
    };
    let error = api.ask(Request::get("/x?q=material", &credential)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Denied);
    let shown = format!("{error} {error:?} {api:?}");
    assert!(!shown.contains("material"), "{shown}");
    assert!(double.seen().is_empty());
}

#[tokio::test]
async fn no_printed_client_or_error_shows_a_token() {
    // Invariant 8
    let double = Double::serve(|_, _| Reply::Silence).await;
    let api = client(&double.url(), &Given::token("ghp_material"), &Clock::default(), short());
    let error = get(&api, "/x?q=material").await.unwrap_err();
    let shown = format!("{error} {error:?} {api:?}");
    assert!(!shown.contains("material"), "{shown}");
}
