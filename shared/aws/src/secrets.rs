//! The secret document: read from Secrets Manager or a file, kept for a while, refreshed once on a mismatch.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_secretsmanager::Client;
use aws_sdk_secretsmanager::error::SdkError;
use aws_sdk_secretsmanager::operation::get_secret_value::GetSecretValueError;
use forebay_core::api::{AccessError, GithubAccess};
use forebay_core::ports::ErrorClass;
use forebay_core::signature::{Secrets, SecretsError};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Mutex;

use crate::fault::{Fault, classify};

/// Shortest time between two reads that a mismatch or missing content causes: forged deliveries cannot hammer the store.
const REFRESH_MIN: SignedDuration = SignedDuration::from_secs(10);
/// Longest time that one read of the store may take. A delivery has a budget, and its secrets are only the start of it.
pub const READ_TIME_MAX: Duration = Duration::from_secs(3);
/// How long content that was read once is used while the store gives no answer.
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

/// Why the document could not be read. Says nothing of what it holds.
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
    /// The document says nothing usable about asking GitHub.
    #[error("read secret: {0}")]
    Access(#[from] AccessError),
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

/// What is read out of the secret document.
pub trait Content: Sized + Send + Sync {
    /// Reads it.
    ///
    /// # Errors
    /// [`ReadError`] where the document has another form.
    fn read(document: &Document) -> Result<Self, ReadError>;

    /// Whether the document says nothing of it. Such a document is asked for again soon: what is added takes effect.
    fn is_empty(&self) -> bool;
}

/// The webhook secrets of both versions.
impl Content for Secrets {
    fn read(document: &Document) -> Result<Self, ReadError> {
        let current = Self::parse(&document.current, "")?;
        // What is wrong with the previous version alone is no reason to refuse what the current one signs.
        let previous = document.previous.as_deref();
        let previous = previous.and_then(|previous| Self::parse(previous, PREVIOUS).ok());
        Ok(current.and(previous.unwrap_or_default()))
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

/// What GitHub is asked with. Of the current version alone: one right is enough, and the previous one may be revoked.
impl Content for GithubAccess {
    fn read(document: &Document) -> Result<Self, ReadError> {
        Ok(Self::parse(&document.current)?)
    }

    fn is_empty(&self) -> bool {
        *self == Self::Anonymous
    }
}

/// The webhook secrets of one environment.
pub type SecretCache<D> = DocumentCache<D, Secrets>;

/// What one environment asks GitHub with.
pub type AccessCache<D> = DocumentCache<D, GithubAccess>;

/// The content of one environment's secret document.
#[derive(Debug)]
pub struct DocumentCache<D, C> {
    documents: D,
    keep: SignedDuration,
    state: Mutex<State<C>>,
}

#[derive(Debug)]
struct State<C> {
    content: Option<Arc<C>>,
    read_at: Option<Timestamp>,
    tried_at: Option<Timestamp>,
}

impl<D: Documents, C: Content> DocumentCache<D, C> {
    /// A cache over `documents` that uses what it read for `keep`.
    #[must_use]
    pub fn new(documents: D, keep: Duration) -> Self {
        let keep = SignedDuration::try_from(keep).unwrap_or(SignedDuration::MAX);
        Self {
            documents,
            keep,
            state: Mutex::new(State {
                content: None,
                read_at: None,
                tried_at: None,
            }),
        }
    }

    /// The content that is valid now. May be empty.
    ///
    /// # Errors
    /// [`ReadError`] where it could not be read and none is kept. A failure is not kept: the next call reads again.
    pub async fn current(&self, now: Timestamp) -> Result<Arc<C>, ReadError> {
        let mut state = self.state.lock().await;
        if let Some(content) = &state.content {
            let keep = if content.is_empty() {
                REFRESH_MIN.min(self.keep)
            } else {
                self.keep
            };
            let unanswered = state.tried_at > state.read_at
                && within(state.tried_at, REFRESH_MIN, now)
                && within(state.read_at, STALE_MAX, now);
            if within(state.read_at, keep, now) || unanswered {
                return Ok(Arc::clone(content));
            }
        }
        match self.read(&mut state, now).await {
            Ok(content) => Ok(content),
            Err(error) => match &state.content {
                Some(content) if within(state.read_at, STALE_MAX, now) => {
                    tracing::warn!("keep using the secrets read before: {error}");
                    Ok(Arc::clone(content))
                }
                Some(_) | None => Err(error),
            },
        }
    }

    /// The content after one more read, unless the last one was just now. For a signature or a token that does not fit.
    pub async fn refreshed(&self, now: Timestamp) -> Option<Arc<C>> {
        let mut state = self.state.lock().await;
        if within(state.tried_at, REFRESH_MIN, now) {
            return None;
        }
        match self.read(&mut state, now).await {
            Ok(content) => Some(content),
            Err(error) => {
                tracing::warn!("keep using the secrets read before: {error}");
                None
            }
        }
    }

    async fn read(&self, state: &mut State<C>, now: Timestamp) -> Result<Arc<C>, ReadError> {
        state.tried_at = Some(now);
        let read = tokio::time::timeout(READ_TIME_MAX, self.documents.read()).await;
        let document = read.unwrap_or(Err(ReadError::TimedOut))?;
        let content = Arc::new(C::read(&document)?);
        state.content = Some(Arc::clone(&content));
        state.read_at = Some(now);
        Ok(content)
    }
}

/// Whether `at` is at most `span` before `now`.
fn within(at: Option<Timestamp>, span: SignedDuration, now: Timestamp) -> bool {
    at.is_some_and(|at| now.duration_since(at) < span)
}

#[cfg(test)]
mod tests;
