//! SQLite has one lock for all writers, and one process keeps it.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::fixture::*;
use crate::support::{self, Db};
use crate::writing::{freeze_outside_of_a_write, writer};

const LONG: &str = r#"
pipeline: Long
steps:
  A: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; echo "\"done\""'] }
flow: [{ start: A }]
"#;

const BUSY: &str = "
pipeline: Busy
steps: { A: { command: ['true'] }, B: { command: ['true'] } }
flow: [{ start: A }, { chain: B }]
";

const LEASE: Duration = Duration::from_secs(2);

fn settings() -> Settings {
    Settings {
        reaper_timeout: "2s",
        max_retry: 0,
        max_crash: 1,
        ..Settings::default()
    }
}

fn path(db: &Db) -> &Path {
    let path = db.url.strip_prefix("sqlite://");
    Path::new(path.expect("a SQLite database"))
}

/// The test itself keeps the lock: it is not a process of ductworkd's, and so is not ended.
async fn nobody_is_harmed(db: Db) {
    let mut fixture = DaemonFixture::new(&db, settings(), &[LONG]).await;
    let mut daemons = [fixture.start(), fixture.start()];
    for daemon in &daemons {
        daemon.ready().await;
    }
    let run = fixture.trigger("Long", "1", 2).await[0].0.to_string();
    let steps = fixture.pids("pids", 2).await;
    let before: Vec<_> = fixture.processes().await.iter().map(|row| row.id).collect();
    assert_eq!(before.len(), 6);

    let foreign = rusqlite::Connection::open(path(&db)).unwrap();
    foreign.busy_timeout(Duration::from_secs(60)).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    let me = std::process::id();
    let named = format!("pid {me} (");
    // Each supervisor watches it for longer than its lease, and then for as long again.
    for daemon in &daemons {
        let said = daemon.says("has SQLite's write lock").await;
        let writer = said[0]["writer"].as_str().unwrap_or_default();
        assert!(writer.starts_with(&named), "{said:#?}");
    }
    eventually(
        PATIENCE,
        "every heartbeat is older than two leases",
        async || {
            let rows = fixture.processes().await;
            rows.iter().all(|row| row.age > LEASE * 2).then_some(())
        },
    )
    .await;
    for verb in [&["health"][..], &["why", &run]] {
        let asked = fixture.run(&["timeout", "30"], verb);
        let said = [asked.stdout, asked.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let code = i32::from(verb == ["health"]);
        assert_eq!(asked.status.code(), Some(code), "{verb:?}: {said}");
        assert!(said.contains(&named), "{verb:?}: {said}");
        assert!(said.contains("SQLite's write lock"), "{verb:?}: {said}");
    }
    foreign.execute_batch("COMMIT").unwrap();

    eventually(PATIENCE, "everybody beats again", async || {
        let rows = fixture.processes().await;
        rows.iter().all(|row| row.age < LEASE / 2).then_some(())
    })
    .await;
    let after: Vec<_> = fixture.processes().await.iter().map(|row| row.id).collect();
    assert_eq!(before, after);
    assert!(steps.iter().all(|pid| lives(*pid)), "a step was ended");
    std::fs::write(fixture.path("go"), "").unwrap();
    fixture.completed(PATIENCE).await;
    for daemon in &mut daemons {
        for said in ["was declared dead", "recovered what", "killing a"] {
            assert!(daemon.logged(said).is_empty(), "{:#?}", daemon.logged(said));
        }
        // Logged once, and not at every look.
        assert!(daemon.logged("has SQLite's write lock").len() <= 2);
        daemon.stop().await;
    }
    fixture.succeeded_once_each().await;
    fixture.audited().await;
}

#[tokio::test]
async fn a_lock_that_outlasts_two_leases_costs_nobody_anything_and_its_holder_is_named() {
    support::with(Db::sqlite(), nobody_is_harmed).await;
}

/// Its own supervisor stands still as well: only another daemon's supervisor can end it.
async fn another_supervisor_ends_it(db: Db) {
    // The steps that it runs at that moment die with it, each at the cost of a crash.
    let settings = Settings {
        max_crash: 1_000,
        ..settings()
    };
    let mut fixture = DaemonFixture::new(&db, settings, &[BUSY]).await;
    let frozen = fixture.start();
    frozen.ready().await;
    let worker = frozen.child("worker Busy", None).await;
    freeze_outside_of_a_write(&db, frozen.pid()).await;
    let mut tries = 0;
    loop {
        if tries % 100 == 0 {
            fixture.trigger("Busy", "1", 100).await;
        }
        tries += 1;
        assert!(tries < 2_000, "it was never caught while it wrote");
        freeze(worker).await;
        if writer(path(&db)) == Some(worker) {
            break;
        }
        send(worker, Signal::SIGCONT);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let began = Instant::now();
    // It cannot even register until that one is gone.
    let mut heir = fixture.start();
    gone(worker, PATIENCE).await;
    let took = began.elapsed();
    eprintln!("caught after {tries} tries; ended after {took:?}");
    assert!(took > LEASE / 2, "{took:?}");
    let said = heir.says("stands still with SQLite's write lock").await;
    assert!(
        said[0]["writer"]
            .as_str()
            .unwrap_or_default()
            .contains(&worker.to_string())
    );
    fixture.completed(PATIENCE).await;
    frozen.send(Signal::SIGCONT);
    heir.stop().await;
    fixture.succeeded_once_each().await;
    fixture.audited().await;
}

#[tokio::test]
async fn a_worker_that_stands_still_while_it_writes_is_ended_by_another_supervisor() {
    support::with(Db::sqlite(), another_supervisor_ends_it).await;
}
