//! One role per process, without a supervisor: containers of one process.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::house::*;
use crate::on_every_database;
use crate::support::Db;

const WAITING: &str = r#"
pipeline: Waiting
steps:
  Wait:
    command:
      - sh
      - -c
      - |
        [ $DUCTWORK_ATTEMPT -gt 1 ] && exit 0
        echo $$ >> pids
        setsid sleep 1000 & echo $! >> strays
        sleep 1000
  After: { command: [cat] }
flow: [{ start: Wait }, { chain: { to: After, delay: 10ms } }]
"#;

const ADVANCER: [&str; 2] = ["env", "DUCTWORK_ROLE=advancer"];
const WORKER: [&str; 2] = ["env", "DUCTWORK_ROLE=worker"];

on_every_database! {
    async fn roles_without_a_supervisor_recover_each_other_and_end_cleanly(db: Db) {
        let settings = Settings { reaper_timeout: "2s", max_retry: 0, ..Settings::default() };
        let mut house = House::new(&db, settings, &[WAITING]).await;
        let mut advancer = house.start_as(&ADVANCER, &["start"]);
        advancer.says("registered").await;
        let mut worker = house.start_as(&WORKER, &["start"]);
        house.trigger("Waiting", "1", 2).await;
        let steps = house.pids("pids", 2).await;
        // Nobody has forked anybody.
        assert_eq!(advancer.processes().len(), 1);
        worker.send(Signal::SIGKILL);
        worker.ended(PATIENCE).await;
        for pid in steps {
            gone(pid, Duration::from_secs(2)).await;
        }
        // The advancer gives back what the worker held, and nobody needs to have waited for it.
        let began = Instant::now();
        advancer.says("recovered what a dead process held").await;
        eprintln!("recovered after {:?}", began.elapsed());

        let mut worker = house.start_as(&WORKER, &["start"]);
        house.completed(PATIENCE).await;
        worker.stop().await;
        advancer.stop().await;
        let executions = house.succeeded_once_each().await;
        let crashed = executions.iter().filter(|e| e.result() == "process_crashed");
        assert_eq!(crashed.count(), 2, "{executions:#?}");
        assert!(house.processes().await.is_empty());
        house.audited().await;
    }

    async fn a_worker_without_a_supervisor_takes_in_what_its_killed_steps_leave(db: Db) {
        let settings = Settings { shutdown_timeout: "300ms", max_retry: 0, ..Settings::default() };
        let mut house = House::new(&db, settings, &[WAITING]).await;
        let mut advancer = house.start_as(&ADVANCER, &["start"]);
        let mut worker = house.start_as(&WORKER, &["start"]);
        house.trigger("Waiting", "1", 2).await;
        house.pids("pids", 2).await;
        let strays = house.pids("strays", 2).await;
        worker.send(Signal::SIGTERM);
        worker.says("step did not succeed").await;
        worker.ended(PATIENCE).await;
        for pid in strays {
            gone(pid, Duration::from_secs(2)).await;
        }
        worker.gone(Duration::ZERO).await;
        advancer.stop().await;
        let executions = house.executions().await;
        let released = executions.iter().filter(|e| e.result() == "released");
        assert_eq!(released.count(), 2, "{executions:#?}");
        house.audited().await;
    }
}
