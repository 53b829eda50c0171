//! What a feed lists is offered to the writer: oldest first, and each item alone.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::value::RawValue;

use super::memory::{Leaving, Remembered, Want};
use super::{Feed, FeedKind, Listed, Listing, PAGE_ITEMS};
use crate::api::Api;
use crate::github::feed::{Attempt, Closed, ItemMeaning, NotAPage, closed_near, event_item, run_item, told_of};
use crate::ports::ErrorKind;
use crate::source::github::{Asked, Round};
use crate::source::{Found, PollCounts, PollError, Written};

/// Most earlier attempts of one run that are asked for. The list shows the last one only.
const EARLIER_ATTEMPTS_MAX: u64 = 10;
/// Most pages of an issue's history that are read for a time of closing, besides the first one.
const HISTORY_PAGES_MAX: usize = 5;
/// Most requests for single items that may fail in one poll: where all of them fail, they are not to use up the hour's budget.
const FAILED_MAX: usize = 10;

/// What came of offering.
#[derive(Default)]
pub(super) struct Offered {
    /// Events that are durable now.
    pub(super) written: usize,
    /// Marks of what needs no second look.
    pub(super) handled: BTreeSet<String>,
    /// Everything was offered, or is noted as left.
    pub(super) all: bool,
    pub(super) throttled: Option<SignedDuration>,
    /// Why something was left, or given up, in a word.
    pub(super) trouble: Option<&'static str>,
    /// Requests for single items that had no answer.
    failed: usize,
}

impl Offered {
    /// Notes why an item was not told of. Says whether it is given up.
    fn left(&mut self, leaving: Leaving, want: Want, counts: &mut PollCounts) -> bool {
        match want {
            Want::Turn(span) => self.throttled = self.throttled.or(span),
            Want::Answer(word) | Want::Refused(word) => {
                self.failed = self.failed.saturating_add(1);
                self.trouble = self.trouble.or(Some(word));
            }
            Want::Nothing(word) => self.trouble = self.trouble.or(Some(word)),
        }
        match leaving {
            Leaving::Noted => {}
            Leaving::Unnoted => self.all = false,
            Leaving::GivenUp => counts.gaps = counts.gaps.saturating_add(1),
        }
        leaving == Leaving::GivenUp
    }

    fn may_ask(&self) -> Result<(), Want> {
        if self.failed < FAILED_MAX {
            Ok(())
        } else {
            Err(Want::Turn(None))
        }
    }
}

impl Want {
    /// What an answer that is none leaves to want.
    fn of(asked: &Asked) -> Self {
        match asked {
            Asked::Throttled(span) => Self::Turn(Some(*span)),
            Asked::OutOfTime => Self::Turn(None),
            Asked::Unanswered(word) => Self::Answer(word),
            Asked::Misconfigured(word @ ("forbidden" | "not_found")) => Self::Refused(word),
            // That of the credential, and not of this item.
            Asked::Misconfigured(word) => Self::Answer(word),
            Asked::Ended => Self::Nothing("refused"),
            Asked::Fine(_) | Asked::NotModified(_) => Self::Answer("shape"),
        }
    }
}

impl<A: Api> Feed<A> {
    /// Offers what is new to the writer, oldest first. An item that needs a request of its own and has no answer to it is left
    /// for a later poll, and those behind it are not: events say when they happened, so that nobody needs them in order.
    pub(super) async fn offer(
        &self,
        round: &mut Round<'_, A>,
        listing: &Listing,
        memory: &mut Remembered,
        seen: &BTreeSet<String>,
    ) -> Result<Offered, PollError> {
        let mut offered = Offered {
            all: true,
            ..Offered::default()
        };
        let mut met = BTreeSet::new();
        for listed in listing.items.iter().rev() {
            let mark = &listed.item.mark;
            let is_met = !met.insert(mark);
            let is_known = seen.contains(mark) || offered.handled.contains(mark);
            if is_met || is_known && !memory.has_left(self.kind, mark) {
                continue;
            }
            if round.now() >= round.turn.end {
                offered.all = false;
                break;
            }
            let mut is_done = true;
            if !is_known && listed.item.is_before(memory.since) {
                round.counts.skipped = round.counts.skipped.saturating_add(1);
            } else if let ItemMeaning::Closed(closed) = &listed.item.meaning {
                is_done = self.offer_closed(round, listed, closed, memory, &mut offered).await?;
            } else {
                if self.kind == FeedKind::Runs {
                    is_done = self
                        .offer_earlier(round, &listed.raw, memory, seen, &mut offered)
                        .await?;
                }
                if is_done && !is_known {
                    self.write(round, listed.item.meaning.clone(), &mut offered).await?;
                }
            }
            if is_done {
                // It may have been left, and be told of by now in another way.
                memory.left.remove(mark);
                offered.handled.insert(mark.clone());
            }
        }
        Ok(offered)
    }

    /// Offers the attempts of a run before the one that the list shows. Says whether what was left of them is noted.
    async fn offer_earlier(
        &self,
        round: &mut Round<'_, A>,
        raw: &RawValue,
        memory: &mut Remembered,
        seen: &BTreeSet<String>,
        offered: &mut Offered,
    ) -> Result<bool, PollError> {
        let Some(last) = Attempt::of(raw) else { return Ok(true) };
        let oldest = last.attempt.saturating_sub(EARLIER_ATTEMPTS_MAX).max(1);
        let forgotten = memory.forget_before(Attempt {
            attempt: oldest,
            ..last
        });
        round.counts.gaps = round.counts.gaps.saturating_add(forgotten);
        let mut is_noted = true;
        for attempt in oldest..last.attempt {
            let earlier = Attempt { attempt, ..last };
            let mark = earlier.mark();
            if seen.contains(&mark) || offered.handled.contains(&mark) {
                memory.left.remove(&mark);
                continue;
            }
            if memory.waits(&mark, round.now()) {
                continue;
            }
            match self.attempt(round, earlier, offered).await {
                Ok(raw) => {
                    memory.left.remove(&mark);
                    if let Some(raw) = raw {
                        self.offer_attempt(round, &raw, memory.since, offered).await?;
                    }
                }
                Err(want) => {
                    let leaving = memory.leave(&mark, want, round.now());
                    is_noted &= leaving != Leaving::Unnoted;
                    if !offered.left(leaving, want, &mut round.counts) {
                        continue;
                    }
                }
            }
            offered.handled.insert(mark);
        }
        Ok(is_noted)
    }

    /// An attempt that the list does not show; `None` where it is gone.
    async fn attempt(
        &self,
        round: &mut Round<'_, A>,
        attempt: Attempt,
        offered: &Offered,
    ) -> Result<Option<Box<RawValue>>, Want> {
        offered.may_ask()?;
        let Attempt { run, attempt } = attempt;
        let url = format!("/repos/{}/actions/runs/{run}/attempts/{attempt}", self.repository);
        match round.get(&url).await {
            Asked::Fine(answer) => match serde_json::from_slice(&answer.body) {
                Ok(raw) => Ok(Some(raw)),
                Err(_unread) => Err(Want::Answer("shape")),
            },
            // Gone with its logs: there is nothing to tell of.
            Asked::Misconfigured("not_found") | Asked::Ended => Ok(None),
            other @ (Asked::NotModified(_)
            | Asked::OutOfTime
            | Asked::Throttled(_)
            | Asked::Misconfigured(_)
            | Asked::Unanswered(_)) => Err(Want::of(&other)),
        }
    }

    async fn offer_attempt(
        &self,
        round: &mut Round<'_, A>,
        raw: &RawValue,
        since: i64,
        offered: &mut Offered,
    ) -> Result<(), PollError> {
        let item = run_item(self.config.host.as_deref(), raw);
        if item.is_before(since) {
            round.counts.skipped = round.counts.skipped.saturating_add(1);
            return Ok(());
        }
        self.write(round, item.meaning, offered).await
    }

    /// Offers what was closed, if its history says when. Says whether it needs no second look.
    async fn offer_closed(
        &self,
        round: &mut Round<'_, A>,
        listed: &Listed,
        closed: &Closed,
        memory: &mut Remembered,
        offered: &mut Offered,
    ) -> Result<bool, PollError> {
        let mark = &listed.item.mark;
        if memory.waits(mark, round.now()) {
            return Ok(false);
        }
        match self.closed_at(round, closed, offered).await {
            Ok(at) => {
                memory.left.remove(mark);
                let item = event_item(self.config.host.as_deref(), &listed.raw, Some(at));
                self.write(round, item.meaning, offered).await?;
                Ok(true)
            }
            Err(want) => {
                let leaving = memory.leave(mark, want, round.now());
                Ok(offered.left(leaving, want, &mut round.counts))
            }
        }
    }

    /// When something was closed, by its history: read from its first page, which is all of most of them, and else from its end
    /// backwards, since what a feed tells of is not long past. Nobody's time is taken in its place: it would be another event's.
    async fn closed_at(&self, round: &mut Round<'_, A>, closed: &Closed, offered: &Offered) -> Result<Timestamp, Want> {
        offered.may_ask()?;
        let Closed {
            repository,
            number,
            near,
        } = closed;
        let mut url = format!("/repos/{repository}/issues/{number}/events?per_page={PAGE_ITEMS}");
        // A page of another issue's history tells of another issue's closing.
        let own = format!("/issues/{number}/events");
        let is_own = |url: &String| url.split('?').next().is_some_and(|path| path.ends_with(&own));
        let mut found: Option<Timestamp> = None;
        // The page behind the first: whoever comes back to it has read all.
        let mut second = None;
        for page in 0..=HISTORY_PAGES_MAX {
            let asked = round.get(&url).await;
            let Asked::Fine(answer) = asked else {
                return Err(Want::of(&asked));
            };
            let closing = closed_near(&answer.body, *near).map_err(|NotAPage| Want::Answer("shape"))?;
            found = told_of(*near, found.into_iter().chain(closing.at));
            let next = if page == 0 {
                second = answer.next;
                answer.last
            } else {
                answer
                    .prev
                    .filter(|_| !closing.reaches_back && second.as_ref() != Some(&url))
            };
            match next.filter(is_own) {
                Some(next) => url = next,
                None => return found.ok_or(Want::Answer("unstated")),
            }
        }
        found.ok_or(Want::Nothing("too_long"))
    }

    /// Gives an event to the writer, and counts what is none.
    async fn write(
        &self,
        round: &mut Round<'_, A>,
        meaning: ItemMeaning,
        offered: &mut Offered,
    ) -> Result<(), PollError> {
        match meaning {
            ItemMeaning::Event(event, names) => {
                let found = Found { event: *event, names };
                match round.turn.writer.write(found).await {
                    Ok(Written::New | Written::Known) => offered.written = offered.written.saturating_add(1),
                    // The ledger will never take this one: it fails alone.
                    Err(error) if matches!(error.kind(), ErrorKind::Reject | ErrorKind::Bug) => {
                        count_malformed(&mut round.counts);
                    }
                    Err(error) => {
                        return Err(PollError::Unkept {
                            source_id: self.id.clone(),
                            source: error,
                        });
                    }
                }
            }
            ItemMeaning::Skipped(_) => round.counts.skipped = round.counts.skipped.saturating_add(1),
            ItemMeaning::Malformed | ItemMeaning::Closed(_) => count_malformed(&mut round.counts),
        }
        Ok(())
    }
}

fn count_malformed(counts: &mut PollCounts) {
    counts.malformed = counts.malformed.saturating_add(1);
}
