//! The fake on a socket: it answers requests, and posts its deliveries.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::ports::TimeAndChance;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, IF_NONE_MATCH};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::control::PREFIX;
use super::log::{Outcome, Post};
use super::page::{Reply, Request};
use super::{Shared, lock};

/// How long GitHub waits for an endpoint.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest body of an operator's request, in bytes.
const CONTROL_BYTES_MAX: usize = 64 * 1_024;

/// Serves `fake` on `listener`, and posts each delivery soon after a request has made it.
///
/// Ends with an error only; drop it to stop. What happens without a request, by a test's own hand, [`deliver`] posts.
///
/// # Errors
/// Where the listener fails.
pub async fn serve<T>(fake: Shared, time: T, listener: TcpListener) -> io::Result<Infallible>
where
    T: TimeAndChance + Clone + 'static,
{
    let made = Arc::new(Notify::new());
    tokio::select! {
        ended = accept(&fake, &time, &made, &listener) => ended,
        never = keep_delivering(&fake, &time, &made) => match never {},
    }
}

async fn accept<T>(fake: &Shared, time: &T, made: &Arc<Notify>, listener: &TcpListener) -> io::Result<Infallible>
where
    T: TimeAndChance + Clone + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                connections.spawn(converse(fake.clone(), time.clone(), made.clone(), stream));
            }
            // Keeps the set no larger than what is open.
            Some(_ended) = connections.join_next() => {}
        }
    }
}

/// Answers the requests of one connection.
async fn converse<T: TimeAndChance>(fake: Shared, time: T, made: Arc<Notify>, stream: TcpStream) {
    let service = service_fn(async |request| {
        let reply = answer(&fake, &time, request).await;
        made.notify_one();
        Ok::<_, Infallible>(response(reply))
    });
    // A connection that breaks is its client's affair.
    let _broken = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer<T: TimeAndChance>(fake: &Shared, time: &T, request: hyper::Request<Incoming>) -> Reply {
    let (parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    if target.starts_with(PREFIX) {
        let Some(body) = read(body).await else {
            return Reply::message(413, "The body is too large or broken off.");
        };
        return lock(fake).control(parts.method.as_str(), target, &body, time.now());
    }
    let header = |name| {
        parts
            .headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let request = Request {
        method: parts.method.as_str(),
        target,
        authorization: header(AUTHORIZATION),
        if_none_match: header(IF_NONE_MATCH),
    };
    let reply = lock(fake).handle(&request, time.now());
    match reply {
        Some(reply) => reply,
        None => pending().await,
    }
}

/// The whole of an operator's body; `None` where it is too large, or does not end.
async fn read(mut body: Incoming) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(some) = frame.ok()?.into_data() {
            bytes.extend_from_slice(&some);
        }
        if bytes.len() > CONTROL_BYTES_MAX {
            return None;
        }
    }
    Some(bytes)
}

fn response(reply: Reply) -> hyper::Response<String> {
    let mut response = hyper::Response::new(reply.body);
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in reply.headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}

async fn keep_delivering<T: TimeAndChance>(fake: &Shared, time: &T, made: &Notify) -> Infallible {
    loop {
        deliver(fake, time).await;
        made.notified().await;
    }
}

/// Posts every pending delivery once, one after the other, and records how each ended. Gives their number.
pub async fn deliver<T: TimeAndChance>(fake: &Shared, time: &T) -> usize {
    let posts = lock(fake).take_pending(time.now());
    for delivery in &posts {
        let began = time.now();
        let outcome = match tokio::time::timeout(PATIENCE, post(delivery)).await {
            Ok(Some(status)) => Outcome::answered(status),
            Ok(None) => Outcome::unreachable(),
            Err(_elapsed) => Outcome::timed_out(),
        };
        let ended = time.now();
        lock(fake).record(delivery.delivery, outcome, ended.duration_since(began), ended);
    }
    posts.len()
}

/// Posts a delivery over plain HTTP, and gives the answer's status; `None` where there was no answer.
async fn post(delivery: &Post) -> Option<u16> {
    let uri: Uri = delivery.url.parse().ok()?;
    let authority = uri.authority()?;
    let address = (authority.host(), authority.port_u16().unwrap_or(80));
    let stream = TcpStream::connect(address).await.ok()?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = hyper::Request::builder().method(Method::POST).uri(path);
    request = request.header(HOST, authority.as_str()).header("accept", "*/*");
    for (name, value) in &delivery.headers {
        request = request.header(*name, value);
    }
    let request = request.body(delivery.body.clone()).ok()?;
    // The connection moves only while it is awaited.
    let mut connecting = JoinSet::new();
    connecting.spawn(connection);
    let response = sender.send_request(request).await.ok()?;
    Some(response.status().as_u16())
}
