//! Lists of runs, newest first, for people and pages.
//!
//! Owns: the list and its filters. Each list reads as many rows as it returns, and at most as many again
//! per pipeline and status: every combination of filters has an index in its order. Never: writes.

use std::time::Duration;

use uuid::Uuid;

use crate::model::*;

use super::conn::{Conn, Row};
use super::dialect::Dialect;
use super::error::Error;
use super::query::{self, Run, run_columns};
use super::statement::{Arg, Args, Rows, Statement, statements};

// A run whose deletion has begun does not exist for readers.
//
// The lists are also ordered by the first column of their index, although they want only one value of it, in a
// form in which PostgreSQL does not notice that: otherwise it may scan the index of ids and skip the unwanted
// rows, which is all of a long history where a pipeline has few runs.
//
// The statements say that a run has not completed in addition to its status: each database uses an index of
// the runs that have not completed only where the statement says so.
statements! {
    RUNS = concat!("
        SELECT ", run_columns!(), "
          FROM ductwork_runs r {found:PRIMARY}
         WHERE r.triggered_at >= {now} - :since
           AND r.id >= :from AND r.id < :before AND r.pruning_at IS NULL
         ORDER BY r.id DESC LIMIT :n");
    /// At most one run: a key belongs to one run of its pipeline.
    RUNS_OF_KEY = concat!("
        SELECT ", run_columns!(), "
          FROM ductwork_runs r {found:ductwork_runs_trigger_key}
         WHERE r.pipeline = :pipeline AND r.trigger_key = :key
           AND r.triggered_at >= {now} - :since
           AND r.id >= :from AND r.id < :before AND r.pruning_at IS NULL
         ORDER BY r.id DESC LIMIT :n");
    RUNS_COMPLETED = concat!("
        SELECT ", run_columns!(), "
          FROM ductwork_runs r {by:ductwork_runs_completed}
         WHERE r.status = 'completed' AND {key:r.pipeline;:pipeline}
           AND r.triggered_at >= {now} - :since
           AND r.id >= :from AND r.id < :before AND r.pruning_at IS NULL
         ORDER BY r.pipeline DESC, r.id DESC LIMIT :n");
    RUNS_OF_STATUS = concat!("
        SELECT ", run_columns!(), "
          FROM ductwork_runs r {by:ductwork_runs_others}
         WHERE r.status <> 'completed' AND {key:r.status;:status} AND r.pipeline = :pipeline
           AND r.triggered_at >= {now} - :since
           AND r.id >= :from AND r.id < :before AND r.pruning_at IS NULL
         ORDER BY r.status DESC, r.id DESC LIMIT :n");
    /// Moves from one pipeline to the next by the index, however many runs each has.
    PIPELINES_COMPLETED = "
        WITH RECURSIVE names (pipeline) AS (
            SELECT min(r.pipeline) FROM ductwork_runs r {by:ductwork_runs_completed}
             WHERE r.status = 'completed'
            UNION ALL
            SELECT (SELECT min(r.pipeline) FROM ductwork_runs r {by:ductwork_runs_completed}
                     WHERE r.status = 'completed' AND r.pipeline > n.pipeline)
              FROM names n WHERE n.pipeline IS NOT NULL)
        SELECT n.pipeline AS name FROM names n WHERE n.pipeline IS NOT NULL", on Mysql [&NEXT_PIPELINE];
    PIPELINES_OF_STATUS = "
        WITH RECURSIVE names (pipeline) AS (
            SELECT min(r.pipeline) FROM ductwork_runs r {by:ductwork_runs_others}
             WHERE r.status <> 'completed' AND r.status = :status
            UNION ALL
            SELECT (SELECT min(r.pipeline) FROM ductwork_runs r {by:ductwork_runs_others}
                     WHERE r.status <> 'completed' AND r.status = :status AND r.pipeline > n.pipeline)
              FROM names n WHERE n.pipeline IS NOT NULL)
        SELECT n.pipeline AS name FROM names n WHERE n.pipeline IS NOT NULL", on Mysql [&NEXT_PIPELINE];
    NEXT_PIPELINE in Mysql = "
        SELECT r.pipeline AS name FROM ductwork_runs r {by:ductwork_runs_others}
         WHERE r.status = :status AND r.pipeline > :after ORDER BY r.status, r.pipeline LIMIT 1";
    /// Moves from one reason to the next by the index, however many branches of a run have halted.
    HALT_REASONS = "
        WITH RECURSIVE reasons (run_id, halt_reason) AS (
            SELECT b.id, (SELECT min(br.halt_reason) FROM ductwork_branches br
                           WHERE br.run_id = b.id AND br.halt_reason IS NOT NULL)
              FROM {rows:b(id id)}
            UNION ALL
            SELECT n.run_id, (SELECT min(br.halt_reason) FROM ductwork_branches br
                               WHERE br.run_id = n.run_id AND br.halt_reason IS NOT NULL
                                 AND br.halt_reason > n.halt_reason)
              FROM reasons n WHERE n.halt_reason IS NOT NULL)
        SELECT n.run_id, n.halt_reason FROM reasons n
         WHERE n.halt_reason IS NOT NULL ORDER BY n.run_id, n.halt_reason", on Mysql [&KNOWN_HALT_REASONS];
    /// The reasons that this program knows, and the last one by the index, which may be one of a newer
    /// version.
    KNOWN_HALT_REASONS in Mysql = "
        SELECT b.id AS run_id, w.reason AS halt_reason
          FROM {rows:b(id id)} STRAIGHT_JOIN {rows:w(reason text)}
         WHERE (SELECT 1 FROM ductwork_branches br {found:ductwork_branches_reasons}
                 WHERE br.run_id = b.id AND br.halt_reason = w.reason LIMIT 1) = 1
        UNION
        SELECT x.run_id, x.halt_reason
          FROM (SELECT b.id AS run_id,
                       (SELECT br.halt_reason FROM ductwork_branches br {found:ductwork_branches_reasons}
                         WHERE br.run_id = b.id
                         ORDER BY br.run_id DESC, br.halt_reason DESC LIMIT 1) AS halt_reason
                  FROM {rows:b(id id)}) x
         WHERE x.halt_reason IS NOT NULL
         ORDER BY run_id, halt_reason";
    /// For a run of which nothing has been claimed: its only branch is at its first step.
    FIRST_DUE = "
        SELECT b.id AS run_id, a.due_at
          FROM {rows:b(id id)}
          JOIN ductwork_branches br ON {key:br.run_id;b.id} AND br.fan_out_id IS NULL
          JOIN ductwork_executions e ON {key:e.step_id;br.step_id} AND e.attempt = 1
          JOIN ductwork_availabilities a ON {key:a.execution_id;e.id}
         WHERE a.due_at > {now}";
    SUCCESSORS = "
        SELECT n.revived_from AS run_id, n.id AS successor
          FROM {rows:b(id id)} JOIN ductwork_runs n ON {key:n.revived_from;b.id}";
}

/// The runs to list.
#[derive(Clone, Debug)]
pub struct RunFilter<'a> {
    /// Of this pipeline only.
    pub pipeline: Option<&'a str>,
    /// The run with this key of the pipeline only. Ignored without a pipeline.
    pub key: Option<&'a str>,
    /// In one of these states; empty for all.
    pub statuses: &'a [RunStatus],
    /// Triggered within this time, by the database's clock.
    pub since: Option<Duration>,
    /// Older than this run, which is the last one of the previous page.
    pub before: Option<RunId>,
    /// At most this many.
    pub limit: usize,
    /// Payloads of more bytes than this are left out: [`query::WHOLE`] leaves out none.
    pub whole: i64,
}

/// The clock of a process that triggers is at most this far behind the database's. Ids begin with the
/// time of the former, `triggered_at` is by the latter.
pub(super) const SKEW: Duration = Duration::from_secs(60 * 60);

/// Runs, newest first.
pub async fn runs(conn: &mut Conn, filter: &RunFilter<'_>) -> Result<Vec<Run>, Error> {
    conn.snapshot(async |conn| {
        let mut list = List::of(conn, filter).await?;
        if let (Some(pipeline), Some(key)) = (filter.pipeline, filter.key) {
            let of = [("pipeline", pipeline.into()), ("key", key.into())];
            list.read(conn, &RUNS_OF_KEY, &of).await?;
            let statuses = filter.statuses;
            let fits = |run: &Run| statuses.is_empty() || statuses.contains(&run.status);
            list.runs.retain(fits);
            complete(conn, &mut list.runs).await?;
            return Ok(list.runs);
        }
        match (filter.pipeline, filter.statuses) {
            (None, []) => list.read(conn, &RUNS, &[]).await?,
            (Some(pipeline), []) => {
                for status in RunStatus::ALL {
                    list.read_of(conn, *status, pipeline).await?;
                }
            }
            (Some(pipeline), statuses) => {
                for status in statuses {
                    list.read_of(conn, *status, pipeline).await?;
                }
            }
            (None, statuses) => {
                for status in statuses {
                    for pipeline in pipelines_of(conn, *status).await? {
                        list.read_of(conn, *status, &pipeline).await?;
                    }
                }
            }
        }
        let mut runs = list.runs;
        complete(conn, &mut runs).await?;
        Ok(runs)
    })
    .await
}

/// A list that is assembled from several sources.
struct List {
    runs: Vec<Run>,
    limit: usize,
    whole: i64,
    since: i64,
    /// No older run is listed.
    from: Uuid,
    before: Uuid,
}

impl List {
    async fn of(conn: &mut Conn, filter: &RunFilter<'_>) -> Result<Self, Error> {
        // A bound that is not requested is as wide as possible: a parameter has one type, and a
        // value.
        let since = super::micros(filter.since.unwrap_or(Duration::MAX));
        Ok(Self {
            runs: Vec::new(),
            limit: filter.limit,
            whole: filter.whole,
            since,
            from: oldest(conn, filter.since).await?,
            before: filter.before.map_or(Uuid::max(), |id| id.0),
        })
    }

    async fn read_of(
        &mut self,
        conn: &mut Conn,
        status: RunStatus,
        pipeline: &str,
    ) -> Result<(), Error> {
        let of = [
            ("pipeline", pipeline.into()),
            ("status", status.as_str().into()),
        ];
        match status {
            RunStatus::Completed => self.read(conn, &RUNS_COMPLETED, &of[..1]).await,
            _ => self.read(conn, &RUNS_OF_STATUS, &of).await,
        }
    }

    /// Merges the rows of a source. A full list limits the request to the next source: nothing older than
    /// the list's last run.
    async fn read(
        &mut self,
        conn: &mut Conn,
        source: &Statement,
        of: &[(&'static str, Arg<'_>)],
    ) -> Result<(), Error> {
        let mut args = vec![
            ("since", self.since.into()),
            ("from", self.from.into()),
            ("before", self.before.into()),
            ("n", self.limit.into()),
            ("whole", self.whole.into()),
        ];
        args.extend_from_slice(of);
        for row in conn.fetch(source, &args).await? {
            // A status of a newer version must not hide the others.
            if row.get::<String>("status")?.parse::<RunStatus>().is_ok() {
                self.runs.push(query::run_row(&row)?);
            }
        }
        self.runs.sort_by_key(|run| std::cmp::Reverse(run.id));
        self.runs.dedup_by_key(|run| run.id);
        self.runs.truncate(self.limit);
        if let Some(last) = self.runs.last().filter(|_| self.runs.len() == self.limit) {
            self.from = last.id.0;
        }
        Ok(())
    }
}

/// The pipelines that have a run in this state.
pub(super) async fn pipelines_of(conn: &mut Conn, status: RunStatus) -> Result<Vec<String>, Error> {
    let statement = match status {
        RunStatus::Completed => &PIPELINES_COMPLETED,
        _ => &PIPELINES_OF_STATUS,
    };
    names(conn, statement, &[("status", status.as_str().into())]).await
}

/// The names in an index. On MySQL, each request finds the one name that follows `after`: a single request for all
/// of them would begin at the first row for each.
pub(super) async fn names(
    conn: &mut Conn,
    statement: &Statement,
    args: Args<'_>,
) -> Result<Vec<String>, Error> {
    let mut names: Vec<String> = Vec::new();
    loop {
        let after = names.last().map_or("", String::as_str);
        let args = [args, &[("after", after.into())]].concat();
        let found = conn.fetch(statement, &args).await?;
        let found = found.iter().map(|row| row.get("name"));
        let before = names.len();
        names.extend(found.collect::<Result<Vec<_>, _>>()?);
        if conn.dialect() != Dialect::Mysql || names.len() == before {
            return Ok(names);
        }
    }
}

/// Every run that was triggered within `since` has at least this id.
async fn oldest(conn: &mut Conn, since: Option<Duration>) -> Result<Uuid, Error> {
    let Some(since) = since else {
        return Ok(Uuid::nil());
    };
    let since = super::micros(since.saturating_add(SKEW));
    Ok(id_at(query::now(conn).await?.saturating_sub(since)))
}

/// The smallest id of this time, in µs since 1970.
pub(super) fn id_at(time: i64) -> Uuid {
    Uuid::from_u128((time.max(0) as u128 / 1_000) << 80)
}

/// Adds the data about these runs from other rows.
pub(super) async fn complete(conn: &mut Conn, runs: &mut [Run]) -> Result<(), Error> {
    halt_reasons(conn, runs).await?;
    successors(conn, runs).await?;
    first_due(conn, runs).await
}

/// Adds the times at which those of these runs begin whose first step may not be claimed yet: they were triggered for
/// later, their first step has a delay, or a process that could not run it has put it back.
async fn first_due(conn: &mut Conn, runs: &mut [Run]) -> Result<(), Error> {
    let waits = |run: &&Run| {
        let is_open = run.status == RunStatus::InProgress && run.cancelling_at.is_none();
        is_open && run.started_at.is_none()
    };
    let ids: Vec<RunId> = runs.iter().filter(waits).map(|run| run.id).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let rows = Rows::new().ids("id", ids);
    for row in conn.fetch(&FIRST_DUE, &[("b", (&rows).into())]).await? {
        let id = RunId(row.get("run_id")?);
        if let Some(run) = runs.iter_mut().find(|run| run.id == id) {
            run.due_at = row.get("due_at")?;
        }
    }
    Ok(())
}

/// Adds the successors of those of these runs that were revived.
async fn successors(conn: &mut Conn, runs: &mut [Run]) -> Result<(), Error> {
    let halted = |run: &&Run| run.status == RunStatus::Halted;
    let ids: Vec<RunId> = runs.iter().filter(halted).map(|run| run.id).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let rows = Rows::new().ids("id", ids);
    for row in conn.fetch(&SUCCESSORS, &[("b", (&rows).into())]).await? {
        let id = RunId(row.get("run_id")?);
        if let Some(run) = runs.iter_mut().find(|run| run.id == id) {
            run.revived_as = Some(RunId(row.get("successor")?));
        }
    }
    Ok(())
}

/// Adds the reasons why branches of these runs have halted.
async fn halt_reasons(conn: &mut Conn, runs: &mut [Run]) -> Result<(), Error> {
    // Branches of a run in progress may have halted as well: the run will halt when all have ended.
    let open = |run: &&Run| run.status != RunStatus::Completed;
    let ids: Vec<RunId> = runs.iter().filter(open).map(|run| run.id).collect();
    if ids.is_empty() {
        return Ok(());
    }
    for (id, reason) in reasons(conn, ids).await? {
        if let Some(run) = runs.iter_mut().find(|run| run.id == id) {
            run.halt_reasons.push(reason);
        }
    }
    Ok(())
}

/// The reasons for which branches of these runs have halted, each once per run.
pub(super) async fn reasons(
    conn: &mut Conn,
    runs: Vec<RunId>,
) -> Result<Vec<(RunId, String)>, Error> {
    let rows = Rows::new().ids("id", runs);
    let known = Rows::new().texts("reason", HaltReason::ALL.iter().map(|it| it.as_str()));
    let args = [("b", (&rows).into()), ("w", (&known).into())];
    let found = conn.fetch(&HALT_REASONS, &args).await?;
    let reason = |row: &Row| Ok((RunId(row.get("run_id")?), row.get("halt_reason")?));
    found.iter().map(reason).collect()
}
