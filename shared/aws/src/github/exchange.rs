//! One exchange with the API: a request, its redirects on the same host, and a bounded answer.

use std::error::Error;

use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use aws_smithy_http_client::default_connector;
use aws_smithy_runtime_api::client::http::{HttpConnector as _, HttpConnectorSettings, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::HttpError;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use forebay_core::api::{ANSWER_BYTES_MAX, Answer, ApiError, ApiToken, Method};
use forebay_core::ports::ErrorClass;
use jiff::SignedDuration;

use super::Settings;
use super::base::{ApiBase, Place};

/// The version of the API that answers are read as. Without it GitHub would choose, and choose anew one day. Supported until
/// March 2028 at least (<https://docs.github.com/en/rest/about-the-rest-api/api-versions>); 2026-03-10 is the first to take
/// fields away.
const API_VERSION: &str = "2022-11-28";
/// GitHub's own type, which its documents recommend.
const ACCEPT: &str = "application/vnd.github+json";
/// GitHub refuses requests without an agent.
const USER_AGENT: &str = concat!("forebay/", env!("CARGO_PKG_VERSION"));
/// Redirects that are followed one after another: a repository may have been renamed, and moved, and renamed.
const REDIRECTS_MAX: u32 = 3;
/// Longest path that an error names, in bytes.
const PATH_BYTES_MAX: usize = 300;
/// What GitHub answers where somebody asks too much.
const TOO_MANY: u16 = 429;

/// A body that is larger than is taken.
#[derive(Debug, thiserror::Error)]
#[error("the answer has more than {ANSWER_BYTES_MAX} bytes")]
struct Oversized;

/// The connection to one API.
#[derive(Debug)]
pub(super) struct Exchange {
    base: ApiBase,
    connector: SharedHttpConnector,
}

/// One request to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    pub(super) place: &'a Place,
    pub(super) token: Option<&'a ApiToken>,
    pub(super) etag: Option<&'a str>,
}

impl Exchange {
    /// A connection with the system's root certificates, no proxy and no compression. Makes no call.
    pub(super) fn new(base: ApiBase, settings: &Settings) -> Self {
        let time_outs = HttpConnectorSettings::builder()
            .connect_timeout(settings.connect_time_max)
            .read_timeout(settings.read_time_max)
            .build();
        let timers = SharedAsyncSleep::new(TokioSleep::new());
        let connector =
            default_connector(&time_outs, Some(timers)).expect("the rustls feature is chosen in Cargo.toml");
        Self { base, connector }
    }

    pub(super) fn base(&self) -> &ApiBase {
        &self.base
    }

    /// Where `url` is.
    pub(super) fn locate(&self, url: &str) -> Result<Place, ApiError> {
        self.base.locate(url).map_err(|error| {
            use super::base::PlaceError;
            let class = match error {
                PlaceError::NotAUrl => ErrorClass::Invalid,
                // The API calls itself by another name than the configuration: there is no right to ask anybody else with.
                PlaceError::Elsewhere => ErrorClass::Denied,
            };
            failed(path_of(url), class, error)
        })
    }

    /// Sends `ask` and reads the whole answer. A redirect that is not followed is the answer.
    pub(super) async fn ask(&self, ask: Ask<'_>) -> Result<Answer, ApiError> {
        let mut place = ask.place.clone();
        for _ in 0..REDIRECTS_MAX {
            let response = self.send(&ask, &place).await?;
            match self.followed(ask.method, &response) {
                Some(next) => place = next,
                None => return read(response, &place).await,
            }
        }
        let response = self.send(&ask, &place).await?;
        read(response, &place).await
    }

    async fn send(&self, ask: &Ask<'_>, place: &Place) -> Result<HttpResponse, ApiError> {
        let request = prepare(ask, place).map_err(|error| failed(place.path(), ErrorClass::Invalid, error))?;
        let response = self.connector.call(request).await;
        response.map_err(|error| failed(place.path(), class_of(&error), error))
    }

    /// Where the request goes next. What was asked to be done is asked again only where the status says so.
    fn followed(&self, method: Method, response: &HttpResponse) -> Option<Place> {
        let followed = match (response.status().as_u16(), method) {
            (307 | 308, Method::Get | Method::Post) | (301 | 302, Method::Get) => true,
            (_, Method::Get | Method::Post) => false,
        };
        let location = response.headers().get("location").filter(|_| followed)?;
        self.base.redirected(location)
    }
}

/// `ask` in the connector's form.
fn prepare(ask: &Ask<'_>, place: &Place) -> Result<HttpRequest, HttpError> {
    let mut request = HttpRequest::new(SdkBody::empty());
    request.set_uri(place.url())?;
    match ask.method {
        Method::Get => request.set_method("GET")?,
        Method::Post => {
            request.set_method("POST")?;
            // A server may refuse a post that does not say how long it is (RFC 9110, sections 8.6 and 15.5.12).
            request.headers_mut().try_insert("content-length", "0")?;
        }
    }
    let headers = request.headers_mut();
    headers.try_insert("accept", ACCEPT)?;
    headers.try_insert("x-github-api-version", API_VERSION)?;
    headers.try_insert("user-agent", USER_AGENT)?;
    if let Some(etag) = ask.etag {
        headers.try_insert("if-none-match", etag.to_owned())?;
    }
    if let Some(token) = ask.token {
        headers.try_insert("authorization", format!("Bearer {}", token.expose()))?;
    }
    Ok(request)
}

/// The answer that `response` is. A redirect's body says nothing that counts, and is not read.
async fn read(mut response: HttpResponse, place: &Place) -> Result<Answer, ApiError> {
    let status = response.status().as_u16();
    let body = response.take_body();
    let body = match status {
        300..=399 => Vec::new(),
        _ => read_body(body, place).await?,
    };
    Ok(Answer::read(status, |name| response.headers().get(name), body))
}

/// Never holds more than [`ANSWER_BYTES_MAX`]: what says that it is larger is refused unread, what turns out to be is dropped.
async fn read_body(body: SdkBody, place: &Place) -> Result<Vec<u8>, ApiError> {
    let oversized = || failed(place.path(), ErrorClass::TooLarge, Oversized);
    let mut stream = ByteStream::new(body);
    let (declared, _) = stream.size_hint();
    if declared > ANSWER_BYTES_MAX as u64 {
        return Err(oversized());
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| failed(place.path(), ErrorClass::ServerFault, error))?;
        if bytes.len().saturating_add(chunk.len()) > ANSWER_BYTES_MAX {
            return Err(oversized());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn class_of(error: &ConnectorError) -> ErrorClass {
    if error.is_timeout() {
        ErrorClass::TimedOut
    } else if error.is_user() {
        ErrorClass::Invalid
    } else if error.is_io() {
        ErrorClass::Unreachable
    } else {
        ErrorClass::ServerFault
    }
}

/// A request for `path` that had no answer.
pub(super) fn failed(path: &str, class: ErrorClass, source: impl Into<Box<dyn Error + Send + Sync>>) -> ApiError {
    ApiError {
        on: path
            .get(..path.floor_char_boundary(PATH_BYTES_MAX))
            .unwrap_or(path)
            .to_owned(),
        class,
        source: Some(source.into()),
    }
}

/// What GitHub would answer to a request that comes so much too early.
pub(super) fn not_yet(left: SignedDuration) -> Answer {
    // Rounded up, so that nobody asks a moment too early.
    let seconds = left.as_secs().saturating_add(1);
    Answer {
        status: TOO_MANY,
        retry_after_s: Some(u32::try_from(seconds).unwrap_or(u32::MAX)),
        ..Answer::default()
    }
}

/// The path of a URL that may be none, without its query.
fn path_of(url: &str) -> &str {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let Some((_, rest)) = path.split_once("://") else {
        return path;
    };
    rest.find('/').and_then(|start| rest.get(start..)).unwrap_or("/")
}
