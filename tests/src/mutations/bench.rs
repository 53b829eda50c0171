//! Where mutations are tried: a copy of the workspace, with build output of its own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Check, Mutation, Stale};

/// Directories that are not copied: build output, history, and the programs beside the tests, which no check runs and which
/// take longer to link than most checks take.
const LEFT_OUT: [&str; 3] = ["target", ".git", "bin"];

/// The copy. Its build output is kept between runs, so that only what a mutation changes is built again.
#[derive(Debug)]
pub struct Bench {
    source: PathBuf,
    copy: PathBuf,
    target: PathBuf,
}

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A test failed.
    Caught,
    /// All tests passed.
    Missed,
    /// There was nothing to run: the tests could not be built.
    Unbuilt,
}

impl Bench {
    /// Copies the workspace at `source` to under `target`, where its build output goes as well.
    ///
    /// # Errors
    /// Where files cannot be read or written.
    pub fn set_up(source: &Path, target: &Path) -> io::Result<Self> {
        let bench = Self {
            source: source.to_owned(),
            copy: target.join("workspace"),
            target: target.to_owned(),
        };
        if bench.copy.exists() {
            remove_strangers(&bench.copy, source)?;
        }
        copy_changed(source, &bench.copy)?;
        Ok(bench)
    }

    /// What `check` finds without any mutation.
    ///
    /// # Errors
    /// Where no test could be run at all.
    pub fn try_check(&self, check: Check) -> io::Result<Found> {
        if !self.cargo(check, &["--no-run"])? {
            return Ok(Found::Unbuilt);
        }
        let passed = self.cargo(check, &[])?;
        Ok(if passed { Found::Missed } else { Found::Caught })
    }

    /// What `mutation`'s check finds with it. The copy is whole again afterwards.
    ///
    /// # Errors
    /// Where it is stale, or no test could be run at all.
    pub fn try_mutation(&self, mutation: &Mutation) -> io::Result<Found> {
        let stale = |stale: Stale| io::Error::other(stale.to_string());
        let text = mutation.mutated(&self.source).map_err(stale)?;
        let file = self.copy.join(mutation.file);
        fs::write(&file, text)?;
        let found = self.try_check(mutation.check);
        fs::write(&file, fs::read(self.source.join(mutation.file))?)?;
        found
    }

    fn cargo(&self, check: Check, more: &[&str]) -> io::Result<bool> {
        let status = Command::new("cargo")
            .args(["test", "--quiet", "--locked"])
            .args(check.0)
            .args(more)
            .current_dir(&self.copy)
            .env("CARGO_TARGET_DIR", &self.target)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        Ok(status.success())
    }
}

/// Copies what is new or different, so that cargo builds nothing again that is the same.
fn copy_changed(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, copy) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            if !LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
                copy_changed(&source, &copy)?;
            }
            continue;
        }
        let bytes = fs::read(&source)?;
        if fs::read(&copy).ok().as_ref() != Some(&bytes) {
            fs::write(&copy, bytes)?;
        }
    }
    Ok(())
}

/// Removes what an earlier copy had and the workspace has not.
fn remove_strangers(copy: &Path, source: &Path) -> io::Result<()> {
    for entry in fs::read_dir(copy)? {
        let entry = entry?;
        let (stranger, known) = (entry.path(), source.join(entry.file_name()));
        match (entry.file_type()?.is_dir(), known.exists()) {
            (true, true) => remove_strangers(&stranger, &known)?,
            (true, false) => fs::remove_dir_all(stranger)?,
            (false, true) => {}
            (false, false) => fs::remove_file(stranger)?,
        }
    }
    Ok(())
}
