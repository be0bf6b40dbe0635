//! Messages to endpoints about runs.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, State as Extract};
use axum::http::Uri;
use axum::response::Response;
use uuid::Uuid;

use crate::machine::webhook::Waits;
use crate::model::*;
use crate::percent::encoded;
use crate::store::delivery::{self, COUNTED, Delivery, Filter, Line, Listed, STATES};
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

/// Deliveries per page.
const LISTED: usize = 50;

/// Runs are looked for every few seconds, which is recorded every ten.
const UNHEARD_US: i64 = 60_000_000;

/// The longest answer, in characters.
const LETTERS: usize = 300;

#[derive(Template)]
#[template(path = "webhooks.html")]
struct List {
    frame: Frame,
    /// The path of each state, its name, and whether it is the current one.
    states: Vec<(String, &'static str, bool)>,
    /// The names of endpoints, and whether each is the current one.
    names: Vec<(String, bool)>,
    pipeline: String,
    state: Option<&'static str>,
    is_filtered: bool,
    kept: Vec<Kept>,
    endpoints: Vec<Told>,
    deliveries: Vec<Shown>,
    unreadable: Vec<Uuid>,
    may_send: bool,
    first: Option<String>,
    older: Option<String>,
}

/// Messages that are kept for an endpoint which is no longer configured.
struct Kept {
    name: String,
    /// The path to their list.
    path: String,
    messages: String,
}

impl Kept {
    fn of(waits: &Waits, now: i64) -> Option<Self> {
        let messages = waits.kept(now)?;
        let more = if messages >= COUNTED as u64 {
            " or more"
        } else {
            ""
        };
        let endpoint = &waits.oldest.endpoint;
        Some(Self {
            name: clip(endpoint, LETTERS),
            path: format!("/webhooks?state=waiting&endpoint={}", encoded(endpoint)),
            messages: format!("{messages}{more}"),
        })
    }
}

/// An endpoint of the configuration, and its state, for people.
struct Told {
    name: String,
    wait: String,
    next: Option<Moment>,
    tried: Option<Moment>,
    answer: String,
    /// Since this time, nobody has looked for runs for it.
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
                        oldest.map(|at| format!(", the oldest from {}", time::relative(at, now)));
                    format!("{n}{more} waiting{}", oldest.unwrap_or_default())
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
    /// When the next attempt is due; none for a message that is not sent.
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
    let asked = Asked::of(&uri, &["state", "endpoint", "pipeline", "before"])?;
    let state = match asked.one("state")? {
        None => None,
        Some(text) => {
            let known = STATES.into_iter().find(|it| *it == text);
            let detail = || wrong(format!("`state` is one of {}", STATES.join(", ")));
            Some(known.ok_or_else(detail)?)
        }
    };
    let endpoint = asked.one("endpoint")?.map(str::to_owned);
    let pipeline = asked.one("pipeline")?.map(str::to_owned);
    let filter = Filter {
        state,
        endpoint: endpoint.clone(),
        pipelines: webhooks::pipelines(&who, pipeline.clone())?,
        before: match asked.one("before")? {
            Some(text) => Some(asked::id(text, "a message")?),
            None => None,
        },
        limit: LISTED + 1,
    };
    let configured = site.terms.webhooks.iter().map(|it| it.name.clone());
    let mut names: Vec<String> = configured.collect();
    // The state of an endpoint depends on all pipelines.
    let told: Vec<String> = match who.may_see_all() {
        true => names.clone(),
        false => Vec::new(),
    };
    let may_see_all = who.may_see_all();
    let is_first = filter.before.is_none();
    let read = site.source.read(async move |conn| {
        let found = delivery::latest(conn, &filter).await?;
        let lines = delivery::lines(conn, &told).await?;
        let waits = match may_see_all {
            true => delivery::unsent(conn, &told).await?,
            false => Vec::new(),
        };
        Ok((found, lines, waits, query::now(conn).await?))
    });
    let (found, lines, waits, now) = read.await?;
    let last = found.get(LISTED - 1).filter(|_| found.len() > LISTED);
    let narrowed = [("endpoint", &endpoint), ("pipeline", &pipeline)];
    let narrowed: String = narrowed
        .iter()
        .filter_map(|(name, it)| Some(format!("{name}={}&", encoded(it.as_deref()?))))
        .collect();
    let way = |state: Option<&str>, before: Option<Uuid>| {
        let state = state.map_or_else(String::new, |it| format!("state={it}&"));
        let before = before.map_or_else(String::new, |it| format!("before={it}"));
        let path = format!("/webhooks?{narrowed}{state}{before}");
        path.trim_end_matches(['&', '?']).to_owned()
    };
    let mut states = vec![(way(None, None), "all", state.is_none())];
    states.extend(STATES.map(|it| (way(Some(it), None), it, state == Some(it))));
    if let Some(other) = endpoint.as_ref().filter(|it| !names.contains(it)) {
        names.push(other.clone());
    }
    let listed = || found.iter().take(LISTED);
    let shown = listed().filter_map(Listed::delivery).map(|it| {
        let is_configured = webhooks::is_configured(&site, &it.endpoint);
        Shown::of(it, is_configured, now)
    });
    let unreadable = listed().filter(|it| it.delivery().is_none());
    page(&List {
        frame: Frame::of("webhooks", now),
        states,
        names: names
            .into_iter()
            .map(|it| {
                let is_chosen = endpoint.as_ref() == Some(&it);
                (it, is_chosen)
            })
            .collect(),
        is_filtered: endpoint.is_some() || pipeline.is_some(),
        pipeline: pipeline.unwrap_or_default(),
        state,
        kept: waits.iter().filter_map(|it| Kept::of(it, now)).collect(),
        may_send: who.scope >= Scope::Operate,
        first: (!is_first).then(|| way(state, None)),
        older: last.map(|it| way(state, Some(it.id()))),
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
    let id = asked::id(&id, "a message")?;
    webhooks::send_again(&site, id, &who, Channel::Console).await?;
    Ok(elsewhere("/webhooks"))
}
