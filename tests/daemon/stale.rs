//! Processes that stand still and come back: their actions after that must not count.

use std::path::Path;
use std::time::{Duration, Instant};

use ductwork::model::Intake;
use ductwork::store::advance::{self, BranchClaim};
use ductwork::store::claim::{self, Claim};
use ductwork::store::definition::LeftOut;
use ductwork::store::process::Claimant;
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Dialect, Row, departed, query};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fixture::*;
use crate::on_every_database;
use crate::support::{self, Db};
use crate::writing::{freeze_outside_of_a_write, writer};

/// The first attempt ends when it is let go, and reports that; each later one ends at once.
const WAITING: &str = r#"
pipeline: Waiting
steps:
  A:
    command:
      - sh
      - -c
      - |
        echo $DUCTWORK_ATTEMPT >> starts
        [ $DUCTWORK_ATTEMPT -gt 1 ] && echo '"late"' && exit 0
        until [ -e go ]; do sleep 0.1; done
        echo '"early"'
        echo $$ >> ends
flow: [{ start: A }]
"#;

/// It works for three seconds.
const SLOW: &str = r#"
pipeline: Slow
steps:
  A:
    command: [sh, -c, "echo >> starts; for i in $(seq 30); do sleep 0.1; done; echo 1"]
    timeout: 8s
flow: [{ start: A }]
"#;

const BUSY: &str = "
pipeline: Busy
steps: { A: { command: ['true'] }, B: { command: ['true'] } }
flow: [{ start: A }, { chain: B }]
";

const WIDE: &str = "
pipeline: Wide
steps: { Split: { command: [cat] }, Each: { command: ['true'] }, Join: { command: ['true'] } }
flow: [{ start: Split }, { expand: Each }, { collapse: Join }]
";

/// The first run waits for `go` in its first step.
const SLOW_START: &str = r#"
pipeline: SlowStart
steps:
  Split: { command: [sh, -c, "echo >> started; until [ -e go ]; do sleep 0.1; done; cat"] }
  Each: { command: ['true'] }
  Join: { command: ['true'] }
flow: [{ start: Split }, { expand: Each }, { collapse: Join }]
"#;

/// Makes an expand take longer than three leases.
const SLOW_ON_POSTGRES: &str = "
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_sleep(7); RETURN NULL; END $$;
CREATE TRIGGER slow AFTER INSERT ON ductwork_fan_outs FOR EACH STATEMENT EXECUTE FUNCTION slow();";

const SLOW_ON_MYSQL: &str =
    "CREATE TRIGGER slow AFTER INSERT ON ductwork_fan_outs FOR EACH ROW DO sleep(7)";

/// SQLite has no sleep, so it counts: for 12 s if the machine stays as busy as it is now, of which it needs four.
async fn slow_on_sqlite(conn: &mut Conn) -> &'static str {
    let count = |to: u64| {
        format!(
            "SELECT (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {to})
                     SELECT max(i) FROM n);"
        )
    };
    const FEW: u64 = 1_000_000;
    let few = &*count(FEW).leak();
    let mut shortest = Duration::MAX;
    for _ in 0..3 {
        let started = Instant::now();
        conn.script("count", few).await.unwrap();
        shortest = shortest.min(started.elapsed());
    }
    let to = FEW * 12_000 / shortest.as_millis().max(1) as u64;
    let slow = format!(
        "CREATE TRIGGER slow AFTER INSERT ON ductwork_fan_outs BEGIN {} END;",
        count(to)
    );
    slow.leak()
}

/// How long each attempt at a crossing took, and for how long it was leased, in µs.
async fn attempts_at_crossings(fixture: &mut DaemonFixture) -> Vec<(i64, i64, i64)> {
    static CROSSINGS: Statement = Statement::new(
        "TEST_CROSSINGS",
        "SELECT a.completed_at - a.claimed_at AS took, a.lease_until - a.claimed_at AS leased,
                t.crash_count
           FROM ductwork_advancements a JOIN ductwork_transitions t ON t.id = a.transition_id
          WHERE t.via = 'expand'",
    );
    let rows = fixture
        .conn
        .fetch(&CROSSINGS, &[])
        .await
        .expect("the crossings");
    let crossing = |row: &Row| {
        let of = |name| row.get(name).expect("a number");
        (of("took"), of("leased"), of("crash_count"))
    };
    rows.iter().map(crossing).collect()
}

on_every_database! {
    /// On a server the heartbeat extends the lease from the other connection. On SQLite nobody
    /// writes meanwhile: neither the heartbeats nor a process that would take others for dead.
    /// (A18)
    async fn an_advance_that_outlasts_its_lease_is_nobody_elses(db: Db) {
        const LEASE: i64 = 2_000_000;
        let settings = Settings { reaper_timeout: "2s", max_retry: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[WIDE]).await;
        let slow = match fixture.conn.dialect() {
            Dialect::Postgres => SLOW_ON_POSTGRES,
            Dialect::Sqlite => slow_on_sqlite(&mut fixture.conn).await,
            Dialect::Mysql => SLOW_ON_MYSQL,
        };
        let on_server = fixture.conn.dialect() != Dialect::Sqlite;
        fixture.conn.script("be slow", slow).await.unwrap();
        // Each would take the other's claims, if it saw a reason.
        let mut daemons = [fixture.start(), fixture.start()];
        let mut children = Vec::new();
        for daemon in &daemons {
            daemon.ready().await;
            children.push((daemon.child("advancer", None).await, daemon.child("worker Wide", None).await));
        }
        let elements: Vec<u32> = (0..100).collect();
        let run = fixture.trigger("Wide", &format!("{elements:?}"), 1).await[0];
        fixture.run_ended(run).await;
        fixture.completed(PATIENCE).await;
        for (daemon, children) in daemons.iter().zip(&children) {
            let now = (daemon.child("advancer", None).await, daemon.child("worker Wide", None).await);
            assert_eq!(now, *children);
            for said in ["was declared dead", "recovered the work of a dead process", "stale", "giving back claims"] {
                assert!(daemon.logged(said).is_empty(), "{:#?}", daemon.logged(said));
            }
        }
        for daemon in &mut daemons {
            daemon.stop().await;
        }
        let crossings = attempts_at_crossings(&mut fixture).await;
        let [(took, leased, 0)] = crossings[..] else { panic!("{crossings:?}") };
        assert!(took > 2 * LEASE, "it was fast: the test is empty: {took}");
        assert!(!on_server || leased > took - LEASE, "nobody extended it: {leased} of {took}");
        let executions = fixture.succeeded_once_each().await;
        assert_eq!(executions.len(), 102);
        assert!(executions.iter().all(|e| e.attempt == 1));
        fixture.audited().await;
    }

    /// A host beats six times in its own lease, which is less often than another host's leases allow.
    async fn a_lease_is_as_long_as_its_holder_says(db: Db) {
        let slow = Settings { reaper_timeout: "30s", max_retry: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, slow, &[WAITING]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Waiting", "1", 1).await;
        fixture.said("starts", 1).await;
        let quick = Settings { reaper_timeout: "2s", ..Settings::default() };
        let other = DaemonFixture::new(&db, quick, &[BUSY]).await;
        let mut judge = other.start();
        judge.ready().await;
        // A process that holds nothing, such as the advancer, loses nothing.
        let told = daemon.says("was declared dead").await;
        let help = told[0]["help"].as_str().unwrap_or_default();
        assert!(help.contains("may have a shorter `supervisor.reaper_timeout`"), "{told:#?}");
        eventually(PATIENCE, "its worker is silent for longer than the other's lease", async || {
            let processes = fixture.processes().await;
            let worker = processes.iter().find(|it| it.pipeline.as_deref() == Some("Waiting")).unwrap();
            (worker.age > Duration::from_secs(3)).then_some(())
        })
        .await;
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.completed(PATIENCE).await;
        let executions = fixture.succeeded_once_each().await;
        assert_eq!((executions.len(), executions[0].attempt), (1, 1));
        judge.stop().await;
        daemon.stop().await;
        fixture.audited().await;
    }

    /// A foreign trigger, or a limit of the server: the connections live, and all reads are answered.
    async fn heartbeats_that_the_database_refuses_are_nobodys_death(db: Db) {
        const LEASE: Duration = Duration::from_secs(2);
        let settings = Settings { reaper_timeout: "2s", max_retry: 0, max_crash: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[WAITING]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Waiting", "1", 3).await;
        fixture.said("starts", 3).await;
        let worker = daemon.child("worker Waiting", None).await;
        let (refuse, allow) = match fixture.conn.dialect() {
            Dialect::Postgres => (
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
                 CREATE TRIGGER refuse BEFORE UPDATE ON ductwork_processes FOR EACH ROW EXECUTE FUNCTION refuse()",
                "DROP TRIGGER refuse ON ductwork_processes",
            ),
            Dialect::Sqlite => (
                "CREATE TRIGGER refuse BEFORE UPDATE ON ductwork_processes BEGIN SELECT RAISE(ABORT, 'no'); END",
                "DROP TRIGGER refuse",
            ),
            Dialect::Mysql => (
                "CREATE TRIGGER refuse BEFORE UPDATE ON ductwork_processes FOR EACH ROW SIGNAL SQLSTATE '45000'",
                "DROP TRIGGER refuse",
            ),
        };
        fixture.conn.script("refuse", refuse).await.unwrap();
        let all = async |fixture: &mut DaemonFixture, so: &dyn Fn(Duration) -> bool| {
            let processes = fixture.processes().await;
            processes.iter().all(|process| so(process.age)).then_some(())
        };
        eventually(PATIENCE, "nobody has beaten for three leases", async || {
            all(&mut fixture, &|age| age > 3 * LEASE).await
        })
        .await;
        fixture.conn.script("allow", allow).await.unwrap();
        eventually(PATIENCE, "everybody beats again", async || all(&mut fixture, &|age| age < LEASE / 2).await).await;
        let beaten = Instant::now();
        eventually(PATIENCE, "everybody has beaten for a lease", async || {
            all(&mut fixture, &|age| age < LEASE).await.filter(|()| beaten.elapsed() > LEASE)
        })
        .await;
        assert_eq!(daemon.child("worker Waiting", None).await, worker);
        assert!(daemon.logged("was declared dead").is_empty(), "{}", daemon.text());
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.completed(PATIENCE).await;
        let executions = fixture.succeeded_once_each().await;
        assert!(executions.iter().all(|it| (it.attempt, it.crash_count) == (1, 0)), "{executions:#?}");
        daemon.stop().await;
        fixture.audited().await;
    }

    /// The worker and its supervisor stop for longer than a lease while a step goes on; the step
    /// ends before they wake up. Their knowledge is old then.
    async fn the_commit_of_a_worker_that_was_frozen_past_its_lease_is_refused(db: Db) {
        let settings = Settings { reaper_timeout: "2s", max_retry: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[WAITING]).await;
        let mut frozen = fixture.start();
        frozen.ready().await;
        fixture.trigger("Waiting", "1", 3).await;
        fixture.said("starts", 3).await;
        let worker = frozen.child("worker Waiting", None).await;
        freeze_outside_of_a_write(&db, frozen.pid()).await;
        freeze_outside_of_a_write(&db, worker).await;
        std::fs::write(fixture.path("go"), "").unwrap();
        for pid in fixture.pids("ends", 3).await {
            gone(pid, PATIENCE).await;
        }

        // They live, so there is no proof of death: only two witnesses.
        let mut heir = fixture.start();
        fixture.completed(PATIENCE).await;
        let witnessed = heir.says("recovered the work of a dead process").await;
        assert!(witnessed.iter().any(|event| {
            event["how"].as_str().is_some_and(|how| how.contains("two witnesses"))
        }), "{witnessed:#?}");

        send(worker, Signal::SIGCONT);
        frozen.says_times("stale commit refused", 3).await;
        frozen.says("was declared dead").await;
        eventually(PATIENCE, "the stale commits are counted", async || {
            let processes = fixture.processes().await;
            let stale: u64 = processes.iter().map(|row| row.counters.stale).sum();
            (stale >= 3).then_some(())
        })
        .await;
        // It works on, as a new process.
        assert!(lives(worker));
        let supervisor = frozen.pid() as u32;
        eventually(PATIENCE, "its supervisor is declared dead as well", async || {
            let rows = fixture.processes().await;
            rows.iter().all(|row| row.pid != supervisor).then_some(())
        })
        .await;
        frozen.send(Signal::SIGCONT);
        eventually(PATIENCE, "all its children name its new row", async || {
            let rows = fixture.processes().await;
            let own = rows.iter().find(|row| row.pid == supervisor)?;
            let mut pids = frozen.processes();
            pids.retain(|it| ["advancer", "worker"].iter().any(|kind| it.kind.starts_with(kind)));
            let adopted = |pid: u32| rows.iter().any(|row| row.pid == pid && row.supervisor == Some(own.id));
            (!pids.is_empty() && pids.iter().all(|it| adopted(it.pid as u32))).then_some(())
        })
        .await;
        let now = query::now(&mut fixture.conn).await.unwrap();
        assert_eq!(departed::lost_lately(&mut fixture.conn, now).await.unwrap(), []);
        let runs = fixture.trigger("Waiting", "1", 8).await;
        fixture.completed(PATIENCE).await;
        assert_eq!(fixture.output(runs[0]).await, "early");
        frozen.stop().await;
        heir.stop().await;

        let executions = fixture.succeeded_once_each().await;
        let twice: Vec<_> = executions.iter().filter(|e| e.attempt == 2).collect();
        assert_eq!(twice.len(), 3, "{executions:#?}");
        assert!(twice.iter().all(|e| e.result() == "success" && e.crash_count == 1));
        fixture.audited().await;
    }

    /// The supervisor learns from the heartbeat, since there is no exit.
    async fn a_frozen_worker_is_killed_and_replaced(db: Db) {
        let settings = Settings { reaper_timeout: "2s", max_retry: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[WAITING]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let advancer = daemon.child("advancer", None).await;
        fixture.trigger("Waiting", "1", 2).await;
        fixture.said("starts", 2).await;
        let worker = daemon.child("worker Waiting", None).await;
        freeze(worker).await;
        gone(worker, Duration::from_secs(10)).await;
        daemon.child("worker Waiting", Some(worker)).await;
        fixture.completed(PATIENCE).await;
        assert_eq!(daemon.children("advancer"), [advancer]);
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        let crashed = executions.iter().filter(|e| e.result() == "process_crashed");
        assert_eq!(crashed.count(), 2, "{executions:#?}");
        fixture.audited().await;
    }

    /// Its children beat on meanwhile: no process may be judged by how long the supervisor has not
    /// looked.
    async fn a_supervisor_that_was_frozen_harms_nobody_when_it_wakes_up(db: Db) {
        let settings = Settings { reaper_timeout: "2s", max_retry: 0, max_crash: 1, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[WAITING]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Waiting", "1", 2).await;
        fixture.said("starts", 2).await;
        let advancer = daemon.child("advancer", None).await;
        let worker = daemon.child("worker Waiting", None).await;
        let beats = |rows: &[ductwork::store::process::ProcessRow], pid: i32| {
            let row = rows.iter().find(|row| row.pid as i32 == pid);
            row.map_or(0, |row| row.beat_seq)
        };
        freeze_outside_of_a_write(&db, daemon.pid()).await;
        let before = fixture.processes().await;
        let supervisor = daemon.pid();
        eventually(PATIENCE, "twice a lease is over by heartbeats", async || {
            let rows = fixture.processes().await;
            let silent = rows.iter().find(|row| row.pid as i32 == supervisor)?;
            let both = [worker, advancer].into_iter().all(|pid| beats(&rows, pid) > beats(&before, pid) + 8);
            (both && silent.age > Duration::from_secs(4)).then_some(())
        })
        .await;
        daemon.send(Signal::SIGCONT);
        eventually(PATIENCE, "the supervisor beats again", async || {
            let rows = fixture.processes().await;
            (beats(&rows, supervisor) > beats(&before, supervisor) + 6).then_some(())
        })
        .await;
        assert_eq!(daemon.children("worker Waiting"), [worker]);
        assert_eq!(daemon.children("advancer"), [advancer]);
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert_eq!(executions.len(), 2, "{executions:#?}");
        fixture.audited().await;
    }
}

on_every_database! {
    /// A mistake of the program, or of a trigger that somebody wrote, may leave a process with a claim of which it knows
    /// nothing, and its heartbeats would keep that claim for ever. The test claims in the names of a worker and of an
    /// advancer that are quiet.
    async fn a_claim_that_its_process_does_not_know_is_given_back(db: Db) {
        let lease = Duration::from_secs(3);
        let settings = Settings { reaper_timeout: "3s", max_retry: 0, max_crash: 1, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[SLOW_START]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let (worker, advancer) =
            (daemon.child("worker SlowStart", None).await, daemon.child("advancer", None).await);
        fixture.trigger("SlowStart", "[1, 2]", 1).await;
        fixture.said("started", 1).await;
        daemon.send(Signal::SIGTSTP);
        let quiet = eventually(PATIENCE, "both are quiet", async || {
            let rows = fixture.processes().await;
            let of = |pid: i32| rows.iter().find(|row| row.pid as i32 == pid && row.intake == Intake::Quiet);
            Some((of(worker)?.id, of(advancer)?.id))
        });
        let (by_worker, by_advancer) = quiet.await;
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.trigger("SlowStart", "[1, 2]", 1).await;

        // No connection of the processes is the holder of these claims.
        let named = |process| Claimant { process, epoch: 1_000 };
        let claimed = claim::claim(&mut fixture.conn, named(by_worker), "SlowStart", 10, lease).await;
        let Ok(Claim::Taken(claimed)) = claimed else { panic!("{claimed:?}") };
        assert_eq!(claimed.len(), 1);
        eventually(PATIENCE, "a branch is claimed", async || {
            let (conn, all) = (&mut fixture.conn, LeftOut::default());
            let claimed = advance::claim(conn, named(by_advancer), 10, lease, &all).await;
            let Ok(BranchClaim::Taken(claimed)) = claimed else { panic!("{claimed:?}") };
            (claimed.len() == 1).then_some(())
        })
        .await;
        // Also while they are quiet.
        let said = daemon.says_times("giving back claims of which this process knew nothing", 2).await;
        let by: Vec<_> = said.iter().map(|event| event["pid"].as_i64()).collect();
        for pid in [worker, advancer] {
            assert!(by.contains(&Some(i64::from(pid))), "{pid} {said:#?}");
        }
        assert_eq!(by.len(), 2, "{said:#?}");
        daemon.send(Signal::SIGCONT);
        fixture.completed(PATIENCE).await;
        assert_eq!(daemon.children("worker SlowStart"), [worker]);
        assert_eq!(daemon.children("advancer"), [advancer]);
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert!(executions.iter().all(|e| e.crash_count == 0), "{executions:#?}");
        fixture.audited().await;
    }
}

async fn a_worker_is_frozen_with_the_lock(db: Db) {
    let lease = Duration::from_secs(3);
    let settings = Settings {
        reaper_timeout: "3s",
        max_retry: 0,
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::new(&db, settings, &[BUSY]).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    let (worker, advancer) = (
        daemon.child("worker Busy", None).await,
        daemon.child("advancer", None).await,
    );
    let database = db.url.strip_prefix("sqlite://").map(Path::new);
    let database = database.expect("a SQLite database");
    // Enough work that it writes again and again, until it is caught.
    let mut tries = 0;
    loop {
        if tries % 100 == 0 {
            fixture.trigger("Busy", "1", 100).await;
        }
        tries += 1;
        assert!(tries < 2_000, "it was never caught while it wrote");
        freeze(worker).await;
        if writer(database) == Some(worker) {
            break;
        }
        send(worker, Signal::SIGCONT);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let began = Instant::now();
    gone(worker, PATIENCE).await;
    let took = began.elapsed();
    eprintln!("caught after {tries} tries; killed after {took:?}");
    // Not before a lease was almost over, plus a second for the look.
    assert!(took > lease / 2, "{took:?}");
    assert!(took < lease + Duration::from_secs(2), "{took:?}");
    fixture.completed(PATIENCE).await;
    // No other process was blamed for beats that could not be written.
    assert_eq!(daemon.children("advancer"), [advancer]);
    assert_ne!(daemon.children("worker Busy"), [worker]);
    assert!(daemon.logged("was declared dead").is_empty());
    daemon.stop().await;
    fixture.succeeded_once_each().await;
    fixture.audited().await;
}

/// A worker that stands still in the middle of a write keeps all others from writing, so no
/// heartbeat identifies it. Only SQLite has one lock for all.
#[tokio::test]
async fn a_worker_that_was_frozen_while_it_writes_is_killed_and_all_others_go_on() {
    support::with(Db::sqlite(), a_worker_is_frozen_with_the_lock).await;
}

/// A container or a virtual machine is paused, for less than a lease and for more than the timeout of a step.
#[tokio::test]
async fn a_step_gets_back_the_time_for_which_everything_stood_still() {
    support::with(Db::postgres().await, async |db| {
        let settings = Settings {
            max_retry: 0,
            ..Settings::default()
        };
        let mut fixture = DaemonFixture::new(&db, settings, &[SLOW]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let run = fixture.trigger("Slow", "1", 1).await[0];
        fixture.said("starts", 1).await;
        // The supervisor first, so that it sees nobody stand still.
        let mut pids: Vec<i32> = daemon.processes().iter().map(|it| it.pid).collect();
        pids.sort_by_key(|pid| *pid != daemon.pid());
        let all = |signal| {
            for pid in &pids {
                // The step's `sleep` may have ended since it was listed.
                let _sent_or_gone = kill(Pid::from_raw(*pid), signal);
            }
        };
        all(Signal::SIGSTOP);
        tokio::time::sleep(Duration::from_secs(10)).await;
        all(Signal::SIGCONT);
        fixture.run_ended(run).await;
        daemon.says("the loop of this process stood still").await;
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert!(
            executions.iter().all(|it| it.attempt == 1),
            "{executions:#?}"
        );
        fixture.audited().await;
    })
    .await;
}
