//! `forebay enqueue`: a message for the queue whose messages the local stack takes.

use std::fmt;

use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::control::Control;
use crate::deploy::{SOURCE_QUEUE, queue_arn};
use crate::error::Error;
use crate::http::Http;
use crate::output::Output;
use crate::stack::StackFile;
use crate::workspace::Workspace;

/// What to say.
#[derive(Args, Clone, Debug)]
pub(crate) struct EnqueueArgs {
    /// The message's body, such as '{"order": 7}'
    body: String,
}

/// A message that the queue has.
#[derive(Serialize)]
struct Enqueued {
    message_id: String,
    event: String,
}

impl fmt::Display for Enqueued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the queue {SOURCE_QUEUE} has message {}", self.message_id)?;
        write!(f, "its event will be {}", self.event)
    }
}

/// Puts a message into the queue.
pub(crate) async fn run(args: &EnqueueArgs, output: Output) -> Result<(), Error> {
    let stack = StackFile::read(&Workspace::find()?)?;
    let control = Control::new(Http::new(), &stack.endpoint);
    let message = json!({ "QueueUrl": stack.source_queue_url, "MessageBody": args.body });
    let answer = control.sqs("SendMessage", &message).await?;
    let message_id = answer["MessageId"].as_str().unwrap_or_default().to_owned();
    let event = forebay_core::queue::event_id(&queue_arn(SOURCE_QUEUE), &message_id).to_string();
    output.result(&Enqueued { message_id, event })
}
