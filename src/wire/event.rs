//! Changes of runs, as they are told to those who asked for them.

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::*;

use super::Time;

/// A change of a run.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Event")]
pub struct EventJson<'a> {
    /// `run.started`, `run.dampened` (the run waits for a person), `run.completed`, `run.halted` or
    /// `run.cancelled`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// When it happened; for `run.dampened`, when it was seen.
    pub timestamp: Time,
    /// The run.
    pub data: EventDataJson<'a>,
}

/// The run that changed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EventData")]
pub struct EventDataJson<'a> {
    /// The run.
    pub run_id: RunId,
    /// Its pipeline.
    pub pipeline: &'a str,
    /// Its state since the change.
    pub status: &'static str,
}
