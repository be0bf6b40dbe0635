//! Changes of runs, for a reader that polls.
//!
//! Owns: reading the runs that began or ended since a time, and those that wait for a person now, each by an
//! index: the cost depends on how much has happened. Never: writes, or knows what was reported before.

use uuid::Uuid;

use crate::model::*;

use super::conn::{Conn, Row};
use super::cursor::Cursor;
use super::delivery::Page;
use super::error::Error;
use super::list::id_at;
use super::statement::statements;
use super::{delivery, page, query};

/// How many rows one statement reads.
const PAGE: usize = 1_000;

/// How many statements of a kind read changes again that were read before.
const PAGES_AGAIN: usize = 6;

/// How many statements of a kind read on. The two limits are separate: new changes are read however
/// many are read again.
const PAGES_ON: usize = 4;

/// How many statements of a kind read the past.
const PAGES_PAST: usize = 10;

/// How many runs of a pipeline that wait for a person are looked at, the oldest first.
const WAITING: usize = 10 * PAGE;

// A run whose deletion has begun does not exist for readers.
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
    /// Its state since then; `in_progress` for a run that has begun, whatever its state is now.
    pub status: RunStatus,
    /// µs since 1970.
    pub at: i64,
}

/// The places after which changes of a kind are read: by the time with which a run's id begins, or by the
/// time at which the run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Changes that were read before are read again from this place on.
    pub again: Cursor,
    /// Changes that were not read before are read from this place on.
    pub on: Cursor,
}

/// A request for changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// For runs that began, by the clock of the process that triggered them.
    pub started: Behind,
    /// For runs that ended, by the database's clock.
    pub ended: Behind,
    /// How far back places may be, in µs. Nothing is read from a place further back.
    pub at_most: i64,
    /// How far back reading begins instead, in µs.
    pub anew: i64,
}

/// A change, with its place among those of its kind.
pub type Placed = (Cursor, Changed);

/// The changes of a kind.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Sorted by their places, except for the first of the new ones.
    pub changes: Vec<Placed>,
    /// The place where rereading stopped, if it did not reach the end.
    pub again: Option<Cursor>,
    /// The place where reading on stopped.
    pub on: Option<Cursor>,
}

/// The answer.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The database's time before the changes were read.
    pub now: i64,
    /// A place was too far back: everything was read from another place.
    pub is_anew: bool,
    /// Runs that have begun.
    pub started: Found,
    /// Runs that have ended.
    pub ended: Found,
    /// Runs that wait for a person now.
    pub waiting: Vec<(RunId, String)>,
}

#[derive(Clone, Copy)]
enum Kind {
    Started,
    Ended,
}

/// The changes since these places.
pub async fn changes(conn: &mut Conn, since: Since) -> Result<Changes, Error> {
    let now = query::now(conn).await?;
    let least = Cursor::at(now.saturating_sub(since.at_most));
    let is_behind = |it: Behind| it.again < least || it.on < least;
    let is_anew = is_behind(since.started) || is_behind(since.ended);
    let anew = Cursor::at(now.saturating_sub(since.anew));
    let behind = |it: Behind| match is_anew {
        true => Behind {
            again: anew,
            on: anew,
        },
        false => it,
    };
    Ok(Changes {
        now,
        is_anew,
        started: found(conn, Kind::Started, behind(since.started)).await?,
        ended: found(conn, Kind::Ended, behind(since.ended)).await?,
        waiting: page::dampened(conn, None, WAITING).await?,
    })
}

/// The changes of one kind, and those of the other.
pub type Past = (Vec<Placed>, Vec<Placed>);

/// Runs that began, and runs that ended, from one time until another; none where there are too many.
pub async fn past(conn: &mut Conn, from: i64, until: i64) -> Result<Option<Past>, Error> {
    let (mut started, mut ended) = (Vec::new(), Vec::new());
    let places = (Cursor::at(from), Cursor::at(until));
    for (kind, changes) in [(Kind::Started, &mut started), (Kind::Ended, &mut ended)] {
        let stopped = walk(conn, kind, places, PAGES_PAST, changes).await?;
        if stopped.is_some_and(|stopped| stopped < places.1) {
            return Ok(None);
        }
        changes.retain(|(place, _)| *place < places.1);
    }
    Ok(Some((started, ended)))
}

/// Where rereading meets new changes, one statement reads both.
async fn found(conn: &mut Conn, kind: Kind, behind: Behind) -> Result<Found, Error> {
    let mut found = Found::default();
    let changes = &mut found.changes;
    let on = behind.on;
    found.again = walk(conn, kind, (behind.again, on), PAGES_AGAIN, changes).await?;
    found.on = match found.again {
        Some(stopped) => {
            let on = stopped.max(on);
            walk(conn, kind, (on, Cursor::at(i64::MAX)), PAGES_ON, changes).await?
        }
        None => None,
    };
    Ok(found)
}

/// Reads pages after a place until one reaches another place. Returns where it stopped, if there may
/// be more.
async fn walk(
    conn: &mut Conn,
    kind: Kind,
    (mut behind, until): (Cursor, Cursor),
    pages: usize,
    changes: &mut Vec<Placed>,
) -> Result<Option<Cursor>, Error> {
    for _ in 0..pages {
        let page = match kind {
            Kind::Started => started(conn, behind).await?,
            Kind::Ended => ended(conn, behind).await?,
        };
        behind = page.last.unwrap_or(behind);
        changes.extend(page.runs);
        if !page.is_full {
            return Ok(None);
        }
        if behind >= until {
            break;
        }
    }
    Ok(Some(behind))
}

async fn started(conn: &mut Conn, behind: Cursor) -> Result<Page<Placed>, Error> {
    let behind = id_at(behind.time()).max(behind.id());
    let args = [("behind", behind.into()), ("n", PAGE.into())];
    let rows = conn.fetch(&STARTED_SINCE, &args).await?;
    let place = |row: &Row| {
        let id = row.get("id")?;
        Ok(Cursor::new(time_of(id), id))
    };
    let placed = |row: &Row| {
        let id = row.get("id")?;
        let change = Changed {
            run: RunId(id),
            pipeline: row.get("pipeline")?,
            status: RunStatus::InProgress,
            at: row.get("triggered_at")?,
        };
        Ok((Cursor::new(time_of(id), id), change))
    };
    Ok(Page::read(&rows, PAGE, placed, place))
}

async fn ended(conn: &mut Conn, behind: Cursor) -> Result<Page<Placed>, Error> {
    let page = delivery::ended(conn, behind, PAGE).await?;
    let placed = page.runs.into_iter().map(|run| {
        let at = run.ended_at.unwrap_or(behind.time());
        let change = Changed {
            run: run.id,
            pipeline: run.pipeline,
            status: run.status,
            at,
        };
        (Cursor::new(at, run.id.0), change)
    });
    Ok(Page {
        runs: placed.collect(),
        damaged: page.damaged,
        last: page.last,
        is_full: page.is_full,
    })
}

/// The time with which an id begins.
fn time_of(id: Uuid) -> i64 {
    i64::try_from(id.as_u128() >> 80).unwrap_or_default() * 1_000
}
