//! The recorded inputs of `events/`: the demonstration's steps, with the answers that its manifest promises, once from the
//! bodies and once from the invocations.

use std::path::Path;

use forebay_aws::http_event::HttpEvent;
use forebay_core::delivery::{DeliveryKey, Outcome};
use forebay_core::event::Repository;
use forebay_core::ports::{Ledger as _, TimeAndChance as _};
use forebay_core::session::{AgentName, Phase, Session, SessionId};
use forebay_tests::table::Table;
use forebay_tests::webhook::{Request, SECRET, Stand};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::payloads::{changed, open};

/// The one recording that is too large to be kept twice: see the README of `events/`.
const WITHOUT_INVOCATION: &str = "push_large";

/// Where the recordings are.
pub(crate) fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../events"))
}

/// The manifest.
pub(crate) fn manifest() -> Value {
    serde_json::from_slice(&std::fs::read(folder().join("manifest.json")).unwrap()).unwrap()
}

/// A recording's body, signed with the tests' secret, or forged where it is a forged one.
pub(crate) fn request(manifest: &Value, recording: &Value) -> Request {
    let text = |field: &str| recording[field].as_str().unwrap();
    let body = std::fs::read(folder().join(text("file"))).unwrap();
    let form = text("file").ends_with(".form");
    let content_type = if form {
        "application/x-www-form-urlencoded"
    } else {
        "application/json"
    };
    let request = Request::new(text("event"), text("guid"), body)
        .header("x-github-hook-id", manifest["hook"].as_str())
        .header("content-type", Some(content_type));
    if recording["signature"] == "forged" {
        let forged = format!("sha256={}", "5".repeat(64));
        return request.header("x-hub-signature-256", Some(&forged));
    }
    request
}

/// The local stack's parameters and secret, beside the tests' own.
async fn stand(table: &Table) -> Stand {
    let changes = [
        ("ROUTES", "acme/app#41=reviewer"),
        ("IGNORED_ACTORS", "acme-builder[bot]"),
    ];
    let stand = Stand::with(table.ledger(), changed(&changes));
    let document = json!({"github": {"webhook_secret": [SECRET, "forebay-local-development-secret"]}});
    stand.secrets.set(Some(document.to_string()));
    stand
}

#[tokio::test]
async fn every_recorded_body_is_answered_as_the_manifest_says() {
    let manifest = manifest();
    let request_of = |recording: &Value| request(&manifest, recording).to_event();
    play(&manifest, request_of).await;
}

#[tokio::test]
async fn every_recorded_invocation_is_answered_as_the_manifest_says() {
    let manifest = manifest();
    let invocation = |recording: &Value| -> HttpEvent {
        let name = recording["name"].as_str().unwrap();
        let file = folder().join(format!("invocations/{name}.json"));
        if name == WITHOUT_INVOCATION {
            assert!(!file.exists(), "{name} is recorded now: play it");
            return request(&manifest, recording).to_event();
        }
        let invocation = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        serde_json::from_slice(&invocation).unwrap()
    };
    play(&manifest, invocation).await;
}

async fn play(manifest: &Value, event_of: impl Fn(&Value) -> HttpEvent) {
    let table = Table::start().await;
    let stand = stand(&table).await;
    let recordings = manifest["recordings"].as_array().unwrap();
    let steps = manifest["demo"].as_array().unwrap();
    let mut left: Vec<&str> = recordings.iter().map(|one| one["name"].as_str().unwrap()).collect();
    for step in steps {
        let before = stand.inboxes.all().len();
        if let Some(step) = step.get("deliver") {
            let name = step["recording"].as_str().unwrap();
            left.retain(|one| *one != name);
            let recording = recordings.iter().find(|one| one["name"] == name).unwrap();
            deliver(&stand, manifest, recording, event_of(recording), &step["expect"]).await;
        } else if let Some(step) = step.get("open_session") {
            open(&stand, &session(&stand, step)).await;
        } else {
            let id = SessionId::parse(step["close_session"]["session"].as_str().unwrap()).unwrap();
            stand.ledger.close_session(&id, stand.time.now()).await.unwrap();
        }
        let expected = step.as_object().unwrap().values().next().unwrap()["expect"]["inboxes"].clone();
        let sent: Vec<_> = stand
            .inboxes
            .all()
            .split_off(before)
            .into_iter()
            .map(|message| message.inbox)
            .collect();
        assert_eq!(
            json!(sent),
            if expected.is_null() { json!([]) } else { expected },
            "{step}"
        );
    }
    assert_eq!(left, Vec::<&str>::new(), "recordings that no step posts");
}

async fn deliver(stand: &Stand, manifest: &Value, recording: &Value, event: HttpEvent, expect: &Value) {
    let name = &recording["name"];
    let answer = stand.webhook.answer(event).await;
    let body: Value = serde_json::from_str(answer.body()).unwrap();
    let events = |value: &Value| if value.is_null() { json!([]) } else { value.clone() };
    assert_eq!(answer.status(), expect["status"], "{name}");
    assert_eq!(body["outcome"], expect["outcome"], "{name}");
    assert_eq!(body["refusal"], expect["refusal"], "{name}");
    if expect["outcome"] != "duplicate" {
        assert_eq!(events(&body["events"]), events(&expect["events"]), "{name}");
    }
    let (hook, guid) = (manifest["hook"].as_str().unwrap(), recording["guid"].as_str().unwrap());
    let key = DeliveryKey::parse(&format!("{hook}/{guid}")).unwrap();
    let kept = stand.ledger.delivery(&key).await.unwrap();
    let word = match kept.map(|row| row.delivery.outcome) {
        None => Value::Null,
        Some(Outcome::Ignored(why)) => why.as_str().into(),
        Some(Outcome::Malformed(why)) => why.as_str().into(),
        Some(Outcome::Accepted(id)) => {
            let row = stand.ledger.event(&id).await.unwrap().unwrap();
            row.state.reason.unwrap().as_str().into()
        }
    };
    assert_eq!(word, expect["ledger"], "{name}");
    if !expect["ledger"].is_null() {
        let bytes = std::fs::read(folder().join(recording["file"].as_str().unwrap())).unwrap();
        assert!(
            stand.ledger.body(&key).await.unwrap() == Some(bytes),
            "{name}: byte for byte"
        );
    }
}

fn session(stand: &Stand, step: &Value) -> Session {
    let text = |field: &str| step[field].as_str();
    let now = stand.time.now();
    Session {
        id: SessionId::parse(text("session").unwrap()).unwrap(),
        agent: AgentName::parse(text("agent").unwrap()).unwrap(),
        repository: Repository::new(text("repository").unwrap()).unwrap(),
        branch: text("branch").map(str::to_owned),
        pull: step["pull"].as_u64(),
        phase: Phase::Running,
        opened_at: now,
        live_until: now + SignedDuration::from_hours(8),
    }
}
