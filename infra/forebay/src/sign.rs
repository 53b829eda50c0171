//! `forebay sign`: the signature that GitHub would send with a body.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::error::{Attempt as _, Error};
use crate::output::Output;
use crate::secret::{SecretArgs, WebhookSecret};

/// What to sign.
#[derive(Args, Clone, Debug)]
pub(crate) struct SignArgs {
    /// File with the exact bytes of the body; `-` is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    #[command(flatten)]
    secret: SecretArgs,
}

/// A signature.
#[derive(Serialize)]
struct Signed {
    #[serde(rename = "X-Hub-Signature-256")]
    signature: String,
}

impl fmt::Display for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.signature)
    }
}

/// Prints the signature of a body.
pub(crate) fn run(args: &SignArgs, output: Output) -> Result<(), Error> {
    let secret = WebhookSecret::find(&args.secret)?;
    let body = read(&args.file)?;
    output.result(&Signed {
        signature: secret.sign(&body),
    })
}

/// The bytes at `file`, or those of standard input.
fn read(file: &Path) -> Result<Vec<u8>, Error> {
    if file == Path::new("-") {
        let mut body = Vec::new();
        std::io::stdin().read_to_end(&mut body).attempting(
            || "read the body from standard input".to_owned(),
            "name a file, or pipe the body in",
        )?;
        return Ok(body);
    }
    std::fs::read(file).attempting(|| format!("read {}", file.display()), "check the path")
}
