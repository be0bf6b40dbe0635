//! Costs in rows and round trips. These do not vary with the machine, so changing them is a
//! decision, and is documented in docs/performance.md.

use serde_json::json;

use ductwork::definition::{Definition, Pipeline};
use ductwork::model::{Intake, ProcessId, Role};
use ductwork::store::Conn;
use ductwork::store::process::{self, Counters, Orders};
use ductwork::store::statement::Statement;

use crate::driver::{Did, Driver};
use crate::on_every_database;
use crate::support::Db;

/// Rows inserted, updated or deleted by a connection to SQLite since it was opened.
static CHANGES: Statement = Statement::new("CHANGES", "SELECT total_changes() AS n");

async fn written(conn: &mut Conn) -> i64 {
    let row = conn.fetch_optional(&CHANGES, &[]).await.unwrap().unwrap();
    row.get("n").unwrap()
}

fn chain() -> Definition {
    Pipeline::named("P").start("A").chain("B").build().unwrap()
}

/// For a batch: the rows for each of its members, in addition to one for the process.
fn each(rows: i64, members: i64) -> i64 {
    assert_eq!((rows - 1) % members, 0, "{rows} rows");
    (rows - 1) / members
}

macro_rules! rows {
    ($driver:ident, $members:expr, $work:expr) => {{
        let before = written(&mut $driver.conn).await;
        let done = $work;
        let rows = written(&mut $driver.conn).await - before;
        (done, each(rows, $members))
    }};
}

#[tokio::test]
async fn rows_written_per_step_by_transition_on_sqlite() {
    let db = Db::sqlite();
    let mut driver = Driver::new(&db).await;
    driver.audited = false;
    let flow = Pipeline::named("P").start("A").divide(["B", "C"]);
    let divided = flow.combine("D").build().unwrap();
    let before = written(&mut driver.conn).await;
    driver.trigger(&chain(), "1").await;
    // The definition is stored once; a run consists of a run, a branch, a step, an execution and a
    // place in the queue.
    assert_eq!(written(&mut driver.conn).await - before, 1 + 5);
    driver.trigger(&chain(), "1").await;

    let (claimed, rows) = rows!(driver, 2, driver.claim("P", 2).await);
    assert_eq!(rows, 2, "a place in the queue, an execution");
    let mut finished = Vec::new();
    for claimed in claimed {
        finished.push(driver.finished(claimed, Did::Returned(json!(1))).await);
    }
    driver.room = 2;
    let (committed, rows) = rows!(driver, 2, driver.commit(&finished).await);
    assert_eq!(
        rows, 7,
        "execution, step, branch; step, execution, transition, advancement"
    );
    let mut finished = Vec::new();
    for claimed in committed.leased_next {
        finished.push(driver.finished(claimed, Did::Returned(json!(1))).await);
    }
    let (_, rows) = rows!(driver, 2, driver.commit(&finished).await);
    assert_eq!(
        rows, 6,
        "execution, step, branch; transition, advancement, run"
    );

    driver.room = 0;
    driver.trigger(&chain(), "1").await;
    let claimed = driver.claim("P", 1).await.remove(0);
    let finished = [driver.finished(claimed, Did::Returned(json!(1))).await];
    let (_, rows) = rows!(driver, 1, driver.commit(&finished).await);
    assert_eq!(rows, 8, "the same as with room, and a place in the queue");
    driver.limits.max_retry = 1;
    let claimed = driver.claim("P", 1).await.remove(0);
    let finished = [driver.finished(claimed, Did::Erred).await];
    let (_, rows) = rows!(driver, 1, driver.commit(&finished).await);
    assert_eq!(
        rows, 3,
        "execution; the next attempt and its place in the queue"
    );
    driver.work("P", |_| Did::Returned(json!(1))).await;

    driver.trigger(&divided, "1").await;
    let claimed = driver.claim("P", 1).await.remove(0);
    let finished = [driver.finished(claimed, Did::Returned(json!(1))).await];
    let (_, rows) = rows!(driver, 1, driver.commit(&finished).await);
    assert_eq!(rows, 3, "execution, step, branch");
    let (branches, rows) = rows!(driver, 1, driver.claim_branches(9).await);
    assert_eq!(rows, 3, "branch; transition, advancement");
    let before = written(&mut driver.conn).await;
    driver.advance(&branches).await;
    let rows = written(&mut driver.conn).await - before;
    // Branch, step, barrier, transition, advancement; for each path a branch, a step, an
    // execution and a place in the queue.
    assert_eq!(rows, 5 + 2 * 4);
    let claimed = driver.claim("P", 1).await.remove(0);
    let finished = [driver.finished(claimed, Did::Returned(json!(1))).await];
    let (_, rows) = rows!(driver, 1, driver.commit(&finished).await);
    assert_eq!(
        rows, 6,
        "execution, step, branch, transition, advancement, barrier"
    );
    driver.actor.conn.close().await;
}

/// The most round trips that a trigger, a claim and a commit take, for batches of every width.
struct Trips {
    trigger: u64,
    claim: u64,
    commit: u64,
}

async fn a_batch_costs_few_round_trips(db: Db, most: fn(bool) -> Trips) {
    static IS_MARIADB: Statement = Statement::new(
        "TEST_IS_MARIADB",
        "SELECT {big:CASE WHEN VERSION() LIKE '%MariaDB%' THEN 1 ELSE 0 END} AS it",
    );
    let mut driver = Driver::new(&db).await;
    driver.audited = false;
    let row = driver.conn.fetch_optional(&IS_MARIADB, &[]).await.unwrap();
    let most = most(row.unwrap().get::<i64>("it").unwrap() == 1);
    let within = |what: &str, took: u64, most: u64| {
        assert!((1..=most).contains(&took), "a {what} took {took}");
    };
    driver.trigger(&chain(), "1").await;
    for width in [1, 2, 100] {
        for _ in 1..width {
            driver.conn.take_statements();
            driver.trigger(&chain(), "1").await;
            within("trigger", driver.conn.take_statements(), most.trigger);
        }
        driver.conn.take_statements();
        let claimed = driver.claim("P", 500).await;
        within("claim", driver.conn.take_statements(), most.claim);
        assert_eq!(claimed.len() as u64, width);
        let mut finished = Vec::new();
        for claimed in claimed {
            finished.push(driver.finished(claimed, Did::Returned(json!(1))).await);
        }
        driver.room = 500;
        driver.conn.take_statements();
        let committed = driver.commit(&finished).await;
        within(
            "commit that crosses",
            driver.conn.take_statements(),
            most.commit,
        );
        assert_eq!(committed.leased_next.len() as u64, width);
        let mut finished = Vec::new();
        for claimed in committed.leased_next {
            finished.push(driver.finished(claimed, Did::Returned(json!(1))).await);
        }
        driver.commit(&finished).await;
        within(
            "commit that ends runs",
            driver.conn.take_statements(),
            most.commit,
        );
        driver.trigger(&chain(), "1").await;
    }
}

#[tokio::test]
async fn a_batch_costs_one_round_trip_whatever_its_width_on_postgres() {
    let body = |db| {
        a_batch_costs_few_round_trips(db, |_| Trips {
            trigger: 1,
            claim: 1,
            commit: 1,
        })
    };
    crate::support::with(Db::postgres().await, body).await;
}

/// A batch that only writes is one statement to MariaDB, including BEGIN and COMMIT. To MySQL each statement goes
/// alone, and is prepared before a connection first runs it.
#[tokio::test]
async fn a_batch_costs_a_few_round_trips_whatever_its_width_on_mysql() {
    let body = |db| {
        a_batch_costs_few_round_trips(db, |is_mariadb| match is_mariadb {
            true => Trips {
                trigger: 1,
                claim: 5,
                commit: 1,
            },
            false => Trips {
                trigger: 10,
                claim: 8,
                commit: 14,
            },
        })
    };
    crate::support::with(Db::mysql().await, body).await;
}

on_every_database! {
    /// A process that claims nothing needs no answer: the count of rows tells whether it was declared dead.
    async fn a_heartbeat_without_orders_is_one_statement(db: Db) {
        let mut driver = Driver::new(&db).await;
        let conn = &mut driver.actor.conn;
        for (process, heard) in [
            // MySQL prepares a statement when a connection first runs it.
            (driver.actor.process, Orders::Claim),
            (driver.actor.process, Orders::Claim),
            (ProcessId::new(), Orders::Dead),
        ] {
            conn.take_statements();
            let beaten = process::beat(conn, process, Role::Supervisor, Counters::default(), Intake::Open).await;
            assert_eq!(beaten.unwrap().orders, heard);
        }
        assert_eq!(conn.take_statements(), 1);
    }
}
