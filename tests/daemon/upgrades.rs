//! A newer ductworkd changes the schema under this one.

use ductwork::store::migrate::MIGRATIONS;
use ductwork::store::statement::Statement;
use nix::sys::signal::Signal;

use crate::house::*;
use crate::on_every_database;
use crate::support::Db;

const WORK: &str = r#"
pipeline: Work
steps:
  A: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.01; done; cat'] }
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

async fn add(house: &mut House) {
    let script = ADDS.replace("VERSION", &next().to_string());
    let added = format!("BEGIN; {script} COMMIT;").leak();
    house.conn.script("TEST_ADDS", added).await.unwrap();
}

/// From now on older programs cannot work with the schema.
async fn outgrow(house: &mut House) {
    static OUTGROW: Statement = Statement::new(
        "TEST_OUTGROW",
        "UPDATE ductwork_migrations SET needs = :needs WHERE version = :needs",
    );
    let args = [("needs", next().into())];
    assert_eq!(house.conn.execute(&OUTGROW, &args).await.unwrap(), 1);
}

fn stderr(house: &House, verb: &[&str]) -> (Option<i32>, String) {
    let done = house.run(&[], verb);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    (done.status.code(), said)
}

on_every_database! {
    async fn a_daemon_goes_on_beside_what_a_newer_one_adds_and_stops_when_it_is_outgrown(db: Db) {
        let mut house = House::new(&db, Settings::default(), &[WORK]).await;
        house.trigger("Work", "1", 5).await;
        let mut daemon = house.start();
        daemon.ready().await;
        house.pids("pids", 1).await;
        add(&mut house).await;
        daemon.says("the schema is newer than this ductworkd").await;
        std::fs::write(house.path("go"), "").unwrap();
        house.trigger("Work", "2", 20).await;
        house.completed(PATIENCE).await;
        // Those who start beside it, and people, can work with it as well.
        assert_eq!(stderr(&house, &["runs"]).0, Some(0));
        assert_eq!(stderr(&house, &["audit"]).0, Some(0));
        let status = house.run(&[], &["migrate", "--status"]).stdout;
        let status = String::from_utf8_lossy(&status).into_owned();
        assert!(status.contains("of a newer ductworkd"), "{status}");
        let second = house.start();
        second.ready().await;
        second.says("the schema is newer than this ductworkd").await;
        house.trigger("Work", "3", 20).await;
        house.completed(PATIENCE).await;
        daemon.send(Signal::SIGKILL);
        daemon.ended(PATIENCE).await;

        let mut daemon = second;
        std::fs::remove_file(house.path("go")).unwrap();
        std::fs::remove_file(house.path("pids")).unwrap();
        house.trigger("Work", "4", 1).await;
        house.pids("pids", 1).await;
        outgrow(&mut house).await;
        daemon.says("stopping").await;
        // It drains, as for any stop.
        std::fs::write(house.path("go"), "").unwrap();
        let (status, _) = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(1), "{status}");
        let error = daemon.logged("stopping")[0]["error"].to_string();
        assert!(error.contains("install the newer ductworkd"), "{error}");
        for verb in [&["start"][..], &["runs"], &["migrate"], &["trigger", "Work"]] {
            let (code, said) = stderr(&house, verb);
            assert!(code == Some(1) && said.contains("install the newer ductworkd"), "{verb:?}: {said}");
        }
        let executions = house.executions().await;
        assert!(executions.iter().all(|it| it.result.is_none() || it.result() == "success"), "{executions:#?}");
    }
}
