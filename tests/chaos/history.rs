//! The history after a storm: the ledger of the steps, the rows of the database, the answers to
//! triggers, and the faults.

use std::time::Duration;

use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Error, Row};
use uuid::Uuid;

/// Everything that the oracle looks at.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In the order in which they were written, on the only host.
    pub lines: Vec<Line>,
    pub runs: Vec<Run>,
    pub steps: Vec<Step>,
    /// Ordered by step and attempt.
    pub executions: Vec<Execution>,
    pub triggers: Vec<Trigger>,
    pub orders: Vec<Order>,
    pub faults: Vec<Fault>,
    /// The length of a lease.
    pub lease: Duration,
}

/// A step's entry in its ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Start,
    /// The step has done its work; the payload is its output.
    End,
    /// The step has failed on purpose.
    Fail,
}

/// A line of the ledger.
#[derive(Clone, Debug)]
pub struct Line {
    pub phase: Phase,
    pub run: Uuid,
    pub step: Uuid,
    pub execution: Uuid,
    pub attempt: u32,
    pub node: String,
    pub nonce: String,
    pub pid: i32,
    /// The worker process that started the step.
    pub worker: i32,
    /// Time since the host was booted.
    pub at: Duration,
    /// The step's input or output.
    pub payload: String,
}

#[derive(Clone, Debug)]
pub struct Run {
    pub id: Uuid,
    pub pipeline: String,
    pub status: String,
    pub input: String,
    pub output: Option<String>,
    /// The halted run that this one continues.
    pub revived_from: Option<Uuid>,
    /// By the database's clock, in microseconds.
    pub triggered: i64,
    /// By the same clock; none if it has not ended.
    pub ended: Option<i64>,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub id: Uuid,
    pub run: Uuid,
    pub node: String,
    pub status: String,
    pub input: String,
    pub output: Option<String>,
    /// The step of the previous run that this one copies.
    pub source: Option<Uuid>,
}

#[derive(Clone, Debug)]
pub struct Execution {
    pub id: Uuid,
    pub step: Uuid,
    pub attempt: u32,
    pub retries: u32,
    pub crashes: u32,
    /// Empty if there is none yet.
    pub result: String,
    /// The attempt's log, for the reader of a failure.
    pub error: Option<String>,
    /// By the database's clock, in microseconds.
    pub claimed: Option<i64>,
}

/// A trigger of a run, with an input that no other trigger has.
#[derive(Clone, Debug)]
pub struct Trigger {
    pub input: String,
    pub answer: Answer,
}

/// The answer to a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Run(Uuid),
    /// The trigger was refused: there is no run.
    Refused,
    /// No answer arrived: there may be a run.
    Unknown,
}

/// An order about a run.
#[derive(Clone, Debug)]
pub struct Order {
    pub run: Uuid,
    pub told: Told,
    /// When the answer arrived, since the host was booted.
    pub until: Duration,
}

/// The answer to an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// This order cancelled the run.
    Cancelled,
    /// The run had already ended, with this status.
    Over(String),
    /// This order revived the run, as that one.
    Revived(Uuid),
    /// The run had been revived before, as that one.
    Before(Uuid),
    /// The order was refused and nothing was done.
    Refused,
    /// No answer arrived; the run may be cancelled.
    MayBeCancelled,
    /// No answer arrived; the run may be revived.
    MayBeRevived,
}

/// An act upon a process, or upon all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    KillWorker,
    KillAdvancer,
    KillSupervisor,
    KillStep,
    /// A process is stopped, and continued later.
    Freeze,
    /// All processes of a host are stopped for longer than their leases last.
    Sleep,
    /// A daemon is ended with TERM, and started again.
    Restart,
    /// The same, with several TERMs.
    Storm,
    Replace,
    /// A host's log is not read, and its pipe is full.
    Log,
    /// A worker can open no more descriptors.
    Descriptors,
    /// The server crashes and comes back.
    Server,
    /// A node of a cluster is killed, and starts again; now and then without its data.
    KillNode,
    /// All nodes are killed at once.
    KillNodes,
    /// A node stands still, at times for so long that the others go on without it.
    StopNode,
    /// A node is cut off from the others.
    IsolateNode,
    /// Two nodes are cut off, so that no node is in a majority.
    NoQuorum,
    /// A node accepts no writes, as during a backup or while it sends its data to another.
    LockNode,
    /// Another program holds SQLite's lock.
    Lock,
    /// Writes to SQLite's files fail: no space.
    NoSpace,
    /// The same, with an I/O error of the device.
    WriteError,
    /// A write stores half of its data, and then there is no space.
    ShortWrite,
    /// Writes succeed, but fsync fails.
    SyncError,
    /// Connections are reset.
    Reset,
    /// Nothing gets through for a while, and neither side is told.
    BlackHole,
    /// The existing connections go silent for good; new ones can be opened.
    Silent,
    /// A host's only interface is down; its kernel keeps retransmitting.
    Partition,
    /// The same in one direction.
    OneWay,
    /// A connection ends after a number of bytes.
    Cut,
    /// Everything takes longer.
    Delay,
    /// A host's clock is set.
    Clock,
    /// A foreign session has locked one of the tables.
    TableLock,
    /// A foreign session ends each slow statement of a host.
    StatementTimeout,
    /// The disk of the server's tables is full.
    FullTablespace,
    /// A wide run is cancelled while its fan-out is being made, or once it is made.
    WideCancel,
    /// Runs that ended long ago are deleted.
    Prune,
    /// A run has a definition that only a newer version can read.
    Newer,
}

impl Kind {
    /// True when a process is killed at once.
    pub fn is_kill(self) -> bool {
        use Kind::*;
        matches!(self, KillWorker | KillAdvancer | KillSupervisor | KillStep)
    }

    /// True when the database's files cannot be written.
    pub fn is_of_the_disk(self) -> bool {
        use Kind::*;
        matches!(self, NoSpace | WriteError | ShortWrite | SyncError)
    }

    /// True when the fault hits one or more nodes of a cluster.
    pub fn is_of_a_node(self) -> bool {
        use Kind::*;
        matches!(
            self,
            KillNode | KillNodes | StopNode | IsolateNode | NoQuorum | LockNode
        )
    }

    /// True when some host can do nothing with the database for a while.
    pub fn is_outage(self) -> bool {
        use Kind::*;
        self.is_of_the_disk()
            || self.is_of_a_node()
            || matches!(
                self,
                Server
                    | Lock
                    | TableLock
                    | StatementTimeout
                    | FullTablespace
                    | BlackHole
                    | OneWay
                    | Silent
                    | Partition
            )
    }

    /// True when the processes that were hit go on, and may know less than the database does.
    pub fn leaves_zombies(self) -> bool {
        use Kind::*;
        self.is_of_the_disk()
            || matches!(
                self,
                Freeze | Sleep | BlackHole | OneWay | Silent | Partition
            )
    }
}

/// A fault that was injected on purpose.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Its number in the plan.
    pub number: usize,
    pub kind: Kind,
    pub target: String,
    /// Time since the host was booted.
    pub at: Duration,
    pub until: Duration,
    /// The processes that may lose their work by it.
    pub hit: Vec<i32>,
}

/// How long the host has been up: the ledger's clock.
pub fn uptime() -> Duration {
    let text = std::fs::read_to_string("/proc/uptime").expect("/proc/uptime");
    seconds(text.split(' ').next().expect("split yields one"))
}

fn seconds(text: &str) -> Duration {
    Duration::from_secs_f64(
        text.parse()
            .unwrap_or_else(|_| panic!("not seconds: {text}")),
    )
}

impl Line {
    /// Reads a line.
    pub fn parse(line: &str) -> Self {
        assert!(line.len() < 512, "too long for one write: {line}");
        let words: Vec<&str> = line.split(' ').collect();
        let [
            phase,
            run,
            step,
            execution,
            attempt,
            node,
            nonce,
            pid,
            worker,
            at,
            payload,
        ] = words[..]
        else {
            panic!("no line of the ledger: {line}")
        };
        let id = |text: &str| Uuid::parse_str(text).unwrap_or_else(|_| panic!("no id: {line}"));
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("no pid: {line}"));
        Self {
            phase: match phase {
                "start" => Phase::Start,
                "end" => Phase::End,
                "fail" => Phase::Fail,
                _ => panic!("no phase: {line}"),
            },
            run: id(run),
            step: id(step),
            execution: id(execution),
            attempt: attempt.parse().unwrap(),
            node: node.to_owned(),
            nonce: nonce.to_owned(),
            pid: number(pid),
            worker: number(worker),
            at: seconds(at),
            payload: payload.to_owned(),
        }
    }
}

impl History {
    /// Adds the contents of the database, without the runs of some faults (`aside`).
    pub async fn read(&mut self, conn: &mut Conn) {
        static RUNS: Statement = Statement::new(
            "TEST_RUNS",
            "SELECT id, pipeline, status, input, output, revived_from, triggered_at,
                    coalesce(completed_at, halted_at, cancelled_at) AS ended_at
               FROM ductwork_runs WHERE pipeline <> 'Aside' ORDER BY id",
        );
        static STEPS: Statement = Statement::new(
            "TEST_STEPS",
            "SELECT s.id, s.run_id, s.node, s.status, s.input, s.output, s.source_step_id
               FROM ductwork_steps s
              WHERE NOT EXISTS (SELECT 1 FROM ductwork_runs r
                                 WHERE r.id = s.run_id AND r.pipeline = 'Aside')
              ORDER BY s.id",
        );
        static EXECUTIONS: Statement = Statement::new(
            "TEST_ATTEMPTS",
            "SELECT id, step_id, attempt, retry_count, crash_count, result, claimed_at,
                    error_message
               FROM ductwork_executions WHERE pipeline <> 'Aside' ORDER BY step_id, attempt",
        );
        self.runs = rows(conn, &RUNS, |row| {
            Ok(Run {
                id: row.get("id")?,
                pipeline: row.get("pipeline")?,
                status: row.get("status")?,
                input: row.get("input")?,
                output: row.get("output")?,
                revived_from: row.get("revived_from")?,
                triggered: row.get("triggered_at")?,
                ended: row.get("ended_at")?,
            })
        })
        .await;
        self.steps = rows(conn, &STEPS, |row| {
            Ok(Step {
                id: row.get("id")?,
                run: row.get("run_id")?,
                node: row.get("node")?,
                status: row.get("status")?,
                input: row.get("input")?,
                output: row.get("output")?,
                source: row.get("source_step_id")?,
            })
        })
        .await;
        self.executions = rows(conn, &EXECUTIONS, |row| {
            Ok(Execution {
                id: row.get("id")?,
                step: row.get("step_id")?,
                attempt: row.count("attempt")?,
                retries: row.count("retry_count")?,
                crashes: row.count("crash_count")?,
                result: row.get::<Option<String>>("result")?.unwrap_or_default(),
                error: row.get("error_message")?,
                claimed: row.get("claimed_at")?,
            })
        })
        .await;
    }
}

async fn rows<T>(
    conn: &mut Conn,
    statement: &Statement,
    read: impl Fn(&Row) -> Result<T, Error>,
) -> Vec<T> {
    let rows = conn.fetch(statement, &[]).await.expect("what is stored");
    let rows: Result<_, _> = rows.iter().map(read).collect();
    rows.expect("rows as they were asked for")
}
