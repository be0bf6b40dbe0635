//! A copy of everything: each row of each table, to a database of another kind and back.

use std::collections::BTreeMap;
use std::time::Duration;

use ductwork::definition::Pipeline;
use ductwork::store::copy::{self, Copied};
use ductwork::store::trigger::{NewRun, trigger};
use ductwork::store::{Conn, Error, Location, Purpose, migrate};
use rusqlite::Connection;
use rusqlite::types::Value;

use crate::driver::register;
use crate::support::Db;
use crate::{on_every_database, on_servers};

/// More rows than are copied at once.
const ROWS: usize = 2_100;

/// Tables that belong to the processes of one database, or to the database itself.
const LEFT_OUT: [&str; 3] = [
    "ductwork_processes",
    "ductwork_duties",
    "ductwork_migrations",
];

/// The columns that not every value fits, by table and name; `n` is the row's number.
const FITTING: &[(&str, &str, &str)] = &[
    (
        "runs",
        "status",
        "CASE n % 4 WHEN 0 THEN 'completed' WHEN 1 THEN 'halted' WHEN 2 THEN 'cancelled' ELSE 'in_progress' END",
    ),
    (
        "runs",
        "output",
        "CASE n % 4 WHEN 0 THEN '{\"n\": ' || n || ', \"\\u0000\": 1e999}' END",
    ),
    ("runs", "completed_at", "CASE n % 4 WHEN 0 THEN n END"),
    ("runs", "halted_at", "CASE n % 4 WHEN 1 THEN n END"),
    ("runs", "cancelled_at", "CASE n % 4 WHEN 2 THEN n END"),
    ("runs", "revivals", "n"),
    (
        "branches",
        "status",
        "CASE n % 3 WHEN 0 THEN 'advancing' WHEN 1 THEN 'in_progress' ELSE 'halted' END",
    ),
    (
        "branches",
        "claim_token",
        "CASE n % 3 WHEN 0 THEN randomblob(16) END",
    ),
    (
        "branches",
        "claimed_for_advancing_at",
        "CASE n % 3 WHEN 0 THEN n END",
    ),
    ("branches", "ready_at", "CASE n % 3 WHEN 1 THEN n END"),
    (
        "branches",
        "halt_reason",
        "CASE n % 3 WHEN 2 THEN 'step_refused' END",
    ),
    (
        "fan_outs",
        "via",
        "CASE n % 2 WHEN 0 THEN 'divide' ELSE 'expand' END",
    ),
    ("fan_outs", "width", "3"),
    ("fan_outs", "arrived", "3 - n % 2"),
    ("fan_outs", "halted", "1"),
    ("fan_outs", "fired_at", "CASE n % 2 WHEN 0 THEN n END"),
    (
        "steps",
        "status",
        "CASE n % 2 WHEN 0 THEN 'completed' ELSE 'in_progress' END",
    ),
    (
        "steps",
        "output",
        "CASE n % 2 WHEN 0 THEN '\"' || n || ' é𝕏\"' END",
    ),
    (
        "executions",
        "process_id",
        "CASE n % 2 WHEN 0 THEN randomblob(16) END",
    ),
    ("executions", "claimed_at", "CASE n % 2 WHEN 0 THEN n END"),
    ("executions", "lease_until", "CASE n % 2 WHEN 0 THEN n END"),
    ("executions", "completed_at", "CASE n % 3 WHEN 0 THEN n END"),
    (
        "executions",
        "result",
        "CASE n % 3 WHEN 0 THEN 'timed_out' END",
    ),
    ("transitions", "via", "CASE n % 2 WHEN 0 THEN 'chain' END"),
    ("transitions", "produced", "CASE n % 2 WHEN 0 THEN n END"),
    (
        "transitions",
        "completed_at",
        "CASE n % 2 WHEN 0 THEN n END",
    ),
    // Rows with the same key are copied in two batches.
    (
        "advancements",
        "transition_id",
        "CAST(printf('%016d', n / 3) AS blob)",
    ),
    (
        "advancements",
        "completed_at",
        "CASE n % 2 WHEN 0 THEN n END",
    ),
    (
        "advancements",
        "result",
        "CASE n % 2 WHEN 0 THEN 'released' END",
    ),
    (
        "tuples",
        "run_id",
        "CAST(printf('%016d', n / 1500) AS blob)",
    ),
    ("series", "pipeline", "'P' || (n / 1500)"),
    (
        "series",
        "grain",
        "CASE n % 2 WHEN 0 THEN 'hour' ELSE 'minute' END",
    ),
    ("tokens", "payloads", "n % 2"),
    ("pauses", "holds", "n"),
];

/// The tables of a file, each with its columns, their types, and whether they may be absent.
fn tables(conn: &Connection) -> BTreeMap<String, Vec<(String, String, bool)>> {
    let mut names = conn
        .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'ductwork_%'")
        .unwrap();
    let names = names.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let names = names
        .map(Result::unwrap)
        .filter(|name| !LEFT_OUT.contains(&name.as_str()));
    let columns = |table: String| {
        let mut columns = conn
            .prepare("SELECT name, type, \"notnull\", pk FROM pragma_table_info(?1)")
            .unwrap();
        let columns = columns.query_map([&table], |row| {
            let required: i64 = row.get(2)?;
            let key: i64 = row.get(3)?;
            Ok((
                row.get(0)?,
                row.get::<_, String>(1)?.to_lowercase(),
                required == 0 && key == 0,
            ))
        });
        let columns = columns.unwrap().map(Result::unwrap).collect();
        (table, columns)
    };
    names.map(columns).collect()
}

/// Rows in all tables, with a value in every column.
fn fill(conn: &Connection) {
    for (table, columns) in tables(conn) {
        let short = table.trim_start_matches("ductwork_");
        let value = |(name, kind, optional): &(String, String, bool)| {
            if let Some((.., fitting)) = FITTING
                .iter()
                .find(|(of, column, _)| *of == short && column == name)
            {
                return (*fitting).to_owned();
            }
            let any = match kind.as_str() {
                "blob" => "randomblob(16)",
                "text" => "'text \" \\ é𝕏 ' || n",
                "integer" => "n * 1000003",
                other => panic!("{table}.{name} is {other}"),
            };
            match optional {
                true => format!("CASE n % 5 WHEN 0 THEN {any} END"),
                false => any.to_owned(),
            }
        };
        let names: Vec<String> = columns
            .iter()
            .map(|(name, ..)| format!("\"{name}\""))
            .collect();
        let values: Vec<String> = columns.iter().map(value).collect();
        conn.execute_batch(&format!(
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {ROWS})
             INSERT INTO {table} ({}) SELECT {} FROM numbers",
            names.join(", "),
            values.join(", ")
        ))
        .unwrap_or_else(|error| panic!("{table}: {error}"));
    }
    // The totals of processes that are gone belong to no process.
    conn.execute_batch(
        "UPDATE ductwork_metrics SET process_id = zeroblob(16)
          WHERE process_id = (SELECT max(process_id) FROM ductwork_metrics)",
    )
    .unwrap();
    // Only one or two of these are copied at once; and one is copied alone, with two values of the greatest allowed
    // size, which double when they are written as JSON.
    conn.execute_batch(
        "UPDATE ductwork_steps SET input = '\"' || hex(zeroblob(700000)) || '\"'
          WHERE id IN (SELECT id FROM ductwork_steps LIMIT 5);
         UPDATE ductwork_steps SET input = '\"' || replace(hex(zeroblob(8388607)), '00', '\\\"') || '\"'
          WHERE id = (SELECT max(id) FROM ductwork_steps WHERE status = 'completed');
         UPDATE ductwork_steps SET output = input WHERE id = (SELECT max(id) FROM ductwork_steps WHERE status = 'completed');",
    )
    .unwrap();
}

on_servers! {
    /// A session that is idle in a transaction for ten seconds is ended, because it may hold locks. The session that
    /// reads for a copy holds none.
    async fn a_target_that_takes_its_time_for_one_batch_costs_no_copy(db: Db) {
        let mut source = db.conn().await;
        let flow = Pipeline::named("P").start("A").build().unwrap();
        let run = [NewRun { key: None, input: "1" }];
        trigger(&mut source, &flow, &run, Duration::ZERO).await.unwrap();
        source.close().await;
        use sqlx::Connection as _;
        let target = Db::postgres().await;
        target.conn().await.close().await;
        let mut holds = sqlx::PgConnection::connect(&target.url).await.unwrap();
        let lock = "BEGIN; LOCK TABLE ductwork_definitions IN SHARE MODE";
        sqlx::raw_sql(lock).execute(&mut holds).await.unwrap();
        let (from, to) = (db.clone(), target.clone());
        let copying = tokio::task::spawn_local(async move { copied(&from, &to).await });
        // Nothing but the time matters here: it is longer than the limit.
        tokio::time::sleep(Duration::from_secs(12)).await;
        assert!(!copying.is_finished(), "the first batch cannot be written");
        sqlx::raw_sql("COMMIT").execute(&mut holds).await.unwrap();
        assert!(matches!(copying.await.unwrap(), Copied::Done { runs: 1, .. }));
        holds.close().await.unwrap();
        target.remove().await;
    }
}

/// All rows of all tables.
fn content(conn: &Connection) -> BTreeMap<String, Vec<Vec<Value>>> {
    let rows = |(table, columns): (String, Vec<(String, String, bool)>)| {
        let mut names: Vec<String> = columns
            .iter()
            .map(|(name, ..)| format!("\"{name}\""))
            .collect();
        names.sort();
        let names = names.join(", ");
        let mut rows = conn
            .prepare(&format!("SELECT {names} FROM {table} ORDER BY {names}"))
            .unwrap();
        let width = columns.len();
        let rows = rows.query_map([], |row| (0..width).map(|at| row.get(at)).collect());
        let rows: Vec<Vec<Value>> = rows.unwrap().map(Result::unwrap).collect();
        (table, rows)
    };
    tables(conn).into_iter().map(rows).collect()
}

fn file(db: &Db) -> Connection {
    Connection::open(db.url.trim_start_matches("sqlite://")).unwrap()
}

async fn open(location: &Location) -> Conn {
    location.connect(Purpose::Query).await.unwrap()
}

async fn copied(from: &Db, to: &Db) -> Copied {
    let (mut source, mut target) = (open(&from.location).await, open(&to.location).await);
    copy::copy(&mut source, &mut target, &|_| true, &mut |_| {})
        .await
        .unwrap()
}

on_every_database! {
    async fn every_value_of_every_column_comes_back_from_a_copy_of_a_copy(db: Db) {
        let (first, last) = (Db::sqlite(), Db::sqlite());
        first.conn().await.close().await;
        fill(&file(&first));
        let before = content(&file(&first));
        for (table, rows) in &before {
            assert_eq!(rows.len(), ROWS, "{table}");
            for at in 0..rows[0].len() {
                assert!(rows.iter().any(|row| row[at] != Value::Null), "column {at} of {table} has no value");
            }
        }
        for (from, to) in [(&first, &db), (&db, &last)] {
            let Copied::Done { rows: tables, .. } = copied(from, to).await else {
                panic!("it was refused");
            };
            assert_eq!(tables.len(), before.len());
            assert!(tables.values().all(|rows| *rows == ROWS as u64), "{tables:?}");
        }
        let after = content(&file(&last));
        for (table, rows) in &before {
            assert!(after[table] == *rows, "{table} differs");
        }
        // It is now a database like any other.
        migrate::check(&mut open(&db.location).await).await.unwrap();
        assert!(matches!(copied(&first, &db).await, Copied::NotEmpty("ductwork_definitions")));
    }

    async fn a_database_at_work_is_not_copied_and_nobody_works_with_half_a_copy(db: Db) {
        let (source, target) = (Db::sqlite(), db);
        let mut conn = source.conn().await;
        let process = register(&mut conn).await;
        let Copied::InUse(processes) = copied(&source, &target).await else {
            panic!("it was copied");
        };
        assert_eq!(processes[0].id, process);
        ductwork::store::process::deregister(&mut conn, process).await.unwrap();
        conn.close().await;
        // The source is lost in the middle: one of its tables is gone.
        file(&source).execute_batch("ALTER TABLE ductwork_tokens RENAME TO elsewhere").unwrap();
        let (mut from, mut to) = (open(&source.location).await, open(&target.location).await);
        copy::copy(&mut from, &mut to, &|_| true, &mut |_| {}).await.unwrap_err();
        for _ in 0..2 {
            let error = migrate::check(&mut to).await.unwrap_err();
            assert!(error.to_string().contains("an incomplete copy"), "{error}");
            let error = migrate::migrate(&mut to).await.err().unwrap();
            assert!(matches!(error, Error::Schema(_)), "{error}");
        }
        file(&source).execute_batch("ALTER TABLE elsewhere RENAME TO ductwork_tokens").unwrap();
        let error = copy::copy(&mut open(&source.location).await, &mut to, &|_| true, &mut |_| {}).await.unwrap_err();
        assert!(error.to_string().contains("to a fresh database"), "{error}");
    }

    async fn a_copy_of_a_database_in_which_somebody_acts_meanwhile_is_not_complete(db: Db) {
        let source = Db::sqlite();
        let mut conn = source.conn().await;
        let flow = Pipeline::named("P").start("A").build().unwrap();
        let run = [NewRun { key: None, input: "1" }];
        trigger(&mut conn, &flow, &run, Duration::ZERO).await.unwrap();
        conn.close().await;
        let other = file(&source);
        let mut acts = Some(
            "INSERT INTO ductwork_actions (id, at, by_whom, channel, verb, pipeline)
             VALUES (randomblob(16), 1, 'ana', 'cli', 'pause', 'P')",
        );
        let mut report = |_| {
            if let Some(act) = acts.take() {
                other.execute(act, []).unwrap();
            }
        };
        let (mut from, mut to) = (open(&source.location).await, open(&db.location).await);
        let outcome = copy::copy(&mut from, &mut to, &|_| true, &mut report).await.unwrap();
        assert!(matches!(outcome, Copied::Outdated), "{outcome:?}");
        let error = migrate::check(&mut to).await.unwrap_err();
        assert!(error.to_string().contains("an incomplete copy"), "{error}");
    }

    async fn a_copy_that_ends_while_it_makes_the_schema_leaves_its_mark(db: Db) {
        let source = Db::sqlite();
        source.conn().await.close().await;
        let (mut from, mut to) = (open(&source.location).await, open(&db.location).await);
        // A foreign table: either a migration fails because of it, or the copy of the rows does.
        to.script("IN THE WAY", "CREATE TABLE ductwork_tokens (x int)").await.unwrap();
        copy::copy(&mut from, &mut to, &|_| true, &mut |_| {}).await.unwrap_err();
        for refused in [migrate::newer(&mut to).await.err(), migrate::migrate(&mut to).await.err()] {
            let error = refused.expect("the mark").to_string();
            assert!(error.contains("an incomplete copy"), "{error}");
        }
    }
}
