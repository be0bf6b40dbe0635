//! Actions: each is recorded by the transaction that carries it out, and by no other.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use ductwork::definition::{Definition, Pipeline};
use ductwork::model::*;
use ductwork::store::action::{self, Action, Actor, Of};
use ductwork::store::cancel::{Cancel, Cancelling};
use ductwork::store::definition::Definitions;
use ductwork::store::prune;
use ductwork::store::resume::{self, Asked, Resume};
use ductwork::store::revive::{Revive, Wanted, revive_as};
use ductwork::store::trigger::{NewRun, trigger_by};
use ductwork::store::{Conn, Location, Purpose, why};

use crate::driver::{Did, Driver, LEASE};
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

        let conn = &mut driver.conn;
        let all = resume::find(conn, run, |_| true).await.unwrap();
        assert_eq!(all, resume::asked(conn, run).await.unwrap());
        let some = resume::waiting(conn, run).await.unwrap();
        assert_eq!((some.len(), all.len()), (resume::LISTED, resume::LISTED));
        assert!(some.iter().all(|step| step.input.as_deref() == Some("1")));
        let seen = Mutex::new(Vec::new());
        let none = resume::find(conn, run, |step| {
            seen.lock().unwrap().push(step.step_id);
            false
        });
        assert_eq!(none.await.unwrap(), []);
        let seen = seen.into_inner().unwrap();
        assert_eq!(BTreeSet::from_iter(&seen).len(), MANY);
        let last = seen[MANY - 1];
        let found = resume::find(conn, run, |step| step.step_id == last).await.unwrap();
        assert_eq!(found.len(), 1);

        let by = Some(&ana());
        let one = resume::resume(conn, run, Some(last), Some("2"), by).await.unwrap();
        assert_eq!(one, Resume::Done(1));
        let several = resume::resume(conn, run, None, Some("2"), by).await.unwrap();
        assert_eq!(several, Resume::Ambiguous(all));
        let asked = Asked { most: MANY - 2, until: i64::MAX };
        let many = resume::resume_asked(conn, run, None, None, by, asked).await.unwrap();
        assert_eq!(many, Resume::TooMany);
        let actions = async |conn: &mut Conn| {
            let actions = recorded(conn, Some(run)).await;
            actions.iter().filter(|it| it.verb == "resume").count()
        };
        assert_eq!(actions(conn).await, 1);
        let mut reports = Vec::new();
        let done = resume::resume_all(conn, run, by, resume::BATCH, |resumed| reports.push(resumed)).await;
        assert_eq!(done.unwrap(), Resume::Done(MANY - 1));
        assert_eq!(reports, [resume::BATCH, 2 * resume::BATCH, MANY - 1]);
        assert_eq!(actions(conn).await, 2);
        let again = resume::resume_all(conn, run, by, resume::BATCH, |_| {}).await.unwrap();
        assert_eq!(again, Resume::NotDampened(RunStatus::InProgress));
        driver.audit().await;
        driver.work("P", |_| Did::Returned(1.into())).await;
        assert_eq!(driver.run(run).await.0, RunStatus::Completed);
    }

    async fn an_answer_to_all_questions_reaches_none_that_is_asked_later(db: Db) {
        let mut driver = Driver::new(&db).await;
        let flow = Pipeline::named("P").start("Many").expand("A").dampen("one?").dampen("two?");
        let flow = flow.collapse("C").build().unwrap();
        let run = trigger(&mut driver.conn, &flow, None).await;
        driver
            .work("P", |claimed| match claimed.node.as_str() {
                "Many" => Did::Returned(vec![1, 2, 3].into()),
                _ => Did::Returned(1.into()),
            })
            .await;
        let url = db.url.clone();
        let mut batches = 0;
        // An advancer leads the first branch to its next question before the second one is answered.
        let advance = |_| {
            batches += 1;
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                    runtime.unwrap().block_on(async {
                        let location = Location::parse(&url).unwrap();
                        let conn = location.connect(Purpose::Engine).await.unwrap();
                        let mut other = Driver::over(conn).await;
                        other.audited = false;
                        other.work("P", |_| Did::Returned(1.into())).await;
                    });
                });
                other.join().unwrap();
            });
        };
        let by = ana();
        let done = resume::resume_all(&mut driver.conn, run, Some(&by), 1, advance).await.unwrap();
        assert_eq!((done, batches), (Resume::Done(3), 3));
        let asked = resume::asked(&mut driver.conn, run).await.unwrap();
        assert_eq!(asked.iter().map(|step| step.node.as_str()).collect::<Vec<_>>(), ["dampen.2"; 3]);
        driver.audit().await;
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
        for by in [ana(), Actor::new("ben", Channel::Cli)] {
            let mut cancelling = Cancelling::of(next, 9).by(Some(by));
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
        let facts = why::facts(&mut driver.conn, next, LEASE, &Definitions::default()).await;
        assert_eq!(facts.unwrap().unwrap().cancelled_by.as_deref(), Some("ana"));
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
