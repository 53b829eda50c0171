//! Public recordings of GitHub's deliveries, 351 of them. They are not part of this repository: where the folder is absent,
//! there is nothing to test.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use forebay_core::delivery::Outcome;
use forebay_core::ports::Ledger as _;
use forebay_tests::table::Table;
use forebay_tests::webhook::{Request, Stand};
use serde_json::Value;

use crate::payloads::{guid, key};

/// `shared/<path>` beside the repository or beside the folder it lies in.
pub(crate) fn beside(path: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let found = root.ancestors().skip(1).map(|folder| folder.join("shared").join(path));
    found.take(2).find(|path| path.exists())
}

/// Every delivery of the corpora: its name, its event, its body in one line.
fn recordings(data: &Path) -> Vec<(String, String, Vec<u8>)> {
    let mut recordings = Vec::new();
    for folder in folders(&data.join("octokit-webhooks-examples")) {
        let event = name(&folder);
        for file in files(&folder) {
            recordings.push((
                format!("octokit/{event}/{}", name(&file)),
                event.clone(),
                compact(&file),
            ));
        }
    }
    for file in files(&data.join("rust-bors")) {
        let body = compact(&file);
        let event = event_of(&serde_json::from_slice(&body).unwrap());
        recordings.push((format!("bors/{}", name(&file)), event.to_owned(), body));
    }
    recordings
}

/// The event that a recording without headers must have been.
fn event_of(payload: &Value) -> &'static str {
    let fields = [
        ("workflow_run", "workflow_run"),
        ("workflow_job", "workflow_job"),
        ("review", "pull_request_review"),
        ("ref", "push"),
        ("check_run", "check_run"),
        ("check_suite", "check_suite"),
    ];
    let field = fields.iter().find(|(field, _)| payload.get(field).is_some());
    match (
        field,
        payload.get("comment").is_some(),
        payload.get("pull_request").is_some(),
    ) {
        (Some((_, event)), ..) => event,
        (None, true, true) => "pull_request_review_comment",
        (None, true, false) => "issue_comment",
        (None, false, true) => "pull_request",
        (None, false, false) => "installation",
    }
}

fn compact(file: &Path) -> Vec<u8> {
    let raw: Box<serde_json::value::RawValue> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    // Without the order of fields or the spelling of numbers and texts changing: only what is between them goes.
    let mut line = String::new();
    let mut is_text = false;
    let mut is_escaped = false;
    for c in raw.get().chars() {
        if is_text {
            is_text = c != '"' || is_escaped;
            is_escaped = c == '\\' && !is_escaped;
        } else if c.is_ascii_whitespace() {
            continue;
        } else {
            is_text = c == '"';
        }
        line.push(c);
    }
    line.into_bytes()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut entries: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    entries(folder).into_iter().filter(|path| path.is_dir()).collect()
}

/// The JSON files of a folder and of the folders in it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in entries(folder) {
        if path.is_dir() {
            files.extend(self::files(&path));
        } else if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    files
}

/// What came of one delivery, in one line without payload text.
async fn line(stand: &Stand, n: u64, name: &str, outcome: &str) -> String {
    let kept = stand.ledger.delivery(&key(n)).await.unwrap().unwrap().delivery;
    let id = match kept.outcome {
        Outcome::Ignored(why) => return format!("{name} -> {outcome}: {why}"),
        Outcome::Malformed(why) => return format!("{name} -> {outcome}: malformed, {why}"),
        Outcome::Accepted(id) => id,
    };
    let row = stand.ledger.event(&id).await.unwrap().unwrap();
    let event = &row.event;
    let mut line = format!(
        "{name} -> {outcome}: {} {id}, {} {}",
        event.kind,
        event.subject.kind(),
        event.subject
    );
    for (field, value) in [
        ("by", &event.actor),
        ("branch", &event.branch),
        ("base", &event.base),
        ("conclusion", &event.conclusion),
        ("at", &event.occurred_at.map(|at| at.to_string())),
    ] {
        if let Some(value) = value {
            write!(line, ", {field} {value}").unwrap();
        }
    }
    if event.pull_requests.len() > 1 {
        write!(line, ", pull requests {:?}", event.pull_requests).unwrap();
    }
    let reason = row.state.reason.map(|reason| reason.as_str());
    write!(line, "; {}", reason.unwrap_or(row.state.status.as_str())).unwrap();
    line
}

#[tokio::test]
async fn every_public_recording_is_kept_byte_for_byte_and_means_what_the_list_says() {
    let Some(data) = beside("data") else {
        println!("skipped: no folder shared/data beside the repository");
        return;
    };
    let recordings = recordings(&data);
    assert_eq!(recordings.len(), 351);
    let table = Table::start().await;
    let stand = Stand::start(&table).await;
    let mut list = String::new();
    for (n, (name, event, body)) in (1..).zip(&recordings) {
        let answer = stand.post(&Request::new(event, &guid(n), body.clone())).await;
        assert!(matches!(answer.status(), 200 | 202), "{name}: {}", answer.body());
        let said: Value = serde_json::from_str(answer.body()).unwrap();
        let outcome = said["outcome"].as_str().unwrap();
        let kept = stand.ledger.body(&key(n)).await.unwrap();
        assert!(kept.as_ref() == Some(body), "{name}: byte for byte");
        writeln!(list, "{}", line(&stand, n, name, outcome).await).unwrap();
    }
    insta::assert_snapshot!("corpora", list);
}
