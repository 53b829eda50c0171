//! Where GitHub's REST interface is, and what it is asked with: configuration, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use forebay_aws::config::PollerConfig;
use forebay_aws::github::GithubApi;
use forebay_aws::secrets::AccessCache;
use forebay_core::source::github::{Feed, FeedKind};
use forebay_tests::fakes::GivenSecrets;
use forebay_tests::github::{Hooked, Occasion, What};
use forebay_tests::polling::{Bench, repository, token};
use forebay_tests::webhook::environment;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Answers one request with an empty feed. Gives its head.
async fn answer(listener: &TcpListener) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let reply = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n[]";
    stream.write_all(reply).await.unwrap();
    String::from_utf8(head).unwrap().to_lowercase()
}

fn config(variables: &[(&str, &str)]) -> PollerConfig {
    let mut environment = environment();
    for (name, value) in variables {
        environment.insert((*name).to_owned(), (*value).to_owned());
    }
    PollerConfig::read(environment).unwrap()
}

#[tokio::test]
async fn the_interface_is_where_the_configuration_says_and_a_token_is_optional() {
    // S3-26
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/api/v3", listener.local_addr().unwrap());
    for (document, authorization) in [
        (json!({"github": {}}), None),
        (
            json!({"github": {"token": "secret-token"}}),
            Some("authorization: bearer secret-token"),
        ),
    ] {
        let mut bench = Bench::new();
        let config = config(&[("GITHUB_API_URL", &url), ("POLL_REPOSITORIES", "acme/app")]);
        let secrets = GivenSecrets::default();
        secrets.set(Some(document.to_string()));
        let access = AccessCache::new(secrets, Duration::from_secs(300));
        let api = GithubApi::new(config.api, access, bench.stand.time.clone());
        let credential = api.access().await.unwrap().for_owner(&api.host(), "acme");
        let feed = Arc::new(config.feed);
        bench.add(Feed::new(
            Arc::new(api),
            FeedKind::Events,
            repository("acme/app"),
            credential,
            feed,
        ));
        let (round, head) = tokio::join!(bench.round(), answer(&listener));
        assert_eq!(
            (round.tally.polls, round.tally.failures),
            (1, 0),
            "{:?}",
            round.tally.errors
        );
        assert!(
            head.starts_with("get /api/v3/repos/acme/app/events?per_page=100 "),
            "{head}"
        );
        for header in [
            "accept: application/vnd.github+json",
            "x-github-api-version: ",
            "user-agent: forebay/",
        ] {
            assert!(head.contains(header), "{header} {head}");
        }
        assert_eq!(
            head.lines().find(|line| line.starts_with("authorization")),
            authorization
        );
    }
}

#[tokio::test]
async fn on_an_enterprise_server_ids_and_sources_carry_its_host() {
    // S3-26
    let config = config(&[("GITHUB_HOST", "ghe.example"), ("POLL_REPOSITORIES", "acme/app")]);
    assert_eq!(config.api.host(), "ghe.example");
    assert_eq!(config.feed.host.as_deref(), Some("ghe.example"));
    let mut bench = Bench::new();
    bench.feed = config.feed;
    let feed = bench.add_feed(FeedKind::Events, "acme/app", token());
    assert_eq!(feed.as_str(), "ghe.example/events/acme/app");
    let opened = Occasion::of("acme/app", What::pull_request("fix")).hooked(Hooked::Silent);
    let opened = bench.happen(&opened);
    bench.round().await;
    assert_eq!(
        bench.events().await,
        [format!("ghe.example/{}", opened.event_id().unwrap())]
    );
}
