//! One request to another party's server.
//!
//! Owns: a POST over HTTP or HTTPS within its time, and the trusted authorities. Never: follows a redirect, tries
//! again, or keeps a connection.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use axum::body::Body;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper::http::request::Builder;
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::file;
use crate::telemetry;

use super::tls;

/// The time limit of an attempt, from the lookup of the name to the last part of the response that is read.
pub const WITHIN: Duration = Duration::from_secs(15);

/// The part of it that is left for a response's body: the status is known by then, and counts without the body.
const BODY_WITHIN: Duration = Duration::from_secs(2);

/// The time that is left for the rest of an attempt, once there is a status.
const REST: Duration = Duration::from_millis(500);

/// The number of bytes of a response that are read.
const READ_MAX: usize = 4_096;

/// The size in bytes that a file of authorities exceeds only by mistake.
const CA_MAX: u64 = 1 << 20;

/// The number of an error's characters that are kept.
const ERROR_MAX: usize = 300;

/// The reason why there is no response.
#[derive(Debug, thiserror::Error)]
enum Unsent {
    #[error("there was no answer within {WITHIN:?}")]
    Late,
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    #[error("the name of the host is none")]
    Name,
    #[error("the authorities in {0} cannot be used: {1}")]
    Authorities(String, String),
    #[error("the connection cannot be made safe: {0}")]
    Tls(String),
    #[error("the response is none")]
    Http(#[source] hyper::Error),
    #[error("the request cannot be written")]
    Request(#[source] hyper::http::Error),
}

/// A response, as far as it was read.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    /// The header `Retry-After`.
    pub retry_after: Option<String>,
    /// The beginning of the body.
    pub text: String,
}

/// Sends this JSON once, with further headers, to an endpoint that these authorities vouch for; without a file of
/// authorities, it trusts those with which the program was built. The error is a line for people.
pub async fn post(
    url: &Uri,
    ca: Option<&Path>,
    headers: impl FnOnce(Builder) -> Builder,
    body: String,
) -> Result<Response, String> {
    let until = Instant::now() + WITHIN;
    let exchange = exchange(url, ca, headers(Request::post(path(url))), body, until);
    let answer = tokio::time::timeout_at(until, exchange).await;
    answer
        .unwrap_or(Err(Unsent::Late))
        .map_err(|unsent| clipped(&telemetry::chain(&unsent)))
}

/// The path and the query of a request; for an address without a path, the root's path.
fn path(url: &Uri) -> String {
    match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    }
}

async fn exchange(
    url: &Uri,
    ca: Option<&Path>,
    request: Builder,
    body: String,
    until: Instant,
) -> Result<Response, Unsent> {
    let host = url.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_safe = url.scheme_str() == Some("https");
    let port = url.port_u16().unwrap_or(if is_safe { 443 } else { 80 });
    let authority = url.authority().map_or(host, |it| it.as_str());
    let request = request
        .header(HOST, authority)
        .header(USER_AGENT, concat!("ductwork/", env!("CARGO_PKG_VERSION")))
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "close")
        .body(Body::from(body))
        .map_err(Unsent::Request)?;
    let connector = match (is_safe, ca) {
        (false, _) => None,
        (true, None) => Some(connector()),
        (true, Some(ca)) => Some(TlsConnector::from(trusting(
            authorities(ca, file::read).await?,
        ))),
    };
    let addresses = lookup_host((host, port)).await.map_err(Unsent::Connect)?;
    let addresses: Vec<SocketAddr> = addresses.collect();
    let stream = connect(&addresses, until).await.map_err(Unsent::Connect)?;
    let Some(connector) = connector else {
        return ask(stream, request, until).await;
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|_| Unsent::Name)?;
    let wrong = |error| Unsent::Tls(tls::refused(&error, host, ca.is_some()));
    let stream = connector.connect(name, stream).await.map_err(wrong)?;
    ask(stream, request, until).await
}

/// Connects to the first of these addresses that answers. Each has an equal share of the time that is left, so that an
/// address that does not answer leaves enough for the others.
async fn connect(addresses: &[SocketAddr], until: Instant) -> io::Result<TcpStream> {
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let mut left = addresses.len() as u32;
    for address in addresses {
        let share = until.saturating_duration_since(Instant::now()) / left;
        left -= 1;
        error = match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(refused)) => refused,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, "the host does not answer"),
        };
    }
    Err(error)
}

/// Trusts the authorities with which the program was built, as the connections to PostgreSQL do.
fn connector() -> TlsConnector {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        trusting(RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        })
    });
    TlsConnector::from(Arc::clone(config))
}

fn trusting(roots: RootCertStore) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has what these versions need")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// Reads a file of at most so many bytes.
type Read = fn(&Path, u64) -> Result<Vec<u8>, file::Refused>;

/// The authorities in a PEM file, and no others. The file is read for each request, so that a new one needs no
/// restart of the console.
async fn authorities(path: &Path, read: Read) -> Result<RootCertStore, Unsent> {
    let wrong = |why: String| Unsent::Authorities(path.display().to_string(), why);
    let turn = turn(path).lock_owned().await;
    let file = path.to_owned();
    let reading = move || {
        // The turn lasts as long as the read, even where nobody waits for it any more.
        let _turn = turn;
        read(&file, CA_MAX)
    };
    let read = tokio::task::spawn_blocking(reading).await;
    let read = read.map_err(|failed| wrong(failed.to_string()))?;
    let pem = read.map_err(|refused| wrong(refused.to_string()))?;
    trusted(&pem).map_err(wrong)
}

/// The turn to read a file of authorities. A disk that does not answer keeps one thread per file, and not one more for
/// each message. The configuration names a few files at most.
fn turn(path: &Path) -> Arc<tokio::sync::Mutex<()>> {
    type Turns = HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>;
    static TURNS: LazyLock<Mutex<Turns>> = LazyLock::new(Mutex::default);
    let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(turns.entry(path.to_owned()).or_default())
}

/// The authorities in this PEM text, or the reason why they cannot be used.
fn trusted(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let added = certificate.map(|it| roots.add(it));
        match added {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error.to_string()),
            Err(error) => return Err(error.to_string()),
        }
    }
    match roots.is_empty() {
        true => Err("it has no certificate in PEM".to_owned()),
        false => Ok(roots),
    }
}

async fn ask<S>(stream: S, request: Request<Body>, until: Instant) -> Result<Response, Unsent>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(Unsent::Http)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(Unsent::Http)?;
        let later = response.headers().get(RETRY_AFTER);
        let later = later.and_then(|it| it.to_str().ok());
        let now = Instant::now();
        let until = (until - REST).min(now + BODY_WITHIN);
        Ok(Response {
            status: response.status().as_u16(),
            retry_after: later.map(str::to_owned),
            text: read_body(response.into_body(), until).await,
        })
    };
    // The connection is served until there is an answer, which may come after the connection's end.
    let served = async {
        let _ended = connection.await;
        std::future::pending().await
    };
    let (answer, served) = (pin!(answer), pin!(served));
    tokio::select! {
        answer = answer => answer,
        never = served => never,
    }
}

/// The beginning of the response's text, as far as it arrives in time.
async fn read_body(mut body: Incoming, until: Instant) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < READ_MAX
        && let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx))
        && let Ok(Some(Ok(frame))) = tokio::time::timeout_at(until, frame).await
    {
        if let Ok(part) = frame.into_data() {
            let room = READ_MAX - bytes.len();
            bytes.extend_from_slice(&part[..part.len().min(room)]);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A text of one line, without control characters that a terminal would obey.
pub fn clipped(text: &str) -> String {
    let safe = text.chars().map(|char| match char.is_control() {
        true => ' ',
        false => char,
    });
    let text: String = safe.take(ERROR_MAX).collect();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// A listener whose queue is full: it answers no further connection, as an address behind which nobody is.
    async fn silent() -> (TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queue = Vec::new();
        let answers =
            || tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address));
        while let Ok(connected) = answers().await {
            queue.push(connected.unwrap());
            assert!(queue.len() < 100, "its queue does not fill up");
        }
        (listener, queue)
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_leaves_time_for_the_next_one() {
        let (silent, _queue) = silent().await;
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = [&silent, &other].map(|it| it.local_addr().unwrap());
        let until = Instant::now() + Duration::from_secs(4);
        let stream = connect(&addresses, until).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addresses[1]);
        assert!(Instant::now() < until, "nothing is left for the request");
    }

    #[tokio::test]
    async fn the_error_of_the_last_address_is_the_reason() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = closed.local_addr().unwrap();
        drop(closed);
        let until = Instant::now() + Duration::from_secs(4);
        let refused = connect(&[address, address], until).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let nowhere = connect(&[], until).await.unwrap_err();
        assert_eq!(nowhere.to_string(), "the host has no address");
    }

    #[test]
    fn what_a_response_says_is_kept_as_a_line() {
        assert_eq!(clipped("no\r\n\x1b[31mwell \n"), "no   [31mwell");
        assert_eq!(clipped(&"é".repeat(999)).chars().count(), ERROR_MAX);
    }

    #[test]
    fn an_address_without_a_path_means_the_root() {
        for (url, expected) in [
            ("http://shop.example", "/"),
            ("http://shop.example/", "/"),
            ("http://shop.example?x=1", "/?x=1"),
            ("http://shop.example/a/?x=1&y", "/a/?x=1&y"),
        ] {
            assert_eq!(path(&url.parse().unwrap()), expected, "{url}");
        }
    }

    #[tokio::test]
    async fn authorities_that_cannot_be_used_are_named_with_the_reason() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("ca.pem");
        let said = async || {
            authorities(&path, file::read)
                .await
                .unwrap_err()
                .to_string()
        };
        let missing = said().await;
        assert!(missing.contains("No such file"), "{missing}");
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (text, why) in [
            ("", "it has no certificate in PEM"),
            ("hello", "it has no certificate in PEM"),
            (broken, "invalid peer certificate"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n", "missing"),
        ] {
            std::fs::write(&path, text).unwrap();
            let said = said().await;
            assert!(said.contains("ca.pem cannot be used"), "{said}");
            assert!(said.contains(why), "{said}");
        }
    }

    /// Set when the disk of the test answers.
    static ANSWERS: OnceLock<()> = OnceLock::new();

    /// The number of reads that it was asked for.
    static READS: AtomicUsize = AtomicUsize::new(0);

    fn read_late(_path: &Path, _max: u64) -> Result<Vec<u8>, file::Refused> {
        READS.fetch_add(1, Ordering::SeqCst);
        let until = Instant::now() + Duration::from_secs(10);
        while ANSWERS.get().is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Vec::new())
    }

    #[tokio::test]
    async fn authorities_on_a_disk_that_does_not_answer_hold_up_nothing_else_and_keep_one_thread() {
        let moment = Duration::from_millis(50);
        let path = Path::new("/silent/ca.pem");
        for _ in 0..3 {
            // The timer of this only thread runs meanwhile.
            let read = tokio::time::timeout(moment, authorities(path, read_late)).await;
            assert!(read.is_err(), "the disk answers");
        }
        let other = authorities(Path::new("/nowhere/ca.pem"), file::read).await;
        assert!(other.unwrap_err().to_string().contains("No such file"));
        ANSWERS.set(()).unwrap();
        let empty = authorities(path, read_late).await.unwrap_err();
        assert!(empty.to_string().contains("no certificate"), "{empty}");
        assert_eq!(READS.load(Ordering::SeqCst), 2);
    }
}
