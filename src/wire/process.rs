//! A process: one that is registered, and one that is gone.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::machine::stuck;
use crate::model::{Intake, ProcessId, Role};
use crate::store::departed::Departed;
use crate::store::process::ProcessRow;

use super::Time;

/// The state of a process, as far as a host can know it. Work asks only whether a process lives; people and programs
/// learn of its trouble as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It gives signs of life.
    Healthy,
    /// It gives signs of life, and reports a trouble that makes the deployment unhealthy.
    Troubled,
    /// Its heartbeat is too old.
    Stale,
    /// Its host, which is this one, knows that it is dead.
    Dead,
}

impl State {
    /// The state of a process whose heartbeat has this age.
    pub fn of(age: Duration, lease: Duration, is_dead: impl FnOnce() -> bool) -> Self {
        match age < lease {
            _ if is_dead() => Self::Dead,
            true => Self::Healthy,
            false => Self::Stale,
        }
    }

    /// The same, for a process of this role that reports this trouble. The words of one that gives no signs of life are
    /// old.
    pub fn with(self, role: Role, trouble: Option<&str>) -> Self {
        match trouble {
            Some(trouble) if self == Self::Healthy && stuck::is_fault(role, trouble) => {
                Self::Troubled
            }
            _ => self,
        }
    }

    /// True if it gives signs of life.
    pub fn lives(self) -> bool {
        matches!(self, Self::Healthy | Self::Troubled)
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
    /// When it sent its last heartbeat.
    last_heartbeat_at: Time,
    /// The age of that heartbeat, by the database's clock.
    heartbeat_age_ms: u64,
    /// True if it gives signs of life, and reports no trouble that `health` calls a fault.
    healthy: bool,
    /// True if it ran on the host that was asked, and that host knows that it is dead.
    dead: bool,
    /// True if it was told to claim nothing until it is told otherwise.
    quiet: bool,
    /// True if it was told to end: it claims nothing, and finishes what it holds.
    stopping: bool,
    /// True if it claims nothing because its pipeline is paused.
    paused: bool,
    /// The trouble that it reports: something keeps it from its work, or from a part of it. Null if it reports none, or
    /// gives no signs of life.
    trouble: Option<&'a str>,
    /// Since when that trouble has lasted.
    troubled_at: Option<Time>,
}

impl<'a> ProcessJson<'a> {
    /// The form of a process in this state.
    pub fn of(process: &'a ProcessRow, state: State) -> Self {
        let trouble = process.trouble.as_ref().filter(|_| state.lives());
        let state = state.with(process.role, trouble.map(|(text, _)| text.as_str()));
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
            quiet: process.intake == Intake::Quiet,
            stopping: process.intake == Intake::Stopping,
            paused: process.paused,
            trouble: trouble.map(|(text, _)| text.as_str()),
            troubled_at: trouble.map(|(_, since)| Time::of(*since)),
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
    /// When its registration ended.
    gone_at: Time,
    /// The sign by which it was known to be dead; null if it ended in an orderly way.
    death: Option<&'a str>,
    /// The id with which it has registered since, because it was declared dead and lived; else null.
    went_on_as: Option<ProcessId>,
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
            went_on_as: departed.went_on_as,
        }
    }
}

/// The registered processes, or those that are gone.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Processes")]
pub enum ProcessesJson<'a> {
    /// The registered processes.
    Registered(Vec<ProcessJson<'a>>),
    /// The processes that are gone.
    Departed(Vec<DepartedJson<'a>>),
}
