//! A step with its attempts, and what an attempt wrote.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::model::*;
use crate::store::logs::{Attempt, Logged};
use crate::store::query::{ExecutionRow, Spread, StepRow};
use crate::store::steps::Listed;

use super::Time;

/// A step of a run.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Step")]
pub struct StepJson<'a> {
    /// Its id.
    id: StepId,
    /// Its node in the graph.
    node: &'a str,
    /// Its name.
    step: &'a str,
    /// The transition by which it was reached.
    via: &'a str,
    /// The branch that it is on.
    branch_id: BranchId,
    /// Its state.
    status: StepStatus,
    /// Its input.
    input: &'a RawValue,
    /// Its output, once it has one.
    output: Option<&'a RawValue>,
    /// When its first attempt was claimed.
    started_at: Option<Time>,
    /// When it ended.
    completed_at: Option<Time>,
    /// The name of the one who answered; absent without an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    answered_by: Option<&'a str>,
    /// Present only if the input is too large for a list: its size. `input` is then null.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_bytes: Option<u64>,
    /// Present only if the output is too large for a list: its size. `output` is then null.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_bytes: Option<u64>,
    /// Present only if the input or the output is not JSON: which of them, and why. That payload is then null.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<String>,
    /// Present only if `executions` lacks its earlier attempts: the number of all attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    /// Its attempts, in order. In the API the last ones: 100 of one step, and 20 of each step in a list.
    executions: Vec<ExecutionJson<'a>>,
}

/// An attempt at a step.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Execution")]
pub struct ExecutionJson<'a> {
    /// Its id.
    id: ExecutionId,
    /// The number of the attempt: 1, 2, ….
    attempt: u32,
    /// The number of errors in earlier attempts.
    retry_count: u32,
    /// The number of crashes in earlier attempts.
    crash_count: u32,
    /// The process that holds, or held, the attempt.
    process_id: Option<ProcessId>,
    /// When it was claimed.
    claimed_at: Option<Time>,
    /// When it ended.
    completed_at: Option<Time>,
    /// How it ended.
    result: Option<ExecutionResult>,
    /// The class of the error, for machines.
    error_class: Option<&'a str>,
    /// The error message, for people.
    error_message: Option<&'a str>,
    /// The end of its output on stderr, and after `[standard output]` that of its output on stdout, if it failed. Always
    /// null in the API, where the execution's log has it.
    error_backtrace: Option<&'a str>,
}

impl<'a> StepJson<'a> {
    /// The form of this step.
    pub fn of(step: &'a StepRow) -> Self {
        Self {
            id: step.id,
            node: &step.node,
            step: &step.step,
            via: &step.via,
            branch_id: step.branch_id,
            status: step.status,
            input: &step.input,
            output: step.output.as_deref(),
            started_at: step.started_at().map(Time::of),
            completed_at: step.completed_at.map(Time::of),
            answered_by: step.answered_by.as_deref(),
            input_bytes: None,
            output_bytes: None,
            damaged: None,
            attempts: step.all_attempts(),
            executions: step.executions.iter().map(ExecutionJson::of).collect(),
        }
    }

    /// The form of this step in a list.
    pub fn listed(listed: &'a Listed) -> Self {
        Self {
            input_bytes: listed.left_out.input,
            output_bytes: listed.left_out.output,
            damaged: listed.damaged.as_ref().map(ToString::to_string),
            ..Self::of(&listed.step)
        }
    }
}

impl<'a> ExecutionJson<'a> {
    fn of(execution: &'a ExecutionRow) -> Self {
        Self {
            id: execution.id,
            attempt: execution.attempt,
            retry_count: execution.retry_count,
            crash_count: execution.crash_count,
            process_id: execution.process_id,
            claimed_at: execution.claimed_at.map(Time::of),
            completed_at: execution.completed_at.map(Time::of),
            result: execution.result,
            error_class: execution.error_class.as_deref(),
            error_message: execution.error_message.as_deref(),
            error_backtrace: execution.error_backtrace.as_deref(),
        }
    }
}

/// An attempt, and the end of its output on stderr.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Log")]
pub struct LogJson<'a> {
    /// The run.
    run_id: RunId,
    /// The attempt.
    execution_id: ExecutionId,
    /// The node.
    node: &'a str,
    /// The step.
    step: &'a str,
    /// Present only inside a fan-out: the step's element in each expand, outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    elements: Vec<PlaceJson<'a>>,
    /// The number of the attempt: 1, 2, ….
    attempt: u32,
    /// How it ended.
    result: Option<ExecutionResult>,
    /// The class of the error, for machines.
    error_class: Option<&'a str>,
    /// The error message, for people.
    error_message: Option<&'a str>,
    /// When it was claimed.
    claimed_at: Option<Time>,
    /// When it ended.
    completed_at: Option<Time>,
    /// The end of its output on stderr; if it ended with another exit status than 0, by a signal or at its timeout, also the end of its
    /// output on stdout, after a line `[standard output]`; at most 64 KiB. Null if it has not ended, wrote nothing, or was ended from
    /// outside.
    log: Option<&'a str>,
}

/// An element of an expand.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ElementPlace")]
struct PlaceJson<'a> {
    /// The node whose output was expanded.
    node: &'a str,
    /// The number of the element: 1, 2, ….
    element: i64,
    /// The total number of elements.
    of: i64,
}

impl<'a> PlaceJson<'a> {
    fn all(spreads: &'a [Spread]) -> Vec<Self> {
        let expands = spreads.iter().rev().filter(|spread| spread.via == "expand");
        let one = |spread: &'a Spread| Self {
            node: &spread.node,
            element: spread.ordinal + 1,
            of: spread.width,
        };
        expands.map(one).collect()
    }
}

impl<'a> LogJson<'a> {
    /// The form of an attempt of this run that has ended and wrote something.
    pub fn of(run_id: RunId, logged: &'a Logged, spreads: &'a [Spread]) -> Self {
        Self {
            run_id,
            execution_id: logged.execution,
            node: &logged.node,
            step: &logged.step,
            elements: PlaceJson::all(spreads),
            attempt: logged.attempt,
            result: Some(logged.result),
            error_class: logged.error_class.as_deref(),
            error_message: logged.error_message.as_deref(),
            claimed_at: logged.claimed_at.map(Time::of),
            completed_at: Some(Time::of(logged.completed_at)),
            log: Some(&logged.log),
        }
    }

    /// The form of any attempt.
    pub fn attempt(attempt: &'a Attempt, spreads: &'a [Spread]) -> Self {
        Self {
            run_id: attempt.run_id,
            execution_id: attempt.execution,
            node: &attempt.node,
            step: &attempt.step,
            elements: PlaceJson::all(spreads),
            attempt: attempt.attempt,
            result: attempt.result,
            error_class: attempt.error_class.as_deref(),
            error_message: attempt.error_message.as_deref(),
            claimed_at: attempt.claimed_at.map(Time::of),
            completed_at: attempt.completed_at.map(Time::of),
            log: attempt.log.as_deref(),
        }
    }
}
