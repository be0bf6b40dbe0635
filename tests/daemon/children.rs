//! Children that do not live: they die at once, stand still before they have registered, or loop.

use std::time::{Duration, Instant};

use ductwork::store::process::ProcessRow;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::fixture::*;
use crate::on_every_database;
use crate::support::Db;

const DOOMED: &str = "
pipeline: Doomed
steps: { A: { command: [cat] } }
flow: [{ start: A }]
";

const STEADY: &str = "
pipeline: Steady
steps: { A: { command: [cat] }, B: { command: [cat] } }
flow: [{ start: A }, { chain: B }]
";

on_every_database! {
    /// No process is taken for dead because there is no work, the supervisor included (H3).
    async fn an_idle_daemon_outlives_its_leases_and_is_healthy(db: Db) {
        let settings = Settings { reaper_timeout: "6s", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[STEADY]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let ids = |rows: &[ProcessRow]| rows.iter().map(|row| row.id).collect::<Vec<_>>();
        let before = fixture.processes().await;
        assert_eq!(before.len(), 3);
        eventually(PATIENCE, "everybody has beaten for more than two leases", async || {
            let rows = fixture.processes().await;
            let lived = |row: &ProcessRow| row.last_heartbeat_at - row.started_at > 13_000_000;
            assert_eq!(ids(&rows), ids(&before));
            rows.iter().all(lived).then_some(())
        })
        .await;
        let (status, _) = fixture.start_as(&[], &["health"]).ended(PATIENCE).await;
        assert!(status.success(), "{status}");
        let bad = |event: &&Value| event["level"] == "warn" || event["level"] == "error";
        let events = daemon.log();
        assert_eq!(events.iter().find(bad), None);
        daemon.stop().await;
    }

    async fn a_child_that_dies_again_and_again_comes_back_ever_later_and_alone(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[DOOMED, STEADY]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let steady = daemon.child("worker Steady", None).await;
        let advancer = daemon.child("advancer", None).await;
        let doomed = fixture.trigger("Doomed", "1", 1).await[0];
        let mut last = None;
        let mut waits = Vec::new();
        let mut killed = Instant::now();
        for death in 0..7 {
            let pid = daemon.child("worker Doomed", last).await;
            if death > 0 {
                waits.push(killed.elapsed());
            }
            // Before the signal: then no wait looks shorter than it was.
            killed = Instant::now();
            send(pid, Signal::SIGKILL);
            last = Some(pid);
            // The other children work on meanwhile.
            let run = fixture.trigger("Steady", "1", 1).await[0];
            fixture.run_ended(run).await;
        }
        daemon.says("a child dies again and again").await;
        eventually_every(SELDOM, PATIENCE, "`health` tells of it", async || {
            if let Some(pid) = daemon.children("worker Doomed").first() {
                send(*pid, Signal::SIGKILL);
            }
            let health = fixture.run(&[], &["health"]);
            let said = String::from_utf8_lossy(&health.stderr);
            (!health.status.success() && said.contains("the worker Doomed dies again and again")).then_some(())
        })
        .await;
        eprintln!("came back after {waits:?}");
        // 0, 100, 200, 400, 800, 1600 ms.
        for (death, wait) in waits.iter().enumerate().skip(1) {
            let least = Duration::from_millis(100 << (death - 1));
            assert!(*wait >= least, "death {}: back after {wait:?}", death + 1);
        }
        assert_eq!(daemon.children("worker Steady"), [steady]);
        assert_eq!(daemon.children("advancer"), [advancer]);
        // Left alone, it lives.
        fixture.completed(PATIENCE).await;
        assert_eq!(fixture.output(doomed).await, 1);
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    async fn a_child_that_stands_still_before_it_has_registered_is_replaced(db: Db) {
        let settings = Settings { reaper_timeout: "2s", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[STEADY]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let mut last = daemon.child("worker Steady", None).await;
        let frozen = loop {
            send(last, Signal::SIGKILL);
            let next = newborn(&daemon, "worker Steady", last).await;
            freeze(next).await;
            // Not with the database open: a process that stands still inside a transaction
            // keeps a SQLite database locked for all others, the test included.
            let rows = fixture.processes().await;
            if !has_database_open(next) && rows.iter().all(|row| row.pid as i32 != next) {
                break next;
            }
            // The child was quicker than the test.
            last = next;
        };
        fixture.trigger("Steady", "1", 3).await;
        gone(frozen, Duration::from_secs(20)).await;
        assert!(daemon.log().iter().all(|event| event["pid"] != frozen || event["msg"] != "registered"));
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    /// The file may contain anything by now: only the supervisor reads it, when it is told to.
    async fn a_new_child_is_what_its_supervisor_had_read(db: Db) {
        let other = "default: { database: { url: 'sqlite://other.db' } }";
        let edits: [(&str, Edit); 3] = [
            ("a mistake", |file| std::fs::write(file, "default: { job_workers: 1 }").unwrap()),
            ("no file", |file| std::fs::remove_file(file).unwrap()),
            ("a pipe", |file| {
                let mode = nix::sys::stat::Mode::S_IRWXU;
                nix::unistd::mkfifo(file, mode).unwrap();
            }),
        ];
        for verb in [&["start"][..], &["-c", "ductwork.yml", "start"]] {
            let mut fixture = DaemonFixture::new(&db, Settings::default(), &[STEADY]).await;
            let mut daemon = fixture.start_as(&[], verb);
            daemon.ready().await;
            let mut worker = daemon.child("worker Steady", None).await;
            let file = fixture.path("ductwork.yml");
            let edited = async |what: &str, fixture: &mut DaemonFixture, worker: i32| {
                send(worker, Signal::SIGKILL);
                let run = fixture.trigger("Steady", "1", 1).await[0];
                fixture.run_ended(run).await;
                eprintln!("{verb:?}, {what}: a new worker has worked");
                daemon.child("worker Steady", Some(worker)).await
            };
            std::fs::write(&file, other).unwrap();
            worker = edited("another database", &mut fixture, worker).await;
            assert!(!fixture.path("other.db").exists());
            for (times, (what, edit)) in edits.into_iter().enumerate() {
                edit(&file);
                worker = edited(what, &mut fixture, worker).await;
                daemon.send(Signal::SIGHUP);
                daemon.says_times("not reloaded", times + 1).await;
            }
            fixture.completed(PATIENCE).await;
            daemon.stop().await;
            fixture.audited().await;
        }
    }
}

/// A change to a file.
type Edit = fn(&std::path::Path);

/// Waits for a child of this kind that is not `last`, and looks often: it registers a few milliseconds after its birth.
async fn newborn(daemon: &Daemon, kind: &str, last: i32) -> i32 {
    let list = format!("/proc/{0}/task/{0}/children", daemon.pid());
    let began = Instant::now();
    loop {
        let children = std::fs::read_to_string(&list).expect("a supervisor");
        let children = children.split(' ').filter_map(|pid| pid.parse().ok());
        let mut others = children.filter(|pid| *pid != last).filter_map(Process::of);
        if let Some(born) = others.find(|it| it.kind == kind) {
            return born.pid;
        }
        assert!(began.elapsed() < PATIENCE, "no new {kind}");
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}

fn has_database_open(pid: i32) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a process");
    let mut targets = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.any(|target| target.to_string_lossy().contains("ductwork.db"))
}
