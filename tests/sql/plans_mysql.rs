//! The plans of MariaDB and MySQL, which plan each statement anew: from statistics of tables that hold a history, a
//! queue of three pipelines, and little else.

use std::collections::BTreeSet;

use ductwork::definition::Pipeline;
use ductwork::store::bench::data;
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Dialect};

use crate::support::{self, Db};
use crate::{BATCHES, NOT_THE_ENGINE, may_scan, of};

/// Statements that read a whole table here and not elsewhere, and why that is no harm.
const HERE: &[(&str, &str)] = &[
    ("BEATABLE", "a row per process"),
    ("BEAT_HEARD", "the same"),
    ("FIND_TOKENS", "by key, in a table that is empty here"),
    ("PAGE_PROCESSES", "the same"),
    ("REGISTERED", "a row per process"),
    ("UNDER_LEASE", "a row per process"),
];

/// A text of a test, for a connection of ours.
fn text(sql: String) -> Statement {
    Statement::new("TEST_PLAN", Box::leak(sql.into_boxed_str()))
}

/// The names of the variables in a text.
fn variables(sql: &str) -> BTreeSet<&str> {
    let after = sql.split("@d_").skip(1);
    let ends = |rest: &str| rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '_');
    after
        .map(|rest| &rest[..ends(rest).unwrap_or(rest.len())])
        .collect()
}

/// A value such as the engine sends: of keys, texts and numbers by what they are called, and of a batch none.
fn value(name: &str, sql: &str) -> String {
    if sql.contains(&format!("JSON_TABLE(@d_{name},")) {
        return "'[]'".to_owned();
    }
    let is_token = name == "id" && sql.contains("ductwork_tokens");
    if KEYS.contains(&name) && !is_token {
        return "x'01900000000070008000000000000001'".to_owned();
    }
    match is_token || TEXTS.contains(&name) {
        true => "_utf8mb4'P' COLLATE utf8mb4_nopad_bin".to_owned(),
        false => "1000".to_owned(),
    }
}

/// Variables that are keys.
const KEYS: &[&str] = &[
    "after_id",
    "behind_id",
    "branch",
    "bulk",
    "dealt",
    "execution",
    "fan_out",
    "from",
    "id",
    "made",
    "newest",
    "nil",
    "process",
    "run",
    "seen",
    "step",
    "supervisor",
    "to",
    "until_id",
];

/// Variables that are texts.
const TEXTS: &[&str] = &[
    "before",
    "channel",
    "class",
    "definition",
    "digest",
    "digits",
    "endpoint",
    "grain",
    "holder",
    "key",
    "kind",
    "name",
    "node",
    "part",
    "pipeline",
    "result",
    "scope",
    "state",
    "status",
    "value",
    "verb",
    "word",
];

/// As many rows in tables that a chain leaves empty.
const FILL: &[&str] = &[
    "INSERT INTO ductwork_fan_outs (id, run_id, branch_id, node, via, width, created_at) SELECT id, run_id, id, 'A', 'divide', 1, 1 FROM ductwork_branches",
    "INSERT INTO ductwork_deadlines (branch_id, answer_by, unanswered) SELECT id, 9000000000000000, 'halt' FROM ductwork_branches",
    "INSERT INTO ductwork_deliveries SELECT id, 'e', id, 'completed', 'P', 'm', 'sent', 1, 5, 5, NULL, NULL, NULL FROM ductwork_runs",
];

/// Tables with 2,000 runs that have ended, and of three pipelines some that wait.
async fn filled(conn: &mut Conn) {
    let mut numbers = data::Numbers::now(conn).await.unwrap();
    for name in ["P", "Q", "R"] {
        let chain = Pipeline::named(name).start("A").chain("B").chain("C");
        let chain = chain.build().unwrap();
        let told = &|_| {};
        data::completed(conn, &chain, 700, &mut numbers, told)
            .await
            .unwrap();
        data::waiting(conn, &chain, 50, &mut numbers, told)
            .await
            .unwrap();
    }
    for fill in FILL {
        conn.execute(&text((*fill).to_owned()), &[]).await.unwrap();
    }
    let tables = "ductwork_fan_outs, ductwork_deadlines, ductwork_deliveries, ductwork_runs, ductwork_branches, ductwork_steps, ductwork_executions, ductwork_transitions,
                  ductwork_advancements, ductwork_availabilities";
    conn.fetch(&text(format!("ANALYZE TABLE {tables}")), &[])
        .await
        .unwrap();
    // A table with little in it is soonest read from one end to the other; what is asked here is whether there is
    // another way when there is much.
    for setting in ["max_seeks_for_key = 1", "join_cache_level = 0"] {
        let set = text(format!("SET SESSION {setting}"));
        conn.execute(&set, &[]).await.unwrap();
    }
}

/// The tables that a plan goes through from one end to the other.
async fn scans(conn: &mut Conn, sql: &str) -> Vec<String> {
    for name in variables(sql) {
        let set = format!("SET @d_{name} = {}", value(name, sql));
        conn.execute(&text(set), &[]).await.unwrap();
    }
    // A bound of rows is no variable to the server.
    let mut bounded = sql.to_owned();
    for name in variables(sql) {
        for word in ["LIMIT", "OFFSET"] {
            bounded = bounded.replace(&format!("{word} @d_{name}"), &format!("{word} 1000"));
        }
    }
    let plan = conn.fetch(&text(format!("EXPLAIN {bounded}")), &[]).await;
    let plan = plan.unwrap_or_else(|error| panic!("{error:?}: {sql}"));
    let mut found = Vec::new();
    for row in plan {
        let get = |name: &str| row.get::<Option<String>>(name).unwrap().unwrap_or_default();
        let (table, kind, key) = (get("table"), get("type"), get("key"));
        let extra = get("Extra");
        let batch = BATCHES.contains(&table.as_str())
            || table.starts_with('<')
            || extra.contains("Table function");
        // The table into which an INSERT writes is one of its plan, without anything said of it.
        let batch = batch || extra.is_empty() && key.is_empty() && sql.starts_with("INSERT");
        if ["ALL", "index"].contains(&kind.as_str()) && !batch {
            found.push(format!("{kind} of {table} by {key:?}, {}", get("Extra")));
        }
    }
    found
}

#[tokio::test]
async fn no_statement_reads_a_whole_table_on_mysql() {
    support::with(Db::mysql().await, |db| async move {
        let mut conn = db.conn().await;
        filled(&mut conn).await;
        let (mut asked, mut wrong) = (0, Vec::new());
        for statement in of(Dialect::Mysql).filter(|it| !may_scan(it.name)) {
            let people = NOT_THE_ENGINE
                .iter()
                .any(|(name, _)| *name == statement.name);
            // One that is several there is asked part by part.
            let sql = statement.with_variables().trim();
            let first = sql.split_whitespace().next().unwrap_or_default();
            let plain = ["SELECT", "WITH", "INSERT", "UPDATE", "DELETE"].contains(&first);
            if people || !plain || sql.contains(";\n") {
                continue;
            }
            asked += 1;
            let found = scans(&mut conn, sql).await;
            let is_listed = HERE.iter().any(|(name, _)| *name == statement.name);
            if is_listed && found.is_empty() {
                wrong.push(format!(
                    "{} is listed, and reads no whole table",
                    statement.name
                ));
            }
            let found = found.into_iter().filter(|_| !is_listed);
            wrong.extend(found.map(|scan| format!("{}: {scan}", statement.name)));
        }
        conn.close().await;
        assert!(asked > 200, "{asked}");
        assert!(wrong.is_empty(), "{wrong:#?}");
    })
    .await;
}

/// Tables with many rows of other runs, whose keys are their ids.
const GREAT: &[&str] = &[
    "ductwork_branches",
    "ductwork_executions",
    "ductwork_fan_outs",
    "ductwork_steps",
    "ductwork_transitions",
];

/// With stale statistics, or after one wide run, the planner believes that any run has many rows. Then it looks for
/// the first of them in the order of all ids, and so through the rows of all runs. Which plan it takes is seen on no small
/// table, so the text is checked.
#[test]
fn no_statement_on_mysql_seeks_the_rows_of_one_run_in_the_order_of_all_ids() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for statement in of(Dialect::Mysql) {
        let sql = statement.sql(Dialect::Mysql);
        let words: Vec<&str> = sql.split_whitespace().collect();
        for (at, order) in words.windows(2).enumerate() {
            let alias = words.get(at + 2).and_then(|it| it.strip_suffix(".id"));
            let bound = words.get(at + 3).filter(|it| **it != "DESC");
            let bound = bound.or_else(|| words.get(at + 4));
            let (["ORDER", "BY"], Some(alias), Some(&"LIMIT")) = (order, alias, bound) else {
                continue;
            };
            let of_alias = |it: &[&str]| ["FROM", "JOIN"].contains(&it[0]) && it[2] == alias;
            let Some(from) = words[..at].windows(3).rposition(of_alias) else {
                continue;
            };
            if GREAT.contains(&words[from + 1]) {
                seen += 1;
                let is_forced = words.get(from + 3) == Some(&"FORCE");
                wrong.extend((!is_forced).then_some(statement.name));
            }
        }
    }
    assert!(seen > 5, "{seen}");
    assert_eq!(wrong, [""; 0]);
}

/// Columns of an index that are null in most rows. The server counts all of these as one value, and so believes that any
/// value has many rows.
const MOSTLY_NULL: &[&str] = &["fan_out_id", "trigger_key"];

/// Where the value comes from another table, the planner has only its count of the rows of one value, and may read the
/// whole table instead. A second column of the index, or its order, leads there as well.
#[test]
fn a_table_that_is_joined_on_mysql_by_a_column_that_is_mostly_null_names_the_index() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for statement in of(Dialect::Mysql).filter(|it| !may_scan(it.name)) {
        let sql = statement.sql(Dialect::Mysql);
        let words: Vec<&str> = sql.split_whitespace().collect();
        for (at, equal) in words.windows(3).enumerate() {
            let Some((alias, column)) = equal[0].split_once('.') else {
                continue;
            };
            let is_joined = equal[1] == "=" && equal[2].contains('.');
            if !is_joined || !MOSTLY_NULL.contains(&column) {
                continue;
            }
            let of_alias = |it: &[&str]| ["FROM", "JOIN"].contains(&it[0]) && it[2] == alias;
            let Some(from) = words[..at].windows(3).rposition(of_alias) else {
                continue;
            };
            seen += 1;
            let is_forced = words.get(from + 3) == Some(&"FORCE");
            let is_ordered = sql.contains(&format!("ORDER BY {alias}.{column}"));
            let is_closer = sql.contains(&format!("AND {alias}.ordinal = "));
            wrong.extend((!is_forced && !is_ordered && !is_closer).then_some(statement.name));
        }
    }
    assert!(seen > 5, "{seen}");
    assert_eq!(wrong, [""; 0]);
}
