//! `forebay missing`: deliveries that GitHub made and the ledger lacks, waited for or lost.

use clap::Args;
use forebay_aws::clock::System;
use forebay_core::ports::TimeAndChance as _;
use forebay_core::source::github::{HookLog, Lost, Missing, MissingStore as _};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::connect::{Connected, StackRef, answered};
use crate::error::Error;
use crate::output::Output;
use crate::sources;
use crate::table;
use crate::time::Time;

/// Most deliveries that are listed of one log, and of all that is lost.
const LISTED_MAX: usize = 1_000;
/// How far back lost ones are looked for: the ledger remembers them for ten days.
const LOOK_BACK: SignedDuration = SignedDuration::from_hours(10 * 24);
const NOTHING: &str = "nothing is missing, as far as the logs have been read: `cargo forebay sources` shows when. A delivery is \
                       looked for two minutes after it was made";

/// Which stack's deliveries.
#[derive(Args, Clone, Debug)]
pub(crate) struct MissingArgs {
    #[command(flatten)]
    stack: StackRef,
}

/// A delivery that is not here, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct MissingView {
    delivery: String,
    /// Name of the webhook event.
    event_name: String,
    delivered_at: Time,
    /// How often GitHub has been asked to deliver it again.
    asked: u32,
    /// It has come, and recovery has not looked at it since.
    is_here: bool,
    /// When it is looked at again; `None` where it is lost.
    due_at: Option<Time>,
    /// Since when and why nobody will get it any more.
    lost_at: Option<Time>,
    reason: Option<String>,
}

impl MissingView {
    fn waiting(missing: Missing, is_here: bool) -> Self {
        Self {
            delivery: missing.key.to_string(),
            event_name: missing.event_name,
            delivered_at: Time(missing.delivered_at),
            asked: missing.asked,
            is_here,
            due_at: Some(Time(missing.due_at)),
            lost_at: None,
            reason: None,
        }
    }

    fn lost(lost: Lost) -> Self {
        Self {
            delivery: lost.key.to_string(),
            event_name: lost.event_name,
            delivered_at: Time(lost.delivered_at),
            asked: lost.asked,
            is_here: false,
            due_at: None,
            lost_at: Some(Time(lost.since)),
            reason: Some(lost.reason),
        }
    }

    fn row(&self) -> [String; 5] {
        [
            self.delivered_at.to_string(),
            self.event_name.clone(),
            self.asked.to_string(),
            match (&self.reason, self.due_at) {
                (Some(reason), _) => format!("lost: {reason}"),
                (None, Some(due_at)) if self.is_here => format!("here, and told to the metrics {due_at}"),
                (None, Some(due_at)) => format!("looked at again {due_at}"),
                (None, None) => String::new(),
            },
            self.delivery.clone(),
        ]
    }
}

/// Lists what is missing: first what may still come, in the order in which it is looked at, then what is lost, newest first.
pub(crate) async fn run(args: &MissingArgs, output: Output) -> Result<(), Error> {
    let connected = Connected::find(&args.stack).await?;
    let ledger = &connected.ledger;
    let mut views = Vec::new();
    for log in sources::known(&connected).await?.iter().filter(|id| HookLog::is_of(id)) {
        let waiting = answered(ledger.due_missing(log, Timestamp::MAX, LISTED_MAX).await)?;
        let keys: Vec<_> = waiting.iter().map(|missing| missing.key.clone()).collect();
        let here = answered(ledger.kept(&keys).await)?;
        let view = |missing: Missing| {
            let is_here = here.contains(&missing.key);
            MissingView::waiting(missing, is_here)
        };
        views.extend(waiting.into_iter().map(view));
    }
    views.sort_by_key(|view| view.due_at);
    let since = System.now().saturating_sub(LOOK_BACK).unwrap_or(Timestamp::MIN);
    let lost = answered(ledger.lost(since, LISTED_MAX).await)?;
    views.extend(lost.into_iter().map(MissingView::lost));
    if views.is_empty() {
        output.note(NOTHING);
    }
    output.list(&views, || {
        let rows: Vec<[String; 5]> = views.iter().map(MissingView::row).collect();
        table::lines(["made", "event", "asked", "what becomes of it", "delivery"], &rows)
    })
}

#[cfg(test)]
mod tests {
    use forebay_core::delivery::DeliveryKey;

    use super::*;

    #[test]
    fn what_may_still_come_says_when_it_is_looked_at_and_what_is_lost_says_why() {
        let key = DeliveryKey::parse("42/6f1c").unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let missing = Missing {
            key: key.clone(),
            attempt_id: 7,
            event_name: "push".to_owned(),
            delivered_at: at("2026-11-16T15:40:00Z"),
            too_large: false,
            asked: 1,
            due_at: at("2026-11-16T15:45:00Z"),
        };
        let here = MissingView::waiting(missing.clone(), true);
        assert_eq!(here.row()[3], "here, and told to the metrics 2026-11-16T15:45:00Z");
        let waiting = MissingView::waiting(missing, false);
        let lost = MissingView::lost(Lost {
            key,
            event_name: "push".to_owned(),
            delivered_at: at("2026-11-16T15:40:00Z"),
            asked: 6,
            reason: "asked_too_often".to_owned(),
            since: at("2026-11-17T15:40:00Z"),
        });
        let [made, event, asked, becomes, delivery] = waiting.row();
        assert_eq!((made.as_str(), event.as_str()), ("2026-11-16T15:40:00Z", "push"));
        assert_eq!((asked.as_str(), delivery.as_str()), ("1", "42/6f1c"));
        assert_eq!(becomes, "looked at again 2026-11-16T15:45:00Z");
        assert_eq!(lost.row()[3], "lost: asked_too_often");
        let value = serde_json::to_value(&lost).unwrap();
        assert_eq!(value["lost_at"], "2026-11-17T15:40:00Z");
        assert!(value["due_at"].is_null());
    }
}
