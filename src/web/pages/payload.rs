//! A payload as a file: for a person, if it is too long for a page, and for a program.

use std::sync::Arc;

use axum::extract::{Path, State as Extract};
use axum::http::Uri;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

use crate::model::{RunId, StepId};
use crate::store::page::{self as store, Part};
use crate::web::Site;
use crate::web::refusal::Refusal;
use crate::web::visitor::need_payloads;

use super::asked::{self, Asked, missing};

type Run = Path<String>;
type Step = Path<(String, String)>;

/// `GET /runs/{id}/input`
pub async fn input(site: Extract<Arc<Site>>, run: Run, uri: Uri) -> Result<Response, Refusal> {
    of_run(site, run, uri, Part::Input).await
}

/// `GET /runs/{id}/output`
pub async fn output(site: Extract<Arc<Site>>, run: Run, uri: Uri) -> Result<Response, Refusal> {
    of_run(site, run, uri, Part::Output).await
}

/// `GET /runs/{id}/steps/{step}/input`
pub async fn step_input(
    site: Extract<Arc<Site>>,
    step: Step,
    uri: Uri,
) -> Result<Response, Refusal> {
    of_step(site, step, uri, Part::Input).await
}

/// `GET /runs/{id}/steps/{step}/output`
pub async fn step_output(
    site: Extract<Arc<Site>>,
    step: Step,
    uri: Uri,
) -> Result<Response, Refusal> {
    of_step(site, step, uri, Part::Output).await
}

async fn of_run(
    Extract(site): Extract<Arc<Site>>,
    Path(id): Run,
    uri: Uri,
    part: Part,
) -> Result<Response, Refusal> {
    Asked::of(&uri, &[])?;
    need_payloads()?;
    let id: RunId = asked::id(&id, "a run")?;
    let read = async move |conn: &mut _| store::payload_of_run(conn, id, part).await;
    let name = format!("run-{id}-{}.json", part.as_str());
    file(site.source.read(read).await?, name, part)
}

async fn of_step(
    Extract(site): Extract<Arc<Site>>,
    Path((run, step)): Step,
    uri: Uri,
    part: Part,
) -> Result<Response, Refusal> {
    Asked::of(&uri, &[])?;
    need_payloads()?;
    let (run, step): (RunId, StepId) = (asked::id(&run, "a run")?, asked::id(&step, "a step")?);
    let read = async move |conn: &mut _| store::payload_of_step(conn, run, step, part).await;
    let name = format!("step-{step}-{}.json", part.as_str());
    file(site.source.read(read).await?, name, part)
}

fn file(text: Option<String>, name: String, part: Part) -> Result<Response, Refusal> {
    let Some(text) = text else {
        return Err(missing(format!(
            "there is no such run or step, or it has no {}",
            part.as_str()
        )));
    };
    let headers = [
        (CONTENT_TYPE, "application/json".to_owned()),
        (CONTENT_DISPOSITION, format!("inline; filename=\"{name}\"")),
    ];
    Ok((headers, text).into_response())
}
