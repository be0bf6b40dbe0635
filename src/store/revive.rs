//! A new run from a halted one.
//!
//! Owns: copying the completed rows, and restarting the halted branches, in one transaction.
//! Payloads never leave the database: a copy's id follows from its original's (`{copied:…}`). A wide run is
//! copied in chunks of its branches, so that no statement takes long; of all its rows, only the ids of the
//! branches are in memory. Never: decides where a branch takes up its work (`machine::revive`).
//!
//! Not copied: transitions and advancements (the old run made the crossings; copies name their
//! originals as `source_step_id`), executions, hooks.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::definition::Definition;
use crate::failpoint::failpoint;
use crate::machine::advance;
use crate::machine::halt::{Obstacle, Prospects};
use crate::machine::revive::{
    EndFact, FanOutFact, HaltedView, Left, Origin, Restart, Shape, StepFact, disagreements, restart,
};
use crate::model::*;

use super::action::{self, Actor};
use super::conn::Conn;
use super::definition::{self, Definitions};
use super::error::Error;
use super::statement::{Rows, statements};
use super::transition::insert::{self, NewExecution};
use super::transition::{Wait, hooks};
use super::{query, why};

statements! {
    /// RACE: prune deletes the run while it is revived. Both write this row, so either we find it gone,
    /// or prune finds that it has a successor. (The row has to change: where several nodes take writes, a
    /// write that changes nothing is not sent to the others.) Raced by
    /// `prune_and_revive_at_once_leave_no_run_without_its_origin`.
    HOLD_HALTED_RUN = "
        UPDATE ductwork_runs SET revivals = revivals + 1
         WHERE id = :from AND status = 'halted' AND pruning_at IS NULL";
    REVIVABLE_STATUS = "SELECT status FROM ductwork_runs WHERE id = :from AND pruning_at IS NULL";
    SUCCESSOR = "SELECT id FROM ductwork_runs WHERE revived_from = :from";
    /// RACE: sixteen people revive one run. `revived_from` is unique, so one insert wins
    /// (T2). Proven by `of_sixteen_revives_at_once_one_wins`. (I21)
    REVIVE_RUN = "
        INSERT INTO ductwork_runs (id, pipeline, definition, input, revived_from, triggered_at, trace_parent,
                                   trace_state, baggage)
        SELECT :to, r.pipeline, coalesce(:definition, r.definition), r.input, r.id, {now}, r.trace_parent,
               r.trace_state, r.baggage
          FROM ductwork_runs r WHERE r.id = :from";
    REVIVED_RUN = "SELECT pipeline, definition, triggered_at FROM ductwork_runs WHERE id = :to";
    /// No index has the branches of a run in the order of their ids. With a limit, the inner query is planned on its own:
    /// PostgreSQL might otherwise follow the primary key through the branches of all runs.
    REVIVED_BRANCHES = "
        SELECT x.id
          FROM (SELECT br.id FROM ductwork_branches br WHERE br.run_id = :from LIMIT :all) x
         WHERE x.id > :behind ORDER BY x.id LIMIT :n";
    /// A halted branch waits: for the branches of its fan-out, which are no longer halted, or, if
    /// it halted by itself, until it is restarted later in this transaction.
    REVIVE_BRANCHES = "
        INSERT INTO ductwork_branches
            (id, run_id, pipeline, fan_out_id, ordinal, status, step_id, output, last_advanced_at)
        SELECT {copied:br.id}, :to, br.pipeline, {copied:br.fan_out_id}, br.ordinal,
               CASE br.status WHEN 'completed' THEN 'completed' ELSE 'waiting' END,
               {copied:br.step_id}, br.output, {now}
          FROM {rows:c(id id)}
          JOIN ductwork_branches br ON {key:br.id;c.id}";
    /// The halted branches have yet to arrive.
    REVIVE_FAN_OUTS = "
        INSERT INTO ductwork_fan_outs
            (id, run_id, branch_id, node, via, width, arrived, parent_fan_out_id, parent_ordinal,
             created_at, fired_at)
        SELECT {copied:f.id}, :to, {copied:f.branch_id}, f.node, f.via, f.width, f.arrived - f.halted,
               {copied:f.parent_fan_out_id}, f.parent_ordinal, f.created_at,
               CASE WHEN f.arrived - f.halted = f.width THEN f.fired_at END
          FROM {rows:c(id id)}
          JOIN ductwork_fan_outs f ON {key:f.branch_id;c.id}";
    REVIVE_COMPLETED_STEPS = "
        INSERT INTO ductwork_steps
            (id, run_id, branch_id, ordinal, node, step, via, source_step_id, status, input, output,
             created_at, completed_at)
        SELECT {copied:s.id}, :to, {copied:s.branch_id}, s.ordinal, s.node, s.step, s.via, s.id,
               s.status, s.input, s.output, s.created_at, s.completed_at
          FROM {rows:c(id id)}
          JOIN ductwork_steps s ON {key:s.branch_id;c.id}
         WHERE s.status = 'completed' AND s.via NOT IN ('on_halt', 'on_complete', 'on_wait')
           AND s.id NOT IN (SELECT b.id FROM {rows:b(id id)})";
    /// These are not copies: they have yet to be done. They are made at one time, in however many chunks: steps of one time
    /// are listed by their places. Proven by `a_revived_run_lists_its_steps_in_the_order_of_the_first_one`, where a chunk is
    /// two branches.
    REVIVE_FAILED_STEPS = "
        INSERT INTO ductwork_steps
            (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
        SELECT {copied:s.id}, :to, {copied:s.branch_id}, s.ordinal, s.node, s.step, s.via,
               'in_progress', s.input, :at
          FROM {rows:c(id id)}
          JOIN ductwork_branches br ON {key:br.id;c.id}
          JOIN ductwork_steps s ON {key:s.id;br.step_id}
         WHERE s.status = 'failed' AND s.via <> 'dampen'";
    REVIVE_TUPLES = "
        INSERT INTO ductwork_tuples (run_id, \"key\", value, first_set_at, last_set_at)
        SELECT :to, t.\"key\", t.value, t.first_set_at, t.last_set_at
          FROM ductwork_tuples t WHERE t.run_id = :from";
    /// A fan-out that leaves a branch's current node was made at the branch's current step: the
    /// graph has no cycle, so a branch visits a node once. (The condition is written so that PostgreSQL does not look for
    /// these branches among the halted ones of all runs.)
    HALTED_BRANCHES = "
        SELECT br.id, br.step_id AS from_step_id, {copied:br.id} AS branch_id,
               {copied:br.step_id} AS step_id, s.status, s.node, s.ordinal, s.via,
               substr(s.output, 1, 1) AS begins, {copied:f.id} AS fan_out_id
          FROM {rows:c(id id)}
          JOIN ductwork_branches br ON {key:br.id;c.id}
          JOIN ductwork_steps s ON {key:s.id;br.step_id}
          LEFT JOIN ductwork_fan_outs f ON {key:f.branch_id;br.id} AND f.node = s.node
         WHERE coalesce(br.halt_reason, '') <> ''
         ORDER BY br.id";
    RESTART_BRANCHES = "
        UPDATE {into:ductwork_branches;b(id id, to_status text, ready int)}
           SET status = b.to_status, output = NULL,
               ready_at = CASE WHEN b.ready = 1 THEN {now} END
          {from:b(id id, to_status text, ready int)}
         WHERE {key:ductwork_branches.id;b.id}";
    REOPEN_STEPS = "
        UPDATE {into:ductwork_steps;b(id id)} SET status = 'advancing'
          {from:b(id id)}
         WHERE {key:ductwork_steps.id;b.id} AND ductwork_steps.status = 'completed'";
    /// These are not copies: their output has to be produced anew.
    REDO_STEPS = "
        INSERT INTO ductwork_steps
            (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
        SELECT {copied:s.id}, :to, {copied:s.branch_id}, s.ordinal, s.node, s.step, s.via,
               b.status, s.input, :at
          FROM {rows:b(id id, status text)}
          JOIN ductwork_steps s ON {key:s.id;b.id}";
    ASK_REVIVED_RUN = "UPDATE ductwork_runs SET status = 'dampened', dampened = :n WHERE id = :to";
    /// The kinds of steps, of barriers and of ends of a run: as many as its definition has,
    /// independent of the width of its fan-outs.
    SHAPE_STEPS = "
        SELECT DISTINCT s.node, s.step, s.via, p.node AS from_node,
               CASE WHEN g.id IS NOT NULL THEN 'split' WHEN s.input = '[]' THEN 'empty' ELSE 'whole' END AS left_it,
               f.node AS fan_out_node,
               CASE WHEN f.via = 'divide' THEN br.ordinal END AS path
          FROM ductwork_branches br
          JOIN ductwork_steps s ON s.branch_id = br.id AND s.via NOT IN ('on_halt', 'on_complete', 'on_wait')
          LEFT JOIN ductwork_steps p ON {key:p.branch_id;br.id} AND p.ordinal = s.ordinal - 1
          LEFT JOIN ductwork_fan_outs g ON {key:g.branch_id;br.id} AND g.node = p.node
          LEFT JOIN ductwork_fan_outs f ON {key:f.id;br.fan_out_id} AND s.ordinal = 0
         WHERE br.run_id = :from
         ORDER BY s.node, s.via, from_node, fan_out_node, path";
    SHAPE_FAN_OUTS = "
        SELECT DISTINCT f.node, CASE WHEN f.via = 'divide' THEN f.width END AS paths
          FROM ductwork_branches br
          JOIN ductwork_fan_outs f ON {key:f.branch_id;br.id}
         WHERE br.run_id = :from
         ORDER BY f.node";
    SHAPE_ENDS = "
        SELECT DISTINCT s.node,
               CASE WHEN f.id IS NOT NULL THEN 'split' WHEN coalesce(br.output, s.output) = '[]' THEN 'empty'
                    ELSE 'whole' END AS left_it
          FROM ductwork_branches br
          JOIN ductwork_steps s ON {key:s.id;br.step_id}
          LEFT JOIN ductwork_fan_outs f ON {key:f.branch_id;br.id} AND f.node = s.node
         WHERE br.run_id = :from AND br.status = 'completed'
         ORDER BY s.node";
    REOPEN_FAN_OUT = "
        UPDATE ductwork_fan_outs SET arrived = arrived - 1, fired_at = NULL
         WHERE id = :id AND arrived = width";
    WAIT_AGAIN = "
        UPDATE ductwork_branches SET status = 'waiting', output = NULL WHERE id = :id";
    LAST_OF_FAN_OUT = "
        SELECT br.id, br.step_id, f.id AS fan_out_id,
               (SELECT w.branch_id FROM ductwork_fan_outs w WHERE w.id = :fan_out) AS waits
          FROM ductwork_branches br
          JOIN ductwork_steps s ON {key:s.id;br.step_id}
          LEFT JOIN ductwork_fan_outs f ON {key:f.branch_id;br.id} AND f.node = s.node
         WHERE br.fan_out_id = :fan_out
         ORDER BY br.ordinal DESC LIMIT 1";
}

/// How many branches one statement takes. Where tests inject faults between two chunks, a small run has several.
const CHUNK: usize = if cfg!(feature = "failpoints") {
    2
} else {
    2_000
};

/// How many ids of branches one query returns: each such query reads all of them.
const PAGE: usize = if cfg!(feature = "failpoints") {
    CHUNK
} else {
    20 * CHUNK
};

/// The result of a revival.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Revive {
    /// This run continues where the other halted.
    Done(RunId),
    /// The run does not exist.
    NotFound,
    /// It has not halted.
    NotHalted(RunStatus),
    /// It was already revived; this is the new run.
    AlreadyRevived(RunId),
    /// It cannot continue with the requested definition, for these reasons: nothing was written.
    Disagrees(Vec<String>),
}

/// How a run should be revived.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The definition with which the new run continues; `None` for the one that its origin was
    /// started with.
    pub definition: Option<&'a Definition>,
    /// True where the new run gets the context of its origin; otherwise it begins without a context.
    pub context: bool,
    /// The person or the program that revives.
    pub by: Option<&'a Actor>,
}

#[cfg(feature = "internals")]
impl Wanted<'_> {
    /// Unchanged: with its definition and its context.
    pub const SAME: Self = Self {
        definition: None,
        context: true,
        by: None,
    };
}

/// Makes a new run from a halted one, unchanged.
#[cfg(feature = "internals")]
pub async fn revive(conn: &mut Conn, from: RunId) -> Result<Revive, Error> {
    revive_as(conn, from, Wanted::SAME).await
}

/// Makes a new run from a halted one: completed work is not done again; halted branches continue
/// where they halted.
///
/// If the acknowledgement is lost: revive again, and read the run's id from `AlreadyRevived`.
pub async fn revive_as(conn: &mut Conn, from: RunId, wanted: Wanted<'_>) -> Result<Revive, Error> {
    let to = RunId::new();
    let digest = match wanted.definition {
        Some(definition) => Some(definition::save(conn, definition).await?),
        None => None,
    };
    failpoint!(conn, "revive.begin");
    let revived = conn.transaction(async |conn| {
        let revived = copy(conn, from, to, wanted, digest.as_deref()).await?;
        if revived == Revive::Done(to) {
            action::record(conn, wanted.by, Verb::Revive, [from], Some(to)).await?;
        }
        failpoint!(conn, "revive.written");
        Ok(revived)
    });
    let revived = revived.await;
    failpoint!(conn, "revive.end");
    match revived {
        // Another revival was faster: its run can be read now.
        Err(Error::Constraint { constraint, source }) => match successor(conn, from).await? {
            Some(run) => Ok(Revive::AlreadyRevived(run)),
            None => Err(Error::Constraint { constraint, source }),
        },
        revived => revived,
    }
}

async fn successor(conn: &mut Conn, from: RunId) -> Result<Option<RunId>, Error> {
    let row = conn
        .fetch_optional(&SUCCESSOR, &[("from", from.0.into())])
        .await?;
    row.map(|row| Ok(RunId(row.get("id")?))).transpose()
}

async fn copy(
    conn: &mut Conn,
    from: RunId,
    to: RunId,
    wanted: Wanted<'_>,
    digest: Option<&str>,
) -> Result<Revive, Error> {
    if conn
        .execute(&HOLD_HALTED_RUN, &[("from", from.0.into())])
        .await?
        == 0
    {
        let args = [("from", from.0.into())];
        let row = conn.fetch_optional(&REVIVABLE_STATUS, &args).await?;
        return Ok(match row {
            Some(row) => Revive::NotHalted(row.word("status")?),
            None => Revive::NotFound,
        });
    }
    if let Some(run) = successor(conn, from).await? {
        return Ok(Revive::AlreadyRevived(run));
    }
    if let Some(definition) = wanted.definition {
        let found = obstacles(conn, from, definition).await?;
        if !found.is_empty() {
            return Ok(Revive::Disagrees(found));
        }
    }
    let both = [("from", from.0.into()), ("to", to.0.into())];
    let args = [
        ("from", from.0.into()),
        ("to", to.0.into()),
        ("definition", digest.into()),
    ];
    conn.write(&REVIVE_RUN, &args, 1).await?;
    let run = conn.fetch_optional(&REVIVED_RUN, &both[1..]).await?;
    let run = run.ok_or_else(|| Error::Corrupt(format!("{to:?} is not there")))?;
    let digest: String = run.get("definition")?;
    // A definition that this version cannot read decides nothing.
    let read = match wanted.definition {
        Some(_) => None,
        None => Definitions::default().read(conn, &digest).await?.ok(),
    };
    let copying = Copying {
        to,
        at: run.get("triggered_at")?,
        pipeline: run.get("pipeline")?,
        definition: wanted.definition.or(read.as_deref()),
    };
    let (mut halted, mut behind) = (Vec::new(), Uuid::nil());
    loop {
        let page = page(conn, from, behind).await?;
        for chunk in page.chunks(CHUNK) {
            halted.extend(copying.copy(conn, chunk).await?);
        }
        match page.last() {
            Some(last) if page.len() == PAGE => behind = *last,
            _ => break,
        }
    }
    if halted.is_empty() {
        let text = format!("I15: {from:?} has halted, but no branch of it by itself");
        return Err(Error::Corrupt(text));
    }
    if wanted.context {
        conn.execute(&REVIVE_TUPLES, &both).await?;
    }
    failpoint!(conn, "revive.copied");
    let mut asked = 0;
    for chunk in halted.chunks(CHUNK) {
        asked += copying.restart(conn, chunk).await?;
    }
    if asked > 0 {
        let args = [("to", to.0.into()), ("n", asked.into())];
        conn.write(&ASK_REVIVED_RUN, &args, 1).await?;
    }
    Ok(Revive::Done(to))
}

/// The first branches of a run behind this one.
async fn page(conn: &mut Conn, from: RunId, behind: Uuid) -> Result<Vec<Uuid>, Error> {
    let args = [
        ("from", from.0.into()),
        ("behind", behind.into()),
        ("all", i64::MAX.into()),
        ("n", PAGE.into()),
    ];
    let rows = conn.fetch(&REVIVED_BRANCHES, &args).await?;
    rows.iter().map(|row| row.get("id")).collect()
}

/// A revival under way.
struct Copying<'a> {
    to: RunId,
    /// When it was triggered, in microseconds.
    at: i64,
    pipeline: String,
    /// The new run's definition, if this version can read it.
    definition: Option<&'a Definition>,
}

impl Copying<'_> {
    /// Copies these branches, with their fan-outs and their steps. Returns those that had halted by themselves.
    async fn copy(&self, conn: &mut Conn, branches: &[Uuid]) -> Result<Vec<Uuid>, Error> {
        let branches = Rows::new().ids("id", branches.iter().copied());
        let args = [("to", self.to.0.into()), ("c", (&branches).into())];
        conn.execute(&REVIVE_BRANCHES, &args).await?;
        conn.execute(&REVIVE_FAN_OUTS, &args).await?;
        failpoint!(conn, "revive.branched");
        let halted = self.halted(conn, &branches).await?;
        let redone = || halted.iter().filter_map(|it| Some((it.from, it.redone()?)));
        let kept_out = Rows::new().ids("id", redone().map(|row| row.0));
        let completed = [args[0].clone(), args[1].clone(), ("b", (&kept_out).into())];
        conn.execute(&REVIVE_COMPLETED_STEPS, &completed).await?;
        let at = ("at", self.at.into());
        let failed = [args[0].clone(), args[1].clone(), at.clone()];
        conn.execute(&REVIVE_FAILED_STEPS, &failed).await?;
        if redone().next().is_some() {
            let rows = Rows::new()
                .ids("id", redone().map(|row| row.0))
                .texts("status", redone().map(|row| row.1.as_str()));
            let args = [args[0].clone(), ("b", (&rows).into()), at];
            conn.write(&REDO_STEPS, &args, redone().count()).await?;
        }
        Ok(halted.iter().map(|it| it.original).collect())
    }

    /// Sets the copies of these halted branches in motion, after all branches have been copied. Returns how many of them
    /// ask a person.
    async fn restart(&self, conn: &mut Conn, halted: &[Uuid]) -> Result<usize, Error> {
        let rows = Rows::new().ids("id", halted.iter().copied());
        let halted = self.halted(conn, &rows).await?;
        set_in_motion(conn, &halted, &self.pipeline).await?;
        let asked: Vec<&Halted> = halted
            .iter()
            .filter(|it| it.restart == Restart::Ask)
            .collect();
        let wait = |branch: &&Halted| {
            let definition = self.definition?;
            Some(Wait {
                branch_id: branch.branch_id,
                run_id: self.to,
                pipeline: &self.pipeline,
                definition,
                step: branch.step_id,
                node: definition.find(&branch.node)?,
                ordinal: branch.ordinal,
                transition: None,
            })
        };
        let waits: Vec<Wait<'_>> = asked.iter().filter_map(wait).collect();
        // The revive command wakes the workers of the run's pipeline.
        hooks::begin_waits(conn, &waits, &mut BTreeSet::new()).await?;
        Ok(asked.len())
    }

    /// Those of these original branches that halted by themselves.
    async fn halted(&self, conn: &mut Conn, among: &Rows<'_>) -> Result<Vec<Halted>, Error> {
        let args = [("to", self.to.0.into()), ("c", among.into())];
        let rows = conn.fetch(&HALTED_BRANCHES, &args).await?;
        rows.iter()
            .map(|row| Halted::read(row, self.definition))
            .collect()
    }
}

/// Everything that keeps a halted run from going on with this definition. Every branch of the run is read.
pub async fn obstacles(
    conn: &mut Conn,
    run: RunId,
    definition: &Definition,
) -> Result<Vec<String>, Error> {
    let shape = shape(conn, run).await?;
    let found = disagreements(definition, &shape);
    Ok(found.iter().map(ToString::to_string).collect())
}

/// The obstacle to a halted run that goes on with this definition; of a run that is too wide for the question, nothing is
/// known.
pub async fn obstacle(
    conn: &mut Conn,
    run: RunId,
    definition: &Definition,
) -> Result<Option<Obstacle>, Error> {
    let own = query::definition_of(conn, run).await?;
    if own.is_none_or(|own| own == definition.digest()) {
        return Ok(None);
    }
    if why::is_wide(conn, run).await? {
        return Ok(Some(Obstacle::Unknown));
    }
    let found = obstacles(conn, run, definition).await?;
    Ok((!found.is_empty()).then_some(Obstacle::Disagrees(found)))
}

/// How a halted run may go on, with the definition that its pipeline has now or without one.
pub async fn prospects(
    conn: &mut Conn,
    run: RunId,
    latest: Result<&Definition, Obstacle>,
) -> Result<Prospects, Error> {
    let obstacle = match latest {
        Ok(latest) => obstacle(conn, run, latest).await?,
        Err(obstacle) => Some(obstacle),
    };
    Ok(Prospects {
        has_key: has_key(conn, run).await?,
        obstacle,
    })
}

/// True where the run has a trigger key, or the first of those that it continues: a revival passes no key on.
async fn has_key(conn: &mut Conn, run: RunId) -> Result<bool, Error> {
    let mut next = Some(run);
    for _ in 0..why::GENERATIONS_MAX {
        let Some(run) = next else { break };
        let found = query::run_without_payloads(conn, run).await?;
        if found.as_ref().is_some_and(|run| run.trigger_key.is_some()) {
            return Ok(true);
        }
        next = found.and_then(|run| run.revived_from);
    }
    Ok(false)
}

/// The kinds of rows in a run.
async fn shape(conn: &mut Conn, from: RunId) -> Result<Shape, Error> {
    let args = [("from", from.0.into())];
    let mut shape = Shape::default();
    for row in conn.fetch(&SHAPE_STEPS, &args).await? {
        let node: Option<String> = row.get("from_node")?;
        let fan_out: Option<String> = row.get("fan_out_node")?;
        shape.steps.push(StepFact {
            node: row.get("node")?,
            step: row.get("step")?,
            via: row.get("via")?,
            from: match (node, fan_out) {
                (Some(node), _) => Origin::Node {
                    node,
                    left: left(&row)?,
                },
                (None, Some(node)) => Origin::FanOut {
                    node,
                    path: row.get("path")?,
                },
                (None, None) => Origin::Start,
            },
        });
    }
    for row in conn.fetch(&SHAPE_FAN_OUTS, &args).await? {
        shape.fan_outs.push(FanOutFact {
            node: row.get("node")?,
            paths: row.get("paths")?,
        });
    }
    for row in conn.fetch(&SHAPE_ENDS, &args).await? {
        shape.ends.push(EndFact {
            node: row.get("node")?,
            left: left(&row)?,
        });
    }
    Ok(shape)
}

fn left(row: &super::Row) -> Result<Left, Error> {
    let word: String = row.get("left_it")?;
    Ok(match word.as_str() {
        "split" => Left::Split,
        "empty" => Left::Empty,
        _ => Left::Whole,
    })
}

/// A branch of the new run whose original had halted.
struct Halted {
    original: Uuid,
    branch_id: BranchId,
    step_id: StepId,
    fan_out_id: Option<FanOutId>,
    restart: Restart,
    /// Its node, and its step's place on the branch.
    node: String,
    ordinal: i64,
    /// The step of its original.
    from: StepId,
    /// True where that step has an output.
    done: bool,
}

impl Halted {
    fn read(row: &super::Row, definition: Option<&Definition>) -> Result<Self, Error> {
        let fan_out_id = row.get::<Option<Uuid>>("fan_out_id")?.map(FanOutId);
        let step = row.word("status")?;
        let split = fan_out_id.is_some();
        let node: String = row.get("node")?;
        let begins: Option<String> = row.get("begins")?;
        let first = begins.and_then(|begins| begins.chars().next());
        let fits = definition
            .and_then(|it| Some(advance::fits(it, it.find(&node)?, first)))
            .unwrap_or(true);
        let asked = row.get::<String>("via")? == Via::Dampen.as_str();
        let view = HaltedView {
            step,
            split,
            asked,
            fits,
        };
        let restart = restart(view).ok_or_else(|| {
            let original = row.get::<Uuid>("id").unwrap_or_default();
            Error::Corrupt(format!("branch {original} has halted with its step {step}"))
        })?;
        Ok(Self {
            original: row.get("id")?,
            branch_id: BranchId(row.get("branch_id")?),
            step_id: StepId(row.get("step_id")?),
            fan_out_id,
            restart,
            node,
            ordinal: row.get("ordinal")?,
            from: StepId(row.get("from_step_id")?),
            done: step == StepStatus::Completed,
        })
    }

    /// The status in which its step begins anew, although it has an output; `None` where the output
    /// is kept.
    fn redone(&self) -> Option<StepStatus> {
        match self.restart {
            Restart::Run if self.done => Some(StepStatus::InProgress),
            Restart::Ask => Some(StepStatus::Waiting),
            _ => None,
        }
    }
}

async fn set_in_motion(conn: &mut Conn, halted: &[Halted], pipeline: &str) -> Result<(), Error> {
    let (mut run, mut advance) = (Vec::new(), Vec::new());
    // Each branch with its status, and whether an advancer may take it.
    let mut moving = Vec::new();
    for branch in halted {
        let mut to = |id, status, ready| moving.push((id, status, ready));
        match (branch.restart, branch.fan_out_id) {
            (Restart::Run, _) => {
                to(branch.branch_id, BranchStatus::InProgress, 0);
                run.push(branch.step_id);
            }
            (Restart::Ask, _) => to(branch.branch_id, BranchStatus::Dampened, 0),
            (Restart::Arrive, Some(fan_out)) => {
                let (id, step_id) = reopen(conn, fan_out).await?;
                to(id, BranchStatus::InProgress, 1);
                advance.push(step_id);
            }
            (Restart::Advance | Restart::Arrive, _) => {
                to(branch.branch_id, BranchStatus::InProgress, 1);
                advance.push(branch.step_id);
            }
        }
    }
    let rows = Rows::new()
        .ids("id", moving.iter().map(|row| row.0))
        .texts("to_status", moving.iter().map(|row| row.1.as_str()))
        .ints("ready", moving.iter().map(|row| row.2));
    conn.write(&RESTART_BRANCHES, &[("b", (&rows).into())], moving.len())
        .await?;
    let rows = Rows::new().ids("id", advance.iter().copied());
    conn.write(&REOPEN_STEPS, &[("b", (&rows).into())], advance.len())
        .await?;
    let first = |step_id| NewExecution::first(step_id, pipeline, Some(0));
    let executions: Vec<NewExecution<'_>> = run.into_iter().map(first).collect();
    insert::insert_executions(conn, &executions).await
}

/// A barrier at which all branches had arrived fires again when the last of them arrives again.
/// Returns the branch to advance for that, and from which step.
///
/// A branch whose value is its own fan-out's array must not be advanced again (that would split it
/// once more); its barrier is reopened in turn. Nesting is finite, so this loop ends.
async fn reopen(conn: &mut Conn, fan_out: FanOutId) -> Result<(BranchId, StepId), Error> {
    let mut fan_out = fan_out;
    loop {
        let args = [("id", fan_out.0.into())];
        let corrupt = || Error::Corrupt(format!("I13: {fan_out:?} is not a barrier that fired"));
        if conn.execute(&REOPEN_FAN_OUT, &args).await? != 1 {
            return Err(corrupt());
        }
        let args = [("fan_out", fan_out.0.into())];
        let last = conn.fetch_optional(&LAST_OF_FAN_OUT, &args).await?;
        let last = last.ok_or_else(corrupt)?;
        let waits: Uuid = last.get("waits")?;
        conn.write(&WAIT_AGAIN, &[("id", waits.into())], 1).await?;
        match last.get::<Option<Uuid>>("fan_out_id")? {
            Some(inner) => fan_out = FanOutId(inner),
            None => return Ok((BranchId(last.get("id")?), StepId(last.get("step_id")?))),
        }
    }
}
