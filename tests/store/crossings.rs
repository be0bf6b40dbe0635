//! A transition has the same rows whichever process makes it: a worker with its commit, or the advancer
//! afterwards.

use ductwork::definition::{Definition, Pipeline};
use ductwork::model::RunId;
use ductwork::store::claim::Claimed;
use ductwork::store::statement::Statement;
use serde_json::json;

use crate::driver::{Did, Driver};
use crate::on_every_database;
use crate::support::Db;

/// The rows of a run, without ids and times, which only show whether they are set.
static ROWS: Statement = Statement::new(
    "test rows of a run",
    "SELECT 'run ' || status || coalesce(' ' || output, '')
            || CASE WHEN completed_at IS NULL THEN '' ELSE ' ended' END AS line
       FROM ductwork_runs WHERE id = :run
     UNION ALL
     SELECT 'branch ' || b.ordinal || ' ' || b.status || coalesce(' ' || b.output, '')
            || CASE WHEN b.fan_out_id IS NULL THEN '' ELSE ' in a fan-out' END
            || CASE WHEN b.ready_at IS NULL THEN '' ELSE ' ready' END
            || CASE WHEN b.claim_token IS NULL THEN '' ELSE ' claimed' END
            || ' at ' || s.node || ' ' || s.ordinal
       FROM ductwork_branches b JOIN ductwork_steps s ON s.id = b.step_id WHERE b.run_id = :run
     UNION ALL
     SELECT 'fan-out of ' || width || ', ' || arrived || ' arrived, ' || halted || ' halted'
            || CASE WHEN fired_at IS NULL THEN '' ELSE ', fired' END
       FROM ductwork_fan_outs WHERE run_id = :run
     UNION ALL
     SELECT 'step ' || b.ordinal || '.' || s.ordinal || ' ' || s.node || ' ' || s.step || ' ' || s.via || ' '
            || s.status || ' ' || s.input || coalesce(' ' || s.output, '')
            || CASE WHEN s.transition_id IS NULL THEN '' ELSE ' by a transition' END
            || CASE WHEN s.completed_at IS NULL THEN '' ELSE ' ended' END
       FROM ductwork_steps s JOIN ductwork_branches b ON b.id = s.branch_id WHERE s.run_id = :run
     UNION ALL
     SELECT 'execution of ' || s.node || ' ' || b.ordinal || ' is ' || e.attempt || ' ' || e.retry_count || ' '
            || e.crash_count || ' ' || coalesce(e.result, 'open')
            || CASE WHEN a.execution_id IS NULL THEN '' ELSE ' queued' END
       FROM ductwork_executions e JOIN ductwork_steps s ON s.id = e.step_id
       JOIN ductwork_branches b ON b.id = s.branch_id
       LEFT JOIN ductwork_availabilities a ON a.execution_id = e.id WHERE s.run_id = :run
     UNION ALL
     SELECT 'transition from ' || s.node || ' ' || b.ordinal || ' is ' || coalesce(t.via, 'open') || ' '
            || coalesce(t.produced, -1) || ' ' || t.retry_count || ' ' || t.crash_count
            || CASE WHEN t.completed_at IS NULL THEN '' ELSE ' ended' END
       FROM ductwork_transitions t JOIN ductwork_steps s ON s.id = t.from_step_id
       JOIN ductwork_branches b ON b.id = t.branch_id WHERE t.run_id = :run
     UNION ALL
     SELECT 'advancement of ' || b.ordinal || ' is ' || coalesce(a.result, 'open') || ' ' || a.crash_count
       FROM ductwork_advancements a JOIN ductwork_transitions t ON t.id = a.transition_id
       JOIN ductwork_branches b ON b.id = a.branch_id WHERE t.run_id = :run
     ORDER BY line",
);

/// Stores a result as a worker does that leaves every transition to the advancer.
static LEFT_TO_THE_ADVANCER: [Statement; 3] = [
    Statement::new(
        "test end an execution",
        "UPDATE ductwork_executions SET completed_at = 9, result = 'success' WHERE step_id = :step",
    ),
    Statement::new(
        "test end a step",
        "UPDATE ductwork_steps SET status = 'advancing', output = '7', completed_at = 9 WHERE id = :step",
    ),
    Statement::new(
        "test make a branch ready",
        "UPDATE ductwork_branches SET ready_at = 9 WHERE step_id = :step",
    ),
];

fn flow() -> Definition {
    let pipeline = Pipeline::named("P").start("A").chain("B").expand("C");
    pipeline.chain("D").collapse("E").build().unwrap()
}

/// Executes a run; returns the rows that it has after each step.
async fn worked(driver: &mut Driver, run: RunId, by_the_advancer: bool) -> Vec<Vec<String>> {
    let mut seen = Vec::new();
    loop {
        let claimed = driver.claim("P", 1).await;
        let Ok([claimed]) = <[Claimed; 1]>::try_from(claimed) else {
            return seen;
        };
        // A spread is the advancer's work in any case.
        let simple = claimed.node != "B";
        if by_the_advancer && simple {
            for statement in &LEFT_TO_THE_ADVANCER {
                let args = [("step", claimed.step_id.0.into())];
                driver.conn.execute(statement, &args).await.unwrap();
            }
        } else {
            let value = if simple { json!(7) } else { json!([1, 2]) };
            let finished = driver.finished(claimed, Did::Returned(value)).await;
            driver.commit(&[finished]).await;
        }
        loop {
            let branches = driver.claim_branches(9).await;
            if branches.is_empty() {
                break;
            }
            driver.advance(&branches).await;
        }
        let rows = driver.rows(&ROWS, &[("run", run.0.into())]).await;
        let lines = rows.iter().map(|row| row.get::<String>("line").unwrap());
        seen.push(lines.collect());
    }
}

on_every_database! {
    async fn a_transition_has_the_same_rows_whoever_makes_it(db: Db) {
        let mut driver = Driver::new(&db).await;
        let mut both = Vec::new();
        for by_the_advancer in [false, true] {
            let run = driver.trigger(&flow(), "1").await;
            both.push(worked(&mut driver, run, by_the_advancer).await);
        }
        let [by_workers, by_the_advancer] = &both[..] else {
            unreachable!("two runs")
        };
        // A, B, two times C and D, and E.
        assert_eq!(by_workers.len(), 7);
        for (by_workers, by_the_advancer) in by_workers.iter().zip(by_the_advancer) {
            assert_eq!(by_workers, by_the_advancer);
        }
        assert_eq!(by_workers.len(), by_the_advancer.len());
    }
}
