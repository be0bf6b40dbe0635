//! Rows that somebody has damaged: nothing can be claimed together with them.

use ductwork::model::{BranchId, ExecutionId};
use ductwork::store::statement::Statement;

use crate::fixture::*;
use crate::on_every_database;
use crate::outage::FAN;
use crate::support::Db;

/// A place in the queue of an execution that does not exist.
static QUEUE_NOTHING: Statement = Statement::new(
    "TEST_QUEUE_NOTHING",
    "INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at) VALUES (:id, 'Fan', 5)",
);
static TAKE_BACK: Statement = Statement::new(
    "TEST_TAKE_BACK",
    "DELETE FROM ductwork_availabilities WHERE execution_id = :id",
);

/// A branch that is to leave a step that has been left.
static ADD_BRANCH: Statement = Statement::new(
    "TEST_ADD_BRANCH",
    "INSERT INTO ductwork_branches (id, run_id, pipeline, status, step_id, ready_at)
     SELECT :id, run_id, pipeline, 'in_progress', step_id, 5 FROM ductwork_branches
      WHERE run_id = :run AND fan_out_id IS NULL",
);
static REMOVE_BRANCH: Statement = Statement::new(
    "TEST_REMOVE_BRANCH",
    "DELETE FROM ductwork_branches WHERE id = :id",
);

const LET_GO: &str = r#"
pipeline: LetGo
steps: { A: { command: [sh, -c, "echo >> started; until [ -e go ]; do sleep 0.1; done"] }, B: { command: ["true"] } }
flow: [{ start: A }, { chain: B }]
"#;

/// As if somebody had changed the branches by hand.
static END_BRANCHES: Statement = Statement::new(
    "TEST_END_BRANCHES",
    "UPDATE ductwork_branches SET status = 'cancelled'",
);
static MEND_BRANCHES: Statement = Statement::new(
    "TEST_MEND_BRANCHES",
    "UPDATE ductwork_branches SET status = 'in_progress' WHERE status = 'cancelled'",
);

on_every_database! {
    /// As many as the worker has slots.
    async fn results_that_cannot_be_stored_hold_up_no_others(db: Db) {
        let settings = Settings { count: 2, max_retry: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[LET_GO]).await;
        let mut daemon = fixture.start();
        let bad = fixture.trigger("LetGo", "1", 2).await;
        fixture.said("started", 2).await;
        assert_eq!(fixture.conn.execute(&END_BRANCHES, &[]).await.unwrap(), 2);
        std::fs::write(fixture.path("go"), "").unwrap();
        daemon.says("set results aside").await;
        for run in fixture.trigger("LetGo", "1", 20).await {
            fixture.run_ended(run).await;
        }
        eventually_every(SELDOM, PATIENCE, "`health` tells of it", async || {
            let health = fixture.run(&[], &["health"]);
            let said = String::from_utf8_lossy(&health.stderr).into_owned();
            let is_told = bad.iter().any(|run| said.contains(&run.to_string()));
            (!health.status.success() && said.contains("some results cannot be stored") && is_told).then_some(())
        })
        .await;
        assert_eq!(fixture.conn.execute(&MEND_BRANCHES, &[]).await.unwrap(), 2);
        for run in bad {
            fixture.run_ended(run).await;
        }
        eventually_every(SELDOM, PATIENCE, "`health` is content", async || {
            fixture.run(&[], &["health"]).status.success().then_some(())
        })
        .await;
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        // No wire takes the change by hand for one of ours.
        let audit = fixture.run(&[], &["audit"]);
        assert!(audit.status.success(), "{audit:?}");
    }

    /// A claim takes all or nothing, so it would fail again and again, for all runs of the pipeline.
    async fn an_execution_that_cannot_be_claimed_holds_up_no_other(db: Db) {
        let settings = Settings { count: 8, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[FAN]).await;
        let none = ExecutionId::new();
        let id = [("id", none.0.into())];
        fixture.conn.execute(&QUEUE_NOTHING, &id).await.unwrap();
        let runs = fixture.trigger("Fan", "1", 20).await;
        let mut daemon = fixture.start();
        for run in runs {
            fixture.run_ended(run).await;
        }
        let told = daemon.says("left out a row that cannot be claimed").await;
        assert!(told[0].to_string().contains(&none.to_string()), "{told:?}");
        fixture.conn.execute(&TAKE_BACK, &id).await.unwrap();
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    /// The advancer serves all pipelines.
    async fn a_branch_that_cannot_be_claimed_holds_up_no_other(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[FAN]).await;
        let mut daemon = fixture.start();
        let bad = fixture.trigger("Fan", "1", 1).await[0];
        fixture.run_ended(bad).await;
        daemon.stop().await;
        let none = BranchId::new();
        let args = [("id", none.0.into()), ("run", bad.0.into())];
        assert_eq!(fixture.conn.execute(&ADD_BRANCH, &args).await.unwrap(), 1);
        let runs = fixture.trigger("Fan", "1", 20).await;
        let mut daemon = fixture.start();
        for run in runs {
            fixture.run_ended(run).await;
        }
        let told = daemon.says("left out a row that cannot be claimed").await;
        assert!(told[0].to_string().contains(&none.to_string()), "{told:?}");
        fixture.conn.execute(&REMOVE_BRANCH, &args[..1]).await.unwrap();
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }
}
