//! The meaning of SQLite's errors.
//!
//! Owns: the only table of SQLite's result codes: it contains every primary code.

use rusqlite::ffi;

use super::super::DriverError;
use crate::store::blame::Blame;

impl DriverError for rusqlite::Error {
    /// SQLite's message, and the details of its code: for a failed disk, the operation that failed.
    fn describe(&self) -> String {
        let text = self.to_string();
        let code = self.sqlite_error().map(ToString::to_string);
        match code.as_deref().and_then(|code| code.split_once(": ")) {
            Some((_, code)) if !text.contains(code) => format!("{text} ({code})"),
            _ => text,
        }
    }

    fn blame(&self) -> Blame {
        // The `abs` of a part that found fewer rows than it has to write. No sum of ours comes near
        // this overflow.
        if self.to_string() == "integer overflow" {
            return Blame::Part;
        }
        match self.sqlite_error() {
            Some(error) => of_sqlite(error.extended_code),
            None => Blame::Program,
        }
    }

    fn constraint(&self) -> Option<String> {
        let refused = matches!(
            self.sqlite_error()?.extended_code,
            ffi::SQLITE_CONSTRAINT_UNIQUE
                | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
                | ffi::SQLITE_CONSTRAINT_CHECK
                | ffi::SQLITE_CONSTRAINT_FOREIGNKEY
        );
        refused.then(|| self.to_string())
    }

    fn remedy(&self) -> &'static str {
        let code = self.sqlite_error().map_or(0, |it| it.extended_code);
        match primary(self) {
            // The files beside the database are made first, where nobody has it open.
            _ if matches!(code, ffi::SQLITE_IOERR_SHMSIZE | ffi::SQLITE_IOERR_WRITE) => {
                "make room on the disk that the database is on; if there is some, raise the limit of the size of \
                 files (`ulimit -f`), or check that the disk is sound"
            }
            ffi::SQLITE_FULL => "make room on the disk that the database is on",
            ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB => {
                "the file is damaged, or is not an SQLite database: check `database.url`, or stop every \
                 ductworkd and put a backup back, without a -wal and a -shm beside it"
            }
            _ => {
                "check that this user may write the file in `database.url` and the directory that it \
                 is in, that the disk is not mounted read-only, and that the limit of open files (`ulimit -n`) \
                 leaves some for the database"
            }
        }
    }

    fn has_answered(&self) -> bool {
        true
    }

    fn only_reads(&self) -> bool {
        // A file that was moved away is another matter.
        let code = self.sqlite_error().map_or(0, |it| it.extended_code);
        primary(self) == ffi::SQLITE_READONLY && code != ffi::SQLITE_READONLY_DBMOVED
    }

    fn is_cut_short(&self) -> bool {
        primary(self) == ffi::SQLITE_INTERRUPT
    }

    fn is_damage(&self) -> bool {
        matches!(primary(self), ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB)
    }
}

/// The code without its extension; zero where the error is not SQLite's own.
fn primary(error: &rusqlite::Error) -> i32 {
    error.sqlite_error().map_or(0, |it| it.extended_code & 0xff)
}

/// The blame of a code of SQLite, whose primary code is the low byte of the extended one.
fn of_sqlite(extended: i32) -> Blame {
    match extended & 0xff {
        // These have already waited for the busy timeout. The schema was changed by another process;
        // the locks of the WAL came in an unexpected order.
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED | ffi::SQLITE_SCHEMA | ffi::SQLITE_PROTOCOL => {
            Blame::Contention
        }
        // A disk that may recover, or be mounted for writing again; nothing was committed.
        ffi::SQLITE_IOERR | ffi::SQLITE_FULL | ffi::SQLITE_CANTOPEN | ffi::SQLITE_READONLY => {
            Blame::Connection
        }
        // Memory, rights, a file that somebody has to repair, an interrupted statement.
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
