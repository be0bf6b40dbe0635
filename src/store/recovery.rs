//! Recovery: giving back what a dead process held.
//!
//! Owns: closing its executions and advancements, and removing its row; asking which of the rows that this writes
//! somebody has locked. Never: decides that a process is dead; the reaper does (`engine::reaper`), with proof or with
//! two witnesses.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::definition::Definition;
use crate::failpoint::failpoint;
use crate::machine::outcome::{self, Ending, ExecutionView, StepLimits, Verdict};
use crate::model::*;

use super::commit::{OPEN_RESULTS, UNLOCKED_RESULTS};
use super::conn::{Conn, Row};
use super::definition::Definitions;
use super::error::Error;
use super::process::{Condemned, LOCK_PROCESS, ids, with_rows};
use super::statement::{Arg, Rows, Statement, statements};
use super::transition::insert::{self, NewExecution};
use super::{advance, batch, claim, departed, micros, process};

macro_rules! dead {
    () => {
        "
         WHERE id = :id AND (:proven = 1 OR (beat_seq = :seen
               AND (last_heartbeat_at <= {now} - :age OR last_heartbeat_at > {now})))"
    };
}

macro_rules! held_to_advance {
    ($lock:literal) => {
        concat!("
        SELECT br.id FROM ductwork_advancements a {found:ductwork_advancements_claimed}
          {join:ductwork_branches br} ON {key:br.id;a.branch_id}
          {join:ductwork_transitions t} ON {key:t.id;a.transition_id}
         WHERE a.process_id = :process AND a.completed_at IS NULL{narrow: AND a.holder = :process}", $lock)
    };
}

statements! {
    /// RACE: the process that is believed dead beats, or claims, between our look and this write (H1). Both raise
    /// `beat_seq`, so the row no longer matches and nothing happens. A heartbeat that is later than the clock does
    /// not tell its age: the clock was set back since. With proof of death `seen` is absent. The claims that the
    /// process made before this write are visible after it; afterwards it can claim nothing, because its row is
    /// gone (C4). Proven by `a_beat_between_look_and_recovery_saves_the_process`. (I22)
    REMOVE_PROCESS = concat!("
        DELETE FROM ductwork_processes", dead!());
    /// A dead process some of whose claims cannot be given back yet keeps its row, because claims belong to a process
    /// (I22). No claimant's epoch is as high as this one: if the process lives after all, it can claim nothing, and
    /// its next beat tells it that it was declared dead. Proven by
    /// `a_process_of_which_a_part_was_recovered_beats_and_claims_no_more`.
    CONDEMN_PROCESS = concat!("
        UPDATE ductwork_processes SET epoch = :condemned", dead!());
    LOST_EXECUTIONS = "
        UPDATE {into:ductwork_executions;b(id id)}
           SET completed_at = {now}, result = :result, error_class = :class, error_message = :message
         WHERE {of:ductwork_executions.id;b(id id)} AND process_id = :id AND completed_at IS NULL";
    LOST_STEPS = "
        SELECT e.id, e.step_id, e.pipeline, e.attempt, e.retry_count, e.crash_count,
               s.step, s.branch_id, s.run_id, s.via, r.definition
          FROM {rows:b(id id)}
          JOIN ductwork_executions e ON {key:e.id;b.id}
          JOIN ductwork_steps s ON {key:s.id;e.step_id}
          JOIN ductwork_runs r ON {key:r.id;s.run_id}
         ORDER BY e.id";
    FAIL_STEPS = "
        UPDATE {into:ductwork_steps;b(id id)} SET status = 'failed', completed_at = {now}
          {from:b(id id)}
         WHERE {key:ductwork_steps.id;b.id} AND ductwork_steps.status = 'in_progress'";
    FAILED_BRANCHES = "
        UPDATE {into:ductwork_branches;b(id id)} SET ready_at = {now}
          {from:b(id id)}
         WHERE {key:ductwork_branches.id;b.id} AND ductwork_branches.status = 'in_progress'";
    LOCK_ADVANCEMENTS = "
        SELECT a.branch_id AS id, a.claim_token FROM ductwork_advancements a
         WHERE a.process_id = :process AND {any:a.branch_id;b(id id)} AND a.completed_at IS NULL
         ORDER BY a.branch_id {lock}",
        on Mysql [&LOCK_ADVANCEMENTS_IN_TURN];
    LOCK_ADVANCEMENTS_IN_TURN in Mysql = "
        SELECT a.branch_id AS id, a.claim_token FROM {rows:b(id id)}
          STRAIGHT_JOIN ductwork_advancements a {found:ductwork_advancements_open} ON a.open_branch = b.id
         WHERE a.process_id = :process AND a.completed_at IS NULL
         ORDER BY a.branch_id {lock}";
    HAS_ROW = "SELECT id FROM ductwork_processes WHERE id = :id";
    /// The branches whose advancements a recovery can give back: one that lacks a row is damaged.
    HELD_TO_ADVANCE = held_to_advance!("");
    /// The branches of `HELD_TO_ADVANCE`, without those of which somebody has locked a row that giving them back
    /// writes.
    UNLOCKED_TO_ADVANCE = held_to_advance!(" {skip_waiting}");
    LOST_ADVANCEMENTS = "
        UPDATE {into:ductwork_advancements;b(id id);ductwork_advancements_open}
           SET completed_at = {now}, result = :result, error_class = :class, error_message = :message
         WHERE {of:ductwork_advancements.branch_id;b(id id)} AND process_id = :id
           AND completed_at IS NULL{narrow: AND ductwork_advancements.open_branch = b.id}";
    COUNT_CRASHES = "
        UPDATE {into:ductwork_transitions;b(id id);ductwork_transitions_open} SET crash_count = crash_count + 1
          {from:b(id id)}
         WHERE {key:ductwork_transitions.branch_id;b.id}
           AND ductwork_transitions.completed_at IS NULL{narrow: AND ductwork_transitions.open_branch = b.id}";
    LOCK_BRANCHES = "
        SELECT br.id, br.claim_token FROM {rows:b(id id, token id)}
          {join:ductwork_branches br} ON {key:br.id;b.id} AND br.claim_token = b.token
         ORDER BY br.id {lock}";
    GIVE_BACK_BRANCHES = "
        UPDATE {into:ductwork_branches;b(id id, token id)}
           SET status = 'in_progress', claim_token = NULL, claimed_for_advancing_at = NULL, ready_at = {now},
               last_advanced_at = {now}
          {from:b(id id, token id)}
         WHERE {key:ductwork_branches.id;b.id} AND ductwork_branches.claim_token = b.token";
    /// Claims without a process: these cannot exist, and are healed all the same (C4, H14).
    ORPHANS = "
        SELECT DISTINCT x.process_id FROM (
            SELECT process_id FROM ductwork_executions
             WHERE completed_at IS NULL AND process_id IS NOT NULL AND lease_until < {now}{narrow: AND holder IS NOT NULL}
            UNION ALL
            SELECT process_id FROM ductwork_advancements
             WHERE completed_at IS NULL AND lease_until < {now}{narrow: AND holder IS NOT NULL}) x
         WHERE NOT EXISTS (SELECT 1 FROM ductwork_processes p WHERE {key:p.id;x.process_id})";
}

/// The reason why a process is taken for dead.
#[derive(Clone, Copy, Debug)]
pub enum Death<'a> {
    /// Somebody saw it exit, or knows that it can no longer exist.
    Proven {
        /// How it died, for the record.
        how: &'a str,
    },
    /// Its supervisor ended it because the daemon stops, and saw it exit: everything that it held
    /// is given back as `released`, which spends no budget (H22).
    Stopped,
    /// Its heartbeat is older than this, and the witness has seen no beat since `beat_seq`.
    Witnessed {
        /// The last beat that was seen.
        beat_seq: i64,
        /// The age that makes a heartbeat stale.
        stale_after: Duration,
    },
}

/// An execution that was closed by a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Its pipeline.
    pub pipeline: String,
    /// Its step.
    pub step: String,
    /// The transition that created the step, if this version knows it.
    pub via: Option<Via>,
    /// True where it was the first attempt of a run.
    pub starts: bool,
    /// True where it will be tried again.
    pub again: bool,
}

/// The claims that a recovery gave back.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The row of the process was removed: false where it was alive, or had been recovered before, or where claims
    /// were left.
    pub removed: bool,
    /// The process counts as dead since then.
    pub declared: bool,
    /// The purpose that the process had, where it had a row and this version knows it.
    pub role: Option<Role>,
    /// Executions that may be claimed again.
    pub again: usize,
    /// Steps that have used up their crash budget.
    pub failed: usize,
    /// Branches that may be advanced again.
    pub branches: usize,
    /// The executions among all these.
    pub closed: Vec<Closed>,
    /// The advancements that were closed.
    pub advancements: usize,
    /// Pipelines with new availabilities.
    pub pipelines: BTreeSet<String>,
    /// The claims that were left to a later recovery, because somebody has locked their rows.
    pub left: Vec<Left>,
}

/// A claim that was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// All of them: the row of the process itself is locked.
    All,
    /// Of an execution.
    Execution(ExecutionId),
    /// Of a branch, for advancing.
    Branch(BranchId),
}

/// The claims of a process whose rows somebody has locked.
#[derive(Clone, Debug, Default)]
pub struct Locked {
    /// Executions that cannot be closed.
    pub executions: HashSet<ExecutionId>,
    /// Executions that can be closed and tried again, and whose steps or branches cannot fail.
    pub steps: HashSet<ExecutionId>,
    /// Branches whose advancements cannot be closed.
    pub branches: HashSet<BranchId>,
}

impl Locked {
    fn is_empty(&self) -> bool {
        self.executions.is_empty() && self.steps.is_empty() && self.branches.is_empty()
    }
}

/// The claims of `process` whose recovery would have to wait for somebody's lock at this moment; `None` where somebody
/// has locked the row of the process itself, without which nothing can be given back. It waits for no lock on a row.
async fn locked(conn: &mut Conn, process: ProcessId) -> Result<Option<Locked>, Error> {
    if !conn.dialect().backend().is_server() {
        return Ok(Some(Locked::default()));
    }
    if !process::kept_from_beating(conn, vec![process])
        .await?
        .is_empty()
        && conn
            .fetch_optional(&HAS_ROW, &[("id", process.0.into())])
            .await?
            .is_some()
    {
        return Ok(None);
    }
    let args = [("process", process.0.into())];
    let held = ids(&conn.fetch(&claim::HELD, &args).await?)?;
    let executions = || held.iter().copied();
    let unlocked = claim::unlocked(conn, &claim::UNLOCKED, executions()).await?;
    let whole = claim::unlocked(conn, &UNLOCKED_RESULTS, executions()).await?;
    let (free, locked): (Vec<_>, Vec<_>) = executions().partition(|id| unlocked.contains(id));
    let branches = locked_branches(conn, process).await?;
    let mut steps = HashSet::new();
    let mut others = free.into_iter().filter(|id| !whole.contains(id)).peekable();
    if others.peek().is_some() {
        let others = Rows::new().ids("id", others);
        // One that lacks a row is damaged, and not locked.
        for row in conn
            .fetch(&OPEN_RESULTS, &[("b", (&others).into())])
            .await?
        {
            steps.insert(ExecutionId(row.get("id")?));
        }
    }
    Ok(Some(Locked {
        executions: locked.into_iter().map(ExecutionId).collect(),
        steps,
        branches,
    }))
}

/// The branches that `process` holds and cannot give back at this moment, because somebody has locked their rows. It
/// waits for no lock on a row.
pub async fn locked_branches(
    conn: &mut Conn,
    process: ProcessId,
) -> Result<HashSet<BranchId>, Error> {
    let args = [("process", process.0.into())];
    let held = ids(&conn.fetch(&HELD_TO_ADVANCE, &args).await?)?;
    let mut locked: HashSet<_> = held.into_iter().map(BranchId).collect();
    if !locked.is_empty() {
        for id in ids(&conn.fetch(&UNLOCKED_TO_ADVANCE, &args).await?)? {
            locked.remove(&BranchId(id));
        }
    }
    Ok(locked)
}

/// Takes everything that a dead process held, and makes it available again, except for claims whose rows somebody has
/// locked: while these are left, the row of the process is left too. Idempotent; any number of processes may do so at
/// once.
pub async fn recover(
    conn: &mut Conn,
    process: ProcessId,
    death: Death<'_>,
    limits: &(dyn Fn(&Definition, &str) -> StepLimits + Sync),
    definitions: &Definitions,
) -> Result<Recovered, Error> {
    match locked(conn, process).await? {
        Some(locked) => recover_all_but(conn, process, death, limits, definitions, &locked).await,
        None => Ok(Recovered {
            left: vec![Left::All],
            ..Recovered::default()
        }),
    }
}

/// Like [`recover`], but leaves the claims in `locked`: the caller has found that somebody has locked their rows.
pub async fn recover_all_but(
    conn: &mut Conn,
    process: ProcessId,
    death: Death<'_>,
    limits: &(dyn Fn(&Definition, &str) -> StepLimits + Sync),
    definitions: &Definitions,
    locked: &Locked,
) -> Result<Recovered, Error> {
    let (proven, seen, age, how) = match death {
        Death::Proven { how } => (1, 0, Duration::ZERO, how),
        Death::Stopped => (1, 0, Duration::ZERO, "it was stopped"),
        Death::Witnessed {
            beat_seq,
            stale_after,
        } => (0, beat_seq, stale_after, "its heartbeat stopped"),
    };
    let (condemned, ending, message) = match death {
        Death::Stopped => (
            Condemned::Stopped,
            Ending::Released {
                delay: Duration::ZERO,
            },
            "its process was stopped before it had ended".to_owned(),
        ),
        _ => (
            Condemned::Crashed,
            Ending::Crashed,
            format!("the process that ran it died: {how}"),
        ),
    };
    let lost = Lost {
        process,
        ending,
        message,
        locked,
    };
    failpoint!(conn, "recover.begin");
    let recovered = conn.transaction(async |conn| {
        let args = [
            ("id", process.0.into()),
            ("proven", i64::from(proven).into()),
            ("seen", seen.into()),
            ("age", micros(age).into()),
            ("condemned", condemned.epoch().into()),
        ];
        let row = conn.fetch_optional(&LOCK_PROCESS, &args[..1]).await?;
        let before = match &row {
            Some(row) => Condemned::of(row.get("epoch")?),
            None => None,
        };
        let is_whole = locked.is_empty();
        let ended = match &row {
            None => false,
            Some(_) if is_whole => conn.execute(&REMOVE_PROCESS, &args[..4]).await? == 1,
            Some(_) if before.is_some() => true,
            Some(_) => conn.execute(&CONDEMN_PROCESS, &args).await? == 1,
        };
        // With proof, claims of a row that is already gone are orphans, and are healed as well.
        if !ended && proven == 0 {
            return Ok(Recovered::default());
        }
        failpoint!(conn, "recover.removed");
        let mut recovered = Recovered {
            declared: ended && before.is_none(),
            ..Recovered::default()
        };
        give_back_executions(conn, &lost, limits, definitions, &mut recovered).await?;
        give_back_branches(conn, &lost, &mut recovered).await?;
        // Perhaps nothing of the locked rows had to be written.
        recovered.removed = ended
            && recovered.left.is_empty()
            && (is_whole || conn.execute(&REMOVE_PROCESS, &args[..4]).await? == 1);
        if ended && let Some(row) = row {
            recovered.role = row.get::<String>("role")?.parse().ok();
            // The process that gives back the rest does not know how this one died.
            if recovered.declared || recovered.removed {
                departed::remember(conn, process, &row, Some(how)).await?;
            }
        }
        failpoint!(conn, "recover.written");
        Ok(recovered)
    });
    let recovered = recovered.await?;
    failpoint!(conn, "recover.end");
    Ok(recovered)
}

/// The work that a process held, and how it is closed.
struct Lost<'a> {
    process: ProcessId,
    ending: Ending,
    message: String,
    locked: &'a Locked,
}

impl Lost<'_> {
    fn args(&self) -> [(&'static str, Arg<'_>); 4] {
        [
            ("id", self.process.0.into()),
            ("result", self.ending.result().as_str().into()),
            ("class", self.ending.result().as_str().into()),
            ("message", (&self.message).into()),
        ]
    }
}

/// Locks these claims of a process, as far as they are still its own.
async fn lock(
    conn: &mut Conn,
    statement: &'static Statement,
    process: ProcessId,
    claims: impl IntoIterator<Item = uuid::Uuid>,
) -> Result<Vec<Row>, Error> {
    let claims = batch::in_order(claims);
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let rows = Rows::new().ids("id", claims);
    let args = [("b", (&rows).into()), ("process", process.0.into())];
    conn.fetch(statement, &args).await
}

async fn give_back_executions(
    conn: &mut Conn,
    of: &Lost<'_>,
    limits: &(dyn Fn(&Definition, &str) -> StepLimits + Sync),
    definitions: &Definitions,
    recovered: &mut Recovered,
) -> Result<(), Error> {
    let args = [("process", of.process.0.into())];
    let held = ids(&conn.fetch(&claim::HELD, &args).await?)?.into_iter();
    let free = held.filter(|id| !of.locked.executions.contains(&ExecutionId(*id)));
    let held = lock(conn, &claim::LOCK_CLAIMED, of.process, free).await?;
    let mut held = ids(&held)?;
    let judged = judged(conn, of, &held, limits, definitions).await?;
    let is_left = |lost: &LostExecution| lost.fails() && of.locked.steps.contains(&lost.id);
    let (also, lost): (Vec<_>, Vec<_>) = judged.into_iter().partition(is_left);
    let mut left = of.locked.executions.clone();
    left.extend(also.iter().map(|lost| lost.id));
    held.retain(|id| !left.contains(&ExecutionId(*id)));
    recovered.left.extend(left.into_iter().map(Left::Execution));
    if held.is_empty() {
        return Ok(());
    }
    let n = held.len();
    let rows = Rows::new().ids("id", held);
    let args = of.args();
    conn.write(&LOST_EXECUTIONS, &with_rows(&args, &rows), n)
        .await?;
    for lost in &lost {
        recovered.closed.push(lost.closed()?);
    }
    try_again(conn, of, &lost, recovered).await?;
    fail(conn, &lost, recovered).await
}

/// An execution that a dead process held, and the verdict on it.
struct LostExecution {
    id: ExecutionId,
    row: Row,
    pipeline: String,
    via: Option<Via>,
    verdict: Verdict,
}

impl LostExecution {
    fn fails(&self) -> bool {
        !matches!(self.verdict, Verdict::Again { .. })
    }

    fn closed(&self) -> Result<Closed, Error> {
        Ok(Closed {
            pipeline: self.pipeline.clone(),
            step: self.row.get("step")?,
            via: self.via,
            starts: self.row.count("attempt")? == 1 && self.via == Some(Via::Start),
            again: !self.fails(),
        })
    }
}

/// The verdicts on these executions of a dead process.
async fn judged(
    conn: &mut Conn,
    of: &Lost<'_>,
    held: &[uuid::Uuid],
    limits: &(dyn Fn(&Definition, &str) -> StepLimits + Sync),
    definitions: &Definitions,
) -> Result<Vec<LostExecution>, Error> {
    if held.is_empty() {
        return Ok(Vec::new());
    }
    let rows = Rows::new().ids("id", held.iter().copied());
    let mut judged = Vec::new();
    for row in conn.fetch(&LOST_STEPS, &[("b", (&rows).into())]).await? {
        let pipeline: String = row.get("pipeline")?;
        let digest: String = row.get("definition")?;
        // An execution that only a newer version can read is recovered all the same: a definition without
        // settings leaves the budgets to the configuration.
        let definition = match definitions.read(conn, &digest).await? {
            Ok(definition) => definition,
            Err(_) => Arc::new(Definition::silent(&pipeline)),
        };
        let view = ExecutionView {
            retry_count: row.count("retry_count")?,
            crash_count: row.count("crash_count")?,
        };
        let limits = limits(&definition, &row.get::<String>("step")?);
        judged.push(LostExecution {
            id: ExecutionId(row.get("id")?),
            via: row.get::<String>("via")?.parse().ok(),
            verdict: outcome::decide(view, of.ending, &limits, 0.5),
            pipeline,
            row,
        });
    }
    Ok(judged)
}

/// Inserts the next attempts of those that have budget left.
async fn try_again(
    conn: &mut Conn,
    of: &Lost<'_>,
    lost: &[LostExecution],
    recovered: &mut Recovered,
) -> Result<(), Error> {
    let mut again = Vec::new();
    for lost in lost {
        if let Verdict::Again { delay, next } = lost.verdict {
            again.push(NewExecution {
                id: ExecutionId::new(),
                step_id: StepId(lost.row.get("step_id")?),
                pipeline: &lost.pipeline,
                attempt: lost.row.count("attempt")? + 1,
                retry_count: next.retry_count,
                crash_count: next.crash_count,
                due_in: of.ending.due_in(delay).map(micros),
            });
        }
    }
    recovered.again = again.len();
    let pipelines = again.iter().map(|row| row.pipeline.to_owned());
    recovered.pipelines.extend(pipelines);
    insert::insert_executions(conn, &again).await
}

/// Fails the steps of those that have none left, and lets an advancer halt their branches.
async fn fail(
    conn: &mut Conn,
    lost: &[LostExecution],
    recovered: &mut Recovered,
) -> Result<(), Error> {
    let (mut failed, mut halted) = (Vec::new(), Vec::new());
    for lost in lost.iter().filter(|lost| lost.fails()) {
        failed.push(StepId(lost.row.get("step_id")?));
        if !lost.via.is_some_and(Via::is_hook) {
            halted.push(BranchId(lost.row.get("branch_id")?));
        }
    }
    recovered.failed = failed.len();
    recovered.branches += halted.len();
    // I14, I18: the step of a running execution is in progress, and so is the branch at that step.
    if !failed.is_empty() {
        let rows = Rows::new().ids("id", failed.iter().copied());
        conn.write(&FAIL_STEPS, &[("b", (&rows).into())], failed.len())
            .await?;
    }
    if !halted.is_empty() {
        let rows = Rows::new().ids("id", halted.iter().copied());
        conn.write(&FAILED_BRANCHES, &[("b", (&rows).into())], halted.len())
            .await?;
    }
    Ok(())
}

async fn give_back_branches(
    conn: &mut Conn,
    of: &Lost<'_>,
    recovered: &mut Recovered,
) -> Result<(), Error> {
    let left = of.locked.branches.iter().copied();
    recovered.left.extend(left.map(Left::Branch));
    let args = [("process", of.process.0.into())];
    let mut free = Vec::new();
    for row in conn.fetch(&advance::HELD_BRANCHES, &args).await? {
        let id: uuid::Uuid = row.get("branch_id")?;
        if !of.locked.branches.contains(&BranchId(id)) {
            free.push(id);
        }
    }
    let lost = lock(conn, &LOCK_ADVANCEMENTS, of.process, free).await?;
    if lost.is_empty() {
        return Ok(());
    }
    let (mut branches, mut tokens) = (Vec::new(), Vec::new());
    for row in &lost {
        branches.push(row.get::<uuid::Uuid>("id")?);
        tokens.push(row.get::<uuid::Uuid>("claim_token")?);
    }
    recovered.branches += lost.len();
    recovered.advancements = lost.len();
    let rows = Rows::new().ids("id", branches).ids("token", tokens);
    conn.write(
        &LOST_ADVANCEMENTS,
        &with_rows(&of.args(), &rows),
        lost.len(),
    )
    .await?;
    // A shutdown is no crash, and spends no budget (H22).
    if of.ending == Ending::Crashed {
        conn.write(&COUNT_CRASHES, &[("b", (&rows).into())], lost.len())
            .await?;
    }
    let held = conn.fetch(&LOCK_BRANCHES, &[("b", (&rows).into())]).await?;
    let (mut branches, mut tokens) = (Vec::new(), Vec::new());
    for row in &held {
        branches.push(row.get::<uuid::Uuid>("id")?);
        tokens.push(row.get::<uuid::Uuid>("claim_token")?);
    }
    let rows = Rows::new().ids("id", branches).ids("token", tokens);
    conn.write(&GIVE_BACK_BRANCHES, &[("b", (&rows).into())], held.len())
        .await
}

/// Processes without a row whose claims have outlived their leases.
pub async fn orphans(conn: &mut Conn) -> Result<Vec<ProcessId>, Error> {
    let rows = conn.fetch(&ORPHANS, &[]).await?;
    rows.iter()
        .map(|row| Ok(ProcessId(row.get("process_id")?)))
        .collect()
}
