//! Heartbeats, and the leases that they extend.

use std::time::{Duration, Instant};

use ductwork::definition::{Definition, Pipeline};
use ductwork::model::{Intake, ProcessId, Role};
use ductwork::store::process::{self, Counters, Orders};
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Dialect};
use sqlx::Connection;

use crate::driver::{Did, Driver, LEASE};
use crate::support::{self, Db};
use crate::{on_every_database, on_servers};

fn one() -> Definition {
    Pipeline::named("P").start("A").build().unwrap()
}

/// The end of each execution's lease, the earlier ones first; closed executions are included.
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
        // One execution is closed, one belongs to another process, and one must be extended.
        let run = driver.claim("P", 1).await.remove(0).run_id;
        let cancelled = ductwork::store::cancel::cancel(&mut other.conn, run).await.unwrap();
        assert!(matches!(cancelled, ductwork::store::cancel::Cancel::Done { .. }));
        other.claim("P", 1).await;
        let own = driver.claim("P", 1).await.remove(0);
        let before = leases(&mut driver.conn).await;
        assert_eq!(before.len(), 3);
        let held = process::hold_on(&mut driver.actor.conn, driver.actor.process, LEASE * 3).await.unwrap();
        assert_eq!(held.executions, [own.execution_id]);
        assert_eq!((held.executions_extended, held.branches.len()), (1, 0));
        let after = leases(&mut driver.conn).await;
        assert_eq!(after[..2], before[..2], "{before:?} {after:?}");
        assert!(after[2] > before[2] + LEASE.as_micros() as i64, "{before:?} {after:?}");
    }
}

/// Makes the process hold two executions, and two branches whose executions it has closed.
async fn at_work(driver: &mut Driver) {
    let claimed = driver.claim("P", 4).await;
    assert_eq!(claimed.len(), 4);
    let mut finished = Vec::new();
    for claimed in claimed.into_iter().take(2) {
        finished.push(driver.finished(claimed, Did::Returned(1.into())).await);
    }
    driver.commit(&finished).await;
    assert_eq!(driver.claim_branches(9).await.len(), 2);
}

/// Locks the rows of all executions and advancements except those that this process holds.
async fn lock_others(conn: &mut Conn, process: ProcessId) {
    static EXECUTIONS: Statement = Statement::new(
        "TEST_EXECUTIONS_OF_OTHERS",
        "SELECT id FROM ductwork_executions
          WHERE process_id IS NULL OR process_id <> :process OR completed_at IS NOT NULL",
    );
    static ADVANCEMENTS: Statement = Statement::new(
        "TEST_ADVANCEMENTS_OF_OTHERS",
        "SELECT transition_id AS id FROM ductwork_advancements
          WHERE process_id <> :process OR completed_at IS NOT NULL",
    );
    static LOCK_EXECUTION: Statement = Statement::new(
        "TEST_LOCK_EXECUTION",
        "SELECT id FROM ductwork_executions WHERE id = :id FOR UPDATE",
    );
    static LOCK_ADVANCEMENT: Statement = Statement::new(
        "TEST_LOCK_ADVANCEMENT",
        "SELECT id FROM ductwork_advancements WHERE transition_id = :id FOR UPDATE",
    );
    if conn.dialect() == Dialect::Mysql {
        // A setting that only MariaDB has.
        let stay = "SET SESSION /*M! idle_transaction_timeout = 0, */ sql_quote_show_create = 1";
        conn.script("SET", stay).await.unwrap();
    }
    conn.script("BEGIN", "START TRANSACTION").await.unwrap();
    for (all, lock) in [
        (&EXECUTIONS, &LOCK_EXECUTION),
        (&ADVANCEMENTS, &LOCK_ADVANCEMENT),
    ] {
        let found = conn
            .fetch(all, &[("process", process.0.into())])
            .await
            .unwrap();
        assert!(found.len() >= 2, "nothing to lock: the test is empty");
        for row in found {
            let id: uuid::Uuid = row.get("id").unwrap();
            assert_eq!(
                conn.fetch(lock, &[("id", id.into())]).await.unwrap().len(),
                1
            );
        }
    }
}

on_servers! {
    /// They look only at the rows that a process holds: a look at other rows would wait for the lock, and would cost
    /// more with every run that has ever existed.
    async fn neither_a_beat_nor_a_recovery_waits_for_a_lock_on_what_others_hold(db: Db) {
        let pipeline = Pipeline::named("P").start("A").divide(["B", "C"]).combine("D").build().unwrap();
        let mut dead = Driver::new(&db).await;
        let mut living = Driver::new(&db).await;
        for _ in 0..12 {
            dead.trigger(&pipeline, "1").await;
        }
        at_work(&mut dead).await;
        at_work(&mut living).await;
        let mut foreign = db.connect().await;
        lock_others(&mut foreign, dead.process).await;
        let held = process::hold_on(&mut dead.actor.conn, dead.actor.process, LEASE).await.unwrap();
        let counts = (held.executions.len(), held.executions_extended, held.branches.len());
        assert_eq!(counts, (2, 2, 2));
        let recovered = living.recover(dead.process).await;
        assert_eq!((recovered.closed.len(), recovered.advancements), (2, 2));
        foreign.script("COMMIT", "COMMIT").await.unwrap();
        living.audit().await;
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
        let heard = process::beat(
            &mut lifeline,
            driver.process,
            Role::Worker,
            counters,
            Intake::Open,
        )
        .await;
        assert_eq!(heard.unwrap().orders, Orders::Claim);
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
    // A server notices later that a connection is closed, and keeps the locks until then.
    let release = sqlx::raw_sql("COMMIT");
    sqlx::Executor::execute(&mut foreign, release)
        .await
        .unwrap();
    process::hold_on(&mut lifeline, driver.process, LEASE * 3)
        .await
        .unwrap();
    let after = leases(&mut lifeline).await;
    assert!(after.iter().all(|lease| !before.contains(lease)));
}

/// First the held rows are locked, and then the whole tables.
#[tokio::test]
async fn a_beat_waits_for_no_lock_on_what_the_process_holds() {
    support::with(Db::postgres().await, a_beat_waits_for_no_lock).await;
}

/// The channel belongs to the whole database, and the deployments in its other schemas are at work as well.
#[tokio::test]
async fn a_wakeup_is_not_heard_in_another_schema() {
    support::with(Db::postgres().await, |ours| async move {
        support::with(Db::postgres().await, |theirs| async move {
            let (mut own, mut other) = (ours.conn().await, theirs.conn().await);
            let mut heard = ours.location.listen("elsewhere").await.unwrap();
            other.notify("elsewhere", "theirs").await.unwrap();
            own.notify("elsewhere", "ours").await.unwrap();
            assert_eq!(heard.notified().await.unwrap(), "ours");
            assert_eq!(heard.notified_already(), None);
        })
        .await;
    })
    .await;
}
