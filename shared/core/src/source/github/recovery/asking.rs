//! Asking for what is missing, and what becomes of it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::answer::{Detail, Stop};
use super::hooks::Hooks;
use super::{Becomes, Missing, MissingStore, Recovery, Remedy, Word};
use crate::api::{Api, Method, Request};
use crate::delivery::{DeliveryKey, EventName, HookId};
use crate::ports::ErrorKind;
use crate::source::github::{Asked, Round};
use crate::source::{PollError, Readback};

/// What is about to be forgotten is not asked for any more.
const RETENTION_MARGIN: SignedDuration = SignedDuration::from_secs(60);
/// A delivery is there, and may not be asked for.
const MAY_NOT_REDELIVER: &str = "may_not_redeliver";
/// How much longer each wait for a delivery that was asked for is than the one before. From a minute on, six of them reach
/// over two days: an outage of our own must not use up all that GitHub may be asked.
const PATIENCE_GROWTH: i32 = 6;
/// The longest of them.
const PATIENCE_MAX: SignedDuration = SignedDuration::from_hours(24);
/// So many of a hook's are asked for where none of them is had. What is wrong is wrong with all of them then, as far as anybody can tell: a
/// broken credential must not cost a turn's requests each turn.
const REFUSALS_MAX: usize = 3;
/// How long those are left alone then. Others have their turn meanwhile, and once that is mended none waits longer.
const PUT_OFF: SignedDuration = SignedDuration::from_mins(15);

/// What came of asking for a missing delivery.
enum Got {
    /// GitHub did it, or would not do just this: it answers us, and lets us ask.
    Answer,
    /// It is gone, or is somebody else's to ask for, which says nothing of what we may ask for.
    Nothing,
}

/// Whether GitHub answers us in this turn, and lets us ask for what a hook missed. Each hook for itself: one's log may be closed to
/// a credential that another's is not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    Had,
    NotHad,
}

/// A missing delivery that was asked for in vain.
struct Failed<'m> {
    missing: &'m Missing,
    /// What is known of it since: that it was about to be asked for may have been noted.
    noted: Missing,
    /// Why.
    error: PollError,
}

/// What came of asking for what is due.
#[derive(Default)]
struct Asking<'m> {
    /// The hooks of which any was had.
    had: BTreeSet<&'m HookId>,
    /// What was not had. Each may have failed alone.
    failed: Vec<Failed<'m>>,
    /// What was not asked for, since so many of its hook's were not had.
    skipped: Vec<&'m Missing>,
    /// Why no more is asked for.
    over: Option<Stop>,
}

impl<'m> Asking<'m> {
    /// Whether this one is asked for after those before it.
    fn goes_on(&self, missing: &Missing) -> bool {
        let hook = &missing.key.hook;
        let failed = self.failed.iter().filter(|failed| failed.missing.key.hook == *hook);
        self.others(missing) == Others::Had || failed.count() < REFUSALS_MAX
    }

    fn others(&self, missing: &Missing) -> Others {
        if self.had.contains(&missing.key.hook) {
            Others::Had
        } else {
            Others::NotHad
        }
    }

    /// Takes in what came of asking for `missing`, of which this is known since.
    fn take(&mut self, missing: &'m Missing, noted: Missing, got: Result<Got, Stop>) -> Result<(), Stop> {
        match got {
            Ok(Got::Answer) => {
                self.had.insert(&missing.key.hook);
            }
            Ok(Got::Nothing) => {}
            Err(Stop::Failed(error @ (PollError::Unanswered { .. } | PollError::Misconfigured { .. }))) => {
                self.failed.push(Failed { missing, noted, error });
            }
            Err(Stop::Failed(error @ PollError::Unkept { .. })) => return Err(Stop::Failed(error)),
            Err(over @ Stop::Over(_)) => self.over = Some(over),
        }
        Ok(())
    }
}

impl<A: Api, M: MissingStore> Recovery<A, M> {
    /// Asks for what is missing, oldest first, as far as the budgets go. Says whether they may have been too small, and in `trouble`
    /// why what one hook missed could not be had while what others did could.
    pub(super) async fn work_off(
        &self,
        round: &mut Round<'_, A>,
        hooks: &Hooks,
        trouble: &mut Option<&'static str>,
    ) -> Result<bool, Stop> {
        let now = round.now();
        let due = self.store.due_missing(&self.id, now, self.config.requests_max).await;
        let due = due.map_err(|error| self.unkept(error))?;
        if due.is_empty() {
            return Ok(false);
        }
        let keys: Vec<DeliveryKey> = due.iter().map(|missing| missing.key.clone()).collect();
        let kept = self.store.kept(&keys).await.map_err(|error| self.unkept(error))?;
        let mut asking = Asking::default();
        for missing in &due {
            if kept.contains(&missing.key) {
                self.here(round, missing).await?;
                continue;
            }
            let log = match self.log_of(missing, hooks, now) {
                Ok(log) => log,
                Err(becomes) => {
                    self.settle(round, missing, becomes).await?;
                    continue;
                }
            };
            if !asking.goes_on(missing) {
                asking.skipped.push(missing);
                continue;
            }
            let mut noted = missing.clone();
            let got = match self.config.remedy {
                Remedy::Redeliver => self.redeliver(round, missing, &mut noted, log).await,
                Remedy::Fetch => self.fetch(round, missing, log).await,
            };
            asking.take(missing, noted, got)?;
            if asking.over.is_some() {
                break;
            }
        }
        for failed in &asking.failed {
            self.settle_failed(round, failed, asking.others(failed.missing)).await?;
        }
        for missing in &asking.skipped {
            if asking.others(missing) == Others::NotHad {
                // It makes room as well, or what is refused of one hook is all that is ever looked at.
                let (due_at, asked) = (put_off(round.now()), missing.asked);
                self.settle(round, missing, Becomes::PutOff { due_at, asked }).await?;
            }
        }
        let Asking { had, failed, over, .. } = asking;
        let mut failed = failed.into_iter();
        match (over, failed.find(|failed| !had.contains(&failed.missing.key.hook))) {
            (Some(over), _) => return Err(over),
            (None, Some(failed)) if had.is_empty() => return Err(Stop::Failed(failed.error)),
            // A source that fails is polled ever more rarely, and other hooks' have their turn.
            (None, Some(failed)) => *trouble = trouble.or(Some(failed.error.word())),
            (None, None) => {}
        }
        Ok(due.len() >= self.config.requests_max)
    }

    /// Remembers of a missing delivery that it was asked for in vain.
    async fn settle_failed(&self, round: &mut Round<'_, A>, failed: &Failed<'_>, others: Others) -> Result<(), Stop> {
        let (missing, noted) = (failed.missing, &failed.noted);
        match others {
            // It is this one that fails: it was asked for, and not for ever.
            Others::Had if noted != missing => Ok(()),
            Others::Had => self.settle(round, noted, self.asked_now(round, noted)).await.map(drop),
            // It makes room for those behind it, or the oldest that cannot be had would keep all others waiting.
            Others::NotHad => {
                let is_unanswered = matches!(failed.error, PollError::Unanswered { .. });
                let may_be_heard = is_unanswered && self.config.remedy == Remedy::Redeliver;
                let becomes = Becomes::PutOff {
                    due_at: put_off(round.now()),
                    // GitHub may have heard what it did not answer, and it may come for that reason. However often that happens, it
                    // counts as one attempt and no more: an outage of GitHub's uses up none of the others.
                    asked: missing.asked.max(u32::from(may_be_heard)),
                };
                self.settle(round, noted, becomes).await.map(drop)
            }
        }
    }

    /// The log that a missing delivery can be got from, or what becomes of it without being asked for.
    fn log_of<'l>(&self, missing: &Missing, hooks: &'l Hooks, now: Timestamp) -> Result<&'l str, Becomes> {
        let kept_for = self.config.retention.saturating_sub(RETENTION_MARGIN);
        let forgotten_at = missing.delivered_at.saturating_add(kept_for);
        if forgotten_at.is_ok_and(|forgotten_at| now >= forgotten_at) {
            return Err(Becomes::Lost("expired"));
        }
        let hook = missing.key.hook.as_str();
        let Some(log) = hooks.logs.get(hook) else {
            return Err(if hooks.others.contains(hook) || !hooks.is_whole {
                // It was ours, and it may be the address that we know it by which is wrong, or one odd answer. What is called lost is
                // not looked at again, and it expires soon enough.
                Becomes::PutOff {
                    due_at: put_off(now),
                    asked: missing.asked,
                }
            } else {
                Becomes::Lost("no_hook")
            });
        };
        if missing.too_large && self.config.remedy == Remedy::Redeliver {
            return Err(Becomes::Lost("too_large"));
        }
        if missing.asked >= self.config.attempts_max {
            return Err(Becomes::Lost("asked_too_often"));
        }
        Ok(log)
    }

    fn asked_now(&self, round: &Round<'_, A>, missing: &Missing) -> Becomes {
        let due_at = round.now().saturating_add(self.patience(missing.asked));
        Becomes::Asked(due_at.unwrap_or(Timestamp::MAX))
    }

    /// A missing delivery is here. Where it was asked for, that is why, as far as anybody can tell: GitHub brings none again by
    /// itself, and what it held back and brought just then, minutes late, counts as recovery's too. The other way round, what was
    /// asked for in vain would count as brought, and hide that webhooks lose.
    async fn here(&self, round: &mut Round<'_, A>, missing: &Missing) -> Result<(), Stop> {
        let was_asked = missing.asked > 0;
        let alone = if was_asked {
            let attributed = self.store.attribute(&missing.key).await;
            attributed.map_err(|error| self.unkept(error))?
        } else {
            false
        };
        // Only behind the write that settles it: who comes to it again, or somebody else, counts it then.
        if self.settle(round, missing, Becomes::Here).await? == Word::Ours {
            round.counts.attributed = round.counts.attributed.saturating_add(alone.into());
            round.counts.recovered = round.counts.recovered.saturating_add(was_asked.into());
        }
        Ok(())
    }

    /// How long a delivery that was asked for `asked` times before may take now until it is asked for again.
    fn patience(&self, asked: u32) -> SignedDuration {
        let growth = PATIENCE_GROWTH.saturating_pow(asked);
        self.config.patience.saturating_mul(growth).min(PATIENCE_MAX)
    }

    /// Asks GitHub to deliver it again. `noted` is what is known of it from then on.
    async fn redeliver(
        &self,
        round: &mut Round<'_, A>,
        missing: &Missing,
        noted: &mut Missing,
        log: &str,
    ) -> Result<Got, Stop> {
        let url = format!("{log}/{}/attempts", missing.attempt_id);
        let post = Request {
            method: Method::Post,
            ..Request::get(&url, &self.credential)
        };
        if !round.may_ask() {
            return Err(Stop::Over(None));
        }
        // First: who dies between the request and a note behind it leaves a delivery that recovery has asked for and that counts as
        // a webhook's. Who dies between this note and the request has used up an attempt, and no more.
        let becomes = self.asked_now(round, missing);
        if self.settle(round, missing, becomes).await? == Word::Theirs {
            // Our lease has lapsed, and another poller has asked for it, or settled it.
            return Ok(Got::Nothing);
        }
        *noted = missing.noted(becomes).unwrap_or_else(|| missing.clone());
        let got = match round.ask(post).await {
            Asked::Fine(_) => {
                round.counts.redeliveries = round.counts.redeliveries.saturating_add(1);
                return Ok(Got::Answer);
            }
            other @ (Asked::NotModified(_)
            | Asked::Ended
            | Asked::OutOfTime
            | Asked::Throttled(_)
            | Asked::Misconfigured(_)
            | Asked::Unanswered(_)) => self.refused(round, noted, log, other).await,
        };
        if let Err(Stop::Over(_)) = got {
            // GitHub did nothing, or was not asked: that was no attempt, and it is due as before.
            let (due_at, asked) = (missing.due_at, missing.asked);
            self.settle(round, noted, Becomes::PutOff { due_at, asked }).await?;
        }
        got
    }

    async fn fetch(&self, round: &mut Round<'_, A>, missing: &Missing, log: &str) -> Result<Got, Stop> {
        let body = match round.get(&format!("{log}/{}", missing.attempt_id)).await {
            Asked::Fine(answer) => answer.body,
            Asked::Ended => {
                self.settle(round, missing, self.asked_now(round, missing)).await?;
                return Ok(Got::Answer);
            }
            other @ (Asked::NotModified(_)
            | Asked::OutOfTime
            | Asked::Throttled(_)
            | Asked::Misconfigured(_)
            | Asked::Unanswered(_)) => return self.refused(round, missing, log, other).await,
        };
        // What cannot be read says nothing of the payload: only a detail without one does.
        let detail: Detail = self.shape(&body)?;
        let readback =
            detail
                .request
                .payload
                .zip(EventName::parse(&missing.event_name))
                .map(|(payload, event_name)| Readback {
                    host: self.config.host.clone(),
                    key: missing.key.clone(),
                    event_name,
                    payload: payload.get().as_bytes().to_vec(),
                });
        let becomes = match readback {
            None => Becomes::Lost("no_payload"),
            Some(readback) => match round.turn.writer.write_delivery(readback).await {
                Ok(_) => Becomes::Here,
                Err(error) if matches!(error.kind(), ErrorKind::Reject | ErrorKind::Bug) => {
                    Becomes::Lost(error.class.as_str())
                }
                Err(error) => return Err(self.unkept(error)),
            },
        };
        let settled = self.settle(round, missing, becomes).await;
        // Also where that could not be remembered: the next time it is simply here, and nobody has asked for it.
        let is_ours = !matches!(settled, Ok(Word::Theirs));
        if is_ours && becomes == Becomes::Here {
            round.counts.recovered = round.counts.recovered.saturating_add(1);
        }
        settled.map(|_| Got::Answer)
    }

    /// What follows for a missing delivery from a request that did not get it.
    async fn refused(&self, round: &mut Round<'_, A>, missing: &Missing, log: &str, asked: Asked) -> Result<Got, Stop> {
        match asked {
            // GitHub will not do it now. It is asked again some time, as it is noted, and no more often than anything else.
            Asked::Ended => Ok(Got::Answer),
            // GitHub answers like this for what is gone, and for what one may not do.
            Asked::Misconfigured("not_found") => match round.get(&format!("{log}/{}", missing.attempt_id)).await {
                Asked::Misconfigured("not_found") | Asked::Ended => {
                    self.settle(round, missing, Becomes::Lost("gone")).await?;
                    Ok(Got::Nothing)
                }
                Asked::Fine(_) => Err(self.misconfigured(MAY_NOT_REDELIVER)),
                other @ (Asked::NotModified(_)
                | Asked::OutOfTime
                | Asked::Throttled(_)
                | Asked::Misconfigured(_)
                | Asked::Unanswered(_)) => self.fine(other).map(|_| Got::Answer),
            },
            Asked::Unanswered("too_large") => {
                self.settle(round, missing, Becomes::Lost("too_large")).await?;
                Ok(Got::Answer)
            }
            other @ (Asked::Fine(_)
            | Asked::NotModified(_)
            | Asked::OutOfTime
            | Asked::Throttled(_)
            | Asked::Misconfigured(_)
            | Asked::Unanswered(_)) => self.fine(other).map(|_| Got::Answer),
        }
    }

    /// Remembers what has become of what was known as `missing`, and counts it where that was not known before.
    async fn settle(&self, round: &mut Round<'_, A>, missing: &Missing, becomes: Becomes) -> Result<Word, Stop> {
        let settled = self.store.settle_missing(&self.id, missing, becomes, round.now()).await;
        let word = settled.map_err(|error| self.unkept(error))?;
        if let (Becomes::Lost(_), Word::Ours) = (becomes, word) {
            round.counts.lost = round.counts.lost.saturating_add(1);
        }
        Ok(word)
    }
}

/// When what is put off is due again.
fn put_off(now: Timestamp) -> Timestamp {
    now.saturating_add(PUT_OFF).unwrap_or(Timestamp::MAX)
}
