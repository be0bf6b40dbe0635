//! Errors of the database, classified by how the caller can react.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::machine::stuck::STATEMENT_REFUSED;

use super::backend::mysql::error::Failure;
use super::backend::postgres::no_server::Nobody;
use super::backend::{DriverError, UNREACHED};
use super::blame::Blame;
use super::migrate;

/// The driver's error.
#[derive(Debug, thiserror::Error)]
pub enum Source {
    /// PostgreSQL's.
    #[error("{}", _0.describe())]
    Postgres(sqlx::Error),
    /// The error of each server of an address, none of which is the right one.
    #[error("{}", _0.describe())]
    Servers(Nobody),
    /// SQLite's.
    #[error("{}", _0.describe())]
    Sqlite(rusqlite::Error),
    /// MySQL's or MariaDB's.
    #[error("{}", _0.describe())]
    Mysql(Failure),
    /// The operating system's.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// No driver's: the thread that owns the SQLite connection is gone.
    #[error("the connection's thread has ended")]
    Gone,
}

impl From<rusqlite::Error> for Source {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Failure> for Source {
    fn from(failure: Failure) -> Self {
        Self::Mysql(failure)
    }
}

impl From<sqlx::Error> for Source {
    fn from(error: sqlx::Error) -> Self {
        Self::Postgres(error)
    }
}

/// A failed operation on the database.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be reached, or went away: wait, reconnect, continue. Nothing was decided, unless
    /// `in_commit`: then the transaction may or may not have happened.
    #[error("the database cannot be {}", match source.has_answered() {
        true => "used",
        false => "reached",
    })]
    Unavailable {
        /// The driver's error.
        #[source]
        source: Arc<Source>,
        /// The connection was lost while a COMMIT was on its way.
        in_commit: bool,
    },
    /// Its environment prevents the work: a full disk, no memory, a right that was revoked, a limit of
    /// time, a person who cancelled the statement. Rolled back; try the same again, later.
    #[error("the database could not do this now")]
    Hindered {
        /// The statement's name.
        statement: &'static str,
        /// The driver's error.
        #[source]
        source: Arc<Source>,
    },
    /// A deadlock, a serialisation failure, a lock timeout: rolled back, try all of it again.
    #[error("another session of the database was in the way")]
    Retryable {
        /// The statement's name.
        statement: &'static str,
        /// The driver's error.
        #[source]
        source: Arc<Source>,
    },
    /// A constraint refused the write.
    #[error("the constraint {constraint} refused the write")]
    Constraint {
        /// Its name, if the database tells.
        constraint: String,
        /// The driver's error.
        #[source]
        source: Arc<Source>,
    },
    /// No ductworkd can use the database to which `database.url` leads: a person has to correct the
    /// configuration.
    #[error("{0}")]
    Configured(String),
    /// Somebody else was faster, and the data that the call depends on has just gone: the same call,
    /// made again, finds another state.
    #[error("{0}")]
    Gone(String),
    /// A file of ours is left behind, because the system did not remove it: a person may.
    #[error("{0}")]
    LeftBehind(String),
    /// The schema is not the one that this program needs.
    #[error("{0}")]
    Schema(String),
    /// SQLite's file is not in its place, or its log exists there without it: a person has to
    /// intervene.
    #[error("{0}")]
    Misplaced(String),
    /// A stored value cannot be interpreted.
    #[error("the database holds data that this program does not understand: {0}")]
    Corrupt(String),
    /// A stored input or output is no JSON value: the file is damaged, or somebody has written to it.
    #[error("the {column} of the {entity} {id} is damaged: it is not JSON: {problem}")]
    Damaged {
        /// Input or output.
        column: &'static str,
        /// The kind of row.
        entity: &'static str,
        /// Its key.
        id: uuid::Uuid,
        /// The reader's error.
        problem: String,
    },
    /// The database refuses the value ([`Error::blames_the_value`]), or the statement: a bug,
    /// or a schema that somebody has changed.
    #[error("{STATEMENT_REFUSED}")]
    Refused {
        /// The statement's name.
        statement: &'static str,
        /// The driver's error.
        #[source]
        source: Arc<Source>,
    },
}

/// Classes of errors, for counting them.
pub const CLASSES: [&str; 4] = ["unavailable", "contention", "hindered", "refused"];

/// How many errors of each class this program has had since they were last taken.
static FAILED: [AtomicU64; CLASSES.len()] = [const { AtomicU64::new(0) }; CLASSES.len()];

/// Takes the numbers of errors, by class: each error is in exactly one answer.
pub fn take_failed() -> [u64; CLASSES.len()] {
    FAILED
        .each_ref()
        .map(|failed| failed.swap(0, Ordering::Relaxed))
}

impl Error {
    /// The statement's name: for a log, and only for those who wrote the statement.
    pub fn statement(&self) -> Option<&'static str> {
        match self {
            Self::Hindered { statement, .. }
            | Self::Retryable { statement, .. }
            | Self::Refused { statement, .. } => Some(statement),
            _ => None,
        }
    }

    /// True when the caller should wait and reconnect.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// True when somebody else holds what it waits for, it took too long, or the environment
    /// prevents it: nothing was done, and the same may be possible a little later.
    pub fn is_not_now(&self) -> bool {
        matches!(self, Self::Retryable { .. } | Self::Hindered { .. })
    }

    /// True when something in the database's environment prevents it: not the time that the statement took, and not a
    /// part of the database that is damaged, which other statements may not need.
    pub fn is_of_environment(&self) -> bool {
        matches!(self, Self::Hindered { source, .. } if !source.is_cut_short() && !source.is_damage())
    }

    /// The remedy for a person, where the error lasts until somebody does something.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Unavailable { source, .. } => Some(source.remedy()),
            Self::Hindered { source, .. } if source.is_damage() => Some(source.remedy()),
            Self::Damaged { .. } => Some(
                "`ductworkd audit` shows what else is wrong; restore a backup, or correct that value by hand",
            ),
            _ => None,
        }
    }

    /// True when the value to be written is to blame, and not the database: every further try will
    /// be refused, too.
    pub fn blames_the_value(&self) -> bool {
        match self {
            Self::Constraint { .. } => true,
            Self::Refused { source, .. } => source.blame() == Blame::Value,
            _ => false,
        }
    }

    /// True when a row that was to be claimed is to blame, because it lacks what belongs to it: the next attempt
    /// fails as well.
    pub fn blames_a_row(&self) -> bool {
        matches!(self, Self::Corrupt(_))
    }

    /// True when the size of the value to be written may be to blame, as far as this error tells:
    /// the connection was lost with it, or the server had no memory for it. PostgreSQL ends the
    /// connection of a client whose message is a gigabyte, and so may anything between them.
    pub fn may_blame_the_size(&self) -> bool {
        match self {
            // A full disk ends no connection, and neither does somebody who ends a statement.
            Self::Unavailable { source, in_commit } => {
                *in_commit
                    && !matches!(source.as_ref(), Source::Sqlite(_))
                    && !source.is_cut_short()
            }
            Self::Refused { source, .. } => {
                source.driver().is_some_and(DriverError::is_out_of_memory)
            }
            _ => false,
        }
    }

    /// The database cannot be reached; no commit was pending.
    pub(super) fn unavailable(source: Source) -> Self {
        FAILED[0].fetch_add(1, Ordering::Relaxed);
        Self::Unavailable {
            source: Arc::new(source),
            in_commit: false,
        }
    }

    /// The same, for something that follows a commit: the caller cannot know all of it, so it may
    /// have happened.
    pub(super) fn after_commit(self) -> Self {
        match self {
            Self::Unavailable { source, .. } => Self::Unavailable {
                source,
                in_commit: true,
            },
            other => other,
        }
    }

    /// The same, where the statement ends its transaction, or has the end of it in it.
    ///
    /// RACE: MariaDB is told to end a statement (by KILL QUERY, or by its own limit of time) whose COMMIT is under way:
    /// the transaction is committed, and the answer is an error all the same. So the error tells nothing about the
    /// outcome. Proven by
    /// `mysql: a_commit_that_is_killed_is_never_taken_for_one_that_was_rolled_back`.
    pub(super) fn of_commit(self) -> Self {
        match self {
            Self::Retryable { source, .. } if source.is_cut_short() => Self::Unavailable {
                source,
                in_commit: true,
            },
            other => other.after_commit(),
        }
    }

    /// The database could not be reached within this time.
    pub(crate) fn too_late(within: std::time::Duration) -> Self {
        let text = format!("no answer within {} s", within.as_secs());
        let error = std::io::Error::new(std::io::ErrorKind::TimedOut, text);
        Self::unavailable(Source::Io(error))
    }

    /// True where a transaction was rolled back to let another one through, at this node or at another.
    pub(super) fn is_deadlock(&self) -> bool {
        matches!(self, Self::Retryable { source, .. }
            if matches!(source.as_ref(), Source::Mysql(failure) if failure.is_deadlock()))
    }

    /// True where somebody ended the statement, or its time was over.
    pub fn is_cut_short(&self) -> bool {
        matches!(self, Self::Retryable { source, .. } | Self::Hindered { source, .. } if source.is_cut_short())
    }

    /// True where the server, or the session, takes no writes.
    pub fn only_reads(&self) -> bool {
        matches!(self, Self::Unavailable { source, .. } | Self::Hindered { source, .. }
            if source.driver().is_some_and(DriverError::only_reads))
    }

    /// True where a server has waited for a lock for as long as it may.
    pub fn is_lock_wait(&self) -> bool {
        matches!(self, Self::Retryable { source, .. }
            if source.driver().is_some_and(DriverError::is_lock_wait))
    }

    /// This many executions whose results count were not closed by their commit, without an error.
    pub fn unwritten(executions: usize) -> Self {
        Self::Corrupt(format!(
            "COMMIT was to close {executions} more rows of ductwork_executions, and the database kept them as they are"
        ))
    }

    /// True where a write did not write as many rows as it had to.
    pub(super) fn is_count(&self) -> bool {
        matches!(self, Self::Retryable { source, .. } if source.is_count())
    }

    /// The same, for something that was tried again and again, or must not be. A single wrong count may be the
    /// server's fault; a count that is never right reflects the rows.
    pub(super) fn persistent(self) -> Self {
        match self {
            Self::Retryable { statement, source } if source.is_count() => Self::Corrupt(format!(
                "a part of {statement} found fewer rows than it had to write"
            )),
            other => other,
        }
    }

    /// The classification of a driver's error during `statement`.
    pub(crate) fn of(source: Source, statement: &'static str) -> Self {
        let (blame, constraint) = (source.blame(), source.constraint());
        let class = match blame {
            Blame::Connection => 0,
            Blame::Contention => 1,
            Blame::Environment => 2,
            Blame::Part | Blame::Value | Blame::Program => 3,
        };
        // A database without our tables refuses the statement that asks for them: that is an answer.
        if !(statement == migrate::APPLIED.name && blame == Blame::Program) {
            FAILED[class].fetch_add(1, Ordering::Relaxed);
        }
        let source = Arc::new(source);
        match (blame, constraint) {
            (Blame::Connection, _) => Self::Unavailable {
                source,
                in_commit: false,
            },
            (Blame::Contention, _) => Self::Retryable { statement, source },
            (Blame::Environment, _) => Self::Hindered { statement, source },
            (Blame::Part, _) => Self::Corrupt(format!(
                "a part of {statement} found fewer rows than it had to write"
            )),
            (Blame::Value, Some(constraint)) => Self::Constraint { constraint, source },
            (Blame::Value, None) | (Blame::Program, _) => Self::Refused { statement, source },
        }
    }
}

impl From<crate::model::UnknownWord> for Error {
    fn from(error: crate::model::UnknownWord) -> Self {
        Self::Corrupt(error.to_string())
    }
}

impl Source {
    /// The driver's error; `None` where no driver was involved.
    fn driver(&self) -> Option<&dyn DriverError> {
        match self {
            Self::Postgres(error) => Some(error),
            Self::Servers(error) => Some(error),
            Self::Sqlite(error) => Some(error),
            Self::Mysql(error) => Some(error),
            Self::Io(_) | Self::Gone => None,
        }
    }

    /// True where a write did not write as many rows as it had to.
    fn is_count(&self) -> bool {
        matches!(self, Self::Mysql(failure) if failure.is_count())
    }

    /// True where somebody ended the statement, or its time was over.
    fn is_cut_short(&self) -> bool {
        self.driver().is_some_and(DriverError::is_cut_short)
    }

    /// True where the error comes from the database itself, and not from the connection to it.
    fn has_answered(&self) -> bool {
        self.driver().is_some_and(DriverError::has_answered)
    }

    /// True where the user lacks a right.
    pub(super) fn is_denied(&self) -> bool {
        self.driver().is_some_and(DriverError::is_denied)
    }

    /// True where a database could not be dropped because its directory still holds a file.
    pub(super) fn is_not_empty(&self) -> bool {
        matches!(self, Self::Mysql(failure) if failure.is_not_empty())
    }

    /// True where the file itself is damaged.
    pub fn is_damage(&self) -> bool {
        self.driver().is_some_and(DriverError::is_damage)
    }

    /// The remedy for a person, where the error makes the database unusable.
    pub fn remedy(&self) -> &'static str {
        match (self, self.driver()) {
            (_, Some(error)) => error.remedy(),
            (Self::Io(error), _) if error.kind() == std::io::ErrorKind::WouldBlock => {
                "this user may start no more threads: raise its limit of processes (`ulimit -u`; `TasksMax` of systemd)"
            }
            (Self::Io(error), _) if error.raw_os_error() == Some(libc::EMFILE) => {
                "raise the limit of open files: `LimitNOFILE` of the service, or `ulimit -n`"
            }
            // Except for a wait that was too long, an error of the operating system comes from a
            // file of ours.
            (Self::Io(error), _) if error.kind() != std::io::ErrorKind::TimedOut => {
                "check that the directory of `database.url` exists, and that this user may write there, and to \
                 the file itself"
            }
            _ => UNREACHED,
        }
    }

    /// The cause.
    fn blame(&self) -> Blame {
        self.driver().map_or(Blame::Connection, DriverError::blame)
    }

    /// The constraint that refused the write, if the database tells.
    fn constraint(&self) -> Option<String> {
        self.driver()?.constraint()
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn of_sqlite(code: i32) -> Error {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        Error::of(Source::Sqlite(error), "CLAIM")
    }

    /// The names are ours, and mean nothing to others.
    #[test]
    fn the_names_of_statements_are_for_the_log_alone() {
        for code in [ffi::SQLITE_BUSY, ffi::SQLITE_CORRUPT, ffi::SQLITE_ERROR] {
            let error = of_sqlite(code);
            let text = crate::telemetry::chain(&error);
            assert!(!text.contains("CLAIM"), "{code}: {text}");
            assert_eq!(error.statement(), Some("CLAIM"), "{code}: {text}");
        }
    }

    /// A log that says nothing more than "now" makes a person wait for something that only a person
    /// can do.
    #[test]
    fn an_error_that_lasts_until_somebody_does_something_has_its_remedy() {
        for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB] {
            let remedy = of_sqlite(code).remedy().unwrap_or_default();
            assert!(remedy.contains("put a backup back"), "{code}: {remedy}");
        }
        let remedy = of_sqlite(ffi::SQLITE_READONLY).remedy().unwrap_or_default();
        assert!(remedy.contains("may write the file"), "{remedy}");
        for code in [ffi::SQLITE_BUSY, ffi::SQLITE_NOMEM, ffi::SQLITE_CONSTRAINT] {
            assert_eq!(of_sqlite(code).remedy(), None, "{code}");
        }
    }
}
