//! Processes that are gone, for people who ask about them.
//!
//! Owns: remembering a process when its row is removed, and forgetting it with the history, or after 90 days. Never:
//! decides that a process is gone (`process` and `recovery` report this).

use std::time::Duration;

use uuid::Uuid;

use crate::model::*;

use super::conn::{Conn, Row};
use super::error::Error;
use super::micros;
use super::statement::statements;

/// One transaction forgets at most this many.
const FORGOTTEN_AT_ONCE: u64 = 500;

/// How long a death is reported to the operator of a daemon.
const LATELY: Duration = Duration::from_secs(60 * 60);

/// At most this many of these deaths are reported.
const REPORTED: usize = 500;

/// A process that is gone is remembered no longer than this, even where the history is kept for ever: a child that
/// crashes again and again leaves a row each time.
pub const REMEMBERED_AT_MOST: Duration = Duration::from_secs(90 * 24 * 60 * 60);

macro_rules! departed_columns {
    () => {
        "d.id, d.role, d.pipeline, d.host, d.pid, d.version, d.started_at, d.gone_at, d.death, \
         d.went_on_as"
    };
}

statements! {
    /// The attempts that a process made refer to it.
    REMEMBER = "
        INSERT INTO ductwork_departed (id, role, pipeline, host, pid, version, started_at, gone_at, death)
        VALUES (:id, :role, :pipeline, :host, :pid, :version, :started_at, {now}, :death)
        {keep:ductwork_departed;id}";
    DEPARTED = concat!("
        SELECT ", departed_columns!(), "
          FROM ductwork_departed d ORDER BY d.gone_at DESC, d.id DESC LIMIT :n");
    WENT_ON = "UPDATE ductwork_departed SET went_on_as = :later WHERE id = :id";
    /// However many other processes departed after them. One that went on is not lost.
    LOST_SUPERVISORS = concat!("
        SELECT ", departed_columns!(), "
          FROM ductwork_departed d
         WHERE d.gone_at >= :since AND d.role = 'supervisor'
           AND d.death IS NOT NULL AND d.went_on_as IS NULL
         ORDER BY d.gone_at DESC, d.id DESC LIMIT :n");
    /// Processes that were gone before the kept history began, as a rule.
    OLD_DEPARTED = "
        SELECT id FROM ductwork_departed WHERE gone_at <= {now} - :age ORDER BY gone_at, id LIMIT :n";
    FORGET_DEPARTED = "{delete:ductwork_departed;b(id id)} WHERE {of:ductwork_departed.id;b(id id)}";
}

/// Keeps the facts about a process that people ask for after its row is gone.
pub(super) async fn remember(
    conn: &mut Conn,
    process: ProcessId,
    row: &Row,
    death: Option<&str>,
) -> Result<(), Error> {
    let (role, pipeline): (String, Option<String>) = (row.get("role")?, row.get("pipeline")?);
    let (host, version): (String, String) = (row.get("host")?, row.get("version")?);
    let args = [
        ("id", process.0.into()),
        ("role", role.as_str().into()),
        ("pipeline", pipeline.as_deref().into()),
        ("host", (&host).into()),
        ("pid", row.get::<i64>("pid")?.into()),
        ("version", (&version).into()),
        ("started_at", row.get::<i64>("started_at")?.into()),
        ("death", death.into()),
    ];
    conn.execute(&REMEMBER, &args).await?;
    Ok(())
}

/// Tells of a process that was declared dead that it lives, and has registered anew.
pub(super) async fn went_on(
    conn: &mut Conn,
    earlier: ProcessId,
    later: ProcessId,
) -> Result<(), Error> {
    let args = [("id", earlier.0.into()), ("later", later.0.into())];
    conn.execute(&WENT_ON, &args).await?;
    Ok(())
}

/// A process that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departed {
    /// The key of the row that it had.
    pub id: ProcessId,
    /// Its purpose.
    pub role: String,
    /// The pipeline of a worker.
    pub pipeline: Option<String>,
    /// The host that it ran on.
    pub host: String,
    /// Its pid on that host.
    pub pid: u32,
    /// The program's version.
    pub version: String,
    /// µs since 1970.
    pub started_at: i64,
    /// µs since 1970.
    pub gone_at: i64,
    /// The sign by which it was known to be dead; `None` where it ended in order.
    pub death: Option<String>,
    /// It was declared dead, and lived: the key with which it has registered since.
    pub went_on_as: Option<ProcessId>,
}

impl Departed {
    /// How its death became known, and under which id it went on if it lived, in words.
    pub fn how(&self) -> Option<String> {
        Some(in_words(self.death.as_deref()?, self.went_on_as))
    }

    fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            id: ProcessId(row.get("id")?),
            role: row.get("role")?,
            pipeline: row.get("pipeline")?,
            host: row.get("host")?,
            pid: row.count("pid")?,
            version: row.get("version")?,
            started_at: row.get("started_at")?,
            gone_at: row.get("gone_at")?,
            death: row.get("death")?,
            went_on_as: row.get::<Option<Uuid>>("went_on_as")?.map(ProcessId),
        })
    }
}

/// The sign of a death, and the id under which the process went on if it lived.
pub(super) fn in_words(death: &str, went_on_as: Option<ProcessId>) -> String {
    match went_on_as {
        Some(later) => format!("{death}; it lived, and went on as {}", short(later)),
        None => death.to_owned(),
    }
}

/// The most recently departed processes, at most `n` of them, the last one first.
pub async fn latest(conn: &mut Conn, n: usize) -> Result<Vec<Departed>, Error> {
    let rows = conn.fetch(&DEPARTED, &[("n", n.into())]).await?;
    rows.iter().map(Departed::read).collect()
}

/// The supervisors that were found dead within the last hour, the last one first.
pub async fn lost_lately(conn: &mut Conn, now: i64) -> Result<Vec<Departed>, Error> {
    let since = now.saturating_sub(micros(LATELY));
    let args = [("since", since.into()), ("n", REPORTED.into())];
    let rows = conn.fetch(&LOST_SUPERVISORS, &args).await?;
    rows.iter().map(Departed::read).collect()
}

/// The age at which processes that are gone are forgotten, if the history is kept for `retention`.
pub(super) fn forgotten_after(retention: Option<Duration>) -> Duration {
    retention.map_or(REMEMBERED_AT_MOST, |age| age.min(REMEMBERED_AT_MOST))
}

/// Forgets processes that departed at least `age` ago; true where more of them may be left.
pub(super) async fn forget(conn: &mut Conn, age: Duration) -> Result<bool, Error> {
    let n = FORGOTTEN_AT_ONCE;
    let args = [("age", micros(age).into()), ("n", (n as i64).into())];
    Ok(super::forget(conn, &OLD_DEPARTED, &FORGET_DEPARTED, &args).await? == n)
}
