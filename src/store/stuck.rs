//! The facts from which `machine::stuck` concludes what does not move.
//!
//! Owns: reading them, in one snapshot, at a cost that grows neither with the history nor with the
//! queue: the heads of queues, and the work in flight. Never: concludes anything from them.

use std::time::Duration;

use crate::machine::stuck::{Facts, GRACE, Mover, Unkept, Waiting};
use crate::model::*;

use super::conn::{Conn, Row};
use super::dialect::Dialect;
use super::error::Error;
use super::micros;
use super::overview;
use super::pause;
use super::process::{Condemned, has_known_role};
use super::query;
use super::statement::{Rows, statements};
use super::writable;

statements! {
    /// Reads the first rows of the indexes that the other statements read. On PostgreSQL, the index of the queue serves
    /// conditions on the pipeline alone (ADR 0056), here one that is always true.
    MAY_BE_STUCK = "
        SELECT 1 AS found
         WHERE EXISTS (SELECT 1 FROM ductwork_availabilities WHERE pipeline >= '')
            OR EXISTS (SELECT 1 FROM ductwork_branches WHERE ready_at IS NOT NULL)
            OR EXISTS (SELECT 1 FROM ductwork_transitions t
                        WHERE t.completed_at IS NULL{narrow: AND t.open_branch IS NOT NULL})
            OR EXISTS (SELECT 1 FROM ductwork_executions e
                        WHERE e.completed_at IS NULL AND e.process_id IS NOT NULL{narrow: AND e.holder IS NOT NULL})
            OR EXISTS (SELECT 1 FROM ductwork_advancements a
                        WHERE a.completed_at IS NULL{narrow: AND a.holder IS NOT NULL})
            OR EXISTS (SELECT 1 FROM ductwork_deadlines WHERE answer_by < {now})
            OR EXISTS (SELECT 1 FROM ductwork_runs WHERE cancelling_at IS NOT NULL)
            OR EXISTS (SELECT 1 FROM ductwork_processes WHERE trouble IS NOT NULL)";
    STUCK_PROCESSES = "
        SELECT p.id, p.supervisor_id, p.role, p.pipeline, p.host, p.pid, p.version, p.quiet, p.epoch, p.trouble,
               p.troubled_at,
               {now} - p.last_heartbeat_at AS age, coalesce(p.worked_at, p.started_at) AS moved_at,
               (SELECT count(*) FROM ductwork_executions e {found:ductwork_executions_claimed}
                 WHERE e.process_id = p.id AND e.completed_at IS NULL AND e.process_id IS NOT NULL{narrow: AND e.holder = p.id})
               + (SELECT count(*) FROM ductwork_advancements a {found:ductwork_advancements_claimed}
                   WHERE a.process_id = p.id AND a.completed_at IS NULL{narrow: AND a.holder = p.id}) AS holds
          FROM ductwork_processes p ORDER BY p.started_at, p.id";
    /// Moves from one pipeline to the next by the index, however many executions each has in the
    /// queue. Paused pipelines, whose work waits as it should, would take the places of others.
    STUCK_DUE = "
        WITH RECURSIVE names (pipeline) AS (
            SELECT min(pipeline) FROM ductwork_availabilities WHERE pipeline >= ''
            UNION ALL
            SELECT (SELECT min(a.pipeline) FROM ductwork_availabilities a WHERE a.pipeline > n.pipeline)
              FROM names n WHERE n.pipeline IS NOT NULL)
        SELECT a.pipeline, s.run_id, a.due_at AS since
          FROM (SELECT (SELECT a.execution_id FROM ductwork_availabilities a
                         WHERE a.pipeline = names.pipeline
                         ORDER BY a.pipeline, a.due_at, a.execution_id LIMIT 1) AS execution_id
                  FROM names
                 WHERE names.pipeline IS NOT NULL
                   AND NOT EXISTS (SELECT 1 FROM ductwork_pauses p WHERE p.pipeline = names.pipeline)) h
          JOIN ductwork_availabilities a ON a.execution_id = h.execution_id
          JOIN ductwork_executions e ON e.id = a.execution_id
          JOIN ductwork_steps s ON s.id = e.step_id
         WHERE a.due_at < {now} - :grace
         ORDER BY a.due_at LIMIT 10000", on Mysql [&STUCK_DUE_OF];
    /// The same, for these pipelines.
    STUCK_DUE_OF in Mysql = "
        SELECT a.pipeline, s.run_id, a.due_at AS since
          FROM (SELECT (SELECT a.execution_id FROM ductwork_availabilities a {found:ductwork_availabilities_due}
                         WHERE a.pipeline = b.pipeline
                         ORDER BY a.pipeline, a.due_at, a.execution_id LIMIT 1) AS execution_id
                  FROM {rows:b(pipeline text)}
                 WHERE NOT EXISTS (SELECT 1 FROM ductwork_pauses p WHERE p.pipeline = b.pipeline)) h
          JOIN ductwork_availabilities a ON a.execution_id = h.execution_id
          JOIN ductwork_executions e ON e.id = a.execution_id
          JOIN ductwork_steps s ON s.id = e.step_id
         WHERE a.due_at < {now} - :grace
         ORDER BY a.due_at LIMIT 10000";
    STUCK_READY = "
        SELECT pipeline, run_id, ready_at AS since FROM ductwork_branches
         WHERE ready_at IS NOT NULL AND ready_at < {now} - :grace
         ORDER BY ready_at, id LIMIT 1";
    /// Excluded are a branch that waits for its turn after it was given back, one that a process lost by
    /// its death or by a stop, and a wide expand that continues after it was hindered once.
    STUCK_TRIED = "
        SELECT br.pipeline, t.run_id, t.opened_at AS since,
               (SELECT a.error_message FROM ductwork_advancements a
                 WHERE a.transition_id = t.id AND a.error_message IS NOT NULL
                 ORDER BY a.id DESC LIMIT 1) AS error
          FROM ductwork_transitions t
          JOIN ductwork_branches br ON br.id = t.branch_id
         WHERE t.completed_at IS NULL{narrow: AND t.open_branch IS NOT NULL} AND t.opened_at < {now} - :grace
           AND (br.ready_at > {now}
                OR br.ready_at IS NULL
                   AND NOT EXISTS (SELECT 1 FROM ductwork_fan_outs f
                                    WHERE f.branch_id = br.id AND f.fired_at IS NULL))
           AND EXISTS (SELECT 1 FROM ductwork_advancements a
                        WHERE a.transition_id = t.id AND a.error_class IS NOT NULL
                          AND a.error_class NOT IN ('released', 'process_crashed'))
         LIMIT 100";
    /// Reads in the order of an index that contains only claimed executions: a search among all
    /// open ones would scan the queue.
    STUCK_EXPIRED = "
        SELECT x.pipeline, s.run_id, x.lease_until AS since
          FROM (SELECT pipeline, step_id, lease_until FROM ductwork_executions
                 WHERE completed_at IS NULL AND process_id IS NOT NULL{narrow: AND holder IS NOT NULL} AND lease_until < {now} - :grace
                 ORDER BY process_id LIMIT 100) x
          JOIN ductwork_steps s ON s.id = x.step_id
        UNION ALL
        SELECT br.pipeline, br.run_id, a.lease_until
          FROM ductwork_advancements a
          JOIN ductwork_branches br ON br.id = a.branch_id
         WHERE a.completed_at IS NULL{narrow: AND a.holder IS NOT NULL} AND a.lease_until < {now} - :grace
         LIMIT 100";
    /// A daemon goes on with a cancellation that nobody continues before a lease is over.
    /// While cancellations go on, the others await their turns.
    STUCK_UNKEPT = "
        SELECT 'question' AS kind, br.pipeline, br.run_id, x.answer_by AS since
          FROM (SELECT branch_id, answer_by FROM ductwork_deadlines
                 WHERE answer_by < {now} - :grace AND unanswered IN ('halt', 'approve')
                 ORDER BY answer_by LIMIT 100) x
          JOIN ductwork_branches br ON {key:br.id;x.branch_id}
        UNION ALL
        SELECT 'cancellation', x.pipeline, x.id, x.cancelling_at
          FROM (SELECT pipeline, id, cancelling_at FROM ductwork_runs
                 WHERE cancelling_at < {now} - :grace - :lease
                   AND NOT EXISTS (SELECT 1 FROM ductwork_runs m
                                    WHERE m.cancelling_at BETWEEN {now} - :lease AND {now})
                 ORDER BY cancelling_at LIMIT 100) x";
}

/// False where nothing waits, nothing is held and no process has trouble: then nothing is stuck.
pub async fn may_be(conn: &mut Conn) -> Result<bool, Error> {
    Ok(conn.fetch_optional(&MAY_BE_STUCK, &[]).await?.is_some())
}

/// The facts about waiting work, and about the processes that could move it.
pub async fn facts(conn: &mut Conn, stale_after: Duration) -> Result<Facts, Error> {
    let grace = [("grace", micros(GRACE).into())];
    conn.snapshot(async |conn| {
        let mut facts = Facts {
            now: query::now(conn).await?,
            stale_after,
            processes: movers(conn).await?,
            pauses: pause::pauses(conn).await?,
            ..Facts::default()
        };
        if facts.waits_for_rows() {
            facts.holder = writable::row_holder(conn).await?;
        }
        let queued = match conn.dialect() {
            Dialect::Mysql => overview::queued(conn).await?,
            Dialect::Postgres | Dialect::Sqlite => Vec::new(),
        };
        let queued = Rows::new().texts("pipeline", queued.iter().map(String::as_str));
        let due = [grace[0].clone(), ("b", (&queued).into())];
        for row in conn.fetch(&STUCK_DUE, &due).await? {
            facts.due.push(waiting(&row)?);
        }
        let ready = conn.fetch_optional(&STUCK_READY, &grace).await?;
        facts.ready = ready.as_ref().map(waiting).transpose()?;
        for row in conn.fetch(&STUCK_TRIED, &grace).await? {
            facts.tried.push((waiting(&row)?, row.get("error")?));
        }
        for row in conn.fetch(&STUCK_EXPIRED, &grace).await? {
            facts.expired.push(waiting(&row)?);
        }
        let unkept = [grace[0].clone(), ("lease", micros(stale_after).into())];
        for row in conn.fetch(&STUCK_UNKEPT, &unkept).await? {
            let kind: String = row.get("kind")?;
            let unkept = match kind.as_str() {
                "question" => Unkept::Question,
                _ => Unkept::Cancellation,
            };
            facts.unkept.push((waiting(&row)?, unkept));
        }
        Ok(facts)
    })
    .await
}

/// All processes.
pub async fn movers(conn: &mut Conn) -> Result<Vec<Mover>, Error> {
    let mut movers = Vec::new();
    let rows = conn.fetch(&STUCK_PROCESSES, &[]).await?;
    for row in rows.iter().filter(|row| has_known_role(row)) {
        let trouble: Option<String> = row.get("trouble")?;
        let since: Option<i64> = row.get("troubled_at")?;
        movers.push(Mover {
            id: ProcessId(row.get("id")?),
            supervisor: row
                .get::<Option<uuid::Uuid>>("supervisor_id")?
                .map(ProcessId),
            role: row.word("role")?,
            pipeline: row.get("pipeline")?,
            host: row.get("host")?,
            pid: row.count("pid")?,
            version: row.get("version")?,
            age: Duration::from_micros(row.get::<i64>("age")?.max(0) as u64),
            dead: Condemned::of(row.get("epoch")?).is_some(),
            intake: Intake::of(row.get("quiet")?),
            moved_at: row.get("moved_at")?,
            holds: row.get::<i64>("holds")?.max(0) as u64,
            trouble: trouble.zip(since),
        });
    }
    Ok(movers)
}

fn waiting(row: &Row) -> Result<Waiting, Error> {
    Ok(Waiting {
        run_id: RunId(row.get("run_id")?),
        pipeline: row.get("pipeline")?,
        since: row.get("since")?,
    })
}
