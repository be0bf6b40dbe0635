//! Statements into whose text the keys and the values of a batch are written.
//!
//! Owns: the fragments `{among:…}` and `{chosen:…}`, as marks in the text of a statement, and the text that is sent. A
//! server that is given the keys writes the rows one by one, as it finds them. The rows that it writes through a join
//! with the batch, it keeps in a table of its own until the join has ended. Never: writes a value itself (`literal`).

use std::fmt::Write;

use uuid::Uuid;

use super::super::fragment::both;
use super::literal;
use crate::store::statement::{Arg, Args, Column, Rows, Statement, find};

/// The beginnings of a mark, and its end. A mark is a comment before a null, so that the text without values is SQL.
const AMONG: &str = "/*among ";
const CHOSEN: &str = "/*chosen ";
const END: &str = "*/NULL";

/// The variable of a parameter begins with this (`render::with_variables`).
const VARIABLE: &str = "@d_";

/// `{among:key;batch.keys}` or `{among:key;batch.keys;only}`: the key is one of the batch's, of the rows in which the
/// column `only` is not 0.
pub fn among(argument: &str) -> String {
    let (key, rest) = both(argument);
    format!("{key} IN ({AMONG}{rest}{END})")
}

/// `{chosen:key;batch.keys;texts}` or `{chosen:key;batch.keys;texts;only}`: the text of the row that has the key, of
/// the same rows.
pub fn chosen(argument: &str) -> String {
    format!("{CHOSEN}{argument}{END}")
}

/// True of a text with a mark.
pub fn is_marked(text: &str) -> bool {
    text.contains(AMONG) || text.contains(CHOSEN)
}

/// The text of a statement with literals in place of its marks and its variables. None of the strings in our statements
/// contains either.
pub fn filled(statement: &Statement, text: &str, args: Args<'_>) -> String {
    let mut filled = String::with_capacity(text.len() * 8);
    let mut rest = text;
    while let Some(at) = rest.find(['/', '@']) {
        filled.push_str(&rest[..at]);
        let from = &rest[at..];
        rest = if let Some(mark) = from.strip_prefix(AMONG) {
            let (mark, after) = mark.split_once(END).expect("a mark has an end");
            write_among(&mut filled, statement, mark, args);
            after
        } else if let Some(mark) = from.strip_prefix(CHOSEN) {
            let (mark, after) = mark.split_once(END).expect("a mark has an end");
            write_chosen(&mut filled, statement, mark, args);
            after
        } else if let Some(name) = from.strip_prefix(VARIABLE) {
            let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
            let (name, after) = name.split_at(name.find(is_end).unwrap_or(name.len()));
            literal::write(&mut filled, find(statement, args, name));
            after
        } else {
            filled.push_str(&from[..1]);
            &from[1..]
        };
    }
    filled.push_str(rest);
    filled
}

fn write_among(to: &mut String, statement: &Statement, mark: &str, args: Args<'_>) {
    let (place, only) = mark.split_once(';').unwrap_or((mark, ""));
    let mut separator = "";
    for (_, id) in keys(rows(statement, place, args), place, only) {
        to.push_str(separator);
        literal::write(to, &Arg::Id(Some(id)));
        separator = ",";
    }
    if separator.is_empty() {
        to.push_str("NULL");
    }
}

fn write_chosen(to: &mut String, statement: &Statement, mark: &str, args: Args<'_>) {
    let (key, rest) = both(mark);
    let (place, rest) = both(rest);
    let (texts, only) = rest.split_once(';').unwrap_or((rest, ""));
    let rows = rows(statement, place, args);
    let Some(Column::Texts(texts)) = column(rows, texts) else {
        unreachable!("{place} has no texts {texts:?}")
    };
    let mut chosen: Vec<_> = keys(rows, place, only)
        .map(|(at, id)| (id, texts[at]))
        .collect();
    chosen.sort_unstable();
    choose(to, key, &chosen);
}

/// The batch of `batch.keys`.
fn rows<'a>(statement: &Statement, place: &str, args: Args<'a>) -> &'a Rows<'a> {
    let (batch, _) = place.split_once('.').expect("a batch and its column");
    match find(statement, args, batch) {
        Arg::Rows(rows) => rows,
        _ => unreachable!("{batch} is a batch"),
    }
}

/// The keys of `batch.keys`, each with its row's position: of the rows in which the column `only` is not 0, or of all.
fn keys<'a>(rows: &'a Rows<'a>, place: &str, only: &str) -> impl Iterator<Item = (usize, Uuid)> {
    let (_, name) = place.split_once('.').expect("a batch and its column");
    let Some(Column::Ids(ids)) = column(rows, name) else {
        unreachable!("{place} has no keys")
    };
    let counts = match column(rows, only) {
        Some(Column::Ints(values)) => Some(values),
        None if only.is_empty() => None,
        _ => unreachable!("{place} has no counts {only:?}"),
    };
    let is_in = move |at: usize| counts.is_none_or(|counts| counts[at].is_some_and(|n| n != 0));
    let ids = ids.iter().enumerate();
    ids.filter_map(move |(at, id)| Some((at, (*id)?)).filter(|_| is_in(at)))
}

fn column<'a>(rows: &'a Rows<'a>, name: &str) -> Option<&'a Column<'a>> {
    let mut columns = rows.columns.iter();
    columns.find(|(known, _)| *known == name).map(|it| &it.1)
}

/// The value of the row with the key, of rows in the order of their keys: half of the rest is left after each
/// comparison.
fn choose(to: &mut String, key: &str, rows: &[(Uuid, Option<&str>)]) {
    let (low, high) = rows.split_at(rows.len() / 2);
    let (Some((_, value)), Some((first, other))) = (low.first(), high.first()) else {
        let only = high.first().and_then(|row| row.1);
        return literal::write(to, &Arg::Text(only));
    };
    if rows.iter().all(|row| row.1 == *value) {
        return literal::write(to, &Arg::Text(*other));
    }
    write!(to, "CASE WHEN {key} < ").expect("a string takes all");
    literal::write(to, &Arg::Id(Some(*first)));
    to.push_str(" THEN ");
    choose(to, key, low);
    to.push_str(" ELSE ");
    choose(to, key, high);
    to.push_str(" END");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::dialect::Dialect;

    fn id(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    #[test]
    fn the_keys_and_values_of_a_batch_become_text() {
        static STATEMENT: Statement = Statement::new(
            "TEST",
            "UPDATE t SET a = {chosen:t.id;held.id;text}, b = @other / :n, c = {chosen:c;held.id;text;ends} \
             WHERE {among:t.id;held.id;ends} AND {among:c;held.id}",
        );
        let rows = Rows::new()
            .ids("id", [id(3), id(1), id(2)])
            .optional_texts("text", [Some("c"), Some("'a'"), None])
            .ints("ends", [1, 0, 1]);
        let args = [("held", (&rows).into()), ("n", 7_usize.into())];
        let text = &STATEMENT.rendered(Dialect::Mysql).compound;
        assert!(is_marked(text));
        assert_eq!(
            text,
            "UPDATE t SET a = /*chosen t.id;held.id;text*/NULL, b = @other / @d_n, \
             c = /*chosen c;held.id;text;ends*/NULL WHERE t.id IN (/*among held.id;ends*/NULL) AND c IN (/*among held.id*/NULL)"
        );
        let short = |text: String| text.replace("x'000000000000000000000000000000", "x'..");
        assert_eq!(
            short(filled(&STATEMENT, text, &args)),
            "UPDATE t SET a = CASE WHEN t.id < x'..02' THEN _utf8mb4 x'276127' ELSE CASE WHEN t.id < x'..03' THEN NULL \
             ELSE _utf8mb4 x'63' END END, b = @other / 7, c = CASE WHEN c < x'..03' THEN NULL ELSE _utf8mb4 x'63' END WHERE t.id IN (x'..03',x'..02') AND c IN (x'..03',x'..01',x'..02')"
        );
    }

    #[test]
    fn equal_values_are_compared_with_nothing_and_an_empty_batch_has_no_key() {
        let mut to = String::new();
        choose(
            &mut to,
            "id",
            &[(id(1), Some("a")), (id(2), Some("a")), (id(3), Some("a"))],
        );
        assert_eq!(to, "_utf8mb4 x'61'");
        let mut to = String::new();
        choose(&mut to, "id", &[]);
        assert_eq!(to, "NULL");
    }
}
