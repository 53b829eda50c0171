//! The ingestor: the next due source → is its target well → poll → what that showed → give the source back; until nothing is
//! due or the time is over.

mod writer;

use std::collections::BTreeMap;

use futures_util::future::{BoxFuture, Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use jiff::{SignedDuration, Timestamp};

use crate::ports::{LedgerError, TimeAndChance};
use crate::schedule::{Ended, Held, Returned, Scheduler};
use crate::shed::{Observation, Shedder, TargetStore};
use crate::source::{
    FailedPoll, Found, Poll, PollCounts, PollError, Polled, Readback, Rests, Source, SourceId, Turn, Writer, Written,
};

pub use writer::{Caught, LedgerWriter, WriteCounts, lost_by_webhooks};

/// Sources by their ids.
pub type Sources = BTreeMap<SourceId, Box<dyn Source>>;

/// What is counted of a run. Its numbers only grow.
#[derive(Debug, Default)]
pub struct IngestTally {
    /// Polls that were made.
    pub polls: u64,
    /// Polls that emitted.
    pub emitted: u64,
    /// Polls whose target asked to be left alone.
    pub throttled: u64,
    /// Polls that were not made because their target is shed.
    pub shed: u64,
    /// Polls that failed, in whole or in a part.
    pub failures: u64,
    /// Polls whose source cannot be polled as things are configured.
    pub misconfigured: u64,
    /// Polls whose right was somebody else's when they were over. What they read will be read again.
    pub overtaken: u64,
    /// What the polls counted themselves.
    pub counts: PollCounts,
    /// What failed, for the log, with the source that it was about. At most [`IngestTally::ERRORS_MAX`].
    pub errors: Vec<(SourceId, PollError)>,
    /// What the scheduler could not say. The run ended there.
    pub trouble: Option<LedgerError>,
    /// When targets may be asked again, the latest of them.
    pub backoff_until: Option<Timestamp>,
}

impl IngestTally {
    /// Most errors that are kept.
    pub const ERRORS_MAX: usize = 50;
}

/// What came of a turn; `None` where the target is shed.
type Turned = Option<Result<Poll, Box<FailedPoll>>>;

/// What polls sources.
#[derive(Debug)]
pub struct Ingestor<'a, S, D, T, W: ?Sized> {
    /// Says which source is next.
    pub scheduler: &'a S,
    /// Says which targets are left alone.
    pub shedder: &'a Shedder<D, T>,
    /// Where events go.
    pub writer: &'a W,
    /// Time and chance.
    pub time: &'a T,
    /// Most polls at one time.
    pub concurrency: usize,
    /// Longest time of one poll. Shorter than a claim's lease.
    pub poll_time_max: SignedDuration,
}

impl<S: Scheduler, D: TargetStore, T: TimeAndChance, W: Writer> Ingestor<'_, S, D, T, W> {
    /// Polls what is due of `sources`, until nothing is. Starts no poll after `last_start`, and ends each by `deadline`.
    pub async fn run(&self, sources: &Sources, last_start: Timestamp, deadline: Timestamp) -> IngestTally {
        let mut tally = IngestTally::default();
        self.run_into(sources, last_start, deadline, &mut tally).await;
        tally
    }

    /// As [`Self::run`], counting into `tally`: it is right at every moment, for whoever stops waiting. What was under way then is
    /// due again when its claim has lapsed.
    pub async fn run_into(
        &self,
        sources: &Sources,
        last_start: Timestamp,
        deadline: Timestamp,
        tally: &mut IngestTally,
    ) {
        let rests = Rests::default();
        let mut under_way = FuturesUnordered::new();
        let mut dry = false;
        loop {
            if !dry && under_way.len() < self.concurrency && self.time.now() <= last_start {
                // What is under way goes on while the next one is looked for.
                let mut next = Box::pin(self.scheduler.next(last_start));
                let found = loop {
                    match select(next, under_way.next()).await {
                        Either::Left((found, _)) => break found,
                        Either::Right((Some((held, ended)), looking)) => {
                            next = looking;
                            self.give_back(held, ended, tally).await;
                        }
                        Either::Right((None, looking)) => break looking.await,
                    }
                };
                match found {
                    Ok(Some(held)) => match sources.get(&held.source) {
                        Some(source) => under_way.push(Box::pin(self.poll(source.as_ref(), held, deadline, &rests))),
                        // The scheduler was made for other sources than these: its claim lapses.
                        None => dry = true,
                    },
                    Ok(None) => dry = true,
                    Err(trouble) => {
                        tally.trouble = Some(trouble);
                        dry = true;
                    }
                }
                continue;
            }
            let Some((held, ended)) = under_way.next().await else {
                return;
            };
            // There may be more of the same source.
            dry = dry && !matches!(&ended, Some(Ok(poll)) if poll.more) || tally.trouble.is_some();
            self.give_back(held, ended, tally).await;
        }
    }

    /// Polls one source unless its target is shed.
    async fn poll(&self, source: &dyn Source, held: Held, deadline: Timestamp, rests: &Rests) -> (Held, Turned) {
        let began = self.time.now();
        let longest = began.saturating_add(self.poll_time_max).unwrap_or(Timestamp::MAX);
        let turn = Turn {
            cursor: held.cursor.as_ref(),
            time: self.time,
            end: longest.min(deadline).min(held.until()),
            strikes: held.strikes,
            rests,
            writer: &WriterRef(self.writer),
        };
        let call = async {
            let polled = source.poll(turn).await;
            let took = self.time.now().duration_since(began);
            let observation = observation(&polled, took);
            (polled, observation)
        };
        // Several credentials are targets of one domain: the shedder knows each by its whole key.
        let name = source.target().to_string();
        let polled = self.shedder.guard(&name, source.target(), call).await;
        (held, polled)
    }

    async fn give_back(&self, held: Held, polled: Turned, tally: &mut IngestTally) {
        let source = held.source.clone();
        let ended = match &polled {
            None => Ended::Shed,
            Some(polled) => Ended::Polled(polled),
        };
        let now = self.time.now();
        let returned = self.scheduler.give_back(held, ended).await;
        if let Ok(Returned::Lost(_)) = returned {
            tally.overtaken = tally.overtaken.saturating_add(1);
        }
        tally.add(source.clone(), polled, now);
        if let Err(unreturned) = returned {
            // Its own alone: it is due again when its claim has lapsed, and what it read is read again.
            let unkept = PollError::Unkept {
                source_id: source.clone(),
                source: unreturned,
            };
            tally.fail(source, unkept);
        }
    }
}

/// The writer behind a pointer of a known size: a turn takes any.
struct WriterRef<'a, W: ?Sized>(&'a W);

impl<W: Writer + ?Sized> Writer for WriterRef<'_, W> {
    fn write(&self, found: Found) -> BoxFuture<'_, Result<Written, LedgerError>> {
        self.0.write(found)
    }

    fn write_delivery(&self, readback: Readback) -> BoxFuture<'_, Result<Written, LedgerError>> {
        self.0.write_delivery(readback)
    }
}

/// What a poll shows of its target. That it is busy, or not for us, or that our own ledger failed says nothing of its health.
fn observation(polled: &Result<Poll, Box<FailedPoll>>, took: SignedDuration) -> Option<Observation> {
    match polled {
        Ok(
            Poll {
                polled: Polled::Throttled(_),
                ..
            }
            | Poll { has_called: false, .. },
        ) => None,
        Ok(poll) => Some(Observation::Success(poll.latency.unwrap_or(took))),
        Err(failed) => match failed.error {
            PollError::Unanswered { .. } => Some(Observation::Error),
            PollError::Misconfigured { .. } | PollError::Unkept { .. } => None,
        },
    }
}

impl IngestTally {
    fn add(&mut self, source: SourceId, polled: Turned, now: Timestamp) {
        let one = |count: &mut u64| *count = count.saturating_add(1);
        let Some(polled) = polled else {
            one(&mut self.shed);
            return;
        };
        one(&mut self.polls);
        let rests = match polled {
            Ok(poll) => {
                self.counts.add(&poll.counts);
                match poll.polled {
                    Polled::Emitted(_) => one(&mut self.emitted),
                    Polled::Throttled(_) => one(&mut self.throttled),
                    Polled::Empty => {}
                }
                if let Some(word) = poll.trouble {
                    let source_id = source.clone();
                    self.fail(source, PollError::Unanswered { source_id, word });
                }
                poll.rests()
            }
            Err(failed) => {
                self.counts.add(&failed.counts);
                self.fail(source, failed.error);
                failed.rest
            }
        };
        let until = rests.and_then(|span| now.saturating_add(span).ok());
        self.backoff_until = self.backoff_until.max(until);
    }

    fn fail(&mut self, source: SourceId, error: PollError) {
        let count = match &error {
            PollError::Misconfigured { .. } => &mut self.misconfigured,
            PollError::Unanswered { .. } | PollError::Unkept { .. } => &mut self.failures,
        };
        *count = count.saturating_add(1);
        if self.errors.len() < Self::ERRORS_MAX {
            self.errors.push((source, error));
        }
    }
}

#[cfg(test)]
mod tests;
