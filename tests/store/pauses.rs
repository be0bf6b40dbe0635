//! Pauses: once a pause is confirmed nothing is claimed, whatever process claims or registers at
//! that moment.

use std::time::Duration;

use ductwork::definition::{Definition, Pipeline};
use ductwork::model::*;
use ductwork::store::action::{self, Actor};
use ductwork::store::claim::{self, Claim};
use ductwork::store::commit::{self, Committer};
use ductwork::store::cursor::Cursor;
use ductwork::store::definition::LeftOut;
use ductwork::store::pause::{self, Paused, pause, unpause};
use ductwork::store::process::{self, Claimant, Counters, Orders};
use ductwork::store::statement::Statement;
use ductwork::store::stuck;
use serde_json::json;

use crate::actions::ana;
use crate::driver::{Did, Driver, LEASE, audit, process_of};
use crate::guards::{session, until_it_waits};
use crate::on_every_database;
use crate::support::Db;

static UNAWARE_BY_HAND: Statement = Statement::new(
    "UNAWARE_BY_HAND",
    "UPDATE ductwork_processes SET paused = NULL WHERE id = :process",
);
static HELD_PROCESS: Statement = Statement::new(
    "HELD_PROCESS",
    "SELECT id FROM ductwork_processes WHERE id = :process FOR UPDATE",
);
static HELD_METRICS: Statement = Statement::new(
    "HELD_METRICS",
    "INSERT INTO ductwork_metrics (process_id, written_at, body) VALUES (:process, 1, '')",
);

fn one(pipeline: &str) -> Definition {
    Pipeline::named(pipeline).start("A").build().unwrap()
}

fn chain() -> Definition {
    Pipeline::named("P").start("A").chain("B").build().unwrap()
}

/// A worker of a pipeline.
async fn worker(db: &Db, pipeline: &str) -> Driver {
    let mut driver = Driver::new(db).await;
    process::deregister(&mut driver.actor.conn, driver.actor.process)
        .await
        .unwrap();
    let process = process_of(Some(pipeline));
    process::register(&mut driver.conn, &process).await.unwrap();
    driver.process = process.id;
    driver
}

async fn claim_of(worker: &mut Driver, pipeline: &str) -> Claim {
    let me = Claimant::new(worker.process);
    claim::claim(&mut worker.conn, me, pipeline, 9, LEASE)
        .await
        .unwrap()
}

async fn is_paused(worker: &mut Driver) -> bool {
    matches!(claim_of(worker, "P").await, Claim::Paused)
}

async fn pause_p(driver: &mut Driver) -> Paused {
    pause(&mut driver.conn, "P", "why", &ana()).await.unwrap()
}

on_every_database! {
    async fn after_a_pause_nothing_is_taken_off_the_queue_until_it_is_over(db: Db) {
        let mut p = worker(&db, "P").await;
        let mut other = worker(&db, "P").await;
        let mut q = worker(&db, "Q").await;
        for _ in 0..2 {
            p.trigger(&chain(), "1").await;
            p.trigger(&one("Q"), "1").await;
        }
        let held = p.claim("P", 1).await.remove(0);
        assert!(pause_p(&mut other).await.created);

        for worker in [&mut p, &mut other] {
            assert!(is_paused(worker).await);
            let counters = Counters::default();
            let heard = process::beat(&mut worker.actor.conn, worker.actor.process, Role::Worker, counters, Intake::Open).await;
            assert_eq!(heard.unwrap().orders, Orders::Pause);
        }
        // The same for a claim that leaves unreadable executions out.
        let definitions = ductwork::store::definition::Definitions::default();
        definitions.leave_out(ExecutionId::new().0);
        let left_out: LeftOut = definitions.left_out();
        let me = Claimant::new(p.process);
        let claimed = claim::claim_behind(&mut p.conn, Cursor::FIRST, me, "P", 9, LEASE, &left_out);
        assert!(matches!(claimed.await.unwrap(), (Claim::Paused, _)));
        assert!(matches!(claim_of(&mut q, "Q").await, Claim::Taken(taken) if taken.len() == 2));

        // A running step may end; one that was leased with its result must not begin, and can be put back.
        let finished = [p.finished(held, Did::Returned(json!(1))).await];
        let committer = Committer { claimant: me, pipeline: "P", lease: LEASE, room: 1 };
        let committed = commit::commit(&mut p.conn, &finished, committer).await.unwrap();
        assert!(committed.paused);
        let leased: Vec<ExecutionId> = committed.leased_next.iter().map(|it| it.execution_id).collect();
        assert_eq!(leased.len(), 1);
        let put_back = claim::put_back(&mut p.conn, me, "P", &leased, Duration::ZERO).await;
        assert_eq!(put_back.unwrap(), 1);
        p.audit().await;

        // Its successor is paused as well.
        p.recover(p.process).await;
        let mut next = worker(&db, "P").await;
        assert!(is_paused(&mut next).await);

        let ended = unpause(&mut next.conn, "P", &ana()).await.unwrap().unwrap();
        assert_eq!((ended.reason.as_str(), ended.by.as_str()), ("why", "ana"));
        let Claim::Taken(taken) = claim_of(&mut next, "P").await else {
            panic!("it claims again");
        };
        assert_eq!(taken.len(), 2);
        let heard = process::beat(&mut other.actor.conn, other.actor.process, Role::Worker, Counters::default(), Intake::Open).await;
        assert_eq!(heard.unwrap().orders, Orders::Claim);
        next.audit().await;
    }

    async fn a_second_pause_keeps_the_reason_of_the_first(db: Db) {
        let mut driver = worker(&db, "P").await;
        assert_eq!(unpause(&mut driver.conn, "P", &ana()).await.unwrap(), None);
        let first = pause_p(&mut driver).await;
        let second = pause(&mut driver.conn, "P", "another", &Actor::new("ben", Channel::Api)).await.unwrap();
        assert!(first.created && !second.created);
        assert_eq!(second.pause, first.pause);
        assert_eq!(pause::pauses(&mut driver.conn).await.unwrap().len(), 1);
        assert_eq!(pause::of_pipeline(&mut driver.conn, "P").await.unwrap(), Some(first.pause));
        assert!(unpause(&mut driver.conn, "P", &ana()).await.unwrap().is_some());
        assert_eq!(unpause(&mut driver.conn, "P", &ana()).await.unwrap(), None);
        assert_eq!(pause::pauses(&mut driver.conn).await.unwrap(), []);
        // Only effective actions are recorded, newest first.
        let actions = action::latest(&mut driver.conn, action::Of::All, None, 9).await.unwrap();
        let verbs: Vec<_> = actions.iter().map(|it| (it.verb.as_str(), it.pipeline.as_str(), it.run)).collect();
        assert_eq!(verbs, [("unpause", "P", None), ("pause", "P", None)]);
        driver.audit().await;
    }

    async fn a_pause_and_its_end_concern_their_own_pipeline_alone(db: Db) {
        let mut p = worker(&db, "P").await;
        let mut q = worker(&db, "Q").await;
        p.trigger(&one("P"), "1").await;
        p.trigger(&one("Q"), "1").await;
        pause_p(&mut p).await;
        audit(&mut q.conn).await;
        pause(&mut q.conn, "Q", "why", &ana()).await.unwrap();
        unpause(&mut p.conn, "P", &ana()).await.unwrap();
        assert!(matches!(claim_of(&mut q, "Q").await, Claim::Paused));
        assert!(!is_paused(&mut p).await);
        // A registration removes no pause but the one that it has made itself.
        let mut another = worker(&db, "P").await;
        assert!(!is_paused(&mut another).await);
        assert_eq!(pause::pauses(&mut p.conn).await.unwrap().len(), 1);
        audit(&mut p.conn).await;
    }

    async fn a_worker_of_a_version_that_knows_no_pauses_is_told_and_not_marked(db: Db) {
        let mut driver = worker(&db, "P").await;
        let older = worker(&db, "P").await;
        let by_hand = [("process", older.process.0.into())];
        assert_eq!(driver.conn.execute(&UNAWARE_BY_HAND, &by_hand).await.unwrap(), 1);
        for _ in 0..2 {
            let unaware = pause_p(&mut driver).await.unaware;
            let ids: Vec<ProcessId> = unaware.iter().map(|it| it.id).collect();
            assert_eq!(ids, [older.process]);
        }
        unpause(&mut driver.conn, "P", &ana()).await.unwrap();
        assert_eq!(pause_p(&mut driver).await.unaware.len(), 1);
        driver.audit().await;
    }

    async fn what_waits_for_the_end_of_a_pause_is_not_stuck(db: Db) {
        let mut driver = worker(&db, "P").await;
        pause_p(&mut driver).await;
        let facts = stuck::facts(&mut driver.conn, LEASE).await.unwrap();
        assert_eq!(facts.pauses.len(), 1);
    }

    async fn however_many_pipelines_are_paused_the_work_of_another_is_seen_to_wait(db: Db) {
        static AGE: Statement = Statement::new(
            "TEST_AGE",
            "UPDATE ductwork_availabilities SET due_at = due_at - :by WHERE pipeline = :pipeline",
        );
        let mut driver = worker(&db, "P").await;
        let age = async |driver: &mut Driver, pipeline: &str, hours: i64| {
            let args = [("by", (hours * 3_600_000_000).into()), ("pipeline", pipeline.into())];
            assert_eq!(driver.conn.execute(&AGE, &args).await.unwrap(), 1);
        };
        for n in 0..20 {
            let pipeline = format!("Paused{n}");
            driver.trigger(&one(&pipeline), "1").await;
            age(&mut driver, &pipeline, 2).await;
            pause(&mut driver.conn, &pipeline, "a bad feed", &ana()).await.unwrap();
        }
        let run = driver.trigger(&one("Zebra"), "1").await;
        age(&mut driver, "Zebra", 1).await;
        let facts = stuck::facts(&mut driver.conn, LEASE).await.unwrap();
        let due: Vec<RunId> = facts.due.iter().map(|it| it.run_id).collect();
        assert_eq!(due, [run]);
        // Nor do the queues of others hide it, whose workers may be busy.
        for n in 0..20 {
            let pipeline = format!("Busy{n}");
            driver.trigger(&one(&pipeline), "1").await;
            age(&mut driver, &pipeline, 3).await;
        }
        let facts = stuck::facts(&mut driver.conn, LEASE).await.unwrap();
        assert_eq!(facts.due.len(), 21);
        assert_eq!(facts.due[20].run_id, run);
    }
}

/// Runs this on PostgreSQL.
async fn with(body: impl AsyncFnOnce(&Db, &mut Driver) + 'static) {
    crate::support::with(Db::postgres().await, |db| async move {
        let mut watch = Driver::new(&db).await;
        body(&db, &mut watch).await;
    })
    .await;
}

/// Keeps every session waiting that writes the row of a process, or inserts its counts.
async fn hold(db: &Db, statement: &'static Statement, process: ProcessId) -> ductwork::store::Conn {
    let mut hold = db.conn().await;
    hold.script("BEGIN", "BEGIN").await.unwrap();
    hold.fetch(statement, &[("process", process.0.into())])
        .await
        .unwrap();
    hold
}

#[tokio::test]
async fn a_pause_waits_for_a_claim_that_is_under_way() {
    with(async |db, watch| {
        let mut p = worker(db, "P").await;
        let mut person = Driver::new(db).await;
        watch.trigger(&one("P"), "1").await;
        watch.trigger(&one("P"), "1").await;
        let (claims, pauses) = (session(&mut p).await, session(&mut person).await);
        let mut hold = db.conn().await;
        hold.script("BEGIN", "BEGIN").await.unwrap();
        let first = "SELECT 1 FROM ductwork_executions ORDER BY id LIMIT 1 FOR UPDATE";
        hold.script("LOCK", first).await.unwrap();
        let claimed = tokio::task::spawn_local(async move {
            let taken = p.claim("P", 1).await.len();
            (p, taken)
        });
        until_it_waits(watch, claims).await;
        let paused = tokio::task::spawn_local(async move { pause_p(&mut person).await });
        until_it_waits(watch, pauses).await;
        hold.script("COMMIT", "COMMIT").await.unwrap();
        assert!(paused.await.unwrap().created);
        let (mut p, taken) = claimed.await.unwrap();
        assert_eq!(taken, 1);
        assert!(is_paused(&mut p).await);
        audit(&mut watch.conn).await;
    })
    .await;
}

#[tokio::test]
async fn a_claim_that_waits_for_a_pause_takes_nothing() {
    with(async |db, watch| {
        let mut p = worker(db, "P").await;
        // The worker whose row the pause reaches last.
        let last = worker(db, "P").await;
        let mut person = Driver::new(db).await;
        watch.trigger(&one("P"), "1").await;
        let (claims, pauses) = (session(&mut p).await, session(&mut person).await);
        let mut hold = hold(db, &HELD_PROCESS, last.process).await;
        let paused = tokio::task::spawn_local(async move { pause_p(&mut person).await });
        until_it_waits(watch, pauses).await;
        let claimed = tokio::task::spawn_local(async move { is_paused(&mut p).await });
        until_it_waits(watch, claims).await;
        hold.script("COMMIT", "COMMIT").await.unwrap();
        assert!(paused.await.unwrap().created);
        assert!(claimed.await.unwrap());
        audit(&mut watch.conn).await;
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_registers_while_its_pipeline_is_paused_is_paused() {
    with(async |db, watch| {
        let known = worker(db, "P").await;
        let [mut person, mut boots] = [Driver::new(db).await, Driver::new(db).await];
        watch.trigger(&one("P"), "1").await;
        let (pauses, registers) = (session(&mut person).await, session(&mut boots).await);
        let mut hold = hold(db, &HELD_PROCESS, known.process).await;
        let paused = tokio::task::spawn_local(async move { pause_p(&mut person).await });
        until_it_waits(watch, pauses).await;
        let process = process_of(Some("P"));
        let registered = tokio::task::spawn_local(async move {
            process::register(&mut boots.conn, &process).await.unwrap();
            boots.process = process.id;
            boots
        });
        until_it_waits(watch, registers).await;
        hold.script("COMMIT", "COMMIT").await.unwrap();
        assert!(paused.await.unwrap().created);
        assert!(is_paused(&mut registered.await.unwrap()).await);
        audit(&mut watch.conn).await;
    })
    .await;
}

#[tokio::test]
async fn a_pause_marks_the_worker_whose_registration_it_waited_for() {
    with(async |db, watch| {
        let [mut person, mut boots] = [Driver::new(db).await, Driver::new(db).await];
        watch.trigger(&one("P"), "1").await;
        let (pauses, registers) = (session(&mut person).await, session(&mut boots).await);
        let process = process_of(Some("P"));
        let mut hold = hold(db, &HELD_METRICS, process.id).await;
        let registered = tokio::task::spawn_local(async move {
            process::register(&mut boots.conn, &process).await.unwrap();
            boots.process = process.id;
            boots
        });
        until_it_waits(watch, registers).await;
        let paused = tokio::task::spawn_local(async move { pause_p(&mut person).await });
        until_it_waits(watch, pauses).await;
        hold.script("ROLLBACK", "ROLLBACK").await.unwrap();
        assert!(paused.await.unwrap().created);
        assert!(is_paused(&mut registered.await.unwrap()).await);
        audit(&mut watch.conn).await;
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_registers_while_its_pipeline_is_unpaused_claims() {
    for unpause_first in [true, false] {
        with(async move |db, watch| {
            let known = worker(db, "P").await;
            pause_p(watch).await;
            let [mut person, mut boots] = [Driver::new(db).await, Driver::new(db).await];
            watch.trigger(&one("P"), "1").await;
            let (unpauses, registers) = (session(&mut person).await, session(&mut boots).await);
            let process = process_of(Some("P"));
            let mut hold = match unpause_first {
                true => hold(db, &HELD_PROCESS, known.process).await,
                false => hold(db, &HELD_METRICS, process.id).await,
            };
            let unpaused = async move { unpause(&mut person.conn, "P", &ana()).await.unwrap() };
            let registered = async move {
                process::register(&mut boots.conn, &process).await.unwrap();
                boots.process = process.id;
                boots
            };
            let (unpaused, registered) = match unpause_first {
                true => {
                    let unpaused = tokio::task::spawn_local(unpaused);
                    until_it_waits(watch, unpauses).await;
                    (unpaused, tokio::task::spawn_local(registered))
                }
                false => {
                    let registered = tokio::task::spawn_local(registered);
                    until_it_waits(watch, registers).await;
                    (tokio::task::spawn_local(unpaused), registered)
                }
            };
            for session in [unpauses, registers] {
                until_it_waits(watch, session).await;
            }
            hold.script("ROLLBACK", "ROLLBACK").await.unwrap();
            assert!(unpaused.await.unwrap().is_some());
            let claim = claim_of(&mut registered.await.unwrap(), "P").await;
            assert!(matches!(claim, Claim::Taken(taken) if taken.len() == 1));
            audit(&mut watch.conn).await;
        })
        .await;
    }
}

/// To MySQL, and so to MariaDB here. A commit that a paused process makes says so, and a process whose epoch is over
/// commits nothing.
#[tokio::test]
async fn a_commit_whose_statements_go_alone_has_its_fences_too() {
    let body = async |db: Db| {
        let mut p = worker(&db, "P").await;
        p.conn.sends_each_alone();
        for _ in 0..3 {
            p.trigger(&chain(), "1").await;
        }
        let held = p.claim("P", 3).await;
        let mut finished = Vec::new();
        for claimed in held {
            finished.push(p.finished(claimed, Did::Returned(json!(1))).await);
        }
        let process = p.process;
        let committer = |epoch| Committer {
            claimant: Claimant { process, epoch },
            pipeline: "P",
            lease: LEASE,
            room: 0,
        };
        let (past, present) = (committer(0), committer(1));
        let conn = &mut p.actor.conn;
        process::fence_earlier(conn, present.claimant)
            .await
            .unwrap();
        // A connection prepares each statement when it first runs it.
        commit::commit(conn, &finished[..1], present).await.unwrap();
        conn.take_statements();
        let committed = commit::commit(conn, &finished[1..2], present)
            .await
            .unwrap();
        assert!(!committed.paused && committed.stale.is_empty());
        let at_once = conn.take_statements();

        let late = commit::commit(conn, &finished[2..], past).await;
        assert!(late.is_err() || late.is_ok_and(|late| late.dead));
        let mut other = worker(&db, "P").await;
        assert!(pause_p(&mut other).await.created);
        let conn = &mut p.actor.conn;
        conn.take_statements();
        let committed = commit::commit(conn, &finished[2..], present).await.unwrap();
        assert!(committed.paused && committed.stale.is_empty());
        let looked_first = conn.take_statements();
        assert!(at_once < looked_first, "{at_once} and {looked_first}");
        p.audit().await;
    };
    crate::support::with(Db::mysql().await, body).await;
}
