//! The roster's vocabulary: the events that it is told and the orders that it gives.

use std::fmt;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::model::Role;

/// A process id.
pub type Pid = i32;

/// A child's purpose.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChildKind {
    /// Advances the branches of every pipeline.
    Advancer,
    /// Runs the steps of one pipeline.
    Worker {
        /// Its name.
        pipeline: String,
    },
    /// Shows people the state of the system.
    Console,
}

impl ChildKind {
    /// The role of its process.
    pub fn role(&self) -> Role {
        match self {
            Self::Advancer => Role::Advancer,
            Self::Worker { .. } => Role::Worker,
            Self::Console => Role::Console,
        }
    }

    /// True where work waits for the child: a daemon whose console is missing is as ready as one that has none.
    pub fn moves_work(&self) -> bool {
        !matches!(self, Self::Console)
    }

    /// True where the child has read the definitions, to start runs from them; a run carries its own.
    pub fn holds_definitions(&self) -> bool {
        matches!(self, Self::Console)
    }
}

impl fmt::Display for ChildKind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Advancer => to.write_str("advancer"),
            Self::Worker { pipeline } => write!(to, "worker {pipeline}"),
            Self::Console => to.write_str("console"),
        }
    }
}

/// A place in the roster: at most one living process at a time. Never used again once freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

/// The spans that the configuration sets.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// After this long without a heartbeat a peer may reap a process.
    pub reaper_timeout: Duration,
    /// The time that children get to finish between SIGTERM and SIGKILL.
    pub shutdown_timeout: Duration,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An order to spawn was carried out.
    Spawned {
        /// The order's slot.
        slot: SlotId,
        /// The new process.
        pid: Pid,
        /// Now.
        at: Duration,
    },
    /// An order to spawn could not be carried out.
    SpawnFailed {
        /// The order's slot.
        slot: SlotId,
        /// Now.
        at: Duration,
    },
    /// A child was reaped: proof of its death. How it died makes no difference here.
    Exited {
        /// Its process.
        pid: Pid,
        /// Now.
        at: Duration,
    },
    /// A child was reaped that ended because it was asked whether it reaches the database, and does not.
    GaveUp {
        /// Its process.
        pid: Pid,
        /// Now.
        at: Duration,
    },
    /// The database's report about a child.
    Heartbeat {
        /// Its slot.
        slot: SlotId,
        /// Its process, so that a report about a predecessor is never held against it.
        pid: Pid,
        /// Age of the last heartbeat by the database's clock; `None`: not registered.
        age: Option<Duration>,
        /// Now.
        at: Duration,
    },
    /// The kernel's report about a living child.
    Seen {
        /// Its slot.
        slot: SlotId,
        /// Its process.
        pid: Pid,
        /// Stopped by a signal (SIGSTOP): it does nothing until it is continued.
        frozen: bool,
        /// Now.
        at: Duration,
    },
    /// Time passed.
    Tick {
        /// Now.
        at: Duration,
    },
    /// The daemon is to stop; immediately when asked for the second time.
    Stop {
        /// Now.
        at: Duration,
        /// True: it waits for nobody.
        immediate: bool,
    },
    /// The database cannot be reached: nobody is judged.
    DatabaseLost,
    /// The database can be reached again: every child gets a heartbeat interval of grace.
    DatabaseBack {
        /// Now.
        at: Duration,
    },
    /// Children are to make room for new ones: somebody asked for that, or the configuration has changed.
    Replace {
        /// All children that are wanted.
        wanted: Vec<ChildKind>,
        /// Those of them that go on if they are there, because nothing has changed for them.
        stays: Vec<ChildKind>,
        /// Now.
        at: Duration,
    },
    /// Only definitions in files have changed: the child that holds them is to make room for one that reads
    /// them.
    Redefined {
        /// Now.
        at: Duration,
    },
    /// Stop claiming (true) or claim again (false).
    Quiet(bool),
}

/// Why a dead child's claims are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nobody asked it to end: what it ran has crashed.
    Crash,
    /// It was asked to end, or killed because the daemon stops, or the database kept it out: what it ran is released.
    Stopped,
}

/// An order to the supervisor. Orders about one child are carried out in sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Start a child, and answer with `Spawned` or `SpawnFailed`.
    Spawn {
        /// For the answer.
        slot: SlotId,
        /// The kind of child to start.
        kind: ChildKind,
    },
    /// Send a signal; it is no error if the process is already gone.
    Signal {
        /// Its slot.
        slot: SlotId,
        /// The process to signal.
        pid: Pid,
        /// The signal.
        signal: Signal,
    },
    /// This process is proven dead: recover its claims (as soon as the database can be
    /// reached), and end what its steps left behind.
    Recover {
        /// Its slot.
        slot: SlotId,
        /// The dead process.
        pid: Pid,
        /// How its claims are closed.
        cause: Cause,
    },
    /// A child dies again and again.
    ReportCrashLoop {
        /// Its slot.
        slot: SlotId,
        /// Deaths in a row.
        deaths: u32,
        /// Until the next attempt.
        retry_in: Duration,
    },
    /// A child does not even die of SIGKILL (it sits in the kernel); nothing waits for it.
    ReportUnkillable {
        /// Its slot.
        slot: SlotId,
        /// The process.
        pid: Pid,
    },
    /// All children are gone: the supervisor ends. Given once.
    Exit {
        /// 1 when an unkillable child was left behind.
        code: u8,
    },
}

/// How a child is doing, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Dead or not started yet; it will be started (again) later.
    Waiting,
    /// Started, not registered.
    Starting,
    /// Registered.
    Up,
    /// Asked to end.
    Stopping,
    /// Sent SIGKILL.
    Killed,
}

impl fmt::Display for Standing {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.pad(match self {
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Up => "up",
            Self::Stopping => "stopping",
            Self::Killed => "killed",
        })
    }
}

/// One line of the table of children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child<'a> {
    /// Its place.
    pub slot: SlotId,
    /// Its purpose.
    pub kind: &'a ChildKind,
    /// Its living process.
    pub pid: Option<Pid>,
    /// How it is doing.
    pub standing: Standing,
    /// The time since which it runs without having registered.
    pub unregistered_since: Option<Duration>,
    /// The cause of its death, if it was sent SIGKILL.
    pub killed: Option<Cause>,
    /// Deaths since it was last healthy.
    pub deaths: u32,
}
