//! The answer of `health`.

use serde::Serialize;

use crate::machine::stuck::Stuck;
use crate::model::RunId;
use crate::store::delivery::COUNTED;

use super::Time;
use super::pipeline::PausedJson;
use super::process::{DepartedJson, ProcessJson};

/// Whether all is well.
#[derive(Serialize)]
pub struct HealthJson<'a> {
    /// All is well.
    pub healthy: bool,
    /// The supervisors that were asked for.
    pub supervisors: usize,
    /// Those that give no signs of life.
    pub stale: usize,
    /// Those among them that are known to be dead.
    pub dead: usize,
    /// Those that were told to end, and finish their work.
    pub stopping: usize,
    /// Why nobody can write.
    pub obstacle: Option<&'a str>,
    /// The pid of the process that is the cause of that.
    pub writer: Option<i32>,
    /// All that does not move although it should.
    pub stuck: Vec<StuckJson<'a>>,
    /// The pipelines that are paused, which is no fault.
    pub paused: Vec<PausedJson<'a>>,
    /// Endpoints that have taken no messages for long, which is no fault of Ductwork's: the first few, in words.
    pub undelivered: Option<String>,
    /// Messages that are kept for endpoints that are no longer configured.
    pub kept: Vec<KeptJson<'a>>,
    /// A collector that takes no traces, which is no fault of Ductwork's.
    pub untraced: Option<&'a str>,
    /// Settings with which the server may lose what it has acknowledged.
    pub careless: Option<&'a str>,
    /// Supervisors that others found dead within the last hour, which is no fault any more.
    pub lost: Vec<DepartedJson<'a>>,
    /// All processes, where they were asked for.
    pub processes: Option<Vec<ProcessJson<'a>>>,
}

/// Messages that are kept for an endpoint that is no longer configured.
#[derive(Serialize)]
pub struct KeptJson<'a> {
    endpoint: &'a str,
    messages: u64,
    /// There may be more of them.
    is_more: bool,
}

impl<'a> KeptJson<'a> {
    /// This many messages to an endpoint.
    pub fn of(endpoint: &'a str, messages: u64) -> Self {
        Self {
            endpoint,
            messages,
            is_more: messages >= COUNTED as u64,
        }
    }
}

/// Something that does not move.
#[derive(Serialize)]
pub struct StuckJson<'a> {
    cause: &'a str,
    pipeline: Option<&'a str>,
    run_id: Option<RunId>,
    since: Time,
    fact: &'a str,
    remedy: &'a str,
}

impl<'a> StuckJson<'a> {
    /// The form of it.
    pub fn of(stuck: &'a Stuck) -> Self {
        Self {
            cause: stuck.cause,
            pipeline: stuck.pipeline.as_deref(),
            run_id: stuck.run_id,
            since: Time::of(stuck.since),
            fact: &stuck.fact,
            remedy: &stuck.remedy,
        }
    }
}
