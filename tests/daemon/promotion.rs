//! The URL names a primary and its standby, and the standby is promoted under load: after an orderly
//! handover, or after the primary's host was lost; and the primary comes back as an independent server.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ductwork::definition::{Definition, yaml};
use ductwork::model::{RunId, RunStatus};
use ductwork::store::statement::Statement;
use ductwork::store::trigger::{self, NewRun};
use ductwork::store::{Conn, Error, Location, Purpose, migrate, query};
use nix::sys::signal::Signal;

use crate::cluster::Cluster;
use crate::fixture::*;

const CHAIN: &str = r#"
pipeline: Chain
steps:
  A: { command: [sh, -c, 'sleep 0.05; cat'] }
  B: { command: [cat] }
flow: [{ start: A }, { chain: B }]
"#;

const FAN: &str = r#"
pipeline: Fan
steps:
  A: { command: [cat] }
  B: { command: [sh, -c, 'sleep 0.05; cat'] }
  C: { command: [cat] }
flow: [{ start: A }, { divide: [A, B] }, { combine: C }]
"#;

/// A step that runs until it is let go.
const HOLDING: &str = r#"
pipeline: Holding
steps: { A: { command: [sh, -c, 'echo x >> holds; until [ -e go ]; do sleep 0.1; done; cat'] } }
flow: [{ start: A }]
"#;

const HOLDERS: usize = 2;

/// The number of the daemon's processes, each of which has a row.
const PROCESSES: usize = 5;

fn settings() -> Settings {
    Settings {
        reaper_timeout: "2s",
        max_retry: 0,
        level: "info",
        ..Settings::default()
    }
}

/// The test's own connection to one server: it is not one of ductworkd's sessions.
async fn connect(cluster: &Cluster) -> Conn {
    let url = format!("{}?application_name=test", cluster.url);
    let location = Location::parse(&url).expect("the server's URL");
    location.connect(Purpose::Engine).await.unwrap()
}

/// A primary, its standby, a URL that names both, and a deployment on them.
struct Pair {
    primary: Cluster,
    standby: Cluster,
    url: String,
    fixture: DaemonFixture,
}

impl Pair {
    async fn start(pipelines: &[&str]) -> Self {
        let primary = Cluster::start();
        let mut conn = connect(&primary).await;
        migrate::migrate(&mut conn).await.unwrap();
        let standby = primary.standby();
        let (user, _) = primary.url.split_once('@').unwrap();
        let (_, name) = primary.url.rsplit_once('/').unwrap();
        let url = format!("{user}@{},{}/{name}", primary.place(), standby.place());
        let fixture = DaemonFixture::at(&url, conn, settings(), pipelines).await;
        Self {
            primary,
            standby,
            url,
            fixture,
        }
    }

    /// Makes the primary acknowledge only commits that the standby has as well.
    async fn synchronous(&mut self) {
        for sql in [
            "ALTER SYSTEM SET synchronous_standby_names = '*'",
            "SELECT pg_reload_conf()",
        ] {
            let conn = &mut self.fixture.conn;
            conn.script("be synchronous", sql).await.unwrap();
        }
        static SYNCHRONOUS: Statement = Statement::new(
            "TEST_SYNCHRONOUS",
            "SELECT count(*) AS n FROM pg_stat_replication
              WHERE sync_state = 'sync' AND current_setting('synchronous_commit') = 'on'",
        );
        let conn = &mut self.fixture.conn;
        eventually(PATIENCE, "the standby is synchronous", async || {
            (number(conn, &SYNCHRONOUS).await == 1).then_some(())
        })
        .await;
    }

    /// Promotes the standby, which the test looks at from now on; returns how much was done there
    /// before.
    async fn promote(&mut self) -> i64 {
        let mut conn = connect(&self.standby).await;
        assert!(is_standby(&mut conn).await, "nothing is to be promoted");
        let done = successes(&mut conn).await;
        let began = Instant::now();
        self.standby.promote();
        assert!(!is_standby(&mut conn).await, "it was not promoted");
        let promoted = Instant::now();
        eventually(PATIENCE, "work goes on", async || {
            (successes(&mut conn).await > done).then_some(())
        })
        .await;
        eprintln!(
            "the promotion took {:?}, and the first result came {:?} later",
            promoted - began,
            promoted.elapsed()
        );
        self.fixture.conn = conn;
        done
    }
}

async fn number(conn: &mut Conn, statement: &Statement) -> i64 {
    let row = conn.fetch_optional(statement, &[]).await.unwrap();
    row.unwrap().get("n").unwrap()
}

async fn is_standby(conn: &mut Conn) -> bool {
    static RECOVERS: Statement = Statement::new(
        "TEST_RECOVERS",
        "SELECT CAST(CAST(pg_is_in_recovery() AS int) AS bigint) AS n",
    );
    number(conn, &RECOVERS).await == 1
}

async fn successes(conn: &mut Conn) -> i64 {
    static SUCCESSES: Statement = Statement::new(
        "TEST_SUCCESSES",
        "SELECT count(*) AS n FROM ductwork_executions WHERE result = 'success'",
    );
    number(conn, &SUCCESSES).await
}

async fn runs(conn: &mut Conn) -> i64 {
    static RUNS: Statement = Statement::new("TEST_RUNS", "SELECT count(*) AS n FROM ductwork_runs");
    number(conn, &RUNS).await
}

/// The total number of heartbeats that processes have written to a database.
async fn beats(conn: &mut Conn) -> i64 {
    static BEATS: Statement = Statement::new(
        "TEST_BEATS",
        "SELECT CAST(coalesce(sum(beat_seq + 1), 0) AS bigint) AS n FROM ductwork_processes",
    );
    number(conn, &BEATS).await
}

/// The processes and their heartbeats.
async fn rows(fixture: &mut DaemonFixture) -> Vec<(String, i64)> {
    let rows = fixture.processes().await;
    let mut rows: Vec<_> = rows
        .iter()
        .map(|row| (format!("{:?}", row.id), row.beat_seq))
        .collect();
    rows.sort_unstable();
    rows
}

/// A client that triggers runs of both pipelines, one after the other, each with a key, and repeats a trigger
/// with the same key where no answer came.
struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
    thread: std::thread::JoinHandle<Vec<RunId>>,
}

impl Load {
    fn start(url: &str) -> Self {
        let parse = |text| yaml::parse(text, Path::new("pipeline.yml")).expect("a pipeline");
        let definitions: Vec<Definition> = [CHAIN, FAN].into_iter().map(parse).collect();
        let location = Location::parse(url).expect("the servers' URL");
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let (ends, count) = (Arc::clone(&stop), Arc::clone(&acknowledged));
        let triggers = async move |made: &mut Vec<RunId>| {
            let mut conn = None;
            for (n, definition) in (0..).zip(definitions.iter().cycle()) {
                let key = n.to_string();
                while let Err(error) = trigger(&location, &mut conn, definition, &key, made).await {
                    assert!(error.is_unavailable(), "{error:?}");
                    conn = None;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                count.store(made.len(), Ordering::Relaxed);
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(60)).await;
            }
        };
        // The test's thread blocks while it acts on a server.
        let thread = std::thread::spawn(move || {
            let mut made = Vec::new();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(triggers(&mut made));
            made
        });
        Self {
            stop,
            acknowledged,
            thread,
        }
    }

    fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits until this many more are acknowledged.
    async fn goes_on(&self, more: usize) {
        let before = self.acknowledged();
        eventually(PATIENCE, "triggers are acknowledged", async || {
            (self.acknowledged() >= before + more).then_some(())
        })
        .await;
    }

    /// The runs that were acknowledged.
    async fn stop(self) -> Vec<RunId> {
        self.stop.store(true, Ordering::Relaxed);
        eventually(PATIENCE, "the last trigger is acknowledged", async || {
            self.thread.is_finished().then_some(())
        })
        .await;
        self.thread.join().expect("a load")
    }
}

/// Triggers one run, on a connection that is opened if necessary.
async fn trigger(
    location: &Location,
    conn: &mut Option<Conn>,
    definition: &Definition,
    key: &str,
    made: &mut Vec<RunId>,
) -> Result<(), Error> {
    let open = match conn.take() {
        Some(open) => conn.insert(open),
        None => conn.insert(location.connect(Purpose::Query).await?),
    };
    let runs = [NewRun {
        key: Some(key),
        input: "1",
    }];
    let triggered = trigger::trigger(open, definition, &runs, Duration::ZERO).await?;
    made.extend(triggered.iter().map(|run| run.run_id));
    Ok(())
}

/// Waits until every process has found that the server is gone.
async fn all_wait(daemon: &Daemon, since: usize) {
    eventually(PATIENCE, "everybody waits for the database", async || {
        let log = daemon.log();
        let waiting = log[since..]
            .iter()
            .filter(|event| event["msg"] == "waiting for the database");
        let mut pids: Vec<i64> = waiting.filter_map(|event| event["pid"].as_i64()).collect();
        pids.sort_unstable();
        pids.dedup();
        (pids.len() == PROCESSES).then_some(())
    })
    .await;
}

/// The primary goes away under load in this way, and its standby is promoted; returns how many of the
/// acknowledged runs are lost, and how many there were.
async fn fail_over(mut pair: Pair, go_away: impl FnOnce(&Cluster)) -> (usize, usize) {
    let mut daemon = pair.fixture.start();
    daemon.ready().await;
    pair.fixture.trigger("Holding", "1", HOLDERS).await;
    pair.fixture.said("holds", HOLDERS).await;
    let load = Load::start(&pair.url);
    load.goes_on(20).await;
    let conn = &mut pair.fixture.conn;
    eventually(PATIENCE, "work is going on", async || {
        (successes(conn).await > 30).then_some(())
    })
    .await;
    let before = rows(&mut pair.fixture).await;
    assert_eq!(before.len(), PROCESSES);
    let logged = daemon.log().len();

    go_away(&pair.primary);
    let away = Location::parse(&pair.primary.url).unwrap();
    let away = away.connect(Purpose::Query).await;
    assert!(away.is_err(), "the primary is still there");
    all_wait(&daemon, logged).await;
    // The step ends while its result cannot be written.
    std::fs::write(pair.fixture.path("go"), "").unwrap();
    pair.promote().await;
    load.goes_on(20).await;

    // The rows of the processes are updated again, each through its own lifeline.
    let fixture = &mut pair.fixture;
    eventually(PATIENCE, "every process beats on", async || {
        let now = rows(fixture).await;
        let ids = |rows: &[(String, i64)]| rows.iter().map(|it| it.0.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&now), ids(&before));
        let all = now
            .iter()
            .zip(&before)
            .all(|(now, before)| now.1 > before.1);
        all.then_some(())
    })
    .await;
    let acknowledged = load.stop().await;
    fixture.completed(PATIENCE).await;
    let mut lost = 0;
    for run in &acknowledged {
        match query::run_state(&mut fixture.conn, *run).await.unwrap() {
            Some(state) => assert_eq!(state.status, RunStatus::Completed, "{run:?}"),
            None => lost += 1,
        }
    }
    // A trigger whose answer was lost has made one run, or none, and its repetition makes no second
    // one.
    let runs = runs(&mut fixture.conn).await;
    assert_eq!(runs as usize, acknowledged.len() - lost + HOLDERS);
    for said in ["was declared dead", "recovered the work of a dead process"] {
        assert!(daemon.logged(said).is_empty(), "{:#?}", daemon.logged(said));
    }
    let heir = pair.standby.place();
    let back = daemon.logged("the database is back");
    assert!(
        back.iter().any(|event| event["server"] == heir),
        "{back:#?}"
    );
    daemon.stop().await;
    let executions = fixture.succeeded_once_each().await;
    assert!(
        executions.iter().all(|e| e.crash_count == 0),
        "{executions:#?}"
    );
    fixture.audited().await;
    (lost, acknowledged.len())
}

#[tokio::test]
async fn a_primary_that_is_handed_over_in_order_loses_nothing() {
    let pair = Pair::start(&[CHAIN, FAN, HOLDING]).await;
    let (lost, of) = fail_over(pair, Cluster::stop).await;
    assert_eq!(lost, 0, "of {of} acknowledged runs");
}

#[tokio::test]
async fn a_primary_that_is_killed_loses_nothing_that_its_synchronous_standby_has_confirmed() {
    let mut pair = Pair::start(&[CHAIN, FAN, HOLDING]).await;
    pair.synchronous().await;
    let (lost, of) = fail_over(pair, Cluster::kill).await;
    assert_eq!(lost, 0, "of {of} acknowledged runs");
}

/// Rows that the standby had not received are gone, and the rest is consistent.
#[tokio::test]
async fn a_primary_that_is_killed_takes_along_what_its_asynchronous_standby_has_not_got() {
    let pair = Pair::start(&[CHAIN, FAN, HOLDING]).await;
    let (lost, of) = fail_over(pair, Cluster::kill).await;
    eprintln!("{lost} of {of} acknowledged runs are lost");
}

const END_SESSIONS: &str =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ductworkd'";

/// The state of a server on which no process works.
async fn stands(conn: &mut Conn) -> (i64, i64, i64) {
    (beats(conn).await, runs(conn).await, successes(conn).await)
}

static SESSIONS: Statement = Statement::new(
    "TEST_SESSIONS",
    "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'ductworkd'",
);

/// Waits until this many more clients have connected to it.
async fn is_asked(conn: &mut Conn, times: i64) {
    static CLIENTS: Statement = Statement::new(
        "TEST_CLIENTS",
        "SELECT sessions AS n FROM pg_stat_database WHERE datname = current_database()",
    );
    let before = number(conn, &CLIENTS).await;
    eventually(PATIENCE, "the old primary is asked", async || {
        (number(conn, &CLIENTS).await >= before + times).then_some(())
    })
    .await;
}

/// Every process of the daemon has its row there, and nowhere else.
async fn registered_at(daemon: &Daemon, cluster: &Cluster) {
    let registered = daemon.says_times("registered", 3).await;
    let there = |event: &serde_json::Value| event["server"] == cluster.place();
    assert!(registered.iter().all(there), "{registered:#?}");
}

#[tokio::test]
async fn a_primary_that_comes_back_beside_its_heir_is_not_worked_on() {
    let mut pair = Pair::start(&[CHAIN]).await;
    let mut daemon = pair.fixture.start();
    daemon.ready().await;
    pair.fixture.trigger("Chain", "1", 10).await;
    pair.fixture.completed(PATIENCE).await;
    pair.primary.kill();
    pair.fixture.conn = connect(&pair.standby).await;
    pair.standby.promote();
    pair.fixture.trigger("Chain", "1", 10).await;
    pair.fixture.completed(PATIENCE).await;

    // The old primary takes writes, and comes first in the URL.
    pair.primary.up();
    let mut old = connect(&pair.primary).await;
    assert!(!is_standby(&mut old).await);
    let before = stands(&mut old).await;
    assert!(before.0 > 0, "nobody has ever worked there");

    // Lost connections come back to the heir, and so do new processes.
    let logged = daemon.logged("the database is back").len();
    let ended = pair.fixture.conn.script("end sessions", END_SESSIONS);
    ended.await.unwrap();
    daemon.says_times("the database is back", logged + 3).await;
    let worker = daemon.child("worker Chain", None).await;
    send(worker, Signal::SIGKILL);
    let registered = daemon.says_times("registered", 4).await;
    let heir = pair.standby.place();
    assert!(registered.iter().any(|event| event["server"] == heir));
    let triggered = pair.fixture.run(&[], &["trigger", "Chain", "1", "--wait"]);
    assert!(triggered.status.success(), "{triggered:?}");
    daemon.stop().await;
    // A daemon that starts asks both servers.
    let mut daemon = pair.fixture.start();
    daemon.ready().await;
    registered_at(&daemon, &pair.standby).await;
    pair.fixture.trigger("Chain", "1", 10).await;
    pair.fixture.completed(PATIENCE).await;
    assert_eq!(stands(&mut old).await, before, "somebody went there");

    // A daemon that has worked on the heir waits for it.
    pair.standby.stop();
    is_asked(&mut old, 20).await;
    assert_eq!(stands(&mut old).await, before, "somebody went there");
    pair.standby.up();
    pair.fixture.conn = connect(&pair.standby).await;
    pair.fixture.trigger("Chain", "1", 10).await;
    pair.fixture.completed(PATIENCE).await;
    daemon.stop().await;
    pair.fixture.audited().await;
    assert_eq!(stands(&mut old).await, before, "somebody went there");

    // A daemon that starts while only the old primary answers cannot know of the heir.
    pair.standby.stop();
    let mut daemon = pair.fixture.start();
    daemon.ready().await;
    registered_at(&daemon, &pair.primary).await;
    daemon.stop().await;
    pair.fixture.conn = old;
    pair.fixture.completed(PATIENCE).await;
    pair.fixture.audited().await;
}

/// The old primary is not fenced at first, and the daemon is told nothing.
#[tokio::test]
async fn a_daemon_that_was_left_on_an_old_primary_goes_to_its_heir_when_that_takes_no_more_writes()
{
    let mut pair = Pair::start(&[CHAIN]).await;
    let mut daemon = pair.fixture.start();
    daemon.ready().await;
    pair.standby.promote();
    let mut heir = connect(&pair.standby).await;
    assert!(!is_standby(&mut heir).await);
    // The old primary takes writes, so no process asks another server.
    pair.fixture.trigger("Chain", "1", 10).await;
    pair.fixture.completed(PATIENCE).await;
    let old = &mut pair.fixture.conn;
    for sql in [
        "ALTER SYSTEM SET default_transaction_read_only = on",
        "SELECT pg_reload_conf()",
    ] {
        old.script("refuse writes", sql).await.unwrap();
    }
    // The supervisor has one connection, the advancer and the worker have two. A connection that only reads
    // is refused nothing, and follows the others.
    eventually(PATIENCE, "all connections have moved", async || {
        let there = [
            number(old, &SESSIONS).await,
            number(&mut heir, &SESSIONS).await,
        ];
        (there == [0, 5]).then_some(())
    })
    .await;
    let before = stands(old).await;
    pair.fixture.conn = heir;
    pair.fixture.trigger("Chain", "1", 10).await;
    pair.fixture.completed(PATIENCE).await;
    daemon.stop().await;
    pair.fixture.audited().await;
    let mut old = connect(&pair.primary).await;
    assert_eq!(stands(&mut old).await, before, "somebody stayed there");
}
