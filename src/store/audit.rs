//! The invariants, as queries that return the rows that break them.
//!
//! Owns: the statements of each invariant, and running them all in one snapshot. Never: repairs
//! anything. The engine never relies on these statements for its own correctness.
//!
//! Each statement returns `entity, id, detail` for every row that breaks the invariant. A statement that
//! would have to look up every row of a long history is sent only when a single scan of each table
//! (`audit_prefilter`) does not clear it, so an audit of a healthy database costs a few scans. The audit
//! also checks what a constraint of the schema upholds: constraints can be dropped.
//!
//! Not here: I8 (budgets kept), because budgets are configuration: they are not in the database, and may
//! have been changed between two attempts; I29 (a child's input is its parent's output), because one
//! statement copies inputs inside the database, and no hash of them is stored.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::audit_prefilter::{
    Prefilter, odd_copy, odd_output, odd_times, part_claimed, part_crossed, part_ended,
    spent_at_first,
};
use super::backend::Setting;
use super::conn::Conn;
#[cfg(feature = "internals")]
use super::dialect::Dialect;
use super::error::Error;
use super::micros;
use super::statement::{Statement, statements};

/// When an invariant holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In every committed snapshot.
    Always,
    /// Unless the breach is younger than the grace period.
    Eventually,
}

/// A property of the stored state that always holds.
pub struct Invariant {
    /// `I1`, …: what comments and tests call it.
    pub name: &'static str,
    /// The text of the invariant.
    pub title: &'static str,
    /// When it holds.
    #[cfg_attr(
        not(feature = "internals"),
        expect(dead_code, reason = "an audit asks the statements alone")
    )]
    pub kind: Kind,
    checks: &'static [Check],
}

type Cleared = fn(&Prefilter) -> Result<bool, Error>;

/// A statement that returns the rows that break an invariant, and the check that makes the
/// statement unnecessary.
struct Check {
    statement: &'static Statement,
    cleared: Option<Cleared>,
}

/// A row that breaks an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The name of the invariant.
    pub invariant: &'static str,
    /// The text of the invariant.
    pub title: &'static str,
    /// The kind of row: `run`, `step`, ….
    pub entity: String,
    /// The key of the row.
    pub id: Uuid,
    /// The defect.
    pub detail: String,
}

/// A healthy grace: longer than a lease, a heartbeat and a poll together.
pub const GRACE: Duration = Duration::from_secs(60);

/// At most this many rows per invariant are reported; the first few are enough to see the cause.
pub const ROWS_MAX: usize = 1_000;

/// The clocks of a database and its replicas may differ by this much.
const CLOCK_SLACK: Duration = Duration::from_secs(2);

/// The rows that break an invariant, at most `:rows` of them. The server plans as if all were wanted:
/// planned for the first few rows, a server with old statistics compares every row with every row.
macro_rules! found {
    ($($part:tt)+) => {
        concat!("WITH found {materialized} (", $($part)+, ") SELECT * FROM found LIMIT :rows")
    };
}

statements! {
    I1 = found!("
        SELECT 'step' AS entity, step_id AS id, 'has ' || count(*) || ' open executions' AS detail
          FROM ductwork_executions WHERE completed_at IS NULL
         GROUP BY step_id HAVING count(*) > 1");
    I2 = found!("
        SELECT 'execution' AS entity, id, 'has some of process, claim time and lease, but not all' AS detail
          FROM ductwork_executions
         WHERE ", part_claimed!());
    I3 = found!("
        SELECT 'execution' AS entity, id, 'has a result but no end, or an end without a result' AS detail
          FROM ductwork_executions WHERE ", part_ended!(), "
        UNION ALL
        SELECT 'advancement', id, 'has a result but no end, or an end without a result'
          FROM ductwork_advancements WHERE ", part_ended!());
    /// A cancelled step may keep the output that it had. Copies, and steps at which a person was
    /// asked, have an output without an execution of their own.
    I4 = found!("
        SELECT 'step' AS entity, step_id AS id, 'has ' || count(*) || ' successes' AS detail
          FROM ductwork_executions WHERE result = 'success'
         GROUP BY step_id HAVING count(*) > 1
        UNION ALL
        SELECT 'step', s.id, 'succeeded, but is ' || s.status
          FROM ductwork_steps s
          JOIN ductwork_executions e ON e.step_id = s.id AND e.result = 'success'
         WHERE s.status IN ('in_progress', 'waiting', 'failed')
        UNION ALL
        SELECT 'step', s.id, 'is ' || s.status || ', but no execution of it succeeded'
          FROM ductwork_steps s
          LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.result = 'success'
         WHERE s.status IN ('advancing', 'completed') AND s.source_step_id IS NULL
           AND s.via <> 'dampen' AND e.id IS NULL
        UNION ALL
        SELECT 'step', id, 'is ' || status || CASE WHEN output IS NULL THEN ' without' ELSE ' with' END || ' an output'
          FROM ductwork_steps WHERE ", odd_output!());
    I5 = found!("
        SELECT 'execution' AS entity, l.id, 'is an attempt after a success' AS detail
          FROM ductwork_executions l
          JOIN ductwork_executions e ON e.step_id = l.step_id AND e.result = 'success'
         WHERE l.attempt <> 1 AND e.attempt < l.attempt");
    I6 = found!("
        SELECT 'step' AS entity, step_id AS id,
               'has ' || count(*) || ' attempts, numbered ' || min(attempt) || ' to ' || max(attempt) AS detail
          FROM ductwork_executions
         GROUP BY step_id HAVING min(attempt) <> 1 OR max(attempt) <> count(*)");
    /// The same by induction, where each step has one first attempt: only a few other executions
    /// have to be looked at.
    I6_LATER = found!("
        SELECT 'execution' AS entity, l.id, 'is attempt ' || l.attempt || ', but the one before is missing' AS detail
          FROM ductwork_executions l
          LEFT JOIN ductwork_executions p ON p.step_id = l.step_id AND p.attempt = l.attempt - 1
         WHERE l.attempt <> 1 AND p.id IS NULL
        UNION ALL
        SELECT 'step', step_id, 'has ' || count(*) || ' attempts of one number'
          FROM ductwork_executions WHERE attempt <> 1
         GROUP BY step_id, attempt HAVING count(*) > 1");
    /// By induction over attempts: the first starts at zero, each later one at its predecessor's
    /// counters plus the cost of its predecessor's end. A released attempt costs nothing.
    I7 = found!("
        SELECT 'execution' AS entity, id, 'is the first attempt, but has errors or crashes before it' AS detail
          FROM ductwork_executions WHERE ", spent_at_first!());
    I7_LATER = found!("
        SELECT 'execution' AS entity, e.id,
               'counts ' || e.retry_count || ' errors and ' || e.crash_count || ' crashes after an attempt that counted '
                || p.retry_count || ' and ' || p.crash_count || ' and ended as ' || coalesce(p.result, 'nothing') AS detail
          FROM ductwork_executions e
          JOIN ductwork_executions p ON p.step_id = e.step_id AND p.attempt = e.attempt - 1
         WHERE e.attempt <> 1
           AND (e.retry_count <> p.retry_count + CASE WHEN p.result IN ('error', 'timed_out') THEN 1 ELSE 0 END
                OR e.crash_count <> p.crash_count + CASE WHEN p.result = 'process_crashed' THEN 1 ELSE 0 END)");
    I7_CROSSINGS = found!("
        SELECT 'transition' AS entity, t.id,
               'counts ' || t.retry_count || ' errors and ' || t.crash_count || ' crashes, but its attempts had '
                || coalesce(a.errors, 0) || ' and ' || coalesce(a.crashes, 0) AS detail
          FROM ductwork_transitions t
          LEFT JOIN (SELECT transition_id AS id, count(CASE WHEN result = 'error' THEN 1 END) AS errors,
                            count(CASE WHEN result = 'process_crashed' THEN 1 END) AS crashes
                       FROM ductwork_advancements
                      WHERE result IN ('error', 'process_crashed') GROUP BY transition_id) a ON a.id = t.id
         WHERE t.retry_count <> coalesce(a.errors, 0) OR t.crash_count <> coalesce(a.crashes, 0)");
    I9 = found!("
        SELECT 'branch' AS entity, id, 'is ' || status || CASE WHEN claim_token IS NULL THEN ' without' ELSE ' with' END
               || ' a claim token' AS detail
          FROM ductwork_branches
         WHERE (claim_token IS NOT NULL) <> (status = 'advancing')
            OR (claim_token IS NOT NULL) <> (claimed_for_advancing_at IS NOT NULL)
        UNION ALL
        SELECT 'branch', b.id, 'is advancing, but no open advancement has its token'
          FROM ductwork_branches b
          LEFT JOIN ductwork_advancements a
                 ON a.branch_id = b.id AND a.completed_at IS NULL AND a.claim_token = b.claim_token
         WHERE b.status = 'advancing' AND a.id IS NULL
        UNION ALL
        SELECT 'advancement', a.id, 'is open, but its branch is not under its token'
          FROM ductwork_advancements a
          LEFT JOIN ductwork_branches b ON b.id = a.branch_id
         WHERE a.completed_at IS NULL AND (b.claim_token IS NULL OR b.claim_token <> a.claim_token)
        UNION ALL
        SELECT 'branch', branch_id, 'has ' || count(*) || ' open advancements'
          FROM ductwork_advancements WHERE completed_at IS NULL
         GROUP BY branch_id HAVING count(*) > 1");
    I10 = found!("
        SELECT 'branch' AS entity, branch_id AS id, 'has ' || count(*) || ' open transitions' AS detail
          FROM ductwork_transitions WHERE completed_at IS NULL
         GROUP BY branch_id HAVING count(*) > 1");
    I10_LEFT = found!("
        SELECT 'step' AS entity, from_step_id AS id, 'was left ' || count(*) || ' times' AS detail
          FROM ductwork_transitions
         GROUP BY from_step_id HAVING count(*) > 1");
    /// Hooks name the transition that halted their run, but do not count among its steps. A wide expand
    /// takes several transactions: until the last one, its transition is open, and has produced the
    /// first step of each branch that exists so far. A run that is being deleted has already lost some
    /// of its steps.
    I11 = found!("
        SELECT 'transition' AS entity, t.id,
               'says that it produced ' || coalesce(t.produced, 0) || ' steps, there are ' || coalesce(s.n, 0) AS detail
          FROM ductwork_transitions t
          LEFT JOIN (SELECT transition_id, count(*) AS n FROM ductwork_steps
                      WHERE transition_id IS NOT NULL AND via NOT IN ('on_halt', 'on_complete', 'on_wait')
                      GROUP BY transition_id) s ON s.transition_id = t.id
          LEFT JOIN (SELECT f.branch_id, count(*) AS n
                       FROM ductwork_fan_outs f
                       JOIN ductwork_branches b ON b.id = f.branch_id AND b.status IN ('in_progress', 'advancing')
                       JOIN ductwork_branches c ON c.fan_out_id = f.id
                      WHERE f.fired_at IS NULL AND f.via = 'expand'
                      GROUP BY f.branch_id) m ON m.branch_id = t.branch_id AND t.completed_at IS NULL
         WHERE coalesce(t.produced, m.n, 0) <> coalesce(s.n, 0)
           AND t.run_id NOT IN (SELECT id FROM ductwork_runs WHERE pruning_at IS NOT NULL)
        UNION ALL
        SELECT 'transition', id, 'has some of end, kind and product, but not all'
          FROM ductwork_transitions WHERE ", part_crossed!());
    /// A copy, and a step that a revived run does again, was reached in an earlier run.
    I12 = found!("
        SELECT 'step' AS entity, s.id, 'was reached by ' || s.via || ', but by no transition of its run' AS detail
          FROM ductwork_steps s
          LEFT JOIN ductwork_runs r ON r.id = s.run_id
          LEFT JOIN ductwork_transitions t ON t.id = s.transition_id AND t.run_id = s.run_id
         WHERE s.source_step_id IS NULL AND s.via NOT IN ('start', 'on_halt', 'on_complete', 'on_wait') AND t.id IS NULL
           AND (s.transition_id IS NOT NULL OR r.revived_from IS NULL) AND r.pruning_at IS NULL");
    /// Cancelled branches do not arrive. Until an expand is complete, its branch does not wait, and
    /// some of the branches that it will create do not exist yet; these may have been cancelled.
    I13 = found!("
        SELECT 'fan_out' AS entity, f.id,
               'counts ' || f.arrived || ' of ' || f.width || ' arrived and ' || f.halted || ' halted; there are '
                || coalesce(c.ended, 0) || ' of ' || coalesce(c.n, 0) || ' and ' || coalesce(c.halted, 0) AS detail
          FROM ductwork_fan_outs f
          LEFT JOIN (SELECT fan_out_id, count(*) AS n,
                            sum(CASE WHEN status IN ('completed', 'halted') THEN 1 ELSE 0 END) AS ended,
                            sum(CASE WHEN status = 'halted' THEN 1 ELSE 0 END) AS halted
                       FROM ductwork_branches WHERE fan_out_id IS NOT NULL
                      GROUP BY fan_out_id) c ON c.fan_out_id = f.id
          LEFT JOIN ductwork_branches b ON b.id = f.branch_id AND f.via = 'expand' AND f.fired_at IS NULL
                AND b.status IN ('in_progress', 'advancing', 'cancelled')
         WHERE (f.width <> coalesce(c.n, 0) AND (b.id IS NULL OR f.width < c.n)) OR f.arrived <> coalesce(c.ended, 0) OR f.halted <> coalesce(c.halted, 0)
        UNION ALL
        SELECT 'fan_out', id, 'has ' || arrived || ' of ' || width || ' arrived, but has'
                || CASE WHEN fired_at IS NULL THEN ' not' ELSE '' END || ' fired'
          FROM ductwork_fan_outs
         WHERE arrived > width OR halted > arrived OR (fired_at IS NOT NULL) <> (arrived = width)");
    I14 = found!("
        SELECT 'step' AS entity, s.id, 'has failed, but an execution of it is open' AS detail
          FROM ductwork_steps s
          JOIN ductwork_executions e ON e.step_id = s.id AND e.completed_at IS NULL
         WHERE s.status = 'failed'
        UNION ALL
        SELECT 'step', s.id, 'is in progress, but no execution of it is open'
          FROM ductwork_steps s
          LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.completed_at IS NULL
         WHERE s.status = 'in_progress' AND e.id IS NULL
        UNION ALL
        SELECT 'step', s.id, 'is ' || s.status || ', but an execution of it is open'
          FROM ductwork_executions e
          JOIN ductwork_steps s ON s.id = e.step_id
         WHERE e.completed_at IS NULL AND s.status NOT IN ('in_progress', 'failed')");
    /// First the branches that did not simply complete, then the runs.
    I15 = found!("
        SELECT 'run' AS entity, r.id, 'is ' || r.status || ', but a branch of it is ' || b.status AS detail
          FROM ductwork_branches b
          JOIN ductwork_runs r ON r.id = b.run_id
         WHERE b.status <> 'completed'
           AND CASE b.status WHEN 'halted' THEN r.status = 'completed'
                             WHEN 'cancelled' THEN r.status IN ('completed', 'halted')
                                  OR (r.status <> 'cancelled' AND r.cancelling_at IS NULL)
                             ELSE r.status NOT IN ('in_progress', 'dampened') END
        UNION ALL
        SELECT 'run', r.id, 'is ' || r.status || ', but no branch of it is'
          FROM ductwork_runs r
         WHERE r.status <> 'completed'
           AND NOT EXISTS (SELECT 1 FROM ductwork_branches b
                            WHERE b.run_id = r.id
                              AND CASE r.status WHEN 'halted' THEN b.status = 'halted'
                                                WHEN 'cancelled' THEN b.status = 'cancelled'
                                                ELSE b.status NOT IN ('completed', 'halted', 'cancelled') END)");
    I16 = found!("
        SELECT 'run' AS entity, id, 'is ' || status || ', but its times or its output say otherwise' AS detail
          FROM ductwork_runs WHERE ", odd_times!());
    /// An ended run has no live work but its hooks. SQLite does not know how few rows are open, but it
    /// looks up the tables of a CROSS JOIN in the order written.
    I17 = found!("
        SELECT 'execution' AS entity, e.id, 'is open, but its run is ' || r.status AS detail
          FROM ductwork_executions e
         CROSS JOIN ductwork_steps s
         CROSS JOIN ductwork_runs r
         WHERE e.completed_at IS NULL AND s.id = e.step_id AND r.id = s.run_id
           AND r.status IN ('completed', 'cancelled', 'halted')
           AND s.via <> 'on_wait' AND s.via <> CASE r.status WHEN 'halted' THEN 'on_halt' ELSE 'on_complete' END
        UNION ALL
        SELECT 'advancement', a.id, 'is open, but its run is ' || r.status
          FROM ductwork_advancements a
         CROSS JOIN ductwork_branches b
         CROSS JOIN ductwork_runs r
         WHERE a.completed_at IS NULL AND b.id = a.branch_id AND r.id = b.run_id
           AND r.status IN ('completed', 'cancelled', 'halted')");
    /// The next mover of a branch: an open execution of its step, an advancer that will find it
    /// ready, one that has claimed it (I9), the barrier at which it waits (I20), or a person.
    I18 = found!("
        SELECT 'branch' AS entity, b.id, 'is in progress, but nothing will move it' AS detail
          FROM ductwork_branches b
          LEFT JOIN ductwork_executions e ON e.step_id = b.step_id AND e.completed_at IS NULL
         WHERE b.status = 'in_progress' AND b.ready_at IS NULL AND e.id IS NULL
        UNION ALL
        SELECT 'branch', b.id, 'is ready to be advanced, but its step is ' || coalesce(s.status, 'missing')
          FROM ductwork_branches b
          LEFT JOIN ductwork_steps s ON s.id = b.step_id
         WHERE b.ready_at IS NOT NULL AND (s.id IS NULL OR s.status NOT IN ('advancing', 'failed'))
        UNION ALL
        SELECT 'branch', b.id, 'waits for a person, but its step is ' || coalesce(s.status, 'missing')
          FROM ductwork_branches b
          LEFT JOIN ductwork_steps s ON s.id = b.step_id
         WHERE b.status = 'dampened' AND (s.id IS NULL OR s.status <> 'waiting' OR s.via <> 'dampen')");
    I19 = found!("
        SELECT 'step' AS entity, s.id, 'is ' || s.status || ', but its branch stands elsewhere' AS detail
          FROM ductwork_steps s
          LEFT JOIN ductwork_branches b ON b.id = s.branch_id
         WHERE s.status IN ('in_progress', 'advancing', 'waiting') AND s.via NOT IN ('on_halt', 'on_complete', 'on_wait')
           AND (b.id IS NULL OR b.step_id <> s.id)");
    I19_LAST = found!("
        SELECT 'branch' AS entity, b.id, 'stands at a step that is not its last' AS detail
          FROM ductwork_branches b
         CROSS JOIN ductwork_steps s
         CROSS JOIN ductwork_steps l
         WHERE s.id = b.step_id AND l.branch_id = b.id AND l.ordinal > s.ordinal
           AND b.status NOT IN ('completed', 'halted', 'cancelled')");
    I20 = found!("
        SELECT 'branch' AS entity, b.id, 'waits, but at no barrier that is still to fire' AS detail
          FROM ductwork_branches b
          LEFT JOIN ductwork_fan_outs f ON f.branch_id = b.id AND f.fired_at IS NULL
         WHERE b.status = 'waiting' AND f.id IS NULL
        UNION ALL
        SELECT 'fan_out', f.id, 'is still to fire, but its branch is ' || coalesce(b.status, 'missing')
          FROM ductwork_fan_outs f
          LEFT JOIN ductwork_branches b ON b.id = f.branch_id
         WHERE f.fired_at IS NULL AND (b.id IS NULL OR b.status NOT IN ('waiting', 'cancelled'))
           AND (b.id IS NULL OR f.via <> 'expand' OR b.status NOT IN ('in_progress', 'advancing')
                OR f.width <= (SELECT count(*) FROM ductwork_branches c WHERE c.fan_out_id = f.id))
        UNION ALL
        SELECT 'branch', branch_id, 'waits at ' || count(*) || ' barriers'
          FROM ductwork_fan_outs WHERE fired_at IS NULL
         GROUP BY branch_id HAVING count(*) > 1");
    /// A lineage is a line: only a halted run is revived, and only once.
    I21 = found!("
        SELECT 'run' AS entity, revived_from AS id, 'was revived ' || count(*) || ' times' AS detail
          FROM ductwork_runs WHERE revived_from IS NOT NULL
         GROUP BY revived_from HAVING count(*) > 1
        UNION ALL
        SELECT 'run', r.id, 'was made from a run that ' || CASE WHEN o.id IS NULL THEN 'is gone' ELSE 'is ' || o.status END
          FROM ductwork_runs r
          LEFT JOIN ductwork_runs o ON o.id = r.revived_from
         WHERE r.revived_from IS NOT NULL AND (o.id IS NULL OR o.status <> 'halted')");
    I22 = found!("
        SELECT 'execution' AS entity, e.id, 'is claimed by a process that is not registered' AS detail
          FROM ductwork_executions e
          LEFT JOIN ductwork_processes p ON p.id = e.process_id
         WHERE e.completed_at IS NULL AND e.process_id IS NOT NULL AND p.id IS NULL
        UNION ALL
        SELECT 'advancement', a.id, 'is claimed by a process that is not registered'
          FROM ductwork_advancements a
          LEFT JOIN ductwork_processes p ON p.id = a.process_id
         WHERE a.completed_at IS NULL AND p.id IS NULL");
    /// The definition is searched as plain text, whose first keys these are: PostgreSQL parses no JSON
    /// with a NUL in it, and a prompt may contain one. (`_` replaces characters that have a meaning in
    /// this pattern.)
    I23 = found!("
        SELECT 'run' AS entity, r.id, 'has halted without its hook' AS detail
          FROM ductwork_runs r
          JOIN ductwork_definitions d ON d.digest = r.definition
          JOIN ductwork_branches b ON b.run_id = r.id AND b.fan_out_id IS NULL
          LEFT JOIN ductwork_steps s ON s.branch_id = b.id AND s.via = 'on_halt'
         WHERE r.status = 'halted' AND s.id IS NULL
           AND d.body LIKE '_\"pipeline\"_\"' || d.pipeline || '\",\"on_halt\"_%'
        UNION ALL
        SELECT 'step', s.id, 'is a hook, but its run is ' || coalesce(r.status, 'missing')
          FROM ductwork_steps s
          LEFT JOIN ductwork_runs r ON r.id = s.run_id
         WHERE s.via IN ('on_halt', 'on_complete')
           AND (r.status IS NULL OR r.status <> CASE s.via WHEN 'on_halt' THEN 'halted' ELSE 'completed' END)
        UNION ALL
        SELECT 'run', run_id, 'has ' || count(*) || ' hooks of its end'
          FROM ductwork_steps WHERE via IN ('on_halt', 'on_complete')
         GROUP BY run_id HAVING count(*) > 1");
    /// The nodes come after the names of all hooks, and before the steps, whose variables may have any name.
    I23_COMPLETED = found!("
        SELECT 'run' AS entity, r.id, 'has completed without its hook' AS detail
          FROM ductwork_definitions d
         CROSS JOIN ductwork_runs r
         CROSS JOIN ductwork_branches b
          LEFT JOIN ductwork_steps s ON s.branch_id = b.id AND s.via = 'on_complete'
         WHERE d.body LIKE '_\"pipeline\"_\"' || d.pipeline || '\",%\"on_complete\"_\"%\",\"nodes\"_[%'
           AND r.definition = d.digest AND r.status = 'completed'
           AND b.run_id = r.id AND b.fan_out_id IS NULL AND s.id IS NULL");
    /// The hook's place is the place of the question, below zero.
    I23_WAITING = found!("
        SELECT 'branch' AS entity, b.id, 'waits for a person without its hook' AS detail
          FROM ductwork_runs r
          JOIN ductwork_definitions d ON d.digest = r.definition
               AND d.body LIKE '_\"pipeline\"_\"' || d.pipeline || '\",%\"on_wait\"_\"%\",\"nodes\"_[%'
          JOIN ductwork_branches b ON b.run_id = r.id AND b.status = 'dampened'
          JOIN ductwork_steps q ON q.id = b.step_id
          LEFT JOIN ductwork_steps s ON s.branch_id = b.id AND s.ordinal = -q.ordinal AND s.via = 'on_wait'
         WHERE r.status = 'dampened' AND s.id IS NULL");
    /// Which of two runs came first is not read from their times: clocks differ, and are set back. Only a run that has
    /// halted is revived.
    I24 = found!("
        SELECT 'step' AS entity, s.id, 'is a copy, but not from an earlier run of its lineage' AS detail
          FROM ductwork_steps s
          JOIN ductwork_runs r ON r.id = s.run_id
          LEFT JOIN ductwork_steps o ON o.id = s.source_step_id
          LEFT JOIN ductwork_runs q ON q.id = o.run_id
         WHERE s.source_step_id IS NOT NULL
           AND (q.id IS NULL OR r.revived_from IS NULL OR r.pipeline <> q.pipeline OR q.status <> 'halted' OR q.id = r.id)
        UNION ALL
        SELECT 'step', id, 'is a copy, but is ' || status || CASE WHEN output IS NULL THEN ' without' ELSE ' with' END || ' an output'
          FROM ductwork_steps WHERE ", odd_copy!());
    /// The only check that reads payloads: those of copies and their originals, which are few in a long
    /// history.
    I24_OUTPUTS = found!("
        SELECT 'step' AS entity, s.id, 'is a copy, but its output is not that of its original' AS detail
          FROM ductwork_steps s
          JOIN ductwork_steps o ON o.id = s.source_step_id
         WHERE s.source_step_id IS NOT NULL AND s.output <> o.output");
    I25 = found!("
        SELECT 'execution' AS entity, id, 'has a lease that expired ' || (({now} - lease_until) / 1000000) || ' s ago' AS detail
          FROM ductwork_executions
         WHERE completed_at IS NULL AND process_id IS NOT NULL AND lease_until < {now} - :grace
        UNION ALL
        SELECT 'advancement', id, 'has a lease that expired ' || (({now} - lease_until) / 1000000) || ' s ago'
          FROM ductwork_advancements
         WHERE completed_at IS NULL AND lease_until < {now} - :grace
        UNION ALL
        SELECT 'branch', branch_id, 'has a question whose deadline passed ' || (({now} - answer_by) / 1000000) || ' s ago'
          FROM ductwork_deadlines WHERE answer_by < {now} - :grace AND unanswered IN ('halt', 'approve')
        UNION ALL
        SELECT 'run', id, 'is being cancelled, but nobody has gone on with it for '
               || (({now} - cancelling_at) / 1000000) || ' s'
          FROM ductwork_runs WHERE cancelling_at < {now} - :grace
        UNION ALL
        SELECT 'run', id, 'is being deleted, but nobody has gone on with it for '
               || (({now} - pruning_at) / 1000000) || ' s'
          FROM ductwork_runs WHERE pruning_at < {now} - :grace");
    /// A backlog is no violation while every process has something in hand. A process that has
    /// nothing, while work is long due, is a violation, unless it has said why it does not take
    /// that work.
    I26 = found!("
        SELECT 'process' AS entity, p.id,
               'has nothing to do, while work of ' || p.pipeline || ' is due for '
                || (({now} - (SELECT min(a.due_at) FROM ductwork_availabilities a WHERE a.pipeline = p.pipeline)) / 1000000)
                || ' s' AS detail
          FROM ductwork_processes p
         WHERE p.role = 'worker' AND p.last_heartbeat_at > {now} - :grace AND p.started_at < {now} - :grace
           AND p.trouble IS NULL AND coalesce(p.paused, 0) = 0
           AND NOT EXISTS (SELECT 1 FROM ductwork_executions e
                            WHERE e.process_id = p.id AND e.completed_at IS NULL AND e.process_id IS NOT NULL)
           AND (SELECT min(a.due_at) FROM ductwork_availabilities a WHERE a.pipeline = p.pipeline) < {now} - :grace
        UNION ALL
        SELECT 'process', p.id,
               'has nothing to do, while a branch is ready for '
                || (({now} - (SELECT min(b.ready_at) FROM ductwork_branches b
                               WHERE b.ready_at IS NOT NULL AND (p.pipeline IS NULL OR b.pipeline = p.pipeline))) / 1000000)
                || ' s'
          FROM ductwork_processes p
         WHERE p.role = 'advancer' AND p.last_heartbeat_at > {now} - :grace AND p.started_at < {now} - :grace
           AND p.trouble IS NULL
           AND NOT EXISTS (SELECT 1 FROM ductwork_advancements a
                            WHERE a.process_id = p.id AND a.completed_at IS NULL)
           AND (SELECT min(b.ready_at) FROM ductwork_branches b
                 WHERE b.ready_at IS NOT NULL AND (p.pipeline IS NULL OR b.pipeline = p.pipeline)) < {now} - :grace");
    I27 = found!("
        SELECT 'process' AS entity, id, 'has a heartbeat from the future' AS detail
          FROM ductwork_processes WHERE last_heartbeat_at > {now} + :slack");
    I28 = found!("
        SELECT 'run' AS entity, r.id, 'shares its trigger key with another run' AS detail
          FROM ductwork_runs r
          JOIN (SELECT pipeline, trigger_key FROM ductwork_runs WHERE trigger_key IS NOT NULL
                 GROUP BY pipeline, trigger_key HAVING count(*) > 1) k
            ON k.pipeline = r.pipeline AND k.trigger_key = r.trigger_key");
    I30 = found!("
        SELECT 'fan_out' AS entity, f.id, 'has branches whose places are not 0 to ' || (f.width - 1) AS detail
          FROM ductwork_fan_outs f
          JOIN (SELECT fan_out_id, min(ordinal) AS first, max(ordinal) AS last, count(DISTINCT ordinal) AS n
                  FROM ductwork_branches WHERE fan_out_id IS NOT NULL
                 GROUP BY fan_out_id) c ON c.fan_out_id = f.id
          LEFT JOIN ductwork_branches b ON b.id = f.branch_id AND f.via = 'expand' AND f.fired_at IS NULL
                AND b.status IN ('in_progress', 'advancing', 'cancelled')
         WHERE c.first <> 0 OR c.last <> c.n - 1 OR (c.n <> f.width AND b.id IS NULL)
        UNION ALL
        SELECT 'fan_out', f.id, 'nests elsewhere than the branch that it split'
          FROM ductwork_fan_outs f
          JOIN ductwork_branches b ON b.id = f.branch_id
         WHERE NOT ({same:f.parent_fan_out_id;b.fan_out_id}) OR f.parent_ordinal <> b.ordinal");
    I31 = found!("
        SELECT 'execution' AS entity, e.id, 'is open and unclaimed, but not in the queue' AS detail
          FROM ductwork_executions e
          LEFT JOIN ductwork_availabilities a ON a.execution_id = e.id
         WHERE e.completed_at IS NULL AND e.process_id IS NULL AND a.execution_id IS NULL
        UNION ALL
        SELECT 'execution', a.execution_id, 'is in the queue, but closed, claimed, missing or of another pipeline'
          FROM ductwork_availabilities a
          LEFT JOIN ductwork_executions e ON e.id = a.execution_id
         WHERE e.id IS NULL OR e.completed_at IS NOT NULL OR e.process_id IS NOT NULL OR e.pipeline <> a.pipeline");
    I32 = found!("
        SELECT 'run' AS entity, r.id,
               'is ' || r.status || ' and counts ' || r.dampened || ' waiting for a person; there are ' || coalesce(b.n, 0) AS detail
          FROM ductwork_runs r
          LEFT JOIN (SELECT run_id, count(*) AS n FROM ductwork_branches WHERE status = 'dampened'
                      GROUP BY run_id) b ON b.run_id = r.id
         WHERE (r.status IN ('in_progress', 'dampened') AND r.dampened <> coalesce(b.n, 0))
            OR (r.status = 'dampened' AND r.dampened = 0)
            OR (r.status = 'in_progress' AND r.dampened <> 0)");
    I33 = found!("
        SELECT 'branch' AS entity, b.id, 'belongs to no run' AS detail
          FROM ductwork_branches b
          LEFT JOIN ductwork_runs r ON r.id = b.run_id
         WHERE b.fan_out_id IS NULL AND r.id IS NULL
        UNION ALL
        SELECT 'run', r.id, 'has ' || count(b.id) || ' branches that are its root'
          FROM ductwork_runs r
          LEFT JOIN ductwork_branches b ON b.run_id = r.id AND b.fan_out_id IS NULL
         GROUP BY r.id HAVING count(b.id) <> 1");
    I33_TUPLES = found!("
        SELECT 'run' AS entity, t.run_id AS id, 'is gone, but has ' || count(*) || ' values in its context' AS detail
          FROM ductwork_tuples t
          LEFT JOIN ductwork_runs r ON r.id = t.run_id
         WHERE r.id IS NULL GROUP BY t.run_id");
    I33_DEFINITIONS = found!("
        SELECT 'run' AS entity, r.id, 'has a definition that is not stored' AS detail
          FROM ductwork_runs r
          LEFT JOIN ductwork_definitions d ON d.digest = r.definition
         WHERE d.digest IS NULL");
    /// A cancellation closes the transition that was being crossed, and the branch that crossed it.
    I34 = found!("
        SELECT 'advancement' AS entity, a.id, 'succeeded, but at no transition of its branch' AS detail
          FROM ductwork_advancements a
          LEFT JOIN ductwork_transitions t ON t.id = a.transition_id AND t.branch_id = a.branch_id
         WHERE a.result = 'success' AND t.completed_at IS NULL
        UNION ALL
        SELECT 'transition', t.id, 'was crossed, but by ' || count(a.id) || ' attempts'
          FROM ductwork_transitions t
          LEFT JOIN ductwork_branches b ON b.id = t.branch_id
          LEFT JOIN ductwork_advancements a ON a.transition_id = t.id AND a.result = 'success'
         WHERE t.completed_at IS NOT NULL
         GROUP BY t.id, b.status HAVING count(a.id) > 1 OR (count(a.id) = 0 AND coalesce(b.status, '') <> 'cancelled')");
    I34_FAILED = found!("
        SELECT 'advancement' AS entity, a.id, 'is an attempt at no transition of its branch' AS detail
          FROM ductwork_advancements a
          LEFT JOIN ductwork_transitions t ON t.id = a.transition_id AND t.branch_id = a.branch_id
         WHERE coalesce(a.result, '') <> 'success' AND t.id IS NULL");
    /// First attempts only; I6 ensures that each other attempt follows one.
    I34_EXECUTIONS = found!("
        SELECT 'execution' AS entity, e.id, 'is an attempt at no step' AS detail
          FROM ductwork_executions e
          LEFT JOIN ductwork_steps s ON s.id = e.step_id
         WHERE e.attempt = 1 AND s.id IS NULL");
    /// A process of a program that knows no pauses stores neither value.
    I35 = found!("
        SELECT 'process' AS entity, p.id,
               CASE WHEN z.pipeline IS NULL THEN 'is paused, but its pipeline is not'
                    ELSE 'may claim, but its pipeline is paused' END AS detail
          FROM ductwork_processes p
          LEFT JOIN ductwork_pauses z ON z.pipeline = p.pipeline
         WHERE p.paused <> CASE WHEN z.pipeline IS NULL THEN 0 ELSE 1 END");
    /// Actions are forgotten with the history, the actions of a bulk action before the bulk action itself: there may
    /// be fewer than it counts, and never more.
    I36 = found!("
        SELECT 'bulk action' AS entity, k.id, 'counts fewer runs than none' AS detail
          FROM ductwork_bulks k WHERE k.done < 0 OR k.skipped < 0 OR k.failed < 0
        UNION ALL
        SELECT 'bulk action', k.id, 'was stopped, but has not ended'
          FROM ductwork_bulks k WHERE k.stopped_by IS NOT NULL AND k.ended_at IS NULL
        UNION ALL
        SELECT 'bulk action', k.id, 'has changed ' || x.n || ' runs, but counts ' || k.done
          FROM (SELECT a.bulk_id, count(*) AS n FROM ductwork_actions a
                 WHERE a.bulk_id IS NOT NULL GROUP BY a.bulk_id) x
          JOIN ductwork_bulks k ON k.id = x.bulk_id
         WHERE x.n > k.done
        UNION ALL
        SELECT 'run', a.run_id, 'was changed ' || count(*) || ' times by one bulk action'
          FROM ductwork_actions a WHERE a.bulk_id IS NOT NULL
         GROUP BY a.bulk_id, a.run_id HAVING count(*) > 1");
    /// A run may be deleted while a process is about to write a message about it; that message is deleted when it is
    /// due.
    I37 = found!("
        SELECT 'delivery' AS entity, d.id, 'has a state that is none' AS detail
          FROM ductwork_deliveries d WHERE d.state NOT IN ('waiting', 'delivered', 'failed')
        UNION ALL
        SELECT 'delivery', d.id, 'counts fewer attempts than none' FROM ductwork_deliveries d WHERE d.attempts < 0
        UNION ALL
        SELECT 'delivery', d.id, 'is due, but does not wait, or waits and is never due'
          FROM ductwork_deliveries d
         WHERE CASE WHEN d.state = 'waiting' THEN 1 ELSE 0 END <> CASE WHEN d.due_at IS NULL THEN 0 ELSE 1 END
        UNION ALL
        SELECT 'delivery', d.id, 'is about a run that does not exist'
          FROM ductwork_deliveries d
          LEFT JOIN ductwork_runs r ON r.id = d.run_id
         WHERE r.id IS NULL AND d.created_at < {now} - :grace");
}

macro_rules! invariants {
    ($($name:ident $kind:ident $title:literal $(unless $cleared:ident)?
        $(, $more:ident $(unless $more_cleared:ident)?)*;)*) => {
        /// All of them, in the order of their numbers.
        pub static INVARIANTS: &[Invariant] = &[$(Invariant {
            name: stringify!($name), title: $title, kind: Kind::$kind,
            checks: &[
                invariants!(@ $name $($cleared)?),
                $(invariants!(@ $more $($more_cleared)?)),*
            ],
        }),*];
    };
    (@ $statement:ident) => { Check { statement: &$statement, cleared: None } };
    (@ $statement:ident $cleared:ident) => {
        Check { statement: &$statement, cleared: Some(Prefilter::$cleared) }
    };
}

invariants! {
    I1 Always "a step has at most one open execution";
    I2 Always "a claim is whole: process, claim time and lease" unless claims_are_whole;
    I3 Always "what has ended has a result, what is open has none" unless results_are_whole;
    I4 Always "a step succeeds at most once, and has an output exactly then"
        unless successes_are_those_of_steps;
    I5 Always "nothing is attempted after a success" unless there_are_no_later_attempts;
    I6 Always "attempts are numbered 1 to n without gaps" unless each_step_has_a_first_attempt,
        I6_LATER unless there_are_no_later_attempts;
    I7 Always "counters equal history: crashes and releases never spend retries"
        unless first_attempts_are_unspent, I7_LATER unless there_are_no_later_attempts,
        I7_CROSSINGS unless each_crossing_went_well;
    I9 Always "a branch has a claim token exactly while it is advanced by one open advancement";
    I10 Always "a branch has at most one open transition, and a step is left once"
        unless no_transition_is_under_way, I10_LEFT unless each_ended_step_was_left_once;
    I11 Always "a completed transition produced exactly the steps that it says"
        unless transitions_are_whole;
    I12 Always "a step was produced by one transition of its run" unless each_step_was_produced;
    I13 Always "a barrier counts those that have arrived, and fires exactly when all have";
    I14 Always "a step's status agrees with its executions"
        unless open_executions_are_those_of_steps;
    I15 Always "a run has ended exactly when all its branches have, and in the same way";
    I16 Always "a run's times and output agree with its status" unless times_of_runs_agree;
    I17 Always "nothing is live under a run that has ended";
    I18 Always "every active branch has something that will move it";
    I19 Always "only the last step of a branch is unfinished"
        unless branches_stand_at_unfinished_steps, I19_LAST;
    I20 Always "a branch waits exactly while its barrier is still to fire";
    I21 Always "a lineage of revived runs has one end";
    I22 Always "claims belong to registered processes";
    I23 Always "a run that has ended or waits has its hook, and no other run has one"
        unless nothing_has_halted, I23_COMPLETED, I23_WAITING;
    I24 Always "a copied step comes from an earlier run of the lineage, with the output that it had there"
        unless there_are_no_copies, I24_OUTPUTS unless there_are_no_copies;
    I25 Eventually "no claim outlives its lease, and nothing stays half done";
    I26 Eventually "no work waits beside an idle process";
    I27 Always "no heartbeat is from the future";
    I28 Always "a trigger key stands for one run";
    I30 Always "the branches of a fan-out have places 0 to n - 1";
    I31 Always "the queue holds exactly what is open and unclaimed";
    I32 Always "a run is dampened exactly while a branch of it waits for a person";
    I33 Always "every branch has its run, and every run its root and its definition"
        unless each_run_has_its_root, I33_TUPLES, I33_DEFINITIONS;
    I34 Always "attempts belong to what they were made at, and one of them crossed each transition"
        unless each_transition_was_crossed_once, I34_FAILED unless each_attempt_crossed,
        I34_EXECUTIONS unless each_step_has_a_first_attempt;
    I35 Always "a worker is paused exactly while its pipeline is";
    I36 Always "a bulk action changes each run once, and counts it";
    I37 Always "a message to an endpoint waits or has ended, and is about a run";
}

/// Statements that join all of a table with all of another. A server whose statistics date from
/// when a table was empty compares every row of one with every row of the other, unless it is told
/// to join them by hash. The other statements look up the few rows that are open or odd, by their
/// keys.
const BY_HASH: &[&str] = &[
    "I4",
    "I7_CROSSINGS",
    "I11",
    "I12",
    "I13",
    "I23",
    "I23_COMPLETED",
    "I30",
    "I32",
    "I33",
    "I33_TUPLES",
    "I34",
    "I34_EXECUTIONS",
    "I37",
];

/// The findings of an audit, and its cost.
#[derive(Clone, Debug, Default)]
pub struct Audited {
    /// The rows that break an invariant.
    pub violations: Vec<Violation>,
    /// The invariants that more rows break than are listed here.
    pub more: Vec<&'static str>,
    /// The time of the scan of all tables, which clears most invariants.
    pub prefilter: Duration,
    /// The time of each invariant, in the order of their numbers.
    pub took: Vec<(&'static str, Duration)>,
}

/// Checks every invariant, in one read-only snapshot. `grace` is the age from which a breach of a
/// [`Kind::Eventually`] counts.
pub async fn audit(conn: &mut Conn, grace: Duration) -> Result<Vec<Violation>, Error> {
    Ok(audited(conn, grace).await?.violations)
}

/// The same, with the time that it took.
pub async fn audited(conn: &mut Conn, grace: Duration) -> Result<Audited, Error> {
    conn.snapshot(async |conn| {
        conn.set(Setting::AuditPlanner).await?;
        let began = Instant::now();
        let prefilter = Prefilter::take(conn).await?;
        let took = began.elapsed();
        let audited = check(conn, grace, Some(&prefilter)).await?;
        Ok(Audited {
            prefilter: took,
            ..audited
        })
    })
    .await
}

/// The setting for the way in which tables are joined.
fn joins(by_hash: bool) -> Setting {
    match by_hash {
        true => Setting::HashJoins,
        false => Setting::KeyedJoins,
    }
}

/// The settings that are sent ahead of a statement of an audit.
#[cfg(feature = "internals")]
pub fn settings(dialect: Dialect, statement: &str) -> String {
    let settings = [Setting::AuditPlanner, joins(BY_HASH.contains(&statement))];
    let texts = settings.map(|setting| dialect.backend().setting(setting).unwrap_or_default());
    texts.join("; ")
}

/// The rows that break the invariants that the prefilter does not clear, as the transaction that
/// `conn` is in sees them.
async fn check(
    conn: &mut Conn,
    grace: Duration,
    prefilter: Option<&Prefilter>,
) -> Result<Audited, Error> {
    let args = [
        ("grace", micros(grace).into()),
        ("slack", micros(CLOCK_SLACK).into()),
        ("rows", (ROWS_MAX + 1).into()),
    ];
    let mut audited = Audited::default();
    let mut by_hash = false;
    for invariant in INVARIANTS {
        let began = Instant::now();
        for check in invariant.checks {
            if let (Some(cleared), Some(prefilter)) = (check.cleared, prefilter)
                && cleared(prefilter)?
            {
                continue;
            }
            let hash = BY_HASH.contains(&check.statement.name);
            if hash != by_hash {
                conn.set(joins(hash)).await?;
                by_hash = hash;
            }
            let rows = conn.fetch(check.statement, &args).await?;
            if rows.len() > ROWS_MAX && audited.more.last() != Some(&invariant.name) {
                audited.more.push(invariant.name);
            }
            for row in rows.into_iter().take(ROWS_MAX) {
                // A text or a key that cannot be read is damage as well, and hides no other.
                let detail = match row.get::<String>("detail") {
                    Err(Error::Corrupt(problem)) => format!("it cannot be read: {problem}"),
                    detail => detail?,
                };
                let (id, detail) = match row.get("id") {
                    Err(Error::Corrupt(problem)) => (
                        Uuid::nil(),
                        format!("{detail}; its key is no id: {problem}"),
                    ),
                    id => (id?, detail),
                };
                audited.violations.push(Violation {
                    invariant: invariant.name,
                    title: invariant.title,
                    entity: row.get("entity")?,
                    id,
                    detail,
                });
            }
        }
        audited.took.push((invariant.name, began.elapsed()));
    }
    Ok(audited)
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
