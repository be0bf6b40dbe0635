//! Messages to endpoints about runs.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, State as Extract};
use axum::http::Uri;
use axum::response::Response;
use uuid::Uuid;

use crate::model::*;
use crate::store::delivery::{self, Delivery, Listed, STATES};
use crate::store::query;
use crate::web::Site;
use crate::web::refusal::Refusal;
use crate::web::visitor::Visitor;
use crate::web::webhooks;

use super::asked::{self, Asked, wrong};
use super::form::Form;
use super::parts::{self, Moment, RunLink};
use super::text::clip;
use super::{Frame, elsewhere, page};

/// Deliveries of a page.
const LISTED: usize = 50;

/// Letters of an answer.
const LETTERS: usize = 300;

#[derive(Template)]
#[template(path = "webhooks.html")]
struct List {
    frame: Frame,
    /// The way to each, its name, and whether it is this one.
    states: Vec<(String, &'static str, bool)>,
    deliveries: Vec<Shown>,
    unreadable: Vec<Uuid>,
    may_send: bool,
    older: Option<String>,
}

/// A delivery, for people.
struct Shown {
    id: Uuid,
    endpoint: String,
    is_configured: bool,
    event: String,
    run: RunLink,
    pipeline: String,
    state: String,
    attempts: u32,
    tried: Option<Moment>,
    /// When the next attempt is due; none of one that is not sent.
    due: Option<Moment>,
    answer: String,
}

impl Shown {
    fn of(delivery: &Delivery, is_configured: bool, now: i64) -> Self {
        let due = delivery.due_at.filter(|_| is_configured);
        Self {
            is_configured,
            pipeline: clip(&delivery.pipeline, LETTERS),
            due: due.map(|at| parts::ago(at, now)),
            id: delivery.id,
            endpoint: clip(&delivery.endpoint, LETTERS),
            event: format!("run.{}", delivery.event),
            run: parts::run(delivery.run),
            state: delivery.state.clone(),
            attempts: delivery.attempts,
            tried: delivery.tried_at.map(|at| parts::ago(at, now)),
            answer: answer(delivery),
        }
    }
}

/// The last answer to a message, for people.
fn answer(delivery: &Delivery) -> String {
    let status = delivery.status.map(|it| it.to_string());
    let reason = match delivery.status {
        Some(300..=399) => "redirects are not followed: configure the address that it leads to",
        _ => "",
    };
    let error = delivery.error.as_deref().unwrap_or_default();
    let parts = [status.as_deref().unwrap_or_default(), reason, error];
    let parts: Vec<&str> = parts
        .into_iter()
        .map(str::trim)
        .filter(|it| !it.is_empty())
        .collect();
    clip(&parts.join(" "), LETTERS)
}

/// `GET /webhooks`
pub async fn webhooks(
    Extract(site): Extract<Arc<Site>>,
    Extension(who): Extension<Arc<Visitor>>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let asked = Asked::of(&uri, &["state", "before"])?;
    let state = match asked.one("state")? {
        None => None,
        Some(text) => {
            let known = STATES.into_iter().find(|it| *it == text);
            let detail = || wrong(format!("`state` is one of {}", STATES.join(", ")));
            Some(known.ok_or_else(detail)?)
        }
    };
    let before: Option<Uuid> = match asked.one("before")? {
        Some(text) => Some(asked::id(text, "a message")?),
        None => None,
    };
    let read = site.source.read(async move |conn| {
        let found = delivery::latest(conn, state, before, LISTED + 1).await?;
        Ok((found, query::now(conn).await?))
    });
    let (found, now) = read.await?;
    let last = found.get(LISTED - 1).filter(|_| found.len() > LISTED);
    let of_state = |it: &str| format!("state={it}");
    let mut states = vec![("/webhooks".to_owned(), "all", state.is_none())];
    states.extend(STATES.map(|it| (format!("/webhooks?{}", of_state(it)), it, state == Some(it))));
    let kept = state.map_or_else(String::new, |it| format!("{}&", of_state(it)));
    let listed = || found.iter().take(LISTED);
    let shown = listed().filter_map(Listed::delivery).map(|it| {
        let is_configured = webhooks::is_configured(&site, &it.endpoint);
        Shown::of(it, is_configured, now)
    });
    let unreadable = listed().filter(|it| it.delivery().is_none());
    page(&List {
        frame: Frame::of("actions", now),
        states,
        may_send: who.scope >= Scope::Operate,
        older: last.map(|it| format!("/webhooks?{kept}before={}", it.id())),
        deliveries: shown.collect(),
        unreadable: unreadable.map(Listed::id).collect(),
    })
}

/// `POST /webhooks/{id}/send`
pub async fn send_webhook(
    Extract(site): Extract<Arc<Site>>,
    Extension(who): Extension<Arc<Visitor>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Refusal> {
    Form::of(&body, &who)?;
    webhooks::send_again(&site, asked::id(&id, "a message")?).await?;
    Ok(elsewhere("/webhooks"))
}
