//! Wide runs, which are cancelled and deleted part by part: the guarantees between two parts.

use std::time::Duration;

use ductwork::definition::{Definition, Pipeline};
use ductwork::engine::actor::limits;
use ductwork::machine::why::LeafState;
use ductwork::model::*;
use ductwork::store::cancel::{
    Cancel, Cancelling, PATIENCE, cancel, cancel_by, left_after, unfinished,
};
use ductwork::store::claim::Claimed;
use ductwork::store::cursor::Cursor;
use ductwork::store::prune::{Pruning, prune};
use ductwork::store::revive::{Revive, revive};
use ductwork::store::statement::Statement;
use ductwork::store::trigger::{NewRun, trigger};
use ductwork::store::{Conn, Dialect, Error, context, fault_injection, left_to_do, query, why};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::driver::{Did, Driver, input, together};
use crate::flows::ink;
use crate::support::Db;
use crate::{on_every_database, on_servers};

/// Rows that belong to runs.
static ROWS: Statement = Statement::new(
    "WIDE_ROWS",
    "SELECT (SELECT count(*) FROM ductwork_runs) + (SELECT count(*) FROM ductwork_branches)
          + (SELECT count(*) FROM ductwork_fan_outs) + (SELECT count(*) FROM ductwork_steps)
          + (SELECT count(*) FROM ductwork_executions)
          + (SELECT count(*) FROM ductwork_availabilities)
          + (SELECT count(*) FROM ductwork_transitions)
          + (SELECT count(*) FROM ductwork_advancements)
          + (SELECT count(*) FROM ductwork_tuples) AS n",
);

static WAITING: Statement = Statement::new(
    "WIDE_WAITING",
    "SELECT count(*) AS n FROM ductwork_branches WHERE status = 'waiting'",
);

/// The oldest first.
static FAN_OUTS: Statement = Statement::new(
    "WIDE_FAN_OUTS",
    "SELECT id FROM ductwork_fan_outs ORDER BY id",
);

static RENAME: Statement = Statement::new(
    "WIDE_RENAME",
    "UPDATE ductwork_fan_outs SET id = :to WHERE id = :id",
);

static RENAME_OF_BRANCHES: Statement = Statement::new(
    "WIDE_RENAME_OF_BRANCHES",
    "UPDATE ductwork_branches SET fan_out_id = :to WHERE fan_out_id = :id",
);

static RENAME_OF_INNER: Statement = Statement::new(
    "WIDE_RENAME_OF_INNER",
    "UPDATE ductwork_fan_outs SET parent_fan_out_id = :to WHERE parent_fan_out_id = :id",
);

/// The runs whose deletion has begun.
static BEGUN: Statement = Statement::new(
    "WIDE_BEGUN",
    "SELECT count(*) AS n FROM ductwork_runs WHERE pruning_at IS NOT NULL",
);

/// An hour later than they were written.
static AHEAD: Statement = Statement::new(
    "WIDE_AHEAD",
    "UPDATE ductwork_runs SET cancelling_at = cancelling_at + 3600000000, pruning_at = pruning_at + 3600000000",
);

/// Some seconds before they were written.
static BEFORE: Statement = Statement::new(
    "WIDE_BEFORE",
    "UPDATE ductwork_runs SET cancelling_at = cancelling_at - 16000000",
);

/// The runs whose cancellation nobody has continued for this long.
async fn left_off(conn: &mut Conn, age: Duration) -> Vec<RunId> {
    let (runs, _) = unfinished(conn, age, Cursor::FIRST, 10).await.unwrap();
    runs
}

/// Deletes the rest of the runs whose deletion has begun; returns their number.
async fn finish(conn: &mut Conn) -> u64 {
    let mut pruning = Pruning::of(None, u64::MAX);
    while pruning.step(conn).await.unwrap() {}
    pruning.runs
}

async fn rows(conn: &mut Conn) -> i64 {
    let row = conn.fetch_optional(&ROWS, &[]).await.unwrap().unwrap();
    row.get("n").unwrap()
}

/// Nested fan-outs, whose inner branches come and go while the outer ones wait.
fn nested() -> Definition {
    let flow = Pipeline::named("P")
        .start("Many")
        .expand("Many")
        .expand("B");
    flow.collapse("C").collapse("D").build().unwrap()
}

/// Branches that wait for a person, in a run that halts if one is refused.
fn asked() -> Definition {
    let flow = Pipeline::named("P").start("Many").expand("A").dampen("");
    flow.chain("B").collapse("C").build().unwrap()
}

async fn part(conn: &mut Conn, cancelling: &mut Cancelling) -> Option<Cancel> {
    cancelling.step(conn).await.unwrap()
}

on_every_database! {
    async fn a_run_that_is_cancelled_part_by_part_is_sound_after_each(db: Db) {
        let mut driver = Driver::new(&db).await;
        let mut parted = 0;
        for definition in [nested(), asked()] {
            for rounds in 0..9 {
                for batch in [1, 2] {
                    let run = driver.trigger(&definition, "\"x\"").await;
                    for _ in 0..rounds {
                        driver.round("P", &mut |claimed| Did::Returned(ink(claimed))).await;
                    }
                    if driver.run(run).await.0.is_terminal() {
                        driver.forget().await;
                        continue;
                    }
                    let mut cancelling = Cancelling::of(run, batch);
                    let mut parts = 0;
                    while part(&mut driver.conn, &mut cancelling).await.is_none() {
                        parts += 1;
                        driver.audit().await;
                        let status = driver.run(run).await.0;
                        assert!(!status.is_terminal(), "{status} after {parts} parts");
                        // A branch that has not been reached yet goes on.
                        if parts % 2 == 0 {
                            driver.round("P", &mut |claimed| Did::Returned(ink(claimed))).await;
                        }
                        assert!(parts < 200, "it makes no progress");
                    }
                    parted += usize::from(parts > 1);
                    assert_eq!(driver.run(run).await, (RunStatus::Cancelled, None));
                    driver.audit().await;
                    assert!(driver.work("P", |_| Did::Returned(json!(1))).await.is_empty());
                    driver.forget().await;
                }
            }
        }
        assert!(parted > 9, "{parted} were of several parts");
    }

    /// More branches wait than one query returns, and the oldest of all are among them.
    async fn a_run_whose_oldest_branches_all_wait_can_be_cancelled(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.audited = false;
        let run = driver.trigger(&nested(), "\"x\"").await;
        for _ in 0..2 {
            let step = &mut |claimed: &Claimed| match input(claimed) {
                Value::String(_) => Did::Returned((0..100).collect()),
                number => Did::Returned(json!([number])),
            };
            driver.round("P", step).await;
        }
        let row = driver.conn.fetch_optional(&WAITING, &[]).await.unwrap().unwrap();
        assert_eq!(row.get::<i64>("n").unwrap(), 101);
        let mut cancelling = Cancelling::of(run, 1);
        let mut closed = 0;
        while part(&mut driver.conn, &mut cancelling).await.is_none() {
            assert!(cancelling.closed > closed, "it makes no progress after {closed}");
            closed = cancelling.closed;
        }
        assert_eq!(driver.run(run).await, (RunStatus::Cancelled, None));
        driver.audit().await;
    }

    /// A revival copies fan-outs in no order; here, each inner one has a smaller id than the outer ones.
    async fn a_run_whose_youngest_fan_outs_are_the_outer_ones_can_be_cancelled(db: Db) {
        const WIDTH: i64 = 100;
        let mut driver = Driver::new(&db).await;
        driver.audited = false;
        let flow = Pipeline::named("P").start("Many").expand("Many").expand("Many").expand("B");
        let definition = flow.collapse("C").collapse("D").collapse("E").build().unwrap();
        let run = driver.trigger(&definition, "\"x\"").await;
        for _ in 0..3 {
            let step = &mut |claimed: &Claimed| match input(claimed) {
                Value::String(_) => Did::Returned((0..WIDTH).collect()),
                number => Did::Returned(json!([number])),
            };
            driver.round("P", step).await;
        }
        let row = driver.conn.fetch_optional(&WAITING, &[]).await.unwrap().unwrap();
        assert_eq!(row.get::<i64>("n").unwrap(), 1 + 2 * WIDTH);
        let all = driver.conn.fetch(&FAN_OUTS, &[]).await.unwrap();
        assert_eq!(all.len() as i64, 1 + 2 * WIDTH);
        for (n, row) in all.iter().enumerate() {
            let youngest = Uuid::from_u128(u128::MAX - n as u128);
            let args = [("id", row.get::<Uuid>("id").unwrap().into()), ("to", youngest.into())];
            for statement in [&RENAME, &RENAME_OF_BRANCHES, &RENAME_OF_INNER] {
                driver.conn.execute(statement, &args).await.unwrap();
            }
        }
        driver.audit().await;
        let mut cancelling = Cancelling::of(run, 1);
        let mut closed = 0;
        while part(&mut driver.conn, &mut cancelling).await.is_none() {
            assert!(cancelling.closed > closed, "it makes no progress after {closed}");
            closed = cancelling.closed;
        }
        assert!(closed as i64 >= 3 * WIDTH - 2, "{closed}");
        assert_eq!(driver.run(run).await, (RunStatus::Cancelled, None));
        driver.audit().await;
    }

    async fn a_barrier_fires_while_its_run_is_cancelled_branch_by_branch(db: Db) {
        let mut driver = Driver::new(&db).await;
        let definition = nested();
        let mut cancelled = 0;
        for round in 0..30u64 {
            let run = driver.trigger(&definition, "\"x\"").await;
            let worker = |slots: usize| {
                let db = db.clone();
                let task: std::pin::Pin<Box<dyn Future<Output = bool>>> = Box::pin(async move {
                    let mut worker = Driver::new(&db).await;
                    worker.audited = false;
                    worker.room = slots;
                    worker.limits = limits(9, 1);
                    loop {
                        // Whichever side wins.
                        let mut finished = Vec::new();
                        for claimed in worker.claim("P", 2).await {
                            let did = match claimed.attempt {
                                1 => Did::Erred,
                                _ => Did::Returned(ink(&claimed)),
                            };
                            finished.push(worker.finished(claimed, did).await);
                        }
                        let mut born = worker.commit(&finished).await.leased_next;
                        while !born.is_empty() {
                            let mut finished = Vec::new();
                            for claimed in born {
                                let did = Did::Returned(ink(&claimed));
                                finished.push(worker.finished(claimed, did).await);
                            }
                            born = worker.commit(&finished).await.leased_next;
                        }
                        let branches = worker.claim_branches(2).await;
                        worker.advance(&branches).await;
                        if worker.run(run).await.0.is_terminal() {
                            return false;
                        }
                    }
                });
                task
            };
            let canceller = || {
                let db = db.clone();
                let task: std::pin::Pin<Box<dyn Future<Output = bool>>> = Box::pin(async move {
                    let mut conn = db.conn().await;
                    tokio::time::sleep(Duration::from_millis(4 * round)).await;
                    let done = cancel_by(&mut conn, run, 1 + round as usize % 3, None, PATIENCE, &mut |_| {}).await;
                    matches!(done.unwrap(), Cancel::Done { .. })
                });
                task
            };
            // Two cancellations at once have the effect of one.
            let done = together([worker(0), worker(3), canceller(), canceller()]).await;
            assert!(!(done[2] && done[3]), "cancelled twice");
            cancelled += usize::from(done[2] || done[3]);
            driver.audit().await;
            driver.forget().await;
        }
        assert!(cancelled > 0);
    }

    async fn a_cancellation_that_was_left_half_done_says_so_and_is_finished_by_anybody(db: Db) {
        let mut driver = Driver::new(&db).await;
        let run = driver.trigger(&nested(), "\"x\"").await;
        for _ in 0..3 {
            driver.round("P", &mut |claimed| Did::Returned(ink(claimed))).await;
        }
        let mut cancelling = Cancelling::of(run, 2);
        assert_eq!(part(&mut driver.conn, &mut cancelling).await, None);
        assert_eq!(cancelling.closed, 2);
        drop(cancelling);
        let definitions = ductwork::store::definition::Definitions::default();
        let stale = Duration::from_secs(30);
        let facts = why::facts(&mut driver.conn, run, stale, &definitions).await.unwrap();
        assert_eq!(ductwork::machine::why::why(&facts.unwrap()).cause, "cancelling");
        assert_eq!(left_off(&mut driver.conn, Duration::from_secs(60)).await, []);
        assert_eq!(left_off(&mut driver.conn, Duration::ZERO).await, [run]);
        assert!(matches!(cancel(&mut driver.conn, run).await.unwrap(), Cancel::Done { .. }));
        driver.audit().await;
        assert_eq!(left_off(&mut driver.conn, Duration::ZERO).await, []);
    }

    async fn there_is_something_left_to_do_when_a_run_is_old_or_half_done(db: Db) {
        let mut driver = Driver::new(&db).await;
        let (now, hour) = (Duration::ZERO, Duration::from_secs(3_600));
        let definition = nested();
        for half in [false, true] {
            let run = driver.trigger(&definition, "\"x\"").await;
            assert!(!left_to_do(&mut driver.conn, Some(now), now).await.unwrap());
            for _ in 0..3 {
                driver.round("P", &mut |claimed| Did::Returned(ink(claimed))).await;
            }
            if half {
                assert_eq!(part(&mut driver.conn, &mut Cancelling::of(run, 1)).await, None);
                assert!(left_to_do(&mut driver.conn, None, now).await.unwrap());
                assert!(!left_to_do(&mut driver.conn, None, hour).await.unwrap());
                assert_eq!(left_off(&mut driver.conn, hour).await, []);
                // The clock was set back since.
                driver.conn.execute(&AHEAD, &[]).await.unwrap();
                assert!(left_to_do(&mut driver.conn, None, hour).await.unwrap());
                assert_eq!(left_off(&mut driver.conn, hour).await, [run]);
                // A person or the console has left the rest to others, and a lease is long.
                assert_eq!(part(&mut driver.conn, &mut Cancelling::of(run, 1)).await, None);
                driver.conn.execute(&BEFORE, &[]).await.unwrap();
                assert!(left_to_do(&mut driver.conn, None, hour).await.unwrap());
                assert_eq!(left_off(&mut driver.conn, left_after(hour)).await, [run]);
            }
            assert!(matches!(cancel(&mut driver.conn, run).await.unwrap(), Cancel::Done { .. }));
            assert!(!left_to_do(&mut driver.conn, None, now).await.unwrap());
            assert!(!left_to_do(&mut driver.conn, Some(hour), now).await.unwrap());
            assert!(left_to_do(&mut driver.conn, Some(now), now).await.unwrap());
            let mut pruning = Pruning::of(Some(now), 9).by(1);
            for _ in 0..3 {
                assert!(pruning.step(&mut driver.conn).await.unwrap());
            }
            assert_eq!(pruning.runs, 0);
            assert!(left_to_do(&mut driver.conn, None, now).await.unwrap());
            assert!(!left_to_do(&mut driver.conn, None, hour).await.unwrap());
            driver.conn.execute(&AHEAD, &[]).await.unwrap();
            assert!(left_to_do(&mut driver.conn, None, hour).await.unwrap());
            assert_eq!(finish(&mut driver.conn).await, 1);
        }
    }

    async fn a_run_that_is_deleted_part_by_part_is_gone_at_once_and_sound_after_each(db: Db) {
        let mut driver = Driver::new(&db).await;
        let mut parted = 0;
        for refuse in ["", "B", "C"] {
            for batch in [1, 3] {
                let run = driver.trigger(&nested(), "\"x\"").await;
                context::set(&mut driver.conn, run, "k", "1").await.unwrap();
                driver.work("P", |claimed| match claimed.step.as_str() {
                    step if step == refuse => Did::Refused,
                    _ => Did::Returned(ink(claimed)),
                })
                .await;
                let ended = driver.run(run).await.0;
                assert!(ended.is_terminal());
                let mut pruning = Pruning::of(Some(Duration::ZERO), 9).by(batch);
                let mut parts = 0;
                while pruning.step(&mut driver.conn).await.unwrap() {
                    driver.audit().await;
                    parts += 1;
                    // A run that is half gone counts as gone.
                    if parts == 2 {
                        assert_eq!(pruning.runs, 0);
                        assert!(rows(&mut driver.conn).await > 9);
                        let again = revive(&mut driver.conn, run).await.unwrap();
                        assert_eq!(again, Revive::NotFound);
                        assert!(query::run_state(&mut driver.conn, run).await.unwrap().is_none());
                        assert!(query::run_without_payloads(&mut driver.conn, run).await.unwrap().is_none());
                        let set = context::set(&mut driver.conn, run, "k", "2").await.unwrap();
                        assert!(!set, "it would be left over");
                        if refuse == "B" {
                            break;
                        }
                    }
                }
                parted += parts;
                // Where it was left half done, the next prune finishes it, whatever its age.
                let hour = Duration::from_secs(3_600);
                let left = u64::from(refuse == "B");
                let finished = match batch {
                    1 => finish(&mut driver.conn).await,
                    _ => prune(&mut driver.conn, hour, 9).await.unwrap(),
                };
                assert_eq!((finished, pruning.runs), (left, 1 - left));
                assert_eq!(rows(&mut driver.conn).await, 0);
                driver.audit().await;
            }
        }
        assert!(parted > 40, "{parted}");
    }

    async fn runs_that_have_lost_nothing_yet_stay_whole_while_a_wide_one_is_deleted(db: Db) {
        let mut driver = Driver::new(&db).await;
        for _ in 0..3 {
            driver.trigger(&nested(), "\"x\"").await;
            driver.work("P", |claimed| Did::Returned(ink(claimed))).await;
        }
        let mut pruning = Pruning::of(Some(Duration::ZERO), 9).by(3);
        let mut parts = 0;
        while pruning.step(&mut driver.conn).await.unwrap() {
            let row = driver.conn.fetch_optional(&BEGUN, &[]).await.unwrap().unwrap();
            let begun: i64 = row.get("n").unwrap();
            // The database may find branches of two runs together.
            assert!(begun < 3, "{begun} after {parts} parts");
            parts += begun;
            driver.audit().await;
        }
        assert!(parts > 3, "{parts}");
        assert_eq!(pruning.runs, 3);
        assert_eq!(rows(&mut driver.conn).await, 0);
    }

    async fn several_delete_one_wide_run_at_once(db: Db) {
        let mut driver = Driver::new(&db).await;
        for _ in 0..10 {
            for _ in 0..3 {
                driver.trigger(&nested(), "\"x\"").await;
            }
            driver.work("P", |claimed| Did::Returned(ink(claimed))).await;
            let done = together((0..3).map(|_| {
                let db = db.clone();
                async move {
                    let mut conn = db.conn().await;
                    let mut pruning = Pruning::of(Some(Duration::ZERO), 99).by(2);
                    while pruning.step(&mut conn).await.unwrap() {}
                    pruning.runs
                }
            }))
            .await;
            let left = prune(&mut driver.conn, Duration::ZERO, 99).await.unwrap();
            assert_eq!(done.iter().sum::<u64>() + left, 3);
            driver.audit().await;
            assert_eq!(rows(&mut driver.conn).await, 0);
        }
    }
}

on_servers! {
    /// The tuple is written after prune has deleted the run's tuples, and before it deletes the run
    /// itself.
    async fn a_tuple_that_is_set_while_its_run_is_pruned_goes_with_it(db: Db) {
        let mut watch = Driver::new(&db).await;
        let one = Pipeline::named("P").start("A").build().unwrap();
        let run = watch.trigger(&one, "1").await;
        watch.work("P", |_| Did::Returned(json!(1))).await;
        let mut prunes = db.conn().await;
        // At the point where prune has deleted the tuples, and is about to delete the run.
        let mut hold = db.conn().await;
        hold.script("BEGIN", "BEGIN").await.unwrap();
        let lock = "SELECT 1 FROM ductwork_branches FOR UPDATE";
        hold.script("LOCK", lock).await.unwrap();
        let pruning = fault_injection::session(&mut prunes)
            .await
            .unwrap()
            .unwrap();
        let pruned = tokio::task::spawn_local(async move {
            prune(&mut prunes, Duration::ZERO, 9).await.unwrap()
        });
        while !fault_injection::waits(&mut watch.conn, pruning)
            .await
            .unwrap()
        {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let mut sets = db.conn().await;
        let setting = fault_injection::session(&mut sets).await.unwrap().unwrap();
        let set = tokio::task::spawn_local(async move {
            context::set(&mut sets, run, "k", "1").await.unwrap()
        });
        let started = std::time::Instant::now();
        while !set.is_finished()
            && !fault_injection::waits(&mut watch.conn, setting)
                .await
                .unwrap()
        {
            assert!(started.elapsed() < Duration::from_secs(20));
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        hold.script("COMMIT", "COMMIT").await.unwrap();
        assert_eq!(pruned.await.unwrap(), 1);
        assert!(!set.await.unwrap(), "there is no such run");
        watch.audit().await;
        assert_eq!(rows(&mut watch.conn).await, 0);
    }
}

/// A session holds a row of a wide run for long: the run's cancellation holds up nothing else
/// meanwhile.
#[tokio::test]
async fn a_cancellation_waits_for_nobody_while_others_wait_for_it() {
    crate::support::with(Db::postgres().await, |db| async move {
        let mut watch = Driver::new(&db).await;
        watch.audited = false;
        let wide = Pipeline::named("P").start("Many").expand("B").collapse("C");
        let run = watch.trigger(&wide.build().unwrap(), "\"x\"").await;
        for _ in 0..2 {
            let claimed = watch.claim("P", 1).await;
            let mut finished = Vec::new();
            for claimed in claimed {
                finished.push(watch.finished(claimed, Did::Returned(json!([1, 2, 3, 4]))).await);
            }
            watch.commit(&finished).await;
            let branches = watch.claim_branches(9).await;
            watch.advance(&branches).await;
        }
        let claimed = watch.claim("P", 9).await;
        assert!(!claimed.is_empty());
        let mut hold = db.conn().await;
        hold.script("BEGIN", "BEGIN").await.unwrap();
        let last = "SELECT 1 FROM ductwork_branches WHERE id =
            (SELECT id FROM ductwork_branches WHERE fan_out_id IS NOT NULL AND status = 'in_progress'
              ORDER BY id DESC LIMIT 1) FOR UPDATE";
        hold.script("LOCK", last).await.unwrap();
        let mut cancels = db.conn().await;
        let cancelling = fault_injection::session(&mut cancels).await.unwrap().unwrap();
        let cancelled = tokio::task::spawn_local(async move {
            cancel_by(&mut cancels, run, 2, None, PATIENCE, &mut |_| {}).await.unwrap()
        });
        while !fault_injection::waits(&mut watch.conn, cancelling).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // Like a worker's beat, which extends the leases of its executions.
        let mut worker = db.conn().await;
        let began = std::time::Instant::now();
        let lock = "BEGIN; SELECT 1 FROM ductwork_executions WHERE result IS NULL FOR UPDATE; COMMIT";
        worker.script("LOCK", lock).await.unwrap();
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(4), "it was waited for {waited:?}");
        assert!(!cancelled.is_finished(), "somebody holds a row of its run");
        hold.script("COMMIT", "COMMIT").await.unwrap();
        assert!(matches!(cancelled.await.unwrap(), Cancel::Done { .. }));
        crate::driver::audit(&mut watch.conn).await;
    })
    .await;
}

/// The driver triggers one at a time; prune needs many.
#[tokio::test]
async fn many_small_runs_go_in_few_transactions() {
    let db = Db::sqlite();
    let mut driver = Driver::new(&db).await;
    driver.audited = false;
    let one = Pipeline::named("P").start("A").build().unwrap();
    let asked = vec![
        NewRun {
            key: None,
            input: "1"
        };
        400
    ];
    trigger(&mut driver.conn, &one, &asked, Duration::ZERO)
        .await
        .unwrap();
    driver.work("P", |_| Did::Returned(json!(1))).await;
    let mut pruning = Pruning::of(Some(Duration::ZERO), u64::MAX).by(200);
    let mut parts = 0;
    while pruning.step(&mut driver.conn).await.unwrap() {
        parts += 1;
    }
    assert_eq!(pruning.runs, 400);
    assert!(parts < 9, "{parts}");
}

on_every_database! {
    /// Nothing is read branch by branch for a run that is wider than a person looks at, and the
    /// important facts are reported all the same: the running executions, earlier failures, the
    /// backlog, and the number of arrivals.
    async fn why_tells_of_a_wide_run_what_moves(db: Db) {
        let width = 2_200;
        let mut driver = Driver::new(&db).await;
        let flow = Pipeline::named("P").start("Many").expand("A").dampen("");
        let flow = flow.chain("B").collapse("C").build().unwrap();
        let run = driver.trigger(&flow, "1").await;
        let many = driver.claim("P", 1).await.pop().unwrap();
        let elements = Did::Returned((0..width).collect());
        let finished = driver.finished(many, elements).await;
        driver.commit(&[finished]).await;
        let mut branches = driver.claim_branches(1).await;
        while !branches.is_empty() {
            branches = driver.advance(&branches).await.spreading;
        }
        let definitions = &driver.actor.definitions;
        let stale = Duration::from_secs(30);
        let facts = why::facts(&mut driver.actor.conn, run, stale, definitions).await.unwrap().unwrap();
        assert_eq!(facts.leaves.len(), 100);
        assert!(facts.leaves.iter().all(|leaf| matches!(leaf.state, LeafState::Queued { .. })));
        assert_eq!(facts.backlog, Some(width));
        let arrived: Vec<_> = facts.barriers.iter().map(|it| (it.width, it.arrived)).collect();
        assert_eq!(arrived, [(width as i64, 0)]);

        // One has failed and runs again, one is about to be advanced by a process, and one has yet to
        // be advanced.
        driver.limits = limits(3, 3);
        let mut claimed = driver.claim("P", 3).await;
        let erred = claimed.pop().unwrap();
        let mut ends = vec![driver.finished(erred, Did::Erred).await];
        for claimed in claimed {
            ends.push(driver.finished(claimed, Did::Returned(1.into())).await);
        }
        driver.commit(&ends).await;
        let advancing = driver.claim_branches(1).await;
        let again = driver.claim("P", width as usize).await;
        let facts = why::facts(&mut driver.actor.conn, run, stale, &driver.actor.definitions).await.unwrap().unwrap();
        let count = |is: &dyn Fn(&LeafState) -> bool| {
            facts.leaves.iter().filter(|leaf| is(&leaf.state)).count()
        };
        assert!(count(&|state| matches!(state, LeafState::Running { .. })) > 90);
        assert!(facts.leaves.len() <= 100);
        assert_eq!(facts.backlog, Some(0));

        // All remaining branches wait for a person, so each branch is looked at.
        let mut ends = Vec::new();
        for claimed in again {
            ends.push(driver.finished(claimed, Did::Returned(1.into())).await);
        }
        driver.commit(&ends).await;
        driver.advance(&advancing).await;
        while driver.round("P", &mut |_| Did::Returned(1.into())).await {}
        let facts = why::facts(&mut driver.actor.conn, run, stale, &driver.actor.definitions).await.unwrap().unwrap();
        assert_eq!(facts.leaves.len(), 100);
        assert!(facts.leaves.iter().all(|leaf| leaf.state == LeafState::Asked));
    }

    /// Neither a hook nor a person is told of each branch of a wide run that has halted.
    async fn a_wide_run_that_halts_tells_of_the_first_of_its_halts(db: Db) {
        let width = 130;
        let mut driver = Driver::new(&db).await;
        let flow = Pipeline::named("P").on_halt("Notify").start("Many").expand("A").build().unwrap();
        let run = driver.trigger(&flow, "1").await;
        let mut told = Vec::new();
        driver
            .work("P", |claimed| match claimed.step.as_str() {
                "Many" => Did::Returned((0..width).collect()),
                "Notify" => {
                    told.push(input(claimed));
                    Did::Returned(json!(null))
                }
                _ => Did::Refused,
            })
            .await;
        assert_eq!(driver.run(run).await, (RunStatus::Halted, None));
        let of_hook: Vec<_> = told.iter().map(|it| it["halts"].as_array().map(Vec::len)).collect();
        assert_eq!(of_hook, [Some(100)]);
        assert_eq!(told[0]["halts"][99]["node"], "A");
        for (n, found) in [(5, 5), (999, width)] {
            let halts = why::halts(&mut driver.conn, run, n).await.unwrap();
            assert_eq!(halts.len(), found);
            assert!(halts.iter().all(|it| it.node == "A" && it.reason == "job_retries_exhausted"), "{halts:#?}");
        }
    }
}

on_every_database! {
    /// A command that cancels ends, also while nobody ends a lock.
    async fn a_cancellation_that_nobody_lets_through_fails_and_can_be_repeated(db: Db) {
        let mut watch = Driver::new(&db).await;
        let flow = Pipeline::named("P").start("A").build().unwrap();
        let run = watch.trigger(&flow, "1").await;
        let mut hold = db.conn().await;
        let lock = match hold.dialect() {
            Dialect::Sqlite => "BEGIN IMMEDIATE",
            Dialect::Postgres => {
                "SET idle_in_transaction_session_timeout = 0; BEGIN; SELECT 1 FROM ductwork_branches FOR UPDATE"
            }
            Dialect::Mysql => {
                "SET SESSION idle_transaction_timeout = 0; BEGIN; SELECT 1 FROM ductwork_branches FOR UPDATE"
            }
        };
        hold.script("LOCK", lock).await.unwrap();
        let mut told = 0;
        let mut report = |_| told += 1;
        let cancelled = cancel_by(&mut watch.conn, run, 2, None, Duration::ZERO, &mut report).await;
        assert!(matches!(cancelled, Err(Error::Retryable { .. })), "{cancelled:?}");
        assert_eq!(told, 1);
        hold.script("COMMIT", "COMMIT").await.unwrap();
        let cancelled = cancel_by(&mut watch.conn, run, 2, None, PATIENCE, &mut |_| {}).await;
        assert!(matches!(cancelled, Ok(Cancel::Done { .. })), "{cancelled:?}");
        crate::driver::audit(&mut watch.conn).await;
    }
}
