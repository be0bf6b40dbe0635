//! Work that waits for a time that has already passed once, after the database's clock was set back.
//!
//! Owns: making this work due again. Never: reads a clock of its own; the reaper (`engine::reaper`)
//! notices whether the database's clock was set back.
//!
//! On SQLite, the database's clock is that of its host, which is set whenever somebody sets it; on
//! PostgreSQL, it is the server's, or its heir's after a failover. Work that was due before is then due
//! in the future, and would wait until the clock reaches its old time.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::conn::Conn;
use super::dialect::Dialect;
use super::error::Error;
use super::statement::statements;

/// Executions that wait for a time that was written before the clock was set back.
macro_rules! overtaken_availabilities {
    () => {
        "(SELECT q.execution_id, q.pipeline,
                 CASE WHEN q.due_at > coalesce(p.completed_at, s.created_at)
                      THEN q.due_at - coalesce(p.completed_at, s.created_at) ELSE 0 END AS delay
            FROM ductwork_availabilities q
            JOIN ductwork_executions e ON e.id = q.execution_id
            JOIN ductwork_steps s ON s.id = e.step_id
            LEFT JOIN ductwork_executions p ON p.step_id = e.step_id AND p.attempt = e.attempt - 1
           WHERE q.execution_id > :after_id AND q.execution_id <= :until_id
             AND q.due_at > {now} AND coalesce(p.completed_at, s.created_at) > {now})"
    };
}

/// The same for branches that wait for an advancer.
macro_rules! overtaken_branches {
    () => {
        "(SELECT br.id, CASE WHEN t.id IS NULL THEN s.completed_at ELSE br.last_advanced_at END AS since
            FROM ductwork_branches br
            JOIN ductwork_steps s ON s.id = br.step_id
            LEFT JOIN ductwork_transitions t ON t.from_step_id = br.step_id AND t.completed_at IS NULL
           WHERE br.ready_at > {now})"
    };
}

statements! {
    /// The end of a portion of the queue; none where less than a portion is left.
    END_OF_PORTION = "
        SELECT execution_id FROM ductwork_availabilities WHERE execution_id > :after_id
         ORDER BY execution_id LIMIT 1 OFFSET :n";
    /// An availability that was put into the queue later than now: it waits for the intended span.
    DUE_AGAIN = "
        UPDATE ductwork_availabilities SET due_at = {now} + w.delay
          FROM (SELECT q.execution_id,
                       CASE WHEN q.due_at > coalesce(p.completed_at, s.created_at)
                            THEN q.due_at - coalesce(p.completed_at, s.created_at) ELSE 0 END AS delay
                  FROM ductwork_availabilities q
                  JOIN ductwork_executions e ON e.id = q.execution_id
                  JOIN ductwork_steps s ON s.id = e.step_id
                  LEFT JOIN ductwork_executions p ON p.step_id = e.step_id AND p.attempt = e.attempt - 1
                 WHERE q.execution_id > :after_id AND q.execution_id <= :until_id
                   AND q.due_at > {now} AND coalesce(p.completed_at, s.created_at) > {now}) w
         WHERE ductwork_availabilities.execution_id = w.execution_id
        RETURNING ductwork_availabilities.pipeline AS pipeline",
        on Mysql [&OVERTAKEN_AVAILABILITIES, &DUE_AGAIN_ALONE];
    OVERTAKEN_AVAILABILITIES in Mysql = concat!("SELECT w.pipeline FROM ", overtaken_availabilities!(), " w");
    DUE_AGAIN_ALONE in Mysql = concat!("
        UPDATE ", overtaken_availabilities!(), " w {join:ductwork_availabilities}
           SET due_at = {now} + w.delay
         WHERE ductwork_availabilities.execution_id = w.execution_id");
    /// A branch that was claimed before has waited since it was given back, any other since its step's
    /// end.
    READY_AGAIN = "
        UPDATE ductwork_branches
           SET ready_at = {now} + CASE WHEN ductwork_branches.ready_at > w.since
                                       THEN ductwork_branches.ready_at - w.since ELSE 0 END,
               last_advanced_at = {now}
          FROM (SELECT br.id, CASE WHEN t.id IS NULL THEN s.completed_at
                                   ELSE br.last_advanced_at END AS since
                  FROM ductwork_branches br
                  JOIN ductwork_steps s ON s.id = br.step_id
                  LEFT JOIN ductwork_transitions t
                    ON t.from_step_id = br.step_id AND t.completed_at IS NULL
                 WHERE br.ready_at > {now}) w
         WHERE ductwork_branches.id = w.id AND ductwork_branches.ready_at > {now}
           AND w.since > {now}
        RETURNING ductwork_branches.id AS id",
        on Mysql [&OVERTAKEN_BRANCHES, &READY_AGAIN_ALONE];
    OVERTAKEN_BRANCHES in Mysql = concat!("SELECT w.id FROM ", overtaken_branches!(), " w WHERE w.since > {now}");
    READY_AGAIN_ALONE in Mysql = concat!("
        UPDATE ", overtaken_branches!(), " w {join:ductwork_branches}
           SET ductwork_branches.ready_at = {now} + CASE WHEN ductwork_branches.ready_at > w.since
                                                         THEN ductwork_branches.ready_at - w.since ELSE 0 END,
               ductwork_branches.last_advanced_at = {now}
         WHERE ductwork_branches.id = w.id AND ductwork_branches.ready_at > {now} AND w.since > {now}");
}

/// The corrected work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overtaken {
    /// Executions.
    pub executions: usize,
    /// Their pipelines.
    pub pipelines: BTreeSet<String>,
    /// Branches.
    pub branches: usize,
}

/// Making work due again that the clock has left in the future, to be done once after the clock was set back; where
/// it was not, this finds nothing. The queue may be long, so it is read in portions.
#[derive(Clone, Debug)]
pub struct Rescheduling {
    /// How many executions of the queue are read at once.
    portion: usize,
    /// The end of the last portion.
    after: Uuid,
    /// The corrected work that has not been reported yet.
    overtaken: Overtaken,
}

impl Default for Rescheduling {
    fn default() -> Self {
        Self::by(500)
    }
}

impl Rescheduling {
    /// Reads portions of this many executions.
    pub fn by(portion: usize) -> Self {
        Self {
            portion,
            after: Uuid::nil(),
            overtaken: Overtaken::default(),
        }
    }

    /// Begins anew, because the clock was set back once more.
    pub fn restart(&mut self) {
        self.after = Uuid::nil();
    }

    /// The work that was corrected since this was asked for last.
    pub fn overtaken(&mut self) -> Overtaken {
        std::mem::take(&mut self.overtaken)
    }

    /// Corrects the next portion of the queue, and the branches with the first; false after the last.
    pub async fn step(&mut self, conn: &mut Conn) -> Result<bool, Error> {
        if self.after.is_nil() {
            self.overtaken.branches += overtaken_branches(conn).await?;
        }
        let args = [("after_id", self.after.into()), ("n", self.portion.into())];
        let end = conn.fetch_optional(&END_OF_PORTION, &args).await?;
        let end: Option<Uuid> = end.map(|row| row.get("execution_id")).transpose()?;
        let until = end.unwrap_or(Uuid::max());
        let args = [("after_id", self.after.into()), ("until_id", until.into())];
        for row in conn.fetch(&DUE_AGAIN, &args).await? {
            self.overtaken.executions += 1;
            self.overtaken.pipelines.insert(row.get("pipeline")?);
        }
        self.after = end.unwrap_or_default();
        Ok(end.is_some())
    }
}

/// Corrects branches where nobody noticed that the clock was set back: this may have happened since the last look, or
/// the clock was set forward and back between two looks. Few branches wait at a time, so these are checked first;
/// returns `true` where they show it, and executions have to be checked as well.
pub async fn may_have_been_set_back(
    conn: &mut Conn,
    rescheduling: &mut Rescheduling,
) -> Result<bool, Error> {
    let branches = overtaken_branches(conn).await?;
    rescheduling.overtaken.branches += branches;
    Ok(branches > 0)
}

async fn overtaken_branches(conn: &mut Conn) -> Result<usize, Error> {
    // Each sweep runs this: the writing statement is skipped as long as there is nothing to write.
    let asks_first = conn.dialect() == Dialect::Mysql;
    if asks_first && conn.fetch(&OVERTAKEN_BRANCHES, &[]).await?.is_empty() {
        return Ok(0);
    }
    Ok(conn.fetch(&READY_AGAIN, &[]).await?.len())
}
