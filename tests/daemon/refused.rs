//! Rows that the database refuses.

use std::time::{Duration, Instant};

use ductwork::model::RunStatus;
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Dialect, query};

use crate::fixture::*;
use crate::on_every_database;
use crate::support::{self, Db};

const ECHO: &str = "
pipeline: Echo
steps: { Echo: { command: [cat] } }
flow: [{ start: Echo }]
";

/// Refuses outputs that request it.
const POSTGRES: &str = "
CREATE FUNCTION refuse_poison() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.output LIKE '%poison%' THEN RAISE EXCEPTION 'no poison here'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse_poison BEFORE UPDATE ON ductwork_steps
    FOR EACH ROW EXECUTE FUNCTION refuse_poison();";

const SQLITE: &str = "
CREATE TRIGGER refuse_poison BEFORE UPDATE ON ductwork_steps WHEN NEW.output LIKE '%poison%'
BEGIN SELECT RAISE(ABORT, 'no poison here'); END;";

const MYSQL: &str = "
CREATE TRIGGER refuse_poison BEFORE UPDATE ON ductwork_steps FOR EACH ROW
    IF NEW.output LIKE '%poison%' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no poison here'; END IF";

/// Its error's text is its input.
const FAIL: &str = "
pipeline: Fail
steps: { Fail: { command: [sh, -c, 'cat >&2; exit 3'] } }
flow: [{ start: Fail }]
";

/// Refuses texts of errors that request it.
const NO_TEXT_POSTGRES: &str = "
CREATE FUNCTION refuse_text() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'no “poison” here' USING ERRCODE = 'check_violation'; END $$;
CREATE TRIGGER refuse_text BEFORE UPDATE ON ductwork_executions
    FOR EACH ROW WHEN (NEW.error_backtrace LIKE '%poison%' OR NEW.error_message LIKE '%“poison”%')
    EXECUTE FUNCTION refuse_text();";

const NO_TEXT_SQLITE: &str = "
CREATE TRIGGER refuse_text BEFORE UPDATE ON ductwork_executions
WHEN NEW.error_backtrace LIKE '%poison%' OR NEW.error_message LIKE '%“poison”%'
BEGIN SELECT RAISE(ABORT, 'no “poison” here'); END;";

const NO_TEXT_MYSQL: &str = "
CREATE TRIGGER refuse_text BEFORE UPDATE ON ductwork_executions FOR EACH ROW
    IF NEW.error_backtrace LIKE '%poison%' OR NEW.error_message LIKE '%“poison”%' THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no “poison” here'; END IF";

/// The input goes to the log as well.
const TALK: &str = "
pipeline: Talk
steps: { Talk: { command: [sh, -c, 'tee /dev/stderr'] } }
flow: [{ start: Talk }]
";

/// Leaves an execution as it is whose log requests that.
const IGNORE_POSTGRES: &str = "
CREATE FUNCTION ignore_poison() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RETURN NULL; END $$;
CREATE TRIGGER ignore_poison BEFORE UPDATE ON ductwork_executions
    FOR EACH ROW WHEN (NEW.log LIKE '%poison%') EXECUTE FUNCTION ignore_poison();";

const IGNORE_SQLITE: &str = "
CREATE TRIGGER ignore_poison BEFORE UPDATE ON ductwork_executions WHEN NEW.log LIKE '%poison%'
BEGIN SELECT RAISE(IGNORE); END;";

/// Refuses the row of an advancer.
const NO_ADVANCER_POSTGRES: &str = "
CREATE FUNCTION refuse_advancer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'no advancer here' USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER refuse_advancer BEFORE INSERT ON ductwork_processes
    FOR EACH ROW WHEN (NEW.role = 'advancer') EXECUTE FUNCTION refuse_advancer();";

const NO_ADVANCER_SQLITE: &str = "
CREATE TRIGGER refuse_advancer BEFORE INSERT ON ductwork_processes WHEN NEW.role = 'advancer'
BEGIN SELECT RAISE(ABORT, 'no advancer here'); END;";

const NO_ADVANCER_MYSQL: &str = "
CREATE TRIGGER refuse_advancer BEFORE INSERT ON ductwork_processes FOR EACH ROW
    IF NEW.role = 'advancer' THEN
        SIGNAL SQLSTATE '23000' SET MESSAGE_TEXT = 'no advancer here', MYSQL_ERRNO = 4025; END IF";

/// Ends when its file is there.
const HOLD: &str = r#"
pipeline: Hold
steps:
  Hold: { command: [sh, -c, 'f=go$(cat); echo $$ >> pids; until [ -e "$f" ]; do sleep 0.1; done; echo 1'] }
flow: [{ start: Hold }]
"#;

/// Refuses claims.
const NO_CLAIM_POSTGRES: &str = "
CREATE FUNCTION refuse_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no claim here'; END $$;
CREATE TRIGGER refuse_claim BEFORE DELETE ON ductwork_availabilities FOR EACH ROW EXECUTE FUNCTION refuse_claim();";

const NO_CLAIM_SQLITE: &str = "
CREATE TRIGGER refuse_claim BEFORE DELETE ON ductwork_availabilities
BEGIN SELECT RAISE(ABORT, 'no claim here'); END;";

const NO_CLAIM_MYSQL: &str = "
CREATE TRIGGER refuse_claim BEFORE DELETE ON ductwork_availabilities FOR EACH ROW
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no claim here'";

/// Refuses claims from now on; returns the statement that allows them again.
async fn refuse_claims(fixture: &mut DaemonFixture) -> &'static str {
    let (refuse, allow) = match fixture.conn.dialect() {
        Dialect::Postgres => (
            NO_CLAIM_POSTGRES,
            "DROP TRIGGER refuse_claim ON ductwork_availabilities",
        ),
        Dialect::Sqlite => (NO_CLAIM_SQLITE, "DROP TRIGGER refuse_claim"),
        Dialect::Mysql => (NO_CLAIM_MYSQL, "DROP TRIGGER refuse_claim"),
    };
    fixture.define_in_database(refuse).await;
    allow
}

on_every_database! {
    /// A claim that is refused comes before each of these commits.
    async fn results_are_stored_while_claims_are_refused(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[HOLD]).await;
        let mut daemon = fixture.start();
        let first = fixture.trigger("Hold", "1", 1).await[0];
        let second = fixture.trigger("Hold", "2", 1).await[0];
        fixture.pids("pids", 2).await;
        let allow = refuse_claims(&mut fixture).await;
        let third = fixture.trigger("Hold", "3", 1).await[0];
        let told = daemon.says("claiming or committing failed").await;
        assert!(told[0]["error"].as_str().unwrap_or_default().contains("no claim here"), "{told:?}");
        for (run, go) in [(first, "go1"), (second, "go2")] {
            std::fs::write(fixture.path(go), "").unwrap();
            fixture.run_ended(run).await;
        }
        fixture.conn.script("allow it", allow).await.unwrap();
        std::fs::write(fixture.path("go3"), "").unwrap();
        fixture.run_ended(third).await;
        daemon.stop().await;
        assert_eq!(fixture.succeeded_once_each().await.len(), 3);
        fixture.audited().await;
    }

    /// One bad result in a batch neither takes the others along nor is retried forever (E12).
    async fn a_result_that_the_database_refuses_is_its_steps_error_and_nobody_elses(db: Db) {
        let settings = Settings { count: 8, max_retry: 1, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[ECHO]).await;
        let refuse = match fixture.conn.dialect() {
            Dialect::Postgres => POSTGRES,
            Dialect::Sqlite => SQLITE,
            Dialect::Mysql => MYSQL,
        };
        fixture.define_in_database(refuse).await;
        // Many runs, so that the bad result shares its batch with others.
        let mut runs = fixture.trigger("Echo", "1", 20).await;
        let bad = fixture.trigger("Echo", "\"poison\"", 1).await[0];
        runs.extend(fixture.trigger("Echo", "2", 20).await);
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.run_ended(bad).await;
        for run in runs {
            fixture.run_ended(run).await;
            let state = query::run_state(&mut fixture.conn, run).await.unwrap().unwrap();
            assert_eq!(state.status, RunStatus::Completed);
        }
        daemon.stop().await;
        let state = query::run_state(&mut fixture.conn, bad).await.unwrap().unwrap();
        assert_eq!(state.status, RunStatus::Halted);
        let executions = fixture.executions().await;
        let (refused, others): (Vec<_>, Vec<_>) =
            executions.iter().partition(|e| e.result() != "success");
        assert_eq!(others.len(), 40);
        assert!(others.iter().all(|e| e.attempt == 1), "{others:#?}");
        // It was run once more, as after any error.
        assert_eq!(refused.len(), 2, "{refused:#?}");
        for execution in refused {
            assert_eq!(execution.result(), "error");
            assert_eq!(execution.error_class.as_deref(), Some("output_not_stored"));
            let message = execution.error_message.as_deref().unwrap_or_default();
            assert!(message.contains("no poison here"), "{message}");
            assert_eq!(execution.crash_count, 0);
        }
        fixture.audited().await;
    }

    /// The text of an error may be refused as well, in whatever form: it makes way for an ASCII text.
    async fn an_error_whose_text_the_database_refuses_is_stored_with_another(db: Db) {
        let settings = Settings { max_retry: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[FAIL]).await;
        let refuse = match fixture.conn.dialect() {
            Dialect::Postgres => NO_TEXT_POSTGRES,
            Dialect::Sqlite => NO_TEXT_SQLITE,
            Dialect::Mysql => NO_TEXT_MYSQL,
        };
        fixture.define_in_database(refuse).await;
        let run = fixture.trigger("Fail", "\"poison\"", 1).await[0];
        let mut daemon = fixture.start();
        fixture.run_ended(run).await;
        let execution = &fixture.executions().await[0];
        assert_eq!(execution.result(), "error");
        assert_eq!(execution.error_class.as_deref(), Some("error_not_stored"));
        let message = execution.error_message.as_deref().unwrap_or_default();
        assert!(message.contains("no ?poison? here"), "{message}");
        daemon.stop().await;
        fixture.audited().await;
    }

    /// The cause is not the row's id, so trying again and again with a fresh one would keep the database busy for
    /// nothing.
    async fn a_process_whose_row_is_refused_says_so_and_goes_on_when_it_is_taken(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[ECHO]).await;
        let refuse = match fixture.conn.dialect() {
            Dialect::Postgres => NO_ADVANCER_POSTGRES,
            Dialect::Sqlite => NO_ADVANCER_SQLITE,
            Dialect::Mysql => NO_ADVANCER_MYSQL,
        };
        let allow = match fixture.conn.dialect() {
            Dialect::Postgres => "DROP TRIGGER refuse_advancer ON ductwork_processes",
            Dialect::Sqlite | Dialect::Mysql => "DROP TRIGGER refuse_advancer",
        };
        fixture.define_in_database(refuse).await;
        let run = fixture.trigger("Echo", "1", 1).await[0];
        let mut daemon = fixture.start();
        let told = daemon.says("waiting for the database").await;
        let error = told[0]["error"].as_str().unwrap_or_default();
        assert!(error.contains("no advancer here"), "{told:?}");
        fixture.conn.script("allow it", allow).await.unwrap();
        daemon.ready().await;
        fixture.run_ended(run).await;
        daemon.stop().await;
        fixture.audited().await;
    }
}

async fn a_result_is_ignored(db: Db) {
    let settings = Settings {
        count: 8,
        max_retry: 0,
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::new(&db, settings, &[TALK]).await;
    let (ignore, allow) = match fixture.conn.dialect() {
        Dialect::Postgres => (
            IGNORE_POSTGRES,
            "DROP TRIGGER ignore_poison ON ductwork_executions",
        ),
        _ => (IGNORE_SQLITE, "DROP TRIGGER ignore_poison"),
    };
    fixture.define_in_database(ignore).await;
    let mut runs = fixture.trigger("Talk", "1", 20).await;
    let bad = fixture.trigger("Talk", "\"poison\"", 1).await[0];
    runs.extend(fixture.trigger("Talk", "2", 20).await);
    let mut daemon = fixture.start();
    daemon.ready().await;
    for run in runs {
        fixture.run_ended(run).await;
    }
    eventually_every(SELDOM, PATIENCE, "`health` tells of it", async || {
        let health = fixture.run(&[], &["health"]);
        let said = String::from_utf8_lossy(&health.stderr);
        let is_told = said.contains("COMMIT was to close 1 more rows of ductwork_executions");
        (!health.status.success() && is_told).then_some(())
    })
    .await;
    fixture.conn.script("allow it", allow).await.unwrap();
    fixture.run_ended(bad).await;
    eventually_every(SELDOM, PATIENCE, "`health` is content", async || {
        let health = fixture.run(&[], &["health"]);
        health.status.success().then_some(())
    })
    .await;
    daemon.stop().await;
    // The result was kept, and nothing ran twice.
    let executions = fixture.succeeded_once_each().await;
    assert_eq!(executions.len(), 41, "{executions:#?}");
    assert!(daemon.logged("stale commit refused").is_empty());
    fixture.audited().await;
}

/// A trigger or a policy that leaves a row as it is, without an error, must not make the result stale. MySQL has neither.
mod a_result_that_the_database_silently_ignores_is_kept_and_told_of {
    use super::*;

    #[tokio::test]
    async fn sqlite() {
        support::with(Db::sqlite(), a_result_is_ignored).await;
    }

    #[tokio::test]
    async fn postgres() {
        support::with(Db::postgres().await, a_result_is_ignored).await;
    }
}

/// A loop whose claims are refused waits for a second, however often others announce work.
#[tokio::test]
async fn a_loop_whose_work_is_refused_does_not_try_again_with_each_wakeup() {
    support::with(Db::postgres().await, async |db| {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[ECHO]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let allow = refuse_claims(&mut fixture).await;
        let run = fixture.trigger("Echo", "1", 1).await[0];
        daemon.says("claiming or committing failed").await;
        let (began, before) = (Instant::now(), daemon.logged("a statement failed").len());
        let mut announced = 0;
        while began.elapsed() < Duration::from_secs(3) {
            fixture
                .conn
                .script("ring", "SELECT pg_notify('ductwork', 'of another host')")
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
            announced += 1;
        }
        let tries = daemon.logged("a statement failed").len() - before;
        let seconds = began.elapsed().as_secs() as usize + 1;
        assert!(
            announced > 10 * seconds,
            "{announced} in {seconds} s: the test is empty"
        );
        assert!(tries <= seconds, "{tries} tries in {seconds} s");
        fixture.conn.script("allow it", allow).await.unwrap();
        fixture.run_ended(run).await;
        daemon.stop().await;
        fixture.audited().await;
    })
    .await;
}

/// Its host is no text.
const UNREADABLE: &str = "
INSERT INTO ductwork_processes
    (id, role, host, boot_id, pid_namespace, pid, pid_started_at, version, started_at, last_heartbeat_at)
SELECT randomblob(16), role, CAST(x'ff' AS text), boot_id, pid_namespace, -1, pid_started_at, version, started_at,
       last_heartbeat_at
  FROM ductwork_processes WHERE role = 'supervisor';";

/// A supervisor sweeps more often than it beats, and here it cannot read a row of a process.
#[tokio::test]
async fn a_sweep_that_always_fails_keeps_no_heartbeat_from_being_sent() {
    support::with(Db::sqlite(), async |db| {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[ECHO]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture
            .conn
            .script("TEST_UNREADABLE", UNREADABLE)
            .await
            .unwrap();
        daemon.says("heartbeat or request failed").await;
        let conn = &mut fixture.conn;
        let first = beats(conn).await;
        eventually(PATIENCE, "the supervisor beats", async || {
            (beats(conn).await > first + 3).then_some(())
        })
        .await;
        let mend = "DELETE FROM ductwork_processes WHERE pid = -1";
        fixture.conn.script("TEST_MEND", mend).await.unwrap();
        daemon.stop().await;
        fixture.audited().await;
    })
    .await;
}

/// How often the supervisor has beaten.
async fn beats(conn: &mut Conn) -> i64 {
    static BEATS: Statement = Statement::new(
        "TEST_BEATS",
        "SELECT beat_seq FROM ductwork_processes WHERE role = 'supervisor' AND pid > 0",
    );
    let row = conn.fetch_optional(&BEATS, &[]).await.unwrap();
    row.unwrap().get("beat_seq").unwrap()
}
