//! The built program, as a person or a script calls it: exit codes, first lines of errors, and
//! that no input makes it panic. Of the daemon, only the part that one run needs is here. On SQLite, unless a test is
//! about the errors of a server: tests of the store run the same queries on each database.

#![expect(
    clippy::unwrap_used,
    reason = "what fails here is the test, not the program"
)]

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

#[path = "cli/databases.rs"]
mod databases;
#[path = "cli/mysql.rs"]
mod mysql;
#[path = "cli/revive.rs"]
mod revive;

/// A directory to run in, with an empty environment.
struct Place {
    dir: TempDir,
}

impl Place {
    fn empty() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// A directory with the example that `init` makes, and its database.
    fn ready() -> Self {
        let place = Self::empty();
        place.run(["init"]).fine();
        place.run(["migrate"]).fine();
        place
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ductworkd"));
        command.current_dir(self.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        // The wakeup sockets belong to this test alone.
        command.env("XDG_RUNTIME_DIR", self.path());
        // So does the port that `init` writes.
        command.env("DUCTWORK_CONSOLE__LISTEN", "none");
        command
    }

    fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Ended {
        Ended::of(
            self.command()
                .args(args)
                .stdin(Stdio::null())
                .output()
                .unwrap(),
        )
    }

    fn run_with(&self, args: &[&str], input: &[u8]) -> Ended {
        let mut child = self
            .command()
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that needs no more input closes the pipe.
        let _ = child.stdin.take().unwrap().write_all(input);
        Ended::of(child.wait_with_output().unwrap())
    }

    fn trigger(&self, input: &str) -> String {
        let ended = self.run(["trigger", "Hello", input]);
        ended.fine();
        ended.stdout.trim().to_owned()
    }

    /// Makes the ended runs look as if they had ended this many days earlier.
    fn age(&self, days: i64) {
        let conn = rusqlite::Connection::open(self.path().join("ductwork.db")).unwrap();
        let sql = "UPDATE ductwork_runs SET completed_at = completed_at - ?";
        conn.execute(sql, [days * 86_400_000_000]).unwrap();
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints UTF-8");
        let ended = Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        assert!(!ended.stderr.contains("panicked"), "{ended:?}");
        ended
    }

    #[track_caller]
    fn fine(&self) -> &Self {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        self
    }

    /// Asserts this exit code, and this text in the first line of the error.
    #[track_caller]
    fn failed(&self, code: i32, first: &str) -> &Self {
        let line = self.stderr.lines().next().unwrap_or_default();
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(line.contains(first), "`{line}` does not say `{first}`");
        self
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

#[test]
fn without_arguments_it_starts_and_says_what_is_missing() {
    let place = Place::empty();
    let ended = place.run::<&str>([]);
    ended.failed(2, "pipelines, which does not exist");
    assert!(ended.stderr.contains("ductworkd init"), "{ended:?}");
}

#[test]
fn help_begins_with_what_the_program_is_and_goes_to_standard_output() {
    let place = Place::empty();
    let help = place.run(["--help"]);
    help.fine();
    assert!(help.stdout.starts_with("Durable pipelines"), "{help:?}");
    for part in [
        "\nRun:\n  start ",
        "\nLook:\n  runs ",
        "\nMend:\n  resume ",
        "\nProve:\n  audit ",
        "why          Explain what blocks a run and how to fix it\n",
        "processes    List processes and their last heartbeats\n",
        "init         Create a starter project\n",
        "\nExamples:\n",
        "--color <WHEN>",
    ] {
        assert!(help.stdout.contains(part), "{part}: {}", help.stdout);
    }
    assert!(
        !help.stdout.contains("child") && !help.stdout.contains("watcher"),
        "the daemon's own verbs are nobody's business"
    );
    for verb in [
        "start",
        "run",
        "init",
        "check",
        "migrate",
        "trigger",
        "runs",
        "show",
        "logs",
        "why",
        "revive",
        "cancel",
        "resume",
        "processes",
        "health",
        "context",
        "audit",
        "prune",
        "symbolize",
        "schema",
        "completions",
        "version",
    ] {
        assert!(help.stdout.contains(verb), "{verb}");
        let help = place.run([verb, "--help"]);
        help.fine();
        // Every verb's options are listed once, by the program.
        for option in ["--config", "--color <"] {
            assert!(!help.stdout.contains(option), "{}", help.stdout);
        }
        assert!(!help.stdout.starts_with("Examples"), "{}", help.stdout);
        place.run([verb, "-h"]).fine();
        assert_eq!(place.run(["help", verb]).fine().stdout, help.stdout);
    }
}

#[test]
fn wrong_usage_is_2_and_suggests() {
    let place = Place::empty();
    let ended = place.run(["trigerr"]);
    ended.failed(2, "unrecognized subcommand 'trigerr'");
    assert!(ended.stderr.contains("'trigger'"), "{ended:?}");
    let ended = place.run(["runs", "--pipline", "x"]);
    ended.failed(2, "unexpected argument '--pipline'");
    assert!(ended.stderr.contains("--pipeline"), "{ended:?}");
    place
        .run(["-c", "a", "-c", "b", "runs"])
        .failed(2, "cannot be used multiple times");
    place.run(["runs", "--limit", "0"]).failed(2, "0");
    place.run(["runs", "--limit", "-1"]).failed(2, "-1");
    place
        .run(["runs", "--since", "yesterday"])
        .failed(2, "yesterday");
    place.run(["runs", "--status", "fine"]).failed(2, "fine");
    place.run(["show"]).failed(2, "required");
    place.run(["show", "--"]).failed(2, "required");
    place
        .run(["--until-idle", "runs"])
        .failed(2, "`--until-idle` belongs to `start`");
    place
        .run(["child", "--supervisor", "x", "--parent", "1", "advancer"])
        .failed(2, "x");
}

#[test]
fn arguments_that_are_not_utf_8_are_wrong_usage() {
    let place = Place::ready();
    let bad = OsStr::from_bytes(b"\xff\xfe");
    place.run([bad]).failed(2, "");
    place
        .run([OsStr::new("show"), bad])
        .failed(2, "invalid UTF-8");
    place
        .run([OsStr::new("trigger"), OsStr::new("Hello"), bad])
        .failed(2, "invalid UTF-8");
    place
        .run([OsStr::new("trigger"), bad])
        .failed(2, "invalid UTF-8");
    // A file may have such a name.
    let ended = place.run([OsStr::new("-c"), bad, OsStr::new("runs")]);
    ended.failed(2, "");
}

#[test]
fn a_configuration_that_is_missing_or_wrong_is_2() {
    let place = Place::empty();
    place
        .run(["-c", "nowhere.yml", "runs"])
        .failed(2, "the configuration file does not exist");
    place.write("ductwork.yml", "default:\n  job_worker: { cuont: 5 }\n");
    let ended = place.run(["runs"]);
    ended.failed(2, "cuont");
    assert!(ended.stderr.contains("ductwork.yml:2:"), "{ended:?}");
}

#[test]
fn a_database_that_cannot_be_reached_is_69() {
    let place = Place::ready();
    // Nobody listens on port 1 of the loopback.
    let url = "postgres://user:secret@127.0.0.1:1/ductwork";
    for args in [
        &["runs"][..],
        &["trigger", "Hello"],
        &["health"],
        &["audit"],
        &["migrate"],
        &["show", "0123abcd"],
    ] {
        let mut command = place.command();
        let output = command
            .args(args)
            .env("DATABASE_URL", url)
            .output()
            .unwrap();
        let ended = Ended::of(output);
        ended.failed(69, "the database cannot be reached");
        assert!(!ended.stderr.contains("secret"), "{ended:?}");
        let help = "check that a PostgreSQL server is running at 127.0.0.1:1, and that the URL (from DATABASE_URL) is right";
        assert!(ended.stderr.contains(help), "{ended:?}");
    }
    let text = format!("default:\n  database: {{ url: \"{url}\" }}\n");
    place.write("ductwork.yml", &text);
    let ended = place.run(["runs"]);
    let origin =
        "is running at 127.0.0.1:1, and that the URL (from `database.url` of ductwork.yml)";
    assert!(ended.stderr.contains(origin), "{ended:?}");
}

#[test]
fn a_configuration_without_keys_is_as_good_as_none_and_one_above_is_named() {
    let place = Place::ready();
    place.write("ductwork.yml", "# nothing but the defaults\n");
    place.run(["check"]).fine();
    place.write("below/x", "");
    let below = |args: &[&str]| {
        let mut command = place.command();
        let command = command.current_dir(place.path().join("below")).args(args);
        Ended::of(command.output().unwrap())
    };
    let told = format!(
        ": use -c {}/ductwork.yml",
        place.path().canonicalize().unwrap().display()
    );
    for args in [&["runs"][..], &["start"], &["trigger", "Hello"]] {
        let ended = below(args);
        assert!(ended.stderr.contains(&told), "{ended:?}");
    }
}

#[test]
fn check_says_which_sections_it_did_not_look_at() {
    let place = Place::ready();
    let text = "default: \n  role: all\nproduction:\n  job_worker: { cuont: 5 }\n";
    place.write("ductwork.yml", text);
    let ended = place.run(["check"]);
    ended.fine();
    let told = "· not checked: production (name it with -e)";
    assert!(ended.stdout.contains(told), "{ended:?}");
    place.run(["check", "-e", "production"]).failed(2, "cuont");
    let json = place.run(["check", "--json"]).json();
    assert_eq!(json["not_checked"], serde_json::json!(["production"]));
}

#[test]
fn check_notes_pipelines_that_nobody_reads() {
    let place = Place::ready();
    let text = "pipeline: Invoice\nsteps: { A: { command: [cat] } }\nflow: [{ start: A }]\n";
    for name in ["invoice", "reminder"] {
        place.write(&format!("pipelines/billing/{name}.yml"), text);
    }
    place.write("pipelines/data/compose.yml", "services: {}\n");
    place.write("pipelines/PAYMENT.YML", text);
    let ended = place.run(["check"]);
    ended.fine();
    let told = "this pipeline is not read, because it is in a directory inside `";
    assert!(ended.stdout.contains(told), "{ended:?}");
    let told =
        "this pipeline is not read, because its file's name does not end in `.yml` or `.yaml`";
    assert!(ended.stdout.contains(told), "{ended:?}");
    assert!(ended.stdout.contains("(and 1 more like it)"), "{ended:?}");
    assert!(
        ended.stdout.contains("pipelines/billing/invoice.yml"),
        "{ended:?}"
    );
}

#[test]
fn check_notes_scripts_that_would_not_start() {
    let place = Place::ready();
    place.write("steps/plain.sh", "echo 1\n");
    let plain = place.path().join("steps/plain.sh");
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = "pipeline: Odd\nsteps:\n  A: { command: [sh, steps/gone.sh] }\n  B: { command: [steps/plain.sh] }\n  \
                C: { command: [cat, '|', cat] }\nflow: [{ start: A }, { chain: B }, { chain: C }]\n";
    place.write("pipelines/odd.yml", text);
    let ended = place.run(["check"]);
    ended.fine();
    for part in [
        "! step `A` of pipeline `Odd`: there is no script `steps/gone.sh`; it was expected at ",
        "! step `B` of pipeline `Odd`: `steps/plain.sh` has no `#!` line; begin it with `#!/bin/sh`",
        "! step `C` of pipeline `Odd`: `|` is passed to `cat` as an argument: no shell reads this command; for a shell, \
         write `command: [sh, -c, \"cat | cat\"]`",
    ] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
    let strict = place.run(["check", "--strict"]);
    strict.failed(2, "there is no script `steps/gone.sh`");
    assert!(strict.stderr.contains("has no `#!` line"), "{strict:?}");
    let strict = place.run(["check", "--strict", "--json"]).json();
    assert_eq!(strict["ok"], false);
    assert_eq!(strict["problems"].as_array().unwrap().len(), 3, "{strict}");
}

#[test]
fn check_notes_cases_of_a_divert_that_look_like_comparisons() {
    let place = Place::ready();
    let text = "pipeline: Big\nsteps:\n  A: { command: [cat] }\n  B: { command: [cat] }\n\
                flow:\n- start: A\n- divert: { \">100\": B, otherwise: B }\n";
    place.write("pipelines/big.yml", text);
    let ended = place.run(["check"]);
    ended.fine();
    let told = "! the divert after `A` of pipeline `Big` treats `>100` as a text: it is not computed; let the step";
    assert!(ended.stdout.contains(told), "{ended:?}");
}

#[test]
fn an_input_says_how_it_is_mended() {
    let place = Place::ready();
    place.write("big.json", "[1]");
    for (input, help) in [
        ("[1, ]", "remove the comma before the closing bracket"),
        ("{\"a\":1,}", "remove the comma before the closing bracket"),
        ("big.json", "to read a file: `- < big.json`"),
        ("hello", "strings need double quotes of their own"),
        ("{key: 1}", "keys and strings need double quotes"),
        ("@gone.json", "to read a file: `- < FILE`"),
    ] {
        let ended = place.run(["trigger", "Hello", input]);
        ended.failed(2, "the input is not one JSON value");
        assert!(ended.stderr.contains(help), "{ended:?}");
    }
}

#[test]
fn the_logs_of_a_fan_out_say_whose_they_are() {
    let place = Place::ready();
    let text = "pipeline: Wide\nsteps:\n  A: { command: [cat] }\n  \
                B: { command: [sh, -c, 'read -r n; [ \"$n\" = 2 ] || exit 0; echo two >&2'] }\n\
                flow: [{ start: A }, { expand: B }]\n";
    place.write("pipelines/wide.yml", text);
    place.run(["run", "Wide", "[1,2,3]"]);
    let id = place.run(["runs", "--json"]).json()[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let logs = place.run(["logs", &id]);
    assert!(
        logs.fine()
            .stdout
            .starts_with("B, element 2 of 3  attempt 1  success"),
        "{logs:?}"
    );
    let json = place.run(["logs", &id, "--json"]).json();
    assert_eq!(
        json["elements"],
        serde_json::json!([{ "node": "A", "element": 2, "of": 3 }])
    );
    let open = place.trigger("1");
    let none = place.run(["logs", &open]);
    assert_eq!(
        none.stdout,
        "no log yet: a step's log appears when the attempt has ended\n"
    );
    // A state has the same name in the list and in its filter.
    for word in ["running", "in_progress"] {
        let listed = place.run(["runs", "--status", word]);
        assert!(listed.fine().stdout.contains(" running "), "{listed:?}");
    }
    place.run(["cancel", &open]).fine();
    let none = place.run(["logs", &open]);
    assert!(
        none.stdout
            .contains("an attempt that the cancellation ended leaves no log"),
        "{none:?}"
    );
}

#[test]
fn an_output_that_is_no_json_has_its_remedy_on_a_line_of_its_own() {
    let place = Place::ready();
    let text = "pipeline: Talk\nsteps: { Talk: { command: [echo, \"{'a': 1}\"], max_retry: 0 } }\nflow: [{ start: Talk }]\n";
    place.write("pipelines/talk.yml", text);
    let ended = place.run(["run", "Talk"]);
    let advice = "\n    JSON needs double quotes: in Python, `print(json.dumps(value))`\n";
    assert!(ended.stderr.contains(advice), "{ended:?}");
    let id = place.run(["runs", "--json"]).json()[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let shown = place.run(["show", &id]);
    assert!(shown.stdout.contains(advice.trim_start()), "{shown:?}");
}

#[test]
fn a_run_is_shown_as_a_picture_of_its_pipeline() {
    let place = Place::ready();
    let text = "pipeline: Talk\non_halt: Ask\nsteps:\n  List: { command: [echo, '[1, 2, 3]'] }\n  \
                Say: { command: [sh, -c, 'test $(cat) != 2 && echo 1'], max_retry: 0 }\n  Ask: { command: [\"true\"] }\n  \
                Sum: { command: [cat] }\nflow: [{ start: List }, { expand: Say }, { collapse: Sum }]\n";
    place.write("pipelines/talk.yml", text);
    place.run(["run", "Talk"]);
    let id = place.run(["runs", "--json"]).json()[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let drawn = place.run(["show", &id, "--svg"]);
    drawn.fine();
    let (begins, ends) = ("<svg xmlns=", "</svg>\n");
    assert!(
        drawn.stdout.starts_with(begins) && drawn.stdout.ends_with(ends),
        "{drawn:?}"
    );
    for told in [
        &format!("aria-label=\"Talk {id}\""),
        "List: completed",
        "expand: failed; of 3 elements 2 completed, 1 failed",
        "Say: failed; of 3 steps 2 completed, 1 failed",
        "Sum: not reached",
        "Ask, the step of on_halt: ",
    ] {
        assert!(drawn.stdout.contains(told), "{told}: {drawn:?}");
    }
    place
        .run(["show", &id, "--svg", "--json"])
        .failed(2, "`--svg` and `--json` exclude each other");
    place
        .run(["show", &id, "--svg", "--limit", "3"])
        .failed(2, "cannot be used with");
}

#[test]
fn a_payload_of_a_run_is_printed_to_the_letter() {
    let place = Place::ready();
    let text = "pipeline: Echo\nsteps: { Echo: { command: [cat] } }\nflow: [{ start: Echo }]\n";
    place.write("pipelines/echo.yml", text);
    let input = r#"{"n": 12345678901234567890123, "x":1.10, "s": "\u00e9"}"#;
    place.run(["run", "Echo", input]);
    let id = place.run(["runs", "--json"]).json()[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    for option in ["--input", "--output"] {
        let printed = place.run(["show", &id, option]);
        assert_eq!(printed.fine().stdout, format!("{input}\n"), "{option}");
        place
            .run(["show", &id, option, "--json"])
            .failed(2, &format!("`{option}` and `--json` exclude each other"));
        for other in [&["--svg"][..], &["--limit", "3"]] {
            let both = [&["show", id.as_str(), option], other].concat();
            place.run(both).failed(2, "cannot be used with");
        }
    }
    // As in the remedy of `why`.
    let long = format!("[{}{}]", "1.0, ".repeat(100), "98765432109876543210");
    let triggered = place.run(["trigger", "Echo", &long]);
    let cancelled = triggered.fine().stdout.trim();
    place
        .run(["show", cancelled, "--output"])
        .failed(1, "is running and has no output");
    place.run(["cancel", cancelled]).fine();
    place
        .run(["show", cancelled, "--output"])
        .failed(1, "is cancelled and has no output");
    let why = place.run(["why", cancelled]);
    let short = &cancelled[28..];
    let remedy = format!("ductworkd show {short} --input | ductworkd trigger Echo -\n");
    assert!(why.fine().stdout.ends_with(&remedy), "{why:?}");
    assert_eq!(
        place.run(["show", short, "--input"]).fine().stdout.trim(),
        long
    );
}

#[test]
fn whoever_only_reads_leaves_no_database_behind() {
    let place = Place::empty();
    place.run(["init"]).fine();
    for verb in [
        &["runs"][..],
        &["audit"],
        &["health"],
        &["migrate", "--status"],
        &["show", "0123"],
    ] {
        place.run(verb).failed(1, "there is no database yet");
    }
    assert!(!place.path().join("ductwork.db").exists());
}

#[test]
fn help_and_mistakes_have_colours_when_they_are_asked_for_and_none_when_they_are_not() {
    let place = Place::empty();
    for args in [&["--help"][..], &["runs", "--nope"]] {
        let told = |colour: &str| {
            let ended = place.run(["--color", colour].iter().chain(args));
            ended.stdout + &ended.stderr
        };
        assert!(told("always").contains("\x1b["), "{args:?}");
        assert!(!told("never").contains("\x1b["), "{args:?}");
    }
}

#[test]
fn metrics_have_one_form_at_a_time() {
    Place::empty()
        .run(["metrics", "--json", "--openmetrics"])
        .failed(2, "");
}

/// No daemon would use that database.
#[test]
fn a_token_or_a_link_from_the_wrong_directory_makes_no_database() {
    let place = Place::empty();
    for verb in [&["token", "create", "shop"][..], &["console", "link"]] {
        let ended = place.run(verb);
        ended.failed(1, "there is no database yet");
        let help = "there is no ductwork.yml here: name one with -c";
        assert!(ended.stderr.contains(help), "{ended:?}");
    }
    let ended = place.run(["trigger", "Hello"]);
    ended.failed(1, "there is no pipeline `Hello`");
    let help = "; there is no ductwork.yml here: name one with -c";
    assert!(ended.stderr.contains(help), "{ended:?}");
    assert!(!place.path().join("ductwork.db").exists());
    place.run(["init"]).fine();
    let made = place.run(["token", "create", "shop"]);
    assert_eq!(made.code, Some(0), "{made:?}");
}

#[test]
fn a_scaffold_is_fine_and_overwrites_nothing() {
    let place = Place::empty();
    let made = place.run(["init", "a dir"]);
    made.fine();
    let dir = place.path().join("a dir");
    let check = Ended::of(
        place
            .command()
            .current_dir(&dir)
            .arg("check")
            .output()
            .unwrap(),
    );
    check.fine();
    assert!(check.stdout.contains("Hello"), "{check:?}");
    // The page that a newcomer is directed to exists.
    let page = "with pages about every run at http://127.0.0.1:9410/\n";
    assert!(made.stdout.ends_with(page), "{made:?}");
    let written = std::fs::read_to_string(dir.join("ductwork.yml")).unwrap();
    assert!(written.contains("\n  console: { listen: \"127.0.0.1:9410\" }\n"));
    let mode = dir
        .join("steps/greet.sh")
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o111, 0o111 & mode, "it can be executed");
    std::fs::write(dir.join("steps/greet.sh"), "mine").unwrap();
    let again = place.run(["init", "a dir"]);
    again.failed(1, "exist already: ");
    assert_eq!(again.stderr.matches("error: ").count(), 1, "{again:?}");
    assert_eq!(
        again.stderr.matches("overwrites nothing").count(),
        1,
        "{again:?}"
    );
    again.failed(1, "a dir/steps/greet.sh");
    assert!(
        again.stderr.contains("move the existing files"),
        "{again:?}"
    );
    assert_eq!(
        std::fs::read_to_string(dir.join("steps/greet.sh")).unwrap(),
        "mine"
    );
    // One existing file is enough to refuse, and then nothing is written.
    place.write("other/README.md", "mine");
    place.write("other/steps/names.sh", "mine");
    place
        .run(["init", "other"])
        .failed(1, "names.sh exists already");
    assert!(!place.path().join("other/ductwork.yml").exists());
    // The files that any repository has are no reason to refuse.
    place.write("repository/README.md", "mine");
    place.write("repository/.gitignore", "target");
    let made = place.run(["init", "repository"]);
    made.fine();
    for file in ["README.md", ".gitignore"] {
        let told = format!("= repository/{file} stays as it is\n");
        assert!(made.stdout.contains(&told), "{made:?}");
    }
    let lines = "  add to it: /ductwork.db /ductwork.db-shm /ductwork.db-wal\n";
    assert!(made.stdout.contains(lines), "{made:?}");
    let readme = place.path().join("repository/README.md");
    assert_eq!(std::fs::read_to_string(readme).unwrap(), "mine");
    assert!(place.path().join("repository/pipelines/hello.yml").exists());
    for below in ["other/README.md", "other/README.md/deeper"] {
        let ended = place.run(["init", below]);
        ended.failed(1, "other/README.md is a file, not a directory");
    }
}

#[test]
fn check_finds_every_problem_at_once() {
    let place = Place::ready();
    let pipeline = "pipeline: Broken\nsteps:\n  A: { command: [steps/nowhere.sh] }\n  B: { command: [no-such-program-anywhere] }\n  C: { command: [steps/data.txt] }\nflow:\n  - start: A\n  - chain: B\n  - chain: C\n";
    place.write("pipelines/broken.yml", pipeline);
    place.write("steps/data.txt", "x");
    let ended = place.run(["check"]);
    ended.failed(2, "error: ");
    for part in [
        "there is no program `steps/nowhere.sh`",
        "no-such-program-anywhere",
        "`steps/data.txt` is not executable",
    ] {
        assert!(ended.stderr.contains(part), "{part}: {ended:?}");
    }
    let ended = place.run(["check", "--json"]);
    assert_eq!(ended.code, Some(2));
    assert_eq!(ended.json()["ok"], false);
    let json = ended.json();
    let problems = json["problems"].as_array().unwrap();
    let lines: Vec<_> = problems.iter().map(|one| &one["line"]).collect();
    assert_eq!(lines, [3, 4, 5]);
    assert!(
        problems[0]["file"]
            .as_str()
            .unwrap()
            .ends_with("broken.yml"),
        "{json}"
    );

    // A mistake in one place hides no mistake in another.
    place.write(
        "ductwork.yml",
        "default:\n  job_worker: { cuont: 3 }\n  hooks: { worker: { stop: [[steps/none]] } }\n",
    );
    place.write(
        "pipelines/other.yml",
        "pipeline: Other\nflow:\n  - strat: A\n",
    );
    let ended = place.run(["check"]);
    ended.failed(2, "unknown key `cuont`");
    for part in [
        "strat",
        "there is no program `steps/nowhere.sh`",
        "`hooks.worker.stop`: ",
    ] {
        assert!(ended.stderr.contains(part), "{part}: {ended:?}");
    }
    std::fs::remove_file(place.path().join("pipelines/other.yml")).unwrap();
    std::fs::remove_file(place.path().join("ductwork.yml")).unwrap();
    place.write(
        "pipelines/broken.yml",
        "pipeline: Broken\nflow:\n  - strat: A\n",
    );
    let ended = place.run(["check", "--json"]);
    let json = ended.json();
    let lines = json["problems"].as_array().unwrap().iter();
    assert!(lines.clone().any(|one| one["line"] == 3), "{ended:?}");
}

#[test]
fn check_notes_a_hook_for_questions_where_nobody_is_asked() {
    let place = Place::ready();
    let steps = "on_wait: Tell\nsteps:\n  A: { command: [cat] }\n  Tell: { command: [cat] }\n";
    let write = |flow: &str| {
        let text = format!("pipeline: Ask\n{steps}flow: [{flow}]\n");
        place.write("pipelines/ask.yml", &text);
        place.run(["check"])
    };
    let ended = write("{ start: A }");
    let said =
        "`on_wait` of pipeline `Ask` is never called: no `dampen` of its flow waits for a person";
    assert!(ended.fine().stdout.contains(said), "{ended:?}");
    assert!(ended.stdout.contains("ask.yml:5"), "{ended:?}");
    let ended = write("{ start: A }, { dampen: \"Go on?\" }");
    assert!(!ended.fine().stdout.contains("on_wait"), "{ended:?}");
}

#[test]
fn check_notes_names_that_are_nowhere() {
    let place = Place::ready();
    let exceptions = "count: { Hallo: 3, default: 1 }, max_retry: { Hello: { Great: 1, default: 2 }, default: 3 }";
    let endpoint = "name: shop, url: \"http://shop.example\", secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw, \
                    pipelines: [Hello, Helo]";
    let text = format!(
        "default:\n  job_worker: {{ {exceptions} }}\n  console: {{ webhooks: [{{ {endpoint} }}] }}\n"
    );
    place.write("ductwork.yml", &text);
    let ended = place.run(["check"]);
    ended.fine();
    for part in [
        "! the endpoint `shop` of `console.webhooks` names `Helo`: there is no such pipeline here; did you mean `Hello`?",
        "! `job_worker.count` names `Hallo`: there is no such pipeline here; did you mean `Hello`? \
         (ductwork.yml:2)",
        "! `job_worker.max_retry` names `Great`: there is no such step in `Hello`",
        "· sqlite://",
        "(not contacted)",
    ] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
    let mut command = place.command();
    let command = command.env("DATABASE_URL", "postgres://localhost/shop");
    let ended = Ended::of(command.arg("check").output().unwrap());
    let line = "· postgres://localhost/shop (from DATABASE_URL, not contacted)\n";
    assert!(ended.fine().stdout.contains(line), "{ended:?}");
    let json = place.run(["check", "--json"]).json();
    assert_eq!(
        (&json["ok"], json["notes"].as_array().unwrap().len()),
        (&true.into(), 3)
    );
}

#[test]
fn a_name_in_pipelines_that_no_file_defines_fails_the_check_and_warns_at_the_start() {
    let place = Place::ready();
    place.write("ductwork.yml", "pipelines:\n  - Hello\n  - Helo\n");
    let ended = place.run(["check"]);
    ended.failed(
        2,
        "`pipelines` names `Helo`: there is no such pipeline here",
    );
    for part in ["--> ductwork.yml:3:5", "did you mean `Hello`?"] {
        assert!(ended.stderr.contains(part), "{part}: {ended:?}");
    }
    // Whether one name is unknown or all of them: the message is the same.
    place.write("ductwork.yml", "pipelines: [Nope]\n");
    place.run(["check"]).failed(
        2,
        "`pipelines` names `Nope`: there is no such pipeline here",
    );
    let started = place.run(["start", "--until-idle"]);
    assert_eq!(started.code, Some(0), "{started:?}");
    let warnings = started
        .stderr
        .lines()
        .filter(|line| line.contains("\"level\":\"warn\""));
    let warnings: Vec<_> = warnings.collect();
    assert_eq!(warnings.len(), 1, "{started:?}");
    for part in [
        "`pipelines` names `Nope`",
        "ductwork.yml:1",
        "there are: Hello",
    ] {
        assert!(warnings[0].contains(part), "{part}: {warnings:?}");
    }
    // Another host may define the pipelines that a worker serves.
    place.write("ductwork.yml", "role: worker\npipelines: [Nope]\n");
    let ended = place.run(["check"]);
    ended.fine();
    assert!(
        ended.stdout.contains("! `pipelines` names `Nope`"),
        "{ended:?}"
    );
}

#[test]
fn a_program_that_is_not_there_fails_the_check_and_warns_at_the_start() {
    let place = Place::ready();
    let pipeline = "pipeline: Late\nsteps:\n  A: { command: [steps/late.sh], timeout: 1m }\nflow:\n  - start: A\n";
    place.write("pipelines/late.yml", pipeline);
    place.run(["check"]).failed(
        2,
        "step `A` of pipeline `Late`: there is no program `steps/late.sh`",
    );
    let started = place.run(["start", "--until-idle"]);
    assert_eq!(started.code, Some(0), "{started:?}");
    let warnings = started
        .stderr
        .lines()
        .filter(|line| line.contains("\"level\":\"warn\""));
    let warnings: Vec<_> = warnings.collect();
    assert_eq!(warnings.len(), 2, "{started:?}");
    for warning in &warnings {
        assert!(warning.contains("pipelines/late.yml:3"), "{warning}");
    }
    let told = "step `A` of pipeline `Late` may take 60s, and a stop waits 20s for it";
    assert!(warnings[0].contains(told), "{warnings:?}");
    assert!(
        warnings[1].contains("there is no program `steps/late.sh`"),
        "{warnings:?}"
    );
}

#[test]
fn a_step_has_the_variables_that_are_listed_and_a_secret_is_nowhere_but_in_it() {
    const TOKEN: &str = "s3cr3t-t0ken";
    let place = Place::ready();
    let script = "echo \"token <$TOKEN> region <$REGION> other <$OTHER> home <$HOME>\" >&2; exit 1";
    let pipeline = format!(
        "pipeline: Secret\nsteps:\n  A:\n    command: [sh, -c, '{script}']\n    max_retry: 0\n    \
         env: {{ TOKEN: {{ secret: API_TOKEN }}, REGION: \"${{AREA:-eu}}\" }}\nflow:\n  - start: A\n"
    );
    place.write("pipelines/secret.yml", &pipeline);
    place.write("ductwork.yml", "job_worker: { env: [PATH, HO*] }\n");
    place.run(["check"]).failed(
        2,
        "the secret `API_TOKEN` is not set: set API_TOKEN, or API_TOKEN_FILE",
    );
    let with = |args: &[&str]| {
        let mut command = place.command();
        command.env("API_TOKEN", TOKEN).env("OTHER", "other");
        command.env("HOME", "/nowhere");
        Ended::of(command.args(args).output().unwrap())
    };
    with(&["check"]).fine();
    let ended = with(&["run", "Secret"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let said = "token <***> region <eu> other <> home </nowhere>";
    let run = &with(&["runs", "--json"]).json()[0];
    let shown = with(&["show", run["id"].as_str().unwrap(), "--json"]);
    assert!(shown.stdout.contains(said), "{shown:?}");
    for output in [&ended.stdout, &ended.stderr, &shown.stdout] {
        assert!(!output.contains(TOKEN), "{output}");
    }
    for entry in std::fs::read_dir(place.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes
                .windows(TOKEN.len())
                .any(|part| part == TOKEN.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
    // An unset variable does not prevent a start, but fails the check.
    place.write(
        "pipelines/secret.yml",
        &pipeline.replace("${AREA:-eu}", "${AREA}"),
    );
    with(&["check"]).failed(2, "the environment variable `AREA` is not set");
    place.write(
        "pipelines/secret.yml",
        &pipeline.replace("${AREA:-eu}", "${AREA"),
    );
    with(&["check"]).failed(2, "the value of `REGION`: a `${` without its `}`");
}

#[test]
fn runs_of_a_pipeline_that_nobody_knows_are_a_mistake_and_the_nearest_is_named() {
    let place = Place::ready();
    place.run(["runs", "--pipeline", "Hello"]).fine();
    let ended = place.run(["runs", "--pipeline", "Helo"]);
    ended.failed(1, "there is no pipeline `Helo`");
    assert!(ended.stderr.contains("did you mean `Hello`?"), "{ended:?}");
    // A pipeline that was defined once has its runs.
    place.trigger("1");
    std::fs::remove_file(place.path().join("pipelines/hello.yml")).unwrap();
    place.write(
        "pipelines/other.yml",
        "pipeline: Other\nsteps: { A: { command: [cat] } }\nflow: [{ start: A }]\n",
    );
    place.run(["runs", "--pipeline", "Hello"]).fine();
    let none = place.run([
        "runs",
        "--pipeline",
        "Hello",
        "--status",
        "halted",
        "--json",
    ]);
    assert_eq!(none.fine().json(), serde_json::json!([]));
}

#[test]
fn an_error_is_json_on_standard_error_where_json_was_asked_for() {
    let place = Place::empty();
    let error = |place: &Place, args: &[&str], code| {
        let ended = place.run(args);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let said: serde_json::Value = serde_json::from_str(&ended.stderr)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {ended:?}"));
        assert_eq!(said["error"]["exit_status"], code, "{said}");
        said["error"].clone()
    };
    // The directory is empty, so each verb that needs anything fails.
    for args in [
        &["-c", "none.yml", "start"][..],
        &["run", "P"],
        &["trigger", "P"],
        &["runs"],
        &["show", "0123abcd"],
        &["why", "0123abcd"],
        &["revive", "0123abcd"],
        &["cancel", "0123abcd"],
        &["resume", "0123abcd"],
        &["processes"],
        &["health"],
        &["context", "list"],
        &["audit"],
        &["-c", "none.yml", "bench"],
        &["-c", "none.yml", "drill"],
        &["prune", "--older-than", "1d"],
        &["migrate", "--status"],
    ] {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        let code = place.run(&args).code.unwrap();
        let said = error(&place, &args, code);
        assert!(
            said["message"].is_string() && said["problems"][0]["message"] == said["message"],
            "{args:?}: {said}"
        );
    }
    let said = error(&place, &["runs", "--json", "--limt", "3"], 2);
    assert_eq!(said["code"], "usage");
    assert_eq!(said["message"], "unexpected argument '--limt' found");
    let said = error(&place, &["trigger", "--json"], 2);
    let whole = "the following required arguments were not provided: <PIPELINE>";
    assert_eq!(said["message"], whole);
    place.write(
        "ductwork.yml",
        "default:\n  job_worker: { cuont: 5, x: 1 }\n",
    );
    let said = error(&place, &["runs", "--json"], 2);
    assert_eq!(
        (
            &said["file"],
            &said["line"],
            &said["column"],
            &said["count"]
        ),
        (&"ductwork.yml".into(), &2.into(), &17.into(), &2.into())
    );
    assert_eq!(said["problems"].as_array().unwrap().len(), 2, "{said}");
}

#[test]
fn a_line_in_the_place_of_a_program_is_to_be_a_list() {
    let place = Place::ready();
    for (line, list) in [
        ("python3 steps/report.py", "`[python3, steps/report.py]`"),
        ("cat -n", "`[cat, -n]`"),
        (
            "cat a b c d e f g h i",
            "`[cat, a, b, c, d, e, f, g, h, i]`",
        ),
        ("cat | wc", "`[sh, -c, '…']`"),
    ] {
        let pipeline = format!(
            "pipeline: Line\nsteps:\n  A: {{ command: [\"{line}\"] }}\nflow:\n  - start: A\n"
        );
        place.write("pipelines/line.yml", &pipeline);
        let ended = place.run(["check"]);
        let help = format!("write it as a list: {list}");
        assert!(ended.stderr.contains(&help), "{line}: {ended:?}");
        assert!(!ended.stderr.contains("install "), "{line}: {ended:?}");
    }
}

#[test]
fn the_whole_of_path_is_nobodys_answer() {
    let place = Place::ready();
    let pipeline =
        "pipeline: Far\nsteps:\n  A: { command: [no-such-program] }\nflow:\n  - start: A\n";
    place.write("pipelines/far.yml", pipeline);
    let path = "/first:/second:/third:/fourth:/fifth";
    let output = place.command().env("PATH", path).arg("check").output();
    let ended = Ended::of(output.unwrap());
    assert!(
        ended
            .stderr
            .contains("was not found in PATH (/first, /second, /third and 2 more)"),
        "{ended:?}"
    );
}

#[test]
fn a_run_is_found_by_either_end_of_its_id_and_by_nothing_else() {
    let place = Place::ready();
    let id = place.trigger("1");
    let simple = id.replace('-', "");
    for given in [
        &id,
        &id.to_uppercase(),
        &simple,
        &simple[..30].to_owned(),
        &id[..4].to_owned(),
        &id[28..].to_owned(),
        &id[20..].to_uppercase(),
        &format!(" {id} "),
    ] {
        let shown = place.run(["show", given, "--json"]);
        shown.fine();
        assert_eq!(shown.json()["id"], id.as_str(), "{given}");
    }
    for given in [
        "",
        " ",
        "abc",
        "not an id",
        "01 a1",
        "'; DROP TABLE ductwork_runs; --",
        "0x1234",
        "%",
        "………",
        &"a".repeat(100_000),
    ] {
        for verb in ["show", "why", "cancel", "revive", "resume"] {
            place.run([verb, given]).failed(2, "is not the id of a run");
        }
    }
    let unknown = "ffffffff-ffff-7fff-8fff-ffffffffffff";
    for verb in ["show", "why", "cancel", "revive", "resume"] {
        let ended = place.run([verb, unknown]);
        ended.failed(1, "there is no run ffffffff");
        assert!(!ended.stderr.contains("newest"), "there are few: {ended:?}");
    }
    let other = place.trigger("2");
    assert_eq!(other[..4], id[..4], "made within the same minutes");
    let several = place.run(["show", &id[..4]]);
    several.failed(2, "several runs");
    for candidate in [&id, &other] {
        let told = format!("{candidate} (Hello, running, ");
        assert!(several.stderr.contains(&told), "{several:?}");
    }
    for input in 0..8 {
        place.trigger(&input.to_string());
    }
    let many = place.run(["show", &id[..4]]);
    assert!(many.stderr.contains(", … and 4 more"), "{many:?}");
}

#[test]
fn a_step_of_very_many_attempts_shows_the_last_of_them_and_says_where_the_others_are() {
    let place = Place::ready();
    let step = "{ command: [sh, -c, 'echo; echo no luck >&2; exit 1'], max_retry: 24, backoff: { initial: 0s } }";
    let pipeline = format!("pipeline: Often\nsteps: {{ A: {step} }}\nflow: [{{ start: A }}]\n");
    place.write("pipelines/often.yml", &pipeline);
    let ran = place.run(["run", "Often"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("A (25 attempts)"), "{ran:?}");
    let runs = place.run(["runs", "--json"]).json();
    let id = runs[0]["id"].as_str().unwrap().to_owned();
    let shown = place.run(["show", &id]);
    shown.fine();
    let others = format!(
        "attempts 1 to 5: `ductworkd logs {} A` shows their logs",
        &id[28..]
    );
    assert!(
        shown.stdout.contains("25 attempts") && shown.stdout.contains(&others),
        "{shown:?}"
    );
    assert!(
        shown.stdout.contains("attempt 6 ") && !shown.stdout.contains("attempt 5 "),
        "{shown:?}"
    );
    let all = place.run(["show", &id, "--json"]).json();
    assert_eq!(
        all["steps"][0]["executions"].as_array().map(Vec::len),
        Some(25)
    );
}

#[test]
fn a_first_attempt_that_waits_for_its_time_is_shown_with_it() {
    let place = Place::ready();
    place.run(["trigger", "Hello", "1", "--delay", "2h"]).fine();
    let runs = place.run(["runs", "--json"]).json();
    let shown = place.run(["show", runs[0]["id"].as_str().unwrap()]);
    shown.fine();
    let line = shown.stdout.lines().find(|line| line.contains("is due"));
    let line = line.unwrap_or_else(|| panic!("{shown:?}"));
    assert!(line.contains(", attempt 1 is due in 1h 59m"), "{shown:?}");
    assert!(runs[0]["due_at"].is_string(), "{runs}");
    let listed = place.run(["runs"]);
    assert!(listed.stdout.contains("begins in 1h 59m"), "{listed:?}");
    let id = runs[0]["id"].as_str().unwrap();
    let mut command = place.command();
    let command = command.args(["watch", id]).stderr(Stdio::piped());
    let mut watch = command.spawn().unwrap();
    let said = until_said(&mut watch, "0/1");
    send(&watch, nix::sys::signal::Signal::SIGINT);
    watch.wait().unwrap();
    assert!(said.ends_with("0/1, begins in 1h 59m\n"), "{said}");
    // It has begun, or never will.
    place.run(["trigger", "Hello", "2"]).fine();
    place
        .run(["cancel", runs[0]["id"].as_str().unwrap()])
        .fine();
    let runs = place.run(["runs", "--json"]).json();
    let due: Vec<bool> = runs
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run.get("due_at").is_some())
        .collect();
    assert_eq!(due, [false, false], "{runs}");
}

#[test]
fn a_first_start_on_an_empty_database_counts_no_errors_of_it() {
    let place = Place::empty();
    place.run(["init"]).fine();
    let started = place.run(["start", "--until-idle"]);
    assert_eq!(started.code, Some(0), "{started:?}");
    let metrics = place.run(["metrics"]);
    metrics.fine();
    let errors = metrics.stdout.lines();
    let errors: Vec<&str> = errors
        .filter(|line| line.starts_with("ductwork_db_errors_total{"))
        .filter(|line| !line.ends_with(" 0"))
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert!(metrics.stdout.contains("ductwork_"), "{metrics:?}");
}

/// Another host's command upgrades what the daemons work on.
#[test]
fn a_trigger_that_upgrades_a_database_says_so_and_one_that_makes_it_does_not() {
    let place = Place::ready();
    let trigger = || place.run(["trigger", "Hello", "1"]);
    let made = trigger();
    made.fine();
    assert!(!made.stderr.contains("upgraded"), "{made:?}");
    let conn = rusqlite::Connection::open(place.path().join("ductwork.db")).unwrap();
    // The last migration, undone.
    let column = "ALTER TABLE ductwork_departed DROP COLUMN went_on_as";
    conn.execute(column, []).unwrap();
    let sql = "DELETE FROM ductwork_migrations WHERE version = 24";
    assert_eq!(conn.execute(sql, []).unwrap(), 1);
    let upgraded = trigger();
    let note = "note: the database was upgraded by 1 migration, as `ductworkd migrate` does";
    assert_eq!((upgraded.code, upgraded.stderr.trim()), (Some(0), note));
    assert!(!trigger().stderr.contains("upgraded"));
}

#[test]
fn a_run_whose_payload_is_damaged_hides_no_other_and_is_named() {
    let place = Place::ready();
    let (damaged, other) = (place.trigger("1"), place.trigger("2"));
    let conn = rusqlite::Connection::open(place.path().join("ductwork.db")).unwrap();
    let sql = "UPDATE ductwork_runs SET input = '{\"a\":' WHERE input = '1'";
    assert_eq!(conn.execute(sql, []).unwrap(), 1);
    let list = place.run(["runs"]);
    list.fine();
    let lines: Vec<&str> = list.stdout.lines().skip(1).collect();
    assert_eq!(lines.len(), 2, "{list:?}");
    for line in lines {
        assert_eq!(line.contains("damaged"), line.contains(&damaged), "{line}");
    }
    assert!(list.stdout.contains(&other), "{list:?}");
    let json = place.run(["runs", "--json"]).json();
    let of = |id: &str| {
        let runs = json.as_array().unwrap();
        runs.iter().find(|run| run["id"] == id).unwrap().clone()
    };
    let told = of(&damaged)["damaged"].to_string();
    assert!(
        told.contains(&format!("the input of the run {damaged}")),
        "{told}"
    );
    assert!(of(&other).get("damaged").is_none() && of(&other)["input"] == 2);
    for verb in ["show", "why"] {
        let ended = place.run([verb, &damaged]);
        ended.failed(1, &format!("the input of the run {damaged} is damaged"));
        assert!(ended.stderr.contains("ductworkd audit"), "{ended:?}");
        place.run([verb, &other]).fine();
    }
    let ended = place.run(["show", &damaged, "--input"]);
    ended.failed(1, &format!("the input of the run {damaged} is damaged"));
    assert!(ended.stdout.is_empty(), "{ended:?}");
    // A step of that run.
    let sql = "UPDATE ductwork_steps SET input = 'x' WHERE input = '2'";
    assert_eq!(conn.execute(sql, []).unwrap(), 1);
    place
        .run(["show", &other])
        .failed(1, "the input of the step ");
}

#[test]
fn an_input_that_is_not_one_json_value_is_2_and_says_where() {
    let place = Place::ready();
    let deep = "[".repeat(129) + &"]".repeat(129);
    for input in [
        "",
        " ",
        "{",
        "[1,",
        "[1,]",
        "nul",
        "NaN",
        "Infinity",
        "1 2",
        "1,",
        "{} {}",
        "[1]x",
        "'a'",
        "{'a':1}",
        "{a:1}",
        "{\"a\"}",
        "01",
        "1.",
        ".5",
        "+1",
        "0x10",
        "\"",
        "\"\t\"",
        "\"\\x\"",
        "\u{feff}1",
        "hello",
        "-",
        &deep,
    ] {
        let ended = place.run(["trigger", "Hello", input]);
        ended.failed(2, "the input is not one JSON value");
        let line = ended.stderr.lines().next().unwrap();
        let empty = input.trim().is_empty() || input == "-";
        assert!(empty || line.contains("line 1"), "{input:?}: {line}");
    }
    for bytes in [
        &b"\xff"[..],
        b"\"\xc0\xaf\"",
        b"\"\xed\xa0\x80\"",
        b"[1,\n2,\nx]",
    ] {
        let ended = place.run_with(&["trigger", "Hello", "-"], bytes);
        ended.failed(2, "the input is not one JSON value");
        assert!(
            ended.stderr.lines().next().unwrap().contains("line "),
            "{ended:?}"
        );
        // Without this option, an empty file starts a run.
        let each = "`xargs -r -d '\\n' -n 1 ductworkd trigger NAME < FILE`";
        assert!(ended.stderr.contains(each), "{ended:?}");
    }
    let runs = place.run(["runs", "--json"]);
    assert_eq!(
        runs.json().as_array().unwrap().len(),
        0,
        "none of them started a run"
    );
}

#[test]
fn an_input_that_is_far_too_large_is_2_and_not_held() {
    let place = Place::ready();
    let large = vec![b'1'; 64 << 20];
    place
        .run_with(&["trigger", "Hello", "-"], &large)
        .failed(2, "larger than");
    // An endless input, with little memory.
    let endless = std::fs::File::open("/dev/zero").unwrap();
    let limited = "ulimit -v 1000000; exec \"$0\" trigger Hello -";
    let mut shell = Command::new("sh");
    shell.args(["-c", limited, env!("CARGO_BIN_EXE_ductworkd")]);
    shell.current_dir(place.path()).env_clear().stdin(endless);
    Ended::of(shell.output().unwrap()).failed(2, "larger than");
}

#[test]
fn a_variable_of_ours_that_is_not_utf_8_is_2() {
    let place = Place::ready();
    for name in ["DUCTWORK_ENV", "DATABASE_URL", "DUCTWORK_JOB_WORKER__COUNT"] {
        let mut command = place.command();
        let command = command.arg("check").env(name, OsStr::from_bytes(b"a\xffb"));
        Ended::of(command.output().unwrap()).failed(2, &format!("{name}: is not UTF-8"));
    }
    // A variable of another program is left alone.
    let mut command = place.command();
    command
        .arg("check")
        .env("OTHER", OsStr::from_bytes(b"\xff"));
    Ended::of(command.output().unwrap()).fine();
}

#[test]
fn an_input_is_kept_to_the_letter() {
    let place = Place::ready();
    let deep = "[".repeat(128) + &"]".repeat(128);
    for input in [
        "null",
        "-0",
        "-1",
        "1e400",
        "9007199254740993",
        "1.0",
        "\"\\u0000\"",
        "{\"a\":1,\"a\":2}",
        "{\"\":1}",
        "{\"__proto__\":1}",
        "\"\u{2028}\"",
        "\"🎉\"",
        "[]",
        "{}",
        &deep,
    ] {
        let id = place.trigger(input);
        let shown = place.run(["show", &id, "--json"]);
        shown.fine();
        assert!(
            shown
                .stdout
                .contains(&format!("\"input\":{input},\"output\":null")),
            "{input}: {}",
            shown.stdout
        );
        place.run(["show", &id]).fine();
    }
    let ended = place.run_with(&["trigger", "Hello", "-"], b" [1,\n 2]\n");
    ended.fine();
}

#[test]
fn who_acts_without_a_name_is_recorded_by_the_name_of_the_account() {
    let place = Place::ready();
    place.trigger("1");
    let conn = rusqlite::Connection::open(place.path().join("ductwork.db")).unwrap();
    let by = "SELECT by_whom FROM ductwork_actions";
    let by: String = conn.query_row(by, [], |row| row.get(0)).unwrap();
    let account = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap();
    let account = account.map_or_else(
        || format!("uid {}", nix::unistd::getuid()),
        |account| account.name,
    );
    assert_eq!(by.split('@').next(), Some(account.as_str()), "{by}");
}

#[test]
fn a_token_beside_another_of_its_name_is_made_and_the_other_is_told_of() {
    let place = Place::ready();
    let first = place.run(["token", "create", "shop"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(!first.stderr.contains("can still be used"), "{first:?}");
    let second = place.run(["token", "create", "shop"]);
    assert_eq!(second.code, Some(0), "{second:?}");
    let note = "note: besides this one, 1 token with the name shop can still be used; once nobody uses the older one: ductworkd token revoke ";
    let id = second
        .stderr
        .lines()
        .find_map(|line| line.strip_prefix(note));
    place.run(["token", "revoke", id.unwrap()]).fine();
    let other = place.run(["token", "create", "other", "--json"]);
    assert_eq!(other.fine().stderr, "", "{other:?}");
}

/// The answer to the first command may be lost, and the pipeline deployed with another schema before the second.
#[test]
fn a_key_leads_to_its_run_although_the_pipeline_asks_for_another_input_by_now() {
    let place = Place::ready();
    let pipeline = "pipeline: Later\nsteps: { A: { command: [cat] } }\nflow: [{ start: A }]\n";
    place.write("pipelines/later.yml", pipeline);
    let long = format!("\"{}\"", "x".repeat(2_000));
    let trigger = |key: &str, max: &str| {
        let mut command = place.command();
        command.env("DUCTWORK_JOB_WORKER__MAX_PAYLOAD", max);
        command.args(["trigger", "Later", &long, "--key", key, "--json"]);
        Ended::of(command.stdin(Stdio::null()).output().unwrap())
    };
    let first = trigger("k", "16MiB");
    assert_eq!(first.fine().json()["created"], true);
    let stricter = format!("{pipeline}input: {{ type: object }}\n");
    place.write("pipelines/later.yml", &stricter);
    for max in ["16MiB", "1KiB"] {
        let again = trigger("k", max);
        let told = again.fine().json();
        assert_eq!(
            (&told["run_id"], &told["created"]),
            (&first.json()["run_id"], &false.into())
        );
    }
    // A new run is judged by the rules of today.
    trigger("another", "16MiB").failed(2, "the input is a string; an object is expected");
    trigger("another", "1KiB").failed(2, "larger than max_payload (1024 bytes)");
    place
        .run(["trigger", "Later", "2", "--key", "k"])
        .failed(1, "this key already belongs to the run ");
    let listed = place.run(["runs", "--json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
}

#[test]
fn a_key_makes_one_run() {
    let place = Place::ready();
    let first = place.run(["trigger", "Hello", "1", "--key", "k", "--json"]);
    first.fine();
    assert_eq!(first.json()["created"], true);
    assert_eq!(first.json()["pipeline"], "Hello");
    let second = place.run(["trigger", "Hello", "1", "--key", "k", "--json"]);
    second.fine();
    assert_eq!(second.json()["created"], false);
    assert_eq!(second.json()["run_id"], first.json()["run_id"]);
    let told = place.run(["trigger", "Hello", "1", "--key", "k"]);
    let run = format!("{}\n", first.json()["run_id"].as_str().unwrap());
    assert_eq!((told.code, &told.stdout), (Some(0), &run), "{told:?}");
    assert!(
        told.stderr.starts_with("note: no run was started"),
        "{told:?}"
    );
    let third = place.run(["trigger", "Hello", "2", "--key", "k"]);
    third.failed(1, "this key already belongs to the run ");
    assert!(third.stderr.contains("give another key, or the same input"));
    let told = place.run(["trigger", "Hello", "2", "--key", "k", "--json"]);
    assert_eq!((told.code, told.stdout.as_str()), (Some(1), ""), "{told:?}");
    assert!(
        told.stderr.contains("which had a different input"),
        "{told:?}"
    );
    place
        .run(["trigger", "Hello", "1", "--key", ""])
        .failed(2, "a key has");
    place
        .run(["trigger", "Hello", "1", "--key", &"k".repeat(600)])
        .failed(2, "a key has");
}

#[test]
fn an_unknown_pipeline_is_1_and_the_nearest_is_named() {
    let place = Place::ready();
    let ended = place.run(["trigger", "Helo"]);
    ended.failed(1, "there is no pipeline `Helo`");
    assert!(ended.stderr.contains("did you mean `Hello`?"), "{ended:?}");
    let ended = place.run(["trigger", "\u{1b}[2J"]);
    ended.failed(1, "there is no pipeline");
    assert!(!ended.stderr.contains('\u{1b}'), "{ended:?}");
}

#[test]
fn a_mistake_in_the_file_of_another_pipeline_keeps_nobody_from_a_trigger_or_a_run() {
    let place = Place::ready();
    place.write("pipelines/other.yml", "pipeline: Other\nsteps: {\n");
    for verb in ["trigger", "run"] {
        let ended = place.run([verb, "Hello"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let note = "note: the file of another pipeline has a mistake";
        assert!(ended.stderr.contains(note), "{ended:?}");
        assert!(ended.stderr.contains("other.yml:"), "{ended:?}");
        for name in ["Other", "Helo"] {
            let ended = place.run([verb, name]);
            ended.failed(2, "not valid YAML");
            assert!(ended.stderr.contains("other.yml"), "{ended:?}");
        }
    }
    // With two files of one name it is unclear which one is meant.
    let hello = std::fs::read_to_string(place.path().join("pipelines/hello.yml")).unwrap();
    place.write("pipelines/other.yml", &hello);
    place.run(["trigger", "Hello"]).failed(2, "as well");
}

#[test]
fn a_run_can_be_looked_at_and_cancelled_but_not_revived() {
    let place = Place::ready();
    let id = place.trigger("[1,2]");
    let why = place.run(["why", &id, "--json"]);
    why.fine();
    assert_eq!(why.json()["cause"], "no_worker");
    place
        .run(["revive", &id])
        .failed(1, "only halted runs are revived");
    place
        .run(["resume", &id])
        .failed(1, "it has been answered, or asks nothing; it is running");
    place
        .run(["resume", &id, "{"])
        .failed(2, "the value is not one JSON value");
    place.run(["audit"]).fine();
    place.run(["cancel", &id[..13]]).failed(0, "");
    place
        .run(["cancel", &id])
        .failed(1, "has ended: it is cancelled");
    let runs = place.run([
        "runs",
        "--status",
        "cancelled",
        "--pipeline",
        "Hello",
        "--since",
        "1h",
        "--json",
    ]);
    let runs = runs.fine().json();
    assert_eq!(runs[0]["id"], id.as_str());
    let keys: Vec<&str> = runs[0]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        keys,
        [
            "id",
            "pipeline",
            "key",
            "status",
            "input",
            "output",
            "definition",
            "revived_from",
            "revived_as",
            "triggered_at",
            "started_at",
            "completed_at",
            "halted_at",
            "cancelled_at",
            "halt_reasons",
        ]
    );
    assert_eq!(
        place.run(["runs", "--status", "halted", "--json"]).json(),
        serde_json::json!([])
    );
    let shown = place.run(["show", &id, "--json"]).fine().json();
    let keys = |value: &serde_json::Value| {
        let keys = value.as_object().unwrap().keys();
        keys.cloned().collect::<Vec<String>>()
    };
    assert_eq!(
        keys(&shown["steps"][0]),
        [
            "id",
            "node",
            "step",
            "via",
            "branch_id",
            "status",
            "input",
            "output",
            "started_at",
            "completed_at",
            "executions",
        ]
    );
    assert_eq!(
        keys(&shown["steps"][0]["executions"][0]),
        [
            "id",
            "attempt",
            "retry_count",
            "crash_count",
            "process_id",
            "claimed_at",
            "completed_at",
            "result",
            "error_class",
            "error_message",
            "error_backtrace",
        ]
    );
    place.run(["audit"]).fine();
    // The default of `retention` lies further back than this test.
    let pruned = place.run(["prune", "--yes", "--json"]);
    assert_eq!(pruned.fine().json()["pruned"], 0);
    let pruned = place.run(["prune", "--older-than", "0", "--json"]);
    assert_eq!(pruned.fine().json()["pruned"], 1);
    place.run(["show", &id]).failed(1, "there is no run");
}

#[test]
fn a_suggested_command_can_be_pasted() {
    let place = Place::ready();
    let id = place.trigger("1");
    let text = "default: {}\nprod: { database: { url: \"sqlite://ductwork.db\" } }\n";
    place.write("my conf.yml", text);
    let given = ["-c", "my conf.yml", "-e", "prod"];
    let run = |args: &[&str]| place.run(given.iter().chain(args));
    run(&["cancel", &id[28..]]).fine();
    let again = run(&["cancel", &id[28..]]);
    let hint = format!("`ductworkd -c 'my conf.yml' -e prod show {}`", &id[28..]);
    assert!(again.stderr.contains(&hint), "{again:?}");
    // In the form that a shell takes.
    let command = hint.trim_matches('`').replace("ductworkd", "\"$0\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &command, env!("CARGO_BIN_EXE_ductworkd")]);
    shell.current_dir(place.path()).env_clear();
    let shown = Ended::of(shell.output().unwrap());
    assert!(shown.fine().stdout.contains(&id), "{shown:?}");
    let none = run(&["show", "ffff0000"]);
    assert!(
        none.stderr
            .contains("`ductworkd -c 'my conf.yml' -e prod runs`"),
        "{none:?}"
    );
    // On a terminal ids are short.
    let listed = typed(&place, "runs", b"");
    assert!(
        listed.stdout.contains(&id[28..]) && !listed.stdout.contains(&id),
        "{listed:?}"
    );
    assert!(place.run(["runs"]).stdout.contains(&id));
}

/// Runs the program on its own terminal, where a person types this; returns all that appears there.
fn typed(place: &Place, args: &str, typed: &[u8]) -> Ended {
    typed_with(place, args, typed, ("LANG", "C"))
}

/// The same, with a variable.
fn typed_with(place: &Place, args: &str, typed: &[u8], variable: (&str, &str)) -> Ended {
    let program = env!("CARGO_BIN_EXE_ductworkd");
    let mut command = Command::new("script");
    command.current_dir(place.path()).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("XDG_RUNTIME_DIR", place.path());
    command.env(variable.0, variable.1);
    let line = format!("{program} {args}");
    let mut child = command
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(typed);
    Ended::of(child.wait_with_output().unwrap())
}

#[test]
fn prune_says_how_many_are_gone_although_one_cannot_be_deleted() {
    let place = Place::ready();
    let runs: Vec<String> = (0..3)
        .map(|_| {
            let id = place.trigger("1");
            place.run(["cancel", &id]).fine();
            id
        })
        .collect();
    let conn = rusqlite::Connection::open(place.path().join("ductwork.db")).unwrap();
    conn.execute_batch(&format!(
        "CREATE TRIGGER refuse BEFORE DELETE ON ductwork_runs WHEN lower(hex(OLD.id)) = '{}'
         BEGIN SELECT RAISE(ABORT, 'not this one'); END",
        runs[1].replace('-', "")
    ))
    .unwrap();
    let pruned = place.run(["prune", "--older-than", "0s"]);
    pruned.failed(1, "not this one");
    assert_eq!(pruned.stdout, "2 runs deleted\n");
    place.run(["show", &runs[1]]).fine();
}

#[test]
fn prune_asks_a_person_unless_it_was_told_an_age() {
    let place = Place::ready();
    for _ in 0..3 {
        place.run(["run", "Hello", "\"you\""]);
    }
    place.age(31);
    // There is no person to ask.
    let nobody = place.run(["prune"]);
    nobody.failed(2, "nothing was deleted: there is no terminal to confirm on");
    assert!(
        nobody.stderr.contains("--yes") && nobody.stderr.contains("--older-than"),
        "{nobody:?}"
    );
    for answer in [&b"n\n"[..], b"\n", b"\x04"] {
        let ended = typed(&place, "prune", answer);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(
            ended.stdout.contains(
                "Delete 3 runs that ended more than 30d ago (`retention` of the configuration), with their steps and logs? [y/N]"
            ),
            "{ended:?}"
        );
        assert!(ended.stdout.contains("nothing was deleted"), "{ended:?}");
    }
    let ended = typed(&place, "prune --limit 1", b"y\n");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended
            .stdout
            .contains("Delete 1 run that ended more than 30d ago (`retention` of the configuration), with its steps")
            && ended.stdout.contains("1 run deleted"),
        "{ended:?}"
    );
    // A person who names an age is asked as well, and can see the effect beforehand.
    let refused = typed(&place, "prune --older-than 1d", b"n\n");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused
            .stdout
            .contains("Delete 2 runs that ended more than 1d ago")
            && refused.stdout.contains("[y/N]"),
        "{refused:?}"
    );
    for args in [
        &["prune", "--dry-run"][..],
        &["prune", "--older-than", "1d", "--dry-run", "-y"],
    ] {
        let dry = place.run(args);
        dry.fine();
        assert!(
            dry.stdout.starts_with("2 runs that ended more than "),
            "{dry:?}"
        );
    }
    let dry = place.run(["prune", "--older-than", "90d", "--dry-run", "--json"]);
    assert_eq!(dry.fine().json()["would_prune"], 0);
    // A number may be meant as days, or as seconds.
    place
        .run(["prune", "--older-than", "1", "--dry-run"])
        .failed(2, "1");
    let all = place.run(["prune", "--older-than", "0s", "--dry-run"]);
    assert!(all.stdout.contains("more than 0s ago"), "{all:?}");
    // There is no question if there is nothing to lose, or if it has been answered.
    let told = typed(&place, "prune --older-than 0s --limit 1 --yes", b"");
    assert!(
        told.code == Some(0) && !told.stdout.contains("[y/N]"),
        "{told:?}"
    );
    assert_eq!(
        place
            .run(["prune", "--older-than", "1d", "--json"])
            .fine()
            .json()["pruned"],
        1
    );
    let nothing = typed(&place, "prune", b"");
    assert!(
        nothing.code == Some(0) && !nothing.stdout.contains("[y/N]"),
        "{nothing:?}"
    );
}

#[test]
fn the_context_is_read_and_written_by_the_run_of_the_environment() {
    let place = Place::ready();
    let id = place.trigger("1");
    place.run(["context", "list"]).failed(2, "no run given");
    place
        .run(["context", "set", "a", "{\"b\": 1}", "--run", &id])
        .fine();
    let mut command = place.command();
    let got = command
        .args(["context", "get", "a"])
        .env("DUCTWORK_RUN_ID", &id)
        .output()
        .unwrap();
    assert_eq!(Ended::of(got).fine().stdout, "{\"b\": 1}\n");
    place
        .run(["context", "get", "nothing", "--run", &id])
        .failed(1, "the key `nothing` is not set");
    place
        .run(["context", "set", "", "1", "--run", &id])
        .failed(2, "a key has");
    place
        .run(["context", "set", "a", "x", "--run", &id])
        .failed(2, "not one JSON value");
    let all = place.run(["context", "list", "--run", &id, "--json"]);
    assert_eq!(all.fine().json(), serde_json::json!({ "a": { "b": 1 } }));
    place.run(["cancel", &id]);
    let set = place.run(["context", "set", "a", "2", "--run", &id]);
    assert_eq!(set.code, Some(0), "{set:?}");
    let note = "note: the run has ended (cancelled), so at most a hook will read this value";
    assert!(set.stderr.contains(note), "{set:?}");
}

#[test]
fn nobody_is_healthy_where_nobody_is() {
    let place = Place::ready();
    place
        .run(["health"])
        .failed(1, "unhealthy: no supervisor is registered");
    place
        .run(["health", "--pid", "1", "-v"])
        .failed(1, "unhealthy: no process 1");
    place
        .run(["health", "--here"])
        .failed(1, "unhealthy: no supervisor is registered from here");
    let ended = place.run(["health", "--json"]);
    assert_eq!(
        (ended.code, &ended.json()["healthy"]),
        (Some(1), &serde_json::json!(false))
    );
    assert_eq!(
        place.run(["processes", "--json"]).fine().json(),
        serde_json::json!([])
    );
}

#[test]
fn migrations_are_told_printed_and_applied_once() {
    let place = Place::empty();
    let printed = place.run(["migrate", "--print"]);
    printed.fine();
    assert!(printed.stdout.contains("CREATE TABLE ductwork_runs"));
    assert!(
        !place.path().join("ductwork.db").exists(),
        "nothing was connected to"
    );
    // A person who applies the script by hand gets the same schema.
    let by_hand = Place::empty();
    let database = rusqlite::Connection::open(by_hand.path().join("ductwork.db")).unwrap();
    database.execute_batch(&printed.stdout).unwrap();
    drop(database);
    let applied = by_hand.run(["migrate", "--json"]);
    assert_eq!(applied.fine().json()["applied"], serde_json::json!([]));
    let first = place.run(["migrate", "--json"]);
    assert_eq!(first.fine().json()["applied"][0], 1);
    assert_eq!(
        place.run(["migrate", "--json"]).fine().json()["applied"],
        serde_json::json!([])
    );
    let status = place.run(["migrate", "--status", "--json"]);
    assert_eq!(status.fine().json()[0]["applied"], true);
    place
        .run(["migrate", "--status", "--print"])
        .failed(2, "cannot be used with");
}

#[test]
fn the_program_describes_itself() {
    let place = Place::empty();
    let version = place.run(["version", "--json"]);
    assert_eq!(version.fine().json()["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        place.run(["version"]).stdout,
        place.run(["--version"]).stdout
    );
    for of in ["config", "pipeline"] {
        let schema = place.run(["schema", of]);
        assert!(schema.fine().json().is_object());
    }
    place
        .run(["schema", "else"])
        .failed(2, "invalid value 'else'");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(["completions", shell]);
        let script = &script.fine().stdout;
        assert!(script.contains("trigger"), "{shell}");
        // The program calls itself with this one.
        assert!(!script.contains("watcher"), "{shell}");
    }
}

#[test]
fn a_command_that_may_write_no_more_says_so() {
    let place = Place::ready();
    let program = env!("CARGO_BIN_EXE_ductworkd");
    // The limit counts in blocks: less than the log of the smallest transaction.
    let script = format!("ulimit -f 1; exec {program} trigger Hello 1");
    let mut shell = place.command();
    let environment: Vec<_> = shell
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    shell = Command::new("sh");
    shell
        .current_dir(place.path())
        .env_clear()
        .envs(environment);
    let ended = Ended::of(shell.args(["-c", &script]).output().unwrap());
    ended.failed(69, "the database cannot be used");
    assert_eq!(place.run(["runs", "--json"]).json(), serde_json::json!([]));
    place.trigger("1");
}

/// SQLite reads all of a file's schema when it changes a table: a program without the module that a trigger of somebody
/// else names could not migrate.
#[test]
fn a_file_with_somebodys_full_text_search_is_used_like_any_other() {
    let place = Place::empty();
    place.run(["init"]).fine();
    let theirs = rusqlite::Connection::open(place.path().join("ductwork.db")).unwrap();
    let index = "
        CREATE TABLE notes (body text);
        CREATE VIRTUAL TABLE search USING fts5(body);
        CREATE VIRTUAL TABLE places USING rtree(id, west, east);
        CREATE TRIGGER noted AFTER INSERT ON notes BEGIN
            INSERT INTO search VALUES (new.body);
            INSERT INTO places VALUES (new.rowid, 1, 2);
        END;
        CREATE VIEW found AS SELECT body FROM search";
    theirs.execute_batch(index).unwrap();
    drop(theirs);
    place.run(["migrate"]).fine();
    place.run(["run", "Hello", "\"you\""]);
    let runs = place
        .run(["runs", "--status", "completed", "--json"])
        .json();
    assert_eq!(runs.as_array().unwrap().len(), 1, "{runs}");
    place.run(["audit"]).fine();
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    let place = Place::empty();
    // Larger than the capacity of a pipe, so that writing meets the closed end.
    let name = "x".repeat(200_000);
    place.write(
        "pipelines/a.yml",
        &format!(
            "pipeline: A\nsteps: {{ {name}: {{ command: [sh] }} }}\nflow:\n  - start: {name}\n"
        ),
    );
    for args in [
        &["migrate", "--print"][..],
        &["completions", "bash"],
        &["schema", "config"],
        &["--help"],
    ] {
        let mut child = place
            .command()
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Closed before anything was read.
        drop(child.stdout.take());
        let mut said = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        let status = child.wait().unwrap();
        assert_eq!((status.code(), said.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_bad_verdict_that_nobody_reads_stays_bad() {
    let place = Place::ready();
    place
        .run(["pause", "Hello", "--reason", "a bad feed"])
        .fine();
    place.write("pipelines/wrong.yml", "pipeline: Wrong\nflow: []\n");
    for (args, code, says) in [
        (&["health"][..], 1, "no supervisor"),
        (&["health", "--json"], 1, ""),
        (&["health", "--live", "--json"], 1, ""),
        (&["check", "--json"], 2, ""),
        (&["check"], 2, "wrong.yml"),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        // Closed before anything is written.
        drop(reader);
        let output = place.command().args(args).stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        assert!(said.contains(says), "{args:?}: {output:?}");
    }
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    let place = Place::empty();
    for argument in ["--help", "--version", "help"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let output = place
            .command()
            .arg(argument)
            .stdout(full.unwrap())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{argument}: {output:?}");
    }
}

/// Like a worker after the end of an attempt.
#[test]
fn a_context_that_is_refused_is_1_and_says_why() {
    let place = Place::empty();
    let socket = place.path().join("worker");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let worker = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut asked, _) = listener.accept().unwrap();
            let mut first = String::new();
            std::io::BufRead::read_line(&mut std::io::BufReader::new(&asked), &mut first).unwrap();
            let answer = "{\"refused\":{\"message\":\"this attempt of the step is over\"}}\n";
            asked.write_all(answer.as_bytes()).unwrap();
        }
    });
    let run = "01a20ccd-d292-7106-9636-d5490e17b855";
    let way = format!("{run}:token:{}", socket.display());
    for verb in [&["get", "k"][..], &["set", "k", "1"]] {
        let mut command = place.command();
        command.arg("context").args(verb);
        command
            .env("DUCTWORK_CONTEXT", &way)
            .env("DUCTWORK_RUN_ID", run);
        let ended = Ended::of(command.output().unwrap());
        ended.failed(1, "this attempt of the step is over");
    }
    worker.join().unwrap();
}

#[test]
fn an_output_that_cannot_be_written_is_an_error_and_no_panic() {
    let place = Place::empty();
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = place
        .command()
        .args(["schema", "config"])
        .stdout(full)
        .output()
        .unwrap();
    Ended::of(output).failed(1, "standard output cannot be written");
    // A script that tries again would start a second run, or leave a token behind that nobody has seen.
    let place = Place::ready();
    let lost = |args: &[&str]| {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let mut command = place.command();
        let output = command.args(args).stdout(full.unwrap()).output();
        let ended = Ended::of(output.unwrap());
        let said = ended.stderr.contains("standard output cannot be written");
        assert!(ended.code == Some(1) && said, "{ended:?}");
        ended.stderr
    };
    for args in [vec!["trigger", "Hello"], vec!["trigger", "Hello", "--json"]] {
        let told = lost(&args);
        let runs = place.run(["runs", "--json"]).fine().json();
        let mut ids = runs.as_array().unwrap().iter().map(|run| &run["id"]);
        let named =
            ids.any(|id| told.contains(&format!("the run {} is there", id.as_str().unwrap())));
        assert!(named, "{told}");
    }
    let told = lost(&["token", "create", "ana"]);
    let tokens = place.run(["token", "list", "--json"]).fine().json();
    let id = tokens[0]["id"].as_str().unwrap();
    assert!(told.contains(&format!("token revoke {id}")), "{told}");
    for redirect in [">&-", "2>&-", "<&-", "<&- >&- 2>&-"] {
        let script = format!("\"$0\" version {redirect}");
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &script, env!("CARGO_BIN_EXE_ductworkd")])
            .current_dir(place.path());
        let ended = Ended::of(shell.output().unwrap());
        assert_eq!(ended.code, Some(0), "{redirect}: {ended:?}");
    }
}

/// Starts `run` of a pipeline whose first step makes a file `began`, and waits until a file `go` exists.
fn run_of(place: &Place, args: &[&str], stdout: Stdio) -> std::process::Child {
    let waits = "touch began; until [ -e go ]; do sleep 0.1; done; cat";
    let text = format!(
        "pipeline: Slow\nsteps: {{ A: {{ command: [sh, -c, '{waits}'] }}, B: {{ command: [cat] }}, \
         F: {{ command: ['false'], max_retry: 0 }} }}\n\
         flow: [{{ start: A }}, {{ divert: {{ 0: F, otherwise: B }} }}]\n"
    );
    place.write("pipelines/Slow.yml", &text);
    let mut command = place.command();
    let command = command.arg("run").args(args).stdout(stdout);
    let streams = command.stdin(Stdio::piped()).stderr(Stdio::piped());
    streams.spawn().unwrap()
}

/// Reads a child's standard error until it contains this line.
fn until_said(child: &mut std::process::Child, part: &str) -> String {
    // Byte by byte, so that the rest stays to be read.
    let mut said = Vec::new();
    let stderr = child.stderr.as_mut().unwrap();
    let has_said = |said: &[u8]| {
        let text = String::from_utf8_lossy(said);
        text.ends_with('\n') && text.contains(part)
    };
    while !has_said(&said) {
        let mut byte = [0];
        assert_eq!(stderr.read(&mut byte).unwrap(), 1, "{said:?}");
        said.extend(byte);
    }
    String::from_utf8(said).unwrap()
}

/// Waits until a step has made this file.
fn until_made(place: &Place, name: &str) {
    let since = std::time::Instant::now();
    while !place.path().join(name).exists() {
        assert!(
            since.elapsed() < std::time::Duration::from_secs(60),
            "nobody has made {name}"
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Waits until a process handles this signal itself.
fn until_caught(child: &std::process::Child, signal: nix::sys::signal::Signal) {
    let since = std::time::Instant::now();
    let is_caught = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
        caught & 1 << (signal as i32 - 1) != 0
    };
    while !is_caught() {
        let elapsed = since.elapsed();
        assert!(elapsed < std::time::Duration::from_secs(60), "{signal}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn send(child: &std::process::Child, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, signal).unwrap();
}

#[test]
fn a_run_that_is_interrupted_is_no_success_and_goes_on_later() {
    use nix::sys::signal::Signal::{SIGINT, SIGTERM};
    let place = Place::ready();
    for signal in [SIGINT, SIGTERM] {
        let mut child = run_of(&place, &["Slow", "1"], Stdio::piped());
        let said = until_said(&mut child, "triggered");
        let line = said
            .lines()
            .find(|line| line.ends_with("triggered"))
            .unwrap();
        let id = line.split(' ').nth(1).unwrap().to_owned();
        until_made(&place, "began");
        // A second signal does not wait for running steps. Sent at once, it would be the same request: the supervisor
        // writes this line later than that.
        send(&child, signal);
        until_said(&mut child, "\"msg\":\"stopping\"");
        send(&child, signal);
        let ended = Ended::of(child.wait_with_output().unwrap());
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (Some(130), ""),
            "{ended:?}"
        );
        assert!(!ended.stderr.contains("and did not"), "{ended:?}");
        let told = format!("the run {id} is left in progress");
        assert!(ended.stderr.contains(&told), "{ended:?}");
        assert!(
            ended.stderr.contains("continue it with `ductworkd start`"),
            "{ended:?}"
        );
        std::fs::remove_file(place.path().join("began")).unwrap();
    }
    // Next to a daemon the run goes on by itself.
    let mut daemon = place.command();
    let daemon = daemon.arg("start").stdout(Stdio::null());
    let mut daemon = daemon.stderr(Stdio::piped()).spawn().unwrap();
    until_said(&mut daemon, "ready");
    let mut child = run_of(&place, &["Slow", "1"], Stdio::piped());
    let said = until_said(&mut child, "triggered");
    let id = said
        .lines()
        .find(|line| line.ends_with("triggered"))
        .unwrap();
    let id = id.split(' ').nth(1).unwrap().to_owned();
    // Two different signals are two requests, however soon the second one comes.
    send(&child, SIGINT);
    send(&child, SIGTERM);
    let ended = Ended::of(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let told = format!("stopped; the run {id} goes on: the worker ");
    assert!(ended.stderr.contains(&told), "{ended:?}");
    assert!(!ended.stderr.contains("continue it"), "{ended:?}");
    // Unless it is kept from that.
    place.run(["pause", "Slow", "--reason", "r"]).fine();
    let mut child = run_of(&place, &["Slow", "1"], Stdio::piped());
    until_said(&mut child, "triggered");
    send(&child, SIGINT);
    let ended = Ended::of(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let told = "begins: the pipeline Slow is paused";
    assert!(ended.stderr.contains(told), "{ended:?}");
    assert!(
        ended.stderr.contains("`ductworkd unpause Slow`"),
        "{ended:?}"
    );
    place.run(["unpause", "Slow"]).fine();
    // Nor does the end of the waiting command end it.
    let mut command = place.command();
    command.args(["trigger", "Slow", "1", "--wait"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let id = until_said(&mut child, "triggered");
    let id = id.split(' ').nth(1).unwrap().to_owned();
    send(&child, SIGINT);
    let ended = Ended::of(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let short = &id[id.len() - 8..];
    let told = format!("the run goes on; ductworkd watch {short} shows it\n");
    assert!(ended.stderr.ends_with(&told), "{ended:?}");
    // A program is told in its own language.
    for verb in [&["trigger", "Slow", "1", "--wait"][..], &["watch", &id]] {
        let mut command = place.command();
        command.args(verb).arg("--json");
        let output = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = output.spawn().unwrap();
        until_caught(&child, SIGINT);
        send(&child, SIGINT);
        let ended = Ended::of(child.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(130), "{ended:?}");
        // The lines before it tell of the run's progress.
        let last = ended.stderr.lines().last().unwrap();
        let told: serde_json::Value = serde_json::from_str(last).expect(last);
        assert_eq!(told["error"]["code"], "interrupted", "{told}");
        let run = match verb[0] {
            "trigger" => ended.json()["run_id"].as_str().unwrap().to_owned(),
            _ => id.clone(),
        };
        let told = told["error"]["help"].as_str().unwrap();
        let short = &run[run.len() - 8..];
        assert!(told.contains(&format!("ductworkd watch {short}")), "{told}");
    }
    send(&daemon, SIGTERM);
    std::fs::write(place.path().join("go"), "").unwrap();
    daemon.wait().unwrap();
    let last = place.run(["start", "--until-idle"]);
    assert_eq!(last.code, Some(0), "{last:?}");
    let runs = place.run(["runs", "--json"]).json();
    let statuses: Vec<_> = runs
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["status"])
        .collect();
    assert_eq!(statuses, ["completed"; 6]);
}

/// The running step may end, and it is the last one.
#[test]
fn a_run_that_completes_while_it_is_interrupted_is_a_success() {
    let place = Place::ready();
    let text = "pipeline: Last\nsteps: { A: { command: [sh, -c, 'touch began; until [ -e go ]; do sleep 0.1; done; cat'] } }\n\
                flow: [{ start: A }]\n";
    place.write("pipelines/Last.yml", text);
    let mut command = place.command();
    let command = command.args(["run", "Last", "7"]).stdout(Stdio::piped());
    let mut child = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until_said(&mut child, "triggered");
    until_made(&place, "began");
    send(&child, nix::sys::signal::Signal::SIGINT);
    until_said(&mut child, "stopping");
    std::fs::write(place.path().join("go"), "").unwrap();
    let ended = Ended::of(child.wait_with_output().unwrap());
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "7\n"),
        "{ended:?}"
    );
}

#[test]
fn a_run_that_waits_for_its_input_is_ended_by_a_person() {
    let place = Place::ready();
    let mut child = run_of(&place, &["Slow", "-"], Stdio::piped());
    let input = child.stdin.take();
    // It is reading: a system call whose first argument is descriptor 0.
    let call = format!("/proc/{}/syscall", child.id());
    let began = std::time::Instant::now();
    while std::fs::read_to_string(&call).unwrap().split(' ').nth(1) != Some("0x0") {
        assert!(
            began.elapsed() < std::time::Duration::from_secs(30),
            "it does not read"
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    send(&child, nix::sys::signal::Signal::SIGINT);
    let status = child.wait().unwrap();
    assert!(!status.success(), "{status}");
    drop(input);
}

#[test]
fn a_run_says_what_came_of_it() {
    let place = Place::ready();
    std::fs::write(place.path().join("go"), "").unwrap();
    let run = |args: &[&str], stdout: Stdio| {
        let child = run_of(&place, args, stdout);
        Ended::of(child.wait_with_output().unwrap())
    };
    let plain = run(&["Slow", "[7]"], Stdio::piped());
    assert_eq!(
        (plain.code, plain.stdout.as_str()),
        (Some(0), "[7]\n"),
        "{plain:?}"
    );
    assert!(plain.stderr.contains("completed: 2 steps"), "{plain:?}");

    let keyed = run(&["Slow", "1", "--key", "k", "--json"], Stdio::piped());
    assert_eq!(keyed.code, Some(0), "{keyed:?}");
    let told = keyed.json();
    assert_eq!(
        (&told["status"], &told["output"], &told["created"]),
        (&"completed".into(), &1.into(), &true.into())
    );
    let again = run(&["Slow", "1", "--key", "k", "--json"], Stdio::piped());
    assert_eq!(
        (&again.json()["run_id"], &again.json()["created"]),
        (&told["run_id"], &false.into())
    );
    let other = run(&["Slow", "2", "--key", "k", "--json"], Stdio::piped());
    assert_eq!(
        (other.code, other.stdout.as_str()),
        (Some(1), ""),
        "{other:?}"
    );
    assert!(other.stderr.contains("had a different input"), "{other:?}");
    run(&["Slow", "1", "--key", ""], Stdio::piped()).failed(2, "a key has");

    let halted = run(&["Slow", "0", "--json"], Stdio::piped());
    assert_eq!(halted.code, Some(1), "{halted:?}");
    assert_eq!(halted.json()["status"], "halted");
    assert!(halted.stderr.contains("F (1 attempt): "), "{halted:?}");
    // Whether its output is read or not.
    let (reader, unread) = std::io::pipe().unwrap();
    drop(reader);
    let halted = run(&["Slow", "0", "--json"], unread.into());
    assert_eq!(halted.code, Some(1), "{halted:?}");

    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let lost = run(&["Slow", "1"], full.into());
    assert_eq!(lost.code, Some(1));
    assert!(
        lost.stderr.contains("standard output cannot be written"),
        "{lost:?}"
    );
}

#[test]
fn a_run_that_waits_for_a_person_is_shown_with_the_deadline() {
    let place = Place::ready();
    let text = "pipeline: Ask\nsteps: { A: { command: [cat] } }\n\
                flow: [{ start: A }, { dampen: { prompt: 'Go on?', timeout: 3d } }]\n";
    place.write("pipelines/ask.yml", text);
    let run = place.run(["run", "Ask", "1", "--json"]);
    assert_eq!(run.code, Some(3), "{run:?}");
    let id = run.json()["run_id"].as_str().unwrap().to_owned();
    let shown = place.run(["show", &id]);
    let told = "dampen waits for a person: Go on? (without an answer it halts in 2d 23h)";
    assert!(shown.stdout.contains(told), "{shown:?}");
}

#[test]
fn colours_are_for_terminals_or_whoever_asks() {
    let place = Place::ready();
    let id = place.trigger("1");
    let coloured = |args: &[&str], variable: Option<(&str, &str)>| {
        let mut command = place.command();
        let output = command.args(args).envs(variable).output().unwrap();
        Ended::of(output).fine().stdout.contains('\u{1b}')
    };
    assert!(!coloured(&["show", &id], None));
    assert!(coloured(&["show", &id, "--color", "always"], None));
    assert!(coloured(&["show", &id], Some(("CLICOLOR_FORCE", "1"))));
    assert!(!coloured(
        &["show", &id, "--color", "never"],
        Some(("CLICOLOR_FORCE", "1"))
    ));
    assert!(!coloured(
        &["show", &id, "--json", "--color", "always"],
        None
    ));
    place
        .run(["show", &id, "--color", "blue"])
        .failed(2, "invalid value 'blue'");
}

/// Adds ended runs, in addition to the one that `trigger` made.
fn add_runs(database: &Path, runs: u32) {
    let conn = rusqlite::Connection::open(database).unwrap();
    let add = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
               INSERT INTO ductwork_runs
                   (id, pipeline, definition, status, input, output, triggered_at, completed_at)
               SELECT unhex(printf('%032x', i)), r.pipeline, r.definition, 'completed', 'null',
                      'null', r.triggered_at, r.triggered_at
                 FROM n, ductwork_runs r";
    assert_eq!(conn.execute(add, [runs]).unwrap(), runs as usize);
}

#[test]
fn a_million_runs_are_listed_as_far_as_anybody_reads() {
    let place = Place::ready();
    place.trigger("1");
    let database = place.path().join("ductwork.db");
    add_runs(&database, 1_000_000);
    // One page, however many there are.
    let ended = place.run(["runs", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&ended.fine().stdout).unwrap();
    let page = listed.as_array().unwrap().len();
    assert!((1..=1_000).contains(&page), "{page}");
    // Very many runs, for a reader that stops early.
    let mut child = place
        .command()
        .args(["runs", "--json", "--limit", "100000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut beginning = [0; 64];
    child
        .stdout
        .take()
        .unwrap()
        .read_exact(&mut beginning)
        .unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn only_a_start_with_a_console_and_check_need_the_variables_of_webhooks() {
    let place = Place::ready();
    let hooks = "console: { listen: \"127.0.0.1:0\", webhooks: [{ name: a, url: \"http://a/\", secret: \"${NO_SUCH_SECRET}\" }] }\n";
    place.write("ductwork.yml", hooks);
    let run = |verb: &[&str]| {
        let mut command = place.command();
        let command = command.env_remove("DUCTWORK_CONSOLE__LISTEN").args(verb);
        Ended::of(command.stdin(Stdio::null()).output().unwrap())
    };
    for verb in [
        ["runs"].as_slice(),
        &["processes"],
        &["token", "list"],
        &["audit"],
        &["bulk", "list"],
    ] {
        assert_eq!(run(verb).code, Some(0), "{verb:?}");
    }
    let unset = "the environment variable `NO_SUCH_SECRET` is not set";
    for verb in [
        ["check"].as_slice(),
        &["start", "--until-idle"],
        &["console"],
    ] {
        run(verb).failed(2, unset);
    }
    let silent = hooks.replace("listen: \"127.0.0.1:0\", ", "");
    place.write("ductwork.yml", &silent);
    assert_eq!(run(&["start", "--until-idle"]).code, Some(0));
}

#[test]
fn a_step_sees_no_variable_of_ours_that_the_guide_does_not_list() {
    let place = Place::ready();
    let print = "import json, os; print(json.dumps([it for it in os.environ if it.startswith('DUCTWORK_')]))";
    let text = format!(
        "pipeline: Print\nsteps:\n  Print: {{ command: [python3, -c, \"{print}\"] }}\nflow:\n  - start: Print\n"
    );
    place.write("pipelines/print.yml", &text);
    // So that steps inherit all variables.
    place.write(
        "ductwork.yml",
        "database: { url: \"sqlite://ductwork.db\" }\n",
    );
    let ended = place.run(["run", "Print"]);
    let seen: Vec<String> = serde_json::from_str(&ended.stdout).unwrap();
    let seen: Vec<&String> = seen
        .iter()
        .filter(|name| *name != "DUCTWORK_CONSOLE__LISTEN")
        .collect();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guide/src/steps.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("\n## The environment of a step\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let unlisted: Vec<&&String> = seen
        .iter()
        .filter(|name| !section.contains(&format!("`{name}`")))
        .collect();
    assert!(seen.len() > 10 && unlisted.is_empty(), "{unlisted:?}");
}
