//! The steps of a run, page by page, for programs and pages.
//!
//! Owns: an order in which all steps can be read at a cost that does not grow with the width of the run:
//! those of the root branch, then by fan-out and by element. Never: writes.

use uuid::Uuid;

use crate::model::*;

use super::conn::{Conn, Row};
use super::error::Error;
use super::query::{self, LISTED_ATTEMPTS, LeftOut, StepRow};
use super::statement::{Arg, statements};

macro_rules! step_columns {
    () => {
        "s.id, s.branch_id, s.node, s.step, s.via, s.source_step_id, s.status, s.completed_at, s.answered_by,
         CASE WHEN octet_length(s.input) <= :whole THEN s.input END AS input,
         CASE WHEN octet_length(s.output) <= :whole THEN s.output END AS output,
         {big:octet_length(s.input)} AS input_bytes,
         {big:octet_length(s.output)} AS output_bytes,
         s.ordinal, b.ordinal AS element"
    };
}

statements! {
    STEPS_OF_ROOT = concat!("
        SELECT ", step_columns!(), "
          FROM ductwork_branches b
          JOIN ductwork_steps s ON {key:s.branch_id;b.id}
         WHERE b.run_id = :run AND b.fan_out_id IS NULL AND s.ordinal > :step
         ORDER BY s.ordinal LIMIT :n");
    STEPS_OF_FAN_OUT = concat!("
        SELECT ", step_columns!(), "
          FROM ductwork_branches b
          JOIN ductwork_steps s ON {key:s.branch_id;b.id}
         WHERE b.fan_out_id = :fan_out AND b.ordinal >= :element
           AND (b.ordinal > :element OR s.ordinal > :step)
         ORDER BY b.ordinal, s.ordinal LIMIT :n");
    NEXT_FAN_OUT = "
        SELECT b.fan_out_id FROM ductwork_branches b
         WHERE b.run_id = :run AND b.fan_out_id > :fan_out
         ORDER BY b.fan_out_id LIMIT 1";
    STEP = concat!("
        SELECT ", step_columns!(), "
          FROM ductwork_steps s
          JOIN ductwork_branches b ON {key:b.id;s.branch_id}
         WHERE s.id = :id AND s.run_id = :run");
}

/// How many attempts at a step that is shown alone are read.
pub const ATTEMPTS: usize = 100;

/// A place in the order of a run's steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The fan-out that the step's branch belongs to; nil for the root branch.
    pub fan_out: Uuid,
    /// The branch's place in it.
    pub element: i64,
    /// The step's place on its branch.
    pub step: i64,
}

impl Place {
    /// Before all steps.
    pub const FIRST: Self = Self {
        fan_out: Uuid::nil(),
        element: 0,
        step: -1,
    };
}

/// A step, with additional data for a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The step, with its last attempts and without their logs.
    pub step: StepRow,
    /// The sizes of its payloads that are too large for a list.
    pub left_out: LeftOut,
    /// Set where its input or its output is not JSON; null replaces that payload.
    pub damaged: Option<Error>,
    /// The place where the next page begins, if this step ends a page.
    pub place: Place,
}

impl Listed {
    /// Leaves its payloads out, as in a list whose reader has no room for them.
    pub fn leave_out_payloads(&mut self) {
        let Self { step, left_out, .. } = self;
        query::leave_out(&mut step.input, &mut step.output, left_out);
    }
}

/// At most `n` steps of a run that follow this place, without payloads of more than `whole` bytes.
pub async fn after(
    conn: &mut Conn,
    run: RunId,
    place: Place,
    n: usize,
    whole: i64,
) -> Result<Vec<Listed>, Error> {
    conn.snapshot(async |conn| {
        let mut listed = Vec::new();
        let mut at = place;
        loop {
            let statement = match at.fan_out.is_nil() {
                true => &STEPS_OF_ROOT,
                false => &STEPS_OF_FAN_OUT,
            };
            let left = n - listed.len();
            let mut args: Vec<(&'static str, Arg<'_>)> = vec![
                ("step", at.step.into()),
                ("n", left.into()),
                ("whole", whole.into()),
            ];
            match at.fan_out.is_nil() {
                true => args.push(("run", run.0.into())),
                false => args.extend([
                    ("fan_out", at.fan_out.into()),
                    ("element", at.element.into()),
                ]),
            }
            for row in conn.fetch(statement, &args).await? {
                listed.push(step(&row, at.fan_out)?);
            }
            if listed.len() >= n {
                break;
            }
            let args = [("run", run.0.into()), ("fan_out", at.fan_out.into())];
            let Some(next) = conn.fetch_optional(&NEXT_FAN_OUT, &args).await? else {
                break;
            };
            at = Place {
                fan_out: next.get("fan_out_id")?,
                ..Place::FIRST
            };
        }
        attempts(conn, &mut listed, LISTED_ATTEMPTS).await?;
        Ok(listed)
    })
    .await
}

/// A whole step of this run; `None` where the run has no such step.
pub async fn one(conn: &mut Conn, run: RunId, id: StepId) -> Result<Option<Listed>, Error> {
    let args = [
        ("id", id.0.into()),
        ("run", run.0.into()),
        ("whole", query::WHOLE.into()),
    ];
    let Some(row) = conn.fetch_optional(&STEP, &args).await? else {
        return Ok(None);
    };
    let mut listed = [step(&row, Uuid::nil())?];
    attempts(conn, &mut listed, ATTEMPTS).await?;
    let [listed] = listed;
    Ok(Some(listed))
}

/// Reads the last `n` attempts at each of these steps.
async fn attempts(conn: &mut Conn, listed: &mut [Listed], n: usize) -> Result<(), Error> {
    let mut steps: Vec<&mut StepRow> = listed.iter_mut().map(|it| &mut it.step).collect();
    query::executions(conn, &mut steps, false, n).await
}

fn step(row: &Row, fan_out: Uuid) -> Result<Listed, Error> {
    let mut damaged = None;
    let step = query::step_row(row, &mut damaged)?;
    Ok(Listed {
        step,
        left_out: LeftOut::of(row)?,
        damaged,
        place: Place {
            fan_out,
            element: row.get("element")?,
            step: row.get("ordinal")?,
        },
    })
}
