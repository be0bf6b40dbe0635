//! SQLite alone: its write-ahead log, and places where its file must not be.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Dialect, Location, Purpose};

use crate::fixture::*;
use crate::support::{self, Db};

const ECHO: &str = "
pipeline: Echo
steps: { Echo: { command: [cat] } }
flow: [{ start: Echo }]
";

const MIB: u64 = 1 << 20;

/// Triggers runs that each carry 128 KiB.
async fn load(fixture: &mut DaemonFixture, runs: usize) {
    let input = format!("\"{}\"", "x".repeat(128 << 10));
    fixture.trigger("Echo", &input, runs).await;
    fixture.completed(PATIENCE).await;
}

/// The statements that begin a snapshot, which lasts until it is rolled back.
async fn read(conn: &mut Conn) -> i64 {
    static RUNS: Statement = Statement::new("TEST_RUNS", "SELECT count(*) AS n FROM ductwork_runs");
    assert_eq!(conn.dialect(), Dialect::Sqlite);
    conn.script("BEGIN", "BEGIN").await.unwrap();
    let row = conn.fetch_optional(&RUNS, &[]).await.unwrap().unwrap();
    row.get("n").unwrap()
}

/// While a reader holds a snapshot, nothing behind it leaves the log; afterwards the disk space
/// is returned (D2).
async fn a_reader_is_held(db: Db) {
    let mut fixture = DaemonFixture::new(&db, Settings::default(), &[ECHO]).await;
    let file = db.url.strip_prefix("sqlite://").unwrap();
    let wal = PathBuf::from(format!("{file}-wal"));
    let size = || std::fs::metadata(&wal).unwrap().len();
    let mut daemon = fixture.start();
    daemon.ready().await;
    let mut reader = db.connect().await;
    assert_eq!(read(&mut reader).await, 0);
    load(&mut fixture, 100).await;
    let first = size();
    load(&mut fixture, 100).await;
    let held = size();
    assert!(
        held > first + 10 * MIB && first > 10 * MIB,
        "nobody kept it from being checkpointed: {first}, {held}"
    );
    reader.script("ROLLBACK", "ROLLBACK").await.unwrap();
    eventually(PATIENCE, "the log is small again", async || {
        fixture.trigger("Echo", "1", 1).await;
        fixture.completed(PATIENCE).await;
        (size() <= 8 * MIB).then_some(())
    })
    .await;
    let before = read(&mut reader).await;
    assert!(before > 200, "{before}");
    reader.script("ROLLBACK", "ROLLBACK").await.unwrap();
    daemon.stop().await;
    let executions = fixture.succeeded_once_each().await;
    assert!(executions.iter().all(|e| e.attempt == 1));
    fixture.audited().await;
}

#[tokio::test]
async fn a_long_reader_grows_the_log_for_as_long_as_it_reads_and_loses_nothing() {
    support::with(Db::sqlite(), a_reader_is_held).await;
}

/// Each step writes down its key, and the first one waits until it may end.
const KEYS: &str = r#"
pipeline: Keys
on_complete: Told
steps:
  Gate: { command: [sh, step.sh] }
  Some: { command: [sh, step.sh] }
  Each: { command: [sh, step.sh] }
  Few: { command: [sh, step.sh] }
  Left: { command: [sh, step.sh] }
  Right: { command: [sh, step.sh] }
  Both: { command: [sh, step.sh] }
  All: { command: [sh, step.sh] }
  Told: { command: [sh, step.sh] }
flow:
  - start: Gate
  - expand: Some
  - expand: Each
  - divide: [Left, Right]
  - combine: Both
  - collapse: Few
  - collapse: All
"#;

const KEPT: &str = r#"
echo "$DUCTWORK_STEP $DUCTWORK_IDEMPOTENCY_KEY" >> keys
[ "$DUCTWORK_STEP" != Gate ] || until [ -e go ]; do sleep 0.1; done
cat
"#;

/// A service that remembers the keys of what it did refuses what is done again.
#[tokio::test]
async fn after_a_restore_the_steps_that_are_made_once_more_have_the_keys_that_they_had() {
    support::with(Db::sqlite(), |db| async move {
        let settings = || Settings {
            reaper_timeout: "2s",
            ..Settings::default()
        };
        let mut fixture = DaemonFixture::new(&db, settings(), &[KEYS]).await;
        std::fs::write(fixture.path("step.sh"), KEPT).unwrap();
        let mut daemon = fixture.start();
        fixture.trigger("Keys", "[[1, 1], [2]]", 2).await;
        eventually(PATIENCE, "both runs have begun", async || {
            (fixture.lines("keys").len() == 2).then_some(())
        })
        .await;
        let backup = fixture.path("backup.db");
        let into = format!("VACUUM INTO '{}'", backup.display());
        fixture.conn.script("BACKUP", into.leak()).await.unwrap();
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.completed(PATIENCE).await;
        let told = |lines: &[String]| lines.iter().filter(|line| line.starts_with("Told")).count();
        eventually(PATIENCE, "the hooks have run", async || {
            (told(&fixture.lines("keys")) == 2).then_some(())
        })
        .await;
        daemon.stop().await;
        let first = fixture.lines("keys");

        let url = format!("sqlite://{}", backup.display());
        let conn = Location::parse(&url)
            .unwrap()
            .connect(Purpose::Engine)
            .await
            .unwrap();
        let mut restored = DaemonFixture::at(&url, conn, settings(), &[KEYS]).await;
        std::fs::write(restored.path("step.sh"), KEPT).unwrap();
        std::fs::write(restored.path("go"), "").unwrap();
        let mut daemon = restored.start();
        restored.completed(PATIENCE).await;
        eventually(PATIENCE, "the hooks have run", async || {
            (told(&restored.lines("keys")) == 2).then_some(())
        })
        .await;
        daemon.stop().await;
        let again = restored.lines("keys");
        let sorted = |lines: &[String]| BTreeSet::from_iter(lines.to_vec());
        assert_eq!(sorted(&first), sorted(&again));
        // Each run: the gate, Some and Few twice, three elements with four steps each, All, and the hook.
        assert_eq!(
            sorted(&first).len(),
            2 * (1 + 2 * 2 + 3 * 4 + 1 + 1),
            "{first:#?}"
        );
        restored.audited().await;
    })
    .await;
}

/// A library that reports another type for every file system.
fn disguise(to: &Path) -> String {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/statfs.c");
    let library = to.join("statfs.so");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]);
    let made = cc.arg(&library).arg(source).status().expect("a C compiler");
    assert!(made.success(), "{made}");
    format!("LD_PRELOAD={}", library.display())
}

async fn it_lies_on_a_network(db: Db) {
    let mut fixture = DaemonFixture::new(&db, Settings::default(), &[ECHO]).await;
    let preload = disguise(&fixture.path(""));
    let under = |magic: &str, verb: &[&str]| {
        fixture.run(&["env", &preload, &format!("TEST_STATFS={magic}")], verb)
    };
    let local = under("ef53", &["trigger", "Echo", "1"]);
    assert!(local.status.success(), "{local:?}");
    for (magic, name) in [
        ("6969", "NFS"),
        ("ff534d42", "CIFS"),
        ("fe534d42", "SMB"),
        ("517b", "SMB"),
    ] {
        let verbs: [&[&str]; 3] = [&["start"], &["trigger", "Echo", "1"], &["audit"]];
        for verb in verbs {
            let refused = under(magic, verb);
            let said = String::from_utf8_lossy(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{verb:?}: {said}");
            let expected = format!("SQLite's locks do not work on {name}; use a local disk");
            let told = said.lines().filter(|line| line.contains(&expected));
            assert_eq!(told.count(), 1, "{verb:?}: {said}");
        }
    }
    // The refused verbs have not touched the database.
    let mut daemon = fixture.start();
    fixture.completed(PATIENCE).await;
    daemon.stop().await;
    assert_eq!(fixture.executions().await.len(), 1);
    fixture.audited().await;
}

#[tokio::test]
async fn sqlite_on_a_network_file_system_is_refused_by_name() {
    support::with(Db::sqlite(), it_lies_on_a_network).await;
}
