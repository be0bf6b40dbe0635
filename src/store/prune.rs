//! Retention: deleting runs that ended long ago.
//!
//! Owns: deleting runs with everything that belongs to them. Never: decides how old is old enough.
//!
//! A run that was revived is kept as long as the run that was made from it: a lineage is deleted
//! from its newest end. So nothing ever refers to a run, or to a step, that is gone, and no part of
//! an active lineage is deleted. The transaction that deletes a run has begun the deletion of the one that it was
//! made from: a halted run without its successor would look as if nobody had done its work yet. So none is deleted
//! while a hook of its lineage has yet to run.
//!
//! A transaction deletes some whole runs, or, of a run that is wider than that, some branches with
//! all their rows ([ADR 20](docs/adr/0020-wide-runs-part-by-part.md)). The run's root and its row
//! are deleted last. In between, `pruning_at` marks the run as good as gone: nobody revives it, and
//! the next prune goes on with it, however old it is.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::failpoint::failpoint;

use super::action;
use super::backend::Setting;
use super::bulk;
use super::cancel;
use super::conn::Conn;
use super::cursor::Cursor;
use super::departed;
use super::error::Error;
use super::micros;
use super::pass::{CONTENDED, Pass, Then};
use super::statement::{Rows, statements};

/// Bounds of a transaction. Where tests inject faults between two transactions, a few rows already
/// take several.
const TINY: bool = cfg!(feature = "failpoints");

/// At most this many runs per transaction: each of them is locked.
const RUNS: u64 = if TINY { 2 } else { 500 };

/// Of those whose deletion has begun, fewer: each transaction writes the rows of all that it holds, and a row may be
/// wide. The oldest come first, so each has its turn.
const BEGUN: u64 = if TINY { 2 } else { 20 };

/// Branches per transaction: at least, at first, and at most. The number adapts to the time that
/// one transaction should take.
const BRANCHES: [usize; 3] = if TINY { [2, 2, 2] } else { [50, 200, 2_000] };

/// Keys of runs' contexts per transaction, for each of its branches.
const KEYS_PER_BRANCH: usize = 5;

/// In so many generations of a lineage, no hook may have yet to run when the last of them is deleted.
const GENERATIONS: usize = if TINY { 2 } else { 100 };

/// How long a transaction should take: a wait this short goes unnoticed.
const TOOK: Duration = Duration::from_millis(100);

macro_rules! hook_to_run {
    () => {
        "EXISTS (
                SELECT 1 FROM ductwork_branches br
                  JOIN ductwork_steps s ON {key:s.branch_id;br.id} AND s.via IN ('on_halt', 'on_complete')
                  JOIN ductwork_executions e ON {key:e.step_id;s.id} AND e.result IS NULL
                 WHERE {key:br.run_id;r.id} AND br.fan_out_id IS NULL)"
    };
}

statements! {
    ENDED_RUNS = "
        SELECT r.id, {ended:r} AS ended_at
          FROM ductwork_runs r {by:ductwork_runs_ended}
         WHERE r.status IN ('completed', 'halted', 'cancelled')
           AND {ended:r} <= {now} - :age
           AND NOT EXISTS (SELECT 1 FROM ductwork_runs n WHERE n.revived_from = r.id)
           AND {ended:r} >= :behind
           AND ({ended:r}, r.id) > (:behind, :behind_id)
         ORDER BY {ended:r}, r.id LIMIT :n {skip_locked}";
    /// The runs whose deletion has begun. The hook of a run that many generations follow may have yet to run.
    HALF_PRUNED_RUNS = concat!("
        SELECT r.id, r.pruning_at FROM ductwork_runs r
         WHERE r.pruning_at IS NOT NULL AND r.pruning_at >= :behind
           AND (r.pruning_at, r.id) > (:behind, :behind_id)
           AND NOT EXISTS (SELECT 1 FROM ductwork_runs n WHERE n.revived_from = r.id)
           AND (r.status = 'cancelled' OR NOT ", hook_to_run!(), ")
         ORDER BY r.pruning_at, r.id LIMIT :n {skip_locked}");
    /// A run with a successor is deleted after it.
    COUNT_ENDED_RUNS = "
        SELECT count(*) AS n
          FROM ductwork_runs r {by:ductwork_runs_ended}
         WHERE r.status IN ('completed', 'halted', 'cancelled')
           AND {ended:r} <= {now} - :age
           AND NOT EXISTS (SELECT 1 FROM ductwork_runs n
                            WHERE n.revived_from = r.id AND ({ended:n} IS NULL OR {ended:n} > {now} - :age))";
    /// RACE: a run is revived between the snapshot of our look and our lock on its row. When we look
    /// again under the lock, in a later snapshot, the run has a successor, and is kept (T6); a
    /// revival that comes later finds the run gone. Raced by
    /// `prune_and_revive_at_once_leave_no_run_without_its_origin`. A run whose hook has yet to run
    /// is kept as well (`prune_keeps_what_is_active`).
    STILL_PRUNABLE = concat!("
        SELECT r.id FROM {rows:b(id id)}
          JOIN ductwork_runs r ON {key:r.id;b.id}
         WHERE NOT EXISTS (SELECT 1 FROM ductwork_runs n WHERE {key:n.revived_from;r.id})
           AND (r.status = 'cancelled' OR NOT ", hook_to_run!(), ")");
    /// Those of these runs that have a hook which has yet to run.
    RUNS_WITH_HOOKS = concat!("
        SELECT r.id FROM {rows:b(id id)} JOIN ductwork_runs r ON {key:r.id;b.id}
         WHERE ", hook_to_run!());
    /// The condition that they are no roots is wrapped: PostgreSQL would otherwise read all branches
    /// of all fan-outs when it believes that there are none.
    PRUNABLE_BRANCHES = "
        SELECT br.id, br.run_id, br.fan_out_id FROM ductwork_branches br
         WHERE {any:br.run_id;b(id id)}
           AND CASE WHEN br.fan_out_id IS NULL THEN 0 ELSE 1 END = 1
         LIMIT :n";
    PRUNABLE_ROOTS = "
        SELECT br.id FROM ductwork_branches br WHERE {any:br.run_id;b(id id)}";
    PRUNABLE_STEPS = "
        SELECT s.id, t.id AS transition_id, {big:CASE s.via WHEN 'on_wait' THEN 1 ELSE 0 END} AS about_wait
          FROM ductwork_steps s
          LEFT JOIN ductwork_transitions t ON {key:t.from_step_id;s.id}
         WHERE {any:s.branch_id;b(id id)}";
    /// The open executions of hooks of waits.
    PRUNABLE_PLACES = "
        SELECT e.id FROM ductwork_executions e WHERE {any:e.step_id;b(id id)} AND e.result IS NULL";
    PRUNE_AVAILABILITIES = "
        {delete:ductwork_availabilities;b(id id)} WHERE {of:ductwork_availabilities.execution_id;b(id id)}";
    /// The runs that these were made from.
    PRUNABLE_ORIGINS = "
        SELECT r.id, r.revived_from FROM {rows:b(id id)} JOIN ductwork_runs r ON {key:r.id;b.id}";
    BEGIN_PRUNING = "
        UPDATE {into:ductwork_runs;b(id id)} SET pruning_at = {now} WHERE {of:ductwork_runs.id;b(id id)}";
    PRUNE_DELIVERIES = "{delete:ductwork_deliveries;b(id id);run_id} WHERE {of:ductwork_deliveries.run_id;b(id id)}";
    PRUNABLE_TUPLES = "
        SELECT t.run_id FROM ductwork_tuples t WHERE {any:t.run_id;b(id id)} LIMIT :n",
        on Mysql [&PRUNABLE_TUPLES_IN_TURN];
    PRUNABLE_TUPLES_IN_TURN in Mysql = "
        SELECT t.run_id FROM {rows:b(id id)} {join:ductwork_tuples t} ON {key:t.run_id;b.id} LIMIT :n";
    /// The last of the next keys of a run.
    PRUNABLE_KEYS = "
        SELECT max(t.\"key\") AS last
          FROM (SELECT \"key\" FROM ductwork_tuples WHERE run_id = :run ORDER BY \"key\" LIMIT :n) t";
    PRUNE_KEYS = "DELETE FROM ductwork_tuples WHERE run_id = :run AND \"key\" <= :last";
    PRUNE_TUPLES = "{delete:ductwork_tuples;b(id id)} WHERE {of:ductwork_tuples.run_id;b(id id)}";
    PRUNE_ADVANCEMENTS = "{delete:ductwork_advancements;b(id id)} WHERE {of:ductwork_advancements.transition_id;b(id id)}";
    PRUNE_TRANSITIONS = "{delete:ductwork_transitions;b(id id)} WHERE {of:ductwork_transitions.id;b(id id)}";
    PRUNE_EXECUTIONS = "{delete:ductwork_executions;b(id id);ductwork_executions_attempt} WHERE {of:ductwork_executions.step_id;b(id id)}";
    PRUNE_STEPS = "{delete:ductwork_steps;b(id id)} WHERE {of:ductwork_steps.id;b(id id)}";
    /// The fan-outs of the branches that were split, and the barriers at which they arrived: a
    /// barrier that has lost some of its branches would no longer add up.
    PRUNE_FAN_OUTS = "{delete:ductwork_fan_outs;b(id id);ductwork_fan_outs_branch} WHERE {of:ductwork_fan_outs.branch_id;b(id id)}";
    PRUNE_BARRIERS = "{delete:ductwork_fan_outs;b(id id)} WHERE {of:ductwork_fan_outs.id;b(id id)}";
    PRUNE_BRANCHES = "{delete:ductwork_branches;b(id id)} WHERE {of:ductwork_branches.id;b(id id)}";
    PRUNE_RUNS = "{delete:ductwork_runs;b(id id)} WHERE {of:ductwork_runs.id;b(id id)}";
}

/// How many runs ended at least `older_than` ago and have no successor that is younger, to show to a person before they
/// are deleted: a few more than are deleted if the successor of a successor is younger, or if hooks have yet to run.
pub async fn count(conn: &mut Conn, older_than: Duration) -> Result<u64, Error> {
    let args = [("age", micros(older_than).into())];
    match conn.fetch_optional(&COUNT_ENDED_RUNS, &args).await? {
        Some(row) => Ok(row.get::<i64>("n")?.unsigned_abs()),
        None => Ok(0),
    }
}

/// Deletes runs that ended at least `older_than` ago, at most `limit` of them, oldest first, and
/// returns how many. Any number of processes may prune at once.
#[cfg(feature = "internals")]
pub async fn prune(conn: &mut Conn, older_than: Duration, limit: u64) -> Result<u64, Error> {
    prune_reporting(conn, older_than, limit, &mut |_| {}).await
}

/// The same; `report` receives how many are gone, after each transaction.
pub async fn prune_reporting(
    conn: &mut Conn,
    older_than: Duration,
    limit: u64,
    report: &mut dyn FnMut(u64),
) -> Result<u64, Error> {
    let (mut gone, mut failed) = (0, None);
    let mut pruning = Pruning::of(Some(older_than), limit);
    let mut began = pruning.places;
    loop {
        match pruning.step(conn).await {
            Ok(true) => report(gone + pruning.runs),
            Ok(false) => break,
            Err(error) if error.is_unavailable() => return Err(error),
            Err(error) => {
                failed.get_or_insert(error);
                if [began, Places::default()].contains(&pruning.places) {
                    break;
                }
                // Too many in a row could not be deleted; there may be others behind them.
                gone += pruning.runs;
                began = pruning.places;
                pruning = Pruning::of(Some(older_than), limit - gone).behind(began);
            }
        }
    }
    failed.map_or(Ok(gone + pruning.runs), Err)
}

/// The places behind which a deletion goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// In the order of the runs whose deletion has begun.
    begun: Cursor,
    /// In the order of the runs that have ended.
    ended: Cursor,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            begun: Cursor::FIRST,
            ended: Cursor::FIRST,
        }
    }
}

/// A deletion under way. A run that cannot be deleted now, because somebody has locked rows of it or
/// because it is damaged, holds up no other.
pub struct Pruning {
    /// None: only deletions that were begun before, and processes that departed too long ago for any history.
    older_than: Option<Duration>,
    limit: u64,
    /// How many runs are gone so far.
    pub runs: u64,
    in_pass: u64,
    /// Where the next transaction looks; after an error, those that failed are before these places.
    pub places: Places,
    /// By branches, of which a run has one at least.
    pass: Pass,
    bounds: [usize; 3],
}

impl Pruning {
    /// A deletion of runs that ended at least this long ago, of at most this many runs.
    pub fn of(older_than: Option<Duration>, limit: u64) -> Self {
        Self {
            older_than,
            limit,
            runs: 0,
            in_pass: 0,
            places: Places::default(),
            pass: Pass::by(BRANCHES[1]),
            bounds: BRANCHES,
        }
    }

    /// The same, from these places on: where an earlier one ended.
    #[must_use]
    pub fn behind(self, places: Places) -> Self {
        Self { places, ..self }
    }

    /// From now on, also deletes runs that ended at least this long ago.
    pub fn older_than(&mut self, age: Duration) {
        self.older_than = Some(age);
    }

    /// The same, with this many branches per transaction, however long it takes.
    #[must_use]
    #[cfg(feature = "internals")]
    pub fn by(mut self, branches: usize) -> Self {
        (self.pass, self.bounds) = (Pass::by(branches), [branches; 3]);
        self
    }

    /// Runs one transaction; false when there is nothing left to do. An error is returned at once if
    /// the database cannot be reached or nothing can be deleted any more; the first error of runs that
    /// were passed over, when all others are gone.
    pub async fn step(&mut self, conn: &mut Conn) -> Result<bool, Error> {
        if self.runs >= self.limit {
            return Ok(false);
        }
        let branches = self.pass.size();
        let n = RUNS.min(self.limit - self.runs).min(branches as u64);
        failpoint!(conn, "prune.begin");
        let (older_than, places) = (self.older_than, self.places);
        // Where the search ended, before anything was deleted.
        let mut reached = places;
        let asked = Instant::now();
        let batch = conn
            .transaction_within(CONTENDED, async |conn| {
                // This may be another try.
                reached = places;
                conn.set(Setting::ShortLockWait).await?;
                // A run whose deletion has begun comes first; one that another prune holds at this
                // moment is left to it.
                let begun = half_pruned(conn, places.begun, n.min(BEGUN));
                let (begun, last) = begun.await?;
                reached.begun = last;
                let mut held = Held {
                    begun: !begun.is_empty(),
                    runs: begun,
                };
                if let (Some(age), false) = (older_than, held.begun) {
                    (held.runs, reached.ended) = ended(conn, age, places.ended, n).await?;
                }
                let part = delete(conn, held, branches).await?;
                failpoint!(conn, "prune.written");
                Ok(part)
            })
            .await;
        failpoint!(conn, "prune.end");
        let part = match batch {
            Ok(part) => part,
            Err(error) => {
                if self.pass.failed(error)? == Then::PassOver {
                    self.places = reached;
                }
                return Ok(true);
            }
        };
        self.pass
            .worked(fitting(branches, asked.elapsed(), self.bounds));
        self.runs += part.runs;
        self.in_pass += part.runs;
        if part.more {
            // The next transaction takes the same runs again.
        } else if reached.ended != places.ended {
            // A run whose hook nobody runs is skipped, so that it holds back no other.
            self.places.ended = reached.ended;
        } else if part.runs > 0 {
            // Those deletions had begun before. There may be more of them, and the runs that are
            // old enough are untouched.
        } else if self.in_pass > 0 {
            // A pass that deleted something may allow another pass: a lineage is deleted one run at
            // a time, from its newest end.
            (self.places, self.in_pass) = (Places::default(), 0);
        } else {
            self.places = Places::default();
            let mut more = departed::forget(conn, departed::forgotten_after(older_than)).await?;
            if let Some(age) = older_than {
                more |= action::forget(conn, age).await?;
                more |= bulk::forget(conn, age).await?;
            }
            if !more {
                self.pass.end()?;
            }
            return Ok(more);
        }
        failpoint!(conn, "prune.between");
        Ok(true)
    }
}

/// How many branches one transaction should delete, after this many took this long. (Decides only
/// the size of the next transaction.)
fn fitting(branches: usize, took: Duration, [least, _, most]: [usize; 3]) -> usize {
    match took {
        // So few because a transaction has failed, not because they take long: where each of them waits for
        // another writer, a wide run would be deleted branch by branch.
        _ if branches < least => (branches * 2).min(least),
        took if took > TOOK => (branches / 2).max(least),
        took if took < TOOK / 2 => (branches * 2).min(most),
        _ => branches,
    }
}

/// The next runs whose deletion has begun, under lock, and the place of the last one seen.
async fn half_pruned(
    conn: &mut Conn,
    behind: Cursor,
    n: u64,
) -> Result<(Vec<Uuid>, Cursor), Error> {
    let [time, id] = behind.args();
    let args = [time, id, ("n", (n as i64).into())];
    let seen = conn.fetch(&HALF_PRUNED_RUNS, &args).await?;
    let last = seen.last().map(|row| Cursor::of(row, "pruning_at", "id"));
    Ok((ids(&seen, "id")?, last.unwrap_or(Ok(behind))?))
}

/// The next runs that ended at least this long ago, under lock, and the place of the last one seen.
async fn ended(
    conn: &mut Conn,
    older_than: Duration,
    behind: Cursor,
    n: u64,
) -> Result<(Vec<Uuid>, Cursor), Error> {
    let [time, id] = behind.args();
    let args = [
        ("age", micros(older_than).into()),
        time,
        id,
        ("n", (n as i64).into()),
    ];
    let seen = conn.fetch(&ENDED_RUNS, &args).await?;
    let last = seen.last().map(|row| Cursor::of(row, "ended_at", "id"));
    let last = last.unwrap_or(Ok(behind))?;
    let seen = ids(&seen, "id")?;
    let rows = Rows::new().ids("id", seen);
    let runs = conn
        .fetch(&STILL_PRUNABLE, &[("b", (&rows).into())])
        .await?;
    let runs = without_hooks(conn, ids(&runs, "id")?).await?;
    Ok((runs, last))
}

/// Runs that a transaction has locked.
struct Held {
    /// Their deletion has begun.
    begun: bool,
    runs: Vec<Uuid>,
}

/// The result of one transaction.
struct Part {
    /// How many runs are gone.
    runs: u64,
    /// True where some of the rows to delete still exist.
    more: bool,
}

/// Deletes runs that are held under lock, or at most this many of their branches, or as many keys of
/// their contexts as may be deleted with so many branches. A run of which nothing can be deleted yet stays whole.
async fn delete(conn: &mut Conn, held: Held, at_most: usize) -> Result<Part, Error> {
    let all = held.runs;
    if all.is_empty() {
        let (runs, more) = (0, false);
        return Ok(Part { runs, more });
    }
    let rows = Rows::new().ids("id", all.iter().copied());
    let args = [("b", (&rows).into()), ("n", at_most.into())];
    let found = conn.fetch(&PRUNABLE_BRANCHES, &args).await?;
    // There may be other branches, and their runs are not known.
    let is_full = found.len() >= at_most;
    let of: BTreeSet<Uuid> = ids(&found, "run_id")?.into_iter().collect();
    let chosen = all.iter().filter(|run| !is_full || of.contains(run));
    let chosen: Vec<Uuid> = chosen.copied().collect();
    let runs = delete_contexts(conn, &chosen, at_most.saturating_mul(KEYS_PER_BRANCH)).await?;
    if runs.is_empty() {
        let (runs, more) = (0, true);
        return Ok(Part { runs, more });
    }
    if is_full {
        // The contexts of all these runs are gone, so none of them is whole any more.
        let begun = if held.begun { &all } else { &runs };
        begin(conn, begun).await?;
    }
    let chosen: BTreeSet<Uuid> = runs.iter().copied().collect();
    let (mut barriers, mut branches) = (BTreeSet::new(), Vec::new());
    for row in &found {
        if chosen.contains(&row.get("run_id")?) {
            barriers.insert(row.get::<Uuid>("fan_out_id")?);
            branches.push(row.get("id")?);
        }
    }
    let rows = Rows::new().ids("id", barriers);
    conn.execute(&PRUNE_BARRIERS, &[("b", (&rows).into())])
        .await?;
    delete_branches(conn, branches).await?;
    if is_full {
        let (runs, more) = (0, true);
        return Ok(Part { runs, more });
    }
    let rows = Rows::new().ids("id", runs.iter().copied());
    let rows = [("b", (&rows).into())];
    let roots = conn.fetch(&PRUNABLE_ROOTS, &rows).await?;
    delete_branches(conn, ids(&roots, "id")?).await?;
    conn.execute(&PRUNE_DELIVERIES, &rows).await?;
    begin_origins(conn, &runs).await?;
    conn.write(&PRUNE_RUNS, &rows, runs.len()).await?;
    let (runs, more) = (runs.len() as u64, runs.len() < all.len());
    Ok(Part { runs, more })
}

/// Begins the deletion of the runs that these were made from. They ended before these began.
async fn begin_origins(conn: &mut Conn, runs: &[Uuid]) -> Result<(), Error> {
    let origins = origins(conn, runs).await?;
    if origins.is_empty() {
        return Ok(());
    }
    let rows = Rows::new().ids("id", origins.into_values());
    conn.execute(&BEGIN_PRUNING, &[("b", (&rows).into())])
        .await
        .map(drop)
}

/// The run that each of these was made from, by its id.
async fn origins(conn: &mut Conn, runs: &[Uuid]) -> Result<HashMap<Uuid, Uuid>, Error> {
    let rows = Rows::new().ids("id", runs.iter().copied());
    let mut origins = HashMap::new();
    for row in conn
        .fetch(&PRUNABLE_ORIGINS, &[("b", (&rows).into())])
        .await?
    {
        if let Some(origin) = row.get::<Option<Uuid>>("revived_from")? {
            origins.insert(row.get("id")?, origin);
        }
    }
    Ok(origins)
}

/// Those of these runs whose lineage has no hook that has yet to run.
async fn without_hooks(conn: &mut Conn, runs: Vec<Uuid>) -> Result<Vec<Uuid>, Error> {
    let mut kept = BTreeSet::new();
    // Each of the runs, with the one that its lineage begins with as far as it is known.
    let mut lineages: Vec<(Uuid, Uuid)> = runs.iter().map(|run| (*run, *run)).collect();
    for _ in 0..GENERATIONS {
        let firsts: Vec<Uuid> = lineages.iter().map(|(_, first)| *first).collect();
        let origins = origins(conn, &firsts).await?;
        if origins.is_empty() {
            break;
        }
        let rows = Rows::new().ids("id", origins.values().copied());
        let hooked = conn
            .fetch(&RUNS_WITH_HOOKS, &[("b", (&rows).into())])
            .await?;
        let hooked: BTreeSet<Uuid> = ids(&hooked, "id")?.into_iter().collect();
        let mut earlier = Vec::new();
        for (run, first) in lineages {
            match origins.get(&first) {
                Some(origin) if hooked.contains(origin) => drop(kept.insert(run)),
                Some(origin) => earlier.push((run, *origin)),
                None => {}
            }
        }
        lineages = earlier;
    }
    let ready = runs.into_iter().filter(|run| !kept.contains(run));
    Ok(ready.collect())
}

async fn begin(conn: &mut Conn, runs: &[Uuid]) -> Result<(), Error> {
    begin_origins(conn, runs).await?;
    let rows = Rows::new().ids("id", runs.iter().copied());
    conn.write(&BEGIN_PRUNING, &[("b", (&rows).into())], runs.len())
        .await
}

/// Deletes the contexts of as many of the runs as have fewer keys than this together, and returns those
/// runs. If a run has more keys, it loses as many of them, and no run is returned.
async fn delete_contexts(
    conn: &mut Conn,
    all: &[Uuid],
    at_most: usize,
) -> Result<Vec<Uuid>, Error> {
    let mut runs = all.to_vec();
    while !runs.is_empty() {
        let rows = Rows::new().ids("id", runs.iter().copied());
        let rows = [("b", (&rows).into()), ("n", at_most.into())];
        let found = conn.fetch(&PRUNABLE_TUPLES, &rows).await?;
        if found.len() < at_most {
            if !found.is_empty() {
                conn.execute(&PRUNE_TUPLES, &rows[..1]).await?;
            }
            return Ok(runs);
        }
        let of: BTreeSet<Uuid> = ids(&found, "run_id")?.into_iter().collect();
        // Of all of them but the last one, all keys have probably been found.
        let whole = of.len().saturating_sub(1).min(runs.len() / 2);
        if let (0, Some(run)) = (whole, of.first()) {
            delete_keys(conn, *run, at_most).await?;
            return Ok(Vec::new());
        }
        runs = of.into_iter().take(whole).collect();
    }
    Ok(runs)
}

/// Deletes this many keys of a run's context.
async fn delete_keys(conn: &mut Conn, run: Uuid, n: usize) -> Result<(), Error> {
    begin(conn, &[run]).await?;
    let args = [("run", run.into()), ("n", n.into())];
    let Some(row) = conn.fetch_optional(&PRUNABLE_KEYS, &args).await? else {
        return Ok(());
    };
    let last: String = row.get("last")?;
    let args = [("run", run.into()), ("last", last.as_str().into())];
    conn.execute(&PRUNE_KEYS, &args).await.map(drop)
}

/// Deletes branches with all their rows. A row is deleted after the rows that refer to it. In these
/// runs, only a hook of a wait may have an open execution.
async fn delete_branches(conn: &mut Conn, branches: Vec<Uuid>) -> Result<(), Error> {
    if branches.is_empty() {
        return Ok(());
    }
    let rows = Rows::new().ids("id", branches.iter().copied());
    let args = [("b", (&rows).into())];
    let found = conn.fetch(&PRUNABLE_STEPS, &args).await?;
    let steps = Rows::new().ids("id", ids(&found, "id")?);
    let (mut left, mut about_waits) = (Vec::new(), Vec::new());
    for row in &found {
        left.extend(row.get::<Option<Uuid>>("transition_id")?);
        if row.get::<i64>("about_wait")? == 1 {
            about_waits.push(row.get::<Uuid>("id")?);
        }
    }
    if !about_waits.is_empty() {
        delete_places(conn, about_waits).await?;
    }
    let transitions = Rows::new().ids("id", left.iter().copied());
    for (statement, rows, n) in [
        (&PRUNE_ADVANCEMENTS, &transitions, None),
        (&PRUNE_TRANSITIONS, &transitions, Some(left.len())),
        (&PRUNE_EXECUTIONS, &steps, None),
        (&PRUNE_STEPS, &steps, Some(found.len())),
    ] {
        let rows = [("b", rows.into())];
        match n {
            Some(n) => conn.write(statement, &rows, n).await?,
            None => drop(conn.execute(statement, &rows).await?),
        }
        failpoint!(conn, "prune.deleted");
    }
    conn.execute(&PRUNE_FAN_OUTS, &args).await?;
    conn.write(&PRUNE_BRANCHES, &args, branches.len()).await
}

/// Deletes the places in the queue of these steps, which are hooks of waits.
///
/// RACE: a worker commits the failure of such a hook, which closes its execution and inserts the next one with a place
/// in the queue. A deletion that has read the places before would leave the new one behind, or the new execution. So it
/// locks the open executions, and asks again until it holds all of them. Proven by
/// `a_hook_of_a_wait_that_fails_while_its_run_is_deleted_leaves_nothing_behind`. (I6, I31)
async fn delete_places(conn: &mut Conn, steps: Vec<Uuid>) -> Result<(), Error> {
    let steps = Rows::new().ids("id", steps);
    let mut held = BTreeSet::new();
    loop {
        let open = conn
            .fetch(&PRUNABLE_PLACES, &[("b", (&steps).into())])
            .await?;
        let new = ids(&open, "id")?;
        let new: Vec<Uuid> = new.into_iter().filter(|id| held.insert(*id)).collect();
        if new.is_empty() {
            break;
        }
        cancel::hold_executions(conn, new).await?;
    }
    if held.is_empty() {
        return Ok(());
    }
    let rows = Rows::new().ids("id", held);
    let args = [("b", (&rows).into())];
    conn.execute(&PRUNE_AVAILABILITIES, &args).await.map(drop)
}

fn ids(rows: &[super::Row], column: &str) -> Result<Vec<Uuid>, Error> {
    rows.iter().map(|row| row.get(column)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_that_took_long_is_followed_by_a_smaller_one() {
        let ms = Duration::from_millis;
        let bounds = [50, 200, 2_000];
        assert_eq!(fitting(200, ms(10), bounds), 400);
        assert_eq!(fitting(200, ms(70), bounds), 200);
        assert_eq!(fitting(200, ms(150), bounds), 100);
        assert_eq!(fitting(60, ms(150), bounds), 50);
        assert_eq!(fitting(1_500, ms(10), bounds), 2_000);
    }

    /// A writer that waits for others takes long, however little it deletes.
    #[test]
    fn after_a_transaction_that_failed_they_grow_to_the_least_size_again_however_long_each_takes() {
        let mut branches = 1;
        for grown in [2, 4, 8, 16, 32, 50, 50] {
            branches = fitting(branches, Duration::from_secs(1), [50, 200, 2_000]);
            assert_eq!(branches, grown);
        }
    }
}
