//! Claiming executions.
//!
//! Owns: taking due availabilities off the queue and stamping their executions with the process and
//! a lease, in one transaction; putting back executions that were never started. Never: runs
//! anything.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::failpoint::failpoint;
use crate::machine::outcome::ExecutionView;
use crate::model::*;

use super::backend::Asks;
use super::batch;
use super::batch_size;
use super::conn::{Conn, Row};
use super::cursor::Cursor;
use super::definition::LeftOut;
use super::error::Error;
use super::micros;
use super::pause;
use super::process::{Claimant, ids};
use super::statement::{Rows, Statement, statements};

macro_rules! readable {
    () => {
        "AND q.execution_id NOT IN (SELECT x.id FROM {rows:x(id id)})
               AND (SELECT r.definition FROM ductwork_executions e
                      JOIN ductwork_steps s ON s.id = e.step_id
                      JOIN ductwork_runs r ON r.id = s.run_id
                     WHERE e.id = q.execution_id) NOT IN (SELECT a.digest FROM {rows:a(digest text)})"
    };
}

statements! {
    /// A process whose row is gone, or has an epoch that no claimant has, was declared dead: it claims nothing until it
    /// has registered anew. A claim that it sent through a connection that it has given up since takes nothing either
    /// (`FENCE_EARLIER`). RACE: the reaper takes the row while we claim. Both write it, so one waits for the other: either
    /// the reaper sees our claims, or we see that the row is gone (C4, R3). Proven by
    /// `a_process_that_was_declared_dead_claims_nothing`. (I22)
    ///
    /// RACE: the pipeline is paused while we claim. A pause writes this row too: either it waits for us, and our claim
    /// precedes it, or we see that we are paused, and take nothing. Proven by
    /// `a_claim_that_waits_for_a_pause_takes_nothing` and `a_pause_waits_for_a_claim_that_is_under_way`.
    pub(crate) TOUCH_PROCESS = "
        UPDATE ductwork_processes SET beat_seq = beat_seq + 1, last_heartbeat_at = {now}
         WHERE id = :process AND epoch <= :epoch RETURNING id, last_heartbeat_at AS moment, paused",
        on Mysql [&TOUCH, &TOUCHED];
    TOUCHED in Mysql = "
        SELECT id, last_heartbeat_at AS moment, paused FROM ductwork_processes
         WHERE id = :process AND epoch <= :epoch";
    /// The same for callers that need not know whether they are paused.
    TOUCH = "
        UPDATE ductwork_processes SET beat_seq = beat_seq + 1, last_heartbeat_at = {now}
         WHERE id = :process AND epoch <= :epoch";
    CLAIM in Postgres from "backend/postgres/claim.sql";
    TAKE_AVAILABILITIES in Sqlite from "backend/sqlite/claim.sql", on Mysql [&DUE_AVAILABILITIES];
    DUE_AVAILABILITIES in Mysql from "backend/mysql/claim.sql";
    LATER_DUE in Mysql from "backend/mysql/claim.sql";
    DUE_READABLE in Mysql from "backend/mysql/claim.sql";
    REMOVE_AVAILABILITIES in Mysql from "backend/mysql/claim.sql";
    ALL_REMOVED in Mysql from "backend/mysql/claim.sql";
    ALL_STAMPED in Mysql from "backend/mysql/claim.sql";
    /// Takes everything that is due and locked by us off the queue and stamps it, or nothing of it.
    TAKE_LOCKED runs [&REMOVE_AVAILABILITIES, &ALL_REMOVED, &STAMP_EXECUTIONS, &ALL_STAMPED];
    STAMP_EXECUTIONS from "backend/sqlite/claim.sql";
    /// `TAKE_AVAILABILITIES` without the executions that this process leaves out: those that it could not read, and
    /// those that somebody has locked. It looks up the run of every due execution until it has enough, so only
    /// processes that leave out something use it.
    TAKE_READABLE = concat!("
        WITH due {materialized} (
            SELECT q.execution_id FROM ductwork_availabilities q
             WHERE q.pipeline = :pipeline AND q.due_at <= {now}
               AND (q.due_at, q.execution_id) > (:behind, :behind_id)
               ", readable!(), "
             ORDER BY q.due_at, q.execution_id LIMIT :n {skip_locked})
        DELETE FROM ductwork_availabilities
         WHERE {within:execution_id;SELECT execution_id FROM due}
        RETURNING execution_id AS id, due_at, {now} - due_at AS waited"),
        on Mysql [&DUE_READABLE];
    /// An input of up to 16 KiB is returned with its claim: for a thousand of them, the answer has 16
    /// MiB. Longer inputs are read separately, as many at once as fit.
    LOAD_CLAIMED = "
        SELECT e.id, e.step_id, e.attempt, e.retry_count, e.crash_count,
               s.run_id, s.branch_id, s.ordinal AS step_ordinal, s.node, s.step, s.via,
               CASE WHEN octet_length(s.input) <= 16384 THEN s.input END AS input,
               {big:octet_length(s.input)} AS size,
               br.fan_out_id, br.ordinal, r.definition, r.trace_parent, r.trace_state, r.baggage
          FROM {rows:b(id id)}
          JOIN ductwork_executions e ON {key:e.id;b.id} AND e.process_id = :process
          JOIN ductwork_steps s ON {key:s.id;e.step_id}
          JOIN ductwork_branches br ON {key:br.id;s.branch_id}
          JOIN ductwork_runs r ON {key:r.id;s.run_id}
         ORDER BY e.id";
    LARGE_INPUTS = "
        SELECT s.id, s.input FROM {rows:b(id id)} JOIN ductwork_steps s ON {key:s.id;b.id}";
    pub(super) LOCK_CLAIMED = "
        SELECT e.id FROM ductwork_executions e
         WHERE e.process_id = :process AND {any:e.id;b(id id)} AND e.result IS NULL
         ORDER BY e.id {lock}",
        on Mysql [&LOCK_CLAIMED_IN_TURN];
    LOCK_CLAIMED_IN_TURN in Mysql = "
        SELECT e.id FROM {rows:b(id id)} {join:ductwork_executions e} ON {key:e.id;b.id}
         WHERE e.process_id = :process AND e.result IS NULL
         ORDER BY e.id {lock}";
    /// A claimed execution that never started is treated as if it had not been claimed.
    UNCLAIM = "
        UPDATE {into:ductwork_executions;b(id id)}
           SET process_id = NULL, claimed_at = NULL, lease_until = NULL
          {from:b(id id)}
         WHERE {key:ductwork_executions.id;b.id}
           AND ductwork_executions.process_id = :process
           AND ductwork_executions.result IS NULL";
    /// Without a delay they precede everything that is due, as they did when they were claimed. They get the
    /// time of the queue's head and not their own, so that the queue never looks older than it is.
    QUEUE_AGAIN = "
        INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
        SELECT b.id, :pipeline,
               coalesce(CASE WHEN :delay > 0 THEN {now} + :delay END,
                        (SELECT CASE WHEN min(a.due_at) < {now} THEN min(a.due_at) - 1 END
                           FROM ductwork_availabilities a WHERE a.pipeline = :pipeline),
                        {now})
          FROM {rows:b(id id)}";
    NEXT_DUE = "
        SELECT min(due_at) - {now} AS wait FROM ductwork_availabilities WHERE pipeline = :pipeline";
    /// `NEXT_DUE` without the executions that this process leaves out.
    NEXT_READABLE_DUE = concat!("
        SELECT q.due_at - {now} AS wait FROM ductwork_availabilities q
         WHERE q.pipeline = :pipeline
           ", readable!(), "
         ORDER BY q.due_at, q.execution_id LIMIT 1");
    /// The executions that the next claim would take.
    DUE = concat!("
        SELECT q.execution_id AS id FROM ductwork_availabilities q
         WHERE q.pipeline = :pipeline AND q.due_at <= {now}
           ", readable!(), "
         ORDER BY q.due_at, q.execution_id LIMIT :n {skip_locked}");
    /// A condition would let PostgreSQL choose the index of everything that is open.
    ASK_QUEUED = "
        SELECT e.id, {big:CASE WHEN e.process_id IS NULL AND e.completed_at IS NULL THEN 1 ELSE 0 END} AS is_queued
          FROM ductwork_executions e WHERE {any:e.id;b(id id)}",
        on Mysql [&ASK_QUEUED_IN_TURN];
    ASK_QUEUED_IN_TURN in Mysql = "
        SELECT e.id, {big:CASE WHEN e.process_id IS NULL AND e.completed_at IS NULL THEN 1 ELSE 0 END} AS is_queued
          FROM {rows:b(id id)} {join:ductwork_executions e} ON {key:e.id;b.id}";
    pub(super) UNLOCKED = "
        SELECT e.id FROM ductwork_executions e WHERE {any:e.id;b(id id)} {skip_waiting}",
        on Mysql [&UNLOCKED_IN_TURN];
    UNLOCKED_IN_TURN in Mysql = "
        SELECT e.id FROM {rows:b(id id)} {join:ductwork_executions e} ON {key:e.id;b.id} {skip_waiting}";
    pub(crate) HELD = "
        SELECT id FROM ductwork_executions WHERE process_id = :process AND completed_at IS NULL{narrow: AND holder = :process}";
}

/// A claim that others may be in the way of begins at one of this many places. The first is the head of the queue, and
/// each other one is as many executions after the one before as the claim wants: of three claims at three nodes, few
/// meet.
const PLACES: usize = 8;

/// Claims begin at any of these places for this long after one that had to be tried again. Then the oldest executions
/// go first again, because only one node may have workers.
const SPREAD: Duration = Duration::from_secs(5);

/// An execution that this process owns.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The execution.
    pub execution_id: ExecutionId,
    /// Its step.
    pub step_id: StepId,
    /// The run.
    pub run_id: RunId,
    /// The branch.
    pub branch_id: BranchId,
    /// The step's place on its branch.
    pub step_ordinal: i64,
    /// The barrier at which the branch arrives.
    pub fan_out_id: Option<FanOutId>,
    /// The branch's place in that fan-out.
    pub ordinal: i64,
    /// The node's name.
    pub node: String,
    /// The step's name.
    pub step: String,
    /// How the step was reached.
    pub via: Via,
    /// The number of the attempt: 1, 2, ….
    pub attempt: u32,
    /// Errors of earlier attempts.
    pub retry_count: u32,
    /// Crashes of earlier attempts.
    pub crash_count: u32,
    /// The digest of the run's definition.
    pub definition: String,
    /// The caller that triggered the run, where it passed something on.
    pub caller: Option<Arc<Caller>>,
    /// The step's input. It may be an output that is being committed, so it is shared.
    pub input: Arc<Box<RawValue>>,
}

impl Claimed {
    /// True when the branch continues with it: when it is not the first attempt of the first step of a
    /// run or of an element.
    pub fn has_begun(&self) -> bool {
        self.attempt > 1 || !matches!(self.via, Via::Start | Via::Expand)
    }

    /// The budgets that its step has spent.
    pub fn view(&self) -> ExecutionView {
        ExecutionView {
            retry_count: self.retry_count,
            crash_count: self.crash_count,
        }
    }
}

/// An execution that this process owns and cannot run: a newer version wrote something that this one does
/// not know, or it is damaged in another way. It has to be put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The execution.
    pub execution_id: ExecutionId,
    /// The reason.
    pub reason: String,
}

impl Unread {
    fn of(execution_id: ExecutionId, error: Error) -> Self {
        let reason = match error {
            Error::Corrupt(reason) => reason,
            error => error.to_string(),
        };
        Self {
            execution_id,
            reason,
        }
    }
}

/// The result of a claim.
#[derive(Debug)]
pub enum Claim {
    /// These executions are ours. If they are fewer than requested, no more are due.
    Taken(Vec<Claimed>),
    /// This process was declared dead: it must register anew before it claims.
    Dead,
    /// The pipeline is paused: nothing is taken, even if executions are due.
    Paused,
}

/// The side results of a claim.
#[derive(Debug, PartialEq, Eq)]
pub struct Rest {
    /// The place of the last one taken.
    pub last: Cursor,
    /// Executions that were taken too and must be put back: together, the inputs are too large to hold.
    pub excess: Vec<ExecutionId>,
    /// Executions that were taken too and must be put back for others: this version cannot read them.
    pub unread: Vec<Unread>,
    /// How long each one taken had been due.
    pub waited: Vec<Duration>,
}

/// The executions that a process holds.
#[derive(Debug, Default)]
pub struct Held {
    /// The executions whose inputs were read.
    pub whole: Vec<Claimed>,
    /// The executions whose inputs are too long to read before it is known who wants them.
    pub large: Vec<ExecutionId>,
    /// The executions that cannot be read.
    pub unread: Vec<Unread>,
}

/// Takes up to `n` due executions of `pipeline` for the claimant's process, leased for `lease`; fewer
/// where their inputs are too much to hold. If one of them cannot be read, this is an error, and all are
/// put back.
pub async fn claim(
    conn: &mut Conn,
    claimant: Claimant,
    pipeline: &str,
    n: usize,
    lease: Duration,
) -> Result<Claim, Error> {
    let none = LeftOut::default();
    let claimed = claim_behind(conn, Cursor::FIRST, claimant, pipeline, n, lease, &none);
    let (claim, rest) = claimed.await?;
    let mut back = rest.excess;
    if let (Claim::Taken(taken), Some(_)) = (&claim, rest.unread.first()) {
        back.extend(rest.unread.iter().map(|unread| unread.execution_id));
        back.extend(taken.iter().map(|claimed| claimed.execution_id));
    }
    if !back.is_empty() {
        put_back(conn, claimant, pipeline, &back, Duration::ZERO).await?;
    }
    match rest.unread.into_iter().next() {
        Some(Unread { reason, .. }) => Err(Error::Corrupt(reason)),
        None => Ok(claim),
    }
}

/// The same for executions after a place that are not left out. The caller has to put back those
/// that are too much or cannot be read.
pub async fn claim_behind(
    conn: &mut Conn,
    cursor: Cursor,
    claimant: Claimant,
    pipeline: &str,
    n: usize,
    lease: Duration,
    left_out: &LeftOut,
) -> Result<(Claim, Rest), Error> {
    let request = Request {
        cursor,
        claimant,
        pipeline,
        n,
        lease,
        left_out,
    };
    failpoint!(conn, "claim.begin");
    let granted = match conn.asks() == Asks::Joined && left_out.is_empty() {
        true => joined(conn, &request).await?,
        false => in_turn(conn, &request).await?,
    };
    failpoint!(conn, "claim.end");
    match granted {
        Granted::Nothing(claim) => {
            let rest = Rest {
                last: cursor,
                excess: Vec::new(),
                unread: Vec::new(),
                waited: Vec::new(),
            };
            Ok((claim, rest))
        }
        Granted::Read { rows, last, waited } => {
            with_inputs(conn, understood(&rows)?, last, waited).await
        }
        // A server that received the writes together with their COMMIT is queried for them afterwards: they are
        // ours.
        Granted::Unread { ids, last, waited } => {
            let ids = Rows::new().ids("id", ids);
            let [process, _] = claimant.args();
            let args = [("b", (&ids).into()), process];
            let rows = conn.fetch_autocommit(&LOAD_CLAIMED, &args).await?;
            with_inputs(conn, understood(&rows)?, last, waited).await
        }
    }
}

/// The terms of a claim: those of [`claim_behind`].
struct Request<'a> {
    cursor: Cursor,
    claimant: Claimant,
    pipeline: &'a str,
    n: usize,
    lease: Duration,
    left_out: &'a LeftOut,
}

/// The answer of a claim's transaction.
enum Granted {
    /// The process may take nothing.
    Nothing(Claim),
    /// The executions that were taken.
    Read {
        rows: Vec<Row>,
        last: Cursor,
        waited: Vec<Duration>,
    },
    /// The same, of executions that have yet to be read.
    Unread {
        ids: Vec<uuid::Uuid>,
        last: Cursor,
        waited: Vec<Duration>,
    },
}

/// Claims with one statement.
async fn joined(conn: &mut Conn, request: &Request<'_>) -> Result<Granted, Error> {
    let [process, epoch] = request.claimant.args();
    let [behind, behind_id] = request.cursor.args();
    let args = [
        process,
        epoch,
        ("pipeline", request.pipeline.into()),
        ("lease", micros(request.lease).into()),
        ("n", request.n.into()),
        behind,
        behind_id,
    ];
    let mut rows = conn.fetch_autocommit(&CLAIM, &args).await?;
    match rows.first() {
        None => return Ok(Granted::Nothing(Claim::Dead)),
        Some(row) if pause::is_told(row)? => return Ok(Granted::Nothing(Claim::Paused)),
        Some(_) => {}
    }
    rows.retain(|row| !matches!(row.get::<Option<uuid::Uuid>>("id"), Ok(None)));
    let last = match rows.first() {
        Some(row) => Cursor::of(row, "last_due_at", "last_id")?,
        None => request.cursor,
    };
    let waited = waited(&rows)?;
    Ok(Granted::Read { rows, last, waited })
}

/// The same, one statement after another.
async fn in_turn(conn: &mut Conn, request: &Request<'_>) -> Result<Granted, Error> {
    let mut tries = 0;
    let granted = conn.transaction(async |conn| {
        tries += 1;
        if tries > 1 && conn.is_in_cluster() {
            conn.spreads = Some(Instant::now() + SPREAD);
        }
        match conn
            .fetch_optional(&TOUCH_PROCESS, &request.claimant.args())
            .await?
        {
            None => return Ok(Granted::Nothing(Claim::Dead)),
            Some(row) if pause::is_told(&row)? => return Ok(Granted::Nothing(Claim::Paused)),
            Some(_) => {}
        }
        let taken = take(conn, request, tries > 1).await?;
        if taken.is_empty() {
            return Ok(Granted::Read {
                rows: Vec::new(),
                last: request.cursor,
                waited: Vec::new(),
            });
        }
        failpoint!(conn, "claim.taken");
        stamp(conn, request, &taken).await
    });
    granted.await
}

/// Takes these executions off the queue, in the same transaction, which it commits.
async fn stamp(conn: &mut Conn, request: &Request<'_>, taken: &[Row]) -> Result<Granted, Error> {
    let ids = ids(taken)?;
    let cursors = taken.iter().map(|row| Cursor::of(row, "due_at", "id"));
    let cursors = cursors.collect::<Result<Vec<_>, Error>>()?;
    let last = cursors.into_iter().max().unwrap_or(request.cursor);
    let waited = waited(taken)?;
    let [process, _] = request.claimant.args();
    let lease = ("lease", micros(request.lease).into());
    let rows = Rows::new().ids("id", ids.iter().copied());
    let args = [("taken", (&rows).into()), process.clone(), lease];
    // I2: an available execution is unclaimed.
    if REMOVE_AVAILABILITIES.is_for(conn.dialect()) {
        failpoint!(conn, "claim.written");
        let more = [("b", (&rows).into()), ("count", taken.len().into())];
        let args: Vec<_> = args.into_iter().chain(more).collect();
        conn.fetch_and_commit(&TAKE_LOCKED, &args).await?;
        return Ok(Granted::Unread { ids, last, waited });
    }
    conn.write(&STAMP_EXECUTIONS, &args, taken.len()).await?;
    failpoint!(conn, "claim.written");
    let args = [("b", (&rows).into()), process];
    let rows = conn.fetch_and_commit(&LOAD_CLAIMED, &args).await?;
    Ok(Granted::Read { rows, last, waited })
}

/// Takes the next executions after a place that are not left out, or locks them where they are removed later.
///
/// RACE: on a cluster, no node sees the locks of another, so claims at several nodes lock the same first executions of a
/// long queue, and all but one of them are refused. One that is tried again begins at a random place, and so do the next
/// ones that would begin at the head. Proven by
/// `a_worker_that_lost_to_another_node_claims_past_the_head_for_a_while`.
async fn take(
    conn: &mut Conn,
    request: &Request<'_>,
    is_tried_again: bool,
) -> Result<Vec<Row>, Error> {
    let (cursor, left_out) = (request.cursor, request.left_out);
    let pipeline = ("pipeline", request.pipeline.into());
    let n = ("n", request.n.into());
    let spreads = conn.spreads.is_some_and(|until| Instant::now() < until);
    if spreads && left_out.is_empty() && (is_tried_again || cursor == Cursor::FIRST) {
        let random = random_cursor(conn, request).await?;
        if random != cursor {
            let [behind, behind_id] = random.args();
            let args = [pipeline.clone(), n.clone(), behind, behind_id];
            let taken = conn.fetch(&TAKE_AVAILABILITIES, &args).await?;
            // The caller takes fewer to mean that no more are due, but here others of this node have locked some. These
            // stay locked while the first ones are taken instead, which is rare.
            if taken.len() == request.n {
                return Ok(taken);
            }
        }
    }
    let [behind, behind_id] = cursor.args();
    let [rows, digests] = left_out.rows();
    let args = [
        pipeline,
        n,
        behind,
        behind_id,
        ("x", (&rows).into()),
        ("a", (&digests).into()),
    ];
    match left_out.is_empty() {
        true => conn.fetch(&TAKE_AVAILABILITIES, &args[..4]).await,
        false => conn.fetch(&TAKE_READABLE, &args).await,
    }
}

/// A random cursor after that of the claim from which as many executions as are wanted are due, or that of the claim.
async fn random_cursor(conn: &mut Conn, request: &Request<'_>) -> Result<Cursor, Error> {
    let (cursor, n) = (request.cursor, request.n);
    let skipped = (super::chance() * PLACES as f64) as usize * n;
    let Some(last) = skipped.checked_sub(1) else {
        return Ok(cursor);
    };
    let [behind, behind_id] = cursor.args();
    let (last, end) = (("last", last.into()), ("end", (last + n).into()));
    let pipeline = ("pipeline", request.pipeline.into());
    let args = [pipeline, last, end, behind, behind_id];
    match conn.fetch_optional(&LATER_DUE, &args).await? {
        Some(row) if row.get::<Option<i64>>("reaches")?.is_some() => {
            Cursor::of(&row, "due_at", "id")
        }
        _ => Ok(cursor),
    }
}

/// How long these had been due. After the clock was set back, it cannot tell.
fn waited(rows: &[Row]) -> Result<Vec<Duration>, Error> {
    let waited = |row: &Row| {
        Ok(Duration::from_micros(
            row.get::<i64>("waited")?.max(0) as u64
        ))
    };
    rows.iter().map(waited).collect()
}

/// Reads the inputs that were not returned with the claim, as many as fit in addition to those that were.
/// If an input is gone, its run was cancelled and pruned meanwhile: its execution is put back like those
/// that do not fit, and the put-back finds that it is not held any more.
async fn with_inputs(
    conn: &mut Conn,
    (mut taken, mut unread): (Vec<Taken>, Vec<Unread>),
    last: Cursor,
    waited: Vec<Duration>,
) -> Result<(Claim, Rest), Error> {
    let sizes = taken.iter().map(|taken| taken.size);
    let fit = batch_size::first(taken.len(), sizes);
    let mut excess: Vec<ExecutionId> = taken
        .drain(fit..)
        .map(|taken| taken.claimed.execution_id)
        .collect();
    let large = taken.iter().filter(|taken| taken.is_large);
    let large: Vec<StepId> = large.map(|taken| taken.claimed.step_id).collect();
    let mut inputs = HashMap::new();
    if !large.is_empty() {
        let rows = Rows::new().ids("id", large);
        for row in conn.fetch(&LARGE_INPUTS, &[("b", (&rows).into())]).await? {
            inputs.insert(StepId(row.get("id")?), row.get("input").and_then(raw));
        }
    }
    let mut claimed = Vec::with_capacity(taken.len());
    for Taken {
        claimed: mut it,
        is_large,
        ..
    } in taken
    {
        match (is_large, inputs.remove(&it.step_id)) {
            (false, _) => claimed.push(it),
            (true, Some(Ok(input))) => {
                it.input = Arc::new(input);
                claimed.push(it);
            }
            // A damaged row holds up no other.
            (true, Some(Err(error))) => unread.push(Unread::of(it.execution_id, error)),
            (true, None) => excess.push(it.execution_id),
        }
    }
    let rest = Rest {
        last,
        excess,
        unread,
        waited,
    };
    Ok((Claim::Taken(claimed), rest))
}

/// The claimed executions, and those that this version cannot read: one such row does not hold up the
/// others.
fn understood(rows: &[Row]) -> Result<(Vec<Taken>, Vec<Unread>), Error> {
    let (mut understood, mut unread) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        match taken(row) {
            Ok(taken) => understood.push(taken),
            Err(error) => unread.push(Unread::of(ExecutionId(row.get("id")?), error)),
        }
    }
    Ok((understood, unread))
}

/// The guarded write at the beginning of every claim; false when the process was declared dead.
pub(super) async fn touch(conn: &mut Conn, claimant: Claimant) -> Result<bool, Error> {
    Ok(conn.execute(&TOUCH, &claimant.args()).await? == 1)
}

/// Puts executions that the claimant's process has claimed but not started back into the queue: no
/// attempt was made, so none is closed. They are due again after `delay`. Those that the process no
/// longer holds stay as they are. Returns how many were put back.
///
/// If this arrives late, somebody may have claimed the same executions since: it is fenced as claims are.
pub async fn put_back(
    conn: &mut Conn,
    claimant: Claimant,
    pipeline: &str,
    executions: &[ExecutionId],
    delay: Duration,
) -> Result<usize, Error> {
    let rows = Rows::new().ids("id", batch::in_order(executions.iter().copied()));
    conn.transaction(async |conn| {
        if !touch(conn, claimant).await? {
            return Ok(0);
        }
        let args = [
            ("b", (&rows).into()),
            ("process", claimant.process.0.into()),
        ];
        let ours = ids(&conn.fetch(&LOCK_CLAIMED, &args).await?)?;
        if !ours.is_empty() {
            let rows = Rows::new().ids("id", ours.iter().copied());
            let rows = ("b", (&rows).into());
            let args = [rows.clone(), ("process", claimant.process.0.into())];
            conn.write(&UNCLAIM, &args, ours.len()).await?;
            let args = [
                rows,
                ("pipeline", pipeline.into()),
                ("delay", micros(delay).into()),
            ];
            conn.write(&QUEUE_AGAIN, &args, ours.len()).await?;
        }
        Ok(ours.len())
    })
    .await
}

/// An execution that was taken.
struct Taken {
    /// The claim. Its input is `null` where it was not returned with it.
    claimed: Claimed,
    is_large: bool,
    /// The size of the input.
    size: usize,
}

fn taken(row: &Row) -> Result<Taken, Error> {
    let input = row.get::<Option<String>>("input")?;
    let is_large = input.is_none();
    let input = input.map_or_else(|| Ok(RawValue::NULL.to_owned()), raw)?;
    let claimed = Claimed {
        execution_id: ExecutionId(row.get("id")?),
        step_id: StepId(row.get("step_id")?),
        run_id: RunId(row.get("run_id")?),
        branch_id: BranchId(row.get("branch_id")?),
        step_ordinal: row.get("step_ordinal")?,
        fan_out_id: row.get::<Option<uuid::Uuid>>("fan_out_id")?.map(FanOutId),
        ordinal: row.get("ordinal")?,
        node: row.get("node")?,
        step: row.get("step")?,
        via: row.word("via")?,
        attempt: row.count("attempt")?,
        retry_count: row.count("retry_count")?,
        crash_count: row.count("crash_count")?,
        definition: row.get("definition")?,
        caller: caller(row)?,
        input: Arc::new(input),
    };
    Ok(Taken {
        claimed,
        is_large,
        size: usize::try_from(row.get::<i64>("size")?).unwrap_or(usize::MAX),
    })
}

/// Time until the next execution of `pipeline` that is not left out is due: zero when one is due, `None`
/// when there is none. One statement, for callers that would otherwise open a transaction to find
/// nothing.
pub async fn next_due(
    conn: &mut Conn,
    pipeline: &str,
    left_out: &LeftOut,
) -> Result<Option<Duration>, Error> {
    let [rows, digests] = left_out.rows();
    let args = [
        ("pipeline", pipeline.into()),
        ("x", (&rows).into()),
        ("a", (&digests).into()),
    ];
    let row = match left_out.is_empty() {
        true => conn.fetch_optional(&NEXT_DUE, &args[..1]).await?,
        false => conn.fetch_optional(&NEXT_READABLE_DUE, &args).await?,
    };
    until(row.as_ref())
}

/// The time that a row says is left, if it says so: none where that time has passed.
pub(super) fn until(row: Option<&Row>) -> Result<Option<Duration>, Error> {
    let wait: Option<i64> = row.map(|row| row.get("wait")).transpose()?.flatten();
    Ok(wait.map(|wait| Duration::from_micros(wait.max(0).unsigned_abs())))
}

/// The first executions that are due and not left out: those that a claim of as many takes.
pub async fn due(
    conn: &mut Conn,
    pipeline: &str,
    left_out: &LeftOut,
    n: usize,
) -> Result<Vec<ExecutionId>, Error> {
    let [rows, digests] = left_out.rows();
    let args = [
        ("pipeline", pipeline.into()),
        ("x", (&rows).into()),
        ("a", (&digests).into()),
        ("n", n.into()),
    ];
    let rows = conn.fetch(&DUE, &args).await?;
    Ok(ids(&rows)?.into_iter().map(ExecutionId).collect())
}

/// Of these executions, those that are in the queue and for whose rows a claim would have to wait at this moment. It
/// waits for no lock on a row.
pub async fn locked(conn: &mut Conn, among: &[ExecutionId]) -> Result<Vec<ExecutionId>, Error> {
    if !conn.dialect().backend().is_server() {
        return Ok(Vec::new());
    }
    let among = || among.iter().map(|id| id.0);
    let unlocked = unlocked(conn, &UNLOCKED, among()).await?;
    let rows = Rows::new().ids("id", among());
    let args = [("b", (&rows).into())];
    let mut locked = Vec::new();
    for row in conn.fetch(&ASK_QUEUED, &args).await? {
        let id = row.get("id")?;
        if row.get::<i64>("is_queued")? == 1 && !unlocked.contains(&id) {
            locked.push(ExecutionId(id));
        }
    }
    Ok(locked)
}

/// The keys of those of these rows that the statement finds without a lock.
pub(super) async fn unlocked(
    conn: &mut Conn,
    statement: &'static Statement,
    among: impl Iterator<Item = uuid::Uuid>,
) -> Result<HashSet<uuid::Uuid>, Error> {
    let among: HashSet<_> = among.collect();
    if among.is_empty() {
        return Ok(among);
    }
    let rows = Rows::new().ids("id", among);
    let free = conn.fetch(statement, &[("b", (&rows).into())]).await?;
    free.iter().map(|row| row.get("id")).collect()
}

/// Everything that `process` holds: the executions that it knows of, and those that it got in a
/// transaction whose answer was lost.
pub async fn held(conn: &mut Conn, process: ProcessId) -> Result<Held, Error> {
    let args = [("process", process.0.into())];
    let rows = conn.fetch_latest(&HELD, &args).await?;
    let rows = Rows::new().ids("id", ids(&rows)?);
    let args = [("b", (&rows).into()), ("process", process.0.into())];
    let loaded = conn.fetch(&LOAD_CLAIMED, &args).await?;
    let (understood, unread) = understood(&loaded)?;
    let mut held = Held {
        unread,
        ..Held::default()
    };
    for Taken {
        claimed, is_large, ..
    } in understood
    {
        match is_large {
            true => held.large.push(claimed.execution_id),
            false => held.whole.push(claimed),
        }
    }
    Ok(held)
}

/// The caller that triggered a run. A text that another version may have written there counts as none, and is no
/// error.
fn caller(row: &Row) -> Result<Option<Arc<Caller>>, Error> {
    let text = |column| row.get::<Option<String>>(column);
    let (span, state, baggage) = (
        text("trace_parent")?,
        text("trace_state")?,
        text("baggage")?,
    );
    if span.is_none() && baggage.is_none() {
        return Ok(None);
    }
    let caller = Caller::read(span.as_deref(), state.as_deref(), baggage.as_deref());
    Ok(Some(Arc::new(caller)))
}

/// A stored payload as JSON.
pub(super) fn raw(text: String) -> Result<Box<RawValue>, Error> {
    RawValue::from_string(text)
        .map_err(|error| Error::Corrupt(format!("a payload is not JSON: {error}")))
}
