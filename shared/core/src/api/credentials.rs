//! What GitHub is asked with: nothing, a token, or an App. It stands in the same secret document as the webhook secrets.

use std::fmt;

use serde::Deserialize;

use super::{Credential, Right};
use crate::delivery::Digest;
use crate::target::TargetKey;

/// The tenant of every target that is GitHub.
const TENANT: &str = "github";

/// Why a secret document says nothing usable about asking GitHub. Says nothing of what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// It is not the JSON document that Forebay reads.
    #[error(
        "the secret is not a JSON document of the form {{\"github\": {{\"token\": …}}}} or {{\"github\": {{\"app\": {{\"id\": …, \"private_key\": …}}}}}}"
    )]
    NotADocument,
    /// It has a token and an App, and only one of them can be meant.
    #[error("the secret has both a token and an App for GitHub: keep one of them")]
    TokenAndApp,
    /// The App has an id without a private key, or a key without an id.
    #[error("the secret's App for GitHub needs both an id and a private_key")]
    HalfAnApp,
    /// The token has characters that no header carries.
    #[error("the token for GitHub has characters that no token has")]
    TokenText,
}

/// A token for GitHub, of any length and shape. Its material is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiToken(String);

impl fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiToken(…)")
    }
}

impl ApiToken {
    /// The token that `text` spells: visible ASCII, which is what a header carries.
    ///
    /// # Errors
    /// [`AccessError::TokenText`] where it is anything else, or nothing: put the right one.
    pub fn parse(text: &str) -> Result<Self, AccessError> {
        let visible = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        visible.then(|| Self(text.to_owned())).ok_or(AccessError::TokenText)
    }

    /// The material, for the one header that carries it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The right that this token gives at `host`.
    #[must_use]
    pub fn credential(&self, host: &str) -> Credential {
        Credential {
            right: Right::Token,
            target: TargetKey::long_lived_api_key(host, Digest::of(self.0.as_bytes()), TENANT),
        }
    }
}

/// A GitHub App. Its key is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct App {
    id: String,
    private_key: String,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "App({}, …)", self.id)
    }
}

impl App {
    /// Its id, or its client id: GitHub takes either.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its private key as it stands in the document, in PEM. Nothing says yet that it is one.
    #[must_use]
    pub fn private_key(&self) -> &str {
        &self.private_key
    }

    /// The App's own right at `host`: to its delivery log and its installations.
    #[must_use]
    pub fn credential(&self, host: &str) -> Credential {
        Credential {
            right: Right::App,
            target: TargetKey::oauth2(host, &self.id, "app", TENANT),
        }
    }

    /// The App's right at `host` where it is installed for `owner`. GitHub's names have no case.
    #[must_use]
    pub fn installation(&self, host: &str, owner: &str) -> Credential {
        let owner = owner.to_ascii_lowercase();
        Credential {
            target: TargetKey::oauth2(host, &self.id, &owner, TENANT),
            right: Right::Installation(owner),
        }
    }
}

/// Nobody's right at `host`.
#[must_use]
pub fn anonymous(host: &str) -> Credential {
    Credential {
        right: Right::Anonymous,
        target: TargetKey::labeled_principal(host, "anonymous", TENANT),
    }
}

/// What GitHub is asked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GithubAccess {
    /// Nothing: 60 requests an hour, and only what is public.
    Anonymous,
    /// A token.
    Token(ApiToken),
    /// An App, as it is installed for each owner.
    App(App),
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    github: Option<Github>,
}

#[derive(Deserialize)]
struct Github {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    app: Option<GivenApp>,
}

/// A misspelt field is refused: read past, it would leave an App without its key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenApp {
    #[serde(default)]
    id: Option<Id>,
    #[serde(default)]
    private_key: Option<String>,
}

/// GitHub shows the id as a number and the client id as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Id {
    Number(u64),
    Text(String),
}

impl GithubAccess {
    /// Reads the secret document. What is blank counts as absent.
    ///
    /// # Errors
    /// [`AccessError`] where the document has another form, or says two things at once: put a right one.
    pub fn parse(document: &str) -> Result<Self, AccessError> {
        let document: Document = serde_json::from_str(document).map_err(|_parse| AccessError::NotADocument)?;
        let (token, app) = document
            .github
            .map_or((None, None), |github| (github.token, github.app));
        let token = token
            .map(|token| token.trim().to_owned())
            .filter(|token| !token.is_empty());
        match (token, app.map(read_app).transpose()?.flatten()) {
            (None, None) => Ok(Self::Anonymous),
            (Some(token), None) => ApiToken::parse(&token).map(Self::Token),
            (None, Some(app)) => Ok(Self::App(app)),
            (Some(_), Some(_)) => Err(AccessError::TokenAndApp),
        }
    }

    /// The right for what belongs to `owner`.
    #[must_use]
    pub fn for_owner(&self, host: &str, owner: &str) -> Credential {
        match self {
            Self::Anonymous => anonymous(host),
            Self::Token(token) => token.credential(host),
            Self::App(app) => app.installation(host, owner),
        }
    }

    /// The App's own right; `None` without an App.
    #[must_use]
    pub fn for_app(&self, host: &str) -> Option<Credential> {
        match self {
            Self::Anonymous | Self::Token(_) => None,
            Self::App(app) => Some(app.credential(host)),
        }
    }
}

/// `None` for an App whose fields are all blank.
fn read_app(given: GivenApp) -> Result<Option<App>, AccessError> {
    let id = match given.id {
        None => String::new(),
        Some(Id::Number(number)) => number.to_string(),
        Some(Id::Text(text)) => text.trim().to_owned(),
    };
    let private_key = given.private_key.unwrap_or_default().trim().to_owned();
    match (id.is_empty(), private_key.is_empty()) {
        (true, true) => Ok(None),
        (false, false) => Ok(Some(App { id, private_key })),
        (true, false) | (false, true) => Err(AccessError::HalfAnApp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "api.github.com";

    fn parse(github: &str) -> Result<GithubAccess, AccessError> {
        GithubAccess::parse(&format!("{{\"github\": {github}}}"))
    }

    #[test]
    fn a_token_or_an_app_stands_beside_the_webhook_secret() {
        let token = parse(r#"{"webhook_secret": "s", "token": " ghp_t\n"}"#).unwrap();
        assert_eq!(token, GithubAccess::Token(ApiToken("ghp_t".to_owned())));
        for (id, read) in [
            ("123456", "123456"),
            ("\"123456\"", "123456"),
            ("\"Iv23abc\"", "Iv23abc"),
        ] {
            let GithubAccess::App(app) = parse(&format!(r#"{{"app": {{"id": {id}, "private_key": "pem"}}}}"#)).unwrap()
            else {
                panic!("{id} is no App");
            };
            assert_eq!((app.id(), app.private_key()), (read, "pem"));
        }
    }

    #[test]
    fn what_is_blank_is_nobodys_right() {
        assert_eq!(GithubAccess::parse("{}"), Ok(GithubAccess::Anonymous));
        for blank in [
            "null",
            "{}",
            r#"{"token": null}"#,
            r#"{"token": " \n"}"#,
            r#"{"token": "", "app": null}"#,
            r#"{"app": {"id": "", "private_key": " "}}"#,
        ] {
            assert_eq!(parse(blank), Ok(GithubAccess::Anonymous), "{blank}");
        }
    }

    #[test]
    fn what_says_two_things_or_half_of_one_is_refused() {
        let both = r#"{"token": "t", "app": {"id": 1, "private_key": "pem"}}"#;
        assert_eq!(parse(both), Err(AccessError::TokenAndApp));
        for half in [r#"{"app": {"id": 1}}"#, r#"{"app": {"id": " ", "private_key": "pem"}}"#] {
            assert_eq!(parse(half), Err(AccessError::HalfAnApp), "{half}");
        }
        for other in [
            "7",
            r#"{"token": 7}"#,
            r#"{"app": "1"}"#,
            r#"{"app": {"id": 1, "privatekey": "pem"}}"#,
        ] {
            assert_eq!(parse(other), Err(AccessError::NotADocument), "{other}");
        }
        for odd in [r#"{"token": "a b"}"#, r#"{"token": "a\nb"}"#, r#"{"token": "ä"}"#] {
            assert_eq!(parse(odd), Err(AccessError::TokenText), "{odd}");
        }
    }

    #[test]
    fn a_token_may_have_any_length_and_shape() {
        let stateless = format!("ghs_123456_{}", "eyJ0.eyJ1-_=".repeat(400));
        assert_eq!(ApiToken::parse(&stateless).unwrap().expose(), stateless);
    }

    #[test]
    fn every_right_has_a_target_of_its_own_whatever_the_case_of_a_name() {
        let token = parse(r#"{"token": "ghp_t"}"#).unwrap();
        let app = parse(r#"{"app": {"id": 1, "private_key": "pem"}}"#).unwrap();
        let credentials = [
            anonymous(HOST),
            token.for_owner(HOST, "acme"),
            app.for_owner(HOST, "acme"),
            app.for_owner(HOST, "other"),
            app.for_app(HOST).unwrap(),
        ];
        let rights: Vec<Right> = credentials.iter().map(|credential| credential.right.clone()).collect();
        let installed = |owner: &str| Right::Installation(owner.to_owned());
        assert_eq!(
            rights,
            [
                Right::Anonymous,
                Right::Token,
                installed("acme"),
                installed("other"),
                Right::App
            ]
        );
        let targets: std::collections::BTreeSet<_> = credentials.iter().map(|credential| &credential.target).collect();
        assert_eq!(targets.len(), credentials.len());
        assert_eq!(app.for_owner(HOST, "Acme"), app.for_owner(HOST, "acme"));
        assert_eq!(token.for_owner(HOST, "acme"), token.for_owner(HOST, "other"));
        assert_eq!(GithubAccess::Anonymous.for_owner(HOST, "acme"), anonymous(HOST));
        assert_eq!(
            (token.for_app(HOST), GithubAccess::Anonymous.for_app(HOST)),
            (None, None)
        );
        // COND-02: another token is another target, with validators of its own.
        let other = parse(r#"{"token": "ghp_u"}"#).unwrap();
        assert_ne!(token.for_owner(HOST, "acme"), other.for_owner(HOST, "acme"));
    }

    #[test]
    fn no_material_is_printed() {
        // Invariant 8
        let token = parse(r#"{"token": "material"}"#).unwrap();
        let app = parse(r#"{"app": {"id": 1, "private_key": "material"}}"#).unwrap();
        let credential = token.for_owner(HOST, "acme");
        let refused = parse(r#"{"token": "material material"}"#).unwrap_err();
        let malformed = parse(r#"{"token": ["material"]}"#).unwrap_err();
        let shown = format!("{token:?} {app:?} {credential:?} {refused} {refused:?} {malformed} {malformed:?}");
        assert!(!shown.contains("material"), "{shown}");
        assert!(shown.contains("App(1, …)"), "{shown}");
    }
}
