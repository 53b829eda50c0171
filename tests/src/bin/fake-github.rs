//! Serves a fake GitHub on this machine, with a repository or more, each with a hook that posts to a given URL.
//!
//! `cargo run --bin fake-github -- --hook-url http://127.0.0.1:8080/api/intake/github --secret s3cret` prints its address as
//! one line and serves until it is interrupted or its standard input ends, so that it never outlives who started it. Its REST
//! interface is below that address; below `/_fake/` operators make things happen, see [`FakeGithub::control`].

#![expect(clippy::print_stdout, reason = "its address is what others need of it")]

use std::convert::Infallible;
use std::io::{self, Read as _};
use std::net::SocketAddr;

use clap::Parser;
use forebay_aws::clock::System;
use forebay_core::event::Repository;
use forebay_core::ports::TimeAndChance as _;
use forebay_tests::github::{FakeGithub, HookTarget, Hooked, Impossible, Occasion, What, serve};
use jiff::SignedDuration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// How old what it begins with is.
const SEED_AGE: SignedDuration = SignedDuration::from_hours(2);

/// Serves a fake GitHub on this machine.
#[derive(Parser)]
struct Arguments {
    /// Where to listen. Whoever gets there may do as operators do: stay on the loopback interface.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where hooks post to, over plain HTTP.
    #[arg(long)]
    hook_url: String,
    /// The hooks' secret.
    #[arg(long, env = "FAKE_GITHUB_SECRET", hide_env_values = true)]
    secret: String,
    /// A repository to begin with.
    #[arg(long = "repository", value_name = "OWNER/NAME", default_value = "acme/app", value_parser = repository)]
    repositories: Vec<Repository>,
}

fn repository(text: &str) -> Result<Repository, &'static str> {
    Repository::new(text).ok_or("a repository is owner/name")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let listener = TcpListener::bind(arguments.listen).await?;
    let base = format!("http://{}", listener.local_addr()?);
    let fake = github(&base, &arguments).map_err(|impossible| io::Error::other(impossible.to_string()))?;
    let mut terminated = signal(SignalKind::terminate())?;
    let input = input_ended();
    println!("{base}");
    tokio::select! {
        failed = serve(fake.shared(), System, listener) => failed.map(|never: Infallible| match never {}),
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _terminated = terminated.recv() => Ok(()),
        _ended = input => Ok(()),
    }
}

/// A GitHub with what it is begun with. Its ids begin with the time, so that those of another run are others.
fn github(base: &str, arguments: &Arguments) -> Result<FakeGithub, Impossible> {
    let now = System.now();
    let mut fake = FakeGithub::new(base, now.as_second().unsigned_abs());
    for repository in &arguments.repositories {
        let name = repository.as_str();
        fake.add_organization(name.split('/').next().unwrap_or_default());
        fake.add_repository(name);
        let target = HookTarget::Repository(name.to_owned());
        fake.add_hook(&target, &arguments.hook_url, &arguments.secret);
        seed(&mut fake, name)?;
    }
    Ok(fake)
}

/// Pull request 1 and issue 2, to have something to talk about. The feed shows them; no delivery was made, and they are older than
/// anything that a hook of today could have told of.
fn seed(fake: &mut FakeGithub, repository: &str) -> Result<(), Impossible> {
    let title = "Totals overflow".to_owned();
    for what in [What::pull_request("fix/overflow"), What::Issue { title }] {
        let occasion = Occasion::of(repository, what).hooked(Hooked::Silent);
        fake.happen(&occasion, System.now() - SEED_AGE)?;
    }
    Ok(())
}

/// Resolves when standard input ends. A thread of its own waits for that: it ends with the process.
fn input_ended() -> oneshot::Receiver<()> {
    let (ended, input) = oneshot::channel();
    std::thread::spawn(move || {
        let mut ignored = [0; 1_024];
        while matches!(io::stdin().read(&mut ignored), Ok(1..)) {}
        ended.send(())
    });
    input
}
