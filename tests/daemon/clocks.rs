//! Clocks that are set while everything runs, and clocks that differ: no process is taken for dead.

use std::time::Duration;

use ductwork::store::Conn;
use ductwork::store::statement::Statement;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::clock::{Clock, SET};
use crate::fixture::*;
use crate::support::Db;
use crate::{on_every_database, on_servers};

const HOUR: i64 = 3600;

const LEASE: Duration = Duration::from_secs(6);

/// Beats per lease.
const BEATS: i64 = 6;

const WORK: &str = "
pipeline: Work
steps:
  A: { command: [sh, -c, 'sleep 0.1; cat'] }
  B: { command: [cat] }
  C: { command: [cat] }
flow: [{ start: A }, { divide: [B, C] }, { combine: C }, { chain: A }]
";

/// A step that runs until it is let go.
const HOLDING: &str = r#"
pipeline: Holding
steps: { A: { command: [sh, -c, 'echo x >> holds; until [ -e go ]; do sleep 0.1; done; cat'] } }
flow: [{ start: A }]
"#;

/// A step that sets the clock; its output is the clock's time before and after.
fn setting(by: i64) -> String {
    format!(
        r#"
pipeline: Setting
steps:
  A:
    command:
      - sh
      - -c
      - |
        {SET}
        before=$(date +%s)
        set_clock {by}
        echo "[$before, $(date +%s)]"
flow: [{{ start: A }}]
"#
    )
}

fn settings() -> Settings {
    Settings {
        reaper_timeout: "6s",
        max_retry: 0,
        max_crash: 0,
        ..Settings::default()
    }
}

async fn waiting(conn: &mut Conn) -> usize {
    static WAITING: Statement = Statement::new(
        "TEST_WAITING",
        "SELECT execution_id FROM ductwork_availabilities",
    );
    conn.fetch(&WAITING, &[]).await.expect("the queue").len()
}

/// Waits until every process has beaten for twice a lease.
async fn two_leases_pass(fixture: &mut DaemonFixture, pids: &[i32]) {
    let beats = async |fixture: &mut DaemonFixture| -> Vec<i64> {
        let rows = fixture.processes().await;
        let beat = |pid: &i32| {
            rows.iter()
                .find(|row| row.pid as i32 == *pid)
                .map(|row| row.beat_seq)
        };
        pids.iter()
            .map(|pid| beat(pid).expect("it is registered"))
            .collect()
    };
    let before = beats(fixture).await;
    tokio::time::sleep(LEASE * 2).await;
    eventually(PATIENCE, "all have beaten for two leases", async || {
        let now = beats(fixture).await;
        let all = now
            .iter()
            .zip(&before)
            .all(|(now, before)| *now > before + 2 * BEATS);
        all.then_some(())
    })
    .await;
}

/// The supervisor, the advancer and the workers.
async fn daemon_of(daemon: &Daemon, pipelines: &[&str]) -> Vec<i32> {
    let mut pids = vec![daemon.pid(), daemon.child("advancer", None).await];
    for pipeline in pipelines {
        pids.push(daemon.child(&format!("worker {pipeline}"), None).await);
    }
    pids
}

async fn the_clock_is_set(db: Db, by: i64) {
    let on_sqlite = db.url.starts_with("sqlite");
    let clock = Clock::new();
    let wrapper = clock.under();
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let mut fixture = DaemonFixture::new(&db, settings(), &[WORK, HOLDING, &setting(by)]).await;
    let mut daemon = fixture.start_as(&wrapper, &["start"]);
    daemon.ready().await;
    let pids = daemon_of(&daemon, &["Work", "Holding", "Setting"]).await;
    let governed = daemon.processes();
    assert!(
        governed.iter().all(|process| clock.governs(process.pid)),
        "{governed:#?}"
    );

    // Some executions run, some wait, and one is delayed.
    fixture.trigger("Holding", "1", 2).await;
    fixture.said("holds", 2).await;
    let delayed = fixture.run(&wrapper, &["trigger", "Work", "1", "--delay", "5s"]);
    assert!(delayed.status.success(), "{delayed:?}");
    fixture.trigger("Work", "1", 40).await;
    let set = fixture.trigger("Setting", "1", 1).await[0];
    fixture.run_ended(set).await;
    let queued = waiting(&mut fixture.conn).await;
    assert!(queued > 1, "nothing waited: the test is empty");
    let Value::Array(shown) = fixture.output(set).await else {
        panic!("no times")
    };
    let moved = shown[1].as_i64().unwrap() - shown[0].as_i64().unwrap();
    assert!((moved - by).abs() < 30, "{shown:?}");

    two_leases_pass(&mut fixture, &pids).await;
    std::fs::write(fixture.path("go"), "").unwrap();
    // Triggered under the new time.
    let later = fixture.run(&wrapper, &["trigger", "Work", "2", "--wait"]);
    assert!(later.status.success(), "{later:?}");
    fixture.completed(PATIENCE).await;

    // The whole daemon has followed the clock, and lives.
    let start = "step started";
    let started: Vec<jiff::Timestamp> = daemon
        .logged(start)
        .iter()
        .map(|event| event["ts"].as_str().unwrap().parse().unwrap())
        .collect();
    let span = started.last().unwrap().duration_since(started[0]).as_secs();
    assert!((span - by).abs() < 120, "{span}");
    assert_eq!(
        daemon_of(&daemon, &["Work", "Holding", "Setting"]).await,
        pids
    );
    for said in [
        "was declared dead",
        "recovered the work of a dead process",
        "stale",
    ] {
        assert!(daemon.logged(said).is_empty(), "{:#?}", daemon.logged(said));
    }
    let set_back = daemon.logged("the database's clock was set back");
    assert_eq!(
        set_back.len(),
        usize::from(on_sqlite && by < 0),
        "{set_back:#?}"
    );
    daemon.stop().await;
    let executions = fixture.succeeded_once_each().await;
    assert!(
        executions
            .iter()
            .all(|e| e.attempt == 1 && e.crash_count == 0),
        "{executions:#?}"
    );
    fixture.audited().await;
}

on_every_database! {
    async fn a_step_that_sets_the_clock_an_hour_ahead_costs_nobody_anything(db: Db) {
        the_clock_is_set(db, HOUR).await;
    }

    /// On SQLite the database's clock is that of the host: work that was due before must still be
    /// due.
    async fn a_step_that_sets_the_clock_an_hour_back_costs_nobody_anything(db: Db) {
        the_clock_is_set(db, -HOUR).await;
    }
}

/// A step that runs until it is killed.
const STUBBORN: &str = r#"
pipeline: Stubborn
steps: { A: { command: [sh, -c, 'trap "" TERM; echo x >> holds; while :; do sleep 0.1; done'] } }
flow: [{ start: A }]
"#;

/// A deadline by the wall clock would pass at once, or an hour late.
async fn the_clock_is_set_in_a_drain(db: Db, by: i64) {
    const DRAIN: Duration = Duration::from_secs(3);
    let settings = Settings {
        shutdown_timeout: "3s",
        ..settings()
    };
    let clock = Clock::new();
    let wrapper = clock.under();
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let mut fixture = DaemonFixture::new(&db, settings, &[STUBBORN]).await;
    let mut daemon = fixture.start_as(&wrapper, &["start"]);
    daemon.ready().await;
    let governed = daemon.processes();
    assert!(governed.iter().all(|process| clock.governs(process.pid)));
    fixture.trigger("Stubborn", "1", 2).await;
    fixture.said("holds", 2).await;
    daemon.send(Signal::SIGTERM);
    daemon.says("stopping").await;
    let draining = std::time::Instant::now();
    clock.set(by);
    let (status, _) = daemon.ended(PATIENCE).await;
    let took = draining.elapsed();
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(took > DRAIN - Duration::from_secs(1), "cut short: {took:?}");
    assert!(took < DRAIN * 5, "drawn out: {took:?}");
    daemon.gone(PATIENCE).await;
    let last = daemon.log().pop().unwrap();
    let first = daemon.log().swap_remove(0);
    let ts = |event: &Value| -> jiff::Timestamp { event["ts"].as_str().unwrap().parse().unwrap() };
    let shown = ts(&last).duration_since(ts(&first)).as_secs();
    assert!((shown - by).abs() < 60, "the clock was not set: {shown}");
    let executions = fixture.executions().await;
    let released = executions.iter().filter(|e| e.result() == "released");
    assert_eq!(released.count(), 2, "{executions:#?}");
    let spent = |e: &&Execution| e.crash_count > 0 || e.retry_count > 0;
    assert_eq!(
        executions.iter().filter(spent).count(),
        0,
        "{executions:#?}"
    );
    fixture.audited().await;
}

on_every_database! {
    async fn a_drain_takes_as_long_as_it_may_when_the_clock_is_set_ahead(db: Db) {
        the_clock_is_set_in_a_drain(db, HOUR).await;
    }

    async fn a_drain_takes_as_long_as_it_may_when_the_clock_is_set_back(db: Db) {
        the_clock_is_set_in_a_drain(db, -HOUR).await;
    }
}

async fn two_hosts_differ_by_an_hour(db: Db) {
    let mut fixture = DaemonFixture::new(&db, settings(), &[WORK, HOLDING]).await;
    let ahead = Clock::new();
    ahead.set(HOUR);
    let wrapper = ahead.under();
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let mut one = fixture.start();
    let mut two = fixture.start_as(&wrapper, &["start"]);
    one.ready().await;
    two.ready().await;
    let mut pids = daemon_of(&one, &["Work", "Holding"]).await;
    pids.extend(daemon_of(&two, &["Work", "Holding"]).await);
    let first_ts = |daemon: &Daemon| -> jiff::Timestamp {
        daemon.log()[0]["ts"].as_str().unwrap().parse().unwrap()
    };
    let apart = first_ts(&two).duration_since(first_ts(&one)).as_secs();
    assert!((apart - HOUR).abs() < 30, "{apart}");

    // More than one of the daemons has slots for.
    fixture.trigger("Holding", "1", 8).await;
    fixture.said("holds", 8).await;
    fixture.trigger("Work", "1", 40).await;
    two_leases_pass(&mut fixture, &pids).await;
    std::fs::write(fixture.path("go"), "").unwrap();
    fixture.completed(PATIENCE).await;
    for daemon in [&one, &two] {
        for said in [
            "was declared dead",
            "recovered the work of a dead process",
            "stale",
        ] {
            assert!(daemon.logged(said).is_empty(), "{:#?}", daemon.logged(said));
        }
        assert!(
            !daemon.logged("step started").is_empty(),
            "it had no share of the work"
        );
    }
    one.stop().await;
    two.stop().await;
    let executions = fixture.succeeded_once_each().await;
    assert!(
        executions
            .iter()
            .all(|e| e.attempt == 1 && e.crash_count == 0),
        "{executions:#?}"
    );
    fixture.audited().await;
}

on_servers! {
    async fn two_hosts_whose_clocks_differ_by_an_hour_share_the_work_and_take_nobody_for_dead(db: Db) {
        two_hosts_differ_by_an_hour(db).await;
    }
}
