//! A fan-out, its elements, and the runs that have halted, by kind.

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::*;
use crate::store::fan_out::{Element, FanOut};
use crate::store::halted::{Halted, HaltedKind};

use super::Time;

/// A fan-out of a run.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FanOut")]
pub struct FanOutJson<'a> {
    /// Its id.
    id: FanOutId,
    /// The branch that was split.
    branch_id: BranchId,
    /// The node whose output was spread.
    node: &'a str,
    /// The transition: `divide` or `expand`.
    via: &'a str,
    /// The number of elements that it will have.
    width: u64,
    /// The number of elements that have been made so far.
    made: u64,
    /// The number of elements that have ended, in any way.
    arrived: u64,
    /// The number of ended elements that have halted.
    halted: u64,
    /// When it was made.
    created_at: Time,
    /// When its last element arrived.
    fired_at: Option<Time>,
}

impl<'a> FanOutJson<'a> {
    /// The form of this fan-out.
    pub fn of(fan_out: &'a FanOut) -> Self {
        Self {
            id: fan_out.id,
            branch_id: fan_out.branch_id,
            node: &fan_out.node,
            via: &fan_out.via,
            width: fan_out.width,
            made: fan_out.made,
            arrived: fan_out.arrived,
            halted: fan_out.halted,
            created_at: Time::of(fan_out.created_at),
            fired_at: fan_out.fired_at.map(Time::of),
        }
    }
}

/// An element of a fan-out: a branch, with the step that it is at.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Element")]
pub struct ElementJson<'a> {
    /// Its place: 0, 1, ….
    ordinal: u64,
    /// Its branch.
    branch_id: BranchId,
    /// Its state.
    status: BranchStatus,
    /// The reason why it halted.
    halt_reason: Option<&'a str>,
    /// The step that it is at.
    step_id: StepId,
    /// The node of that step.
    node: &'a str,
    /// The state of that step.
    step_status: StepStatus,
    /// The number of the latest attempt at that step.
    attempt: Option<u32>,
    /// The process that holds, or held, that attempt.
    process_id: Option<ProcessId>,
    /// The reason why that attempt failed.
    error_message: Option<&'a str>,
}

impl<'a> ElementJson<'a> {
    /// The form of this element.
    pub fn of(element: &'a Element) -> Self {
        Self {
            ordinal: element.ordinal,
            branch_id: element.branch_id,
            status: element.status,
            halt_reason: element.halt_reason.as_deref(),
            step_id: element.step_id,
            node: &element.node,
            step_status: element.step_status,
            attempt: element.attempt,
            process_id: element.process_id,
            error_message: element.error_message.as_deref(),
        }
    }
}

/// The halted runs that no other run continues, by kind.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Halted")]
pub struct HaltedJson<'a> {
    /// The kinds, the most frequent first.
    kinds: Vec<KindJson<'a>>,
    /// True if there are older halted runs, which were not looked at.
    is_partial: bool,
}

/// Runs that halted in the same way.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "HaltedKind")]
struct KindJson<'a> {
    /// Their pipeline.
    pipeline: &'a str,
    /// The node at which they halted.
    node: Option<&'a str>,
    /// The reason for the halt, for machines.
    reason: Option<&'a str>,
    /// The class of the error.
    class: Option<&'a str>,
    /// The error's message, without the details that are particular to a run.
    kind: &'a str,
    /// The message of the newest of these runs, or its first 1,000 characters.
    message: &'a str,
    /// The number of these runs among those that were looked at.
    runs: u64,
    /// The ids of up to 100 of them, newest first.
    ids: &'a [RunId],
    /// When the first of them halted.
    first_at: Time,
    /// When the last of them halted.
    last_at: Time,
}

impl<'a> HaltedJson<'a> {
    /// The form of these halted runs.
    pub fn of(halted: &'a Halted) -> Self {
        let kind = |kind: &'a HaltedKind| KindJson {
            pipeline: &kind.pipeline,
            node: kind.kind.node.as_deref(),
            reason: kind.kind.reason.as_deref(),
            class: kind.kind.class.as_deref(),
            kind: &kind.kind.error,
            message: &kind.message,
            runs: kind.runs,
            ids: &kind.ids,
            first_at: Time::of(kind.first_at),
            last_at: Time::of(kind.last_at),
        };
        Self {
            kinds: halted.kinds.iter().map(kind).collect(),
            is_partial: halted.is_partial,
        }
    }
}
