//! Filled tables: the backlog and the history that a benchmark needs.
//!
//! Owns: the rows of many runs, which the database itself makes in a few statements, as valid as if
//! the runs had been triggered and worked. Never: used on real runs: the ids are made from numbers,
//! so that each statement finds the rows of the others.

use crate::definition::Definition;
use crate::model::{ProcessId, Via};

use super::super::conn::Conn;
use super::super::definition;
use super::super::error::Error;
use super::super::query;
use super::super::statement::{Arg, Args, Rows, statements};

/// Runs per statement: this bounds how much one transaction holds.
const CHUNK: u64 = 20_000;

statements! {
    FILL_WAITING_RUNS = "
        INSERT INTO ductwork_runs (id, pipeline, definition, input, triggered_at)
        SELECT {made:1;n}, :pipeline, :definition, 'null', {now} FROM {series}";
    FILL_WAITING_BRANCHES = "
        INSERT INTO ductwork_branches (id, run_id, pipeline, status, step_id, last_advanced_at)
        SELECT {made:2;n}, {made:1;n}, :pipeline, 'in_progress', {made:3;n}, {now} FROM {series}";
    FILL_WAITING_STEPS = "
        INSERT INTO ductwork_steps
            (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
        SELECT {made:3;n}, {made:1;n}, {made:2;n}, 0, :node, :step, 'start', 'in_progress', 'null', {now}
          FROM {series}";
    FILL_WAITING_EXECUTIONS = "
        INSERT INTO ductwork_executions (id, step_id, pipeline, attempt)
        SELECT {made:4;n}, {made:3;n}, :pipeline, 1 FROM {series}";
    FILL_AVAILABILITIES = "
        INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
        SELECT {made:4;n}, :pipeline, {now} FROM {series}";
    /// Each run ended at a time of its own: a single commit ends only a few runs, and a search for
    /// the oldest ones would have to sort all runs of one time.
    FILL_ENDED_RUNS = "
        INSERT INTO ductwork_runs
            (id, pipeline, definition, status, input, output, triggered_at, completed_at)
        SELECT {made:1;n}, :pipeline, :definition, 'completed', 'null', 'null',
               {now} - :last + n, {now} - :last + n
          FROM {series}";
    FILL_ENDED_BRANCHES = "
        INSERT INTO ductwork_branches (id, run_id, pipeline, status, step_id, last_advanced_at)
        SELECT {made:2;n}, {made:1;n}, :pipeline, 'completed', {made:3;n * :steps + :steps - 1}, {now}
          FROM {series}";
    /// The number of a step is the number of its run, times the steps per run, plus its place.
    FILL_ENDED_STEPS = "
        INSERT INTO ductwork_steps
            (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, output,
             created_at, completed_at)
        SELECT {made:3;n * :steps + b.place}, {made:1;n}, {made:2;n}, b.place, b.node, b.step, b.via,
               CASE WHEN b.place > 0 THEN {made:5;n * :steps + b.place - 1} END,
               'completed', 'null', 'null', {now}, {now}
          FROM {series} CROSS JOIN {rows:b(place int, node text, step text, via text)}";
    FILL_ENDED_EXECUTIONS = "
        INSERT INTO ductwork_executions
            (id, step_id, pipeline, attempt, process_id, claimed_at, lease_until, completed_at, result)
        SELECT {made:4;n}, {made:3;n}, :pipeline, 1, :process, {now}, {now}, {now}, 'success'
          FROM {series}";
    FILL_TRANSITIONS = "
        INSERT INTO ductwork_transitions
            (id, run_id, branch_id, from_step_id, via, produced, opened_at, completed_at)
        SELECT {made:5;n * :steps + b.place}, {made:1;n}, {made:2;n}, {made:3;n * :steps + b.place},
               b.via, b.produced, {now}, {now}
          FROM {series} CROSS JOIN {rows:b(place int, via text, produced int)}";
    FILL_ADVANCEMENTS = "
        INSERT INTO ductwork_advancements
            (id, transition_id, branch_id, process_id, claim_token, claimed_at, lease_until, completed_at, result)
        SELECT {made:6;n}, {made:5;n}, {made:2;(n - n % :steps) / :steps}, :process, {made:7;n}, {now}, {now}, {now}, 'success'
          FROM {series}";
}

/// Numbers that no id has been made from yet.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// The first part of all ids, in ms since 1970.
    pub(super) time: i64,
    next: i64,
}

impl Numbers {
    /// Numbers that start now, by the database's clock.
    pub async fn now(conn: &mut Conn) -> Result<Self, Error> {
        let time = query::now(conn).await? / 1_000;
        Ok(Self { time, next: 0 })
    }

    /// Moves the numbers far from those of anybody else who began within the same millisecond.
    pub(super) fn spread(&mut self, process: ProcessId) {
        let random = process.0.as_u128() as u64;
        // Fifteen hexadecimal digits, with room to count.
        self.next = (random >> 16) as i64;
    }

    /// Takes `count` numbers, and returns the first.
    pub(super) fn take(&mut self, count: u64) -> i64 {
        let first = self.next;
        self.next += count as i64;
        first
    }
}

/// Makes `runs` runs of `definition` whose first step waits in the queue; `report` receives how
/// many exist so far. Returns the first number: the ids are made from it and the numbers that
/// follow it.
pub async fn waiting(
    conn: &mut Conn,
    definition: &Definition,
    runs: u64,
    numbers: &mut Numbers,
    report: &dyn Fn(u64),
) -> Result<i64, Error> {
    let digest = definition::save(conn, definition).await?;
    let start = definition.node(crate::definition::NodeIndex(0));
    let time = numbers.time;
    let from = numbers.take(runs);
    for (first, last) in chunks(from, runs) {
        conn.transaction(async |conn| {
            let args: Args<'_> = &[
                ("first", first.into()),
                ("last", last.into()),
                ("time", time.into()),
                ("pipeline", (&definition.pipeline).into()),
                ("definition", (&digest).into()),
                ("node", (&start.name).into()),
                ("step", start.step.as_deref().into()),
            ];
            for statement in [
                &FILL_WAITING_RUNS,
                &FILL_WAITING_BRANCHES,
                &FILL_WAITING_STEPS,
                &FILL_WAITING_EXECUTIONS,
                &FILL_AVAILABILITIES,
            ] {
                conn.execute(statement, args).await?;
            }
            Ok(())
        })
        .await?;
        report((last + 1 - from) as u64);
    }
    Ok(from)
}

/// Makes `runs` completed runs of `definition`, which must be a chain; `report` receives how many
/// exist so far.
pub async fn completed(
    conn: &mut Conn,
    definition: &Definition,
    runs: u64,
    numbers: &mut Numbers,
    report: &dyn Fn(u64),
) -> Result<(), Error> {
    let digest = definition::save(conn, definition).await?;
    let steps = definition.nodes.len();
    // The process that worked on them is long gone.
    let process = ProcessId::new();
    let time = numbers.time;
    let from = numbers.next;
    numbers.next = (from + runs as i64) * steps as i64;
    let nodes = &definition.nodes;
    let places = || 0..steps as i64;
    let via = |place: i64| if place == 0 { Via::Start } else { Via::Chain };
    let entered = Rows::new()
        .ints("place", places())
        .texts("node", nodes.iter().map(|node| node.name.as_str()))
        .optional_texts("step", nodes.iter().map(|node| node.step.as_deref()))
        .texts("via", places().map(|place| via(place).as_str()));
    let last = steps as i64 - 1;
    let left = |place: i64| if place == last { Via::End } else { Via::Chain };
    let left = Rows::new()
        .ints("place", places())
        .texts("via", places().map(|place| left(place).as_str()))
        .ints("produced", places().map(|place| i64::from(place < last)));
    let common = [
        ("time", time.into()),
        ("pipeline", (&definition.pipeline).into()),
        ("definition", (&digest).into()),
        ("steps", steps.into()),
        ("process", process.0.into()),
    ];
    for (first, last) in chunks(from, runs) {
        conn.transaction(async |conn| {
            for (statement, rows) in [
                (&FILL_ENDED_RUNS, &entered),
                (&FILL_ENDED_BRANCHES, &entered),
                (&FILL_ENDED_STEPS, &entered),
                (&FILL_TRANSITIONS, &left),
            ] {
                conn.execute(statement, &args(&common, first, last, rows))
                    .await?;
            }
            let each = steps as i64;
            let (first, last) = (first * each, last * each + each - 1);
            for statement in [&FILL_ENDED_EXECUTIONS, &FILL_ADVANCEMENTS] {
                conn.execute(statement, &args(&common, first, last, &entered))
                    .await?;
            }
            Ok(())
        })
        .await?;
        report((last + 1 - from) as u64);
    }
    Ok(())
}

/// The arguments that all statements share, and those of one statement.
fn args<'a>(
    common: &[(&'static str, Arg<'a>)],
    first: i64,
    last: i64,
    rows: &'a Rows<'a>,
) -> Vec<(&'static str, Arg<'a>)> {
    let mut args = common.to_vec();
    args.extend([
        ("first", first.into()),
        ("last", last.into()),
        ("b", rows.into()),
    ]);
    args
}

/// Makes the server do at once the work that it does by itself after a while: analyse the current
/// rows, tidy the tables and write them to disk. Otherwise it would do so during the measured work,
/// for as long as filling the tables took.
pub async fn settle(conn: &mut Conn) -> Result<(), Error> {
    for (at, text) in conn.dialect().backend().settle().iter().enumerate() {
        let done = conn.script("SETTLE", text).await;
        if at == 0 {
            done?;
        }
    }
    Ok(())
}

/// The first and the last number of each statement.
fn chunks(from: i64, count: u64) -> impl Iterator<Item = (i64, i64)> {
    let end = from + count as i64;
    let starts = (from..end).step_by(CHUNK as usize);
    starts.map(move |first| (first, (first + CHUNK as i64).min(end) - 1))
}
