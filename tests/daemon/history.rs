//! A long history, a full queue and a wide run add no cost. MariaDB's log counts the rows that each statement has
//! read: no plan gives that number.

use std::time::Duration;

use ductwork::definition::Pipeline;
use ductwork::model::{RunId, RunStatus, StepId};
use ductwork::store::bench::data;
use ductwork::store::list::{self, RunFilter};
use ductwork::store::{
    Conn, Location, Purpose, event, fan_out, halted, migrate, overview, page, query, stuck,
};

use crate::fixture::*;
use crate::mariadb::Mariadb;

const WORK: &str = "
pipeline: Work
steps:
  A: { command: [cat] }
  B: { command: [cat] }
  Each: { command: [cat] }
  All: { command: [cat] }
flow: [{ start: A }, { expand: Each }, { collapse: All }, { chain: B }]
";

const ASK: &str = "
pipeline: Ask
steps: { A: { command: [cat] } }
flow: [{ start: A }, { dampen: Go on? }, { chain: A }]
";

const FAILS: &str = "
pipeline: Fails
steps: { A: { command: ['false'] } }
flow: [{ start: A }]
";

/// The most rows that a statement may read: a few for each of a batch, and there is little work
/// here.
const MOST: u32 = 1_000;

/// Runs that have ended, and others that no process works on.
async fn fill(conn: &mut Conn) {
    let mut numbers = data::Numbers::now(conn).await.unwrap();
    for name in ["Old", "Older", "Oldest"] {
        let chain = Pipeline::named(name).start("A").chain("B").build().unwrap();
        data::completed(conn, &chain, 4_000, &mut numbers, &|_| {})
            .await
            .unwrap();
        data::waiting(conn, &chain, 2_000, &mut numbers, &|_| {})
            .await
            .unwrap();
    }
    data::settle(conn).await.unwrap();
}

/// All the queries of pages and commands, one after the other.
async fn read(conn: &mut Conn, wide: RunId) {
    let hour = Duration::from_secs(3_600);
    let lists: &[&[RunStatus]] = &[
        &[],
        &[RunStatus::Completed],
        &[RunStatus::Halted],
        RunStatus::ALL,
    ];
    for statuses in lists {
        for pipeline in [None, Some("Old"), Some("Work"), Some("None")] {
            for since in [None, Some(hour)] {
                let filter = RunFilter {
                    pipeline,
                    key: None,
                    statuses,
                    since,
                    before: None,
                    limit: 20,
                    whole: query::WHOLE,
                };
                list::runs(conn, &filter).await.unwrap();
            }
        }
    }
    for since in [None, Some(hour)] {
        overview::counts(conn, since, 100).await.unwrap();
    }
    // One of the test's runs may still be in another queue.
    assert!(overview::queues(conn, 100).await.unwrap().len() >= 3);
    stuck::facts(conn, hour).await.unwrap();
    for pipeline in [None, Some("Old"), Some("Fails")] {
        halted::by_kind(conn, pipeline).await.unwrap();
    }
    for whole in [None, Some(query::WHOLE)] {
        page::waiting_after(conn, None, (wide, StepId::new()), 20, whole)
            .await
            .unwrap();
    }
    page::questions(conn, None, 20).await.unwrap();
    page::held(conn, 20).await.unwrap();
    page::pipelines(conn, 20).await.unwrap();
    page::versions(conn, "Work", 20).await.unwrap();
    page::run(conn, wide).await.unwrap().unwrap();
    let made = fan_out::of_root(conn, wide).await.unwrap().remove(0);
    let elements = fan_out::elements(conn, made.id, 900, 20).await.unwrap();
    assert_eq!(elements.len(), 20);
    fan_out::halted_elements(conn, wide, made.id, 20)
        .await
        .unwrap();
    page::steps_of_root(conn, wide, 20).await.unwrap();
    page::steps_of_halted(conn, wide, 20).await.unwrap();
    let now = query::now(conn).await.unwrap();
    event::past(conn, now - 1_000_000, now).await.unwrap();
}

#[tokio::test]
async fn no_statement_on_mariadb_reads_what_lies_in_the_tables() {
    let server = Mariadb::start();
    let location = Location::parse(&server.url).unwrap();
    let mut conn = location.connect(Purpose::Engine).await.unwrap();
    migrate::migrate(&mut conn).await.unwrap();
    fill(&mut conn).await;
    let settings = Settings {
        max_retry: 1,
        ..Settings::default()
    };
    let pipelines = [WORK, ASK, FAILS];
    let mut fixture = DaemonFixture::at(&server.url, conn, settings, &pipelines).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    let elements: Vec<u32> = (0..1_000).collect();
    let wide = fixture.trigger("Work", &format!("{elements:?}"), 1).await[0];
    fixture.run_ended(wide).await;
    daemon.stop().await;

    // For sessions that begin from now on.
    server.sql(&format!(
        "SET GLOBAL log_output = 'TABLE'; SET GLOBAL slow_query_log = 1; SET GLOBAL long_query_time = 0;
         SET GLOBAL min_examined_row_limit = {}",
        MOST / 4
    ));
    let mut daemon = fixture.start();
    daemon.ready().await;
    let few: Vec<u32> = (0..20).collect();
    let mut ends = fixture.trigger("Work", &format!("{few:?}"), 5).await;
    ends.extend(fixture.trigger("Fails", "1", 3).await);
    let asks = fixture.trigger("Ask", "1", 2).await;
    for run in ends {
        fixture.run_ended(run).await;
    }
    let conn = &mut fixture.conn;
    for run in &asks {
        eventually(PATIENCE, "the run waits", async || {
            let state = query::run_state(conn, *run).await.unwrap().unwrap();
            (state.status == RunStatus::Dampened).then_some(())
        })
        .await;
    }
    let (first, second) = (asks[0].to_string(), asks[1].to_string());
    let wide_run = wide.to_string();
    for verb in [
        &["show", &first][..],
        &["why", &first],
        &["resume", &first, "2"],
        &["cancel", &second],
        &["runs"],
        &["runs", "--status", "completed"],
        &["runs", "--pipeline", "Old"],
        &["processes"],
        &["trigger", "Work", "[1]", "--key", "a key"],
        &["trigger", "Work", "[1]", "--key", "a key"],
        &["why", &wide_run],
    ] {
        let done = fixture.run(&[], verb);
        assert!(done.status.success(), "{verb:?}: {done:?}");
    }
    // It may report that the queues of the other pipelines have no worker.
    fixture.run(&[], &["health"]);
    fixture.run_ended(asks[0]).await;
    daemon.stop().await;
    let mut reader = location.connect(Purpose::Query).await.unwrap();
    read(&mut reader, wide).await;
    reader.close().await;

    let logged = server.sql(
        "SELECT rows_examined, replace(replace(left(sql_text, 2000), '\\n', ' '), '\\t', ' ') FROM mysql.slow_log
          WHERE db = 'ductwork' ORDER BY rows_examined DESC",
    );
    let rows = logged.lines().filter_map(|line| line.split_once('\t'));
    let rows: Vec<(u32, &str)> = rows.map(|(n, sql)| (n.parse().unwrap(), sql)).collect();
    // The log is kept, and contains the right statements.
    assert!(
        rows.iter().any(|(_, sql)| sql.contains("ductwork_")),
        "{logged}"
    );
    let wrong: Vec<_> = rows.iter().filter(|(n, _)| *n > MOST).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
