//! `forebay env`: the environment in which `cargo lambda watch` runs the webhook against the local stack.

use std::fmt;
use std::fs::{OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;

use crate::control::DUMMY_KEY;
use crate::env_file::{Variables, quoted};
use crate::error::{Attempt as _, Error};
use crate::output::Output;
use crate::secret::LOCAL_SECRET;
use crate::stack::{Stack, StackFile};
use crate::workspace::Workspace;

/// Where a deployed function finds its secret; `cargo lambda watch` reads a file instead.
const SECRET_ID: &str = "SECRET_ID";
const PROVIDERS_FILE: &str = "PROVIDERS_FILE";
/// The secrets file is for its owner alone; the functions refuse any other mode.
const OWNER_ONLY: u32 = 0o600;

/// Variables by name, as an environment file or as one JSON object.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
struct Environment(Variables);

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self
            .0
            .iter()
            .map(|(name, value)| format!("{name}={}", quoted(value)))
            .collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Writes the secrets file and prints the environment.
pub(crate) fn run(output: Output) -> Result<(), Error> {
    let workspace = Workspace::find()?;
    let stack = StackFile::read(&workspace)?;
    let providers = workspace.state()?.join("providers.json");
    write_providers(&providers)?;
    output.result(&environment(&stack, &providers)?)
}

/// The webhook's environment as deployed, with what the platform and the emulator add to it.
fn environment(stack: &Stack, providers: &Path) -> Result<Environment, Error> {
    let mut variables = stack.webhook()?.environment.clone();
    variables.remove(SECRET_ID);
    variables.insert(PROVIDERS_FILE.to_owned(), providers.display().to_string());
    variables.extend(platform(stack));
    Ok(Environment(variables))
}

/// What the platform adds to a function's environment.
pub(crate) fn platform(stack: &Stack) -> [(String, String); 4] {
    [
        ("AWS_ENDPOINT_URL", stack.endpoint.as_str()),
        ("AWS_REGION", stack.region.as_str()),
        ("AWS_ACCESS_KEY_ID", DUMMY_KEY),
        ("AWS_SECRET_ACCESS_KEY", DUMMY_KEY),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
}

/// Writes the local secret in the form of the secret document.
fn write_providers(path: &PathBuf) -> Result<(), Error> {
    let document = json!({ "github": { "webhook_secret": LOCAL_SECRET } });
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(OWNER_ONLY)
            .open(path)?;
        // The mode above counts only for a file that was not there yet.
        file.set_permissions(Permissions::from_mode(OWNER_ONLY))?;
        writeln!(file, "{document}")
    };
    write().attempting(|| format!("write {}", path.display()), "check the folder's permissions")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::stack::{Function, WEBHOOK_FUNCTION};

    use super::*;

    #[test]
    fn the_deployed_environment_reads_its_secret_from_a_file() {
        let deployed = [
            ("TABLE_NAME", "ledger"),
            ("SECRET_ID", "arn:secret"),
            ("ROUTES", "acme/app#41=reviewer"),
        ];
        let environment = environment(
            &Stack {
                emulator: None,
                endpoint: "http://127.0.0.1:1".to_owned(),
                region: "us-east-1".to_owned(),
                webhook_url: String::new(),
                source_queue_url: String::new(),
                github: None,
                functions: BTreeMap::from([(
                    WEBHOOK_FUNCTION.to_owned(),
                    Function {
                        name: "f".to_owned(),
                        environment: deployed.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
                        log_group: "/aws/lambda/f".to_owned(),
                    },
                )]),
            },
            Path::new("/p.json"),
        );
        assert_eq!(
            environment.unwrap().to_string(),
            "AWS_ACCESS_KEY_ID='forebay-local'\n\
             AWS_ENDPOINT_URL='http://127.0.0.1:1'\n\
             AWS_REGION='us-east-1'\n\
             AWS_SECRET_ACCESS_KEY='forebay-local'\n\
             PROVIDERS_FILE='/p.json'\n\
             ROUTES='acme/app#41=reviewer'\n\
             TABLE_NAME='ledger'"
        );
    }
}
