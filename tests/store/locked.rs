//! Rows that another session has locked: which executions cannot be claimed, and which results cannot be stored, at
//! this moment. The question waits for nobody.

use std::collections::HashSet;
use std::time::Duration;

use ductwork::definition::Pipeline;
use ductwork::engine::actor::limits;
use ductwork::model::*;
use ductwork::store::claim::Claim;
use ductwork::store::definition::LeftOut;
use ductwork::store::process::{self, Counters, Orders};
use ductwork::store::recovery::{Left, Recovered};
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Dialect, Location, Purpose, advance, claim, commit};
use serde_json::json;

use crate::driver::{Did, Driver};
use crate::on_every_database;
use crate::support::Db;

/// Locks one row of a table as a person would, until the next lock or the end of the test.
async fn lock(conn: &mut Conn, table: &str, id: uuid::Uuid, strength: &str) {
    let id = match conn.dialect() {
        Dialect::Postgres => format!("'{id}'"),
        _ => format!("x'{}'", id.simple()),
    };
    // There it is no key.
    let key = match (conn.dialect(), table) {
        (Dialect::Mysql, "ductwork_advancements") => "open_branch",
        (_, "ductwork_advancements") => "branch_id",
        _ => "id",
    };
    let sql = format!("SELECT id FROM {table} WHERE {key} = {id} {strength}");
    let sql = match conn.dialect() {
        // It has no locks of rows.
        Dialect::Sqlite => return,
        Dialect::Postgres => format!("ROLLBACK; BEGIN; {sql}"),
        Dialect::Mysql => {
            conn.script("anew", "ROLLBACK").await.unwrap();
            conn.script("begin", "START TRANSACTION").await.unwrap();
            sql
        }
    };
    conn.script("lock", sql.leak()).await.unwrap();
}

/// The open transition of a branch.
async fn open_transition_of(conn: &mut Conn, branch: BranchId) -> uuid::Uuid {
    static TRANSITION: Statement = Statement::new(
        "TEST_TRANSITION",
        "SELECT id FROM ductwork_transitions WHERE branch_id = :branch AND completed_at IS NULL",
    );
    let args = [("branch", branch.0.into())];
    let row = conn.fetch_optional(&TRANSITION, &args).await;
    row.unwrap().expect("it is open").get("id").unwrap()
}

static LOCK: Statement = Statement::new(
    "TEST_LOCK",
    "SELECT id FROM ductwork_executions WHERE id = :id {lock}",
);

on_every_database! {
    async fn executions_that_are_due_and_locked_are_told_and_no_others(db: Db) {
        let definition = Pipeline::named("P").start("A").build().unwrap();
        let mut driver = Driver::new(&db).await;
        let mut other = db.conn().await;
        for _ in 0..3 {
            driver.trigger(&definition, "1").await;
        }
        let none = LeftOut::default();
        let due = claim::due(&mut driver.conn, "P", &none, 9).await.unwrap();
        assert_eq!(due.len(), 3);
        assert_eq!(claim::locked(&mut driver.conn, &due).await.unwrap(), []);
        lock(&mut other, "ductwork_executions", due[1].0, "FOR UPDATE").await;
        let locked = claim::locked(&mut driver.conn, &due).await.unwrap();
        let expected = match driver.conn.dialect() {
            Dialect::Sqlite => vec![],
            _ => vec![due[1]],
        };
        assert_eq!(locked, expected);
        // Without it, the others can be claimed.
        let left_out = none.and(locked.iter().map(|id| id.0));
        let due = claim::due(&mut driver.conn, "P", &left_out, 9).await.unwrap();
        assert_eq!(due.len(), 3 - expected.len());
    }

    /// Each kind of row, for a result that writes it and for one that does not.
    async fn results_that_write_a_locked_row_are_told_and_no_others(db: Db) {
        let flat = Pipeline::named("P").start("A").build().unwrap();
        let fan = Pipeline::named("P").start("L").expand("A").collapse("J").build().unwrap();
        let mut driver = Driver::new(&db).await;
        let mut other = db.conn().await;
        driver.trigger(&fan, "1").await;
        let list = driver.claim("P", 1).await.remove(0);
        let list = driver.finished(list, Did::Returned(json!([1, 2, 3]))).await;
        driver.commit(&[list]).await;
        let branches = driver.claim_branches(9).await;
        driver.advance(&branches).await;
        driver.trigger(&flat, "1").await;
        driver.trigger(&flat, "2").await;
        let mut results = Vec::new();
        for claimed in driver.claim("P", 9).await {
            results.push(driver.finished(claimed, Did::Returned(json!(1))).await);
        }
        let (ends, arrives): (Vec<_>, Vec<_>) =
            results.iter().partition(|it| it.claimed.fan_out_id.is_none());
        assert_eq!((ends.len(), arrives.len()), (2, 3));
        let (end, arrive) = (&ends[0].claimed, &arrives[0].claimed);
        let id = |claimed: &claim::Claimed| claimed.execution_id;
        let all: Vec<ExecutionId> = arrives.iter().map(|it| id(&it.claimed)).collect();
        let barrier = arrive.fan_out_id.unwrap().0;
        for (table, row, strength, expected) in [
            ("ductwork_executions", id(end).0, "FOR UPDATE", vec![id(end)]),
            ("ductwork_steps", arrive.step_id.0, "FOR UPDATE", vec![id(arrive)]),
            ("ductwork_branches", end.branch_id.0, "FOR UPDATE", vec![id(end)]),
            ("ductwork_runs", end.run_id.0, "FOR UPDATE", vec![id(end)]),
            // An element does not end the run.
            ("ductwork_runs", arrive.run_id.0, "FOR UPDATE", vec![]),
            ("ductwork_fan_outs", barrier, "FOR UPDATE", all),
            // Rows of a foreign table refer to the run.
            ("ductwork_runs", end.run_id.0, "FOR KEY SHARE", vec![]),
        ] {
            let dialect = driver.conn.dialect();
            if dialect == Dialect::Mysql && strength == "FOR KEY SHARE" {
                continue;
            }
            lock(&mut other, table, row, strength).await;
            let locked = commit::locked(&mut driver.conn, results.iter()).await.unwrap();
            let expected: HashSet<ExecutionId> = match dialect {
                Dialect::Sqlite => HashSet::new(),
                _ => expected.into_iter().collect(),
            };
            assert_eq!(locked, expected, "{table} {strength}");
        }
        // Results that come too late are refused, and have no reason to wait.
        let process = driver.process;
        driver.recover(process).await;
        lock(&mut other, "ductwork_executions", id(arrive).0, "FOR UPDATE").await;
        assert_eq!(commit::locked(&mut driver.conn, results.iter()).await.unwrap(), HashSet::new());
    }

    async fn branches_of_which_a_row_is_locked_are_told_and_no_others(db: Db) {
        let definition = Pipeline::named("P").start("L").expand("A").collapse("J").build().unwrap();
        let mut driver = Driver::new(&db).await;
        let mut other = db.conn().await;
        for _ in 0..2 {
            driver.trigger(&definition, "1").await;
        }
        let mut finished = Vec::new();
        for claimed in driver.claim("P", 2).await {
            finished.push(driver.finished(claimed, Did::Returned(json!([1]))).await);
        }
        driver.commit(&finished).await;
        let branches: Vec<BranchId> = driver.claim_branches(9).await.iter().map(|it| it.id).collect();
        assert_eq!(branches.len(), 2);
        assert_eq!(advance::locked(&mut driver.conn, &branches).await.unwrap(), []);
        let first = &finished[0].claimed;
        for (table, row) in [
            ("ductwork_branches", first.branch_id.0),
            ("ductwork_steps", first.step_id.0),
            ("ductwork_runs", first.run_id.0),
        ] {
            lock(&mut other, table, row, "FOR UPDATE").await;
            let expected = match driver.conn.dialect() {
                Dialect::Sqlite => vec![],
                _ => vec![first.branch_id],
            };
            assert_eq!(advance::locked(&mut driver.conn, &branches).await.unwrap(), expected, "{table}");
        }
    }

    async fn a_result_waits_for_no_lock_on_a_row_that_it_does_not_write(db: Db) {
        let definition = Pipeline::named("P").start("A").chain("B").build().unwrap();
        let mut driver = Driver::new(&db).await;
        driver.limits = limits(9, 9);
        let mut other = db.conn().await;
        for _ in 0..4 {
            driver.trigger(&definition, "1").await;
        }
        let mut claimed = driver.claim("P", 9).await.into_iter();
        for (did, table) in [
            (Did::Erred, "ductwork_steps"),
            (Did::Erred, "ductwork_branches"),
            (Did::Refused, "ductwork_runs"),
            (Did::Returned(json!(1)), "ductwork_runs"),
        ] {
            let claimed = claimed.next().unwrap();
            let row = match table {
                "ductwork_steps" => claimed.step_id.0,
                "ductwork_branches" => claimed.branch_id.0,
                _ => claimed.run_id.0,
            };
            lock(&mut other, table, row, "FOR UPDATE").await;
            let done = driver.finished(claimed, did).await;
            assert_eq!(driver.commit(&[done]).await.stale, []);
        }
    }

    /// Each kind of row of the first execution, with a budget for another attempt and without.
    async fn a_recovery_leaves_the_executions_that_are_locked_and_no_others(db: Db) {
        let definition = Pipeline::named("P").start("A").build().unwrap();
        let mut other = db.conn().await;
        let mut reaper = Driver::new(&db).await;
        for (table, max_crash, is_left) in [
            ("ductwork_executions", 9, true),
            ("ductwork_steps", 9, false),
            ("ductwork_branches", 9, false),
            ("ductwork_executions", 0, true),
            ("ductwork_steps", 0, true),
            ("ductwork_branches", 0, true),
            // It ends when an advancer halts the branch.
            ("ductwork_runs", 0, false),
            // Rows of a foreign table refer to the execution.
            ("referred", 9, false),
        ] {
            let mut driver = Driver::new(&db).await;
            reaper.limits = limits(0, max_crash);
            for _ in 0..3 {
                driver.trigger(&definition, "1").await;
            }
            let held = driver.claim("P", 3).await;
            let first = &held[0];
            let row = match table {
                "ductwork_executions" | "referred" => first.execution_id.0,
                "ductwork_steps" => first.step_id.0,
                "ductwork_branches" => first.branch_id.0,
                _ => first.run_id.0,
            };
            match table {
                "referred" if driver.conn.dialect() == Dialect::Mysql => {}
                "referred" => lock(&mut other, "ductwork_executions", row, "FOR KEY SHARE").await,
                table => lock(&mut other, table, row, "FOR UPDATE").await,
            }
            let recovered = reaper.recover(driver.process).await;
            let left = match is_left && driver.conn.dialect() != Dialect::Sqlite {
                true => vec![Left::Execution(first.execution_id)],
                false => vec![],
            };
            assert_eq!(recovered.left, left, "{table} {max_crash}");
            assert_eq!(recovered.closed.len(), 3 - left.len(), "{table} {max_crash}");
            assert_eq!(recovered.again + recovered.failed, 3 - left.len());

            lock(&mut other, "ductwork_tokens", uuid::Uuid::nil(), "FOR UPDATE").await;
            let rest = reaper.recover(driver.process).await;
            assert_eq!((rest.closed.len(), rest.left), (left.len(), vec![]), "{table} {max_crash}");
            let mut known = process::processes(&mut reaper.conn).await.unwrap().into_iter();
            assert!(!known.any(|row| row.id == driver.process), "{table} {max_crash}");
            // Nothing is left for the next table.
            let again = reaper.claim("P", 9).await;
            assert_eq!(again.len(), if max_crash == 0 { 0 } else { 3 });
            for claimed in again {
                let done = reaper.finished(claimed, Did::Returned(json!(1))).await;
                reaper.commit(&[done]).await;
            }
            let halting = reaper.claim_branches(9).await;
            reaper.advance(&halting).await;
        }
    }

    async fn a_recovery_leaves_the_branches_that_are_locked_and_no_others(db: Db) {
        let definition = Pipeline::named("P").start("A").divide(["B", "C"]).combine("D").build().unwrap();
        let mut other = db.conn().await;
        let mut reaper = Driver::new(&db).await;
        for table in ["ductwork_branches", "ductwork_advancements", "ductwork_transitions"] {
            let mut driver = Driver::new(&db).await;
            for _ in 0..2 {
                driver.trigger(&definition, "1").await;
                let claimed = driver.claim("P", 1).await.remove(0);
                let done = driver.finished(claimed, Did::Returned(json!(1))).await;
                driver.commit(&[done]).await;
            }
            let held = driver.claim_branches(9).await;
            assert_eq!(held.len(), 2);
            let row = match table {
                "ductwork_transitions" => open_transition_of(&mut driver.conn, held[0].id).await,
                _ => held[0].id.0,
            };
            lock(&mut other, table, row, "FOR UPDATE").await;
            let recovered = reaper.recover(driver.process).await;
            let left = match driver.conn.dialect() {
                Dialect::Sqlite => vec![],
                _ => vec![Left::Branch(held[0].id)],
            };
            assert_eq!((recovered.branches, &recovered.left), (2 - left.len(), &left), "{table}");
            lock(&mut other, "ductwork_tokens", uuid::Uuid::nil(), "FOR UPDATE").await;
            let rest = reaper.recover(driver.process).await;
            assert_eq!((rest.branches, rest.left), (left.len(), vec![]), "{table}");
            let mut again = reaper.claim_branches(9).await;
            again.sort_by_key(|branch| branch.id);
            let mut all = held.clone();
            all.sort_by_key(|branch| branch.id);
            let ids = |branches: &[ductwork::store::advance::ClaimedBranch]| {
                branches.iter().map(|branch| branch.id).collect::<Vec<_>>()
            };
            assert_eq!(ids(&again), ids(&all), "{table}");
            reaper.advance(&again).await;
            for claimed in reaper.claim("P", 9).await {
                let done = reaper.finished(claimed, Did::Refused).await;
                reaper.commit(&[done]).await;
            }
            let halting = reaper.claim_branches(9).await;
            reaper.advance(&halting).await;
        }
    }

    /// Not even the claim of the branch whose transition it is, which an earlier claim has opened.
    async fn a_transition_that_somebody_has_locked_stops_no_claim(db: Db) {
        let definition = Pipeline::named("P").start("A").chain("B").build().unwrap();
        let mut other = db.conn().await;
        let (mut driver, mut next) = (Driver::new(&db).await, Driver::new(&db).await);
        for _ in 0..2 {
            driver.trigger(&definition, "1").await;
            let claimed = driver.claim("P", 1).await.remove(0);
            let done = driver.finished(claimed, Did::Refused).await;
            driver.commit(&[done]).await;
        }
        let held = driver.claim_branches(9).await;
        let row = open_transition_of(&mut driver.conn, held[0].id).await;
        next.recover(driver.process).await;
        lock(&mut other, "ductwork_transitions", row, "FOR UPDATE").await;
        assert_eq!(next.claim_branches(9).await.len(), 2);
        // Nobody has waited until the server ended the other session.
        other.script("lives", "SELECT 1").await.unwrap();
    }

    /// Its row stays for the sake of what it holds: this is no sign of life.
    async fn a_process_of_which_a_part_was_recovered_beats_and_claims_no_more(db: Db) {
        let definition = Pipeline::named("P").start("A").build().unwrap();
        let mut driver = Driver::new(&db).await;
        let mut other = db.conn().await;
        let mut reaper = Driver::new(&db).await;
        reaper.limits = limits(0, 9);
        for _ in 0..3 {
            driver.trigger(&definition, "1").await;
        }
        let held = driver.claim("P", 2).await;
        lock(&mut other, "ductwork_executions", held[0].execution_id.0, "FOR UPDATE").await;
        let recovered = reaper.recover(driver.process).await;
        let on_server = driver.conn.dialect() != Dialect::Sqlite;
        assert_eq!(recovered.removed, !on_server);
        let id = driver.process;
        let rows = process::processes(&mut reaper.conn).await.unwrap();
        assert_eq!(rows.iter().any(|row| row.id == id), on_server);

        for role in [Role::Worker, Role::Supervisor] {
            let beaten = process::beat(&mut driver.conn, id, role, Counters::default(), Intake::Open).await;
            assert_eq!(beaten.unwrap().orders, Orders::Dead);
        }
        assert!(matches!(driver.actor.claim("P", 9).await.unwrap(), Claim::Dead));
        lock(&mut other, "ductwork_tokens", uuid::Uuid::nil(), "FOR UPDATE").await;
        // The result of what is still its own.
        let late = driver.finished(held[0].clone(), Did::Returned(json!(1))).await;
        assert!(driver.commit(&[late]).await.dead);
        // It goes in order, and its row stays until everything is given back.
        process::deregister(&mut driver.conn, id).await.unwrap();
        let rest = reaper.recover(id).await;
        assert_eq!((rest.removed, rest.again), (on_server, usize::from(on_server)));
        assert_eq!(reaper.claim("P", 9).await.len(), 3);
    }

    async fn a_recovery_waits_for_no_lock_on_the_row_of_the_process(db: Db) {
        let definition = Pipeline::named("P").start("A").build().unwrap();
        let mut driver = Driver::new(&db).await;
        let mut other = db.conn().await;
        let mut reaper = Driver::new(&db).await;
        reaper.limits = limits(0, 9);
        driver.trigger(&definition, "1").await;
        driver.claim("P", 1).await;
        lock(&mut other, "ductwork_processes", driver.process.0, "FOR UPDATE").await;
        let recovered = reaper.recover(driver.process).await;
        match driver.conn.dialect() {
            Dialect::Sqlite => assert!(recovered.removed),
            _ => {
                let nothing = Recovered { left: vec![Left::All], ..Recovered::default() };
                assert_eq!(recovered, nothing);
                lock(&mut other, "ductwork_tokens", uuid::Uuid::nil(), "FOR UPDATE").await;
                assert!(reaper.recover(driver.process).await.removed);
            }
        }
        assert_eq!(reaper.claim("P", 9).await.len(), 1);
    }

    async fn a_worker_waits_for_a_lock_once_before_it_asks(db: Db) {
        let definition = Pipeline::named("P").start("A").build().unwrap();
        let mut driver = Driver::new(&db).await;
        let mut other = db.conn().await;
        driver.trigger(&definition, "1").await;
        let none = LeftOut::default();
        let due = claim::due(&mut driver.conn, "P", &none, 9).await.unwrap();
        lock(&mut other, "ductwork_executions", due[0].0, "FOR UPDATE").await;
        if driver.conn.dialect() == Dialect::Sqlite {
            return;
        }
        let location = Location::parse(&db.url).unwrap().leased(Duration::from_secs(12));
        for asks in [false, true] {
            let mut conn = location.connect(Purpose::Engine).await.unwrap();
            conn.ask_about_locks(asks);
            let mut waited = 0;
            let answer = conn.transaction(async |conn| {
                waited += 1;
                let id = [("id", due[0].0.into())];
                conn.fetch(&LOCK, &id).await
            });
            assert!(answer.await.is_err_and(|error| error.is_not_now()));
            assert_eq!(waited == 1, asks, "{waited}");
            conn.close().await;
        }
    }
}
