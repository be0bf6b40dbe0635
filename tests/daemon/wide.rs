//! An expand that is much wider than others may wait for.

use std::time::Duration;

use ductwork::store::statement::Statement;
use nix::sys::signal::Signal;

use crate::fixture::*;
use crate::on_every_database;
use crate::support::Db;

/// Makes as many branches as its input says, whose steps no worker executes meanwhile.
const WIDE: &str = r#"
pipeline: Wide
steps:
  List: { command: [sh, -c, 'read n; echo "[$(seq -s, $n)]"'] }
  Each: { command: [cat] }
flow: [{ start: List }, { expand: { to: Each, delay: 1h } }]
"#;

const NARROW: &str = r#"
pipeline: Narrow
steps:
  A: { command: [cat] }
  B: { command: [cat] }
  C: { command: [cat] }
flow: [{ start: A }, { divide: [A, B] }, { combine: C }]
"#;

static CHILDREN: Statement = Statement::new(
    "CHILDREN",
    "SELECT count(*) AS n, coalesce(max(s.created_at), 0) AS last
       FROM ductwork_branches b JOIN ductwork_steps s ON s.id = b.step_id
      WHERE b.pipeline = 'Wide' AND b.fan_out_id IS NOT NULL",
);
static NARROW_ENDED: Statement = Statement::new(
    "NARROW_ENDED",
    "SELECT min(completed_at) AS at FROM ductwork_runs WHERE pipeline = 'Narrow'",
);

async fn cancelled(fixture: &mut DaemonFixture) -> i64 {
    static CANCELLED: Statement = Statement::new(
        "CANCELLED",
        "SELECT count(*) AS n FROM ductwork_branches WHERE status = 'cancelled'",
    );
    let rows = fixture.conn.fetch(&CANCELLED, &[]).await.unwrap();
    rows[0].get("n").unwrap()
}

async fn children(fixture: &mut DaemonFixture) -> (i64, i64) {
    let rows = fixture.conn.fetch(&CHILDREN, &[]).await.unwrap();
    (rows[0].get("n").unwrap(), rows[0].get("last").unwrap())
}

on_every_database! {
    /// Two transitions and a fan-in of another pipeline, between two transactions of the expand.
    async fn a_wide_expand_holds_up_no_other_pipeline(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WIDE, NARROW]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Wide", "80000", 1).await;
        let begun = eventually(PATIENCE, "the expand has begun", async || {
            let (made, _) = children(&mut fixture).await;
            (made > 0).then_some(made)
        })
        .await;
        assert!(begun < 80_000, "it was made at once, and the test is empty");
        let narrow = fixture.trigger("Narrow", "1", 1).await;
        fixture.run_ended(narrow[0]).await;
        let (_, whole) = eventually_every(SELDOM, PATIENCE, "the expand is whole", async || {
            let (made, last) = children(&mut fixture).await;
            (made == 80_000).then_some((made, last))
        })
        .await;
        let rows = fixture.conn.fetch(&NARROW_ENDED, &[]).await.unwrap();
        let ended: i64 = rows[0].get("at").unwrap();
        assert!(ended < whole, "the narrow run waited for the wide one");
        daemon.stop().await;
        fixture.audited().await;
    }

    /// One of them is told that the run is over, although it had asked while the run was not.
    async fn of_two_who_cancel_a_wide_run_at_once_neither_fails(db: Db) {
        static BEGUN: Statement = Statement::new(
            "CANCELLING",
            "SELECT 1 AS found FROM ductwork_runs WHERE cancelling_at IS NOT NULL",
        );
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WIDE]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let run = fixture.trigger("Wide", "20000", 1).await[0].to_string();
        eventually_every(SELDOM, PATIENCE, "the expand is whole", async || {
            (children(&mut fixture).await.0 == 20_000).then_some(())
        })
        .await;
        daemon.stop().await;
        let mut first = fixture.start_as(&[], &["cancel", &run]);
        eventually(PATIENCE, "the first has begun", async || {
            fixture.conn.fetch_optional(&BEGUN, &[]).await.unwrap()
        })
        .await;
        // The second proceeds until the first goes on, or waits for it.
        first.send(Signal::SIGSTOP);
        let before = cancelled(&mut fixture).await;
        let mut second = fixture.start_as(&[], &["cancel", &run]);
        let began = std::time::Instant::now();
        while cancelled(&mut fixture).await == before && began.elapsed() < Duration::from_secs(3) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        first.send(Signal::SIGCONT);
        for cancel in [&mut first, &mut second] {
            let (status, _) = cancel.ended(PATIENCE).await;
            assert_eq!(status.code(), Some(0), "{}", cancel.text());
        }
        let third = fixture.run(&[], &["cancel", &run]);
        assert_eq!(third.status.code(), Some(1));
        fixture.audited().await;
    }

    /// The expand continues where the dead advancer stopped.
    async fn an_advancer_that_is_killed_in_the_middle_of_an_expand_repeats_nothing(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WIDE]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Wide", "40000", 1).await;
        let mut killed = None;
        for kills in 1..=3 {
            let advancer = daemon.child("advancer", killed).await;
            let before = children(&mut fixture).await.0;
            eventually(PATIENCE, "the expand goes on", async || {
                (children(&mut fixture).await.0 > before).then_some(())
            })
            .await;
            send(advancer, nix::sys::signal::Signal::SIGKILL);
            gone(advancer, PATIENCE).await;
            killed = Some(advancer);
            let made = children(&mut fixture).await.0;
            assert!(made < 40_000, "after {kills} kills it is whole: the test is empty");
        }
        eventually_every(SELDOM, PATIENCE, "the expand is whole", async || {
            (children(&mut fixture).await.0 == 40_000).then_some(())
        })
        .await;
        daemon.stop().await;
        fixture.audited().await;
    }
}
