//! A feed of GitHub's as a source: the events of a repository, or the runs of its workflows.
//!
//! A feed is late and not in order, so no mark on ids or times says how far it has been read. What was seen is remembered item by
//! item, what was skipped too, and pages are followed until one holds nothing new. Now and then all of them are read, without
//! a validator: an answer that nothing has changed can be wrong for hours.

mod memory;
mod offer;
mod page;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::value::RawValue;

use super::{Asked, Round, refused};
use crate::api::{Answer, Api, Credential, Limits, Request};
use crate::event::Repository;
use crate::github::feed::{Item, NotAPage, event_item, events_page, run_item, runs_page};
use crate::source::{Cursor, FailedPoll, Placement, Poll, PollError, Polled, Source, SourceId, Turn};
use crate::target::TargetKey;

use memory::{Place, Remembered, Validator, WORD_BYTES_MAX};
use offer::Offered;
use page::{PageNumber, fewer, is_too_large};

/// Items of a page. GitHub gives no more, whatever it is asked for.
const PAGE_ITEMS: usize = 100;
/// Most pages of one poll: a search of runs shows a thousand.
const PAGES_MAX: usize = 10;
/// The same where a page was too large and smaller ones are read: enough for all events in the smallest.
const SMALL_PAGES_MAX: usize = 30;
/// How often a page at which a list is to be read on is asked for before it is given up. The next reading of all pages finds it.
const PLACE_TRIES_MAX: u32 = 5;
/// How many turns a list may go on from a place before its pages are read from the first one again: one for each page.
const PLACE_TURNS_MAX: u32 = 10;
/// The least time between two readings of all pages for what was left: it may be on any page, and there may be many.
const LEFT_READ_EVERY: SignedDuration = SignedDuration::from_secs(180);
/// Items of the longest list of events (<https://docs.github.com/en/rest/activity/events>).
const EVENTS_MAX: usize = 300;
/// Items of the longest list of runs (<https://docs.github.com/en/rest/actions/workflow-runs>).
const RUNS_MAX: usize = PAGE_ITEMS * PAGES_MAX;

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

/// An item of a page, read and as it came.
struct Listed {
    item: Item,
    raw: Box<RawValue>,
}

/// What was listed in one poll, newest first.
#[derive(Default)]
struct Listing {
    items: Vec<Listed>,
    validator: Option<Validator>,
    /// Every page was read, from the first to the end.
    is_whole: bool,
    /// The page that it stopped in front of.
    stopped_at: Option<Place>,
    /// The list is as long as it can be: what is behind it is not to be had.
    is_cut: bool,
    throttled: Option<SignedDuration>,
    /// Why a page could not be read, in a word.
    trouble: Option<&'static str>,
}

/// How far the pages of a list have been read.
#[derive(Default)]
struct Walk {
    listing: Listing,
    /// The page that is next.
    next: Option<String>,
    /// The page to go on at when there is nothing new.
    resume: Option<String>,
    /// Every page from here on is to be read, whatever it shows.
    to_the_end: bool,
}

impl Walk {
    /// Takes a page, and finds the next one: behind it, or where an earlier poll stopped.
    fn take(&mut self, items: Vec<Listed>, behind: Option<String>, seen: &BTreeSet<String>) {
        let is_covered = is_covered(&items, seen) && !self.to_the_end;
        self.listing.items.extend(items);
        if is_covered {
            self.go_on();
        } else {
            self.next = behind;
        }
    }

    /// Goes on where an earlier poll stopped, if one did, from there to the end.
    fn go_on(&mut self) {
        self.to_the_end = self.resume.is_some();
        self.next = self.resume.take();
    }
}

/// What came of one reading.
struct Read {
    polled: Polled,
    cursor: Option<Cursor>,
    trouble: Option<&'static str>,
}

impl Read {
    fn nothing(polled: Polled) -> Self {
        Self {
            polled,
            cursor: None,
            trouble: None,
        }
    }
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

    fn first_page(&self, items: usize) -> String {
        let repository = self.repository.as_str();
        match self.kind {
            FeedKind::Events => format!("/repos/{repository}/events?per_page={items}"),
            FeedKind::Runs => format!("/repos/{repository}/actions/runs?status=completed&per_page={items}"),
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
            Ok(read) => Ok(Poll {
                cursor: read.cursor,
                trouble: read.trouble,
                ..round.poll(read.polled)
            }),
            Err(error) => Err(round.failed(error, None)),
        }
    }

    /// Reads what there is to be read.
    async fn read(&self, round: &mut Round<'_, A>) -> Result<Read, PollError> {
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
        let ended = memory.end_left(now);
        let age = SignedDuration::from_secs(now.as_second().saturating_sub(memory.read_all));
        // What was left may stand on any page. A place is gone on from first: a list that takes several turns is to come to its
        // end. But one that does not must not keep all pages from being read again.
        let is_open = memory.unfinished || memory.has_due(now) && age >= LEFT_READ_EVERY;
        let reads_all = match memory.resume {
            None => is_open || age >= self.config.read_all_every,
            Some(_) => memory.turns >= PLACE_TURNS_MAX && age >= self.config.read_all_every,
        };
        // What has come to its end is not to be left anew.
        let seen: BTreeSet<String> = memory.marks.iter().chain(&ended).cloned().collect();
        let listing = match self.list(round, &memory, &seen, reads_all).await? {
            Ok(listing) => listing,
            Err(polled) => return Ok(Read::nothing(polled)),
        };
        let met = listing.items.iter().any(|listed| seen.contains(&listed.item.mark));
        if listing.is_cut && !met && !is_first {
            round.counts.gaps = round.counts.gaps.saturating_add(1);
        }
        let Offered {
            written,
            mut handled,
            all,
            throttled,
            trouble,
            ..
        } = self.offer(round, &listing, &mut memory, &seen).await?;
        if all && listing.is_whole {
            let gone = memory.forget_gone(self.kind, &listing);
            round.counts.gaps = round.counts.gaps.saturating_add(gone);
        } else if listing.stopped_at.is_none() && listing.trouble.is_some() {
            // A page was given up, and with it what may have been on it.
            let missed = memory.miss(self.kind, &listing, now);
            round.counts.gaps = round.counts.gaps.saturating_add(count(missed.len()));
            handled.extend(missed);
        }
        // Counted here, where it is remembered as well: an answer without news leaves all as it was.
        round.counts.gaps = round.counts.gaps.saturating_add(count(ended.len()));
        handled.extend(ended);
        memory.mark(self.kind, &listing, &handled);
        memory.validator = listing.validator.filter(|_| all);
        memory.unfinished = !all;
        // What was not offered is read again, from where this poll began to read.
        if all {
            let (kept, too_long): (Option<Place>, _) = match listing.stopped_at {
                Some(place) if place.url.len() > WORD_BYTES_MAX => (None, 1),
                place => (place, 0),
            };
            round.counts.gaps = round.counts.gaps.saturating_add(too_long);
            memory.stop_at(kept);
        } else if reads_all {
            memory.stop_at(None);
        }
        // Since its beginning: one that does not come to its end is no reason to wait for longer.
        if reads_all {
            memory.read_all = now.as_second();
        }
        memory.turns = match memory.resume {
            Some(_) if !reads_all => memory.turns.saturating_add(1),
            Some(_) | None => 0,
        };
        let polled = match (listing.throttled.or(throttled), written) {
            (Some(span), _) => Polled::Throttled(span),
            (None, 0) => Polled::Empty,
            (None, written) => Polled::Emitted(written),
        };
        let (cursor, unkept) = match memory.cursor() {
            Ok(cursor) => (Some(cursor), None),
            Err(word) => (None, Some(word)),
        };
        Ok(Read {
            polled,
            cursor,
            trouble: unkept.or(listing.trouble).or(trouble),
        })
    }

    /// Reads pages until one of them holds nothing new, or all of them. `Err` in the inner result where the poll is over.
    async fn list(
        &self,
        round: &mut Round<'_, A>,
        memory: &Remembered,
        seen: &BTreeSet<String>,
        reads_all: bool,
    ) -> Result<Result<Listing, Polled>, PollError> {
        let mut walk = match self.first(round, memory, seen, reads_all).await? {
            Ok(walk) => walk,
            Err(polled) => return Ok(Err(polled)),
        };
        let goes_on = memory.resume.is_some() && !reads_all;
        let mut pages = 1_usize;
        while let Some(url) = walk.next.take_if(|next| pages < pages_max(next)) {
            pages = pages.saturating_add(1);
            if !self.page(round, memory, seen, &mut walk, url).await {
                break;
            }
        }
        let mut listing = walk.listing;
        let is_small = walk.next.as_deref().is_some_and(|next| pages_max(next) > PAGES_MAX);
        if (goes_on && walk.resume.is_none() || is_small) && listing.stopped_at.is_none() {
            // What is behind the last page of this turn is for the next, if it went on from a place or read small pages.
            listing.stopped_at = walk.next.take().map(Place::new);
        }
        if listing.stopped_at.is_none() {
            listing.is_whole = reads_all && listing.trouble.is_none();
            // More behind the last page there can be.
            listing.is_cut |= walk.next.is_some();
        }
        let shown_max = match self.kind {
            FeedKind::Events => EVENTS_MAX,
            FeedKind::Runs => RUNS_MAX,
        };
        listing.is_cut |= listing.items.len() >= shown_max;
        Ok(Ok(listing))
    }

    /// Reads the first page, and says where the next one is.
    async fn first(
        &self,
        round: &mut Round<'_, A>,
        memory: &Remembered,
        seen: &BTreeSet<String>,
        reads_all: bool,
    ) -> Result<Result<Walk, Polled>, PollError> {
        let right = self.credential.target.to_string();
        let validator = memory
            .validator
            .as_ref()
            .filter(|known| !reads_all && known.right == right);
        // Where the whole page was too large, its smaller one is asked for until all pages are read again.
        let mut size = validator.map_or(PAGE_ITEMS, |known| known.items);
        let asked = loop {
            let url = self.first_page(size);
            let known = validator.filter(|known| known.items == size);
            let first = Request {
                etag: known.map(|known| known.etag.as_str()),
                ..Request::get(&url, &self.credential)
            };
            let asked = round.ask(first).await;
            match fewer(size).filter(|_| is_too_large(&asked)) {
                Some(fewer) => size = fewer,
                None => break asked,
            }
        };
        if let Some(over) = refused(&self.id, &asked) {
            return over.map(Err);
        }
        let unchanged = |answer: &Answer| {
            validator.map(|known| Validator {
                next: answer.next.is_some(),
                ..known.clone()
            })
        };
        let mut walk = Walk {
            resume: memory.resume.clone().filter(|_| !reads_all),
            to_the_end: reads_all,
            ..Walk::default()
        };
        match asked {
            Asked::NotModified(answer) if walk.resume.is_some() => {
                walk.listing.validator = unchanged(&answer);
                walk.go_on();
            }
            Asked::NotModified(answer) => {
                let was_alone = validator.is_some_and(|known| !known.next);
                if answer.next.is_none() || !was_alone {
                    round.counts.not_modified = round.counts.not_modified.saturating_add(1);
                    return Ok(Err(Polled::Empty));
                }
                // The first page is the same and a second one came behind it.
                walk.listing.validator = unchanged(&answer);
                walk.next = answer.next;
            }
            Asked::Fine(answer) => {
                // A whole answer that asks for nothing lets the feed fall back to its own interval.
                let own = u32::try_from(self.config.interval.as_secs()).ok();
                round.interval_s = round.interval_s.or(own);
                let items = self.read_page(&answer.body).map_err(|NotAPage| PollError::Unanswered {
                    source_id: self.id.clone(),
                    word: "shape",
                })?;
                let etag = answer.etag.filter(|etag| etag.len() <= WORD_BYTES_MAX);
                walk.listing.validator = etag.map(|etag| Validator {
                    etag,
                    right,
                    next: answer.next.is_some(),
                    items: size,
                });
                walk.take(items, answer.next, seen);
            }
            // Why a poll ends that has done nothing yet: said above.
            Asked::Ended | Asked::OutOfTime | Asked::Throttled(_) | Asked::Misconfigured(_) | Asked::Unanswered(_) => {}
        }
        Ok(Ok(walk))
    }

    /// Reads a page behind the first. Says whether there may be another one.
    async fn page(
        &self,
        round: &mut Round<'_, A>,
        memory: &Remembered,
        seen: &BTreeSet<String>,
        walk: &mut Walk,
        url: String,
    ) -> bool {
        let mut place = memory.place(url);
        // What is not for us a second time will not be.
        let mut tries_max = PLACE_TRIES_MAX;
        let word = match get_page(round, &place.url).await {
            Asked::Fine(answer) => match self.read_page(&answer.body) {
                Ok(items) => {
                    walk.take(items, answer.next, seen);
                    return true;
                }
                Err(NotAPage) => "shape",
            },
            // Past the end is an end.
            Asked::Ended => {
                walk.listing.is_cut = true;
                return false;
            }
            Asked::Throttled(span) => {
                walk.listing.throttled = Some(span);
                walk.listing.stopped_at = Some(place);
                return false;
            }
            Asked::OutOfTime => {
                walk.listing.stopped_at = Some(place);
                return false;
            }
            Asked::Misconfigured(word) => {
                tries_max = 2;
                word
            }
            Asked::NotModified(_) => "shape",
            Asked::Unanswered(word) => word,
        };
        walk.listing.trouble = Some(word);
        place.tries = place.tries.saturating_add(1);
        if place.tries < tries_max {
            walk.listing.stopped_at = Some(place);
        } else {
            round.counts.gaps = round.counts.gaps.saturating_add(1);
        }
        false
    }
}

/// Asks for a page, and for smaller ones that begin where it does while it is too large.
async fn get_page<A: Api>(round: &mut Round<'_, A>, url: &str) -> Asked {
    let mut asked = round.get(url).await;
    let mut page = PageNumber::of(url);
    while is_too_large(&asked)
        && let Some(smaller) = page.smaller()
    {
        page = smaller;
        asked = round.get(&page.on(url)).await;
    }
    asked
}

fn count(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(u64::MAX)
}

/// Most pages of a poll whose next one is `url`.
fn pages_max(url: &str) -> usize {
    if PageNumber::of(url).items < PAGE_ITEMS {
        SMALL_PAGES_MAX
    } else {
        PAGES_MAX
    }
}

/// Whether a page shows nothing that has not been seen. An empty one shows nothing at all.
fn is_covered(items: &[Listed], seen: &BTreeSet<String>) -> bool {
    items.iter().all(|listed| seen.contains(&listed.item.mark))
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
