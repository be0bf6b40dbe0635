//! The database's clock is set back; the rows look as if they had been written an hour ahead.

use std::time::Duration;

use ductwork::definition::Pipeline;
use ductwork::engine::actor::limits;
use ductwork::model::RunId;
use ductwork::store::advance::{self, GiveBack};
use ductwork::store::clock::{self, Overtaken, Rescheduling};
use ductwork::store::definition::LeftOut;
use ductwork::store::process;
use ductwork::store::recovery::{self, Death, Recovered};
use ductwork::store::statement::Statement;
use ductwork::store::trigger::{self, NewRun};
use ductwork::store::{Conn, claim, stuck};
use serde_json::json;

use crate::driver::{Did, Driver, LEASE};
use crate::on_every_database;
use crate::support::Db;

const HOUR: Duration = Duration::from_secs(3600);

/// Moves every stored time of this database, as if its clock had been an hour ahead.
async fn an_hour_ahead(conn: &mut Conn) {
    macro_rules! moved {
        ($($table:literal: $($column:literal),+;)*) => {[$(
            Statement::new(concat!("AHEAD ", $table), concat!(
                "UPDATE ", $table, " SET ", $($column, " = ", $column, " + 3600000000, ",)+ "id = id"
            ))
        ),*]};
    }
    static AHEAD: [Statement; 5] = moved! {
        "ductwork_runs": "triggered_at";
        "ductwork_steps": "created_at", "completed_at";
        "ductwork_executions": "claimed_at", "lease_until", "completed_at";
        "ductwork_branches": "ready_at", "last_advanced_at";
        "ductwork_processes": "started_at", "last_heartbeat_at";
    };
    static DUE: Statement = Statement::new(
        "AHEAD DUE",
        "UPDATE ductwork_availabilities SET due_at = due_at + 3600000000",
    );
    for statement in AHEAD.iter().chain([&DUE]) {
        conn.execute(statement, &[]).await.unwrap();
    }
}

async fn trigger(driver: &mut Driver, pipeline: &'static str, delay: Duration) -> RunId {
    let definition = Pipeline::named(pipeline)
        .start("A")
        .chain("B")
        .build()
        .unwrap();
    let runs = [NewRun {
        key: None,
        input: "1",
    }];
    let triggered = trigger::trigger(&mut driver.conn, &definition, &runs, delay);
    triggered.await.unwrap()[0].run_id
}

async fn wait(driver: &mut Driver, pipeline: &str) -> Duration {
    let wait = claim::next_due(&mut driver.conn, pipeline, &LeftOut::default())
        .await
        .unwrap();
    wait.expect("something waits")
}

/// Everything that is done once the clock was set back.
async fn was_set_back(conn: &mut Conn) -> Overtaken {
    all(conn, Rescheduling::by(1)).await
}

async fn all(conn: &mut Conn, mut rescheduling: Rescheduling) -> Overtaken {
    while rescheduling.step(conn).await.unwrap() {}
    rescheduling.overtaken()
}

on_every_database! {
    async fn what_was_due_before_the_clock_was_set_back_is_due_again(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.audited = false;
        driver.limits = limits(3, 1);
        driver.limits.backoff.initial = Duration::from_secs(60);
        driver.limits.backoff.max = Duration::from_secs(60);
        trigger(&mut driver, "Now", Duration::ZERO).await;
        trigger(&mut driver, "Delayed", 2 * HOUR).await;
        // One execution has failed, and waits for its second attempt.
        trigger(&mut driver, "Erred", Duration::ZERO).await;
        let claimed = driver.claim("Erred", 1).await.remove(0);
        let finished = driver.finished(claimed, Did::Erred).await;
        driver.commit(&[finished]).await;
        // One execution has succeeded, and its branch is ready to be advanced.
        let definition = Pipeline::named("Split").start("A").expand("B").collapse("C").build();
        driver.trigger(&definition.unwrap(), "1").await;
        let claimed = driver.claim("Split", 1).await.remove(0);
        let finished = driver.finished(claimed, Did::Returned(json!([1, 2]))).await;
        driver.commit(&[finished]).await;

        an_hour_ahead(&mut driver.conn).await;
        // Rows that are made from now on have correct times.
        trigger(&mut driver, "After", HOUR / 2).await;
        assert!(driver.claim("Now", 1).await.is_empty() && driver.claim_branches(1).await.is_empty());

        let overtaken = was_set_back(&mut driver.conn).await;
        assert_eq!((overtaken.executions, overtaken.branches), (3, 1));
        assert_eq!(overtaken.pipelines.into_iter().collect::<Vec<_>>(), ["Delayed", "Erred", "Now"]);
        let about = |wait: Duration, meant: Duration| wait.abs_diff(meant) < Duration::from_secs(30);
        let delayed = wait(&mut driver, "Delayed").await;
        assert!(about(delayed, 2 * HOUR), "{delayed:?}");
        let erred = wait(&mut driver, "Erred").await;
        assert!(about(erred, Duration::from_secs(60)), "{erred:?}");
        let after = wait(&mut driver, "After").await;
        assert!(about(after, HOUR / 2), "{after:?}");
        assert_eq!(driver.claim("Now", 1).await.len(), 1);
        assert_eq!(driver.claim_branches(1).await.len(), 1);
    }

    async fn where_the_clock_was_not_set_back_nothing_is_made_due(db: Db) {
        let mut driver = Driver::new(&db).await;
        trigger(&mut driver, "Now", Duration::ZERO).await;
        trigger(&mut driver, "Delayed", HOUR).await;
        let overtaken = was_set_back(&mut driver.conn).await;
        assert_eq!(overtaken, Overtaken::default());
        assert!(wait(&mut driver, "Delayed").await > HOUR / 2);
    }

    /// The clock went forth and back between two looks at it: only the branch shows that.
    async fn a_branch_that_was_given_back_while_the_clock_was_ahead_waits_no_longer_than_meant(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.audited = false;
        let definition = Pipeline::named("Split").start("A").expand("B").collapse("C").build();
        driver.trigger(&definition.unwrap(), "1").await;
        let claimed = driver.claim("Split", 1).await.remove(0);
        let finished = driver.finished(claimed, Did::Returned(json!([1, 2]))).await;
        driver.commit(&[finished]).await;
        // Nothing reveals this execution, unless something else does.
        trigger(&mut driver, "Now", Duration::ZERO).await;
        for meant in [Duration::ZERO, HOUR / 2] {
            let branches = driver.claim_branches(1).await;
            assert_eq!(branches.len(), 1);
            let unread = GiveBack::Unreadable { message: "newer", delay: meant };
            let given = advance::give_back(&mut driver.conn, &branches, unread, &|_, _| HOUR);
            given.await.unwrap();
            let mut rescheduling = Rescheduling::by(1);
            let found = clock::may_have_been_set_back(&mut driver.conn, &mut rescheduling);
            assert!(!found.await.unwrap());
            an_hour_ahead(&mut driver.conn).await;
            assert!(driver.claim_branches(1).await.is_empty());
            // A sweep looks only in this case.
            let seen = process::processes(&mut driver.conn).await.unwrap();
            assert!(seen[0].postponed, "{seen:?}");
            let found = clock::may_have_been_set_back(&mut driver.conn, &mut rescheduling);
            assert!(found.await.unwrap());
            let overtaken = all(&mut driver.conn, rescheduling).await;
            assert_eq!((overtaken.executions, overtaken.branches), (1, 1));
            let wait = advance::next_ready(&mut driver.conn).await.unwrap().unwrap();
            assert!(wait.abs_diff(meant) < Duration::from_secs(30), "{wait:?}");
        }
    }

    /// Each state of work alone: in the queue, held, ready, and held by an advancer.
    async fn work_in_any_state_may_be_stuck_and_none_cannot(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.audited = false;
        let definition = Pipeline::named("Split").start("A").expand("B").collapse("C").build();
        assert!(!stuck::may_be(&mut driver.conn).await.unwrap());
        assert!(!process::processes(&mut driver.conn).await.unwrap()[0].postponed);
        driver.trigger(&definition.unwrap(), "1").await;
        assert!(stuck::may_be(&mut driver.conn).await.unwrap(), "in the queue");
        let claimed = driver.claim("Split", 1).await.remove(0);
        assert!(stuck::may_be(&mut driver.conn).await.unwrap(), "held");
        let finished = driver.finished(claimed, Did::Returned(json!([1, 2]))).await;
        driver.commit(&[finished]).await;
        assert!(stuck::may_be(&mut driver.conn).await.unwrap(), "ready");
        let branches = driver.claim_branches(1).await;
        assert!(stuck::may_be(&mut driver.conn).await.unwrap(), "held by an advancer");
        driver.advance(&branches).await;
        driver.work("Split", |_| Did::Returned(json!(1))).await;
        assert!(!stuck::may_be(&mut driver.conn).await.unwrap());
    }

    async fn a_process_whose_heartbeat_is_later_than_now_can_be_declared_dead(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.audited = false;
        let run = trigger(&mut driver, "P", Duration::ZERO).await;
        assert_eq!(driver.claim("P", 1).await.len(), 1);
        an_hour_ahead(&mut driver.conn).await;
        let dead = driver.process;
        let row = process::processes(&mut driver.conn).await.unwrap().remove(0);
        assert!(row.last_heartbeat_at > row.seen_at && row.age == Duration::ZERO);
        let mut recover = async |beat_seq| {
            let death = Death::Witnessed { beat_seq, stale_after: LEASE };
            let limits = |_: &_, _: &str| limits(0, 2);
            recovery::recover(&mut driver.actor.conn, dead, death, &limits, &driver.actor.definitions).await.unwrap()
        };
        // It has beaten since the look.
        assert_eq!(recover(row.beat_seq - 1).await, Recovered::default());
        let recovered = recover(row.beat_seq).await;
        assert_eq!((recovered.removed, recovered.again), (true, 1), "{recovered:?}");
        driver.process = crate::driver::register(&mut driver.conn).await;
        driver.work("P", |_| Did::Returned(json!(1))).await;
        assert_eq!(driver.run(run).await.1, Some(json!(1)));
    }
}
