//! Actions: each is recorded by the transaction that carries it out, and by no other.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ductwork::definition::{Definition, Pipeline};
use ductwork::model::*;
use ductwork::store::Conn;
use ductwork::store::action::{self, Action, Actor, Of};
use ductwork::store::cancel::{Cancel, Cancelling};
use ductwork::store::prune;
use ductwork::store::resume::{self, Answering, Resume};
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
    async fn many_questions_are_answered_in_batches_and_by_one_action(db: Db) {
        const MANY: usize = 1_100;
        let mut driver = Driver::new(&db).await;
        let flow = Pipeline::named("P").start("Many").expand("A").dampen("sure?");
        let flow = flow.collapse("C").build().unwrap();
        let run = trigger(&mut driver.conn, &flow, None).await;
        let elements: Vec<usize> = (0..MANY).collect();
        driver
            .work("P", |claimed| match claimed.node.as_str() {
                "Many" => Did::Returned(elements.clone().into()),
                _ => Did::Returned(1.into()),
            })
            .await;
        assert_eq!(driver.run(run).await.0, RunStatus::Dampened);

        let all = resume::find(&mut driver.conn, run, |_| true).await.unwrap();
        assert_eq!(all.len(), resume::LISTED);
        assert_eq!(resume::waiting(&mut driver.conn, run).await.unwrap().len(), resume::LISTED);
        let asked = Mutex::new(Vec::new());
        let none = resume::find(&mut driver.conn, run, |step| {
            asked.lock().unwrap().push(step.step_id);
            false
        });
        assert_eq!(none.await.unwrap(), []);
        let asked = asked.into_inner().unwrap();
        assert_eq!(BTreeSet::from_iter(&asked).len(), MANY);
        let last = asked[MANY - 1];
        let found = resume::find(&mut driver.conn, run, |step| step.step_id == last).await.unwrap();
        assert_eq!(found.len(), 1);

        let by = ana();
        let all = Answering { run, step: None, value: None, by: Some(&by) };
        let one = Answering { step: Some(last), value: Some("2"), ..all };
        let one = resume::resume_by(&mut driver.conn, one, 1, None, |_| {}).await.unwrap();
        assert_eq!(one, Resume::Done(1));
        let actions = async |conn: &mut Conn| {
            let actions = recorded(conn, Some(run)).await;
            actions.iter().filter(|it| it.verb == "resume").count()
        };
        assert_eq!(actions(&mut driver.conn).await, 1);
        let value = Answering { value: Some("2"), ..all };
        let several = resume::resume_by(&mut driver.conn, value, 1, None, |_| {}).await.unwrap();
        assert!(matches!(&several, Resume::Ambiguous(steps) if steps.len() == resume::LISTED), "{several:?}");

        let over = Some(Instant::now());
        let part = resume::resume_by(&mut driver.conn, all, 2, over, |_| {}).await.unwrap();
        assert_eq!(part, Resume::Part(2));
        driver.audit().await;
        assert_eq!(actions(&mut driver.conn).await, 1, "others have yet to be answered");
        let mut reports = Vec::new();
        let report = |resumed| reports.push(resumed);
        let done = resume::resume_by(&mut driver.conn, all, resume::BATCH, None, report).await.unwrap();
        assert_eq!(done, Resume::Done(MANY - 3));
        assert_eq!(reports, [resume::BATCH, 2 * resume::BATCH]);
        driver.audit().await;
        assert_eq!(actions(&mut driver.conn).await, 2);
        driver.work("P", |_| Did::Returned(1.into())).await;
        assert_eq!(driver.run(run).await.0, RunStatus::Completed);
    }

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
