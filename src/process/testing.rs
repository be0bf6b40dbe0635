//! For tests about whole processes: runs a test's other half in a process of its own.
//!
//! A test calls [`part`] first. In the process that the test runner started it is `None`;
//! in one started by [`Half::start`] it says which part to play there, with signals, an
//! environment and children that no other test shares.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::model::{Intake, ProcessId, Role};
use crate::store::process::{Counters, ProcessRow};

use super::identity::Identity;
use super::roster::Pid;
use super::spawn::{self, Spawned};

const PART: &str = "DUCTWORK_TEST_PART";
const PLACE: &str = "DUCTWORK_TEST_PLACE";
const PATIENCE: Duration = Duration::from_secs(180);

/// The part to play, in the other half of a test.
pub fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// The directory that both halves share.
pub fn place() -> std::path::PathBuf {
    std::env::var_os(PLACE).expect("a half has a place").into()
}

/// Tells the first half something.
pub fn say(file: &str, text: &str) {
    let place = place();
    let draft = place.join(format!(".{file}.{}", std::process::id()));
    std::fs::write(&draft, text).unwrap();
    std::fs::rename(draft, place.join(file)).unwrap();
}

/// The other half of a test; killed and reaped when dropped.
pub struct Half {
    pub process: Spawned,
    reaped: bool,
}

impl Half {
    /// Starts `test` (its full name) again, to play `part`.
    pub fn start(test: &str, part: &str, place: &Path, more: &[(&str, &OsStr)]) -> Self {
        let mut environment: Vec<(OsString, Option<OsString>)> = vec![
            (PART.into(), Some(part.into())),
            (PLACE.into(), Some(place.into())),
        ];
        for (name, value) in more {
            environment.push((name.into(), Some(value.into())));
        }
        let process = spawn::spawn(&argv(test), &environment, None).unwrap();
        Self {
            process,
            reaped: false,
        }
    }

    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    pub fn send(&self, signal: Signal) {
        self.process.send(signal).unwrap();
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        let pid = self.pid();
        let (_, status) = eventually("the other half ends", || spawn::wait_for(pid).unwrap());
        self.reaped = true;
        status
    }

    /// Waits for its end, which must be a success.
    pub fn succeeded(&mut self) {
        let status = self.ended();
        assert!(status.success(), "the other half failed: {status}");
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        if !self.reaped {
            self.send(Signal::SIGKILL);
            self.ended();
        }
    }
}

/// The arguments that make this binary run one test.
pub fn argv(test: &str) -> Vec<OsString> {
    [
        "ductwork-test",
        test,
        "--exact",
        "--nocapture",
        "--test-threads=1",
    ]
    .iter()
    .map(OsString::from)
    .collect()
}

/// Waits until `ask` has an answer.
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits for a file that the other half writes.
pub fn said(place: &Path, file: &str) -> String {
    eventually(file, || std::fs::read_to_string(place.join(file)).ok())
}

/// True while such a process lives (a zombie does not).
pub fn lives(pid: Pid) -> bool {
    super::identity::stat(pid).is_some_and(|stat| stat.state != b'Z')
}

/// A child that is killed when the test ends, however it ends.
pub struct Killed(pub std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _dead = self.0.kill();
        let _status = self.0.wait();
    }
}

/// A worker's row, with a heartbeat that is this old.
pub fn row(identity: &Identity, silent: Duration) -> ProcessRow {
    const NOW: i64 = 1_000_000_000_000;
    ProcessRow {
        id: ProcessId::new(),
        supervisor: None,
        role: Role::Worker,
        pipeline: None,
        host: identity.host.clone(),
        boot_id: identity.boot_id.clone(),
        pid_namespace: identity.pid_namespace.clone(),
        pid: identity.pid as u32,
        pid_started_at: identity.started_ticks,
        version: String::new(),
        started_at: 0,
        last_heartbeat_at: NOW - silent.as_micros() as i64,
        beat_seq: 1,
        seen_at: NOW,
        age: Duration::ZERO,
        intake: Intake::Open,
        paused: false,
        trouble: None,
        condemned: None,
        postponed: false,
        counters: Counters::default(),
    }
}
