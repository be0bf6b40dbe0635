//! Rendering: the text of a statement in the form of one database.
//!
//! Owns: the replacement of fragments, which shared statements name in braces, and the numbering of parameters. Never:
//! the SQL of a fragment, which each database has in `backend/`.
//!
//! | fragment | stands for |
//! |---|---|
//! | `{now}` | the time of the statement, in microseconds |
//! | `{lock}`, `{share}`, `{skip_locked}` | the lock on the rows that a SELECT reads |
//! | `{skip_waiting}` | the same as `{skip_locked}`, with a lock no stronger than that of an UPDATE which leaves the key alone |
//! | `{skip_shared}` | the same, with a lock no stronger than `{share}` where the database has one |
//! | `{by:index}` | the index that a database has to use where it does not know how many rows share a value, or treats all nulls as one value |
//! | `{found:index}` | the same, only on MySQL |
//! | `{cross}` | the CROSS JOIN that reads the tables before it first, except on PostgreSQL, which chooses well |
//! | `{rows:b(id id, node text, n int)}` | the rows of the parameter `:b` as a table |
//! | `{rows:held}` | the same, for a batch that `batch` declares |
//! | `{join:table alias}` | the JOIN of a batch with the table in which it is looked up: where rows are locked as they are read, in the batch's order |
//! | `{key:table.id;b.id}` | a row that is looked up by its key |
//! | `{any:table.id;b(id id)}` | one of a batch of keys |
//! | `{within:key;SELECT …}` | one of the keys that a query finds |
//! | `UPDATE {into:table;b(id id, n int)} SET …` | the table that is written from the rows of a batch, which the WHERE looks up by its key |
//! | `UPDATE {into:table;b(id id, n int);index} SET …` | the same, where the WHERE looks them up by another index |
//! | `SET … {from:b(id id, n int)} WHERE …` | these rows once more: each database names them in one of the two places |
//! | `{delete:table;b(id id)} WHERE …` | the beginning of a DELETE of the rows of a batch, which the WHERE looks up by its key; or by an index, as above |
//! | `{of:table.id;b(id id)}` | the same as `{any:…}`, for a table that `{into:…}` or `{delete:…}` names with the same batch. An UPDATE with it has no `{from:…}`. Other conditions may follow. |
//! | `{among:key;held.id;n}` | on MySQL, one of the keys in this column of a declared batch, of those rows where the other column, which may be left out, is not 0 |
//! | `{chosen:key;held.id;text;n}` | on MySQL, the text in this column of the batch's row that has the key, of the same rows |
//! | `{keep:table;key, key}` | the end of an INSERT: a row whose key exists already is left out, without telling whether it was |
//! | `{replace:key, key} a = …, b = …` | the end of an INSERT: a row whose key exists already is updated |
//! | `{new:column}` | in these assignments, the value that was to be inserted |
//! | `{same:a;b}` | equal, or both are null |
//! | `{big:number}` | a number of any type as a whole number of 64 bits |
//! | `WITH name {materialized} (…)` | a part that is computed once, before the parts that read it |
//! | `{copied:id}` | the id of the copy that the run `:to` has of the row `id`. The first half is the run's, so it is unique and lies close to it; the second half, its random bits, is the row's own. A null stays null. |
//! | `{array:value;order}` | all values of a column as one JSON array, in an order |
//! | `{fingerprint:id;salt;weight;rows}` | the sum of the hashes of a column of ids, as a text. Each is hashed together with the salt and multiplied by the weight; both may be left out. Only rows that fit the condition count. |
//! | `{series}` | the numbers from `:first` to `:last` as a table with the column `n` |
//! | `{made:kind;n}` | an id that is made from two numbers, in the order of the second |
//! | `{hex:id}` | the digits of an id as a text, in lower case |
//! | `{id}`, `{int}` | the types of a key and of a number |
//! | `{narrow: AND x}` | on MySQL, a condition that follows from the others, and whose column finds the rows |
//! | `{ended:r}` | the time at which a run ended, in the form in which an index has it |
//! | `{whole:n;m}` | on MySQL, a statement that fails unless the two numbers are the same |
//!
//! `{into:…}` and `{from:…}` also take a batch that `batch` declares: `{into:table;held}`, `{from:held}`. The columns
//! of a batch must differ from the columns that an UPDATE uses without naming their table: some databases would not
//! know which of the two is meant.

use std::fmt::Write;

use super::backend::Backend;

/// Renders the text of a statement: fragments replaced, `:names` by `$1` or `?1` …, the same name by the same
/// number; or by `?`, where a database counts parameters by their positions.
///
/// Returns the SQL and the names of its parameters, in the order of their numbers or positions. Panics on a
/// malformed statement: they are all `'static`, and a test renders each.
pub(super) fn render(backend: &dyn Backend, text: &str) -> (String, Vec<String>) {
    let mut names: Vec<String> = Vec::new();
    let (mark, numbers) = (backend.mark(), backend.numbers());
    let sql = replaced(&expanded(backend, text), |name, sql| {
        let known = names.iter().position(|known| known == name);
        let index = known.filter(|_| numbers).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        sql.push(mark);
        if numbers {
            write!(sql, "{}", index + 1).expect("a string takes all");
        }
    });
    (sql, names)
}

/// Renders the text with a variable of the session, `@d_name`, in place of each `:name`.
pub(super) fn with_variables(backend: &dyn Backend, text: &str) -> String {
    replaced(&expanded(backend, text), |name, sql| {
        write!(sql, "@d_{name}").expect("a string takes all");
    })
}

/// The text with its fragments replaced.
fn expanded(backend: &dyn Backend, text: &str) -> String {
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
    expanded
}

/// The text with a replacement for each `:name`.
fn replaced(text: &str, mut replace: impl FnMut(&str, &mut String)) -> String {
    let mut sql = String::with_capacity(text.len());
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
        replace(name, &mut sql);
        rest = &after[length..];
    }
    sql.push_str(rest);
    sql
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
        let (sql, names) = render(Dialect::Mysql.backend(), text);
        assert_eq!(
            sql,
            "SELECT b.id FROM (SELECT UNHEX(j.c0) AS id, j.c1 AS n FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) \
             PATH '$[0]', c1 bigint PATH '$[1]')) AS j) AS b WHERE b.n > ? AND ? > 0"
        );
        assert_eq!(names, ["b", "min", "min"]);
        let text = "DELETE FROM t WHERE id = :id AND n > :min";
        assert_eq!(
            with_variables(Dialect::Mysql.backend(), text),
            "DELETE FROM t WHERE id = @d_id AND n > @d_min"
        );
    }

    #[test]
    fn rows_are_written_and_deleted_from_a_batch() {
        let text = "UPDATE {into:t;b(id id, n int)} SET a = a + b.n {from:b(id id, n int)} WHERE {key:t.id;b.id}";
        let of_postgres = |text| render(Dialect::Postgres.backend(), text).0;
        let of_sqlite = |text| render(Dialect::Sqlite.backend(), text).0;
        assert_eq!(
            of_postgres(text),
            "UPDATE t SET a = a + b.n FROM unnest($1::uuid[], $2::bigint[]) AS b(id, n) WHERE t.id = ANY (ARRAY[b.id])"
        );
        assert_eq!(
            of_sqlite(text),
            "UPDATE t SET a = a + b.n FROM (SELECT c0 AS id, c1 AS n FROM ductwork_rows(?1)) AS b WHERE t.id = b.id"
        );
        let text = "{delete:t;b(id id)} WHERE {of:t.id;b(id id)} AND a = 1";
        assert_eq!(
            of_postgres(text),
            "DELETE FROM t WHERE t.id = ANY ($1::uuid[]) AND a = 1"
        );
        assert_eq!(
            of_sqlite(text),
            "DELETE FROM t WHERE t.id IN (SELECT c0 FROM ductwork_rows(?1)) AND a = 1"
        );
    }

    #[test]
    fn a_batch_that_is_declared_once_is_written_from_by_its_name() {
        let text = "UPDATE {into:ductwork_steps;held} SET output = held.output {from:held} WHERE ductwork_steps.id = held.step_id";
        let (sql, names) = render(Dialect::Sqlite.backend(), text);
        assert_eq!(
            sql,
            "UPDATE ductwork_steps SET output = held.output FROM batch_held(?1) AS held WHERE ductwork_steps.id = held.step_id"
        );
        assert_eq!(names, ["held"]);
    }
}
