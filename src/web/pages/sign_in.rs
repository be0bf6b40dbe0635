//! Signing a browser in and out.

use std::sync::Arc;
use std::time::{Duration, Instant};

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
use crate::web::failed_sign_ins::Remote;
use crate::web::peer::Peer;
use crate::web::refusal::{Refusal, with_own_words};
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
    site.visitors.open(&token, Instant::now())?;
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
    let opened = let_in.await;
    if !matches!(opened, Ok(true)) {
        site.visitors.not_opened(&token);
    }
    if !opened.map_err(unsure)? {
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

/// The session's cookie: for this site alone, and invisible to scripts.
fn with_cookie(mut response: Response, asked: &HeaderMap, value: &str, age: Duration) -> Response {
    let secure = if is_over_tls(asked) { "; Secure" } else { "" };
    let age = age.as_secs();
    let name = cookie_name(asked);
    let cookie =
        format!("{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}");
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

/// True where the browser speaks TLS, to a proxy: the origin of its page says so, or the proxy. Of several proxies,
/// the first one speaks to the browser.
fn is_over_tls(asked: &HeaderMap) -> bool {
    let text = |name: &str| asked.get(name).and_then(|it| it.to_str().ok());
    let by_proxy = text("x-forwarded-proto").and_then(|it| it.split(',').next());
    by_proxy.is_some_and(|it| it.trim().eq_ignore_ascii_case("https"))
        || text("origin").is_some_and(|it| it.starts_with("https://"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_secure_where_the_browser_speaks_tls() {
        for (name, value, is_secure) in [
            ("x-forwarded-proto", "https", true),
            ("x-forwarded-proto", "HTTPS", true),
            ("x-forwarded-proto", "https, http", true),
            ("x-forwarded-proto", "http, https", false),
            ("x-forwarded-proto", "http", false),
            ("origin", "https://ductwork.example", true),
            ("origin", "http://127.0.0.1:9393", false),
            ("origin", "null", false),
        ] {
            let asked =
                HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_static(value))]);
            let answer = with_cookie(elsewhere("/"), &asked, "secret", LET_IN_FOR);
            let cookie = answer.headers()[SET_COOKIE].to_str().unwrap();
            assert_eq!(cookie.ends_with("; Secure"), is_secure, "{name}: {value}");
        }
        let answer = with_cookie(elsewhere("/"), &HeaderMap::new(), "secret", LET_IN_FOR);
        assert!(
            !answer.headers()[SET_COOKIE]
                .to_str()
                .unwrap()
                .contains("Secure")
        );
    }
}
