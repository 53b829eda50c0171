//! A local stack for a program that does something of its own to it: deploy, let it, and leave nothing running.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::control::Control;
use crate::delivery::Headers;
use crate::emulator;
use crate::http::Http;
use crate::local::{StackArgs, with_stack};
use crate::manifest::Signature;
use crate::output::{Format, Output};
use crate::secret::{LOCAL_SECRET, WebhookSecret};
use crate::stack::{POLLER_FUNCTION, Purpose, SQS_FUNCTION, Stack};
use crate::wait::Interrupts;
use crate::workspace::Workspace;

pub use crate::deploy::{SOURCE_RECEIVES_MAX, SOURCE_VISIBILITY_SECONDS};
pub use crate::error::Error;
pub use crate::wait::{Ended, INTERRUPTED};

/// What a throttled invocation is answered with.
const TOO_MANY: u16 = 429;

/// A deployed local stack, for as long as the program that asked for it runs.
#[derive(Clone, Debug)]
pub struct Trial {
    stack: Stack,
    scratch: PathBuf,
    http: Http,
    control: Control,
    secret: WebhookSecret,
    output: Output,
}

/// How one run of a function on a schedule ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ran {
    /// It answered.
    Answered(Value),
    /// It came to an end without an answer.
    Died,
    /// Another run is under way.
    Busy,
}

/// Deploys the stack with these `parameters` of the template and lets `body` have it.
///
/// `name` tells its files from those of other stacks. Whatever comes of it, Ctrl-C included, nothing is left running afterwards.
///
/// # Errors
/// What `body` gives, or what kept the stack from coming up, staying up or ending: each says what to do.
pub async fn run<T>(
    name: &'static str,
    parameters: &[(&'static str, &str)],
    body: impl AsyncFnOnce(Trial) -> Result<T, Error>,
) -> Result<Ended<T>, Error> {
    let workspace = Workspace::find()?;
    let state = workspace.state()?;
    let output = Output::new(Format::Text);
    // A program has one stack: what it is made of may stay as long as the process.
    let parameters: Vec<(&str, &str)> = parameters
        .iter()
        .map(|(name, value)| (*name, &*(*value).to_owned().leak()))
        .collect();
    let purpose = Purpose::Trial {
        name,
        parameters: parameters.leak(),
    };
    let mut interrupts = Interrupts::listen()?;
    let use_stack = async |stack: &Stack, _log: &Path| {
        let http = Http::new();
        let trial = Trial {
            stack: stack.clone(),
            scratch: emulator::scratch(&state, purpose),
            control: Control::new(http.clone(), &stack.endpoint),
            http,
            secret: WebhookSecret::local(),
            output,
        };
        body(trial).await
    };
    let args = StackArgs::default();
    Box::pin(with_stack(
        purpose,
        &args,
        &workspace,
        output,
        &mut interrupts,
        use_stack,
    ))
    .await
}

impl Trial {
    /// Process id of the emulator. The processes of the functions are its children.
    #[must_use]
    pub fn emulator(&self) -> Option<u32> {
        self.stack.emulator
    }

    /// The folder that the emulator unpacks the functions into.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Address of every AWS service.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.stack.endpoint
    }

    /// Name of the ledger's table.
    ///
    /// # Errors
    /// Where the template gives the webhook none.
    pub fn table(&self) -> Result<&str, Error> {
        self.stack.variable("TABLE_NAME")
    }

    /// URLs of the inboxes by name.
    ///
    /// # Errors
    /// Where the template has no webhook.
    pub fn inboxes(&self) -> Result<BTreeMap<String, String>, Error> {
        let inboxes = self.stack.inboxes()?.into_iter();
        Ok(inboxes.map(|(name, url)| (name.to_owned(), url.to_owned())).collect())
    }

    /// URL of the queue whose messages the stack takes.
    #[must_use]
    pub fn source_queue(&self) -> &str {
        &self.stack.source_queue_url
    }

    /// ARN of the queue whose messages the stack takes.
    #[must_use]
    pub fn source_queue_arn(&self) -> String {
        crate::deploy::queue_arn(crate::deploy::SOURCE_QUEUE)
    }

    /// URL of that queue's dead letters.
    #[must_use]
    pub fn source_dead_letters(&self) -> String {
        format!("{}-dead", self.stack.source_queue_url)
    }

    /// Name of the function behind queues.
    ///
    /// # Errors
    /// Where the template has none.
    pub fn sqs_function(&self) -> Result<&str, Error> {
        Ok(&self.stack.function(SQS_FUNCTION)?.name)
    }

    /// Name of the reaper.
    ///
    /// # Errors
    /// Where the template has none.
    pub fn reaper(&self) -> Result<&str, Error> {
        Ok(&self.stack.reaper()?.name)
    }

    /// Name of the poller.
    ///
    /// # Errors
    /// Where the template has none.
    pub fn poller(&self) -> Result<&str, Error> {
        Ok(&self.stack.function(POLLER_FUNCTION)?.name)
    }

    /// Where GitHub posts to.
    #[must_use]
    pub fn webhook_url(&self) -> &str {
        &self.stack.webhook_url
    }

    /// What the webhook's deliveries are signed with: the local stack's secret, which is public.
    #[must_use]
    pub fn webhook_secret(&self) -> &'static str {
        LOCAL_SECRET
    }

    /// Posts a signed JSON delivery of the hook `hook` to the webhook, as GitHub would, and gives the answer's status.
    ///
    /// # Errors
    /// Where no answer came.
    pub async fn post(&self, event: &str, hook: &str, guid: &str, body: &[u8]) -> Result<u16, Error> {
        let headers = Headers {
            event: event.to_owned(),
            guid: guid.to_owned(),
            hook: hook.to_owned(),
            content_type: "application/json",
            signature: Signature::Right,
        };
        let reply = headers
            .post(&self.http, &self.stack.webhook_url, &self.secret, body)
            .await?;
        Ok(reply.status)
    }

    /// Starts a run of the reaper besides those of its schedule, and waits for its end.
    ///
    /// # Errors
    /// Where the emulator gave no answer, or one that is none.
    pub async fn reap(&self) -> Result<Ran, Error> {
        self.start(self.reaper()?).await
    }

    /// Starts a run of the poller besides those of its schedule, and waits for its end.
    ///
    /// # Errors
    /// As [`Self::reap`].
    pub async fn poll(&self) -> Result<Ran, Error> {
        self.start(self.poller()?).await
    }

    async fn start(&self, function: &str) -> Result<Ran, Error> {
        let nothing = Value::Object(serde_json::Map::new());
        let reply = self.control.invoke(function, &nothing).await?;
        if reply.status == TOO_MANY {
            return Ok(Ran::Busy);
        }
        if !reply.is_success() {
            return Err(Error::new(
                format!("start {function}: it was answered {}", reply.status),
                "look into the emulator's log",
            ));
        }
        // A failed run is an answer too, and says what type of error it ended with.
        let answer = serde_json::from_slice::<Value>(&reply.body).unwrap_or_default();
        let died = !answer.is_object() || answer.get("errorType").is_some();
        Ok(if died { Ran::Died } else { Ran::Answered(answer) })
    }

    /// Hands a batch over to the function behind queues, as Lambda would, and gives its answer.
    ///
    /// # Errors
    /// Where the emulator gave no answer.
    pub async fn take(&self, batch: &Value) -> Result<Value, Error> {
        let reply = self.control.invoke(self.sqs_function()?, batch).await?;
        Ok(serde_json::from_slice(&reply.body).unwrap_or_default())
    }

    /// Says on standard error what is going on.
    pub fn note(&self, text: impl Display) {
        self.output.note(text);
    }
}

/// Says on standard error what failed and what to do about it.
pub fn failure(error: &Error) {
    Output::new(Format::Text).failure(error);
}
