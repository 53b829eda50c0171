//! Every write of a turn when its call fails on the way: what it says then, and what it has done when it is made again.

use std::collections::BTreeSet;
use std::future::Future;

use aws_sdk_dynamodb::Client;
use forebay_aws::dynamodb::DynamoLedger;
use forebay_core::delivery::DeliveryKey;
use forebay_core::event::{EventId, Net};
use forebay_core::ledger::{Nonce, Token};
use forebay_core::ports::{ErrorClass, ErrorKind, Ledger, LedgerError};
use forebay_core::schedule::{Resting, Returned, SourceRefused, SourceStore};
use forebay_core::source::github::{Becomes, MissingStore};
use forebay_tests::engine::{Embedded, Engine, Item};
use forebay_tests::fault::{Fault, Faults};
use forebay_tests::samples::*;
use tokio::task::JoinSet;

use super::missing::{log, missing};
use super::{INTERVAL, due, lease_of, nothing_new, read_to, source, target, wish};

/// Most HTTP requests of one call: the SDK's own tries.
const ATTEMPTS_MAX: usize = 3;

/// A write that a turn of the poller makes.
#[derive(Clone, Copy, Debug)]
enum Write {
    Register,
    Claim,
    GiveBack,
    GiveBackWithCursor,
    PutOff,
    Rest,
    Note,
    Ask,
    Settle,
    Attribute,
}

impl Write {
    const ALL: [Self; 10] = [
        Self::Register,
        Self::Claim,
        Self::GiveBack,
        Self::GiveBackWithCursor,
        Self::PutOff,
        Self::Rest,
        Self::Note,
        Self::Ask,
        Self::Settle,
        Self::Attribute,
    ];

    /// Calls that it makes, writes or not.
    const fn calls(self) -> usize {
        match self {
            Self::Register => 2,
            Self::Attribute => 4,
            Self::Claim
            | Self::GiveBack
            | Self::GiveBackWithCursor
            | Self::PutOff
            | Self::Rest
            | Self::Note
            | Self::Ask
            | Self::Settle => 1,
        }
    }

    /// Makes it at 1, and says what it was answered.
    async fn make(self, ledger: &DynamoLedger) -> Result<String, LedgerError> {
        let shown = |answer: &dyn std::fmt::Debug| format!("{answer:?}");
        let lease = lease_of(&source("held"), Token::FIRST, Nonce::from_random(1), at(0) + LEASE);
        let key = DeliveryKey::parse("42/a1").unwrap();
        Ok(match self {
            Self::Register => {
                // How many it made is not known behind a lost answer: that is for the log.
                ledger.register_sources(&[(source("new"), INTERVAL)], at(1)).await?;
                String::new()
            }
            Self::Claim => shown(&ledger.claim_source(&source("free"), wish(1, 2)).await?),
            Self::GiveBack => shown(&ledger.give_back_source(lease, at(1), nothing_new(50)).await?),
            Self::GiveBackWithCursor => shown(&ledger.give_back_source(lease, at(1), read_to("one", 50)).await?),
            Self::PutOff => shown(&ledger.put_off_source(&due(0, "free"), at(500), at(1), SKEW).await?),
            Self::Rest => {
                let resting = Resting {
                    until: at(60),
                    strikes: 1,
                };
                shown(&ledger.rest_target(&target("app"), resting).await?)
            }
            Self::Note => {
                ledger.note_missing(&log("app"), &[missing("b1", 0)]).await?;
                String::new()
            }
            Self::Ask => {
                let asked = Becomes::Asked(at(300));
                shown(
                    &ledger
                        .settle_missing(&log("app"), &missing("a2", 0), asked, at(1))
                        .await?,
                )
            }
            Self::Settle => {
                let here = Becomes::Here;
                shown(
                    &ledger
                        .settle_missing(&log("app"), &missing("a2", 0), here, at(1))
                        .await?,
                )
            }
            Self::Attribute => shown(&ledger.attribute(&key).await?),
        })
    }
}

/// A table in the middle of things: one source is free, one held, one delivery came and one is missing.
async fn world() -> Embedded {
    let engine = Embedded::start().await;
    let ledger = engine.ledger();
    let sources = [(source("free"), INTERVAL), (source("held"), INTERVAL)];
    ledger.register_sources(&sources, at(0)).await.unwrap();
    ledger.claim_source(&source("held"), wish(0, 1)).await.unwrap();
    ledger.note_missing(&log("app"), &[missing("a2", 0)]).await.unwrap();
    let delivery = accepted("42/a1", "e");
    let mut admission = admission(&delivery, BODY, 1);
    if let Some(admittee) = &mut admission.event {
        admittee.event.delivery = Some(delivery.key.clone());
    }
    ledger.admit(&admission).await.unwrap();
    engine
}

fn ledger_behind(engine: &Embedded, faults: &Faults) -> DynamoLedger {
    let config = engine.table.config().http_client(faults.clone()).build();
    ledger_on(Client::from_conf(config))
}

/// What the write says and leaves behind where nothing fails.
async fn in_peace(write: Write) -> (String, Vec<Item>) {
    let engine = world().await;
    let faults = Faults::on_the_way();
    let said = write.make(&ledger_behind(&engine, &faults)).await.unwrap();
    assert_eq!(faults.count(), write.calls(), "{write:?}");
    (said, engine.rows().await)
}

/// Plays `write` once for each of its calls and each of `faults`, all of them side by side: a back-off takes real time.
async fn play<F>(faults: &[Fault], play: impl Fn(Write, usize, Fault, (String, Vec<Item>)) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut plays = JoinSet::new();
    for write in Write::ALL {
        let peace = in_peace(write).await;
        for call in 0..write.calls() {
            for fault in faults {
                plays.spawn(play(write, call, fault.clone(), peace.clone()));
            }
        }
    }
    plays.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_fails_once_before_or_after_it_was_carried_out_is_made_once() {
    // DDBC-01, DDBC-03, DDBC-06
    let faults = [
        Fault::Reset,
        Fault::AnswerLost,
        Fault::refused("ThrottlingException"),
        Fault::refused("InternalServerError"),
    ];
    play(&faults, |write, call, fault, peace| async move {
        let engine = world().await;
        let faults = Faults::on_the_way().at(call, fault.clone());
        let said = write.make(&ledger_behind(&engine, &faults)).await.unwrap();
        let left = (said, engine.rows().await);
        assert_eq!(left, peace, "{write:?}, {fault:?} at call {call}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_gets_no_answer_says_so_and_is_made_once_by_whoever_makes_it_again() {
    // DDBC-10
    let faults = [Fault::Reset, Fault::AnswerLost, Fault::refused("ThrottlingException")];
    play(&faults, |write, call, first, peace| async move {
        let engine = world().await;
        let (again, class) = if first == Fault::refused("ThrottlingException") {
            (first.clone(), ErrorClass::Throttled)
        } else {
            (Fault::Reset, ErrorClass::Unreachable)
        };
        let faults = Faults::on_the_way().at(call, first.clone());
        let faults = (1..ATTEMPTS_MAX).fold(faults, |faults, more| faults.at(call + more, again.clone()));
        let ledger = ledger_behind(&engine, &faults);
        let error = write.make(&ledger).await.unwrap_err();
        let name = format!("{write:?}, {first:?} at call {call}");
        assert_eq!((error.class, error.kind()), (class, ErrorKind::Retry), "{name}");
        let said = write.make(&ledger).await.unwrap();
        assert_eq!((said, engine.rows().await), peace, "{name}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_met_another_write_is_no_verdict() {
    // DDBC-07, DDBC-09: claim first, cursor second.
    let conflict = ("TransactionConflict", None);
    let none = ("None", None);
    let failed = ("ConditionalCheckFailed", None);
    for (reasons, expected) in [
        ([conflict.clone(), none.clone()], Err(ErrorClass::Conflict)),
        ([none.clone(), conflict.clone()], Err(ErrorClass::Conflict)),
        ([none.clone(), ("ThrottlingError", None)], Err(ErrorClass::Throttled)),
        ([none.clone(), none.clone()], Err(ErrorClass::Conflict)),
        (
            [none, ("ItemCollectionSizeLimitExceeded", None)],
            Err(ErrorClass::TooLarge),
        ),
        ([failed.clone(), conflict], Ok(Returned::Lost(SourceRefused::Missing))),
    ] {
        let faults = Faults::alone().always(Fault::cancelled(&reasons));
        let config = forebay_tests::table::config("http://127.0.0.1:1").http_client(faults.clone());
        let ledger = ledger_on(Client::from_conf(config.build()));
        let lease = lease_of(&source("a"), Token::FIRST, Nonce::from_random(1), at(30));
        let returned = ledger.give_back_source(lease, at(1), read_to("one", 50)).await;
        assert_eq!(returned.map_err(|error| error.class), expected, "{reasons:?}");
    }
    let faults = Faults::alone().always(Fault::cancelled(&[]));
    let config = forebay_tests::table::config("http://127.0.0.1:1").http_client(faults);
    let ledger = ledger_on(Client::from_conf(config.build()));
    let lease = lease_of(&source("a"), Token::FIRST, Nonce::from_random(1), at(30));
    let error = ledger
        .give_back_source(lease, at(1), read_to("one", 50))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry);
}

#[tokio::test]
async fn an_attribution_that_was_interrupted_takes_no_webhook_away_that_came_meanwhile() {
    let engine = world().await;
    // Both rows are read, the event's is written, and its delivery's is not.
    let faults = Faults::on_the_way().at(3, Fault::refused("AccessDeniedException"));
    let key = DeliveryKey::parse("42/a1").unwrap();
    let interrupted = ledger_behind(&engine, &faults).attribute(&key).await;
    assert_eq!(interrupted.unwrap_err().class, ErrorClass::Denied);
    admit(&*engine.ledger(), &accepted("77/a1", "e"), 2).await.unwrap();
    assert!(!engine.ledger().attribute(&key).await.unwrap());
    let row = engine.ledger().event(&EventId::new("e")).await.unwrap().unwrap();
    let both = BTreeSet::from([Net::Webhook, Net::Recovery]);
    assert_eq!((row.first_seen, row.seen_by), (Net::Recovery, both));
}
