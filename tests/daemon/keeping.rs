//! Work that was begun and left half done: a daemon finishes it.

use std::time::Duration;

use ductwork::model::RunStatus;
use ductwork::store::cancel::Cancelling;
use ductwork::store::prune::Pruning;
use ductwork::store::query;
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Dialect};

use crate::fixture::*;
use crate::foreign::Foreign;
use crate::support::Db;
use crate::{on_every_database, on_servers};

/// Its branches run until they are let go.
const WIDE: &str = r#"
pipeline: Wide
steps:
  Many: { command: [echo, "[1,2,3,4]"] }
  B: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; cat'] }
  C: { command: [cat] }
flow: [{ start: Many }, { expand: B }, { collapse: C }]
"#;

/// Makes it look as if no process had continued the work for long.
static ABANDONED: Statement = Statement::new(
    "TEST_ABANDONED",
    "UPDATE ductwork_runs
        SET cancelling_at = CASE WHEN cancelling_at IS NOT NULL THEN 5 END,
            pruning_at = CASE WHEN pruning_at IS NOT NULL THEN 5 END",
);
static BEGUN: Statement = Statement::new(
    "TEST_BEGUN",
    "UPDATE ductwork_runs SET pruning_at = 5 WHERE status = 'completed'",
);
static LEFT: Statement = Statement::new(
    "TEST_LEFT",
    "SELECT (SELECT count(*) FROM ductwork_runs WHERE pruning_at IS NOT NULL) AS half_pruned,
            (SELECT count(*) FROM ductwork_runs WHERE status = 'cancelled') AS cancelled,
            (SELECT count(*) FROM ductwork_runs) AS n",
);

const ASKS: &str = r#"
pipeline: Asks
on_wait: Tell
on_complete: Tell
steps:
  Draft: { command: [cat] }
  Send: { command: [cat] }
  Tell: { command: [sh, -c, 'input=$(cat); echo "$input" >> told'] }
flow: [{ start: Draft }, { dampen: { prompt: "send it?", timeout: 1s, then: approve } }, { chain: Send }]
"#;

/// In the log, when this work fails.
const FAILED: &str = "passing deadlines, deleting old runs";

const FLAT: &str = "
pipeline: Flat
steps: { A: { command: ['true'] } }
flow: [{ start: A }]
";

/// Makes the deletion of a run take a fiftieth of a second.
const SLOW_ON_POSTGRES: &str = "
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN OLD; END $$;
CREATE TRIGGER slow BEFORE DELETE ON ductwork_runs FOR EACH ROW EXECUTE FUNCTION slow();";

const SLOW_ON_MYSQL: &str =
    "CREATE TRIGGER slow BEFORE DELETE ON ductwork_runs FOR EACH ROW DO sleep(0.02)";

/// Makes it take a second.
const SLOWER_ON_POSTGRES: &str = "
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN OLD; END $$;
CREATE TRIGGER slow BEFORE DELETE ON ductwork_runs FOR EACH ROW EXECUTE FUNCTION slow();";

const SLOWER_ON_MYSQL: &str =
    "CREATE TRIGGER slow BEFORE DELETE ON ductwork_runs FOR EACH ROW DO sleep(1)";

on_servers! {
    /// The pause is three times as long as the deletion.
    async fn a_stop_does_not_wait_for_the_pause_of_a_slow_deletion(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[FLAT]).await;
        let mut daemon = fixture.start();
        fixture.trigger("Flat", "1", 1).await;
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        let slow = match fixture.conn.dialect() {
            Dialect::Postgres => SLOWER_ON_POSTGRES,
            _ => SLOWER_ON_MYSQL,
        };
        fixture.define_in_database(slow).await;
        assert_eq!(fixture.conn.execute(&BEGUN, &[]).await.unwrap(), 1);
        let mut daemon = fixture.start();
        daemon.ready().await;
        left(&mut fixture, "the run is deleted", [0, 0, 0]).await;
        daemon.stop().await;
        let left = fixture.processes().await;
        assert!(left.is_empty(), "{left:#?}");
        fixture.audited().await;
    }

    /// Each look meets the lock.
    async fn a_lock_that_keeps_a_question_from_being_decided_is_logged_once(db: Db) {
        let asks = ASKS.replace("timeout: 1s", "timeout: 5s");
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[&asks]).await;
        let mut foreign = Foreign::on(&db.url).await;
        let mut daemon = fixture.start();
        let waiting = fixture.trigger("Asks", "1", 1).await[0];
        fixture.said("told", 1).await;
        foreign.lock_rows("ductwork_branches WHERE status = 'dampened'").await;
        daemon.says(FAILED).await;
        for input in ["2", "3"] {
            let run = fixture.trigger("Asks", input, 1).await[0];
            fixture.run_ended(run).await;
        }
        assert_eq!(daemon.logged(FAILED).len(), 1);
        foreign.release().await;
        fixture.run_ended(waiting).await;
        daemon.stop().await;
        fixture.audited().await;
    }

    /// Most of the old runs are still there when the question is decided.
    async fn a_deletion_that_takes_long_holds_up_no_question(db: Db) {
        const OLD: i64 = 600;
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[FLAT, ASKS]).await;
        let mut daemon = fixture.start();
        fixture.trigger("Flat", "1", OLD as usize).await;
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        let (slow, quick) = match fixture.conn.dialect() {
            Dialect::Postgres => (SLOW_ON_POSTGRES, "DROP TRIGGER slow ON ductwork_runs"),
            _ => (SLOW_ON_MYSQL, "DROP TRIGGER slow"),
        };
        fixture.define_in_database(slow).await;
        let begun = fixture.conn.execute(&BEGUN, &[]).await.unwrap();
        assert_eq!(begun, OLD as u64);
        let mut daemon = fixture.start();
        let count = async |conn: &mut Conn| {
            let row = conn.fetch_optional(&LEFT, &[]).await.unwrap().unwrap();
            row.get::<i64>("n").unwrap()
        };
        let conn = &mut fixture.conn;
        eventually(PATIENCE, "the deletion has begun", async || {
            (count(conn).await < OLD).then_some(())
        })
        .await;
        let run = fixture.trigger("Asks", "7", 1).await[0];
        fixture.run_ended(run).await;
        let left = count(&mut fixture.conn).await;
        assert!(left > OLD / 6, "{left}: the deletion had ended, so the test is empty");
        fixture.conn.script("be quick", quick).await.unwrap();
        let conn = &mut fixture.conn;
        eventually(PATIENCE, "the others are deleted", async || (count(conn).await == 1).then_some(())).await;
        daemon.stop().await;
        fixture.audited().await;
    }
}

on_every_database! {
    async fn a_question_that_nobody_answers_is_decided_by_the_daemon(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[ASKS]).await;
        let mut daemon = fixture.start();
        let run = fixture.trigger("Asks", "7", 1).await[0];
        // A waiting run does not count as one that goes on by itself.
        let conn = &mut fixture.conn;
        eventually(PATIENCE, "its time is over", async || {
            let state = query::run_state(conn, run).await.unwrap().unwrap();
            (state.status == RunStatus::Completed).then_some(())
        })
        .await;
        let told = fixture.said("told", 2).await;
        let told: Vec<serde_json::Value> = told.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&told[0]["prompt"], &told[0]["value"]), (&"send it?".into(), &7.into()));
        assert_eq!(told[1]["output"], 7);
        daemon.says("decided questions that nobody has answered in time").await;
        daemon.stop().await;
        fixture.audited().await;
    }

    async fn what_was_left_half_done_is_finished_by_the_daemon(db: Db) {
        let settings = Settings { reaper_timeout: "4s", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[WIDE]).await;
        let mut daemon = fixture.start();
        let pids = left_half_done(&mut fixture).await;
        left(&mut fixture, "both are finished", [0, 1, 1]).await;
        for pid in pids {
            gone(pid, PATIENCE).await;
        }
        assert_eq!(fixture.ended(PATIENCE).await, [RunStatus::Cancelled]);
        daemon.stop().await;
        fixture.audited().await;
    }
}

on_servers! {
    async fn a_cancellation_that_somebody_holds_up_keeps_nothing_else_waiting(db: Db) {
        let settings = Settings { reaper_timeout: "4s", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[WIDE]).await;
        let mut foreign = Foreign::on(&db.url).await;
        let mut daemon = fixture.start();
        left_half_done_and(&mut fixture, async || {
            foreign.lock_rows("ductwork_branches WHERE status = 'in_progress'").await;
        })
        .await;
        left(&mut fixture, "the deletion is finished", [0, 0, 1]).await;
        told_by_health(&fixture).await;
        assert_eq!(daemon.logged(FAILED).len(), 1);
        foreign.release().await;
        left(&mut fixture, "the cancellation is finished", [0, 1, 1]).await;
        health_is_content(&fixture).await;
        daemon.stop().await;
        fixture.audited().await;
    }

    async fn a_deletion_that_somebody_holds_up_is_told_until_it_goes_on(db: Db) {
        let settings = Settings { reaper_timeout: "4s", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[FLAT]).await;
        let mut foreign = Foreign::on(&db.url).await;
        let mut daemon = fixture.start();
        fixture.trigger("Flat", "1", 1).await;
        fixture.completed(PATIENCE).await;
        foreign.lock_rows("ductwork_branches WHERE status = 'completed'").await;
        assert_eq!(fixture.conn.execute(&BEGUN, &[]).await.unwrap(), 1);
        told_by_health(&fixture).await;
        assert_eq!(daemon.logged(FAILED).len(), 1);
        foreign.release().await;
        left(&mut fixture, "the run is deleted", [0, 0, 0]).await;
        health_is_content(&fixture).await;
        daemon.stop().await;
        fixture.audited().await;
    }
}

/// Waits until `health` says that some of this work waits for somebody's lock.
async fn told_by_health(fixture: &DaemonFixture) {
    let says = "deletions of old runs wait: they wait for rows that another session of the database has locked";
    eventually_every(SELDOM, PATIENCE, "`health` tells of it", async || {
        let health = fixture.run(&[], &["health"]);
        let said = String::from_utf8_lossy(&health.stderr);
        (!health.status.success() && said.contains(says)).then_some(())
    })
    .await;
}

/// Waits until `health` finds nothing.
async fn health_is_content(fixture: &DaemonFixture) {
    eventually_every(SELDOM, PATIENCE, "health is content", async || {
        fixture.run(&[], &["health"]).status.success().then_some(())
    })
    .await;
}

/// Leaves the deletion of a run and the cancellation of another half done; returns the processes of the steps of the
/// latter.
async fn left_half_done(fixture: &mut DaemonFixture) -> Vec<i32> {
    left_half_done_and(fixture, async || {}).await
}

/// The same; does something before a daemon may find them.
async fn left_half_done_and(fixture: &mut DaemonFixture, first: impl AsyncFnOnce()) -> Vec<i32> {
    fixture.trigger("Wide", "1", 1).await;
    fixture.pids("pids", 4).await;
    std::fs::write(fixture.path("go"), "").unwrap();
    fixture.completed(PATIENCE).await;
    std::fs::remove_file(fixture.path("go")).unwrap();
    let mut pruning = Pruning::of(Some(Duration::ZERO), 9).by(1);
    for _ in 0..3 {
        assert!(pruning.step(&mut fixture.conn).await.unwrap());
    }
    assert_eq!(pruning.runs, 0);
    let run = fixture.trigger("Wide", "1", 1).await[0];
    let pids = fixture.pids("pids", 8).await;
    let mut cancelling = Cancelling::of(run, 1);
    while cancelling.closed == 0 {
        assert_eq!(cancelling.step(&mut fixture.conn).await.unwrap(), None);
    }
    first().await;
    fixture.conn.execute(&ABANDONED, &[]).await.unwrap();
    pids[4..].to_vec()
}

/// Waits until this many runs are half deleted, cancelled, and there at all.
async fn left(fixture: &mut DaemonFixture, what: &str, wanted: [i64; 3]) {
    let conn = &mut fixture.conn;
    eventually(PATIENCE, what, async || {
        let rows = conn.fetch(&LEFT, &[]).await.unwrap();
        let n = ["half_pruned", "cancelled", "n"].map(|column| rows[0].get::<i64>(column).unwrap());
        (n == wanted).then_some(())
    })
    .await;
}
