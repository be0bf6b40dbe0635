//! Expands that are too wide for one transaction.

use std::time::Duration;

use serde_json::{Value, json};

use ductwork::definition::{Definition, Pipeline};
use ductwork::model::*;
use ductwork::store::advance::{self, ClaimedBranch, GiveBack};
use ductwork::store::cancel::{self, Cancel};
use ductwork::store::statement::Statement;

use crate::driver::{Did, Driver, register};
use crate::on_every_database;
use crate::support::Db;

/// Wider than two transactions make, whatever the build.
const WIDTH: usize = 4_500;

static CHILDREN: Statement = Statement::new(
    "CHILDREN",
    "SELECT count(*) AS n FROM ductwork_branches WHERE fan_out_id IS NOT NULL",
);

fn wide() -> Definition {
    let flow = Pipeline::named("P").start("A").expand("B").collapse("C");
    flow.build().unwrap()
}

async fn children(driver: &mut Driver) -> usize {
    let rows = driver.conn.fetch(&CHILDREN, &[]).await.unwrap();
    rows[0].get::<i64>("n").unwrap() as usize
}

/// A run whose expand is claimed.
async fn claimed(driver: &mut Driver, width: usize) -> (RunId, Vec<ClaimedBranch>) {
    let run = driver.trigger(&wide(), "1").await;
    let claimed = driver.claim("P", 1).await.remove(0);
    let list = Value::from_iter(0..width);
    let finished = [driver.finished(claimed, Did::Returned(list)).await];
    driver.commit(&finished).await;
    (run, driver.claim_branches(9).await)
}

/// Advances until nothing spreads; returns the number of transactions.
async fn spread(driver: &mut Driver, branches: &[ClaimedBranch]) -> usize {
    let (mut spreading, mut transactions) = (branches.to_vec(), 0);
    while !spreading.is_empty() {
        let advanced = driver.advance(&spreading).await;
        assert!(advanced.left.is_empty() && advanced.stale.is_empty());
        spreading = advanced.spreading;
        transactions += 1;
    }
    transactions
}

on_every_database! {
    /// Each transaction keeps every invariant: the driver checks them after each.
    async fn a_wide_expand_takes_several_transactions_and_its_branches_run_meanwhile(db: Db) {
        let mut driver = Driver::new(&db).await;
        let (run, branches) = claimed(&mut driver, WIDTH).await;
        let advanced = driver.advance(&branches).await;
        assert_eq!(advanced.spreading, branches);
        assert_eq!(advanced.moved, 0, "it has not left its step");
        let made = children(&mut driver).await;
        assert!(made > 0 && made < WIDTH, "{made}");

        // The first branches run to their end, and none of them is the last at the barrier.
        let first = driver.claim("P", 3).await;
        let mut finished = Vec::new();
        for claimed in first {
            let input: Value = serde_json::from_str(claimed.input.get()).unwrap();
            finished.push(driver.finished(claimed, Did::Returned(json!([input]))).await);
        }
        let committed = driver.commit(&finished).await;
        assert!(!committed.ready && committed.advanced == 3);

        assert!(spread(&mut driver, &advanced.spreading).await > 1);
        assert_eq!(children(&mut driver).await, WIDTH);
        driver.audited = false;
        driver.work("P", |claimed| match claimed.step.as_str() {
            "C" => Did::Returned(json!(claimed.input.get().len())),
            _ => Did::Returned(json!([serde_json::from_str::<Value>(claimed.input.get()).unwrap()])),
        }).await;
        driver.audited = true;
        driver.audit().await;
        let expected = Value::from_iter((0..WIDTH).map(|n| json!([n])));
        let length = expected.to_string().len();
        assert_eq!(driver.run(run).await, (RunStatus::Completed, Some(json!(length))));
    }

    /// The advancer was killed, or gave the branch back: the next one continues where it stopped, and
    /// spends no budget.
    async fn another_advancer_goes_on_with_an_expand_that_has_begun(db: Db) {
        let mut driver = Driver::new(&db).await;
        let (_, branches) = claimed(&mut driver, WIDTH).await;
        driver.advance(&branches).await;
        let made = children(&mut driver).await;
        // More deaths, and more refusals, than would halt a branch that has not begun.
        for _ in 0..5 {
            driver.recover(driver.process).await;
            driver.process = register(&mut driver.conn).await;
            let again = driver.claim_branches(9).await;
            let why = GiveBack::Errored { message: "no" };
            let at_once = |_: &str, _| Duration::ZERO;
            advance::give_back(&mut driver.conn, &again, why, &at_once).await.unwrap();
            driver.audit().await;
            driver.claim_branches(9).await;
        }
        driver.recover(driver.process).await;
        driver.process = register(&mut driver.conn).await;
        assert_eq!(children(&mut driver).await, made);
        let again = driver.claim_branches(9).await;
        spread(&mut driver, &again).await;
        assert_eq!(children(&mut driver).await, WIDTH);
    }

    async fn a_zombie_advancer_spreads_nothing(db: Db) {
        let mut driver = Driver::new(&db).await;
        let (_, branches) = claimed(&mut driver, WIDTH).await;
        let spreading = driver.advance(&branches).await.spreading;
        let made = children(&mut driver).await;
        driver.recover(driver.process).await;
        driver.process = register(&mut driver.conn).await;
        let others = driver.claim_branches(9).await;
        let advanced = driver.advance(&spreading).await;
        assert_eq!(advanced.stale.len(), 1);
        assert_eq!(children(&mut driver).await, made);
        spread(&mut driver, &others).await;
        assert_eq!(children(&mut driver).await, WIDTH);
    }

    async fn a_run_that_is_cancelled_while_it_is_split_is_split_no_further(db: Db) {
        let mut driver = Driver::new(&db).await;
        let (run, branches) = claimed(&mut driver, WIDTH).await;
        let spreading = driver.advance(&branches).await.spreading;
        let made = children(&mut driver).await;
        let cancelled = cancel::cancel(&mut driver.conn, run).await.unwrap();
        assert!(matches!(cancelled, Cancel::Done { .. }));
        driver.audit().await;
        assert_eq!(driver.advance(&spreading).await.stale.len(), 1);
        assert_eq!(children(&mut driver).await, made);
    }

    /// The barrier of the first expand has fired, and is not the second's.
    async fn an_expand_that_follows_another_begins_anew(db: Db) {
        let mut driver = Driver::new(&db).await;
        let flow = Pipeline::named("P").start("A").expand("B").collapse("C").expand("D").collapse("E");
        let run = driver.trigger(&flow.build().unwrap(), "1").await;
        driver.work("P", |claimed| match claimed.step.as_str() {
            "A" => Did::Returned(json!([1, 2])),
            "C" => Did::Returned(json!([3, 4, 5])),
            _ => Did::Returned(serde_json::from_str(claimed.input.get()).unwrap()),
        }).await;
        assert_eq!(driver.run(run).await, (RunStatus::Completed, Some(json!([3, 4, 5]))));
    }

    async fn what_is_cancelled_between_two_fan_outs_has_produced_nothing(db: Db) {
        let mut driver = Driver::new(&db).await;
        let flow = Pipeline::named("P").start("A").expand("B").collapse("C").divide(["D", "E"]);
        let run = driver.trigger(&flow.combine("F").build().unwrap(), "1").await;
        let mut branches = Vec::new();
        for output in [json!([1, 2]), json!(1), json!(2)] {
            let mut finished = Vec::new();
            for claimed in driver.claim("P", 9).await {
                finished.push(driver.finished(claimed, Did::Returned(output.clone())).await);
            }
            driver.commit(&finished).await;
            spread(&mut driver, &branches).await;
            branches = driver.claim_branches(9).await;
            if output != json!(2) {
                spread(&mut driver, &std::mem::take(&mut branches)).await;
            }
        }
        assert_eq!(branches.len(), 1, "the divide");
        let cancelled = cancel::cancel(&mut driver.conn, run).await.unwrap();
        assert!(matches!(cancelled, Cancel::Done { .. }));
        driver.audit().await;
    }

    /// In one batch with other branches, which it does not hold up.
    async fn a_wide_expand_leaves_the_others_of_its_batch_alone(db: Db) {
        let mut driver = Driver::new(&db).await;
        for width in [WIDTH, 3, WIDTH, 0] {
            driver.trigger(&wide(), "1").await;
            let claimed = driver.claim("P", 1).await.remove(0);
            let list = Value::from_iter(0..width);
            let finished = [driver.finished(claimed, Did::Returned(list)).await];
            driver.commit(&finished).await;
        }
        let branches = driver.claim_branches(9).await;
        assert_eq!(branches.len(), 4);
        let advanced = driver.advance(&branches).await;
        assert!(advanced.spreading.len() >= 2, "{advanced:?}");
        assert_eq!(advanced.moved + advanced.spreading.len(), 4);
        spread(&mut driver, &advanced.spreading).await;
        assert_eq!(children(&mut driver).await, 2 * WIDTH + 3);
    }
}
