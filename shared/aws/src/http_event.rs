//! HTTP requests as Lambda hands them over, and answers as it wants them.
//!
//! Payload 2.0 (function URL, HTTP API), 1.0 (REST API) and load balancers. Read here rather than with `lambda_http`: that
//! crate fails the whole invocation where any header holds a character beyond ASCII, which would turn a delivery with an odd
//! user agent into a 502 that GitHub never repeats.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// One request.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpEvent {
    #[serde(default)]
    raw_path: Option<String>,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    http_method: Option<String>,
    #[serde(default)]
    headers: Headers,
    #[serde(default)]
    multi_value_headers: Headers,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    is_base64_encoded: Option<bool>,
    #[serde(default)]
    request_context: Option<RequestContext>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestContext {
    #[serde(default)]
    http: Option<Http>,
    #[serde(default)]
    identity: Option<Identity>,
    #[serde(default)]
    stage: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Http {
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    source_ip: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    #[serde(default)]
    source_ip: Option<String>,
}

impl fmt::Debug for HttpEvent {
    /// Without headers and body, which hold signatures and payload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpEvent({} {})", self.method(), self.path())
    }
}

/// Which payload format a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadFormat {
    /// REST APIs and load balancers.
    One,
    /// Function URLs and HTTP APIs.
    Two,
}

/// A body that is not what its flag says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Marked as base64, and is not.
    #[error("the body is marked as base64 and is not")]
    NotBase64,
    /// Larger than the limit.
    #[error("the body is larger than the limit")]
    TooLarge,
}

impl HttpEvent {
    /// The format, which only 2.0 shows by a raw path.
    #[must_use]
    pub fn format(&self) -> PayloadFormat {
        if self.raw_path.is_some() {
            PayloadFormat::Two
        } else {
            PayloadFormat::One
        }
    }

    /// The method, as sent.
    #[must_use]
    pub fn method(&self) -> &str {
        let http = self.request_context.as_ref().and_then(|context| context.http.as_ref());
        http.and_then(|http| http.method.as_deref())
            .or(self.http_method.as_deref())
            .unwrap_or_default()
    }

    /// The path, exactly as sent, without the stage that an HTTP API puts in front of it.
    #[must_use]
    pub fn path(&self) -> &str {
        let path = self.raw_path.as_deref().or(self.path.as_deref()).unwrap_or_default();
        let stage = self
            .request_context
            .as_ref()
            .and_then(|context| context.stage.as_deref());
        let behind = |stage: &str| {
            path.strip_prefix('/')?
                .strip_prefix(stage)
                .filter(|rest| rest.starts_with('/'))
        };
        stage.filter(|stage| !stage.is_empty()).and_then(behind).unwrap_or(path)
    }

    /// All values of a header, in whatever case its name arrived. `name` is in lower case.
    #[must_use]
    pub fn header_values(&self, name: &str) -> Vec<&str> {
        let several = self
            .multi_value_headers
            .0
            .get(name)
            .or_else(|| self.headers.0.get(name));
        several.into_iter().flatten().map(String::as_str).collect()
    }

    /// The value of a header that arrived once.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        match self.header_values(name).as_slice() {
            [value] => Some(value),
            _ => None,
        }
    }

    /// Who called. Behind a load balancer the last forwarder counts: it is the one that the balancer itself wrote.
    #[must_use]
    pub fn source(&self) -> Option<IpAddr> {
        let context = self.request_context.as_ref();
        let http = context.and_then(|context| context.http.as_ref()?.source_ip.as_deref());
        let rest = || context.and_then(|context| context.identity.as_ref()?.source_ip.as_deref());
        let forwarded = || self.header_values("x-forwarded-for").last()?.rsplit(',').next();
        http.or_else(rest).or_else(forwarded)?.trim().parse().ok()
    }

    /// The body's exact bytes. The flag alone says whether it is base64, never the look of the text.
    ///
    /// # Errors
    /// [`BodyError`] where it is larger than `bytes_max`, or marked as base64 without being it.
    pub fn into_body(self, bytes_max: usize) -> Result<Vec<u8>, BodyError> {
        let text = self.body.unwrap_or_default();
        if !self.is_base64_encoded.unwrap_or(false) {
            return if text.len() > bytes_max {
                Err(BodyError::TooLarge)
            } else {
                Ok(text.into_bytes())
            };
        }
        // Four digits are three bytes: what is far too large is not even decoded.
        if text.len() / 4 * 3 > bytes_max.saturating_add(3) {
            return Err(BodyError::TooLarge);
        }
        let body = STANDARD.decode(text).map_err(|_digits| BodyError::NotBase64)?;
        if body.len() > bytes_max {
            Err(BodyError::TooLarge)
        } else {
            Ok(body)
        }
    }
}

/// Headers by lower-case name: one value or several, any case, any characters. What is not text is left out.
#[derive(Debug, Default)]
struct Headers(BTreeMap<String, Vec<String>>);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("headers")
            }

            fn visit_unit<E>(self) -> Result<Headers, E> {
                Ok(Headers::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut headers = Headers::default();
                while let Some((name, values)) = map.next_entry::<String, Values>()? {
                    headers.0.entry(name.to_ascii_lowercase()).or_default().extend(values.0);
                }
                Ok(headers)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

#[derive(Default)]
struct Values(Vec<String>);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Values;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a header's value or values")
            }

            fn visit_str<E>(self, value: &str) -> Result<Values, E> {
                Ok(Values(vec![value.to_owned()]))
            }

            fn visit_unit<E>(self) -> Result<Values, E> {
                Ok(Values::default())
            }

            fn visit_bool<E>(self, value: bool) -> Result<Values, E> {
                Ok(Values(vec![value.to_string()]))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Values, E> {
                Ok(Values(vec![value.to_string()]))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Values, E> {
                Ok(Values(vec![value.to_string()]))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Values, E> {
                Ok(Values(vec![value.to_string()]))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Values, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Values::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Values, A::Error> {
                let mut values = Values::default();
                while let Some(more) = seq.next_element::<Values>()? {
                    values.0.extend(more.0);
                }
                Ok(values)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// An answer in the shape that all of these callers read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpAnswer {
    status_code: u16,
    headers: BTreeMap<&'static str, &'static str>,
    body: String,
    is_base64_encoded: bool,
    /// Payload 2.0 has it, always empty here; other callers may refuse what they do not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    cookies: Option<[String; 0]>,
}

impl HttpAnswer {
    /// An answer with a JSON body.
    #[must_use]
    pub fn json(status: u16, body: String) -> Self {
        let headers = BTreeMap::from([("content-type", "application/json")]);
        Self {
            status_code: status,
            headers,
            body,
            is_base64_encoded: false,
            cookies: None,
        }
    }

    /// This answer in the shape of a payload format.
    ///
    /// The local server of cargo-lambda does not read an answer of format 2.0 without its list of cookies.
    #[must_use]
    pub fn in_format(mut self, format: PayloadFormat) -> Self {
        self.cookies = match format {
            PayloadFormat::One => None,
            PayloadFormat::Two => Some([]),
        };
        self
    }

    /// This answer with another header.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status_code
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &str {
        &self.body
    }
}

#[cfg(test)]
mod tests;
