//! What a worker has claimed beyond its slots: it is nobody's loss when the worker goes.

use ductwork::model::RunStatus;

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

fn one_slot() -> Settings {
    Settings {
        count: 1,
        max_crash: 3,
        shutdown_timeout: "1s",
        ..Settings::default()
    }
}

on_every_database! {
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
