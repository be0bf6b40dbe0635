//! Actions: each is recorded by the transaction that carries it out, and by no other.

use std::time::Duration;

use ductwork::definition::{Definition, Pipeline};
use ductwork::model::*;
use ductwork::store::Conn;
use ductwork::store::action::{self, Action, Actor, Of};
use ductwork::store::cancel::{Cancel, Cancelling};
use ductwork::store::prune;
use ductwork::store::resume::{self, Resume};
use ductwork::store::revive::{Revive, Wanted, revive_as};
use ductwork::store::trigger::{NewRun, trigger_by};

use crate::driver::{Did, Driver};
use crate::on_every_database;
use crate::support::Db;

pub fn ana() -> Actor {
    Actor::new("ana", Channel::Api)
}

fn asking() -> Definition {
    let flow = Pipeline::named("P").start("A").dampen("sure?");
    flow.chain("B").build().unwrap()
}

async fn trigger(conn: &mut Conn, definition: &Definition, key: Option<&str>) -> RunId {
    let runs = [NewRun { key, input: "1" }];
    let made = trigger_by(conn, definition, &runs, Duration::ZERO, Some(&ana()), None).await;
    made.unwrap()[0].run_id
}

async fn recorded(conn: &mut Conn, run: Option<RunId>) -> Vec<Action> {
    action::latest(conn, run.map_or(Of::All, Of::Run), None, 99)
        .await
        .unwrap()
}

fn told(actions: &[Action]) -> Vec<(&str, Option<RunId>, Option<RunId>)> {
    let told = |it: &'_ Action| (it.run, it.made);
    let of = actions.iter().map(|it| (it.verb.as_str(), told(it)));
    of.map(|(verb, (run, made))| (verb, run, made)).collect()
}

on_every_database! {
    async fn each_action_is_recorded_once_with_who_did_it_and_how(db: Db) {
        let mut driver = Driver::new(&db).await;
        let definition = asking();
        let run = trigger(&mut driver.conn, &definition, None).await;
        driver.work("P", |_| Did::Returned(1.into())).await;
        for expected in [Resume::Done(1), Resume::NotDampened(RunStatus::InProgress)] {
            let by = ana();
            let resumed = resume::resume(&mut driver.conn, run, None, None, Some(&by));
            assert_eq!(resumed.await.unwrap(), expected);
        }
        driver.work("P", |_| Did::Refused).await;
        let by = ana();
        let wanted = Wanted { by: Some(&by), ..Wanted::SAME };
        let Revive::Done(next) = revive_as(&mut driver.conn, run, wanted).await.unwrap() else {
            panic!("it has halted");
        };
        let again = revive_as(&mut driver.conn, run, wanted).await.unwrap();
        assert_eq!(again, Revive::AlreadyRevived(next));
        for _ in 0..2 {
            let mut cancelling = Cancelling::of(next, 9).by(Some(ana()));
            let cancelled = cancelling.step(&mut driver.conn).await.unwrap();
            assert!(matches!(cancelled, Some(Cancel::Done { .. } | Cancel::NotActive(_))));
        }
        let all = recorded(&mut driver.conn, None).await;
        assert_eq!(told(&all), [
            ("cancel", Some(next), None),
            ("revive", Some(run), Some(next)),
            ("resume", Some(run), None),
            ("trigger", Some(run), None),
        ]);
        for action in &all {
            let of = (action.by.as_str(), action.channel.as_str(), action.pipeline.as_str());
            assert_eq!(of, ("ana", "api", "P"));
        }
        assert_eq!(told(&recorded(&mut driver.conn, Some(next)).await), [("cancel", Some(next), None)]);
        let older = action::latest(&mut driver.conn, Of::All, Some(all[1].id), 1).await.unwrap();
        assert_eq!(older, all[2..3]);
    }

    async fn a_key_that_has_its_run_already_is_no_action(db: Db) {
        let mut driver = Driver::new(&db).await;
        let definition = asking();
        let run = trigger(&mut driver.conn, &definition, Some("k")).await;
        assert_eq!(trigger(&mut driver.conn, &definition, Some("k")).await, run);
        let all = recorded(&mut driver.conn, None).await;
        assert_eq!(told(&all), [("trigger", Some(run), None)]);
    }

    async fn a_wide_run_that_is_cancelled_part_by_part_is_one_action(db: Db) {
        let mut driver = Driver::new(&db).await;
        let flow = Pipeline::named("P").start("A").expand("B").collapse("C");
        let definition = flow.build().unwrap();
        let run = trigger(&mut driver.conn, &definition, None).await;
        let claimed = driver.claim("P", 1).await;
        let done = driver.finished(claimed[0].clone(), Did::Returned(serde_json::json!([1, 2, 3, 4]))).await;
        driver.commit(&[done]).await;
        let branches = driver.claim_branches(9).await;
        driver.advance(&branches).await;
        let mut cancelling = Cancelling::of(run, 1).by(Some(ana()));
        let mut parts = 0;
        while cancelling.step(&mut driver.conn).await.unwrap().is_none() {
            parts += 1;
        }
        assert!(parts > 1, "{parts}");
        let all = recorded(&mut driver.conn, Some(run)).await;
        assert_eq!(told(&all), [("cancel", Some(run), None), ("trigger", Some(run), None)]);
    }

    async fn actions_are_forgotten_with_the_history(db: Db) {
        let mut driver = Driver::new(&db).await;
        trigger(&mut driver.conn, &asking(), None).await;
        prune::prune(&mut driver.conn, Duration::from_secs(3_600), 9).await.unwrap();
        assert_eq!(recorded(&mut driver.conn, None).await.len(), 1);
        prune::prune(&mut driver.conn, Duration::ZERO, 9).await.unwrap();
        assert_eq!(recorded(&mut driver.conn, None).await, []);
    }
}
