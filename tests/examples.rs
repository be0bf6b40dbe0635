//! The examples, as a new user runs them.

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "support/mod.rs"]
mod support;

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::Db;

/// The program that is built along with the examples.
fn ductworkd() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ductworkd"))
}

/// An example program; the test runner builds it with the tests.
fn example(name: &str) -> PathBuf {
    let directory = ductworkd().parent().expect("it is in a directory");
    directory.join("examples").join(name)
}

fn run(program: &Path, args: &[&str], directory: &Path) -> Output {
    run_on(None, program, args, directory)
}

/// The same, on a database other than the one that the configuration names.
fn run_on(url: Option<&str>, program: &Path, args: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(program);
    command.args(args).current_dir(directory);
    for variable in ["DATABASE_URL", "DUCTWORK_DATABASE_URL", "DUCTWORK_ENV"] {
        command.env_remove(variable);
    }
    command.envs(url.map(|url| ("DUCTWORK_DATABASE_URL", url)));
    command.output().expect("the program starts")
}

fn json(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}:\n{errors}", output.status);
    serde_json::from_slice(&output.stdout).expect("its output is JSON")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory can be made");
    for entry in std::fs::read_dir(from).expect("the example is there") {
        let entry = entry.expect("it can be read");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match from.is_dir() {
            true => copy(&from, &to),
            false => drop(std::fs::copy(&from, &to).expect("it can be copied")),
        }
    }
}

#[test]
fn a_program_with_steps_of_its_own_is_its_own_daemon() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let native = example("native");
    let output = run(
        &native,
        &["run", "Letters", "\"to be or not to be\""],
        place.path(),
    );
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        errors.matches("about to count letters").count(),
        1,
        "{errors}"
    );
    let output = json(&output);
    assert_eq!(output["words"], 6);
    assert_eq!(output["longest"], 3);
    assert_eq!(output["letters"]["o"], 4);
    // The run halts where the step says that another attempt is useless, and says why.
    let halted = run(&native, &["run", "Letters", "\"\""], place.path());
    assert_eq!(halted.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&halted.stderr);
    assert!(
        errors.contains("there are no words in the text"),
        "{errors}"
    );
    let audit = run(&native, &["audit"], place.path());
    assert!(audit.status.success(), "{audit:?}");
}

/// No other process runs as this user, so that no other counts against its limit; root has none.
const ALONE: u32 = 64_318;

/// A daemon, which ends with its test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `look` finds something.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        let waited = began.elapsed();
        assert!(
            waited < Duration::from_secs(180),
            "waited in vain until {what}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// EAGAIN, for the thread of a blocking step. The threads of the others are there before anything is claimed.
#[test]
fn a_worker_short_of_threads_puts_its_native_steps_back_and_blames_nobody() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let native = place.path().join("native");
    std::fs::copy(example("native"), &native).expect("it can be copied");
    chown(place.path(), Some(ALONE), Some(ALONE)).expect("root runs the tests");
    let alone = |program: &Path, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).current_dir(place.path());
        command.uid(ALONE).gid(ALONE).env("TMPDIR", place.path());
        for variable in ["DATABASE_URL", "DUCTWORK_DATABASE_URL", "DUCTWORK_ENV"] {
            command.env_remove(variable);
        }
        command
    };
    let ask = |args: &[&str]| json(&alone(&native, args).output().expect("it starts"));
    let trigger = |more: &[&str]| {
        let args = [&["trigger", "Letters", "\"to be\""], more].concat();
        let done = alone(&native, &args).output().expect("it starts");
        assert!(done.status.success(), "{done:?}");
    };
    let mut daemon = alone(&native, &["start"]);
    daemon.stdout(Stdio::null()).stderr(Stdio::null());
    let mut daemon = Daemon(daemon.spawn().expect("the daemon starts"));
    eventually("there is a schema", || {
        let asked = alone(&native, &["processes", "--json"]).output();
        asked.expect("it starts").status.success().then_some(())
    });
    // The worker works.
    trigger(&["--wait"]);
    let processes = ask(&["processes", "--json"]);
    let processes = processes.as_array().expect("a list");
    let worker = processes.iter().find(|it| it["pipeline"] == "Letters");
    let worker = worker.expect("a worker")["pid"].to_string();
    let limit = |threads: &str| {
        let limit = format!("--nproc={threads}:");
        let limited = alone(Path::new("prlimit"), &["--pid", &worker, &limit]).status();
        assert!(limited.expect("prlimit").success());
    };

    limit("1");
    trigger(&[]);
    let executions = || {
        let run = ask(&["runs", "--json"])[0]["id"].clone();
        let shown = ask(&["show", run.as_str().expect("an id"), "--json"]);
        let steps = shown["steps"].as_array().expect("steps").clone();
        let executions = steps
            .iter()
            .flat_map(|it| it["executions"].as_array().cloned());
        (steps.len(), executions.flatten().collect::<Vec<Value>>())
    };
    eventually("both words were refused a thread", || {
        let (_, executions) = executions();
        let refused = executions
            .iter()
            .filter(|it| it["error_class"] == "not_started");
        (refused.count() >= 2).then_some(())
    });
    limit("1000");
    eventually("the run has completed", || {
        let runs = ask(&["runs", "--json"]);
        (runs[0]["status"] == "completed").then_some(())
    });
    let (steps, executions) = executions();
    let count = |result: &str| {
        let of_result = executions.iter().filter(|it| it["result"] == result);
        of_result.count()
    };
    assert_eq!(count("success"), steps, "{executions:#?}");
    assert_eq!(
        count("success") + count("released"),
        executions.len(),
        "{executions:#?}"
    );
    let blames = |it: &Value| it["retry_count"] != 0 || it["crash_count"] != 0;
    assert!(!executions.iter().any(blames), "{executions:#?}");

    let pid = Pid::from_raw(daemon.0.id() as i32);
    kill(pid, Signal::SIGTERM).expect("it lives");
    let ended = daemon.0.wait().expect("it ends");
    assert!(ended.success(), "{ended}");
}

/// Follows the first command of the README on the database that the example's configuration names, or on this one.
fn the_first_command_makes_a_report_of_all_states(url: Option<&str>) {
    let place = tempfile::tempdir().expect("a temporary directory");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/airports");
    copy(&shipped, place.path());
    let config = place.path().join("ductwork.yml");
    let config = config.to_str().expect("a plain path");
    let run = |args: &[&str]| {
        let args = [&["-c", config], args].concat();
        json(&run_on(url, ductworkd(), &args, place.path()))
    };
    let input = "{\"states\": [\"VT\", \"RI\", \"HI\"]}";
    let output = run(&["run", "Airports", input]);
    assert_eq!(output["states"], 3, "{output}");
    let runs = run(&["runs", "--json"]);
    assert_eq!(runs[0]["status"], "completed");
    let id = runs[0]["id"].as_str().expect("an id");
    let shown = run(&["show", id, "--json"]);
    // One step reads, one reports; each state is cleaned, measured three times and described.
    let steps = shown["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 2 + 3 * 5);
    for step in steps {
        assert_eq!(step["status"], "completed");
        assert_eq!(step["executions"].as_array().map(Vec::len), Some(1));
    }
}

#[test]
fn the_first_command_of_the_readme_makes_a_report_of_all_states() {
    the_first_command_makes_a_report_of_all_states(None);
}

on_servers! {
    async fn the_same_command_makes_the_report_on_a_server(db: Db) {
        the_first_command_makes_a_report_of_all_states(Some(&db.url));
    }
}

/// The files that every pod gets, in the locations where it looks for them.
#[test]
fn the_pipeline_of_the_kubernetes_base_runs_with_the_configuration_that_lies_beside_it() {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/kubernetes/base");
    let work = tempfile::tempdir().expect("a temporary directory");
    let program = env!("CARGO_BIN_EXE_ductworkd");
    let pipeline = std::fs::read_to_string(base.join("pipelines/hello.yml")).expect("a pipeline");
    let in_image = "/usr/local/bin/ductworkd";
    assert!(pipeline.contains(in_image));
    let pipeline = pipeline.replace(in_image, program);
    std::fs::write(work.path().join("hello.yml"), pipeline).expect("a pipeline");
    let ran = Command::new(program)
        .arg("-c")
        .arg(base.join("ductwork.yml"))
        .args(["run", "Hello", "1"])
        .env("DUCTWORK_ENV", "production")
        .env("DUCTWORK_PIPELINES_PATH", work.path())
        .env(
            "DATABASE_URL",
            format!("sqlite://{}/ductwork.db", work.path().display()),
        )
        .output()
        .expect("the program starts");
    assert!(ran.status.success(), "{ran:?}");
    assert!(
        String::from_utf8_lossy(&ran.stdout).contains("\"schema\""),
        "{ran:?}"
    );
}
