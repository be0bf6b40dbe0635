//! Real programs that behave badly in every way. Each test ends with the check that nothing of it is
//! left: no process, no zombie, no file.

mod ends;
mod held_up;
mod starts;
mod values;

use std::cell::Cell;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::Pid;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::*;
use crate::model::{ExecutionId, ProcessId, RunId, StepId, TraceParent};

/// The longest that a test waits for something that should be a matter of milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn assignment(input: &str) -> Assignment {
    Assignment {
        process: ProcessId::new(),
        run_id: RunId::new(),
        pipeline: "Tests".into(),
        step: "Step".into(),
        step_id: StepId::following(StepId::new(), "Step", 0),
        execution_id: ExecutionId::new(),
        attempt: 3,
        input: Arc::new(RawValue::from_string(input.into()).unwrap()),
        timeout: None,
        span: TraceParent {
            trace: 7,
            span: 8,
            flags: 1,
        },
        trace_state: None,
        baggage: None,
    }
}

/// A directory, a runner, and one execution to come.
struct Stage {
    directory: tempfile::TempDir,
    limits: Limits,
    assignment: Assignment,
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    stop: watch::Sender<Option<StopCause>>,
    /// The stop that the test is to set when the program has done something to the file `mark`.
    stop_at_mark: Option<StopCause>,
    stop_after_end: bool,
}

impl Stage {
    fn new(input: &str) -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            limits: Limits::default(),
            assignment: assignment(input),
            env: BTreeMap::new(),
            cwd: None,
            stop: watch::channel(None).0,
            stop_at_mark: None,
            stop_after_end: false,
        }
    }

    fn timeout(mut self, limit: Duration) -> Self {
        self.assignment.timeout = Some(limit);
        self
    }

    fn grace(mut self, grace: Duration) -> Self {
        self.limits.kill_grace = grace;
        self
    }

    fn max_payload(mut self, bytes: usize) -> Self {
        self.limits.max_payload = bytes;
        self
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    fn stopped_at_mark(mut self, cause: StopCause) -> Self {
        self.stop_at_mark = Some(cause);
        self
    }

    /// The runtime stands still from the mark to the step's end, and notices the stop first.
    fn stopped_after_its_end(mut self, cause: StopCause) -> Self {
        self.stop_after_end = true;
        self.stopped_at_mark(cause)
    }

    fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    async fn sh(&self, script: &str) -> Outcome {
        self.run(&["/bin/sh", "-c", script]).await
    }

    async fn python(&self, script: &str) -> Outcome {
        self.run(&["python3", "-c", script]).await
    }

    async fn run(&self, argv: &[&str]) -> Outcome {
        self.performed(argv).await.outcome
    }

    async fn performed(&self, argv: &[&str]) -> Performed {
        let runner = CommandRunner::new(
            self.directory.path().into(),
            None,
            &["HIDDEN".into()],
            self.limits.clone(),
        );
        let argv: Vec<String> = argv.iter().map(|text| (*text).into()).collect();
        let started = Cell::new(None);
        let stop = self.stop.subscribe();
        let running = runner.run(
            &self.assignment,
            &argv,
            &self.env,
            self.cwd.as_deref(),
            stop,
            |pid| started.set(Some(pid)),
        );
        let outcome = tokio::select! {
            biased;
            () = self.stop_when_marked(&started) => unreachable!("only the step ends"),
            outcome = timeout(PATIENCE, running) => outcome.expect("the step wedged the runner"),
        };
        if let Some(pid) = started.get() {
            assert_eq!(
                waitpid(Pid::from_raw(pid as i32), None),
                Err(Errno::ECHILD),
                "a zombie"
            );
        }
        self.assert_nothing_is_left();
        outcome
    }

    /// RACE: the program makes its mark before the runner has been told that it has started, and a start is given up
    /// at a stop. So we wait for both.
    async fn stop_when_marked(&self, started: &Cell<Option<u32>>) {
        if let Some(cause) = self.stop_at_mark {
            let pid = loop {
                match started.get() {
                    Some(pid) if self.path("mark").exists() => break pid,
                    _ => sleep(Duration::from_millis(5)).await,
                }
            };
            if self.stop_after_end {
                // A process that ends has lost its environment before its end can be waited for.
                wait_until("the step has ended", || !is_alive(pid as i32));
            }
            self.stop.send_replace(Some(cause));
        }
        std::future::pending().await
    }

    /// Every process of the execution carries its run's id in its environment.
    fn processes(&self) -> Vec<i32> {
        let mark = format!("DUCTWORK_RUN_ID={}", self.assignment.run_id);
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid: &i32| {
                std::fs::read(format!("/proc/{pid}/environ"))
                    .is_ok_and(|all| all.split(|byte| *byte == 0).any(|v| v == mark.as_bytes()))
            })
            .collect()
    }

    fn assert_nothing_is_left(&self) {
        wait_until("the step's processes are gone", || {
            self.processes().is_empty()
        });
    }
}

/// Keeps a file from being opened, and so from being executed, as a file system does that does not answer; until
/// it is dropped.
pub struct Lease(std::process::Child);

impl Lease {
    pub fn on(file: &Path) -> Self {
        const HOLDER: &str = "
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
sys.stdin.read()
";
        let mut holder = std::process::Command::new("python3")
            .args(["-c", HOLDER])
            .arg(file)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 5];
        let mut stdout = holder.stdout.take().unwrap();
        let read = io::Read::read_exact(&mut stdout, &mut said);
        let lease = Self(holder);
        assert!(read.is_ok() && said == *b"held\n");
        lease
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().starts_with(" Z"))
}

#[track_caller]
fn value(outcome: Outcome) -> String {
    match outcome {
        Outcome::Success(value) => value.get().to_owned(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn error(outcome: Outcome) -> StepError {
    match outcome {
        Outcome::Error(error) => error,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn timed_out(outcome: Outcome) -> (String, Option<String>) {
    match outcome {
        Outcome::TimedOut { message, backtrace } => (message, backtrace),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn crashed(outcome: Outcome) -> String {
    match outcome {
        Outcome::Crashed { message } => message,
        other => panic!("{other:?}"),
    }
}

/// This very test as a process of its own, for tests that would disturb the others; `None` in that process.
fn in_a_process_of_its_own(test: &str, directory: &Path) -> Option<std::process::Command> {
    alone(&format!("step::command::tests::{test}"), directory)
}

/// The same, for a test with this path.
pub fn alone(test: &str, directory: &Path) -> Option<std::process::Command> {
    const INNER: &str = "DUCTWORK_TEST_INNER";
    if std::env::var_os(INNER).is_some() {
        return None;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(INNER, "1").env("TMPDIR", directory);
    Some(command)
}
