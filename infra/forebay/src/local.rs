//! The local stack: the real template and the real binaries, with an emulator under them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::bootstrap::{self, Profile};
use crate::control::Control;
use crate::deploy::{self, Surroundings};
use crate::emulator::Emulator;
use crate::error::Error;
use crate::github::{self, FakeGithub, Place};
use crate::http::{Http, Request};
use crate::output::Output;
use crate::stack::{Purpose, Stack, StackFile};
use crate::template;
use crate::tools::{CARGO_LAMBDA, EMULATOR, Tools};
use crate::wait::{Ended, INTERRUPTED, Interrupts};
use crate::workspace::Workspace;

/// How a local stack is brought up.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct StackArgs {
    /// Port of the emulator on 127.0.0.1 [default: a free one]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// How the functions are built
    #[arg(long, value_enum, default_value_t)]
    profile: Profile,
}

/// Brings the local stack up, says where everything is, and keeps it up until the user ends it.
pub(crate) async fn run(args: &StackArgs, output: Output) -> Result<ExitCode, Error> {
    let workspace = Workspace::find()?;
    refuse_a_second(&workspace).await?;
    let mut interrupts = Interrupts::listen()?;
    let Ended::Done(watcher) = interrupts.guard(watcher(&workspace, output)).await else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let watcher = watcher?;
    let mut was_up = false;
    let serve = async |stack: &Stack, log: &Path| {
        let file = StackFile::write(&workspace, stack)?;
        was_up = true;
        output.result(&Up {
            stack,
            described_in: file.path(),
            log,
            watcher: &watcher,
        })?;
        // Nothing is left to do but to be there, until the user ends it.
        std::future::pending::<Result<(), Error>>().await
    };
    match with_stack(Purpose::Local, args, &workspace, output, &mut interrupts, serve).await? {
        // Ctrl-C is how it is meant to end, but not before there was anything to use.
        Ended::Interrupted if !was_up => Ok(ExitCode::from(INTERRUPTED)),
        Ended::Done(()) | Ended::Interrupted => Ok(ExitCode::SUCCESS),
    }
}

/// Runs `body` with a freshly deployed stack and the path of the emulator's log. Whatever comes of it, nothing is left
/// running afterwards.
pub(crate) async fn with_stack<T>(
    purpose: Purpose,
    args: &StackArgs,
    workspace: &Workspace,
    output: Output,
    interrupts: &mut Interrupts,
    body: impl AsyncFnOnce(&Stack, &Path) -> Result<T, Error>,
) -> Result<Ended<T>, Error> {
    let prepared = interrupts.guard(prepare(args, purpose, workspace, output)).await;
    let Ended::Done(prepared) = prepared else {
        return Ok(Ended::Interrupted);
    };
    let Prepared {
        tools,
        binaries,
        github,
    } = prepared?;
    let state = workspace.state()?;
    let http = Http::new();
    let place = github.is_some().then(Place::reserve).transpose()?;
    let mut emulator = Emulator::start(&tools, &state, purpose, args.port)?;
    let mut fake: Option<FakeGithub> = None;
    let used = interrupts.guard(async {
        output.step("start the emulator", emulator.ready(&http)).await?;
        let control = Control::new(http.clone(), emulator.endpoint());
        let surroundings = Surroundings {
            endpoint: emulator.endpoint(),
            emulator: emulator.id(),
            github: place.as_ref().map(Place::base),
        };
        let deployment = deploy::deploy(workspace, &control, surroundings, &binaries, purpose);
        let stack = output.step("deploy infra/template.yaml", deployment).await?;
        if let (Some(program), Some(place)) = (&github, place) {
            let started = FakeGithub::start(program, &state, place, &stack.webhook_url);
            fake = Some(output.step("start the fake GitHub", started).await?);
        }
        let log = emulator.log().to_owned();
        tokio::select! {
            value = body(&stack, &log) => value,
            error = emulator.failed() => Err(error),
            error = failed(&mut fake) => Err(error),
        }
    });
    let used = used.await;
    if let Some(fake) = fake {
        output.step("stop the fake GitHub", fake.stop()).await?;
    }
    let stopped = output.step("stop the emulator", emulator.stop()).await;
    match used {
        // What went wrong first is what there is to say.
        Ended::Done(Err(error)) => Err(error),
        Ended::Done(Ok(value)) => stopped.map(|()| Ended::Done(value)),
        Ended::Interrupted => stopped.map(|()| Ended::Interrupted),
    }
}

/// Watches the fake GitHub, if there is one, and returns only when it has ended by itself.
async fn failed(fake: &mut Option<FakeGithub>) -> Error {
    match fake {
        Some(fake) => fake.failed().await,
        None => std::future::pending().await,
    }
}

/// What a stack is brought up from.
struct Prepared {
    tools: Tools,
    /// The functions by the names of their binaries.
    binaries: BTreeMap<String, PathBuf>,
    /// The fake GitHub, where there is to be one.
    github: Option<PathBuf>,
}

/// Installs the emulator and builds the functions, each only where something is new.
async fn prepare(args: &StackArgs, purpose: Purpose, workspace: &Workspace, output: Output) -> Result<Prepared, Error> {
    let tools = install("install the emulator", workspace, EMULATOR, output).await?;
    let names = template::binaries(&deploy::read_template(workspace)?)?;
    let build = bootstrap::build(workspace, &names, args.profile);
    let binaries = output.step("build the functions", build).await?;
    let github = match purpose {
        Purpose::Local => {
            let name = [github::BINARY.to_owned()];
            let build = bootstrap::build(workspace, &name, Profile::Dev);
            output
                .step("build the fake GitHub", build)
                .await?
                .remove(github::BINARY)
        }
        Purpose::Demo | Purpose::Trial { .. } => None,
    };
    Ok(Prepared {
        tools,
        binaries,
        github,
    })
}

/// Installs `requirements` where they are missing.
async fn install(step: &str, workspace: &Workspace, requirements: &[&str], output: Output) -> Result<Tools, Error> {
    match Tools::present(workspace, requirements)? {
        Some(tools) => Ok(tools),
        None => output.step(step, Tools::install(workspace, requirements)).await,
    }
}

/// How `cargo lambda` is called here: from the PATH where it is there, else from the private environment.
async fn watcher(workspace: &Workspace, output: Output) -> Result<String, Error> {
    let on_path = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("cargo-lambda").is_file()));
    if on_path {
        return Ok("cargo lambda".to_owned());
    }
    let tools = install("install cargo-lambda", workspace, CARGO_LAMBDA, output).await?;
    Ok(format!("PATH=\"{}:$PATH\" cargo lambda", tools.bin().display()))
}

/// Refuses to start where a local stack of this checkout is up: the commands would not know which one is meant.
async fn refuse_a_second(workspace: &Workspace) -> Result<(), Error> {
    // Neither a missing file nor one that nobody answers for is in the way.
    let Ok(stack) = StackFile::read(workspace) else {
        return Ok(());
    };
    let request = Request {
        method: "GET",
        url: &stack.endpoint,
        headers: &[],
        body: &[],
    };
    if Http::new().exchange(request).await.is_err() {
        return Ok(());
    }
    let who = stack.emulator.map(|id| format!(" (process {id})")).unwrap_or_default();
    Err(Error::new(
        format!("start a local stack: one is up at {}{who}", stack.endpoint),
        "use that one, or end it first",
    ))
}

/// What to try with the fake GitHub at `github`.
fn happenings(f: &mut fmt::Formatter<'_>, github: &str) -> fmt::Result {
    let repository = github::REPOSITORY;
    writeln!(
        f,
        "\nA comment whose webhook is lost, and which only the feed tells of:\n"
    )?;
    writeln!(
        f,
        "  curl {github}/_fake/happenings -d '{{\"repository\": \"{repository}\", \"kind\": \"comment\", \"number\": 1, \
         \"text\": \"Please add a test\", \"webhook\": \"lost\"}}'"
    )?;
    writeln!(f, "  cargo forebay poll now")?;
    writeln!(f, "  cargo forebay gaps --list")?;
    writeln!(
        f,
        "  cargo forebay session open --agent builder --repository {repository} --pull 1"
    )?;
    writeln!(f, "  cargo forebay inbox builder     # it waited for an owner")?;
    writeln!(
        f,
        "\nAn outage between GitHub and the webhook. Recovery makes up for it two or three minutes after the push; until it has\n\
         looked again, some minutes more, what it asked for counts as the webhook's:\n"
    )?;
    writeln!(f, "  curl {github}/_fake/outage -d '{{\"webhook\": true}}'")?;
    writeln!(
        f,
        "  curl {github}/_fake/happenings -d '{{\"repository\": \"{repository}\", \"kind\": \"push\", \"branch\": \"main\"}}'"
    )?;
    writeln!(f, "  curl {github}/_fake/outage -d '{{\"webhook\": false}}'")?;
    writeln!(f, "  cargo forebay missing           # and sources: how far that is")?;
    writeln!(f, "  cargo forebay events --kind push")?;
    writeln!(f, "  cargo forebay gaps --list       # in the end")
}

/// What `forebay local` says once everything is up.
#[derive(Serialize)]
struct Up<'a> {
    #[serde(flatten)]
    stack: &'a Stack,
    described_in: &'a Path,
    log: &'a Path,
    #[serde(skip)]
    watcher: &'a str,
}

impl fmt::Display for Up<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            stack,
            described_in,
            log,
            watcher,
        } = self;
        writeln!(f, "\nForebay is up.\n")?;
        writeln!(f, "  webhook       {}", stack.webhook_url)?;
        writeln!(f, "  AWS endpoint  {} (region {})", stack.endpoint, stack.region)?;
        writeln!(
            f,
            "  table         {}",
            stack.variable("TABLE_NAME").unwrap_or("unknown")
        )?;
        for (name, url) in stack.inboxes().unwrap_or_default() {
            writeln!(f, "  inbox         {name:<11} {url}")?;
        }
        writeln!(f, "  source queue  {}", stack.source_queue_url)?;
        if let Some(github) = &stack.github {
            writeln!(f, "  fake GitHub   {github} ({})", github::REPOSITORY)?;
        }
        writeln!(f, "  described in  {}", described_in.display())?;
        writeln!(f, "  log           {}", log.display())?;
        writeln!(f, "\nIn another terminal, in this checkout:\n")?;
        writeln!(
            f,
            "  cargo forebay session open --agent builder --repository acme/app --branch fix/overflow"
        )?;
        writeln!(f, "  cargo forebay send review_comment")?;
        writeln!(f, "  cargo forebay inbox builder")?;
        writeln!(f, "  cargo forebay enqueue '{{\"order\": 7}}'")?;
        if let Some(github) = &stack.github {
            happenings(f, github)?;
        }
        writeln!(f, "\nHot reload of the webhook against this table and these queues:\n")?;
        writeln!(f, "  cargo forebay env > target/forebay/watch.env")?;
        writeln!(
            f,
            "  {watcher} watch --invoke-address 127.0.0.1 --env-file target/forebay/watch.env"
        )?;
        writeln!(
            f,
            "  {watcher} invoke webhook --invoke-address 127.0.0.1 --data-file events/invocations/review.json"
        )?;
        write!(f, "\nCtrl-C ends it all.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_that_it_prints_is_one_of_the_checkouts_own_or_stands_on_the_path() {
        let stack = Stack {
            emulator: None,
            endpoint: "http://127.0.0.1:1".to_owned(),
            region: "us-east-1".to_owned(),
            webhook_url: "http://127.0.0.1:1/webhook".to_owned(),
            source_queue_url: "http://127.0.0.1:1/queue".to_owned(),
            github: Some("http://127.0.0.1:2".to_owned()),
            functions: BTreeMap::new(),
        };
        let up = Up {
            stack: &stack,
            described_in: Path::new("local.json"),
            log: Path::new("emulator.log"),
            watcher: "cargo lambda",
        };
        let text = up.to_string();
        let (_, commands) = text.split_once("In another terminal").unwrap();
        let commands = commands.lines().filter_map(|line| line.strip_prefix("  "));
        for command in commands {
            let known = ["cargo forebay ", "cargo lambda ", "curl "];
            assert!(known.iter().any(|begin| command.starts_with(begin)), "{command}");
        }
        assert!(
            text.contains("\n  cargo forebay env > target/forebay/watch.env\n"),
            "{text}"
        );
    }
}
