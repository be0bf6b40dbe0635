//! Faults in a command that changes something: the command can be repeated.

use std::process::{Command, Output, Stdio};

use ductwork::model::{Channel, RunId, RunStatus};
use ductwork::store::action::Actor;
use ductwork::store::statement::Statement;
use ductwork::store::{Dialect, migrate, pause, query};

use super::{Fault, armed, to_come};
use crate::fixture::*;
use crate::on_every_database;
use crate::support::Db;

const PIPELINES: [&str; 3] = [
    r#"
pipeline: Work
steps: { A: { command: [cat] } }
flow: [{ start: A }]
"#,
    r#"
pipeline: Ask
steps: { A: { command: [cat] }, B: { command: [cat] } }
flow: [{ start: A }, { dampen: "go on?" }, { chain: B }]
"#,
    r#"
pipeline: Fail
steps: { A: { command: [cat] }, B: { command: [sh, -c, "test -e mended && cat"] } }
flow: [{ start: A }, { chain: B }]
"#,
];

const VERBS: [&str; 8] = [
    "trigger", "cancel", "resume", "revive", "pause", "unpause", "prune", "migrate",
];

/// The faults of a verb.
fn of(verb: &'static str) -> impl Iterator<Item = Fault> {
    let points = ductwork::failpoint::POINTS.iter().copied();
    let points = points.filter(move |point| point.split('.').next() == Some(verb));
    points.flat_map(|point| {
        let actions: &[&str] = match point.ends_with(".end") {
            true => &["kill9", "acklost"],
            false => &["kill9", "error(unavailable)", "error(refused)", "droptx"],
        };
        actions.iter().map(move |action| (point, *action))
    })
}

/// Every fault that a test in this file makes.
pub fn all() -> impl Iterator<Item = Fault> {
    VERBS.into_iter().flat_map(of)
}

/// Runs a command, with a fault or without.
fn give(fixture: &DaemonFixture, words: &[&str], fault: Option<Fault>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ductworkd"));
    command
        .arg("-c")
        .arg(fixture.path("ductwork.yml"))
        .args(words);
    for (name, _) in std::env::vars() {
        if name.starts_with("DUCTWORK_") || name == "DATABASE_URL" {
            command.env_remove(name);
        }
    }
    command.envs(&fixture.variables);
    if let Some(fault) = fault {
        let _ = std::fs::remove_file(fixture.path("hits"));
        command.envs(armed(fixture, &[fault]));
    }
    let done = command.stdin(Stdio::null()).output().unwrap();
    if let Some(fault) = fault {
        assert_eq!(to_come(fixture, &[fault]), [], "{words:?}: {done:?}");
        // A deletion goes on with fewer runs after a transaction that was refused.
        let in_it = ["prune.deleted", "prune.written"].contains(&fault.0);
        let goes_on = in_it && fault.1 == "error(refused)";
        assert_eq!(done.status.success(), goes_on, "{fault:?}: {done:?}");
    }
    done
}

/// On PostgreSQL a trigger is one statement, so it has no middle.
fn is_there(fixture: &DaemonFixture, fault: &Fault) -> bool {
    fault.0 != "trigger.written" || fixture.conn.dialect() != Dialect::Postgres
}

async fn status(fixture: &mut DaemonFixture, run: RunId) -> RunStatus {
    let state = query::run_state(&mut fixture.conn, run).await.unwrap();
    state.unwrap().status
}

async fn count(fixture: &mut DaemonFixture, statement: &'static Statement) -> i64 {
    let rows = fixture.conn.fetch(statement, &[]).await.unwrap();
    rows[0].get("n").unwrap()
}

/// As many runs as `verb` has faults, in the status that the verb requires.
async fn runs(
    fixture: &mut DaemonFixture,
    verb: &'static str,
    pipeline: &str,
    wanted: RunStatus,
) -> Vec<(RunId, Fault)> {
    let mut runs = Vec::new();
    for fault in of(verb) {
        runs.push((fixture.trigger(pipeline, "1", 1).await[0], fault));
    }
    let mut daemon = fixture.start();
    for (run, _) in &runs {
        let conn = &mut fixture.conn;
        eventually(PATIENCE, "the run has come so far", async || {
            let state = query::run_state(conn, *run).await.unwrap().unwrap();
            (state.status == wanted).then_some(())
        })
        .await;
    }
    daemon.stop().await;
    runs
}

async fn settings(db: &Db) -> DaemonFixture {
    let settings = Settings {
        max_retry: 0,
        ..Settings::default()
    };
    DaemonFixture::new(db, settings, &PIPELINES).await
}

on_every_database! {
    async fn a_trigger_with_a_key_may_be_given_again(db: Db) {
        static RUNS: Statement = Statement::new("TEST_RUNS", "SELECT count(*) AS n FROM ductwork_runs");
        let mut fixture = settings(&db).await;
        let mut faults = 0;
        for fault in of("trigger").filter(|fault| is_there(&fixture, fault)).collect::<Vec<_>>() {
            faults += 1;
            let key = format!("{}-{}", fault.0, fault.1);
            let words = ["trigger", "Work", "1", "--key", &key];
            give(&fixture, &words, Some(fault));
            let again = give(&fixture, &words, None);
            assert!(again.status.success(), "{fault:?}: {again:?}");
            assert_eq!(count(&mut fixture, &RUNS).await, faults, "{fault:?}");
        }
        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    async fn a_cancellation_may_be_given_again(db: Db) {
        let mut fixture = settings(&db).await;
        for fault in of("cancel") {
            let run = fixture.trigger("Work", "1", 1).await[0];
            let words = ["cancel", &run.to_string()];
            give(&fixture, &words, Some(fault));
            let done = status(&mut fixture, run).await == RunStatus::Cancelled;
            assert_eq!(done, fault.0 == "cancel.end", "all or nothing: {fault:?}");
            assert_eq!(give(&fixture, &words, None).status.success(), !done, "{fault:?}");
            assert_eq!(status(&mut fixture, run).await, RunStatus::Cancelled);
        }
        fixture.audited().await;
    }

    async fn a_resumption_may_be_given_again(db: Db) {
        let mut fixture = settings(&db).await;
        for (run, fault) in runs(&mut fixture, "resume", "Ask", RunStatus::Dampened).await {
            let words = ["resume", &run.to_string()];
            give(&fixture, &words, Some(fault));
            let done = status(&mut fixture, run).await == RunStatus::InProgress;
            assert_eq!(done, fault.0 == "resume.end", "all or nothing: {fault:?}");
            assert_eq!(give(&fixture, &words, None).status.success(), !done, "{fault:?}");
        }
        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    async fn a_pause_and_its_end_may_be_given_again(db: Db) {
        let mut fixture = settings(&db).await;
        let ana = Actor::new("ana", Channel::Cli);
        for (verb, words) in [
            ("pause", &["pause", "Work", "--reason", "why"][..]),
            ("unpause", &["unpause", "Work"]),
        ] {
            for fault in of(verb) {
                let before = pause::of_pipeline(&mut fixture.conn, "Work").await.unwrap();
                match (verb, &before) {
                    ("pause", Some(_)) => drop(pause::unpause(&mut fixture.conn, "Work", &ana).await.unwrap()),
                    ("unpause", None) => drop(pause::pause(&mut fixture.conn, "Work", "x", &ana).await.unwrap()),
                    _ => {}
                }
                give(&fixture, words, Some(fault));
                let is_paused = pause::of_pipeline(&mut fixture.conn, "Work").await.unwrap().is_some();
                let done = is_paused == (verb == "pause");
                assert_eq!(done, fault.0.ends_with(".end"), "all or nothing: {fault:?}");
                assert!(give(&fixture, words, None).status.success(), "{fault:?}");
                let is_paused = pause::of_pipeline(&mut fixture.conn, "Work").await.unwrap().is_some();
                assert_eq!(is_paused, verb == "pause", "{fault:?}");
            }
        }
        fixture.audited().await;
    }

    async fn a_revival_may_be_given_again_and_makes_one_run(db: Db) {
        static REVIVED: Statement = Statement::new(
            "TEST_REVIVED",
            "SELECT count(*) AS n FROM ductwork_runs WHERE revived_from IS NOT NULL",
        );
        let mut fixture = settings(&db).await;
        let halted = runs(&mut fixture, "revive", "Fail", RunStatus::Halted).await;
        std::fs::write(fixture.path("mended"), "").unwrap();
        let mut revived = 0;
        for (run, fault) in halted {
            let words = ["revive", &run.to_string()];
            give(&fixture, &words, Some(fault));
            let done = count(&mut fixture, &REVIVED).await > revived;
            assert_eq!(done, fault.0 == "revive.end", "all or nothing: {fault:?}");
            assert_eq!(give(&fixture, &words, None).status.success(), !done, "{fault:?}");
            revived += 1;
            assert_eq!(count(&mut fixture, &REVIVED).await, revived, "{fault:?}");
        }
        let mut daemon = fixture.start();
        let ended = fixture.ended(PATIENCE).await;
        let completed = ended.iter().filter(|status| **status == RunStatus::Completed);
        assert_eq!(completed.count() as i64, revived);
        daemon.stop().await;
        fixture.audited().await;
    }

    async fn a_deletion_of_old_runs_may_be_given_again(db: Db) {
        static RUNS: Statement = Statement::new("TEST_RUNS", "SELECT count(*) AS n FROM ductwork_runs");
        let mut fixture = settings(&db).await;
        for fault in of("prune") {
            fixture.trigger("Work", "1", 3).await;
            let mut daemon = fixture.start();
            fixture.completed(PATIENCE).await;
            daemon.stop().await;
            let words = ["prune", "--older-than", "0s"];
            give(&fixture, &words, Some(fault));
            // With batches of two runs.
            let left = match fault {
                ("prune.deleted" | "prune.written" | "prune.between", "error(refused)") => 0,
                ("prune.end" | "prune.between", _) => 1,
                _ => 3,
            };
            assert_eq!(count(&mut fixture, &RUNS).await, left, "a batch or nothing: {fault:?}");
            assert!(give(&fixture, &words, None).status.success(), "{fault:?}");
            assert_eq!(count(&mut fixture, &RUNS).await, 0, "{fault:?}");
        }
        fixture.audited().await;
    }

    async fn a_migration_may_be_given_again(db: Db) {
        let mut fixture = settings(&db).await;
        for fault in of("migrate") {
            let fresh = match fixture.conn.dialect() {
                Dialect::Sqlite => Db::sqlite(),
                Dialect::Postgres => Db::postgres().await,
                Dialect::Mysql => Db::mysql().await,
            };
            fixture.variables.insert("DUCTWORK_DATABASE_URL", fresh.url.clone());
            give(&fixture, &["migrate"], Some(fault));
            let mut conn = fresh.connect().await;
            let applied = migrate::applied(&mut conn).await.unwrap();
            assert_eq!(!applied.is_empty(), fault.0 == "migrate.end", "all or nothing: {fault:?}");
            let again = give(&fixture, &["migrate"], None);
            assert!(again.status.success(), "{fault:?}: {again:?}");
            migrate::check(&mut conn).await.unwrap();
            conn.close().await;
            fresh.remove().await;
        }
    }
}
