//! What GitHub's webhook bodies mean. Reading is total: whatever the bytes are, there is an answer, and nothing panics.
//!
//! Only the fields that Forebay uses are ever looked at, and they are borrowed from the body: a field that nobody reads
//! may have any shape, and a body of several megabytes costs little more than itself.

mod content;
pub mod feed;
mod meaning;
mod payload;
mod scene;
#[cfg(test)]
mod tests;
pub(crate) mod time;

use crate::delivery::{DeliveryKey, EventName, Ignored, Malformed};
use crate::event::{Event, Repository};
use crate::session::OwnerKey;
use crate::text::cut;

use payload::Payload;
use scene::{Scene, Stop};

/// Longest action that a record keeps, in bytes. GitHub's longest is 30.
const ACTION_BYTES_MAX: usize = 64;

/// What is known about a delivery before its body is read.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    /// GitHub Enterprise host, which then begins every natural id. `None` for github.com.
    pub host: Option<&'a str>,
    /// Identity of the delivery; `None` for what no delivery carried.
    pub key: Option<&'a DeliveryKey>,
    /// The event name of the header.
    pub event_name: &'a EventName,
    /// The content type of the header; JSON is assumed where there is none.
    pub content_type: Option<&'a str>,
}

/// What a body means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// One event.
    Event(Box<Event>),
    /// Nothing that Forebay handles.
    Ignored(Ignored),
    /// It cannot be read.
    Malformed(Malformed),
}

/// A branch of a repository and a pull request from it, as a payload names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Where both live.
    pub repository: Repository,
    /// The head branch.
    pub branch: String,
    /// Number of the pull request.
    pub pull: u64,
}

impl Named {
    /// The pointers of the branch and of the pull request.
    #[must_use]
    pub fn keys(&self) -> [OwnerKey; 2] {
        [
            OwnerKey::branch(&self.repository, &self.branch),
            OwnerKey::pull(&self.repository, self.pull),
        ]
    }
}

/// All that is read from one body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The payload's action, cut to 64 bytes.
    pub action: Option<String>,
    /// The repository that the payload speaks for, whatever it means. An event's subject has the same one.
    pub repository: Option<Repository>,
    /// What it means.
    pub meaning: Meaning,
    /// Pull requests whose head branch is a branch of the repository, whatever the action.
    pub names: Vec<Named>,
}

impl Reading {
    fn malformed(why: Malformed) -> Self {
        let meaning = Meaning::Malformed(why);
        Self {
            action: None,
            repository: None,
            meaning,
            names: Vec::new(),
        }
    }
}

/// Reads what `body` means.
///
/// A body with half of a UTF-16 pair among its escapes, which GitHub sends when it cuts a text, is read with U+FFFD in
/// its place.
#[must_use]
pub fn read(envelope: &Envelope<'_>, body: &[u8]) -> Reading {
    let json = match content::json(envelope.content_type, body) {
        Ok(json) => json,
        Err(why) => return Reading::malformed(why),
    };
    let reading = interpret(envelope, &json);
    if matches!(reading.meaning, Meaning::Malformed(_))
        && let Some(repaired) = content::repair(&json)
    {
        return interpret(envelope, &repaired);
    }
    reading
}

fn interpret(envelope: &Envelope<'_>, json: &str) -> Reading {
    let payload = match Payload::parse(json) {
        Ok(payload) => payload,
        Err(why) => return Reading::malformed(why),
    };
    let scene = Scene::new(envelope, &payload);
    let mut names = Vec::new();
    let meaning = match meaning::of(&scene, &mut names) {
        Ok(event) => Meaning::Event(Box::new(event)),
        Err(Stop::Ignored(why)) => Meaning::Ignored(why),
        Err(Stop::Shape) => Meaning::Malformed(Malformed::Shape),
    };
    Reading {
        action: scene
            .stated_action()
            .map(|action| cut(action, ACTION_BYTES_MAX).to_owned()),
        repository: scene.name.clone(),
        meaning,
        names,
    }
}
