//! The seam between the store and each database.
//!
//! Owns: [`Backend`], the differences between databases that are no whole statement: fragments of
//! SQL, the texts of transactions and of settings, the manner in which a hot operation is sent; and
//! [`DriverError`], the meaning of a driver's errors. Each database has a folder with its
//! implementations, its connection and its own statements. Never: a decision of an operation,
//! except for the manner in which it is sent.

mod fragment;
pub mod mysql;
pub mod postgres;
pub mod sqlite;

use super::blame::Blame;
use super::dialect::Dialect;

/// The manner in which a database takes a hot operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// As one statement, of several parts that see the same snapshot.
    Joined,
    /// As several statements, each of which sees the writes of those before it.
    InTurn,
}

/// A setting of the transaction under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A migration waits for a lock no longer than this. While a migration waits for a table,
    /// statements behind it wait as well, and a dump reads for hours; so the migration gives up its
    /// place again and again.
    MigrationLockWait,
    /// A transaction of a cancellation, a deletion or a passed deadline waits for somebody else's row
    /// no longer than this. It holds rows that others wait for, or others wait for its turn, so it
    /// releases them and tries again.
    ShortLockWait,
    /// The planner's settings for an audit, which reads whole tables.
    AuditPlanner,
    /// Tables are joined by hash: all rows of one with all rows of another.
    HashJoins,
    /// Rows are looked up by their keys.
    KeyedJoins,
    /// Temporary tables stay out of the database's files.
    TemporaryInMemory,
    /// A session that only reads may be silent for as long as it likes. The limit is for clients that hold locks.
    LongSilence,
}

/// The differences between databases that are no whole statement.
pub(in crate::store) trait Backend: Sync {
    /// The name as shown to people.
    fn name(&self) -> &'static str;

    /// The manner in which it takes a hot operation.
    fn asks(&self) -> Asks;

    /// The character before the number of a parameter.
    fn mark(&self) -> char;

    /// True where a number after the mark says which parameter it is; otherwise its position does.
    fn numbers(&self) -> bool {
        true
    }

    /// Writes the SQL of the fragment `{name:argument}`; false when no fragment has this name.
    fn fragment(&self, name: &str, argument: &str, to: &mut String) -> bool;

    /// Begins a transaction that writes.
    fn begin(&self) -> &'static str;

    /// Begins a read-only transaction that sees one snapshot.
    fn begin_snapshot(&self) -> &'static str;

    /// The SQL of a setting; `None` where the database has nothing to set.
    fn setting(&self, setting: Setting) -> Option<&'static str>;

    /// True where two transactions may write at once, and lock the rows that they read and write.
    fn locks_rows(&self) -> bool;

    /// True where a change of the schema is rolled back with its transaction; otherwise it commits by itself,
    /// and may be tried again.
    fn undoes_schema(&self) -> bool {
        true
    }

    /// True where a process wakes those of other hosts through the database.
    fn notifies(&self) -> bool;

    /// True where an error of the environment means that the connection is lost, because its other end is a
    /// server.
    fn is_server(&self) -> bool;

    /// The tasks to finish before a measurement, so that the server does not do them during it:
    /// statistics, tidying, writing to disk. The first has to succeed.
    fn settle(&self) -> &'static [&'static str];

    /// The schema's script in the form in which a person may run it.
    fn by_hand(&self, script: String) -> String {
        script
    }

    /// The address of a database named `name` beside that of `url`.
    fn beside(&self, url: &str, name: &str) -> String;
}

impl Dialect {
    /// The only place that knows all backends.
    pub(in crate::store) fn backend(self) -> &'static dyn Backend {
        match self {
            Self::Postgres => &postgres::Postgres,
            Self::Sqlite => &sqlite::Sqlite,
            Self::Mysql => &mysql::Mysql,
        }
    }

    /// The name as shown to people.
    pub fn as_str(self) -> &'static str {
        self.backend().name()
    }

    /// True where a process wakes those of other hosts through the database.
    pub fn notifies(self) -> bool {
        self.backend().notifies()
    }
}

/// The meaning of a driver's error.
pub(in crate::store) trait DriverError {
    /// The message for a person.
    fn describe(&self) -> String;

    /// The cause.
    fn blame(&self) -> Blame;

    /// The constraint that refused the write, if the database tells.
    fn constraint(&self) -> Option<String>;

    /// The remedy for a person, where the error makes the database unusable.
    fn remedy(&self) -> &'static str;

    /// True where the error comes from the database itself, and not from the connection to it.
    fn has_answered(&self) -> bool;

    /// True where the database's file is damaged.
    fn is_damage(&self) -> bool {
        false
    }

    /// True where a server has waited for a lock for as long as it may.
    fn is_lock_wait(&self) -> bool {
        false
    }

    /// True where the server, or the session, takes no writes.
    fn only_reads(&self) -> bool {
        false
    }

    /// True where the user lacks a right.
    fn is_denied(&self) -> bool {
        false
    }

    /// True where somebody ended the statement, or its time was over.
    fn is_cut_short(&self) -> bool {
        false
    }

    /// True where the server had no memory left for the data to be written.
    fn is_out_of_memory(&self) -> bool {
        false
    }
}

/// Drops a driver's connection and does nothing more. On its own, the driver would say goodbye, in a task of
/// its own, and wait for the answer; on a connection that has gone silent no answer comes, and the socket would
/// stay open.
pub(in crate::store) fn abandon<T>(connection: T) {
    // The driver gives its task to this runtime, which ends before the task begins.
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else {
        return;
    };
    let entered = runtime.enter();
    drop(connection);
    drop(entered);
    runtime.shutdown_background();
}

/// True for a host whose packets stay on this machine: it needs no TLS. An unspecified address leads to this machine too.
fn is_loopback(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    let address = host.parse::<std::net::IpAddr>();
    let is_here = |address: std::net::IpAddr| {
        let address = address.to_canonical();
        address.is_loopback() || address.is_unspecified()
    };
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(is_here)
}

/// The remedy where the server could not be reached.
pub(in crate::store) const UNREACHED: &str =
    "check that the server is running, and that `database.url` is right";
