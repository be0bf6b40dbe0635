//! The facts about a run, from which the answer is concluded.
//!
//! Owns: their form. Never: reads them, or concludes anything from them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::definition::Definition;
use crate::machine::halt::{HaltFact, Prospects};
use crate::machine::intake::{self, Closed, Taker};
use crate::machine::pause::Pause;
use crate::model::*;

use super::let_go_on;

/// The facts about a run, and about the processes that could move it.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The run.
    pub run_id: RunId,
    /// Its pipeline.
    pub pipeline: String,
    /// Its state.
    pub status: RunStatus,
    /// When it ended.
    pub ended_at: Option<i64>,
    /// The answer is for programs: it tells that time itself, not how long ago it was.
    pub is_for_programs: bool,
    /// If the run is being cancelled, when that work last continued.
    pub cancelling_at: Option<i64>,
    /// The person or the program that cancelled it.
    pub cancelled_by: Option<String>,
    /// The run that continues it.
    pub revived_as: Option<Successor>,
    /// The hook that was called when it ended, unless the hook has succeeded.
    pub hook: Option<HookFact>,
    /// The hook of a question that its deadline has decided, if the hook has failed for good.
    pub untold: Option<HookFact>,
    /// The questions that people have yet to answer: the first [`QUESTIONS_MAX`].
    pub questions: Vec<Question>,
    /// Its input: all of it, or none if it is too long for a command line.
    pub input: Option<String>,
    /// The database's time.
    pub now: i64,
    /// The age at which a heartbeat is stale.
    pub stale_after: Duration,
    /// All processes.
    pub processes: Vec<ProcessFact>,
    /// Its active branches that wait for no other branches; those nearest to moving come first.
    pub leaves: Vec<Leaf>,
    /// Barriers that are still to fire.
    pub barriers: Vec<BarrierFact>,
    /// Why branches halted by themselves: the first
    /// [`HALTS_MAX`](crate::machine::halt::HALTS_MAX).
    pub halts: Vec<HaltFact>,
    /// How it may go on, if it has halted.
    pub prospects: Prospects,
    /// Why this version cannot read its definition, if it cannot.
    pub unreadable: Option<Unreadable>,
    /// The first digits of its definition's digest, by which troubles name it.
    pub definition: String,
    /// Its definition, if this version can read it.
    pub graph: Option<Arc<Definition>>,
    /// The steps of that definition to which the configuration gives a timeout.
    pub limited: BTreeSet<String>,
    /// The way to end the transaction that has locked rows for which work waits, if its session is known.
    pub holder: Option<String>,
    /// Executions of its pipeline that are due; `None` when it is not queued.
    pub backlog: Option<u64>,
    /// The pause of its pipeline, if it is paused.
    pub pause: Option<Pause>,
}

/// A definition that cannot be used.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// The cause.
    pub fact: String,
    /// The way out.
    pub remedy: &'static str,
}

/// A process.
#[derive(Clone, Debug)]
pub struct ProcessFact {
    /// Its key.
    pub id: ProcessId,
    /// Its supervisor, if it has one.
    pub supervisor: Option<ProcessId>,
    /// Its purpose.
    pub role: Role,
    /// The pipeline whose jobs it works on.
    pub pipeline: Option<String>,
    /// Its host.
    pub host: String,
    /// Its pid there.
    pub pid: u32,
    /// The time since its last heartbeat.
    pub age: Duration,
    /// Its host knows that it is dead, or it was declared dead.
    pub dead: bool,
    /// It was declared dead, and holds claims that could not be given back yet.
    pub condemned: bool,
    /// Its host knows that a signal has stopped it.
    pub stopped: bool,
    /// Whether it takes new work.
    pub intake: Intake,
    /// How much it holds: steps that it runs or has claimed, or branches that it advances.
    pub holds: u64,
    /// When a heartbeat last told that it had claimed or advanced something, by the database's clock.
    pub moved_at: i64,
    /// The trouble that keeps it from making progress.
    pub trouble: Option<String>,
}

impl ProcessFact {
    pub(super) fn taker(&self) -> Taker<'_> {
        Taker {
            id: self.id,
            supervisor: self.supervisor,
            role: self.role,
            pid: self.pid,
            host: &self.host,
            intake: self.intake,
        }
    }

    pub(super) fn is_alive(&self, stale_after: Duration) -> bool {
        !self.dead && self.age < stale_after
    }

    /// The remedy if a signal has stopped it.
    pub(super) fn let_go_on(&self) -> Option<String> {
        self.stopped.then(|| let_go_on(self.pid))
    }

    /// True if it has missed a heartbeat: it beats six times in the time after which it is stale.
    pub(super) fn is_silent(&self, stale_after: Duration) -> bool {
        self.age >= stale_after / 3
    }
}

/// A branch that waits for no other branches.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The node at which it stands.
    pub node: String,
    /// The question that a person is asked there.
    pub prompt: Option<String>,
    /// The consequence if nobody answers, and its time, in words.
    pub deadline: Option<String>,
    /// The number of the current attempt at its step.
    pub attempt: Option<u32>,
    /// The error of the attempt before.
    pub error: Option<String>,
    /// The thing that it waits for.
    pub state: LeafState,
}

/// The thing that such a branch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafState {
    /// A process performs its step.
    Running {
        /// The process.
        process: ProcessId,
        /// Since when.
        since: i64,
    },
    /// Its step is in the queue.
    Queued {
        /// The earliest time at which it may be claimed.
        due_at: i64,
    },
    /// It may be advanced.
    Ready {
        /// The earliest time.
        from: i64,
    },
    /// A process advances it.
    Advancing {
        /// The process.
        process: ProcessId,
        /// Since when.
        since: i64,
    },
    /// A person has to answer.
    Asked,
    /// Nothing that could move it is known.
    Nothing,
}

/// A barrier that is still to fire.
#[derive(Clone, Debug)]
pub struct BarrierFact {
    /// The node whose output was spread.
    pub node: String,
    /// How many branches it has.
    pub width: i64,
    /// How many have ended.
    pub arrived: i64,
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The step that waits for the answer.
    pub step: StepId,
    /// Its node.
    pub node: String,
    /// The text of the question, if the definition has one.
    pub prompt: Option<String>,
    /// Since when it waits, in µs since 1970.
    pub since: i64,
    /// The deadline, in µs since 1970, and the stored word for the consequence when it passes.
    pub deadline: Option<(i64, String)>,
    /// The deadline has passed: no answer counts any more.
    pub is_late: bool,
    /// The hook that was called when it was asked, if the hook has failed for good.
    pub failed_hook: Option<HookFact>,
}

/// A hook that has not succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookFact {
    /// `on_halt`, `on_complete` or `on_wait`.
    pub via: String,
    /// The error of the last of its attempts that have ended.
    pub error: Option<String>,
    /// How far it is.
    pub state: HookState,
}

/// How far a hook is that has not succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookState {
    /// It has failed for good.
    Failed,
    /// A process runs an attempt.
    Running {
        /// The number of the attempt.
        attempt: u32,
        /// The process has sent a heartbeat lately.
        is_alive: bool,
    },
    /// An attempt is in the queue.
    Queued {
        /// The number of the attempt.
        attempt: u32,
        /// The earliest time at which it may be claimed.
        due_at: i64,
    },
}

/// The continuation of a run that was revived.
#[derive(Clone, Copy, Debug)]
pub struct Successor {
    /// The run that it was revived as.
    pub run: RunId,
    /// The last run of its line: that one, unless it was revived in turn.
    pub newest: RunId,
    /// The state of the last run, unless that run is being deleted.
    pub status: Option<RunStatus>,
}

impl Facts {
    /// Why none of these takes new work.
    pub(super) fn closed(&self, alive: &[&ProcessFact]) -> Option<Closed> {
        let takers: Vec<_> = alive.iter().map(|it| it.taker()).collect();
        intake::closed(&takers, &self.living())
    }

    /// The living processes.
    pub(super) fn living(&self) -> Vec<Taker<'_>> {
        let processes = self.processes.iter();
        let living = processes.filter(|it| it.is_alive(self.stale_after));
        living.map(ProcessFact::taker).collect()
    }

    /// The living supervisors.
    pub(super) fn supervisors(&self) -> impl Iterator<Item = &ProcessFact> {
        let processes = self.processes.iter();
        processes.filter(|it| it.role == Role::Supervisor && it.is_alive(self.stale_after))
    }

    /// Takes down the steps to which the configuration gives a timeout.
    pub fn limit(&mut self, has_timeout: impl Fn(&str) -> bool) {
        let steps = self.graph.iter().flat_map(|graph| graph.steps.keys());
        self.limited = steps.filter(|step| has_timeout(step)).cloned().collect();
    }

    /// Leaves inputs and outputs out of every fact and remedy.
    pub fn withhold_payloads(&mut self) {
        self.input = None;
        self.halts.iter_mut().for_each(HaltFact::withhold);
    }
}
