//! SQLite's file is taken away under a daemon that uses it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::fixture::*;
use crate::support::{self, Db};

const WORK: &str = r#"
pipeline: Work
steps:
  A: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; cat'] }
  B: { command: [cat] }
flow: [{ start: A }, { chain: B }]
"#;

/// The database file, the log beside it, and another path for the file.
fn files(db: &Db) -> (PathBuf, PathBuf, PathBuf) {
    let path = db.location.file().unwrap().to_owned();
    let beside = |name: &str| PathBuf::from(format!("{}{name}", path.display()));
    (path.clone(), beside("-wal"), beside(".away"))
}

fn said(fixture: &DaemonFixture, verb: &[&str]) -> (Option<i32>, String) {
    let done = fixture.run(&[], verb);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    (done.status.code(), said)
}

/// The error for which the daemon stops. A child may tell of its own stop before.
async fn stops_for(daemon: &Daemon) -> String {
    eventually(PATIENCE, "the reason of the stop is told", async || {
        let told = daemon.logged("stopping").into_iter();
        let mut errors = told.filter_map(|line| Some(line["error"].as_str()?.to_owned()));
        errors.next()
    })
    .await
}

/// The daemon ends with the status of one that needs a person's help, and says what to do.
async fn ends_misplaced(daemon: &mut Daemon, what: &str) {
    let error = stops_for(daemon).await;
    let (status, _) = daemon.ended(PATIENCE).await;
    assert_eq!(status.code(), Some(2), "{status}");
    for part in [what, "put that very file back", "-wal"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

async fn goes_on(fixture: &mut DaemonFixture) {
    let mut daemon = fixture.start();
    daemon.ready().await;
    fixture.completed(PATIENCE).await;
    daemon.stop().await;
    let executions = fixture.succeeded_once_each().await;
    let succeeded = executions.iter().filter(|it| it.result() == "success");
    assert_eq!(succeeded.count(), 2 * 5);
}

#[tokio::test]
async fn a_file_that_is_moved_away_ends_the_daemon_and_is_not_made_anew() {
    support::with(Db::sqlite(), |db| async move {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
        let (path, log, away) = files(&db);
        fixture.trigger("Work", "1", 5).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.pids("pids", 1).await;
        std::fs::rename(&path, &away).unwrap();
        // The daemon drains: these commits go along with the file, into the log that stays.
        std::fs::write(fixture.path("go"), "").unwrap();
        ends_misplaced(&mut daemon, "moved or deleted").await;
        assert!(log.metadata().unwrap().len() > 0);

        for verb in [
            &["start"][..],
            &["runs"],
            &["trigger", "Work"],
            &["migrate"],
        ] {
            let (code, said) = said(&fixture, verb);
            assert!(
                code == Some(2) && said.contains("put that very file back"),
                "{verb:?}: {said}"
            );
            assert!(!path.exists(), "{verb:?}");
        }
        std::fs::rename(&away, &path).unwrap();
        goes_on(&mut fixture).await;
    })
    .await;
}

/// No step goes on when its result would be stored nowhere.
#[tokio::test]
async fn a_file_that_is_deleted_ends_the_daemon_at_once() {
    support::with(Db::sqlite(), |db| async move {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
        let (path, _, _) = files(&db);
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Work", "1", 5).await;
        fixture.pids("pids", 1).await;
        std::fs::remove_file(&path).unwrap();
        let error = stops_for(&daemon).await;
        assert!(error.contains("was deleted while it was in use"), "{error}");
        assert!(error.contains("-wal away first"), "{error}");
        // The steps wait for a file that nobody creates.
        let (status, took) = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(2), "{status}");
        assert!(took < Duration::from_secs(10), "{took:?}");
        assert!(daemon.processes().is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_file_that_is_replaced_ends_the_daemon() {
    support::with(Db::sqlite(), |db| async move {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
        let (path, _, away) = files(&db);
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Work", "1", 5).await;
        fixture.pids("pids", 1).await;
        // The path exists at all times.
        std::fs::hard_link(&path, &away).unwrap();
        replace(&path);
        std::fs::write(fixture.path("go"), "").unwrap();
        ends_misplaced(&mut daemon, "replaced").await;
        std::fs::rename(&away, &path).unwrap();
        goes_on(&mut fixture).await;
    })
    .await;
}

/// As where the file alone is mounted into the daemon's container.
#[tokio::test]
async fn a_daemon_and_a_command_use_the_database_under_one_name() {
    support::with(Db::sqlite(), |db| async move {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
        let (path, _, other) = files(&db);
        let mut daemon = fixture.start();
        daemon.ready().await;
        std::fs::hard_link(&path, &other).unwrap();
        let url = format!("DUCTWORK_DATABASE_URL=sqlite://{}", other.display());
        let command = fixture.run(&["env", &url], &["trigger", "Work", "1"]);
        let said = String::from_utf8_lossy(&command.stderr);
        assert_eq!(command.status.code(), Some(2), "{said}");
        assert!(said.contains("is in use under another name"), "{said}");
        assert!(fixture.executions().await.is_empty());
        let command = fixture.run(&[], &["trigger", "Work", "1"]);
        assert!(command.status.success(), "{command:?}");
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.audited().await;
    })
    .await;
}

/// The target of the link is the database, whether or not it is there already.
#[tokio::test]
async fn a_database_is_made_where_a_link_leads() {
    support::with(Db::sqlite(), |db| async move {
        let fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
        let (link, target) = (fixture.path("link.db"), fixture.path("target.db"));
        std::os::unix::fs::symlink("target.db", &link).unwrap();
        let url = format!("DUCTWORK_DATABASE_URL=sqlite://{}", link.display());
        let command = fixture.run(&["env", &url], &["migrate"]);
        assert!(command.status.success(), "{command:?}");
        assert!(target.metadata().unwrap().len() > 0);
    })
    .await;
}

/// Closes every connection but the daemon's until the returned value is dropped: a connection of
/// the test's own would keep the deleted file alive.
async fn left_alone(fixture: &mut DaemonFixture) -> Db {
    let elsewhere = Db::sqlite();
    let before = std::mem::replace(&mut fixture.conn, elsewhere.connect().await);
    before.close().await;
    elsewhere
}

/// The file beside the database is deleted while steps run. Where these may finish, they wait for
/// `go`, which exists by then.
fn deleted(suffix: &'static str, finishes: bool) {
    let body = support::with(Db::sqlite(), move |db| async move {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
        let (path, log, _) = files(&db);
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Work", "1", 5).await;
        fixture.pids("pids", 1).await;
        let elsewhere = left_alone(&mut fixture).await;
        assert!(log.metadata().unwrap().len() > 0, "nothing is in it");
        std::fs::remove_file(format!("{}{suffix}", path.display())).unwrap();
        let error = stops_for(&daemon).await;
        let expected = format!("the {suffix} file beside the database was deleted or moved");
        assert!(error.contains(&expected), "{error}");
        if finishes {
            // Steps that end before this are not waited for.
            daemon.says("stopping: waiting up to ").await;
            std::fs::write(fixture.path("go"), "").unwrap();
        }
        let (status, _) = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(2), "{status}");
        let drained = daemon.logged("stopping: waiting up to ");
        assert_eq!(!drained.is_empty(), finishes, "{drained:#?}");
        fixture.conn = db.connect().await;
        drop(elsewhere);
        std::fs::write(fixture.path("go"), "").unwrap();
        goes_on(&mut fixture).await;
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(body);
}

#[test]
fn a_log_that_is_deleted_ends_the_daemon_which_saves_what_was_in_it() {
    deleted("-wal", true);
}

/// The daemon does not wait for its steps.
#[test]
fn an_index_that_is_deleted_ends_the_daemon_at_once() {
    deleted("-shm", false);
}

/// Replaces the file by another database.
fn replace(path: &Path) {
    let other = path.with_extension("other");
    let made = rusqlite::Connection::open(&other).unwrap();
    made.execute_batch("CREATE TABLE other (n)").unwrap();
    drop(made);
    std::fs::rename(&other, path).unwrap();
}

/// The process has no reason to look at the file, and a signal that makes it quiet does not keep it
/// from looking.
#[tokio::test]
async fn a_quiet_role_of_its_own_ends_as_well() {
    support::with(Db::sqlite(), |db| async move {
        let fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
        let (path, _, away) = files(&db);
        let mut advancer = fixture.start_as(&["env", "DUCTWORK_ROLE=advancer"], &["start"]);
        advancer.says("registered").await;
        advancer.send(Signal::SIGTSTP);
        advancer.says("quiet").await;
        std::fs::rename(&path, &away).unwrap();
        ends_misplaced(&mut advancer, "moved or deleted").await;
        std::fs::rename(&away, &path).unwrap();
    })
    .await;
}
