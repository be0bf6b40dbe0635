//! Committing what executions came to.
//!
//! Owns: the guarded commit: an execution is closed only by the process that holds it, once;
//! what follows (a new attempt, a failed step, a branch that is ready, or a simple crossing)
//! is in the same transaction. Never: decides what an ending costs (`machine::outcome`).
//!
//! Everything that follows from a result is known before the database is asked whether the
//! result still counts. So a batch is one table of rows, `results`, and one sequence of
//! statements, of which the first lets through the rows whose execution is still ours: on
//! PostgreSQL one statement and one round trip, whose parts read what the first returned; on
//! SQLite one statement after another, those after the guard in one trip to the connection's
//! thread, which are given those rows.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::definition::{Definition, Target};
use crate::failpoint::failpoint;
use crate::machine::advance::Advance;
use crate::machine::outcome::{Ending, Verdict};
use crate::model::*;

use super::claim::{self, Claimed};
use super::conn::{Conn, Row};
use super::crossing::{Crossed, micros};
use super::dialect::Dialect;
use super::error::Error;
use super::process::Claimant;
use super::statement::{Args, Rows, statements};

/// One row per result: what it is, and all that follows from it. Ids of what is not to be
/// written are null.
macro_rules! columns {
    () => {
        "execution_id id, result text, error_class text, error_message text, \
         error_backtrace text, step_id id, run_id id, branch_id id, step_status text, \
         output text, ready int, ends int, transition_id id, via text, produced int, \
         advancement_id id, claim_token id, next_step_id id, next_ordinal int, next_node text, \
         next_step text, attempt_id id, attempt_step_id id, attempt int, retry_count int, \
         crash_count int, leased int, due_in int, arrives_at id"
    };
}

/// The rows that the guard let through, and whether each is the last at its barrier.
macro_rules! held {
    () => {
        concat!("{of:held(", columns!(), ", last int)}")
    };
}

/// Who is the last at its barrier: of those that are missing there, nobody comes after it.
macro_rules! last {
    () => {
        "CASE WHEN missing = row_number() OVER (PARTITION BY arrives_at ORDER BY step_id)
                    THEN 1 ELSE 0 END AS last"
    };
}

statements! {
    RESULTS in Part = concat!("SELECT * FROM {rows:results(", columns!(), ")}");
    /// RACE: the reaper has given this execution to somebody else while we still ran it, and
    /// now we come with a result. Whoever writes `completed_at` first wins; the other matches
    /// no row (E1). An attempt is a row of its own, so the fence holds even against ourselves,
    /// should we have claimed the next attempt (E2). Proven by
    /// `a_late_commit_loses_after_the_reaper_took_the_claim`. (I4, I5) Asked of `result`, which
    /// is null as long as `completed_at` is (I3), because the latter is in partial indexes that
    /// a planner would walk for each row of the batch.
    CLOSE_EXECUTIONS in Sqlite = concat!("
        UPDATE ductwork_executions
           SET completed_at = {moment}, result = results.result, error_class = results.error_class,
               error_message = results.error_message, error_backtrace = results.error_backtrace
          FROM ", "{of:results(", columns!(), ")}", "
         WHERE {key:ductwork_executions.id;results.execution_id}
           AND ductwork_executions.process_id = :process
           AND ductwork_executions.result IS NULL {alive}
        RETURNING {held:results;ductwork_executions.id AS execution_id}, completed_at AS moment, 0 AS last");
    /// A branch that ends in a fan-out arrives with its result, unless it would be the last: that
    /// one is left to an advancer, which fires the barrier. RACE: two workers with the last two
    /// siblings. The barrier's row is locked before it is read, so the second sees the first's
    /// arrival, and exactly one of them is the last. Inner barriers before outer ones, as an
    /// advancer's cascade takes them. Proven by
    /// `the_last_two_siblings_at_two_workers_leave_one_to_the_advancer`. (I13)
    ARRIVING in Part = concat!("
        SELECT {names:barriers(", columns!(), ")}, barriers.moment,
               ", last!(), "
          FROM (SELECT closed.*, f.missing
                  FROM (SELECT * FROM closed ORDER BY arrives_at DESC) closed
                  LEFT JOIN LATERAL (SELECT width - arrived AS missing FROM ductwork_fan_outs
                                      WHERE id = closed.arrives_at FOR UPDATE) f ON true) barriers");
    LAST_AT_BARRIERS in Sqlite = concat!("
        SELECT execution_id FROM (SELECT execution_id, ", last!(), "
          FROM (SELECT b.execution_id, b.step_id, b.arrives_at, f.width - f.arrived AS missing
                  FROM {rows:b(execution_id id, step_id id, arrives_at id)}
                  JOIN ductwork_fan_outs f ON {key:f.id;b.arrives_at}) barriers)
         WHERE last = 1");
    ARRIVE_WITH_RESULT in Sqlite = concat!("
        UPDATE ductwork_fan_outs SET arrived = arrived + a.n
          FROM (SELECT held.arrives_at AS id, count(*) AS n FROM ", held!(), "
                 WHERE held.arrives_at IS NOT NULL AND held.last = 0 GROUP BY held.arrives_at) a
         WHERE {key:ductwork_fan_outs.id;a.id}");
    END_STEPS in Sqlite = concat!("
        UPDATE ductwork_steps
           SET status = CASE WHEN held.last = 1 THEN 'advancing' ELSE held.step_status END,
               output = held.output, completed_at = {moment:held}
          FROM ", held!(), "
         WHERE {key:ductwork_steps.id;held.step_id} AND held.step_status IS NOT NULL
           AND ductwork_steps.status = 'in_progress'");
    /// The branch becomes ready for an advancer, or moves with the result. The guard of the
    /// move: while an execution is open its branch stands at the execution's step, unclaimed.
    MOVE_WITH_RESULT in Sqlite = concat!("
        UPDATE ductwork_branches
           SET status = CASE WHEN held.ends = 1 AND held.last = 0 THEN 'completed' ELSE 'in_progress' END,
               step_id = coalesce(held.next_step_id, held.step_id),
               ready_at = CASE WHEN held.ready = 1 OR held.last = 1 THEN {moment:held} END,
               last_advanced_at = CASE WHEN held.ready = 1 OR held.last = 1
                                       THEN last_advanced_at ELSE {moment:held} END
          FROM ", held!(), "
         WHERE {key:ductwork_branches.id;held.branch_id}
           AND (held.ready = 1 OR held.transition_id IS NOT NULL)
           AND ductwork_branches.step_id = held.step_id
           AND ductwork_branches.status = 'in_progress'
        RETURNING ductwork_branches.id AS id");
    /// All or nothing: refused when a branch was not where its result says (I9).
    ALL_MOVED in Part = "SELECT {whole:changes();:moves}";
    INSERT_NEXT_STEPS in Sqlite = concat!("
        INSERT INTO ductwork_steps
            (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
        SELECT held.next_step_id, held.run_id, held.branch_id, held.next_ordinal, held.next_node,
               held.next_step, held.via, held.transition_id, 'in_progress', held.output, {moment:held}
          FROM ", held!(), " WHERE held.next_step_id IS NOT NULL");
    INSERT_ATTEMPTS in Sqlite = concat!("
        INSERT INTO ductwork_executions
            (id, step_id, pipeline, attempt, retry_count, crash_count, process_id, claimed_at, lease_until)
        SELECT held.attempt_id, held.attempt_step_id, :pipeline, held.attempt, held.retry_count,
               held.crash_count,
               CASE WHEN held.leased = 1 THEN :process END,
               CASE WHEN held.leased = 1 THEN {moment:held} END,
               CASE WHEN held.leased = 1 THEN {moment:held} + :lease END
          FROM ", held!(), " WHERE held.attempt_id IS NOT NULL");
    QUEUE_ATTEMPTS in Sqlite = concat!("
        INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
        SELECT held.attempt_id, :pipeline,
               coalesce({moment:held} + held.due_in,
                        (SELECT CASE WHEN min(a.due_at) < {moment:held} THEN min(a.due_at) - 1 END
                           FROM ductwork_availabilities a WHERE a.pipeline = :pipeline),
                        {moment:held})
          FROM ", held!(), " WHERE held.attempt_id IS NOT NULL AND held.leased = 0");
    RECORD_TRANSITIONS in Sqlite = concat!("
        INSERT INTO ductwork_transitions
            (id, run_id, branch_id, from_step_id, via, produced, opened_at, completed_at)
        SELECT held.transition_id, held.run_id, held.branch_id, held.step_id, held.via,
               held.produced, {moment:held}, {moment:held}
          FROM ", held!(), " WHERE held.transition_id IS NOT NULL AND held.last = 0");
    RECORD_ADVANCEMENTS in Sqlite = concat!("
        INSERT INTO ductwork_advancements
            (id, transition_id, branch_id, process_id, claim_token, claimed_at, lease_until, completed_at, result)
        SELECT held.advancement_id, held.transition_id, held.branch_id, :process, held.claim_token,
               {moment:held}, {moment:held}, {moment:held}, 'success'
          FROM ", held!(), " WHERE held.transition_id IS NOT NULL AND held.last = 0");
    /// The status is wrapped, so that the row is looked up by its key: SQLite would rather walk
    /// all runs in progress, and a run's end would cost more the longer the queue.
    END_RUNS in Sqlite = concat!("
        UPDATE ductwork_runs SET status = 'completed', completed_at = {moment:held}, output = held.output
          FROM ", held!(), "
         WHERE {key:ductwork_runs.id;held.run_id} AND held.ends = 1 AND held.arrives_at IS NULL
           AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')");
    /// A row without an execution says that the process lives, and holds none of them. All or
    /// nothing: the statement is refused when a branch was not where its result says (I9).
    COMMITTED in Part = "
        SELECT held.execution_id, held.last,
               {whole:(SELECT count(*) FROM moved);(SELECT count(*) FROM held WHERE ready = 1 OR transition_id IS NOT NULL)}
          FROM touched LEFT JOIN held ON true";
    COMMIT joins [
        ("results", &RESULTS),
        ("touched", &claim::TOUCH_PROCESS),
        ("closed", &CLOSE_EXECUTIONS),
        ("held", &ARRIVING),
        ("arrived", &ARRIVE_WITH_RESULT),
        ("ended_steps", &END_STEPS),
        ("moved", &MOVE_WITH_RESULT),
        ("next_steps", &INSERT_NEXT_STEPS),
        ("attempts", &INSERT_ATTEMPTS),
        ("queued", &QUEUE_ATTEMPTS),
        ("transitions", &RECORD_TRANSITIONS),
        ("advancements", &RECORD_ADVANCEMENTS),
        ("ended_runs", &END_RUNS),
        ("", &COMMITTED),
    ];
    /// The same where no branch arrives at a barrier and no attempt goes to the queue: what a
    /// statement costs before its first row is its parts', and most batches need no more.
    COMMIT_SIMPLE joins [
        ("results", &RESULTS),
        ("touched", &claim::TOUCH_PROCESS),
        ("held", &CLOSE_EXECUTIONS),
        ("ended_steps", &END_STEPS),
        ("moved", &MOVE_WITH_RESULT),
        ("next_steps", &INSERT_NEXT_STEPS),
        ("attempts", &INSERT_ATTEMPTS),
        ("transitions", &RECORD_TRANSITIONS),
        ("advancements", &RECORD_ADVANCEMENTS),
        ("ended_runs", &END_RUNS),
        ("", &COMMITTED),
    ];
    /// The guard, on SQLite.
    TOUCH_AND_CLOSE runs [&claim::TOUCH_PROCESS, &CLOSE_EXECUTIONS];
    /// What follows it.
    WRITE_RESULTS runs [
        &MOVE_WITH_RESULT,
        &ALL_MOVED,
        &ARRIVE_WITH_RESULT,
        &END_STEPS,
        &INSERT_NEXT_STEPS,
        &INSERT_ATTEMPTS,
        &QUEUE_ATTEMPTS,
        &RECORD_TRANSITIONS,
        &RECORD_ADVANCEMENTS,
        &END_RUNS,
    ];
    /// The same where no branch arrives at a barrier and no attempt goes to the queue.
    WRITE_SIMPLE_RESULTS runs [
        &MOVE_WITH_RESULT,
        &ALL_MOVED,
        &END_STEPS,
        &INSERT_NEXT_STEPS,
        &INSERT_ATTEMPTS,
        &RECORD_TRANSITIONS,
        &RECORD_ADVANCEMENTS,
        &END_RUNS,
    ];
    CLOSED_AS = "
        SELECT e.id, e.result FROM {rows:b(id id)} JOIN ductwork_executions e ON {key:e.id;b.id}
         WHERE e.process_id = :process AND e.completed_at IS NOT NULL";
}

/// An execution that has ended, and what is to be written for it.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What was claimed.
    pub claimed: Arc<Claimed>,
    /// The run's definition.
    pub definition: Arc<Definition>,
    /// How it ended.
    pub ending: Ending,
    /// What follows.
    pub verdict: Verdict,
    /// Its value, when it succeeded.
    pub output: Option<Box<RawValue>>,
    /// Class, message and backtrace, when it did not.
    pub error: Option<StoredError>,
}

impl Finished {
    /// The bytes of what it brings: its output, or its error.
    pub fn bytes(&self) -> usize {
        let output = self
            .output
            .as_deref()
            .map_or(0, |output| output.get().len());
        let error = self.error.as_ref().map_or(0, |error| {
            error.message.len() + error.backtrace.as_ref().map_or(0, String::len)
        });
        output + error
    }
}

/// What is kept of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredError {
    /// For machines.
    pub class: String,
    /// For people.
    pub message: String,
    /// The end of the log.
    pub backtrace: Option<String>,
}

/// What a commit came to.
#[derive(Debug, Default)]
pub struct Committed {
    /// Results that came too late: the claim had been taken away.
    pub stale: Vec<ExecutionId>,
    /// Executions of the next steps, leased at birth.
    pub born: Vec<Claimed>,
    /// A branch waits for an advancer.
    pub ready: bool,
    /// Branches that crossed with their result.
    pub advanced: usize,
    /// What the crossings did.
    pub crossed: Crossed,
    /// This process was declared dead: its results are all stale, it must register anew.
    pub dead: bool,
}

/// Who commits.
#[derive(Clone, Copy, Debug)]
pub struct Committer<'a> {
    /// The process, by the connection through which it commits.
    pub claimant: Claimant,
    /// The pipeline it works.
    pub pipeline: &'a str,
    /// For how long it holds what it claims.
    pub lease: Duration,
    /// Steps that follow at once may be leased to it at birth, as many as this.
    pub room: usize,
}

/// Commits a batch of results and crosses what is simple, leasing the steps that follow to the
/// committer as long as it has room.
///
/// One transaction; each result as if it were alone. Stale results are dropped from it.
pub async fn commit(
    conn: &mut Conn,
    finished: &[Finished],
    committer: Committer<'_>,
) -> Result<Committed, Error> {
    if finished.is_empty() {
        return Ok(Committed::default());
    }
    let planned = plan(finished, committer.room);
    let rows = rows(&planned.iter().collect::<Vec<_>>());
    let [process, epoch] = committer.claimant.args();
    let args = [
        ("results", (&rows).into()),
        process,
        epoch,
        ("pipeline", committer.pipeline.into()),
        ("lease", micros(committer.lease).into()),
    ];
    failpoint!(conn, "commit.begin");
    let held = match conn.dialect() {
        Dialect::Postgres => joined(conn, &planned, &args).await?,
        Dialect::Sqlite => in_turn(conn, &planned, &args).await?,
    };
    failpoint!(conn, "commit.end");
    Ok(committed(&planned, held, committer.pipeline))
}

/// The executions that were still ours, and whether each is the last at its barrier; `None` when
/// the process is dead.
type Held = Option<HashMap<ExecutionId, bool>>;

/// All in one statement.
async fn joined(conn: &mut Conn, planned: &[Planned<'_>], args: Args<'_>) -> Result<Held, Error> {
    let statement = match planned.iter().all(Planned::is_simple) {
        true => &COMMIT_SIMPLE,
        false => &COMMIT,
    };
    let rows = conn.alone(statement, args).await?;
    let mut held = HashMap::with_capacity(rows.len());
    for row in &rows {
        if let Some(id) = row.get::<Option<uuid::Uuid>>("execution_id")? {
            held.insert(ExecutionId(id), row.get::<i32>("last")? == 1);
        }
    }
    Ok((!rows.is_empty()).then_some(held))
}

/// The same, one statement after the other.
async fn in_turn(conn: &mut Conn, planned: &[Planned<'_>], args: Args<'_>) -> Result<Held, Error> {
    conn.transaction(async |conn| {
        let mut answer = conn.fetch(&TOUCH_AND_CLOSE, args).await?.into_iter();
        let Some(process) = answer.next() else {
            return Ok(None);
        };
        // Whoever removes a process takes its executions away in the same transaction, so the first
        // row is the process's own. An execution in its place is an error that undoes all: so ends
        // what arrives after its epoch, when nobody listens.
        let id = process.get::<uuid::Uuid>("id");
        id.map_err(|_| {
            Error::Corrupt("I22: a process that is gone, or its epoch, holds executions".to_owned())
        })?;
        let mut held = HashMap::with_capacity(planned.len());
        for row in answer {
            held.insert(ExecutionId(row.get("execution_id")?), false);
        }
        let ours = |row: &&Planned<'_>| held.contains_key(&row.of.claimed.execution_id);
        let ours: Vec<&Planned<'_>> = planned.iter().filter(ours).collect();
        failpoint!(conn, "commit.guarded");
        for id in last_at_barriers(conn, &ours).await? {
            held.insert(id, true);
        }
        let last = |row: &&Planned<'_>| i64::from(held[&row.of.claimed.execution_id]);
        let rows = rows(&ours).ints("last", ours.iter().map(last));
        let moves = ours.iter().filter(|row| row.moves()).count();
        let more = [("held", (&rows).into()), ("moves", moves.into())];
        let args: Vec<_> = args.iter().cloned().chain(more).collect();
        let write = match ours.iter().all(|row| row.is_simple()) {
            true => &WRITE_SIMPLE_RESULTS,
            false => &WRITE_RESULTS,
        };
        conn.finish(write, &args).await?;
        Ok(Some(held))
    })
    .await
}

/// Of the branches that arrive, those that would be the last at their barriers.
async fn last_at_barriers(
    conn: &mut Conn,
    ours: &[&Planned<'_>],
) -> Result<Vec<ExecutionId>, Error> {
    let arriving: Vec<_> = ours.iter().filter(|row| row.arrives_at.is_some()).collect();
    if arriving.is_empty() {
        return Ok(Vec::new());
    }
    let claimed = || arriving.iter().map(|row| &row.of.claimed);
    let execution_ids = claimed().map(|claimed| claimed.execution_id);
    let rows = Rows::new()
        .ids("execution_id", execution_ids)
        .ids("step_id", claimed().map(|claimed| claimed.step_id))
        .optional_ids("arrives_at", arriving.iter().map(|row| row.arrives_at));
    let last = conn
        .fetch(&LAST_AT_BARRIERS, &[("b", (&rows).into())])
        .await?;
    let id = |row: &Row| Ok(ExecutionId(row.get("execution_id")?));
    last.iter().map(id).collect()
}

/// What is to be written for one result, if it still counts.
struct Planned<'a> {
    of: &'a Finished,
    step_status: Option<StepStatus>,
    /// Its branch waits for an advancer.
    ready: bool,
    /// Its branch ends, and with it the run, unless it arrives at a barrier.
    ends: bool,
    arrives_at: Option<FanOutId>,
    crossing: Option<Recorded>,
    next: Option<Next<'a>>,
    attempt: Option<Attempt>,
}

/// The records of a crossing.
#[derive(Clone, Copy)]
struct Recorded {
    transition: TransitionId,
    advancement: AdvancementId,
    token: ClaimToken,
    via: Via,
}

/// The step that follows.
struct Next<'a> {
    id: StepId,
    node: &'a str,
    step: &'a str,
}

/// A new execution: of the step that follows, or again of the same.
#[derive(Clone, Copy)]
struct Attempt {
    id: ExecutionId,
    step_id: StepId,
    attempt: u32,
    retry_count: u32,
    crash_count: u32,
    leased: bool,
    /// Microseconds from now; `None`: it goes before all of its pipeline that is due, as it did when it was
    /// claimed.
    due_in: Option<i64>,
}

fn plan(finished: &[Finished], mut room: usize) -> Vec<Planned<'_>> {
    finished
        .iter()
        .map(|finished| planned(finished, &mut room))
        .collect()
}

fn planned<'a>(finished: &'a Finished, room: &mut usize) -> Planned<'a> {
    let claimed = &finished.claimed;
    let hook = claimed.via == Via::OnHalt;
    let mut planned = Planned {
        of: finished,
        step_status: None,
        ready: false,
        ends: false,
        arrives_at: None,
        crossing: None,
        next: None,
        attempt: None,
    };
    match finished.verdict {
        Verdict::Drop => {}
        Verdict::Again { delay, next } => {
            planned.attempt = Some(Attempt {
                id: ExecutionId::new(),
                step_id: claimed.step_id,
                attempt: claimed.attempt + 1,
                retry_count: next.retry_count,
                crash_count: next.crash_count,
                leased: false,
                due_in: match finished.ending {
                    // It does not go behind a backlog that it stood before when it was claimed.
                    Ending::Released { .. } if delay.is_zero() => None,
                    _ => Some(micros(delay)),
                },
            });
        }
        Verdict::Fail => {
            planned.step_status = Some(StepStatus::Failed);
            planned.ready = !hook;
        }
        Verdict::Succeed => match simple(finished) {
            Some(advance) => planned.cross(&advance, room),
            None => {
                planned.ready = !hook;
                planned.step_status = Some(match hook {
                    true => StepStatus::Completed,
                    false => StepStatus::Advancing,
                });
            }
        },
    }
    planned
}

impl<'a> Planned<'a> {
    fn cross(&mut self, advance: &Advance<'a>, room: &mut usize) {
        self.step_status = Some(StepStatus::Completed);
        let via = match advance {
            Advance::Continue { to, via, .. } => {
                self.go(*to, room);
                *via
            }
            _ => {
                self.ends = true;
                self.arrives_at = self.of.claimed.fan_out_id;
                Via::End
            }
        };
        self.crossing = Some(Recorded {
            transition: TransitionId::new(),
            advancement: AdvancementId::new(),
            token: ClaimToken::new(),
            via,
        });
    }

    fn go(&mut self, to: Target, room: &mut usize) {
        let definition = &self.of.definition;
        let node = definition.node(to.node);
        let delay = definition.delay(to);
        let leased = *room > 0 && delay.is_zero();
        *room -= usize::from(leased);
        let id = StepId::new();
        self.next = Some(Next {
            id,
            node: &node.name,
            step: node.step.as_deref().unwrap_or_default(),
        });
        self.attempt = Some(Attempt {
            id: ExecutionId::new(),
            step_id: id,
            attempt: 1,
            retry_count: 0,
            crash_count: 0,
            leased,
            due_in: Some(micros(delay)),
        });
    }

    /// True when an attempt of it goes to the queue.
    fn queues(&self) -> bool {
        self.attempt.is_some_and(|attempt| !attempt.leased)
    }

    /// True when it arrives at no barrier and puts nothing into the queue.
    fn is_simple(&self) -> bool {
        self.arrives_at.is_none() && !self.queues()
    }

    /// True when its branch is written.
    fn moves(&self) -> bool {
        self.ready || self.crossing.is_some()
    }

    /// The step that follows, as if it had been claimed; `None` unless it was leased at birth.
    fn born(&self) -> Option<Claimed> {
        let (next, attempt) = (self.next.as_ref()?, self.attempt.as_ref()?);
        let from = &self.of.claimed;
        attempt.leased.then_some(())?;
        Some(Claimed {
            execution_id: attempt.id,
            step_id: next.id,
            run_id: from.run_id,
            branch_id: from.branch_id,
            step_ordinal: from.step_ordinal + 1,
            fan_out_id: from.fan_out_id,
            ordinal: from.ordinal,
            node: next.node.to_owned(),
            step: next.step.to_owned(),
            via: self.crossing?.via,
            attempt: 1,
            retry_count: 0,
            crash_count: 0,
            definition: from.definition.clone(),
            input: self.of.output.clone()?,
        })
    }
}

/// The crossing that may be made with the result: to one step on the same branch, or to its
/// end. All others take two phases, through an advancer.
fn simple(finished: &Finished) -> Option<Advance<'_>> {
    let output = finished.output.as_deref()?;
    if finished.verdict != Verdict::Succeed || finished.claimed.via == Via::OnHalt {
        return None;
    }
    let node = finished.definition.find(&finished.claimed.node)?;
    crate::machine::advance::decide_simple(output, node, &finished.definition)
}

fn rows<'a>(planned: &[&Planned<'a>]) -> Rows<'a> {
    let all = || planned.iter();
    let claimed = || planned.iter().map(|row| &row.of.claimed);
    let error = || planned.iter().map(|row| row.of.error.as_ref());
    let crossing = || planned.iter().map(|row| row.crossing);
    let next = || planned.iter().map(|row| row.next.as_ref());
    let attempt = || planned.iter().map(|row| row.attempt);
    let count = |of: fn(&Attempt) -> u32| {
        attempt().map(move |attempt| attempt.map(|attempt| i64::from(of(&attempt))))
    };
    Rows::new()
        .ids(
            "execution_id",
            claimed().map(|claimed| claimed.execution_id),
        )
        .texts("result", all().map(|row| row.of.ending.result().as_str()))
        .optional_texts(
            "error_class",
            error().map(|error| Some(error?.class.as_str())),
        )
        .optional_texts(
            "error_message",
            error().map(|error| Some(error?.message.as_str())),
        )
        .optional_texts(
            "error_backtrace",
            error().map(|error| error?.backtrace.as_deref()),
        )
        .ids("step_id", claimed().map(|claimed| claimed.step_id))
        .ids("run_id", claimed().map(|claimed| claimed.run_id))
        .ids("branch_id", claimed().map(|claimed| claimed.branch_id))
        .optional_texts(
            "step_status",
            all().map(|row| row.step_status.map(StepStatus::as_str)),
        )
        .optional_texts(
            "output",
            all().map(|row| row.of.output.as_deref().map(RawValue::get)),
        )
        .ints("ready", all().map(|row| i64::from(row.ready)))
        .ints("ends", all().map(|row| i64::from(row.ends)))
        .optional_ids(
            "transition_id",
            crossing().map(|records| Some(records?.transition)),
        )
        .optional_texts("via", crossing().map(|records| Some(records?.via.as_str())))
        .ints("produced", next().map(|next| i64::from(next.is_some())))
        .optional_ids(
            "advancement_id",
            crossing().map(|records| Some(records?.advancement)),
        )
        .optional_ids(
            "claim_token",
            crossing().map(|records| Some(records?.token)),
        )
        .optional_ids("next_step_id", next().map(|next| Some(next?.id)))
        .ints(
            "next_ordinal",
            claimed().map(|claimed| claimed.step_ordinal + 1),
        )
        .optional_texts("next_node", next().map(|next| Some(next?.node)))
        .optional_texts("next_step", next().map(|next| Some(next?.step)))
        .optional_ids("attempt_id", attempt().map(|attempt| Some(attempt?.id)))
        .optional_ids(
            "attempt_step_id",
            attempt().map(|attempt| Some(attempt?.step_id)),
        )
        .optional_ints("attempt", count(|attempt| attempt.attempt))
        .optional_ints("retry_count", count(|attempt| attempt.retry_count))
        .optional_ints("crash_count", count(|attempt| attempt.crash_count))
        .ints(
            "leased",
            attempt().map(|attempt| i64::from(attempt.is_some_and(|a| a.leased))),
        )
        .optional_ints(
            "due_in",
            attempt().map(|attempt| attempt.and_then(|attempt| attempt.due_in)),
        )
        .optional_ids("arrives_at", all().map(|row| row.arrives_at))
}

/// What is to be told of a batch of which `held` counted (`None`: the process is dead).
fn committed(planned: &[Planned<'_>], held: Held, pipeline: &str) -> Committed {
    let mut committed = Committed {
        dead: held.is_none(),
        ..Committed::default()
    };
    let held = held.unwrap_or_default();
    for row in planned {
        let claimed = &row.of.claimed;
        let Some(last) = held.get(&claimed.execution_id) else {
            committed.stale.push(claimed.execution_id);
            continue;
        };
        committed.ready |= row.ready || *last;
        committed.advanced += usize::from(row.crossing.is_some() && !last);
        committed.born.extend(row.born());
        if row.queues() {
            committed.crossed.available.insert(pipeline.to_owned());
        }
        if row.ends && row.arrives_at.is_none() {
            let ended = (claimed.run_id, pipeline.to_owned(), RunStatus::Completed);
            committed.crossed.ended.push(ended);
        }
    }
    committed
}

/// After a COMMIT whose answer was lost: which of these results had been committed. They are
/// told by their own rows, not by trying again blindly (E11).
pub async fn landed(
    conn: &mut Conn,
    finished: &[Finished],
    process: ProcessId,
) -> Result<HashSet<ExecutionId>, Error> {
    let rows = Rows::new().ids("id", finished.iter().map(|row| row.claimed.execution_id));
    let args = [("b", (&rows).into()), ("process", process.0.into())];
    failpoint!(conn, "landed.begin");
    let mut landed = HashSet::new();
    for row in conn.fetch(&CLOSED_AS, &args).await? {
        let id = ExecutionId(row.get("id")?);
        let result: ExecutionResult = row.word("result")?;
        // A reaper closes with its own word; a crash of ours that it beat us to is the same.
        if finished
            .iter()
            .any(|row| row.claimed.execution_id == id && row.ending.result() == result)
        {
            landed.insert(id);
        }
    }
    Ok(landed)
}
