//! The product's statements, each without one of its conditions.
//!
//! Owns: finding the conditions in the statements' own text, so that none is forgotten. Never: part of
//! the product: a mutant is made from a statement's text on its way to the explorer's database.

use std::fmt;

use crate::store::Dialect;
use crate::store::catalogue::catalogue;

/// A condition that a statement lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    pub statement: &'static str,
    /// The number of the condition in its statement: 1, 2, ….
    number: usize,
    /// The condition as it is given to SQLite, with single spaces.
    pub condition: String,
    at: (usize, usize),
}

/// `STATEMENT.1`.
impl fmt::Display for Mutant {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}.{}", self.statement, self.number)
    }
}

/// A statement's text without those of these conditions that belong to it.
pub fn without(mutants: &[Mutant], statement: &str, sql: &str) -> Option<String> {
    let mut ours: Vec<_> = mutants
        .iter()
        .filter(|mutant| mutant.statement == statement)
        .map(|mutant| mutant.at)
        .collect();
    // From the end, so that no position moves before its turn.
    ours.sort();
    let mut text = sql.to_owned();
    for (from, until) in ours.iter().rev() {
        text.replace_range(from..until, "TRUE");
    }
    (!ours.is_empty()).then_some(text)
}

/// Statements that only read, but whose results decide what is written.
const READS: &[&str] = &[
    "READY",
    "LOAD_FENCED",
    "FAILED_ADVANCES",
    "LOAD_CLAIMED",
    "HELD",
    "HELD_BRANCHES",
    "LOCK_CLAIMED",
    "LOCK_ADVANCEMENTS",
    "LOCK_BRANCHES",
    "LEASED_EXECUTIONS",
    "LEASED_ADVANCEMENTS",
    "CANCEL_HOLD_EXECUTIONS",
    "HOLD_DAMPENED",
    "PRUNABLE_PLACES",
    "OLD_DEPARTED",
    "OLD_ACTIONS",
    "OLD_BULKS",
    "OLD_REPORTS",
    "OLD_TOKENS",
    "CLOSED_AS",
    "ENDED_RUNS",
    "STILL_PRUNABLE",
    "ASKED_STEPS",
    "PASSED_DEADLINES",
    "WAITING_BRANCHES",
    "CANCEL_OPEN_EXECUTIONS",
    "CANCEL_OPEN_BRANCHES",
    "HALTED_BRANCHES",
    "LAST_AT_BARRIERS",
    "ORPHANS",
];

/// Every condition of every statement that writes, and of those whose results decide what may be written.
pub fn mutants() -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for statement in catalogue() {
        // Excluded: statements of benchmarks, of a run's context, of a clock that was set back, of
        // unreadable rows, of counts; and an index's own condition, which names the index.
        let other = [
            "FILL_",
            "SET_TUPLE",
            "INSERT_KEYED_RUNS",
            "DUE_AGAIN",
            "READY_AGAIN",
            "TAKE_READABLE",
            "WRITE_METRICS",
        ];
        if !statement.is_for(Dialect::Sqlite)
            || other.iter().any(|name| statement.name.starts_with(name))
        {
            continue;
        }
        let sql = statement.sql(Dialect::Sqlite);
        if !writes(sql) && !READS.contains(&statement.name) {
            continue;
        }
        let mut number = 0;
        for (from, until) in conditions(sql) {
            let words: Vec<&str> = sql[from..until].split_whitespace().collect();
            let condition = words.join(" ");
            if condition != "true" && !picks(&condition) {
                number += 1;
                mutants.push(Mutant {
                    statement: statement.name,
                    number,
                    condition,
                    at: (from, until),
                });
            }
        }
    }
    mutants
}

/// True for a statement that changes rows.
pub fn writes(sql: &str) -> bool {
    let words = ["UPDATE", "DELETE", "INSERT"];
    sql.split_whitespace().any(|word| words.contains(&word))
}

/// The mutant with this name.
pub fn named(mutants: &[Mutant], name: &str) -> Mutant {
    let found = mutants.iter().find(|mutant| mutant.to_string() == name);
    found
        .unwrap_or_else(|| panic!("there is no condition {name}"))
        .clone()
}

/// True for a condition that only selects the rows: a key that is given or joined. Without it, the
/// statement would not be careless but a different one.
fn picks(condition: &str) -> bool {
    let word = |text: &str| {
        text.chars()
            .all(|char| char.is_ascii_alphanumeric() || "._?".contains(char))
    };
    let key = |text: &str| {
        let column = text.rsplit('.').next().unwrap_or_default();
        let owner = ["process_id", "step_id", "revived_from"].contains(&column);
        word(text) && !owner && (column == "id" || column.ends_with("_id"))
    };
    let listed = condition.contains(" IN (SELECT ") || condition.contains(" IN ( SELECT ");
    match condition.split_once(" = ") {
        _ if listed => true,
        Some((left, right)) => key(left) && word(right),
        None => false,
    }
}

/// A condition that is still being read.
#[derive(Clone, Copy)]
struct Open {
    from: usize,
    /// It is the first within parentheses: not a condition of its own unless an AND follows.
    first: bool,
}

/// The positions of a statement's conditions: the texts between AND after WHERE and ON, at every depth.
fn conditions(sql: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    // For each open parenthesis: the condition that is being read within it.
    let mut open: Vec<Option<Open>> = vec![None];
    let mut cases = 0;
    let bytes = sql.as_bytes();
    let mut at = 0;
    let mut end = |open: &mut Option<Open>, until: usize, split: bool| {
        if let Some(Open { from, first }) = open.take()
            && (split || !first)
        {
            let text = &sql[from..until];
            let from = from + text.len() - text.trim_start().len();
            found.push((from, from + text.trim().len()));
        }
    };
    while at < bytes.len() {
        let here = open.last_mut().expect("parentheses are balanced");
        match bytes[at] {
            b'\'' => {
                at += 1 + sql[at + 1..].find('\'').expect("a text is closed");
            }
            b'(' => {
                let call = at > 0 && bytes[at - 1].is_ascii_alphanumeric();
                let within = here.is_some() && !call;
                open.push(within.then_some(Open {
                    from: at + 1,
                    first: true,
                }));
            }
            b')' => {
                end(here, at, false);
                open.pop();
            }
            byte if byte.is_ascii_alphabetic() => {
                let other = |char: char| !char.is_ascii_alphanumeric() && char != '_';
                let until = sql[at..].find(other).map_or(bytes.len(), |word| at + word);
                match &sql[at..until] {
                    "CASE" => cases += 1,
                    "END" if cases > 0 => cases -= 1,
                    _ if cases > 0 => {}
                    "AND" if here.is_some() => {
                        end(here, at, true);
                        *here = Some(Open {
                            from: until,
                            first: false,
                        });
                    }
                    "ON" if sql[until..].trim_start().starts_with("CONFLICT") => {
                        end(here, at, false);
                    }
                    "WHERE" | "ON" => {
                        end(here, at, false);
                        *here = Some(Open {
                            from: until,
                            first: false,
                        });
                    }
                    "SELECT" | "RETURNING" | "ORDER" | "GROUP" | "LIMIT" | "JOIN" | "LEFT"
                    | "UNION" | "DO" => end(here, at, false),
                    _ => {}
                }
                at = until;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    end(open.last_mut().expect("one is left"), sql.len(), false);
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A statement of PostgreSQL, and its parts.
    type Parts = (&'static str, &'static [&'static str]);

    /// The files of the hot operations for each database, and the statements of SQLite whose work each
    /// statement of PostgreSQL does.
    const FILES: [(&str, &str, &[Parts]); 3] = [
        (
            include_str!("../store/backend/sqlite/claim.sql"),
            include_str!("../store/backend/postgres/claim.sql"),
            &[(
                "CLAIM",
                &["TOUCH_PROCESS", "TAKE_AVAILABILITIES", "STAMP_EXECUTIONS"],
            )],
        ),
        (
            include_str!("../store/backend/sqlite/commit.sql"),
            include_str!("../store/backend/postgres/commit.sql"),
            &[
                (
                    "COMMIT",
                    &[
                        "TOUCH_PROCESS",
                        "CLOSE_EXECUTIONS",
                        "LAST_AT_BARRIERS",
                        "ARRIVE_WITH_RESULT",
                        "END_STEPS",
                        "MOVE_WITH_RESULT",
                        "INSERT_NEXT_STEPS",
                        "INSERT_ATTEMPTS",
                        "QUEUE_ATTEMPTS",
                        "RECORD_TRANSITIONS",
                        "RECORD_ADVANCEMENTS",
                        "END_RUNS",
                        "ALL_MOVED",
                    ],
                ),
                (
                    "COMMIT_SIMPLE",
                    &[
                        "TOUCH_PROCESS",
                        "CLOSE_EXECUTIONS",
                        "END_STEPS",
                        "MOVE_WITH_RESULT",
                        "INSERT_NEXT_STEPS",
                        "INSERT_ATTEMPTS",
                        "RECORD_TRANSITIONS",
                        "RECORD_ADVANCEMENTS",
                        "END_RUNS",
                        "ALL_MOVED",
                    ],
                ),
            ],
        ),
        (
            include_str!("../store/backend/sqlite/trigger.sql"),
            include_str!("../store/backend/postgres/trigger.sql"),
            &[
                (
                    "TRIGGER",
                    &[
                        "INSERT_RUNS",
                        "INSERT_ROOTS",
                        "INSERT_STARTS",
                        "INSERT_FIRST_EXECUTIONS",
                        "INSERT_FIRST_AVAILABILITIES",
                    ],
                ),
                (
                    "TRIGGER_KEYED",
                    &[
                        "INSERT_KEYED_RUNS",
                        "INSERT_ROOTS",
                        "INSERT_STARTS",
                        "INSERT_FIRST_EXECUTIONS",
                        "INSERT_FIRST_AVAILABILITIES",
                    ],
                ),
            ],
        ),
    ];

    /// The texts between marked lines: each with the name on its mark's line, and up to the next mark.
    fn marked<'a>(text: &'a str, mark: &str) -> Vec<(&'a str, &'a str)> {
        let parts = text.split(mark).skip(1);
        parts
            .map(|part| part.split_once('\n').expect("a name ends its line"))
            .collect()
    }

    /// The text without comments, with single spaces.
    fn plain(sql: &str) -> String {
        let lines = sql
            .lines()
            .filter(|line| !line.trim_start().starts_with("--"));
        let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        words.join(" ")
    }

    /// The explorer shows on SQLite that each condition is needed. So PostgreSQL's text has each of them,
    /// in the part of that name, or gives the reason why not: `-- absent: PART.N: why`.
    #[test]
    fn each_condition_of_sqlites_statements_stands_in_postgres_part_of_that_name() {
        let known: Vec<&str> = catalogue().iter().map(|statement| statement.name).collect();
        let mut found = Vec::new();
        let mut compared = 0;
        for (sqlite, postgres, statements) in FILES {
            let mut texts: BTreeMap<&str, String> = marked(sqlite, "-- name: ")
                .into_iter()
                .map(|(name, text)| (name, plain(text)))
                .collect();
            for name in texts.keys().filter(|name| !known.contains(name)) {
                found.push(format!("{name} is no statement"));
            }
            let touch = crate::store::claim::TOUCH_PROCESS.text();
            texts.insert("TOUCH_PROCESS", plain(touch));
            let sections = marked(postgres, "-- name: ");
            let names: Vec<&str> = sections.iter().map(|(name, _)| *name).collect();
            let meant: Vec<&str> = statements.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, meant);
            for ((section, text), (_, meant)) in sections.into_iter().zip(statements) {
                let parts = marked(text, "-- part: ");
                let names: Vec<&str> = parts.iter().map(|(name, _)| *name).collect();
                assert_eq!(names, *meant, "{section}");
                for (name, part) in parts {
                    let (text, part) = (&texts[name], plain(part));
                    let conditions = conditions(text).into_iter();
                    let conditions = conditions.map(|(from, until)| &text[from..until]);
                    let conditions = conditions.filter(|it| *it != "true" && !picks(it));
                    for (index, condition) in conditions.enumerate() {
                        let number = index + 1;
                        compared += 1;
                        let absent = postgres.contains(&format!("-- absent: {name}.{number}: "));
                        if absent == part.contains(condition) {
                            found.push(format!("{section}: {name}.{number}: {condition}"));
                        }
                    }
                }
            }
        }
        assert!(compared > 25, "only {compared}");
        assert!(found.is_empty(), "{found:#?}");
    }

    /// The statements with which MySQL commits a whole batch at once (`COMMIT_WHOLE`), and those of SQLite whose work they
    /// do.
    const AT_ONCE: [(&str, &str); 5] = [
        ("TOUCH_PROCESS", "TOUCH_UNPAUSED"),
        ("CLOSE_EXECUTIONS", "CLOSE_ALL"),
        ("CLOSE_EXECUTIONS", "CLOSE_BARE"),
        ("END_STEPS", "END_BARE_STEPS"),
        ("END_RUNS", "END_BARE_RUNS"),
    ];

    /// The text without the table before each column, without locks, and without conditions that only narrow a search.
    fn bare(sql: &str) -> String {
        let mut rest = plain(sql)
            .replace(" {skip_locked}", "")
            .replace(" {lock}", "");
        while let Some(from) = rest.find("{narrow:") {
            let until = rest[from..].find('}').expect("braces are balanced");
            rest.replace_range(from..=from + until, "");
        }
        let mut text = String::new();
        let mut word = String::new();
        for char in rest.chars() {
            match char {
                '.' if word.starts_with(|first: char| first.is_ascii_lowercase()) => word.clear(),
                _ if char.is_ascii_alphanumeric() || char == '_' => word.push(char),
                _ => {
                    text.push_str(&std::mem::take(&mut word));
                    text.push(char);
                }
            }
        }
        text + &word
    }

    /// True for a condition that names rows by a key, in the form that each database has for that.
    fn names_rows(condition: &str) -> bool {
        let keys = ["{key:", "{of:", "{any:", "{among:", "{within:"];
        keys.iter().any(|key| condition.starts_with(key))
    }

    /// The same for MySQL: each condition stands in one of the statements that replace the one of SQLite there, or one of
    /// them gives the reason why not (`-- absent: NAME.N: why`).
    #[test]
    fn each_condition_of_sqlites_statements_stands_in_those_that_replace_it_on_mysql() {
        let all = catalogue();
        let named = |name: &str| *all.iter().find(|it| it.name == name).expect("it is there");
        let replaced = all
            .iter()
            .filter(|it| it.has_form_on_mysql() && it.is_for(Dialect::Sqlite));
        let mut pairs: Vec<_> = replaced.map(|it| (*it, it.parts(Dialect::Mysql))).collect();
        pairs.extend(AT_ONCE.map(|(name, at_once)| (named(name), vec![named(at_once)])));
        let mut found = Vec::new();
        let mut compared = 0;
        for (statement, parts) in pairs {
            if !writes(statement.text()) && !READS.contains(&statement.name) {
                continue;
            }
            let bared: Vec<String> = parts.iter().map(|part| bare(part.text())).collect();
            let text = bare(statement.text());
            let conditions = conditions(&text).into_iter();
            let conditions = conditions.map(|(from, until)| &text[from..until]);
            let conditions = conditions.filter(|it| *it != "true" && !picks(it) && !names_rows(it));
            for (index, condition) in conditions.enumerate() {
                let name = format!("{}.{}", statement.name, index + 1);
                compared += 1;
                let absence = format!("-- absent: {name}: ");
                let absent = parts.iter().any(|part| part.text().contains(&absence));
                if absent == bared.iter().any(|part| part.contains(condition)) {
                    let parts: Vec<&str> = parts.iter().map(|part| part.name).collect();
                    found.push(format!("{parts:?}: {name}: {condition}"));
                }
            }
        }
        assert!(compared > 25, "only {compared}");
        assert!(found.is_empty(), "{found:#?}");
    }
}
