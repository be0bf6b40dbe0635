//! Starting runs.
//!
//! Owns: the rows of a new run: run, root branch, start step, execution, availability; all or
//! nothing, many at once.

use std::time::Duration;

use crate::definition::Definition;
use crate::model::*;

use super::conn::Conn;
use super::crossing::micros;
use super::definition;
use super::error::Error;
use super::statement::{Rows, statements};

/// Runs per statement.
const CHUNK: usize = 1_000;

statements! {
    /// RACE: two triggers with one key. The unique index lets one insert win; the other
    /// inserts nothing, and reads the winner's run (T1). Proven by
    /// `triggers_with_one_key_make_one_run`.
    INSERT_RUNS = "
        INSERT INTO ductwork_runs (id, pipeline, definition, input, trigger_key, triggered_at)
        SELECT b.id, :pipeline, :definition, b.input, b.trigger_key, {now}
          FROM {rows:b(id id, input text, trigger_key text)}
         WHERE true
        ON CONFLICT (pipeline, trigger_key) WHERE trigger_key IS NOT NULL DO NOTHING";
    RUNS_BY_KEY = "
        SELECT r.id, r.trigger_key, r.input
          FROM {rows:b(trigger_key text)}
          JOIN ductwork_runs r ON r.pipeline = :pipeline AND r.trigger_key = b.trigger_key";
    INSERT_ROOTS = "
        INSERT INTO ductwork_branches (id, run_id, pipeline, ordinal, status, step_id, last_advanced_at)
        SELECT b.id, b.run_id, :pipeline, 0, 'in_progress', b.step_id, {now}
          FROM {rows:b(id id, run_id id, step_id id)}";
    INSERT_STARTS = "
        INSERT INTO ductwork_steps
            (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
        SELECT b.id, b.run_id, b.branch_id, 0, :node, :step, 'start', 'in_progress', r.input, {now}
          FROM {rows:b(id id, run_id id, branch_id id)}
          JOIN ductwork_runs r ON {key:r.id;b.run_id}";
    INSERT_FIRST_EXECUTIONS = "
        INSERT INTO ductwork_executions (id, step_id, pipeline, attempt)
        SELECT b.id, b.step_id, :pipeline, 1 FROM {rows:b(id id, step_id id)}";
    INSERT_FIRST_AVAILABILITIES = "
        INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
        SELECT b.id, :pipeline, {now} + :delay FROM {rows:b(id id)}";
}

/// A run to start.
#[derive(Clone, Debug)]
pub struct NewRun<'a> {
    /// The key that makes a second trigger return the first run.
    pub key: Option<&'a str>,
    /// One JSON value.
    pub input: &'a str,
}

/// A run that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Triggered {
    /// The run: a new one, or the one that its key had started.
    pub run_id: RunId,
    /// False when the key had started it before.
    pub created: bool,
    /// True when the key had started it with another input.
    pub input_differs: bool,
}

/// Starts runs of one definition; one answer per element of `runs`, in their order.
///
/// One transaction per thousand runs. A second trigger with a key returns the first run. Lost
/// acknowledgement: with a key, trigger again; without, the run may exist.
pub async fn trigger(
    conn: &mut Conn,
    definition: &Definition,
    runs: &[NewRun<'_>],
    delay: Duration,
) -> Result<Vec<Triggered>, Error> {
    let digest = definition::save(conn, definition).await?;
    let mut triggered = Vec::with_capacity(runs.len());
    for chunk in runs.chunks(CHUNK) {
        let done = conn
            .transaction(async |conn| insert(conn, definition, &digest, chunk, delay).await)
            .await?;
        triggered.extend(done);
    }
    Ok(triggered)
}

async fn insert(
    conn: &mut Conn,
    definition: &Definition,
    digest: &str,
    runs: &[NewRun<'_>],
    delay: Duration,
) -> Result<Vec<Triggered>, Error> {
    let pipeline = || ("pipeline", (&definition.pipeline).into());
    // The same key twice in one call is one run, like in two.
    let mut first: std::collections::HashMap<&str, usize> = std::collections::HashMap::new();
    let ids: Vec<RunId> = runs.iter().map(|_| RunId::new()).collect();
    let fresh: Vec<usize> = (0..runs.len())
        .filter(|index| match runs[*index].key {
            Some(key) => *first.entry(key).or_insert(*index) == *index,
            None => true,
        })
        .collect();
    let rows = Rows::new()
        .ids("id", fresh.iter().map(|i| ids[*i]))
        .texts("input", fresh.iter().map(|i| runs[*i].input))
        .optional_texts("trigger_key", fresh.iter().map(|i| runs[*i].key));
    let inserted = conn
        .execute(
            &INSERT_RUNS,
            &[
                ("b", (&rows).into()),
                pipeline(),
                ("definition", digest.into()),
            ],
        )
        .await?;
    let mut triggered: Vec<Triggered> = ids
        .iter()
        .map(|id| Triggered {
            run_id: *id,
            created: true,
            input_differs: false,
        })
        .collect();
    if inserted < runs.len() as u64 {
        let rows = Rows::new().texts("trigger_key", first.keys().copied());
        let known = conn
            .fetch(&RUNS_BY_KEY, &[("b", (&rows).into()), pipeline()])
            .await?;
        for row in known {
            let key: String = row.get("trigger_key")?;
            let (id, input) = (RunId(row.get("id")?), row.get::<String>("input")?);
            for index in 0..runs.len() {
                if runs[index].key == Some(&key) && ids[index] != id {
                    triggered[index] = Triggered {
                        run_id: id,
                        created: false,
                        input_differs: runs[index].input != input,
                    };
                }
            }
        }
    }
    let created: Vec<RunId> = triggered
        .iter()
        .filter(|run| run.created)
        .map(|run| run.run_id)
        .collect();
    if created.is_empty() {
        return Ok(triggered);
    }
    let branches: Vec<BranchId> = created.iter().map(|_| BranchId::new()).collect();
    let steps: Vec<StepId> = created.iter().map(|_| StepId::new()).collect();
    let executions: Vec<ExecutionId> = created.iter().map(|_| ExecutionId::new()).collect();
    let rows = Rows::new()
        .ids("id", branches.iter().copied())
        .ids("run_id", created.iter().copied())
        .ids("step_id", steps.iter().copied());
    conn.execute(&INSERT_ROOTS, &[("b", (&rows).into()), pipeline()])
        .await?;
    let start = definition.node(crate::definition::NodeIndex(0));
    let rows = Rows::new()
        .ids("id", steps.iter().copied())
        .ids("run_id", created.iter().copied())
        .ids("branch_id", branches.iter().copied());
    conn.execute(
        &INSERT_STARTS,
        &[
            ("b", (&rows).into()),
            ("node", (&start.name).into()),
            ("step", start.step.as_deref().unwrap_or_default().into()),
        ],
    )
    .await?;
    let rows = Rows::new()
        .ids("id", executions.iter().copied())
        .ids("step_id", steps.iter().copied());
    conn.execute(
        &INSERT_FIRST_EXECUTIONS,
        &[("b", (&rows).into()), pipeline()],
    )
    .await?;
    let rows = Rows::new().ids("id", executions.iter().copied());
    let step_delay = start
        .step
        .as_ref()
        .and_then(|step| definition.steps.get(step));
    let own = definition
        .start_delay
        .or_else(|| step_delay.and_then(|step| step.delay))
        .unwrap_or_default();
    let delay = micros(delay.saturating_add(own));
    conn.execute(
        &INSERT_FIRST_AVAILABILITIES,
        &[("b", (&rows).into()), pipeline(), ("delay", delay.into())],
    )
    .await?;
    Ok(triggered)
}
