//! Each test's own deployment: a directory, a database, pipelines, and the daemons that run there.
//! None of its processes survives the test, even if that fails.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ductwork::definition::{Definition, yaml};
use ductwork::model::{RunId, RunStatus};
use ductwork::store::process::{self, ProcessRow};
use ductwork::store::statement::Statement;
use ductwork::store::trigger::{self, NewRun};
use ductwork::store::{Conn, Dialect, audit, query};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::Db;
use crate::wires;

/// Marks every process that descends from one start, whatever its parent is by now. Steps inherit
/// it, and so do the processes that they leave behind.
const TAG: &str = "TEST_FIXTURE";

/// The first pause between two looks at a condition.
const LOOK: Duration = Duration::from_millis(10);

/// The longest pause between two looks at a condition that comes later than expected.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The pause between two looks that each read the environment of every process.
pub const SCAN: Duration = Duration::from_millis(50);

/// The pause between two looks that each start a program or count many rows. Such looks without a pause would take
/// the processors from the processes that the test waits for.
pub const SELDOM: Duration = Duration::from_millis(250);

/// Longer than anything takes on a loaded machine, for waits whose length does not matter.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The configuration of a fixture.
pub struct Settings {
    pub reaper_timeout: &'static str,
    pub shutdown_timeout: &'static str,
    pub count: u32,
    pub max_retry: u32,
    pub max_crash: u32,
    /// The lowest level of the log.
    pub level: &'static str,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            reaper_timeout: "30s",
            shutdown_timeout: "20s",
            count: 4,
            max_retry: 2,
            // High enough that no number of kills waits for a backoff.
            max_crash: 1000,
            level: "debug",
        }
    }
}

/// A directory with a configuration and pipelines.
pub struct DaemonFixture {
    dir: tempfile::TempDir,
    url: String,
    settings: Settings,
    definitions: BTreeMap<String, Definition>,
    /// Additional variables of the daemons' environment.
    pub variables: BTreeMap<&'static str, String>,
    /// The test's own connection.
    pub conn: Conn,
}

impl DaemonFixture {
    /// Makes one on a fresh database, with these pipelines.
    pub async fn new(db: &Db, settings: Settings, pipelines: &[&str]) -> Self {
        Self::at(&db.url, db.conn().await, settings, pipelines).await
    }

    /// The same, on a database that the test has made.
    pub async fn at(url: &str, mut conn: Conn, settings: Settings, pipelines: &[&str]) -> Self {
        wires::install(&mut conn).await;
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("pipelines")).expect("a directory");
        let mut fixture = Self {
            dir,
            url: url.to_owned(),
            settings,
            definitions: BTreeMap::new(),
            variables: BTreeMap::new(),
            conn,
        };
        for text in pipelines {
            fixture.define(text);
        }
        fixture.configure("");
        fixture
    }

    /// Writes the configuration, with these additional lines.
    pub fn configure(&self, more: &str) {
        let Settings {
            reaper_timeout,
            shutdown_timeout,
            count,
            max_retry,
            max_crash,
            level,
        } = &self.settings;
        let url = &self.url;
        let text = format!(
            r#"default:
  database: {{ url: "{url}" }}
  logger: {{ level: {level}, format: json }}
  supervisor: {{ polling_timeout: 250ms, reaper_timeout: {reaper_timeout}, shutdown_timeout: {shutdown_timeout} }}
  job_worker:
    count: {count}
    max_retry: {max_retry}
    max_crash: {max_crash}
    backoff: {{ initial: 50ms }}
    polling_timeout: 500ms
    shutdown_timeout: {shutdown_timeout}
  pipeline_advancer: {{ max_crash: 1000, polling_timeout: 500ms, shutdown_timeout: {shutdown_timeout} }}
{more}"#
        );
        std::fs::write(self.path("ductwork.yml"), text).expect("the configuration");
    }

    /// Writes a pipeline's file.
    pub fn define(&mut self, text: &str) {
        let file = Path::new("pipeline.yml");
        let definition = yaml::parse(text, file).unwrap_or_else(|problems| panic!("{problems}"));
        let name = definition.pipeline.clone();
        std::fs::write(self.path(&format!("pipelines/{name}.yml")), text).expect("a pipeline");
        self.definitions.insert(name, definition);
    }

    /// The path of a file of the fixture.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The lines that steps have appended to a file of the fixture.
    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Starts a daemon here.
    pub fn start(&self) -> Daemon {
        self.start_as(&[], &["start"])
    }

    /// Starts a daemon by way of another program.
    pub fn start_as(&self, wrapper: &[&str], verb: &[&str]) -> Daemon {
        self.start_into(wrapper, verb, None)
    }

    /// The same, with its log redirected somewhere other than a file.
    pub fn start_into(&self, wrapper: &[&str], verb: &[&str], stderr: Option<Stdio>) -> Daemon {
        let tag = uuid::Uuid::now_v7().simple().to_string();
        let log = self.path(&format!("{tag}.log"));
        let file = File::create(&log).expect("a log");
        let mut command = self.command(wrapper, verb);
        command.env(TAG, &tag);
        command.envs(&self.variables);
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr.unwrap_or_else(|| file.into()))
            .spawn()
            .expect("the daemon starts");
        Daemon {
            child,
            tag,
            log,
            read: Mutex::default(),
        }
    }

    /// Runs a verb to its end, through another program if necessary.
    pub fn run(&self, wrapper: &[&str], verb: &[&str]) -> Output {
        let mut command = self.command(wrapper, verb);
        command.stdin(Stdio::null()).output().expect("it runs")
    }

    /// The same, for a command that somebody keeps waiting; its output goes to this file.
    pub fn begin(&self, verb: &[&str], output: &str) -> std::process::Child {
        let output = std::fs::File::create(self.path(output)).expect("a file");
        let mut command = self.command(&[], verb);
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a file"))
            .stderr(output);
        command.spawn().expect("it runs")
    }

    /// The program in this fixture's directory, where it finds its configuration, and without any other
    /// configuration.
    fn command(&self, wrapper: &[&str], verb: &[&str]) -> Command {
        let own = [env!("CARGO_BIN_EXE_ductworkd")];
        let argv: Vec<&str> = wrapper.iter().chain(&own).chain(verb).copied().collect();
        let mut command = Command::new(argv[0]);
        command.args(&argv[1..]).current_dir(&self.dir);
        for (name, _) in std::env::vars() {
            let configures = ["DUCTWORK_", "PG"]
                .iter()
                .any(|prefix| name.starts_with(prefix));
            if configures || name == "DATABASE_URL" || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        command
    }

    /// Starts `n` runs of a pipeline.
    pub async fn trigger(&mut self, pipeline: &str, input: &str, n: usize) -> Vec<RunId> {
        self.trigger_in(Duration::ZERO, pipeline, input, n).await
    }

    /// Starts `n` runs of a pipeline, which are due after this delay.
    pub async fn trigger_in(
        &mut self,
        delay: Duration,
        pipeline: &str,
        input: &str,
        n: usize,
    ) -> Vec<RunId> {
        let definition = &self.definitions[pipeline];
        let runs = vec![NewRun { key: None, input }; n];
        let triggered = trigger::trigger(&mut self.conn, definition, &runs, delay).await;
        let triggered = triggered.expect("a trigger");
        triggered.iter().map(|triggered| triggered.run_id).collect()
    }

    /// True when all runs have ended.
    pub async fn all_ended(&mut self) -> bool {
        static OPEN: Statement = Statement::new(
            "TEST_OPEN",
            "SELECT id FROM ductwork_runs WHERE status = 'in_progress'
             UNION ALL SELECT id FROM ductwork_executions WHERE completed_at IS NULL",
        );
        let open = self.conn.fetch(&OPEN, &[]).await;
        open.expect("the runs").is_empty()
    }

    /// Waits until all runs have ended; returns their statuses.
    pub async fn ended(&mut self, within: Duration) -> Vec<RunStatus> {
        static STATUSES: Statement =
            Statement::new("TEST_STATUSES", "SELECT status FROM ductwork_runs");
        eventually(within, "all runs have ended", async || {
            self.all_ended().await.then_some(())
        })
        .await;
        let rows = self.conn.fetch(&STATUSES, &[]).await.expect("the runs");
        let status = |row: &ductwork::store::Row| row.word("status").expect("a status");
        rows.iter().map(status).collect()
    }

    /// Waits until all runs have completed.
    pub async fn completed(&mut self, within: Duration) {
        let ended = self.ended(within).await;
        let others = ended
            .iter()
            .filter(|status| **status != RunStatus::Completed);
        assert_eq!(others.count(), 0, "{ended:?}");
    }

    /// Waits until this run has ended.
    pub async fn run_ended(&mut self, run: RunId) {
        let conn = &mut self.conn;
        eventually(PATIENCE, "the run has ended", async || {
            let state = query::run_state(conn, run).await.expect("the run");
            state?.status.is_terminal().then_some(())
        })
        .await;
    }

    /// A run's output.
    pub async fn output(&mut self, run: RunId) -> Value {
        let state = query::run_state(&mut self.conn, run).await;
        let state = state.expect("the run").expect("the run");
        let output = state.output.expect("an output");
        serde_json::from_str(output.get()).expect("outputs are JSON")
    }

    /// Checks every invariant, without a grace: for use when nothing runs. Also checks that no
    /// forbidden change happened on the way.
    pub async fn audited(&mut self) {
        let broken = audit::audit(&mut self.conn, Duration::ZERO).await;
        let broken = broken.expect("the audit can be asked");
        assert!(broken.is_empty(), "{broken:#?}");
        let tripped = wires::tripped(&mut self.conn).await;
        assert!(tripped.is_empty(), "{tripped:#?}");
    }

    /// Defines something in the database. On MySQL it is one statement, which a script would split at its
    /// semicolons.
    pub async fn define_in_database(&mut self, text: &'static str) {
        let done = match self.conn.dialect() {
            Dialect::Mysql => {
                let statement = Statement::new("TEST_DEFINE", text);
                self.conn.execute(&statement, &[]).await.map(drop)
            }
            _ => self.conn.script("TEST_DEFINE", text).await,
        };
        done.unwrap_or_else(|error| panic!("{text}: {error}"));
    }

    /// All attempts at all steps, in the order in which they were made.
    pub async fn executions(&mut self) -> Vec<Execution> {
        static EXECUTIONS: Statement = Statement::new(
            "TEST_EXECUTIONS",
            "SELECT e.id, e.step_id, s.step, s.status, e.attempt, e.retry_count, e.crash_count,
                    e.process_id, e.result, e.error_class, e.error_message
               FROM ductwork_executions e JOIN ductwork_steps s ON s.id = e.step_id
              ORDER BY e.step_id, e.attempt",
        );
        let rows = self.conn.fetch(&EXECUTIONS, &[]).await;
        let rows = rows.expect("the executions");
        let execution = |row: &ductwork::store::Row| {
            Ok::<_, ductwork::store::Error>(Execution {
                id: row.get("id")?,
                step_id: row.get("step_id")?,
                step: row.get("step")?,
                attempt: row.count("attempt")?,
                retry_count: row.count("retry_count")?,
                crash_count: row.count("crash_count")?,
                process_id: row.get("process_id")?,
                result: row.get("result")?,
                error_class: row.get("error_class")?,
                error_message: row.get("error_message")?,
            })
        };
        let executions: Result<_, _> = rows.iter().map(execution).collect();
        executions.expect("executions")
    }

    /// Asserts that each step has succeeded exactly once, and that no retry was spent.
    pub async fn succeeded_once_each(&mut self) -> Vec<Execution> {
        let executions = self.executions().await;
        let mut successes: BTreeMap<uuid::Uuid, u32> = BTreeMap::new();
        for execution in &executions {
            assert_eq!(execution.retry_count, 0, "{execution:?}");
            let success = execution.result.as_deref() == Some("success");
            *successes.entry(execution.step_id).or_default() += u32::from(success);
        }
        for (step, successes) in successes {
            assert_eq!(successes, 1, "step {step}");
        }
        executions
    }

    /// The process rows.
    pub async fn processes(&mut self) -> Vec<ProcessRow> {
        let rows = process::processes(&mut self.conn).await;
        rows.expect("the processes")
    }

    /// Waits until steps have written this many lines to a file; returns all its lines.
    pub async fn said(&self, name: &str, lines: usize) -> Vec<String> {
        let what = format!("{lines} lines in {name}");
        eventually(PATIENCE, &what, async || {
            let said = self.lines(name);
            (said.len() >= lines).then_some(said)
        })
        .await
    }

    /// The same, where the lines are pids.
    pub async fn pids(&self, name: &str, lines: usize) -> Vec<i32> {
        let said = self.said(name, lines).await;
        said.iter().map(|pid| pid.parse().expect("a pid")).collect()
    }
}

/// An attempt at a step.
#[derive(Debug)]
pub struct Execution {
    pub id: uuid::Uuid,
    pub step_id: uuid::Uuid,
    pub step: String,
    pub attempt: u32,
    pub retry_count: u32,
    pub crash_count: u32,
    pub process_id: Option<uuid::Uuid>,
    pub result: Option<String>,
    pub error_class: Option<String>,
    pub error_message: Option<String>,
}

impl Execution {
    /// Its result; empty if there is none yet.
    pub fn result(&self) -> &str {
        self.result.as_deref().unwrap_or_default()
    }
}

/// A daemon that was started, and everything that descends from it.
pub struct Daemon {
    child: Child,
    tag: String,
    /// The file of its log, which the test must write if it redirected the log.
    pub log: PathBuf,
    /// The part of the log that has been read, so that a look at a long log reads only what is new.
    read: Mutex<ReadLog>,
}

/// The complete lines of a log up to some byte, and their events: one JSON object per line, without the stderr of
/// hooks.
#[derive(Default)]
struct ReadLog {
    bytes: u64,
    events: Vec<Value>,
}

impl ReadLog {
    /// Reads the complete lines that were written since the last time.
    fn read_on(&mut self, log: &Path) {
        let mut file = File::open(log).expect("the log");
        file.seek(SeekFrom::Start(self.bytes)).expect("the log");
        let mut text = Vec::new();
        file.read_to_end(&mut text).expect("the log");
        let text = complete_lines(text);
        let lines = text.lines().filter(|line| line.starts_with('{'));
        let event = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("logged: {line}"));
        self.events.extend(lines.map(event));
        self.bytes += text.len() as u64;
    }
}

/// The text up to its last line feed, in which nobody has panicked.
fn complete_lines(mut text: Vec<u8>) -> String {
    let end = text.iter().rposition(|byte| *byte == b'\n');
    text.truncate(end.map_or(0, |end| end + 1));
    let text = String::from_utf8(text).expect("the log is UTF-8");
    assert!(!text.contains("panicked at"), "{text}");
    text
}

impl Daemon {
    /// Its exit status, if it has ended.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// The pid of the started process: the supervisor, unless there is a wrapper.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Sends the supervisor a signal.
    pub fn send(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Every living process that descends from this start.
    pub fn processes(&self) -> Vec<Process> {
        let mark = format!("{TAG}={}", self.tag).into_bytes();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let Ok(environment) = std::fs::read(entry.path().join("environ")) else {
                continue;
            };
            if environment.split(|byte| *byte == 0).any(|it| it == mark) {
                found.extend(Process::of(pid));
            }
        }
        // Between fork and exec, a process looks like its parent. Acting on it would mean acting on
        // its parent, which waits for it.
        let like = |process: &Process| {
            let parent = found.iter().find(|other| other.pid == process.parent);
            parent.is_some_and(|parent| parent.kind == process.kind)
        };
        let unborn: Vec<bool> = found.iter().map(like).collect();
        for (process, unborn) in found.iter_mut().zip(unborn) {
            let daemon = ["supervisor", "advancer", "worker"];
            if unborn && daemon.iter().any(|kind| process.kind.starts_with(kind)) {
                process.kind = format!("unborn, of {}", process.kind);
            }
        }
        found
    }

    /// The children of this kind: `advancer`, or `worker` and its pipeline.
    pub fn children(&self, kind: &str) -> Vec<i32> {
        let processes = self.processes().into_iter();
        processes
            .filter(|process| process.kind == kind)
            .map(|process| process.pid)
            .collect()
    }

    /// Waits for a child of this kind that is not `other`.
    pub async fn child(&self, kind: &str, other: Option<i32>) -> i32 {
        let what = format!("a new {kind}");
        eventually_every(SCAN, PATIENCE, &what, async || {
            let mut children = self.children(kind).into_iter();
            children.rfind(|pid| Some(*pid) != other)
        })
        .await
    }

    /// The complete lines written to stderr.
    pub fn text(&self) -> String {
        complete_lines(std::fs::read(&self.log).expect("the log"))
    }

    /// Its log so far, as this gives it.
    fn of_log<T>(&self, give: impl FnOnce(&[Value]) -> T) -> T {
        // A test that has failed in here looks no further.
        let mut read = self.read.lock().expect("the log was read");
        read.read_on(&self.log);
        give(&read.events)
    }

    /// The log: one JSON object per line, without the stderr of hooks.
    pub fn log(&self) -> Vec<Value> {
        self.of_log(<[Value]>::to_vec)
    }

    /// The logged events with this text in their message.
    pub fn logged(&self, part: &str) -> Vec<Value> {
        let says = |event: &&Value| event["msg"].as_str().is_some_and(|msg| msg.contains(part));
        self.of_log(|log| log.iter().filter(says).cloned().collect())
    }

    /// Waits for an event with this text in its message.
    pub async fn says(&self, part: &str) -> Vec<Value> {
        self.says_times(part, 1).await
    }

    /// Waits for this many of them.
    pub async fn says_times(&self, part: &str, times: usize) -> Vec<Value> {
        let what = format!("`{part}` in the log, {times} times");
        eventually(PATIENCE, &what, async || {
            let logged = self.logged(part);
            (logged.len() >= times).then_some(logged)
        })
        .await
    }

    /// Waits until every child has registered.
    pub async fn ready(&self) {
        self.says("ready").await;
    }

    /// Waits for the end of the daemon; returns its status and how long that took from now.
    pub async fn ended(&mut self, within: Duration) -> (ExitStatus, Duration) {
        let began = Instant::now();
        let status = eventually(within, "the daemon has ended", async || self.has_ended()).await;
        (status, began.elapsed())
    }

    /// Waits until none of its processes is left.
    pub async fn gone(&self, within: Duration) {
        let began = Instant::now();
        let mut left = self.processes();
        while !left.is_empty() {
            assert!(began.elapsed() < within, "left behind: {left:#?}");
            tokio::time::sleep(SCAN).await;
            left = self.processes();
        }
    }

    /// Ends it with TERM: gracefully, and with no process left.
    pub async fn stop(&mut self) {
        self.send(Signal::SIGTERM);
        let (status, _) = self.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{status}");
        let left = self.processes();
        assert!(left.is_empty(), "left behind: {left:#?}");
        // Looks for panics.
        self.text();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let important = log.lines().filter(|line| {
                line.starts_with('{') && !line.contains("\"debug\"") && !line.contains("run ended")
            });
            let important: Vec<&str> = important.collect();
            let from = important.len().saturating_sub(60);
            eprintln!("the end of the log:\n{}", important[from..].join("\n"));
        }
        // The supervisor first, so that it replaces no child; then the others, until none is left:
        // the next look finds a process that was forked between two looks.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let began = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() || began.elapsed() > Duration::from_secs(10) {
                return;
            }
            for process in left {
                let _gone = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// A process as the kernel shows it.
#[derive(Debug)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub state: char,
    /// `advancer`, `worker NAME`, `supervisor`, or the command line of a step.
    pub kind: String,
}

impl Process {
    /// None if there is no such process, or if it is a zombie.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may contain any characters; the fields after its closing parenthesis do not.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words: Vec<String> = line
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty())
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        let is_child = words.iter().any(|word| word == "child");
        let has = |name: &str| words.iter().any(|word| word == name);
        let kind = match words.as_slice() {
            [.., last] if is_child && ["advancer", "console"].contains(&last.as_str()) => {
                last.clone()
            }
            [.., role, pipeline] if is_child && role == "worker" => format!("worker {pipeline}"),
            [name, ..] if name.ends_with("ductworkd") && has("start") => "supervisor".to_owned(),
            words => words.join(" "),
        };
        (state != 'Z' && state != 'X').then_some(Self {
            pid,
            parent,
            state,
            kind,
        })
    }
}

/// A lock that keeps every process from claiming, but lets all of them read.
pub struct Lock;

impl Lock {
    /// Takes it, on the test's connection.
    pub async fn take(fixture: &mut DaemonFixture) -> Self {
        let lock = match fixture.conn.dialect() {
            Dialect::Sqlite => "BEGIN IMMEDIATE",
            Dialect::Postgres => "BEGIN; LOCK TABLE ductwork_availabilities IN SHARE MODE",
            Dialect::Mysql => "LOCK TABLES ductwork_availabilities READ",
        };
        fixture.conn.script("LOCK", lock).await.unwrap();
        Self
    }

    /// Releases it.
    pub async fn release(self, fixture: &mut DaemonFixture) {
        let unlock = match fixture.conn.dialect() {
            Dialect::Mysql => "UNLOCK TABLES",
            _ => "COMMIT",
        };
        fixture.conn.script("UNLOCK", unlock).await.unwrap();
    }
}

/// True while this process exists.
pub fn lives(pid: i32) -> bool {
    Process::of(pid).is_some()
}

/// Sends a signal to a process that must exist.
pub fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap_or_else(|error| panic!("{signal} to {pid}: {error}"));
}

/// Stops a process and waits until the kernel says that it has.
pub async fn freeze(pid: i32) {
    eventually(PATIENCE, "the process has stopped", async || {
        // In every look: somebody who stopped it earlier may let it go on now.
        send(pid, Signal::SIGSTOP);
        let process = Process::of(pid).expect("a process to stop");
        (process.state == 'T').then_some(())
    })
    .await;
}

/// Waits until a process is gone.
pub async fn gone(pid: i32, within: Duration) {
    eventually(within, &format!("{pid} is gone"), async || {
        (!lives(pid)).then_some(())
    })
    .await;
}

/// Waits until `look` finds something.
pub async fn eventually<T>(
    within: Duration,
    what: &str,
    look: impl AsyncFnMut() -> Option<T>,
) -> T {
    eventually_every(LOOK, within, what, look).await
}

/// The same, for a `look` that takes so much work that the pause between two is at least `pause`.
///
/// The pauses grow with the time that has passed, to a sixteenth of it: a wait ends at most that much too late, and a
/// long wait takes little of the processors from the processes that it waits for.
pub async fn eventually_every<T>(
    pause: Duration,
    within: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(
            began.elapsed() < within,
            "waited {within:?} in vain until: {what}"
        );
        let grown = (began.elapsed() / 16).min(LOOK_AGAIN);
        tokio::time::sleep(pause.max(grown)).await;
    }
}

/// The path of a program that a test needs; installs the program if it is missing.
pub fn program(name: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/program");
    let found = Command::new(script).arg(name).output();
    let found = found.expect("the script runs");
    let said = String::from_utf8_lossy(&found.stderr);
    assert!(found.status.success(), "{said}");
    let path = String::from_utf8(found.stdout).expect("a path");
    path.trim().to_owned()
}
