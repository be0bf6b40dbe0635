//! SQLite, bundled.
//!
//! Owns: its fragments and settings. `connection` is the thread that has a file open, `file` the
//! file's identity, `error` the meaning of its errors, `rows_table` and `packed` the batches,
//! `fingerprint` a function, and the `.sql` files are its statements of the hot operations.

pub mod busy;
pub mod connection;
pub mod error;
pub mod file;
pub mod fingerprint;
mod names;
pub mod packed;
pub mod rows_table;

use std::fmt::Write;

use super::fragment::{self, columns};
use super::{Asks, Backend, Setting};

/// SQLite.
pub(in crate::store) struct Sqlite;

impl Backend for Sqlite {
    fn name(&self) -> &'static str {
        "SQLite"
    }

    fn asks(&self) -> Asks {
        Asks::InTurn
    }

    fn mark(&self) -> char {
        '?'
    }

    /// A transaction is a writer from its first statement, because a reader that becomes one cannot
    /// wait (D1).
    fn begin(&self) -> &'static str {
        "BEGIN IMMEDIATE"
    }

    fn begin_snapshot(&self) -> &'static str {
        "BEGIN DEFERRED"
    }

    fn setting(&self, setting: Setting) -> Option<&'static str> {
        match setting {
            Setting::TemporaryInMemory => Some("PRAGMA temp_store = memory"),
            // SQLite has one lock, for which a connection waits as long as it was told when opened,
            // and it plans by the indexes alone.
            Setting::MigrationLockWait
            | Setting::ShortLockWait
            | Setting::AuditPlanner
            | Setting::HashJoins
            | Setting::KeyedJoins
            | Setting::LongSilence => None,
        }
    }

    /// One writer at a time has the whole database.
    fn locks_rows(&self) -> bool {
        false
    }

    fn notifies(&self) -> bool {
        false
    }

    fn is_server(&self) -> bool {
        false
    }

    /// SQLite plans by the indexes alone, in production as well.
    fn settle(&self) -> &'static [&'static str] {
        &[]
    }

    fn beside(&self, url: &str, name: &str) -> String {
        format!("{url}.{name}")
    }

    fn fragment(&self, name: &str, argument: &str, to: &mut String) -> bool {
        let written = match name {
            "now" => to.write_str("CAST(unixepoch('subsec') * 1000000 AS INTEGER)"),
            // One writer at a time (BEGIN IMMEDIATE): there is nothing to lock.
            "skip_locked" | "skip_waiting" | "skip_shared" | "lock" | "share" => Ok(()),
            // SQLite does not know how many rows share a value: it would look up a status, and read
            // all rows that have it.
            "by" => write!(to, "INDEXED BY {argument}"),
            "id" => to.write_str("blob"),
            "int" => to.write_str("integer"),
            "rows" => to.write_str(&rows(argument)),
            "join" => write!(to, "JOIN {argument}"),
            "key" => {
                let (key, value) = argument.split_once(';').expect("a key has a value");
                write!(to, "{key} = {value}")
            }
            "any" | "of" => {
                let (key, rows) = argument.split_once(';').expect("a key is one of some rows");
                let (alias, _) = columns(rows);
                write!(to, "{key} IN (SELECT c0 FROM ductwork_rows(:{alias}))")
            }
            "within" => {
                let (key, query) = argument.split_once(';').expect("a key is one of some keys");
                write!(to, "{key} IN ({query})")
            }
            "copied" => write!(
                to,
                "CASE WHEN {argument} IS NOT NULL \
                 THEN unhex(substr(hex(:to), 1, 16) || substr(hex({argument}), 17)) END"
            ),
            "hex" => write!(to, "lower(hex({argument}))"),
            "array" => {
                let (value, order) = argument.split_once(';').expect("an array has an order");
                write!(
                    to,
                    "'[' || coalesce(group_concat({value}, ',' ORDER BY {order}), '') || ']'"
                )
            }
            "fingerprint" => {
                let [id, salt, weight, rows] = fragment::fingerprint(argument);
                let salt = if salt.is_empty() { "NULL" } else { salt };
                let weight = if weight.is_empty() { "1" } else { weight };
                write!(
                    to,
                    "CAST(ductwork_fingerprint({id}, {salt}, {weight}) FILTER (WHERE {rows}) AS TEXT)"
                )
            }
            "series" => to.write_str(
                "(WITH RECURSIVE numbers(n) AS (SELECT :first UNION ALL \
                 SELECT n + 1 FROM numbers WHERE n < :last) SELECT n FROM numbers) AS series",
            ),
            "made" => {
                let (kind, n) = fragment::made(argument);
                write!(to, "unhex(printf('%012x7{kind:03x}8%015x', :time, {n}))")
            }
            _ => return fragment::standard(name, argument, rows, to),
        };
        written.expect("a string takes all");
        true
    }
}

/// A batch as one packed value, read by a table function. A batch declared in `batch` has a table
/// function of its own.
fn rows(argument: &str) -> String {
    if !argument.contains('(') {
        return format!("batch_{argument}(:{argument}) AS {argument}");
    }
    let (alias, columns) = columns(argument);
    assert!(columns.len() <= rows_table::COLUMNS, "{alias} is too wide");
    let value = |(index, (name, _)): (usize, &(&str, &str))| format!("c{index} AS {name}");
    let values: Vec<String> = columns.iter().enumerate().map(value).collect();
    let values = values.join(", ");
    format!("(SELECT {values} FROM ductwork_rows(:{alias})) AS {alias}")
}
