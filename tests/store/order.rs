//! The order of the queue: a branch that has begun precedes one that has not.

use ductwork::definition::{Definition, Pipeline};
use ductwork::store::resume::{Resume, resume};
use serde_json::json;

use crate::driver::{Did, Driver};
use crate::on_every_database;
use crate::support::Db;

/// The nodes of the next executions, claimed and finished one after the other.
async fn next(driver: &mut Driver, times: usize, output: serde_json::Value) -> Vec<String> {
    let mut nodes = Vec::new();
    for _ in 0..times {
        let [claimed] = <[_; 1]>::try_from(driver.claim("P", 1).await).expect("one is due");
        nodes.push(format!("{} {}", claimed.node, claimed.input.get()));
        let finished = driver
            .finished(claimed, Did::Returned(output.clone()))
            .await;
        driver.commit(&[finished]).await;
        loop {
            let branches = driver.claim_branches(100).await;
            if branches.is_empty() {
                break;
            }
            driver.advance(&branches).await;
        }
    }
    nodes
}

fn chain() -> Definition {
    let pipeline = Pipeline::named("P").start("A").chain("B").chain("C");
    pipeline.build().unwrap()
}

/// Three elements, each of which is divided and combined.
fn nested() -> Definition {
    Pipeline::named("P")
        .start("Split")
        .expand("A")
        .divide(["B", "C"])
        .combine("D")
        .collapse("E")
        .build()
        .unwrap()
}

on_every_database! {
    async fn a_run_that_has_begun_is_finished_before_the_next_begins(db: Db) {
    let mut driver = Driver::new(&db).await;
    for input in ["1", "2"] {
        driver.trigger(&chain(), input).await;
    }
    let nodes = next(&mut driver, 6, json!(0)).await;
    assert_eq!(nodes, ["A 1", "B 0", "C 0", "A 2", "B 0", "C 0"]);
}

    async fn an_element_is_finished_before_the_next_begins(db: Db) {
    let mut driver = Driver::new(&db).await;
    driver.trigger(&nested(), "0").await;
    assert_eq!(next(&mut driver, 1, json!([1, 2])).await, ["Split 0"]);
    let nodes = next(&mut driver, 9, json!(0)).await;
    let names: Vec<&str> = nodes.iter().map(|node| &node[..1]).collect();
    assert_eq!(names, ["A", "B", "C", "D", "A", "B", "C", "D", "E"]);
}

    async fn the_elements_of_an_expand_queue_behind_the_runs_that_were_triggered_before(db: Db) {
    let mut driver = Driver::new(&db).await;
    for input in ["0", "1"] {
        driver.trigger(&nested(), input).await;
    }
    assert_eq!(next(&mut driver, 1, json!([1])).await, ["Split 0"]);
    let nodes = next(&mut driver, 2, json!([1])).await;
    assert_eq!(nodes, ["Split 1", "A 1"]);
}

    /// Each precedes the backlog of its own pipeline.
    async fn branches_of_two_pipelines_are_advanced_together(db: Db) {
        let mut driver = Driver::new(&db).await;
        let names = ["P", "Q"];
        let mut runs = Vec::new();
        for name in names {
            let asks = Pipeline::named(name).start("A").dampen("").chain("B").build().unwrap();
            runs.push(driver.trigger(&asks, "1").await);
            driver.work(name, |_| Did::Returned(json!(1))).await;
            driver.trigger(&asks, "2").await;
        }
        for run in runs {
            let resumed = resume(&mut driver.conn, run, None, None, None).await.unwrap();
            assert_eq!(resumed, Resume::Done(1));
        }
        let branches = driver.claim_branches(9).await;
        assert_eq!(branches.len(), 2);
        assert_eq!(driver.advance(&branches).await.moved, 2);
        for name in names {
            let claimed = driver.claim(name, 1).await;
            assert_eq!(claimed[0].node, "B", "{name}");
        }
        driver.audit().await;
    }
}
