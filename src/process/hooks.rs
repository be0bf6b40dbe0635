//! Hooks: an operator's commands and a program's functions around start and stop.
//!
//! Owns: running them one after the other, with a bound, and logging their output. Never: decides
//! what a failure means; the caller does.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid as NixPid;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;
use tokio::sync::oneshot;

use crate::config::{Config, Hooks};
use crate::task;

use super::spawn;

/// How long a command may take by default.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The time between SIGTERM and SIGKILL for a command that took too long.
const KILL_GRACE: Duration = Duration::from_secs(2);
/// The time for the last output of a command that has ended. Processes that it left behind may hold its
/// output open for ever.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);
/// The longest line that is logged whole.
const LINE_MAX: usize = 4096;

/// Why a hook failed.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The list of arguments has nothing in it.
    #[error("hook `{hook}`: a command is empty")]
    Empty {
        /// Which hook.
        hook: String,
    },
    /// It could not be started.
    #[error("hook `{hook}`: `{command}` could not be started")]
    Start {
        /// Which hook.
        hook: String,
        /// Its program.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// It ran and failed.
    #[error("hook `{hook}`: `{command}` failed: {status}")]
    Failed {
        /// Which hook.
        hook: String,
        /// Its program.
        command: String,
        /// How.
        status: ExitStatus,
    },
    /// It took too long and was killed.
    #[error("hook `{hook}`: `{command}` took longer than {timeout:?} and was killed")]
    TimedOut {
        /// Which hook.
        hook: String,
        /// Its program.
        command: String,
        /// The bound.
        timeout: Duration,
    },
    /// A function of the program failed.
    #[error("hook `{hook}`: a function of the program failed")]
    Function {
        /// Which hook.
        hook: String,
        /// Its own error.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// A function of the program panicked, or took too long; its thread is left to itself.
    #[error("hook `{hook}`: a function of the program {how}")]
    Lost {
        /// Which hook.
        hook: String,
        /// The outcome.
        how: &'static str,
    },
}

/// When a hook runs: once per process, before it claims anything and after it has claimed its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A supervisor starts; a failure stops the start.
    SupervisorStart,
    /// A supervisor ends, after its children.
    SupervisorStop,
    /// An advancer starts.
    AdvancerStart,
    /// An advancer ends.
    AdvancerStop,
    /// A job worker starts.
    WorkerStart,
    /// A job worker ends.
    WorkerStop,
}

impl Moment {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SupervisorStart => "supervisor start",
            Self::SupervisorStop => "supervisor stop",
            Self::AdvancerStart => "advancer start",
            Self::AdvancerStop => "advancer stop",
            Self::WorkerStart => "worker start",
            Self::WorkerStop => "worker stop",
        }
    }

    fn commands(self, hooks: &Hooks) -> &[Vec<String>] {
        match self {
            Self::SupervisorStart => &hooks.supervisor.start,
            Self::SupervisorStop => &hooks.supervisor.stop,
            Self::AdvancerStart => &hooks.advancer.start,
            Self::AdvancerStop => &hooks.advancer.stop,
            Self::WorkerStart => &hooks.worker.start,
            Self::WorkerStop => &hooks.worker.stop,
        }
    }
}

/// The outcome of a hook's function.
pub type Ran = Result<(), Box<dyn std::error::Error + Send + Sync>>;

type Function = Arc<dyn Fn() -> Ran + Send + Sync>;

/// The functions that a program brings along as hooks.
#[derive(Clone, Default)]
pub struct Functions(Vec<(Moment, Function)>);

impl Functions {
    /// Adds a function.
    pub fn add(&mut self, moment: Moment, function: impl Fn() -> Ran + Send + Sync + 'static) {
        self.0.push((moment, Arc::new(function)));
    }

    fn at(&self, moment: Moment) -> Vec<Function> {
        let of = self.0.iter().filter(|(at, _)| *at == moment);
        of.map(|(_, function)| Arc::clone(function)).collect()
    }
}

/// The commands and functions of one hook.
#[derive(Clone)]
pub struct Hook {
    /// For messages: `supervisor start`.
    pub name: String,
    /// Each a program with its arguments; no shell.
    pub commands: Vec<Vec<String>>,
    /// The directory in which they run.
    pub directory: PathBuf,
    /// The longest that each may take.
    pub timeout: Duration,
    functions: Vec<Function>,
}

impl Hook {
    /// The hooks of this moment.
    pub fn of(moment: Moment, config: &Config, functions: &Functions) -> Self {
        Self {
            name: moment.name().to_owned(),
            commands: moment.commands(&config.hooks).to_vec(),
            directory: config.base_dir.clone(),
            timeout: TIMEOUT,
            functions: functions.at(moment),
        }
    }

    /// Runs the commands, then the functions, up to the first that fails. Dropping the future kills
    /// the command that runs; a function runs on.
    pub async fn run(&self) -> Result<(), HookError> {
        self.run_telling(|| {}).await
    }

    /// The same; calls `ended` after each command and function, because only these have a bound.
    pub async fn run_telling(&self, ended: impl Fn()) -> Result<(), HookError> {
        for argv in &self.commands {
            let ran = self.run_one(argv).await;
            ended();
            ran?;
        }
        for function in &self.functions {
            let ran = self.call(Arc::clone(function)).await;
            ended();
            ran?;
        }
        Ok(())
    }

    /// Runs on a thread of its own, so that a function that blocks delays nothing, not even the end
    /// of the process.
    async fn call(&self, function: Function) -> Result<(), HookError> {
        let hook = || self.name.clone();
        let (said, says) = oneshot::channel();
        let thread = std::thread::Builder::new().name("hook".to_owned());
        thread
            .spawn(move || said.send(function().map_err(Arc::from)))
            .map_err(|source| HookError::Function {
                hook: hook(),
                source: Arc::new(source),
            })?;
        let lost = |how| HookError::Lost { hook: hook(), how };
        match tokio::time::timeout(self.timeout, says).await {
            Ok(Ok(ran)) => ran.map_err(|source| HookError::Function {
                hook: hook(),
                source,
            }),
            // The panic itself is on standard error.
            Ok(Err(_)) => Err(lost("panicked")),
            Err(_elapsed) => Err(lost("took too long")),
        }
    }

    async fn run_one(&self, argv: &[String]) -> Result<(), HookError> {
        let hook = || self.name.clone();
        let (program, arguments) = argv
            .split_first()
            .ok_or_else(|| HookError::Empty { hook: hook() })?;
        let mut command = prepare(program, arguments, &self.directory);
        let (mut child, _spared) =
            spawn::spawn_spared(&mut command).map_err(|source| HookError::Start {
                hook: hook(),
                command: program.clone(),
                source,
            })?;
        // Dropped before the child, hence while the pid still means its group.
        let mut group = Group::of(&child);
        let logs = [
            child
                .stdout
                .take()
                .map(|out| task::anywhere(log(hook(), out))),
            child
                .stderr
                .take()
                .map(|out| task::anywhere(log(hook(), out))),
        ];
        let ended = tokio::time::timeout(self.timeout, child.wait()).await;
        if ended.is_err() {
            group.signal(Signal::SIGTERM);
            let _ended_or_not = tokio::time::timeout(KILL_GRACE, child.wait()).await;
            group.signal(Signal::SIGKILL);
        }
        let status = match ended {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(source)) => Err(HookError::Start {
                hook: hook(),
                command: program.clone(),
                source,
            }),
            Err(_elapsed) => {
                // It has been killed, and is reaped here or with the rest.
                let _reaped = tokio::time::timeout(KILL_GRACE, child.wait()).await;
                Err(HookError::TimedOut {
                    hook: hook(),
                    command: program.clone(),
                    timeout: self.timeout,
                })
            }
        };
        // Only what a successful command has left in the background may go on: after a refused start, the next one would
        // leave it once more.
        if !status.as_ref().is_ok_and(ExitStatus::success) {
            group.signal(Signal::SIGKILL);
        }
        // Its number is free as soon as the group is empty.
        group.forget();
        for log in logs.into_iter().flatten() {
            let stop = log.abort_handle();
            if tokio::time::timeout(OUTPUT_GRACE, log).await.is_err() {
                stop.abort();
            }
        }
        match status? {
            status if status.success() => Ok(()),
            status => Err(HookError::Failed {
                hook: hook(),
                command: program.clone(),
                status,
            }),
        }
    }
}

fn prepare(program: &str, arguments: &[String], directory: &Path) -> Command {
    let mut command = std::process::Command::new(program);
    spawn::unblocked(&mut command);
    let mut command = Command::from(command);
    command
        .args(arguments)
        .current_dir(directory)
        .env_remove("NOTIFY_SOCKET")
        .env_remove("WATCHDOG_PID")
        .env_remove("WATCHDOG_USEC")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command
}

/// The process group of a command, killed when dropped.
struct Group(Option<NixPid>);

impl Group {
    fn of(child: &tokio::process::Child) -> Self {
        Self(child.id().map(|pid| NixPid::from_raw(pid as i32)))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            let _already_gone = killpg(group, signal);
        }
    }

    fn forget(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

/// Logs the output line by line, until it ends or until nobody waits for it any more.
async fn log(hook: String, output: impl AsyncRead + Unpin) {
    let mut lines = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        match read_line(&mut lines, &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let line = String::from_utf8_lossy(&line);
                tracing::info!(%hook, "{}", line.trim_end());
            }
        }
    }
}

/// Reads one line, or the first part of a very long one: memory has a bound, too.
async fn read_line(
    from: &mut BufReader<impl AsyncRead + Unpin>,
    line: &mut Vec<u8>,
) -> io::Result<usize> {
    loop {
        let available = from.fill_buf().await?;
        if available.is_empty() {
            return Ok(line.len());
        }
        let room = &available[..available.len().min(LINE_MAX - line.len())];
        let end = room.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(room.len(), |end| end + 1);
        line.extend_from_slice(&room[..taken]);
        from.consume(taken);
        if end.is_some() || line.len() >= LINE_MAX {
            return Ok(line.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{eventually, lives};
    use super::*;

    fn hook(directory: &Path, commands: &[&[&str]]) -> Hook {
        Hook {
            name: "supervisor start".to_owned(),
            commands: commands
                .iter()
                .map(|argv| argv.iter().map(|word| (*word).to_owned()).collect())
                .collect(),
            directory: directory.to_owned(),
            timeout: TIMEOUT,
            functions: Vec::new(),
        }
    }

    #[tokio::test]
    async fn functions_run_after_the_commands_and_fail_as_they_do() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("log");
        let of = |moment, functions: &Functions| Hook {
            functions: functions.at(moment),
            ..hook(place.path(), &[&["sh", "-c", "echo command >> log"]])
        };
        let mut functions = Functions::default();
        let log = file.clone();
        functions.add(Moment::WorkerStart, move || {
            let text = std::fs::read_to_string(&log)?;
            Ok(std::fs::write(&log, format!("{text}function\n"))?)
        });
        functions.add(Moment::WorkerStart, || Err("no licence".into()));
        functions.add(Moment::WorkerStart, || panic!("it is not reached"));
        functions.add(Moment::WorkerStop, || panic!("it is reached"));
        functions.add(Moment::AdvancerStop, || {
            loop {
                std::thread::park();
            }
        });
        let error = of(Moment::WorkerStart, &functions).run().await.unwrap_err();
        let said = crate::telemetry::chain(&error);
        assert_eq!(
            said,
            "hook `supervisor start`: a function of the program failed: no licence"
        );
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            "command\nfunction\n"
        );
        // With RUST_BACKTRACE it may take seconds until a panic has been printed.
        let panics = of(Moment::WorkerStop, &functions);
        // Only the function that never ends is held to this limit.
        let endless = Hook {
            commands: Vec::new(),
            timeout: Duration::from_millis(300),
            ..of(Moment::AdvancerStop, &functions)
        };
        for (hook, how) in [(panics, "panicked"), (endless, "took too long")] {
            let error = hook.run().await.unwrap_err();
            assert!(error.to_string().ends_with(how), "{error}");
        }
        of(Moment::SupervisorStop, &functions).run().await.unwrap();
    }

    #[tokio::test]
    async fn each_command_and_function_that_ends_is_told_of_whether_it_failed_or_not() {
        let place = tempfile::tempdir().unwrap();
        let told = std::cell::Cell::new(0);
        let ended = || told.set(told.get() + 1);
        let mut functions = Functions::default();
        functions.add(Moment::WorkerStart, || Err("no licence".into()));
        functions.add(Moment::WorkerStart, || panic!("it is not reached"));
        let succeeds = Hook {
            functions: functions.at(Moment::WorkerStart),
            ..hook(place.path(), &[&["true"], &["true"]])
        };
        assert!(succeeds.run_telling(ended).await.is_err());
        assert_eq!(told.get(), 3);
        let fails = hook(place.path(), &[&["false"], &["true"]]);
        assert!(fails.run_telling(ended).await.is_err());
        assert_eq!(told.get(), 4);
    }

    async fn pid_in(file: &Path) -> i32 {
        loop {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            if text.ends_with('\n') {
                return text.trim().parse().unwrap();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    #[tokio::test]
    async fn commands_run_in_order_in_their_directory() {
        let place = tempfile::tempdir().unwrap();
        let commands: &[&[&str]] = &[
            &["sh", "-c", "echo one >> log; echo said; echo too >&2"],
            &["sh", "-c", "echo two >> log"],
        ];
        hook(place.path(), commands).run().await.unwrap();
        let log = std::fs::read_to_string(place.path().join("log")).unwrap();
        assert_eq!(log, "one\ntwo\n");
    }

    #[tokio::test]
    async fn a_failure_says_which_command_and_ends_the_hook() {
        let place = tempfile::tempdir().unwrap();
        let commands: &[&[&str]] = &[&["sh", "-c", "exit 3"], &["touch", "reached"]];
        let error = hook(place.path(), commands).run().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "hook `supervisor start`: `sh` failed: exit status: 3"
        );
        assert!(!place.path().join("reached").exists());
        let error = hook(place.path(), &[&["./missing"]])
            .run()
            .await
            .unwrap_err();
        assert!(matches!(error, HookError::Start { .. }), "{error}");
        let error = hook(place.path(), &[&[]]).run().await.unwrap_err();
        assert!(matches!(error, HookError::Empty { .. }), "{error}");
    }

    #[tokio::test]
    async fn one_that_takes_too_long_is_killed_with_all_that_it_started() {
        let place = tempfile::tempdir().unwrap();
        let script = "trap '' TERM; sleep 1000 & echo $! > pid; wait; sleep 1000";
        let file = place.path().join("pid");
        // As long as it takes the shell to get there.
        let mut timeout = Duration::from_millis(200);
        while !file.exists() {
            let hook = Hook {
                timeout,
                ..hook(place.path(), &[&["sh", "-c", script]])
            };
            let error = hook.run().await.unwrap_err();
            assert!(matches!(error, HookError::TimedOut { .. }), "{error}");
            timeout *= 2;
        }
        let pid = pid_in(&file).await;
        eventually("its child is dead", || (!lives(pid)).then_some(()));
    }

    #[tokio::test]
    async fn an_abandoned_hook_is_killed() {
        let place = tempfile::tempdir().unwrap();
        let script = "sleep 1000 & echo $! > pid; wait";
        let hook = hook(place.path(), &[&["sh", "-c", script]]);
        let file = place.path().join("pid");
        let pid = tokio::select! {
            ended = hook.run() => panic!("{ended:?}"),
            pid = pid_in(&file) => pid,
        };
        eventually("its child is dead", || (!lives(pid)).then_some(()));
    }

    #[tokio::test]
    async fn output_held_open_by_what_it_left_behind_holds_up_nobody() {
        let place = tempfile::tempdir().unwrap();
        let script = "sleep 1000 & echo $! > pid";
        let started = tokio::time::Instant::now();
        let hook = hook(place.path(), &[&["sh", "-c", script]]);
        hook.run().await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(20));
        let pid = pid_in(&place.path().join("pid")).await;
        assert!(lives(pid));
        nix::sys::signal::kill(NixPid::from_raw(pid), Signal::SIGKILL).unwrap();
    }

    #[tokio::test]
    async fn a_line_without_end_is_cut() {
        let mut reader = BufReader::new(tokio::io::repeat(b'x'));
        let mut line = Vec::new();
        assert_eq!(read_line(&mut reader, &mut line).await.unwrap(), LINE_MAX);
    }
}
