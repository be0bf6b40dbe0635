//! Rows that this version cannot read, because a newer one wrote them: they hold up no others, are reported,
//! and continue by themselves when a process arrives that can read them.

use std::time::{Duration, Instant};

use ductwork::model::RunId;
use ductwork::store::Dialect;
use ductwork::store::statement::Statement;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::fixture::*;
use crate::on_every_database;
use crate::support::Db;

const ECHO: &str = "
pipeline: Echo
steps: { Echo: { command: [cat] } }
flow: [{ start: Echo }]
";

/// The same pipeline with another definition.
const NEWER: &str = "
pipeline: Echo
steps: { Echo: { command: [cat], timeout: 1h } }
flow: [{ start: Echo }]
";

const LONG: &str = "
pipeline: Long
steps: { A: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; echo 1'] } }
flow: [{ start: A }]
";

const FAN: &str = r#"
pipeline: Fan
steps:
  A: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; echo "[1]"'] }
  B: { command: [cat] }
flow: [{ start: A }, { expand: B }]
"#;

const KNOWN: &str = "\"command\":";
const UNKNOWN: &str = "\"http\":";

/// Turns the definition into one that a version with a step kind `http` would have written.
async fn garble(fixture: &mut DaemonFixture, run: RunId) {
    static GARBLE: Statement = Statement::new(
        "TEST_GARBLE",
        "UPDATE ductwork_definitions SET body = replace(body, :known, :unknown)
          WHERE digest = (SELECT definition FROM ductwork_runs WHERE id = :run)",
    );
    let args = [
        ("known", KNOWN.into()),
        ("unknown", UNKNOWN.into()),
        ("run", run.0.into()),
    ];
    let done = fixture.conn.execute(&GARBLE, &args).await;
    assert_eq!(done.unwrap(), 1);
}

/// Simulates the newer version, which can read its own definition.
async fn mend(fixture: &mut DaemonFixture) {
    static MEND: Statement = Statement::new(
        "TEST_MEND",
        "UPDATE ductwork_definitions SET body = replace(body, :unknown, :known)",
    );
    let args = [("known", KNOWN.into()), ("unknown", UNKNOWN.into())];
    assert!(fixture.conn.execute(&MEND, &args).await.unwrap() > 0);
}

/// Makes the database refuse the record of a crashed execution of this pipeline.
const REFUSE_POSTGRES: &str = "
CREATE FUNCTION refuse_crash() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.result = 'process_crashed' AND NEW.pipeline = 'PIPELINE' THEN RAISE EXCEPTION 'no'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse_crash BEFORE UPDATE ON ductwork_executions
    FOR EACH ROW EXECUTE FUNCTION refuse_crash();";

const REFUSE_SQLITE: &str = "
CREATE TRIGGER refuse_crash BEFORE UPDATE ON ductwork_executions
    WHEN NEW.result = 'process_crashed' AND NEW.pipeline = 'PIPELINE'
BEGIN SELECT RAISE(ABORT, 'no'); END;";

const REFUSE_MYSQL: &str = "
CREATE TRIGGER refuse_crash BEFORE UPDATE ON ductwork_executions FOR EACH ROW
    IF NEW.result = 'process_crashed' AND NEW.pipeline = 'PIPELINE' THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no';
    END IF";

const UNREAD: &str = "cannot run work that a newer version wrote; start a newer ductworkd";

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// The number of statements that all processes of this role have sent, as far as they have
/// reported.
async fn statements(fixture: &mut DaemonFixture, role: &str) -> u64 {
    let rows = fixture.processes().await;
    let of_role = rows.iter().filter(|row| row.role.as_str() == role);
    of_role.map(|row| row.counters.statements).sum()
}

on_every_database! {
    async fn a_run_whose_definition_cannot_be_read_holds_up_no_other_and_goes_on_when_it_can(db: Db) {
        let settings = Settings { reaper_timeout: "3s", level: "info", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[ECHO, LONG]).await;
        fixture.define(NEWER);
        let unread = fixture.trigger("Echo", "1", 3).await;
        garble(&mut fixture, unread[0]).await;
        fixture.define(ECHO);
        let good = fixture.trigger("Echo", "2", 20).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        for run in good {
            fixture.run_ended(run).await;
        }
        daemon.says(UNREAD).await;

        // No process spins meanwhile: in the steady state, which begins after a beat.
        let worker = "worker Echo";
        let pid = daemon.child(worker, None).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (before, since) = (statements(&mut fixture, "worker").await, Instant::now());
        tokio::time::sleep(Duration::from_secs(10)).await;
        let sent = statements(&mut fixture, "worker").await - before;
        let rate = sent as f64 / since.elapsed().as_secs_f64();
        eprintln!("{rate:.1} statements/s of two workers");
        // Two workers with a heartbeat every half second, two polls a second, and the executions that are
        // put back.
        assert!(rate < 15.0, "{rate}");
        assert_eq!(daemon.children(worker), [pid]);
        let said = daemon.logged(UNREAD);
        assert_eq!(said.len(), 1, "{said:#?}");
        let error = said[0]["error"].as_str().unwrap_or_default();
        assert!(error.contains("its step `Echo` is of an unknown kind, `http`"), "{error}");

        // Every command that is asked reports it.
        let run = unread[0].to_string();
        let why = text(&fixture.run(&[], &["why", &run]).stdout);
        assert!(why.contains("unknown kind, `http`") && why.contains("start a newer"), "{why}");
        let show = text(&fixture.run(&[], &["show", &run]).stdout);
        assert!(show.contains("unknown kind, `http`"), "{show}");
        let health = eventually_every(SELDOM, PATIENCE, "health tells it", async || {
            let health = fixture.run(&[], &["health"]);
            (health.status.code() == Some(1)).then_some(health)
        })
        .await;
        let told = text(&health.stderr);
        assert!(told.contains("worker Echo") && told.contains("unknown kind, `http`"), "{told}");
        let audit = fixture.run(&[], &["audit"]);
        assert_eq!(audit.status.code(), Some(0), "{audit:?}");

        mend(&mut fixture).await;
        for run in unread {
            fixture.run_ended(run).await;
            assert_eq!(fixture.output(run).await, 1);
        }
        eventually_every(SELDOM, PATIENCE, "health is content", async || {
            (fixture.run(&[], &["health"]).status.code() == Some(0)).then_some(())
        })
        .await;
        daemon.stop().await;
        let executions = fixture.executions().await;
        assert!(executions.iter().all(|e| e.attempt == 1), "{executions:#?}");
        fixture.audited().await;
    }

    /// The worker's own definition was claimed by a version that could read it, and so were the executions
    /// that it holds when it dies.
    async fn a_killed_worker_is_recovered_beside_one_whose_definition_cannot_be_read(db: Db) {
        let settings = Settings { level: "info", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[LONG]).await;
        fixture.define(&LONG.replace("Long", "Also"));
        let mut daemon = fixture.start();
        daemon.ready().await;
        let long = fixture.trigger("Long", "1", 1).await[0];
        let also = fixture.trigger("Also", "1", 1).await[0];
        fixture.pids("pids", 2).await;
        garble(&mut fixture, long).await;
        // One supervisor recovers both at its next sweep.
        let kinds = ["worker Long", "worker Also"];
        let mut workers = Vec::new();
        for kind in kinds {
            workers.push(daemon.child(kind, None).await);
        }
        daemon.send(Signal::SIGKILL);
        for worker in &workers {
            send(*worker, Signal::SIGKILL);
        }
        daemon.ended(PATIENCE).await;
        let mut next = fixture.start();
        next.ready().await;
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.run_ended(also).await;
        // An execution that cannot be read has lost its process all the same, and waits for a newer version.
        eventually(PATIENCE, "both are recovered", async || {
            let executions = fixture.executions().await;
            let crashed = executions.iter().filter(|e| e.result() == "process_crashed");
            (crashed.count() == 2).then_some(())
        })
        .await;
        mend(&mut fixture).await;
        fixture.run_ended(long).await;
        next.stop().await;
        daemon.gone(PATIENCE).await;
        fixture.audited().await;
    }

    async fn a_branch_whose_definition_cannot_be_read_spends_nothing_and_holds_up_no_other(db: Db) {
        let settings = Settings { level: "info", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[FAN]).await;
        fixture.define(&FAN.replace("Fan", "Also"));
        // The advancer of this daemon has not met the definitions when the branches become ready.
        let unread = fixture.trigger("Fan", "1", 1).await[0];
        let good = fixture.trigger("Also", "1", 5).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.pids("pids", 5).await;
        garble(&mut fixture, unread).await;
        std::fs::write(fixture.path("go"), "").unwrap();
        for run in good {
            fixture.run_ended(run).await;
        }
        daemon.says(UNREAD).await;
        static TRIED: Statement = Statement::new(
            "TEST_TRIED",
            "SELECT a.result, t.retry_count FROM ductwork_advancements a
               JOIN ductwork_transitions t ON t.id = a.transition_id
              WHERE t.run_id = :run AND a.completed_at IS NOT NULL",
        );
        let args = [("run", unread.0.into())];
        let conn = &mut fixture.conn;
        eventually(PATIENCE, "it is put off twice", async || {
            let tried = conn.fetch(&TRIED, &args).await.unwrap();
            for row in &tried {
                assert_eq!(row.get::<String>("result").unwrap(), "released");
                assert_eq!(row.count("retry_count").unwrap(), 0);
            }
            (tried.len() == 2).then_some(())
        })
        .await;
        mend(&mut fixture).await;
        fixture.run_ended(unread).await;
        assert_eq!(fixture.output(unread).await, Value::from(vec![1]));
        daemon.stop().await;
        fixture.audited().await;
    }

    /// The first of two dead processes cannot be recovered: the database refuses it.
    async fn a_recovery_that_fails_holds_up_no_other(db: Db) {
        static WORKERS: Statement = Statement::new(
            "TEST_WORKERS",
            "SELECT pipeline FROM ductwork_processes WHERE role = 'worker' ORDER BY started_at, id",
        );
        let settings = Settings { level: "info", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[LONG]).await;
        fixture.define(&LONG.replace("Long", "Also"));
        let mut daemon = fixture.start();
        daemon.ready().await;
        let rows = fixture.conn.fetch(&WORKERS, &[]).await.unwrap();
        let names: Vec<String> = rows.iter().map(|row| row.get("pipeline").unwrap()).collect();
        let first = fixture.trigger(&names[0], "1", 1).await[0];
        let second = fixture.trigger(&names[1], "1", 1).await[0];
        fixture.pids("pids", 2).await;
        let (refuse, allow) = match fixture.conn.dialect() {
            Dialect::Postgres => (REFUSE_POSTGRES, "DROP TRIGGER refuse_crash ON ductwork_executions"),
            Dialect::Sqlite => (REFUSE_SQLITE, "DROP TRIGGER refuse_crash"),
            Dialect::Mysql => (REFUSE_MYSQL, "DROP TRIGGER refuse_crash"),
        };
        let refuse = refuse.replace("PIPELINE", &names[0]).leak();
        fixture.define_in_database(refuse).await;
        let workers: Vec<i32> = names
            .iter()
            .flat_map(|name| daemon.children(&format!("worker {name}")))
            .collect();
        daemon.send(Signal::SIGKILL);
        workers.iter().for_each(|worker| send(*worker, Signal::SIGKILL));
        daemon.ended(PATIENCE).await;
        let mut next = fixture.start();
        next.ready().await;
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.run_ended(second).await;
        next.says("recovering the work of a dead process failed; trying again").await;
        fixture.conn.script("allow", allow).await.unwrap();
        fixture.run_ended(first).await;
        assert_eq!(next.logged("recovering the work of a dead process failed; trying again").len(), 1);
        next.stop().await;
        daemon.gone(PATIENCE).await;
        fixture.audited().await;
    }
}
