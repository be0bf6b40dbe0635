//! A pipeline as a whole: its runs and its queue, counted; and its definitions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::machine::pause::Pause;
use crate::store::definition::Stored;

use super::Time;

/// A pipeline that has ever been triggered, or whose steps a process runs.
#[derive(Default, Serialize, JsonSchema)]
#[schemars(rename = "Pipeline")]
pub struct PipelineJson {
    /// Its name.
    pub name: String,
    /// The number of its runs in each state that has any, counted up to 10,000. Revived runs are left out: of the
    /// newest 10,000 halted runs, those that nobody has revived are counted.
    pub runs: BTreeMap<&'static str, u64>,
    /// True if older halted runs were not looked at: then `runs` may have too few of them, or 0.
    pub halted_is_partial: bool,
    /// Its queue.
    pub queue: QueueJson,
    /// The number of its workers that give signs of life and take what is due: no quiet worker, and none that was told
    /// to end.
    pub workers: u64,
    /// The digest of its latest definition: that of the newest run that was not made by a revival.
    pub definition: Option<String>,
    /// Its pause; null if it is not paused.
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
    /// The form of this pause.
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
    /// The form of this pause.
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
    /// The number of executions that may be claimed, counted up to 10,000.
    pub due: u64,
    /// The number of executions that may be claimed later, counted up to 10,000.
    pub later: u64,
    /// How long the first execution that may be claimed has waited.
    pub oldest_seconds: Option<f64>,
}

/// The amount of work, for a scaler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Stats")]
pub struct StatsJson {
    /// The executions that wait for a worker.
    pub queue: DepthJson,
    /// The number of executions that workers hold.
    pub running: u64,
}

/// The length of a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Depth")]
pub struct DepthJson {
    /// The number of executions that may be claimed, counted up to 10,000 for each pipeline.
    pub depth: u64,
    /// Those of them whose pipeline is not paused: more workers would claim them sooner.
    pub claimable: u64,
    /// How long the first of all has waited; 0 if there are none.
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
