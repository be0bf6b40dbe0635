//! The benchmark as a user runs it: the built program, on a database that holds real runs.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by it, outside of the functions that the linter takes for tests too"
)]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A configuration in a directory of its own.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn with(url: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let text = format!(
            "default:\n  database: {{ url: \"{url}\" }}\n  supervisor: {{ reaper_timeout: 6 }}\n  hooks: {{ supervisor: {{ start: [\"false\"] }} }}\n"
        );
        std::fs::write(directory.path().join("ductwork.yml"), text).unwrap();
        Self { directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn bench(&self, args: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ductworkd"));
        command.arg("bench").args(args).current_dir(self.path());
        for name in ["DUCTWORK_DATABASE_URL", "DATABASE_URL", "DUCTWORK_CONFIG"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn report(output: &Output) -> serde_json::Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Every number exists, all of the work was done, and every invariant held.
fn check(report: &serde_json::Value) {
    let measures = report["measures"].as_array().unwrap();
    let value = |workload: &str, name: &str| {
        let mut found = measures
            .iter()
            .filter(|m| m["workload"] == workload && m["name"] == name);
        let measure = found
            .next()
            .unwrap_or_else(|| panic!("no {workload} {name}: {report}"));
        measure["value"].as_f64().unwrap()
    };
    assert!(value("chain5", "triggered") > 0.0);
    // A run has five steps.
    let ratio = value("chain5", "worked") / value("chain5", "completed");
    assert!((ratio - 5.0).abs() < 1e-6, "{ratio}");
    assert!(value("chain5", "CPU per step") > 0.0);
    let (p50, p99) = (
        value("latency", "end to end, p50"),
        value("latency", "end to end, p99"),
    );
    assert!(0.0 < p50 && p50 <= p99, "{p50} {p99}");
    let audits = report["audits"].as_array().unwrap();
    let audited: Vec<_> = audits.iter().map(|audit| &audit["workload"]).collect();
    assert_eq!(audited, ["chain5", "latency"]);
    for audit in audits {
        assert_eq!(audit["violations"], serde_json::json!([]), "{audit}");
    }
}

const ARGS: [&str; 5] = ["chain5", "latency", "--runs", "10", "--json"];

fn mysql() -> String {
    match std::env::var("DUCTWORK_TEST_MYSQL_URL") {
        Ok(url) => url,
        Err(_) => {
            panic!("DUCTWORK_TEST_MYSQL_URL is not set: run scripts/test, which starts a server")
        }
    }
}

fn postgres() -> String {
    match std::env::var("DUCTWORK_TEST_POSTGRES_URL") {
        Ok(url) => url,
        Err(_) => {
            panic!("DUCTWORK_TEST_POSTGRES_URL is not set: run scripts/test, which starts a server")
        }
    }
}

#[test]
fn a_benchmark_on_sqlite_reports_and_leaves_nothing_behind() {
    // The hook of this configuration fails: a benchmark runs no hooks.
    let place = Place::with("sqlite://real.db");
    let output = place.bench(&ARGS).wait_with_output().unwrap();
    check(&report(&output));
    assert_eq!(place.names(), ["ductwork.yml"]);
}

#[test]
fn a_benchmark_on_postgres_reports() {
    let place = Place::with(&postgres());
    let output = place.bench(&ARGS).wait_with_output().unwrap();
    check(&report(&output));
}

#[test]
fn a_benchmark_on_mysql_reports() {
    let place = Place::with(&mysql());
    let output = place.bench(&ARGS).wait_with_output().unwrap();
    check(&report(&output));
}

/// Runs one workload in its smallest size, on one database; returns its values by name.
fn tiny(url: &str, workload: &str, more: &[&str]) -> Vec<(String, f64)> {
    let place = Place::with(url);
    let args = [&[workload, "--runs", "20", "--json"][..], more].concat();
    let report = report(&place.bench(&args).wait_with_output().unwrap());
    assert_eq!(place.names(), ["ductwork.yml"]);
    let audits = report["audits"].as_array().unwrap();
    assert_eq!(audits.len(), 1, "{report}");
    assert_eq!(audits[0]["workload"], workload);
    assert_eq!(audits[0]["violations"], serde_json::json!([]), "{report}");
    let measures = report["measures"].as_array().unwrap().iter();
    measures
        .map(|measure| {
            assert_eq!(measure["workload"], workload, "{measure}");
            let name = measure["name"].as_str().unwrap().to_owned();
            (name, measure["value"].as_f64().unwrap())
        })
        .collect()
}

/// Checks on every database that each of these names has a value greater than zero.
fn on_every(workload: &str, more: &[&str], names: &[&str]) {
    for url in ["sqlite://real.db", &postgres(), &mysql()] {
        let values = tiny(url, workload, more);
        for name in names {
            let value = values.iter().find(|(known, _)| known == name);
            let (_, value) = value.unwrap_or_else(|| panic!("no {name} on {url}: {values:?}"));
            assert!(*value > 0.0, "{name} on {url} is {value}");
        }
    }
}

#[test]
fn a_step_is_compared_with_the_rows_it_writes() {
    let names = [
        "worked",
        "limit, 1 connection, batch 100",
        "limit, 2 connections, batch 500",
    ];
    on_every("chain5", &[], &names);
    on_every("flat", &[], &names);
}

#[test]
fn triggers_are_compared_with_the_rows_they_write() {
    on_every("trigger", &[], &["triggered", "limit", "one alone, p50"]);
}

#[test]
fn a_fan_out_is_as_wide_as_asked_for() {
    let names = ["20 branches", "20 branches: memory, peak"];
    on_every("fanout", &["--width", "20"], &names);
}

#[test]
fn commands_are_compared_with_xargs() {
    on_every("commands", &[], &["worked", "limit"]);
}

#[test]
fn a_queue_and_a_history_are_as_long_as_asked_for() {
    let names = ["50 waiting", "50 waiting, 250 finished"];
    on_every("backlog", &["--backlog", "50"], &names);
}

#[test]
fn an_audit_is_timed_on_a_history_as_long_as_asked_for() {
    let names = ["all", "of it: a look at each table"];
    on_every("audit", &["--history", "50"], &names);
}

#[test]
fn a_history_is_deleted_alone_and_beside_work() {
    let names = ["worked alone", "deleted alone", "deleted beside the work"];
    on_every("retention", &["--history", "5000"], &names);
}

#[test]
fn what_a_person_types_is_timed_on_a_history_a_queue_and_a_wide_run() {
    let options = ["--history", "50", "--backlog", "50", "--width", "100"];
    let names = ["runs", "show RUN, of 100 branches", "audit, after that"];
    on_every("prompt", &options, &names);
}

#[test]
fn the_consoles_pages_are_timed_on_a_history_a_queue_and_a_wide_run() {
    let options = ["--history", "50", "--backlog", "50", "--width", "100"];
    let names = ["/runs?pipeline=Rare, p99", "a run: 100 wide, open, p99"];
    on_every("pages", &options, &names);
}

#[test]
fn contention_is_measured_with_more_and_more_processes() {
    let names = ["1 worker", "8 workers", "pipeline_advancer.count 16"];
    on_every("contention", &[], &names);
}

#[test]
fn a_storm_passes() {
    let names = ["throughput", "throughput is back, p50"];
    on_every("storm", &["--kills", "1"], &names);
}

#[test]
fn an_idle_process_tells_how_much_it_asks_the_database() {
    let mut names = vec!["wide: statements".to_owned()];
    for role in ["supervisor", "advancer", "worker"] {
        for cost in ["connections", "statements", "CPU", "memory"] {
            names.push(format!("{role}: {cost}"));
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    on_every("idle", &[], &names);
}

#[test]
fn a_benchmark_says_what_it_does_not_understand() {
    let place = Place::with("sqlite://real.db");
    for (args, said) in [
        (&["chain6"][..], "there is no workload `chain6`"),
        (&["--runs", "1"], "give a whole number from 10 to 1000000"),
        (&["--width", "0"], "give a whole number from 1 to 1000000"),
        (
            &["--backlog", "many"],
            "give a whole number from 10 to 10000000",
        ),
        (&["--kills", "0"], "give a whole number from 1 to 1000"),
    ] {
        let output = place.bench(args).wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.contains(said), "{args:?}: {errors}");
        assert_eq!(place.names(), ["ductwork.yml"]);
    }
}

#[test]
fn an_interrupted_benchmark_removes_what_it_made() {
    let place = Place::with("sqlite://real.db");
    let child = place.bench(&["idle", "--json"]);
    let pid = Pid::from_raw(child.id() as i32);
    // Its daemon runs once the database has processes; the file exists earlier.
    let since = Instant::now();
    while place.names().len() < 2 {
        assert!(since.elapsed() < Duration::from_secs(30), "nothing is made");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(pid, Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("interrupted"), "{errors}");
    assert_eq!(place.names(), ["ductwork.yml"]);
}

#[test]
fn a_benchmark_whose_daemon_dies_says_so_and_removes_what_it_made() {
    let place = Place::with("sqlite://real.db");
    let child = place.bench(&["idle", "--json"]);
    let list = format!("/proc/{0}/task/{0}/children", child.id());
    let since = Instant::now();
    let daemon = loop {
        assert!(since.elapsed() < Duration::from_secs(30), "no daemon");
        let text = std::fs::read_to_string(&list).unwrap_or_default();
        if let Some(pid) = text.split_whitespace().next() {
            break pid.parse::<i32>().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    kill(Pid::from_raw(daemon), Signal::SIGKILL).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("the daemon ended"), "{errors}");
    assert_eq!(place.names(), ["ductwork.yml"]);
}
