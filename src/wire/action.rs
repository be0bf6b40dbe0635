//! Actions: those that were made, and the answers to them.

use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::model::*;
use crate::store::action::Action;

use super::Time;

/// An action.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Action")]
pub struct ActionJson<'a> {
    /// Its id.
    id: Uuid,
    /// When it was made.
    at: Time,
    /// The person or the program that made it.
    by: &'a str,
    /// The channel: `cli`, `api` or `console`.
    channel: &'a str,
    /// The kind of action: `trigger`, `revive`, `cancel`, `resume`, `pause`, `unpause` or `send`.
    verb: &'a str,
    /// The pipeline.
    pipeline: &'a str,
    /// The run; null if the action was in the pipeline.
    run_id: Option<RunId>,
    /// The run that a revival made.
    made: Option<RunId>,
    /// The bulk action that it was a part of.
    bulk: Option<Uuid>,
}

impl<'a> ActionJson<'a> {
    /// The form of an action.
    pub fn of(action: &'a Action) -> Self {
        Self {
            id: action.id,
            at: Time::of(action.at),
            by: &action.by,
            channel: &action.channel,
            verb: &action.verb,
            pipeline: &action.pipeline,
            run_id: action.run,
            made: action.made,
            bulk: action.bulk,
        }
    }
}

/// A run that was requested.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Made")]
pub struct MadeJson {
    /// The run.
    pub run_id: RunId,
    /// False if the same had been requested before: the run is the one that the earlier request made.
    pub created: bool,
}

/// A run that is cancelled.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Cancelled")]
pub struct CancelledJson {
    /// The run.
    pub run_id: RunId,
    /// True while a part of the run has yet to end.
    pub ending: bool,
}

/// A run that received an answer.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Resumed")]
pub struct ResumedJson {
    /// The run.
    pub run_id: RunId,
    /// The number of steps that continue.
    pub resumed: usize,
    /// The number of other questions, which were not answered because their deadlines had passed.
    pub late: usize,
}

/// A pipeline that continues.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Unpaused")]
pub struct UnpausedJson {
    /// False if it was not paused.
    pub was_paused: bool,
}
