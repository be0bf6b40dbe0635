//! Counts over time: one console of all makes them from the processes' counts, pages show them,
//! and the API returns them.

use ductwork::metrics::series::{HOUR, Looked, MINUTE, complete, sums};
use ductwork::store::statement::Statement;
use ductwork::store::{metrics, query, series};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::fixture::*;
use crate::http::Console;
use crate::on_every_database;
use crate::schema;
use crate::support::Db;
use crate::visitors::{Ask, KNOWN, token};

const PLAIN: &str = "pipeline: Plain\nsteps: { A: { command: [cat] } }\nflow: [{ start: A }]\n";

const HALTS: &str = "pipeline: Halts\n\
     steps: { Fail: { command: [sh, -c, 'exit 1'], max_retry: 0 } }\n\
     flow: [{ start: Fail }]\n";

const ANY_PORT: &str = "  console: { listen: \"127.0.0.1:0\" }\n";

/// Makes the holder of each duty look as if it were gone.
static EXPIRE: Statement = Statement::new("TEST_EXPIRE", "UPDATE ductwork_duties SET until = 0");

/// The daemon without a console runs these to their ends; once it has stopped, all of them are
/// counted.
async fn ran(fixture: &mut DaemonFixture, plain: usize, halts: usize) {
    let mut daemon = fixture.start();
    daemon.ready().await;
    fixture.trigger("Plain", "1", plain).await;
    fixture.trigger("Halts", "1", halts).await;
    fixture.ended(PATIENCE).await;
    daemon.stop().await;
}

/// Makes it look as if the last look was ten minutes ago, with the present counts. It is never at the start of an
/// hour: that hour would count as one that was counted alone.
async fn looked(fixture: &mut DaemonFixture) {
    let conn = &mut fixture.conn;
    let now = query::now(conn).await.unwrap();
    let counted = metrics::at_a_time(conn).await.unwrap();
    let sums = counted.map(|(_, counts)| sums(&counts)).unwrap_or_default();
    let ago = match complete(now - 10 * MINUTE) % HOUR {
        0 => 11 * MINUTE,
        _ => 10 * MINUTE,
    };
    let looked = Looked::begin(now - ago, sums);
    match series::last(conn).await.unwrap() {
        None => series::begin(conn, &looked).await.unwrap(),
        Some(stored) => assert!(
            series::follow(conn, stored.turn, &looked, &[])
                .await
                .unwrap()
        ),
    }
}

/// The sum of these numbers over all points.
fn sum(points: &[Value], numbers: &[&str]) -> u64 {
    let number = |it: &Value| {
        let it = numbers.iter().fold(it, |it, name| &it[*name]);
        it.as_u64().unwrap()
    };
    points.iter().map(number).sum()
}

fn points(console: &Console, pipeline: &str, query: &str) -> Vec<Value> {
    let points = console.json(&format!("/api/v1/pipelines/{pipeline}/series{query}"));
    points.as_array().unwrap().clone()
}

/// Waits until its points contain this many started runs, in each grain.
async fn told(console: &Console, pipeline: &str, started: u64) {
    eventually(
        PATIENCE,
        "a console has told what was counted",
        async || {
            let now = sum(&points(console, pipeline, ""), &["started"]);
            assert!(
                now <= started,
                "{now} runs of {pipeline}: more than there were"
            );
            (now == started).then_some(())
        },
    )
    .await;
    assert_eq!(
        sum(&points(console, pipeline, "?grain=hour"), &["started"]),
        started
    );
}

on_every_database! {
    async fn what_was_counted_is_told_once_whichever_console_is_killed_and_shown(db: Db) {
        // A slot for each run: an execution that waits for a slot may be put back, and is claimed again.
        let settings = Settings { count: 32, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[PLAIN, HALTS]).await;
        looked(&mut fixture).await;
        ran(&mut fixture, 20, 3).await;
        fixture.configure(ANY_PORT);
        let mut alone = fixture.start_as(&[], &["console"]);
        let console = Console::of(&alone).await;
        told(&console, "Plain", 20).await;
        told(&console, "Halts", 3).await;
        let minutes = points(&console, "Plain", "?grain=minute&since=1h");
        assert_eq!((minutes.len(), sum(&minutes, &["ended", "completed"])), (1, 20));
        // There had been no look for ten minutes, and the point says so.
        assert!(minutes[0]["seconds"].as_f64().unwrap() >= 600.0, "{minutes:?}");
        assert!(minutes[0]["since"].as_str() < minutes[0]["at"].as_str(), "{minutes:?}");
        assert_eq!(minutes[0]["run_duration"]["count"], 20);
        assert!(minutes[0]["run_duration"]["p95_seconds"].as_f64().unwrap() > 0.0);
        assert!(sum(&minutes, &["step_wait", "count"]) <= 20);
        assert_eq!(sum(&points(&console, "Halts", ""), &["ended", "halted"]), 3);
        let document = console.json("/api/v1/openapi.json");
        let form = "/paths/~1api~1v1~1pipelines~1{name}~1series/get/responses/200/content/application~1json/schema";
        let form = document.pointer(form).unwrap();
        assert_eq!(schema::faults(&document, form, &Value::Array(minutes)), Vec::<String>::new());

        let page = console.get("/").body;
        for part in [
            "Runs started by the minute in the last hour: 23 in all",
            "Runs ended by the minute in the last hour: 23 in all, at most ",
            "runs that ended by the hour in the last 24: 20 in all, at most 20 in an hour, 0 halted",
            "<span aria-hidden=\"true\">✗</span> 3<span class=\"unseen\"> halted</span>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        // The point is spread over the minutes that it covers.
        assert!(!page.contains("at most 23 in a minute, 3 halted"), "{page}");
        for (query, words) in [("", "24 hours"), ("?span=7d", "7 days")] {
            let page = console.get(&format!("/pipelines/Halts{query}")).body;
            let label = format!("Runs of Halts by the hour in the last {words}: 3 started, 0 completed, 3 halted");
            assert!(page.contains(&label), "{page}");
            assert!(page.contains("Pale hours were not counted alone"), "{page}");
        }

        // The console is killed, and the next one takes over the counts since then.
        send(alone.pid(), Signal::SIGKILL);
        alone.ended(PATIENCE).await;
        looked(&mut fixture).await;
        fixture.configure("");
        ran(&mut fixture, 5, 0).await;
        fixture.conn.execute(&EXPIRE, &[]).await.unwrap();
        fixture.configure(ANY_PORT);
        let mut two = [fixture.start_as(&[], &["console"]), fixture.start_as(&[], &["console"])];
        for console in &two {
            told(&Console::of(console).await, "Plain", 25).await;
        }
        for console in &mut two {
            console.stop().await;
        }
        told_in_rows(&mut fixture, 28).await;
    }

    async fn a_console_begins_with_what_is_counted_from_then_on(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN, HALTS]).await;
        ran(&mut fixture, 2, 0).await;
        fixture.configure(ANY_PORT);
        let mut alone = fixture.start_as(&[], &["console"]);
        let console = Console::of(&alone).await;
        eventually(PATIENCE, "it has looked", async || series::last(&mut fixture.conn).await.unwrap()).await;
        assert_eq!(points(&console, "Plain", ""), Vec::<Value>::new());
        let page = console.get("/pipelines/Plain").body;
        assert!(page.contains("Nothing was counted in this time."), "{page}");
        assert!(console.get("/").body.contains("no run ended in the last 24 hours"));
        for (path, status) in [
            ("/api/v1/pipelines/Nowhere/series", 404),
            ("/api/v1/pipelines/Plain/series?grain=day", 400),
            ("/api/v1/pipelines/Plain/series?limit=501", 400),
            ("/api/v1/pipelines/Plain/series?since=x", 400),
            ("/pipelines/Plain?span=1y", 400),
            ("/pipelines/Plain?span=7d&version=x", 404),
        ] {
            assert_eq!(console.get(path).status, status, "{path}");
        }
        alone.stop().await;
    }

    async fn points_come_page_by_page_and_a_token_for_some_pipelines_reads_theirs_alone(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN, HALTS]).await;
        looked(&mut fixture).await;
        ran(&mut fixture, 1, 1).await;
        fixture.configure(KNOWN);
        let mut alone = fixture.start_as(&[], &["console"]);
        let console = Console::of(&alone).await;
        let secret = token(&fixture, &["--pipeline", "Plain"]);
        let ask = |path: &str| Ask::get(path).bearer(&secret).of(&console);
        eventually(PATIENCE, "a point is there", async || {
            (ask("/api/v1/pipelines/Plain/series").body != "[]").then_some(())
        })
        .await;
        assert_eq!(ask("/api/v1/pipelines/Halts/series").status, 403);
        let now = query::now(&mut fixture.conn).await.unwrap();
        let stored = series::last(&mut fixture.conn).await.unwrap().unwrap();
        let more = |n: i64| ductwork::metrics::series::Point {
            pipeline: "Plain".to_owned(),
            grain: ductwork::metrics::series::Grain::Minute,
            at: ductwork::metrics::series::Grain::Minute.of(now) - (20 + n) * MINUTE,
            since: 0,
            sum: ductwork::metrics::series::Sum { retries: 1, ..Default::default() },
        };
        let more: Vec<_> = (0..5).map(more).collect();
        assert!(series::follow(&mut fixture.conn, stored.turn, &stored.looked.unwrap(), &more).await.unwrap());
        let first = ask("/api/v1/pipelines/Plain/series?limit=4");
        let next = first.header("link").unwrap().strip_prefix('<').unwrap().split('>').next().unwrap().to_owned();
        let rest = ask(&next);
        let read = |body: &str| serde_json::from_str::<Vec<Value>>(body).unwrap();
        let (first, rest) = (read(&first.body), read(&rest.body));
        assert_eq!((first.len(), rest.len(), sum(&first, &["retries"]) + sum(&rest, &["retries"])), (4, 2, 5));
        assert!(first[3]["at"].as_str() > rest[0]["at"].as_str());
        alone.stop().await;
    }
}

/// Asserts that the rows for all pipelines together contain this many runs, by the minute and by
/// the hour.
async fn told_in_rows(fixture: &mut DaemonFixture, started: u64) {
    use ductwork::metrics::series::{ALL, GRAINS};
    for grain in GRAINS {
        let within = (i64::MIN, i64::MAX);
        let points = series::of_pipeline(&mut fixture.conn, ALL, grain, within, 999).await;
        let sum: u64 = points.unwrap().iter().map(|it| it.sum.started).sum();
        assert_eq!(sum, started, "{grain:?}");
    }
}
