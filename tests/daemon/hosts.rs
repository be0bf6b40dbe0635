//! Processes of two hosts, which do not receive each other's wakeups.

use std::os::unix::fs::PermissionsExt;

use crate::fixture::*;
use crate::mariadb::Mariadb;
use crate::on_servers;
use crate::support::Db;

/// Its branches go to the advancer and back to the worker again and again.
const TO_AND_FRO: &str = r#"
pipeline: ToAndFro
steps: { A: { command: [cat] }, B: { command: [cat] }, C: { command: [echo, "1"] } }
flow: [{ start: A }, { divide: [A, B] }, { combine: C }, { divide: [A, B] }, { combine: C }]
"#;

/// Keeps every process from polling while this test lasts.
fn looks_for_nothing(fixture: &mut DaemonFixture) {
    for name in [
        "DUCTWORK_JOB_WORKER__POLLING_TIMEOUT",
        "DUCTWORK_PIPELINE_ADVANCER__POLLING_TIMEOUT",
        "DUCTWORK_SUPERVISOR__POLLING_TIMEOUT",
    ] {
        fixture.variables.insert(name, "1h".to_owned());
    }
}

fn settings() -> Settings {
    Settings {
        // A beat each second.
        reaper_timeout: "6s",
        ..Settings::default()
    }
}

on_servers! {
    /// On PostgreSQL through notifications. MySQL has none, so each process polls often while the other's row
    /// exists.
    async fn hosts_hand_work_to_each_other(db: Db) {
        let mut fixture = DaemonFixture::new(&db, settings(), &[TO_AND_FRO]).await;
        looks_for_nothing(&mut fixture);
        let run = fixture.path("run");
        std::fs::create_dir(&run).unwrap();
        std::fs::set_permissions(&run, PermissionsExt::from_mode(0o700)).unwrap();
        let sockets = format!("XDG_RUNTIME_DIR={}", run.display());
        // In another namespace, like a container, and with its sockets elsewhere.
        let far = [
            "unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL",
            "env", &sockets, "DUCTWORK_ROLE=worker",
        ];
        let mut worker = fixture.start_as(&far, &["start"]);
        let mut advancer = fixture.start_as(&["env", "DUCTWORK_ROLE=advancer"], &["start"]);
        worker.says("registered").await;
        advancer.says("registered").await;
        for _ in 0..3 {
            let triggered = fixture.run(&[], &["trigger", "ToAndFro", "1", "--wait"]);
            assert!(triggered.status.success(), "{triggered:?}");
        }
        fixture.completed(PATIENCE).await;
        advancer.stop().await;
        let inside = worker.processes();
        let worker_itself = inside.iter().find(|process| process.parent == worker.pid());
        send(worker_itself.expect("a worker").pid, nix::sys::signal::Signal::SIGTERM);
        worker.ended(PATIENCE).await;
        worker.gone(PATIENCE).await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }
}

/// By the server's own count. With a beat every five seconds and a poll every second, as by default, that is less
/// than two statements a second for each process.
#[tokio::test]
async fn an_idle_daemon_asks_mariadb_two_things_for_each_beat_and_one_for_each_look() {
    use ductwork::store::{Location, Purpose, migrate};

    const BEATS: i64 = 10;
    let server = Mariadb::start();
    let location = Location::parse(&server.url).unwrap();
    let mut conn = location.connect(Purpose::Query).await.unwrap();
    migrate::migrate(&mut conn).await.unwrap();
    let mut fixture = DaemonFixture::at(&server.url, conn, settings(), &[TO_AND_FRO]).await;
    looks_for_nothing(&mut fixture);
    let mut daemon = fixture.start();
    daemon.ready().await;
    // By then each process has both of its connections, which take some statements to open.
    let began = beaten(&mut fixture, 5).await;
    let before = asked(&mut fixture).await;
    let _own = fixture.conn.take_statements();
    let ended = beaten(&mut fixture, 5 + BEATS).await;
    let after = asked(&mut fixture).await;
    let own = fixture.conn.take_statements() as i64;
    let asked = after - before - own;
    let beats = ended - began;
    eprintln!("{asked} statements for {beats} beats");
    // The tolerance: a statement that had begun at the first look, and the counts of each process, which are written
    // once a minute.
    assert!(
        asked <= 2 * beats + 3 * 8,
        "{asked} statements for {beats} beats"
    );
    assert!(
        asked >= beats,
        "the server did not count: {asked} for {beats} beats"
    );
    daemon.stop().await;
}

/// Waits until each process has beaten this often; returns the beats of all of them.
async fn beaten(fixture: &mut DaemonFixture, times: i64) -> i64 {
    loop {
        let rows = fixture.processes().await;
        if rows.len() == 3 && rows.iter().all(|row| row.beat_seq >= times) {
            return rows.iter().map(|row| row.beat_seq).sum();
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// The number of statements that the server has received so far, including this one.
async fn asked(fixture: &mut DaemonFixture) -> i64 {
    use ductwork::store::statement::Statement;
    static QUESTIONS: Statement = Statement::new(
        "TEST_QUESTIONS",
        "SELECT CAST(VARIABLE_VALUE AS SIGNED) AS n FROM information_schema.GLOBAL_STATUS
          WHERE VARIABLE_NAME = 'QUESTIONS'",
    );
    let row = fixture.conn.fetch_optional(&QUESTIONS, &[]).await;
    row.unwrap().expect("a row").get("n").unwrap()
}
