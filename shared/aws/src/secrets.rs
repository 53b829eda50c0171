//! Webhook secrets: read from Secrets Manager or a file, kept for a while, refreshed once on a mismatch.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_secretsmanager::Client;
use aws_sdk_secretsmanager::error::SdkError;
use aws_sdk_secretsmanager::operation::get_secret_value::GetSecretValueError;
use forebay_core::ports::ErrorClass;
use forebay_core::signature::{Secrets, SecretsError};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Mutex;

use crate::fault::{Fault, classify};

/// Shortest time between two reads that a mismatch or a missing secret causes: forged deliveries cannot hammer the store.
const REFRESH_MIN: SignedDuration = SignedDuration::from_secs(10);
/// Longest time that one read of the store may take. A delivery has a budget, and its secrets are only the start of it.
pub const READ_TIME_MAX: Duration = Duration::from_secs(3);
/// How long secrets that were read once are used while the store gives no answer.
const STALE_MAX: SignedDuration = SignedDuration::from_secs(3_600);
/// Key ids of the version before the current one begin with this.
const PREVIOUS: &str = "previous-";

/// The secret document as its store has it: the current version, and the one before where there is one.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Document {
    /// The current version.
    pub current: String,
    /// The version before, valid during a rotation.
    pub previous: Option<String>,
}

/// Why the secrets could not be read. Says nothing of what they are.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The store gave no answer.
    #[error("read secret {id}: {}", class.as_str())]
    Store {
        /// Which secret.
        id: String,
        /// What went wrong.
        class: ErrorClass,
        /// What the store said.
        #[source]
        fault: Fault,
    },
    /// The store did not answer in time.
    #[error("read secret: timed_out")]
    TimedOut,
    /// The file could not be read.
    #[error("read secrets from {}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Others than its owner can read the file.
    #[error("read secrets from {}: others can read it; run chmod 600 on it", path.display())]
    Exposed {
        /// Which file.
        path: PathBuf,
    },
    /// The document has another form.
    #[error("read secret: {0}")]
    Form(#[from] SecretsError),
}

/// Something that holds the secret document.
pub trait Documents: Send + Sync {
    /// Reads it.
    fn read(&self) -> impl Future<Output = Result<Document, ReadError>> + Send;
}

/// The store that the configuration names.
#[derive(Clone, Debug)]
pub enum Store {
    /// Secrets Manager.
    SecretsManager {
        /// The client.
        client: Client,
        /// Which secret.
        id: String,
    },
    /// A file.
    File(PathBuf),
}

impl Documents for Store {
    async fn read(&self) -> Result<Document, ReadError> {
        match self {
            Self::SecretsManager { client, id } => read_versions(client, id).await,
            Self::File(path) => read_file(path.clone()),
        }
    }
}

/// Both versions, at once: a webhook signed with the previous one is as good during a rotation.
async fn read_versions(client: &Client, id: &str) -> Result<Document, ReadError> {
    let version = |stage: &str| client.get_secret_value().secret_id(id).version_stage(stage).send();
    let (current, previous) = tokio::join!(version("AWSCURRENT"), version("AWSPREVIOUS"));
    let current = current.map_err(|error| unread(id, &error))?;
    let previous = match previous {
        Ok(output) => output.secret_string,
        // There is no previous version before the first rotation, and without one the current is enough.
        Err(error) if classify(&error).0 == ErrorClass::NotFound => None,
        // Any other trouble proves nothing of the kind: a refusal is final at GitHub, so the old secrets stay in use.
        Err(error) => return Err(unread(id, &error)),
    };
    Ok(Document {
        current: current.secret_string.unwrap_or_default(),
        previous,
    })
}

fn unread(id: &str, error: &SdkError<GetSecretValueError>) -> ReadError {
    let (class, fault) = classify(error);
    ReadError::Store {
        id: id.to_owned(),
        class,
        fault,
    }
}

fn read_file(path: PathBuf) -> Result<Document, ReadError> {
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = std::fs::metadata(&path);
    let mode = match metadata {
        Ok(metadata) => metadata.permissions().mode(),
        Err(source) => return Err(ReadError::File { path, source }),
    };
    if mode & 0o077 != 0 {
        return Err(ReadError::Exposed { path });
    }
    match std::fs::read_to_string(&path) {
        Ok(current) => Ok(Document {
            current,
            previous: None,
        }),
        Err(source) => Err(ReadError::File { path, source }),
    }
}

/// The secrets of one environment.
#[derive(Debug)]
pub struct SecretCache<D> {
    documents: D,
    keep: SignedDuration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    secrets: Option<Arc<Secrets>>,
    read_at: Option<Timestamp>,
    tried_at: Option<Timestamp>,
}

impl<D: Documents> SecretCache<D> {
    /// A cache over `documents` that uses what it read for `keep`.
    #[must_use]
    pub fn new(documents: D, keep: Duration) -> Self {
        let keep = SignedDuration::try_from(keep).unwrap_or(SignedDuration::MAX);
        Self {
            documents,
            keep,
            state: Mutex::new(State::default()),
        }
    }

    /// The secrets that are valid now. May be empty, which verifies nothing.
    ///
    /// # Errors
    /// [`ReadError`] where they could not be read and none are kept. A failure is not kept: the next call reads again.
    pub async fn current(&self, now: Timestamp) -> Result<Arc<Secrets>, ReadError> {
        let mut state = self.state.lock().await;
        if let Some(secrets) = &state.secrets {
            let keep = if secrets.is_empty() {
                REFRESH_MIN.min(self.keep)
            } else {
                self.keep
            };
            let unanswered = state.tried_at > state.read_at
                && within(state.tried_at, REFRESH_MIN, now)
                && within(state.read_at, STALE_MAX, now);
            if within(state.read_at, keep, now) || unanswered {
                return Ok(Arc::clone(secrets));
            }
        }
        match self.read(&mut state, now).await {
            Ok(secrets) => Ok(secrets),
            Err(error) => match &state.secrets {
                Some(secrets) if within(state.read_at, STALE_MAX, now) => {
                    tracing::warn!("keep using the secrets read before: {error}");
                    Ok(Arc::clone(secrets))
                }
                Some(_) | None => Err(error),
            },
        }
    }

    /// The secrets after one more read, unless the last one was just now. For a signature that fits none.
    pub async fn refreshed(&self, now: Timestamp) -> Option<Arc<Secrets>> {
        let mut state = self.state.lock().await;
        if within(state.tried_at, REFRESH_MIN, now) {
            return None;
        }
        match self.read(&mut state, now).await {
            Ok(secrets) => Some(secrets),
            Err(error) => {
                tracing::warn!("keep using the secrets read before: {error}");
                None
            }
        }
    }

    async fn read(&self, state: &mut State, now: Timestamp) -> Result<Arc<Secrets>, ReadError> {
        state.tried_at = Some(now);
        let read = tokio::time::timeout(READ_TIME_MAX, self.documents.read()).await;
        let document = read.unwrap_or(Err(ReadError::TimedOut))?;
        let current = Secrets::parse(&document.current, "")?;
        // What is wrong with the previous version alone is no reason to refuse what the current one signs.
        let previous = document
            .previous
            .and_then(|previous| Secrets::parse(&previous, PREVIOUS).ok());
        let secrets = Arc::new(current.and(previous.unwrap_or_default()));
        state.secrets = Some(Arc::clone(&secrets));
        state.read_at = Some(now);
        Ok(secrets)
    }
}

/// Whether `at` is at most `span` before `now`.
fn within(at: Option<Timestamp>, span: SignedDuration, now: Timestamp) -> bool {
    at.is_some_and(|at| now.duration_since(at) < span)
}

#[cfg(test)]
mod tests;
