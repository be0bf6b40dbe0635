//! Work that somebody began and left half done: a daemon finishes it.

use std::time::Duration;

use ductwork::model::RunStatus;
use ductwork::store::cancel::Cancelling;
use ductwork::store::prune::Pruning;
use ductwork::store::statement::Statement;

use crate::house::*;
use crate::on_every_database;
use crate::support::Db;

/// Its branches run until they are let go.
const WIDE: &str = r#"
pipeline: Wide
steps:
  Many: { command: [echo, "[1,2,3,4]"] }
  B: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.05; done; cat'] }
  C: { command: [cat] }
flow: [{ start: Many }, { expand: B }, { collapse: C }]
"#;

/// Nobody has gone on with it for long.
static ABANDONED: Statement = Statement::new(
    "TEST_ABANDONED",
    "UPDATE ductwork_runs
        SET cancelling_at = CASE WHEN cancelling_at IS NOT NULL THEN 5 END,
            pruning_at = CASE WHEN pruning_at IS NOT NULL THEN 5 END",
);
static LEFT: Statement = Statement::new(
    "TEST_LEFT",
    "SELECT (SELECT count(*) FROM ductwork_runs WHERE pruning_at IS NOT NULL) AS half_pruned,
            (SELECT count(*) FROM ductwork_runs WHERE status = 'cancelled') AS cancelled,
            (SELECT count(*) FROM ductwork_runs) AS n",
);

on_every_database! {
    async fn what_was_left_half_done_is_finished_by_the_daemon(db: Db) {
        let settings = Settings { reaper_timeout: "4s", ..Settings::default() };
        let mut house = House::new(&db, settings, &[WIDE]).await;
        let mut daemon = house.start();
        house.trigger("Wide", "1", 1).await;
        house.pids("pids", 4).await;
        std::fs::write(house.path("go"), "").unwrap();
        house.completed(PATIENCE).await;
        std::fs::remove_file(house.path("go")).unwrap();
        let mut pruning = Pruning::of(Some(Duration::ZERO), 9).by(1);
        for _ in 0..3 {
            assert!(pruning.step(&mut house.conn).await.unwrap());
        }
        assert_eq!(pruning.runs, 0);
        let run = house.trigger("Wide", "1", 1).await[0];
        let pids = house.pids("pids", 8).await;
        let mut cancelling = Cancelling::of(run, 1);
        while cancelling.closed == 0 {
            assert_eq!(cancelling.step(&mut house.conn).await.unwrap(), None);
        }
        house.conn.execute(&ABANDONED, &[]).await.unwrap();
        let conn = &mut house.conn;
        eventually(PATIENCE, "both are finished", async || {
            let rows = conn.fetch(&LEFT, &[]).await.unwrap();
            let n = |column| rows[0].get::<i64>(column).unwrap();
            (n("half_pruned") == 0 && n("cancelled") == 1 && n("n") == 1).then_some(())
        })
        .await;
        for pid in &pids[4..] {
            gone(*pid, PATIENCE).await;
        }
        assert_eq!(house.ended(PATIENCE).await, [RunStatus::Cancelled]);
        daemon.stop().await;
        house.audited().await;
    }
}
