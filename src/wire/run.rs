//! A run: in a list, alone, and why it does not move.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::machine::halt::HaltFact;
use crate::machine::why::{Question, Why};
use crate::model::*;
use crate::store::query::Run;

use super::Time;
use super::action::ActionJson;
use super::step::StepJson;

/// A run.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Run")]
pub struct RunJson<'a> {
    /// Its id.
    id: RunId,
    /// Its pipeline.
    pipeline: &'a str,
    /// The key that it was triggered with; a second trigger with this key starts no other run.
    key: Option<&'a str>,
    /// Its state.
    status: RunStatus,
    /// Its input.
    input: &'a RawValue,
    /// Its output, once it has completed.
    output: Option<&'a RawValue>,
    /// The digest of its definition.
    definition: &'a str,
    /// The halted run that it continues.
    revived_from: Option<RunId>,
    /// The run that continues it, if it was revived.
    revived_as: Option<RunId>,
    /// When it was triggered.
    triggered_at: Time,
    /// When its first step was claimed.
    started_at: Option<Time>,
    /// Present only while the run's first step may not be claimed yet: when it may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<Time>,
    /// When it completed.
    completed_at: Option<Time>,
    /// When it halted.
    halted_at: Option<Time>,
    /// When it was cancelled.
    cancelled_at: Option<Time>,
    /// The reasons why branches of it halted, each once.
    halt_reasons: &'a [String],
    /// Present only if the input is too large for a list: its size. `input` is then null.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_bytes: Option<u64>,
    /// Present only if the output is too large for a list: its size. `output` is then null.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_bytes: Option<u64>,
    /// Present only if the input or the output is not JSON: which of them, and why. That payload is then null.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<String>,
}

impl<'a> RunJson<'a> {
    /// The form of this run.
    pub fn of(run: &'a Run) -> Self {
        Self {
            id: run.id,
            pipeline: &run.pipeline,
            key: run.trigger_key.as_deref(),
            status: run.status,
            input: &run.input,
            output: run.output.as_deref(),
            definition: &run.definition,
            revived_from: run.revived_from,
            revived_as: run.revived_as,
            triggered_at: Time::of(run.triggered_at),
            started_at: run.started_at.map(Time::of),
            due_at: run.due_at.map(Time::of),
            completed_at: run.completed_at.map(Time::of),
            halted_at: run.halted_at.map(Time::of),
            cancelled_at: run.cancelled_at.map(Time::of),
            halt_reasons: &run.halt_reasons,
            input_bytes: run.left_out.input,
            output_bytes: run.left_out.output,
            damaged: run.damaged.as_ref().map(ToString::to_string),
        }
    }
}

/// A run, complete except for its steps.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RunAlone")]
pub struct AloneJson<'a> {
    /// The run.
    #[serde(flatten)]
    pub run: RunJson<'a>,
    /// Present only if the run was revived with another definition: the digest of the definition of the run that it
    /// continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition_was: Option<&'a str>,
    /// Present only if the run halted: where and why branches of it halted, limited to a few.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub halts: Vec<HaltJson<'a>>,
    /// Present only if the run has not ended and this version cannot read its definition: the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// A run with its steps.
#[derive(Serialize)]
pub struct WholeJson<'a> {
    /// The run.
    #[serde(flatten)]
    pub alone: AloneJson<'a>,
    /// Its steps, oldest first.
    pub steps: Vec<StepJson<'a>>,
    /// The actions in it, newest first: at most 100.
    pub actions: Vec<ActionJson<'a>>,
    /// Only where a limit was asked for, and reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
}

/// The halt of a branch.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Halt")]
pub struct HaltJson<'a> {
    /// The reason for the halt, for machines.
    reason: &'a str,
    /// The node at which the branch halted.
    node: &'a str,
    /// The reason, in words.
    explanation: Option<&'a str>,
}

impl<'a> HaltJson<'a> {
    /// The form of this halt.
    pub fn of(fact: &'a HaltFact, explanation: Option<&'a str>) -> Self {
        Self {
            reason: &fact.reason,
            node: &fact.node,
            explanation,
        }
    }
}

/// The one fact that keeps a run from moving.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Why")]
pub struct WhyJson<'a> {
    /// The run.
    pub run_id: RunId,
    /// Its state.
    pub status: RunStatus,
    /// The cause, for machines.
    pub cause: &'a str,
    /// The fact, for people.
    pub fact: &'a str,
    /// The remedy; null if nothing has to be done.
    pub remedy: Option<String>,
    /// Present only if people have yet to answer questions of the run; the run itself may go on in other branches. The
    /// first 100 questions; none while a run of more than 2000 branches goes on elsewhere. The step has the value to
    /// decide on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionJson<'a>>,
}

/// A question to a person.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Question")]
pub struct QuestionJson<'a> {
    /// The step that waits for the answer.
    step: StepId,
    /// Its node in the graph.
    node: &'a str,
    /// The text of the question; null if the definition has none, or if this version cannot read the definition.
    prompt: Option<&'a str>,
    /// Since when it waits.
    since: Time,
    /// Until when it waits for an answer; null without a deadline.
    answer_by: Option<Time>,
    /// The consequence if nobody answers by then, `approve` or `halt`; null without a deadline.
    then: Option<&'a str>,
    /// True once that time has passed, by the database's clock, where this version knows the consequence: no answer counts
    /// any more.
    is_late: bool,
    /// Present only if its `on_wait` hook has failed for good, so that perhaps nobody was told: the error of its last
    /// attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    hook_error: Option<&'a str>,
}

impl<'a> QuestionJson<'a> {
    fn of(question: &'a Question) -> Self {
        let deadline = question.deadline.as_ref();
        let hook = question.failed_hook.as_ref();
        Self {
            step: question.step,
            node: &question.node,
            prompt: question.prompt.as_deref(),
            since: Time::of(question.since),
            answer_by: deadline.map(|(at, _)| Time::of(*at)),
            then: deadline.map(|(_, then)| then.as_str()),
            is_late: question.is_late,
            hook_error: hook.map(|hook| hook.error.as_deref().unwrap_or_default()),
        }
    }
}

impl<'a> WhyJson<'a> {
    /// The form of this answer, with its remedy in the words for the one who asks.
    pub fn of(run_id: RunId, status: RunStatus, why: &'a Why, remedy: Option<String>) -> Self {
        Self {
            run_id,
            status,
            cause: why.cause,
            fact: &why.fact,
            remedy,
            questions: why.questions.iter().map(QuestionJson::of).collect(),
        }
    }
}
