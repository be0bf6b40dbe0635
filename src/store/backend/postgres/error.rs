//! The meaning of PostgreSQL's errors.
//!
//! Owns: the only table of SQLSTATE codes: it contains every class of the SQL standard and of
//! PostgreSQL.

use sqlx::postgres::{PgDatabaseError, PgSeverity};

use super::super::{DriverError, UNREACHED};
use crate::store::blame::Blame;

/// The driver's words for a server that offers no TLS.
const OFFERS_NONE: &str = "does not support TLS";

/// The remedy for that.
const NO_TLS: &str = "let the server offer TLS; or, where nobody else can reach the network to it, add `?sslmode=disable` \
                      to `database.url`";

/// The remedy where TLS could not be established.
const TLS: &str = "let `sslrootcert` in `database.url` name the authority that signed the server's certificate, and the \
                   host be one that it is for";

/// The remedy for a certificate that `openssl req -x509` makes by default.
const NO_AUTHORITY: &str = "give the server a certificate that is no authority's own: with basicConstraints CA:FALSE, and \
                            its host under subjectAltName";

/// True where TLS could not be established. A certificate that is refused ends the handshake as an error of the connection.
pub(super) fn is_of_tls(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Tls(_) => true,
        sqlx::Error::Io(error) => error.to_string().contains("invalid peer certificate"),
        _ => false,
    }
}

impl DriverError for sqlx::Error {
    /// The server's own message, and the place where the server met somebody else's lock: as a rule
    /// the table. The driver adds a line of the server's source.
    fn describe(&self) -> String {
        let error = match self {
            Self::Database(error) => error,
            // Every PostgreSQL server answers this request with a letter.
            Self::Protocol(text) if text.contains("SSLRequest") => {
                return "the program there is not a PostgreSQL server".to_owned();
            }
            _ => return self.to_string(),
        };
        let server = error.try_downcast_ref::<PgDatabaseError>();
        let contended =
            |error: &&PgDatabaseError| of_sqlstate(error.code(), false) == Blame::Contention;
        let at = server.filter(contended).and_then(|error| error.r#where());
        match at.and_then(|at| at.lines().next()) {
            Some(at) => format!("{} ({at})", error.message()),
            None => error.message().to_owned(),
        }
    }

    fn blame(&self) -> Blame {
        match self {
            Self::Database(error) => {
                let error = error.downcast_ref::<PgDatabaseError>();
                let ended = matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic);
                // The server reports a value of a GiB or more as an error of its allocator, whose
                // other error, that memory has run out, has a code of its own.
                let too_large = error.code() == "XX000" && error.file() == Some("mcxt.c");
                // Limits of the server, with the code of a value that is too large: no transaction id is left, or the
                // queue of notifications is full.
                let of_server = error.code() == "54000"
                    && matches!(error.file(), Some("varsup.c" | "multixact.c" | "async.c"));
                // The table was changed since this session prepared the statement: another session will prepare it anew.
                // Proven by `what_ends_a_session_or_keeps_it_from_writing_asks_for_another_connection`.
                let is_stale = error.code() == "0A000" && error.file() == Some("plancache.c");
                match (too_large, of_server) {
                    _ if ended || is_stale => Blame::Connection,
                    (true, _) => Blame::Value,
                    (_, true) => Blame::Environment,
                    _ => of_sqlstate(error.code(), false),
                }
            }
            // A value that the driver cannot encode.
            Self::Encode(_) => Blame::Value,
            // The driver does not understand an answer, or is asked to do something that it cannot
            // do.
            Self::Decode(_)
            | Self::ColumnDecode { .. }
            | Self::ColumnNotFound(_)
            | Self::ColumnIndexOutOfBounds { .. }
            | Self::TypeNotFound { .. }
            | Self::RowNotFound
            | Self::Configuration(_)
            | Self::InvalidArgument(_)
            | Self::InvalidSavePointStatement => Blame::Program,
            _ => Blame::Connection,
        }
    }

    fn constraint(&self) -> Option<String> {
        let error = self.as_database_error()?;
        let refused = error.is_unique_violation()
            || error.is_check_violation()
            || error.is_foreign_key_violation();
        let name = error.constraint().unwrap_or(error.message());
        refused.then(|| name.to_owned())
    }

    fn remedy(&self) -> &'static str {
        let error = match self {
            Self::Database(error) => error,
            Self::Tls(error) if error.to_string().contains(OFFERS_NONE) => return NO_TLS,
            _ if is_of_tls(self) && self.to_string().contains("CaUsedAsEndEntity") => {
                return NO_AUTHORITY;
            }
            _ if is_of_tls(self) => return TLS,
            _ => return UNREACHED,
        };
        match error.code().as_deref() {
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
        }
    }

    fn has_answered(&self) -> bool {
        matches!(self, Self::Database(_))
    }

    fn is_lock_wait(&self) -> bool {
        let code = self.as_database_error().and_then(|error| error.code());
        code.is_some_and(|code| code == "55P03")
    }

    fn only_reads(&self) -> bool {
        let code = self.as_database_error().and_then(|error| error.code());
        code.is_some_and(|code| code == "25006")
    }

    fn is_damage(&self) -> bool {
        let code = self.as_database_error().and_then(|error| error.code());
        code.is_some_and(|code| matches!(code.as_ref(), "XX001" | "XX002"))
    }

    fn is_denied(&self) -> bool {
        let code = self.as_database_error().and_then(|error| error.code());
        code.is_some_and(|code| code == "42501")
    }

    fn is_cut_short(&self) -> bool {
        let code = self.as_database_error().and_then(|error| error.code());
        code.is_some_and(|code| code == "57014")
    }

    fn is_out_of_memory(&self) -> bool {
        // Out of memory; and the code for an allocation that the server never attempts.
        const CODES: [&str; 2] = ["53200", "XX000"];
        let code = self.as_database_error().and_then(|error| error.code());
        code.is_some_and(|code| CODES.contains(&code.as_ref()))
    }
}

/// The blame of a code of PostgreSQL. That an error ended the session says more than its code.
fn of_sqlstate(code: &str, ended_the_session: bool) -> Blame {
    if ended_the_session {
        return Blame::Connection;
    }
    match code {
        // Our statements divide only to refuse a part.
        "22012" => Blame::Part,
        // A read-only server (a standby, after a failover) and a session that exceeded its time
        // limit. A statement that this session never prepared: another session will prepare it.
        "25006" | "25P03" | "25P04" | "26000" => Blame::Connection,
        // A rollback for an unknown reason is worth another try; one for a constraint is not.
        "40002" => Blame::Value,
        "40003" => Blame::Connection,
        // A revoked right may be granted again; everything else in its class is a mistake in our SQL
        // or our schema.
        "42501" => Blame::Environment,
        "53300" => Blame::Connection,
        // A lock that could not be obtained in time.
        "55P03" => Blame::Contention,
        // A cancelled statement and one that ran out of time leave the session unchanged.
        "57000" | "57014" => Blame::Environment,
        _ => of_class(code.get(..2).unwrap_or_default()),
    }
}

fn of_class(class: &str) -> Blame {
    match class {
        // 08 connection exception · 28 authorization · 3D no such database · 57 operator action:
        // the server shuts down, starts, or has dropped the database.
        "08" | "28" | "3D" | "57" => Blame::Connection,
        // 40 transaction rollback · 72 snapshot too old.
        "40" | "72" => Blame::Contention,
        // 53 insufficient resources · 55 object not in the required state · 58 system error · F0
        // configuration file · XX internal error, including corrupted pages.
        "53" | "55" | "58" | "F0" | "XX" => Blame::Environment,
        // 22 data exception · 23 integrity constraint · 44 WITH CHECK OPTION · 54 program limit. And the
        // errors of somebody's trigger: 09 triggered action · 27 triggered data change · 2F, 38, 39 a
        // function's exception · P0 PL/pgSQL.
        "22" | "23" | "44" | "54" | "09" | "27" | "2F" | "38" | "39" | "P0" => Blame::Value,
        // 00, 01, 02 no error · 03, 0A, 0B, 0F, 0L, 0P, 0Z, 10, 20, 21, 24, 25, 26, 2B, 2D, 34, 3B, 3F, 42,
        // HV: a statement that should not have been sent, or not to this server.
        _ => Blame::Program,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every class of PostgreSQL 18's appendix A, with its blame where none of its codes is special.
    const CLASSES: [(&str, Blame); 43] = [
        ("00", Blame::Program),
        ("01", Blame::Program),
        ("02", Blame::Program),
        ("03", Blame::Program),
        ("08", Blame::Connection),
        ("09", Blame::Value),
        ("0A", Blame::Program),
        ("0B", Blame::Program),
        ("0F", Blame::Program),
        ("0L", Blame::Program),
        ("0P", Blame::Program),
        ("0Z", Blame::Program),
        ("10", Blame::Program),
        ("20", Blame::Program),
        ("21", Blame::Program),
        ("22", Blame::Value),
        ("23", Blame::Value),
        ("24", Blame::Program),
        ("25", Blame::Program),
        ("26", Blame::Program),
        ("27", Blame::Value),
        ("28", Blame::Connection),
        ("2B", Blame::Program),
        ("2D", Blame::Program),
        ("2F", Blame::Value),
        ("34", Blame::Program),
        ("38", Blame::Value),
        ("39", Blame::Value),
        ("3B", Blame::Program),
        ("3D", Blame::Connection),
        ("3F", Blame::Program),
        ("40", Blame::Contention),
        ("42", Blame::Program),
        ("44", Blame::Value),
        ("53", Blame::Environment),
        ("54", Blame::Value),
        ("55", Blame::Environment),
        ("57", Blame::Connection),
        ("58", Blame::Environment),
        ("72", Blame::Contention),
        ("F0", Blame::Environment),
        ("P0", Blame::Value),
        ("XX", Blame::Environment),
    ];

    #[test]
    fn every_class_of_errors_of_postgres_has_its_blame() {
        for (class, blame) in CLASSES {
            let code = format!("{class}999");
            assert_eq!(of_sqlstate(&code, false), blame, "{code}");
            assert_eq!(of_sqlstate(&code, true), Blame::Connection, "{code}");
        }
        assert_eq!(of_sqlstate("", false), Blame::Program);
    }

    #[test]
    fn what_a_statement_met_is_told_from_what_ended_its_session() {
        for (code, blame) in [
            // Disk full, out of memory, a limit of the configuration; too many connections.
            ("53100", Blame::Environment),
            ("53200", Blame::Environment),
            ("53400", Blame::Environment),
            ("53300", Blame::Connection),
            // A statement timeout, or somebody's pg_cancel_backend; shutdown, crash, start.
            ("57014", Blame::Environment),
            ("57P01", Blame::Connection),
            ("57P02", Blame::Connection),
            ("57P03", Blame::Connection),
            ("57P05", Blame::Connection),
            ("58030", Blame::Environment),
            ("XX001", Blame::Environment),
            ("55P03", Blame::Contention),
            ("40001", Blame::Contention),
            ("40P01", Blame::Contention),
            ("25006", Blame::Connection),
            ("25P02", Blame::Program),
            ("25P03", Blame::Connection),
            ("42501", Blame::Environment),
            ("42P01", Blame::Program),
            ("22012", Blame::Part),
            ("22P05", Blame::Value),
            ("54000", Blame::Value),
            ("P0001", Blame::Value),
        ] {
            assert_eq!(of_sqlstate(code, false), blame, "{code}");
        }
    }
}
