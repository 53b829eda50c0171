//! The process behind queues: cold start, then one batch after the other.

use forebay_aws::clock::System;
use forebay_aws::metrics::Metrics;
use forebay_aws::sqs_event::SqsEvent;
use forebay_aws::start::{configure_sqs, connect_queues, connect_sqs, deadline};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use sqs::{Intake, hold_all_back};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let config = match configure_sqs() {
        Ok(config) => config,
        // The process lives on and fails every batch with the reason: a crash loop would hide it. The messages stay.
        Err(problems) => {
            let (queues, problems) = (&connect_queues().await, &problems);
            let fail = |event: LambdaEvent<SqsEvent>| async move {
                hold_all_back(&event.payload, queues).await;
                Err::<(), _>(Error::from(problems.clone()))
            };
            return lambda_runtime::run(service_fn(fail)).await;
        }
    };
    let metrics = Metrics::to_stdout(&config.metrics_namespace);
    let (ledger, inboxes, queues) = Box::pin(connect_sqs(&config)).await;
    let intake = &Intake::new(&config, ledger, inboxes, queues, System, metrics);
    let take = |event: LambdaEvent<SqsEvent>| async move {
        let answer = Box::pin(intake.take(&event.payload, deadline(event.context.deadline))).await;
        answer.map_err(Error::from)
    };
    lambda_runtime::run(service_fn(take)).await
}
