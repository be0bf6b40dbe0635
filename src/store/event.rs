//! Changes of runs, as somebody hears of them who asks again and again.
//!
//! Owns: reading the runs that began or ended since a time, and those that wait for a person now, each by an
//! index: what it costs is what has happened. Never: writes, or knows what was told before.

use uuid::Uuid;

use crate::model::*;

use super::conn::Conn;
use super::cursor::Cursor;
use super::error::Error;
use super::list::id_at;
use super::statement::statements;
use super::{delivery, page, query};

/// Rows of one statement.
const PAGE: usize = 1_000;

/// So many statements of a kind at once; whoever asks goes on next time.
const PAGES: usize = 10;

/// As many runs of a pipeline that wait for a person are looked at, the oldest: as many as of those that ended.
const WAITING: usize = PAGE * PAGES;

// A run whose deletion has begun is gone for whoever reads.
statements! {
    STARTED_SINCE = "
        SELECT r.id, r.pipeline, r.triggered_at FROM ductwork_runs r
         WHERE r.id > :behind AND r.pruning_at IS NULL ORDER BY r.id LIMIT :n";
}

/// A run that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The run.
    pub run: RunId,
    /// Its pipeline.
    pub pipeline: String,
    /// Its state since then; of one that has begun `in_progress`, whatever it is now.
    pub status: RunStatus,
    /// µs since 1970.
    pub at: i64,
}

/// Times from which on changes are asked for: µs since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// By ids, which begin with the time of whoever triggered.
    pub started: i64,
    /// By the database's time.
    pub ended: i64,
    /// But at most so far back from now, in µs.
    pub at_most: i64,
}

/// The answer.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The database's time before it was asked.
    pub now: i64,
    /// Runs that have begun, and the time up to which they are here, if not up to now.
    pub started: (Vec<Changed>, Option<i64>),
    /// Those that have ended.
    pub ended: (Vec<Changed>, Option<i64>),
    /// Those that wait for a person now.
    pub waiting: Vec<(RunId, String)>,
}

/// The changes since.
pub async fn changes(conn: &mut Conn, since: Since) -> Result<Changes, Error> {
    let now = query::now(conn).await?;
    let least = now.saturating_sub(since.at_most);
    Ok(Changes {
        now,
        started: started(conn, since.started.max(least)).await?,
        ended: ended(conn, since.ended.max(least)).await?,
        waiting: page::dampened(conn, WAITING).await?,
    })
}

async fn started(conn: &mut Conn, since: i64) -> Result<(Vec<Changed>, Option<i64>), Error> {
    let mut found = Vec::new();
    let mut behind = id_at(since);
    for _ in 0..PAGES {
        let args = [("behind", behind.into()), ("n", PAGE.into())];
        let rows = conn.fetch(&STARTED_SINCE, &args).await?;
        for row in &rows {
            found.push(Changed {
                run: RunId(row.get("id")?),
                pipeline: row.get("pipeline")?,
                status: RunStatus::InProgress,
                at: row.get("triggered_at")?,
            });
        }
        match found.last() {
            Some(last) if rows.len() == PAGE => behind = last.run.0,
            _ => return Ok((found, None)),
        }
    }
    Ok((found, Some(time_of(behind))))
}

async fn ended(conn: &mut Conn, since: i64) -> Result<(Vec<Changed>, Option<i64>), Error> {
    let mut found = Vec::new();
    let mut behind = Cursor::at(since);
    for _ in 0..PAGES {
        let (runs, last) = delivery::ended(conn, behind, PAGE).await?;
        let is_full = runs.len() == PAGE;
        found.extend(runs.into_iter().map(|run| Changed {
            run: run.id,
            pipeline: run.pipeline,
            status: run.status,
            at: run.ended_at.unwrap_or(since),
        }));
        match last {
            Some(last) if is_full => behind = last,
            _ => return Ok((found, None)),
        }
    }
    Ok((found, Some(behind.time())))
}

/// The time with which an id begins.
fn time_of(id: Uuid) -> i64 {
    i64::try_from(id.as_u128() >> 80).unwrap_or_default() * 1_000
}
