//! Where databases differ: fragments of SQL.
//!
//! Owns: the differences of syntax that shared statements have, as fragments that these name in braces.
//! Never: a whole statement; those that differ as a whole are in `backend/`.

use std::fmt::Write;

use super::batch::{self, Kind};
use super::rows_table;

/// A database this program speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// PostgreSQL, and what speaks its protocol.
    Postgres,
    /// SQLite, bundled.
    Sqlite,
}

impl Dialect {
    /// The name as shown to people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::Sqlite => "SQLite",
        }
    }

    /// Renders the text of a statement: fragments replaced, `:names` numbered.
    ///
    /// Returns the SQL and the names of its parameters, in the order of their numbers.
    /// Panics on a malformed statement: they are all `'static`, and a test renders each.
    pub(super) fn render(self, text: &str) -> (String, Vec<String>) {
        let mut expanded = String::with_capacity(text.len() + 128);
        let mut rest = text;
        while let Some(start) = rest.find('{') {
            expanded.push_str(&rest[..start]);
            let end = start + rest[start..].find('}').expect("a fragment is closed");
            self.fragment(&rest[start + 1..end], &mut expanded);
            rest = &rest[end + 1..];
        }
        expanded.push_str(rest);
        number(&expanded, if self == Self::Postgres { '$' } else { '?' })
    }

    fn fragment(self, fragment: &str, to: &mut String) {
        let (name, argument) = fragment.split_once(':').unwrap_or((fragment, ""));
        match (self, name) {
            // The statement's time, not the transaction's: a long transaction must not write
            // an old heartbeat (H5); not `clock_timestamp()`, which no index can be compared
            // with because it is volatile.
            (Self::Postgres, "now") => {
                to.push_str("(extract(epoch from statement_timestamp()) * 1000000)::bigint")
            }
            (Self::Sqlite, "now") => to.push_str("CAST(unixepoch('subsec') * 1000000 AS INTEGER)"),
            (Self::Postgres, "skip_locked") => to.push_str("FOR UPDATE SKIP LOCKED"),
            (Self::Postgres, "lock") => to.push_str("FOR UPDATE"),
            // The row stays until we are done; whoever writes other columns of it need not wait.
            (Self::Postgres, "share") => to.push_str("FOR KEY SHARE"),
            // One writer at a time (BEGIN IMMEDIATE): there is nothing to lock.
            (Self::Sqlite, "skip_locked" | "lock" | "share") => {}
            // `ductwork_runs r {by:ductwork_runs_ended}`: SQLite, which knows nothing of how many rows
            // share a value, would look a status up, and read all that has it.
            (Self::Postgres, "by") => {}
            (Self::Sqlite, "by") => {
                write!(to, "INDEXED BY {argument}").expect("a string takes all")
            }
            (_, "rows") => self.rows(argument, to),
            // A row that is looked up by its key: `{key:table.id;b.id}`. On PostgreSQL as an index
            // condition that no join can be merged or hashed on: a plan made while the tables
            // were empty would otherwise walk a whole index and look through the batch for each
            // of its entries, for as long as it is cached.
            (Self::Postgres, "key") => {
                let (key, value) = argument.split_once(';').expect("a key has a value");
                write!(to, "{key} = ANY (ARRAY[{value}])").expect("a string takes all");
            }
            (Self::Sqlite, "key") => {
                let (key, value) = argument.split_once(';').expect("a key has a value");
                write!(to, "{key} = {value}").expect("a string takes all");
            }
            // One of a batch of keys: `{any:table.id;b(id id)}`. On PostgreSQL an index condition on
            // the array itself: joined with the batch as a table, or looked for in it by a subquery,
            // a plan that was made without statistics may read the whole table, or go through the
            // batch for each of its rows.
            (Self::Postgres, "any") => {
                let (key, rows) = argument.split_once(';').expect("a key is one of some rows");
                let (alias, columns) = columns(rows);
                let [(name, "id")] = columns[..] else {
                    unreachable!("{rows:?} is no column of keys")
                };
                write!(to, "{key} = ANY (:{alias}.{name}::uuid[])").expect("a string takes all");
            }
            (Self::Sqlite, "any") => {
                let (key, rows) = argument.split_once(';').expect("a key is one of some rows");
                let (alias, _) = columns(rows);
                write!(to, "{key} IN (SELECT c0 FROM ductwork_rows(:{alias}))")
                    .expect("a string takes all");
            }
            // `{copied:id}`: the id of the copy that run `:to` has of the row `id`. The first
            // half is the run's, so it is unique and lies close to it; the second half, its
            // random bits, is the row's own. A null stays null.
            (Self::Postgres, "copied") => write!(
                to,
                "(left(:to::uuid::text, 19) || substr({argument}::text, 20))::uuid"
            )
            .expect("a string takes all"),
            (Self::Sqlite, "copied") => write!(
                to,
                "CASE WHEN {argument} IS NOT NULL \
                 THEN unhex(substr(hex(:to), 1, 16) || substr(hex({argument}), 17)) END"
            )
            .expect("a string takes all"),
            // All values of a column as one JSON array, in an order: `{array:value;order}`.
            (_, "array") => {
                let (value, order) = argument.split_once(';').expect("array has an order");
                let function = match self {
                    Self::Postgres => "string_agg",
                    Self::Sqlite => "group_concat",
                };
                write!(
                    to,
                    "'[' || coalesce({function}({value}, ',' ORDER BY {order}), '') || ']'"
                )
                .expect("a string takes all");
            }
            // The sum of the hashes of a column of ids, as a text: `{fingerprint:id;salt;weight;rows}`.
            // Each is hashed together with the salt, and counted so many times; both may be
            // left out. Only rows that fit the condition count.
            (_, "fingerprint") => self.fingerprint(argument, to),
            // The numbers from `:first` to `:last` as a table with the column `n`.
            (Self::Postgres, "series") => {
                to.push_str("generate_series(:first::bigint, :last::bigint) AS series(n)")
            }
            (Self::Sqlite, "series") => to.push_str(
                "(WITH RECURSIVE numbers(n) AS (SELECT :first UNION ALL \
                 SELECT n + 1 FROM numbers WHERE n < :last) SELECT n FROM numbers) AS series",
            ),
            // `{made:kind;n}`: an id that is made from two numbers, in the order of the second.
            (_, "made") => {
                let (kind, n) = argument.split_once(';').expect("made has a number");
                let kind: u16 = kind.parse().expect("its kind is one");
                match self {
                    Self::Postgres => write!(
                        to,
                        "(lpad(to_hex(:time::bigint), 12, '0') || '7{kind:03x}8' || lpad(to_hex({n}), 15, '0'))::uuid"
                    ),
                    Self::Sqlite => write!(to, "unhex(printf('%012x7{kind:03x}8%015x', :time, {n}))"),
                }
                .expect("a string takes all");
            }
            _ => unreachable!("unknown fragment {fragment:?}"),
        }
    }

    fn fingerprint(self, argument: &str, to: &mut String) {
        let mut parts = argument.splitn(4, ';');
        let mut part = || parts.next().expect("a fingerprint has four parts");
        let (id, salt, weight, rows) = (part(), part(), part(), part());
        match self {
            Self::Postgres => {
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
            Self::Sqlite => {
                let salt = if salt.is_empty() { "NULL" } else { salt };
                let weight = if weight.is_empty() { "1" } else { weight };
                write!(
                    to,
                    "CAST(ductwork_fingerprint({id}, {salt}, {weight}) FILTER (WHERE {rows}) AS TEXT)"
                )
            }
        }
        .expect("a string takes all");
    }

    fn batch(self, name: &str, to: &mut String) {
        let columns = batch::columns(name);
        match self {
            Self::Postgres => {
                let array = |(column, kind): &(&str, Kind)| {
                    let kind = match kind {
                        Kind::Id => "uuid",
                        Kind::Text => "text",
                        Kind::Int => "bigint",
                    };
                    format!(":{name}.{column}::{kind}[]")
                };
                let arrays: Vec<String> = columns.iter().map(array).collect();
                let names: Vec<&str> = columns.iter().map(|(column, _)| *column).collect();
                let (arrays, names) = (arrays.join(", "), names.join(", "));
                write!(to, "unnest({arrays}) AS {name}({names})")
            }
            Self::Sqlite => write!(to, "batch_{name}(:{name}) AS {name}"),
        }
        .expect("a string takes all");
    }

    /// `{rows:b(id id, node text, n int)}`: the rows of the parameter `:b` as a table. Arrays
    /// on PostgreSQL (typed, binary, one per column), one packed blob on SQLite. `{rows:held}` is one
    /// of `batch::columns`.
    fn rows(self, argument: &str, to: &mut String) {
        if !argument.contains('(') {
            return self.batch(argument, to);
        }
        let (alias, columns) = columns(argument);
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        match self {
            Self::Postgres => {
                let arrays: Vec<String> = columns
                    .iter()
                    .map(|(name, kind)| {
                        let kind = match *kind {
                            "id" => "uuid",
                            "text" => "text",
                            "int" => "bigint",
                            other => unreachable!("unknown column type {other:?}"),
                        };
                        format!(":{alias}.{name}::{kind}[]")
                    })
                    .collect();
                let (arrays, names) = (arrays.join(", "), names.join(", "));
                write!(to, "unnest({arrays}) AS {alias}({names})").expect("a string takes all");
            }
            Self::Sqlite => {
                assert!(columns.len() <= rows_table::COLUMNS, "{alias} is too wide");
                let values: Vec<String> = names
                    .iter()
                    .enumerate()
                    .map(|(index, name)| format!("c{index} AS {name}"))
                    .collect();
                let values = values.join(", ");
                write!(
                    to,
                    "(SELECT {values} FROM ductwork_rows(:{alias})) AS {alias}"
                )
                .expect("a string takes all");
            }
        }
    }
}

/// The alias, and the names and types of the columns, of `alias(name type, …)`.
fn columns(argument: &str) -> (&str, Vec<(&str, &str)>) {
    let (alias, columns) = argument.split_once('(').expect("rows have columns");
    let columns = columns.trim_end_matches(')').split(',');
    let columns = columns.map(|column| column.trim().split_once(' ').expect("a column has a type"));
    (alias, columns.collect())
}

/// Replaces `:name` by `$1` / `?1` …; the same name gets the same number.
fn number(text: &str, mark: char) -> (String, Vec<String>) {
    let mut sql = String::with_capacity(text.len());
    let mut names: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(colon) = rest.find(':') {
        sql.push_str(&rest[..colon]);
        let after = &rest[colon + 1..];
        if let Some(cast) = after.strip_prefix(':') {
            sql.push_str("::");
            rest = cast;
            continue;
        }
        let length = after
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.')
            .unwrap_or(after.len());
        let name = &after[..length];
        assert!(!name.is_empty(), "a parameter has a name: {text}");
        let index = names.iter().position(|known| known == name);
        let index = index.unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        write!(sql, "{mark}{}", index + 1).expect("a string takes all");
        rest = &after[length..];
    }
    sql.push_str(rest);
    (sql, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_arrays_on_postgres_and_one_blob_on_sqlite() {
        let text = "SELECT b.id FROM {rows:b(id id, n int)} WHERE b.n > :min AND :min > 0";
        let (sql, names) = Dialect::Postgres.render(text);
        assert_eq!(
            sql,
            "SELECT b.id FROM unnest($1::uuid[], $2::bigint[]) AS b(id, n) WHERE b.n > $3 AND $3 > 0"
        );
        assert_eq!(names, ["b.id", "b.n", "min"]);
        let (sql, names) = Dialect::Sqlite.render(text);
        assert_eq!(
            sql,
            "SELECT b.id FROM (SELECT c0 AS id, c1 AS n FROM ductwork_rows(?1)) AS b WHERE b.n > ?2 AND ?2 > 0"
        );
        assert_eq!(names, ["b", "min"]);
    }
}
