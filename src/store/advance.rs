//! Claiming branches, and advancing claimed branches: two phases, each in its own transaction.
//!
//! Owns: the fence of a branch (its claim token), the records of transitions and of the attempts at
//! them. Never: decides where a branch goes; the caller passes that decision in as a function of
//! views.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::definition::{Definition, NodeIndex};
use crate::failpoint::failpoint;
use crate::machine::advance::{self, AdvanceLimits, BranchView, StepView};
use crate::machine::outcome::{self, StepLimits};
use crate::model::*;

use super::batch;
use super::claim::{raw, touch, unlocked, until};
use super::conn::Conn;
use super::definition::{Definitions, LeftOut, Unreadable};
use super::error::Error;
use super::micros;
use super::process::Claimant;
use super::statement::{Rows, statements};
use super::transition::{self, Crossed, Crossing};

statements! {
    /// Candidates and their claim are one predicate, asserted by both statements (C1).
    READY = "
        SELECT id FROM ductwork_branches
         WHERE ready_at IS NOT NULL AND ready_at <= {now}
         ORDER BY ready_at, id LIMIT :n {skip_locked}";
    /// `READY` without the branches that this process leaves out: those that it could not read, and those that somebody
    /// has locked.
    READY_READABLE = "
        SELECT id FROM ductwork_branches
         WHERE ready_at IS NOT NULL AND ready_at <= {now}
           AND id NOT IN (SELECT x.id FROM {rows:x(id id)})
           AND (SELECT r.definition FROM ductwork_runs r WHERE r.id = ductwork_branches.run_id)
               NOT IN (SELECT a.digest FROM {rows:a(digest text)})
         ORDER BY ready_at, id LIMIT :n {skip_locked}";
    CLAIM_BRANCHES = "
        UPDATE {into:ductwork_branches;b(id id, token id)}
           SET status = 'advancing', claim_token = b.token, claimed_for_advancing_at = {now}, ready_at = NULL
          {from:b(id id, token id)}
         WHERE {key:ductwork_branches.id;b.id} AND ductwork_branches.ready_at IS NOT NULL
           AND ductwork_branches.status = 'in_progress'";
    /// On MySQL, an insert that meets a row of its key waits for whoever has locked that row, even to keep it: a claim
    /// would wait for a person. Proven by `a_transition_that_somebody_has_locked_stops_no_claim`.
    OPEN_TRANSITIONS = "
        INSERT INTO ductwork_transitions (id, run_id, branch_id, from_step_id, opened_at)
        SELECT b.id, br.run_id, br.id, br.step_id, {now}
          FROM {rows:b(id id, branch_id id, token id)}
          JOIN ductwork_branches br ON {key:br.id;b.branch_id} AND br.claim_token = b.token
         WHERE true{narrow: AND NOT EXISTS (SELECT 1 FROM ductwork_transitions t WHERE t.from_step_id = br.step_id)}
        {keep:ductwork_transitions;from_step_id}";
    OPEN_ADVANCEMENTS = "
        INSERT INTO ductwork_advancements
            (id, transition_id, branch_id, process_id, claim_token, crash_count, claimed_at, lease_until)
        SELECT b.id, t.id, br.id, :process, b.token, t.crash_count, {now}, {now} + :lease
          FROM {rows:b(id id, branch_id id, token id)}
          JOIN ductwork_branches br ON {key:br.id;b.branch_id} AND br.claim_token = b.token
          JOIN ductwork_transitions t ON {key:t.from_step_id;br.step_id} AND t.completed_at IS NULL";
    /// RACE: a zombie advancer comes back after its claim was given to another. Its token is no
    /// longer the branch's, so it loads nothing and writes nothing (A1, H10). The lock holds until
    /// the commit, so nobody takes the branch in between. Proven by
    /// `a_zombie_advancer_advances_nothing`. (I9)
    LOAD_FENCED = "
        SELECT br.id, br.run_id, br.pipeline, br.fan_out_id, br.ordinal, br.step_id,
               s.ordinal AS step_ordinal, s.node, {big:octet_length(s.output)} AS size,
               r.definition, t.id AS transition_id, t.retry_count, t.crash_count,
               a.id AS advancement_id, f.id AS begun_id,
               (SELECT c.ordinal + 1 FROM ductwork_branches c WHERE c.fan_out_id = f.id
                 ORDER BY c.fan_out_id DESC, c.ordinal DESC LIMIT 1) AS made
          FROM {rows:b(id id, token id)}
          JOIN ductwork_branches br ON {key:br.id;b.id} AND br.claim_token = b.token
          JOIN ductwork_steps s ON {key:s.id;br.step_id}
          JOIN ductwork_runs r ON {key:r.id;br.run_id}
          JOIN ductwork_transitions t ON {key:t.from_step_id;br.step_id}
          JOIN ductwork_advancements a {found:ductwork_advancements_open} ON {key:a.branch_id;br.id} AND a.completed_at IS NULL{narrow: AND a.open_branch = br.id}
          LEFT JOIN ductwork_fan_outs f ON f.branch_id = br.id AND f.fired_at IS NULL
         ORDER BY br.id";
    LOCK_FENCED = "
        SELECT br.id FROM ductwork_branches br
         WHERE br.id IN (SELECT b.id FROM {rows:b(id id)}) ORDER BY br.id {lock}",
        on Mysql [&LOCK_FENCED_IN_TURN];
    LOCK_FENCED_IN_TURN in Mysql = "
        SELECT br.id FROM {rows:b(id id)} {join:ductwork_branches br} ON {key:br.id;b.id}
         ORDER BY br.id {lock}";
    OUTPUTS = "
        SELECT s.id, s.output FROM {rows:b(id id)} JOIN ductwork_steps s ON {key:s.id;b.id}";
    LAST_EXECUTIONS = "
        SELECT e.step_id, e.result, e.error_class, e.retry_count
          FROM {rows:b(id id)}
          JOIN ductwork_executions e ON {key:e.step_id;b.id}
               AND e.attempt = (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = b.id)";
    /// Closes an attempt that failed or was given back: the branch may be claimed again.
    CLOSE_ADVANCEMENTS = "
        UPDATE {into:ductwork_advancements;b(branch_id id, token id);ductwork_advancements_open}
           SET completed_at = {now}, result = :result, error_class = :class, error_message = :message
          {from:b(branch_id id, token id)}
         WHERE ductwork_advancements.branch_id = b.branch_id
           AND ductwork_advancements.claim_token = b.token
           AND ductwork_advancements.completed_at IS NULL{narrow: AND ductwork_advancements.open_branch = b.branch_id}";
    COUNT_RETRIES = "
        UPDATE {into:ductwork_transitions;b(id id)} SET retry_count = retry_count + 1
         WHERE {of:ductwork_transitions.id;b(id id)} AND completed_at IS NULL";
    /// The pipeline of a branch that could not be advanced, and the retries that it has spent. Read when its
    /// attempt is closed: from then on the branch stays ours until the transaction ends.
    FAILED_ADVANCES = "
        SELECT br.id, br.pipeline, t.id AS transition_id, t.retry_count
          FROM {rows:b(branch_id id, token id)}
          JOIN ductwork_branches br ON {key:br.id;b.branch_id} AND br.claim_token = b.token
          JOIN ductwork_transitions t ON {key:t.from_step_id;br.step_id}";
    RELEASE_BRANCHES = "
        UPDATE {into:ductwork_branches;b(branch_id id, token id, delay int)}
           SET status = 'in_progress', claim_token = NULL, claimed_for_advancing_at = NULL,
               ready_at = {now} + b.delay,
               last_advanced_at = {now}
          {from:b(branch_id id, token id, delay int)}
         WHERE {key:ductwork_branches.id;b.branch_id} AND ductwork_branches.claim_token = b.token";
    pub(super) HELD_BRANCHES = "
        SELECT branch_id, claim_token FROM ductwork_advancements
         WHERE process_id = :process AND completed_at IS NULL{narrow: AND holder = :process}";
    /// The branches for which no other session has locked a row that moving them may write, apart from the rows of the
    /// barrier.
    UNLOCKED_BRANCHES = "
        SELECT br.id FROM ductwork_branches br
          JOIN ductwork_steps s ON {key:s.id;br.step_id}
          JOIN ductwork_runs r ON {key:r.id;br.run_id}
         WHERE {any:br.id;b(id id)} {skip_waiting}",
        on Mysql [&UNLOCKED_BRANCHES_IN_TURN];
    UNLOCKED_BRANCHES_IN_TURN in Mysql = "
        SELECT br.id FROM {rows:b(id id)} {join:ductwork_branches br} ON {key:br.id;b.id}
          {join:ductwork_steps s} ON {key:s.id;br.step_id}
          {join:ductwork_runs r} ON {key:r.id;br.run_id} {skip_waiting}";
    /// The barriers whose row, and whose parent branch's row, no other session has locked.
    UNLOCKED_BARRIERS_AND_PARENTS = "
        SELECT f.id FROM ductwork_fan_outs f
          JOIN ductwork_branches p ON {key:p.id;f.branch_id}
         WHERE {any:f.id;b(id id)} {skip_waiting}",
        on Mysql [&UNLOCKED_BARRIERS_AND_PARENTS_IN_TURN];
    UNLOCKED_BARRIERS_AND_PARENTS_IN_TURN in Mysql = "
        SELECT f.id FROM {rows:b(id id)} {join:ductwork_fan_outs f} ON {key:f.id;b.id}
          {join:ductwork_branches p} ON {key:p.id;f.branch_id} {skip_waiting}";
    /// The branches whose rows exist, with their barriers. A branch that lacks a row is damaged; its advance reports that.
    PARENT_BARRIERS = "
        SELECT br.id, br.fan_out_id FROM ductwork_branches br
          JOIN ductwork_steps s ON {key:s.id;br.step_id}
          JOIN ductwork_runs r ON {key:r.id;br.run_id}
         WHERE {any:br.id;b(id id)}",
        on Mysql [&PARENT_BARRIERS_IN_TURN];
    PARENT_BARRIERS_IN_TURN in Mysql = "
        SELECT br.id, br.fan_out_id FROM {rows:b(id id)} {join:ductwork_branches br} ON {key:br.id;b.id}
          {join:ductwork_steps s} ON {key:s.id;br.step_id}
          {join:ductwork_runs r} ON {key:r.id;br.run_id}";
    NEXT_READY = "
        SELECT min(ready_at) - {now} AS wait FROM ductwork_branches WHERE ready_at IS NOT NULL";
}

/// A branch that this process may advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimedBranch {
    /// The branch.
    pub id: BranchId,
    /// The fence.
    pub token: ClaimToken,
}

/// The result of a claim of branches.
#[derive(Debug)]
pub enum BranchClaim {
    /// These branches are ours. If they are fewer than requested, no more are ready.
    Taken(Vec<ClaimedBranch>),
    /// This process was declared dead: it must register anew before it claims.
    Dead,
}

/// Claims up to `n` ready branches, of whatever pipelines they are, except those that are left out.
pub async fn claim(
    conn: &mut Conn,
    claimant: Claimant,
    n: usize,
    lease: Duration,
    left_out: &LeftOut,
) -> Result<BranchClaim, Error> {
    failpoint!(conn, "branches.begin");
    let claimed = conn.transaction(async |conn| {
        if !touch(conn, claimant).await? {
            return Ok(BranchClaim::Dead);
        }
        let ready = ready(conn, n, left_out).await?;
        if ready.is_empty() {
            return Ok(BranchClaim::Taken(Vec::new()));
        }
        let mut claimed = Vec::with_capacity(ready.len());
        for id in ready {
            let token = ClaimToken::new();
            claimed.push(ClaimedBranch { id, token });
        }
        let rows = Rows::new()
            .ids("id", claimed.iter().map(|branch| branch.id))
            .ids("token", claimed.iter().map(|branch| branch.token));
        // I9: a ready branch can be claimed.
        conn.write(&CLAIM_BRANCHES, &[("b", (&rows).into())], claimed.len())
            .await?;
        failpoint!(conn, "branches.claimed");
        open_records(conn, &claimed, claimant.process, lease).await?;
        failpoint!(conn, "branches.written");
        Ok(BranchClaim::Taken(claimed))
    });
    let claimed = claimed.await?;
    failpoint!(conn, "branches.end");
    Ok(claimed)
}

/// The next branches that are ready, except those that are left out: in a transaction, under lock.
async fn ready(conn: &mut Conn, n: usize, left_out: &LeftOut) -> Result<Vec<BranchId>, Error> {
    let [rows, digests] = left_out.rows();
    let args = [
        ("n", n.into()),
        ("x", (&rows).into()),
        ("a", (&digests).into()),
    ];
    let ready = match left_out.is_empty() {
        true => conn.fetch(&READY, &args[..1]).await?,
        false => conn.fetch(&READY_READABLE, &args).await?,
    };
    ready
        .iter()
        .map(|row| Ok(BranchId(row.get("id")?)))
        .collect()
}

/// The first branch that is ready and not left out: the one that a claim of one branch takes.
pub async fn first_ready(conn: &mut Conn, left_out: &LeftOut) -> Result<Option<BranchId>, Error> {
    let ready = ready(conn, 1, left_out).await?;
    Ok(ready.first().copied())
}

async fn open_records(
    conn: &mut Conn,
    claimed: &[ClaimedBranch],
    process: ProcessId,
    lease: Duration,
) -> Result<(), Error> {
    let ids: Vec<TransitionId> = claimed.iter().map(|_| TransitionId::new()).collect();
    let rows = Rows::new()
        .ids("id", ids)
        .ids("branch_id", claimed.iter().map(|branch| branch.id))
        .ids("token", claimed.iter().map(|branch| branch.token));
    conn.execute(&OPEN_TRANSITIONS, &[("b", (&rows).into())])
        .await?;
    failpoint!(conn, "branches.opened");
    let ids: Vec<AdvancementId> = claimed.iter().map(|_| AdvancementId::new()).collect();
    let rows = Rows::new()
        .ids("id", ids)
        .ids("branch_id", claimed.iter().map(|branch| branch.id))
        .ids("token", claimed.iter().map(|branch| branch.token));
    let args = [
        ("b", (&rows).into()),
        ("process", process.0.into()),
        ("lease", micros(lease).into()),
    ];
    // I10: each branch has an open transition.
    conn.write(&OPEN_ADVANCEMENTS, &args, claimed.len()).await
}

/// How many bytes of outputs one transaction holds in memory, beyond the first output.
const OUTPUTS_MAX: i64 = 16 << 20;

/// How many branches one transaction creates for all its expands together: this bounds the wait of
/// others who share the advancer or, on SQLite, the database. Where tests inject faults between two
/// transactions, and where they try every order of transactions, a small fan-out takes several.
const SPREAD_AT_ONCE: usize = if cfg!(any(test, feature = "failpoints")) {
    2
} else {
    2_000
};

/// The result of advancing a batch.
#[derive(Debug, Default)]
pub struct Advanced {
    /// How many branches were moved.
    pub moved: usize,
    /// The same, per pipeline.
    pub moved_of: BTreeMap<String, u64>,
    /// Branches whose claim had been taken away.
    pub stale: Vec<BranchId>,
    /// Branches for a transaction of their own: the outputs of all together are too much to hold.
    pub left: Vec<ClaimedBranch>,
    /// Branches whose expand is wider than one transaction makes: they stay claimed, and have to be
    /// advanced again.
    pub spreading: Vec<ClaimedBranch>,
    /// Branches that this version cannot advance, because it cannot read the data that this depends
    /// on: they are still claimed, and have to be given back.
    pub unreadable: Vec<(ClaimedBranch, Unreadable)>,
    /// The effects of the crossings.
    pub crossed: Crossed,
}

/// The limits that apply to an advance.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// Those of advancing a branch of a pipeline.
    pub advance: &'a (dyn Fn(&str) -> AdvanceLimits + Sync),
    /// Those of a step.
    pub step: &'a (dyn Fn(&Definition, &str) -> StepLimits + Sync),
}

/// Advances a batch of claimed branches, in one transaction: load under the fence, decide, write,
/// close. Only the branches whose fence is gone drop out of the batch.
pub async fn advance(
    conn: &mut Conn,
    claimed: &[ClaimedBranch],
    limits: Limits<'_>,
    definitions: &Definitions,
) -> Result<Advanced, Error> {
    failpoint!(conn, "advance.begin");
    let advanced = conn.transaction(async |conn| {
        // First the locks, in one order; then the rows that they protect, in a later snapshot.
        if conn.locks_rows() {
            let rows = Rows::new().ids("id", batch::in_order(claimed.iter().map(|it| it.id)));
            conn.fetch(&LOCK_FENCED, &[("b", (&rows).into())]).await?;
        }
        let rows = Rows::new()
            .ids("id", claimed.iter().map(|branch| branch.id))
            .ids("token", claimed.iter().map(|branch| branch.token));
        let mut tokens: HashMap<BranchId, ClaimToken> = claimed
            .iter()
            .map(|branch| (branch.id, branch.token))
            .collect();
        let (mut fenced, mut left, mut held) = (Vec::new(), Vec::new(), 0);
        let mut unreadable = Vec::new();
        let rows = conn.fetch(&LOAD_FENCED, &[("b", (&rows).into())]).await?;
        let last = last_executions(conn, &rows).await?;
        for row in &rows {
            let id = BranchId(row.get("id")?);
            // A branch has one open advancement (I9), so it is loaded once.
            let Some(token) = tokens.remove(&id) else {
                continue;
            };
            let branch = match load(conn, row, token, &last, limits, definitions).await? {
                Ok(branch) => branch,
                Err(reason) => {
                    unreadable.push((ClaimedBranch { id, token }, reason));
                    continue;
                }
            };
            let size = branch.to_read();
            if held > 0 && held + size > OUTPUTS_MAX {
                left.push(ClaimedBranch { id, token });
                continue;
            }
            held += size;
            fenced.push(branch);
        }
        read_outputs(conn, &mut fenced).await?;
        failpoint!(conn, "advance.loaded");
        let mut crossings: Vec<Crossing<'_>> = fenced
            .iter()
            .map(|branch| branch.crossing(&(limits.advance)(&branch.pipeline)))
            .collect();
        let mut rest = SPREAD_AT_ONCE;
        let mut spreading = Vec::new();
        for crossing in &mut crossings {
            if !crossing.is_whole_within(&mut rest) {
                spreading.push(ClaimedBranch {
                    id: crossing.branch_id,
                    token: crossing.token,
                });
            }
        }
        let crossed = transition::cross(conn, &crossings, limits, definitions).await?;
        failpoint!(conn, "advance.written");
        let mut moved_of: BTreeMap<String, u64> = BTreeMap::new();
        let is_spreading =
            |it: &Crossing<'_>| spreading.iter().any(|other| other.id == it.branch_id);
        for crossing in crossings.iter().filter(|it| !is_spreading(it)) {
            *moved_of.entry(crossing.pipeline.to_owned()).or_default() += 1;
        }
        Ok(Advanced {
            moved: crossings.len() - spreading.len(),
            moved_of,
            spreading,
            // In the order of the claim, not of the map.
            stale: claimed
                .iter()
                .map(|branch| branch.id)
                .filter(|id| tokens.contains_key(id))
                .collect(),
            left,
            unreadable,
            crossed,
        })
    });
    let advanced = advanced.await?;
    failpoint!(conn, "advance.end");
    Ok(advanced)
}

/// Loads the outputs that decide where their branches go.
async fn read_outputs(conn: &mut Conn, fenced: &mut [Fenced]) -> Result<(), Error> {
    let read: HashMap<StepId, usize> = fenced
        .iter()
        .enumerate()
        .filter(|(_, branch)| branch.to_read() > 0)
        .map(|(index, branch)| (branch.step_id, index))
        .collect();
    if read.is_empty() {
        return Ok(());
    }
    let rows = Rows::new().ids("id", read.keys().copied());
    for row in conn.fetch(&OUTPUTS, &[("b", (&rows).into())]).await? {
        if let Some(index) = read.get(&StepId(row.get("id")?)) {
            fenced[*index].step = Ended::Succeeded {
                output: raw(row.get("output")?)?,
                to_read: 0,
            };
        }
    }
    Ok(())
}

/// A branch under its fence.
struct Fenced {
    id: BranchId,
    token: ClaimToken,
    run_id: RunId,
    pipeline: String,
    fan_out_id: Option<FanOutId>,
    ordinal: i64,
    step_id: StepId,
    step_ordinal: i64,
    node: NodeIndex,
    definition: Arc<Definition>,
    step: Ended,
    retries: u32,
    crashes: u32,
    transition: TransitionId,
    advancement: AdvancementId,
    /// The barrier of the expand that the branch has begun, and how many branches it has so far.
    begun: Option<(FanOutId, usize)>,
}

enum Ended {
    /// With an output. `to_read` is how many of its bytes are still to be read: none where nothing
    /// depends on it.
    Succeeded {
        output: Box<RawValue>,
        to_read: i64,
    },
    Failed(HaltReason),
}

/// How the last attempt of a step ended.
struct LastExecution {
    /// A newer version may have written a word that this one does not know.
    result: Option<String>,
    error_class: Option<String>,
    /// Errors of the attempts before it.
    retry_count: i64,
}

/// The last attempts of the steps that have no output: these steps failed.
async fn last_executions(
    conn: &mut Conn,
    rows: &[super::Row],
) -> Result<HashMap<StepId, LastExecution>, Error> {
    let mut failed = Vec::new();
    for row in rows {
        if row.get::<Option<i64>>("size")?.is_none() {
            failed.push(row.get::<uuid::Uuid>("step_id")?);
        }
    }
    if failed.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = Rows::new().ids("id", failed);
    let rows = conn
        .fetch(&LAST_EXECUTIONS, &[("b", (&rows).into())])
        .await?;
    let last = rows.iter().map(|row| {
        let last = LastExecution {
            result: row.get("result")?,
            error_class: row.get("error_class")?,
            // A damaged number only costs the exact reason.
            retry_count: row.get("retry_count").unwrap_or(i64::MAX),
        };
        Ok((StepId(row.get("step_id")?), last))
    });
    last.collect()
}

async fn load(
    conn: &mut Conn,
    row: &super::Row,
    token: ClaimToken,
    last: &HashMap<StepId, LastExecution>,
    limits: Limits<'_>,
    definitions: &Definitions,
) -> Result<Result<Fenced, Unreadable>, Error> {
    let digest: String = row.get("definition")?;
    let definition = match definitions.read(conn, &digest).await? {
        Ok(definition) => definition,
        Err(unreadable) => return Ok(Err(unreadable)),
    };
    let id = BranchId(row.get("id")?);
    let unreadable = |reason| {
        Ok(Err(Unreadable {
            digest: digest.clone(),
            reason,
            is_damaged: false,
            delay: definitions.leave_out(id.0),
        }))
    };
    let node: String = row.get("node")?;
    let Some(node) = definition.find(&node) else {
        return unreadable(format!("it has no node {node}"));
    };
    let step_id = StepId(row.get("step_id")?);
    let step = match row.get::<Option<i64>>("size")? {
        Some(size) => Ended::Succeeded {
            output: RawValue::NULL.to_owned(),
            to_read: match advance::reads_output(&definition, node) {
                true => size,
                false => 0,
            },
        },
        None => {
            let reason = match last.get(&step_id) {
                Some(last) => {
                    let result = match last.result.as_deref().map(str::parse).transpose() {
                        Ok(result) => result.unwrap_or(ExecutionResult::Error),
                        Err(unknown) => return unreadable(format!("of its step, {unknown}")),
                    };
                    let name = definition.node(node).step.as_deref().unwrap_or_default();
                    let max_retry = (limits.step)(&definition, name).max_retry;
                    let left = (0..i64::from(max_retry)).contains(&last.retry_count);
                    let had_retries_left = left && last.result.is_some();
                    outcome::halt_reason(result, last.error_class.as_deref(), had_retries_left)
                }
                // Only a deadline fails a step that nobody runs.
                None if definition.node(node).step.is_none() => HaltReason::Unanswered,
                None => HaltReason::TransitionInvalid,
            };
            Ended::Failed(reason)
        }
    };
    Ok(Ok(Fenced {
        id,
        token,
        run_id: RunId(row.get("run_id")?),
        pipeline: row.get("pipeline")?,
        fan_out_id: row.get::<Option<uuid::Uuid>>("fan_out_id")?.map(FanOutId),
        ordinal: row.get("ordinal")?,
        step_id,
        step_ordinal: row.get("step_ordinal")?,
        node,
        definition,
        step,
        retries: row.count("retry_count")?,
        crashes: row.count("crash_count")?,
        transition: TransitionId(row.get("transition_id")?),
        advancement: AdvancementId(row.get("advancement_id")?),
        begun: match row.get::<Option<uuid::Uuid>>("begun_id")? {
            Some(id) => {
                let made = row.get::<Option<i64>>("made")?.unwrap_or_default();
                Some((FanOutId(id), usize::try_from(made).unwrap_or_default()))
            }
            None => None,
        },
    }))
}

impl Fenced {
    /// How many bytes of the branch's output have to be read to decide where the branch goes.
    fn to_read(&self) -> i64 {
        match self.step {
            Ended::Succeeded { to_read, .. } => to_read,
            Ended::Failed(_) => 0,
        }
    }

    fn crossing(&self, limits: &AdvanceLimits) -> Crossing<'_> {
        let view = BranchView {
            node: self.node,
            step: match &self.step {
                Ended::Succeeded { output, .. } => StepView::Succeeded(output),
                Ended::Failed(reason) => StepView::Failed(*reason),
            },
            retries: self.retries,
            crashes: self.crashes,
            begun: self.begun.is_some(),
        };
        Crossing {
            branch_id: self.id,
            run_id: self.run_id,
            pipeline: &self.pipeline,
            definition: &self.definition,
            fan_out_id: self.fan_out_id,
            ordinal: self.ordinal,
            from: self.step_id,
            from_ordinal: self.step_ordinal,
            node: self.node,
            leaves: matches!(self.step, Ended::Succeeded { .. }),
            token: self.token,
            transition: self.transition,
            advancement: self.advancement,
            begun: self.begun,
            until: 0,
            advance: advance::decide(&view, &self.definition, limits),
        }
    }
}

/// Why claimed branches are given back.
#[derive(Clone, Debug)]
pub enum GiveBack<'a> {
    /// The process lost its connection before it could advance them: spends nothing.
    Released,
    /// The database could not carry out the attempt, `times` times in a row: spends nothing.
    Hindered {
        /// The message for people.
        message: &'a str,
        /// How many attempts in a row.
        times: u32,
    },
    /// This version cannot read the data that advancing depends on: spends nothing.
    Unreadable {
        /// The message for people.
        message: &'a str,
        /// The wait before anybody's next attempt.
        delay: Duration,
    },
    /// The attempt was refused because of the data that it tried to write: spends one of the transition's
    /// retries.
    Errored {
        /// The message for people.
        message: &'a str,
    },
}

/// The longest wait of a branch that the database hindered. An obstacle such as a full disk goes away for
/// all branches at once, and no event signals when.
const HINDERED_MAX: Duration = Duration::from_secs(10);

/// The wait before a branch of this pipeline is tried again, after this many failures.
pub type Backoff<'a> = &'a (dyn Fn(&str, u32) -> Duration + Sync);

/// Gives back claimed branches that are still ours. Those of a failed attempt wait for as long as
/// `backoff` says.
pub async fn give_back(
    conn: &mut Conn,
    claimed: &[ClaimedBranch],
    why: GiveBack<'_>,
    backoff: Backoff<'_>,
) -> Result<(), Error> {
    let (result, class, message) = match why {
        GiveBack::Released => (ExecutionResult::Released, None, None),
        GiveBack::Hindered { message, .. } => (
            ExecutionResult::Released,
            Some("advance_hindered"),
            Some(message),
        ),
        GiveBack::Unreadable { message, .. } => (
            ExecutionResult::Released,
            Some("definition_unreadable"),
            Some(message),
        ),
        GiveBack::Errored { message } => (
            ExecutionResult::Error,
            Some("advance_failed"),
            Some(message),
        ),
    };
    let rows = || {
        Rows::new()
            .ids("branch_id", claimed.iter().map(|branch| branch.id))
            .ids("token", claimed.iter().map(|branch| branch.token))
    };
    let ours = rows();
    conn.transaction(async |conn| {
        conn.execute(
            &CLOSE_ADVANCEMENTS,
            &[
                ("b", (&ours).into()),
                ("result", result.as_str().into()),
                ("class", class.into()),
                ("message", message.into()),
            ],
        )
        .await?;
        let (mut delays, mut failed) = (HashMap::new(), Vec::new());
        if !matches!(why, GiveBack::Released) {
            for row in conn
                .fetch(&FAILED_ADVANCES, &[("b", (&ours).into())])
                .await?
            {
                let backoff =
                    |times| Ok::<_, Error>(backoff(&row.get::<String>("pipeline")?, times));
                let delay = match why {
                    GiveBack::Released => Duration::ZERO,
                    GiveBack::Hindered { times, .. } => backoff(times)?.min(HINDERED_MAX),
                    GiveBack::Unreadable { delay, .. } => delay,
                    GiveBack::Errored { .. } => {
                        backoff(row.count("retry_count")?.saturating_add(1))?
                    }
                };
                delays.insert(BranchId(row.get("id")?), micros(delay));
                failed.push(row.get::<uuid::Uuid>("transition_id")?);
            }
        }
        if result == ExecutionResult::Error {
            // I7: as many as the errors that were recorded above.
            let n = failed.len();
            let rows = Rows::new().ids("id", failed);
            conn.write(&COUNT_RETRIES, &[("b", (&rows).into())], n)
                .await?;
        }
        let delay = |branch: &ClaimedBranch| delays.get(&branch.id).copied().unwrap_or_default();
        let delayed = rows().ints("delay", claimed.iter().map(delay));
        conn.execute(&RELEASE_BRANCHES, &[("b", (&delayed).into())])
            .await?;
        Ok(())
    })
    .await
}

/// All branches that `process` holds.
pub async fn held(conn: &mut Conn, process: ProcessId) -> Result<Vec<ClaimedBranch>, Error> {
    let args = [("process", process.0.into())];
    let rows = conn.fetch_latest(&HELD_BRANCHES, &args).await?;
    rows.iter()
        .map(|row| {
            Ok(ClaimedBranch {
                id: BranchId(row.get("branch_id")?),
                token: ClaimToken(row.get("claim_token")?),
            })
        })
        .collect()
}

/// Of these branches, those for whose rows an advance may have to wait at this moment. It waits for no lock on a row.
pub async fn locked(conn: &mut Conn, among: &[BranchId]) -> Result<Vec<BranchId>, Error> {
    if among.is_empty() || !conn.dialect().backend().is_server() {
        return Ok(Vec::new());
    }
    let ids = || among.iter().map(|id| id.0);
    let free = unlocked(conn, &UNLOCKED_BRANCHES, ids()).await?;
    let rows = Rows::new().ids("id", ids());
    let mut known = Vec::with_capacity(among.len());
    for row in conn
        .fetch(&PARENT_BARRIERS, &[("b", (&rows).into())])
        .await?
    {
        let barrier: Option<uuid::Uuid> = row.get("fan_out_id")?;
        known.push((row.get::<uuid::Uuid>("id")?, barrier));
    }
    let barriers = known.iter().filter_map(|(_, barrier)| *barrier);
    let barriers = unlocked(conn, &UNLOCKED_BARRIERS_AND_PARENTS, barriers).await?;
    let locked = known.iter().filter(|(id, barrier)| {
        !free.contains(id) || barrier.is_some_and(|barrier| !barriers.contains(&barrier))
    });
    Ok(locked.map(|(id, _)| BranchId(*id)).collect())
}

/// Time until the next branch is ready: zero when one is ready, `None` when there is none.
pub async fn next_ready(conn: &mut Conn) -> Result<Option<Duration>, Error> {
    let row = conn.fetch_optional(&NEXT_READY, &[]).await?;
    until(row.as_ref())
}
