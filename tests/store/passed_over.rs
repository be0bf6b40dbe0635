//! Work in passes over many rows: rows that fail hold up no others.

use std::time::Duration;

use ductwork::definition::{Definition, Pipeline, Question, Unanswered};
use ductwork::model::*;
use ductwork::store::cancel::unfinished;
use ductwork::store::cursor::Cursor;
use ductwork::store::prune::{Pruning, prune};
use ductwork::store::resume::Deadlines;
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Dialect, context};
use serde_json::json;

use crate::driver::{Did, Driver};
use crate::on_every_database;
use crate::support::Db;

/// Refuse to delete the runs of one pipeline, and to move its branches on when they wait for a person.
const POSTGRES: &str = "
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
CREATE TRIGGER refuse_run BEFORE DELETE ON ductwork_runs FOR EACH ROW
    WHEN (OLD.pipeline = 'Bad') EXECUTE FUNCTION refuse();
CREATE TRIGGER refuse_branch BEFORE UPDATE ON ductwork_branches FOR EACH ROW
    WHEN (OLD.pipeline = 'Bad' AND OLD.status = 'dampened') EXECUTE FUNCTION refuse();";

const SQLITE: &str = "
CREATE TRIGGER refuse_run BEFORE DELETE ON ductwork_runs WHEN OLD.pipeline = 'Bad'
    BEGIN SELECT RAISE(ABORT, 'not this one'); END;
CREATE TRIGGER refuse_branch BEFORE UPDATE ON ductwork_branches WHEN OLD.pipeline = 'Bad' AND OLD.status = 'dampened'
    BEGIN SELECT RAISE(ABORT, 'not this one'); END;";

const MYSQL: [&str; 2] = [
    "CREATE TRIGGER refuse_run BEFORE DELETE ON ductwork_runs FOR EACH ROW
         IF OLD.pipeline = 'Bad' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF",
    "CREATE TRIGGER refuse_branch BEFORE UPDATE ON ductwork_branches FOR EACH ROW
         IF OLD.pipeline = 'Bad' AND OLD.status = 'dampened' THEN
             SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF",
];

static ALLOW_POSTGRES: &str = "
DROP TRIGGER refuse_run ON ductwork_runs; DROP TRIGGER refuse_branch ON ductwork_branches;";
static ALLOW: [&str; 2] = ["DROP TRIGGER refuse_run", "DROP TRIGGER refuse_branch"];

static BEGIN_BAD: Statement = Statement::new(
    "TEST_BEGIN_BAD",
    "UPDATE ductwork_runs SET pruning_at = {now} WHERE pipeline = 'Bad'",
);
static LEAVE_OFF: Statement = Statement::new(
    "TEST_LEAVE_OFF",
    "UPDATE ductwork_runs SET cancelling_at = 5",
);
static PASS: Statement = Statement::new("TEST_PASS", "UPDATE ductwork_deadlines SET answer_by = 0");
static COUNTS: Statement = Statement::new(
    "TEST_COUNTS",
    "SELECT (SELECT count(*) FROM ductwork_runs) AS runs,
            (SELECT count(*) FROM ductwork_tuples) AS context,
            (SELECT count(*) FROM ductwork_deadlines) AS deadlines",
);

async fn script(conn: &mut Conn, statements: &[&'static str]) {
    for text in statements {
        let done = match conn.dialect() {
            Dialect::Mysql => {
                let statement = Statement::new("TEST_DEFINE", text);
                conn.execute(&statement, &[]).await.map(drop)
            }
            _ => conn.script("TEST_DEFINE", text).await,
        };
        done.unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

async fn refuse(conn: &mut Conn) {
    match conn.dialect() {
        Dialect::Postgres => script(conn, &[POSTGRES]).await,
        Dialect::Sqlite => script(conn, &[SQLITE]).await,
        Dialect::Mysql => script(conn, &MYSQL).await,
    }
}

async fn allow(conn: &mut Conn) {
    match conn.dialect() {
        Dialect::Postgres => script(conn, &[ALLOW_POSTGRES]).await,
        _ => script(conn, &ALLOW).await,
    }
}

async fn count(conn: &mut Conn, of: &str) -> i64 {
    let row = conn.fetch_optional(&COUNTS, &[]).await.unwrap().unwrap();
    row.get(of).unwrap()
}

fn one(pipeline: &str) -> Definition {
    Pipeline::named(pipeline).start("A").build().unwrap()
}

/// Runs of these pipelines that have ended, in this order.
async fn ended(driver: &mut Driver, pipelines: &[&str]) -> Vec<RunId> {
    let mut runs = Vec::new();
    for pipeline in pipelines {
        runs.push(driver.trigger(&one(pipeline), "1").await);
        driver.work(pipeline, |_| Did::Returned(json!(1))).await;
    }
    runs
}

/// Deletes until nothing is left to do or an error ends it.
async fn deleted(conn: &mut Conn, pruning: &mut Pruning) -> Result<u64, String> {
    loop {
        match pruning.step(conn).await {
            Ok(true) => {}
            Ok(false) => return Ok(pruning.runs),
            Err(error) => return Err(format!("{} {error:?}", pruning.runs)),
        }
    }
}

on_every_database! {
    async fn a_run_that_cannot_be_deleted_holds_back_no_other(db: Db) {
        let mut driver = Driver::new(&db).await;
        ended(&mut driver, &["P", "P", "Bad", "P", "P", "P", "Bad", "P"]).await;
        refuse(&mut driver.conn).await;
        // Also where its deletion has begun: such runs come first.
        for begun in [false, true] {
            if begun {
                driver.conn.execute(&BEGIN_BAD, &[]).await.unwrap();
                ended(&mut driver, &["P"; 6]).await;
            }
            let mut pruning = Pruning::of(Some(Duration::ZERO), 99);
            let error = deleted(&mut driver.conn, &mut pruning).await.unwrap_err();
            assert!(error.starts_with("6 ") && error.contains("not this one"), "{error}");
            assert_eq!(count(&mut driver.conn, "runs").await, 2);
        }
        allow(&mut driver.conn).await;
        assert_eq!(prune(&mut driver.conn, Duration::ZERO, 99).await.unwrap(), 2);
        driver.audit().await;
    }

    /// Each of them may take as long to fail as somebody holds a lock, so a look does not try them all.
    async fn behind_many_runs_that_cannot_be_deleted_the_next_look_goes_on(db: Db) {
        let mut driver = Driver::new(&db).await;
        ended(&mut driver, &["Bad"; 12]).await;
        ended(&mut driver, &["P"]).await;
        driver.conn.execute(&BEGIN_BAD, &[]).await.unwrap();
        refuse(&mut driver.conn).await;
        let mut pruning = Pruning::of(Some(Duration::ZERO), 99);
        assert!(deleted(&mut driver.conn, &mut pruning).await.is_err());
        assert_eq!(pruning.runs, 0);
        let mut looks = 1;
        while pruning.runs == 0 {
            pruning = Pruning::of(Some(Duration::ZERO), 99).behind(pruning.places);
            let error = deleted(&mut driver.conn, &mut pruning).await.unwrap_err();
            assert!(error.contains("not this one"), "{error}");
            looks += 1;
            assert!(looks < 5);
        }
        assert_eq!(count(&mut driver.conn, "runs").await, 12);
        // A person's deletion goes on at once.
        ended(&mut driver, &["P"]).await;
        assert!(prune(&mut driver.conn, Duration::ZERO, 99).await.is_err());
        assert_eq!(count(&mut driver.conn, "runs").await, 12);
    }

    async fn a_context_with_many_keys_is_deleted_in_parts(db: Db) {
        let mut driver = Driver::new(&db).await;
        let runs = ended(&mut driver, &["P"; 9]).await;
        for (at, run) in runs.iter().enumerate() {
            // One of them has more than go into a transaction; two others have as many together.
            let keys = [2, 0, 19, 3, 2, 3, 1, 0, 1][at];
            for key in 0..keys {
                context::set(&mut driver.conn, *run, &format!("k{key}"), "1").await.unwrap();
            }
        }
        for (branches, most) in [(1, 5), (9, 45)] {
            let mut pruning = Pruning::of(Some(Duration::ZERO), 4).by(branches);
            let mut before = [count(&mut driver.conn, "context").await, count(&mut driver.conn, "runs").await];
            while pruning.step(&mut driver.conn).await.unwrap() {
                let after = [count(&mut driver.conn, "context").await, count(&mut driver.conn, "runs").await];
                assert!(before[0] - after[0] <= most, "{before:?} {after:?}");
                driver.audit().await;
                before = after;
            }
            assert_eq!(pruning.runs, 4);
        }
        let mut pruning = Pruning::of(Some(Duration::ZERO), 4).by(2);
        while pruning.step(&mut driver.conn).await.unwrap() {}
        assert_eq!((pruning.runs, count(&mut driver.conn, "context").await), (1, 0));
    }

    async fn a_question_that_cannot_be_decided_holds_up_no_other(db: Db) {
        let mut driver = Driver::new(&db).await;
        let hour = Duration::from_secs(3_600);
        for at in 0..7 {
            let pipeline = if at == 2 { "Bad" } else { "P" };
            let question = Question::new("sure?").within(hour, Unanswered::Approve);
            let flow = Pipeline::named(pipeline).start("A").dampen(question);
            driver.trigger(&flow.chain("B").build().unwrap(), "1").await;
            driver.work(pipeline, |_| Did::Returned(json!(1))).await;
        }
        driver.conn.execute(&PASS, &[]).await.unwrap();
        refuse(&mut driver.conn).await;
        let mut decided = 0;
        let mut deadlines = Deadlines::behind(Cursor::FIRST);
        loop {
            let passed = deadlines.step(&mut driver.conn).await.unwrap();
            decided += passed.approved;
            if !passed.more {
                break;
            }
        }
        let error = deadlines.end().unwrap_err();
        assert!(format!("{error:?}").contains("not this one"), "{error:?}");
        assert_eq!((decided, count(&mut driver.conn, "deadlines").await), (6, 1));
        allow(&mut driver.conn).await;
        let passed = Deadlines::behind(Cursor::FIRST).step(&mut driver.conn).await.unwrap();
        assert_eq!((passed.approved, passed.more), (1, false));
    }

    async fn cancellations_that_cannot_be_finished_hide_no_others(db: Db) {
        let mut driver = Driver::new(&db).await;
        let mut runs = Vec::new();
        for _ in 0..23 {
            runs.push(driver.trigger(&one("P"), "1").await);
        }
        driver.conn.execute(&LEAVE_OFF, &[]).await.unwrap();
        let mut found = Vec::new();
        let mut place = Cursor::FIRST;
        for looked in [10, 10, 3] {
            let (some, next) = unfinished(&mut driver.conn, Duration::ZERO, place, 10).await.unwrap();
            assert_eq!(some.len(), looked);
            found.extend(some);
            place = next;
        }
        assert_eq!(found, runs);
        // And from the beginning again.
        let (some, _) = unfinished(&mut driver.conn, Duration::ZERO, place, 10).await.unwrap();
        assert_eq!(some, runs[..10]);
    }
}
