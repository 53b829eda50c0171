//! A feed of GitHub's as a source: the events of a repository, or the runs of its workflows.
//!
//! A feed is late and not in order, so no mark on ids or times says how far it has been read. What was seen is remembered item by
//! item, what was skipped too, and pages are followed until one holds nothing new. Now and then all of them are read, without
//! a validator: an answer that nothing has changed can be wrong for hours.

mod memory;
mod offer;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::value::RawValue;

use super::{Asked, Round, refused};
use crate::api::{Api, Credential, Limits, Request};
use crate::event::Repository;
use crate::github::feed::{Item, NotAPage, event_item, events_page, run_item, runs_page};
use crate::source::{Cursor, FailedPoll, Placement, Poll, PollError, Polled, Source, SourceId, Turn};
use crate::target::TargetKey;

use memory::{Remembered, Validator};
use offer::Offered;

/// Items of a page. GitHub gives no more, whatever it is asked for.
const PAGE_ITEMS: usize = 100;
/// Most pages of one poll: a search of runs shows a thousand.
const PAGES_MAX: usize = 10;
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
        let age = SignedDuration::from_secs(now.as_second().saturating_sub(memory.read_all));
        // What was left may stand on any page.
        let is_open = memory.unfinished || memory.has_due(now);
        let reads_all = memory.resume.is_none() && (is_open || age >= self.config.read_all_every);
        let seen: BTreeSet<String> = memory.marks.iter().cloned().collect();
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
            handled,
            all,
            throttled,
            trouble,
            ..
        } = self.offer(round, &listing, &mut memory, &seen).await?;
        if reads_all && all && listing.is_whole {
            let gone = memory.forget_gone(self.kind, &listing);
            round.counts.gaps = round.counts.gaps.saturating_add(gone);
        }
        memory.mark(self.kind, &listing, &handled);
        memory.validator = listing.validator.filter(|_| all);
        memory.unfinished = !all;
        // What was not offered is read again, from where this poll began to read.
        if all {
            memory.resume = listing.stopped_at;
        }
        if all && listing.is_whole {
            memory.read_all = now.as_second();
        }
        let polled = match (listing.throttled.or(throttled), written) {
            (Some(span), _) => Polled::Throttled(span),
            (None, 0) => Polled::Empty,
            (None, written) => Polled::Emitted(written),
        };
        Ok(Read {
            polled,
            cursor: serde_json::to_string(&memory).ok().and_then(Cursor::new),
            trouble,
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
