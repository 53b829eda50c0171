//! What workers do. The webhook and the reaper are the real ones; an agent does what `forebay session` does.

use std::sync::Arc;
use std::time::Duration;

use forebay_aws::config::{Config, REAPER_SECONDS_MAX, ReaperConfig};
use forebay_aws::http_event::HttpEvent;
use forebay_aws::metrics::Metrics;
use forebay_aws::secrets::SecretCache;
use forebay_core::drive::{Driver, pointer_keys};
use forebay_core::event::EventId;
use forebay_core::ledger::{Cause, Claim, Claimed, Nonce, Term};
use forebay_core::ports::{Ledger as _, LedgerError, Renewed, TimeAndChance as _};
use forebay_core::session::{AgentName, Opened, Phase, Session, SessionId};
use jiff::SignedDuration;
use reaper::Reaper;
use webhook::Webhook;

use super::ports::Ports;
use super::{live_until, story};
use crate::fakes::GivenSecrets;
use crate::webhook::SECRET;

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Webhook,
    Reaper,
    /// Claims an event and takes its time.
    Slow,
    /// Opens and closes sessions.
    Agent,
}

/// What a worker's task came to.
#[derive(Debug)]
pub(super) enum Done {
    Answered { telling: usize, status: u16 },
    Worked,
}

/// What an agent does next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Errand {
    Open {
        pull: u64,
        by_branch: bool,
        agent: &'static str,
        minutes: i64,
    },
    Close(u64),
}

fn driver<'a>(ports: &'a Ports, config: &'a Config) -> Driver<'a, Ports, Ports, Ports> {
    Driver {
        ledger: ports,
        inboxes: ports,
        time: ports,
        routing: &config.routing,
        limits: &config.limits,
    }
}

pub(super) async fn answer(ports: Ports, config: Arc<Config>, telling: usize, event: HttpEvent) -> Done {
    let webhook = Webhook::with(
        Config::clone(&config),
        ports.clone(),
        ports.clone(),
        SecretCache::new(GivenSecrets::single(SECRET), Duration::from_secs(300)),
        ports,
        Metrics::to("Forebay", Box::new(std::io::sink())),
    );
    let answer = Box::pin(webhook.answer(event)).await;
    Done::Answered {
        telling,
        status: answer.status(),
    }
}

pub(super) async fn reap(ports: Ports, config: Arc<ReaperConfig>) -> Done {
    let deadline = ports.now() + SignedDuration::from_secs(REAPER_SECONDS_MAX);
    let metrics = Metrics::to("Forebay", Box::new(std::io::sink()));
    let reaper = Reaper::new(&config, ports.clone(), ports.clone(), ports, metrics);
    Box::pin(reaper.run(deadline)).await;
    Done::Worked
}

pub(super) async fn dawdle(ports: Ports, config: Arc<Config>, event: EventId, renew: bool) -> Done {
    // What goes wrong is found by the reaper.
    let _dawdled: Result<(), LedgerError> = dawdle_on(&ports, &config, &event, renew).await;
    Done::Worked
}

async fn dawdle_on(ports: &Ports, config: &Config, event: &EventId, renew: bool) -> Result<(), LedgerError> {
    let limits = &config.limits;
    let claim = Claim {
        now: ports.now(),
        nonce: Nonce::from_random(ports.random()),
        lease: limits.lease,
        skew: limits.skew,
        cause: Cause::Due,
    };
    let Claimed::Won { row, mut lease } = ports.claim(event, claim).await? else {
        return Ok(());
    };
    ports.think().await;
    if renew {
        let term = Term {
            lease: limits.lease,
            skew: limits.skew,
        };
        // Without an answer it works on with the lease that it knows.
        if let Ok(Renewed::Lost(_)) = ports.renew(&mut lease, ports.now(), term).await {
            return Ok(());
        }
        ports.think().await;
    }
    let pointers = ports.pointers(&pointer_keys(&row.event)).await?;
    ports.think().await;
    driver(ports, config).drive(&row, lease, &pointers).await?;
    Ok(())
}

pub(super) async fn run_errand(ports: Ports, config: Arc<Config>, errand: Errand) -> Done {
    // An agent that is told no asks again some other time.
    let _done: Result<(), LedgerError> = run(&ports, &config, errand).await;
    Done::Worked
}

async fn run(ports: &Ports, config: &Config, errand: Errand) -> Result<(), LedgerError> {
    let now = ports.now();
    let id = |pull: u64| SessionId::parse(&format!("session-{pull}")).expect("letters and digits");
    match errand {
        Errand::Close(pull) => {
            ports.close_session(&id(pull), live_until(now, 60)).await?;
        }
        Errand::Open {
            pull,
            by_branch,
            agent,
            minutes,
        } => {
            let session = Session {
                id: id(pull),
                agent: AgentName::parse(agent).expect("letters"),
                repository: story::repository(),
                branch: by_branch.then(|| format!("fix-{pull}")),
                pull: (!by_branch).then_some(pull),
                phase: Phase::Running,
                opened_at: now,
                live_until: live_until(now, minutes),
            };
            if let Opened::Live(keys) = ports.open_session(&session, now).await? {
                for key in keys {
                    driver(ports, config).wake(&key).await?;
                }
            }
        }
    }
    Ok(())
}
