//! Sending a signed message to an endpoint.
//!
//! Owns: one request by HTTP or HTTPS within its time, and its signature after Standard Webhooks. Never: follows
//! a redirect, tries again, or keeps a connection.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use ring::hmac;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::config::SigningKey;
use crate::telemetry;

/// An attempt takes so long at most, from the look-up of the name to the head of the response.
pub const WITHIN: Duration = Duration::from_secs(15);

/// No more of a response is read, and that only where it tells of a failure.
const READ_MAX: usize = 1_024;

/// Letters of an error that are kept.
pub const ERROR_MAX: usize = 300;

/// A message as it is sent.
pub struct Message<'a> {
    /// The same at every attempt.
    pub id: &'a str,
    /// Seconds since 1970.
    pub at: i64,
    pub body: &'a str,
}

/// Why there is no response, or no good one.
#[derive(Debug, thiserror::Error)]
enum Unsent {
    #[error("there was no answer within {WITHIN:?}")]
    Late,
    #[error("cannot connect")]
    Connect(#[source] std::io::Error),
    #[error("the name of the host is none")]
    Name,
    #[error("the connection cannot be made safe")]
    Tls(#[source] std::io::Error),
    #[error("the response is none")]
    Http(#[source] hyper::Error),
    #[error("the message cannot be written")]
    Request(#[source] hyper::http::Error),
}

/// How an attempt ended: the status of the response, if there was one, and what to tell of a failure.
pub type Answer = (Option<u16>, Option<String>);

/// Sends a message once.
pub async fn send(url: &Uri, secret: &SigningKey, message: &Message<'_>) -> Answer {
    let sent = tokio::time::timeout(WITHIN, exchange(url, secret, message)).await;
    match sent.unwrap_or(Err(Unsent::Late)) {
        Ok((status, text)) => (Some(status), text),
        Err(unsent) => (None, Some(clipped(&telemetry::chain(&unsent)))),
    }
}

/// The header `webhook-signature` of a message.
fn signature(secret: &SigningKey, message: &Message<'_>) -> String {
    let Message { id, at, body } = message;
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose());
    let tag = hmac::sign(&key, format!("{id}.{at}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(tag))
}

async fn exchange(
    url: &Uri,
    secret: &SigningKey,
    message: &Message<'_>,
) -> Result<(u16, Option<String>), Unsent> {
    let host = url.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_safe = url.scheme_str() == Some("https");
    let port = url.port_u16().unwrap_or(if is_safe { 443 } else { 80 });
    let path = url.path_and_query().map_or("/", |it| it.as_str());
    let authority = url.authority().map_or(host, |it| it.as_str());
    let request = Request::post(path)
        .header(HOST, authority)
        .header(USER_AGENT, concat!("ductwork/", env!("CARGO_PKG_VERSION")))
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "close")
        .header("webhook-id", message.id)
        .header("webhook-timestamp", message.at)
        .header("webhook-signature", signature(secret, message))
        .body(Body::from(message.body.to_owned()))
        .map_err(Unsent::Request)?;
    let stream = TcpStream::connect((host, port))
        .await
        .map_err(Unsent::Connect)?;
    if !is_safe {
        return ask(stream, request).await;
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|_| Unsent::Name)?;
    let stream = connector()
        .connect(name, stream)
        .await
        .map_err(Unsent::Tls)?;
    ask(stream, request).await
}

/// Trusts the authorities that the program was built with, as the connections to PostgreSQL do.
fn connector() -> TlsConnector {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        let roots = RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        };
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has what these versions need")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    });
    TlsConnector::from(Arc::clone(config))
}

async fn ask<S>(stream: S, request: Request<Body>) -> Result<(u16, Option<String>), Unsent>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(Unsent::Http)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(Unsent::Http)?;
        let status = response.status();
        let text = match status.is_success() {
            true => None,
            false => Some(told(response.into_body()).await),
        };
        Ok((status.as_u16(), text))
    };
    // The connection is served until there is an answer, which may come after its end.
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

/// The beginning of what a response says.
async fn told(mut body: Incoming) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < READ_MAX
        && let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await
    {
        if let Ok(part) = frame.into_data() {
            let room = READ_MAX - bytes.len();
            bytes.extend_from_slice(&part[..part.len().min(room)]);
        }
    }
    clipped(&String::from_utf8_lossy(&bytes))
}

/// A text of one line, without anything that a terminal would obey.
fn clipped(text: &str) -> String {
    let safe = text.chars().map(|char| match char.is_control() {
        true => ' ',
        false => char,
    });
    let text: String = safe.take(ERROR_MAX).collect();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_specification() {
        let secret = SigningKey::read("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let message = Message {
            id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
            at: 1_614_265_330,
            body: r#"{"test": 2432232314}"#,
        };
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(signature(&secret, &message), expected);
    }

    #[test]
    fn what_a_response_says_is_kept_as_a_line() {
        assert_eq!(clipped("no\r\n\x1b[31mwell \n"), "no   [31mwell");
        assert_eq!(clipped(&"é".repeat(999)).chars().count(), ERROR_MAX);
    }
}
