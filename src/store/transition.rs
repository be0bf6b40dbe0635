//! Carrying out the decisions of `machine::advance`: a batch of branches crosses its edges.
//!
//! Owns: every write that moves a branch: new rows (`insert`), arrivals, the end of a run and the steps beside its
//! flow (`hooks`), from the rows that each branch's advance becomes (`plan`). Set-based: the number of statements
//! depends on which kinds of advance the batch has and how deep fan-ins cascade, never on the number of branches.
//! Never: opens or commits a transaction (the caller's fence does), decides.
//!
//! Lock order: execution → branch → barrier → run; barriers inner before outer. A worker's commit writes its barriers
//! before its branches, but nobody who holds or waits for a barrier wants these branches: they are in progress, and
//! their executions were the worker's. A transaction that still deadlocks is tried again as a whole.

pub(super) mod hooks;
pub(super) mod insert;
mod plan;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::definition::{Definition, NodeIndex, Target};
use crate::failpoint::failpoint;
use crate::machine::advance::{self, Advance, Elements, Value};
use crate::machine::barrier::{self, Arrival, BarrierView};
use crate::model::*;

use super::batch_size;
use super::conn::Conn;
use super::error::Error;
use super::statement::{Rows, statements};
use insert::{insert_children, insert_fan_outs};
use plan::{Arriving, Input, Moved, Standing, Writes, child, plan, via_of};

pub(super) use plan::Wait;
pub use plan::{Crossed, Crossing};

/// Rows per statement: enough that the cost of a statement is mostly that of its rows, few enough
/// that a million-wide fan-out does not hold a million rows in memory. Where tests inject faults
/// between two chunks, a small fan-out has several.
const CHUNK: usize = if cfg!(feature = "failpoints") {
    2
} else {
    1_000
};

statements! {
    /// The only write that moves a branch. Its guard: the branch is still at the step that it is
    /// moved from, under the mover's claim (none for a branch that waited at its barrier).
    MOVE_BRANCHES = "
        UPDATE {into:ductwork_branches;b(id id, from_step_id id, token id, to_status text, to_step_id id, reason text, value text)}
           SET status = b.to_status, step_id = b.to_step_id, halt_reason = b.reason, output = b.value,
               claim_token = NULL, claimed_for_advancing_at = NULL, ready_at = NULL, last_advanced_at = {now}
          {from:b(id id, from_step_id id, token id, to_status text, to_step_id id, reason text, value text)}
         WHERE {key:ductwork_branches.id;b.id}
           AND ductwork_branches.step_id = b.from_step_id
           AND ductwork_branches.status IN ('in_progress', 'advancing', 'waiting')
           AND {same:ductwork_branches.claim_token;b.token}";
    /// RACE: two advancers make branches of one expand, one of them with a claim that was taken away.
    /// Each of its transactions writes the branch under its claim, so the zombie's is refused; and no
    /// two branches have the same place (I30). Proven by `a_zombie_advancer_spreads_nothing`. (I9)
    HOLD_BRANCHES = "
        UPDATE {into:ductwork_branches;b(id id, token id)} SET last_advanced_at = {now}
          {from:b(id id, token id)}
         WHERE {key:ductwork_branches.id;b.id} AND ductwork_branches.claim_token = b.token";
    /// A branch that ended with a fan-out: its value is the array of the fan-out's outputs.
    GATHER_OUTPUTS = "
        UPDATE {into:ductwork_branches;b(id id, fan_out_id id)}
           SET output = (SELECT {array:coalesce(c.output, s.output);c.ordinal}
                           FROM ductwork_branches c JOIN ductwork_steps s ON {key:s.id;c.step_id}
                          WHERE c.fan_out_id = b.fan_out_id)
          {from:b(id id, fan_out_id id)}
         WHERE {key:ductwork_branches.id;b.id}",
        on Mysql [&GATHER_OUTPUTS_FIRST];
    /// On MySQL, no part of a write can read the table that is written, unless it was read before.
    GATHER_OUTPUTS_FIRST in Mysql = "
        UPDATE (SELECT b.id, {array:coalesce(c.output, s.output);c.ordinal} AS value
                  FROM {rows:b(id id, fan_out_id id)}
                  LEFT JOIN ductwork_branches c {found:ductwork_branches_places} ON c.fan_out_id = b.fan_out_id
                  LEFT JOIN ductwork_steps s ON {key:s.id;c.step_id}
                 GROUP BY b.id) gathered
               {join:ductwork_branches}
           SET ductwork_branches.output = gathered.value
         WHERE ductwork_branches.id = gathered.id";
    LEAVE_STEPS = "
        UPDATE {into:ductwork_steps;b(id id)} SET status = 'completed'
          {from:b(id id)}
         WHERE {key:ductwork_steps.id;b.id} AND ductwork_steps.status = 'advancing'";
    /// Locks barriers in one order, so that batches that share several do not deadlock: the
    /// younger, which are the inner ones, first, as a cascade takes them.
    LOCK_FAN_OUTS = "
        SELECT id FROM ductwork_fan_outs
         WHERE {any:id;b(id id)} ORDER BY id DESC {lock}",
        on Mysql [&LOCK_FAN_OUTS_IN_TURN];
    LOCK_FAN_OUTS_IN_TURN in Mysql = "
        SELECT f.id FROM {rows:b(id id)} {join:ductwork_fan_outs f} ON {key:f.id;b.id}
         ORDER BY f.id DESC {lock}";
    /// RACE: two last siblings arrive at once. Both write this row, so one of them sees the other's
    /// arrival, and exactly one sees `arrived = width`; a lock with a count of siblings would let
    /// both miss it (R1, R2). Proven by `two_last_siblings_at_once_fire_the_barrier_once`. (I13)
    ARRIVE = "
        UPDATE {into:ductwork_fan_outs;b(id id, arriving int, halting int)}
           SET fired_at = CASE WHEN arrived + b.arriving = width THEN {now} END,
               arrived = arrived + b.arriving, halted = halted + b.halting
          {from:b(id id, arriving int, halting int)}
         WHERE {key:ductwork_fan_outs.id;b.id}
        RETURNING ductwork_fan_outs.id AS id, width, arrived, halted, branch_id",
        on Mysql [&ARRIVE_ALONE, &ARRIVED];
    ARRIVE_ALONE in Mysql = "
        UPDATE {into:ductwork_fan_outs;b(id id, arriving int, halting int)}
           SET fired_at = CASE WHEN arrived + b.arriving = width THEN {now} END,
               arrived = arrived + b.arriving, halted = halted + b.halting
         WHERE {key:ductwork_fan_outs.id;b.id}";
    ARRIVED in Mysql = "
        SELECT f.id, f.width, f.arrived, f.halted, f.branch_id
          FROM {rows:b(id id, arriving int, halting int)} STRAIGHT_JOIN ductwork_fan_outs f ON f.id = b.id";
    WAITING_BRANCHES = "
        SELECT br.id, br.run_id, br.pipeline, br.fan_out_id, br.ordinal, br.step_id,
               s.ordinal AS step_ordinal, s.node, r.definition
          FROM ductwork_branches br
          JOIN ductwork_steps s ON {key:s.id;br.step_id}
          JOIN ductwork_runs r ON {key:r.id;br.run_id}
         WHERE br.id IN (SELECT b.id FROM {rows:b(id id)}) AND br.status = 'waiting'";
    FAN_OUT_SIZES = "
        SELECT b.id, {big:sum(octet_length(coalesce(c.output, s.output))) + count(*) + 1} AS size
          FROM {rows:b(id id)}
          JOIN ductwork_branches c {found:ductwork_branches_places} ON {key:c.fan_out_id;b.id}
          JOIN ductwork_steps s ON {key:s.id;c.step_id}
         GROUP BY b.id";
    /// The status is wrapped, so that the row is looked up by its key: SQLite would otherwise scan
    /// all runs in progress, and the end of a run would cost more the longer the queue.
    COMPLETE_RUNS = "
        UPDATE {into:ductwork_runs;b(id id, branch_id id)}
           SET status = 'completed', completed_at = {now},
               output = (SELECT coalesce(br.output, s.output)
                           FROM ductwork_branches br JOIN ductwork_steps s ON {key:s.id;br.step_id}
                          WHERE {key:br.id;b.branch_id})
          {from:b(id id, branch_id id)}
         WHERE {key:ductwork_runs.id;b.id} AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')";
    HALT_RUNS = "
        UPDATE {into:ductwork_runs;b(id id)} SET status = 'halted', halted_at = {now}
          {from:b(id id)}
         WHERE {key:ductwork_runs.id;b.id} AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')";
    DAMPEN_RUNS = "
        UPDATE {into:ductwork_runs;b(id id, waiting int)} SET status = 'dampened', dampened = dampened + b.waiting
          {from:b(id id, waiting int)}
         WHERE {key:ductwork_runs.id;b.id} AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')";
    COMPLETE_TRANSITIONS = "
        UPDATE {into:ductwork_transitions;b(id id, branch_id id, kind text, steps int)} SET via = b.kind, produced = b.steps, completed_at = {now}
          {from:b(id id, branch_id id, kind text, steps int)}
         WHERE {key:ductwork_transitions.branch_id;b.branch_id}
           AND ductwork_transitions.id = b.id AND ductwork_transitions.completed_at IS NULL";
    COMPLETE_ADVANCEMENTS = "
        UPDATE {into:ductwork_advancements;b(id id, branch_id id);ductwork_advancements_open} SET result = 'success', completed_at = {now}
          {from:b(id id, branch_id id)}
         WHERE {key:ductwork_advancements.branch_id;b.branch_id}
           AND ductwork_advancements.id = b.id AND ductwork_advancements.completed_at IS NULL{narrow: AND ductwork_advancements.open_branch = b.branch_id}";
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
    // Each round is one level of fan-ins: ended branches arrive, and the last arrival moves the
    // waiting branch, which may end in turn.
    let mut loaded: Vec<Loaded>;
    loop {
        let mut writes = Writes::default();
        for (index, branch) in standing.iter().enumerate() {
            plan(index, branch, &mut writes, &mut crossed);
        }
        for step in &writes.steps {
            let Some(transition) = step.transition else {
                continue;
            };
            produced.entry(transition).or_insert((step.via, 0)).1 += 1;
        }
        for branch in &standing {
            // The steps of an expand are made in chunks, and are never in `writes`.
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

async fn apply<'a>(
    conn: &mut Conn,
    standing: &[Standing<'a>],
    mut writes: Writes<'a>,
    crossed: &mut Crossed,
) -> Result<(), Error> {
    move_branches(conn, &writes.moved).await?;
    hold(conn, &writes.held).await?;
    let left: Vec<StepId> = writes
        .moved
        .iter()
        .filter(|row| row.leaves)
        .map(|row| row.from)
        .collect();
    if !left.is_empty() {
        let rows = Rows::new().ids("id", left.iter().copied());
        conn.write(&LEAVE_STEPS, &[("b", (&rows).into())], left.len())
            .await?;
        failpoint!(conn, "cross.left");
    }
    if !writes.gathered.is_empty() {
        let rows = Rows::new()
            .ids("id", writes.gathered.iter().map(|row| row.0))
            .ids("fan_out_id", writes.gathered.iter().map(|row| row.1));
        conn.write(
            &GATHER_OUTPUTS,
            &[("b", (&rows).into())],
            writes.gathered.len(),
        )
        .await?;
    }
    insert_fan_outs(conn, standing, &writes).await?;
    insert_children(conn, &mut writes, crossed).await?;
    hooks::begin_waits(conn, &writes.waits, &mut crossed.available).await?;
    for (index, fan_out) in std::mem::take(&mut writes.spreads) {
        let branch = &standing[index];
        if let Some(Advance::Spread { to, elements }) = &branch.advance {
            spread(conn, branch, fan_out, *to, elements, crossed).await?;
        }
    }
    failpoint!(conn, "cross.made");
    end_runs(conn, standing, &writes, crossed).await
}

/// Moves all of these branches, or the transaction must be rolled back.
async fn move_branches(conn: &mut Conn, moved: &[Moved<'_>]) -> Result<(), Error> {
    if moved.is_empty() {
        return Ok(());
    }
    let rows = Rows::new()
        .ids("id", moved.iter().map(|row| row.id))
        .ids("from_step_id", moved.iter().map(|row| row.from))
        .optional_ids("token", moved.iter().map(|row| row.token))
        .texts("to_status", moved.iter().map(|row| row.status.as_str()))
        .ids("to_step_id", moved.iter().map(|row| row.step_id))
        .optional_texts(
            "reason",
            moved
                .iter()
                .map(|row| row.halt_reason.map(HaltReason::as_str)),
        )
        .optional_texts("value", moved.iter().map(|row| row.output));
    // I9: branches are moved under their claims.
    conn.write(&MOVE_BRANCHES, &[("b", (&rows).into())], moved.len())
        .await
}

/// Asserts the claims of branches whose split continues in another transaction.
async fn hold(conn: &mut Conn, held: &[(BranchId, ClaimToken)]) -> Result<(), Error> {
    if held.is_empty() {
        return Ok(());
    }
    let rows = Rows::new()
        .ids("id", held.iter().map(|row| row.0))
        .ids("token", held.iter().map(|row| row.1));
    // I9: branches are split under their claims.
    conn.write(&HOLD_BRANCHES, &[("b", (&rows).into())], held.len())
        .await
}

/// Makes the branches of an expand that belong to this transaction, a chunk at a time: a chunk is
/// limited in its number of branches and in their total length.
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
        let until = from + batch_size::first(CHUNK, sizes);
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

/// Ends runs, and makes the hooks of those that halt. A run that is already over stays as it ended; no
/// schedule brings this about (I15), and a write that would move a branch of it is refused.
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
        conn.write(
            &DAMPEN_RUNS,
            &[("b", (&rows).into())],
            writes.dampened.len(),
        )
        .await?;
    }
    if !writes.completed_runs.is_empty() {
        let roots = writes.completed_runs.iter().map(|index| &standing[*index]);
        let rows = Rows::new()
            .ids("id", roots.clone().map(|root| root.run_id))
            .ids("branch_id", roots.clone().map(|root| root.branch_id));
        let n = writes.completed_runs.len();
        conn.write(&COMPLETE_RUNS, &[("b", (&rows).into())], n)
            .await?;
        crossed.ended.extend(
            roots
                .clone()
                .map(|root| (root.run_id, root.pipeline.to_owned(), RunStatus::Completed)),
        );
        hooks::completed(conn, roots, crossed).await?;
    }
    if writes.halted_runs.is_empty() {
        return Ok(());
    }
    let roots: Vec<&Standing<'_>> = writes.halted_runs.iter().map(|i| &standing[*i]).collect();
    let rows = Rows::new().ids("id", roots.iter().map(|root| root.run_id));
    conn.write(&HALT_RUNS, &[("b", (&rows).into())], roots.len())
        .await?;
    let ended = |root: &&Standing<'_>| (root.run_id, root.pipeline.to_owned(), RunStatus::Halted);
    crossed.ended.extend(roots.iter().map(ended));
    hooks::halted(conn, &roots, crossed).await
}

/// Writes arrivals to their barriers, and returns the barriers that they complete.
async fn arrive(
    conn: &mut Conn,
    arrivals: BTreeMap<FanOutId, Arriving>,
) -> Result<Vec<Fired>, Error> {
    if arrivals.is_empty() {
        return Ok(Vec::new());
    }
    if arrivals.len() > 1 {
        let rows = Rows::new().ids("id", arrivals.keys().rev().copied());
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

/// A barrier at which all branches have arrived.
struct Fired {
    id: FanOutId,
    branch_id: BranchId,
    halts: bool,
    transition: TransitionId,
}

/// A loaded branch that waited at a barrier that fired.
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
        // Unknown where a branch halted without an output: then there is no array either.
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
            too_large: size.unsigned_abs() > (limits.advance)(&pipeline).max_payload as u64,
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
            leaves: false,
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
        .texts("kind", crossings.iter().map(|row| of(row).0.as_str()))
        .ints("steps", crossings.iter().map(|row| of(row).1));
    conn.write(
        &COMPLETE_TRANSITIONS,
        &[("b", (&rows).into())],
        crossings.len(),
    )
    .await?;
    failpoint!(conn, "cross.recorded");
    let rows = Rows::new()
        .ids("id", crossings.iter().map(|row| row.advancement))
        .ids("branch_id", crossings.iter().map(|row| row.branch_id));
    conn.write(
        &COMPLETE_ADVANCEMENTS,
        &[("b", (&rows).into())],
        crossings.len(),
    )
    .await
}
