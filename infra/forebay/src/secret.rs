//! Webhook secrets as the command uses them: to sign what it sends itself.

use std::path::{Path, PathBuf};

use clap::Args;
use forebay_core::signature::{Secret, Secrets};

use crate::error::{Attempt as _, Error};

/// The webhook secret of the local stack and of the recorded inputs. Public, and good for nothing else: no deployment
/// to a real account knows it.
pub(crate) const LOCAL_SECRET: &str = "forebay-local-development-secret";
/// Holds another secret.
const VARIABLE: &str = "FOREBAY_SECRET";
const BLANK_REMEDY: &str = "give a secret that is not blank";

/// Where a secret comes from. Never the command line: other users of the machine can read that.
#[derive(Args, Clone, Debug)]
pub(crate) struct SecretArgs {
    /// File with the webhook secret; one line end after it does not count
    /// [default: the variable `FOREBAY_SECRET`, else the secret of the local stack]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

/// A secret to sign with. Its material is never printed.
#[derive(Clone, Debug)]
pub(crate) struct WebhookSecret(Secret);

impl WebhookSecret {
    /// The secret that the arguments and the environment name.
    pub(crate) fn find(args: &SecretArgs) -> Result<Self, Error> {
        if let Some(path) = &args.secret_file {
            return Self::from_file(path);
        }
        match std::env::var_os(VARIABLE) {
            None => Ok(Self::local()),
            Some(value) => value.to_str().and_then(Self::new).ok_or_else(|| {
                Error::new(
                    format!("read the webhook secret in {VARIABLE}: it is blank or not UTF-8"),
                    BLANK_REMEDY,
                )
            }),
        }
    }

    /// The secret of the local stack.
    pub(crate) fn local() -> Self {
        Self::new(LOCAL_SECRET).expect("the constant is not blank")
    }

    /// A secret that is not the right one.
    pub(crate) fn forged(material: &'static str) -> Self {
        Self::new(material).expect("the constant is not blank")
    }

    /// The value of `X-Hub-Signature-256` for `body`.
    pub(crate) fn sign(&self, body: &[u8]) -> String {
        self.0.sign(body)
    }

    fn from_file(path: &Path) -> Result<Self, Error> {
        let reading = || format!("read the webhook secret in {}", path.display());
        let text = std::fs::read_to_string(path).attempting(reading, "check the path given with --secret-file")?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        Self::new(line.strip_suffix('\r').unwrap_or(line))
            .ok_or_else(|| Error::new(format!("{}: it is blank", reading()), BLANK_REMEDY))
    }

    /// A secret; `None` where it is blank, and would verify nothing.
    fn new(material: &str) -> Option<Self> {
        Secrets::single(material).signer().cloned().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of GitHub's documentation on validating webhook deliveries.
    #[test]
    fn a_signature_is_what_github_would_send() {
        let secret = WebhookSecret::new("It's a Secret to Everybody").unwrap();
        assert_eq!(
            secret.sign(b"Hello, World!"),
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        );
    }

    #[test]
    fn a_blank_secret_is_none() {
        assert!(WebhookSecret::new(" \n").is_none());
    }
}
