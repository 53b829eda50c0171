//! Pollers that are frozen and overtaken, and writes that fail: what one says late undoes nothing that another has noted, and
//! is counted by none twice.

use std::sync::Arc;

use tokio::sync::Notify;

use super::*;

/// A poller is frozen in its first write about a missing delivery. When its lease has lapsed, another one makes its turn; then
/// the first one goes on.
async fn overtaken(bench: &Bench) -> (Round, Round) {
    let release = Arc::new(Notify::new());
    let hold = Script::Hold(Arc::clone(&release));
    bench.stand.ledger.once(Call::SettleMissing, hold);
    let is_frozen = || bench.stand.ledger.calls().contains(&Call::SettleMissing);
    let second = async {
        while !is_frozen() {
            tokio::task::yield_now().await;
        }
        bench.pass(301);
        let round = bench.round().await;
        bench.deliver().await;
        release.notify_one();
        round
    };
    tokio::join!(bench.round(), second)
}

#[tokio::test]
async fn a_poller_that_was_frozen_before_its_note_asks_for_nothing_and_takes_nothing_back() {
    // Invariants 4 and 6
    let (bench, _, _) = bench();
    let told = bench.happen(&comment(unreachable()));
    bench.pass(300);
    let (first, second) = overtaken(&bench).await;
    let redeliveries = [first, second].map(|round| round.tally.counts.redeliveries);
    assert_eq!(redeliveries, [0, 1]);
    let (mut recovered, mut attributed) = (0, 0);
    for _ in 0..3 {
        let round = turn(&bench).await;
        recovered += round.tally.counts.recovered;
        attributed += round.tally.counts.attributed;
    }
    let row = bench.event(told.event_id().unwrap()).await.unwrap();
    assert_eq!((recovered, attributed, row.first_seen), (1, 1, Net::Recovery));
}

#[tokio::test]
async fn a_poller_that_was_frozen_shortens_no_wait_that_another_one_noted() {
    // Invariant 9
    let (bench, log, _) = bench();
    bench.happen(&comment(unreachable()));
    bench.pass(300);
    lock(&bench.fake).set_hook_outage(Some(Outcome::answered(503)));
    let (_, second) = overtaken(&bench).await;
    assert_eq!(second.tally.counts.redeliveries, 1);
    let rows = bench.stand.ledger.inner().due_missing(&log, Timestamp::MAX, 10).await;
    let row = rows.unwrap().remove(0);
    assert_eq!(row.asked, 1);
    assert!(row.due_at > bench.now(), "it was asked for just now");
}

#[tokio::test]
async fn what_two_pollers_call_lost_is_lost_once() {
    let (bench, _, _) = bench();
    bench.happen(&comment(lost("Invalid HTTP Response: 413", 413)));
    bench.pass(300);
    let (first, second) = overtaken(&bench).await;
    assert_eq!((first.tally.counts.lost, second.tally.counts.lost), (0, 1));
}

#[tokio::test]
async fn what_could_not_be_noted_as_lost_is_counted_when_it_is() {
    let (bench, _, _) = bench();
    bench.happen(&comment(lost("Invalid HTTP Response: 413", 413)));
    bench.pass(300);
    let fails = Script::Fail(ErrorClass::Throttled);
    bench.stand.ledger.once(Call::SettleMissing, fails);
    let mut lost = 0;
    for _ in 0..4 {
        lost += turn(&bench).await.tally.counts.lost;
    }
    assert_eq!(lost, 1);
}

#[tokio::test]
async fn what_could_not_be_noted_as_here_is_counted_when_it_is() {
    for remedy in [Remedy::Redeliver, Remedy::Fetch] {
        let (bench, _, _) = bench_with(RecoveryConfig {
            remedy,
            ..RecoveryConfig::default()
        });
        bench.happen(&comment(unreachable()));
        bench.pass(300);
        let (mut recovered, mut attributed) = (0, 0);
        let mut count = |round: Round| {
            recovered += round.tally.counts.recovered;
            attributed += round.tally.counts.attributed;
        };
        if remedy == Remedy::Redeliver {
            count(turn(&bench).await);
        }
        let fails = Script::Fail(ErrorClass::Throttled);
        bench.stand.ledger.once(Call::SettleMissing, fails);
        for _ in 0..4 {
            count(turn(&bench).await);
        }
        // What was read from the log tells that webhooks lost it by itself.
        let expected = u64::from(remedy == Remedy::Redeliver);
        assert_eq!((recovered, attributed), (1, expected), "{remedy:?}");
    }
}
