//! Deliveries: each run that an endpoint wants to hear of is found once, whichever consoles look however often, and
//! each attempt counts once.

use std::time::Duration;

use ductwork::definition::{Definition, Pipeline};
use ductwork::machine::webhook::{EVENTS, Follows, Interest, Unsent};
use ductwork::model::*;
use ductwork::store::action::{self, Actor};
use ductwork::store::cursor::Cursor;
use ductwork::store::definition::Definitions;
use ductwork::store::delivery::{self, Attempt, Delivery, Due, Filter, Found, Listed};
use ductwork::store::event::{self, Behind, Since};
use ductwork::store::finder::Finder;
use ductwork::store::statement::Statement;
use ductwork::store::tracer::{Look, Tracer};
use ductwork::store::{Conn, audit::audit, prune, query};
use uuid::Uuid;

use crate::driver::{Did, Driver, together};
use crate::support::Db;
use crate::{on_every_database, on_servers};

const LEASE: Duration = Duration::from_secs(3_600);

fn one(pipeline: &str) -> Definition {
    Pipeline::named(pipeline).start("A").build().unwrap()
}

fn all() -> Interest {
    Interest {
        events: EVENTS.to_vec(),
        pipelines: Vec::new(),
    }
}

fn endpoints(named: &[(&str, &Interest)]) -> Vec<(String, Interest)> {
    let named = named
        .iter()
        .map(|(name, it)| ((*name).to_owned(), (*it).clone()));
    named.collect()
}

fn word(run: &Found, reasons: &[&str], _now: i64) -> String {
    format!("{} {}", run.status, reasons.join(","))
}

/// Looks until nothing more is found.
async fn look(conn: &mut Conn, finder: &mut Finder) {
    while finder.look(conn, &word).await.unwrap() {}
}

/// The existing deliveries, oldest first.
async fn deliveries(conn: &mut Conn) -> Vec<Delivery> {
    let mut all = latest(conn, None).await;
    all.reverse();
    all
}

/// The readable deliveries, newest first.
async fn latest(conn: &mut Conn, state: Option<&'static str>) -> Vec<Delivery> {
    let all = delivery::latest(
        conn,
        &Filter {
            state,
            ..newest(9_999)
        },
    )
    .await
    .unwrap();
    all.iter().filter_map(Listed::delivery).cloned().collect()
}

/// The newest, without any other filter.
fn newest(limit: usize) -> Filter {
    Filter {
        limit,
        ..Filter::default()
    }
}

async fn one_waits(driver: &mut Driver) -> Due {
    let listens = endpoints(&[("e", &all())]);
    let mut finder = Finder::begin(&mut driver.conn, &listens).await.unwrap();
    driver.trigger(&one("P"), "1").await;
    driver.work("P", |_| Did::Returned(1.into())).await;
    look(&mut driver.conn, &mut finder).await;
    let due = take(&mut driver.conn, "e", Duration::ZERO).await;
    assert_eq!(due.len(), 1);
    due[0].clone()
}

async fn state(conn: &mut Conn, due: &Due) -> (String, u32) {
    let found = delivery::find(conn, due.id).await.unwrap().unwrap();
    (found.state, found.attempts)
}

/// The oldest undelivered message of the only endpoint.
async fn oldest(conn: &mut Conn) -> Option<Unsent> {
    let waits = delivery::unsent(conn, &[]).await.unwrap();
    waits.into_iter().next().map(|it| it.oldest)
}

/// Takes at most nine due messages.
async fn take(conn: &mut Conn, endpoint: &str, lease: Duration) -> Vec<Due> {
    let taken = delivery::take(conn, &[(endpoint, 9)], lease).await;
    taken.unwrap().due.remove(0)
}

async fn record(conn: &mut Conn, due: &Due, follows: Follows) -> bool {
    let attempt = Attempt {
        due,
        follows,
        status: Some(500),
        error: Some("no"),
    };
    let recorded = delivery::record(conn, &[attempt]).await.unwrap();
    recorded.contains(&due.id)
}

async fn send_again(conn: &mut Conn, id: &Uuid) -> bool {
    let by = Actor::new("ada", Channel::Api);
    delivery::send_again(conn, *id, &by).await.unwrap()
}

on_every_database! {
    async fn an_endpoint_hears_of_what_ends_after_it_began_and_of_nothing_else(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.trigger(&one("P"), "1").await;
        driver.work("P", |_| Did::Returned(1.into())).await;
        let halts = Interest { events: vec![RunStatus::Halted], pipelines: vec!["Q".into()] };
        let listens = endpoints(&[("all", &all()), ("halts", &halts)]);
        let mut finder = Finder::begin(&mut driver.conn, &listens).await.unwrap();
        look(&mut driver.conn, &mut finder).await;
        assert_eq!(deliveries(&mut driver.conn).await, [], "it was over before");
        let completed = driver.trigger(&one("P"), "1").await;
        driver.work("P", |_| Did::Returned(1.into())).await;
        let halted = driver.trigger(&one("Q"), "1").await;
        driver.work("Q", |_| Did::Refused).await;
        look(&mut driver.conn, &mut finder).await;
        // A finder that begins anew continues from there.
        let mut another = Finder::begin(&mut driver.conn, &listens).await.unwrap();
        look(&mut driver.conn, &mut another).await;
        let mut told: Vec<_> = deliveries(&mut driver.conn).await;
        told.sort_by(|one, other| (&one.endpoint, one.run).cmp(&(&other.endpoint, other.run)));
        let told: Vec<_> = told.iter().map(|it| (it.endpoint.as_str(), it.run, it.event.as_str())).collect();
        assert_eq!(told, [("all", completed, "completed"), ("all", halted, "halted"), ("halts", halted, "halted")]);
        let due = take(&mut driver.conn, "halts", LEASE).await;
        let reasons = driver.halt_reasons(halted).await.join(",");
        assert_eq!(due[0].body, format!("halted {reasons}"));
        // An endpoint that is added later begins later.
        let late = endpoints(&[("late", &all())]);
        let mut finder = Finder::begin(&mut driver.conn, &late).await.unwrap();
        look(&mut driver.conn, &mut finder).await;
        assert_eq!(deliveries(&mut driver.conn).await.len(), 3);
    }

    async fn an_endpoint_hears_of_runs_after_the_clock_was_set_back(db: Db) {
        static AHEAD: Statement = Statement::new(
            "TEST_AHEAD", "UPDATE ductwork_webhooks SET since = since + 3600000000, seen = seen + 3600000000");
        static SEEN: Statement = Statement::new("TEST_SEEN_AT", "SELECT max(seen) AS seen FROM ductwork_webhooks");
        let mut driver = Driver::new(&db).await;
        let listens = endpoints(&[("e", &all())]);
        Finder::begin(&mut driver.conn, &listens).await.unwrap();
        driver.conn.execute(&AHEAD, &[]).await.unwrap();
        let mut finder = Finder::begin(&mut driver.conn, &listens).await.unwrap();
        let run = driver.trigger(&one("P"), "1").await;
        driver.work("P", |_| Did::Returned(1.into())).await;
        look(&mut driver.conn, &mut finder).await;
        let told = deliveries(&mut driver.conn).await;
        assert_eq!(told.iter().map(|it| it.run).collect::<Vec<_>>(), [run]);
        let seen: i64 = driver.rows(&SEEN, &[]).await[0].get("seen").unwrap();
        assert!(seen <= query::now(&mut driver.conn).await.unwrap());
    }

    async fn a_run_that_waits_for_a_person_is_told_once(db: Db) {
        let mut driver = Driver::new(&db).await;
        let listens = endpoints(&[("e", &all())]);
        let mut finder = Finder::begin(&mut driver.conn, &listens).await.unwrap();
        let asks = Pipeline::named("P").start("A").dampen("sure?").chain("B").build().unwrap();
        let runs = [driver.trigger(&asks, "1").await, driver.trigger(&asks, "1").await];
        driver.work("P", |_| Did::Returned(1.into())).await;
        for _ in 0..3 {
            look(&mut driver.conn, &mut finder).await;
        }
        let told = deliveries(&mut driver.conn).await;
        let mut told: Vec<_> = told.iter().map(|it| (it.run, it.event.as_str())).collect();
        told.sort();
        assert_eq!(told, runs.map(|run| (run, "dampened")));
    }

    async fn a_run_that_is_found_twice_is_delivered_once(db: Db) {
        let mut driver = Driver::new(&db).await;
        let listens = endpoints(&[("a", &all()), ("b", &all())]);
        let first = Finder::begin(&mut driver.conn, &listens).await.unwrap();
        for _ in 0..30 {
            driver.trigger(&one("P"), "1").await;
        }
        driver.work("P", |_| Did::Returned(1.into())).await;
        let mut both = Vec::new();
        for _ in 0..2 {
            let (mut conn, mut finder) = (db.conn().await, first.clone());
            both.push(async move { look(&mut conn, &mut finder).await });
        }
        together(both).await;
        assert_eq!(deliveries(&mut driver.conn).await.len(), 60);
    }

    async fn an_endpoint_never_goes_back_to_what_was_found(db: Db) {
        let mut conn = db.conn().await;
        let began = delivery::heard(&mut conn, "e").await.unwrap();
        let other = delivery::heard(&mut conn, "f").await.unwrap();
        // A time that has yet to come counts as now, and SQLite's clock counts milliseconds.
        tokio::time::sleep(Duration::from_millis(2)).await;
        delivery::see(&mut conn, "e", other.seen + 5).await.unwrap();
        delivery::see(&mut conn, "e", other.seen + 3).await.unwrap();
        let now = delivery::heard(&mut conn, "e").await.unwrap();
        assert_eq!((now.since, now.seen), (began.since, other.seen + 5));
        assert_eq!(delivery::heard(&mut conn, "f").await.unwrap(), other);
    }

    async fn of_two_who_would_send_a_message_one_does(db: Db) {
        let mut driver = Driver::new(&db).await;
        one_waits(&mut driver).await;
        let mut both = Vec::new();
        for _ in 0..2 {
            let mut conn = db.conn().await;
            both.push(async move { take(&mut conn, "e", LEASE).await.len() });
        }
        assert_eq!(together(both).await.iter().sum::<usize>(), 1);
        // A console that has read the message as due before.
        let due = deliveries(&mut driver.conn).await[0].clone();
        let leased = delivery::lease(&mut driver.conn, vec![due.id], LEASE).await.unwrap();
        assert!(leased.is_empty(), "it is on its way");
    }

    async fn many_messages_are_taken_and_recorded_by_as_many_statements_as_a_few(db: Db) {
        let mut driver = Driver::new(&db).await;
        let listens = endpoints(&[("a", &all()), ("b", &all())]);
        let mut finder = Finder::begin(&mut driver.conn, &listens).await.unwrap();
        for _ in 0..6 {
            driver.trigger(&one("P"), "1").await;
        }
        driver.work("P", |_| Did::Returned(1.into())).await;
        look(&mut driver.conn, &mut finder).await;
        let conn = &mut driver.conn;
        conn.take_statements();
        let taken = delivery::take(conn, &[("a", 9), ("none", 9), ("b", 4)], LEASE).await.unwrap().due;
        assert_eq!(taken.iter().map(Vec::len).collect::<Vec<_>>(), [6, 0, 4]);
        // On MySQL a lease is a transaction with two statements: BEGIN, a read, a write, COMMIT.
        let of_lease = if conn.dialect() == ductwork::store::Dialect::Mysql { 4 } else { 1 };
        let sent = conn.take_statements();
        assert_eq!(sent, 3 + of_lease, "one for each endpoint, and one for all messages");
        let outcomes = [Follows::Delivered, Follows::Failed, Follows::Again(LEASE)];
        let attempts = taken.iter().flatten().zip(outcomes.into_iter().cycle());
        let attempts: Vec<Attempt> = attempts
            .map(|(due, follows)| Attempt { due, follows, status: Some(500), error: None })
            .collect();
        assert_eq!(delivery::record(conn, &attempts).await.unwrap().len(), 10);
        assert_eq!(conn.take_statements(), of_lease);
        for (state, n) in [("delivered", 4), ("failed", 3), ("waiting", 5)] {
            let found = latest(conn, Some(state)).await;
            assert_eq!(found.len(), n, "{state}");
            assert!(found.iter().all(|it| it.due_at.is_some() == (state == "waiting")), "{state}");
        }
    }

    async fn a_message_whose_row_is_damaged_is_put_aside_and_the_others_are_sent(db: Db) {
        static DAMAGE: Statement = Statement::new(
            "TEST_DAMAGE", "UPDATE ductwork_deliveries SET attempts = -1, due_at = 1 WHERE id = :id");
        let mut driver = Driver::new(&db).await;
        one_waits(&mut driver).await;
        driver.trigger(&one("P"), "1").await;
        driver.work("P", |_| Did::Returned(1.into())).await;
        let listens = endpoints(&[("e", &all())]);
        let mut finder = Finder::begin(&mut driver.conn, &listens).await.unwrap();
        look(&mut driver.conn, &mut finder).await;
        let conn = &mut driver.conn;
        let both = deliveries(conn).await;
        let (damaged, sound) = (both[0].id, both[1].id);
        conn.execute(&DAMAGE, &[("id", damaged.into())]).await.unwrap();
        let taken = delivery::take(conn, &[("e", 9)], Duration::ZERO).await.unwrap();
        assert_eq!(taken.aside, [damaged]);
        assert_eq!(taken.due[0].iter().map(|it| it.id).collect::<Vec<_>>(), [sound]);
        let taken = delivery::take(conn, &[("e", 9)], Duration::ZERO).await.unwrap();
        assert!(taken.aside.is_empty(), "it is said once");
        let listed = delivery::latest(conn, &newest(9)).await.unwrap();
        assert!(matches!(&listed[0], Listed::Delivery(it) if it.id == sound), "{listed:?}");
        assert_eq!(listed[1], Listed::Unreadable(damaged));
        let found = audit(conn, LEASE).await.unwrap();
        assert_eq!(found.iter().map(|it| (it.invariant, it.id)).collect::<Vec<_>>(), [("I37", damaged)]);
    }

    async fn a_message_about_a_run_that_is_gone_is_deleted(db: Db) {
        static LEFT: Statement = Statement::new(
            "TEST_LEFT",
            "INSERT INTO ductwork_deliveries (id, endpoint, run_id, event, pipeline, body, state, attempts, created_at, due_at)
             VALUES (:id, 'e', :run, 'completed', 'P', 'null', 'waiting', 0, 1, 1)",
        );
        let mut driver = Driver::new(&db).await;
        let args = [("id", Uuid::now_v7().into()), ("run", RunId::new().0.into())];
        driver.conn.execute(&LEFT, &args).await.unwrap();
        let found = audit(&mut driver.conn, Duration::ZERO).await.unwrap();
        assert_eq!(found.iter().map(|it| it.invariant).collect::<Vec<_>>(), ["I37"]);
        assert_eq!(take(&mut driver.conn, "e", LEASE).await, []);
        assert_eq!(deliveries(&mut driver.conn).await, []);
    }

    async fn no_message_is_written_about_a_run_that_is_being_deleted(db: Db) {
        static BEGUN: Statement = Statement::new(
            "TEST_BEGUN",
            "UPDATE ductwork_runs SET pruning_at = {now} WHERE id = :id",
        );
        let mut driver = Driver::new(&db).await;
        let runs = [driver.trigger(&one("P"), "1").await, driver.trigger(&one("P"), "2").await];
        let begun = driver.conn.execute(&BEGUN, &[("id", runs[0].0.into())]).await;
        assert_eq!(begun.unwrap(), 1);
        let about = |run| delivery::Message {
            endpoint: "e".to_owned(),
            run,
            event: RunStatus::Completed,
            pipeline: "P".to_owned(),
            body: "{}".to_owned(),
        };
        let messages = [about(runs[0]), about(runs[1]), about(RunId::new())];
        delivery::insert(&mut driver.conn, &messages).await.unwrap();
        let written = deliveries(&mut driver.conn).await;
        assert_eq!(written.iter().map(|it| it.run).collect::<Vec<_>>(), [runs[1]]);
    }

    async fn a_message_whose_sender_dies_is_due_again(db: Db) {
        let mut driver = Driver::new(&db).await;
        let due = one_waits(&mut driver).await;
        let again = take(&mut driver.conn, "e", LEASE).await;
        assert_eq!(again, [due], "its time was over at once");
        let again = take(&mut driver.conn, "e", LEASE).await;
        assert_eq!(again, []);
    }

    async fn an_attempt_that_failed_is_followed_by_another_when_that_is_due(db: Db) {
        let mut driver = Driver::new(&db).await;
        let due = one_waits(&mut driver).await;
        let conn = &mut driver.conn;
        assert!(record(conn, &due, Follows::Again(LEASE)).await);
        assert_eq!(take(conn, "e", LEASE).await, []);
        let found = delivery::find(conn, due.id).await.unwrap().unwrap();
        assert_eq!((found.attempts, found.status, found.error.as_deref()), (1, Some(500), Some("no")));
        let wait = found.due_at.unwrap() - found.tried_at.unwrap();
        assert_eq!(wait, i64::try_from(LEASE.as_micros()).unwrap());
        assert!(send_again(conn, &due.id).await);
        let done = action::latest(conn, action::Of::All, None, 9).await.unwrap();
        assert_eq!((done[0].verb.as_str(), done[0].run, done[0].by.as_str()), ("send", Some(due.run), "ada"));
        let due = take(conn, "e", LEASE).await;
        assert!(record(conn, &due[0], Follows::Failed).await);
        let failed = latest(conn, Some("failed")).await;
        assert_eq!(failed.len(), 1);
        assert_eq!(latest(conn, Some("waiting")).await, []);
        assert_eq!(take(conn, "e", LEASE).await, [], "it is given up");
    }

    async fn a_late_result_of_an_attempt_changes_nothing(db: Db) {
        let mut driver = Driver::new(&db).await;
        let first = one_waits(&mut driver).await;
        let conn = &mut driver.conn;
        // Another console has sent it meanwhile.
        assert!(record(conn, &first, Follows::Again(Duration::ZERO)).await);
        for follows in [Follows::Again(LEASE), Follows::Failed, Follows::Delivered] {
            assert!(!record(conn, &first, follows).await, "{follows:?}");
        }
        assert_eq!(state(conn, &first).await, ("waiting".to_owned(), 1));
        let second = take(conn, "e", LEASE).await[0].clone();
        assert_eq!(second.attempts, 1);
        // A person has the message sent again, and the first attempt turns out to have delivered
        // it.
        assert!(send_again(conn, &first.id).await);
        assert!(record(conn, &first, Follows::Delivered).await);
        for follows in [Follows::Again(Duration::ZERO), Follows::Failed] {
            assert!(!record(conn, &second, follows).await, "{follows:?}");
        }
        assert_eq!(state(conn, &first).await, ("delivered".to_owned(), 1));
        assert_eq!(take(conn, "e", LEASE).await, []);
    }

    async fn a_list_by_state_endpoint_and_pipeline_has_what_matches_of_the_whole_list(db: Db) {
        let mut driver = Driver::new(&db).await;
        let listens = endpoints(&[("a", &all()), ("b", &all())]);
        let mut finder = Finder::begin(&mut driver.conn, &listens).await.unwrap();
        for pipeline in ["P", "Q", "R", "P", "Q", "P"] {
            driver.trigger(&one(pipeline), "1").await;
            driver.work(pipeline, |_| Did::Returned(1.into())).await;
            look(&mut driver.conn, &mut finder).await;
        }
        let conn = &mut driver.conn;
        let taken = delivery::take(conn, &[("a", 9), ("b", 9)], LEASE).await.unwrap().due;
        let outcomes = [Follows::Delivered, Follows::Failed, Follows::Again(LEASE), Follows::Delivered];
        let attempts = taken.iter().flatten().zip(outcomes.into_iter().cycle());
        let attempts: Vec<Attempt> = attempts
            .map(|(due, follows)| Attempt { due, follows, status: None, error: None })
            .collect();
        delivery::record(conn, &attempts).await.unwrap();
        let whole = latest(conn, None).await;
        assert_eq!(whole.len(), 12);
        let states = [None, Some("waiting"), Some("delivered"), Some("failed")];
        let own = |names: &[&str]| Some(names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
        let mut found = 0;
        for state in states {
            for endpoint in [None, Some("a"), Some("b"), Some("none")] {
                for pipelines in [None, own(&[]), own(&["P"]), own(&["R", "Q"]), own(&["none"])] {
                    let matches = |it: &&Delivery| {
                        state.is_none_or(|state| it.state == state)
                            && endpoint.is_none_or(|endpoint| it.endpoint == endpoint)
                            && pipelines.as_ref().is_none_or(|own| own.contains(&it.pipeline))
                    };
                    let expected: Vec<Uuid> = whole.iter().filter(matches).map(|it| it.id).collect();
                    let mut filter = Filter {
                        state,
                        endpoint: endpoint.map(str::to_owned),
                        pipelines: pipelines.clone(),
                        ..newest(2)
                    };
                    let mut walked = Vec::new();
                    loop {
                        let page = delivery::latest(conn, &filter).await.unwrap();
                        walked.extend(page.iter().map(Listed::id));
                        filter.before = page.last().map(Listed::id);
                        if page.len() < 2 {
                            break;
                        }
                    }
                    assert_eq!(walked, expected, "{filter:?}");
                    found += walked.len();
                }
            }
        }
        assert!(found > 80, "{found}");
    }

    async fn what_waits_for_an_endpoint_is_told_apart_from_what_is_kept_for_one_that_is_gone(db: Db) {
        static LONG_AGO: Statement = Statement::new(
            "TEST_SEEN", "UPDATE ductwork_webhooks SET seen = seen - 3600000000 WHERE name = 'gone'");
        let mut driver = Driver::new(&db).await;
        let listens = endpoints(&[("gone", &all()), ("here", &all())]);
        let mut finder = Finder::begin(&mut driver.conn, &listens).await.unwrap();
        for _ in 0..3 {
            driver.trigger(&one("P"), "1").await;
        }
        driver.work("P", |_| Did::Returned(1.into())).await;
        look(&mut driver.conn, &mut finder).await;
        let conn = &mut driver.conn;
        let due = take(conn, "gone", LEASE).await;
        assert!(record(conn, &due[0], Follows::Delivered).await);
        let told = async |conn: &mut Conn, configured: &[&str]| -> Vec<(String, Option<u64>)> {
            let configured: Vec<String> = configured.iter().map(|it| (*it).to_owned()).collect();
            let now = query::now(conn).await.unwrap();
            let waits = delivery::unsent(conn, &configured).await.unwrap();
            let mut told: Vec<_> = waits.iter().map(|it| (it.oldest.endpoint.clone(), it.kept(now))).collect();
            told.sort();
            told
        };
        let expected = |n| vec![("gone".to_owned(), n), ("here".to_owned(), None)];
        assert_eq!(told(conn, &["here"]).await, expected(None), "a console has it, though it is not here");
        conn.execute(&LONG_AGO, &[]).await.unwrap();
        assert_eq!(told(conn, &["here"]).await, expected(Some(2)));
        assert_eq!(told(conn, &["here", "gone"]).await, expected(None));
    }

    async fn the_oldest_message_that_has_not_arrived_is_known_with_its_last_answer(db: Db) {
        let mut driver = Driver::new(&db).await;
        assert_eq!(oldest(&mut driver.conn).await, None);
        let due = one_waits(&mut driver).await;
        let unsent = oldest(&mut driver.conn).await.unwrap();
        assert_eq!((unsent.endpoint.as_str(), unsent.attempts, unsent.status), ("e", 0, None));
        assert!(record(&mut driver.conn, &due, Follows::Again(Duration::ZERO)).await);
        let unsent = oldest(&mut driver.conn).await.unwrap();
        assert_eq!((unsent.attempts, unsent.status, unsent.error.as_deref()), (1, Some(500), Some("no")));
        let due = Due { attempts: 1, ..due };
        assert!(record(&mut driver.conn, &due, Follows::Failed).await);
        assert_eq!(oldest(&mut driver.conn).await, None);
        // A message that a person wants sent again waits since then, or rather since its last
        // attempt.
        assert!(send_again(&mut driver.conn, &due.id).await);
        let unsent = oldest(&mut driver.conn).await.unwrap();
        let tried = deliveries(&mut driver.conn).await[0].tried_at;
        assert_eq!((unsent.attempts, Some(unsent.since)), (0, tried));
    }

    async fn deliveries_are_forgotten_with_their_runs(db: Db) {
        let mut driver = Driver::new(&db).await;
        let due = one_waits(&mut driver).await;
        let conn = &mut driver.conn;
        prune::prune(conn, LEASE, 9).await.unwrap();
        assert_eq!(deliveries(conn).await.len(), 1);
        assert_eq!(prune::prune(conn, Duration::ZERO, 9).await.unwrap(), 1);
        assert_eq!(deliveries(conn).await, []);
        assert!(!record(conn, &due, Follows::Delivered).await);
        assert!(!send_again(conn, &due.id).await);
    }
}

/// Only SQLite keeps a text that is no text. A walk meets the run again and again, and has to get behind it.
#[tokio::test]
async fn a_run_whose_row_is_damaged_keeps_no_message_and_no_trace_of_others_from_being_sent() {
    static DAMAGE: Statement = Statement::new(
        "TEST_DAMAGE_KEY",
        "UPDATE ductwork_runs SET trigger_key = CAST(x'ff' AS text) WHERE id = :id",
    );
    let db = Db::sqlite();
    let mut driver = Driver::new(&db).await;
    let listens = endpoints(&[("e", &all())]);
    let mut finder = Finder::begin(&mut driver.conn, &listens).await.unwrap();
    let mut tracer = Tracer::begin(&mut driver.conn).await.unwrap();
    let from = query::now(&mut driver.conn).await.unwrap() - 1_000_000;
    let asks = Pipeline::named("Q").start("A").dampen("sure?").chain("B");
    let asks = asks.build().unwrap();
    let mut runs = Vec::new();
    for definition in [&one("P"), &asks] {
        for _ in 0..2 {
            runs.push(driver.trigger(definition, "1").await);
        }
        driver
            .work(&definition.pipeline, |_| Did::Returned(1.into()))
            .await;
    }
    let [damaged, sound, damaged_too, asking] = runs[..] else {
        unreachable!()
    };
    let conn = &mut driver.conn;
    for run in [damaged, damaged_too] {
        let changed = conn.execute(&DAMAGE, &[("id", run.0.into())]).await;
        assert_eq!(changed.unwrap(), 1);
    }
    for expected in [vec![damaged, damaged_too], Vec::new()] {
        look(conn, &mut finder).await;
        let mut met = finder.take_damaged();
        met.sort();
        assert_eq!(met, expected, "each is said once");
        let told = deliveries(conn).await;
        let mut told: Vec<_> = told.iter().map(|it| (it.run, it.event.as_str())).collect();
        told.sort();
        assert_eq!(told, [(sound, "completed"), (asking, "dampened")]);
    }
    let Look::Runs(traces) = tracer.look(conn, &Definitions::default()).await.unwrap() else {
        panic!("a run has ended");
    };
    assert_eq!(traces.iter().map(|it| it.run).collect::<Vec<_>>(), [sound]);
    assert_eq!(tracer.take_damaged(), [damaged]);
    // A reader of changes needs no key.
    let begin = Behind {
        again: Cursor::at(from),
        on: Cursor::at(from),
    };
    let since = Since {
        started: begin,
        ended: begin,
        at_most: i64::MAX / 2,
        anew: 0,
    };
    let changes = event::changes(conn, since).await.unwrap();
    let ended: Vec<_> = changes.ended.changes.iter().map(|it| it.1.run).collect();
    assert_eq!(ended, [sound]);
    assert_eq!(changes.started.changes.len(), 4);
}

/// On PostgreSQL the column's type allows only valid ids.
#[tokio::test]
async fn a_message_whose_id_is_none_is_put_aside_and_the_others_are_sent() {
    static DAMAGE: Statement = Statement::new(
        "TEST_DAMAGE_ID",
        "UPDATE ductwork_deliveries SET id = substr(id, 1, :n) WHERE id = :id",
    );
    static ASIDE: Statement = Statement::new(
        "TEST_ASIDE",
        "SELECT state, due_at FROM ductwork_deliveries WHERE length(id) <> 16 ORDER BY length(id)",
    );
    let db = Db::sqlite();
    let mut driver = Driver::new(&db).await;
    let listens = endpoints(&[("e", &all())]);
    let mut finder = Finder::begin(&mut driver.conn, &listens).await.unwrap();
    for _ in 0..4 {
        driver.trigger(&one("P"), "1").await;
    }
    driver.work("P", |_| Did::Returned(1.into())).await;
    look(&mut driver.conn, &mut finder).await;
    let conn = &mut driver.conn;
    let first = take(conn, "e", Duration::ZERO).await;
    assert_eq!(first.len(), 4);
    assert!(record(conn, &first[0], Follows::Delivered).await);
    for (due, n) in first.iter().zip([9_i64, 10, 11]) {
        let args = [("id", due.id.into()), ("n", n.into())];
        assert_eq!(conn.execute(&DAMAGE, &args).await.unwrap(), 1);
    }
    let taken = delivery::take(conn, &[("e", 9)], Duration::ZERO)
        .await
        .unwrap();
    assert_eq!((taken.nameless, taken.aside.len()), (2, 0));
    assert_eq!(
        taken.due[0].iter().map(|it| it.id).collect::<Vec<_>>(),
        [first[3].id]
    );
    let taken = delivery::take(conn, &[("e", 9)], Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(
        (taken.nameless, taken.due[0].len()),
        (0, 1),
        "it is said once"
    );
    // A message that was already delivered stays as it is.
    let rows = conn.fetch(&ASIDE, &[]).await.unwrap();
    let aside: Vec<(String, Option<i64>)> = rows
        .iter()
        .map(|row| (row.get("state").unwrap(), row.get("due_at").unwrap()))
        .collect();
    let states = ["delivered", "failed", "failed"].map(|it| (it.to_owned(), None));
    assert_eq!(aside, states);
    // They appear in no list, and take the place of no other message.
    let listed = delivery::latest(conn, &newest(1)).await.unwrap();
    assert_eq!(
        listed.iter().map(Listed::id).collect::<Vec<_>>(),
        [first[3].id]
    );
    let failed = Filter {
        state: Some("failed"),
        ..newest(1)
    };
    assert_eq!(delivery::latest(conn, &failed).await.unwrap(), []);
}

on_servers! {
    async fn somebody_who_has_locked_a_message_holds_up_that_message_alone(db: Db) {
        let mut driver = Driver::new(&db).await;
        let listens = endpoints(&[("a", &all()), ("b", &all())]);
        let mut finder = Finder::begin(&mut driver.conn, &listens).await.unwrap();
        for pipeline in ["P", "Q", "Q"] {
            driver.trigger(&one(pipeline), "1").await;
            driver.work(pipeline, |_| Did::Returned(1.into())).await;
        }
        let conn = &mut driver.conn;
        look(conn, &mut finder).await;
        let all = deliveries(conn).await;
        let locked = all.iter().find(|it| it.pipeline == "P" && it.endpoint == "a").unwrap().id;
        let mut hold = db.conn().await;
        let lock = async |hold: &mut Conn| {
            for script in [
                "BEGIN",
                "SELECT 1 FROM ductwork_deliveries WHERE pipeline = 'P' AND endpoint = 'a' FOR UPDATE",
            ] {
                hold.script("HOLD", script).await.unwrap();
            }
        };
        lock(&mut hold).await;
        // It is the first one, and takes no place of the others.
        let mut taken = delivery::take(conn, &[("a", 2), ("b", 9)], LEASE).await.unwrap().due;
        assert_eq!(taken.iter().map(Vec::len).collect::<Vec<_>>(), [2, 3]);
        assert!(taken.iter().flatten().all(|it| it.id != locked));
        // A console that has read the message as due before.
        let leased = delivery::lease(conn, vec![locked], LEASE).await.unwrap();
        assert!(leased.is_empty());
        hold.script("COMMIT", "COMMIT").await.unwrap();
        taken.push(take(conn, "a", LEASE).await);
        assert_eq!(taken[2].iter().map(|it| it.id).collect::<Vec<_>>(), [locked]);
        lock(&mut hold).await;
        let attempts: Vec<Attempt> = taken
            .iter()
            .flatten()
            .map(|due| Attempt { due, follows: Follows::Delivered, status: Some(200), error: None })
            .collect();
        let recorded = delivery::record(conn, &attempts).await.unwrap();
        assert_eq!((recorded.len(), recorded.contains(&locked)), (5, false));
        hold.script("COMMIT", "COMMIT").await.unwrap();
        let recorded = delivery::record(conn, &attempts).await.unwrap();
        assert_eq!(recorded.into_iter().collect::<Vec<_>>(), [locked]);
    }

    async fn somebody_who_has_locked_a_run_holds_up_the_messages_about_that_run_alone(db: Db) {
        let mut driver = Driver::new(&db).await;
        let listens = endpoints(&[("e", &all())]);
        let mut finder = Finder::begin(&mut driver.conn, &listens).await.unwrap();
        let locked = driver.trigger(&one("P"), "1").await;
        driver.work("P", |_| Did::Returned(1.into())).await;
        let mut hold = db.conn().await;
        for script in ["BEGIN", "SELECT 1 FROM ductwork_runs WHERE status = 'completed' FOR UPDATE"] {
            hold.script("HOLD", script).await.unwrap();
        }
        let free = driver.trigger(&one("P"), "2").await;
        driver.work("P", |_| Did::Returned(1.into())).await;
        look(&mut driver.conn, &mut finder).await;
        let told: Vec<RunId> = deliveries(&mut driver.conn).await.iter().map(|it| it.run).collect();
        assert_eq!(told, [free]);
        hold.script("COMMIT", "COMMIT").await.unwrap();
        look(&mut driver.conn, &mut finder).await;
        let told: Vec<RunId> = deliveries(&mut driver.conn).await.iter().map(|it| it.run).collect();
        assert_eq!(told, [free, locked]);
    }
}
