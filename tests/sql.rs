//! Every statement in the form that each database gets: read by people in `tests/sql`, and checked
//! by the databases themselves. `DUCTWORK_BLESS=1` writes the files anew.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by it, outside of the functions that the linter takes for tests too"
)]

mod support;

#[path = "sql/plans_mysql.rs"]
mod plans_mysql;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ductwork::definition::Pipeline;
use ductwork::engine::actor;
use ductwork::store::Dialect;
use ductwork::store::audit::settings;
use ductwork::store::bench::data;
use ductwork::store::catalogue::catalogue;
use ductwork::store::process;
use ductwork::store::statement::Statement;
use sqlx::{Connection, Row};
use support::Db;

fn golden(dialect: Dialect) -> PathBuf {
    let directory = match dialect {
        Dialect::Postgres => "postgres",
        Dialect::Sqlite => "sqlite",
        Dialect::Mysql => "mysql",
    };
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/sql")
        .join(directory)
}

/// The statements that are sent to this database.
fn of(dialect: Dialect) -> impl Iterator<Item = &'static Statement> {
    let all = catalogue().into_iter();
    all.filter(move |statement| statement.is_for(dialect))
}

/// A statement without the indentation of its module's source.
fn tidy(sql: &str) -> String {
    let lines: Vec<&str> = sql.lines().filter(|line| !line.trim().is_empty()).collect();
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let shallowest = lines.iter().map(indent).min().unwrap_or_default();
    let lines: Vec<&str> = lines.iter().map(|line| &line[shallowest..]).collect();
    lines.join("\n") + "\n"
}

#[test]
fn names_of_statements_are_unique() {
    let mut names = BTreeSet::new();
    for statement in catalogue() {
        assert!(names.insert(statement.name), "{} twice", statement.name);
    }
    assert!(names.len() > 50);
}

#[test]
fn every_statement_is_what_was_read_last() {
    for dialect in Dialect::ALL {
        let directory = golden(dialect);
        let bless = std::env::var_os("DUCTWORK_BLESS").is_some();
        if bless {
            let _ = std::fs::remove_dir_all(&directory);
            std::fs::create_dir_all(&directory).unwrap();
        }
        let mut known: BTreeSet<String> = BTreeSet::new();
        for statement in of(dialect) {
            let name = format!("{}.sql", statement.name.to_lowercase());
            let sql = tidy(statement.sql(dialect));
            let path = directory.join(&name);
            if bless {
                std::fs::write(&path, &sql).unwrap();
            }
            let read = std::fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(sql, read, "{}: run with DUCTWORK_BLESS=1", path.display());
            known.insert(name);
        }
        for file in std::fs::read_dir(&directory).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            assert!(known.contains(&name), "{name} is no statement any more");
        }
    }
}

on_every_database! {
    async fn every_statement_is_understood(db: Db) {
        let mut conn = db.conn().await;
        for statement in of(conn.dialect()) {
            if let Err(error) = conn.check(statement).await {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                panic!("{}: {error}: {source:?}", statement.name);
            }
        }
    }
}

/// Statements that read a whole table, and the reason why that does no harm.
const SCANS: &[(&str, &str)] = &[
    (
        "ANY_WORK",
        "stops at the first row; asked once, by a process that ends when idle",
    ),
    ("ANY_BEREFT", "a row per process"),
    ("APPLIED", "a row per migration"),
    ("BEREFT", "a row per process"),
    (
        "CANCEL_UNFINISHED",
        "a row per cancellation that has begun and not ended",
    ),
    ("DEPARTED", "stops at its limit"),
    ("END_OPENED", "a row per visitor"),
    ("OLD_ACTIONS", "stops at its limit"),
    (
        "KNOWN_PIPELINES",
        "a row per version of a pipeline and per process, without what is in it",
    ),
    (
        "LATEST_DEFINITIONS",
        "a row per version of a pipeline, without what is in it",
    ),
    ("MARK_PROCESSES", "a row per process"),
    ("METRICS", "a row per process"),
    (
        "MAY_BE_STUCK",
        "stops at the first row of the queue; a row per process",
    ),
    ("MOVING", "a row per process"),
    ("PAGE_HELD", "a row per process"),
    (
        "PAGE_PIPELINES",
        "a row per version of a pipeline, without what is in it",
    ),
    (
        "PAGE_VERSIONS",
        "a row per version of a pipeline, without what is in it",
    ),
    ("PAUSES", "a row per pipeline that is paused"),
    ("PIPELINES_OF_STATUS", "the least of an index"),
    ("PROCESSES", "a row per process"),
    ("STRANDED", "a row per process and pipeline of the queue"),
    ("STUCK_PROCESSES", "a row per process"),
    ("STUCK_EXPIRED", "what is claimed at the moment"),
    ("TOKENS", "stops at its limit"),
    ("NEWEST_RUN", "stops at the first"),
    ("OLDEST_UNSENT", "a row per endpoint that there ever was"),
    ("OPEN_BULKS", "a few: others are refused"),
    ("OLD_BULKS", "stops at its limit"),
    ("UNAWARE", "a row per process"),
];

/// The names of rows that statements are given, or have just taken.
const BATCHES: &[&str] = &[
    "b",
    "x",
    "a",
    "due",
    "taken",
    "held",
    "free",
    "results",
    "new_runs",
    "ductwork_rows",
    "CONSTANT",
    // The first row of each pipeline's queue, found through an index.
    "heads",
    // The first row of each group, found through an index.
    "halted",
    // The rows that a recursion has produced.
    "n",
    "names",
    // Numbers to make rows from.
    "numbers",
    "series",
];

/// Indexes that are as small as the work in flight.
const IN_FLIGHT: &[&str] = &[
    "ductwork_branches_ready",
    "ductwork_executions_claimed",
    "ductwork_advancements_claimed",
    "ductwork_transitions_open",
];

fn may_scan(statement: &str) -> bool {
    // The audit looks at everything, and nothing waits for it.
    let name = statement.split('_').next().unwrap_or_default();
    let number = name.strip_prefix('I').unwrap_or_default();
    let audit =
        name == "SKETCH" || !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    audit || SCANS.iter().any(|(name, _)| *name == statement)
}

/// No cost may grow with history, backlog or the width of a fan-out: every statement that searches
/// for rows finds them through an index.
#[tokio::test]
async fn no_statement_reads_a_whole_table_on_sqlite() {
    let db = Db::sqlite();
    db.conn().await.close().await;
    let conn = rusqlite::Connection::open(db.location.file().unwrap()).unwrap();
    ductwork::store::backend::sqlite::rows_table::register(&conn).unwrap();
    ductwork::store::backend::sqlite::fingerprint::register(&conn).unwrap();
    let mut scans = Vec::new();
    for statement in of(Dialect::Sqlite) {
        let sql = format!("EXPLAIN QUERY PLAN {}", statement.sql(Dialect::Sqlite));
        let mut plan = conn.prepare(&sql).unwrap();
        let mut plan = plan.raw_query();
        while let Some(row) = plan.next().unwrap() {
            let line: String = row.get("detail").unwrap();
            // `SCAN x USING INDEX …` reads all of an index: the same as a table, except for partial
            // indexes that contain only work in flight. So does a search for all rows with one
            // status.
            let by_status = line.contains("INDEX ductwork_runs_others (status=?)");
            let Some(scan) = line.strip_prefix(if by_status { "SEARCH " } else { "SCAN " }) else {
                continue;
            };
            let source = scan.split_whitespace().next().unwrap_or_default();
            let batch = BATCHES.contains(&source) || source.starts_with('(');
            let in_flight = IN_FLIGHT.iter().any(|index| scan.contains(index));
            if !batch && !in_flight && !may_scan(statement.name) {
                scans.push(format!("{}: {line}", statement.name));
            }
        }
    }
    assert!(scans.is_empty(), "{scans:#?}");
}

/// Statements for people, on connections whose planner has its defaults (`Purpose::Query`); and
/// statements that read small tables.
const NOT_THE_ENGINE: &[(&str, &str)] = &[
    ("STEPS", "of one run, for a person"),
    ("FAILED_STEPS", "of one run, for a person"),
    ("LEAVES", "of one run, for a person"),
    ("RETRIES", "of one run, for a person"),
    ("SPREAD", "of one branch, for a person"),
    ("BARRIERS", "of one run, for a person"),
    ("ORPHANS", "a row per process"),
];

/// Statements that read all work in flight, instead of their own, where the server analysed the
/// tables while nothing was in flight: not fixed yet.
const STILL_DEAR: &[&str] = &[
    "CLAIM_BRANCHES",
    "CLOSE_ADVANCEMENTS",
    "COMPLETE_ADVANCEMENTS",
    "COMPLETE_TRANSITIONS",
    "COUNT_CRASHES",
];

/// The server's statistics about tables that are full by now.
#[derive(Clone, Copy, Debug)]
enum Statistics {
    /// They were never analysed.
    None,
    /// They were analysed when they were empty.
    Empty,
    /// They were analysed when most of their rows had ended long ago.
    History,
    /// They were analysed when they had few rows.
    Stale,
}

/// The tables of this test only: those of other tests, which rely on not being analysed, are in the
/// same database.
const ANALYZED: &str = "
    ANALYZE ductwork_runs, ductwork_branches, ductwork_steps, ductwork_executions,
        ductwork_transitions, ductwork_advancements, ductwork_availabilities, ductwork_fan_outs,
        ductwork_tuples, ductwork_processes, ductwork_definitions";

/// The settings of an engine's connection that concern the planner (src/store/backend/postgres/connection.rs).
const ENGINE: &str =
    "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
    SET plan_cache_mode = force_generic_plan";

/// Tables with this many runs, analysed at this point.
async fn filled(db: &Db, statistics: Statistics) -> sqlx::PgConnection {
    let mut conn = db.conn().await;
    let chain = Pipeline::named("P").start("A").chain("B").chain("C");
    let chain = chain.build().unwrap();
    let mut numbers = data::Numbers::now(&mut conn).await.unwrap();
    conn.script("ALTER TABLE", UNTIDY).await.unwrap();
    let told = &|_| {};
    // How many runs are made before the statistics are taken, and how many after that.
    let (before, after) = match statistics {
        Statistics::None | Statistics::Empty => (0, 400),
        Statistics::History => (3_000, 0),
        Statistics::Stale => (10, 1_500),
    };
    data::completed(&mut conn, &chain, before, &mut numbers, told)
        .await
        .unwrap();
    if !matches!(statistics, Statistics::None) {
        conn.script("ANALYZE", ANALYZED).await.unwrap();
    }
    data::completed(&mut conn, &chain, after, &mut numbers, told)
        .await
        .unwrap();
    data::waiting(&mut conn, &chain, 100 + after, &mut numbers, told)
        .await
        .unwrap();
    conn.close().await;
    let mut server = sqlx::PgConnection::connect(&db.url).await.unwrap();
    sqlx::raw_sql(ENGINE).execute(&mut server).await.unwrap();
    server
}

/// True if a plan, or a part of it, reads one of the project's tables.
fn reads(node: &serde_json::Value) -> bool {
    let table = node["Relation Name"].as_str().unwrap_or_default();
    table.starts_with("ductwork_") || below(node).any(reads)
}

fn below(node: &serde_json::Value) -> impl Iterator<Item = &serde_json::Value> {
    node["Plans"].as_array().into_iter().flatten()
}

/// True if a node yields the rows of a batch one after the other, without any condition.
fn is_batch(node: &serde_json::Value) -> bool {
    match node["Node Type"].as_str().unwrap_or_default() {
        "Function Scan" => true,
        "Materialize" | "Subquery Scan" | "Sort" | "Aggregate" => below(node).any(is_batch),
        _ => false,
    }
}

/// The expensive parts of a plan: a whole table is read, or a batch is scanned for each row of one.
fn dear(node: &serde_json::Value, found: &mut Vec<String>) {
    let kind = node["Node Type"].as_str().unwrap_or_default();
    let table = node["Relation Name"].as_str().unwrap_or_default();
    let index = node["Index Name"].as_str().unwrap_or_default();
    if table.starts_with("ductwork_") {
        // An index scan without a condition reads all of the index.
        let whole = kind == "Seq Scan" || !index.is_empty() && node["Index Cond"].is_null();
        if whole && !IN_FLIGHT.contains(&index) {
            found.push(format!("{kind} on {table} {index}"));
        }
    }
    let plans: Vec<&serde_json::Value> = below(node).collect();
    if let ("Nested Loop", [outer, inner, ..]) = (kind, &plans[..])
        && is_batch(inner)
        && reads(outer)
    {
        let outer = outer.to_string().chars().take(300).collect::<String>();
        found.push(format!("a batch for each row of {outer}"));
    }
    for plan in plans {
        dear(plan, found);
    }
}

/// With each state of the statistics: a plan is made once per connection, and kept.
#[tokio::test]
async fn no_statement_reads_a_whole_table_on_postgres() {
    use Statistics::{Empty, History, None, Stale};
    let scans = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    for statistics in [None, Empty, History, Stale] {
        let scans = std::rc::Rc::clone(&scans);
        support::with(Db::postgres().await, |db| async move {
            db.conn().await.close().await;
            let mut conn = filled(&db, statistics).await;
            for statement in of(Dialect::Postgres).filter(|it| !may_scan(it.name)) {
                let people = NOT_THE_ENGINE
                    .iter()
                    .any(|(name, _)| *name == statement.name);
                if people || STILL_DEAR.contains(&statement.name) {
                    continue;
                }
                let sql = statement.sql(Dialect::Postgres);
                let parameters = (1..).take_while(|n| sql.contains(&format!("${n}"))).count();
                let nulls = vec!["NULL"; parameters].join(", ");
                let nulls = if nulls.is_empty() {
                    nulls
                } else {
                    format!("({nulls})")
                };
                let script = format!(
                    "DEALLOCATE ALL; PREPARE x AS {sql}; EXPLAIN (FORMAT JSON) EXECUTE x{nulls}"
                );
                let plan = sqlx::raw_sql(sqlx::AssertSqlSafe(script)).fetch_all(&mut conn);
                let plan = plan
                    .await
                    .unwrap_or_else(|error| panic!("{}: {error}", statement.name));
                let plan: String = plan[0].get_unchecked(0);
                let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
                let mut found = Vec::new();
                dear(&plan[0]["Plan"], &mut found);
                let named = found
                    .iter()
                    .map(|it| format!("{statistics:?}: {}: {it}", statement.name));
                scans.borrow_mut().extend(named);
            }
        })
        .await;
    }
    let scans = scans.borrow();
    assert!(scans.is_empty(), "{scans:#?}");
}

/// Statements that are given only keys: they look at as many rows of their tables as there are
/// keys, and few more.
#[tokio::test]
async fn what_is_given_keys_looks_at_their_rows_alone() {
    use Statistics::{Empty, History, None, Stale};
    for statistics in [None, Empty, History, Stale] {
        support::with(Db::postgres().await, |db| async move {
            db.conn().await.close().await;
            let mut conn = filled(&db, statistics).await;
            let tables = ["runs", "branches", "steps", "executions", "transitions"];
            let keys =
                tables.map(|table| format!("(SELECT id FROM ductwork_{table} ORDER BY id LIMIT 20)"));
            let keys = format!("SELECT ARRAY({})::text", keys.join(" UNION ALL "));
            let keys = sqlx::raw_sql(sqlx::AssertSqlSafe(keys)).fetch_one(&mut conn);
            let keys: String = keys.await.unwrap().get_unchecked(0);
            let (mut asked, mut dear) = (0, Vec::new());
            for statement in of(Dialect::Postgres).filter(|it| !may_scan(it.name)) {
                let sql = statement.sql(Dialect::Postgres);
                if !sql.contains("= ANY ($1::uuid[])") || sql.contains("$3") {
                    continue;
                }
                asked += 1;
                let more = if sql.contains("$2") { ", 1000" } else { "" };
                let script = format!(
                    "DEALLOCATE ALL; BEGIN; PREPARE x AS {sql};
                     EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE x('{keys}'{more}); ROLLBACK",
                );
                let plan = sqlx::raw_sql(sqlx::AssertSqlSafe(script)).fetch_all(&mut conn);
                let plan = plan
                    .await
                    .unwrap_or_else(|error| panic!("{}: {error}", statement.name));
                let plan: String = plan[0].get_unchecked(0);
                let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
                let rows = looked_at(&plan[0]["Plan"]);
                if rows > 1_000.0 {
                    dear.push(format!("{}: {rows} rows: {plan:#}", statement.name));
                }
            }
            assert!(asked > 15, "{asked}");
            assert!(dear.is_empty(), "{statistics:?}: {}", dear.join("\n"));
        })
        .await;
    }
}

/// The plans of the queue's statements are made once for each connection, often while the queue is empty. A planner
/// that knows it as empty takes one of its indexes for as good as the other, and any order of a join.
#[tokio::test]
async fn a_plan_that_was_made_while_the_queue_was_empty_reads_a_few_rows_of_a_long_one() {
    const LONG: u64 = 40_000;
    support::with(Db::postgres().await, |db| async move {
        let mut conn = db.conn().await;
        let chain = Pipeline::named("P").start("A").chain("B");
        let chain = chain.build().unwrap();
        let mut numbers = data::Numbers::now(&mut conn).await.unwrap();
        conn.script("ALTER TABLE", UNTIDY).await.unwrap();
        let worker = actor::process_of("box", Some("P"));
        process::register(&mut conn, &worker).await.unwrap();
        // Before the first run, and after the queue was long: then it keeps its pages.
        for vacuum in ["VACUUM ANALYZE", "VACUUM (ANALYZE, TRUNCATE off)"] {
            let tidied = format!("DELETE FROM ductwork_availabilities; {vacuum} ductwork_availabilities");
            for one in tidied.split("; ") {
                conn.script("VACUUM", one.to_owned().leak()).await.unwrap();
            }
            let mut server = sqlx::PgConnection::connect(&db.url).await.unwrap();
            sqlx::raw_sql(ENGINE).execute(&mut server).await.unwrap();
            let id = worker.id.0;
            let nil = uuid::Uuid::nil();
            let mut asked: Vec<(&str, String)> = vec![
                ("CLAIM", format!("'{id}', 0, 'P', -1, '{nil}', 20, 1000000")),
                ("TAKE_READABLE", format!("'P', -1, '{nil}', '{{}}', '{{}}', 20")),
            ];
            let keyed = of(Dialect::Postgres).filter(|it| {
                let sql = it.sql(Dialect::Postgres);
                sql.contains("ductwork_availabilities")
                    && sql.contains("= ANY ($1::uuid[])")
                    && !sql.contains("$2")
            });
            asked.extend(keyed.map(|it| (it.name, "KEYS".to_owned())));
            assert!(asked.len() >= 5, "{asked:?}");
            for (name, args) in &asked {
                let statement = of(Dialect::Postgres).find(|it| it.name == *name).unwrap();
                let sql = statement.sql(Dialect::Postgres);
                let args = args.replace("KEYS", "'{}'");
                // A plan that was explained is kept.
                let script = format!("PREPARE {name} AS {sql}; EXPLAIN EXECUTE {name}({args})");
                let planned = sqlx::raw_sql(sqlx::AssertSqlSafe(script)).execute(&mut server);
                planned.await.unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            data::waiting(&mut conn, &chain, LONG, &mut numbers, &|_| {}).await.unwrap();
            let keys = "SELECT ARRAY(SELECT execution_id FROM ductwork_availabilities LIMIT 20)::text";
            let keys: String = sqlx::raw_sql(keys)
                .fetch_one(&mut server)
                .await
                .unwrap()
                .get_unchecked(0);
            for (name, args) in &asked {
                let args = args.replace("KEYS", &format!("'{keys}'"));
                let script = format!(
                    "BEGIN; EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE {name}({args}); ROLLBACK"
                );
                let plan = sqlx::raw_sql(sqlx::AssertSqlSafe(script)).fetch_all(&mut server);
                let plan = plan.await.unwrap_or_else(|error| panic!("{name}: {error}"));
                let plan: String = plan[0].get_unchecked(0);
                let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
                let plan = &plan[0]["Plan"];
                let read = ["Shared Hit Blocks", "Shared Read Blocks"];
                let read: u64 = read.iter().filter_map(|it| plan[it].as_u64()).sum();
                assert!(read < 2_000, "{vacuum}: {name}: {read} pages: {plan:#}");
            }
        }
    })
    .await;
}

/// PostgreSQL itself adds that the least value is not null, and from version 17 on removes that again where no value may be
/// null: then the index of the queue does not serve a query that names no pipeline (ADR 0056).
#[test]
fn the_names_of_queues_are_read_by_a_condition_that_their_index_knows() {
    for name in ["QUEUES", "STUCK_DUE", "MAY_BE_STUCK", "ANY_WORK"] {
        let statement = of(Dialect::Postgres).find(|it| it.name == name).unwrap();
        let sql = statement.sql(Dialect::Postgres);
        assert!(sql.contains("pipeline >= ''"), "{name}: {sql}");
    }
}

/// The run of which many branches have halted.
const WIDE: &str = "'00000000-0000-7000-8000-000000000001'";

/// Its branches and their steps, each with two attempts.
const HALTED: &str = "
    INSERT INTO ductwork_branches (id, run_id, pipeline, status, halt_reason, step_id)
        SELECT gen_random_uuid(), '00000000-0000-7000-8000-000000000001', 'P', 'halted', 'step_refused', gen_random_uuid()
          FROM generate_series(1, 3000);
    INSERT INTO ductwork_steps (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at, completed_at)
        SELECT step_id, run_id, id, 0, 'A', 'A', 'start', 'failed', '1', 1, 1
          FROM ductwork_branches WHERE halt_reason IS NOT NULL;
    INSERT INTO ductwork_executions (id, step_id, pipeline, attempt, completed_at, result, error_message)
        SELECT gen_random_uuid(), s.id, 'P', n, 1, 'error', 'no'
          FROM ductwork_steps s, generate_series(1, 2) n WHERE s.status = 'failed'";

/// A page would never be ready, and a run would halt in a long transaction, if each branch of a wide run that has
/// halted were looked at.
#[tokio::test]
async fn the_reasons_why_a_wide_run_has_halted_are_read_from_the_first_of_its_branches() {
    use Statistics::{Empty, History, None, Stale};
    for statistics in [None, Empty, History, Stale] {
        support::with(Db::postgres().await, |db| async move {
            db.conn().await.close().await;
            let mut conn = filled(&db, statistics).await;
            sqlx::raw_sql(HALTED).execute(&mut conn).await.unwrap();
            for (name, args, first) in [
                ("HALTS", format!("65536, {WIDE}, 20"), 20),
                ("HALTS_OF_RUN", WIDE.to_owned(), 100),
                ("PAGE_STEPS_OF_HALTED", format!("{WIDE}, 20"), 20),
            ] {
                let statement = of(Dialect::Postgres).find(|it| it.name == name).unwrap();
                let sql = statement.sql(Dialect::Postgres);
                let script = format!(
                    "DEALLOCATE ALL; PREPARE x AS {sql};
                     EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE x({args})"
                );
                let plan = sqlx::raw_sql(sqlx::AssertSqlSafe(script)).fetch_all(&mut conn);
                let plan = plan.await.unwrap_or_else(|error| panic!("{name}: {error}"));
                let plan: String = plan[0].get_unchecked(0);
                let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
                assert_eq!(
                    plan[0]["Plan"]["Actual Rows"].as_f64(),
                    Some(f64::from(first)),
                    "{name}"
                );
                // Without statistics the ids of all that have halted may be sorted; nothing else is read of them.
                let ids = looked_at_by(&plan[0]["Plan"], &|alias| alias == Some("x"));
                let joined =
                    looked_at_by(&plan[0]["Plan"], &|alias| alias.is_some_and(|it| it != "x"));
                assert!(
                    ids <= 3_000.0 && joined < 1_000.0,
                    "{statistics:?}: {name}: {ids} ids, {joined} rows: {plan:#}"
                );
            }
        })
        .await;
    }
}

/// The rows that a plan has looked at, without those that an index spared it.
fn looked_at(node: &serde_json::Value) -> f64 {
    looked_at_by(node, &|_| true)
}

/// The same, of those parts of the plan alone that scan a table under an alias of this kind, or under none.
fn looked_at_by(node: &serde_json::Value, counts: &dyn Fn(Option<&str>) -> bool) -> f64 {
    let rows: f64 = [
        "Actual Rows",
        "Rows Removed by Filter",
        "Rows Removed by Join Filter",
    ]
    .iter()
    .filter(|_| counts(node["Alias"].as_str()))
    .filter_map(|name| node[name].as_f64())
    .sum();
    let below = node["Plans"].as_array().into_iter().flatten();
    let below: f64 = below.map(|below| looked_at_by(below, counts)).sum();
    rows * node["Actual Loops"].as_f64().unwrap_or_default() + below
}

/// The server vacuums when it likes; not in this test.
const UNTIDY: &str = "
    ALTER TABLE ductwork_runs SET (autovacuum_enabled = off);
    ALTER TABLE ductwork_branches SET (autovacuum_enabled = off);
    ALTER TABLE ductwork_steps SET (autovacuum_enabled = off);
    ALTER TABLE ductwork_executions SET (autovacuum_enabled = off);
    ALTER TABLE ductwork_transitions SET (autovacuum_enabled = off);
    ALTER TABLE ductwork_advancements SET (autovacuum_enabled = off);
    ALTER TABLE ductwork_availabilities SET (autovacuum_enabled = off)";

const DELETED: &str = "
    DELETE FROM ductwork_runs; DELETE FROM ductwork_branches; DELETE FROM ductwork_steps;
    DELETE FROM ductwork_executions; DELETE FROM ductwork_transitions;
    DELETE FROM ductwork_advancements";

/// Tables that are vacuumed after all their rows were deleted count as empty, as long as they keep
/// a page.
const TIDIED: &str = "
    VACUUM (TRUNCATE off) ductwork_runs, ductwork_branches, ductwork_steps, ductwork_executions,
        ductwork_transitions, ductwork_advancements";

/// So soon after much work that the server has not analysed the tables yet.
#[tokio::test]
async fn no_invariant_compares_every_row_with_every_row_where_there_are_no_statistics() {
    // Whether the server is misled depends on the number of rows.
    const RUNS: [u64; 2] = [400, 1_600];
    support::with(Db::postgres().await, |db| async move {
        let chain = Pipeline::named("P")
            .start("A")
            .chain("B")
            .chain("C")
            .chain("D");
        let mut conn = db.conn().await;
        let chain = chain.build().unwrap();
        let mut numbers = data::Numbers::now(&mut conn).await.unwrap();
        conn.script("ALTER TABLE", UNTIDY).await.unwrap();
        data::completed(&mut conn, &chain, 100, &mut numbers, &|_| {})
            .await
            .unwrap();
        conn.script("DELETE", DELETED).await.unwrap();
        conn.script("VACUUM", TIDIED).await.unwrap();
        let mut server = sqlx::PgConnection::connect(&db.url).await.unwrap();
        // An engine's connection may read no whole tables (src/store/backend/postgres/connection.rs).
        let engine =
            "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off";
        sqlx::raw_sql(engine).execute(&mut server).await.unwrap();
        let (mut steps, mut dear) = (0.0, Vec::new());
        for runs in RUNS {
            data::completed(&mut conn, &chain, runs, &mut numbers, &|_| {})
                .await
                .unwrap();
            steps += runs as f64 * 4.0;
            for statement in of(Dialect::Postgres) {
                let invariant = statement
                    .name
                    .strip_prefix('I')
                    .and_then(|name| name.chars().next());
                if !invariant.is_some_and(|digit| digit.is_ascii_digit()) {
                    continue;
                }
                // All of their parameters are numbers.
                let mut sql = statement.sql(Dialect::Postgres).to_owned();
                (1..=3).for_each(|n| sql = sql.replace(&format!("${n}"), "1000000"));
                let script = format!(
                    "BEGIN; {}; EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql}; ROLLBACK",
                    settings(Dialect::Postgres, statement.name),
                );
                let plan = sqlx::raw_sql(sqlx::AssertSqlSafe(script)).fetch_all(&mut server);
                let plan = plan
                    .await
                    .unwrap_or_else(|error| panic!("{}: {error}", statement.name));
                let plan: String = plan[0].get_unchecked(0);
                let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
                let rows = looked_at(&plan[0]["Plan"]);
                eprintln!("{}: {:.1} rows per step", statement.name, rows / steps);
                if rows > 30.0 * steps {
                    dear.push(format!(
                        "{}: {rows} rows of {steps}: {plan:#}",
                        statement.name
                    ));
                }
            }
        }
        assert!(dear.is_empty(), "{}", dear.join("\n"));
    })
    .await;
}
