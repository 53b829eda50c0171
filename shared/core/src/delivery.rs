//! Deliveries: what arrived, as bytes, and the identity under which it is kept.

use std::fmt;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::event::{EventId, Net, words};

/// Longest delivery id and longest event name that are accepted, in bytes. GitHub sends 36 and at most 41.
const WORD_BYTES_MAX: usize = 64;
/// Longest hook id that is accepted, in digits: a 64-bit number has at most 20.
const HOOK_ID_DIGITS_MAX: usize = 20;

/// Which hook sent a delivery: its number, or `-` where the header is absent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HookId(String);

impl HookId {
    /// The hook that `header` (`X-GitHub-Hook-ID`) names. `None` where it is malformed.
    #[must_use]
    pub fn parse(header: Option<&str>) -> Option<Self> {
        let Some(text) = header else {
            return Some(Self("-".to_owned()));
        };
        let digits =
            !text.is_empty() && text.len() <= HOOK_ID_DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit());
        (digits || text == "-").then(|| Self(text.to_owned()))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// GitHub's name of a happening, shared by all hooks that subscribe to it and by every redelivery.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(String);

impl Guid {
    /// The GUID in `header` (`X-GitHub-Delivery`), in lower case. `None` where it is malformed.
    #[must_use]
    pub fn parse(header: &str) -> Option<Self> {
        let plain = !header.is_empty()
            && header.len() <= WORD_BYTES_MAX
            && header.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        plain.then(|| Self(header.to_ascii_lowercase()))
    }

    /// The GUID as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Identity of a delivery. One hook's copy of a happening: two hooks send two deliveries with one GUID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryKey {
    /// Which hook sent it.
    pub hook: HookId,
    /// GitHub's name of the happening.
    pub guid: Guid,
}

impl DeliveryKey {
    /// The key that `text` spells, as [`fmt::Display`] writes it: `<hook id>/<guid>`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (hook, guid) = text.split_once('/')?;
        Some(Self {
            hook: HookId::parse(Some(hook))?,
            guid: Guid::parse(guid)?,
        })
    }
}

impl fmt::Display for DeliveryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.hook.0, self.guid.0)
    }
}

/// The name of a webhook event, such as `pull_request`: `^[a-z0-9_]{1,64}$` (`projects_v2_item` has a digit).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventName(String);

impl EventName {
    /// The name in `header` (`X-GitHub-Event`). `None` where it is malformed.
    #[must_use]
    pub fn parse(header: &str) -> Option<Self> {
        let plain = !header.is_empty()
            && header.len() <= WORD_BYTES_MAX
            && header
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        plain.then(|| Self(header.to_owned()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// SHA-256 of the exact bytes that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest that 64 hex digits spell.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// The digest's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest that these 32 bytes are.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

words! {
    /// Why a delivery means no event.
    Ignored {
        /// The hook's own test message.
        Ping = "ping",
        /// An event name that Forebay has no kind for.
        UnknownEvent = "unknown_event",
        /// A known name with an action that is none of our kinds.
        UnhandledAction = "unhandled_action",
        /// A push that is not to a branch.
        NotABranch = "not_a_branch",
        /// A push that deleted its branch, or has no head commit.
        NoHeadCommit = "no_head_commit",
        /// A workflow run that did not end badly.
        NotAFailure = "not_a_failure",
        /// A field that the event's identity or subject needs is absent.
        Incomplete = "incomplete",
    }
}

words! {
    /// Why a body could not be read.
    Malformed {
        /// Not UTF-8.
        NotUtf8 = "not_utf8",
        /// Not JSON.
        NotJson = "not_json",
        /// JSON, but not an object.
        NotAnObject = "not_an_object",
        /// A form without a `payload` field.
        NoPayload = "no_payload",
        /// A content type that is neither JSON nor a form.
        ContentType = "content_type",
        /// An object whose fields are not what their names promise.
        Shape = "shape",
    }
}

/// What came of a delivery when it was admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It means this event.
    Accepted(EventId),
    /// It is kept and means nothing to us.
    Ignored(Ignored),
    /// It is kept and cannot be read.
    Malformed(Malformed),
}

/// A delivery as it goes into the ledger. Immutable once written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its identity.
    pub key: DeliveryKey,
    /// The event name of its header.
    pub event_name: EventName,
    /// The payload's action, where it has one.
    pub action: Option<String>,
    /// Headers kept for audit, none of them secret or computed from a secret.
    pub headers: Vec<(String, String)>,
    /// Digest of the exact bytes.
    pub digest: Digest,
    /// Length of the exact bytes.
    pub size: u64,
    /// Which secret verified it.
    pub verified_by: String,
    /// By which net it came.
    pub net: Net,
    /// What it means.
    pub outcome: Outcome,
    /// When it arrived.
    pub received_at: Timestamp,
}

/// Stands for the secret where a delivery was read back from GitHub's log: nobody's signature covers these bytes.
pub const READ_BACK: &str = "(read back)";

impl Delivery {
    /// Whether it says something else than `kept`, under the same identity. What was read back is in other bytes in any case,
    /// and proves nothing.
    #[must_use]
    pub fn conflicts_with(&self, kept: &Self) -> bool {
        let is_exact = |delivery: &Self| delivery.verified_by != READ_BACK;
        is_exact(self) && is_exact(kept) && self.digest != kept.digest
    }
}

#[cfg(test)]
mod tests;
