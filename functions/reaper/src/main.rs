//! The reaper's process: cold start, then one run after the other.

use forebay_aws::clock::System;
use forebay_aws::metrics::Metrics;
use forebay_aws::start::{configure_reaper, connect_reaper, deadline};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use reaper::Reaper;
use serde::de::IgnoredAny;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let config = match configure_reaper() {
        Ok(config) => config,
        // The process lives on and fails every run with the reason: a crash loop would hide it.
        Err(problems) => {
            let fail = |_: LambdaEvent<IgnoredAny>| {
                let problems = problems.clone();
                async move { Err::<(), _>(Error::from(problems)) }
            };
            return lambda_runtime::run(service_fn(fail)).await;
        }
    };
    let metrics = Metrics::to_stdout(&config.metrics_namespace);
    let (ledger, inboxes) = Box::pin(connect_reaper(&config)).await;
    let reaper = &Reaper::new(&config, ledger, inboxes, System, metrics);
    let run = |event: LambdaEvent<IgnoredAny>| async move {
        Ok::<_, Error>(Box::pin(reaper.run(deadline(event.context.deadline))).await)
    };
    lambda_runtime::run(service_fn(run)).await
}
