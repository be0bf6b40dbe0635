//! Changes of runs, as somebody is told of them who asked to be.

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::*;

use super::Time;

/// A change of a run.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Event")]
pub struct EventJson<'a> {
    /// `run.started`, `run.dampened` (it waits for a person), `run.completed`, `run.halted` or `run.cancelled`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// When it happened; of `run.dampened` when it was seen.
    pub timestamp: Time,
    /// The run.
    pub data: EventDataJson<'a>,
}

/// The run of a change.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EventData")]
pub struct EventDataJson<'a> {
    /// The run.
    pub run_id: RunId,
    /// Its pipeline.
    pub pipeline: &'a str,
    /// Its state since then.
    pub status: &'static str,
}
