//! The engines that the contract holds for: memory, and DynamoDB's real conditions in process.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use forebay_aws::dynamodb::DynamoLedger;
use forebay_core::ledger::memory::MemoryLedger;
use forebay_core::ports::Ledger;
use jiff::Timestamp;

use crate::table::{TABLE, Table};

/// Tests of every promise on each of two expressions, which stand for what keeps it in memory and what on DynamoDB's semantics.
/// They are within a module of the caller's, whose names begin with `super`.
#[macro_export]
macro_rules! promised_on_both {
    ($in_memory:expr, $on_dynamodb:expr; $($promise:ident),+ $(,)?) => {
        mod in_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$promise($in_memory).await;
            })+
        }
        mod on_dynamodb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$promise($on_dynamodb).await;
            })+
        }
    };
}

/// A ledger with its store, fresh for each test.
pub trait Engine: Sized {
    /// The ledger.
    type Ledger: Ledger + 'static;

    /// A fresh engine.
    fn start() -> impl Future<Output = Self> + Send;

    /// Its ledger.
    fn ledger(&self) -> Arc<Self::Ledger>;

    /// Removes every row whose time has come, as DynamoDB does some day.
    fn expire(&self, now: Timestamp) -> impl Future<Output = ()> + Send;

    /// How many deliveries and events there are.
    fn counts(&self) -> impl Future<Output = (usize, usize)> + Send;
}

/// The transition function and maps.
#[derive(Debug)]
pub struct Memory(Arc<MemoryLedger>);

impl Engine for Memory {
    type Ledger = MemoryLedger;

    async fn start() -> Self {
        Self(Arc::new(MemoryLedger::new()))
    }

    fn ledger(&self) -> Arc<MemoryLedger> {
        Arc::clone(&self.0)
    }

    async fn expire(&self, now: Timestamp) {
        self.0.expire(now);
    }

    async fn counts(&self) -> (usize, usize) {
        self.0.counts()
    }
}

/// The adapter of production on an embedded DynamoDB.
#[derive(Debug)]
pub struct Embedded {
    /// The table, for tests that look at rows.
    pub table: Table,
    ledger: Arc<DynamoLedger>,
    client: Client,
}

/// A row as the SDK has it.
pub type Item = HashMap<String, AttributeValue>;

impl Embedded {
    /// A client for the table itself.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Every row of the table.
    ///
    /// # Panics
    /// Where the embedded database fails.
    pub async fn rows(&self) -> Vec<Item> {
        let mut rows = Vec::new();
        let mut pages = self.client.scan().table_name(TABLE).into_paginator().send();
        while let Some(page) = pages.next().await {
            rows.extend(page.expect("a page of a scan").items.unwrap_or_default());
        }
        rows
    }

    /// The row with this partition key, if there is one.
    pub async fn row(&self, pk: &str) -> Option<Item> {
        self.rows().await.into_iter().find(|row| text(row, "pk") == Some(pk))
    }

    /// Puts a row as it is.
    ///
    /// # Panics
    /// Where the embedded database refuses it.
    pub async fn put(&self, row: Item) {
        let put = self.client.put_item().table_name(TABLE).set_item(Some(row));
        put.send().await.expect("a row that DynamoDB takes");
    }
}

/// The text of an attribute.
#[must_use]
pub fn text<'a>(row: &'a Item, name: &str) -> Option<&'a str> {
    row.get(name)?.as_s().ok().map(String::as_str)
}

/// The number in an attribute.
#[must_use]
pub fn number(row: &Item, name: &str) -> Option<i64> {
    row.get(name)?.as_n().ok()?.parse().ok()
}

impl Engine for Embedded {
    type Ledger = DynamoLedger;

    async fn start() -> Self {
        let table = Table::start().await;
        let client = table.client();
        let ledger = Arc::new(DynamoLedger::new(client.clone(), TABLE));
        Self { table, ledger, client }
    }

    fn ledger(&self) -> Arc<DynamoLedger> {
        Arc::clone(&self.ledger)
    }

    async fn expire(&self, now: Timestamp) {
        for mut row in self.rows().await {
            if number(&row, "expires_at").is_some_and(|at| at <= now.as_second()) {
                row.retain(|name, _| name == "pk" || name == "sk");
                let delete = self.client.delete_item().table_name(TABLE).set_key(Some(row));
                delete.send().await.expect("a row that was there");
            }
        }
    }

    async fn counts(&self) -> (usize, usize) {
        let rows = self.rows().await;
        let of = |kind: &str| {
            let ours = rows
                .iter()
                .filter(|row| text(row, "pk").is_some_and(|pk| pk.starts_with(kind)));
            ours.count()
        };
        (of("delivery#"), of("event#"))
    }
}
