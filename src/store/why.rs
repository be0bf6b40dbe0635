//! The facts from which `machine::why` concludes what keeps a run from moving.
//!
//! Owns: reading them, bounded, in one snapshot. Never: concludes anything from them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use uuid::Uuid;

use crate::definition::Definition;
use crate::machine::halt::{HALTS_MAX, HaltFact, OutputFact, Prospects};
use crate::machine::stuck::Mover;
use crate::machine::why::{
    self, BACKLOG_MAX, BarrierFact, Facts, HookFact, HookState, INPUT_MAX, Leaf, LeafState,
    ProcessFact, Question, Successor, Unreadable,
};
use crate::model::*;

use super::conn::{Conn, Row};
use super::definition::{Definitions, short};
use super::error::Error;
use super::resume::{self, DEADLINE, Due};
use super::statement::{Rows, statements};
use super::{action, micros, pause, process, query, stuck, writable};

macro_rules! leaf_columns {
    () => {
        "b.status, b.ready_at, coalesce(b.claimed_for_advancing_at, ad.claimed_at) AS advancing_since, s.node, e.attempt, e.process_id,
               e.claimed_at, a.due_at, ad.process_id AS advancer_id, d.answer_by, d.unanswered,
               CASE WHEN e.id IS NOT NULL
                    THEN (SELECT x.error_message FROM ductwork_executions x
                           WHERE x.step_id = s.id AND x.attempt = e.attempt - 1)
                    ELSE (SELECT x.error_message FROM ductwork_transitions t
                            JOIN ductwork_advancements x ON x.transition_id = t.id
                           WHERE t.from_step_id = s.id AND x.completed_at IS NOT NULL
                           ORDER BY x.id DESC LIMIT 1) END AS error_message"
    };
}

macro_rules! leaf_joins {
    () => {
        "
          JOIN ductwork_steps s ON {key:s.id;b.step_id}
          LEFT JOIN ductwork_executions e ON {key:e.step_id;s.id} AND e.completed_at IS NULL
          LEFT JOIN ductwork_availabilities a ON {key:a.execution_id;e.id}
          LEFT JOIN ductwork_advancements ad {found:ductwork_advancements_open} ON {key:ad.branch_id;b.id} AND ad.completed_at IS NULL{narrow: AND ad.open_branch = b.id}
          LEFT JOIN ductwork_deadlines d ON {key:d.branch_id;b.id}"
    };
}

macro_rules! nearest_first {
    () => {
        "CASE WHEN e.process_id IS NOT NULL THEN 0 WHEN ad.process_id IS NOT NULL THEN 1
                       WHEN b.ready_at IS NOT NULL THEN 2 WHEN a.due_at IS NOT NULL THEN 3 ELSE 4 END,
                  coalesce(e.claimed_at, ad.claimed_at, b.ready_at, a.due_at, 0), b.id"
    };
}

statements! {
    /// The branches nearest to moving first, so that the limit cuts off those that matter least.
    LEAVES = concat!("
        SELECT ", leaf_columns!(), "
          FROM ductwork_branches b ", leaf_joins!(), "
         WHERE b.run_id = :run AND b.status IN ('in_progress', 'advancing', 'dampened')
         ORDER BY ", nearest_first!(), " LIMIT 100");
    LEAVES_AMONG = concat!("
        SELECT ", leaf_columns!(), "
          FROM {rows:x(id id)}
          JOIN ductwork_branches b ON {key:b.id;x.id} ", leaf_joins!(), "
         WHERE b.status IN ('in_progress', 'advancing', 'dampened')
         ORDER BY ", nearest_first!(), " LIMIT 100");
    IS_WIDE = "
        SELECT 1 AS found FROM ductwork_branches WHERE run_id = :run LIMIT 1 OFFSET :narrow";
    /// Some branches of a wide run that move, or will move next: found by what processes hold, and by
    /// the heads of the queues. Nothing here is read once per branch of the run.
    MOVING = "
        SELECT x.branch_id AS id FROM (
            SELECT s.branch_id
              FROM ductwork_processes p
             {cross} ductwork_executions e {found:ductwork_executions_claimed}
             {cross} ductwork_steps s
             WHERE {key:e.process_id;p.id} AND e.completed_at IS NULL AND e.process_id IS NOT NULL{narrow: AND e.holder = p.id}
               AND {key:s.id;e.step_id} AND s.run_id = :run LIMIT 100) x
        UNION
        SELECT x.branch_id FROM (
            SELECT a.branch_id
              FROM ductwork_processes p
             {cross} ductwork_advancements a {found:ductwork_advancements_claimed}
             {cross} ductwork_branches b
             WHERE {key:a.process_id;p.id} AND a.completed_at IS NULL{narrow: AND a.holder = p.id}
               AND {key:b.id;a.branch_id} AND b.run_id = :run LIMIT 100) x
        UNION
        SELECT heads.id FROM (
            SELECT b.id, b.run_id FROM ductwork_branches b
             WHERE b.ready_at IS NOT NULL ORDER BY b.ready_at, b.id LIMIT :heads) heads
         WHERE heads.run_id = :run
        UNION
        SELECT x.branch_id FROM (
            SELECT s.branch_id FROM (
                SELECT a.execution_id FROM ductwork_availabilities a
                 WHERE a.pipeline = :pipeline ORDER BY a.due_at, a.execution_id LIMIT :heads) heads
             {cross} ductwork_executions e
             {cross} ductwork_steps s
             WHERE {key:e.id;heads.execution_id} AND {key:s.id;e.step_id} AND s.run_id = :run LIMIT 100) x";
    ROOT_BARRIERS = "
        SELECT f.node, f.width, f.arrived
          FROM ductwork_branches b
          JOIN ductwork_fan_outs f ON {key:f.branch_id;b.id} AND f.fired_at IS NULL
         WHERE b.run_id = :run AND b.fan_out_id IS NULL
         ORDER BY f.width - f.arrived DESC LIMIT 10";
    BARRIERS = "
        SELECT f.node, f.width, f.arrived
          FROM ductwork_branches b
          JOIN ductwork_fan_outs f ON f.branch_id = b.id AND f.fired_at IS NULL
         WHERE b.run_id = :run AND b.status = 'waiting'
         ORDER BY f.width - f.arrived DESC LIMIT 10";
    /// The error of a branch that could not be advanced is the error of the last attempt to advance
    /// it. The limit comes before everything that is read for each branch: a wide fan-out may have a million that
    /// halted.
    HALTS = "
        SELECT b.halt_reason, s.id AS step_id, s.node, s.via, {big:octet_length(s.output)} AS size,
               CASE WHEN octet_length(s.output) <= :whole THEN s.output ELSE substr(s.output, 1, 100) END AS output,
               f.width, coalesce(e.error_message,
                   (SELECT a.error_message FROM ductwork_transitions t
                      JOIN ductwork_advancements a ON a.transition_id = t.id AND a.result = 'error'
                     WHERE t.from_step_id = s.id ORDER BY a.id DESC LIMIT 1)) AS error_message, e.error_class
          FROM (SELECT x.id FROM ductwork_branches x {found:ductwork_branches_reasons}
                 WHERE x.run_id = :run AND x.halt_reason IS NOT NULL
                 ORDER BY x.id LIMIT :n) halted
          JOIN ductwork_branches b ON {key:b.id;halted.id}
          JOIN ductwork_steps s ON {key:s.id;b.step_id}
          LEFT JOIN ductwork_fan_outs f ON {key:f.branch_id;b.id} AND f.node = s.node
          LEFT JOIN ductwork_executions e ON {key:e.step_id;s.id} AND s.output IS NULL AND e.attempt =
               (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)
         ORDER BY b.id";
    REVIVED_AS = "SELECT id FROM ductwork_runs WHERE revived_from = :run";
    /// It is a step of the root branch.
    HOOK_OF_END = "
        SELECT s.via, s.status, e.attempt, e.process_id, a.due_at,
               {now} - p.last_heartbeat_at AS silent,
               (SELECT x.error_message FROM ductwork_executions x
                 WHERE x.step_id = s.id AND x.completed_at IS NOT NULL
                 ORDER BY x.attempt DESC LIMIT 1) AS error_message
          FROM ductwork_branches b
          JOIN ductwork_steps s ON {key:s.branch_id;b.id}
          LEFT JOIN ductwork_executions e ON {key:e.step_id;s.id} AND e.attempt =
               (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)
          LEFT JOIN ductwork_availabilities a ON {key:a.execution_id;e.id}
          LEFT JOIN ductwork_processes p ON {key:p.id;e.process_id}
         WHERE b.run_id = :run AND b.fan_out_id IS NULL AND s.via IN ('on_halt', 'on_complete')
           AND s.status <> 'completed'";
    /// Those of a run's first questions that their deadlines have decided.
    DECIDED = "
        SELECT x.id
          FROM (SELECT s.id, s.created_at, s.answered_by FROM ductwork_steps s
                 WHERE s.run_id = :run AND s.via = 'dampen'
                 ORDER BY s.created_at, s.id LIMIT :n) x
         WHERE x.answered_by = :deadline
         ORDER BY x.created_at, x.id LIMIT 100";
    /// The hook of a question stands at the negative ordinal of its step.
    FAILED_WAIT_HOOKS = "
        SELECT s.id, h.via, (SELECT e.error_message FROM ductwork_executions e
                                      WHERE e.step_id = h.id ORDER BY e.attempt DESC LIMIT 1) AS error_message
          FROM {rows:x(id id)}
          JOIN ductwork_steps s ON {key:s.id;x.id}
          JOIN ductwork_steps h ON {key:h.branch_id;s.branch_id} AND h.ordinal = -s.ordinal
         WHERE h.via = 'on_wait' AND h.status = 'failed'
         ORDER BY s.created_at, s.id";
    BACKLOG = "
        SELECT count(*) AS n FROM (
            SELECT 1 FROM ductwork_availabilities
             WHERE pipeline = :pipeline AND due_at <= {now} LIMIT :most) x";
}

/// A run with more branches than this is examined through its moving parts, not branch by branch.
const NARROW: usize = 2_000;

/// How far the queues are searched for the branches of a wide run.
const HEADS: usize = 2_000;

/// The longest output that is read whole, to count its elements.
const WHOLE: i64 = 64 << 10;

/// The facts about a run and about the processes that could move it; `None` when the run does not
/// exist.
pub async fn facts(
    conn: &mut Conn,
    run: RunId,
    stale_after: Duration,
    definitions: &Definitions,
) -> Result<Option<Facts>, Error> {
    conn.snapshot(async |conn| {
        let Some(found) = query::run_up_to(conn, run, INPUT_MAX as i64).await? else {
            return Ok(None);
        };
        let found = found.sound()?;
        let definition = definitions.read(conn, &found.definition).await?;
        let mut facts = Facts {
            run_id: run,
            status: found.status,
            ended_at: found.ended_at(),
            is_for_programs: false,
            cancelling_at: found.cancelling_at,
            cancelled_by: None,
            revived_as: None,
            hook: None,
            untold: None,
            questions: Vec::new(),
            input: found.short_input().map(str::to_owned),
            now: query::now(conn).await?,
            stale_after,
            processes: Vec::new(),
            leaves: Vec::new(),
            barriers: Vec::new(),
            halts: Vec::new(),
            prospects: Prospects::default(),
            backlog: None,
            pause: pause::of_pipeline(conn, &found.pipeline).await?,
            pipeline: found.pipeline,
            unreadable: definition.as_ref().err().map(|it| Unreadable {
                fact: it.to_string(),
                remedy: it.remedy(),
            }),
            definition: short(&found.definition).to_owned(),
            graph: definition.as_ref().ok().cloned(),
            limited: BTreeSet::new(),
            holder: None,
        };
        if found.status == RunStatus::Cancelled || found.cancelling_at.is_some() {
            facts.cancelled_by = action::cancelled_by(conn, run).await?;
        }
        // For a run in progress, these tell how it will end.
        facts.halts = halts(conn, run, HALTS_MAX).await?;
        match found.status.is_terminal() {
            true => ended(conn, &mut facts).await?,
            false => moving(conn, &mut facts).await?,
        }
        Ok(Some(facts))
    })
    .await
}

/// The facts about a run that has ended.
async fn ended(conn: &mut Conn, facts: &mut Facts) -> Result<(), Error> {
    let run = facts.run_id;
    facts.revived_as = continued(conn, run).await?;
    facts.hook = hook_of_end(conn, run, facts.stale_after).await?;
    // Nobody answered these, perhaps because nobody was told.
    let unanswered = HaltReason::Unanswered.to_string();
    let halts = facts.halts.iter();
    let halted = halts.filter(|halt| halt.reason == unanswered);
    let mut unanswered: Vec<StepId> = halted.filter_map(|halt| halt.step).collect();
    unanswered.extend(decided(conn, run).await?);
    let failed = failed_wait_hooks(conn, unanswered).await?;
    facts.untold = failed.into_values().next();
    Ok(())
}

/// The facts about a run that has not ended, and about those that move it.
async fn moving(conn: &mut Conn, facts: &mut Facts) -> Result<(), Error> {
    let run = facts.run_id;
    let (leaves, barriers, are_all) = leaves_and_barriers(conn, run, &facts.pipeline).await?;
    for row in leaves {
        let node: String = row.get("node")?;
        let place = facts.graph.as_ref();
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
    if are_all && facts.cancelling_at.is_none() {
        facts.questions = questions(conn, run, facts.graph.as_deref()).await?;
    }
    for row in barriers {
        facts.barriers.push(BarrierFact {
            node: row.get("node")?,
            width: row.get("width")?,
            arrived: row.get("arrived")?,
        });
    }
    facts.processes = process_facts(conn).await?;
    let waits = |process: &ProcessFact| {
        let trouble = process.trouble.as_deref();
        trouble.is_some_and(|trouble| trouble.contains(why::LOCKED))
    };
    if facts.processes.iter().any(waits) {
        facts.holder = writable::row_holder(conn).await?;
    }
    let pipeline = [
        ("pipeline", (&facts.pipeline).into()),
        ("most", (BACKLOG_MAX as i64).into()),
    ];
    let backlog = conn.fetch_optional(&BACKLOG, &pipeline).await?;
    let backlog = backlog.map(|row| row.get::<i64>("n")).transpose()?;
    facts.backlog = backlog.map(|n| n as u64);
    Ok(())
}

/// The processes, each with its claims and its trouble.
async fn process_facts(conn: &mut Conn) -> Result<Vec<ProcessFact>, Error> {
    let movers = stuck::movers(conn).await?.into_iter();
    let mut movers: HashMap<ProcessId, Mover> = movers.map(|mover| (mover.id, mover)).collect();
    let facts = process::processes(conn).await?.into_iter().map(|process| {
        let mover = movers.remove(&process.id);
        ProcessFact {
            id: process.id,
            supervisor: process.supervisor,
            role: process.role,
            pipeline: process.pipeline,
            host: process.host,
            pid: process.pid,
            age: process.age,
            dead: process.condemned.is_some(),
            condemned: process.condemned.is_some(),
            stopped: false,
            intake: process.intake,
            holds: mover.as_ref().map_or(0, |mover| mover.holds),
            moved_at: mover
                .as_ref()
                .map_or(process.started_at, |mover| mover.moved_at),
            trouble: mover.and_then(|mover| Some(mover.trouble?.0)),
        }
    });
    Ok(facts.collect())
}

/// The rows of LEAVES and BARRIERS, at a cost that does not grow with the width of the run; except
/// when nothing of it moves: then it waits for persons, and each of its branches is read.
async fn leaves_and_barriers(
    conn: &mut Conn,
    run: RunId,
    pipeline: &str,
) -> Result<(Vec<Row>, Vec<Row>, bool), Error> {
    let args = [("run", run.0.into())];
    if is_wide(conn, run).await? {
        let moving = [
            ("run", run.0.into()),
            ("pipeline", pipeline.into()),
            ("heads", HEADS.into()),
        ];
        let mut ids = Vec::new();
        for row in conn.fetch(&MOVING, &moving).await? {
            ids.push(row.get::<Uuid>("id")?);
        }
        if !ids.is_empty() {
            let rows = Rows::new().ids("id", ids);
            return Ok((
                conn.fetch(&LEAVES_AMONG, &[("x", (&rows).into())]).await?,
                conn.fetch(&ROOT_BARRIERS, &args).await?,
                false,
            ));
        }
    }
    let leaves = conn.fetch(&LEAVES, &args).await?;
    Ok((leaves, conn.fetch(&BARRIERS, &args).await?, true))
}

/// True where the run has too many branches to read anything for each.
pub async fn is_wide(conn: &mut Conn, run: RunId) -> Result<bool, Error> {
    let narrow = [("run", run.0.into()), ("narrow", NARROW.into())];
    Ok(conn.fetch_optional(&IS_WIDE, &narrow).await?.is_some())
}

/// The number of generations to which a line of revivals is followed.
pub const GENERATIONS_MAX: usize = 1_000;

/// The run that continues this one.
pub async fn revived_as(conn: &mut Conn, run: RunId) -> Result<Option<RunId>, Error> {
    let args = [("run", run.0.into())];
    let next = conn.fetch_optional(&REVIVED_AS, &args).await?;
    Ok(next.map(|row| row.get("id")).transpose()?.map(RunId))
}

/// The last run of a line of revivals: this one, unless it was revived.
pub async fn newest(conn: &mut Conn, run: RunId) -> Result<RunId, Error> {
    let mut newest = run;
    for _ in 0..GENERATIONS_MAX {
        let Some(next) = revived_as(conn, newest).await? else {
            break;
        };
        newest = next;
    }
    Ok(newest)
}

/// The continuation of this run, if it was revived.
pub async fn continued(conn: &mut Conn, run: RunId) -> Result<Option<Successor>, Error> {
    let Some(next) = revived_as(conn, run).await? else {
        return Ok(None);
    };
    let newest = newest(conn, next).await?;
    let state = query::brief(conn, newest).await?;
    Ok(Some(Successor {
        run: next,
        newest,
        status: state.map(|state| state.status),
    }))
}

/// The hook that was called when this run ended, unless it has succeeded.
async fn hook_of_end(
    conn: &mut Conn,
    run: RunId,
    stale_after: Duration,
) -> Result<Option<HookFact>, Error> {
    let args = [("run", run.0.into())];
    let Some(row) = conn.fetch_optional(&HOOK_OF_END, &args).await? else {
        return Ok(None);
    };
    let attempt: Option<i64> = row.get("attempt")?;
    let attempt = attempt.map_or(0, |attempt| attempt.max(0) as u32);
    let state = match (
        row.word::<StepStatus>("status")?,
        row.get::<Option<Uuid>>("process_id")?,
        row.get::<Option<i64>>("due_at")?,
    ) {
        (StepStatus::Failed, ..) => HookState::Failed,
        (_, Some(_), _) => {
            let silent: Option<i64> = row.get("silent")?;
            let is_alive = silent.is_some_and(|silent| silent < micros(stale_after));
            HookState::Running { attempt, is_alive }
        }
        (_, None, Some(due_at)) => HookState::Queued { attempt, due_at },
        // Neither a process nor the queue has it: `audit` reports that.
        (_, None, None) => return Ok(None),
    };
    Ok(Some(HookFact {
        state,
        ..failed_hook(&row)?
    }))
}

/// The questions of a run that people have yet to answer: the first ones.
async fn questions(
    conn: &mut Conn,
    run: RunId,
    definition: Option<&Definition>,
) -> Result<Vec<Question>, Error> {
    let waiting = resume::asked(conn, run).await?;
    let mut questions: Vec<Question> = waiting
        .into_iter()
        .map(|step| {
            let place = definition.and_then(|it| Some(it.node(it.find(&step.node)?)));
            Question {
                step: step.step_id,
                prompt: place.and_then(|node| node.prompt.clone()),
                since: step.since,
                is_late: step.is_late(),
                deadline: step.deadline.map(|due| (due.answer_by, due.unanswered)),
                failed_hook: None,
                node: step.node,
            }
        })
        .collect();
    let steps = questions.iter().map(|question| question.step).collect();
    let mut failed = failed_wait_hooks(conn, steps).await?;
    for question in &mut questions {
        question.failed_hook = failed.remove(&question.step);
    }
    Ok(questions)
}

async fn decided(conn: &mut Conn, run: RunId) -> Result<Vec<StepId>, Error> {
    let args = [
        ("run", run.0.into()),
        ("deadline", DEADLINE.into()),
        ("n", NARROW.into()),
    ];
    let rows = conn.fetch(&DECIDED, &args).await?;
    rows.iter().map(|row| Ok(StepId(row.get("id")?))).collect()
}

/// The hooks that were called when these steps began to wait for a person, and have failed for good, by step.
async fn failed_wait_hooks(
    conn: &mut Conn,
    steps: Vec<StepId>,
) -> Result<BTreeMap<StepId, HookFact>, Error> {
    if steps.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows = Rows::new().ids("id", steps);
    let args = [("x", (&rows).into())];
    let failed = conn.fetch(&FAILED_WAIT_HOOKS, &args).await?;
    let of = |row: &Row| Ok((StepId(row.get("id")?), failed_hook(row)?));
    failed.iter().map(of).collect()
}

fn failed_hook(row: &Row) -> Result<HookFact, Error> {
    Ok(HookFact {
        via: row.get("via")?,
        error: row.get("error_message")?,
        state: HookState::Failed,
    })
}

/// The reasons why branches of a run halted by themselves, for the first `n` of them.
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
            step: Some(StepId(row.get("step_id")?)),
            node: row.get("node")?,
            via: row.get("via")?,
            error: row.get("error_message")?,
            class: row.get("error_class")?,
            output: output.zip(size).map(|(text, size)| OutputFact {
                is_withheld: false,
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
        let since = time("advancing_since")?.unwrap_or_default();
        LeafState::Advancing { process, since }
    } else if let Some(from) = time("ready_at")? {
        LeafState::Ready { from }
    } else if let Some(due_at) = time("due_at")? {
        LeafState::Queued { due_at }
    } else {
        LeafState::Nothing
    })
}
