//! MySQL and MariaDB.
//!
//! Owns: their fragments and settings, one text for both. `url` is the address, `nodes` the nodes that it names,
//! `connection` the connection to the server, `session` the requirements on a session, `literal` the values of a
//! compound statement, `inline` the keys and values of a batch in the text of a statement, `locks` the locks of
//! others, and `error` the meaning of the servers' errors.

pub mod compound;
pub mod connection;
pub mod error;
pub mod inline;
pub mod literal;
pub mod locks;
pub mod nodes;
pub mod script;
pub mod session;
pub mod url;
pub mod value;

use std::fmt::Write;

use super::super::batch;
use super::fragment::{self, both, columns, into};
use super::{Asks, Backend, Setting};

/// MySQL and MariaDB.
pub(in crate::store) struct Mysql;

impl Backend for Mysql {
    fn name(&self) -> &'static str {
        "MySQL"
    }

    fn asks(&self) -> Asks {
        Asks::InTurn
    }

    fn mark(&self) -> char {
        '?'
    }

    fn numbers(&self) -> bool {
        false
    }

    /// The isolation level is set for the session.
    fn begin(&self) -> &'static str {
        "START TRANSACTION"
    }

    fn begin_snapshot(&self) -> &'static str {
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
    }

    fn setting(&self, setting: Setting) -> Option<&'static str> {
        match setting {
            Setting::MigrationLockWait => {
                Some("SET SESSION lock_wait_timeout = 2, innodb_lock_wait_timeout = 2")
            }
            // The server knows whole seconds only.
            Setting::ShortLockWait => Some("SET SESSION innodb_lock_wait_timeout = 1"),
            // To MySQL, which has a limit for any silence instead, MariaDB's settings are a comment.
            Setting::LongSilence => Some(
                "SET SESSION /*M! idle_transaction_timeout = 0, idle_readonly_transaction_timeout = 0, */ \
                 wait_timeout = 31536000",
            ),
            Setting::AuditPlanner
            | Setting::HashJoins
            | Setting::KeyedJoins
            | Setting::TemporaryInMemory => None,
        }
    }

    fn locks_rows(&self) -> bool {
        true
    }

    fn undoes_schema(&self) -> bool {
        false
    }

    fn notifies(&self) -> bool {
        false
    }

    fn is_server(&self) -> bool {
        true
    }

    fn settle(&self) -> &'static [&'static str] {
        &[
            "ANALYZE TABLE ductwork_runs, ductwork_branches, ductwork_steps, ductwork_executions,
                         ductwork_availabilities, ductwork_transitions, ductwork_advancements",
        ]
    }

    /// It is unknown which of the two servers the script is for.
    fn by_hand(&self, script: String) -> String {
        format!(
            "-- For MariaDB. For MySQL, write utf8mb4_0900_bin wherever utf8mb4_nopad_bin stands.\n\
             SET SESSION default_storage_engine = InnoDB, sql_mode = '{}';\n\n{}",
            session::SQL_MODE,
            script.replace("{bin}", "utf8mb4_nopad_bin")
        )
    }

    fn beside(&self, url: &str, name: &str) -> String {
        url::with_database(url, name)
    }

    fn fragment(&self, name: &str, argument: &str, to: &mut String) -> bool {
        let written = match name {
            // The statement's time. UTC, and not TIMESTAMP, which ends in 2038.
            "now" => to.write_str("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"),
            "skip_locked" | "skip_waiting" | "skip_shared" => {
                to.write_str("FOR UPDATE SKIP LOCKED")
            }
            "lock" => to.write_str("FOR UPDATE"),
            "share" => to.write_str("LOCK IN SHARE MODE"),
            // In the planner's statistics all rows with a null have the same value, so the planner takes an index of
            // few rows for one of half the table, and `pruning_at IS NULL` for a condition that leaves few rows. It
            // reads every row of a table that was small some seconds ago.
            "by" | "found" => write!(to, "FORCE INDEX ({})", index(argument)),
            "cross" => to.write_str("STRAIGHT_JOIN"),
            "id" => to.write_str("binary(16)"),
            "int" => to.write_str("SIGNED"),
            "big" => write!(to, "CAST({argument} AS SIGNED)"),
            "same" => {
                let (left, right) = both(argument);
                write!(to, "({left} <=> {right})")
            }
            "materialized" => to.write_str("AS"),
            "narrow" => to.write_str(argument),
            "ended" => write!(to, "{argument}.ended_at"),
            "rows" => to.write_str(&rows(argument)),
            // As in `join`.
            "into" => {
                let (table, batch, index) = into(argument);
                let rows = rows(batch);
                write!(to, "{rows} STRAIGHT_JOIN {table} FORCE INDEX ({index})")
            }
            "among" => to.write_str(&inline::among(argument)),
            "chosen" => to.write_str(&inline::chosen(argument)),
            "delete" => {
                let (table, batch, index) = into(argument);
                let rows = rows(batch);
                write!(
                    to,
                    "DELETE {table} FROM {rows} STRAIGHT_JOIN {table} FORCE INDEX ({index})"
                )
            }
            // The batch is a table of the statement.
            "of" => {
                let (key, batch) = both(argument);
                let (alias, columns) = columns(batch);
                write!(to, "{key} = {alias}.{}", columns[0].0)
            }
            // IGNORE would also hide truncated values. An existing row counts as a written one.
            "keep" => {
                let (table, columns) = both(argument);
                let column = columns.split(',').next().unwrap_or(columns).trim();
                write!(to, "ON DUPLICATE KEY UPDATE {column} = {table}.{column}")
            }
            "replace" => to.write_str("ON DUPLICATE KEY UPDATE"),
            "new" => write!(to, "VALUES({argument})"),
            // It already stands before SET.
            "from" => Ok(()),
            // The planner relies on row counts that are some seconds old: it would read, and lock, every row
            // of a table that was small then, before the batch or after it.
            "join" => write!(to, "STRAIGHT_JOIN {argument} FORCE INDEX (PRIMARY)"),
            "key" => {
                let (key, value) = both(argument);
                write!(to, "{key} = {value}")
            }
            "any" => {
                let (key, rows) = both(argument);
                write!(to, "{key} IN (SELECT id FROM {})", json_table(rows))
            }
            "within" => {
                let (key, query) = both(argument);
                write!(to, "{key} IN ({query})")
            }
            "copied" => write!(
                to,
                "UNHEX(CONCAT(LEFT(HEX(CAST(:to AS binary(16))), 16), SUBSTR(HEX({argument}), 17)))"
            ),
            "hex" => write!(to, "LOWER(HEX({argument}))"),
            "array" => {
                let (value, order) = both(argument);
                write!(
                    to,
                    "CONCAT('[', coalesce(group_concat({value} ORDER BY {order} SEPARATOR ','), ''), ']')"
                )
            }
            "fingerprint" => {
                let [id, salt, weight, rows] = fragment::fingerprint(argument);
                let hashed = match salt {
                    "" => id.to_owned(),
                    salt => format!("CONCAT({salt}, {id})"),
                };
                let times = match weight {
                    "" => String::new(),
                    weight => format!(" * {weight}"),
                };
                // Sixty bits, as a whole number: the sum of texts would be a float. MySQL has MD5 in a
                // component of its own since 9.6, which a server need not have.
                write!(
                    to,
                    "CAST(coalesce(sum(CASE WHEN {rows} \
                     THEN CAST(CONV(LEFT(SHA2({hashed}, 256), 15), 16, 10) AS DECIMAL(20)){times} END), 0) AS CHAR)"
                )
            }
            "series" => to.write_str(
                "(WITH RECURSIVE numbers(n) AS (SELECT CAST(:first AS SIGNED) UNION ALL \
                 SELECT n + 1 FROM numbers WHERE n < :last) SELECT n FROM numbers) AS series",
            ),
            "made" => {
                let (kind, n) = fragment::made(argument);
                write!(
                    to,
                    "UNHEX(CONCAT(LPAD(HEX(CAST(:time AS SIGNED)), 12, '0'), '7{kind:03x}8', \
                     LPAD(HEX(CAST({n} AS SIGNED)), 15, '0')))"
                )
            }
            "whole" => {
                let (n, m) = both(argument);
                write!(to, "{WHOLE}(({n}) <> {m})")
            }
            _ => return false,
        };
        written.expect("a string takes all");
        true
    }
}

/// The index that holds the rows for which another database has an index of their own.
fn index(name: &str) -> &str {
    match name {
        "ductwork_runs_completed" => "ductwork_runs_others",
        name => name,
    }
}

/// A text with an explicit collation: the database may have any default. The name is MariaDB's; a connection to
/// MySQL writes another (`session::Server::collation`).
const TEXT: &str = "longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin";

/// Fails with 1690, out of range, where the condition that follows is true.
pub(in crate::store) const WHOLE: &str = "SET @d_whole = 9223372036854775807 + ";

/// A batch: a declared one is its table, which the connection has filled; any other is JSON.
fn rows(argument: &str) -> String {
    match argument.contains('(') {
        true => json_table(argument),
        false => format!("{} AS {argument}", staged(argument)),
    }
}

/// The temporary table of a declared batch.
pub(super) fn staged(batch: &str) -> String {
    assert!(batch::NAMES.contains(&batch), "there is no batch {batch:?}");
    format!("ductwork_{batch}")
}

/// Fills the temporary table of a declared batch from one value.
pub(super) fn staging(batch: &str) -> String {
    let columns: Vec<String> = batch::columns(batch)
        .into_iter()
        .map(|(name, kind)| format!("{name} {}", kind.name()))
        .collect();
    let rows = json_table(&format!("b({})", columns.join(", ")));
    format!(
        "INSERT INTO {} SELECT * FROM {}",
        staged(batch),
        rows.replacen(":b", "?", 1)
    )
}

/// A batch as one JSON text, read as a table. The text has keys as digits.
fn json_table(argument: &str) -> String {
    let (alias, columns) = columns(argument);
    let value = |(index, (name, kind)): (usize, &(&str, &str))| match *kind {
        "id" => format!("UNHEX(j.c{index}) AS {name}"),
        _ => format!("j.c{index} AS {name}"),
    };
    let column = |(index, (_, kind)): (usize, &(&str, &str))| {
        let kind = match *kind {
            "id" => "char(32)",
            "int" => "bigint",
            "text" => TEXT,
            other => unreachable!("unknown column type {other:?}"),
        };
        format!("c{index} {kind} PATH '$[{index}]'")
    };
    let values: Vec<String> = columns.iter().enumerate().map(value).collect();
    let read: Vec<String> = columns.iter().enumerate().map(column).collect();
    format!(
        "(SELECT {} FROM JSON_TABLE(:{alias}, '$[*]' COLUMNS({})) AS j) AS {alias}",
        values.join(", "),
        read.join(", ")
    )
}
