//! The fragments that databases have in common: their arguments, and the SQL of those that PostgreSQL and
//! SQLite write alike.

use std::fmt::Write;

/// The alias, and the names and types of the columns, of `alias(name type, …)`.
pub(super) fn columns(argument: &str) -> (&str, Vec<(&str, &str)>) {
    let (alias, columns) = argument.split_once('(').expect("rows have columns");
    let columns = columns.trim_end_matches(')').split(',');
    let columns = columns.map(|column| column.trim().split_once(' ').expect("a column has a type"));
    (alias, columns.collect())
}

/// The four parts of a `{fingerprint:…}`.
pub(super) fn fingerprint(argument: &str) -> [&str; 4] {
    let mut parts = argument.splitn(4, ';');
    [(); 4].map(|()| parts.next().expect("a fingerprint has four parts"))
}

/// The kind and the number of a `{made:…}`.
pub(super) fn made(argument: &str) -> (u16, &str) {
    let (kind, n) = both(argument);
    (kind.parse().expect("its kind is one"), n)
}

/// The two parts of an argument.
pub(super) fn both(argument: &str) -> (&str, &str) {
    argument.split_once(';').expect("it has two parts")
}

/// The table, the batch and the index of `table;batch;index`: the key's, if none is named.
pub(super) fn into(argument: &str) -> (&str, &str, &str) {
    let (table, rest) = both(argument);
    let (batch, index) = rest.split_once(';').unwrap_or((rest, "PRIMARY"));
    (table, batch, index)
}

/// Writes a fragment in the form of PostgreSQL and SQLite, which refers to a batch as `rows` writes it; false when no
/// fragment has this name.
pub(super) fn standard(
    name: &str,
    argument: &str,
    rows: fn(&str) -> String,
    to: &mut String,
) -> bool {
    let written = match name {
        "into" => to.write_str(into(argument).0),
        "from" => write!(to, "FROM {}", rows(argument)),
        "delete" => write!(to, "DELETE FROM {}", both(argument).0),
        "keep" => write!(to, "ON CONFLICT ({}) DO NOTHING", both(argument).1),
        "replace" => write!(to, "ON CONFLICT ({argument}) DO UPDATE SET"),
        "new" => write!(to, "excluded.{argument}"),
        "same" => {
            let (left, right) = both(argument);
            write!(to, "{left} IS NOT DISTINCT FROM {right}")
        }
        "big" => write!(to, "CAST({argument} AS bigint)"),
        "materialized" => to.write_str("AS MATERIALIZED"),
        // A partial index shows by itself that it holds only the open rows.
        "narrow" | "found" => Ok(()),
        "cross" => to.write_str("CROSS JOIN"),
        "ended" => write!(
            to,
            "coalesce({argument}.completed_at, {argument}.halted_at, {argument}.cancelled_at)"
        ),
        _ => return false,
    };
    written.expect("a string takes all");
    true
}
