//! Faults in a working daemon.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ductwork::store::statement::Statement;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Fault, armed, to_come};
use crate::clock::Clock;
use crate::fixture::*;
use crate::foreign::Foreign;
use crate::on_every_database;
use crate::support::{self, Db};

const WORK: &str = r#"
pipeline: Work
steps:
  Split: { command: [sh, step.sh] }
  Each:  { command: [sh, step.sh] }
  Join:  { command: [sh, step.sh] }
  Last:  { command: [sh, step.sh] }
flow:
  - start: Split
  - expand: Each
  - collapse: Join
  - chain: Last
"#;

const STEP: &str = r#"
[ -z "$DUCTWORK_FAIL$DUCTWORK_FAIL_LOG" ] || exit 1
input=$(cat)
sleep 0.02
echo "$input"
"#;

/// The points in a daemon at which a transaction can be interrupted.
const BEGINNINGS: [&str; 7] = [
    "claim.begin",
    "commit.begin",
    "branches.begin",
    "advance.begin",
    "beat.begin",
    "register.begin",
    "recover.begin",
];
const MIDDLES: [&str; 14] = [
    "branches.claimed",
    "branches.opened",
    "advance.loaded",
    "cross.left",
    "cross.chunk",
    "cross.made",
    "cross.arriving",
    "cross.arrived",
    "cross.fired",
    "cross.recorded",
    "branches.written",
    "advance.written",
    "recover.removed",
    "recover.written",
];
/// On PostgreSQL this is one statement, which has no middle.
const MIDDLES_IN_TURN: [&str; 3] = ["claim.taken", "claim.written", "commit.guarded"];
const ENDS: [&str; 7] = [
    "claim.end",
    "commit.end",
    "branches.end",
    "advance.end",
    "beat.end",
    "register.end",
    "recover.end",
];

/// The way in which a database executes a claim and a commit.
#[derive(Clone, Copy, PartialEq)]
enum On {
    /// In one statement: PostgreSQL.
    Joined,
    /// In several statements: SQLite and MySQL.
    InTurn,
}

fn each(points: &[&'static str], action: &'static str) -> Vec<Fault> {
    points.iter().map(|point| (*point, action)).collect()
}

fn interruptible(on: On) -> Vec<&'static str> {
    let more: &[&str] = match on {
        On::InTurn => &MIDDLES_IN_TURN,
        On::Joined => &[],
    };
    [&BEGINNINGS, &MIDDLES[..], more].concat()
}

fn unavailable(on: On) -> Vec<Fault> {
    let mut faults = each(&interruptible(on), "error(unavailable)");
    faults.extend(each(
        &["exec.fork", "supervisor.fork"],
        "error(unavailable)",
    ));
    faults
}

fn retryable(on: On) -> Vec<Fault> {
    each(&interruptible(on), "error(retryable)")
}

fn refused(on: On) -> Vec<Fault> {
    each(&interruptible(on), "error(refused)")
}

fn cut(on: On) -> Vec<Fault> {
    each(&interruptible(on), "droptx")
}

fn acknowledgement_lost(_: On) -> Vec<Fault> {
    let mut faults = each(&ENDS, "acklost");
    // A worker that asks for the fate of its commit may fail again.
    faults.push(("landed.begin", "error(unavailable)"));
    faults
}

/// The clock moves back and forth by an hour, amid everything that reads or writes a time.
fn clocks(on: On) -> Vec<Fault> {
    let mut faults = vec![
        ("claim.begin", "clock(3600)"),
        ("commit.begin", "clock(-3600)"),
        ("commit.end", "clock(60)"),
        ("branches.claimed", "clock(3600)"),
        ("advance.loaded", "clock(-3600)"),
        ("cross.made", "clock(0)"),
        ("beat.end", "clock(3600)"),
        ("recover.removed", "clock(-3600)"),
    ];
    if on == On::InTurn {
        faults.push(("claim.taken", "clock(-60)"));
    }
    faults
}

/// A few deaths of each child: with more deaths in a minute, a child would have to wait for its
/// replacement.
fn deaths(on: On) -> Vec<Vec<Fault>> {
    let mut groups = vec![
        each(
            &["claim.begin", "claim.end", "branches.begin", "branches.end"],
            "kill9",
        ),
        each(
            &["commit.begin", "commit.end", "advance.begin", "advance.end"],
            "kill9",
        ),
        [
            each(&["branches.written", "advance.written"], "kill9"),
            each(&["exec.fork", "exec.spawned"], "abort"),
        ]
        .concat(),
        [
            each(&["exec.ended", "register.end"], "kill9"),
            vec![("child.start", "exit(7)")],
        ]
        .concat(),
        each(&["recover.begin", "recover.removed"], "kill9"),
        each(&["recover.written", "recover.end"], "kill9"),
        each(&["beat.begin", "beat.end", "register.begin"], "kill9"),
        each(
            &[
                "supervisor.fork",
                "supervisor.forked",
                "supervisor.reaped",
                "supervisor.stopping",
            ],
            "kill9",
        ),
        each(&MIDDLES[..5], "kill9"),
        each(&MIDDLES[5..10], "kill9"),
    ];
    if on == On::InTurn {
        groups.push(each(&MIDDLES_IN_TURN, "kill9"));
    }
    groups
}

/// The file system does not answer a supervisor that reads its files again.
const WHILE_READING: &str = "supervisor.reading";

/// Every fault that a test in this file makes.
pub fn all() -> Vec<Fault> {
    let rare = [
        AROUND_A_STEP.to_vec(),
        AROUND_A_CHILD.to_vec(),
        vec![(WHILE_READING, "pause")],
    ]
    .concat();
    let mut all = [deaths(On::InTurn).concat(), rare].concat();
    let kinds = [
        unavailable,
        retryable,
        refused,
        cut,
        acknowledgement_lost,
        clocks,
    ];
    for faults in kinds {
        all.extend(faults(On::InTurn));
    }
    all
}

/// Lets a daemon work until each fault has happened, and then to the end; a process that dies is
/// replaced.
async fn survived(db: Db, faults: Vec<Fault>) {
    let settings = Settings {
        reaper_timeout: "2s",
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::new(&db, settings, &[WORK]).await;
    std::fs::write(fixture.path("step.sh"), STEP).unwrap();
    fixture.variables = armed(&fixture, &faults);
    let sets_it = |(_, action): &Fault| action.starts_with("clock");
    let clock = faults.iter().any(sets_it).then(Clock::new);
    if let Some(clock) = &clock {
        fixture.variables.extend(clock.variables());
    }
    fixture.trigger("Work", "[1,2,3]", 3).await;
    let mut daemon = fixture.start();
    if let Some(clock) = &clock {
        daemon.ready().await;
        assert!(
            clock.governs(daemon.pid()),
            "it does not live by that clock"
        );
    }
    let corpse = |point: &str| point.starts_with("recover") || point == "supervisor.reaped";
    let mut killed = None;
    let began = Instant::now();
    loop {
        let mut left = to_come(&fixture, &faults);
        left.retain(|(point, _)| *point != "supervisor.stopping");
        if left.is_empty() {
            break;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "did not happen: {left:?}\n{}",
            daemon.text()
        );
        if daemon.has_ended().is_some() {
            daemon = fixture.start();
            killed = None;
        }
        // Leaves something to recover, if no other process dies.
        let worker = daemon.children("worker Work").first().copied();
        if let Some(pid) = worker
            && worker != killed
            && left.iter().any(|(point, _)| corpse(point))
        {
            let held = fixture.executions().await;
            if held
                .iter()
                .any(|it| it.process_id.is_some() && it.result.is_none())
            {
                killed = worker;
                // Another fault may have been faster.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        let open = fixture.executions().await;
        if open.iter().all(|it| it.result.is_some()) {
            fixture.trigger("Work", "[1,2,3]", 1).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A fault is logged before it happens, so the last one may be yet to come.
    while !fixture.all_ended().await {
        assert!(
            began.elapsed() < 2 * PATIENCE,
            "the runs have not ended\n{}",
            daemon.text()
        );
        if daemon.has_ended().is_some() {
            daemon = fixture.start();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    fixture.completed(PATIENCE).await;
    if daemon.has_ended().is_some() {
        daemon = fixture.start();
    }
    daemon.ready().await;
    daemon.send(Signal::SIGTERM);
    let (status, _) = daemon.ended(PATIENCE).await;
    if faults
        .iter()
        .any(|(point, _)| *point == "supervisor.stopping")
    {
        assert!(
            !status.success(),
            "it was killed while it stopped: {status}"
        );
        daemon = fixture.start();
        daemon.ready().await;
        daemon.stop().await;
    } else {
        assert!(status.success(), "{status}");
    }
    daemon.text();
    assert_eq!(to_come(&fixture, &faults), []);
    fixture.audited().await;
    fixture.succeeded_once_each().await;
}

macro_rules! survives {
    ($(fn $name:ident($on:ident) { $faults:expr })*) => {$(
        mod $name {
            use super::*;

            #[tokio::test]
            async fn sqlite() {
                let faults = |$on: On| -> Vec<Fault> { $faults };
                support::with(Db::sqlite(), move |db| survived(db, faults(On::InTurn))).await;
            }

            #[tokio::test]
            async fn postgres() {
                let faults = |$on: On| -> Vec<Fault> { $faults };
                support::with(Db::postgres().await, move |db| survived(db, faults(On::Joined))).await;
            }

            #[tokio::test]
            async fn mysql() {
                let faults = |$on: On| -> Vec<Fault> { $faults };
                support::with(Db::mysql().await, move |db| survived(db, faults(On::InTurn))).await;
            }
        }
    )*};
}

survives! {
    fn a_database_that_cannot_be_reached_anywhere_costs_no_retry(on) { unavailable(on) }
    fn a_deadlock_anywhere_costs_no_retry(on) { retryable(on) }
    fn a_statement_that_is_refused_anywhere_costs_no_retry(on) { refused(on) }
    fn a_connection_that_is_cut_anywhere_costs_no_retry(on) { cut(on) }
    fn a_clock_that_is_set_anywhere_costs_no_retry(on) { clocks(on) }
    fn an_acknowledgement_that_is_lost_is_found_out_about(on) { acknowledgement_lost(on) }
    fn whoever_dies_around_a_claim_is_replaced(on) { deaths(on)[0].clone() }
    fn whoever_dies_around_a_commit_or_an_advance_is_replaced(on) { deaths(on)[1].clone() }
    fn whoever_dies_in_the_middle_of_something_is_replaced(on) { deaths(on)[2].clone() }
    fn whoever_dies_at_the_end_of_a_step_or_at_its_start_is_replaced(on) { deaths(on)[3].clone() }
    fn whoever_dies_at_the_start_of_a_recovery_leaves_it_to_the_next(on) { deaths(on)[4].clone() }
    fn whoever_dies_at_the_end_of_a_recovery_leaves_it_to_the_next(on) { deaths(on)[5].clone() }
    fn whoever_dies_around_a_heartbeat_is_replaced(on) { deaths(on)[6].clone() }
    fn a_supervisor_may_die_around_a_fork_and_while_it_stops(on) { deaths(on)[7].clone() }
    fn whoever_dies_between_a_claim_and_a_fan_out_is_replaced(on) { deaths(on)[8].clone() }
    fn whoever_dies_around_a_barrier_is_replaced(on) { deaths(on)[9].clone() }
}

/// More than a pipe holds, in both directions.
const BIG: &str = r#"
pipeline: Big
steps: { A: { command: [cat] }, B: { command: [cat] } }
flow: [{ start: A }, { chain: B }]
"#;

/// Its first attempts hang, and ignore SIGTERM.
const HANGING: &str = r#"
pipeline: Hanging
steps:
  A:
    command:
      - sh
      - -c
      - |
        [ "$DUCTWORK_ATTEMPT" -gt 2 ] && exec cat
        trap "" TERM
        while :; do sleep 0.05; done
    timeout: 3s
flow: [{ start: A }]
"#;

/// While a step reads or writes, and while it is being ended.
const AROUND_A_STEP: [Fault; 4] = [
    ("exec.half_fed", "kill9"),
    ("exec.half_read", "abort"),
    ("exec.ending", "kill9"),
    ("exec.killing", "kill9"),
];

/// Before a child that stands still is killed, and between the end of the old children and the
/// start of the new ones.
const AROUND_A_CHILD: [Fault; 2] = [
    ("supervisor.killing", "kill9"),
    ("supervisor.replacing", "kill9"),
];

/// A pipe, and the action that waits until something is written to it.
fn pause_in(place: &Path) -> (PathBuf, &'static str) {
    let fifo = place.join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let action = format!("pause({})", fifo.display()).leak();
    (fifo, action)
}

/// A daemon stopped at one fault, with work for it; a process that stands still for longer than the lease is replaced.
async fn at_fault(db: &Db, lease: &'static str, fault: Fault) -> (DaemonFixture, Daemon) {
    let settings = Settings {
        reaper_timeout: lease,
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::new(db, settings, &[WORK]).await;
    std::fs::write(fixture.path("step.sh"), STEP).unwrap();
    fixture.variables = armed(&fixture, &[fault]);
    fixture.trigger("Work", "[1,2,3]", 1).await;
    let daemon = fixture.start();
    eventually(PATIENCE, "the fault has happened", async || {
        to_come(&fixture, &[fault]).is_empty().then_some(())
    })
    .await;
    (fixture, daemon)
}

on_every_database! {
    /// A step that was cut short with its worker yields no result, and no error either.
    async fn whoever_dies_while_a_step_reads_writes_or_is_ended_is_replaced(db: Db) {
        let settings = Settings { reaper_timeout: "2s", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[BIG, HANGING]).await;
        fixture.variables = armed(&fixture, &AROUND_A_STEP);
        let big = "x".repeat(300 << 10);
        let run = fixture.trigger("Big", &format!("\"{big}\""), 1).await[0];
        fixture.trigger("Hanging", "1", 1).await;
        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        assert_eq!(to_come(&fixture, &AROUND_A_STEP), []);
        daemon.stop().await;
        assert_eq!(fixture.output(run).await, big.as_str());
        let executions = fixture.succeeded_once_each().await;
        let crashed = executions.iter().filter(|e| e.result() == "process_crashed");
        assert_eq!(crashed.count(), AROUND_A_STEP.len(), "{executions:#?}");
        fixture.audited().await;
    }

    /// The worker stands still as a whole: no heartbeat, no commit.
    async fn a_worker_that_stands_still_before_its_commit_is_replaced(db: Db) {
        let (mut fixture, mut daemon) = at_fault(&db, "2s", ("commit.begin", "sleep(3600000)")).await;
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        let crashed = executions.iter().filter(|it| it.result() == "process_crashed");
        assert_eq!(crashed.count(), 1);
        fixture.audited().await;
    }

    async fn a_supervisor_may_die_before_it_kills_and_in_the_middle_of_a_reload(db: Db) {
        let settings = Settings { reaper_timeout: "2s", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[WORK]).await;
        std::fs::write(fixture.path("step.sh"), STEP).unwrap();
        fixture.variables = armed(&fixture, &AROUND_A_CHILD);
        fixture.trigger("Work", "[1,2,3]", 3).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let frozen = daemon.child("worker Work", None).await;
        send(frozen, Signal::SIGSTOP);
        let (status, _) = daemon.ended(PATIENCE).await;
        assert!(!status.success(), "{status}");
        assert_eq!(to_come(&fixture, &AROUND_A_CHILD), AROUND_A_CHILD[1..]);

        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Work", "[1,2,3]", 3).await;
        daemon.send(Signal::SIGUSR2);
        let (status, _) = daemon.ended(PATIENCE).await;
        assert!(!status.success(), "{status}");
        assert_eq!(to_come(&fixture, &AROUND_A_CHILD), []);

        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
        assert!(!lives(frozen), "the one that stood still has been left behind");
    }

    /// The supervisor beats, and replaces a child that dies. In the end, the files answer.
    async fn files_that_do_not_answer_stop_a_reload_and_nothing_else(db: Db) {
        let place = tempfile::tempdir().unwrap();
        let (fifo, pause) = pause_in(place.path());
        let settings = Settings { reaper_timeout: "2s", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[WORK]).await;
        std::fs::write(fixture.path("step.sh"), STEP).unwrap();
        let faults = [(WHILE_READING, pause)];
        fixture.variables = armed(&fixture, &faults);
        let mut daemon = fixture.start();
        daemon.ready().await;
        daemon.send(Signal::SIGHUP);
        daemon.says("not reloaded").await;
        // A second reload is answered as well.
        daemon.send(Signal::SIGHUP);
        let said = daemon.says_times("not reloaded", 2).await;
        assert!(said[1]["problems"].as_str().unwrap().contains("does not answer"), "{said:#?}");
        assert_eq!(to_come(&fixture, &faults), []);
        let worker = daemon.child("worker Work", None).await;
        send(worker, Signal::SIGKILL);
        daemon.child("worker Work", Some(worker)).await;
        fixture.trigger("Work", "[1,2,3]", 1).await;
        fixture.completed(PATIENCE).await;
        let health = fixture.run(&[], &["health"]);
        let health = String::from_utf8(health.stderr).unwrap();
        assert!(health.contains("has been working with an old configuration"), "{health}");
        // It is read once more, after the files have answered.
        daemon.send(Signal::SIGHUP);
        std::fs::write(&fifo, "go on").unwrap();
        daemon.says("configuration reloaded").await;
        eventually_every(SELDOM, PATIENCE, "`health` has nothing to tell", async || {
            (fixture.run(&[], &["health"]).status.code() == Some(0)).then_some(())
        })
        .await;
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        // A daemon that is told to end does not wait for the files.
        std::fs::remove_file(fixture.path("hits")).unwrap();
        let mut daemon = fixture.start();
        daemon.ready().await;
        daemon.send(Signal::SIGHUP);
        eventually(PATIENCE, "it reads its files", async || {
            to_come(&fixture, &faults).is_empty().then_some(())
        })
        .await;
        daemon.stop().await;
        fixture.audited().await;
    }

    /// The worker is told to end while it claims, and never learns which executions it was given.
    async fn what_a_worker_was_given_without_its_knowledge_is_put_back_before_it_ends(db: Db) {
        let place = tempfile::tempdir().unwrap();
        let (fifo, pause) = pause_in(place.path());
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
        std::fs::write(fixture.path("step.sh"), STEP).unwrap();
        let faults = [("claim.begin", pause), ("claim.end", "acklost")];
        fixture.variables = armed(&fixture, &faults);
        fixture.trigger("Work", "[1,2,3]", 1).await;
        let mut daemon = fixture.start();
        eventually(PATIENCE, "it is about to claim", async || {
            to_come(&fixture, &faults[..1]).is_empty().then_some(())
        })
        .await;
        daemon.send(Signal::SIGTERM);
        eventually(PATIENCE, "the other child has ended as it was told", async || {
            daemon.children("advancer").is_empty().then_some(())
        })
        .await;
        std::fs::write(&fifo, "go on").unwrap();
        let (status, _) = daemon.ended(PATIENCE).await;
        assert!(status.success(), "{status}: {}", daemon.text());
        assert_eq!(to_come(&fixture, &faults), []);
        let executions = fixture.executions().await;
        assert!(executions.iter().all(|it| it.result.is_none()), "{executions:#?}");
        fixture.variables.clear();
        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert!(executions.iter().all(|it| it.attempt == 1), "{executions:#?}");
        fixture.audited().await;
    }

    /// Its worker retries it again and again: no other process may find an expired lease.
    async fn a_result_that_the_database_does_not_take_is_held_as_long_as_its_worker_lives(db: Db) {
        static LEASED: Statement = Statement::new(
            "TEST_LEASED",
            "SELECT lease_until - {now} AS leased
               FROM ductwork_executions WHERE id = :id AND result IS NULL",
        );
        let settings = Settings { reaper_timeout: "2s", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[WORK]).await;
        std::fs::write(fixture.path("step.sh"), STEP).unwrap();
        // Each refusal is followed by a second's wait.
        let refusals = "commit.begin=error(refused)";
        fixture.variables = armed(&fixture, &[]);
        fixture.variables.insert("DUCTWORK_FAIL", refusals.to_owned());
        fixture.trigger("Work", "[1,2,3]", 1).await;
        let mut daemon = fixture.start();
        eventually(PATIENCE, "its first lease is over", async || {
            (fixture.lines("hits").len() > 4).then_some(())
        })
        .await;
        let first = fixture.executions().await[0].id;
        let args = [("id", first.into())];
        eventually(PATIENCE, "it is held by a later one", async || {
            let open = fixture.conn.fetch_optional(&LEASED, &args).await.unwrap();
            let open = open.expect("it is never committed");
            (open.get::<i64>("leased").unwrap() > 0).then_some(())
        })
        .await;
        daemon.send(Signal::SIGKILL);
        daemon.ended(PATIENCE).await;
        fixture.variables.clear();
        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        let crashed = executions.iter().filter(|it| it.result() == "process_crashed");
        assert_eq!(crashed.count(), 1, "{executions:#?}");
        fixture.audited().await;
    }

    /// The advancer reads its claims back each time, which is no progress.
    async fn an_advancer_that_fails_again_and_again_waits_longer_and_says_so_once(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
        std::fs::write(fixture.path("step.sh"), STEP).unwrap();
        fixture.variables = armed(&fixture, &[]);
        let outages = "advance.begin=6*error(unavailable)";
        fixture.variables.insert("DUCTWORK_FAIL", outages.to_owned());
        fixture.trigger("Work", "[1,2,3]", 1).await;
        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        assert_eq!(fixture.lines("hits").len(), 6);
        assert_eq!(daemon.logged("waiting for the database").len(), 1);
        let back = daemon.logged("the database is back");
        assert_eq!(back.len(), 1, "{back:?}");
        assert_eq!(back[0]["attempts"], 6);
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    /// More often than a branch may be refused, both at the beginning of an advance and in its
    /// middle.
    async fn what_hinders_the_database_spends_no_retry_of_an_advance(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
        std::fs::write(fixture.path("step.sh"), STEP).unwrap();
        fixture.variables = armed(&fixture, &[]);
        let faults = "advance.begin=8*error(hindered);cross.made=8*error(hindered)";
        fixture.variables.extend([
            ("DUCTWORK_FAIL", faults.to_owned()),
            ("DUCTWORK_PIPELINE_ADVANCER__MAX_RETRY", "1".to_owned()),
            ("DUCTWORK_PIPELINE_ADVANCER__BACKOFF__INITIAL", "10ms".to_owned()),
            ("DUCTWORK_PIPELINE_ADVANCER__BACKOFF__MAX", "50ms".to_owned()),
        ]);
        fixture.trigger("Work", "[1,2,3]", 1).await;
        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        assert_eq!(fixture.lines("hits").len(), 16);
        assert_eq!(daemon.logged("was refused").len(), 0);
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    async fn an_advancer_that_is_held_up_with_its_claim_goes_on_with_it(db: Db) {
        let place = tempfile::tempdir().unwrap();
        let (fifo, action) = pause_in(place.path());
        // Long enough that the advancer is not replaced: then nobody would read the pipe any more.
        let (mut fixture, mut daemon) = at_fault(&db, "30s", ("branches.end", action)).await;
        // The split is claimed, so no other advancer may advance it.
        let executions = fixture.executions().await;
        assert_eq!(executions.len(), 1, "{executions:?}");
        std::fs::write(&fifo, "go on").unwrap();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert!(executions.iter().all(|it| it.attempt == 1), "{executions:?}");
        fixture.audited().await;
    }
}

/// A person locks the branch that an advancer has just claimed: it can neither be advanced nor given back.
async fn a_claimed_branch_is_locked(db: Db) {
    let place = tempfile::tempdir().unwrap();
    let (fifo, action) = pause_in(place.path());
    let (mut fixture, mut daemon) = at_fault(&db, "30s", ("branches.end", action)).await;
    let mut foreign = Foreign::on(&db.url).await;
    foreign.lock_rows("ductwork_branches").await;
    std::fs::write(&fifo, "go on").unwrap();
    daemon.says("rows are locked by another session").await;
    // Others are claimed, advanced and completed.
    for run in fixture.trigger("Work", "[1,2,3]", 4).await {
        fixture.run_ended(run).await;
    }
    foreign.release().await;
    fixture.completed(PATIENCE).await;
    daemon.stop().await;
    fixture.succeeded_once_each().await;
    fixture.audited().await;
}

mod a_branch_that_is_locked_while_it_is_claimed_holds_up_no_other {
    use super::*;

    #[tokio::test]
    async fn postgres() {
        support::with(Db::postgres().await, a_claimed_branch_is_locked).await;
    }

    #[tokio::test]
    async fn mysql() {
        support::with(Db::mysql().await, a_claimed_branch_is_locked).await;
    }
}

/// At the points that PostgreSQL does not have.
mod whoever_dies_between_the_statements_of_a_claim_or_a_commit_is_replaced {
    use super::*;

    #[tokio::test]
    async fn sqlite() {
        let last = |db| survived(db, deaths(On::InTurn)[10].clone());
        support::with(Db::sqlite(), last).await;
    }

    #[tokio::test]
    async fn mysql() {
        let last = |db| survived(db, deaths(On::InTurn)[10].clone());
        support::with(Db::mysql().await, last).await;
    }
}

on_every_database! {
    /// It would leave its claims to others, for whom each of them is that of a process that has died.
    async fn an_advancer_that_is_told_to_stop_while_it_is_unsure_leaves_no_claim_behind(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
        std::fs::write(fixture.path("step.sh"), STEP).unwrap();
        let mut worker = fixture.start_as(&["env", "DUCTWORK_ROLE=worker"], &["start"]);
        let (fifo, pause) = pause_in(&fixture.path(""));
        let faults = [("advance.loaded", pause), ("advance.written", "error(unavailable)")];
        fixture.variables = armed(&fixture, &faults);
        let mut advancer = fixture.start_as(&["env", "DUCTWORK_ROLE=advancer"], &["start"]);
        fixture.trigger("Work", "[1,2,3]", 1).await;
        eventually(PATIENCE, "it advances", async || {
            (to_come(&fixture, &faults).len() == 1).then_some(())
        })
        .await;
        advancer.send(Signal::SIGTERM);
        std::fs::write(fifo, "").unwrap();
        let (status, _) = advancer.ended(PATIENCE).await;
        assert!(status.success(), "{status:?}");
        assert_eq!(to_come(&fixture, &faults), []);
        let left = fixture.processes().await;
        assert_eq!(left.len(), 1, "{left:#?}");
        fixture.variables.clear();
        let mut advancer = fixture.start_as(&["env", "DUCTWORK_ROLE=advancer"], &["start"]);
        fixture.completed(PATIENCE).await;
        advancer.stop().await;
        worker.stop().await;
        fixture.audited().await;
    }

    /// Half of a process is worse than none: nobody would notice that it neither beats nor recovers anybody.
    async fn a_process_whose_lifeline_panics_ends_and_is_replaced(db: Db) {
        let settings = Settings { reaper_timeout: "2s", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[WORK]).await;
        std::fs::write(fixture.path("step.sh"), STEP).unwrap();
        // A lone worker.
        fixture.variables = armed(&fixture, &[("beat.begin", "panic")]);
        let mut worker = fixture.start_as(&["env", "DUCTWORK_ROLE=worker"], &["start"]);
        let (status, _) = worker.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(1));
        assert_eq!(worker.logged("a lifeline ended unexpectedly").len(), 1);
        // A supervisor, which alone recovers anybody.
        fixture.variables = armed(&fixture, &[("recover.begin", "panic")]);
        fixture.trigger("Work", "[1,2,3]", 3).await;
        let mut daemon = fixture.start();
        let (status, _) = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(1));
        assert_eq!(daemon.logged("the lifeline ended unexpectedly").len(), 1);
        daemon.gone(PATIENCE).await;
        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.audited().await;
    }
}
