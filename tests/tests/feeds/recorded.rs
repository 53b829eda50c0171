//! Recorded answers of GitHub's REST interface: their headers and bodies are read as what they are. They are not part of this
//! repository: where the folder is absent, there is nothing to test.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use forebay_core::api::{Answer, Api, ApiError, Credential, Limits, Method, Request, Right, Standing};
use forebay_core::github::feed::{Item, ItemMeaning, closed_near, event_item, events_page, run_item, runs_page};
use forebay_core::ledger::memory::MemoryLedger;
use forebay_core::ports::{ErrorClass, LedgerError, TimeAndChance as _};
use forebay_core::source::github::{HookLog, Recovery, RecoveryConfig, Remedy};
use forebay_core::source::{Found, Poll, Readback, Rests, Source as _, Turn, Writer, Written};
use forebay_tests::fakes::ManualTime;
use forebay_tests::polling::{app, repository, token};
use forebay_tests::samples::secs;
use forebay_tests::scripted::Scripted;
use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

/// `shared/data` beside the repository or beside the folder it lies in.
fn data() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let found = root.ancestors().skip(1).map(|folder| folder.join("shared/data"));
    let found = found.take(2).find(|path| path.exists());
    if found.is_none() {
        println!("skipped: no folder shared/data beside the repository");
    }
    found
}

/// One recorded answer, with the request that it was for.
struct Recorded {
    file: String,
    method: String,
    url: String,
    answer: Answer,
}

/// The JSON files below a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).unwrap();
    let mut entries: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "json") {
            found.push(path);
        }
    }
    found
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn answer(status: &Value, headers: &BTreeMap<String, String>, body: &str) -> Answer {
    let status = u16::try_from(status.as_u64().unwrap()).unwrap();
    let header = |name: &'static str| headers.get(name).map(String::as_str);
    Answer::read(status, header, body.as_bytes().to_vec())
}

/// The answers of the cassettes of octokit.rb.
fn cassettes(data: &Path) -> Vec<Recorded> {
    let folder = data.join("octokit-rb-cassettes");
    let mut found = Vec::new();
    for file in files(&folder) {
        let name = file.strip_prefix(&folder).unwrap().display().to_string();
        for interaction in json(&file)["http_interactions"].as_array().unwrap() {
            let (request, response) = (&interaction["request"], &interaction["response"]);
            let headers = response["headers"].as_object().unwrap().iter();
            let headers = headers.map(|(name, values)| (name.to_lowercase(), text(&values[0]).to_owned()));
            found.push(Recorded {
                file: name.clone(),
                method: text(&request["method"]).to_uppercase(),
                url: text(&request["uri"]).to_owned(),
                answer: answer(
                    &response["status"]["code"],
                    &headers.collect(),
                    text(&response["body"]["text"]),
                ),
            });
        }
    }
    found
}

/// The answers of octokit's own fixtures.
fn fixtures(data: &Path) -> Vec<Recorded> {
    let folder = data.join("octokit-fixtures");
    let mut found = Vec::new();
    for file in files(&folder).iter().filter(|file| file.ends_with("raw-fixture.json")) {
        let name = file.strip_prefix(&folder).unwrap().display().to_string();
        for one in json(file).as_array().unwrap() {
            let raw = one["rawHeaders"].as_array();
            let pairs = raw.map(|raw| {
                let pairs = raw.chunks(2);
                pairs
                    .map(|pair| (text(&pair[0]).to_lowercase(), text(&pair[1]).to_owned()))
                    .collect()
            });
            found.push(Recorded {
                file: name.clone(),
                method: text(&one["method"]).to_uppercase(),
                url: text(&one["path"]).to_owned(),
                answer: answer(&one["status"], &pairs.unwrap_or_default(), &one["response"].to_string()),
            });
        }
    }
    found
}

/// What was read of an answer's headers, and what follows from them.
fn line(recorded: &Recorded) -> String {
    let Recorded {
        method, url, answer, ..
    } = recorded;
    let path = url
        .split('?')
        .next()
        .unwrap()
        .trim_start_matches("https://api.github.com");
    let mut line = format!("{method} {path} -> {}", answer.status);
    let now = answer.date.unwrap_or(Timestamp::UNIX_EPOCH);
    let standing = match Limits::default().judge(answer, now, 0) {
        Standing::Fine => String::new(),
        other @ (Standing::NotModified
        | Standing::Limited(_)
        | Standing::Misconfigured(_)
        | Standing::Ended
        | Standing::Failed) => format!(" {other:?}"),
    };
    write!(line, "{standing}").unwrap();
    for (name, value) in [
        ("etag", answer.etag.clone()),
        ("next", answer.next.clone()),
        ("poll", answer.poll_interval_s.map(|seconds| seconds.to_string())),
        ("left", answer.remaining.map(|left| left.to_string())),
        ("reset", answer.reset.map(|at| at.to_string())),
        ("date", answer.date.map(|at| at.to_string())),
    ] {
        if let Some(value) = value {
            write!(line, ", {name} {value}").unwrap();
        }
    }
    line
}

/// What an item means, in one line.
fn meaning(item: &Item) -> String {
    match &item.meaning {
        ItemMeaning::Event(event, names) => {
            let actor = event.actor.as_deref().unwrap_or("-");
            let at = event.occurred_at.map_or_else(|| "-".to_owned(), |at| at.to_string());
            format!(
                "{} {} on {} by {actor} at {at}, names {}",
                event.kind,
                event.id,
                event.subject,
                names.len()
            )
        }
        ItemMeaning::Closed(closed) => format!("closed {}#{} near {}", closed.repository, closed.number, closed.near),
        ItemMeaning::Skipped(why) => format!("skipped: {why}"),
        ItemMeaning::Malformed => "malformed".to_owned(),
    }
}

fn is_events(url: &str) -> bool {
    let path = url.split('?').next().unwrap();
    let is_feed = path.ends_with("/events") || path.ends_with("/events/public") || path.contains("received_events");
    (is_feed || path.contains("/events/orgs/")) && !path.contains("/issues/")
}

#[test]
fn the_headers_of_every_recorded_answer_are_read() {
    let Some(data) = data() else { return };
    let recorded: Vec<Recorded> = cassettes(&data).into_iter().chain(fixtures(&data)).collect();
    let mut list = String::new();
    for one in &recorded {
        writeln!(list, "{}", line(one)).unwrap();
        assert!(one.answer.date.is_some(), "{}", one.file);
        let link_next = one
            .answer
            .next
            .as_deref()
            .is_none_or(|next| next.starts_with("https://api.github.com/"));
        assert!(link_next, "{}", one.file);
    }
    insta::assert_snapshot!("headers", list);
    let with = |read: fn(&Answer) -> bool| recorded.iter().filter(|one| read(&one.answer)).count();
    assert_eq!((recorded.len(), with(|answer| answer.etag.is_some())), (100, 77));
    assert_eq!(with(|answer| answer.poll_interval_s == Some(60)), 9);
    assert!(with(|answer| answer.next.is_some()) > 20);
}

#[test]
fn the_items_of_every_recorded_feed_mean_what_the_list_says() {
    // S3-17
    let Some(data) = data() else { return };
    let mut list = String::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut read = |name: &str, item: &RawValue| {
        let item = event_item(None, item, None);
        assert!(!item.mark.is_empty() && item.happened_at.is_some(), "{name}");
        let word = match &item.meaning {
            ItemMeaning::Event(..) => "event",
            ItemMeaning::Closed(_) => "closed",
            ItemMeaning::Skipped(_) => "skipped",
            ItemMeaning::Malformed => "malformed",
        };
        *counts.entry(word).or_default() += 1;
        if word != "skipped" {
            writeln!(list, "{name} {} -> {}", item.mark, meaning(&item)).unwrap();
        }
    };
    for one in cassettes(&data)
        .iter()
        .filter(|one| one.method == "GET" && is_events(&one.url))
    {
        for item in events_page(&one.answer.body).unwrap() {
            read(one.file.split('/').nth(1).unwrap(), &item);
        }
    }
    for file in files(&data.join("octokit-openapi/examples")) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name.contains("events_200") {
            for item in events_page(&std::fs::read(&file).unwrap()).unwrap() {
                read(&name, &item);
            }
        }
    }
    for file in files(&data.join("octocrab")) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let body = std::fs::read(&file).unwrap();
        let is_item = serde_json::from_slice::<Value>(&body)
            .unwrap()
            .get("type")
            .is_some_and(Value::is_string);
        if name.ends_with("_event.json") && !name.contains("webhook") && is_item {
            read(&name, &serde_json::from_slice::<Box<RawValue>>(&body).unwrap());
        }
    }
    insta::assert_snapshot!("items", list);
    assert_eq!(counts, [("event", 70), ("skipped", 140)].into());
}

#[test]
fn recorded_runs_and_histories_are_read() {
    // S3-17
    let Some(data) = data() else { return };
    let mut runs = Vec::new();
    for one in cassettes(&data)
        .iter()
        .filter(|one| one.url.contains("/actions/") && !one.url.contains("/jobs"))
    {
        runs.extend(runs_page(&one.answer.body).unwrap());
    }
    let examples = data.join("octokit-openapi/examples");
    let example = |name: &str| std::fs::read(examples.join(name)).unwrap();
    runs.extend(runs_page(&example("GET_repos_owner_repo_actions_runs_200_default.json")).unwrap());
    for name in [
        "GET_repos_owner_repo_actions_runs_run_id_200_default.json",
        "GET_repos_owner_repo_actions_runs_run_id_attempts_attempt_number_200_default.json",
    ] {
        runs.push(serde_json::from_slice(&example(name)).unwrap());
    }
    let items = runs.iter().map(|raw| run_item(None, raw));
    let list: Vec<String> = items
        .map(|item| format!("{} -> {}", item.mark, meaning(&item)))
        .collect();
    insta::assert_snapshot!("runs", list.join("\n"));
    let history = cassettes(&data)
        .into_iter()
        .find(|one| one.url.ends_with("/issues/events"))
        .unwrap();
    let near: Timestamp = "2013-06-17T00:00:00Z".parse().unwrap();
    let entries: Vec<Value> = serde_json::from_slice(&history.answer.body).unwrap();
    let closings = entries
        .iter()
        .filter(|entry| entry["event"] == "closed")
        .map(|entry| text(&entry["created_at"]));
    for at in closings {
        let at: Timestamp = at.parse().unwrap();
        assert_eq!(closed_near(&history.answer.body, at).unwrap().at, Some(at));
    }
    assert_eq!(
        closed_near(&history.answer.body, near + secs(86_400 * 365)).unwrap().at,
        None
    );
}

/// Gives recorded answers, and remembers what was asked.
#[derive(Clone, Default)]
struct Player {
    /// By how the path ends, without its query.
    answers: Vec<(&'static str, Answer)>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Api for Player {
    async fn ask(&self, request: Request<'_>) -> Result<Answer, ApiError> {
        let method = match request.method {
            Method::Get => "GET",
            Method::Post => "POST",
        };
        self.asked.lock().unwrap().push(format!("{method} {}", request.url));
        let path = request.url.split('?').next().unwrap();
        let found = self.answers.iter().find(|(end, _)| path.ends_with(end));
        let found = found.map(|(_, answer)| answer.clone());
        found.ok_or_else(|| ApiError {
            on: path.to_owned(),
            class: ErrorClass::Unreachable,
            source: None,
        })
    }
}

/// What a writer's call gives.
type Writing<'a> = Pin<Box<dyn Future<Output = Result<Written, LedgerError>> + Send + 'a>>;

/// Keeps deliveries.
#[derive(Default)]
struct Taker(Mutex<Vec<Readback>>);

impl Writer for Taker {
    fn write<'a>(&'a self, _found: Found) -> Writing<'a> {
        Box::pin(std::future::ready(Ok(Written::New)))
    }

    fn write_delivery<'a>(&'a self, readback: Readback) -> Writing<'a> {
        self.0.lock().unwrap().push(readback);
        Box::pin(std::future::ready(Ok(Written::New)))
    }
}

/// One poll of the log behind `player`, so many seconds after its newest delivery. Gives what was read back.
async fn poll(player: &Player, log: HookLog, path: &str, remedy: Remedy, newest: &str) -> (Poll, Vec<Readback>) {
    let config = RecoveryConfig {
        address: path.to_owned(),
        remedy,
        ..RecoveryConfig::default()
    };
    let credential: Credential = if log == HookLog::App { app() } else { token() };
    assert!(matches!(credential.right, Right::App | Right::Token));
    let store = Scripted::new(MemoryLedger::new());
    let recovery = Recovery::new(Arc::new(player.clone()), store, log, credential, Arc::new(config));
    let time = ManualTime::at(newest.parse::<Timestamp>().unwrap() + secs(600));
    let (rests, taker) = (Rests::default(), Taker::default());
    let turn = Turn {
        cursor: None,
        time: &time,
        end: time.now() + secs(25),
        strikes: 0,
        rests: &rests,
        writer: &taker,
    };
    let polled = recovery.poll(turn).await.unwrap();
    (polled, taker.0.into_inner().unwrap())
}

fn ok(body: Vec<u8>) -> Answer {
    Answer {
        status: 200,
        body,
        ..Answer::default()
    }
}

#[tokio::test]
async fn a_recorded_apps_log_is_read_and_asked_for_again() {
    // REDL-13, REDL-15
    let Some(data) = data() else { return };
    let recorded = cassettes(&data);
    let find = |part: &str| {
        recorded
            .iter()
            .find(|one| one.file.contains(part))
            .unwrap()
            .answer
            .clone()
    };
    let player = Player {
        answers: vec![
            ("/attempts", find("_deliver_app_hook/")),
            ("/app/hook/deliveries", find("lists_hook_deliveries_for_an_app")),
            ("", find("_app_hook_delivery/")),
        ],
        ..Player::default()
    };
    let (polled, _) = poll(&player, HookLog::App, "/", Remedy::Redeliver, "2023-09-09T18:30:00Z").await;
    assert_eq!(
        (
            polled.counts.missing,
            polled.counts.redeliveries,
            polled.counts.malformed
        ),
        (2, 2, 0)
    );
    let asked = player.asked.lock().unwrap().clone();
    let posts: Vec<&String> = asked.iter().filter(|asked| asked.starts_with("POST")).collect();
    assert_eq!(posts.len(), 2);
    insta::assert_snapshot!("app_log", asked.join("\n"));
    // A recorded payload is read back as what was delivered.
    let (polled, taken) = poll(&player, HookLog::App, "/", Remedy::Fetch, "2023-09-09T18:30:00Z").await;
    assert_eq!((polled.counts.recovered, taken.len()), (2, 2));
    for readback in taken {
        let payload: Value = serde_json::from_slice(&readback.payload).unwrap();
        assert!(payload.is_object() && readback.key.hook.as_str().parse::<u64>().is_ok());
    }
}

#[tokio::test]
async fn recorded_logs_of_hooks_are_read_and_asked_for_again() {
    let Some(data) = data() else { return };
    let examples = data.join("octokit-openapi/examples");
    let hooks = std::fs::read(examples.join("GET_repos_owner_repo_hooks_200_default.json")).unwrap();
    let lists = [
        data.join("octocrab/hooks_delivery_list.json"),
        examples.join("GET_repos_owner_repo_hooks_hook_id_deliveries_200_default.json"),
        examples.join("GET_orgs_org_hooks_hook_id_deliveries_200_default.json"),
        examples.join("GET_app_hook_deliveries_200_default.json"),
    ];
    let detail = std::fs::read(examples.join("GET_app_hook_deliveries_delivery_id_200_default.json")).unwrap();
    for file in lists {
        let body = std::fs::read(&file).unwrap();
        let entries: Vec<Value> = serde_json::from_slice(&body).unwrap();
        let newest = entries.iter().map(|entry| text(&entry["delivered_at"])).max().unwrap();
        let log = log_of(&file);
        let player = Player {
            answers: vec![
                (
                    "/attempts",
                    Answer {
                        status: 202,
                        ..ok(b"{}".to_vec())
                    },
                ),
                ("/deliveries", ok(body.clone())),
                ("/hooks", ok(hooks.clone())),
                ("", ok(detail.clone())),
            ],
            ..Player::default()
        };
        let (polled, _) = poll(&player, log, "/webhook", Remedy::Redeliver, newest).await;
        // S3-16: of several attempts at one delivery the newest is asked for again, in whatever order they are shown.
        let mut newest: BTreeMap<&str, (&str, u64)> = BTreeMap::new();
        for entry in &entries {
            let attempt = (text(&entry["delivered_at"]), entry["id"].as_u64().unwrap());
            let known = newest.entry(text(&entry["guid"])).or_insert(attempt);
            *known = attempt.max(*known);
        }
        let asked = player.asked.lock().unwrap().clone();
        let mut posts: Vec<u64> = asked.iter().filter_map(|asked| posted(asked)).collect();
        posts.sort_unstable();
        let mut expected: Vec<u64> = newest.into_values().map(|(_, id)| id).collect();
        expected.sort_unstable();
        assert_eq!(posts, expected, "{}", file.display());
        assert_eq!(polled.counts.malformed, 0);
        let missing = usize::try_from(polled.counts.missing).unwrap();
        assert_eq!(missing, expected.len());
    }
}

/// Whose log a recorded answer is of.
fn log_of(file: &Path) -> HookLog {
    match file.file_name().unwrap().to_str().unwrap() {
        name if name.contains("_app_") => HookLog::App,
        name if name.contains("_orgs_") => HookLog::Organization("acme".to_owned()),
        _ => HookLog::Repository(repository("acme/app")),
    }
}

#[tokio::test]
async fn recorded_deliveries_of_each_kind_of_hook_are_read_back_from_its_log() {
    // S3-27
    let Some(data) = data() else { return };
    let examples = data.join("octokit-openapi/examples");
    let read = |name: String| std::fs::read(examples.join(name)).unwrap();
    let hooks = read("GET_repos_owner_repo_hooks_200_default.json".to_owned());
    for (hook_log, hook) in [
        ("app_hook", "42"),
        ("repos_owner_repo_hooks_hook_id", "12345678"),
        ("orgs_org_hooks_hook_id", "12345678"),
    ] {
        let name = format!("GET_{hook_log}_deliveries_delivery_id_200_default.json");
        let detail = read(name.clone());
        let player = Player {
            answers: vec![
                (
                    "/deliveries",
                    ok(read(format!("GET_{hook_log}_deliveries_200_default.json"))),
                ),
                ("/hooks", ok(hooks.clone())),
                ("", ok(detail.clone())),
            ],
            ..Player::default()
        };
        let log = log_of(Path::new(&name));
        let (polled, taken) = poll(&player, log, "/webhook", Remedy::Fetch, "2019-06-04T00:57:16Z").await;
        let counts = (polled.counts.missing, polled.counts.recovered, polled.counts.malformed);
        assert_eq!(counts, (1, 1, 0), "{name}");
        let detail: Value = serde_json::from_slice(&detail).unwrap();
        let payload: Value = serde_json::from_slice(&taken[0].payload).unwrap();
        assert_eq!(payload, detail["request"]["payload"], "{name}");
        let key = format!("{hook}/{}", text(&detail["guid"]));
        assert_eq!(
            (taken[0].key.to_string(), taken[0].event_name.as_str()),
            (key, "issues"),
            "{name}"
        );
    }
}

/// The delivery that a request asks for again.
fn posted(asked: &str) -> Option<u64> {
    let path = asked.strip_prefix("POST ")?;
    path.split('/').nth_back(1)?.parse().ok()
}

#[test]
fn recorded_refusals_are_told_apart() {
    // FEED-13, RATE-03
    let Some(data) = data() else { return };
    let standing = |one: &Recorded| Limits::default().judge(&one.answer, one.answer.date.unwrap(), 0);
    let recorded = fixtures(&data);
    let of = |status| recorded.iter().filter(move |one| one.answer.status == status);
    assert!(of(422).count() > 0 && of(422).all(|one| standing(one) == Standing::Ended));
    assert!(of(301).count() > 0 && of(301).all(|one| standing(one) == Standing::Misconfigured("moved")));
    for moved in of(301) {
        assert!(
            events_page(&moved.answer.body).is_err(),
            "an object is no list of items"
        );
    }
}
