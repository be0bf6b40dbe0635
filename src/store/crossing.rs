//! Carrying out what `machine::advance` decided: a batch of branches crosses its edges.
//!
//! Owns: every write that moves a branch: new steps, branches and barriers, arrivals, the end
//! of a run. Set-based: the number of statements depends on which kinds of advance are in the
//! batch and how deep fan-ins cascade, never on how many branches there are.
//! Never: opens or commits a transaction (the caller's fence does), decides.
//!
//! Lock order: execution → branch → barrier → run; barriers inner before outer. A worker's commit
//! writes its barriers before its branches, which nobody who holds or waits for a barrier wants:
//! they are in progress, and their executions were the worker's. A transaction that still deadlocks
//! is tried again whole.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::definition::{Definition, NodeIndex, Target};
use crate::failpoint::failpoint;
use crate::machine::advance::{self, Advance, Elements, Value};
use crate::machine::barrier::{self, Arrival, BarrierView};
use crate::model::*;

use super::conn::Conn;
use super::error::Error;
use super::portion;
use super::statement::{Rows, statements};

/// Rows per statement: enough that a statement's cost is its rows', few enough that a
/// million-wide fan-out holds no million rows in memory. Where faults are tried between two
/// chunks, a small fan-out has some.
const CHUNK: usize = if cfg!(feature = "failpoints") {
    2
} else {
    1_000
};

/// Runs whose hooks are made at once: each input has up to a hundred error messages.
const HOOKS_AT_ONCE: usize = if cfg!(feature = "failpoints") { 2 } else { 16 };

statements! {
    INSERT_BRANCHES = "
        INSERT INTO ductwork_branches
            (id, run_id, pipeline, fan_out_id, ordinal, status, step_id, last_advanced_at)
        SELECT b.id, b.run_id, b.pipeline, b.fan_out_id, b.ordinal, 'in_progress', b.step_id, {now}
          FROM {rows:b(id id, run_id id, pipeline text, fan_out_id id, ordinal int, step_id id)}";
    INSERT_FAN_OUTS = "
        INSERT INTO ductwork_fan_outs
            (id, run_id, branch_id, node, via, width, parent_fan_out_id, parent_ordinal, created_at)
        SELECT b.id, b.run_id, b.branch_id, b.node, b.via, b.width, b.parent_id, b.parent_ordinal, {now}
          FROM {rows:b(id id, run_id id, branch_id id, node text, via text, width int, parent_id id, parent_ordinal int)}";
    INSERT_STEPS = "
        INSERT INTO ductwork_steps
            (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
        SELECT b.id, b.run_id, b.branch_id, b.ordinal, b.node, b.step, b.via, b.transition_id, b.status, b.input, {now}
          FROM {rows:b(id id, run_id id, branch_id id, ordinal int, node text, step text, via text, transition_id id, status text, input text)}";
    /// The input is another step's output, copied where it lies.
    INSERT_STEPS_FROM_OUTPUT = "
        INSERT INTO ductwork_steps
            (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
        SELECT b.id, b.run_id, b.branch_id, b.ordinal, b.node, b.step, b.via, b.transition_id, b.status, f.output, {now}
          FROM {rows:b(id id, run_id id, branch_id id, ordinal int, node text, step text, via text, transition_id id, status text, from_id id)}
          JOIN ductwork_steps f ON {key:f.id;b.from_id}";
    /// The input is the array of a fan-out's outputs in its order (I30), gathered where it lies.
    INSERT_STEPS_FROM_FAN_OUT = "
        INSERT INTO ductwork_steps
            (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
        SELECT b.id, b.run_id, b.branch_id, b.ordinal, b.node, b.step, b.via, b.transition_id, b.status,
               (SELECT {array:coalesce(c.output, s.output);c.ordinal}
                  FROM ductwork_branches c JOIN ductwork_steps s ON {key:s.id;c.step_id}
                 WHERE c.fan_out_id = b.from_id), {now}
          FROM {rows:b(id id, run_id id, branch_id id, ordinal int, node text, step text, via text, transition_id id, status text, from_id id)}";
    INSERT_EXECUTIONS = "
        INSERT INTO ductwork_executions
            (id, step_id, pipeline, attempt, retry_count, crash_count)
        SELECT b.id, b.step_id, b.pipeline, b.attempt, b.retry_count, b.crash_count
          FROM {rows:b(id id, step_id id, pipeline text, attempt int, retry_count int, crash_count int)}";
    INSERT_AVAILABILITIES = "
        INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
        SELECT b.execution_id, b.pipeline,
               coalesce({now} + b.due_in,
                        (SELECT CASE WHEN min(a.due_at) < {now} THEN min(a.due_at) - 1 END
                           FROM ductwork_availabilities a WHERE a.pipeline = b.pipeline),
                        {now})
          FROM {rows:b(execution_id id, pipeline text, due_in int)}";
    /// The one write that moves a branch. Its guard: the branch still stands at the step it is
    /// moved from, under the claim of whoever moves it (none for a branch that waited at its
    /// barrier).
    MOVE_BRANCHES = "
        UPDATE ductwork_branches
           SET status = b.status, step_id = b.step_id, halt_reason = b.halt_reason, output = b.output,
               claim_token = NULL, claimed_for_advancing_at = NULL, ready_at = NULL, last_advanced_at = {now}
          FROM {rows:b(id id, from_step_id id, token id, status text, step_id id, halt_reason text, output text)}
         WHERE {key:ductwork_branches.id;b.id}
           AND ductwork_branches.step_id = b.from_step_id
           AND ductwork_branches.status IN ('in_progress', 'advancing', 'waiting')
           AND ductwork_branches.claim_token IS NOT DISTINCT FROM b.token";
    /// RACE: two advancers make branches of one expand, the one with a claim that was taken away. Each
    /// of its transactions writes the branch under its claim, so the zombie's is refused; and no two
    /// branches have one place (I30). Proven by `a_zombie_advancer_spreads_nothing`. (I9)
    HOLD_BRANCHES = "
        UPDATE ductwork_branches SET last_advanced_at = {now}
          FROM {rows:b(id id, token id)}
         WHERE {key:ductwork_branches.id;b.id} AND ductwork_branches.claim_token = b.token";
    /// A branch that ended with a fan-out: its value is the array of the fan-out's outputs.
    GATHER_OUTPUTS = "
        UPDATE ductwork_branches
           SET output = (SELECT {array:coalesce(c.output, s.output);c.ordinal}
                           FROM ductwork_branches c JOIN ductwork_steps s ON {key:s.id;c.step_id}
                          WHERE c.fan_out_id = b.fan_out_id)
          FROM {rows:b(id id, fan_out_id id)}
         WHERE {key:ductwork_branches.id;b.id}";
    LEAVE_STEPS = "
        UPDATE ductwork_steps SET status = 'completed'
          FROM {rows:b(id id)}
         WHERE {key:ductwork_steps.id;b.id} AND ductwork_steps.status = 'advancing'";
    /// Barriers in one order, so that batches that share several do not deadlock: the younger
    /// first, which are the inner ones, as a cascade takes them.
    LOCK_FAN_OUTS = "
        SELECT id FROM ductwork_fan_outs
         WHERE {any:id;b(id id)} ORDER BY id DESC {lock}";
    /// RACE: two last siblings arrive at once. Both write this row, so one of them sees the
    /// other's arrival and exactly one sees `arrived = width`; a lock with a count of siblings
    /// would let both miss it (R1, R2). Proven by
    /// `two_last_siblings_at_once_fire_the_barrier_once`. (I13)
    ARRIVE = "
        UPDATE ductwork_fan_outs
           SET arrived = arrived + b.arriving, halted = halted + b.halting,
               fired_at = CASE WHEN arrived + b.arriving = width THEN {now} END
          FROM {rows:b(id id, arriving int, halting int)}
         WHERE {key:ductwork_fan_outs.id;b.id}
        RETURNING ductwork_fan_outs.id AS id, width, arrived, halted, branch_id";
    WAITING_BRANCHES = "
        SELECT br.id, br.run_id, br.pipeline, br.fan_out_id, br.ordinal, br.step_id,
               s.ordinal AS step_ordinal, s.node, r.definition
          FROM ductwork_branches br
          JOIN ductwork_steps s ON {key:s.id;br.step_id}
          JOIN ductwork_runs r ON {key:r.id;br.run_id}
         WHERE br.id IN (SELECT b.id FROM {rows:b(id id)}) AND br.status = 'waiting'";
    FAN_OUT_SIZES = "
        SELECT b.id, CAST(sum(octet_length(coalesce(c.output, s.output))) + count(*) + 1 AS bigint) AS size
          FROM {rows:b(id id)}
          JOIN ductwork_branches c ON {key:c.fan_out_id;b.id}
          JOIN ductwork_steps s ON {key:s.id;c.step_id}
         GROUP BY b.id";
    /// The status is wrapped, so that the row is looked up by its key: SQLite would rather walk
    /// all runs in progress, and a run's end would cost more the longer the queue.
    COMPLETE_RUNS = "
        UPDATE ductwork_runs
           SET status = 'completed', completed_at = {now},
               output = (SELECT coalesce(br.output, s.output)
                           FROM ductwork_branches br JOIN ductwork_steps s ON {key:s.id;br.step_id}
                          WHERE {key:br.id;b.branch_id})
          FROM {rows:b(id id, branch_id id)}
         WHERE {key:ductwork_runs.id;b.id} AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')";
    HALT_RUNS = "
        UPDATE ductwork_runs SET status = 'halted', halted_at = {now}
          FROM {rows:b(id id)}
         WHERE {key:ductwork_runs.id;b.id} AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')";
    DAMPEN_RUNS = "
        UPDATE ductwork_runs SET status = 'dampened', dampened = dampened + b.waiting
          FROM {rows:b(id id, waiting int)}
         WHERE {key:ductwork_runs.id;b.id} AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')";
    /// The first hundred of each run: of a wide fan-out there may be a million.
    HALTS_OF_RUNS = "
        SELECT halted.run_id, halted.halt_reason, s.node, s.step, e.error_class, e.error_message
          FROM (SELECT x.id, x.run_id, x.step_id, x.halt_reason,
                       row_number() OVER (PARTITION BY x.run_id ORDER BY x.id) AS place
                  FROM {rows:b(id id)}
                  JOIN ductwork_branches x ON {key:x.run_id;b.id} AND x.halt_reason IS NOT NULL) halted
          JOIN ductwork_steps s ON {key:s.id;halted.step_id}
          LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.attempt =
               (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)
         WHERE halted.place <= 100
         ORDER BY halted.id";
    COMPLETE_TRANSITIONS = "
        UPDATE ductwork_transitions SET via = b.via, produced = b.produced, completed_at = {now}
          FROM {rows:b(id id, branch_id id, via text, produced int)}
         WHERE {key:ductwork_transitions.branch_id;b.branch_id}
           AND ductwork_transitions.id = b.id AND ductwork_transitions.completed_at IS NULL";
    COMPLETE_ADVANCEMENTS = "
        UPDATE ductwork_advancements SET result = 'success', completed_at = {now}
          FROM {rows:b(id id, branch_id id)}
         WHERE {key:ductwork_advancements.branch_id;b.branch_id}
           AND ductwork_advancements.id = b.id AND ductwork_advancements.completed_at IS NULL";
}

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
    /// The barrier it will arrive at.
    pub fan_out_id: Option<FanOutId>,
    /// Its place in that fan-out.
    pub ordinal: i64,
    /// The step it leaves.
    pub from: StepId,
    /// That step's place on the branch.
    pub from_ordinal: i64,
    /// That step's node.
    pub node: NodeIndex,
    /// The claim's fence.
    pub token: ClaimToken,
    /// The record of the crossing.
    pub transition: TransitionId,
    /// The record of the attempt.
    pub advancement: AdvancementId,
    /// The barrier of the expand that it has begun in an earlier transaction, and how many branches
    /// that has by now.
    pub begun: Option<(FanOutId, usize)>,
    /// How many it has after this transaction.
    pub until: usize,
    /// The advance that it makes.
    pub advance: Advance<'a>,
}

impl Crossing<'_> {
    /// Takes as many branches for its expand as it wants of those that are left for this transaction.
    /// False when it wants more: it does not leave its step yet.
    pub(super) fn is_whole_within(&mut self, rest: &mut usize) -> bool {
        let Advance::Spread { elements, .. } = &self.advance else {
            return true;
        };
        let made = self.begun.map_or(0, |(_, made)| made);
        let sizes = (made..elements.len()).map(|ordinal| elements.bytes(ordinal));
        let more = portion::first(*rest, sizes);
        self.until = made + more;
        *rest -= more;
        self.is_whole()
    }

    /// False while more of its expand is to come.
    fn is_whole(&self) -> bool {
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
    /// Runs that ended, and how.
    pub ended: Vec<(RunId, String, RunStatus)>,
    /// Branches that halted by themselves, and why.
    pub halted: Vec<(RunId, BranchId, HaltReason)>,
}

/// Where a new step's input comes from.
enum Input<'a> {
    Text(std::borrow::Cow<'a, str>),
    OutputOf(StepId),
    GatheredFrom(FanOutId),
}

struct NewStep<'a> {
    id: StepId,
    run_id: RunId,
    branch_id: BranchId,
    ordinal: i64,
    node: &'a str,
    step: &'a str,
    via: Via,
    transition: TransitionId,
    status: StepStatus,
    input: Input<'a>,
}

struct NewBranch<'a> {
    id: BranchId,
    run_id: RunId,
    pipeline: &'a str,
    fan_out_id: FanOutId,
    ordinal: i64,
    step_id: StepId,
}

pub(super) struct NewExecution<'a> {
    pub id: ExecutionId,
    pub step_id: StepId,
    pub pipeline: &'a str,
    pub attempt: u32,
    pub retry_count: u32,
    pub crash_count: u32,
    /// Microseconds from now; `None`: it goes before all of its pipeline that is due, as it did when it was
    /// claimed.
    pub due_in: Option<i64>,
}

struct Moved<'a> {
    id: BranchId,
    from: StepId,
    token: Option<ClaimToken>,
    status: BranchStatus,
    step_id: StepId,
    halt_reason: Option<HaltReason>,
    output: Option<&'a str>,
}

/// A branch standing at a node: what a level of the cascade works on.
struct Standing<'a> {
    branch_id: BranchId,
    run_id: RunId,
    pipeline: &'a str,
    definition: &'a Arc<Definition>,
    fan_out_id: Option<FanOutId>,
    ordinal: i64,
    from: StepId,
    from_ordinal: i64,
    node: NodeIndex,
    token: Option<ClaimToken>,
    /// The crossing whose arrival made it move: the producer of what it makes.
    transition: TransitionId,
    /// Its value, where that is not its current step's output.
    gathered: Option<FanOutId>,
    /// The barrier of the expand that it has begun, and how many branches that has.
    begun: Option<(FanOutId, usize)>,
    /// How many it has after this transaction.
    until: usize,
    /// `None`: it halts because branches of its fan-out did.
    advance: Option<Advance<'a>>,
}

#[derive(Default)]
struct Writes<'a> {
    steps: Vec<NewStep<'a>>,
    executions: Vec<NewExecution<'a>>,
    branches: Vec<NewBranch<'a>>,
    fan_outs: Vec<(FanOutId, &'a str, Via, usize, usize)>,
    /// Expands: whose they are, and their barriers.
    spreads: Vec<(usize, FanOutId)>,
    /// Branches whose expand goes on in another transaction, with their claims.
    held: Vec<(BranchId, ClaimToken)>,
    moved: Vec<Moved<'a>>,
    gathered: Vec<(BranchId, FanOutId)>,
    arrivals: BTreeMap<FanOutId, Arriving>,
    completed_runs: Vec<usize>,
    halted_runs: Vec<usize>,
    dampened: BTreeMap<RunId, i64>,
}

struct Arriving {
    arriving: i64,
    halting: i64,
    transition: TransitionId,
}

/// Makes a batch of crossings. All of them happen, or the transaction must be rolled back. A
/// fan-in whose array is longer than its pipeline's limit halts.
pub async fn cross(
    conn: &mut Conn,
    crossings: &[Crossing<'_>],
    limits: super::advance::Limits<'_>,
    definitions: &super::definition::Definitions,
) -> Result<Crossed, Error> {
    if crossings.is_empty() {
        return Ok(Crossed::default());
    }
    let mut produced: HashMap<TransitionId, (Via, i64)> = HashMap::new();
    let mut crossed = Crossed::default();
    let mut standing: Vec<Standing<'_>> = crossings
        .iter()
        .map(|crossing| {
            produced.insert(crossing.transition, (via_of(&crossing.advance), 0));
            Standing::of(crossing)
        })
        .collect();
    // Each round is one level of fan-ins: branches that end arrive, the last arrival moves the
    // branch that waits, which may end in its turn.
    let mut loaded: Vec<Loaded>;
    loop {
        let mut writes = Writes::default();
        for (index, branch) in standing.iter().enumerate() {
            plan(index, branch, &mut writes, &mut crossed);
        }
        for step in &writes.steps {
            produced.entry(step.transition).or_insert((step.via, 0)).1 += 1;
        }
        for branch in &standing {
            // Their steps are made in chunks, and never stand in `writes`.
            if let Some(Advance::Spread { .. }) = &branch.advance {
                let produced = produced
                    .entry(branch.transition)
                    .or_insert((Via::Expand, 0));
                produced.1 += branch.until as i64;
            }
        }
        let arrivals = std::mem::take(&mut writes.arrivals);
        apply(conn, &standing, writes, &mut crossed).await?;
        let fired = arrive(conn, arrivals).await?;
        if fired.is_empty() {
            break;
        }
        loaded = load_waiting(conn, fired, limits, definitions).await?;
        failpoint!(conn, "cross.fired");
        standing = loaded.iter().map(Loaded::standing).collect();
    }
    let whole: Vec<&Crossing<'_>> = crossings.iter().filter(|it| it.is_whole()).collect();
    record(conn, &whole, &produced).await?;
    Ok(crossed)
}

impl<'a> Standing<'a> {
    fn of(crossing: &'a Crossing<'a>) -> Self {
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
            token: Some(crossing.token),
            transition: crossing.transition,
            gathered: None,
            begun: crossing.begun,
            until: crossing.until,
            advance: Some(crossing.advance.clone()),
        }
    }

    fn moved(&self, status: BranchStatus, step_id: StepId) -> Moved<'a> {
        Moved {
            id: self.branch_id,
            from: self.from,
            token: self.token,
            status,
            step_id,
            halt_reason: None,
            output: None,
        }
    }
}

fn via_of(advance: &Advance<'_>) -> Via {
    match advance {
        Advance::Continue { via, .. } => *via,
        Advance::Split { .. } => Via::Divide,
        Advance::Spread { .. } => Via::Expand,
        Advance::Hold { .. } => Via::Dampen,
        Advance::End { .. } | Advance::Halt { .. } => Via::End,
    }
}

/// Turns one branch's advance into rows to write.
fn plan<'a>(index: usize, branch: &Standing<'a>, writes: &mut Writes<'a>, crossed: &mut Crossed) {
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
            let step = StepId::new();
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
        // The children are made by `apply`, in chunks: there may be a million.
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
            let step = StepId::new();
            writes.steps.push(NewStep {
                id: step,
                run_id: branch.run_id,
                branch_id: branch.branch_id,
                ordinal: branch.from_ordinal + 1,
                node: &node.name,
                step: Via::Dampen.as_str(),
                via: Via::Dampen,
                transition: branch.transition,
                status: StepStatus::Waiting,
                input: Input::OutputOf(branch.from),
            });
            writes
                .moved
                .push(branch.moved(BranchStatus::Dampened, step));
            *writes.dampened.entry(branch.run_id).or_default() += 1;
        }
    }
}

/// A branch has ended: it arrives at its barrier, or its run is over.
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

/// The branch waits at its barrier: all that it was split into is there.
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

fn child<'a>(
    parent: &Standing<'a>,
    fan_out_id: FanOutId,
    ordinal: usize,
    to: Target,
    via: Via,
    input: Input<'a>,
    writes: &mut Writes<'a>,
) {
    let (id, step_id) = (BranchId::new(), StepId::new());
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
        transition: parent.transition,
        status: StepStatus::InProgress,
        input,
    });
    writes.executions.push(NewExecution {
        id: ExecutionId::new(),
        step_id: id,
        pipeline: parent.pipeline,
        attempt: 1,
        retry_count: 0,
        crash_count: 0,
        due_in: Some(micros(delay)),
    });
}

async fn apply<'a>(
    conn: &mut Conn,
    standing: &[Standing<'a>],
    mut writes: Writes<'a>,
    crossed: &mut Crossed,
) -> Result<(), Error> {
    move_branches(conn, &writes.moved).await?;
    hold(conn, &writes.held).await?;
    // A branch that waited left its step long ago.
    let left: Vec<StepId> = writes
        .moved
        .iter()
        .filter(|row| row.token.is_some())
        .map(|row| row.from)
        .collect();
    if !left.is_empty() {
        let rows = Rows::new().ids("id", left);
        conn.execute(&LEAVE_STEPS, &[("b", (&rows).into())]).await?;
        failpoint!(conn, "cross.left");
    }
    if !writes.gathered.is_empty() {
        let rows = Rows::new()
            .ids("id", writes.gathered.iter().map(|row| row.0))
            .ids("fan_out_id", writes.gathered.iter().map(|row| row.1));
        conn.execute(&GATHER_OUTPUTS, &[("b", (&rows).into())])
            .await?;
    }
    insert_fan_outs(conn, standing, &writes).await?;
    insert_children(conn, &mut writes, crossed).await?;
    for (index, fan_out) in std::mem::take(&mut writes.spreads) {
        let branch = &standing[index];
        if let Some(Advance::Spread { to, elements }) = &branch.advance {
            spread(conn, branch, fan_out, *to, elements, crossed).await?;
        }
    }
    failpoint!(conn, "cross.made");
    end_runs(conn, standing, &writes, crossed).await
}

async fn insert_fan_outs(
    conn: &mut Conn,
    standing: &[Standing<'_>],
    writes: &Writes<'_>,
) -> Result<(), Error> {
    if writes.fan_outs.is_empty() {
        return Ok(());
    }
    let of = |index: usize| &standing[index];
    let rows = &writes.fan_outs;
    let rows = Rows::new()
        .ids("id", rows.iter().map(|row| row.0))
        .ids("run_id", rows.iter().map(|row| of(row.4).run_id))
        .ids("branch_id", rows.iter().map(|row| of(row.4).branch_id))
        .texts("node", rows.iter().map(|row| row.1))
        .texts("via", rows.iter().map(|row| row.2.as_str()))
        .ints("width", rows.iter().map(|row| row.3 as i64))
        .optional_ids("parent_id", rows.iter().map(|row| of(row.4).fan_out_id))
        .ints("parent_ordinal", rows.iter().map(|row| of(row.4).ordinal));
    conn.execute(&INSERT_FAN_OUTS, &[("b", (&rows).into())])
        .await?;
    Ok(())
}

/// Moves branches, all of them, or the transaction must be rolled back.
async fn move_branches(conn: &mut Conn, moved: &[Moved<'_>]) -> Result<(), Error> {
    if moved.is_empty() {
        return Ok(());
    }
    let rows = Rows::new()
        .ids("id", moved.iter().map(|row| row.id))
        .ids("from_step_id", moved.iter().map(|row| row.from))
        .optional_ids("token", moved.iter().map(|row| row.token))
        .texts("status", moved.iter().map(|row| row.status.as_str()))
        .ids("step_id", moved.iter().map(|row| row.step_id))
        .optional_texts(
            "halt_reason",
            moved
                .iter()
                .map(|row| row.halt_reason.map(HaltReason::as_str)),
        )
        .optional_texts("output", moved.iter().map(|row| row.output));
    let count = conn
        .execute(&MOVE_BRANCHES, &[("b", (&rows).into())])
        .await?;
    if count != moved.len() as u64 {
        return Err(Error::Corrupt(format!(
            "I9: {} branches were to be moved under their claims, {count} were",
            moved.len()
        )));
    }
    Ok(())
}

/// Asserts the claims of branches that are split further in another transaction.
async fn hold(conn: &mut Conn, held: &[(BranchId, ClaimToken)]) -> Result<(), Error> {
    if held.is_empty() {
        return Ok(());
    }
    let rows = Rows::new()
        .ids("id", held.iter().map(|row| row.0))
        .ids("token", held.iter().map(|row| row.1));
    let count = conn
        .execute(&HOLD_BRANCHES, &[("b", (&rows).into())])
        .await?;
    if count != held.len() as u64 {
        return Err(Error::Corrupt(format!(
            "I9: {} branches were to be split under their claims, {count} were",
            held.len()
        )));
    }
    Ok(())
}

/// The branches of an expand that this transaction makes, a chunk at a time: of as many as are few, and
/// as are not too long together.
async fn spread(
    conn: &mut Conn,
    parent: &Standing<'_>,
    fan_out: FanOutId,
    to: Target,
    elements: &Elements<'_>,
    crossed: &mut Crossed,
) -> Result<(), Error> {
    let mut from = parent.begun.map_or(0, |(_, made)| made);
    while from < parent.until {
        let sizes = (from..parent.until).map(|ordinal| elements.bytes(ordinal));
        let until = from + portion::first(CHUNK, sizes);
        let mut writes = Writes::default();
        for ordinal in from..until {
            let input = Input::Text(elements.text(ordinal));
            child(
                parent,
                fan_out,
                ordinal,
                to,
                Via::Expand,
                input,
                &mut writes,
            );
        }
        insert_children(conn, &mut writes, crossed).await?;
        failpoint!(conn, "cross.chunk");
        from = until;
    }
    Ok(())
}

async fn insert_children(
    conn: &mut Conn,
    writes: &mut Writes<'_>,
    crossed: &mut Crossed,
) -> Result<(), Error> {
    for rows in writes.branches.chunks(CHUNK) {
        let rows = Rows::new()
            .ids("id", rows.iter().map(|row| row.id))
            .ids("run_id", rows.iter().map(|row| row.run_id))
            .texts("pipeline", rows.iter().map(|row| row.pipeline))
            .ids("fan_out_id", rows.iter().map(|row| row.fan_out_id))
            .ints("ordinal", rows.iter().map(|row| row.ordinal))
            .ids("step_id", rows.iter().map(|row| row.step_id));
        conn.execute(&INSERT_BRANCHES, &[("b", (&rows).into())])
            .await?;
    }
    insert_steps(conn, &writes.steps).await?;
    for execution in &writes.executions {
        crossed.available.insert(execution.pipeline.to_owned());
    }
    insert_executions(conn, &writes.executions).await
}

async fn insert_steps(conn: &mut Conn, steps: &[NewStep<'_>]) -> Result<(), Error> {
    let (mut texts, mut outputs, mut gathered) = (Vec::new(), Vec::new(), Vec::new());
    for step in steps {
        match &step.input {
            Input::Text(text) => texts.push((step, text.as_ref())),
            Input::OutputOf(from) => outputs.push((step, *from)),
            Input::GatheredFrom(from) => gathered.push((step, *from)),
        }
    }
    for rows in texts.chunks(CHUNK) {
        let rows =
            columns(rows.iter().map(|row| row.0)).texts("input", rows.iter().map(|row| row.1));
        conn.execute(&INSERT_STEPS, &[("b", (&rows).into())])
            .await?;
    }
    for rows in outputs.chunks(CHUNK) {
        let rows =
            columns(rows.iter().map(|row| row.0)).ids("from_id", rows.iter().map(|row| row.1));
        conn.execute(&INSERT_STEPS_FROM_OUTPUT, &[("b", (&rows).into())])
            .await?;
    }
    for rows in gathered.chunks(CHUNK) {
        let rows =
            columns(rows.iter().map(|row| row.0)).ids("from_id", rows.iter().map(|row| row.1));
        conn.execute(&INSERT_STEPS_FROM_FAN_OUT, &[("b", (&rows).into())])
            .await?;
    }
    Ok(())
}

fn columns<'a>(steps: impl Iterator<Item = &'a NewStep<'a>> + Clone) -> Rows<'a> {
    Rows::new()
        .ids("id", steps.clone().map(|step| step.id))
        .ids("run_id", steps.clone().map(|step| step.run_id))
        .ids("branch_id", steps.clone().map(|step| step.branch_id))
        .ints("ordinal", steps.clone().map(|step| step.ordinal))
        .texts("node", steps.clone().map(|step| step.node))
        .texts("step", steps.clone().map(|step| step.step))
        .texts("via", steps.clone().map(|step| step.via.as_str()))
        .ids("transition_id", steps.clone().map(|step| step.transition))
        .texts("status", steps.map(|step| step.status.as_str()))
}

/// New attempts, with their place in the queue.
pub(super) async fn insert_executions(
    conn: &mut Conn,
    executions: &[NewExecution<'_>],
) -> Result<(), Error> {
    for rows in executions.chunks(CHUNK) {
        let count =
            |of: fn(&NewExecution<'_>) -> u32| rows.iter().map(move |row| i64::from(of(row)));
        let table = Rows::new()
            .ids("id", rows.iter().map(|row| row.id))
            .ids("step_id", rows.iter().map(|row| row.step_id))
            .texts("pipeline", rows.iter().map(|row| row.pipeline))
            .ints("attempt", count(|row| row.attempt))
            .ints("retry_count", count(|row| row.retry_count))
            .ints("crash_count", count(|row| row.crash_count));
        conn.execute(&INSERT_EXECUTIONS, &[("b", (&table).into())])
            .await?;
        let table = Rows::new()
            .ids("execution_id", rows.iter().map(|row| row.id))
            .texts("pipeline", rows.iter().map(|row| row.pipeline))
            .optional_ints("due_in", rows.iter().map(|row| row.due_in));
        conn.execute(&INSERT_AVAILABILITIES, &[("b", (&table).into())])
            .await?;
    }
    Ok(())
}

async fn end_runs(
    conn: &mut Conn,
    standing: &[Standing<'_>],
    writes: &Writes<'_>,
    crossed: &mut Crossed,
) -> Result<(), Error> {
    if !writes.dampened.is_empty() {
        let rows = Rows::new()
            .ids("id", writes.dampened.keys().copied())
            .ints("waiting", writes.dampened.values().copied());
        conn.execute(&DAMPEN_RUNS, &[("b", (&rows).into())]).await?;
    }
    if !writes.completed_runs.is_empty() {
        let roots = writes.completed_runs.iter().map(|index| &standing[*index]);
        let rows = Rows::new()
            .ids("id", roots.clone().map(|root| root.run_id))
            .ids("branch_id", roots.clone().map(|root| root.branch_id));
        conn.execute(&COMPLETE_RUNS, &[("b", (&rows).into())])
            .await?;
        crossed.ended.extend(
            roots.map(|root| (root.run_id, root.pipeline.to_owned(), RunStatus::Completed)),
        );
    }
    if writes.halted_runs.is_empty() {
        return Ok(());
    }
    let roots: Vec<&Standing<'_>> = writes.halted_runs.iter().map(|i| &standing[*i]).collect();
    let rows = Rows::new().ids("id", roots.iter().map(|root| root.run_id));
    conn.execute(&HALT_RUNS, &[("b", (&rows).into())]).await?;
    let ended = |root: &&Standing<'_>| (root.run_id, root.pipeline.to_owned(), RunStatus::Halted);
    crossed.ended.extend(roots.iter().map(ended));
    let hooked = |root: &&Standing<'_>| root.definition.on_halt.is_some();
    let hooked: Vec<&Standing<'_>> = roots.into_iter().filter(hooked).collect();
    for roots in hooked.chunks(HOOKS_AT_ONCE) {
        enqueue_hooks(conn, roots, crossed).await?;
    }
    Ok(())
}

/// The hook of a halted run is a step like any other, made in the transaction that halts the
/// run: it cannot be lost between a flag and a call, and cannot run for a halt that was rolled
/// back (A16). It stands after the last step of the run's root branch.
async fn enqueue_hooks(
    conn: &mut Conn,
    roots: &[&Standing<'_>],
    crossed: &mut Crossed,
) -> Result<(), Error> {
    let rows = Rows::new().ids("id", roots.iter().map(|root| root.run_id));
    let mut halts: HashMap<RunId, Vec<serde_json::Value>> = HashMap::new();
    for halt in conn.fetch(&HALTS_OF_RUNS, &[("b", (&rows).into())]).await? {
        let run = RunId(halt.get("run_id")?);
        halts.entry(run).or_default().push(serde_json::json!({
            "reason": halt.get::<String>("halt_reason")?,
            "node": halt.get::<String>("node")?,
            "step": halt.get::<String>("step")?,
            "error_class": halt.get::<Option<String>>("error_class")?,
            "error_message": halt.get::<Option<String>>("error_message")?,
        }));
    }
    let (mut steps, mut executions) = (Vec::new(), Vec::new());
    for root in roots {
        let Some(step) = &root.definition.on_halt else {
            continue;
        };
        let input = serde_json::json!({
            "run_id": root.run_id.to_string(),
            "pipeline": root.pipeline,
            "halts": halts.remove(&root.run_id).unwrap_or_default(),
        });
        let id = StepId::new();
        steps.push(NewStep {
            id,
            run_id: root.run_id,
            branch_id: root.branch_id,
            ordinal: root.from_ordinal + 1,
            node: HOOK_NODE,
            step,
            via: Via::OnHalt,
            transition: root.transition,
            status: StepStatus::InProgress,
            input: Input::Text(input.to_string().into()),
        });
        executions.push(NewExecution {
            id: ExecutionId::new(),
            step_id: id,
            pipeline: root.pipeline,
            attempt: 1,
            retry_count: 0,
            crash_count: 0,
            due_in: Some(0),
        });
        crossed.available.insert(root.pipeline.to_owned());
    }
    insert_steps(conn, &steps).await?;
    insert_executions(conn, &executions).await
}

/// The node of a hook's step: no step can be named so.
pub const HOOK_NODE: &str = "(on_halt)";

/// Arrivals, written to their barriers; those that are complete by it.
async fn arrive(
    conn: &mut Conn,
    arrivals: BTreeMap<FanOutId, Arriving>,
) -> Result<Vec<Fired>, Error> {
    if arrivals.is_empty() {
        return Ok(Vec::new());
    }
    if arrivals.len() > 1 {
        let rows = Rows::new().ids("id", arrivals.keys().copied());
        conn.fetch(&LOCK_FAN_OUTS, &[("b", (&rows).into())]).await?;
    }
    let rows = Rows::new()
        .ids("id", arrivals.keys().copied())
        .ints("arriving", arrivals.values().map(|row| row.arriving))
        .ints("halting", arrivals.values().map(|row| row.halting));
    failpoint!(conn, "cross.arriving");
    let mut fired = Vec::new();
    for row in conn.fetch(&ARRIVE, &[("b", (&rows).into())]).await? {
        let view = BarrierView {
            width: row.get::<i64>("width")? as u64,
            arrived: row.get::<i64>("arrived")? as u64,
            halted: row.get::<i64>("halted")? as u64,
        };
        let id = FanOutId(row.get("id")?);
        match barrier::arrive(view) {
            Arrival::Waits => {}
            arrival => fired.push(Fired {
                id,
                branch_id: BranchId(row.get("branch_id")?),
                halts: arrival == Arrival::Halts,
                transition: arrivals[&id].transition,
            }),
        }
    }
    failpoint!(conn, "cross.arrived");
    Ok(fired)
}

/// A barrier at which all have arrived.
struct Fired {
    id: FanOutId,
    branch_id: BranchId,
    halts: bool,
    transition: TransitionId,
}

/// A branch that waited at a barrier that fired, as loaded.
struct Loaded {
    fired: Fired,
    run_id: RunId,
    pipeline: String,
    definition: Arc<Definition>,
    fan_out_id: Option<FanOutId>,
    ordinal: i64,
    from: StepId,
    from_ordinal: i64,
    node: NodeIndex,
    too_large: bool,
}

async fn load_waiting(
    conn: &mut Conn,
    fired: Vec<Fired>,
    limits: super::advance::Limits<'_>,
    definitions: &super::definition::Definitions,
) -> Result<Vec<Loaded>, Error> {
    let rows = Rows::new().ids("id", fired.iter().map(|fired| fired.id));
    let mut sizes = HashMap::new();
    for row in conn.fetch(&FAN_OUT_SIZES, &[("b", (&rows).into())]).await? {
        // Unknown where a branch halted and has no output: then there is no array either.
        let size = row.get::<Option<i64>>("size")?.unwrap_or_default();
        sizes.insert(FanOutId(row.get("id")?), size);
    }
    let rows = Rows::new().ids("id", fired.iter().map(|fired| fired.branch_id));
    let mut by_branch: HashMap<BranchId, Fired> = fired
        .into_iter()
        .map(|fired| (fired.branch_id, fired))
        .collect();
    let mut loaded = Vec::new();
    for row in conn
        .fetch(&WAITING_BRANCHES, &[("b", (&rows).into())])
        .await?
    {
        let Some(fired) = by_branch.remove(&BranchId(row.get("id")?)) else {
            continue;
        };
        let digest: String = row.get("definition")?;
        let definition = definitions.load(conn, &digest).await?;
        let node: String = row.get("node")?;
        let node = definition
            .find(&node)
            .ok_or_else(|| Error::Corrupt(format!("definition {digest} has no node {node}")))?;
        let pipeline: String = row.get("pipeline")?;
        let size = sizes.get(&fired.id).copied().unwrap_or_default();
        loaded.push(Loaded {
            run_id: RunId(row.get("run_id")?),
            too_large: size.unsigned_abs() > limits(&pipeline).max_payload as u64,
            pipeline,
            definition,
            fan_out_id: row.get::<Option<uuid::Uuid>>("fan_out_id")?.map(FanOutId),
            ordinal: row.get("ordinal")?,
            from: StepId(row.get("step_id")?),
            from_ordinal: row.get("step_ordinal")?,
            node,
            fired,
        });
    }
    if let Some(branch) = by_branch.keys().next() {
        return Err(Error::Corrupt(format!(
            "I13: {branch:?} does not wait at its barrier"
        )));
    }
    Ok(loaded)
}

impl Loaded {
    fn standing(&self) -> Standing<'_> {
        let advance = match advance::then_of(&self.definition, self.node) {
            _ if self.fired.halts => None,
            _ if self.too_large => Some(Advance::Halt {
                reason: HaltReason::PayloadTooLarge,
            }),
            None => Some(Advance::Halt {
                reason: HaltReason::TransitionInvalid,
            }),
            Some(then) => Some(advance::after_fan_in(then, Value::Output)),
        };
        Standing {
            branch_id: self.fired.branch_id,
            run_id: self.run_id,
            pipeline: &self.pipeline,
            definition: &self.definition,
            fan_out_id: self.fan_out_id,
            ordinal: self.ordinal,
            from: self.from,
            from_ordinal: self.from_ordinal,
            node: self.node,
            token: None,
            transition: self.fired.transition,
            gathered: Some(self.fired.id),
            begun: None,
            until: 0,
            advance,
        }
    }
}

/// Closes the records of the crossings.
async fn record(
    conn: &mut Conn,
    crossings: &[&Crossing<'_>],
    produced: &HashMap<TransitionId, (Via, i64)>,
) -> Result<(), Error> {
    if crossings.is_empty() {
        return Ok(());
    }
    let of = |crossing: &Crossing<'_>| produced[&crossing.transition];
    let rows = Rows::new()
        .ids("id", crossings.iter().map(|row| row.transition))
        .ids("branch_id", crossings.iter().map(|row| row.branch_id))
        .texts("via", crossings.iter().map(|row| of(row).0.as_str()))
        .ints("produced", crossings.iter().map(|row| of(row).1));
    conn.execute(&COMPLETE_TRANSITIONS, &[("b", (&rows).into())])
        .await?;
    failpoint!(conn, "cross.recorded");
    let rows = Rows::new()
        .ids("id", crossings.iter().map(|row| row.advancement))
        .ids("branch_id", crossings.iter().map(|row| row.branch_id));
    conn.execute(&COMPLETE_ADVANCEMENTS, &[("b", (&rows).into())])
        .await?;
    Ok(())
}

/// Whole microseconds, as stored.
pub(super) fn micros(duration: Duration) -> i64 {
    // Capped where adding it to a time could overflow: longer than any history.
    const LONGEST: u128 = (i64::MAX / 4) as u128;
    duration.as_micros().min(LONGEST) as i64
}
