//! Takes everything out of an inbox.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::DisplayErrorContext;
use aws_sdk_sqs::types::DeleteMessageBatchRequestEntry;
use forebay::trial::Error;

/// Most messages of one receive and of one batch.
const BATCH_MAX: i32 = 10;
/// How long a received message stays hidden: it is deleted at once.
const HIDDEN_SECONDS: i32 = 60;

/// The bodies of all messages in the queue at `url`, which is empty then.
pub(crate) async fn drain(sqs: &Client, url: &str, remedy: &'static str) -> Result<Vec<String>, Error> {
    let failed =
        |error: aws_sdk_sqs::Error| Error::new(format!("empty {url}: {}", DisplayErrorContext(&error)), remedy);
    let mut bodies = Vec::new();
    loop {
        let receive = sqs
            .receive_message()
            .queue_url(url)
            .wait_time_seconds(0)
            .visibility_timeout(HIDDEN_SECONDS)
            .max_number_of_messages(BATCH_MAX);
        let received = receive.send().await.map_err(|error| failed(error.into()))?;
        let messages = received.messages.unwrap_or_default();
        if messages.is_empty() {
            return Ok(bodies);
        }
        let mut entries = Vec::new();
        for (place, message) in messages.into_iter().enumerate() {
            bodies.push(message.body.unwrap_or_default());
            let entry = DeleteMessageBatchRequestEntry::builder().id(place.to_string());
            let entry = entry.receipt_handle(message.receipt_handle.unwrap_or_default()).build();
            entries.push(entry.map_err(|error| failed(error.into()))?);
        }
        let delete = sqs.delete_message_batch().queue_url(url).set_entries(Some(entries));
        delete.send().await.map_err(|error| failed(error.into()))?;
    }
}
