//! `forebay events` and `forebay deliveries`: what happened lately.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use forebay_aws::clock::System;
use forebay_core::delivery::DeliveryKey;
use forebay_core::event::{Event, Kind, Repository};
use forebay_core::ledger::EventRow;
use forebay_core::ports::{Ledger as _, Listed, Listing, TimeAndChance as _};
use jiff::Timestamp;

use crate::connect::{Connected, StackRef, answered};
use crate::error::Error;
use crate::output::Output;
use crate::table;
use crate::time::Since;
use crate::view::{DeliveryView, EventView};

/// Most rows that are shown.
const SHOWN_MAX: u32 = 10_000;
/// Most rows that are looked through for those that are asked for.
const LOOKED_THROUGH_MAX: usize = 10_000;

const NOTHING: &str = "nothing in this time that is asked for; look further back with --since, or leave a filter out";

/// What to list.
#[derive(Args, Clone, Debug)]
pub(crate) struct ListingArgs {
    /// Nothing older: a span such as 15m, 2h or 3d, or a time such as 2026-11-16T15:40:00Z
    #[arg(long, default_value = "24h", value_parser = Since::parse)]
    since: Since,
    /// Only events of this kind
    #[arg(long, value_parser = kind_parser())]
    kind: Option<Kind>,
    /// Only what happened in this repository
    #[arg(long, value_name = "OWNER/NAME", value_parser = repository)]
    repository: Option<Repository>,
    /// Show at most so many, the newest
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(SHOWN_MAX)))]
    limit: u32,
    #[command(flatten)]
    stack: StackRef,
}

fn kind_parser() -> impl clap::builder::TypedValueParser<Value = Kind> {
    let words = Kind::ALL.iter().map(|kind| kind.as_str());
    PossibleValuesParser::new(words).try_map(|word| Kind::from_word(&word).ok_or("no such kind"))
}

fn repository(text: &str) -> Result<Repository, &'static str> {
    Repository::new(text).ok_or("name a repository as owner/name")
}

impl ListingArgs {
    /// Whether some events are left out whatever the limit.
    fn has_filter(&self) -> bool {
        self.kind.is_some() || self.repository.is_some()
    }

    fn wants(&self, event: &Event) -> bool {
        let kind = self.kind.is_none_or(|kind| event.kind == kind);
        let key = self.repository.as_ref().map(Repository::key);
        kind && key.is_none_or(|key| event.subject.repository().map(Repository::key) == Some(key))
    }

    fn limit(&self) -> usize {
        usize::try_from(self.limit).unwrap_or(usize::MAX)
    }

    /// The newest events that are asked for.
    async fn wanted_events(&self, connected: &Connected, now: Timestamp) -> Result<Vec<EventRow>, Error> {
        let looked_through = if self.has_filter() {
            LOOKED_THROUGH_MAX
        } else {
            self.limit()
        };
        let listing = recent(connected, self.since.before(now), now, looked_through);
        let mut rows = answered(connected.ledger.events(&listing).await)?;
        rows.retain(|row| self.wants(&row.event));
        rows.truncate(self.limit());
        Ok(rows)
    }
}

/// A listing from `since` to `now`, with what a clock may run ahead.
pub(crate) fn recent(connected: &Connected, since: Timestamp, now: Timestamp, limit: usize) -> Listing {
    Listing {
        // The method that is called decides.
        what: Listed::Events,
        since,
        until: now.saturating_add(connected.config.limits.skew).unwrap_or(now),
        limit,
    }
}

/// Lists events.
pub(crate) async fn events(args: &ListingArgs, output: Output) -> Result<(), Error> {
    let connected = Connected::find(&args.stack).await?;
    let rows = args.wanted_events(&connected, System.now()).await?;
    let views: Vec<EventView> = rows.iter().map(EventView::of).collect();
    if views.is_empty() {
        output.note(NOTHING);
    }
    output.list(&views, || {
        let rows: Vec<[String; 6]> = views
            .iter()
            .map(|view| {
                [
                    view.admitted_at.to_string(),
                    view.kind.to_owned(),
                    view.subject.clone(),
                    view.standing(),
                    view.inboxes(),
                    view.id.clone(),
                ]
            })
            .collect();
        table::lines(["admitted", "kind", "subject", "status", "inboxes", "event"], &rows)
    })
}

/// Lists deliveries: those that mean no event by themselves, the others by their events.
pub(crate) async fn deliveries(args: &ListingArgs, output: Output) -> Result<(), Error> {
    let connected = Connected::find(&args.stack).await?;
    let now = System.now();
    let events = args.wanted_events(&connected, now).await?;
    let mut views = Vec::new();
    for key in events.iter().filter_map(|row| row.event.delivery.as_ref()) {
        let row = answered(connected.ledger.delivery(key).await)?;
        views.extend(row.as_ref().map(DeliveryView::of));
    }
    // What means no event has neither a kind nor a repository.
    if !args.has_filter() {
        let listing = recent(&connected, args.since.before(now), now, args.limit());
        let rows = answered(connected.ledger.deliveries(&listing).await)?;
        views.extend(rows.iter().map(DeliveryView::of));
    }
    views.sort_by_key(|view| std::cmp::Reverse(view.received_at));
    views.truncate(args.limit());
    if views.is_empty() {
        output.note(NOTHING);
    }
    output.list(&views, || {
        let rows: Vec<[String; 6]> = views
            .iter()
            .map(|view| {
                [
                    view.received_at.to_string(),
                    view.event_name.clone(),
                    view.outcome.to_owned(),
                    view.size.to_string(),
                    view.key.clone(),
                    view.meaning(),
                ]
            })
            .collect();
        table::lines(["received", "name", "outcome", "bytes", "delivery", "event"], &rows)
    })
}

/// Keys of the deliveries with this GUID, from every hook, that came since `since`: those that first told of their event,
/// and those that mean none.
pub(crate) async fn with_guid(connected: &Connected, guid: &str, since: Since) -> Result<Vec<DeliveryKey>, Error> {
    let now = System.now();
    let listing = recent(connected, since.before(now), now, LOOKED_THROUGH_MAX);
    let events = answered(connected.ledger.events(&listing).await)?;
    let others = answered(connected.ledger.deliveries(&listing).await)?;
    let keys = events.into_iter().filter_map(|row| row.event.delivery);
    let keys = keys.chain(others.into_iter().map(|row| row.delivery.key));
    Ok(keys.filter(|key| key.guid.as_str() == guid).collect())
}
