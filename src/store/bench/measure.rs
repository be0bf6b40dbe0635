//! The figures that a benchmark reads from the database: counts, times by the database's clock, and the
//! database's own figures.
//!
//! Owns: those statements. Never: writes, or runs in a daemon: some of them scan.

use std::time::Duration;

use crate::model::ProcessId;

use super::super::conn::Conn;
use super::super::dialect::Dialect;
use super::super::error::Error;
use super::super::statement::{Only, Statement};

static IN_PROGRESS: Statement = Statement::new(
    "IN_PROGRESS",
    "SELECT count(*) AS n FROM ductwork_runs WHERE status = 'in_progress'",
);
static WORK_SPAN: Statement = Statement::new(
    "WORK_SPAN",
    "
    SELECT (SELECT min(e.claimed_at) FROM ductwork_executions e
             WHERE e.pipeline = :pipeline AND e.claimed_at >= :since) AS began,
           (SELECT max(r.completed_at) FROM ductwork_runs r WHERE r.pipeline = :pipeline) AS ended,
           (SELECT count(*) FROM ductwork_executions e
             WHERE e.pipeline = :pipeline AND e.result = 'success' AND e.completed_at >= :since) AS steps,
           (SELECT count(*) FROM ductwork_runs r
             WHERE r.pipeline = :pipeline AND r.status = 'completed'
               AND r.completed_at >= :since) AS runs",
);
static SLICES: Statement = Statement::new(
    "SLICES",
    "
    SELECT {big:(completed_at - :since - (completed_at - :since) % :width) / :width} AS slice, count(*) AS n FROM ductwork_executions
     WHERE pipeline = :pipeline AND result = 'success' AND completed_at >= :since
       AND completed_at < :until
     GROUP BY 1 ORDER BY 1",
);
static RUN_TIMES: Statement = Statement::new(
    "RUN_TIMES",
    "
    SELECT completed_at - triggered_at AS took FROM ductwork_runs
     WHERE pipeline = :pipeline AND status = 'completed' ORDER BY id",
);
static HELD_COUNT: Statement = Statement::new(
    "HELD_COUNT",
    "
    SELECT count(*) AS n FROM ductwork_executions
     WHERE process_id = :process AND completed_at IS NULL",
);
/// Every statement by key counts as a scan of an index.
static SCANS: Statement = Statement::only(
    Only::Postgres,
    "SCANS",
    "
    SELECT CAST(coalesce(sum(coalesce(seq_scan, 0) + coalesce(idx_scan, 0)), 0) AS bigint) AS n
      FROM pg_stat_user_tables WHERE schemaname = current_schema()",
);
/// A description of the database for people: its version, and how carefully it keeps committed
/// data.
static SERVER: [Statement; Dialect::COUNT] = [
    Statement::only(
        Only::Postgres,
        "SERVER",
        "SELECT 'PostgreSQL ' || current_setting('server_version') || ' (fsync ' || current_setting('fsync')
             || ', synchronous_commit ' || current_setting('synchronous_commit') || ')' AS server",
    ),
    Statement::only(
        Only::Sqlite,
        "SERVER",
        "SELECT 'SQLite ' || sqlite_version() || ' (WAL, synchronous full)' AS server",
    ),
    Statement::only(
        Only::Mysql,
        "SERVER",
        "SELECT version() || ' (innodb_flush_log_at_trx_commit ' || @@innodb_flush_log_at_trx_commit
             || ', sync_binlog ' || @@sync_binlog || ')' AS server",
    ),
];

/// How many runs are in progress.
pub async fn in_progress(conn: &mut Conn) -> Result<u64, Error> {
    count(conn.fetch_optional(&IN_PROGRESS, &[]).await?)
}

/// The work on the runs of one pipeline, measured by the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkSpan {
    /// From the first claim to the completion of the last run.
    pub took: Duration,
    /// Executions that succeeded.
    pub steps: u64,
    /// Runs that were completed.
    pub runs: u64,
}

/// The work on `pipeline` since this time of the database's clock; `None` where there was none.
pub async fn work_span(
    conn: &mut Conn,
    pipeline: &str,
    since: i64,
) -> Result<Option<WorkSpan>, Error> {
    let args = [("pipeline", pipeline.into()), ("since", since.into())];
    let Some(row) = conn.fetch_optional(&WORK_SPAN, &args).await? else {
        return Ok(None);
    };
    let (began, ended): (Option<i64>, Option<i64>) = (row.get("began")?, row.get("ended")?);
    let (Some(began), Some(ended)) = (began, ended) else {
        return Ok(None);
    };
    Ok(Some(WorkSpan {
        took: Duration::from_micros(ended.saturating_sub(began).max(0) as u64),
        steps: row.get::<i64>("steps")?.max(0) as u64,
        runs: row.get::<i64>("runs")?.max(0) as u64,
    }))
}

/// How many steps of `pipeline` succeeded in each slice of the time from `since` to `until`, in µs
/// by the database's clock.
pub async fn slices(
    conn: &mut Conn,
    pipeline: &str,
    since: i64,
    until: i64,
    width: i64,
) -> Result<Vec<u64>, Error> {
    let args = [
        ("pipeline", pipeline.into()),
        ("since", since.into()),
        ("until", until.into()),
        ("width", width.into()),
    ];
    let mut slices = vec![0; usize::try_from((until - since) / width).unwrap_or(0)];
    for row in conn.fetch(&SLICES, &args).await? {
        let slice = usize::try_from(row.get::<i64>("slice")?).unwrap_or(usize::MAX);
        if let Some(count) = slices.get_mut(slice) {
            *count = row.get::<i64>("n")?.max(0) as u64;
        }
    }
    Ok(slices)
}

/// How long each completed run of `pipeline` took from its trigger, in order, by the database's
/// clock.
pub async fn run_times(conn: &mut Conn, pipeline: &str) -> Result<Vec<Duration>, Error> {
    let rows = conn
        .fetch(&RUN_TIMES, &[("pipeline", pipeline.into())])
        .await?;
    let took = |took: i64| Duration::from_micros(took.max(0) as u64);
    rows.iter().map(|row| Ok(took(row.get("took")?))).collect()
}

/// How many executions `process` holds.
pub async fn held(conn: &mut Conn, process: ProcessId) -> Result<u64, Error> {
    let args = [("process", process.0.into())];
    count(conn.fetch_optional(&HELD_COUNT, &args).await?)
}

/// How many scans of tables and indexes this schema has had; `None` where the database does not
/// count them. It lags behind by up to a second.
pub async fn scans(conn: &mut Conn) -> Result<Option<u64>, Error> {
    if !SCANS.is_for(conn.dialect()) {
        return Ok(None);
    }
    count(conn.fetch_optional(&SCANS, &[]).await?).map(Some)
}

/// A description of the database for people: its version, and how carefully it keeps committed
/// data.
pub async fn server(conn: &mut Conn) -> Result<String, Error> {
    let dialect = conn.dialect();
    let statement = SERVER.iter().find(|one| one.is_for(dialect));
    let statement = statement.expect("each database has one");
    match conn.fetch_optional(statement, &[]).await? {
        Some(row) => row.get("server"),
        None => Err(Error::Corrupt("the server has no version".to_owned())),
    }
}

fn count(row: Option<super::super::Row>) -> Result<u64, Error> {
    row.map_or(Ok(0), |row| Ok(row.get::<i64>("n")?.max(0) as u64))
}
