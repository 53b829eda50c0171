//! The functions' binaries, built for this machine and packed as Lambda wants them.

use std::collections::BTreeMap;
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::ValueEnum;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::child::ChildGroup;
use crate::error::{Attempt as _, Error};
use crate::workspace::Workspace;

/// Mode of the packed binary: Lambda runs it.
const EXECUTABLE: u32 = 0o755;
const BUILD_REMEDY: &str = "mend what the compiler says above";

/// How the functions are built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// Quick to build.
    #[default]
    Dev,
    /// As deployed.
    Release,
}

/// The part of cargo's messages that says where a binary is.
#[derive(Deserialize)]
struct Message {
    reason: String,
    target: Option<Target>,
    executable: Option<PathBuf>,
}

/// The part of a message that says which binary it is about.
#[derive(Deserialize)]
struct Target {
    name: String,
}

/// Builds `binaries` with plain cargo for the machine that runs this, and says where each is.
///
/// No cross-compiler is needed: the local stack runs them here.
pub(crate) async fn build(
    workspace: &Workspace,
    binaries: &[String],
    profile: Profile,
) -> Result<BTreeMap<String, PathBuf>, Error> {
    // Without `--package`: the features stay those of the whole workspace, and nothing is built twice.
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(workspace.root())
        .args(["build", "--message-format=json-render-diagnostics"])
        .args(binaries.iter().flat_map(|binary| ["--bin", binary]))
        .args(match profile {
            Profile::Dev => [].as_slice(),
            Profile::Release => &["--release"],
        })
        .stdout(Stdio::piped());
    let mut cargo = ChildGroup::spawn("cargo build", cargo, "install Rust, with cargo on the PATH")?;
    let stdout = cargo.leader().stdout.take().expect("it was piped three lines above");
    let mut found = BTreeMap::new();
    let mut messages = BufReader::new(stdout).lines();
    let next = || "read cargo's messages".to_owned();
    while let Some(line) = messages.next_line().await.attempting(next, BUILD_REMEDY)? {
        found.extend(executable(&line));
    }
    let status = cargo.finish().await?;
    if !status.success() {
        return Err(Error::new(
            format!("build the functions: cargo ended with {status}"),
            BUILD_REMEDY,
        ));
    }
    if let Some(missing) = binaries.iter().find(|&binary| !found.contains_key(binary)) {
        return Err(Error::new(
            format!("build {missing}: cargo named no such binary"),
            "compare `Binary:` in infra/template.yaml with the folders in functions/",
        ));
    }
    Ok(found)
}

/// Name and place of the binary that one of cargo's messages announces.
fn executable(line: &str) -> Option<(String, PathBuf)> {
    let message: Message = serde_json::from_str(line).ok()?;
    (message.reason == "compiler-artifact").then_some(())?;
    Some((message.target?.name, message.executable?))
}

/// The binary at `path` as a code package: a zip archive with one executable called `bootstrap`.
pub(crate) fn pack(path: &Path) -> Result<Vec<u8>, Error> {
    let remedy = "build again";
    let binary = std::fs::read(path).attempting(|| format!("read {}", path.display()), remedy)?;
    let packing = || format!("pack {}", path.display());
    // Stored, not compressed: it goes no further than this machine's memory.
    let options = SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Stored)
        .unix_permissions(EXECUTABLE);
    let mut archive = ZipWriter::new(Cursor::new(Vec::with_capacity(binary.len())));
    archive.start_file("bootstrap", options).attempting(packing, remedy)?;
    archive.write_all(&binary).attempting(packing, remedy)?;
    Ok(archive.finish().attempting(packing, remedy)?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_message_about_a_binary_names_one() {
        let artifact = r#"{"reason":"compiler-artifact","target":{"name":"webhook"},"executable":"/t/webhook"}"#;
        assert_eq!(
            executable(artifact),
            Some(("webhook".to_owned(), PathBuf::from("/t/webhook")))
        );
        let library = r#"{"reason":"compiler-artifact","target":{"name":"webhook"},"executable":null}"#;
        assert_eq!(executable(library), None);
        assert_eq!(executable(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
