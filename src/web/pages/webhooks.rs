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
use crate::store::delivery::{self, Delivery, Line, Listed, STATES};
use crate::store::query;
use crate::time;
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

/// Runs are looked for every few seconds, and that is written down every ten.
const UNHEARD_US: i64 = 60_000_000;

/// Letters of an answer.
const LETTERS: usize = 300;

#[derive(Template)]
#[template(path = "webhooks.html")]
struct List {
    frame: Frame,
    /// The way to each, its name, and whether it is this one.
    states: Vec<(String, &'static str, bool)>,
    endpoints: Vec<Told>,
    deliveries: Vec<Shown>,
    unreadable: Vec<Uuid>,
    may_send: bool,
    older: Option<String>,
}

/// An endpoint of the configuration, and how it fares, for people.
struct Told {
    name: String,
    wait: String,
    next: Option<Moment>,
    tried: Option<Moment>,
    answer: String,
    /// Nobody has looked for runs for it since then.
    unheard: Option<Moment>,
}

impl Told {
    fn of(line: &Line, now: i64) -> Self {
        let waiting = line.waiting.iter().filter_map(Listed::delivery);
        let oldest = waiting.clone().map(|it| it.created_at).min();
        let last = waiting.clone().filter(|it| it.tried_at.is_some());
        let last = last.max_by_key(|it| it.tried_at);
        let is_unheard = line.seen.saturating_add(UNHEARD_US) < now;
        Self {
            name: line.name.clone(),
            wait: match (line.waiting.len(), oldest) {
                (0, _) => "no message waits".to_owned(),
                (n, oldest) => {
                    let more = if n >= delivery::LINE { " or more" } else { "" };
                    let oldest =
                        oldest.map(|at| format!(", the oldest since {}", time::relative(at, now)));
                    format!("{n}{more} wait{}", oldest.unwrap_or_default())
                }
            },
            next: waiting
                .filter_map(|it| it.due_at)
                .min()
                .map(|at| parts::ago(at, now)),
            tried: last
                .and_then(|it| it.tried_at)
                .map(|at| parts::ago(at, now)),
            answer: last.map_or_else(String::new, answer),
            unheard: is_unheard.then(|| parts::ago(line.seen, now)),
        }
    }
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
    let error = delivery.error.as_deref().unwrap_or_default();
    let parts = [status.as_deref().unwrap_or_default(), error];
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
    let names: Vec<String> = site
        .terms
        .webhooks
        .iter()
        .map(|it| it.name.clone())
        .collect();
    let read = site.source.read(async move |conn| {
        let found = delivery::latest(conn, state, before, LISTED + 1).await?;
        let lines = delivery::lines(conn, &names).await?;
        Ok((found, lines, query::now(conn).await?))
    });
    let (found, lines, now) = read.await?;
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
        endpoints: lines.iter().map(|it| Told::of(it, now)).collect(),
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
    let by = who.actor(Channel::Console);
    webhooks::send_again(&site, asked::id(&id, "a message")?, by).await?;
    Ok(elsewhere("/webhooks"))
}
