//! A run's context: keys and values shared by its steps.
//!
//! Owns: the tuples of a run. When two steps set one key at once, the later write counts; a step
//! that needs more uses keys of its own (`<step id>/…`). Never: judges keys or values; the caller
//! has done so. A step's own write is fenced by its execution, like its result.

use crate::model::*;

use super::batch_size;
use super::conn::Conn;
use super::error::Error;
use super::statement::statements;

statements! {
    GET_TUPLE = "
        SELECT \"key\", value, first_set_at, last_set_at FROM ductwork_tuples
         WHERE run_id = :run AND \"key\" = :key";
    /// The sizes of the next values, so that no more of them are read than can be held.
    SIZE_TUPLES = "
        SELECT \"key\", {big:octet_length(value)} AS size FROM ductwork_tuples
         WHERE run_id = :run AND \"key\" > :after ORDER BY \"key\" LIMIT :rows";
    LIST_TUPLES = "
        SELECT \"key\", value, first_set_at, last_set_at FROM ductwork_tuples
         WHERE run_id = :run AND \"key\" > :after AND \"key\" <= :last ORDER BY \"key\" LIMIT :rows";
    /// RACE: prune deletes the run meanwhile. Our lock on its row waits for prune's, and prune's skips
    /// ours, so either prune finds the tuple, or we find the run gone. Proven by
    /// `a_tuple_that_is_set_while_its_run_is_pruned_goes_with_it`. (I33)
    SET_TUPLE = "
        INSERT INTO ductwork_tuples (run_id, \"key\", value, first_set_at, last_set_at)
        SELECT r.id, :key, :value, {now}, {now} FROM ductwork_runs r
         WHERE r.id = :run AND r.pruning_at IS NULL {share}
        {replace:run_id, \"key\"} value = {new:value}, last_set_at = {new:last_set_at}";
    /// The run is locked as in SET_TUPLE.
    ///
    /// RACE: the reaper has given the step to another worker while this attempt still runs. Our lock on
    /// the execution waits for the reaper's write, and the reaper's write for our lock: so the value is
    /// written while the attempt is still ours, or not at all. Proven by
    /// `an_attempt_that_is_being_taken_away_waits_and_sets_nothing`.
    SET_TUPLE_AS_STEP = "
        INSERT INTO ductwork_tuples (run_id, \"key\", value, first_set_at, last_set_at)
        WITH mine AS (
            SELECT e.id FROM ductwork_executions e
             WHERE e.id = :execution AND e.process_id = :process AND e.completed_at IS NULL {lock})
        SELECT r.id, :key, :value, {now}, {now} FROM mine JOIN ductwork_runs r ON r.id = :run
         WHERE r.pruning_at IS NULL {share}
        {replace:run_id, \"key\"} value = {new:value}, last_set_at = {new:last_set_at}";
    /// RACE: another node of a cluster prunes the run. It does not see our lock on the row, so the row has to change;
    /// any change will do. Raced by `what_one_node_sets_and_another_prunes_is_there_with_its_run_or_gone`. (I33)
    HOLD_RUN in Mysql = "
        UPDATE ductwork_runs SET revivals = revivals + 1 WHERE id = :run AND pruning_at IS NULL";
    /// RACE: the same with an attempt that another node takes away. Raced by
    /// `what_a_step_sets_at_one_node_is_there_before_another_has_cancelled_it`.
    HOLD_EXECUTION in Mysql = "
        UPDATE ductwork_executions SET lease_until = lease_until + 1
         WHERE id = :execution AND process_id = :process AND completed_at IS NULL";
}

/// The longest key, in characters.
pub const MAX_KEY: usize = 256;

/// How many values are listed at a time, at most.
const PAGE: usize = 1_000;

/// The attempt that writes.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// The run of the attempt.
    pub run: RunId,
    /// The attempt itself.
    pub execution: ExecutionId,
    /// The process that holds it.
    pub process: ProcessId,
}

/// A key of a run's context, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// At most [`MAX_KEY`] characters.
    pub key: String,
    /// One JSON value.
    pub value: String,
    /// µs since 1970.
    pub first_set_at: i64,
    /// µs since 1970.
    pub last_set_at: i64,
}

impl Tuple {
    fn read(row: &super::Row) -> Result<Self, Error> {
        Ok(Self {
            key: row.get("key")?,
            value: row.get("value")?,
            first_set_at: row.get("first_set_at")?,
            last_set_at: row.get("last_set_at")?,
        })
    }
}

/// One tuple of a run.
pub async fn get(conn: &mut Conn, run_id: RunId, key: &str) -> Result<Option<Tuple>, Error> {
    let args = [("run", run_id.0.into()), ("key", key.into())];
    let row = conn.fetch_optional(&GET_TUPLE, &args).await?;
    row.as_ref().map(Tuple::read).transpose()
}

/// The tuples of a run whose keys follow `after`, by key: as many as should be held at once. Empty when
/// there are no more.
pub async fn list(conn: &mut Conn, run_id: RunId, after: &str) -> Result<Vec<Tuple>, Error> {
    let args = [
        ("run", run_id.0.into()),
        ("after", after.into()),
        ("rows", PAGE.into()),
    ];
    let rows = conn.fetch(&SIZE_TUPLES, &args).await?;
    let mut keys = Vec::with_capacity(rows.len());
    let mut sizes = Vec::with_capacity(rows.len());
    for row in &rows {
        keys.push(row.get::<String>("key")?);
        sizes.push(usize::try_from(row.get::<i64>("size")?).unwrap_or(usize::MAX));
    }
    let fit = batch_size::first(PAGE, sizes);
    let Some(last) = fit.checked_sub(1).map(|last| &keys[last]) else {
        return Ok(Vec::new());
    };
    let args = [
        ("run", run_id.0.into()),
        ("after", after.into()),
        ("last", last.as_str().into()),
        // Keys that were set in between are not many more than those that were counted.
        ("rows", fit.into()),
    ];
    let rows = conn.fetch(&LIST_TUPLES, &args).await?;
    rows.iter().map(Tuple::read).collect()
}

/// Sets a key to one JSON value; false when the run does not exist.
pub async fn set(conn: &mut Conn, run_id: RunId, key: &str, value: &str) -> Result<bool, Error> {
    let args = [
        ("run", run_id.0.into()),
        ("key", key.into()),
        ("value", value.into()),
    ];
    if !conn.is_in_cluster() {
        return Ok(conn.execute(&SET_TUPLE, &args).await? > 0);
    }
    let set = conn.transaction(async |conn| match conn.execute(&HOLD_RUN, &args).await? {
        0 => Ok(0),
        _ => conn.execute(&SET_TUPLE, &args).await,
    });
    Ok(set.await? > 0)
}

/// The same, by a step; false when its process no longer holds the attempt.
pub async fn set_as(
    conn: &mut Conn,
    writer: Writer,
    key: &str,
    value: &str,
) -> Result<bool, Error> {
    let args = [
        ("run", writer.run.0.into()),
        ("execution", writer.execution.0.into()),
        ("process", writer.process.0.into()),
        ("key", key.into()),
        ("value", value.into()),
    ];
    if !conn.is_in_cluster() {
        return Ok(conn.execute(&SET_TUPLE_AS_STEP, &args).await? > 0);
    }
    let set = conn.transaction(
        async |conn| match conn.execute(&HOLD_EXECUTION, &args).await? {
            0 => Ok(0),
            _ => conn.execute(&SET_TUPLE_AS_STEP, &args).await,
        },
    );
    Ok(set.await? > 0)
}
