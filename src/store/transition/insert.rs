//! The rows that a transition makes: barriers, branches, steps, and their first executions.
//!
//! Owns: their inserts, a chunk of rows at a time. Never: decides which (`plan` does), or moves a
//! branch (the parent module does).

use super::super::conn::Conn;
use super::super::error::Error;
use super::super::statement::{Rows, statements};
use super::CHUNK;
use super::plan::{Crossed, Input, NewStep, Standing, Writes};

pub(in crate::store) use super::plan::NewExecution;

statements! {
    INSERT_BRANCHES = "
        INSERT INTO ductwork_branches
            (id, run_id, pipeline, fan_out_id, ordinal, status, step_id, last_advanced_at)
        SELECT b.id, b.run_id, b.pipeline, b.fan_out_id, b.ordinal, 'in_progress', b.step_id, {now}
          FROM {rows:b(id id, run_id id, pipeline text, fan_out_id id, ordinal int, step_id id)}";
    INSERT_FAN_OUTS = "
        INSERT INTO ductwork_fan_outs
            (id, run_id, branch_id, node, via, width, parent_fan_out_id, parent_ordinal, created_at)
        SELECT b.id, b.run_id, b.branch_id, b.node, b.via, b.width, b.parent_id, b.parent_ordinal, {now}
          FROM {rows:b(id id, run_id id, branch_id id, node text, via text, width int, parent_id id, parent_ordinal int)}";
    INSERT_STEPS = "
        INSERT INTO ductwork_steps
            (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
        SELECT b.id, b.run_id, b.branch_id, b.ordinal, b.node, b.step, b.via, b.transition_id, b.status, b.input, {now}
          FROM {rows:b(id id, run_id id, branch_id id, ordinal int, node text, step text, via text, transition_id id, status text, input text)}";
    /// The input is another step's output, which is copied inside the database.
    INSERT_STEPS_FROM_OUTPUT = "
        INSERT INTO ductwork_steps
            (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
        SELECT b.id, b.run_id, b.branch_id, b.ordinal, b.node, b.step, b.via, b.transition_id, b.status, f.output, {now}
          FROM {rows:b(id id, run_id id, branch_id id, ordinal int, node text, step text, via text, transition_id id, status text, from_id id)}
          JOIN ductwork_steps f ON {key:f.id;b.from_id}";
    /// The input is the array of a fan-out's outputs in its order (I30), which is gathered inside
    /// the database.
    INSERT_STEPS_FROM_FAN_OUT = "
        INSERT INTO ductwork_steps
            (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
        SELECT b.id, b.run_id, b.branch_id, b.ordinal, b.node, b.step, b.via, b.transition_id, b.status,
               (SELECT {array:coalesce(c.output, s.output);c.ordinal}
                  FROM ductwork_branches c {found:ductwork_branches_places}
                  JOIN ductwork_steps s ON {key:s.id;c.step_id}
                 WHERE c.fan_out_id = b.from_id), {now}
          FROM {rows:b(id id, run_id id, branch_id id, ordinal int, node text, step text, via text, transition_id id, status text, from_id id)}";
    /// The input contains the value at which a branch is: the value of the question to a person, or
    /// the value that the branch ended with.
    INSERT_HOOKS = "
        INSERT INTO ductwork_steps
            (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
        SELECT b.id, b.run_id, b.branch_id, b.ordinal, b.node, b.step, b.via, b.transition_id, b.status,
               b.about || CASE b.via WHEN 'on_wait' THEN s.input ELSE coalesce(br.output, s.output) END || '}', {now}
          FROM {rows:b(id id, run_id id, branch_id id, ordinal int, node text, step text, via text, transition_id id, status text, about text)}
          JOIN ductwork_branches br ON {key:br.id;b.branch_id}
          JOIN ductwork_steps s ON {key:s.id;br.step_id}";
    INSERT_EXECUTIONS = "
        INSERT INTO ductwork_executions
            (id, step_id, pipeline, attempt, retry_count, crash_count)
        SELECT b.id, b.step_id, b.pipeline, b.attempt, b.retry_count, b.crash_count
          FROM {rows:b(id id, step_id id, pipeline text, attempt int, retry_count int, crash_count int)}";
    /// Without a wait they precede everything of their pipeline that is due; the head of a queue is
    /// looked up once for each pipeline.
    INSERT_AVAILABILITIES = "
        INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
        WITH b {materialized} (
            SELECT * FROM {rows:b(execution_id id, pipeline text, due_in int)}),
        heads {materialized} (
            SELECT b.pipeline,
                   (SELECT min(a.due_at) FROM ductwork_availabilities a
                     WHERE a.pipeline = b.pipeline) AS due_at
              FROM b WHERE b.due_in IS NULL GROUP BY b.pipeline)
        SELECT b.execution_id, b.pipeline,
               coalesce({now} + b.due_in,
                        CASE WHEN heads.due_at < {now} THEN heads.due_at - 1 END,
                        {now})
          FROM b LEFT JOIN heads ON heads.pipeline = b.pipeline", on Mysql [&INSERT_BEFORE_HEADS];
    /// The head of a pipeline's queue is looked up for each row, which reads one entry of an index.
    INSERT_BEFORE_HEADS in Mysql = "
        -- absent: INSERT_AVAILABILITIES.2: `coalesce` asks for the head only where that holds.
        INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
        SELECT b.execution_id, b.pipeline,
               coalesce({now} + b.due_in,
                        (SELECT CASE WHEN a.due_at < {now} THEN a.due_at - 1 END
                           FROM ductwork_availabilities a {found:ductwork_availabilities_due}
                          WHERE a.pipeline = b.pipeline ORDER BY a.pipeline, a.due_at LIMIT 1),
                        {now})
          FROM {rows:b(execution_id id, pipeline text, due_in int)}";
}

pub(super) async fn insert_fan_outs(
    conn: &mut Conn,
    standing: &[Standing<'_>],
    writes: &Writes<'_>,
) -> Result<(), Error> {
    if writes.fan_outs.is_empty() {
        return Ok(());
    }
    let of = |index: usize| &standing[index];
    let rows = &writes.fan_outs;
    let rows = Rows::new()
        .ids("id", rows.iter().map(|row| row.0))
        .ids("run_id", rows.iter().map(|row| of(row.4).run_id))
        .ids("branch_id", rows.iter().map(|row| of(row.4).branch_id))
        .texts("node", rows.iter().map(|row| row.1))
        .texts("via", rows.iter().map(|row| row.2.as_str()))
        .ints("width", rows.iter().map(|row| row.3 as i64))
        .optional_ids("parent_id", rows.iter().map(|row| of(row.4).fan_out_id))
        .ints("parent_ordinal", rows.iter().map(|row| of(row.4).ordinal));
    conn.write(
        &INSERT_FAN_OUTS,
        &[("b", (&rows).into())],
        writes.fan_outs.len(),
    )
    .await
}

pub(super) async fn insert_children(
    conn: &mut Conn,
    writes: &mut Writes<'_>,
    crossed: &mut Crossed,
) -> Result<(), Error> {
    for branches in writes.branches.chunks(CHUNK) {
        let rows = Rows::new()
            .ids("id", branches.iter().map(|row| row.id))
            .ids("run_id", branches.iter().map(|row| row.run_id))
            .texts("pipeline", branches.iter().map(|row| row.pipeline))
            .ids("fan_out_id", branches.iter().map(|row| row.fan_out_id))
            .ints("ordinal", branches.iter().map(|row| row.ordinal))
            .ids("step_id", branches.iter().map(|row| row.step_id));
        conn.write(&INSERT_BRANCHES, &[("b", (&rows).into())], branches.len())
            .await?;
    }
    insert_steps(conn, &writes.steps).await?;
    for execution in &writes.executions {
        crossed.available.insert(execution.pipeline.to_owned());
    }
    insert_executions(conn, &writes.executions).await
}

pub(super) async fn insert_steps(conn: &mut Conn, steps: &[NewStep<'_>]) -> Result<(), Error> {
    let (mut texts, mut outputs, mut gathered) = (Vec::new(), Vec::new(), Vec::new());
    let mut hooks = Vec::new();
    for step in steps {
        match &step.input {
            Input::Text(text) => texts.push((step, text.as_ref())),
            Input::OutputOf(from) => outputs.push((step, *from)),
            Input::GatheredFrom(from) => gathered.push((step, *from)),
            Input::About(about) => hooks.push((step, about.as_str())),
        }
    }
    for chunk in texts.chunks(CHUNK) {
        let rows =
            columns(chunk.iter().map(|row| row.0)).texts("input", chunk.iter().map(|row| row.1));
        conn.write(&INSERT_STEPS, &[("b", (&rows).into())], chunk.len())
            .await?;
    }
    for chunk in outputs.chunks(CHUNK) {
        let rows =
            columns(chunk.iter().map(|row| row.0)).ids("from_id", chunk.iter().map(|row| row.1));
        conn.write(
            &INSERT_STEPS_FROM_OUTPUT,
            &[("b", (&rows).into())],
            chunk.len(),
        )
        .await?;
    }
    for chunk in gathered.chunks(CHUNK) {
        let rows =
            columns(chunk.iter().map(|row| row.0)).ids("from_id", chunk.iter().map(|row| row.1));
        conn.write(
            &INSERT_STEPS_FROM_FAN_OUT,
            &[("b", (&rows).into())],
            chunk.len(),
        )
        .await?;
    }
    for chunk in hooks.chunks(CHUNK) {
        let rows =
            columns(chunk.iter().map(|row| row.0)).texts("about", chunk.iter().map(|row| row.1));
        conn.write(&INSERT_HOOKS, &[("b", (&rows).into())], chunk.len())
            .await?;
    }
    Ok(())
}

fn columns<'a>(steps: impl Iterator<Item = &'a NewStep<'a>> + Clone) -> Rows<'a> {
    Rows::new()
        .ids("id", steps.clone().map(|step| step.id))
        .ids("run_id", steps.clone().map(|step| step.run_id))
        .ids("branch_id", steps.clone().map(|step| step.branch_id))
        .ints("ordinal", steps.clone().map(|step| step.ordinal))
        .texts("node", steps.clone().map(|step| step.node))
        .texts("step", steps.clone().map(|step| step.step))
        .texts("via", steps.clone().map(|step| step.via.as_str()))
        .optional_ids("transition_id", steps.clone().map(|step| step.transition))
        .texts("status", steps.map(|step| step.status.as_str()))
}

/// Inserts new attempts, with their places in the queue.
pub(in crate::store) async fn insert_executions(
    conn: &mut Conn,
    executions: &[NewExecution<'_>],
) -> Result<(), Error> {
    for rows in executions.chunks(CHUNK) {
        let count =
            |of: fn(&NewExecution<'_>) -> u32| rows.iter().map(move |row| i64::from(of(row)));
        let table = Rows::new()
            .ids("id", rows.iter().map(|row| row.id))
            .ids("step_id", rows.iter().map(|row| row.step_id))
            .texts("pipeline", rows.iter().map(|row| row.pipeline))
            .ints("attempt", count(|row| row.attempt))
            .ints("retry_count", count(|row| row.retry_count))
            .ints("crash_count", count(|row| row.crash_count));
        conn.write(&INSERT_EXECUTIONS, &[("b", (&table).into())], rows.len())
            .await?;
        let table = Rows::new()
            .ids("execution_id", rows.iter().map(|row| row.id))
            .texts("pipeline", rows.iter().map(|row| row.pipeline))
            .optional_ints("due_in", rows.iter().map(|row| row.due_in));
        conn.write(
            &INSERT_AVAILABILITIES,
            &[("b", (&table).into())],
            rows.len(),
        )
        .await?;
    }
    Ok(())
}
