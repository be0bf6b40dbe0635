//! Signals from an operator to a running daemon.

use std::time::{Duration, Instant};

use ductwork::model::{Intake, RunStatus};
use ductwork::store::statement::Statement;
use ductwork::store::{Dialect, cancel};
use nix::sys::signal::Signal;

use crate::fixture::*;
use crate::on_every_database;
use crate::support::Db;
use crate::writing::freeze_outside_of_a_write;

const QUICK: &str = "
pipeline: Quick
steps: { A: { command: [cat] }, B: { command: [cat] } }
flow: [{ start: A }, { chain: B }]
";

/// A step that runs until it is let go.
const WAITING: &str = r#"
pipeline: Waiting
steps: { Wait: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; cat'] } }
flow: [{ start: Wait }]
"#;

/// A daemon with a running step; the pids of the step, the advancer and the worker.
async fn under_way(fixture: &mut DaemonFixture) -> (Daemon, [i32; 3]) {
    let daemon = fixture.start();
    daemon.ready().await;
    fixture.trigger("Waiting", "1", 1).await;
    let step = fixture.pids("pids", 1).await[0];
    let advancer = daemon.child("advancer", None).await;
    let worker = daemon.child("worker Waiting", None).await;
    (daemon, [step, advancer, worker])
}

/// A step of a run that is suspended. It waits in its shell: one that starts programs stands still in state
/// D if the signal finds its program between `vfork` and `exec`.
const HOLDS: &str = "
pipeline: Holds
steps: { A: { command: [sh, -c, 'mkfifo go; sleep 1000 & echo $$ $! >> held; read _ < go; kill $!; cat'] } }
flow: [{ start: A }]
";

/// A terminal on which a person types Ctrl-Z, and then `fg`.
const SUSPENDS: &str = r#"
import os, pty, signal, sys, threading, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])

def drain():
    try:
        while os.read(terminal, 4096): pass
    except OSError: pass
threading.Thread(target=drain, daemon=True).start()

family = []

def until(what, holds):
    end = time.monotonic() + 20
    while not (got := holds()):
        assert time.monotonic() < end, (what, [(it, *stat(it)) for it in family])
        time.sleep(0.02)
    return got

def stat(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return fields[0], int(fields[1])

def held():
    try: return open("held").read().split()
    except FileNotFoundError: return []

family = [int(it) for it in until("the step runs", lambda: len(held()) == 2 and held())]
family.append(stat(family[0])[1])
os.write(terminal, b"\x1a")
_, status = until("it is suspended", lambda: (it := os.waitpid(pid, os.WUNTRACED | os.WNOHANG))[0] and it)
assert os.WIFSTOPPED(status), status
until("all that it started stands still", lambda: all(stat(it)[0] == "T" for it in family))
os.kill(pid, signal.SIGCONT)
until("they go on", lambda: all(stat(it)[0] != "T" for it in family))
open("go", "w").close()
_, status = until("it ends", lambda: (it := os.waitpid(pid, os.WNOHANG))[0] and it)
assert os.waitstatus_to_exitcode(status) == 0, status
"#;

on_every_database! {
    async fn a_run_on_a_terminal_is_suspended_and_goes_on_like_any_program(db: Db) {
        let settings = Settings { max_retry: 0, max_crash: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[HOLDS]).await;
        let done = fixture.run(&["python3", "-c", SUSPENDS], &["run", "Holds", "1"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        fixture.completed(PATIENCE).await;
        let executions = fixture.succeeded_once_each().await;
        assert_eq!(executions.len(), 1, "{executions:#?}");
        fixture.audited().await;
    }

    async fn a_bad_file_changes_nothing_and_a_good_one_adds_a_pipeline(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WAITING]).await;
        let (mut daemon, before) = under_way(&mut fixture).await;

        let broken = fixture.path("pipelines/Broken.yml");
        std::fs::write(&broken, "pipeline: Broken\nflow: [{ start: Nobody }]\n").unwrap();
        daemon.send(Signal::SIGHUP);
        let said = daemon.says("not reloaded").await;
        assert!(said[0]["problems"].as_str().unwrap().contains("Broken.yml"), "{said:#?}");
        let health = eventually_every(SELDOM, PATIENCE, "`health` tells of it", async || {
            let health = fixture.run(&[], &["health"]);
            (health.status.code() == Some(1)).then(|| String::from_utf8(health.stderr).unwrap())
        })
        .await;
        let told = "has been working with an old configuration for ";
        assert!(health.contains(told) && health.contains("the last reload failed: "), "{health}");
        assert!(health.contains("Broken.yml:1:1") && health.contains("send HUP again"), "{health}");
        std::fs::write(fixture.path("ductwork.yml"), "default: { job_workers: 1 }").unwrap();
        daemon.send(Signal::SIGHUP);
        daemon.says_times("not reloaded", 2).await;
        for pid in &before {
            assert!(lives(*pid), "{pid} has ended");
        }

        std::fs::remove_file(broken).unwrap();
        fixture.configure("");
        fixture.define(QUICK);
        let added = fixture.trigger("Quick", "7", 1).await[0];
        daemon.send(Signal::SIGHUP);
        daemon.says("configuration reloaded").await;
        daemon.child("worker Quick", None).await;
        fixture.run_ended(added).await;
        assert_eq!(fixture.output(added).await, 7);
        eventually_every(SELDOM, PATIENCE, "`health` has nothing to tell", async || {
            (fixture.run(&[], &["health"]).status.code() == Some(0)).then_some(())
        })
        .await;
        // A running step is not disturbed.
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert!(executions.iter().all(|e| e.attempt == 1), "{executions:#?}");
        fixture.audited().await;
    }

    async fn a_stop_hook_ends_when_somebody_asks_for_the_end_again(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WAITING]).await;
        let stop = "[sh, -c, \"trap '' TERM; echo $$$$ >> hook; sleep 1000\"]";
        fixture.configure(&format!("  hooks: {{ supervisor: {{ stop: {stop} }} }}\n"));
        let mut daemon = fixture.start();
        daemon.ready().await;
        daemon.send(Signal::SIGTERM);
        let hook = fixture.pids("hook", 1).await[0];
        let told = fixture.run(&[], &["health"]);
        let told = String::from_utf8(told.stdout).unwrap();
        assert_eq!(told, "healthy: 1 of 1, of which 1 stopping\n");
        daemon.send(Signal::SIGHUP);
        daemon.send(Signal::SIGQUIT);
        let (status, _) = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{status}");
        gone(hook, PATIENCE).await;
        assert_eq!(daemon.logged("the stop hook has not run to its end").len(), 1);
        assert_eq!(daemon.logged("configuration reloaded").len(), 0);
        assert!(fixture.processes().await.is_empty());
    }

    /// A service manager has a limit of its own, and kills what exceeds it.
    async fn a_stop_asks_the_service_manager_for_time_while_it_drains_and_while_its_hook_runs(db: Db) {
        let settings = Settings { shutdown_timeout: "2s", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[WAITING]).await;
        let stop = "[sh, -c, \"echo $$$$ >> hook; until [ -e end ]; do sleep 0.1; done\"]";
        fixture.configure(&format!("  hooks: {{ supervisor: {{ stop: {stop} }} }}\n"));
        let path = fixture.path("notify");
        let listen = tokio::net::UnixDatagram::bind(&path).unwrap();
        fixture.variables.insert("NOTIFY_SOCKET", path.to_str().unwrap().to_owned());
        let asked = async || {
            loop {
                let mut message = [0; 512];
                let received = tokio::time::timeout(PATIENCE, listen.recv(&mut message)).await;
                let n = received.expect("it asks for time").unwrap();
                let message = String::from_utf8_lossy(&message[..n]);
                if let Some(micros) = message.trim().strip_prefix("EXTEND_TIMEOUT_USEC=") {
                    return Duration::from_micros(micros.parse().unwrap());
                }
            }
        };
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Waiting", "1", 1).await;
        fixture.pids("pids", 1).await;
        daemon.send(Signal::SIGTERM);
        // The drain and some seconds: a stop that hangs is killed after that.
        let mut left = asked().await;
        let most = Duration::from_secs(2 + 15);
        for _ in 0..2 {
            let less = asked().await;
            assert!(less < left && left <= most, "{less:?} after {left:?}");
            left = less;
        }
        // While the hook runs, its own limit is the bound.
        let mut times = 0;
        while times < 3 {
            times += usize::from(asked().await > most);
        }
        assert_eq!(fixture.lines("hook").len(), 1);
        std::fs::write(fixture.path("end"), "").unwrap();
        let (status, _) = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{status}");
    }

    async fn a_reload_replaces_the_workers_that_it_concerns_and_no_other(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WAITING, QUICK]).await;
        let (mut daemon, [step, advancer, worker]) = under_way(&mut fixture).await;
        let quick = daemon.child("worker Quick", None).await;
        fixture.configure("  retention: 20d\n");
        daemon.send(Signal::SIGHUP);
        daemon.child("advancer", Some(advancer)).await;
        gone(advancer, PATIENCE).await;
        let file = fixture.path("ductwork.yml");
        let text = std::fs::read_to_string(&file).unwrap();
        let other = text.replacen("count: 4", "count: { Quick: 2, default: 4 }", 1);
        assert_ne!(other, text);
        std::fs::write(&file, other).unwrap();
        daemon.send(Signal::SIGHUP);
        daemon.child("worker Quick", Some(quick)).await;
        gone(quick, PATIENCE).await;
        std::fs::remove_file(fixture.path("pipelines/Quick.yml")).unwrap();
        daemon.send(Signal::SIGHUP);
        eventually_every(SCAN, PATIENCE, "the worker of the removed pipeline has ended", async || {
            daemon.children("worker Quick").is_empty().then_some(())
        })
        .await;
        assert_eq!(daemon.children("worker Waiting"), [worker]);
        assert!(lives(step));
        let told = daemon.logged("configuration reloaded");
        let kept: Vec<_> = told.iter().map(|it| it["workers_unchanged"].as_u64()).collect();
        assert_eq!(kept, [Some(2), Some(1), Some(1)]);
        assert_eq!((&told[1]["removed"], &told[2]["removed"]), (&serde_json::Value::Null, &"Quick".into()));
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert!(executions.iter().all(|e| e.attempt == 1), "{executions:#?}");
        fixture.audited().await;
    }

    /// The supervisor decides the cost of a crash, and it was not replaced.
    async fn a_reload_is_taken_over_by_whoever_judges_crashes(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WAITING]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let before = daemon.child("worker Waiting", None).await;
        let file = fixture.path("ductwork.yml");
        let text = std::fs::read_to_string(&file).unwrap();
        let strict = text.replacen("max_crash: 1000", "max_crash: 1", 1);
        assert_ne!(strict, text);
        std::fs::write(&file, strict).unwrap();
        daemon.send(Signal::SIGHUP);
        daemon.says("configuration reloaded").await;
        let worker = daemon.child("worker Waiting", Some(before)).await;
        gone(before, PATIENCE).await;
        let run = fixture.trigger("Waiting", "1", 1).await[0];
        fixture.pids("pids", 1).await;
        send(worker, Signal::SIGKILL);
        fixture.run_ended(run).await;
        assert_eq!(fixture.ended(PATIENCE).await, [RunStatus::Halted]);
        daemon.stop().await;
        fixture.audited().await;
    }

    async fn a_reload_allows_no_output_that_the_server_does_not_take(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WAITING]).await;
        let (mut daemon, before) = under_way(&mut fixture).await;
        let file = fixture.path("ductwork.yml");
        let good = std::fs::read_to_string(&file).unwrap();
        let wide = good.replace("max_crash: 1000\n    backoff", "max_crash: 1000\n    max_payload: 17MiB\n    backoff");
        assert_ne!(wide, good);
        std::fs::write(&file, wide).unwrap();
        daemon.send(Signal::SIGHUP);
        match fixture.conn.dialect() {
            Dialect::Mysql => {
                let said = daemon.says("not reloaded").await;
                let told = "max_allowed_packet allowed 16777216 when the daemon was started";
                assert!(said[0]["problems"].as_str().unwrap().contains(told), "{said:#?}");
                assert!(before.iter().all(|pid| lives(*pid)));
            }
            Dialect::Postgres | Dialect::Sqlite => {
                daemon.says("configuration reloaded").await;
            }
        }
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.audited().await;
    }

    /// The supervisor's settings decide about leases, and its database is the one that it looks at.
    async fn what_only_a_restart_can_change_changes_nothing_else(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WAITING]).await;
        let (mut daemon, before) = under_way(&mut fixture).await;
        let file = fixture.path("ductwork.yml");
        let good = std::fs::read_to_string(&file).unwrap();
        let url = &good.lines().find(|line| line.contains("url:")).unwrap().to_owned();
        let changes = [
            ("database", good.replace(url, "  database: { url: 'sqlite://other.db' }")),
            ("supervisor", good.replace("reaper_timeout: 30s", "reaper_timeout: 300s")),
            ("role", good.replace("default:", "default:\n  role: worker")),
        ];
        for (times, (key, text)) in changes.into_iter().enumerate() {
            assert_ne!(text, good);
            std::fs::write(&file, text.replace("count: 4", "count: 5")).unwrap();
            daemon.send(Signal::SIGHUP);
            let said = daemon.says_times("not reloaded", times + 1).await;
            let told = format!("`{key}` changes with a restart only");
            assert!(said[times]["problems"].as_str().unwrap().contains(&told), "{said:#?}");
        }
        // The same configuration in other words is no reason to disturb any process.
        std::fs::write(&file, format!("# mine\n{good}")).unwrap();
        daemon.send(Signal::SIGHUP);
        daemon.says("configuration reloaded").await;
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.completed(PATIENCE).await;
        assert_eq!(daemon.children("advancer"), before[1..2]);
        assert_eq!(daemon.logged("child started").len(), 2, "one was replaced");
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert!(executions.iter().all(|e| e.attempt == 1), "{executions:#?}");
        fixture.audited().await;
    }

    /// Each generation runs as many steps at once as it may, and a draining one goes on with its
    /// own steps.
    async fn however_often_children_are_replaced_there_are_never_more_than_two_generations(db: Db) {
        const BUSY: &str = r#"
pipeline: Busy
steps: { A: { command: [sh, -c, 'echo $$ >> pids; sleep 0.5; cat'] } }
flow: [{ start: A }]
"#;
        let settings = Settings { count: 2, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[BUSY]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Busy", "1", 60).await;
        fixture.said("pids", 2).await;
        let (mut most_workers, mut most_steps) = (0, 0);
        let mut look = || {
            let processes = daemon.processes();
            let of = |kind: &'static str| processes.iter().filter(move |it| it.kind.starts_with(kind));
            most_workers = most_workers.max(of("worker Busy").count());
            // The shell itself, and not the process that it has forked for a command.
            let shell = "sh -c echo";
            let forked = |it: &&Process| of(shell).any(|parent| parent.pid == it.parent);
            most_steps = most_steps.max(of(shell).filter(|it| !forked(it)).count());
        };
        for _ in 0..25 {
            daemon.send(Signal::SIGUSR2);
            for _ in 0..5 {
                look();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        daemon.says("replacing them when these have ended").await;
        // The last signal takes effect in the end.
        fixture.define(QUICK);
        daemon.send(Signal::SIGHUP);
        daemon.says("configuration reloaded").await;
        let quick = fixture.trigger("Quick", "1", 1).await[0];
        fixture.run_ended(quick).await;
        fixture.completed(PATIENCE).await;
        look();
        assert!(most_workers == 2 && (2..=4).contains(&most_steps), "{most_workers}, {most_steps}");
        eventually_every(SCAN, PATIENCE, "nobody drains", async || {
            let workers = daemon.children("worker Busy");
            (workers.len() == 1 && daemon.children("worker Quick").len() == 1).then_some(())
        })
        .await;
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert!(executions.iter().all(|e| e.attempt == 1), "{executions:#?}");
        fixture.audited().await;
    }

    /// (T7)
    async fn a_run_keeps_the_definition_it_started_with_whatever_is_deployed(db: Db) {
        let ends_with = |step: &str| {
            format!(
                r#"
pipeline: Deployed
steps:
  Wait: {{ command: [sh, -c, 'echo >> waits; until [ -e go ]; do sleep 0.1; done; cat'] }}
  {step}: {{ command: [echo, '"{step}"'] }}
flow: [{{ start: Wait }}, {{ chain: {step} }}]
"#
            )
        };
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[&ends_with("Old")]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let before = fixture.trigger("Deployed", "1", 1).await[0];
        fixture.said("waits", 1).await;
        fixture.define(&ends_with("New"));
        daemon.send(Signal::SIGHUP);
        daemon.says("configuration reloaded").await;
        let after = fixture.trigger("Deployed", "1", 1).await[0];
        fixture.said("waits", 2).await;
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.completed(PATIENCE).await;
        assert_eq!(fixture.output(before).await, "Old");
        assert_eq!(fixture.output(after).await, "New");
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    async fn a_quiet_daemon_finishes_but_claims_nothing_until_it_is_told_to(db: Db) {
        let settings = Settings { reaper_timeout: "2s", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[QUICK, WAITING]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Waiting", "1", 2).await;
        fixture.pids("pids", 2).await;
        daemon.send(Signal::SIGTSTP);
        // The supervisor and three children.
        daemon.says_times("quiet: claiming nothing", 4).await;
        daemon.says(&format!("`kill -CONT {}` lets it claim again", daemon.pid())).await;
        fixture.trigger("Quick", "1", 10).await;
        std::fs::write(fixture.path("go"), "").unwrap();
        eventually(PATIENCE, "what ran has been committed", async || {
            let executions = fixture.executions().await;
            let done = executions.iter().filter(|e| e.result() == "success");
            (done.count() == 2).then_some(())
        })
        .await;
        // A worker that starts while the daemon is quiet is quiet as well.
        let worker = daemon.child("worker Quick", None).await;
        send(worker, Signal::SIGKILL);
        daemon.says_times("quiet: claiming nothing", 5).await;
        let began = fixture.processes().await;
        let beats = |rows: &[ductwork::store::process::ProcessRow]| rows.iter().map(|row| row.beat_seq).min();
        eventually(PATIENCE, "everybody has beaten five times", async || {
            (beats(&fixture.processes().await) > beats(&began).map(|seq| seq + 5)).then_some(())
        })
        .await;
        let executions = fixture.executions().await;
        let claimed = executions.iter().filter(|e| e.step == "A" && e.process_id.is_some());
        assert_eq!(claimed.count(), 0, "{executions:#?}");
        // A person who asks is told.
        assert!(fixture.processes().await.iter().all(|row| row.intake == Intake::Quiet));
        let waiting = executions.iter().find(|e| e.step == "A").unwrap().step_id;
        static RUN_OF: Statement =
            Statement::new("TEST_RUN_OF", "SELECT run_id FROM ductwork_steps WHERE id = :step");
        let run = fixture.conn.fetch_optional(&RUN_OF, &[("step", waiting.into())]).await;
        let run: uuid::Uuid = run.unwrap().unwrap().get("run_id").unwrap();
        let told = fixture.run(&[], &["why", &run.to_string()]);
        let told = String::from_utf8(told.stdout).unwrap();
        assert!(told.contains("no worker of Quick claims: pid "), "{told}");
        assert!(told.contains(&format!("kill -CONT {}", daemon.pid())), "{told}");

        daemon.send(Signal::SIGCONT);
        eventually(PATIENCE, "nobody is quiet", async || {
            fixture.processes().await.iter().all(|row| row.intake.is_open()).then_some(())
        })
        .await;
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    async fn a_person_who_asks_why_is_told_that_a_signal_has_stopped_the_worker(db: Db) {
        let settings = Settings { reaper_timeout: "10s", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[WAITING]).await;
        let run = fixture.trigger("Waiting", "1", 1).await[0].to_string();
        fixture.configure("  role: worker\n");
        let worker = fixture.start();
        fixture.pids("pids", 1).await;
        // A row that a stopped process has locked would be the reason.
        freeze_outside_of_a_write(&db, worker.pid()).await;
        let again = format!("a signal has stopped it; let it go on: kill -CONT {}", worker.pid());
        for held in ["has been running on ", "is held by the worker with pid "] {
            let said = eventually(PATIENCE, held, async || {
                let told = fixture.run(&[], &["why", &run]);
                let said = String::from_utf8(told.stdout).unwrap();
                said.contains(held).then_some(said)
            });
            let said = said.await;
            assert!(said.contains(&again), "{said}");
        }
        worker.send(Signal::SIGCONT);
        std::fs::write(fixture.path("go"), "").unwrap();
        let mut worker = worker;
        worker.stop().await;
    }

    async fn a_daemon_that_waits_for_its_steps_to_end_is_shown_as_stopping(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WAITING]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let first = fixture.trigger("Waiting", "1", 1).await[0];
        fixture.pids("pids", 1).await;
        let broken = fixture.path("pipelines/Broken.yml");
        std::fs::write(&broken, "pipeline: Broken\nflow: [{ start: Nobody }]\n").unwrap();
        daemon.send(Signal::SIGHUP);
        daemon.says("not reloaded").await;
        eventually_every(SELDOM, PATIENCE, "`health` tells of it", async || {
            (fixture.run(&[], &["health"]).status.code() == Some(1)).then_some(())
        })
        .await;
        std::fs::remove_file(broken).unwrap();
        daemon.send(Signal::SIGTERM);
        eventually(PATIENCE, "the supervisor and its worker are stopping", async || {
            let rows = fixture.processes().await;
            let stopping = rows.iter().filter(|row| row.intake == Intake::Stopping);
            (stopping.count() == rows.len() && rows.len() == 2).then_some(())
        })
        .await;
        // It reads nothing any more, so the reload that failed is no trouble.
        eventually_every(SELDOM, PATIENCE, "`health` tells of nothing", async || {
            let told = fixture.run(&[], &["health"]).stdout;
            (told == b"healthy: 1 of 1, of which 1 stopping\n").then_some(())
        })
        .await;
        // No order to rest, and none to go on, changes that.
        daemon.send(Signal::SIGTSTP);
        daemon.send(Signal::SIGCONT);
        daemon.send(Signal::SIGHUP);
        daemon.says("the configuration is not read again").await;
        let second = fixture.trigger("Waiting", "1", 1).await[0];
        let told = fixture.run(&[], &["why", &second.to_string()]);
        let told = String::from_utf8(told.stdout).unwrap();
        assert!(told.contains("no worker of Waiting claims: pid "), "{told}");
        assert!(told.contains(" is stopping"), "{told}");
        let told = fixture.run(&[], &["processes"]);
        let told = String::from_utf8(told.stdout).unwrap();
        assert_eq!(told.matches("stopping").count(), 2, "{told}");
        std::fs::write(fixture.path("go"), "").unwrap();
        let (status, _) = daemon.ended(PATIENCE).await;
        assert!(status.success(), "{status}");
        assert_eq!(fixture.output(first).await, 1);
        fixture.audited().await;
    }

    async fn hundreds_of_dumps_under_load_name_the_running_step_and_harm_nothing(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[QUICK, WAITING]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let children: Vec<i32> = ["advancer", "worker Quick", "worker Waiting"]
            .iter()
            .flat_map(|kind| daemon.children(kind))
            .collect();
        assert_eq!(children.len(), 3);
        fixture.trigger("Waiting", "1", 1).await;
        let step = fixture.pids("pids", 1).await[0];
        fixture.trigger("Quick", "1", 100).await;
        let began = Instant::now();
        for dump in 0..400 {
            daemon.send(Signal::SIGTTIN);
            // The children themselves answer as well.
            send(children[dump % 3], Signal::SIGTTIN);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        eprintln!("400 dumps were asked for in {:?}", began.elapsed());
        eventually(PATIENCE, "a dump names the step, and the supervisor its children", async || {
            let named = |it: &serde_json::Value| {
                it["step"] == "Wait" && it["attempt"] == 1 && it["step_pid"] == step && it["pipeline"] == "Waiting"
            };
            let steps = daemon.logged("running step");
            let up = daemon.logged("child");
            let has = |pid: &i32| up.iter().any(|it| it["child_pid"] == *pid && it["standing"] == "up");
            let ended = daemon.logged("end of dump");
            let all = [daemon.pid()].into_iter().chain(children.iter().copied());
            let all = all.map(|pid| ended.iter().any(|it| it["pid"] == pid && it["threads"].as_u64() > Some(1)));
            (steps.iter().any(named) && all.into_iter().all(|has| has) && children.iter().all(has)).then_some(())
        })
        .await;
        for pid in &children {
            assert!(lives(*pid), "{pid} has ended");
        }
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert_eq!(executions.len(), 1 + 100 * 2);
        fixture.audited().await;
    }

    async fn cancelling_a_run_ends_its_running_step_and_no_other(db: Db) {
        let settings = Settings { reaper_timeout: "2s", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[WAITING]).await;
        let mut daemon = fixture.start();
        let first = fixture.trigger("Waiting", "1", 1).await[0];
        let cancelled = fixture.pids("pids", 1).await[0];
        let second = fixture.trigger("Waiting", "2", 1).await[0];
        let other = fixture.pids("pids", 2).await[1];
        let done = cancel::cancel(&mut fixture.conn, first).await.unwrap();
        assert!(matches!(&done, cancel::Cancel::Done { held } if held.len() == 1), "{done:?}");
        gone(cancelled, Duration::from_secs(5)).await;
        assert!(lives(other));
        std::fs::write(fixture.path("go"), "").unwrap();
        let mut ended = fixture.ended(PATIENCE).await;
        ended.sort_by_key(|status| status.as_str());
        assert_eq!(ended, [RunStatus::Cancelled, RunStatus::Completed]);
        assert_eq!(fixture.output(second).await, 2);
        daemon.stop().await;
        let executions = fixture.executions().await;
        let results: Vec<&str> = executions.iter().map(|e| e.result()).collect();
        assert_eq!(results, ["cancelled", "success"], "{executions:#?}");
        fixture.audited().await;
    }
}
