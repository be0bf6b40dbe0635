//! A connection goes silent: its packets vanish in both directions, and neither side is told.
//! Other connections can be opened. Or the answers arrive late.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use ductwork::engine::actor::limits;
use ductwork::model::ProcessId;
use ductwork::store::definition::Definitions;
use ductwork::store::recovery::{self, Death};
use ductwork::store::statement::Statement;
use ductwork::store::{Location, Purpose};

use crate::fixture::*;
use crate::on_servers;
use crate::relay::{Relay, ports_of};
use crate::support::{self, Db};

const WORK: &str = r#"
pipeline: Work
steps: { A: { command: ["true"] }, B: { command: ["true"] }, C: { command: ["true"] } }
flow: [{ start: A }, { divide: [A, B] }, { combine: C }]
"#;

const LEASE: Duration = Duration::from_secs(3);

/// The time after which a busy connection is given up, where leases are as short as here.
const GIVEN_UP: Duration = Duration::from_secs(10);

async fn work_goes_on(db: Db) {
    let settings = Settings {
        reaper_timeout: "3s",
        max_retry: 0,
        max_crash: 1,
        level: "info",
        ..Settings::default()
    };
    let (server, relay) = relay(&db.url);
    let through = db
        .url
        .replace(&server, &format!("127.0.0.1:{}", relay.port));
    assert_ne!(through, db.url);
    let conn = db.conn().await;
    let mut fixture = DaemonFixture::at(&through, conn, settings, &[WORK]).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    let (worker, advancer) = (
        daemon.child("worker Work", None).await,
        daemon.child("advancer", None).await,
    );
    let supervisor = daemon.pid();
    // Every process has sent a statement on each connection.
    fixture.trigger("Work", "1", 5).await;
    fixture.completed(PATIENCE).await;

    for (pid, lifeline) in [
        (worker, false),
        (worker, true),
        (advancer, false),
        (advancer, true),
        (supervisor, true),
    ] {
        let lines = relay.lines();
        let all = ports_of(pid, relay.port);
        let of = |port: &&u16| lines[*port].listens == lifeline;
        let silent: BTreeSet<u16> = all.iter().filter(of).copied().collect();
        assert_eq!(silent.len(), 1, "{pid} {lifeline}: {all:?} of {lines:?}");
        let logged = daemon.log().len();
        let began = Instant::now();
        relay.silence(&silent);
        fixture.trigger("Work", "1", 20).await;
        let what = format!("the connection of {pid} (lifeline: {lifeline}) is given up");
        let said = eventually(PATIENCE, &what, async || {
            let log = daemon.log();
            let said = log[logged..].iter().filter(|event| {
                let error = event["error"].as_str().unwrap_or_default();
                event["pid"] == pid && error.contains("the connection is given up")
            });
            let said: Vec<_> = said.cloned().collect();
            (!said.is_empty()).then_some(said)
        })
        .await;
        assert_eq!(said.len(), 1, "{said:#?}");
        eprintln!("{what} after {:?}", began.elapsed());
        let bound = if lifeline { LEASE } else { GIVEN_UP };
        assert!(
            began.elapsed() < bound + Duration::from_secs(4),
            "{:?}",
            began.elapsed()
        );
        fixture.completed(PATIENCE).await;
        let line = relay.lines()[silent.first().expect("one")];
        assert!(line.lost > 0, "nothing was lost: the test is empty");
        eventually(PATIENCE, "the silent connection is closed", async || {
            let lines = relay.lines();
            silent.iter().all(|port| lines[port].closed).then_some(())
        })
        .await;
    }
    assert_eq!(daemon.children("worker Work"), [worker]);
    assert_eq!(daemon.children("advancer"), [advancer]);
    for said in ["was declared dead", "recovered what", "killing a child"] {
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

async fn a_start_ends(db: Db) {
    let settings = Settings {
        reaper_timeout: "3s",
        ..Settings::default()
    };
    let (server, relay) = relay(&db.url);
    let through = format!("127.0.0.1:{}", relay.port);
    let through = db.url.replace(&server, &through);
    let conn = db.conn().await;
    let fixture = DaemonFixture::at(&through, conn, settings, &[WORK]).await;
    relay.silence_at(b"ductwork_migrations");
    let mut daemon = fixture.start();
    let (status, took) = daemon.ended(PATIENCE).await;
    assert_eq!(status.code(), Some(69), "{status} after {took:?}");
    assert!(
        daemon.text().contains("no answer within 10 s"),
        "{}",
        daemon.text()
    );
    let lost = relay.lines().values().any(|line| line.lost > 0);
    assert!(lost, "nothing was lost: the test is empty");
    let mut daemon = fixture.start();
    daemon.ready().await;
    daemon.stop().await;
}

/// The process learns that it is registered later than everybody else can see its row.
async fn a_stop_leaves_no_row(db: Db) {
    let (server, relay) = relay(&db.url);
    let through = format!("127.0.0.1:{}", relay.port);
    let through = db.url.replace(&server, &through);
    let conn = db.conn().await;
    let settings = Settings {
        level: "info",
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::at(&through, conn, settings, &[WORK]).await;
    for role in ["advancer", "worker"] {
        let role = format!("DUCTWORK_ROLE={role}");
        // On a machine that is busy the answer may be faster than we are.
        let mut is_early = false;
        while !is_early {
            relay.answers_late(Duration::from_millis(150));
            let mut alone = fixture.start_as(&["env", &role], &["start"]);
            eventually(PATIENCE, "its row is there", async || {
                (fixture.processes().await.len() == 1).then_some(())
            })
            .await;
            alone.send(Signal::SIGTERM);
            is_early = alone.logged("registered").is_empty();
            relay.answers_late(Duration::ZERO);
            let (status, _) = alone.ended(PATIENCE).await;
            assert_eq!(status.code(), Some(0));
            let left = fixture.processes().await;
            assert!(left.is_empty(), "{left:?}");
        }
    }
}

const TWO: &str = r#"
pipeline: Two
steps:
  A: { command: [sh, -c, 'echo A >> starts; until [ -e go ]; do sleep 0.1; done; cat'] }
  B: { command: [sh, -c, 'echo B >> starts; cat'] }
flow: [{ start: A }, { chain: B }]
"#;

/// A claim is committed, its answer is kept back, and meanwhile the worker is declared dead, and registers anew: once by
/// a claim of the queue, and once by the commit of a result, which claims the next step.
async fn a_late_claim_starts_nothing(db: Db) {
    let (server, relay) = relay(&db.url);
    let through = format!("127.0.0.1:{}", relay.port);
    let through = db.url.replace(&server, &through);
    let mut reaper = db.conn().await;
    let conn = db.conn().await;
    let mut fixture = DaemonFixture::at(&through, conn, Settings::default(), &[TWO]).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    let worker = daemon.child("worker Two", None).await;
    // A connection that is opened late may be given up.
    std::fs::write(fixture.path("go"), "").unwrap();
    fixture.trigger("Two", "1", 1).await;
    fixture.completed(PATIENCE).await;
    for file in ["go", "starts"] {
        std::fs::remove_file(fixture.path(file)).unwrap();
    }
    let before = fixture.executions().await.len();
    let lines = relay.lines();
    let of_work = ports_of(worker, relay.port).into_iter();
    let of_work: BTreeSet<u16> = of_work.filter(|port| !lines[port].listens).collect();
    assert_eq!(of_work.len(), 1, "{lines:?}");
    let run = fixture
        .trigger_in(Duration::from_secs(2), "Two", "1", 1)
        .await[0];

    for (step, declared) in [("A", 1), ("B", 2)] {
        // Time enough to see the claim in the tables before its answer has arrived.
        relay.answers_later_on(&of_work, Duration::from_secs(2));
        if step == "B" {
            std::fs::write(fixture.path("go"), "").unwrap();
        }
        let claimed = eventually(PATIENCE, "it is claimed", async || {
            let executions = fixture.executions().await;
            executions.iter().find_map(|it| {
                it.process_id
                    .filter(|_| (it.step.as_str(), it.result()) == (step, ""))
            })
        })
        .await;
        relay.answers_later_on(&of_work, PATIENCE);
        let budgets = |_: &_, _: &str| limits(9, 9);
        let (process, death) = (ProcessId(claimed), Death::Proven { how: "so we say" });
        let definitions = Definitions::default();
        let recovered =
            recovery::recover(&mut reaper, process, death, &budgets, &definitions).await;
        let recovered = recovered.unwrap();
        assert_eq!(recovered.again, 1, "{recovered:?}");
        eventually(PATIENCE, "the worker has registered anew", async || {
            (daemon.logged("was declared dead").len() == declared).then_some(())
        })
        .await;
        let started = fixture.lines("starts");
        assert!(
            !started.contains(&step.to_owned()),
            "the answer was not late: {started:?}"
        );
        relay.answers_later_on(&of_work, Duration::ZERO);
        fixture.said("starts", declared).await;
    }
    fixture.run_ended(run).await;
    let lines = relay.lines();
    let is_used = |port| !lines[port].closed;
    assert!(
        of_work.iter().all(is_used),
        "the worker gave it up: {lines:?}"
    );
    daemon.stop().await;
    // The attempts whose claims were late have left no trace but their rows.
    assert_eq!(fixture.lines("starts"), ["A", "B"]);
    let executions = fixture.executions().await;
    let results: Vec<_> = executions[before..]
        .iter()
        .map(|it| (it.step.as_str(), it.result()))
        .collect();
    let expected = [
        ("A", "process_crashed"),
        ("A", "success"),
        ("B", "process_crashed"),
        ("B", "success"),
    ];
    assert_eq!(results, expected);
    fixture.audited().await;
}

/// The server of a URL, and a relay to it.
fn relay(url: &str) -> (String, Relay) {
    let server = url.rsplit_once('@').map_or(url, |(_, rest)| rest);
    let server = server
        .split(['/', '?'])
        .next()
        .expect("a server")
        .to_owned();
    let address = server.replace("localhost", "127.0.0.1");
    let relay = Relay::to(address.parse().expect("the server's address"));
    (server, relay)
}

async fn the_server_was_told(db: Db) {
    let lease = Duration::from_secs(60);
    for (purpose, statement, lock) in [
        (Purpose::Engine, "54s", "5s"),
        (Purpose::Lifeline, "18s", "7500ms"),
        (Purpose::Query, "0", "0"),
    ] {
        let location = Location::parse(&db.url).unwrap().leased(lease);
        let mut conn = location.connect(purpose).await.unwrap();
        for (name, expected) in [
            ("statement_timeout", statement),
            ("lock_timeout", lock),
            ("tcp_user_timeout", "60000"),
            ("tcp_keepalives_idle", "30"),
            ("tcp_keepalives_interval", "10"),
            ("tcp_keepalives_count", "3"),
        ] {
            static SETTING: Statement =
                Statement::new("TEST_SETTING", "SELECT current_setting(:name) AS value");
            let row = conn
                .fetch_optional(&SETTING, &[("name", name.into())])
                .await;
            let value: String = row.unwrap().expect("a row").get("value").unwrap();
            assert_eq!(value, expected, "{purpose:?} {name}");
        }
    }
}

/// The same, in whole seconds where the server accepts nothing finer.
async fn mariadb_was_told(db: Db) {
    let lease = Duration::from_secs(60);
    for (purpose, statement, lock) in [
        (Purpose::Engine, 54_000_000, 5),
        (Purpose::Lifeline, 18_000_000, 8),
        (Purpose::Query, 0, 10),
    ] {
        static SETTINGS: Statement = Statement::new(
            "TEST_SETTINGS",
            "SELECT CAST(@@max_statement_time * 1000000 AS SIGNED) AS statement,
                    CAST(@@innodb_lock_wait_timeout AS SIGNED) AS lock_wait,
                    CAST(@@lock_wait_timeout AS SIGNED) AS table_wait,
                    CAST(@@idle_transaction_timeout AS SIGNED) AS idle,
                    CAST(@@net_read_timeout AS SIGNED) AS read_wait,
                    CAST(@@net_write_timeout AS SIGNED) AS write_wait",
        );
        let location = Location::parse(&db.url).unwrap().leased(lease);
        let mut conn = location.connect(purpose).await.unwrap();
        let row = conn.fetch_optional(&SETTINGS, &[]).await;
        let row = row.unwrap().expect("a row");
        for (name, expected) in [
            ("statement", statement),
            ("lock_wait", lock),
            ("table_wait", lock),
            ("idle", 10),
            ("read_wait", 60),
            ("write_wait", 60),
        ] {
            let value: i64 = row.get(name).unwrap();
            assert_eq!(value, expected, "{purpose:?} {name}");
        }
    }
}

on_servers! {
    async fn work_goes_on_after_any_connection_of_a_daemon_has_gone_silent(db: Db) {
        work_goes_on(db).await;
    }

    async fn a_start_whose_connection_goes_silent_ends_and_says_so(db: Db) {
        a_start_ends(db).await;
    }

    async fn a_claim_whose_answer_comes_after_the_worker_was_declared_dead_starts_nothing(db: Db) {
        a_late_claim_starts_nothing(db).await;
    }

    async fn a_stop_that_comes_while_a_process_registers_leaves_no_row(db: Db) {
        a_stop_leaves_no_row(db).await;
    }
}

/// So that the server ends the leftovers of a client that it cannot reach, and answers sooner than
/// the client gives up.
mod a_server_is_told_how_long_its_clients_wait {
    use super::*;

    #[tokio::test]
    async fn postgres() {
        support::with(Db::postgres().await, the_server_was_told).await;
    }

    #[tokio::test]
    async fn mysql() {
        support::with(Db::mysql().await, mariadb_was_told).await;
    }
}
