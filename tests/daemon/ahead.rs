//! What a worker has claimed beyond its slots: it is nobody's loss when the worker goes.

use ductwork::model::RunStatus;
use ductwork::store::statement::Statement;

use crate::house::*;
use crate::on_every_database;
use crate::support::Db;

/// Quick, so that its worker claims ahead; but one input kills the worker that runs it.
const POISON: &str = r#"
pipeline: Poison
steps:
  A: { command: [sh, -c, 'read x; [ "$x" != 0 ] && kill -9 $PPID; echo 0'] }
flow: [{ start: A }]
"#;

/// Quick, and then not: what was claimed behind the slow one waits in vain.
const UNEVEN: &str = r#"
pipeline: Uneven
steps:
  A: { command: [sh, -c, 'read x; [ "$x" != 0 ] && { echo up >> slow; sleep 1000; }; echo 0'] }
flow: [{ start: A }]
"#;

/// Of which there are too many.
const MANY: &str = r#"
pipeline: Many
steps:
  A: { command: [sh, -c, 'read x; sleep 0.03; [ "$x" = 0 ] || echo "$x" >> others; echo 0'] }
flow: [{ start: A }]
"#;

fn one_slot() -> Settings {
    Settings {
        count: 1,
        max_crash: 3,
        shutdown_timeout: "1s",
        ..Settings::default()
    }
}

on_every_database! {
    /// In a backlog a claim begins where the last one ended. What was locked then, or was written by
    /// a transaction that took long, stands before that place.
    async fn what_comes_to_stand_before_the_last_claim_is_not_left_behind(db: Db) {
        static WAITING: Statement = Statement::new(
            "TEST_WAITING",
            "SELECT count(*) AS n FROM ductwork_availabilities",
        );
        static BEFORE: Statement = Statement::new(
            "TEST_BEFORE",
            "UPDATE ductwork_availabilities SET due_at = 5 WHERE execution_id IN
                (SELECT e.id FROM ductwork_executions e JOIN ductwork_steps s ON s.id = e.step_id
                  WHERE s.input = '1')",
        );
        let mut house = House::new(&db, Settings { count: 2, ..Settings::default() }, &[MANY]).await;
        house.trigger("Many", "0", 600).await;
        let mut daemon = house.start();
        let waiting = async |house: &mut House| {
            let row = house.conn.fetch_optional(&WAITING, &[]).await.unwrap().unwrap();
            row.get::<i64>("n").unwrap()
        };
        eventually(PATIENCE, "it works", async || (waiting(&mut house).await < 580).then_some(())).await;
        house.trigger("Many", "1", 1).await;
        let moved = house.conn.execute(&BEFORE, &[]).await.unwrap();
        assert_eq!(moved, 1, "it was claimed at once: the test is empty");
        house.said("others", 1).await;
        let left = waiting(&mut house).await;
        assert!(left > 200, "it had to wait for all before it: {left}");
        house.completed(PATIENCE).await;
        daemon.stop().await;
        house.succeeded_once_each().await;
        house.audited().await;
    }

    /// Whatever waited in the worker that died was never run, and is not held against it again
    /// and again: only the step that kills is out of budget.
    async fn a_step_that_kills_its_worker_takes_nobody_along(db: Db) {
        let mut house = House::new(&db, one_slot(), &[POISON]).await;
        house.trigger("Poison", "0", 60).await;
        let poison = house.trigger("Poison", "1", 1).await[0];
        house.trigger("Poison", "0", 60).await;
        let mut daemon = house.start();
        let ended = house.ended(PATIENCE).await;
        let completed = ended.iter().filter(|status| **status == RunStatus::Completed);
        assert_eq!((completed.count(), ended.len()), (120, 121));
        let executions = house.executions().await;
        let crashed: Vec<&Execution> =
            executions.iter().filter(|e| e.result() == "process_crashed").collect();
        let run = ductwork::store::query::run_state(&mut house.conn, poison).await;
        assert_eq!(run.unwrap().unwrap().status, RunStatus::Halted);
        // It had been claimed with others behind it: the worker was ahead of its slot.
        assert!(crashed.len() > 3, "{}", crashed.len());
        // They died with it once, and then ran by themselves.
        let again = crashed.iter().filter(|e| e.crash_count > 0);
        assert_eq!(again.count(), 2);
        daemon.stop().await;
        house.audited().await;
    }

    /// A slow step holds the only slot: after a moment the others are put back, which is no attempt.
    async fn what_waits_behind_a_slow_step_is_put_back(db: Db) {
        let mut house = House::new(&db, one_slot(), &[UNEVEN]).await;
        house.trigger("Uneven", "0", 60).await;
        house.trigger("Uneven", "1", 1).await;
        house.trigger("Uneven", "0", 60).await;
        let mut daemon = house.start();
        house.said("slow", 1).await;
        daemon.says("put back").await;
        let executions = house.executions().await;
        let open = |e: &&Execution| e.result.is_none();
        let held = executions.iter().filter(open).filter(|e| e.process_id.is_some());
        assert_eq!(held.count(), 1);
        let tried_again = executions.iter().filter(|e| e.attempt > 1);
        assert_eq!(tried_again.count(), 0);
        daemon.stop().await;
        house.audited().await;
    }
}
