//! The API: what there is, for programs.
//!
//! Owns: how a request becomes parameters and an answer a response: pages and their bound, entity tags.
//! Never: says what a form looks like (`wire` does), or which routes there are (`routes` does).

pub mod cursor;
pub mod given;
pub mod openapi;
pub mod pipelines;
pub mod processes;
pub mod runs;
pub mod steps;

use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use axum::extract::{RawPathParams, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, LINK};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::svg::STYLE;

use super::Site;
use super::guard::Policy;
use super::refusal::Refusal;
use given::{About, Given};

/// The function behind a route.
pub type Handler = fn(Arc<Site>, Given) -> Pin<Box<dyn Future<Output = Answered> + Send>>;

/// Its result.
pub type Answered = Result<Answer, Refusal>;

/// The form of a route's answers.
#[derive(Clone, Copy)]
pub enum Form {
    /// JSON of this schema.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// A picture.
    Svg,
}

/// A page of a list is closed when it has so many bytes; the next one goes on.
const PAGE_BYTES: usize = 4 << 20;

/// Larger payloads are not in lists.
pub const PAYLOAD_BYTES: i64 = 64 << 10;

/// A picture brings its styles along: these, and no others.
static PICTURE: LazyLock<Option<Policy>> = LazyLock::new(|| {
    let style = STANDARD.encode(Sha256::digest(format!("\n{STYLE}")));
    let policy = format!("default-src 'none'; style-src 'sha256-{style}'; sandbox");
    HeaderValue::try_from(policy).ok().map(Policy)
});

/// An answer.
pub struct Answer {
    kind: &'static str,
    body: Vec<u8>,
    /// The parameter, and its value, that ask for the next page.
    next: Option<(&'static str, String)>,
    policy: Option<Policy>,
}

impl Answer {
    /// One value.
    pub fn json(value: &impl Serialize) -> Answered {
        Ok(Self::of("application/json", written(value)?))
    }

    /// A picture.
    pub fn svg(text: String) -> Self {
        Self {
            policy: PICTURE.clone(),
            ..Self::of("image/svg+xml", text.into_bytes())
        }
    }

    /// At most so many of these items, whose forms are made by `form`, and fewer where they are large; `next`
    /// says how to go on behind one of them.
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
            ..Self::of("application/json", body)
        })
    }

    fn of(kind: &'static str, body: Vec<u8>) -> Self {
        Self {
            kind,
            body,
            next: None,
            policy: None,
        }
    }

    /// The response to a visitor who may have this answer already.
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
            // They are made of our own letters, and percent-encoded.
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

/// True where the visitor names this tag.
fn has(headers: &HeaderMap, tag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).iter();
    let tags = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    let mut tags = tags.map(|one| one.trim().trim_start_matches("W/"));
    tags.any(|one| one == tag || one == "*")
}

/// The address of the next page: this one's, from there on.
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
