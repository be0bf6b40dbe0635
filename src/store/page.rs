//! Runs and steps in the form in which pages show them.
//!
//! Owns: reading them with as much of each payload as a page has room for, at a cost that does not grow with
//! the omitted part. Never: writes, or judges a payload: a damaged one is shown as it is.

use uuid::Uuid;

use crate::model::*;

use super::conn::{Conn, Row};
use super::departed;
use super::error::Error;
use super::list;
pub use super::resume::Due;
use super::statement::{Rows, statements};

/// A payload up to this length is read whole; of a longer one, the first 1,000 letters are read.
pub const WHOLE: usize = 64 << 10;

macro_rules! step_columns {
    () => {
        "s.id, s.branch_id, s.node, s.step, s.via, s.source_step_id, s.status, s.created_at,
               s.completed_at, s.answered_by, br.fan_out_id, br.ordinal AS place,
               e.attempt, e.process_id, e.claimed_at, e.result, e.error_class,
               substr(e.error_message, 1, 400) AS error_message, a.due_at"
    };
}

macro_rules! latest_attempt {
    () => {
        "
          LEFT JOIN ductwork_executions e ON {key:e.step_id;s.id} AND e.attempt =
               (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)
          LEFT JOIN ductwork_availabilities a ON {key:a.execution_id;e.id}"
    };
}

/// A reader wants to see failed steps first, then those that wait for a person, those that run, those that
/// are queued, and the rest in its order.
macro_rules! urgent_first {
    () => {
        "CASE WHEN s.status = 'failed' THEN 0 WHEN s.status = 'waiting' THEN 1 WHEN s.status <> 'in_progress' THEN 4
                       WHEN e.process_id IS NOT NULL THEN 2 ELSE 3 END"
    };
}

/// The questions after a step, with this part of the value in question.
macro_rules! asked {
    ($input:literal) => {
        concat!(
            "
        SELECT s.run_id, r.pipeline, r.definition, s.id, s.node, s.created_at, {now} AS now,
               {big:octet_length(s.input)} AS input_size, ",
            $input,
            " AS input,
               d.answer_by, d.unanswered, br.ordinal AS place, f.width, f.via
          FROM ductwork_steps s {by:ductwork_steps_asked}
          JOIN ductwork_runs r ON {key:r.id;s.run_id}
          JOIN ductwork_branches br ON {key:br.id;s.branch_id}
          LEFT JOIN ductwork_fan_outs f ON {key:f.id;br.fan_out_id}
          LEFT JOIN ductwork_deadlines d ON {key:d.branch_id;s.branch_id}
         WHERE {any:s.run_id;b(id id)} AND s.via = 'dampen' AND s.status = 'waiting'
           AND (s.run_id > :run OR s.run_id = :run AND s.id > :step)
         ORDER BY s.run_id, s.id LIMIT :n"
        )
    };
}

// A run whose deletion has begun does not exist for readers.
statements! {
    PAGE_PAYLOADS_OF_RUN = "
        SELECT {big:octet_length(r.input)} AS input_size,
               CASE WHEN octet_length(r.input) <= :whole THEN r.input ELSE substr(r.input, 1, 1000) END AS input,
               {big:octet_length(r.output)} AS output_size,
               CASE WHEN octet_length(r.output) <= :whole THEN r.output ELSE substr(r.output, 1, 1000) END AS output
          FROM ductwork_runs r WHERE r.id = :run AND r.pruning_at IS NULL";
    PAGE_RUN = "
        SELECT r.id, r.pipeline, r.definition, r.status, r.trigger_key, r.revived_from, r.trace_parent, r.trace_state, r.triggered_at,
               r.completed_at, r.halted_at, r.cancelled_at, {now} AS now
          FROM ductwork_runs r WHERE r.id = :run AND r.pruning_at IS NULL";
    PAGE_STEPS = concat!("
        SELECT ", step_columns!(), "
          FROM ductwork_branches br
          JOIN ductwork_steps s ON s.branch_id = br.id", latest_attempt!(), "
         WHERE br.run_id = :run AND :node IN (s.node, '') AND :status IN (s.status, '')
         ORDER BY ", urgent_first!(), ", s.created_at, s.id LIMIT :n");
    /// Uses the index of a run's halted branches.
    PAGE_STEPS_OF_HALTED = concat!("
        SELECT ", step_columns!(), ", br.halt_reason
          FROM (SELECT x.id FROM ductwork_branches x {found:ductwork_branches_reasons}
                 WHERE x.run_id = :run AND x.halt_reason IS NOT NULL
                 ORDER BY x.id LIMIT :n) halted
          JOIN ductwork_branches br ON {key:br.id;halted.id}
          JOIN ductwork_steps s ON {key:s.id;br.step_id}", latest_attempt!(), "
         ORDER BY br.id");
    PAGE_STEPS_OF_ROOT = concat!("
        SELECT ", step_columns!(), "
          FROM ductwork_branches br
          JOIN ductwork_steps s ON {key:s.branch_id;br.id}", latest_attempt!(), "
         WHERE br.run_id = :run AND br.fan_out_id IS NULL
         ORDER BY s.ordinal LIMIT :n");
    PAGE_STEP = concat!("
        SELECT ", step_columns!(), ", {big:octet_length(s.input)} AS input_size,
               CASE WHEN octet_length(s.input) <= :whole THEN s.input ELSE substr(s.input, 1, 1000) END AS input,
               {big:octet_length(s.output)} AS output_size,
               CASE WHEN octet_length(s.output) <= :whole THEN s.output ELSE substr(s.output, 1, 1000) END AS output
          FROM ductwork_steps s
          JOIN ductwork_branches br ON {key:br.id;s.branch_id}", latest_attempt!(), "
         WHERE s.id = :step AND s.run_id = :run");
    PAGE_ATTEMPTS = "
        SELECT e.id, e.attempt, e.process_id, e.claimed_at, e.completed_at, e.result, e.error_class,
               substr(e.error_message, 1, 2000) AS error_message, a.due_at,
               {big:CASE WHEN coalesce(e.log, e.error_backtrace) IS NULL THEN 0 ELSE 1 END} AS has_log
          FROM ductwork_executions e
          LEFT JOIN ductwork_availabilities a ON {key:a.execution_id;e.id}
         WHERE e.step_id = :step ORDER BY e.attempt DESC LIMIT :n";
    PAGE_LOG = "
        SELECT substr(e.error_message, 1, 65536) AS error_message, e.log, e.error_backtrace
          FROM ductwork_executions e WHERE e.step_id = :step AND e.attempt = :attempt";
    PAGE_PAYLOAD_OF_RUN = "
        SELECT CASE WHEN :part = 'input' THEN r.input ELSE r.output END AS payload
          FROM ductwork_runs r WHERE r.id = :run AND r.pruning_at IS NULL";
    PAGE_PAYLOAD_OF_STEP = "
        SELECT CASE WHEN :part = 'input' THEN s.input ELSE s.output END AS payload
          FROM ductwork_steps s WHERE s.id = :step AND s.run_id = :run";
    PAGE_DAMPENED = "
        SELECT r.id FROM ductwork_runs r {by:ductwork_runs_others}
         WHERE r.status <> 'completed' AND {key:r.status;'dampened'} AND r.pipeline = :pipeline
           AND r.id >= :from AND r.pruning_at IS NULL
         ORDER BY r.status, r.id LIMIT :n";
    PAGE_ASKED = asked!("CASE WHEN octet_length(s.input) <= :whole THEN s.input END");
    PAGE_WAITING = asked!("substr(s.input, 1, 1000)");
    PAGE_QUESTIONS = "
        SELECT count(*) AS n, min(x.created_at) AS oldest
          FROM (SELECT s.created_at
                  FROM ductwork_steps s {by:ductwork_steps_asked}
                 WHERE {any:s.run_id;b(id id)} AND s.via = 'dampen' AND s.status = 'waiting'
                 ORDER BY s.created_at, s.id LIMIT :n) x";
    PAGE_PROCESSES = "
        SELECT p.id, p.host, p.pid, {big:0} AS gone, NULL AS death, NULL AS went_on_as
          FROM {rows:b(id id)} JOIN ductwork_processes p ON {key:p.id;b.id}
        UNION ALL
        SELECT d.id, d.host, d.pid, {big:1}, d.death, d.went_on_as
          FROM {rows:b(id id)} JOIN ductwork_departed d ON {key:d.id;b.id}";
    /// Each process has its own limit: however much one of them holds, the others are shown. All claims are read, and
    /// those are as few as the work in flight.
    PAGE_HELD = "
        SELECT h.process_id, s.run_id, s.id, s.node, h.attempt, h.claimed_at, h.held
          FROM (SELECT e.process_id, e.step_id, e.attempt, e.claimed_at,
                       row_number() OVER (PARTITION BY e.process_id ORDER BY e.claimed_at, e.id) AS place,
                       count(*) OVER (PARTITION BY e.process_id) AS held
                  FROM ductwork_processes p
                 {cross} ductwork_executions e {found:ductwork_executions_claimed}
                 WHERE {key:e.process_id;p.id} AND e.completed_at IS NULL AND e.process_id IS NOT NULL{narrow: AND e.holder = p.id}) h
         {cross} ductwork_steps s
         WHERE h.place <= :n AND {key:s.id;h.step_id}
         ORDER BY h.process_id, h.place";
    PAGE_PIPELINES = "
        SELECT pipeline, count(*) AS versions, min(created_at) AS first, max(created_at) AS last
          FROM ductwork_definitions GROUP BY pipeline ORDER BY pipeline LIMIT :n";
    PAGE_VERSIONS = "
        SELECT digest, created_at FROM ductwork_definitions
         WHERE pipeline = :pipeline ORDER BY created_at DESC, digest DESC LIMIT :n";
}

/// The part of a payload that a page shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// Its text: all of it, or its first letters.
    pub text: String,
    /// Its length in bytes.
    pub size: u64,
}

impl Payload {
    /// True where this is the whole payload.
    pub fn is_whole(&self) -> bool {
        self.text.len() as u64 == self.size
    }

    fn of(row: &Row, text: &str, size: &str) -> Result<Option<Self>, Error> {
        let text: Option<String> = row.get(text)?;
        let size: Option<i64> = row.get(size)?;
        let payload = text.zip(size);
        Ok(payload.map(|(text, size)| Self {
            text,
            size: size.unsigned_abs(),
        }))
    }
}

/// A payload of a run or a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The value that it received.
    Input,
    /// The value that it returned.
    Output,
}

impl Part {
    /// Its name in addresses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }
}

/// A run without its payloads.
#[derive(Clone, Debug)]
pub struct RunHead {
    /// The run.
    pub id: RunId,
    /// Its pipeline.
    pub pipeline: String,
    /// The digest of its definition.
    pub definition: String,
    /// Its state.
    pub status: RunStatus,
    /// The key that it was triggered with.
    pub trigger_key: Option<String>,
    /// The halted run that it continues.
    pub revived_from: Option<RunId>,
    /// The caller that triggered it, without its baggage.
    pub caller: Caller,
    /// µs since 1970.
    pub triggered_at: i64,
    /// When it ended, in any way.
    pub ended_at: Option<i64>,
    /// The database's time when this was read.
    pub now: i64,
}

/// A step with its latest attempt.
#[derive(Clone, Debug)]
pub struct StepHead {
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
    /// µs since 1970.
    pub created_at: i64,
    /// µs since 1970.
    pub completed_at: Option<i64>,
    /// The person who answered its question.
    pub answered_by: Option<String>,
    /// The fan-out that its branch belongs to, and its place there.
    pub place: Option<(FanOutId, u64)>,
    /// The latest attempt.
    pub latest: Option<Attempt>,
}

/// An attempt at a step.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The number of the attempt: 1, 2, ….
    pub number: u32,
    /// The process that holds, or held, it.
    pub process_id: Option<ProcessId>,
    /// The time from which it may be claimed, while it is in the queue.
    pub due_at: Option<i64>,
    /// µs since 1970.
    pub claimed_at: Option<i64>,
    /// µs since 1970; for a step's latest attempt, this is the step's own time of ending.
    pub completed_at: Option<i64>,
    /// How it ended.
    pub result: Option<ExecutionResult>,
    /// The error class for machines.
    pub error_class: Option<String>,
    /// The beginning of the error message for people.
    pub error_message: Option<String>,
    /// True where its log was kept.
    pub has_log: bool,
}

/// The output and the error of an attempt.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// The error's message.
    pub error_message: Option<String>,
    /// The end of its log.
    pub log: Option<String>,
    /// The origin of the error.
    pub backtrace: Option<String>,
}

/// A step with its payloads.
#[derive(Clone, Debug)]
pub struct StepWhole {
    /// The step.
    pub head: StepHead,
    /// Its input.
    pub input: Payload,
    /// Its output.
    pub output: Option<Payload>,
}

/// A branch that waits for a person.
#[derive(Clone, Debug)]
pub struct WaitingStep {
    /// Its run.
    pub run_id: RunId,
    /// That run's pipeline.
    pub pipeline: String,
    /// The digest of its definition.
    pub definition: String,
    /// The step.
    pub step_id: StepId,
    /// Its node.
    pub node: String,
    /// The number of its element, from 1, and of all elements, in the expand that its branch comes from.
    pub element: Option<(u32, u32)>,
    /// The value with which it continues, unless the person gives another, or the beginning of that value.
    pub value: Payload,
    /// The time since which it waits, in µs since 1970.
    pub since: i64,
    /// The deadline of the answer.
    pub deadline: Option<Due>,
}

/// A process that holds, or held, work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its key.
    pub id: ProcessId,
    /// The host that it runs, or ran, on.
    pub host: String,
    /// Its pid on that host.
    pub pid: i64,
    /// True where the process is gone.
    pub is_gone: bool,
    /// The sign by which it was known to be dead, in words; `None` where it lives, or ended in order.
    pub death: Option<String>,
}

/// An execution that a process holds.
#[derive(Clone, Debug)]
pub struct Held {
    /// The process.
    pub process_id: ProcessId,
    /// The run.
    pub run_id: RunId,
    /// The step.
    pub step_id: StepId,
    /// Its node.
    pub node: String,
    /// The number of the attempt: 1, 2, ….
    pub attempt: i64,
    /// µs since 1970.
    pub claimed_at: Option<i64>,
    /// The number of executions that the process holds.
    pub of: u64,
}

/// The versions of a pipeline, together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The pipeline.
    pub pipeline: String,
    /// Their number.
    pub n: u64,
    /// When the first run of the oldest was triggered, in µs since 1970.
    pub first_at: i64,
    /// The same of the newest.
    pub last_at: i64,
}

/// A version of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its digest.
    pub digest: String,
    /// When its first run was triggered, in µs since 1970.
    pub created_at: i64,
}

/// The run with this id, if it exists.
pub async fn run(conn: &mut Conn, id: RunId) -> Result<Option<RunHead>, Error> {
    let row = conn
        .fetch_optional(&PAGE_RUN, &[("run", id.0.into())])
        .await?;
    row.map(|row| {
        let time = |column| row.get::<Option<i64>>(column);
        let ended = time("completed_at")?.or(time("halted_at")?);
        RunHead::read(&row, ended.or(time("cancelled_at")?))
    })
    .transpose()
}

impl RunHead {
    /// Reads a row with these columns.
    pub(super) fn read(row: &Row, ended_at: Option<i64>) -> Result<Self, Error> {
        let text = |column| row.get::<Option<String>>(column);
        let (span, state) = (text("trace_parent")?, text("trace_state")?);
        Ok(Self {
            id: RunId(row.get("id")?),
            pipeline: row.get("pipeline")?,
            definition: row.get("definition")?,
            status: row.word("status")?,
            trigger_key: row.get("trigger_key")?,
            revived_from: row.get::<Option<Uuid>>("revived_from")?.map(RunId),
            caller: Caller::read(span.as_deref(), state.as_deref(), None),
            triggered_at: row.get("triggered_at")?,
            ended_at,
            now: row.get("now")?,
        })
    }
}

/// The input and the output of a run.
pub async fn payloads(
    conn: &mut Conn,
    id: RunId,
) -> Result<(Option<Payload>, Option<Payload>), Error> {
    let args = [("run", id.0.into()), whole()];
    let Some(row) = conn.fetch_optional(&PAGE_PAYLOADS_OF_RUN, &args).await? else {
        return Ok((None, None));
    };
    Ok((
        Payload::of(&row, "input", "input_size")?,
        Payload::of(&row, "output", "output_size")?,
    ))
}

fn whole() -> (&'static str, super::statement::Arg<'static>) {
    ("whole", (WHOLE as i64).into())
}

/// Steps of a run, optionally of one node and in one state: failed steps first, then those that wait for a
/// person, run, or are queued, and each kind oldest first.
pub async fn steps(
    conn: &mut Conn,
    run: RunId,
    node: Option<&str>,
    status: Option<StepStatus>,
    n: usize,
) -> Result<Vec<StepHead>, Error> {
    let args = [
        ("run", run.0.into()),
        ("node", node.unwrap_or_default().into()),
        ("status", status.map_or("", StepStatus::as_str).into()),
        ("n", n.into()),
    ];
    let rows = conn.fetch(&PAGE_STEPS, &args).await?;
    rows.iter().map(step_head).collect()
}

/// The steps of a run's root branch, in their order.
pub async fn steps_of_root(conn: &mut Conn, run: RunId, n: usize) -> Result<Vec<StepHead>, Error> {
    let args = [("run", run.0.into()), ("n", n.into())];
    let rows = conn.fetch(&PAGE_STEPS_OF_ROOT, &args).await?;
    rows.iter().map(step_head).collect()
}

/// The steps at which the first `n` branches of a run have halted by themselves, with the reason of each, at a
/// cost that does not grow with the width of the run.
pub async fn steps_of_halted(
    conn: &mut Conn,
    run: RunId,
    n: usize,
) -> Result<Vec<(StepHead, String)>, Error> {
    let args = [("run", run.0.into()), ("n", n.into())];
    let rows = conn.fetch(&PAGE_STEPS_OF_HALTED, &args).await?;
    let halted = |row| Ok((step_head(row)?, row.get("halt_reason")?));
    rows.iter().map(halted).collect()
}

/// A step of a run; none where the run has no step with this id.
pub async fn step(conn: &mut Conn, run: RunId, step: StepId) -> Result<Option<StepWhole>, Error> {
    let args = [("run", run.0.into()), ("step", step.0.into()), whole()];
    let row = conn.fetch_optional(&PAGE_STEP, &args).await?;
    row.map(|row| {
        Ok(StepWhole {
            head: step_head(&row)?,
            input: Payload::of(&row, "input", "input_size")?.unwrap_or_default(),
            output: Payload::of(&row, "output", "output_size")?,
        })
    })
    .transpose()
}

/// The attempts at a step, the latest first.
pub async fn attempts(conn: &mut Conn, step: StepId, n: usize) -> Result<Vec<Attempt>, Error> {
    let args = [("step", step.0.into()), ("n", n.into())];
    let rows = conn.fetch(&PAGE_ATTEMPTS, &args).await?;
    rows.iter()
        .map(|row| {
            Ok(Attempt {
                completed_at: row.get("completed_at")?,
                has_log: row.get::<i64>("has_log")? != 0,
                ..attempt(row, row.count("attempt")?)?
            })
        })
        .collect()
}

/// The output and the error of an attempt.
pub async fn log(conn: &mut Conn, step: StepId, attempt: u32) -> Result<Option<Log>, Error> {
    let args = [
        ("step", step.0.into()),
        ("attempt", i64::from(attempt).into()),
    ];
    let row = conn.fetch_optional(&PAGE_LOG, &args).await?;
    row.map(|row| {
        Ok(Log {
            error_message: row.get("error_message")?,
            log: row.get("log")?,
            backtrace: row.get("error_backtrace")?,
        })
    })
    .transpose()
}

/// A whole payload of a run: `None` where the run does not exist, or has no such payload.
pub async fn payload_of_run(
    conn: &mut Conn,
    run: RunId,
    part: Part,
) -> Result<Option<String>, Error> {
    let args = [("run", run.0.into()), ("part", part.as_str().into())];
    let row = conn.fetch_optional(&PAGE_PAYLOAD_OF_RUN, &args).await?;
    Ok(row.map(|row| row.get("payload")).transpose()?.flatten())
}

/// A whole payload of a step: `None` where the run has no such step, or the step no such payload.
pub async fn payload_of_step(
    conn: &mut Conn,
    run: RunId,
    step: StepId,
    part: Part,
) -> Result<Option<String>, Error> {
    let args = [
        ("run", run.0.into()),
        ("step", step.0.into()),
        ("part", part.as_str().into()),
    ];
    let row = conn.fetch_optional(&PAGE_PAYLOAD_OF_STEP, &args).await?;
    Ok(row.map(|row| row.get("payload")).transpose()?.flatten())
}

/// Runs that wait for a person, with their pipelines: the `n` oldest of each pipeline. `only` limits the
/// pipelines.
pub(super) async fn dampened(
    conn: &mut Conn,
    only: Option<&[String]>,
    n: usize,
) -> Result<Vec<(RunId, String)>, Error> {
    dampened_from(conn, only, RunId(Uuid::nil()), n).await
}

/// The same, of this run and those that are younger.
async fn dampened_from(
    conn: &mut Conn,
    only: Option<&[String]>,
    from: RunId,
    n: usize,
) -> Result<Vec<(RunId, String)>, Error> {
    let mut runs = Vec::new();
    for pipeline in list::pipelines_of(conn, RunStatus::Dampened).await? {
        if only.is_some_and(|only| !only.contains(&pipeline)) {
            continue;
        }
        let args = [
            ("pipeline", (&pipeline).into()),
            ("from", from.0.into()),
            ("n", n.into()),
        ];
        for row in conn.fetch(&PAGE_DAMPENED, &args).await? {
            runs.push((RunId(row.get("id")?), pipeline.clone()));
        }
    }
    Ok(runs)
}

/// Steps that wait for a person, run by run, the oldest run first: those that follow this step of this run. Values of
/// more bytes than `whole` are left out; without it, each value is there with its first letters.
pub async fn waiting_after(
    conn: &mut Conn,
    only: Option<&[String]>,
    (run, step): (RunId, StepId),
    n: usize,
    whole: Option<i64>,
) -> Result<Vec<WaitingStep>, Error> {
    // At one moment: where a question is answered between the two, fewer steps than `n` are found, as if none followed.
    conn.snapshot(async |conn| {
        // Each run has one at least, except for the first, whose last one may be the given step.
        let runs = asking(conn, only, run, n + 1).await?;
        if runs.is_empty() {
            return Ok(Vec::new());
        }
        let rows = Rows::new().ids("id", runs);
        let mut args = vec![
            ("b", (&rows).into()),
            ("run", run.0.into()),
            ("step", step.0.into()),
            ("n", n.into()),
        ];
        args.extend(whole.map(|whole| ("whole", whole.into())));
        let statement = match whole {
            Some(_) => &PAGE_ASKED,
            None => &PAGE_WAITING,
        };
        let rows = conn.fetch(statement, &args).await?;
        rows.iter().map(waiting_step).collect()
    })
    .await
}

fn waiting_step(row: &Row) -> Result<WaitingStep, Error> {
    let text: Option<String> = row.get("input")?;
    let via: Option<String> = row.get("via")?;
    Ok(WaitingStep {
        // A path of a divide has a node of its own, whose name says enough.
        element: match via.as_deref() {
            Some("expand") => Some((row.count("place")? + 1, row.count("width")?)),
            _ => None,
        },
        run_id: RunId(row.get("run_id")?),
        pipeline: row.get("pipeline")?,
        definition: row.get("definition")?,
        step_id: StepId(row.get("id")?),
        node: row.get("node")?,
        value: Payload {
            text: text.unwrap_or_default(),
            size: row.get::<i64>("input_size")?.unsigned_abs(),
        },
        since: row.get("created_at")?,
        deadline: Due::read(row, row.get("now")?)?,
    })
}

/// The `n` oldest runs that wait for a person, from this one on: of these pipelines, or of all.
async fn asking(
    conn: &mut Conn,
    only: Option<&[String]>,
    from: RunId,
    n: usize,
) -> Result<Vec<RunId>, Error> {
    let dampened = dampened_from(conn, only, from, n).await?.into_iter();
    let mut runs: Vec<RunId> = dampened.map(|(run, _)| run).collect();
    runs.sort();
    runs.truncate(n);
    Ok(runs)
}

/// How many steps wait for a person, counted up to `n`, and since when the first of them does: as [`waiting_after`]
/// lists them.
pub async fn questions(
    conn: &mut Conn,
    only: Option<&[String]>,
    n: usize,
) -> Result<(u64, Option<i64>), Error> {
    let runs = asking(conn, only, RunId(Uuid::nil()), n).await?;
    if runs.is_empty() {
        return Ok((0, None));
    }
    let rows = Rows::new().ids("id", runs);
    let args = [("b", (&rows).into()), ("n", n.into())];
    let Some(row) = conn.fetch_optional(&PAGE_QUESTIONS, &args).await? else {
        return Ok((0, None));
    };
    Ok((row.get::<i64>("n")?.unsigned_abs(), row.get("oldest")?))
}

/// The processes with these ids, living or departed, as far as they are known.
pub async fn holders(
    conn: &mut Conn,
    ids: impl IntoIterator<Item = ProcessId>,
) -> Result<Vec<Holder>, Error> {
    let mut ids: Vec<ProcessId> = ids.into_iter().collect();
    ids.sort();
    ids.dedup();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows = Rows::new().ids("id", ids);
    let rows = conn
        .fetch(&PAGE_PROCESSES, &[("b", (&rows).into())])
        .await?;
    rows.iter()
        .map(|row| {
            let death: Option<String> = row.get("death")?;
            let went_on_as = row.get::<Option<Uuid>>("went_on_as")?.map(ProcessId);
            Ok(Holder {
                id: ProcessId(row.get("id")?),
                host: row.get("host")?,
                pid: row.get("pid")?,
                is_gone: row.get::<i64>("gone")? != 0,
                death: death.map(|death| departed::in_words(&death, went_on_as)),
            })
        })
        .collect()
}

/// Executions that processes hold: of each process, the `n` that it has held longest.
pub async fn held(conn: &mut Conn, n: usize) -> Result<Vec<Held>, Error> {
    let rows = conn.fetch(&PAGE_HELD, &[("n", n.into())]).await?;
    rows.iter()
        .map(|row| {
            Ok(Held {
                process_id: ProcessId(row.get("process_id")?),
                run_id: RunId(row.get("run_id")?),
                step_id: StepId(row.get("id")?),
                node: row.get("node")?,
                attempt: row.get("attempt")?,
                claimed_at: row.get("claimed_at")?,
                of: row.get::<i64>("held")?.unsigned_abs(),
            })
        })
        .collect()
}

/// The pipelines that ever had a run, by name.
pub async fn pipelines(conn: &mut Conn, n: usize) -> Result<Vec<Versions>, Error> {
    let rows = conn.fetch(&PAGE_PIPELINES, &[("n", n.into())]).await?;
    rows.iter()
        .map(|row| {
            Ok(Versions {
                pipeline: row.get("pipeline")?,
                n: row.get::<i64>("versions")?.unsigned_abs(),
                first_at: row.get("first")?,
                last_at: row.get("last")?,
            })
        })
        .collect()
}

/// The versions of a pipeline, the newest first.
pub async fn versions(conn: &mut Conn, pipeline: &str, n: usize) -> Result<Vec<Version>, Error> {
    let args = [("pipeline", pipeline.into()), ("n", n.into())];
    let rows = conn.fetch(&PAGE_VERSIONS, &args).await?;
    rows.iter()
        .map(|row| {
            Ok(Version {
                digest: row.get("digest")?,
                created_at: row.get("created_at")?,
            })
        })
        .collect()
}

fn step_head(row: &Row) -> Result<StepHead, Error> {
    let fan_out: Option<Uuid> = row.get("fan_out_id")?;
    let place = row.get::<i64>("place")?.unsigned_abs();
    let number: Option<i64> = row.get("attempt")?;
    let latest = match number {
        Some(number) => Some(attempt(row, u32::try_from(number).unwrap_or(u32::MAX))?),
        None => None,
    };
    Ok(StepHead {
        id: StepId(row.get("id")?),
        branch_id: BranchId(row.get("branch_id")?),
        node: row.get("node")?,
        step: row.get("step")?,
        via: row.get("via")?,
        source_step_id: row.get::<Option<Uuid>>("source_step_id")?.map(StepId),
        status: row.word("status")?,
        created_at: row.get("created_at")?,
        completed_at: row.get("completed_at")?,
        answered_by: row.get("answered_by")?,
        place: fan_out.map(|fan_out| (FanOutId(fan_out), place)),
        latest,
    })
}

fn attempt(row: &Row, number: u32) -> Result<Attempt, Error> {
    Ok(Attempt {
        number,
        process_id: row.get::<Option<Uuid>>("process_id")?.map(ProcessId),
        due_at: row.get("due_at")?,
        claimed_at: row.get("claimed_at")?,
        completed_at: None,
        result: row.optional_word("result")?,
        error_class: row.get("error_class")?,
        error_message: row.get("error_message")?,
        has_log: false,
    })
}
