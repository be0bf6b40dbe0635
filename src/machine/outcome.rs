//! The cost of an execution's end, and whether its step is tried again.

use std::time::Duration;

use crate::definition::graph::Backoff;
use crate::model::{ExecutionResult, HaltReason};

/// An execution whose end is to be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionView {
    /// Errors and timeouts of earlier attempts.
    pub retry_count: u32,
    /// Crashes of earlier attempts.
    pub crash_count: u32,
}

/// How an execution ended, as far as budgets are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The step has an output.
    Success,
    /// The step reported an error.
    Error {
        /// False: trying again is useless.
        retryable: bool,
        /// The wait before the next attempt that the step itself asks for.
        retry_after: Option<Duration>,
    },
    /// The attempt took too long: an error like any other.
    TimedOut,
    /// The attempt ended without any report.
    Crashed,
    /// The attempt was given back, which spends nothing.
    Released {
        /// The wait before it may be claimed again.
        delay: Duration,
    },
    /// Its run was cancelled.
    Cancelled,
}

impl Ending {
    /// The wait until the next attempt is due. `None`: it keeps its place in the queue, before a backlog that it preceded,
    /// because the step did not cause the end of this attempt.
    pub fn due_in(&self, delay: Duration) -> Option<Duration> {
        let is_blameless = matches!(self, Self::Released { .. } | Self::Crashed);
        (!is_blameless || !delay.is_zero()).then_some(delay)
    }
}

/// The budgets of a step.
#[derive(Clone, Copy, Debug)]
pub struct StepLimits {
    /// How many attempts after the first may be spent on errors.
    pub max_retry: u32,
    /// The crash that fails the step: the `max_crash`-th (the first, when this is 0).
    pub max_crash: u32,
    /// The wait between attempts.
    pub backoff: Backoff,
}

/// The writes for a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The step has its output; its branch can be advanced.
    Succeed,
    /// A new execution.
    Again {
        /// The wait before it may be claimed.
        delay: Duration,
        /// Its counters.
        next: ExecutionView,
    },
    /// The step is out of budget: its branch is to be halted.
    Fail,
    /// Nothing more happens.
    Drop,
}

impl Ending {
    /// The word stored with the execution.
    pub const fn result(self) -> ExecutionResult {
        match self {
            Self::Success => ExecutionResult::Success,
            Self::Error { .. } => ExecutionResult::Error,
            Self::TimedOut => ExecutionResult::TimedOut,
            Self::Crashed => ExecutionResult::ProcessCrashed,
            Self::Released { .. } => ExecutionResult::Released,
            Self::Cancelled => ExecutionResult::Cancelled,
        }
    }
}

/// Decides what follows an execution. `spread` in 0..=1 places the wait within its jitter.
pub fn decide(view: ExecutionView, ending: Ending, limits: &StepLimits, spread: f64) -> Verdict {
    let erred = ExecutionView {
        retry_count: view.retry_count.saturating_add(1),
        ..view
    };
    let crashed = ExecutionView {
        crash_count: view.crash_count.saturating_add(1),
        ..view
    };
    // These conditions look at the counters before they are raised: raised counters could stick at
    // the largest number and never exceed a limit that is just as large.
    let retries_spent = view.retry_count >= limits.max_retry;
    let crashes_spent = view.crash_count >= limits.max_crash.saturating_sub(1);
    match ending {
        Ending::Success => Verdict::Succeed,
        Ending::Cancelled => Verdict::Drop,
        Ending::Released { delay } => Verdict::Again { delay, next: view },
        Ending::Error {
            retryable: false, ..
        } => Verdict::Fail,
        Ending::Error { .. } | Ending::TimedOut if retries_spent => Verdict::Fail,
        Ending::Error { retry_after, .. } => Verdict::Again {
            delay: retry_after
                .unwrap_or_else(|| retry_delay(erred.retry_count, limits.backoff, spread)),
            next: erred,
        },
        Ending::TimedOut => Verdict::Again {
            delay: retry_delay(erred.retry_count, limits.backoff, spread),
            next: erred,
        },
        Ending::Crashed if crashes_spent => Verdict::Fail,
        Ending::Crashed => Verdict::Again {
            delay: crash_delay(crashed.crash_count, limits),
            next: crashed,
        },
    }
}

/// The wait before an execution that could not be started is tried again: a second, then twice as long each time, up to
/// about a minute. Each attempt is a row: a failure that lasts for hours must not leave one row per second. An attempt
/// that spent a retry or a crash had started, so it makes no wait longer.
pub fn not_started_delay(attempt: u32, view: ExecutionView) -> Duration {
    let spent = view.retry_count.saturating_add(view.crash_count);
    let before = attempt.saturating_sub(1).saturating_sub(spent);
    Duration::from_secs(1 << before.min(6))
}

/// The wait after the `errors`-th error: `initial × factor^(errors-1)`, at most `max`, ± jitter.
pub fn retry_delay(errors: u32, backoff: Backoff, spread: f64) -> Duration {
    let initial = backoff.initial.as_secs_f64();
    let exponent = i32::try_from(errors.saturating_sub(1)).unwrap_or(i32::MAX);
    let growth = backoff.factor.powi(exponent).min(f64::MAX);
    let capped = (initial * growth).clamp(0.0, backoff.max.as_secs_f64());
    let spread = (spread.clamp(0.0, 1.0) * 2.0 - 1.0) * backoff.jitter.clamp(0.0, 1.0);
    Duration::try_from_secs_f64(capped * (1.0 + spread)).unwrap_or(backoff.max)
}

/// A crash is not the step's fault, so the next attempt follows at once; a step that keeps killing
/// its process waits longer and longer once a third of the budget is spent.
fn crash_delay(crashes: u32, limits: &StepLimits) -> Duration {
    let patience = limits.max_crash / 3;
    let wait = limits
        .backoff
        .initial
        .saturating_mul(crashes.saturating_sub(patience));
    wait.min(limits.backoff.max)
}

/// Why a branch whose step failed halts, decided by how the last execution ended. An error that failed its step
/// although tries were left was one that is not tried again. Whether any were left is told by the limits of now: where
/// somebody has raised them since, the reason says "refused" of a step that had spent them.
pub fn halt_reason(
    last: ExecutionResult,
    error_class: Option<&str>,
    had_retries_left: bool,
) -> HaltReason {
    match (last, error_class) {
        (ExecutionResult::Error, Some(STEP_UNDEFINED)) => HaltReason::StepUndefined,
        (ExecutionResult::Error, Some(DATA_ERROR)) => HaltReason::StepRefused,
        (ExecutionResult::Error, _) if had_retries_left => HaltReason::StepRefused,
        (ExecutionResult::TimedOut, _) => HaltReason::JobTimedOut,
        (ExecutionResult::ProcessCrashed, _) => HaltReason::JobCrashesExhausted,
        _ => HaltReason::JobRetriesExhausted,
    }
}

/// The error class of a command whose exit status means "do not try again" (EX_DATAERR).
pub const DATA_ERROR: &str = "ExitStatus(65)";

/// The error class of an execution whose step has no code.
pub const STEP_UNDEFINED: &str = "step_undefined";
