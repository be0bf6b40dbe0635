//! What can go wrong with the database, by what the caller can do about it.

use std::sync::Arc;

/// A failed operation on the database.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be reached, or went away: wait, reconnect, go on. Nothing was decided, unless
    /// `in_commit`: then the transaction may or may not have happened.
    #[error("the database cannot be reached")]
    Unavailable {
        /// The driver's word.
        #[source]
        source: Arc<sqlx::Error>,
        /// The connection was lost while a COMMIT was on its way.
        in_commit: bool,
    },
    /// A deadlock, a serialisation failure, a lock timeout: rolled back, try it whole again.
    #[error("the transaction has to be tried again")]
    Retryable(#[source] Arc<sqlx::Error>),
    /// A constraint refused the write.
    #[error("the constraint {constraint} refused the write")]
    Constraint {
        /// Its name, as far as the database tells.
        constraint: String,
        /// The driver's word.
        #[source]
        source: Arc<sqlx::Error>,
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
        source: Arc<sqlx::Error>,
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
            Self::Refused { source, .. } => {
                let code = source.as_database_error().and_then(|error| error.code());
                // PostgreSQL: what a column, a constraint, a limit or somebody's trigger does not
                // take. SQLite: too big, and the same.
                const CLASSES: [&str; 4] = ["22", "23", "54", "P0001"];
                code.is_some_and(|code| match code.len() {
                    5 => CLASSES.iter().any(|class| code.starts_with(class)),
                    _ => matches!(code.parse::<u32>().map(|code| code & 0xff), Ok(18 | 19)),
                })
            }
            _ => false,
        }
    }

    /// The classification of a driver's error during `statement`.
    pub(super) fn of(source: sqlx::Error, statement: &'static str) -> Self {
        let kind = classify(&source);
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

/// One list for all databases: their codes do not overlap.
fn classify(error: &sqlx::Error) -> Kind {
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
        // PostgreSQL: serialisation failure, deadlock, lock timeout.
        "40001" | "40P01" | "55P03" => Kind::Retryable,
        // The only division in our statements is there for this, and the only `abs`.
        "22012" => Kind::Part,
        "1" if database.message() == "integer overflow" => Kind::Part,
        // Shutting down, starting up, crashed, out of connections, read-only after a failover,
        // idle timeouts: it will be back.
        "57P01" | "57P02" | "57P03" | "57P05" | "53300" | "25006" | "25P03" => Kind::Unavailable,
        code if code.len() == 5 && code.starts_with("08") => Kind::Unavailable,
        _ if database.is_unique_violation()
            || database.is_check_violation()
            || database.is_foreign_key_violation() =>
        {
            let constraint = database.constraint().unwrap_or(database.message());
            Kind::Constraint(constraint.to_owned())
        }
        // SQLite: the primary code is the low byte of the extended one. BUSY and LOCKED have
        // already waited out the busy timeout.
        code => match code.parse::<u32>().map(|code| code & 0xff) {
            Ok(5 | 6) if code.len() < 5 => Kind::Retryable,
            // FULL, IOERR, CANTOPEN: a disk that may get better; nothing was committed.
            Ok(10 | 13 | 14) if code.len() < 5 => Kind::Unavailable,
            _ => Kind::Other,
        },
    }
}
