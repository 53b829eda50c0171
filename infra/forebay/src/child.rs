//! Children: each leads a process group of its own, so that ending one ends whatever it has started.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, ChildStdin, Command};

use crate::error::{Attempt as _, Error};
use crate::wait;

/// How long a child may take to end in an orderly way.
const ORDERLY_END: Duration = Duration::from_secs(5);
/// How long the rest of its group may take after SIGKILL: the kernel only has to get round to it.
const FORCED_END: Duration = Duration::from_secs(2);

/// A running child and everything that it started.
#[derive(Debug)]
pub(crate) struct ChildGroup {
    name: &'static str,
    child: Child,
    /// `None` once the group has been seen to its end: its number may belong to somebody else then.
    group: Option<Pid>,
}

impl ChildGroup {
    /// Starts `command` in a new process group, without standard input. `remedy` says what to do when it
    /// cannot be started.
    pub(crate) fn spawn(name: &'static str, command: Command, remedy: &str) -> Result<Self, Error> {
        Self::spawn_reading(name, command, Stdio::null(), remedy)
    }

    /// The same, with a standard input that ends when the second value is dropped.
    pub(crate) fn spawn_with_input(
        name: &'static str,
        command: Command,
        remedy: &str,
    ) -> Result<(Self, ChildStdin), Error> {
        let mut group = Self::spawn_reading(name, command, Stdio::piped(), remedy)?;
        // Taken: whoever waits for the child would close what is left in it.
        let input = group.child.stdin.take().expect("it was piped in the line above");
        Ok((group, input))
    }

    fn spawn_reading(name: &'static str, mut command: Command, input: Stdio, remedy: &str) -> Result<Self, Error> {
        let child = command
            .process_group(0)
            .stdin(input)
            .kill_on_drop(true)
            .spawn()
            .attempting(|| format!("start {name}"), remedy)?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { name, child, group })
    }

    /// The leader's process id, while it runs.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// The leader, for its pipes.
    pub(crate) fn leader(&mut self) -> &mut Child {
        &mut self.child
    }

    /// How the leader ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.child
            .try_wait()
            .attempting(|| format!("look after {}", self.name), "report this as a bug")
    }

    /// Waits for the leader to end by itself.
    pub(crate) async fn finish(mut self) -> Result<ExitStatus, Error> {
        let status = self.child.wait().await;
        let status = status.attempting(|| format!("wait for {}", self.name), "report this as a bug")?;
        self.group = None;
        Ok(status)
    }

    /// Ends the leader and whatever it has started: SIGTERM first, SIGKILL for what is left.
    pub(crate) async fn stop(mut self) -> Result<(), Error> {
        let Some(group) = self.group else {
            return Ok(());
        };
        signal_group(group, Signal::TERM);
        let orderly = tokio::time::timeout(ORDERLY_END, self.child.wait()).await;
        signal_group(group, Signal::KILL);
        if orderly.is_err() {
            let end = self.child.wait().await;
            end.attempting(|| format!("end {}", self.name), "end it by its process id")?;
        }
        let gone = wait::until(FORCED_END, async || Ok(test_kill_process_group(group).err())).await?;
        self.group = None;
        match gone {
            Some(_) => Ok(()),
            None => Err(Error::new(
                format!(
                    "end every process of {}: group {} remains",
                    self.name,
                    group.as_raw_nonzero()
                ),
                format!("look at `ps -g {}`", group.as_raw_nonzero()),
            )),
        }
    }
}

impl Drop for ChildGroup {
    /// The last resort, for a step that was dropped half way.
    fn drop(&mut self) {
        if let Some(group) = self.group {
            signal_group(group, Signal::KILL);
        }
    }
}

/// Sends `signal` to every process of `group`. A group that is gone already is what we want.
fn signal_group(group: Pid, signal: Signal) {
    kill_process_group(group, signal).ok();
}
