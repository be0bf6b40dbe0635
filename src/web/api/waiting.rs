//! The questions that wait for a person.

use std::collections::HashMap;
use std::sync::Arc;

use uuid::Uuid;

use crate::model::*;
use crate::store::page::{self, WaitingStep};
use crate::web::{Site, deeds, visitor};
use crate::wire::waiting::QuestionJson;

use super::cursor::AfterQuestion;
use super::given::{Given, LIMIT, Param, Text};
use super::runs::LIMIT_;
use super::{Answer, Answered, payload_bytes};

/// A filter.
pub static PIPELINE: Param<Text> = Param::query(
    "pipeline",
    "Only questions of runs of this pipeline; if omitted, of all pipelines that the token is for",
)
.must_exist();
/// The page.
pub static AFTER: Param<AfterQuestion> = Param::query(
    "after",
    "The end of the previous page, as its `Link` header gives it; not to be made by hand",
);

/// The questions, those of the oldest run first.
pub async fn list(site: Arc<Site>, given: Given) -> Answered {
    let limit = given.get(&LIMIT_).map_or(LIMIT, |it| it.0);
    let only = match given.get(&PIPELINE) {
        Some(Text(pipeline)) => {
            visitor::need(&pipeline)?;
            Some(vec![pipeline])
        }
        None => visitor::asking().and_then(|it| it.pipelines.clone()),
    };
    let after = match given.get(&AFTER) {
        Some(AfterQuestion { run, step }) => (run, step),
        None => (RunId(Uuid::nil()), StepId(Uuid::nil())),
    };
    let definitions = Arc::clone(&site.definitions);
    let whole = payload_bytes();
    let read = site.source.read(async move |conn| {
        let only = only.as_deref();
        // One more, to know whether there is a next page.
        let waiting = page::waiting_after(conn, only, after, limit + 1, Some(whole)).await?;
        let mut known = HashMap::new();
        for step in &waiting {
            if !known.contains_key(&step.definition) {
                let read = definitions.read(conn, &step.definition).await?;
                known.insert(step.definition.clone(), read.ok());
            }
        }
        Ok((waiting, known))
    });
    let (waiting, known) = read.await?;
    if let Some(Text(pipeline)) = given.get(&PIPELINE).filter(|_| waiting.is_empty()) {
        deeds::known(&site, &pipeline).await?;
    }
    let form = |step| {
        let step: &WaitingStep = step;
        let definition = known.get(&step.definition).and_then(Option::as_ref);
        let node = definition.and_then(|it| Some(it.node(it.find(&step.node)?)));
        QuestionJson::of(step, node.and_then(|it| it.prompt.as_deref()))
    };
    let next = |step: &WaitingStep| {
        let (run, step) = (step.run_id, step.step_id);
        (AFTER.about.name, AfterQuestion { run, step }.text())
    };
    Answer::page(&waiting, limit, form, next)
}
