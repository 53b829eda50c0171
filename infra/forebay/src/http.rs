//! A small HTTP client on the connector that the AWS SDK brings along anyway: no second TLS stack to build.

use std::time::Duration;

use aws_smithy_http_client::default_connector;
use aws_smithy_runtime_api::client::http::{HttpConnector as _, HttpConnectorSettings, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;

use crate::error::{Attempt as _, Error};

/// Longest time for one request and its answer. GitHub itself waits ten seconds for a webhook; a deployment step of
/// the emulator may take a little longer.
const EXCHANGE: Duration = Duration::from_secs(30);
/// Longest time for a call of a function and its answer: more than any function of the stack may take.
const FUNCTION_CALL: Duration = Duration::from_secs(70);

/// A client for HTTP and HTTPS. It follows no redirects and uses no proxy.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    connector: SharedHttpConnector,
}

/// A request that has not been sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// Such as `POST`.
    pub(crate) method: &'a str,
    /// Absolute URL.
    pub(crate) url: &'a str,
    /// Names and values.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    /// The exact bytes.
    pub(crate) body: &'a [u8],
}

/// An answer, whatever its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The status code.
    pub(crate) status: u16,
    /// The whole body.
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// Whether the status is a 2xx.
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Http {
    /// A client with the system's root certificates.
    pub(crate) fn new() -> Self {
        let settings = HttpConnectorSettings::builder().build();
        let connector = default_connector(&settings, None).expect("the rustls feature is chosen in Cargo.toml");
        Self { connector }
    }

    /// Sends `request` and reads the whole answer.
    pub(crate) async fn exchange(&self, request: Request<'_>) -> Result<Reply, Error> {
        self.exchange_within(request, EXCHANGE).await
    }

    /// Sends a request that is answered when a function has ended.
    pub(crate) async fn call_function(&self, request: Request<'_>) -> Result<Reply, Error> {
        self.exchange_within(request, FUNCTION_CALL).await
    }

    async fn exchange_within(&self, request: Request<'_>, bound: Duration) -> Result<Reply, Error> {
        let attempted = || format!("{} {}", request.method, request.url);
        let remedy = "check the address, and that something listens there";
        let prepared = prepare(request).attempting(attempted, "check the address and the headers")?;
        let exchange = async {
            let mut response = self.connector.call(prepared).await.attempting(attempted, remedy)?;
            let body = ByteStream::new(response.take_body()).collect().await;
            let body = body.attempting(attempted, remedy)?;
            Ok(Reply {
                status: response.status().as_u16(),
                body: body.to_vec(),
            })
        };
        match tokio::time::timeout(bound, exchange).await {
            Ok(reply) => reply,
            Err(elapsed) => Err(elapsed).attempting(attempted, remedy),
        }
    }
}

/// `request` in the connector's form.
fn prepare(request: Request<'_>) -> Result<HttpRequest, aws_smithy_runtime_api::http::HttpError> {
    let mut prepared = HttpRequest::new(SdkBody::from(request.body));
    prepared.set_method(request.method)?;
    prepared.set_uri(request.url)?;
    for (name, value) in request.headers {
        prepared
            .headers_mut()
            .try_insert(name.to_ascii_lowercase(), (*value).to_owned())?;
    }
    Ok(prepared)
}
