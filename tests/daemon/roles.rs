//! One role per process, without a supervisor: containers of one process.

use std::time::{Duration, Instant};

use ductwork::store::Dialect;
use ductwork::store::statement::Statement;
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

/// A pipeline whose step tells its pid and waits for a file.
fn waits(name: &str) -> String {
    format!(
        "pipeline: {name}\n\
         steps: {{ Wait: {{ command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.01; done; cat'] }} }}\n\
         flow: [{{ start: Wait }}]\n"
    )
}

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

    /// Each is a process of its own to all others: its claims, its connections, its heartbeat. What one
    /// of them does not know after a lost connection is not what another one holds.
    async fn a_worker_of_several_pipelines_is_as_many_workers(db: Db) {
        let settings = Settings { max_retry: 0, ..Settings::default() };
        let mut house = House::new(&db, settings, &[&waits("One"), &waits("Two")]).await;
        let mut advancer = house.start_as(&ADVANCER, &["start"]);
        let mut worker = house.start_as(&WORKER, &["start"]);
        worker.says_times("registered", 2).await;
        advancer.says("registered").await;
        for pipeline in ["One", "Two"] {
            house.trigger(pipeline, "1", 1).await;
        }
        house.said("pids", 2).await;
        let mut kinds: Vec<_> = house.processes().await.into_iter().map(|row| row.pipeline).collect();
        kinds.sort();
        assert_eq!(kinds, [None, Some("One".to_owned()), Some("Two".to_owned())]);
        // Each of them loses its connection, with a step under way, and works on.
        if house.conn.dialect() == Dialect::Postgres {
            static CUT: Statement = Statement::new(
                "TEST_CUT",
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                  WHERE datname = current_database() AND pid <> pg_backend_pid()",
            );
            let cut = house.conn.fetch(&CUT, &[]).await.unwrap();
            // Of each of the worker's two: its lifeline's, and the one that works.
            assert!(cut.len() >= 4, "{}", cut.len());
        }
        for pipeline in ["One", "Two"] {
            house.trigger(pipeline, "1", 1).await;
        }
        house.said("pids", 4).await;
        std::fs::write(house.path("go"), "").unwrap();
        house.completed(PATIENCE).await;
        worker.stop().await;
        advancer.stop().await;
        let executions = house.succeeded_once_each().await;
        assert!(executions.iter().all(|e| e.attempt == 1), "{executions:#?}");
        assert_eq!(house.lines("pids").len(), 4, "a step has run twice");
        assert!(house.processes().await.is_empty());
        house.audited().await;
    }

    /// Woken by the trigger: the poll alone would take minutes.
    async fn each_pipeline_of_a_worker_hears_that_there_is_work(db: Db) {
        let mut house = House::new(&db, Settings::default(), &[&waits("One"), &waits("Two")]).await;
        house.variables.insert("DUCTWORK_JOB_WORKER__POLLING_TIMEOUT", "10m".to_owned());
        std::fs::write(house.path("go"), "").unwrap();
        let mut worker = house.start_as(&WORKER, &["start"]);
        worker.says_times("registered", 2).await;
        for round in 0..3 {
            for pipeline in ["One", "Two"] {
                let ended = house.run(&[], &["trigger", pipeline, "1", "--wait"]);
                assert!(ended.status.success(), "{round}: {ended:?}");
            }
        }
        worker.stop().await;
        house.audited().await;
    }

    async fn a_role_of_its_own_ends_when_no_work_is_left(db: Db) {
        let mut house = House::new(&db, Settings::default(), &[&waits("One"), &waits("Two")]).await;
        for pipeline in ["One", "Two"] {
            house.trigger(pipeline, "1", 3).await;
        }
        let verb = ["start", "--until-idle"];
        let mut worker = house.start_as(&WORKER, &verb);
        let mut advancer = house.start_as(&ADVANCER, &verb);
        house.said("pids", 6).await;
        assert!(worker.has_ended().is_none() && advancer.has_ended().is_none());
        std::fs::write(house.path("go"), "").unwrap();
        for daemon in [&mut worker, &mut advancer] {
            let (status, _) = daemon.ended(PATIENCE).await;
            assert_eq!(status.code(), Some(0), "{status}");
        }
        house.completed(PATIENCE).await;
        house.audited().await;
    }

    async fn a_stop_is_not_undone_by_a_word_that_comes_after_it(db: Db) {
        let mut house = House::new(&db, Settings::default(), &[&waits("One"), &waits("Two")]).await;
        let mut worker = house.start_as(&WORKER, &["start"]);
        house.trigger("One", "1", 1).await;
        house.said("pids", 1).await;
        // Read in the order of their numbers, which is this one.
        for signal in [Signal::SIGTERM, Signal::SIGTSTP, Signal::SIGTTIN] {
            worker.send(signal);
        }
        let dump = eventually(PATIENCE, "a dump", async || {
            let text = worker.text();
            text.contains("  mode ").then_some(text)
        })
        .await;
        assert!(dump.contains("  mode Drain"), "{dump}");
        std::fs::write(house.path("go"), "").unwrap();
        let (status, _) = worker.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{status}");
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
