//! The means by which a drill forces a race in the database.
//!
//! Owns: those statements: cutting a connection, holding a lock until others wait for it. Never:
//! writes a row, or runs in a daemon.

use std::time::Duration;

use crate::model::RunId;

use super::conn::Conn;
use super::dialect::Dialect;
use super::error::Error;
use super::statement::{Only, Statement};

static SESSION: Statement = Statement::only(
    Only::Postgres,
    "SESSION",
    "SELECT CAST(pg_backend_pid() AS bigint) AS session",
)
.on_mysql(&[&CONNECTION]);
static CONNECTION: Statement = Statement::only(
    Only::Mysql,
    "CONNECTION",
    "SELECT {big:CONNECTION_ID()} AS session",
);
static CUT: Statement = Statement::only(
    Only::Postgres,
    "CUT",
    "SELECT pg_terminate_backend(CAST(:session AS int)) AS cut",
)
.on_mysql(&[&KILL]);
static KILL: Statement = Statement::only(Only::Mysql, "KILL", "KILL :session");
static WAITS: Statement = Statement::only(
    Only::Postgres,
    "WAITS",
    "SELECT 1 AS found FROM pg_stat_activity
      WHERE pid = CAST(:session AS int) AND wait_event_type = 'Lock'",
)
.on_mysql(&[&WAITS_FOR_LOCK]);
static WAITS_FOR_LOCK: Statement = Statement::only(
    Only::Mysql,
    "WAITS_FOR_LOCK",
    "SELECT 1 AS found FROM information_schema.INNODB_TRX
      WHERE trx_mysql_thread_id = :session AND trx_state = 'LOCK WAIT'",
);
/// A user without the right to PROCESS sees, for another session of its own, since when it has run a statement: none
/// of the statements here takes that long unless it waits.
static IS_AT_A_STATEMENT: Statement = Statement::only(
    Only::Mysql,
    "IS_AT_A_STATEMENT",
    "SELECT 1 AS found FROM information_schema.PROCESSLIST
      WHERE ID = :session AND COMMAND IN ('Query', 'Execute') AND TIME >= 1",
);
static BARRIERS: Statement = Statement::new(
    "BARRIERS_OF_RUN",
    "SELECT id FROM ductwork_fan_outs WHERE run_id = :run {lock}",
);

/// A little longer than MySQL caches its answer about the transactions under way.
const LOOKS_ANEW: Duration = Duration::from_millis(110);

/// The server's id of a connection; `None` on SQLite, which has no server.
pub async fn session(conn: &mut Conn) -> Result<Option<i64>, Error> {
    if !SESSION.is_for(conn.dialect()) {
        return Ok(None);
    }
    let row = conn.fetch_optional(&SESSION, &[]).await?;
    row.map(|row| row.get("session")).transpose()
}

/// Ends another session, as an administrator or a crash would. The role of both must be the same.
pub async fn cut(conn: &mut Conn, session: i64) -> Result<(), Error> {
    conn.fetch(&CUT, &[("session", session.into())]).await?;
    Ok(())
}

/// The pause between two looks at the waiters. MySQL refreshes its answer about locks only when nobody has asked for
/// a tenth of a second.
pub const LOOK_AGAIN: Duration = Duration::from_millis(150);

/// True while a session waits for a lock of another session.
pub async fn waits(conn: &mut Conn, session: i64) -> Result<bool, Error> {
    // MySQL refreshes its answer only when nobody has asked for a tenth of a second.
    if conn.dialect() == Dialect::Mysql {
        tokio::time::sleep(LOOKS_ANEW).await;
    }
    let args = [("session", session.into())];
    let found = match conn.fetch_optional(&WAITS, &args).await {
        Err(Error::Hindered { source, .. }) if source.is_denied() => {
            conn.fetch_optional(&IS_AT_A_STATEMENT, &args).await
        }
        found => found,
    };
    Ok(found?.is_some())
}

/// Locks the barriers of a run, or takes the right to write (SQLite), and holds them until
/// [`let_go`].
pub async fn hold_barriers(conn: &mut Conn, run: RunId) -> Result<(), Error> {
    let begin = conn.dialect().backend().begin();
    conn.script("BEGIN", begin).await?;
    conn.fetch(&BARRIERS, &[("run", run.0.into())]).await?;
    Ok(())
}

/// Releases everything that was held.
pub async fn let_go(conn: &mut Conn) -> Result<(), Error> {
    conn.script("ROLLBACK", "ROLLBACK").await
}
