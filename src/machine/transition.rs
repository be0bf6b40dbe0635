//! The legal changes of status of a run, a branch, a step and an execution, in one place.
//!
//! Owns: [`Lifecycle::next`], pure and total, for each of the four. Never: decides that an
//! event happens (`advance`, `outcome`, `barrier` do), or makes it happen: `store` writes it,
//! guarded by the same statuses, and a test checks the guards against this table. A pair that
//! is illegal here matches no row there.

use std::fmt;

use crate::model::{BranchStatus, ExecutionResult, RunStatus, StepStatus};

/// An event that does not happen in this status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{event}` does not happen to {entity} that is `{status}`")]
pub struct Illegal {
    /// The thing, with its article: `a branch`.
    pub entity: &'static str,
    /// The status it was in.
    pub status: &'static str,
    /// The event.
    pub event: &'static str,
}

/// A status, and the events that may happen in it.
pub trait Lifecycle: Copy + fmt::Debug + PartialEq + 'static {
    /// The events that may happen.
    type Event: Happening;
    /// The thing that has this status, with its article.
    const ENTITY: &'static str;
    /// Every status.
    const EVERY: &'static [Self];
    /// The statuses that something may be created with.
    const BORN: &'static [Self];

    /// The word that is stored and shown.
    fn word(self) -> &'static str;

    /// True when nothing happens to it any more.
    fn is_over(self) -> bool;

    /// The status after `event`.
    fn next(self, event: Self::Event) -> Result<Self, Illegal>;

    /// The refusal that implementations of [`Lifecycle::next`] return.
    fn refuse(self, event: Self::Event) -> Illegal {
        Illegal {
            entity: Self::ENTITY,
            status: self.word(),
            event: event.word(),
        }
    }
}

/// An event of a closed list.
pub trait Happening: Copy + fmt::Debug + PartialEq + 'static {
    /// Every event.
    const EVERY: &'static [Self];

    /// Its name.
    fn word(self) -> &'static str;
}

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {$(
            $(#[$vdoc])*
            $variant
        ),*}

        impl Happening for $name {
            const EVERY: &'static [Self] = &[$(Self::$variant),*];

            fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }
    )*};
}

events! {
    /// The events of a run.
    RunEvent {
        /// A branch of it begins to wait for a person.
        Dampen = "dampen",
        /// A branch goes on, and another still waits for a person.
        ResumeOne = "resume one",
        /// The last branch that waited for a person goes on.
        ResumeLast = "resume last",
        /// Its root branch ends.
        Complete = "complete",
        /// Its root branch halts.
        Halt = "halt",
        /// Somebody cancels it.
        Cancel = "cancel",
    }
    /// The events of a branch.
    BranchEvent {
        /// Its step has ended, and it waits for an advancer.
        Ready = "ready",
        /// An advancer claims it.
        Claim = "claim",
        /// The claim is given back, or taken from a dead advancer.
        Release = "release",
        /// It goes on with the next step.
        Continue = "continue",
        /// It is split, and waits at the barrier.
        Split = "split",
        /// It begins to wait for a person.
        Hold = "hold",
        /// It ends.
        End = "end",
        /// It stops for good.
        Halt = "halt",
        /// A person lets it go on, or a deadline does.
        Resume = "resume",
        /// Its run is cancelled.
        Cancel = "cancel",
    }
    /// The events of a step.
    StepEvent {
        /// Its output is committed; an advancer will take the branch on.
        Commit = "commit",
        /// Its output is committed, and the branch has crossed with it (or never will: a hook).
        Complete = "complete",
        /// It is out of budget.
        Fail = "fail",
        /// Its branch has been advanced.
        Leave = "leave",
        /// A person has answered, or a deadline in the person's place.
        Resume = "resume",
        /// Nobody has answered in time.
        Expire = "expire",
        /// Its run is cancelled.
        Cancel = "cancel",
    }
    /// The events of an execution.
    ExecutionEvent {
        /// A worker takes it.
        Claim = "claim",
        /// It has an output.
        Succeed = "succeed",
        /// The step reported an error.
        Err = "err",
        /// The process that ran it died.
        Crash = "crash",
        /// It took too long.
        TimeOut = "time out",
        /// It is given back at a shutdown.
        Release = "release",
        /// It goes back to the queue before it was started.
        PutBack = "put back",
        /// Its run is cancelled.
        Cancel = "cancel",
    }
}

/// The state of an execution; the database expresses it by `process_id` and `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExecutionStatus {
    /// It may be claimed, now or later.
    Queued,
    /// A process holds it.
    Claimed,
    /// It is closed.
    Ended(ExecutionResult),
}

impl Lifecycle for RunStatus {
    type Event = RunEvent;
    const ENTITY: &'static str = "a run";
    const EVERY: &'static [Self] = Self::ALL;
    const BORN: &'static [Self] = &[Self::InProgress];

    fn word(self) -> &'static str {
        self.as_str()
    }

    fn is_over(self) -> bool {
        self.is_terminal()
    }

    fn next(self, event: RunEvent) -> Result<Self, Illegal> {
        match (self, event) {
            (Self::InProgress | Self::Dampened, RunEvent::Dampen) => Ok(Self::Dampened),
            (Self::Dampened, RunEvent::ResumeOne) => Ok(Self::Dampened),
            (Self::Dampened, RunEvent::ResumeLast) => Ok(Self::InProgress),
            (Self::InProgress | Self::Dampened, RunEvent::Complete) => Ok(Self::Completed),
            (Self::InProgress | Self::Dampened, RunEvent::Halt) => Ok(Self::Halted),
            (Self::InProgress | Self::Dampened, RunEvent::Cancel) => Ok(Self::Cancelled),
            _ => Err(self.refuse(event)),
        }
    }
}

impl Lifecycle for BranchStatus {
    type Event = BranchEvent;
    const ENTITY: &'static str = "a branch";
    const EVERY: &'static [Self] = Self::ALL;
    const BORN: &'static [Self] = &[Self::InProgress];

    fn word(self) -> &'static str {
        self.as_str()
    }

    fn is_over(self) -> bool {
        self.is_terminal()
    }

    fn next(self, event: BranchEvent) -> Result<Self, Illegal> {
        use BranchEvent::*;
        match (self, event) {
            (Self::InProgress, Ready) => Ok(Self::InProgress),
            (Self::InProgress, Claim) => Ok(Self::Advancing),
            (Self::Advancing, Release) => Ok(Self::InProgress),
            // From `in_progress`: a worker crosses with its result. From `waiting`: the last
            // arrival at its barrier moves it.
            (Self::InProgress | Self::Advancing | Self::Waiting, Continue) => Ok(Self::InProgress),
            (Self::InProgress | Self::Advancing | Self::Waiting, End) => Ok(Self::Completed),
            (Self::Advancing | Self::Waiting, Halt) => Ok(Self::Halted),
            (Self::Advancing, Split) => Ok(Self::Waiting),
            (Self::Advancing, Hold) => Ok(Self::Dampened),
            (Self::Dampened, Resume) => Ok(Self::InProgress),
            (Self::InProgress | Self::Advancing | Self::Waiting | Self::Dampened, Cancel) => {
                Ok(Self::Cancelled)
            }
            _ => Err(self.refuse(event)),
        }
    }
}

impl Lifecycle for StepStatus {
    type Event = StepEvent;
    const ENTITY: &'static str = "a step";
    const EVERY: &'static [Self] = Self::ALL;
    const BORN: &'static [Self] = &[Self::InProgress, Self::Waiting];

    fn word(self) -> &'static str {
        self.as_str()
    }

    fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    fn next(self, event: StepEvent) -> Result<Self, Illegal> {
        match (self, event) {
            (Self::InProgress, StepEvent::Commit) => Ok(Self::Advancing),
            (Self::InProgress, StepEvent::Complete) => Ok(Self::Completed),
            (Self::InProgress, StepEvent::Fail) => Ok(Self::Failed),
            (Self::Advancing, StepEvent::Leave) => Ok(Self::Completed),
            (Self::Waiting, StepEvent::Resume) => Ok(Self::Advancing),
            (Self::Waiting, StepEvent::Expire) => Ok(Self::Failed),
            (Self::InProgress | Self::Advancing | Self::Waiting, StepEvent::Cancel) => {
                Ok(Self::Cancelled)
            }
            _ => Err(self.refuse(event)),
        }
    }
}

impl Lifecycle for ExecutionStatus {
    type Event = ExecutionEvent;
    const ENTITY: &'static str = "an execution";
    const EVERY: &'static [Self] = &[
        Self::Queued,
        Self::Claimed,
        Self::Ended(ExecutionResult::Success),
        Self::Ended(ExecutionResult::Error),
        Self::Ended(ExecutionResult::ProcessCrashed),
        Self::Ended(ExecutionResult::TimedOut),
        Self::Ended(ExecutionResult::Cancelled),
        Self::Ended(ExecutionResult::Released),
    ];
    /// `Claimed`: the worker that commits a step may take the next one along.
    const BORN: &'static [Self] = &[Self::Queued, Self::Claimed];

    fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Claimed => "claimed",
            Self::Ended(result) => result.as_str(),
        }
    }

    fn is_over(self) -> bool {
        matches!(self, Self::Ended(_))
    }

    fn next(self, event: ExecutionEvent) -> Result<Self, Illegal> {
        let ended = match (self, event) {
            (Self::Queued, ExecutionEvent::Claim) => return Ok(Self::Claimed),
            // It was claimed ahead, and never started.
            (Self::Claimed, ExecutionEvent::PutBack) => return Ok(Self::Queued),
            (Self::Claimed, ExecutionEvent::Succeed) => ExecutionResult::Success,
            (Self::Claimed, ExecutionEvent::Err) => ExecutionResult::Error,
            (Self::Claimed, ExecutionEvent::Crash) => ExecutionResult::ProcessCrashed,
            (Self::Claimed, ExecutionEvent::TimeOut) => ExecutionResult::TimedOut,
            (Self::Claimed, ExecutionEvent::Release) => ExecutionResult::Released,
            (Self::Queued | Self::Claimed, ExecutionEvent::Cancel) => ExecutionResult::Cancelled,
            _ => return Err(self.refuse(event)),
        };
        Ok(Self::Ended(ended))
    }
}
