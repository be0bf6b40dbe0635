//! Runs that wait for a person: the question, and the value that it is about.

use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::State as Extract;
use axum::http::Uri;
use axum::response::Response;

use crate::model::*;
use crate::store::{page as store, query};
use crate::web::refusal::Refusal;
use crate::web::{Site, visitor};

use super::asked::Asked;
use super::parts::{self, Moment, RunLink};
use super::text::{Value, clip};
use super::{Frame, page};

/// The number of questions that are shown.
const QUESTIONS: usize = 100;

/// The longest question, in characters.
const LETTERS: usize = 500;

#[derive(Template)]
#[template(path = "waiting.html")]
struct Page {
    frame: Frame,
    questions: Vec<Question>,
    is_partial: bool,
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
    step: String,
    prompt: Option<String>,
    value: Value,
    since: Moment,
    deadline: Option<String>,
}

/// `GET /waiting`
pub async fn waiting(Extract(site): Extract<Arc<Site>>, uri: Uri) -> Result<Response, Refusal> {
    Asked::of(&uri, &[])?;
    let only = visitor::asking().and_then(|it| it.pipelines.clone());
    let definitions = Arc::clone(&site.definitions);
    let read = site.source.read(async move |conn| {
        let waiting = store::waiting(conn, only.as_deref(), QUESTIONS + 1).await?;
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
    page(&Page {
        frame,
        is_partial: waiting.len() > QUESTIONS,
        questions,
    })
}
