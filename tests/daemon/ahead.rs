//! Executions that a worker has claimed beyond its slots: none is lost when the worker goes.

use std::time::{Duration, Instant};

use ductwork::model::{Role, RunStatus};
use ductwork::store::statement::Statement;
use nix::sys::signal::Signal;

use crate::fixture::*;
use crate::foreign::Foreign;
use crate::support::Db;
use crate::{on_every_database, on_servers};

/// Quick steps, so that their worker claims ahead; but one input kills the worker that runs it.
const POISON: &str = r#"
pipeline: Poison
steps:
  A: { command: [sh, -c, 'read x; [ "$x" != 0 ] && kill -9 $PPID; echo 0'] }
flow: [{ start: A }]
"#;

/// Quick steps, followed by a slow one: executions claimed behind the slow one wait in vain.
const UNEVEN: &str = r#"
pipeline: Uneven
steps:
  A: { command: [sh, -c, 'read x; [ "$x" != 0 ] && { echo up >> slow; until [ -e go$x ]; do sleep 0.1; done; }; echo 0'] }
flow: [{ start: A }]
"#;

/// A pipeline with a backlog.
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
    /// In a backlog a claim begins where the last one ended. Rows that were locked then, or were
    /// written by a slow transaction, come before that place.
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
        let mut fixture = DaemonFixture::new(&db, Settings { count: 2, ..Settings::default() }, &[MANY]).await;
        fixture.trigger("Many", "0", 600).await;
        let mut daemon = fixture.start();
        let waiting = async |fixture: &mut DaemonFixture| {
            let row = fixture.conn.fetch_optional(&WAITING, &[]).await.unwrap().unwrap();
            row.get::<i64>("n").unwrap()
        };
        eventually(PATIENCE, "it works", async || (waiting(&mut fixture).await < 580).then_some(())).await;
        fixture.trigger("Many", "1", 1).await;
        let moved = fixture.conn.execute(&BEFORE, &[]).await.unwrap();
        assert_eq!(moved, 1, "it was claimed at once: the test is empty");
        fixture.said("others", 1).await;
        let left = waiting(&mut fixture).await;
        assert!(left > 200, "it had to wait for all before it: {left}");
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    /// An execution that waited in the worker that died was never run, and that does not count against it again and
    /// again: only the step that kills is out of budget.
    async fn a_step_that_kills_its_worker_takes_nobody_along(db: Db) {
        let mut fixture = DaemonFixture::new(&db, one_slot(), &[POISON]).await;
        let mut daemon = fixture.start();
        // Until a worker that is ahead of its slot claims it with others behind it: on a busy machine its steps take
        // too long for that.
        for round in 1.. {
            assert!(round <= 30, "its worker was never ahead of its slot: the test is empty");
            daemon.send(Signal::SIGTSTP);
            fixture.trigger("Poison", "0", 60).await;
            let poison = fixture.trigger("Poison", "1", 1).await[0];
            fixture.trigger("Poison", "0", 60).await;
            daemon.send(Signal::SIGCONT);
            let ended = fixture.ended(PATIENCE).await;
            let completed = ended.iter().filter(|status| **status == RunStatus::Completed);
            assert_eq!((completed.count(), ended.len()), (120 * round, 121 * round));
            let executions = fixture.executions().await;
            let crashed: Vec<&Execution> =
                executions.iter().filter(|e| e.result() == "process_crashed").collect();
            let run = ductwork::store::query::run_state(&mut fixture.conn, poison).await;
            assert_eq!(run.unwrap().unwrap().status, RunStatus::Halted);
            // The other executions died with it once, and then ran by themselves.
            let again = crashed.iter().filter(|e| e.crash_count > 0);
            assert_eq!(again.count(), 2 * round, "{crashed:#?}");
            if crashed.len() > 3 * round {
                break;
            }
        }
        daemon.stop().await;
        fixture.audited().await;
    }

    /// A slow step holds the only slot: after a moment the other executions are put back, which counts as no attempt.
    async fn what_waits_behind_a_slow_step_is_put_back(db: Db) {
        let mut fixture = DaemonFixture::new(&db, one_slot(), &[UNEVEN]).await;
        let mut daemon = fixture.start();
        // Until an execution waits behind it: on a busy machine nothing is claimed ahead.
        for round in 1.. {
            assert!(round <= 30, "its worker was never ahead of its slot: the test is empty");
            daemon.send(Signal::SIGTSTP);
            fixture.trigger("Uneven", "0", 60).await;
            fixture.trigger("Uneven", &round.to_string(), 1).await;
            fixture.trigger("Uneven", "0", 60).await;
            daemon.send(Signal::SIGCONT);
            fixture.said("slow", round).await;
            let slow = Instant::now();
            while daemon.logged("put back").is_empty() && slow.elapsed() < Duration::from_secs(1) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            if !daemon.logged("put back").is_empty() {
                break;
            }
            std::fs::write(fixture.path(&format!("go{round}")), "").unwrap();
            fixture.completed(PATIENCE).await;
        }
        let executions = fixture.executions().await;
        let open = |e: &&Execution| e.result.is_none();
        let held = executions.iter().filter(open).filter(|e| e.process_id.is_some());
        assert_eq!(held.count(), 1);
        let tried_again = executions.iter().filter(|e| e.attempt > 1);
        assert_eq!(tried_again.count(), 0);
        daemon.stop().await;
        fixture.audited().await;
    }
}

async fn what_is_due_is_locked(db: Db) {
    let settings = Settings {
        reaper_timeout: "2s",
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::new(&db, settings, &[MANY]).await;
    fixture.trigger("Many", "0", 1).await;
    let mut foreign = Foreign::on(&db.url).await;
    foreign.lock_rows("ductwork_availabilities").await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    let mut sent = async || {
        let rows = fixture.processes().await;
        let worker = rows.iter().find(|row| row.role == Role::Worker);
        worker.map(|row| row.counters.statements)
    };
    // The worker has begun to try, and its counters are written with each heartbeat.
    let first = eventually(PATIENCE, "it has tried", async || {
        sent().await.filter(|sent| *sent > 20)
    });
    let first = first.await;
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let more = sent().await.unwrap() - first;
    let per_second = more as f64 / began.elapsed().as_secs_f64();
    eprintln!("{per_second:.0} statements per second, heartbeats included");
    assert!(per_second < 40.0, "{per_second}");
    foreign.release().await;
    let freed = Instant::now();
    fixture.completed(PATIENCE).await;
    eprintln!("went on after {:?}", freed.elapsed());
    assert!(freed.elapsed() < Duration::from_secs(10));
    daemon.stop().await;
    fixture.succeeded_once_each().await;
    fixture.audited().await;
}

on_servers! {
    /// A foreign session locks the only row of the queue for as long as it likes. (SQLite locks no rows.)
    async fn what_somebody_has_locked_is_not_asked_for_all_the_time(db: Db) {
        what_is_due_is_locked(db).await;
    }
}
