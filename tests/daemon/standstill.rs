//! A MariaDB server that stops in order, or stands still, under load.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ductwork::store::{Location, Purpose, migrate};

use crate::fixture::*;
use crate::mariadb::Mariadb;
use crate::outage::{FAN, LONG, WORK, succeeded};

/// The server ends its sessions in order, and then it stands still for longer than two leases: no client is told,
/// new sessions begin but get no further, and statements that were sent meanwhile are executed when it goes on,
/// even if their clients have given them up by then.
#[tokio::test]
async fn a_mariadb_that_is_stopped_or_stands_still_ends_no_process_and_loses_no_work() {
    const OUTAGE: Duration = Duration::from_secs(5);
    let server = Mariadb::start();
    let location = Location::parse(&server.url).expect("the server's URL");
    let mut conn = location.connect(Purpose::Engine).await.unwrap();
    migrate::migrate(&mut conn).await.unwrap();
    let settings = Settings {
        reaper_timeout: "2s",
        max_retry: 0,
        max_crash: 1,
        level: "info",
        ..Settings::default()
    };
    let pipelines = [WORK, FAN, LONG];
    let mut fixture = DaemonFixture::at(&server.url, conn, settings, &pipelines).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    let kinds = ["advancer", "worker Work", "worker Fan", "worker Long"];
    let children = kinds.map(|kind| daemon.children(kind)).concat();
    assert_eq!(children.len(), 4);
    fixture.trigger("Long", "1", 2).await;
    fixture.pids("pids", 2).await;
    for freezes in [false, true, true] {
        fixture.trigger("Fan", "1", 100).await;
        fixture.trigger("Work", "1", 100).await;
        let before = succeeded(&mut fixture).await;
        eventually(PATIENCE, "work is going on", async || {
            (succeeded(&mut fixture).await > before + 20).then_some(())
        })
        .await;
        let logged = daemon.log().len();
        match freezes {
            true => server.freeze(),
            false => server.stop(),
        }
        let began = Instant::now();
        eventually(PATIENCE, "everybody waits for the database", async || {
            let log = daemon.log();
            let waits = log[logged..]
                .iter()
                .filter(|it| it["msg"] == "waiting for the database");
            let pids: BTreeSet<i64> = waits.filter_map(|it| it["pid"].as_i64()).collect();
            (pids.len() == 5).then_some(())
        })
        .await;
        tokio::time::sleep(OUTAGE.saturating_sub(began.elapsed())).await;
        match freezes {
            true => server.thaw(),
            false => server.up(),
        }
        fixture.conn = location.connect(Purpose::Engine).await.unwrap();
        let before = succeeded(&mut fixture).await;
        eventually(PATIENCE, "work is going on again", async || {
            (succeeded(&mut fixture).await > before).then_some(())
        })
        .await;
        // The next time must affect every process.
        eventually(PATIENCE, "every connection is back", async || {
            let lost = daemon.logged("waiting for the database").len();
            let back = daemon.logged("the database is back").len();
            (lost == back).then_some(())
        })
        .await;
    }
    std::fs::write(fixture.path("go"), "").unwrap();
    fixture.completed(PATIENCE).await;
    assert!(children.iter().all(|pid| lives(*pid)), "a child has ended");
    for said in ["was declared dead", "recovered what", "killing a child"] {
        assert!(daemon.logged(said).is_empty(), "{:#?}", daemon.logged(said));
    }
    daemon.stop().await;
    let executions = fixture.succeeded_once_each().await;
    assert!(
        executions.iter().all(|e| e.crash_count == 0),
        "{executions:#?}"
    );
    fixture.audited().await;
}
