//! `forebay gaps`: what only one net has caught, and so what webhooks lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use clap::Args;
use forebay_aws::clock::System;
use forebay_core::event::{Kind, Net, Repository};
use forebay_core::ledger::EventRow;
use forebay_core::ports::{Ledger as _, TimeAndChance as _};
use serde::Serialize;

use crate::connect::{Connected, StackRef, answered};
use crate::error::Error;
use crate::listing;
use crate::output::Output;
use crate::table;
use crate::time::{Since, Time};

/// Most events that are looked through, the newest.
const LOOKED_THROUGH_MAX: usize = 10_000;
/// Parts of a whole that a rate is given in: hundredths of a percent.
const WHOLE: u64 = 10_000;

/// Over which time.
#[derive(Args, Clone, Debug)]
pub(crate) struct GapsArgs {
    /// Nothing admitted earlier: a span such as 15m, 2h or 3d, or a time such as 2026-11-16T15:40:00Z
    #[arg(long, default_value = "24h", value_parser = Since::parse)]
    since: Since,
    /// Show which events the webhook lost
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    stack: StackRef,
}

/// Counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Counts {
    /// All that GitHub told of, by whichever net.
    events: u64,
    /// Those that only webhooks told of.
    webhook_only: u64,
    /// Those that only a feed told of.
    feed_only: u64,
    /// Those that only came because recovery asked for them.
    recovery_only: u64,
    /// Those that no webhook told of by itself.
    lost: u64,
}

impl Counts {
    fn add(&mut self, seen_by: &BTreeSet<Net>) {
        let alone = |net| u64::from(seen_by.len() == 1 && seen_by.contains(&net));
        self.events = self.events.saturating_add(1);
        self.webhook_only = self.webhook_only.saturating_add(alone(Net::Webhook));
        self.feed_only = self.feed_only.saturating_add(alone(Net::Feed));
        self.recovery_only = self.recovery_only.saturating_add(alone(Net::Recovery));
        self.lost = self.lost.saturating_add(u64::from(!seen_by.contains(&Net::Webhook)));
    }

    fn cells(&self) -> [String; 6] {
        let alone = self.feed_only.saturating_add(self.recovery_only);
        [
            self.events,
            self.webhook_only,
            self.feed_only,
            self.recovery_only,
            self.lost.saturating_sub(alone),
            self.lost,
        ]
        .map(|count| count.to_string())
    }
}

/// The share that webhooks lost of what they could have told, where another net would have noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Loss {
    /// Events that no webhook told of by itself.
    lost: u64,
    /// Events of the kinds that feeds tell of, in repositories of which another net told anything.
    of: u64,
    /// Their share, in hundredths of a percent; `None` of nothing.
    basis_points: Option<u64>,
}

impl Loss {
    fn new(lost: u64, of: u64) -> Self {
        Self {
            lost,
            of,
            basis_points: lost.saturating_mul(WHOLE).checked_div(of),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.basis_points {
            None => f.write_str("no rate, since no other net has told of anything that feeds tell of"),
            Some(points) => {
                let (percent, hundredths) = (points / 100, points % 100);
                write!(
                    f,
                    "webhooks lost {percent}.{hundredths:02} % of what feeds tell of ({} of {})",
                    self.lost, self.of
                )
            }
        }
    }
}

/// An event that no webhook told of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct LostEvent {
    admitted_at: Time,
    kind: &'static str,
    subject: String,
    seen_by: Vec<&'static str>,
    event: String,
}

impl LostEvent {
    fn of(row: &EventRow) -> Self {
        Self {
            admitted_at: Time(row.admitted_at),
            kind: row.event.kind.as_str(),
            subject: row.event.subject.to_string(),
            seen_by: row.seen_by.iter().copied().map(Net::as_str).collect(),
            event: row.event.id.to_string(),
        }
    }
}

/// What matters of an event here.
#[derive(Clone, Debug)]
struct Seen {
    kind: Kind,
    /// Where it happened, as a key.
    repository: Option<String>,
    by: BTreeSet<Net>,
}

impl Seen {
    fn of(row: &EventRow) -> Self {
        Self {
            kind: row.event.kind,
            repository: row.event.subject.repository().map(Repository::key),
            by: row.seen_by.clone(),
        }
    }
}

/// What each net caught.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Nets {
    /// By the kind's word; kinds without an event are absent.
    kinds: BTreeMap<&'static str, Counts>,
    total: Counts,
    loss: Loss,
}

impl Nets {
    /// Counts what each net caught of `events`.
    fn of(events: &[Seen]) -> Self {
        let is_watched = |event: &&Seen| event.by.iter().any(|net| matches!(net, Net::Feed | Net::Recovery));
        let watched = events.iter().filter(is_watched);
        let watched: BTreeSet<&str> = watched.filter_map(|event| event.repository.as_deref()).collect();
        let mut nets = Self::default();
        let mut comparable = Counts::default();
        // A queue's messages are nothing that GitHub could tell of in another way.
        for event in events.iter().filter(|event| event.kind != Kind::QueueMessage) {
            nets.kinds.entry(event.kind.as_str()).or_default().add(&event.by);
            nets.total.add(&event.by);
            let is_watched = event.repository.as_deref().is_some_and(|name| watched.contains(name));
            if is_watched && is_told_by_feeds(event.kind) {
                comparable.add(&event.by);
            }
        }
        nets.loss = Loss::new(comparable.lost, comparable.events);
        nets
    }
}

/// What came of looking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Gaps {
    /// Nothing admitted earlier was looked at.
    since: Time,
    /// Whether as many events were looked through as ever are, so that older ones may be missing.
    truncated: bool,
    #[serde(flatten)]
    nets: Nets,
    /// Which events were lost, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<Vec<LostEvent>>,
}

/// Whether a feed tells of such a happening, so that it is noticed where the webhook did not.
fn is_told_by_feeds(kind: Kind) -> bool {
    match kind {
        Kind::PullRequestOpened
        | Kind::PullRequestMerged
        | Kind::PullRequestClosed
        | Kind::Comment
        | Kind::Review
        | Kind::ReviewComment
        | Kind::CheckFailure
        | Kind::IssueOpened
        | Kind::IssueClosed
        | Kind::ReleasePublished => true,
        Kind::CheckRunCompleted | Kind::CheckSuiteCompleted | Kind::Push | Kind::QueueMessage => false,
    }
}

impl fmt::Display for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |name: &str, counts: &Counts| {
            let [events, webhook, feed, recovery, both, lost] = counts.cells();
            [name.to_owned(), events, webhook, feed, recovery, both, lost]
        };
        let kinds = self.nets.kinds.iter();
        let mut rows: Vec<[String; 7]> = kinds.map(|(kind, counts)| row(kind, counts)).collect();
        rows.push(row("in all", &self.nets.total));
        let head = [
            "kind",
            "events",
            "webhook only",
            "feed only",
            "recovery only",
            "feed and recovery",
            "lost",
        ];
        for line in table::lines(head, &rows) {
            writeln!(f, "{line}")?;
        }
        write!(f, "\nsince {}: {}", self.since, self.nets.loss)?;
        let others = self.nets.total.lost.saturating_sub(self.nets.loss.lost);
        if others > 0 {
            write!(
                f,
                "\nbesides, webhooks lost {others} of kinds that feeds do not tell of"
            )?;
        }
        if self.truncated {
            write!(f, "\nonly the newest {LOOKED_THROUGH_MAX} events were looked through")?;
        }
        let Some(lost) = self.lost.as_ref().filter(|lost| !lost.is_empty()) else {
            return Ok(());
        };
        let rows: Vec<[String; 5]> = lost
            .iter()
            .map(|event| {
                [
                    event.admitted_at.to_string(),
                    event.kind.to_owned(),
                    event.subject.clone(),
                    event.seen_by.join(" "),
                    event.event.clone(),
                ]
            })
            .collect();
        writeln!(f)?;
        for line in table::lines(["admitted", "kind", "subject", "seen by", "event"], &rows) {
            write!(f, "\n{line}")?;
        }
        Ok(())
    }
}

/// Counts what each net caught.
pub(crate) async fn run(args: &GapsArgs, output: Output) -> Result<(), Error> {
    let connected = Connected::find(&args.stack).await?;
    let now = System.now();
    let since = args.since.before(now);
    let listing = listing::recent(&connected, since, now, LOOKED_THROUGH_MAX);
    let rows = answered(connected.ledger.events(&listing).await)?;
    let seen: Vec<Seen> = rows.iter().map(Seen::of).collect();
    let is_lost = |row: &&EventRow| row.event.kind != Kind::QueueMessage && !row.seen_by.contains(&Net::Webhook);
    let lost = || rows.iter().filter(is_lost).map(LostEvent::of).collect();
    output.result(&Gaps {
        since: Time(since),
        truncated: rows.len() >= LOOKED_THROUGH_MAX,
        nets: Nets::of(&seen),
        lost: args.list.then(lost),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(kind: Kind, repository: &str, by: &[Net]) -> Seen {
        Seen {
            kind,
            repository: Some(repository.to_owned()),
            by: by.iter().copied().collect(),
        }
    }

    /// One of each: seen by both, by the webhook alone, by the feed alone, by recovery alone, and by both but the webhook.
    fn comments() -> Vec<Seen> {
        [
            [Net::Webhook, Net::Feed],
            [Net::Webhook, Net::Webhook],
            [Net::Feed, Net::Feed],
            [Net::Recovery, Net::Recovery],
            [Net::Feed, Net::Recovery],
        ]
        .map(|by| seen(Kind::Comment, "acme/app", &by))
        .into()
    }

    #[test]
    fn what_no_webhook_told_of_is_lost_whichever_other_nets_caught_it() {
        let nets = Nets::of(&comments());
        let counts = Counts {
            events: 5,
            webhook_only: 1,
            feed_only: 1,
            recovery_only: 1,
            lost: 3,
        };
        assert_eq!(nets.kinds, BTreeMap::from([("comment", counts)]));
        assert_eq!((nets.total, nets.loss), (counts, Loss::new(3, 5)));
        assert_eq!(
            nets.loss.to_string(),
            "webhooks lost 60.00 % of what feeds tell of (3 of 5)"
        );
    }

    #[test]
    fn the_rate_is_of_what_another_net_would_have_noticed() {
        let mut events = comments();
        // No feed tells of a push, and nothing watches the other repository: neither says anything of the webhook.
        events.push(seen(Kind::Push, "acme/app", &[Net::Webhook]));
        events.push(seen(Kind::Push, "acme/app", &[Net::Recovery]));
        events.push(seen(Kind::Comment, "acme/site", &[Net::Webhook]));
        let nets = Nets::of(&events);
        assert_eq!(nets.loss, Loss::new(3, 5));
        assert_eq!(
            (nets.total.events, nets.total.lost, nets.total.recovery_only),
            (8, 4, 2)
        );
        assert_eq!(nets.kinds["push"].lost, 1);
    }

    #[test]
    fn queues_lose_nothing_and_of_nothing_there_is_no_rate() {
        let queued = Seen {
            kind: Kind::QueueMessage,
            repository: None,
            by: BTreeSet::from([Net::Queue]),
        };
        assert_eq!(Nets::of(&[queued]), Nets::default());
        let alone = Nets::of(&[seen(Kind::Comment, "acme/app", &[Net::Webhook])]);
        assert_eq!((alone.loss.of, alone.loss.basis_points), (0, None));
        assert!(alone.loss.to_string().starts_with("no rate"));
    }

    #[test]
    fn a_rate_has_two_places_and_rounds_down() {
        assert_eq!(Loss::new(1, 3).basis_points, Some(3_333));
        assert!(Loss::new(1, 700).to_string().contains(" 0.14 % "));
        assert!(Loss::new(0, 7).to_string().contains(" 0.00 % "));
    }

    #[test]
    fn people_get_a_table_and_a_sentence_and_programs_one_value() {
        let since = Time("2026-11-16T15:40:00Z".parse().unwrap());
        let gaps = Gaps {
            since,
            truncated: true,
            nets: Nets::of(&[seen(Kind::Comment, "acme/app", &[Net::Feed])]),
            lost: Some(vec![LostEvent {
                admitted_at: since,
                kind: "comment",
                subject: "acme/app#1".to_owned(),
                seen_by: vec!["feed"],
                event: "github/comment/7".to_owned(),
            }]),
        };
        let expected = "\
kind     events  webhook only  feed only  recovery only  feed and recovery  lost
comment  1       0             1          0              0                  1
in all   1       0             1          0              0                  1

since 2026-11-16T15:40:00Z: webhooks lost 100.00 % of what feeds tell of (1 of 1)
only the newest 10000 events were looked through

admitted              kind     subject     seen by  event
2026-11-16T15:40:00Z  comment  acme/app#1  feed     github/comment/7";
        assert_eq!(gaps.to_string(), expected);
        let value = serde_json::to_value(&gaps).unwrap();
        assert_eq!(value["loss"]["basis_points"], 10_000);
        assert_eq!(value["kinds"]["comment"]["feed_only"], 1);
        assert_eq!(value["lost"][0]["event"], "github/comment/7");
    }
}
