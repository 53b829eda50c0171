use super::lost_by_webhooks;
use crate::delivery::DeliveryKey;
use crate::event::{Event, Kind, Net};
use crate::ledger::{Admitted, EventRow, Nonce, State, Status, Token};
use crate::testing::{at, event};

fn row(first_seen: Net, seen_by: &[Net], delivery: Option<&str>) -> EventRow {
    EventRow {
        event: Event {
            delivery: delivery.and_then(DeliveryKey::parse),
            ..event(Kind::Comment)
        },
        state: State {
            status: Status::Processed,
            reason: None,
            token: Token::FIRST,
            nonce: Nonce::from_random(1),
            lease_until: None,
            failures: 0,
            tries: 0,
            due_at: None,
            waiting_for: None,
            destinations: std::collections::BTreeMap::new(),
            generation: 0,
            expires_at: None,
        },
        admitted_at: at(0),
        first_seen,
        seen_by: seen_by.iter().copied().collect(),
    }
}

#[test]
fn what_other_nets_catch_and_no_webhook_brings_after_all_adds_up_to_what_webhooks_lost() {
    let joined = |first_seen, seen_by: &[Net], is_new_to_net| Admitted::Joined {
        event: Some(Box::new(row(first_seen, seen_by, None))),
        is_new_to_net,
    };
    let created = Admitted::Created { lease: None };
    assert_eq!(lost_by_webhooks(&created, Net::Feed), Some((Net::Feed, 1)));
    assert_eq!(lost_by_webhooks(&created, Net::Webhook), None);
    let late = joined(Net::Feed, &[Net::Feed, Net::Webhook], true);
    assert_eq!(lost_by_webhooks(&late, Net::Webhook), Some((Net::Feed, -1)));
    // Another hook of ours tells of it as well: it was taken back already.
    let again = joined(Net::Feed, &[Net::Feed, Net::Webhook], false);
    assert_eq!(lost_by_webhooks(&again, Net::Webhook), None);
    // A feed that comes behind recovery changes nothing: webhooks have still lost it.
    let both = joined(Net::Recovery, &[Net::Feed, Net::Recovery], true);
    assert_eq!(lost_by_webhooks(&both, Net::Feed), None);
    let known = Admitted::Duplicate {
        conflict: false,
        event: None,
    };
    assert_eq!(lost_by_webhooks(&known, Net::Feed), None);
}

#[test]
fn a_delivery_that_was_asked_for_is_of_recovery_and_that_of_another_hook_stays_one_of_a_webhook() {
    let this = DeliveryKey::parse("42/6f1c").unwrap();
    let seen = |row: &EventRow| {
        let (first, seen_by) = row.recovered_through(&this);
        (first, seen_by.into_iter().collect::<Vec<_>>())
    };
    let by_this = row(Net::Webhook, &[Net::Webhook], Some("42/6f1c"));
    assert_eq!(seen(&by_this), (Net::Recovery, vec![Net::Recovery]));
    let with_feed = row(Net::Webhook, &[Net::Webhook, Net::Feed], Some("42/6f1c"));
    assert_eq!(seen(&with_feed), (Net::Recovery, vec![Net::Feed, Net::Recovery]));
    let feed_first = row(Net::Feed, &[Net::Webhook, Net::Feed], None);
    assert_eq!(seen(&feed_first), (Net::Feed, vec![Net::Feed, Net::Recovery]));
    let by_other_hook = row(Net::Webhook, &[Net::Webhook], Some("43/6f1c"));
    assert_eq!(seen(&by_other_hook), (Net::Webhook, vec![Net::Webhook, Net::Recovery]));
}
