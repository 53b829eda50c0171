//! The process of a webhook that is misconfigured: it lives, refuses every delivery, and says why once.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in tests, and does not take what tests call for a part of them"
)]

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use forebay_aws::config::Config;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Far longer than the story takes, on any machine: a process that says nothing ends the test.
const STORY_TIME_MAX: Duration = Duration::from_secs(60);
/// A path of the interface that Lambda has for runtimes: <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html>
const INVOCATION: &str = "/2018-06-01/runtime/invocation";

/// Lambda's side of the interface: it hands out invocations and takes answers, one request a connection.
struct RuntimeApi(TcpListener);

/// What the process asked.
struct Asked {
    stream: BufReader<TcpStream>,
    line: String,
    body: Vec<u8>,
}

impl RuntimeApi {
    async fn listen() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    /// The process of the webhook, in this environment and no other.
    fn start(&self, variables: &BTreeMap<String, String>) -> Child {
        let api = self.0.local_addr().unwrap().to_string();
        let platform = [
            ("AWS_LAMBDA_RUNTIME_API", api.as_str()),
            ("AWS_LAMBDA_FUNCTION_NAME", "webhook"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128"),
            ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
        ];
        Command::new(env!("CARGO_BIN_EXE_webhook"))
            .env_clear()
            .envs(platform)
            .envs(variables)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    async fn asked(&self) -> Asked {
        let (stream, _) = self.0.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        let mut length = 0;
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).await.unwrap();
            let header = header.trim().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(given) = header.strip_prefix("content-length:") {
                length = given.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        Asked { stream, line, body }
    }

    /// Hands out `invocation` to the process, which has to ask for it, and gives its answer.
    async fn invoke(&self, id: &str, invocation: &str) -> Value {
        let next = self.asked().await;
        assert_eq!(next.line, format!("GET {INVOCATION}/next HTTP/1.1\r\n"));
        let headers = format!(
            "lambda-runtime-aws-request-id: {id}\r\nlambda-runtime-deadline-ms: 32503680000000\r\n\
             lambda-runtime-invoked-function-arn: arn:aws:lambda:eu-west-1:123456789012:function:webhook\r\n"
        );
        next.reply("200 OK", &headers, invocation).await;
        let answer = self.asked().await;
        assert_eq!(answer.line, format!("POST {INVOCATION}/{id}/response HTTP/1.1\r\n"));
        let value = serde_json::from_slice(&answer.body).unwrap();
        answer.reply("202 Accepted", "", "").await;
        value
    }
}

impl Asked {
    async fn reply(mut self, status: &str, headers: &str, body: &str) {
        let length = body.len();
        let reply =
            format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}");
        self.stream.write_all(reply.as_bytes()).await.unwrap();
    }
}

/// Nothing that is needed, and four variables that are malformed.
fn variables() -> BTreeMap<String, String> {
    let malformed = [
        ("TABLE_NAME", "bad name!"),
        ("INBOX_builder", "nonsense"),
        ("GITHUB_HOST", "no,such value/at all"),
        ("FAILURES_MAX", "0"),
    ];
    malformed
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// The answer to the delivery with this GUID of a `ping` or a `push`.
fn refusal(guid: &str, event: &str) -> Value {
    let body = json!({"delivery": guid, "event": event, "outcome": "refused", "refusal": "misconfigured"});
    json!({
        "statusCode": 503,
        "headers": {"content-type": "application/json"},
        "body": body.to_string(),
        "isBase64Encoded": false,
        "cookies": [],
    })
}

#[tokio::test]
async fn a_misconfigured_webhook_lives_refuses_every_delivery_and_says_why_once() {
    // LAMB-07, invariant 7
    let variables = variables();
    let api = RuntimeApi::listen().await;
    let mut process = api.start(&variables);
    let story = async {
        let ping = api
            .invoke("1", include_str!("../../../events/invocations/ping.json"))
            .await;
        assert_eq!(ping, refusal("758d61f2-c6a4-11f1-8444-8384e5c4468a", "ping"));
        let push = api
            .invoke("2", include_str!("../../../events/invocations/push.json"))
            .await;
        assert_eq!(push, refusal("d107ea36-c29c-11f1-8326-718876f07356", "push"));
        // It asks for a third one, and waits.
        api.asked().await
    };
    let waiting = tokio::select! {
        waiting = timeout(STORY_TIME_MAX, story) => waiting.expect("two answers, and a process that asks for more"),
        ended = process.wait() => panic!("it does not live: {ended:?}"),
    };
    assert_eq!(waiting.line, format!("GET {INVOCATION}/next HTTP/1.1\r\n"));
    assert_eq!(process.try_wait().unwrap(), None, "it lives");

    process.start_kill().unwrap();
    let written = timeout(STORY_TIME_MAX, process.wait_with_output()).await;
    let written = String::from_utf8(written.expect("a killed process ends").unwrap().stdout).unwrap();
    let lines = written.lines().map(|line| serde_json::from_str(line).unwrap());
    let errors: Vec<Value> = lines.filter(|line: &Value| line["level"] == "ERROR").collect();
    let [error] = errors.as_slice() else {
        panic!("one error and not {written}")
    };
    let problems = Config::read(variables).unwrap_err();
    assert_eq!(error["message"], problems.to_string());
    for name in [
        "TABLE_NAME",
        "SECRET_ID",
        "INBOX_builder",
        "INBOX_dispatcher",
        "INBOX_notice",
        "GITHUB_HOST",
        "FAILURES_MAX",
    ] {
        let named = problems.sentences().iter().filter(|problem| problem.starts_with(name));
        assert_eq!(named.count(), 1, "{name}: {problems}");
    }
}
