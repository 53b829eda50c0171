//! The webhook's process: cold start, then one request after the other.

use forebay_aws::clock::System;
use forebay_aws::http_event::HttpEvent;
use forebay_aws::metrics::Metrics;
use forebay_aws::start::{configure, connect};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use webhook::{Webhook, refuse_misconfigured};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let config = match configure() {
        Ok(config) => config,
        // The process lives on and says so to every delivery: a crash loop would hide the reason.
        Err(_logged) => {
            let answer =
                |event: LambdaEvent<HttpEvent>| async move { Ok::<_, Error>(refuse_misconfigured(&event.payload)) };
            return lambda_runtime::run(service_fn(answer)).await;
        }
    };
    let metrics = Metrics::to_stdout(&config.metrics_namespace);
    let webhook = &Webhook::new(config.clone(), Box::pin(connect(&config)).await, System, metrics);
    let answer = |event: LambdaEvent<HttpEvent>| async move { Ok::<_, Error>(webhook.answer(event.payload).await) };
    lambda_runtime::run(service_fn(answer)).await
}
