//! The guard before every route.
//!
//! Owns: the names to which the console answers, the bounds of a request, the headers of every response, and the
//! isolation of a route that fails or hangs. Never: knows a route.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, HOST, HeaderMap, HeaderName,
    HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Body as _, Frame, SizeHint};

use crate::engine::counting;
use crate::percent;

use super::failed_sign_ins::Remote;
use super::peer::Peer;
use super::refusal::{Form, Refusal, worded};
use super::serve::{HURRIED_WITHIN, Slots};
use super::{Site, api};

/// The time within which a route must begin its response.
const BUDGET: Duration = Duration::from_secs(5);

/// The longest address of a page: a saved view with many filters is far shorter.
const URI_MAX: usize = 8 << 10;

/// The size of all headers of a request together.
const HEADERS_MAX: usize = 16 << 10;

/// The largest body.
pub const BODY_MAX: usize = 64 << 10;

/// Everything comes from here, only our own files run, and nobody may frame a page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// A response's own policy, in place of the general one.
#[derive(Clone)]
pub struct Policy(pub HeaderValue);

const EACH_RESPONSE: [(HeaderName, &str); 4] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // A page of another site embeds nothing of ours, and shares no window with us.
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    // With `no-referrer`, a browser names no origin when it sends a form of ours, and the form is refused.
    // Proven by tests/browser/keyboard.test.mjs.
    (REFERRER_POLICY, "same-origin"),
];

/// The names to which the console answers. A page of another site whose name its owner has pointed here (DNS
/// rebinding) asks for another name.
pub struct Hosts(Vec<String>);

impl Hosts {
    /// This host's own names, the address that it listens at, and further ones.
    pub fn new(listen: Option<IpAddr>, further: &[String]) -> Self {
        let own = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let all = own.into_iter().chain(listen.map(|it| it.to_string()));
        Self(all.chain(further.iter().cloned()).collect())
    }

    /// Refuses a request for any other name.
    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            let detail = "a request has one Host header";
            return Err(Refusal::new(StatusCode::BAD_REQUEST, detail));
        };
        // A request that also names the host in its first line means that name.
        let named = uri.authority().map(|authority| authority.as_str());
        let host = host.to_str().unwrap_or_default();
        for name in named.into_iter().chain([host]) {
            let asked = without_port(name).to_ascii_lowercase();
            if !self.0.contains(&asked) {
                let detail = format!(
                    "the console does not answer to this name; if it is to, add it to `console.hosts`: {asked}"
                );
                return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, detail));
            }
        }
        Ok(())
    }
}

/// The name or address of `host:port`, without the brackets of an address; empty if the text has any other form.
fn without_port(host: &str) -> &str {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or_default(),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    match port.is_empty() || port.strip_prefix(':').is_some_and(is_port) {
        true => name,
        false => "",
    }
}

/// The largest body of this path.
fn body_max(path: &str) -> usize {
    match path.starts_with("/api/v1/") {
        true => api::BODY_MAX,
        false => BODY_MAX,
    }
}

/// Refuses a request that is too large.
fn within_bounds(uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let body_max = body_max(uri.path());
    let uri = uri.path_and_query().map_or(0, |uri| uri.as_str().len());
    let sizes = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len());
    let body = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok());
    let body = body.map_or(Ok(0), str::parse::<u64>).unwrap_or(u64::MAX);
    let (status, what, max) = if uri > URI_MAX {
        (StatusCode::URI_TOO_LONG, "an address", URI_MAX)
    } else if sizes.sum::<usize>() > HEADERS_MAX {
        (
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "all headers together",
            HEADERS_MAX,
        )
    } else if body > body_max as u64 {
        (StatusCode::PAYLOAD_TOO_LARGE, "a body", body_max)
    } else {
        return Ok(());
    };
    Err(Refusal::new(status, format!("{what} may have {max} bytes")))
}

/// Refuses an address whose path is not text, and a page's address with a NUL in its path: no text in the database
/// contains one, and PostgreSQL accepts none. The API's routes name the parameter that contains it.
fn readable(uri: &Uri, form: Form) -> Result<(), Refusal> {
    let detail = match uri.path() {
        path if !path.split('/').all(percent::is_text) => {
            "the address is not text: a path is text in UTF-8, percent-encoded"
        }
        path if form != Form::Problem && path.contains("%00") => {
            "the address contains a NUL, and no name or text in the database does"
        }
        _ => return Ok(()),
    };
    Err(Refusal::new(StatusCode::BAD_REQUEST, detail))
}

/// The part of a request's body that a route has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// The route has asked for none of it.
    Unread,
    /// The route has asked for it, and not all of it has arrived.
    Awaited,
    /// All of it.
    Whole,
}

/// A request's body, which records how much of it was read.
struct Watched {
    body: Body,
    sent: Arc<Mutex<Sent>>,
}

impl Watched {
    fn note(&self, sent: Sent) {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = sent;
    }
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let is_whole = matches!(polled, Poll::Ready(None)) || self.body.is_end_stream();
        self.note(if is_whole { Sent::Whole } else { Sent::Awaited });
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The middleware around all routes, and around the response when there is no route.
pub async fn guard(State(site): State<Arc<Site>>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    if let Some(peer) = request.extensions().get::<Peer>() {
        let remote = peer.remote(&site.terms.proxy, request.headers());
        request.extensions_mut().insert(remote);
    }
    let form = Form::of(request.uri().path());
    let (uri, headers) = (request.uri(), request.headers());
    let max = body_max(uri.path());
    // The path itself may contain text that must not appear in a log, and may be different each time.
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map(MatchedPath::as_str);
    let admitted = within_bounds(uri, headers)
        .and_then(|()| site.hosts.check(uri, headers))
        .and_then(|()| readable(uri, form));
    let response = match admitted {
        Ok(()) => {
            let method = request.method().clone();
            let from = request.extensions().get::<Remote>().copied();
            let sent = Arc::new(Mutex::new(match request.body().is_end_stream() {
                true => Sent::Whole,
                false => Sent::Unread,
            }));
            let watched = Arc::clone(&sent);
            let request = request.map(|body| {
                Body::new(Watched {
                    body,
                    sent: watched,
                })
            });
            let read = || *sent.lock().unwrap_or_else(PoisonError::into_inner);
            let slots = request.extensions().get::<Slots>();
            let body_within = match slots.is_some_and(Slots::are_scarce) {
                true => HURRIED_WITHIN,
                false => BUDGET,
            };
            let route = answered(next.run(request), &method, read, body_within, route);
            let from = from.unwrap_or(Remote::HERE);
            site.outgoing.admit(from, &method, route.await)
        }
        Err(refusal) => axum::response::IntoResponse::into_response(refusal),
    };
    let (status, took) = (response.status().as_u16(), began.elapsed());
    let counts = &site.terms.counts;
    counts.count(|counts| counting::answered(counts, route, status, took));
    with_headers(worded(response, form, (max, route)))
}

/// The value of a future; none if it panics. The future may share with others only state whose locks a panic does
/// not spoil.
pub(super) async fn caught<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let polled = std::future::poll_fn(|cx| {
        let polled = AssertUnwindSafe(|| future.as_mut().poll(cx));
        match std::panic::catch_unwind(polled) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Some(value)),
            Err(_) => Poll::Ready(None),
        }
    });
    polled.await
}

/// Waits for a route's response, within its budget. A panic affects that request alone.
async fn answered(
    route: impl Future<Output = Response>,
    method: &Method,
    sent: impl Fn() -> Sent,
    body_within: Duration,
    name: Option<&str>,
) -> Response {
    let late = async {
        tokio::time::sleep(body_within).await;
        if sent() != Sent::Awaited {
            std::future::pending().await
        }
    };
    let routed = tokio::select! {
        biased;
        routed = tokio::time::timeout(BUDGET, caught(route)) => routed.ok(),
        () = late => None,
    };
    let refusal = match routed {
        Some(Some(response)) => return response,
        Some(None) => {
            tracing::error!(%method, route = name, "a route panicked, and failed this request");
            let detail = "the console's log says why";
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
        }
        // Nothing is done before the whole body has arrived.
        None if sent() == Sent::Awaited => {
            let detail = format!(
                "the body of the request did not come within {} s: nothing was done",
                body_within.as_secs()
            );
            Refusal::new(StatusCode::REQUEST_TIMEOUT, detail)
        }
        None => {
            tracing::info!(%method, route = name, "a route took too long, and was given up");
            let done = match *method == Method::GET || *method == Method::HEAD {
                true => "",
                false => "; it may have been done or not",
            };
            let detail = format!("this took longer than {} s{done}", BUDGET.as_secs());
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, detail).later(5)
        }
    };
    axum::response::IntoResponse::into_response(refusal)
}

fn with_headers(mut response: Response) -> Response {
    let policy = match response.extensions_mut().remove::<Policy>() {
        Some(own) => own.0,
        None => HeaderValue::from_static(POLICY),
    };
    let headers = response.headers_mut();
    for (name, value) in EACH_RESPONSE {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    // A file of ours that never changes sets this header itself.
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}
