//! Each tripwire of the tests records its kind of violation, and nothing that is in order.

use std::collections::BTreeSet;

use ductwork::definition::builder::Pipeline;
use ductwork::store::{Dialect, Error};
use serde_json::json;

use crate::driver::{Did, Driver};
use crate::on_every_database;
use crate::support::Db;
use crate::wires::{install, tripped, tripwires};

on_every_database! {
    /// A chain and a fan-out that run to their ends, a barrier that waits, a branch that is
    /// advanced, and a run that was only triggered.
    async fn each_tripwire_records_what_it_is_there_for(db: Db) {
        let mut driver = Driver::new(&db).await;
        install(&mut driver.conn).await;
        let spread = Pipeline::named("Spread").start("A").expand("B").collapse("C");
        let spread = spread.build().unwrap();
        let elements = |claimed: &ductwork::store::claim::Claimed| {
            Did::Returned(if claimed.node == "A" { json!([1, 2, 3]) } else { json!(1) })
        };
        driver.trigger(&spread, "1").await;
        driver.work("Spread", elements).await;
        driver.trigger(&spread, "1").await;
        let claimed = driver.claim("Spread", 1).await.remove(0);
        let finished = driver.finished(claimed, Did::Returned(json!([1, 2, 3]))).await;
        driver.commit(&[finished]).await;
        let branches = driver.claim_branches(1).await;
        driver.advance(&branches).await;
        let claimed = driver.claim("Spread", 1).await.remove(0);
        let finished = driver.finished(claimed, Did::Returned(json!(1))).await;
        driver.commit(&[finished]).await;
        driver.claim("Spread", 1).await;
        driver.trigger(&spread, "1").await;
        let claimed = driver.claim("Spread", 10).await;
        let first = claimed.into_iter().find(|claimed| claimed.node == "A").unwrap();
        let finished = driver.finished(first, Did::Returned(json!([1]))).await;
        driver.commit(&[finished]).await;
        assert_eq!(driver.claim_branches(1).await.len(), 1);
        assert_eq!(tripped(&mut driver.conn).await, Vec::<String>::new());

        let conn = &mut driver.conn;
        let mut names = BTreeSet::new();
        for wire in tripwires() {
            assert!(names.insert(wire.name), "{} twice", wire.name);
            conn.script("begin", "BEGIN").await.unwrap();
            let done = conn.script("example", wire.example).await;
            // Where one index covers open attempts and successes, no row gets as far as the wire.
            if conn.dialect() == Dialect::Mysql && wire.name == "an attempt was made after a success" {
                assert!(matches!(done, Err(Error::Constraint { .. })), "{done:?}");
                conn.script("undo", "ROLLBACK").await.unwrap();
                continue;
            }
            done.unwrap();
            let seen = tripped(conn).await;
            conn.script("undo", "ROLLBACK").await.unwrap();
            assert!(
                seen.iter().any(|line| line.starts_with(&format!("{}:", wire.name))),
                "{}: {seen:?}",
                wire.name
            );
        }
        assert_eq!(tripped(conn).await, Vec::<String>::new(), "undone is undone");
    }
}
