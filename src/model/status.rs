//! The closed lists of words that the database stores, in one place.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A stored word that this program does not know.
#[derive(Debug, thiserror::Error)]
#[error("unknown {kind} `{word}` in the database (written by a newer version?)")]
pub struct UnknownWord {
    kind: &'static str,
    word: String,
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {$(
            $(#[$vdoc])*
            #[doc = concat!("Stored and shown as `", $word, "`.")]
            #[serde(rename = $word)]
            $variant
        ),*}

        impl $name {
            /// Every word, in the order of the documentation.
            #[cfg_attr(
                not(feature = "internals"),
                allow(dead_code, reason = "the machine's tests ask all for it")
            )]
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The word as stored and shown.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.pad(self.as_str())
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "enum": [$($word),*] })
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                match word {
                    $($word => Ok($name::$variant),)*
                    _ => Err(UnknownWord { kind: stringify!($name), word: word.to_owned() }),
                }
            }
        }
    )*};
}

words! {
    /// State of a run.
    RunStatus {
        InProgress = "in_progress",
        /// At least one branch waits for a person.
        Dampened = "dampened",
        Completed = "completed",
        Halted = "halted",
        Cancelled = "cancelled",
    }
    /// State of a branch.
    BranchStatus {
        /// Its current step is to run, or is running.
        InProgress = "in_progress",
        /// Claimed by an advancer.
        Advancing = "advancing",
        /// Waits at a barrier for the branches of its fan-out.
        Waiting = "waiting",
        /// Waits for a person.
        Dampened = "dampened",
        Completed = "completed",
        Halted = "halted",
        Cancelled = "cancelled",
    }
    /// State of a step.
    StepStatus {
        /// To run, running, or to run again.
        InProgress = "in_progress",
        /// Its output is committed; its branch has yet to be advanced.
        Advancing = "advancing",
        /// Waits for a person.
        Waiting = "waiting",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
    }
    /// How an execution ended.
    ExecutionResult {
        Success = "success",
        /// The step reported an error.
        Error = "error",
        /// There was no report: the process that ran it died.
        ProcessCrashed = "process_crashed",
        TimedOut = "timed_out",
        Cancelled = "cancelled",
        /// Given back at a shutdown: neither error nor crash.
        Released = "released",
    }
    /// Why a branch stopped for good.
    HaltReason {
        JobRetriesExhausted = "job_retries_exhausted",
        JobCrashesExhausted = "job_crashes_exhausted",
        JobTimedOut = "job_timed_out",
        /// The step said that it must not be tried again.
        StepRefused = "step_refused",
        AdvancerRetriesExhausted = "advancer_retries_exhausted",
        AdvancerCrashesExhausted = "advancer_crashes_exhausted",
        MaxFanoutExceeded = "max_fanout_exceeded",
        ConditionUnmatched = "condition_unmatched",
        TransitionInvalid = "transition_invalid",
        PayloadTooLarge = "payload_too_large",
        StepUndefined = "step_undefined",
        /// Nobody answered a question within its time.
        Unanswered = "unanswered",
    }
    /// A step outside the flow: a run calls it at a certain moment.
    Hook {
        /// Once for each run that halts.
        Halt = "on_halt",
        /// Once for each run that completes.
        Complete = "on_complete",
        /// Once for each wait for a person.
        Wait = "on_wait",
    }
    /// The transition by which a step was reached.
    Via {
        Start = "start",
        Chain = "chain",
        Divide = "divide",
        Combine = "combine",
        Expand = "expand",
        Collapse = "collapse",
        Divert = "divert",
        Converge = "converge",
        Dampen = "dampen",
        /// The hook of a halted run; like all hooks, it is not on the way of any branch.
        OnHalt = "on_halt",
        /// The hook of a completed run.
        OnComplete = "on_complete",
        /// The hook of a wait for a person.
        OnWait = "on_wait",
        /// The end of a branch: the transition leads nowhere.
        End = "end",
    }
    /// A process's role.
    Role {
        Supervisor = "supervisor",
        Advancer = "advancer",
        Worker = "worker",
        /// It shows runs and processes, and claims nothing.
        Console = "console",
    }
    /// The rights of a visitor of the console; each right includes those before it.
    Scope {
        /// Sees everything.
        Read = "read",
        /// Triggers, revives, cancels and answers runs, and pauses pipelines.
        Operate = "operate",
        /// Creates tokens, and revokes them.
        Admin = "admin",
    }
    /// The purpose of a secret that identifies a visitor.
    TokenKind {
        /// A program presents it with each request.
        Token = "token",
        /// It lets one browser in, once.
        Link = "link",
        /// A browser that was let in presents it, until it signs out.
        Session = "session",
    }
    /// The channel through which an action came.
    Channel {
        /// The command line.
        Cli = "cli",
        /// A program.
        Api = "api",
        /// A page of the console.
        Console = "console",
    }
    /// An action.
    Verb {
        Trigger = "trigger",
        Revive = "revive",
        Cancel = "cancel",
        /// A person has answered.
        Resume = "resume",
        Pause = "pause",
        Unpause = "unpause",
        /// Sends a message about a run once more.
        Send = "send",
    }
}

impl Hook {
    /// The transition by which its step is reached.
    pub const fn via(self) -> Via {
        match self {
            Self::Halt => Via::OnHalt,
            Self::Complete => Via::OnComplete,
            Self::Wait => Via::OnWait,
        }
    }

    /// The name of its step's node: no step of a flow can have this name.
    pub const fn node(self) -> &'static str {
        match self {
            Self::Halt => "(on_halt)",
            Self::Complete => "(on_complete)",
            Self::Wait => "(on_wait)",
        }
    }
}

impl Via {
    /// True for a hook, which moves no branch.
    pub const fn is_hook(self) -> bool {
        matches!(self, Self::OnHalt | Self::OnComplete | Self::OnWait)
    }
}

impl RunStatus {
    /// True when the run will never change again.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Halted | Self::Cancelled)
    }
}

#[cfg(feature = "internals")]
impl BranchStatus {
    /// True when the branch will never change again.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Halted | Self::Cancelled)
    }
}

/// Whether a process takes new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intake {
    /// It takes what is due.
    Open,
    /// It takes nothing until it is told to, and finishes what it holds.
    Quiet,
    /// It was told to end, takes nothing, and finishes what it holds.
    Stopping,
}

impl Intake {
    /// The number that stands for it in the process's row.
    pub const fn code(self) -> i64 {
        match self {
            Self::Open => 0,
            Self::Quiet => 1,
            Self::Stopping => 2,
        }
    }

    /// The state for which this number stands. Every number but 0 stands for a process that takes nothing, whatever
    /// version wrote it.
    pub const fn of(code: i64) -> Self {
        match code {
            0 => Self::Open,
            2 => Self::Stopping,
            _ => Self::Quiet,
        }
    }

    /// True if it takes what is due.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Open)
    }
}
