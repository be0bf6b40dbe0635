//! A question that waits for a person.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::model::*;
use crate::store::page::WaitingStep;

use super::Time;

/// A step that waits for a person.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "OpenQuestion")]
pub struct QuestionJson<'a> {
    /// The run that asks.
    run_id: RunId,
    /// Its pipeline.
    pipeline: &'a str,
    /// The step that waits, which an answer names.
    step_id: StepId,
    /// The step's node.
    node: &'a str,
    /// The question, as the pipeline words it.
    prompt: Option<&'a str>,
    /// The value with which the run continues, unless the answer has another.
    value: Option<&'a RawValue>,
    /// Present only if the value is too large for a list, or the token shows none: its size. `value` is then null.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_bytes: Option<u64>,
    /// Present only if the value is not JSON: the reason. `value` is then null.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<String>,
    /// Since when it waits.
    asked_at: Time,
    /// The time until which an answer counts.
    answer_by: Option<Time>,
    /// The move that follows without an answer: `halt` or `approve`; a newer version may know others.
    unanswered: Option<&'a str>,
}

impl<'a> QuestionJson<'a> {
    /// The form of this question.
    pub fn of(step: &'a WaitingStep, prompt: Option<&'a str>) -> Self {
        let is_whole = step.value.is_whole();
        let read = is_whole.then(|| serde_json::from_str::<&RawValue>(&step.value.text));
        let (value, damaged) = match read {
            Some(Ok(value)) => (Some(value), None),
            Some(Err(error)) => (None, Some(format!("the value is not JSON: {error}"))),
            None => (None, None),
        };
        let deadline = step.deadline.as_ref();
        Self {
            run_id: step.run_id,
            pipeline: &step.pipeline,
            step_id: step.step_id,
            node: &step.node,
            prompt,
            value,
            value_bytes: (!is_whole).then_some(step.value.size),
            damaged,
            asked_at: Time::of(step.since),
            answer_by: deadline.map(|it| Time::of(it.answer_by)),
            unanswered: deadline.map(|it| it.unanswered.as_str()),
        }
    }
}
