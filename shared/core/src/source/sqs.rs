//! Queues in pull form, for those that cannot have a mapping.

use std::future::Future;

use futures_util::future::BoxFuture;
use jiff::SignedDuration;

use super::{FailedPoll, Placement, Poll, PollError, Polled, Source, SourceId, Turn, Writer};
use crate::ports::{ErrorClass, ErrorKind};
use crate::queue::{self, Conversion, Envelopes, Message};
use crate::target::TargetKey;

/// Most messages of one receive, and longest wait for one
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html>).
const MESSAGES_MAX: u32 = 10;
const WAIT_SECONDS_MAX: u32 = 20;
/// How long a queue that throttles is left alone.
const THROTTLED: SignedDuration = SignedDuration::from_secs(30);

/// How long a queue is left alone that is not waited for: to ask without end would cost and find nothing.
const UNWAITED: SignedDuration = SignedDuration::from_secs(1);

/// How a queue is pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqsSourceConfig {
    /// URL of the queue.
    pub queue_url: String,
    /// ARN of the queue: what its events name as their source.
    pub queue_arn: String,
    /// Its region.
    pub region: String,
    /// Most messages of one receive: 1 to 10.
    pub max_messages: u32,
    /// How long an empty queue is waited for, in seconds: 0 to 20.
    pub wait_time_seconds: u32,
    /// The project that its events belong to, if to one.
    pub project_id: Option<String>,
    /// The role under which it is pulled: the principal of its target.
    pub role_arn: String,
    /// The tenant.
    pub tenant_id: String,
    /// Version of what its messages become. This version knows 1.
    pub schema_version: u32,
    /// Whether notifications of SNS topics are taken out of their envelopes.
    pub envelopes: Envelopes,
}

impl SqsSourceConfig {
    /// A queue with the usual settings: ten messages, twenty seconds.
    #[must_use]
    pub fn new(queue_url: &str, queue_arn: &str, role_arn: &str, tenant_id: &str) -> Self {
        Self {
            queue_url: queue_url.to_owned(),
            queue_arn: queue_arn.to_owned(),
            // arn:aws:sqs:<region>:<account>:<name>
            region: queue_arn.split(':').nth(3).unwrap_or_default().to_owned(),
            max_messages: MESSAGES_MAX,
            wait_time_seconds: WAIT_SECONDS_MAX,
            project_id: None,
            role_arn: role_arn.to_owned(),
            tenant_id: tenant_id.to_owned(),
            schema_version: 1,
            envelopes: Envelopes::Keep,
        }
    }
}

/// Settings of a queue that break rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pull queue: {}", .0.join("; "))]
pub struct InvalidSqsSource(pub Vec<&'static str>);

/// A queue that messages are pulled from.
pub trait PulledQueue: Send + Sync {
    /// Receives at most `max` messages, and waits for the first of them for so many seconds.
    ///
    /// # Errors
    /// Why there was no answer.
    fn receive(&self, max: u32, wait_seconds: u32) -> impl Future<Output = Result<Vec<Message>, ErrorClass>> + Send;

    /// Deletes messages by their receipt handles. One that cannot be deleted comes again, and is known then.
    fn delete(&self, receipt_handles: Vec<String>) -> impl Future<Output = ()> + Send;
}

/// A queue as a source.
#[derive(Debug)]
pub struct SqsSource<Q> {
    id: SourceId,
    config: SqsSourceConfig,
    target: TargetKey,
    queue: Q,
}

impl<Q: PulledQueue> SqsSource<Q> {
    /// The source that pulls `queue`.
    ///
    /// # Errors
    /// [`InvalidSqsSource`] names every rule that `config` breaks.
    pub fn new(config: SqsSourceConfig, queue: Q) -> Result<Self, InvalidSqsSource> {
        let rules = [
            (!config.queue_url.trim().is_empty(), "queue_url is required"),
            (!config.queue_arn.trim().is_empty(), "queue_arn is required"),
            (!config.tenant_id.trim().is_empty(), "tenant_id is required"),
            (!config.role_arn.trim().is_empty(), "role_arn is required"),
            (
                (1..=MESSAGES_MAX).contains(&config.max_messages),
                "max_messages must be from 1 to 10",
            ),
            (
                config.wait_time_seconds <= WAIT_SECONDS_MAX,
                "wait_time_seconds must be from 0 to 20",
            ),
            (config.schema_version == 1, "schema_version must be 1"),
        ];
        let broken: Vec<_> = rules
            .iter()
            .filter(|(holds, _)| !holds)
            .map(|(_, rule)| *rule)
            .collect();
        if !broken.is_empty() {
            return Err(InvalidSqsSource(broken));
        }
        let domain = format!("sqs.{}.amazonaws.com", config.region);
        Ok(Self {
            id: SourceId::new(&format!("sqs/{}", config.queue_arn)),
            target: TargetKey::aws_iam(&domain, &config.role_arn, &config.tenant_id),
            config,
            queue,
        })
    }
}

impl<Q: PulledQueue> Source for SqsSource<Q> {
    fn id(&self) -> &SourceId {
        &self.id
    }

    fn scheme(&self) -> &'static str {
        "sqs"
    }

    fn placement(&self) -> Placement {
        Placement::PerReplica
    }

    fn target(&self) -> &TargetKey {
        &self.target
    }

    /// Waiting for messages is part of a poll. Without, an empty queue is left alone for a while.
    fn interval(&self) -> SignedDuration {
        if self.config.wait_time_seconds == 0 {
            UNWAITED
        } else {
            SignedDuration::ZERO
        }
    }

    fn poll<'a>(&'a self, turn: Turn<'a>) -> BoxFuture<'a, Result<Poll, Box<FailedPoll>>> {
        Box::pin(async move {
            let polled = self.pull(turn.writer).await?;
            Ok(Poll {
                more: matches!(polled, Polled::Emitted(_)),
                // A long poll's wait says nothing of how quick its queue is.
                latency: Some(SignedDuration::ZERO),
                ..polled.into()
            })
        })
    }
}

impl<Q: PulledQueue> SqsSource<Q> {
    /// A message is deleted only after the writer has it. What fails of a receive comes again by itself, and what was kept
    /// beside it is deleted all the same.
    async fn pull(&self, writer: &dyn Writer) -> Result<Polled, PollError> {
        let received = self
            .queue
            .receive(self.config.max_messages, self.config.wait_time_seconds)
            .await;
        let messages = match received {
            Ok(messages) => messages,
            Err(ErrorClass::Throttled) => return Ok(Polled::Throttled(THROTTLED)),
            Err(class) => {
                return Err(PollError::Unanswered {
                    source_id: self.id.clone(),
                    word: class.as_str(),
                });
            }
        };
        let conversion = Conversion {
            envelopes: self.config.envelopes,
            project: self.config.project_id.clone(),
        };
        let mut kept = Vec::new();
        let mut written: usize = 0;
        let mut unkept = None;
        for message in messages {
            match writer.write(queue::event(&message, &conversion).into()).await {
                Ok(_) => {
                    written = written.saturating_add(1);
                    kept.extend(message.receipt_handle);
                }
                Err(error) => {
                    // A ledger that is out of reach will not take the others either.
                    let stop = error.kind() != ErrorKind::Reject;
                    unkept = Some(error);
                    if stop {
                        break;
                    }
                }
            }
        }
        if !kept.is_empty() {
            self.queue.delete(kept).await;
        }
        match unkept {
            Some(source) => Err(PollError::Unkept {
                source_id: self.id.clone(),
                source,
            }),
            None if written == 0 => Ok(Polled::Empty),
            None => Ok(Polled::Emitted(written)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::super::{Found, Written};
    use super::*;
    use crate::event::{Event, EventId};
    use crate::ports::LedgerError;
    use crate::queue::Body;
    use crate::testing::block_on;

    const ARN: &str = "arn:aws:sqs:eu-west-1:000000000000:orders";

    fn config() -> SqsSourceConfig {
        SqsSourceConfig::new("https://sqs/orders", ARN, "arn:aws:iam::000000000000:role/r", "acme")
    }

    /// A queue that gives messages again until they are deleted.
    #[derive(Debug, Default)]
    struct Queue {
        left: Mutex<Vec<String>>,
        asked: Mutex<Vec<(u32, u32)>>,
        fails: Option<ErrorClass>,
    }

    impl PulledQueue for &Queue {
        async fn receive(&self, max: u32, wait_seconds: u32) -> Result<Vec<Message>, ErrorClass> {
            self.asked.lock().unwrap().push((max, wait_seconds));
            if let Some(class) = self.fails {
                return Err(class);
            }
            let left = self.left.lock().unwrap();
            let message = |id: &String| Message {
                queue: ARN.to_owned(),
                id: id.clone(),
                receipt_handle: Some(id.clone()),
                body: Body::Text(format!("{{\"id\":\"{id}\"}}")),
                system: BTreeMap::new(),
                attributes: BTreeMap::new(),
            };
            Ok(left.iter().take(max as usize).map(message).collect())
        }

        async fn delete(&self, receipt_handles: Vec<String>) {
            self.left.lock().unwrap().retain(|id| !receipt_handles.contains(id));
        }
    }

    /// A writer that keeps events, but for one.
    #[derive(Default)]
    struct Log {
        events: Mutex<Vec<Event>>,
        fails: Option<(&'static str, ErrorClass)>,
    }

    impl Writer for Log {
        fn write(&self, found: Found) -> BoxFuture<'_, Result<Written, LedgerError>> {
            Box::pin(std::future::ready(self.keep(found.event)))
        }
    }

    impl Log {
        fn keep(&self, event: Event) -> Result<Written, LedgerError> {
            if let Some((id, class)) = self.fails
                && event.id.as_str().ends_with(id)
            {
                return Err(LedgerError {
                    attempted: "admit event",
                    on: event.id.to_string(),
                    class,
                    source: None,
                });
            }
            self.events.lock().unwrap().push(event);
            Ok(Written::New)
        }
    }

    fn queue(ids: &[&str]) -> Queue {
        Queue {
            left: Mutex::new(ids.iter().map(|id| (*id).to_owned()).collect()),
            ..Queue::default()
        }
    }

    fn polled(queue: &Queue, log: &Log) -> Result<Polled, PollError> {
        block_on(SqsSource::new(config(), queue).unwrap().pull(log))
    }

    #[test]
    fn what_is_pulled_becomes_events_and_is_deleted_once_they_are_written() {
        // S1-10, S1-13: pull, convert, write, event, without any queue service.
        let (queue, log) = (queue(&["m1", "m2"]), Log::default());
        assert_eq!(polled(&queue, &log).unwrap(), Polled::Emitted(2));
        assert_eq!(*queue.left.lock().unwrap(), Vec::<String>::new());
        assert_eq!(*queue.asked.lock().unwrap(), [(10, 20)]);
        let ids: Vec<EventId> = log
            .events
            .lock()
            .unwrap()
            .iter()
            .map(|event| event.id.clone())
            .collect();
        assert_eq!(ids, ["m1", "m2"].map(|id| queue::event_id(ARN, id)));
        assert_eq!(polled(&queue, &log).unwrap(), Polled::Empty);
    }

    #[test]
    fn what_was_not_written_stays_in_the_queue_and_what_was_does_not() {
        // S1-10
        let queue = queue(&["m1", "m2", "m3"]);
        let log = Log {
            fails: Some(("m2", ErrorClass::Unreachable)),
            ..Log::default()
        };
        let error = polled(&queue, &log).unwrap_err();
        assert!(matches!(error, PollError::Unkept { .. }), "{error}");
        assert_eq!(
            *queue.left.lock().unwrap(),
            ["m2", "m3"],
            "and nothing behind it was tried"
        );
        let rejecting = Log {
            fails: Some(("m2", ErrorClass::TooLarge)),
            ..Log::default()
        };
        polled(&queue, &rejecting).unwrap_err();
        assert_eq!(*queue.left.lock().unwrap(), ["m2"], "invariant 10: it fails alone");
        assert_eq!(polled(&queue, &Log::default()).unwrap(), Polled::Emitted(1));
    }

    #[test]
    fn a_queue_that_throttles_is_left_alone_and_one_that_fails_says_so() {
        let queue = |class| Queue {
            fails: Some(class),
            ..Queue::default()
        };
        assert_eq!(
            polled(&queue(ErrorClass::Throttled), &Log::default()).unwrap(),
            Polled::Throttled(THROTTLED)
        );
        let error = polled(&queue(ErrorClass::TimedOut), &Log::default()).unwrap_err();
        assert_eq!(error.to_string(), format!("poll sqs/{ARN}: timed_out"));
    }

    #[test]
    fn a_source_says_what_it_is() {
        // S1-02, S1-03
        let queue = Queue::default();
        let source = SqsSource::new(config(), &queue).unwrap();
        assert_eq!((source.scheme(), source.placement()), ("sqs", Placement::PerReplica));
        assert_eq!(source.id().as_str(), format!("sqs/{ARN}"));
        let expected = TargetKey::aws_iam(
            "sqs.eu-west-1.amazonaws.com",
            "arn:aws:iam::000000000000:role/r",
            "acme",
        );
        assert_eq!(source.target(), &expected);
    }

    #[test]
    fn settings_out_of_range_are_refused_all_at_once() {
        // S1-09
        let good = config();
        assert_eq!(
            (good.max_messages, good.wait_time_seconds, good.schema_version),
            (10, 20, 1)
        );
        assert_eq!(good.region, "eu-west-1");
        let queue = Queue::default();
        let broken = SqsSourceConfig {
            queue_url: " ".to_owned(),
            tenant_id: String::new(),
            max_messages: 11,
            wait_time_seconds: 21,
            schema_version: 2,
            ..config()
        };
        let InvalidSqsSource(rules) = SqsSource::new(broken, &queue).unwrap_err();
        let names: Vec<&str> = rules.iter().filter_map(|rule| rule.split(' ').next()).collect();
        assert_eq!(
            names,
            [
                "queue_url",
                "tenant_id",
                "max_messages",
                "wait_time_seconds",
                "schema_version"
            ]
        );
        let none = SqsSourceConfig {
            max_messages: 0,
            ..config()
        };
        assert!(SqsSource::new(none, &queue).is_err());
    }

    #[test]
    fn the_project_is_recorded_with_what_its_queue_said() {
        // S1-09
        let (queue, log) = (queue(&["m1"]), Log::default());
        let with_project = SqsSourceConfig {
            project_id: Some("checkout".to_owned()),
            ..config()
        };
        block_on(SqsSource::new(with_project, &queue).unwrap().pull(&log)).unwrap();
        let events = log.events.lock().unwrap();
        let Some(crate::event::Content::Here(content)) = &events[0].content else {
            panic!("a message has content")
        };
        assert!(content.contains("\"project\":\"checkout\""), "{content}");
        assert!(content.contains("\"schemaversion\":\"1\""));
    }
}
