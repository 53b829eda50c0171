//! `forebay show`: everything that the ledger knows of one delivery or event.

use std::fmt;

use clap::Args;
use forebay_core::delivery::{DeliveryKey, Guid, HookId, Outcome};
use forebay_core::event::EventId;
use forebay_core::ports::Ledger as _;
use jiff::SignedDuration;
use serde::Serialize;

use crate::connect::{Connected, StackRef, answered};
use crate::error::Error;
use crate::listing;
use crate::output::Output;
use crate::time::Since;
use crate::view::{DeliveryView, EventView};

/// How far back a GUID without its hook is looked for, in days. GitHub shows its deliveries no longer than that.
const LOOKED_BACK_DAYS: i64 = 3;

/// What to show.
#[derive(Args, Clone, Debug)]
pub(crate) struct ShowArgs {
    /// A delivery as `<hook>/<guid>`, a GUID alone, or an event's id such as `github/comment/7`
    id: String,
    /// The hook that sent the GUID [default: any whose delivery is listed, in the last three days]
    ///
    /// Needed where another delivery told of the same happening first: only the first is listed.
    #[arg(long)]
    hook: Option<String>,
    /// Print the body's exact bytes and nothing else
    #[arg(long)]
    body: bool,
    #[command(flatten)]
    stack: StackRef,
}

/// What an id names.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    Delivery(DeliveryKey),
    Guid(Guid),
    Event(EventId),
}

impl Named {
    /// What `id` spells, sent by `hook` if that is given. `None` where it can be nothing of ours.
    fn parse(id: &str, hook: Option<&str>) -> Option<Self> {
        if let Some(hook) = hook {
            let (hook, guid) = (HookId::parse(Some(hook))?, Guid::parse(id)?);
            return Some(Self::Delivery(DeliveryKey { hook, guid }));
        }
        let delivery = DeliveryKey::parse(id).map(Self::Delivery);
        let guid = || Guid::parse(id).map(Self::Guid);
        let event = || (!id.is_empty()).then(|| Self::Event(EventId::new(id)));
        delivery.or_else(guid).or_else(event)
    }
}

/// A delivery and its event, or one of them.
#[derive(Serialize)]
struct Shown {
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<DeliveryView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<EventView>,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.delivery, &self.event) {
            (Some(delivery), Some(event)) => write!(f, "{delivery}\n\n{event}"),
            (Some(delivery), None) => delivery.fmt(f),
            (None, Some(event)) => event.fmt(f),
            (None, None) => Ok(()),
        }
    }
}

/// Shows what an id names, or prints its body.
pub(crate) async fn run(args: &ShowArgs, output: Output) -> Result<(), Error> {
    let nothing = || {
        Error::new(
            format!("show {}: the ledger has nothing under that id", args.id),
            "copy an id from `cargo forebay deliveries` or `cargo forebay events`; a GUID needs its --hook where it \
             is older than three days, or where another delivery told the same happening first",
        )
    };
    let named = Named::parse(&args.id, args.hook.as_deref()).ok_or_else(nothing)?;
    let connected = Connected::find(&args.stack).await?;
    if args.body {
        if let Named::Event(id) = &named
            && let Some(content) = answered(connected.ledger.content(id).await)?
        {
            // What a queue said is kept with its event.
            return output.bytes(content.as_bytes());
        }
        if let Named::Event(id) = &named
            && let Some(row) = answered(connected.ledger.event(id).await)?
            && row.event.delivery.is_none()
        {
            return Err(Error::new(
                format!("show the body of {id}: a feed told of it first, and no body is kept of what feeds show"),
                "leave --body out; where a webhook told of it later, show that delivery",
            ));
        }
        let key = delivery_of(&connected, named).await?.ok_or_else(nothing)?;
        let body = answered(connected.ledger.body(&key).await)?.ok_or_else(nothing)?;
        return output.bytes(&body);
    }
    let shown = match named {
        Named::Delivery(key) => vec![delivery(&connected, &key).await?],
        Named::Event(id) => vec![event(&connected, &id).await?],
        Named::Guid(guid) => {
            let mut shown = Vec::new();
            for key in with_guid(&connected, &guid).await? {
                shown.push(delivery(&connected, &key).await?);
            }
            shown
        }
    };
    let shown: Vec<Shown> = shown.into_iter().flatten().collect();
    if shown.is_empty() {
        return Err(nothing());
    }
    shown.iter().try_for_each(|shown| output.result(shown))
}

/// The delivery whose body is meant.
async fn delivery_of(connected: &Connected, named: Named) -> Result<Option<DeliveryKey>, Error> {
    match named {
        Named::Delivery(key) => Ok(Some(key)),
        // One happening has one body, whichever hook sent it.
        Named::Guid(guid) => Ok(with_guid(connected, &guid).await?.into_iter().next()),
        Named::Event(id) => {
            let row = answered(connected.ledger.event(&id).await)?;
            Ok(row.and_then(|row| row.event.delivery))
        }
    }
}

async fn with_guid(connected: &Connected, guid: &Guid) -> Result<Vec<DeliveryKey>, Error> {
    let since = Since::Span(SignedDuration::from_hours(24 * LOOKED_BACK_DAYS));
    listing::with_guid(connected, guid.as_str(), since).await
}

/// A delivery, with the event that it means.
async fn delivery(connected: &Connected, key: &DeliveryKey) -> Result<Option<Shown>, Error> {
    let Some(row) = answered(connected.ledger.delivery(key).await)? else {
        return Ok(None);
    };
    let event = match &row.delivery.outcome {
        Outcome::Accepted(event) => answered(connected.ledger.event(event).await)?,
        Outcome::Ignored(_) | Outcome::Malformed(_) => None,
    };
    Ok(Some(Shown {
        delivery: Some(DeliveryView::of(&row)),
        event: event.as_ref().map(EventView::of),
    }))
}

/// An event, with the delivery that told of it first.
async fn event(connected: &Connected, id: &EventId) -> Result<Option<Shown>, Error> {
    let Some(row) = answered(connected.ledger.event(id).await)? else {
        return Ok(None);
    };
    let delivery = match &row.event.delivery {
        Some(key) => answered(connected.ledger.delivery(key).await)?,
        None => None,
    };
    Ok(Some(Shown {
        delivery: delivery.as_ref().map(DeliveryView::of),
        event: Some(EventView::of(&row)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUID: &str = "758d61f2-c6a4-11f1-8444-8384e5c4468a";

    #[test]
    fn an_id_names_a_delivery_a_guid_or_an_event() {
        let key = DeliveryKey::parse(&format!("42/{GUID}")).unwrap();
        let guid = Guid::parse(GUID).unwrap();
        assert_eq!(Named::parse(&key.to_string(), None), Some(Named::Delivery(key.clone())));
        assert_eq!(Named::parse(GUID, Some("42")), Some(Named::Delivery(key)));
        assert_eq!(Named::parse(GUID, None), Some(Named::Guid(guid)));
        for id in ["github/comment/7", &format!("github/push/840412345/{GUID}")] {
            assert_eq!(Named::parse(id, None), Some(Named::Event(EventId::new(id))), "{id}");
        }
        assert_eq!(Named::parse("", None), None);
        assert_eq!(
            Named::parse("github/comment/7", Some("42")),
            None,
            "an event has no hook"
        );
    }
}
