//! Guards that no order of transactions on SQLite puts to the test.
//!
//! Either a row is incorrect (the test makes it so by hand, and the statement must leave it alone
//! or refuse it), or it changes while a statement waits for it, which happens on PostgreSQL only.

use std::time::Duration;

use ductwork::definition::{Definition, Pipeline};
use ductwork::engine::actor::limits;
use ductwork::model::*;
use ductwork::store::Error;
use ductwork::store::cancel::{Cancel, cancel};
use ductwork::store::claim::{self, Claim};
use ductwork::store::commit;
use ductwork::store::fault_injection;
use ductwork::store::process::{self, Claimant};
use ductwork::store::recovery;
use ductwork::store::resume::{self, Resume, resume};
use ductwork::store::revive::revive;
use ductwork::store::statement::Statement;
use serde_json::json;

use crate::driver::{Did, Driver};
use crate::flows::ink;
use crate::on_every_database;
use crate::support::Db;

static CANCELLED_BY_HAND: Statement = Statement::new(
    "CANCELLED_BY_HAND",
    "UPDATE ductwork_runs SET status = 'cancelled', cancelled_at = 1 WHERE id = :run",
);
static ROOT_CANCELLED_BY_HAND: Statement = Statement::new(
    "ROOT_CANCELLED_BY_HAND",
    "UPDATE ductwork_branches SET status = 'cancelled' WHERE run_id = :run AND fan_out_id IS NULL",
);
static ROOT: Statement = Statement::new(
    "ROOT_OF_RUN",
    "SELECT status, claim_token FROM ductwork_branches WHERE run_id = :run AND fan_out_id IS NULL",
);
static CROSSED_BY_HAND: Statement = Statement::new(
    "CROSSED_BY_HAND",
    "INSERT INTO ductwork_transitions
        (id, run_id, branch_id, from_step_id, via, produced, opened_at, completed_at)
     SELECT br.id, br.run_id, br.id, br.step_id, 'end', 0, 1, 1
       FROM ductwork_branches br WHERE br.run_id = :run",
);
static CLAIMED_BY_HAND: Statement = Statement::new(
    "CLAIMED_BY_HAND",
    "UPDATE ductwork_branches SET claim_token = id WHERE run_id = :run AND status = 'advancing'",
);
static GONE_BACK_BY_HAND: Statement = Statement::new(
    "GONE_BACK_BY_HAND",
    "UPDATE ductwork_fan_outs SET arrived = arrived - 1, fired_at = NULL WHERE run_id = :run",
);
static LEASE_OVER: Statement = Statement::new(
    "LEASE_OVER",
    "UPDATE ductwork_executions SET lease_until = 1 WHERE id = :id",
);
static ADVANCE_LEASES_OVER: Statement = Statement::new(
    "ADVANCE_LEASES_OVER",
    "UPDATE ductwork_advancements SET lease_until = 1 WHERE process_id = :process",
);
static ROW_REMOVED: Statement = Statement::new(
    "ROW_REMOVED",
    "DELETE FROM ductwork_processes WHERE id = :process",
);
static HELD_RUN: Statement = Statement::new(
    "HELD_RUN",
    "SELECT id FROM ductwork_runs WHERE id = :run FOR UPDATE",
);
static STANDS_ELSEWHERE: Statement = Statement::new(
    "STANDS_ELSEWHERE",
    "UPDATE ductwork_branches SET step_id =
        (SELECT s.id FROM ductwork_steps s WHERE s.run_id = :run AND s.ordinal = 0)
      WHERE run_id = :run",
);

fn of(flow: Pipeline) -> Definition {
    flow.build().unwrap()
}

fn one() -> Definition {
    of(Pipeline::named("P").start("A"))
}

fn divided() -> Definition {
    of(Pipeline::named("P")
        .start("A")
        .divide(["B", "C"])
        .combine("D"))
}

async fn by_hand(driver: &mut Driver, statement: &'static Statement, run: RunId) {
    let changed = driver
        .conn
        .execute(statement, &[("run", run.0.into())])
        .await
        .unwrap();
    assert_eq!(changed, 1, "{}", statement.name);
}

async fn driver(db: &Db) -> Driver {
    let mut driver = Driver::new(db).await;
    driver.audited = false;
    driver
}

/// The server's name for the driver's session.
pub async fn session(driver: &mut Driver) -> i64 {
    let session = fault_injection::session(&mut driver.conn).await.unwrap();
    session.expect("PostgreSQL has sessions")
}

/// Waits until the statement of a session waits for another session's lock.
pub async fn until_it_waits(watch: &mut Driver, session: i64) {
    let started = std::time::Instant::now();
    while !fault_injection::waits(&mut watch.conn, session)
        .await
        .unwrap()
    {
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "it waits for nobody"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

on_every_database! {
    async fn a_run_that_is_over_stays_as_it_ended(db: Db) {
        let p = || Pipeline::named("P");
        let mut wrong = Vec::new();
        for (guard, flow, first, fails) in [
            ("END_RUNS", of(p().start("A")), false, false),
            ("COMPLETE_RUNS", of(p().start("A").divide(["B", "C"])), true, false),
            ("HALT_RUNS", of(p().start("A")), false, true),
            ("DAMPEN_RUNS", of(p().start("A").dampen("")), false, false),
        ] {
            let mut driver = driver(&db).await;
            let run = driver.trigger(&flow, "1").await;
            if first {
                driver.round("P", &mut |_| Did::Returned(json!(1))).await;
            }
            by_hand(&mut driver, &CANCELLED_BY_HAND, run).await;
            let worked = tokio::task::spawn_local(async move {
                let did = |_: &claim::Claimed| match fails {
                    true => Did::Refused,
                    false => Did::Returned(json!(1)),
                };
                driver.work("P", did).await;
                driver.run(run).await
            });
            // A commit is not refused: others in its batch have worked just as long. An advance is
            // refused.
            let counted = format!("{guard} was to write");
            let is_refused = |error: tokio::task::JoinError| {
                let said = error.into_panic();
                said.downcast_ref::<String>().is_some_and(|said| said.contains(&counted))
            };
            match worked.await {
                Ok((RunStatus::Cancelled, None)) if guard == "END_RUNS" => {}
                Err(error) if guard != "END_RUNS" => {
                    if !is_refused(error) {
                        wrong.push(format!("{guard}: it was not its count that was refused"));
                    }
                }
                other => wrong.push(format!("{guard}: {other:?}")),
            }
            let ended = self::driver(&db).await.run(run).await;
            if !matches!(ended, (RunStatus::Cancelled, None)) {
                wrong.push(format!("{guard}: {ended:?}"));
            }
        }
        // Nor is a branch resumed when its run does not know that it waits.
        let mut driver = driver(&db).await;
        let run = driver.trigger(&of(p().start("A").dampen("")), "1").await;
        driver.work("P", |_| Did::Returned(json!(1))).await;
        by_hand(&mut driver, &CANCELLED_BY_HAND, run).await;
        let refused = resume(&mut driver.conn, run, None, None, None).await;
        if !matches!(refused, Err(Error::Corrupt(_))) {
            wrong.push(format!("RESUME_RUNS: {refused:?}"));
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    async fn a_crossing_that_was_made_is_not_made_again(db: Db) {
        let mut driver = driver(&db).await;
        let run = driver.trigger(&divided(), "1").await;
        let claimed = driver.claim("P", 1).await.remove(0);
        let finished = [driver.finished(claimed, Did::Returned(json!(1))).await];
        driver.commit(&finished).await;
        by_hand(&mut driver, &CROSSED_BY_HAND, run).await;
        let refused = driver.actor.claim_branches(9).await;
        assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
    }

    async fn a_branch_that_is_over_is_not_moved_by_its_fan_in(db: Db) {
        let mut driver = driver(&db).await;
        let run = driver.trigger(&divided(), "1").await;
        driver.round("P", &mut |_| Did::Returned(json!(1))).await;
        by_hand(&mut driver, &ROOT_CANCELLED_BY_HAND, run).await;
        let worked = tokio::task::spawn_local(async move {
            driver.work("P", |_| Did::Returned(json!(1))).await
        });
        assert!(worked.await.unwrap_err().is_panic(), "the advance was not refused");
        let mut other = self::driver(&db).await;
        let root = other.rows(&ROOT, &[("run", run.0.into())]).await;
        assert_eq!(root[0].get::<String>("status").unwrap(), "cancelled");
    }

    async fn a_branch_under_another_claim_is_not_given_back_with_the_dead(db: Db) {
        let mut dead = driver(&db).await;
        let mut other = driver(&db).await;
        let run = dead.trigger(&divided(), "1").await;
        let claimed = dead.claim("P", 1).await.remove(0);
        let finished = [dead.finished(claimed, Did::Returned(json!(1))).await];
        dead.commit(&finished).await;
        assert_eq!(dead.claim_branches(1).await.len(), 1);
        by_hand(&mut dead, &CLAIMED_BY_HAND, run).await;
        assert!(other.recover(dead.process).await.removed);
        let root = other.rows(&ROOT, &[("run", run.0.into())]).await;
        assert_eq!(root[0].get::<String>("status").unwrap(), "advancing");
    }

    async fn a_barrier_that_has_not_fired_is_not_reopened(db: Db) {
        let mut driver = driver(&db).await;
        let run = driver.trigger(&divided(), "\"x\"").await;
        driver.advance_limits.max_payload = 0;
        driver.work("P", |claimed| Did::Returned(ink(claimed))).await;
        assert_eq!(driver.halt_reasons(run).await, ["payload_too_large"]);
        by_hand(&mut driver, &GONE_BACK_BY_HAND, run).await;
        let refused = revive(&mut driver.conn, run).await;
        assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
    }

    async fn nobody_puts_back_what_another_holds(db: Db) {
        let mut holder = driver(&db).await;
        let mut other = driver(&db).await;
        holder.trigger(&one(), "1").await;
        let held = [holder.claim("P", 1).await[0].execution_id];
        let back = claim::put_back(&mut other.actor.conn, Claimant::new(other.actor.process), "P", &held, Duration::ZERO).await;
        assert_eq!(back.unwrap(), 0);
        let back = claim::put_back(&mut holder.actor.conn, Claimant::new(holder.actor.process), "P", &held, Duration::ZERO).await;
        assert_eq!(back.unwrap(), 1);
    }

    async fn what_another_committed_has_not_landed(db: Db) {
        let mut holder = driver(&db).await;
        let other = driver(&db).await;
        holder.trigger(&one(), "1").await;
        let claimed = holder.claim("P", 1).await.remove(0);
        let finished = [holder.finished(claimed, Did::Returned(json!(1))).await];
        holder.commit(&finished).await;
        let conn = &mut holder.actor.conn;
        assert!(commit::landed(conn, &finished, other.process).await.unwrap().is_empty());
        assert_eq!(commit::landed(conn, &finished, holder.actor.process).await.unwrap().len(), 1);
    }

    async fn a_worker_claims_of_its_own_pipeline_alone(db: Db) {
        let mut driver = driver(&db).await;
        driver.trigger(&one(), "1").await;
        driver.trigger(&of(Pipeline::named("Q").start("A")), "1").await;
        assert_eq!(driver.claim("P", 9).await.len(), 1);
        assert_eq!(driver.claim("Q", 9).await.len(), 1);
    }

    async fn claims_without_a_process_are_found_when_their_leases_are_over(db: Db) {
        let mut gone = driver(&db).await;
        let mut lives = driver(&db).await;
        lives.limits = limits(0, 9);
        let run = gone.trigger(&one(), "1").await;
        gone.trigger(&one(), "1").await;
        let claimed = gone.claim("P", 1).await.remove(0);
        let (execution, step) = (claimed.execution_id.0, claimed.step_id);
        let of_the_living = lives.claim("P", 1).await.remove(0).execution_id.0;
        let process = [("process", gone.process.0.into())];
        assert_eq!(lives.conn.execute(&ROW_REMOVED, &process).await.unwrap(), 1);
        let orphans = async |lives: &mut Driver| recovery::orphans(&mut lives.conn).await.unwrap();
        assert_eq!(orphans(&mut lives).await, [], "its lease holds");
        for id in [execution, of_the_living] {
            assert_eq!(lives.conn.execute(&LEASE_OVER, &[("id", id.into())]).await.unwrap(), 1);
        }
        assert_eq!(orphans(&mut lives).await, [gone.process], "and who lives is none");
        assert_eq!(lives.recover(gone.process).await.again, 1);
        assert_eq!(orphans(&mut lives).await, [], "what is closed is nobody's");
        // The same for branches.
        let again = lives.claim("P", 1).await.remove(0);
        assert_eq!(again.step_id, step);
        let finished = [lives.finished(again, Did::Refused).await];
        lives.commit(&finished).await;
        let mut gone = driver(&db).await;
        let claimed = gone.claim_branches(1).await;
        assert_eq!(claimed.len(), 1);
        let process = [("process", gone.process.0.into())];
        assert_eq!(lives.conn.execute(&ROW_REMOVED, &process).await.unwrap(), 1);
        assert_eq!(orphans(&mut lives).await, [], "its lease holds");
        assert_eq!(lives.conn.execute(&ADVANCE_LEASES_OVER, &process).await.unwrap(), 1);
        assert_eq!(orphans(&mut lives).await, [gone.process]);
        assert_eq!(lives.recover(gone.process).await.branches, 1);
        assert_eq!(orphans(&mut lives).await, [], "what is closed is nobody's");
        let claimed = lives.actor.claim("P", 9).await;
        assert!(matches!(claimed, Ok(Claim::Taken(taken)) if taken.is_empty()));
        lives.work("P", |_| Did::Returned(json!(1))).await;
        assert_eq!(lives.run(run).await.0, RunStatus::Halted);
    }
}

/// The last result is committed while the run is cancelled: the cancellation waits for it, and
/// finds nothing left to close but the run.
#[tokio::test]
async fn a_run_that_ends_while_it_is_cancelled_has_ended() {
    crate::support::with(Db::postgres().await, |db| async move {
        let mut watch = driver(&db).await;
        let mut worker = driver(&db).await;
        let mut other = driver(&db).await;
        let run = worker.trigger(&one(), "1").await;
        let claimed = worker.claim("P", 1).await.remove(0);
        let finished = worker.finished(claimed, Did::Returned(json!(1))).await;
        let (commits, cancels) = (session(&mut worker).await, session(&mut other).await);
        let mut hold = db.conn().await;
        hold.script("BEGIN", "BEGIN").await.unwrap();
        hold.fetch(&HELD_RUN, &[("run", run.0.into())])
            .await
            .unwrap();
        let committed = tokio::task::spawn_local(async move {
            let committed = worker.commit(&[finished]).await;
            (committed.stale, worker.run(run).await.0)
        });
        until_it_waits(&mut watch, commits).await;
        let cancelled =
            tokio::task::spawn_local(async move { cancel(&mut other.conn, run).await.unwrap() });
        until_it_waits(&mut watch, cancels).await;
        fault_injection::let_go(&mut hold).await.unwrap();
        assert_eq!(committed.await.unwrap(), (Vec::new(), RunStatus::Completed));
        assert_eq!(
            cancelled.await.unwrap(),
            Cancel::NotActive(RunStatus::Completed)
        );
    })
    .await;
}

/// A claim of executions or of branches that waits for the session which is returned with it: after its first write, which
/// is to the process's own row. It will take one.
async fn claim_under_way(
    db: &Db,
    watch: &mut Driver,
    mut claimer: Driver,
    branches: bool,
) -> (ductwork::store::Conn, tokio::task::JoinHandle<usize>) {
    let claims = session(&mut claimer).await;
    watch.trigger(&divided(), "1").await;
    if branches {
        let claimed = watch.claim("P", 1).await.remove(0);
        let finished = watch.finished(claimed, Did::Returned(json!(1))).await;
        watch.commit(&[finished]).await;
    }
    let mut hold = db.conn().await;
    hold.script("BEGIN", "BEGIN").await.unwrap();
    let lock = match branches {
        true => "LOCK TABLE ductwork_advancements IN SHARE MODE",
        false => "SELECT 1 FROM ductwork_executions FOR UPDATE",
    };
    hold.script("LOCK", lock).await.unwrap();
    let claimed = tokio::task::spawn_local(async move {
        match branches {
            true => claimer.claim_branches(9).await.len(),
            false => claimer.claim("P", 9).await.len(),
        }
    });
    until_it_waits(watch, claims).await;
    (hold, claimed)
}

/// A connection was given up with a claim under way, and its process ends in order: the server is
/// still executing the claim.
#[tokio::test]
async fn a_process_that_ends_while_a_claim_of_it_is_under_way_keeps_its_row() {
    crate::support::with(Db::postgres().await, |db| async move {
        let mut watch = driver(&db).await;
        for branches in [false, true] {
            let given_up = driver(&db).await;
            let mut ends = driver(&db).await;
            let process = given_up.process;
            let deregisters = session(&mut ends).await;
            let (mut hold, claimed) = claim_under_way(&db, &mut watch, given_up, branches).await;
            let ended = tokio::task::spawn_local(async move {
                process::deregister(&mut ends.conn, process).await.unwrap();
            });
            until_it_waits(&mut watch, deregisters).await;
            hold.script("COMMIT", "COMMIT").await.unwrap();
            assert_eq!(claimed.await.unwrap(), 1);
            ended.await.unwrap();
            crate::driver::audit(&mut watch.conn).await;
            // A process that proves its death finds its claims.
            let recovered = watch.recover(process).await;
            assert!(recovered.removed);
            watch.work("P", |_| Did::Returned(json!(1))).await;
        }
    })
    .await;
}

/// Its claim has written the process's row already, and has yet to take anything.
#[tokio::test]
async fn a_claim_that_is_under_way_when_its_process_is_declared_dead_is_given_back() {
    crate::support::with(Db::postgres().await, |db| async move {
        let mut watch = driver(&db).await;
        for branches in [false, true] {
            let doomed = driver(&db).await;
            let mut reaper = driver(&db).await;
            let process = doomed.process;
            let reaps = session(&mut reaper).await;
            let (mut hold, claimed) = claim_under_way(&db, &mut watch, doomed, branches).await;
            let reaping = tokio::task::spawn_local(async move {
                let recovered = reaper.recover(process).await;
                (reaper, recovered)
            });
            while !reaping.is_finished()
                && !fault_injection::waits(&mut watch.conn, reaps)
                    .await
                    .unwrap()
            {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            hold.script("COMMIT", "COMMIT").await.unwrap();
            assert_eq!(claimed.await.unwrap(), 1);
            // A reaper that did not wait has left the process to the next look.
            let (mut reaper, mut recovered) = reaping.await.unwrap();
            if !recovered.removed {
                recovered = reaper.recover(process).await;
            }
            assert!(recovered.removed);
            assert_eq!(recovered.again + recovered.branches, 1);
            crate::driver::audit(&mut watch.conn).await;
            watch.work("P", |_| Did::Returned(json!(1))).await;
        }
    })
    .await;
}

/// A worker puts back an execution that it has claimed ahead while its run is cancelled: it has
/// released the execution, which the cancellation waits for, but not queued it yet.
#[tokio::test]
async fn what_is_put_back_while_its_run_is_cancelled_is_not_in_the_queue() {
    static IN_THE_WAY: Statement = Statement::new(
        "IN_THE_WAY",
        "INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at) VALUES (:id, 'P', 1)",
    );
    crate::support::with(Db::postgres().await, |db| async move {
        let mut watch = driver(&db).await;
        let mut worker = driver(&db).await;
        let mut person = driver(&db).await;
        let (puts_back, cancels) = (session(&mut worker).await, session(&mut person).await);
        let run = watch.trigger(&one(), "1").await;
        let held = [worker.claim("P", 1).await.remove(0).execution_id];
        // A transaction that queues it has to wait for this one, which is invisible to others.
        let mut hold = db.conn().await;
        hold.script("BEGIN", "BEGIN").await.unwrap();
        let id = [("id", held[0].0.into())];
        hold.execute(&IN_THE_WAY, &id).await.unwrap();
        let put_back = tokio::task::spawn_local(async move {
            let claimant = Claimant::new(worker.process);
            claim::put_back(&mut worker.conn, claimant, "P", &held, Duration::ZERO).await
        });
        until_it_waits(&mut watch, puts_back).await;
        let cancelled =
            tokio::task::spawn_local(async move { cancel(&mut person.conn, run).await.unwrap() });
        until_it_waits(&mut watch, cancels).await;
        hold.script("ROLLBACK", "ROLLBACK").await.unwrap();
        assert_eq!(put_back.await.unwrap().unwrap(), 1);
        assert_eq!(cancelled.await.unwrap(), Cancel::Done { held: Vec::new() });
        crate::driver::audit(&mut watch.conn).await;
        // Otherwise no claim of the pipeline would get past it.
        watch.trigger(&one(), "1").await;
        assert_eq!(watch.claim("P", 9).await.len(), 1);
    })
    .await;
}

/// Between the look and the write the branch was resumed by another process, and now waits at
/// another step: the value is not meant for that one.
#[tokio::test]
async fn a_branch_that_waits_elsewhere_by_now_is_not_resumed() {
    crate::support::with(Db::postgres().await, |db| async move {
        let mut watch = driver(&db).await;
        let mut person = driver(&db).await;
        let run = watch
            .trigger(&of(Pipeline::named("P").start("A").dampen("")), "1")
            .await;
        watch.work("P", |_| Did::Returned(json!(1))).await;
        let session = session(&mut person).await;
        let mut quicker = driver(&db).await;
        quicker.conn.script("BEGIN", "BEGIN").await.unwrap();
        by_hand(&mut quicker, &STANDS_ELSEWHERE, run).await;
        let resumed = tokio::task::spawn_local(async move {
            resume(&mut person.conn, run, None, Some("2"), None)
                .await
                .unwrap()
        });
        until_it_waits(&mut watch, session).await;
        quicker.conn.script("COMMIT", "COMMIT").await.unwrap();
        assert_eq!(
            resumed.await.unwrap(),
            Resume::NotDampened(RunStatus::Dampened)
        );
    })
    .await;
}

/// A program without deadlines has left one behind; between the look and the write the branch waits again, with a
/// deadline in the future, or with one that has passed too and that nobody has decided.
#[tokio::test]
async fn a_deadline_that_is_set_meanwhile_is_kept() {
    static LEFT: Statement = Statement::new(
        "TEST_LEFT",
        "INSERT INTO ductwork_deadlines (branch_id, answer_by, unanswered)
         SELECT b.id, 0, 'halt' FROM ductwork_branches b WHERE b.run_id = :run",
    );
    static ANEW: Statement = Statement::new(
        "TEST_ANEW",
        "UPDATE ductwork_deadlines SET answer_by = {now} + 3600000000
          WHERE branch_id IN (SELECT b.id FROM ductwork_branches b WHERE b.run_id = :run)",
    );
    static ANEW_AND_PASSED: Statement = Statement::new(
        "TEST_ANEW_AND_PASSED",
        "UPDATE ductwork_deadlines SET answer_by = {now} - 1
          WHERE branch_id IN (SELECT b.id FROM ductwork_branches b WHERE b.run_id = :run)",
    );
    for anew in [&ANEW, &ANEW_AND_PASSED] {
        deadline_is_kept(&LEFT, anew).await;
    }
}

async fn deadline_is_kept(left: &'static Statement, anew: &'static Statement) {
    static LEFT_OVER: Statement = Statement::new(
        "TEST_LEFT_OVER",
        "SELECT count(*) AS n FROM ductwork_deadlines",
    );
    crate::support::with(Db::postgres().await, |db| async move {
        let mut watch = driver(&db).await;
        let mut daemon = driver(&db).await;
        let run = watch.trigger(&one(), "1").await;
        by_hand(&mut watch, left, run).await;
        let session = session(&mut daemon).await;
        let mut quicker = driver(&db).await;
        quicker.conn.script("BEGIN", "BEGIN").await.unwrap();
        by_hand(&mut quicker, anew, run).await;
        let passed = tokio::task::spawn_local(async move {
            resume::pass_deadlines(&mut daemon.conn).await.unwrap()
        });
        until_it_waits(&mut watch, session).await;
        quicker.conn.script("COMMIT", "COMMIT").await.unwrap();
        assert_eq!(passed.await.unwrap(), resume::Passed::default());
        let left = watch.rows(&LEFT_OVER, &[]).await[0]
            .get::<i64>("n")
            .unwrap();
        assert_eq!(left, 1);
    })
    .await;
}

/// Conditions of MySQL's own forms of the statements: the name of each in `GUARDED`, the statement there, and its
/// text.
#[cfg(feature = "failpoints")]
const OWN_ON_MYSQL: &[(&str, &str, &str)] = &[
    ("FORGET_SERIES.1", "FORGET_OLDEST", "grain = :grain"),
    ("FORGET_SERIES.2", "FORGET_OLDEST", "at <= {now} - :age"),
    (
        "LEASE_DELIVERIES.1",
        "LOCK_DUE_DELIVERIES",
        "d.due_at <= {now}",
    ),
    (
        "RECORD_DELIVERIES.1",
        "LOCK_ATTEMPTED_DELIVERIES",
        "d.due_at IS NOT NULL",
    ),
    (
        "RECORD_DELIVERIES.2",
        "LOCK_ATTEMPTED_DELIVERIES",
        "d.attempts = b.made",
    ),
    (
        "TAKE_DUTY.1",
        "TAKE_OFFERED_DUTY",
        "holder = :holder OR until <= {now}",
    ),
    (
        "MOVE_WITH_RESULT.2",
        "MOVE_HELD",
        "ductwork_branches.step_id = held.step_id",
    ),
    (
        "MOVE_WITH_RESULT.3",
        "MOVE_HELD",
        "ductwork_branches.status = 'in_progress'",
    ),
    (
        "END_RUNS.3",
        "END_BARE_RUNS",
        "status IN ('in_progress', 'dampened')",
    ),
    (
        "CLOSE_EXECUTIONS.1",
        "HELD_RESULTS",
        "e.process_id = :process",
    ),
    (
        "CLOSE_EXECUTIONS.1",
        "CLOSE_HELD",
        "ductwork_executions.process_id = :process",
    ),
    (
        "CLOSE_EXECUTIONS.1",
        "CLOSE_ALL",
        "ductwork_executions.process_id = :process",
    ),
    ("CLOSE_EXECUTIONS.1", "CLOSE_BARE", "process_id = :process"),
    ("BEAT.1", "BEAT_HEARD", "p.epoch < 4294967296"),
    (
        "LOCK_CLAIMED.1",
        "LOCK_CLAIMED_IN_TURN",
        "e.process_id = :process",
    ),
    (
        "TAKE_AVAILABILITIES.1",
        "DUE_AVAILABILITIES",
        "pipeline = :pipeline",
    ),
];

/// Conditions whose absence no test notices on MySQL, with the reason.
#[cfg(feature = "failpoints")]
const NOT_ON_MYSQL: &[(&str, &str)] = &[
    (
        "INSERT_AVAILABILITIES.3",
        "no rows are joined there: the head of each row's queue is looked up, and that of another queue makes a row early",
    ),
    ("ORPHANS.1", STANDS_IN),
    ("ORPHANS.4", STANDS_IN),
];

#[cfg(feature = "failpoints")]
const STANDS_IN: &str = "the column by which the rows are found stands in for it";

/// The lines in which a process reports how its tests ended.
#[cfg(feature = "failpoints")]
struct Tried {
    /// The last of them, about all tests; none if the process did not reach its end.
    whole: Option<String>,
    /// Those of the tests on MySQL.
    on_mysql: Vec<String>,
}

#[cfg(feature = "failpoints")]
impl Tried {
    fn is_missed(&self) -> bool {
        self.whole.as_ref().is_some_and(|it| it.contains("FAILED"))
    }

    fn is_missed_on_mysql(&self) -> bool {
        self.whole.is_some() && self.on_mysql.iter().any(|it| it.ends_with("FAILED"))
    }

    /// True if none of its tests runs on MySQL.
    fn has_none_on_mysql(&self) -> bool {
        self.whole.is_some() && self.on_mysql.is_empty()
    }
}

/// Runs a test, or the tests with this in their names, without a condition.
#[cfg(feature = "failpoints")]
fn tried_without(without: &str, test: &str) -> Tried {
    let tried = std::process::Command::new(std::env::current_exe().unwrap())
        .arg(test)
        .env("DUCTWORK_WITHOUT", without)
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&tried.stdout);
    let of_mysql = |line: &&str| line.starts_with("test ") && line.contains("::mysql ... ");
    let whole = said.lines().rfind(|line| line.starts_with("test result"));
    Tried {
        whole: whole.map(str::to_owned),
        on_mysql: said.lines().filter(of_mysql).map(str::to_owned).collect(),
    }
}

/// The conditions that were not missed, and how many were missed on MySQL.
#[cfg(feature = "failpoints")]
#[derive(Default)]
struct Found {
    wrong: Vec<String>,
    on_mysql: usize,
}

#[cfg(feature = "failpoints")]
impl Found {
    fn on_mysql(&mut self, name: &str, without: &str, tried: &Tried) {
        let is_missed = tried.is_missed_on_mysql();
        let is_listed = NOT_ON_MYSQL.iter().any(|(known, _)| *known == name);
        self.on_mysql += usize::from(is_missed);
        if !tried.has_none_on_mysql() && is_missed == is_listed {
            let Tried { whole, on_mysql } = tried;
            let wrong = format!("{name} on MySQL, {without}: {on_mysql:?}, {whole:?}");
            self.wrong.push(wrong);
        }
    }

    /// Removes a condition, and then each of its own forms on MySQL.
    fn without(&mut self, (name, nth, condition, test): &crate::guarded::Guarded) {
        let (statement, _) = name.split_once('.').expect("a statement and a number");
        let without = format!("{statement} {nth} {condition}");
        let tried = tried_without(&without, test);
        if !tried.is_missed() {
            self.wrong.push(format!("{name}: {:?}", tried.whole));
        }
        let own = OWN_ON_MYSQL.iter().filter(|(of, ..)| of == name);
        let forms: Vec<String> = own
            .map(|(_, statement, condition)| format!("{statement} 1 {condition}"))
            .collect();
        if forms.is_empty() {
            self.on_mysql(name, &without, &tried);
        }
        for without in forms {
            let tried = tried_without(&without, &format!("{test}::mysql"));
            self.on_mysql(name, &without, &tried);
        }
    }
}

/// Removes each condition of `GUARDED` in turn, in a separate process that has to fail, on MySQL as well if its test
/// runs there. Two processes run at once.
#[cfg(feature = "failpoints")]
#[test]
fn each_condition_of_the_list_is_missed_by_its_test() {
    let left = std::sync::Mutex::new(crate::guarded::GUARDED.iter());
    let next = || left.lock().unwrap().next();
    let try_on = || {
        let mut found = Found::default();
        while let Some(guarded) = next() {
            found.without(guarded);
        }
        found
    };
    let found = std::thread::scope(|scope| {
        let both = [scope.spawn(try_on), scope.spawn(try_on)];
        both.map(|half| half.join().unwrap())
    });
    let wrong: Vec<&String> = found.iter().flat_map(|half| &half.wrong).collect();
    assert!(wrong.is_empty(), "not missed: {wrong:#?}");
    let on_mysql: usize = found.iter().map(|half| half.on_mysql).sum();
    assert!(on_mysql > 55, "only {on_mysql} on MySQL");
}
