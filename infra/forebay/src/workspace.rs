//! Where things are: the checkout that the command works in, and its own files under `target/`.

use std::path::{Path, PathBuf};

use crate::error::{Attempt as _, Error};

/// How far up from the current folder the checkout is looked for.
const PARENTS_MAX: usize = 32;

/// A checkout of Forebay.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The checkout that the current folder is in.
    pub(crate) fn find() -> Result<Self, Error> {
        let here = std::env::current_dir()
            .attempting(|| "read the current folder".to_owned(), "go to a checkout of Forebay")?;
        let root = here
            .ancestors()
            .take(PARENTS_MAX)
            .find(|folder| folder.join("infra/template.yaml").is_file() && folder.join("Cargo.toml").is_file());
        let root = root.ok_or_else(|| {
            Error::new(
                format!("find infra/template.yaml in {} or above it", here.display()),
                "run the command inside a checkout of Forebay",
            )
        })?;
        Ok(Self { root: root.to_owned() })
    }

    /// The top folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The stack's template.
    pub(crate) fn template(&self) -> PathBuf {
        self.root.join("infra/template.yaml")
    }

    /// The recorded inputs.
    pub(crate) fn events(&self) -> PathBuf {
        self.root.join("events")
    }

    /// The command's own files. Made when first asked for; safe to delete whenever nothing runs.
    pub(crate) fn state(&self) -> Result<PathBuf, Error> {
        let folder = self.root.join("target/forebay");
        std::fs::create_dir_all(&folder).attempting(
            || format!("make {}", folder.display()),
            "check the folder's permissions",
        )?;
        Ok(folder)
    }
}
