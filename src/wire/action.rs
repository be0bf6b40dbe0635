//! Interventions: those that were made, and the answers to them.

use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::model::*;
use crate::store::action::Action;

use super::Time;

/// An intervention.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Action")]
pub struct ActionJson<'a> {
    /// Its id.
    id: Uuid,
    /// When it was made.
    at: Time,
    /// The person or the program.
    by: &'a str,
    /// The way: `cli`, `api` or `console`.
    channel: &'a str,
    /// The deed: `trigger`, `revive`, `cancel`, `resume`, `pause`, `unpause` or `send`.
    verb: &'a str,
    /// The pipeline.
    pipeline: &'a str,
    /// The run, unless it was done to the pipeline.
    run_id: Option<RunId>,
    /// The run that a revival made.
    made: Option<RunId>,
    /// The bulk action of which it was a part.
    bulk: Option<Uuid>,
}

impl<'a> ActionJson<'a> {
    /// Of an intervention.
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

/// A run that was asked for.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Made")]
pub struct MadeJson {
    /// The run.
    pub run_id: RunId,
    /// False: the same had been asked for before, and this is what it made.
    pub created: bool,
}

/// A run that is cancelled.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Cancelled")]
pub struct CancelledJson {
    /// The run.
    pub run_id: RunId,
    /// True while some of it has still to end.
    pub ending: bool,
}

/// A run that was answered.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Resumed")]
pub struct ResumedJson {
    /// The run.
    pub run_id: RunId,
    /// Steps that go on.
    pub resumed: usize,
}

/// A pipeline that goes on.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Unpaused")]
pub struct UnpausedJson {
    /// False: it was not paused.
    pub was_paused: bool,
}
