//! GitHub's answers: what is read of them, and how a poll ends where there is nothing to be read.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny};
use serde_json::value::RawValue;

use super::{MissingStore, Recovery};
use crate::api::Api;
use crate::ports::LedgerError;
use crate::source::github::{Asked, refused};
use crate::source::{PollError, Polled};

/// Why a poll stops in the middle. What it has done stays done.
pub(super) enum Stop {
    /// No more requests: for so long, or in this turn.
    Over(Option<SignedDuration>),
    Failed(PollError),
}

/// Reads what need not be known. Where it cannot be read it is as if it were not there, and costs nothing beside it.
pub(super) fn lenient<'de, D: Deserializer<'de>, T: Default + DeserializeOwned>(from: D) -> Result<T, D::Error> {
    let raw = Box::<RawValue>::deserialize(from)?;
    Ok(serde_json::from_str(raw.get()).unwrap_or_default())
}

/// An entry of a log. Whoever it is and when it was made must be known of it, and no more: one that is passed over is never got.
#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    pub(super) id: u64,
    pub(super) guid: String,
    pub(super) delivered_at: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) status_code: Option<u16>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) event: Option<String>,
    /// Whatever it says: it was held back.
    #[serde(default)]
    pub(super) throttled_at: Option<IgnoredAny>,
}

/// One entry in full.
#[derive(Deserialize)]
pub(super) struct Detail {
    pub(super) request: DetailRequest,
}

#[derive(Deserialize)]
pub(super) struct DetailRequest {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) headers: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    pub(super) payload: Option<Box<RawValue>>,
}

impl<A: Api, M: MissingStore> Recovery<A, M> {
    /// Body and next page of an answer, or why the poll ends.
    pub(super) fn fine(&self, asked: Asked) -> Result<(Vec<u8>, Option<String>), Stop> {
        match refused(&self.id, &asked) {
            Some(Ok(Polled::Throttled(span))) => return Err(Stop::Over(Some(span))),
            Some(Ok(Polled::Empty | Polled::Emitted(_))) => return Err(Stop::Over(None)),
            Some(Err(error)) => return Err(Stop::Failed(error)),
            None => {}
        }
        match asked {
            Asked::Fine(answer) => Ok((answer.body, answer.next)),
            Asked::NotModified(_)
            | Asked::Ended
            | Asked::OutOfTime
            | Asked::Throttled(_)
            | Asked::Misconfigured(_)
            | Asked::Unanswered(_) => Err(Stop::Over(None)),
        }
    }

    pub(super) fn shape<'b, T: Deserialize<'b>>(&self, body: &'b [u8]) -> Result<T, Stop> {
        serde_json::from_slice(body).map_err(|_shape| {
            Stop::Failed(PollError::Unanswered {
                source_id: self.id.clone(),
                word: "shape",
            })
        })
    }

    pub(super) fn misconfigured(&self, word: &'static str) -> Stop {
        Stop::Failed(PollError::Misconfigured {
            source_id: self.id.clone(),
            word,
        })
    }

    pub(super) fn unkept(&self, source: LedgerError) -> Stop {
        Stop::Failed(PollError::Unkept {
            source_id: self.id.clone(),
            source,
        })
    }
}
