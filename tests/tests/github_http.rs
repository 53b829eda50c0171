//! The fake GitHub on a socket: deliveries that are really posted, and the program around it.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use forebay_core::signature::Secrets;
use forebay_tests::fakes::ManualTime;
use forebay_tests::github::{FakeGithub, HookTarget, Occasion, Request, Shared, What, deliver, lock, serve};
use forebay_tests::samples::at;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::time::timeout;

const SECRET: &str = "hook-secret-A";
/// Longest time that any of these tests may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Looks for something that another task is about to do, each a whole exchange.
const LOOKS_MAX: usize = 1_000;

/// A message of HTTP: its first line, its headers by their names in lower case, its body.
struct Letter {
    first: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// Reads one message, whose body is as long as it says.
async fn receive(stream: &mut TcpStream) -> Letter {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await.unwrap();
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let split = |line: &String| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_lowercase(), value.to_owned())
    };
    let headers: BTreeMap<_, _> = lines[1..].iter().map(split).collect();
    let length = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.unwrap();
    Letter {
        first: lines[0].clone(),
        headers,
        body,
    }
}

/// One exchange with the fake at `address`; the status, and the JSON where there is any.
async fn exchange(address: &str, method: &str, target: &str, body: &Value) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let length = body.len();
    let head = format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer token\r\n");
    let message = format!("{head}Content-Length: {length}\r\n\r\n{body}");
    stream.write_all(message.as_bytes()).await.unwrap();
    let reply = receive(&mut stream).await;
    let status = reply.first.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_slice(&reply.body).unwrap_or_default())
}

/// Takes one delivery at `endpoint`, and answers with `status`.
async fn take(endpoint: &TcpListener, status: u16) -> Letter {
    let (mut stream, _) = endpoint.accept().await.unwrap();
    let letter = receive(&mut stream).await;
    let answer = format!("HTTP/1.1 {status} Answer\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.unwrap();
    letter
}

/// The log at `target`, once it has `count` entries.
async fn log(address: &str, target: &str, count: usize) -> Value {
    let mut list = Value::Null;
    for _ in 0..LOOKS_MAX {
        (_, list) = exchange(address, "GET", target, &Value::Null).await;
        if list.as_array().unwrap().len() == count {
            break;
        }
    }
    assert_eq!(list.as_array().unwrap().len(), count);
    list
}

/// `acme/app` with pull request 1 and a hook for `url`; the path of its log.
fn github(base: &str, url: &str) -> (Shared, String) {
    let mut fake = FakeGithub::new(base, 0);
    fake.add_organization("acme");
    fake.add_repository("acme/app");
    let pull = Occasion::of("acme/app", What::pull_request("fix/overflow"));
    fake.happen(&pull, at(-60)).unwrap();
    let hook = fake.add_hook(&HookTarget::Repository("acme/app".to_owned()), url, SECRET);
    (fake.shared(), format!("/repos/acme/app/hooks/{hook}/deliveries"))
}

/// A fake that is served at an address of its own and posts to an endpoint.
async fn served() -> (TcpListener, Shared, String, String) {
    let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let url = format!("http://{}/api/intake/github", endpoint.local_addr().unwrap());
    let (fake, target) = github(&format!("http://{address}"), &url);
    tokio::spawn(serve(fake.clone(), ManualTime::at(at(0)), listener));
    (endpoint, fake, address, target)
}

#[tokio::test]
async fn a_happening_reaches_the_endpoint_signed_and_again_when_that_is_asked_for() {
    let story = async {
        let (endpoint, _fake, address, target) = served().await;
        let wish = json!({"repository": "acme/app", "kind": "comment", "number": 1, "text": "Look", "by": "dev2"});
        let (status, told) = exchange(&address, "POST", "/_fake/happenings", &wish).await;
        assert_eq!(status, 201, "{told}");
        let first = take(&endpoint, 503).await;
        assert_eq!(first.first, "POST /api/intake/github HTTP/1.1");
        let header = |name: &str| first.headers[name].as_str();
        assert_eq!(header("x-github-event"), "issue_comment");
        assert_eq!(json!(header("x-github-delivery")), told["guid"]);
        assert!(target.contains(header("x-github-hook-id")));
        assert_eq!(header("x-github-hook-installation-target-type"), "repository");
        assert!(first.headers.contains_key("x-github-hook-installation-target-id"));
        assert!(header("user-agent").starts_with("GitHub-Hookshot/"));
        assert_eq!(header("content-type"), "application/json");
        let signature = header("x-hub-signature-256");
        assert!(Secrets::single(SECRET).verify(&[signature], &first.body).is_some());
        let body: Value = serde_json::from_slice(&first.body).unwrap();
        assert_eq!(
            (&body["comment"]["id"], &body["sender"]["login"]),
            (&told["id"], &json!("dev2"))
        );

        let failed = log(&address, &target, 1).await;
        assert_eq!(failed[0]["status"], "Invalid HTTP Response: 503");
        let attempts = format!("{target}/{}/attempts", failed[0]["id"]);
        assert_eq!(exchange(&address, "POST", &attempts, &Value::Null).await.0, 202);
        let second = take(&endpoint, 202).await;
        assert_eq!((&second.headers, &second.body), (&first.headers, &first.body));
        let list = log(&address, &target, 2).await;
        assert_eq!(
            (&list[0]["redelivery"], &list[0]["status"]),
            (&json!(true), &json!("OK"))
        );
    };
    timeout(PATIENCE, story).await.unwrap();
}

#[tokio::test]
async fn an_operator_takes_it_down_limits_it_and_reads_what_was_asked() {
    let story = async {
        let (_endpoint, fake, address, target) = served().await;
        let control =
            async |path: &str, body: Value| exchange(&address, "POST", &format!("/_fake/{path}"), &body).await.0;
        assert_eq!(control("outage", json!({"webhook": true, "api": "failing"})).await, 200);
        let feed = "/repos/acme/app/events";
        assert_eq!(exchange(&address, "GET", feed, &Value::Null).await.0, 502);
        let wish = json!({"repository": "acme/app", "kind": "push", "branch": "main", "feed": "hidden"});
        assert_eq!(control("happenings", wish).await, 201);
        assert_eq!(control("outage", json!({"api": "up"})).await, 200);
        assert_eq!(
            log(&address, &target, 1).await[0]["status"],
            "failed to connect to host"
        );
        assert_eq!(
            exchange(&address, "GET", feed, &Value::Null)
                .await
                .1
                .as_array()
                .unwrap()
                .len(),
            1
        );
        let spent = json!({"caller": "token", "remaining": 0, "reset_s": 60});
        assert_eq!(control("limit", spent).await, 200);
        assert_eq!(exchange(&address, "GET", feed, &Value::Null).await.0, 403);
        let held_back = json!({"caller": "token", "status": 429, "retry_after_s": 30, "for_s": 60});
        assert_eq!(control("limit", held_back).await, 200);
        assert_eq!(exchange(&address, "GET", feed, &Value::Null).await.0, 429);
        for odd in [json!({"api": "sideways"}), json!([]), json!({"kind": "comment"})] {
            assert_eq!(control("outage", odd).await, 400);
        }
        let nowhere = json!({"repository": "acme/none", "kind": "issue", "title": "?"});
        assert_eq!(control("happenings", nowhere).await, 422);
        let (_, asked) = exchange(&address, "GET", "/_fake/requests", &Value::Null).await;
        let feeds = asked.as_array().unwrap().iter().filter(|asked| asked["target"] == feed);
        let statuses: Vec<_> = feeds.map(|asked| asked["status"].clone()).collect();
        assert_eq!(statuses, [502, 200, 403, 429]);
        let (_, told) = exchange(&address, "GET", "/_fake/happenings", &Value::Null).await;
        assert_eq!(told.as_array().unwrap().len(), lock(&fake).happenings().len());
    };
    timeout(PATIENCE, story).await.unwrap();
}

#[tokio::test]
async fn a_hanging_interface_answers_nobody_and_its_request_is_remembered() {
    let story = async {
        let (_endpoint, fake, address, _target) = served().await;
        let hanging = json!({"api": "hanging"});
        exchange(&address, "POST", "/_fake/outage", &hanging).await;
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream
            .write_all(b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .unwrap();
        for _ in 0..LOOKS_MAX {
            let (_, asked) = exchange(&address, "GET", "/_fake/requests", &Value::Null).await;
            if asked.as_array().unwrap().len() == 1 {
                break;
            }
        }
        assert_eq!(lock(&fake).asked("/hang"), 1);
        let error = stream.try_read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    };
    timeout(PATIENCE, story).await.unwrap();
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_is_a_failure_to_connect() {
    let story = async {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", closed.local_addr().unwrap());
        drop(closed);
        let (fake, _) = github("http://127.0.0.1:1", &url);
        let time = ManualTime::at(at(0));
        let hooks = [&url, "https://127.0.0.1/", "nonsense"].map(|url| {
            let target = HookTarget::Organization("acme".to_owned());
            lock(&fake).add_hook(&target, url, "")
        });
        let comment = Occasion::of("acme/app", What::comment(1, "Look"));
        lock(&fake).happen(&comment, at(0)).unwrap();
        assert_eq!((deliver(&fake, &time).await, deliver(&fake, &time).await), (4, 0));
        for hook in hooks {
            let request = Request {
                method: "GET",
                target: &format!("/orgs/acme/hooks/{hook}/deliveries"),
                authorization: Some("Bearer token"),
                if_none_match: None,
            };
            let list = lock(&fake).handle(&request, at(0)).unwrap().json();
            assert_eq!(list[0]["status"], "failed to connect to host");
        }
    };
    timeout(PATIENCE, story).await.unwrap();
}

#[tokio::test]
async fn the_program_serves_until_its_input_ends() {
    let story = async {
        let mut program = Command::new(env!("CARGO_BIN_EXE_fake-github"))
            .args(["--hook-url", "http://127.0.0.1:1/", "--secret", SECRET])
            .args(["--repository", "acme/app", "--repository", "acme/site"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let base = lines.next_line().await.unwrap().unwrap();
        let address = base.strip_prefix("http://").unwrap();
        let (status, feed) = exchange(address, "GET", "/repos/acme/site/events", &Value::Null).await;
        assert_eq!((status, feed.as_array().unwrap().len()), (200, 2));
        let (_, hooks) = exchange(address, "GET", "/repos/acme/app/hooks", &Value::Null).await;
        assert_eq!(hooks[0]["config"]["url"], "http://127.0.0.1:1/");
        drop(program.stdin.take());
        assert!(program.wait().await.unwrap().success());
        assert_eq!(lines.next_line().await.unwrap(), None);
    };
    timeout(PATIENCE, story).await.unwrap();
}
