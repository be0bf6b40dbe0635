//! Retention: deleting runs that ended long ago.
//!
//! Owns: deleting runs with everything that belongs to them. Never: decides how long is long.
//!
//! A run that was revived is kept as long as the run that was made from it: a lineage goes
//! from its newest end. So nothing ever refers to a run, or to a step, that is gone, and
//! nothing of an active lineage goes.

use std::time::Duration;

use crate::failpoint::failpoint;
use crate::model::*;

use super::conn::Conn;
use super::crossing::micros;
use super::error::Error;
use super::place::Place;
use super::statement::{Rows, statements};

/// Runs per transaction: enough to share its cost, few enough that nobody waits for it long. Where
/// faults are tried between two batches, a few runs make some.
const BATCH: u64 = if cfg!(feature = "failpoints") { 2 } else { 200 };

statements! {
    ENDED_RUNS = "
        SELECT r.id, coalesce(r.completed_at, r.halted_at, r.cancelled_at) AS ended_at FROM ductwork_runs r
         WHERE r.status IN ('completed', 'halted', 'cancelled')
           AND coalesce(r.completed_at, r.halted_at, r.cancelled_at) <= {now} - :age
           AND NOT EXISTS (SELECT 1 FROM ductwork_runs n WHERE n.revived_from = r.id)
           AND (coalesce(r.completed_at, r.halted_at, r.cancelled_at), r.id) > (:behind, :behind_id)
         ORDER BY coalesce(r.completed_at, r.halted_at, r.cancelled_at), r.id LIMIT :n {skip_locked}";
    COUNT_ENDED_RUNS = "
        SELECT count(*) AS n FROM ductwork_runs r
         WHERE r.status IN ('completed', 'halted', 'cancelled')
           AND coalesce(r.completed_at, r.halted_at, r.cancelled_at) <= {now} - :age";
    /// RACE: a run is revived between the snapshot of our look and our lock on its row. Looked
    /// at again under the lock, in a later snapshot, it has a successor, and is kept (T6); a
    /// revival that comes later finds the run gone. Raced by
    /// `prune_and_revive_at_once_leave_no_run_without_its_origin`. A run whose hook has yet to
    /// run is kept as well (`prune_keeps_what_is_active`).
    STILL_PRUNABLE = "
        SELECT r.id FROM {rows:b(id id)}
          JOIN ductwork_runs r ON {key:r.id;b.id}
         WHERE NOT EXISTS (SELECT 1 FROM ductwork_runs n WHERE n.revived_from = r.id)
           AND (r.status <> 'halted' OR NOT EXISTS (
                SELECT 1 FROM ductwork_branches br
                  JOIN ductwork_steps s ON {key:s.branch_id;br.id} AND s.via = 'on_halt'
                  JOIN ductwork_executions e ON {key:e.step_id;s.id} AND e.result IS NULL
                 WHERE br.run_id = r.id AND br.fan_out_id IS NULL))";
    PRUNE_TUPLES = "
        DELETE FROM ductwork_tuples WHERE run_id IN (SELECT b.id FROM {rows:b(id id)})";
    PRUNE_ADVANCEMENTS = "
        DELETE FROM ductwork_advancements WHERE transition_id IN (
            SELECT t.id FROM {rows:b(id id)}
              JOIN ductwork_branches br ON br.run_id = b.id
              JOIN ductwork_steps s ON s.branch_id = br.id
              JOIN ductwork_transitions t ON t.from_step_id = s.id)";
    PRUNE_TRANSITIONS = "
        DELETE FROM ductwork_transitions WHERE from_step_id IN (
            SELECT s.id FROM {rows:b(id id)}
              JOIN ductwork_branches br ON br.run_id = b.id
              JOIN ductwork_steps s ON s.branch_id = br.id)";
    PRUNE_EXECUTIONS = "
        DELETE FROM ductwork_executions WHERE step_id IN (
            SELECT s.id FROM {rows:b(id id)}
              JOIN ductwork_branches br ON br.run_id = b.id
              JOIN ductwork_steps s ON s.branch_id = br.id)";
    PRUNE_STEPS = "
        DELETE FROM ductwork_steps WHERE branch_id IN (
            SELECT br.id FROM {rows:b(id id)} JOIN ductwork_branches br ON br.run_id = b.id)";
    PRUNE_FAN_OUTS = "
        DELETE FROM ductwork_fan_outs WHERE branch_id IN (
            SELECT br.id FROM {rows:b(id id)} JOIN ductwork_branches br ON br.run_id = b.id)";
    PRUNE_BRANCHES = "
        DELETE FROM ductwork_branches WHERE run_id IN (SELECT b.id FROM {rows:b(id id)})";
    PRUNE_RUNS = "
        DELETE FROM ductwork_runs WHERE id IN (SELECT b.id FROM {rows:b(id id)})";
}

/// How many runs ended at least `older_than` ago: for a person to know, before they are deleted.
pub async fn count(conn: &mut Conn, older_than: Duration) -> Result<u64, Error> {
    let args = [("age", micros(older_than).into())];
    match conn.fetch_optional(&COUNT_ENDED_RUNS, &args).await? {
        Some(row) => Ok(row.get::<i64>("n")?.unsigned_abs()),
        None => Ok(0),
    }
}

/// Deletes runs that ended at least `older_than` ago, at most `limit` of them, oldest first;
/// how many. Any number may prune at once.
pub async fn prune(conn: &mut Conn, older_than: Duration, limit: u64) -> Result<u64, Error> {
    let (mut pruned, mut in_pass, mut place) = (0, 0, Place::FIRST);
    while pruned < limit {
        let n = BATCH.min(limit - pruned);
        failpoint!(conn, "prune.begin");
        let batch = conn
            .transaction(async |conn| batch(conn, older_than, place, n).await)
            .await?;
        failpoint!(conn, "prune.end");
        pruned += batch.deleted;
        in_pass += batch.deleted;
        // What is held back by a hook that nobody runs is left behind, so that it holds back
        // nothing else. A pass that deleted something may have made room for another: a lineage
        // goes one run at a time, from its newest end.
        (place, in_pass) = match batch.last {
            Some(last) => (last, in_pass),
            None if in_pass > 0 => (Place::FIRST, 0),
            None => break,
        };
        failpoint!(conn, "prune.between");
    }
    Ok(pruned)
}

struct Batch {
    /// The last that was looked at; none when there was none.
    last: Option<Place>,
    deleted: u64,
}

async fn batch(
    conn: &mut Conn,
    older_than: Duration,
    behind: Place,
    n: u64,
) -> Result<Batch, Error> {
    let [behind, behind_id] = behind.args();
    let args = [
        ("age", micros(older_than).into()),
        behind,
        behind_id,
        ("n", (n as i64).into()),
    ];
    let seen = conn.fetch(&ENDED_RUNS, &args).await?;
    let Some(last) = seen.last() else {
        let (last, deleted) = (None, 0);
        return Ok(Batch { last, deleted });
    };
    let last = Some(Place::of(last, "ended_at", "id")?);
    let seen = run_ids(seen)?;
    let rows = Rows::new().ids("id", seen.iter().copied());
    let runs = conn
        .fetch(&STILL_PRUNABLE, &[("b", (&rows).into())])
        .await?;
    let rows = Rows::new().ids("id", run_ids(runs)?);
    let rows = [("b", (&rows).into())];
    // What hangs on a row goes before the row, because it is found through it. There are no
    // availabilities: no execution of these runs is open.
    for statement in [
        &PRUNE_TUPLES,
        &PRUNE_ADVANCEMENTS,
        &PRUNE_TRANSITIONS,
        &PRUNE_EXECUTIONS,
        &PRUNE_STEPS,
        &PRUNE_FAN_OUTS,
        &PRUNE_BRANCHES,
    ] {
        conn.execute(statement, &rows).await?;
        failpoint!(conn, "prune.deleted");
    }
    let deleted = conn.execute(&PRUNE_RUNS, &rows).await?;
    failpoint!(conn, "prune.written");
    Ok(Batch { last, deleted })
}

fn run_ids(rows: Vec<super::Row>) -> Result<Vec<RunId>, Error> {
    let ids = rows.iter().map(|row| Ok(RunId(row.get("id")?)));
    ids.collect()
}
