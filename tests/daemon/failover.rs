//! Another server takes the place of the first: it takes no writes for a while, and lacks the last
//! commits.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ductwork::model::RunId;
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Location, Purpose, migrate, query};

use crate::cluster::Cluster;
use crate::fixture::*;
use crate::on_every_server;
use crate::server::Server;

const WORK: &str = r#"
pipeline: Work
steps:
  A: { command: [sh, -c, 'sleep 0.05; cat'] }
  B: { command: [sh, -c, 'sleep 0.05; cat'] }
flow: [{ start: A }, { divide: [A, B] }, { combine: B }]
"#;

/// A step that runs until it is let go.
const HOLDING: &str = r#"
pipeline: Holding
steps: { A: { command: [sh, -c, 'echo x >> holds; until [ -e go ]; do sleep 0.1; done; cat'] } }
flow: [{ start: A }]
"#;

fn settings() -> Settings {
    Settings {
        reaper_timeout: "2s",
        max_retry: 0,
        level: "info",
        ..Settings::default()
    }
}

/// Longer than two leases.
const OUTAGE: Duration = Duration::from_secs(5);

async fn connect(cluster: &Cluster) -> Conn {
    let location = Location::parse(&cluster.url).expect("the server's URL");
    location.connect(Purpose::Engine).await.unwrap()
}

async fn fixture(cluster: &Cluster) -> DaemonFixture {
    fixture_at(&cluster.url).await
}

async fn fixture_at(url: &str) -> DaemonFixture {
    let location = Location::parse(url).expect("the server's URL");
    let mut conn = location.connect(Purpose::Engine).await.unwrap();
    migrate::migrate(&mut conn).await.unwrap();
    DaemonFixture::at(url, conn, settings(), &[WORK, HOLDING]).await
}

async fn successes(conn: &mut Conn) -> i64 {
    static SUCCESSES: Statement = Statement::new(
        "TEST_SUCCESSES",
        "SELECT count(*) AS n FROM ductwork_executions WHERE result = 'success'",
    );
    let row = conn.fetch_optional(&SUCCESSES, &[]).await.unwrap();
    row.unwrap().get("n").unwrap()
}

async fn pids(daemon: &Daemon) -> Vec<i32> {
    let mut pids = vec![daemon.pid(), daemon.child("advancer", None).await];
    for pipeline in ["Work", "Holding"] {
        pids.push(daemon.child(&format!("worker {pipeline}"), None).await);
    }
    pids
}

/// Waits until every process has found that nothing can be written.
async fn all_wait(daemon: &Daemon, since: usize) {
    eventually(PATIENCE, "everybody waits for the database", async || {
        let log = daemon.log();
        let waiting = log[since..]
            .iter()
            .filter(|event| event["msg"] == "waiting for the database");
        let pids: BTreeSet<i64> = waiting.filter_map(|event| event["pid"].as_i64()).collect();
        (pids.len() == 4).then_some(())
    })
    .await;
}

/// Asserts that no process died, was taken for dead or was replaced; and that no budget was spent.
async fn unharmed(fixture: &mut DaemonFixture, daemon: &mut Daemon, before: &[i32]) {
    assert_eq!(pids(daemon).await, before);
    for said in ["was declared dead", "recovered the work of a dead process"] {
        assert!(daemon.logged(said).is_empty(), "{:#?}", daemon.logged(said));
    }
    daemon.stop().await;
    let executions = fixture.succeeded_once_each().await;
    assert!(
        executions.iter().all(|e| e.crash_count == 0),
        "{executions:#?}"
    );
    fixture.audited().await;
}

on_every_server! {
    async fn a_server_that_takes_no_writes_is_waited_for(server: Server) {
        let url = server.ordinary();
        let mut fixture = fixture_at(&url).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let before = pids(&daemon).await;
        fixture.trigger("Holding", "1", 2).await;
        fixture.said("holds", 2).await;
        fixture.trigger("Work", "1", 100).await;
        let conn = &mut fixture.conn;
        eventually(PATIENCE, "work is going on", async || {
            (successes(conn).await > 5).then_some(())
        })
        .await;
        let logged = daemon.log().len();
        server.take_writes(false).await;
        let began = Instant::now();
        all_wait(&daemon, logged).await;
        // The step ends while its result cannot be written.
        std::fs::write(fixture.path("go"), "").unwrap();
        tokio::time::sleep(OUTAGE.saturating_sub(began.elapsed())).await;
        let stands = successes(&mut fixture.conn).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(successes(&mut fixture.conn).await, stands, "it was written");
        server.take_writes(true).await;
        fixture.completed(PATIENCE).await;
        unharmed(&mut fixture, &mut daemon, &before).await;
    }
}

/// Rows that the primary had acknowledged and the standby had not received are gone, runs and results
/// alike. All else continues, and the rest is consistent.
#[tokio::test]
async fn a_promoted_standby_that_lacks_the_last_commits_is_worked_on_from_where_it_is() {
    let primary = Cluster::start();
    let mut fixture = fixture(&primary).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    let before = pids(&daemon).await;
    fixture.trigger("Holding", "1", 2).await;
    fixture.said("holds", 2).await;
    let mut kept = fixture.trigger("Work", "1", 100).await;
    let mut standby = primary.standby();
    // The standby receives these too, and nothing after them.
    kept.extend(fixture.trigger("Work", "2", 20).await);
    let wanted = followed(&mut fixture.conn).await;
    assert!(wanted, "the standby does not follow");
    standby.down();
    let there = successes(&mut fixture.conn).await;
    let lost: Vec<RunId> = fixture.trigger("Work", "3", 20).await;
    let conn = &mut fixture.conn;
    eventually(PATIENCE, "work is done that will be lost", async || {
        (successes(conn).await > there + 20).then_some(())
    })
    .await;
    let done = successes(&mut fixture.conn).await;
    let logged = daemon.log().len();
    primary.down();
    standby.up_instead_of(&primary);
    all_wait(&daemon, logged).await;
    std::fs::write(fixture.path("go"), "").unwrap();
    // It can be read, but not written.
    fixture.conn = connect(&standby).await;
    assert!(
        successes(&mut fixture.conn).await < done,
        "nothing was lost"
    );
    tokio::time::sleep(OUTAGE).await;
    standby.promote();
    fixture.completed(PATIENCE).await;
    for run in lost {
        let state = query::run_state(&mut fixture.conn, run).await.unwrap();
        assert!(state.is_none(), "{run:?} was to be lost");
    }
    for run in kept {
        let state = query::run_state(&mut fixture.conn, run).await.unwrap();
        assert!(state.is_some(), "{run:?} was lost");
    }
    unharmed(&mut fixture, &mut daemon, &before).await;
}

/// True when the standby has replayed everything so far.
async fn followed(conn: &mut Conn) -> bool {
    static WRITTEN: Statement = Statement::new(
        "TEST_WRITTEN",
        "SELECT pg_current_wal_lsn()::text AS written",
    );
    static REPLAYED: Statement = Statement::new(
        "TEST_REPLAYED",
        "SELECT CAST(count(*) AS bigint) AS n FROM pg_stat_replication
          WHERE replay_lsn >= CAST(CAST(:written AS text) AS pg_lsn)",
    );
    let row = conn.fetch_optional(&WRITTEN, &[]).await.unwrap().unwrap();
    let written: String = row.get("written").unwrap();
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let args = [("written", written.as_str().into())];
        let row = conn
            .fetch_optional(&REPLAYED, &args)
            .await
            .unwrap()
            .unwrap();
        if row.get::<i64>("n").unwrap() == 1 {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}
