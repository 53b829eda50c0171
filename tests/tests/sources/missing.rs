//! Missing deliveries, on both ledgers.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_core::delivery::{Delivery, DeliveryKey, Ignored, Outcome};
use forebay_core::event::{Event, EventId, Net};
use forebay_core::ledger::{Admission, Admitted, EventAdmission, Nonce};
use forebay_core::ports::Ledger;
use forebay_core::source::SourceId;
use forebay_core::source::github::{Becomes, Lost, Missing, MissingStore, Word};
use forebay_tests::engine::{Embedded, Engine, Memory};
use forebay_tests::samples::*;

use super::at_once;

forebay_tests::promised_on_both!(
    <super::Memory as super::Engine>::start().await,
    <super::Embedded as super::Engine>::start().await;
    what_is_kept_is_told_of_more_than_a_hundred_at_once,
    what_is_missing_is_noted_whole_and_due_when_it_was_made,
    what_is_missing_is_noted_once_in_all_time,
    simultaneous_notes_of_a_page_are_each_new_once,
    what_is_due_is_the_logs_own_oldest_first_and_no_more_than_asked_for,
    what_was_asked_for_is_due_again_later_and_counts,
    what_is_noted_of_what_others_have_noted_since_changes_nothing,
    what_is_said_again_because_its_answer_was_lost_is_ours,
    what_is_here_or_lost_is_not_looked_at_again,
    what_is_settled_stays_settled,
    what_is_lost_can_be_listed_with_its_reason_newest_first,
    an_event_that_only_its_recovered_delivery_tells_of_belongs_to_recovery_alone,
    an_event_of_another_hooks_delivery_is_that_webhooks_too,
    an_event_that_a_feed_saw_first_stays_the_feeds,
    attributing_twice_changes_nothing_and_says_the_same,
    an_event_that_two_hooks_lost_is_lost_once,
    what_no_webhook_brought_or_nobody_has_is_not_attributed,
    a_delivery_without_event_is_attributed_by_itself,
    who_sees_the_event_meanwhile_is_never_forgotten,
);

// --- small steps ----------------------------------------------------------------------------------------------------------

pub(super) fn log(name: &str) -> SourceId {
    SourceId::new(&format!("github.com/deliveries/repository/acme/{name}"))
}

fn key(guid: &str) -> DeliveryKey {
    DeliveryKey::parse(&format!("42/{guid}")).unwrap()
}

/// Delivery `guid` of hook 42, made at `second`.
pub(super) fn missing(guid: &str, second: i64) -> Missing {
    Missing {
        key: key(guid),
        attempt_id: 9_000_000_000 + u64::from_str_radix(guid, 16).unwrap(),
        event_name: "issue_comment".to_owned(),
        delivered_at: at(second),
        too_large: false,
        asked: 0,
        due_at: at(second),
    }
}

async fn note(ledger: &impl MissingStore, log: &SourceId, rows: &[Missing]) -> u64 {
    ledger.note_missing(log, rows).await.unwrap()
}

async fn due(ledger: &impl MissingStore, log: &SourceId, second: i64, limit: usize) -> Vec<Missing> {
    ledger.due_missing(log, at(second), limit).await.unwrap()
}

/// The event that delivery `key` brought, as the webhook makes it.
fn event_of(key: &str, id: &str) -> Event {
    Event {
        delivery: DeliveryKey::parse(key),
        ..event(id)
    }
}

/// Admits delivery `key` as the webhook does, with the event that it means.
async fn arrives(ledger: &impl Ledger, key: &str, id: &str, nonce: u64) -> Admitted {
    let delivery = accepted(key, id);
    let admission = Admission {
        event: Some(claimed(event_of(key, id), nonce, at(0))),
        ..admission(&delivery, BODY, nonce)
    };
    ledger.admit(&admission).await.unwrap()
}

/// Admits event `id` as a feed does.
async fn shown(ledger: &impl Ledger, id: &str, nonce: u64) -> Admitted {
    let admittee = claimed(event(id), nonce, at(0));
    let admission = EventAdmission {
        admittee: &admittee,
        net: Net::Feed,
        received_at: at(0),
        nonce: Nonce::from_random(nonce),
        expires_at: at(0) + RETENTION,
    };
    ledger.admit_event(&admission).await.unwrap()
}

async fn seen(ledger: &impl Ledger, id: &str) -> (Net, BTreeSet<Net>) {
    let row = ledger.event(&EventId::new(id)).await.unwrap().unwrap();
    (row.first_seen, row.seen_by)
}

async fn net_of(ledger: &impl Ledger, key: &str) -> Net {
    let key = DeliveryKey::parse(key).unwrap();
    ledger.delivery(&key).await.unwrap().unwrap().delivery.net
}

async fn attribute(ledger: &impl MissingStore, key: &str) -> bool {
    ledger.attribute(&DeliveryKey::parse(key).unwrap()).await.unwrap()
}

// --- what is kept ---------------------------------------------------------------------------------------------------------

async fn what_is_kept_is_told_of_more_than_a_hundred_at_once(engine: impl Engine<Ledger: MissingStore>) {
    let ledger = engine.ledger();
    let keys: Vec<DeliveryKey> = (0..230).map(|number| key(&format!("{number:x}"))).collect();
    let here: Vec<&DeliveryKey> = keys.iter().step_by(50).collect();
    for key in &here {
        let ping = delivery(&key.to_string(), Outcome::Ignored(Ignored::Ping));
        admit(&*ledger, &ping, 1).await.unwrap();
    }
    let kept = ledger.kept(&keys).await.unwrap();
    assert_eq!(kept.iter().collect::<BTreeSet<_>>(), here.iter().copied().collect());
    assert_eq!(ledger.kept(&[]).await.unwrap(), BTreeSet::new());
    let twice = [keys[0].clone(), keys[1].clone(), keys[0].clone()];
    assert_eq!(ledger.kept(&twice).await.unwrap(), BTreeSet::from([keys[0].clone()]));
}

// --- what is missing ------------------------------------------------------------------------------------------------------

async fn what_is_missing_is_noted_whole_and_due_when_it_was_made(engine: impl Engine<Ledger: MissingStore>) {
    let ledger = engine.ledger();
    let plain = missing("a1", 10);
    let large = Missing {
        too_large: true,
        event_name: "pull_request".to_owned(),
        attempt_id: u64::MAX,
        ..missing("a2", 20)
    };
    let rows = [large.clone(), plain.clone()];
    assert_eq!(note(&*ledger, &log("app"), &rows).await, 2);
    assert_eq!(note(&*ledger, &log("app"), &[]).await, 0);
    assert_eq!(due(&*ledger, &log("app"), 9, 10).await, []);
    assert_eq!(due(&*ledger, &log("app"), 10, 10).await, std::slice::from_ref(&plain));
    assert_eq!(due(&*ledger, &log("app"), 20, 10).await, [plain, large]);
}

async fn what_is_missing_is_noted_once_in_all_time(engine: impl Engine<Ledger: MissingStore>) {
    let ledger = engine.ledger();
    let rows = [missing("a1", 10), missing("a2", 20), missing("a3", 30)];
    assert_eq!(note(&*ledger, &log("app"), &rows[..2]).await, 2);
    assert_eq!(note(&*ledger, &log("app"), &rows).await, 1);
    // A newer attempt of the same delivery is no other delivery.
    let newer = Missing {
        attempt_id: 1,
        due_at: at(5),
        ..rows[0].clone()
    };
    assert_eq!(note(&*ledger, &log("app"), &[newer]).await, 0);
    assert_eq!(due(&*ledger, &log("app"), 100, 10).await, rows);
    for (row, becomes) in rows
        .iter()
        .zip([Becomes::Asked(at(200)), Becomes::Here, Becomes::Lost("expired")])
    {
        ledger.settle_missing(&log("app"), row, becomes, at(100)).await.unwrap();
    }
    assert_eq!(note(&*ledger, &log("app"), &rows).await, 0, "also what is settled");
    assert_eq!(due(&*ledger, &log("app"), 100, 10).await, []);
}

async fn simultaneous_notes_of_a_page_are_each_new_once(engine: impl Engine<Ledger: MissingStore>) {
    let ledger = engine.ledger();
    let page: Vec<Missing> = (0..100).map(|number| missing(&format!("{number:x}"), number)).collect();
    let new = at_once(4, |_| {
        let (ledger, page) = (Arc::clone(&ledger), page.clone());
        async move { note(&*ledger, &log("app"), &page).await }
    });
    assert_eq!(new.await.iter().sum::<u64>(), 100);
    assert_eq!(due(&*ledger, &log("app"), 1_000, 200).await, page);
}

async fn what_is_due_is_the_logs_own_oldest_first_and_no_more_than_asked_for(
    engine: impl Engine<Ledger: MissingStore>,
) {
    let ledger = engine.ledger();
    let ours = [missing("a3", 30), missing("a1", 10), missing("a2", 20)];
    note(&*ledger, &log("app"), &ours).await;
    note(&*ledger, &log("other"), &[missing("b1", 5)]).await;
    let [third, first, second] = ours;
    let all = [first, second, third];
    assert_eq!(due(&*ledger, &log("app"), 100, 10).await, all);
    assert_eq!(due(&*ledger, &log("app"), 100, 2).await, all[..2]);
    assert_eq!(due(&*ledger, &log("app"), 100, 0).await, []);
    assert_eq!(due(&*ledger, &log("app"), 29, 10).await, all[..2]);
    assert_eq!(due(&*ledger, &log("other"), 100, 10).await, [missing("b1", 5)]);
    assert_eq!(due(&*ledger, &log("third"), 100, 10).await, []);
}

async fn what_was_asked_for_is_due_again_later_and_counts(engine: impl Engine<Ledger: MissingStore>) {
    let ledger = engine.ledger();
    let first = missing("a1", 10);
    note(&*ledger, &log("app"), std::slice::from_ref(&first)).await;
    let mut known = first;
    for asked in 1..=3 {
        let due_at = at(i64::from(asked) * 300);
        ledger
            .settle_missing(&log("app"), &known, Becomes::Asked(due_at), at(100))
            .await
            .unwrap();
        let expected = Missing { asked, due_at, ..known };
        assert_eq!(due(&*ledger, &log("app"), i64::from(asked) * 300 - 1, 10).await, []);
        assert_eq!(
            due(&*ledger, &log("app"), i64::from(asked) * 300, 10).await,
            std::slice::from_ref(&expected)
        );
        known = expected;
    }
    // What came to nothing is due again as well, and was no attempt: not even if it had been noted as one.
    for (becomes, asked, due_at) in [
        (put_off(1_500, 3), 3, at(1_500)),
        (Becomes::Asked(at(2_000)), 4, at(2_000)),
        (put_off(1_500, 3), 3, at(1_500)),
        (put_off(2_500, 0), 0, at(2_500)),
        (put_off(3_000, 0), 0, at(3_000)),
    ] {
        let word = ledger.settle_missing(&log("app"), &known, becomes, at(100)).await;
        assert_eq!(word.unwrap(), Word::Ours, "{becomes:?}");
        let expected = Missing { asked, due_at, ..known };
        assert_eq!(
            due(&*ledger, &log("app"), 10_000, 10).await,
            std::slice::from_ref(&expected),
            "{becomes:?}"
        );
        known = expected;
    }
}

fn put_off(second: i64, asked: u32) -> Becomes {
    let due_at = at(second);
    Becomes::PutOff { due_at, asked }
}

async fn what_is_noted_of_what_others_have_noted_since_changes_nothing(engine: impl Engine<Ledger: MissingStore>) {
    // Invariant 4: a frozen poller knows of a row as it was.
    let ledger = engine.ledger();
    let first = missing("a1", 10);
    note(&*ledger, &log("app"), std::slice::from_ref(&first)).await;
    let mut before = first;
    for (becomes, asked, due_at) in [
        (Becomes::Asked(at(300)), 1, at(300)),
        (put_off(900, 1), 1, at(900)),
        (put_off(900, 0), 0, at(900)),
        (Becomes::Asked(at(900)), 1, at(900)),
    ] {
        let word = ledger.settle_missing(&log("app"), &before, becomes, at(100)).await;
        assert_eq!(word.unwrap(), Word::Ours, "{becomes:?}");
        let now = Missing {
            asked,
            due_at,
            ..before.clone()
        };
        for late in [Becomes::Asked(at(400)), put_off(10, 0), put_off(500, 7)] {
            let word = ledger.settle_missing(&log("app"), &before, late, at(101)).await;
            assert_eq!(word.unwrap(), Word::Theirs, "{late:?} behind {becomes:?}");
            let there = due(&*ledger, &log("app"), 10_000, 10).await;
            assert_eq!(there, std::slice::from_ref(&now), "{late:?} behind {becomes:?}");
        }
        before = now;
    }
}

async fn what_is_said_again_because_its_answer_was_lost_is_ours(engine: impl Engine<Ledger: MissingStore>) {
    let ledger = engine.ledger();
    let cases = [
        (missing("a1", 10), Becomes::Asked(at(300))),
        (missing("a2", 10), put_off(300, 0)),
        (missing("a3", 10), Becomes::Here),
        (missing("a4", 10), Becomes::Lost("gone")),
    ];
    for (row, becomes) in cases {
        note(&*ledger, &log("app"), std::slice::from_ref(&row)).await;
        for _ in 0..2 {
            let word = ledger.settle_missing(&log("app"), &row, becomes, at(100)).await;
            assert_eq!(word.unwrap(), Word::Ours, "{becomes:?}");
        }
        // Whoever says something else, or the same of a settled one at another time, is somebody else.
        for other in [Becomes::Here, Becomes::Lost("expired")] {
            if row.noted(becomes).is_none() {
                let word = ledger.settle_missing(&log("app"), &row, other, at(105)).await;
                assert_eq!(word.unwrap(), Word::Theirs, "{other:?} behind {becomes:?}");
            }
        }
    }
}

async fn what_is_here_or_lost_is_not_looked_at_again(engine: impl Engine<Ledger: MissingStore>) {
    let ledger = engine.ledger();
    let rows = [missing("a1", 10), missing("a2", 20), missing("a3", 30)];
    note(&*ledger, &log("app"), &rows).await;
    for (row, becomes) in rows.iter().zip([Becomes::Here, Becomes::Lost("too_large")]) {
        ledger.settle_missing(&log("app"), row, becomes, at(100)).await.unwrap();
    }
    assert_eq!(due(&*ledger, &log("app"), 10_000, 10).await, rows[2..]);
    // Somebody else's, or nobody's.
    let unknown = missing("ff", 1);
    for becomes in [Becomes::Here, Becomes::Asked(at(50)), put_off(50, 0)] {
        let word = ledger.settle_missing(&log("app"), &unknown, becomes, at(100)).await;
        assert_eq!(word.unwrap(), Word::Theirs, "{becomes:?}");
    }
    assert_eq!(due(&*ledger, &log("app"), 10_000, 10).await, rows[2..]);
    assert_eq!(note(&*ledger, &log("app"), &[unknown]).await, 1);
}

async fn what_is_settled_stays_settled(engine: impl Engine<Ledger: MissingStore>) {
    // Invariant 4: a frozen poller says what it found before somebody else was there.
    let ledger = engine.ledger();
    let row = missing("a1", 10);
    note(&*ledger, &log("app"), std::slice::from_ref(&row)).await;
    for becomes in [
        Becomes::Here,
        Becomes::Asked(at(200)),
        put_off(200, 0),
        Becomes::Lost("expired"),
        Becomes::Here,
    ] {
        ledger
            .settle_missing(&log("app"), &row, becomes, at(100))
            .await
            .unwrap();
        assert_eq!(due(&*ledger, &log("app"), 10_000, 10).await, [], "{becomes:?}");
    }
    assert_eq!(note(&*ledger, &log("app"), &[row]).await, 0);
}

async fn what_is_lost_can_be_listed_with_its_reason_newest_first(engine: impl Engine<Ledger: MissingStore>) {
    let ledger = engine.ledger();
    let rows = [missing("a1", 10), missing("a2", 20), missing("a3", 30)];
    note(&*ledger, &log("app"), &rows).await;
    let other = missing("b1", 40);
    note(&*ledger, &log("other"), std::slice::from_ref(&other)).await;
    let asked = Missing {
        asked: 6,
        due_at: at(90),
        ..rows[0].clone()
    };
    let settle = async |log: SourceId, row: &Missing, becomes, second| {
        ledger.settle_missing(&log, row, becomes, at(second)).await.unwrap();
    };
    settle(log("app"), &rows[0], put_off(80, 5), 70).await;
    let five = rows[0].noted(put_off(80, 5)).unwrap();
    settle(log("app"), &five, Becomes::Asked(at(90)), 80).await;
    settle(log("app"), &asked, Becomes::Lost("asked_too_often"), 100).await;
    settle(log("app"), &rows[1], Becomes::Here, 110).await;
    settle(log("app"), &rows[2], Becomes::Asked(at(200)), 110).await;
    settle(log("other"), &other, Becomes::Lost("expired"), 120).await;
    // What is lost stays so, and since then.
    settle(log("other"), &other, Becomes::Lost("gone"), 130).await;
    let lost = |of: &Missing, reason: &str, since| Lost {
        key: of.key.clone(),
        event_name: of.event_name.clone(),
        delivered_at: of.delivered_at,
        asked: of.asked,
        reason: reason.to_owned(),
        since: at(since),
    };
    let all = [lost(&other, "expired", 120), lost(&asked, "asked_too_often", 100)];
    assert_eq!(ledger.lost(at(0), 10).await.unwrap(), all);
    assert_eq!(ledger.lost(at(0), 1).await.unwrap(), all[..1]);
    assert_eq!(ledger.lost(at(101), 10).await.unwrap(), all[..1]);
    assert_eq!(ledger.lost(at(121), 10).await.unwrap(), []);
}

// --- who has seen it ------------------------------------------------------------------------------------------------------

async fn an_event_that_only_its_recovered_delivery_tells_of_belongs_to_recovery_alone(
    engine: impl Engine<Ledger: MissingStore>,
) {
    let ledger = engine.ledger();
    arrives(&*ledger, "42/a1", "e", 1).await;
    let before = ledger.event(&EventId::new("e")).await.unwrap().unwrap();
    assert!(attribute(&*ledger, "42/a1").await);
    let after = ledger.event(&EventId::new("e")).await.unwrap().unwrap();
    assert_eq!(
        (after.first_seen, &after.seen_by),
        (Net::Recovery, &BTreeSet::from([Net::Recovery]))
    );
    assert_eq!(
        (after.state, after.event),
        (before.state, before.event),
        "and nothing else"
    );
    assert_eq!(net_of(&*ledger, "42/a1").await, Net::Recovery);
}

async fn an_event_of_another_hooks_delivery_is_that_webhooks_too(engine: impl Engine<Ledger: MissingStore>) {
    // HOOK-06
    let ledger = engine.ledger();
    arrives(&*ledger, "77/a1", "e", 1).await;
    arrives(&*ledger, "42/a1", "e", 2).await;
    assert!(!attribute(&*ledger, "42/a1").await);
    let both = BTreeSet::from([Net::Webhook, Net::Recovery]);
    assert_eq!(seen(&*ledger, "e").await, (Net::Webhook, both));
    assert_eq!(net_of(&*ledger, "42/a1").await, Net::Recovery);
    assert_eq!(net_of(&*ledger, "77/a1").await, Net::Webhook);
}

async fn an_event_that_a_feed_saw_first_stays_the_feeds(engine: impl Engine<Ledger: MissingStore>) {
    let ledger = engine.ledger();
    shown(&*ledger, "e", 1).await;
    let joined = arrives(&*ledger, "42/a1", "e", 2).await;
    assert!(matches!(joined, Admitted::Joined { .. }), "{joined:?}");
    assert!(attribute(&*ledger, "42/a1").await, "webhooks had lost it");
    let both = BTreeSet::from([Net::Feed, Net::Recovery]);
    assert_eq!(seen(&*ledger, "e").await, (Net::Feed, both), "no webhook has seen it");
    // The other way round: the feed came behind.
    arrives(&*ledger, "42/a2", "f", 3).await;
    shown(&*ledger, "f", 4).await;
    assert!(attribute(&*ledger, "42/a2").await, "webhooks had lost it");
    let both = BTreeSet::from([Net::Feed, Net::Recovery]);
    assert_eq!(seen(&*ledger, "f").await, (Net::Recovery, both));
}

async fn attributing_twice_changes_nothing_and_says_the_same(engine: impl Engine<Ledger: MissingStore>) {
    // The poll that attributed may not have come to its end: it is done again, and counted then.
    let ledger = engine.ledger();
    arrives(&*ledger, "42/a1", "alone", 1).await;
    arrives(&*ledger, "77/a2", "both", 2).await;
    arrives(&*ledger, "42/a2", "both", 3).await;
    for (key, id, alone) in [("42/a1", "alone", true), ("42/a2", "both", false)] {
        assert_eq!(attribute(&*ledger, key).await, alone, "{id}");
        let first = ledger.event(&EventId::new(id)).await.unwrap();
        assert_eq!(attribute(&*ledger, key).await, alone, "{id} again");
        assert_eq!(ledger.event(&EventId::new(id)).await.unwrap(), first);
    }
    // Another hook told of it meanwhile: that is not taken away again.
    arrives(&*ledger, "77/a1", "alone", 4).await;
    assert!(!attribute(&*ledger, "42/a1").await);
    let both = BTreeSet::from([Net::Webhook, Net::Recovery]);
    assert_eq!(seen(&*ledger, "alone").await, (Net::Recovery, both));
}

async fn an_event_that_two_hooks_lost_is_lost_once(engine: impl Engine<Ledger: MissingStore>) {
    // HOOK-06: whichever of its deliveries is looked at first, and whatever brought it first.
    let ledger = engine.ledger();
    for (turn, order) in [["42", "77"], ["77", "42"]].into_iter().enumerate() {
        for is_shown in [false, true] {
            let (id, nonce) = (format!("{turn}{is_shown}"), 10 * u64::try_from(turn).unwrap());
            let guid = format!("a{turn}{}", u8::from(is_shown));
            if is_shown {
                shown(&*ledger, &id, nonce + 1).await;
            }
            arrives(&*ledger, &format!("42/{guid}"), &id, nonce + 2).await;
            arrives(&*ledger, &format!("77/{guid}"), &id, nonce + 3).await;
            let mut lost = 0;
            for hook in order {
                lost += u64::from(attribute(&*ledger, &format!("{hook}/{guid}")).await);
            }
            assert_eq!(lost, 1, "{order:?}, shown by a feed: {is_shown}");
        }
    }
}

async fn what_no_webhook_brought_or_nobody_has_is_not_attributed(engine: impl Engine<Ledger: MissingStore>) {
    let ledger = engine.ledger();
    assert!(!attribute(&*ledger, "42/a1").await);
    let reconstructed = Delivery {
        net: Net::Recovery,
        ..accepted("42/a2", "e")
    };
    let admission = Admission {
        event: Some(claimed(event_of("42/a2", "e"), 1, at(0))),
        ..admission(&reconstructed, BODY, 1)
    };
    ledger.admit(&admission).await.unwrap();
    let before = ledger.event(&EventId::new("e")).await.unwrap();
    attribute(&*ledger, "42/a2").await;
    assert_eq!(ledger.event(&EventId::new("e")).await.unwrap(), before);
    assert_eq!(ledger.event(&EventId::new("f")).await.unwrap(), None);
    assert_eq!(engine.counts().await, (1, 1));
}

async fn a_delivery_without_event_is_attributed_by_itself(engine: impl Engine<Ledger: MissingStore>) {
    let ledger = engine.ledger();
    let ping = delivery("42/a1", Outcome::Ignored(Ignored::Ping));
    admit(&*ledger, &ping, 1).await.unwrap();
    assert!(!attribute(&*ledger, "42/a1").await);
    assert_eq!(net_of(&*ledger, "42/a1").await, Net::Recovery);
}

async fn who_sees_the_event_meanwhile_is_never_forgotten(engine: impl Engine<Ledger: MissingStore>) {
    let ledger = engine.ledger();
    for turn in 0..10_u64 {
        let (id, key) = (format!("e{turn}"), format!("42/a{turn}"));
        arrives(&*ledger, &key, &id, 100 + turn).await;
        let raced = at_once(3, |racer| {
            let (ledger, id, key) = (Arc::clone(&ledger), id.clone(), key.clone());
            async move {
                match racer {
                    1 => assert!(matches!(
                        shown(&*ledger, &id, 200 + turn).await,
                        Admitted::Joined { .. }
                    )),
                    2 => drop(attribute(&*ledger, &key).await),
                    _ => drop(
                        ledger
                            .claim(&EventId::new(&id), claim(at(100), 300 + turn))
                            .await
                            .unwrap(),
                    ),
                }
            }
        });
        raced.await;
        let both = BTreeSet::from([Net::Feed, Net::Recovery]);
        assert_eq!(seen(&*ledger, &id).await, (Net::Recovery, both), "{id}");
        let row = ledger.event(&EventId::new(&id)).await.unwrap().unwrap();
        assert_eq!(row.state.token.number(), 2, "and the claim stands");
    }
}
