//! The schema on a real server, created once, twice, concurrently and after being killed half-way.

use std::time::Duration;

use ductwork::store::migrate;
use ductwork::store::{Dialect, Purpose};

use crate::servers::directory;
use crate::{another, statement, text, with};

/// Tables with their columns and indexes, as the server reports them.
const ALL: &str = "
    SELECT sha2(group_concat(it ORDER BY it SEPARATOR '\\n'), 256) AS it FROM (
        SELECT TABLE_NAME || '.' || COLUMN_NAME || ' ' || COLUMN_TYPE || ' ' || coalesce(COLLATION_NAME, '') AS it
          FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
        UNION ALL
        SELECT TABLE_NAME || ' ' || INDEX_NAME || ' ' || SEQ_IN_INDEX || ' ' || COLUMN_NAME
          FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE()
        UNION ALL
        SELECT TABLE_NAME || ' ' || CONSTRAINT_NAME || ' ' || CONSTRAINT_TYPE
          FROM information_schema.TABLE_CONSTRAINTS WHERE TABLE_SCHEMA = DATABASE()) x";

#[tokio::test]
async fn a_migration_may_be_run_again_from_its_start() {
    with(|_sandbox, mut conn| async move {
        let before = text(&mut conn, ALL).await;
        let forget = statement("DELETE FROM ductwork_migrations");
        conn.execute(forget, &[]).await.unwrap();
        let done = migrate::migrate(&mut conn).await.unwrap();
        assert_eq!(done.len(), migrate::MIGRATIONS.len());
        assert_eq!(text(&mut conn, ALL).await, before);
        assert!(migrate::migrate(&mut conn).await.unwrap().is_empty());
        conn.close().await;
    })
    .await;
}

/// Each tested statement of a migration is the last one that a killed process executed.
#[tokio::test]
async fn a_starter_that_is_killed_half_way_leaves_what_the_next_one_finishes() {
    with(|sandbox, mut conn| async move {
        let whole = text(&mut conn, ALL).await;
        let text_of = |migration: &migrate::Migration| {
            let lines = migration.sql(Dialect::Mysql).lines();
            let lines = lines.map(|line| line.split("--").next().unwrap_or_default());
            let sql: Vec<&str> = lines.collect();
            let statements: Vec<String> = sql.join("\n").split(';').map(|it| it.trim().to_owned()).collect();
            statements.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>()
        };
        let drop_all = "
            SELECT 'DROP ' || CASE TABLE_TYPE WHEN 'VIEW' THEN 'VIEW ' ELSE 'TABLE ' END || TABLE_NAME AS it
              FROM information_schema.TABLES
             WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_TYPE DESC";
        let mut tried = 0;
        for (at, migration) in migrate::MIGRATIONS.iter().enumerate() {
            let statements = text_of(migration);
            // A sample of the longest migration's statements is enough, and every other one of the
            // rest.
            for killed_behind in (1..=statements.len()).step_by(if at == 0 { 9 } else { 2 }) {
                let rows = crate::rows(&mut conn, drop_all).await.unwrap();
                for row in rows {
                    let drop: String = row.get("it").unwrap();
                    conn.script("DROP", Box::leak(drop.into_boxed_str())).await.unwrap();
                }
                let made = conn
                    .script("RECORD", "CREATE TABLE ductwork_migrations (
                        version bigint PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL)")
                    .await;
                made.unwrap();
                for earlier in &migrate::MIGRATIONS[..at] {
                    conn.script(earlier.name, earlier.sql(Dialect::Mysql)).await.unwrap();
                    let record = statement(
                        "INSERT INTO ductwork_migrations (version, name, applied_at) VALUES (:version, 'x', 1)",
                    );
                    conn.execute(record, &[("version", earlier.version.into())]).await.unwrap();
                }
                for one in &statements[..killed_behind] {
                    conn.script("PART", one.clone().leak()).await.unwrap();
                }
                let mut next = another(&sandbox, Purpose::Query).await;
                let done = migrate::migrate(&mut next).await.unwrap();
                assert_eq!(done.len(), migrate::MIGRATIONS.len() - at, "{} {killed_behind}", migration.name);
                assert_eq!(text(&mut next, ALL).await, whole, "{} {killed_behind}", migration.name);
                next.close().await;
                tried += 1;
            }
        }
        conn.close().await;
        assert!(tried > 20, "{tried}");
    })
    .await;
}

#[tokio::test]
async fn starters_at_once_make_one_schema() {
    with(|sandbox, mut conn| async move {
        let whole = text(&mut conn, ALL).await;
        for _ in 0..3 {
            sandbox.remove().await.unwrap();
            sandbox.make().await.unwrap();
            let enter = format!("USE {}", sandbox.name());
            conn.script("USE", enter.leak()).await.unwrap();
            let start = || async {
                let mut conn = another(&sandbox, Purpose::Query).await;
                let done = migrate::migrate(&mut conn).await.unwrap().len();
                conn.close().await;
                done
            };
            let (a, b, c) = tokio::join!(start(), start(), start());
            assert!(a + b + c >= migrate::MIGRATIONS.len(), "{a} {b} {c}");
            assert_eq!(text(&mut conn, ALL).await, whole);
        }
        conn.close().await;
    })
    .await;
}

/// A file of the test's own stands for that of a table that the server deletes late.
#[tokio::test]
async fn a_database_whose_files_go_late_is_dropped_all_the_same() {
    with(|sandbox, mut conn| async move {
        let late = format!("{}/data/{}/late", directory(), sandbox.name());
        std::fs::write(&late, "").unwrap();
        let drop = format!("DROP DATABASE {}", sandbox.name());
        let refused = conn.script("DROP", drop.leak()).await.unwrap_err();
        conn.close().await;
        let told = std::error::Error::source(&refused).unwrap().to_string();
        assert!(told.contains("rmdir") || told.contains("unlink"), "{told}");

        let within = Duration::from_secs(1);
        let waits = tokio::time::timeout(within, sandbox.remove()).await;
        assert!(waits.is_err(), "it has not waited: {waits:?}");
        std::fs::remove_file(late).unwrap();
        sandbox.remove().await.unwrap();
        let left = sandbox.location().connect(Purpose::Query).await;
        assert!(left.is_err(), "the database is there");
    })
    .await;
}

#[tokio::test]
async fn texts_are_the_same_where_their_bytes_are() {
    with(|_sandbox, mut conn| async move {
        let insert = statement(
            "INSERT INTO ductwork_pauses (pipeline, reason, paused_by, paused_at) VALUES (:name, '', '', 1)",
        );
        for name in ["a", "a ", "A", "á", "𝄞", ""] {
            conn.execute(insert, &[("name", name.into())]).await.unwrap();
        }
        let find = statement("SELECT pipeline AS it FROM ductwork_pauses WHERE pipeline = :name");
        for name in ["a", "a ", "A", "á", "𝄞", ""] {
            let found = conn.fetch(find, &[("name", name.into())]).await.unwrap();
            assert_eq!(found.len(), 1, "{name:?}");
            assert_eq!(found[0].get::<String>("it").unwrap(), name);
        }
        conn.close().await;
    })
    .await;
}
