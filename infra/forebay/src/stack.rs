//! What is known of a running local stack, and the file that tells the other commands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Attempt as _, Error};
use crate::workspace::Workspace;

/// The path that GitHub posts to.
pub(crate) const INTAKE_PATH: &str = "/api/intake/github";
/// Logical id of the webhook function in `infra/template.yaml`.
pub(crate) const WEBHOOK_FUNCTION: &str = "WebhookFunction";
/// Logical id of the reaper function there.
pub(crate) const REAPER_FUNCTION: &str = "ReaperFunction";
/// Logical id of the function behind queues there.
pub(crate) const SQS_FUNCTION: &str = "SqsFunction";
/// Logical id of the poller function there.
pub(crate) const POLLER_FUNCTION: &str = "PollerFunction";
/// What the name of an inbox follows in a function's environment.
pub(crate) const INBOX_PREFIX: &str = "INBOX_";

/// What a local stack is for. It tells one stack's files from another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To work against, until the user ends it.
    Local,
    /// To show and to check, once.
    Demo,
    /// For a program that does something of its own to it, once.
    Trial {
        /// The program's name.
        name: &'static str,
        /// Parameters of the template that are not as the local stack has them, by name.
        parameters: &'static [(&'static str, &'static str)],
    },
}

impl Purpose {
    /// The word in the names of its files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Demo => "demo",
            Self::Trial { name, .. } => name,
        }
    }

    /// Least level that the functions log, in Lambda's words.
    pub(crate) fn log_level(self) -> &'static str {
        match self {
            Self::Local | Self::Trial { .. } => "INFO",
            // The demonstration looks for secrets in the logs: the more these say, the more it proves.
            Self::Demo => "DEBUG",
        }
    }

    /// Parameters of the template that are not as the local stack has them, by name.
    pub(crate) fn parameters(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Local | Self::Demo => &[],
            Self::Trial { parameters, .. } => parameters,
        }
    }
}

/// A deployed function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Function {
    /// Its name.
    pub(crate) name: String,
    /// Its environment, as the template made it.
    pub(crate) environment: BTreeMap<String, String>,
    /// Where its logs are.
    pub(crate) log_group: String,
}

/// Where everything is. A function's environment names the rest, so nothing is said twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stack {
    /// Process id of the emulator.
    pub(crate) emulator: Option<u32>,
    /// Address of every AWS service.
    pub(crate) endpoint: String,
    /// Region that the stack is in.
    pub(crate) region: String,
    /// Payload URL of the webhook.
    pub(crate) webhook_url: String,
    /// URL of the queue whose messages the stack takes.
    pub(crate) source_queue_url: String,
    /// Address of the fake GitHub, where there is one.
    #[serde(default)]
    pub(crate) github: Option<String>,
    /// Functions by logical id.
    pub(crate) functions: BTreeMap<String, Function>,
}

impl Stack {
    /// A variable of the webhook's environment.
    pub(crate) fn variable(&self, name: &str) -> Result<&str, Error> {
        self.webhook()?
            .environment
            .get(name)
            .map(String::as_str)
            .ok_or_else(|| {
                Error::new(
                    format!("find {name} in the environment of {WEBHOOK_FUNCTION}"),
                    "compare infra/template.yaml with the configuration that the functions read",
                )
            })
    }

    /// The webhook function.
    pub(crate) fn webhook(&self) -> Result<&Function, Error> {
        self.function(WEBHOOK_FUNCTION)
    }

    /// The reaper function.
    pub(crate) fn reaper(&self) -> Result<&Function, Error> {
        self.function(REAPER_FUNCTION)
    }

    pub(crate) fn function(&self, id: &str) -> Result<&Function, Error> {
        self.functions.get(id).ok_or_else(|| {
            Error::new(
                format!("find {id} in the deployed stack"),
                "give the function that logical id in infra/template.yaml",
            )
        })
    }

    /// Inboxes by name: agents, `dispatcher`, `notice`.
    pub(crate) fn inboxes(&self) -> Result<BTreeMap<&str, &str>, Error> {
        let environment = &self.webhook()?.environment;
        Ok(environment
            .iter()
            .filter_map(|(name, url)| Some((name.strip_prefix(INBOX_PREFIX)?, url.as_str())))
            .collect())
    }
}

/// The file in which the running local stack is described. It goes when the stack does.
#[derive(Debug)]
pub(crate) struct StackFile {
    path: PathBuf,
}

impl StackFile {
    /// Describes `stack` in the checkout's own file.
    pub(crate) fn write(workspace: &Workspace, stack: &Stack) -> Result<Self, Error> {
        let path = path(workspace)?;
        let text = serde_json::to_string_pretty(stack).expect("text keys and text values always serialize");
        std::fs::write(&path, text)
            .attempting(|| format!("write {}", path.display()), "check the folder's permissions")?;
        Ok(Self { path })
    }

    /// Reads the description of the stack that runs.
    pub(crate) fn read(workspace: &Workspace) -> Result<Stack, Error> {
        let path = path(workspace)?;
        let remedy = "start the local stack with `cargo forebay local` in another terminal, and leave it running";
        let text = std::fs::read_to_string(&path).attempting(|| format!("read {}", path.display()), remedy)?;
        serde_json::from_str(&text).attempting(
            || format!("read {}", path.display()),
            "stop `cargo forebay local` and start it again",
        )
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StackFile {
    fn drop(&mut self) {
        // What cannot be removed is found to be stale by whoever reads it: nothing answers at its endpoint.
        drop(std::fs::remove_file(&self.path));
    }
}

/// Where the file is.
fn path(workspace: &Workspace) -> Result<PathBuf, Error> {
    Ok(workspace.state()?.join("local.json"))
}
