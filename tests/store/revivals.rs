//! Reviving: completed steps are not executed again, and halted branches continue where they
//! halted.

use ductwork::definition::Pipeline;
use ductwork::engine::actor::limits;
use ductwork::machine::halt::Obstacle;
use ductwork::model::*;
use ductwork::store::cancel::{Cancel, cancel};
use ductwork::store::claim::Claimed;
use ductwork::store::context;
use ductwork::store::query;
use ductwork::store::revive::{Revive, obstacle, revive};
use ductwork::store::statement::Statement;
use serde_json::json;

use crate::driver::{Did, Driver, input, together};
use crate::flows::{flows, ink, third};
use crate::on_every_database;
use crate::support::Db;

async fn revived(driver: &mut Driver, run: RunId) -> RunId {
    match revive(&mut driver.conn, run).await.unwrap() {
        Revive::Done(revived) => {
            driver.audit().await;
            revived
        }
        other => panic!("{other:?}"),
    }
}

async fn work(driver: &mut Driver) -> Vec<String> {
    driver
        .work("P", |claimed| Did::Returned(ink(claimed)))
        .await
}

static ANOTHER_SUCCESSOR: Statement = Statement::new(
    "TEST_ANOTHER_SUCCESSOR",
    "UPDATE ductwork_runs SET revived_from = :origin WHERE id = :run",
);

/// As if the clock had been set back by an hour before the revival.
static REVIVED_EARLIER: Statement = Statement::new(
    "TEST_REVIVED_EARLIER",
    "UPDATE ductwork_runs SET triggered_at = triggered_at - 3600000000 WHERE revived_from IS NOT NULL",
);

/// Halts a run of each flow of a part at each of its steps.
async fn halts_anywhere(db: Db, part: usize) {
    let mut driver = Driver::new(&db).await;
    for (_, flow) in third(part) {
        for halting in 0..flow.steps {
            let run = driver
                .trigger(&flow.definition, &flow.input.to_string())
                .await;
            let mut ran = Vec::new();
            let mut refused = None;
            // The path to the halt is the same as in every run
            // (`every_flow_ends_with_its_output`).
            driver.audited = false;
            let mut step = |claimed: &Claimed| {
                ran.push(claimed.node.clone());
                if ran.len() == halting + 1 {
                    refused = Some(claimed.node.clone());
                    return Did::Refused;
                }
                Did::Returned(ink(claimed))
            };
            while driver.round("P", &mut step).await {}
            driver.audited = true;
            driver.audit().await;
            assert_eq!(driver.run(run).await, (RunStatus::Halted, None));
            let again = revived(&mut driver, run).await;
            let rest = work(&mut driver).await;
            let ended = driver.run(again).await;
            let at = format!("{} at {refused:?}: {ran:?}, {rest:?}", flow.name);
            assert_eq!(
                ended,
                (RunStatus::Completed, Some(flow.output.clone())),
                "{at}"
            );
            assert_eq!(ran.len() + rest.len(), flow.steps + 1, "{at}");
            assert!(rest.contains(&refused.unwrap()), "{at}");
            driver.forget().await;
        }
    }
}

mod a_run_that_halts_anywhere_is_revived_there {
    use super::*;

    on_every_database! {
        async fn in_the_first_third_of_the_flows(db: Db) {
            halts_anywhere(db, 0).await;
        }

        async fn in_the_second_third_of_the_flows(db: Db) {
            halts_anywhere(db, 1).await;
        }

        async fn in_the_last_third_of_the_flows(db: Db) {
            halts_anywhere(db, 2).await;
        }
    }
}

on_every_database! {
    async fn a_run_whose_every_step_halts_once_comes_to_its_end(db: Db) {
        let mut driver = Driver::new(&db).await;
        for flow in flows() {
            let mut run = driver.trigger(&flow.definition, &flow.input.to_string()).await;
            let mut done = std::collections::BTreeSet::new();
            let mut steps = 0;
            loop {
                // Each piece of work is identified by its node and its input.
                let ran = driver
                    .work("P", |claimed| {
                        let piece = (claimed.node.clone(), claimed.input.get().to_owned());
                        match done.insert(piece) {
                            true => Did::Refused,
                            false => Did::Returned(ink(claimed)),
                        }
                    })
                    .await;
                steps += ran.len();
                if driver.run(run).await.0 == RunStatus::Completed {
                    break;
                }
                run = revived(&mut driver, run).await;
            }
            assert_eq!(driver.run(run).await.1, Some(flow.output), "{}", flow.name);
            // No step was executed twice. (Equal elements of one expand share a piece.)
            assert!(steps <= 2 * flow.steps, "{}: {steps} > 2 × {}", flow.name, flow.steps);
            driver.forget().await;
        }
    }

    /// A step that crashed too often has no output; advancing it would lose data (T3).
    async fn a_step_is_run_again_whichever_budget_ran_out(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.limits = limits(1, 2);
        let definition = Pipeline::named("P").start("A").chain("B").build().unwrap();
        let ends: [(fn() -> Did, u64); 4] =
            [(|| Did::Erred, 1), (|| Did::Refused, 0), (|| Did::TimedOut, 1), (|| Did::Crashed, 1)];
        for (end, again) in ends {
            let run = driver.trigger(&definition, "\"x\"").await;
            driver
                .work("P", |claimed| match claimed.step.as_str() {
                    "B" => end(),
                    _ => Did::Returned(ink(claimed)),
                })
                .await;
            let retried = query::retried(&mut driver.conn, run).await.unwrap();
            assert_eq!(retried.get("B").copied().unwrap_or_default(), again);
            assert_eq!(retried.get("A"), None);
            let again = revived(&mut driver, run).await;
            assert_eq!(work(&mut driver).await, ["B"]);
            assert_eq!(driver.run(again).await, (RunStatus::Completed, Some(json!("xAB"))));
        }
    }

    async fn what_could_not_be_advanced_is_advanced_again(db: Db) {
        let mut driver = Driver::new(&db).await;
        let flow = Pipeline::named("P").start("Many").expand("B").collapse("C");
        let definition = flow.build().unwrap();
        let run = driver.trigger(&definition, "\"x\"").await;
        driver.advance_limits.max_fan_out = Some(2);
        assert_eq!(work(&mut driver).await, ["Many"]);
        assert_eq!(driver.halt_reasons(run).await, ["max_fanout_exceeded"]);
        // Nothing has changed, so it halts again; then the limit is lifted.
        let run = revived(&mut driver, run).await;
        assert_eq!(work(&mut driver).await, [""; 0]);
        assert_eq!(driver.halt_reasons(run).await, ["max_fanout_exceeded"]);
        driver.advance_limits.max_fan_out = None;
        let run = revived(&mut driver, run).await;
        assert_eq!(work(&mut driver).await, ["B", "B", "B", "C"]);
        assert_eq!(driver.run(run).await, (RunStatus::Completed, Some(json!("[x0B,x1B,x2B]C"))));
    }

    async fn a_fan_in_that_was_too_large_fires_again(db: Db) {
        let mut driver = Driver::new(&db).await;
        for flow in flows() {
            let run = driver.trigger(&flow.definition, &flow.input.to_string()).await;
            let mut run = run;
            let mut steps = 0;
            let mut revivals = 0;
            // Each level of fan-ins is larger than the one within it.
            for max_payload in [0, 5, 10, 20, 40, 80, 200] {
                driver.advance_limits.max_payload = max_payload;
                steps += work(&mut driver).await.len();
                if driver.run(run).await.0 == RunStatus::Completed {
                    break;
                }
                let reasons = driver.halt_reasons(run).await;
                assert!(reasons.iter().all(|reason| reason == "payload_too_large"));
                run = revived(&mut driver, run).await;
                revivals += 1;
            }
            let ended = driver.run(run).await;
            assert_eq!(ended, (RunStatus::Completed, Some(flow.output)), "{}", flow.name);
            assert_eq!(steps, flow.steps, "{} did something twice", flow.name);
            let fans_in = flow.definition.nodes.iter().any(|node| {
                let edge = &node.next;
                matches!(edge, ductwork::definition::Edge::Divide { .. })
            });
            assert!(revivals > 0 || !fans_in, "{}", flow.name);
            driver.forget().await;
        }
    }

    async fn of_sixteen_revives_at_once_one_wins(db: Db) {
        let mut driver = Driver::new(&db).await;
        let definition = Pipeline::named("P").start("A").build().unwrap();
        let run = driver.trigger(&definition, "1").await;
        driver.work("P", |_| Did::Refused).await;
        let revivals = together((0..16).map(|_| {
            let db = db.clone();
            async move {
                let mut conn = db.conn().await;
                revive(&mut conn, run).await.unwrap()
            }
        }));
        let revivals = revivals.await;
        let done: Vec<RunId> = revivals
            .iter()
            .filter_map(|revive| match revive {
                Revive::Done(run) => Some(*run),
                _ => None,
            })
            .collect();
        assert_eq!(done.len(), 1, "{revivals:?}");
        let others = revivals.iter().filter(|revive| **revive == Revive::AlreadyRevived(done[0]));
        assert_eq!(others.count(), 15, "{revivals:?}");
        // Also without the row's lock.
        let other = driver.trigger(&definition, "1").await;
        let args = [("run", other.0.into()), ("origin", run.0.into())];
        assert!(driver.conn.execute(&ANOTHER_SUCCESSOR, &args).await.is_err());
        driver.audit().await;
        assert_eq!(work(&mut driver).await, ["A", "A"]);
    }

    /// The nodes of a cluster have clocks of their own, too.
    async fn a_revived_run_is_sound_if_the_clock_was_set_back_before_the_revival(db: Db) {
        let mut driver = Driver::new(&db).await;
        let definition = Pipeline::named("P").start("A").chain("B").build().unwrap();
        let mut run = driver.trigger(&definition, "1").await;
        for _ in 0..2 {
            driver
                .work("P", |claimed| match claimed.step.as_str() {
                    "B" => Did::Refused,
                    _ => Did::Returned(json!(1)),
                })
                .await;
            run = revived(&mut driver, run).await;
            driver.conn.execute(&REVIVED_EARLIER, &[]).await.unwrap();
            driver.audit().await;
        }
    }

    async fn a_revived_run_lists_its_steps_in_the_order_of_the_first_one(db: Db) {
        let mut driver = Driver::new(&db).await;
        let flow = Pipeline::named("P").start("A").chain("B").expand("X").collapse("L");
        let mut run = driver.trigger(&flow.build().unwrap(), "1").await;
        for generation in 0..3 {
            driver
                .work("P", |claimed| match claimed.step.as_str() {
                    "B" => Did::Returned((0..30).collect::<Vec<_>>().into()),
                    "X" => Did::Refused,
                    _ => Did::Returned(json!(1)),
                })
                .await;
            let shown = query::show(&mut driver.conn, run, 20, 1).await.unwrap().unwrap();
            let shown: Vec<_> = shown.steps.iter().map(|step| (step.node.as_str(), step.input.get())).collect();
            let elements: Vec<String> = (0..18).map(|element| element.to_string()).collect();
            let elements = elements.iter().map(|element| ("X", element.as_str()));
            let expected: Vec<_> = [("A", "1"), ("B", "1")].into_iter().chain(elements).collect();
            assert_eq!(shown, expected, "{generation}");
            run = revived(&mut driver, run).await;
        }
    }

    /// It is copied in chunks of 2,000 branches. Of each chunk some branches are complete, and some have halted.
    async fn a_wide_run_is_revived_chunk_by_chunk(db: Db) {
        let width = 2_100;
        let mut driver = Driver::new(&db).await;
        let flow = Pipeline::named("P").start("Many").expand("A").collapse("All");
        let flow = flow.build().unwrap();
        let run = driver.trigger(&flow, "1").await;
        driver.audited = false;
        driver
            .work("P", |claimed| match (claimed.step.as_str(), input(claimed).as_i64()) {
                ("Many", _) => Did::Returned((0..width).collect()),
                (_, Some(element)) if element % 3 == 0 => Did::Refused,
                (_, element) => Did::Returned(json!(element)),
            })
            .await;
        assert_eq!(driver.run(run).await, (RunStatus::Halted, None));
        // Nobody is told that a definition can continue it, before all its branches have been read.
        assert_eq!(obstacle(&mut driver.conn, run, &flow).await.unwrap(), None);
        let other = Pipeline::named("P").start("Other").build().unwrap();
        let found = obstacle(&mut driver.conn, run, &other).await.unwrap();
        assert_eq!(found, Some(Obstacle::Unknown));
        let again = revived(&mut driver, run).await;
        let mut ran = 0;
        driver
            .work("P", |claimed| {
                ran += i64::from(claimed.step == "A");
                Did::Returned(input(claimed))
            })
            .await;
        assert_eq!(ran, width / 3);
        assert_eq!(driver.run(again).await, (RunStatus::Completed, Some((0..width).collect())));
        driver.audit().await;
        // Its steps that were kept took no time in it.
        let began = query::run_without_payloads(&mut driver.conn, again).await.unwrap().unwrap().triggered_at;
        let nodes = query::progress(&mut driver.conn, again).await.unwrap();
        let told: Vec<_> = nodes
            .iter()
            .map(|it| (it.node.as_str(), it.total, it.copied, it.first_at.map(|at| at >= began)))
            .collect();
        let (width, ran) = (width as u64, ran as u64);
        let all = [("Many", 1, 1, None), ("A", width, width - ran, Some(true)), ("All", 1, 0, Some(true))];
        assert_eq!(told, all);
        assert_eq!(nodes[0].last_at, None);
    }

    async fn only_a_halted_run_is_revived_and_its_context_goes_with_it(db: Db) {
        let mut driver = Driver::new(&db).await;
        let definition = Pipeline::named("P").on_halt("Notify").start("A").build().unwrap();
        assert_eq!(revive(&mut driver.conn, RunId::new()).await.unwrap(), Revive::NotFound);
        let run = driver.trigger(&definition, "1").await;
        let active = revive(&mut driver.conn, run).await.unwrap();
        assert_eq!(active, Revive::NotHalted(RunStatus::InProgress));
        context::set(&mut driver.conn, run, "k", "[1]").await.unwrap();
        let ran = driver
            .work("P", |claimed| match claimed.step.as_str() {
                "A" => Did::Refused,
                _ => Did::Returned(json!(1)),
            })
            .await;
        assert_eq!(ran, ["A", "(on_halt)"]);
        let again = revived(&mut driver, run).await;
        let copied = context::get(&mut driver.conn, again, "k").await.unwrap();
        assert_eq!(copied.map(|tuple| tuple.value), Some("[1]".to_owned()));
        assert!(matches!(cancel(&mut driver.conn, again).await.unwrap(), Cancel::Done { .. }));
        let cancelled = revive(&mut driver.conn, again).await.unwrap();
        assert_eq!(cancelled, Revive::NotHalted(RunStatus::Cancelled));
        assert_eq!(revive(&mut driver.conn, run).await.unwrap(), Revive::AlreadyRevived(again));
        assert_eq!(driver.run(run).await.0, RunStatus::Halted);
    }
}
