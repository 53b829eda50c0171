//! `forebay targets`: how what is sent to stands.

use std::fmt;

use clap::{Args, Subcommand};
use forebay_aws::clock::System;
use forebay_core::ledger::Nonce;
use forebay_core::ports::TimeAndChance as _;
use forebay_core::shed::{
    Counts, Health, Moved, ReadTarget, ShedderConfig, SlotNumber, TargetState, TargetStore as _, Window,
};
use forebay_core::target::TargetKey;
use jiff::Timestamp;
use serde::Serialize;

use crate::connect::{Connected, StackRef, answered};
use crate::error::Error;
use crate::output::Output;
use crate::table;
use crate::time::Time;

/// Most tries of a reset against functions that change the same target.
const RESET_TRIES_MAX: usize = 5;

/// Which targets, and what to do with them.
#[derive(Args, Clone, Debug)]
pub(crate) struct TargetsArgs {
    #[command(subcommand)]
    command: Option<TargetsCommand>,
    #[command(flatten)]
    stack: StackRef,
}

/// What to do with a target.
#[derive(Clone, Debug, Subcommand)]
enum TargetsCommand {
    /// Set the target behind an inbox healthy, whatever has been counted of it
    Reset(ResetArgs),
}

/// Which target to set healthy.
#[derive(Args, Clone, Debug)]
struct ResetArgs {
    /// The inbox
    name: String,
    #[command(flatten)]
    stack: StackRef,
}

/// A target, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct TargetView {
    inbox: String,
    target: String,
    state: &'static str,
    /// `None` where nothing was ever written of it.
    since: Option<Time>,
    /// Observations in the window.
    samples: u64,
    errors: u64,
    /// In whole percent, rounded up.
    error_percent: u64,
    /// `None` without a success, or where it is above every bound.
    p50_ms_at_most: Option<u32>,
    /// Whether the middle latency is above every bound.
    p50_is_over: bool,
}

/// Lists targets, or sets one healthy.
pub(crate) async fn run(args: &TargetsArgs, output: Output) -> Result<(), Error> {
    match &args.command {
        None => list(&Connected::find(&args.stack).await?, output).await,
        Some(TargetsCommand::Reset(args)) => {
            let connected = Connected::find(&args.stack).await?;
            output.result(&reset(&connected, &args.name).await?)
        }
    }
}

async fn list(connected: &Connected, output: Output) -> Result<(), Error> {
    let now = System.now();
    let mut views = Vec::new();
    for (inbox, url) in &connected.config.inboxes {
        let target = TargetKey::queue(url);
        let read = read(connected, &target, now).await?;
        views.push(TargetView::of(inbox, &target, &read, now, &connected.config.shedder));
    }
    output.list(&views, || {
        let rows: Vec<[String; 6]> = views.iter().map(TargetView::row).collect();
        table::lines(["inbox", "state", "since", "samples", "errors", "P50"], &rows)
    })
}

async fn reset(connected: &Connected, name: &str) -> Result<TargetView, Error> {
    let target = TargetKey::queue(connected.inbox_url(name)?);
    let config = &connected.config.shedder;
    for _ in 0..RESET_TRIES_MAX {
        let now = System.now();
        let read = read(connected, &target, now).await?;
        let healthy = read.state.reset(Nonce::from_random(System.random()), now, config);
        match answered(connected.targets.change(&target, &read.state, &healthy).await)? {
            Moved::Lost(_) => {}
            Moved::Done => {
                let state = ReadTarget {
                    state: healthy,
                    slots: read.slots,
                };
                return Ok(TargetView::of(name, &target, &state, now, config));
            }
        }
    }
    Err(Error::new(
        format!("set the target of inbox {name} healthy: functions kept changing it"),
        "look at `cargo forebay targets`, and try again",
    ))
}

async fn read(connected: &Connected, target: &TargetKey, now: Timestamp) -> Result<ReadTarget, Error> {
    let reach = now.saturating_sub(connected.config.shedder.reach());
    let from = SlotNumber::of(reach.unwrap_or(Timestamp::MIN));
    answered(connected.targets.read(target, from).await)
}

impl TargetView {
    fn of(inbox: &str, target: &TargetKey, read: &ReadTarget, now: Timestamp, config: &ShedderConfig) -> Self {
        let window = Window::at(now, config);
        let counts: Counts = match read.state.health {
            // What was counted before it became so is not what it is judged by.
            Health::Healthy | Health::Probation => window.since(read.state.since).over(&read.slots),
            Health::Shed | Health::Probing => window.over(&read.slots),
        };
        let (samples, errors) = (counts.samples(), counts.errors);
        let percent = errors.saturating_mul(100).div_ceil(samples.max(1));
        Self {
            inbox: inbox.to_owned(),
            target: target.to_string(),
            state: read.state.health.as_str(),
            since: (read.state != TargetState::default()).then_some(Time(read.state.since)),
            samples,
            errors,
            error_percent: percent,
            p50_ms_at_most: counts.p50_ms().flatten(),
            p50_is_over: counts.p50_ms() == Some(None),
        }
    }

    fn p50(&self) -> String {
        match self.p50_ms_at_most {
            Some(bound) => format!("≤ {bound} ms"),
            None if self.p50_is_over => "over".to_owned(),
            None => "–".to_owned(),
        }
    }

    fn row(&self) -> [String; 6] {
        [
            self.inbox.clone(),
            self.state.to_owned(),
            self.since.map_or_else(|| "–".to_owned(), |since| since.to_string()),
            self.samples.to_string(),
            format!("{} %", self.error_percent),
            self.p50(),
        ]
    }
}

impl fmt::Display for TargetView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [inbox, state, since, ..] = self.row();
        write!(f, "target of inbox {inbox}: {state} since {since}")
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::shed::{Observation, Slots};
    use jiff::SignedDuration;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn view(state: TargetState, slots: Slots) -> TargetView {
        let read = ReadTarget { state, slots };
        let target = TargetKey::queue("https://sqs/1/builder.fifo");
        let now = at("2026-11-16T15:40:03Z");
        TargetView::of("builder", &target, &read, now, &ShedderConfig::default())
    }

    #[test]
    fn a_target_that_nobody_wrote_of_is_healthy_since_ever() {
        let view = view(TargetState::default(), Slots::default());
        assert_eq!(
            view.row(),
            ["builder", "healthy", "–", "0", "0 %", "–"].map(str::to_owned)
        );
    }

    #[test]
    fn a_shed_target_shows_since_when_and_by_what() {
        let config = ShedderConfig::default();
        let since = at("2026-11-16T15:40:00Z");
        let shed = TargetState::default().next(Health::Shed, Nonce::from_random(1), since, &config);
        let mut slots = Slots::default();
        for _ in 0..7 {
            slots.add(since, Observation::Error);
            slots.add(since, Observation::Success(SignedDuration::from_millis(90)));
            slots.add(since, Observation::Success(SignedDuration::from_millis(90)));
        }
        let view = view(shed, slots);
        let expected = ["builder", "shed", "2026-11-16T15:40:00Z", "21", "34 %", "≤ 100 ms"];
        assert_eq!(view.row(), expected.map(str::to_owned));
        assert_eq!(
            view.to_string(),
            "target of inbox builder: shed since 2026-11-16T15:40:00Z"
        );
    }
}
