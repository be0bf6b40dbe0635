//! Steps beside the flow: the hooks of a run, and the deadlines of its questions.
//!
//! Owns: their rows. A hook is a step like any other, made in the transaction that makes it due: it cannot
//! be lost between a flag and a call, and cannot run after a rollback (A16). It names the transition that
//! called it, and moves no branch. The hook of a run's end is placed after the last step of the root
//! branch; the hook of a wait has its question's place, below zero. Never: decides when a hook is due.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::definition::Unanswered;
use crate::model::*;

use super::super::conn::Conn;
use super::super::error::Error;
use super::super::micros;
use super::super::statement::{Rows, statements};
use super::insert::{insert_executions, insert_steps};
use super::plan::{Crossed, Input, NewExecution, NewStep, Standing, Wait};

/// How many runs' hooks are made at once: each input has up to a hundred error messages.
const HOOKS_AT_ONCE: usize = if cfg!(feature = "failpoints") { 2 } else { 16 };

statements! {
    /// The first hundred halts of a run: a wide fan-out may have a million, and the run halts in this
    /// transaction. A statement for several runs would have to number all halts of each.
    HALTS_OF_RUN = "
        SELECT br.halt_reason, s.node, s.step, s.id AS step_id, e.attempt, e.error_class, e.error_message
          FROM (SELECT x.id FROM ductwork_branches x {found:ductwork_branches_reasons}
                 WHERE x.run_id = :run AND x.halt_reason IS NOT NULL
                 ORDER BY x.id LIMIT 100) halted
          JOIN ductwork_branches br ON {key:br.id;halted.id}
          JOIN ductwork_steps s ON {key:s.id;br.step_id}
          LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.attempt =
               (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)
         ORDER BY br.id";
    /// A program that knows no deadlines may have left a deadline behind.
    INSERT_DEADLINES = "
        INSERT INTO ductwork_deadlines (branch_id, answer_by, unanswered)
        SELECT b.id, {now} + b.timeout, b.unanswered
          FROM {rows:b(id id, timeout int, unanswered text)} WHERE true
        {replace:branch_id} answer_by = {new:answer_by}, unanswered = {new:unanswered}";
}

/// Makes the hooks of runs that have halted.
pub(super) async fn halted(
    conn: &mut Conn,
    roots: &[&Standing<'_>],
    crossed: &mut Crossed,
) -> Result<(), Error> {
    let hooked: Vec<&Standing<'_>> = roots
        .iter()
        .copied()
        .filter(|root| root.definition.on_halt.is_some())
        .collect();
    for roots in hooked.chunks(HOOKS_AT_ONCE) {
        let mut hooks = Vec::with_capacity(roots.len());
        for root in roots {
            let halts = halts(conn, root.run_id).await?;
            let input = json!({
                "run_id": root.run_id.to_string(),
                "pipeline": root.pipeline,
                "halts": halts,
            });
            let input = Input::Text(input.to_string().into());
            hooks.extend(of_end(Hook::Halt, root, input));
        }
        enqueue(conn, hooks, &mut crossed.available).await?;
    }
    Ok(())
}

/// The first halts of a run, as its hook gets them.
async fn halts(conn: &mut Conn, run: RunId) -> Result<Vec<Value>, Error> {
    let rows = conn.fetch(&HALTS_OF_RUN, &[("run", run.0.into())]).await?;
    rows.iter()
        .map(|halt| {
            Ok(json!({
                "reason": halt.get::<String>("halt_reason")?,
                "node": halt.get::<String>("node")?,
                "step": halt.get::<String>("step")?,
                "step_id": halt.get::<uuid::Uuid>("step_id")?.to_string(),
                "attempts": halt.get::<Option<i64>>("attempt")?.unwrap_or_default(),
                "error_class": halt.get::<Option<String>>("error_class")?,
                "error_message": halt.get::<Option<String>>("error_message")?,
            }))
        })
        .collect()
}

/// Makes the hooks of runs that have completed.
pub(super) async fn completed<'a>(
    conn: &mut Conn,
    roots: impl Iterator<Item = &'a Standing<'a>>,
    crossed: &mut Crossed,
) -> Result<(), Error> {
    let hooks = roots.filter_map(|root| {
        let about = json!({ "run_id": root.run_id.to_string(), "pipeline": root.pipeline });
        of_end(Hook::Complete, root, about_value(&about, "output"))
    });
    let hooks: Vec<_> = hooks.collect();
    enqueue(conn, hooks, &mut crossed.available).await
}

/// Makes the hooks and the deadlines of branches that have begun to wait for a person.
pub(in crate::store) async fn begin_waits(
    conn: &mut Conn,
    waits: &[Wait<'_>],
    available: &mut BTreeSet<String>,
) -> Result<(), Error> {
    let deadline = |wait: &Wait<'_>| {
        let deadline = wait.definition.node(wait.node).deadline?;
        Some((wait.branch_id, deadline))
    };
    let deadlines: Vec<_> = waits.iter().filter_map(deadline).collect();
    if !deadlines.is_empty() {
        let rows = Rows::new()
            .ids("id", deadlines.iter().map(|row| row.0))
            .ints("timeout", deadlines.iter().map(|row| micros(row.1.timeout)))
            .texts("unanswered", deadlines.iter().map(|row| word(row.1.then)));
        conn.replace(&INSERT_DEADLINES, &[("b", (&rows).into())], deadlines.len())
            .await?;
    }
    let hooks = waits.iter().filter_map(|wait| {
        let node = wait.definition.node(wait.node);
        let seconds = node.deadline.map(|it| seconds(it.timeout));
        let about = json!({
            "run_id": wait.run_id.to_string(),
            "pipeline": wait.pipeline,
            "node": node.name,
            "step_id": wait.step.to_string(),
            "prompt": node.prompt,
            "timeout": seconds,
            "then": node.deadline.map(|it| word(it.then)),
        });
        Some(NewStep {
            id: StepId::following(wait.step, Hook::Wait.node(), 0),
            run_id: wait.run_id,
            branch_id: wait.branch_id,
            ordinal: -wait.ordinal,
            node: Hook::Wait.node(),
            step: wait.definition.hook(Hook::Wait)?,
            via: Hook::Wait.via(),
            transition: wait.transition,
            status: StepStatus::InProgress,
            input: about_value(&about, "value"),
        })
        .map(|step| (step, wait.pipeline))
    });
    let hooks: Vec<_> = hooks.collect();
    enqueue(conn, hooks, available).await
}

/// The stored word for it.
fn word(then: Unanswered) -> &'static str {
    match then {
        Unanswered::Halt => HALT,
        Unanswered::Approve => APPROVE,
    }
}

/// The stored words for the move when nobody answers.
pub(in crate::store) const HALT: &str = "halt";
pub(in crate::store) const APPROVE: &str = "approve";

fn seconds(timeout: Duration) -> Value {
    match timeout.subsec_millis() {
        0 => timeout.as_secs().into(),
        _ => timeout.as_secs_f64().into(),
    }
}

/// An object whose last field is the value at which the hook's branch is.
fn about_value<'a>(about: &Value, field: &str) -> Input<'a> {
    let mut text = about.to_string();
    text.truncate(text.len() - 1);
    text.push_str(&format!(",\"{field}\":"));
    Input::About(text)
}

fn of_end<'a>(
    hook: Hook,
    root: &'a Standing<'_>,
    input: Input<'a>,
) -> Option<(NewStep<'a>, &'a str)> {
    let step = NewStep {
        id: StepId::following(root.from, hook.node(), 0),
        run_id: root.run_id,
        branch_id: root.branch_id,
        ordinal: root.from_ordinal + 1,
        node: hook.node(),
        step: root.definition.hook(hook)?,
        via: hook.via(),
        transition: Some(root.transition),
        status: StepStatus::InProgress,
        input,
    };
    Some((step, root.pipeline))
}

async fn enqueue(
    conn: &mut Conn,
    hooks: Vec<(NewStep<'_>, &str)>,
    available: &mut BTreeSet<String>,
) -> Result<(), Error> {
    if hooks.is_empty() {
        return Ok(());
    }
    let execution = |(step, pipeline): &(NewStep<'_>, &'_ str)| (step.id, (*pipeline).to_owned());
    let executions: Vec<(StepId, String)> = hooks.iter().map(execution).collect();
    let steps: Vec<NewStep<'_>> = hooks.into_iter().map(|(step, _)| step).collect();
    insert_steps(conn, &steps).await?;
    let executions = executions
        .iter()
        .map(|(step, pipeline)| NewExecution::first(*step, pipeline, Some(0)));
    let executions: Vec<_> = executions.collect();
    insert_executions(conn, &executions).await?;
    available.extend(executions.iter().map(|row| row.pipeline.to_owned()));
    Ok(())
}
