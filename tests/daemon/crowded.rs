//! A server that lets some of us in, and others not.

use nix::sys::signal::Signal;
use sqlx::{Connection, Executor};

use ductwork::store::{Location, Purpose, migrate};

use crate::cluster::Cluster;
use crate::house::*;

const STEADY: &str = "
pipeline: Steady
steps: { A: { command: [cat] } }
flow: [{ start: A }]
";

async fn sql(cluster: &Cluster, sql: &str) {
    let mut conn = sqlx::PgConnection::connect(&cluster.url).await.unwrap();
    let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()));
    conn.execute(sql).await.unwrap();
    conn.close().await.unwrap();
}

/// The role may only use what the owner of the schema has made; and then it may have no more
/// connections than it has. A child that finds none waits, and its supervisor, which has one, tells of it.
#[tokio::test]
async fn a_child_that_is_not_let_in_is_left_to_wait_and_told_of() {
    let cluster = Cluster::start();
    let location = Location::parse(&cluster.url).unwrap();
    let mut conn = location.connect(Purpose::Engine).await.unwrap();
    migrate::migrate(&mut conn).await.unwrap();
    sql(
        &cluster,
        "CREATE ROLE duct LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC;
         GRANT ALL ON ALL TABLES IN SCHEMA public TO duct",
    )
    .await;
    let (_, at) = cluster.url.split_once('@').unwrap();
    let url = format!("postgres://duct@{at}");
    let settings = Settings {
        reaper_timeout: "12s",
        ..Settings::default()
    };
    let mut house = House::at(&url, conn, settings, &[STEADY]).await;
    let mut daemon = house.start();
    daemon.ready().await;
    let worker = daemon.child("worker Steady", None).await;
    sql(&cluster, "ALTER ROLE duct CONNECTION LIMIT 0").await;
    send(worker, Signal::SIGKILL);
    let refused = daemon.child("worker Steady", Some(worker)).await;
    house.trigger("Steady", "1", 3).await;
    let waits = daemon.says("waiting for the database").await;
    let error = waits[0]["error"].to_string();
    assert!(error.contains("too many connections for role"), "{error}");
    let told = daemon.says("a child is not in the database yet").await;
    let text = told[0]["error"].to_string();
    assert!(
        text.contains("worker Steady") && text.contains(&refused.to_string()),
        "{text}"
    );
    let mut variable = String::from("DUCTWORK_DATABASE_URL=");
    variable.push_str(&cluster.url);
    eventually(PATIENCE, "whoever asks is told", async || {
        let health = house.run(&["env", &variable], &["health"]);
        let said = String::from_utf8_lossy(&health.stderr);
        said.contains("cannot register").then_some(())
    })
    .await;
    sql(&cluster, "ALTER ROLE duct CONNECTION LIMIT -1").await;
    house.completed(PATIENCE).await;
    // The same that had waited.
    assert_eq!(daemon.child("worker Steady", None).await, refused);
    daemon.stop().await;
    house.succeeded_once_each().await;
    house.audited().await;
}
