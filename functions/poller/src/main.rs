//! The poller's process: cold start, then one run after the other.

use forebay_aws::metrics::Metrics;
use forebay_aws::start::{configure_poller, connect_poller, deadline};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use poller::Poller;
use serde::de::IgnoredAny;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let config = match configure_poller() {
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
    let clients = Box::pin(connect_poller(&config)).await;
    let poller = &Poller::new(config, clients, metrics);
    let run = |event: LambdaEvent<IgnoredAny>| async move {
        Box::pin(poller.run(deadline(event.context.deadline)))
            .await
            .map_err(Error::from)
    };
    lambda_runtime::run(service_fn(run)).await
}
