//! GitHub beside a way: what it tells of, and the sources that ask it. Its own answers meet no trouble here.

use std::fmt;
use std::sync::Arc;

use forebay_aws::dynamodb::DynamoLedger;
use forebay_core::api::{Credential, Limits, Right};
use forebay_core::event::Repository;
use forebay_core::ingest::Sources;
use forebay_core::schedule::ScheduleConfig;
use forebay_core::source::github::{Feed, FeedConfig, FeedKind, HookLog, Recovery, RecoveryConfig};
use forebay_core::source::{Source, SourceId};
use forebay_core::target::TargetKey;
use jiff::{SignedDuration, Timestamp};

use super::paths::Told;
use crate::fakes::ManualTime;
use crate::github::{FakeGithub, HookTarget, Hooked, InProcess, Occasion, Outcome, Secondary, Shared, What, lock};
use crate::webhook::{Request, SECRET};

/// The poller's own spans.
pub(super) const SCHEDULE: ScheduleConfig = ScheduleConfig {
    lease: SignedDuration::from_secs(50),
    skew: SignedDuration::from_secs(5),
};
/// Longest time of one poll.
pub(super) const POLL_TIME_MAX: SignedDuration = SignedDuration::from_secs(25);
/// How long after its beginning a run begins polls.
pub(super) const BEGINS_MAX: SignedDuration = SignedDuration::from_secs(20);
/// From one run of the poller to the next that is played: everything is due again by then.
pub(super) const POLLS_APART: SignedDuration = SignedDuration::from_secs(301);
/// How long before the beginning it happened: a delivery that is younger may still be on its way.
const AGO: SignedDuration = SignedDuration::from_secs(600);
/// How long the limit of a way with one lasts.
const LIMITED: SignedDuration = SignedDuration::from_secs(400);

/// A fake and what polls it.
pub(super) struct Github {
    pub(super) fake: Shared,
    pub(super) sources: Sources,
    /// Whose missing deliveries there may be.
    pub(super) log: Option<SourceId>,
}

impl fmt::Debug for Github {
    /// What is polled.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sources.keys()).finish()
    }
}

/// The right that everything is polled with.
fn credential() -> Credential {
    Credential {
        right: Right::Token,
        target: TargetKey::labeled_principal("api.github.com", "token", "github"),
    }
}

impl Github {
    /// A GitHub in which somebody has commented on pull request 1, and which tells of it like this.
    pub(super) fn telling(told: Told, ledger: &DynamoLedger, time: &ManualTime, now: Timestamp) -> Self {
        let mut fake = FakeGithub::new("https://api.github.com", 0);
        fake.add_repository("acme/app");
        let happen = |fake: &mut FakeGithub, what, hooked, shown_after| {
            let occasion = Occasion::of("acme/app", what).hooked(hooked).shown_after(shown_after);
            fake.happen(&occasion, now - AGO)
                .expect("what a way lets happen can happen");
        };
        happen(&mut fake, What::pull_request("fix"), Hooked::Silent, None);
        let comment = What::comment(1, "please look");
        match told {
            Told::Feed => happen(&mut fake, comment, Hooked::Silent, Some(SignedDuration::ZERO)),
            Told::LimitedFeeds => {
                happen(&mut fake, comment, Hooked::Silent, Some(SignedDuration::ZERO));
                let limit = Secondary {
                    status: 429,
                    retry_after_s: Some(60),
                    until: now + LIMITED,
                };
                fake.hold_back("token", limit);
            }
            Told::Log => {
                let hook = HookTarget::Repository("acme/app".to_owned());
                fake.add_hook(&hook, "https://forebay.example/api/intake/github", SECRET);
                happen(&mut fake, comment, Hooked::Lost(Outcome::unreachable()), None);
            }
        }
        let fake = fake.shared();
        let api = Arc::new(InProcess {
            fake: Arc::clone(&fake),
            time: time.clone(),
        });
        let repository = Repository::new("acme/app").expect("an owner and a name");
        let feed_config = Arc::new(FeedConfig {
            host: None,
            interval: SignedDuration::from_secs(60),
            read_all_every: SignedDuration::from_hours(1),
            backlog: SignedDuration::from_hours(24),
            limits: Limits::default(),
        });
        let feed = |kind| {
            let config = Arc::clone(&feed_config);
            Box::new(Feed::new(
                Arc::clone(&api),
                kind,
                repository.clone(),
                credential(),
                config,
            )) as Box<dyn Source>
        };
        let sources: Vec<Box<dyn Source>> = match told {
            Told::Feed => vec![feed(FeedKind::Events)],
            Told::LimitedFeeds => vec![feed(FeedKind::Events), feed(FeedKind::Runs)],
            Told::Log => {
                let log = HookLog::Repository(repository.clone());
                let config = Arc::new(RecoveryConfig::default());
                vec![Box::new(Recovery::new(
                    Arc::clone(&api),
                    ledger.clone(),
                    log,
                    credential(),
                    config,
                ))]
            }
        };
        let log = (told == Told::Log).then(|| sources.iter().map(|source| source.id().clone()).next());
        Self {
            fake,
            log: log.flatten(),
            sources: sources
                .into_iter()
                .map(|source| (source.id().clone(), source))
                .collect(),
        }
    }

    /// What GitHub has to post now, by its own number.
    pub(super) fn take_pending(&self, now: Timestamp) -> Vec<(u64, Request)> {
        let posts = lock(&self.fake).take_pending(now);
        let request = |post: crate::github::Post| {
            let headers = post.headers.iter();
            let headers = headers.map(|(name, value)| (name.to_lowercase(), value.clone()));
            let request = Request {
                headers: headers.collect(),
                body: post.body.into_bytes(),
            };
            (post.delivery, request)
        };
        posts.into_iter().map(request).collect()
    }

    /// A post was answered well, or not at all.
    pub(super) fn record(&self, delivery: u64, is_kept: bool, now: Timestamp) {
        let outcome = if is_kept {
            Outcome::answered(202)
        } else {
            Outcome::timed_out()
        };
        lock(&self.fake).record(delivery, outcome, SignedDuration::from_millis(100), now);
    }
}
