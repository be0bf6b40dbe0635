//! The times of a run's steps, for its timeline.
//!
//! Owns: reading them, bounded: all steps of a narrow run or the first, some of each fan-out of a wide one. Never:
//! places them (`machine::timeline`), or writes.

use std::collections::HashMap;

use uuid::Uuid;

use crate::machine::timeline::{AttemptTime, BARS, Facts, ROWS, StepTime};
use crate::model::*;

use super::conn::{Conn, Row};
use super::error::Error;
use super::page::RunHead;
use super::statement::{Rows, statements};
use super::{fan_out, why};

macro_rules! time_columns {
    () => {
        "s.id, s.node, s.status, s.source_step_id, s.created_at, s.completed_at, br.fan_out_id, br.ordinal AS place,
               (SELECT min(e.claimed_at) FROM ductwork_executions e WHERE e.step_id = s.id) AS started_at"
    };
}

statements! {
    TIMES = concat!("
        SELECT ", time_columns!(), "
          FROM ductwork_branches br
          JOIN ductwork_steps s ON s.branch_id = br.id
         WHERE br.run_id = :run ORDER BY s.created_at, s.id LIMIT :n");
    /// The times of several runs, in any order: a caller wants all of them, or none.
    TIMES_TOGETHER = concat!("
        SELECT br.run_id, ", time_columns!(), "
          FROM {rows:b(id id)}
          JOIN ductwork_branches br ON {key:br.run_id;b.id}
          JOIN ductwork_steps s ON {key:s.branch_id;br.id}
         LIMIT :n");
    TIMES_OF_ROOT = concat!("
        SELECT ", time_columns!(), "
          FROM ductwork_branches br
          JOIN ductwork_steps s ON {key:s.branch_id;br.id}
         WHERE br.run_id = :run AND br.fan_out_id IS NULL
         ORDER BY s.ordinal LIMIT :n");
    /// The times of the elements at these places.
    TIMES_OF_ELEMENTS = concat!("
        SELECT ", time_columns!(), "
          FROM {rows:b(fan_out id, place int)}
          JOIN ductwork_branches br ON {key:br.fan_out_id;b.fan_out} AND br.ordinal = b.place
          JOIN ductwork_steps s ON {key:s.branch_id;br.id}
         ORDER BY s.created_at, s.id LIMIT :n");
    /// Uses the index of a run's halted branches.
    TIMES_OF_HALTED = concat!("
        SELECT ", time_columns!(), "
          FROM (SELECT x.id FROM ductwork_branches x {found:ductwork_branches_reasons}
                 WHERE x.run_id = :run AND x.halt_reason IS NOT NULL
                 ORDER BY x.id LIMIT :n) halted
          JOIN ductwork_branches br ON {key:br.id;halted.id}
          JOIN ductwork_steps s ON {key:s.id;br.step_id}
         ORDER BY s.created_at, s.id");
    /// The last attempts of each step.
    TIMES_OF_ATTEMPTS = "
        SELECT e.step_id, e.attempt, e.claimed_at, e.completed_at, e.result
          FROM {rows:b(id id)}
          JOIN ductwork_executions e ON {key:e.step_id;b.id} AND e.attempt >
               (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = b.id) - :n
         ORDER BY e.step_id, e.attempt";
}

/// How many steps of a narrow run are read.
const STEPS: usize = 5_000;

/// How many fan-outs of a wide run have elements read.
const FAN_OUTS: usize = 10;

/// The times of a run.
pub async fn facts(conn: &mut Conn, head: &RunHead) -> Result<Facts, Error> {
    let id = head.id;
    conn.snapshot(async |conn| {
        let (mut steps, is_sample) = steps(conn, id).await?;
        if !is_sample && steps.len() <= ROWS {
            attempts(conn, &mut steps).await?;
        }
        Ok(Facts {
            triggered_at: head.triggered_at,
            ended_at: head.ended_at,
            now: head.now,
            steps,
            is_sample,
        })
    })
    .await
}

/// The steps of a run, and whether they are a sample. A sample contains the steps that have halted branches.
pub(super) async fn steps(conn: &mut Conn, run: RunId) -> Result<(Vec<StepTime>, bool), Error> {
    if !why::is_wide(conn, run).await? {
        // One more, to know whether there are others.
        let args = [("run", run.0.into()), ("n", (STEPS + 1).into())];
        let all = read(&conn.fetch(&TIMES, &args).await?)?;
        if all.len() <= STEPS {
            return Ok((all, false));
        }
    }
    let mut steps = some(conn, run).await?;
    let args = [("run", run.0.into()), ("n", ROWS.into())];
    steps.extend(read(&conn.fetch(&TIMES_OF_HALTED, &args).await?)?);
    steps.sort_by_key(|step| (step.created_at, step.id));
    steps.dedup_by_key(|step| step.id);
    Ok((steps, true))
}

/// The steps of several runs, if they have at most `most` together.
pub(super) async fn together(
    conn: &mut Conn,
    runs: impl Iterator<Item = RunId>,
    most: usize,
) -> Result<Option<HashMap<RunId, Vec<StepTime>>>, Error> {
    let rows = Rows::new().ids("id", runs);
    let args = [("b", (&rows).into()), ("n", (most + 1).into())];
    let rows = conn.fetch(&TIMES_TOGETHER, &args).await?;
    if rows.len() > most {
        return Ok(None);
    }
    let mut of: HashMap<RunId, Vec<StepTime>> = HashMap::new();
    for (row, step) in rows.iter().zip(read(&rows)?) {
        of.entry(RunId(row.get("run_id")?)).or_default().push(step);
    }
    for steps in of.values_mut() {
        steps.sort_by_key(|step| (step.created_at, step.id));
    }
    Ok(Some(of))
}

/// Some steps of a wide run: those of its root, and those of evenly chosen elements of its fan-outs.
async fn some(conn: &mut Conn, run: RunId) -> Result<Vec<StepTime>, Error> {
    let args = [("run", run.0.into()), ("n", ROWS.into())];
    let mut steps = read(&conn.fetch(&TIMES_OF_ROOT, &args).await?)?;
    let fan_outs = fan_out::of_root(conn, run).await?;
    let fan_outs = &fan_outs[..fan_outs.len().min(FAN_OUTS)];
    let each = ROWS / fan_outs.len().max(1);
    let mut places: Vec<(FanOutId, i64)> = Vec::new();
    for it in fan_outs {
        let made = i64::try_from(it.made).unwrap_or(i64::MAX);
        let n = made.min(each as i64);
        let last = (n - 1).max(1);
        // The first and the last element are among them.
        places.extend((0..n).map(|at| (it.id, at * (made - 1) / last)));
    }
    if !places.is_empty() {
        let rows = Rows::new()
            .ids("fan_out", places.iter().map(|it| it.0))
            .ints("place", places.iter().map(|it| it.1));
        let args = [("b", (&rows).into()), ("n", STEPS.into())];
        steps.extend(read(&conn.fetch(&TIMES_OF_ELEMENTS, &args).await?)?);
    }
    Ok(steps)
}

/// Adds the attempts, of each step only as many as can be drawn together.
async fn attempts(conn: &mut Conn, steps: &mut [StepTime]) -> Result<(), Error> {
    let rows = Rows::new().ids("id", steps.iter().map(|step| step.id));
    let most = (BARS / steps.len().max(1)).clamp(1, 20);
    let args = [("b", (&rows).into()), ("n", most.into())];
    let mut found: HashMap<Uuid, Vec<AttemptTime>> = HashMap::new();
    for row in conn.fetch(&TIMES_OF_ATTEMPTS, &args).await? {
        let attempt = AttemptTime {
            number: row.count("attempt")?,
            claimed_at: row.get("claimed_at")?,
            completed_at: row.get("completed_at")?,
            result: row.optional_word("result")?,
        };
        found.entry(row.get("step_id")?).or_default().push(attempt);
    }
    for step in steps {
        step.attempts = found.remove(&step.id.0).unwrap_or_default();
    }
    Ok(())
}

fn read(rows: &[Row]) -> Result<Vec<StepTime>, Error> {
    let step = |row: &Row| {
        let place = row.get::<i64>("place")?.unsigned_abs();
        Ok(StepTime {
            id: StepId(row.get("id")?),
            node: row.get("node")?,
            element: row.get::<Option<Uuid>>("fan_out_id")?.map(|_| place),
            status: row.word("status")?,
            created_at: row.get("created_at")?,
            started_at: row.get("started_at")?,
            completed_at: row.get("completed_at")?,
            is_copied: row.get::<Option<Uuid>>("source_step_id")?.is_some(),
            attempts: Vec::new(),
        })
    };
    rows.iter().map(step).collect()
}
