//! The queue on PostgreSQL, where the planner may be misled and deleted rows may stay.

use std::time::Duration;

use ductwork::definition::{Definition, Pipeline};
use ductwork::store::Conn;
use ductwork::store::claim::{self, Claim, Rest};
use ductwork::store::cursor::Cursor;
use ductwork::store::definition::LeftOut;
use ductwork::store::process::Claimant;
use ductwork::store::statement::Statement;
use ductwork::store::trigger::{self, NewRun};

use crate::driver::{Driver, LEASE, audit};
use crate::support::Db;

fn one() -> Definition {
    Pipeline::named("P").start("A").build().unwrap()
}

/// The planner believes the queue to have one row, and runs the choosing subquery once per row: a
/// plain subquery then takes the whole queue. A claim's subquery is a CTE with a lock, which is never
/// merged into the surrounding statement (C7).
async fn the_statistics_are_old(db: Db) {
    static PLAIN: Statement = Statement::new(
        "TEST_PLAIN",
        "DELETE FROM ductwork_availabilities
          WHERE execution_id IN (SELECT execution_id FROM ductwork_availabilities
                                  WHERE pipeline = 'P' ORDER BY due_at, execution_id LIMIT 7
                                    FOR UPDATE SKIP LOCKED)
         RETURNING execution_id",
    );
    let mut driver = Driver::new(&db).await;
    driver.audited = false;
    driver.trigger(&one(), "1").await;
    driver.conn.script("ANALYZE", "ANALYZE").await.unwrap();
    let runs = vec![
        NewRun {
            key: None,
            input: "1"
        };
        99
    ];
    trigger::trigger(&mut driver.conn, &one(), &runs, Duration::ZERO)
        .await
        .unwrap();
    driver.conn.script("BEGIN", "BEGIN").await.unwrap();
    let plain = driver.conn.fetch(&PLAIN, &[]).await.unwrap().len();
    driver.conn.script("ROLLBACK", "ROLLBACK").await.unwrap();
    assert_eq!(plain, 100, "the planner is not misled: the test is empty");
    for _ in 0..10 {
        assert_eq!(driver.claim("P", 7).await.len(), 7);
    }
    let held = claim::held(&mut driver.actor.conn, driver.actor.process)
        .await
        .unwrap()
        .whole;
    assert_eq!(held.len(), 70);
    audit(&mut driver.conn).await;
}

#[tokio::test]
async fn a_claim_takes_no_more_than_it_asks_for_where_a_plain_subquery_takes_all() {
    crate::support::with(Db::postgres().await, the_statistics_are_old).await;
}

/// While a session reads for long, rows that were claimed meanwhile stay in PostgreSQL's index (D12).
/// Counts the index entries that the claims of a backlog read, each of which begins where the last
/// one ended.
async fn an_old_snapshot_is_held(db: Db) {
    static ANY: Statement = Statement::new("TEST_ANY", "SELECT count(*) AS n FROM ductwork_runs");
    static READ: Statement = Statement::new(
        "TEST_READ",
        "SELECT CAST(sum(idx_tup_read) AS bigint) AS n FROM pg_stat_user_indexes
          WHERE indexrelname = 'ductwork_availabilities_due'
            AND schemaname = current_schema()",
    );
    const RUNS: usize = 4_000;
    let mut driver = Driver::new(&db).await;
    driver.audited = false;
    let runs = vec![
        NewRun {
            key: None,
            input: "1"
        };
        RUNS
    ];
    trigger::trigger(&mut driver.conn, &one(), &runs, Duration::ZERO)
        .await
        .unwrap();
    let mut reader = db.conn().await;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ";
    reader.script("BEGIN", begin).await.unwrap();
    reader.fetch(&ANY, &[]).await.unwrap();
    let mut other = db.conn().await;
    let mut read = async |conn: &mut Conn| {
        conn.script("FLUSH", "SELECT pg_stat_force_next_flush()")
            .await
            .unwrap();
        conn.fetch(&ANY, &[]).await.unwrap();
        let row = other.fetch_optional(&READ, &[]).await.unwrap().unwrap();
        row.get::<i64>("n").unwrap()
    };
    let mut visited = Vec::new();
    for chained in [true, false] {
        let before = read(&mut driver.conn).await;
        let mut place = Cursor::FIRST;
        for _ in 0..RUNS / 2 / 20 {
            let (conn, process) = (&mut driver.actor.conn, driver.actor.process);
            let claimed = claim::claim_behind(
                conn,
                place,
                Claimant::new(process),
                "P",
                20,
                LEASE,
                &LeftOut::default(),
            )
            .await;
            let (Claim::Taken(taken), Rest { last, .. }) = claimed.unwrap() else {
                panic!("it lives")
            };
            assert_eq!(taken.len(), 20);
            assert!(last > place);
            if chained {
                place = last;
            }
        }
        visited.push(read(&mut driver.conn).await - before);
    }
    reader.script("ROLLBACK", "ROLLBACK").await.unwrap();
    let [chained, each_from_the_beginning] = visited[..] else {
        panic!("{visited:?}")
    };
    let taken = RUNS as i64 / 2;
    assert!(chained <= 2 * taken, "{chained} were visited for {taken}");
    assert!(
        each_from_the_beginning > 20 * taken,
        "nothing is kept: {each_from_the_beginning}"
    );
    audit(&mut driver.conn).await;
}

#[tokio::test]
async fn claims_in_a_backlog_visit_what_they_take_although_a_snapshot_is_held() {
    crate::support::with(Db::postgres().await, an_old_snapshot_is_held).await;
}
