//! The rows that each branch's advance becomes.
//!
//! Owns: the plan of a transition: new steps, branches and barriers, moves, arrivals and ends of
//! runs, as values. Pure: the parent module writes them, and loads the branches that they are made
//! for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::definition::{Definition, NodeIndex, Target};
use crate::machine::advance::{Advance, Value};
use crate::model::*;

use super::super::{batch_size, micros};

/// A branch that crosses an edge, under an advancer's claim that was opened in an earlier
/// transaction.
pub struct Crossing<'a> {
    /// The branch.
    pub branch_id: BranchId,
    /// Its run.
    pub run_id: RunId,
    /// Its run's pipeline.
    pub pipeline: &'a str,
    /// Its run's definition.
    pub definition: &'a Arc<Definition>,
    /// The barrier at which it will arrive.
    pub fan_out_id: Option<FanOutId>,
    /// Its place in that fan-out.
    pub ordinal: i64,
    /// The step that it leaves.
    pub from: StepId,
    /// That step's place on the branch.
    pub from_ordinal: i64,
    /// That step's node.
    pub node: NodeIndex,
    /// True where that step has an output, with which the branch leaves it; otherwise the step has
    /// failed.
    pub leaves: bool,
    /// The claim's fence.
    pub token: ClaimToken,
    /// The record of the crossing.
    pub transition: TransitionId,
    /// The record of the attempt.
    pub advancement: AdvancementId,
    /// The barrier of the expand that the branch began in an earlier transaction, and how many
    /// branches the expand has so far.
    pub begun: Option<(FanOutId, usize)>,
    /// How many branches the expand has after this transaction.
    pub until: usize,
    /// The advance that it makes.
    pub advance: Advance<'a>,
}

impl Crossing<'_> {
    /// Takes as many branches for its expand as it needs out of those that are left for this
    /// transaction. False when it needs more: it does not leave its step yet.
    pub(in crate::store) fn is_whole_within(&mut self, rest: &mut usize) -> bool {
        let Advance::Spread { elements, .. } = &self.advance else {
            return true;
        };
        let made = self.begun.map_or(0, |(_, made)| made);
        let sizes = (made..elements.len()).map(|ordinal| elements.bytes(ordinal));
        let more = batch_size::first(*rest, sizes);
        self.until = made + more;
        *rest -= more;
        self.is_whole()
    }

    /// False while its expand is not complete.
    pub(super) fn is_whole(&self) -> bool {
        match &self.advance {
            Advance::Spread { elements, .. } => self.until == elements.len(),
            _ => true,
        }
    }
}

/// The effects of a batch of crossings, beyond the rows.
#[derive(Debug, Default)]
pub struct Crossed {
    /// Pipelines with new availabilities.
    pub available: BTreeSet<String>,
    /// Runs that ended, each with its final state.
    pub ended: Vec<(RunId, String, RunStatus)>,
    /// Branches that halted by themselves, each with the reason.
    pub halted: Vec<(RunId, BranchId, HaltReason)>,
}

/// The source of a new step's input.
pub(in crate::store) enum Input<'a> {
    Text(std::borrow::Cow<'a, str>),
    OutputOf(StepId),
    GatheredFrom(FanOutId),
    /// For a hook: this text, the value at which its branch is, and a closing brace.
    About(String),
}

pub(in crate::store) struct NewStep<'a> {
    pub id: StepId,
    pub run_id: RunId,
    pub branch_id: BranchId,
    pub ordinal: i64,
    pub node: &'a str,
    pub step: &'a str,
    pub via: Via,
    /// `None`: no transition of its run made it.
    pub transition: Option<TransitionId>,
    pub status: StepStatus,
    pub input: Input<'a>,
}

pub(in crate::store) struct NewBranch<'a> {
    pub id: BranchId,
    pub run_id: RunId,
    pub pipeline: &'a str,
    pub fan_out_id: FanOutId,
    pub ordinal: i64,
    pub step_id: StepId,
}

/// A new execution: the first of a step, or another attempt of it.
#[derive(Clone, Copy)]
pub(in crate::store) struct NewExecution<'a> {
    pub id: ExecutionId,
    pub step_id: StepId,
    pub pipeline: &'a str,
    pub attempt: u32,
    pub retry_count: u32,
    pub crash_count: u32,
    /// Microseconds from now; `None`: it precedes everything of its pipeline that is due, as it did when it
    /// was claimed.
    pub due_in: Option<i64>,
}

impl<'a> NewExecution<'a> {
    /// The first attempt of a step.
    pub fn first(step_id: StepId, pipeline: &'a str, due_in: Option<i64>) -> Self {
        Self {
            id: ExecutionId::new(),
            step_id,
            pipeline,
            attempt: 1,
            retry_count: 0,
            crash_count: 0,
            due_in,
        }
    }
}

pub(in crate::store) struct Moved<'a> {
    pub id: BranchId,
    pub from: StepId,
    /// That step becomes complete.
    pub leaves: bool,
    pub token: Option<ClaimToken>,
    pub status: BranchStatus,
    pub step_id: StepId,
    pub halt_reason: Option<HaltReason>,
    pub output: Option<&'a str>,
}

/// A branch at a node: the unit of work of one level of the cascade.
pub(in crate::store) struct Standing<'a> {
    pub branch_id: BranchId,
    pub run_id: RunId,
    pub pipeline: &'a str,
    pub definition: &'a Arc<Definition>,
    pub fan_out_id: Option<FanOutId>,
    pub ordinal: i64,
    pub from: StepId,
    pub from_ordinal: i64,
    pub node: NodeIndex,
    /// It leaves its step now; a branch that waited left it long ago.
    pub leaves: bool,
    pub token: Option<ClaimToken>,
    /// The crossing whose arrival made it move, and which counts as the producer of its new steps.
    pub transition: TransitionId,
    /// The fan-out that its value is gathered from, where the value is not its current step's
    /// output.
    pub gathered: Option<FanOutId>,
    /// The barrier of the expand that it has begun, and how many branches the expand has.
    pub begun: Option<(FanOutId, usize)>,
    /// How many branches the expand has after this transaction.
    pub until: usize,
    /// `None`: it halts because branches of its fan-out did.
    pub advance: Option<Advance<'a>>,
}

#[derive(Default)]
pub(in crate::store) struct Writes<'a> {
    pub steps: Vec<NewStep<'a>>,
    pub executions: Vec<NewExecution<'a>>,
    pub branches: Vec<NewBranch<'a>>,
    pub fan_outs: Vec<(FanOutId, &'a str, Via, usize, usize)>,
    /// Expands: the branch that each belongs to, and its barrier.
    pub spreads: Vec<(usize, FanOutId)>,
    /// Branches whose expand continues in another transaction, with their claims.
    pub held: Vec<(BranchId, ClaimToken)>,
    pub moved: Vec<Moved<'a>>,
    pub gathered: Vec<(BranchId, FanOutId)>,
    pub arrivals: BTreeMap<FanOutId, Arriving>,
    pub completed_runs: Vec<usize>,
    pub halted_runs: Vec<usize>,
    pub dampened: BTreeMap<RunId, i64>,
    pub waits: Vec<Wait<'a>>,
}

/// A branch that begins to wait for a person.
pub(in crate::store) struct Wait<'a> {
    pub branch_id: BranchId,
    pub run_id: RunId,
    pub pipeline: &'a str,
    pub definition: &'a Definition,
    /// The step that waits, its node, and its place on the branch.
    pub step: StepId,
    pub node: NodeIndex,
    pub ordinal: i64,
    pub transition: Option<TransitionId>,
}

pub(in crate::store) struct Arriving {
    pub arriving: i64,
    pub halting: i64,
    pub transition: TransitionId,
}

impl<'a> Standing<'a> {
    pub(super) fn of(crossing: &'a Crossing<'a>) -> Self {
        Self {
            branch_id: crossing.branch_id,
            run_id: crossing.run_id,
            pipeline: crossing.pipeline,
            definition: crossing.definition,
            fan_out_id: crossing.fan_out_id,
            ordinal: crossing.ordinal,
            from: crossing.from,
            from_ordinal: crossing.from_ordinal,
            node: crossing.node,
            leaves: crossing.leaves,
            token: Some(crossing.token),
            transition: crossing.transition,
            gathered: None,
            begun: crossing.begun,
            until: crossing.until,
            advance: Some(crossing.advance.clone()),
        }
    }

    pub(super) fn moved(&self, status: BranchStatus, step_id: StepId) -> Moved<'a> {
        Moved {
            id: self.branch_id,
            from: self.from,
            leaves: self.leaves,
            token: self.token,
            status,
            step_id,
            halt_reason: None,
            output: None,
        }
    }
}

pub(super) fn via_of(advance: &Advance<'_>) -> Via {
    match advance {
        Advance::Continue { via, .. } => *via,
        Advance::Split { .. } => Via::Divide,
        Advance::Spread { .. } => Via::Expand,
        Advance::Hold { .. } => Via::Dampen,
        Advance::End { .. } | Advance::Halt { .. } => Via::End,
    }
}

/// Turns one branch's advance into rows to write.
pub(super) fn plan<'a>(
    index: usize,
    branch: &Standing<'a>,
    writes: &mut Writes<'a>,
    crossed: &mut Crossed,
) {
    let Some(advance) = &branch.advance else {
        let moved = branch.moved(BranchStatus::Halted, branch.from);
        writes.moved.push(moved);
        return end(index, branch, true, writes);
    };
    match advance {
        Advance::End { value } => {
            let mut moved = branch.moved(BranchStatus::Completed, branch.from);
            match (value, branch.gathered) {
                (Value::EmptyArray, _) => moved.output = Some("[]"),
                (Value::Output, Some(fan_out)) => {
                    writes.gathered.push((branch.branch_id, fan_out));
                }
                (Value::Output, None) => {}
            }
            writes.moved.push(moved);
            end(index, branch, false, writes);
        }
        Advance::Halt { reason } => {
            let mut moved = branch.moved(BranchStatus::Halted, branch.from);
            moved.halt_reason = Some(*reason);
            writes.moved.push(moved);
            crossed
                .halted
                .push((branch.run_id, branch.branch_id, *reason));
            end(index, branch, true, writes);
        }
        Advance::Continue { to, via, value } => {
            let input = match (value, branch.gathered) {
                (Value::EmptyArray, _) => Input::Text("[]".into()),
                (Value::Output, Some(fan_out)) => Input::GatheredFrom(fan_out),
                (Value::Output, None) => Input::OutputOf(branch.from),
            };
            let node = &branch.definition.node(to.node).name;
            let step = StepId::following(branch.from, node, 0);
            let place = (branch.branch_id, branch.from_ordinal + 1);
            enqueue(branch, place, step, *to, *via, input, writes);
            writes
                .moved
                .push(branch.moved(BranchStatus::InProgress, step));
        }
        Advance::Split { paths } => {
            let fan_out = fan_out(index, branch, Via::Divide, paths.len(), writes);
            wait(branch, writes);
            for (ordinal, to) in paths.iter().enumerate() {
                let input = Input::OutputOf(branch.from);
                child(branch, fan_out, ordinal, *to, Via::Divide, input, writes);
            }
        }
        // `apply` makes the children, in chunks: there may be a million.
        Advance::Spread { elements, .. } => {
            let fan_out = match branch.begun {
                Some((fan_out, _)) => fan_out,
                None => fan_out(index, branch, Via::Expand, elements.len(), writes),
            };
            writes.spreads.push((index, fan_out));
            match branch.token {
                Some(token) if branch.until < elements.len() => {
                    writes.held.push((branch.branch_id, token));
                }
                _ => wait(branch, writes),
            }
        }
        Advance::Hold { at } => {
            let node = branch.definition.node(*at);
            let step = StepId::following(branch.from, &node.name, 0);
            writes.steps.push(NewStep {
                id: step,
                run_id: branch.run_id,
                branch_id: branch.branch_id,
                ordinal: branch.from_ordinal + 1,
                node: &node.name,
                step: Via::Dampen.as_str(),
                via: Via::Dampen,
                transition: Some(branch.transition),
                status: StepStatus::Waiting,
                input: Input::OutputOf(branch.from),
            });
            writes
                .moved
                .push(branch.moved(BranchStatus::Dampened, step));
            *writes.dampened.entry(branch.run_id).or_default() += 1;
            writes.waits.push(Wait {
                branch_id: branch.branch_id,
                run_id: branch.run_id,
                pipeline: branch.pipeline,
                definition: branch.definition,
                step,
                node: *at,
                ordinal: branch.from_ordinal + 1,
                transition: Some(branch.transition),
            });
        }
    }
}

/// Ends a branch: it arrives at its barrier, or its run is over.
fn end<'a>(index: usize, branch: &Standing<'a>, halted: bool, writes: &mut Writes<'a>) {
    match branch.fan_out_id {
        Some(fan_out) => {
            let arriving = writes.arrivals.entry(fan_out).or_insert(Arriving {
                arriving: 0,
                halting: 0,
                transition: branch.transition,
            });
            arriving.arriving += 1;
            arriving.halting += i64::from(halted);
            arriving.transition = branch.transition;
        }
        None if halted => writes.halted_runs.push(index),
        None => writes.completed_runs.push(index),
    }
}

/// The branch waits at its barrier: all branches that it was split into exist.
fn wait<'a>(branch: &Standing<'a>, writes: &mut Writes<'a>) {
    let moved = branch.moved(BranchStatus::Waiting, branch.from);
    writes.moved.push(moved);
}

/// The barrier of a split.
fn fan_out<'a>(
    index: usize,
    branch: &Standing<'a>,
    via: Via,
    width: usize,
    writes: &mut Writes<'a>,
) -> FanOutId {
    let id = FanOutId::new();
    let node = &branch.definition.node(branch.node).name;
    writes.fan_outs.push((id, node, via, width, index));
    id
}

/// The place of all elements and paths behind a step: no node has this name.
const CHILD: &str = "(child)";

pub(super) fn child<'a>(
    parent: &Standing<'a>,
    fan_out_id: FanOutId,
    ordinal: usize,
    to: Target,
    via: Via,
    input: Input<'a>,
    writes: &mut Writes<'a>,
) {
    let id = BranchId::new();
    let step_id = StepId::following(parent.from, CHILD, ordinal);
    writes.branches.push(NewBranch {
        id,
        run_id: parent.run_id,
        pipeline: parent.pipeline,
        fan_out_id,
        ordinal: ordinal as i64,
        step_id,
    });
    enqueue(parent, (id, 0), step_id, to, via, input, writes);
}

/// A new step with its first execution.
fn enqueue<'a>(
    parent: &Standing<'a>,
    (branch_id, ordinal): (BranchId, i64),
    id: StepId,
    to: Target,
    via: Via,
    input: Input<'a>,
    writes: &mut Writes<'a>,
) {
    let node = parent.definition.node(to.node);
    let delay = parent.definition.delay(to);
    writes.steps.push(NewStep {
        id,
        run_id: parent.run_id,
        branch_id,
        ordinal,
        node: &node.name,
        step: node.step.as_deref().unwrap_or_default(),
        via,
        transition: Some(parent.transition),
        status: StepStatus::InProgress,
        input,
    });
    // A branch that has begun precedes one that has not. The elements of an expand queue after
    // everything that is due: there may be a million, and earlier runs would wait for all of them.
    let first = delay.is_zero() && via != Via::Expand;
    let due_in = (!first).then(|| micros(delay));
    let execution = NewExecution::first(id, parent.pipeline, due_in);
    writes.executions.push(execution);
}
