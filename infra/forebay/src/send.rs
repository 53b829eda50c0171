//! `forebay send`: posts a delivery to a webhook as GitHub would.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::delivery::{Headers, content_type};
use crate::error::{Attempt as _, Error};
use crate::http::{Http, Reply};
use crate::manifest::{Manifest, Signature};
use crate::output::Output;
use crate::secret::{SecretArgs, WebhookSecret};
use crate::stack::StackFile;
use crate::workspace::Workspace;

/// Hook id of a delivery that nobody recorded.
const UNRECORDED_HOOK: &str = "1";
/// Where a GUID says by which method it was made, and the method "random" (RFC 9562).
const VERSION_BITS: u128 = 0xf << 76 | 0b11 << 62;
const VERSION_4: u128 = 0x4 << 76 | 0b10 << 62;

/// What to send, and where to.
#[derive(Args, Clone, Debug)]
pub(crate) struct SendArgs {
    /// A recorded input by name, such as `review_comment`, or any file with a body; `.form` files are sent as forms
    file: String,
    /// Payload URL of the webhook [default: the running local stack's]
    #[arg(long)]
    url: Option<String>,
    /// Event name [default: the recorded one]
    #[arg(long)]
    event: Option<String>,
    /// Delivery GUID [default: the recorded one, else a new one]
    #[arg(long, conflicts_with = "fresh")]
    guid: Option<String>,
    /// Send it under a new GUID, as if another hook told of it: a happening that the ledger has stays one event
    #[arg(long)]
    fresh: bool,
    /// Hook id [default: the recorded one]
    #[arg(long)]
    hook: Option<String>,
    /// Sign it with a wrong secret
    #[arg(long)]
    forge: bool,
    #[command(flatten)]
    secret: SecretArgs,
}

/// What the webhook answered.
#[derive(Serialize)]
struct Answer<'a> {
    guid: &'a str,
    event: &'a str,
    status: u16,
    answer: Value,
}

impl fmt::Display for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} → {} {}", self.event, self.guid, self.status, self.answer)
    }
}

/// Sends one delivery and prints the answer, whatever it is: a refusal is an answer.
pub(crate) async fn run(args: &SendArgs, output: Output) -> Result<(), Error> {
    let url = match &args.url {
        Some(url) => url.clone(),
        None => StackFile::read(&Workspace::find()?)?.webhook_url,
    };
    let (path, headers) = choose(args)?;
    let body = std::fs::read(&path).attempting(
        || format!("read {}", path.display()),
        "name a file, or a recorded input inside a checkout of Forebay",
    )?;
    let secret = WebhookSecret::find(&args.secret)?;
    let reply = headers.post(&Http::new(), &url, &secret, &body).await?;
    output.result(&Answer {
        guid: &headers.guid,
        event: &headers.event,
        status: reply.status,
        answer: answer(&reply),
    })
}

/// The file that is meant, and what is said about it: what the arguments say, else what was recorded.
fn choose(args: &SendArgs) -> Result<(PathBuf, Headers), Error> {
    let events = Workspace::find().map(|workspace| workspace.events());
    let recorded = events.ok().and_then(|events| {
        let manifest = Manifest::read(&events).ok()?;
        let recording = manifest.recording(&args.file)?;
        Some((events.join(&recording.file), Headers::recorded(&manifest, recording)))
    });
    let (path, mut headers) = match recorded {
        Some(recorded) => recorded,
        None => unrecorded(args)?,
    };
    if let Some(event) = &args.event {
        headers.event.clone_from(event);
    }
    if let Some(guid) = &args.guid {
        headers.guid.clone_from(guid);
    }
    if args.fresh {
        headers.guid = new_guid()?;
    }
    if let Some(hook) = &args.hook {
        headers.hook.clone_from(hook);
    }
    if args.forge {
        headers.signature = Signature::Forged;
    }
    Ok((path, headers))
}

/// What is said about a file that nobody recorded.
fn unrecorded(args: &SendArgs) -> Result<(PathBuf, Headers), Error> {
    let event = args.event.clone().ok_or_else(|| {
        Error::new(
            format!(
                "send {}: no recorded input has this name, so its event is not known",
                args.file
            ),
            "name the event with --event, or one of the recorded inputs in events/manifest.json",
        )
    })?;
    let path = PathBuf::from(&args.file);
    let headers = Headers {
        event,
        guid: new_guid()?,
        hook: UNRECORDED_HOOK.to_owned(),
        content_type: content_type(&path),
        signature: Signature::Right,
    };
    Ok((path, headers))
}

/// A GUID that nothing has yet: random, in the form of version 4.
fn new_guid() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).attempting(|| "make a new GUID: no random bytes".to_owned(), "name one with --guid")?;
    let number = u128::from_be_bytes(bytes) & !VERSION_BITS | VERSION_4;
    let hex = format!("{number:032x}");
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Ok(parts.join("-"))
}

/// The answer's body: JSON where it is, else text.
fn answer(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap_or_else(|_not_json| reply.text().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_guid_has_the_form_of_githubs() {
        let guid = new_guid().unwrap();
        let lengths: Vec<usize> = guid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{guid}");
        assert_eq!(&guid[14..15], "4", "{guid}");
        assert!(forebay_core::delivery::Guid::parse(&guid).is_some(), "{guid}");
        assert_ne!(guid, new_guid().unwrap());
    }
}
