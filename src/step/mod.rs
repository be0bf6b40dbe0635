//! Steps: the contract between an execution and the code that performs it.
//!
//! Owns: the values handed to a step and what it may answer. Never: writes a row; what an
//! outcome costs (a retry, a crash, nothing) is decided by `machine::outcome`.
//!
//! A command step is read top down: `command` drives one execution, with `environment`,
//! `scratch`, `socket` and `resolve` before it, `spawner`, `spawn`, `child` and `strays` for its processes,
//! `stderr`, `tail`, `mask` and `quoted` for its log, and `verdict`, `report` and `output` for what it said. Native steps are
//! `registry`, `native` and `context`.

mod child;
pub mod command;
pub mod context;
pub mod environment;
mod error;
mod mask;
pub mod native;
pub mod output;
mod quoted;
pub mod registry;
pub mod report;
pub(crate) mod resolve;
mod scratch;
pub mod socket;
mod spawn;
mod spawner;
mod stderr;
mod strays;
mod tail;
pub mod verdict;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use uuid::Uuid;

use crate::model::{ExecutionId, ProcessId, RunId, StepId, TraceParent};

/// The variable that tells a step which process runs it, by the key of that process's row. Each process that a
/// step starts inherits it, and can be recognised by it when nobody is left who knows of the process.
pub const PROCESS: &str = "DUCTWORK_PROCESS";

/// The variable that says from which child of a supervisor a process descends. Every step inherits it, whichever
/// variables are listed for steps.
pub const CHILD: &str = "DUCTWORK_CHILD";

/// One execution to perform.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The process that performs it.
    pub process: ProcessId,
    /// The run it belongs to.
    pub run_id: RunId,
    /// The run's pipeline.
    pub pipeline: String,
    /// The step's name (not its node's).
    pub step: String,
    /// The step's id.
    pub step_id: StepId,
    /// This attempt's id.
    pub execution_id: ExecutionId,
    /// 1, 2, …: rises with every attempt, so it is the fencing token as well.
    pub attempt: u32,
    /// One JSON value.
    pub input: Arc<Box<RawValue>>,
    /// The longest that it may take.
    pub timeout: Option<Duration>,
    /// Its span, in the trace of its run.
    pub span: TraceParent,
    /// The state of that trace, where it is the caller's.
    pub trace_state: Option<String>,
    /// The baggage that the run's caller hands on.
    pub baggage: Option<String>,
}

impl Assignment {
    /// The key for its side effect.
    pub fn idempotency_key(&self) -> Uuid {
        let (run, input) = (self.run_id, self.input.get());
        self.step_id.idempotency_key(run, input)
    }
}

/// How a performed execution ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It returned a value.
    Success(Box<RawValue>),
    /// The step said no.
    Error(StepError),
    /// It was killed from outside: nobody said anything.
    Crashed {
        /// The killer, as far as known.
        message: String,
    },
    /// It took longer than its timeout and was ended.
    TimedOut {
        /// The timeout and how it was ended.
        message: String,
        /// The last lines of its log.
        backtrace: Option<String>,
    },
    /// It could not be started, and the machine is to blame: spends no budget.
    NotStarted {
        /// The missing resource, or the failing disk.
        message: String,
    },
    /// It was ended because the daemon stops: spends no budget.
    Released,
    /// It was ended because its run was cancelled.
    Cancelled,
}

/// True when the machine is to blame for this error, and no step: it lacks a resource, or a disk or a file server fails.
fn is_of_the_machine(error: &io::Error) -> bool {
    use nix::errno::Errno::*;
    let lacks_processes = Some(EAGAIN);
    let fails = [
        EIO,
        EREMOTEIO,
        EUCLEAN,
        EBADMSG,
        ESTALE,
        ETIMEDOUT,
        EHOSTDOWN,
        EHOSTUNREACH,
        ENOTCONN,
    ];
    let errno = error.raw_os_error().map(nix::errno::Errno::from_raw);
    crate::proc::is_shortage(error)
        || errno == lacks_processes
        || errno.is_some_and(|errno| fails.contains(&errno))
}

impl Outcome {
    /// The same outcome, without secrets in any text about a failure. A value is the step's own.
    fn covered_by(mut self, mask: &mask::Mask) -> Self {
        let cover = |text: &mut String| *text = mask.text(text);
        match &mut self {
            Self::Error(error) => {
                cover(&mut error.class);
                cover(&mut error.message);
                error.backtrace.iter_mut().for_each(cover);
            }
            Self::Crashed { message } | Self::NotStarted { message } => cover(message),
            Self::TimedOut { message, backtrace } => {
                cover(message);
                backtrace.iter_mut().for_each(cover);
            }
            Self::Success(_) | Self::Released | Self::Cancelled => {}
        }
        self
    }
}

/// A performed execution, and what it left to be read.
#[derive(Clone, Debug)]
pub struct Performed {
    /// How it ended.
    pub outcome: Outcome,
    /// The end of its log, unless the outcome has it.
    pub log: Option<String>,
}

impl From<Outcome> for Performed {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, log: None }
    }
}

/// A step's own report of its failure.
#[derive(Clone, Debug, PartialEq)]
pub struct StepError {
    /// For machines: `ExitStatus(1)`, `output_invalid`, or the step's own name for it.
    pub class: String,
    /// For people.
    pub message: String,
    /// The end of its log, or the text that the step gave.
    pub backtrace: Option<String>,
    /// False: trying again is useless, whatever budget is left.
    pub retryable: bool,
    /// Overrides the backoff.
    pub retry_after: Option<Duration>,
}

/// The limits of every step.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest output, in bytes.
    pub max_payload: usize,
    /// How much of a command's log is kept with its execution, in bytes.
    pub stderr_tail: usize,
    /// The time between being asked to end and being killed.
    pub kill_grace: Duration,
    /// How long the start of a command that has no timeout may take.
    pub start: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_payload: 16 * 1024 * 1024,
            stderr_tail: 64 * 1024,
            kill_grace: Duration::from_secs(5),
            start: Duration::from_secs(60),
        }
    }
}

/// Why a running step is to be ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// The daemon stops.
    Shutdown,
    /// The run was cancelled.
    Cancel,
    /// The daemon is gone and nobody will come back for this: end it at once.
    Abandon,
}

/// Tells a running step to end: `None` until it is to stop.
pub type StopSignal = tokio::sync::watch::Receiver<Option<StopCause>>;

/// Resolves when the step is to end; never, if nobody can say so any more.
async fn stopped(stop: &mut StopSignal) -> StopCause {
    let cause = match stop.wait_for(Option::is_some).await {
        Ok(cause) => *cause,
        Err(_) => None,
    };
    match cause {
        Some(cause) => cause,
        None => std::future::pending().await,
    }
}

/// Resolves when the step is to end at once; never, if nobody can say so any more.
async fn abandoned(stop: &mut StopSignal) {
    let at_once = |cause: &Option<StopCause>| *cause == Some(StopCause::Abandon);
    if stop.wait_for(at_once).await.is_err() {
        std::future::pending().await
    }
}

impl From<StopCause> for Outcome {
    fn from(cause: StopCause) -> Self {
        match cause {
            StopCause::Shutdown | StopCause::Abandon => Self::Released,
            StopCause::Cancel => Self::Cancelled,
        }
    }
}

/// The longest sleep of a timeout; a sleep that ends this much too late shows that this process stood still meanwhile.
const SLICE: Duration = Duration::from_secs(1);

/// Resolves when `limit` has passed while this process ran; never, without a limit.
///
/// RACE: a container or a virtual machine is paused, and all of its processes stand still with it, steps included. A step
/// gets that time back: it could do nothing, and would pay with an attempt. Proven by
/// `a_step_gets_back_the_time_for_which_everything_stood_still`.
async fn elapsed(limit: Option<Duration>) -> Duration {
    let Some(limit) = limit else {
        return std::future::pending().await;
    };
    let mut left = limit;
    while !left.is_zero() {
        let slice = left.min(SLICE);
        let began = tokio::time::Instant::now();
        tokio::time::sleep(slice).await;
        let took = began.elapsed();
        let stood_still = took > slice + SLICE;
        left = left.saturating_sub(if stood_still { slice } else { took });
    }
    limit
}
