//! Questions to people: their deadlines, their hooks, and who answered.

use std::cell::Cell;
use std::time::Duration;

use ductwork::definition::{Definition, Pipeline, Question, Unanswered};
use ductwork::engine::actor::limits;
use ductwork::machine;
use ductwork::machine::why::HookState;
use ductwork::model::*;
use ductwork::store::action::Actor;
use ductwork::store::batch_size::BYTES_MAX;
use ductwork::store::cancel::{Cancel, cancel};
use ductwork::store::claim::Claimed;
use ductwork::store::definition::Definitions;
use ductwork::store::prune::prune;
use ductwork::store::query;
use ductwork::store::resume::{Passed, Resume, pass_deadlines, resume, resume_all, waiting};
use ductwork::store::revive::{Revive, revive};
use ductwork::store::statement::Statement;
use ductwork::store::{fault_injection, why};
use serde_json::{Value, json};

use crate::driver::{Did, Driver, LEASE};
use crate::flows::ink;
use crate::support::Db;
use crate::{on_every_database, on_servers};

const HOUR: Duration = Duration::from_secs(3_600);

static PASS: Statement = Statement::new("TEST_PASS", "UPDATE ductwork_deadlines SET answer_by = 0");
static PASS_SOON: Statement = Statement::new(
    "TEST_PASS_SOON",
    "UPDATE ductwork_deadlines SET answer_by = {now} + 200000",
);
static DEADLINES: Statement = Statement::new(
    "TEST_DEADLINES",
    "SELECT count(*) AS n FROM ductwork_deadlines",
);

fn p() -> Pipeline {
    Pipeline::named("P")
}

fn asking(question: impl Into<Question>) -> Definition {
    let flow = p()
        .on_halt("Halted")
        .on_complete("Completed")
        .on_wait("Asked");
    flow.start("A").dampen(question).chain("B").build().unwrap()
}

fn timed(then: Unanswered) -> Definition {
    asking(Question::new("sure?").within(HOUR, then))
}

/// Executes all due work; returns the inputs of hooks, by their nodes.
async fn work(driver: &mut Driver) -> Vec<(String, Value)> {
    let mut told = Vec::new();
    driver
        .work("P", |claimed| {
            if claimed.via.is_hook() {
                let input = serde_json::from_str(claimed.input.get()).unwrap();
                told.push((claimed.node.clone(), input));
                return Did::Returned(json!("told"));
            }
            Did::Returned(ink(claimed))
        })
        .await;
    told
}

async fn passed(driver: &mut Driver) -> Passed {
    driver.conn.execute(&PASS, &[]).await.unwrap();
    pass_deadlines(&mut driver.conn).await.unwrap()
}

async fn deadlines(driver: &mut Driver) -> i64 {
    let row = driver.conn.fetch_optional(&DEADLINES, &[]).await.unwrap();
    row.unwrap().get("n").unwrap()
}

async fn answered_by(driver: &mut Driver, run: RunId) -> Option<String> {
    let detail = query::show(&mut driver.conn, run, usize::MAX, usize::MAX)
        .await
        .unwrap()
        .unwrap();
    detail.steps.into_iter().find_map(|step| step.answered_by)
}

/// A run that was cancelled while it waited for a person, and the claimed hook of that wait.
async fn hook_of_a_cancelled_wait(driver: &mut Driver) -> (RunId, Claimed) {
    let run = driver.trigger(&asking("sure?"), "\"x\"").await;
    // Only the first step runs, then an advancer: the hook stays in the queue.
    let claimed = driver.claim("P", 1).await.remove(0);
    let finished = [driver.finished(claimed, Did::Returned(json!("y"))).await];
    driver.commit(&finished).await;
    let branches = driver.claim_branches(9).await;
    driver.advance(&branches).await;
    let hook = driver.claim("P", 9).await.remove(0);
    assert_eq!(hook.node, "(on_wait)");
    let cancelled = cancel(&mut driver.conn, run).await.unwrap();
    assert!(matches!(cancelled, Cancel::Done { .. }));
    (run, hook)
}

on_every_database! {
    async fn a_run_tells_its_hooks_that_it_waits_and_that_it_has_completed(db: Db) {
        let mut driver = Driver::new(&db).await;
        let run = driver.trigger(&asking("sure?"), "\"x\"").await;
        let told = work(&mut driver).await;
        let step: StepId = told[0].1["step_id"].as_str().unwrap().parse().unwrap();
        assert_eq!(told, [("(on_wait)".to_owned(), json!({
            "run_id": run.to_string(), "pipeline": "P", "node": "dampen", "step_id": step, "prompt": "sure?",
            "timeout": null, "then": null, "value": "xA",
        }))]);
        assert_eq!(driver.run(run).await.0, RunStatus::Dampened);
        let ana = Actor::new("ana@here", Channel::Cli);
        let done = resume(&mut driver.conn, run, Some(step), Some("\"y\""), Some(&ana)).await.unwrap();
        assert_eq!(done, Resume::Done(1));
        let told = work(&mut driver).await;
        assert_eq!(told, [("(on_complete)".to_owned(), json!({
            "run_id": run.to_string(), "pipeline": "P", "output": "yB",
        }))]);
        assert_eq!(driver.run(run).await, (RunStatus::Completed, Some(json!("yB"))));
        assert_eq!(answered_by(&mut driver, run).await.as_deref(), Some("ana@here"));
        driver.audit().await;
    }

    async fn the_hook_of_a_run_that_ends_in_a_fan_out_has_the_array(db: Db) {
        let mut driver = Driver::new(&db).await;
        for flow in [p().start("A").divide(["B", "C"]), p().start("A").divide(["B", "C"]).combine("D")] {
            let run = driver.trigger(&flow.on_complete("Completed").build().unwrap(), "\"x\"").await;
            let told = work(&mut driver).await;
            assert_eq!(told.len(), 1);
            let output = driver.run(run).await.1.unwrap();
            assert_eq!(told[0].1["output"], output);
        }
    }

    async fn a_hook_that_has_failed_for_good_is_told_with_the_run(db: Db) {
        let mut driver = Driver::new(&db).await;
        let flow = p().start("A").on_complete("Completed").on_halt("Halted").build().unwrap();
        for (step, hook, status) in [
            (Did::Returned(json!(1)), "on_complete", RunStatus::Completed),
            (Did::Refused, "on_halt", RunStatus::Halted),
        ] {
            for does in [Did::Refused, Did::Returned(json!(1))] {
                let fails = matches!(does, Did::Refused);
                let run = driver.trigger(&flow, "1").await;
                driver.work("P", |claimed| match claimed.via.is_hook() {
                    true => does.clone(),
                    false => step.clone(),
                })
                .await;
                assert_eq!(driver.run(run).await.0, status);
                let facts = why::facts(&mut driver.conn, run, LEASE, &Definitions::default()).await;
                let failed = facts.unwrap().unwrap().hook;
                let failed = failed.map(|it| (it.via, it.error.is_some(), it.state));
                assert_eq!(failed, fails.then(|| (hook.to_owned(), true, HookState::Failed)));
            }
        }
        driver.audit().await;
    }

    async fn deadlines_copy_no_more_than_a_bounded_number_of_bytes_at_once(db: Db) {
        let mut driver = Driver::new(&db).await;
        let long = "x".repeat(BYTES_MAX / 2 + 1);
        for then in [Unanswered::Approve, Unanswered::Approve, Unanswered::Approve] {
            driver.trigger(&timed(then), "\"x\"").await;
        }
        driver.work("P", |_| Did::Returned(json!(long))).await;
        driver.conn.execute(&PASS, &[]).await.unwrap();
        for more in [true, true, false] {
            let expected = Passed { approved: 1, halted: 0, more };
            assert_eq!(pass_deadlines(&mut driver.conn).await.unwrap(), expected);
        }
        driver.audit().await;
    }

    async fn a_hook_that_has_yet_to_succeed_is_told_with_its_run(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.limits = limits(1, 0);
        let flow = p().start("A").on_complete("Completed").build().unwrap();
        let run = driver.trigger(&flow, "1").await;
        while driver.run(run).await.0 != RunStatus::Completed {
            driver.round("P", &mut |_| Did::Returned(json!(1))).await;
        }
        let hook = async |driver: &mut Driver| {
            let facts = why::facts(&mut driver.conn, run, LEASE, &Definitions::default()).await;
            facts.unwrap().unwrap().hook.map(|it| (it.state, it.error.is_some()))
        };
        let queued = hook(&mut driver).await;
        assert!(matches!(queued, Some((HookState::Queued { attempt: 1, .. }, false))), "{queued:?}");
        let claimed = driver.claim("P", 1).await.remove(0);
        assert_eq!(hook(&mut driver).await, Some((HookState::Running { attempt: 1, is_alive: true }, false)));
        let failed = driver.finished(claimed, Did::Erred).await;
        driver.commit(&[failed]).await;
        let again = hook(&mut driver).await;
        assert!(matches!(again, Some((HookState::Queued { attempt: 2, .. }, true))), "{again:?}");
        work(&mut driver).await;
        assert_eq!(hook(&mut driver).await, None);
    }

    async fn a_hook_of_a_wait_that_has_failed_for_good_is_told_with_the_question(db: Db) {
        let mut driver = Driver::new(&db).await;
        for does in [Did::Refused, Did::Returned(json!(1))] {
            let fails = matches!(does, Did::Refused);
            let run = driver.trigger(&timed(Unanswered::Halt), "\"x\"").await;
            driver.work("P", |claimed| match claimed.via.is_hook() {
                true => does.clone(),
                false => Did::Returned(ink(claimed)),
            })
            .await;
            let facts = why::facts(&mut driver.conn, run, LEASE, &Definitions::default()).await;
            let facts = facts.unwrap().unwrap();
            let failed = facts.questions[0].failed_hook.clone();
            let told = failed.as_ref().map(|it| (it.via.as_str(), it.error.is_some()));
            assert_eq!(told, fails.then_some(("on_wait", true)));
            let answer = machine::why::why(&facts);
            assert_eq!(answer.fact.contains("its `on_wait` hook has failed: "), fails, "{}", answer.fact);
            let asked = waiting(&mut driver.conn, run).await.unwrap().remove(0);
            let due = asked.deadline.unwrap();
            assert_eq!(answer.questions, [machine::why::Question {
                step: asked.step_id,
                node: asked.node,
                prompt: Some("sure?".to_owned()),
                since: asked.since,
                deadline: Some((due.answer_by, "halt".to_owned())),
                is_late: false,
                failed_hook: failed,
            }]);
            // Nobody answers in time.
            driver.conn.execute(&PASS, &[]).await.unwrap();
            let _ = pass_deadlines(&mut driver.conn).await.unwrap();
            work(&mut driver).await;
            assert_eq!(driver.run(run).await.0, RunStatus::Halted);
            let facts = why::facts(&mut driver.conn, run, LEASE, &Definitions::default()).await;
            let answer = machine::why::why(&facts.unwrap().unwrap());
            let told = "the `on_wait` hook of a question that nobody answered in time has failed: ";
            assert_eq!(answer.fact.contains(told), fails, "{}", answer.fact);
            assert!(answer.questions.is_empty());
        }
        // A deadline approves, or a person does: then the hook no longer matters.
        for answered in [false, true] {
            let run = driver.trigger(&timed(Unanswered::Approve), "\"x\"").await;
            driver.work("P", |claimed| match claimed.via.is_hook() {
                true => Did::Refused,
                false => Did::Returned(ink(claimed)),
            })
            .await;
            if answered {
                assert_eq!(resume(&mut driver.conn, run, None, None, None).await.unwrap(), Resume::Done(1));
            } else {
                driver.conn.execute(&PASS, &[]).await.unwrap();
                let _ = pass_deadlines(&mut driver.conn).await.unwrap();
            }
            work(&mut driver).await;
            assert_eq!(driver.run(run).await.0, RunStatus::Completed);
            let facts = why::facts(&mut driver.conn, run, LEASE, &Definitions::default()).await;
            let answer = machine::why::why(&facts.unwrap().unwrap());
            assert_eq!(answer.fact.contains("`on_wait`"), !answered, "{}", answer.fact);
            assert_eq!(answer.remedy, None);
        }
        driver.audit().await;
    }

    async fn without_an_answer_a_branch_goes_on_or_halts_when_its_time_is_over(db: Db) {
        let mut driver = Driver::new(&db).await;
        let approved = driver.trigger(&timed(Unanswered::Approve), "\"x\"").await;
        let halted = driver.trigger(&timed(Unanswered::Halt), "\"x\"").await;
        let told = work(&mut driver).await;
        assert_eq!(told.len(), 2);
        assert!(told.iter().all(|(_, told)| told["timeout"] == 3_600 && told["then"].is_string()));
        let asked = waiting(&mut driver.conn, approved).await.unwrap();
        let due = asked[0].deadline.clone().unwrap();
        let left = due.answer_by - due.now;
        assert!((1..=3_600_000_000).contains(&left), "{left}");
        assert_eq!(pass_deadlines(&mut driver.conn).await.unwrap(), Passed::default(), "nothing is due");
        assert!(work(&mut driver).await.is_empty());

        let expected = Passed { approved: 1, halted: 1, more: false };
        assert_eq!(passed(&mut driver).await, expected);
        assert_eq!(deadlines(&mut driver).await, 0);
        let mut told = work(&mut driver).await;
        told.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(told[0].0, "(on_complete)");
        assert_eq!(told[1].1["halts"][0]["reason"], "unanswered");
        assert_eq!(driver.run(approved).await, (RunStatus::Completed, Some(json!("xAB"))));
        assert_eq!(answered_by(&mut driver, approved).await.as_deref(), Some("(deadline)"));
        assert_eq!(driver.run(halted).await.0, RunStatus::Halted);
        assert_eq!(answered_by(&mut driver, halted).await, None);
        driver.audit().await;
    }

    async fn a_run_that_halted_without_an_answer_is_revived_to_ask_again(db: Db) {
        let mut driver = Driver::new(&db).await;
        let run = driver.trigger(&timed(Unanswered::Halt), "\"x\"").await;
        work(&mut driver).await;
        assert_eq!(passed(&mut driver).await.halted, 1);
        work(&mut driver).await;
        let Revive::Done(next) = revive(&mut driver.conn, run).await.unwrap() else {
            panic!("it halted")
        };
        driver.audit().await;
        assert_eq!(driver.run(next).await.0, RunStatus::Dampened);
        assert_eq!(deadlines(&mut driver).await, 1);
        let told = work(&mut driver).await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!((told[0].0.as_str(), &told[0].1["value"]), ("(on_wait)", &json!("xA")));
        assert_eq!(resume(&mut driver.conn, next, None, None, None).await.unwrap(), Resume::Done(1));
        work(&mut driver).await;
        assert_eq!(driver.run(next).await, (RunStatus::Completed, Some(json!("xAB"))));
        driver.audit().await;
    }

    async fn an_answer_and_a_cancellation_end_the_deadline(db: Db) {
        let mut driver = Driver::new(&db).await;
        for answer in [true, false] {
            let run = driver.trigger(&timed(Unanswered::Halt), "\"x\"").await;
            work(&mut driver).await;
            assert_eq!(deadlines(&mut driver).await, 1);
            match answer {
                true => assert_eq!(resume(&mut driver.conn, run, None, None, None).await.unwrap(), Resume::Done(1)),
                false => assert!(matches!(cancel(&mut driver.conn, run).await.unwrap(), Cancel::Done { .. })),
            }
            assert_eq!(deadlines(&mut driver).await, 0);
            work(&mut driver).await;
        }
        driver.audit().await;
    }

    /// A program without deadlines leaves one behind, and asks about the same branch again.
    async fn a_deadline_that_was_left_behind_decides_nothing(db: Db) {
        let mut driver = Driver::new(&db).await;
        let flow = p().start("A").dampen(Question::new("sure?").within(HOUR, Unanswered::Halt));
        let flow = flow.chain("B").dampen(Question::new("still?").within(HOUR, Unanswered::Halt));
        let run = driver.trigger(&flow.build().unwrap(), "\"x\"").await;
        work(&mut driver).await;
        static KEEP: Statement = Statement::new("TEST_KEEP", "CREATE TABLE kept AS SELECT * FROM ductwork_deadlines");
        static LEAVE: Statement = Statement::new("TEST_LEAVE", "INSERT INTO ductwork_deadlines SELECT * FROM kept");
        driver.conn.execute(&KEEP, &[]).await.unwrap();
        assert_eq!(resume(&mut driver.conn, run, None, None, None).await.unwrap(), Resume::Done(1));
        driver.conn.execute(&LEAVE, &[]).await.unwrap();
        // The branch is not waiting now.
        assert_eq!(passed(&mut driver).await, Passed::default());
        assert_eq!(deadlines(&mut driver).await, 0);
        driver.conn.execute(&LEAVE, &[]).await.unwrap();
        work(&mut driver).await;
        // It waits again, with a deadline of its own.
        assert_eq!(deadlines(&mut driver).await, 1);
        assert_eq!(pass_deadlines(&mut driver.conn).await.unwrap(), Passed::default());
        assert_eq!(driver.run(run).await.0, RunStatus::Dampened);
        assert_eq!(passed(&mut driver).await.halted, 1);
        work(&mut driver).await;
        assert_eq!(driver.run(run).await.0, RunStatus::Halted);
        driver.audit().await;
    }

    async fn a_deadline_of_a_newer_version_is_left_to_it(db: Db) {
        let mut driver = Driver::new(&db).await;
        let run = driver.trigger(&timed(Unanswered::Halt), "\"x\"").await;
        work(&mut driver).await;
        static NEWER: Statement = Statement::new("TEST_NEWER", "UPDATE ductwork_deadlines SET unanswered = 'escalate'");
        driver.conn.execute(&NEWER, &[]).await.unwrap();
        assert_eq!(passed(&mut driver).await, Passed::default());
        assert_eq!(deadlines(&mut driver).await, 1);
        assert_eq!(driver.run(run).await.0, RunStatus::Dampened);
        driver.audit().await;
    }

    /// Even if no daemon has decided the question yet.
    async fn after_a_deadline_no_answer_counts(db: Db) {
        let mut driver = Driver::new(&db).await;
        for (unanswered, status) in [(Unanswered::Halt, RunStatus::Halted), (Unanswered::Approve, RunStatus::Completed)] {
            let run = driver.trigger(&timed(unanswered), "\"x\"").await;
            work(&mut driver).await;
            driver.conn.execute(&PASS, &[]).await.unwrap();
            let step = waiting(&mut driver.conn, run).await.unwrap()[0].step_id;
            let conn = &mut driver.conn;
            assert_eq!(resume(conn, run, None, None, None).await.unwrap(), Resume::Late);
            assert_eq!(resume(conn, run, Some(step), Some("\"y\""), None).await.unwrap(), Resume::Late);
            assert_eq!(resume_all(conn, run, None, 1, |_| {}).await.unwrap(), Resume::Late);
            assert_eq!(driver.run(run).await.0, RunStatus::Dampened);
            let facts = why::facts(&mut driver.conn, run, LEASE, &Definitions::default()).await;
            let remedy = machine::why::why(&facts.unwrap().unwrap()).remedy.unwrap();
            assert!(remedy.starts_with("no answer counts any more"), "{remedy}");
            let _passed = pass_deadlines(&mut driver.conn).await.unwrap();
            work(&mut driver).await;
            assert_eq!(driver.run(run).await.0, status);
        }
        driver.audit().await;
    }

    async fn a_value_is_for_none_of_several_questions_even_if_all_but_one_are_late(db: Db) {
        static PASS_ONE: Statement = Statement::new(
            "TEST_PASS_ONE",
            "UPDATE ductwork_deadlines SET answer_by = 0 WHERE branch_id = :branch",
        );
        let mut driver = Driver::new(&db).await;
        let question = Question::new("sure?").within(Duration::from_secs(3_600), Unanswered::Halt);
        let flow = Pipeline::named("P").start("Many").expand("B").dampen(question).collapse("C");
        let run = driver.trigger(&flow.build().unwrap(), "\"x\"").await;
        driver
            .work("P", |claimed| match claimed.step.as_str() {
                "Many" => Did::Returned(json!([1, 2])),
                _ => Did::Returned(ink(claimed)),
            })
            .await;
        let late = waiting(&mut driver.conn, run).await.unwrap().remove(0);
        driver.conn.execute(&PASS_ONE, &[("branch", late.branch_id.0.into())]).await.unwrap();
        let conn = &mut driver.conn;
        let said = resume(conn, run, None, Some("\"y\""), None).await.unwrap();
        assert!(matches!(said, Resume::Ambiguous(steps) if steps.len() == 2));
        assert_eq!(resume(conn, run, Some(late.step_id), Some("\"y\""), None).await.unwrap(), Resume::Late);
        let said = resume_all(conn, run, None, 1, |_| {}).await.unwrap();
        assert_eq!(said, Resume::Partly { resumed: 1, late: 1 });
        assert_eq!(pass_deadlines(&mut driver.conn).await.unwrap().halted, 1);
        driver.audit().await;
    }

    async fn of_an_answer_and_a_deadline_at_once_one_counts(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.audited = false;
        let (mut answered, mut halted) = (0, 0);
        for round in 0..16 {
            let run = driver.trigger(&timed(Unanswered::Halt), "\"x\"").await;
            work(&mut driver).await;
            let (mut person, mut daemon) = (db.conn().await, db.conn().await);
            driver.conn.execute(&PASS_SOON, &[]).await.unwrap();
            let is_answered = Cell::new(false);
            let (said, passed) = tokio::join!(
                async {
                    // The first ones are early, the last ones late, and some of the others at that moment.
                    tokio::time::sleep(Duration::from_millis(25 * round)).await;
                    let said = resume(&mut person, run, None, Some("\"y\""), None).await.unwrap();
                    is_answered.set(said == Resume::Done(1));
                    is_answered.get()
                },
                async {
                    loop {
                        let passed = pass_deadlines(&mut daemon).await.unwrap();
                        if passed.halted == 1 || is_answered.get() {
                            return passed.halted == 1;
                        }
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                },
            );
            assert!(said != passed, "{said} {passed}");
            (answered, halted) = (answered + u32::from(said), halted + u32::from(passed));
            work(&mut driver).await;
            let status = if said { RunStatus::Completed } else { RunStatus::Halted };
            assert_eq!(driver.run(run).await.0, status);
            assert_eq!(deadlines(&mut driver).await, 0);
        }
        eprintln!("{answered} answers and {halted} deadlines came first");
        assert!(answered > 0 && halted > 0, "{answered} answers and {halted} deadlines");
        crate::driver::audit(&mut driver.conn).await;
    }

    async fn a_hook_of_a_wait_moves_nothing_and_outlives_it(db: Db) {
        let mut driver = Driver::new(&db).await;
        let (run, hook) = hook_of_a_cancelled_wait(&mut driver).await;
        driver.audit().await;
        let finished = [driver.finished(hook, Did::Returned(json!("told"))).await];
        driver.commit(&finished).await;
        assert_eq!(driver.run(run).await.0, RunStatus::Cancelled);
        driver.audit().await;
    }

    async fn retention_keeps_a_run_for_the_hook_of_its_end_but_not_for_that_of_a_wait(db: Db) {
        let mut driver = Driver::new(&db).await;
        let waited = driver.trigger(&p().on_wait("Asked").start("A").dampen("sure?").build().unwrap(), "\"x\"").await;
        let ended = driver.trigger(&p().on_complete("Completed").start("A").build().unwrap(), "\"x\"").await;
        let claimed = driver.claim("P", 2).await;
        let mut finished = Vec::new();
        for claimed in claimed {
            finished.push(driver.finished(claimed, Did::Returned(json!("y"))).await);
        }
        driver.commit(&finished).await;
        let branches = driver.claim_branches(9).await;
        driver.advance(&branches).await;
        assert!(matches!(cancel(&mut driver.conn, waited).await.unwrap(), Cancel::Done { .. }));
        assert_eq!(driver.run(ended).await.0, RunStatus::Completed);
        // Both hooks are in the queue.
        assert_eq!(prune(&mut driver.conn, Duration::ZERO, 99).await.unwrap(), 1);
        driver.audit().await;
        assert_eq!(driver.run(ended).await.0, RunStatus::Completed);
        let told = work(&mut driver).await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(prune(&mut driver.conn, Duration::ZERO, 99).await.unwrap(), 1);
        driver.audit().await;
    }
}

on_servers! {
    async fn a_hook_of_a_wait_that_fails_while_its_run_is_deleted_leaves_nothing_behind(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.audited = false;
        let (_, hook) = hook_of_a_cancelled_wait(&mut driver).await;
        // The deletion has read the rows of the hook, and cannot go on.
        let mut hold = db.conn().await;
        for script in ["BEGIN", "SELECT 1 FROM ductwork_advancements FOR UPDATE"] {
            hold.script("HOLD", script).await.unwrap();
        }
        let mut deletes = db.conn().await;
        let deleting = fault_injection::session(&mut deletes).await.unwrap().unwrap();
        let deleted = tokio::task::spawn_local(async move {
            prune(&mut deletes, Duration::ZERO, 9).await.unwrap()
        });
        let mut eye = db.conn().await;
        while !fault_injection::waits(&mut eye, deleting).await.unwrap() {
            assert!(!deleted.is_finished(), "nothing held up the deletion");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let worker = fault_injection::session(&mut driver.conn).await.unwrap().unwrap();
        driver.limits = limits(9, 9);
        let finished = [driver.finished(hook, Did::Erred).await];
        let failed = tokio::task::spawn_local(async move {
            driver.commit(&finished).await;
            driver
        });
        while !failed.is_finished() && !fault_injection::waits(&mut eye, worker).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        hold.script("COMMIT", "COMMIT").await.unwrap();
        assert_eq!(deleted.await.unwrap(), 1);
        let mut driver = failed.await.unwrap();
        driver.audit().await;
        assert!(driver.claim("P", 9).await.is_empty());
    }

    async fn an_answer_that_waits_for_a_lock_until_the_deadline_is_late(db: Db) {
        static IN_A_SECOND: Statement = Statement::new(
            "TEST_IN_A_SECOND",
            "UPDATE ductwork_deadlines SET answer_by = {now} + 1000000",
        );
        static SETTLE: &str = "UPDATE ductwork_branches SET status = 'in_progress' WHERE status = 'dampened'";
        let mut driver = Driver::new(&db).await;
        driver.audited = false;
        // On a busy machine, the answer may not be seen to wait before the deadline.
        let mut proven = 0;
        for is_settled in [false, false, false, false, true, true, true, true] {
            if proven != usize::from(is_settled) {
                continue;
            }
            let run = driver.trigger(&timed(Unanswered::Halt), "\"x\"").await;
            work(&mut driver).await;
            let mut hold = db.conn().await;
            for script in ["BEGIN", "SELECT 1 FROM ductwork_branches FOR UPDATE"] {
                hold.script("HOLD", script).await.unwrap();
            }
            let mut person = db.conn().await;
            let session = fault_injection::session(&mut person).await.unwrap().unwrap();
            driver.conn.execute(&IN_A_SECOND, &[]).await.unwrap();
            let deadline = query::now(&mut driver.conn).await.unwrap() + 1_000_000;
            let said = tokio::task::spawn_local(async move {
                resume(&mut person, run, None, Some("\"y\""), None).await.unwrap()
            });
            while !said.is_finished() && !fault_injection::waits(&mut driver.conn, session).await.unwrap() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            // It has read the question in time.
            let in_time = query::now(&mut driver.conn).await.unwrap() < deadline;
            while query::now(&mut driver.conn).await.unwrap() <= deadline {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if is_settled {
                hold.script("SETTLE", SETTLE).await.unwrap();
            }
            hold.script("COMMIT", "COMMIT").await.unwrap();
            let expected = match is_settled {
                true => Resume::NotDampened(RunStatus::Dampened),
                false => Resume::Late,
            };
            assert_eq!(said.await.unwrap(), expected);
            let passed = pass_deadlines(&mut driver.conn).await.unwrap();
            assert_eq!(passed.halted, usize::from(!is_settled));
            proven += usize::from(in_time);
        }
        assert_eq!(proven, 2, "no answer was seen to wait in time");
    }
}
