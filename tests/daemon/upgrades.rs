//! A newer ductworkd changes the schema under this one.

use ductwork::store::Dialect;
use ductwork::store::migrate::MIGRATIONS;
use ductwork::store::statement::Statement;
use nix::sys::signal::Signal;

use crate::fixture::*;
use crate::on_every_database;
use crate::support::Db;

const WORK: &str = r#"
pipeline: Work
steps:
  A: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; cat'] }
  B: { command: [cat] }
flow: [{ start: A }, { chain: B }]
"#;

/// The next migration, which only adds.
const ADDS: &str = "
INSERT INTO ductwork_migrations (version, name, applied_at) VALUES (VERSION, 'of a newer one', 1);
ALTER TABLE ductwork_runs ADD COLUMN newer integer;
ALTER TABLE ductwork_executions ADD COLUMN newer integer NOT NULL DEFAULT 7;
ALTER TABLE ductwork_processes ADD COLUMN newer text;
CREATE INDEX ductwork_runs_newer ON ductwork_runs (newer);
CREATE TABLE ductwork_newer (id bigint PRIMARY KEY);";

fn next() -> i64 {
    MIGRATIONS.last().map_or(0, |migration| migration.version) + 1
}

async fn add(fixture: &mut DaemonFixture) {
    let script = ADDS.replace("VERSION", &next().to_string());
    let added = match fixture.conn.dialect() {
        // A change of the schema commits by itself there.
        Dialect::Mysql => script.leak(),
        _ => format!("BEGIN; {script} COMMIT;").leak(),
    };
    fixture.conn.script("TEST_ADDS", added).await.unwrap();
}

/// From now on older programs cannot work with the schema.
async fn outgrow(fixture: &mut DaemonFixture) {
    static OUTGROW: Statement = Statement::new(
        "TEST_OUTGROW",
        "UPDATE ductwork_migrations SET needs = :needs WHERE version = :needs",
    );
    let args = [("needs", next().into())];
    assert_eq!(fixture.conn.execute(&OUTGROW, &args).await.unwrap(), 1);
}

fn stderr(fixture: &DaemonFixture, verb: &[&str]) -> (Option<i32>, String) {
    let done = fixture.run(&[], verb);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    (done.status.code(), said)
}

on_every_database! {
    async fn a_daemon_goes_on_beside_what_a_newer_one_adds_and_stops_when_it_is_outgrown(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
        fixture.trigger("Work", "1", 5).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.pids("pids", 1).await;
        add(&mut fixture).await;
        daemon.says("the schema is newer than this ductworkd").await;
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.trigger("Work", "2", 20).await;
        fixture.completed(PATIENCE).await;
        // Daemons that start now, and people, can work with it as well.
        assert_eq!(stderr(&fixture, &["runs"]).0, Some(0));
        assert_eq!(stderr(&fixture, &["audit"]).0, Some(0));
        let status = fixture.run(&[], &["migrate", "--status"]).stdout;
        let status = String::from_utf8_lossy(&status).into_owned();
        assert!(status.contains("of a newer ductworkd"), "{status}");
        let second = fixture.start();
        second.ready().await;
        second.says("the schema is newer than this ductworkd").await;
        fixture.trigger("Work", "3", 20).await;
        fixture.completed(PATIENCE).await;
        daemon.send(Signal::SIGKILL);
        daemon.ended(PATIENCE).await;

        let mut daemon = second;
        std::fs::remove_file(fixture.path("go")).unwrap();
        std::fs::remove_file(fixture.path("pids")).unwrap();
        fixture.trigger("Work", "4", 1).await;
        fixture.pids("pids", 1).await;
        outgrow(&mut fixture).await;
        daemon.says("stopping").await;
        // The daemon drains, as at any stop.
        std::fs::write(fixture.path("go"), "").unwrap();
        let (status, _) = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(1), "{status}");
        // Its worker, which drains, may have logged this first.
        let said = daemon.logged("stopping");
        let error = said.iter().find_map(|line| line.get("error"));
        let error = error.map(ToString::to_string).unwrap_or_default();
        assert!(error.contains("install the newer ductworkd"), "{error}");
        for verb in [&["start"][..], &["runs"], &["migrate"], &["trigger", "Work"]] {
            let (code, said) = stderr(&fixture, verb);
            assert!(code == Some(1) && said.contains("install the newer ductworkd"), "{verb:?}: {said}");
        }
        let executions = fixture.executions().await;
        assert!(executions.iter().all(|it| it.result.is_none() || it.result() == "success"), "{executions:#?}");
    }
}
