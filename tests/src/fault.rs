//! Faults on the way to AWS: an HTTP client that does what a script says at each call, and keeps what was asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_smithy_http_client::Builder;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use serde_json::{Value, json};

/// What happens to one HTTP request instead of going its way.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// It never arrives: the connection is reset first.
    Reset,
    /// It is carried out, and the answer is lost.
    AnswerLost,
    /// It never arrives and nothing ever answers: the time-out ends it.
    Silence,
    /// It never arrives; this status and this JSON answer.
    Answer(u16, Value),
}

impl Fault {
    /// AWS refuses the request with this error code. Server errors have status 500, all others 400.
    #[must_use]
    pub fn refused(code: &str) -> Self {
        let status = if code.starts_with("Internal") { 500 } else { 400 };
        let body = json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": "scripted"});
        Self::Answer(status, body)
    }

    /// DynamoDB cancels the transaction for these reasons, one for each entry, each with the old row where there is one.
    #[must_use]
    pub fn cancelled(reasons: &[(&str, Option<Value>)]) -> Self {
        let reasons: Vec<Value> = reasons
            .iter()
            .map(|(code, row)| match row {
                Some(row) => json!({"Code": code, "Message": "scripted", "Item": row}),
                None => json!({"Code": code, "Message": "scripted"}),
            })
            .collect();
        let body = json!({
            "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
            "Message": "scripted",
            "CancellationReasons": reasons,
        });
        Self::Answer(400, body)
    }

    /// A condition fails on this old row.
    #[must_use]
    pub fn condition_failed(row: Option<Value>) -> Self {
        let mut body = json!({
            "__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",
            "message": "scripted",
        });
        if let Some(row) = row {
            body["Item"] = row;
        }
        Self::Answer(400, body)
    }
}

/// One HTTP request as it left the SDK: every try of a call is one.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The operation, such as `UpdateItem`.
    pub operation: String,
    /// What was asked.
    pub body: Value,
}

/// An HTTP client with a script. Clones share it.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Where calls go that no fault befalls; nowhere in a world that is all script.
    through: Option<SharedHttpClient>,
    state: Arc<Mutex<Script>>,
}

#[derive(Debug, Default)]
struct Script {
    at: BTreeMap<usize, Fault>,
    rest: Option<Fault>,
    calls: Vec<Call>,
}

impl Faults {
    /// Calls go through to the endpoint, until told otherwise.
    #[must_use]
    pub fn on_the_way() -> Self {
        Self {
            through: Some(Builder::new().build_http()),
            state: Arc::default(),
        }
    }

    /// Nothing is there: what no script answers is reset. Since nothing really waits for a network, time can be paused.
    #[must_use]
    pub fn alone() -> Self {
        Self {
            through: None,
            state: Arc::default(),
        }
    }

    /// `fault` befalls call number `call`, counted from 0 since the start.
    #[must_use]
    pub fn at(self, call: usize, fault: Fault) -> Self {
        self.script().at.insert(call, fault);
        self
    }

    /// `fault` befalls the call after those made so far.
    pub fn next(&self, fault: Fault) {
        let mut script = self.script();
        let call = script.calls.len();
        script.at.insert(call, fault);
    }

    /// `fault` befalls every call that has none of its own.
    #[must_use]
    pub fn always(self, fault: Fault) -> Self {
        self.script().rest = Some(fault);
        self
    }

    /// Every call so far, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.script().calls.clone()
    }

    /// The operations of the calls so far, in order.
    #[must_use]
    pub fn operations(&self) -> Vec<String> {
        self.script().calls.iter().map(|call| call.operation.clone()).collect()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes `call`, and says what befalls it.
    fn note(&self, call: Call) -> Option<Fault> {
        let mut script = self.script();
        let number = script.calls.len();
        script.calls.push(call);
        script.at.get(&number).or(script.rest.as_ref()).cloned()
    }
}

impl HttpClient for Faults {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let through = self.through.as_ref();
        SharedHttpConnector::new(FaultyConnector {
            through: through.map(|client| client.http_connector(settings, components)),
            faults: self.clone(),
        })
    }
}

#[derive(Clone, Debug)]
struct FaultyConnector {
    through: Option<SharedHttpConnector>,
    faults: Faults,
}

impl HttpConnector for FaultyConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let fault = self.faults.note(call_of(&request));
        let connector = self.clone();
        HttpConnectorFuture::new(async move {
            match fault {
                None => connector.pass(request).await,
                Some(Fault::Reset) => Err(reset()),
                Some(Fault::AnswerLost) => {
                    // Read to its end, or the server might not have carried it out yet.
                    let mut answer = connector.pass(request).await?;
                    let body = std::mem::replace(answer.body_mut(), SdkBody::taken());
                    drop(aws_smithy_types::byte_stream::ByteStream::new(body).collect().await);
                    Err(reset())
                }
                Some(Fault::Silence) => std::future::pending().await,
                Some(Fault::Answer(status, body)) => Ok(answer(status, &body)),
            }
        })
    }
}

impl FaultyConnector {
    async fn pass(&self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        match &self.through {
            Some(connector) => connector.call(request).await,
            None => Err(reset()),
        }
    }
}

fn call_of(request: &HttpRequest) -> Call {
    let target = request.headers().get("x-amz-target").unwrap_or_default();
    let operation = target.rsplit('.').next().unwrap_or_default();
    let body = request.body().bytes().unwrap_or_default();
    Call {
        operation: operation.to_owned(),
        body: serde_json::from_slice(body).unwrap_or_default(),
    }
}

fn reset() -> ConnectorError {
    ConnectorError::io(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into())
}

fn answer(status: u16, body: &Value) -> HttpResponse {
    let status = StatusCode::try_from(status).expect("a script answers with a status");
    let mut answer = HttpResponse::new(status, SdkBody::from(body.to_string()));
    answer
        .headers_mut()
        .insert("content-type", "application/x-amz-json-1.0");
    answer
}
