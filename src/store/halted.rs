//! The runs that have halted, by kind: for a person who decides which ones to revive.
//!
//! Owns: reading the newest of them with the first reason of each, and grouping them. Never: writes,
//! or decides which errors are of one kind (`machine::kind` does).

use std::collections::BTreeMap;

use crate::machine::bulk::Kind;
use crate::machine::kind;
use crate::model::*;

use super::conn::{Conn, Row};
use super::error::Error;
use super::list;
use super::statement::{Rows, statements};

/// At most this many halted runs are looked at, those that began last, in equal shares for the pipelines that have any.
const NEWEST: usize = 2_000;

/// But at least this many per pipeline.
const LEAST: usize = 20;

/// At most this many runs of a kind are named.
const NAMED: usize = 100;

/// The way in which a run `x` has halted, by its branch.
macro_rules! kind_columns {
    () => {
        "b.halt_reason, s.node, e.error_class, substr(e.error_message, 1, 1000) AS error_message"
    };
}

macro_rules! first_branch {
    ($run:literal) => {
        concat!(
            "(SELECT h.id FROM ductwork_branches h {found:ductwork_branches_reasons}
                         WHERE h.run_id = ",
            $run,
            " AND h.halt_reason IS NOT NULL
                         ORDER BY h.id LIMIT 1)"
        )
    };
}

macro_rules! kind_joins {
    () => {
        "
          LEFT JOIN ductwork_branches b ON {key:b.id;x.branch_id}
          LEFT JOIN ductwork_steps s ON {key:s.id;b.step_id}
          LEFT JOIN ductwork_executions e ON {key:e.step_id;s.id} AND e.attempt =
               (SELECT max(y.attempt) FROM ductwork_executions y WHERE y.step_id = s.id)"
    };
}

statements! {
    /// When branches of a run have halted for several reasons, the first branch to halt stands for all.
    /// Revived runs are not counted, because their successors replace them. They are among the limited number of the
    /// newest runs all the same: no number of them makes this take longer, or hides that there are older runs.
    HALTED_RUNS = concat!("
        SELECT x.id, x.halted_at,
               (SELECT n.id FROM ductwork_runs n WHERE {key:n.revived_from;x.id} LIMIT 1) AS revived_as,
               ", kind_columns!(), "
          FROM (SELECT r.id, r.halted_at, ", first_branch!("r.id"), " AS branch_id
                  FROM ductwork_runs r {by:ductwork_runs_others}
                 WHERE r.status <> 'completed' AND {key:r.status;'halted'} AND r.pipeline = :pipeline
                   AND r.pruning_at IS NULL
                 ORDER BY r.status DESC, r.id DESC LIMIT :n) x", kind_joins!(), "
         ORDER BY x.id DESC");
    HALTED_KINDS = concat!("
        SELECT x.id, ", kind_columns!(), "
          FROM (SELECT q.id, ", first_branch!("q.id"), " AS branch_id
                  FROM {rows:q(id id)}) x", kind_joins!());
}

/// Halted runs without a successor that have halted in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HaltedKind {
    /// Their pipeline.
    pub pipeline: String,
    /// The way in which they halted.
    pub kind: Kind,
    /// The message of the newest of them, or the beginning of it.
    pub message: String,
    /// How many there are among those that were looked at.
    pub runs: u64,
    /// Some of them, newest first.
    pub ids: Vec<RunId>,
    /// When the first of them halted, in µs since 1970.
    pub first_at: i64,
    /// When the last of them halted.
    pub last_at: i64,
    /// Their pipeline has older halted runs, which were not looked at.
    pub is_partial: bool,
}

/// The halted runs, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Halted {
    /// The kinds, the most frequent first.
    pub kinds: Vec<HaltedKind>,
    /// There are older halted runs, which were not looked at.
    pub is_partial: bool,
    /// How many were looked at, with those that were revived.
    pub looked_at: u64,
}

/// The way in which a run halted, and the message of its error.
fn kind(row: &Row) -> Result<(Kind, String), Error> {
    let class: Option<String> = row.get("error_class")?;
    let message: Option<String> = row.get("error_message")?;
    let message = message.unwrap_or_default();
    let kind = Kind {
        node: row.get("node")?,
        reason: row.get("halt_reason")?,
        class: class.as_deref().and_then(kind::class),
        error: kind::of(class.as_deref(), &message).trim().to_owned(),
    };
    Ok((kind, message))
}

/// The ways in which these runs have halted.
pub(super) async fn kinds_of(
    conn: &mut Conn,
    runs: impl Iterator<Item = RunId>,
) -> Result<BTreeMap<RunId, Kind>, Error> {
    let ids: Vec<RunId> = runs.collect();
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows = Rows::new().ids("id", ids);
    let rows = conn.fetch(&HALTED_KINDS, &[("q", (&rows).into())]).await?;
    rows.iter()
        .map(|row| Ok((RunId(row.get("id")?), kind(row)?.0)))
        .collect()
}

/// The newest halted runs of a pipeline, or of all pipelines, by kind.
pub async fn by_kind(conn: &mut Conn, pipeline: Option<&str>) -> Result<Halted, Error> {
    conn.snapshot(async |conn| {
        let pipelines = match pipeline {
            Some(pipeline) => vec![pipeline.to_owned()],
            None => list::pipelines_of(conn, RunStatus::Halted).await?,
        };
        let each = (NEWEST / pipelines.len().max(1)).max(LEAST);
        let (mut is_partial, mut looked_at) = (false, 0);
        let mut kinds = BTreeMap::new();
        for pipeline in pipelines {
            // One more, to know whether there are older ones.
            let args = [("pipeline", (&pipeline).into()), ("n", (each + 1).into())];
            let mut rows = conn.fetch(&HALTED_RUNS, &args).await?;
            let is_cut = rows.len() > each;
            rows.truncate(each);
            is_partial |= is_cut;
            looked_at += rows.len() as u64;
            for row in &rows {
                if row.get::<Option<uuid::Uuid>>("revived_as")?.is_some() {
                    continue;
                }
                let (kind, message) = kind(row)?;
                let at = row.get::<Option<i64>>("halted_at")?.unwrap_or_default();
                let of = kinds.entry((pipeline.clone(), kind.clone()));
                let of = of.or_insert_with(|| HaltedKind {
                    pipeline: pipeline.clone(),
                    kind,
                    message,
                    runs: 0,
                    ids: Vec::new(),
                    first_at: at,
                    last_at: at,
                    is_partial: is_cut,
                });
                of.runs += 1;
                of.first_at = of.first_at.min(at);
                of.last_at = of.last_at.max(at);
                if of.ids.len() < NAMED {
                    of.ids.push(RunId(row.get("id")?));
                }
            }
        }
        let mut kinds: Vec<HaltedKind> = kinds.into_values().collect();
        kinds.sort_by_key(|kind| {
            (
                std::cmp::Reverse(kind.runs),
                std::cmp::Reverse(kind.last_at),
            )
        });
        Ok(Halted {
            kinds,
            is_partial,
            looked_at,
        })
    })
    .await
}
