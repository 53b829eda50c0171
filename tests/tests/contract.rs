//! The ledger's contract: every promise of the port, held by every engine.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of tests fails as a test does"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_core::delivery::{Delivery, DeliveryKey, Ignored, Malformed, Outcome};
use forebay_core::event::{Content, Event, EventId, Kind, Net, Subject};
use forebay_core::ledger::{
    Admitted, Claimed, DeliveryRow, EventAdmission, EventRow, Lease, Nonce, Raise, Reason, Refused, Sent, Settled,
    Settlement, Status, Term, Token,
};
use forebay_core::ports::{DUE_SHARDS, Due, DueQuery, Ledger, Listed, Listing, Raised, Redacted, Renewed};
use forebay_core::session::{Opened, OwnerKey, Pointer, Session, SessionId};
use forebay_tests::engine::{Embedded, Engine, Memory};
use forebay_tests::samples::*;
use jiff::Timestamp;
use tokio::task::JoinSet;

forebay_tests::promised_on_both!(
    <super::Memory as super::Engine>::start().await,
    <super::Embedded as super::Engine>::start().await;
    a_delivery_and_its_event_become_durable_together,
    a_delivery_that_means_nothing_is_kept_alone,
    a_settled_event_is_admitted_without_a_lease,
    a_second_copy_is_a_duplicate_and_changes_nothing,
    other_bytes_under_a_known_key_are_a_conflict_and_the_first_stay,
    other_bytes_that_mean_another_event_never_bring_that_event_along,
    other_bytes_that_mean_nothing_are_a_conflict_all_the_same,
    another_hooks_copy_is_kept_and_joins_the_one_event,
    an_event_that_has_ended_is_joined_and_stays_ended,
    an_admission_recognises_itself_behind_a_lost_answer,
    an_admission_without_event_recognises_itself_behind_a_lost_answer,
    an_admission_that_joined_recognises_itself_and_brings_no_right,
    simultaneous_admissions_of_one_delivery_create_it_once,
    simultaneous_admissions_without_event_create_the_delivery_once,
    simultaneous_copies_of_many_hooks_give_one_event,
    simultaneous_claims_of_one_event_have_one_winner,
    an_unknown_event_is_missing_and_not_an_error,
    a_running_lease_is_held_and_a_lapsed_one_is_taken_after_the_skew,
    a_dead_owner_is_replaced_at_the_first_try,
    a_claim_recognises_itself_behind_a_lost_answer,
    a_failed_event_is_claimed_from_its_due_time_on,
    a_parked_event_is_claimed_when_due_or_when_its_owner_appears,
    a_terminal_event_is_never_claimed_again,
    an_owner_who_appears_takes_nothing_that_is_held_or_not_due,
    a_claim_counts_as_a_failure_until_its_owner_says_otherwise,
    every_claim_has_a_higher_token,
    a_settlement_is_written_whole,
    a_settlement_recognises_itself_behind_a_lost_answer,
    a_stale_owner_settles_and_renews_nothing,
    a_lapsed_owner_settles_and_renews_nothing,
    an_owner_with_the_right_token_and_another_nonce_is_fenced,
    an_ended_event_is_neither_settled_again_nor_renewed,
    a_renewed_right_outlasts_the_first_lease,
    who_renews_in_time_works_on_alone_and_who_does_not_is_replaced,
    a_renewal_is_kept_to_its_last_moment_and_never_shortens_a_right,
    a_losing_duplicate_leaves_the_owners_row_as_it_is,
    a_recreated_row_refuses_the_earlier_lifes_owner,
    clocks_that_differ_decide_when_and_never_who,
    only_terminal_events_and_old_deliveries_expire,
    bodies_come_back_byte_for_byte,
    one_body_of_two_deliveries_outlives_the_first_of_them,
    a_delivery_keeps_what_it_arrived_with,
    an_event_keeps_every_field_and_any_text,
    hostile_and_over_long_names_fit_their_keys,
    listings_are_newest_first_within_their_times_and_their_limit,
    a_listing_crosses_the_border_of_days,
    a_listing_that_ends_before_it_begins_is_empty,
    a_listing_shows_what_its_call_is_named_after,
    pointers_are_read_together_and_asking_twice_is_asking_once,
    learning_a_pull_request_adds_to_what_is_known,
    a_pull_request_of_an_owned_branch_is_pointed_to_its_owner_unless_another_lives,
    a_session_opens_with_all_its_pointers_or_none,
    a_held_session_says_by_whom_and_leaves_no_trace,
    opening_again_prolongs_a_session,
    a_session_that_moves_gives_up_what_it_no_longer_names,
    a_lapsed_session_frees_what_it_owned_without_closing,
    a_session_for_a_branch_gets_the_pull_requests_that_were_learnt,
    closing_frees_what_the_session_owns_and_nothing_else,
    closing_twice_and_closing_the_unknown_are_harmless,
    closed_sessions_are_not_listed_and_the_limit_holds,
    simultaneous_sessions_for_one_pull_request_have_one_owner,
    parked_events_wait_under_their_key_until_somebody_claims_them,
    two_reapers_over_twenty_lapsed_rows_win_twenty_claims_together,
    what_is_due_is_listed_once_oldest_first_however_small_the_pages,
    what_is_held_ended_or_due_later_is_not_listed_as_due,
    a_raised_row_is_due_later_and_ends_at_the_ceiling,
    a_raise_after_its_own_claim_counts_once_and_recognises_itself,
    a_raise_leaves_alone_what_somebody_has_had_since_it_was_seen,
    an_owner_redacts_a_body_and_its_delivery_stays_a_duplicate_of_itself,
    a_stale_or_lapsed_owner_redacts_nothing,
    an_owner_redacts_only_what_its_event_came_by,
    an_event_that_is_its_own_record_is_admitted_once,
    an_event_that_is_its_own_record_joins_what_a_webhook_brought,
    an_admission_of_an_event_alone_recognises_itself_behind_a_lost_answer,
    simultaneous_admissions_of_one_message_create_it_once,
    what_a_message_said_comes_back_exactly_however_large,
);

// --- small steps --------------------------------------------------------------------------------------------------------

async fn row(ledger: &impl Ledger, id: &str) -> EventRow {
    ledger.event(&EventId::new(id)).await.unwrap().unwrap()
}

async fn won(ledger: &impl Ledger, id: &str, claim: forebay_core::ledger::Claim) -> Lease {
    match ledger.claim(&EventId::new(id), claim).await.unwrap() {
        Claimed::Won { lease, .. } => lease,
        Claimed::Lost(refused) => panic!("{id}: {refused}"),
    }
}

async fn lost(ledger: &impl Ledger, id: &str, claim: forebay_core::ledger::Claim) -> Refused {
    match ledger.claim(&EventId::new(id), claim).await.unwrap() {
        Claimed::Won { row, .. } => panic!("{id}: claimed from {row:?}"),
        Claimed::Lost(refused) => refused,
    }
}

async fn settled(ledger: &impl Ledger, lease: Lease, now: Timestamp, settlement: Settlement) -> Settled {
    ledger.settle(lease, now, settlement).await.unwrap()
}

fn duplicate(conflict: bool, event: Option<EventRow>) -> Admitted {
    Admitted::Duplicate {
        conflict,
        event: event.map(Box::new),
    }
}

fn is_created(admitted: &Admitted) -> bool {
    matches!(admitted, Admitted::Created { .. })
}

/// What `task` gives for each number, all at once.
async fn at_once<T: Send + 'static, F>(count: u64, task: impl Fn(u64) -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
{
    let mut tasks: JoinSet<T> = (1..=count).map(task).collect();
    let mut results = Vec::new();
    while let Some(result) = tasks.join_next().await {
        results.push(result.unwrap());
    }
    results
}

// --- admission ----------------------------------------------------------------------------------------------------------

async fn a_delivery_and_its_event_become_durable_together(engine: impl Engine) {
    // S2-03, S3-05, invariant 2
    let ledger = engine.ledger();
    let delivery = accepted("42/a1", "e");
    let Admitted::Created { lease: Some(lease) } = admit(&*ledger, &delivery, 1).await.unwrap() else {
        panic!("not created")
    };
    assert_eq!((lease.token(), lease.until()), (Token::FIRST, at(0) + LEASE));
    let expected = EventRow {
        event: event("e"),
        state: claimed(event("e"), 1, at(0)).state,
        admitted_at: at(0),
        first_seen: Net::Webhook,
        seen_by: BTreeSet::from([Net::Webhook]),
    };
    assert_eq!(row(&*ledger, "e").await, expected);
    let kept = ledger.delivery(&delivery.key).await.unwrap().unwrap();
    assert_eq!((kept.delivery, kept.expires_at), (delivery, at(0) + RETENTION));
    assert_eq!(engine.counts().await, (1, 1));
}

async fn a_delivery_that_means_nothing_is_kept_alone(engine: impl Engine) {
    // S2-04, S3-05
    let ledger = engine.ledger();
    let outcomes = [
        ("42/a", Outcome::Ignored(Ignored::Ping)),
        ("42/b", Outcome::Malformed(Malformed::NotJson)),
    ];
    for (key, outcome) in outcomes {
        let delivery = delivery(key, outcome);
        assert_eq!(
            admit(&*ledger, &delivery, 1).await.unwrap(),
            Admitted::Created { lease: None }
        );
        assert_eq!(admit(&*ledger, &delivery, 2).await.unwrap(), duplicate(false, None));
        let kept = ledger.delivery(&delivery.key).await.unwrap().unwrap();
        assert_eq!(kept.delivery, delivery);
    }
    assert_eq!(engine.counts().await, (2, 0));
}

async fn a_settled_event_is_admitted_without_a_lease(engine: impl Engine) {
    let ledger = engine.ledger();
    let delivery = accepted("42/a1", "e");
    let mut admission = admission(&delivery, BODY, 1);
    let state = &mut admission.event.as_mut().unwrap().state;
    (state.status, state.reason) = (Status::Processed, Some(Reason::Unrouted));
    (state.token, state.failures) = (Token::NONE, 0);
    (state.lease_until, state.due_at) = (None, None);
    state.expires_at = Some(at(0) + RETENTION);
    let expected = state.clone();
    assert_eq!(
        ledger.admit(&admission).await.unwrap(),
        Admitted::Created { lease: None }
    );
    assert_eq!(row(&*ledger, "e").await.state, expected);
    let again = ledger.admit(&admission).await.unwrap();
    assert_eq!(again, Admitted::Created { lease: None }, "its own lost answer");
}

async fn a_second_copy_is_a_duplicate_and_changes_nothing(engine: impl Engine) {
    // DEDU-05, DEDU-06, S2-05
    let ledger = engine.ledger();
    admit_event(&*ledger, "e", 1).await;
    let before = row(&*ledger, "e").await;
    let copy = accepted(&format!("42/{}", guid_of("e")), "e");
    assert_eq!(
        admit(&*ledger, &copy, 2).await.unwrap(),
        duplicate(false, Some(before.clone()))
    );
    assert_eq!(row(&*ledger, "e").await, before);
    assert_eq!(engine.counts().await, (1, 1));
}

async fn other_bytes_under_a_known_key_are_a_conflict_and_the_first_stay(engine: impl Engine) {
    // DEDU-08, S2-07
    let ledger = engine.ledger();
    admit(&*ledger, &accepted("42/a1", "e"), 1).await.unwrap();
    let first = ledger.delivery(&DeliveryKey::parse("42/a1").unwrap()).await.unwrap();
    let other = with_body(accepted("42/a1", "e"), b"{}");
    let answer = ledger.admit(&admission(&other, b"{}", 2)).await.unwrap();
    assert_eq!(answer, duplicate(true, Some(row(&*ledger, "e").await)));
    assert_eq!(ledger.delivery(&other.key).await.unwrap(), first);
    assert_eq!(ledger.body(&other.key).await.unwrap().as_deref(), Some(BODY));
}

async fn other_bytes_that_mean_another_event_never_bring_that_event_along(engine: impl Engine) {
    // S2-07: what is driven for a duplicate is what the kept bytes mean.
    let ledger = engine.ledger();
    admit(&*ledger, &accepted("42/a1", "first"), 1).await.unwrap();
    admit(&*ledger, &accepted("42/a2", "second"), 2).await.unwrap();
    let other = with_body(accepted("42/a1", "second"), b"{}");
    let answer = ledger.admit(&admission(&other, b"{}", 3)).await.unwrap();
    let Admitted::Duplicate { conflict: true, event } = answer else {
        panic!("{answer:?}")
    };
    // The ledger may not be able to tell the kept event in the same call; another one it never tells.
    assert!(event.is_none_or(|row| row.event.id == EventId::new("first")));
    let third = with_body(accepted("42/a1", "third"), b"{}");
    ledger.admit(&admission(&third, b"{}", 4)).await.unwrap();
    assert_eq!(ledger.event(&EventId::new("third")).await.unwrap(), None);
}

async fn other_bytes_that_mean_nothing_are_a_conflict_all_the_same(engine: impl Engine) {
    let ledger = engine.ledger();
    admit(&*ledger, &accepted("42/a1", "e"), 1).await.unwrap();
    let other = with_body(delivery("42/a1", Outcome::Ignored(Ignored::Ping)), b"{}");
    let answer = ledger.admit(&admission(&other, b"{}", 2)).await.unwrap();
    assert!(
        matches!(answer, Admitted::Duplicate { conflict: true, .. }),
        "{answer:?}"
    );
    // The other way round: the kept bytes mean nothing, and the new ones mean an event that is there.
    admit(&*ledger, &delivery("42/b1", Outcome::Ignored(Ignored::Ping)), 3)
        .await
        .unwrap();
    let other = with_body(accepted("42/b1", "e"), b"{}");
    let answer = ledger.admit(&admission(&other, b"{}", 4)).await.unwrap();
    assert_eq!(answer, duplicate(true, None));
}

async fn another_hooks_copy_is_kept_and_joins_the_one_event(engine: impl Engine) {
    // HOOK-06
    let ledger = engine.ledger();
    admit(&*ledger, &accepted("42/a1", "e"), 1).await.unwrap();
    let before = row(&*ledger, "e").await;
    let second = Delivery {
        net: Net::Recovery,
        ..with_body(accepted("77/a1", "e"), b"{\"installation\": 2}")
    };
    let answer = ledger
        .admit(&admission(&second, b"{\"installation\": 2}", 2))
        .await
        .unwrap();
    let joined = EventRow {
        seen_by: BTreeSet::from([Net::Webhook, Net::Recovery]),
        ..before
    };
    let event = Some(Box::new(joined.clone()));
    assert_eq!(
        answer,
        Admitted::Joined {
            event,
            is_new_to_net: true
        }
    );
    assert_eq!(row(&*ledger, "e").await, joined);
    assert_eq!(engine.counts().await, (2, 1));
    let bodies = [
        ledger.body(&DeliveryKey::parse("42/a1").unwrap()).await.unwrap(),
        ledger.body(&second.key).await.unwrap(),
    ];
    assert_eq!(bodies, [Some(BODY.to_vec()), Some(b"{\"installation\": 2}".to_vec())]);
}

async fn an_event_that_has_ended_is_joined_and_stays_ended(engine: impl Engine) {
    // S2-09
    let ledger = engine.ledger();
    let lease = admit_event(&*ledger, "e", 1).await;
    settled(&*ledger, lease, at(1), processed(at(1))).await;
    let state = row(&*ledger, "e").await.state;
    let answer = admit(&*ledger, &accepted("77/a1", "e"), 2).await.unwrap();
    let Admitted::Joined {
        event: Some(joined), ..
    } = answer
    else {
        panic!("{answer:?}")
    };
    assert_eq!((&joined.state, &row(&*ledger, "e").await.state), (&state, &state));
}

async fn an_admission_recognises_itself_behind_a_lost_answer(engine: impl Engine) {
    // DDBC-01: the same right again, no second token, no duplicate.
    let ledger = engine.ledger();
    let delivery = accepted("42/a1", "e");
    let first = admit(&*ledger, &delivery, 1).await.unwrap();
    let again = admit(&*ledger, &delivery, 1).await.unwrap();
    assert!(matches!(&again, Admitted::Created { lease: Some(lease) } if lease.token() == Token::FIRST));
    assert_eq!(again, first);
}

async fn an_admission_without_event_recognises_itself_behind_a_lost_answer(engine: impl Engine) {
    let ledger = engine.ledger();
    let delivery = delivery("42/a1", Outcome::Ignored(Ignored::Ping));
    let answers = [
        admit(&*ledger, &delivery, 1).await.unwrap(),
        admit(&*ledger, &delivery, 1).await.unwrap(),
    ];
    assert!(answers.iter().all(is_created), "{answers:?}");
}

async fn an_admission_that_joined_recognises_itself_and_brings_no_right(engine: impl Engine) {
    let ledger = engine.ledger();
    admit_event(&*ledger, "e", 1).await;
    let second = accepted("77/a1", "e");
    let joined = admit(&*ledger, &second, 2).await.unwrap();
    assert!(matches!(joined, Admitted::Joined { .. }), "{joined:?}");
    assert_eq!(
        admit(&*ledger, &second, 2).await.unwrap(),
        Admitted::Created { lease: None }
    );
    assert_eq!(row(&*ledger, "e").await.state.nonce.number(), 1);
}

async fn simultaneous_admissions_of_one_delivery_create_it_once(engine: impl Engine) {
    // S2-05 (8), DEDU-05 (2); 32 for good measure. Invariant 2
    let ledger = engine.ledger();
    for (count, id) in [(2, "e2"), (8, "e8"), (32, "e32")] {
        let answers = at_once(count, |nonce| {
            let ledger = Arc::clone(&ledger);
            let delivery = accepted(&format!("42/{}", guid_of(id)), id);
            async move { admit(&*ledger, &delivery, nonce).await.unwrap() }
        })
        .await;
        let created: Vec<_> = answers.iter().filter(|answer| is_created(answer)).collect();
        assert!(
            matches!(*created, [Admitted::Created { lease: Some(_) }]),
            "{created:?}"
        );
        let duplicates = answers.iter().filter(|answer| {
            matches!(
                answer,
                Admitted::Duplicate {
                    conflict: false,
                    event: Some(_)
                }
            )
        });
        assert_eq!(duplicates.count() as u64, count - 1);
    }
    assert_eq!(engine.counts().await, (3, 3));
}

async fn simultaneous_admissions_without_event_create_the_delivery_once(engine: impl Engine) {
    let ledger = engine.ledger();
    let answers = at_once(32, |nonce| {
        let ledger = Arc::clone(&ledger);
        let delivery = delivery("42/a1", Outcome::Ignored(Ignored::Ping));
        async move { admit(&*ledger, &delivery, nonce).await.unwrap() }
    })
    .await;
    assert_eq!(answers.iter().filter(|answer| is_created(answer)).count(), 1);
    assert_eq!(engine.counts().await, (1, 0));
}

async fn simultaneous_copies_of_many_hooks_give_one_event(engine: impl Engine) {
    // HOOK-06, invariant 2
    let ledger = engine.ledger();
    let answers = at_once(16, |hook| {
        let ledger = Arc::clone(&ledger);
        async move {
            let delivery = accepted(&format!("{hook}/a1"), "e");
            admit(&*ledger, &delivery, hook).await.unwrap()
        }
    })
    .await;
    let joined = answers
        .iter()
        .filter(|answer| matches!(answer, Admitted::Joined { event: Some(_), .. }));
    let created = answers.iter().filter(|answer| is_created(answer));
    assert_eq!((created.count(), joined.count()), (1, 15));
    assert_eq!(engine.counts().await, (16, 1));
}

// --- claim --------------------------------------------------------------------------------------------------------------

async fn simultaneous_claims_of_one_event_have_one_winner(engine: impl Engine) {
    // S2-14
    let ledger = engine.ledger();
    let lease = admit_event(&*ledger, "e", 1).await;
    settled(&*ledger, lease, at(1), failed(at(10))).await;
    let answers = at_once(32, |number| {
        let ledger = Arc::clone(&ledger);
        async move {
            ledger
                .claim(&EventId::new("e"), claim(at(10), 100 + number))
                .await
                .unwrap()
        }
    })
    .await;
    let winners: Vec<_> = answers
        .iter()
        .filter_map(|answer| match answer {
            Claimed::Won { lease, .. } => Some(lease.token().number()),
            Claimed::Lost(refused) => {
                assert_eq!(*refused, Refused::Held { until: at(10) + LEASE });
                None
            }
        })
        .collect();
    assert_eq!(winners, [2]);
    assert_eq!(row(&*ledger, "e").await.state.token.number(), 2);
}

async fn an_unknown_event_is_missing_and_not_an_error(engine: impl Engine) {
    let ledger = engine.ledger();
    assert_eq!(lost(&*ledger, "e404", claim(at(0), 1)).await, Refused::Missing);
    assert_eq!(
        lost(&*ledger, "e404", claim_for_owner(at(0), 1)).await,
        Refused::Missing
    );
    let id = EventId::new("e404");
    let lease = || Lease::proven_by(&id, &claimed(event("e404"), 1, at(0)).state, Nonce::from_random(1)).unwrap();
    let settled = ledger.settle(lease(), at(1), processed(at(1))).await.unwrap();
    assert_eq!(settled, Settled::Lost(Refused::Missing));
    let renewed = ledger.renew(&mut lease(), at(1), TERM).await.unwrap();
    assert_eq!(renewed, Renewed::Lost(Refused::Missing));
    assert_eq!(ledger.event(&id).await.unwrap(), None);
    let key = DeliveryKey::parse("42/404").unwrap();
    assert_eq!(ledger.delivery(&key).await.unwrap(), None);
    assert_eq!(ledger.body(&key).await.unwrap(), None);
    let redacted = ledger.redact(&lease(), &key, at(1)).await.unwrap();
    assert_eq!(redacted, Redacted::Lost(Refused::Missing));
    assert_eq!(engine.counts().await, (0, 0), "asking leaves nothing behind");
}

async fn a_running_lease_is_held_and_a_lapsed_one_is_taken_after_the_skew(engine: impl Engine) {
    // S2-08, S2-13, LEAS-02
    let ledger = engine.ledger();
    let first = admit_event(&*ledger, "e", 1).await;
    for now in [at(-20), at(0), at(29), at(30), at(35)] {
        let refused = lost(&*ledger, "e", claim(now, 2)).await;
        assert_eq!(refused, Refused::Held { until: first.until() }, "{now}");
    }
    let now = at(35) + jiff::SignedDuration::from_millis(1);
    let lease = won(&*ledger, "e", claim(now, 3)).await;
    assert_eq!((lease.token().number(), lease.until()), (2, now + LEASE));
}

async fn a_dead_owner_is_replaced_at_the_first_try(engine: impl Engine) {
    // LEAS-05
    let ledger = engine.ledger();
    let dead = admit_event(&*ledger, "e", 1).await;
    let now = dead.until() + SKEW + secs(1);
    assert_eq!(won(&*ledger, "e", claim(now, 2)).await.token().number(), 2);
}

async fn a_claim_recognises_itself_behind_a_lost_answer(engine: impl Engine) {
    // DDBC-01
    let ledger = engine.ledger();
    let lease = admit_event(&*ledger, "e", 1).await;
    settled(&*ledger, lease, at(1), failed(at(10))).await;
    let first = won(&*ledger, "e", claim(at(10), 2)).await;
    assert_eq!(won(&*ledger, "e", claim(at(10), 2)).await, first);
    assert_eq!(row(&*ledger, "e").await.state.token, first.token());
}

async fn a_failed_event_is_claimed_from_its_due_time_on(engine: impl Engine) {
    // S2-08, S2-12, S2-16: admit, settle, claim and settle again, each a public step.
    let ledger = engine.ledger();
    let lease = admit_event(&*ledger, "e", 1).await;
    settled(&*ledger, lease, at(1), failed(at(10))).await;
    assert_eq!(
        lost(&*ledger, "e", claim(at(9), 2)).await,
        Refused::NotDue { due_at: at(10) }
    );
    let lease = won(&*ledger, "e", claim(at(10), 3)).await;
    let state = row(&*ledger, "e").await.state;
    assert_eq!((state.status, state.token), (Status::Claimed, lease.token()));
    assert_eq!((state.lease_until, state.due_at), (Some(at(40)), Some(at(45))));
    assert_eq!(
        state.destinations,
        failed(at(0)).destinations,
        "what was sent is remembered"
    );
    assert_eq!(
        state.reason,
        Some(Reason::Failed),
        "until the next settlement says something else"
    );
    assert_eq!(settled(&*ledger, lease, at(11), processed(at(11))).await, Settled::Done);
    let state = row(&*ledger, "e").await.state;
    assert_eq!((state.status, state.token.number()), (Status::Processed, 2));
}

async fn a_parked_event_is_claimed_when_due_or_when_its_owner_appears(engine: impl Engine) {
    let ledger = engine.ledger();
    for (id, claim, refused) in [
        ("due", claim(at(600), 9), None),
        ("early", claim(at(599), 9), Some(Refused::NotDue { due_at: at(600) })),
        ("owner", claim_for_owner(at(2), 9), None),
    ] {
        let lease = admit_event(&*ledger, id, 1).await;
        settled(&*ledger, lease, at(1), parked(pull(12), at(600))).await;
        match refused {
            Some(refused) => assert_eq!(lost(&*ledger, id, claim).await, refused),
            None => {
                won(&*ledger, id, claim).await;
                assert_eq!(row(&*ledger, id).await.state.waiting_for, None);
            }
        }
    }
}

async fn a_terminal_event_is_never_claimed_again(engine: impl Engine) {
    // S2-09
    let ledger = engine.ledger();
    for (id, settlement) in [("done", processed(at(1))), ("given-up", given_up(at(1)))] {
        let lease = admit_event(&*ledger, id, 1).await;
        let status = settlement.ending.status();
        settled(&*ledger, lease, at(1), settlement).await;
        for claim in [claim(at(100_000), 2), claim_for_owner(at(100_000), 3)] {
            assert_eq!(lost(&*ledger, id, claim).await, Refused::Terminal(status));
        }
    }
}

async fn an_owner_who_appears_takes_nothing_that_is_held_or_not_due(engine: impl Engine) {
    let ledger = engine.ledger();
    let lease = admit_event(&*ledger, "e", 1).await;
    let held = Refused::Held { until: lease.until() };
    assert_eq!(lost(&*ledger, "e", claim_for_owner(at(1), 2)).await, held);
    settled(&*ledger, lease, at(1), failed(at(10))).await;
    let early = Refused::NotDue { due_at: at(10) };
    assert_eq!(lost(&*ledger, "e", claim_for_owner(at(9), 3)).await, early);
}

async fn a_claim_counts_as_a_failure_until_its_owner_says_otherwise(engine: impl Engine) {
    let ledger = engine.ledger();
    let mut now = at(0);
    admit_event(&*ledger, "e", 1).await;
    for number in 2..5 {
        now = now + LEASE + SKEW + secs(1);
        won(&*ledger, "e", claim(now, u64::from(number))).await;
        assert_eq!(row(&*ledger, "e").await.state.failures, number);
    }
    let lease = won(&*ledger, "e", claim(now + LEASE + SKEW + secs(1), 9)).await;
    let now = lease.until() - secs(1);
    settled(&*ledger, lease, now, failed(now + secs(10))).await;
    assert_eq!(row(&*ledger, "e").await.state.failures, 1, "as its owner said");
}

async fn every_claim_has_a_higher_token(engine: impl Engine) {
    // LEAS-08, invariant 4
    let ledger = engine.ledger();
    let mut lease = admit_event(&*ledger, "e", 1).await;
    for round in 2..8_u64 {
        let now = lease.until() + SKEW + secs(1);
        let next = won(&*ledger, "e", claim(now, round)).await;
        assert_eq!(next.token().number(), round);
        if round % 2 == 0 {
            settled(&*ledger, copy_of(&next), now, failed(now)).await;
        }
        lease = next;
    }
}

// --- settle and renew ---------------------------------------------------------------------------------------------------

async fn a_settlement_is_written_whole(engine: impl Engine) {
    let ledger = engine.ledger();
    let all = [
        ("processed", processed(at(1))),
        ("given-up", given_up(at(1))),
        ("failed", failed(at(10))),
        ("parked", parked(branch("fix"), at(10))),
        (
            "partly",
            Settlement {
                destinations: BTreeMap::from([
                    ("builder".to_owned(), Sent::Unreachable),
                    ("dispatcher".to_owned(), Sent::Yes),
                    ("reviewer".to_owned(), Sent::Rejected),
                ]),
                failures: 0,
                tries: 0,
                ..failed(at(10))
            },
        ),
    ];
    for (id, settlement) in all {
        let lease = admit_event(&*ledger, id, 1).await;
        let before = row(&*ledger, id).await;
        assert_eq!(settled(&*ledger, lease, at(1), settlement.clone()).await, Settled::Done);
        let mut expected = before.clone();
        expected.state = forebay_core::ledger::State {
            status: settlement.ending.status(),
            reason: Some(settlement.reason),
            lease_until: None,
            failures: settlement.failures,
            tries: settlement.tries,
            due_at: settlement.due_at,
            waiting_for: settlement.waiting_for,
            destinations: settlement.destinations,
            expires_at: settlement.expires_at,
            ..before.state
        };
        assert_eq!(row(&*ledger, id).await, expected, "{id}");
    }
}

async fn a_settlement_recognises_itself_behind_a_lost_answer(engine: impl Engine) {
    // DDBC-03
    let ledger = engine.ledger();
    let all = [
        processed(at(1)),
        given_up(at(1)),
        failed(at(10)),
        parked(pull(12), at(10)),
    ];
    for (number, settlement) in all.into_iter().enumerate() {
        let id = format!("e{number}");
        let lease = admit_event(&*ledger, &id, 1).await;
        let copy = copy_of(&lease);
        assert_eq!(settled(&*ledger, lease, at(1), settlement.clone()).await, Settled::Done);
        let before = row(&*ledger, &id).await;
        assert_eq!(settled(&*ledger, copy, at(1), settlement).await, Settled::Done);
        assert_eq!(row(&*ledger, &id).await, before);
    }
}

async fn a_stale_owner_settles_and_renews_nothing(engine: impl Engine) {
    // DDBC-04, LEAS-01, S2-10, invariant 4
    let ledger = engine.ledger();
    let mut paused = admit_event(&*ledger, "e", 1).await;
    let owner = won(&*ledger, "e", claim(at(36), 2)).await;
    let before = row(&*ledger, "e").await;
    let stale = Refused::Stale { current: owner.token() };
    // Whatever its own clock says.
    for now in [at(1), at(29), at(40), at(600)] {
        let renewed = ledger.renew(&mut paused, now, TERM).await.unwrap();
        assert_eq!((renewed, paused.until()), (Renewed::Lost(stale), at(30)));
        for settlement in [processed(now), failed(now), given_up(now), parked(pull(12), now)] {
            assert_eq!(
                settled(&*ledger, copy_of(&paused), now, settlement).await,
                Settled::Lost(stale)
            );
        }
    }
    assert_eq!(row(&*ledger, "e").await, before);
    assert_eq!(settled(&*ledger, owner, at(37), processed(at(37))).await, Settled::Done);
    assert_eq!(
        settled(&*ledger, paused, at(38), processed(at(38))).await,
        Settled::Lost(stale)
    );
}

async fn a_lapsed_owner_settles_and_renews_nothing(engine: impl Engine) {
    // S2-10
    let ledger = engine.ledger();
    let mut lease = admit_event(&*ledger, "e", 1).await;
    let before = row(&*ledger, "e").await;
    let lapsed = Refused::Lapsed { until: lease.until() };
    for now in [at(30), at(31), at(100_000)] {
        let answer = settled(&*ledger, copy_of(&lease), now, processed(now)).await;
        assert_eq!(answer, Settled::Lost(lapsed));
        let renewed = ledger.renew(&mut lease, now, TERM).await.unwrap();
        assert_eq!((renewed, lease.until()), (Renewed::Lost(lapsed), at(30)));
    }
    assert_eq!(row(&*ledger, "e").await, before);
    assert_eq!(settled(&*ledger, lease, at(29), processed(at(29))).await, Settled::Done);
}

async fn an_owner_with_the_right_token_and_another_nonce_is_fenced(engine: impl Engine) {
    // Invariant 11: the token alone does not tell two lives apart.
    let ledger = engine.ledger();
    let lease = admit_event(&*ledger, "e", 1).await;
    let mut state = row(&*ledger, "e").await.state;
    state.nonce = Nonce::from_random(2);
    let forged = || Lease::proven_by(lease.event(), &state, state.nonce).unwrap();
    let stale = Refused::Stale { current: Token::FIRST };
    assert_eq!(
        settled(&*ledger, forged(), at(1), processed(at(1))).await,
        Settled::Lost(stale)
    );
    let renewed = ledger.renew(&mut forged(), at(1), TERM).await.unwrap();
    assert_eq!(renewed, Renewed::Lost(stale));
    assert_eq!(row(&*ledger, "e").await.state.status, Status::Claimed);
}

async fn an_ended_event_is_neither_settled_again_nor_renewed(engine: impl Engine) {
    // S2-10
    let ledger = engine.ledger();
    let lease = admit_event(&*ledger, "e", 1).await;
    let copies = [copy_of(&lease), copy_of(&lease)];
    settled(&*ledger, lease, at(1), processed(at(1))).await;
    let before = row(&*ledger, "e").await;
    let [one, mut other] = copies;
    let terminal = Refused::Terminal(Status::Processed);
    assert_eq!(
        settled(&*ledger, one, at(2), failed(at(9))).await,
        Settled::Lost(terminal)
    );
    let renewed = ledger.renew(&mut other, at(2), TERM).await.unwrap();
    assert_eq!(renewed, Renewed::Lost(terminal));
    assert_eq!(row(&*ledger, "e").await, before);
}

async fn a_renewed_right_outlasts_the_first_lease(engine: impl Engine) {
    // S2-10
    let ledger = engine.ledger();
    let mut lease = admit_event(&*ledger, "e", 1).await;
    let term = Term {
        lease: secs(60),
        ..TERM
    };
    let mut first = copy_of(&lease);
    assert_eq!(ledger.renew(&mut lease, at(20), term).await.unwrap(), Renewed::Kept);
    assert_eq!((lease.until(), lease.token()), (at(80), Token::FIRST));
    let state = row(&*ledger, "e").await.state;
    assert_eq!(
        (state.lease_until, state.due_at, state.failures),
        (Some(at(80)), Some(at(85)), 1)
    );
    assert_eq!(
        lost(&*ledger, "e", claim(at(36), 2)).await,
        Refused::Held { until: at(80) }
    );
    // A lost answer: the same again is the same.
    assert_eq!(ledger.renew(&mut first, at(20), term).await.unwrap(), Renewed::Kept);
    assert_eq!(first, lease);
    assert_eq!(settled(&*ledger, lease, at(79), processed(at(79))).await, Settled::Done);
}

async fn who_renews_in_time_works_on_alone_and_who_does_not_is_replaced(engine: impl Engine) {
    // LEAS-04, invariants 4 and 5: work that is longer than five leases. Whoever works so long on one event renews.
    let ledger = engine.ledger();
    let mut renewing = admit_event(&*ledger, "renewed", 1).await;
    let idle = admit_event(&*ledger, "left", 2).await;
    for round in 1..=8 {
        let now = at(round * 20);
        assert_eq!(ledger.renew(&mut renewing, now, TERM).await.unwrap(), Renewed::Kept);
        assert_eq!((renewing.token(), renewing.until()), (Token::FIRST, now + LEASE));
        let state = row(&*ledger, "renewed").await.state;
        assert_eq!(
            (state.token, state.nonce.number(), state.failures),
            (Token::FIRST, 1, 1)
        );
        // To everybody else it is held until the new end and the skew are over, and not due before.
        let held = Refused::Held {
            until: renewing.until(),
        };
        for ask in [now, renewing.until(), renewing.until() + SKEW] {
            assert_eq!(lost(&*ledger, "renewed", claim(ask, 100)).await, held, "{ask}");
            assert_eq!(
                lost(&*ledger, "renewed", claim_for_owner(ask, 100)).await,
                held,
                "{ask}"
            );
        }
        let due = due(&*ledger, now + LEASE + SKEW - secs(1), 10).await;
        assert!(due.iter().all(|due| due.event != EventId::new("renewed")), "{due:?}");
    }
    // Who works as long without renewing is replaced, and what it then wants to write or renew is refused.
    let mut idle = idle;
    let owner = won(&*ledger, "left", claim(at(36), 3)).await;
    let stale = Refused::Stale { current: owner.token() };
    assert_eq!(
        ledger.renew(&mut idle, at(29), TERM).await.unwrap(),
        Renewed::Lost(stale)
    );
    assert_eq!(
        settled(&*ledger, idle, at(29), processed(at(29))).await,
        Settled::Lost(stale)
    );
    // The last renewal was at 160; its right ends at 190.
    let copy = copy_of(&renewing);
    assert_eq!(
        settled(&*ledger, renewing, at(189), processed(at(189))).await,
        Settled::Done
    );
    assert_eq!(
        settled(&*ledger, copy, at(189), processed(at(189))).await,
        Settled::Done,
        "the same again"
    );
}

async fn a_renewal_is_kept_to_its_last_moment_and_never_shortens_a_right(engine: impl Engine) {
    // LEAS-04, invariant 4
    let ledger = engine.ledger();
    let ms = jiff::SignedDuration::from_millis(1);
    let mut lease = admit_event(&*ledger, "e", 1).await;
    let last = lease.until() - ms;
    assert_eq!(ledger.renew(&mut lease, last, TERM).await.unwrap(), Renewed::Kept);
    let until = last + LEASE;
    assert_eq!(lease.until(), until);
    // A shorter term, and a clock that went back, leave it as long as it is; its owner is told how long that is.
    let before = row(&*ledger, "e").await;
    for (now, term) in [
        (at(40), Term { lease: secs(5), ..TERM }),
        (at(0), TERM),
        (last, TERM),
        (until - secs(5), Term { lease: secs(5), ..TERM }),
    ] {
        assert_eq!(ledger.renew(&mut lease, now, term).await.unwrap(), Renewed::Kept);
        assert_eq!((lease.until(), row(&*ledger, "e").await), (until, before.clone()));
    }
    // Others wait for the skew that it was renewed with.
    let longer_skew = Term {
        lease: LEASE,
        skew: secs(9),
    };
    assert_eq!(
        ledger.renew(&mut lease, at(40), longer_skew).await.unwrap(),
        Renewed::Kept
    );
    let state = row(&*ledger, "e").await.state;
    assert_eq!((state.lease_until, state.due_at), (Some(at(70)), Some(at(79))));
}

async fn a_losing_duplicate_leaves_the_owners_row_as_it_is(engine: impl Engine) {
    // DEDU-06: and the third copy is still refused.
    let ledger = engine.ledger();
    let owner = admit_event(&*ledger, "e", 1).await;
    let before = row(&*ledger, "e").await;
    let copy = accepted(&format!("42/{}", guid_of("e")), "e");
    for nonce in [2, 3] {
        admit(&*ledger, &copy, nonce).await.unwrap();
        assert_eq!(
            lost(&*ledger, "e", claim(at(10), nonce)).await,
            Refused::Held { until: owner.until() }
        );
        let mut state = before.state.clone();
        state.nonce = Nonce::from_random(nonce);
        let loser = Lease::proven_by(owner.event(), &state, state.nonce).unwrap();
        settled(&*ledger, loser, at(10), failed(at(11))).await;
        assert_eq!(row(&*ledger, "e").await, before);
    }
    assert_eq!(settled(&*ledger, owner, at(12), processed(at(12))).await, Settled::Done);
}

async fn a_recreated_row_refuses_the_earlier_lifes_owner(engine: impl Engine) {
    // LEAS-08: the tokens are equal, the nonces are not.
    let ledger = engine.ledger();
    let earlier = admit_event(&*ledger, "e", 1).await;
    settled(&*ledger, copy_of(&earlier), at(1), processed(at(1))).await;
    engine.expire(at(0) + RETENTION + RETENTION).await;
    assert_eq!(engine.counts().await, (0, 0));
    assert_eq!(
        settled(&*ledger, copy_of(&earlier), at(2), processed(at(2))).await,
        Settled::Lost(Refused::Missing)
    );
    let later = admit_event(&*ledger, "e", 2).await;
    assert_eq!((later.token(), earlier.token()), (Token::FIRST, Token::FIRST));
    let stale = Refused::Stale { current: Token::FIRST };
    for settlement in [processed(at(3)), failed(at(9))] {
        assert_eq!(
            settled(&*ledger, copy_of(&earlier), at(3), settlement).await,
            Settled::Lost(stale)
        );
    }
    assert_eq!(settled(&*ledger, later, at(4), processed(at(4))).await, Settled::Done);
}

async fn clocks_that_differ_decide_when_and_never_who(engine: impl Engine) {
    // LEAS-02, invariant 11: one clock 20 s behind, the other 20 s ahead.
    let ledger = engine.ledger();
    let slow = admit_event(&*ledger, "e", 1).await;
    let fast = won(&*ledger, "e", claim(at(36), 2)).await;
    let stale = Refused::Stale { current: fast.token() };
    assert_eq!(
        settled(&*ledger, slow, at(16), processed(at(16))).await,
        Settled::Lost(stale)
    );
    // A clock that went back finds the lease running, and its owner is believed.
    assert_eq!(
        lost(&*ledger, "e", claim(at(-1_000), 3)).await,
        Refused::Held { until: fast.until() }
    );
    assert_eq!(
        settled(&*ledger, fast, at(-1_000), processed(at(0))).await,
        Settled::Done
    );
}

async fn only_terminal_events_and_old_deliveries_expire(engine: impl Engine) {
    // S2-17, invariant 5
    let ledger = engine.ledger();
    let lease = admit_event(&*ledger, "e", 1).await;
    engine.expire(at(-1) + RETENTION).await;
    assert_eq!(engine.counts().await, (1, 1));
    engine.expire(at(0) + RETENTION).await;
    assert_eq!(engine.counts().await, (0, 1));
    engine.expire(at(0) + RETENTION * 20).await;
    assert_eq!(engine.counts().await, (0, 1), "however old: it is not terminal");
    settled(&*ledger, lease, at(1), processed(at(1))).await;
    engine.expire(at(0) + RETENTION).await;
    assert_eq!(engine.counts().await, (0, 1));
    engine.expire(at(1) + RETENTION).await;
    assert_eq!(engine.counts().await, (0, 0));
}

// --- bodies and fields ---------------------------------------------------------------------------------------------------

/// Bytes that no compressor shortens, the same every time: xorshift.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).flatten().take(bytes).collect()
}

async fn bodies_come_back_byte_for_byte(engine: impl Engine) {
    // SIZE-02, S3-05
    let ledger = engine.ledger();
    let bodies = [
        Vec::new(),
        vec![0],
        b"{\"a\":\"b\"}\r\n ".to_vec(),
        vec![0xff, 0xfe, 0, 0x80, b'a'],
        "🚀é\u{0}\u{ffff}".as_bytes().to_vec(),
        vec![b' '; 6_291_456],
        noise(3_000),
        noise(3_073),
        noise(390_000),
        noise(390_001),
        noise(600_000),
        noise(6_291_456),
    ];
    for (number, body) in bodies.iter().enumerate() {
        // Kept with an event and without one.
        for outcome in [
            Outcome::Accepted(EventId::new(&format!("e{number}"))),
            Outcome::Malformed(Malformed::NotJson),
        ] {
            let hook = if matches!(outcome, Outcome::Accepted(_)) { 1 } else { 2 };
            let delivery = with_body(delivery(&format!("{hook}/{number:02x}"), outcome), body);
            let answer = ledger.admit(&admission(&delivery, body, 1)).await.unwrap();
            assert!(is_created(&answer));
            let kept = ledger.body(&delivery.key).await.unwrap().unwrap();
            assert!(
                kept == *body,
                "body {number}: {} bytes became {}",
                body.len(),
                kept.len()
            );
        }
    }
}

async fn one_body_of_two_deliveries_outlives_the_first_of_them(engine: impl Engine) {
    // SIZE-04: chunks expire no earlier than their row, also where a later copy is kept for a shorter time, as after a
    // change of retention.
    let ledger = engine.ledger();
    let body = noise(600_000);
    let first = with_body(accepted("42/a1", "e"), &body);
    ledger.admit(&admission(&first, &body, 1)).await.unwrap();
    let second = with_body(accepted("77/a1", "e"), &body);
    let mut shorter = admission(&second, &body, 2);
    shorter.expires_at = at(86_400);
    ledger.admit(&shorter).await.unwrap();
    engine.expire(at(86_400)).await;
    assert_eq!(ledger.delivery(&second.key).await.unwrap(), None);
    assert!(ledger.body(&first.key).await.unwrap() == Some(body));
}

async fn a_delivery_keeps_what_it_arrived_with(engine: impl Engine) {
    // S3-05
    let ledger = engine.ledger();
    let full = Delivery {
        action: Some("créé \"quoted\"".to_owned()),
        headers: vec![
            ("user-agent".to_owned(), "caf\u{e9}-agent".to_owned()),
            ("x-empty".to_owned(), String::new()),
            ("x-github-hook-id".to_owned(), "42".to_owned()),
        ],
        verified_by: "previous-1".to_owned(),
        net: Net::Recovery,
        received_at: at(7) + jiff::SignedDuration::from_millis(123),
        ..accepted("18446744073709551615/ABC-def", "e")
    };
    let bare = Delivery {
        action: None,
        headers: Vec::new(),
        ..delivery("-/0", Outcome::Ignored(Ignored::UnknownEvent))
    };
    for delivery in [full, bare] {
        admit(&*ledger, &delivery, 1).await.unwrap();
        let kept = ledger.delivery(&delivery.key).await.unwrap().unwrap();
        assert_eq!(kept.delivery, delivery);
    }
}

async fn an_event_keeps_every_field_and_any_text(engine: impl Engine) {
    let ledger = engine.ledger();
    let mut full = event("full");
    full.pull_requests = vec![12, 1, u64::MAX];
    full.summary = "nul \u{0} bell \u{7} 🚀 \u{ffff} \"quoted\" \\ # end".to_owned();
    (full.branch, full.base) = (Some("fix/#1 🚀".to_owned()), Some("main".to_owned()));
    (full.head_sha, full.conclusion) = (Some("d".repeat(40)), Some("failure".to_owned()));
    full.occurred_at = Some(at(-9) + jiff::SignedDuration::from_millis(999));
    full.delivery = DeliveryKey::parse("42/a1");
    let mut bare = event("bare");
    (bare.pull_requests, bare.subject) = (Vec::new(), Subject::Repository(repository()));
    (bare.actor, bare.url, bare.occurred_at) = (None, None, None);
    bare.summary = String::new();
    for (number, happened) in [full, bare].into_iter().enumerate() {
        let delivery = accepted(&format!("42/{number}"), happened.id.as_str());
        let mut admission = admission(&delivery, BODY, u64::MAX);
        admission.event = Some(claimed(happened.clone(), u64::MAX, at(0)));
        ledger.admit(&admission).await.unwrap();
        assert_eq!(row(&*ledger, happened.id.as_str()).await.event, happened);
    }
}

async fn hostile_and_over_long_names_fit_their_keys(engine: impl Engine) {
    // S2-06
    let ledger = engine.ledger();
    let names = ["#", "a#branch#b", "..", " ", "\u{0}", "🚀", "%2F", "session", "%s{}[]"];
    let long = ["x".repeat(255), "y".repeat(5_000), "🚀".repeat(1_000)];
    let names: Vec<&str> = names.into_iter().chain(long.iter().map(String::as_str)).collect();
    for (number, name) in names.iter().enumerate() {
        let id = format!("github/push/{name}");
        let lease = admit_event(&*ledger, EventId::new(&id).as_str(), 1).await;
        assert_eq!(lease.event(), &EventId::new(&id));
        settled(&*ledger, lease, at(1), parked(branch(name), at(10))).await;
        assert_eq!(
            ledger.waiting(&branch(name), 10).await.unwrap(),
            [EventId::new(&id)],
            "{name:?}"
        );
        let pull = number as u64 + 1;
        ledger.learn(&repository(), name, pull, at(0)).await.unwrap();
        let session = session(&format!("s{number}"), Some(name), None);
        let opened = ledger.open_session(&session, at(2)).await.unwrap();
        assert_eq!(
            opened,
            Opened::Live(vec![branch(name), OwnerKey::pull(&repository(), pull)])
        );
        let longest = format!("42/{number:064x}");
        admit(&*ledger, &delivery(&longest, Outcome::Ignored(Ignored::Ping)), 2)
            .await
            .unwrap();
    }
}

// --- listings -----------------------------------------------------------------------------------------------------------

async fn admit_pair(ledger: &impl Ledger, name: &str, received_at: Timestamp) {
    for outcome in [Outcome::Accepted(EventId::new(name)), Outcome::Ignored(Ignored::Ping)] {
        let hook = if matches!(outcome, Outcome::Accepted(_)) { 1 } else { 2 };
        let delivery = Delivery {
            received_at,
            ..delivery(&format!("{hook}/{name}"), outcome)
        };
        admit(ledger, &delivery, 1).await.unwrap();
    }
}

async fn listed(ledger: &impl Ledger, since: Timestamp, until: Timestamp, limit: usize) -> [Vec<String>; 2] {
    let listing = |what| Listing {
        what,
        since,
        until,
        limit,
    };
    let events = ledger.events(&listing(Listed::Events)).await.unwrap();
    let deliveries = ledger.deliveries(&listing(Listed::Deliveries)).await.unwrap();
    [
        events.iter().map(|row| row.event.id.to_string()).collect(),
        deliveries
            .iter()
            .map(|row| row.delivery.key.guid.as_str().to_owned())
            .collect(),
    ]
}

async fn listings_are_newest_first_within_their_times_and_their_limit(engine: impl Engine) {
    let ledger = engine.ledger();
    for (name, second) in [("a", 10), ("b", 30), ("c", 20), ("d", 40), ("e", 0), ("f", 25)] {
        admit_pair(&*ledger, name, at(second)).await;
    }
    for (since, until, limit, expected) in [
        (at(10), at(30), 10, vec!["b", "f", "c", "a"]),
        (at(10), at(30), 2, vec!["b", "f"]),
        (at(11), at(29), 10, vec!["f", "c"]),
        (at(0), at(40), 100, vec!["d", "b", "f", "c", "a", "e"]),
        (at(20), at(20), 1, vec!["c"]),
        (at(41), at(50), 10, vec![]),
        (at(0), at(40), 0, vec![]),
    ] {
        let [events, deliveries] = listed(&*ledger, since, until, limit).await;
        assert_eq!(events, expected, "{since} to {until}, {limit}");
        assert_eq!(deliveries, expected, "only deliveries that mean no event");
    }
}

async fn a_listing_crosses_the_border_of_days(engine: impl Engine) {
    let ledger = engine.ledger();
    // 2026-01-03T00:00:00Z
    let midnight = Timestamp::from_second(1_767_398_400).unwrap();
    let ms = jiff::SignedDuration::from_millis(1);
    for (name, time) in [
        ("a", midnight - secs(3 * 86_400)),
        ("b", midnight - secs(86_400)),
        ("c", midnight - ms),
        ("d", midnight),
        ("e", midnight + ms),
    ] {
        admit_pair(&*ledger, name, time).await;
    }
    for (since, until, limit, expected) in [
        (midnight - ms, midnight, 10, vec!["d", "c"]),
        (midnight, midnight, 10, vec!["d"]),
        (
            midnight - secs(3 * 86_400),
            midnight + ms,
            10,
            vec!["e", "d", "c", "b", "a"],
        ),
        (midnight - secs(3 * 86_400), midnight + ms, 4, vec!["e", "d", "c", "b"]),
        (
            midnight - secs(2 * 86_400),
            midnight + secs(3_600),
            10,
            vec!["e", "d", "c", "b"],
        ),
        (midnight - secs(86_400), midnight - ms, 10, vec!["c", "b"]),
    ] {
        assert_eq!(
            listed(&*ledger, since, until, limit).await,
            [expected.clone(), expected]
        );
    }
}

async fn a_listing_that_ends_before_it_begins_is_empty(engine: impl Engine) {
    let ledger = engine.ledger();
    admit_pair(&*ledger, "a", at(10)).await;
    let [events, deliveries] = listed(&*ledger, at(20), at(0), 10).await;
    assert!(events.is_empty() && deliveries.is_empty());
}

async fn a_listing_shows_what_its_call_is_named_after(engine: impl Engine) {
    let ledger = engine.ledger();
    admit_pair(&*ledger, "a", at(10)).await;
    for what in [Listed::Events, Listed::Deliveries] {
        let listing = Listing {
            what,
            since: at(0),
            until: at(60),
            limit: 10,
        };
        let events = ledger.events(&listing).await.unwrap();
        let deliveries = ledger.deliveries(&listing).await.unwrap();
        assert_eq!((events.len(), deliveries.len()), (1, 1), "{what:?}");
        assert_eq!(deliveries[0].delivery.outcome, Outcome::Ignored(Ignored::Ping));
    }
}

// --- pointers and sessions -----------------------------------------------------------------------------------------------

async fn owner_of(ledger: &impl Ledger, key: &OwnerKey, now: Timestamp) -> Option<String> {
    let pointers = ledger.pointers(std::slice::from_ref(key)).await.unwrap();
    pointers.live_owner(key, now).map(|owner| owner.session.to_string())
}

async fn open(ledger: &impl Ledger, session: &Session, now: Timestamp) -> Opened {
    ledger.open_session(session, now).await.unwrap()
}

fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

async fn pointers_are_read_together_and_asking_twice_is_asking_once(engine: impl Engine) {
    let ledger = engine.ledger();
    assert!(ledger.pointers(&[]).await.unwrap().0.is_empty());
    for number in 1..=3 {
        open(&*ledger, &session(&format!("s{number}"), None, Some(number)), at(0)).await;
    }
    let mut keys: Vec<_> = (1..=100).map(pull).collect();
    keys[99] = pull(1);
    let found = ledger.pointers(&keys).await.unwrap();
    assert_eq!(found.0.keys().cloned().collect::<Vec<_>>(), [pull(1), pull(2), pull(3)]);
}

async fn learning_a_pull_request_adds_to_what_is_known(engine: impl Engine) {
    let ledger = engine.ledger();
    let first = ledger.learn(&repository(), "fix", 12, at(0)).await.unwrap();
    assert_eq!((first.owner, first.pulls), (None, BTreeSet::from([12])));
    open(&*ledger, &session("s1", Some("fix"), None), at(0)).await;
    let second = ledger.learn(&repository(), "fix", 7, at(0)).await.unwrap();
    let expected = Pointer {
        owner: Some(session("s1", None, None).owner()),
        pulls: BTreeSet::from([7, 12]),
    };
    assert_eq!(second, expected);
    assert_eq!(
        ledger.learn(&repository(), "fix", 7, at(0)).await.unwrap(),
        expected,
        "known already"
    );
}

async fn a_pull_request_of_an_owned_branch_is_pointed_to_its_owner_unless_another_lives(engine: impl Engine) {
    let ledger = engine.ledger();
    let owner = session("s1", Some("fix"), None).owner();
    assert!(ledger.own(&pull(12), &owner, at(0)).await.unwrap());
    assert!(ledger.own(&pull(12), &owner, at(1)).await.unwrap(), "its own already");
    let other = session("s2", None, None).owner();
    assert!(!ledger.own(&pull(12), &other, at(3_599)).await.unwrap());
    assert_eq!(owner_of(&*ledger, &pull(12), at(3_599)).await.as_deref(), Some("s1"));
    assert!(ledger.own(&pull(12), &other, at(3_600)).await.unwrap());
}

async fn a_session_opens_with_all_its_pointers_or_none(engine: impl Engine) {
    let ledger = engine.ledger();
    let first = session("s1", Some("fix"), Some(12));
    assert_eq!(
        open(&*ledger, &first, at(0)).await,
        Opened::Live(vec![branch("fix"), pull(12)])
    );
    let second = session("s2", Some("other"), Some(12));
    let held = Opened::Held {
        key: pull(12),
        owner: first.owner(),
    };
    assert_eq!(open(&*ledger, &second, at(1)).await, held);
    assert_eq!(owner_of(&*ledger, &branch("other"), at(1)).await, None);
    assert_eq!(owner_of(&*ledger, &branch("fix"), at(1)).await.as_deref(), Some("s1"));
    assert_eq!(
        open(&*ledger, &session("s3", None, None), at(1)).await,
        Opened::Live(vec![])
    );
}

async fn a_held_session_says_by_whom_and_leaves_no_trace(engine: impl Engine) {
    let ledger = engine.ledger();
    open(&*ledger, &session("s1", Some("fix"), None), at(0)).await;
    let refused = open(&*ledger, &session("s2", Some("fix"), Some(12)), at(1)).await;
    let owner = session("s1", None, None).owner();
    assert_eq!(
        refused,
        Opened::Held {
            key: branch("fix"),
            owner
        }
    );
    let sessions = ledger.sessions(10).await.unwrap();
    assert_eq!(sessions, [session("s1", Some("fix"), None)]);
    assert_eq!(ledger.close_session(&id("s2"), at(86_400)).await.unwrap(), None);
}

async fn opening_again_prolongs_a_session(engine: impl Engine) {
    let ledger = engine.ledger();
    open(&*ledger, &session("s1", None, Some(12)), at(0)).await;
    let longer = Session {
        live_until: at(9_000),
        phase: forebay_core::session::Phase::Open,
        ..session("s1", None, Some(12))
    };
    assert_eq!(open(&*ledger, &longer, at(3_000)).await, Opened::Live(vec![pull(12)]));
    assert_eq!(owner_of(&*ledger, &pull(12), at(8_999)).await.as_deref(), Some("s1"));
    assert_eq!(ledger.sessions(10).await.unwrap(), [longer]);
}

async fn a_session_that_moves_gives_up_what_it_no_longer_names(engine: impl Engine) {
    // Else a branch stays pointed to a session that closes elsewhere, and its events go to nobody who listens.
    let ledger = engine.ledger();
    ledger.learn(&repository(), "one", 5, at(0)).await.unwrap();
    open(&*ledger, &session("s1", Some("one"), Some(12)), at(0)).await;
    let moved = session("s1", Some("two"), Some(12));
    assert_eq!(
        open(&*ledger, &moved, at(1)).await,
        Opened::Live(vec![branch("two"), pull(12)])
    );
    for key in [branch("one"), pull(5)] {
        assert_eq!(owner_of(&*ledger, &key, at(1)).await, None, "{key}");
    }
    ledger.close_session(&id("s1"), at(86_400)).await.unwrap();
    for key in [branch("one"), branch("two"), pull(5), pull(12)] {
        assert_eq!(owner_of(&*ledger, &key, at(2)).await, None, "{key}");
    }
}

async fn a_lapsed_session_frees_what_it_owned_without_closing(engine: impl Engine) {
    let ledger = engine.ledger();
    open(&*ledger, &session("s1", None, Some(12)), at(0)).await;
    assert_eq!(owner_of(&*ledger, &pull(12), at(3_599)).await.as_deref(), Some("s1"));
    assert_eq!(owner_of(&*ledger, &pull(12), at(3_600)).await, None);
    let second = Session {
        live_until: at(7_200),
        ..session("s2", None, Some(12))
    };
    assert!(matches!(open(&*ledger, &second, at(3_599)).await, Opened::Held { .. }));
    assert_eq!(open(&*ledger, &second, at(3_600)).await, Opened::Live(vec![pull(12)]));
    assert!(ledger.close_session(&id("s1"), at(86_400)).await.unwrap().is_some());
    let owner = owner_of(&*ledger, &pull(12), at(3_601)).await;
    assert_eq!(
        owner.as_deref(),
        Some("s2"),
        "only its own pointers are a session's to remove"
    );
}

async fn a_session_for_a_branch_gets_the_pull_requests_that_were_learnt(engine: impl Engine) {
    let ledger = engine.ledger();
    for number in [12, 5, 7] {
        ledger.learn(&repository(), "fix", number, at(0)).await.unwrap();
    }
    open(&*ledger, &session("s0", None, Some(7)), at(0)).await;
    let opened = open(&*ledger, &session("s1", Some("fix"), Some(12)), at(0)).await;
    // 7 is another's already, and was not asked for by name: the session opens without it. 12 is there once.
    assert_eq!(opened, Opened::Live(vec![branch("fix"), pull(12), pull(5)]));
    assert_eq!(owner_of(&*ledger, &pull(7), at(1)).await.as_deref(), Some("s0"));
}

async fn closing_frees_what_the_session_owns_and_nothing_else(engine: impl Engine) {
    let ledger = engine.ledger();
    for number in [5, 7] {
        ledger.learn(&repository(), "fix", number, at(0)).await.unwrap();
    }
    open(&*ledger, &session("s0", None, Some(7)), at(0)).await;
    open(&*ledger, &session("s1", Some("fix"), Some(12)), at(0)).await;
    // A payload names another pull request of the branch while the session lives.
    let pointer = ledger.learn(&repository(), "fix", 9, at(0)).await.unwrap();
    assert!(ledger.own(&pull(9), &pointer.owner.unwrap(), at(1)).await.unwrap());
    let closed = ledger.close_session(&id("s1"), at(86_400)).await.unwrap().unwrap();
    assert!(!closed.phase.is_live());
    for key in [branch("fix"), pull(12), pull(5), pull(9)] {
        assert_eq!(owner_of(&*ledger, &key, at(2)).await, None, "{key}");
    }
    assert_eq!(owner_of(&*ledger, &pull(7), at(2)).await.as_deref(), Some("s0"));
    let pulls = ledger.learn(&repository(), "fix", 5, at(0)).await.unwrap().pulls;
    assert_eq!(
        pulls,
        BTreeSet::from([5, 7, 9]),
        "what is known of the branch stays known"
    );
}

async fn closing_twice_and_closing_the_unknown_are_harmless(engine: impl Engine) {
    let ledger = engine.ledger();
    assert_eq!(ledger.close_session(&id("s404"), at(0)).await.unwrap(), None);
    open(&*ledger, &session("s1", None, Some(12)), at(0)).await;
    let first = ledger.close_session(&id("s1"), at(86_400)).await.unwrap();
    open(&*ledger, &session("s2", None, Some(12)), at(1)).await;
    assert_eq!(ledger.close_session(&id("s1"), at(86_400)).await.unwrap(), first);
    assert_eq!(owner_of(&*ledger, &pull(12), at(2)).await.as_deref(), Some("s2"));
}

async fn closed_sessions_are_not_listed_and_the_limit_holds(engine: impl Engine) {
    let ledger = engine.ledger();
    for (name, number) in [("s1", 1), ("s2", 2), ("s3", 3)] {
        open(&*ledger, &session(name, None, Some(number)), at(0)).await;
    }
    ledger.close_session(&id("s1"), at(86_400)).await.unwrap();
    let all = ledger.sessions(10).await.unwrap();
    let ids: Vec<_> = all.iter().map(|session| session.id.as_str()).collect();
    assert_eq!(ids, ["s2", "s3"]);
    assert_eq!(ledger.sessions(1).await.unwrap().len(), 1);
    assert_eq!(ledger.sessions(0).await.unwrap().len(), 0);
    // One that is opened again is there again.
    open(&*ledger, &session("s1", None, Some(1)), at(1)).await;
    assert_eq!(ledger.sessions(10).await.unwrap().len(), 3);
}

async fn simultaneous_sessions_for_one_pull_request_have_one_owner(engine: impl Engine) {
    let ledger = engine.ledger();
    let answers = at_once(16, |number| {
        let ledger = Arc::clone(&ledger);
        let session = session(&format!("s{number}"), None, Some(12));
        async move { ledger.open_session(&session, at(0)).await.unwrap() }
    })
    .await;
    let live = answers.iter().filter(|answer| matches!(answer, Opened::Live(_)));
    assert_eq!(live.count(), 1);
    assert_eq!(ledger.sessions(100).await.unwrap().len(), 1);
}

async fn parked_events_wait_under_their_key_until_somebody_claims_them(engine: impl Engine) {
    let ledger = engine.ledger();
    for (id, due) in [("second", 200), ("first", 100), ("third", 300)] {
        let lease = admit_event(&*ledger, id, 1).await;
        settled(&*ledger, lease, at(1), parked(pull(12), at(due))).await;
    }
    let ids = |ids: &[&str]| ids.iter().map(|id| EventId::new(id)).collect::<Vec<_>>();
    let waiting = async |limit| ledger.waiting(&pull(12), limit).await.unwrap();
    assert_eq!(waiting(10).await, ids(&["first", "second", "third"]));
    assert_eq!(waiting(2).await, ids(&["first", "second"]));
    assert_eq!(waiting(0).await, ids(&[]));
    assert_eq!(ledger.waiting(&pull(1), 10).await.unwrap(), ids(&[]));
    let lease = won(&*ledger, "second", claim_for_owner(at(2), 2)).await;
    assert_eq!(waiting(10).await, ids(&["first", "third"]));
    settled(&*ledger, lease, at(3), processed(at(3))).await;
    assert_eq!(waiting(10).await, ids(&["first", "third"]));
}

async fn two_reapers_over_twenty_lapsed_rows_win_twenty_claims_together(engine: impl Engine) {
    // LEAS-07, S2-15
    let ledger = engine.ledger();
    let names: Vec<String> = (0..20).map(|number| format!("e{number}")).collect();
    for name in &names {
        admit_event(&*ledger, name, 1).await;
    }
    let won = at_once(2, |reaper| {
        let (ledger, names) = (Arc::clone(&ledger), names.clone());
        async move {
            let mut won = 0;
            for (name, number) in names.iter().zip(1..) {
                let claim = claim(at(60), reaper * 1_000 + number);
                won += usize::from(matches!(
                    ledger.claim(&EventId::new(name), claim).await.unwrap(),
                    Claimed::Won { .. }
                ));
            }
            won
        }
    })
    .await;
    assert_eq!(won.iter().sum::<usize>(), 20);
    for name in &names {
        assert_eq!(row(&*ledger, name).await.state.token.number(), 2);
    }
}

// --- what is due ----------------------------------------------------------------------------------------------------------

/// Everything due at `now`, in pages of `limit` rows. Each shard's come in order.
async fn due(ledger: &impl Ledger, now: Timestamp, limit: usize) -> Vec<Due> {
    let mut all = Vec::new();
    for shard in 0..DUE_SHARDS {
        let mut query = DueQuery {
            shard,
            until: now,
            after: None,
            limit,
        };
        let began = all.len();
        loop {
            let page = ledger.due(&query).await.unwrap();
            assert!(page.events.len() <= limit);
            all.extend(page.events);
            assert!(all[began..].is_sorted(), "{all:?}");
            match page.next {
                Some(mark) => query.after = Some(mark),
                None => break,
            }
        }
    }
    all.sort();
    all
}

fn raise(now: Timestamp, seen: Timestamp, nonce: u64) -> Raise {
    Raise {
        now,
        seen,
        nonce: Nonce::from_random(nonce),
        wait_min: secs(15),
        wait_max: secs(3_600),
        failures_max: 4,
        expires_at: now + RETENTION,
    }
}

async fn what_is_due_is_listed_once_oldest_first_however_small_the_pages(engine: impl Engine) {
    // Invariant 5
    let ledger = engine.ledger();
    let mut expected = Vec::new();
    for number in 0..40_i64 {
        let name = format!("e{number}");
        let lease = admit_event(&*ledger, &name, 1).await;
        // Some are due at the same time.
        let due_at = at(100 - number / 2);
        settled(&*ledger, lease, at(1), failed(due_at)).await;
        expected.push(Due {
            due_at,
            event: EventId::new(&name),
        });
    }
    expected.sort();
    for limit in [1, 3, 1_000] {
        assert_eq!(due(&*ledger, at(100), limit).await, expected, "{limit}");
    }
    expected.retain(|due| due.due_at <= at(90));
    assert_eq!(due(&*ledger, at(90), 7).await, expected);
}

async fn what_is_held_ended_or_due_later_is_not_listed_as_due(engine: impl Engine) {
    // S2-15: live leases and terminal rows are left alone
    let ledger = engine.ledger();
    drop(admit_event(&*ledger, "held", 1).await);
    for (name, settlement) in [
        ("done", processed(at(1))),
        ("given-up", given_up(at(1))),
        ("later", failed(at(61))),
        ("waits", parked(pull(12), at(50))),
    ] {
        let lease = admit_event(&*ledger, name, 1).await;
        settled(&*ledger, lease, at(1), settlement).await;
    }
    let names = |due: Vec<Due>| due.into_iter().map(|due| due.event.to_string()).collect::<Vec<_>>();
    assert_eq!(names(due(&*ledger, at(34), 10).await), Vec::<String>::new());
    assert_eq!(names(due(&*ledger, at(60), 10).await), ["held", "waits"]);
    assert_eq!(names(due(&*ledger, at(61), 10).await), ["held", "waits", "later"]);
}

async fn a_raised_row_is_due_later_and_ends_at_the_ceiling(engine: impl Engine) {
    // S2-15, invariant 5
    let ledger = engine.ledger();
    let lease = admit_event(&*ledger, "a", 1).await;
    settled(&*ledger, lease, at(1), parked(pull(12), at(10))).await;
    let id = EventId::new("a");
    let (mut now, mut seen) = (at(10), at(10));
    for failures in 1..=3 {
        let raised = ledger
            .raise(&id, raise(now, seen, 10 + u64::from(failures)))
            .await
            .unwrap();
        assert_eq!(raised, Raised::Later);
        let state = row(&*ledger, "a").await.state;
        assert_eq!((state.status, state.failures), (Status::FailedRetryable, failures));
        assert!(state.due_at > Some(now) && state.waiting_for.is_none());
        assert_eq!(ledger.waiting(&pull(12), 10).await.unwrap(), []);
        seen = state.due_at.unwrap();
        now = seen;
    }
    assert_eq!(ledger.raise(&id, raise(now, seen, 20)).await.unwrap(), Raised::Ended);
    let state = row(&*ledger, "a").await.state;
    assert_eq!(
        (state.status, state.reason, state.failures, state.due_at),
        (Status::FailedPermanent, Some(Reason::TooManyFailures), 4, None)
    );
    assert!(state.expires_at.is_some());
    assert_eq!(due(&*ledger, at(86_400), 10).await, []);
    let again = ledger.raise(&id, raise(now, seen, 21)).await.unwrap();
    assert_eq!(again, Raised::Lost(Refused::Terminal(Status::FailedPermanent)));
    let missing = ledger.raise(&EventId::new("b"), raise(now, seen, 22)).await.unwrap();
    assert_eq!(missing, Raised::Lost(Refused::Missing));
}

async fn a_raise_after_its_own_claim_counts_once_and_recognises_itself(engine: impl Engine) {
    let ledger = engine.ledger();
    let first = admit_event(&*ledger, "a", 1).await;
    drop(won(&*ledger, "a", claim(at(36), 2)).await);
    for _ in 0..2 {
        let raised = ledger
            .raise(&EventId::new("a"), raise(at(37), at(35), 2))
            .await
            .unwrap();
        assert_eq!(raised, Raised::Later);
        let state = row(&*ledger, "a").await.state;
        assert_eq!((state.failures, state.token.number()), (2, 2));
    }
    let stale = settled(&*ledger, first, at(20), processed(at(20))).await;
    assert!(matches!(stale, Settled::Lost(Refused::Stale { .. })), "{stale:?}");
}

async fn a_raise_leaves_alone_what_somebody_has_had_since_it_was_seen(engine: impl Engine) {
    // Invariant 4
    let ledger = engine.ledger();
    drop(admit_event(&*ledger, "a", 1).await);
    let held = won(&*ledger, "a", claim(at(36), 2)).await;
    let before = row(&*ledger, "a").await;
    for (now, seen) in [(at(37), at(35)), (at(37), at(71))] {
        let raised = ledger.raise(&EventId::new("a"), raise(now, seen, 3)).await.unwrap();
        assert_eq!(raised, Raised::Lost(Refused::NotDue { due_at: at(71) }));
    }
    assert_eq!(row(&*ledger, "a").await, before);
    assert_eq!(settled(&*ledger, held, at(40), failed(at(50))).await, Settled::Done);
    let raised = ledger
        .raise(&EventId::new("a"), raise(at(60), at(35), 3))
        .await
        .unwrap();
    assert!(matches!(raised, Raised::Lost(Refused::Stale { .. })), "{raised:?}");
}

// --- redaction --------------------------------------------------------------------------------------------------------------

async fn an_owner_redacts_a_body_and_its_delivery_stays_a_duplicate_of_itself(engine: impl Engine) {
    // S2-18, S2-07
    let ledger = engine.ledger();
    for (number, body) in (1..).zip([BODY.to_vec(), noise(900_000)]) {
        let (name, hook) = (format!("e{number}"), format!("42/{number}"));
        let delivery = with_body(accepted(&hook, &name), &body);
        let Admitted::Created { lease: Some(lease) } = ledger.admit(&admission(&delivery, &body, 1)).await.unwrap()
        else {
            panic!("it is new")
        };
        let before = ledger.delivery(&delivery.key).await.unwrap().unwrap();
        for now in [at(1), at(2)] {
            let redacted = ledger.redact(&lease, &delivery.key, now).await.unwrap();
            assert_eq!(redacted, Redacted::Done);
            assert_eq!(ledger.body(&delivery.key).await.unwrap(), None);
        }
        let after = ledger.delivery(&delivery.key).await.unwrap().unwrap();
        let expected = DeliveryRow {
            stored_bytes: 0,
            redacted_at: Some(at(1)),
            ..before
        };
        assert_eq!(after, expected, "digest and identity stay");
        assert_eq!(row(&*ledger, &name).await.event.summary, "", "what it quoted goes too");
        let again = ledger.admit(&admission(&delivery, &body, 2)).await.unwrap();
        assert!(
            matches!(again, Admitted::Duplicate { conflict: false, .. }),
            "{again:?}"
        );
        let other = with_body(delivery.clone(), b"{}");
        let conflict = ledger.admit(&admission(&other, b"{}", 3)).await.unwrap();
        assert!(
            matches!(conflict, Admitted::Duplicate { conflict: true, .. }),
            "{conflict:?}"
        );
        assert_eq!(ledger.body(&delivery.key).await.unwrap(), None);
        assert_eq!(settled(&*ledger, lease, at(3), processed(at(3))).await, Settled::Done);
    }
}

async fn a_stale_or_lapsed_owner_redacts_nothing(engine: impl Engine) {
    // S2-18, invariant 4
    let ledger = engine.ledger();
    let first = admit_event(&*ledger, "a", 1).await;
    let key = DeliveryKey::parse(&format!("42/{}", guid_of("a"))).unwrap();
    let before = (row(&*ledger, "a").await, ledger.delivery(&key).await.unwrap());
    let lapsed = ledger.redact(&first, &key, at(30)).await.unwrap();
    assert_eq!(lapsed, Redacted::Lost(Refused::Lapsed { until: at(30) }));
    assert_eq!((row(&*ledger, "a").await, ledger.delivery(&key).await.unwrap()), before);
    let second = won(&*ledger, "a", claim(at(36), 2)).await;
    let stale = ledger.redact(&first, &key, at(20)).await.unwrap();
    assert_eq!(
        stale,
        Redacted::Lost(Refused::Stale {
            current: second.token()
        })
    );
    assert_eq!(ledger.body(&key).await.unwrap().as_deref(), Some(BODY));
    let copy = copy_of(&second);
    settled(&*ledger, second, at(40), processed(at(40))).await;
    let ended = ledger.redact(&copy, &key, at(41)).await.unwrap();
    assert_eq!(ended, Redacted::Lost(Refused::Terminal(Status::Processed)));
    assert_eq!(ledger.body(&key).await.unwrap().as_deref(), Some(BODY));
    assert_eq!(row(&*ledger, "a").await.event.summary, before.0.event.summary);
}

async fn an_owner_redacts_only_what_its_event_came_by(engine: impl Engine) {
    let ledger = engine.ledger();
    let lease = admit_event(&*ledger, "a", 1).await;
    drop(admit_event(&*ledger, "b", 2).await);
    let ping = delivery("42/f", Outcome::Ignored(Ignored::Ping));
    admit(&*ledger, &ping, 3).await.unwrap();
    let others = [format!("42/{}", guid_of("b")), "42/f".to_owned(), "42/e".to_owned()];
    for key in others.map(|key| DeliveryKey::parse(&key).unwrap()) {
        let redacted = ledger.redact(&lease, &key, at(1)).await.unwrap();
        assert_eq!(redacted, Redacted::NotItsOwn, "{key}");
    }
    assert_eq!(ledger.body(&ping.key).await.unwrap().as_deref(), Some(BODY));
    assert!(!row(&*ledger, "a").await.event.summary.is_empty());
    // Another hook's copy of the same event is its own.
    admit(&*ledger, &accepted("77/a1", "a"), 4).await.unwrap();
    let key = DeliveryKey::parse("77/a1").unwrap();
    assert_eq!(ledger.redact(&lease, &key, at(1)).await.unwrap(), Redacted::Done);
}

// --- rows of another version, and broken ones ------------------------------------------------------------------------------

#[tokio::test]
async fn a_newer_row_is_refused_as_newer_and_not_called_poison() {
    let engine = Embedded::start().await;
    let ledger = engine.ledger();
    let lease = admit_event(&*ledger, "new", 1).await;
    settled(&*ledger, copy_of(&lease), at(1), failed(at(2))).await;
    admit_event(&*ledger, "old", 2).await;
    let mut newer = engine.row("event#new").await.unwrap();
    newer.insert(
        "v".to_owned(),
        aws_sdk_dynamodb::types::AttributeValue::N("2".to_owned()),
    );
    engine.put(newer.clone()).await;
    for claim in [claim(at(10), 3), claim_for_owner(at(10), 4)] {
        assert_eq!(lost(&*ledger, "new", claim).await, Refused::Newer(2));
    }
    assert_eq!(engine.row("event#new").await.unwrap(), newer, "left alone");
    assert_eq!(
        listed(&*ledger, at(0), at(60), 10).await[0],
        ["old"],
        "skipped, and harms no other"
    );
    // Another hook's copy is still admitted: the event is there, whatever its row says.
    let answer = admit(&*ledger, &accepted("77/a1", "new"), 5).await.unwrap();
    assert!(matches!(answer, Admitted::Joined { event: None, .. }), "{answer:?}");
    let copy = accepted(&format!("42/{}", guid_of("new")), "new");
    assert_eq!(admit(&*ledger, &copy, 6).await.unwrap(), duplicate(false, None));
}

#[tokio::test]
async fn an_unreadable_row_gives_an_error_of_its_own_and_harms_nobody_else() {
    // Invariants 5 and 10, S2-15
    use forebay_core::ports::{ErrorClass, ErrorKind};
    let engine = Embedded::start().await;
    let ledger = engine.ledger();
    admit_event(&*ledger, "poison", 1).await;
    admit_event(&*ledger, "good", 2).await;
    let mut broken = engine.row("event#poison").await.unwrap();
    broken.remove("status");
    engine.put(broken).await;
    let error = ledger
        .claim(&EventId::new("poison"), claim(at(60), 3))
        .await
        .unwrap_err();
    assert_eq!((error.class, error.kind()), (ErrorClass::Unreadable, ErrorKind::Reject));
    let error = ledger.event(&EventId::new("poison")).await.unwrap_err();
    assert_eq!(error.to_string(), "read event poison: unreadable");
    assert_eq!(listed(&*ledger, at(0), at(60), 10).await[0], ["good"]);
    won(&*ledger, "good", claim(at(60), 4)).await;
    let copy = accepted(&format!("42/{}", guid_of("poison")), "poison");
    assert_eq!(admit(&*ledger, &copy, 5).await.unwrap(), duplicate(false, None));
}

#[tokio::test]
async fn nothing_of_a_redacted_body_is_left_in_the_table() {
    // S2-18, invariant 8
    let engine = Embedded::start().await;
    let ledger = engine.ledger();
    let body = noise(900_000);
    let delivery = with_body(accepted("42/a", "a"), &body);
    let admitted = ledger.admit(&admission(&delivery, &body, 1)).await.unwrap();
    let Admitted::Created { lease: Some(lease) } = admitted else {
        panic!("it is new")
    };
    let of_kind = |rows: Vec<forebay_tests::engine::Item>, kind: &'static str| {
        let named = move |row: &forebay_tests::engine::Item| {
            forebay_tests::engine::text(row, "pk").is_some_and(|pk| pk.starts_with(kind))
        };
        rows.into_iter().filter(named).collect::<Vec<_>>()
    };
    assert_eq!(of_kind(engine.rows().await, "body#").len(), 3);
    assert_eq!(
        ledger.redact(&lease, &delivery.key, at(1)).await.unwrap(),
        Redacted::Done
    );
    for chunk in of_kind(engine.rows().await, "body#") {
        assert!(!chunk.contains_key("bytes"), "{chunk:?}");
        assert_eq!(
            forebay_tests::engine::number(&chunk, "expires_at"),
            Some(at(1).as_second())
        );
    }
    // The same bytes under another key are written anew.
    let copy = with_body(accepted("42/b", "b"), &body);
    ledger.admit(&admission(&copy, &body, 2)).await.unwrap();
    assert_eq!(ledger.body(&copy.key).await.unwrap(), Some(body));
    assert_eq!(ledger.body(&delivery.key).await.unwrap(), None);
}

#[tokio::test]
async fn skipped_rows_take_no_place_in_a_listing() {
    let engine = Embedded::start().await;
    let ledger = engine.ledger();
    // More skipped rows than the limit, all of them newer than what can be read.
    for number in 0..12 {
        let delivery = Delivery {
            received_at: at(100 + number),
            ..delivery(&format!("2/{number:x}"), Outcome::Ignored(Ignored::Ping))
        };
        admit(&*ledger, &delivery, 1).await.unwrap();
        let mut row = engine.row(&format!("delivery#github#2#{number:x}")).await.unwrap();
        row.remove("outcome");
        engine.put(row).await;
    }
    let readable = delivery("2/abc", Outcome::Ignored(Ignored::Ping));
    admit(&*ledger, &readable, 1).await.unwrap();
    assert_eq!(listed(&*ledger, at(0), at(200), 1).await[1], ["abc"]);
}

// --- events that are their own record ---------------------------------------------------------------------------------------

const QUEUE: &str = "arn:aws:sqs:eu-west-1:000000000000:orders";

/// A message of a queue that says `content`.
fn said(id: &str, content: &str) -> Event {
    Event {
        kind: Kind::QueueMessage,
        cloud_source: QUEUE.to_owned(),
        cloud_subject: String::new(),
        subject: Subject::Group {
            queue: QUEUE.to_owned(),
            name: id.to_owned(),
        },
        pull_requests: Vec::new(),
        content: Some(Content::Here(content.to_owned())),
        ..event(id)
    }
}

async fn admit_alone(ledger: &impl Ledger, event: &Event, net: Net, nonce: u64) -> Admitted {
    let admittee = claimed(event.clone(), nonce, at(0));
    let admission = EventAdmission {
        admittee: &admittee,
        net,
        received_at: at(0),
        nonce: Nonce::from_random(nonce),
        expires_at: at(0) + RETENTION,
    };
    ledger.admit_event(&admission).await.unwrap()
}

async fn an_event_that_is_its_own_record_is_admitted_once(engine: impl Engine) {
    // SQSB-10, SQSB-13
    let ledger = engine.ledger();
    let event = said("m1", "{\"data\":1}");
    let Admitted::Created { lease: Some(lease) } = admit_alone(&*ledger, &event, Net::Queue, 1).await else {
        panic!("not created")
    };
    assert_eq!((lease.token(), lease.until()), (Token::FIRST, at(30)));
    let kept = row(&*ledger, "m1").await;
    assert_eq!(
        (&kept.event, kept.first_seen, kept.admitted_at),
        (&event, Net::Queue, at(0))
    );
    let other = said("m1", "{\"data\":2}");
    assert_eq!(
        admit_alone(&*ledger, &other, Net::Queue, 2).await,
        duplicate(false, Some(kept.clone()))
    );
    assert_eq!(row(&*ledger, "m1").await, kept, "what came first stays");
    assert_eq!(engine.counts().await, (0, 1));
}

async fn an_event_that_is_its_own_record_joins_what_a_webhook_brought(engine: impl Engine) {
    let ledger = engine.ledger();
    admit_event(&*ledger, "e", 1).await;
    let Admitted::Joined {
        event: Some(joined), ..
    } = admit_alone(&*ledger, &event("e"), Net::Feed, 2).await
    else {
        panic!("not joined")
    };
    assert_eq!(joined.seen_by, BTreeSet::from([Net::Webhook, Net::Feed]));
    let kept = row(&*ledger, "e").await;
    assert_eq!((&kept, kept.first_seen), (&*joined, Net::Webhook));
    let again = admit_alone(&*ledger, &event("e"), Net::Feed, 3).await;
    assert_eq!(again, duplicate(false, Some(kept)), "once each net");
}

async fn an_admission_of_an_event_alone_recognises_itself_behind_a_lost_answer(engine: impl Engine) {
    let ledger = engine.ledger();
    let event = said("m1", "{}");
    admit_alone(&*ledger, &event, Net::Queue, 1).await;
    let again = admit_alone(&*ledger, &event, Net::Queue, 1).await;
    assert!(matches!(again, Admitted::Created { lease: Some(lease) } if lease.nonce() == Nonce::from_random(1)));
}

async fn simultaneous_admissions_of_one_message_create_it_once(engine: impl Engine) {
    // S2-05
    let ledger = engine.ledger();
    let mut admissions = JoinSet::new();
    for nonce in 0..8 {
        let ledger = Arc::clone(&ledger);
        admissions.spawn(async move { admit_alone(&*ledger, &said("m1", "{}"), Net::Queue, nonce).await });
    }
    let admitted = admissions.join_all().await;
    let created = admitted
        .iter()
        .filter(|admitted| matches!(admitted, Admitted::Created { .. }));
    assert_eq!((created.count(), engine.counts().await), (1, (0, 1)));
}

async fn what_a_message_said_comes_back_exactly_however_large(engine: impl Engine) {
    let ledger = engine.ledger();
    let noise: String = (0_u32..400_000)
        .map(|n| char::from(b'a' + (n.wrapping_mul(2_654_435_761) >> 24) as u8 % 26))
        .collect();
    for (id, content) in [
        ("small", "{\"data\":\"\u{0}\u{ffff}🚀\"}"),
        ("empty", ""),
        ("large", &noise),
    ] {
        admit_alone(&*ledger, &said(id, content), Net::Queue, 1).await;
        let content_kept = ledger.content(&EventId::new(id)).await.unwrap();
        assert_eq!(content_kept.as_deref(), Some(content), "{id}");
        let kept = row(&*ledger, id).await.event.content;
        let expected = [Content::Here(content.to_owned()), Content::Apart(content.len() as u64)];
        assert!(kept.is_some_and(|kept| expected.contains(&kept)), "{id}");
    }
    admit_event(&*ledger, "e", 1).await;
    for none in ["e", "nobody"] {
        assert_eq!(ledger.content(&EventId::new(none)).await.unwrap(), None, "{none}");
    }
}
