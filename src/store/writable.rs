//! Checks, without writing, whether the database accepts our writes and shows us our rows.
//!
//! Owns: answering this: locks and their holders, hidden rows, limits and careless settings. Never: writes.

use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access};

use crate::machine::stuck::GRACE;
use crate::machine::why;
use crate::model::*;
use crate::time;

use super::backend::mysql::error::Failure;
use super::backend::mysql::locks::{Lock, On, Session, Untold};
use super::backend::mysql::session::{largest_in, packet_for};
use super::conn::{Conn, Location, Row};
use super::dialect::Dialect;
use super::error::{Error, Source};
use super::micros;
use super::process;
use super::statement::{Only, Statement};

/// For PostgreSQL and MySQL.
static ONLY_READS: Statement = Statement::only(
    Only::Postgres,
    "ONLY_READS",
    "SELECT CASE WHEN pg_is_in_recovery() THEN 'the database is a standby, which takes no writes'
                 WHEN current_setting('transaction_read_only') = 'on'
                 THEN 'default_transaction_read_only is on for this role or database, which takes no writes'
             END AS why",
)
.on_mysql(&[&IS_READ_ONLY]);
static IS_READ_ONLY: Statement = Statement::only(
    Only::Mysql,
    "IS_READ_ONLY",
    "SELECT CASE WHEN @@global.read_only <> 0 THEN 'read_only is on, so the server takes no writes' END AS why",
);

/// PostgreSQL only. A table with row-level security, and without policies that let this role read, change and delete,
/// shows it no row, and that is no error of any of these statements.
static HIDDEN: Statement = Statement::only(
    Only::Postgres,
    "HIDDEN",
    "SELECT c.relname::text AS name, current_user::text AS role
       FROM pg_class c
      WHERE c.relkind = 'r' AND c.relrowsecurity AND c.relname LIKE 'ductwork!_%' ESCAPE '!' AND pg_table_is_visible(c.oid) AND row_security_active(c.oid)
        AND 3 > (SELECT count(DISTINCT k.cmd)
                   FROM (VALUES ('r'), ('w'), ('d')) AS k (cmd), pg_policy p, unnest(p.polroles) AS r (role)
                  WHERE p.polrelid = c.oid AND p.polpermissive AND p.polcmd::text IN (k.cmd, '*')
                    AND (r.role = 0 OR pg_has_role(r.role, 'USAGE')))
      ORDER BY c.relname LIMIT 1",
);

/// MySQL only, where these settings are often relaxed for speed. On PostgreSQL, the role may choose
/// its own.
static CARELESS: Statement = Statement::only(
    Only::Mysql,
    "CARELESS",
    "SELECT CASE WHEN @@innodb_flush_log_at_trx_commit <> 1
                 THEN 'innodb_flush_log_at_trx_commit=' || @@innodb_flush_log_at_trx_commit
                 WHEN @@log_bin <> 0 AND @@sync_binlog <> 1 THEN 'sync_binlog=' || @@sync_binlog
             END AS setting",
);

/// MySQL only.
static PACKET: Statement = Statement::only(
    Only::Mysql,
    "PACKET",
    "SELECT @@max_allowed_packet AS packet",
);

/// Waiters for a lock give up and come again, so only the holder's transaction tells how
/// long the lock was held; the server may hide that from our role, and then one waiter is enough. A session that waits
/// for a row has a lock of these modes too, on the row. Proven by `a_session_that_waits_for_a_row_has_locked_no_table`.
static LOCKED: Statement = Statement::only(
    Only::Postgres,
    "LOCKED",
    "SELECT c.relname::text AS name, CASE l.mode WHEN 'AccessExclusiveLock' THEN 1 ELSE 0 END::bigint AS hidden, l.pid::bigint AS pid,
            coalesce(nullif(a.application_name, ''), 'no name') AS application,
            coalesce(a.state, 'of another role') AS state,
            {big:extract(epoch FROM clock_timestamp() - a.xact_start)} AS seconds
       FROM pg_locks l
       JOIN pg_class c ON c.oid = l.relation
       LEFT JOIN pg_stat_activity a ON a.pid = l.pid
      WHERE l.granted AND l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
        AND c.relkind = 'r' AND c.relname LIKE 'ductwork!_%' ESCAPE '!' AND pg_table_is_visible(c.oid)
        AND l.pid <> pg_backend_pid()
        AND (a.xact_start < clock_timestamp() - interval '5 s'
             OR a.xact_start IS NULL
                AND EXISTS (SELECT 1 FROM pg_locks w
                             WHERE w.relation = l.relation AND w.locktype = 'relation' AND NOT w.granted))
      ORDER BY c.relname = 'ductwork_processes' DESC, hidden DESC, name LIMIT 1",
);

/// A locked row has the number of the transaction that locked it; where several have locked it,
/// it has another number, and no holder is found.
static HOLDER: Statement = Statement::only(
    Only::Postgres,
    "HOLDER",
    "SELECT l.pid::bigint AS pid, coalesce(nullif(a.application_name, ''), 'no name') AS application,
            coalesce(a.state, 'of another role') AS state,
            {big:extract(epoch FROM a.xact_start) * 1000000} AS since
       FROM (SELECT r.xmax AS holder FROM ductwork_runs r WHERE r.id = :run
             UNION ALL
             (SELECT br.xmax FROM ductwork_branches br WHERE br.run_id = :run LIMIT 100)) x
       JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = x.holder
       LEFT JOIN pg_stat_activity a ON a.pid = l.pid
      WHERE l.pid <> pg_backend_pid()
      ORDER BY a.xact_start LIMIT 1",
);

/// The catalogue does not list locks on rows. A session that has locked one has also locked its table, in
/// one of these modes, until its transaction ends; so has a session of ours that writes. One that is idle has very
/// probably been forgotten.
static ROW_HOLDER: Statement = Statement::only(
    Only::Postgres,
    "ROW_HOLDER",
    "SELECT l.pid::bigint AS pid, coalesce(nullif(a.application_name, ''), 'no name') AS application, a.state AS state,
            {big:extract(epoch FROM clock_timestamp() - a.xact_start)} AS seconds
       FROM pg_locks l
       JOIN pg_class c ON c.oid = l.relation
       JOIN pg_stat_activity a ON a.pid = l.pid
      WHERE l.granted AND l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.mode IN ('RowShareLock', 'RowExclusiveLock')
        AND c.relkind = 'r' AND c.relname LIKE 'ductwork!_%' ESCAPE '!' AND pg_table_is_visible(c.oid)
        AND l.pid <> pg_backend_pid() AND a.xact_start < clock_timestamp() - interval '5 s'
        AND a.state LIKE 'idle in transaction%'
      ORDER BY a.xact_start LIMIT 1",
);

/// PostgreSQL only. The session for which one of ours waits, and which itself waits for nobody.
static BLOCKER: Statement = Statement::only(
    Only::Postgres,
    "BLOCKER",
    "SELECT b.pid::bigint AS pid, coalesce(nullif(b.application_name, ''), 'no name') AS application,
            coalesce(b.state, 'of another role') AS state
       FROM pg_stat_activity w
      CROSS JOIN LATERAL unnest(pg_blocking_pids(w.pid)) AS of (pid)
       JOIN pg_stat_activity b ON b.pid = of.pid
      WHERE w.datname = current_database() AND w.wait_event_type = 'Lock' AND w.query LIKE '%ductwork%'
        AND b.wait_event_type IS DISTINCT FROM 'Lock'
      LIMIT 1",
);

/// MySQL only. Processes that make no progress, that have been silent for longer than a healthy one, or that have
/// long taken none of the due executions: somebody may have locked their rows.
static HINDERED: Statement = Statement::only(
    Only::Mysql,
    "HINDERED",
    "SELECT p.id, p.trouble, CASE WHEN p.last_heartbeat_at < {now} - :silent THEN 1 ELSE 0 END AS silent
       FROM ductwork_processes p
      WHERE p.trouble IS NOT NULL OR p.last_heartbeat_at < {now} - :silent
         OR coalesce(p.worked_at, p.started_at) < {now} - :grace
            AND EXISTS (SELECT 1 FROM ductwork_availabilities a
                         WHERE a.pipeline = p.pipeline AND a.due_at < {now} - :grace)",
);

/// A process beats more often than this, except with long leases; then the search for lock holders is
/// in vain.
const SILENT: Duration = Duration::from_secs(8);

/// The server's words for a wait in vain, with which a process reports its trouble; or its own, where it does not wait
/// any more.
const WAITED: [&str; 2] = ["Lock wait timeout exceeded", why::LOCKED];

/// The session that has locked rows of a run for the longest time, if any. It may be gone by now.
pub async fn holder(conn: &mut Conn, run: RunId) -> Result<Option<String>, Error> {
    if conn.dialect() != Dialect::Postgres {
        return Ok(None);
    }
    let args = [("run", run.0.into())];
    let Some(row) = conn.fetch_optional(&HOLDER, &args).await? else {
        return Ok(None);
    };
    let (pid, application): (i64, String) = (row.get("pid")?, row.get("application")?);
    let state: String = row.get("state")?;
    let since = match row.get::<Option<i64>>("since")? {
        Some(at) => format!(" since {}", time::rfc3339(at)),
        None => String::new(),
    };
    Ok(Some(format!(
        "the session of the database with pid {pid} ({application}, {state}), which is in a transaction{since}: end it, or wait \
         for its end"
    )))
}

/// The remedy where somebody has locked rows of ours, with the session that has probably done so. On MySQL, `locked`
/// names the session.
pub(super) async fn row_holder(conn: &mut Conn) -> Result<Option<String>, Error> {
    if conn.dialect() != Dialect::Postgres {
        return Ok(None);
    }
    let Some(row) = conn.fetch_optional(&ROW_HOLDER, &[]).await? else {
        return Ok(None);
    };
    let (pid, seconds): (i64, i64) = (row.get("pid")?, row.get("seconds")?);
    let (application, state): (String, String) = (row.get("application")?, row.get("state")?);
    Ok(Some(format!(
        "end the transaction of the session with pid {pid} ({application}, {state}, for {seconds} s), which has probably \
         locked them: SELECT pg_terminate_backend({pid})"
    )))
}

/// On PostgreSQL, the session for which a session of ours waits at this moment, and the remedy.
pub async fn blocker(conn: &mut Conn) -> Result<Option<String>, Error> {
    if conn.dialect() != Dialect::Postgres {
        return Ok(None);
    }
    let Some(row) = conn.fetch_optional(&BLOCKER, &[]).await? else {
        return Ok(None);
    };
    let pid: i64 = row.get("pid")?;
    let (application, state): (String, String) = (row.get("application")?, row.get("state")?);
    Ok(Some(format!(
        "rows are locked by the session with pid {pid} ({application}, {state}): wait until it has ended its transaction, \
         or end it: SELECT pg_terminate_backend({pid})"
    )))
}

/// A table that somebody has locked as a whole, for longer than a moment.
#[derive(Debug)]
pub struct Locked {
    /// A description.
    pub fact: String,
    /// Its name.
    pub table: String,
    /// True where nobody can read it either.
    pub hidden: bool,
    /// The statement that ends the session of the holder, if the holder is known.
    pub end: Option<String>,
}

/// True where `locked` answers at once. On MySQL no catalogue tells, so `locked` waits.
pub fn tells_at_once(conn: &Conn) -> bool {
    conn.dialect() != Dialect::Mysql
}

/// The table of ours that is locked as a whole, if any. Reads only the catalogue, which no such lock hides; but on
/// MySQL it waits for such a lock, and there it also reports locks on rows.
pub async fn locked(conn: &mut Conn) -> Result<Option<Locked>, Error> {
    match conn.dialect() {
        Dialect::Postgres => {}
        Dialect::Sqlite => return Ok(None),
        Dialect::Mysql => return locked_on_mysql(conn).await,
    }
    let Some(row) = conn.fetch_optional(&LOCKED, &[]).await? else {
        return Ok(None);
    };
    let (table, pid): (String, i64) = (row.get("name")?, row.get("pid")?);
    let (application, state): (String, String) = (row.get("application")?, row.get("state")?);
    let span = match row.get::<Option<i64>>("seconds")? {
        Some(seconds) => format!(", for {seconds} s"),
        None => String::new(),
    };
    let hidden = row.get::<i64>("hidden")? == 1;
    let what = if hidden { "read or write" } else { "write" };
    Ok(Some(Locked {
        fact: format!(
            "the table {table} is locked by the session with pid {pid} ({application}, {state}{span}), so that nobody \
             can {what} it"
        ),
        table,
        hidden,
        end: Some(format!("SELECT pg_terminate_backend({pid})")),
    }))
}

async fn locked_on_mysql(conn: &mut Conn) -> Result<Option<Locked>, Error> {
    if let Some(lock) = conn.table_lock().await? {
        return Ok(Some(Locked::of(lock)));
    }
    let args = [
        ("silent", micros(SILENT).into()),
        ("grace", micros(GRACE).into()),
    ];
    let hindered = conn.fetch(&HINDERED, &args).await?;
    if hindered.is_empty() {
        return Ok(None);
    }
    let Some(lock) = conn.row_lock().await? else {
        return Ok(None);
    };
    // The session locks, or may lock, some rows of the database; only the waiters show that somebody waits
    // for them.
    let is_proven = !matches!(lock.on, On::Rows { table: None, .. });
    Ok((is_proven || waits_for_rows(conn, &hindered).await?).then(|| Locked::of(lock)))
}

/// True when one of these processes has waited for a row in vain, or would do so.
async fn waits_for_rows(conn: &mut Conn, hindered: &[Row]) -> Result<bool, Error> {
    for process in hindered {
        let trouble: Option<String> = process.get("trouble")?;
        if trouble.is_some_and(|it| WAITED.iter().any(|words| it.contains(words))) {
            return Ok(true);
        }
    }
    let mut silent = Vec::new();
    for process in hindered {
        // A process that beats locks its own row for a moment now and then, and nobody else holds
        // it for long.
        if process.get::<i64>("silent")? == 1 {
            silent.push(ProcessId(process.get("id")?));
        }
    }
    if silent.is_empty() {
        return Ok(false);
    }
    match process::kept_from_beating(conn, silent).await {
        Ok(kept) => Ok(!kept.is_empty()),
        // A read-only session may not run this.
        Err(_) if !conn.is_broken() => Ok(false),
        Err(error) => Err(error),
    }
}

impl Locked {
    /// The remedy.
    pub fn remedy(&self) -> String {
        let wait = "wait until that session has ended its transaction, or end it";
        match &self.end {
            Some(statement) => format!("{wait}: {statement}"),
            None => wait.to_owned(),
        }
    }

    fn of(lock: Lock) -> Self {
        let session = lock.holder.as_ref().ok();
        let end = session.map(|session| format!("KILL {}", session.id));
        let whose = match &lock.holder {
            Ok(session) => told(session),
            Err(_) => "somebody".to_owned(),
        };
        // A number of a session is one of its own node.
        let whose = match lock.at {
            Some(at) => format!("{whose} at {at}"),
            None => whose,
        };
        let remedy = match lock.holder {
            Err(Untold::NoRight(right)) => format!(
                "; the server does not tell the user of `database.url` who that is: {right} lets it"
            ),
            Err(Untold::NoList) => "; the server does not know who that is: INSTALL SONAME 'metadata_lock_info' lets it"
                .to_owned(),
            Ok(_) | Err(Untold::Nobody) => String::new(),
        };
        let (fact, table, hidden) = match lock.on {
            On::Table { name, hidden } => {
                let what = if hidden { "read or write" } else { "write" };
                let fact = format!(
                    "the table {name} is locked by {whose}, so that nobody can {what} it{remedy}"
                );
                (fact, name, hidden)
            }
            On::Server => {
                let fact = format!(
                    "all tables are locked by {whose}, so that nobody can write them: a FLUSH TABLES WITH READ LOCK, or a \
                     backup{remedy}"
                );
                (fact, String::new(), false)
            }
            On::Rows {
                table: Some(name), ..
            } => {
                let fact = format!(
                    "rows of the table {name} are locked by {whose}, so that nobody else can write them{remedy}"
                );
                (fact, name, false)
            }
            On::Rows {
                table: None,
                is_guess,
            } => {
                let probably = if is_guess { " probably" } else { "" };
                let fact =
                    format!("rows that are to be written are{probably} locked by {whose}{remedy}");
                (fact, String::new(), false)
            }
        };
        Self {
            fact,
            table,
            hidden,
            end,
        }
    }
}

fn told(session: &Session) -> String {
    let user = session.user.as_deref().unwrap_or("of another user");
    let does = match session.is_idle {
        true => "idle",
        false => "at work",
    };
    let (id, held) = (session.id, session.held.as_secs());
    format!("the session {id} ({user}, {does}, for {held} s)")
}

/// The shortest lease that outlasts the time for which a cluster writes nothing after it has lost a node: 6 s were
/// measured, and a beat has to follow.
pub const CLUSTER_LEASE: Duration = Duration::from_secs(15);

/// A setting with which the server may lose acknowledged data when its host goes down, or a lease during which a cluster
/// may write nothing, if there is one.
pub async fn careless(conn: &mut Conn, lease: Duration) -> Result<Option<String>, Error> {
    if conn.dialect() != Dialect::Mysql {
        return Ok(None);
    }
    if conn.is_in_cluster() && lease < CLUSTER_LEASE {
        return Ok(Some(format!(
            "the database is a cluster, which writes nothing for some seconds after it has lost a node, and after {} s without a \
             beat a process counts as dead: set `supervisor.reaper_timeout` to {} at least",
            lease.as_secs(),
            CLUSTER_LEASE.as_secs()
        )));
    }
    let row = conn.fetch_optional(&CARELESS, &[]).await?;
    let setting = row.map(|row| row.get::<Option<String>>("setting"));
    let fact = |setting| {
        format!(
            "the server has {setting}, with which it may lose what it has acknowledged when its host goes down: set it to 1"
        )
    };
    Ok(setting.transpose()?.flatten().map(fact))
}

/// The largest value that a step may return, where the server limits the length of a statement. Fails where this is
/// less than `payload`.
pub async fn largest_payload(conn: &mut Conn, payload: u64) -> Result<Option<u64>, Error> {
    let packet = match conn.dialect() {
        Dialect::Mysql => conn.fetch_optional(&PACKET, &[]).await?,
        Dialect::Postgres | Dialect::Sqlite => None,
    };
    let packet = packet.map(|row| row.get::<i64>("packet")).transpose()?;
    match packet.and_then(|packet| u64::try_from(packet).ok()) {
        Some(packet) if largest_in(packet) < payload => Err(Error::Configured(format!(
            "`job_worker.max_payload` is {payload} bytes, for which the server's max_allowed_packet has to be {}, and it \
             is {packet}: raise max_allowed_packet, or lower `job_worker.max_payload`",
            packet_for(payload)
        ))),
        packet => Ok(packet.map(largest_in)),
    }
}

/// The reason why nobody can write, if there is one.
pub async fn refused(conn: &mut Conn, location: &Location) -> Result<Option<String>, Error> {
    if let Some(file) = location.file() {
        return Ok(no_room(file));
    }
    let row = conn.fetch_optional(&ONLY_READS, &[]).await?;
    let why = row
        .map(|row| row.get::<Option<String>>("why"))
        .transpose()?;
    Ok(why.flatten())
}

/// The table whose rows the database hides from this role, and the remedy, if there is one: for this program the table is
/// empty, so work stands still, and no statement fails.
pub async fn hidden(conn: &mut Conn) -> Result<Option<String>, Error> {
    if conn.dialect() != Dialect::Postgres {
        return Ok(None);
    }
    let Some(row) = conn.fetch_optional(&HIDDEN, &[]).await? else {
        return Ok(None);
    };
    let (table, role): (String, String) = (row.get("name")?, row.get("role")?);
    Ok(Some(format!(
        "row-level security hides the rows of {table} from the role {role}: give the role BYPASSRLS, or policies to read, \
         change and delete, or ALTER TABLE {table} DISABLE ROW LEVEL SECURITY"
    )))
}

/// Fails where a MySQL server takes writes only from its administrators, of whom this user may be one.
pub(super) async fn check(conn: &mut Conn) -> Result<(), Error> {
    let row = conn.fetch_optional(&ONLY_READS, &[]).await?;
    let why = row.map(|row| row.get::<Option<String>>("why"));
    match why.transpose()?.flatten() {
        Some(why) => Err(Error::unavailable(Source::Mysql(Failure::Node(why)))),
        None => Ok(()),
    }
}

/// Fails where this user may not write SQLite's file. SQLite opens it for reading all the same.
pub fn allowed(location: &Location) -> Result<(), Error> {
    let Some(file) = location.file() else {
        return Ok(());
    };
    match access(file, AccessFlags::W_OK) {
        // A missing file will be created. A disk that is mounted read-only may be mounted otherwise while a daemon
        // waits; nobody grants it a right.
        Ok(()) | Err(Errno::ENOENT | Errno::EROFS) => Ok(()),
        Err(errno) => {
            let error = std::io::Error::from(errno);
            let text = format!("this user may not write {}: {error}", file.display());
            let error = std::io::Error::new(error.kind(), text);
            Err(Error::unavailable(Source::Io(error)))
        }
    }
}

/// Reports SQLite's disk when it is so full that not even root has space left. Heartbeats may fit into the existing
/// log, while the result of a step does not: so this is reported at once.
pub fn full(location: &Location) -> Option<String> {
    let file = location.file()?;
    let disk = statvfs(file).ok()?;
    // Some file systems report no counts.
    (disk.blocks() > 0 && disk.blocks_free() == 0).then(|| no_room(file))?
}

/// The state of the disk that a file of SQLite's is on.
fn no_room(file: &Path) -> Option<String> {
    let disk = statvfs(file).ok()?;
    let read_only = disk.flags().contains(FsFlags::ST_RDONLY);
    // A part may be reserved for root.
    let free = match nix::unistd::geteuid().is_root() {
        true => disk.blocks_free(),
        false => disk.blocks_available(),
    };
    // Some file systems report no counts.
    let full = disk.blocks() > 0 && free == 0;
    let what = match (read_only, full) {
        (true, _) => "mounted read-only",
        (false, true) => "full",
        _ => return None,
    };
    let file = file.display();
    Some(format!(
        "the disk that {file} is on is {what}, so that nobody can write"
    ))
}
