//! The only SQL in the product.
//!
//! Owns: the schema, every statement, and the operations on rows, each of them guarded.
//! Never: decides; the data to write is a plan made by `machine`.

pub mod action;
pub mod advance;
pub mod audit;
mod audit_prefilter;
pub mod backend;
mod batch;
pub mod batch_size;
pub mod bench;
mod blame;
pub mod bulk;
pub mod cancel;
#[cfg(feature = "internals")]
pub mod catalogue;
pub mod claim;
pub mod clock;
pub mod commit;
pub mod conn;
pub mod context;
pub mod copy;
pub mod cursor;
pub mod definition;
pub mod delivery;
pub mod departed;
pub mod dialect;
pub mod duty;
pub mod error;
pub mod event;
pub mod fan_out;
#[cfg(feature = "failpoints")]
mod fault;
pub mod fault_injection;
pub mod finder;
pub mod halted;
pub mod known;
pub mod list;
pub mod logs;
pub mod metrics;
pub mod migrate;
pub mod overview;
pub mod page;
mod pass;
pub(crate) mod patience;
pub mod pause;
pub mod process;
pub mod prune;
pub mod query;
pub mod recovery;
mod render;
pub mod report;
pub mod resume;
pub mod revive;
pub mod sandbox;
pub mod series;
pub mod statement;
pub mod steps;
pub mod stuck;
pub mod timeline;
pub mod token;
pub mod trace;
pub mod tracer;
pub mod transition;
pub mod trigger;
mod turn;
pub mod why;
pub mod writable;

use crate::model::RunId;
use crate::time::micros;

pub use conn::{Conn, Location, Purpose, Row};
#[cfg(feature = "internals")]
pub use dialect::Dialect;
pub use error::Error;

statement::statements! {
    /// A run in progress has a next mover (I18); the run of a hook is over, but its step is not.
    ANY_WORK = "
        SELECT (SELECT r.id FROM ductwork_runs r
                 WHERE r.status <> 'completed' AND r.status = 'in_progress'
                   AND (:all = 1 OR r.pipeline IN (SELECT b.name FROM {rows:b(name text)})) LIMIT 1) AS run_id
         WHERE EXISTS (
            SELECT 1 FROM ductwork_runs r
             WHERE r.status <> 'completed' AND r.status = 'in_progress'
               AND (:all = 1 OR r.pipeline IN (SELECT b.name FROM {rows:b(name text)})))
        OR EXISTS (
            SELECT 1 FROM ductwork_availabilities a
             WHERE a.pipeline >= '' AND (:all = 1 OR a.pipeline IN (SELECT b.name FROM {rows:b(name text)})))
        OR EXISTS (
            SELECT 1 FROM ductwork_executions e
             WHERE e.completed_at IS NULL AND e.process_id IS NOT NULL{narrow: AND e.holder IS NOT NULL}
               AND (:all = 1 OR e.pipeline IN (SELECT b.name FROM {rows:b(name text)})))";
    /// Unfinished work is found by indexes that are empty as a rule.
    LEFT_TO_DO = "
        SELECT 1 AS found WHERE EXISTS (
            SELECT 1 FROM ductwork_runs r
             WHERE r.cancelling_at IS NOT NULL AND r.cancelling_at <= {now} - :left)
        OR EXISTS (
            SELECT 1 FROM ductwork_runs r
             WHERE r.cancelling_at IS NOT NULL AND r.cancelling_at > {now})
        OR EXISTS (
            SELECT 1 FROM ductwork_runs r
             WHERE r.pruning_at IS NOT NULL AND r.pruning_at <= {now} - :abandoned)
        OR EXISTS (
            SELECT 1 FROM ductwork_runs r
             WHERE r.pruning_at IS NOT NULL AND r.pruning_at > {now})
        OR EXISTS (
            SELECT 1 FROM ductwork_deadlines d
             WHERE d.answer_by <= {now} AND d.unanswered IN ('halt', 'approve'))
        OR EXISTS (
            SELECT 1 FROM ductwork_runs r {by:ductwork_runs_ended}
             WHERE :retained = 1 AND r.status IN ('completed', 'halted', 'cancelled')
               AND {ended:r} <= {now} - :age)
        OR EXISTS (
            SELECT 1 FROM ductwork_departed d WHERE d.gone_at <= {now} - :departed)";
}

/// True where a cancellation or a deletion is half done and nobody continues it, where a question's deadline has passed,
/// where a run has ended longer ago than `retention`, or where a process that is gone is to be forgotten.
pub async fn left_to_do(
    conn: &mut Conn,
    retention: Option<std::time::Duration>,
    lease: std::time::Duration,
) -> Result<bool, Error> {
    let args = [
        ("left", micros(cancel::left_after(lease)).into()),
        ("abandoned", micros(lease).into()),
        ("retained", i64::from(retention.is_some()).into()),
        ("age", micros(retention.unwrap_or_default()).into()),
        (
            "departed",
            micros(departed::forgotten_after(retention)).into(),
        ),
    ];
    Ok(conn.fetch_optional(&LEFT_TO_DO, &args).await?.is_some())
}

/// Work that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// A run in progress; none if only a hook of an ended run is left.
    pub run: Option<RunId>,
}

/// Work that is left in these pipelines (`None`: in any): running, due, or delayed. A branch that waits for a person
/// does not count as work.
pub async fn any_work(
    conn: &mut Conn,
    pipelines: Option<&[String]>,
) -> Result<Option<Work>, Error> {
    let names = pipelines.unwrap_or_default();
    let rows = statement::Rows::new().texts("name", names.iter().map(String::as_str));
    let args = [
        ("b", (&rows).into()),
        ("all", i64::from(pipelines.is_none()).into()),
    ];
    let found = conn.fetch_optional(&ANY_WORK, &args).await?;
    let work = |row: Row| {
        let run = row.get::<Option<uuid::Uuid>>("run_id")?.map(RunId);
        Ok(Work { run })
    };
    found.map(work).transpose()
}

/// Deletes the rows that a statement finds, by their keys. Returns how many.
async fn forget(
    conn: &mut Conn,
    old: &statement::Statement,
    forget: &statement::Statement,
    args: statement::Args<'_>,
) -> Result<u64, Error> {
    let old = conn.fetch(old, args).await?;
    if old.is_empty() {
        return Ok(0);
    }
    let old: Result<Vec<uuid::Uuid>, Error> = old.iter().map(|row| row.get("id")).collect();
    let rows = statement::Rows::new().ids("id", old?);
    conn.execute(forget, &[("b", (&rows).into())]).await
}

/// A number in 0..1. Not for secrets: the random bits of a fresh UUID.
pub fn chance() -> f64 {
    let bits = uuid::Uuid::new_v4().as_u128() as u32;
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}
