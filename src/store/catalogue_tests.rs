//! The texts of the statements that all databases share: they contain nothing that one of the databases
//! would refuse, or interpret differently.
//!
//! Owns: the list of the exceptions so far, and their reasons. Never: a database.

use crate::model::Via;

use super::super::dialect::Dialect;
use super::super::statement::Statement;
use super::catalogue;

/// Statements that are sent to all databases.
fn shared() -> impl Iterator<Item = &'static Statement> {
    let all = catalogue().into_iter();
    let all = all.filter(|statement| !statement.has_form_on_mysql());
    all.filter(|statement| Dialect::ALL.iter().all(|it| statement.is_for(*it)))
}

/// An assignment: the column, and the text of its value.
type Assignment<'a> = (&'a str, &'a str);

/// The place of a keyword outside of parentheses, braces and quotes, at or after `from`.
fn find(text: &str, from: usize, found: impl Fn(&str) -> bool) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, char) in text.char_indices().skip_while(|(at, _)| *at < from) {
        match (quote, char) {
            (Some(open), _) if open == char => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(char),
            (None, '(' | '{') if depth == 0 && found(&text[at..]) => return Some(at),
            (None, '(' | '{') => depth += 1,
            (None, ')' | '}') if depth == 0 => return Some(at),
            (None, ')' | '}') => depth -= 1,
            (None, _) if depth == 0 && found(&text[at..]) => return Some(at),
            (None, _) => {}
        }
    }
    None
}

/// The assignments of every SET, and of every `{replace:…}`.
fn assignments(text: &str) -> Vec<Vec<Assignment<'_>>> {
    let begins = |mark: &str| -> Vec<usize> {
        let found = text.match_indices(mark);
        found.map(|(at, mark)| at + mark.len()).collect()
    };
    let replaces = begins("{replace:").into_iter();
    let replaces = replaces.filter_map(|at| Some(at + text[at..].find('}')? + 1));
    let lists = begins(" SET ").into_iter().chain(replaces).map(|from| {
        let ends = |rest: &str| {
            [
                " WHERE ",
                "\n         WHERE ",
                "{from:",
                "FROM ",
                "RETURNING ",
            ]
            .iter()
            .any(|word| rest.starts_with(word))
        };
        let until = find(text, from, ends).unwrap_or(text.len());
        let (mut list, mut rest) = (Vec::new(), &text[from..until]);
        while !rest.trim().is_empty() {
            let end = find(rest, 0, |rest| rest.starts_with(',')).unwrap_or(rest.len());
            let (column, value) = rest[..end].split_once('=').expect("an assignment");
            list.push((column.trim(), value.trim()));
            rest = rest.get(end + 1..).unwrap_or_default();
        }
        list
    });
    lists.collect()
}

/// The names in a text, each with the part before its dot; without parameters and the names of
/// fragments.
fn names(text: &str) -> Vec<(Option<&str>, &str)> {
    let is_name = |char: char| char.is_ascii_alphanumeric() || "_.:".contains(char);
    let texts = text.split('\'').step_by(2);
    let words = texts.flat_map(|text| text.split(|char| !is_name(char)));
    let words = words.filter(|word| word.starts_with(|char: char| char.is_ascii_lowercase()));
    let words = words.filter(|word| !word.contains(':'));
    words
        .map(|word| match word.split_once('.') {
            Some((table, column)) => (Some(table), column),
            None => (None, word),
        })
        .collect()
}

/// Some databases assign from left to right, and later assignments read the new value.
#[test]
fn no_assignment_reads_a_column_that_was_assigned_before_it() {
    let (mut wrong, mut looked) = (Vec::new(), 0);
    for statement in shared() {
        for list in assignments(statement.text()) {
            looked += 1;
            for (index, (column, value)) in list.iter().enumerate() {
                let before: Vec<&str> = list[..index].iter().map(|it| it.0).collect();
                let reads = names(value).into_iter().find(|(table, name)| {
                    let own = table.is_none_or(|table| table.starts_with("ductwork_"));
                    own && before.contains(name)
                });
                if let Some((_, read)) = reads {
                    wrong.push(format!("{}: {column} reads {read}", statement.name));
                }
            }
        }
    }
    assert!(looked > 40, "only {looked}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A cluster sends the rows that a statement has changed to its other nodes: a row that is written to hold
/// off others has to change.
#[test]
fn no_column_is_assigned_to_itself() {
    let mut wrong = Vec::new();
    for statement in shared() {
        for (column, value) in assignments(statement.text()).concat() {
            if value.rsplit('.').next() == Some(column) && !value.starts_with("b.") {
                wrong.push(format!("{}: {column} = {value}", statement.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The table, the alias and the columns of a batch that rows are written from.
fn into(text: &str) -> Option<(&str, &str, Vec<&str>)> {
    let (_, rest) = text.split_once("{into:")?;
    let (argument, _) = rest.split_once('}')?;
    let (table, batch) = argument.split_once(';')?;
    let batch = batch.split(';').next()?;
    let (alias, columns) = batch.split_once('(').unwrap_or((batch, ""));
    let columns = columns.trim_end_matches(')').split(',');
    let columns = columns.filter_map(|column| column.trim().split(' ').next());
    Some((table, alias, columns.collect()))
}

/// Where the batch is a table of the UPDATE, a name in both is ambiguous.
#[test]
fn a_batch_shares_no_name_with_what_is_written_from_it() {
    let (mut wrong, mut looked) = (Vec::new(), 0);
    for statement in shared() {
        let text = statement.text();
        let Some((table, alias, columns)) = into(text) else {
            continue;
        };
        looked += 1;
        let batch = text
            .split_once("{into:")
            .and_then(|it| it.1.split_once(';'));
        let batch = batch.and_then(|it| it.1.split(['}', ';']).next());
        let batch = batch.expect("a batch");
        let looked_up = text.contains("{of:") && text.matches(&format!(";{batch}")).count() == 2;
        if looked_up == text.contains(&format!("{{from:{batch}}}")) {
            wrong.push(format!("{}: its WHERE has another batch", statement.name));
        }
        let mut bare = text
            .split("RETURNING")
            .next()
            .unwrap_or_default()
            .to_owned();
        while let Some(from) = bare.find(batch) {
            let from = bare[..from].rfind('{').expect("a fragment");
            let until = from + bare[from..].find('}').expect("it is closed");
            let key = bare[from..until]
                .strip_prefix("{of:")
                .map(|of| of.split(';').next());
            let key = key.flatten().unwrap_or_default().to_owned();
            bare.replace_range(from..=until, &key);
        }
        for (owner, name) in names(&bare) {
            let is_column = owner.is_none() && columns.contains(&name);
            let is_none = owner == Some(alias) && !columns.contains(&name);
            if is_column || is_none {
                wrong.push(format!("{}: {name} of {table} or {alias}", statement.name));
            }
        }
    }
    assert!(looked > 25, "only {looked}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// On MySQL, the planner relies on row counts that are some seconds old: it would read, and lock, all rows of a table
/// that was small then, and wait for those that somebody has locked.
#[test]
fn on_mysql_a_batch_that_locks_or_writes_rows_names_the_index_by_which_they_are_found() {
    let (mut wrong, mut looked) = (Vec::new(), 0);
    for statement in shared() {
        if !statement.is_for(Dialect::Mysql) || statement.name.starts_with("FILL_") {
            continue;
        }
        let sql = statement.sql(Dialect::Mysql);
        let locks = sql.contains("FOR UPDATE") || sql.contains("LOCK IN SHARE MODE");
        let begins = sql.trim_start();
        if !locks && !begins.starts_with("UPDATE") && !begins.starts_with("DELETE") {
            continue;
        }
        for joined in sql.split("STRAIGHT_JOIN ductwork_").skip(1) {
            looked += 1;
            let mut words = joined.split_whitespace().skip(1);
            if !words.by_ref().take(2).any(|word| word == "FORCE") {
                wrong.push(format!(
                    "{}: STRAIGHT_JOIN ductwork_{joined}",
                    statement.name
                ));
            }
        }
    }
    assert!(looked > 50, "only {looked}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Statements with a part that a third database may not accept, and the reason why it does so here.
const NOT_YET: &[(&str, &str)] = &[(
    "SET_TUPLE_AS_STEP",
    "locks in a part of an INSERT, which MySQL and MariaDB take as they take the rest of it",
)];

/// The first part of a text that not all databases accept.
fn foreign(text: &str) -> Option<&'static str> {
    const WORDS: &[&str] = &[
        "RETURNING",
        "ON CONFLICT",
        "FILTER (",
        "AS MATERIALIZED",
        "AS bigint",
        "AS text",
        "DISTINCT FROM",
        "excluded.",
        "::",
        " ILIKE ",
        "NULLS ",
        "LATERAL",
        "FULL JOIN",
        " key,",
        " key)",
        " key =",
        ".key ",
        ".key,",
        ".key)",
        "IS TRUE",
    ];
    if let Some(word) = WORDS.iter().find(|word| text.contains(**word)) {
        return Some(word);
    }
    let begins = text.trim_start().split(' ').next().unwrap_or_default();
    let written = ["UPDATE ", "{delete:", "DELETE FROM "]
        .iter()
        .find_map(|word| {
            let (_, rest) = text.split_once(word)?;
            let rest = rest.strip_prefix("{into:").unwrap_or(rest);
            rest.split([' ', ';', '\n']).next()
        });
    let reads = |table: &str| {
        ["FROM ", "JOIN "].iter().any(|word| {
            let read = format!("{word}{table} ");
            let own = format!("DELETE {read}");
            text.matches(read.as_str()).count() > text.matches(own.as_str()).count()
        })
    };
    let locks = [
        "{lock}",
        "{share}",
        "{skip_locked}",
        "{skip_waiting}",
        "{skip_shared}",
    ]
    .iter()
    .any(|lock| text.contains(lock));
    match (begins, written) {
        ("WITH", _) if text.contains("INSERT") || text.contains("DELETE") => Some("WITH … a write"),
        ("UPDATE" | "DELETE" | "{delete:", Some(table)) if reads(table) => Some("its own table"),
        ("UPDATE" | "DELETE", _)
            if text.contains("{any:")
                || text.contains("{within:")
                || text.contains("IN (SELECT") =>
        {
            Some("a write of what a SELECT or a batch names, without `{into:…}` or `{delete:…}`")
        }
        ("UPDATE", _) if text.contains("FROM {rows:") => Some("UPDATE … FROM"),
        ("INSERT", _) if text.contains("WITH ") && locks => Some("a lock in a part"),
        _ => None,
    }
}

#[test]
fn what_a_third_database_lacks_is_in_no_shared_statement_but_those_that_are_listed() {
    let mut wrong = Vec::new();
    for statement in shared() {
        let found = foreign(statement.text());
        let listed = NOT_YET.iter().any(|(name, _)| *name == statement.name);
        if found.is_some() != listed {
            wrong.push(format!("{}: {found:?}", statement.name));
        }
    }
    let known = |name: &str| shared().any(|statement| statement.name == name);
    let gone = NOT_YET.iter().filter(|(name, _)| !known(name));
    wrong.extend(gone.map(|(name, _)| format!("{name} is not shared")));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The tests above find the mistakes that they look for.
#[test]
fn what_is_wrong_with_a_statement_is_found() {
    let list =
        assignments("UPDATE t SET a = a + 1, b = CASE WHEN a = 1 THEN c END\n         WHERE a = 1");
    assert_eq!(list.len(), 1);
    assert_eq!(list[0][0], ("a", "a + 1"));
    assert_eq!(list[0][1].0, "b");
    let list = assignments("INSERT … {replace:a, b} c = t.c + {new:c}, d = {new:d}");
    assert_eq!(list, [[("c", "t.c + {new:c}"), ("d", "{new:d}")]]);
    assert_eq!(
        names("x.a = 'b' AND c < :d"),
        [(Some("x"), "a"), (None, "c")]
    );
    for text in [
        "UPDATE t SET a = 1 RETURNING b",
        "UPDATE t SET a = (SELECT b FROM t WHERE c = 1)",
        "UPDATE t SET a = 1 FROM {rows:b(id id)} WHERE t.id = b.id",
        "UPDATE t SET a = 1 WHERE {any:t.id;b(id id)}",
        "DELETE FROM t WHERE id IN (SELECT id FROM u)",
        "WITH x AS (SELECT 1) DELETE FROM t",
    ] {
        assert!(foreign(text).is_some(), "{text}");
    }
    assert_eq!(
        foreign("UPDATE {into:t;b(id id)} SET a = 1 WHERE {of:t.id;b(id id)} AND a = 2"),
        None
    );
}

/// The kinds of hooks in a list such as `('start', 'on_halt')`, by their words.
fn hooks_in(list: &str) -> Vec<&str> {
    let words = list.split(',').map(|word| word.trim().trim_matches('\''));
    let is_hook = |word: &&str| word.parse().is_ok_and(Via::is_hook);
    let mut hooks: Vec<&str> = words.filter(is_hook).collect();
    hooks.sort_unstable();
    hooks
}

/// A list that leaves out a kind of hook takes its steps for those of the flow.
#[test]
fn each_list_of_hooks_names_all_of_them_or_those_of_a_runs_end() {
    let named = |is: fn(Via) -> bool| {
        let named = Via::ALL.iter().copied().filter(|via| is(*via));
        let mut named: Vec<&str> = named.map(Via::as_str).collect();
        named.sort_unstable();
        named
    };
    let all = named(Via::is_hook);
    let of_end = named(|via| via.is_hook() && via != Via::OnWait);
    let (mut wrong, mut looked) = (Vec::new(), 0);
    for statement in shared() {
        for part in statement.text().split("via NOT IN (").skip(1) {
            let found = hooks_in(part.split(')').next().unwrap_or_default());
            looked += 1;
            if found != all {
                wrong.push(format!("{}: NOT IN {found:?}", statement.name));
            }
        }
        for part in statement.text().split("via IN (").skip(1) {
            let found = hooks_in(part.split(')').next().unwrap_or_default());
            looked += usize::from(!found.is_empty());
            if !found.is_empty() && found != all && found != of_end {
                wrong.push(format!("{}: IN {found:?}", statement.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(looked > 10, "{looked}");
}
