//! Acts on runs: the questions before them, and the deeds.
//!
//! A deed is a POST with the proof of its form, and leads to the run that it changed or made.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, State as Extract};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use uuid::Uuid;

use crate::model::*;
use crate::percent::encoded;
use crate::store::action::{self, Action};
use crate::store::query;
use crate::store::why;
use crate::view;
use crate::web::refusal::{Refusal, no_run, with_own_words};
use crate::web::visitor::Visitor;
use crate::web::{Site, deeds};

use super::asked::{self, Asked};
use super::form::Form;
use super::parts::{self, Moment, RunLink, State};
use super::text::clip;
use super::{Frame, elsewhere, page, waiting};

type Who = Extension<Arc<Visitor>>;

/// Actions per page.
const ACTIONS: usize = 100;

/// The longest name, in characters.
const LETTERS: usize = 100;

/// An action, for people.
pub struct Acted {
    pub verb: String,
    pub by: String,
    pub channel: String,
    pub at: Moment,
    pub pipeline: String,
    pub run: Option<RunLink>,
    pub made: Option<RunLink>,
}

impl Acted {
    /// An action, as a page shows it at this time.
    pub fn of(action: &Action, now: i64) -> Self {
        Self {
            verb: clip(view::did(&action.verb), LETTERS),
            by: clip(&action.by, LETTERS),
            channel: clip(view::channel(&action.channel), LETTERS),
            at: parts::ago(action.at, now),
            pipeline: clip(&action.pipeline, LETTERS),
            run: action.run.map(parts::run),
            made: action.made.map(parts::run),
        }
    }
}

#[derive(Template)]
#[template(path = "actions.html")]
struct List {
    frame: Frame,
    actions: Vec<Acted>,
    /// The address of the next page.
    older: Option<String>,
    run: Option<RunLink>,
    bulk: Option<Uuid>,
}

/// `GET /actions`
pub async fn actions(Extract(site): Extract<Arc<Site>>, uri: Uri) -> Result<Response, Refusal> {
    let asked = Asked::of(&uri, &["run", "bulk", "before"])?;
    let run: Option<RunId> = match asked.one("run")? {
        Some(text) => Some(asked::id(text, "a run")?),
        None => None,
    };
    let before: Option<Uuid> = match asked.one("before")? {
        Some(text) => Some(asked::id(text, "an action")?),
        None => None,
    };
    let bulk: Option<Uuid> = match asked.one("bulk")? {
        Some(text) => Some(asked::id(text, "a bulk action")?),
        None => None,
    };
    let (of, shown) = match (run, bulk) {
        (None, None) => (action::Of::All, None),
        (Some(run), None) => (action::Of::Run(run), Some(format!("run={run}"))),
        (None, Some(bulk)) => (action::Of::Bulk(bulk), Some(format!("bulk={bulk}"))),
        (Some(_), Some(_)) => return Err(asked::wrong("`run` and `bulk` do not go together")),
    };
    let read = site.source.read(async move |conn| {
        let actions = action::latest(conn, of, before, ACTIONS + 1).await?;
        Ok((actions, query::now(conn).await?))
    });
    let (actions, now) = read.await?;
    let last = actions.get(ACTIONS - 1).filter(|_| actions.len() > ACTIONS);
    let older = last.map(|last| match &shown {
        Some(shown) => format!("/actions?{shown}&before={}", last.id),
        None => format!("/actions?before={}", last.id),
    });
    let shown = actions.iter().take(ACTIONS);
    page(&List {
        frame: Frame::of("actions", now),
        actions: shown.map(|action| Acted::of(action, now)).collect(),
        older,
        run: run.map(parts::run),
        bulk,
    })
}

fn id(text: &str) -> Result<RunId, Refusal> {
    asked::id(text, "a run")
}

#[derive(Template)]
#[template(path = "cancel.html")]
struct Cancel {
    frame: Frame,
    run: RunLink,
    id: RunId,
    pipeline: String,
    state: State,
    has_ended: bool,
    /// The last run of its line, if it was revived.
    continued: Option<RunLink>,
}

/// `GET /runs/{id}/cancel`
pub async fn ask_cancel(
    Extract(site): Extract<Arc<Site>>,
    Path(given): Path<String>,
    uri: Uri,
) -> Result<Response, Refusal> {
    Asked::of(&uri, &[])?;
    let run = id(&given)?;
    let read = site.source.read(async move |conn| {
        let brief = query::brief(conn, run).await?;
        let newest = why::newest(conn, run).await?;
        Ok((brief, newest, query::now(conn).await?))
    });
    let (brief, newest, now) = read.await?;
    let brief = brief.ok_or_else(|| no_run(run))?;
    page(&Cancel {
        frame: Frame::of("runs", now),
        run: parts::run(run),
        id: run,
        pipeline: brief.pipeline,
        state: parts::of_run(brief.status),
        has_ended: brief.status.is_terminal(),
        continued: (newest != run).then(|| parts::run(newest)),
    })
}

/// `POST /runs/{id}/cancel`
pub async fn cancel(
    Extract(site): Extract<Arc<Site>>,
    Extension(who): Who,
    Path(given): Path<String>,
    body: Bytes,
) -> Result<Response, Refusal> {
    Form::of(&body, &who)?;
    let run = id(&given)?;
    deeds::cancel(&site, run, who.actor(Channel::Console)).await?;
    Ok(elsewhere(&format!("/runs/{run}")))
}

/// `POST /runs/{id}/revive`
pub async fn revive(
    Extract(site): Extract<Arc<Site>>,
    Extension(who): Who,
    Path(given): Path<String>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let form = Form::of(&body, &who)?;
    let latest = form.get("latest").is_some();
    let by = who.actor(Channel::Console);
    let (next, _) = deeds::revive(&site, id(&given)?, latest, true, by).await?;
    Ok(elsewhere(&format!("/runs/{next}")))
}

#[derive(Template)]
#[template(path = "answer.html")]
struct Answer {
    frame: Frame,
    run: RunLink,
    id: RunId,
    /// The step that waits, if the form named it.
    step: Option<StepId>,
    /// The text as it was typed.
    value: String,
    error: String,
    /// The address of the question.
    back: String,
}

/// `POST /runs/{id}/resume`
pub async fn resume(
    Extract(site): Extract<Arc<Site>>,
    Extension(who): Who,
    Path(given): Path<String>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let form = Form::of(&body, &who)?;
    let run = id(&given)?;
    let step = match form.get("step") {
        Some(step) => Some(asked::id(step, "a step")?),
        None => None,
    };
    let given = form.get("value");
    let value = match given {
        Some(text) => Some(deeds::answer(text, deeds::answer_max(&site, run).await?)),
        None => None,
    };
    let value = match value.transpose() {
        Ok(value) => value,
        // The text that was typed is kept.
        Err(refusal) => {
            let response = page(&Answer {
                frame: Frame::without_time("waiting"),
                run: parts::run(run),
                id: run,
                step,
                value: given.unwrap_or_default().to_owned(),
                error: refusal.into_detail(),
                back: waiting::address_of(run, step),
            })?;
            return Ok(with_own_words(response, StatusCode::UNPROCESSABLE_ENTITY));
        }
    };
    let by = who.actor(Channel::Console);
    deeds::resume(&site, run, step, value, by).await?;
    Ok(elsewhere(&format!("/runs/{run}")))
}

/// `POST /pipelines/{name}/pause`
pub async fn pause(
    Extract(site): Extract<Arc<Site>>,
    Extension(who): Who,
    Path(pipeline): Path<String>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let form = Form::of(&body, &who)?;
    let reason = form.get("reason").unwrap_or_default();
    let path = format!("/pipelines/{}", encoded(&pipeline));
    let by = who.actor(Channel::Console);
    deeds::pause(&site, pipeline, reason, by).await?;
    Ok(elsewhere(&path))
}

/// `POST /pipelines/{name}/unpause`
pub async fn unpause(
    Extract(site): Extract<Arc<Site>>,
    Extension(who): Who,
    Path(pipeline): Path<String>,
    body: Bytes,
) -> Result<Response, Refusal> {
    Form::of(&body, &who)?;
    let path = format!("/pipelines/{}", encoded(&pipeline));
    deeds::unpause(&site, pipeline, who.actor(Channel::Console)).await?;
    Ok(elsewhere(&path))
}
