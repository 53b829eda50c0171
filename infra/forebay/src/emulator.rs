//! The local AWS: one child process on the loopback interface.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use crate::child::ChildGroup;
use crate::control::{DUMMY_KEY, REGION};
use crate::error::{Attempt as _, Error};
use crate::http::{Http, Request};
use crate::stack::Purpose;
use crate::tools::Tools;
use crate::wait;

/// How long the emulator may take until it answers. It takes half a second here; a cold disk takes longer.
const START: Duration = Duration::from_secs(30);
/// How much of the end of its log is shown when it did not come up.
const LOG_TAIL_LINES: usize = 15;
/// Which of our own variables the emulator gets. It hands all of its environment on to the functions, so nothing else
/// of the developer's may be in it, least of all an AWS profile.
const INHERITED: &[&str] = &["PATH", "HOME", "LANG", "RUST_BACKTRACE"];

/// A running emulator.
#[derive(Debug)]
pub(crate) struct Emulator {
    group: ChildGroup,
    endpoint: String,
    scratch: PathBuf,
    log: PathBuf,
}

impl Emulator {
    /// Starts the emulator on `port`, or on a free one. Its files are in `state`, under the name of its `purpose`.
    pub(crate) fn start(tools: &Tools, state: &Path, purpose: Purpose, port: Option<u16>) -> Result<Self, Error> {
        let name = purpose.name();
        let port = port.map_or_else(free_port, is_free)?;
        let endpoint = format!("http://127.0.0.1:{port}");
        let log = state.join(format!("{name}-emulator.log"));
        let scratch = scratch(state, purpose);
        remove(&scratch)?;
        let disk = "check the folder's permissions and the free space";
        std::fs::create_dir_all(&scratch).attempting(|| format!("make {}", scratch.display()), disk)?;
        let opening = || format!("write {}", log.display());
        let output = File::create(&log).attempting(opening, disk)?;
        let errors = output.try_clone().attempting(opening, disk)?;

        // As a module: a script's first line cannot hold a path that is long or has blanks.
        let mut command = Command::new(tools.python());
        command
            .args(["-m", "ministack"])
            .env_clear()
            .envs(
                INHERITED
                    .iter()
                    .filter_map(|name| Some((*name, std::env::var_os(name)?))),
            )
            .env("BIND_HOST", "127.0.0.1")
            .env("MINISTACK_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", port.to_string())
            .env("MINISTACK_REGION", REGION)
            // No container engine: functions run as processes.
            .env("DOCKER_HOST", "unix:///nonexistent.sock")
            .env("LOG_LEVEL", "WARNING")
            .env("TMPDIR", &scratch)
            // For the functions, which inherit these.
            .env("AWS_ENDPOINT_URL", &endpoint)
            .env("AWS_CONFIG_FILE", "/dev/null")
            .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
            .env("AWS_ACCESS_KEY_ID", DUMMY_KEY)
            .env("AWS_SECRET_ACCESS_KEY", DUMMY_KEY)
            // What Lambda makes of `ApplicationLogLevel`, which the emulator does not read.
            .env("AWS_LAMBDA_LOG_LEVEL", purpose.log_level())
            .stdout(output)
            .stderr(errors);
        let group = ChildGroup::spawn("the emulator", command, "remove target/forebay/venv and run this again")?;
        Ok(Self {
            group,
            endpoint,
            scratch,
            log,
        })
    }

    /// Its address, such as `http://127.0.0.1:4566`.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Its process id, while it runs.
    pub(crate) fn id(&self) -> Option<u32> {
        self.group.id()
    }

    /// Where it writes what it has to say.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Waits until it answers.
    pub(crate) async fn ready(&mut self, http: &Http) -> Result<(), Error> {
        let url = format!("{}/_ministack/ready", self.endpoint);
        let group = &mut self.group;
        let request = Request {
            method: "GET",
            url: &url,
            headers: &[],
            body: &[],
        };
        let outcome = wait::until(START, async || {
            if let Some(status) = group.ended()? {
                return Ok(Some(Err(status.to_string())));
            }
            // Refused connections are what "not ready yet" looks like.
            let reply = http.exchange(request).await.ok();
            Ok(reply.filter(|reply| reply.is_success()).map(|_| Ok(())))
        });
        let failure = match outcome.await? {
            Some(Ok(())) => return Ok(()),
            Some(Err(status)) => format!("it ended with {status}"),
            None => format!("no answer from {url} within {} s", START.as_secs()),
        };
        let tail = tail(&self.log);
        Err(Error::new(
            format!("start the emulator: {failure}{tail}"),
            format!("look into {}", self.log.display()),
        ))
    }

    /// Watches it, and returns only when it has ended by itself.
    pub(crate) async fn failed(&mut self) -> Error {
        let ended = match self.group.leader().wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        Error::new(
            format!("keep the emulator running: it ended with {ended}{}", tail(&self.log)),
            format!("look into {}", self.log.display()),
        )
    }

    /// Ends it and every function that it runs, and removes its scratch folder.
    pub(crate) async fn stop(self) -> Result<(), Error> {
        self.group.stop().await?;
        remove(&self.scratch)
    }
}

/// Where the emulator for `purpose` puts what it needs while it runs, the functions' code included.
pub(crate) fn scratch(state: &Path, purpose: Purpose) -> PathBuf {
    state.join(format!("{}-scratch", purpose.name()))
}

/// A port that nothing listens on. Somebody may take it before the emulator does; then the emulator ends and says so.
/// `port`, where nothing listens there: what does could be another stack, which would be deployed to.
fn is_free(port: u16) -> Result<u16, Error> {
    let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let remedy = "leave --port out, or end what listens there";
    listening.attempting(|| format!("listen on port {port} of 127.0.0.1"), remedy)?;
    Ok(port)
}

fn free_port() -> Result<u16, Error> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .attempting(|| "find a free port on 127.0.0.1".to_owned(), "name one with --port")
}

/// Removes `folder` and what is in it, if it is there.
fn remove(folder: &Path) -> Result<(), Error> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).attempting(|| format!("remove {}", folder.display()), "remove it by hand")
        }
        _ => Ok(()),
    }
}

/// The last lines of the log at `path`, each on a line of its own.
fn tail(path: &Path) -> String {
    let log = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let last = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
    last.iter().flat_map(|line| ["\n    ", line]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_on_which_something_listens_is_refused_before_anything_is_deployed_to_it() {
        let somebody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = somebody.local_addr().unwrap().port();
        let refused = is_free(port).unwrap_err();
        assert!(
            refused.to_string().starts_with(&format!("listen on port {port} ")),
            "{refused}"
        );
        drop(somebody);
        assert_eq!(is_free(port).unwrap(), port);
    }
}
