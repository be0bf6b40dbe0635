//! A database that refuses some connections, or all writes.

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::signal::Signal;

use ductwork::model::{RunId, RunStatus};
use ductwork::store::process::ProcessRow;
use ductwork::store::query;
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Location, Purpose, migrate};

use crate::fixture::*;
use crate::mariadb::Mariadb;
use crate::on_every_server;
use crate::relay::ports_of;
use crate::server::Server;

const STEADY: &str = "
pipeline: Steady
steps: { A: { command: [cat] } }
flow: [{ start: A }]
";

const JOINS: &str = "
pipeline: Joins
steps: { A: { command: [cat] }, B: { command: [cat] }, C: { command: [cat] } }
flow: [{ start: A }, { expand: B }, { collapse: C }]
";

const HOLDS: &str = r#"
pipeline: Holds
steps:
  A: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; cat'] }
flow: [{ start: A }]
"#;

const SETS: &str = "
pipeline: Sets
steps: { A: { command: [sh, -c, '\"$DUCTWORKD\" context set a 1 && cat'] } }
flow: [{ start: A }]
";

const ASKS: &str = r#"
pipeline: Asks
steps: { A: { command: [cat] } }
flow: [{ start: A }, { dampen: { prompt: "send it?", timeout: 5s, then: approve } }]
"#;

/// A disk in memory, which exists as long as this value.
struct Disk {
    at: std::path::PathBuf,
    /// Its own directory, unless it lies over another one.
    _own: Option<tempfile::TempDir>,
}

impl Disk {
    fn mount(size: &str) -> Self {
        let own = tempfile::tempdir().unwrap();
        let mut disk = Self::over(own.path(), size);
        disk._own = Some(own);
        disk
    }

    /// Hides an empty directory.
    fn over(directory: &std::path::Path, size: &str) -> Self {
        let (kind, at) = (Some("tmpfs"), directory.to_owned());
        let none = nix::mount::MsFlags::empty();
        let size = format!("size={size}");
        nix::mount::mount(kind, &at, kind, none, Some(size.as_str())).expect("root can mount");
        Self { at, _own: None }
    }

    /// Fills it completely; returns the file that takes the room.
    fn fill(&self) -> std::path::PathBuf {
        let filler = self.at.join("filler");
        let mut file = std::fs::File::create(&filler).unwrap();
        let full = std::io::copy(&mut std::io::repeat(0), &mut file).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        filler
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.at, nix::mount::MntFlags::MNT_DETACH);
    }
}

/// Two commands that write nothing report that nobody can write.
async fn told_that_nobody_can_write(
    fixture: &mut DaemonFixture,
    run: &str,
    under: &[&str],
    what: &str,
) {
    let health = fixture.run(under, &["health"]);
    let said = String::from_utf8_lossy(&health.stderr);
    assert!(
        health.status.code() == Some(1) && said.contains(what),
        "{said}"
    );
    let why = fixture.run(under, &["why", run]);
    let said = String::from_utf8_lossy(&why.stdout);
    assert!(why.status.success() && said.contains(what), "{said}");
}

#[tokio::test]
async fn health_and_why_tell_that_the_disk_is_full() {
    let disk = Disk::mount("8m");
    let file = disk.at.join("d.db");
    let location = Location::sqlite(&file);
    let mut conn = location.connect(Purpose::Engine).await.unwrap();
    migrate::migrate(&mut conn).await.unwrap();
    let url = format!("sqlite://{}", file.display());
    let mut fixture = DaemonFixture::at(&url, conn, Settings::default(), &[STEADY]).await;
    let run = fixture.trigger("Steady", "1", 1).await[0].to_string();
    disk.fill();
    told_that_nobody_can_write(&mut fixture, &run, &[], "is full, so that nobody can write").await;
    let trigger = fixture.run(&[], &["trigger", "Steady", "1"]);
    let said = String::from_utf8_lossy(&trigger.stderr);
    assert_eq!(trigger.status.code(), Some(69), "{said}");
    assert!(
        said.contains("make room on the disk") && !said.contains("reached"),
        "{said}"
    );
}

/// Long before a lease is over: every process has just beaten.
#[tokio::test]
async fn a_disk_that_fills_up_under_a_daemon_is_told_at_once() {
    let disk = Disk::mount("8m");
    let file = disk.at.join("d.db");
    let location = Location::sqlite(&file);
    let mut conn = location.connect(Purpose::Engine).await.unwrap();
    migrate::migrate(&mut conn).await.unwrap();
    let url = format!("sqlite://{}", file.display());
    let settings = Settings {
        reaper_timeout: "10m",
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::at(&url, conn, settings, &[STEADY]).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    assert!(fixture.run(&[], &["health"]).status.success());
    // The run's branch waits, and does not end meanwhile.
    let hour = std::time::Duration::from_secs(3600);
    let run = fixture.trigger_in(hour, "Steady", "1", 1).await[0].to_string();
    let filler = disk.fill();
    told_that_nobody_can_write(&mut fixture, &run, &[], "is full, so that nobody can write").await;
    std::fs::remove_file(&filler).unwrap();
    health_is_content(&fixture).await;
    daemon.stop().await;
}

const WIDE: &str = "
pipeline: Wide
steps:
  Split: { command: [cat] }
  Each: { command: [sh, -c, 'printf \\\"; head -c 20000 /dev/zero | tr \\\\0 x; printf \\\"'] }
  Again: { command: [cat] }
flow: [{ start: Split }, { expand: Each }, { chain: Again }]
";

/// True where a text tells of a full disk: that of the tables, or that of the server's temporary files.
fn tells_of_a_full_disk(text: &str) -> bool {
    ["No space left on device", "is full"]
        .iter()
        .any(|full| text.contains(full))
}

/// A run of a thousand elements, of which some are done, under a daemon that allows no retry and no crash.
async fn under_way(server: &Mariadb) -> (DaemonFixture, Daemon, RunId) {
    let conn = conn(&server.url).await;
    let settings = Settings {
        max_retry: 0,
        max_crash: 0,
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::at(&server.url, conn, settings, &[WIDE]).await;
    let daemon = fixture.start();
    daemon.ready().await;
    let elements: Vec<u32> = (0..1_000).collect();
    let run = fixture.trigger("Wide", &format!("{elements:?}"), 1).await[0];
    eventually(PATIENCE, "some are done", async || {
        let executions = fixture.executions().await;
        let done = executions.iter().filter(|it| it.result() == "success");
        (done.count() > 50).then_some(())
    })
    .await;
    (fixture, daemon, run)
}

/// Each step has succeeded, at its first attempt.
async fn every_step_succeeded_at_once(mut fixture: DaemonFixture, mut daemon: Daemon, run: RunId) {
    fixture.run_ended(run).await;
    let executions = fixture.succeeded_once_each().await;
    assert_eq!(executions.len(), 2_001);
    assert!(
        executions
            .iter()
            .all(|it| (it.attempt, it.crash_count) == (1, 0))
    );
    daemon.stop().await;
    fixture.audited().await;
}

/// The server's tables have no room, and neither have a session's temporary tables, which a full
/// disk may damage. InnoDB ends the server where the rollback of a transaction finds no room; whoever watches the server
/// starts it again, when there is room.
#[tokio::test]
async fn a_disk_of_mariadbs_that_fills_up_costs_no_retry() {
    let disk = Disk::mount("640m");
    let server = Mariadb::start_in(&disk.at);
    let (mut fixture, daemon, run) = under_way(&server).await;
    // The files that the server overwrites have their room beforehand; without it the server ends. Its log has room for
    // its last words.
    let room = |file: &str, flags: FallocateFlags, least: i64| {
        let file = std::fs::OpenOptions::new()
            .append(true)
            .open(server.file(file))
            .unwrap();
        let size = file.metadata().unwrap().len() as i64;
        fallocate(&file, flags, 0, size.max(least)).unwrap();
    };
    for log in ["data/ib_logfile0", "data/ibtmp1", "data/ibdata1"] {
        room(log, FallocateFlags::empty(), 0);
    }
    room("server.log", FallocateFlags::FALLOC_FL_KEEP_SIZE, 4 << 20);
    let has_ended = || {
        let log = std::fs::read_to_string(server.file("server.log")).unwrap();
        log.contains("(Out of disk space) in rollback")
    };
    let filler = disk.fill();
    eventually(PATIENCE, "the log tells of it", async || {
        (tells_of_a_full_disk(&daemon.text()) || has_ended()).then_some(())
    })
    .await;
    eventually_every(SELDOM, PATIENCE, "`health` tells of it", async || {
        let health = fixture.run(&[], &["health"]);
        let told = String::from_utf8_lossy(&health.stderr);
        (tells_of_a_full_disk(&told) || has_ended()).then_some(())
    })
    .await;
    std::fs::remove_file(&filler).unwrap();
    if has_ended() {
        server.down();
        server.up();
        fixture.conn = conn(&server.url).await;
    }
    every_step_succeeded_at_once(fixture, daemon, run).await;
}

/// Only the server's temporary files have no room: the heartbeats are written, and no step is claimed or committed.
#[tokio::test]
async fn a_disk_of_mariadbs_temporary_files_that_fills_up_is_told_and_costs_no_retry() {
    let server = Mariadb::start();
    let disk = Disk::over(&server.file("tmp"), "8m");
    let (fixture, daemon, run) = under_way(&server).await;
    let filler = disk.fill();
    // `health` needs such files itself: only the log shows what the daemon has found out.
    eventually(PATIENCE, "the log tells of it", async || {
        tells_of_a_full_disk(&daemon.text()).then_some(())
    })
    .await;
    eventually_every(SELDOM, PATIENCE, "`health` tells of it", async || {
        let health = fixture.run(&[], &["health"]);
        let told = String::from_utf8_lossy(&health.stderr);
        (!health.status.success() && tells_of_a_full_disk(&told)).then_some(())
    })
    .await;
    std::fs::remove_file(&filler).unwrap();
    every_step_succeeded_at_once(fixture, daemon, run).await;
}

on_every_server! {
    async fn health_and_why_tell_that_the_server_only_reads(server: Server) {
        let url = server.ordinary();
        let conn = conn(&url).await;
        let mut fixture = DaemonFixture::at(&url, conn, Settings::default(), &[STEADY]).await;
        let run = fixture.trigger("Steady", "1", 1).await[0].to_string();
        server.take_writes(false).await;
        told_that_nobody_can_write(&mut fixture, &run, &[], "takes no writes").await;
        let trigger = fixture.run(&[], &["trigger", "Steady", "1"]);
        let said = String::from_utf8_lossy(&trigger.stderr);
        assert_eq!(trigger.status.code(), Some(69), "{said}");
        let doubt = match server {
            Server::Postgres(_) => "is it a standby",
            Server::Mysql(_) => "takes no writes: its read_only is on",
        };
        assert!(said.contains(doubt), "{said}");
    }

    /// The role may only use the tables that the schema's owner has made; later it is allowed no connections
    /// beyond its present ones. A child that gets none waits, and its supervisor, which has one, reports it.
    async fn a_child_that_is_not_let_in_is_left_to_wait_and_told_of(server: Server) {
        let conn = server.conn().await;
        let (url, refuse, admit, says) = limited(&server).await;
        let settings = Settings {
            reaper_timeout: "30s",
            ..Settings::default()
        };
        let mut fixture = DaemonFixture::at(&url, conn, settings, &[STEADY]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let worker = daemon.child("worker Steady", None).await;
        sql(&server, refuse).await;
        send(worker, Signal::SIGKILL);
        let refused = daemon.child("worker Steady", Some(worker)).await;
        fixture.trigger("Steady", "1", 3).await;
        let waits = daemon.says("waiting for the database").await;
        let error = waits[0]["error"].to_string();
        assert!(error.contains(says), "{error}");
        let told = daemon.says("a child has not registered yet").await;
        let text = told[0]["error"].to_string();
        assert!(
            text.contains("worker Steady") && text.contains(&refused.to_string()),
            "{text}"
        );
        told_by_health(&fixture, &server, "cannot register").await;
        sql(&server, admit).await;
        fixture.completed(PATIENCE).await;
        health_is_content(&fixture).await;
        // The same worker that had waited.
        assert_eq!(daemon.child("worker Steady", None).await, refused);
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    /// The worker goes on writing its heartbeats, by its older connection.
    async fn a_worker_whose_connection_for_its_work_ends_and_is_not_let_in_again_is_told_of(server: Server) {
        let conn = server.conn().await;
        let (url, refuse, admit, says) = limited(&server).await;
        let mut fixture = DaemonFixture::at(&url, conn, Settings::default(), &[STEADY]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let worker = daemon.child("worker Steady", None).await;
        // Its connections are there.
        fixture.trigger("Steady", "1", 1).await;
        fixture.completed(PATIENCE).await;
        sql(&server, refuse).await;
        cut(&server, worker, 1).await;
        fixture.trigger("Steady", "1", 3).await;
        told_by_health(&fixture, &server, says).await;
        sql(&server, admit).await;
        fixture.completed(PATIENCE).await;
        health_is_content(&fixture).await;
        assert_eq!(daemon.child("worker Steady", None).await, worker);
        daemon.stop().await;
        fixture.audited().await;
    }

    /// All connections stay, but for the one that is opened for deadlines when one of them is over.
    async fn a_deadline_for_which_no_connection_is_let_in_is_told_of(server: Server) {
        let conn = server.conn().await;
        let (url, refuse, admit, says) = limited(&server).await;
        let settings = Settings {
            reaper_timeout: "3s",
            ..Settings::default()
        };
        let mut fixture = DaemonFixture::at(&url, conn, settings, &[ASKS]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let run = fixture.trigger("Asks", "1", 1).await[0];
        eventually(PATIENCE, "it asks", async || {
            let state = query::run_state(&mut fixture.conn, run).await.unwrap();
            (state?.status == RunStatus::Dampened).then_some(())
        })
        .await;
        sql(&server, refuse).await;
        told_by_health(&fixture, &server, "some deadlines, unfinished cancellations or deletions of old runs wait").await;
        told_by_health(&fixture, &server, says).await;
        sql(&server, admit).await;
        fixture.run_ended(run).await;
        health_is_content(&fixture).await;
        daemon.stop().await;
        fixture.audited().await;
    }

    /// The worker had been let in, and claimed; its supervisor is still there when its connections end.
    async fn a_child_that_is_not_let_in_again_costs_its_steps_no_crash(server: Server) {
        let conn = server.conn().await;
        let (url, refuse, admit, _) = limited(&server).await;
        let settings = Settings {
            reaper_timeout: "6s",
            max_crash: 0,
            ..Settings::default()
        };
        let mut fixture = DaemonFixture::at(&url, conn, settings, &[HOLDS]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let run = fixture.trigger("Holds", "1", 1).await[0];
        let step = fixture.pids("pids", 1).await[0];
        let worker = daemon.child("worker Holds", None).await;
        sql(&server, refuse).await;
        cut(&server, worker, usize::MAX).await;
        let told = daemon.says("lets the supervisor in and this process no more").await;
        assert_eq!(told[0]["pid"], worker);
        gone(step, PATIENCE).await;
        let released = async || {
            let executions = fixture.executions().await;
            (executions.len() == 2).then_some(executions)
        };
        let executions = eventually(PATIENCE, "its execution is released", released).await;
        assert_eq!((executions[0].result(), executions[1].crash_count), ("released", 0));
        assert!(daemon.logged("killing a child").is_empty());
        sql(&server, admit).await;
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.run_ended(run).await;
        assert_eq!(fixture.output(run).await, 1);
        daemon.stop().await;
        fixture.audited().await;
    }
}

/// The role may do everything but that.
#[tokio::test]
async fn deadlines_that_a_missing_right_keeps_from_passing_are_told_of() {
    let server = Server::Postgres(crate::cluster::Cluster::start());
    let conn = server.conn().await;
    let (url, ..) = limited(&server).await;
    sql(&server, "REVOKE DELETE ON ductwork_deadlines FROM duct").await;
    let settings = Settings {
        reaper_timeout: "3s",
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::at(&url, conn, settings, &[ASKS]).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    let run = fixture.trigger("Asks", "1", 1).await[0];
    let told = "some deadlines, unfinished cancellations or deletions of old runs wait";
    told_by_health(&fixture, &server, told).await;
    assert_eq!(daemon.logged("passing deadlines").len(), 1);
    sql(&server, "GRANT DELETE ON ductwork_deadlines TO duct").await;
    fixture.run_ended(run).await;
    health_is_content(&fixture).await;
    daemon.stop().await;
    fixture.audited().await;
}

/// A role that claims and beats, and neither advances nor recovers.
const READER: &str = "CREATE ROLE reader; GRANT reader TO duct;
    GRANT ALL ON ALL TABLES IN SCHEMA public TO reader; REVOKE INSERT ON ductwork_executions FROM reader";

/// A setting that somebody had made for the role holds for the sessions that began meanwhile, also after it was reset.
#[tokio::test]
async fn a_heartbeat_that_only_its_session_is_refused_is_sent_by_another() {
    let server = Server::Postgres(crate::cluster::Cluster::start());
    let conn = server.conn().await;
    let (url, ..) = limited(&server).await;
    sql(&server, "CREATE ROLE nobody; GRANT nobody TO duct").await;
    let settings = Settings {
        reaper_timeout: "12s",
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::at(&url, conn, settings, &[HOLDS]).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    let run = fixture.trigger("Holds", "1", 1).await[0];
    fixture.pids("pids", 1).await;
    let before = fixture.processes().await;
    let worker = daemon.child("worker Holds", None).await;
    sql(&server, "ALTER ROLE duct SET role = nobody").await;
    cut(&server, worker, usize::MAX).await;
    let told = daemon.says("the heartbeat cannot be written").await;
    assert_eq!(told[0]["pid"], worker);
    sql(&server, "ALTER ROLE duct RESET role").await;
    let told = daemon
        .says("the heartbeat was written after its wait")
        .await;
    assert_eq!(told[0]["pid"], worker);
    std::fs::write(fixture.path("go"), "").unwrap();
    fixture.run_ended(run).await;
    assert_eq!(fixture.succeeded_once_each().await.len(), 1);
    let ids = |rows: &[ProcessRow]| rows.iter().map(|row| row.id).collect::<Vec<_>>();
    assert_eq!(ids(&fixture.processes().await), ids(&before));
    daemon.stop().await;
    fixture.audited().await;
}

/// The same for an advancer: it could claim, and its advances were refused.
#[tokio::test]
async fn a_branch_that_only_a_session_cannot_advance_is_advanced_by_another() {
    let server = Server::Postgres(crate::cluster::Cluster::start());
    let conn = server.conn().await;
    let (url, ..) = limited(&server).await;
    sql(&server, READER).await;
    let mut fixture = DaemonFixture::at(&url, conn, Settings::default(), &[JOINS]).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    let advancer = daemon.child("advancer", None).await;
    sql(&server, "ALTER ROLE duct SET role = reader").await;
    cut(&server, advancer, usize::MAX).await;
    let run = fixture.trigger("Joins", "[1, 2]", 1).await[0];
    let told = daemon.says("the database could not advance a branch").await;
    assert!(
        told[0]["error"].to_string().contains("permission denied"),
        "{told:?}"
    );
    sql(&server, "ALTER ROLE duct RESET role").await;
    fixture.run_ended(run).await;
    assert_eq!(daemon.child("advancer", None).await, advancer);
    daemon.stop().await;
    fixture.audited().await;
}

/// The same for a supervisor: it could beat, and its recoveries were refused.
#[tokio::test]
async fn a_recovery_that_only_a_session_is_refused_is_done_by_another() {
    let server = Server::Postgres(crate::cluster::Cluster::start());
    let conn = server.conn().await;
    let (url, ..) = limited(&server).await;
    sql(&server, READER).await;
    let mut fixture = DaemonFixture::at(&url, conn, Settings::default(), &[HOLDS]).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    let run = fixture.trigger("Holds", "1", 1).await[0];
    fixture.pids("pids", 1).await;
    let worker = daemon.child("worker Holds", None).await;
    sql(&server, "ALTER ROLE duct SET role = reader").await;
    cut(&server, daemon.pid(), usize::MAX).await;
    send(worker, Signal::SIGKILL);
    let told = daemon
        .says("recovering the work of a dead process failed")
        .await;
    assert!(
        told[0]["error"].to_string().contains("permission denied"),
        "{told:?}"
    );
    sql(&server, "ALTER ROLE duct RESET role").await;
    std::fs::write(fixture.path("go"), "").unwrap();
    fixture.run_ended(run).await;
    daemon.stop().await;
    fixture.audited().await;
}

/// For this program the table is empty, and no statement fails.
#[tokio::test]
async fn rows_that_a_policy_of_the_database_hides_are_told_of() {
    let server = Server::Postgres(crate::cluster::Cluster::start());
    let conn = server.conn().await;
    let (url, ..) = limited(&server).await;
    let settings = Settings {
        reaper_timeout: "3s",
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::at(&url, conn, settings, &[ASKS]).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    let enable = "ALTER TABLE ductwork_deadlines ENABLE ROW LEVEL SECURITY";
    sql(&server, enable).await;
    let run = fixture.trigger("Asks", "1", 1).await[0];
    let told = "row-level security hides the rows of ductwork_deadlines from the role duct";
    told_by_health(&fixture, &server, told).await;
    assert_eq!(daemon.logged("the database hides rows").len(), 1);
    let mut another = fixture.start();
    let (status, _) = another.ended(PATIENCE).await;
    assert!(another.text().contains(told), "{}", another.text());
    assert_eq!(status.code(), Some(2), "{}", another.text());
    // With a policy, the rows are there.
    let policy = "CREATE POLICY own ON ductwork_deadlines TO duct USING (true)";
    sql(&server, policy).await;
    fixture.run_ended(run).await;
    health_is_content(&fixture).await;
    daemon.stop().await;
    fixture.audited().await;
}

/// The step waits for its value, and the attempt goes on.
#[tokio::test]
async fn a_value_that_a_missing_right_keeps_from_being_set_is_told_of_and_costs_no_attempt() {
    let server = Server::Postgres(crate::cluster::Cluster::start());
    let conn = server.conn().await;
    let (url, ..) = limited(&server).await;
    sql(&server, "REVOKE INSERT ON ductwork_tuples FROM duct").await;
    let settings = Settings {
        max_retry: 0,
        max_crash: 0,
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::at(&url, conn, settings, &[SETS]).await;
    let program = env!("CARGO_BIN_EXE_ductworkd");
    fixture.variables.insert("DUCTWORKD", program.to_owned());
    let mut daemon = fixture.start();
    daemon.ready().await;
    let run = fixture.trigger("Sets", "1", 1).await[0];
    told_by_health(
        &fixture,
        &server,
        "some values of contexts wait to be written",
    )
    .await;
    let told = daemon
        .says("a value of a context could not be written")
        .await;
    let error = told[0]["error"].to_string();
    assert!(error.contains("permission denied"), "{error}");
    sql(&server, "GRANT INSERT ON ductwork_tuples TO duct").await;
    fixture.run_ended(run).await;
    health_is_content(&fixture).await;
    assert_eq!(fixture.succeeded_once_each().await.len(), 1);
    daemon.stop().await;
    fixture.audited().await;
}

/// Waits until `health` finds nothing.
async fn health_is_content(fixture: &DaemonFixture) {
    eventually_every(SELDOM, PATIENCE, "health is content", async || {
        fixture.run(&[], &["health"]).status.success().then_some(())
    })
    .await;
}

/// Waits until `health` says this to somebody whom the server lets in.
async fn told_by_health(fixture: &DaemonFixture, server: &Server, says: &str) {
    let variable = format!("DUCTWORK_DATABASE_URL={}", server.url());
    eventually_every(SELDOM, PATIENCE, "`health` tells of it", async || {
        let health = fixture.run(&["env", &variable], &["health"]);
        let said = String::from_utf8_lossy(&health.stderr);
        (!health.status.success() && said.contains(says)).then_some(())
    })
    .await;
}

/// Ends at most this many connections of this process, the newest first.
async fn cut(server: &Server, pid: i32, most: usize) {
    static SESSIONS: Statement = Statement::new(
        "TEST_SESSIONS",
        "SELECT pid::bigint AS id, client_port::text AS client FROM pg_stat_activity WHERE client_port > 0
          ORDER BY backend_start DESC",
    );
    static PROCESSES: Statement = Statement::new(
        "TEST_PROCESSES",
        "SELECT id, host AS client FROM information_schema.processlist ORDER BY id DESC",
    );
    let url = server.url();
    let to = url
        .rsplit(':')
        .next()
        .and_then(|it| it.split(['/', '?']).next());
    let ports = ports_of(pid, to.unwrap().parse().unwrap());
    assert!(!ports.is_empty(), "{pid} is connected to {url}");
    let mut conn = server.connect().await;
    let (sessions, end) = match server {
        Server::Postgres(_) => (&SESSIONS, "SELECT pg_terminate_backend(ID)"),
        Server::Mysql(_) => (&PROCESSES, "KILL CONNECTION ID"),
    };
    let sessions = conn.fetch(sessions, &[]).await.unwrap();
    let its = sessions.iter().filter(|session| {
        let client: String = session.get("client").unwrap();
        let port = client.rsplit(':').next().and_then(|port| port.parse().ok());
        port.is_some_and(|port| ports.contains(&port))
    });
    for session in its.take(most) {
        let id: i64 = session.get("id").unwrap();
        let end = end.replace("ID", &id.to_string()).leak();
        conn.script("TEST_END", end).await.unwrap();
    }
}

async fn conn(url: &str) -> Conn {
    let location = Location::parse(url).unwrap();
    let mut conn = location.connect(Purpose::Engine).await.unwrap();
    migrate::migrate(&mut conn).await.unwrap();
    conn
}

async fn sql(server: &Server, sql: &'static str) {
    let mut conn = server.connect().await;
    conn.script("TEST_SQL", sql).await.unwrap();
}

/// The URL of another role, the statements that refuse it new connections and admit them again, and the error
/// that its next connection gets.
async fn limited(server: &Server) -> (String, &'static str, &'static str, &'static str) {
    let (_, at) = server.url().split_once('@').unwrap();
    match server {
        Server::Postgres(_) => {
            let make = "CREATE ROLE duct LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC;
                GRANT ALL ON ALL TABLES IN SCHEMA public TO duct";
            sql(server, make).await;
            (
                format!("postgres://duct@{at}"),
                "ALTER ROLE duct CONNECTION LIMIT 0",
                "ALTER ROLE duct CONNECTION LIMIT -1",
                "too many connections for role",
            )
        }
        Server::Mysql(_) => {
            let make = "CREATE USER duct IDENTIFIED BY 'duct';
                GRANT SELECT, INSERT, UPDATE, DELETE, CREATE TEMPORARY TABLES ON ductwork.* TO duct";
            sql(server, make).await;
            (
                format!("mysql://duct:duct@{at}"),
                // A limit there does not count older sessions.
                "ALTER USER duct ACCOUNT LOCK",
                "ALTER USER duct ACCOUNT UNLOCK",
                "account is locked",
            )
        }
    }
}
