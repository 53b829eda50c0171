//! Who polls what, and when again: one at a time, the oldest first, nobody forgotten, whatever happens to a poller.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use forebay_core::ports::ErrorClass;
use forebay_core::queue::{Body, Message};
use forebay_core::schedule::{NaiveScheduler, ScheduleConfig, Scheduler as _, SourceStore as _};
use forebay_core::source::github::FeedKind;
use forebay_core::source::{Placement, PulledQueue, SqsSource, SqsSourceConfig};
use forebay_tests::fakes::ManualTime;
use forebay_tests::github::{Hooked, Occasion, Outage, What, lock};
use forebay_tests::polling::{Bench, CountedSources, Round, StoreCall, installation, token};
use forebay_tests::samples::{at, secs};
use jiff::SignedDuration;
use tokio::join;

const APP: &str = "acme/app";

/// A bench with the events feeds of so many repositories.
fn bench(count: usize) -> Bench {
    let mut bench = Bench::new();
    for number in 0..count {
        let name = format!("acme/app{number:04}");
        lock(&bench.fake).add_repository(&name);
        bench.add_feed(FeedKind::Events, &name, token());
    }
    bench
}

/// The repositories of these requests, in their order.
fn polled(round: &Round) -> Vec<String> {
    let names = round
        .requests
        .iter()
        .map(|asked| asked.target.split('/').nth(3).unwrap());
    names.map(str::to_owned).collect()
}

#[tokio::test]
async fn two_runs_of_one_tick_poll_each_source_once() {
    // SCHD-01
    let bench = bench(5);
    let first = bench.round().await;
    let second = bench.round().await;
    assert_eq!((first.tally.polls, second.tally.polls), (5, 0));
    assert_eq!(second.requests, []);
}

#[tokio::test]
async fn two_pollers_beside_each_other_never_poll_a_source_twice_in_its_interval() {
    // SCHD-01, SCHD-03
    let mut bench = bench(40);
    for concurrency in [1, 3] {
        bench.concurrency = concurrency;
        let before = lock(&bench.fake).requests().len();
        let (one, other) = (bench.scheduler().await, bench.scheduler().await);
        let (one, other) = join!(bench.round_by(&one), bench.round_by(&other));
        assert_eq!(one.tally.polls + other.tally.polls, 40);
        assert!(one.tally.polls > 0 && other.tally.polls > 0, "they share the work");
        let fake = lock(&bench.fake);
        let targets: Vec<&str> = fake
            .requests()
            .iter()
            .skip(before)
            .map(|asked| asked.target.as_str())
            .collect();
        let distinct: BTreeSet<&&str> = targets.iter().collect();
        assert_eq!((targets.len(), distinct.len()), (40, 40));
        drop(fake);
        bench.pass(60);
    }
}

#[tokio::test]
async fn a_slow_run_keeps_what_it_polls_and_leaves_the_rest_to_the_next_one() {
    // SCHD-03
    let bench = bench(3);
    let (slow, next) = (bench.scheduler().await, bench.scheduler().await);
    let held = slow.next(bench.now() + secs(20)).await.unwrap().unwrap();
    bench.pass(30);
    let round = bench.round_by(&next).await;
    assert_eq!(round.tally.polls, 2);
    assert!(round.tally.errors.is_empty() && round.tally.overtaken == 0);
    assert!(!polled(&round).contains(&held.source.as_str().rsplit('/').next().unwrap().to_owned()));
}

#[tokio::test]
async fn a_poller_that_was_frozen_past_its_lease_moves_no_cursor() {
    // SCHD-03, invariant 4
    let mut bench = Bench::new();
    let feed = bench.add_feed(FeedKind::Events, APP, token());
    let opened = bench.happen(&Occasion::of(APP, What::pull_request("fix")).hooked(Hooked::Silent));
    // It answers after its lease is over and somebody else has polled.
    let time = bench.stand.time.clone();
    let lease = bench.schedule.lease;
    bench.wire.bend("/events", 1, move |answer| {
        time.pass(lease + secs(10));
        Ok(answer)
    });
    let frozen = bench.round().await;
    assert_eq!((frozen.tally.overtaken, bench.cursor(&feed)), (1, None));
    let second = bench.round().await;
    assert_eq!((second.tally.overtaken, second.written.accepted), (0, 1));
    assert!(bench.cursor(&feed).is_some());
    assert_eq!(bench.events().await, [opened.event_id().unwrap()]);
}

#[tokio::test]
async fn a_source_is_due_again_at_the_very_end_of_its_interval() {
    let mut bench = Bench::new();
    bench.schedule = ScheduleConfig {
        lease: secs(55),
        skew: secs(5),
    };
    let feed = bench.add_feed(FeedKind::Events, APP, token());
    bench.round().await;
    for _ in 0..10 {
        // Unchanged polls do not give their lease back.
        let wait = bench.row(&feed).due_at.duration_since(bench.now());
        bench.stand.time.pass(wait);
        assert_eq!(bench.round().await.tally.polls, 1);
    }
}

#[tokio::test]
async fn five_hours_without_a_run_lead_to_one_poll_of_each_source() {
    // SCHD-04
    let bench = bench(10);
    bench.round().await;
    bench.pass(5 * 3_600);
    let missed = Occasion::of("acme/app0003", What::pull_request("fix")).hooked(Hooked::Silent);
    let missed = bench.happen_ago(&missed, 2 * 3_600);
    let catching_up = bench.round().await;
    assert_eq!((catching_up.tally.polls, catching_up.requests.len()), (10, 10));
    assert_eq!(bench.events().await, [missed.event_id().unwrap()]);
    assert_eq!(bench.round().await.tally.polls, 0);
    bench.pass(30);
    assert_eq!(bench.round().await.tally.polls, 0);
}

#[tokio::test]
async fn the_same_sources_are_polled_under_either_scheduler() {
    // S1-07: which one is chosen where it is made, and nothing else changes.
    let bench = bench(5);
    let time = bench.stand.time.clone();
    let naive = NaiveScheduler::new(time, bench.schedule, bench.scheduled())
        .await
        .unwrap();
    let alone = bench.round_by(&naive).await;
    let shared = bench.round().await;
    assert_eq!((alone.tally.polls, shared.tally.polls), (5, 5));
    assert_eq!(polled(&alone), polled(&shared));
    assert_eq!(alone.store, [], "it agrees with nobody");
    assert_eq!(
        (
            bench.round_by(&naive).await.tally.polls,
            bench.round().await.tally.polls
        ),
        (0, 0)
    );
    bench.pass(60);
    assert_eq!(bench.round_by(&naive).await.tally.counts.not_modified, 5);
    bench.pass(60);
    assert_eq!(bench.round().await.tally.counts.not_modified, 5);
}

/// A queue with messages, which waits when it is empty.
#[derive(Clone, Debug)]
struct Queue {
    time: ManualTime,
    left: Arc<Mutex<Vec<String>>>,
    received: Arc<Mutex<usize>>,
}

impl PulledQueue for Queue {
    async fn receive(&self, max: u32, wait_seconds: u32) -> Result<Vec<Message>, ErrorClass> {
        tokio::task::yield_now().await;
        *self.received.lock().unwrap() += 1;
        let left = self.left.lock().unwrap().clone();
        if left.is_empty() {
            self.time.pass(secs(wait_seconds.into()));
        }
        let message = |id: &String| Message {
            queue: "arn:aws:sqs:eu-west-1:000000000000:orders".to_owned(),
            id: id.clone(),
            receipt_handle: Some(id.clone()),
            body: Body::Text("{}".to_owned()),
            system: BTreeMap::new(),
            attributes: BTreeMap::new(),
        };
        Ok(left.iter().take(max as usize).map(message).collect())
    }

    async fn delete(&self, receipt_handles: Vec<String>) {
        self.left.lock().unwrap().retain(|id| !receipt_handles.contains(id));
    }
}

/// A bench with three feeds and a queue of so many messages, which is waited for as long.
fn with_queue(messages: usize, wait_time_seconds: u32) -> (Bench, Queue) {
    let mut bench = bench(3);
    let queue = Queue {
        time: bench.stand.time.clone(),
        left: Arc::new(Mutex::new((0..messages).map(|number| format!("m{number}")).collect())),
        received: Arc::default(),
    };
    let arn = "arn:aws:sqs:eu-west-1:000000000000:orders";
    let config = SqsSourceConfig {
        wait_time_seconds,
        ..SqsSourceConfig::new("https://sqs/orders", arn, "arn:aws:iam::000000000000:role/r", "acme")
    };
    bench.add(SqsSource::new(config, queue.clone()).unwrap());
    (bench, queue)
}

#[tokio::test]
async fn one_ingestor_polls_a_queue_beside_feeds_and_neither_starves_the_other() {
    // S1-02, S1-08
    let (mut bench, queue) = with_queue(35, 5);
    for concurrency in [1, 4] {
        bench.concurrency = concurrency;
        let round = bench.round().await;
        assert_eq!(
            round.requests.len(),
            3,
            "with {concurrency} polls at once every feed is polled"
        );
        assert_eq!(*queue.left.lock().unwrap(), Vec::<String>::new());
        bench.pass(60);
    }
    let placements: Vec<_> = bench
        .sources
        .values()
        .map(|source| (source.scheme(), source.placement()))
        .collect();
    assert_eq!(placements[0], ("github_events", Placement::Scheduled));
    assert_eq!(placements[3], ("sqs", Placement::PerReplica));
    assert_eq!(bench.events().await.len(), 35);
}

#[tokio::test]
async fn a_queue_that_is_not_waited_for_is_not_asked_over_and_over() {
    // Invariant 9
    let (bench, queue) = with_queue(0, 0);
    let round = bench.round().await;
    assert_eq!((round.tally.polls, *queue.received.lock().unwrap()), (4, 1));
}

#[tokio::test]
async fn sources_of_a_shed_target_are_not_polled_and_others_are() {
    // S1-03, S1-08: both targets are of one domain.
    let mut bench = bench(12);
    for number in 0..3 {
        let name = format!("acme/web{number}");
        lock(&bench.fake).add_repository(&name);
        bench.add_feed(FeedKind::Events, &name, installation("acme"));
    }
    bench
        .wire
        .bend("acme/app", usize::MAX, |_| Err(ErrorClass::Unreachable));
    let failing = bench.round().await;
    assert!(failing.tally.failures >= 5, "what a poll shows of its target is kept");
    bench.pass(10);
    let mut shed = 0;
    for _ in 0..2 {
        bench.pass(10);
        shed += bench.round().await.tally.shed;
    }
    bench.pass(60);
    let round = bench.round().await;
    shed += round.tally.shed + failing.tally.shed;
    assert!(shed > 0);
    assert_eq!(round.asked("acme/web"), 3);
    // It comes back by itself.
    bench.wire.mend();
    let mut answered = BTreeSet::new();
    for _ in 0..60 {
        bench.pass(60);
        let round = bench.round().await;
        assert_eq!(round.asked("acme/web"), 3);
        answered.extend(polled(&round));
    }
    assert_eq!(answered.len(), 15);
}

#[tokio::test]
async fn a_failing_source_is_tried_ever_more_seldom_and_holds_no_other_up() {
    // RATE-09
    let bench = bench(2);
    lock(&bench.fake).set_outage(None);
    bench.wire.bend("app0000", usize::MAX, |_| Err(ErrorClass::ServerFault));
    let (mut failing, mut well) = (0, 0);
    for _ in 0..(6 * 60) {
        let round = bench.round().await;
        failing += round.asked("app0000");
        well += round.asked("app0001");
        bench.pass(60);
    }
    assert_eq!(well, 360);
    assert!((12..40).contains(&failing), "{failing}");
}

#[tokio::test]
async fn after_an_outage_of_everything_each_source_is_polled_within_half_an_hour() {
    let bench = bench(5);
    lock(&bench.fake).set_outage(Some(Outage::Failing));
    for _ in 0..(3 * 60) {
        bench.round().await;
        bench.pass(60);
    }
    lock(&bench.fake).set_outage(None);
    let mut answered = BTreeSet::new();
    for _ in 0..40 {
        answered.extend(polled(&bench.round().await));
        bench.pass(60);
    }
    assert_eq!(answered.len(), 5);
}

#[tokio::test]
async fn where_a_credential_lets_few_be_polled_all_are_in_turn() {
    // RATE-09: while one credential rests the other goes on, and nobody of the first is always put off.
    let mut bench = bench(60);
    lock(&bench.fake).add_repository("acme/web");
    bench.add_feed(FeedKind::Events, "acme/web", installation("acme"));
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..12 {
        lock(&bench.fake).leave("token", 20, bench.now() + secs(3_599));
        for _ in 0..60 {
            for name in polled(&bench.round().await) {
                *counts.entry(name).or_default() += 1;
            }
            bench.pass(60);
        }
    }
    assert_eq!(counts.len(), 61);
    let web = counts.remove("web").unwrap();
    assert!(web >= 719, "{web}");
    let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
    assert!(*least >= 2 && *most <= 2 * *least + 2, "{least} {most}");
}

#[tokio::test]
async fn a_day_of_two_thousand_feeds_starves_none_and_costs_by_what_is_due() {
    let mut bench = Bench::new();
    bench.concurrency = 4;
    bench.feed.interval = secs(3_600);
    bench.feed.read_all_every = secs(86_400);
    for number in 0..1_000 {
        let name = format!("acme/app{number:04}");
        lock(&bench.fake).add_repository(&name);
        let owner = if number % 2 == 0 { token() } else { installation("acme") };
        bench.add_feed(FeedKind::Events, &name, owner.clone());
        bench.add_feed(FeedKind::Runs, &name, owner);
    }
    // As many as half a minute allows: the clock moves with every answer.
    let time = bench.stand.time.clone();
    bench.wire.bend("/repos/", usize::MAX, move |answer| {
        time.pass(SignedDuration::from_millis(150));
        Ok(answer)
    });
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..DAY_RUNS {
        let began = bench.now();
        let round = bench.round().await;
        for asked in &round.requests {
            *counts
                .entry(asked.target.split('?').next().unwrap().to_owned())
                .or_default() += 1;
        }
        let calls = CountedSources::counted(&round.store);
        let (due, claims) = (
            calls[&StoreCall::Due],
            calls.get(&StoreCall::Claim).copied().unwrap_or(0),
        );
        let polls = usize::try_from(round.tally.polls).unwrap();
        assert_eq!((calls[&StoreCall::RestingTargets], claims), (1, polls));
        assert!((100..200).contains(&polls), "{polls}");
        assert!(due <= polls / 50 + 2, "{due} for {polls}");
        let next = began + secs(86_400 / i64::try_from(DAY_RUNS).unwrap());
        bench.stand.time.pass(next.duration_since(bench.now()));
    }
    assert_eq!(counts.len(), 2_000);
    let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
    assert!(most - least <= 1, "{least} {most}");
}

/// Runs of the simulated day.
const DAY_RUNS: usize = 96;

#[tokio::test]
async fn few_that_are_due_cost_few_calls_among_two_thousand() {
    let mut bench = bench(2_000);
    bench.feed.interval = secs(60);
    drop(bench.scheduler().await);
    // All but three are due in a year.
    let now = bench.now();
    for number in 0..2_000 {
        let due = bench.rows.inner.due_sources(now, None, 1).await.unwrap().remove(0);
        let until = now + secs(if number < 3 { 1 } else { 31_536_000 });
        bench
            .rows
            .inner
            .put_off_source(&due, until, now, secs(0))
            .await
            .unwrap();
    }
    bench.pass(1);
    let round = bench.round().await;
    assert_eq!(round.tally.polls, 3);
    let calls = CountedSources::counted(&round.store);
    assert_eq!(
        (
            calls[&StoreCall::Due],
            calls[&StoreCall::Claim],
            calls[&StoreCall::Read]
        ),
        (1, 3, 3)
    );
    assert_eq!(bench.round().await.store, [StoreCall::RestingTargets, StoreCall::Due]);
}

#[tokio::test]
async fn the_oldest_due_come_first_and_time_ends_a_run_that_the_next_one_takes_up() {
    // Invariant 9
    let bench = bench(30);
    let time = bench.stand.time.clone();
    bench.wire.bend("/repos/", usize::MAX, move |answer| {
        time.pass(secs(2));
        Ok(answer)
    });
    let first = bench.round().await;
    assert!((10..=12).contains(&first.tally.polls), "{}", first.tally.polls);
    let (second, third) = (bench.round().await, bench.round().await);
    let names: Vec<String> = [&first, &second, &third].into_iter().flat_map(polled).collect();
    let distinct: BTreeSet<&String> = names.iter().take(30).collect();
    assert_eq!(distinct.len(), 30, "{names:?}");
    assert!(bench.now() > at(0));
}
