//! What can go wrong with the database, by what the caller can do about it.

use std::sync::Arc;

/// The driver's word.
#[derive(Debug, thiserror::Error)]
pub enum Source {
    /// PostgreSQL's.
    #[error("{}", told(_0))]
    Postgres(sqlx::Error),
    /// SQLite's.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// The system's.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Nobody's: the thread that has SQLite is gone.
    #[error("the connection's thread has ended")]
    Gone,
}

impl From<sqlx::Error> for Source {
    fn from(error: sqlx::Error) -> Self {
        Self::Postgres(error)
    }
}

/// The server's own message; the driver adds a line of the server's source.
fn told(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => error.message().to_owned(),
        error => error.to_string(),
    }
}

/// A failed operation on the database.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be reached, or went away: wait, reconnect, go on. Nothing was decided, unless
    /// `in_commit`: then the transaction may or may not have happened.
    #[error("the database cannot be reached")]
    Unavailable {
        /// The driver's word.
        #[source]
        source: Arc<Source>,
        /// The connection was lost while a COMMIT was on its way.
        in_commit: bool,
    },
    /// A deadlock, a serialisation failure, a lock timeout: rolled back, try it whole again.
    #[error("the transaction has to be tried again")]
    Retryable(#[source] Arc<Source>),
    /// A constraint refused the write.
    #[error("the constraint {constraint} refused the write")]
    Constraint {
        /// Its name, as far as the database tells.
        constraint: String,
        /// The driver's word.
        #[source]
        source: Arc<Source>,
    },
    /// The schema is not the one this program needs.
    #[error("{0}")]
    Schema(String),
    /// What is stored cannot be understood.
    #[error("the database holds what this program does not understand: {0}")]
    Corrupt(String),
    /// Anything else: a bug, or a database that is broken (full disk, lost rights).
    #[error("the database refused statement {statement}")]
    Refused {
        /// The statement's name.
        statement: &'static str,
        /// The driver's word.
        #[source]
        source: Arc<Source>,
    },
}

impl Error {
    /// True when waiting and reconnecting is the answer.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// True when what was to be written is to blame, and not the database: it will be refused
    /// whenever it is tried again.
    pub fn blames_the_value(&self) -> bool {
        match self {
            Self::Constraint { .. } => true,
            // PostgreSQL: what a column, a constraint, a limit or somebody's trigger does not take.
            // SQLite: too big, and the same.
            Self::Refused { source, .. } => match source.as_ref() {
                Source::Postgres(error) => {
                    const CLASSES: [&str; 4] = ["22", "23", "54", "P0001"];
                    let code = error.as_database_error().and_then(|error| error.code());
                    code.is_some_and(|code| CLASSES.iter().any(|class| code.starts_with(class)))
                }
                Source::Sqlite(error) => matches!(primary(error), Some(18 | 19)),
                Source::Io(_) | Source::Gone => false,
            },
            _ => false,
        }
    }

    /// The database cannot be reached; nothing was to be committed.
    pub(super) fn unavailable(source: Source) -> Self {
        Self::Unavailable {
            source: Arc::new(source),
            in_commit: false,
        }
    }

    /// The same, of something that follows what is committed already: the caller cannot know all of
    /// it, so it may have happened.
    pub(super) fn after_commit(self) -> Self {
        match self {
            Self::Unavailable { source, .. } => Self::Unavailable {
                source,
                in_commit: true,
            },
            other => other,
        }
    }

    /// The database could not be reached within so long.
    pub(super) fn too_late(within: std::time::Duration) -> Self {
        let text = format!("no answer within {} s", within.as_secs());
        let error = std::io::Error::new(std::io::ErrorKind::TimedOut, text);
        Self::unavailable(Source::Io(error))
    }

    /// The classification of a driver's error during `statement`.
    pub(super) fn of(source: Source, statement: &'static str) -> Self {
        let kind = match &source {
            Source::Postgres(error) => of_postgres(error),
            Source::Sqlite(error) => of_sqlite(error),
            Source::Io(_) | Source::Gone => Kind::Unavailable,
        };
        let source = Arc::new(source);
        match kind {
            Kind::Unavailable => Self::Unavailable {
                source,
                in_commit: statement == "COMMIT",
            },
            Kind::Retryable => Self::Retryable(source),
            Kind::Constraint(constraint) => Self::Constraint { constraint, source },
            Kind::Part => Self::Corrupt(format!(
                "a part of {statement} found less than it was to write"
            )),
            Kind::Other => Self::Refused { statement, source },
        }
    }
}

impl From<crate::model::UnknownWord> for Error {
    fn from(error: crate::model::UnknownWord) -> Self {
        Self::Corrupt(error.to_string())
    }
}

enum Kind {
    Part,
    Unavailable,
    Retryable,
    Constraint(String),
    Other,
}

fn of_postgres(error: &sqlx::Error) -> Kind {
    let database = match error {
        sqlx::Error::Database(database) => database,
        sqlx::Error::Io(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => return Kind::Unavailable,
        _ => return Kind::Other,
    };
    let code = database.code().unwrap_or_default();
    match code.as_ref() {
        // Serialisation failure, deadlock, lock timeout.
        "40001" | "40P01" | "55P03" => Kind::Retryable,
        // The only division in our statements is there for this.
        "22012" => Kind::Part,
        // Shutting down, starting up, crashed, out of connections, read-only after a failover,
        // idle timeouts: it will be back.
        "57P01" | "57P02" | "57P03" | "57P05" | "53300" | "25006" | "25P03" => Kind::Unavailable,
        code if code.starts_with("08") => Kind::Unavailable,
        _ if database.is_unique_violation()
            || database.is_check_violation()
            || database.is_foreign_key_violation() =>
        {
            let constraint = database.constraint().unwrap_or(database.message());
            Kind::Constraint(constraint.to_owned())
        }
        _ => Kind::Other,
    }
}

fn of_sqlite(error: &rusqlite::Error) -> Kind {
    use rusqlite::ffi::{
        SQLITE_BUSY, SQLITE_CANTOPEN, SQLITE_CONSTRAINT_CHECK, SQLITE_CONSTRAINT_FOREIGNKEY,
        SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_UNIQUE, SQLITE_ERROR, SQLITE_FULL,
        SQLITE_IOERR, SQLITE_LOCKED,
    };
    let extended = error.sqlite_error().map(|error| error.extended_code);
    match (primary(error), extended) {
        // They have already waited out the busy timeout.
        (Some(SQLITE_BUSY | SQLITE_LOCKED), _) => Kind::Retryable,
        // A disk that may get better; nothing was committed.
        (Some(SQLITE_IOERR | SQLITE_FULL | SQLITE_CANTOPEN), _) => Kind::Unavailable,
        (
            _,
            Some(
                SQLITE_CONSTRAINT_UNIQUE
                | SQLITE_CONSTRAINT_PRIMARYKEY
                | SQLITE_CONSTRAINT_CHECK
                | SQLITE_CONSTRAINT_FOREIGNKEY,
            ),
        ) => Kind::Constraint(error.to_string()),
        // The `abs` of `{whole:…}`, and no sum of ours comes near it.
        (Some(SQLITE_ERROR), _) if error.to_string() == "integer overflow" => Kind::Part,
        _ => Kind::Other,
    }
}

/// SQLite's primary code: the low byte of the extended one.
fn primary(error: &rusqlite::Error) -> Option<i32> {
    Some(error.sqlite_error()?.extended_code & 0xff)
}
