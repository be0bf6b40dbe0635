//! A pipeline as a whole: its runs and its queue, counted; and its definitions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::machine::pause::Pause;
use crate::store::definition::Stored;

use super::Time;

/// A pipeline that was triggered once, or that a process works.
#[derive(Default, Serialize, JsonSchema)]
#[schemars(rename = "Pipeline")]
pub struct PipelineJson {
    /// Its name.
    pub name: String,
    /// Its runs by state, where there are any, each counted up to 10,000. Halted ones that were revived are left out:
    /// of the newest 10,000 that have halted those are counted that nobody has revived.
    pub runs: BTreeMap<&'static str, u64>,
    /// Its queue.
    pub queue: QueueJson,
    /// The workers that give signs of life.
    pub workers: u64,
    /// The digest of its newest definition.
    pub definition: Option<String>,
    /// Its pause; null where it is not paused.
    pub paused: Option<PauseJson>,
}

/// The pause of a pipeline: nothing is taken off its queue.
#[derive(Clone, Serialize, JsonSchema)]
#[schemars(rename = "Pause")]
pub struct PauseJson {
    /// The reason that was given.
    reason: String,
    /// The person who paused it.
    by: String,
    /// When it was paused.
    at: Time,
}

impl PauseJson {
    /// The form of it.
    pub fn of(pause: &Pause) -> Self {
        Self {
            reason: pause.reason.clone(),
            by: pause.by.clone(),
            at: Time::of(pause.at),
        }
    }
}

/// A pipeline that is paused.
#[derive(Serialize)]
pub struct PausedJson<'a> {
    pipeline: &'a str,
    #[serde(flatten)]
    pause: PauseJson,
}

impl<'a> PausedJson<'a> {
    /// The form of it.
    pub fn of(pause: &'a Pause) -> Self {
        Self {
            pipeline: &pause.pipeline,
            pause: PauseJson::of(pause),
        }
    }
}

/// The queue of a pipeline.
#[derive(Default, Serialize, JsonSchema)]
#[schemars(rename = "Queue")]
pub struct QueueJson {
    /// Executions that may be claimed, counted up to 10,000.
    pub due: u64,
    /// Executions that may be claimed later, counted up to 10,000.
    pub later: u64,
    /// How long the first that may be claimed has waited.
    pub oldest_seconds: Option<f64>,
}

/// How much there is to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Stats")]
pub struct StatsJson {
    /// The executions that wait for a worker.
    pub queue: DepthJson,
    /// Executions that workers hold.
    pub running: u64,
}

/// The length of a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Depth")]
pub struct DepthJson {
    /// Executions that may be claimed, counted up to 10,000 for each pipeline.
    pub depth: u64,
    /// How long the first of them has waited; 0 where there is none.
    pub oldest_seconds: f64,
}

/// A definition of a pipeline.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Definition")]
pub struct DefinitionJson<'a> {
    /// Its digest.
    digest: &'a str,
    /// Its pipeline.
    pipeline: &'a str,
    /// When it was triggered for the first time.
    created_at: Time,
    /// Its canonical form.
    definition: Option<&'a RawValue>,
}

impl<'a> DefinitionJson<'a> {
    /// The form of this definition.
    pub fn of(stored: &'a Stored) -> Self {
        Self {
            digest: &stored.digest,
            pipeline: &stored.pipeline,
            created_at: Time::of(stored.created_at),
            definition: serde_json::from_str(&stored.body).ok(),
        }
    }
}
