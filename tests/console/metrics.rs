//! Metrics: the counts of the built daemon's processes, and the scrapes that are made of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ductwork::store::{Location, Purpose, migrate};
use nix::sys::signal::Signal;

use crate::cluster::Cluster;
use crate::fixture::*;
use crate::http::Console;
use crate::on_every_database;
use crate::support::Db;
use crate::writing::freeze_outside_of_a_write;

/// A step that fails once, and one that follows.
const RETRIES: &str = "pipeline: Retries\n\
     steps:\n  A: { command: [sh, -c, 'test $DUCTWORK_ATTEMPT -gt 1 && cat'] }\n  B: { command: [cat] }\n\
     flow: [{ start: A }, { chain: B }]\n";

/// A run that halts.
const FAILS: &str = "pipeline: Fails\n\
     steps: { A: { command: [sh, -c, 'exit 1'], max_retry: 0 }, Tell: { command: [sh, -c, 'exit 2'], max_retry: 0 } }\n\
     flow: [{ start: A }]\n\
     on_halt: Tell\n";

/// Steps of some milliseconds.
const QUICK: &str = "pipeline: Quick\n\
     steps: { A: { command: [cat] }, B: { command: [cat] } }\n\
     flow: [{ start: A }, { chain: B }]\n";

/// A step that runs until it is let go.
const BUSY: &str = "pipeline: Busy\n\
     steps: { A: { command: [sh, -c, 'until [ -e go ]; do sleep 0.1; done; cat'] } }\n\
     flow: [{ start: A }]\n";

const ANY_PORT: &str = "  console: { listen: \"127.0.0.1:0\" }\n";

/// The series of a scrape's text, with their values.
fn series(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        (series.to_owned(), value.parse().unwrap())
    };
    lines.map(sample).collect()
}

/// True for series that may never fall; CPU time does not count, because it belongs to a living
/// process.
fn is_counted(series: &str) -> bool {
    let name = series.split('{').next().unwrap();
    if name == "ductwork_process_cpu_seconds_total" {
        return false;
    }
    let endings = ["_total", "_bucket", "_count", "_sum"];
    endings.iter().any(|ending| name.ends_with(ending))
}

/// Checks that no counter falls from one scrape to the next.
#[derive(Default)]
struct Witness {
    last: BTreeMap<String, f64>,
    scrapes: usize,
}

impl Witness {
    async fn look(&mut self, console: &Console) {
        let answer = console.answers("/metrics", 200).await;
        self.compare(series(&answer.body));
    }

    fn compare(&mut self, now: BTreeMap<String, f64>) {
        let counted = self.last.iter().filter(|(name, _)| is_counted(name));
        for (name, value) in counted {
            let now = now.get(name);
            assert!(
                now.is_some_and(|now| now >= value),
                "{name}: {value}, then {now:?}"
            );
        }
        self.scrapes += 1;
        self.last = now;
    }

    fn runs_ended(&self) -> f64 {
        let name = r#"ductwork_runs_ended_total{pipeline="Quick",status="completed"}"#;
        self.last.get(name).copied().unwrap_or_default()
    }
}

/// The metrics that the verb prints.
fn printed(fixture: &DaemonFixture) -> BTreeMap<String, f64> {
    let printed = fixture.run(&[], &["metrics"]);
    assert!(printed.status.success(), "{printed:?}");
    series(&String::from_utf8(printed.stdout).unwrap())
}

on_every_database! {
    async fn what_processes_have_counted_is_there_exactly_once_when_they_have_ended(db: Db) {
        let pipelines = [RETRIES, FAILS];
        // A slot for each run: an execution that waits for a slot may be put back, and is claimed again.
        let settings = Settings { count: 32, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &pipelines).await;
        for round in 1..=2 {
            let mut daemon = fixture.start();
            daemon.ready().await;
            fixture.trigger("Retries", "1", 20).await;
            fixture.trigger("Fails", "1", 3).await;
            fixture.ended(PATIENCE).await;
            daemon.stop().await;
            let series = printed(&fixture);
            let n = |name: &str| {
                let value = series.get(&format!("ductwork_{name}")).copied();
                value.unwrap_or_else(|| panic!("{name}: {series:#?}")) / f64::from(round)
            };
            assert_eq!(n(r#"runs_started_total{pipeline="Retries"}"#), 20.0);
            assert_eq!(n(r#"runs_ended_total{pipeline="Retries",status="completed"}"#), 20.0);
            assert_eq!(n(r#"runs_ended_total{pipeline="Fails",status="halted"}"#), 3.0);
            let ended = |pipeline: &str, step: &str, result: &str| {
                n(&format!(
                    r#"executions_ended_total{{pipeline="{pipeline}",step="{step}",result="{result}"}}"#
                ))
            };
            assert_eq!(ended("Retries", "A", "error"), 20.0);
            assert_eq!(ended("Retries", "A", "success"), 20.0);
            assert_eq!(ended("Retries", "B", "success"), 20.0);
            assert_eq!(ended("Fails", "A", "error"), 3.0);
            assert_eq!(ended("Fails", "Tell", "error"), 3.0);
            assert_eq!(n(r#"hooks_failed_total{pipeline="Fails",hook="on_halt"}"#), 3.0);
            assert_eq!(n(r#"retries_total{pipeline="Retries",step="A",cause="error"}"#), 20.0);
            assert!(!series.contains_key(
                r#"ductwork_retries_total{pipeline="Fails",step="A",cause="error"}"#
            ));
            assert_eq!(n(r#"run_duration_seconds_count{pipeline="Retries",status="completed"}"#), 20.0);
            assert_eq!(n(r#"step_duration_seconds_count{pipeline="Retries",step="A"}"#), 40.0);
            assert_eq!(n(r#"advancements_total{pipeline="Retries",result="success"}"#), 40.0);
            assert_eq!(n(r#"stale_writes_total{role="worker"}"#), 0.0);
            assert_eq!(n(r#"process_starts_total{role="worker",cause="start"}"#), 2.0);
            assert_eq!(n(r#"process_exits_total{role="worker",cause="ended"}"#), 2.0);
            assert_eq!(n(r#"process_exits_total{role="worker",cause="killed"}"#), 0.0);
            assert_eq!(n(r#"shutdowns_total{role="supervisor",outcome="drained"}"#), 1.0);
            assert_eq!(n(r#"shutdowns_total{role="worker",outcome="drained"}"#), 2.0);
            assert!(n(r#"heartbeats_total{role="worker",outcome="written"}"#) > 0.0);
            assert!(n(r#"db_statements_total{role="worker"}"#) > 0.0);
            // Each execution was claimed, or leased with the result before it.
            assert_eq!(n(r#"leases_granted_total{kind="execution"}"#), 66.0);
        }
    }

    async fn no_counter_falls_while_workers_are_killed(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[QUICK]).await;
        fixture.configure(ANY_PORT);
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        let mut witness = Witness::default();
        let mut triggered = 0;
        for _ in 0..6 {
            let worker = daemon.child("worker Quick", None).await;
            fixture.trigger("Quick", "1", 20).await;
            triggered += 20;
            witness.look(&console).await;
            send(worker, Signal::SIGKILL);
            daemon.child("worker Quick", Some(worker)).await;
            witness.look(&console).await;
        }
        fixture.completed(PATIENCE).await;
        // The last worker lives: its row is updated within ten seconds.
        let seen = witness.runs_ended();
        fixture.trigger("Quick", "1", 30).await;
        triggered += 30;
        fixture.completed(PATIENCE).await;
        eventually(PATIENCE, "what the living worker did is counted", async || {
            witness.look(&console).await;
            let ended = witness.runs_ended();
            assert!(ended <= f64::from(triggered), "more than there were");
            (ended >= seen + 30.0).then_some(())
        })
        .await;
        assert!(witness.scrapes > 12);
        daemon.stop().await;
        witness.compare(printed(&fixture));
        let last = witness.last;
        // A worker that was killed before it had registered had nothing to recover.
        let died = daemon.logged("a child died").len() as f64;
        assert!(died >= 4.0, "{died}");
        let killed = r#"ductwork_process_exits_total{role="worker",cause="killed"}"#;
        assert_eq!(last.get(killed), Some(&died));
        let recoveries = r#"ductwork_recoveries_total{proof="exit"}"#;
        assert!(last.get(recoveries).is_some_and(|them| (1.0..=died).contains(them)));
        fixture.audited().await;
    }

    async fn a_host_that_is_lost_is_told_of_after_others_have_recovered_it(db: Db) {
        let settings = Settings { reaper_timeout: "3s", ..Settings::default() };
        let fixture = DaemonFixture::new(&db, settings, &[QUICK]).await;
        let mut lost = fixture.start();
        lost.ready().await;
        fixture.configure(ANY_PORT);
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        let series = |text: String| {
            let lost = text.lines().find(|line| line.starts_with("ductwork_supervisors_lost_total "));
            lost.map(str::to_owned)
        };
        let counted = eventually(PATIENCE, "there is a series before anybody is lost", async || {
            series(console.get("/metrics").body)
        });
        assert_eq!(counted.await, "ductwork_supervisors_lost_total 0");
        let said = fixture.run(&[], &["health", "--json"]);
        let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
        assert_eq!((&said["supervisors"], &said["lost"]), (&2.into(), &serde_json::json!([])));
        // Each worker is listed with its own supervisor.
        let said = fixture.run(&[], &["processes"]);
        let said = String::from_utf8(said.stdout).unwrap();
        for pid in [lost.pid(), daemon.pid()].map(|pid| pid.to_string()) {
            let is_under = |line: &&str| line.split_whitespace().nth(7) == Some(&*pid);
            let workers = said.lines().filter(|line| line.starts_with("worker"));
            assert_eq!(workers.filter(is_under).count(), 1, "{pid}: {said}");
        }
        // Like a host that stands still: none of its processes can deregister, and no other process can
        // see them die.
        let frozen: Vec<i32> = lost.processes().iter().map(|it| it.pid).collect();
        for pid in &frozen {
            freeze_outside_of_a_write(&db, *pid).await;
        }
        let line = format!("1 supervisor died in the last hour; last pid {} on ", lost.pid());
        for verb in ["health", "processes"] {
            let said = eventually(PATIENCE, "it is told", async || {
                let said = fixture.run(&[], &[verb]);
                let text = String::from_utf8(said.stdout).unwrap();
                (said.status.success() && text.contains(&line)).then_some(text)
            })
            .await;
            assert!(said.contains(": its heartbeat stopped; `ductworkd processes --gone`"), "{said}");
        }
        let said = fixture.run(&[], &["health", "--json"]);
        let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
        assert_eq!((&said["healthy"], &said["supervisors"]), (&true.into(), &1.into()), "{said}");
        assert_eq!(said["lost"][0]["pid"], lost.pid(), "{said}");
        eventually(PATIENCE, "it is counted once, and its children are not", async || {
            let counted = series(console.get("/metrics").body)?;
            (counted == "ductwork_supervisors_lost_total 1").then_some(())
        })
        .await;
        for pid in frozen {
            send(pid, Signal::SIGKILL);
        }
        lost.ended(PATIENCE).await;
        daemon.stop().await;
    }

    async fn roles_without_a_supervisor_count_their_losses_from_zero(db: Db) {
        let settings = Settings { reaper_timeout: "2s", ..Settings::default() };
        let fixture = DaemonFixture::new(&db, settings, &[QUICK]).await;
        let lost = r#"ductwork_recoveries_total{proof="silence"}"#;
        let none = [
            lost,
            r#"ductwork_leases_expired_total{kind="execution"}"#,
            r#"ductwork_leases_expired_total{kind="advancement"}"#,
            "ductwork_supervisors_lost_total",
        ];
        let mut worker = fixture.start_as(&["env", "DUCTWORK_ROLE=worker"], &["start"]);
        eventually(PATIENCE, "there are series before anybody is lost", async || {
            let series = printed(&fixture);
            none.iter().all(|name| series.get(*name) == Some(&0.0)).then_some(())
        })
        .await;
        let mut advancer = fixture.start_as(&["env", "DUCTWORK_ROLE=advancer"], &["start"]);
        advancer.says("registered").await;
        // The end of a process of this host would be seen. That of a pod is not.
        freeze_outside_of_a_write(&db, worker.pid()).await;
        eventually(PATIENCE, "the worker is counted as lost", async || {
            (printed(&fixture).get(lost) == Some(&1.0)).then_some(())
        })
        .await;
        worker.send(Signal::SIGKILL);
        worker.ended(PATIENCE).await;
        advancer.stop().await;
    }

    async fn requests_are_timed_by_the_route_and_no_path_is_a_label(db: Db) {
        let fixture = DaemonFixture::new(&db, Settings::default(), &[QUICK]).await;
        fixture.configure(ANY_PORT);
        let mut alone = fixture.start_as(&[], &["console"]);
        let console = Console::of(&alone).await;
        console.answers("/readyz", 200).await;
        let nobody = "0192f3a1-0000-7000-8000-000000000000";
        for (path, status) in [
            ("/pipelines".to_owned(), 200),
            ("/pipelines?secret=1".to_owned(), 400),
            (format!("/api/v1/runs/{nobody}"), 404),
            (format!("/api/v1/runs/{nobody}"), 404),
            ("/nowhere/secret".to_owned(), 404),
        ] {
            assert_eq!(console.get(&path).status, status, "{path}");
        }
        let strange = "GET /pipelines HTTP/1.1\r\nHost: elsewhere\r\nConnection: close\r\n\r\n";
        assert_eq!(console.exchange(strange).unwrap().status, 421);
        alone.stop().await;
        let series = printed(&fixture);
        let n = |route: &str, status: &str| {
            let name = format!(r#"ductwork_http_request_seconds_count{{route="{route}",status="{status}"}}"#);
            series.get(&name).copied()
        };
        assert_eq!(n("/pipelines", "2xx"), Some(1.0), "{series:#?}");
        assert_eq!(n("/pipelines", "4xx"), Some(2.0));
        assert_eq!(n("/api/v1/runs/{id}", "4xx"), Some(2.0));
        assert_eq!(n("_other", "4xx"), Some(1.0));
        assert!(series.keys().all(|it| !it.contains("secret") && !it.contains(nobody)), "{series:#?}");
    }

    async fn each_asks_for_its_format_and_the_verb_prints_the_same(db: Db) {
        let fixture = DaemonFixture::new(&db, Settings::default(), &[QUICK]).await;
        fixture.configure(ANY_PORT);
        let mut alone = fixture.start_as(&[], &["console"]);
        let console = Console::of(&alone).await;
        let plain = console.answers("/metrics", 200).await;
        assert!(plain.head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{}", plain.head);
        let host = &console.address;
        let open = console.exchange(&format!(
            "GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
             Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n\r\n"
        ));
        let open = open.unwrap();
        assert!(open.head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{}", open.head);
        assert!(open.body.ends_with("# EOF\n"), "{}", open.body);
        let printed = fixture.run(&[], &["metrics", "--openmetrics"]);
        let printed = String::from_utf8(printed.stdout).unwrap();
        assert!(printed.ends_with("# EOF\n"), "{printed}");
        let info = format!("ductwork_build_info{{version=\"{}\",", env!("CARGO_PKG_VERSION"));
        for text in [&plain.body, &open.body, &printed] {
            assert!(text.contains(&info), "{text}");
        }
        alone.stop().await;
    }
}

/// Prometheus considers the target down, and no number is an old one.
#[tokio::test]
async fn while_the_database_is_away_a_scrape_is_told_to_come_again() {
    let cluster = Cluster::start();
    let location = Location::parse(&cluster.url).unwrap();
    let mut conn = location.connect(Purpose::Query).await.unwrap();
    migrate::migrate(&mut conn).await.unwrap();
    let fixture = DaemonFixture::at(&cluster.url, conn, Settings::default(), &[QUICK]).await;
    fixture.configure(ANY_PORT);
    let mut alone = fixture.start_as(&[], &["console"]);
    let console = Console::of(&alone).await;
    console.answers("/metrics", 200).await;
    cluster.down();
    let away = console.answers("/metrics", 503).await;
    assert!(away.head.contains("retry-after: "), "{}", away.head);
    assert!(!away.body.contains("ductwork_"), "{}", away.body);
    cluster.up();
    console.answers("/metrics", 200).await;
    alone.stop().await;
}

/// Each process reports its resources, and a worker the number of its slots.
#[tokio::test]
async fn living_processes_tell_what_they_use() {
    let db = Db::sqlite();
    let mut fixture = DaemonFixture::new(&db, Settings::default(), &[BUSY]).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    fixture.trigger("Busy", "1", 1).await;
    let of = |series: &BTreeMap<String, f64>, name: &str, labels: &[&str]| {
        let is_it =
            |it: &str| it.starts_with(name) && labels.iter().all(|label| it.contains(label));
        let found = series.iter().find(|(it, _)| is_it(it));
        found.map(|(_, value)| *value)
    };
    const ROLES: [&str; 3] = ["supervisor", "worker", "advancer"];
    let what = "the worker tells of its busy slot, and all of what they use";
    let series = eventually(PATIENCE, what, async || {
        let series = printed(&fixture);
        let busy = of(&series, "ductwork_slots{", &["\"busy\""]);
        // Each process writes once its own ten seconds are over.
        let told = ROLES.iter().all(|role| {
            let labels = [&format!("role=\"{role}\"") as &str];
            of(&series, "ductwork_process_resident_memory_bytes{", &labels).is_some()
        });
        (busy == Some(1.0) && told).then_some(series)
    })
    .await;
    for role in ROLES {
        let labels = [&format!("role=\"{role}\"") as &str, "slot=\"0\""];
        let memory = of(&series, "ductwork_process_resident_memory_bytes{", &labels);
        assert!(memory.is_some_and(|it| it > 1e6), "{role}: {series:#?}");
        let open = of(&series, "ductwork_process_open_fds{", &labels);
        assert!(open.is_some_and(|it| it >= 3.0), "{role}: {series:#?}");
        let cpu = of(&series, "ductwork_process_cpu_seconds_total{", &labels);
        assert!(cpu.is_some_and(|it| it > 0.0), "{role}: {series:#?}");
    }
    let free = of(&series, "ductwork_slots{pipeline=\"Busy\"", &["\"free\""]);
    assert!(free.is_some(), "{series:#?}");
    std::fs::write(fixture.path("go"), "").unwrap();
    fixture.completed(PATIENCE).await;
    daemon.stop().await;
    // No process is left to report anything.
    let left = printed(&fixture);
    assert_eq!(of(&left, "ductwork_process_resident", &[]), None);
    db.remove().await;
}

/// A program reports its resources once, however many loops it has.
#[tokio::test]
async fn a_program_that_works_several_pipelines_tells_once_what_it_uses() {
    let db = Db::sqlite();
    let fixture = DaemonFixture::new(&db, Settings::default(), &[QUICK, FAILS]).await;
    let mut alone = fixture.start_as(&["env", "DUCTWORK_ROLE=worker"], &["start"]);
    let named = |series: &BTreeMap<String, f64>, start: &str| {
        series.keys().filter(|it| it.starts_with(start)).count()
    };
    let series = eventually(PATIENCE, "both tell of their slots", async || {
        let series = printed(&fixture);
        // The busy and the free slots of both.
        (named(&series, "ductwork_slots{") == 4).then_some(series)
    })
    .await;
    for metric in ["resident_memory_bytes{", "cpu_seconds_total{", "open_fds{"] {
        let metric = format!("ductwork_process_{metric}");
        assert_eq!(named(&series, &metric), 1, "{metric}: {series:#?}");
    }
    alone.stop().await;
    db.remove().await;
}

/// A worker that is killed takes along the counts of its last ten seconds.
#[tokio::test]
async fn a_worker_that_is_killed_takes_no_more_along_than_its_last_seconds() {
    let db = Db::sqlite();
    let mut fixture = DaemonFixture::new(&db, Settings::default(), &[QUICK]).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    fixture.trigger("Quick", "1", 25).await;
    fixture.completed(PATIENCE).await;
    let ended = |fixture: &DaemonFixture| {
        let name = r#"ductwork_runs_ended_total{pipeline="Quick",status="completed"}"#;
        printed(fixture).get(name).copied().unwrap_or_default()
    };
    let done = Instant::now();
    eventually(PATIENCE, "they are counted", async || {
        (ended(&fixture) >= 25.0).then_some(())
    })
    .await;
    assert!(
        done.elapsed() < Duration::from_secs(60),
        "{:?}",
        done.elapsed()
    );
    let worker = daemon.child("worker Quick", None).await;
    fixture.trigger("Quick", "1", 5).await;
    fixture.completed(PATIENCE).await;
    send(worker, Signal::SIGKILL);
    daemon.child("worker Quick", Some(worker)).await;
    daemon.stop().await;
    let ended = ended(&fixture);
    assert!((25.0..=30.0).contains(&ended), "{ended}");
    fixture.audited().await;
    db.remove().await;
}
