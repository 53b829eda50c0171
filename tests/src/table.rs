//! The ledger's table in an embedded DynamoDB, one database for each test.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_sdk_dynamodb::config::retry::RetryPartition;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Credentials, Region};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType,
    ScalarAttributeType,
};
use aws_sdk_dynamodb::{Client, Config};
use forebay_aws::dynamodb::{DUE_INDEX, DynamoLedger, RECENT_INDEX, WAITING_INDEX};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// The table's name in tests.
pub const TABLE: &str = "ledger";

/// A fresh table. Its server ends with it.
pub struct Table {
    endpoint: String,
    database: dynoxide::Database,
    /// Dropping it ends the server.
    _shutdown: oneshot::Sender<()>,
}

impl fmt::Debug for Table {
    /// Where it listens. The database has nothing to show.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({})", self.endpoint)
    }
}

impl Table {
    /// A fresh, empty table behind a server of its own on loopback.
    ///
    /// # Panics
    /// Where the machine gives no port or no memory: nothing can be tested then.
    pub async fn start() -> Self {
        let database = dynoxide::Database::memory().expect("an empty database in memory");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port on loopback");
        let endpoint = format!(
            "http://{}",
            listener.local_addr().expect("a bound listener has an address")
        );
        let (shutdown, stopped) = oneshot::channel::<()>();
        tokio::spawn(dynoxide::server::serve_with_shutdown(
            listener,
            database.clone(),
            async {
                // An error means that the sender is gone, which is the signal.
                stopped.await.unwrap_or_default();
            },
        ));
        let table = Self {
            endpoint,
            database,
            _shutdown: shutdown,
        };
        create(&table.client()).await;
        table
    }

    /// Where it listens.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Configuration of a client for it, with the time-outs and retries of production.
    #[must_use]
    pub fn config(&self) -> Builder {
        config(&self.endpoint)
    }

    /// A client.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::from_conf(self.config().build())
    }

    /// Puts `count` copies of the row `pk` beside it, each under a key of its own, and into the indexes that the row is in.
    ///
    /// Straight into the database: a hundred thousand rows by as many calls would take minutes.
    ///
    /// # Panics
    /// Where there is no such row.
    pub fn copy_row(&self, pk: &str, count: usize) {
        let key = [("pk", pk), ("sk", "row")];
        let request = dynoxide::actions::get_item::GetItemRequest {
            table_name: TABLE.to_owned(),
            key: key
                .map(|(name, value)| (name.to_owned(), dynoxide::AttributeValue::S(value.to_owned())))
                .into(),
            ..Default::default()
        };
        let row = self.database.get_item(request).expect("a row is read by its key").item;
        let row = row.expect("the row that is copied is there");
        let copies = (0..count).map(|number| {
            let mut copy = row.clone();
            copy.insert("pk".to_owned(), dynoxide::AttributeValue::S(format!("{pk}-{number}")));
            copy
        });
        let imported = self
            .database
            .import_items(TABLE, copies.collect(), dynoxide::ImportOptions::default());
        imported.expect("copies of a row are rows");
    }

    /// The ledger on it.
    #[must_use]
    pub fn ledger(&self) -> DynamoLedger {
        DynamoLedger::new(self.client(), TABLE)
    }
}

/// Configuration of a client for `endpoint`, with the time-outs and retries of production.
#[must_use]
pub fn config(endpoint: &str) -> Builder {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    // The SDK counts the retries of a whole process together and ends them where there are too many. Tests that fail calls on
    // purpose must not take them away from each other.
    let own = RetryPartition::new(format!("test-{}", MADE.fetch_add(1, Ordering::Relaxed)));
    Config::builder()
        .retry_partition(own)
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .timeout_config(forebay_aws::start::timeouts())
        .retry_config(forebay_aws::start::retries())
}

/// The settings of a client for the queues at `endpoint`, as for the table.
#[must_use]
pub fn sqs_config(endpoint: &str) -> aws_sdk_sqs::config::Builder {
    aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .timeout_config(forebay_aws::start::timeouts())
        .retry_config(forebay_aws::start::retries())
}

/// Creates the table as the template defines it; a test compares the two.
pub(crate) async fn create(client: &Client) {
    let attribute = |name: &str, kind| {
        AttributeDefinition::builder()
            .attribute_name(name)
            .attribute_type(kind)
            .build()
            .expect("name and type are given")
    };
    let key = |name: &str, kind| {
        KeySchemaElement::builder()
            .attribute_name(name)
            .key_type(kind)
            .build()
            .expect("name and type are given")
    };
    let index = |name: &str, hash: &str, range: &str| {
        GlobalSecondaryIndex::builder()
            .index_name(name)
            .key_schema(key(hash, KeyType::Hash))
            .key_schema(key(range, KeyType::Range))
            .projection(Projection::builder().projection_type(ProjectionType::KeysOnly).build())
            .build()
            .expect("name and keys are given")
    };
    let request = client
        .create_table()
        .table_name(TABLE)
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(key("pk", KeyType::Hash))
        .key_schema(key("sk", KeyType::Range))
        .attribute_definitions(attribute("pk", ScalarAttributeType::S))
        .attribute_definitions(attribute("sk", ScalarAttributeType::S))
        .attribute_definitions(attribute("due_shard", ScalarAttributeType::S))
        .attribute_definitions(attribute("due_at", ScalarAttributeType::N))
        .attribute_definitions(attribute("waiting_for", ScalarAttributeType::S))
        .attribute_definitions(attribute("recent_shard", ScalarAttributeType::S))
        .attribute_definitions(attribute("recent_at", ScalarAttributeType::N))
        .global_secondary_indexes(index(DUE_INDEX, "due_shard", "due_at"))
        .global_secondary_indexes(index(WAITING_INDEX, "waiting_for", "due_at"))
        .global_secondary_indexes(index(RECENT_INDEX, "recent_shard", "recent_at"));
    request.send().await.expect("an empty database takes the table");
}
