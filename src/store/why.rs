//! The facts by which `machine::why` tells what keeps a run from moving.
//!
//! Owns: reading them, bounded, in one snapshot. Never: concludes anything from them.

use std::collections::HashMap;
use std::time::Duration;

use uuid::Uuid;

use crate::machine::halt::{HaltFact, OutputFact};
use crate::machine::why::{BarrierFact, Facts, INPUT_MAX, Leaf, LeafState, ProcessFact};
use crate::model::*;

use super::conn::{Conn, Row};
use super::definition::{Definitions, short};
use super::error::Error;
use super::resume::Due;
use super::statement::statements;
use super::{process, query, stuck};

statements! {
    /// Those nearest to moving first, so that the limit cuts off what matters least.
    LEAVES = "
        SELECT b.status, b.ready_at, b.claimed_for_advancing_at, s.node, e.attempt, e.process_id,
               e.claimed_at, a.due_at, ad.process_id AS advancer_id, d.answer_by, d.unanswered,
               CASE WHEN e.id IS NOT NULL
                    THEN (SELECT x.error_message FROM ductwork_executions x
                           WHERE x.step_id = s.id AND x.attempt = e.attempt - 1)
                    ELSE (SELECT x.error_message FROM ductwork_transitions t
                            JOIN ductwork_advancements x ON x.transition_id = t.id
                           WHERE t.from_step_id = s.id AND x.completed_at IS NOT NULL
                           ORDER BY x.id DESC LIMIT 1) END AS error_message
          FROM ductwork_branches b
          JOIN ductwork_steps s ON s.id = b.step_id
          LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.completed_at IS NULL
          LEFT JOIN ductwork_availabilities a ON a.execution_id = e.id
          LEFT JOIN ductwork_advancements ad ON ad.branch_id = b.id AND ad.completed_at IS NULL
          LEFT JOIN ductwork_deadlines d ON d.branch_id = b.id
         WHERE b.run_id = :run AND b.status IN ('in_progress', 'advancing', 'dampened')
         ORDER BY CASE WHEN e.process_id IS NOT NULL THEN 0 WHEN ad.process_id IS NOT NULL THEN 1
                       WHEN b.ready_at IS NOT NULL THEN 2 WHEN a.due_at IS NOT NULL THEN 3 ELSE 4 END,
                  coalesce(e.claimed_at, ad.claimed_at, b.ready_at, a.due_at, 0), b.id
         LIMIT 100";
    BARRIERS = "
        SELECT f.node, f.width, f.arrived
          FROM ductwork_branches b
          JOIN ductwork_fan_outs f ON f.branch_id = b.id AND f.fired_at IS NULL
         WHERE b.run_id = :run AND b.status = 'waiting'
         ORDER BY f.width - f.arrived DESC LIMIT 10";
    /// Of a branch that could not be advanced the error is that of the last attempt to.
    HALTS = "
        WITH halted AS MATERIALIZED (
            SELECT id, step_id, halt_reason FROM ductwork_branches
             WHERE run_id = :run AND halt_reason IS NOT NULL)
        SELECT b.halt_reason, s.node, s.via, CAST(octet_length(s.output) AS bigint) AS size,
               CASE WHEN octet_length(s.output) <= :whole THEN s.output ELSE substr(s.output, 1, 100) END AS output,
               f.width, coalesce(e.error_message,
                   (SELECT a.error_message FROM ductwork_transitions t
                      JOIN ductwork_advancements a ON a.transition_id = t.id AND a.result = 'error'
                     WHERE t.from_step_id = s.id ORDER BY a.id DESC LIMIT 1)) AS error_message, e.error_class
          FROM halted b
          JOIN ductwork_steps s ON {key:s.id;b.step_id}
          LEFT JOIN ductwork_fan_outs f ON {key:f.branch_id;b.id} AND f.node = s.node
          LEFT JOIN ductwork_executions e ON {key:e.step_id;s.id} AND s.output IS NULL AND e.attempt =
               (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)
         ORDER BY b.id LIMIT :n";
    REVIVED_AS = "SELECT id FROM ductwork_runs WHERE revived_from = :run";
    BACKLOG = "
        SELECT count(*) AS n FROM ductwork_availabilities
         WHERE pipeline = :pipeline AND due_at <= {now}";
}

/// Halts that are read of one run.
const HALTS_MAX: usize = 100;

/// The longest output that is read whole, to count its elements.
const WHOLE: i64 = 64 << 10;

/// The facts about a run and about those who could move it; `None` when there is no such run.
pub async fn facts(
    conn: &mut Conn,
    run: RunId,
    stale_after: Duration,
    definitions: &Definitions,
) -> Result<Option<Facts>, Error> {
    conn.snapshot(async |conn| {
        let Some(found) = query::run(conn, run).await? else {
            return Ok(None);
        };
        let args = [("run", run.0.into())];
        let definition = definitions.read(conn, &found.definition).await?;
        let mut facts = Facts {
            run_id: run,
            status: found.status,
            ended_at: found.ended_at(),
            cancelling_at: found.cancelling_at,
            revived_as: None,
            input: Some(found.input.get())
                .filter(|input| input.len() <= INPUT_MAX)
                .map(str::to_owned),
            now: query::now(conn).await?,
            stale_after,
            processes: Vec::new(),
            leaves: Vec::new(),
            barriers: Vec::new(),
            halts: Vec::new(),
            backlog: None,
            pipeline: found.pipeline,
            unreadable: definition.as_ref().err().map(ToString::to_string),
            definition: short(&found.definition).to_owned(),
            graph: definition.as_ref().ok().cloned(),
        };
        if found.status.is_terminal() {
            facts.halts = halts(conn, run, HALTS_MAX).await?;
            facts.revived_as = revived_as(conn, run).await?;
            return Ok(Some(facts));
        }
        for row in conn.fetch(&LEAVES, &args).await? {
            let node: String = row.get("node")?;
            let place = definition.as_ref().ok();
            let place = place.and_then(|it| Some(it.node(it.find(&node)?)));
            facts.leaves.push(Leaf {
                deadline: Due::read(&row, facts.now)?.map(|due| due.words()),
                prompt: place.and_then(|node| node.prompt.clone()),
                attempt: row.get::<Option<i64>>("attempt")?.map(|n| n.max(0) as u32),
                error: row.get("error_message")?,
                state: state(&row)?,
                node,
            });
        }
        for row in conn.fetch(&BARRIERS, &args).await? {
            facts.barriers.push(BarrierFact {
                node: row.get("node")?,
                width: row.get("width")?,
                arrived: row.get("arrived")?,
            });
        }
        let mut troubles: HashMap<ProcessId, String> = stuck::movers(conn)
            .await?
            .into_iter()
            .filter_map(|mover| Some((mover.id, mover.trouble?.0)))
            .collect();
        for process in process::processes(conn).await? {
            facts.processes.push(ProcessFact {
                id: process.id,
                role: process.role,
                pipeline: process.pipeline,
                host: process.host,
                pid: process.pid,
                age: process.age,
                dead: false,
                quiet: process.quiet,
                trouble: troubles.remove(&process.id),
            });
        }
        let pipeline = [("pipeline", (&facts.pipeline).into())];
        let backlog = conn.fetch_optional(&BACKLOG, &pipeline).await?;
        facts.backlog = backlog
            .map(|row| row.get::<i64>("n"))
            .transpose()?
            .map(|n| n as u64);
        Ok(Some(facts))
    })
    .await
}

/// The run that continues this one.
pub async fn revived_as(conn: &mut Conn, run: RunId) -> Result<Option<RunId>, Error> {
    let args = [("run", run.0.into())];
    let next = conn.fetch_optional(&REVIVED_AS, &args).await?;
    Ok(next.map(|row| row.get("id")).transpose()?.map(RunId))
}

/// Why branches of a run halted by themselves: the first `n` of them.
pub async fn halts(conn: &mut Conn, run: RunId, n: usize) -> Result<Vec<HaltFact>, Error> {
    let args = [
        ("run", run.0.into()),
        ("n", n.into()),
        ("whole", WHOLE.into()),
    ];
    let mut halts = Vec::new();
    for row in conn.fetch(&HALTS, &args).await? {
        let output: Option<String> = row.get("output")?;
        let size: Option<i64> = row.get("size")?;
        halts.push(HaltFact {
            reason: row.get("halt_reason")?,
            node: row.get("node")?,
            via: row.get("via")?,
            error: row.get("error_message")?,
            class: row.get("error_class")?,
            output: output.zip(size).map(|(text, size)| OutputFact {
                size: size.unsigned_abs(),
                text,
            }),
            width: row.get("width")?,
        });
    }
    Ok(halts)
}

fn state(row: &Row) -> Result<LeafState, Error> {
    if row.word::<BranchStatus>("status")? == BranchStatus::Dampened {
        return Ok(LeafState::Asked);
    }
    let holder = |column| Ok::<_, Error>(row.get::<Option<Uuid>>(column)?.map(ProcessId));
    let time = |column| row.get::<Option<i64>>(column);
    Ok(if let Some(process) = holder("process_id")? {
        let since = time("claimed_at")?.unwrap_or_default();
        LeafState::Running { process, since }
    } else if let Some(process) = holder("advancer_id")? {
        let since = time("claimed_for_advancing_at")?.unwrap_or_default();
        LeafState::Advancing { process, since }
    } else if let Some(from) = time("ready_at")? {
        LeafState::Ready { from }
    } else if let Some(due_at) = time("due_at")? {
        LeafState::Queued { due_at }
    } else {
        LeafState::Nothing
    })
}
