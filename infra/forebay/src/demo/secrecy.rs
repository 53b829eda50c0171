//! What no log may contain after a demonstration: secrets, signatures, payload text.

use std::collections::{BTreeMap, BTreeSet};

use form_urlencoded::parse;
use serde_json::Value;

use crate::delivery::Headers;
use crate::github::LOCAL_TOKEN;
use crate::secret::{LOCAL_SECRET, WebhookSecret};

/// So much of a signature is enough to know it by, and finds one that was cut short.
const SIGNATURE_CHARS: usize = 16;
/// Shorter texts are words that anything may say.
const TEXT_CHARS_MIN: usize = 12;
/// So much of a text's line is enough to know it by, and finds a summary of it.
const TEXT_CHARS_MAX: usize = 32;

/// What must stay secret.
#[derive(Debug)]
pub(super) struct Secrecy {
    /// The pieces to look for, and what each is. A text that many deliveries have belongs to the first.
    pieces: BTreeMap<String, String>,
}

impl Default for Secrecy {
    /// The secret alone.
    fn default() -> Self {
        Self {
            pieces: BTreeMap::from([
                (LOCAL_SECRET.to_owned(), "the webhook secret".to_owned()),
                (LOCAL_TOKEN.to_owned(), "GitHub's token".to_owned()),
            ]),
        }
    }
}

impl Secrecy {
    /// Adds the signatures, given and right, and the texts of a delivery.
    pub(super) fn add(&mut self, name: &str, headers: &Headers, secret: &WebhookSecret, body: &[u8]) {
        let given = headers.signature(secret, body);
        for signature in [given, secret.sign(body)] {
            let hex = signature.rsplit('=').next().unwrap_or_default();
            self.insert(hex.chars().take(SIGNATURE_CHARS).collect(), || {
                format!("a signature of {name}")
            });
        }
        for piece in payload(body).iter().flat_map(texts).flat_map(pieces_of) {
            self.insert(piece, || format!("a text of {name}"));
        }
    }

    fn insert(&mut self, piece: String, what: impl FnOnce() -> String) {
        self.pieces.entry(piece).or_insert_with(what);
    }

    /// How many things are looked for.
    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// What `lines` give away, in words that do not repeat it.
    pub(super) fn leaks(&self, lines: &[String]) -> Vec<String> {
        let mut leaks = Vec::new();
        for (number, line) in (1..).zip(lines) {
            let found = self.pieces.iter().filter(|(piece, _)| line.contains(piece.as_str()));
            let whats: BTreeSet<&str> = found.map(|(_, what)| what.as_str()).collect();
            leaks.extend(
                whats
                    .into_iter()
                    .map(|what| format!("log line {number} contains {what}")),
            );
        }
        leaks
    }
}

/// The JSON that a body carries, as it is or in a form.
fn payload(body: &[u8]) -> Option<Value> {
    let plain = serde_json::from_slice(body).ok();
    plain.or_else(|| {
        let field = parse(body).find(|(name, _)| name == "payload");
        serde_json::from_str(&field?.1).ok()
    })
}

/// Every text in `value` that people wrote: it has blanks in it.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) if text.contains(' ') => vec![text],
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// The beginning of each line of `text`, as it is and as JSON spells it.
fn pieces_of(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(str::trim).flat_map(|line| {
        let piece: String = line.chars().take(TEXT_CHARS_MAX).collect();
        let long_enough = piece.chars().count() >= TEXT_CHARS_MIN;
        let json = Value::from(piece.as_str()).to_string();
        let spelt = json.strip_prefix('"').and_then(|json| json.strip_suffix('"'));
        let spelt = spelt.unwrap_or(&json).to_owned();
        long_enough.then_some([piece, spelt]).into_iter().flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Signature;

    fn secrecy(body: &[u8]) -> Secrecy {
        let headers = Headers {
            event: "issue_comment".to_owned(),
            guid: "a".to_owned(),
            hook: "1".to_owned(),
            content_type: "application/json",
            signature: Signature::Forged,
        };
        let mut secrecy = Secrecy::default();
        secrecy.add("sample", &headers, &WebhookSecret::local(), body);
        secrecy
    }

    #[track_caller]
    fn check(body: &[u8], line: &str, expected: &[&str]) {
        assert_eq!(secrecy(body).leaks(&["fine".to_owned(), line.to_owned()]), expected);
    }

    const BODY: &[u8] = br#"{"comment":{"body":"Short\r\nThe sum is \"right\" now, isn't it?"},"id":7}"#;

    #[test]
    fn a_log_that_says_nothing_of_the_kind_is_clean() {
        check(BODY, r#"{"message":"answer delivery","delivery.id":"a"}"#, &[]);
    }

    #[test]
    fn the_secret_is_found() {
        let line = format!("verify with {LOCAL_SECRET}");
        check(BODY, &line, &["log line 2 contains the webhook secret"]);
    }

    #[test]
    fn a_signature_is_found_whether_given_or_right_and_even_cut_short() {
        let right = WebhookSecret::local().sign(BODY);
        check(BODY, &right, &["log line 2 contains a signature of sample"]);
        check(BODY, &right[7..30], &["log line 2 contains a signature of sample"]);
        let forged = WebhookSecret::forged("not-the-secret").sign(BODY);
        check(BODY, &forged, &["log line 2 contains a signature of sample"]);
    }

    #[test]
    fn a_payloads_text_is_found_as_it_is_and_as_json_spells_it() {
        let expected = ["log line 2 contains a text of sample"];
        check(BODY, "said: The sum is \"right\" now, isn't it?", &expected);
        check(BODY, r#"{"said":"The sum is \"right\" now, isn't it?"}"#, &expected);
        check(
            b"payload=%7B%22a%22%3A%22nobody+may+read+this%22%7D",
            "nobody may read this",
            &expected,
        );
    }
}
