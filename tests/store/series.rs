//! Counts over time: the processes' counts are recorded once, however many consoles look and whichever are killed;
//! minutes and hours are kept for their time.

use std::time::Duration;

use ductwork::metrics::series::{
    ALL, Grain, HOUR, LAG, Look, Looked, MINUTE, Point, Sum, Sums, sums,
};
use ductwork::metrics::{Counts, RUN_DURATION, RUNS_ENDED, RUNS_STARTED};
use ductwork::store::series::{self, HOURS_FOR, MINUTES_FOR};
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, metrics, query};

use crate::dice::Dice;
use crate::driver::register;
use crate::on_every_database;
use crate::support::Db;

/// 2026-03-01 10:00:00.
const TEN: i64 = 1_772_359_200_000_000;

/// The time at which the minute before this one is recorded.
fn minute(n: i64) -> i64 {
    TEN + n * MINUTE + LAG
}

/// The sums of this many runs of a pipeline, one of which halted.
fn counted(started: u64) -> Sums {
    let mut counts = Counts::default();
    counts.add(&RUNS_STARTED, &["P"], started);
    counts.add(&RUNS_ENDED, &["P", "completed"], started.saturating_sub(1));
    counts.add(&RUNS_ENDED, &["P", "halted"], started.min(1));
    for _ in 0..started {
        counts.observe(&RUN_DURATION, &["P", "completed"], Duration::from_secs(1));
    }
    sums(&counts)
}

/// Begins at ten, with this many runs.
async fn begun(conn: &mut Conn, started: u64) {
    let first = Looked::begin(minute(0), counted(started));
    series::begin(conn, &first).await.unwrap();
}

/// Looks, with no knowledge but the stored state; returns the turn, the look and the points that it would write.
async fn look(conn: &mut Conn, now: i64, sums: Sums) -> Option<(i64, Looked, Vec<Point>)> {
    let stored = series::last(conn).await.unwrap().unwrap();
    match stored.looked.unwrap().look(now, sums) {
        Look::Points(looked, points) => Some((stored.turn, looked, points)),
        Look::Early | Look::Quiet(_) => None,
    }
}

async fn written(conn: &mut Conn, now: i64, sums: Sums) -> bool {
    match look(conn, now, sums).await {
        Some((turn, looked, points)) => series::follow(conn, turn, &looked, &points).await.unwrap(),
        None => false,
    }
}

async fn points(conn: &mut Conn, pipeline: &str, grain: Grain) -> Vec<Point> {
    let all = (i64::MIN, i64::MAX);
    series::of_pipeline(conn, pipeline, grain, all, 9_999)
        .await
        .unwrap()
}

/// Newest first: the minute since ten at which a point begins, the minute since which it counts,
/// and its runs.
async fn told(conn: &mut Conn, grain: Grain) -> Vec<(i64, i64, u64)> {
    let minutes = |at: i64| (at - TEN) / MINUTE;
    let points = points(conn, "P", grain).await;
    points
        .iter()
        .map(|it| (minutes(it.at), minutes(it.since), it.sum.started))
        .collect()
}

fn all(points: &[Point]) -> Sum {
    let mut sum = Sum::default();
    points.iter().for_each(|it| sum.merge(&it.sum));
    sum
}

on_every_database! {
    async fn each_minute_and_its_hour_are_told_from_what_processes_have_counted(db: Db) {
        let mut conn = db.conn().await;
        assert_eq!(series::last(&mut conn).await.unwrap(), None);
        begun(&mut conn, 40).await;
        // Beginning a second time has no effect.
        series::begin(&mut conn, &Looked::begin(minute(5), counted(99))).await.unwrap();
        for (at, started) in [(1, 42), (2, 42), (3, 45)] {
            let expected = started != 42 || at == 1;
            assert_eq!(written(&mut conn, minute(at), counted(started)).await, expected);
        }
        // The second minute was empty, so it has no point.
        assert_eq!(told(&mut conn, Grain::Minute).await, [(2, 1, 3), (0, 0, 2)]);
        assert_eq!(told(&mut conn, Grain::Hour).await, [(0, 0, 5)]);
        let hour = &points(&mut conn, "P", Grain::Hour).await[0];
        assert_eq!((hour.sum.completed, hour.sum.halted, hour.sum.lasted.count()), (5, 0, 5));
        let sum = &points(&mut conn, ALL, Grain::Hour).await[0].sum;
        assert_eq!(sum, &hour.sum);
    }

    async fn the_sums_of_all_processes_are_read_with_the_time(db: Db) {
        let mut conn = db.conn().await;
        assert_eq!(metrics::at_a_time(&mut conn).await.unwrap(), None);
        let mut counts = Counts::default();
        counts.add(&RUNS_STARTED, &["P"], 7);
        for _ in 0..2 {
            let process = register(&mut conn).await;
            metrics::write(&mut conn, process, &counts.to_body()).await.unwrap();
        }
        let before = query::now(&mut conn).await.unwrap();
        let (now, counts) = metrics::at_a_time(&mut conn).await.unwrap().unwrap();
        assert!(now >= before, "{now} is before {before}");
        let sums = sums(&counts);
        assert_eq!((sums["P"].started, sums[ALL].started), (14, 14));
    }

    async fn of_two_who_tell_the_same_minute_one_does_and_nothing_is_counted_twice(db: Db) {
        let (mut one, mut two) = (db.conn().await, db.conn().await);
        begun(&mut one, 0).await;
        let mut counts = 0;
        for n in 1..=20 {
            counts += 3;
            let (turn, looked, points) = look(&mut one, minute(n), counted(counts)).await.unwrap();
            // The other process has seen one run more.
            let (_, later, more) = look(&mut two, minute(n), counted(counts + 1)).await.unwrap();
            let (first, second) = tokio::join!(
                series::follow(&mut one, turn, &looked, &points),
                series::follow(&mut two, turn, &later, &more)
            );
            assert_ne!(first.unwrap(), second.unwrap());
        }
        written(&mut one, minute(21), counted(counts + 5)).await;
        for grain in [Grain::Minute, Grain::Hour] {
            let sum = all(&points(&mut one, "P", grain).await);
            assert_eq!((sum.started, sum.completed + sum.halted), (counts + 5, counts + 5));
        }
        let times: u64 = points(&mut one, "P", Grain::Minute).await.iter().map(|it| it.sum.lasted.count()).sum();
        assert_eq!(times, counts + 5);
    }

    async fn a_minute_in_which_nobody_looked_is_told_with_a_later_one_that_says_so(db: Db) {
        let mut conn = db.conn().await;
        begun(&mut conn, 0).await;
        assert!(written(&mut conn, minute(58), counted(4)).await);
        assert!(written(&mut conn, minute(63), counted(9)).await);
        assert!(written(&mut conn, minute(64), counted(10)).await);
        assert_eq!(told(&mut conn, Grain::Minute).await, [(63, 63, 1), (62, 58, 5), (57, 0, 4)]);
        // The hour of the runs in between is unknown.
        assert_eq!(told(&mut conn, Grain::Hour).await, [(60, 58, 6), (0, 0, 4)]);
    }

    async fn whoever_is_killed_at_whichever_instant_nothing_is_told_twice_and_nothing_is_lost(db: Db) {
        let mut conn = db.conn().await;
        let mut dice = Dice::new("DUCTWORK_SERIES_SEED");
        begun(&mut conn, 1_000).await;
        let (mut counts, mut stale) = (1_000, None);
        for n in 1..=150 {
            counts += 1 + dice.below(4);
            match dice.below(4) {
                // A process looks and is killed before it writes, or is delayed.
                0 => stale = look(&mut conn, minute(n), counted(counts)).await,
                // A delayed process writes at last.
                1 => if let Some((turn, looked, points)) = stale.take() {
                    let is_last = series::last(&mut conn).await.unwrap().unwrap().turn == turn;
                    assert_eq!(series::follow(&mut conn, turn, &looked, &points).await.unwrap(), is_last);
                },
                // A process writes, and is killed before it knows: the next one continues from the stored state.
                _ => {
                    written(&mut conn, minute(n), counted(counts)).await;
                    assert!(!written(&mut conn, minute(n), counted(counts + 1)).await, "the minute is told");
                }
            }
            let minutes = all(&points(&mut conn, "P", Grain::Minute).await);
            let hours = all(&points(&mut conn, "P", Grain::Hour).await);
            assert_eq!((minutes.started, minutes.completed), (hours.started, hours.completed));
            assert_eq!(minutes.lasted, hours.lasted);
            assert!(minutes.started <= counts - 1_000);
        }
        written(&mut conn, minute(151), counted(counts + 1)).await;
        let minutes = points(&mut conn, "P", Grain::Minute).await;
        assert_eq!(all(&minutes).started, counts + 1 - 1_000);
        // No time is covered by two points.
        for two in minutes.windows(2) {
            assert!(two[0].since >= two[1].at + MINUTE, "{two:?}");
        }
    }

    async fn a_minute_that_is_told_again_after_a_clock_was_set_back_is_added_to(db: Db) {
        let mut conn = db.conn().await;
        begun(&mut conn, 0).await;
        assert!(written(&mut conn, minute(1), counted(5)).await);
        assert!(written(&mut conn, minute(90), counted(6)).await);
        assert!(written(&mut conn, minute(1), counted(8)).await);
        assert_eq!(told(&mut conn, Grain::Minute).await, [(89, 1, 1), (0, 0, 7)]);
        assert_eq!(told(&mut conn, Grain::Hour).await, [(60, 1, 1), (0, 0, 7)]);
    }

    async fn minutes_are_kept_for_a_week_and_hours_for_400_days(db: Db) {
        let mut conn = db.conn().await;
        let now = query::now(&mut conn).await.unwrap();
        let age = |it: Duration| i64::try_from(it.as_micros()).unwrap();
        let ages = [0, age(MINUTES_FOR) - HOUR, age(MINUTES_FOR) + HOUR, age(HOURS_FOR) - 2 * HOUR, age(HOURS_FOR) + 2 * HOUR];
        let point = |grain: Grain, ago: i64, pipeline: &str| Point {
            pipeline: pipeline.to_owned(),
            grain,
            at: grain.of(now - ago),
            since: grain.of(now - ago),
            sum: Sum { started: 1, ..Sum::default() },
        };
        let mut rows: Vec<Point> = Vec::new();
        for grain in [Grain::Minute, Grain::Hour] {
            rows.extend(ages.map(|ago| point(grain, ago, "P")));
        }
        // More than one statement deletes.
        let many = age(MINUTES_FOR) + HOUR;
        rows.extend((0..1_500).map(|n| point(Grain::Minute, many + n * MINUTE, "Q")));
        series::begin(&mut conn, &Looked::default()).await.unwrap();
        assert!(series::follow(&mut conn, 0, &Looked::default(), &rows).await.unwrap());
        series::forget(&mut conn).await.unwrap();
        let kept = |points: Vec<Point>| points.iter().map(|it| (now - it.at) / (24 * HOUR)).collect::<Vec<_>>();
        assert_eq!(kept(points(&mut conn, "P", Grain::Minute).await), [0, 6]);
        assert_eq!(kept(points(&mut conn, "P", Grain::Hour).await), [0, 6, 7, 399]);
        assert_eq!(points(&mut conn, "Q", Grain::Minute).await, []);
    }

    async fn points_are_read_page_by_page_and_times_of_all_pipelines_lately_alone(db: Db) {
        let mut conn = db.conn().await;
        begun(&mut conn, 0).await;
        for n in 1..=9 {
            assert!(written(&mut conn, minute(n * 30), counted(n as u64)).await);
        }
        let page = |range| (Grain::Minute, range);
        let mut conn2 = db.conn().await;
        let mut read = async |(grain, range): (Grain, (i64, i64)), n| {
            let points = series::of_pipeline(&mut conn2, "P", grain, range, n).await.unwrap();
            points.iter().map(|it| (it.at - TEN) / MINUTE).collect::<Vec<_>>()
        };
        assert_eq!(read(page((i64::MIN, i64::MAX)), 2).await, [269, 239]);
        assert_eq!(read(page((i64::MIN, TEN + 239 * MINUTE)), 2).await, [209, 179]);
        assert_eq!(read(page((TEN + 209 * MINUTE, i64::MAX)), 9).await, [269, 239, 209]);
        let lately = TEN + 3 * HOUR;
        let hours = series::of_all(&mut conn, Grain::Hour, (TEN, i64::MAX), lately).await.unwrap();
        let own = hours.iter().filter(|it| it.pipeline == "P");
        let own: Vec<(i64, u64, u64)> = own.map(|it| ((it.at - TEN) / HOUR, it.sum.started, it.sum.lasted.count())).collect();
        assert_eq!(own, [(0, 2, 0), (1, 2, 0), (2, 2, 0), (3, 2, 2), (4, 1, 1)]);
    }

    async fn rows_that_nobody_can_read_hide_no_point(db: Db) {
        static DAMAGE: Statement = Statement::new(
            "TEST_DAMAGE", "UPDATE ductwork_series SET started = -5, waited = :text, lasted = '[1]'");
        static STRANGE: Statement = Statement::new("TEST_STRANGE", "UPDATE ductwork_series_looks SET body = :text");
        let mut conn = db.conn().await;
        begun(&mut conn, 0).await;
        assert!(written(&mut conn, minute(1), counted(5)).await);
        let text = [("text", "{".into())];
        conn.execute(&DAMAGE, &text).await.unwrap();
        conn.execute(&STRANGE, &text).await.unwrap();
        let points = points(&mut conn, "P", Grain::Minute).await;
        assert_eq!((points[0].sum.started, points[0].sum.completed, points[0].sum.lasted.count()), (0, 4, 0));
        let stored = series::last(&mut conn).await.unwrap().unwrap();
        assert_eq!((stored.turn, stored.looked), (1, None));
        let anew = Looked::begin(minute(9), counted(9));
        assert!(series::follow(&mut conn, 1, &anew, &[]).await.unwrap());
        assert!(written(&mut conn, minute(10), counted(11)).await);
        assert_eq!(told(&mut conn, Grain::Minute).await, [(9, 9, 2), (0, 0, 0)]);
    }
}
