//! Kills processes of functions, and no others: those that the emulator of this run has started.

use std::collections::BTreeMap;
use std::path::Path;

use forebay::trial::{Error, Trial};
use rustix::process::{Pid, Signal, kill_process};

use crate::chance::Chance;

/// How far up from a process its ancestors are followed.
const ANCESTORS_MAX: usize = 16;
/// The file name of a function's binary.
const BOOTSTRAP: &str = "bootstrap";
/// Where Lambda says which function a process is.
const FUNCTION_NAME: &[u8] = b"AWS_LAMBDA_FUNCTION_NAME=";

/// Which processes may be killed.
#[derive(Debug)]
pub(crate) struct Killer {
    emulator: u32,
    scratch: std::path::PathBuf,
    reaper: String,
    poller: String,
}

/// A process of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    id: u32,
    function: String,
}

/// Which function a killed process was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Killed {
    /// The webhook.
    Webhook,
    /// The reaper.
    Reaper,
    /// The poller.
    Poller,
}

impl Killer {
    /// For the functions of `trial`.
    pub(crate) fn new(trial: &Trial) -> Result<Self, Error> {
        let remedy = "run this on Linux, and report it as a bug if it is";
        let emulator = trial
            .emulator()
            .ok_or_else(|| Error::new("find the emulator's process", remedy))?;
        let scratch = trial.scratch();
        let scratch = scratch
            .canonicalize()
            .map_err(|error| Error::because(format!("find {}", scratch.display()), remedy, error))?;
        Ok(Self {
            emulator,
            scratch,
            reaper: trial.reaper()?.to_owned(),
            poller: trial.poller()?.to_owned(),
        })
    }

    /// Kills one of the functions' processes. `None` where none runs.
    pub(crate) fn any(&self, chance: &mut Chance) -> Option<Killed> {
        self.one_of(self.processes(), chance)
    }

    /// Kills the reaper. `None` where it does not run.
    pub(crate) fn reaper(&self, chance: &mut Chance) -> Option<Killed> {
        self.one_of(self.processes_of(&self.reaper), chance)
    }

    /// Kills the poller. `None` where it does not run.
    pub(crate) fn poller(&self, chance: &mut Chance) -> Option<Killed> {
        self.one_of(self.processes_of(&self.poller), chance)
    }

    fn processes_of(&self, function: &str) -> Vec<Process> {
        let mut processes = self.processes();
        processes.retain(|process| process.function == function);
        processes
    }

    fn one_of(&self, processes: Vec<Process>, chance: &mut Chance) -> Option<Killed> {
        (!processes.is_empty()).then_some(())?;
        let chosen = processes.get(chance.below(processes.len()))?;
        // Once more, right before the shot: the number could be somebody else's by now.
        (self.process(chosen.id, &parents()).as_ref() == Some(chosen)).then_some(())?;
        let id = Pid::from_raw(i32::try_from(chosen.id).ok()?)?;
        kill_process(id, Signal::KILL).ok()?;
        Some(match &chosen.function {
            function if *function == self.reaper => Killed::Reaper,
            function if *function == self.poller => Killed::Poller,
            _ => Killed::Webhook,
        })
    }

    /// All processes of the functions.
    fn processes(&self) -> Vec<Process> {
        let parents = parents();
        parents.keys().filter_map(|id| self.process(*id, &parents)).collect()
    }

    /// The process `id`, if it is one of a function: a descendant of this run's emulator that runs what that unpacked. The
    /// dead run nothing.
    fn process(&self, id: u32, parents: &BTreeMap<u32, u32>) -> Option<Process> {
        let mut ancestors = std::iter::successors(parents.get(&id), |id| parents.get(id)).take(ANCESTORS_MAX);
        ancestors.any(|ancestor| *ancestor == self.emulator).then_some(())?;
        let executable = std::fs::read_link(format!("/proc/{id}/exe")).ok()?;
        let is_ours = executable.starts_with(&self.scratch) && executable.file_name()? == BOOTSTRAP;
        is_ours.then_some(())?;
        let environment = std::fs::read(format!("/proc/{id}/environ")).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        let function = variables.find_map(|variable| variable.strip_prefix(FUNCTION_NAME))?;
        Some(Process {
            id,
            function: String::from_utf8_lossy(function).into_owned(),
        })
    }
}

/// The parent of every process of this machine.
fn parents() -> BTreeMap<u32, u32> {
    let entries = std::fs::read_dir(Path::new("/proc")).into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(|id| Some((id, parent(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?)))
        .collect()
}

/// The parent that a line of `/proc/<id>/stat` names. The command's name before it may hold blanks and brackets.
fn parent(stat: &str) -> Option<u32> {
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_found_behind_any_name() {
        assert_eq!(parent("71 (bootstrap) S 42 71 0"), Some(42));
        assert_eq!(parent("71 (a) b (c)) Z 42 71 0"), Some(42));
        assert_eq!(parent("71"), None);
    }

    #[test]
    fn a_process_that_is_no_function_is_never_chosen() {
        // This very test: a descendant of its parent, but no bootstrap.
        let own = std::process::id();
        let Some(emulator) = parents().get(&own).copied() else {
            return;
        };
        let killer = Killer {
            emulator,
            scratch: "/".into(),
            reaper: "reaper".to_owned(),
            poller: "poller".to_owned(),
        };
        assert_eq!(killer.process(own, &parents()), None);
    }
}
