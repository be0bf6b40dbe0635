//! Cancelling a run.
//!
//! Owns: closing everything of a run that could still move, in one transaction. Never: stops
//! a process; who runs a step of it learns by its next beat that the step is no longer its
//! own, or at once from whoever asked for the cancellation. A cancelled run has no hook.

use std::collections::BTreeSet;

use crate::failpoint::failpoint;
use crate::model::*;

use super::conn::Conn;
use super::error::Error;
use super::statement::{Rows, statements};

statements! {
    CANCEL_RUN_STATUS = "SELECT status FROM ductwork_runs WHERE id = :run";
    /// An open execution belongs to the current step of a branch. (A hook's does not; but then
    /// the run has ended.)
    CANCEL_OPEN_EXECUTIONS = "
        SELECT e.id FROM ductwork_branches br
          JOIN ductwork_executions e ON {key:e.step_id;br.step_id} AND e.result IS NULL
         WHERE br.run_id = :run ORDER BY e.id";
    CANCEL_OPEN_BRANCHES = "
        SELECT id FROM ductwork_branches
         WHERE run_id = :run AND status IN ('in_progress', 'advancing', 'waiting', 'dampened')
         ORDER BY id";
    CANCEL_AVAILABILITIES = "
        DELETE FROM ductwork_availabilities
         WHERE execution_id IN (SELECT b.id FROM {rows:b(id id)})";
    CANCEL_EXECUTIONS = "
        UPDATE ductwork_executions SET completed_at = {now}, result = 'cancelled'
          FROM {rows:b(id id)}
         WHERE {key:ductwork_executions.id;b.id} AND ductwork_executions.result IS NULL
        RETURNING ductwork_executions.process_id AS process_id";
    CANCEL_BRANCHES = "
        UPDATE ductwork_branches
           SET status = 'cancelled', claim_token = NULL, claimed_for_advancing_at = NULL, ready_at = NULL
          FROM {rows:b(id id)}
         WHERE {key:ductwork_branches.id;b.id}
           AND ductwork_branches.status IN ('in_progress', 'advancing', 'waiting', 'dampened')";
    CANCEL_STEPS = "
        UPDATE ductwork_steps SET status = 'cancelled', completed_at = {now}
         WHERE status IN ('in_progress', 'advancing', 'waiting')
           AND id IN (SELECT br.step_id FROM ductwork_branches br WHERE br.run_id = :run)";
    CANCEL_ADVANCEMENTS = "
        UPDATE ductwork_advancements SET completed_at = {now}, result = 'cancelled'
         WHERE completed_at IS NULL
           AND branch_id IN (SELECT br.id FROM ductwork_branches br WHERE br.run_id = :run)";
    CANCEL_TRANSITIONS = "
        UPDATE ductwork_transitions SET completed_at = {now}, via = 'end', produced = 0
         WHERE completed_at IS NULL
           AND branch_id IN (SELECT br.id FROM ductwork_branches br WHERE br.run_id = :run)";
    CANCEL_RUN = "
        UPDATE ductwork_runs SET status = 'cancelled', cancelled_at = {now}, dampened = 0
         WHERE id = :run AND status IN ('in_progress', 'dampened')";
}

/// Rows per statement.
const CHUNK: usize = 1_000;

/// What a cancellation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Cancel {
    /// The run is cancelled.
    Done {
        /// The processes that were running steps of it: to be told, so that they stop now
        /// and not at their next beat.
        held: Vec<ProcessId>,
    },
    /// It had already ended, like this.
    NotActive(RunStatus),
    /// There is no such run.
    NotFound,
}

/// Cancels a run: all of it, or nothing when it has already ended.
///
/// What runs at this moment loses the right to commit (its guard no longer matches).
pub async fn cancel(conn: &mut Conn, run_id: RunId) -> Result<Cancel, Error> {
    failpoint!(conn, "cancel.begin");
    let cancelled = conn.transaction(async |conn| {
        match status(conn, run_id).await? {
            None => return Ok(Cancel::NotFound),
            Some(status) if status.is_terminal() => return Ok(Cancel::NotActive(status)),
            Some(_) => {}
        }
        let run = [("run", run_id.0.into())];
        let mut held = BTreeSet::new();
        let mut touched = 0;
        // RACE: while we close what we see, a branch may be split, an execution tried again,
        // by a transaction that our statements wait for and whose new rows their snapshots
        // have not seen. So we look again until there is nothing left to close. Whoever could
        // still add something holds a row that we would then see open, so an empty look is
        // final. Executions first, then branches, as everybody else locks them. Proven by
        // `a_cancellation_leaves_nothing_open_whenever_it_comes`. (I15, I17)
        loop {
            let executions = ids(conn, &CANCEL_OPEN_EXECUTIONS, run_id).await?;
            let branches = ids(conn, &CANCEL_OPEN_BRANCHES, run_id).await?;
            if executions.is_empty() && branches.is_empty() {
                break;
            }
            for chunk in executions.chunks(CHUNK) {
                let rows = Rows::new().ids("id", chunk.iter().copied());
                let rows = [("b", (&rows).into())];
                // Its place in the queue first, as a claim takes them: a claim that has the
                // place is waited for, then its execution is closed under it.
                conn.execute(&CANCEL_AVAILABILITIES, &rows).await?;
                for row in conn.fetch(&CANCEL_EXECUTIONS, &rows).await? {
                    touched += 1;
                    held.extend(row.get::<Option<uuid::Uuid>>("process_id")?.map(ProcessId));
                }
                // RACE: it is put back while we wait for it, or between the two statements: its
                // new place is in neither's snapshot. From now on nobody puts it back: it is closed.
                // Proven by `what_is_put_back_while_its_run_is_cancelled_is_not_in_the_queue`. (I31)
                conn.execute(&CANCEL_AVAILABILITIES, &rows).await?;
            }
            for chunk in branches.chunks(CHUNK) {
                let rows = Rows::new().ids("id", chunk.iter().copied());
                touched += conn
                    .execute(&CANCEL_BRANCHES, &[("b", (&rows).into())])
                    .await?;
            }
        }
        if conn.execute(&CANCEL_RUN, &run).await? == 0 {
            // It ended while we looked; then nothing of it was open, and nothing was touched.
            if touched > 0 {
                let text = format!("I15: {run_id:?} has ended, but {touched} rows of it had not");
                return Err(Error::Corrupt(text));
            }
            return Ok(match status(conn, run_id).await? {
                Some(status) => Cancel::NotActive(status),
                None => Cancel::NotFound,
            });
        }
        conn.execute(&CANCEL_STEPS, &run).await?;
        conn.execute(&CANCEL_ADVANCEMENTS, &run).await?;
        conn.execute(&CANCEL_TRANSITIONS, &run).await?;
        failpoint!(conn, "cancel.written");
        Ok(Cancel::Done {
            held: held.into_iter().collect(),
        })
    });
    let cancelled = cancelled.await?;
    failpoint!(conn, "cancel.end");
    Ok(cancelled)
}

async fn status(conn: &mut Conn, run_id: RunId) -> Result<Option<RunStatus>, Error> {
    let args = [("run", run_id.0.into())];
    let row = conn.fetch_optional(&CANCEL_RUN_STATUS, &args).await?;
    row.map(|row| row.word("status")).transpose()
}

async fn ids(
    conn: &mut Conn,
    statement: &'static super::statement::Statement,
    run_id: RunId,
) -> Result<Vec<uuid::Uuid>, Error> {
    let rows = conn.fetch(statement, &[("run", run_id.0.into())]).await?;
    rows.iter().map(|row| row.get("id")).collect()
}
