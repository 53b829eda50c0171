//! Requests, answers, and lists that come in pages.

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use serde_json::{Value, json};

use super::hex_of;

/// Entries of a page where nothing is asked for, and at most. More is cut without a word.
const PER_PAGE: usize = 30;
const PER_PAGE_MAX: usize = 100;

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `GET` or `POST`.
    pub method: &'a str,
    /// A path with its query, or a URL on the fake's own base.
    pub target: &'a str,
    /// The header `Authorization`.
    pub authorization: Option<&'a str>,
    /// The header `If-None-Match`.
    pub if_none_match: Option<&'a str>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// Headers, their names in lower case.
    pub headers: Vec<(&'static str, String)>,
    /// JSON text, or nothing.
    pub body: String,
}

impl Reply {
    /// The value of a header, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let known = self.headers.iter().find(|(known, _)| *known == name);
        known.map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// Where there is no body.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("an answer of this fake is JSON")
    }

    pub(super) fn with(status: u16, body: &Value) -> Self {
        Self {
            status,
            headers: vec![("content-type", "application/json; charset=utf-8".to_owned())],
            body: body.to_string(),
        }
    }

    pub(super) fn ok(body: &Value) -> Self {
        Self::with(200, body)
    }

    /// What GitHub answers where it has nothing to show.
    pub(super) fn message(status: u16, message: &str) -> Self {
        let documentation = "https://docs.github.com/rest";
        Self::with(
            status,
            &json!({"message": message, "documentation_url": documentation, "status": status.to_string()}),
        )
    }

    pub(super) fn not_found() -> Self {
        Self::message(404, "Not Found")
    }

    pub(super) fn set(&mut self, name: &'static str, value: String) {
        self.headers.push((name, value));
    }

    pub(super) fn date(&mut self, at: Timestamp) {
        let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&at);
        self.set("date", date.unwrap_or_default());
    }

    /// Gives a page its validator; where the caller has that page already, leaves nothing but the headers.
    ///
    /// The validator depends on the credential's text and the URL too: GitHub's answers vary with both.
    pub(super) fn validate(&mut self, request: &Request<'_>) {
        if self.status != 200 || request.method != "GET" {
            return;
        }
        let credential = request.authorization.unwrap_or_default();
        let digest = hex_of(&format!("{credential}\n{}\n{}", request.target, self.body));
        let etag = format!("W/\"{digest}\"");
        let is_known = |list: &str| list.split(',').any(|known| strong(known.trim()) == strong(&etag));
        if request.if_none_match.is_some_and(is_known) {
            self.status = 304;
            self.body.clear();
        }
        self.set("etag", etag);
    }
}

/// A validator without its mark of weakness.
fn strong(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag)
}

/// A query.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let known = self.0.iter().find(|(known, _)| known == name);
        known.map(|(_, value)| value.as_str())
    }

    pub(super) fn per_page(&self) -> usize {
        let asked = self.get("per_page").and_then(|text| text.parse().ok());
        asked.unwrap_or(PER_PAGE).clamp(1, PER_PAGE_MAX)
    }

    /// Counted from one.
    fn page(&self) -> usize {
        let asked = self.get("page").and_then(|text| text.parse().ok());
        asked.unwrap_or(1).max(1)
    }

    /// How many entries lie before the page.
    pub(super) fn skipped(&self) -> usize {
        (self.page() - 1).saturating_mul(self.per_page())
    }

    pub(super) fn text(&self) -> String {
        let mut text = form_urlencoded::Serializer::new(String::new());
        text.extend_pairs(&self.0).finish()
    }

    /// This query with `value` for `name`.
    pub(super) fn with(&self, name: &str, value: &str) -> String {
        let kept = self.0.iter().filter(|(known, _)| known != name);
        form_urlencoded::Serializer::new(String::new())
            .extend_pairs(kept)
            .append_pair(name, value)
            .finish()
    }
}

/// The page of `list` that is asked for, and its `Link` header: where the pages around it are, and the first and the last.
pub(super) fn page<T>(list: Vec<T>, query: &Query, url: &str) -> (Vec<T>, Option<String>) {
    let (page, per_page) = (query.page(), query.per_page());
    let last = list.len().div_ceil(per_page);
    let to = |page: usize, relation: &str| {
        let query = query.with("page", &page.to_string());
        format!("<{url}?{query}>; rel=\"{relation}\"")
    };
    let mut links = Vec::new();
    if page > 1 {
        links.push(to(page - 1, "prev"));
    }
    if page < last {
        links.extend([to(page + 1, "next"), to(last, "last")]);
    }
    if page > 1 {
        links.push(to(1, "first"));
    }
    let link = (!links.is_empty()).then(|| links.join(", "));
    let shown = list.into_iter().skip(query.skipped()).take(per_page);
    (shown.collect(), link)
}
