//! A process: one that is registered, and one that is gone.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::{ProcessId, Role};
use crate::store::departed::Departed;
use crate::store::process::ProcessRow;

use super::Time;

/// The state of a process, as far as a host can know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It gives signs of life.
    Healthy,
    /// Its heartbeat is too old.
    Stale,
    /// Its host, which is this one, knows that it is dead.
    Dead,
}

impl State {
    /// Of a process whose heartbeat has this age.
    pub fn of(age: Duration, lease: Duration, is_dead: impl FnOnce() -> bool) -> Self {
        match age < lease {
            _ if is_dead() => Self::Dead,
            true => Self::Healthy,
            false => Self::Stale,
        }
    }
}

/// A registered process.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Process")]
pub struct ProcessJson<'a> {
    /// Its id.
    id: ProcessId,
    /// Its role.
    role: Role,
    /// The pipeline whose steps it runs.
    pipeline: Option<&'a str>,
    /// Its pid, on its host.
    pid: u32,
    /// Its host.
    host: &'a str,
    /// The program's version.
    version: &'a str,
    /// When it registered.
    started_at: Time,
    /// When it gave its last sign of life.
    last_heartbeat_at: Time,
    /// How long ago that was, by the database's clock.
    heartbeat_age_ms: u64,
    /// It gives signs of life.
    healthy: bool,
    /// The host that was asked is its own, and knows that it is dead.
    dead: bool,
    /// It was told to claim nothing.
    quiet: bool,
    /// It claims nothing, because its pipeline is paused.
    paused: bool,
}

impl<'a> ProcessJson<'a> {
    /// The form of a process in this state.
    pub fn of(process: &'a ProcessRow, state: State) -> Self {
        Self {
            id: process.id,
            role: process.role,
            pipeline: process.pipeline.as_deref(),
            pid: process.pid,
            host: &process.host,
            version: &process.version,
            started_at: Time::of(process.started_at),
            last_heartbeat_at: Time::of(process.last_heartbeat_at),
            heartbeat_age_ms: millis(process.age),
            healthy: state == State::Healthy,
            dead: state == State::Dead,
            quiet: process.quiet,
            paused: process.paused,
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A process that is gone.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DepartedProcess")]
pub struct DepartedJson<'a> {
    /// Its id.
    id: ProcessId,
    /// Its role.
    role: &'a str,
    /// The pipeline whose steps it ran.
    pipeline: Option<&'a str>,
    /// Its pid, on its host.
    pid: u32,
    /// Its host.
    host: &'a str,
    /// The program's version.
    version: &'a str,
    /// When it registered.
    started_at: Time,
    /// When it was gone.
    gone_at: Time,
    /// How it was known to be dead; null where it ended in order.
    death: Option<&'a str>,
}

impl<'a> DepartedJson<'a> {
    /// The form of this process.
    pub fn of(departed: &'a Departed) -> Self {
        Self {
            id: departed.id,
            role: &departed.role,
            pipeline: departed.pipeline.as_deref(),
            pid: departed.pid,
            host: &departed.host,
            version: &departed.version,
            started_at: Time::of(departed.started_at),
            gone_at: Time::of(departed.gone_at),
            death: departed.death.as_deref(),
        }
    }
}

/// Registered processes, or those that are gone. For the schema.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Processes")]
pub enum ProcessesJson<'a> {
    /// Registered.
    Registered(Vec<ProcessJson<'a>>),
    /// Gone.
    Departed(Vec<DepartedJson<'a>>),
}
