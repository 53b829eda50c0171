//! Recovery: the deliveries that GitHub made and the ledger never got, found in GitHub's log and got.
//!
//! GitHub delivers once and never again by itself
//! (<https://docs.github.com/en/webhooks/using-webhooks/handling-failed-webhook-deliveries>). It keeps a log of what it
//! delivered for three days. The log is read from its newest entry back to where it has been read before, in passes that may take
//! several polls; what of it the ledger lacks becomes a row of its own, so that the pass can end, and is worked off oldest
//! first, since the oldest is forgotten first. Whether a delivery arrived is for the ledger to say, not for GitHub's status.

mod answer;
mod asking;
mod config;
mod hooks;
mod missing;
mod reading;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::SignedDuration;

use super::Round;
use crate::api::{Api, Credential};
use crate::source::{Cursor, FailedPoll, Placement, Poll, PollError, Polled, Source, SourceId, Turn};
use crate::target::TargetKey;

use answer::Stop;
use config::LOGS;
use reading::Remembered;

pub use config::{HookLog, RecoveryConfig, Remedy};
pub use missing::{Becomes, Lost, Missing, MissingStore, Word};

/// Entries of a page.
const PAGE_ITEMS: usize = 100;
/// The least time between two polls of a log in which there is more to be found or to be got.
const BUSY_INTERVAL: SignedDuration = SignedDuration::from_secs(60);

/// The delivery logs of one owner of hooks.
#[derive(Debug)]
pub struct Recovery<A, M> {
    api: Arc<A>,
    store: M,
    id: SourceId,
    log: HookLog,
    credential: Credential,
    config: Arc<RecoveryConfig>,
}

impl<A: Api, M: MissingStore> Recovery<A, M> {
    /// The logs of `log`, read with `credential`, judged by the ledger behind `store`.
    #[must_use]
    pub fn new(api: Arc<A>, store: M, log: HookLog, credential: Credential, config: Arc<RecoveryConfig>) -> Self {
        let host = config.host.as_deref().unwrap_or("github.com");
        let whose = match &log {
            HookLog::Repository(repository) => format!("repository/{}", repository.key()),
            HookLog::Organization(name) => format!("organization/{}", name.to_lowercase()),
            HookLog::App => "app".to_owned(),
        };
        Self {
            api,
            store,
            id: SourceId::new(&format!("{host}/{LOGS}/{whose}")),
            log,
            credential,
            config,
        }
    }

    async fn poll_once(&self, turn: Turn<'_>) -> Result<Poll, Box<FailedPoll>> {
        let before = turn.cursor.map(Cursor::as_str).unwrap_or_default();
        let mut memory: Remembered = serde_json::from_str(before).unwrap_or_default();
        let mut round = Round::new(&*self.api, &self.credential, self.config.limits, turn);
        let mut trouble = None;
        let worked = self.work(&mut round, &mut memory, &mut trouble).await;
        let after = serde_json::to_string(&memory).ok().filter(|after| after != before);
        let cursor = after.and_then(Cursor::new);
        let (polled, has_more) = match worked {
            Ok(has_more) => (None, has_more),
            Err(Stop::Over(None)) => (None, true),
            Err(Stop::Over(Some(span))) => (Some(Polled::Throttled(span)), true),
            Err(Stop::Failed(error)) => return Err(round.failed(error, cursor)),
        };
        let counts = round.counts;
        let emitted = counts.recovered.saturating_add(counts.redeliveries);
        let polled = polled.unwrap_or_else(|| match usize::try_from(emitted) {
            Ok(0) | Err(_) => Polled::Empty,
            Ok(emitted) => Polled::Emitted(emitted),
        });
        Ok(Poll {
            cursor,
            // GitHub forgets: as long as there is more to be found or got, that is gone on with as soon as may be.
            interval: Some(if has_more {
                self.interval()
            } else {
                self.config.interval
            }),
            trouble,
            ..round.poll(polled)
        })
    }

    /// Finds what is missing and gets it. Says whether there is more of either, and in `trouble` why not all of it could be done
    /// although some was.
    async fn work(
        &self,
        round: &mut Round<'_, A>,
        memory: &mut Remembered,
        trouble: &mut Option<&'static str>,
    ) -> Result<bool, Stop> {
        let hooks = self.hooks(round, memory).await?;
        if hooks.logs.is_empty() && self.log != HookLog::App {
            // An App that was never told of anything has missed nothing. Anybody else has no hook for us to read of, and what is known
            // to be missing comes to its end all the same.
            self.work_off(round, &hooks, trouble).await?;
            return Err(self.misconfigured("no_hook_of_ours"));
        }
        let read = self.read_logs(round, memory, &hooks.logs).await?;
        let worked = self.work_off(round, &hooks, trouble).await;
        let got = round.counts.redeliveries.saturating_add(round.counts.recovered);
        match read.failed {
            None => {}
            Some(error @ PollError::Unkept { .. }) => return Err(Stop::Failed(error)),
            // A source that fails is polled ever more rarely: one log that can never be read would keep what others show from being got
            // until GitHub has forgotten it.
            Some(error) if read.is_any_read || got > 0 => *trouble = Some(error.word()),
            Some(error) => return Err(Stop::Failed(error)),
        }
        worked.map(|has_more| has_more || memory.is_reading())
    }
}

impl<A: Api, M: MissingStore> Source for Recovery<A, M> {
    fn id(&self) -> &SourceId {
        &self.id
    }

    fn scheme(&self) -> &'static str {
        "github_deliveries"
    }

    fn placement(&self) -> Placement {
        Placement::Scheduled
    }

    fn target(&self) -> &TargetKey {
        &self.credential.target
    }

    fn interval(&self) -> SignedDuration {
        self.config.interval.min(BUSY_INTERVAL)
    }

    fn poll<'a>(&'a self, turn: Turn<'a>) -> BoxFuture<'a, Result<Poll, Box<FailedPoll>>> {
        Box::pin(self.poll_once(turn))
    }
}
