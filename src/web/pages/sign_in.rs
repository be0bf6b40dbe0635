//! Signing a browser in and out.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State as Extract;
use axum::http::header::{COOKIE, HeaderMap, HeaderValue, SET_COOKIE};
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use crate::model::TokenKind;
use crate::secret::Secret;
use crate::store::token::{self, LET_IN_FOR, NewToken};
use crate::web::Site;
use crate::web::deeds::unsure;
use crate::web::peer::Peer;
use crate::web::refusal::{Refusal, with_own_words};
use crate::web::strangers::Remote;
use crate::web::visitor::{self, cookie_name, token_of};

use super::asked::Asked;
use super::form::Form;
use super::{Frame, elsewhere, page};

#[derive(Template)]
#[template(path = "sign_in.html")]
struct Page {
    frame: Frame,
    /// The secret of a link.
    link: Option<String>,
    /// The page to go on to.
    to: String,
    error: Option<&'static str>,
}

/// `GET /sign-in`: it changes nothing, so that a program which only looks at a link does not use it
/// up.
pub async fn ask_sign_in(uri: Uri) -> Result<Response, Refusal> {
    let asked = Asked::of(&uri, &["link", "to"])?;
    page(&Page {
        frame: Frame::without_time("sign-in"),
        link: asked.one("link")?.map(str::to_owned),
        to: own(asked.one("to")?),
        error: None,
    })
}

/// The path of a page of ours; the overview for anything else, so that no link leads a visitor to
/// another site.
fn own(path: Option<&str>) -> String {
    // A browser drops tabs and line ends, and takes a backslash for a slash.
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    let fits =
        |path: &&str| path.starts_with('/') && !path.starts_with("//") && path.bytes().all(plain);
    path.filter(fits).unwrap_or("/").to_owned()
}

/// `POST /sign-in`
pub async fn sign_in(
    Extract(site): Extract<Arc<Site>>,
    Extension(peer): Extension<Peer>,
    Extension(from): Extension<Remote>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    visitor::same_site(&headers)?;
    // The session would count for nothing, and would use up a link.
    if let Some(vouched) = peer.named(&site.terms.proxy, &headers)? {
        let detail = format!(
            "the reverse proxy says that you are {}: sign in there",
            vouched.name
        );
        return Err(Refusal::new(StatusCode::CONFLICT, detail));
    }
    let form = Form::read(&body)?;
    let to = own(form.get("to"));
    let secret = form.get("secret").and_then(Secret::read);
    let token = match &secret {
        Some(secret) => token_of(&site, secret, from, &[TokenKind::Token, TokenKind::Link]).await?,
        None => None,
    };
    let refused = || {
        let response = page(&Page {
            frame: Frame::without_time("sign-in"),
            link: None,
            to: to.clone(),
            error: Some("This is not a token or link, was used before, or is no longer valid."),
        })?;
        Ok(with_own_words(response, StatusCode::FORBIDDEN))
    };
    let Some(token) = token else {
        return refused();
    };
    let session = Secret::new().map_err(|error| {
        tracing::error!(%error, "the kernel gives no random bytes");
        Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the console's log says why",
        )
    })?;
    let (opened, with) = (session.clone(), Arc::clone(&token));
    let let_in = site.acts.read(async move |conn| {
        let new = NewToken {
            id: opened.id(),
            digest: &opened.digest(),
            kind: TokenKind::Session,
            name: &with.name,
            scope: with.scope,
            pipelines: with.pipelines.as_deref(),
            payloads: with.payloads,
            by: &with.name,
            valid: Some(LET_IN_FOR),
            parent: Some(&with.id),
        };
        token::open_session(conn, &with, &new).await
    });
    if !let_in.await.map_err(unsure)? {
        return refused();
    }
    tracing::info!(name = token.name, scope = %token.scope, "a browser was let in");
    Ok(with_cookie(
        elsewhere(&to),
        &headers,
        &session.reveal(),
        LET_IN_FOR,
    ))
}

/// The session's cookie: for this site alone, and invisible to scripts. A proxy that speaks TLS says
/// so.
fn with_cookie(mut response: Response, asked: &HeaderMap, value: &str, age: Duration) -> Response {
    let over_tls = asked
        .get("x-forwarded-proto")
        .is_some_and(|it| it == "https");
    let secure = if over_tls { "; Secure" } else { "" };
    let age = age.as_secs();
    let name = cookie_name(asked);
    let cookie =
        format!("{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}");
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

/// `POST /sign-out`
pub async fn sign_out(
    Extract(site): Extract<Arc<Site>>,
    Extension(from): Extension<Remote>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    visitor::same_site(&headers)?;
    if headers.contains_key(COOKIE)
        && let Some(secret) = visitor::session(&headers).as_deref().and_then(Secret::read)
        && let Some(session) = token_of(&site, &secret, from, &[TokenKind::Session]).await?
    {
        let id = session.id.clone();
        site.acts
            .read(async move |conn| token::end(conn, &id).await)
            .await?;
        site.visitors.forget(&session.id);
    }
    Ok(with_cookie(elsewhere("/"), &headers, "", Duration::ZERO))
}
