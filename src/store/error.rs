//! Errors of the database, by what the caller can do about them.

use std::sync::Arc;

use rusqlite::ffi;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use super::blame::{self, Blame};

/// The driver's word.
#[derive(Debug, thiserror::Error)]
pub enum Source {
    /// PostgreSQL's.
    #[error("{}", describe(_0))]
    Postgres(sqlx::Error),
    /// SQLite's.
    #[error("{}", describe_sqlite(_0))]
    Sqlite(rusqlite::Error),
    /// The system's.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Nobody's: the thread that has SQLite is gone.
    #[error("the connection's thread has ended")]
    Gone,
}

impl From<rusqlite::Error> for Source {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<sqlx::Error> for Source {
    fn from(error: sqlx::Error) -> Self {
        Self::Postgres(error)
    }
}

/// The server's own message, and what it was at when somebody was in its way: which table, as a rule.
/// The driver adds a line of the server's source.
fn describe(error: &sqlx::Error) -> String {
    let sqlx::Error::Database(error) = error else {
        return error.to_string();
    };
    let server = error.try_downcast_ref::<PgDatabaseError>();
    let contended =
        |error: &&PgDatabaseError| blame::of_sqlstate(error.code(), false) == Blame::Contention;
    let at = server.filter(contended).and_then(|error| error.r#where());
    match at.and_then(|at| at.lines().next()) {
        Some(at) => format!("{} ({at})", error.message()),
        None => error.message().to_owned(),
    }
}

/// Its message, and what its code says beyond that: of a failed disk, at what it failed.
fn describe_sqlite(error: &rusqlite::Error) -> String {
    let text = error.to_string();
    let code = error.sqlite_error().map(ToString::to_string);
    match code.as_deref().and_then(|code| code.split_once(": ")) {
        Some((_, code)) if !text.contains(code) => format!("{text} ({code})"),
        _ => text,
    }
}

/// SQLite's code without its extension; zero where the error is not SQLite's own.
fn primary(error: &rusqlite::Error) -> i32 {
    error.sqlite_error().map_or(0, |it| it.extended_code & 0xff)
}

/// A failed operation on the database.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be reached, or went away: wait, reconnect, go on. Nothing was decided, unless
    /// `in_commit`: then the transaction may or may not have happened.
    #[error("the database cannot be {}", match source.has_answered() {
        true => "used",
        false => "reached",
    })]
    Unavailable {
        /// The driver's word.
        #[source]
        source: Arc<Source>,
        /// The connection was lost while a COMMIT was on its way.
        in_commit: bool,
    },
    /// Its environment is in the way: a full disk, no memory, a right that was revoked, a limit of time,
    /// a person who cancelled the statement. Rolled back; try the same again, later.
    #[error("the database could not carry out {statement} now")]
    Hindered {
        /// The statement's name.
        statement: &'static str,
        /// The driver's word.
        #[source]
        source: Arc<Source>,
    },
    /// A deadlock, a serialisation failure, a lock timeout: rolled back, try it whole again.
    #[error("{statement} has to be tried again")]
    Retryable {
        /// The statement's name.
        statement: &'static str,
        /// The driver's word.
        #[source]
        source: Arc<Source>,
    },
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
    /// SQLite's file is not where it was, or its log is there without it: a person has to see to it.
    #[error("{0}")]
    Misplaced(String),
    /// A stored value cannot be understood.
    #[error("the database holds what this program does not understand: {0}")]
    Corrupt(String),
    /// The database refuses the value ([`Error::blames_the_value`]), or the statement: a bug,
    /// or a schema that somebody has changed.
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

    /// True when somebody else has what it waits for, it took too long, or the environment is in the
    /// way: nothing was done, and the same may be possible a little later.
    pub fn is_not_now(&self) -> bool {
        matches!(self, Self::Retryable { .. } | Self::Hindered { .. })
    }

    /// True when what was to be written is to blame, and not the database: it will be refused
    /// whenever it is tried again.
    pub fn blames_the_value(&self) -> bool {
        match self {
            Self::Constraint { .. } => true,
            Self::Refused { source, .. } => source.blame() == Blame::Value,
            _ => false,
        }
    }

    /// True when the size of what was to be written may be to blame, as far as this error tells: its
    /// connection was lost with it, or the server had no room for it in its memory. PostgreSQL ends
    /// the connection of a client whose message is a gigabyte, and so may whatever lies between.
    pub fn may_blame_the_size(&self) -> bool {
        match self {
            // A disk that is full ends no connection.
            Self::Unavailable { source, in_commit } => {
                *in_commit && !matches!(source.as_ref(), Source::Sqlite(_))
            }
            Self::Refused { source, .. } => match source.as_ref() {
                Source::Postgres(error) => {
                    // Out of memory; and what it says of an allocation that it never makes.
                    const CODES: [&str; 2] = ["53200", "XX000"];
                    let code = error.as_database_error().and_then(|error| error.code());
                    code.is_some_and(|code| CODES.contains(&code.as_ref()))
                }
                Source::Sqlite(_) | Source::Io(_) | Source::Gone => false,
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
    pub(crate) fn of(source: Source, statement: &'static str) -> Self {
        let (blame, constraint) = (source.blame(), source.constraint());
        let source = Arc::new(source);
        match (blame, constraint) {
            (Blame::Connection, _) => Self::Unavailable {
                source,
                in_commit: statement == "COMMIT",
            },
            (Blame::Contention, _) => Self::Retryable { statement, source },
            (Blame::Environment, _) => Self::Hindered { statement, source },
            (Blame::Part, _) => Self::Corrupt(format!(
                "a part of {statement} found less than it was to write"
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
    /// True for the word of the database itself, and not of the way to it.
    fn has_answered(&self) -> bool {
        matches!(
            self,
            Self::Sqlite(_) | Self::Postgres(sqlx::Error::Database(_))
        )
    }

    /// True where the file itself is not what it should be.
    pub fn is_damage(&self) -> bool {
        let Self::Sqlite(error) = self else {
            return false;
        };
        matches!(primary(error), ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB)
    }

    /// The remedy for a person, where it keeps the database from being used.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Sqlite(error) => match primary(error) {
                ffi::SQLITE_FULL => "make room on the disk that the database is on",
                ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB => {
                    "the file is damaged, or is no SQLite database: check `database.url`, or stop \
                     every ductworkd and put a backup back, without a -wal and a -shm beside it"
                }
                _ => {
                    "check that this user may write the file in `database.url` and the directory that \
                     it is in, and that the disk is not mounted read-only"
                }
            },
            Self::Postgres(sqlx::Error::Database(error)) => match error.code().as_deref() {
                Some("28P01" | "28000") => {
                    "check the user and the password in `database.url`, and the server's pg_hba.conf"
                }
                Some("3D000") => "create the database, or correct its name in `database.url`",
                Some("25006") => {
                    "the server takes no writes: is it a standby, or is default_transaction_read_only on?"
                }
                Some("53300") => {
                    "raise max_connections, or the limit of the role, or end other sessions"
                }
                _ => "the server answers, and says what is in the way",
            },
            // The system's word comes from a file of ours, but for a wait that was too long.
            Self::Io(error) if error.kind() != std::io::ErrorKind::TimedOut => {
                "check that the directory of `database.url` exists, and that this user may write there"
            }
            _ => "check that the server runs and that `database.url` leads to it",
        }
    }

    /// The cause.
    fn blame(&self) -> Blame {
        match self {
            Self::Postgres(sqlx::Error::Database(error)) => {
                let error = error.downcast_ref::<PgDatabaseError>();
                let ended = matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic);
                // A value of a GiB or more is told as an error of the server's allocator, whose other
                // complaint, that there is no memory, has a code of its own.
                let too_large = error.code() == "XX000" && error.file() == Some("mcxt.c");
                match too_large && !ended {
                    true => Blame::Value,
                    false => blame::of_sqlstate(error.code(), ended),
                }
            }
            // A value that the driver cannot encode.
            Self::Postgres(sqlx::Error::Encode(_)) => Blame::Value,
            // The driver does not understand an answer, or is asked for what it cannot do.
            Self::Postgres(
                sqlx::Error::Decode(_)
                | sqlx::Error::ColumnDecode { .. }
                | sqlx::Error::ColumnNotFound(_)
                | sqlx::Error::ColumnIndexOutOfBounds { .. }
                | sqlx::Error::TypeNotFound { .. }
                | sqlx::Error::RowNotFound
                | sqlx::Error::Configuration(_)
                | sqlx::Error::InvalidArgument(_)
                | sqlx::Error::InvalidSavePointStatement,
            ) => Blame::Program,
            Self::Postgres(_) | Self::Io(_) | Self::Gone => Blame::Connection,
            // The `abs` of `{whole:…}`, and no sum of ours comes near it.
            Self::Sqlite(error) if error.to_string() == "integer overflow" => Blame::Part,
            Self::Sqlite(error) => match error.sqlite_error() {
                Some(error) => blame::of_sqlite(error.extended_code),
                None => Blame::Program,
            },
        }
    }

    /// The constraint that refused the write, as far as the database tells.
    fn constraint(&self) -> Option<String> {
        match self {
            Self::Postgres(error) => {
                let error = error.as_database_error()?;
                let refused = error.is_unique_violation()
                    || error.is_check_violation()
                    || error.is_foreign_key_violation();
                let name = error.constraint().unwrap_or(error.message());
                refused.then(|| name.to_owned())
            }
            Self::Sqlite(error) => {
                let refused = matches!(
                    error.sqlite_error()?.extended_code,
                    ffi::SQLITE_CONSTRAINT_UNIQUE
                        | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
                        | ffi::SQLITE_CONSTRAINT_CHECK
                        | ffi::SQLITE_CONSTRAINT_FOREIGNKEY
                );
                refused.then(|| error.to_string())
            }
            Self::Io(_) | Self::Gone => None,
        }
    }
}
