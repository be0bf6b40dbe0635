//! Runs that wait for a person: the question, and the value that it is about.

use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::State as Extract;
use axum::http::Uri;
use axum::response::Response;
use uuid::Uuid;

use crate::model::*;
use crate::store::{page as store, query};
use crate::web::refusal::{Refusal, no_run};
use crate::web::{Site, visitor};

use super::asked::{self, Asked};
use super::parts::{self, Moment, RunLink};
use super::text::{Value, clip};
use super::{Frame, page};

/// Questions per page.
const QUESTIONS: usize = 100;

/// The longest question, in characters.
const LETTERS: usize = 500;

#[derive(Template)]
#[template(path = "waiting.html")]
struct Page {
    frame: Frame,
    /// Only its questions are shown.
    run: Option<RunLink>,
    questions: Vec<Question>,
    /// The address of the next page.
    more: Option<String>,
    /// The address of the first page, if this is a later one.
    first: Option<String>,
}

struct Question {
    run: RunLink,
    id: RunId,
    step_id: StepId,
    /// Present for a visitor who may act on the run.
    proof: Option<String>,
    /// No answer counts any more.
    is_late: bool,
    pipeline: String,
    node: String,
    /// The number of its element, and how many there are.
    element: Option<(u32, u32)>,
    step: String,
    prompt: Option<String>,
    value: Value,
    since: Moment,
    deadline: Option<String>,
}

/// The place in the list after which a page begins.
#[derive(Clone, Copy, PartialEq, Eq)]
struct After(RunId, StepId);

impl After {
    fn read(text: &str) -> Result<Self, Refusal> {
        let Some((run, step)) = text.split_once('.') else {
            let detail =
                "`after` has the id of a run and that of a step, with a point between them";
            return Err(asked::wrong(detail));
        };
        Ok(Self(asked::id(run, "a run")?, asked::id(step, "a step")?))
    }
}

/// The address of the list, or of a run's part of it, that begins after this place.
fn address(run: Option<RunId>, after: Option<After>) -> String {
    let run = run.map(|run| format!("run={run}"));
    let after = after.map(|After(run, step)| format!("after={run}.{step}"));
    let pairs: Vec<String> = run.into_iter().chain(after).collect();
    match pairs.is_empty() {
        true => "/waiting".to_owned(),
        false => format!("/waiting?{}", pairs.join("&")),
    }
}

/// The address of a run's questions. However many they are, the page begins with that of this step.
pub fn address_of(run: RunId, step: Option<StepId>) -> String {
    let Some(step) = step else {
        return address(Some(run), None);
    };
    // The list is in the order of the ids, and no step needs to have the id before this one.
    let before = StepId(Uuid::from_u128(step.0.as_u128().saturating_sub(1)));
    let page = address(Some(run), Some(After(run, before)));
    format!("{page}#step-{step}")
}

/// `GET /waiting`
pub async fn waiting(Extract(site): Extract<Arc<Site>>, uri: Uri) -> Result<Response, Refusal> {
    let asked = Asked::of(&uri, &["run", "after"])?;
    let run: Option<RunId> = asked
        .one("run")?
        .map(|text| asked::id(text, "a run"))
        .transpose()?;
    let after = asked.one("after")?.map(After::read).transpose()?;
    if let (Some(run), Some(After(of, _))) = (run, after)
        && of != run
    {
        return Err(asked::wrong(
            "`after` is a place among another run's questions",
        ));
    }
    let mut only = visitor::asking().and_then(|it| it.pipelines.clone());
    if let Some(run) = run {
        let brief = site
            .source
            .read(async move |conn| query::brief(conn, run).await);
        let brief = brief.await?.ok_or_else(|| no_run(run))?;
        visitor::need(&brief.pipeline)?;
        only = Some(vec![brief.pipeline]);
    }
    let begin = run.unwrap_or(RunId(Uuid::nil()));
    let After(of, step) = after.unwrap_or(After(begin, StepId(Uuid::nil())));
    let definitions = Arc::clone(&site.definitions);
    let read = site.source.read(async move |conn| {
        // One more, to know whether there is a next page.
        let only = only.as_deref();
        let mut waiting = store::waiting_after(conn, only, (of, step), QUESTIONS + 1, None).await?;
        waiting.retain(|it| run.is_none_or(|run| it.run_id == run));
        let mut known = HashMap::new();
        for step in &waiting {
            if !known.contains_key(&step.definition) {
                let read = definitions.read(conn, &step.definition).await?;
                known.insert(step.definition.clone(), read.ok());
            }
        }
        Ok((waiting, known, query::now(conn).await?))
    });
    let (waiting, known, now) = read.await?;
    let frame = Frame::of("waiting", now);
    let question = |step: &store::WaitingStep| {
        let definition = known.get(&step.definition).and_then(Option::as_ref);
        let node = definition.and_then(|it| Some(it.node(it.find(&step.node)?)));
        let address = format!("/runs/{}/steps/{}", step.run_id, step.step_id);
        Question {
            run: parts::run(step.run_id),
            id: step.run_id,
            step_id: step.step_id,
            proof: frame.proof_on(&step.pipeline),
            is_late: step.deadline.as_ref().is_some_and(store::Due::has_passed),
            pipeline: step.pipeline.clone(),
            node: step.node.clone(),
            element: step.element,
            prompt: node
                .and_then(|node| node.prompt.as_deref())
                .map(|prompt| clip(prompt, LETTERS)),
            value: Value::of(&step.value, format!("{address}/input")),
            step: address,
            since: parts::ago(step.since, now),
            deadline: step.deadline.as_ref().map(store::Due::words),
        }
    };
    let questions = waiting.iter().take(QUESTIONS).map(question).collect();
    let last = waiting
        .get(QUESTIONS - 1)
        .filter(|_| waiting.len() > QUESTIONS);
    page(&Page {
        frame,
        run: run.map(parts::run),
        questions,
        more: last.map(|last| address(run, Some(After(last.run_id, last.step_id)))),
        first: after.map(|_| address(run, None)),
    })
}
