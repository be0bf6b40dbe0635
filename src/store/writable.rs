//! Whether the database takes writes at all, as far as can be told without one.
//!
//! Owns: the question. Never: writes.

use std::path::Path;

use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access};

use crate::model::*;
use crate::time;

use super::backend::mysql::error::Failure;
use super::conn::{Conn, Location};
use super::dialect::Dialect;
use super::error::{Error, Source};
use super::statement::{Only, Statement};

/// PostgreSQL and MySQL.
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

/// MySQL only, where these are often set to be faster. PostgreSQL's role may choose its own.
static CARELESS: Statement = Statement::only(
    Only::Mysql,
    "CARELESS",
    "SELECT CASE WHEN @@innodb_flush_log_at_trx_commit <> 1
                 THEN 'innodb_flush_log_at_trx_commit=' || @@innodb_flush_log_at_trx_commit
                 WHEN @@log_bin <> 0 AND @@sync_binlog <> 1 THEN 'sync_binlog=' || @@sync_binlog
             END AS setting",
);

/// PostgreSQL only. Those who wait for a lock give up and come again, so how long it was held is the holder's
/// transaction's to say; the server may keep that from our role, and then somebody who waits is enough.
static LOCKED: Statement = Statement::new(
    "LOCKED",
    "SELECT c.relname::text AS name, CASE l.mode WHEN 'AccessExclusiveLock' THEN 1 ELSE 0 END::bigint AS hidden, l.pid::bigint AS pid,
            coalesce(nullif(a.application_name, ''), 'no name') AS application,
            coalesce(a.state, 'of another role') AS state,
            {big:extract(epoch FROM clock_timestamp() - a.xact_start)} AS seconds
       FROM pg_locks l
       JOIN pg_class c ON c.oid = l.relation
       LEFT JOIN pg_stat_activity a ON a.pid = l.pid
      WHERE l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
        AND c.relkind = 'r' AND c.relname LIKE 'ductwork%' AND pg_table_is_visible(c.oid)
        AND l.pid <> pg_backend_pid()
        AND (a.xact_start < clock_timestamp() - interval '5 s'
             OR a.xact_start IS NULL
                AND EXISTS (SELECT 1 FROM pg_locks w WHERE w.relation = l.relation AND NOT w.granted))
      ORDER BY c.relname = 'ductwork_processes' DESC, hidden DESC, name LIMIT 1",
);

/// PostgreSQL only. A row that is locked has the number of the transaction that did; where several have it, it has
/// another number, and nobody is found.
static HOLDER: Statement = Statement::new(
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

/// The session that has locked rows of a run for longest, if there is one. It may have gone by now.
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
        "the session of the database with pid {pid} ({application}, {state}), which is in a transaction{since}: end it,          or wait for its end"
    )))
}

/// A table that somebody has locked as a whole, for longer than a moment.
#[derive(Debug)]
pub struct Locked {
    /// A description.
    pub fact: String,
    /// Its name.
    pub table: String,
    /// Nobody can read it either.
    pub hidden: bool,
}

/// The table of ours that is locked as a whole, if one is. Asks the catalogue alone, which no such lock hides.
pub async fn locked(conn: &mut Conn) -> Result<Option<Locked>, Error> {
    if conn.dialect() != Dialect::Postgres {
        return Ok(None);
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
    }))
}

/// A setting with which the server may lose what it has acknowledged when its host goes down, if there is one.
pub async fn careless(conn: &mut Conn) -> Result<Option<String>, Error> {
    if conn.dialect() != Dialect::Mysql {
        return Ok(None);
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

/// Why nobody can write, if nobody can.
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

/// Fails where a MySQL server takes the writes of its administrators alone, of whom this user may be one.
pub(super) async fn check(conn: &mut Conn) -> Result<(), Error> {
    let row = conn.fetch_optional(&ONLY_READS, &[]).await?;
    let why = row.map(|row| row.get::<Option<String>>("why"));
    match why.transpose()?.flatten() {
        Some(why) => Err(Error::unavailable(Source::Mysql(Failure::Node(why)))),
        None => Ok(()),
    }
}

/// Fails where this user may not write SQLite's file. SQLite opens it all the same, to read.
pub fn allowed(location: &Location) -> Result<(), Error> {
    let Some(file) = location.file() else {
        return Ok(());
    };
    match access(file, AccessFlags::W_OK) {
        // A file that is not there is made. A disk that is mounted read-only may be mounted otherwise while
        // a daemon waits; nobody gives it a right.
        Ok(()) | Err(Errno::ENOENT | Errno::EROFS) => Ok(()),
        Err(errno) => {
            let error = std::io::Error::from(errno);
            let text = format!("this user may not write {}: {error}", file.display());
            let error = std::io::Error::new(error.kind(), text);
            Err(Error::unavailable(Source::Io(error)))
        }
    }
}

/// The full disk of SQLite's file, of which not even root has any left. Heartbeats may find a place in the log that
/// was there already, while the result of a step finds none: so it is told at once.
pub fn full(location: &Location) -> Option<String> {
    let file = location.file()?;
    let disk = statvfs(file).ok()?;
    // Some file systems do not count.
    (disk.blocks() > 0 && disk.blocks_free() == 0).then(|| no_room(file))?
}

/// Of the disk that a file of SQLite's is on.
fn no_room(file: &Path) -> Option<String> {
    let disk = statvfs(file).ok()?;
    let read_only = disk.flags().contains(FsFlags::ST_RDONLY);
    // A part may be kept for root.
    let free = match nix::unistd::geteuid().is_root() {
        true => disk.blocks_free(),
        false => disk.blocks_available(),
    };
    // Some file systems do not count.
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
