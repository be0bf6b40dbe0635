//! Reviving with another definition, where that definition could itself have led the run to its
//! halt.

use std::collections::HashMap;

use ductwork::definition::Pipeline;
use ductwork::model::*;
use ductwork::store::context;
use ductwork::store::resume::{Resume, resume};
use ductwork::store::revive::{Revive, Wanted, revive, revive_as};
use serde_json::{Value, json};

use crate::driver::{Did, Driver};
use crate::flows::{Flow, flows, ink, third};
use crate::on_every_database;
use crate::support::Db;

/// Works as in every test, but without an audit after each transaction.
async fn work(driver: &mut Driver) -> Vec<String> {
    driver.audited = false;
    let ran = driver
        .work("P", |claimed| Did::Returned(ink(claimed)))
        .await;
    driver.audited = true;
    ran
}

/// A run in which the step at this position of its order refuses.
async fn halted(driver: &mut Driver, flow: &Flow, at: usize) -> RunId {
    let run = driver
        .trigger(&flow.definition, &flow.input.to_string())
        .await;
    let mut ran = 0;
    driver.audited = false;
    let step = |claimed: &_| {
        ran += 1;
        match ran == at + 1 {
            true => Did::Refused,
            false => Did::Returned(ink(claimed)),
        }
    };
    driver.work("P", step).await;
    driver.audited = true;
    assert_eq!(driver.run(run).await.0, RunStatus::Halted);
    run
}

fn wanted(flow: &Flow) -> Wanted<'_> {
    Wanted {
        definition: Some(&flow.definition),
        ..Wanted::SAME
    }
}

/// Every flow of a part, halted at each of its nodes, is offered every flow as its new definition. Where it is
/// accepted, the output is that of the new definition: as if the run had had it from the beginning.
async fn goes_on_with_another(db: Db, part: usize) {
    let mut driver = Driver::new(&db).await;
    let flows = flows();
    let mut ends: HashMap<(usize, String), (RunStatus, Option<Value>)> = HashMap::new();
    let (mut taken, mut others, mut refused) = (0, 0, 0);
    for (index, flow) in third(part) {
        driver
            .trigger(&flow.definition, &flow.input.to_string())
            .await;
        let order = work(&mut driver).await;
        let mut places: Vec<usize> = Vec::new();
        for (at, node) in order.iter().enumerate() {
            let first = order.iter().position(|it| it == node) == Some(at);
            let last = order.iter().rposition(|it| it == node) == Some(at);
            places.extend((first || last).then_some(at));
        }
        for at in places {
            let mut run = halted(&mut driver, &flow, at).await;
            for (other, new) in flows.iter().enumerate() {
                let place = format!("{} at {at} ({}) as {}", flow.name, order[at], new.name);
                let next = match revive_as(&mut driver.conn, run, wanted(new)).await.unwrap() {
                    Revive::Disagrees(why) => {
                        assert!(other != index && !why.is_empty(), "{place}: {why:?}");
                        refused += 1;
                        continue;
                    }
                    Revive::Done(next) => next,
                    unexpected => panic!("{place}: {unexpected:?}"),
                };
                // The next audit covers the rest of the run.
                driver.audit().await;
                work(&mut driver).await;
                let key = (other, flow.input.to_string());
                if !ends.contains_key(&key) {
                    let whole = driver.trigger(&new.definition, &key.1).await;
                    work(&mut driver).await;
                    ends.insert(key.clone(), driver.run(whole).await);
                }
                assert_eq!(driver.run(next).await, ends[&key], "{place}");
                taken += 1;
                others += usize::from(new.definition.digest() != flow.definition.digest());
                run = halted(&mut driver, &flow, at).await;
            }
            driver.audit().await;
            // An audit reads all that there is.
            driver.forget().await;
        }
    }
    // In all three parts together, more than 20 others are taken.
    assert!(
        others > 6 && taken > others && refused > taken,
        "{taken}, {others}, {refused}"
    );
}

mod a_run_goes_on_with_a_definition_that_could_have_brought_it_there_and_with_no_other {
    use super::*;

    on_every_database! {
        async fn in_the_first_third_of_the_flows(db: Db) {
            goes_on_with_another(db, 0).await;
        }

        async fn in_the_second_third_of_the_flows(db: Db) {
            goes_on_with_another(db, 1).await;
        }

        async fn in_the_last_third_of_the_flows(db: Db) {
            goes_on_with_another(db, 2).await;
        }
    }
}

on_every_database! {
    async fn a_refusal_names_the_node_and_writes_nothing(db: Db) {
        let mut driver = Driver::new(&db).await;
        let p = || Pipeline::named("P").start("A").expand("B").chain("C").collapse("D");
        let old = p().build().unwrap();
        let run = driver.trigger(&old, "\"x\"").await;
        driver
            .work("P", |claimed| match (claimed.step.as_str(), claimed.ordinal) {
                ("A", _) => Did::Returned(json!([1, 2])),
                ("C", 1) => Did::Refused,
                _ => Did::Returned(ink(claimed)),
            })
            .await;
        let other = Pipeline::named("P").start("A").expand("B").chain("E").chain("C").collapse("D");
        let gone = Pipeline::named("P").start("A").expand("B").collapse("D");
        let inside = Pipeline::named("P").start("A").chain("B").chain("C").chain("D");
        let longer = Pipeline::named("P").start("A").expand("B").chain("C").chain("E").collapse("D");
        let told: [(Pipeline, &[&str]); 4] = [
            (other, &["`B` does not lead to `C` there as it did in the run"]),
            (gone, &["it has no `C`"]),
            (
                inside,
                &[
                    "`A` does not expand there",
                    "branches that ended after `C` would have more to do there",
                ],
            ),
            (longer, &["branches that ended after `C` would have more to do there"]),
        ];
        for (new, expected) in told {
            let new = new.build().unwrap();
            let wanted = Wanted { definition: Some(&new), ..Wanted::SAME };
            let why: Vec<String> = expected.iter().map(|it| (*it).to_owned()).collect();
            let revived = revive_as(&mut driver.conn, run, wanted).await.unwrap();
            assert_eq!(revived, Revive::Disagrees(why));
        }
        // A definition that agrees, and has more steps after the collapse.
        let new = p().chain("E").build().unwrap();
        let wanted = Wanted { definition: Some(&new), ..Wanted::SAME };
        let Revive::Done(next) = revive_as(&mut driver.conn, run, wanted).await.unwrap() else {
            panic!("it agrees");
        };
        driver.audit().await;
        assert_eq!(work(&mut driver).await, ["C", "D", "E"]);
        assert_eq!(driver.run(next).await, (RunStatus::Completed, Some(json!("[1BC,2BC]DE"))));
        driver.audit().await;
    }

    async fn a_context_is_left_behind_where_it_is_not_wanted(db: Db) {
        let mut driver = Driver::new(&db).await;
        let definition = Pipeline::named("P").start("A").build().unwrap();
        for kept in [true, false] {
            let run = driver.trigger(&definition, "1").await;
            context::set(&mut driver.conn, run, "k", "[1]").await.unwrap();
            driver.work("P", |_| Did::Refused).await;
            let wanted = Wanted { context: kept, ..Wanted::SAME };
            let Revive::Done(next) = revive_as(&mut driver.conn, run, wanted).await.unwrap() else {
                panic!("it had halted");
            };
            let copied = context::get(&mut driver.conn, next, "k").await.unwrap();
            assert_eq!(copied.is_some(), kept);
            work(&mut driver).await;
        }
    }

    /// Advancing with it again would halt the new run as it halted the old one.
    async fn an_output_that_fits_no_way_on_is_made_anew(db: Db) {
        let mut driver = Driver::new(&db).await;
        let flow = Pipeline::named("P").start("A").chain("Many").expand("B").collapse("C");
        let definition = flow.build().unwrap();
        let run = driver.trigger(&definition, "\"x\"").await;
        let ran = driver.work("P", |_| Did::Returned(json!("no list"))).await;
        assert_eq!(ran, ["A", "Many"]);
        assert_eq!(driver.halt_reasons(run).await, ["transition_invalid"]);
        let Revive::Done(next) = revive(&mut driver.conn, run).await.unwrap() else {
            panic!("it had halted");
        };
        driver.audit().await;
        assert_eq!(work(&mut driver).await, ["Many", "B", "B", "B", "C"]);
        let output = "[no list0B,no list1B,no list2B]C";
        assert_eq!(driver.run(next).await, (RunStatus::Completed, Some(json!(output))));
        driver.audit().await;
        // A definition that can use the output keeps it.
        let run = driver.trigger(&definition, "\"x\"").await;
        driver.work("P", |_| Did::Returned(json!("no list"))).await;
        let chain = Pipeline::named("P").start("A").chain("Many").chain("C").build().unwrap();
        let wanted = Wanted { definition: Some(&chain), ..Wanted::SAME };
        let Revive::Done(next) = revive_as(&mut driver.conn, run, wanted).await.unwrap() else {
            panic!("it agrees");
        };
        assert_eq!(work(&mut driver).await, ["C"]);
        assert_eq!(driver.run(next).await, (RunStatus::Completed, Some(json!("no listC"))));
        driver.audit().await;
    }

    async fn a_person_whose_answer_fits_no_way_on_is_asked_again(db: Db) {
        let mut driver = Driver::new(&db).await;
        let asks = || Pipeline::named("P").start("A").dampen("which?").expand("B").collapse("C");
        let flow = Pipeline::named("P").start("Many").expand("A").dampen("which?").expand("B").collapse("C");
        for (definition, many) in [(asks(), 1), (flow.collapse("D"), 3)] {
            let definition = definition.build().unwrap();
            let run = driver.trigger(&definition, "\"x\"").await;
            work(&mut driver).await;
            assert_eq!(resume(&mut driver.conn, run, None, None, None).await.unwrap(), Resume::Done(many));
            work(&mut driver).await;
            assert_eq!(driver.run(run).await.0, RunStatus::Halted);
            let Revive::Done(next) = revive(&mut driver.conn, run).await.unwrap() else {
                panic!("it had halted");
            };
            driver.audit().await;
            assert_eq!(driver.run(next).await.0, RunStatus::Dampened);
            let waiting = ductwork::store::resume::waiting(&mut driver.conn, next).await.unwrap();
            assert_eq!(waiting.len(), many);
            for step in waiting {
                let resumed = resume(&mut driver.conn, next, Some(step.step_id), Some("[1]"), None).await;
                assert_eq!(resumed.unwrap(), Resume::Done(1));
                driver.audit().await;
            }
            work(&mut driver).await;
            assert_eq!(driver.run(next).await.0, RunStatus::Completed);
            driver.audit().await;
            driver.forget().await;
        }
    }
}
