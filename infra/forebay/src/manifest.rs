//! `events/manifest.json`: what the recorded inputs are, and what the demonstration does with them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Attempt as _, Error};

const REMEDY: &str = "compare events/manifest.json with the types in infra/forebay/src/manifest.rs";

/// The whole manifest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// Id of the hook that sent all of them.
    pub(crate) hook: String,
    /// The recorded inputs.
    pub(crate) recordings: Vec<Recording>,
    /// What the demonstration does, in order.
    pub(crate) demo: Vec<Step>,
}

/// One recorded input: a body in a file, and what is said about it in headers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recording {
    /// Its name.
    pub(crate) name: String,
    /// The file with its exact bytes, in `events/`.
    pub(crate) file: PathBuf,
    /// `X-GitHub-Event`.
    pub(crate) event: String,
    /// `X-GitHub-Delivery`.
    pub(crate) guid: String,
    /// Who signed it.
    #[serde(default)]
    pub(crate) signature: Signature,
}

/// Who signed a recorded input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Signature {
    /// Somebody who knows the secret.
    #[default]
    Right,
    /// Somebody who does not.
    Forged,
}

/// One step of the demonstration.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// Post a recorded input to the webhook.
    Deliver(Deliver),
    /// Open a session.
    OpenSession(OpenSession),
    /// Close a session.
    CloseSession(CloseSession),
}

/// Posting a recorded input.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Deliver {
    /// Which one.
    pub(crate) recording: String,
    /// What it shows.
    pub(crate) shows: String,
    /// What must come of it.
    pub(crate) expect: Answered,
}

/// What came of a delivery, or must come of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answered {
    /// Status of the answer.
    pub(crate) status: u16,
    /// Its outcome.
    pub(crate) outcome: String,
    /// Why it was refused, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<String>,
    /// Kinds of the events it means.
    #[serde(default)]
    pub(crate) events: Vec<String>,
    /// What the ledger says of it afterwards; nothing where the ledger must not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ledger: Option<String>,
    /// Inboxes that got a message.
    #[serde(default)]
    pub(crate) inboxes: Vec<String>,
}

/// Opening a session.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenSession {
    /// Its name.
    pub(crate) session: String,
    /// Its agent.
    pub(crate) agent: String,
    /// Where it works.
    pub(crate) repository: String,
    /// The branch it owns.
    #[serde(default)]
    pub(crate) branch: Option<String>,
    /// The pull request it owns.
    #[serde(default)]
    pub(crate) pull: Option<u64>,
    /// What it shows.
    pub(crate) shows: String,
    /// What must come of it.
    #[serde(default)]
    pub(crate) expect: Woken,
}

/// Closing a session.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CloseSession {
    /// Its name.
    pub(crate) session: String,
    /// What it shows.
    pub(crate) shows: String,
}

impl Step {
    /// The recorded input or the session that it is about.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Deliver(deliver) => &deliver.recording,
            Self::OpenSession(open) => &open.session,
            Self::CloseSession(close) => &close.session,
        }
    }

    /// What it shows.
    pub(crate) fn shows(&self) -> &str {
        match self {
            Self::Deliver(deliver) => &deliver.shows,
            Self::OpenSession(open) => &open.shows,
            Self::CloseSession(close) => &close.shows,
        }
    }
}

/// What opening a session wakes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Woken {
    /// Kinds of the events that had waited.
    #[serde(default)]
    pub(crate) events: Vec<String>,
    /// What the ledger says of them afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ledger: Option<String>,
    /// Inboxes that get a message.
    #[serde(default)]
    pub(crate) inboxes: Vec<String>,
}

impl Manifest {
    /// Reads the manifest of the recorded inputs in the folder `events`.
    pub(crate) fn read(events: &Path) -> Result<Self, Error> {
        let path = events.join("manifest.json");
        let reading = || format!("read {}", path.display());
        let text = std::fs::read_to_string(&path).attempting(reading, REMEDY)?;
        serde_json::from_str(&text).attempting(reading, REMEDY)
    }

    /// The recorded input that `name` means: by its name, or by the name of its file.
    pub(crate) fn recording(&self, name: &str) -> Option<&Recording> {
        let file = Path::new(name).file_name();
        self.recordings
            .iter()
            .find(|recording| recording.name == name || Some(recording.file.as_os_str()) == file)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn committed() -> (PathBuf, Manifest) {
        let events = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../events");
        let manifest = Manifest::read(&events).unwrap();
        (events, manifest)
    }

    #[test]
    fn every_recording_has_a_file_and_every_file_is_recorded() {
        let (events, manifest) = committed();
        let recorded: BTreeSet<_> = manifest
            .recordings
            .iter()
            .map(|recording| recording.file.clone())
            .collect();
        let mut files: BTreeSet<_> = std::fs::read_dir(events)
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_type().unwrap().is_file())
            .map(|entry| PathBuf::from(entry.file_name()))
            .collect();
        for other in ["manifest.json", "README.md"] {
            assert!(files.remove(Path::new(other)), "{other}");
        }
        assert_eq!(files, recorded);
    }

    #[test]
    fn names_and_guids_are_used_once() {
        let (_, manifest) = committed();
        let count = manifest.recordings.len();
        let names: BTreeSet<_> = manifest.recordings.iter().map(|recording| &recording.name).collect();
        let guids: BTreeSet<_> = manifest.recordings.iter().map(|recording| &recording.guid).collect();
        assert_eq!((names.len(), guids.len()), (count, count));
    }

    #[test]
    fn the_demonstration_plays_every_recording() {
        let (_, manifest) = committed();
        let played: BTreeSet<_> = manifest
            .demo
            .iter()
            .filter_map(|step| match step {
                Step::Deliver(deliver) => Some(deliver.recording.as_str()),
                Step::OpenSession(_) | Step::CloseSession(_) => None,
            })
            .collect();
        let recorded: BTreeSet<_> = manifest
            .recordings
            .iter()
            .map(|recording| recording.name.as_str())
            .collect();
        assert_eq!(played, recorded);
        // LOCL-02: steps follow one after the other, and the first is a hook's own test, which means no event and wakes nobody.
        // It warms the function up, alone, before anything is asked of what events come to.
        let Some(Step::Deliver(first)) = manifest.demo.first() else {
            panic!("the demonstration begins with a delivery")
        };
        let warm_up = Answered {
            status: 202,
            outcome: "ignored".to_owned(),
            refusal: None,
            events: Vec::new(),
            ledger: Some("ping".to_owned()),
            inboxes: Vec::new(),
        };
        assert_eq!((first.recording.as_str(), &first.expect), ("ping", &warm_up));
    }

    #[test]
    fn a_recording_is_found_by_its_name_and_by_its_file() {
        let (_, manifest) = committed();
        for name in ["ping", "ping.json", "events/ping.json", "/elsewhere/events/ping.json"] {
            assert_eq!(
                manifest.recording(name).map(|recording| recording.event.as_str()),
                Some("ping"),
                "{name}"
            );
        }
        assert!(manifest.recording("events/manifest.json").is_none());
    }
}
