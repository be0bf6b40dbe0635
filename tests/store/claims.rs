//! Claims, fences, recovery, budgets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ductwork::definition::{Definition, Pipeline};
use ductwork::engine::actor::limits;
use ductwork::model::*;
use ductwork::store::advance::{self, BranchClaim};
use ductwork::store::claim::{self, Claim};
use ductwork::store::commit::{self, Committer};
use ductwork::store::definition::LeftOut;
use ductwork::store::process::{self, Claimant, Counters, Orders};
use ductwork::store::recovery::{self, Death};
use ductwork::store::statement::Statement;
use ductwork::store::trigger::{self, NewRun};
use ductwork::store::{Dialect, Error};
use serde_json::json;

use crate::driver::audit;
use crate::driver::{ADVANCER_MAX_CRASH, Did, Driver, LEASE, input, register, together};
use crate::on_every_database;
use crate::support::Db;

fn one() -> Definition {
    Pipeline::named("P").start("A").build().unwrap()
}

fn divided() -> Definition {
    let flow = Pipeline::named("P").start("A").divide(["B", "C"]);
    flow.combine("D").build().unwrap()
}

on_every_database! {
    async fn triggers_with_one_key_make_one_run(db: Db) {
        db.conn().await;
        let triggered = together((0..8).map(|_| {
            let db = db.clone();
            async move {
                let mut conn = db.conn().await;
                let runs = [NewRun { key: Some("k"), input: "1" }];
                let triggered = trigger::trigger(&mut conn, &one(), &runs, Duration::ZERO).await;
                triggered.expect("a trigger").remove(0)
            }
        }));
        let triggered = triggered.await;
        let runs: BTreeSet<RunId> = triggered.iter().map(|run| run.run_id).collect();
        assert_eq!(runs.len(), 1, "{triggered:?}");
        assert_eq!(triggered.iter().filter(|run| run.created).count(), 1);
        let mut conn = db.conn().await;
        let again = [
            NewRun { key: Some("k"), input: "2" },
            NewRun { key: Some("other"), input: "2" },
            NewRun { key: Some("other"), input: "2" },
            NewRun { key: None, input: "2" },
        ];
        let again = trigger::trigger(&mut conn, &one(), &again, Duration::ZERO).await.unwrap();
        assert!(!again[0].created && again[0].input_differs);
        assert!(again[1].created && !again[2].created && again[3].created);
        assert_eq!(again[1].run_id, again[2].run_id);
        // A caller that repeats the trigger may serialize its input differently.
        for (input, differs) in [
            (r#"{"a":1,"b":[2.0,{"c":"x","d":null}]}"#, false),
            (" { \"b\" : [ 2.0 , { \"d\" : null , \"c\" : \"\\u0078\" } ] ,\n \"a\" : 1 } ", false),
            (r#"{"a":1.0,"b":[2.0,{"c":"x","d":null}]}"#, true),
            (r#"{"a":1,"b":[{"c":"x","d":null},2.0]}"#, true),
        ] {
            let run = [NewRun { key: Some("written anew"), input }];
            let made = trigger::trigger(&mut conn, &one(), &run, Duration::ZERO).await.unwrap();
            assert_eq!(made[0].input_differs, differs, "{input}");
        }
        audit(&mut conn).await;
    }

    /// Its last results could not be committed: a process that proves its death finds its claims.
    async fn a_process_that_ends_with_claims_keeps_its_row_until_they_are_given_back(db: Db) {
        for what in ["an execution", "a branch", "nothing"] {
            let mut driver = Driver::new(&db).await;
            driver.trigger(&divided(), "1").await;
            let claimed = driver.claim("P", 1).await;
            if what != "an execution" {
                let claimed = claimed.into_iter().next().unwrap();
                let finished = driver.finished(claimed, Did::Returned(json!(1))).await;
                driver.commit(&[finished]).await;
            }
            if what == "a branch" {
                assert_eq!(driver.claim_branches(1).await.len(), 1);
            }
            process::deregister(&mut driver.actor.conn, driver.actor.process).await.unwrap();
            driver.audit().await;
            let recovered = driver.recover(driver.process).await;
            assert_eq!(recovered.removed, what != "nothing", "{what}");
            assert_eq!(recovered.again + recovered.branches, usize::from(recovered.removed));
        }
    }

    /// The second line behind the guards: impossible rows are refused as a whole, with an error.
    async fn a_claim_or_commit_that_finds_less_than_it_is_to_write_writes_nothing(db: Db) {
        static STRAY: Statement = Statement::new(
            "STRAY",
            "UPDATE ductwork_branches SET status = 'waiting'
              WHERE id = (SELECT branch_id FROM ductwork_steps WHERE id = :step)",
        );
        static ASTRAY: Statement = Statement::new(
            "ASTRAY",
            "UPDATE ductwork_branches SET step_id = id
              WHERE id = (SELECT branch_id FROM ductwork_steps WHERE id = :step)",
        );
        static BACK: Statement = Statement::new(
            "BACK",
            "UPDATE ductwork_branches SET status = 'in_progress', step_id = :step
              WHERE id = (SELECT branch_id FROM ductwork_steps WHERE id = :step)",
        );
        static CLOSED: Statement = Statement::new(
            "CLOSED",
            "UPDATE ductwork_executions SET process_id = NULL, claimed_at = NULL, lease_until = NULL,
                    completed_at = 1, result = 'released' WHERE process_id = id",
        );
        static TAKEN: Statement = Statement::new(
            "TAKEN",
            "UPDATE ductwork_executions SET process_id = id, claimed_at = 1, lease_until = 1
              WHERE process_id IS NULL",
        );
        let mut driver = Driver::new(&db).await;
        driver.audited = false;
        for _ in 0..3 {
            driver.trigger(&one(), "1").await;
        }
        let mut finished = Vec::new();
        for claimed in driver.claim("P", 2).await {
            finished.push(driver.finished(claimed, Did::Returned(json!(1))).await);
        }
        let step = finished[1].claimed.step_id.0;
        let committer = Committer { claimant: Claimant::new(driver.process), pipeline: "P", lease: LEASE, room: 0 };
        for (strays, comes_back) in [(&STRAY, &BACK), (&ASTRAY, &BACK)] {
            assert_eq!(driver.conn.execute(strays, &[("step", step.into())]).await.unwrap(), 1);
            let refused = commit::commit(&mut driver.conn, &finished, committer).await;
            assert!(matches!(refused, Err(Error::Corrupt(_))), "{}: {refused:?}", strays.name);
            let held = claim::held(&mut driver.actor.conn, driver.actor.process).await.unwrap().whole;
            assert_eq!(held.len(), 2);
            driver.conn.execute(comes_back, &[("step", step.into())]).await.unwrap();
        }
        driver.conn.execute(&STRAY, &[("step", step.into())]).await.unwrap();
        // The correct one is not refused because of the other.
        assert!(driver.commit(&finished[..1]).await.stale.is_empty());

        for taken in [&TAKEN, &CLOSED] {
            assert_eq!(driver.conn.execute(taken, &[]).await.unwrap(), 1);
            let refused = driver.actor.claim("P", 9).await;
            assert!(matches!(refused, Err(Error::Corrupt(_))), "{}: {refused:?}", taken.name);
        }
        let due = claim::next_due(&mut driver.conn, "P", &LeftOut::default()).await.unwrap();
        assert_eq!(due, Some(Duration::ZERO));
    }

    async fn a_claim_that_cannot_be_understood_holds_nothing(db: Db) {
        static GARBLED: Statement = Statement::new(
            "GARBLED",
            "UPDATE ductwork_steps SET input = :input WHERE run_id = :run",
        );
        static MENDED: Statement = Statement::new("MENDED", "UPDATE ductwork_steps SET input = '1'");
        // A large input is read separately.
        for input in ["no JSON".to_owned(), "no JSON".repeat(5_000)] {
            let mut driver = Driver::new(&db).await;
            driver.audited = false;
            driver.trigger(&one(), "1").await;
            let run = driver.trigger(&one(), "1").await;
            let garbled = [("run", run.0.into()), ("input", input.as_str().into())];
            driver.conn.execute(&GARBLED, &garbled).await.unwrap();
            let refused = driver.actor.claim("P", 9).await;
            assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
            driver.conn.execute(&MENDED, &[]).await.unwrap();
            let held = claim::held(&mut driver.actor.conn, driver.actor.process).await.unwrap().whole;
            assert!(held.is_empty(), "{held:?}");
            assert_eq!(driver.claim("P", 9).await.len(), 2);
        }
    }

    /// A planner that believes the queue to be empty may run a subquery once per row: (C7).
    async fn a_claim_takes_no_more_than_it_asks_for_whatever_the_planner_believes(db: Db) {
        let mut conn = db.conn().await;
        let analyze = match conn.dialect() {
            Dialect::Mysql => "ANALYZE TABLE ductwork_availabilities, ductwork_executions",
            _ => "ANALYZE",
        };
        conn.script("ANALYZE", analyze).await.unwrap();
        let runs = vec![NewRun { key: None, input: "1" }; 3_000];
        trigger::trigger(&mut conn, &one(), &runs, Duration::ZERO).await.unwrap();
        let claims = together((0..4).map(|_| {
            let db = db.clone();
            async move {
                let mut driver = Driver::new(&db).await;
                driver.audited = false;
                let mut taken = Vec::new();
                for _ in 0..20 {
                    let claimed = driver.claim("P", 7).await;
                    assert_eq!(claimed.len(), 7);
                    taken.extend(claimed.into_iter().map(|claimed| claimed.execution_id));
                }
                let held = claim::held(&mut driver.actor.conn, driver.actor.process).await.unwrap().whole;
                assert_eq!(held.len(), taken.len());
                taken
            }
        }));
        let taken: BTreeSet<ExecutionId> = claims.await.into_iter().flatten().collect();
        assert_eq!(taken.len(), 4 * 20 * 7);
        audit(&mut conn).await;
    }

    /// A claim passes over an availability that another session has locked; once it is free, it is the first
    /// again (C8).
    async fn what_was_passed_over_is_the_next_to_be_claimed(db: Db) {
        static LOCK: Statement = Statement::new(
            "LOCK",
            "SELECT execution_id FROM ductwork_availabilities WHERE pipeline = 'P'
              ORDER BY due_at, execution_id LIMIT 1 {lock}",
        );
        let mut driver = Driver::new(&db).await;
        for _ in 0..3 {
            driver.trigger(&one(), "1").await;
        }
        let mut other = db.conn().await;
        let passed = match other.dialect() {
            // With one writer at a time, nothing is ever passed over.
            Dialect::Sqlite => None,
            Dialect::Postgres | Dialect::Mysql => {
                other.script("BEGIN", "BEGIN").await.unwrap();
                let row = other.fetch_optional(&LOCK, &[]).await.unwrap().unwrap();
                Some(ExecutionId(row.get("execution_id").unwrap()))
            }
        };
        driver.audited = false;
        let first = driver.claim("P", 1).await.remove(0).execution_id;
        assert_ne!(Some(first), passed);
        other.script("ROLLBACK", "ROLLBACK").await.ok();
        let second = driver.claim("P", 1).await.remove(0).execution_id;
        let third = driver.claim("P", 1).await.remove(0).execution_id;
        match passed {
            Some(passed) => assert_eq!((second, first < third), (passed, true)),
            None => assert!(first < second && second < third),
        }
    }

    /// (A19)
    async fn branches_are_advanced_in_the_order_in_which_they_became_ready(db: Db) {
        let mut driver = Driver::new(&db).await;
        let mut ready = Vec::new();
        for _ in 0..6 {
            driver.trigger(&divided(), "1").await;
        }
        let mut claimed = driver.claim("P", 6).await;
        // Not in the order in which they were made.
        claimed.reverse();
        for claimed in claimed {
            ready.push(claimed.branch_id);
            let finished = driver.finished(claimed, Did::Returned(json!(1))).await;
            driver.commit(&[finished]).await;
        }
        let mut taken = Vec::new();
        for n in [1, 2, 3] {
            let mut branches: Vec<BranchId> =
                driver.claim_branches(n).await.iter().map(|branch| branch.id).collect();
            branches.sort_by_key(|id| ready.iter().position(|known| known == id));
            taken.extend(branches);
        }
        assert_eq!(taken, ready);
    }

    /// However it comes back: ahead of those that it preceded when it was claimed.
    async fn what_is_put_back_keeps_its_place_in_the_queue(db: Db) {
        let later = || tokio::time::sleep(Duration::from_millis(5));
        for how in ["put back", "released", "crashed", "recovered"] {
            let mut driver = Driver::new(&db).await;
            driver.limits = limits(0, 3);
            let first = driver.trigger(&one(), "1").await;
            later().await;
            let second = driver.trigger(&one(), "2").await;
            later().await;
            let claimed = driver.claim("P", 1).await.remove(0);
            assert_eq!(claimed.run_id, first);
            later().await;
            let third = driver.trigger(&one(), "3").await;
            later().await;
            match how {
                "put back" => {
                    let me = Claimant::new(driver.process);
                    let ids = [claimed.execution_id];
                    let put_back = claim::put_back(&mut driver.conn, me, "P", &ids, Duration::ZERO);
                    assert_eq!(put_back.await.unwrap(), 1);
                }
                "released" | "crashed" => {
                    let did = if how == "crashed" { Did::Crashed } else { Did::Released };
                    let finished = driver.finished(claimed, did).await;
                    driver.commit(&[finished]).await;
                }
                _ => {
                    assert_eq!(driver.recover(driver.process).await.again, 1);
                    driver.process = register(&mut driver.conn).await;
                }
            }
            for run in [first, second, third] {
                let claimed = driver.claim("P", 1).await.remove(0);
                assert_eq!(claimed.run_id, run, "{how}");
                let finished = driver.finished(claimed, Did::Returned(json!(1))).await;
                driver.commit(&[finished]).await;
            }
        }
    }

    async fn what_was_claimed_ahead_is_put_back_as_if_it_had_not_been_claimed(db: Db) {
        let mut driver = Driver::new(&db).await;
        let mut other = Driver::new(&db).await;
        for _ in 0..4 {
            driver.trigger(&one(), "1").await;
        }
        let claimed = driver.claim("P", 3).await;
        let theirs = other.claim("P", 1).await.remove(0);
        let ids: Vec<ExecutionId> = claimed.iter().map(|claimed| claimed.execution_id).collect();
        // One was committed meanwhile, and one belongs to another process: both stay as they are.
        let finished = [driver.finished(claimed[0].clone(), Did::Returned(json!(1))).await];
        driver.commit(&finished).await;
        let asked = [ids[0], ids[1], theirs.execution_id];
        let put_back = claim::put_back(&mut driver.actor.conn, Claimant::new(driver.actor.process), "P", &asked, Duration::ZERO).await;
        assert_eq!(put_back.unwrap(), 1);
        driver.audit().await;
        let again = other.claim("P", 9).await;
        let got: Vec<(ExecutionId, u32)> =
            again.iter().map(|claimed| (claimed.execution_id, claimed.attempt)).collect();
        assert_eq!(got, [(ids[1], 1)]);
    }

    async fn two_hundred_claims_from_eight_connections_never_give_an_execution_twice(db: Db) {
        let mut driver = Driver::new(&db).await;
        for _ in 0..200 {
            driver.trigger(&one(), "1").await;
        }
        let claims = together((0..8).map(|_| {
            let db = db.clone();
            async move {
                let mut driver = Driver::new(&db).await;
                let mut taken = Vec::new();
                loop {
                    let claimed = driver.claim("P", 3).await;
                    if claimed.is_empty() {
                        return taken;
                    }
                    taken.extend(claimed.iter().map(|claimed| claimed.execution_id));
                }
            }
        }));
        let all: Vec<ExecutionId> = claims.await.into_iter().flatten().collect();
        assert_eq!(all.len(), 200);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 200);
        driver.audit().await;
    }

    async fn a_late_commit_loses_after_the_reaper_took_the_claim(db: Db) {
        let mut late = Driver::new(&db).await;
        let mut other = Driver::new(&db).await;
        other.limits = limits(0, 3);
        let run = late.trigger(&one(), "1").await;
        let claimed = late.claim("P", 1).await.remove(0);
        let finished = [late.finished(claimed, Did::Returned(json!("late"))).await];
        let recovered = other.recover(late.process).await;
        assert!(recovered.removed);
        assert_eq!((recovered.again, recovered.failed), (1, 0));
        let committed = late.commit(&finished).await;
        assert!(committed.dead);
        assert_eq!(committed.stale, [finished[0].claimed.execution_id]);
        // Even after it has registered again, and is alive: the claim belongs to another process.
        late.process = register(&mut late.conn).await;
        let committed = late.commit(&finished).await;
        assert!(!committed.dead);
        assert_eq!(committed.stale, [finished[0].claimed.execution_id]);
        other.work("P", |_| Did::Returned(json!("in time"))).await;
        assert_eq!(other.run(run).await, (RunStatus::Completed, Some(json!("in time"))));
    }

    async fn a_stale_result_in_the_batch_of_its_successor_is_nobodys_input(db: Db) {
        let mut worker = Driver::new(&db).await;
        let mut other = Driver::new(&db).await;
        other.limits = limits(0, 3);
        let chain = Pipeline::named("P").start("A").chain("B").build().unwrap();
        for stale in [Did::Returned(json!("stale")), Did::Crashed] {
            let run = worker.trigger(&chain, "1").await;
            // The worker is taken for dead, comes back as another process, and claims its own work
            // once more.
            let first = worker.claim("P", 1).await.remove(0);
            other.recover(worker.process).await;
            worker.process = register(&mut worker.conn).await;
            let second = worker.claim("P", 1).await.remove(0);
            let finished = [
                worker.finished(second, Did::Returned(json!("right"))).await,
                worker.finished(first, stale).await,
            ];
            worker.room = 1;
            let mut committed = worker.commit(&finished).await;
            assert_eq!(committed.stale, [finished[1].claimed.execution_id]);
            let next = committed.leased_next.pop().expect("what is leased at birth is handed out");
            // An output may be large, and the step that follows is handed the same text.
            let output = finished[0].ended.output.as_ref().expect("it succeeded");
            assert!(Arc::ptr_eq(output, &next.input), "the output is copied");
            assert_eq!((next.step.as_str(), input(&next)), ("B", json!("right")));
            let finished = [worker.finished(next, Did::Returned(json!(2))).await];
            assert_eq!(worker.commit(&finished).await.stale, []);
            assert_eq!(worker.run(run).await, (RunStatus::Completed, Some(json!(2))));
        }
    }

    async fn a_result_counts_once(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.limits = limits(3, 3);
        let run = driver.trigger(&one(), "1").await;
        let claimed = driver.claim("P", 1).await.remove(0);
        let finished = [driver.finished(claimed, Did::Erred).await];
        assert_eq!(driver.commit(&finished).await.stale, []);
        // The next attempt belongs to the same process; the first one is over all the same.
        let second = driver.claim("P", 1).await.remove(0);
        assert_eq!(second.attempt, 2);
        assert_eq!(driver.commit(&finished).await.stale, [finished[0].claimed.execution_id]);
        let finished = [driver.finished(second, Did::Returned(json!(2))).await];
        assert_eq!(driver.commit(&finished).await.stale, []);
        assert_eq!(driver.commit(&finished).await.stale, [finished[0].claimed.execution_id]);
        assert_eq!(driver.run(run).await, (RunStatus::Completed, Some(json!(2))));
    }

    async fn nobody_commits_what_another_holds(db: Db) {
        let mut holder = Driver::new(&db).await;
        let mut other = Driver::new(&db).await;
        let run = holder.trigger(&one(), "1").await;
        let claimed = holder.claim("P", 1).await.remove(0);
        let stale = [claimed.execution_id];
        // MySQL closes a result with an error by another statement.
        let finished = [other.finished(claimed.clone(), Did::Crashed).await];
        assert_eq!(other.commit(&finished).await.stale, stale);
        let finished = [other.finished(claimed, Did::Returned(json!(1))).await];
        assert_eq!(other.commit(&finished).await.stale, stale);
        assert_eq!(holder.commit(&finished).await.stale, []);
        assert_eq!(holder.run(run).await, (RunStatus::Completed, Some(json!(1))));
    }

    async fn a_process_that_was_declared_dead_claims_nothing(db: Db) {
        let mut dead = Driver::new(&db).await;
        let mut other = Driver::new(&db).await;
        dead.trigger(&one(), "1").await;
        assert!(other.recover(dead.process).await.removed);
        let claim = dead.actor.claim("P", 1).await.unwrap();
        assert!(matches!(claim, Claim::Dead), "{claim:?}");
        let claim = dead.actor.claim_branches(1).await.unwrap();
        assert!(matches!(claim, BranchClaim::Dead), "{claim:?}");
        let beat = process::beat(&mut dead.actor.conn, dead.actor.process, Role::Worker, Counters::default(), Intake::Open).await;
        assert_eq!(beat.unwrap().orders, Orders::Dead);
        assert_eq!(other.claim("P", 9).await.len(), 1);
    }

    async fn a_claim_through_a_connection_that_was_given_up_claims_nothing(db: Db) {
        let mut driver = Driver::new(&db).await;
        let process = driver.process;
        let past = Claimant::new(process);
        let present = Claimant { process, epoch: 1 };
        for _ in 0..2 {
            driver.trigger(&divided(), "1").await;
        }
        let claimed = driver.claim("P", 1).await.remove(0);
        let held = [claimed.execution_id];
        let finished = [driver.finished(claimed, Did::Returned(json!(1))).await];
        let committer = |claimant| Committer { claimant, pipeline: "P", lease: LEASE, room: 9 };
        process::fence_earlier(&mut driver.conn, present).await.unwrap();
        // A statement that was sent earlier arrives only now: it has no effect either.
        process::fence_earlier(&mut driver.conn, past).await.unwrap();

        let claim = claim::claim(&mut driver.conn, past, "P", 1, LEASE).await.unwrap();
        assert!(matches!(claim, Claim::Dead), "{claim:?}");
        let back = claim::put_back(&mut driver.conn, past, "P", &held, Duration::ZERO).await;
        assert_eq!(back.unwrap(), 0);
        match commit::commit(&mut driver.conn, &finished, committer(past)).await {
            Ok(committed) => assert!(committed.dead),
            Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{error:?}"),
        }
        driver.audit().await;
        let still: Vec<_> = claim::held(&mut driver.conn, process).await.unwrap().whole;
        assert_eq!(still.iter().map(|it| it.execution_id).collect::<Vec<_>>(), held);

        let committed = commit::commit(&mut driver.conn, &finished, committer(present)).await;
        assert_eq!(committed.unwrap().stale, []);
        let branches = advance::claim(&mut driver.conn, past, 9, LEASE, &LeftOut::default()).await.unwrap();
        assert!(matches!(branches, BranchClaim::Dead), "{branches:?}");
        let branches = advance::claim(&mut driver.conn, present, 9, LEASE, &LeftOut::default()).await.unwrap();
        assert!(matches!(&branches, BranchClaim::Taken(taken) if taken.len() == 1), "{branches:?}");
        let claim = claim::claim(&mut driver.conn, present, "P", 9, LEASE).await.unwrap();
        assert!(matches!(&claim, Claim::Taken(taken) if taken.len() == 1), "{claim:?}");
    }

    async fn claims_race_with_a_declaration_of_death_and_one_of_them_wins(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.limits = limits(0, 99);
        driver.trigger(&one(), "1").await;
        for round in 0..20 {
            let mut doomed = Driver::new(&db).await;
            let process = doomed.process;
            let claim: std::pin::Pin<Box<dyn Future<Output = Option<Driver>>>> = Box::pin(async move {
                let claim = claim::claim(&mut doomed.conn, Claimant::new(process), "P", 1, LEASE).await;
                claim.unwrap();
                None
            });
            let recover = Box::pin(async move {
                tokio::time::sleep(Duration::from_micros(200 * round)).await;
                // The claim may have locked the row of its process.
                while !driver.recover(process).await.left.is_empty() {}
                Some(driver)
            });
            let mut done = together([claim, recover]).await;
            driver = done.pop().unwrap().expect("the driver");
            // Whichever of them is first: the execution is available, and belongs to no process.
            driver.audit().await;
        }
        assert_eq!(driver.work("P", |_| Did::Returned(json!(1))).await, ["A"]);
    }

    async fn a_zombie_advancer_advances_nothing(db: Db) {
        let mut zombie = Driver::new(&db).await;
        let mut other = Driver::new(&db).await;
        let run = zombie.trigger(&divided(), "1").await;
        let claimed = zombie.claim("P", 1).await.remove(0);
        let finished = [zombie.finished(claimed, Did::Returned(json!(1))).await];
        zombie.commit(&finished).await;
        let branches = zombie.claim_branches(9).await;
        assert_eq!(branches.len(), 1);
        assert_eq!(other.recover(zombie.process).await.branches, 1);
        // The branch is free, then another's, then moved: it is never the zombie's.
        for point in 0..3 {
            let advanced = zombie.advance(&branches).await;
            assert_eq!(advanced.moved, 0, "at point {point}");
            assert_eq!(advanced.stale, [branches[0].id]);
            match point {
                0 => assert_eq!(other.claim_branches(9).await.len(), 1),
                1 => {
                    other.recover(other.process).await;
                    other.process = register(&mut other.conn).await;
                    let again = other.claim_branches(9).await;
                    assert_eq!(other.advance(&again).await.moved, 1);
                }
                _ => {}
            }
        }
        other.work("P", |_| Did::Returned(json!(2))).await;
        assert_eq!(other.run(run).await, (RunStatus::Completed, Some(json!(2))));
    }

    async fn an_advancement_that_is_given_back_is_free_or_costs_a_retry(db: Db) {
        let mut driver = Driver::new(&db).await;
        let run = driver.trigger(&divided(), "1").await;
        let claimed = driver.claim("P", 1).await.remove(0);
        let finished = [driver.finished(claimed, Did::Returned(json!(1))).await];
        driver.commit(&finished).await;
        let at_once = |_: &str, _| Duration::ZERO;
        // More releases than the budget has retries.
        for _ in 0..5 {
            let branches = driver.claim_branches(9).await;
            let released = advance::GiveBack::Released;
            // An advancer that lost its connection queries its own claims.
            let held = advance::held(&mut driver.actor.conn, driver.actor.process).await.unwrap();
            assert_eq!(held, branches);
            advance::give_back(&mut driver.conn, &held, released, &at_once).await.unwrap();
            driver.audit().await;
        }
        for _ in 0..3 {
            let branches = driver.claim_branches(9).await;
            assert_eq!(branches.len(), 1);
            let errored = advance::GiveBack::Errored { message: "no" };
            advance::give_back(&mut driver.conn, &branches, errored, &at_once).await.unwrap();
            driver.audit().await;
        }
        driver.work("P", |_| Did::Returned(json!(1))).await;
        assert_eq!(driver.run(run).await.0, RunStatus::Halted);
        assert_eq!(driver.halt_reasons(run).await, ["advancer_retries_exhausted"]);
    }

    /// More often than it may be refused; after that it waits longer the more often it was
    /// hindered.
    async fn an_advancement_that_the_database_hinders_costs_nothing_and_waits(db: Db) {
        let mut driver = Driver::new(&db).await;
        let run = driver.trigger(&divided(), "1").await;
        let claimed = driver.claim("P", 1).await.remove(0);
        let finished = [driver.finished(claimed, Did::Returned(json!(1))).await];
        driver.commit(&finished).await;
        let asked = std::sync::Mutex::new(Vec::new());
        let backoff = |pipeline: &str, times| {
            asked.lock().unwrap().push((pipeline.to_owned(), times));
            Duration::from_millis(u64::from(times))
        };
        let mut given_back = Vec::new();
        for times in 1..=5 {
            let branches = driver.wait_for_branches().await;
            let hindered = advance::GiveBack::Hindered { message: "no room", times };
            advance::give_back(&mut driver.conn, &branches, hindered, &backoff).await.unwrap();
            given_back.push(("P".to_owned(), times));
            driver.audit().await;
        }
        for times in 1..=2 {
            let branches = driver.wait_for_branches().await;
            let errored = advance::GiveBack::Errored { message: "no" };
            advance::give_back(&mut driver.conn, &branches, errored, &backoff).await.unwrap();
            given_back.push(("P".to_owned(), times));
            driver.audit().await;
        }
        assert_eq!(*asked.lock().unwrap(), given_back);
        let branches = driver.wait_for_branches().await;
        driver.advance(&branches).await;
        driver.work("P", |_| Did::Returned(json!(1))).await;
        assert_eq!(driver.run(run).await.0, RunStatus::Completed);
        // A hindered branch waits for less time than a retry may.
        driver.trigger(&divided(), "1").await;
        let claimed = driver.claim("P", 1).await.remove(0);
        let finished = [driver.finished(claimed, Did::Returned(json!(1))).await];
        driver.commit(&finished).await;
        let branches = driver.wait_for_branches().await;
        let hindered = advance::GiveBack::Hindered { message: "no room", times: 9 };
        let an_hour = |_: &str, _| Duration::from_secs(3_600);
        advance::give_back(&mut driver.conn, &branches, hindered, &an_hour).await.unwrap();
        let next = advance::next_ready(&mut driver.conn).await.unwrap().unwrap();
        assert!((5..=10).contains(&next.as_secs()), "{next:?}");
    }

    /// The same limit as for a step: the `max_crash`-th death is the last.
    async fn an_advancer_that_dies_max_crash_times_halts_its_branch(db: Db) {
        let mut driver = Driver::new(&db).await;
        let max_crash = ADVANCER_MAX_CRASH;
        for (deaths, ends) in [(max_crash - 1, RunStatus::Completed), (max_crash, RunStatus::Halted)] {
            let run = driver.trigger(&divided(), "1").await;
            let claimed = driver.claim("P", 1).await.remove(0);
            let finished = [driver.finished(claimed, Did::Returned(json!(1))).await];
            driver.commit(&finished).await;
            for _ in 0..deaths {
                assert_eq!(driver.claim_branches(9).await.len(), 1);
                driver.recover(driver.process).await;
                driver.process = register(&mut driver.conn).await;
            }
            driver.work("P", |_| Did::Returned(json!(1))).await;
            assert_eq!(driver.run(run).await.0, ends, "{deaths} deaths");
            let reasons: &[&str] = match ends {
                RunStatus::Halted => &["advancer_crashes_exhausted"],
                _ => &[],
            };
            assert_eq!(driver.halt_reasons(run).await, reasons);
        }
    }

    async fn a_beat_between_look_and_recovery_saves_the_process(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.trigger(&one(), "1").await;
        assert_eq!(driver.claim("P", 1).await.len(), 1);
        let mut reaper = db.conn().await;
        let definitions = ductwork::store::definition::Definitions::default();
        let limits = limits(0, 3);
        let limits = move |_: &Definition, _: &str| limits;
        let seen = process::processes(&mut reaper).await.unwrap()[0].beat_seq;
        let witnessed = Death::Witnessed { beat_seq: seen, stale_after: Duration::ZERO };
        let counters = Counters { claimed: 1, ..Counters::default() };
        let heard = process::beat(&mut driver.actor.conn, driver.actor.process, Role::Worker, counters, Intake::Open).await;
        assert_eq!(heard.unwrap().orders, Orders::Claim);
        let recovered =
            recovery::recover(&mut reaper, driver.process, witnessed, &limits, &definitions).await;
        assert_eq!(recovered.unwrap(), recovery::Recovered::default());
        let seen = process::processes(&mut reaper).await.unwrap()[0].beat_seq;
        // Silent, but not for long enough.
        let patient = Death::Witnessed { beat_seq: seen, stale_after: Duration::from_secs(60) };
        let recovered =
            recovery::recover(&mut reaper, driver.process, patient, &limits, &definitions).await;
        assert!(!recovered.unwrap().removed);
        let witnessed = Death::Witnessed { beat_seq: seen, stale_after: Duration::ZERO };
        let recovered =
            recovery::recover(&mut reaper, driver.process, witnessed, &limits, &definitions).await;
        assert_eq!(recovered.unwrap().again, 1);
        audit(&mut reaper).await;
    }

    async fn reapers_at_once_recover_once(db: Db) {
        let mut driver = Driver::new(&db).await;
        let run = driver.trigger(&one(), "1").await;
        for _ in 0..10 {
            let dead = Driver::new(&db).await.process;
            let taken = claim::claim(&mut driver.conn, Claimant::new(dead), "P", 1, LEASE).await.unwrap();
            assert!(matches!(taken, Claim::Taken(taken) if taken.len() == 1));
            let recovered = together((0..4).map(|_| {
                let db = db.clone();
                async move {
                    let mut reaper = Driver::new(&db).await;
                    reaper.limits = limits(0, 99);
                    reaper.recover(dead).await.again
                }
            }));
            assert_eq!(recovered.await.into_iter().sum::<usize>(), 1);
        }
        let claimed = driver.claim("P", 9).await.remove(0);
        assert_eq!((claimed.attempt, claimed.crash_count, claimed.retry_count), (11, 10, 0));
        let finished = [driver.finished(claimed, Did::Returned(json!(1))).await];
        driver.commit(&finished).await;
        assert_eq!(driver.run(run).await.0, RunStatus::Completed);
    }

    async fn crashes_never_spend_retries(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.limits = limits(2, 4);
        let run = driver.trigger(&one(), "1").await;
        let mut ends = [
            Did::Crashed, Did::Erred, Did::Crashed, Did::TimedOut, Did::Crashed,
            Did::Returned(json!("at last")),
        ]
        .into_iter();
        let ran = driver.work("P", |_| ends.next().expect("no more attempts")).await;
        assert_eq!(ran.len(), 6);
        assert_eq!(driver.run(run).await, (RunStatus::Completed, Some(json!("at last"))));
    }

    async fn each_budget_halts_with_its_own_reason(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.limits = limits(2, 4);
        type Case = (fn() -> Did, usize, &'static str);
        let cases: [Case; 4] = [
            (|| Did::Erred, 3, "job_retries_exhausted"),
            (|| Did::Refused, 1, "step_refused"),
            (|| Did::TimedOut, 3, "job_timed_out"),
            (|| Did::Crashed, 4, "job_crashes_exhausted"),
        ];
        for (did, attempts, reason) in cases {
            let run = driver.trigger(&one(), "1").await;
            assert_eq!(driver.work("P", |_| did()).await.len(), attempts, "{reason}");
            assert_eq!(driver.run(run).await, (RunStatus::Halted, None));
            assert_eq!(driver.halt_reasons(run).await, [reason]);
        }
    }

    async fn a_step_whose_processes_die_is_given_up_after_max_crash(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.limits = limits(0, 3);
        let run = driver.trigger(&one(), "1").await;
        for crash in 1..=3 {
            assert_eq!(driver.claim("P", 1).await.len(), 1);
            let recovered = driver.recover(driver.process).await;
            assert_eq!(recovered.failed, usize::from(crash == 3));
            driver.process = register(&mut driver.conn).await;
        }
        driver.work("P", |_| Did::Returned(json!(1))).await;
        assert_eq!(driver.halt_reasons(run).await, ["job_crashes_exhausted"]);
    }

    async fn a_beat_tells_what_is_still_held(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.trigger(&one(), "1").await;
        let cancelled = driver.trigger(&one(), "2").await;
        let claimed = driver.claim("P", 9).await;
        assert_eq!(claimed.len(), 2);
        let mut other = db.conn().await;
        let done = ductwork::store::cancel::cancel(&mut other, cancelled).await.unwrap();
        let held = vec![driver.process];
        assert_eq!(done, ductwork::store::cancel::Cancel::Done { held });
        let held = process::hold_on(&mut driver.actor.conn, driver.actor.process, LEASE).await.unwrap();
        let kept = claimed.iter().find(|claimed| claimed.run_id != cancelled).unwrap();
        assert_eq!(held.executions, [kept.execution_id]);
    }
}
