//! Deliveries that are missing, and their rows.

use std::collections::BTreeSet;
use std::future::Future;

use jiff::Timestamp;

use crate::delivery::DeliveryKey;
use crate::ports::LedgerError;
use crate::source::SourceId;

/// A delivery that GitHub made and the ledger lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its identity.
    pub key: DeliveryKey,
    /// Number of its newest attempt, in GitHub's log.
    pub attempt_id: u64,
    /// Name of the webhook event.
    pub event_name: String,
    /// When GitHub made it.
    pub delivered_at: Timestamp,
    /// We have called it too large.
    pub too_large: bool,
    /// How often it has been asked for.
    pub asked: u32,
    /// When it is to be looked at again. Until somebody has asked for it that is when it was made: oldest first.
    pub due_at: Timestamp,
}

impl Missing {
    /// What is known of it when it has become this. `None` where it is not missing any more.
    #[must_use]
    pub fn noted(&self, becomes: Becomes) -> Option<Self> {
        let (asked, due_at) = match becomes {
            Becomes::Asked(due_at) => (self.asked.saturating_add(1), due_at),
            Becomes::PutOff { due_at, asked } => (asked, due_at),
            Becomes::Here | Becomes::Lost(_) => return None,
        };
        Some(Self {
            asked,
            due_at,
            ..self.clone()
        })
    }
}

/// What becomes of a missing delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Becomes {
    /// It was asked for, and is due again then.
    Asked(Timestamp),
    /// Asking for it came to nothing, and not by its own fault. However long a credential is broken, that uses up no attempts.
    PutOff {
        /// When it is due again.
        due_at: Timestamp,
        /// How often it counts as asked for.
        asked: u32,
    },
    /// It is here.
    Here,
    /// Nobody will ever get it, for this reason.
    Lost(&'static str),
}

/// Whether somebody else had a word about a missing delivery first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// It has become what was said, by this very word.
    Ours,
    /// It stands as somebody else has left it.
    Theirs,
}

/// A missing delivery that nobody will get any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its identity.
    pub key: DeliveryKey,
    /// Name of the webhook event.
    pub event_name: String,
    /// When GitHub made it.
    pub delivered_at: Timestamp,
    /// How often it has been asked for.
    pub asked: u32,
    /// Why, in one word.
    pub reason: String,
    /// Since when that is known.
    pub since: Timestamp,
}

/// The rows of missing deliveries, each log's apart from the others'.
///
/// # Errors
/// All methods give [`LedgerError`] where no answer could be had.
pub trait MissingStore: Send + Sync {
    /// Which of these deliveries are in the ledger, read consistently.
    fn kept(&self, keys: &[DeliveryKey]) -> impl Future<Output = Result<BTreeSet<DeliveryKey>, LedgerError>> + Send;

    /// Notes what `log` shows and the ledger lacks, each once in all time. Gives how many are new.
    fn note_missing(
        &self,
        log: &SourceId,
        missing: &[Missing],
    ) -> impl Future<Output = Result<u64, LedgerError>> + Send;

    /// What is to be looked at, oldest first, at most `limit`. May lag behind the last writes.
    fn due_missing(
        &self,
        log: &SourceId,
        until: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Missing>, LedgerError>> + Send;

    /// Remembers what has become of a missing delivery. One that is settled stays so; and what is noted of one that is not is noted
    /// only where nobody else has noted anything since it was read as `missing` says: a poller that was frozen takes nothing back.
    fn settle_missing(
        &self,
        log: &SourceId,
        missing: &Missing,
        becomes: Becomes,
        now: Timestamp,
    ) -> impl Future<Output = Result<Word, LedgerError>> + Send;

    /// What of all logs is known to be lost since then, the newest first, at most `limit`. It is remembered for ten days. May lag
    /// behind the last writes.
    fn lost(&self, since: Timestamp, limit: usize) -> impl Future<Output = Result<Vec<Lost>, LedgerError>> + Send;

    /// Says of a delivery that came because it was asked for, and of its event, that recovery has seen it, and not a webhook.
    /// `true` where that is what tells that webhooks had lost the event: no webhook has told of it, as far as is known then, and it
    /// does not count by another hook's delivery already. A poll that died behind this and asks again is told the same, save of an
    /// event that a feed saw first: that is not counted then.
    fn attribute(&self, key: &DeliveryKey) -> impl Future<Output = Result<bool, LedgerError>> + Send;
}
