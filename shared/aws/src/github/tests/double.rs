//! A small HTTP server on loopback that answers as a test says. It ends with the test, and takes a bounded number of
//! connections of one request each.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

const CONNECTIONS_MAX: usize = 64;
const HEAD_BYTES_MAX: usize = 64 * 1_024;
/// What a flood offers, in chunks of so many bytes.
pub(super) const FLOOD_BYTES: usize = 64 * 1_024 * 1_024;
const FLOOD_CHUNK_BYTES: usize = 64 * 1_024;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) at: Instant,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Such as `GET /x`.
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.method, self.target)
    }
}

/// How a request is answered.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Whole {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    },
    /// Not at all.
    Silence,
    /// With a head, and a body that never comes.
    HeadOnly { content_length: usize },
    /// With a body of unknown length, until the client has enough.
    Flood,
}

pub(super) fn reply(status: u16, body: &str) -> Reply {
    Reply::Whole {
        status,
        headers: Vec::new(),
        body: body.as_bytes().to_vec(),
    }
}

impl Reply {
    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        if let Self::Whole { headers, .. } = &mut self {
            headers.push((name, value.into()));
        }
        self
    }
}

/// The server.
#[derive(Debug)]
pub(super) struct Double {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    flooded: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Drop for Double {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Double {
    /// Begins to serve. `answer` also sees how many requests came before.
    pub(super) async fn serve(answer: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let flooded = Arc::new(AtomicUsize::new(0));
        let (seen_by_all, flooded_by_all, answer) = (Arc::clone(&seen), Arc::clone(&flooded), Arc::new(answer));
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            for _ in 0..CONNECTIONS_MAX {
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                let (seen, flooded, answer) = (
                    Arc::clone(&seen_by_all),
                    Arc::clone(&flooded_by_all),
                    Arc::clone(&answer),
                );
                connections.spawn(async move {
                    serve_one(stream, &seen, &flooded, &*answer).await;
                });
            }
            while connections.join_next().await.is_some() {}
        });
        Self {
            address,
            seen,
            flooded,
            serving,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.seen().iter().map(Seen::line).collect()
    }

    /// How much of floods was sent, in bytes.
    pub(super) fn flooded_bytes(&self) -> usize {
        self.flooded.load(Ordering::SeqCst)
    }
}

async fn serve_one(
    mut stream: TcpStream,
    seen: &Mutex<Vec<Seen>>,
    flooded: &AtomicUsize,
    answer: &(dyn Fn(&Seen, usize) -> Reply + Send + Sync),
) {
    let Some(request) = read_head(&mut stream).await else {
        return;
    };
    let reply = {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(request.clone());
        let before = seen.len() - 1;
        answer(&request, before)
    };
    // The client may have gone: then nobody waits for the rest.
    let _unsent = write(&mut stream, reply, flooded).await;
}

async fn write(stream: &mut TcpStream, reply: Reply, flooded: &AtomicUsize) -> std::io::Result<()> {
    match reply {
        Reply::Whole { status, headers, body } => {
            let mut head = format!("HTTP/1.1 {status} Status\r\nconnection: close\r\n");
            if status != 304 {
                head.push_str(&format!("content-length: {}\r\n", body.len()));
            }
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            stream.write_all(format!("{head}\r\n").as_bytes()).await?;
            stream.write_all(&body).await?;
            stream.shutdown().await
        }
        Reply::Silence => std::future::pending().await,
        Reply::HeadOnly { content_length } => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {content_length}\r\n\r\n");
            stream.write_all(head.as_bytes()).await?;
            std::future::pending().await
        }
        Reply::Flood => {
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).await?;
            let chunk = [b"10000\r\n".as_slice(), &vec![b'x'; FLOOD_CHUNK_BYTES], b"\r\n"].concat();
            for _ in 0..FLOOD_BYTES / FLOOD_CHUNK_BYTES {
                stream.write_all(&chunk).await?;
                flooded.fetch_add(FLOOD_CHUNK_BYTES, Ordering::SeqCst);
            }
            stream.write_all(b"0\r\n\r\n").await
        }
    }
}

/// The head of a request; none of those that a test sees has a body.
#[expect(
    clippy::disallowed_methods,
    reason = "when a request arrived is what a test of pacing measures"
)]
async fn read_head(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        if bytes.len() > HEAD_BYTES_MAX || stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let head = String::from_utf8(bytes).ok()?;
    let (line, headers) = head.trim_end().split_once("\r\n")?;
    let mut line = line.split(' ');
    Some(Seen {
        method: line.next()?.to_owned(),
        target: line.next()?.to_owned(),
        headers: headers
            .split("\r\n")
            .filter_map(|header| header.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect(),
        at: Instant::now(),
    })
}
