//! Locks of others that block us.
//!
//! Owns: the queries for these locks, which MariaDB and MySQL answer differently, and both only to users with the
//! right. A lock on a whole table is found by trying what it would block, which takes no right. Never: words the
//! findings (`writable`).

use std::time::Duration;

use mysql_async::prelude::{FromRow, Queryable};

use super::connection::Mysql;
use super::error::Failure;

/// A lock, and its holder as far as the server tells.
#[derive(Debug, PartialEq, Eq)]
pub struct Lock {
    /// The locked object.
    pub on: On,
    /// The holder; or why the server does not name it.
    pub holder: Result<Session, Untold>,
    /// Host and port of the server that has the session, where the address names several.
    pub at: Option<String>,
}

/// The object that somebody has locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    /// A table, which nobody can write to.
    Table {
        /// The name of the table.
        name: String,
        /// True where nobody can read it either.
        hidden: bool,
    },
    /// The writes of all tables.
    Server,
    /// Some rows.
    Rows {
        /// The table of the rows, which is known where somebody waits for them.
        table: Option<String>,
        /// Nobody was seen to wait for the session: it has locked rows, perhaps others.
        is_guess: bool,
    },
}

/// Somebody's session.
#[derive(Debug, PartialEq, Eq)]
pub struct Session {
    /// The id as KILL takes it.
    pub id: u64,
    /// The user, with the host where the server tells it.
    pub user: Option<String>,
    /// True where the session runs no statement.
    pub is_idle: bool,
    /// How long it has held the lock.
    pub held: Duration,
}

/// Why no holder is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untold {
    /// The user may not see the locks of others.
    NoRight(&'static str),
    /// The server keeps no list of such locks.
    NoList,
    /// The list names no holder, so the lock has been released by now.
    Nobody,
}

const TABLES: &str = "
    SELECT TABLE_NAME FROM information_schema.TABLES
     WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'ductwork\\_%' AND TABLE_TYPE = 'BASE TABLE'
     ORDER BY TABLE_NAME <> 'ductwork_processes', TABLE_NAME";

/// A plug-in of MariaDB, which has to be installed. It lists only holders of locks, and not always since when they
/// hold them.
const HOLDERS_ON_MARIADB: &str = "
    SELECT m.THREAD_ID, p.USER || '@' || p.HOST, p.COMMAND,
           CAST(coalesce(m.LOCK_TIME_MS, p.TIME_MS, 0) AS UNSIGNED)
      FROM information_schema.METADATA_LOCK_INFO m
      LEFT JOIN information_schema.PROCESSLIST p ON p.ID = m.THREAD_ID
     WHERE m.THREAD_ID <> CONNECTION_ID()
       AND (m.TABLE_SCHEMA = DATABASE() AND m.TABLE_NAME = '{table}'
            AND m.LOCK_MODE NOT IN ('MDL_SHARED', 'MDL_SHARED_HIGH_PRIO', 'MDL_SHARED_READ', 'MDL_SHARED_WRITE')
            OR m.LOCK_MODE LIKE 'MDL\\_BACKUP\\_FTWRL%' AND '{table}' = '')
     ORDER BY 4 DESC LIMIT 1";

/// The list of sessions shows the statement of a change of the schema, with or without the plug-in.
const CHANGES_ON_MARIADB: &str = "
    SELECT ID, USER || '@' || HOST, COMMAND, CAST(TIME_MS AS UNSIGNED)
      FROM information_schema.PROCESSLIST
     WHERE ID <> CONNECTION_ID() AND DB = DATABASE() AND COMMAND = 'Query' AND '{table}' <> ''
       AND INFO REGEXP '^[[:space:]]*(ALTER|OPTIMIZE|CREATE|DROP|RENAME|TRUNCATE|REPAIR|ANALYZE)[[:space:]]'
       AND INFO LIKE '%{table}%'
     ORDER BY TIME_MS DESC LIMIT 1";

const HOLDERS_ON_MYSQL: &str = "
    SELECT t.PROCESSLIST_ID, t.PROCESSLIST_USER || '@' || t.PROCESSLIST_HOST, t.PROCESSLIST_COMMAND,
           CAST(1000 * t.PROCESSLIST_TIME AS UNSIGNED)
      FROM performance_schema.metadata_locks m
      JOIN performance_schema.threads t ON t.THREAD_ID = m.OWNER_THREAD_ID
     WHERE m.LOCK_STATUS = 'GRANTED' AND t.PROCESSLIST_ID <> CONNECTION_ID()
       AND (m.OBJECT_TYPE = 'TABLE' AND m.OBJECT_SCHEMA = DATABASE() AND m.OBJECT_NAME = '{table}'
            AND m.LOCK_TYPE NOT IN ('SHARED', 'SHARED_HIGH_PRIO', 'SHARED_READ', 'SHARED_WRITE')
            OR m.OBJECT_TYPE = 'GLOBAL' AND m.LOCK_TYPE = 'SHARED' AND '{table}' = '')
     ORDER BY t.PROCESSLIST_TIME DESC LIMIT 1";

/// Every waiter gives up and tries again, so at any moment there may be none. A transaction that itself waits has an
/// obstacle of its own, and no transaction of ours is idle for long.
const ROWS_ON_MARIADB: &str = "
    SELECT replace(substring_index(r.lock_table, '.', -1), '`', ''), {session}
      FROM information_schema.INNODB_LOCK_WAITS w
      JOIN information_schema.INNODB_LOCKS r ON r.lock_id = w.requested_lock_id
      JOIN information_schema.INNODB_TRX b ON b.trx_id = w.blocking_trx_id
      LEFT JOIN information_schema.PROCESSLIST p ON p.ID = b.trx_mysql_thread_id
     WHERE r.lock_table LIKE '`' || DATABASE() || '`.`ductwork\\_%' AND {foreign}
     ORDER BY b.trx_started LIMIT 1";

/// MySQL has the table only in `data_locks`, which cannot be read: it fails at keys that are bytes, as ours are.
const ROWS_ON_MYSQL: &str = "
    SELECT NULL, {session}
      FROM performance_schema.data_lock_waits w
      JOIN information_schema.INNODB_TRX b ON b.trx_id = w.BLOCKING_ENGINE_TRANSACTION_ID
      JOIN information_schema.PROCESSLIST p ON p.ID = b.trx_mysql_thread_id
     WHERE p.DB = DATABASE() AND {foreign}
     ORDER BY b.trx_started LIMIT 1";

/// A claim skips the rows that are locked, and waits for nobody.
const IDLE: &str = "
    SELECT NULL, {session}
      FROM information_schema.INNODB_TRX b
      JOIN information_schema.PROCESSLIST p ON p.ID = b.trx_mysql_thread_id
     WHERE p.DB = DATABASE() AND p.COMMAND = 'Sleep' AND b.trx_rows_locked > 0 AND {foreign}
     ORDER BY b.trx_started LIMIT 1";

const SESSION: &str = "
    b.trx_mysql_thread_id, p.USER || '@' || p.HOST, p.COMMAND,
    CAST(1000 * TIMESTAMPDIFF(SECOND, b.trx_started, NOW()) AS UNSIGNED)";

const FOREIGN: &str = "
    b.trx_state = 'RUNNING' AND b.trx_mysql_thread_id <> CONNECTION_ID() AND b.trx_started <= NOW() - INTERVAL 5 SECOND
    AND (p.COMMAND = 'Sleep' OR p.USER <> substring_index(USER(), '@', 1))";

impl Mysql {
    /// The lock that keeps us from writing to a table of ours, if one does so for as long as this connection waits for
    /// locks.
    pub async fn table_lock(&mut self) -> Result<Option<Lock>, Failure> {
        for name in self.rows::<String>(TABLES).await? {
            if self
                .is_free(&format!("{} FOR UPDATE", probe(&name)))
                .await?
            {
                continue;
            }
            // The same lock is not waited for twice.
            let shortest = u8::from(!self.is_mariadb());
            let hurry = format!("SET SESSION lock_wait_timeout = {shortest}");
            self.text(&hurry).await?;
            let on = self.what_is_locked(name).await;
            let patience = self.lock_wait();
            self.text(&patience).await?;
            let on = on?;
            let holder = self.holder(&on).await?;
            let at = self.place();
            return Ok(Some(Lock { on, holder, at }));
        }
        Ok(None)
    }

    async fn what_is_locked(&mut self, name: String) -> Result<On, Failure> {
        if !self.is_free(&probe(&name)).await? {
            return Ok(On::Table { name, hidden: true });
        }
        for other in self.rows::<String>(TABLES).await? {
            if self
                .is_free(&format!("{} FOR UPDATE", probe(&other)))
                .await?
            {
                let hidden = false;
                return Ok(On::Table { name, hidden });
            }
        }
        Ok(On::Server)
    }

    /// The transaction of somebody else that has locked rows of ours, as far as this user may know. It is looked for
    /// `looks` times.
    pub async fn row_lock(&mut self, looks: u32, pause: Duration) -> Result<Option<Lock>, Failure> {
        let with = |text: &str| {
            text.replace("{session}", SESSION)
                .replace("{foreign}", FOREIGN)
        };
        let waits = with(match self.is_mariadb() {
            true => ROWS_ON_MARIADB,
            false => ROWS_ON_MYSQL,
        });
        let mut found = Vec::new();
        for look in 0..looks {
            if look > 0 {
                tokio::time::sleep(pause).await;
            }
            found = match self
                .rows::<(Option<String>, u64, Option<String>, Option<String>, u64)>(&waits)
                .await
            {
                Err(failure) if failure.is_denied() => {
                    let (table, is_guess) = (None, false);
                    let (on, holder) = (On::Rows { table, is_guess }, Err(self.no_right()));
                    let at = self.place();
                    return Ok(Some(Lock { on, holder, at }));
                }
                found => found?,
            };
            if !found.is_empty() {
                break;
            }
        }
        let is_guess = found.is_empty();
        if is_guess {
            found = self.rows(&with(IDLE)).await?;
        }
        Ok(found.pop().map(|(table, id, user, command, held)| Lock {
            on: On::Rows { table, is_guess },
            holder: Ok(session((id, user, command, held))),
            at: self.place(),
        }))
    }

    async fn holder(&mut self, on: &On) -> Result<Result<Session, Untold>, Failure> {
        let name = match on {
            On::Table { name, .. } => name,
            On::Server | On::Rows { .. } => "",
        };
        let asked = match self.is_mariadb() {
            true => HOLDERS_ON_MARIADB,
            false => HOLDERS_ON_MYSQL,
        };
        let told = self.rows(&asked.replace("{table}", name)).await;
        Ok(match told {
            Ok(mut told) => told.pop().map(session).ok_or(Untold::Nobody),
            Err(failure) if failure.is_denied() => Err(self.no_right()),
            Err(failure) if failure.is_unknown_table() => {
                let changes = CHANGES_ON_MARIADB.replace("{table}", name);
                let changes = self.rows(&changes).await?.pop();
                changes.map(session).ok_or(Untold::NoList)
            }
            Err(failure) => return Err(failure),
        })
    }

    fn no_right(&self) -> Untold {
        Untold::NoRight(match self.is_mariadb() {
            true => "GRANT PROCESS ON *.*",
            false => "GRANT PROCESS ON *.* and GRANT SELECT ON performance_schema.*",
        })
    }

    /// False when somebody else's lock blocks the statement.
    async fn is_free(&mut self, sql: &str) -> Result<bool, Failure> {
        match self.text(sql).await {
            Ok(_) => Ok(true),
            // The statement is refused, and does not wait.
            Err(failure) if failure.only_reads() => Ok(true),
            Err(failure) if failure.code() == 1205 => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    async fn rows<T: FromRow>(&mut self, sql: &str) -> Result<Vec<T>, Failure> {
        let rows: Vec<mysql_async::Row> = self.conn()?.query(sql).await?;
        let row = |row| {
            T::from_row_opt(row).map_err(|error| mysql_async::DriverError::FromRow { row: error.0 })
        };
        let rows: Result<Vec<T>, _> = rows.into_iter().map(row).collect();
        Ok(rows.map_err(mysql_async::Error::Driver)?)
    }
}

/// A statement that needs the lock on a table, and none on a row.
fn probe(table: &str) -> String {
    format!("SELECT 1 FROM {table} WHERE 1 = 0")
}

fn session((id, user, command, held): (u64, Option<String>, Option<String>, u64)) -> Session {
    Session {
        id,
        user,
        is_idle: command.as_deref() == Some("Sleep"),
        held: Duration::from_millis(held),
    }
}
