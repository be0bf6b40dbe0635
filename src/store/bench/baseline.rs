//! The limit of the database itself: the row writes of our steps, as plain SQL.
//!
//! Owns: the same rows in tables of the same shape, as many per transaction as requested, with
//! everything prepared that can be: the ids are already in a temporary table, so nothing is sent,
//! decided, or read back. Never: runs beside real runs, or keeps any promise: it guards nothing,
//! and the rows that it leaves break the invariants.

use std::time::{Duration, Instant};

use crate::definition::Definition;
use crate::model::{ProcessId, Role};

use super::super::backend::Setting;
use super::super::conn::{Conn, Location, Purpose};
use super::super::dialect::Dialect;
use super::super::error::Error;
use super::super::process::{self, NewProcess};
use super::super::statement::{Only, Statement};
use super::data::{self, Numbers};

/// The longest time of one measurement: it ends sooner when its rows are used up.
const LONGEST: Duration = Duration::from_secs(5);

static NUMBER_MOVES: Statement = Statement::new(
    "NUMBER_MOVES",
    "
    INSERT INTO ductwork_moves
    SELECT (n - n % :batch) / :batch, {made:1;:base + n % :runs}, {made:2;:base + n % :runs}, {made:3;:base + n},
           {made:4;:base + n}, {made:3;:base + n + :batch}, {made:4;:base + n + :batch},
           {made:5;:base + n}, {made:6;:base + n}
      FROM {series}",
);
/// Writes the rows of a table that a round's moves name; MySQL has its own syntax for it.
macro_rules! update {
    ($name:ident, $table:literal, $set:literal, $key:literal) => {
        static $name: Statement = {
            static JOINED: Statement = Statement::only(
                Only::Mysql,
                concat!("LIMIT_", stringify!($name), "_JOINED"),
                concat!(
                    "UPDATE ductwork_moves m STRAIGHT_JOIN ",
                    $table,
                    " SET ",
                    $set,
                    " WHERE m.round = :round AND ",
                    $table,
                    ".id = m.",
                    $key
                ),
            );
            Statement::new(
                concat!("LIMIT_", stringify!($name)),
                concat!(
                    "UPDATE ",
                    $table,
                    " SET ",
                    $set,
                    " FROM ductwork_moves m WHERE m.round = :round AND ",
                    $table,
                    ".id = m.",
                    $key
                ),
            )
            .on_mysql(&[&JOINED])
        };
    };
}
/// The keys of each round's moves.
static CREATE_MOVES: Statement = Statement::new(
    "LIMIT_CREATE_MOVES",
    "
    CREATE TEMPORARY TABLE ductwork_moves (round bigint, run_id {id}, branch_id {id}, from_step_id {id},
        execution_id {id}, next_step_id {id}, next_execution_id {id}, transition_id {id},
        advancement_id {id})",
);
static TOUCH: Statement = Statement::new(
    "LIMIT_TOUCH",
    "
    UPDATE ductwork_processes SET beat_seq = beat_seq + 1, last_heartbeat_at = {now}
     WHERE id = :process",
);
static DEQUEUE: Statement = Statement::new(
    "LIMIT_DEQUEUE",
    "
    DELETE FROM ductwork_availabilities
     WHERE execution_id IN (SELECT m.next_execution_id FROM ductwork_moves m WHERE m.round = :round)",
)
.on_mysql(&[&DEQUEUE_JOINED]);
static DEQUEUE_JOINED: Statement = Statement::only(
    Only::Mysql,
    "LIMIT_DEQUEUE_JOINED",
    "
    DELETE ductwork_availabilities FROM ductwork_moves m STRAIGHT_JOIN ductwork_availabilities
     WHERE m.round = :round AND ductwork_availabilities.execution_id = m.next_execution_id",
);
update!(
    STAMP,
    "ductwork_executions",
    "process_id = :process, claimed_at = {now}, lease_until = {now}",
    "next_execution_id"
);
update!(
    CLOSE,
    "ductwork_executions",
    "completed_at = {now}, result = 'success'",
    "execution_id"
);
update!(
    END,
    "ductwork_steps",
    "status = 'completed', output = 'null', completed_at = {now}",
    "from_step_id"
);
update!(
    MOVE,
    "ductwork_branches",
    "step_id = m.next_step_id, last_advanced_at = {now}",
    "branch_id"
);
static NEXT_STEP: Statement = Statement::new(
    "LIMIT_NEXT_STEP",
    "
    INSERT INTO ductwork_steps
        (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
    SELECT m.next_step_id, m.run_id, m.branch_id, m.round + 1, 'Noop', 'Noop', 'chain',
           m.transition_id, 'in_progress', 'null', {now}
      FROM ductwork_moves m WHERE m.round = :round",
);
static NEXT_EXECUTION: Statement = Statement::new(
    "LIMIT_NEXT_EXECUTION",
    "
    INSERT INTO ductwork_executions
        (id, step_id, pipeline, attempt, process_id, claimed_at, lease_until)
    SELECT m.next_execution_id, m.next_step_id, 'Limit', 1, :process, {now}, {now}
      FROM ductwork_moves m WHERE m.round = :round",
);
update!(
    END_BRANCH,
    "ductwork_branches",
    "status = 'completed', last_advanced_at = {now}",
    "branch_id"
);
update!(
    END_RUN,
    "ductwork_runs",
    "status = 'completed', completed_at = {now}, output = 'null'",
    "run_id"
);
static TRANSITION: Statement = Statement::new(
    "LIMIT_TRANSITION",
    "
    INSERT INTO ductwork_transitions
        (id, run_id, branch_id, from_step_id, via, produced, opened_at, completed_at)
    SELECT m.transition_id, m.run_id, m.branch_id, m.from_step_id, 'chain', 1, {now}, {now}
      FROM ductwork_moves m WHERE m.round = :round",
);
static ADVANCEMENT: Statement = Statement::new(
    "LIMIT_ADVANCEMENT",
    "
    INSERT INTO ductwork_advancements
        (id, transition_id, branch_id, process_id, claim_token, claimed_at, lease_until,
         completed_at, result)
    SELECT m.advancement_id, m.transition_id, m.branch_id, :process, m.advancement_id, {now}, {now},
           {now}, 'success'
      FROM ductwork_moves m WHERE m.round = :round",
);

static CHAIN: &[&Statement] = &[
    &CLOSE,
    &END,
    &MOVE,
    &NEXT_STEP,
    &NEXT_EXECUTION,
    &TRANSITION,
    &ADVANCEMENT,
];
static FLAT: &[&Statement] = &[
    &DEQUEUE,
    &STAMP,
    &CLOSE,
    &END,
    &END_BRANCH,
    &END_RUN,
    &TRANSITION,
    &ADVANCEMENT,
];

/// The kind of work whose row writes are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A step in the middle of a chain: four inserts and three updates.
    Chain,
    /// A run of one step, from the queue to its end: one delete, five updates, two inserts.
    Flat,
}

impl Load {
    /// The statements of one transaction, after the write of the process's row.
    fn statements(self) -> &'static [&'static Statement] {
        match self {
            Self::Chain => CHAIN,
            Self::Flat => FLAT,
        }
    }
}

/// The finished work, and its time.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Steps whose rows were written.
    pub steps: u64,
    /// The time from the first to the last.
    pub took: Duration,
}

/// One client, with the work that it has to write.
struct Writer {
    conn: Conn,
    process: ProcessId,
    load: Load,
    batch: u64,
    rounds: u64,
}

/// Writes the rows of about `steps` steps, `batch` per transaction, over this many connections.
pub async fn write(
    location: &Location,
    definition: &Definition,
    load: Load,
    connections: u64,
    batch: u64,
    steps: u64,
) -> Result<Done, Error> {
    let rounds = (steps / connections / batch).max(2);
    let mut writers = Vec::new();
    for _ in 0..connections {
        writers.push(Writer::prepare(location, definition, load, batch, rounds).await?);
    }
    let began = Instant::now();
    let written = match writers.as_mut_slice() {
        [first, second] => {
            let (first, second) = tokio::join!(first.write(began), second.write(began));
            first? + second?
        }
        writers => {
            let mut written = 0;
            for writer in writers {
                written += writer.write(began).await?;
            }
            written
        }
    };
    let took = began.elapsed();
    for writer in writers {
        writer.conn.close().await;
    }
    Ok(Done {
        steps: written,
        took,
    })
}

/// How long it takes to commit the update of one row, measured `count` times.
pub async fn commits(location: &Location, count: usize) -> Result<Vec<Duration>, Error> {
    let mut conn = location.connect(Purpose::Engine).await?;
    let process = register(&mut conn).await?;
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        conn.execute(&TOUCH, &[("process", process.0.into())])
            .await?;
        took.push(began.elapsed());
    }
    process::deregister(&mut conn, process).await?;
    conn.close().await;
    Ok(took)
}

impl Writer {
    async fn prepare(
        location: &Location,
        definition: &Definition,
        load: Load,
        batch: u64,
        rounds: u64,
    ) -> Result<Self, Error> {
        let mut conn = location.connect(Purpose::Engine).await?;
        let process = register(&mut conn).await?;
        conn.set(Setting::TemporaryInMemory).await?;
        conn.execute(&CREATE_MOVES, &[]).await?;
        let index = "CREATE INDEX ductwork_moves_round ON ductwork_moves (round)";
        conn.script("CREATE INDEX", index).await?;
        // The first half of the number is the time, to the ms, and two connections may have the
        // same.
        let mut numbers = Numbers::now(&mut conn).await?;
        numbers.spread(process);
        // The branches of a chain stay the same; each batch of flat runs has its own.
        let (runs, needed) = match load {
            Load::Chain => (batch, batch),
            Load::Flat => (i64::MAX as u64, batch * (rounds + 1)),
        };
        let base = data::waiting(&mut conn, definition, needed, &mut numbers, &|_| {}).await?;
        let args = [
            ("first", 0i64.into()),
            ("last", ((batch * rounds) as i64 - 1).into()),
            ("time", numbers.time.into()),
            ("base", base.into()),
            ("batch", (batch as i64).into()),
            ("runs", (runs as i64).into()),
        ];
        conn.execute(&NUMBER_MOVES, &args).await?;
        // For MySQL, the statements give the order of the joins.
        if conn.dialect() != Dialect::Mysql {
            conn.script("ANALYZE", "ANALYZE ductwork_moves").await?;
        }
        Ok(Self {
            conn,
            process,
            load,
            batch,
            rounds,
        })
    }

    /// Writes round by round, and returns how many steps it wrote.
    async fn write(&mut self, began: Instant) -> Result<u64, Error> {
        let mut written = 0;
        for round in 0..self.rounds {
            let process = self.process;
            let load = self.load;
            self.conn
                .transaction(async |conn| {
                    let args = [
                        ("process", process.0.into()),
                        ("round", (round as i64).into()),
                    ];
                    conn.execute(&TOUCH, &args).await?;
                    for statement in load.statements() {
                        conn.execute(statement, &args).await?;
                    }
                    Ok(())
                })
                .await?;
            written += self.batch;
            if began.elapsed() > LONGEST {
                break;
            }
        }
        Ok(written)
    }
}

async fn register(conn: &mut Conn) -> Result<ProcessId, Error> {
    let id = ProcessId::new();
    let nobody = NewProcess {
        id,
        supervisor: None,
        role: Role::Worker,
        pipeline: None,
        host: String::new(),
        boot_id: String::new(),
        pid_namespace: String::new(),
        pid: 0,
        pid_started_at: 0,
    };
    process::register(conn, &nobody).await?;
    Ok(id)
}
