//! Heartbeats, and what they extend.

use std::time::{Duration, Instant};

use ductwork::definition::{Definition, Pipeline};
use ductwork::store::Conn;
use ductwork::store::process::{self, Counters, Heard};
use ductwork::store::statement::Statement;
use sqlx::Connection;

use crate::driver::{Driver, LEASE};
use crate::on_every_database;
use crate::support::{self, Db};

fn one() -> Definition {
    Pipeline::named("P").start("A").build().unwrap()
}

/// Until when each execution is leased, the sooner ones first; closed ones as well.
async fn leases(conn: &mut Conn) -> Vec<i64> {
    static LEASES: Statement = Statement::new(
        "TEST_LEASES",
        "SELECT lease_until FROM ductwork_executions WHERE lease_until IS NOT NULL
         UNION ALL SELECT lease_until FROM ductwork_advancements ORDER BY lease_until",
    );
    let rows = conn.fetch(&LEASES, &[]).await.unwrap();
    rows.iter()
        .map(|row| row.get("lease_until").unwrap())
        .collect()
}

on_every_database! {
    async fn a_beat_extends_what_is_open_and_its_own_and_nothing_else(db: Db) {
        let mut driver = Driver::new(&db).await;
        let mut other = Driver::new(&db).await;
        for _ in 0..3 {
            driver.trigger(&one(), "1").await;
        }
        // One that is closed, one of another process, and one that is to be extended.
        let run = driver.claim("P", 1).await.remove(0).run_id;
        let cancelled = ductwork::store::cancel::cancel(&mut other.conn, run).await.unwrap();
        assert!(matches!(cancelled, ductwork::store::cancel::Cancel::Done { .. }));
        other.claim("P", 1).await;
        let own = driver.claim("P", 1).await.remove(0);
        let before = leases(&mut driver.conn).await;
        assert_eq!(before.len(), 3);
        let held = process::hold_on(&mut driver.conn, driver.process, LEASE * 3).await.unwrap();
        assert_eq!(held.executions, [own.execution_id]);
        assert_eq!((held.executions_extended, held.advancements_extended), (1, 0));
        let after = leases(&mut driver.conn).await;
        assert_eq!(after[..2], before[..2], "{before:?} {after:?}");
        assert!(after[2] > before[2] + LEASE.as_micros() as i64, "{before:?} {after:?}");
    }
}

async fn a_beat_waits_for_no_lock(db: Db) {
    let lease = Duration::from_secs(8);
    let mut driver = Driver::new(&db).await;
    for _ in 0..2 {
        driver.trigger(&one(), "1").await;
    }
    let mut claimed = driver.claim("P", 9).await;
    claimed.sort_by_key(|claimed| claimed.execution_id.0);
    let before = leases(&mut driver.conn).await;
    let mut lifeline = db
        .location
        .clone()
        .leased(lease)
        .listen("test")
        .await
        .unwrap();
    let mut foreign = sqlx::PgConnection::connect(&db.url).await.unwrap();
    let first = claimed[0].execution_id.0;
    let rows = format!("BEGIN; SELECT FROM ductwork_executions WHERE id = '{first}' FOR UPDATE");
    let table = "LOCK TABLE ductwork_executions, ductwork_advancements IN SHARE MODE".to_owned();
    for (lock, extends) in [(rows, 1), (table, 0)] {
        let lock = sqlx::raw_sql(sqlx::AssertSqlSafe(lock));
        sqlx::Executor::execute(&mut foreign, lock).await.unwrap();
        let asked = Instant::now();
        let now = leases(&mut lifeline).await;
        let counters = Counters::default();
        let heard = process::beat(&mut lifeline, driver.process, counters, false).await;
        assert_eq!(heard.unwrap().heard, Heard::Claim);
        let held = process::hold_on(&mut lifeline, driver.process, LEASE * 3)
            .await
            .unwrap();
        assert_eq!(
            held.executions.len(),
            2,
            "what is locked was taken for lost"
        );
        assert!(asked.elapsed() < lease / 6 * 2, "{:?}", asked.elapsed());
        let then = leases(&mut lifeline).await;
        let extended = then.iter().filter(|lease| !now.contains(lease)).count();
        assert_eq!(extended, extends, "{before:?} {now:?} {then:?}");
    }
    drop(foreign);
    process::hold_on(&mut lifeline, driver.process, LEASE * 3)
        .await
        .unwrap();
    let after = leases(&mut lifeline).await;
    assert!(after.iter().all(|lease| !before.contains(lease)));
}

/// The row of what is held, and then the whole tables.
#[tokio::test]
async fn a_beat_waits_for_no_lock_on_what_the_process_holds() {
    support::with(Db::postgres().await, a_beat_waits_for_no_lock).await;
}
