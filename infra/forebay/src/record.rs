//! Whole function-URL invocations of the recorded inputs, for `cargo lambda invoke --data-file`.
//!
//! They are made from the bodies and the manifest, and a test holds the committed files to that: neither can drift.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::delivery::{Headers, USER_AGENT};
use crate::error::{Attempt as _, Error};
use crate::manifest::{Manifest, Recording};
use crate::output::Output;
use crate::secret::WebhookSecret;
use crate::stack::INTAKE_PATH;
use crate::workspace::Workspace;

/// Larger bodies get no invocation: one large file in the repository is enough. The README of `events/` says more.
const BODY_BYTES_MAX: usize = 100_000;
/// An id as function URLs have it, of nobody's function.
const URL_ID: &str = "f0eba00000000000000000000000demo";
/// An address of the range that is kept for documentation.
const SOURCE_ADDRESS: &str = "192.0.2.30";

/// What was written.
#[derive(Serialize)]
struct Recorded {
    written: Vec<PathBuf>,
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wrote {} invocations", self.written.len())
    }
}

/// Writes the invocations anew.
pub(crate) fn run(output: Output) -> Result<(), Error> {
    let events = Workspace::find()?.events();
    let folder = events.join("invocations");
    let disk = "check the folder's permissions";
    std::fs::create_dir_all(&folder).attempting(|| format!("make {}", folder.display()), disk)?;
    let mut written = Vec::new();
    for (name, text) in invocations(&events)? {
        let path = folder.join(name);
        std::fs::write(&path, text).attempting(|| format!("write {}", path.display()), disk)?;
        written.push(path);
    }
    output.result(&Recorded { written })
}

/// The invocations of the recorded inputs in the folder `events`, by file name.
fn invocations(events: &Path) -> Result<BTreeMap<String, String>, Error> {
    let manifest = Manifest::read(events)?;
    let mut invocations = BTreeMap::new();
    for recording in &manifest.recordings {
        let path = events.join(&recording.file);
        let body = std::fs::read(&path).attempting(
            || format!("read {}", path.display()),
            "restore the file, or take it out of the manifest",
        )?;
        if body.len() <= BODY_BYTES_MAX {
            let invocation = invocation(&manifest, recording, &body);
            invocations.insert(format!("{}.json", recording.name), format!("{invocation:#}\n"));
        }
    }
    Ok(invocations)
}

/// What Lambda hands to a function whose URL was called so (payload format 2.0).
fn invocation(manifest: &Manifest, recording: &Recording, body: &[u8]) -> Value {
    let headers = Headers::recorded(manifest, recording).signed(&WebhookSecret::local(), body);
    // A function URL hands over JSON as text, and a form as base64.
    let as_text = std::str::from_utf8(body)
        .ok()
        .filter(|_| recording.file.extension().is_some_and(|e| e == "json"));
    let domain = format!("{URL_ID}.lambda-url.us-east-1.on.aws");
    let mut all: Map<String, Value> = headers
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    all.extend([
        ("content-length".to_owned(), body.len().to_string().into()),
        ("host".to_owned(), domain.as_str().into()),
        ("x-forwarded-for".to_owned(), SOURCE_ADDRESS.into()),
        ("x-forwarded-port".to_owned(), "443".into()),
        ("x-forwarded-proto".to_owned(), "https".into()),
    ]);
    json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": INTAKE_PATH,
        "rawQueryString": "",
        "headers": all,
        "requestContext": {
            "accountId": "anonymous",
            "apiId": URL_ID,
            "domainName": domain,
            "domainPrefix": URL_ID,
            "http": {
                "method": "POST",
                "path": INTAKE_PATH,
                "protocol": "HTTP/1.1",
                "sourceIp": SOURCE_ADDRESS,
                "userAgent": USER_AGENT,
            },
            "requestId": recording.guid,
            "routeKey": "$default",
            "stage": "$default",
            "time": "16/Nov/2026:16:30:00 +0000",
            "timeEpoch": 1_794_846_600_000_u64,
        },
        "body": as_text.map_or_else(|| STANDARD.encode(body), str::to_owned),
        "isBase64Encoded": as_text.is_none(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_invocations_are_what_would_be_written_now() {
        let events = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../events");
        let expected = invocations(&events).unwrap();
        let committed: BTreeMap<String, String> = std::fs::read_dir(events.join("invocations"))
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                (entry.file_name().into_string().unwrap(), text)
            })
            .collect();
        let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&committed), names(&expected), "run `forebay record`");
        for (name, text) in &expected {
            assert!(&committed[name] == text, "{name} is not what `forebay record` writes");
        }
    }
}
