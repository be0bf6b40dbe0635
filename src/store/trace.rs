//! The attempts of runs, for their traces.
//!
//! Owns: reading them, bounded: all of a narrow run, some of a wide one, and those of narrow runs together. Never:
//! makes spans (`machine::trace`).

use std::collections::HashMap;

use uuid::Uuid;

use crate::definition::RunTrace;
use crate::machine::timeline::StepTime;
use crate::machine::trace::{Attempt, Facts, SPANS};
use crate::model::*;

use super::conn::{Conn, Row};
use super::cursor::Cursor;
use super::definition::Definitions;
use super::delivery::{Page, ended_since};
use super::error::Error;
use super::page::RunHead;
use super::statement::{Rows, statements};
use super::timeline;

statements! {
    RUNS_TO_TRACE = ended_since!("
               r.id, r.pipeline, r.definition, r.status, r.trigger_key, r.revived_from, r.trace_parent, r.trace_state, r.triggered_at,
               {now} AS now");
    /// The last attempts of these steps, and the hosts that they ran on, as long as these are
    /// known.
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

/// How many attempts of one step are read.
const EACH: usize = 20;

/// How many steps of several runs are read together.
const TOGETHER: usize = SPANS;

/// A run and its attempts.
pub async fn facts(
    conn: &mut Conn,
    head: &RunHead,
    definitions: &Definitions,
) -> Result<Facts, Error> {
    let trace = wanted(conn, head, definitions).await?;
    conn.snapshot(async |conn| {
        let (steps, is_sample) = timeline::steps(conn, head.id).await?;
        let (steps, is_cut) = told(steps);
        let attempts = attempts(conn, steps).await?;
        Ok(of(head, trace, attempts, is_sample || is_cut))
    })
    .await
}

/// The first of several runs, with their attempts: at most `n` of them, and only as many as can be read
/// together, but at least one.
pub async fn some(
    conn: &mut Conn,
    heads: &[RunHead],
    n: usize,
    definitions: &Definitions,
) -> Result<Vec<Facts>, Error> {
    let mut n = n.clamp(1, heads.len().max(1));
    loop {
        let heads = match heads {
            [] => return Ok(Vec::new()),
            [one] | [one, ..] if n == 1 => return Ok(vec![facts(conn, one, definitions).await?]),
            more => &more[..n],
        };
        let together = conn
            .snapshot(async |conn| {
                let ids = heads.iter().map(|head| head.id);
                let Some(mut steps) = timeline::together(conn, ids, TOGETHER).await? else {
                    return Ok(None);
                };
                let of_run: HashMap<Uuid, RunId> = steps
                    .iter()
                    .flat_map(|(run, steps)| steps.iter().map(|step| (step.id.0, *run)))
                    .collect();
                let all = steps.drain().flat_map(|(_, steps)| told(steps).0).collect();
                let mut found: HashMap<RunId, Vec<Attempt>> = HashMap::new();
                for attempt in attempts(conn, all).await? {
                    if let Some(run) = of_run.get(&attempt.step.0) {
                        found.entry(*run).or_default().push(attempt);
                    }
                }
                Ok(Some(found))
            })
            .await?;
        let Some(mut together) = together else {
            n = n.div_ceil(2);
            continue;
        };
        let mut all = Vec::with_capacity(heads.len());
        for head in heads {
            let trace = wanted(conn, head, definitions).await?;
            let attempts = together.remove(&head.id).unwrap_or_default();
            all.push(of(head, trace, attempts, false));
        }
        return Ok(all);
    }
}

/// The trace that a run's definition puts it in. A definition that cannot be read, because a newer version wrote
/// it, chooses none.
async fn wanted(
    conn: &mut Conn,
    head: &RunHead,
    definitions: &Definitions,
) -> Result<RunTrace, Error> {
    if head.caller.span.is_none() {
        return Ok(RunTrace::Own);
    }
    let definition = definitions.read(conn, &head.definition).await?;
    Ok(definition.map_or(RunTrace::Own, |it| it.trace))
}

fn of(head: &RunHead, trace: RunTrace, attempts: Vec<Attempt>, is_sample: bool) -> Facts {
    Facts {
        run: head.id,
        pipeline: head.pipeline.clone(),
        status: head.status,
        key: head.trigger_key.clone(),
        revived_from: head.revived_from,
        within: head.caller.span,
        state: head.caller.state.clone(),
        trace,
        triggered_at: head.triggered_at,
        ended_at: head.ended_at,
        now: head.now,
        attempts,
        is_sample,
    }
}

/// The steps of a run that its trace contains, and whether some are left out: failed steps come before all
/// others.
fn told(mut steps: Vec<StepTime>) -> (Vec<StepTime>, bool) {
    steps.retain(|step| step.started_at.is_some());
    let is_cut = steps.len() > SPANS;
    if is_cut {
        steps.sort_by_key(|step| (step.status != StepStatus::Failed, step.id));
        steps.truncate(SPANS);
    }
    (steps, is_cut)
}

/// The next runs that ended, in the order of their ends: at most `n` after a place.
pub(super) async fn ended(
    conn: &mut Conn,
    behind: Cursor,
    n: usize,
) -> Result<Page<RunHead>, Error> {
    let [behind, behind_id] = behind.args();
    let args = [behind, behind_id, ("n", n.into())];
    let rows = conn.fetch(&RUNS_TO_TRACE, &args).await?;
    let head = |row: &Row| RunHead::read(row, row.get("ended_at")?);
    let place = |row: &Row| Cursor::of(row, "ended_at", "id");
    Ok(Page::read(&rows, n, head, place))
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
