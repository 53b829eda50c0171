//! Bugs that are put in on purpose, and the checks that must see each of them.
//!
//! A mutation is a change of a source file, by exact text: where the text is no longer found, or found twice, the mutation is
//! stale and has to be written anew. It is applied to a copy of the workspace, never to the workspace itself. To add one,
//! write it into `LIST` beside its kin; `cargo test` says whether it still applies, `cargo run --bin mutations` whether it is
//! caught.

mod bench;
mod list;

use std::fmt;
use std::path::Path;

pub use bench::{Bench, Found};
pub use list::LIST;

/// A bug.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// Its name.
    pub name: &'static str,
    /// The file, from the workspace's root.
    pub file: &'static str,
    /// What becomes of it.
    pub edits: &'static [Edit],
    /// What it breaks.
    pub why: &'static str,
    /// What must see it.
    pub check: Check,
}

/// A text and what takes its place.
#[derive(Clone, Copy, Debug)]
pub struct Edit {
    /// Stands in the file exactly once.
    pub find: &'static str,
    /// Stands there instead.
    pub replace: &'static str,
}

/// The quickest tests that see a bug, as arguments of `cargo test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Check(pub &'static [&'static str]);

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cargo test {}", self.0.join(" "))
    }
}

/// Why a mutation cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale(String);

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Mutation {
    /// The text of its file under `root` with the bug in it.
    ///
    /// # Errors
    /// [`Stale`] where the file cannot be read, or does not hold the text of an edit exactly once: write the mutation anew.
    pub fn mutated(&self, root: &Path) -> Result<String, Stale> {
        let stale = |what: String| Stale(format!("{}: {}: {what}", self.name, self.file));
        let mut text = std::fs::read_to_string(root.join(self.file)).map_err(|error| stale(error.to_string()))?;
        for edit in self.edits {
            let count = text.matches(edit.find).count();
            if count != 1 {
                return Err(stale(format!("found {count} times, not once:\n{}", edit.find)));
            }
            text = text.replace(edit.find, edit.replace);
        }
        Ok(text)
    }
}
