//! Where the ledger and the inboxes of a command are, and the configuration by which events are driven there.

use std::path::PathBuf;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::Credentials;
use clap::Args;
use forebay_aws::clock::System;
use forebay_aws::config::Config;
use forebay_aws::dynamodb::{DynamoLedger, DynamoTargets};
use forebay_aws::sqs::SqsInboxes;
use forebay_aws::start;
use forebay_core::drive::Driver;
use forebay_core::ports::{ErrorKind, LedgerError};
use forebay_core::shed::Shedding;

use crate::env_file::{self, Variables};
use crate::environment;
use crate::error::{Attempt as _, Error};
use crate::stack::{Stack, StackFile};
use crate::workspace::Workspace;

/// Inboxes behind a shedder that tells nobody: standard output is for results.
type Sheltered = Shedding<SqsInboxes, DynamoTargets, System>;

/// Names the ledger. Where it is there, the process's environment is a function's own.
const TABLE_NAME: &str = "TABLE_NAME";
const CONFIG_REMEDY: &str = "give the whole environment of the webhook function, as deployed";

/// Which stack is meant.
#[derive(Args, Clone, Debug)]
pub(crate) struct StackRef {
    /// File with the environment of the webhook function, as `forebay env` prints it or as one JSON object
    /// [default: the variables of this process if `TABLE_NAME` is one, else those of the running local stack]
    ///
    /// For a stack in an account, save what
    /// `aws lambda get-function-configuration --function-name NAME --query Environment.Variables` prints.
    /// Region and credentials come from the AWS variables in the file, else from where the AWS CLI finds them.
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
}

/// A stack's ledger and inboxes, and its configuration.
#[derive(Debug)]
pub(crate) struct Connected {
    /// What the functions are told.
    pub(crate) config: Config,
    /// The ledger.
    pub(crate) ledger: DynamoLedger,
    /// The inboxes, to send to as the functions would: a shed target is left alone.
    pub(crate) inboxes: Sheltered,
    /// How the targets behind them stand.
    pub(crate) targets: DynamoTargets,
    /// SQS, to look into the inboxes.
    pub(crate) sqs: aws_sdk_sqs::Client,
}

/// The stack that is meant, as it is found.
#[derive(Debug)]
enum Meant {
    /// One whose variables are given.
    Described(Variables),
    /// The local one.
    Local(Stack),
}

impl Meant {
    fn find(stack: &StackRef) -> Result<Self, Error> {
        if let Some(path) = &stack.env_file {
            return env_file::read(path).map(Self::Described);
        }
        let own = own_variables();
        if own.contains_key(TABLE_NAME) {
            return Ok(Self::Described(own));
        }
        let local = Workspace::find().and_then(|workspace| StackFile::read(&workspace));
        let remedy =
            "start the local stack with `cargo forebay local`, or name another stack's environment with --env-file";
        let local = local.attempting(|| "find a stack".to_owned(), remedy)?;
        Ok(Self::Local(local))
    }
}

/// A function of the stack that is meant, to be called.
#[derive(Debug)]
pub(crate) struct Callable {
    /// Its name.
    pub(crate) function: String,
    /// Region, credentials and address.
    pub(crate) sdk: SdkConfig,
}

impl Callable {
    /// The function called `name`, in the account that the environment means; without a name, the one that the local stack has
    /// under `id`. An account's stack names it in `output`.
    pub(crate) async fn find(stack: &StackRef, name: Option<&str>, id: &str, output: &str) -> Result<Self, Error> {
        let (variables, function) = match name {
            Some(name) => {
                let given = stack.env_file.as_deref().map(env_file::read).transpose()?;
                (given.unwrap_or_else(own_variables), name.to_owned())
            }
            None => match Meant::find(stack)? {
                Meant::Local(local) => (environment::platform(&local).into(), local.function(id)?.name.clone()),
                Meant::Described(_) => {
                    return Err(Error::new(
                        format!("find {id} of the stack: its webhook's environment does not name it"),
                        format!("name it with --function: it is the stack's output {output}"),
                    ));
                }
            },
        };
        let sdk = sdk_config(&variables).await;
        Ok(Self { function, sdk })
    }
}

impl Connected {
    /// The stack that is meant.
    pub(crate) async fn find(stack: &StackRef) -> Result<Self, Error> {
        match Meant::find(stack)? {
            Meant::Described(variables) => Self::with(variables).await,
            Meant::Local(local) => Self::to(&local).await,
        }
    }

    /// A local stack.
    pub(crate) async fn to(stack: &Stack) -> Result<Self, Error> {
        let mut variables = stack.webhook()?.environment.clone();
        variables.extend(environment::platform(stack));
        Self::with(variables).await
    }

    /// The stack that these variables describe.
    async fn with(variables: Variables) -> Result<Self, Error> {
        let config = Config::read(variables.clone()).attempting(|| "understand the stack".to_owned(), CONFIG_REMEDY)?;
        let sdk = sdk_config(&variables).await;
        let sqs = aws_sdk_sqs::Client::new(&sdk);
        let dynamodb = aws_sdk_dynamodb::Client::new(&sdk);
        Ok(Self {
            inboxes: start::shedding(
                sqs.clone(),
                dynamodb.clone(),
                &config.table,
                &config.inboxes,
                config.shedder,
            ),
            targets: DynamoTargets::new(dynamodb.clone(), &config.table).patient(),
            ledger: DynamoLedger::new(dynamodb, &config.table),
            sqs,
            config,
        })
    }

    /// What drives events there, as the functions would.
    pub(crate) fn driver(&self) -> Driver<'_, DynamoLedger, Sheltered, System> {
        Driver {
            ledger: &self.ledger,
            inboxes: &self.inboxes,
            time: &System,
            routing: &self.config.routing,
            limits: &self.config.limits,
        }
    }

    /// URL of the inbox called `name`.
    pub(crate) fn inbox_url(&self, name: &str) -> Result<&str, Error> {
        self.config.inboxes.get(name).map(String::as_str).ok_or_else(|| {
            let names: Vec<&str> = self.config.inboxes.keys().map(String::as_str).collect();
            Error::new(
                format!("find an inbox called {name}: there are {}", names.join(", ")),
                "name one of these, or add an agent to the stack's parameter Agents",
            )
        })
    }
}

/// The process's own environment, as far as it is text.
fn own_variables() -> Variables {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// The SDK's configuration. What the variables do not say is found in the SDK's usual places.
async fn sdk_config(variables: &Variables) -> SdkConfig {
    let given = |name: &str| variables.get(name).filter(|value| !value.is_empty()).cloned();
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .timeout_config(start::timeouts())
        .retry_config(start::retries());
    if let Some(endpoint) = given("AWS_ENDPOINT_URL") {
        loader = loader.endpoint_url(endpoint);
    }
    if let Some(region) = given("AWS_REGION") {
        loader = loader.region(Region::new(region));
    }
    if let (Some(id), Some(secret)) = (given("AWS_ACCESS_KEY_ID"), given("AWS_SECRET_ACCESS_KEY")) {
        let token = given("AWS_SESSION_TOKEN");
        loader = loader.credentials_provider(Credentials::new(id, secret, token, None, "environment"));
    }
    loader.load().await
}

/// What the ledger answered, or that it gave no answer and what to do.
pub(crate) fn answered<T>(answer: Result<T, LedgerError>) -> Result<T, Error> {
    answer.map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::Retry => "check that the stack runs and can be reached, and try again",
            ErrorKind::Reject => "look at that row by its key: it is not what this version writes",
            ErrorKind::Fix => "check the table's name, the region, and what the credentials allow",
            ErrorKind::Bug => "report this as a bug",
        };
        Error::because("use the ledger", remedy, error)
    })
}
