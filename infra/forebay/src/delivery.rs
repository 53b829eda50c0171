//! A webhook request as GitHub would send it.

use std::path::Path;

use crate::error::Error;
use crate::http::{Http, Reply, Request};
use crate::manifest::{Manifest, Recording, Signature};
use crate::secret::WebhookSecret;

/// The sender that GitHub's requests name.
pub(crate) const USER_AGENT: &str = "GitHub-Hookshot/f0eba11";
/// Id of the repository in the recorded inputs.
const REPOSITORY_ID: &str = "840412345";
/// What a forger signs with.
const FORGED_SECRET: &str = "not-the-secret";
const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// What is said about a body, without the signature.
#[derive(Clone, Debug)]
pub(crate) struct Headers {
    /// `X-GitHub-Event`.
    pub(crate) event: String,
    /// `X-GitHub-Delivery`.
    pub(crate) guid: String,
    /// `X-GitHub-Hook-ID`.
    pub(crate) hook: String,
    /// `Content-Type`.
    pub(crate) content_type: &'static str,
    /// Who signs.
    pub(crate) signature: Signature,
}

impl Headers {
    /// What was recorded with `recording`.
    pub(crate) fn recorded(manifest: &Manifest, recording: &Recording) -> Self {
        Self {
            event: recording.event.clone(),
            guid: recording.guid.clone(),
            hook: manifest.hook.clone(),
            content_type: content_type(&recording.file),
            signature: recording.signature,
        }
    }

    /// All headers of a request with this body, by lower-case name in the alphabet's order.
    pub(crate) fn signed(&self, secret: &WebhookSecret, body: &[u8]) -> Vec<(&'static str, String)> {
        vec![
            ("accept", "*/*".to_owned()),
            ("content-type", self.content_type.to_owned()),
            ("user-agent", USER_AGENT.to_owned()),
            ("x-github-delivery", self.guid.clone()),
            ("x-github-event", self.event.clone()),
            ("x-github-hook-id", self.hook.clone()),
            ("x-github-hook-installation-target-id", REPOSITORY_ID.to_owned()),
            ("x-github-hook-installation-target-type", "repository".to_owned()),
            ("x-hub-signature-256", self.signature(secret, body)),
        ]
    }

    /// The signature, made with `secret` or with a forger's.
    pub(crate) fn signature(&self, secret: &WebhookSecret, body: &[u8]) -> String {
        match self.signature {
            Signature::Right => secret.sign(body),
            Signature::Forged => WebhookSecret::forged(FORGED_SECRET).sign(body),
        }
    }

    /// Posts `body` to the webhook at `url`.
    pub(crate) async fn post(
        &self,
        http: &Http,
        url: &str,
        secret: &WebhookSecret,
        body: &[u8],
    ) -> Result<Reply, Error> {
        let headers = self.signed(secret, body);
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        http.exchange(Request {
            method: "POST",
            url,
            headers: &headers,
            body,
        })
        .await
    }
}

/// The content type of the body in `file`: a hook sends JSON or a form.
pub(crate) fn content_type(file: &Path) -> &'static str {
    match file.extension() {
        Some(extension) if extension == "form" => FORM,
        Some(_) | None => JSON,
    }
}
