//! A GitHub App's own proof, and the tokens that it gets for where it is installed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use forebay_core::api::{Answer, ApiError, ApiToken, App, Limits, Method, Right, Standing};
use forebay_core::ports::ErrorClass;
use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use super::exchange::{Ask, Exchange, failed, not_yet};

/// A proof is dated back by so much, since GitHub refuses one from its future, and lasts so long from now. GitHub's bound is
/// ten minutes from its own clock:
/// <https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app/generating-a-json-web-token-jwt-for-a-github-app>
const PROOF_BACKDATED: SignedDuration = SignedDuration::from_secs(60);
const PROOF_SPAN: SignedDuration = SignedDuration::from_secs(9 * 60);
/// A token is used until so long before its end: no request is under way with it then, and clocks differ.
const TOKEN_MARGIN: SignedDuration = SignedDuration::from_secs(5 * 60);
/// Installations whose tokens are kept at once. One more, and all are got anew.
const INSTALLATIONS_MAX: usize = 1_000;

/// What is wrong with an App, or with what GitHub said to it. Says nothing of key or token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum AppError {
    #[error("the App's private key is no RSA key in PEM of 2048 to 8192 bits")]
    Key,
    #[error("the App's proof could not be signed")]
    Signature,
    #[error("the account has a name that no account has")]
    Owner,
    #[error("GitHub's answer to the App has another form")]
    Form,
    #[error("GitHub answered the App with {0}")]
    Status(u16),
}

/// The proof that we are `app`: a JSON Web Token, signed with RS256. `on` is what it is for.
pub(super) fn prove(app: &App, now: Timestamp, on: &str) -> Result<ApiToken, ApiError> {
    let denied = |error: AppError| failed(on, ErrorClass::Denied, error);
    let claims = serde_json::json!({
        "iat": now.as_second().saturating_sub(PROOF_BACKDATED.as_secs()),
        "exp": now.as_second().saturating_add(PROOF_SPAN.as_secs()),
        "iss": app.id(),
    });
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","typ":"JWT"}"#);
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let key = read_key(app.private_key()).ok_or_else(|| denied(AppError::Key))?;
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(
        &RSA_PKCS1_SHA256,
        &SystemRandom::new(),
        signed.as_bytes(),
        &mut signature,
    )
    .map_err(|_unspecified| denied(AppError::Signature))?;
    let proof = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
    ApiToken::parse(&proof).map_err(|error| failed(on, ErrorClass::Denied, error))
}

/// PKCS#1 is what GitHub gives out, PKCS#8 what tools make of it.
fn read_key(pem: &str) -> Option<RsaKeyPair> {
    match PrivateKeyDer::from_pem_slice(pem.as_bytes()).ok()? {
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()).ok(),
        PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).ok(),
        PrivateKeyDer::Sec1(_) | _ => None,
    }
}

/// What GitHub said to the App: what was asked for, or an answer that stands for that of the request itself.
pub(super) enum Granted<T> {
    Yes(T),
    No(Answer),
}

/// The tokens of installations, each got once for all who ask meanwhile.
#[derive(Default)]
pub(super) struct Installations {
    slots: StdMutex<BTreeMap<Installation, Slot>>,
    /// Until when GitHub wants to hear nothing from an App itself, by its id. All its installations ask under that one limit.
    resting: StdMutex<BTreeMap<String, Timestamp>>,
}

/// The App and the account.
type Installation = (String, String);
type Slot = Arc<Mutex<Option<Kept>>>;

#[derive(Clone)]
struct Kept {
    token: ApiToken,
    expires_at: Timestamp,
}

impl fmt::Debug for Installations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Installations(…)")
    }
}

impl Installations {
    /// A token of `app` for what belongs to `owner`, other than the one that was `refused`.
    pub(super) async fn token(
        &self,
        exchange: &Exchange,
        app: &App,
        owner: &str,
        now: Timestamp,
        refused: Option<&ApiToken>,
    ) -> Result<Granted<ApiToken>, ApiError> {
        let slot = self.slot(app, owner);
        // Held while a token is got: whoever asks meanwhile waits for that one.
        let mut slot = slot.lock().await;
        let good = |kept: &&Kept| kept.expires_at.duration_since(now) > TOKEN_MARGIN && refused != Some(&kept.token);
        if let Some(kept) = slot.as_ref().filter(good) {
            return Ok(Granted::Yes(kept.token.clone()));
        }
        *slot = None;
        Ok(match self.get(exchange, app, owner, now).await? {
            Granted::Yes(kept) => Granted::Yes(slot.insert(kept).token.clone()),
            Granted::No(answer) => Granted::No(answer),
        })
    }

    /// Gets a new token. Not paced as other posts are: it asks for nothing to be done.
    async fn get(
        &self,
        exchange: &Exchange,
        app: &App,
        owner: &str,
        now: Timestamp,
    ) -> Result<Granted<Kept>, ApiError> {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let on = format!("/orgs/{owner}/installation");
        if owner.is_empty() || !owner.bytes().all(known) {
            return Err(failed(&on, ErrorClass::Invalid, AppError::Owner));
        }
        let asker = Asker {
            exchange,
            installations: self,
            app,
            proof: prove(app, now, &on)?,
            now,
        };
        let mut found: Granted<Found> = asker.ask(Method::Get, &on).await?;
        if matches!(&found, Granted::No(answer) if answer.status == 404) {
            found = asker.ask(Method::Get, &format!("/users/{owner}/installation")).await?;
        }
        let id = match found {
            Granted::Yes(Found { id }) => id,
            Granted::No(answer) => return Ok(Granted::No(answer)),
        };
        let on = format!("/app/installations/{id}/access_tokens");
        match asker.ask::<Issued>(Method::Post, &on).await? {
            Granted::Yes(issued) => read_issued(&issued, &on).map(Granted::Yes),
            Granted::No(answer) => Ok(Granted::No(answer)),
        }
    }

    /// What GitHub would answer `app` now, as far as its last answer says.
    fn resting(&self, app: &App, now: Timestamp) -> Option<Answer> {
        let resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        let left = resting.get(app.id())?.duration_since(now);
        left.is_positive().then(|| not_yet(left))
    }

    /// Rests `app` after an answer of a limit, and after the last one before it, which may be as good as any.
    fn rest(&self, app: &App, answer: &Answer, now: Timestamp) {
        let limits = Limits::default();
        let wait = match limits.judge(answer, now, 0) {
            Standing::Limited(wait) => Some(wait),
            Standing::Fine
            | Standing::NotModified
            | Standing::Misconfigured(_)
            | Standing::Ended
            | Standing::Failed => limits.rest(answer, &Right::App, now),
        };
        if let Some(wait) = wait {
            let until = now.saturating_add(wait).unwrap_or(Timestamp::MAX);
            let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
            // Of an App that is no longer configured nothing is of use.
            resting.clear();
            resting.insert(app.id().to_owned(), until);
        }
    }

    fn slot(&self, app: &App, owner: &str) -> Slot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let installation = (app.id().to_owned(), owner.to_owned());
        if slots.len() >= INSTALLATIONS_MAX && !slots.contains_key(&installation) {
            slots.clear();
        }
        Arc::clone(slots.entry(installation).or_default())
    }
}

#[derive(Deserialize)]
struct Found {
    id: u64,
}

#[derive(Deserialize)]
struct Issued {
    token: String,
    expires_at: String,
}

fn read_issued(issued: &Issued, on: &str) -> Result<Kept, ApiError> {
    let malformed = || failed(on, ErrorClass::ServerFault, AppError::Form);
    Ok(Kept {
        token: ApiToken::parse(&issued.token).map_err(|_text| malformed())?,
        expires_at: issued.expires_at.parse().map_err(|_text| malformed())?,
    })
}

/// Asks as the App.
struct Asker<'a> {
    exchange: &'a Exchange,
    installations: &'a Installations,
    app: &'a App,
    proof: ApiToken,
    now: Timestamp,
}

impl Asker<'_> {
    /// A limit, or that there is no such right, is an answer for the core to judge. While the App rests, also since the request
    /// before this one, nothing is sent: who asks on at a limit is shut out.
    async fn ask<T: DeserializeOwned>(&self, method: Method, url: &str) -> Result<Granted<T>, ApiError> {
        if let Some(answer) = self.installations.resting(self.app, self.now) {
            return Ok(Granted::No(answer));
        }
        let place = self.exchange.locate(url)?;
        let ask = Ask {
            method,
            place: &place,
            token: Some(&self.proof),
            etag: None,
        };
        let answer = self.exchange.ask(ask).await?;
        self.installations.rest(self.app, &answer, self.now);
        let error = |class, error: AppError| Err(failed(place.path(), class, error));
        match answer.status {
            // Without the parser's text, which may quote a token.
            200..=299 => match serde_json::from_slice(&answer.body) {
                Ok(read) => Ok(Granted::Yes(read)),
                Err(_parse) => error(ErrorClass::ServerFault, AppError::Form),
            },
            401 | 403 | 404 | 429 => Ok(Granted::No(answer)),
            status @ 500.. => error(ErrorClass::ServerFault, AppError::Status(status)),
            status => error(ErrorClass::Denied, AppError::Status(status)),
        }
    }
}
