//! Rendering: the text of a statement as one database takes it.
//!
//! Owns: the replacement of fragments, which shared statements name in braces, and the numbering of
//! parameters. Never: the SQL of a fragment, which each database has in `backend/`.
//!
//! | fragment | stands for |
//! |---|---|
//! | `{now}` | the time of the statement, in microseconds |
//! | `{lock}`, `{share}`, `{skip_locked}` | the lock on the rows that a SELECT reads |
//! | `{by:index}` | the index that a database without statistics has to use |
//! | `{rows:b(id id, node text, n int)}` | the rows of the parameter `:b` as a table |
//! | `{rows:held}` | the same, of a batch that `batch` declares |
//! | `{key:table.id;b.id}` | a row that is looked up by its key |
//! | `{any:table.id;b(id id)}` | one of a batch of keys |
//! | `{copied:id}` | the id of the copy that the run `:to` has of the row `id`. The first half is the run's, so it is unique and lies close to it; the second half, its random bits, is the row's own. A null stays null. |
//! | `{array:value;order}` | all values of a column as one JSON array, in an order |
//! | `{fingerprint:id;salt;weight;rows}` | the sum of the hashes of a column of ids, as a text. Each is hashed together with the salt and counted so many times; both may be left out. Only rows that fit the condition count. |
//! | `{series}` | the numbers from `:first` to `:last` as a table with the column `n` |
//! | `{made:kind;n}` | an id that is made from two numbers, in the order of the second |
//! | `{hex:id}` | the digits of an id as a text, in lower case |
//! | `{id}`, `{int}` | the types of a key and of a number |

use std::fmt::Write;

use super::backend::Backend;

/// Renders the text of a statement: fragments replaced, `:names` numbered.
///
/// Returns the SQL and the names of its parameters, in the order of their numbers.
/// Panics on a malformed statement: they are all `'static`, and a test renders each.
pub(super) fn render(backend: &dyn Backend, text: &str) -> (String, Vec<String>) {
    let mut expanded = String::with_capacity(text.len() + 128);
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        expanded.push_str(&rest[..start]);
        let end = start + rest[start..].find('}').expect("a fragment is closed");
        let fragment = &rest[start + 1..end];
        let (name, argument) = fragment.split_once(':').unwrap_or((fragment, ""));
        let known = backend.fragment(name, argument, &mut expanded);
        assert!(known, "unknown fragment {fragment:?}");
        rest = &rest[end + 1..];
    }
    expanded.push_str(rest);
    number(&expanded, backend.mark())
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
    use super::super::dialect::Dialect;
    use super::*;

    #[test]
    fn rows_become_arrays_on_postgres_and_one_blob_on_sqlite() {
        let text = "SELECT b.id FROM {rows:b(id id, n int)} WHERE b.n > :min AND :min > 0";
        let (sql, names) = render(Dialect::Postgres.backend(), text);
        assert_eq!(
            sql,
            "SELECT b.id FROM unnest($1::uuid[], $2::bigint[]) AS b(id, n) WHERE b.n > $3 AND $3 > 0"
        );
        assert_eq!(names, ["b.id", "b.n", "min"]);
        let (sql, names) = render(Dialect::Sqlite.backend(), text);
        assert_eq!(
            sql,
            "SELECT b.id FROM (SELECT c0 AS id, c1 AS n FROM ductwork_rows(?1)) AS b WHERE b.n > ?2 AND ?2 > 0"
        );
        assert_eq!(names, ["b", "min"]);
    }
}
