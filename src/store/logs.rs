//! The logs of a run's attempts.
//!
//! Owns: reading the ends of their logs, in parts that can be held. Never: writes them: they are
//! stored with their results, and deleted with their run.

use crate::model::*;

use super::conn::Conn;
use super::error::Error;
use super::statement::{Rows, statements};

statements! {
    LOGGED_STEPS = "
        SELECT s.id, s.status
          FROM ductwork_branches br
          JOIN ductwork_steps s ON s.branch_id = br.id
         WHERE br.run_id = :run AND :name IN (s.node, s.step, '')
         ORDER BY s.created_at, s.id";
    LOGGED_NODES = "
        SELECT s.node, min(s.created_at) AS first
          FROM ductwork_branches br
          JOIN ductwork_steps s ON s.branch_id = br.id
         WHERE br.run_id = :run GROUP BY s.node ORDER BY min(s.created_at), s.node";
    LOGS = "
        SELECT e.id, e.step_id, s.branch_id, s.node, s.step, e.attempt, e.claimed_at, e.completed_at, e.result, e.error_class,
               e.error_message, coalesce(e.log, e.error_backtrace) AS log
          FROM {rows:b(id id, after int)}
          JOIN ductwork_executions e ON {key:e.step_id;b.id} AND e.attempt > b.after
          JOIN ductwork_steps s ON {key:s.id;b.id}
         WHERE e.completed_at IS NOT NULL
           AND (e.log IS NOT NULL OR e.error_backtrace IS NOT NULL)
         ORDER BY s.created_at, s.id, e.attempt LIMIT :n";
    LOG = "
        SELECT e.id, e.step_id, s.run_id, s.branch_id, s.node, s.step, e.attempt, e.claimed_at, e.completed_at,
               e.result, e.error_class, e.error_message, coalesce(e.log, e.error_backtrace) AS log
          FROM ductwork_executions e
          JOIN ductwork_steps s ON {key:s.id;e.step_id}
          JOIN ductwork_runs r ON {key:r.id;s.run_id}
         WHERE e.id = :execution AND r.pruning_at IS NULL";
}

/// How many steps' logs are searched for at a time.
pub const STEPS: usize = 100;

/// How many logs are read at a time, of 64 KiB each at most. A step may have many attempts.
pub const LOGS_MAX: usize = 100;

/// An attempt that has ended, and has written a log.
#[derive(Clone, Debug)]
pub struct Logged {
    /// The attempt.
    pub execution: ExecutionId,
    /// The step that it is an attempt at.
    pub step_id: StepId,
    /// The branch of that step.
    pub branch_id: BranchId,
    /// The step's node.
    pub node: String,
    /// The step's name.
    pub step: String,
    /// The number of the attempt: 1, 2, ….
    pub attempt: u32,
    /// When it was claimed, in µs since 1970.
    pub claimed_at: Option<i64>,
    /// When it ended, in µs since 1970.
    pub completed_at: i64,
    /// How it ended.
    pub result: ExecutionResult,
    /// The error class for machines, where it did not succeed.
    pub error_class: Option<String>,
    /// The error message for people, where it did not succeed.
    pub error_message: Option<String>,
    /// The end of its log, or the backtrace that it returned.
    pub log: String,
}

/// The steps of a run, or those with one node or one name, in the order of the flow, each with whether it may
/// still be attempted.
pub async fn steps(
    conn: &mut Conn,
    run: RunId,
    name: Option<&str>,
) -> Result<Vec<(StepId, bool)>, Error> {
    let args = [
        ("run", run.0.into()),
        ("name", name.unwrap_or_default().into()),
    ];
    let rows = conn.fetch(&LOGGED_STEPS, &args).await?;
    let step = |row: &super::Row| {
        let status: StepStatus = row.word("status")?;
        Ok((StepId(row.get("id")?), status == StepStatus::InProgress))
    };
    rows.iter().map(step).collect()
}

/// The nodes that a run has reached, in that order.
pub async fn nodes(conn: &mut Conn, run: RunId) -> Result<Vec<String>, Error> {
    let rows = conn.fetch(&LOGGED_NODES, &[("run", run.0.into())]).await?;
    rows.iter().map(|row| row.get("node")).collect()
}

/// The logs of those attempts at these steps that follow the given one of each step (0: all attempts), in
/// order, at most `LOGS_MAX`.
pub async fn logs(conn: &mut Conn, steps: &[(StepId, u32)]) -> Result<Vec<Logged>, Error> {
    let rows = Rows::new()
        .ids("id", steps.iter().map(|(step, _)| *step))
        .ints("after", steps.iter().map(|(_, after)| i64::from(*after)));
    let args = [("b", (&rows).into()), ("n", LOGS_MAX.into())];
    let rows = conn.fetch(&LOGS, &args).await?;
    let logged = |row: &super::Row| {
        Ok(Logged {
            execution: ExecutionId(row.get("id")?),
            step_id: StepId(row.get("step_id")?),
            branch_id: BranchId(row.get("branch_id")?),
            node: row.get("node")?,
            step: row.get("step")?,
            attempt: row.count("attempt")?,
            claimed_at: row.get("claimed_at")?,
            completed_at: row.get("completed_at")?,
            result: row.word("result")?,
            error_class: row.get("error_class")?,
            error_message: row.get("error_message")?,
            log: row.get("log")?,
        })
    };
    rows.iter().map(logged).collect()
}

/// An attempt with its log, whether it has ended or not.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The attempt.
    pub execution: ExecutionId,
    /// Its run.
    pub run_id: RunId,
    /// The branch of its step.
    pub branch_id: BranchId,
    /// The step's node.
    pub node: String,
    /// The step's name.
    pub step: String,
    /// The number of the attempt: 1, 2, ….
    pub attempt: u32,
    /// When it was claimed, in µs since 1970.
    pub claimed_at: Option<i64>,
    /// When it ended, in µs since 1970.
    pub completed_at: Option<i64>,
    /// How it ended.
    pub result: Option<ExecutionResult>,
    /// The error class for machines, where it did not succeed.
    pub error_class: Option<String>,
    /// The error message for people, where it did not succeed.
    pub error_message: Option<String>,
    /// The end of its log, or the backtrace that it returned, once it has ended.
    pub log: Option<String>,
}

/// An attempt with its log; `None` where the attempt does not exist.
pub async fn one(conn: &mut Conn, id: ExecutionId) -> Result<Option<Attempt>, Error> {
    let args = [("execution", id.0.into())];
    let row = conn.fetch_optional(&LOG, &args).await?;
    row.map(|row| {
        Ok(Attempt {
            execution: id,
            run_id: RunId(row.get("run_id")?),
            branch_id: BranchId(row.get("branch_id")?),
            node: row.get("node")?,
            step: row.get("step")?,
            attempt: row.count("attempt")?,
            claimed_at: row.get("claimed_at")?,
            completed_at: row.get("completed_at")?,
            result: row.optional_word("result")?,
            error_class: row.get("error_class")?,
            error_message: row.get("error_message")?,
            log: row.get("log")?,
        })
    })
    .transpose()
}
