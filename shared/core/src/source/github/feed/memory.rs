//! What is remembered of a feed from one poll to the next.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{FeedKind, Listing, PAGE_ITEMS};
use crate::github::feed::Attempt;
use crate::source::Cursor;

/// Items that are remembered as seen: more than a feed shows at one time. They are written whole with every change.
const EVENT_MARKS_MAX: usize = 400;
const RUN_MARKS_MAX: usize = 1_200;
/// Most items that are noted as left. They are written with every change too.
const LEFT_MAX: usize = 100;
/// How often an item's own request is made before the item is given up: for over a day, since the waits between grow. A failure
/// of GitHub's can last for hours, and the item stands in its list for thirty days.
const LEFT_TRIES_MAX: u32 = 14;
/// The same where it was refused. A refusal mostly stays one, but GitHub also answers so for moments.
const REFUSED_TRIES_MAX: u32 = 5;
/// The first of these waits.
const LEFT_WAIT: SignedDuration = SignedDuration::from_secs(60);
/// The longest of them.
const LEFT_WAIT_MAX: SignedDuration = SignedDuration::from_hours(4);
/// How long an item is left at most, whatever comes of it: longer than its tries take where each of them is made.
const LEFT_SPAN_MAX: SignedDuration = SignedDuration::from_hours(72);
/// Doublings of the first, with which the longest is reached.
const LEFT_DOUBLINGS_MAX: u32 = 8;

/// Longest validator, and longest address of a page, that is remembered, in bytes: what common servers and
/// proxies take of one header.
pub(super) const WORD_BYTES_MAX: usize = 8 * 1_024;

/// What is remembered of a feed. A cursor of an earlier version lacks what came later.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Remembered {
    /// What happened before this second is skipped.
    pub(super) since: i64,
    /// Items that were seen, newest first.
    pub(super) marks: Vec<String>,
    /// The validator of the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) validator: Option<Validator>,
    /// When all pages were begun to be read last, in seconds.
    pub(super) read_all: i64,
    /// Something of the last poll was not offered: read all of it again.
    #[serde(default)]
    pub(super) unfinished: bool,
    /// The page that the last poll stopped in front of. The next one goes on there once it is through with what is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) resume: Option<String>,
    /// How often that page could not be read.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(super) resume_tries: u32,
    /// Polls since all pages were begun to be read, where there is such a place.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(super) turns: u32,
    /// Items that need a request of their own and had no answer to it, by their marks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) left: BTreeMap<String, Left>,
}

/// A page that is to be read, and how often it could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) url: String,
    pub(super) tries: u32,
}

impl Place {
    pub(super) fn new(url: String) -> Self {
        Self { url, tries: 0 }
    }
}

/// A page's validator. It belongs to the right that it was got with, and to the page's size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Validator {
    pub(super) etag: String,
    pub(super) right: String,
    /// There was a second page.
    pub(super) next: bool,
    /// Items of the page.
    #[serde(default = "whole_page", skip_serializing_if = "is_whole_page")]
    pub(super) items: usize,
}

/// An item that was left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Left {
    /// How often its request had no answer.
    tries: u32,
    /// How often it was refused.
    #[serde(default, skip_serializing_if = "is_none")]
    refused: u32,
    /// Not to be made again before this second.
    again: i64,
    /// The second in which it was left first. A cursor of an earlier version lacks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<i64>,
}

/// What an item's own request did not give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// The turn has no request left, maybe for so long.
    Turn(Option<SignedDuration>),
    /// There was no answer, in a word. There may be one later.
    Answer(&'static str),
    /// There is none for us as things are, in a word.
    Refused(&'static str),
    /// There will be none, in a word.
    Nothing(&'static str),
}

/// What becomes of an item whose own request gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// It is noted, and tried again.
    Noted,
    /// There is no room to note it: everything is read again.
    Unnoted,
    /// It was tried often enough, or need not be.
    GivenUp,
}

impl Remembered {
    /// What is to be kept of it until the next poll; a word where it is too long to be kept.
    pub(super) fn cursor(&self) -> Result<Cursor, &'static str> {
        let text = serde_json::to_string(self).or(Err("cursor"))?;
        Cursor::new(text).ok_or("cursor")
    }

    /// The page at `url`, and what is known of it.
    pub(super) fn place(&self, url: String) -> Place {
        let is_known = self.resume.as_ref() == Some(&url);
        Place {
            url,
            tries: if is_known { self.resume_tries } else { 0 },
        }
    }

    /// Remembers where the list is to be read on.
    pub(super) fn stop_at(&mut self, place: Option<Place>) {
        self.resume_tries = place.as_ref().map_or(0, |place| place.tries);
        self.resume = place.map(|place| place.url);
    }

    /// Whether an item that was left may be tried again.
    pub(super) fn has_due(&self, now: Timestamp) -> bool {
        self.left.values().any(|left| left.again <= now.as_second())
    }

    /// Whether the item of this mark was left, and is not to be tried yet.
    pub(super) fn waits(&self, mark: &str, now: Timestamp) -> bool {
        self.left.get(mark).is_some_and(|left| now.as_second() < left.again)
    }

    /// Whether something of the item that is listed with `mark` was left: itself, or an earlier attempt of the same run.
    pub(super) fn has_left(&self, kind: FeedKind, mark: &str) -> bool {
        self.left.keys().any(|left| belongs(kind, left, mark))
    }

    /// Leaves the item of this mark for a later poll, or gives it up.
    pub(super) fn leave(&mut self, mark: &str, want: Want, now: Timestamp) -> Leaving {
        let known = self.left.get(mark).copied();
        let mut left = known.unwrap_or_default();
        left.since = left.since.or(Some(now.as_second()));
        let doublings = left.tries.saturating_add(left.refused).min(LEFT_DOUBLINGS_MAX);
        let wait = LEFT_WAIT.saturating_mul(1_i32 << doublings).min(LEFT_WAIT_MAX);
        let later = now.as_second().saturating_add(wait.as_secs());
        match want {
            Want::Turn(_) => left.again = now.as_second(),
            Want::Answer(_) => {
                left.tries = left.tries.saturating_add(1);
                left.again = later;
            }
            Want::Refused(_) => {
                left.refused = left.refused.saturating_add(1);
                left.again = later;
            }
            Want::Nothing(_) => left.tries = LEFT_TRIES_MAX,
        }
        if left.tries >= LEFT_TRIES_MAX || left.refused >= REFUSED_TRIES_MAX {
            self.left.remove(mark);
            return Leaving::GivenUp;
        }
        if known.is_none() && self.left.len() >= LEFT_MAX {
            return Leaving::Unnoted;
        }
        self.left.insert(mark.to_owned(), left);
        Leaving::Noted
    }

    /// Forgets what was left for too long, and gives its marks.
    pub(super) fn end_left(&mut self, now: Timestamp) -> Vec<String> {
        let second = now.as_second();
        let mut ended = Vec::new();
        self.left.retain(|mark, left| {
            let since = *left.since.get_or_insert(second);
            let is_over = second.saturating_sub(since) > LEFT_SPAN_MAX.as_secs();
            if is_over {
                ended.push(mark.clone());
            }
            !is_over
        });
        ended
    }

    /// Forgets attempts of this run that were left and are too old to be asked for. Gives how many that were.
    pub(super) fn forget_before(&mut self, oldest: Attempt) -> u64 {
        let before = self.left.len();
        self.left.retain(|mark, _| {
            let parts = mark.split_once(':');
            let attempt = parts.and_then(|(run, attempt)| Some((run.parse().ok()?, attempt.parse().ok()?)));
            attempt.is_none_or(|(run, attempt): (u64, u64)| run != oldest.run || attempt >= oldest.attempt)
        });
        u64::try_from(before.saturating_sub(self.left.len())).unwrap_or(u64::MAX)
    }

    /// Counts a try of each item that is due and that a list did not show which could not be read to its end. Gives the marks of
    /// those that are given up.
    pub(super) fn miss(&mut self, kind: FeedKind, listing: &Listing, now: Timestamp) -> Vec<String> {
        let is_listed = |left: &str| {
            let mut listed = listing.items.iter();
            listed.any(|listed| belongs(kind, left, &listed.item.mark))
        };
        let due = self.left.iter().filter(|(_, left)| left.again <= now.as_second());
        let missed: Vec<String> = due
            .map(|(mark, _)| mark)
            .filter(|mark| !is_listed(mark))
            .cloned()
            .collect();
        let mut given_up = missed;
        given_up.retain(|mark| self.leave(mark, Want::Answer("unlisted"), now) == Leaving::GivenUp);
        given_up
    }

    /// Forgets what was left and is in the list no more, where the list was read whole. Gives how many that were.
    pub(super) fn forget_gone(&mut self, kind: FeedKind, listing: &Listing) -> u64 {
        let before = self.left.len();
        let listed = || listing.items.iter().map(|listed| listed.item.mark.as_str());
        self.left
            .retain(|left, _| listed().any(|mark| belongs(kind, left, mark)));
        u64::try_from(before.saturating_sub(self.left.len())).unwrap_or(u64::MAX)
    }

    /// Remembers what has been seen now: what the list shows first, in its order, then what was known before.
    pub(super) fn mark(&mut self, kind: FeedKind, listing: &Listing, handled: &BTreeSet<String>) {
        let known = std::mem::take(&mut self.marks);
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
        marks.truncate(match kind {
            FeedKind::Events => EVENT_MARKS_MAX,
            FeedKind::Runs => RUN_MARKS_MAX,
        });
        self.marks = marks;
    }
}

fn whole_page() -> usize {
    PAGE_ITEMS
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_whole_page(items: &usize) -> bool {
    *items == PAGE_ITEMS
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_none(number: &u32) -> bool {
    *number == 0
}

/// Whether what was left as `left` hangs on the item that is listed with `mark`.
fn belongs(kind: FeedKind, left: &str, mark: &str) -> bool {
    match kind {
        FeedKind::Events => left == mark,
        FeedKind::Runs => left.split(':').next() == mark.split(':').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    const ANSWER: Want = Want::Answer("server_fault");

    #[test]
    fn a_cursor_of_an_earlier_version_is_read_as_it_was_written() {
        let text = r#"{"since":7,"marks":["a:1"],"validator":{"etag":"e","right":"r","next":true},"read_all":9,"unfinished":false}"#;
        let read: Remembered = serde_json::from_str(text).unwrap();
        assert_eq!((read.since, read.read_all, read.left.len()), (7, 9, 0));
        assert_eq!(serde_json::to_string(&read).unwrap(), text, "and the other way round");
    }

    #[test]
    fn a_memory_that_is_too_long_to_be_kept_says_so() {
        let mut memory = Remembered::default();
        assert!(memory.cursor().is_ok());
        memory.marks = vec!["\u{1}".repeat(80); EVENT_MARKS_MAX + LEFT_MAX];
        assert_eq!(memory.cursor(), Err("cursor"));
    }

    #[test]
    fn an_item_that_was_left_is_tried_at_growing_waits_and_then_given_up() {
        let mut memory = Remembered::default();
        let mut now = 0;
        let growing = [60, 120, 240, 480, 960, 1_920, 3_840, 7_680];
        let waits: Vec<i64> = growing.into_iter().chain([14_400; 5]).collect();
        assert!(
            waits.iter().sum::<i64>() > 86_400,
            "a failure of GitHub's can last for a day"
        );
        for wait in waits {
            assert_eq!(memory.leave("a:1", ANSWER, at(now)), Leaving::Noted);
            assert!(memory.waits("a:1", at(now + wait - 1)) && !memory.has_due(at(now + wait - 1)));
            now += wait;
            assert!(!memory.waits("a:1", at(now)) && memory.has_due(at(now)));
        }
        // That nobody could be asked is no try.
        assert_eq!(memory.leave("a:1", Want::Turn(None), at(now)), Leaving::Noted);
        assert_eq!(memory.leave("a:1", ANSWER, at(now)), Leaving::GivenUp);
        assert_eq!(memory, Remembered::default());
    }

    #[test]
    fn what_is_left_comes_to_an_end_although_nobody_could_ever_be_asked() {
        let mut memory = Remembered::default();
        let days = |days: i64| at(days * 86_400);
        assert_eq!(memory.leave("a:1", Want::Turn(None), days(1)), Leaving::Noted);
        assert_eq!(memory.leave("a:1", Want::Turn(None), days(3)), Leaving::Noted);
        assert_eq!(memory.end_left(days(4)), Vec::<String>::new());
        assert_eq!(memory.end_left(at(4 * 86_400 + 1)), ["a:1"]);
        // One of an earlier version counts from when it is met.
        let text = r#"{"since":7,"marks":[],"read_all":9,"left":{"a:1":{"tries":1,"again":9}}}"#;
        let mut earlier: Remembered = serde_json::from_str(text).unwrap();
        assert_eq!(earlier.end_left(days(9)), Vec::<String>::new());
        assert_eq!(earlier.end_left(days(13)), ["a:1"]);
    }

    #[test]
    fn what_is_refused_is_asked_for_a_few_times_whatever_came_before() {
        let mut memory = Remembered::default();
        let mut now = 0;
        for wait in [60, 120] {
            assert_eq!(memory.leave("a:1", ANSWER, at(now)), Leaving::Noted);
            now += wait;
        }
        for wait in [240, 480, 960, 1_920] {
            assert_eq!(memory.leave("a:1", Want::Refused("forbidden"), at(now)), Leaving::Noted);
            assert!(memory.waits("a:1", at(now + wait - 1)) && !memory.waits("a:1", at(now + wait)));
            now += wait;
        }
        assert_eq!(
            memory.leave("a:1", Want::Refused("forbidden"), at(now)),
            Leaving::GivenUp
        );
        assert_eq!(memory, Remembered::default());
    }

    #[test]
    fn no_more_is_noted_than_a_cursor_has_room_for_and_what_is_noted_goes_on() {
        let mut memory = Remembered::default();
        for number in 0..LEFT_MAX {
            assert_eq!(memory.leave(&number.to_string(), ANSWER, at(0)), Leaving::Noted);
        }
        assert_eq!(memory.leave("more", ANSWER, at(0)), Leaving::Unnoted);
        assert_eq!(memory.leave("0", ANSWER, at(0)), Leaving::Noted);
        assert_eq!(memory.leave("1", Want::Nothing("too_long"), at(0)), Leaving::GivenUp);
        assert_eq!(memory.leave("more", ANSWER, at(0)), Leaving::Noted);
    }
}
