//! Pausing a pipeline: none of its executions is claimed until the pause ends.
//!
//! Owns: the rows of paused pipelines, and the marks of a pause in the rows of processes: every claim
//! writes its process's row, so it reads nothing else. Never: claims, or blocks advancing, committing or
//! recovering.

use crate::failpoint::failpoint;
use crate::machine::letters::is_shown;
use crate::machine::pause::Pause;
use crate::model::*;

use super::action::{self, Actor};
use super::conn::{Conn, Row};
use super::error::Error;
use super::query;
use super::statement::statements;

statements! {
    /// The pause of a pipeline. Its row is written, so that it stays unchanged until the transaction ends;
    /// this creates the row where there was none. A lock alone would not hold off a writer at another node of
    /// a cluster.
    ///
    /// RACE: a worker registers while its pipeline is paused or unpaused. Neither sees the row that the other
    /// writes, of a process or a pause, before the other has ended. So both write the pipeline's row in this
    /// table first (a registration removes it again), and one waits for the other: the worker registers in the
    /// state that was decided, or its row exists and can be marked. Proven by
    /// `a_worker_that_registers_while_its_pipeline_is_paused_is_paused`,
    /// `a_pause_marks_the_worker_whose_registration_it_waited_for` and
    /// `a_worker_that_registers_while_its_pipeline_is_unpaused_claims`. (I35)
    HOLD_PAUSE = "
        INSERT INTO ductwork_pauses (pipeline, reason, paused_by, paused_at)
        VALUES (:pipeline, :reason, :by, :at)
        {replace:pipeline} holds = ductwork_pauses.holds + 1";
    LOCK_PAUSE = "
        SELECT pipeline, reason, paused_by, paused_at FROM ductwork_pauses
         WHERE pipeline = :pipeline {lock}";
    END_PAUSE = "DELETE FROM ductwork_pauses WHERE pipeline = :pipeline";
    /// A process that knows no pauses keeps its row as it is, so that it can be reported.
    MARK_PROCESSES = "
        UPDATE ductwork_processes SET paused = :paused WHERE pipeline = :pipeline AND paused IS NOT NULL";
    UNAWARE = "
        SELECT id, host, pid, version FROM ductwork_processes
         WHERE pipeline = :pipeline AND paused IS NULL ORDER BY started_at, id";
    PAUSES = "
        SELECT substr(p.pipeline, 1, 1000) AS pipeline, substr(p.reason, 1, 1000) AS reason,
               substr(p.paused_by, 1, 1000) AS paused_by, p.paused_at
          FROM ductwork_pauses p ORDER BY p.pipeline";
    PAUSE_OF = "
        SELECT substr(p.pipeline, 1, 1000) AS pipeline, substr(p.reason, 1, 1000) AS reason,
               substr(p.paused_by, 1, 1000) AS paused_by, p.paused_at
          FROM ductwork_pauses p
         WHERE p.pipeline = :pipeline";
}

/// No pause began then: the time in the row of a registration, which nobody else ever sees.
const NEVER: i64 = 0;

/// The longest reason, in characters.
pub const REASON_MAX: usize = 500;

/// The reason that this text gives: one line that a reader can see.
pub fn reason_of(text: &str) -> Option<&str> {
    let reason = text.trim();
    let is_line = reason.chars().count() <= REASON_MAX && !reason.contains(char::is_control);
    (is_line && reason.contains(is_shown)).then_some(reason)
}

/// A worker of a program that knows no pauses: it goes on claiming.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unaware {
    /// Its key.
    pub id: ProcessId,
    /// The host that it runs on.
    pub host: String,
    /// Its pid on that host.
    pub pid: u32,
    /// The program's version.
    pub version: String,
}

/// The answer to a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paused {
    /// The pause: a new one, or the existing one.
    pub pause: Pause,
    /// False when it was paused before.
    pub created: bool,
    /// The workers that do not heed it.
    pub unaware: Vec<Unaware>,
}

/// Pauses a pipeline: after this returns, none of its executions is taken off the queue. A paused
/// pipeline stays as it is, with its own reason.
pub async fn pause(
    conn: &mut Conn,
    pipeline: &str,
    reason: &str,
    by: &Actor,
) -> Result<Paused, Error> {
    failpoint!(conn, "pause.begin");
    let paused = conn.transaction(async |conn| {
        let at = query::now(conn).await?;
        let new = Pause {
            pipeline: pipeline.to_owned(),
            reason: reason.to_owned(),
            by: by.name.clone(),
            at,
        };
        let pause = hold(conn, &new).await?;
        mark(conn, pipeline, true).await?;
        let created = pause == new;
        if created {
            action::record_of_pipeline(conn, by, Verb::Pause, pipeline).await?;
        }
        failpoint!(conn, "pause.written");
        let unaware = conn
            .fetch(&UNAWARE, &[("pipeline", pipeline.into())])
            .await?;
        Ok(Paused {
            created,
            pause,
            unaware: unaware.iter().map(unaware_of).collect::<Result<_, _>>()?,
        })
    });
    let paused = paused.await?;
    failpoint!(conn, "pause.end");
    Ok(paused)
}

/// Ends the pause of a pipeline, and returns it; `None` when it was not paused.
pub async fn unpause(conn: &mut Conn, pipeline: &str, by: &Actor) -> Result<Option<Pause>, Error> {
    failpoint!(conn, "unpause.begin");
    let ended = conn.transaction(async |conn| {
        let args = [("pipeline", pipeline.into())];
        let Some(row) = conn.fetch_optional(&LOCK_PAUSE, &args).await? else {
            return Ok(None);
        };
        conn.write(&END_PAUSE, &args, 1).await?;
        mark(conn, pipeline, false).await?;
        action::record_of_pipeline(conn, by, Verb::Unpause, pipeline).await?;
        failpoint!(conn, "unpause.written");
        of(&row).map(Some)
    });
    let ended = ended.await?;
    failpoint!(conn, "unpause.end");
    Ok(ended)
}

/// Whether a process that registers is paused. This does not change until its transaction ends.
pub(super) async fn ask(conn: &mut Conn, pipeline: &str) -> Result<bool, Error> {
    let none = Pause {
        pipeline: pipeline.to_owned(),
        reason: String::new(),
        by: String::new(),
        at: NEVER,
    };
    let paused = hold(conn, &none).await? != none;
    if !paused {
        let args = [("pipeline", pipeline.into())];
        conn.write(&END_PAUSE, &args, 1).await?;
    }
    Ok(paused)
}

async fn hold(conn: &mut Conn, new: &Pause) -> Result<Pause, Error> {
    let args = [
        ("pipeline", (&new.pipeline).into()),
        ("reason", (&new.reason).into()),
        ("by", (&new.by).into()),
        ("at", new.at.into()),
    ];
    conn.execute(&HOLD_PAUSE, &args).await?;
    match conn.fetch_optional(&LOCK_PAUSE, &args[..1]).await? {
        Some(row) => of(&row),
        None => Err(Error::Corrupt(
            "a row that was written is not there".to_owned(),
        )),
    }
}

async fn mark(conn: &mut Conn, pipeline: &str, paused: bool) -> Result<(), Error> {
    let args = [
        ("pipeline", pipeline.into()),
        ("paused", i64::from(paused).into()),
    ];
    conn.execute(&MARK_PROCESSES, &args).await?;
    Ok(())
}

/// All pauses, by pipeline.
pub async fn pauses(conn: &mut Conn) -> Result<Vec<Pause>, Error> {
    let rows = conn.fetch(&PAUSES, &[]).await?;
    rows.iter().map(of).collect()
}

/// The pause of a pipeline, if it is paused.
pub async fn of_pipeline(conn: &mut Conn, pipeline: &str) -> Result<Option<Pause>, Error> {
    let args = [("pipeline", pipeline.into())];
    let row = conn.fetch_optional(&PAUSE_OF, &args).await?;
    row.as_ref().map(of).transpose()
}

/// Whether the row of a process says that it is paused.
pub(super) fn is_told(row: &Row) -> Result<bool, Error> {
    Ok(row.get::<Option<i64>>("paused")? == Some(1))
}

fn of(row: &Row) -> Result<Pause, Error> {
    Ok(Pause {
        pipeline: row.get("pipeline")?,
        reason: row.get("reason")?,
        by: row.get("paused_by")?,
        at: row.get("paused_at")?,
    })
}

fn unaware_of(row: &Row) -> Result<Unaware, Error> {
    Ok(Unaware {
        id: ProcessId(row.get("id")?),
        host: row.get("host")?,
        pid: row.count("pid")?,
        version: row.get("version")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_that_a_reader_can_see() {
        assert_eq!(reason_of(" the feed is bad\n"), Some("the feed is bad"));
        assert_eq!(reason_of("日曜日"), Some("日曜日"));
        let longest = "a".repeat(REASON_MAX);
        assert_eq!(reason_of(&longest), Some(longest.as_str()));
        for none in ["", " \t", "\u{a0}", "\u{3164}", "\u{200b} \u{2800}", "a\nb"] {
            assert_eq!(reason_of(none), None, "{none:?}");
        }
        assert_eq!(reason_of(&"a".repeat(REASON_MAX + 1)), None);
    }
}
