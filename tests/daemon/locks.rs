//! A foreign session has locked rows or tables that a process uses, for longer than a lease: that
//! is no sign of death.

use std::time::Duration;

use ductwork::model::{RunId, RunStatus};
use ductwork::store::process::ProcessRow;
use ductwork::store::statement::Statement;
use ductwork::store::{Dialect, query};
use nix::sys::signal::Signal;
use serde_json::Value;
use sqlx::Connection;

use crate::fixture::*;
use crate::foreign::Foreign;
use crate::on_servers;
use crate::support::{self, Db};

const LONG: &str = r#"
pipeline: Long
steps:
  A: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; echo "\"done\""; echo >> ends'] }
flow: [{ start: A }]
"#;

const LEASE: Duration = Duration::from_secs(2);

/// How often each process has beaten.
fn beats(rows: &[ProcessRow]) -> Vec<(ductwork::model::ProcessId, i64)> {
    rows.iter().map(|row| (row.id, row.beat_seq)).collect()
}

/// The objects that a foreign session has locked.
enum Locked {
    Rows,
    Tables,
}

async fn nobody_is_taken_for_dead_while_this_is_locked(db: Db, what: Locked) {
    let settings = Settings {
        reaper_timeout: "2s",
        max_retry: 0,
        max_crash: 1,
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::new(&db, settings, &[LONG]).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    fixture.trigger("Long", "1", 2).await;
    let steps = fixture.pids("pids", 2).await;
    let before = beats(&fixture.processes().await);
    assert_eq!(before.len(), 3);

    let mut foreign = Foreign::on(&db.url).await;
    match what {
        Locked::Rows => foreign.lock_rows("ductwork_executions").await,
        Locked::Tables => {
            let tables = ["ductwork_executions", "ductwork_advancements"];
            foreign.lock_tables(&tables).await;
        }
    }
    let locked = std::time::Instant::now();
    // Twice: while the steps run, and while the worker tries to commit their results.
    for ended in [false, true] {
        if ended {
            std::fs::write(fixture.path("go"), "").unwrap();
            fixture.said("ends", 2).await;
        }
        let since = beats(&fixture.processes().await);
        eventually(PATIENCE, "two leases have passed by beats", async || {
            let now = beats(&fixture.processes().await);
            let known: Vec<_> = now.iter().map(|(id, _)| id).collect();
            let all: Vec<_> = before.iter().map(|(id, _)| id).collect();
            assert_eq!(known, all, "{:#?}", daemon.log());
            let mut both = now.iter().zip(&since);
            both.all(|((_, now), (_, then))| *now >= then + 12)
                .then_some(())
        })
        .await;
        if !ended {
            assert!(steps.iter().all(|pid| lives(*pid)), "a step was ended");
        }
    }
    assert!(locked.elapsed() > LEASE * 2, "it was not locked for long");
    foreign.release().await;

    fixture.completed(PATIENCE).await;
    for said in [
        "was declared dead",
        "recovered what",
        "killing a child",
        "not ours any more",
    ] {
        assert!(daemon.logged(said).is_empty(), "{:#?}", daemon.logged(said));
    }
    daemon.stop().await;
    let executions = fixture.succeeded_once_each().await;
    assert_eq!(executions.len(), 2, "{executions:#?}");
    fixture.audited().await;
}

/// No beat can be written to a locked row, so silence is no sign.
async fn nobody_is_judged_by_a_row_that_is_locked(db: Db) {
    let settings = Settings {
        reaper_timeout: "2s",
        max_retry: 0,
        max_crash: 1,
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::new(&db, settings, &[LONG]).await;
    let mut daemons = [fixture.start(), fixture.start()];
    for daemon in &daemons {
        daemon.ready().await;
    }
    fixture.trigger("Long", "1", 2).await;
    let steps = fixture.pids("pids", 2).await;
    let before: Vec<_> = fixture.processes().await.iter().map(|row| row.id).collect();
    assert_eq!(before.len(), 6);
    let supervisors = async |fixture: &mut DaemonFixture| {
        let rows = fixture.processes().await.into_iter();
        let rows = rows.filter(|row| row.role == ductwork::model::Role::Supervisor);
        let beats: Vec<i64> = rows.map(|row| row.beat_seq).collect();
        assert_eq!(beats.len(), 2);
        beats
    };

    let mut foreign = Foreign::on(&db.url).await;
    foreign
        .lock_rows("ductwork_processes WHERE role <> 'supervisor'")
        .await;
    let since = supervisors(&mut fixture).await;
    eventually(PATIENCE, "two leases have passed by beats", async || {
        let now = supervisors(&mut fixture).await;
        let mut both = now.iter().zip(&since);
        both.all(|(now, then)| *now >= then + 12).then_some(())
    })
    .await;
    eventually(PATIENCE, "nobody else has beaten for as long", async || {
        let rows = fixture.processes().await;
        let old = rows.iter().filter(|row| row.age > LEASE * 2).count();
        (old == 4).then_some(())
    })
    .await;
    // A node of a cluster that does not see the lock sees this.
    static LEASED: Statement = Statement::new(
        "TEST_LEASED",
        "SELECT id FROM ductwork_executions WHERE completed_at IS NULL AND lease_until > {now}",
    );
    let conn = &mut fixture.conn;
    eventually(PATIENCE, "the steps are under a lease", async || {
        let leased = conn.fetch(&LEASED, &[]).await.unwrap();
        (leased.len() == 2).then_some(())
    })
    .await;
    foreign.release().await;

    eventually(PATIENCE, "everybody beats again", async || {
        let rows = fixture.processes().await;
        rows.iter().all(|row| row.age < LEASE / 2).then_some(())
    })
    .await;
    let after: Vec<_> = fixture.processes().await.iter().map(|row| row.id).collect();
    assert_eq!(before, after);
    assert!(steps.iter().all(|pid| lives(*pid)), "a step was ended");
    std::fs::write(fixture.path("go"), "").unwrap();
    fixture.completed(PATIENCE).await;
    for daemon in &mut daemons {
        daemon.stop().await;
    }
    let executions = fixture.succeeded_once_each().await;
    assert_eq!(executions.len(), 2, "{executions:#?}");
    fixture.audited().await;
}

/// A table lock that blocks writers, and one that also blocks readers.
async fn health_names_the_table_and_the_session(db: Db) {
    let fixture = DaemonFixture::new(&db, Settings::default(), &[LONG]).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    let health = |args: &[&str]| {
        let done = fixture.run(&[], &[&["health"], args].concat());
        let said = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
        (done.status.code(), said)
    };
    assert_eq!(health(&[]).0, Some(0), "{}", health(&[]).1);
    for (table, lock, cannot, here) in [
        (
            "ductwork_executions",
            "BEGIN; LOCK TABLE ductwork_executions IN EXCLUSIVE MODE",
            "so that nobody can write it",
            Some(0),
        ),
        (
            "ductwork_processes",
            "BEGIN; LOCK TABLE ductwork_processes IN ACCESS EXCLUSIVE MODE",
            "so that nobody can read or write it",
            Some(1),
        ),
    ] {
        let mut foreign = sqlx::PgConnection::connect(&db.url).await.unwrap();
        sqlx::raw_sql("SET application_name = 'foreign'")
            .execute(&mut foreign)
            .await
            .unwrap();
        sqlx::raw_sql(lock).execute(&mut foreign).await.unwrap();
        let said = eventually(PATIENCE, "health tells of the lock", async || {
            // `health` would wait for the lock until it counts as a lasting one.
            tokio::time::sleep(Duration::from_secs(6)).await;
            let (code, said) = health(&[]);
            (code == Some(1) && said.contains(table)).then_some(said)
        })
        .await;
        let named = format!("unhealthy: the table {table} is locked by the session with pid ");
        assert!(said.contains(&named) && said.contains(cannot), "{said}");
        assert!(
            said.contains("(foreign, idle in transaction, for "),
            "{said}"
        );
        assert!(said.contains(": SELECT pg_terminate_backend("), "{said}");
        let (_, json) = health(&["--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(json["obstacle"].as_str().unwrap().contains(table), "{json}");
        // For one host alone the lock matters only when its heartbeats cannot be read.
        let (code, said) = health(&["--here"]);
        assert_eq!(code, here, "{said}");
        sqlx::raw_sql("COMMIT").execute(&mut foreign).await.unwrap();
        foreign.close().await.unwrap();
    }
    eventually_every(SELDOM, PATIENCE, "all is well", async || {
        (health(&[]).0 == Some(0)).then_some(())
    })
    .await;
    daemon.stop().await;
}

/// The commands run as soon as the table is locked.
async fn a_young_lock_is_told(db: Db) {
    let mut fixture = DaemonFixture::new(&db, Settings::default(), &[LONG]).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    let run = fixture.trigger("Long", "1", 1).await[0].to_string();
    fixture.pids("pids", 1).await;
    for verb in [&["health"][..], &["health", "--json"], &["why", &run]] {
        let mut foreign = sqlx::PgConnection::connect(&db.url).await.unwrap();
        let lock = "BEGIN; LOCK TABLE ductwork_processes IN ACCESS EXCLUSIVE MODE";
        sqlx::raw_sql(lock).execute(&mut foreign).await.unwrap();
        let began = std::time::Instant::now();
        let done = fixture.run(&[], verb);
        let took = began.elapsed();
        let said = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
        assert_eq!(done.status.code(), Some(1), "{verb:?}: {said}");
        let named = "the table ductwork_processes is locked by the session with pid ";
        assert!(said.contains(named), "{verb:?}: {said}");
        assert!(took < Duration::from_secs(15), "{verb:?}: {took:?}");
        sqlx::raw_sql("COMMIT").execute(&mut foreign).await.unwrap();
        foreign.close().await.unwrap();
    }
    std::fs::write(fixture.path("go"), "").unwrap();
    fixture.completed(PATIENCE).await;
    daemon.stop().await;
}

/// It has a lock of the same mode as one who has locked a table.
async fn who_waits_is_no_holder(db: Db) {
    let mut fixture = DaemonFixture::new(&db, Settings::default(), &[SHORT]).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    let run = fixture.trigger("Short", "1", 1).await[0];
    fixture.run_ended(run).await;
    let mut foreign = Foreign::on(&db.url).await;
    foreign.lock_rows("ductwork_runs").await;
    let mut waiter = sqlx::PgConnection::connect(&db.url).await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(&mut waiter)
        .await
        .unwrap();
    let waits = tokio::task::spawn_local(async move {
        let wait = "BEGIN; SELECT 1 FROM ductwork_runs FOR UPDATE";
        sqlx::raw_sql(wait).execute(&mut waiter).await.unwrap();
    });
    let mut watch = sqlx::PgConnection::connect(&db.url).await.unwrap();
    eventually(PATIENCE, "it has waited for long", async || {
        let waited = "SELECT count(*) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid
                       WHERE a.pid = $1 AND l.locktype = 'tuple' AND l.granted
                         AND a.xact_start < clock_timestamp() - interval '6 s'";
        let count: i64 = sqlx::query_scalar(waited)
            .bind(pid)
            .fetch_one(&mut watch)
            .await
            .unwrap();
        (count > 0).then_some(())
    })
    .await;
    let health = fixture.run(&[], &["health"]);
    let said = String::from_utf8([health.stdout, health.stderr].concat()).unwrap();
    assert!(health.status.success(), "{said}");
    foreign.release().await;
    waits.await.unwrap();
    daemon.stop().await;
}

/// A table that nobody can read, and a row that is to be written.
async fn commands_tell_for_whom_they_wait(db: Db) {
    let mut fixture = DaemonFixture::new(&db, Settings::default(), &[LONG]).await;
    let run = fixture.trigger("Long", "1", 1).await[0].to_string();
    for (verb, lock, told) in [
        (
            &["processes"][..],
            "BEGIN; LOCK TABLE ductwork_processes IN ACCESS EXCLUSIVE MODE",
            "waiting: the table ductwork_processes is locked by the session with pid ",
        ),
        (
            &["cancel", &run],
            "BEGIN; SELECT id FROM ductwork_executions FOR UPDATE",
            "waiting: rows are locked by the session with pid ",
        ),
    ] {
        let mut foreign = sqlx::PgConnection::connect(&db.url).await.unwrap();
        sqlx::raw_sql(lock).execute(&mut foreign).await.unwrap();
        let mut begun = fixture.begin(verb, "said");
        eventually(PATIENCE, "it tells for whom it waits", async || {
            let said = std::fs::read_to_string(fixture.path("said")).unwrap();
            said.contains(told).then_some(())
        })
        .await;
        assert_eq!(begun.try_wait().unwrap(), None, "{verb:?} did not wait");
        sqlx::raw_sql("COMMIT").execute(&mut foreign).await.unwrap();
        let status = eventually(PATIENCE, "it goes on", async || begun.try_wait().unwrap()).await;
        assert!(status.success(), "{verb:?}: {status}");
    }
}

/// On MariaDB, the tripwires of this test read runs under a lock; `branches_of_which_a_row_is_locked_are_told_and_no_others`
/// is for all databases.
#[tokio::test]
async fn a_run_that_somebody_has_locked_holds_up_the_advancing_of_no_other() {
    let db = Db::postgres().await;
    support::with(db, async |db| {
        no_other_branch_is_held_up(db, FAILS, "ductwork_runs").await
    })
    .await;
}

#[tokio::test]
async fn a_branch_that_waits_for_a_lock_that_no_look_finds_is_left_out_for_longer_each_time() {
    support::with(Db::postgres().await, a_lock_that_no_look_finds_holds_up_few).await;
}

#[tokio::test]
async fn a_command_that_waits_for_a_lock_tells_whose_it_is() {
    support::with(Db::postgres().await, commands_tell_for_whom_they_wait).await;
}

#[tokio::test]
async fn a_session_that_waits_for_a_row_has_locked_no_table() {
    let test = support::with(Db::postgres().await, who_waits_is_no_holder);
    tokio::task::LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_lock_that_is_as_young_as_the_question_is_told_all_the_same() {
    support::with(Db::postgres().await, a_young_lock_is_told).await;
}

#[tokio::test]
async fn a_locked_table_is_named_by_health_with_the_session_that_has_the_lock() {
    support::with(Db::postgres().await, health_names_the_table_and_the_session).await;
}

const SHORT: &str = r#"
pipeline: Short
steps: { A: { command: [cat] } }
flow: [{ start: A }]
"#;

async fn no_other_claim_is_held_up(db: Db) {
    let settings = Settings {
        reaper_timeout: "4s",
        count: 8,
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::new(&db, settings, &[SHORT]).await;
    let held = fixture.trigger("Short", "1", 1).await[0];
    let mut foreign = Foreign::on(&db.url).await;
    foreign.lock_rows("ductwork_executions").await;
    let mut daemon = fixture.start();
    for _ in 0..10 {
        for run in fixture.trigger("Short", "2", 8).await {
            fixture.run_ended(run).await;
        }
    }
    daemon.says("rows are locked by another session").await;
    waited_at_most(&daemon, 2);
    let state = query::run_state(&mut fixture.conn, held).await;
    assert_eq!(state.unwrap().unwrap().status, RunStatus::InProgress);
    foreign.release().await;
    fixture.run_ended(held).await;
    released(&daemon, "due executions").await;
    daemon.stop().await;
    fixture.succeeded_once_each().await;
    fixture.audited().await;
}

/// Without a look at the locks, each of very many claims or commits would wait for as long as it may.
fn waited_at_most(daemon: &Daemon, times: usize) {
    let waited = daemon.logged("kept waiting");
    assert!((1..=times).contains(&waited.len()), "{waited:#?}");
}

/// The log tells that the lock is gone.
async fn released(daemon: &Daemon, about: &str) {
    let said = daemon.says("another session has released the rows").await;
    assert_eq!(said[0]["about"], about, "{said:#?}");
}

/// Steps with the numbers 1 to 4 end as many seconds after they are let go; all others end at once.
const FLAT: &str = r#"
pipeline: Some
steps:
  A: { command: [sh, -c, 'read n; [ $n -gt 4 ] || { echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; sleep $n; }; echo $n'] }
flow: [{ start: A }]
"#;

/// The same for each element of a list.
const LISTS: &str = r#"
pipeline: Some
steps:
  Split: { command: [cat] }
  A: { command: [sh, -c, 'read n; [ $n -gt 4 ] || { echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; sleep $n; }; echo $n'] }
  Join: { command: [cat] }
flow: [{ start: Split }, { expand: A }, { collapse: Join }]
"#;

/// Rows of the runs whose steps wait are locked, and these steps end: others of the pipeline go on.
async fn no_other_result_is_held_up(db: Db, pipeline: &str, rows: &str) {
    let (slow, quick) = match pipeline == LISTS {
        true => ("[1,2,3,4]", "[5,5]"),
        false => ("1", "5"),
    };
    let settings = Settings {
        reaper_timeout: "4s",
        count: 12,
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::new(&db, settings, &[pipeline]).await;
    let mut daemon = fixture.start();
    let held = fixture.trigger("Some", slow, 2).await;
    let steps = 2 * slow.split(',').count();
    fixture.pids("pids", steps).await;
    let mut foreign = Foreign::on(&db.url).await;
    foreign.lock_rows(rows).await;
    std::fs::write(fixture.path("go"), "").unwrap();
    let said = daemon.says("rows are locked by another session").await;
    let is_of_results = said[0].to_string().contains("they are stored when");
    assert!(is_of_results, "{said:#?}");
    for _ in 0..10 {
        for run in fixture.trigger("Some", quick, 8).await {
            fixture.run_ended(run).await;
        }
    }
    for held in &held {
        let state = query::run_state(&mut fixture.conn, *held).await;
        assert_eq!(state.unwrap().unwrap().status, RunStatus::InProgress);
    }
    waited_at_most(&daemon, 2);
    foreign.release().await;
    for held in held {
        fixture.run_ended(held).await;
    }
    released(&daemon, "results").await;
    daemon.stop().await;
    let executions = fixture.succeeded_once_each().await;
    assert!(
        executions.iter().all(|it| it.attempt == 1),
        "{executions:#?}"
    );
    fixture.audited().await;
}

/// The same, but 1 fails as soon as it is let go.
const FAILS: &str = r#"
pipeline: Some
steps:
  Split: { command: [sh, -c, 'read n; [ "$n" != 1 ] || { echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; exit 1; }; echo "$n"'] }
  A: { command: [cat] }
  Join: { command: [cat] }
flow: [{ start: Split }, { expand: A }, { collapse: Join }]
"#;

/// An advancer has to move runs whose rows are locked: others are advanced.
async fn no_other_branch_is_held_up(db: Db, pipeline: &str, rows: &str) {
    let slow = match pipeline == LISTS {
        true => "[1,2,3,4]",
        false => "1",
    };
    let settings = Settings {
        reaper_timeout: "4s",
        count: 12,
        max_retry: 0,
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::new(&db, settings, &[pipeline]).await;
    let mut daemon = fixture.start();
    let held = fixture.trigger("Some", slow, 2).await;
    fixture.pids("pids", 2 * slow.split(',').count()).await;
    let mut foreign = Foreign::on(&db.url).await;
    foreign.lock_rows(rows).await;
    std::fs::write(fixture.path("go"), "").unwrap();
    let said = daemon.says("rows are locked by another session").await;
    let is_of_branches = said[0].to_string().contains("they are advanced when");
    assert!(is_of_branches, "{said:#?}");
    for _ in 0..10 {
        for run in fixture.trigger("Some", "[5,5]", 8).await {
            fixture.run_ended(run).await;
        }
    }
    for held in &held {
        let state = query::run_state(&mut fixture.conn, *held).await;
        assert_eq!(state.unwrap().unwrap().status, RunStatus::InProgress);
    }
    // Once together, and at most once each: then they are left out.
    let waited = daemon.logged("the database could not advance a branch");
    assert!((1..=3).contains(&waited.len()), "{waited:#?}");
    foreign.release().await;
    for held in held {
        fixture.run_ended(held).await;
    }
    released(&daemon, "branches").await;
    daemon.stop().await;
    fixture.audited().await;
}

/// No look asks about the row that records an advance under way: it is locked rarely, and by a person who looks at it.
async fn a_lock_that_no_look_finds_holds_up_few(db: Db) {
    let settings = Settings {
        reaper_timeout: "4s",
        count: 12,
        max_retry: 0,
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::new(&db, settings, &[FAILS]).await;
    let mut daemon = fixture.start();
    let held = fixture.trigger("Some", "1", 1).await[0];
    fixture.pids("pids", 1).await;
    // So that the advance is under way, but given back, when its row is locked.
    let mut first = Foreign::on(&db.url).await;
    first.lock_rows("ductwork_runs").await;
    std::fs::write(fixture.path("go"), "").unwrap();
    daemon.says("rows are locked by another session").await;
    let mut second = Foreign::on(&db.url).await;
    second
        .lock_rows("ductwork_transitions WHERE completed_at IS NULL")
        .await;
    let before = daemon.logged("could not advance a branch").len();
    first.release().await;
    let mut waited = Vec::new();
    for times in 1..=5 {
        let all = daemon.says_times("could not advance a branch", before + times);
        waited.push(all.await[before + times - 1].clone());
        for run in fixture.trigger("Some", "[5,5]", 8).await {
            fixture.run_ended(run).await;
        }
    }
    let at = |event: &Value| -> jiff::Timestamp { event["ts"].as_str().unwrap().parse().unwrap() };
    let pause = |two: &[Value]| at(&two[1]).duration_since(at(&two[0])).as_secs();
    let pauses: Vec<i64> = waited.windows(2).map(pause).collect();
    // The first may have been a lock of ours; then 1 s, 2 s, 4 s. Without a pause one retry follows another after 1 s.
    assert!(pauses[3] >= 3, "{pauses:?}");
    let state = query::run_state(&mut fixture.conn, held).await;
    assert_eq!(state.unwrap().unwrap().status, RunStatus::InProgress);
    second.release().await;
    fixture.run_ended(held).await;
    daemon
        .says_times("another session has released the rows", 2)
        .await;
    daemon.stop().await;
    fixture.audited().await;
}

/// The worker is killed, and one of its executions cannot be given back.
async fn no_other_recovery_is_held_up(db: Db) {
    let settings = Settings {
        max_retry: 0,
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::new(&db, settings, &[LONG]).await;
    let mut daemon = fixture.start();
    let held = fixture.trigger("Long", "1", 1).await[0];
    fixture.pids("pids", 1).await;
    let mut foreign = Foreign::on(&db.url).await;
    foreign.lock_rows("ductwork_executions").await;
    fixture.trigger("Long", "1", 3).await;
    fixture.pids("pids", 4).await;
    let worker = daemon.child("worker Long", None).await;
    send(worker, Signal::SIGKILL);
    // The three others run again while the first one is locked.
    fixture.pids("pids", 7).await;
    daemon
        .says("claims of dead processes wait for rows that another session")
        .await;
    let (health, why) = eventually_every(SELDOM, PATIENCE, "`health` tells of it", async || {
        let said = fixture.run(&[], &["health"]);
        let health = String::from_utf8([said.stdout, said.stderr].concat()).unwrap();
        let why = fixture.run(&[], &["why", &held.to_string()]);
        let why = String::from_utf8([why.stdout, why.stderr].concat()).unwrap();
        health
            .contains("claims of dead processes")
            .then_some((health, why))
    })
    .await;
    let end = match fixture.conn.dialect() {
        Dialect::Postgres => "end the transaction of the session with pid ",
        _ => "end that transaction",
    };
    assert!(health.contains(end), "{health}");
    // MariaDB names the session.
    let is_named = why.contains("rows that are to be written are probably locked by the session");
    let is_told = why.contains("claims of dead processes") && why.contains(end);
    let on_mysql = fixture.conn.dialect() == Dialect::Mysql;
    assert!(if on_mysql { is_named } else { is_told }, "{why}");
    std::fs::write(fixture.path("go"), "").unwrap();
    fixture.said("ends", 3).await;
    let state = query::run_state(&mut fixture.conn, held).await;
    assert_eq!(state.unwrap().unwrap().status, RunStatus::InProgress);
    foreign.release().await;
    fixture.completed(PATIENCE).await;
    released(&daemon, "claims of dead processes").await;
    eventually_every(
        SELDOM,
        PATIENCE,
        "`health` has nothing to tell",
        async || (fixture.run(&[], &["health"]).status.code() == Some(0)).then_some(()),
    )
    .await;
    daemon.stop().await;
    let executions = fixture.succeeded_once_each().await;
    assert!(
        executions.iter().filter(|it| it.attempt == 2).count() == 4,
        "{executions:#?}"
    );
    fixture.audited().await;
}

on_servers! {
    /// A person who follows the advice to try again would have two runs.
    async fn a_command_whose_work_is_done_does_not_fail_for_a_note(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[LONG]).await;
        let mut foreign = Foreign::on(&db.url).await;
        foreign.hide_table("ductwork_pauses").await;
        let done = fixture.run(&[], &["trigger", "Long", "1", "--json"]);
        foreign.release().await;
        let told = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.success(), "{told}");
        let answer: Value = serde_json::from_slice(&done.stdout).unwrap();
        let run = answer["run_id"].as_str().unwrap().parse().unwrap();
        assert!(query::run_without_payloads(&mut fixture.conn, RunId(run)).await.unwrap().is_some());
    }
}

on_servers! {
    /// Each try of a result that waits for a lock takes as long as a statement may wait, and all results that are
    /// sent with it wait as well.
    async fn a_result_whose_execution_somebody_has_locked_holds_up_no_other(db: Db) {
        no_other_result_is_held_up(db, FLAT, "ductwork_executions WHERE completed_at IS NULL").await;
    }

    async fn a_result_whose_run_somebody_has_locked_holds_up_no_other(db: Db) {
        no_other_result_is_held_up(db, FLAT, "ductwork_runs").await;
    }

    async fn a_result_whose_barrier_somebody_has_locked_holds_up_no_other(db: Db) {
        no_other_result_is_held_up(db, LISTS, "ductwork_fan_outs").await;
    }

    async fn an_execution_that_somebody_has_locked_holds_up_no_other_claim(db: Db) {
        no_other_claim_is_held_up(db).await;
    }

    async fn a_branch_that_somebody_has_locked_holds_up_the_advancing_of_no_other(db: Db) {
        no_other_branch_is_held_up(db, LISTS, "ductwork_branches WHERE fan_out_id IS NULL").await;
    }

    async fn an_execution_that_somebody_has_locked_holds_up_the_recovery_of_no_other(db: Db) {
        no_other_recovery_is_held_up(db).await;
    }

    /// The claim is left by the stop, and given back at the next start.
    async fn a_stop_beside_a_lock_costs_the_locked_execution_no_crash(db: Db) {
        let settings = Settings {
            // Long enough for the supervisor to take note of its own stop, however busy the machine is.
            shutdown_timeout: "2s",
            max_retry: 0,
            max_crash: 0,
            ..Settings::default()
        };
        let mut fixture = DaemonFixture::new(&db, settings, &[LONG]).await;
        let mut daemon = fixture.start();
        fixture.trigger("Long", "1", 2).await;
        fixture.pids("pids", 2).await;
        let mut foreign = Foreign::on(&db.url).await;
        foreign.lock_rows("ductwork_executions").await;
        daemon.send(Signal::SIGTERM);
        daemon.ended(PATIENCE).await;
        let left = fixture.processes().await;
        let stopped = Some(ductwork::store::process::Condemned::Stopped);
        assert!(left.iter().any(|row| row.condemned == stopped), "{left:#?}");
        foreign.release().await;
        std::fs::write(fixture.path("go"), "").unwrap();
        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert!(executions.iter().all(|it| it.crash_count == 0), "{executions:#?}");
        fixture.audited().await;
    }

    async fn rows_of_processes_that_are_locked_for_longer_than_a_lease_cost_no_process(db: Db) {
        nobody_is_judged_by_a_row_that_is_locked(db).await;
    }

    /// A person looks at what runs, and forgets to end the transaction.
    async fn rows_of_executions_that_are_locked_for_longer_than_a_lease_cost_no_process(db: Db) {
        nobody_is_taken_for_dead_while_this_is_locked(db, Locked::Rows).await;
    }

    /// As during the creation of an index.
    async fn a_table_that_takes_no_writes_for_longer_than_a_lease_costs_no_process(db: Db) {
        nobody_is_taken_for_dead_while_this_is_locked(db, Locked::Tables).await;
    }
}
