//! Process rows: which processes are alive, and what they hold.
//!
//! Owns: registration, heartbeats with their leases. Never: decides that a process is dead; the reaper does
//! (`engine::reaper`), with proof or with two witnesses. Never: gives back what it held (`recovery`).

use std::time::Duration;

use crate::failpoint::failpoint;
use crate::model::*;

use super::advance::HELD_BRANCHES;
use super::claim::HELD;
use super::conn::{Conn, Row};
use super::departed;
use super::error::Error;
use super::statement::{Arg, Args, Rows, Statement, statements};
use super::{metrics, micros, pause};

macro_rules! beat {
    () => {
        "
        UPDATE ductwork_processes
           SET beat_seq = beat_seq + 1, last_heartbeat_at = {now},
               worked_at = CASE WHEN claimed = :claimed AND advanced = :advanced THEN worked_at ELSE {now} END,
               claimed = :claimed, succeeded = :succeeded, errored = :errored, crashed = :crashed,
               advanced = :advanced, stale = :stale, statements = :statements, quiet = :quiet
         WHERE id = :id AND epoch < 4294967296"
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
          FROM ductwork_processes p WHERE p.id = :id AND p.epoch < 4294967296";
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
        SELECT branch_id AS id FROM ductwork_advancements WHERE process_id = :id AND completed_at IS NULL{narrow: AND holder = :id} {skip_locked}";
    EXTEND_ADVANCEMENTS = "
        UPDATE {into:ductwork_advancements;b(id id);ductwork_advancements_open} SET lease_until = {now} + :lease
         WHERE {of:ductwork_advancements.branch_id;b(id id)} AND process_id = :id AND completed_at IS NULL{narrow: AND ductwork_advancements.open_branch = b.id}";
    PROCESSES = "
        SELECT p.id, p.supervisor_id, p.role, p.pipeline, p.host, p.boot_id, p.pid_namespace, p.pid,
               p.pid_started_at, p.version, p.started_at, p.last_heartbeat_at, p.beat_seq,
               {now} AS seen_at, p.epoch, p.claimed, p.succeeded, p.errored, p.crashed,
               p.advanced, p.stale, p.statements, p.quiet, p.paused, p.trouble, p.troubled_at,
               (SELECT count(*) FROM (SELECT b.id FROM ductwork_branches b WHERE b.ready_at > {now} LIMIT 1) w) AS postponed
          FROM ductwork_processes p ORDER BY p.started_at, p.id";
    ADOPT = "
        UPDATE ductwork_processes SET supervisor_id = :supervisor WHERE id = :id AND supervisor_id = :earlier";
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
    pub(super) LOCK_PROCESS = "
        SELECT role, pipeline, host, pid, version, started_at, epoch FROM ductwork_processes
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

/// How a process ended that was declared dead while claims of it could not be given back. Its row tells, by an epoch
/// that no claimant has: statements that name the lowest of these epochs refuse the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condemned {
    /// Its executions have crashed.
    Crashed,
    /// It was ended because the daemon stops: its claims are released.
    Stopped,
}

impl Condemned {
    /// Higher than any epoch of a claimant.
    const FIRST: i64 = 1 << 32;

    pub(super) fn of(epoch: i64) -> Option<Self> {
        if epoch < Self::FIRST {
            return None;
        }
        Some(match epoch == Self::Stopped.epoch() {
            true => Self::Stopped,
            false => Self::Crashed,
        })
    }

    pub(super) fn epoch(self) -> i64 {
        Self::FIRST + self as i64
    }
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
    /// Whether it takes new work.
    pub intake: Intake,
    /// True where it claims nothing because its pipeline is paused.
    pub paused: bool,
    /// The trouble that it reports, and since when it has lasted.
    pub trouble: Option<(String, i64)>,
    /// It was declared dead, and holds claims that could not be given back yet.
    pub condemned: Option<Condemned>,
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
    register_as(conn, process, None).await
}

/// The same for a process that was declared dead and lives: its earlier row is gone, or is as good as gone.
pub async fn register_anew(
    conn: &mut Conn,
    process: &NewProcess,
    earlier: ProcessId,
) -> Result<(), Error> {
    register_as(conn, process, Some(earlier)).await
}

async fn register_as(
    conn: &mut Conn,
    process: &NewProcess,
    earlier: Option<ProcessId>,
) -> Result<(), Error> {
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
        conn.write(&REGISTER, &args, 1).await?;
        metrics::begin(conn, process.id).await?;
        match earlier {
            Some(earlier) => departed::went_on(conn, earlier, process.id).await,
            None => Ok(()),
        }
    })
    .await?;
    failpoint!(conn, "register.end");
    Ok(())
}

/// Makes a process the child of its supervisor's present row, in place of an earlier one.
pub async fn adopt(
    conn: &mut Conn,
    child: ProcessId,
    earlier: ProcessId,
    supervisor: ProcessId,
) -> Result<(), Error> {
    let args = [
        ("id", child.0.into()),
        ("earlier", earlier.0.into()),
        ("supervisor", supervisor.0.into()),
    ];
    conn.execute(&ADOPT, &args).await?;
    Ok(())
}

/// The answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beaten {
    /// Orders for the process.
    pub orders: Orders,
    /// There are processes that it cannot hear when they have work for it.
    pub elsewhere: bool,
}

/// The orders that a process receives with the answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orders {
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
    intake: Intake,
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
        ("quiet", intake.code().into()),
    ];
    failpoint!(conn, "beat.begin");
    let answered = match role {
        Role::Supervisor => match conn.execute(&BEAT_ALONE, &args).await? {
            0 => None,
            _ => Some((Orders::Claim, false)),
        },
        _ => match conn.fetch_optional(&BEAT, &args).await? {
            None => None,
            Some(row) => {
                let orders = match pause::is_told(&row)? {
                    true => Orders::Pause,
                    false => Orders::Claim,
                };
                Some((orders, row.get::<i64>("elsewhere")? != 0))
            }
        },
    };
    failpoint!(conn, "beat.end");
    let (orders, elsewhere) = answered.unwrap_or((Orders::Dead, false));
    Ok(Beaten { orders, elsewhere })
}

/// The claims of a process, as a heartbeat finds them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The executions: others that it held were cancelled, or given away.
    pub executions: Vec<ExecutionId>,
    /// The branches whose leases were extended.
    pub branches: Vec<BranchId>,
    /// How many leases of executions were extended.
    pub executions_extended: u64,
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
            let (executions, branches) = extended?;
            holding.executions_extended = executions.len() as u64;
            holding.branches = branches.into_iter().map(BranchId).collect();
        }
    }
    Ok(holding)
}

/// The claims of a process: the executions of a worker, or the branches of an advancer. Other roles claim nothing.
pub async fn claims(
    conn: &mut Conn,
    process: ProcessId,
    role: Role,
) -> Result<Vec<uuid::Uuid>, Error> {
    let (held, column) = match role {
        Role::Worker => (&HELD, "id"),
        Role::Advancer => (&HELD_BRANCHES, "branch_id"),
        _ => return Ok(Vec::new()),
    };
    let rows = conn
        .fetch_latest(held, &[("process", process.0.into())])
        .await?;
    rows.iter().map(|row| row.get(column)).collect()
}

/// Extends the leases of rows that nobody has locked, and returns which.
async fn extend(
    conn: &mut Conn,
    leased: &Statement,
    statement: &Statement,
    args: Args<'_>,
) -> Result<Vec<uuid::Uuid>, Error> {
    let leased = ids(&conn.fetch(leased, args).await?)?;
    if !leased.is_empty() {
        let rows = Rows::new().ids("id", leased.iter().copied());
        conn.write(statement, &with_rows(args, &rows), leased.len())
            .await?;
    }
    Ok(leased)
}

pub(super) fn ids(rows: &[Row]) -> Result<Vec<uuid::Uuid>, Error> {
    rows.iter().map(|row| row.get("id")).collect()
}

pub(super) fn with_rows<'a>(args: Args<'a>, rows: &'a Rows<'a>) -> Vec<(&'static str, Arg<'a>)> {
    let rows = [("b", rows.into())];
    args.iter().cloned().chain(rows).collect()
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
            let trouble: Option<String> = row.get("trouble")?;
            let troubled_at: Option<i64> = row.get("troubled_at")?;
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
                intake: Intake::of(row.get("quiet")?),
                paused: pause::is_told(row)?,
                trouble: trouble.zip(troubled_at),
                condemned: Condemned::of(row.get("epoch")?),
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
