//! Actions in many runs at once (bulk actions).
//!
//! Owns: their rows, finding the runs of an action, and processing these one by one, from the oldest on. Never:
//! intervenes by itself (`revive`, `cancel` and `resume` do), or decides who works on an action.
//!
//! The transaction that changes a run counts it in the action's row (`action::record`), and only if no later run
//! has been processed and nobody has stopped the action. So each run is counted once, no matter who is killed;
//! when two work on one action by mistake, one of them goes on; and after a stop no run is changed.
//!
//! A run whose rows somebody else has locked must not hold up others. The cursor moves past it, and the run is added
//! to the list of those that failed, and counted as one of them, with the time of the next attempt. The transaction
//! that changes the run then takes it out of that list, and only if the list is as it was read: so this run, too, is
//! counted once. Coming back by means of the cursor would need a second cursor in the row. Waiting a little for each
//! run would hold up the others as long as the lock exists, and fail all runs that the same session has locked. A
//! program that knows nothing of this finds a failed run, which is true as long as nobody comes back to it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::definition::Definition;
use crate::machine::bulk::{Account, Failure, Filter, Selection, states};
use crate::model::*;

use super::action::{Actor, Again};
use super::cancel::{self, Cancel, Cancelling};
use super::conn::{Conn, Row};
use super::definition::{self, Definitions};
use super::error::Error;
use super::list::RunFilter;
use super::resume::{self, Asked, Resume};
use super::revive::{self, Revive, Wanted};
use super::statement::{Rows, statements};
use super::{halted, list, micros, query, writable};

/// How many runs one query finds.
const LOOK: usize = 100;

/// A run is set aside after others have held its rows for this long.
const CANCELS_FOR: Duration = Duration::from_millis(500);

/// The wait before the next attempt when nobody can write.
const LATER: Duration = Duration::from_secs(2);

/// One transaction forgets at most this many.
const FORGOTTEN_AT_ONCE: u64 = 500;

macro_rules! columns {
    () => {
        "k.id, k.verb, k.selection, k.definition, k.newest, k.dealt, k.done, k.skipped, k.failed, k.failures,
               k.created_at, k.by_whom, k.channel, k.ended_at, k.stopped_by"
    };
}

statements! {
    CREATE_BULK = "
        INSERT INTO ductwork_bulks (id, verb, selection, definition, newest, dealt, done, skipped, failed, failures,
                                    created_at, by_whom, channel)
        VALUES (:id, :verb, :selection, :definition, :newest, :dealt, 0, 0, 0, '[]', {now}, :by, :channel)";
    NEWEST_RUN = "SELECT r.id FROM ductwork_runs r ORDER BY r.id DESC LIMIT 1";
    FIND_BULK = concat!("
        SELECT ", columns!(), " FROM ductwork_bulks k WHERE k.id = :id");
    BULKS = concat!("
        SELECT ", columns!(), "
          FROM ductwork_bulks k WHERE k.id < :before ORDER BY k.id DESC LIMIT :n");
    OPEN_BULKS = concat!("
        SELECT ", columns!(), "
          FROM ductwork_bulks k WHERE k.ended_at IS NULL AND k.id > :after ORDER BY k.id LIMIT :n");
    /// Runs that were processed and not changed.
    PASS_BULK = "
        UPDATE ductwork_bulks
           SET dealt = :run, skipped = skipped + :skipped, failed = failed + :failed, failures = :failures
         WHERE id = :id AND ended_at IS NULL AND dealt < :run AND failures = :before";
    /// Processes or puts off a run that was set aside, and so counted as failed.
    ///
    /// RACE: two consoles come back to it at once. A transaction that finds another list changes no run. Proven by
    /// `a_run_that_was_set_aside_is_counted_once_whoever_comes_back_to_it`.
    SETTLE_BULK = "
        UPDATE ductwork_bulks
           SET done = done + :done, skipped = skipped + :skipped, failed = failed - :done - :skipped,
               failures = :failures
         WHERE id = :id AND ended_at IS NULL AND failures = :before";
    /// RACE: another console sets a run aside, and this one has not seen it. Proven by
    /// `one_who_has_read_another_list_of_failures_does_not_end_the_action`.
    END_BULK = "
        UPDATE ductwork_bulks SET ended_at = coalesce(ended_at, {now}) WHERE id = :id AND failures = :before";
    STOP_BULK = "
        UPDATE ductwork_bulks SET ended_at = {now}, stopped_by = :by WHERE id = :id AND ended_at IS NULL";
    BULK_RUNS = "
        SELECT x.id, x.pipeline,
               (SELECT n.id FROM ductwork_runs n WHERE {key:n.revived_from;x.id}) AS successor
          FROM (SELECT r.id, r.pipeline FROM ductwork_runs r {by:ductwork_runs_others}
                 WHERE r.status <> 'completed' AND {key:r.status;:status} AND r.pipeline = :pipeline
                   AND r.id > :dealt AND r.id <= :newest AND r.triggered_at >= :since AND r.pruning_at IS NULL
                 ORDER BY r.status, r.id LIMIT :n) x
         ORDER BY x.id";
    CHOSEN_RUNS = "
        SELECT r.id, r.pipeline, r.status,
               (SELECT n.id FROM ductwork_runs n WHERE {key:n.revived_from;r.id}) AS successor
          FROM {rows:q(id id)} JOIN ductwork_runs r ON {key:r.id;q.id}
         WHERE r.pruning_at IS NULL
         ORDER BY r.id";
    COUNT_BULK_RUNS = "
        SELECT count(*) AS n
          FROM (SELECT r.id FROM ductwork_runs r {by:ductwork_runs_others}
                 WHERE r.status <> 'completed' AND {key:r.status;:status} AND r.pipeline = :pipeline
                   AND r.id > :dealt AND r.id <= :newest AND r.triggered_at >= :since AND r.pruning_at IS NULL
                   AND NOT EXISTS (SELECT 1 FROM ductwork_runs n WHERE {key:n.revived_from;r.id})
                 ORDER BY r.status, r.id LIMIT :n) x";
    /// Ids begin with the time: the first are the oldest.
    OLD_BULKS = "
        SELECT x.id FROM (SELECT k.id, k.ended_at FROM ductwork_bulks k ORDER BY k.id LIMIT :n) x
         WHERE x.ended_at <= {now} - :age";
    FORGET_BULKS = "{delete:ductwork_bulks;b(id id)} WHERE {of:ductwork_bulks.id;b(id id)}";
}

/// A new action.
#[derive(Clone, Debug)]
pub struct NewBulk<'a> {
    /// The verb of the action.
    pub verb: Verb,
    /// The runs.
    pub selection: &'a Selection,
    /// The definition with which revived runs continue; `None`: each with its own.
    pub definition: Option<&'a Definition>,
    /// No run has a greater id than this.
    pub newest: RunId,
    /// The person or the program.
    pub by: &'a Actor,
}

/// A bulk action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bulk {
    /// Its key.
    pub id: Uuid,
    /// The verb of the action.
    pub verb: Verb,
    /// The runs.
    pub selection: Selection,
    /// The digest of the definition with which revived runs continue.
    pub definition: Option<String>,
    /// None of its runs has a greater id than this.
    pub newest: Uuid,
    /// All runs up to this one have been processed.
    pub dealt: Uuid,
    /// Runs that were changed.
    pub done: i64,
    /// Runs that needed no change any more.
    pub skipped: i64,
    /// Runs that were left unchanged, including those that are set aside.
    pub failed: i64,
    /// Some of the runs that failed, and all that are set aside.
    pub failures: Vec<Failure>,
    /// The failures as they are stored.
    written: String,
    /// µs since 1970.
    pub created_at: i64,
    /// The person or the program.
    pub by: String,
    /// The channel: a newer version may know further ones.
    pub channel: String,
    /// µs since 1970.
    pub ended_at: Option<i64>,
    /// The person or the program that stopped it before its end.
    pub stopped_by: Option<String>,
}

impl Bulk {
    fn read(row: &Row) -> Result<Self, Error> {
        let id: Uuid = row.get("id")?;
        let damaged = |error| Error::Corrupt(format!("bulk action {id}: {error}"));
        let selection: String = row.get("selection")?;
        let failures: String = row.get("failures")?;
        let verb: Verb = row.word("verb")?;
        if states(verb).is_empty() {
            let text = format!("bulk action {id}: `{verb}` is for one run or pipeline at a time");
            return Err(Error::Corrupt(text));
        }
        Ok(Self {
            id,
            verb,
            selection: serde_json::from_str(&selection).map_err(damaged)?,
            definition: row.get("definition")?,
            newest: row.get("newest")?,
            dealt: row.get("dealt")?,
            done: row.get("done")?,
            skipped: row.get("skipped")?,
            failed: row.get("failed")?,
            failures: serde_json::from_str(&failures).map_err(damaged)?,
            written: failures,
            created_at: row.get("created_at")?,
            by: row.get("by_whom")?,
            channel: row.get("channel")?,
            ended_at: row.get("ended_at")?,
            stopped_by: row.get("stopped_by")?,
        })
    }

    /// Runs that are counted as failed and will be tried again; zero when the action has
    /// ended.
    pub fn aside(&self) -> i64 {
        let again = self.failures.iter().filter(|it| it.again.is_some());
        match self.ended_at {
            None => again.count() as i64,
            Some(_) => 0,
        }
    }

    /// The person or the program on whose behalf the runs are changed.
    fn actor(&self) -> Actor {
        Actor {
            name: self.by.clone(),
            // An action of a newer version is worked on as well; its own row tells the
            // channel.
            channel: self.channel.parse().unwrap_or(Channel::Api),
            bulk: Some(self.id),
            again: None,
        }
    }
}

/// The newest run so far of those that may be meant: an action in all matching runs includes no later one. Of a filter
/// by pipeline it is one of that pipeline, because others may not know of the rest.
pub async fn newest_of(conn: &mut Conn, selection: &Selection) -> Result<RunId, Error> {
    let none = RunId(Uuid::nil());
    match selection {
        Selection::Chosen(runs) => Ok(runs.iter().max().copied().unwrap_or(none)),
        Selection::Matching(Filter {
            pipeline: Some(pipeline),
            ..
        }) => {
            let filter = RunFilter {
                pipeline: Some(pipeline),
                key: None,
                statuses: &[],
                since: None,
                before: None,
                limit: 1,
                whole: 0,
            };
            let newest = list::runs(conn, &filter).await?;
            Ok(newest.first().map_or(none, |run| run.id))
        }
        Selection::Matching(_) => newest(conn).await,
    }
}

/// The newest run so far.
pub async fn newest(conn: &mut Conn) -> Result<RunId, Error> {
    let row = conn.fetch_optional(&NEWEST_RUN, &[]).await?;
    Ok(RunId(match row {
        Some(row) => row.get("id")?,
        None => Uuid::nil(),
    }))
}

/// Stores an action for those who will work on it.
pub async fn create(conn: &mut Conn, new: NewBulk<'_>) -> Result<Uuid, Error> {
    let definition = match new.definition {
        Some(definition) => Some(definition::save(conn, definition).await?),
        None => None,
    };
    let unwritten = |error| Error::Corrupt(format!("a selection cannot be written: {error}"));
    let selection = serde_json::to_string(new.selection).map_err(unwritten)?;
    let id = Uuid::now_v7();
    let args = [
        ("id", id.into()),
        ("verb", new.verb.as_str().into()),
        ("selection", (&selection).into()),
        ("definition", definition.as_deref().into()),
        ("newest", new.newest.0.into()),
        ("dealt", first(new.selection).into()),
        ("by", (&new.by.name).into()),
        ("channel", new.by.channel.as_str().into()),
    ];
    conn.write(&CREATE_BULK, &args, 1).await?;
    Ok(id)
}

/// Every run of a selection has a greater id than this.
fn first(selection: &Selection) -> Uuid {
    match selection {
        Selection::Chosen(_) => Uuid::nil(),
        Selection::Matching(filter) => filter.since.map_or(Uuid::nil(), |since| {
            list::id_at(since.saturating_sub(micros(list::SKEW)))
        }),
    }
}

/// One action.
pub async fn find(conn: &mut Conn, id: Uuid) -> Result<Option<Bulk>, Error> {
    let row = conn
        .fetch_optional(&FIND_BULK, &[("id", id.into())])
        .await?;
    row.as_ref().map(Bulk::read).transpose()
}

/// An action of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// One that can be read.
    Bulk(Box<Bulk>),
    /// One whose row is damaged, or written by a newer version.
    Unreadable(Uuid),
}

impl Listed {
    /// Its key.
    pub fn id(&self) -> Uuid {
        match self {
            Self::Bulk(bulk) => bulk.id,
            Self::Unreadable(id) => *id,
        }
    }
}

/// True when an action has this id, whether it can be read or not.
pub async fn is_there(conn: &mut Conn, id: Uuid) -> Result<bool, Error> {
    let row = conn
        .fetch_optional(&FIND_BULK, &[("id", id.into())])
        .await?;
    Ok(row.is_some())
}

/// Bulk actions, newest first: at most `n` that are older than `before`.
pub async fn latest(conn: &mut Conn, before: Option<Uuid>, n: usize) -> Result<Vec<Listed>, Error> {
    let args = [
        ("before", before.unwrap_or(Uuid::max()).into()),
        ("n", n.into()),
    ];
    let rows = conn.fetch(&BULKS, &args).await?;
    let listed = |row: &Row| match Bulk::read(row) {
        Ok(bulk) => Ok(Listed::Bulk(Box::new(bulk))),
        Err(_) => Ok(Listed::Unreadable(row.get("id")?)),
    };
    rows.iter().map(listed).collect()
}

/// The actions that have not ended, oldest first: at most `n`. Those that this version cannot read are
/// left to others.
pub async fn open(conn: &mut Conn, n: usize) -> Result<Vec<Bulk>, Error> {
    let (mut open, mut after) = (Vec::new(), Uuid::nil());
    loop {
        let args = [("after", after.into()), ("n", n.into())];
        let rows = conn.fetch(&OPEN_BULKS, &args).await?;
        let readable = rows.iter().filter_map(|row| Bulk::read(row).ok());
        open.extend(readable.take(n - open.len()));
        match rows.last() {
            Some(last) if rows.len() == n && open.len() < n => after = last.get("id")?,
            _ => return Ok(open),
        }
    }
}

/// Stops an action: after this returns, it changes no further run. False when it had ended.
pub async fn stop(conn: &mut Conn, id: Uuid, by: &str) -> Result<bool, Error> {
    let args = [("id", id.into()), ("by", by.into())];
    Ok(conn.execute(&STOP_BULK, &args).await? == 1)
}

/// Forgets actions that ended at least `age` ago; true where more of them may be left.
pub(super) async fn forget(conn: &mut Conn, age: Duration) -> Result<bool, Error> {
    let n = FORGOTTEN_AT_ONCE;
    let args = [("age", micros(age).into()), ("n", (n as i64).into())];
    Ok(super::forget(conn, &OLD_BULKS, &FORGET_BULKS, &args).await? == n)
}

/// How many runs match, counted up to `most`. The kind of their ends is ignored.
pub async fn count(
    conn: &mut Conn,
    filter: &Filter,
    newest: RunId,
    most: usize,
) -> Result<usize, Error> {
    let mut found = 0;
    for (status, pipeline) in sources(conn, filter).await? {
        let args = [
            ("status", status.as_str().into()),
            ("pipeline", (&pipeline).into()),
            ("dealt", first(&Selection::Matching(filter.clone())).into()),
            ("newest", newest.0.into()),
            ("since", filter.since.unwrap_or(i64::MIN).into()),
            ("n", (most - found).into()),
        ];
        if let Some(row) = conn.fetch_optional(&COUNT_BULK_RUNS, &args).await? {
            found += usize::try_from(row.get::<i64>("n")?).unwrap_or(most);
        }
        if found >= most {
            return Ok(most);
        }
    }
    Ok(found)
}

/// A chosen run in its current state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The run.
    pub id: RunId,
    /// Its pipeline.
    pub pipeline: String,
    /// Its state.
    pub status: RunStatus,
    /// The run that its revival made.
    pub successor: Option<RunId>,
}

impl Chosen {
    /// True when this verb changes it.
    pub fn is_for(&self, verb: Verb) -> bool {
        states(verb).contains(&self.status) && self.successor.is_none()
    }
}

/// The existing ones of these runs, oldest first.
pub async fn chosen(conn: &mut Conn, runs: &[RunId]) -> Result<Vec<Chosen>, Error> {
    let rows = Rows::new().ids("id", runs.iter().map(|run| run.0));
    let rows = conn.fetch(&CHOSEN_RUNS, &[("q", (&rows).into())]).await?;
    let chosen = |row: &Row| {
        Ok(Chosen {
            id: RunId(row.get("id")?),
            pipeline: row.get("pipeline")?,
            status: row.word("status")?,
            successor: row.get::<Option<Uuid>>("successor")?.map(RunId),
        })
    };
    rows.iter().map(chosen).collect()
}

/// The pairs of state and pipeline whose runs may match.
async fn sources(conn: &mut Conn, filter: &Filter) -> Result<Vec<(RunStatus, String)>, Error> {
    let mut sources = Vec::new();
    for status in filter.statuses.iter().copied() {
        let pipelines = match &filter.pipeline {
            Some(pipeline) => vec![pipeline.clone()],
            None => list::pipelines_of(conn, status).await?,
        };
        sources.extend(pipelines.into_iter().map(|pipeline| (status, pipeline)));
    }
    Ok(sources)
}

/// A run that may belong to an action.
struct Candidate {
    id: RunId,
    /// True where the run belongs to it.
    is_meant: bool,
}

/// The next runs, oldest first, and whether they are the last ones.
async fn candidates(conn: &mut Conn, bulk: &Bulk) -> Result<(Vec<Candidate>, bool), Error> {
    let filter = match &bulk.selection {
        Selection::Chosen(runs) => {
            let rest = runs.iter().filter(|run| run.0 > bulk.dealt);
            let next = rest.clone().take(LOOK).map(|run| Candidate {
                id: *run,
                is_meant: true,
            });
            return Ok((next.collect(), rest.count() <= LOOK));
        }
        Selection::Matching(filter) => filter,
    };
    // RACE: a run is resumed, or begins to wait for a person, between two of these queries. It would be in the
    // answer of neither, and the cursor would pass it for good; in one snapshot it has one state. Raced by
    // `a_run_that_changes_its_state_meanwhile_is_not_passed_over`.
    let found = conn.snapshot(async |conn| {
        let mut found: Vec<(RunId, bool)> = Vec::new();
        for (status, pipeline) in sources(conn, filter).await? {
            let args = [
                ("status", status.as_str().into()),
                ("pipeline", (&pipeline).into()),
                ("dealt", bulk.dealt.into()),
                ("newest", bulk.newest.into()),
                ("since", filter.since.unwrap_or(i64::MIN).into()),
                ("n", LOOK.into()),
            ];
            for row in conn.fetch(&BULK_RUNS, &args).await? {
                let is_over = row.get::<Option<Uuid>>("successor")?.is_some();
                found.push((RunId(row.get("id")?), !is_over));
            }
            found.sort_unstable();
            found.truncate(LOOK);
        }
        Ok(found)
    });
    let found = found.await?;
    let is_last = found.len() < LOOK;
    let mut next: Vec<Candidate> = found
        .into_iter()
        .map(|(id, is_meant)| Candidate { id, is_meant })
        .collect();
    if let Some(kind) = &filter.kind {
        let kinds = halted::kinds_of(conn, next.iter().map(|it| it.id)).await?;
        for candidate in &mut next {
            candidate.is_meant &= kinds.get(&candidate.id) == Some(kind);
        }
    }
    Ok((next, is_last))
}

/// The result of one turn of work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worked {
    /// True where more work is left.
    pub more: bool,
    /// The time before the next work is due, where it is known.
    pub later: Option<Duration>,
    /// The pipelines of the changed runs.
    pub pipelines: BTreeSet<String>,
}

/// The bounds of one turn of work on an action.
#[derive(Clone, Copy, Debug)]
pub struct Within<'a> {
    /// No run is begun after this moment.
    pub until: Instant,
    /// A run that has taken too long again and again, and the reason.
    pub given_up: Option<(RunId, &'a str)>,
    /// The waits before each further attempt at a run that somebody else has locked.
    pub pauses: &'a [Duration],
}

/// The result of the verb in one run.
enum Outcome {
    Done,
    Skipped,
    Failed(String),
    /// Somebody else has locked the run's rows.
    Locked,
}

/// Processes the next runs of an action, until none are left or its time is over. `at` receives each run
/// before it is changed.
///
/// After a failure of the database, the action stays where it is: the next call continues from there.
pub async fn work(
    conn: &mut Conn,
    bulk: Uuid,
    definitions: &Definitions,
    within: Within<'_>,
    at: &mut (dyn FnMut(RunId) + Send),
) -> Result<Worked, Error> {
    let mut worked = Worked::default();
    let Some(bulk) = find(conn, bulk).await?.filter(|it| it.ended_at.is_none()) else {
        return Ok(worked);
    };
    let definition = match &bulk.definition {
        Some(digest) => Some(definitions.load(conn, digest).await?),
        None => None,
    };
    let mut turn = Turn {
        definition: definition.as_deref(),
        account: Account::after(bulk.failures.clone()),
        written: bulk.written.clone(),
        bulk: &bulk,
        within,
        at,
        worked: &mut worked,
    };
    match turn.work(conn).await {
        Ok(()) => {}
        // No run is to blame when nobody can write, or when the action's own row is locked.
        Err(Error::Retryable { .. }) => (worked.more, worked.later) = (true, Some(LATER)),
        Err(error) => return Err(error),
    }
    Ok(worked)
}

/// One turn of work on an action.
struct Turn<'a> {
    bulk: &'a Bulk,
    definition: Option<&'a Definition>,
    within: Within<'a>,
    account: Account,
    /// The failures as they are stored in the action's row.
    written: String,
    at: &'a mut (dyn FnMut(RunId) + Send),
    worked: &'a mut Worked,
}

impl Turn<'_> {
    async fn work(&mut self, conn: &mut Conn) -> Result<(), Error> {
        // One at a time, so that runs that nobody has locked make progress.
        if let Some(run) = self.is_due(conn).await?.filter(|(wait, _)| wait.is_zero()) {
            self.come_back(conn, run.1).await?;
        }
        if !self.account.is_full() && self.go_on(conn).await? {
            return Ok(());
        }
        match self.is_due(conn).await? {
            Some((wait, _)) => {
                (self.worked.more, self.worked.later) = (true, Some(wait));
            }
            None => {
                let (id, before) = (self.bulk.id.into(), (&self.written).into());
                let args = [("id", id), ("before", before)];
                if conn.execute(&END_BULK, &args).await? == 0 {
                    return Err(moved(self.bulk.id));
                }
            }
        }
        Ok(())
    }

    /// The next run that was set aside, and the wait before its attempt.
    async fn is_due(&self, conn: &mut Conn) -> Result<Option<(Duration, RunId)>, Error> {
        if self.account.aside().next().is_none() {
            return Ok(None);
        }
        let now = query::now(conn).await?;
        Ok(self.account.next(now, self.within.pauses))
    }

    /// Processes the runs after the cursor; true where more of them are left and must wait.
    async fn go_on(&mut self, conn: &mut Conn) -> Result<bool, Error> {
        let (next, is_last) = candidates(conn, self.bulk).await?;
        for run in &next {
            if !run.is_meant {
                self.account.pass(run.id);
                continue;
            }
            if let Some(why) = self.given_up(run.id) {
                self.account.fail(run.id, &why);
                continue;
            }
            // The run's transaction counts it as the last processed run.
            self.write(conn).await?;
            if Instant::now() >= self.within.until {
                self.worked.more = true;
                return Ok(true);
            }
            match self.deal(conn, run.id, None).await? {
                // The run has counted itself, or is gone.
                Outcome::Done => {}
                Outcome::Skipped => self.account.skip(run.id),
                Outcome::Failed(why) => self.account.fail(run.id, &why),
                Outcome::Locked => {
                    let (why, now) = (in_the_way(conn, run.id).await?, query::now(conn).await?);
                    self.account
                        .set_aside(run.id, &why, now, self.within.pauses);
                    if self.account.is_full() {
                        break;
                    }
                }
            }
        }
        self.write(conn).await?;
        if !is_last && !self.account.is_full() {
            self.worked.more = true;
            return Ok(true);
        }
        Ok(false)
    }

    /// Makes a further attempt at a run that was set aside.
    async fn come_back(&mut self, conn: &mut Conn, run: RunId) -> Result<(), Error> {
        let mut without = Account::after(self.account.failures.clone());
        without.settle(run);
        let again = Again {
            with: self.written.clone(),
            without: text(&without)?,
        };
        let outcome = match self.given_up(run) {
            Some(why) => Outcome::Failed(why),
            None => self.deal(conn, run, Some(again.clone())).await?,
        };
        let mut skipped = 0;
        match outcome {
            Outcome::Done => {
                (self.account, self.written) = (without, again.without);
                return Ok(());
            }
            Outcome::Skipped => {
                self.account.settle(run);
                skipped = 1;
            }
            Outcome::Failed(why) => self.account.give_up(run, &why),
            Outcome::Locked => {
                let (why, now) = (in_the_way(conn, run).await?, query::now(conn).await?);
                self.account.put_off(run, &why, now, self.within.pauses);
            }
        }
        let again = Again {
            without: text(&self.account)?,
            ..again
        };
        if settle(conn, self.bulk.id, &again, 0, skipped).await? == 0 {
            return Err(moved(self.bulk.id));
        }
        self.written = again.without;
        Ok(())
    }

    fn given_up(&self, run: RunId) -> Option<String> {
        let given_up = self.within.given_up.filter(|(id, _)| *id == run);
        given_up.map(|(_, why)| why.to_owned())
    }

    async fn deal(
        &mut self,
        conn: &mut Conn,
        run: RunId,
        again: Option<Again>,
    ) -> Result<Outcome, Error> {
        (self.at)(run);
        let Some(brief) = query::brief(conn, run).await? else {
            return Ok(Outcome::Skipped);
        };
        let by = Actor {
            again,
            ..self.bulk.actor()
        };
        match intervene(conn, self.bulk, run, self.definition, by).await {
            Ok(Outcome::Done) => {
                self.worked.pipelines.insert(brief.pipeline);
                Ok(Outcome::Done)
            }
            // A damaged row belongs to the run itself.
            Err(error @ (Error::Corrupt(_) | Error::Damaged { .. })) => {
                Ok(Outcome::Failed(error.to_string()))
            }
            // Where somebody has locked the action's own row, or SQLite's whole file, this result cannot be
            // written either, and the run is not to blame.
            Err(Error::Retryable { .. }) => Ok(Outcome::Locked),
            done => done,
        }
    }

    /// Stores which runs were processed and not changed.
    async fn write(&mut self, conn: &mut Conn) -> Result<(), Error> {
        let account = &mut self.account;
        let Some(run) = account.last else {
            return Ok(());
        };
        let failures = text(account)?;
        let args = [
            ("id", self.bulk.id.into()),
            ("run", run.0.into()),
            ("skipped", account.skipped.into()),
            ("failed", account.failed.into()),
            ("failures", (&failures).into()),
            ("before", (&self.written).into()),
        ];
        if conn.execute(&PASS_BULK, &args).await? == 0 {
            return Err(moved(self.bulk.id));
        }
        account.clear();
        self.written = failures;
        Ok(())
    }
}

/// The failures of an account, in the form in which they are stored.
fn text(account: &Account) -> Result<String, Error> {
    let unwritten = |error| Error::Corrupt(format!("failures cannot be written: {error}"));
    serde_json::to_string(&account.failures).map_err(unwritten)
}

/// Counts a run that was set aside in another way, or puts it off: 1, or 0 where somebody else was
/// faster.
pub(super) async fn settle(
    conn: &mut Conn,
    bulk: Uuid,
    again: &Again,
    done: i64,
    skipped: i64,
) -> Result<u64, Error> {
    let args = [
        ("id", bulk.into()),
        ("done", done.into()),
        ("skipped", skipped.into()),
        ("failures", (&again.without).into()),
        ("before", (&again.with).into()),
    ];
    conn.execute(&SETTLE_BULK, &args).await
}

/// The session that has locked rows of a run, as far as the database tells.
async fn in_the_way(conn: &mut Conn, run: RunId) -> Result<String, Error> {
    let by = match writable::holder(conn, run).await? {
        Some(holder) => holder,
        None => "another session of the database, which was gone when it was looked for".to_owned(),
    };
    Ok(format!("the run's rows are locked by {by}"))
}

async fn intervene(
    conn: &mut Conn,
    bulk: &Bulk,
    run: RunId,
    definition: Option<&Definition>,
    by: Actor,
) -> Result<Outcome, Error> {
    Ok(match bulk.verb {
        Verb::Revive => {
            let wanted = Wanted {
                definition,
                context: true,
                by: Some(&by),
            };
            match revive::revive_as(conn, run, wanted).await? {
                Revive::Done(_) => Outcome::Done,
                Revive::NotFound | Revive::NotHalted(_) | Revive::AlreadyRevived(_) => {
                    Outcome::Skipped
                }
                Revive::Disagrees(found) => Outcome::Failed(format!(
                    "it cannot go on with the newest definition: {}",
                    found.join(", ")
                )),
            }
        }
        Verb::Cancel => return cancelled(conn, run, by).await,
        Verb::Resume => {
            // A run may have gone on since, and ask something that nobody has seen.
            let asked = Asked::by(bulk.created_at);
            match resume::resume_asked(conn, run, None, None, Some(&by), asked).await? {
                Resume::Done(_) | Resume::Partly { .. } => Outcome::Done,
                Resume::TooMany => Outcome::Failed(format!(
                    "{}; `ductworkd resume {run}` answers them in batches",
                    resume::too_many(run)
                )),
                Resume::NotFound | Resume::NotDampened(_) | Resume::Late | Resume::Ambiguous(_) => {
                    Outcome::Skipped
                }
            }
        }
        Verb::Trigger | Verb::Pause | Verb::Unpause | Verb::Send => Outcome::Skipped,
    })
}

/// A daemon closes the rest of a wide run.
async fn cancelled(conn: &mut Conn, run: RunId, by: Actor) -> Result<Outcome, Error> {
    let mut cancelling = Cancelling::of(run, cancel::BATCH).by(Some(by));
    let until = Instant::now() + CANCELS_FOR;
    loop {
        match cancelling.step(conn).await? {
            Some(Cancel::Done { .. }) => return Ok(Outcome::Done),
            Some(Cancel::NotFound | Cancel::NotActive(_)) if cancelling.closed == 0 => {
                return Ok(Outcome::Skipped);
            }
            Some(Cancel::NotFound | Cancel::NotActive(_)) => return Ok(Outcome::Done),
            None if cancelling.closed > 0 => return Ok(Outcome::Done),
            None if Instant::now() >= until => return Ok(Outcome::Locked),
            None => tokio::time::sleep(cancel::AGAIN).await,
        }
    }
}

/// The error for a caller who finds that an action was stopped, or that somebody else works
/// on it.
pub(super) fn moved(bulk: Uuid) -> Error {
    Error::Gone(format!(
        "the bulk action {bulk} was stopped, or another console has gone on with it"
    ))
}
