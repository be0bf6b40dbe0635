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
            "default:\n  database: {{ url: \"{url}\" }}\n  hooks: {{ supervisor: {{ start: [\"false\"] }} }}\n"
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

/// Every number is there, all of it was done, and every invariant held.
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
    // Five steps each.
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

#[test]
fn a_benchmark_on_sqlite_reports_and_leaves_nothing_behind() {
    // The hook of this configuration fails: a benchmark runs nobody's hooks.
    let place = Place::with("sqlite://real.db");
    let output = place.bench(&ARGS).wait_with_output().unwrap();
    check(&report(&output));
    assert_eq!(place.names(), ["ductwork.yml"]);
}

#[test]
fn a_benchmark_on_postgres_reports() {
    let Ok(url) = std::env::var("DUCTWORK_TEST_POSTGRES_URL") else {
        panic!("DUCTWORK_TEST_POSTGRES_URL is not set: run scripts/test, which starts a server");
    };
    let place = Place::with(&url);
    let output = place.bench(&ARGS).wait_with_output().unwrap();
    check(&report(&output));
}

#[test]
fn an_interrupted_benchmark_removes_what_it_made() {
    let place = Place::with("sqlite://real.db");
    let child = place.bench(&["idle", "--json"]);
    let pid = Pid::from_raw(child.id() as i32);
    // Its daemon runs when the database has processes; the file is there before.
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
