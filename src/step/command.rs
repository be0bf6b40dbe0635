//! Command steps: one execution, one process.
//!
//! Owns: driving a program from its input to its outcome, and ending it when its time is up.
//! Never: leaves a file behind, or a process that still can be told to be its own, whichever way the execution ends.
//!
//! The step ends when the program itself ends, not when its pipes close: a grandchild may
//! hold those for ever.

mod pipes;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::future::Future;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};

use super::child::Child;
use super::context::ContextStore;
use super::environment::{Added, Asked, BAGGAGE, Environment, Inherit, TRACESTATE, Unusable};
use super::mask::Mask;
use super::output::room;
use super::resolve::{explain, resolve};
use super::scratch::{self, OutputFile, Scratch};
use super::socket::serve::{Pass, Service};
use super::spawn::{Ends, Flight, Image, spawn};
use super::spawner::{Refused, Spawner};
use super::stderr::Log;
use super::strays::Strays;
use super::verdict::{self, Said, judge};
use super::{
    Assignment, Limits, Outcome, PROCESS, Performed, StepError, StopCause, StopSignal, abandoned,
    elapsed, is_of_the_machine, socket, stopped,
};
use crate::failpoint::failpoint;

use pipes::{Printed, Pumps, Rest, feed, leftovers, open_pipes, printed_too_much, pump};

/// How long processes that a program started may go on writing after the program itself has ended:
/// long enough for the last filter of a pipeline, short enough to be nobody's problem.
const EXIT_GRACE: Duration = Duration::from_millis(250);

/// How long we wait for a killed program; then it is stuck in the kernel, and left to it.
const DEATH_MAX: Duration = Duration::from_secs(5);

/// How long a program's start may take, at least, however short the step's own timeout: many starts at once wait for
/// one another.
const START_LIMIT: Duration = Duration::from_secs(5);

/// How long we wait for a start that was given up: a child that can be killed at all is dead by then.
const GIVEN_UP_MAX: Duration = Duration::from_secs(1);

/// The waits while a program is still open for writing. That passes in no time when the program is
/// being installed, or when another thread forked while it was.
const BUSY_RETRIES: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(60),
    Duration::from_millis(100),
];

/// How many bytes are kept of a log that explains no error: every attempt may have one.
const LOG_MAX: usize = 16 * 1024;

/// Larger outputs are not read on the thread that beats.
const LARGE: u64 = 256 * 1024;

/// The name of the thread that reads them.
const ASIDE: &str = "large-output";

/// How many bytes are read at a time; then everybody else has a turn.
const CHUNK: usize = 16 * 1024;

/// The same for the log, where a chunk may be thousands of events.
const LOG_CHUNK: usize = 4 * 1024;

/// The variable that tells a step its execution. Each process that the step starts inherits it.
const EXECUTION: &str = "DUCTWORK_EXECUTION_ID";

/// The variable that names an environment of the configuration.
const SECTION: &str = "DUCTWORK_ENV";

/// Runs command steps.
#[derive(Debug)]
pub struct CommandRunner {
    base_dir: PathBuf,
    config_path: Option<PathBuf>,
    environment: Arc<Environment>,
    scratch: Scratch,
    limits: Limits,
    /// The environment of the configuration, where nothing else names it.
    config_section: Option<String>,
    contexts: Option<Service>,
    strays: Strays,
    spawner: Spawner,
}

/// The values that one execution alone is given.
#[derive(Clone, Copy)]
struct Given<'a> {
    output: &'a OutputFile,
    pass: Option<&'a Pass>,
}

/// Why a program that still runs is ended.
enum Cut {
    Overflow,
    Timeout(Duration),
    Stop(StopCause),
}

/// The end of a program that was asked to end.
enum Left {
    ByItself,
    Killed,
    /// Killed before its grace was over.
    Abandoned,
    Stuck,
    /// It runs as another user, who alone can end it.
    Foreign,
}

/// A program that has started, and everything that has to last until it ends.
struct Prepared {
    running: Running,
    output: OutputFile,
    mask: Option<Mask>,
    /// Valid until the program has ended.
    _pass: Option<Pass>,
}

/// The start of a program, for the thread that may wait for its file system.
struct Launch {
    environment: Arc<Environment>,
    argv: Vec<String>,
    added: Added,
    path: Option<OsString>,
    cwd: PathBuf,
    flight: Arc<Flight>,
}

/// A program that did not start.
struct NotLaunched {
    outcome: Outcome,
    /// It is open for writing.
    is_busy: bool,
}

/// Gives up a start that nobody waits for any more, and does nothing once it is over.
struct Hold(Arc<Flight>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

struct Running {
    child: Child,
    stdin: Option<Rest>,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
}

impl CommandRunner {
    /// A runner for the programs of one configuration. Commands run in `base_dir`; the variables in
    /// `hidden_variables` (the names the daemon's secrets came from) are not passed on.
    pub fn new(
        base_dir: PathBuf,
        config_path: Option<PathBuf>,
        hidden_variables: &[String],
        limits: Limits,
    ) -> Self {
        Self {
            base_dir: std::path::absolute(&base_dir).unwrap_or(base_dir),
            config_path,
            environment: Arc::new(Environment::inherit(
                std::env::vars_os(),
                hidden_variables,
                &Inherit::All,
            )),
            scratch: Scratch::default(),
            limits,
            config_section: None,
            contexts: None,
            strays: Strays::default(),
            spawner: Spawner::default(),
        }
    }

    /// The same runner, whose programs inherit only these variables.
    pub fn inheriting(mut self, listed: &Inherit, hidden_variables: &[String]) -> Self {
        let environment = Environment::inherit(std::env::vars_os(), hidden_variables, listed);
        self.environment = Arc::new(environment);
        self
    }

    /// The same runner, for this environment of the configuration: programs that read the
    /// configuration choose it as well.
    pub fn in_section(mut self, chosen: &str, default: &str) -> Self {
        let without = self.environment.get(SECTION).unwrap_or(default.as_ref());
        self.config_section = (without != chosen).then(|| chosen.to_owned());
        self
    }

    /// The same runner, whose programs reach the context of their run without the database.
    pub fn with_contexts(mut self, contexts: Arc<dyn ContextStore>) -> Self {
        self.contexts = Some(Service::new(contexts, self.limits.max_payload));
        self
    }

    /// Performs `assignment` with the program `argv`. `on_started` is told the program's pid. Dropping the future
    /// ends the program.
    pub async fn run(
        &self,
        assignment: &Assignment,
        argv: &[String],
        env: impl Into<Asked<'_>>,
        cwd: Option<&str>,
        mut stop: StopSignal,
        on_started: impl FnOnce(u32),
    ) -> Performed {
        if let Some(cause) = *stop.borrow() {
            return Outcome::from(cause).into();
        }
        let prepared = {
            let hold = Hold(Arc::default());
            let limit = self.start_limit(assignment.timeout);
            let mut preparing = pin!(self.prepare(assignment, argv, env.into(), cwd, &hold.0));
            let cut = tokio::select! {
                biased;
                prepared = &mut preparing => Ok(prepared),
                limit = elapsed(Some(limit)) => Err(Err(limit)),
                cause = stopped(&mut stop) => Err(Ok(cause)),
            };
            match cut {
                Ok(prepared) => prepared,
                Err(cut) => {
                    let patience = match cut {
                        Ok(StopCause::Abandon) => Duration::ZERO,
                        _ => GIVEN_UP_MAX,
                    };
                    hold.0.give_up();
                    if let Ok(Ok(prepared)) = timeout(patience, preparing).await {
                        // It was executed, or killed, at that very moment.
                        self.put_down(assignment, prepared.running.child).await;
                    }
                    return given_up(argv, cut).into();
                }
            }
        };
        let Prepared {
            running,
            output,
            mask,
            _pass,
        } = match prepared {
            Ok(prepared) => prepared,
            Err(outcome) => return outcome.into(),
        };
        on_started(running.child.id());
        let mut log = Log::new(assignment, self.limits.stderr_tail).covered_by(mask.clone());
        let outcome = self.perform(assignment, running, output, &mut stop, &mut log);
        let outcome = covered(outcome.await, mask.as_ref());
        let log = unsaid(&outcome, &log);
        Performed { outcome, log }
    }

    /// How long the start of a step with this timeout may take. A step without one has a limit, too: otherwise a step
    /// that will never start would keep its slot, and only a line of the log would report it.
    fn start_limit(&self, timeout: Option<Duration>) -> Duration {
        timeout.map_or(self.limits.start, |limit| limit.max(START_LIMIT))
    }

    /// Ends a program that has started after its start was given up.
    async fn put_down(&self, assignment: &Assignment, child: Child) {
        child.signal(Signal::SIGKILL);
        if timeout(DEATH_MAX, child.ended()).await.is_ok() {
            let leader = child.id().cast_signed();
            let _status = child.collect();
            self.strays.end(leader, &mark(assignment)).await;
        }
    }

    /// Everything from the step's secrets to its program's start.
    ///
    /// RACE: the program, its working directory or a secret file is on a file system that does not answer. The
    /// current thread beats for the process, applies the timeouts of all steps and notices a stop, so it must not
    /// wait for any of these: `spawner` has threads that do. Proven by
    /// `a_step_on_a_disk_that_does_not_answer_is_given_up_and_costs_nobody_anything`.
    async fn prepare(
        &self,
        assignment: &Assignment,
        argv: &[String],
        asked: Asked<'_>,
        cwd: Option<&str>,
        flight: &Arc<Flight>,
    ) -> Result<Prepared, Outcome> {
        let given = match asked.reading() {
            None => self.environment.give(asked),
            Some(asked) => {
                let environment = Arc::clone(&self.environment);
                let give = move || environment.give(&asked);
                let given = self.spawner.perform(&assignment.step, give).await;
                given.map_err(|refused| not_started(argv, &refused))?
            }
        };
        let given = given?;
        let (env, mask) = (given.values, given.mask);
        let output = match self.scratch.file(assignment.execution_id) {
            Ok(output) => output,
            Err(error) => {
                let message = format!(
                    "the file for the step's output could not be created in {} (TMPDIR): {error}",
                    scratch::parent().unwrap_or_default().display()
                );
                return Err(Outcome::NotStarted { message });
            }
        };
        let pass = self
            .contexts
            .as_ref()
            .and_then(|contexts| contexts.admit(output.directory(), assignment.into()));
        let given = Given {
            output: &output,
            pass: pass.as_ref(),
        };
        let running = self.start(assignment, argv, &env, cwd, given, flight).await;
        match running {
            Ok(running) => Ok(Prepared {
                running,
                output,
                mask,
                _pass: pass,
            }),
            Err(outcome) => Err(covered(outcome, mask.as_ref())),
        }
    }

    async fn start(
        &self,
        assignment: &Assignment,
        argv: &[String],
        env: &BTreeMap<String, String>,
        cwd: Option<&str>,
        given: Given<'_>,
        flight: &Arc<Flight>,
    ) -> Result<Running, Outcome> {
        let cwd = match cwd {
            Some(cwd) => self.base_dir.join(cwd),
            None => self.base_dir.clone(),
        };
        let program = argv.first().map_or("", String::as_str);
        let path = env.get("PATH").map(AsRef::as_ref);
        let path = path.or(self.environment.get("PATH"));
        let launch = Arc::new(Launch {
            environment: Arc::clone(&self.environment),
            argv: argv.to_vec(),
            added: self.added(assignment, env, &cwd, given),
            path: path.map(OsString::from),
            cwd,
            flight: Arc::clone(flight),
        });
        let mut waits = BUSY_RETRIES.iter();
        loop {
            let input = assignment.input.get().as_bytes();
            let pipes = open_pipes(input).map_err(|error| Outcome::NotStarted {
                message: format!("the pipes for `{program}` could not be created: {error}"),
            });
            let (ends, stdin, stdout, stderr) = pipes?;
            let launch = Arc::clone(&launch);
            let begin = move || launch.begin(ends);
            let begun = self.spawner.perform(&assignment.step, begin).await;
            let NotLaunched { outcome, is_busy } =
                match begun.map_err(|refused| not_started(argv, &refused))? {
                    Ok(child) => {
                        return Ok(Running {
                            child: child.watched(),
                            stdin,
                            stdout,
                            stderr,
                        });
                    }
                    Err(not_launched) => not_launched,
                };
            match waits.next() {
                Some(wait) if is_busy => sleep(*wait).await,
                _ => return Err(outcome),
            }
        }
    }

    /// The environment of the step.
    fn added(
        &self,
        assignment: &Assignment,
        env: &BTreeMap<String, String>,
        cwd: &Path,
        given: Given<'_>,
    ) -> Added {
        let Assignment {
            run_id,
            execution_id,
            step_id,
            attempt,
            ..
        } = assignment;
        let variables = [
            ("DUCTWORK_RUN_ID", run_id.to_string()),
            ("DUCTWORK_PIPELINE", assignment.pipeline.clone()),
            ("DUCTWORK_STEP", assignment.step.clone()),
            ("DUCTWORK_STEP_ID", step_id.to_string()),
            (EXECUTION, execution_id.to_string()),
            ("DUCTWORK_ATTEMPT", attempt.to_string()),
            (
                "DUCTWORK_IDEMPOTENCY_KEY",
                assignment.idempotency_key().to_string(),
            ),
            ("DUCTWORK_FENCING_TOKEN", attempt.to_string()),
            ("TRACEPARENT", assignment.span.to_string()),
        ];
        let mut added: Added = variables
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let handed_on = [
            (TRACESTATE, &assignment.trace_state),
            (BAGGAGE, &assignment.baggage),
        ];
        for (name, value) in handed_on {
            added.extend(value.iter().map(|value| (name.into(), value.into())));
        }
        added.insert("DUCTWORK_OUTPUT".into(), given.output.path().to_owned());
        if let Some(pass) = given.pass {
            added.insert(socket::VARIABLE.into(), pass.text());
        }
        added.insert("PWD".into(), cwd.into());
        if let Some(path) = &self.config_path {
            added.insert("DUCTWORK_CONFIG".into(), path.into());
        }
        if let Some(section) = &self.config_section {
            added.insert(SECTION.into(), section.into());
        }
        // A value that a person wrote wins over everything.
        added.extend(env.iter().map(|(name, value)| (name.into(), value.into())));
        // But not over the mark by which the step is found.
        added.insert(PROCESS.into(), assignment.process.to_string().into());
        added
    }

    async fn perform(
        &self,
        assignment: &Assignment,
        running: Running,
        output: OutputFile,
        stop: &mut StopSignal,
        log: &mut Log<'_>,
    ) -> Outcome {
        let Running {
            child,
            stdin,
            mut stdout,
            mut stderr,
        } = running;
        let mut printed = Printed::new(room(self.limits.max_payload));
        let cut = {
            let overflow = Notify::new();
            let feed = pin!(feed(stdin, assignment.input.get().as_bytes()));
            let read = pin!(async {
                tokio::join!(
                    pump(&mut stdout, CHUNK, |bytes| {
                        printed.push(bytes, &overflow);
                        failpoint!("exec.half_read");
                    }),
                    pump(&mut stderr, LOG_CHUNK, |bytes| log.push(bytes)),
                );
            });
            let mut pumps = Pumps {
                feed: Some(feed),
                read: Some(read),
            };
            let cut = tokio::select! {
                biased;
                () = child.ended() => None,
                () = overflow.notified() => Some(Cut::Overflow),
                limit = elapsed(assignment.timeout) => Some(Cut::Timeout(limit)),
                cause = stopped(stop) => Some(Cut::Stop(cause)),
                never = pumps.work() => match never {},
            };
            let cut = match cut {
                None => None,
                // RACE: the program ended by itself, and the news of that is still on its way when we
                // are told to end it: after the daemon has stood still, both have happened long ago.
                // A program that ended on its own is judged by that end. Proven by
                // `a_step_that_ended_before_it_was_told_to_is_judged_by_its_exit_status`.
                Some(_) if child.has_ended() => None,
                Some(cut) => {
                    let grace = self.limits.kill_grace;
                    Some((cut, end(&child, &mut pumps, grace, stop).await))
                }
            };
            // The program will never read the input that it has not read by now.
            pumps.feed = None;
            if !matches!(cut, Some((_, Left::Stuck | Left::Foreign))) {
                let _ = timeout(EXIT_GRACE, pumps.finish()).await;
            }
            cut
        };
        let cut = match cut {
            Some((cut, left @ (Left::Stuck | Left::Foreign))) => {
                let why = match left {
                    Left::Foreign => "it runs as another user, and goes on",
                    _ => "it is stuck in the kernel",
                };
                tracing::error!(pid = child.id(), step = %assignment.step, "a killed step does not die: {why}");
                return self.cut_off(cut, left, log, &printed);
            }
            cut => cut,
        };
        let leader = child.id().cast_signed();
        let status = child.collect();
        let strays = self.strays.end(leader, &mark(assignment)).await;
        if strays > 0 {
            tracing::debug!(execution_id = %assignment.execution_id, step = %assignment.step, processes = strays,
                "ended what a step left behind");
        }
        failpoint!("exec.ended");
        leftovers(&stdout, |bytes| printed.push(bytes, &Notify::new()));
        leftovers(&stderr, |bytes| log.push(bytes));
        log.finish();
        if let Some((cut, left)) = cut {
            let finished = matches!(cut, Cut::Stop(StopCause::Shutdown))
                && status.as_ref().is_ok_and(std::process::ExitStatus::success);
            let outcome = self.cut_off(cut, left, log, &printed);
            // The work is done: doing it twice would not make it better.
            if !finished {
                return outcome;
            }
            return match self.judge(status, printed, output, log).await {
                success @ Outcome::Success(_) => success,
                _ => outcome,
            };
        }
        match self.judge(status, printed, output, log).await {
            // The service manager that stops the daemon may have signalled its steps as well (systemd does).
            Outcome::Crashed { message } => match *stop.borrow() {
                Some(cause) => cause.into(),
                None => Outcome::Crashed { message },
            },
            outcome => outcome,
        }
    }

    /// The outcome of a program that ended by itself. A large output is read on a thread of its own: the
    /// current thread beats for the process, and a check of 64 MiB would mean seconds without a beat on
    /// a busy machine. Proven by `a_large_output_is_read_on_a_thread_of_its_own`.
    async fn judge(
        &self,
        status: io::Result<std::process::ExitStatus>,
        printed: Printed,
        output: OutputFile,
        log: &mut Log<'_>,
    ) -> Outcome {
        let status = match status {
            Ok(status) => status,
            Err(error) => {
                return Outcome::Crashed {
                    message: format!("its exit status could not be read: {error}"),
                };
            }
        };
        let (tail, max) = (log.tail(), self.limits.max_payload);
        let large = output.length().max(printed.bytes.len() as u64) > LARGE;
        let mask = log.mask().cloned();
        let judged = move || judged(status, &printed, &output, tail, mask.as_ref(), max);
        if !large {
            return judged();
        }
        aside(judged).await.unwrap_or_else(|| Outcome::Crashed {
            message: "its output could not be read".to_owned(),
        })
    }

    /// The outcome of a program that we ended.
    fn cut_off(&self, cut: Cut, left: Left, log: &mut Log<'_>, printed: &Printed) -> Outcome {
        let tail = log.tail();
        let both = || {
            verdict::cut_off(Said {
                stdout: &printed.bytes,
                overflowed: printed.overflowed,
                file: b"",
                log: tail,
                mask: log.mask(),
            })
        };
        match cut {
            Cut::Stop(cause) => cause.into(),
            Cut::Overflow => {
                let error = printed_too_much(self.limits.max_payload);
                Outcome::Error(match both() {
                    Some(log) => error.backtrace(log),
                    None => error,
                })
            }
            Cut::Timeout(limit) => {
                let grace = self.limits.kill_grace;
                let how = match left {
                    Left::ByItself => "ended by SIGTERM".to_owned(),
                    Left::Killed => format!("killed {grace:?} after SIGTERM"),
                    Left::Abandoned => "killed because the daemon was to end at once".to_owned(),
                    Left::Stuck => format!("killed {grace:?} after SIGTERM, but still not dead"),
                    Left::Foreign => {
                        "it runs as another user, so that it could not be ended, and goes on"
                            .to_owned()
                    }
                };
                Outcome::TimedOut {
                    message: format!("timed out after {limit:?}; {how}"),
                    backtrace: both(),
                }
            }
        }
    }
}

impl Launch {
    /// Starts the program. Waits for its file system, however long that takes.
    fn begin(&self, ends: Ends) -> Result<Child, NotLaunched> {
        let stopped = |outcome| NotLaunched {
            outcome,
            is_busy: false,
        };
        let program = self.argv.first().map_or("", String::as_str);
        let file = resolve(program, &self.cwd, self.path.as_deref());
        let file = file.map_err(|error| stopped(Outcome::Error(error)))?;
        let environment = self.environment.with(&self.added);
        let image = image(&file, &self.argv, environment, &self.cwd)
            .map_err(|message| StepError::new("command_invalid", message).no_retry())
            .map_err(|error| stopped(Outcome::Error(error)))?;
        match spawn(&image, ends, &self.flight) {
            Ok(process) => Ok(Child::new(process)),
            // Nobody waits for an explanation, and looking for one may take just as long.
            Err(error) if self.flight.is_given_up() => Err(stopped(Outcome::NotStarted {
                message: error.to_string(),
            })),
            Err(error) => Err(NotLaunched {
                outcome: explain(&error, &file, &self.cwd),
                is_busy: error.kind() == io::ErrorKind::ExecutableFileBusy,
            }),
        }
    }
}

/// The outcome of a step for which no thread starts the program.
fn not_started(argv: &[String], refused: &Refused) -> Outcome {
    let program = argv.first().map_or("", String::as_str);
    Outcome::NotStarted {
        message: format!("`{program}` could not be started: {refused}"),
    }
}

/// The outcome of a step whose start was given up, at its timeout or because it was told to stop. A program that
/// was not executed cannot have taken too long: the step's budgets do not pay for a disk that is gone.
fn given_up(argv: &[String], cut: Result<StopCause, Duration>) -> Outcome {
    let program = argv.first().map_or("", String::as_str);
    match cut {
        Ok(cause) => cause.into(),
        Err(limit) => Outcome::NotStarted {
            message: format!(
                "`{program}` could not be started within {limit:?}: the file system of the program, its \
                 directory or a secret does not answer"
            ),
        },
    }
}

/// The variable by which the processes are found that an execution's program has started.
fn mark(assignment: &Assignment) -> String {
    format!("{EXECUTION}={}", assignment.execution_id)
}

/// The same outcome, without secrets.
fn covered(outcome: Outcome, mask: Option<&Mask>) -> Outcome {
    match mask {
        Some(mask) => outcome.covered_by(mask),
        None => outcome,
    }
}

/// The end of a log, unless the outcome tells it.
fn unsaid(outcome: &Outcome, log: &Log<'_>) -> Option<String> {
    let told = match outcome {
        Outcome::Error(error) => error.backtrace.as_deref(),
        Outcome::TimedOut { backtrace, .. } => backtrace.as_deref(),
        _ => None,
    };
    let last = log.last(LOG_MAX)?;
    let log = match log.mask() {
        Some(mask) => mask.text(&last),
        None => last,
    };
    let begins: String = log.trim_start_matches("…\n").chars().take(200).collect();
    // A step may give a backtrace of its own.
    let tells = told.is_some_and(|told| told.contains(&begins));
    (!tells).then_some(log)
}

/// Does this work on a thread of its own, or on the current one where the system has none to give.
/// `None` if it panicked.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (give, done) = oneshot::channel();
    let work = Arc::new(Mutex::new(Some(work)));
    let take = {
        let work = Arc::clone(&work);
        move || work.lock().unwrap_or_else(PoisonError::into_inner).take()
    };
    let take_back = take.clone();
    let started = std::thread::Builder::new()
        .name(ASIDE.to_owned())
        .spawn(move || {
            // Perhaps nobody waits any more.
            let _ = take().map(|work| give.send(work()));
        });
    match started {
        Ok(_) => done.await.ok(),
        Err(_) => take_back().map(|work| work()),
    }
}

/// The outcome of a program that ended by itself, from its exit status and its output.
fn judged(
    status: std::process::ExitStatus,
    printed: &Printed,
    output: &OutputFile,
    log: Option<String>,
    mask: Option<&Mask>,
    max_payload: usize,
) -> Outcome {
    let file = match output.read(room(max_payload)) {
        Ok(file) => file,
        // An output that cannot be read is no output; a failed step has failed anyway. The step is to
        // blame for what it left in the file's place, and not for the machine.
        Err(error) if status.success() => {
            let message = format!("the file $DUCTWORK_OUTPUT cannot be read: {error}");
            return match is_of_the_machine(&error) {
                true => Outcome::Crashed { message },
                false => Outcome::Error(StepError::new("output_invalid", message)),
            };
        }
        Err(_) => Vec::new(),
    };
    let said = Said {
        stdout: &printed.bytes,
        overflowed: printed.overflowed,
        file: &file,
        log,
        mask,
    };
    judge(status, said, max_payload)
}

/// Asks the program's group to end, then forces it to; reads its output all the while, because
/// otherwise it may not get to its end.
///
/// RACE: the program has its grace, for whatever reason, when the supervisor is killed or somebody stops the
/// daemon a second time. The program must be gone soon, so the grace ends there. Proven by
/// `a_step_in_its_grace_is_killed_at_once_when_it_is_abandoned`.
async fn end<F, R>(
    child: &Child,
    pumps: &mut Pumps<'_, F, R>,
    grace: Duration,
    stop: &mut StopSignal,
) -> Left
where
    F: Future<Output = ()>,
    R: Future<Output = ()>,
{
    failpoint!("exec.ending");
    child.signal(Signal::SIGTERM);
    // A stopped program would receive it only when it goes on.
    child.signal(Signal::SIGCONT);
    let left = tokio::select! {
        biased;
        () = child.ended() => return Left::ByItself,
        () = abandoned(stop) => Left::Abandoned,
        () = sleep(grace) => Left::Killed,
        never = pumps.work() => match never {},
    };
    failpoint!("exec.killing");
    child.signal(Signal::SIGKILL);
    tokio::select! {
        biased;
        () = child.ended() => left,
        () = sleep(DEATH_MAX) => match child.is_foreign() {
            true => Left::Foreign,
            false => Left::Stuck,
        },
        never = pumps.work() => match never {},
    }
}

fn image(
    file: &Path,
    argv: &[String],
    environment: Result<Vec<CString>, Unusable>,
    cwd: &Path,
) -> Result<Image, String> {
    let text = |what: &str, text: OsString| {
        CString::new(text.into_vec()).map_err(|_| format!("{what} holds a NUL character"))
    };
    Ok(Image {
        file: text("the command", file.into())?,
        argv: argv
            .iter()
            .map(|argument| text("an argument", argument.into()))
            .collect::<Result<_, _>>()?,
        environment: environment
            .map_err(|Unusable(name)| format!("`env:` cannot set the variable {name:?}"))?,
        cwd: text("the working directory", cwd.into())?,
    })
}
