//! Cancelling, resuming, pruning.

use std::time::Duration;

use ductwork::definition::{Definition, Pipeline};
use ductwork::engine::actor::limits;
use ductwork::model::*;
use ductwork::store::Error;
use ductwork::store::cancel::{Cancel, cancel};
use ductwork::store::claim::{self, Claim};
use ductwork::store::context;
use ductwork::store::process::Claimant;
use ductwork::store::prune::{count, prune};
use ductwork::store::resume::{Resume, asked, resume, waiting};
use ductwork::store::revive::{Revive, revive};
use ductwork::store::statement::Statement;
use ductwork::store::trigger::{self, NewRun};
use serde_json::json;

use crate::driver::{Did, Driver, LEASE, together};
use crate::flows::{ink, third};
use crate::on_every_database;
use crate::support::Db;

fn dampened() -> Definition {
    let flow = Pipeline::named("P").start("A").dampen("Is it right?");
    flow.chain("B").build().unwrap()
}

fn many_dampened() -> Definition {
    let flow = Pipeline::named("P").start("Many").expand("A").dampen("");
    flow.chain("B").collapse("C").build().unwrap()
}

async fn work(driver: &mut Driver) -> Vec<String> {
    driver
        .work("P", |claimed| Did::Returned(ink(claimed)))
        .await
}

/// The number of rows in all tables, except those that outlive runs.
async fn rows(driver: &mut Driver) -> i64 {
    static ROWS: Statement = Statement::new(
        "test rows",
        "SELECT (SELECT count(*) FROM ductwork_runs) + (SELECT count(*) FROM ductwork_branches)
              + (SELECT count(*) FROM ductwork_fan_outs) + (SELECT count(*) FROM ductwork_steps)
              + (SELECT count(*) FROM ductwork_executions)
              + (SELECT count(*) FROM ductwork_availabilities)
              + (SELECT count(*) FROM ductwork_transitions)
              + (SELECT count(*) FROM ductwork_advancements)
              + (SELECT count(*) FROM ductwork_tuples) AS n",
    );
    driver.rows(&ROWS, &[]).await[0].get("n").unwrap()
}

static RUNS: Statement = Statement::new("test runs", "SELECT id FROM ductwork_runs");

static BEGIN_ONE: Statement = Statement::new(
    "TEST_BEGIN_ONE",
    "UPDATE ductwork_runs SET pruning_at = {now} WHERE id = :run",
);

/// Cancels a run of each of these flows at every point of its way.
async fn is_cancelled_everywhere(db: Db, flows: impl IntoIterator<Item = Definition>) {
    let mut driver = Driver::new(&db).await;
    for definition in flows {
        // Each step of the walk is a point: claimed, committed, claimed for advancing,
        // advanced, ….
        let mut point = 0;
        loop {
            let run = driver.trigger(&definition, "\"x\"").await;
            // The walk to this point was audited when the previous point was its last.
            driver.audited = false;
            let reached = walk(&mut driver, point).await;
            driver.audited = true;
            driver.audit().await;
            let status = driver.run(run).await.0;
            let cancelled = cancel(&mut driver.conn, run).await.unwrap();
            driver.audit().await;
            if status.is_terminal() {
                assert_eq!(cancelled, Cancel::NotActive(status));
                assert_eq!(driver.run(run).await.0, status);
            } else {
                let held = match &reached {
                    Reached::Running(_) => vec![driver.process],
                    _ => Vec::new(),
                };
                assert_eq!(cancelled, Cancel::Done { held }, "at point {point}");
                assert_eq!(driver.run(run).await, (RunStatus::Cancelled, None));
            }
            // A process that was at work then comes too late.
            match reached {
                Reached::Running(claimed) => {
                    let count = claimed.len();
                    let mut finished = Vec::new();
                    for claimed in claimed {
                        finished.push(driver.finished(claimed, Did::Returned(json!(1))).await);
                    }
                    assert_eq!(driver.commit(&finished).await.stale.len(), count);
                }
                Reached::Advancing(branches) => {
                    let advanced = driver.advance(&branches).await;
                    assert_eq!((advanced.moved, advanced.stale.len()), (0, branches.len()));
                }
                Reached::Nothing => {}
            }
            assert_eq!(work(&mut driver).await, [""; 0]);
            let again = cancel(&mut driver.conn, run).await.unwrap();
            assert!(matches!(again, Cancel::NotActive(_)), "{again:?}");
            driver.forget().await;
            point += 1;
            if status.is_terminal() || (status == RunStatus::Dampened && point > 30) {
                break;
            }
        }
        assert!(point >= 2);
    }
    assert_eq!(
        cancel(&mut driver.conn, RunId::new()).await.unwrap(),
        Cancel::NotFound
    );
}

mod a_run_can_be_cancelled_at_every_point_of_its_way {
    use super::*;

    on_every_database! {
        async fn in_the_first_third_of_the_flows(db: Db) {
            is_cancelled_everywhere(db, third(0).map(|(_, flow)| flow.definition)).await;
        }

        async fn in_the_second_third_of_the_flows(db: Db) {
            is_cancelled_everywhere(db, third(1).map(|(_, flow)| flow.definition)).await;
        }

        async fn in_the_last_third_of_the_flows(db: Db) {
            is_cancelled_everywhere(db, third(2).map(|(_, flow)| flow.definition)).await;
        }

        async fn where_it_asks(db: Db) {
            is_cancelled_everywhere(db, [many_dampened()]).await;
        }
    }
}

on_every_database! {
    async fn a_cancellation_leaves_nothing_open_whenever_it_comes(db: Db) {
        let mut driver = Driver::new(&db).await;
        let flow = Pipeline::named("P").start("Many").expand("Many").expand("B").collapse("C");
        let definition = flow.collapse("D").build().unwrap();
        let mut cancelled = 0;
        for round in 0..30 {
            let run = driver.trigger(&definition, "\"x\"").await;
            let worker = |slots: usize| {
                let db = db.clone();
                let task: std::pin::Pin<Box<dyn Future<Output = bool>>> = Box::pin(async move {
                    let mut worker = Driver::new(&db).await;
                    worker.audited = false;
                    worker.room = slots;
                    worker.limits = limits(9, 1);
                    // Until there is nothing left to do, whichever side wins.
                    loop {
                        let mut claimed = worker.claim("P", 2).await;
                        let mut idle = claimed.is_empty();
                        while !claimed.is_empty() {
                            let mut finished = Vec::new();
                            for claimed in claimed.drain(..) {
                                let did = match claimed.attempt {
                                    1 => Did::Erred,
                                    _ => Did::Returned(ink(&claimed)),
                                };
                                finished.push(worker.finished(claimed, did).await);
                            }
                            claimed = worker.commit(&finished).await.leased_next;
                        }
                        let branches = worker.claim_branches(2).await;
                        idle &= branches.is_empty();
                        if !branches.is_empty() {
                            worker.advance(&branches).await;
                        }
                        if idle && worker.run(run).await.0.is_terminal() {
                            return false;
                        }
                    }
                });
                task
            };
            let canceller = {
                let db = db.clone();
                let task: std::pin::Pin<Box<dyn Future<Output = bool>>> = Box::pin(async move {
                    let mut conn = db.conn().await;
                    tokio::time::sleep(Duration::from_millis(3 * round)).await;
                    matches!(cancel(&mut conn, run).await.unwrap(), Cancel::Done { .. })
                });
                task
            };
            let done = together([worker(0), worker(3), canceller]).await;
            cancelled += usize::from(done[2]);
            driver.audit().await;
            driver.forget().await;
        }
        assert!(cancelled > 0);
    }

    async fn a_dampened_run_waits_and_goes_on(db: Db) {
        let mut driver = Driver::new(&db).await;
        for (value, output) in [(None, "xAB"), (Some("\"v\""), "vB")] {
            let run = driver.trigger(&dampened(), "\"x\"").await;
            assert_eq!(work(&mut driver).await, ["A"]);
            assert_eq!(driver.run(run).await, (RunStatus::Dampened, None));
            let waits = waiting(&mut driver.conn, run).await.unwrap();
            assert_eq!(waits.len(), 1);
            assert_eq!((waits[0].node.as_str(), waits[0].input.as_deref()), ("dampen", Some("\"xA\"")));
            let other = resume(&mut driver.conn, run, Some(StepId::new()), value, None).await.unwrap();
            assert_eq!(other, Resume::NotDampened(RunStatus::Dampened));
            let done = resume(&mut driver.conn, run, None, value, None).await.unwrap();
            assert_eq!(done, Resume::Done(1));
            driver.audit().await;
            assert_eq!(driver.run(run).await, (RunStatus::InProgress, None));
            let again = resume(&mut driver.conn, run, Some(waits[0].step_id), value, None).await.unwrap();
            assert_eq!(again, Resume::NotDampened(RunStatus::InProgress));
            assert_eq!(work(&mut driver).await, ["B"]);
            assert_eq!(driver.run(run).await, (RunStatus::Completed, Some(json!(output))));
        }
        let none = resume(&mut driver.conn, RunId::new(), None, None, None).await.unwrap();
        assert_eq!(none, Resume::NotFound);
    }

    async fn a_value_is_for_one_of_several_that_wait(db: Db) {
        let mut driver = Driver::new(&db).await;
        let run = driver.trigger(&many_dampened(), "\"x\"").await;
        work(&mut driver).await;
        let waits = waiting(&mut driver.conn, run).await.unwrap();
        assert_eq!(waits.len(), 3);
        let which = resume(&mut driver.conn, run, None, Some("1"), None).await.unwrap();
        assert_eq!(which, Resume::Ambiguous(asked(&mut driver.conn, run).await.unwrap()));
        let first = waits.iter().find(|step| step.input.as_deref() == Some("\"x1A\"")).unwrap();
        let done = resume(&mut driver.conn, run, Some(first.step_id), Some("1"), None).await.unwrap();
        assert_eq!(done, Resume::Done(1));
        driver.audit().await;
        work(&mut driver).await;
        assert_eq!(driver.run(run).await, (RunStatus::Dampened, None));
        let done = resume(&mut driver.conn, run, None, None, None).await.unwrap();
        assert_eq!(done, Resume::Done(2));
        work(&mut driver).await;
        assert_eq!(driver.run(run).await, (RunStatus::Completed, Some(json!("[x0AB,1B,x2AB]C"))));
    }

    async fn of_two_resumes_at_once_one_counts(db: Db) {
        let mut driver = Driver::new(&db).await;
        for _ in 0..10 {
            let run = driver.trigger(&dampened(), "\"x\"").await;
            work(&mut driver).await;
            let done = together((0..2).map(|_| {
                let db = db.clone();
                async move {
                    let mut conn = db.conn().await;
                    resume(&mut conn, run, None, None, None).await.unwrap() == Resume::Done(1)
                }
            }));
            assert_eq!(done.await.into_iter().filter(|done| *done).count(), 1);
            assert_eq!(work(&mut driver).await, ["B"]);
        }
    }

    async fn the_key_of_a_run_that_is_being_deleted_leads_nobody_to_it(db: Db) {
        static BEGIN: Statement = Statement::new("TEST_BEGIN", "UPDATE ductwork_runs SET pruning_at = 1");
        let mut driver = Driver::new(&db).await;
        let one = Pipeline::named("P").start("A").build().unwrap();
        let run = [NewRun { key: Some("k"), input: "1" }];
        let made = trigger::trigger(&mut driver.conn, &one, &run, Duration::ZERO).await.unwrap();
        assert!(made[0].created);
        work(&mut driver).await;
        let again = trigger::trigger(&mut driver.conn, &one, &run, Duration::ZERO).await.unwrap();
        assert_eq!((again[0].created, again[0].run_id), (false, made[0].run_id));
        driver.conn.execute(&BEGIN, &[]).await.unwrap();
        let refused = trigger::trigger(&mut driver.conn, &one, &run, Duration::ZERO).await;
        assert!(matches!(refused, Err(Error::Gone(_))), "{refused:?}");
        while prune(&mut driver.conn, Duration::ZERO, 9).await.unwrap() > 0 {}
        let made = trigger::trigger(&mut driver.conn, &one, &run, Duration::ZERO).await.unwrap();
        assert!(made[0].created);
    }

    async fn prune_keeps_what_is_active(db: Db) {
        let mut driver = Driver::new(&db).await;
        let one = Pipeline::named("P").start("A").build().unwrap();
        let hooked = Pipeline::named("P").on_halt("Notify").start("A").build().unwrap();
        // A large run that is over.
        let wide = Pipeline::named("P").start("Many").expand("B").collapse("C").build().unwrap();
        let over = driver.trigger(&wide, "\"x\"").await;
        context::set(&mut driver.conn, over, "k", "1").await.unwrap();
        work(&mut driver).await;
        // A lineage of three, whose newest end is active.
        let first = driver.trigger(&one, "1").await;
        driver.work("P", |_| Did::Refused).await;
        let Revive::Done(second) = revive(&mut driver.conn, first).await.unwrap() else {
            panic!("it had halted");
        };
        driver.work("P", |_| Did::Refused).await;
        let Revive::Done(third) = revive(&mut driver.conn, second).await.unwrap() else {
            panic!("it had halted");
        };
        // A hook that has not run yet.
        let halted = driver.trigger(&hooked, "1").await;
        let process = driver.process;
        let mut claimed = match claim::claim(&mut driver.conn, Claimant::new(process), "P", 9, LEASE).await {
            Ok(Claim::Taken(claimed)) => claimed,
            other => panic!("{other:?}"),
        };
        assert_eq!(claimed.len(), 2);
        claimed.retain(|claimed| claimed.run_id == halted);
        let finished = [driver.finished(claimed.remove(0), Did::Refused).await];
        driver.commit(&finished).await;
        let branches = driver.claim_branches(9).await;
        driver.advance(&branches).await;

        let kept = prune(&mut driver.conn, Duration::from_secs(3_600), 99).await.unwrap();
        assert_eq!(kept, 0, "nothing is old enough");
        assert_eq!(prune(&mut driver.conn, Duration::ZERO, 0).await.unwrap(), 0);
        assert_eq!(prune(&mut driver.conn, Duration::ZERO, 99).await.unwrap(), 1);
        driver.audit().await;
        let left = [(first, RunStatus::Halted), (second, RunStatus::Halted),
            (third, RunStatus::InProgress), (halted, RunStatus::Halted)];
        for (run, status) in left {
            assert_eq!(driver.run(run).await.0, status);
        }
        // Once all is over, everything is deleted, the lineage from its newest end.
        assert!(matches!(cancel(&mut driver.conn, third).await.unwrap(), Cancel::Done { .. }));
        assert_eq!(driver.work("P", |_| Did::Returned(json!(1))).await, ["(on_halt)"]);
        assert_eq!(prune(&mut driver.conn, Duration::ZERO, 1).await.unwrap(), 1);
        driver.audit().await;
        assert_eq!(prune(&mut driver.conn, Duration::ZERO, 99).await.unwrap(), 3);
        assert_eq!(rows(&mut driver).await, 0);
    }

    /// More of them than fit into a batch, and older than the run that can be deleted.
    async fn hooks_that_nobody_runs_hold_back_no_other_run(db: Db) {
        let mut driver = Driver::new(&db).await;
        let one = Pipeline::named("P").start("A").build().unwrap();
        let hooked = Pipeline::named("Q").on_halt("Notify").start("A").build().unwrap();
        let input = vec![NewRun { key: None, input: "1" }; 201];
        trigger::trigger(&mut driver.conn, &hooked, &input, Duration::ZERO).await.unwrap();
        let claimed = driver.claim("Q", 201).await;
        assert_eq!(claimed.len(), 201);
        let mut finished = Vec::new();
        for claimed in claimed {
            finished.push(driver.finished(claimed, Did::Refused).await);
        }
        driver.commit(&finished).await;
        loop {
            let branches = driver.claim_branches(100).await;
            if branches.is_empty() {
                break;
            }
            driver.advance(&branches).await;
        }
        let over = driver.trigger(&one, "1").await;
        driver.work("P", |_| Did::Returned(json!(1))).await;
        assert_eq!(driver.run(over).await.0, RunStatus::Completed);

        assert_eq!(prune(&mut driver.conn, Duration::ZERO, 999).await.unwrap(), 1);
        assert_eq!(driver.work("Q", |_| Did::Returned(json!(1))).await.len(), 201);
        assert_eq!(prune(&mut driver.conn, Duration::ZERO, 999).await.unwrap(), 201);
        assert_eq!(rows(&mut driver).await, 0);
    }

    async fn the_runs_that_a_person_is_asked_about_are_those_that_are_deleted(db: Db) {
        let mut driver = Driver::new(&db).await;
        let one = Pipeline::named("P").start("A").build().unwrap();
        let halted = driver.trigger(&one, "1").await;
        driver.work("P", |_| Did::Refused).await;
        let count = async |driver: &mut Driver| count(&mut driver.conn, Duration::ZERO).await.unwrap();
        assert_eq!(count(&mut driver).await, 1);
        let Revive::Done(next) = revive(&mut driver.conn, halted).await.unwrap() else { panic!() };
        assert_eq!(count(&mut driver).await, 0, "its successor is under way");
        assert!(matches!(cancel(&mut driver.conn, next).await.unwrap(), Cancel::Done { .. }));
        assert_eq!(count(&mut driver).await, 2);
        assert_eq!(prune(&mut driver.conn, Duration::ZERO, 9).await.unwrap(), 2);
    }

    /// A run without its successor looks as if nobody had done its work.
    async fn a_run_whose_successor_was_deleted_is_revived_by_nobody(db: Db) {
        let mut driver = Driver::new(&db).await;
        let one = Pipeline::named("P").start("A").build().unwrap();
        let mut lineage = vec![driver.trigger(&one, "1").await];
        for _ in 0..2 {
            driver.work("P", |_| Did::Refused).await;
            let last = *lineage.last().unwrap();
            let Revive::Done(next) = revive(&mut driver.conn, last).await.unwrap() else { panic!() };
            lineage.push(next);
        }
        driver.work("P", |_| Did::Returned(json!(1))).await;
        for left in (0..3).rev() {
            assert_eq!(prune(&mut driver.conn, Duration::ZERO, 1).await.unwrap(), 1);
            for (at, run) in lineage.iter().enumerate() {
                // The deletion of the newest one that is left has begun, and those before it have a successor.
                let told = match lineage[..left].get(at + 1) {
                    Some(next) => Revive::AlreadyRevived(*next),
                    None => Revive::NotFound,
                };
                assert_eq!(revive(&mut driver.conn, *run).await.unwrap(), told, "{left}");
            }
            assert_eq!(driver.rows(&RUNS, &[]).await.len(), left);
            driver.audit().await;
        }
        assert_eq!(rows(&mut driver).await, 0);
    }

    async fn a_lineage_is_kept_while_a_hook_of_one_of_its_runs_has_yet_to_run(db: Db) {
        let mut driver = Driver::new(&db).await;
        let mut other = Driver::new(&db).await;
        let hooked = Pipeline::named("P").on_halt("Notify").start("A").build().unwrap();
        let first = driver.trigger(&hooked, "1").await;
        let claimed = driver.claim("P", 1).await.remove(0);
        let finished = [driver.finished(claimed, Did::Refused).await];
        driver.commit(&finished).await;
        let branches = driver.claim_branches(9).await;
        driver.advance(&branches).await;
        let hook = other.claim("P", 1).await.remove(0);
        assert_eq!(hook.node, "(on_halt)");
        let Revive::Done(_) = revive(&mut driver.conn, first).await.unwrap() else { panic!() };
        driver.work("P", |_| Did::Returned(json!(1))).await;
        assert_eq!(prune(&mut driver.conn, Duration::ZERO, 9).await.unwrap(), 0);
        let finished = [other.finished(hook, Did::Returned(json!(1))).await];
        other.commit(&finished).await;
        assert_eq!(prune(&mut driver.conn, Duration::ZERO, 9).await.unwrap(), 2);
        assert_eq!(rows(&mut driver).await, 0);
    }

    /// As that of a run that more generations follow than are looked at for hooks.
    async fn a_run_whose_deletion_has_begun_is_kept_for_its_hook_and_holds_back_no_other(db: Db) {
        let hour = Duration::from_secs(3_600);
        let mut driver = Driver::new(&db).await;
        let hooked = Pipeline::named("P").on_halt("Notify").start("A").build().unwrap();
        let halted = driver.trigger(&hooked, "1").await;
        let claimed = driver.claim("P", 1).await.remove(0);
        let finished = [driver.finished(claimed, Did::Refused).await];
        driver.commit(&finished).await;
        let branches = driver.claim_branches(9).await;
        driver.advance(&branches).await;
        driver.conn.execute(&BEGIN_ONE, &[("run", halted.0.into())]).await.unwrap();
        let other = driver.trigger(&Pipeline::named("Q").start("A").build().unwrap(), "1").await;
        driver.work("Q", |_| Did::Returned(json!(1))).await;
        driver.conn.execute(&BEGIN_ONE, &[("run", other.0.into())]).await.unwrap();
        assert_eq!(prune(&mut driver.conn, hour, 9).await.unwrap(), 1);
        driver.audit().await;
        driver.work("P", |_| Did::Returned(json!(1))).await;
        assert_eq!(prune(&mut driver.conn, hour, 9).await.unwrap(), 1);
        assert_eq!(rows(&mut driver).await, 0);
    }

    async fn prune_and_revive_at_once_leave_no_run_without_its_origin(db: Db) {
        let mut driver = Driver::new(&db).await;
        let one = Pipeline::named("P").start("A").chain("B").build().unwrap();
        for round in 0..15u64 {
            let run = driver.trigger(&one, "\"x\"").await;
            driver.work("P", |claimed| match claimed.step.as_str() {
                "B" => Did::Refused,
                _ => Did::Returned(ink(claimed)),
            })
            .await;
            let done = together((0..2).map(|who| {
                let db = db.clone();
                async move {
                    let mut conn = db.conn().await;
                    if who == 0 {
                        tokio::time::sleep(Duration::from_micros(300 * round)).await;
                        prune(&mut conn, Duration::ZERO, 99).await.unwrap() == 1
                    } else {
                        matches!(revive(&mut conn, run).await.unwrap(), Revive::Done(_))
                    }
                }
            }));
            assert_eq!(done.await.into_iter().filter(|won| *won).count(), 1, "round {round}");
            work(&mut driver).await;
            while prune(&mut driver.conn, Duration::ZERO, 99).await.unwrap() > 0 {}
            assert_eq!(rows(&mut driver).await, 0);
        }
    }
}

/// The work under way when a walk ended.
enum Reached {
    Nothing,
    Running(Vec<claim::Claimed>),
    Advancing(Vec<ductwork::store::advance::ClaimedBranch>),
}

/// Works for this many operations, or until nothing is left.
async fn walk(driver: &mut Driver, operations: usize) -> Reached {
    let mut left = operations;
    loop {
        let claimed = driver.claim("P", 2).await;
        if !claimed.is_empty() {
            if left == 0 {
                return Reached::Running(claimed);
            }
            left -= 1;
            let mut finished = Vec::new();
            for claimed in claimed {
                let did = Did::Returned(ink(&claimed));
                finished.push(driver.finished(claimed, did).await);
            }
            driver.commit(&finished).await;
            if left == 0 {
                return Reached::Nothing;
            }
            left -= 1;
            continue;
        }
        let branches = driver.claim_branches(2).await;
        if branches.is_empty() {
            return Reached::Nothing;
        }
        if left == 0 {
            return Reached::Advancing(branches);
        }
        left -= 1;
        driver.advance(&branches).await;
        if left == 0 {
            return Reached::Nothing;
        }
        left -= 1;
    }
}
