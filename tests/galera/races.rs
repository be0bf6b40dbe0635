//! Races between two or three nodes.

use std::cell::Cell;
use std::collections::HashSet;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ductwork::definition::Pipeline;
use ductwork::model::*;
use ductwork::store::cancel::{Cancel, Cancelling, cancel};
use ductwork::store::claim::{self, Claim};
use ductwork::store::context::{self, Writer};
use ductwork::store::delivery::{self, Message};
use ductwork::store::migrate;
use ductwork::store::process::{self, Claimant};
use ductwork::store::prune::prune;
use ductwork::store::revive::{Revive, revive};
use ductwork::store::statement::{Only, Statement};
use ductwork::store::trigger::{self, NewRun};
use ductwork::store::{Conn, Purpose};
use serde_json::json;
use uuid::Uuid;

use crate::driver::{Did, Driver, LEASE, audit};
use crate::{Cluster, DEADLINE, lost_races, number, one, statement, together, told, with};

async fn at(cluster: &Cluster, node: usize) -> Driver {
    let mut driver = Driver::new(&cluster.node(node)).await;
    driver.audited = false;
    driver
}

async fn at_each(cluster: &Cluster) -> Vec<Driver> {
    vec![
        at(cluster, 0).await,
        at(cluster, 1).await,
        at(cluster, 2).await,
    ]
}

/// Triggers this many runs of one step.
async fn fill(driver: &mut Driver, runs: usize) -> Vec<RunId> {
    let runs = vec![
        NewRun {
            key: None,
            input: "1"
        };
        runs
    ];
    let triggered = trigger::trigger(&mut driver.conn, &one(), &runs, Duration::ZERO).await;
    triggered
        .unwrap()
        .into_iter()
        .map(|run| run.run_id)
        .collect()
}

/// Waits until each of these nodes has received the queue of this many: a worker at a node without it finds nothing to
/// do, and leaves everything to the others.
async fn received(cluster: &Cluster, nodes: [usize; 3], runs: usize) {
    for node in nodes {
        let location = cluster.node(node).location;
        // It reads what was committed at any node before.
        let mut reader = location.connect(Purpose::Query).await.unwrap();
        let queued = "SELECT {big:count(*)} AS it FROM ductwork_availabilities";
        assert_eq!(number(&mut reader, queued).await, runs as i64);
        reader.close().await;
    }
}

/// Claims this many, as soon as this node has received them.
async fn claims(driver: &mut Driver, n: usize) -> Vec<claim::Claimed> {
    let began = Instant::now();
    let mut claimed = Vec::new();
    while claimed.len() < n {
        assert!(began.elapsed() < DEADLINE, "only {} of {n}", claimed.len());
        claimed.extend(driver.claim("P", n - claimed.len()).await);
    }
    claimed
}

/// Audits through the reader, which sees the commits of all nodes.
async fn sound(cluster: &Cluster) {
    let mut reader = cluster.reader().await;
    audit(&mut reader).await;
    reader.close().await;
}

#[tokio::test]
async fn the_last_siblings_at_two_nodes_fire_their_barrier_once() {
    const ROUNDS: usize = 40;
    with(|cluster| async move {
        let mut drivers = at_each(&cluster).await;
        let mut third = drivers.pop().unwrap();
        let split = Pipeline::named("P")
            .start("A")
            .divide(["B", "C"])
            .combine("D")
            .build()
            .unwrap();
        let mut runs = Vec::new();
        for _ in 0..ROUNDS {
            runs.push(third.trigger(&split, "1").await);
        }
        assert!(third.round("P", &mut |_| Did::Returned(json!(1))).await);
        // One sibling of each run for each node.
        let mut finished = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS * 2 {
            let driver = &mut drivers[round % 2];
            let claimed = claims(driver, 1).await.remove(0);
            finished[round % 2].push(driver.finished(claimed, Did::Returned(json!(2))).await);
        }
        lost_races();
        let began = Instant::now();
        let both = drivers.into_iter().zip(finished);
        together(both.map(|(mut driver, finished)| async move {
            for one in finished {
                assert_eq!(driver.commit(&[one]).await.stale, []);
            }
        }))
        .await;
        told("last siblings at two nodes", ROUNDS * 2, began);
        let (began, mut fan_ins) = (Instant::now(), 0);
        loop {
            let mut ran = third.work("P", |_| Did::Returned(json!(3))).await;
            ran.retain(|node| node == "D");
            fan_ins += ran.len();
            if number(
                &mut third.conn,
                "SELECT {big:count(*)} AS it FROM ductwork_runs WHERE status = 'completed'",
            )
            .await
                == ROUNDS as i64
            {
                break;
            }
            assert!(began.elapsed() < DEADLINE, "a barrier never fired");
        }
        assert_eq!(fan_ins, ROUNDS);
        sound(&cluster).await;
    })
    .await;
}

#[tokio::test]
async fn a_key_that_three_nodes_trigger_at_once_makes_one_run() {
    const KEYS: usize = 60;
    with(|cluster| async move {
        let drivers = at_each(&cluster).await;
        lost_races();
        let began = Instant::now();
        let triggered = together(drivers.into_iter().map(|mut driver| async move {
            let mut triggered = Vec::new();
            for key in 0..KEYS {
                let key = format!("k{key}");
                let run = [NewRun {
                    key: Some(&key),
                    input: "1",
                }];
                let runs = trigger::trigger(&mut driver.conn, &one(), &run, Duration::ZERO).await;
                triggered.extend(runs.unwrap());
            }
            triggered
        }))
        .await;
        told("one key at three nodes", 3 * KEYS, began);
        for key in 0..KEYS {
            let runs: HashSet<RunId> = triggered.iter().map(|all| all[key].run_id).collect();
            let created = triggered.iter().filter(|all| all[key].created).count();
            assert_eq!((runs.len(), created), (1, 1), "k{key}");
        }
        sound(&cluster).await;
    })
    .await;
}

#[tokio::test]
async fn claims_of_three_nodes_never_give_an_execution_twice() {
    const RUNS: usize = 300;
    with(|cluster| async move {
        let mut drivers = at_each(&cluster).await;
        fill(&mut drivers[0], RUNS).await;
        received(&cluster, [0, 1, 2], RUNS).await;
        lost_races();
        let began = Instant::now();
        let claimed = together(drivers.into_iter().map(|mut driver| async move {
            let (mut claimed, mut empty, mut made) = (Vec::new(), 0, 0);
            // The commits of another node arrive a moment later.
            while empty < 20 {
                let taken = driver.claim("P", 4).await;
                made += 1;
                if taken.is_empty() {
                    empty += 1;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                claimed.extend(taken.into_iter().map(|it| it.execution_id));
            }
            (claimed, made)
        }))
        .await;
        told(
            "claims of three nodes",
            claimed.iter().map(|(_, made)| made).sum(),
            began,
        );
        let all: Vec<ExecutionId> = claimed
            .into_iter()
            .flat_map(|(claimed, _)| claimed)
            .collect();
        let different: HashSet<ExecutionId> = all.iter().copied().collect();
        assert_eq!((all.len(), different.len()), (RUNS, RUNS));
        sound(&cluster).await;
    })
    .await;
}

/// Three workers at these nodes work off a queue, ten executions at a time.
async fn worked_off(cluster: &Cluster, nodes: [usize; 3], what: &str) {
    const RUNS: usize = 900;
    let mut drivers = Vec::new();
    for node in nodes {
        drivers.push(at(cluster, node).await);
    }
    fill(&mut drivers[0], RUNS).await;
    received(cluster, nodes, RUNS).await;
    lost_races();
    let began = Instant::now();
    let worked = together(drivers.into_iter().map(|mut driver| async move {
        let (mut executions, mut transactions, mut empty) = (0, 0, 0);
        while empty < 10 {
            let claimed = driver.claim("P", 10).await;
            transactions += 2;
            if claimed.is_empty() {
                empty += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let mut finished = Vec::new();
            for claimed in claimed {
                executions += 1;
                finished.push(driver.finished(claimed, Did::Returned(json!(1))).await);
            }
            assert_eq!(driver.commit(&finished).await.stale, []);
        }
        (executions, transactions)
    }))
    .await;
    told(
        what,
        worked.iter().map(|(_, transactions)| transactions).sum(),
        began,
    );
    assert_eq!(
        worked
            .iter()
            .map(|(executions, _)| executions)
            .sum::<usize>(),
        RUNS
    );
    let mut reader = cluster.reader().await;
    let over = "SELECT {big:count(*)} AS it FROM ductwork_runs WHERE status <> 'completed'";
    assert_eq!(number(&mut reader, over).await, 0);
    reader.close().await;
}

#[tokio::test]
async fn workers_at_three_nodes_work_off_a_queue_as_those_at_one_do() {
    with(|cluster| async move {
        worked_off(&cluster, [0, 0, 0], "three workers at one node").await;
        worked_off(&cluster, [0, 1, 2], "three workers at three nodes").await;
        sound(&cluster).await;
    })
    .await;
}

/// Claims this many, one after the other; true if each was the first one of the queue.
async fn claimed_in_order(cluster: &Cluster, driver: &mut Driver, n: usize) -> bool {
    let mut reader = cluster.reader().await;
    let queue =
        "SELECT execution_id AS it FROM ductwork_availabilities ORDER BY due_at, execution_id";
    let rows = reader.fetch(statement(queue), &[]).await.unwrap();
    reader.close().await;
    // A claim of what another node has taken loses.
    received(cluster, [0, 1, 2], rows.len()).await;
    let first: Vec<Uuid> = rows
        .iter()
        .take(n)
        .map(|it| it.get("it").unwrap())
        .collect();
    let mut claimed = Vec::new();
    for _ in 0..n {
        let one = driver.claim("P", 1).await;
        claimed.extend(one.iter().map(|it| it.execution_id.0));
    }
    let (taken, all): (HashSet<_>, usize) = (claimed.iter().collect(), first.len());
    assert_eq!((taken.len(), all), (n, n), "it is not long enough");
    claimed == first
}

#[tokio::test]
async fn a_worker_that_lost_to_another_node_claims_past_the_head_for_a_while() {
    with(|cluster| async move {
        let (mut one, mut other) = (at(&cluster, 0).await, at(&cluster, 1).await);
        fill(&mut one, 400).await;
        assert!(claimed_in_order(&cluster, &mut one, 40).await);
        assert!(claimed_in_order(&cluster, &mut other, 40).await);
        let began = Instant::now();
        lost_races();
        while lost_races() == 0 {
            assert!(began.elapsed() < DEADLINE, "none was in the way of another");
            fill(&mut one, 20).await;
            lost_races();
            tokio::join!(one.claim("P", 10), other.claim("P", 10));
        }
        // Eight claims in order by chance are as rare as eight equal dice with eight sides.
        let ordered = [
            claimed_in_order(&cluster, &mut one, 8).await,
            claimed_in_order(&cluster, &mut other, 8).await,
        ];
        assert!(ordered.contains(&false), "all begin at the head");
        for worker in [&mut one, &mut other] {
            let began = Instant::now();
            while !claimed_in_order(&cluster, worker, 4).await {
                assert!(
                    began.elapsed() < DEADLINE,
                    "it never begins at the head again"
                );
                fill(worker, 4).await;
            }
        }
        // The last ones are taken by a claim that wants more.
        let began = Instant::now();
        loop {
            let (mine, yours) = tokio::join!(one.claim("P", 30), other.claim("P", 30));
            if mine.is_empty() && yours.is_empty() {
                break;
            }
            assert!(began.elapsed() < DEADLINE, "some are never taken");
        }
        let mut reader = cluster.reader().await;
        let queued = "SELECT {big:count(*)} AS it FROM ductwork_availabilities";
        assert_eq!(number(&mut reader, queued).await, 0);
        reader.close().await;
        sound(&cluster).await;
    })
    .await;
}

#[tokio::test]
async fn starters_at_three_nodes_make_one_schema() {
    with(|cluster| async move {
        let mut reader = cluster.reader().await;
        let drop = "SELECT 'DROP ' || CASE TABLE_TYPE WHEN 'VIEW' THEN 'VIEW ' ELSE 'TABLE ' END || TABLE_NAME AS it
                      FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_TYPE DESC";
        let tables = "SELECT {big:count(*)} AS it FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()";
        let whole = number(&mut reader, tables).await;
        for _ in 0..3 {
        for row in reader.fetch(statement(drop), &[]).await.unwrap() {
            let drop: String = row.get("it").unwrap();
            reader.script("DROP", Box::leak(drop.into_boxed_str())).await.unwrap();
        }
        assert_eq!(number(&mut reader, tables).await, 0);
        let nodes: Vec<_> = (0..3).map(|node| cluster.node(node).location).collect();
        together(nodes.into_iter().map(|node| async move {
            let mut conn = node.connect(Purpose::Query).await.unwrap();
            migrate::migrate(&mut conn).await.unwrap();
            migrate::check(&mut conn).await.unwrap();
            conn.close().await;
        }))
        .await;
        assert_eq!(number(&mut reader, tables).await, whole);
        migrate::check(&mut reader).await.unwrap();
        }
        reader.close().await;
    })
    .await;
}

/// The clock of the other node is decades behind.
#[tokio::test]
async fn the_turn_of_a_starter_that_renews_it_is_waited_for_and_that_of_one_that_is_gone_is_taken()
{
    with(|cluster| async move {
        let (mut other, mut starter) = (cluster.reader().await, cluster.node(1).location.connect(Purpose::Query).await.unwrap());
        let newest = migrate::MIGRATIONS.last().unwrap().version;
        other.script("FORGET", format!("DELETE FROM ductwork_migrations WHERE version = {newest}").leak()).await.unwrap();
        other.script("TAKE", "INSERT INTO ductwork_migrations (version, name, applied_at) VALUES (0, 'other', 1)").await.unwrap();
        let is_over = Rc::new(Cell::new(false));
        let renews = tokio::task::spawn_local({
            let is_over = Rc::clone(&is_over);
            async move {
                let mut renewed = 0;
                while !is_over.get() {
                    other.script("RENEW", "UPDATE ductwork_migrations SET applied_at = applied_at + 1 WHERE version = 0 AND name = 'other'").await.unwrap();
                    renewed += 1;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                (other, renewed)
            }
        });
        let patience = Duration::from_secs(13);
        let refused = migrate::migrate_within(&mut starter, patience, &mut |_| {}).await;
        let told = refused.map(|done| done.len()).unwrap_err().to_string();
        assert!(told.contains("another process, at another node of the cluster"), "{told}");
        is_over.set(true);
        let (mut other, renewed) = renews.await.unwrap();
        assert!(renewed > 3, "{renewed}");
        let done = migrate::migrate(&mut starter).await.unwrap();
        assert_eq!(done.iter().map(|it| it.version).collect::<Vec<_>>(), [newest]);
        assert_eq!(number(&mut other, "SELECT {big:count(*)} AS it FROM ductwork_migrations WHERE version = 0").await, 0);
        starter.close().await;
        other.close().await;
    })
    .await;
}

#[tokio::test]
async fn what_one_node_puts_back_and_another_cancels_is_cancelled() {
    const RUNS: usize = 60;
    with(|cluster| async move {
        let (mut worker, mut person) = (at(&cluster, 0).await, at(&cluster, 1).await);
        let runs = fill(&mut worker, RUNS).await;
        received(&cluster, [0, 1, 1], RUNS).await;
        let claimed = claims(&mut worker, RUNS).await;
        lost_races();
        let began = Instant::now();
        let pipeline = claimed
            .into_iter()
            .map(|it| it.execution_id)
            .collect::<Vec<_>>();
        let put = tokio::task::spawn_local(async move {
            for execution in pipeline {
                let claimant = Claimant::new(worker.process);
                let put = claim::put_back(
                    &mut worker.conn,
                    claimant,
                    "P",
                    &[execution],
                    Duration::ZERO,
                )
                .await;
                assert!(put.unwrap() <= 1);
            }
        });
        for run in runs {
            let cancelled = cancel(&mut person.conn, run).await.unwrap();
            assert!(matches!(cancelled, Cancel::Done { .. }), "{cancelled:?}");
        }
        put.await.unwrap();
        told(
            "put back at one node, cancelled at another",
            2 * RUNS,
            began,
        );
        sound(&cluster).await;
        let mut reader = cluster.reader().await;
        let queued = "SELECT {big:count(*)} AS it FROM ductwork_availabilities";
        assert_eq!(number(&mut reader, queued).await, 0);
        reader.close().await;
    })
    .await;
}

/// How much later the second of two begins in the next round, after the first has won or lost this one: either wins
/// now and then, however slow the machine is.
fn balanced(late_by: Duration, first_won: bool) -> Duration {
    let step = Duration::from_millis(1);
    match first_won {
        true => late_by.saturating_sub(step),
        false => late_by + step,
    }
}

/// A worker whose node is gone works on at another node. A statement that it sent earlier may still
/// arrive.
#[tokio::test]
async fn after_a_fence_at_one_node_nothing_is_claimed_at_another() {
    const ROUNDS: u32 = 60;
    with(|cluster| async move {
        let (mut before, after) = (at(&cluster, 0).await, at(&cluster, 1).await);
        fill(&mut before, ROUNDS as usize).await;
        let (process, mut after) = (before.process, after.actor.conn);
        let mut known: HashSet<ExecutionId> = HashSet::new();
        let mut late_by = Duration::ZERO;
        lost_races();
        let began = Instant::now();
        for epoch in 1..=ROUNDS {
            let past = Claimant {
                process,
                epoch: epoch - 1,
            };
            let late = tokio::task::spawn_local(async move {
                let claimed = claim::claim(&mut before.conn, past, "P", 1, LEASE).await;
                (before, claimed.unwrap())
            });
            // The order of the two is a matter of some milliseconds, on any machine: see `balanced`.
            tokio::time::sleep(late_by).await;
            let present = Claimant { process, epoch };
            process::fence_earlier(&mut after, present).await.unwrap();
            let held = claim::held(&mut after, process).await.unwrap();
            let held: HashSet<ExecutionId> = held.whole.iter().map(|it| it.execution_id).collect();
            let (driver, claimed) = late.await.unwrap();
            before = driver;
            let earlier = known.len();
            if let Claim::Taken(taken) = claimed {
                known.extend(taken.iter().map(|it| it.execution_id));
            }
            assert_eq!(
                held, known,
                "what was claimed was seen, and what was not seen was not claimed"
            );
            late_by = balanced(late_by, known.len() > earlier);
        }
        told("a fence and a late claim", 2 * ROUNDS as usize, began);
        assert!(
            !known.is_empty() && known.len() < ROUNDS as usize,
            "neither came first: {}",
            known.len()
        );
    })
    .await;
}

static LONG_AGO: Statement = Statement::new(
    "LONG_AGO",
    "UPDATE ductwork_runs SET halted_at = 1 WHERE id = :run",
);

#[tokio::test]
async fn what_one_node_revives_and_another_prunes_is_whole_or_gone() {
    const RUNS: usize = 400;
    with(|cluster| async move {
        let (mut here, mut there) = (at(&cluster, 0).await, at(&cluster, 1).await);
        let runs = fill(&mut here, RUNS).await;
        here.work("P", |_| Did::Refused).await;
        let halted = "SELECT {big:count(*)} AS it FROM ductwork_runs WHERE status = 'halted'";
        assert_eq!(number(&mut here.conn, halted).await, RUNS as i64);
        // A prune takes the oldest runs, and only one run at a time may be pruned.
        there.conn.catch_up().await.unwrap();
        let later = "UPDATE ductwork_runs SET halted_at = halted_at + 86400000000";
        there.conn.fetch(statement(later), &[]).await.unwrap();
        lost_races();
        let began = Instant::now();
        let (mut revived, mut gone) = (0, 0);
        let mut late_by = Duration::ZERO;
        for run in runs {
            grow_old(&mut there.conn, run).await;
            // The order of the two is a matter of some milliseconds, on any machine.
            let pruned = tokio::task::spawn_local(async move {
                tokio::time::sleep(late_by).await;
                let pruned = prune(&mut there.conn, Duration::ZERO, 1).await.unwrap();
                (there, pruned)
            });
            let what = revive(&mut here.conn, run).await.unwrap();
            let (driver, pruned) = pruned.await.unwrap();
            there = driver;
            let first_won = pruned == 0;
            match (what, pruned) {
                (Revive::Done(_), 0) => revived += 1,
                (Revive::NotFound, 1) => gone += 1,
                other => panic!("{other:?}"),
            }
            late_by = balanced(late_by, first_won);
        }
        told("revived at one node, pruned at another", 2 * RUNS, began);
        eprintln!("{revived} were revived, {gone} were gone");
        assert!(revived > 0 && gone > 0);
        sound(&cluster).await;
    })
    .await;
}

/// Halted runs, which a prune takes only once they have grown old.
async fn young(driver: &mut Driver, n: usize) -> Vec<RunId> {
    let runs = fill(driver, n).await;
    driver.work("P", |_| Did::Refused).await;
    let later = "UPDATE ductwork_runs SET halted_at = halted_at + 86400000000";
    driver.conn.fetch(statement(later), &[]).await.unwrap();
    runs
}

/// Lets a run grow old, at a node that may not have it yet.
async fn grow_old(conn: &mut Conn, run: RunId) {
    let args = [("run", run.0.into())];
    conn.catch_up().await.unwrap();
    assert_eq!(conn.execute(&LONG_AGO, &args).await.unwrap(), 1);
}

#[tokio::test]
async fn what_one_node_sets_and_another_prunes_is_there_with_its_run_or_gone() {
    const RUNS: usize = 300;
    with(|cluster| async move {
        let (mut here, mut there) = (at(&cluster, 0).await, at(&cluster, 1).await);
        let runs = young(&mut here, RUNS).await;
        lost_races();
        let began = Instant::now();
        let (mut set, mut late_by) = (0, Duration::ZERO);
        for run in runs {
            grow_old(&mut there.conn, run).await;
            let sets = tokio::task::spawn_local(async move {
                tokio::time::sleep(late_by).await;
                let is_set = context::set(&mut here.conn, run, "k", "1").await.unwrap();
                (here, is_set)
            });
            let pruned = prune(&mut there.conn, Duration::ZERO, 1).await.unwrap();
            let (driver, is_set) = sets.await.unwrap();
            here = driver;
            // A prune skips a run that somebody holds, and takes it later.
            assert!(is_set || pruned == 1);
            prune(&mut there.conn, Duration::ZERO, 1).await.unwrap();
            set += usize::from(is_set);
            late_by = balanced(late_by, !is_set);
        }
        told("set at one node, pruned at another", 2 * RUNS, began);
        assert!(set > 0 && set < RUNS, "neither came first: {set}");
        sound(&cluster).await;
    })
    .await;
}

#[tokio::test]
async fn what_a_step_sets_at_one_node_is_there_before_another_has_cancelled_it() {
    const RUNS: usize = 200;
    with(|cluster| async move {
        let (mut here, mut there) = (at(&cluster, 0).await, at(&cluster, 1).await);
        let mut reader = cluster
            .node(1)
            .location
            .connect(Purpose::Query)
            .await
            .unwrap();
        fill(&mut here, RUNS).await;
        received(&cluster, [0, 1, 1], RUNS).await;
        lost_races();
        let began = Instant::now();
        let (mut set, mut late_by) = (0, Duration::ZERO);
        for round in 0..RUNS {
            let claimed = claims(&mut here, 1).await.remove(0);
            let writer = Writer {
                run: claimed.run_id,
                execution: claimed.execution_id,
                process: here.process,
            };
            let sets = tokio::task::spawn_local(async move {
                tokio::time::sleep(late_by).await;
                let is_set = context::set_as(&mut here.conn, writer, "k", "1")
                    .await
                    .unwrap();
                (here, is_set)
            });
            let mut cancelling = Cancelling::of(claimed.run_id, 100);
            let cancelled = loop {
                if let Some(cancelled) = cancelling.step(&mut there.conn).await.unwrap() {
                    break cancelled;
                }
            };
            assert!(matches!(cancelled, Cancel::Done { .. }), "{cancelled:?}");
            let values = "SELECT {big:count(*)} AS it FROM ductwork_tuples";
            let after = number(&mut reader, values).await;
            let (driver, is_set) = sets.await.unwrap();
            here = driver;
            set += i64::from(is_set);
            assert_eq!(
                after, set,
                "round {round}: it was set after its attempt was over"
            );
            late_by = balanced(late_by, !is_set);
        }
        told(
            "set by a step at one node, cancelled at another",
            2 * RUNS,
            began,
        );
        assert!(set > 0 && set < RUNS as i64, "neither came first: {set}");
        sound(&cluster).await;
        reader.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_run_that_one_node_tells_of_and_another_prunes_leaves_no_message() {
    const RUNS: usize = 200;
    with(|cluster| async move {
        let (mut here, mut there) = (at(&cluster, 0).await, at(&cluster, 1).await);
        let runs = young(&mut here, RUNS).await;
        lost_races();
        let began = Instant::now();
        let (mut written, mut late_by) = (0, Duration::ZERO);
        for run in runs {
            grow_old(&mut there.conn, run).await;
            let tells = tokio::task::spawn_local(async move {
                tokio::time::sleep(late_by).await;
                let is_told = is_told(&mut here.conn, run).await;
                (here, is_told)
            });
            prune(&mut there.conn, Duration::ZERO, 1).await.unwrap();
            let (driver, is_told) = tells.await.unwrap();
            here = driver;
            // A prune skips a run that somebody holds, and takes it later.
            prune(&mut there.conn, Duration::ZERO, 1).await.unwrap();
            written += usize::from(is_told);
            late_by = balanced(late_by, !is_told);
        }
        told("told of at one node, pruned at another", 2 * RUNS, began);
        assert!(
            written > 0 && written < RUNS,
            "neither came first: {written}"
        );
        let mut reader = cluster.reader().await;
        let alone = "SELECT {big:count(*)} AS it FROM ductwork_deliveries d
                      WHERE NOT EXISTS (SELECT 1 FROM ductwork_runs r WHERE r.id = d.run_id)";
        assert_eq!(number(&mut reader, alone).await, 0);
        reader.close().await;
        sound(&cluster).await;
    })
    .await;
}

/// Writes a message about a run, as a console does; false if the run was found gone.
async fn is_told(conn: &mut Conn, run: RunId) -> bool {
    static ABOUT: Statement = Statement::new(
        "ABOUT",
        "SELECT id FROM ductwork_deliveries WHERE run_id = :run",
    );
    let message = Message {
        endpoint: "e".to_owned(),
        run,
        event: RunStatus::Halted,
        pipeline: "P".to_owned(),
        body: "{}".to_owned(),
    };
    delivery::insert(conn, &[message]).await.unwrap();
    let found = conn.fetch(&ABOUT, &[("run", run.0.into())]).await;
    !found.unwrap().is_empty()
}

static BUMP: Statement = Statement::new("BUMP", "UPDATE hot SET n = n + 1 WHERE id = 1");
static ALL: Statement = Statement::only(Only::Mysql, "ALL", "{whole:ROW_COUNT();:one}");
static FIRST: Statement = Statement::new("FIRST", "INSERT INTO told VALUES (:id, 1)");
static SECOND: Statement = Statement::new("SECOND", "INSERT INTO told VALUES (:id, 2)");
static READ: Statement = Statement::new("READ", "SELECT n FROM hot WHERE id = 1");
static BUMP_ALONE: Statement =
    Statement::new("BUMP_ALONE", "UPDATE hot SET n = n + 1 WHERE id = 2");
static AT_ONCE: Statement = Statement::row("AT_ONCE", &[&FIRST, &BUMP, &ALL, &SECOND]);
/// The same, with a statement that returns rows: each of its parts is sent alone.
static ALONE: Statement = Statement::row("ALONE", &[&FIRST, &BUMP, &ALL, &READ, &SECOND]);
static READS_LAST: Statement = Statement::row("READS_LAST", &[&FIRST, &SECOND, &BUMP, &ALL, &READ]);

async fn bumped(conn: &mut Conn, statement: &'static Statement) -> Uuid {
    let id = Uuid::now_v7();
    let args = [("id", id.into()), ("one", 1_i64.into())];
    let done = conn.transaction(async |conn| {
        conn.fetch_and_commit(statement, &args).await?;
        Ok(())
    });
    done.await.unwrap();
    id
}

#[tokio::test]
async fn of_a_thousand_transactions_that_write_one_row_none_is_lost_or_partial() {
    const EACH: usize = 170;
    with(|cluster| async move {
        let mut reader = cluster.reader().await;
        let tables = "CREATE TABLE hot (id bigint PRIMARY KEY, n bigint NOT NULL) ENGINE=InnoDB;
            CREATE TABLE told (id binary(16) NOT NULL, part bigint NOT NULL, PRIMARY KEY (id, part)) ENGINE=InnoDB;
            INSERT INTO hot VALUES (1, 0), (2, 0)";
        reader.script("TABLES", tables).await.unwrap();
        lost_races();
        let began = Instant::now();
        let mut writers = Vec::new();
        for writer in 0..6 {
            let location = cluster.node(writer % 3).location;
            // Long enough for the last of six.
            let location = location.leased(Duration::from_secs(90));
            let mut conn = location.connect(Purpose::Engine).await.unwrap();
            writers.push(async move {
                let mut told = Vec::new();
                for at in 0..EACH {
                    let statement = [&AT_ONCE, &ALONE, &READS_LAST][(at + writer / 3) % 3];
                    told.push(bumped(&mut conn, statement).await);
                    assert_eq!(conn.execute(&BUMP_ALONE, &[]).await.unwrap(), 1);
                }
                conn.close().await;
                told
            });
        }
        let acknowledged: Vec<Uuid> = together(writers).await.into_iter().flatten().collect();
        told("one row that six connections to three nodes write", acknowledged.len(), began);
        assert!(acknowledged.len() >= 1_000);
        let rows = reader.fetch(statement("SELECT id, {big:count(*)} AS parts FROM told GROUP BY id"), &[]).await;
        let rows = rows.unwrap();
        let stored: HashSet<Uuid> = rows.iter().map(|row| row.get("id").unwrap()).collect();
        assert_eq!(stored, acknowledged.into_iter().collect());
        assert!(rows.iter().all(|row| row.get::<i64>("parts").unwrap() == 2));
        let counts = "SELECT {big:count(*)} AS it FROM hot WHERE n = (SELECT count(*) FROM told WHERE part = 1)";
        assert_eq!(number(&mut reader, counts).await, 2, "rows with all their changes");
        reader.close().await;
    })
    .await;
}

/// Without the wait, many of them would read the earlier state.
#[tokio::test]
async fn a_read_that_decides_sees_what_was_committed_at_another_node() {
    const ROUNDS: usize = 150;
    with(|cluster| async move {
        let (mut here, mut there) = (at(&cluster, 0).await, at(&cluster, 1).await);
        fill(&mut here, ROUNDS).await;
        let mut reader = cluster.node(2).location.connect(Purpose::Query).await.unwrap();
        for round in 0..ROUNDS {
            let claimed = claims(&mut here, 1).await.remove(0);
            let held = claim::held(&mut there.conn, here.process).await.unwrap();
            assert_eq!(held.whole.len(), 1, "round {round}");
            let open = "SELECT {big:count(*)} AS it FROM ductwork_executions WHERE result IS NULL AND process_id IS NOT NULL";
            assert_eq!(number(&mut reader, open).await, 1, "round {round}");
            let finished = [here.finished(claimed, Did::Returned(json!(1))).await];
            here.commit(&finished).await;
            let landed = ductwork::store::commit::landed(&mut there.conn, &finished, here.process).await;
            assert_eq!(landed.unwrap().len(), 1, "round {round}");
        }
        // Reads of the work itself do not wait.
        let waits = number(
            &mut there.conn,
            "SELECT {big:@@wsrep_sync_wait} AS it",
        )
        .await;
        assert_eq!(waits, 0);
        reader.close().await;
    })
    .await;
}

/// The other node applies nothing as long as somebody at it holds one of the tables.
#[tokio::test]
async fn a_command_finds_a_run_that_its_node_has_not_received_yet() {
    with(|cluster| async move {
        let mut here = at(&cluster, 0).await;
        let mut holder = cluster.node(1).location.connect(Purpose::Engine).await.unwrap();
        let mut watcher = cluster.node(1).location.connect(Purpose::Engine).await.unwrap();
        holder.script("HOLD", "LOCK TABLES ductwork_runs READ").await.unwrap();
        let run = fill(&mut here, 1).await[0];
        let command = tokio::task::spawn_blocking({
            let url = cluster.node(1).url;
            move || {
                Command::new(env!("CARGO_BIN_EXE_ductworkd"))
                    .args(["cancel", &run.0.to_string()])
                    .env("DUCTWORK_DATABASE__URL", url)
                    .output()
                    .unwrap()
            }
        });
        let waits = "SELECT {big:count(*)} AS it FROM information_schema.PROCESSLIST
                      WHERE INFO LIKE '%wsrep_sync_wait = 1 FOR SELECT 1' AND ID <> CONNECTION_ID()";
        let began = Instant::now();
        while number(&mut watcher, waits).await == 0 && !command.is_finished() {
            assert!(began.elapsed() < DEADLINE, "it neither waits nor ends");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let runs = "SELECT {big:count(*)} AS it FROM ductwork_runs";
        assert_eq!(number(&mut holder, runs).await, 0, "the node has received the run");
        holder.script("RELEASE", "UNLOCK TABLES").await.unwrap();
        let done = command.await.unwrap();
        let told = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.success(), "{told}");
        sound(&cluster).await;
        holder.close().await;
        watcher.close().await;
    })
    .await;
}
