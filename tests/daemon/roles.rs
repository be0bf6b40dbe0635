//! One role per process, without a supervisor: containers with one process.

use std::time::{Duration, Instant};

use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Dialect, Location, Purpose, migrate};
use nix::sys::signal::Signal;

use crate::cluster::Cluster;
use crate::fixture::*;
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

/// A step that starts processes in groups and sessions of their own; its second attempt checks whether they still
/// exist.
const LEAVING: &str = r#"
pipeline: Leaving
steps:
  Leave:
    command:
      - sh
      - -c
      - |
        if [ $DUCTWORK_ATTEMPT -gt 1 ]; then
          for pid in $(cat strays); do
            case $(cut -d' ' -f3 /proc/$pid/stat 2>/dev/null) in ''|Z|X) ;; *) echo $pid >> beside ;; esac
          done
          exit 0
        fi
        setsid sleep 1000 & echo $! >> strays
        setsid sh -c 'setsid sleep 1000 & echo $! >> strays; wait' &
        echo $$ >> leaders
        wait
flow: [{ start: Leave }]
"#;

/// A step that ignores TERM, the first time.
const DEAF: &str = r#"
pipeline: Deaf
steps:
  A: { command: [sh, -c, 'trap "" TERM; [ $DUCTWORK_ATTEMPT -gt 1 ] && exit 0; echo $$ >> pids; while :; do sleep 0.1; done'] }
flow: [{ start: A }]
"#;

/// A step that reports that it was asked to end, and goes on, the first time.
const ASKED: &str = r#"
pipeline: Asked
steps:
  A: { command: [sh, -c, 'trap "echo $$ >> asked" TERM; [ $DUCTWORK_ATTEMPT -gt 1 ] && exit 0; echo $$ >> pids; while :; do sleep 0.1; done'] }
flow: [{ start: A }]
"#;

/// A pipeline whose step reports its pid and waits for a file.
fn waits(name: &str) -> String {
    format!(
        "pipeline: {name}\n\
         steps: {{ Wait: {{ command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; cat'] }} }}\n\
         flow: [{{ start: Wait }}]\n"
    )
}

const ADVANCER: [&str; 2] = ["env", "DUCTWORK_ROLE=advancer"];
const WORKER: [&str; 2] = ["env", "DUCTWORK_ROLE=worker"];

/// A minute passes before the first deletion; the run is old enough by then.
#[tokio::test]
async fn old_runs_are_deleted_by_a_supervisor_or_by_an_advancer_without_one() {
    tokio::join!(deletes_old_runs(&["env"]), deletes_old_runs(&ADVANCER));
}

async fn deletes_old_runs(wrapper: &[&str]) {
    static RUNS: Statement = Statement::new("TEST_RUNS", "SELECT id FROM ductwork_runs");
    let after = "pipeline: After\nsteps: { A: { command: [cat] } }\nflow: [{ start: A }]\n";
    let db = Db::sqlite();
    let mut fixture = DaemonFixture::new(&db, Settings::default(), &[after]).await;
    fixture.configure("  retention: 60s\n");
    let mut daemon = fixture.start();
    fixture.trigger("After", "1", 1).await;
    fixture.completed(PATIENCE).await;
    daemon.stop().await;
    let mut daemon = fixture.start_as(wrapper, &["start"]);
    let conn = &mut fixture.conn;
    eventually(PATIENCE, "the run is deleted", async || {
        let runs = conn.fetch(&RUNS, &[]).await.unwrap();
        runs.is_empty().then_some(())
    })
    .await;
    daemon.stop().await;
    fixture.audited().await;
}

/// The definition is in the database, so the advancer needs neither the file of the pipeline nor its name.
#[tokio::test]
async fn an_advancer_moves_the_branches_of_pipelines_that_have_no_workers_on_its_host() {
    const HERE: &str = "pipeline: Here\nsteps: { A: { command: [cat] } }\nflow: [{ start: A }]\n";
    const THERE: &str = "pipeline: There\nsteps: { A: { command: [cat] }, B: { command: [cat] }, C: { command: [cat] } }\n\
                         flow: [{ start: A }, { expand: B }, { collapse: C }]\n";
    crate::support::with(Db::sqlite(), |db| async move {
        let settings = Settings::default();
        let mut fixture = DaemonFixture::new(&db, settings, &[HERE, THERE]).await;
        let mut there = fixture.start_as(&WORKER, &["start"]);
        there.says("registered").await;
        std::fs::remove_file(fixture.path("pipelines/There.yml")).unwrap();
        let mut here = fixture.start_as(&["env", "DUCTWORK_PIPELINES=Here"], &["start"]);
        here.ready().await;
        let run = fixture.trigger("There", "[1, 2]", 1).await[0];
        fixture.run_ended(run).await;
        here.stop().await;
        there.stop().await;
        fixture.audited().await;
    })
    .await;
}

/// Ends all sessions of the test's database but its own; returns how many there were.
async fn kill_sessions(conn: &mut Conn) -> usize {
    static SESSIONS: Statement = Statement::new(
        "TEST_SESSIONS",
        "SELECT CAST(ID AS SIGNED) AS id FROM information_schema.PROCESSLIST
          WHERE DB = DATABASE() AND ID <> CONNECTION_ID()",
    );
    let sessions = conn.fetch(&SESSIONS, &[]).await.unwrap();
    for session in &sessions {
        let kill = format!("KILL {}", session.get::<i64>("id").unwrap());
        conn.script("KILL", kill.leak()).await.unwrap();
    }
    sessions.len()
}

on_every_database! {
    async fn roles_without_a_supervisor_recover_each_other_and_end_cleanly(db: Db) {
        let settings = Settings { reaper_timeout: "2s", max_retry: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[WAITING]).await;
        let mut advancer = fixture.start_as(&ADVANCER, &["start"]);
        advancer.says("registered").await;
        let mut worker = fixture.start_as(&WORKER, &["start"]);
        fixture.trigger("Waiting", "1", 2).await;
        let steps = fixture.pids("pids", 2).await;
        // The advancer has forked no process.
        assert_eq!(advancer.processes().len(), 1);
        worker.send(Signal::SIGKILL);
        worker.ended(PATIENCE).await;
        for pid in steps {
            gone(pid, Duration::from_secs(2)).await;
        }
        // The advancer recovers the worker's executions, and no other process needs to have waited
        // for them.
        let began = Instant::now();
        advancer.says("recovered the work of a dead process").await;
        eprintln!("recovered after {:?}", began.elapsed());

        let mut worker = fixture.start_as(&WORKER, &["start"]);
        fixture.completed(PATIENCE).await;
        worker.stop().await;
        advancer.stop().await;
        let executions = fixture.succeeded_once_each().await;
        let crashed = executions.iter().filter(|e| e.result() == "process_crashed");
        assert_eq!(crashed.count(), 2, "{executions:#?}");
        assert!(fixture.processes().await.is_empty());
        fixture.audited().await;
    }

    /// No daemon exists to recover anything, and only the watcher acts.
    async fn what_the_steps_of_a_lone_worker_left_is_gone_as_soon_as_the_worker_is_killed(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[LEAVING]).await;
        let mut worker = fixture.start_as(&WORKER, &["start"]);
        worker.says("registered").await;
        let watcher = |worker: &Daemon| {
            let processes = worker.processes().into_iter();
            let mut watchers = processes.filter(|it| it.kind.contains("ductworkd watcher"));
            watchers.next().map(|it| it.pid)
        };
        let first = eventually(PATIENCE, "a watcher", async || watcher(&worker)).await;
        // A signal to a whole group or service does not end the watcher, nor does the end of a
        // terminal.
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
            send(first, signal);
        }
        fixture.trigger("Leaving", "1", 2).await;
        fixture.pids("leaders", 2).await;
        fixture.pids("strays", 4).await;
        // A watcher that dies has a successor.
        assert_eq!(watcher(&worker), Some(first));
        send(first, Signal::SIGKILL);
        worker.says("the watcher of this worker has died").await;
        eventually(PATIENCE, "another watcher", async || watcher(&worker).filter(|it| *it != first)).await;
        let left: Vec<i32> = fixture.pids("strays", 4).await;
        assert!(left.iter().all(|pid| lives(*pid)), "{left:?}");

        let killed = Instant::now();
        worker.send(Signal::SIGKILL);
        worker.ended(PATIENCE).await;
        worker.gone(Duration::from_secs(5)).await;
        eprintln!("what was left is gone after {:?}", killed.elapsed());
        worker.says("ended what its steps left behind").await;

        let mut next = fixture.start_as(&WORKER, &["start"]);
        let mut advancer = fixture.start_as(&ADVANCER, &["start"]);
        fixture.completed(PATIENCE).await;
        assert!(fixture.lines("beside").is_empty(), "{:?}", fixture.lines("beside"));
        // A worker that ends in order takes its watcher along.
        next.stop().await;
        advancer.stop().await;
        assert!(next.logged("left behind").is_empty());
        let executions = fixture.succeeded_once_each().await;
        let crashed = executions.iter().filter(|e| e.result() == "process_crashed");
        assert_eq!(crashed.count(), 2, "{executions:#?}");
        fixture.audited().await;
    }

    /// The step takes the full time between TERM and KILL, which is as long as a worker tries to store its last
    /// results.
    async fn a_step_that_takes_all_of_its_grace_at_a_stop_is_released_at_no_cost(db: Db) {
        let settings = Settings { shutdown_timeout: "200ms", max_retry: 0, max_crash: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[DEAF]).await;
        let mut worker = fixture.start_as(&WORKER, &["start"]);
        let mut advancer = fixture.start_as(&ADVANCER, &["start"]);
        fixture.trigger("Deaf", "1", 2).await;
        for pid in fixture.pids("pids", 2).await {
            assert!(lives(pid), "nothing to stop: the test is empty");
        }
        worker.send(Signal::SIGTERM);
        let (status, took) = worker.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{status}");
        assert!(took > Duration::from_secs(5), "it needed no grace: {took:?}");
        assert!(worker.logged("without storing").is_empty(), "{:#?}", worker.log());
        let executions = fixture.executions().await;
        let released = executions.iter().filter(|e| e.result() == "released");
        assert_eq!(released.count(), 2, "{executions:#?}");

        let mut worker = fixture.start_as(&WORKER, &["start"]);
        fixture.completed(PATIENCE).await;
        worker.stop().await;
        advancer.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert!(executions.iter().all(|e| e.crash_count == 0), "{executions:#?}");
        fixture.audited().await;
    }

    /// The steps have been asked to end, and have five seconds for that.
    async fn a_stop_at_once_ends_the_grace_that_steps_have_after_a_drain(db: Db) {
        let settings = Settings { shutdown_timeout: "200ms", max_retry: 0, max_crash: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[ASKED]).await;
        let mut worker = fixture.start_as(&WORKER, &["start"]);
        let mut advancer = fixture.start_as(&ADVANCER, &["start"]);
        fixture.trigger("Asked", "1", 2).await;
        fixture.pids("pids", 2).await;
        worker.send(Signal::SIGTERM);
        fixture.pids("asked", 2).await;
        worker.send(Signal::SIGQUIT);
        let (status, took) = worker.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{status}");
        // The grace has five seconds.
        assert!(took < Duration::from_secs(4), "{took:?}");
        worker.gone(Duration::ZERO).await;
        let executions = fixture.executions().await;
        let released = executions.iter().filter(|e| e.result() == "released");
        assert_eq!(released.count(), 2, "{executions:#?}");

        let mut worker = fixture.start_as(&WORKER, &["start"]);
        fixture.completed(PATIENCE).await;
        worker.stop().await;
        advancer.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert!(executions.iter().all(|e| e.crash_count == 0), "{executions:#?}");
        fixture.audited().await;
    }

    /// To all others, each is a process of its own, with its own claims, connections and heartbeat. Executions that
    /// one of them does not know of after a lost connection do not belong to another.
    async fn a_worker_of_several_pipelines_is_as_many_workers(db: Db) {
        let settings = Settings { max_retry: 0, ..Settings::default() };
        let (one, two) = (waits("One"), waits("Two"));
        let pipelines = [one.as_str(), two.as_str()];
        // A server of its own: nothing distinguishes the sessions of one test from those of
        // another.
        let cluster = (db.conn().await.dialect() == Dialect::Postgres).then(Cluster::start);
        let mut fixture = match &cluster {
            Some(cluster) => {
                let location = Location::parse(&cluster.url).unwrap();
                let mut conn = location.connect(Purpose::Engine).await.unwrap();
                migrate::migrate(&mut conn).await.unwrap();
                DaemonFixture::at(&cluster.url, conn, settings, &pipelines).await
            }
            None => DaemonFixture::new(&db, settings, &pipelines).await,
        };
        let mut advancer = fixture.start_as(&ADVANCER, &["start"]);
        let mut worker = fixture.start_as(&WORKER, &["start"]);
        worker.says_times("registered", 2).await;
        advancer.says("registered").await;
        for pipeline in ["One", "Two"] {
            fixture.trigger(pipeline, "1", 1).await;
        }
        fixture.said("pids", 2).await;
        let mut kinds: Vec<_> = fixture.processes().await.into_iter().map(|row| row.pipeline).collect();
        kinds.sort();
        assert_eq!(kinds, [None, Some("One".to_owned()), Some("Two".to_owned())]);
        // Each of them loses its connections while a step runs, and works on.
        let cut = match fixture.conn.dialect() {
            Dialect::Postgres => {
                static CUT: Statement = Statement::new(
                    "TEST_CUT",
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                      WHERE datname = current_database() AND pid <> pg_backend_pid()",
                );
                Some(fixture.conn.fetch(&CUT, &[]).await.unwrap().len())
            }
            Dialect::Mysql => Some(kill_sessions(&mut fixture.conn).await),
            Dialect::Sqlite => None,
        };
        // Two connections for each of the two: the lifeline's, and the one for its work.
        assert!(cut.is_none_or(|cut| cut >= 4), "{cut:?}");
        for pipeline in ["One", "Two"] {
            fixture.trigger(pipeline, "1", 1).await;
        }
        fixture.said("pids", 4).await;
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.completed(PATIENCE).await;
        worker.stop().await;
        advancer.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert!(executions.iter().all(|e| e.attempt == 1), "{executions:#?}");
        assert_eq!(fixture.lines("pids").len(), 4, "a step has run twice");
        assert!(fixture.processes().await.is_empty());
        fixture.audited().await;
    }

    /// Woken by the trigger: polling alone would take minutes.
    async fn each_pipeline_of_a_worker_hears_that_there_is_work(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[&waits("One"), &waits("Two")]).await;
        fixture.variables.insert("DUCTWORK_JOB_WORKER__POLLING_TIMEOUT", "10m".to_owned());
        std::fs::write(fixture.path("go"), "").unwrap();
        let mut worker = fixture.start_as(&WORKER, &["start"]);
        worker.says_times("registered", 2).await;
        for round in 0..3 {
            for pipeline in ["One", "Two"] {
                let ended = fixture.run(&[], &["trigger", pipeline, "1", "--wait"]);
                assert!(ended.status.success(), "{round}: {ended:?}");
            }
        }
        worker.stop().await;
        fixture.audited().await;
    }

    /// With `Type=notify` a start that says nothing fails after a while, and a loop that says nothing is killed.
    async fn a_role_of_its_own_tells_the_service_manager_how_it_is(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[&waits("One")]).await;
        let path = fixture.path("notify");
        let listen = tokio::net::UnixDatagram::bind(&path).unwrap();
        fixture.variables.insert("NOTIFY_SOCKET", path.to_str().unwrap().to_owned());
        fixture.variables.insert("DUCTWORK_CONSOLE__LISTEN", "127.0.0.1:0".to_owned());
        for role in ["worker", "advancer", "console"] {
            fixture.variables.insert("DUCTWORK_ROLE", role.to_owned());
            let mut daemon = fixture.start();
            let mut heard = Vec::new();
            let mut hears = async |word: &str| {
                while !heard.iter().any(|it: &String| it.starts_with(word)) {
                    let mut message = [0; 512];
                    let received = tokio::time::timeout(PATIENCE, listen.recv(&mut message)).await;
                    let n = received.unwrap_or_else(|_| panic!("{role}: no {word} in {heard:?}")).unwrap();
                    heard.push(String::from_utf8_lossy(&message[..n]).trim().to_owned());
                }
                std::mem::take(&mut heard)
            };
            hears("READY=1").await;
            for _ in 0..2 {
                hears("WATCHDOG=1").await;
            }
            daemon.send(Signal::SIGTERM);
            hears("STOPPING=1").await;
            hears("EXTEND_TIMEOUT_USEC=").await;
            let (status, _) = daemon.ended(PATIENCE).await;
            assert_eq!(status.code(), Some(0), "{status}");
        }
    }

    async fn a_role_of_its_own_ends_when_no_work_is_left(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[&waits("One"), &waits("Two")]).await;
        for pipeline in ["One", "Two"] {
            fixture.trigger(pipeline, "1", 3).await;
        }
        let verb = ["start", "--until-idle"];
        let mut worker = fixture.start_as(&WORKER, &verb);
        let mut advancer = fixture.start_as(&ADVANCER, &verb);
        fixture.said("pids", 6).await;
        assert!(worker.has_ended().is_none() && advancer.has_ended().is_none());
        std::fs::write(fixture.path("go"), "").unwrap();
        for daemon in [&mut worker, &mut advancer] {
            let (status, _) = daemon.ended(PATIENCE).await;
            assert_eq!(status.code(), Some(0), "{status}");
        }
        fixture.completed(PATIENCE).await;
        fixture.audited().await;
    }

    async fn a_stop_is_not_undone_by_a_word_that_comes_after_it(db: Db) {
        // The drain must not end before the dump.
        let settings = Settings { shutdown_timeout: "10m", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[&waits("One"), &waits("Two")]).await;
        let mut worker = fixture.start_as(&WORKER, &["start"]);
        fixture.trigger("One", "1", 1).await;
        fixture.said("pids", 1).await;
        // Signals are handled in the order of their numbers, which is this one.
        for signal in [Signal::SIGTERM, Signal::SIGTSTP, Signal::SIGTTIN] {
            worker.send(signal);
        }
        worker.says("end of dump").await;
        let mut dumps = worker.log();
        dumps.retain(|event| event["mode"].is_string());
        assert!(!dumps.is_empty() && dumps.iter().all(|it| it["mode"].as_str().unwrap().starts_with("Drain")), "{dumps:#?}");
        std::fs::write(fixture.path("go"), "").unwrap();
        let (status, _) = worker.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{status}");
        fixture.audited().await;
    }

    /// Its runs continue where a worker for it runs: until then they wait, and not in silence.
    async fn a_pipeline_that_nobody_works_any_more_is_told_of(db: Db) {
        static LONG_AGO: Statement = Statement::new(
            "TEST_LONG_AGO",
            "UPDATE ductwork_availabilities SET due_at = due_at - 90000000",
        );
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[&waits("Kept"), &waits("Gone")]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        std::fs::write(fixture.path("go"), "").unwrap();
        std::fs::rename(fixture.path("pipelines/Gone.yml"), fixture.path("Gone.yml")).unwrap();
        daemon.send(Signal::SIGHUP);
        daemon.says("configuration reloaded").await;
        let kept = fixture.trigger("Kept", "1", 1).await[0];
        fixture.run_ended(kept).await;
        eventually_every(SCAN, PATIENCE, "nobody works it", async || {
            daemon.children("worker Gone").is_empty().then_some(())
        })
        .await;
        let run = fixture.trigger("Gone", "1", 1).await[0];
        let health = |fixture: &DaemonFixture, verb: &[&str]| {
            let done = fixture.run(&[], verb);
            let said = [done.stdout, done.stderr].concat();
            (done.status.code(), String::from_utf8(said).unwrap())
        };
        // The run has just begun to wait.
        assert_eq!(health(&fixture, &["health"]).0, Some(0));
        fixture.conn.execute(&LONG_AGO, &[]).await.unwrap();
        let (code, said) = health(&fixture, &["health"]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("unhealthy: ") && said.contains("Gone"), "{said}");
        let (code, said) = health(&fixture, &["health", "--json"]);
        assert!(code == Some(1) && said.contains("\"no_worker\""), "{said}");
        // No reason to restart a container.
        assert_eq!(health(&fixture, &["health", "--here"]).0, Some(0));
        let (_, why) = health(&fixture, &["why", &run.to_string()]);
        assert!(why.contains("no worker of Gone is alive") && why.contains("`pipelines`"), "{why}");
        let reported = daemon.says("stuck: work of Gone has been due for 1m ").await.remove(0);
        assert_eq!(reported["cause"], "no_worker", "{reported}");
        assert_eq!((&reported["pipeline"], &reported["run_id"]), (&"Gone".into(), &run.to_string().into()));

        std::fs::rename(fixture.path("Gone.yml"), fixture.path("pipelines/Gone.yml")).unwrap();
        daemon.send(Signal::SIGHUP);
        fixture.completed(PATIENCE).await;
        assert_eq!(health(&fixture, &["health"]).0, Some(0));
        assert_eq!(daemon.logged("stuck: ").len(), 1);
        daemon.stop().await;
        fixture.audited().await;
    }

    async fn a_worker_without_a_supervisor_takes_in_what_its_killed_steps_leave(db: Db) {
        let settings = Settings { shutdown_timeout: "300ms", max_retry: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[WAITING]).await;
        let mut advancer = fixture.start_as(&ADVANCER, &["start"]);
        let mut worker = fixture.start_as(&WORKER, &["start"]);
        fixture.trigger("Waiting", "1", 2).await;
        fixture.pids("pids", 2).await;
        let strays = fixture.pids("strays", 2).await;
        worker.send(Signal::SIGTERM);
        worker.says("step did not succeed").await;
        worker.ended(PATIENCE).await;
        for pid in strays {
            gone(pid, Duration::from_secs(2)).await;
        }
        worker.gone(Duration::ZERO).await;
        advancer.stop().await;
        let executions = fixture.executions().await;
        let released = executions.iter().filter(|e| e.result() == "released");
        assert_eq!(released.count(), 2, "{executions:#?}");
        fixture.audited().await;
    }
}
