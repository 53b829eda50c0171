//! The private virtual environment with the emulator and what it needs, made once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::child::ChildGroup;
use crate::error::{Attempt as _, Error};
use crate::workspace::Workspace;

/// The emulator, and the SAM transform that it calls on a template.
pub(crate) const EMULATOR: &[&str] = &["ministack==1.5.33", "aws-sam-translator==1.115.0"];
/// `cargo lambda`, for `cargo lambda watch`. It brings zig, and so is five times the size of the rest.
pub(crate) const CARGO_LAMBDA: &[&str] = &["cargo-lambda==1.9.2"];

/// Least version of Python that the emulator runs on.
const PYTHON_MIN: (u32, u32) = (3, 10);
/// Lists, one a line, what has been installed to its end.
const STAMP: &str = "forebay-installed.txt";
const PYTHON_REMEDY: &str = "install Python 3.10 or newer, with its venv module, as `python3` on the PATH";
const INSTALL_REMEDY: &str = "check that the Python package registry can be reached, then run this again";

/// A virtual environment in which everything asked for is installed.
#[derive(Debug)]
pub(crate) struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// Whether `requirements` are installed already.
    pub(crate) fn present(workspace: &Workspace, requirements: &[&str]) -> Result<Option<Self>, Error> {
        let folder = workspace.state()?.join("venv");
        let installed = installed(&folder);
        let complete = requirements.iter().all(|requirement| installed.contains(*requirement));
        Ok(complete.then_some(Self { folder }))
    }

    /// Makes the environment where it is missing, and installs `requirements` into it.
    pub(crate) async fn install(workspace: &Workspace, requirements: &[&str]) -> Result<Self, Error> {
        let folder = workspace.state()?.join("venv");
        let mut done = installed(&folder);
        if done.is_empty() {
            create(&folder).await?;
        }
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(requirements);
        run("pip", pip, INSTALL_REMEDY).await?;
        done.extend(requirements.iter().map(|&requirement| requirement.to_owned()));
        let stamp = folder.join(STAMP);
        let list: String = done.iter().flat_map(|requirement| [requirement, "\n"]).collect();
        std::fs::write(&stamp, list).attempting(
            || format!("write {}", stamp.display()),
            "check the folder's permissions",
        )?;
        Ok(Self { folder })
    }

    /// Its interpreter.
    pub(crate) fn python(&self) -> PathBuf {
        self.bin().join("python")
    }

    /// The folder of its programs, for a PATH.
    pub(crate) fn bin(&self) -> PathBuf {
        self.folder.join("bin")
    }
}

/// What the stamp says. An environment without one was left half-made and counts as empty.
fn installed(folder: &Path) -> BTreeSet<String> {
    let stamp = std::fs::read_to_string(folder.join(STAMP)).unwrap_or_default();
    let works = folder.join("bin/python").exists();
    stamp.lines().filter(|_| works).map(str::to_owned).collect()
}

/// Makes a new environment in the place of whatever is there.
async fn create(folder: &Path) -> Result<(), Error> {
    let check = format!("import sys; sys.exit(sys.version_info < {PYTHON_MIN:?})");
    let mut python = Command::new("python3");
    python.args(["-c", &check]);
    run("python3 to check its version", python, PYTHON_REMEDY).await?;
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(folder);
    run("python3 -m venv", venv, PYTHON_REMEDY).await
}

/// Runs `command` to its end. What it says goes to standard error, for standard output is for results.
async fn run(name: &'static str, mut command: Command, remedy: &str) -> Result<(), Error> {
    command.stdout(Stdio::null());
    let status = ChildGroup::spawn(name, command, remedy)?.finish().await?;
    if status.success() {
        return Ok(());
    }
    Err(Error::new(format!("run {name}: it ended with {status}"), remedy))
}
