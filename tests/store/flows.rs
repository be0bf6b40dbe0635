//! Every transition, carried out: the output is the one that the definition demands.

use std::time::Duration;

use ductwork::definition::{Definition, Path, Pipeline};
use ductwork::engine::actor::limits;
use ductwork::model::*;
use ductwork::store::audit;
use ductwork::store::claim::Claimed;
use ductwork::store::statement::Statement;
use serde_json::{Value, json};

use crate::driver::{Did, Driver, input, together};
use crate::on_every_database;
use crate::support::Db;

/// A flow, its input and its output.
pub struct Flow {
    pub name: &'static str,
    pub definition: Definition,
    pub input: Value,
    pub output: Value,
    /// The number of steps that run on the way.
    pub steps: usize,
}

fn flow(name: &'static str, flow: Pipeline, input: Value, output: Value, steps: usize) -> Flow {
    let definition = flow
        .build()
        .unwrap_or_else(|error| panic!("{name}: {error:?}"));
    Flow {
        name,
        definition,
        input,
        output,
        steps,
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            format!("[{}]", items.join(","))
        }
        other => other.to_string(),
    }
}

/// A step appends its name to its input, so that an output shows its whole path.
pub fn ink(claimed: &Claimed) -> Value {
    let value = input(claimed);
    match claimed.step.as_str() {
        "Many" => (0..3).map(|i| format!("{}{i}", text(&value))).collect(),
        "None" => json!([]),
        "Object" => json!({"b": 1, "a": [2]}),
        "Same" => value,
        step => json!(format!("{}{step}", text(&value))),
    }
}

fn p() -> Pipeline {
    Pipeline::named("P")
}

fn diverted(input: Value, output: &str, steps: usize) -> Flow {
    let cases = [
        ("x", Path::to("B")),
        ("5", Path::from("C").chain("D")),
        ("true", Path::from("Many").expand("G")),
    ];
    let pipeline = p().start("Same").divert(cases, "E").converge("F");
    flow("divert", pipeline, input, json!(output), steps)
}

/// Runs the only step that is due, and the split that follows it.
async fn split(driver: &mut Driver) {
    let claimed = driver.claim("P", 9).await;
    assert_eq!(claimed.len(), 1);
    for claimed in claimed {
        let did = Did::Returned(ink(&claimed));
        let finished = driver.finished(claimed, did).await;
        driver.commit(&[finished]).await;
    }
    let branches = driver.claim_branches(9).await;
    assert_eq!(branches.len(), 1);
    driver.advance(&branches).await;
}

/// One flow of each kind, with its hard cases.
pub fn flows() -> Vec<Flow> {
    let x = || json!("x");
    vec![
        flow("one", p().start("A"), x(), json!("xA"), 1),
        flow(
            "chain",
            p().start("A").chain("B").chain("A"),
            x(),
            json!("xABA"),
            3,
        ),
        flow(
            "divide",
            p().start("A")
                .divide([Path::to("B"), Path::from("C").chain("D")])
                .combine("E"),
            x(),
            json!("[xAB,xACD]E"),
            5,
        ),
        flow(
            "divide without combine",
            p().start("A")
                .divide([Path::to("B"), Path::from("C").chain("D")]),
            x(),
            json!(["xAB", "xACD"]),
            4,
        ),
        flow(
            "expand",
            p().start("Many").expand("B").collapse("C"),
            x(),
            json!("[x0B,x1B,x2B]C"),
            5,
        ),
        flow(
            "expand without collapse",
            p().start("Many").expand("B"),
            x(),
            json!(["x0B", "x1B", "x2B"]),
            4,
        ),
        flow(
            "expand an object",
            p().start("Object").expand("B").collapse("C"),
            x(),
            json!("[[b,1]B,[a,[2]]B]C"),
            4,
        ),
        flow(
            "empty expand",
            p().start("None").expand("B").chain("X").collapse("C"),
            x(),
            json!("[]C"),
            2,
        ),
        flow(
            "empty expand without collapse",
            p().start("None").expand("B"),
            x(),
            json!([]),
            1,
        ),
        flow(
            "expand in expand",
            p().start("Many")
                .expand("Many")
                .expand("B")
                .collapse("C")
                .collapse("D"),
            x(),
            json!("[[x00B,x01B,x02B]C,[x10B,x11B,x12B]C,[x20B,x21B,x22B]C]D"),
            1 + 3 + 9 + 3 + 1,
        ),
        flow(
            "empty expand in expand",
            p().start("Many")
                .expand("None")
                .expand("B")
                .collapse("C")
                .collapse("D"),
            x(),
            json!("[[]C,[]C,[]C]D"),
            1 + 3 + 3 + 1,
        ),
        flow(
            "divide in expand",
            p().start("Many")
                .expand("A")
                .divide(["B", "C"])
                .combine("D")
                .collapse("E"),
            x(),
            json!("[[x0AB,x0AC]D,[x1AB,x1AC]D,[x2AB,x2AC]D]E"),
            1 + 3 + 6 + 3 + 1,
        ),
        flow(
            "expand in divide",
            p().start("A")
                .divide([Path::from("Many").expand("B").collapse("C"), Path::to("D")])
                .combine("E"),
            x(),
            json!("[[xA0B,xA1B,xA2B]C,xAD]E"),
            1 + 2 + 3 + 1 + 1,
        ),
        flow(
            "expand without collapse in divide, last",
            p().start("A")
                .divide([Path::to("D"), Path::from("Many").expand("B")])
                .combine("E"),
            x(),
            json!("[xAD,[xA0B,xA1B,xA2B]]E"),
            1 + 2 + 3 + 1,
        ),
        flow(
            "empty expand without collapse in divide",
            p().start("A")
                .divide([Path::to("D"), Path::from("None").expand("B")])
                .combine("E"),
            x(),
            json!("[xAD,[]]E"),
            4,
        ),
        flow(
            "nothing but fan-outs",
            p().start("Many")
                .expand("Many")
                .divide([Path::from("Many").expand("B"), Path::to("C")]),
            json!(""),
            {
                // `divide` hands the whole array to both paths.
                let each = |i: usize| {
                    let whole = format!("[{i}0,{i}1,{i}2]");
                    json!([
                        [
                            format!("{whole}0B"),
                            format!("{whole}1B"),
                            format!("{whole}2B")
                        ],
                        format!("{whole}C"),
                    ])
                };
                json!([each(0), each(1), each(2)])
            },
            1 + 3 + 6 + 9,
        ),
        diverted(json!("x"), "xBF", 3),
        diverted(json!(5), "5CDF", 4),
        diverted(json!(true), "[true0G,true1G,true2G]F", 6),
        diverted(json!("else"), "elseEF", 3),
        diverted(json!({"divert": "x"}), "{\"divert\":\"x\"}BF", 3),
        diverted(json!({"divert": null}), "{\"divert\":null}EF", 3),
        diverted(json!(null), "nullEF", 3),
        flow(
            "two fan-outs, one after the other",
            p().start("A")
                .divide(["B", "C"])
                .combine("Many")
                .expand("D")
                .collapse("E"),
            x(),
            json!("[[xAB,xAC]0D,[xAB,xAC]1D,[xAB,xAC]2D]E"),
            1 + 2 + 1 + 3 + 1,
        ),
    ]
}

/// One of three parts of the flows, with the place of each flow among all of them. The work of the parts is about
/// equal where each flow is run to each of its steps.
pub fn third(part: usize) -> impl Iterator<Item = (usize, Flow)> {
    let all = flows().into_iter().enumerate();
    all.filter(move |(place, _)| place / 4 % 3 == part)
}

on_every_database! {
    async fn every_flow_ends_with_its_output(db: Db) {
        let mut driver = Driver::new(&db).await;
        for room in [0, 2] {
            driver.room = room;
            for flow in flows() {
                let run = driver.trigger(&flow.definition, &flow.input.to_string()).await;
                let ran = driver.work("P", |claimed| Did::Returned(ink(claimed))).await;
                let ended = driver.run(run).await;
                assert_eq!(ended, (RunStatus::Completed, Some(flow.output)), "{}", flow.name);
                assert_eq!(ran.len(), flow.steps, "{}: {ran:?}", flow.name);
                driver.forget().await;
            }
        }
    }

    async fn errors_and_crashes_on_the_way_change_no_output(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.limits = limits(1, 2);
        driver.room = 1;
        for flow in flows() {
            let run = driver.trigger(&flow.definition, &flow.input.to_string()).await;
            let ran = driver
                .work("P", |claimed| match claimed.attempt {
                    1 => Did::Erred,
                    2 => Did::Crashed,
                    _ => Did::Returned(ink(claimed)),
                })
                .await;
            let ended = driver.run(run).await;
            assert_eq!(ended, (RunStatus::Completed, Some(flow.output)), "{}", flow.name);
            assert_eq!(ran.len(), 3 * flow.steps, "{}: {ran:?}", flow.name);
            driver.forget().await;
        }
    }

    async fn what_cannot_be_advanced_halts_and_says_why(db: Db) {
        let mut driver = Driver::new(&db).await;
        let expand = p().start("Many").expand("B").collapse("C").build().unwrap();
        driver.advance_limits.max_fan_out = Some(2);
        let run = driver.trigger(&expand, "\"x\"").await;
        driver.work("P", |claimed| Did::Returned(ink(claimed))).await;
        assert_eq!(driver.run(run).await, (RunStatus::Halted, None));
        assert_eq!(driver.halt_reasons(run).await, ["max_fanout_exceeded"]);
        driver.advance_limits.max_fan_out = None;
        let run = driver.trigger(&expand, "\"x\"").await;
        driver.work("P", |_| Did::Returned(json!("no array"))).await;
        assert_eq!(driver.halt_reasons(run).await, ["transition_invalid"]);
        driver.advance_limits.max_payload = 10;
        let run = driver.trigger(&expand, "\"x\"").await;
        driver.work("P", |claimed| Did::Returned(ink(claimed))).await;
        assert_eq!(driver.run(run).await, (RunStatus::Halted, None));
        assert_eq!(driver.halt_reasons(run).await, ["payload_too_large"]);
    }

    async fn a_halted_branch_lets_its_siblings_end_first(db: Db) {
        let mut driver = Driver::new(&db).await;
        let flow = p().start("Many").expand("B").collapse("C").build().unwrap();
        let run = driver.trigger(&flow, "\"x\"").await;
        let ran = driver
            .work("P", |claimed| match (claimed.step.as_str(), claimed.ordinal) {
                ("B", 0) => Did::Refused,
                _ => Did::Returned(ink(claimed)),
            })
            .await;
        assert_eq!(ran, ["Many", "B", "B", "B"]);
        assert_eq!(driver.run(run).await, (RunStatus::Halted, None));
        assert_eq!(driver.halt_reasons(run).await, ["job_retries_exhausted"]);
    }

    async fn a_hook_runs_once_for_a_halted_run(db: Db) {
        let mut driver = Driver::new(&db).await;
        let flow = p().on_halt("Notify").start("Many").expand("B").build().unwrap();
        let run = driver.trigger(&flow, "\"x\"").await;
        let mut told = Vec::new();
        let ran = driver
            .work("P", |claimed| match claimed.step.as_str() {
                "Many" => Did::Returned(ink(claimed)),
                "Notify" => {
                    told.push(input(claimed));
                    Did::Returned(json!(null))
                }
                _ => Did::Refused,
            })
            .await;
        assert_eq!(ran.len(), 1 + 3 + 1);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0]["run_id"], json!(run.to_string()));
        assert_eq!(told[0]["halts"].as_array().map(Vec::len), Some(3));
        assert_eq!(told[0]["halts"][0]["reason"], "job_retries_exhausted");
        assert_eq!(driver.run(run).await, (RunStatus::Halted, None));
    }

    async fn a_hook_that_fails_harms_nothing(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.limits = limits(1, 1);
        let flow = p().on_halt("Notify").start("A").build().unwrap();
        let run = driver.trigger(&flow, "\"x\"").await;
        let ran = driver.work("P", |_| Did::Erred).await;
        assert_eq!(ran.len(), 4);
        assert_eq!(driver.run(run).await, (RunStatus::Halted, None));
    }

    /// The definition's text is stored verbatim, and PostgreSQL parses no JSON that contains a NUL.
    async fn whatever_a_definition_holds_is_no_trouble_to_an_audit(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.limits = limits(0, 1);
        for name in ["P", "A_B"] {
            let flow = Pipeline::named(name).on_halt("H").start("A").divert([("\0", "B")], "C");
            let flow = flow.converge("D").dampen("a\0b").chain("E").build().unwrap();
            let run = driver.trigger(&flow, "\"x\"").await;
            let ran = driver.work(name, |_| Did::Refused).await;
            assert_eq!(ran, ["A", "(on_halt)"]);
            assert_eq!(driver.run(run).await, (RunStatus::Halted, None));
        }
        // The audit notices that a hook is missing.
        static UNHOOK: Statement = Statement::new(
            "TEST_UNHOOK",
            "DELETE FROM ductwork_steps WHERE via = 'on_halt' AND run_id IN
                (SELECT id FROM ductwork_runs WHERE pipeline = 'A_B')",
        );
        driver.conn.execute(&UNHOOK, &[]).await.unwrap();
        let broken = audit::audit(&mut driver.conn, Duration::ZERO).await.unwrap();
        assert!(broken.iter().any(|violation| violation.invariant == "I23"), "{broken:#?}");
    }

    async fn two_last_siblings_at_once_fire_the_barrier_once(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.audited = false;
        let flow = p().start("A").divide(["B", "C"]).combine("D").on_halt("H");
        let definition = flow.build().unwrap();
        for round in 0..25 {
            let run = driver.trigger(&definition, "\"x\"").await;
            split(&mut driver).await;
            // Both fail: a halted branch arrives through an advancer.
            let claimed = driver.claim("P", 9).await;
            let mut finished = Vec::new();
            for claimed in claimed {
                finished.push(driver.finished(claimed, Did::Refused).await);
            }
            driver.commit(&finished).await;
            let mut siblings = Vec::new();
            for _ in 0..2 {
                let mut sibling = Driver::new(&db).await;
                sibling.audited = false;
                let branches = sibling.claim_branches(1).await;
                assert_eq!(branches.len(), 1);
                siblings.push((sibling, branches));
            }
            let moved = together(siblings.into_iter().map(|(mut sibling, branches)| async move {
                let advanced = sibling.advance(&branches).await;
                (advanced.moved, advanced.crossed.ended.len())
            }));
            let mut moved = moved.await;
            moved.sort();
            assert_eq!(moved, [(1, 0), (1, 1)], "round {round}");
            assert_eq!(driver.work("P", |claimed| Did::Returned(ink(claimed))).await, ["(on_halt)"]);
            assert_eq!(driver.run(run).await.0, RunStatus::Halted);
        }
        crate::driver::audit(&mut driver.conn).await;
    }

    async fn the_last_two_siblings_at_two_workers_leave_one_to_the_advancer(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.audited = false;
        let definition = p().start("A").divide(["B", "C"]).combine("D").build().unwrap();
        let mut workers = Vec::new();
        for _ in 0..2 {
            let mut worker = Driver::new(&db).await;
            worker.audited = false;
            workers.push(worker);
        }
        for round in 0..25 {
            let run = driver.trigger(&definition, "\"x\"").await;
            split(&mut driver).await;
            let mut results = Vec::new();
            for worker in &mut workers {
                let claimed = worker.claim("P", 1).await.remove(0);
                let did = Did::Returned(ink(&claimed));
                results.push(worker.finished(claimed, did).await);
            }
            // Both at once, each in its own transaction.
            let committing = workers.drain(..).zip(results).map(|(mut worker, result)| async move {
                let committed = worker.commit(&[result]).await;
                (worker, committed.ready)
            });
            let mut left = 0;
            for (worker, ready) in together(committing.collect::<Vec<_>>()).await {
                workers.push(worker);
                left += usize::from(ready);
            }
            assert_eq!(left, 1, "round {round}");
            let branches = driver.claim_branches(9).await;
            assert_eq!(branches.len(), 1);
            assert_eq!(driver.advance(&branches).await.moved, 1);
            assert_eq!(driver.work("P", |claimed| Did::Returned(ink(claimed))).await, ["D"]);
            assert_eq!(driver.run(run).await.1, Some(json!("[xAB,xAC]D")));
        }
        crate::driver::audit(&mut driver.conn).await;
    }

    async fn a_worker_and_an_advancer_with_the_last_siblings_lose_neither(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.audited = false;
        let definition = p().start("A").divide(["B", "C"]).combine("D").build().unwrap();
        for round in 0..25 {
            let run = driver.trigger(&definition, "\"x\"").await;
            split(&mut driver).await;
            let mut worker = Driver::new(&db).await;
            worker.audited = false;
            let fails = driver.claim("P", 1).await.remove(0);
            let succeeds = worker.claim("P", 1).await.remove(0);
            let failed = driver.finished(fails, Did::Refused).await;
            driver.commit(&[failed]).await;
            let branches = driver.claim_branches(9).await;
            let succeeded = worker.finished(succeeds, Did::Returned(json!(1))).await;
            // The failure has yet to arrive, or has just arrived: only in the latter case was the
            // success last.
            let committing = async { worker.commit(&[succeeded]).await.ready };
            let advancing = async { driver.advance(&branches).await.crossed.ended.len() };
            let (ready, ended) = tokio::join!(committing, advancing);
            assert_eq!((ready, ended), if ready { (true, 0) } else { (false, 1) }, "round {round}");
            assert_eq!(driver.work("P", |_| Did::Refused).await, [""; 0]);
            assert_eq!(driver.run(run).await.0, RunStatus::Halted);
        }
        crate::driver::audit(&mut driver.conn).await;
    }

    async fn a_result_that_came_too_late_does_not_arrive(db: Db) {
        let mut driver = Driver::new(&db).await;
        let mut late = Driver::new(&db).await;
        let definition = p().start("Many").expand("B").collapse("C").build().unwrap();
        let run = driver.trigger(&definition, "\"x\"").await;
        split(&mut driver).await;
        let mut results = Vec::new();
        for claimed in late.claim("P", 2).await {
            let did = Did::Returned(ink(&claimed));
            results.push(late.finished(claimed, did).await);
        }
        // One of the two executions is taken away and finished by another process, which is the
        // first to arrive.
        let process = late.process;
        let lost = results[0].claimed.execution_id;
        static TAKE: Statement = Statement::new(
            "test take",
            "UPDATE ductwork_executions SET process_id = :to WHERE id = :id AND process_id = :from",
        );
        let args = [
            ("to", driver.process.0.into()),
            ("id", lost.0.into()),
            ("from", process.0.into()),
        ];
        assert_eq!(driver.conn.execute(&TAKE, &args).await.unwrap(), 1);
        let committed = late.commit(&results).await;
        assert_eq!((committed.stale.len(), committed.ready), (1, false));
        let committed = driver.commit(&results[..1]).await;
        assert_eq!((committed.stale.len(), committed.ready), (0, false));
        driver.work("P", |claimed| Did::Returned(ink(claimed))).await;
        assert_eq!(driver.run(run).await.1, Some(json!("[x0B,x1B,x2B]C")));
    }

    async fn nobody_but_the_last_of_a_fan_out_waits_for_an_advancer(db: Db) {
        let mut driver = Driver::new(&db).await;
        let flow = p().start("Many").expand("Many").expand("G");
        let flow = flow.collapse("H").collapse("C");
        let run = driver.trigger(&flow.build().unwrap(), "\"x\"").await;
        let mut advanced = 0;
        loop {
            let claimed = driver.claim("P", 100).await;
            if claimed.is_empty() {
                break;
            }
            let mut finished = Vec::new();
            for claimed in claimed {
                let did = Did::Returned(ink(&claimed));
                finished.push(driver.finished(claimed, did).await);
            }
            driver.commit(&finished).await;
            let branches = driver.claim_branches(100).await;
            advanced += branches.len();
            driver.advance(&branches).await;
        }
        assert_eq!(driver.run(run).await.0, RunStatus::Completed);
        // Four expands, and the last arrival at the barrier of each.
        assert_eq!(advanced, 8);
    }

    async fn large_outputs_are_advanced_a_few_at_a_time(db: Db) {
        let mut driver = Driver::new(&db).await;
        let definition = p().start("A").expand("B").build().unwrap();
        let large = "x".repeat(9 << 20);
        let mut runs = Vec::new();
        for _ in 0..3 {
            runs.push(driver.trigger(&definition, "0").await);
        }
        for claimed in driver.claim("P", 9).await {
            let finished = driver.finished(claimed, Did::Returned(json!([large]))).await;
            driver.commit(&[finished]).await;
        }
        // Each is read in full, so two of them at once would be too much.
        let mut branches = driver.claim_branches(9).await;
        for left in [2, 1, 0] {
            let advanced = driver.advance(&branches).await;
            assert_eq!((advanced.moved, advanced.left.len()), (1, left));
            assert_eq!(advanced.stale, []);
            branches = advanced.left;
        }
        let ran = driver.work("P", |_| Did::Returned(json!(1))).await;
        assert_eq!(ran, ["B", "B", "B"]);
        for run in runs {
            assert_eq!(driver.run(run).await.1, Some(json!([1])));
        }
    }

    async fn processes_at_once_bring_every_flow_to_its_end(db: Db) {
        let mut driver = Driver::new(&db).await;
        let mut runs = Vec::new();
        for flow in flows() {
            let run = driver.trigger(&flow.definition, &flow.input.to_string()).await;
            runs.push((run, flow));
        }
        let steps: Vec<usize> = together((0..4).map(|process| {
            let db = db.clone();
            async move {
                let mut driver = Driver::new(&db).await;
                driver.audited = false;
                driver.room = process;
                let mut ran = 0;
                // A process that finds no work may get some while others work: it looks a few more
                // times.
                let mut idle = 0;
                while idle < 20 {
                    let mut step = |claimed: &Claimed| {
                        ran += 1;
                        Did::Returned(ink(claimed))
                    };
                    if driver.round("P", &mut step).await {
                        idle = 0;
                    } else {
                        idle += 1;
                        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                    }
                }
                ran
            }
        }))
        .await;
        driver.work("P", |_| panic!("all was done")).await;
        driver.audit().await;
        for (run, flow) in &runs {
            let ended = driver.run(*run).await;
            assert_eq!(ended, (RunStatus::Completed, Some(flow.output.clone())), "{}", flow.name);
        }
        let expected: usize = runs.iter().map(|(_, flow)| flow.steps).sum();
        assert_eq!(steps.into_iter().sum::<usize>(), expected);
    }
}
