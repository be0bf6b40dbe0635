//! The cause of an error of the database, by its code.
//!
//! Owns: the one table of SQLSTATE codes and of SQLite's result codes. Every class of the SQL standard
//! and of PostgreSQL stands in it, and every primary code of SQLite; the tests of this module and
//! `tests/store/errors.rs`, which makes a server raise what can be raised, hold it to that.
//! Never: the errors themselves (`store::error`), or what becomes of the work in hand (`engine`).

use rusqlite::ffi;

/// The cause of an error. A budget is spent for a value alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The connection, or the server at its other end: connect again and go on.
    Connection,
    /// Another transaction that got in the way: try the same again, at once.
    Contention,
    /// The environment of the server: its disk, its memory, its rights, its limits of time, or the
    /// person who cancelled the statement. Try the same again, later.
    Environment,
    /// The value that was to be written: it is refused whenever it is tried again.
    Value,
    /// A part of a joined statement that found less than it was to write.
    Part,
    /// This program, or whoever changed its schema.
    Program,
}

/// Of PostgreSQL's codes. The code of an error that ended the session says less than that it did.
pub fn of_sqlstate(code: &str, ended_the_session: bool) -> Blame {
    if ended_the_session {
        return Blame::Connection;
    }
    match code {
        // Our statements divide only where a part is to be refused.
        "22012" => Blame::Part,
        // A server that only reads (a standby, after a failover) and what outlived a time limit for
        // sessions. A statement that this session never prepared: another one will.
        "25006" | "25P03" | "25P04" | "26000" => Blame::Connection,
        // A rollback whose reason is not known is worth another try; a constraint is not.
        "40002" => Blame::Value,
        "40003" => Blame::Connection,
        // A right that was revoked is granted again; all else of its class is our SQL or our schema.
        "42501" => Blame::Environment,
        "53300" => Blame::Connection,
        // A lock that was not to be had in time.
        "55P03" => Blame::Contention,
        // A cancelled statement and one that ran out of time leave the session as it was.
        "57000" | "57014" => Blame::Environment,
        _ => of_class(code.get(..2).unwrap_or_default()),
    }
}

fn of_class(class: &str) -> Blame {
    match class {
        // 08 connection exception · 28 authorization · 3D no such database · 57 operator intervention:
        // the server shuts down, starts, or has dropped the database.
        "08" | "28" | "3D" | "57" => Blame::Connection,
        // 40 transaction rollback · 72 snapshot too old.
        "40" | "72" => Blame::Contention,
        // 53 insufficient resources · 55 object not in the state for it · 58 system error · F0 configuration
        // file · XX internal error, corrupted pages included.
        "53" | "55" | "58" | "F0" | "XX" => Blame::Environment,
        // 22 data exception · 23 integrity constraint · 44 WITH CHECK OPTION · 54 program limit. And
        // what somebody's trigger says: 09 triggered action · 27 triggered data change · 2F, 38, 39 a
        // function's exception · P0 PL/pgSQL.
        "22" | "23" | "44" | "54" | "09" | "27" | "2F" | "38" | "39" | "P0" => Blame::Value,
        // 00, 01, 02 no error · 03, 0A, 0B, 0F, 0L, 0P, 0Z, 10, 20, 21, 24, 25, 26, 2B, 2D, 34, 3B, 3F, 42,
        // HV: a statement that should not have been sent, or not here.
        _ => Blame::Program,
    }
}

/// Of SQLite's codes, the primary one of which is the low byte of the extended one.
pub fn of_sqlite(extended: i32) -> Blame {
    match extended & 0xff {
        // They have already waited out the busy timeout. The schema was changed beside us; the locks of
        // the WAL were in nobody's order.
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED | ffi::SQLITE_SCHEMA | ffi::SQLITE_PROTOCOL => {
            Blame::Contention
        }
        // A disk that may get better, or be mounted for writing again; nothing was committed.
        ffi::SQLITE_IOERR | ffi::SQLITE_FULL | ffi::SQLITE_CANTOPEN | ffi::SQLITE_READONLY => {
            Blame::Connection
        }
        // Memory, rights, a file that somebody has to mend, an interrupted statement.
        ffi::SQLITE_NOMEM
        | ffi::SQLITE_PERM
        | ffi::SQLITE_AUTH
        | ffi::SQLITE_CORRUPT
        | ffi::SQLITE_NOTADB
        | ffi::SQLITE_NOLFS
        | ffi::SQLITE_INTERRUPT => Blame::Environment,
        ffi::SQLITE_TOOBIG | ffi::SQLITE_CONSTRAINT => Blame::Value,
        _ => Blame::Program,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every class of PostgreSQL 18's appendix A, with what it asks for where no code of it is special.
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

    #[test]
    fn every_code_of_sqlite_has_its_blame() {
        const CODES: [(i32, Blame); 26] = [
            (1, Blame::Program),      // SQLITE_ERROR
            (2, Blame::Program),      // INTERNAL
            (3, Blame::Environment),  // PERM
            (4, Blame::Program),      // ABORT
            (5, Blame::Contention),   // BUSY
            (6, Blame::Contention),   // LOCKED
            (7, Blame::Environment),  // NOMEM
            (8, Blame::Connection),   // READONLY
            (9, Blame::Environment),  // INTERRUPT
            (10, Blame::Connection),  // IOERR
            (11, Blame::Environment), // CORRUPT
            (12, Blame::Program),     // NOTFOUND
            (13, Blame::Connection),  // FULL
            (14, Blame::Connection),  // CANTOPEN
            (15, Blame::Contention),  // PROTOCOL
            (16, Blame::Program),     // EMPTY
            (17, Blame::Contention),  // SCHEMA
            (18, Blame::Value),       // TOOBIG
            (19, Blame::Value),       // CONSTRAINT
            (20, Blame::Program),     // MISMATCH
            (21, Blame::Program),     // MISUSE
            (22, Blame::Environment), // NOLFS
            (23, Blame::Environment), // AUTH
            (24, Blame::Program),     // FORMAT
            (25, Blame::Program),     // RANGE
            (26, Blame::Environment), // NOTADB
        ];
        for (code, blame) in CODES {
            assert_eq!(of_sqlite(code), blame, "{code}");
            assert_eq!(of_sqlite(code | 3 << 8), blame, "{code}, extended");
        }
    }
}
