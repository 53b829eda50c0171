//! A function that only builds the SDK clients that the webhook builds, and answers nothing: what its cold start is compared
//! with.

use forebay_aws::start::sdk_config;
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let sdk = Box::pin(sdk_config()).await;
    let clients = (
        aws_sdk_dynamodb::Client::new(&sdk),
        aws_sdk_sqs::Client::new(&sdk),
        aws_sdk_secretsmanager::Client::new(&sdk),
    );
    let answer = |_event: LambdaEvent<Value>| async { Ok::<_, Error>(Value::Null) };
    lambda_runtime::run(service_fn(answer)).await?;
    drop(clients);
    Ok(())
}
