//! One connection, to any of the databases.
//!
//! Owns: connecting, running a statement, reading a row, beginning and ending a transaction. A
//! connection belongs to one task; it is never shared, never pooled, and never dropped inside a
//! transaction by cancelling a future: a caller that waits on the database waits until it answers
//! (sqlx#4385 lets the next borrower inherit a cancelled transaction). After an error whose effect
//! is unknown, the connection is closed, not reused. The same happens when no answer has come for
//! too long; the bound is the connection's own (`patience`).

mod location;

use std::collections::HashSet;
use std::str::FromStr;
use std::time::Duration;

use rusqlite::types::Value;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use tokio::time::Instant;

use super::backend::mysql::connection::{self as mysql, Mysql};
use super::backend::mysql::locks::Lock;
use super::backend::mysql::script;
use super::backend::mysql::value as mysql_value;
use super::backend::postgres::connection::Postgres;
use super::backend::postgres::servers::ServerRef;
use super::backend::sqlite::connection::{self as sqlite, Answer, Sqlite};

use super::backend::sqlite::packed;
use super::backend::{Asks, Setting};
use super::chance;
use super::dialect::Dialect;
use super::error::{Error, Source};
use super::patience::{LOOK, Patience};
use super::statement::{Arg, Args, Request, Statement, find};
#[cfg(test)]
use crate::explorer::local::Local;

pub use location::{Location, Purpose};

/// How often a transaction is tried whose writes find fewer rows than they must; after that, the rows do not
/// exist. A transaction in conflict with others is tried for as long as the connection's patience lasts.
const COUNTED_ATTEMPTS: u32 = 20;

/// The longest wait before a transaction is tried again is this power of two in milliseconds, before the random factor.
const AGAIN_MAX_LOG: u32 = 6;

/// A query that somebody ended is sent this often, and not again after this long.
const ENDED_ATTEMPTS: u32 = 3;
const ENDED_WITHIN: Duration = Duration::from_secs(5);

/// A connection.
pub struct Conn {
    inner: Inner,
    /// An error left its state unknown.
    pub(super) broken: bool,
    /// A transaction is under way.
    within: bool,
    /// The server that it leads to, where there are several.
    server: Option<ServerRef>,
    /// The number of round trips so far, for callers that count them.
    statements: u64,
    /// Digests of the definitions that were stored through it.
    pub(super) saved: HashSet<String>,
    /// The time until which its claims may begin behind the head of the queue (`claim`).
    pub(super) spreads: Option<Instant>,
    bounds: Bounds,
    patience: Patience,
}

/// A transaction's bounds. Where statements are sent in turn, the bounds travel with the first and the last
/// one: each trip to SQLite's thread and back costs as much as a small statement, and MariaDB takes them as
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bounds {
    /// There is no transaction, or its bounds are sent separately.
    Sent,
    /// The transaction begins with the next statement.
    ToBegin(&'static str),
    /// The transaction was committed with its last statement.
    Ended,
}

enum Inner {
    Postgres(Postgres),
    Sqlite(Sqlite),
    Mysql(Box<Mysql>),
    #[cfg(test)]
    Local(Box<Local>),
}

/// The answer of a database that statements are sent to in turn.
struct Answered {
    /// The rows of all statements, in their order.
    rows: Vec<Row>,
    /// How many rows the statements wrote in total.
    written: u64,
}

impl From<Answer> for Answered {
    fn from(Answer { rows, written }: Answer) -> Self {
        let rows = rows.into_iter().map(Row::Sqlite).collect();
        Self { rows, written }
    }
}

impl From<mysql::Answer> for Answered {
    fn from(mysql::Answer { rows, written }: mysql::Answer) -> Self {
        let rows = rows.into_iter().map(Row::Mysql).collect();
        Self { rows, written }
    }
}

/// One row of an answer.
pub enum Row {
    /// Of PostgreSQL.
    Postgres(PgRow),
    /// Of SQLite.
    Sqlite(sqlite::Row),
    /// Of MySQL or MariaDB.
    Mysql(mysql_value::Row),
}

/// A type that a column can be read as, from each database.
pub trait Read:
    for<'r> sqlx::Decode<'r, sqlx::Postgres>
    + sqlx::Type<sqlx::Postgres>
    + sqlite::FromValue
    + mysql_value::FromValue
{
}

impl<T> Read for T where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres>
        + sqlx::Type<sqlx::Postgres>
        + sqlite::FromValue
        + mysql_value::FromValue
{
}

impl Row {
    /// The value of a column.
    pub fn get<T: Read>(&self, column: &str) -> Result<T, Error> {
        match self {
            Self::Postgres(row) => {
                let value = row.try_get(column);
                value.map_err(|error| Error::Corrupt(error.to_string()))
            }
            Self::Sqlite(row) => row.get(column),
            Self::Mysql(row) => row.get(column),
        }
    }

    /// The value of a column of status words.
    pub fn word<T>(&self, column: &str) -> Result<T, Error>
    where
        T: FromStr<Err = crate::model::UnknownWord>,
    {
        Ok(self.get::<String>(column)?.parse()?)
    }

    /// The value of a column of status words that may be absent.
    pub fn optional_word<T>(&self, column: &str) -> Result<Option<T>, Error>
    where
        T: FromStr<Err = crate::model::UnknownWord>,
    {
        let word = self.get::<Option<String>>(column)?;
        Ok(word.map(|word| word.parse()).transpose()?)
    }

    /// A counter.
    pub fn count(&self, column: &str) -> Result<u32, Error> {
        Ok(self.get::<i64>(column)?.clamp(0, i64::from(u32::MAX)) as u32)
    }
}

impl Conn {
    /// A connection of the explorer.
    #[cfg(test)]
    pub(crate) fn local(local: Local) -> Self {
        Self::of(Inner::Local(Box::new(local)), Self::PATIENCE)
    }

    #[cfg(test)]
    pub(super) fn sqlite(sqlite: Sqlite) -> Self {
        Self::of(Inner::Sqlite(sqlite), Self::PATIENCE)
    }

    #[cfg(test)]
    const PATIENCE: Patience = Patience {
        answer: super::patience::LEASE,
        statement: None,
        lock: None,
        hurried: false,
        contended: super::patience::LEASE,
        asks: false,
        silence: super::patience::LEASE,
    };

    fn of(inner: Inner, patience: Patience) -> Self {
        Self {
            inner,
            broken: false,
            within: false,
            server: None,
            statements: 0,
            saved: HashSet::new(),
            spreads: None,
            bounds: Bounds::Sent,
            patience,
        }
    }

    /// The explorer's own end of the connection.
    #[cfg(test)]
    pub(crate) fn as_local(&mut self) -> &mut Local {
        match &mut self.inner {
            Inner::Local(local) => local,
            _ => unreachable!("only the explorer asks for it"),
        }
    }

    /// The kind of the database that it leads to.
    pub fn dialect(&self) -> Dialect {
        match self.inner {
            Inner::Postgres(_) => Dialect::Postgres,
            Inner::Sqlite(_) => Dialect::Sqlite,
            Inner::Mysql(_) => Dialect::Mysql,
            #[cfg(test)]
            Inner::Local(_) => Dialect::Sqlite,
        }
    }

    /// The manner in which it takes a hot operation.
    pub(super) fn asks(&self) -> Asks {
        self.dialect().backend().asks()
    }

    /// True where two transactions may write at once, and lock row by row.
    pub(super) fn locks_rows(&self) -> bool {
        self.dialect().backend().locks_rows()
    }

    /// True at a node of a cluster, which does not see the locks of the other nodes.
    pub(super) fn is_in_cluster(&self) -> bool {
        matches!(&self.inner, Inner::Mysql(conn) if conn.is_in_cluster())
    }

    /// Changes a setting for the transaction under way, where the database has this setting.
    pub(super) async fn set(&mut self, setting: Setting) -> Result<(), Error> {
        match self.dialect().backend().setting(setting) {
            Some(text) => self.script("SET", text).await,
            None => Ok(()),
        }
    }

    /// From now on each statement goes alone to MariaDB, as it does to MySQL.
    #[cfg(feature = "internals")]
    pub fn sends_each_alone(&mut self) {
        if let Inner::Mysql(conn) = &mut self.inner {
            conn.sends_each_alone();
        }
    }

    /// True when an error left its state unknown, or this process works on another server by now: close it
    /// and open another.
    pub fn is_broken(&self) -> bool {
        let is_left = match &self.inner {
            Inner::Mysql(conn) => conn.is_left(),
            _ => self.server.as_ref().is_some_and(ServerRef::is_left),
        };
        self.broken || is_left
    }

    /// Requests sent to the database since the last call: statements, BEGIN and COMMIT; on SQLite, the
    /// latter two travel with others.
    pub fn take_statements(&mut self) -> u64 {
        std::mem::take(&mut self.statements)
    }

    /// Runs a statement, and returns how many rows it wrote.
    pub async fn execute(&mut self, statement: &Statement, args: Args<'_>) -> Result<u64, Error> {
        let Inner::Postgres(conn) = &mut self.inner else {
            return Ok(self.ask(statement, args).await?.written);
        };
        self.statements += 1;
        let done = self.patience.answered(conn.execute(statement, args)).await;
        done.map_err(|error| self.failed(error, statement.name))
    }

    /// Runs a statement that writes `rows` rows, no more and no fewer: otherwise somebody has changed
    /// the data that the transaction relies on, and the transaction must be rolled back.
    pub(super) async fn write(
        &mut self,
        statement: &Statement,
        args: Args<'_>,
        rows: usize,
    ) -> Result<(), Error> {
        self.counted(statement, args, rows, rows).await
    }

    /// The same for a statement that inserts or overwrites rows: some databases count an overwritten row
    /// twice.
    pub(super) async fn replace(
        &mut self,
        statement: &Statement,
        args: Args<'_>,
        rows: usize,
    ) -> Result<(), Error> {
        self.counted(statement, args, rows, 2 * rows).await
    }

    async fn counted(
        &mut self,
        statement: &Statement,
        args: Args<'_>,
        rows: usize,
        most: usize,
    ) -> Result<(), Error> {
        let written = self.execute(statement, args).await?;
        match (rows as u64..=most as u64).contains(&written) {
            true => Ok(()),
            false => Err(Error::Corrupt(format!(
                "{} was to write {rows} rows, and wrote {written}",
                statement.name
            ))),
        }
    }

    /// Runs a statement, and returns its rows.
    pub async fn fetch(
        &mut self,
        statement: &Statement,
        args: Args<'_>,
    ) -> Result<Vec<Row>, Error> {
        let mut attempts = Attempts::begin();
        loop {
            let Inner::Postgres(conn) = &mut self.inner else {
                return Ok(self.ask(statement, args).await?.rows);
            };
            self.statements += 1;
            let error = match self.patience.answered(conn.fetch(statement, args)).await {
                Ok(rows) => return Ok(rows.into_iter().map(Row::Postgres).collect()),
                Err(error) => self.failed(error, statement.name),
            };
            if !self.asks_again(statement, &error, &attempts) {
                return Err(error);
            }
            attempts.next().await;
        }
    }

    /// Runs the last statement of a transaction, and returns its rows. Where statements are sent in turn, its COMMIT
    /// goes with it: the statement itself has to fail if the transaction must not be committed; its rows cannot decide
    /// that.
    pub async fn fetch_and_commit(
        &mut self,
        statement: &Statement,
        args: Args<'_>,
    ) -> Result<Vec<Row>, Error> {
        if let Inner::Postgres(_) = self.inner {
            return self.fetch(statement, args).await;
        }
        let answer = self.ask_in_turn(statement, args, Some("COMMIT")).await?;
        self.bounds = Bounds::Ended;
        Ok(answer.rows)
    }

    /// The text that has to be sent together with the next statement.
    fn begins(&mut self) -> Option<&'static str> {
        debug_assert_ne!(self.bounds, Bounds::Ended, "a statement after the last");
        let Bounds::ToBegin(begin) = self.bounds else {
            return None;
        };
        self.bounds = Bounds::Sent;
        Some(begin)
    }

    /// Sends a statement that does not end its transaction. On a cluster, a statement that is a transaction of its
    /// own loses to a simultaneous commit of another node, as any transaction does, and is tried again in the same
    /// way. So is a query that somebody ended (`a_query_that_somebody_ends_ends_no_command`).
    async fn ask(&mut self, statement: &Statement, args: Args<'_>) -> Result<Answered, Error> {
        let mut attempts = Attempts::begin();
        loop {
            let answer = self.ask_in_turn(statement, args, None).await;
            match answer {
                Err(error) if self.asks_again(statement, &error, &attempts) => {
                    attempts.next().await;
                }
                answer => return answer,
            }
        }
    }

    /// Whether a statement should be sent again: one that is a transaction of its own.
    fn asks_again(&self, statement: &Statement, error: &Error, attempts: &Attempts) -> bool {
        if self.within {
            return false;
        }
        if !error.is_cut_short() {
            let is_on_mysql = matches!(self.inner, Inner::Mysql(_));
            return is_on_mysql && error.is_deadlock() && self.tries_again(error, attempts);
        }
        // A query that took long was ended for that, by our own limit or by a person. A write may have been committed
        // all the same.
        let limit = self.patience.statement.map(|limit| limit / 2);
        let limit = limit.map_or(ENDED_WITHIN, |limit| limit.min(ENDED_WITHIN));
        let asked = statement.rendered(self.dialect()).asked;
        let only_reads = |asked: &Request| asked.sql.trim_start().starts_with("SELECT");
        let is_worth_it = attempts.made < ENDED_ATTEMPTS && attempts.since.elapsed() < limit;
        is_worth_it && asked.iter().all(only_reads) && !self.broken
    }

    async fn ask_in_turn(
        &mut self,
        statement: &Statement,
        args: Args<'_>,
        end: Option<&'static str>,
    ) -> Result<Answered, Error> {
        let begin = self.begins();
        let answer = match &mut self.inner {
            Inner::Sqlite(conn) => {
                self.statements += 1;
                let asked = statement.rendered(Dialect::Sqlite).asked;
                let answer = conn.run([begin, end], asked, sqlite_values(statement, args));
                let answer = answer
                    .await
                    .map_err(|failed| (failed.source, failed.at_end));
                answer.map(Answered::from)
            }
            Inner::Mysql(conn) => {
                let answer =
                    async { Ok::<_, Source>(conn.ask([begin, end], statement, args).await) };
                let answer = self.patience.answered(answer).await;
                self.statements += conn.take_sent();
                match answer {
                    Ok(answer) => answer
                        .map(Answered::from)
                        .map_err(|failed| (failed.source, failed.at_end)),
                    Err(source) => Err((source, end.is_some())),
                }
            }
            #[cfg(test)]
            Inner::Local(local) => {
                self.statements += 1;
                let answer = local.run(statement, args)?;
                return match end {
                    Some(end) => local.script(end, end).map(|()| answer.into()),
                    None => Ok(answer.into()),
                };
            }
            Inner::Postgres(_) => unreachable!("PostgreSQL is asked all at once"),
        };
        answer.map_err(|(source, at_end)| match at_end {
            true => self.failed_at_end(source, statement.name),
            false => self.failed(source, statement.name),
        })
    }

    /// Runs a statement outside of a transaction, and returns its rows, where these decide something that no lock and
    /// no write protects. A node of a cluster catches up with the others before.
    pub(super) async fn fetch_latest(
        &mut self,
        statement: &Statement,
        args: Args<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.catch_up().await?;
        self.fetch(statement, args).await
    }

    /// Outside of a transaction, waits until this node of a cluster has everything that others have acknowledged.
    pub async fn catch_up(&mut self) -> Result<(), Error> {
        if let Inner::Mysql(conn) = &mut self.inner {
            let done = self.patience.answered(conn.catch_up()).await;
            self.statements += conn.take_sent();
            done.map_err(|error| self.failed(error, "CATCH_UP"))?;
        }
        Ok(())
    }

    /// The lock of somebody else that keeps us from writing to a table of ours, on MySQL: waited for as long as this
    /// connection waits.
    pub(super) async fn table_lock(&mut self) -> Result<Option<Lock>, Error> {
        let Inner::Mysql(conn) = &mut self.inner else {
            return Ok(None);
        };
        let found = self.patience.answered(conn.table_lock()).await;
        found.map_err(|error| self.failed(error, "TABLE_LOCK"))
    }

    /// The transaction of somebody else that has locked rows of ours, on MySQL. Its waiters come and go, so this looks
    /// for it a few times where there is time.
    pub(super) async fn row_lock(&mut self) -> Result<Option<Lock>, Error> {
        let Inner::Mysql(conn) = &mut self.inner else {
            return Ok(None);
        };
        let looks = match self.patience.lock >= Some(LOOK) {
            true => 6,
            false => 1,
        };
        let found = conn.row_lock(looks, LOOK / 12);
        let found = self.patience.answered(found).await;
        found.map_err(|error| self.failed(error, "ROW_LOCK"))
    }

    /// Runs a statement that yields at most one row.
    pub async fn fetch_optional(
        &mut self,
        statement: &Statement,
        args: Args<'_>,
    ) -> Result<Option<Row>, Error> {
        Ok(self.fetch(statement, args).await?.into_iter().next())
    }

    /// Runs a statement that is a transaction of its own, and returns its rows. It is tried again
    /// when the database asks for that.
    pub async fn fetch_autocommit(
        &mut self,
        statement: &Statement,
        args: Args<'_>,
    ) -> Result<Vec<Row>, Error> {
        if matches!(self.inner, Inner::Mysql(_)) && !statement.parts(Dialect::Mysql).is_empty() {
            return self.fetch_parts(statement, args).await;
        }
        let mut attempts = Attempts::begin();
        loop {
            match self.fetch(statement, args).await {
                // The statement commits by itself: if the answer is lost, its fate is unknown.
                Err(Error::Unavailable { source, .. }) => {
                    return Err(Error::Unavailable {
                        source,
                        in_commit: true,
                    });
                }
                Err(error) if self.tries_again(&error, &attempts) => attempts.next().await,
                done => return done,
            }
        }
    }

    /// Runs a statement that consists of several on this database, in a transaction of its own.
    async fn fetch_parts(
        &mut self,
        statement: &Statement,
        args: Args<'_>,
    ) -> Result<Vec<Row>, Error> {
        let work = async |conn: &mut Conn| conn.fetch_and_commit(statement, args).await;
        Box::pin(self.transaction(work))
            .await
            .map_err(|error| match error {
                Error::Unavailable { source, .. } => Error::Unavailable {
                    source,
                    in_commit: true,
                },
                error => error,
            })
    }

    /// Makes the database parse a statement and resolve its names, without running it.
    #[cfg(feature = "internals")]
    pub async fn check(&mut self, statement: &Statement) -> Result<(), Error> {
        self.statements += 1;
        let sql = statement.sql(self.dialect());
        let prepared = match &mut self.inner {
            Inner::Postgres(conn) => self.patience.answered(conn.check(sql)).await,
            Inner::Sqlite(conn) => conn.check(sql).await,
            Inner::Mysql(conn) => {
                let asked = statement.rendered(Dialect::Mysql).asked;
                self.patience.answered(conn.check(asked)).await
            }
            #[cfg(test)]
            Inner::Local(_) => return Ok(()),
        };
        prepared.map_err(|error| self.failed(error, statement.name))
    }

    /// Runs a `'static` text of several statements without parameters.
    pub async fn script(&mut self, name: &'static str, text: &'static str) -> Result<(), Error> {
        if let Some(begin) = self.begins() {
            Box::pin(self.script("BEGIN", begin)).await?;
        }
        self.statements += 1;
        let done = match &mut self.inner {
            Inner::Postgres(conn) => self.patience.answered(conn.script(text)).await,
            Inner::Sqlite(conn) => conn.script(text).await,
            Inner::Mysql(conn) => self.patience.answered(conn.script(text)).await,
            #[cfg(test)]
            Inner::Local(local) => return local.script(name, text),
        };
        done.map_err(|error| match name {
            "COMMIT" => self.failed_at_end(error, name),
            _ => self.failed(error, name),
        })
    }

    /// Changes the schema with a `'static` text of several statements: in a transaction where a transaction
    /// can undo this, and otherwise each alone, as if it had not been run before, as long as `before` returns true.
    pub(super) async fn change_schema(
        &mut self,
        name: &'static str,
        text: &'static str,
        mut before: impl AsyncFnMut(&mut Conn) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        if self.dialect() != Dialect::Mysql {
            return self.script(name, text).await;
        }
        for one in script::statements(text) {
            if !before(self).await? {
                return Ok(());
            }
            if let Inner::Mysql(conn) = &mut self.inner {
                let done = self.patience.answered(conn.change_schema(&one)).await;
                self.statements += conn.take_sent();
                done.map_err(|error| self.failed(error, name))?;
            }
        }
        Ok(())
    }

    /// Runs `work` in a transaction: committed when it returns a value, rolled back when it returns
    /// an error, run again as a whole when the database asks for that. So `work` must not change
    /// anything but the database, or rely on anything that an earlier attempt left in memory.
    ///
    /// Isolation is READ COMMITTED on PostgreSQL; on SQLite the transaction is a writer from
    /// its first statement, because a reader that becomes one cannot wait (D1).
    pub async fn transaction<T>(
        &mut self,
        mut work: impl AsyncFnMut(&mut Conn) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let begin = self.dialect().backend().begin();
        self.attempts(begin, &mut work).await
    }

    /// The same for a caller that goes on with other rows: contention is waited for no longer than this.
    pub(super) async fn transaction_within<T>(
        &mut self,
        contended: Duration,
        work: impl AsyncFnMut(&mut Conn) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let before = std::mem::replace(&mut self.patience.contended, contended);
        let done = self.transaction(work).await;
        self.patience.contended = before;
        done
    }

    /// Runs `work` in one read-only snapshot.
    pub async fn snapshot<T>(
        &mut self,
        mut work: impl AsyncFnMut(&mut Conn) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let begin = self.dialect().backend().begin_snapshot();
        self.attempts(begin, &mut work).await
    }

    async fn attempts<T>(
        &mut self,
        begin: &'static str,
        work: &mut impl AsyncFnMut(&mut Conn) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut attempts = Attempts::begin();
        loop {
            self.within = true;
            let done = match self.begin(begin).await {
                Ok(()) => work(self).await,
                Err(error) => Err(error),
            };
            let failed = match done {
                Ok(value) => match self.commit().await {
                    Ok(()) => {
                        self.within = false;
                        return Ok(value);
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            self.failed_attempt(failed, &mut attempts).await?;
        }
    }

    /// Ends the transaction after this error. Waits before another attempt, or returns the error.
    async fn failed_attempt(
        &mut self,
        failed: Error,
        attempts: &mut Attempts,
    ) -> Result<(), Error> {
        self.within = false;
        let open = std::mem::replace(&mut self.bounds, Bounds::Sent) == Bounds::Sent;
        // Any error ends the transaction, however the database reacts: some databases roll back
        // the statement only (D6), some answer a later COMMIT with success (R3).
        if open && !self.broken && self.script("ROLLBACK", "ROLLBACK").await.is_err() {
            // SQLite rolls back by itself after some errors; then there is no transaction to
            // end.
            self.broken |= self.dialect().backend().is_server();
        }
        if self.tries_again(&failed, attempts) {
            attempts.next().await;
            return Ok(());
        }
        Err(failed.persistent())
    }

    async fn begin(&mut self, begin: &'static str) -> Result<(), Error> {
        if let Inner::Sqlite(_) | Inner::Mysql(_) = self.inner {
            self.bounds = Bounds::ToBegin(begin);
            return Ok(());
        }
        self.script("BEGIN", begin).await
    }

    async fn commit(&mut self) -> Result<(), Error> {
        match std::mem::replace(&mut self.bounds, Bounds::Sent) {
            Bounds::Sent => self.script("COMMIT", "COMMIT").await,
            // No statement was sent, or everything is done.
            Bounds::ToBegin(_) | Bounds::Ended => Ok(()),
        }
    }

    /// Wakes the other hosts that share the database, where it can carry a notification.
    pub async fn notify(&mut self, channel: &str, payload: &str) -> Result<(), Error> {
        let Inner::Postgres(conn) = &mut self.inner else {
            return Ok(());
        };
        self.statements += 1;
        let done = self.patience.answered(conn.notify(channel, payload)).await;
        done.map_err(|error| self.failed(error, "NOTIFY"))
    }

    /// Waits for the next notification, and returns its payload. Waits for ever where there are
    /// none.
    ///
    /// May be dropped while it waits: it reads only whole messages off a buffered stream.
    pub async fn notified(&mut self) -> Result<String, Error> {
        let Inner::Postgres(conn) = &mut self.inner else {
            return std::future::pending().await;
        };
        let heard = conn.notified().await;
        heard.map_err(|error| self.failed(error, "LISTEN"))
    }

    /// A notification that has already arrived.
    pub fn notified_already(&mut self) -> Option<String> {
        match &mut self.inner {
            Inner::Postgres(conn) => conn.notified_already(),
            _ => None,
        }
    }

    /// Whether, from now on, a transaction that has waited for a lock in vain is not tried again: the caller asks first
    /// which row is locked.
    pub fn ask_about_locks(&mut self, asks: bool) {
        self.patience.asks = asks;
    }

    /// Ends the connection politely.
    pub async fn close(self) {
        match self.inner {
            // It may have gone silent meanwhile; then it is closed all the same.
            Inner::Postgres(conn) => drop(self.patience.answered(conn.close()).await),
            Inner::Sqlite(conn) => conn.close().await,
            // In the middle of a request, no goodbye is sent.
            Inner::Mysql(conn) if self.broken => drop(conn),
            Inner::Mysql(conn) => drop(self.patience.answered(conn.close()).await),
            #[cfg(test)]
            Inner::Local(_) => {}
        }
    }

    /// Whether a failed transaction should be tried again, as a whole and at once.
    fn tries_again(&self, error: &Error, attempts: &Attempts) -> bool {
        let is_worth_it = match error.is_count() {
            true => attempts.made < COUNTED_ATTEMPTS && !self.patience.hurried,
            false if self.patience.asks && error.is_lock_wait() => false,
            false => attempts.since.elapsed() < self.patience.contended,
        };
        matches!(error, Error::Retryable { .. }) && is_worth_it && !self.broken
    }

    fn failed(&mut self, error: impl Into<Source>, statement: &'static str) -> Error {
        let source = error.into();
        // A failing disk leaves SQLite's connection as it was; its thread may be gone, though.
        let lost = self.dialect().backend().is_server() || matches!(source, Source::Gone);
        let error = Error::of(source, statement);
        self.broken |= lost && error.is_unavailable();
        error
    }

    /// The same for the statement that ends a transaction, or for one that has the end in it.
    fn failed_at_end(&mut self, error: impl Into<Source>, statement: &'static str) -> Error {
        let error = self.failed(error, statement).of_commit();
        self.broken |= error.is_unavailable() && self.dialect().backend().is_server();
        error
    }
}

/// The attempts at one transaction.
struct Attempts {
    made: u32,
    since: Instant,
}

impl Attempts {
    fn begin() -> Self {
        let since = Instant::now();
        Self { made: 1, since }
    }

    /// Waits before the next attempt: longer each time, and for a random time, so that the conflicting transactions
    /// do not meet again.
    async fn next(&mut self) {
        let most = Duration::from_millis(1 << self.made.min(AGAIN_MAX_LOG));
        tokio::time::sleep(most.mul_f64(chance())).await;
        self.made += 1;
    }
}

/// The values of a statement's parameters, in their order.
pub(crate) fn sqlite_values(statement: &Statement, args: Args<'_>) -> Vec<Value> {
    let names = statement.rendered(Dialect::Sqlite).parameters.iter();
    let value = |name: &String| match find(statement, args, name) {
        Arg::Id(id) => id.map_or(Value::Null, |id| Value::Blob(id.as_bytes().to_vec())),
        Arg::Text(text) => text.map_or(Value::Null, |text| Value::Text(text.to_owned())),
        Arg::Int(int) => int.map_or(Value::Null, Value::Integer),
        Arg::Rows(rows) => Value::Blob(packed::pack(rows)),
    };
    names.map(value).collect()
}
