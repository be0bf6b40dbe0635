//! Committing what executions came to.
//!
//! Owns: the guarded commit: an execution is closed only by the process that holds it, once;
//! what follows (a new attempt, a failed step, a branch that is ready, or a simple crossing)
//! is in the same transaction. Never: decides what an ending costs (`machine::outcome`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::definition::{Definition, NodeIndex};
use crate::machine::advance::Advance;
use crate::machine::outcome::{Ending, Verdict};
use crate::model::*;

use super::claim::{self, Claimed};
use super::conn::Conn;
use super::crossing::{self, Crossed, Crossing, Mover, NewExecution, Right};
use super::definition::Definitions;
use super::error::Error;
use super::statement::{Rows, statements};

statements! {
    /// RACE: the reaper has given this execution to somebody else while we still ran it, and
    /// now we come with a result. Whoever writes `completed_at` first wins; the other matches
    /// no row (E1). An attempt is a row of its own, so the fence holds even against ourselves,
    /// should we have claimed the next attempt (E2). Proven by
    /// `a_late_commit_loses_after_the_reaper_took_the_claim`. (I4, I5)
    CLOSE_EXECUTIONS = "
        UPDATE ductwork_executions
           SET completed_at = {now}, result = b.result, error_class = b.error_class,
               error_message = b.error_message, error_backtrace = b.error_backtrace
          FROM {rows:b(id id, result text, error_class text, error_message text, error_backtrace text)}
         WHERE ductwork_executions.id = b.id
           AND ductwork_executions.process_id = :process
           AND ductwork_executions.completed_at IS NULL
        RETURNING ductwork_executions.id AS id";
    END_STEPS = "
        UPDATE ductwork_steps SET status = b.status, output = b.output, completed_at = {now}
          FROM {rows:b(id id, status text, output text)}
         WHERE ductwork_steps.id = b.id AND ductwork_steps.status = 'in_progress'";
    READY_BRANCHES = "
        UPDATE ductwork_branches SET ready_at = {now}
          FROM {rows:b(id id)}
         WHERE ductwork_branches.id = b.id AND ductwork_branches.status = 'in_progress'";
    CLOSED_AS = "
        SELECT e.id, e.result FROM {rows:b(id id)} JOIN ductwork_executions e ON e.id = b.id
         WHERE e.process_id = :process AND e.completed_at IS NOT NULL";
}

/// An execution that has ended, and what is to be written for it.
#[derive(Debug)]
pub struct Finished {
    /// What was claimed.
    pub claimed: Arc<Claimed>,
    /// The run's definition.
    pub definition: Arc<Definition>,
    /// How it ended.
    pub ending: Ending,
    /// What follows.
    pub verdict: Verdict,
    /// Its value, when it succeeded.
    pub output: Option<Box<RawValue>>,
    /// Class, message and backtrace, when it did not.
    pub error: Option<StoredError>,
}

/// What is kept of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredError {
    /// For machines.
    pub class: String,
    /// For people.
    pub message: String,
    /// The end of the log.
    pub backtrace: Option<String>,
}

/// What a commit came to.
#[derive(Debug, Default)]
pub struct Committed {
    /// Results that came too late: the claim had been taken away.
    pub stale: Vec<ExecutionId>,
    /// Executions of the next steps, leased at birth, and newly claimed ones.
    pub claimed: Vec<Claimed>,
    /// The queue was asked, and gave all that was asked for: there may be more.
    pub full: bool,
    /// A branch waits for an advancer.
    pub ready: bool,
    /// What the crossings did.
    pub crossed: Crossed,
    /// This process was declared dead: its results are all stale, it must register anew.
    pub dead: bool,
}

/// What a worker still has room for.
#[derive(Clone, Copy)]
pub struct Room<'a> {
    /// Its pipeline.
    pub pipeline: &'a str,
    /// Look for more work in the same transaction.
    pub claim: bool,
}

/// Commits a batch of results, crosses what is simple, and fills the free slots: with the
/// steps that follow first, then from the queue when `room.claim` says so.
///
/// One transaction; each result as if it were alone. Stale results are dropped from it.
pub async fn commit(
    conn: &mut Conn,
    finished: &[Finished],
    mover: Mover,
    room: Room<'_>,
    definitions: &Definitions,
) -> Result<Committed, Error> {
    let crossings: Vec<Option<(NodeIndex, Advance<'_>)>> = finished.iter().map(simple).collect();
    conn.transaction(async |conn| write(conn, finished, &crossings, mover, room, definitions).await)
        .await
}

/// The crossing that may be made with the result: one step out, no barrier, no fan-out. All
/// others take two phases, through an advancer.
fn simple(finished: &Finished) -> Option<(NodeIndex, Advance<'_>)> {
    let output = finished.output.as_deref()?;
    if finished.verdict != Verdict::Succeed || finished.claimed.via == Via::OnHalt {
        return None;
    }
    let node = finished.definition.find(&finished.claimed.node)?;
    let advance = crate::machine::advance::decide_simple(output, node, &finished.definition)?;
    match advance {
        Advance::End { .. } if finished.claimed.fan_out_id.is_some() => None,
        advance => Some((node, advance)),
    }
}

async fn write(
    conn: &mut Conn,
    finished: &[Finished],
    crossings: &[Option<(NodeIndex, Advance<'_>)>],
    mover: Mover,
    room: Room<'_>,
    definitions: &Definitions,
) -> Result<Committed, Error> {
    let mut committed = Committed::default();
    if !claim::touch(conn, mover.process).await? {
        // Everything we held has been given away.
        committed.dead = true;
        committed.stale = finished
            .iter()
            .map(|row| row.claimed.execution_id)
            .collect();
        return Ok(committed);
    }
    let won = close(conn, finished, mover.process).await?;
    let held = |row: &Finished| won.contains(&row.claimed.execution_id);
    committed.stale = finished
        .iter()
        .filter(|row| !held(row))
        .map(|row| row.claimed.execution_id)
        .collect();
    let mut steps = Vec::new();
    let mut ready = Vec::new();
    let mut again = Vec::new();
    let mut crossing = Vec::new();
    for (row, simple) in finished.iter().zip(crossings).filter(|(row, _)| held(row)) {
        let claimed = &row.claimed;
        let hook = claimed.via == Via::OnHalt;
        match row.verdict {
            Verdict::Drop => {}
            Verdict::Again { delay, next } => again.push(NewExecution {
                id: ExecutionId::new(),
                step_id: claimed.step_id,
                pipeline: room.pipeline,
                attempt: claimed.attempt + 1,
                retry_count: next.retry_count,
                crash_count: next.crash_count,
                process: None,
                delay,
            }),
            Verdict::Fail => {
                steps.push((claimed.step_id, StepStatus::Failed, None));
                if !hook {
                    ready.push(claimed.branch_id);
                }
            }
            Verdict::Succeed => {
                let output = row.output.as_deref().map(RawValue::get);
                let status = match (simple, hook) {
                    (None, false) => StepStatus::Advancing,
                    _ => StepStatus::Completed,
                };
                steps.push((claimed.step_id, status, output));
                match simple {
                    Some((node, advance)) => crossing.push(Crossing {
                        branch_id: claimed.branch_id,
                        run_id: claimed.run_id,
                        pipeline: room.pipeline,
                        definition: &row.definition,
                        fan_out_id: claimed.fan_out_id,
                        ordinal: claimed.ordinal,
                        from: claimed.step_id,
                        from_ordinal: claimed.step_ordinal,
                        node: *node,
                        right: Right::Commit,
                        advance: advance.clone(),
                    }),
                    None if hook => {}
                    None => ready.push(claimed.branch_id),
                }
            }
        }
    }
    if !steps.is_empty() {
        let rows = Rows::new()
            .ids("id", steps.iter().map(|row| row.0))
            .texts("status", steps.iter().map(|row| row.1.as_str()))
            .optional_texts("output", steps.iter().map(|row| row.2));
        conn.execute(&END_STEPS, &[("b", (&rows).into())]).await?;
    }
    if !ready.is_empty() {
        let rows = Rows::new().ids("id", ready.iter().copied());
        conn.execute(&READY_BRANCHES, &[("b", (&rows).into())])
            .await?;
        committed.ready = true;
    }
    if !again.is_empty() {
        crossing::insert_executions(conn, &again, mover.lease).await?;
        committed.crossed.available.insert(room.pipeline.to_owned());
    }
    let crossed = crossing::cross(conn, &crossing, mover, definitions).await?;
    // A batch may hold two attempts at one step, when the process was taken for dead and came
    // back: the stale one's output is nobody's input.
    let outputs: HashMap<StepId, &Finished> = finished
        .iter()
        .filter(|row| held(row))
        .map(|row| (row.claimed.step_id, row))
        .collect();
    for leased in &crossed.leased {
        let claimed = outputs
            .get(&leased.from)
            .and_then(|from| born(leased, from));
        committed.claimed.push(claimed.ok_or_else(|| {
            Error::Corrupt(format!("{leased:?} is leased, but nobody can run it"))
        })?);
    }
    let free = mover.free_slots.saturating_sub(crossed.leased.len());
    let available = std::mem::take(&mut committed.crossed.available);
    committed.crossed = crossed;
    committed.crossed.available.extend(available);
    // No room to ask the queue: it may hold more.
    committed.full = room.claim && free == 0;
    if room.claim && free > 0 {
        let taken = claim::take(conn, mover.process, room.pipeline, free, mover.lease).await?;
        committed.full = taken.len() == free;
        committed.claimed.extend(taken);
    }
    Ok(committed)
}

/// The next step of the one that was committed, as if it had been claimed.
fn born(leased: &crossing::Leased, from: &Finished) -> Option<Claimed> {
    let node = from.definition.node(leased.node);
    let via = match &from.definition.nodes[from.definition.find(&from.claimed.node)?.0].next {
        crate::definition::Edge::Converge(_) => Via::Converge,
        crate::definition::Edge::Divert { .. } => Via::Divert,
        _ => Via::Chain,
    };
    Some(Claimed {
        execution_id: leased.execution_id,
        step_id: leased.step_id,
        run_id: from.claimed.run_id,
        branch_id: leased.branch_id,
        step_ordinal: leased.ordinal,
        fan_out_id: from.claimed.fan_out_id,
        ordinal: from.claimed.ordinal,
        node: node.name.clone(),
        step: node.step.clone()?,
        via,
        attempt: 1,
        retry_count: 0,
        crash_count: 0,
        definition: from.claimed.definition.clone(),
        input: from.output.clone()?,
    })
}

/// Closes what is still ours; which these are.
async fn close(
    conn: &mut Conn,
    finished: &[Finished],
    process: ProcessId,
) -> Result<HashSet<ExecutionId>, Error> {
    if finished.is_empty() {
        return Ok(HashSet::new());
    }
    let error = |row: &'_ Finished| row.error.clone();
    let errors: Vec<Option<StoredError>> = finished.iter().map(error).collect();
    let rows = Rows::new()
        .ids("id", finished.iter().map(|row| row.claimed.execution_id))
        .texts(
            "result",
            finished.iter().map(|row| row.ending.result().as_str()),
        )
        .optional_texts(
            "error_class",
            errors.iter().map(|e| Some(e.as_ref()?.class.as_str())),
        )
        .optional_texts(
            "error_message",
            errors.iter().map(|e| Some(e.as_ref()?.message.as_str())),
        )
        .optional_texts(
            "error_backtrace",
            errors.iter().map(|e| e.as_ref()?.backtrace.as_deref()),
        );
    let args = [("b", (&rows).into()), ("process", process.0.into())];
    let won = conn.fetch(&CLOSE_EXECUTIONS, &args).await?;
    won.iter()
        .map(|row| Ok(ExecutionId(row.get("id")?)))
        .collect()
}

/// After a COMMIT whose answer was lost: which of these results had been committed. They are
/// told by their own rows, not by trying again blindly (E11).
pub async fn landed(
    conn: &mut Conn,
    finished: &[Finished],
    process: ProcessId,
) -> Result<HashSet<ExecutionId>, Error> {
    let rows = Rows::new().ids("id", finished.iter().map(|row| row.claimed.execution_id));
    let args = [("b", (&rows).into()), ("process", process.0.into())];
    let mut landed = HashSet::new();
    for row in conn.fetch(&CLOSED_AS, &args).await? {
        let id = ExecutionId(row.get("id")?);
        let result: ExecutionResult = row.word("result")?;
        // A reaper closes with its own word; a crash of ours that it beat us to is the same.
        if finished
            .iter()
            .any(|row| row.claimed.execution_id == id && row.ending.result() == result)
        {
            landed.insert(id);
        }
    }
    Ok(landed)
}

/// The wait before work that could not be started is tried again.
pub const NOT_STARTED_DELAY: Duration = Duration::from_secs(1);
