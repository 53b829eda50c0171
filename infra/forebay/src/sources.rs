//! `forebay sources`: what is polled, when again, and what is wrong with it.

use clap::Args;
use forebay_aws::clock::System;
use forebay_core::ports::TimeAndChance as _;
use forebay_core::schedule::{SourceState, SourceStore as _};
use forebay_core::source::SourceId;
use jiff::Timestamp;
use serde::Serialize;

use crate::connect::{Connected, StackRef, answered};
use crate::error::Error;
use crate::output::Output;
use crate::table;
use crate::time::Time;

/// Most sources that are listed.
const LISTED_MAX: usize = 10_000;
/// Rows of one page of them.
const PAGE_ROWS: usize = 500;
const NOTHING: &str = "nothing has been polled yet: the poller's first run makes the sources, within a minute, or now by `cargo forebay poll now`; if none come, set PollRepositories or one of Recover…";

/// Which stack's sources.
#[derive(Args, Clone, Debug)]
pub(crate) struct SourcesArgs {
    #[command(flatten)]
    stack: StackRef,
}

/// A source, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct SourceView {
    source: String,
    /// The last claim; `None` where it was never polled.
    claimed_at: Option<Time>,
    due_at: Time,
    /// Since when it could have been polled, in seconds; 0 where it is not due.
    overdue_s: i64,
    interval_s: i64,
    /// Polls without an answer, in a row.
    failures: u32,
    /// Why the last poll did not go well.
    note: Option<String>,
    /// Until when somebody may be polling it.
    held_until: Option<Time>,
}

impl SourceView {
    fn of(source: &SourceId, state: &SourceState, now: Timestamp) -> Self {
        Self {
            source: source.to_string(),
            claimed_at: state.claimed_at.map(Time),
            due_at: Time(state.due_at),
            overdue_s: now.duration_since(state.due_at).as_secs().max(0),
            interval_s: state.interval.as_secs(),
            failures: state.failures,
            note: state.note.clone(),
            held_until: state.lease_until.filter(|until| *until > now).map(Time),
        }
    }

    fn row(&self) -> [String; 7] {
        let or_dash = |time: Option<Time>| time.map_or_else(|| "–".to_owned(), |time| time.to_string());
        [
            self.source.clone(),
            or_dash(self.claimed_at),
            match self.overdue_s {
                0 => self.due_at.to_string(),
                seconds => format!("{} ({seconds} s ago)", self.due_at),
            },
            format!("{} s", self.interval_s),
            self.failures.to_string(),
            or_dash(self.held_until),
            self.note.clone().unwrap_or_default(),
        ]
    }
}

/// Lists sources, the one that is due first first.
pub(crate) async fn run(args: &SourcesArgs, output: Output) -> Result<(), Error> {
    let connected = Connected::find(&args.stack).await?;
    let ids = known(&connected).await?;
    if ids.is_empty() {
        output.note(NOTHING);
    }
    if ids.len() >= LISTED_MAX {
        output.note(format_args!(
            "there are more than {LISTED_MAX} sources; these are due first"
        ));
    }
    let now = System.now();
    let mut states = answered(connected.ledger.source_states(&ids).await)?;
    if states.len() < ids.len() {
        let unread = ids.len().saturating_sub(states.len());
        output.note(format_args!(
            "{unread} rows could not be read: they have gone, or another version wrote them"
        ));
    }
    states.sort_by(|(one, this), (other, that)| (this.due_at, one).cmp(&(that.due_at, other)));
    let views: Vec<SourceView> = states
        .iter()
        .map(|(source, state)| SourceView::of(source, state, now))
        .collect();
    output.list(&views, || {
        let rows: Vec<[String; 7]> = views.iter().map(SourceView::row).collect();
        let head = ["source", "claimed", "due", "interval", "failures", "held until", "note"];
        table::lines(head, &rows)
    })
}

/// Every source that has a row: each is due at some time, so the index of due rows has them all.
pub(crate) async fn known(connected: &Connected) -> Result<Vec<SourceId>, Error> {
    let mut ids = Vec::new();
    let mut after = None;
    while ids.len() < LISTED_MAX {
        let due = connected.ledger.due_sources(Timestamp::MAX, after.as_ref(), PAGE_ROWS);
        let page = answered(due.await)?;
        ids.extend(page.iter().map(|due| due.source.clone()));
        match page.into_iter().next_back() {
            Some(last) => after = Some(last),
            None => break,
        }
    }
    ids.truncate(LISTED_MAX);
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use forebay_core::ledger::{Nonce, Token};
    use jiff::SignedDuration;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn new() -> SourceState {
        SourceState {
            token: Token::from_number(0),
            nonce: Nonce::from_random(0),
            lease_until: None,
            due_at: at("2026-11-16T15:40:00Z"),
            interval: SignedDuration::from_secs(60),
            failures: 0,
            note: None,
            claimed_at: None,
        }
    }

    #[track_caller]
    fn check(state: &SourceState, expected: [&str; 7]) {
        let source = SourceId::new("github.com/events/acme/app");
        let view = SourceView::of(&source, state, at("2026-11-16T15:41:30Z"));
        assert_eq!(view.row(), expected.map(str::to_owned));
    }

    #[test]
    fn a_source_that_was_never_polled_is_due_since_it_was_registered() {
        check(
            &new(),
            [
                "github.com/events/acme/app",
                "–",
                "2026-11-16T15:40:00Z (90 s ago)",
                "60 s",
                "0",
                "–",
                "",
            ],
        );
    }

    #[test]
    fn a_held_source_shows_until_when_and_a_lapsed_lease_holds_nothing() {
        let claimed = SourceState {
            lease_until: Some(at("2026-11-16T15:41:50Z")),
            due_at: at("2026-11-16T15:42:00Z"),
            claimed_at: Some(at("2026-11-16T15:41:00Z")),
            ..new()
        };
        let expected = [
            "github.com/events/acme/app",
            "2026-11-16T15:41:00Z",
            "2026-11-16T15:42:00Z",
            "60 s",
            "0",
            "2026-11-16T15:41:50Z",
            "",
        ];
        check(&claimed, expected);
        let lapsed = SourceState {
            lease_until: Some(at("2026-11-16T15:41:30Z")),
            failures: 3,
            note: Some("not_found".to_owned()),
            ..claimed
        };
        let mut expected = expected;
        (expected[4], expected[5], expected[6]) = ("3", "–", "not_found");
        check(&lapsed, expected);
    }

    #[test]
    fn programs_get_numbers() {
        let source = SourceId::new("github.com/events/acme/app");
        let view = SourceView::of(&source, &new(), at("2026-11-16T15:41:30Z"));
        assert_eq!(
            serde_json::to_string(&view).unwrap(),
            "{\"source\":\"github.com/events/acme/app\",\"claimed_at\":null,\"due_at\":\"2026-11-16T15:40:00Z\",\
             \"overdue_s\":90,\"interval_s\":60,\"failures\":0,\"note\":null,\"held_until\":null}"
        );
    }
}
