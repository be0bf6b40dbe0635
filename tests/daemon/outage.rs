//! The database goes away under load, and comes back.

use std::time::{Duration, Instant};

use ductwork::model::{Role, RunStatus};
use ductwork::store::query;
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Dialect, Location, Purpose, migrate};
use nix::sys::signal::Signal;

use crate::cluster::Cluster;
use crate::fixture::*;
use crate::foreign::Foreign;
use crate::relay::ports_of;
use crate::server::Server;
use crate::support::Db;
use crate::{on_every_server, on_servers};

pub const WORK: &str = r#"
pipeline: Work
steps:
  A: { command: [sh, -c, 'sleep 0.05; cat'] }
  B: { command: [sh, -c, 'sleep 0.05; cat'] }
flow: [{ start: A }, { chain: B }]
"#;

pub const FAN: &str = r#"
pipeline: Fan
steps:
  A: { command: ["true"] }
  B: { command: ["true"] }
  C: { command: ["true"] }
flow: [{ start: A }, { divide: [A, B] }, { combine: C }]
"#;

/// A step that is running when the database goes away, and ends during the outage.
pub const LONG: &str = r#"
pipeline: Long
steps:
  A: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; echo "\"done\""; echo >> ends'] }
flow: [{ start: A }]
"#;

on_every_server! {
    /// The first outage is as short as a restart; the second outlasts every lease.
    async fn a_database_that_crashes_and_comes_back_ends_no_process_and_loses_no_work(server: Server) {
        let conn = server.conn().await;
        let settings = Settings {
            reaper_timeout: "2s",
            max_retry: 0,
            max_crash: 1,
            level: "info",
            ..Settings::default()
        };
        let mut fixture = DaemonFixture::at(server.url(), conn, settings, &[WORK, LONG]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let mut children: Vec<i32> = Vec::new();
        for kind in ["advancer", "worker Work", "worker Long"] {
            children.extend(daemon.children(kind));
        }
        assert_eq!(children.len(), 3);
        let started = daemon.log().len();
        let mut runs = fixture.trigger("Long", "1", 2).await;
        runs.extend(fixture.trigger("Work", "1", 300).await);
        for pid in fixture.pids("pids", 2).await {
            assert!(lives(pid), "nothing runs: the test is empty");
        }

        for outage in [Duration::ZERO, Duration::from_secs(5)] {
            let logged = daemon.log().len();
            let before = succeeded(&mut fixture).await;
            eventually(PATIENCE, "work is going on", async || {
                (succeeded(&mut fixture).await > before + 5).then_some(())
            })
            .await;
            server.down();
            let down = Instant::now();
            // Each process has noticed it, on every connection that it has.
            let lost = eventually(PATIENCE, "everybody waits for the database", async || {
                let log = daemon.log();
                let lost = log[logged..]
                    .iter()
                    .filter(|event| event["msg"] == "waiting for the database");
                let mut pids: Vec<i64> = lost.filter_map(|event| event["pid"].as_i64()).collect();
                pids.sort_unstable();
                pids.dedup();
                (pids.len() == 4).then_some(pids)
            })
            .await;
            assert!(lost.contains(&i64::from(daemon.pid())));
            if outage > Duration::ZERO {
                std::fs::write(fixture.path("go"), "").unwrap();
                fixture.said("ends", 2).await;
            }
            tokio::time::sleep(outage.saturating_sub(down.elapsed())).await;
            server.up();
            let up = Instant::now();
            fixture.conn = server.connect().await;
            let before = succeeded(&mut fixture).await;
            eventually(
                Duration::from_secs(5),
                "work is going on again",
                async || (succeeded(&mut fixture).await > before).then_some(()),
            )
            .await;
            eprintln!("worked again after {:?}", up.elapsed());
            // The next outage must affect every process.
            eventually(PATIENCE, "every connection is back", async || {
                let lost = daemon.logged("waiting for the database").len();
                let back = daemon.logged("the database is back").len();
                (lost == back).then_some(())
            })
            .await;
        }
        fixture.completed(PATIENCE).await;
        for pid in &children {
            assert!(lives(*pid), "{pid} has ended");
        }
        // Each process has two connections, which are lost and come back: a few lines for each
        // outage.
        let log = daemon.log();
        for pid in children.iter().chain([&daemon.pid()]) {
            let lines = log[started..]
                .iter()
                .filter(|event| event["pid"] == *pid && event["msg"] != "run ended");
            let lines: Vec<_> = lines.collect();
            assert!(lines.len() <= 2 * 7, "a flood: {lines:#?}");
        }
        daemon.stop().await;
        assert_eq!(fixture.output(runs[0]).await, "done");
        // No process was taken for dead, and nothing ran twice.
        let executions = fixture.succeeded_once_each().await;
        assert_eq!(executions.len(), 2 + 300 * 2);
        fixture.audited().await;
    }

    /// A person who stops a host does not wait for another host's database.
    async fn a_stop_while_the_database_is_away_ends_in_time_and_the_work_is_found_again(server: Server) {
        let conn = server.conn().await;
        let settings = Settings {
            shutdown_timeout: "1s",
            max_retry: 0,
            ..Settings::default()
        };
        let mut fixture = DaemonFixture::at(server.url(), conn, settings, &[LONG]).await;
        let mut runs = 0;
        for wrapper in [&[][..], &["env", "DUCTWORK_ROLE=worker"]] {
            let mut daemon = fixture.start_as(wrapper, &["start"]);
            runs += 2;
            fixture.trigger("Long", "1", 2).await;
            fixture.pids("pids", runs).await;
            server.down();
            daemon.says("waiting for the database").await;
            daemon.send(Signal::SIGTERM);
            let (status, took) = daemon.ended(PATIENCE).await;
            assert_eq!(status.code(), Some(0), "{status}");
            eprintln!("ended after {took:?}");
            assert!(took < Duration::from_secs(9), "{took:?}");
            daemon.gone(Duration::ZERO).await;
            server.up();
            fixture.conn = server.connect().await;
        }
        std::fs::write(fixture.path("go"), "").unwrap();
        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    /// Nobody holds anything, so nobody has to ask what it holds.
    async fn an_idle_daemon_that_is_told_to_stop_does_not_wait_for_its_database(server: Server) {
        let conn = server.conn().await;
        let mut fixture = DaemonFixture::at(server.url(), conn, Settings::default(), &[LONG]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        // A worker claims when it begins, and a claim whose answer is lost may have been made. By its second heartbeat
        // that claim has been answered: nothing is due, and the next ones begin with a question.
        eventually(PATIENCE, "they have nothing to do", async || {
            let rows = fixture.processes().await;
            (rows.len() == 3 && rows.iter().all(|row| row.beat_seq >= 2)).then_some(())
        })
        .await;
        server.down();
        // Each process, on each of its connections.
        daemon.says_times("waiting for the database", 5).await;
        // Its next attempts to connect fail, too.
        tokio::time::sleep(Duration::from_secs(1)).await;
        daemon.send(Signal::SIGTERM);
        let (status, took) = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{status}");
        assert!(took < Duration::from_secs(9), "{took:?}");
        server.up();
    }

    /// A server that stands still, or a network that has lost the message of its end: no answer arrives, but no
    /// connection ends. The supervisor is killed then; the children that it leaves behind wait for an answer.
    async fn orphans_end_although_their_database_says_nothing(server: Server) {
        let conn = server.conn().await;
        let mut fixture =
            DaemonFixture::at(server.url(), conn, Settings::default(), &[WORK, FAN]).await;
        for pipeline in ["Work", "Fan"] {
            fixture.trigger(pipeline, "1", 300).await;
        }
        let daemon = fixture.start();
        daemon.ready().await;
        eventually(PATIENCE, "they work", async || {
            (succeeded(&mut fixture).await > 20).then_some(())
        })
        .await;
        // One pipeline may work before another process has made its second connection.
        eventually(PATIENCE, "each has its connections", async || {
            (server.sessions(&mut fixture.conn).await >= 7).then_some(())
        })
        .await;
        let children = ["advancer", "worker Work", "worker Fan"];
        let orphans = children.map(|kind| daemon.children(kind)).concat();
        assert_eq!(orphans.len(), 3);
        let others = server.freeze(&mut fixture.conn).await;
        assert!(others.len() >= 7, "two for each child: {others:?}");
        daemon.send(Signal::SIGKILL);
        for orphan in orphans {
            gone(orphan, PATIENCE).await;
        }
        daemon.gone(PATIENCE).await;
        daemon
            .says("ending without an answer of the database")
            .await;
        server.thaw(&others);
        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    /// A connection may be lost between an advancer's claim and its advance. No process has died
    /// then, so no other process gives the branches back.
    async fn an_advancer_that_loses_its_connection_gives_back_what_it_had_claimed(server: Server) {
        let conn = server.conn().await;
        let mut fixture = DaemonFixture::at(server.url(), conn, Settings::default(), &[FAN]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Fan", "1", 150).await;
        let mut killer = server.connect().await;
        let mut hits = 0;
        eventually(
            PATIENCE,
            "connections go while branches are claimed",
            async || {
                hits += cut(&server, &mut killer, &mut fixture, &daemon).await;
                // A fast machine finishes all of it before enough connections have been hit.
                if fixture.all_ended().await {
                    fixture.trigger("Fan", "1", 150).await;
                }
                (hits >= 20).then_some(())
            },
        )
        .await;
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }
}

/// Ends connections that work on branches, just after the COMMIT of a claim: the advance has not begun, or not
/// ended. Returns how many.
async fn cut(
    server: &Server,
    killer: &mut Conn,
    fixture: &mut DaemonFixture,
    daemon: &Daemon,
) -> usize {
    static ON_POSTGRES: Statement = Statement::new(
        "TEST_CUT",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE pid::bigint NOT IN (pg_backend_pid(), :ours) AND EXISTS (
                SELECT FROM ductwork_branches WHERE claim_token IS NOT NULL)
            AND query LIKE '%ductwork_branches%' AND query NOT LIKE '%pg_stat%'",
    );
    static OURS: Statement = Statement::new("TEST_OURS", "SELECT pg_backend_pid()::bigint AS pid");
    match server {
        Server::Postgres(_) => {
            let ours = fixture.conn.fetch_optional(&OURS, &[]).await.unwrap();
            let ours: i64 = ours.unwrap().get("pid").unwrap();
            let cut = killer.fetch(&ON_POSTGRES, &[("ours", ours.into())]).await;
            cut.unwrap().len()
        }
        Server::Mysql(server) => {
            static CLAIMED: Statement = Statement::new(
                "TEST_CLAIMED",
                "SELECT id FROM ductwork_branches WHERE claim_token IS NOT NULL LIMIT 1",
            );
            if killer.fetch(&CLAIMED, &[]).await.unwrap().is_empty() {
                return 0;
            }
            let advancer = daemon.child("advancer", None).await;
            server.cut(killer, &ports_of(advancer, server.port())).await
        }
    }
}

on_servers! {
    /// The database answers, and so looks reachable, but no heartbeat can be written; when it takes
    /// writes again, the supervisor's heartbeat is the first.
    async fn a_database_that_takes_no_writes_for_longer_than_a_lease_costs_no_process(db: Db) {
        let settings = Settings {
            reaper_timeout: "2s",
            max_crash: 1,
            ..Settings::default()
        };
        let mut fixture = DaemonFixture::new(&db, settings, &[LONG]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Long", "1", 1).await;
        let step = fixture.pids("pids", 1).await[0];
        let before: Vec<_> = fixture.processes().await.iter().map(|row| row.id).collect();
        assert_eq!(before.len(), 3);

        let mut children = Foreign::on(&db.url).await;
        let mut all = Foreign::on(&db.url).await;
        children.lock_rows("ductwork_processes WHERE role <> 'supervisor'").await;
        match all.0.dialect() {
            // There, a lock on the table waits for a session that has locked rows of it.
            Dialect::Mysql => all.lock_supervisor().await,
            _ => all.lock_tables(&["ductwork_processes"]).await,
        }
        eventually(
            PATIENCE,
            "every heartbeat is older than two leases",
            async || {
                let rows = fixture.processes().await;
                let old = |row: &ductwork::store::process::ProcessRow| row.age > Duration::from_secs(4);
                rows.iter().all(old).then_some(())
            },
        )
        .await;
        all.release().await;
        let mut beat = async || {
            let rows = fixture.processes().await;
            let supervisor = rows.iter().find(|row| row.role == Role::Supervisor);
            supervisor.expect("it lives").beat_seq
        };
        let stalled = beat().await;
        // Long enough for the supervisor to have looked at the children, whose heartbeats are still
        // as old.
        eventually(PATIENCE, "the supervisor beats again", async || {
            (beat().await >= stalled + 6).then_some(())
        })
        .await;
        children.release().await;
        eventually(PATIENCE, "everybody beats again", async || {
            let rows = fixture.processes().await;
            let fresh = |row: &ductwork::store::process::ProcessRow| row.age < Duration::from_secs(1);
            rows.iter().all(fresh).then_some(())
        })
        .await;

        let after: Vec<_> = fixture.processes().await.iter().map(|row| row.id).collect();
        assert_eq!(before, after, "{:#?}", daemon.log());
        assert!(lives(step), "the step was ended");
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert_eq!(executions.len(), 1);
        fixture.audited().await;
    }
}

static HINDERED: Statement = Statement::new(
    "HINDERED",
    "SELECT count(*) AS n FROM ductwork_advancements WHERE error_class = 'advance_hindered'",
);
static RETRIES: Statement = Statement::new(
    "RETRIES",
    "SELECT {big:sum(retry_count)} AS n FROM ductwork_transitions",
);

async fn number(fixture: &mut DaemonFixture, statement: &'static Statement) -> i64 {
    let rows = fixture.conn.fetch(statement, &[]).await.unwrap();
    rows[0].get("n").unwrap()
}

on_servers! {
    /// Like the creation of an index that blocks writers to a table, where statements have a time limit: more
    /// often than a branch may be refused.
    async fn a_locked_table_and_a_limit_of_time_spend_no_retry_of_an_advance(db: Db) {
        let conn = db.conn().await;
        // On MySQL the limit applies to the wait for a lock, of a whole second.
        let url = match conn.dialect() {
            Dialect::Postgres => format!("{}%20-c%20statement_timeout%3D200ms", db.url),
            _ => db.url.clone(),
        };
        let mut fixture = DaemonFixture::at(&url, conn, Settings::default(), &[FAN]).await;
        let limits = [
            ("DUCTWORK_PIPELINE_ADVANCER__MAX_RETRY", "1"),
            ("DUCTWORK_PIPELINE_ADVANCER__BACKOFF__INITIAL", "20ms"),
            ("DUCTWORK_PIPELINE_ADVANCER__BACKOFF__MAX", "100ms"),
            // All other limits of a statement are fractions of this one.
            ("DUCTWORK_SUPERVISOR__REAPER_TIMEOUT", "3s"),
        ];
        let limits = limits.map(|(name, value)| (name, value.to_owned()));
        fixture.variables.extend(limits);
        let mut index = Foreign::on(&db.url).await;
        index.lock_tables(&["ductwork_fan_outs"]).await;
        fixture.trigger("Fan", "1", 1).await;
        let mut daemon = fixture.start();
        eventually(PATIENCE, "the branch was tried often", async || {
            (number(&mut fixture, &HINDERED).await >= 4).then_some(())
        })
        .await;
        index.release().await;
        fixture.completed(PATIENCE).await;
        assert_eq!(number(&mut fixture, &RETRIES).await, 0);
        let told = daemon.logged("the database could not advance a branch");
        // At the first, the second, the fourth, …: and never as a refusal.
        assert!(!told.is_empty(), "{:#?}", daemon.log());
        assert_eq!(daemon.logged("was refused").len(), 0);
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }
}

/// The pipeline that the triggers below are for.
const POISON: &str = r#"
pipeline: Poison
steps:
  A: { command: ["true"] }
  B: { command: ["true"] }
  C: { command: ["true"] }
flow: [{ start: A }, { divide: [A, B] }, { combine: C }]
"#;

/// Ends the session that advances a branch of this pipeline.
const CUT_POSTGRES: &str = "
CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_terminate_backend(pg_backend_pid());
    PERFORM pg_sleep(10);
    RETURN NEW;
END $$;
CREATE TRIGGER cut BEFORE UPDATE ON ductwork_branches FOR EACH ROW
    WHEN (OLD.pipeline = 'Poison' AND OLD.claim_token IS NOT NULL
          AND (NEW.status <> 'in_progress' OR NEW.step_id <> OLD.step_id))
    EXECUTE FUNCTION cut();";

const CUT_MYSQL: &str = "
CREATE TRIGGER cut BEFORE UPDATE ON ductwork_branches FOR EACH ROW
    IF OLD.pipeline = 'Poison' AND OLD.claim_token IS NOT NULL
       AND (NEW.status <> 'in_progress' OR NEW.step_id <> OLD.step_id) THEN
        KILL CONNECTION CONNECTION_ID(); END IF";

on_servers! {
    /// No process dies of it, and the database answers after each loss: if all of a batch were simply claimed again,
    /// that would never end, and nothing else would be advanced.
    async fn a_branch_that_costs_the_advancer_its_connection_each_time_holds_up_no_other(db: Db) {
        let settings = Settings { count: 8, max_retry: 0, max_crash: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[FAN, POISON]).await;
        let (cut, mend) = match fixture.conn.dialect() {
            Dialect::Postgres => (CUT_POSTGRES, "DROP TRIGGER cut ON ductwork_branches"),
            _ => (CUT_MYSQL, "DROP TRIGGER cut"),
        };
        fixture.define_in_database(cut).await;
        // All of them are ready at once.
        let mut runs = fixture.trigger("Fan", "1", 30).await;
        let bad = fixture.trigger("Poison", "1", 1).await[0];
        runs.extend(fixture.trigger("Fan", "1", 30).await);
        let mut daemon = fixture.start();
        for run in runs {
            fixture.run_ended(run).await;
        }
        eventually(PATIENCE, "the bad one waits alone, longer each time", async || {
            (number(&mut fixture, &HINDERED).await >= 3).then_some(())
        })
        .await;
        assert!(daemon.logged("waiting for the database").len() > 1, "{:#?}", daemon.log());
        let told = daemon.logged("the database could not advance a branch");
        assert!(!told.is_empty(), "{:#?}", daemon.log());
        let state = query::run_state(&mut fixture.conn, bad).await.unwrap().unwrap();
        assert_eq!(state.status, RunStatus::InProgress);
        fixture.define_in_database(mend).await;
        fixture.completed(PATIENCE).await;
        assert_eq!(number(&mut fixture, &RETRIES).await, 0);
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }
}

pub async fn succeeded(fixture: &mut DaemonFixture) -> usize {
    let executions = fixture.executions().await;
    executions
        .iter()
        .filter(|e| e.result() == "success")
        .count()
}

on_every_server! {
    /// A liveness probe that asked the database would restart every container during an outage.
    async fn a_liveness_probe_asks_no_database_and_sees_a_loop_that_stands_still(server: Server) {
        let conn = server.conn().await;
        let fixture = DaemonFixture::at(server.url(), conn, Settings::default(), &[WORK]).await;
        let live = |fixture: &DaemonFixture| {
            let asked = fixture.run(&[], &["health", "--live"]);
            let said = String::from_utf8([asked.stdout, asked.stderr].concat()).unwrap();
            (asked.status.code(), said)
        };
        let (code, said) = live(&fixture);
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains("no `ductworkd` of this user runs here with this database"),
            "{said}"
        );
        assert!(said.contains("ask as that user"), "{said}");
        for role in ["all", "worker"] {
            fixture.configure(&format!("  role: {role}\n"));
            let mut daemon = fixture.start();
            eventually_every(SELDOM, PATIENCE, "its loop turns", async || {
                (live(&fixture).0 == Some(0)).then_some(())
            })
            .await;
            server.down();
            assert_eq!(fixture.run(&[], &["health"]).status.code(), Some(69));
            assert_eq!(live(&fixture), (Some(0), "live: 1 of 1\n".to_owned()));
            daemon.send(Signal::SIGSTOP);
            let said = eventually_every(SELDOM, PATIENCE, "it stands still", async || {
                let (code, said) = live(&fixture);
                (code == Some(1)).then_some(said)
            })
            .await;
            assert!(
                said.contains(&format!(
                    "the loop of process {} has stood still for ",
                    daemon.pid()
                )),
                "{said}"
            );
            let again = format!("let it go on: kill -CONT {}", daemon.pid());
            assert!(said.contains(&again), "{said}");
            daemon.send(Signal::SIGCONT);
            eventually_every(SELDOM, PATIENCE, "it goes on", async || {
                (live(&fixture).0 == Some(0)).then_some(())
            })
            .await;
            server.up();
            daemon.stop().await;
            assert_eq!(live(&fixture).0, Some(1), "{role}");
        }
    }
}

/// The code of its refusals is that of a value that is too large.
#[tokio::test]
async fn a_server_that_has_no_transaction_left_costs_no_result_and_no_retry() {
    const REFUSAL: &str = "database is not accepting commands";
    static NEXT: Statement = Statement::new("TEST_NEXT", "SELECT pg_current_xact_id()::text");
    let cluster = Cluster::start();
    let location = Location::parse(&cluster.url).unwrap();
    let mut conn = location.connect(Purpose::Query).await.unwrap();
    migrate::migrate(&mut conn).await.unwrap();
    // The server would mend itself too early.
    let late = "ALTER SYSTEM SET autovacuum_naptime = 3600";
    conn.script("TEST_LATE", late).await.unwrap();
    conn.close().await;
    cluster.stop();
    cluster.leave_transactions(1_000);
    cluster.up();
    let conn = location.connect(Purpose::Query).await.unwrap();
    let settings = Settings {
        reaper_timeout: "2s",
        max_retry: 0,
        max_crash: 1,
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::at(&cluster.url, conn, settings, &[LONG]).await;
    // A claim that is refused before the result would be the one that the log tells of, for a minute.
    let config = std::fs::read_to_string(fixture.path("ductwork.yml")).unwrap();
    let seldom = config.replace("    polling_timeout: 500ms\n", "    polling_timeout: 60s\n");
    assert_ne!(seldom, config);
    std::fs::write(fixture.path("ductwork.yml"), seldom).unwrap();
    // The first claim of the worker takes it; the next one is a minute away.
    let run = fixture.trigger("Long", "1", 1).await[0];
    let mut daemon = fixture.start();
    daemon.ready().await;
    fixture.pids("pids", 1).await;
    let mut refused = String::new();
    for _ in 0..5_000 {
        if let Err(error) = fixture.conn.fetch(&NEXT, &[]).await {
            refused = format!("{error:?}");
            break;
        }
    }
    assert!(refused.contains(REFUSAL), "{refused}");
    std::fs::write(fixture.path("go"), "").unwrap();
    fixture.said("ends", 1).await;
    let refuses = |event: &&serde_json::Value| {
        let of = |key| event[key].as_str().unwrap_or_default();
        of("error").contains(REFUSAL) && of("statement").contains("COMMIT")
    };
    eventually(PATIENCE, "the result is refused", async || {
        let refused = daemon.log().iter().filter(refuses).count();
        (refused > 2).then_some(())
    })
    .await;
    // The server mends that itself, once in a while.
    for soon in [
        "ALTER SYSTEM SET autovacuum_naptime = 1",
        "SELECT pg_reload_conf()",
    ] {
        fixture.conn.script("TEST_SOON", soon).await.unwrap();
    }
    fixture.run_ended(run).await;
    assert_eq!(fixture.output(run).await, "done");
    assert_eq!(fixture.executions().await.len(), 1);
    daemon.stop().await;
    fixture.audited().await;
}
