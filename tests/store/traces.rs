//! Traces: the caller's span stays with its run, and each ended run is found until its trace was sent.

use std::time::Duration;

use ductwork::definition::{Definition, Pipeline};
use ductwork::model::*;
use ductwork::store::Conn;
use ductwork::store::claim::Claimed;
use ductwork::store::definition::Definitions;
use ductwork::store::page;
use ductwork::store::revive::{Revive, revive};
use ductwork::store::statement::Statement;
use ductwork::store::tracer::{Look, Tracer};
use ductwork::store::trigger::{NewRun, trigger_by};
use serde_json::json;

use crate::driver::{Did, Driver};
use crate::on_every_database;
use crate::support::Db;

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

const ODD: &str =
    "UPDATE ductwork_runs SET trace_parent = 'odd', trace_state = 'a=1', baggage = 'b'";

fn chain() -> Definition {
    Pipeline::named("P").start("A").chain("B").build().unwrap()
}

fn wide() -> Definition {
    let flow = Pipeline::named("P").start("A").expand("B").collapse("C");
    flow.build().unwrap()
}

async fn triggered(conn: &mut Conn, runs: &[NewRun<'_>], within: Option<&Caller>) -> Vec<RunId> {
    let made = trigger_by(conn, &chain(), runs, Duration::ZERO, None, within)
        .await
        .unwrap();
    made.into_iter().map(|it| it.run_id).collect()
}

fn caller() -> Caller {
    Caller::read(Some(CALLER), Some("rojo=1,congo=2"), Some("user=ada"))
}

/// A run's caller, without its baggage.
async fn within(conn: &mut Conn, run: RunId) -> Caller {
    page::run(conn, run).await.unwrap().unwrap().caller
}

/// The same caller, complete, as a worker gets it.
fn told(claimed: &Claimed) -> Caller {
    claimed.caller.as_deref().cloned().unwrap_or_default()
}

/// The runs that one look finds, with the number of their attempts; none of them is sent.
async fn found(conn: &mut Conn, tracer: &mut Tracer) -> Vec<(RunId, usize)> {
    loop {
        match tracer.look(conn, &Definitions::default()).await.unwrap() {
            Look::Runs(runs) => return runs.iter().map(|it| (it.run, it.attempts.len())).collect(),
            Look::More => {}
            Look::Nothing => return Vec::new(),
        }
    }
}

on_every_database! {
    async fn a_callers_span_is_on_each_run_of_a_trigger_and_comes_with_its_claims(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.room = 9;
        let whole = caller();
        assert!(whole.span.is_some() && whole.state.is_some() && whole.baggage.is_some());
        let caller = Caller { baggage: None, ..whole.clone() };
        let run = |key| NewRun { key, input: "1" };
        let conn = &mut driver.conn;
        let mut runs = triggered(conn, &[run(None), run(None)], Some(&whole)).await;
        runs.extend(triggered(conn, &[run(Some("a")), run(Some("b"))], Some(&whole)).await);
        for run in &runs {
            assert_eq!(within(conn, *run).await, caller);
        }
        // A run keeps the caller that made it.
        assert_eq!(triggered(conn, &[run(Some("a"))], None).await, [runs[2]]);
        assert_eq!(within(conn, runs[2]).await, caller);
        let other = triggered(conn, &[run(None), run(Some("c"))], None).await;
        for run in &other {
            assert_eq!(within(conn, *run).await, Caller::default());
        }
        let expected = |claimed: &Claimed| match runs.contains(&claimed.run_id) {
            true => whole.clone(),
            false => Caller::default(),
        };
        let claimed = driver.claim("P", 9).await;
        assert_eq!(claimed.len(), 6);
        let mut finished = Vec::new();
        for claimed in claimed {
            assert_eq!(told(&claimed), expected(&claimed));
            finished.push(driver.finished(claimed, Did::Returned(json!(1))).await);
        }
        // So does the step that is leased with the result of the previous one.
        let next = driver.commit(&finished).await.leased_next;
        assert_eq!(next.len(), 6);
        for claimed in next {
            assert_eq!(told(&claimed), expected(&claimed));
        }
    }

    async fn a_revived_run_has_the_span_of_the_first_ones_caller(db: Db) {
        let mut driver = Driver::new(&db).await;
        let caller = caller();
        let run = triggered(&mut driver.conn, &[NewRun { key: None, input: "1" }], Some(&caller)).await[0];
        driver.work("P", |_| Did::Refused).await;
        assert_eq!(driver.run(run).await.0, RunStatus::Halted);
        let Revive::Done(next) = revive(&mut driver.conn, run).await.unwrap() else {
            panic!("it is halted");
        };
        assert_eq!(within(&mut driver.conn, next).await.span, caller.span);
        assert_eq!(told(&driver.claim("P", 1).await[0]), caller);
    }

    async fn what_another_version_writes_of_a_caller_stops_nothing(db: Db) {
        let mut driver = Driver::new(&db).await;
        let run = triggered(&mut driver.conn, &[NewRun { key: None, input: "1" }], None).await[0];
        driver.conn.script("odd", ODD).await.unwrap();
        assert_eq!(within(&mut driver.conn, run).await, Caller::default());
        assert_eq!(told(&driver.claim("P", 1).await[0]), Caller::default());
    }

    async fn a_run_that_has_ended_is_found_until_it_was_sent_and_by_who_begins_anew(db: Db) {
        let mut driver = Driver::new(&db).await;
        let before = driver.trigger(&chain(), "1").await;
        driver.work("P", |_| Did::Returned(json!(1))).await;
        let mut tracer = Tracer::begin(&mut driver.conn).await.unwrap();
        assert_eq!(found(&mut driver.conn, &mut tracer).await, [], "{before} ended before");
        let completed = driver.trigger(&chain(), "1").await;
        driver.work("P", |_| Did::Returned(json!(1))).await;
        let halted = driver.trigger(&chain(), "1").await;
        driver.work("P", |_| Did::Refused).await;
        let open = driver.trigger(&chain(), "1").await;
        let conn = &mut driver.conn;
        let expected = [(completed, 2), (halted, 1)];
        for _ in 0..2 {
            assert_eq!(found(conn, &mut tracer).await, expected, "{open} goes on");
        }
        tracer.sent(1);
        assert_eq!(found(conn, &mut tracer).await, expected[1..]);
        tracer.sent(1);
        assert_eq!(found(conn, &mut tracer).await, []);
        // The previous console was killed, and nothing says how much it has sent.
        let mut tracer = Tracer::begin(conn).await.unwrap();
        assert_eq!(found(conn, &mut tracer).await, expected);
    }

    async fn runs_are_traced_after_the_clock_was_set_back(db: Db) {
        static AHEAD: Statement = Statement::new(
            "TEST_AHEAD", "UPDATE ductwork_webhooks SET since = since + 3600000000, seen = seen + 3600000000");
        let mut driver = Driver::new(&db).await;
        Tracer::begin(&mut driver.conn).await.unwrap();
        driver.conn.execute(&AHEAD, &[]).await.unwrap();
        let mut tracer = Tracer::begin(&mut driver.conn).await.unwrap();
        let run = driver.trigger(&chain(), "1").await;
        driver.work("P", |_| Did::Returned(json!(1))).await;
        assert_eq!(found(&mut driver.conn, &mut tracer).await, [(run, 2)]);
    }

    async fn runs_are_read_together_and_a_wide_one_alone(db: Db) {
        let mut driver = Driver::new(&db).await;
        let mut tracer = Tracer::begin(&mut driver.conn).await.unwrap();
        let elements = |n: usize| json!(vec![1; n]);
        let mut runs = Vec::new();
        for width in [1, 2, 1_200, 3] {
            runs.push((driver.trigger(&wide(), "1").await, width));
            driver.audited = width < 100;
            driver
                .work("P", |claimed| match claimed.node.as_str() {
                    "A" => Did::Returned(elements(width)),
                    _ => Did::Returned(json!(1)),
                })
                .await;
        }
        let mut all = Vec::new();
        let mut looks = 0;
        loop {
            let some = found(&mut driver.conn, &mut tracer).await;
            if some.is_empty() {
                break;
            }
            tracer.sent(some.len());
            all.extend(some);
            looks += 1;
        }
        // At most as many steps as a trace has spans.
        let told = runs.iter().map(|(run, width)| (*run, (width + 2).min(1_000)));
        assert_eq!(all, told.collect::<Vec<_>>());
        assert!((2..=3).contains(&looks), "{looks}");
    }
}
