//! Rows of a newer version, and work that does not progress.

use std::time::Duration;

use ductwork::definition::{Definition, Pipeline};
use ductwork::engine::actor::limits;
use ductwork::machine::stuck::{Stuck, stuck};
use ductwork::model::*;
use ductwork::store::advance::{self, GiveBack};
use ductwork::store::claim::{self, Claim, Claimed, Rest};
use ductwork::store::cursor::Cursor;
use ductwork::store::definition::{Definitions, LeftOut};
use ductwork::store::list::{self, RunFilter};
use ductwork::store::process::{self, Claimant, Counters, NewProcess};
use ductwork::store::statement::Statement;
use ductwork::store::trigger::{NewRun, trigger};
use ductwork::store::{Conn, Dialect, audit, query};
use serde_json::json;

use crate::driver::{Did, Driver, LEASE};
use crate::on_every_database;
use crate::support::Db;

/// Turns all definitions into those of a version that writes them differently.
async fn garble(conn: &mut Conn) {
    static GARBLE: Statement =
        Statement::new("GARBLE", "UPDATE ductwork_definitions SET body = :body");
    let body = [("body", r#"{"pipeline":"P","graph":[]}"#.into())];
    assert!(conn.execute(&GARBLE, &body).await.unwrap() > 0);
}

/// Makes them readable again for a process that knows this definition.
async fn ungarble(conn: &mut Conn, definition: &Definition) {
    static UNGARBLE: Statement = Statement::new(
        "UNGARBLE",
        "UPDATE ductwork_definitions SET body = :body WHERE digest = :digest",
    );
    let (body, digest) = (definition.canonical(), definition.digest());
    let args = [("body", (&body).into()), ("digest", (&digest).into())];
    assert_eq!(conn.execute(&UNGARBLE, &args).await.unwrap(), 1);
}

/// Claims as a process does: leaving out the executions that it could not read.
async fn claim_readable(driver: &mut Driver, n: usize) -> (Vec<Claimed>, Rest) {
    let (me, left_out) = (Claimant::new(driver.process), driver.definitions.left_out());
    let conn = &mut driver.conn;
    let claimed = claim::claim_behind(conn, Cursor::FIRST, me, "P", n, LEASE, &left_out).await;
    match claimed.unwrap() {
        (Claim::Taken(taken), rest) => (taken, rest),
        (Claim::Dead, _) => panic!("the process was declared dead"),
        (Claim::Paused, _) => panic!("the pipeline is paused"),
    }
}

fn one() -> Definition {
    Pipeline::named("P").start("A").build().unwrap()
}

/// Makes all times of a database this much older.
async fn age(conn: &mut Conn, by: Duration) {
    static DUE: Statement = Statement::new(
        "AGE_DUE",
        "UPDATE ductwork_availabilities SET due_at = due_at - :by",
    );
    static READY: Statement = Statement::new(
        "AGE_READY",
        "UPDATE ductwork_branches SET ready_at = ready_at - :by WHERE ready_at IS NOT NULL",
    );
    static OPENED: Statement = Statement::new(
        "AGE_OPENED",
        "UPDATE ductwork_transitions SET opened_at = opened_at - :by",
    );
    static LEASES: Statement = Statement::new(
        "AGE_LEASES",
        "UPDATE ductwork_executions SET lease_until = lease_until - :by",
    );
    static STARTED: Statement = Statement::new(
        "AGE_STARTED",
        "UPDATE ductwork_processes SET started_at = started_at - :by, worked_at = worked_at - :by",
    );
    let by = [("by", (by.as_micros() as i64).into())];
    for statement in [&DUE, &READY, &OPENED, &LEASES, &STARTED] {
        conn.execute(statement, &by).await.unwrap();
    }
}

async fn told(conn: &mut Conn) -> Vec<Stuck> {
    let facts = ductwork::store::stuck::facts(conn, Duration::from_secs(30)).await;
    stuck(&facts.unwrap())
}

async fn causes(conn: &mut Conn) -> Vec<(&'static str, Option<String>)> {
    let told = told(conn).await;
    told.into_iter().map(|it| (it.cause, it.pipeline)).collect()
}

async fn worker(conn: &mut Conn, role: Role, pipeline: &str) -> ProcessId {
    let id = ProcessId::new();
    let process = NewProcess {
        id,
        supervisor: None,
        role,
        pipeline: (role == Role::Worker).then(|| pipeline.to_owned()),
        host: "here".to_owned(),
        boot_id: "boot".to_owned(),
        pid_namespace: "ns".to_owned(),
        pid: 7,
        pid_started_at: 1,
    };
    process::register(conn, &process).await.unwrap();
    id
}

on_every_database! {
    async fn a_row_that_cannot_be_understood_is_claimed_apart_and_put_back_for_later(db: Db) {
        static VIA: Statement = Statement::new(
            "VIA",
            "UPDATE ductwork_steps SET via = 'teleport' WHERE run_id = :run",
        );
        let mut driver = Driver::new(&db).await;
        driver.audited = false;
        let bad = driver.trigger(&one(), "1").await;
        let good = driver.trigger(&one(), "2").await;
        driver.conn.execute(&VIA, &[("run", bad.0.into())]).await.unwrap();
        let me = Claimant::new(driver.process);
        let claimed = claim::claim_behind(&mut driver.conn, Cursor::FIRST, me, "P", 9, LEASE, &LeftOut::default()).await;
        let (Claim::Taken(taken), Rest { unread, .. }) = claimed.unwrap() else {
            panic!("the process was declared dead");
        };
        assert_eq!(taken.iter().map(|it| it.run_id).collect::<Vec<_>>(), [good]);
        assert_eq!(unread.len(), 1);
        assert!(unread[0].reason.contains("`teleport`"), "{}", unread[0].reason);
        // It is held, and is read back as unreadable.
        let held = claim::held(&mut driver.actor.conn, driver.actor.process).await.unwrap();
        assert_eq!((held.whole.len(), held.unread.len()), (1, 1));
        // Others may claim it at once; this process leaves it out, but nothing else of its
        // definition.
        let delay = driver.definitions.leave_out(unread[0].execution_id.0);
        let ids = [unread[0].execution_id];
        let back = claim::put_back(&mut driver.conn, me, "P", &ids, delay).await;
        assert_eq!((back.unwrap(), delay), (1, Duration::ZERO));
        let left_out = driver.definitions.left_out();
        for (left_out, found) in [(&left_out, false), (&LeftOut::default(), true)] {
            let due = claim::next_due(&mut driver.conn, "P", left_out).await.unwrap();
            assert_eq!(due.is_some(), found);
        }
        // Like any claim, it takes due executions of its pipeline, and no more than requested.
        let later = [NewRun { key: None, input: "1" }];
        trigger(&mut driver.conn, &one(), &later, LEASE).await.unwrap();
        driver.trigger(&Pipeline::named("Q").start("A").build().unwrap(), "1").await;
        let next = [driver.trigger(&one(), "3").await, driver.trigger(&one(), "4").await];
        for next in next {
            let (taken, rest) = claim_readable(&mut driver, 1).await;
            assert_eq!(taken.iter().map(|it| it.run_id).collect::<Vec<_>>(), [next]);
            assert_eq!(rest.unread, []);
        }
        let (taken, rest) = claim_readable(&mut driver, 9).await;
        assert_eq!(taken.len(), 0);
        assert_eq!(rest.unread, []);
    }

    /// The older process can claim first each time, like an idle process next to a busy one.
    async fn what_one_process_cannot_read_another_gets_at_once_and_the_first_claims_no_more(db: Db) {
        let newer = Pipeline::named("P").start("A").divide(["B", "C"]).combine("D").build().unwrap();
        let (mut old, mut new) = (Driver::new(&db).await, Driver::new(&db).await);
        let mut unread = Vec::new();
        for _ in 0..20 {
            unread.push(old.trigger(&newer, "1").await);
        }

        // It claims first, and gives all of them back.
        garble(&mut old.conn).await;
        let me = Claimant::new(old.process);
        let (taken, _) = claim_readable(&mut old, 16).await;
        assert_eq!(taken.len(), 16);
        let mut delay = Duration::ZERO;
        for claimed in &taken {
            let read = old.actor.definitions.read(&mut old.actor.conn, &claimed.definition).await.unwrap();
            delay = delay.max(read.unwrap_err().delay);
        }
        let ids: Vec<_> = taken.iter().map(|it| it.execution_id).collect();
        assert_eq!(claim::put_back(&mut old.conn, me, "P", &ids, delay).await.unwrap(), 16);
        ungarble(&mut old.conn, &newer).await;

        // It continues with the work that it can read; it neither claims the rest nor looks for it.
        let known = old.trigger(&one(), "2").await;
        let (taken, _) = claim_readable(&mut old, 9).await;
        assert_eq!(taken.iter().map(|it| it.run_id).collect::<Vec<_>>(), [known]);
        assert_eq!(claim_readable(&mut old, 9).await.0.len(), 0);
        let left_out = old.definitions.left_out();
        assert_eq!(claim::next_due(&mut old.conn, "P", &left_out).await.unwrap(), None);
        let ended = old.finished(taken.into_iter().next().unwrap(), Did::Returned(json!(1))).await;
        old.commit(&[ended]).await;

        // The other process gets them all, in their order, and without a wait.
        let (taken, _) = claim_readable(&mut new, 99).await;
        assert_eq!(taken.iter().map(|it| it.run_id).collect::<Vec<_>>(), unread);
        let mut finished = Vec::new();
        for claimed in taken {
            finished.push(new.finished(claimed, Did::Returned(json!(1))).await);
        }
        new.commit(&finished).await;

        // The same with branches: here the older process meets the definition in an advance.
        old.definitions = Definitions::default();
        garble(&mut old.conn).await;
        let branches = old.claim_branches(9).await;
        assert_eq!(branches.len(), 9);
        let advanced = old.advance(&branches).await;
        assert_eq!((advanced.moved, advanced.unreadable.len()), (0, 9));
        let delay = advanced.unreadable.iter().map(|(_, why)| why.delay).max().unwrap();
        assert_eq!(delay, Duration::ZERO);
        let why = GiveBack::Unreadable { message: "it is new", delay };
        let backoff = |_: &str, _| -> Duration { unreachable!("its own delay counts") };
        advance::give_back(&mut old.conn, &branches, why, &backoff).await.unwrap();
        ungarble(&mut old.conn, &newer).await;
        assert_eq!(old.claim_branches(99).await, []);
        let branches = new.claim_branches(99).await;
        assert_eq!(branches.len(), 20);
        assert_eq!(new.advance(&branches).await.moved, 20);
        new.work("P", |_| Did::Returned(json!(1))).await;
        for run in unread {
            assert_eq!(new.run(run).await.0, RunStatus::Completed);
        }
    }

    async fn an_idle_process_that_has_told_why_it_takes_nothing_breaks_no_invariant(db: Db) {
        let conn = &mut db.conn().await;
        for role in [Role::Worker, Role::Advancer] {
            let mut driver = Driver::new(&db).await;
            driver.audited = false;
            let split = Pipeline::named("P").start("A").divide(["B", "C"]).combine("D").build().unwrap();
            driver.trigger(&split, "1").await;
            if role == Role::Advancer {
                let claimed = driver.claim("P", 1).await.remove(0);
                let ended = driver.finished(claimed, Did::Returned(json!(1))).await;
                driver.commit(&[ended]).await;
            }
            let idle = worker(conn, role, "P").await;
            age(conn, Duration::from_secs(61)).await;
            process::beat(conn, idle, Role::Worker, Counters::default(), Intake::Open).await.unwrap();
            let found = async |conn: &mut Conn| -> Vec<ProcessId> {
                let found = audit::audit(conn, audit::GRACE).await.unwrap();
                let idle = found.into_iter().filter(|it| it.invariant == "I26");
                idle.map(|it| ProcessId(it.id)).collect()
            };
            assert!(found(conn).await.contains(&idle), "{role:?}");
            let why = Some(("it is new", Duration::from_secs(65)));
            process::report_trouble(conn, idle, why).await.unwrap();
            assert!(!found(conn).await.contains(&idle), "{role:?}");
        }
    }

    async fn what_a_dead_process_held_is_recovered_though_its_definition_cannot_be_read(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.limits = limits(0, 2);
        let run = driver.trigger(&one(), "1").await;
        garble(&mut driver.conn).await;
        for crash in 1..=2 {
            assert_eq!(driver.claim("P", 1).await.len(), 1);
            driver.definitions = Default::default();
            let recovered = driver.recover(driver.process).await;
            assert_eq!((recovered.again, recovered.failed), if crash == 1 { (1, 0) } else { (0, 1) });
            assert!(crash == 2 || recovered.pipelines.contains("P"), "{recovered:?}");
            driver.process = crate::driver::register(&mut driver.conn).await;
        }
        // The branch waits for a process that can read its next step, and is left out meanwhile.
        assert_eq!(driver.claim_branches(9).await, []);
        driver.definitions = Default::default();
        let branches = driver.claim_branches(9).await;
        let advanced = driver.advance(&branches).await;
        assert_eq!((advanced.moved, advanced.unreadable.len()), (0, 1));
        assert_eq!(driver.run(run).await.0, RunStatus::InProgress);
        assert!(audit::audit(&mut driver.conn, audit::GRACE).await.unwrap().is_empty());
    }

    async fn of_a_batch_only_the_branches_that_can_be_read_are_advanced(db: Db) {
        let mut driver = Driver::new(&db).await;
        let split = Pipeline::named("P").start("A").divide(["B", "C"]).combine("D").build().unwrap();
        let mut other = split.clone();
        other.on_halt = Some("B".to_owned());
        let bad = driver.trigger(&other, "1").await;
        garble(&mut driver.conn).await;
        let good = driver.trigger(&split, "1").await;
        let claimed = driver.claim("P", 9).await;
        let mut finished = Vec::new();
        for claimed in claimed {
            // An execution that has run had been read by the process that ran it.
            let digest = claimed.definition.clone();
            let mut claimed = claimed;
            claimed.definition = split.digest();
            let mut did = driver.finished(claimed, Did::Returned(json!(1))).await;
            std::sync::Arc::make_mut(&mut did.claimed).definition = digest;
            finished.push(did);
        }
        driver.commit(&finished).await;
        let branches = driver.claim_branches(9).await;
        assert_eq!(branches.len(), 2);
        let advanced = driver.advance(&branches).await;
        assert_eq!((advanced.moved, advanced.unreadable.len()), (1, 1));
        assert!(advanced.crossed.available.contains("P"));
        let (branch, why) = advanced.unreadable[0].clone();
        let message = why.to_string();
        let delay = Duration::from_secs(100);
        let why = GiveBack::Unreadable { message: &message, delay };
        let backoff = |_: &str, _| -> Duration { unreachable!("its own delay counts") };
        advance::give_back(&mut driver.conn, &[branch], why, &backoff).await.unwrap();
        driver.audit().await;
        let next = advance::next_ready(&mut driver.conn).await.unwrap().unwrap();
        assert!(next > Duration::from_secs(90), "{next:?}");
        // It is reported only once it has lasted.
        assert!(told(&mut driver.conn).await.is_empty());
        age(&mut driver.conn, Duration::from_secs(61)).await;
        let told = told(&mut driver.conn).await;
        let tried = told.iter().find(|it| it.cause == "not_advanced").expect("it is told");
        assert_eq!(tried.run_id, Some(bad));
        assert!(tried.fact.contains("is damaged in the database"), "{}", tried.fact);
        assert_ne!(good, bad);
    }

    async fn what_nobody_moves_for_a_minute_is_told_and_a_backlog_is_not(db: Db) {
        let conn = &mut db.conn().await;
        for (name, n) in [("P", 3), ("Q", 2), ("R", 1)] {
            let definition = Pipeline::named(name).start("A").build().unwrap();
            for _ in 0..n {
                ductwork::store::trigger::trigger(
                    conn, &definition, &[ductwork::store::trigger::NewRun { key: None, input: "1" }], Duration::ZERO,
                ).await.unwrap();
            }
        }
        assert!(told(conn).await.is_empty(), "all of it has just come");
        age(conn, Duration::from_secs(61)).await;
        let nobody = |names: &[&str]| -> Vec<_> {
            names.iter().map(|name| ("no_worker", Some((*name).to_owned()))).collect()
        };
        let sorted = |mut causes: Vec<(&'static str, Option<String>)>| {
            causes.sort();
            causes
        };
        assert_eq!(sorted(causes(conn).await), nobody(&["P", "Q", "R"]));
        // A worker that has just started may still take it.
        let (p, q) = (worker(conn, Role::Worker, "P").await, worker(conn, Role::Worker, "Q").await);
        assert_eq!(causes(conn).await, nobody(&["R"]));
        // One works, the other does nothing.
        age(conn, Duration::from_secs(61)).await;
        let one = Counters { claimed: 1, ..Counters::default() };
        process::beat(conn, p, Role::Worker, one, Intake::Open).await.unwrap();
        process::beat(conn, q, Role::Worker, Counters::default(), Intake::Open).await.unwrap();
        let idle = ("not_taken", Some("Q".to_owned()));
        assert_eq!(sorted(causes(conn).await), [nobody(&["R"]).remove(0), idle.clone()]);
        // A beat without new counts is no sign of work; a long execution is.
        age(conn, Duration::from_secs(61)).await;
        process::beat(conn, p, Role::Worker, one, Intake::Open).await.unwrap();
        let told = sorted(causes(conn).await);
        assert_eq!(told, [nobody(&["R"]).remove(0), ("not_taken", Some("P".to_owned())), idle.clone()]);
        claim::claim(conn, Claimant::new(p), "P", 1, LEASE).await.unwrap();
        assert_eq!(sorted(causes(conn).await), [nobody(&["R"]).remove(0), idle]);
        // It reports the trouble itself, and later its end.
        let why = Some(("it is new", Duration::from_secs(65)));
        process::report_trouble(conn, q, why).await.unwrap();
        let told = self::told(conn).await;
        let trouble = told.iter().find(|it| it.cause == "trouble").expect("it is told");
        assert!(trouble.fact.contains("has been unable to proceed for 1m 5s: it is new"), "{}", trouble.fact);
        assert_eq!(told.len(), 2, "{told:#?}");
        process::report_trouble(conn, q, None).await.unwrap();
        assert!(self::told(conn).await.iter().all(|it| it.cause != "trouble"));
        // No process recovers its executions.
        age(conn, LEASE + Duration::from_secs(61)).await;
        let told = causes(conn).await;
        assert!(told.contains(&("not_recovered", Some("P".to_owned()))), "{told:?}");
    }

    async fn a_run_is_shown_with_the_words_of_a_newer_version(db: Db) {
        static VIA: Statement = Statement::new("VIA", "UPDATE ductwork_steps SET via = 'teleport'");
        static REASON: Statement = Statement::new(
            "REASON",
            "UPDATE ductwork_branches SET halt_reason = 'bored' WHERE halt_reason IS NOT NULL",
        );
        let mut driver = Driver::new(&db).await;
        let run = driver.trigger(&one(), "1").await;
        driver.work("P", |_| Did::Refused).await;
        for statement in [&VIA, &REASON] {
            assert_eq!(driver.conn.execute(statement, &[]).await.unwrap(), 1);
        }
        let conn = &mut driver.conn;
        let shown = query::show(conn, run, 10, usize::MAX).await.unwrap().unwrap();
        assert_eq!(shown.steps[0].via, "teleport");
        assert_eq!(shown.run.halt_reasons, ["bored"]);
        assert_eq!(query::progress(conn, run).await.unwrap()[0].via, "teleport");
        let facts = ductwork::store::why::facts(conn, run, LEASE, &Definitions::default()).await.unwrap().unwrap();
        assert!(ductwork::machine::why::why(&facts).fact.contains("bored"));
    }

    async fn a_run_in_a_state_of_a_newer_version_hides_no_other_from_a_list(db: Db) {
        static STATE: Statement = Statement::new(
            "STATE",
            "UPDATE ductwork_runs SET status = 'paused' WHERE id = :id",
        );
        let mut driver = Driver::new(&db).await;
        let run = driver.trigger(&one(), "1").await;
        let newer = driver.trigger(&one(), "1").await;
        let conn = &mut driver.conn;
        let allow = match conn.dialect() {
            Dialect::Postgres => "ALTER DOMAIN ductwork_run_status DROP CONSTRAINT ductwork_run_status_check",
            Dialect::Sqlite => "PRAGMA ignore_check_constraints = 1",
            Dialect::Mysql => "ALTER TABLE ductwork_runs DROP CONSTRAINT ductwork_runs_status",
        };
        conn.script("allow", allow).await.unwrap();
        assert_eq!(conn.execute(&STATE, &[("id", newer.0.into())]).await.unwrap(), 1);
        let all = RunFilter {
            pipeline: None,
            key: None,
            statuses: &[],
            since: None,
            before: None,
            limit: 9,
            whole: query::WHOLE,
        };
        let listed = list::runs(conn, &all).await.unwrap();
        assert_eq!(listed.iter().map(|run| run.id).collect::<Vec<_>>(), [run]);
    }

    async fn a_process_of_a_role_that_only_a_newer_version_knows_is_left_to_that_version(db: Db) {
        static ROLE: Statement = Statement::new(
            "ROLE",
            "UPDATE ductwork_processes SET role = 'librarian' WHERE id = :id",
        );
        let conn = &mut db.conn().await;
        let allow = match conn.dialect() {
            Dialect::Postgres => "ALTER DOMAIN ductwork_process_role DROP CONSTRAINT ductwork_process_role_check",
            Dialect::Sqlite => "PRAGMA ignore_check_constraints = 1",
            Dialect::Mysql => "ALTER TABLE ductwork_processes DROP CONSTRAINT ductwork_processes_role",
        };
        conn.script("allow", allow).await.unwrap();
        let (known, newer) = (worker(conn, Role::Worker, "P").await, worker(conn, Role::Worker, "P").await);
        conn.execute(&ROLE, &[("id", newer.0.into())]).await.unwrap();
        let rows = process::processes(conn).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [known]);
        assert!(told(conn).await.is_empty());
    }
}
