//! Process rows: which processes are alive, what they hold, and giving it back when they are dead.
//!
//! Owns: registration, heartbeats with their leases, recovery. Never: decides that a process is
//! dead; the reaper does (`engine::reaper`), with proof or with two witnesses.

use std::sync::Arc;
use std::time::Duration;

use crate::definition::Definition;
use crate::failpoint::failpoint;
use crate::machine::outcome::{self, Ending, ExecutionView, StepLimits, Verdict};
use crate::model::*;

use super::batch;
use super::claim::HELD;
use super::conn::{Conn, Row};
use super::definition::Definitions;
use super::departed;
use super::error::Error;
use super::statement::{Arg, Args, Rows, Statement, statements};
use super::transition::insert::{self, NewExecution};
use super::{metrics, micros, pause};

macro_rules! beat {
    () => {
        "
        UPDATE ductwork_processes
           SET beat_seq = beat_seq + 1, last_heartbeat_at = {now},
               worked_at = CASE WHEN claimed = :claimed AND advanced = :advanced THEN worked_at ELSE {now} END,
               claimed = :claimed, succeeded = :succeeded, errored = :errored, crashed = :crashed,
               advanced = :advanced, stale = :stale, statements = :statements, quiet = :quiet
         WHERE id = :id"
    };
}

statements! {
    REGISTER = "
        INSERT INTO ductwork_processes
            (id, supervisor_id, role, pipeline, host, boot_id, pid_namespace, pid, pid_started_at,
             version, started_at, last_heartbeat_at, paused)
        VALUES (:id, :supervisor, :role, :pipeline, :host, :boot_id, :pid_namespace, :pid,
                :pid_started_at, :version, {now}, {now}, :paused)";
    /// Where the database sends no notifications, the answer tells whether there are other processes that cannot
    /// be heard: on another host, or in another container of this one, which may have sockets of its own. On
    /// SQLite all are on one host.
    BEAT = concat!(beat!(), " RETURNING paused, {big:0} AS elsewhere"), on Mysql [&BEAT_ALONE, &BEAT_HEARD];
    /// For a process that receives no orders: one statement everywhere.
    BEAT_ALONE = beat!();
    BEAT_HEARD in Mysql = "
        SELECT p.paused,
               EXISTS (SELECT 1 FROM ductwork_processes o
                        WHERE o.boot_id <> p.boot_id OR o.pid_namespace <> p.pid_namespace) AS elsewhere
          FROM ductwork_processes p WHERE p.id = :id";
    TELL = "
        UPDATE ductwork_processes SET trouble = :trouble, troubled_at = {now} - :lasted WHERE id = :id";
    /// Rows that somebody else has locked are left to the next beat: a lease is six beats long. RACE: a
    /// wide run is cancelled, or somebody looks at rows `FOR UPDATE`, and keeps the rows that we hold
    /// locked for longer than a lease. A beat that waited for them would make a healthy process look
    /// dead. Proven by `a_beat_waits_for_no_lock_on_what_the_process_holds`.
    LEASED_EXECUTIONS = "
        SELECT id FROM ductwork_executions WHERE process_id = :id AND completed_at IS NULL{narrow: AND holder = :id} {skip_locked}";
    EXTEND_LEASES = "
        UPDATE {into:ductwork_executions;b(id id)} SET lease_until = {now} + :lease
         WHERE {of:ductwork_executions.id;b(id id)} AND process_id = :id AND completed_at IS NULL";
    LEASED_ADVANCEMENTS = "
        SELECT id FROM ductwork_advancements WHERE process_id = :id AND completed_at IS NULL{narrow: AND holder = :id} {skip_locked}";
    EXTEND_ADVANCEMENTS = "
        UPDATE {into:ductwork_advancements;b(id id)} SET lease_until = {now} + :lease
         WHERE {of:ductwork_advancements.id;b(id id)} AND process_id = :id AND completed_at IS NULL{narrow: AND holder = :id}";
    PROCESSES = "
        SELECT p.id, p.supervisor_id, p.role, p.pipeline, p.host, p.boot_id, p.pid_namespace, p.pid,
               p.pid_started_at, p.version, p.started_at, p.last_heartbeat_at, p.beat_seq,
               {now} AS seen_at, p.claimed, p.succeeded, p.errored, p.crashed,
               p.advanced, p.stale, p.statements, p.quiet, p.paused,
               (SELECT count(*) FROM (SELECT b.id FROM ductwork_branches b WHERE b.ready_at > {now} LIMIT 1) w) AS postponed
          FROM ductwork_processes p ORDER BY p.started_at, p.id";
    /// A row that somebody has locked cannot be beaten: its silence says nothing about its process. On SQLite
    /// nobody locks a row.
    BEATABLE = "
        SELECT id FROM ductwork_processes WHERE {any:id;b(id id)} {skip_locked}";
    /// A lease is as long as its holder's configuration says, which may differ from ours. A heartbeat that is later
    /// than the clock was written before the clock was set back, and so were the leases.
    UNDER_LEASE = "
        SELECT p.id FROM ductwork_processes p
         WHERE {any:p.id;b(id id)} AND p.last_heartbeat_at <= {now}
           AND (EXISTS (SELECT 1 FROM ductwork_executions e {found:ductwork_executions_claimed}
                         WHERE e.process_id = p.id AND e.completed_at IS NULL AND e.process_id IS NOT NULL{narrow: AND e.holder = p.id}
                           AND e.lease_until > {now})
                OR EXISTS (SELECT 1 FROM ductwork_advancements a {found:ductwork_advancements_claimed}
                            WHERE a.process_id = p.id AND a.completed_at IS NULL{narrow: AND a.holder = p.id}
                              AND a.lease_until > {now}))";
    /// RACE: the process that is believed dead beats, or claims, between our look and this write (H1). Both raise
    /// `beat_seq`, so the row no longer matches and nothing happens. A heartbeat that is later than the clock does
    /// not tell its age: the clock was set back since. With proof of death `seen` is absent. The claims that the
    /// process made before this write are visible after it; afterwards it can claim nothing, because its row is
    /// gone (C4). Proven by `a_beat_between_look_and_recovery_saves_the_process`. (I22)
    REMOVE_PROCESS = "
        DELETE FROM ductwork_processes
         WHERE id = :id AND (:proven = 1 OR (beat_seq = :seen
               AND (last_heartbeat_at <= {now} - :age OR last_heartbeat_at > {now})))";
    LOCK_EXECUTIONS = "
        SELECT id FROM ductwork_executions
         WHERE process_id = :id AND completed_at IS NULL{narrow: AND holder = :id} ORDER BY id {lock}";
    LOST_EXECUTIONS = "
        UPDATE {into:ductwork_executions;b(id id)}
           SET completed_at = {now}, result = :result, error_class = :class, error_message = :message
         WHERE {of:ductwork_executions.id;b(id id)} AND process_id = :id AND completed_at IS NULL";
    LOST_STEPS = "
        SELECT e.id, e.step_id, e.pipeline, e.attempt, e.retry_count, e.crash_count,
               s.step, s.branch_id, s.run_id, s.via, r.definition
          FROM {rows:b(id id)}
          JOIN ductwork_executions e ON {key:e.id;b.id}
          JOIN ductwork_steps s ON {key:s.id;e.step_id}
          JOIN ductwork_runs r ON {key:r.id;s.run_id}
         ORDER BY e.id";
    FAIL_STEPS = "
        UPDATE {into:ductwork_steps;b(id id)} SET status = 'failed', completed_at = {now}
          {from:b(id id)}
         WHERE {key:ductwork_steps.id;b.id} AND ductwork_steps.status = 'in_progress'";
    FAILED_BRANCHES = "
        UPDATE {into:ductwork_branches;b(id id)} SET ready_at = {now}
          {from:b(id id)}
         WHERE {key:ductwork_branches.id;b.id} AND ductwork_branches.status = 'in_progress'";
    LOCK_ADVANCEMENTS = "
        SELECT id, branch_id, claim_token FROM ductwork_advancements
         WHERE process_id = :id AND completed_at IS NULL{narrow: AND holder = :id} ORDER BY id {lock}";
    LOST_ADVANCEMENTS = "
        UPDATE {into:ductwork_advancements;b(id id)}
           SET completed_at = {now}, result = :result, error_class = :class, error_message = :message
         WHERE {of:ductwork_advancements.id;b(id id)} AND process_id = :id AND completed_at IS NULL{narrow: AND holder = :id}";
    COUNT_CRASHES = "
        UPDATE {into:ductwork_transitions;b(id id)} {found:ductwork_transitions_open} SET crash_count = crash_count + 1
          {from:b(id id)}
         WHERE {key:ductwork_transitions.branch_id;b.id}
           AND ductwork_transitions.completed_at IS NULL{narrow: AND ductwork_transitions.open_branch = b.id}";
    LOCK_BRANCHES = "
        SELECT br.id, br.claim_token FROM {rows:b(id id, token id)}
          {join:ductwork_branches br} ON {key:br.id;b.id} AND br.claim_token = b.token
         ORDER BY br.id {lock}";
    GIVE_BACK_BRANCHES = "
        UPDATE {into:ductwork_branches;b(id id, token id)}
           SET status = 'in_progress', claim_token = NULL, claimed_for_advancing_at = NULL, ready_at = {now},
               last_advanced_at = {now}
          {from:b(id id, token id)}
         WHERE {key:ductwork_branches.id;b.id} AND ductwork_branches.claim_token = b.token";
    /// RACE: a connection was given up, and the claim that was sent through it arrives after we read
    /// what we hold: nobody would ever run the executions that it claims for us, and our heartbeats
    /// would keep them. The epoch rises before we read. Both write the row, so one waits for the
    /// other: either we see the claim, or the claim finds that its epoch is over. The epoch never
    /// falls: this write, too, may arrive late. Proven by
    /// `a_claim_through_a_connection_that_was_given_up_claims_nothing`.
    FENCE_EARLIER = "
        UPDATE ductwork_processes SET epoch = :epoch WHERE id = :process AND epoch < :epoch";
    /// RACE: a claim is still under way, through a connection that was given up. The row is locked
    /// before the statement that reads what is held: a single statement would read the state from
    /// before its wait for the claim. Proven by
    /// `a_process_that_ends_while_a_claim_of_it_is_under_way_keeps_its_row`. (I22)
    LOCK_PROCESS = "
        SELECT role, pipeline, host, pid, version, started_at FROM ductwork_processes
         WHERE id = :id {lock}";
    /// Work that could not be committed or given back before the end is still held: then the row stays
    /// until somebody proves the death, which happens at once, and not when a lease is over (I22, C4).
    DEREGISTER = "
        DELETE FROM ductwork_processes
         WHERE id = :id
           AND NOT EXISTS (SELECT 1 FROM ductwork_executions e
                            WHERE e.process_id = :id AND e.completed_at IS NULL{narrow: AND e.holder = :id})
           AND NOT EXISTS (SELECT 1 FROM ductwork_advancements a
                            WHERE a.process_id = :id AND a.completed_at IS NULL{narrow: AND a.holder = :id})";
    /// Claims without a process: these cannot exist, and are healed all the same (C4, H14).
    ORPHANS = "
        SELECT DISTINCT x.process_id FROM (
            SELECT process_id FROM ductwork_executions
             WHERE completed_at IS NULL AND process_id IS NOT NULL AND lease_until < {now}{narrow: AND holder IS NOT NULL}
            UNION ALL
            SELECT process_id FROM ductwork_advancements
             WHERE completed_at IS NULL AND lease_until < {now}{narrow: AND holder IS NOT NULL}) x
         WHERE NOT EXISTS (SELECT 1 FROM ductwork_processes p WHERE {key:p.id;x.process_id})";
}

/// A process to register.
#[derive(Clone, Debug)]
pub struct NewProcess {
    /// Its key: minted at start, never adopted.
    pub id: ProcessId,
    /// The supervisor that forked it.
    pub supervisor: Option<ProcessId>,
    /// Its purpose.
    pub role: Role,
    /// For a worker, the pipeline whose jobs it works on.
    pub pipeline: Option<String>,
    /// The host that it runs on.
    pub host: String,
    /// The kernel's boot id.
    pub boot_id: String,
    /// Its pid namespace.
    pub pid_namespace: String,
    /// Its pid there.
    pub pid: u32,
    /// The kernel's start time of that pid.
    pub pid_started_at: u64,
}

/// A process in its role as a claimant: it claims through one connection at a time, and an epoch
/// ends with each connection that it gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The process.
    pub process: ProcessId,
    /// How many connections it has given up.
    pub epoch: u32,
}

impl Claimant {
    /// A process that has given up no connection.
    pub fn new(process: ProcessId) -> Self {
        Self { process, epoch: 0 }
    }

    /// The parameters of a statement that refers to it.
    pub(super) fn args(self) -> [(&'static str, Arg<'static>); 2] {
        [
            ("process", self.process.0.into()),
            ("epoch", i64::from(self.epoch).into()),
        ]
    }
}

/// Refuses from now on any claim for this process from an earlier epoch, and waits for those under
/// way: afterwards the process holds everything that it will ever hold, except for claims of this
/// epoch.
pub async fn fence_earlier(conn: &mut Conn, claimant: Claimant) -> Result<(), Error> {
    conn.execute(&FENCE_EARLIER, &claimant.args()).await?;
    Ok(())
}

/// A process row.
#[derive(Clone, Debug)]
pub struct ProcessRow {
    /// Its key.
    pub id: ProcessId,
    /// The supervisor that forked it.
    pub supervisor: Option<ProcessId>,
    /// Its purpose.
    pub role: Role,
    /// The pipeline whose jobs it works on.
    pub pipeline: Option<String>,
    /// The host that it runs on.
    pub host: String,
    /// The kernel's boot id.
    pub boot_id: String,
    /// Its pid namespace.
    pub pid_namespace: String,
    /// Its pid there.
    pub pid: u32,
    /// The kernel's start time of that pid.
    pub pid_started_at: u64,
    /// The program's version.
    pub version: String,
    /// µs since 1970.
    pub started_at: i64,
    /// µs since 1970.
    pub last_heartbeat_at: i64,
    /// Rises with every sign of life.
    pub beat_seq: i64,
    /// The database's time when this was read, in µs since 1970.
    pub seen_at: i64,
    /// The time since its last heartbeat, by the database's clock.
    pub age: Duration,
    /// Its counters.
    pub counters: Counters,
    /// True where it claims nothing until it is told to.
    pub quiet: bool,
    /// True where it claims nothing because its pipeline is paused.
    pub paused: bool,
    /// True where a branch waited for a later time when this was read: the same in the rows of all
    /// processes.
    pub postponed: bool,
}

impl ProcessRow {
    /// True where both are rows of one process, which has one for each of its pipelines where it has no supervisor.
    pub fn is_same_process(&self, other: &Self) -> bool {
        self.pid == other.pid
            && self.pid_started_at == other.pid_started_at
            && self.pid_namespace == other.pid_namespace
            && self.boot_id == other.boot_id
    }
}

/// A process's counters since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Executions claimed.
    pub claimed: u64,
    /// Executions that succeeded.
    pub succeeded: u64,
    /// Executions that ended in an error or a timeout.
    pub errored: u64,
    /// Executions that were killed from outside.
    pub crashed: u64,
    /// Branches advanced.
    pub advanced: u64,
    /// Results and advances that came too late.
    pub stale: u64,
    /// Round trips to the database.
    pub statements: u64,
}

/// Creates the row of a process, and the row for its counts. A worker of a paused pipeline is
/// paused.
pub async fn register(conn: &mut Conn, process: &NewProcess) -> Result<(), Error> {
    failpoint!(conn, "register.begin");
    let args = [
        ("id", process.id.0.into()),
        ("supervisor", process.supervisor.map(|id| id.0).into()),
        ("role", process.role.as_str().into()),
        ("pipeline", process.pipeline.as_deref().into()),
        ("host", (&process.host).into()),
        ("boot_id", (&process.boot_id).into()),
        ("pid_namespace", (&process.pid_namespace).into()),
        ("pid", i64::from(process.pid).into()),
        ("pid_started_at", (process.pid_started_at as i64).into()),
        ("version", env!("CARGO_PKG_VERSION").into()),
    ];
    conn.transaction(async |conn| {
        let paused = match &process.pipeline {
            Some(pipeline) => pause::ask(conn, pipeline).await?,
            None => false,
        };
        let paused = [("paused", i64::from(paused).into())];
        let args: Vec<_> = args.iter().cloned().chain(paused).collect();
        conn.execute(&REGISTER, &args).await?;
        metrics::begin(conn, process.id).await
    })
    .await?;
    failpoint!(conn, "register.end");
    Ok(())
}

/// The answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beaten {
    /// Orders for the process.
    pub heard: Heard,
    /// There are processes that it cannot hear when they have work for it.
    pub elsewhere: bool,
}

/// The orders that a process receives with the answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It was declared dead.
    Dead,
    /// It may claim.
    Claim,
    /// Its pipeline is paused.
    Pause,
}

/// A heartbeat: raises `beat_seq`.
///
/// It is a transaction of its own and writes one row, so that it waits for nothing else. A supervisor claims
/// nothing, so nobody gives it orders: it needs no answer but the count of rows, which is one statement also
/// where an answer takes a second.
pub async fn beat(
    conn: &mut Conn,
    process: ProcessId,
    role: Role,
    counters: Counters,
    quiet: bool,
) -> Result<Beaten, Error> {
    let count = |value: u64| (value as i64).into();
    let args = [
        ("id", process.0.into()),
        ("claimed", count(counters.claimed)),
        ("succeeded", count(counters.succeeded)),
        ("errored", count(counters.errored)),
        ("crashed", count(counters.crashed)),
        ("advanced", count(counters.advanced)),
        ("stale", count(counters.stale)),
        ("statements", count(counters.statements)),
        ("quiet", count(u64::from(quiet))),
    ];
    failpoint!(conn, "beat.begin");
    let answered = match role {
        Role::Supervisor => match conn.execute(&BEAT_ALONE, &args).await? {
            0 => None,
            _ => Some((Heard::Claim, false)),
        },
        _ => match conn.fetch_optional(&BEAT, &args).await? {
            None => None,
            Some(row) => {
                let heard = match pause::is_told(&row)? {
                    true => Heard::Pause,
                    false => Heard::Claim,
                };
                Some((heard, row.get::<i64>("elsewhere")? != 0))
            }
        },
    };
    failpoint!(conn, "beat.end");
    let (heard, elsewhere) = answered.unwrap_or((Heard::Dead, false));
    Ok(Beaten { heard, elsewhere })
}

/// The claims of a process, as a heartbeat finds them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The executions: others that it held were cancelled, or given away.
    pub executions: Vec<ExecutionId>,
    /// How many leases of executions were extended.
    pub executions_extended: u64,
    /// How many leases of advancements were extended.
    pub advancements_extended: u64,
}

/// Extends the leases of everything that a process holds, for a process that may hold something, after a
/// beat that told that it lives.
///
/// It reads the held executions without a lock: one that somebody else has locked is still ours. The next
/// beat extends its lease, or the one after that.
pub async fn hold_on(
    conn: &mut Conn,
    process: ProcessId,
    lease: Duration,
) -> Result<Holding, Error> {
    let held = [("process", process.0.into())];
    let held = conn.fetch_latest(&HELD, &held).await?;
    let held = held.iter().map(|row| Ok(ExecutionId(row.get("id")?)));
    let mut holding = Holding {
        executions: held.collect::<Result<_, Error>>()?,
        ..Holding::default()
    };
    let args = [("id", process.0.into()), ("lease", micros(lease).into())];
    let extended = conn.transaction(async |conn| {
        let executions = extend(conn, &LEASED_EXECUTIONS, &EXTEND_LEASES, &args).await?;
        let advancements = extend(conn, &LEASED_ADVANCEMENTS, &EXTEND_ADVANCEMENTS, &args).await?;
        Ok((executions, advancements))
    });
    match extended.await {
        // A whole table is locked, or SQLite's file.
        Err(error) if error.is_not_now() && !conn.is_broken() => {}
        extended => {
            (holding.executions_extended, holding.advancements_extended) = extended?;
        }
    }
    Ok(holding)
}

/// Extends the leases of rows that nobody has locked, and returns how many.
async fn extend(
    conn: &mut Conn,
    leased: &Statement,
    statement: &Statement,
    args: Args<'_>,
) -> Result<u64, Error> {
    let leased = ids(&conn.fetch(leased, args).await?)?;
    if leased.is_empty() {
        return Ok(0);
    }
    let n = leased.len();
    let rows = Rows::new().ids("id", leased);
    conn.write(statement, &with_rows(args, &rows), n).await?;
    Ok(n as u64)
}

fn ids(rows: &[Row]) -> Result<Vec<uuid::Uuid>, Error> {
    rows.iter().map(|row| row.get("id")).collect()
}

/// Records in its row what keeps a process from making progress, and for how long it has; or that
/// nothing does so any more.
pub async fn report_trouble(
    conn: &mut Conn,
    process: ProcessId,
    trouble: Option<(&str, Duration)>,
) -> Result<(), Error> {
    let args = [
        ("id", process.0.into()),
        ("trouble", trouble.map(|(text, _)| text).into()),
        ("lasted", trouble.map(|(_, lasted)| micros(lasted)).into()),
    ];
    conn.execute(&TELL, &args).await?;
    Ok(())
}

/// All process rows, oldest first. Rows with a role that only a newer version knows are left to
/// that version.
pub async fn processes(conn: &mut Conn) -> Result<Vec<ProcessRow>, Error> {
    let rows = conn.fetch(&PROCESSES, &[]).await?;
    rows.iter()
        .filter(|row| has_known_role(row))
        .map(|row| {
            let count = |name| row.get::<i64>(name).map(|value| value as u64);
            let last_heartbeat_at: i64 = row.get("last_heartbeat_at")?;
            let seen_at: i64 = row.get("seen_at")?;
            Ok(ProcessRow {
                id: ProcessId(row.get("id")?),
                supervisor: row
                    .get::<Option<uuid::Uuid>>("supervisor_id")?
                    .map(ProcessId),
                role: row.word("role")?,
                pipeline: row.get("pipeline")?,
                host: row.get("host")?,
                boot_id: row.get("boot_id")?,
                pid_namespace: row.get("pid_namespace")?,
                pid: row.count("pid")?,
                pid_started_at: count("pid_started_at")?,
                version: row.get("version")?,
                started_at: row.get("started_at")?,
                last_heartbeat_at,
                beat_seq: row.get("beat_seq")?,
                seen_at,
                age: Duration::from_micros(seen_at.saturating_sub(last_heartbeat_at).max(0) as u64),
                counters: Counters {
                    claimed: count("claimed")?,
                    succeeded: count("succeeded")?,
                    errored: count("errored")?,
                    crashed: count("crashed")?,
                    advanced: count("advanced")?,
                    stale: count("stale")?,
                    statements: count("statements")?,
                },
                quiet: row.get::<i64>("quiet")? != 0,
                paused: pause::is_told(row)?,
                postponed: row.get::<i64>("postponed")? != 0,
            })
        })
        .collect()
}

/// Those of these processes whose rows are locked by somebody else at this moment, or gone.
pub async fn kept_from_beating(
    conn: &mut Conn,
    mut silent: Vec<ProcessId>,
) -> Result<Vec<ProcessId>, Error> {
    let rows = Rows::new().ids("id", silent.iter().map(|id| id.0));
    for row in conn.fetch(&BEATABLE, &[("b", (&rows).into())]).await? {
        let free = ProcessId(row.get("id")?);
        silent.retain(|id| *id != free);
    }
    Ok(silent)
}

/// Those of these processes that hold something under a lease that is not over. A claim or a heartbeat after this look
/// raises their `beat_seq`.
pub async fn under_lease(conn: &mut Conn, silent: &[ProcessId]) -> Result<Vec<ProcessId>, Error> {
    let rows = Rows::new().ids("id", silent.iter().map(|id| id.0));
    let found = conn.fetch(&UNDER_LEASE, &[("b", (&rows).into())]).await?;
    found
        .iter()
        .map(|row| row.get("id").map(ProcessId))
        .collect()
}

/// True unless a newer version wrote it.
pub(super) fn has_known_role(row: &Row) -> bool {
    let role = row.get::<String>("role");
    role.is_ok_and(|role| role.parse::<Role>().is_ok())
}

/// The reason why a process is taken for dead.
#[derive(Clone, Copy, Debug)]
pub enum Death<'a> {
    /// Somebody saw it exit, or knows that it can no longer exist.
    Proven {
        /// How it died, for the record.
        how: &'a str,
    },
    /// Its supervisor ended it because the daemon stops, and saw it exit: everything that it held
    /// is given back as `released`, which spends no budget (H22).
    Stopped,
    /// Its heartbeat is older than this, and the witness has seen no beat since `beat_seq`.
    Witnessed {
        /// The last beat that was seen.
        beat_seq: i64,
        /// The age that makes a heartbeat stale.
        stale_after: Duration,
    },
}

/// An execution that was closed by a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Its pipeline.
    pub pipeline: String,
    /// Its step.
    pub step: String,
    /// True where it was the first attempt of a run.
    pub starts: bool,
    /// True where it will be tried again.
    pub again: bool,
}

/// The claims that a recovery gave back.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// False where the process was alive, or had been recovered before.
    pub removed: bool,
    /// The purpose that the process had, where its row was removed and this version knows it.
    pub role: Option<Role>,
    /// Executions that may be claimed again.
    pub again: usize,
    /// Steps that have used up their crash budget.
    pub failed: usize,
    /// Branches that may be advanced again.
    pub branches: usize,
    /// The executions among all these.
    pub closed: Vec<Closed>,
    /// The advancements that were closed.
    pub advancements: usize,
    /// Pipelines with new availabilities.
    pub pipelines: std::collections::BTreeSet<String>,
}

/// Takes everything that a dead process held, and makes it available again. Idempotent; any number
/// of processes may do so at once.
pub async fn recover(
    conn: &mut Conn,
    process: ProcessId,
    death: Death<'_>,
    limits: &(dyn Fn(&Definition, &str) -> StepLimits + Sync),
    definitions: &Definitions,
) -> Result<Recovered, Error> {
    let (proven, seen, age, how) = match death {
        Death::Proven { how } => (1, 0, Duration::ZERO, how),
        Death::Stopped => (1, 0, Duration::ZERO, "it was stopped"),
        Death::Witnessed {
            beat_seq,
            stale_after,
        } => (0, beat_seq, stale_after, "its heartbeat stopped"),
    };
    let lost = match death {
        Death::Stopped => Lost {
            ending: Ending::Released {
                delay: Duration::ZERO,
            },
            message: "its process was stopped before it had ended".to_owned(),
        },
        _ => Lost {
            ending: Ending::Crashed,
            message: format!("the process that ran it died: {how}"),
        },
    };
    failpoint!(conn, "recover.begin");
    let recovered = conn.transaction(async |conn| {
        let args = [
            ("id", process.0.into()),
            ("proven", i64::from(proven).into()),
            ("seen", seen.into()),
            ("age", micros(age).into()),
        ];
        let row = conn.fetch_optional(&LOCK_PROCESS, &args[..1]).await?;
        let removed = row.is_some() && conn.execute(&REMOVE_PROCESS, &args).await? == 1;
        // With proof, claims of a row that is already gone are orphans, and are healed as well.
        if !removed && proven == 0 {
            return Ok(Recovered::default());
        }
        let mut role = None;
        if let Some(row) = row {
            role = row.get::<String>("role")?.parse().ok();
            departed::remember(conn, process, &row, Some(how)).await?;
        }
        failpoint!(conn, "recover.removed");
        let mut recovered = Recovered {
            removed,
            role,
            ..Recovered::default()
        };
        give_back_executions(conn, process, &lost, limits, definitions, &mut recovered).await?;
        give_back_branches(conn, process, &lost, &mut recovered).await?;
        failpoint!(conn, "recover.written");
        Ok(recovered)
    });
    let recovered = recovered.await?;
    failpoint!(conn, "recover.end");
    Ok(recovered)
}

/// How the work that a process held is closed.
struct Lost {
    ending: Ending,
    message: String,
}

fn with_rows<'a>(args: Args<'a>, rows: &'a Rows<'a>) -> Vec<(&'static str, Arg<'a>)> {
    let rows = [("b", rows.into())];
    args.iter().cloned().chain(rows).collect()
}

async fn give_back_executions(
    conn: &mut Conn,
    process: ProcessId,
    why: &Lost,
    limits: &(dyn Fn(&Definition, &str) -> StepLimits + Sync),
    definitions: &Definitions,
    recovered: &mut Recovered,
) -> Result<(), Error> {
    let args = [
        ("id", process.0.into()),
        ("result", why.ending.result().as_str().into()),
        ("class", why.ending.result().as_str().into()),
        ("message", (&why.message).into()),
    ];
    let lost = ids(&conn.fetch(&LOCK_EXECUTIONS, &args[..1]).await?)?;
    if lost.is_empty() {
        return Ok(());
    }
    let n = lost.len();
    let rows = Rows::new().ids("id", lost);
    let args = with_rows(&args, &rows);
    conn.write(&LOST_EXECUTIONS, &args, n).await?;
    let mut lost = Vec::new();
    for row in conn.fetch(&LOST_STEPS, &[("b", (&rows).into())]).await? {
        let pipeline: String = row.get("pipeline")?;
        let digest: String = row.get("definition")?;
        // An execution that only a newer version can read is recovered all the same: a definition without
        // settings leaves the budgets to the configuration.
        let definition = match definitions.read(conn, &digest).await? {
            Ok(definition) => definition,
            Err(_) => Arc::new(Definition::silent(&pipeline)),
        };
        let view = ExecutionView {
            retry_count: row.count("retry_count")?,
            crash_count: row.count("crash_count")?,
        };
        let limits = limits(&definition, &row.get::<String>("step")?);
        let verdict = outcome::decide(view, why.ending, &limits, 0.5);
        lost.push((row, verdict, pipeline));
    }
    let mut again = Vec::new();
    let mut failed = Vec::new();
    let mut halted = Vec::new();
    for (row, verdict, pipeline) in &lost {
        let step_id = StepId(row.get("step_id")?);
        match verdict {
            Verdict::Again { delay, next } => again.push(NewExecution {
                id: ExecutionId::new(),
                step_id,
                pipeline,
                attempt: row.count("attempt")? + 1,
                retry_count: next.retry_count,
                crash_count: next.crash_count,
                // It does not go behind a backlog that it preceded when it was claimed.
                due_in: (!delay.is_zero()).then(|| micros(*delay)),
            }),
            _ => {
                failed.push(step_id);
                if !row.get::<String>("via")?.parse().is_ok_and(Via::is_hook) {
                    halted.push(BranchId(row.get("branch_id")?));
                }
            }
        }
    }
    for (row, verdict, pipeline) in &lost {
        let starts = row.count("attempt")? == 1 && row.get::<String>("via")? == Via::Start.as_str();
        recovered.closed.push(Closed {
            pipeline: pipeline.clone(),
            step: row.get("step")?,
            starts,
            again: matches!(verdict, Verdict::Again { .. }),
        });
    }
    recovered.again = again.len();
    recovered.failed = failed.len();
    recovered
        .pipelines
        .extend(again.iter().map(|row| row.pipeline.to_owned()));
    insert::insert_executions(conn, &again).await?;
    // I14, I18: the step of a running execution is in progress, and so is the branch at that step.
    if !failed.is_empty() {
        let rows = Rows::new().ids("id", failed.iter().copied());
        conn.write(&FAIL_STEPS, &[("b", (&rows).into())], failed.len())
            .await?;
    }
    if !halted.is_empty() {
        recovered.branches += halted.len();
        let rows = Rows::new().ids("id", halted.iter().copied());
        conn.write(&FAILED_BRANCHES, &[("b", (&rows).into())], halted.len())
            .await?;
    }
    Ok(())
}

async fn give_back_branches(
    conn: &mut Conn,
    process: ProcessId,
    why: &Lost,
    recovered: &mut Recovered,
) -> Result<(), Error> {
    let args = [
        ("id", process.0.into()),
        ("result", why.ending.result().as_str().into()),
        ("class", why.ending.result().as_str().into()),
        ("message", (&why.message).into()),
    ];
    let lost = conn.fetch(&LOCK_ADVANCEMENTS, &args[..1]).await?;
    if lost.is_empty() {
        return Ok(());
    }
    let rows = Rows::new().ids("id", ids(&lost)?);
    conn.write(&LOST_ADVANCEMENTS, &with_rows(&args, &rows), lost.len())
        .await?;
    let (mut branches, mut tokens) = (Vec::new(), Vec::new());
    for row in &lost {
        branches.push(row.get::<uuid::Uuid>("branch_id")?);
        tokens.push(row.get::<uuid::Uuid>("claim_token")?);
    }
    let held = batch::in_order(branches.into_iter().zip(tokens));
    let (branches, tokens): (Vec<_>, Vec<_>) = held.into_iter().unzip();
    recovered.branches += branches.len();
    recovered.advancements = branches.len();
    let rows = Rows::new().ids("id", branches).ids("token", tokens);
    // A shutdown is no crash, and spends no budget (H22).
    if why.ending == Ending::Crashed {
        conn.write(&COUNT_CRASHES, &[("b", (&rows).into())], lost.len())
            .await?;
    }
    let held = conn.fetch(&LOCK_BRANCHES, &[("b", (&rows).into())]).await?;
    let (mut branches, mut tokens) = (Vec::new(), Vec::new());
    for row in &held {
        branches.push(row.get::<uuid::Uuid>("id")?);
        tokens.push(row.get::<uuid::Uuid>("claim_token")?);
    }
    let rows = Rows::new().ids("id", branches).ids("token", tokens);
    conn.write(&GIVE_BACK_BRANCHES, &[("b", (&rows).into())], held.len())
        .await
}

/// Removes the row of a process that ends in order, unless the process still holds something.
pub async fn deregister(conn: &mut Conn, process: ProcessId) -> Result<(), Error> {
    conn.transaction(async |conn| {
        let args = [("id", process.0.into())];
        let row = conn.fetch_optional(&LOCK_PROCESS, &args).await?;
        if let Some(row) = row
            && conn.execute(&DEREGISTER, &args).await? == 1
        {
            departed::remember(conn, process, &row, None).await?;
        }
        Ok(())
    })
    .await
}

/// Processes without a row whose claims have outlived their leases.
pub async fn orphans(conn: &mut Conn) -> Result<Vec<ProcessId>, Error> {
    let rows = conn.fetch(&ORPHANS, &[]).await?;
    rows.iter()
        .map(|row| Ok(ProcessId(row.get("process_id")?)))
        .collect()
}
