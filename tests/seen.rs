//! The display of a run that a person sees, on a terminal and in a pipe: the built program on its own
//! terminal, whose screen is kept by a small model.
//!
//! On SQLite, but for an outage: the display asks a database what `show` and `why` ask it, which tests of the store
//! run on each.

#![expect(
    clippy::unwrap_used,
    reason = "what fails here is the test, not the program"
)]

#[expect(dead_code, reason = "a server without a standby is enough here")]
#[path = "support/cluster.rs"]
mod cluster;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(180);

struct Place {
    dir: TempDir,
}

impl Place {
    fn new(pipelines: &[(&str, &str)]) -> Self {
        let place = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir(place.path().join("pipelines")).unwrap();
        for (name, text) in pipelines {
            let file = place.path().join("pipelines").join(format!("{name}.yml"));
            std::fs::write(file, text).unwrap();
        }
        let text = "default:\n  database: { url: \"sqlite://ductwork.db\" }\n  job_worker: { count: 8, \
                    backoff: { initial: 300ms }, polling_timeout: 100ms }\n";
        std::fs::write(place.path().join("ductwork.yml"), text).unwrap();
        place
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn prepared(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("XDG_RUNTIME_DIR", self.path());
        command.stdin(Stdio::null());
        command
    }

    /// Runs it without a terminal.
    fn run(&self, args: &[&str]) -> Output {
        let mut command = self.prepared(env!("CARGO_BIN_EXE_ductworkd"));
        command.args(args).output().unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(args);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// Runs it on a terminal with this many rows and columns; standard output goes to `to`, or is
    /// the terminal.
    fn on_terminal(&self, args: &str, size: (usize, usize), variables: &[(&str, &str)]) -> Child {
        let (rows, columns) = size;
        let program = env!("CARGO_BIN_EXE_ductworkd");
        let line = format!("stty rows {rows} cols {columns} && exec {program} {args}");
        let mut command = self.prepared("script");
        command.args([
            "--quiet",
            "--return",
            "--flush",
            "--command",
            &line,
            "/dev/null",
        ]);
        command
            .env("SHELL", "/bin/sh")
            .envs(variables.iter().copied());
        // The end of the input would be taken for the end of the session.
        command.stdin(Stdio::piped());
        let streams = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        streams.spawn().unwrap()
    }
}

/// The screen of a terminal: the text that a person sees at a moment.
struct Screen {
    rows: usize,
    columns: usize,
    cells: Vec<Vec<char>>,
    /// The cursor; in the last column it may be behind the character there.
    at: (usize, usize),
    behind: bool,
    /// An incomplete escape sequence.
    escape: Option<String>,
    pending: Vec<u8>,
    /// False in the middle of a picture.
    whole: bool,
}

impl Screen {
    fn new((rows, columns): (usize, usize)) -> Self {
        Self {
            rows,
            columns,
            cells: vec![vec![' '; columns]; rows],
            at: (0, 0),
            behind: false,
            escape: None,
            pending: Vec::new(),
            whole: true,
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend(bytes);
        let text = match std::str::from_utf8(&self.pending) {
            Ok(text) => text.to_owned(),
            Err(error) => {
                let whole = error.valid_up_to();
                String::from_utf8(self.pending[..whole].to_vec()).unwrap()
            }
        };
        self.pending.drain(..text.len());
        text.chars().for_each(|letter| self.letter(letter));
    }

    fn letter(&mut self, letter: char) {
        if let Some(mut escape) = self.escape.take() {
            escape.push(letter);
            match letter {
                '[' | '?' | ';' | '0'..='9' => self.escape = Some(escape),
                _ => self.sequence(&escape),
            }
            return;
        }
        match letter {
            '\x1b' => self.escape = Some(String::new()),
            '\r' => (self.at.1, self.behind) = (0, false),
            '\n' => self.down(),
            '\u{7}' | '\u{8}' => {}
            _ => {
                if self.behind {
                    self.at.1 = 0;
                    self.down();
                }
                self.cells[self.at.0][self.at.1] = letter;
                self.behind = self.at.1 + 1 == self.columns;
                self.at.1 += usize::from(!self.behind);
            }
        }
    }

    fn down(&mut self) {
        self.behind = false;
        self.at.0 += 1;
        if self.at.0 == self.rows {
            self.cells.remove(0);
            self.cells.push(vec![' '; self.columns]);
            self.at.0 -= 1;
        }
    }

    fn sequence(&mut self, escape: &str) {
        let number: usize = escape[1..escape.len() - 1].parse().unwrap_or(1);
        match escape.chars().last() {
            Some('A') => {
                assert!(
                    number <= self.at.0,
                    "the cursor goes {number} rows up from {}",
                    self.at.0
                );
                self.at.0 -= number;
            }
            Some('K') => self.cells[self.at.0][self.at.1..].fill(' '),
            Some('J') => {
                self.cells[self.at.0][self.at.1..].fill(' ');
                self.cells[self.at.0 + 1..]
                    .iter_mut()
                    .for_each(|row| row.fill(' '));
            }
            Some('h' | 'l') if escape.starts_with("[?2026") => self.whole = escape.ends_with('l'),
            Some('m' | 'h' | 'l') => {}
            _ => panic!("the model does not know {escape:?}"),
        }
    }

    fn lines(&self) -> Vec<String> {
        let line = |row: &Vec<char>| row.iter().collect::<String>().trim_end().to_owned();
        self.cells.iter().map(line).collect()
    }
}

/// Reads all that a child shows, in pieces of this many bytes, until it ends; returns its exit
/// status.
fn watched(
    mut child: Child,
    size: (usize, usize),
    piece: usize,
    mut look: impl FnMut(&Screen),
) -> Option<i32> {
    let mut screen = Screen::new(size);
    let mut output = child.stdout.take().unwrap();
    let mut bytes = vec![0; piece];
    loop {
        let read = output.read(&mut bytes).unwrap();
        if read == 0 {
            break;
        }
        screen.feed(&bytes[..read]);
        look(&screen);
    }
    child.wait().unwrap().code()
}

/// Three hundred elements; every third fails at its first attempt.
const FLAKY: &str = r#"
pipeline: Flaky
steps:
  Numbers: { command: [sh, -c, "seq 1 300 | jq -sc ."] }
  Try: { command: [sh, -c, 'read -r n; sleep 0.03; if [ $((n % 3)) = 0 ] && [ "$DUCTWORK_ATTEMPT" = 1 ]; then echo "no luck with $n" >&2; exit 1; fi; echo "$n"'], max_retry: 3 }
  Sum: { command: [jq, add] }
flow: [{ start: Numbers }, { expand: Try }, { collapse: Sum }]
"#;

#[test]
fn no_picture_is_torn_while_a_hundred_attempts_fail() {
    for (size, least) in [((35, 110), 200), ((20, 60), 200)] {
        let place = Place::new(&[("Flaky", FLAKY)]);
        let child = place.on_terminal("run Flaky", size, &[]);
        let (mut looks, mut retries, mut begun) = (0, 0, false);
        let mut last = Vec::new();
        // Pieces that end anywhere within a picture.
        let code = watched(child, size, 23, |screen| {
            let lines = screen.lines();
            let with = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
            assert!(with("Flaky ") <= 1 && with("✓ Numbers") <= 1, "{lines:#?}");
            assert!(with("step did not succeed") == 0, "{lines:#?}");
            begun |= with("✓ Numbers") == 1;
            looks += usize::from(begun);
            retries += usize::from(with(": exit status 1: no luck with ") > 0);
            last = lines;
        });
        let shown = last.join("\n");
        assert_eq!(code, Some(0), "{shown}");
        assert!(looks >= least, "{looks} looks");
        assert!(retries > 0, "the retries are shown while they happen");
        for part in [
            "Flaky ",
            " ✓ Numbers",
            "300/300",
            " ✓ Sum",
            "completed  302 steps",
            "45150",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        // A person whose run has completed misses nothing.
        assert!(!shown.contains("log line"), "{shown}");
    }
}

/// A daemon that is ended with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.0.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

impl Place {
    fn daemon(&self) -> Daemon {
        let mut command = self.prepared(env!("CARGO_BIN_EXE_ductworkd"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Daemon(command.arg("start").spawn().unwrap())
    }

    fn go(&self) {
        std::fs::write(self.path().join("go"), "").unwrap();
    }

    fn until(&self, what: &str, mut met: impl FnMut() -> bool) {
        let began = Instant::now();
        while !met() {
            assert!(began.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A step that waits for a file, after one that says where it is.
const SLOW: &str = r#"
pipeline: Slow
steps:
  First: { command: [cat] }
  Wait: { command: [sh, -c, "touch begun; until [ -e go ]; do sleep 0.1; done; cat"] }
flow: [{ start: First }, { chain: Wait }]
"#;

const HALTS: &str = r#"
pipeline: Halts
steps:
  Numbers: { command: [cat] }
  Try: { command: [sh, -c, 'read -r n; [ "$n" = 2 ] || exit 0; echo "first line"; echo "looking at $n" >&2; echo "no luck with $n" >&2; exit 3'], max_retry: 1 }
  Sum: { command: [cat] }
flow: [{ start: Numbers }, { expand: Try }, { collapse: Sum }]
"#;

const ASKS: &str = r#"
pipeline: Asks
steps:
  Draft: { command: [cat] }
  Send: { command: [cat] }
flow: [{ start: Draft }, { dampen: "send it to all?" }, { chain: Send }]
"#;

#[test]
fn a_pipe_gets_one_json_value_and_nothing_else() {
    let place = Place::new(&[("Slow", SLOW)]);
    place.go();
    let _daemon = place.daemon();
    let output = place.run(&["trigger", "Slow", "{\"a\": [1,2]}", "--wait"]);
    assert_eq!(text(&output.stdout), "{\"a\": [1,2]}\n", "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.starts_with("run ") && said.ends_with(" of Slow triggered\n"),
        "{said}"
    );
    let id = said.split(' ').nth(1).unwrap().to_owned();
    // Without waiting, the result is the id.
    let output = place.run(&["trigger", "Slow", "1"]);
    assert_eq!(text(&output.stdout).trim().len(), 36, "{output:?}");
    let watched = place.run(&["watch", &id[28..]]);
    assert_eq!(
        (watched.status.code(), text(&watched.stdout).as_str()),
        (Some(0), "{\"a\": [1,2]}\n"),
        "{watched:?}"
    );
}

#[test]
fn a_person_gets_the_result_laid_out() {
    let place = Place::new(&[("Slow", SLOW)]);
    place.go();
    let input = r#"{"states":[{"state":"Alaska","km":271.2},{"state":"Guam","km":7}],"n":[1,2]}"#;
    std::fs::write(place.path().join("input"), input).unwrap();
    let child = place.on_terminal("run Slow - < input", (30, 60), &[]);
    let mut last = Vec::new();
    let code = watched(child, (30, 60), 4096, |screen| last = screen.lines());
    let shown = last.join("\n");
    assert_eq!(code, Some(0), "{shown}");
    let table =
        "  \"states\":\n  state      km\n  Alaska  271.2\n  Guam        7\n  \"n\": [1, 2]\n}";
    assert!(shown.contains(table), "{shown}");
}

#[test]
fn the_page_of_a_run_has_a_timeline_and_tells_of_each_failed_attempt() {
    let place = Place::new(&[("Halts", HALTS)]);
    let ended = place.run(&["run", "Halts", "[1,2,3]"]);
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    for part in [
        "halted: 3 steps completed, 1 failed in ",
        "  Try, element 2 of 3 (2 attempts): exit status 3: no luck with 2\n",
        "  look at it:  ductworkd show ",
        "  go on:       fix Try, then: ductworkd revive ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let id = place.json(&["runs", "--json"])[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let shown = text(&place.run(&["show", &id]).stdout);
    let lines: Vec<&str> = shown.lines().collect();
    let at = |part: &str| {
        let found = lines.iter().position(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("{part}: {shown}"))
    };
    // In the flow's order, including the nodes that were not reached.
    let order = [
        at("✓ Numbers "),
        at("✗   Try "),
        at("· Sum"),
        at("✗ Try, element 2 of 3, 2 attempts  input 2"),
    ];
    assert!(order.is_sorted(), "{shown}");
    let row = lines[order[1]];
    assert!(row.contains('█') && row.contains("×3 ✓ 2 ✗ 1 ↻ 1"), "{row}");
    // A command is never cut.
    let whole = lines.len() - 1;
    assert!(
        lines[..whole].iter().all(|line| line.chars().count() <= 80),
        "{shown}"
    );
    for attempt in ["attempt 1 after ", "attempt 2 after "] {
        let at = at(attempt);
        assert!(
            lines[at].ends_with(": exit status 3: no luck with 2"),
            "{shown}"
        );
        assert_eq!(
            lines[at + 1..at + 3],
            ["      | looking at 2", "      | no luck with 2"],
            "{shown}"
        );
    }
    let (why, go_on) = (lines[lines.len() - 2], lines[lines.len() - 1]);
    assert_eq!(why, format!("why it halted: ductworkd why {}", &id[28..]));
    let remedy = format!("fix Try, then: ductworkd revive {}    # ", &id[28..]);
    assert!(go_on.starts_with(&format!("go on: {remedy}")), "{shown}");
    let told = text(&place.run(&["why", &id]).stdout);
    assert!(told.contains(&format!("remedy: {remedy}")), "{told}");
    assert!(
        go_on.ends_with("or trigger it again with another input"),
        "{shown}"
    );
    assert!(!shown.contains("ExitStatus"), "{shown}");

    let revived = place.run(&["revive", &id, "--json"]);
    let next: serde_json::Value = serde_json::from_slice(&revived.stdout).unwrap();
    let next = next["run_id"].as_str().unwrap();
    let said = text(&place.run(&["watch", &id]).stderr);
    assert!(
        said.contains(&format!("  revived as:  ductworkd watch {}\n", &next[28..])),
        "{said}"
    );
    assert!(!said.contains("go on:"), "{said}");
}

#[test]
fn a_run_that_waits_for_a_person_says_what_for_and_how_to_answer() {
    let place = Place::new(&[("Asks", ASKS)]);
    let ended = place.run(&["run", "Asks", "{\"to\":[\"a\",\"b\"]}"]);
    let said = text(&ended.stderr);
    assert_eq!(
        (ended.status.code(), text(&ended.stdout).as_str()),
        (Some(3), ""),
        "{said}"
    );
    let id = place.json(&["runs", "--json"])[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let answer = format!("ductworkd resume {} [VALUE]", &id[28..]);
    for part in [
        "waiting: 1 step in ",
        "dampen: send it to all?",
        "\"to\": [\"a\", \"b\"]",
        &answer,
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for verb in [&["show", &id][..], &["why", &id]] {
        let told = text(&place.run(verb).stdout);
        for part in ["send it to all?", "\"a\"", &answer] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
    // The word that people use; programs keep theirs.
    assert!(text(&place.run(&["runs", "--status", "waiting"]).stdout).contains(" waiting "));
    assert!(text(&place.run(&["show", &id]).stdout).contains(" Asks waiting "));
    assert_eq!(
        place.json(&["runs", "--status", "dampened", "--json"])[0]["status"],
        "dampened"
    );
    let _daemon = place.daemon();
    let waited = place.run(&["trigger", "Asks", "1", "--wait"]);
    assert_eq!(waited.status.code(), Some(3), "{waited:?}");
    assert!(
        text(&waited.stderr).contains("answer:  ductworkd resume "),
        "{waited:?}"
    );
    let waited = place.run(&["trigger", "Asks", "1", "--wait", "--json"]);
    let told: Value = serde_json::from_slice(&waited.stdout).unwrap();
    assert_eq!(
        (waited.status.code(), &told["status"]),
        (Some(3), &"dampened".into()),
        "{waited:?}"
    );
    // The watching command shows the effect of the answer.
    let mut watch = place.prepared(env!("CARGO_BIN_EXE_ductworkd"));
    let watch = watch
        .args(["watch", &id])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let watch = watch.spawn().unwrap();
    assert_eq!(
        place.run(&["resume", &id[28..], "7"]).status.code(),
        Some(0)
    );
    let watch = watch.wait_with_output().unwrap();
    assert_eq!(
        (watch.status.code(), text(&watch.stdout).as_str()),
        (Some(0), "7\n"),
        "{watch:?}"
    );
}

const ASKS_IN_TIME: &str = r#"
pipeline: Asks
on_wait: Tell
on_complete: Tell
steps:
  Draft: { command: [cat] }
  Send: { command: [cat] }
  Tell: { command: [sh, -c, 'cat >> told'] }
flow: [{ start: Draft }, { dampen: { prompt: "send it?", timeout: 3d } }, { chain: Send }]
"#;

#[test]
fn a_question_tells_its_deadline_and_keeps_who_answered() {
    let place = Place::new(&[("Asks", ASKS_IN_TIME)]);
    let waited = place.run(&["run", "Asks", "7"]);
    let said = text(&waited.stderr);
    assert_eq!(waited.status.code(), Some(3), "{said}");
    let told = "dampen: send it? (without an answer it halts in 2d 23h)";
    assert!(said.contains(told), "{said}");
    // The daemon of `run` has stopped, and the hook ran before that.
    let hook: Value =
        serde_json::from_slice(&std::fs::read(place.path().join("told")).unwrap()).unwrap();
    assert_eq!(
        (&hook["node"], &hook["value"]),
        (&"dampen".into(), &7.into())
    );
    let id = place.json(&["runs", "--json"])[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let why = text(&place.run(&["why", &id]).stdout);
    assert!(
        why.contains("(without an answer it halts in 2d 23h)"),
        "{why}"
    );
    for name in ["", "  ", "(deadline)", "a\nb"] {
        let refused = place.run(&["resume", &id, "--by", name]);
        assert_eq!(refused.status.code(), Some(2), "{name:?}: {refused:?}");
    }
    let resumed = place.run(&["resume", &id, "8", "--by", "ana"]);
    assert!(resumed.status.success(), "{resumed:?}");
    let ended = place.run(&["start", "--until-idle"]);
    assert!(ended.status.success(), "{ended:?}");
    let page = text(&place.run(&["show", &id]).stdout);
    assert!(page.contains("by ana: 8"), "{page}");
    let acts = |label: &str| page.lines().find(|line| line.starts_with(label));
    let by = acts(" triggered  ").and_then(|line| line.split_once(", by "));
    assert!(
        by.is_some_and(|(_, by)| by.ends_with(" (command line)")),
        "{page}"
    );
    let resumed = acts("   resumed  ").unwrap();
    assert!(resumed.ends_with(" ago), by ana (command line)"), "{page}");
    // It runs after the end of the run.
    let mut lines = page.lines();
    let hook = lines.find(|line| line.contains("(on_complete)")).unwrap();
    assert!(!hook.contains(" 0µs"), "{page}");
    let shown = place.json(&["show", &id, "--json"]);
    let verbs = shown["actions"].as_array().unwrap().iter();
    assert_eq!(
        verbs.map(|it| &it["verb"]).collect::<Vec<_>>(),
        ["resume", "trigger"]
    );
    let steps = shown["steps"].as_array().unwrap();
    let answered: Vec<_> = steps
        .iter()
        .filter(|step| step["answered_by"] == "ana")
        .collect();
    assert_eq!(answered.len(), 1, "{shown}");
    let tails: Vec<_> = steps
        .iter()
        .filter(|step| step["node"] == "(on_complete)")
        .collect();
    assert_eq!(tails[0]["input"]["output"], 8, "{shown}");
}

#[test]
fn a_run_that_was_made_before_is_not_said_to_be_triggered() {
    let place = Place::new(&[("Slow", SLOW)]);
    place.go();
    for said in [
        " of Slow triggered\n",
        " of Slow was triggered before, with this key\n",
    ] {
        let ended = place.run(&["run", "Slow", "1", "--key", "k"]);
        assert!(text(&ended.stderr).contains(said), "{ended:?}");
    }
    // Nor to have taken only the moment in which its output was read.
    let conn = rusqlite::Connection::open(place.path().join("ductwork.db")).unwrap();
    let hour = "UPDATE ductwork_runs SET triggered_at = completed_at - 3600000000";
    conn.execute(hour, []).unwrap();
    let ended = place.run(&["run", "Slow", "1", "--key", "k"]);
    assert!(text(&ended.stderr).contains(" in 1 h 00 min"), "{ended:?}");
}

#[test]
fn an_interrupted_run_says_what_it_waits_for_and_how_not_to() {
    let place = Place::new(&[("Slow", SLOW)]);
    let stderr = place.path().join("stderr");
    let mut command = place.prepared(env!("CARGO_BIN_EXE_ductworkd"));
    let command = command.args(["run", "Slow", "1"]).stdout(Stdio::piped());
    let command = command.stderr(std::fs::File::create(&stderr).unwrap());
    let child = command.spawn().unwrap();
    place.until("the step begins", || place.path().join("begun").exists());
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    // Once it has looked at the run; the step ends when it is let go.
    place.until("it says that it stops", || {
        let said = std::fs::read_to_string(&stderr).unwrap();
        said.lines().any(|line| line.starts_with("stopping"))
    });
    place.go();
    let ended = child.wait_with_output().unwrap();
    let said = std::fs::read_to_string(&stderr).unwrap();
    let told = "stopping: waiting for running steps: Wait; Ctrl-C again stops at once\n";
    assert!(said.contains(told), "{said}");
    assert_eq!(ended.status.code(), Some(0), "{said}");
}

const BESIDE: &str = r#"
pipeline: Beside
steps: { Quick: { command: [sh, -c, "until [ -e begun ]; do sleep 0.1; done; cat"] } }
flow: [{ start: Quick }]
"#;

#[test]
fn a_run_that_has_ended_says_which_steps_it_waits_for_and_how_not_to() {
    let place = Place::new(&[("Slow", SLOW), ("Beside", BESIDE)]);
    let triggered = place.run(&["trigger", "Slow", "1"]);
    let slow = text(&triggered.stdout);
    let stderr = place.path().join("stderr");
    let mut command = place.prepared(env!("CARGO_BIN_EXE_ductworkd"));
    let command = command.args(["run", "Beside", "1"]).stdout(Stdio::null());
    let command = command.stderr(std::fs::File::create(&stderr).unwrap());
    let mut child = command.spawn().unwrap();
    let said = || std::fs::read_to_string(&stderr).unwrap();
    place.until("it says that it stops", || {
        let said = said();
        said.contains("for 1 running step") && said.contains("Ctrl-C now stops at once")
    });
    // A person needs this long to see it.
    std::thread::sleep(Duration::from_millis(500));
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{}", said());
    assert!(said().contains("stopping at once"), "{}", said());
    let shown = place.json(&["show", slow.trim(), "--json"]);
    assert_eq!(shown["status"], "in_progress", "{shown}");

    // On a terminal the daemon's own lines are not shown.
    std::fs::remove_file(place.path().join("begun")).unwrap();
    let size = (24, 100);
    let child = place.on_terminal("run Beside 1", size, &[]);
    let mut told = false;
    let code = watched(child, size, 512, |screen| {
        let words = "stopping: waiting for running steps of other runs; Ctrl-C stops at once";
        if screen.lines().iter().any(|line| line.contains(words)) {
            told = true;
            place.go();
        }
    });
    assert!(told && code == Some(0), "{code:?}");
}

#[test]
fn a_person_who_waits_for_nobody_is_told_so() {
    let place = Place::new(&[("Slow", SLOW), ("Halts", HALTS)]);
    place.go();
    let size = (24, 80);
    let seen = |args: &str| {
        let child = place.on_terminal(args, size, &[]);
        let mut last = Vec::new();
        let code = watched(child, size, 512, |screen| last = screen.lines());
        (code, last.join("\n"))
    };
    let (code, shown) = seen("trigger Slow 7");
    assert_eq!(code, Some(0), "{shown}");
    let note = "note: no `ductworkd` works on Slow now: start `ductworkd`, or";
    assert!(shown.contains(note), "{shown}");
    let id = place.json(&["runs", "--json"])[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    // Whether there is a terminal or not.
    for args in [&["trigger", "Slow", "8", "--wait"][..], &["watch", &id]] {
        let mut command = place.prepared(env!("CARGO_BIN_EXE_ductworkd"));
        let command = command
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
        let mut note = || {
            let mut said = String::new();
            while !said.contains("remedy: ") {
                let mut line = String::new();
                assert!(
                    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap() > 0,
                    "{said}"
                );
                said.push_str(&line);
            }
            said
        };
        let said = note();
        assert!(
            said.contains(
                "note: First is due, but no worker of Slow is alive\nremedy: start `ductworkd`\n"
            ),
            "{said}"
        );
        // Another cause is told, too.
        assert!(
            place
                .run(&["pause", "Slow", "--reason", "lunch"])
                .status
                .success()
        );
        let said = note();
        assert!(said.contains("paused") && said.contains("lunch"), "{said}");
        assert!(place.run(&["unpause", "Slow"]).status.success());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let _daemon = place.daemon();
    let watched = place.run(&["watch", &id, "--json"]);
    let told: Value = serde_json::from_slice(&watched.stdout).unwrap();
    assert_eq!(
        (&told["run_id"], &told["status"], &told["output"]),
        (&id.as_str().into(), &"completed".into(), &7.into())
    );
    let (_, shown) = seen("trigger Slow 9");
    assert!(!shown.contains("note: "), "{shown}");
}

/// A step whose name fits on no line of a narrow terminal.
const LONG: &str = r#"
pipeline: Long
steps:
  TheFirstStepOfThisPipelineHasALongName: { command: [sh, -c, "sleep 0.3; cat"] }
  TheSecondStepOfThisPipelineHasALongName: { command: [sh, -c, "sleep 0.3; cat"] }
  Halt: { command: [sh, -c, "echo no luck >&2; exit 65"] }
flow: [{ start: TheFirstStepOfThisPipelineHasALongName }, { chain: TheSecondStepOfThisPipelineHasALongName }, { chain: Halt }]
"#;

#[test]
fn the_last_picture_is_whole_where_a_row_is_wider_than_the_terminal() {
    let place = Place::new(&[("Long", LONG)]);
    let size = (30, 30);
    let child = place.on_terminal("run Long 1", size, &[]);
    let mut last = Vec::new();
    let code = watched(child, size, 512, |screen| last = screen.lines());
    assert_eq!(code, Some(1), "{last:#?}");
    let at = last
        .iter()
        .position(|line| line.starts_with("Long "))
        .unwrap();
    assert_eq!(
        last[at + 1..at + 6],
        [
            " ✓ TheFirstStepOfThisPipelineH",
            "asALongName",
            " ✓ TheSecondStepOfThisPipeline",
            "HasALongName",
            " ✗ Halt"
        ],
        "{last:#?}"
    );
}

#[test]
fn a_terminal_that_can_do_little_is_given_little() {
    let place = Place::new(&[("Slow", SLOW), ("Flaky", &FLAKY.replace("300", "9"))]);
    place.go();
    let run = |args: &str, size: (usize, usize), variables: &[(&str, &str)]| {
        let child = place.on_terminal(args, size, variables);
        let (mut all, mut last) = (String::new(), Vec::new());
        let code = watched(child, size, 64, |screen| {
            last = screen.lines();
            all.push_str(&last.join("\n"));
        });
        assert_eq!(code, Some(0), "{last:#?}");
        (all, last)
    };
    // The cursor never moves up.
    let mut child = place.on_terminal("run Flaky", (24, 80), &[("TERM", "dumb")]);
    let mut plain = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut plain)
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert!(
        plain.contains("completed: 11 steps in ") && !plain.contains('\x1b'),
        "{plain:?}"
    );
    let (all, _) = run("run Flaky", (24, 80), &[("LC_ALL", "C")]);
    assert!(all.is_ascii() && all.contains(" + Numbers"), "{all}");
    let (all, last) = run("run Flaky", (24, 40), &[]);
    assert!(
        all.contains("9/9") && last.iter().all(|line| line.chars().count() <= 40),
        "{last:#?}"
    );
}

#[test]
fn a_person_who_has_seen_enough_leaves_the_run_alone() {
    use std::io::Write;
    let place = Place::new(&[("Slow", SLOW)]);
    let _daemon = place.daemon();
    let id = text(&place.run(&["trigger", "Slow", "7"]).stdout)
        .trim()
        .to_owned();
    place.until("the step begins", || place.path().join("begun").exists());
    let size = (24, 80);
    for (args, part, code) in [
        (format!("watch {}", &id[28..]), "running  1 step", 130),
        ("runs --watch".to_owned(), "Ctrl-C ends the watching", 0),
    ] {
        let mut child = place.on_terminal(&args, size, &[]);
        let mut keys = child.stdin.take().unwrap();
        let (mut last, mut typed) = (Vec::new(), false);
        let ended = watched(child, size, 512, |screen| {
            last = screen.lines();
            // Ctrl-C, once the text appears.
            if !typed && last.iter().any(|line| line.contains(part)) {
                typed = true;
                keys.write_all(b"\x03").unwrap();
            }
        });
        let shown = last.join("\n");
        assert_eq!(ended, Some(code), "{args}: {shown}");
        assert!(shown.contains(&id[28..]), "{args}: {shown}");
    }
    assert_eq!(place.json(&["runs", "--json"])[0]["status"], "in_progress");
    place.go();
    let watched = place.run(&["watch", &id]);
    assert_eq!(
        (watched.status.code(), text(&watched.stdout).as_str()),
        (Some(0), "7\n"),
        "{watched:?}"
    );
}

/// The list is up to date again once the database is back, and Ctrl-C ends it during the outage.
#[test]
fn a_list_that_is_watched_waits_an_outage_of_its_database_out() {
    use std::io::Write;
    let cluster = cluster::Cluster::start();
    let place = Place::new(&[("Slow", SLOW)]);
    let file = place.path().join("ductwork.yml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, config.replace("sqlite://ductwork.db", &cluster.url)).unwrap();
    let trigger = || text(&place.run(&["trigger", "Slow", "7"]).stdout);
    let first = trigger().trim()[28..].to_owned();
    let size = (24, 80);
    let mut child = place.on_terminal("runs --watch", size, &[]);
    let mut keys = child.stdin.take().unwrap();
    let (mut last, mut outages, mut next) = (Vec::new(), 0, None::<String>);
    let ended = watched(child, size, 512, |screen| {
        // In the middle of a picture, the list may be missing.
        if !screen.whole {
            return;
        }
        last = screen.lines();
        let with = |part: &str| last.iter().filter(|line| line.contains(part)).count();
        let away = with("note: the database is away");
        assert!(away <= outages, "it is told once: {last:#?}");
        match (outages, &next) {
            (0, _) if with(&first) == 1 => {
                cluster.down();
                outages = 1;
            }
            (1, None) if away == 1 => {
                cluster.up();
                next = Some(trigger().trim()[28..].to_owned());
            }
            (1, Some(next)) if with(next) == 1 => {
                assert_eq!((with("note: the database is back"), with(&first)), (1, 1));
                cluster.down();
                outages = 2;
            }
            (2, _) if away == 2 => {
                keys.write_all(b"\x03").unwrap();
                outages = 3;
            }
            _ => {}
        }
    });
    let shown = last.join("\n");
    assert_eq!((ended, outages), (Some(0), 3), "{shown}");
    cluster.up();
}

#[test]
fn top_shows_queues_rates_and_processes_as_they_change_until_it_is_interrupted() {
    let place = Place::new(&[("Slow", SLOW), ("Halts", HALTS)]);
    let _daemon = place.daemon();
    place.until("the daemon is there", || {
        place.run(&["health"]).status.success()
    });
    let run = text(&place.run(&["trigger", "Slow", "1"]).stdout);
    place.run(&["trigger", "Halts", "[2]"]);
    let mut child = place.on_terminal("top --every 1s", (24, 150), &[]);
    let mut keys = child.stdin.take();
    let (mut held, mut halted, mut ended) = (false, false, false);
    let mut last = Vec::new();
    let code = watched(child, (24, 150), 4_096, |screen| {
        let lines = screen.lines();
        // After the name come DUE and LATER; nothing is due for long.
        held |= row(&lines, "Slow").get(3) == Some(&"1");
        // The column before that of the runs that ask.
        halted |= row(&lines, "Halts").iter().rev().nth(1) == Some(&"1");
        if held && !place.path().join("go").exists() {
            place.go();
        }
        ended |= row(&lines, "Slow").len() > 6 && !lines.join("").contains('…');
        if held
            && halted
            && ended
            && let Some(mut keys) = keys.take()
        {
            keys.write_all(b"\x03").unwrap();
        }
        last = lines;
    });
    let shown = last.join("\n");
    assert_eq!(code, Some(130), "{shown}");
    assert!(held && halted && ended, "{shown}");
    for part in [
        "processes  ",
        "supervisor 1 up",
        "worker 2 up",
        "leases expired 0",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(
        place.json(&["show", run.trim(), "--json"])["status"],
        "completed"
    );
}

/// The words of the line that begins with this word.
fn row<'a>(lines: &'a [String], begins: &str) -> Vec<&'a str> {
    let found = lines.iter().find(|line| line.starts_with(begins));
    found.map_or(Vec::new(), |line| line.split_whitespace().collect())
}

#[test]
fn top_on_a_terminal_that_shows_no_picture_says_why() {
    let place = Place::new(&[("Slow", SLOW)]);
    for (size, term, part) in [
        ((24, 80), "dumb", "and TERM is `dumb`"),
        (
            (24, 15),
            "xterm",
            "and this one has 15 columns: it needs 20",
        ),
    ] {
        let mut child = place.on_terminal("top", size, &[("TERM", term)]);
        let mut told = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut told)
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(2), "{told}");
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn top_away_from_a_terminal_says_which_verb_prints_the_numbers() {
    let place = Place::new(&[("Slow", SLOW)]);
    for args in [&["top"][..], &["top", "--json"], &["top", "--every", "1ms"]] {
        let output = place.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let told = text(&output.stderr);
        assert!(
            told.contains("ductworkd metrics") || told.contains("`--every` takes 1s to 1h"),
            "{told}"
        );
    }
}
