//! A feed of GitHub's as a source: the events of a repository, or the runs of its workflows.
//!
//! A feed is late and not in order, so no mark on ids or times says how far it has been read. What was seen is remembered item by
//! item, what was skipped too, and pages are followed until one holds nothing new. Now and then all of them are read, without
//! a validator: an answer that nothing has changed can be wrong for hours.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Asked, Round, refused};
use crate::api::{Api, Credential, Limits, Request};
use crate::event::Repository;
use crate::github::feed::{
    Attempt, Closed, Item, ItemMeaning, NotAPage, closed_near, event_item, events_page, run_item, runs_page,
};
use crate::ports::ErrorKind;
use crate::source::{
    Cursor, FailedPoll, Found, Placement, Poll, PollCounts, PollError, Polled, Source, SourceId, Turn, Written,
};
use crate::target::TargetKey;

/// Items of a page. GitHub gives no more, whatever it is asked for.
const PAGE_ITEMS: usize = 100;
/// Most pages of one poll: a search of runs shows a thousand.
const PAGES_MAX: usize = 10;
/// Items of the longest list of events (<https://docs.github.com/en/rest/activity/events>).
const EVENTS_MAX: usize = 300;
/// Items of the longest list of runs (<https://docs.github.com/en/rest/actions/workflow-runs>).
const RUNS_MAX: usize = PAGE_ITEMS * PAGES_MAX;
/// Items that are remembered as seen: more than a feed shows at one time. They are written whole with every change.
const EVENT_MARKS_MAX: usize = 400;
const RUN_MARKS_MAX: usize = 1_200;
/// Most earlier attempts of one run that are asked for. The list shows the last one only.
const EARLIER_ATTEMPTS_MAX: u64 = 10;
/// Most pages of an issue's history that are read for a time of closing.
const HISTORY_PAGES_MAX: usize = 5;

/// Which feed of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedKind {
    /// Its events: `/repos/{owner}/{name}/events`.
    Events,
    /// The runs of its workflows that are over: `/repos/{owner}/{name}/actions/runs`.
    Runs,
}

/// How feeds are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedConfig {
    /// GitHub Enterprise host; `None` for github.com.
    pub host: Option<String>,
    /// How long a feed is left alone between two polls, where it asks for no longer.
    pub interval: SignedDuration,
    /// How often all pages are read.
    pub read_all_every: SignedDuration,
    /// What happened longer than this before the first poll of a feed is skipped.
    pub backlog: SignedDuration,
    /// How waits are bounded.
    pub limits: Limits,
}

/// A feed.
#[derive(Debug)]
pub struct Feed<A> {
    api: Arc<A>,
    id: SourceId,
    kind: FeedKind,
    repository: Repository,
    credential: Credential,
    config: Arc<FeedConfig>,
}

/// What is remembered of a feed.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Remembered {
    /// What happened before this second is skipped.
    since: i64,
    /// Items that were seen, newest first.
    marks: Vec<String>,
    /// The validator of the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    validator: Option<Validator>,
    /// When all pages were read last, in seconds.
    read_all: i64,
    /// Something of the last poll was not offered: read all of it again.
    #[serde(default)]
    unfinished: bool,
    /// The page that the last poll stopped in front of. The next one goes on there once it is through with what is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resume: Option<String>,
}

/// A page's validator. It belongs to the right that it was got with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Validator {
    etag: String,
    right: String,
    /// There was a second page.
    next: bool,
}

/// An item of a page, read and as it came.
struct Listed {
    item: Item,
    raw: Box<RawValue>,
}

/// What was listed in one poll, newest first.
struct Listing {
    items: Vec<Listed>,
    validator: Option<Validator>,
    /// Everything to the end was read, by this poll or by those that it goes on from.
    is_whole: bool,
    /// The page that it stopped in front of.
    stopped_at: Option<String>,
    /// The list is as long as it can be: what is behind it is not to be had.
    is_cut: bool,
    throttled: Option<SignedDuration>,
}

impl<A: Api> Feed<A> {
    /// The feed of this kind of `repository`, read with `credential`.
    #[must_use]
    pub fn new(
        api: Arc<A>,
        kind: FeedKind,
        repository: Repository,
        credential: Credential,
        config: Arc<FeedConfig>,
    ) -> Self {
        let host = config.host.as_deref().unwrap_or("github.com");
        let word = match kind {
            FeedKind::Events => "events",
            FeedKind::Runs => "runs",
        };
        Self {
            id: SourceId::new(&format!("{host}/{word}/{}", repository.key())),
            api,
            kind,
            repository,
            credential,
            config,
        }
    }

    fn first_page(&self) -> String {
        let repository = self.repository.as_str();
        match self.kind {
            FeedKind::Events => format!("/repos/{repository}/events?per_page={PAGE_ITEMS}"),
            FeedKind::Runs => format!("/repos/{repository}/actions/runs?status=completed&per_page={PAGE_ITEMS}"),
        }
    }

    fn read_page(&self, body: &[u8]) -> Result<Vec<Listed>, NotAPage> {
        let host = self.config.host.as_deref();
        let items = match self.kind {
            FeedKind::Events => events_page(body)?,
            FeedKind::Runs => runs_page(body)?,
        };
        let read = |raw: Box<RawValue>| Listed {
            item: match self.kind {
                FeedKind::Events => event_item(host, &raw, None),
                FeedKind::Runs => run_item(host, &raw),
            },
            raw,
        };
        Ok(items.into_iter().map(read).collect())
    }

    async fn poll_once(&self, turn: Turn<'_>) -> Result<Poll, Box<FailedPoll>> {
        let mut round = Round::new(&*self.api, &self.credential, self.config.limits, turn);
        match self.read(&mut round).await {
            Ok((polled, cursor)) => Ok(Poll {
                cursor,
                ..round.poll(polled)
            }),
            Err(error) => Err(round.failed(error, None)),
        }
    }

    /// Reads what there is to be read. Gives what came of it, and how far that is.
    async fn read(&self, round: &mut Round<'_, A>) -> Result<(Polled, Option<Cursor>), PollError> {
        let now = round.now();
        // A cursor that cannot be read is no first contact: nothing is skipped for it, and what is known stays known.
        let remembered = round
            .turn
            .cursor
            .map(|cursor| serde_json::from_str(cursor.as_str()).unwrap_or_default());
        let is_first = remembered.is_none();
        let mut memory: Remembered = remembered.unwrap_or_else(|| Remembered {
            since: now
                .saturating_sub(self.config.backlog)
                .unwrap_or(Timestamp::MIN)
                .as_second(),
            ..Remembered::default()
        });
        let age = SignedDuration::from_secs(now.as_second().saturating_sub(memory.read_all));
        let reads_all = memory.resume.is_none() && (memory.unfinished || age >= self.config.read_all_every);
        let seen: BTreeSet<String> = memory.marks.iter().cloned().collect();
        let listing = match self.list(round, &memory, &seen, reads_all).await? {
            Ok(listing) => listing,
            Err(polled) => return Ok((polled, None)),
        };
        let met = listing.items.iter().any(|listed| seen.contains(&listed.item.mark));
        if listing.is_cut && !met && !is_first {
            round.counts.gaps = round.counts.gaps.saturating_add(1);
        }
        let Offered {
            written,
            handled,
            all,
            throttled,
        } = self.offer(round, &listing, &memory, &seen).await?;
        memory.marks = marks(&listing, &handled, memory.marks);
        memory.marks.truncate(match self.kind {
            FeedKind::Events => EVENT_MARKS_MAX,
            FeedKind::Runs => RUN_MARKS_MAX,
        });
        memory.validator = listing.validator.filter(|_| all);
        memory.unfinished = !all;
        // What was not offered is read again, from where this poll began to read.
        if all {
            memory.resume = listing.stopped_at;
        }
        if all && listing.is_whole {
            memory.read_all = now.as_second();
        }
        let cursor = serde_json::to_string(&memory).ok().and_then(Cursor::new);
        let polled = match (listing.throttled.or(throttled), written) {
            (Some(span), _) => Polled::Throttled(span),
            (None, 0) => Polled::Empty,
            (None, written) => Polled::Emitted(written),
        };
        Ok((polled, cursor))
    }

    /// Reads pages until one of them holds nothing new, or all of them. `Err` in the inner result where the poll is over.
    async fn list(
        &self,
        round: &mut Round<'_, A>,
        memory: &Remembered,
        seen: &BTreeSet<String>,
        reads_all: bool,
    ) -> Result<Result<Listing, Polled>, PollError> {
        let right = self.credential.target.to_string();
        let validator = memory
            .validator
            .as_ref()
            .filter(|known| !reads_all && known.right == right);
        let mut listing = Listing {
            items: Vec::new(),
            validator: None,
            is_whole: false,
            stopped_at: None,
            is_cut: false,
            throttled: None,
        };
        let url = self.first_page();
        let first = Request {
            etag: validator.map(|known| known.etag.as_str()),
            ..Request::get(&url, &self.credential)
        };
        let asked = round.ask(first).await;
        if let Some(over) = refused(&self.id, &asked) {
            return over.map(Err);
        }
        let mut resume = memory.resume.clone();
        // Whether every page from here on is to be read, whatever it shows.
        let mut to_the_end = reads_all;
        let mut next = match asked {
            Asked::NotModified(answer) if resume.is_some() => {
                to_the_end = true;
                listing.validator = validator.map(|known| Validator {
                    next: answer.next.is_some(),
                    ..known.clone()
                });
                resume.take()
            }
            Asked::NotModified(answer) => {
                let was_alone = validator.is_some_and(|known| !known.next);
                if answer.next.is_none() || !was_alone {
                    round.counts.not_modified = round.counts.not_modified.saturating_add(1);
                    return Ok(Err(Polled::Empty));
                }
                // The first page is the same and a second one came behind it.
                listing.validator = validator.map(|known| Validator {
                    next: true,
                    ..known.clone()
                });
                answer.next
            }
            Asked::Fine(answer) => {
                // A whole answer that asks for nothing lets the feed fall back to its own interval.
                let own = u32::try_from(self.config.interval.as_secs()).ok();
                round.interval_s = round.interval_s.or(own);
                let items = self.read_page(&answer.body).map_err(|NotAPage| PollError::Unanswered {
                    source_id: self.id.clone(),
                    word: "shape",
                })?;
                listing.validator = answer.etag.map(|etag| Validator {
                    etag,
                    right,
                    next: answer.next.is_some(),
                });
                let covered = is_covered(&items, seen) && !to_the_end;
                listing.items = items;
                if covered {
                    to_the_end = resume.is_some();
                    resume.take()
                } else {
                    answer.next
                }
            }
            // Why a poll ends that has done nothing yet: said above.
            Asked::Ended | Asked::OutOfTime | Asked::Throttled(_) | Asked::Misconfigured(_) | Asked::Unanswered(_) => {
                None
            }
        };
        let place = memory.resume.as_deref();
        for _ in 1..PAGES_MAX {
            let Some(url) = next.take() else { break };
            let page = match round.get(&url).await {
                Asked::Fine(answer) => self.read_page(&answer.body).map(|items| (items, answer.next)),
                // Past the end is an end.
                Asked::Ended => {
                    listing.is_cut = true;
                    break;
                }
                Asked::Throttled(span) => {
                    listing.throttled = Some(span);
                    listing.stopped_at = Some(url);
                    break;
                }
                // What cannot be had a second time is no place to wait at: the next reading of all pages finds another way.
                Asked::Misconfigured(_) if place == Some(&url) => Err(NotAPage),
                Asked::NotModified(_) | Asked::OutOfTime | Asked::Misconfigured(_) | Asked::Unanswered(_) => {
                    listing.stopped_at = Some(url);
                    break;
                }
            };
            let Ok((items, behind)) = page else {
                if place == Some(&url) {
                    listing.is_whole = true;
                    round.counts.gaps = round.counts.gaps.saturating_add(1);
                } else {
                    listing.stopped_at = Some(url);
                }
                break;
            };
            let covered = is_covered(&items, seen) && !to_the_end;
            listing.items.extend(items);
            next = if covered {
                to_the_end = resume.is_some();
                resume.take()
            } else {
                behind
            };
        }
        let shown_max = match self.kind {
            FeedKind::Events => EVENTS_MAX,
            FeedKind::Runs => RUNS_MAX,
        };
        if place.is_some() && resume.is_none() {
            // It went on from a place: what is behind the last page of this turn is for the next.
            listing.stopped_at = listing.stopped_at.or(next.take());
        }
        if listing.stopped_at.is_none() {
            listing.is_whole |= to_the_end;
            // More behind the last page there can be.
            listing.is_cut |= next.is_some();
        }
        listing.is_cut |= listing.items.len() >= shown_max;
        Ok(Ok(listing))
    }

    /// Offers what is new to the writer, oldest first.
    async fn offer(
        &self,
        round: &mut Round<'_, A>,
        listing: &Listing,
        memory: &Remembered,
        seen: &BTreeSet<String>,
    ) -> Result<Offered, PollError> {
        let mut offered = Offered {
            all: true,
            ..Offered::default()
        };
        for listed in listing.items.iter().rev() {
            let mark = &listed.item.mark;
            if seen.contains(mark) || offered.handled.contains(mark) {
                continue;
            }
            if round.now() >= round.turn.end {
                offered.all = false;
                break;
            }
            if listed.item.is_before(memory.since) {
                round.counts.skipped = round.counts.skipped.saturating_add(1);
            } else {
                if self.kind == FeedKind::Runs {
                    self.offer_earlier(round, &listed.raw, memory, seen, &mut offered)
                        .await?;
                }
                if !offered.stopped() {
                    self.offer_one(round, listed, &mut offered).await?;
                }
            }
            if offered.stopped() {
                break;
            }
            // What has no mark cannot be told from the next one of its kind.
            if !mark.is_empty() {
                offered.handled.insert(mark.clone());
            }
        }
        Ok(offered)
    }

    /// Offers the attempts of a run before the one that the list shows.
    async fn offer_earlier(
        &self,
        round: &mut Round<'_, A>,
        raw: &RawValue,
        memory: &Remembered,
        seen: &BTreeSet<String>,
        offered: &mut Offered,
    ) -> Result<(), PollError> {
        let Some(last) = Attempt::of(raw) else { return Ok(()) };
        let oldest = last.attempt.saturating_sub(EARLIER_ATTEMPTS_MAX).max(1);
        for attempt in oldest..last.attempt {
            let earlier = Attempt { attempt, ..last };
            if seen.contains(&earlier.mark()) || offered.handled.contains(&earlier.mark()) {
                continue;
            }
            let url = format!(
                "/repos/{}/actions/runs/{}/attempts/{attempt}",
                self.repository, last.run
            );
            let body = match round.get(&url).await {
                Asked::Fine(answer) => answer.body,
                // Gone with its logs: there is nothing to tell of.
                Asked::Misconfigured("not_found") | Asked::Ended => {
                    offered.handled.insert(earlier.mark());
                    continue;
                }
                other @ (Asked::NotModified(_)
                | Asked::OutOfTime
                | Asked::Throttled(_)
                | Asked::Misconfigured(_)
                | Asked::Unanswered(_)) => {
                    offered.stop(&other);
                    return Ok(());
                }
            };
            let raw = serde_json::from_slice::<Box<RawValue>>(&body);
            if let Ok(raw) = raw {
                let item = run_item(self.config.host.as_deref(), &raw);
                if item.is_before(memory.since) {
                    round.counts.skipped = round.counts.skipped.saturating_add(1);
                } else {
                    self.offer_one(round, &Listed { item, raw }, offered).await?;
                }
            }
            if offered.stopped() {
                return Ok(());
            }
            offered.handled.insert(earlier.mark());
        }
        Ok(())
    }

    async fn offer_one(
        &self,
        round: &mut Round<'_, A>,
        listed: &Listed,
        offered: &mut Offered,
    ) -> Result<(), PollError> {
        let meaning = match &listed.item.meaning {
            ItemMeaning::Closed(closed) => {
                let Some(at) = self.closed_at(round, closed, offered).await else {
                    return Ok(());
                };
                event_item(self.config.host.as_deref(), &listed.raw, Some(at)).meaning
            }
            meaning @ (ItemMeaning::Event(..) | ItemMeaning::Skipped(_) | ItemMeaning::Malformed) => meaning.clone(),
        };
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

    /// When something was closed, by its history. The item's own time where the history does not say.
    async fn closed_at(&self, round: &mut Round<'_, A>, closed: &Closed, offered: &mut Offered) -> Option<Timestamp> {
        let Closed {
            repository,
            number,
            near,
        } = closed;
        let mut next = Some(format!(
            "/repos/{repository}/issues/{number}/events?per_page={PAGE_ITEMS}"
        ));
        let mut nearest: Option<Timestamp> = None;
        for _ in 0..HISTORY_PAGES_MAX {
            let Some(url) = next.take() else { break };
            match round.get(&url).await {
                Asked::Fine(answer) => {
                    let found = closed_near(&answer.body, *near).ok().flatten();
                    let candidates = [nearest, found].into_iter().flatten();
                    nearest = candidates.min_by_key(|at| at.duration_since(*near).abs());
                    next = answer.next;
                }
                Asked::Misconfigured("not_found") | Asked::Ended => break,
                // Another's time would be another event. What may not be read is told of by its webhook alone.
                Asked::Misconfigured("forbidden") => {
                    count_malformed(&mut round.counts);
                    return None;
                }
                other @ (Asked::NotModified(_)
                | Asked::OutOfTime
                | Asked::Throttled(_)
                | Asked::Misconfigured(_)
                | Asked::Unanswered(_)) => {
                    offered.stop(&other);
                    return None;
                }
            }
        }
        Some(nearest.unwrap_or(*near))
    }
}

fn count_malformed(counts: &mut PollCounts) {
    counts.malformed = counts.malformed.saturating_add(1);
}

/// What came of offering.
#[derive(Default)]
struct Offered {
    /// Events that are durable now.
    written: usize,
    /// Marks of what needs no second look.
    handled: BTreeSet<String>,
    /// Nothing was left out for want of time or of an answer.
    all: bool,
    throttled: Option<SignedDuration>,
}

impl Offered {
    fn stop(&mut self, asked: &Asked) {
        self.all = false;
        if let Asked::Throttled(span) = asked {
            self.throttled = Some(*span);
        }
    }

    fn stopped(&self) -> bool {
        !self.all
    }
}

/// Whether a page shows nothing that has not been seen. An empty one shows nothing at all.
fn is_covered(items: &[Listed], seen: &BTreeSet<String>) -> bool {
    items.iter().all(|listed| seen.contains(&listed.item.mark))
}

/// What has been seen now: what the list shows first, in its order, then what was known before.
fn marks(listing: &Listing, handled: &BTreeSet<String>, known: Vec<String>) -> Vec<String> {
    let before: BTreeSet<&String> = known.iter().collect();
    let mut listed = BTreeSet::new();
    let mut marks = Vec::new();
    let in_list = listing.items.iter().map(|listed| &listed.item.mark);
    // Earlier attempts are in no list.
    for mark in in_list.chain(handled) {
        if (handled.contains(mark) || before.contains(mark)) && listed.insert(mark.clone()) {
            marks.push(mark.clone());
        }
    }
    marks.extend(known.into_iter().filter(|mark| !listed.contains(mark)));
    marks
}

impl<A: Api> Source for Feed<A> {
    fn id(&self) -> &SourceId {
        &self.id
    }

    fn scheme(&self) -> &'static str {
        match self.kind {
            FeedKind::Events => "github_events",
            FeedKind::Runs => "github_runs",
        }
    }

    fn placement(&self) -> Placement {
        Placement::Scheduled
    }

    fn target(&self) -> &TargetKey {
        &self.credential.target
    }

    fn interval(&self) -> SignedDuration {
        self.config.interval
    }

    fn poll<'a>(&'a self, turn: Turn<'a>) -> BoxFuture<'a, Result<Poll, Box<FailedPoll>>> {
        Box::pin(self.poll_once(turn))
    }
}
