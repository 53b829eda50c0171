//! DynamoDB and SQS in process, behind the HTTP client of the SDK.
//!
//! The embedded database is asked directly and the queues are a map. Nothing waits for a socket, so that a paused clock
//! goes on only when every task waits for time.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use dynoxide::Database;
use dynoxide::errors::DynoxideError;
use dynoxide::types::AttributeValue;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::checks::Checks;
use crate::fault::{Call, Faults, answer, call_of};
use crate::table::{TABLE, config, create};

/// A row as the database has it.
pub(super) type Item = HashMap<String, AttributeValue>;

/// The operation that sends to a queue.
pub(super) const SEND: &str = "SendMessageBatch";

/// The services. Clones share them.
#[derive(Clone)]
pub(super) struct Cloud {
    database: Database,
    checks: Arc<Mutex<Checks>>,
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cloud")
    }
}

impl Cloud {
    /// An empty database and empty queues, watched by `checks`.
    pub(super) fn new(checks: Checks) -> Self {
        Self {
            database: Database::memory().expect("an empty database in memory"),
            checks: Arc::new(Mutex::new(checks)),
        }
    }

    /// Creates the ledger's table. The request is written by the SDK once and for all.
    pub(super) async fn create_table(&self) {
        static REQUEST: OnceLock<String> = OnceLock::new();
        if let Some(request) = REQUEST.get() {
            self.ask("CreateTable", request)
                .expect("an empty database takes the table");
            return;
        }
        let faults = Faults::before(self.clone());
        let config = config("http://127.0.0.1:1").http_client(faults.clone());
        create(&aws_sdk_dynamodb::Client::from_conf(config.build())).await;
        let calls = faults.calls();
        let call = calls.first().expect("creating a table is a call");
        REQUEST.get_or_init(|| call.body.to_string());
    }

    /// What was seen so far.
    pub(super) fn checks(&self) -> MutexGuard<'_, Checks> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn carry_out(&self, call: &Call, body: &str) -> (u16, String) {
        if call.operation == SEND {
            return (200, self.checks().take(&call.body).to_string());
        }
        match self.ask(&call.operation, body) {
            Ok(answer) => {
                self.look_at(call);
                (200, answer)
            }
            Err(error) => (error.status_code(), error.to_json()),
        }
    }

    fn ask(&self, operation: &str, body: &str) -> Result<String, DynoxideError> {
        let database = &self.database;
        match operation {
            "CreateTable" => act(body, |request| database.create_table(request)),
            "GetItem" => act(body, |request| database.get_item(request)),
            "BatchGetItem" => act(body, |request| database.batch_get_item(request)),
            "Query" => act(body, |request| database.query(request)),
            "PutItem" => act(body, |request| database.put_item(request)),
            "UpdateItem" => act(body, |request| database.update_item(request)),
            "TransactWriteItems" => act(body, |request| database.transact_write_items(request)),
            other => Err(DynoxideError::UnsupportedCapability(other.to_owned())),
        }
    }

    /// Shows the rows that a write touched to the checks.
    fn look_at(&self, call: &Call) {
        for pk in keys_of(call) {
            if pk.starts_with("event#") || pk.starts_with("delivery#") {
                let row = self.row(&pk);
                self.checks().see(&pk, row);
            }
        }
    }

    fn row(&self, pk: &str) -> Option<Item> {
        let key = json!({"pk": {"S": pk}, "sk": {"S": "row"}});
        let request = json!({"TableName": TABLE, "Key": key, "ConsistentRead": true});
        let request = serde_json::from_value(request).expect("a request for one row");
        self.database.get_item(request).expect("the table is there").item
    }
}

/// Reads a request, has it carried out, and writes the answer.
fn act<Q: DeserializeOwned, A: Serialize>(
    body: &str,
    carry_out: impl FnOnce(Q) -> Result<A, DynoxideError>,
) -> Result<String, DynoxideError> {
    let request =
        serde_json::from_str(body).map_err(|error| DynoxideError::SerializationException(error.to_string()))?;
    serde_json::to_string(&carry_out(request)?).map_err(|error| DynoxideError::InternalServerError(error.to_string()))
}

/// Partition keys of the rows that a write is about.
fn keys_of(call: &Call) -> Vec<String> {
    let pk = |row: &Value| row["pk"]["S"].as_str().map(str::to_owned);
    match call.operation.as_str() {
        "PutItem" => pk(&call.body["Item"]).into_iter().collect(),
        "UpdateItem" => pk(&call.body["Key"]).into_iter().collect(),
        "TransactWriteItems" => {
            let entries = call.body["TransactItems"].as_array().into_iter().flatten();
            entries
                .filter_map(|entry| pk(&entry["Put"]["Item"]).or_else(|| pk(&entry["Update"]["Key"])))
                .collect()
        }
        _ => Vec::new(),
    }
}

impl HttpClient for Cloud {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Cloud {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let cloud = self.clone();
        HttpConnectorFuture::new(async move {
            let body = request.body().bytes().unwrap_or_default();
            let (status, body) = cloud.carry_out(&call_of(&request), &String::from_utf8_lossy(body));
            // Calls are carried out in the order of going out, and others go out before this one's maker knows.
            tokio::task::yield_now().await;
            Ok(answer(status, body))
        })
    }
}
