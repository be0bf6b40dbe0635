//! The rows that contain the processes' counts: their sum never falls, and nothing counts twice.

use ductwork::engine::actor::limits;
use ductwork::metrics::{Counts, HEARTBEATS, METRICS, Reading, STEP_DURATION};
use ductwork::model::ProcessId;
use ductwork::store::process;
use ductwork::store::recovery::{self, Death};
use ductwork::store::{Conn, metrics, pause};
use std::time::Duration;

use crate::driver::{Driver, register};
use crate::on_every_database;
use crate::support::Db;

/// The counts of a process that has beaten this often.
fn beaten(times: u64) -> String {
    let mut counts = Counts::default();
    counts.add(&HEARTBEATS, &["worker", "written"], times);
    counts.observe(&STEP_DURATION, &["P", "A"], Duration::from_secs(times));
    counts.to_body()
}

/// The heartbeats of all processes.
async fn sum(conn: &mut Conn) -> u64 {
    let counts = metrics::counts(conn).await.unwrap().0;
    counts.sum(&HEARTBEATS, &[])
}

/// A dead process that has written this many.
async fn dead(driver: &mut Driver, times: u64) -> ProcessId {
    let dead = register(&mut driver.conn).await;
    assert!(
        metrics::write(&mut driver.conn, dead, &beaten(times))
            .await
            .unwrap()
    );
    let budgets = |_: &_, _: &str| limits(1, 1);
    let death = Death::Proven { how: "killed" };
    recovery::recover(
        &mut driver.actor.conn,
        dead,
        death,
        &budgets,
        &driver.actor.definitions,
    )
    .await
    .unwrap();
    dead
}

on_every_database! {
    async fn a_sum_is_the_same_before_and_after_processes_are_folded(db: Db) {
        let mut driver = Driver::new(&db).await;
        assert_eq!(sum(&mut driver.conn).await, 0);
        let own = driver.process;
        assert!(metrics::write(&mut driver.conn, own, &beaten(1)).await.unwrap());
        for _ in 0..120 {
            dead(&mut driver, 2).await;
        }
        let orderly = register(&mut driver.conn).await;
        metrics::write(&mut driver.conn, orderly, &beaten(5)).await.unwrap();
        process::deregister(&mut driver.conn, orderly).await.unwrap();
        let before = metrics::counts(&mut driver.conn).await.unwrap().0;
        assert_eq!(before.sum(&HEARTBEATS, &[]), 1 + 240 + 5);
        // The number of rows that each fold takes.
        for folded in [100, 21, 0] {
            assert_eq!(metrics::fold(&mut driver.conn).await.unwrap(), folded);
            assert_eq!(metrics::counts(&mut driver.conn).await.unwrap().0, before);
        }
        // The living process still has its row.
        assert!(metrics::write(&mut driver.conn, own, &beaten(4)).await.unwrap());
        assert_eq!(sum(&mut driver.conn).await, 4 + 240 + 5);
    }

    async fn a_process_that_was_folded_adds_nothing(db: Db) {
        let mut driver = Driver::new(&db).await;
        let dead = dead(&mut driver, 3).await;
        // Between its death and the fold it may still write correct counts.
        assert!(metrics::write(&mut driver.conn, dead, &beaten(4)).await.unwrap());
        assert_eq!(metrics::fold(&mut driver.conn).await.unwrap(), 1);
        assert!(!metrics::write(&mut driver.conn, dead, &beaten(9)).await.unwrap());
        assert_eq!(sum(&mut driver.conn).await, 4);
        assert_eq!(metrics::fold(&mut driver.conn).await.unwrap(), 0);
    }

    async fn what_a_process_has_measured_is_told_while_it_lives(db: Db) {
        let mut driver = Driver::new(&db).await;
        let dying = register(&mut driver.conn).await;
        let body = r#"{"c":{},"h":{},"m":{"memory":7,"cpu_ms":1500,"open_fds":9,"slots":3,"busy":2}}"#;
        assert!(metrics::write(&mut driver.conn, dying, body).await.unwrap());
        let told = async |conn: &mut Conn| {
            let (_, readings) = metrics::counts(conn).await.unwrap();
            let named = |it: &Reading| (it.metric.name, it.labels.join(" "), it.value);
            readings.iter().map(named).collect::<Vec<_>>()
        };
        let expected = [
            ("slots", " busy", 2.0),
            ("slots", " free", 1.0),
            ("process_resident_memory_bytes", "here worker  0", 7.0),
            ("process_cpu_seconds", "here worker  0", 1.5),
            ("process_open_fds", "here worker  0", 9.0),
        ];
        let expected = expected.map(|(name, labels, value)| (name, labels.to_owned(), value));
        assert_eq!(told(&mut driver.conn).await, expected);
        let budgets = |_: &_, _: &str| limits(1, 1);
        let death = Death::Proven { how: "killed" };
        recovery::recover(&mut driver.actor.conn, dying, death, &budgets, &driver.actor.definitions).await.unwrap();
        assert_eq!(told(&mut driver.conn).await, []);
    }

    async fn rows_that_two_sweepers_fold_at_once_count_once(db: Db) {
        let mut driver = Driver::new(&db).await;
        let (mut one, mut two) = (db.conn().await, db.conn().await);
        let mut reader = db.conn().await;
        let mut expected = 0;
        for round in 1..=20 {
            for _ in 0..5 {
                dead(&mut driver, round).await;
                expected += round;
            }
            let scrape = async {
                for _ in 0..5 {
                    assert_eq!(sum(&mut reader).await, expected);
                }
            };
            let (one, two, ()) = tokio::join!(
                metrics::fold(&mut one),
                metrics::fold(&mut two),
                scrape
            );
            assert_eq!(one.unwrap() + two.unwrap(), 5);
            assert_eq!(sum(&mut driver.conn).await, expected);
        }
    }

    async fn a_process_that_registers_while_others_are_folded_keeps_its_row(db: Db) {
        let mut driver = Driver::new(&db).await;
        let (mut one, mut two) = (db.conn().await, db.conn().await);
        let mut sweeper = db.conn().await;
        for round in 1..=40 {
            for _ in 0..3 {
                dead(&mut driver, round).await;
            }
            let registers = async |conn: &mut Conn| {
                let mut made = Vec::new();
                for _ in 0..4 {
                    made.push(register(conn).await);
                }
                made
            };
            let folds = async {
                for _ in 0..4 {
                    metrics::fold(&mut sweeper).await.unwrap();
                }
            };
            let (first, second, ()) = tokio::join!(registers(&mut one), registers(&mut two), folds);
            for process in first.into_iter().chain(second) {
                let written = metrics::write(&mut driver.conn, process, &beaten(1)).await;
                assert!(written.unwrap(), "round {round}: the row of {process} is gone");
            }
        }
    }

    async fn a_row_that_nobody_can_read_counts_nothing_and_holds_up_no_other(db: Db) {
        let mut driver = Driver::new(&db).await;
        let damaged = dead(&mut driver, 1).await;
        dead(&mut driver, 7).await;
        assert!(metrics::write(&mut driver.conn, damaged, "{").await.unwrap());
        assert_eq!(sum(&mut driver.conn).await, 7);
        assert_eq!(metrics::fold(&mut driver.conn).await.unwrap(), 2);
        assert_eq!(sum(&mut driver.conn).await, 7);
    }

    async fn what_there_is_is_read_from_rows(db: Db) {
        let mut driver = Driver::new(&db).await;
        let text = "pipeline: P\nsteps: { A: { command: [a] } }\nflow: [{ start: A }]\n";
        let definition = ductwork::definition::yaml::parse(text, "p.yml".as_ref()).unwrap();
        for _ in 0..3 {
            driver.trigger(&definition, "1").await;
        }
        driver.claim("P", 1).await;
        pause::pause(&mut driver.conn, "Q", "why", &crate::actions::ana()).await.unwrap();
        let mut readings = metrics::readings(&mut driver.conn, Duration::from_secs(30)).await.unwrap();
        readings.extend(metrics::runs(&mut driver.conn).await.unwrap());
        let of = |name: &str, labels: &[&str]| {
            let same = |it: &&Reading| it.metric.name == name && it.labels == labels;
            readings.iter().find(same).map(|it| it.value)
        };
        assert_eq!(of("queue_depth", &["P", "due"]), Some(2.0));
        assert_eq!(of("queue_depth", &["P", "later"]), Some(0.0));
        assert!(of("queue_oldest_age_seconds", &["P"]).is_some());
        assert_eq!((of("pipeline_paused", &["P"]), of("pipeline_paused", &["Q"])), (None, Some(1.0)));
        assert_eq!(of("runs", &["P", "in_progress"]), Some(3.0));
        assert_eq!(of("processes", &["worker", "up"]), Some(1.0));
        assert_eq!(of("processes", &["advancer", "up"]), Some(0.0));
        assert!(of("heartbeat_age_seconds", &["worker", "here"]).is_some_and(|age| age < 30.0));
        assert!(readings.iter().all(|it| METRICS.contains(&it.metric)));
    }
}
