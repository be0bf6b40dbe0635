//! Committing the results of executions.
//!
//! Owns: the guarded commit: an execution is closed only by the process that holds it, once; its
//! consequences (a new attempt, a failed step, a branch that is ready, or a simple crossing) are in the
//! same transaction. Never: decides what an ending costs (`machine::outcome`).
//!
//! All consequences of a result are known before the database is asked whether the result still counts. So
//! a batch is one table of rows (`batch::ResultRow`), and one sequence of statements, of which the first
//! lets through the rows whose execution is still ours. On PostgreSQL (`backend/postgres/commit.sql`) they
//! are parts of one statement in one round trip, which read the output of the first. On SQLite and MySQL
//! (`commit.sql` of each) they follow one another; those after the guard receive its rows, in one trip to
//! SQLite's thread, or as one statement of MariaDB's.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::definition::{Definition, Target};
use crate::failpoint::failpoint;
use crate::machine::advance::Advance;
use crate::machine::outcome::{self, Ending, StepLimits, Verdict};
use crate::model::*;

use super::backend::Asks;
use super::batch::ResultRow;
use super::claim::{self, Claimed, unlocked};
use super::conn::{Conn, Row};
use super::error::Error;
use super::micros;
use super::pause;
use super::process::Claimant;
use super::statement::{Args, Rows, statements};
use super::transition::Crossed;
use super::transition::insert::NewExecution;

statements! {
    COMMIT in Postgres from "backend/postgres/commit.sql";
    COMMIT_SIMPLE in Postgres from "backend/postgres/commit.sql";
    CLOSE_EXECUTIONS in Sqlite from "backend/sqlite/commit.sql", on Mysql [&HELD_RESULTS, &CLOSE_HELD, &ALL_CLOSED];
    LAST_AT_BARRIERS in Sqlite from "backend/sqlite/commit.sql", on Mysql [&LOCKED_LAST];
    ARRIVE_WITH_RESULT in Sqlite from "backend/sqlite/commit.sql", on Mysql [&ARRIVE_COUNTED];
    END_STEPS in Sqlite from "backend/sqlite/commit.sql", on Mysql [&END_HELD_STEPS];
    MOVE_WITH_RESULT in Sqlite from "backend/sqlite/commit.sql", on Mysql [&MOVE_HELD];
    ALL_MOVED in Sqlite from "backend/sqlite/commit.sql", on Mysql [&ALL_HELD_MOVED];
    INSERT_NEXT_STEPS in InTurn from "backend/sqlite/commit.sql";
    INSERT_ATTEMPTS in InTurn from "backend/sqlite/commit.sql";
    QUEUE_ATTEMPTS in InTurn from "backend/sqlite/commit.sql";
    RECORD_TRANSITIONS in InTurn from "backend/sqlite/commit.sql";
    RECORD_ADVANCEMENTS in InTurn from "backend/sqlite/commit.sql";
    END_RUNS in Sqlite from "backend/sqlite/commit.sql", on Mysql [&END_HELD_RUNS];
    HELD_RESULTS in Mysql from "backend/mysql/commit.sql";
    CLOSE_HELD in Mysql from "backend/mysql/commit.sql";
    ALL_CLOSED in Mysql from "backend/mysql/commit.sql";
    LOCKED_LAST in Mysql from "backend/mysql/commit.sql";
    ARRIVE_COUNTED in Mysql from "backend/mysql/commit.sql";
    END_HELD_STEPS in Mysql from "backend/mysql/commit.sql";
    MOVE_HELD in Mysql from "backend/mysql/commit.sql";
    ALL_HELD_MOVED in Mysql from "backend/mysql/commit.sql";
    END_HELD_RUNS in Mysql from "backend/mysql/commit.sql";
    TOUCH_UNPAUSED in Mysql from "backend/mysql/commit.sql";
    ONE_TOUCHED in Mysql from "backend/mysql/commit.sql";
    CLOSE_ALL in Mysql from "backend/mysql/commit.sql";
    CLOSE_BARE in Mysql from "backend/mysql/commit.sql";
    END_BARE_STEPS in Mysql from "backend/mysql/commit.sql";
    END_BARE_RUNS in Mysql from "backend/mysql/commit.sql";
    ALL_ARE_CLOSED in Mysql from "backend/mysql/commit.sql";
    /// Guard and writes at once, where all results are likely to still count: refused as a whole where one does not
    /// count, or where the answer has to say more.
    COMMIT_WHOLE runs [
        &TOUCH_UNPAUSED,
        &ONE_TOUCHED,
        &CLOSE_ALL,
        &ALL_ARE_CLOSED,
        &MOVE_WITH_RESULT,
        &ALL_MOVED,
        &END_STEPS,
        &INSERT_NEXT_STEPS,
        &INSERT_ATTEMPTS,
        &QUEUE_ATTEMPTS,
        &RECORD_TRANSITIONS,
        &RECORD_ADVANCEMENTS,
        &END_RUNS,
    ];
    /// The same where no attempt goes to the queue, no result has an error or a log, and each ends its step.
    COMMIT_BARE_WHOLE runs [
        &TOUCH_UNPAUSED,
        &ONE_TOUCHED,
        &CLOSE_BARE,
        &ALL_ARE_CLOSED,
        &MOVE_WITH_RESULT,
        &ALL_MOVED,
        &END_BARE_STEPS,
        &INSERT_NEXT_STEPS,
        &INSERT_ATTEMPTS,
        &RECORD_TRANSITIONS,
        &RECORD_ADVANCEMENTS,
        &END_BARE_RUNS,
    ];
    /// The results whose execution, step and branch no other session has locked.
    pub(super) UNLOCKED_RESULTS = "
        SELECT e.id FROM ductwork_executions e
          JOIN ductwork_steps s ON {key:s.id;e.step_id}
          JOIN ductwork_branches br ON {key:br.id;s.branch_id}
         WHERE {any:e.id;b(id id)} {skip_waiting}",
        on Mysql [&UNLOCKED_RESULTS_IN_TURN];
    UNLOCKED_RESULTS_IN_TURN in Mysql = "
        SELECT e.id FROM {rows:b(id id)} {join:ductwork_executions e} ON {key:e.id;b.id}
          {join:ductwork_steps s} ON {key:s.id;e.step_id}
          {join:ductwork_branches br} ON {key:br.id;s.branch_id} {skip_waiting}";
    UNLOCKED_RUNS = "
        SELECT r.id FROM ductwork_runs r WHERE {any:r.id;b(id id)} {skip_waiting}",
        on Mysql [&UNLOCKED_RUNS_IN_TURN];
    UNLOCKED_RUNS_IN_TURN in Mysql = "
        SELECT r.id FROM {rows:b(id id)} {join:ductwork_runs r} ON {key:r.id;b.id} {skip_waiting}";
    /// As `LAST_AT_BARRIERS` locks them.
    UNLOCKED_BARRIERS = "
        SELECT f.id FROM ductwork_fan_outs f WHERE {any:f.id;b(id id)} {skip_locked}",
        on Mysql [&UNLOCKED_BARRIERS_IN_TURN];
    UNLOCKED_BARRIERS_IN_TURN in Mysql = "
        SELECT f.id FROM {rows:b(id id)} {join:ductwork_fan_outs f} ON {key:f.id;b.id} {skip_locked}";
    /// For each result whose rows exist: whether it still counts. A result that lacks a row is damaged; its commit
    /// reports that.
    pub(super) OPEN_RESULTS = "
        SELECT e.id, {big:CASE WHEN e.result IS NULL THEN 1 ELSE 0 END} AS is_open
          FROM ductwork_executions e
          JOIN ductwork_steps s ON {key:s.id;e.step_id}
          JOIN ductwork_branches br ON {key:br.id;s.branch_id}
          JOIN ductwork_runs r ON {key:r.id;s.run_id}
         WHERE {any:e.id;b(id id)}",
        on Mysql [&OPEN_RESULTS_IN_TURN];
    OPEN_RESULTS_IN_TURN in Mysql = "
        SELECT e.id, {big:CASE WHEN e.result IS NULL THEN 1 ELSE 0 END} AS is_open
          FROM {rows:b(id id)} {join:ductwork_executions e} ON {key:e.id;b.id}
          {join:ductwork_steps s} ON {key:s.id;e.step_id}
          {join:ductwork_branches br} ON {key:br.id;s.branch_id}
          {join:ductwork_runs r} ON {key:r.id;s.run_id}";
    /// The guard, where statements are sent in turn.
    TOUCH_AND_CLOSE runs [&claim::TOUCH_PROCESS, &CLOSE_EXECUTIONS];
    /// The statements that follow the guard.
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
    /// Those of these results whose executions the process holds, and that are open.
    STILL_HELD = "
        SELECT e.id FROM {rows:b(id id)} JOIN ductwork_executions e ON {key:e.id;b.id}
         WHERE e.process_id = :process AND e.result IS NULL";
    CLOSED_AS = "
        SELECT e.id, e.result FROM {rows:b(id id)} JOIN ductwork_executions e ON {key:e.id;b.id}
         WHERE e.process_id = :process AND e.completed_at IS NOT NULL";
}

/// An execution that has ended, and the data to write for it.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The claim.
    pub claimed: Arc<Claimed>,
    /// The run's definition.
    pub definition: Arc<Definition>,
    /// How it ended.
    pub ended: Ended,
    /// The verdict on it.
    pub verdict: Verdict,
}

/// The end of an execution.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How it ended.
    pub ending: Ending,
    /// Its value, when it succeeded. The step that follows may have it as its input, so it is shared.
    pub output: Option<Arc<Box<RawValue>>>,
    /// The reason, when it did not.
    pub error: Option<StoredError>,
    /// The end of its output to the log, unless the reason contains it.
    pub log: Option<String>,
}

impl Ended {
    /// An end with a value.
    pub fn success(output: Box<RawValue>) -> Self {
        Self {
            ending: Ending::Success,
            output: Some(Arc::new(output)),
            error: None,
            log: None,
        }
    }

    /// An end without a value, for a reason of this class.
    pub fn without_value(ending: Ending, class: &str, message: impl Into<String>) -> Self {
        Self {
            ending,
            output: None,
            error: Some(StoredError {
                class: class.to_owned(),
                message: message.into(),
                backtrace: None,
            }),
            log: None,
        }
    }

    /// The same, with the end of the log.
    pub fn with_log(mut self, log: Option<String>) -> Self {
        self.log = log;
        self
    }

    /// The same, with the backtrace or the log that explains the reason.
    pub fn with_backtrace(mut self, backtrace: Option<String>) -> Self {
        if let Some(error) = &mut self.error {
            error.backtrace = backtrace;
        }
        self
    }
}

impl Finished {
    /// An execution that has ended, with the verdict that its budgets allow. `chance` is from 0 to
    /// 1, and scatters the delay of another attempt.
    pub fn new(
        claimed: Arc<Claimed>,
        definition: Arc<Definition>,
        ended: Ended,
        limits: &StepLimits,
        chance: f64,
    ) -> Self {
        Self {
            verdict: outcome::decide(claimed.view(), ended.ending, limits, chance),
            claimed,
            definition,
            ended,
        }
    }

    /// The number of bytes that it commits: its output or its error, and its log.
    pub fn bytes(&self) -> usize {
        let ended = &self.ended;
        let error = ended.error.as_ref();
        bytes_of([
            ended.output.as_deref().map(|output| output.get()),
            error.map(|error| error.message.as_str()),
            error.and_then(|error| error.backtrace.as_deref()),
            ended.log.as_deref(),
        ])
    }
}

/// The number of bytes of a result: its output, the message and the backtrace of its error, and its log.
pub fn bytes_of(parts: [Option<&str>; 4]) -> usize {
    parts.into_iter().flatten().map(str::len).sum()
}

/// The parts of an error that are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredError {
    /// For machines.
    pub class: String,
    /// For people.
    pub message: String,
    /// The end of the log.
    pub backtrace: Option<String>,
}

/// The result of a commit.
#[derive(Debug, Default)]
pub struct Committed {
    /// Results that came too late: the claim had been taken away.
    pub stale: Vec<ExecutionId>,
    /// Results that count, and that the database did not write: a trigger or a policy keeps the row as it is.
    pub unwritten: Vec<ExecutionId>,
    /// The error of the query that tells unwritten results from stale ones. If it is set, `stale` is empty, and some of
    /// the results in `unwritten` may be stale.
    pub unasked: Option<Error>,
    /// Executions of the next steps, leased at birth.
    pub leased_next: Vec<Claimed>,
    /// A branch waits for an advancer.
    pub ready: bool,
    /// Branches that crossed with their result.
    pub advanced: usize,
    /// The effects of the crossings.
    pub crossed: Crossed,
    /// This process was declared dead: all its results are stale, and it must register anew.
    pub dead: bool,
    /// The pipeline is paused: executions that are leased to the committer must not begin.
    pub paused: bool,
}

/// The process that commits.
#[derive(Clone, Copy, Debug)]
pub struct Committer<'a> {
    /// The process, identified with the connection through which it commits.
    pub claimant: Claimant,
    /// The pipeline that it works on.
    pub pipeline: &'a str,
    /// How long it holds its claims.
    pub lease: Duration,
    /// How many steps that follow at once may be leased to it at birth.
    pub room: usize,
}

/// Commits a batch of results and makes the simple crossings, leasing the steps that follow to the
/// committer as long as it has room.
///
/// This is one transaction; each result is treated as if it were alone. Stale results are dropped
/// from it, and so are those that the database does not write.
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
    let guarded = match conn.asks() {
        Asks::Joined => joined(conn, &planned, &args).await?,
        Asks::InTurn => in_turn(conn, &planned, &args).await?,
    };
    failpoint!(conn, "commit.end");
    let mut committed = committed(&planned, guarded, committer.pipeline);
    if !committed.dead && !committed.stale.is_empty() {
        let process = committer.claimant.process;
        // The commit has landed. If nobody can tell, the results are sent again: what is stale is stale again.
        committed.unwritten = match still_held(conn, process, &committed.stale).await {
            Ok(held) => held,
            Err(error) => {
                committed.unasked = Some(error);
                committed.stale.clone()
            }
        };
        let unwritten = &committed.unwritten;
        committed.stale.retain(|id| !unwritten.contains(id));
    }
    Ok(committed)
}

async fn still_held(
    conn: &mut Conn,
    process: ProcessId,
    results: &[ExecutionId],
) -> Result<Vec<ExecutionId>, Error> {
    let rows = Rows::new().ids("id", results.iter().copied());
    let args = [("b", (&rows).into()), ("process", process.0.into())];
    let held = conn.fetch_latest(&STILL_HELD, &args).await?;
    let id = |row: &Row| Ok(ExecutionId(row.get("id")?));
    held.iter().map(id).collect()
}

/// The answer of a commit's guards.
enum Guarded {
    /// The process was declared dead: none of its results counts.
    Dead,
    /// These executions were still ours: their results count.
    Ours {
        /// Each with whether it is the last at its barrier.
        last: HashMap<ExecutionId, bool>,
        /// The process is paused.
        paused: bool,
    },
}

/// All in one statement.
async fn joined(
    conn: &mut Conn,
    planned: &[Planned<'_>],
    args: Args<'_>,
) -> Result<Guarded, Error> {
    let statement = match planned.iter().all(Planned::is_simple) {
        true => &COMMIT_SIMPLE,
        false => &COMMIT,
    };
    let rows = conn.fetch_autocommit(statement, args).await?;
    let Some(first) = rows.first() else {
        return Ok(Guarded::Dead);
    };
    let paused = pause::is_told(first)?;
    let mut last = HashMap::with_capacity(rows.len());
    for row in &rows {
        if let Some(id) = row.get::<Option<uuid::Uuid>>("execution_id")? {
            last.insert(ExecutionId(id), row.get::<i32>("last")? == 1);
        }
    }
    Ok(Guarded::Ours { last, paused })
}

/// A batch with more bytes than this, those of its keys and counts included, is not written into the text of statements.
const BARE_MAX: usize = 1 << 18;

/// All results in one trip, as if each still counted; `None` where that is refused, and nothing was written.
async fn whole(
    conn: &mut Conn,
    planned: &[Planned<'_>],
    args: Args<'_>,
) -> Result<Option<Guarded>, Error> {
    let mut is_refused = false;
    let all: Vec<&Planned<'_>> = planned.iter().collect();
    let rows = rows(&all).ints("last", all.iter().map(|_| 0));
    let moves = all.iter().filter(|row| row.moves()).count();
    let more = [
        ("held", (&rows).into()),
        ("moves", moves.into()),
        ("all", all.len().into()),
    ];
    let args: Vec<_> = args.iter().cloned().chain(more).collect();
    let is_short = rows.weight() <= BARE_MAX;
    let write = match is_short && all.iter().all(|row| row.is_simple() && row.is_bare()) {
        true => &COMMIT_BARE_WHOLE,
        false => &COMMIT_WHOLE,
    };
    let written = conn.transaction(async |conn| {
        failpoint!(conn, "commit.guarded");
        match conn.fetch_and_commit(write, &args).await {
            // The next request finds out which result is to blame.
            Err(error) if error.is_count() => {
                is_refused = true;
                Err(Error::Corrupt("not all results count any more".to_owned()))
            }
            written => written,
        }
    });
    match written.await {
        Ok(_) => {
            let ids = all.iter().map(|row| row.of.claimed.execution_id);
            Ok(Some(Guarded::Ours {
                last: ids.map(|id| (id, false)).collect(),
                paused: false,
            }))
        }
        Err(_) if is_refused => Ok(None),
        Err(error) => Err(error),
    }
}

/// The same, one statement after another.
async fn in_turn(
    conn: &mut Conn,
    planned: &[Planned<'_>],
    args: Args<'_>,
) -> Result<Guarded, Error> {
    // Where branches arrive at a barrier, the last one is known only after a read.
    let arrives = planned.iter().any(|row| row.arrives_at.is_some());
    if CLOSE_ALL.is_for(conn.dialect())
        && !arrives
        && let Some(guarded) = whole(conn, planned, args).await?
    {
        return Ok(guarded);
    }
    let mut is_over = false;
    let written = conn.transaction(async |conn| {
        let mut answer = conn.fetch(&TOUCH_AND_CLOSE, args).await?.into_iter();
        let Some(process) = answer.next() else {
            return Ok(Guarded::Dead);
        };
        // The first row is an execution, and not the process's own row, in two cases: this commit arrives after its
        // epoch has ended, when nobody waits for its answer any more; or the process was declared dead while somebody
        // had locked the execution. The error undoes everything. If the ROLLBACK fails, the server rolls back when it
        // misses the connection.
        if process.get::<uuid::Uuid>("id").is_err() {
            is_over = true;
            return Err(Error::Corrupt("its process was declared dead".to_owned()));
        }
        let paused = pause::is_told(&process)?;
        let mut last = HashMap::with_capacity(planned.len());
        for row in answer {
            last.insert(ExecutionId(row.get("execution_id")?), false);
        }
        let ours = |row: &&Planned<'_>| last.contains_key(&row.of.claimed.execution_id);
        let ours: Vec<&Planned<'_>> = planned.iter().filter(ours).collect();
        failpoint!(conn, "commit.guarded");
        for id in last_at_barriers(conn, &ours).await? {
            last.insert(id, true);
        }
        let is_last = |row: &&Planned<'_>| i64::from(last[&row.of.claimed.execution_id]);
        let rows = rows(&ours).ints("last", ours.iter().map(is_last));
        let moves = ours.iter().filter(|row| row.moves()).count();
        let more = [("held", (&rows).into()), ("moves", moves.into())];
        let args: Vec<_> = args.iter().cloned().chain(more).collect();
        let write = match ours.iter().all(|row| row.is_simple()) {
            true => &WRITE_SIMPLE_RESULTS,
            false => &WRITE_RESULTS,
        };
        conn.fetch_and_commit(write, &args).await?;
        Ok(Guarded::Ours { last, paused })
    });
    match written.await {
        Err(_) if is_over => Ok(Guarded::Dead),
        written => written,
    }
}

/// Of the arriving branches, those that would be the last at their barriers.
async fn last_at_barriers(
    conn: &mut Conn,
    ours: &[&Planned<'_>],
) -> Result<Vec<ExecutionId>, Error> {
    let mut arriving: Vec<_> = ours.iter().filter(|row| row.arrives_at.is_some()).collect();
    // Younger barriers first, as an advancer takes them.
    arriving.sort_unstable_by_key(|row| std::cmp::Reverse(row.arrives_at));
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

/// The rows to write for one result, if it still counts.
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
    /// The next attempt: of the step that follows, or of the same step again.
    attempt: Option<NewExecution<'a>>,
    /// The attempt is leased to the committer; it does not go to the queue.
    leased: bool,
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

/// Plans the results, sorted by their executions: some databases lock rows in the order of the batch.
fn plan(finished: &[Finished], mut room: usize) -> Vec<Planned<'_>> {
    let planned = finished.iter().map(|one| planned(one, &mut room));
    let mut planned: Vec<Planned<'_>> = planned.collect();
    planned.sort_unstable_by_key(|row| row.of.claimed.execution_id);
    planned
}

fn planned<'a>(finished: &'a Finished, room: &mut usize) -> Planned<'a> {
    let claimed = &finished.claimed;
    let hook = claimed.via.is_hook();
    let mut planned = Planned {
        of: finished,
        step_status: None,
        ready: false,
        ends: false,
        arrives_at: None,
        crossing: None,
        next: None,
        attempt: None,
        leased: false,
    };
    match finished.verdict {
        Verdict::Drop => {}
        Verdict::Again { delay, next } => {
            planned.attempt = Some(NewExecution {
                id: ExecutionId::new(),
                step_id: claimed.step_id,
                pipeline: &finished.definition.pipeline,
                attempt: claimed.attempt + 1,
                retry_count: next.retry_count,
                crash_count: next.crash_count,
                due_in: finished.ended.ending.due_in(delay).map(micros),
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
        self.leased = *room > 0 && delay.is_zero();
        *room -= usize::from(self.leased);
        let id = StepId::following(self.of.claimed.step_id, &node.name, 0);
        self.next = Some(Next {
            id,
            node: &node.name,
            step: node.step.as_deref().unwrap_or_default(),
        });
        // A branch that has begun precedes one that has not.
        let due_in = (!delay.is_zero()).then(|| micros(delay));
        self.attempt = Some(NewExecution::first(id, &definition.pipeline, due_in));
    }

    /// The row as it is sent to the database.
    fn row(&self) -> ResultRow<'a> {
        let (ended, claimed) = (&self.of.ended, &self.of.claimed);
        let error = ended.error.as_ref();
        let (crossing, next, attempt) = (self.crossing, self.next.as_ref(), self.attempt);
        ResultRow {
            execution_id: claimed.execution_id.0,
            result: ended.ending.result().as_str(),
            error_class: error.map(|error| error.class.as_str()),
            error_message: error.map(|error| error.message.as_str()),
            error_backtrace: error.and_then(|error| error.backtrace.as_deref()),
            log: ended.log.as_deref(),
            step_id: claimed.step_id.0,
            run_id: claimed.run_id.0,
            branch_id: claimed.branch_id.0,
            step_status: self.step_status.map(StepStatus::as_str),
            output: ended.output.as_deref().map(|output| output.get()),
            ready: i64::from(self.ready),
            ends: i64::from(self.ends),
            transition_id: crossing.map(|records| records.transition.0),
            via: crossing.map(|records| records.via.as_str()),
            produced: i64::from(next.is_some()),
            advancement_id: crossing.map(|records| records.advancement.0),
            claim_token: crossing.map(|records| records.token.0),
            next_step_id: next.map(|next| next.id.0),
            next_ordinal: claimed.step_ordinal + 1,
            next_node: next.map(|next| next.node),
            next_step: next.map(|next| next.step),
            attempt_id: attempt.map(|attempt| attempt.id.0),
            attempt_step_id: attempt.map(|attempt| attempt.step_id.0),
            attempt: attempt.map(|attempt| i64::from(attempt.attempt)),
            retry_count: attempt.map(|attempt| i64::from(attempt.retry_count)),
            crash_count: attempt.map(|attempt| i64::from(attempt.crash_count)),
            leased: i64::from(self.leased),
            due_in: attempt.and_then(|attempt| attempt.due_in),
            arrives_at: self.arrives_at.map(|fan_out| fan_out.0),
        }
    }

    /// True when an attempt of it goes to the queue.
    fn queues(&self) -> bool {
        self.attempt.is_some() && !self.leased
    }

    /// True when it arrives at no barrier and puts nothing into the queue.
    fn is_simple(&self) -> bool {
        self.arrives_at.is_none() && !self.queues()
    }

    /// True when it has no error and no log, and ends its step.
    fn is_bare(&self) -> bool {
        self.of.ended.error.is_none() && self.of.ended.log.is_none() && self.step_status.is_some()
    }

    /// True when its run ends with it.
    fn ends_run(&self) -> bool {
        self.ends && self.arrives_at.is_none()
    }

    /// True when its branch is written.
    fn moves(&self) -> bool {
        self.ready || self.crossing.is_some()
    }

    /// The step that follows, as if it had been claimed; `None` unless it was leased at birth.
    fn leased_next(&self) -> Option<Claimed> {
        let (next, attempt) = (self.next.as_ref()?, self.attempt.as_ref()?);
        let from = &self.of.claimed;
        self.leased.then_some(())?;
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
            caller: from.caller.clone(),
            input: self.of.ended.output.clone()?,
        })
    }
}

/// The crossing that may be made with the result: to one step on the same branch, or to the
/// branch's end. All other crossings take two phases, through an advancer.
fn simple(finished: &Finished) -> Option<Advance<'_>> {
    let output = finished.ended.output.as_deref()?;
    let claimed = &finished.claimed;
    if finished.verdict != Verdict::Succeed || claimed.via.is_hook() {
        return None;
    }
    let definition = &finished.definition;
    let node = definition.find(&claimed.node)?;
    let advance = crate::machine::advance::decide_simple(output, node, definition)?;
    // The end of a run that calls a hook is left to an advancer.
    let ends_run = matches!(advance, Advance::End { .. }) && claimed.fan_out_id.is_none();
    (!ends_run || definition.on_complete.is_none()).then_some(advance)
}

fn rows<'a>(planned: &[&Planned<'a>]) -> Rows<'a> {
    ResultRow::batch(planned.iter().map(|planned| planned.row()))
}

/// The answer for a batch whose guards have answered this.
fn committed(planned: &[Planned<'_>], guarded: Guarded, pipeline: &str) -> Committed {
    let (dead, lasts, paused) = match guarded {
        Guarded::Dead => (true, HashMap::new(), false),
        Guarded::Ours { last, paused } => (false, last, paused),
    };
    let mut committed = Committed {
        dead,
        paused,
        ..Committed::default()
    };
    for row in planned {
        let claimed = &row.of.claimed;
        let Some(last) = lasts.get(&claimed.execution_id) else {
            committed.stale.push(claimed.execution_id);
            continue;
        };
        committed.ready |= row.ready || *last;
        committed.advanced += usize::from(row.crossing.is_some() && !last);
        committed.leased_next.extend(row.leased_next());
        if row.queues() {
            committed.crossed.available.insert(pipeline.to_owned());
        }
        if row.ends_run() {
            let ended = (claimed.run_id, pipeline.to_owned(), RunStatus::Completed);
            committed.crossed.ended.push(ended);
        }
    }
    committed
}

/// Of these results, those for which a commit would have to wait at this moment, because a session of the database
/// has locked a row that the commit writes. It waits for no lock on a row.
pub async fn locked<'a>(
    conn: &mut Conn,
    among: impl Iterator<Item = &'a Finished>,
) -> Result<HashSet<ExecutionId>, Error> {
    if !conn.dialect().backend().is_server() {
        return Ok(HashSet::new());
    }
    let planned: Vec<Planned<'_>> = among.map(|one| planned(one, &mut 0)).collect();
    let id = |row: &Planned<'_>| row.of.claimed.execution_id.0;
    let run = |row: &Planned<'_>| row.ends_run().then_some(row.of.claimed.run_id.0);
    let barrier = |row: &Planned<'_>| row.arrives_at.map(|barrier| barrier.0);
    let (whole, alone): (Vec<_>, Vec<_>) = planned
        .iter()
        .partition(|row| row.moves() || row.step_status.is_some());
    let mut free = unlocked(conn, &UNLOCKED_RESULTS, whole.into_iter().map(id)).await?;
    // Another attempt leaves the step and the branch alone.
    free.extend(unlocked(conn, &claim::UNLOCKED, alone.into_iter().map(id)).await?);
    let runs = unlocked(conn, &UNLOCKED_RUNS, planned.iter().filter_map(run)).await?;
    let barriers = planned.iter().filter_map(barrier);
    let barriers = unlocked(conn, &UNLOCKED_BARRIERS, barriers).await?;
    let is_locked = |row: &&Planned<'_>| {
        !free.contains(&id(row))
            || run(row).is_some_and(|run| !runs.contains(&run))
            || barrier(row).is_some_and(|barrier| !barriers.contains(&barrier))
    };
    let locked: Vec<_> = planned.iter().filter(is_locked).map(id).collect();
    if locked.is_empty() {
        return Ok(HashSet::new());
    }
    let rows = Rows::new().ids("id", locked);
    let mut open = HashSet::new();
    for row in conn.fetch(&OPEN_RESULTS, &[("b", (&rows).into())]).await? {
        if row.get::<i64>("is_open")? == 1 {
            open.insert(ExecutionId(row.get("id")?));
        }
    }
    Ok(open)
}

/// Returns, after a COMMIT whose answer was lost, which of these results had been committed. Their
/// own rows tell this, not a blind retry (E11).
pub async fn landed(
    conn: &mut Conn,
    finished: &[Finished],
    process: ProcessId,
) -> Result<HashSet<ExecutionId>, Error> {
    let rows = Rows::new().ids("id", finished.iter().map(|row| row.claimed.execution_id));
    let args = [("b", (&rows).into()), ("process", process.0.into())];
    failpoint!(conn, "landed.begin");
    let mut landed = HashSet::new();
    for row in conn.fetch_latest(&CLOSED_AS, &args).await? {
        let id = ExecutionId(row.get("id")?);
        let result: ExecutionResult = row.word("result")?;
        // A reaper closes with a result of its own; where it recorded our crash before us, the
        // result is the same.
        if finished
            .iter()
            .any(|row| row.claimed.execution_id == id && row.ended.ending.result() == result)
        {
            landed.insert(id);
        }
    }
    Ok(landed)
}
