//! The examples, as a new user runs them.

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
