//! Where the API is, and which URLs are on it. Credentials go nowhere else.

use std::net::IpAddr;

use http::Uri;
use http::uri::{PathAndQuery, Scheme};

/// Why a text is no base of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BaseError {
    /// It is no absolute URL of a host.
    #[error("the API's address is no URL such as https://api.github.com or https://HOST/api/v3")]
    NotAUrl,
    /// It is in clear, and leads off this machine.
    #[error("the API's address has to begin with https://, except on this machine")]
    InClear,
    /// It has more than a scheme, a host and a path.
    #[error("the API's address has a user, a query or a fragment")]
    TooMuch,
}

/// Why nothing is sent to a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PlaceError {
    #[error("no URL")]
    NotAUrl,
    #[error("the URL is not on the API's own scheme, host and port")]
    Elsewhere,
}

/// Where the API is: `https://api.github.com`, or `https://HOST/api/v3` of a GitHub Enterprise server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiBase {
    scheme: Scheme,
    host: String,
    port: u16,
    /// Without a slash at its end.
    path: String,
}

impl Default for ApiBase {
    fn default() -> Self {
        Self {
            scheme: Scheme::HTTPS,
            host: "api.github.com".to_owned(),
            port: 443,
            path: String::new(),
        }
    }
}

impl ApiBase {
    /// The base that `url` names. HTTP in clear is for doubles on this machine alone: a token goes with every request.
    ///
    /// # Errors
    /// [`BaseError`] where it names none.
    pub fn parse(url: &str) -> Result<Self, BaseError> {
        if url.contains('#') {
            return Err(BaseError::TooMuch);
        }
        let uri: Uri = url.trim().parse().map_err(|_invalid| BaseError::NotAUrl)?;
        let origin = Origin::of(&uri).ok_or(BaseError::NotAUrl)?;
        if uri.query().is_some() || has_user(&uri) {
            return Err(BaseError::TooMuch);
        }
        if origin.scheme == Scheme::HTTP && !is_loopback(&origin.host) {
            return Err(BaseError::InClear);
        }
        Ok(Self {
            scheme: origin.scheme,
            host: origin.host,
            port: origin.port,
            path: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// The host as targets name it: with its port where that is not the scheme's own.
    #[must_use]
    pub fn host(&self) -> String {
        if default_port(&self.scheme) == Some(self.port) {
            self.host.clone()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Where `url` is: on the API's own host, or nowhere. What is relative begins at the base.
    pub(super) fn locate(&self, url: &str) -> Result<Place, PlaceError> {
        if url
            .split(['/', '?', '#'])
            .next()
            .is_some_and(|first| first.ends_with(':'))
        {
            return self.locate_absolute(url);
        }
        let relative = url.strip_prefix('/').unwrap_or(url);
        let path = format!("{}/{relative}", self.path);
        // A fragment stays here, as it does with a URL.
        let path = path.split('#').next().unwrap_or_default();
        self.place(path.parse().map_err(|_invalid| PlaceError::NotAUrl)?)
    }

    /// Where a redirect leads, which begins at the host and not at the base. `None` where that is no place of this API.
    pub(super) fn redirected(&self, location: &str) -> Option<Place> {
        if location.starts_with('/') && !location.starts_with("//") {
            return location.parse().ok().and_then(|path| self.place(path).ok());
        }
        self.locate_absolute(location).ok()
    }

    fn locate_absolute(&self, url: &str) -> Result<Place, PlaceError> {
        let uri: Uri = url.parse().map_err(|_invalid| PlaceError::NotAUrl)?;
        let origin = Origin::of(&uri).ok_or(PlaceError::NotAUrl)?;
        let own = origin.scheme == self.scheme && origin.host == self.host && origin.port == self.port;
        if !own || has_user(&uri) {
            return Err(PlaceError::Elsewhere);
        }
        let path = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        self.place(path)
    }

    /// The host is always our own text, and only the path is theirs: two readings of one URL lead to no other host.
    fn place(&self, path: PathAndQuery) -> Result<Place, PlaceError> {
        let authority = format!("{}:{}", self.host, self.port);
        let authority = if default_port(&self.scheme) == Some(self.port) {
            self.host.as_str()
        } else {
            authority.as_str()
        };
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(authority);
        let uri = uri.path_and_query(path).build();
        uri.map(Place).map_err(|_invalid| PlaceError::NotAUrl)
    }
}

/// A URL on the API's own host. Only [`ApiBase`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place(Uri);

impl Place {
    /// The path without its query, which is what errors name.
    pub(super) fn path(&self) -> &str {
        self.0.path()
    }

    /// The whole URL.
    pub(super) fn url(&self) -> String {
        self.0.to_string()
    }
}

struct Origin {
    scheme: Scheme,
    host: String,
    port: u16,
}

impl Origin {
    fn of(uri: &Uri) -> Option<Self> {
        let scheme = uri.scheme()?.clone();
        let host = uri.host().filter(|host| !host.is_empty())?.to_ascii_lowercase();
        let port = match uri.authority()?.port() {
            Some(port) => port.as_u16(),
            None => default_port(&scheme)?,
        };
        let known = default_port(&scheme).is_some();
        known.then_some(Self { scheme, host, port })
    }
}

fn default_port(scheme: &Scheme) -> Option<u16> {
    if *scheme == Scheme::HTTPS {
        Some(443)
    } else {
        (*scheme == Scheme::HTTP).then_some(80)
    }
}

fn has_user(uri: &Uri) -> bool {
    uri.authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(base: &str, url: &str) -> Result<String, PlaceError> {
        ApiBase::parse(base).unwrap().locate(url).map(|place| place.url())
    }

    #[test]
    fn what_is_relative_begins_at_the_base() {
        let ghes = "https://ghe.acme.example/api/v3/";
        for (base, given, whole) in [
            (
                "https://api.github.com",
                "/repos/acme/app/events?per_page=100",
                "https://api.github.com/repos/acme/app/events?per_page=100",
            ),
            (ghes, "/orgs/acme", "https://ghe.acme.example/api/v3/orgs/acme"),
            (ghes, "orgs/acme#part", "https://ghe.acme.example/api/v3/orgs/acme"),
            ("http://127.0.0.1:4567", "/x", "http://127.0.0.1:4567/x"),
            ("http://[::1]:4567", "/x", "http://[::1]:4567/x"),
            (
                "https://api.github.com",
                "//elsewhere.example/x",
                "https://api.github.com//elsewhere.example/x",
            ),
            (
                "https://api.github.com",
                "@elsewhere.example/x",
                "https://api.github.com/@elsewhere.example/x",
            ),
        ] {
            assert_eq!(url(base, given).as_deref(), Ok(whole));
        }
        assert_eq!(
            ApiBase::default(),
            ApiBase::parse("https://API.github.com:443/").unwrap()
        );
    }

    #[test]
    fn an_absolute_url_is_on_the_apis_own_host_or_nowhere() {
        let base = "https://api.github.com";
        let next = "https://api.github.com/repositories/1/events?page=2";
        assert_eq!(url(base, next).as_deref(), Ok(next));
        assert_eq!(
            url(base, "HTTPS://Api.GitHub.com:443/x").as_deref(),
            Ok("https://api.github.com/x")
        );
        for other in [
            "http://api.github.com/x",
            "https://api.github.com:8443/x",
            "https://api.github.com.elsewhere.example/x",
            "https://elsewhere.example/api.github.com",
            "https://api.github.com@elsewhere.example/x",
            "https://user@api.github.com/x",
            "ftp://api.github.com/x",
        ] {
            assert!(url(base, other).is_err(), "{other}");
        }
        for odd in [
            "https://",
            "https:///x",
            "https:/x",
            "/a b",
            "/\u{7f}",
            "https://api.github.com\\@elsewhere.example/",
        ] {
            assert!(url(base, odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_redirect_begins_at_the_host() {
        let base = ApiBase::parse("https://ghe.acme.example/api/v3").unwrap();
        let to = |location: &str| base.redirected(location).map(|place| place.url());
        let moved = "https://ghe.acme.example/api/v3/repositories/1";
        assert_eq!(to(moved).as_deref(), Some(moved));
        assert_eq!(to("/api/v3/repositories/1").as_deref(), Some(moved));
        for none in [
            "",
            "//elsewhere.example/x",
            "repositories/1",
            "https://elsewhere.example/x",
            "\\x",
        ] {
            assert_eq!(to(none), None, "{none}");
        }
    }

    #[test]
    fn a_base_is_secure_or_on_this_machine_and_nothing_but_a_base() {
        let host = |text: &str| ApiBase::parse(text).map(|base| base.host());
        assert_eq!(
            host("https://ghe.acme.example/api/v3").as_deref(),
            Ok("ghe.acme.example")
        );
        assert_eq!(
            host("https://ghe.acme.example:8443").as_deref(),
            Ok("ghe.acme.example:8443")
        );
        for local in ["http://127.0.0.1:80", "http://localhost", "http://[::1]"] {
            assert!(host(local).is_ok(), "{local}");
        }
        for clear in [
            "http://api.github.com",
            "http://127.0.0.1.elsewhere.example",
            "http://10.0.0.1",
        ] {
            assert_eq!(host(clear), Err(BaseError::InClear), "{clear}");
        }
        for more in ["https://h/?q", "https://u:p@h", "https://h/#f"] {
            assert_eq!(host(more), Err(BaseError::TooMuch), "{more}");
        }
        for none in ["", "api.github.com", "/api", "ftp://h", "https://"] {
            assert_eq!(host(none), Err(BaseError::NotAUrl), "{none}");
        }
    }
}
