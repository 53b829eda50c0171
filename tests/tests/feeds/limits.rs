//! Limits: nobody is asked before the time that GitHub named, and nobody else waits for it.

use std::collections::BTreeMap;

use forebay_core::api::{Answer, Credential, anonymous};
use forebay_core::ports::ErrorClass;
use forebay_core::source::github::FeedKind;
use forebay_tests::chance::Chance;
use forebay_tests::github::{Asked, Hooked, Occasion, Outage, Secondary, What, lock};
use forebay_tests::polling::{Bench, StoreCall, installation, token};
use forebay_tests::samples::secs;
use jiff::Timestamp;

/// Repositories `acme/app0` and so on, so many, whose events are polled with `credential`.
fn add_feeds(bench: &mut Bench, name: &str, count: usize, credential: &Credential) {
    for number in 0..count {
        let name = format!("acme/{name}{number}");
        lock(&bench.fake).add_repository(&name);
        bench.add_feed(FeedKind::Events, &name, credential.clone());
    }
}

/// Feeds of the token's and of the installation's, so many of each.
fn bench(count: usize) -> Bench {
    let mut bench = Bench::new();
    add_feeds(&mut bench, "app", count, &token());
    add_feeds(&mut bench, "web", count, &installation("acme"));
    bench
}

fn by<'a>(requests: &'a [Asked], caller: &str) -> Vec<&'a Asked> {
    requests.iter().filter(|asked| asked.caller == caller).collect()
}

#[tokio::test]
async fn a_spent_hour_is_waited_out_and_the_other_credentials_feeds_go_on() {
    // RATE-01, RATE-07, RATE-09, S3-20
    let bench = bench(3);
    let (began, reset) = (bench.now(), bench.now() + secs(600));
    lock(&bench.fake).leave("token", 0, reset);
    let first = bench.round().await;
    assert_eq!(
        by(&first.requests, "token").len(),
        1,
        "a limited answer stops the credential's round"
    );
    assert_eq!(by(&first.requests, "installation:acme").len(), 3);
    assert_eq!(
        (first.tally.throttled, first.tally.backoff_until),
        (1, Some(reset + secs(1)))
    );
    while bench.now() < reset {
        bench.pass(60);
        let round = bench.round().await;
        assert_eq!(
            by(&round.requests, "token"),
            [] as [&Asked; 0],
            "after {}",
            bench.now() - began
        );
        assert_eq!(by(&round.requests, "installation:acme").len(), 3);
    }
    // Who was put off comes in the order of waiting, within four seconds.
    bench.pass(5);
    assert_eq!(by(&bench.round().await.requests, "token").len(), 3);
}

#[tokio::test]
async fn a_limit_holds_for_whatever_is_polled_under_its_targets_key_and_for_nothing_else() {
    // S1-03: scheduler and rates go by the key, not by the right or the domain.
    let mut bench = Bench::new();
    let kin = Credential {
        target: token().target,
        ..installation("acme")
    };
    for (name, credential) in [("app", token()), ("kin", kin), ("other", installation("acme"))] {
        add_feeds(&mut bench, name, 1, &credential);
    }
    lock(&bench.fake).leave("token", 0, bench.now() + secs(600));
    for asked_app in [1, 0, 0] {
        let round = bench.round().await;
        let asked = ["acme/app", "acme/kin", "acme/other"].map(|name| round.asked(name));
        assert_eq!(asked, [asked_app, 0, 1]);
        bench.pass(60);
    }
    bench.pass(600);
    assert_eq!(bench.round().await.requests.len(), 3);
}

#[tokio::test]
async fn the_page_that_spent_the_last_request_is_taken_and_the_next_one_waits() {
    // S3-20
    let mut bench = Bench::new();
    bench.add_feed(FeedKind::Events, "acme/app", token());
    let quiet = Occasion::of("acme/app", What::pull_request("fix")).hooked(Hooked::Silent);
    bench.happen_ago(&quiet.shown_after(None), 60);
    for _ in 0..140 {
        bench.happen(&Occasion::of("acme/app", What::comment(1, "Look")));
    }
    lock(&bench.fake).leave("token", 1, bench.now() + secs(600));
    let last = bench.round().await;
    assert_eq!(
        (last.requests.len(), last.written.accepted, last.tally.throttled),
        (1, 100, 0)
    );
    bench.pass(600);
    assert_eq!(bench.round().await.requests, []);
    bench.pass(1);
    assert_eq!(bench.round().await.written.accepted, 40);
}

#[tokio::test]
async fn a_refusal_for_want_of_permission_stops_nothing_else() {
    // RATE-03
    let bench = bench(3);
    bench.wire.bend("acme/app1", usize::MAX, |answer| {
        let body = br#"{"message":"Resource not accessible by integration"}"#.to_vec();
        Ok(Answer {
            status: 403,
            body,
            ..answer
        })
    });
    let round = bench.round().await;
    assert_eq!(
        (round.requests.len(), round.tally.misconfigured, round.tally.throttled),
        (6, 1, 0)
    );
    assert_eq!(round.tally.errors[0].1.word(), "forbidden");
    let mut asked = 0;
    for _ in 1..=60 {
        bench.pass(60);
        let round = bench.round().await;
        asked += round.asked("acme/app1");
        assert_eq!(round.requests.len() - round.asked("acme/app1"), 5, "the others go on");
    }
    assert!((1..=6).contains(&asked), "{asked} tries in an hour");
}

#[tokio::test]
async fn a_stated_wait_is_kept_whatever_the_status_that_states_it() {
    // RATE-04
    for status in [403, 429] {
        let bench = bench(1);
        let limit = Secondary {
            status,
            retry_after_s: Some(137),
            until: bench.now() + secs(137),
        };
        lock(&bench.fake).hold_back("token", limit);
        assert_eq!(bench.round().await.tally.throttled, 1);
        for _ in 0..2 {
            bench.pass(68);
            assert_eq!(by(&bench.round().await.requests, "token"), [] as [&Asked; 0]);
        }
        bench.pass(1);
        assert_eq!(by(&bench.round().await.requests, "token").len(), 1);
    }
}

#[tokio::test]
async fn a_limit_that_names_no_wait_is_asked_after_ever_more_seldom() {
    // S3-20
    let bench = bench(4);
    let limit = Secondary {
        status: 403,
        retry_after_s: None,
        until: bench.now() + secs(3_600),
    };
    let began = bench.now();
    lock(&bench.fake).hold_back("token", limit);
    let mut asked = Vec::new();
    while bench.now() < began + secs(3_600) {
        let round = bench.round().await;
        asked.extend(
            by(&round.requests, "token")
                .iter()
                .map(|asked| (asked.at - began).as_secs()),
        );
        bench.pass(20);
    }
    assert_eq!(asked, [0, 60, 180, 420, 900, 1_860]);
}

#[tokio::test]
async fn waits_are_measured_by_githubs_clock_and_none_is_longer_than_an_hour() {
    // RATE-06, S3-20
    for (ahead_s, reset_s, waits_s) in [(600, 60, 61), (-600, 60, 61), (0, 10 * 86_400, 3_600)] {
        let bench = bench(1);
        lock(&bench.fake).set_clock_offset(secs(ahead_s));
        lock(&bench.fake).leave("token", 1, bench.now() + secs(reset_s));
        let round = bench.round().await;
        assert_eq!(
            round.tally.backoff_until,
            Some(bench.now() + secs(waits_s)),
            "{ahead_s} {reset_s}"
        );
    }
}

#[tokio::test]
async fn the_last_request_rests_its_credential_whatever_came_of_it() {
    // RATE-01: also where it was answered with a failure, or not for us.
    for status in [404, 502] {
        let bench = bench(3);
        let reset = bench.now() + secs(600);
        lock(&bench.fake).leave("token", 1, reset);
        bench
            .wire
            .bend("acme/app", 1, move |answer| Ok(Answer { status, ..answer }));
        let round = bench.round().await;
        assert_eq!(by(&round.requests, "token").len(), 1, "{status}");
        assert_eq!(round.tally.backoff_until, Some(reset + secs(1)), "{status}");
        bench.pass(600);
        assert_eq!(by(&bench.round().await.requests, "token").len(), 0, "{status}");
        bench.pass(5);
        assert_eq!(by(&bench.round().await.requests, "token").len(), 3, "{status}");
    }
}

#[tokio::test]
async fn a_poll_that_fails_counts_what_it_asked_for() {
    // S3-22
    let bench = bench(2);
    lock(&bench.fake).set_outage(Some(Outage::Failing));
    let round = bench.round().await;
    assert_eq!(
        (round.tally.polls, round.tally.failures, round.tally.emitted),
        (4, 4, 0)
    );
    assert_eq!(round.tally.counts.requests, 4);
    lock(&bench.fake).set_outage(Some(Outage::Hanging));
    bench.pass(3_600);
    let round = bench.round().await;
    assert_eq!((round.tally.failures, round.tally.counts.requests), (4, 4));
    assert_eq!(round.tally.errors.len(), 4);
    lock(&bench.fake).set_outage(None);
    bench.pass(3_600);
    let round = bench.round().await;
    assert_eq!((round.tally.failures, round.tally.counts.requests), (0, 4));
}

#[tokio::test]
async fn a_limited_answer_holds_polls_back_that_are_under_way_beside_it() {
    // RATE-01: with several polls at once, only what is on its way already still arrives.
    let mut bench = Bench::new();
    bench.concurrency = 4;
    add_feeds(&mut bench, "app", 8, &token());
    for number in 0..8 {
        let name = format!("acme/app{number}");
        let quiet = Occasion::of(&name, What::pull_request("fix")).hooked(Hooked::Silent);
        bench.happen_ago(&quiet.shown_after(None), 60);
        for _ in 0..250 {
            bench.happen(&Occasion::of(&name, What::comment(1, "Look")));
        }
    }
    lock(&bench.fake).leave("token", 3, bench.now() + secs(600));
    let round = bench.round().await;
    let refused = round.requests.iter().filter(|asked| asked.status == Some(403)).count();
    assert!(refused <= 3 && round.requests.len() <= 6, "{:?}", round.requests);
    bench.pass(601);
    let mut accepted = round.written.accepted;
    for _ in 0..5 {
        accepted += bench.round().await.written.accepted;
        bench.pass(60);
    }
    assert_eq!(accepted, 8 * 250);
}

#[tokio::test]
async fn without_a_right_the_hours_sixty_requests_are_never_overdrawn() {
    // COND-03: an answer without news costs one too, and so does one that is not there.
    for concurrency in [1, 4] {
        let mut bench = Bench::new();
        bench.concurrency = concurrency;
        add_feeds(&mut bench, "app", 4, &anonymous("api.github.com"));
        for number in 0..4 {
            bench.add_feed(
                FeedKind::Events,
                &format!("acme/none{number}"),
                anonymous("api.github.com"),
            );
        }
        let mut requests = Vec::new();
        for _ in 0..(6 * 60) {
            requests.extend(bench.round().await.requests);
            bench.pass(60);
        }
        let refused = requests.iter().filter(|asked| asked.status == Some(403)).count();
        assert_eq!(refused, 0, "{concurrency}");
        assert!((100..=360).contains(&requests.len()), "{}", requests.len());
        for number in 0..4 {
            let name = format!("acme/app{number}");
            let polled = requests.iter().filter(|asked| asked.target.contains(&name)).count();
            assert!(polled > 20, "{name} {polled}");
        }
    }
}

#[tokio::test]
async fn without_a_right_an_answer_without_news_costs_one_write_more_which_spaces_the_others() {
    // S3-22: where it costs a request of the hour's sixty, pollers that know nothing of each other have to be told.
    let mut bench = Bench::new();
    add_feeds(&mut bench, "app", 1, &anonymous("api.github.com"));
    bench.round().await;
    bench.pass(65);
    let unchanged = bench.round().await;
    assert_eq!((unchanged.requests.len(), unchanged.tally.counts.not_modified), (1, 1));
    let writes: Vec<_> = unchanged.store.iter().filter(|call| call.is_write()).collect();
    assert_eq!(writes, [&StoreCall::Claim, &StoreCall::Rest]);
}

#[tokio::test]
async fn a_wait_longer_than_the_run_ends_it_at_once_and_puts_nobody_off() {
    // S3-20
    let mut bench = Bench::new();
    add_feeds(&mut bench, "app", 200, &token());
    lock(&bench.fake).leave("token", 0, bench.now() + secs(1_800));
    let limited = bench.round().await;
    let expected = [
        StoreCall::RestingTargets,
        StoreCall::Due,
        StoreCall::Claim,
        StoreCall::Read,
        StoreCall::Rest,
        StoreCall::GiveBack,
    ];
    assert_eq!(limited.store, expected);
    for _ in 0..30 {
        bench.pass(60);
        assert_eq!(bench.round().await.store, [StoreCall::RestingTargets]);
    }
    bench.pass(1);
    assert_eq!(bench.round().await.tally.polls, 200);
}

/// Polls beside one another.
const BESIDE: usize = 4;

/// A caller's limit.
#[derive(Clone, Copy, Debug)]
struct Limit {
    /// When it was told.
    since: Timestamp,
    until: Timestamp,
    /// Requests that came after it in the same moment: they were under way already.
    beside: usize,
}

/// When each caller may be asked again, and what was asked too early.
#[derive(Default)]
struct Judge {
    closed: BTreeMap<String, Limit>,
    /// What the next refusal will say.
    says: BTreeMap<String, Timestamp>,
    refused: usize,
    spent: usize,
}

impl Judge {
    fn see(&mut self, requests: &[Asked]) {
        for asked in requests {
            if let Some(limit) = self.closed.get_mut(&asked.caller)
                && asked.at < limit.until
            {
                limit.beside += 1;
                let is_beside = asked.at == limit.since && limit.beside < BESIDE;
                assert!(is_beside, "{asked:?} within {limit:?}");
            }
            let until = match asked.status {
                Some(403 | 429) => {
                    self.refused += 1;
                    let said = self.says.get(&asked.caller).copied();
                    Some(said.unwrap_or(asked.at + secs(60)))
                }
                // An answer like any other, but for its being the last one.
                _ => asked.spent_until,
            };
            let Some(until) = until else { continue };
            self.spent += usize::from(asked.status == Some(200));
            let fresh = Limit {
                since: asked.at,
                until,
                beside: 0,
            };
            let known = self.closed.entry(asked.caller.clone()).or_insert(fresh);
            if known.since == asked.at {
                known.until = until.max(known.until);
            } else {
                *known = fresh;
            }
        }
    }
}

#[tokio::test]
async fn over_a_day_of_limits_no_credential_is_asked_before_its_time_and_the_other_goes_on() {
    // RATE-01, RATE-04, RATE-06, RATE-09
    for seed in [1, 2, 3] {
        let mut chance = Chance::new(seed);
        let mut bench = bench(3);
        bench.concurrency = BESIDE;
        let callers = ["token", "installation:acme"];
        let mut judge = Judge::default();
        let mut limited_until = BTreeMap::from(callers.map(|caller| (caller, bench.now())));
        let mut unserved = BTreeMap::from(callers.map(|caller| (caller, 0)));
        let mut limits = 0;
        for minute in 0..1_440 {
            let now = bench.now();
            let caller = callers[chance.below(2)];
            if chance.percent(5) && limited_until[caller] <= now {
                let span = secs(chance.within(10..1_200));
                let until = now + span;
                limits += 1;
                match chance.below(3) {
                    0 => {
                        lock(&bench.fake).leave(caller, u32::try_from(chance.below(3)).unwrap(), until);
                        judge.says.insert(caller.to_owned(), until + secs(1));
                        limited_until.insert(caller, until + secs(1));
                    }
                    1 => {
                        let (status, retry_after_s) = (429, Some(u32::try_from(span.as_secs()).unwrap()));
                        let limit = Secondary {
                            status,
                            retry_after_s,
                            until,
                        };
                        lock(&bench.fake).hold_back(caller, limit);
                        judge.says.insert(caller.to_owned(), until);
                        limited_until.insert(caller, until + secs(60));
                    }
                    _ => {
                        let limit = Secondary {
                            status: 403,
                            retry_after_s: None,
                            until: now + secs(90),
                        };
                        lock(&bench.fake).hold_back(caller, limit);
                        judge.says.remove(caller);
                        // Asked after a minute, and after two more, and longer after a limit not long ago.
                        limited_until.insert(caller, now + secs(3_900));
                    }
                }
            }
            // An answer with news costs a request: some of them are the last.
            for name in ["acme/app0", "acme/web0"] {
                if chance.percent(30) {
                    let branch = "fix".to_owned();
                    bench.happen(&Occasion::of(name, What::Push { branch }));
                }
            }
            if minute % 97 == 0 {
                lock(&bench.fake).set_clock_offset(secs(chance.within(-900..900)));
            }
            let round = bench.round().await;
            judge.see(&round.requests);
            for caller in callers {
                let is_served = by(&round.requests, caller)
                    .iter()
                    .any(|asked| asked.status != Some(403));
                let count = unserved.get_mut(caller).unwrap();
                *count = if is_served || bench.now() < limited_until[caller] {
                    0
                } else {
                    *count + 1
                };
                assert!(*count < 3, "{caller} waits at {minute} of seed {seed}");
            }
            bench.pass(60);
        }
        let told = (judge.refused, judge.spent);
        assert!(
            limits > 30 && judge.refused > 10 && judge.spent > 3,
            "{limits} {told:?}"
        );
    }
}

#[tokio::test]
async fn a_request_without_an_answer_says_nothing_of_limits() {
    let bench = bench(2);
    bench.wire.bend("acme/app0", 1, |_| Err(ErrorClass::TimedOut));
    let round = bench.round().await;
    assert_eq!((round.tally.failures, round.requests.len()), (1, 4));
    assert_eq!(round.tally.backoff_until, None);
}
