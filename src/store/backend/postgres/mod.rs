//! PostgreSQL.
//!
//! Owns: its fragments and settings. `connection` is the connection to the server, `hosts` and `servers`
//! find the right one of several, `error` is the meaning of its errors, and the `.sql` files are its
//! statements of the hot operations.

pub mod connection;
pub mod error;
pub mod hosts;
pub mod no_server;
pub mod servers;

use std::fmt::Write;

use super::super::batch::{self, Kind};
use super::fragment::{self, columns};
use super::{Asks, Backend, Setting};

/// PostgreSQL, and servers that speak its protocol.
pub(in crate::store) struct Postgres;

impl Backend for Postgres {
    fn name(&self) -> &'static str {
        "PostgreSQL"
    }

    fn asks(&self) -> Asks {
        Asks::Joined
    }

    fn mark(&self) -> char {
        '$'
    }

    fn begin(&self) -> &'static str {
        "BEGIN ISOLATION LEVEL READ COMMITTED"
    }

    fn begin_snapshot(&self) -> &'static str {
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    }

    fn setting(&self, setting: Setting) -> Option<&'static str> {
        match setting {
            Setting::MigrationLockWait => Some("SET LOCAL lock_timeout = '2s'"),
            Setting::ShortLockWait => Some("SET LOCAL lock_timeout = '200ms'"),
            // Some sorts are worth the memory, and no statement of an audit is worth compiling. A
            // plan that the connection made when there were few rows would compare every row with
            // every row by now; and an engine's connection may not read whole tables, although an
            // audit does nothing else.
            Setting::AuditPlanner => Some(
                "SET LOCAL work_mem = '64MB'; SET LOCAL jit = off;
    SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL enable_seqscan = on;
    SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on",
            ),
            Setting::HashJoins => Some("SET LOCAL enable_nestloop = off"),
            Setting::KeyedJoins => Some("SET LOCAL enable_nestloop = on"),
            Setting::LongSilence => Some("SET LOCAL idle_in_transaction_session_timeout = 0"),
            Setting::TemporaryInMemory => None,
        }
    }

    fn locks_rows(&self) -> bool {
        true
    }

    fn notifies(&self) -> bool {
        true
    }

    fn is_server(&self) -> bool {
        true
    }

    fn settle(&self) -> &'static [&'static str] {
        const TABLES: &str = "VACUUM (ANALYZE) ductwork_runs, ductwork_branches,
                ductwork_steps, ductwork_executions, ductwork_availabilities,
                ductwork_transitions, ductwork_advancements";
        // Not every user may request a checkpoint; without the right, it happens at its own time.
        &[TABLES, "CHECKPOINT"]
    }

    fn beside(&self, url: &str, name: &str) -> String {
        let mark = if url.contains('?') { '&' } else { '?' };
        format!("{url}{mark}options=-csearch_path%3D{name}")
    }

    fn fragment(&self, name: &str, argument: &str, to: &mut String) -> bool {
        let written = match name {
            // The statement's time, not the transaction's: a long transaction must not write
            // an old heartbeat (H5); not `clock_timestamp()`, which no index can be compared
            // with because it is volatile.
            "now" => to.write_str("(extract(epoch from statement_timestamp()) * 1000000)::bigint"),
            "skip_locked" => to.write_str("FOR UPDATE SKIP LOCKED"),
            // As strong as an UPDATE that leaves the key alone: rows that others refer to are none to wait for.
            "skip_waiting" => to.write_str("FOR NO KEY UPDATE SKIP LOCKED"),
            // A row to which somebody's row merely refers can be written.
            "lock" => to.write_str("FOR NO KEY UPDATE"),
            // The row stays until we are done; a writer of its other columns need not wait.
            "share" => to.write_str("FOR KEY SHARE"),
            "skip_shared" => to.write_str("FOR KEY SHARE SKIP LOCKED"),
            // The planner has statistics.
            "by" => Ok(()),
            "id" => to.write_str("uuid"),
            "int" => to.write_str("bigint"),
            "rows" => to.write_str(&rows(argument)),
            "join" => write!(to, "JOIN {argument}"),
            // An index condition that no join can be merged or hashed on: a plan made while the
            // tables were empty would otherwise scan a whole index and search the batch for each of
            // its entries, for as long as it is cached.
            "key" => {
                let (key, value) = argument.split_once(';').expect("a key has a value");
                write!(to, "{key} = ANY (ARRAY[{value}])")
            }
            // An index condition on the array itself: with the batch joined as a table, or searched
            // by a subquery, a plan that was made without statistics may read the whole table, or
            // search the batch for each of its rows.
            "any" | "of" => {
                let (key, rows) = argument.split_once(';').expect("a key is one of some rows");
                let (alias, columns) = columns(rows);
                let [(name, kind)] = columns[..] else {
                    unreachable!("{rows:?} is no column of keys")
                };
                let kind = array(Kind::named(kind));
                write!(to, "{key} = ANY (:{alias}.{name}::{kind})")
            }
            "within" => {
                let (key, query) = argument.split_once(';').expect("a key is one of some keys");
                write!(to, "{key} = ANY (ARRAY({query}))")
            }
            "copied" => write!(
                to,
                "(left(:to::uuid::text, 19) || substr({argument}::text, 20))::uuid"
            ),
            "hex" => write!(to, "replace({argument}::text, '-', '')"),
            "array" => {
                let (value, order) = argument.split_once(';').expect("an array has an order");
                write!(
                    to,
                    "'[' || coalesce(string_agg({value}, ',' ORDER BY {order}), '') || ']'"
                )
            }
            "fingerprint" => {
                let [id, salt, weight, rows] = fragment::fingerprint(argument);
                let salt = match salt {
                    "" => "0".to_owned(),
                    salt => format!("uuid_hash_extended({salt}, 0)"),
                };
                let times = match weight {
                    "" => String::new(),
                    weight => format!("::numeric * {weight}"),
                };
                write!(
                    to,
                    "coalesce(sum(uuid_hash_extended({id}, {salt}){times}) FILTER (WHERE {rows}), 0)::text"
                )
            }
            "series" => to.write_str("generate_series(:first::bigint, :last::bigint) AS series(n)"),
            "made" => {
                let (kind, n) = fragment::made(argument);
                write!(
                    to,
                    "(lpad(to_hex(:time::bigint), 12, '0') || '7{kind:03x}8' || lpad(to_hex({n}), 15, '0'))::uuid"
                )
            }
            _ => return fragment::standard(name, argument, rows, to),
        };
        written.expect("a string takes all");
        true
    }
}

/// The type of a column of a batch.
fn array(kind: Kind) -> &'static str {
    match kind {
        Kind::Id => "uuid[]",
        Kind::Text => "text[]",
        Kind::Int => "bigint[]",
    }
}

/// A batch as typed arrays, one for each column.
fn rows(argument: &str) -> String {
    let (alias, columns) = match argument.contains('(') {
        true => {
            let (alias, columns) = columns(argument);
            let kind = |(name, kind): &(&'_ str, &str)| ((*name).to_owned(), Kind::named(kind));
            (alias, columns.iter().map(kind).collect::<Vec<_>>())
        }
        false => {
            let owned = |(name, kind): batch::Declared| (name.to_owned(), kind);
            let columns = batch::columns(argument).into_iter().map(owned);
            (argument, columns.collect())
        }
    };
    let one = |(name, kind): &(String, Kind)| format!(":{alias}.{name}::{}", array(*kind));
    let arrays: Vec<String> = columns.iter().map(one).collect();
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let (arrays, names) = (arrays.join(", "), names.join(", "));
    format!("unnest({arrays}) AS {alias}({names})")
}
