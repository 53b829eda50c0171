//! Signatures: the trust boundary of every write to the ledger.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Deserialize;
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq as _};

use crate::event::Repository;
use crate::text::cut;

/// What a signature header holds before its digits. The algorithm is ours to choose, never the header's.
const SCHEME: &str = "sha256=";
/// Most secrets that are valid at once: a rotation needs two, teams a few more.
pub const SECRETS_MAX: usize = 32;
/// Longest key id that is kept, in bytes.
const KEY_ID_BYTES_MAX: usize = 64;

/// A webhook secret. Its material is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    key_id: String,
    material: Vec<u8>,
    /// Repositories it may speak for; empty: all.
    repositories: Vec<Pattern>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({}, …)", self.key_id)
    }
}

impl Secret {
    /// Its name in the ledger: never material.
    #[must_use]
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// The signature that GitHub would send with `body`.
    #[must_use]
    pub fn sign(&self, body: &[u8]) -> String {
        format!("{SCHEME}{}", hex::encode(self.mac(body)))
    }

    fn mac(&self, body: &[u8]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.material).expect("HMAC takes keys of any length");
        mac.update(body);
        mac.finalize().into_bytes().into()
    }

    fn may_speak_for(&self, repository: Option<&Repository>) -> bool {
        match repository {
            Some(repository) if !self.repositories.is_empty() => self
                .repositories
                .iter()
                .any(|pattern| pattern.matches(repository.as_str())),
            Some(_) | None => true,
        }
    }
}

/// A name with `*` for any run of characters, compared without case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// The pattern that `text` spells.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_lowercase())
    }

    /// Whether `name` fits.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        let mut parts = self.0.split('*');
        let Some(first) = parts.next() else {
            return false;
        };
        let Some(mut rest) = name.strip_prefix(first) else {
            return false;
        };
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            return rest.is_empty();
        }
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return rest.ends_with(part);
            }
            let Some((_, after)) = rest.split_once(part) else {
                return false;
            };
            rest = after;
        }
        true
    }
}

/// Why a secret document is unusable. Says nothing of what it holds.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretsError {
    /// It is not the JSON document that Forebay reads.
    #[error("the secret is not a JSON document of the form {{\"github\": {{\"webhook_secret\": …}}}}")]
    NotADocument,
    /// It lists more secrets than are compared.
    #[error("the secret lists more than {SECRETS_MAX} webhook secrets")]
    TooMany,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    github: Option<Github>,
}

#[derive(Deserialize)]
struct Github {
    #[serde(default)]
    webhook_secret: Option<OneOrMany>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<Entry>),
}

/// A misspelt field is refused: read past, it would leave a secret without its limit.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Entry {
    Plain(String),
    Limited {
        secret: String,
        #[serde(default)]
        id: Option<String>,
        #[serde(default)]
        repositories: Vec<String>,
    },
}

/// The secrets that are valid now. May be empty: then nothing verifies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets(Vec<Secret>);

impl Secrets {
    /// Reads the secret document. Blank entries are left out: a blank secret verifies nothing.
    ///
    /// `stage` tells the key ids of two versions of the document apart; empty for the current one.
    ///
    /// # Errors
    /// [`SecretsError`] where the document has another form: put a right one.
    pub fn parse(document: &str, stage: &str) -> Result<Self, SecretsError> {
        let document: Document = serde_json::from_str(document).map_err(|_parse| SecretsError::NotADocument)?;
        let entries = match document.github.and_then(|github| github.webhook_secret) {
            None => Vec::new(),
            Some(OneOrMany::One(secret)) => vec![Entry::Plain(secret)],
            Some(OneOrMany::Many(entries)) => entries,
        };
        if entries.len() > SECRETS_MAX {
            return Err(SecretsError::TooMany);
        }
        let secrets = entries.into_iter().zip(1_u32..).filter_map(|(entry, position)| {
            let (material, id, repositories) = match entry {
                Entry::Plain(secret) => (secret, None, Vec::new()),
                Entry::Limited {
                    secret,
                    id,
                    repositories,
                } => (secret, id, repositories),
            };
            let id = id.unwrap_or_else(|| position.to_string());
            let key_id = cut(&format!("{stage}{id}"), KEY_ID_BYTES_MAX).to_owned();
            let blank = material.trim().is_empty();
            let repositories = repositories.iter().map(|text| Pattern::new(text)).collect();
            (!blank).then(|| Secret {
                key_id,
                material: material.into_bytes(),
                repositories,
            })
        });
        Ok(Self(secrets.collect()))
    }

    /// One secret, not limited to any repository; none where it is blank.
    #[must_use]
    pub fn single(material: &str) -> Self {
        let secret = Secret {
            key_id: "1".to_owned(),
            material: material.as_bytes().to_vec(),
            repositories: Vec::new(),
        };
        Self(if material.trim().is_empty() {
            Vec::new()
        } else {
            vec![secret]
        })
    }

    /// These secrets and `others`, without those whose material is here already: what the first say of a secret's limits
    /// counts, so that an older version of the document cannot lift a limit that the current one sets.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        for other in others.0 {
            let known = |secret: &Secret| secret.material == other.material;
            if self.0.len() < SECRETS_MAX && !self.0.iter().any(known) {
                self.0.push(other);
            }
        }
        self
    }

    /// Whether nothing can verify.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The secret that signs what we send ourselves: the first.
    #[must_use]
    pub fn signer(&self) -> Option<&Secret> {
        self.0.first()
    }

    /// Proves that `body` was signed with one of these secrets, or gives nothing.
    ///
    /// `signatures` are the values of the `X-Hub-Signature-256` header: exactly one must be there, `sha256=` in lower case
    /// and 64 hex digits of either case. All secrets are compared in full, whichever fits.
    #[must_use]
    pub fn verify<'a>(&self, signatures: &[&str], body: &'a [u8]) -> Option<VerifiedBody<'a>> {
        let [signature] = signatures else { return None };
        let mut given = [0; 32];
        hex::decode_to_slice(signature.strip_prefix(SCHEME)?, &mut given).ok()?;
        let verdicts: Vec<Choice> = self.0.iter().map(|secret| secret.mac(body).ct_eq(&given)).collect();
        let any = verdicts.iter().fold(Choice::from(0), |any, verdict| any | *verdict);
        if !bool::from(any) {
            return None;
        }
        let signers = self.0.iter().zip(verdicts).filter(|(_, verdict)| bool::from(*verdict));
        Some(VerifiedBody {
            body,
            signers: signers.map(|(secret, _)| secret.clone()).collect(),
        })
    }
}

/// Bytes whose signature was right. Only [`Secrets::verify`] makes one.
pub struct VerifiedBody<'a> {
    body: &'a [u8],
    signers: Vec<Secret>,
}

impl fmt::Debug for VerifiedBody<'_> {
    /// Without the bytes themselves, which are payload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifiedBody({} bytes, {:?})", self.body.len(), self.signers)
    }
}

impl<'a> VerifiedBody<'a> {
    /// The exact bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.body
    }

    /// Id of the key that may speak for `repository`, if one of those that signed may.
    #[must_use]
    pub fn key_for(&self, repository: Option<&Repository>) -> Option<&str> {
        self.signers
            .iter()
            .find(|secret| secret.may_speak_for(repository))
            .map(Secret::key_id)
    }
}

#[cfg(test)]
mod tests;
