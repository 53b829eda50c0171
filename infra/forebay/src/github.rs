//! The fake GitHub beside the local stack: one child process, a program of the tests' own.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{ChildStdin, Command};

use crate::child::ChildGroup;
use crate::error::{Attempt as _, Error};
use crate::secret::LOCAL_SECRET;

/// The program's name.
pub(crate) const BINARY: &str = "fake-github";
/// The one repository that it has, and that the recorded inputs are about.
pub(crate) const REPOSITORY: &str = "acme/app";
/// What the poller asks it with. It takes any token, and GitHub takes this one never.
pub(crate) const LOCAL_TOKEN: &str = "forebay-local-token";
/// What is not as the template has it by default where it is there. A log is read as often as can be: nobody waits for five
/// minutes to see what recovery does.
pub(crate) const PARAMETERS: &[(&str, &str)] = &[
    ("PollRepositories", REPOSITORY),
    ("RecoverRepositories", REPOSITORY),
    ("RecoverSeconds", "60"),
    // What the fake begins with is two hours old: no webhook could have told of it, and it is not to count as lost.
    ("PollBacklogHours", "1"),
    // However the emulator spells the address of a function.
    ("RecoverAddress", "/api/intake/github"),
];
/// How long it may take until it says where it is.
const START: Duration = Duration::from_secs(10);
/// Where the program reads the hooks' secret: other users of the machine can read a command line.
const SECRET_VARIABLE: &str = "FAKE_GITHUB_SECRET";

/// An address that is kept for it. The stack is told of it before it can be told where the stack's webhook is.
#[derive(Debug)]
pub(crate) struct Place {
    base: String,
    port: u16,
    listener: TcpListener,
}

impl Place {
    /// Takes a free port.
    pub(crate) fn reserve() -> Result<Self, Error> {
        let attempting = || "find a free port on 127.0.0.1".to_owned();
        let remedy = "end what takes them all";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).attempting(attempting, remedy)?;
        let port = listener.local_addr().attempting(attempting, remedy)?.port();
        Ok(Self {
            base: format!("http://127.0.0.1:{port}"),
            port,
            listener,
        })
    }

    /// The address of its REST interface.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }
}

/// A running fake GitHub.
#[derive(Debug)]
pub(crate) struct FakeGithub {
    group: ChildGroup,
    /// It ends when this is closed, however we end.
    _input: ChildStdin,
    log: PathBuf,
}

impl FakeGithub {
    /// Starts `program` at `place`, with a hook that posts to `hook_url`, and waits until it listens.
    pub(crate) async fn start(program: &Path, state: &Path, place: Place, hook_url: &str) -> Result<Self, Error> {
        let log = state.join("local-github.log");
        let errors = File::create(&log).attempting(
            || format!("write {}", log.display()),
            "check the folder's permissions and the free space",
        )?;
        // Its port is free from here on; nobody has been told of it but the stack.
        drop(place.listener);
        let mut command = Command::new(program);
        command
            .args(["--listen", &format!("127.0.0.1:{}", place.port)])
            .args(["--hook-url", hook_url])
            .args(["--repository", REPOSITORY])
            .env(SECRET_VARIABLE, LOCAL_SECRET)
            .stdout(Stdio::piped())
            .stderr(errors);
        let (mut group, input) = ChildGroup::spawn_with_input("the fake GitHub", command, "build it again")?;
        let stdout = group.leader().stdout.take().expect("it was piped three lines above");
        let mut lines = BufReader::new(stdout).lines();
        // It says where it is once it listens.
        let said = tokio::time::timeout(START, lines.next_line()).await;
        match said {
            Ok(Ok(Some(line))) if line == place.base => Ok(Self {
                group,
                _input: input,
                log,
            }),
            _ => {
                group.stop().await?;
                Err(Error::new(
                    format!("start the fake GitHub at {}", place.base),
                    format!("look into {}", log.display()),
                ))
            }
        }
    }

    /// Watches it, and returns only when it has ended by itself.
    pub(crate) async fn failed(&mut self) -> Error {
        let ended = match self.group.leader().wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        Error::new(
            format!("keep the fake GitHub running: it ended with {ended}"),
            format!("look into {}", self.log.display()),
        )
    }

    /// Ends it.
    pub(crate) async fn stop(self) -> Result<(), Error> {
        self.group.stop().await
    }
}
