//! The read models of pages: counts, queues, halted runs by kind, the elements of a fan-out, and the times of
//! steps.

use std::collections::BTreeSet;
use std::time::Duration;

use ductwork::definition::{Definition, Pipeline};
use ductwork::engine::actor::limits;
use ductwork::machine::timeline::place;
use ductwork::model::{ExecutionResult, RunId, RunStatus, StepId, StepStatus};
use ductwork::store::cursor::Cursor;
use ductwork::store::definition::Definitions;
use ductwork::store::event::{self, Behind, Since};
use ductwork::store::overview::Count;
use ductwork::store::revive::{Revive, revive};
use ductwork::store::statement::{Rows, Statement};
use ductwork::store::steps::{self, Place};
use ductwork::store::trigger::{self, NewRun};
use ductwork::store::{
    cancel, definition, fan_out, halted, overview, page, query, timeline, trace,
};
use serde_json::json;
use uuid::Uuid;

use crate::driver::{Did, Driver};
use crate::on_every_database;
use crate::support::Db;

on_every_database! {
    async fn runs_are_counted_by_pipeline_and_state_up_to_a_bound_and_queues_tell_their_age(db: Db) {
        let mut driver = Driver::new(&db).await;
        let [one, two] = ["One", "Two"].map(|name| Pipeline::named(name).start("A").build().unwrap());
        for _ in 0..5 {
            driver.trigger(&one, "1").await;
        }
        driver.work("One", |_| Did::Returned(1.into())).await;
        let mut waiting = Vec::new();
        for _ in 0..3 {
            waiting.push(driver.trigger(&two, "1").await);
        }
        let cancelled = cancel::cancel(&mut driver.conn, waiting[0]).await.unwrap();
        assert!(matches!(cancelled, cancel::Cancel::Done { .. }));
        let count = |pipeline: &str, status, runs| Count {
            pipeline: pipeline.to_owned(),
            status,
            runs,
            is_more: runs == 4,
        };
        let hour = std::time::Duration::from_secs(3_600);
        for since in [None, Some(hour)] {
            assert_eq!(
                overview::counts(&mut driver.conn, since, 4).await.unwrap(),
                [
                    count("Two", RunStatus::InProgress, 2),
                    count("One", RunStatus::Completed, 4),
                    count("Two", RunStatus::Cancelled, 1),
                ]
            );
        }
        let queues = overview::queues(&mut driver.conn, 10).await.unwrap();
        let [queue] = &queues[..] else { panic!("{queues:?}") };
        assert_eq!((queue.pipeline.as_str(), queue.due, queue.later), ("Two", 2, 0));
        assert!(queue.oldest.is_some());
        let queues = overview::queues(&mut driver.conn, 1).await.unwrap();
        assert_eq!(queues[0].due, 1);
        // One execution has failed and waits for its next attempt.
        driver.limits = limits(3, 3);
        (driver.limits.backoff.initial, driver.limits.backoff.max) = (hour, hour);
        let mut claimed = driver.claim("Two", 9).await;
        let finished = driver.finished(claimed.pop().unwrap(), Did::Erred).await;
        driver.commit(&[finished]).await;
        let queues = overview::queues(&mut driver.conn, 10).await.unwrap();
        let [queue] = &queues[..] else { panic!("{queues:?}") };
        assert_eq!((queue.due, queue.later, queue.oldest), (0, 1, None));
    }
}

on_every_database! {
    async fn halted_runs_are_told_by_kind_and_those_that_were_revived_are_left_out(db: Db) {
        let mut driver = Driver::new(&db).await;
        let flow = Pipeline::named("P").start("A").chain("B").build().unwrap();
        let mut runs = Vec::new();
        for _ in 0..5 {
            runs.push(driver.trigger(&flow, "1").await);
        }
        let mut n = 0;
        driver.work("P", |claimed| match claimed.node.as_str() {
            "A" => {
                n += 1;
                if n > 3 { Did::Refused } else { Did::Returned(1.into()) }
            }
            _ => Did::Refused,
        }).await;
        let found = halted::by_kind(&mut driver.conn, None).await.unwrap();
        assert!(!found.is_partial);
        let told: Vec<_> = found
            .kinds
            .iter()
            .map(|kind| (kind.kind.node.as_deref(), kind.kind.reason.as_deref(), kind.runs, kind.ids.len()))
            .collect();
        assert_eq!(
            told,
            [
                (Some("B"), Some("job_retries_exhausted"), 3, 3),
                (Some("A"), Some("job_retries_exhausted"), 2, 2),
            ]
        );
        assert!(found.kinds[0].first_at <= found.kinds[0].last_at);
        let run = found.kinds[1].ids[0];
        let revived = revive(&mut driver.conn, run).await.unwrap();
        assert!(matches!(revived, Revive::Done { .. }), "{revived:?}");
        let found = halted::by_kind(&mut driver.conn, Some("P")).await.unwrap();
        let told: Vec<_> = found.kinds.iter().map(|kind| kind.runs).collect();
        assert_eq!(told, [3, 1]);
        // The count of the state is the same, however many runs were revived.
        for (most, runs, is_more) in [(9, 4, false), (5, 4, true)] {
            let counts = overview::counts(&mut driver.conn, None, most).await.unwrap();
            let halted = counts.iter().find(|it| it.status == RunStatus::Halted).unwrap();
            assert_eq!((halted.runs, halted.is_more), (runs, is_more), "{most}");
        }
        let none = halted::by_kind(&mut driver.conn, Some("None such")).await.unwrap();
        assert_eq!(none, halted::Halted::default());
    }
}

on_every_database! {
    /// Of 100 pipelines with halted runs, the newest 20 of each are looked at.
    async fn older_halted_runs_are_told_of_although_newer_ones_were_revived(db: Db) {
        static HALT: Statement = Statement::new(
            "TEST_HALT",
            "UPDATE ductwork_runs SET status = 'halted', halted_at = 1, completed_at = NULL WHERE id <> :id",
        );
        static REVIVED: Statement = Statement::new(
            "TEST_REVIVED",
            "UPDATE ductwork_runs SET revived_from = :of WHERE id = :id",
        );
        let mut driver = Driver::new(&db).await;
        let flow = |name: String| Pipeline::named(&name).start("A").build().unwrap();
        for n in 0..99 {
            driver.trigger(&flow(format!("P{n}")), "1").await;
        }
        let long = flow("Long".to_owned());
        let mut runs = Vec::new();
        for _ in 0..23 {
            runs.push(driver.trigger(&long, "1").await);
        }
        let [.., newest, successor] = runs[..] else { panic!("{runs:?}") };
        driver.conn.execute(&HALT, &[("id", successor.0.into())]).await.unwrap();
        for (revived, looked) in [(false, 20), (true, 19)] {
            if revived {
                let args = [("of", newest.0.into()), ("id", successor.0.into())];
                driver.conn.execute(&REVIVED, &args).await.unwrap();
            }
            let found = halted::by_kind(&mut driver.conn, None).await.unwrap();
            let kind = found.kinds.iter().find(|it| it.pipeline == "Long").unwrap();
            assert_eq!((kind.runs, kind.is_partial), (looked, true));
            let others = found.kinds.iter().filter(|it| it.pipeline != "Long");
            assert!(others.clone().count() == 99 && others.clone().all(|it| !it.is_partial));
            assert_eq!((found.looked_at, found.is_partial), (99 + 20, true));
        }
    }
}

on_every_database! {
    async fn any_element_of_a_fan_out_is_read_by_its_place(db: Db) {
        let mut driver = Driver::new(&db).await;
        let flow = Pipeline::named("P").start("Many").expand("Each").expand("Inner");
        let flow = flow.collapse("Sum").collapse("End").build().unwrap();
        let run = driver.trigger(&flow, "1").await;
        driver.round("P", &mut |_| Did::Returned(json!([1, 2, 3, 4]))).await;
        let outer = fan_out::of_root(&mut driver.conn, run).await.unwrap();
        let [outer] = &outer[..] else { panic!("{outer:?}") };
        assert_eq!((outer.node.as_str(), outer.width, outer.made, outer.arrived), ("Many", 4, 4, 0));
        let found = fan_out::elements(&mut driver.conn, outer.id, 2, 9).await.unwrap();
        let places: Vec<_> = found.iter().map(|it| (it.ordinal, it.node.as_str())).collect();
        assert_eq!(places, [(2, "Each"), (3, "Each")]);
        assert_eq!(fan_out::elements(&mut driver.conn, outer.id, 1, 1).await.unwrap()[0].ordinal, 1);
        assert_eq!(fan_out::elements(&mut driver.conn, outer.id, u64::MAX, 9).await.unwrap(), []);
        driver.round("P", &mut |claimed| match claimed.node.as_str() {
            "Each" => Did::Returned(json!([1, 2])),
            _ => Did::Refused,
        }).await;
        let found = fan_out::elements(&mut driver.conn, outer.id, 0, 1).await.unwrap();
        let inner = fan_out::of_branch(&mut driver.conn, found[0].branch_id).await.unwrap();
        let [inner] = &inner[..] else { panic!("{inner:?}") };
        assert_eq!((inner.node.as_str(), inner.width), ("Each", 2));
        driver.work("P", |_| Did::Refused).await;
        let inner = fan_out::one(&mut driver.conn, run, inner.id).await.unwrap().unwrap();
        assert_eq!((inner.arrived, inner.halted), (2, 2));
        let element = &fan_out::elements(&mut driver.conn, inner.id, 1, 1).await.unwrap()[0];
        assert_eq!(element.halt_reason.as_deref(), Some("job_retries_exhausted"));
        assert_eq!((element.attempt, element.process_id), (Some(1), Some(driver.process)));
        let other = driver.trigger(&flow, "1").await;
        assert_eq!(fan_out::one(&mut driver.conn, other, inner.id).await.unwrap(), None);
    }
}

on_every_database! {
    async fn the_times_of_a_run_are_those_of_its_steps_and_attempts(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.limits = limits(1, 1);
        let flow = Pipeline::named("P").start("Many").expand("Each").collapse("Sum").build().unwrap();
        let run = driver.trigger(&flow, "1").await;
        let other = driver.trigger(&flow, "1").await;
        driver.round("P", &mut |_| Did::Returned(json!([1, 2, 3]))).await;
        let mut n = 0;
        driver.work("P", |claimed| match claimed.node.as_str() {
            "Each" => {
                n += 1;
                if n == 1 { Did::Erred } else { Did::Returned(1.into()) }
            }
            _ => Did::Returned(1.into()),
        }).await;
        let head = page::run(&mut driver.conn, run).await.unwrap().unwrap();
        let facts = timeline::facts(&mut driver.conn, &head).await.unwrap();
        let told: Vec<_> = facts.steps.iter().map(|it| (it.node.as_str(), it.element)).collect();
        assert_eq!(told, [("Many", None), ("Each", Some(0)), ("Each", Some(1)), ("Each", Some(2)), ("Sum", None)]);
        assert!(!facts.is_sample && facts.ended_at.is_some());
        let others = page::run(&mut driver.conn, other).await.unwrap().unwrap();
        let others = timeline::facts(&mut driver.conn, &others).await.unwrap();
        let all = facts.steps.iter().chain(&others.steps);
        let tried: Vec<_> = all.map(|it| it.attempts.iter().map(|it| it.number).collect::<Vec<_>>()).collect();
        assert_eq!(tried.iter().filter(|it| **it == [1, 2]).count(), 1, "{tried:?}");
        assert_eq!(tried.iter().filter(|it| **it == [1]).count(), 9, "{tried:?}");
        for step in &facts.steps {
            let (first, last) = (step.attempts.first().unwrap(), step.attempts.last().unwrap());
            assert!(head.triggered_at <= step.created_at && Some(step.created_at) <= first.claimed_at, "{step:?}");
            assert_eq!(step.started_at, first.claimed_at);
            assert!(first.claimed_at <= first.completed_at && last.completed_at.is_some(), "{step:?}");
        }
    }
}

on_every_database! {
    /// Such a run is narrow: its steps are read one by one, and not all of them.
    async fn the_failures_of_a_run_of_many_steps_are_in_its_timeline_and_its_trace(db: Db) {
        let (width, failures) = (1_300, 20);
        let mut driver = Driver::new(&db).await;
        // Its many transactions are alike.
        driver.audited = false;
        let flow = Pipeline::named("P").start("Many").expand("A").chain("B").chain("C").chain("D").collapse("E");
        let run = driver.trigger(&flow.build().unwrap(), "1").await;
        let mut left = width;
        driver.work("P", |claimed| match claimed.node.as_str() {
            "Many" => Did::Returned((0..width).collect()),
            "D" => {
                left -= 1;
                if left < failures { Did::Refused } else { Did::Returned(1.into()) }
            }
            _ => Did::Returned(1.into()),
        }).await;
        assert_eq!(left, 0);
        let conn = &mut driver.conn;
        let head = page::run(conn, run).await.unwrap().unwrap();
        let facts = timeline::facts(conn, &head).await.unwrap();
        let failed = facts.steps.iter().filter(|it| it.status == StepStatus::Failed).count();
        assert_eq!((failed, facts.is_sample), (failures, true));
        let rows = place(&facts).rows;
        let told = &rows.iter().find(|row| row.label.text == "D").unwrap().told;
        assert!(told.contains("a sample of") && told.ends_with("20 failed"), "{told}");
        let facts = trace::facts(conn, &head, &Definitions::default()).await.unwrap();
        let failed = facts.attempts.iter().filter(|it| it.result == Some(ExecutionResult::Error)).count();
        assert_eq!((failed, facts.is_sample), (failures, true));
    }
}

on_every_database! {
    async fn of_a_step_that_was_tried_often_the_last_attempts_are_read_and_all_are_counted(db: Db) {
        let mut driver = Driver::new(&db).await;
        // Its many transactions are alike.
        driver.audited = false;
        driver.limits = limits(200, 1);
        let flow = Pipeline::named("P").start("A").chain("B").build().unwrap();
        let run = driver.trigger(&flow, "1").await;
        let mut n = 0;
        driver.work("P", |_| {
            n += 1;
            if n <= 120 { Did::Erred } else { Did::Returned(1.into()) }
        }).await;
        let conn = &mut driver.conn;
        let whole = query::show(conn, run, usize::MAX, usize::MAX).await.unwrap().unwrap();
        let [often, once] = &whole.steps[..] else { panic!("{whole:?}") };
        assert_eq!((often.executions.len(), often.all_attempts()), (121, None));
        let listed = steps::after(conn, run, Place::FIRST, 9, query::WHOLE).await.unwrap();
        let alone = steps::one(conn, run, often.id).await.unwrap().unwrap();
        for (step, n) in [(&listed[0].step, 20), (&alone.step, 100)] {
            let read: Vec<u32> = step.executions.iter().map(|it| it.attempt).collect();
            assert_eq!(read, (122 - n..=121).collect::<Vec<_>>());
            assert_eq!((step.all_attempts(), step.started_at()), (Some(121), often.started_at()));
        }
        let other = &listed[1].step;
        assert_eq!((other.executions.len(), other.all_attempts()), (1, None));
        assert_eq!((other.id, other.started_at()), (once.id, once.started_at()));
    }
}

on_every_database! {
    async fn whoever_hears_of_changes_hears_of_more_than_a_thousand_runs_that_wait(db: Db) {
        static WAIT: Statement = Statement::new("TEST_WAIT", "UPDATE ductwork_runs SET status = 'dampened', dampened = 1");
        let conn = &mut db.conn().await;
        let flow = Pipeline::named("P").start("A").build().unwrap();
        let runs = vec![NewRun { key: None, input: "1" }; 1_100];
        trigger::trigger(conn, &flow, &runs, Duration::ZERO).await.unwrap();
        conn.execute(&WAIT, &[]).await.unwrap();
        let now = Behind { again: Cursor::at(i64::MAX), on: Cursor::at(i64::MAX) };
        let since = Since { started: now, ended: now, at_most: 0, anew: 0 };
        let changes = event::changes(conn, since).await.unwrap();
        assert_eq!(changes.waiting.len(), runs.len());
    }

    async fn more_changes_of_one_moment_than_one_look_reads_are_read_from_its_place_on(db: Db) {
        static END: Statement = Statement::new("TEST_END", "UPDATE ductwork_runs SET status = 'cancelled', cancelled_at = {now}");
        let conn = &mut db.conn().await;
        let flow = Pipeline::named("P").start("A").build().unwrap();
        let runs = vec![NewRun { key: None, input: "1" }; 1_000];
        let from = query::now(conn).await.unwrap() - 1_000_000;
        for _ in 0..11 {
            trigger::trigger(conn, &flow, &runs, Duration::ZERO).await.unwrap();
        }
        conn.execute(&END, &[]).await.unwrap();
        let begin = Behind { again: Cursor::at(from), on: Cursor::at(from) };
        let mut since = Since { started: begin, ended: begin, at_most: 600_000_000, anew: 0 };
        let (mut started, mut ended) = (BTreeSet::new(), BTreeSet::new());
        let mut readings = 0;
        loop {
            let changes = event::changes(conn, since).await.unwrap();
            readings += 1;
            assert!(readings < 10, "{} and {} of 11000", started.len(), ended.len());
            assert!(!changes.is_anew);
            for (found, all) in [(&changes.started, &mut started), (&changes.ended, &mut ended)] {
                all.extend(found.changes.iter().map(|(_, change)| change.run));
            }
            let (Some(started), Some(ended)) = (changes.started.on, changes.ended.on) else { break };
            assert!(started > since.started.on && ended > since.ended.on, "each reading progresses");
            // Every reading starts again from the beginning: that does not slow progress.
            since.started.on = started;
            since.ended.on = ended;
        }
        assert_eq!((started.len(), ended.len(), readings > 1), (11_000, 11_000, true));
        // The past is returned in full, or not at all.
        let now = query::now(conn).await.unwrap() + 1_000_000;
        assert!(event::past(conn, from, now).await.unwrap().is_none(), "more than ten thousand of a kind");
        let (started, ended) = event::past(conn, 0, from).await.unwrap().unwrap();
        assert!(started.is_empty() && ended.is_empty());
        // From too far back, nothing is read.
        since.at_most = 0;
        let changes = event::changes(conn, since).await.unwrap();
        assert!(changes.is_anew && changes.ended.changes.is_empty());
    }
}

on_every_database! {
    async fn open_questions_are_counted_up_to_a_bound_and_the_oldest_tells_its_age(db: Db) {
        let mut driver = Driver::new(&db).await;
        let flow = Pipeline::named("P").start("A").dampen("Ask").chain("B").build().unwrap();
        let nothing = page::questions(&mut driver.conn, None, 9).await.unwrap();
        assert_eq!(nothing, (0, None));
        for _ in 0..3 {
            driver.trigger(&flow, "1").await;
        }
        driver.work("P", |_| Did::Returned(1.into())).await;
        let first = (RunId(Uuid::nil()), StepId(Uuid::nil()));
        let waiting = page::waiting_after(&mut driver.conn, None, first, 9, None).await.unwrap();
        let oldest = waiting.iter().map(|it| it.since).min();
        assert!(oldest.is_some());
        for (most, n) in [(9, 3), (3, 3)] {
            let found = page::questions(&mut driver.conn, None, most).await.unwrap();
            assert_eq!(found, (n, oldest), "{most}");
        }
        assert_eq!(page::questions(&mut driver.conn, None, 2).await.unwrap().0, 2);
        let [own, other] = ["P", "Q"].map(|name| [name.to_owned()]);
        assert_eq!(page::questions(&mut driver.conn, Some(&own), 9).await.unwrap(), (3, oldest));
        assert_eq!(page::questions(&mut driver.conn, Some(&other), 9).await.unwrap(), (0, None));
    }
}

on_every_database! {
    /// There are more versions of the first pipeline than are read of one.
    async fn many_versions_of_a_pipeline_hide_no_other_pipeline(db: Db) {
        static VERSIONS: Statement = Statement::new(
            "TEST_VERSIONS",
            "INSERT INTO ductwork_definitions (digest, pipeline, body, created_at)
             SELECT b.digest, :pipeline, 'x', b.n FROM {rows:b(digest text, n int)}",
        );
        let mut driver = Driver::new(&db).await;
        for (pipeline, n) in [("Aardvark", 10_001), ("Zebra", 1)] {
            let digests: Vec<String> = (0..n).map(|n| format!("{pipeline} {n}")).collect();
            let rows = Rows::new().texts("digest", digests.iter().map(String::as_str));
            let rows = rows.ints("n", 0..n);
            let args = [("pipeline", pipeline.into()), ("b", (&rows).into())];
            driver.conn.execute(&VERSIONS, &args).await.unwrap();
        }
        let all = page::pipelines(&mut driver.conn, 10_000).await.unwrap();
        let told: Vec<_> = all.iter().map(|it| (it.pipeline.as_str(), it.n, it.first_at, it.last_at)).collect();
        assert_eq!(told, [("Aardvark", 10_001, 0, 10_000), ("Zebra", 1, 0, 0)]);
        for (pipeline, newest) in [("Aardvark", vec!["Aardvark 10000", "Aardvark 9999"]), ("Zebra", vec!["Zebra 0"])] {
            let versions = page::versions(&mut driver.conn, pipeline, 2).await.unwrap();
            let digests: Vec<_> = versions.iter().map(|it| it.digest.as_str()).collect();
            assert_eq!(digests, newest);
        }
    }

    async fn the_latest_definition_is_that_of_the_newest_run_which_nobody_revived(db: Db) {
        let mut driver = Driver::new(&db).await;
        let named = |step: &str| Pipeline::named("P").start(step).build().unwrap();
        let [first, second] = ["A", "B"].map(named);
        let digest = |it: &Definition| Some(it.digest());
        assert_eq!(definition::latest_of(&mut driver.conn, "P").await.unwrap(), None);
        driver.trigger(&first, "1").await;
        let halted = driver.trigger(&second, "1").await;
        driver.work("P", |_| Did::Refused).await;
        assert_eq!(definition::latest_of(&mut driver.conn, "P").await.unwrap(), digest(&second));
        driver.trigger(&first, "1").await;
        // Many runs of the abandoned definition are revived after it.
        let mut origin = halted;
        for _ in 0..30 {
            let revived = revive(&mut driver.conn, origin).await.unwrap();
            let Revive::Done(run) = revived else { panic!("{revived:?}") };
            driver.work("P", |_| Did::Refused).await;
            origin = run;
        }
        assert_eq!(definition::latest_of(&mut driver.conn, "P").await.unwrap(), digest(&first));
        let all = definition::latest(&mut driver.conn, 9).await.unwrap();
        assert_eq!(all, [("P".to_owned(), first.digest())]);
        static GONE: Statement = Statement::new("TEST_GONE", "UPDATE ductwork_runs SET pruning_at = 1");
        driver.conn.execute(&GONE, &[]).await.unwrap();
        assert_eq!(definition::latest_of(&mut driver.conn, "P").await.unwrap(), digest(&second));
        let all = definition::latest(&mut driver.conn, 9).await.unwrap();
        assert_eq!(all, [("P".to_owned(), second.digest())]);
    }
}
