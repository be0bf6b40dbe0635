//! The drills as a user runs them: the built program, next to a database that may contain real
//! runs.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by it, outside of the functions that the linter takes for tests too"
)]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A configuration in a directory of its own.
fn place(url: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let text = format!("default:\n  database: {{ url: \"{url}\" }}\n");
    std::fs::write(directory.path().join("ductwork.yml"), text).unwrap();
    directory
}

fn names(place: &tempfile::TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(place.path()).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    entries
        .map(|entry| name(entry).into_string().unwrap())
        .collect()
}

fn drill(place: &tempfile::TempDir, args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ductworkd"));
    command.arg("drill").args(args).current_dir(place.path());
    for name in ["DUCTWORK_DATABASE_URL", "DATABASE_URL", "DUCTWORK_CONFIG"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Every drill has shown its subject, and the drills about a refusal had one.
fn every_drill_shows_what_it_is_for(url: &str, cut: bool) {
    let place = place(url);
    let output = drill(&place, &["--json"]).wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut refused = Vec::new();
    for played in report["drills"].as_array().unwrap() {
        assert_eq!(played["broken"], Value::Null, "{played:#}");
        assert_eq!(played["violations"], serde_json::json!([]), "{played:#}");
        assert!(
            played["shown"]
                .as_str()
                .is_some_and(|shown| !shown.is_empty())
        );
        assert!(played["invariants"].as_u64().unwrap() > 0);
        let events = played["events"].as_array().unwrap();
        assert!(events.len() > 3, "{played:#}");
        if events.iter().any(|event| event["refused"] == true) {
            refused.push(played["drill"].as_str().unwrap());
        }
    }
    let mut expected = vec![
        "lease-race",
        "zombie-advancer",
        "crash-after-effect",
        "double-reaper",
        "lost-acknowledgement",
    ];
    // SQLite has no server that could end a connection: the writer waits there.
    expected.extend(cut.then_some("database-away"));
    assert_eq!(refused, expected);
    assert_eq!(report["drills"].as_array().unwrap().len(), 8);
    assert_eq!(names(&place), ["ductwork.yml"]);
}

#[test]
fn every_drill_shows_what_it_is_for_on_sqlite() {
    every_drill_shows_what_it_is_for("sqlite://real.db", false);
}

#[test]
fn every_drill_shows_what_it_is_for_on_postgres() {
    let url = std::env::var("DUCTWORK_TEST_POSTGRES_URL")
        .expect("DUCTWORK_TEST_POSTGRES_URL is not set: run scripts/test, which starts a server");
    every_drill_shows_what_it_is_for(&url, true);
}

#[test]
fn every_drill_shows_what_it_is_for_on_mysql() {
    let url = std::env::var("DUCTWORK_TEST_MYSQL_URL")
        .expect("DUCTWORK_TEST_MYSQL_URL is not set: run scripts/test, which starts a server");
    every_drill_shows_what_it_is_for(&url, true);
}

#[test]
fn a_drill_tells_people_who_did_what_and_who_was_refused() {
    let place = place("sqlite://real.db");
    let output = drill(&place, &["lease-race"]).wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let late = text.lines().find(|line| line.contains("commits \"first\""));
    assert!(
        late.is_some_and(|line| line.contains("✗ worker-1") && line.contains("refused")),
        "{text}"
    );
    assert!(text.contains("\n  Shown: "), "{text}");
    assert!(text.contains("1 of 1 drills, on SQLite"), "{text}");
}

#[test]
fn a_drill_that_is_unknown_is_wrong_usage_and_the_others_are_named() {
    let place = place("sqlite://real.db");
    let output = drill(&place, &["lease"]).wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("there is no drill `lease`"), "{errors}");
    assert!(errors.contains("lease-race, zombie-advancer"), "{errors}");
}

#[test]
fn an_interrupted_drill_removes_what_it_made() {
    let place = place("sqlite://real.db");
    let child = drill(&place, &[]);
    let pid = Pid::from_raw(child.id() as i32);
    let since = Instant::now();
    while names(&place).len() < 2 {
        assert!(since.elapsed() < Duration::from_secs(30), "nothing is made");
        std::thread::sleep(Duration::from_millis(1));
    }
    kill(pid, Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("interrupted"), "{errors}");
    assert_eq!(names(&place), ["ductwork.yml"]);
}
