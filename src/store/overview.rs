//! An overview for people and pages: how many runs are in which state, and the queues.
//!
//! Owns: numbers that are counted up to a bound, so that the cost of no statement grows with the
//! number of rows. Never: writes, or decides whether a number is good.

use std::time::Duration;

use uuid::Uuid;

use crate::model::*;

use super::conn::Conn;
use super::dialect::Dialect;
use super::error::Error;
use super::list;
use super::query;
use super::statement::{Arg, statements};

statements! {
    COUNT_COMPLETED = "
        SELECT count(*) AS n FROM (
            SELECT 1 FROM ductwork_runs r {by:ductwork_runs_completed}
             WHERE r.status = 'completed' AND r.pipeline = :pipeline AND r.id >= :from LIMIT :most) x";
    COUNT_OF_STATUS = "
        SELECT count(*) AS n FROM (
            SELECT 1 FROM ductwork_runs r {by:ductwork_runs_others}
             WHERE r.status <> 'completed' AND r.status = :status AND r.pipeline = :pipeline
               AND r.id >= :from LIMIT :most) x";
    /// A revived run is left out, because its successor replaces it, as in `halted`: it is dropped from the limited
    /// number of the newest runs, so that no number of revived runs makes this take longer.
    COUNT_HALTED = "
        SELECT count(*) AS looked, coalesce(sum(CASE WHEN x.successor IS NULL THEN 1 ELSE 0 END), 0) AS n FROM (
            SELECT (SELECT n.id FROM ductwork_runs n WHERE {key:n.revived_from;r.id}) AS successor
              FROM ductwork_runs r {by:ductwork_runs_others}
             WHERE r.status <> 'completed' AND {key:r.status;'halted'} AND r.pipeline = :pipeline
               AND r.id >= :from ORDER BY r.status DESC, r.id DESC LIMIT :most) x";
    /// Moves from one pipeline to the next by the index, however many executions each has in the queue. On MySQL,
    /// reads one queue.
    QUEUES = "
        WITH RECURSIVE names (pipeline) AS (
            SELECT min(pipeline) FROM ductwork_availabilities WHERE pipeline >= ''
            UNION ALL
            SELECT (SELECT min(a.pipeline) FROM ductwork_availabilities a WHERE a.pipeline > n.pipeline)
              FROM names n WHERE n.pipeline IS NOT NULL)
        SELECT n.pipeline, {now} AS now,
               (SELECT min(a.due_at) FROM ductwork_availabilities a WHERE a.pipeline = n.pipeline) AS first_due_at,
               (SELECT count(*) FROM (
                    SELECT 1 FROM ductwork_availabilities a
                     WHERE a.pipeline = n.pipeline AND a.due_at <= {now} LIMIT :most) x) AS due,
               (SELECT count(*) FROM (
                    SELECT 1 FROM ductwork_availabilities a
                     WHERE a.pipeline = n.pipeline AND a.due_at > {now} LIMIT :most) x) AS later
          FROM names n WHERE n.pipeline IS NOT NULL",
        on Mysql [&QUEUE];
    NEXT_QUEUED in Mysql = "
        SELECT a.pipeline AS name FROM ductwork_availabilities a {found:ductwork_availabilities_due}
         WHERE a.pipeline > :after ORDER BY a.pipeline LIMIT 1";
    QUEUE in Mysql = "
        SELECT a.pipeline, {now} AS now, a.due_at AS first_due_at,
               (SELECT count(*) FROM (
                    SELECT 1 FROM ductwork_availabilities a {found:ductwork_availabilities_due}
                     WHERE a.pipeline = :pipeline AND a.due_at <= {now} LIMIT :most) x) AS due,
               (SELECT count(*) FROM (
                    SELECT 1 FROM ductwork_availabilities a {found:ductwork_availabilities_due}
                     WHERE a.pipeline = :pipeline AND a.due_at > {now} LIMIT :most) x) AS later
          FROM ductwork_availabilities a {found:ductwork_availabilities_due}
         WHERE a.pipeline = :pipeline ORDER BY a.pipeline, a.due_at LIMIT 1";
}

/// How many runs of a pipeline are in a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// The pipeline.
    pub pipeline: String,
    /// The state.
    pub status: RunStatus,
    /// Their number; for the halted state, only those that nobody has revived.
    pub runs: u64,
    /// There may be more: `most` runs were looked at.
    pub is_more: bool,
}

/// How many runs are in each state, by pipeline, each counted up to `most`: of all runs, or of those
/// that were triggered `since` according to their ids. Halted runs that were revived are left out.
pub async fn counts(
    conn: &mut Conn,
    since: Option<Duration>,
    most: u64,
) -> Result<Vec<Count>, Error> {
    conn.snapshot(async |conn| {
        let from = match since {
            Some(since) => {
                list::id_at(query::now(conn).await?.saturating_sub(super::micros(since)))
            }
            None => Uuid::nil(),
        };
        let mut counts = Vec::new();
        for status in RunStatus::ALL {
            for pipeline in list::pipelines_of(conn, *status).await? {
                let mut args = vec![
                    ("pipeline", (&pipeline).into()),
                    ("from", from.into()),
                    ("most", (most as i64).into()),
                ];
                let statement = match status {
                    RunStatus::Completed => &COUNT_COMPLETED,
                    RunStatus::Halted => &COUNT_HALTED,
                    _ => {
                        args.push(("status", status.as_str().into()));
                        &COUNT_OF_STATUS
                    }
                };
                let row = conn.fetch_optional(statement, &args).await?;
                let (runs, looked) = match row {
                    Some(row) if *status == RunStatus::Halted => {
                        (row.get::<i64>("n")?, row.get::<i64>("looked")?)
                    }
                    Some(row) => (row.get::<i64>("n")?, row.get::<i64>("n")?),
                    None => (0, 0),
                };
                counts.push(Count {
                    runs: runs.unsigned_abs(),
                    is_more: looked.unsigned_abs() >= most,
                    status: *status,
                    pipeline,
                });
            }
        }
        Ok(counts)
    })
    .await
}

/// The queue of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The pipeline.
    pub pipeline: String,
    /// Executions that may be claimed, counted up to `most`.
    pub due: u64,
    /// Executions that may be claimed later, counted up to `most`.
    pub later: u64,
    /// How long the first one that may be claimed has waited.
    pub oldest: Option<Duration>,
}

/// The pipelines with executions in the queue, on MySQL.
pub(super) async fn queued(conn: &mut Conn) -> Result<Vec<String>, Error> {
    list::names(conn, &NEXT_QUEUED, &[]).await
}

/// The queues that are not empty.
pub async fn queues(conn: &mut Conn, most: u64) -> Result<Vec<Queue>, Error> {
    let most = ("most", Arg::from(most as i64));
    let mut rows = Vec::new();
    match conn.dialect() {
        Dialect::Postgres | Dialect::Sqlite => rows = conn.fetch(&QUEUES, &[most]).await?,
        Dialect::Mysql => {
            for pipeline in queued(conn).await? {
                let args = [("pipeline", (&pipeline).into()), most.clone()];
                rows.extend(conn.fetch_optional(&QUEUES, &args).await?);
            }
        }
    }
    rows.iter()
        .map(|row| {
            let count = |name| Ok::<_, Error>(row.get::<i64>(name)?.unsigned_abs());
            let first_due_at: i64 = row.get("first_due_at")?;
            let waited = row.get::<i64>("now")?.saturating_sub(first_due_at);
            Ok(Queue {
                pipeline: row.get("pipeline")?,
                due: count("due")?,
                later: count("later")?,
                oldest: u64::try_from(waited).ok().map(Duration::from_micros),
            })
        })
        .collect()
}
