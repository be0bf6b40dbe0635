//! Fan-outs for people and pages: those of a run, and their elements.
//!
//! Owns: reading them at a cost that does not grow with their width. Never: writes.

use uuid::Uuid;

use crate::model::*;

use super::conn::{Conn, Row};
use super::error::Error;
use super::statement::statements;

/// At most this many fan-outs of one branch are listed.
const MOST: usize = 1_000;

macro_rules! fan_out_columns {
    () => {
        "f.id, f.node, f.via, f.width, f.arrived, f.halted, f.created_at, f.fired_at, f.branch_id,
         (SELECT c.ordinal + 1 FROM ductwork_branches c WHERE c.fan_out_id = f.id
           ORDER BY c.fan_out_id DESC, c.ordinal DESC LIMIT 1) AS made"
    };
}

macro_rules! element_columns {
    () => {
        "b.id, b.ordinal, b.status, b.halt_reason, s.id AS step_id, s.node, s.status AS step_status,
               e.attempt, e.process_id, e.result, e.error_message"
    };
}

macro_rules! element_joins {
    () => {
        "
          JOIN ductwork_steps s ON {key:s.id;b.step_id}
          LEFT JOIN ductwork_executions e ON {key:e.step_id;s.id} AND e.attempt =
               (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)"
    };
}

statements! {
    FAN_OUTS_OF_ROOT = concat!("
        SELECT ", fan_out_columns!(), "
          FROM ductwork_branches b
          JOIN ductwork_fan_outs f ON {key:f.branch_id;b.id}
         WHERE b.run_id = :run AND b.fan_out_id IS NULL
         ORDER BY f.created_at, f.id LIMIT :n");
    FAN_OUTS_OF_BRANCH = concat!("
        SELECT ", fan_out_columns!(), "
          FROM ductwork_fan_outs f WHERE f.branch_id = :branch
         ORDER BY f.created_at, f.id LIMIT :n");
    FAN_OUT = concat!("
        SELECT ", fan_out_columns!(), "
          FROM ductwork_fan_outs f WHERE f.id = :fan_out AND f.run_id = :run");
    ELEMENTS = concat!("
        SELECT ", element_columns!(), "
          FROM ductwork_branches b", element_joins!(), "
         WHERE b.fan_out_id = :fan_out AND b.ordinal >= :from
         ORDER BY b.ordinal LIMIT :n");
    /// Uses the index of a run's halted branches.
    HALTED_ELEMENTS = concat!("
        SELECT ", element_columns!(), "
          FROM (SELECT x.* FROM ductwork_branches x {found:ductwork_branches_reasons}
                 WHERE x.run_id = :run AND x.halt_reason IS NOT NULL AND x.fan_out_id = :fan_out
                 ORDER BY x.id LIMIT :n) b", element_joins!(), "
         ORDER BY b.ordinal");
}

/// A fan-out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FanOut {
    /// Its barrier.
    pub id: FanOutId,
    /// The branch that was split.
    pub branch_id: BranchId,
    /// The node whose output was spread.
    pub node: String,
    /// Divide or expand.
    pub via: String,
    /// How many branches it will have.
    pub width: u64,
    /// How many have been created so far.
    pub made: u64,
    /// How many have ended, in any way.
    pub arrived: u64,
    /// How many of those have halted.
    pub halted: u64,
    /// µs since 1970.
    pub created_at: i64,
    /// When the last branch arrived, in µs since 1970.
    pub fired_at: Option<i64>,
}

/// A branch of a fan-out, with the step that it is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The branch.
    pub branch_id: BranchId,
    /// Its place: 0, 1, ….
    pub ordinal: u64,
    /// Its state.
    pub status: BranchStatus,
    /// The reason why it halted.
    pub halt_reason: Option<String>,
    /// The step that it is at.
    pub step_id: StepId,
    /// The node of that step.
    pub node: String,
    /// The state of that step.
    pub step_status: StepStatus,
    /// The latest attempt at it.
    pub attempt: Option<u32>,
    /// The process that holds, or held, that attempt.
    pub process_id: Option<ProcessId>,
    /// How that attempt ended.
    pub result: Option<ExecutionResult>,
    /// The reason why that attempt failed.
    pub error_message: Option<String>,
}

/// The fan-outs of a run's root branch, in the order in which they were created. Nested fan-outs belong
/// to the branches that they split: [`of_branch`].
pub async fn of_root(conn: &mut Conn, run: RunId) -> Result<Vec<FanOut>, Error> {
    let args = [("run", run.0.into()), ("n", MOST.into())];
    let rows = conn.fetch(&FAN_OUTS_OF_ROOT, &args).await?;
    rows.iter().map(fan_out).collect()
}

/// The fan-outs that a branch was split into, in order.
pub async fn of_branch(conn: &mut Conn, branch: BranchId) -> Result<Vec<FanOut>, Error> {
    let args = [("branch", branch.0.into()), ("n", MOST.into())];
    let rows = conn.fetch(&FAN_OUTS_OF_BRANCH, &args).await?;
    rows.iter().map(fan_out).collect()
}

/// A fan-out of this run; `None` where the run has no such fan-out.
pub async fn one(conn: &mut Conn, run: RunId, id: FanOutId) -> Result<Option<FanOut>, Error> {
    let args = [("run", run.0.into()), ("fan_out", id.0.into())];
    let row = conn.fetch_optional(&FAN_OUT, &args).await?;
    row.as_ref().map(fan_out).transpose()
}

/// At most `n` elements of a fan-out, from this place on.
pub async fn elements(
    conn: &mut Conn,
    id: FanOutId,
    from: u64,
    n: usize,
) -> Result<Vec<Element>, Error> {
    let from = i64::try_from(from).unwrap_or(i64::MAX);
    let args = [
        ("fan_out", id.0.into()),
        ("from", from.into()),
        ("n", n.into()),
    ];
    let rows = conn.fetch(&ELEMENTS, &args).await?;
    rows.iter().map(element).collect()
}

/// The first `n` elements of a fan-out of this run that have halted, in their order.
pub async fn halted_elements(
    conn: &mut Conn,
    run: RunId,
    fan_out: FanOutId,
    n: usize,
) -> Result<Vec<Element>, Error> {
    let args = [
        ("run", run.0.into()),
        ("fan_out", fan_out.0.into()),
        ("n", n.into()),
    ];
    let rows = conn.fetch(&HALTED_ELEMENTS, &args).await?;
    rows.iter().map(element).collect()
}

fn element(row: &Row) -> Result<Element, Error> {
    Ok(Element {
        branch_id: BranchId(row.get("id")?),
        ordinal: row.get::<i64>("ordinal")?.unsigned_abs(),
        status: row.word("status")?,
        halt_reason: row.get("halt_reason")?,
        step_id: StepId(row.get("step_id")?),
        node: row.get("node")?,
        step_status: row.word("step_status")?,
        attempt: row.get::<Option<i64>>("attempt")?.map(|n| n.max(0) as u32),
        process_id: row.get::<Option<Uuid>>("process_id")?.map(ProcessId),
        result: row.optional_word("result")?,
        error_message: row.get("error_message")?,
    })
}

fn fan_out(row: &Row) -> Result<FanOut, Error> {
    let count = |name| Ok::<_, Error>(row.get::<i64>(name)?.max(0) as u64);
    Ok(FanOut {
        id: FanOutId(row.get("id")?),
        branch_id: BranchId(row.get("branch_id")?),
        node: row.get("node")?,
        via: row.get("via")?,
        width: count("width")?,
        made: row.get::<Option<i64>>("made")?.unwrap_or_default().max(0) as u64,
        arrived: count("arrived")?,
        halted: count("halted")?,
        created_at: row.get("created_at")?,
        fired_at: row.get("fired_at")?,
    })
}
