//! The reading side, for people and pages: one whole run, and its progress. (Lists: `store::list`.)
//!
//! Owns: read models, each bounded by a limit or by one run. Never: writes, or reads anything that a
//! decision of the engine depends on. So a word of a newer version is shown as it is, where no state
//! depends on it.

use std::collections::HashMap;

use serde_json::value::RawValue;
use uuid::Uuid;

use crate::model::*;

use super::conn::{Conn, Row};
use super::error::Error;
use super::list;
use super::statement::{Rows, statements};

/// How many ids one statement takes.
const CHUNK: usize = 1_000;

/// Leaves out no payload.
pub const WHOLE: i64 = i64::MAX;

/// No payload is this short.
const NONE: i64 = -1;

/// The fewest hexadecimal digits that may stand for a run's id.
pub const FEWEST_DIGITS: usize = 4;

/// An id ends in random digits, which no index finds: a run is searched by its last digits among this
/// many of the newest runs. All other runs are found by their first digits.
pub const NEWEST: usize = 200_000;

/// How many runs are listed, at most, where digits stand for several.
pub const CANDIDATES: usize = 100;

/// How many attempts at each step of a list are read: a step may have had a million, each with a long message.
pub const LISTED_ATTEMPTS: usize = 20;

/// A run as `run_row` reads it. Payloads of more bytes than `:whole` are not read.
macro_rules! run_columns {
    () => {
        "r.id, r.pipeline, r.definition, r.status, r.trigger_key, r.revived_from,
         CASE WHEN octet_length(r.input) <= :whole THEN r.input END AS input,
         CASE WHEN octet_length(r.output) <= :whole THEN r.output END AS output,
         {big:octet_length(r.input)} AS input_bytes,
         {big:octet_length(r.output)} AS output_bytes,
         r.triggered_at, r.completed_at, r.halted_at, r.cancelled_at, r.cancelling_at,
         coalesce((SELECT e.claimed_at FROM ductwork_executions e
                    WHERE e.attempt = 1 AND e.step_id = (SELECT s.id
                                         FROM ductwork_branches b
                                         JOIN ductwork_steps s ON s.branch_id = b.id AND s.ordinal = 0
                                        WHERE b.run_id = r.id AND b.fan_out_id IS NULL LIMIT 1)),
                  CASE WHEN r.revived_from IS NOT NULL THEN r.triggered_at END) AS started_at"
    };
}

pub(super) use run_columns;

// A run whose deletion has begun does not exist for readers.
statements! {
    /// The run with `:n` newer ones.
    RUNS_AWAY = "
        SELECT id FROM ductwork_runs WHERE id >= :from AND id < :before
         ORDER BY id DESC LIMIT 1 OFFSET :n";
    RUN = concat!("SELECT ", run_columns!(), " FROM ductwork_runs r WHERE r.id = :run AND r.pruning_at IS NULL");
    RUN_BRIEF = "SELECT pipeline, status FROM ductwork_runs WHERE id = :run AND pruning_at IS NULL";
    RUN_STATE = "SELECT status, output FROM ductwork_runs WHERE id = :run AND pruning_at IS NULL";
    RUN_IS_THERE = "SELECT 1 AS found FROM ductwork_runs WHERE id = :run AND pruning_at IS NULL";
    RUNS_BETWEEN = "
        SELECT id FROM ductwork_runs
         WHERE id >= :first AND id <= :last AND pruning_at IS NULL ORDER BY id LIMIT :n";
    /// It reads nothing but the index of ids; the short form of an id begins at its 25th digit.
    RUNS_ENDING = "
        SELECT id FROM ductwork_runs
         WHERE id >= :from AND id < :before
           AND ({hex:id} LIKE '%' || :digits OR substr({hex:id}, 25) LIKE :digits || '%')
         ORDER BY id DESC LIMIT :n";
    STEPS = "
        SELECT s.id, s.branch_id, s.node, s.step, s.via, s.source_step_id, s.status,
               s.input, s.output, s.completed_at, s.answered_by
          FROM ductwork_branches br
          JOIN ductwork_steps s ON s.branch_id = br.id
         WHERE br.run_id = :run ORDER BY s.created_at, s.id LIMIT :n";
    /// The last `:n` attempts at each of these steps.
    EXECUTIONS = "
        SELECT e.id, e.step_id, e.attempt, e.retry_count, e.crash_count, e.process_id, e.claimed_at,
               e.completed_at, e.result, e.error_class, e.error_message, a.due_at,
               CASE WHEN :backtraces = 1 THEN e.error_backtrace END AS error_backtrace
          FROM {rows:b(id id)}
          JOIN ductwork_executions e ON {key:e.step_id;b.id} AND e.attempt >
               (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = b.id) - :n
          LEFT JOIN ductwork_availabilities a ON {key:a.execution_id;e.id}
         ORDER BY e.step_id, e.attempt";
    FIRST_CLAIMS = "
        SELECT e.step_id, e.claimed_at
          FROM {rows:b(id id)}
          JOIN ductwork_executions e ON {key:e.step_id;b.id} AND e.attempt = 1";
    PROGRESS = "
        SELECT s.node, s.step, s.via,
               min(CASE WHEN s.source_step_id IS NOT NULL AND s.completed_at < r.triggered_at
                        THEN NULL ELSE s.created_at END) AS first_at,
               max(CASE WHEN s.source_step_id IS NOT NULL AND s.completed_at < r.triggered_at
                        THEN NULL ELSE s.completed_at END) AS last_at,
               count(*) AS total,
               sum(CASE WHEN s.source_step_id IS NOT NULL AND s.completed_at < r.triggered_at
                        THEN 1 ELSE 0 END) AS copied,
               sum(CASE WHEN s.status IN ('advancing', 'completed') THEN 1 ELSE 0 END) AS completed,
               sum(CASE WHEN e.process_id IS NOT NULL THEN 1 ELSE 0 END) AS running,
               sum(CASE WHEN e.attempt > 1 THEN 1 ELSE 0 END) AS retrying,
               sum(CASE WHEN s.status IN ('in_progress', 'advancing')
                         AND s.via NOT IN ('on_halt', 'on_complete', 'on_wait') THEN 1 ELSE 0 END) AS moving,
               sum(CASE WHEN s.status = 'waiting' THEN 1 ELSE 0 END) AS waiting,
               sum(CASE WHEN s.status = 'failed' THEN 1 ELSE 0 END) AS failed,
               sum(CASE WHEN s.status = 'cancelled' THEN 1 ELSE 0 END) AS cancelled
          FROM ductwork_runs r
          JOIN ductwork_branches br ON br.run_id = r.id
          JOIN ductwork_steps s ON s.branch_id = br.id
          LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.completed_at IS NULL
         WHERE r.id = :run
         GROUP BY s.node, s.step, s.via
         ORDER BY min(s.created_at), s.node";
    RETRIED = "
        SELECT s.node, count(*) AS n
          FROM ductwork_branches br
          JOIN ductwork_steps s ON s.branch_id = br.id
          JOIN ductwork_executions e ON e.step_id = s.id AND e.attempt > 1
         WHERE br.run_id = :run
         GROUP BY s.node";
    /// Without questions that nobody has answered: they have no attempt, and their halts explain them.
    FAILED_STEPS = "
        SELECT s.id, s.branch_id, s.node, s.step, s.via, s.source_step_id, s.status,
               s.input, s.output, s.completed_at, s.answered_by
          FROM ductwork_branches br
          JOIN ductwork_steps s ON s.branch_id = br.id
         WHERE br.run_id = :run AND s.status = 'failed' AND s.via <> 'dampen' ORDER BY s.created_at, s.id LIMIT :n";
    DEFINITION_OF_RUN = "SELECT definition FROM ductwork_runs WHERE id = :run";
    /// Open attempts that follow others, with the result of the previous one.
    RETRIES = "
        SELECT s.node, s.branch_id, e.attempt, a.due_at, {now} AS now,
               p.result, p.error_class, p.error_message
          FROM ductwork_branches br
          JOIN ductwork_steps s ON s.branch_id = br.id AND s.status = 'in_progress'
          JOIN ductwork_executions e ON e.step_id = s.id AND e.completed_at IS NULL AND e.attempt > 1
          JOIN ductwork_executions p ON p.step_id = e.step_id AND p.attempt = e.attempt - 1
          LEFT JOIN ductwork_availabilities a ON a.execution_id = e.id
         WHERE br.run_id = :run
         ORDER BY p.completed_at DESC, e.id LIMIT :n";
    SPREAD = "
        SELECT f.node, f.via, f.width, f.branch_id, br.ordinal
          FROM ductwork_branches br
          JOIN ductwork_fan_outs f ON f.id = br.fan_out_id
         WHERE br.id = :branch";
    NOW = "SELECT {now} AS now";
}

/// A run without its steps.
#[derive(Clone, Debug)]
pub struct Run {
    /// The run.
    pub id: RunId,
    /// Its pipeline.
    pub pipeline: String,
    /// The digest of its definition.
    pub definition: String,
    /// Its state.
    pub status: RunStatus,
    /// Its input.
    pub input: Box<RawValue>,
    /// Its output, once it is complete.
    pub output: Option<Box<RawValue>>,
    /// The key that it was triggered with.
    pub trigger_key: Option<String>,
    /// The halted run that it continues.
    pub revived_from: Option<RunId>,
    /// The run that its revival made.
    pub revived_as: Option<RunId>,
    /// µs since 1970.
    pub triggered_at: i64,
    /// When its first step was claimed.
    pub started_at: Option<i64>,
    /// When its first step may be claimed, if that is still to come.
    pub due_at: Option<i64>,
    /// µs since 1970.
    pub completed_at: Option<i64>,
    /// µs since 1970.
    pub halted_at: Option<i64>,
    /// µs since 1970.
    pub cancelled_at: Option<i64>,
    /// When its cancellation was last continued, where it is being cancelled.
    pub cancelling_at: Option<i64>,
    /// The reasons why branches of it halted, each once.
    pub halt_reasons: Vec<String>,
    /// The sizes of its payloads that are too large for the list that contains it: the list has null
    /// in their place.
    pub left_out: LeftOut,
    /// Set where its input or its output is not JSON. A list has null in its place; such a run alone
    /// is an error.
    pub damaged: Option<Error>,
}

/// The sizes of payloads that were left out, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The size of the input.
    pub input: Option<u64>,
    /// The size of the output.
    pub output: Option<u64>,
}

impl LeftOut {
    /// Reads a row that has payloads, or nothing in their place, and their sizes.
    pub(super) fn of(row: &Row) -> Result<Self, Error> {
        let size = |column, bytes| {
            let text: Option<String> = row.get(column)?;
            let size: Option<i64> = row.get(bytes)?;
            Ok::<_, Error>(size.filter(|_| text.is_none()).map(i64::unsigned_abs))
        };
        Ok(Self {
            input: size("input", "input_bytes")?,
            output: size("output", "output_bytes")?,
        })
    }
}

/// Removes payloads that nobody may see: only their sizes are left.
pub(super) fn leave_out(
    input: &mut Box<RawValue>,
    output: &mut Option<Box<RawValue>>,
    left_out: &mut LeftOut,
) {
    let size = |payload: &RawValue| payload.get().len() as u64;
    left_out.input = left_out.input.or(Some(size(input)));
    left_out.output = left_out.output.or(output.as_deref().map(size));
    (*input, *output) = (null(), None);
}

impl Run {
    /// Leaves its payloads out, as in a list whose reader has no room for them.
    pub fn leave_out_payloads(&mut self) {
        leave_out(&mut self.input, &mut self.output, &mut self.left_out);
    }

    /// The run, or the error of its damaged payload.
    pub(super) fn sound(mut self) -> Result<Self, Error> {
        self.damaged.take().map_or(Ok(self), Err)
    }

    /// Its input, unless it was left out or is damaged.
    pub fn short_input(&self) -> Option<&str> {
        let is_there = self.left_out.input.is_none() && self.damaged.is_none();
        is_there.then(|| self.input.get())
    }

    /// When it ended, in any way.
    pub fn ended_at(&self) -> Option<i64> {
        self.completed_at.or(self.halted_at).or(self.cancelled_at)
    }
}

/// The part of a run that tells who may change it, and whether it can be changed: none of its payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunBrief {
    /// Its pipeline.
    pub pipeline: String,
    /// Its state.
    pub status: RunStatus,
}

/// The part of a run that a caller who waits for its end needs.
#[derive(Clone, Debug)]
pub struct RunState {
    /// Its state.
    pub status: RunStatus,
    /// Its output, once it is complete.
    pub output: Option<Box<RawValue>>,
}

/// A step with its attempts.
#[derive(Clone, Debug)]
pub struct StepRow {
    /// The step.
    pub id: StepId,
    /// Its branch.
    pub branch_id: BranchId,
    /// Its node.
    pub node: String,
    /// The step's name.
    pub step: String,
    /// How it was reached.
    pub via: String,
    /// The step of an earlier run that it is a copy of.
    pub source_step_id: Option<StepId>,
    /// Its state.
    pub status: StepStatus,
    /// Its input.
    pub input: Box<RawValue>,
    /// Its output.
    pub output: Option<Box<RawValue>>,
    /// µs since 1970.
    pub completed_at: Option<i64>,
    /// The person who answered its question.
    pub answered_by: Option<String>,
    /// Its attempts, in order; for the console, the last of them.
    pub executions: Vec<ExecutionRow>,
    /// When its first attempt was claimed, where that attempt is not among these.
    pub first_claimed_at: Option<i64>,
}

impl StepRow {
    /// When its first attempt was claimed.
    pub fn started_at(&self) -> Option<i64> {
        let claims = self.executions.iter();
        let claimed = claims.filter_map(|execution| execution.claimed_at).min();
        self.first_claimed_at.or(claimed)
    }

    /// The number of all its attempts, those that are left out included.
    pub fn attempts(&self) -> u64 {
        let all = self.all_attempts().map(u64::from);
        all.unwrap_or(self.executions.len() as u64)
    }

    /// The same, only where the earlier ones are left out.
    pub fn all_attempts(&self) -> Option<u32> {
        let first = self.executions.first()?;
        let last = self.executions.last().filter(|_| first.attempt > 1);
        last.map(|last| last.attempt)
    }
}

/// An attempt.
#[derive(Clone, Debug)]
pub struct ExecutionRow {
    /// The execution.
    pub id: ExecutionId,
    /// The number of the attempt: 1, 2, ….
    pub attempt: u32,
    /// Errors of earlier attempts.
    pub retry_count: u32,
    /// Crashes of earlier attempts.
    pub crash_count: u32,
    /// The process that holds, or held, it.
    pub process_id: Option<ProcessId>,
    /// The time from which it may be claimed, while it is in the queue.
    pub due_at: Option<i64>,
    /// µs since 1970.
    pub claimed_at: Option<i64>,
    /// µs since 1970.
    pub completed_at: Option<i64>,
    /// How it ended.
    pub result: Option<ExecutionResult>,
    /// The error class for machines.
    pub error_class: Option<String>,
    /// The error message for people.
    pub error_message: Option<String>,
    /// The end of the log.
    pub error_backtrace: Option<String>,
}

/// A whole run, up to the limit.
#[derive(Clone, Debug)]
pub struct RunDetail {
    /// The run.
    pub run: Run,
    /// Its steps, oldest first.
    pub steps: Vec<StepRow>,
    /// True where there are more steps than requested.
    pub truncated: bool,
    /// The digest of the definition of the run that it continues, where that is a different one.
    pub definition_was: Option<String>,
    /// The database's time when this was read.
    pub now: i64,
}

/// The progress of the steps of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeProgress {
    /// The node.
    pub node: String,
    /// The step there.
    pub step: String,
    /// How it was reached.
    pub via: String,
    /// Steps so far.
    pub total: u64,
    /// Steps with an output.
    pub completed: u64,
    /// Steps that a process holds at this moment.
    pub running: u64,
    /// Steps whose open attempt is not their first.
    pub retrying: u64,
    /// Steps that will continue by themselves, except for hooks.
    pub moving: u64,
    /// Steps that wait for a person.
    pub waiting: u64,
    /// Steps that have used up their budget.
    pub failed: u64,
    /// Steps of a cancelled run.
    pub cancelled: u64,
    /// Steps with an output that was kept from an earlier run.
    pub copied: u64,
    /// When the first of the other steps was reached, in µs since 1970.
    pub first_at: Option<i64>,
    /// When the last of them ended.
    pub last_at: Option<i64>,
}

/// An attempt that follows another.
#[derive(Clone, Debug)]
pub struct Retry {
    /// The node.
    pub node: String,
    /// The branch.
    pub branch_id: BranchId,
    /// The number of the attempt: 2, 3, ….
    pub attempt: u32,
    /// The time from which it may be claimed, while it is in the queue.
    pub due_at: Option<i64>,
    /// The database's time.
    pub now: i64,
    /// How the previous attempt ended.
    pub result: Option<ExecutionResult>,
    /// The error class for machines.
    pub error_class: Option<String>,
    /// The error message for people.
    pub error_message: Option<String>,
}

/// The place of a branch in a fan-out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The node whose output was spread.
    pub node: String,
    /// Divide or expand.
    pub via: String,
    /// The branch's place: 0, 1, ….
    pub ordinal: i64,
    /// How many branches there are.
    pub width: i64,
}

/// The run that some digits of an id stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// This run.
    One(RunId),
    /// No run.
    None,
    /// Several runs, of which these are some.
    Ambiguous(Vec<RunId>),
    /// These are not digits of an id: too few, too many, or not hexadecimal.
    Malformed,
}

/// A run without its steps.
pub async fn run_as_it_is(conn: &mut Conn, id: RunId) -> Result<Option<Run>, Error> {
    run_up_to(conn, id, WHOLE).await
}

/// The same, without its payloads.
pub async fn run_without_payloads(conn: &mut Conn, id: RunId) -> Result<Option<Run>, Error> {
    run_up_to(conn, id, NONE).await
}

/// The same, without payloads of more bytes than this.
pub async fn run_up_to(conn: &mut Conn, id: RunId, whole: i64) -> Result<Option<Run>, Error> {
    let args = [("run", id.0.into()), ("whole", whole.into())];
    let Some(row) = conn.fetch_optional(&RUN, &args).await? else {
        return Ok(None);
    };
    let mut runs = [run_row(&row)?];
    list::complete(conn, &mut runs).await?;
    let [run] = runs;
    Ok(Some(run))
}

/// True where the run exists.
pub async fn is_there(conn: &mut Conn, id: RunId) -> Result<bool, Error> {
    let args = [("run", id.0.into())];
    Ok(conn.fetch_optional(&RUN_IS_THERE, &args).await?.is_some())
}

/// The pipeline and the state of a run: no payload is read, so a large or damaged one is in nobody's way.
pub async fn brief(conn: &mut Conn, id: RunId) -> Result<Option<RunBrief>, Error> {
    let row = conn
        .fetch_optional(&RUN_BRIEF, &[("run", id.0.into())])
        .await?;
    row.map(|row| {
        Ok(RunBrief {
            pipeline: row.get("pipeline")?,
            status: row.word("status")?,
        })
    })
    .transpose()
}

/// The state of a run, for a caller who waits for its end: one row, by its key.
pub async fn run_state(conn: &mut Conn, id: RunId) -> Result<Option<RunState>, Error> {
    let row = conn
        .fetch_optional(&RUN_STATE, &[("run", id.0.into())])
        .await?;
    row.map(|row| {
        Ok(RunState {
            status: row.word("status")?,
            output: payload(&row, "output", "run", id.0)?,
        })
    })
    .transpose()
}

/// The progress of a run, by node, in the order in which the nodes were first reached.
pub async fn progress(conn: &mut Conn, id: RunId) -> Result<Vec<NodeProgress>, Error> {
    let rows = conn.fetch(&PROGRESS, &[("run", id.0.into())]).await?;
    rows.iter()
        .map(|row| {
            let count = |name| Ok::<_, Error>(row.get::<i64>(name)?.max(0) as u64);
            Ok(NodeProgress {
                node: row.get("node")?,
                step: row.get("step")?,
                via: row.get("via")?,
                total: count("total")?,
                completed: count("completed")?,
                running: count("running")?,
                retrying: count("retrying")?,
                moving: count("moving")?,
                waiting: count("waiting")?,
                failed: count("failed")?,
                cancelled: count("cancelled")?,
                copied: count("copied")?,
                first_at: row.get("first_at")?,
                last_at: row.get("last_at")?,
            })
        })
        .collect()
}

/// The attempts of a run that were not the first of their step, by node.
pub async fn retried(conn: &mut Conn, id: RunId) -> Result<HashMap<String, u64>, Error> {
    let rows = conn.fetch(&RETRIED, &[("run", id.0.into())]).await?;
    let of = |row: &Row| Ok((row.get("node")?, row.get::<i64>("n")?.unsigned_abs()));
    rows.iter().map(of).collect()
}

/// The run whose id, or its short form, begins or ends with these digits (dashes and case are ignored).
pub async fn find_run(conn: &mut Conn, given: &str) -> Result<Found, Error> {
    find_run_among(conn, given, NEWEST).await
}

/// The same, where this many of the newest runs are searched.
pub async fn find_run_among(conn: &mut Conn, given: &str, newest: usize) -> Result<Found, Error> {
    let Some(digits) = digits(given) else {
        return Ok(Found::Malformed);
    };
    let Some((first, last)) = range(&digits) else {
        return Ok(Found::Malformed);
    };
    let args = [
        ("first", first.into()),
        ("last", last.into()),
        ("n", CANDIDATES.into()),
    ];
    let id = |row: &Row| Ok::<_, Error>(RunId(row.get("id")?));
    let rows = conn.fetch(&RUNS_BETWEEN, &args).await?;
    let mut found = rows.iter().map(id).collect::<Result<Vec<_>, _>>()?;
    if first != last {
        for run in ending(conn, &digits, newest).await? {
            // The deletion of the run may have begun.
            if !found.contains(&run) && is_there(conn, run).await? {
                found.push(run);
            }
        }
    }
    Ok(match found.as_slice() {
        [] => Found::None,
        [one] => Found::One(*one),
        _ => Found::Ambiguous(found),
    })
}

/// Those of the newest runs whose ids end with these digits, or whose short form begins with them.
async fn ending(conn: &mut Conn, digits: &str, newest: usize) -> Result<Vec<RunId>, Error> {
    let args = [
        ("from", Uuid::nil().into()),
        ("before", Uuid::max().into()),
        ("n", newest.saturating_sub(1).into()),
    ];
    let oldest = conn.fetch_optional(&RUNS_AWAY, &args).await?;
    let oldest = oldest.map(|row| row.get::<Uuid>("id")).transpose()?;
    let args = [
        ("from", oldest.unwrap_or(Uuid::nil()).into()),
        ("before", Uuid::max().into()),
        ("digits", digits.into()),
        ("n", CANDIDATES.into()),
    ];
    let rows = conn.fetch(&RUNS_ENDING, &args).await?;
    rows.iter().map(|row| Ok(RunId(row.get("id")?))).collect()
}

/// The digits of an id or of a part of one, in lower case.
pub fn digits(given: &str) -> Option<String> {
    let digits: String = given.trim().chars().filter(|char| *char != '-').collect();
    let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (hex && (FEWEST_DIGITS..=32).contains(&digits.len())).then(|| digits.to_ascii_lowercase())
}

/// The first and the last id with this prefix.
fn range(digits: &str) -> Option<(Uuid, Uuid)> {
    let filled = |with: &str| {
        let rest = 32usize.saturating_sub(digits.len());
        Uuid::try_parse(&format!("{digits}{}", with.repeat(rest)))
    };
    Some((filled("0").ok()?, filled("f").ok()?))
}

/// A run with its first `limit` steps and the last `attempts` attempts at each of them, in one snapshot.
pub async fn show(
    conn: &mut Conn,
    id: RunId,
    limit: usize,
    attempts: usize,
) -> Result<Option<RunDetail>, Error> {
    conn.snapshot(async |conn| {
        let Some(run) = run_as_it_is(conn, id).await? else {
            return Ok(None);
        };
        let run = run.sound()?;
        // One more than requested, to know whether that was all.
        let args = [("run", id.0.into()), ("n", limit.saturating_add(1).into())];
        let mut steps = Vec::new();
        for row in conn.fetch(&STEPS, &args).await? {
            steps.push(sound_step(&row)?);
        }
        let truncated = steps.len() > limit;
        steps.truncate(limit);
        let mut listed: Vec<&mut StepRow> = steps.iter_mut().collect();
        executions(conn, &mut listed, true, attempts).await?;
        let definition_was = match run.revived_from {
            Some(from) => definition_of(conn, from).await?,
            None => None,
        };
        let definition_was = definition_was.filter(|was| *was != run.definition);
        let now = now(conn).await?;
        Ok(Some(RunDetail {
            definition_was,
            run,
            steps,
            truncated,
            now,
        }))
    })
    .await
}

/// The digest of a run's definition.
pub async fn definition_of(conn: &mut Conn, run: RunId) -> Result<Option<String>, Error> {
    let args = [("run", run.0.into())];
    let row = conn.fetch_optional(&DEFINITION_OF_RUN, &args).await?;
    row.map(|row| row.get("definition")).transpose()
}

/// Steps of a run that have used up their budget, with their last attempts, oldest first.
pub async fn failed_steps(conn: &mut Conn, id: RunId, limit: usize) -> Result<Vec<StepRow>, Error> {
    let args = [("run", id.0.into()), ("n", limit.into())];
    let mut steps = Vec::new();
    for row in conn.fetch(&FAILED_STEPS, &args).await? {
        steps.push(sound_step(&row)?);
    }
    let mut listed: Vec<&mut StepRow> = steps.iter_mut().collect();
    executions(conn, &mut listed, true, LISTED_ATTEMPTS).await?;
    Ok(steps)
}

/// The attempts of a run that follow others, those whose predecessor ended last first.
pub async fn retries(conn: &mut Conn, id: RunId, limit: usize) -> Result<Vec<Retry>, Error> {
    let args = [("run", id.0.into()), ("n", limit.into())];
    let rows = conn.fetch(&RETRIES, &args).await?;
    rows.iter()
        .map(|row| {
            Ok(Retry {
                node: row.get("node")?,
                branch_id: BranchId(row.get("branch_id")?),
                attempt: row.count("attempt")?,
                due_at: row.get("due_at")?,
                now: row.get("now")?,
                result: row.optional_word("result")?,
                error_class: row.get("error_class")?,
                error_message: row.get("error_message")?,
            })
        })
        .collect()
}

/// The fan-outs that contain a branch, innermost first.
pub async fn spreads(conn: &mut Conn, branch: BranchId) -> Result<Vec<Spread>, Error> {
    let (mut spreads, mut branch) = (Vec::new(), branch);
    // As deep as definitions nest; a broken row must not cause an endless loop.
    while spreads.len() < 128 {
        let args = [("branch", branch.0.into())];
        let Some(row) = conn.fetch_optional(&SPREAD, &args).await? else {
            break;
        };
        spreads.push(Spread {
            node: row.get("node")?,
            via: row.get("via")?,
            ordinal: row.get("ordinal")?,
            width: row.get("width")?,
        });
        branch = BranchId(row.get("branch_id")?);
    }
    Ok(spreads)
}

/// The database's time, in µs since 1970, from which ages are computed.
pub async fn now(conn: &mut Conn) -> Result<i64, Error> {
    match conn.fetch_optional(&NOW, &[]).await? {
        Some(row) => row.get("now"),
        None => Err(Error::Corrupt("the database has no clock".to_owned())),
    }
}

/// Reads the last `n` attempts at each of these steps, with or without the ends of their logs.
pub(super) async fn executions(
    conn: &mut Conn,
    steps: &mut [&mut StepRow],
    backtraces: bool,
    n: usize,
) -> Result<(), Error> {
    let mut place: std::collections::HashMap<StepId, usize> = std::collections::HashMap::new();
    for (index, step) in steps.iter().enumerate() {
        place.insert(step.id, index);
    }
    let ids: Vec<StepId> = steps.iter().map(|step| step.id).collect();
    for chunk in ids.chunks(CHUNK) {
        let rows = Rows::new().ids("id", chunk.iter().copied());
        let args = [
            ("b", (&rows).into()),
            ("backtraces", i64::from(backtraces).into()),
            ("n", n.into()),
        ];
        for row in conn.fetch(&EXECUTIONS, &args).await? {
            let execution = ExecutionRow {
                id: ExecutionId(row.get("id")?),
                attempt: row.count("attempt")?,
                retry_count: row.count("retry_count")?,
                crash_count: row.count("crash_count")?,
                process_id: row.get::<Option<Uuid>>("process_id")?.map(ProcessId),
                due_at: row.get("due_at")?,
                claimed_at: row.get("claimed_at")?,
                completed_at: row.get("completed_at")?,
                result: row.optional_word("result")?,
                error_class: row.get("error_class")?,
                error_message: row.get("error_message")?,
                error_backtrace: row.get("error_backtrace")?,
            };
            if let Some(index) = place.get(&StepId(row.get("step_id")?)) {
                steps[*index].executions.push(execution);
            }
        }
    }
    // A step that has had more began before these.
    let cut = steps.iter().filter(|step| step.all_attempts().is_some());
    let cut: Vec<StepId> = cut.map(|step| step.id).collect();
    for chunk in cut.chunks(CHUNK) {
        let rows = Rows::new().ids("id", chunk.iter().copied());
        for row in conn.fetch(&FIRST_CLAIMS, &[("b", (&rows).into())]).await? {
            if let Some(index) = place.get(&StepId(row.get("step_id")?)) {
                steps[*index].first_claimed_at = row.get("claimed_at")?;
            }
        }
    }
    Ok(())
}

/// Reads a run from its row, without the reasons why branches of it halted.
pub(super) fn run_row(row: &Row) -> Result<Run, Error> {
    let id: Uuid = row.get("id")?;
    let mut damaged = None;
    let mut payload = |column| sound(payload(row, column, "run", id), &mut damaged);
    let (input, output) = (payload("input")?, payload("output")?);
    Ok(Run {
        left_out: LeftOut::of(row)?,
        damaged,
        id: RunId(id),
        pipeline: row.get("pipeline")?,
        definition: row.get("definition")?,
        status: row.word("status")?,
        input: input.unwrap_or_else(null),
        output,
        trigger_key: row.get("trigger_key")?,
        revived_from: row.get::<Option<Uuid>>("revived_from")?.map(RunId),
        revived_as: None,
        triggered_at: row.get("triggered_at")?,
        started_at: row.get("started_at")?,
        due_at: None,
        completed_at: row.get("completed_at")?,
        halted_at: row.get("halted_at")?,
        cancelled_at: row.get("cancelled_at")?,
        cancelling_at: row.get("cancelling_at")?,
        halt_reasons: Vec::new(),
    })
}

fn sound_step(row: &Row) -> Result<StepRow, Error> {
    let mut damaged = None;
    let step = step_row(row, &mut damaged)?;
    damaged.map_or(Ok(step), Err)
}

/// Reads a step from its row, without its attempts. A payload that is no JSON becomes null, and is
/// reported.
pub(super) fn step_row(row: &Row, damaged: &mut Option<Error>) -> Result<StepRow, Error> {
    let id: Uuid = row.get("id")?;
    let mut payload = |column| sound(payload(row, column, "step", id), damaged);
    Ok(StepRow {
        id: StepId(id),
        branch_id: BranchId(row.get("branch_id")?),
        node: row.get("node")?,
        step: row.get("step")?,
        via: row.get("via")?,
        source_step_id: row.get::<Option<Uuid>>("source_step_id")?.map(StepId),
        status: row.word("status")?,
        input: payload("input")?.unwrap_or_else(null),
        output: payload("output")?,
        completed_at: row.get("completed_at")?,
        answered_by: row.get("answered_by")?,
        executions: Vec::new(),
        first_claimed_at: None,
    })
}

fn null() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}

/// A payload, or none and the reason: a damaged one must not hide the others of a list.
fn sound(
    read: Result<Option<Box<RawValue>>, Error>,
    damaged: &mut Option<Error>,
) -> Result<Option<Box<RawValue>>, Error> {
    match read {
        Err(error @ Error::Damaged { .. }) => {
            *damaged = Some(error);
            Ok(None)
        }
        read => read,
    }
}

/// A payload of the row with this key, if it has one.
fn payload(
    row: &Row,
    column: &'static str,
    entity: &'static str,
    id: Uuid,
) -> Result<Option<Box<RawValue>>, Error> {
    let text: Option<String> = row.get(column)?;
    let damaged = |problem: serde_json::Error| Error::Damaged {
        column,
        entity,
        id,
        problem: problem.to_string(),
    };
    text.map(RawValue::from_string).transpose().map_err(damaged)
}
