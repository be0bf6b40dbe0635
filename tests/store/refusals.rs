//! The party at fault when the database refuses something, and statements that were refused.

use ductwork::machine::bulk::Selection;
use ductwork::model::{RunId, Verb};
use ductwork::store::bulk::{self, NewBulk};
use ductwork::store::error::take_failed;
use ductwork::store::statement::{Arg, Only, Statement};
use ductwork::store::{Conn, Dialect, Error, process, report};

use crate::actions::ana;
use crate::driver::process_of;
use crate::support::{self, Db};
use crate::{on_every_database, on_servers};

on_every_database! {
    /// A wrong value stays wrong forever; a fault of the database is repaired.
    async fn a_refusal_blames_the_value_or_the_database(db: Db) {
        let mut conn = db.conn().await;
        let values: &[&str] = match conn.dialect() {
            Dialect::Postgres => &["SELECT 'a' || chr(0)", "SELECT repeat('a', 1073741824)"],
            Dialect::Sqlite => &["SELECT zeroblob(2147483647)"],
            Dialect::Mysql => &[
                "INSERT INTO ductwork_definitions VALUES (repeat('x', 200), 'b', 'c', 1)",
                "INSERT INTO ductwork_definitions VALUES ('x', 'b', x'ff', 1)",
            ],
        };
        for value in values {
            let error = conn.script("too much", value).await.unwrap_err();
            assert!(matches!(error, Error::Refused { .. }), "{error:?}");
            assert!(error.blames_the_value(), "{error:?}");
        }
        let twice = "INSERT INTO ductwork_definitions VALUES ('a', 'b', 'c', 1), ('a', 'b', 'c', 1)";
        let error = conn.script("twice", twice).await.unwrap_err();
        assert!(error.blames_the_value(), "{error:?}");
        let raise = match conn.dialect() {
            Dialect::Postgres => "DO $$ BEGIN RAISE EXCEPTION 'not that'; END $$",
            Dialect::Sqlite => "CREATE TEMP TRIGGER no BEFORE INSERT ON ductwork_definitions
                                BEGIN SELECT RAISE(ABORT, 'not that'); END;
                                INSERT INTO ductwork_definitions VALUES ('c', 'b', 'c', 1)",
            Dialect::Mysql => "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not that'",
        };
        let error = conn.script("raise", raise).await.unwrap_err();
        assert!(error.blames_the_value(), "{error:?}");
        let gone = "INSERT INTO ductwork_nothing VALUES ('a')";
        let error = conn.script("gone", gone).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        assert!(!error.blames_the_value(), "{error:?}");
    }
}

const IGNORE_POSTGRES: &str = "
CREATE FUNCTION ignore() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER ignore BEFORE INSERT ON ductwork_bulks FOR EACH ROW EXECUTE FUNCTION ignore();
CREATE TRIGGER ignore BEFORE INSERT ON ductwork_reports FOR EACH ROW EXECUTE FUNCTION ignore();
CREATE TRIGGER ignore BEFORE INSERT ON ductwork_processes FOR EACH ROW EXECUTE FUNCTION ignore();";

const IGNORE_SQLITE: &str = "
CREATE TRIGGER ignore_bulks BEFORE INSERT ON ductwork_bulks BEGIN SELECT RAISE(IGNORE); END;
CREATE TRIGGER ignore_reports BEFORE INSERT ON ductwork_reports BEGIN SELECT RAISE(IGNORE); END;
CREATE TRIGGER ignore_processes BEFORE INSERT ON ductwork_processes BEGIN SELECT RAISE(IGNORE); END;";

async fn what_is_ignored_is_told(db: Db) {
    let mut conn = db.conn().await;
    let ignore = match conn.dialect() {
        Dialect::Postgres => IGNORE_POSTGRES,
        Dialect::Sqlite => IGNORE_SQLITE,
        Dialect::Mysql => unreachable!("it ignores nothing"),
    };
    conn.script("ignore", ignore).await.unwrap();
    let bulk = NewBulk {
        verb: Verb::Cancel,
        selection: &Selection::Chosen(vec![RunId::new()]),
        definition: None,
        newest: RunId::new(),
        by: &ana(),
    };
    let refused = [
        bulk::create(&mut conn, bulk).await.map(drop),
        report::record(&mut conn, report::Kind::Drill, true, &0).await,
        process::register(&mut conn, &process_of(None)).await,
    ];
    for (refused, name) in refused
        .iter()
        .zip(["CREATE_BULK", "RECORD_REPORT", "REGISTER"])
    {
        let error = refused.as_ref().unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{name}: {error:?}");
        assert!(error.to_string().contains(name), "{name}: {error:?}");
    }
}

/// A trigger that leaves a row out, without an error, must not make believe that the row is there. MySQL has no such
/// triggers.
mod a_row_that_the_database_silently_leaves_out_is_told_of {
    use super::*;

    #[tokio::test]
    async fn sqlite() {
        support::with(Db::sqlite(), what_is_ignored_is_told).await;
    }

    #[tokio::test]
    async fn postgres() {
        support::with(Db::postgres().await, what_is_ignored_is_told).await;
    }
}

/// MariaDB crashes when it executes a prepared statement again that was interrupted while it planned it.
#[tokio::test]
async fn a_statement_that_failed_is_prepared_anew() {
    static LOCK: Statement = Statement::new(
        "LOCK",
        "SELECT 1 AS it FROM ductwork_definitions LIMIT :n FOR UPDATE NOWAIT",
    );
    static CLOSED: Statement = Statement::only(
        Only::Mysql,
        "CLOSED",
        "SHOW SESSION STATUS WHERE Variable_name = 'Com_stmt_close'",
    );
    async fn closed(conn: &mut Conn) -> u64 {
        let row = conn.fetch_optional(&CLOSED, &[]).await.unwrap().unwrap();
        row.get::<String>("Value").unwrap().parse().unwrap()
    }
    support::with(Db::mysql().await, |db| async move {
        let (mut holder, mut conn) = (db.conn().await, db.conn().await);
        let one = "INSERT INTO ductwork_definitions VALUES ('a', 'b', 'c', 1)";
        holder.script("ONE", one).await.unwrap();
        let all: &[(&str, Arg<'_>)] = &[("n", 1_i64.into())];
        assert_eq!(conn.fetch(&LOCK, all).await.unwrap().len(), 1);
        holder.script("BEGIN", "START TRANSACTION").await.unwrap();
        holder.fetch(&LOCK, all).await.unwrap();
        let before = closed(&mut conn).await;
        let locked = conn.fetch(&LOCK, all).await.err().unwrap();
        assert!(matches!(locked, Error::Retryable { .. }), "{locked:?}");
        assert_eq!(closed(&mut conn).await, before + 1);
        holder.script("ROLLBACK", "ROLLBACK").await.unwrap();
        for _ in 0..2 {
            assert_eq!(conn.fetch(&LOCK, all).await.unwrap().len(), 1);
        }
        assert_eq!(closed(&mut conn).await, before + 1);
        holder.close().await;
        conn.close().await;
    })
    .await;
}

on_servers! {
    /// A person, or a tool, ends queries of which it does not know that they are short.
    async fn a_query_that_somebody_ends_ends_no_command(db: Db) {
        static SLOW: Statement = Statement::new("SLOW", "SELECT 1 AS it FROM pg_sleep(0.1)");
        static SLOW_ON_MYSQL: Statement = Statement::only(
            Only::Mysql,
            "SLOW_ON_MYSQL",
            "SELECT 1 AS it FROM ductwork_definitions WHERE sleep(0.1) = 0",
        );
        static ENDED: Statement = Statement::new(
            "ENDED",
            "SELECT pg_cancel_backend(pid) AS it FROM pg_stat_activity
              WHERE datname = current_database() AND state = 'active' AND query LIKE '%pg_sleep(0.1)%'
                AND pid <> pg_backend_pid()",
        );
        static QUERIES: Statement = Statement::only(
            Only::Mysql,
            "QUERIES",
            "SELECT CAST(ID AS SIGNED) AS id FROM information_schema.PROCESSLIST
              WHERE DB = DATABASE() AND INFO LIKE '%sleep(0.1)%' AND ID <> CONNECTION_ID()",
        );
        let (mut conn, mut other) = (db.conn().await, db.conn().await);
        let one = "INSERT INTO ductwork_definitions VALUES ('a', 'b', 'c', 1)";
        conn.script("ONE", one).await.unwrap();
        take_failed();
        let failed = std::cell::Cell::new(0);
        // A query may be over by the time when it is ended: then another one is.
        let ends = async {
            while failed.get() == 0 {
                loop {
                    let is_ended = match other.dialect() {
                        Dialect::Mysql => match other.fetch(&QUERIES, &[]).await.unwrap().first() {
                            Some(query) => {
                                let kill = format!("KILL QUERY {}", query.get::<i64>("id").unwrap());
                                other.script("KILL", kill.leak()).await.is_ok()
                            }
                            None => false,
                        },
                        _ => !other.fetch(&ENDED, &[]).await.unwrap().is_empty(),
                    };
                    if is_ended || failed.get() > 0 {
                        break;
                    }
                }
                // The time for the same query once more, which is not ended.
                tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            }
        };
        let slow = match conn.dialect() {
            Dialect::Mysql => &SLOW_ON_MYSQL,
            _ => &SLOW,
        };
        let queries = async {
            while failed.get() == 0 {
                let found = conn.fetch(slow, &[]).await;
                let found = found.map_err(|error| format!("{error:?}"));
                assert_eq!(found.unwrap().len(), 1);
                failed.set(take_failed().iter().sum::<u64>());
            }
        };
        tokio::join!(ends, queries);
    }
}
