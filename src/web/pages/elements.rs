//! The elements of a fan-out from a given place, and the failed ones.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State as Extract};
use axum::http::Uri;
use axum::response::Response;

use crate::model::{FanOutId, RunId};
use crate::number::grouped;
use crate::store::fan_out::{self, Element};
use crate::store::{page as store, query};
use crate::web::Site;
use crate::web::refusal::{Refusal, no_run};

use super::asked::{self, Asked, missing, wrong};
use super::parts::{self, Place, RunLink, State};
use super::text::clip;
use super::{Frame, page};

/// Elements per page.
const ELEMENTS: usize = 50;

/// The number of failed elements that are shown first.
const FAILED: usize = 20;

/// The longest error, in characters.
const LETTERS: usize = 200;

#[derive(Template)]
#[template(path = "elements.html")]
struct Page {
    frame: Frame,
    address: String,
    run: RunLink,
    pipeline: String,
    node: String,
    via: String,
    width: String,
    made: Option<String>,
    completed: String,
    halted: String,
    failed: Vec<Row>,
    more_failed: bool,
    rows: Vec<Row>,
    from: u64,
    last: u64,
    most: u64,
    before: Option<u64>,
    after: Option<u64>,
}

struct Row {
    number: String,
    address: String,
    node: String,
    state: State,
    attempts: u32,
    place: Option<Place>,
    remark: String,
}

/// `GET /runs/{id}/fan-outs/{fan_out}`
pub async fn elements(
    Extract(site): Extract<Arc<Site>>,
    Path((run, id)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let asked = Asked::of(&uri, &["from", "element"])?;
    let run: RunId = asked::id(&run, "a run")?;
    let id: FanOutId = asked::id(&id, "a fan-out")?;
    // People count from one.
    let element = match asked.number("element")? {
        Some(0) => return Err(wrong("the first element has the number 1")),
        element => element.map(|number| number - 1),
    };
    let from = element.or(asked.number("from")?).unwrap_or_default();
    let read = site.source.read(async move |conn| {
        let Some(head) = store::run(conn, run).await? else {
            return Ok(None);
        };
        let Some(fan_out) = fan_out::one(conn, run, id).await? else {
            return Ok(Some((head, None)));
        };
        let elements = fan_out::elements(conn, id, from, ELEMENTS + 1).await?;
        let failed = match fan_out.halted {
            0 => Vec::new(),
            _ => fan_out::halted_elements(conn, run, id, FAILED + 1).await?,
        };
        let ids = elements.iter().chain(&failed);
        let ids: Vec<_> = ids.filter_map(|it| it.process_id).collect();
        let holders = store::holders(conn, ids).await?;
        let now = query::now(conn).await?;
        Ok(Some((
            head,
            Some((fan_out, elements, failed, holders, now)),
        )))
    });
    let Some((head, found)) = read.await? else {
        return Err(no_run(run));
    };
    let Some((fan_out, elements, failed, holders, now)) = found else {
        return Err(missing(format!("run {run} has no fan-out {id}")));
    };
    if from >= fan_out.width {
        return Err(missing(format!(
            "this fan-out has {} elements, and none at that place",
            grouped(fan_out.width)
        )));
    }
    let row = |it: &Element| Row {
        number: grouped(it.ordinal + 1),
        address: format!("/runs/{run}/steps/{}", it.step_id),
        node: it.node.clone(),
        state: parts::of_branch(it.status),
        attempts: it.attempt.map_or(0, |number| {
            parts::attempts(number, it.process_id.is_some(), it.result)
        }),
        place: parts::place(it.process_id, &holders),
        remark: {
            let reason = it.halt_reason.as_deref();
            let error = it.error_message.as_deref();
            let remark: Vec<&str> = reason.into_iter().chain(error).collect();
            clip(&remark.join(": "), LETTERS)
        },
    };
    let shown = &elements[..elements.len().min(ELEMENTS)];
    let size = ELEMENTS as u64;
    page(&Page {
        frame: Frame::of("runs", now),
        address: format!("/runs/{run}/fan-outs/{id}"),
        run: parts::run(run),
        pipeline: head.pipeline,
        node: fan_out.node.clone(),
        via: fan_out.via.clone(),
        width: grouped(fan_out.width),
        made: (fan_out.made < fan_out.width).then(|| grouped(fan_out.made)),
        completed: grouped(fan_out.arrived.saturating_sub(fan_out.halted)),
        halted: grouped(fan_out.halted),
        more_failed: failed.len() > FAILED,
        failed: failed.iter().take(FAILED).map(row).collect(),
        rows: shown.iter().map(row).collect(),
        from: from + 1,
        last: shown.last().map_or(from, |it| it.ordinal) + 1,
        most: fan_out.width,
        before: (from > 0).then(|| from.saturating_sub(size)),
        after: (elements.len() > ELEMENTS).then(|| from + size),
    })
}
