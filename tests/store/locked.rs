//! Rows that another session has locked: which executions cannot be claimed, and which results cannot be stored, at
//! this moment. The question waits for nobody.

use std::collections::HashSet;

use ductwork::definition::Pipeline;
use ductwork::model::*;
use ductwork::store::definition::LeftOut;
use ductwork::store::{Conn, Dialect, claim, commit};
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
    let sql = format!("SELECT id FROM {table} WHERE id = {id} {strength}");
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
}
