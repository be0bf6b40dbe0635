//! Work that continues in a copy of its database.

use ductwork::model::{Role, RunStatus};
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, query};
use nix::sys::signal::Signal;

use crate::fixture::*;
use crate::on_every_database;
use crate::support::Db;

const PIPELINES: [&str; 2] = [
    "
pipeline: Each
steps: { Many: { command: [cat] }, One: { command: [cat] }, All: { command: [cat] } }
flow: [{ start: Many }, { expand: One }, { collapse: All }]
",
    "
pipeline: Ask
steps: { A: { command: [cat] } }
flow: [{ start: A }, { dampen: Go on? }, { chain: A }]
",
];

on_every_database! {
    async fn a_stopped_daemons_work_goes_on_in_the_copy(db: Db) {
        let source = Db::sqlite();
        let mut before = DaemonFixture::new(&source, Settings::default(), &PIPELINES).await;
        let mut daemon = before.start();
        daemon.ready().await;
        let done = before.trigger("Each", "[1,2,3]", 1).await[0];
        before.run_ended(done).await;
        let asked = before.trigger("Ask", "\"a\"", 1).await[0];
        let conn = &mut before.conn;
        eventually(PATIENCE, "the run waits", async || {
            let state = query::run_state(conn, asked).await.unwrap().unwrap();
            (state.status == RunStatus::Dampened).then_some(())
        })
        .await;
        let refused = before.run(&["env", &format!("DUCTWORK_COPY_TO={}", db.url)], &["copy"]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && said.contains("the database is in use: ") && said.contains(" (pid "), "{said}");
        // SQLite would have made the file of the target.
        let refused = before.run(&[], &["copy", "--to", "sqlite://other.db"]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(!before.path("other.db").exists());
        daemon.stop().await;
        // No process works on it yet.
        let queued = before.trigger("Each", "[[],{}]", 1).await[0];

        let copied = before.run(&[], &["copy", "--to", &db.url]);
        let said = String::from_utf8_lossy(&copied.stdout);
        assert!(copied.status.success() && said.starts_with("copied 3 runs, in "), "{copied:?}");
        let again = before.run(&[], &["copy", "--to", &db.url]);
        let said = String::from_utf8_lossy(&again.stderr);
        assert!(again.status.code() == Some(1) && said.contains("is not empty"), "{said}");

        let mut after = DaemonFixture::new(&db, Settings::default(), &PIPELINES).await;
        let mut daemon = after.start();
        daemon.ready().await;
        after.run_ended(queued).await;
        assert_eq!(after.output(queued).await, serde_json::json!([[], {}]));
        let resumed = after.run(&[], &["resume", &asked.to_string(), "\"b\""]);
        assert!(resumed.status.success(), "{resumed:?}");
        after.run_ended(asked).await;
        assert_eq!(after.output(asked).await, serde_json::json!("b"));
        daemon.stop().await;
        after.audited().await;
        before.audited().await;
    }

    async fn half_a_copy_is_told_from_a_migration(db: Db) {
        static MARK: Statement = Statement::new(
            "TEST_MARK",
            "INSERT INTO ductwork_migrations (version, name, applied_at, needs)
             VALUES (9223372036854775807, 'a copy that is not complete', 0, 9223372036854775807)",
        );
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[]).await;
        fixture.conn.execute(&MARK, &[]).await.unwrap();
        let status = fixture.run(&[], &["migrate", "--status"]).stdout;
        let status = String::from_utf8(status).unwrap();
        let last = status.lines().last().unwrap();
        assert!(last.starts_with('-') && last.contains("the mark of an incomplete copy"), "{status}");
        assert!(last.trim_end().ends_with("no migration"), "{status}");
        let told = fixture.run(&[], &["migrate", "--status", "--json"]).stdout;
        let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
        let marks: Vec<_> = told.as_array().unwrap().iter().filter(|it| it["applied"] == false).collect();
        assert_eq!(marks.len(), 1, "{told}");
        assert!(marks[0]["name"].as_str().unwrap().starts_with("the mark of an incomplete copy"), "{told}");
    }

    async fn what_the_killed_have_left_is_copied_at_once(db: Db) {
        a_copy_is_made_of_what_the_killed_have_left(db, false).await;
    }

    async fn processes_of_another_host_are_at_work_for_a_lease_after_their_last_heartbeat(db: Db) {
        a_copy_is_made_of_what_the_killed_have_left(db, true).await;
    }
}

#[tokio::test]
async fn a_copy_that_is_told_to_stop_says_what_there_is_of_it() {
    let db = Db::sqlite();
    let fixture = DaemonFixture::new(&db, Settings::default(), &[]).await;
    // A server that sends no greeting.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = format!("mysql://u:p@{}/d", silent.local_addr().unwrap());
    let mut copy = fixture.start_as(&[], &["copy", "--to", &to]);
    let connected = tokio::time::timeout(PATIENCE, silent.accept()).await;
    let _kept = connected.expect("it connects").unwrap();
    copy.send(Signal::SIGINT);
    let (status, _) = copy.ended(PATIENCE).await;
    let said = copy.text();
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(
        said.contains("stopped before the copy was complete"),
        "{said}"
    );
    assert!(
        said.contains("make the copy again, to a fresh database"),
        "{said}"
    );
}

const FIRST: &str = "
pipeline: First
steps:
  A:
    command:
      - sh
      - -c
      - |
        echo $$ >> pids
        [ $DUCTWORK_ATTEMPT -gt 1 ] && echo 1 && exit
        sleep 1000
flow: [{ start: A }]
";

/// Makes the processes those of another host, of which this host knows nothing but their
/// heartbeats.
async fn moves_elsewhere(conn: &mut Conn) {
    static MOVE: Statement = Statement::new(
        "TEST_MOVE",
        "UPDATE ductwork_processes SET host = 'elsewhere', boot_id = '', pid_namespace = ''",
    );
    assert!(conn.execute(&MOVE, &[]).await.unwrap() > 0);
}

/// A daemon and its worker are killed during their work, and leave their rows.
async fn a_copy_is_made_of_what_the_killed_have_left(db: Db, elsewhere: bool) {
    let settings = || Settings {
        reaper_timeout: "4s",
        ..Settings::default()
    };
    let source = Db::sqlite();
    let mut before = DaemonFixture::new(&source, settings(), &[FIRST]).await;
    let mut daemon = before.start();
    daemon.ready().await;
    let run = before.trigger("First", "1", 1).await[0];
    before.pids("pids", 1).await;
    // A process that sees the other die would recover its executions, and remove its row.
    let worker = daemon.child("worker First", None).await;
    freeze(daemon.pid()).await;
    let refused = before.run(&[], &["copy", "--to", &db.url]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("the database is in use: "), "{said}");
    send(worker, Signal::SIGKILL);
    daemon.send(Signal::SIGKILL);
    daemon.ended(PATIENCE).await;
    let left = before.processes().await;
    assert!(left.iter().any(|row| row.role == Role::Worker), "{left:#?}");
    if elsewhere {
        moves_elsewhere(&mut before.conn).await;
        let refused = before.run(&[], &["copy", "--to", &db.url]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(
            said.contains(" on elsewhere)")
                && said.contains("counts as running for 4.0s after its last heartbeat"),
            "{said}"
        );
    }
    let copied = async || {
        let copied = before.run(&[], &["copy", "--to", &db.url]);
        let said = String::from_utf8_lossy(&copied.stderr).into_owned();
        assert!(
            copied.status.success() || said.contains("the database is in use"),
            "{said}"
        );
        copied.status.success().then_some(copied.stdout)
    };
    let told = eventually_every(SELDOM, PATIENCE, "the copy is made", copied).await;
    let told = String::from_utf8(told).unwrap();
    let silent = told.contains("silent for longer than 4.0s") && told.contains(" on elsewhere)");
    assert_eq!(silent, elsewhere, "{told}");

    let mut after = DaemonFixture::new(&db, settings(), &[FIRST]).await;
    let mut daemon = after.start();
    daemon.ready().await;
    after.run_ended(run).await;
    assert_eq!(after.output(run).await, serde_json::json!(1));
    daemon.stop().await;
    after.audited().await;
}
