//! Faults on the way to AWS: an HTTP client that does what a script says at each call, and keeps what was asked.

use std::collections::BTreeMap;
use std::fmt;
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
use tokio::sync::Notify;

/// What happens to one HTTP request instead of going its way.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// It never arrives: the connection is reset first.
    Reset,
    /// It is carried out, and the answer is lost.
    AnswerLost,
    /// It never arrives and nothing ever answers: the time-out ends it.
    Silence,
    /// It is carried out, and the answer comes after the time-out.
    AnsweredTooLate,
    /// Whoever makes the call dies just before it goes out: see [`Faults::died`].
    DiesBefore,
    /// Whoever makes the call dies after it was carried out, before it learns that.
    DiesAfter,
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
    died: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Script {
    at: BTreeMap<usize, Fault>,
    chosen: Option<Chooser>,
    rest: Option<Fault>,
    calls: Vec<Call>,
}

type Choose = dyn Fn(usize, &Call) -> Option<Fault> + Send;

/// What befalls a call, by its number and by what it asks.
struct Chooser(Box<Choose>);

impl fmt::Debug for Chooser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chooser")
    }
}

impl Faults {
    /// Calls go through to the endpoint, until told otherwise.
    #[must_use]
    pub fn on_the_way() -> Self {
        Self::through(Some(Builder::new().build_http()))
    }

    /// Calls go through to `client`, until told otherwise.
    #[must_use]
    pub fn before(client: impl HttpClient + 'static) -> Self {
        Self::through(Some(SharedHttpClient::new(client)))
    }

    /// Nothing is there: what no script answers is reset. Since nothing really waits for a network, time can be paused.
    #[must_use]
    pub fn alone() -> Self {
        Self::through(None)
    }

    fn through(through: Option<SharedHttpClient>) -> Self {
        Self {
            through,
            state: Arc::default(),
            died: Arc::default(),
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

    /// From now on `choose` says what befalls a call that has no fault of its own, by its number and by what it asks.
    pub fn choose(&self, choose: impl Fn(usize, &Call) -> Option<Fault> + Send + 'static) {
        self.script().chosen = Some(Chooser(Box::new(choose)));
    }

    /// From now on nobody chooses.
    pub fn mend(&self) {
        self.script().chosen = None;
    }

    /// Ends when a call is made at which its maker dies; deaths before it was first polled are no longer news. Whoever plays
    /// the maker drops it then.
    pub async fn died(&self) {
        self.died.notified().await;
    }

    /// Every call so far, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.script().calls.clone()
    }

    /// How many calls there were so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.script().calls.len()
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
        let own = script.at.get(&number).cloned();
        let chosen = || script.chosen.as_ref().and_then(|chooser| chooser.0(number, &call));
        let fault = own.or_else(chosen).or_else(|| script.rest.clone());
        script.calls.push(call);
        fault
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
                    connector.carry_out(request).await?;
                    Err(reset())
                }
                Some(Fault::Silence) => std::future::pending().await,
                Some(Fault::AnsweredTooLate) => {
                    connector.carry_out(request).await?;
                    std::future::pending().await
                }
                Some(Fault::DiesBefore) => connector.die().await,
                Some(Fault::DiesAfter) => {
                    connector.carry_out(request).await?;
                    connector.die().await
                }
                Some(Fault::Answer(status, body)) => Ok(answer(status, body.to_string())),
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

    /// Passes the request on, and reads the answer to its end: the server might not have carried it out before.
    async fn carry_out(&self, request: HttpRequest) -> Result<(), ConnectorError> {
        let mut answer = self.pass(request).await?;
        let body = std::mem::replace(answer.body_mut(), SdkBody::taken());
        drop(aws_smithy_types::byte_stream::ByteStream::new(body).collect().await);
        Ok(())
    }

    async fn die(&self) -> Result<HttpResponse, ConnectorError> {
        self.faults.died.notify_waiters();
        std::future::pending().await
    }
}

/// What `request` asks.
pub(crate) fn call_of(request: &HttpRequest) -> Call {
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

/// An answer with this JSON.
pub(crate) fn answer(status: u16, body: String) -> HttpResponse {
    let status = StatusCode::try_from(status).expect("a script answers with a status");
    let mut answer = HttpResponse::new(status, SdkBody::from(body));
    answer
        .headers_mut()
        .insert("content-type", "application/x-amz-json-1.0");
    answer
}
