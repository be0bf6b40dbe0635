//! Cancelling a run.
//!
//! Owns: closing everything of a run that could still move. Never: stops a process; a process that
//! runs a step of it learns with its next beat that the step is no longer its own, or at once from
//! the one who requested the cancellation. A cancelled run has no hook.
//!
//! A run with few open branches is cancelled in one transaction. A wide one loses some of its
//! branches per transaction ([ADR 20](docs/adr/0020-wide-runs-part-by-part.md)): nobody waits long
//! for the rows of any of them. From the first transaction on, the run can only end cancelled,
//! because a barrier with a missing branch never fires; `cancelling_at` records this, and a sweep
//! finishes cancellations that were left half done. A waiting branch is closed after one of those
//! that it waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::failpoint::failpoint;
use crate::model::*;

use super::action::{self, Actor};
use super::backend::Setting;
use super::batch;
use super::conn::Conn;
use super::cursor::Cursor;
use super::error::Error;
use super::micros;
use super::statement::{Rows, Statement, statements};

statements! {
    CANCEL_RUN_STATUS = "SELECT status FROM ductwork_runs WHERE id = :run";
    /// The branches of the youngest fan-outs come first: among the waiting branches, these are the innermost, except in
    /// a revived run, whose fan-outs are copies, and where the clocks of hosts differ.
    CANCEL_OPEN_BRANCHES = "
        SELECT id, status, step_id, fan_out_id FROM ductwork_branches
         WHERE run_id = :run AND status IN ('in_progress', 'advancing', 'waiting', 'dampened')
         ORDER BY run_id DESC, fan_out_id DESC LIMIT :n";
    CANCEL_MOVING_BRANCHES = "
        SELECT id, status, step_id, fan_out_id FROM ductwork_branches
         WHERE run_id = :run AND status IN ('in_progress', 'advancing', 'dampened')
         ORDER BY run_id DESC, fan_out_id DESC LIMIT :n";
    /// Branches of the run that wait in vain.
    CANCEL_DOOMED_BRANCHES = "
        SELECT br.id, br.status, br.step_id, br.fan_out_id FROM ductwork_branches br
          JOIN ductwork_fan_outs f {found:ductwork_fan_outs_branch} ON {key:f.branch_id;br.id} AND f.fired_at IS NULL
         WHERE br.run_id = :run AND br.status = 'waiting'
           AND EXISTS (SELECT 1 FROM ductwork_branches c {found:ductwork_branches_places}
                        WHERE c.fan_out_id = f.id AND c.status = 'cancelled' LIMIT 1 OFFSET 0)
         LIMIT :n";
    /// An open execution belongs to the current step of a branch. (A hook's execution does not; but
    /// then the run has ended.)
    CANCEL_OPEN_EXECUTIONS = "
        SELECT e.id FROM ductwork_branches br
          JOIN ductwork_executions e ON {key:e.step_id;br.step_id} AND e.result IS NULL
         WHERE {any:br.id;b(id id)}";
    CANCEL_HOLD_PLACES = "
        SELECT execution_id FROM ductwork_availabilities
         WHERE {any:execution_id;b(id id)} ORDER BY execution_id {lock}",
        on Mysql [&CANCEL_HOLD_PLACES_IN_TURN];
    CANCEL_HOLD_PLACES_IN_TURN in Mysql = "
        SELECT q.execution_id FROM {rows:b(id id)}
          {join:ductwork_availabilities q} ON {key:q.execution_id;b.id}
         ORDER BY q.execution_id {lock}";
    CANCEL_HOLD_EXECUTIONS = "
        SELECT id, process_id FROM ductwork_executions
         WHERE {any:id;b(id id)} AND result IS NULL ORDER BY id {lock}",
        on Mysql [&CANCEL_HOLD_EXECUTIONS_IN_TURN];
    CANCEL_HOLD_EXECUTIONS_IN_TURN in Mysql = "
        SELECT e.id, e.process_id FROM {rows:b(id id)}
          {join:ductwork_executions e} ON {key:e.id;b.id}
         WHERE e.result IS NULL ORDER BY e.id {lock}";
    CANCEL_HOLD_BRANCHES = "
        SELECT id, status, step_id, fan_out_id FROM ductwork_branches
         WHERE {any:id;b(id id)} AND status IN ('in_progress', 'advancing', 'waiting', 'dampened')
         ORDER BY id {lock}",
        on Mysql [&CANCEL_HOLD_BRANCHES_IN_TURN];
    CANCEL_HOLD_BRANCHES_IN_TURN in Mysql = "
        SELECT br.id, br.status, br.step_id, br.fan_out_id FROM {rows:b(id id)}
          {join:ductwork_branches br} ON {key:br.id;b.id}
         WHERE br.status IN ('in_progress', 'advancing', 'waiting', 'dampened')
         ORDER BY br.id {lock}";
    /// Branches that wait in vain. (With an offset, PostgreSQL checks each of them; without it, it
    /// would read all branches that arrive anywhere, when it believes that there are none.)
    CANCEL_DOOMED = "
        SELECT f.branch_id AS id FROM ductwork_fan_outs f
         WHERE {any:f.branch_id;b(id id)} AND f.fired_at IS NULL
           AND EXISTS (SELECT 1 FROM ductwork_branches c {found:ductwork_branches_places}
                        WHERE c.fan_out_id = f.id AND c.status = 'cancelled' LIMIT 1 OFFSET 0)";
    CANCEL_AVAILABILITIES = "
        {delete:ductwork_availabilities;b(id id)} WHERE {of:ductwork_availabilities.execution_id;b(id id)}";
    CANCEL_EXECUTIONS = "
        UPDATE {into:ductwork_executions;b(id id)} SET completed_at = {now}, result = 'cancelled'
         WHERE {of:ductwork_executions.id;b(id id)} AND result IS NULL";
    CANCEL_BRANCHES = "
        UPDATE {into:ductwork_branches;b(id id)}
           SET status = 'cancelled', claim_token = NULL, claimed_for_advancing_at = NULL, ready_at = NULL
         WHERE {of:ductwork_branches.id;b(id id)} AND status IN ('in_progress', 'advancing', 'waiting', 'dampened')";
    CANCEL_STEPS = "
        UPDATE {into:ductwork_steps;b(id id)} SET status = 'cancelled', completed_at = {now}
         WHERE {of:ductwork_steps.id;b(id id)} AND status IN ('in_progress', 'advancing', 'waiting')";
    CANCEL_ADVANCEMENTS = "
        UPDATE {into:ductwork_advancements;b(id id);ductwork_advancements_open} SET completed_at = {now}, result = 'cancelled'
         WHERE {of:ductwork_advancements.branch_id;b(id id)} AND completed_at IS NULL{narrow: AND ductwork_advancements.open_branch = b.id}";
    CANCEL_DEADLINES = "{delete:ductwork_deadlines;b(id id)} WHERE {of:ductwork_deadlines.branch_id;b(id id)}";
    /// An expand that has begun has produced the branches that exist.
    CANCEL_TRANSITIONS = "
        UPDATE {into:ductwork_transitions;b(id id);ductwork_transitions_open}
           SET completed_at = {now}, via = 'end',
               produced = coalesce((SELECT (SELECT c.ordinal + 1 FROM ductwork_branches c
                                             WHERE c.fan_out_id = f.id
                                             ORDER BY c.fan_out_id DESC, c.ordinal DESC LIMIT 1)
                                      FROM ductwork_fan_outs f
                                     WHERE {key:f.branch_id;ductwork_transitions.branch_id}
                                       AND f.fired_at IS NULL), 0)
         WHERE {of:ductwork_transitions.branch_id;b(id id)} AND completed_at IS NULL{narrow: AND ductwork_transitions.open_branch = b.id}";
    /// The state between two transactions: some branches are cancelled, others not yet.
    CANCEL_SOME = "
        UPDATE ductwork_runs
           SET cancelling_at = {now},
               status = CASE WHEN dampened = :dampened THEN 'in_progress' ELSE status END,
               dampened = dampened - :dampened
         WHERE id = :run AND status IN ('in_progress', 'dampened')";
    CANCEL_RUN = "
        UPDATE ductwork_runs
           SET status = 'cancelled', cancelled_at = {now}, dampened = 0, cancelling_at = NULL
         WHERE id = :run AND status IN ('in_progress', 'dampened')";
    /// Cancellations that nobody has continued for a while; a time that has not come yet was written before the clock
    /// was set back.
    CANCEL_UNFINISHED = "
        SELECT id, cancelling_at FROM ductwork_runs
         WHERE cancelling_at IS NOT NULL AND (cancelling_at <= {now} - :age OR cancelling_at > {now})
           AND cancelling_at >= :behind AND (cancelling_at, id) > (:behind, :behind_id)
         ORDER BY cancelling_at, id LIMIT :n";
}

/// How many branches per transaction.
pub const BATCH: usize = 500;

/// How many transactions' branches one query returns; the next query follows when these are closed. Each query
/// scans the branches that are closed already.
const LOOK: usize = 100;

/// The result of a cancellation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Cancel {
    /// The run is cancelled.
    Done {
        /// The processes that were running steps of it: they have to be told, so that they stop now
        /// and not with their next beat.
        held: Vec<ProcessId>,
    },
    /// The run had already ended, in this state.
    NotActive(RunStatus),
    /// There is no such run.
    NotFound,
}

/// Cancels a run.
///
/// An execution that is running now loses the right to commit (its guard no longer matches). A
/// caller that does not learn the result calls this again.
#[cfg(feature = "internals")]
pub async fn cancel(conn: &mut Conn, run_id: RunId) -> Result<Cancel, Error> {
    cancel_by(conn, run_id, BATCH, None, PATIENCE, &mut |_| {}).await
}

/// How long a cancellation goes on that closes nothing, as a rule because others have locked the run's next branches.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The same, with this many branches per transaction; after each transaction, `report` receives how
/// many are closed, or the same number again where the next ones could not be closed. A cancellation that closes nothing
/// for as long as `patience` fails; if it has begun, a daemon finishes it.
pub async fn cancel_by(
    conn: &mut Conn,
    run_id: RunId,
    batch: usize,
    by: Option<Actor>,
    patience: Duration,
    report: &mut dyn FnMut(usize),
) -> Result<Cancel, Error> {
    let mut cancelling = Cancelling::of(run_id, batch).by(by);
    let mut moved = Instant::now();
    loop {
        let before = cancelling.closed;
        if let Some(cancelled) = cancelling.step(conn).await? {
            return Ok(cancelled);
        }
        report(cancelling.closed);
        if cancelling.closed > before {
            moved = Instant::now();
            continue;
        }
        if moved.elapsed() >= patience {
            return Err(cancelling.reason());
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// How long those who cancel may pause between two transactions: a daemon does so for its turn at other cancellations
/// and for its turn at deletions, of 5 s each (`engine::keeping`). Somebody who has left the rest of a cancellation to
/// others does not come back, and the steps of its open branches run on until then. Two who cancel at once do no harm.
pub const PAUSES_FOR: Duration = Duration::from_secs(15);

/// The time after which nobody continues a cancellation, where a lease holds for that long.
pub fn left_after(lease: Duration) -> Duration {
    lease.min(PAUSES_FOR)
}

/// At most `n` runs whose cancellation nobody has continued for this long, behind a place, and the place behind
/// which the next look finds others: one that can never be finished hides none of them.
pub async fn unfinished(
    conn: &mut Conn,
    age: Duration,
    behind: Cursor,
    n: usize,
) -> Result<(Vec<RunId>, Cursor), Error> {
    let [time, id] = behind.args();
    let args = [("age", micros(age).into()), time, id, ("n", n.into())];
    let rows = conn.fetch(&CANCEL_UNFINISHED, &args).await?;
    let next = match rows.last() {
        Some(last) if rows.len() == n => Cursor::of(last, "cancelling_at", "id")?,
        _ => Cursor::FIRST,
    };
    let runs: Result<_, Error> = rows.iter().map(|row| Ok(RunId(row.get("id")?))).collect();
    Ok((runs?, next))
}

/// An open branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    id: Uuid,
    status: BranchStatus,
    step: Uuid,
    root: bool,
}

impl Open {
    fn read(row: &super::Row) -> Result<Self, Error> {
        Ok(Self {
            id: row.get("id")?,
            status: row.word("status")?,
            step: row.get("step_id")?,
            root: row.get::<Option<Uuid>>("fan_out_id")?.is_none(),
        })
    }

    fn waits(&self) -> bool {
        self.status == BranchStatus::Waiting
    }
}

/// A cancellation under way.
pub struct Cancelling {
    /// The run.
    pub run_id: RunId,
    batch: usize,
    /// Open branches that were seen and not yet closed; the last one is closed next.
    seen: Vec<Open>,
    /// Branches that were seen could not be closed, as they wait for others: the order does not tell which are the
    /// innermost.
    is_unordered: bool,
    held: BTreeSet<ProcessId>,
    /// Branches closed so far.
    pub closed: usize,
    /// The person or the program that cancels, until that is recorded.
    by: Option<Actor>,
    /// The error of the last transaction that waited in vain for somebody else's rows, since branches were last closed.
    waited: Option<Error>,
}

impl Cancelling {
    /// A cancellation of this run, with this many branches per transaction.
    pub fn of(run_id: RunId, batch: usize) -> Self {
        Self {
            run_id,
            batch: batch.max(1),
            seen: Vec::new(),
            is_unordered: false,
            held: BTreeSet::new(),
            closed: 0,
            by: None,
            waited: None,
        }
    }

    /// The same, by somebody, whom the first transaction that closes branches records.
    pub fn by(self, by: Option<Actor>) -> Self {
        Self { by, ..self }
    }

    /// The reason why the last transactions have closed nothing.
    pub fn reason(&mut self) -> Error {
        self.waited.take().unwrap_or_else(|| {
            let run_id = self.run_id;
            Error::Corrupt(format!(
                "none of the open branches of {run_id:?} can be closed"
            ))
        })
    }

    /// Runs one transaction, or a second one if the first shows that the order tells nothing; returns the result of the
    /// cancellation if it was the last one.
    pub async fn step(&mut self, conn: &mut Conn) -> Result<Option<Cancel>, Error> {
        let was_ordered = !self.is_unordered;
        let ended = self.transaction(conn).await?;
        // The callers give up where nothing is closed, and forget what this has learned.
        match was_ordered && self.is_unordered {
            true => self.transaction(conn).await,
            false => Ok(ended),
        }
    }

    async fn transaction(&mut self, conn: &mut Conn) -> Result<Option<Cancel>, Error> {
        if self.seen.is_empty() {
            match status(conn, self.run_id).await? {
                None => return Ok(Some(Cancel::NotFound)),
                Some(status) if status.is_terminal() => {
                    return Ok(Some(Cancel::NotActive(status)));
                }
                Some(_) => {}
            }
            let open = look(conn, self.run_id, self.batch).await?;
            if open.len() <= self.batch + 1 {
                return self.end(conn, open).await;
            }
            self.seen = in_order(open);
            if self.is_unordered {
                self.look_for_closable(conn).await?;
            }
        }
        let rest = self.seen.len().saturating_sub(self.batch);
        let chunk = self.seen.split_off(rest);
        self.some(conn, &chunk).await.map(|()| None)
    }

    /// Replaces the branches that were seen with branches that can be closed, if there are any.
    ///
    /// Without this, more branches than one look returns may wait for others and come first, so that no look returns a
    /// branch that can be closed. Proven by `a_run_whose_youngest_fan_outs_are_the_outer_ones_can_be_cancelled`.
    async fn look_for_closable(&mut self, conn: &mut Conn) -> Result<(), Error> {
        for statement in [&CANCEL_MOVING_BRANCHES, &CANCEL_DOOMED_BRANCHES] {
            let open = in_order(open(conn, statement, self.run_id, self.batch).await?);
            if !open.is_empty() {
                self.seen = open;
                break;
            }
        }
        Ok(())
    }

    /// Closes the branches that were seen, which are few and all open ones, and the run.
    async fn end(&mut self, conn: &mut Conn, seen: Vec<Open>) -> Result<Option<Cancel>, Error> {
        failpoint!(conn, "cancel.begin");
        let (run_id, batch, by) = (self.run_id, self.batch, self.by.as_ref());
        let ended = conn.transaction(async |conn| {
            let held = hold(conn, &seen).await?;
            // RACE: a branch that we saw is split, or split further, before we hold its lock. No
            // query has seen its children, so there is another query, which is final: no other
            // branch of the run can create any, since we hold all that were open. Proven by
            // `a_cancellation_leaves_nothing_open_whenever_it_comes`. (I15, I17)
            let open = look(conn, run_id, batch).await?;
            if open.iter().any(|now| !held.has(now)) {
                return Ok(None);
            }
            let processes = close(conn, &held.branches, &held.executions).await?;
            if conn
                .execute(&CANCEL_RUN, &[("run", run_id.0.into())])
                .await?
                == 0
            {
                // The run ended while we looked; then no branch of it was open, and nothing was
                // changed.
                let touched = held.branches.len();
                if touched > 0 {
                    let text =
                        format!("I15: {run_id:?} has ended, but {touched} branches of it had not");
                    return Err(Error::Corrupt(text));
                }
                return Ok(Some((None, status(conn, run_id).await?)));
            }
            action::record(conn, by, Verb::Cancel, [run_id], None).await?;
            failpoint!(conn, "cancel.written");
            Ok(Some((Some(processes), None)))
        });
        let Some(ended) = self.later(ended.await)? else {
            return Ok(None);
        };
        failpoint!(conn, "cancel.end");
        Ok(match ended {
            None => None,
            Some((Some(processes), _)) => {
                self.held.extend(processes);
                let held = std::mem::take(&mut self.held).into_iter().collect();
                Some(Cancel::Done { held })
            }
            Some((None, Some(status))) => Some(Cancel::NotActive(status)),
            Some((None, None)) => Some(Cancel::NotFound),
        })
    }

    /// Closes some of the run's branches, as far as nobody who continues the run can miss them.
    async fn some(&mut self, conn: &mut Conn, seen: &[Open]) -> Result<(), Error> {
        failpoint!(conn, "cancel.begin");
        let (run_id, by) = (self.run_id, self.by.as_ref());
        let done = conn.transaction(async |conn| {
            let mut held = hold(conn, seen).await?;
            let waiting: Vec<Uuid> = held
                .branches
                .iter()
                .filter(|it| it.waits())
                .map(|it| it.id)
                .collect();
            let doomed = match waiting.is_empty() {
                true => BTreeSet::new(),
                false => ids(conn, &CANCEL_DOOMED, waiting)
                    .await?
                    .into_iter()
                    .collect(),
            };
            // RACE: the last of the branches that a branch waits for arrives, and finds no branch
            // to move. So a waiting branch is closed together with one that it waits for: then no
            // arrival can be the last. Proven by
            // `a_barrier_fires_while_its_run_is_cancelled_branch_by_branch`. (I13)
            held.branches
                .retain(|it| !it.root && (!it.waits() || doomed.contains(&it.id)));
            if held.branches.is_empty() {
                return Ok((0, BTreeSet::new()));
            }
            let processes = close(conn, &held.branches, &held.executions).await?;
            let dampened = |it: &&Open| it.status == BranchStatus::Dampened;
            let args = [
                ("run", run_id.0.into()),
                (
                    "dampened",
                    held.branches.iter().filter(dampened).count().into(),
                ),
            ];
            if conn.execute(&CANCEL_SOME, &args).await? == 0 {
                let text = format!("I15: {run_id:?} has ended, but branches of it had not");
                return Err(Error::Corrupt(text));
            }
            action::record(conn, by, Verb::Cancel, [run_id], None).await?;
            failpoint!(conn, "cancel.written");
            Ok((held.branches.len(), processes))
        });
        let done = self.later(done.await)?;
        if let Some((closed, processes)) = done {
            self.held.extend(processes);
            self.closed += closed;
            if closed > 0 {
                (self.by, self.waited) = (None, None);
            } else if !self.is_unordered {
                self.is_unordered = true;
                self.seen.clear();
            }
        }
        failpoint!(conn, "cancel.end");
        Ok(())
    }

    /// A transaction that waited too long for somebody else's rows has changed nothing, and is tried
    /// later.
    fn later<T>(&mut self, done: Result<T, Error>) -> Result<Option<T>, Error> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(error @ Error::Retryable { .. }) => {
                self.waited = Some(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// The wait before the next try at branches that could not be closed.
pub const AGAIN: Duration = Duration::from_millis(20);

/// Moving branches are closed before those that wait for them, and of the waiting ones the younger
/// before the older: the younger are the inner ones. The run's root is closed with the run.
fn in_order(mut open: Vec<Open>) -> Vec<Open> {
    open.retain(|it| !it.root);
    open.sort_by_key(|it| (!it.waits(), it.id));
    open
}

/// Open branches of a run, which are closed in transactions of `batch` branches.
async fn look(conn: &mut Conn, run_id: RunId, batch: usize) -> Result<Vec<Open>, Error> {
    open(conn, &CANCEL_OPEN_BRANCHES, run_id, batch).await
}

async fn open(
    conn: &mut Conn,
    statement: &'static Statement,
    run_id: RunId,
    batch: usize,
) -> Result<Vec<Open>, Error> {
    let most = batch.saturating_mul(LOOK);
    let args = [("run", run_id.0.into()), ("n", most.into())];
    let rows = conn.fetch(statement, &args).await?;
    rows.iter().map(Open::read).collect()
}

/// Open branches and executions, under lock.
struct Held {
    branches: Vec<Open>,
    /// Each with the process that holds it.
    executions: BTreeMap<Uuid, Option<ProcessId>>,
}

impl Held {
    fn has(&self, branch: &Open) -> bool {
        self.branches.iter().any(|held| held.id == branch.id)
    }
}

/// Locks the open rows of the branches that were seen, in their current state.
///
/// RACE: an execution is tried again, or a branch moves on, in a transaction that our locks wait for
/// and whose new rows the query before them has not seen. So we query again until nothing is new. A
/// transaction that could still add something holds a row that we would then wait for, so a query that
/// finds nothing new is final. Places in the queue first, as a claim takes them, then executions, then
/// branches, as everybody else does. Proven by `a_cancellation_leaves_nothing_open_whenever_it_comes`.
/// (I15, I17)
async fn hold(conn: &mut Conn, seen: &[Open]) -> Result<Held, Error> {
    conn.set(Setting::ShortLockWait).await?;
    let all = batch::in_order(seen.iter().map(|it| it.id));
    let (mut known, mut executions) = (BTreeSet::new(), BTreeMap::new());
    let mut branches: BTreeMap<Uuid, Open> = BTreeMap::new();
    loop {
        let found = ids(conn, &CANCEL_OPEN_EXECUTIONS, all.clone()).await?;
        let new: Vec<Uuid> = found.into_iter().filter(|id| known.insert(*id)).collect();
        if new.is_empty() && !branches.is_empty() {
            break;
        }
        if !new.is_empty() {
            executions.extend(hold_executions(conn, new).await?);
        }
        let rows = Rows::new().ids("id", all.iter().copied());
        branches.clear();
        for row in conn
            .fetch(&CANCEL_HOLD_BRANCHES, &[("b", (&rows).into())])
            .await?
        {
            let open = Open::read(&row)?;
            branches.insert(open.id, open);
        }
        if branches.is_empty() {
            break;
        }
    }
    Ok(Held {
        branches: branches.into_values().collect(),
        executions,
    })
}

/// Locks executions, with their places in the queue; returns the open ones, and their holders.
pub(super) async fn hold_executions(
    conn: &mut Conn,
    executions: Vec<Uuid>,
) -> Result<Vec<(Uuid, Option<ProcessId>)>, Error> {
    let executions = batch::in_order(executions);
    if conn.locks_rows() {
        let places = executions.clone();
        ids_of(conn, &CANCEL_HOLD_PLACES, "execution_id", places).await?;
    }
    let rows = Rows::new().ids("id", executions);
    let held = conn
        .fetch(&CANCEL_HOLD_EXECUTIONS, &[("b", (&rows).into())])
        .await?;
    let held = held.iter().map(|row| {
        let process = row.get::<Option<Uuid>>("process_id")?.map(ProcessId);
        Ok((row.get("id")?, process))
    });
    held.collect()
}

/// Closes held branches, with everything that would move them; returns the processes that were
/// working on them.
async fn close(
    conn: &mut Conn,
    branches: &[Open],
    executions: &BTreeMap<Uuid, Option<ProcessId>>,
) -> Result<BTreeSet<ProcessId>, Error> {
    if !executions.is_empty() {
        let rows = Rows::new().ids("id", executions.keys().copied());
        let rows = [("b", (&rows).into())];
        // An execution that was put back while we waited for it has a place in the queue by now.
        // Proven by `what_is_put_back_while_its_run_is_cancelled_is_not_in_the_queue`. (I31)
        conn.execute(&CANCEL_AVAILABILITIES, &rows).await?;
        conn.write(&CANCEL_EXECUTIONS, &rows, executions.len())
            .await?;
    }
    if !branches.is_empty() {
        let rows = Rows::new().ids("id", branches.iter().map(|it| it.step));
        conn.execute(&CANCEL_STEPS, &[("b", (&rows).into())])
            .await?;
        let rows = Rows::new().ids("id", branches.iter().map(|it| it.id));
        let rows = [("b", (&rows).into())];
        conn.write(&CANCEL_BRANCHES, &rows, branches.len()).await?;
        conn.execute(&CANCEL_DEADLINES, &rows).await?;
        conn.execute(&CANCEL_ADVANCEMENTS, &rows).await?;
        conn.execute(&CANCEL_TRANSITIONS, &rows).await?;
    }
    Ok(executions.values().flatten().copied().collect())
}

async fn status(conn: &mut Conn, run_id: RunId) -> Result<Option<RunStatus>, Error> {
    let args = [("run", run_id.0.into())];
    let row = conn.fetch_optional(&CANCEL_RUN_STATUS, &args).await?;
    row.map(|row| row.word("status")).transpose()
}

async fn ids(
    conn: &mut Conn,
    statement: &'static Statement,
    of: Vec<Uuid>,
) -> Result<Vec<Uuid>, Error> {
    ids_of(conn, statement, "id", of).await
}

async fn ids_of(
    conn: &mut Conn,
    statement: &'static Statement,
    column: &str,
    of: Vec<Uuid>,
) -> Result<Vec<Uuid>, Error> {
    let rows = Rows::new().ids("id", of);
    let rows = conn.fetch(statement, &[("b", (&rows).into())]).await?;
    rows.iter().map(|row| row.get(column)).collect()
}
