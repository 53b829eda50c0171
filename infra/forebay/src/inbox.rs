//! Messages in inboxes, and `forebay inbox`: a look at them.

use std::fmt;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use clap::Args;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::connect::{Connected, StackRef};
use crate::error::{Attempt as _, Error};
use crate::output::Output;
use crate::time::Time;

/// Most messages of one receive
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html>).
const RECEIVED_MAX: i32 = 10;
/// Most receives until an inbox has to be empty.
const DRAIN_ROUNDS_MAX: usize = 50;
/// How long a message that is being taken out stays hidden from others.
const TAKING_SECONDS: i32 = 30;
/// What the messages of queues are called in an envelope.
const QUEUE_MESSAGE: &str = "com.amazonaws.sqs.message";
const QUEUE_REMEDY: &str = "check that the stack runs and can be reached, and what the credentials allow";

/// Which inbox to look into.
#[derive(Args, Clone, Debug)]
pub(crate) struct InboxArgs {
    /// An agent, or `dispatcher`, or `notice`
    name: String,
    /// Show at most so many messages
    #[arg(long, default_value_t = RECEIVED_MAX, value_parser = clap::value_parser!(i32).range(1..=i64::from(RECEIVED_MAX)))]
    limit: i32,
    #[command(flatten)]
    stack: StackRef,
}

/// A message as it was received.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Received {
    /// FIFO group.
    pub(crate) group: String,
    /// How often it has been received, this time included.
    pub(crate) receives: u32,
    /// When it was sent.
    pub(crate) sent_at: Option<Time>,
    /// What its body says.
    pub(crate) message: Value,
}

impl Received {
    /// The parts of the body that are of interest here; `None` where it is no event of ours.
    pub(crate) fn event(&self) -> Option<CloudEvent> {
        serde_json::from_value(self.message.clone()).ok()
    }
}

/// The parts of a message that are looked at.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CloudEvent {
    /// The event's id.
    pub(crate) id: String,
    /// The event.
    pub(crate) data: EventData,
}

/// The event in a message.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct EventData {
    /// The inbox that it was sent to.
    pub(crate) inbox: String,
    /// Fencing token of its sender.
    pub(crate) token: u64,
    /// The event for an agent to read; not in a message that only refers to it.
    #[serde(default)]
    text: String,
}

impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sent_at = self.sent_at.map(|at| format!("sent {at} · ")).unwrap_or_default();
        let receives = self.receives;
        match self.event() {
            Some(event) => {
                let text = event.data.text.trim().replace('\n', "\n  ");
                let (id, token) = (event.id, event.data.token);
                write!(f, "{text}\n  {sent_at}token {token} · received {receives}× · {id}")
            }
            None if self.message["type"] == QUEUE_MESSAGE => {
                let part = |name: &str| self.message[name].as_str().unwrap_or_default();
                let said = self.message.get("data").or_else(|| self.message.get("data_base64"));
                let said = said.map(ToString::to_string).unwrap_or_default();
                writeln!(f, "queue message from {}: {said}", part("source"))?;
                let token = &self.message["token"];
                write!(f, "  {sent_at}token {token} · received {receives}× · {}", part("event"))
            }
            None => write!(
                f,
                "not an event of Forebay's\n  {sent_at}received {receives}× · {}",
                self.message
            ),
        }
    }
}

/// Looks at the head of an inbox and leaves everything in it.
pub(crate) async fn run(args: &InboxArgs, output: Output) -> Result<(), Error> {
    let connected = Connected::find(&args.stack).await?;
    let url = connected.inbox_url(&args.name)?;
    let messages = peek(&connected.sqs, url, args.limit).await?;
    for message in &messages {
        output.result(message)?;
    }
    let (there, hidden) = count(&connected.sqs, url).await?;
    let name = &args.name;
    output.note(format_args!(
        "inbox {name}: showed {} of about {there} messages; about {hidden} are being handled",
        messages.len()
    ));
    Ok(())
}

/// The first messages of the queue at `url`. They stay where they are, and visible.
async fn peek(client: &Client, url: &str, limit: i32) -> Result<Vec<Received>, Error> {
    let messages = receive(client, url, limit, 0).await?;
    Ok(messages.iter().map(received).collect())
}

/// Takes all messages out of the queue at `url`.
pub(crate) async fn drain(client: &Client, url: &str) -> Result<Vec<Received>, Error> {
    let mut drained = Vec::new();
    for _ in 0..DRAIN_ROUNDS_MAX {
        let messages = receive(client, url, RECEIVED_MAX, TAKING_SECONDS).await?;
        if messages.is_empty() {
            return Ok(drained);
        }
        for message in messages {
            let delete = client
                .delete_message()
                .queue_url(url)
                .set_receipt_handle(message.receipt_handle.clone());
            delete
                .send()
                .await
                .attempting(|| format!("delete a message of {url}"), QUEUE_REMEDY)?;
            drained.push(received(&message));
        }
    }
    Err(Error::new(
        format!("empty {url}: messages keep coming"),
        "end whatever sends to it",
    ))
}

async fn receive(client: &Client, url: &str, limit: i32, hidden_seconds: i32) -> Result<Vec<Message>, Error> {
    let request = client
        .receive_message()
        .queue_url(url)
        .max_number_of_messages(limit)
        .visibility_timeout(hidden_seconds)
        // The queue's own wait is for consumers; a look does not wait.
        .wait_time_seconds(0)
        .message_system_attribute_names(MessageSystemAttributeName::All);
    let output = request
        .send()
        .await
        .attempting(|| format!("receive from {url}"), QUEUE_REMEDY)?;
    Ok(output.messages.unwrap_or_default())
}

/// About how many messages are in the queue at `url`, and how many of them somebody is handling.
async fn count(client: &Client, url: &str) -> Result<(u64, u64), Error> {
    let names = [
        QueueAttributeName::ApproximateNumberOfMessages,
        QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
    ];
    let request = client
        .get_queue_attributes()
        .queue_url(url)
        .set_attribute_names(Some(names.to_vec()));
    let output = request
        .send()
        .await
        .attempting(|| format!("count the messages of {url}"), QUEUE_REMEDY)?;
    let number = |name| -> u64 {
        let attributes = output.attributes.as_ref();
        let text = attributes.and_then(|attributes| attributes.get(name));
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let [visible, hidden] = names.each_ref().map(number);
    Ok((visible.saturating_add(hidden), hidden))
}

/// `message` as we show it.
fn received(message: &Message) -> Received {
    let attribute = |name| message.attributes.as_ref()?.get(&name).map(String::as_str);
    let sent_at = attribute(MessageSystemAttributeName::SentTimestamp).and_then(|millis| millis.parse().ok());
    let receives = attribute(MessageSystemAttributeName::ApproximateReceiveCount).and_then(|count| count.parse().ok());
    let group = attribute(MessageSystemAttributeName::MessageGroupId);
    let body = message.body.as_deref().unwrap_or_default();
    Received {
        group: group.unwrap_or_default().to_owned(),
        receives: receives.unwrap_or(0),
        sent_at: sent_at
            .and_then(|millis| Timestamp::from_millisecond(millis).ok())
            .map(Time),
        message: serde_json::from_str(body).unwrap_or_else(|_not_json| body.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &str) -> Message {
        Message::builder()
            .body(body)
            .attributes(MessageSystemAttributeName::MessageGroupId, "acme/app#12")
            .attributes(MessageSystemAttributeName::ApproximateReceiveCount, "2")
            .attributes(MessageSystemAttributeName::SentTimestamp, "1794846600123")
            .build()
    }

    #[test]
    fn an_event_reads_as_its_text_with_what_its_consumer_needs() {
        let body =
            r#"{"id":"github/comment/7","data":{"inbox":"builder","token":3,"text":"comment acme/app#12\nhttps://x"}}"#;
        assert_eq!(
            received(&message(body)).to_string(),
            "comment acme/app#12\n  https://x\n  sent 2026-11-16T16:30:00Z · token 3 · received 2× · github/comment/7"
        );
    }

    #[test]
    fn what_is_no_event_is_shown_as_it_came() {
        let received = received(&message("hello"));
        assert!(received.event().is_none());
        assert!(received.to_string().ends_with("\"hello\""), "{received}");
    }
}
