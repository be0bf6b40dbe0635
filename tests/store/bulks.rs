//! Actions in many runs at once: each selected run is changed once and counted once, however many
//! processes work on them, and none after a stop.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ductwork::definition::{Definition, Pipeline};
use ductwork::engine::actor::limits;
use ductwork::machine::bulk::{Filter, Kind, Selection};
use ductwork::machine::outcome::Ending;
use ductwork::model::*;
use ductwork::store::action::{self, Actor, Again, Of};
use ductwork::store::bulk::{self, Bulk, Listed, NewBulk, Within, Worked};
use ductwork::store::commit::Ended;
use ductwork::store::definition::Definitions;
use ductwork::store::resume::{self, Resume};
use ductwork::store::revive::{Revive, Wanted, revive_as};
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Error, Location, Purpose, duty, halted, prune, query};
use serde_json::json;
use sqlx::{Connection, Executor};
use uuid::Uuid;

use crate::actions::ana;
use crate::driver::{Did, Driver, together};
use crate::on_every_database;
use crate::support::Db;

fn one(pipeline: &str) -> Definition {
    Pipeline::named(pipeline).start("A").build().unwrap()
}

/// This many halted runs of a pipeline; oldest first.
async fn halting(driver: &mut Driver, pipeline: &str, n: usize) -> Vec<RunId> {
    let mut runs = Vec::new();
    for _ in 0..n {
        runs.push(driver.trigger(&one(pipeline), "1").await);
    }
    driver.work(pipeline, |_| Did::Refused).await;
    runs.sort();
    runs
}

async fn create(conn: &mut Conn, verb: Verb, selection: Selection) -> Uuid {
    let newest = bulk::newest(conn).await.unwrap();
    let new = NewBulk {
        verb,
        selection: &selection,
        definition: None,
        newest,
        by: &ana(),
    };
    bulk::create(conn, new).await.unwrap()
}

fn all_halted(pipeline: Option<&str>) -> Selection {
    Selection::Matching(Filter {
        pipeline: pipeline.map(str::to_owned),
        statuses: vec![RunStatus::Halted],
        ..Filter::default()
    })
}

const HOUR: Duration = Duration::from_secs(3_600);

/// A limit of this much time, with three attempts in a row at a run that another session has
/// locked.
fn bounds(within: Duration) -> Within<'static> {
    Within {
        until: Instant::now() + within,
        given_up: None,
        pauses: &[Duration::ZERO; 2],
    }
}

async fn step(conn: &mut Conn, id: Uuid, within: Duration) -> Result<Worked, Error> {
    bulk::work(
        conn,
        id,
        &Definitions::default(),
        bounds(within),
        &mut |_| {},
    )
    .await
}

/// Carries out an action to its end.
async fn work(conn: &mut Conn, id: Uuid) -> Bulk {
    while step(conn, id, Duration::from_secs(60)).await.unwrap().more {}
    let bulk = bulk::find(conn, id).await.unwrap().unwrap();
    assert!(bulk.ended_at.is_some());
    bulk
}

/// Works on an action again and again, in competition with another process.
async fn compete(mut conn: Conn, id: Uuid) {
    loop {
        match step(&mut conn, id, Duration::from_millis(5)).await {
            Ok(worked) if !worked.more => return,
            Ok(_) | Err(Error::Gone(_) | Error::Retryable { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Works on an action; another connection does `meanwhile` once, when the work is at its first run.
async fn work_while<F>(
    db: &Db,
    conn: &mut Conn,
    id: Uuid,
    meanwhile: &mut Option<F>,
) -> Result<Worked, Error>
where
    F: AsyncFnOnce(&mut Conn) + Send,
{
    let url = db.url.clone();
    let definitions = Definitions::default();
    let within = Within {
        pauses: &[HOUR],
        ..bounds(Duration::from_secs(60))
    };
    let mut at = |_| {
        let Some(meanwhile) = meanwhile.take() else {
            return;
        };
        // The working thread waits for it, whichever thread that is.
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                let done = async {
                    let location = Location::parse(&url).expect("the test's own");
                    let mut conn = location.connect(Purpose::Engine).await.unwrap();
                    meanwhile(&mut conn).await;
                };
                runtime.unwrap().block_on(done);
            });
            other.join().expect("it does what it is to do");
        });
    };
    bulk::work(conn, id, &definitions, within, &mut at).await
}

fn counts(bulk: &Bulk) -> (i64, i64, i64) {
    (bulk.done, bulk.skipped, bulk.failed)
}

/// The runs that an action has changed, oldest first.
async fn changed(conn: &mut Conn, id: Uuid) -> Vec<RunId> {
    let actions = action::latest(conn, Of::Bulk(id), None, 9_999)
        .await
        .unwrap();
    assert!(
        actions
            .iter()
            .all(|it| it.by == "ana" && it.bulk == Some(id))
    );
    actions.iter().rev().map(|it| it.run.unwrap()).collect()
}

on_every_database! {
    async fn all_that_match_are_changed_from_the_oldest_on_and_no_later_ones(db: Db) {
        let mut driver = Driver::new(&db).await;
        let before = halting(&mut driver, "P", 230).await;
        halting(&mut driver, "Q", 2).await;
        let id = create(&mut driver.conn, Verb::Revive, all_halted(Some("P"))).await;
        let later = halting(&mut driver, "P", 3).await;
        let bulk = work(&mut driver.conn, id).await;
        assert_eq!(counts(&bulk), (230, 0, 0));
        assert_eq!(changed(&mut driver.conn, id).await, before);
        for run in later {
            let state = query::run_state(&mut driver.conn, run).await.unwrap().unwrap();
            assert_eq!(state.status, RunStatus::Halted);
        }
        // Runs that were revived are not selected again.
        let again = create(&mut driver.conn, Verb::Revive, all_halted(None)).await;
        assert_eq!(counts(&work(&mut driver.conn, again).await), (5, 0, 0));
        driver.audit().await;
    }

    async fn a_count_before_it_is_of_those_that_match_as_far_as_it_goes(db: Db) {
        let mut driver = Driver::new(&db).await;
        let runs = halting(&mut driver, "P", 5).await;
        halting(&mut driver, "Q", 2).await;
        let newest = bulk::newest(&mut driver.conn).await.unwrap();
        let all = Filter { statuses: vec![RunStatus::Halted], ..Filter::default() };
        let of_p = Filter { pipeline: Some("P".to_owned()), ..all.clone() };
        for (filter, newest, most, expected) in
            [(&all, newest, 99, 7), (&of_p, newest, 99, 5), (&of_p, newest, 3, 3), (&of_p, runs[1], 99, 2)]
        {
            let counted = bulk::count(&mut driver.conn, filter, newest, most).await.unwrap();
            assert_eq!(counted, expected, "{filter:?}");
        }
        let id = create(&mut driver.conn, Verb::Revive, all_halted(Some("Q"))).await;
        work(&mut driver.conn, id).await;
        assert_eq!(bulk::count(&mut driver.conn, &all, newest, 99).await.unwrap(), 5);
        let future = Filter { since: Some(i64::MAX), ..all };
        assert_eq!(bulk::count(&mut driver.conn, &future, newest, 99).await.unwrap(), 0);
        let id = create(&mut driver.conn, Verb::Revive, Selection::Matching(future)).await;
        assert_eq!(counts(&work(&mut driver.conn, id).await), (0, 0, 0));
    }

    /// The action may come to a run much later: by then, the run may ask something that nobody had seen.
    async fn a_bulk_action_answers_no_question_that_is_asked_after_its_request(db: Db) {
        let mut driver = Driver::new(&db).await;
        let asks = Pipeline::named("P").start("A").dampen("one?").dampen("two?").build().unwrap();
        let runs = [driver.trigger(&asks, "1").await, driver.trigger(&asks, "1").await];
        driver.work("P", |_| Did::Returned(1.into())).await;
        let id = create(&mut driver.conn, Verb::Resume, Selection::chosen(runs.to_vec())).await;
        // SQLite's clock counts milliseconds.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let answered = resume::resume(&mut driver.conn, runs[0], None, None, None).await.unwrap();
        assert_eq!(answered, Resume::Done(1));
        driver.work("P", |_| Did::Returned(1.into())).await;
        assert_eq!(counts(&work(&mut driver.conn, id).await), (1, 1, 0));
        assert_eq!(changed(&mut driver.conn, id).await, [runs[1]]);
        let asked = resume::waiting(&mut driver.conn, runs[0]).await.unwrap();
        assert_eq!(asked.iter().map(|step| step.node.as_str()).collect::<Vec<_>>(), ["dampen.2"]);
        driver.audit().await;
    }

    async fn a_kind_of_failure_leaves_out_those_that_halted_otherwise(db: Db) {
        let mut driver = Driver::new(&db).await;
        let refused = halting(&mut driver, "P", 3).await;
        driver.trigger(&one("P"), "1").await;
        driver.limits = limits(0, 0);
        driver.work("P", |_| Did::TimedOut).await;
        let found = halted::by_kind(&mut driver.conn, Some("P")).await.unwrap();
        assert_eq!(found.kinds.len(), 2);
        let kind = found.kinds.into_iter().find(|it| it.runs == 3).unwrap().kind;
        let of = |kind: Kind| Selection::Matching(Filter {
            pipeline: Some("P".to_owned()),
            statuses: vec![RunStatus::Halted],
            since: None,
            kind: Some(kind),
        });
        let id = create(&mut driver.conn, Verb::Revive, of(kind.clone())).await;
        assert_eq!(counts(&work(&mut driver.conn, id).await), (3, 0, 0));
        assert_eq!(changed(&mut driver.conn, id).await, refused);
        let other = Kind { node: Some("B".to_owned()), ..kind };
        let id = create(&mut driver.conn, Verb::Revive, of(other)).await;
        assert_eq!(counts(&work(&mut driver.conn, id).await), (0, 0, 0));
    }

    /// A form and an address carry a kind to the bulk action: they lose blanks at the ends of its class.
    async fn a_kind_whose_class_has_blanks_and_line_ends_finds_its_runs(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.limits = limits(0, 0);
        let mut runs = Vec::new();
        for class in [" Out\nof luck\r\n", "Out of luck", " "] {
            runs.push(driver.trigger(&one("P"), "1").await);
            let claimed = driver.claim("P", 1).await.pop().unwrap();
            let ending = Ending::Error { retryable: false, retry_after: None };
            let ended = Ended::without_value(ending, class, "no");
            let finished = driver.actor.finish(claimed, ended).await.unwrap();
            driver.commit(&[finished]).await;
        }
        driver.work("P", |_| unreachable!("nothing is due")).await;
        let found = halted::by_kind(&mut driver.conn, Some("P")).await.unwrap();
        let told: Vec<_> = found.kinds.iter().map(|it| (it.kind.class.as_deref(), it.runs)).collect();
        assert_eq!(told, [(Some("Out of luck"), 2), (None, 1)]);
        for (kind, runs) in found.kinds.into_iter().map(|it| it.kind).zip([&runs[..2], &runs[2..]]) {
            let matching = Selection::Matching(Filter {
                pipeline: Some("P".to_owned()),
                statuses: vec![RunStatus::Halted],
                since: None,
                kind: Some(kind),
            });
            let id = create(&mut driver.conn, Verb::Revive, matching).await;
            assert_eq!(counts(&work(&mut driver.conn, id).await), (runs.len() as i64, 0, 0));
            assert_eq!(changed(&mut driver.conn, id).await, runs);
        }
    }

    async fn chosen_runs_of_another_state_are_skipped_and_told(db: Db) {
        let mut driver = Driver::new(&db).await;
        let mut runs = halting(&mut driver, "P", 2).await;
        let going = driver.trigger(&one("P"), "1").await;
        runs.extend([going, RunId::new()]);
        let id = create(&mut driver.conn, Verb::Revive, Selection::chosen(runs.clone())).await;
        assert_eq!(counts(&work(&mut driver.conn, id).await), (2, 2, 0));
        assert_eq!(changed(&mut driver.conn, id).await, runs[..2]);
    }

    async fn runs_that_go_on_are_cancelled_and_those_that_wait_are_answered(db: Db) {
        let mut driver = Driver::new(&db).await;
        let asks = Pipeline::named("P").start("A").dampen("sure?").chain("B").build().unwrap();
        let asking = driver.trigger(&asks, "1").await;
        driver.work("P", |_| Did::Returned(json!(1))).await;
        let going = driver.trigger(&asks, "1").await;
        let waiting = Selection::Matching(Filter { statuses: vec![RunStatus::Dampened], ..Filter::default() });
        let id = create(&mut driver.conn, Verb::Resume, waiting).await;
        assert_eq!(counts(&work(&mut driver.conn, id).await), (1, 0, 0));
        assert_eq!(changed(&mut driver.conn, id).await, [asking]);
        let active = Selection::Matching(Filter {
            statuses: vec![RunStatus::InProgress, RunStatus::Dampened],
            ..Filter::default()
        });
        let id = create(&mut driver.conn, Verb::Cancel, active).await;
        assert_eq!(counts(&work(&mut driver.conn, id).await), (2, 0, 0));
        assert_eq!(changed(&mut driver.conn, id).await, [asking, going]);
        driver.audit().await;
    }

    async fn a_run_that_changes_its_state_meanwhile_is_not_passed_over(db: Db) {
        static TURN: Statement = Statement::new(
            "TEST_TURN",
            "UPDATE ductwork_runs SET status = CASE status WHEN 'dampened' THEN 'in_progress' ELSE 'dampened' END
              WHERE id = :id",
        );
        let mut driver = Driver::new(&db).await;
        let mut runs = Vec::new();
        for _ in 0..3 {
            runs.push(driver.trigger(&one("P"), "1").await);
        }
        let (is_over, mut other) = (Rc::new(Cell::new(false)), db.conn().await);
        let turned = Rc::new(Cell::new(0));
        let turning = tokio::task::spawn_local({
            let (is_over, turned) = (Rc::clone(&is_over), Rc::clone(&turned));
            async move {
                while !is_over.get() {
                    for run in &runs {
                        match other.execute(&TURN, &[("id", run.0.into())]).await {
                            Ok(n) => turned.set(turned.get() + n),
                            Err(Error::Retryable { .. }) => {}
                            Err(error) => panic!("{error:?}"),
                        }
                        // SQLite has one writer, and the action has to store what it has passed.
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            }
        });
        // None of them has halted, so each is passed and counted, and none is changed.
        let active = Selection::Matching(Filter {
            statuses: vec![RunStatus::InProgress, RunStatus::Dampened],
            ..Filter::default()
        });
        let mut done = 0;
        while done < 100 || turned.get() <= 50 {
            let id = create(&mut driver.conn, Verb::Revive, active.clone()).await;
            assert_eq!(counts(&work(&mut driver.conn, id).await), (0, 3, 0));
            done += 1;
        }
        is_over.set(true);
        turning.await.unwrap();
    }

    async fn of_two_who_work_on_one_bulk_action_each_run_is_counted_once(db: Db) {
        let mut driver = Driver::new(&db).await;
        let runs = halting(&mut driver, "P", 60).await;
        let id = create(&mut driver.conn, Verb::Revive, all_halted(Some("P"))).await;
        let (one, other) = (db.conn().await, db.conn().await);
        together([compete(one, id), compete(other, id)]).await;
        let bulk = bulk::find(&mut driver.conn, id).await.unwrap().unwrap();
        assert_eq!(bulk.done + bulk.skipped, 60, "{bulk:?}");
        assert_eq!(changed(&mut driver.conn, id).await.len() as i64, bulk.done);
        let changed: BTreeSet<RunId> = changed(&mut driver.conn, id).await.into_iter().collect();
        assert_eq!(changed, runs.into_iter().collect());
        driver.audit().await;
    }

    async fn a_run_that_another_has_dealt_with_is_left_to_it(db: Db) {
        let mut driver = Driver::new(&db).await;
        let runs = halting(&mut driver, "P", 2).await;
        let id = create(&mut driver.conn, Verb::Revive, all_halted(Some("P"))).await;
        // This connection has looked; then the other one handles both runs.
        let mut behind = db.conn().await;
        let mut far = db.conn().await;
        let by = Actor { bulk: Some(id), ..ana() };
        assert_eq!(counts(&work(&mut far, id).await), (2, 0, 0));
        let wanted = Wanted { by: Some(&by), ..Wanted::SAME };
        let late = halting(&mut driver, "P", 1).await;
        for run in [runs[1], late[0]] {
            let lost = revive_as(&mut behind, run, wanted).await;
            let untouched = matches!(&lost, Ok(Revive::AlreadyRevived(_)))
                || matches!(&lost, Err(Error::Gone(_)));
            assert!(untouched, "{lost:?}");
        }
        let state = query::run_state(&mut driver.conn, late[0]).await.unwrap().unwrap();
        assert_eq!(state.status, RunStatus::Halted);
        assert_eq!(changed(&mut driver.conn, id).await, runs);
    }

    async fn a_bulk_action_never_goes_back_to_a_run_that_was_dealt_with(db: Db) {
        let mut driver = Driver::new(&db).await;
        let runs = halting(&mut driver, "P", 3).await;
        let chosen = Selection::chosen(vec![runs[1]]);
        let id = create(&mut driver.conn, Verb::Revive, chosen).await;
        let by = Actor { bulk: Some(id), ..ana() };
        let wanted = Wanted { by: Some(&by), ..Wanted::SAME };
        let done = revive_as(&mut driver.conn, runs[1], wanted).await.unwrap();
        assert!(matches!(done, Revive::Done(_)));
        let behind = revive_as(&mut driver.conn, runs[0], wanted).await;
        assert!(matches!(behind, Err(Error::Gone(_))), "{behind:?}");
        assert_eq!(changed(&mut driver.conn, id).await, [runs[1]]);
    }

    async fn after_a_bulk_action_was_stopped_no_run_is_changed(db: Db) {
        let mut driver = Driver::new(&db).await;
        let runs = halting(&mut driver, "P", 2).await;
        let id = create(&mut driver.conn, Verb::Revive, all_halted(Some("P"))).await;
        assert!(bulk::stop(&mut driver.conn, id, "ben").await.unwrap());
        assert!(!bulk::stop(&mut driver.conn, id, "eve").await.unwrap(), "once");
        assert!(!step(&mut driver.conn, id, Duration::from_secs(60)).await.unwrap().more);
        // Nor by a process that has looked before.
        let by = Actor { bulk: Some(id), ..ana() };
        let wanted = Wanted { by: Some(&by), ..Wanted::SAME };
        let late = revive_as(&mut driver.conn, runs[0], wanted).await;
        assert!(matches!(late, Err(Error::Gone(_))), "{late:?}");
        let bulk = bulk::find(&mut driver.conn, id).await.unwrap().unwrap();
        assert_eq!((counts(&bulk), bulk.stopped_by.as_deref()), ((0, 0, 0), Some("ben")));
        assert_eq!(changed(&mut driver.conn, id).await, []);
        assert_eq!(bulk::open(&mut driver.conn, 9).await.unwrap(), []);
    }

    async fn actions_of_a_newer_version_hide_none_that_this_one_can_read(db: Db) {
        let mut driver = Driver::new(&db).await;
        let conn = &mut driver.conn;
        for _ in 0..3 {
            create(conn, Verb::Pause, all_halted(None)).await;
        }
        let id = create(conn, Verb::Revive, all_halted(None)).await;
        create(conn, Verb::Pause, all_halted(None)).await;
        let later = create(conn, Verb::Revive, all_halted(None)).await;
        for n in [1, 2, 3, 9] {
            let open = bulk::open(conn, n).await.unwrap();
            let open: Vec<_> = open.iter().map(|bulk| bulk.id).collect();
            assert_eq!(open, [id, later][..n.min(2)], "{n}");
        }
    }

    async fn one_who_finds_it_stopped_passes_no_run(db: Db) {
        let mut driver = Driver::new(&db).await;
        let unknown = Selection::chosen(vec![RunId::new(), RunId::new()]);
        let id = create(&mut driver.conn, Verb::Revive, unknown).await;
        let mut meanwhile = Some(async move |conn: &mut Conn| assert!(bulk::stop(conn, id, "ben").await.unwrap()));
        let lost = work_while(&db, &mut driver.conn, id, &mut meanwhile).await;
        assert!(matches!(lost, Err(Error::Gone(_))), "{lost:?}");
        assert!(meanwhile.is_none(), "it was stopped meanwhile");
        let bulk = bulk::find(&mut driver.conn, id).await.unwrap().unwrap();
        assert_eq!(counts(&bulk), (0, 0, 0));
    }

    async fn one_who_finds_it_further_on_passes_no_run(db: Db) {
        let mut driver = Driver::new(&db).await;
        let before = RunId::new();
        let run = halting(&mut driver, "P", 1).await[0];
        let chosen = Selection::chosen(vec![before, run]);
        let id = create(&mut driver.conn, Verb::Revive, chosen).await;
        let mut meanwhile = Some(async move |conn: &mut Conn| {
            let by = Actor { bulk: Some(id), ..ana() };
            let wanted = Wanted { by: Some(&by), ..Wanted::SAME };
            assert!(matches!(revive_as(conn, run, wanted).await, Ok(Revive::Done(_))));
        });
        let lost = work_while(&db, &mut driver.conn, id, &mut meanwhile).await;
        assert!(matches!(lost, Err(Error::Gone(_))), "{lost:?}");
        assert!(meanwhile.is_none(), "another has gone on meanwhile");
        let bulk = bulk::find(&mut driver.conn, id).await.unwrap().unwrap();
        assert_eq!((counts(&bulk), bulk.dealt), ((1, 0, 0), run.0));
    }

    async fn a_run_that_is_given_up_on_is_told_and_the_rest_goes_on(db: Db) {
        let mut driver = Driver::new(&db).await;
        let runs = halting(&mut driver, "P", 3).await;
        let id = create(&mut driver.conn, Verb::Revive, all_halted(Some("P"))).await;
        let definitions = Definitions::default();
        let within = Within {
            given_up: Some((runs[1], "it took too long")),
            ..bounds(Duration::from_secs(60))
        };
        let worked = bulk::work(&mut driver.conn, id, &definitions, within, &mut |_| {}).await;
        assert!(!worked.unwrap().more);
        let bulk = bulk::find(&mut driver.conn, id).await.unwrap().unwrap();
        assert_eq!(counts(&bulk), (2, 0, 1));
        assert_eq!((bulk.failures[0].run, bulk.failures[0].why.as_str()), (runs[1], "it took too long"));
        assert_eq!(changed(&mut driver.conn, id).await, [runs[0], runs[2]]);
    }

    async fn bulk_actions_are_listed_and_forgotten_when_they_have_ended(db: Db) {
        let mut driver = Driver::new(&db).await;
        let conn = &mut driver.conn;
        let ended = create(conn, Verb::Revive, all_halted(None)).await;
        work(conn, ended).await;
        let open = create(conn, Verb::Revive, all_halted(None)).await;
        let ids = async |conn: &mut Conn, before| -> Vec<Uuid> {
            bulk::latest(conn, before, 9).await.unwrap().iter().map(Listed::id).collect()
        };
        assert_eq!(ids(conn, None).await, [open, ended]);
        assert_eq!(ids(conn, Some(open)).await, [ended]);
        assert_eq!(bulk::open(conn, 9).await.unwrap().len(), 1);
        prune::prune(conn, Duration::from_secs(3_600), 9).await.unwrap();
        assert_eq!(ids(conn, None).await, [open, ended]);
        prune::prune(conn, Duration::ZERO, 9).await.unwrap();
        assert_eq!(ids(conn, None).await, [open]);
    }

    async fn a_duty_is_one_holders_until_its_lease_is_over(db: Db) {
        let mut conn = db.conn().await;
        let (one, other) = (Uuid::now_v7(), Uuid::now_v7());
        let hour = Duration::from_secs(3_600);
        assert!(duty::take(&mut conn, "d", one, hour).await.unwrap());
        assert!(!duty::take(&mut conn, "d", other, hour).await.unwrap());
        assert!(duty::take(&mut conn, "e", other, hour).await.unwrap(), "another duty");
        duty::give_back(&mut conn, "d", other).await.unwrap();
        assert!(!duty::take(&mut conn, "d", other, hour).await.unwrap(), "another's is not given back");
        duty::give_back(&mut conn, "d", one).await.unwrap();
        assert!(duty::take(&mut conn, "d", other, hour).await.unwrap());
        assert!(!duty::take(&mut conn, "d", one, hour).await.unwrap());
        // It was taken, and then the clock was set back by an hour.
        static LATER: Statement = Statement::new(
            "TEST_LATER", "UPDATE ductwork_duties SET until = until + 3600000000 WHERE name = 'd'");
        assert_eq!(conn.execute(&LATER, &[]).await.unwrap(), 1);
        assert!(duty::take(&mut conn, "d", one, hour).await.unwrap());
    }

    async fn a_run_that_was_set_aside_is_counted_once_whoever_comes_back_to_it(db: Db) {
        let mut driver = Driver::new(&db).await;
        let runs = halting(&mut driver, "P", 2).await;
        let id = create(&mut driver.conn, Verb::Revive, Selection::chosen(vec![runs[0]])).await;
        let with = set_aside(&mut driver.conn, id, runs[0], 0).await;
        // Both have read the previous list.
        let again = Again { with, without: "[]".to_owned() };
        let by = Actor { bulk: Some(id), again: Some(again), ..ana() };
        let wanted = Wanted { by: Some(&by), ..Wanted::SAME };
        assert!(matches!(revive_as(&mut driver.conn, runs[0], wanted).await, Ok(Revive::Done(_))));
        let behind = revive_as(&mut driver.conn, runs[1], wanted).await;
        assert!(matches!(behind, Err(Error::Gone(_))), "{behind:?}");
        assert_eq!(counts(&work(&mut driver.conn, id).await), (1, 0, 0));
        assert_eq!(changed(&mut driver.conn, id).await, [runs[0]]);
        driver.audit().await;
    }

    async fn after_a_stop_a_run_that_was_set_aside_stays_as_it_is(db: Db) {
        let mut driver = Driver::new(&db).await;
        let runs = halting(&mut driver, "P", 1).await;
        let id = create(&mut driver.conn, Verb::Revive, Selection::chosen(runs.clone())).await;
        let with = set_aside(&mut driver.conn, id, runs[0], 0).await;
        assert!(bulk::stop(&mut driver.conn, id, "ben").await.unwrap());
        let again = Again { with, without: "[]".to_owned() };
        let by = Actor { bulk: Some(id), again: Some(again), ..ana() };
        let wanted = Wanted { by: Some(&by), ..Wanted::SAME };
        let late = revive_as(&mut driver.conn, runs[0], wanted).await;
        assert!(matches!(late, Err(Error::Gone(_))), "{late:?}");
        let bulk = bulk::find(&mut driver.conn, id).await.unwrap().unwrap();
        assert_eq!((counts(&bulk), bulk.aside()), ((0, 0, 1), 0));
    }

    async fn one_who_has_read_another_list_of_failures_passes_no_run(db: Db) {
        let mut driver = Driver::new(&db).await;
        let unknown = RunId::new();
        let runs = halting(&mut driver, "P", 1).await;
        let id = create(&mut driver.conn, Verb::Revive, Selection::chosen(vec![unknown, runs[0]])).await;
        let soon = query::now(&mut driver.conn).await.unwrap() + 1_800_000_000;
        let with = set_aside(&mut driver.conn, id, RunId(Uuid::nil()), soon).await;
        let again = Again { with, without: "[]".to_owned() };
        let mut meanwhile = Some(async move |conn: &mut Conn| {
            let by = Actor { bulk: Some(id), again: Some(again), ..ana() };
            let wanted = Wanted { by: Some(&by), ..Wanted::SAME };
            assert!(matches!(revive_as(conn, runs[0], wanted).await, Ok(Revive::Done(_))));
        });
        let lost = work_while(&db, &mut driver.conn, id, &mut meanwhile).await;
        assert!(matches!(lost, Err(Error::Gone(_))), "{lost:?}");
        let bulk = bulk::find(&mut driver.conn, id).await.unwrap().unwrap();
        assert_eq!(counts(&bulk), (1, 0, 0));
    }

    async fn one_who_has_read_another_list_of_failures_does_not_end_the_action(db: Db) {
        let mut driver = Driver::new(&db).await;
        let runs = halting(&mut driver, "P", 1).await;
        let id = create(&mut driver.conn, Verb::Revive, Selection::chosen(runs.clone())).await;
        let soon = query::now(&mut driver.conn).await.unwrap() + 1_800_000_000;
        let mut meanwhile = Some(async move |conn: &mut Conn| {
            set_aside(conn, id, RunId(Uuid::nil()), soon).await;
        });
        let lost = work_while(&db, &mut driver.conn, id, &mut meanwhile).await;
        assert!(matches!(lost, Err(Error::Gone(_))), "{lost:?}");
        let bulk = bulk::find(&mut driver.conn, id).await.unwrap().unwrap();
        assert_eq!((counts(&bulk), bulk.aside(), bulk.ended_at), ((1, 0, 1), 1, None));
    }
}

/// Records that this run was set aside until then; returns the list as it is then stored.
async fn set_aside(conn: &mut Conn, id: Uuid, run: RunId, at: i64) -> String {
    let failures = format!(r#"[{{"run":"{run}","why":"locked","again":{{"at":{at},"tries":1}}}}]"#);
    static SET_ASIDE: Statement = Statement::new(
        "SET_ASIDE",
        "UPDATE ductwork_bulks SET failed = failed + 1, dealt = :run, failures = :failures WHERE id = :id",
    );
    let args = [
        ("id", id.into()),
        ("run", run.0.into()),
        ("failures", (&failures).into()),
    ];
    assert_eq!(conn.execute(&SET_ASIDE, &args).await.unwrap(), 1);
    failures
}

/// A session that holds the row of a run, in a transaction that stays open.
async fn locking(db: &Db, run: RunId) -> sqlx::PgConnection {
    let mut conn = sqlx::PgConnection::connect(&db.url).await.unwrap();
    for sql in [
        "SET application_name = 'somebody'".to_owned(),
        "BEGIN".to_owned(),
        format!(
            "SELECT 1 FROM ductwork_runs WHERE id = '{}' FOR UPDATE",
            run.0
        ),
    ] {
        let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
        conn.execute(sql).await.unwrap();
    }
    conn
}

async fn of_bulk(db: &Db) -> Conn {
    db.location.connect(Purpose::Bulk).await.unwrap()
}

#[tokio::test]
async fn a_run_that_somebody_has_locked_holds_up_no_other_and_its_turn_comes_later() {
    let body = async |db: Db| {
        let mut driver = Driver::new(&db).await;
        let runs = halting(&mut driver, "P", 4).await;
        for (verb, done) in [(Verb::Revive, 4), (Verb::Cancel, 3)] {
            let chosen = match verb {
                Verb::Revive => runs.clone(),
                _ => {
                    let mut going = Vec::new();
                    for _ in 0..3 {
                        going.push(driver.trigger(&one("P"), "1").await);
                    }
                    going
                }
            };
            let id = create(&mut driver.conn, verb, Selection::chosen(chosen.clone())).await;
            let mut held = locking(&db, chosen[1]).await;
            let mut conn = of_bulk(&db).await;
            let within = Within {
                pauses: &[HOUR],
                ..bounds(Duration::from_secs(60))
            };
            let definitions = Definitions::default();
            let worked = bulk::work(&mut conn, id, &definitions, within, &mut |_| {})
                .await
                .unwrap();
            assert!(
                worked.more && worked.later > Some(Duration::from_secs(3_000)),
                "{worked:?}"
            );
            let aside = bulk::find(&mut conn, id).await.unwrap().unwrap();
            assert_eq!((counts(&aside), aside.aside()), ((done - 1, 0, 1), 1));
            assert_eq!(aside.ended_at, None);
            let why = &aside.failures[0].why;
            assert!(
                why.contains("locked by the session") && why.contains("somebody"),
                "{why}"
            );
            held.execute("COMMIT").await.unwrap();
            assert_eq!(counts(&work(&mut conn, id).await), (done, 0, 0));
            let changed: BTreeSet<RunId> = changed(&mut conn, id).await.into_iter().collect();
            assert_eq!(changed, chosen.into_iter().collect());
        }
        driver.audit().await;
    };
    crate::support::with(Db::postgres().await, body).await;
}

#[tokio::test]
async fn a_run_that_stays_locked_has_failed_when_all_attempts_have() {
    let body = async |db: Db| {
        let mut driver = Driver::new(&db).await;
        let runs = halting(&mut driver, "P", 2).await;
        let id = create(
            &mut driver.conn,
            Verb::Revive,
            Selection::chosen(runs.clone()),
        )
        .await;
        let mut held = locking(&db, runs[0]).await;
        let mut conn = of_bulk(&db).await;
        let bulk = work(&mut conn, id).await;
        assert_eq!((counts(&bulk), bulk.failures.len()), ((1, 0, 1), 1));
        let failure = &bulk.failures[0];
        assert_eq!((failure.run, failure.again), (runs[0], None));
        assert!(
            failure.why.contains("in a transaction since"),
            "{failure:?}"
        );
        held.execute("ROLLBACK").await.unwrap();
    };
    crate::support::with(Db::postgres().await, body).await;
}

#[tokio::test]
async fn one_who_has_locked_the_bulk_actions_own_row_makes_no_run_fail() {
    let body = async |db: Db| {
        let mut driver = Driver::new(&db).await;
        let runs = halting(&mut driver, "P", 2).await;
        let id = create(
            &mut driver.conn,
            Verb::Revive,
            Selection::chosen(runs.clone()),
        )
        .await;
        let mut held = sqlx::PgConnection::connect(&db.url).await.unwrap();
        for sql in [
            "BEGIN".to_owned(),
            format!("SELECT 1 FROM ductwork_bulks WHERE id = '{id}' FOR UPDATE"),
        ] {
            held.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql)))
                .await
                .unwrap();
        }
        let mut conn = of_bulk(&db).await;
        for _ in 0..4 {
            let worked = step(&mut conn, id, Duration::from_secs(60)).await.unwrap();
            assert!(worked.more && worked.later.is_some(), "{worked:?}");
        }
        held.execute("ROLLBACK").await.unwrap();
        assert_eq!(counts(&work(&mut conn, id).await), (2, 0, 0));
    };
    crate::support::with(Db::postgres().await, body).await;
}
