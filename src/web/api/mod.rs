//! The API: the console's data and deeds, for programs.
//!
//! Owns: how a request becomes parameters and an answer becomes a response: pages and their bound, entity tags. Never:
//! defines the forms (`wire` does) or the routes (`routes` does).

pub mod actions;
mod body;
pub mod bulks;
pub mod cursor;
pub mod given;
pub mod openapi;
pub mod pipelines;
pub mod processes;
pub mod reports;
pub mod runs;
pub mod series;
pub mod steps;
pub mod waiting;
pub mod webhooks;

use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, RawPathParams, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH,
    LINK, LOCATION,
};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::model::Caller;
use crate::svg::STYLE;

use super::Site;
use super::guard::Policy;
use super::refusal::Refusal;
use super::visitor::{self, Visitor};
use given::{About, Given};

/// The function behind a route.
pub type Handler = fn(Arc<Site>, Given) -> Pin<Box<dyn Future<Output = Answered> + Send>>;

/// The function behind a route that acts.
pub type Doer = fn(Deed) -> Pin<Box<dyn Future<Output = Answered> + Send>>;

/// A request that asks for a deed.
pub struct Deed {
    /// The console.
    pub site: Arc<Site>,
    /// The parameters.
    pub given: Given,
    /// The visitor, who may do it.
    pub visitor: Arc<Visitor>,
    /// The `Idempotency-Key`.
    pub key: Option<String>,
    /// The visitor as a caller, from the headers `traceparent`, `tracestate` and `baggage`.
    pub caller: Caller,
    body: Bytes,
}

impl Deed {
    /// The body.
    fn body<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        body::read(&self.body)
    }
}

/// Its result.
pub type Answered = Result<Answer, Refusal>;

/// The form of a route's answers.
#[derive(Clone, Copy)]
pub enum Form {
    /// JSON of this schema.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// A picture.
    Svg,
    /// Events, one after the other, whose data are JSON of this schema.
    Events(fn(&mut SchemaGenerator) -> Schema),
}

/// A page of a list ends once it has this many bytes; the next page continues it.
const PAGE_BYTES: usize = 4 << 20;

/// Lists omit payloads that are larger.
pub const PAYLOAD_BYTES: i64 = 64 << 10;

/// The same bound for the visitor whose request is being answered: no payload at all if the visitor may not see them.
pub fn payload_bytes() -> i64 {
    match visitor::may_see_payloads() {
        true => PAYLOAD_BYTES,
        false => -1,
    }
}

/// A picture brings its own styles along: the policy allows these and no others.
static PICTURE: LazyLock<Option<Policy>> = LazyLock::new(|| {
    let style = STANDARD.encode(Sha256::digest(format!("\n{STYLE}")));
    let policy = format!("default-src 'none'; style-src 'sha256-{style}'; sandbox");
    HeaderValue::try_from(policy).ok().map(Policy)
});

/// An answer.
pub struct Answer {
    status: StatusCode,
    kind: &'static str,
    body: Vec<u8>,
    /// The parameter, with its value, that requests the next page.
    next: Option<(&'static str, String)>,
    policy: Option<Policy>,
    /// The path of the thing that was made.
    location: Option<String>,
}

impl Answer {
    /// One value.
    pub fn json(value: &impl Serialize) -> Answered {
        Ok(Self::of(JSON, written(value)?))
    }

    /// The same answer with another status.
    pub fn status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// The same answer with the path of the thing that was made.
    pub fn location(self, path: String) -> Self {
        let location = Some(path);
        Self { location, ..self }
    }

    /// A picture.
    pub fn svg(text: String) -> Self {
        Self {
            policy: PICTURE.clone(),
            ..Self::of("image/svg+xml", text.into_bytes())
        }
    }

    /// At most `limit` of these items, in the forms that `form` makes, and fewer if they are large; `next` gives the
    /// parameter that continues after an item.
    pub fn page<'a, T, J: Serialize>(
        items: &'a [T],
        limit: usize,
        form: impl Fn(&'a T) -> J,
        next: impl Fn(&'a T) -> (&'static str, String),
    ) -> Answered {
        let mut body = vec![b'['];
        let mut taken = 0;
        for item in items.iter().take(limit) {
            if taken > 0 {
                body.push(b',');
            }
            body.extend(written(&form(item))?);
            taken += 1;
            if body.len() > PAGE_BYTES {
                break;
            }
        }
        body.push(b']');
        let last = items.get(..taken).and_then(<[T]>::last);
        let last = last.filter(|_| taken < items.len());
        Ok(Self {
            next: last.map(next),
            ..Self::of(JSON, body)
        })
    }

    fn of(kind: &'static str, body: Vec<u8>) -> Self {
        Self {
            status: StatusCode::OK,
            kind,
            body,
            next: None,
            policy: None,
            location: None,
        }
    }

    /// The response to a visitor that may already have this answer.
    fn response(self, uri: &Uri, headers: &HeaderMap) -> Response {
        let digest = Sha256::digest(&self.body);
        let tag: String = digest[..16].iter().map(|it| format!("{it:02x}")).collect();
        let tag = format!("\"{tag}\"");
        let mut response = match has(headers, &tag) {
            true => StatusCode::NOT_MODIFIED.into_response(),
            false => ([(CONTENT_TYPE, self.kind)], self.body).into_response(),
        };
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        let next = self.next.map(|(name, value)| link(uri, name, &value));
        for (name, text) in [(ETAG, Some(tag)), (LINK, next)] {
            // The values consist of our own letters and are percent-encoded.
            if let Some(Ok(value)) = text.map(HeaderValue::try_from) {
                headers.insert(name, value);
            }
        }
        if let Some(policy) = self.policy {
            response.extensions_mut().insert(policy);
        }
        response
    }
}

fn written(value: &impl Serialize) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(value).map_err(|error| {
        tracing::error!(%error, "an answer cannot be written as JSON");
        Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the console's log says why",
        )
    })
}

/// True if the request names this tag.
fn has(headers: &HeaderMap, tag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).iter();
    let tags = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    let mut tags = tags.map(|one| one.trim().trim_start_matches("W/"));
    tags.any(|one| one == tag || one == "*")
}

/// The address of the next page: this page's own, with this parameter.
fn link(uri: &Uri, name: &str, value: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (other, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        if other != name {
            query.append_pair(&other, &value);
        }
    }
    query.append_pair(name, value);
    format!("<{}?{}>; rel=\"next\"", uri.path(), query.finish())
}

/// The route of this function.
pub fn serve(params: &'static [&'static About], handler: Handler) -> MethodRouter<Arc<Site>> {
    get(
        async move |State(site): State<Arc<Site>>,
                    path: RawPathParams,
                    uri: Uri,
                    headers: HeaderMap| {
            let query = uri.query().unwrap_or_default();
            let answer = match Given::read(params, path.iter(), query) {
                Ok(given) => handler(site, given).await,
                Err(refusal) => Err(refusal),
            };
            answer.map(|answer| answer.response(&uri, &headers))
        },
    )
}

/// The longest body of a deed.
pub const BODY_MAX: usize = 1 << 20;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

const BAGGAGE: HeaderName = HeaderName::from_static("baggage");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The route of this function.
pub fn serve_deed(
    method: &Method,
    params: &'static [&'static About],
    doer: Doer,
) -> MethodRouter<Arc<Site>> {
    let serve = match *method {
        Method::DELETE => delete,
        _ => post,
    };
    serve(
        async move |State(site): State<Arc<Site>>,
                    Extension(visitor): Extension<Arc<Visitor>>,
                    path: RawPathParams,
                    uri: Uri,
                    headers: HeaderMap,
                    body: Bytes| {
            // A page of another site cannot send JSON without asking first.
            let kind = headers.get(CONTENT_TYPE).map(|it| it.to_str());
            if !body.is_empty() && !kind.is_some_and(|it| it.is_ok_and(is_utf8_json)) {
                let detail = "send the body as `Content-Type: application/json`, in UTF-8";
                return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
            }
            let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
            if encodings.any(|it| !it.as_bytes().eq_ignore_ascii_case(b"identity")) {
                let detail = "send the body as it is, without a `Content-Encoding`";
                return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
            }
            if headers.get_all(IDEMPOTENCY_KEY).iter().count() > 1 {
                let detail = "a request has one `Idempotency-Key`";
                return Err(Refusal::new(StatusCode::BAD_REQUEST, detail));
            }
            let key = headers.get(IDEMPOTENCY_KEY).map(|key| key.to_str());
            let key = key.transpose().map_err(|_| {
                let detail = "an `Idempotency-Key` has printable ASCII letters";
                Refusal::new(StatusCode::BAD_REQUEST, detail)
            })?;
            let deed = Deed {
                given: Given::read(params, path.iter(), uri.query().unwrap_or_default())?,
                site,
                visitor,
                key: key.map(str::to_owned),
                caller: caller(&headers),
                body,
            };
            let done = doer(deed).await?;
            let kind = [(CONTENT_TYPE, done.kind)];
            let mut response = (done.status, kind, done.body).into_response();
            let location = done.location.map(HeaderValue::try_from);
            if let Some(Ok(location)) = location {
                response.headers_mut().insert(LOCATION, location);
            }
            Ok(response)
        },
    )
    .layer(DefaultBodyLimit::max(BODY_MAX))
}

/// True for the media type of JSON, in UTF-8 and no other encoding.
fn is_utf8_json(kind: &str) -> bool {
    let mut parts = kind.split(';').map(str::trim);
    let is_json = parts.next().is_some_and(|it| it.eq_ignore_ascii_case(JSON));
    let charset = |part: &str| {
        let (name, value) = part.split_once('=')?;
        let is_charset = name.trim().eq_ignore_ascii_case("charset");
        is_charset.then(|| value.trim().trim_matches('"').to_ascii_lowercase())
    };
    is_json
        && parts
            .filter_map(charset)
            .all(|it| matches!(it.as_str(), "utf-8" | "utf8"))
}

const JSON: &str = "application/json";

/// The caller of a request, with everything that it passes on. Several `traceparent` headers name no span; the other
/// headers are lists, which may come in parts.
fn caller(headers: &HeaderMap) -> Caller {
    let parts = |name: HeaderName| {
        let texts: Option<Vec<&str>> = headers
            .get_all(name)
            .iter()
            .map(|it| it.to_str().ok())
            .collect();
        texts.filter(|it| !it.is_empty())
    };
    let list = |name| parts(name).map(|it| it.join(","));
    let span = parts(TRACEPARENT).filter(|it| it.len() == 1);
    let (state, baggage) = (list(TRACESTATE), list(BAGGAGE));
    let span = span.as_ref().map(|it| it[0]);
    Caller::read(span, state.as_deref(), baggage.as_deref())
}
