//! Names of what can be healthy or not.

use std::fmt;

use crate::delivery::Digest;

/// A target: domain, digest of a stable principal, tenant. The unit of scheduling, shedding and rate accounting.
///
/// The principal must stay the same for at least ten of the longest windows (30 s), so it is a role or a client and never a
/// session token. There is no way to make a key from a digest alone: whoever holds one came through a constructor that says
/// what was hashed.
///
/// ```
/// # // S1-04: the same names as below, so that what fails to compile there fails for its own reason.
/// # use forebay_core::{delivery::Digest, target::TargetKey};
/// let key = TargetKey::long_lived_api_key("api.github.com", Digest::of(b"the key"), "acme");
/// assert_eq!((key.domain(), key.tenant()), ("api.github.com", "acme"));
/// ```
///
/// ```compile_fail,E0451
/// # use forebay_core::{delivery::Digest, target::TargetKey};
/// let (domain, tenant) = (String::new(), String::new());
/// let key = TargetKey { domain, principal: Digest::of(b"the key"), tenant };
/// ```
///
/// ```compile_fail,E0624
/// # use forebay_core::{delivery::Digest, target::TargetKey};
/// let key = TargetKey::new("api.github.com", "", "the key", "acme");
/// ```
///
/// ```compile_fail,E0277
/// # use forebay_core::{delivery::Digest, target::TargetKey};
/// let key = TargetKey::from(Digest::of(b"the key"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetKey {
    domain: String,
    principal: Digest,
    tenant: String,
}

impl TargetKey {
    /// A target that is called under an IAM role.
    #[must_use]
    pub fn aws_iam(domain: &str, role_arn: &str, tenant: &str) -> Self {
        Self::new(domain, "aws_iam", role_arn, tenant)
    }

    /// A target that is called with an OAuth 2 client's token for a resource owner.
    #[must_use]
    pub fn oauth2(domain: &str, client_id: &str, owner_id: &str, tenant: &str) -> Self {
        Self::new(domain, "oauth2", &format!("{client_id}:{owner_id}"), tenant)
    }

    /// A target that is called with a long-lived key, known by the SHA-256 of the key.
    #[must_use]
    pub fn long_lived_api_key(domain: &str, fingerprint: Digest, tenant: &str) -> Self {
        Self::new(domain, "long_lived_api_key", &fingerprint.to_string(), tenant)
    }

    /// A target that is known by the id of a shared secret, never by its material.
    #[must_use]
    pub fn hmac_secret(domain: &str, key_id: &str, tenant: &str) -> Self {
        Self::new(domain, "hmac_secret", key_id, tenant)
    }

    /// A target that has nothing better than a label.
    #[must_use]
    pub fn labeled_principal(domain: &str, label: &str, tenant: &str) -> Self {
        Self::new(domain, "labeled_principal", label, tenant)
    }

    /// The queue at this URL: its name at its host, its account for a tenant. A queue is made and replaced under its name, so
    /// that a redeployed one is the same target.
    ///
    /// Total: whatever is no such URL is a label of its own.
    #[must_use]
    pub fn queue(url: &str) -> Self {
        let (_, rest) = url.split_once("://").unwrap_or(("", url));
        let (host, path) = rest.split_once('/').unwrap_or(("", rest));
        let (account, name) = path.trim_end_matches('/').rsplit_once('/').unwrap_or(("", path));
        Self::labeled_principal(host, name, account)
    }

    /// The domain, such as `sqs.us-east-1.amazonaws.com`.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The tenant.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// The scheme is part of what is hashed: a label that reads like a role is not that role.
    fn new(domain: &str, scheme: &str, principal: &str, tenant: &str) -> Self {
        Self {
            domain: domain.to_ascii_lowercase(),
            principal: Digest::of(format!("{scheme}:{principal}").as_bytes()),
            tenant: tenant.to_owned(),
        }
    }
}

impl fmt::Display for TargetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}#{}", self.domain, self.principal, self.tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQS: &str = "sqs.us-east-1.amazonaws.com";

    #[test]
    fn one_principal_is_one_target_whatever_its_session() {
        // S1-03
        let key = TargetKey::aws_iam(SQS, "arn:aws:iam::000000000000:role/r", "acme");
        assert_eq!(
            key,
            TargetKey::aws_iam(
                "SQS.us-east-1.amazonaws.com",
                "arn:aws:iam::000000000000:role/r",
                "acme"
            )
        );
        assert_ne!(
            key,
            TargetKey::aws_iam(SQS, "arn:aws:iam::000000000000:role/r", "other")
        );
        assert_ne!(key, TargetKey::aws_iam(SQS, "arn:aws:iam::000000000000:role/s", "acme"));
        assert!(key.to_string().starts_with("sqs.us-east-1.amazonaws.com#"));
        assert!(key.to_string().ends_with("#acme"));
    }

    #[test]
    fn each_of_the_five_constructors_names_a_target_of_its_own() {
        // S1-04
        let same_text = [
            TargetKey::aws_iam(SQS, "p", "t"),
            TargetKey::oauth2(SQS, "p", "", "t"),
            TargetKey::long_lived_api_key(SQS, Digest::of(b"p"), "t"),
            TargetKey::hmac_secret(SQS, "p", "t"),
            TargetKey::labeled_principal(SQS, "p", "t"),
        ];
        let distinct: std::collections::BTreeSet<_> = same_text.iter().collect();
        assert_eq!(distinct.len(), 5);
    }

    #[test]
    fn a_queue_is_its_name_at_its_host_in_its_account() {
        // S1-03
        let key = TargetKey::queue("https://sqs.us-east-1.amazonaws.com/000000000000/stack-InboxBuilder.fifo");
        assert_eq!(
            key,
            TargetKey::labeled_principal(SQS, "stack-InboxBuilder.fifo", "000000000000")
        );
        let local = TargetKey::queue("http://127.0.0.1:4566/000000000000/stack-InboxBuilder.fifo");
        assert_eq!((local.domain(), local.tenant()), ("127.0.0.1:4566", "000000000000"));
        for odd in ["", "/", "resource", "https://", "https://host", "https://host/name"] {
            assert_eq!(TargetKey::queue(odd), TargetKey::queue(odd));
        }
        assert_eq!(
            TargetKey::queue("http://h/name"),
            TargetKey::labeled_principal("h", "name", "")
        );
    }

    #[test]
    fn a_key_shows_no_principal() {
        let key = TargetKey::oauth2(SQS, "client", "owner", "t");
        assert!(!format!("{key} {key:?}").contains("client"));
    }
}
