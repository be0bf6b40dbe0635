//! A foreign session on a MariaDB server has locked what a daemon needs: `health`, `why` and the log say so, and name
//! the session where the server lets them.

use ductwork::store::statement::Statement;
use ductwork::store::{Location, Purpose};

use crate::fixture::*;
use crate::foreign::Foreign;
use crate::mariadb::Mariadb;

const ENDS: &str = r#"
pipeline: Ends
steps:
  A: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; echo 1; echo >> ends'] }
flow: [{ start: A }]
"#;

/// Its session number, in the form that KILL takes.
async fn number(foreign: &mut Foreign) -> i64 {
    static NUMBER: Statement = Statement::new("TEST_NUMBER", "SELECT CONNECTION_ID() AS id");
    let row = foreign.0.fetch_optional(&NUMBER, &[]).await.unwrap();
    row.unwrap().get("id").unwrap()
}

async fn run(foreign: &mut Foreign, sql: &'static str) {
    let done = foreign.0.script("FOREIGN", sql).await;
    done.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Waits until a session of the server waits for a lock on a table.
async fn waits_for_the_table(foreign: &mut Foreign, session: i64) {
    static STATE: Statement = Statement::new(
        "TEST_STATE",
        "SELECT id FROM information_schema.processlist
         WHERE id = :session AND state = 'Waiting for table metadata lock'",
    );
    eventually(PATIENCE, "the change waits", async || {
        let args = [("session", session.into())];
        let row = foreign.0.fetch_optional(&STATE, &args).await;
        row.unwrap().map(drop)
    })
    .await;
}

/// An action of a foreign session on a server, and the reports to logins that may see other sessions and to logins
/// that may not.
struct Case {
    locks: &'static [&'static str],
    /// Another statement, which waits for the locks.
    changes: Option<&'static str>,
    says: &'static [&'static str],
    /// The report without the right.
    lacks: &'static str,
    /// A line of the log, and a part of its error.
    logged: [&'static str; 2],
}

const WAITED: [&str; 2] = [
    "the database cannot do this at the moment",
    "Lock wait timeout",
];

const PROCESS: &str = "GRANT PROCESS ON *.* lets it";
const LIST: &str = "INSTALL SONAME 'metadata_lock_info' lets it";

const CASES: [Case; 5] = [
    Case {
        locks: &[
            "START TRANSACTION",
            "SELECT 1 FROM ductwork_executions FOR UPDATE",
        ],
        changes: None,
        // If no session waits at that moment, this one is only a probable one.
        says: &[
            " are locked by the session",
            " are probably locked by the session",
        ],
        lacks: PROCESS,
        // The worker is kept waiting once, and sets the result aside.
        logged: [
            "rows are locked by another session",
            "results wait for rows",
        ],
    },
    Case {
        locks: &[
            "START TRANSACTION",
            "SELECT 1 FROM ductwork_processes FOR UPDATE",
        ],
        changes: None,
        says: &[
            " are locked by the session",
            " are probably locked by the session",
        ],
        lacks: PROCESS,
        logged: WAITED,
    },
    Case {
        locks: &["LOCK TABLES ductwork_processes WRITE"],
        changes: None,
        says: &["the table ductwork_processes is locked by the session"],
        lacks: LIST,
        logged: WAITED,
    },
    Case {
        locks: &["FLUSH TABLES WITH READ LOCK"],
        changes: None,
        says: &["all tables are locked by the session"],
        lacks: LIST,
        logged: WAITED,
    },
    Case {
        locks: &["START TRANSACTION", "SELECT 1 FROM ductwork_executions"],
        changes: Some("ALTER TABLE ductwork_executions COMMENT = 'of somebody'"),
        says: &["the table ductwork_executions is locked by the session"],
        lacks: LIST,
        logged: WAITED,
    },
];

async fn is_told(case: &Case) {
    let server = Mariadb::start();
    let url = server.ordinary();
    let location = Location::parse(&url).unwrap();
    let mut conn = location.connect(Purpose::Engine).await.unwrap();
    ductwork::store::migrate::migrate(&mut conn).await.unwrap();
    let settings = Settings {
        reaper_timeout: "6s",
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::at(&url, conn, settings, &[ENDS]).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    let run_id = fixture.trigger("Ends", "1", 1).await[0].to_string();
    fixture.pids("pids", 1).await;

    let mut foreign = Foreign::on(&server.url).await;
    for sql in case.locks {
        run(&mut foreign, sql).await;
    }
    let mut changes = Foreign::on(&server.url).await;
    // About as long as the server's default setting.
    run(&mut changes, "SET SESSION lock_wait_timeout = 3600").await;
    let named = match case.changes {
        Some(_) => number(&mut changes).await,
        None => number(&mut foreign).await,
    };
    let changing = case.changes.map(|sql| {
        tokio::task::spawn_local(async move {
            run(&mut changes, sql).await;
        })
    });
    if changing.is_some() {
        waits_for_the_table(&mut foreign, named).await;
    }
    // While all tables are locked, no privilege can be granted, so the lock is released in between, and the run has to
    // last longer than that.
    let all = case.locks[0].starts_with("FLUSH");
    let go = async || {
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.said("ends", 1).await;
    };
    if !all {
        go().await;
    }

    let asked: [&[&str]; 2] = [&["health"], &["why", &run_id]];
    let ask = |verb: &[&str]| {
        let done = fixture.run(&[], verb);
        String::from_utf8([done.stdout, done.stderr].concat()).unwrap()
    };
    for verb in asked {
        let said = eventually_every(
            SELDOM,
            PATIENCE,
            "it is told that somebody has a lock",
            async || {
                tokio::task::yield_now().await;
                let said = ask(verb);
                said.contains(case.lacks).then_some(said)
            },
        )
        .await;
        assert!(!said.contains("is alive"), "{verb:?}: {said}");
    }
    if all {
        run(&mut foreign, "UNLOCK TABLES").await;
    }
    server.sql("GRANT PROCESS ON *.* TO duct; INSTALL SONAME 'metadata_lock_info'");
    if all {
        run(&mut foreign, case.locks[0]).await;
        go().await;
    }
    for verb in asked {
        let said = eventually_every(SELDOM, PATIENCE, "the session is named", async || {
            tokio::task::yield_now().await;
            let said = ask(verb);
            let is_named = |says: &&str| said.contains(&format!("{says} {named} ("));
            case.says.iter().any(is_named).then_some(said)
        })
        .await;
        assert!(!said.contains("is alive"), "{verb:?}: {said}");
    }
    let [line, error] = case.logged;
    let told = daemon.says(line).await;
    let told_error = told[0]["error"].as_str().unwrap();
    assert!(told_error.contains(error), "{told:#?}");
    for said in [
        "lost again and again",
        "waiting for the database",
        "is alive",
    ] {
        assert!(daemon.logged(said).is_empty(), "{:#?}", daemon.logged(said));
    }
    // However many sweeps it kept out, that is logged at once, and again after minutes.
    let kept_out = daemon.logged("another session was in the way; this");
    assert!(kept_out.len() <= 2, "{kept_out:#?}");
    assert!(case.changes.is_none() || !kept_out.is_empty());

    run(&mut foreign, "COMMIT").await;
    run(&mut foreign, "UNLOCK TABLES").await;
    if let Some(changing) = changing {
        changing.await.unwrap();
    }
    fixture.completed(PATIENCE).await;
    let healthy = async || {
        tokio::task::yield_now().await;
        fixture.run(&[], &["health"]).status.success().then_some(())
    };
    eventually_every(SELDOM, PATIENCE, "all is well", healthy).await;
    daemon.stop().await;
    fixture.succeeded_once_each().await;
}

async fn alone(case: &'static Case) {
    tokio::task::LocalSet::new().run_until(is_told(case)).await;
}

#[tokio::test]
async fn rows_of_executions_that_somebody_has_locked_are_told_with_the_session() {
    alone(&CASES[0]).await;
}

#[tokio::test]
async fn rows_of_processes_that_somebody_has_locked_are_told_with_the_session() {
    alone(&CASES[1]).await;
}

#[tokio::test]
async fn a_table_that_somebody_has_locked_is_told_with_the_session() {
    alone(&CASES[2]).await;
}

#[tokio::test]
async fn a_global_read_lock_is_told_with_the_session() {
    alone(&CASES[3]).await;
}

#[tokio::test]
async fn a_change_of_the_schema_that_waits_is_told_with_the_session() {
    alone(&CASES[4]).await;
}
