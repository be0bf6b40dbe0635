//! Branches that wait for a person, and letting them go on.
//!
//! Owns: the end of a dampen. Never: judges the value that a person gave; the caller has
//! made sure that it is JSON and not too long.

use crate::failpoint::failpoint;
use crate::model::*;

use super::conn::Conn;
use super::error::Error;
use super::statement::{Rows, statements};

statements! {
    RESUME_RUN_STATUS = "SELECT status FROM ductwork_runs WHERE id = :run";
    WAITING_STEPS = "
        SELECT s.id, s.branch_id, s.node, s.input, s.created_at
          FROM ductwork_branches br
          JOIN ductwork_steps s ON {key:s.id;br.step_id} AND s.status = 'waiting'
         WHERE br.run_id = :run AND br.status = 'dampened'
         ORDER BY s.created_at, s.id";
    /// RACE: two people resume one branch, or one of them cancels the run. All write this row
    /// from 'dampened'; one of them finds it so. Proven by
    /// `of_two_resumes_at_once_one_counts`.
    RESUME_BRANCHES = "
        UPDATE ductwork_branches SET status = 'in_progress', ready_at = {now}
          FROM {rows:b(branch_id id, step_id id)}
         WHERE {key:ductwork_branches.id;b.branch_id} AND ductwork_branches.step_id = b.step_id
           AND ductwork_branches.status = 'dampened'
        RETURNING ductwork_branches.step_id AS step_id";
    RESUME_STEPS = "
        UPDATE ductwork_steps
           SET status = 'advancing', output = coalesce(:value, input), completed_at = {now}
         WHERE status = 'waiting' AND id IN (SELECT b.id FROM {rows:b(id id)})";
    RESUME_RUN = "
        UPDATE ductwork_runs
           SET dampened = dampened - :n,
               status = CASE WHEN dampened = :n THEN 'in_progress' ELSE 'dampened' END
         WHERE id = :run AND status = 'dampened'";
}

/// A step at which a branch waits for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingStep {
    /// The step.
    pub step_id: StepId,
    /// Its branch.
    pub branch_id: BranchId,
    /// Its node: the definition says what it asks.
    pub node: String,
    /// The value that goes on unless the person gives another.
    pub input: String,
    /// Since when it waits: µs since 1970.
    pub since: i64,
}

/// The result of a resumption.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Resume {
    /// So many branches go on.
    Done(usize),
    /// There is no such run.
    NotFound,
    /// The run, or this step of it, does not wait for a person.
    NotDampened(RunStatus),
    /// A value was given, and several steps wait: for which of them is it?
    Ambiguous(Vec<WaitingStep>),
}

/// The steps of a run that wait for a person, longest first.
pub async fn waiting(conn: &mut Conn, run_id: RunId) -> Result<Vec<WaitingStep>, Error> {
    let args = [("run", run_id.0.into())];
    let rows = conn.fetch(&WAITING_STEPS, &args).await?;
    rows.iter()
        .map(|row| {
            Ok(WaitingStep {
                step_id: StepId(row.get("id")?),
                branch_id: BranchId(row.get("branch_id")?),
                node: row.get("node")?,
                input: row.get("input")?,
                since: row.get("created_at")?,
            })
        })
        .collect()
}

/// Lets waiting branches of a run go on: the one at `step`, or all. `value` (one JSON value)
/// replaces what they would go on with, and is for one step only.
pub async fn resume(
    conn: &mut Conn,
    run_id: RunId,
    step: Option<StepId>,
    value: Option<&str>,
) -> Result<Resume, Error> {
    failpoint!(conn, "resume.begin");
    let resumed = conn.transaction(async |conn| {
        let args = [("run", run_id.0.into())];
        let Some(run) = conn.fetch_optional(&RESUME_RUN_STATUS, &args).await? else {
            return Ok(Resume::NotFound);
        };
        let status: RunStatus = run.word("status")?;
        let mut steps = waiting(conn, run_id).await?;
        steps.retain(|waiting| step.is_none_or(|step| step == waiting.step_id));
        if value.is_some() && steps.len() > 1 {
            return Ok(Resume::Ambiguous(steps));
        }
        let rows = Rows::new()
            .ids("branch_id", steps.iter().map(|step| step.branch_id))
            .ids("step_id", steps.iter().map(|step| step.step_id));
        let mut resumed = Vec::new();
        for row in conn
            .fetch(&RESUME_BRANCHES, &[("b", (&rows).into())])
            .await?
        {
            resumed.push(row.get::<uuid::Uuid>("step_id")?);
        }
        if resumed.is_empty() {
            return Ok(Resume::NotDampened(status));
        }
        let n = resumed.len();
        let rows = Rows::new().ids("id", resumed);
        let args = [("b", (&rows).into()), ("value", value.into())];
        let steps = conn.execute(&RESUME_STEPS, &args).await?;
        let args = [("run", run_id.0.into()), ("n", n.into())];
        let runs = conn.execute(&RESUME_RUN, &args).await?;
        if steps != n as u64 || runs != 1 {
            return Err(Error::Corrupt(format!(
                "I18: {n} branches of {run_id:?} were dampened, but {steps} steps waited and \
                 {runs} runs knew of it"
            )));
        }
        failpoint!(conn, "resume.written");
        Ok(Resume::Done(n))
    });
    let resumed = resumed.await?;
    failpoint!(conn, "resume.end");
    Ok(resumed)
}
