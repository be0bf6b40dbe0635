//! Resources that run out, statements that take long, and logs that nobody reads.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use crate::fixture::*;
use crate::on_every_database;
use crate::support::{self, Db};

const QUICK: &str = "
pipeline: Quick
steps:
  A: { command: [sh, -c, 'echo a line of the step >&2; cat'] }
  B: { command: [cat] }
flow: [{ start: A }, { chain: B }]
";

/// A step that does something to its worker, the first time.
fn parricide(does: &str) -> String {
    format!(
        "pipeline: Parricide\n\
         steps: {{ A: {{ command: [sh, -c, '[ $DUCTWORK_ATTEMPT -gt 1 ] && exit 0; \
                   echo $PPID >> parents; {does}; sleep 1000'] }} }}\n\
         flow: [{{ start: A }}]\n"
    )
}

/// Starts the daemon as a user of its own, so that only its processes count against that user's
/// limit: root has none. `$0` is the program.
const ALONE: &str = r#"
set -e
fixture=$PWD
cp "$0" "$fixture/ductworkd"
chown -R 64321 "$fixture"
export TMPDIR=$fixture
exec setpriv --reuid 64321 --regid 64321 --clear-groups "$fixture/ductworkd" "$@"
"#;

/// From now on this process may start others only while that user has fewer than this many. The
/// command runs as that user, because even root may need a right to set the limits of others.
fn limit_processes(pid: i32, most: u32) {
    let (pid, most) = (pid.to_string(), format!("--nproc={most}:"));
    let done = Command::new("setpriv")
        .args(["--reuid", "64321", "--regid", "64321", "--clear-groups"])
        .args(["prlimit", "--pid", &pid, &most])
        .status();
    assert!(done.expect("setpriv").success());
}

on_every_database! {
    /// EAGAIN, for the steps of a worker and then for the children of the supervisor.
    async fn a_user_short_of_processes_delays_steps_and_children_and_blames_nobody(db: Db) {
        let settings = Settings { max_retry: 0, max_crash: 1, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[QUICK]).await;
        if let Some(path) = db.url.strip_prefix("sqlite://") {
            let directory = Path::new(path).parent().unwrap();
            for entry in std::fs::read_dir(directory).unwrap() {
                chown(entry.unwrap().path(), Some(64321), None).unwrap();
            }
            chown(directory, Some(64321), None).unwrap();
        }
        let mut daemon = fixture.start_as(&["sh", "-c", ALONE], &["start"]);
        daemon.ready().await;
        let (worker, advancer) = (daemon.child("worker Quick", None).await, daemon.child("advancer", None).await);

        limit_processes(worker, 1);
        fixture.trigger("Quick", "1", 2).await;
        eventually(PATIENCE, "it has been tried in vain, and again", async || {
            let executions = fixture.executions().await;
            let refused = executions.iter().filter(|e| e.error_class.as_deref() == Some("not_started"));
            (refused.count() >= 4).then_some(())
        })
        .await;
        // `health` reports it, and the log has one line for all of them.
        eventually_every(SELDOM, PATIENCE, "health says so", async || {
            let health = fixture.run(&[], &["health"]);
            let said = String::from_utf8_lossy(&health.stderr);
            (!health.status.success() && said.contains("step A cannot be started")).then_some(())
        })
        .await;
        let said = daemon.log().into_iter().filter(|line| line["msg"].as_str().is_some_and(|msg| msg.contains("steps cannot be started")));
        assert_eq!(said.count(), 1);
        assert_eq!(daemon.log().iter().filter(|line| line["msg"] == "step did not succeed").count(), 0);
        limit_processes(worker, 1_000);
        fixture.completed(PATIENCE).await;
        eventually_every(SELDOM, PATIENCE, "health is content", async || {
            fixture.run(&[], &["health"]).status.success().then_some(())
        })
        .await;

        limit_processes(daemon.pid(), 1);
        send(worker, Signal::SIGKILL);
        let refused = daemon.says_times("a child cannot be started", 3).await;
        assert!(refused[0]["error"].as_str().unwrap().starts_with("fork: Resource temporarily unavailable"), "{refused:#?}");
        assert!(refused[0]["remedy"].as_str().unwrap().contains("TasksMax"), "{refused:#?}");
        fixture.trigger("Quick", "1", 2).await;
        limit_processes(daemon.pid(), 1_000);
        daemon.child("worker Quick", Some(worker)).await;
        fixture.completed(PATIENCE).await;
        assert_eq!(daemon.children("advancer"), [advancer]);
        daemon.stop().await;

        let executions = fixture.succeeded_once_each().await;
        for execution in &executions {
            assert!(matches!(execution.result(), "success" | "released"), "{execution:?}");
            assert_eq!(execution.crash_count, 0, "{execution:?}");
        }
        fixture.audited().await;
    }

    /// The worker that ran a step can open no file when the step ends.
    async fn a_worker_short_of_descriptors_reads_what_its_step_has_put_out(db: Db) {
        let held = "
pipeline: Held
steps:
  A:
    command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; echo 7 > \"$DUCTWORK_OUTPUT\"']
flow: [{ start: A }]
";
        let settings = Settings { max_retry: 0, max_crash: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[held]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let run = fixture.trigger("Held", "1", 1).await[0];
        fixture.pids("pids", 1).await;
        let worker = daemon.child("worker Held", None).await;
        // Fewer than it already has: it may open none.
        let limited = Command::new("prlimit").args(["--pid", &worker.to_string(), "--nofile=1:"]).status();
        assert!(limited.expect("prlimit").success());
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.run_ended(run).await;
        assert_eq!(fixture.output(run).await, 7);
        let executions = fixture.succeeded_once_each().await;
        assert_eq!(executions.len(), 1, "{executions:#?}");
        daemon.stop().await;
        fixture.audited().await;
    }

    /// The worker cannot get the memory that a large input takes: it ends, or gets the error from
    /// SQLite and tries again.
    async fn a_worker_short_of_memory_delays_its_work_and_loses_none(db: Db) {
        let counts = "
pipeline: Count
steps: { A: { command: [wc, -c] } }
flow: [{ start: A }]
";
        let settings = Settings { max_retry: 0, max_crash: 3, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[counts]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let worker = daemon.child("worker Count", None).await;
        let has = std::fs::read_to_string(format!("/proc/{worker}/statm")).unwrap();
        let pages: usize = has.split(' ').next().unwrap().parse().unwrap();
        let limit = |most: &str| {
            let most = format!("--as={most}:");
            let limited = Command::new("prlimit").args(["--pid", &worker.to_string(), &most]).status();
            limited.expect("prlimit").success()
        };
        // Enough for the stacks of another thread, without which the standard library panics.
        let most = pages * 4096 + (4 << 20);
        assert!(limit(&most.to_string()));
        let large = format!("\"{}\"", "x".repeat(8 << 20));
        let run = fixture.trigger("Count", &large, 1).await[0];
        eventually(PATIENCE, "it was too much for it", async || {
            let refused = !daemon.logged("claiming or committing failed").is_empty();
            (refused || !lives(worker)).then_some(())
        })
        .await;
        // The worker may be gone.
        limit("unlimited");
        fixture.run_ended(run).await;
        // And the line feed behind it.
        assert_eq!(fixture.output(run).await, large.len() + 1);
        let executions = fixture.succeeded_once_each().await;
        let expected = |it: &Execution| matches!(it.result(), "success" | "process_crashed");
        assert!(executions.iter().all(expected), "{executions:#?}");
        daemon.stop().await;
        fixture.audited().await;
    }

    /// Longer than three leases, and longer than an idle thread of a pool lives: a command dies
    /// with the thread that started it.
    async fn a_long_step_keeps_its_lease_and_runs_once(db: Db) {
        let long = "
pipeline: Long
steps: { A: { command: [sleep, '13'] } }
flow: [{ start: A }]
";
        let settings = Settings { reaper_timeout: "4s", max_retry: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[long]).await;
        let mut daemon = fixture.start();
        let mut other = fixture.start();
        fixture.trigger("Long", "1", 2).await;
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        other.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert_eq!(executions.len(), 2, "{executions:#?}");
        fixture.audited().await;
    }

    async fn a_step_that_kills_its_worker_costs_a_crash_and_nothing_else(db: Db) {
        let settings = Settings { max_retry: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[&parricide("kill -9 $PPID"), QUICK]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let worker = daemon.child("worker Parricide", None).await;
        let other = daemon.child("worker Quick", None).await;
        fixture.trigger("Parricide", "1", 1).await;
        assert_eq!(fixture.pids("parents", 1).await, [worker]);
        fixture.trigger("Quick", "1", 3).await;
        fixture.completed(PATIENCE).await;
        assert_eq!(daemon.children("worker Quick"), [other]);
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        let crashed = executions.iter().filter(|e| e.result() == "process_crashed");
        assert_eq!(crashed.count(), 1, "{executions:#?}");
        fixture.audited().await;
    }

    /// A drain that nobody asked for releases the step at its end; a worker that stands still is
    /// replaced, and its step counts one crash.
    async fn a_step_that_stops_its_worker_is_run_again(db: Db) {
        for (does, result) in [("kill $PPID", "released"), ("kill -STOP $PPID", "process_crashed")] {
            let settings = Settings {
                max_retry: 0,
                reaper_timeout: "3s",
                shutdown_timeout: "500ms",
                ..Settings::default()
            };
            let mut fixture = DaemonFixture::new(&db, settings, &[&parricide(does), QUICK]).await;
            let mut daemon = fixture.start();
            daemon.ready().await;
            let other = daemon.child("worker Quick", None).await;
            let run = fixture.trigger("Parricide", "1", 1).await[0];
            fixture.pids("parents", 1).await;
            fixture.run_ended(run).await;
            fixture.completed(PATIENCE).await;
            assert_eq!(daemon.children("worker Quick"), [other]);
            daemon.stop().await;
            let executions = fixture.succeeded_once_each().await;
            let executions = executions.iter().filter(|e| e.step == "A" && e.result() == result);
            assert!(executions.count() > 0, "{does}: no attempt is {result}");
            fixture.audited().await;
        }
    }

    /// No process of the daemon is left, and no part of the run is lost.
    async fn a_step_that_kills_the_supervisor_costs_its_daemon_and_no_run(db: Db) {
        let does = r#"kill -9 $(cut -d" " -f4 /proc/$PPID/stat)"#;
        let settings = Settings { max_retry: 0, reaper_timeout: "3s", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[&parricide(does), QUICK]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Parricide", "1", 1).await;
        let (status, _) = daemon.ended(PATIENCE).await;
        assert!(!status.success(), "{status}");
        daemon.gone(Duration::from_secs(5)).await;
        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    /// The reader of the log has stopped reading; then it is gone altogether.
    async fn a_daemon_whose_log_nobody_reads_works_beats_and_stops(db: Db) {
        let settings = Settings { reaper_timeout: "2s", max_retry: 0, max_crash: 1, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[QUICK]).await;
        let (unread, stderr) = std::io::pipe().unwrap();
        let probe = stderr.try_clone().unwrap();
        let mut daemon = fixture.start_into(&[], &["start"], Some(stderr.into()));
        let worker = daemon.child("worker Quick", None).await;
        let is_full = || {
            let mut ends = [PollFd::new(probe.as_fd(), PollFlags::POLLOUT)];
            poll(&mut ends, PollTimeout::ZERO).unwrap() == 0
        };
        while !is_full() {
            fixture.trigger("Quick", "1", 20).await;
            fixture.completed(PATIENCE).await;
            daemon.send(Signal::SIGTTIN);
        }
        fixture.trigger("Quick", "1", 100).await;
        fixture.completed(PATIENCE).await;
        let began = fixture.processes().await;
        assert_eq!(began.len(), 3);
        eventually(PATIENCE, "everybody beats on", async || {
            let rows = fixture.processes().await;
            let on = began.iter().all(|old| {
                rows.iter().any(|row| row.id == old.id && row.beat_seq > old.beat_seq + 8)
            });
            on.then_some(())
        })
        .await;
        drop(unread);
        fixture.trigger("Quick", "1", 20).await;
        fixture.completed(PATIENCE).await;
        assert_eq!(daemon.children("worker Quick"), [worker]);
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert!(executions.iter().all(|e| e.attempt == 1));
        fixture.audited().await;
    }
}

/// The disk is full, as far as the daemon can tell; then there is room again.
#[tokio::test]
async fn a_sqlite_file_that_cannot_grow_ends_no_process_and_costs_no_step_anything() {
    crate::support::with(Db::sqlite(), |db| async move {
        let settings = Settings {
            max_retry: 0,
            max_crash: 1,
            level: "info",
            ..Settings::default()
        };
        let mut fixture = DaemonFixture::new(&db, settings, &[QUICK]).await;
        // Room for a start and some of the work, however large the schema is.
        let file = db.url.strip_prefix("sqlite://").unwrap();
        let sizes = [file.to_owned(), format!("{file}-wal")]
            .map(|path| std::fs::metadata(path).map_or(0, |metadata| metadata.len()));
        let limit = format!("--fsize={}:", sizes.iter().max().unwrap() + 200_000);
        let mut daemon = fixture.start_as(&["prlimit", &limit], &["start"]);
        daemon.ready().await;
        let children: Vec<i32> = ["advancer", "worker Quick"]
            .iter()
            .flat_map(|kind| daemon.children(kind))
            .collect();
        assert_eq!(children.len(), 2);
        fixture.trigger("Quick", "1", 400).await;
        let count = async |fixture: &mut DaemonFixture| {
            let executions = fixture.executions().await;
            executions.iter().filter(|e| e.result.is_some()).count()
        };
        // The disk stays full for a while: long enough for many attempts, and for a flood of log
        // lines.
        let full = eventually(PATIENCE, "nobody can write", async || {
            let lost = daemon.logged("waiting for the database");
            let pids: BTreeSet<i64> = lost
                .iter()
                .filter_map(|event| event["pid"].as_i64())
                .collect();
            (pids.len() == 3).then(std::time::Instant::now)
        })
        .await;
        tokio::time::sleep(Duration::from_secs(3).saturating_sub(full.elapsed())).await;
        let stuck = count(&mut fixture).await;
        for pid in children.iter().chain([&daemon.pid()]) {
            let log = daemon.log().into_iter();
            let lines: Vec<_> = log
                .filter(|event| event["pid"] == *pid && event["msg"] != "run ended")
                .collect();
            assert!(lines.len() <= 20, "a flood: {lines:#?}");
        }
        for pid in children.iter().chain([&daemon.pid()]) {
            let room = std::process::Command::new("prlimit")
                .args(["--pid", &pid.to_string(), "--fsize=unlimited:"])
                .status();
            assert!(room.is_ok_and(|status| status.success()));
        }
        fixture.completed(PATIENCE).await;
        assert!(
            count(&mut fixture).await > stuck,
            "nothing was left to do: the test is empty"
        );
        for pid in &children {
            assert!(lives(*pid), "{pid} has ended");
        }
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert_eq!(executions.len(), 800);
        fixture.audited().await;
    })
    .await;
}

/// 1,024 open files, the usual limit, would be enough for some 280 steps at once.
#[tokio::test]
async fn a_worker_may_open_what_the_system_allows_and_its_programs_what_the_daemon_was_given() {
    crate::support::with(Db::sqlite(), |db| async move {
        let tells = "
pipeline: Tells
steps: { A: { command: [sh, -c, 'ulimit -Sn'] } }
flow: [{ start: A }]
";
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[tells]).await;
        fixture.configure("  hooks: { worker: { start: [sh, -c, \"ulimit -Sn > of_hook\"] } }\n");
        let mut daemon = fixture.start_as(&["prlimit", "--nofile=300:4000"], &["start"]);
        daemon.ready().await;
        let run = fixture.trigger("Tells", "1", 1).await[0];
        fixture.run_ended(run).await;
        assert_eq!(fixture.output(run).await, 300);
        let of_hook = std::fs::read_to_string(fixture.path("of_hook")).unwrap();
        assert_eq!(of_hook.trim(), "300");
        let worker = daemon.child("worker Tells", None).await;
        let limits = std::fs::read_to_string(format!("/proc/{worker}/limits")).unwrap();
        let files = limits
            .lines()
            .find(|line| line.starts_with("Max open files"));
        let files: Vec<&str> = files.unwrap().split_whitespace().collect();
        assert_eq!(files[3..5], ["4000", "4000"]);
        daemon.stop().await;
        fixture.audited().await;
    })
    .await;
}

const FOREIGN: &str = "
pipeline: Foreign
steps:
  A: { command: [sh, -c, 'echo $$ >> pids; exec setpriv --reuid 64321 --clear-groups sleep 1000'], timeout: 1s }
flow: [{ start: A }]
";

/// As with `sudo`: the daemon may not signal it.
#[tokio::test]
async fn a_step_that_has_become_another_user_is_said_to_go_on() {
    support::with(Db::sqlite(), |db| async move {
        let settings = Settings {
            max_retry: 0,
            ..Settings::default()
        };
        let mut fixture = DaemonFixture::new(&db, settings, &[FOREIGN]).await;
        let mut daemon = fixture.start_as(&["setpriv", "--bounding-set=-kill"], &["start"]);
        let run = fixture.trigger("Foreign", "1", 1).await[0];
        let step = fixture.pids("pids", 1).await[0];
        fixture.run_ended(run).await;
        let execution = &fixture.executions().await[0];
        assert_eq!(execution.result(), "timed_out");
        let message = execution.error_message.as_deref().unwrap_or_default();
        assert!(message.contains("it runs as another user"), "{message}");
        assert_eq!(
            daemon.logged("it runs as another user, and goes on").len(),
            1
        );
        send(step, Signal::SIGKILL);
        daemon.stop().await;
        fixture.audited().await;
    })
    .await;
}
