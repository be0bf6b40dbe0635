//! The attempts of a run, for its trace.
//!
//! Owns: reading them, bounded: all of a narrow run, some of a wide one. Never: makes spans (`machine::trace`).

use std::collections::HashMap;

use uuid::Uuid;

use crate::machine::timeline::StepTime;
use crate::machine::trace::{Attempt, Facts, SPANS};
use crate::model::*;

use super::conn::{Conn, Row};
use super::error::Error;
use super::page::RunHead;
use super::statement::{Rows, statements};
use super::timeline;

statements! {
    /// The last attempts of these steps, and where they ran, as long as that is known.
    TRACE_ATTEMPTS = "
        SELECT e.id, e.step_id, e.attempt, e.claimed_at, e.completed_at, e.result, e.error_class,
               substr(e.error_message, 1, 1000) AS error_message, e.process_id, coalesce(p.host, d.host) AS host
          FROM {rows:b(id id)}
          JOIN ductwork_executions e ON {key:e.step_id;b.id} AND e.claimed_at IS NOT NULL AND e.attempt >
               (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = b.id) - :n
          LEFT JOIN ductwork_processes p ON {key:p.id;e.process_id}
          LEFT JOIN ductwork_departed d ON {key:d.id;e.process_id}
         ORDER BY e.step_id, e.attempt";
}

/// Attempts of one step.
const EACH: usize = 20;

/// A run and its attempts.
pub async fn facts(conn: &mut Conn, head: &RunHead) -> Result<Facts, Error> {
    conn.snapshot(async |conn| {
        let (mut steps, mut is_sample) = timeline::steps(conn, head.id).await?;
        steps.retain(|step| step.started_at.is_some());
        if steps.len() > SPANS {
            is_sample = true;
            // Those that failed are told before all others.
            steps.sort_by_key(|step| (step.status != StepStatus::Failed, step.id));
            steps.truncate(SPANS);
        }
        Ok(Facts {
            run: head.id,
            pipeline: head.pipeline.clone(),
            status: head.status,
            key: head.trigger_key.clone(),
            revived_from: head.revived_from,
            triggered_at: head.triggered_at,
            ended_at: head.ended_at,
            now: head.now,
            attempts: attempts(conn, steps).await?,
            is_sample,
        })
    })
    .await
}

async fn attempts(conn: &mut Conn, steps: Vec<StepTime>) -> Result<Vec<Attempt>, Error> {
    if steps.is_empty() {
        return Ok(Vec::new());
    }
    let rows = Rows::new().ids("id", steps.iter().map(|step| step.id));
    let args = [("b", (&rows).into()), ("n", EACH.into())];
    let rows = conn.fetch(&TRACE_ATTEMPTS, &args).await?;
    let of: HashMap<Uuid, StepTime> = steps.into_iter().map(|it| (it.id.0, it)).collect();
    let mut attempts = Vec::with_capacity(rows.len());
    for row in &rows {
        if let Some(step) = of.get(&row.get("step_id")?) {
            attempts.push(attempt(row, step)?);
        }
    }
    attempts.sort_by_key(|it| (it.created_at, it.step, it.number));
    Ok(attempts)
}

fn attempt(row: &Row, step: &StepTime) -> Result<Attempt, Error> {
    Ok(Attempt {
        id: ExecutionId(row.get("id")?),
        step: step.id,
        node: step.node.clone(),
        element: step.element,
        number: row.count("attempt")?,
        created_at: step.created_at,
        claimed_at: row.get("claimed_at")?,
        completed_at: row.get("completed_at")?,
        result: row.optional_word("result")?,
        class: row.get("error_class")?,
        message: row.get("error_message")?,
        host: row.get("host")?,
        process: row.get::<Option<Uuid>>("process_id")?.map(ProcessId),
    })
}
