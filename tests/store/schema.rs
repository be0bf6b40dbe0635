//! The schema, and the tables beside the runs.

use std::cell::RefCell;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ductwork::definition::Pipeline;
use ductwork::model::{ProcessId, RunId, RunStatus};
use ductwork::store::statement::Statement;
use ductwork::store::trigger::{self, NewRun};
use ductwork::store::{Conn, context, migrate};
use serde_json::json;

use crate::driver::{Did, Driver, together};
use crate::on_every_database;
use crate::support::{self, Db};

/// A database as the first version made it.
async fn of_the_first_version(db: &Db) -> Conn {
    static RECORD: Statement = Statement::new(
        "RECORD_BY_HAND",
        "INSERT INTO ductwork_migrations (version, name, applied_at) VALUES (1, 'initial', 1)",
    );
    let mut conn = db.connect().await;
    let record = "CREATE TABLE ductwork_migrations
        (version bigint PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL)";
    conn.script("the record", record).await.unwrap();
    let first = migrate::MIGRATIONS[0].sql(conn.dialect());
    conn.script("the first version", first).await.unwrap();
    conn.execute(&RECORD, &[]).await.unwrap();
    conn
}

/// A session that reads for as long as it takes, like a dump.
async fn reader(db: &Db) -> Conn {
    let mut conn = db.connect().await;
    let read = "SET idle_in_transaction_session_timeout = 0; SET application_name = 'a_dump';
        BEGIN; SELECT count(*) FROM ductwork_processes";
    conn.script("READ", read).await.unwrap();
    conn
}

async fn a_migration_that_waits(db: Db) {
    static WRITE: Statement = Statement::new(
        "TEST_WRITE",
        "UPDATE ductwork_processes SET beat_seq = beat_seq + 1",
    );
    let mut conn = of_the_first_version(&db).await;
    let mut reader = reader(&db).await;
    let told = Rc::new(RefCell::new(Vec::new()));
    let heard = Rc::clone(&told);
    let migration = tokio::task::spawn_local(async move {
        let mut told = |waits: &str| heard.borrow_mut().push(waits.to_owned());
        let migrated = migrate::migrate_within(&mut conn, FOR_EVER, &mut told).await;
        migrated.expect("a schema").len()
    });
    let mut writer = db.connect().await;
    let mut longest = Duration::ZERO;
    while told.borrow().len() < 2 {
        assert!(
            !migration.is_finished(),
            "it waited for nobody: the test is empty"
        );
        let began = Instant::now();
        writer.execute(&WRITE, &[]).await.unwrap();
        longest = longest.max(began.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The migration gives up its place after two seconds; before that, the others would have waited
    // forever.
    assert!(
        longest < Duration::from_secs(10),
        "others waited for {longest:?}"
    );
    for waits in told.borrow().iter() {
        let says = [
            "migration 2 (epochs) waits for pid ",
            "(a_dump, idle in transaction, for ",
        ];
        assert!(says.iter().all(|part| waits.contains(part)), "{waits}");
    }

    let tried = Command::new(env!("CARGO_BIN_EXE_ductworkd"))
        .args(["migrate", "--wait", "1s"])
        .env("DATABASE_URL", &db.url)
        .output()
        .expect("it runs");
    assert_eq!(tried.status.code(), Some(1), "{tried:?}");
    let said = String::from_utf8(tried.stderr).unwrap();
    let last = said.lines().last().unwrap_or_default();
    let says = "error: migration 2 (epochs) was not applied, because others hold locks on our tables: pid ";
    assert!(last.starts_with(says) && last.contains("a_dump"), "{said}");

    reader.script("COMMIT", "COMMIT").await.unwrap();
    assert_eq!(migration.await.unwrap(), migrate::MIGRATIONS.len() - 1);
    migrate::check(&mut writer).await.unwrap();
}

/// The columns that a trigger writes and that the first version lacked.
const ADD_LATER: &str = "
    ALTER TABLE ductwork_runs ADD COLUMN trace_parent text;
    ALTER TABLE ductwork_runs ADD COLUMN trace_state text;
    ALTER TABLE ductwork_runs ADD COLUMN baggage text";

const DROP_LATER: &str = "
    ALTER TABLE ductwork_runs DROP COLUMN trace_parent;
    ALTER TABLE ductwork_runs DROP COLUMN trace_state;
    ALTER TABLE ductwork_runs DROP COLUMN baggage";

const FOR_EVER: Duration = Duration::from_secs(3600);

/// (On SQLite, readers do not block writers.)
#[tokio::test]
async fn a_migration_that_waits_for_a_reader_lets_the_others_go_on() {
    crate::support::with(Db::postgres().await, a_migration_that_waits).await;
}

/// The registration of the first version.
static REGISTER_OF_OLD: Statement = Statement::new(
    "REGISTER_OF_OLD",
    "INSERT INTO ductwork_processes
         (id, role, host, boot_id, pid_namespace, pid, pid_started_at, version, started_at, last_heartbeat_at)
     VALUES (:id, 'worker', 'here', 'boot', 'ns', 1, 1, '0.0.1', {now}, {now})",
);

on_every_database! {
    async fn four_supervisors_that_start_at_once_migrate_once(db: Db) {
        let migrations = together((0..4).map(|_| {
            let db = db.clone();
            async move {
                let mut conn = db.connect().await;
                let done = migrate::migrate(&mut conn).await.expect("a schema");
                migrate::check(&mut conn).await.expect("it is complete");
                done.len()
            }
        }));
        let applied: usize = migrations.await.into_iter().sum();
        assert_eq!(applied, migrate::MIGRATIONS.len());
    }

    async fn a_database_without_our_tables_is_not_checked_as_ours(db: Db) {
        let mut conn = db.connect().await;
        let error = migrate::check(&mut conn).await.expect_err("nothing is there");
        assert!(error.to_string().contains("ductworkd migrate"), "{error}");
    }

    async fn what_an_older_version_left_is_finished_by_this_one(db: Db) {
        let mut conn = of_the_first_version(&db).await;
        let definition = Pipeline::named("P").start("A").chain("B").build().unwrap();
        let new = [NewRun { key: None, input: "1" }];
        // The older version's statement is the present one without these columns.
        conn.script("older", ADD_LATER).await.unwrap();
        let runs = trigger::trigger(&mut conn, &definition, &new, Duration::ZERO).await.unwrap();
        conn.script("older", DROP_LATER).await.unwrap();
        let left = ProcessId::new();
        let registered = conn.execute(&REGISTER_OF_OLD, &[("id", left.0.into())]).await;
        assert_eq!(registered.unwrap(), 1);
        let error = migrate::check(&mut conn).await.expect_err("something is missing");
        assert!(error.to_string().contains("ductworkd migrate"), "{error}");

        let done = migrate::migrate(&mut conn).await.unwrap();
        assert_eq!(done.len(), migrate::MIGRATIONS.len() - 1);
        migrate::check(&mut conn).await.unwrap();
        let mut driver = Driver::new(&db).await;
        assert!(driver.recover(left).await.removed, "a process of the older version");
        assert_eq!(driver.work("P", |_| Did::Returned(json!(2))).await, ["A", "B"]);
        assert_eq!(driver.run(runs[0].run_id).await, (RunStatus::Completed, Some(json!(2))));
    }

    async fn context_keeps_the_last_value_and_the_first_time(db: Db) {
        let mut driver = Driver::new(&db).await;
        let definition = Pipeline::named("P").start("A").build().unwrap();
        let run = driver.trigger(&definition, "1").await;
        let conn = &mut driver.conn;
        assert!(context::set(conn, run, "k", "\"\\u0000\"").await.unwrap());
        let first = context::get(conn, run, "k").await.unwrap().expect("it was set");
        assert_eq!(first.value, "\"\\u0000\"");
        assert!(context::set(conn, run, "k", "2").await.unwrap());
        assert!(context::set(conn, run, "a", "[]").await.unwrap());
        let all = context::list(conn, run, "").await.unwrap();
        assert_eq!(all.iter().map(|t| t.key.as_str()).collect::<Vec<_>>(), ["a", "k"]);
        assert_eq!(all[1].value, "2");
        assert_eq!(all[1].first_set_at, first.first_set_at);
        assert!(all[1].last_set_at >= first.last_set_at);
        assert!(!context::set(conn, RunId::new(), "k", "1").await.unwrap());
    }
}

/// Nothing is made before the role has both rights.
#[tokio::test]
async fn a_role_that_may_make_no_tables_is_told_the_right_that_it_lacks() {
    support::with(Db::postgres().await, |db| async move {
        static SCHEMA: Statement =
            Statement::new("TEST_SCHEMA", "SELECT current_schema()::text AS name");
        let mut conn = db.connect().await;
        let row = conn.fetch_optional(&SCHEMA, &[]).await.unwrap().unwrap();
        let schema: String = row.get("name").unwrap();
        let role = format!("maker_{schema}");
        let run = async |conn: &mut Conn, sql: String| {
            conn.script("TEST_RIGHTS", sql.leak()).await.unwrap();
        };
        let become_it = format!("SET ROLE {role}");
        run(
            &mut conn,
            format!("CREATE ROLE {role}; GRANT {role} TO CURRENT_USER"),
        )
        .await;
        for (lacks, grant) in [
            (
                format!("has no schema that the role {role} may use"),
                "USAGE",
            ),
            (
                format!("the role {role} may not make tables in the schema {schema}"),
                "CREATE",
            ),
        ] {
            run(&mut conn, become_it.clone()).await;
            let refused = migrate::migrate(&mut conn).await;
            let told = refused.map(drop).expect_err("it lacks a right").to_string();
            assert!(told.contains(&lacks), "{told}");
            run(
                &mut conn,
                format!("RESET ROLE; GRANT {grant} ON SCHEMA {schema} TO {role}"),
            )
            .await;
        }
        run(&mut conn, become_it).await;
        migrate::migrate(&mut conn).await.expect("it may");
        run(
            &mut conn,
            format!("RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}"),
        )
        .await;
    })
    .await;
}
