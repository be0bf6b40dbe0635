//! Interventions in many runs at once.
//!
//! Owns: their rows, finding the runs that one is for, and dealing with these one by one, from the oldest on.
//! Never: intervenes by itself (`revive`, `cancel` and `resume` do), or decides who works on it.
//!
//! The transaction that changes a run counts it in the intervention's row (`action::record`), and only if no
//! later run has been dealt with and nobody has stopped it. So each run is counted once, whoever is killed; of
//! two who work on one intervention by mistake one goes on; and after it was stopped no run is changed.
//!
//! A run whose rows somebody else has locked must hold up no others. The cursor goes past it, and it is written
//! into the list of those that failed, and counted as one of them, with the time of the next attempt. The
//! transaction that changes it then takes it out of that list, and only if the list is as it was read: so it, too,
//! is counted once. Coming back by the cursor would need a second one in the row. Waiting for each run a little
//! would hold up the others as long as the lock is there, and fail all that the same session has locked. A program that
//! knows nothing of this finds a run that failed, which is true as long as nobody comes back to it.

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
use super::resume::{self, Resume};
use super::revive::{self, Revive, Wanted};
use super::statement::{Rows, statements};
use super::{halted, list, micros, query, writable};

/// Runs of one look.
const LOOK: usize = 100;

/// A run whose rows others have held for so long is set aside.
const CANCELS_FOR: Duration = Duration::from_millis(500);

/// Nobody can write: the wait before the next attempt.
const LATER: Duration = Duration::from_secs(2);

/// As many are forgotten in one transaction.
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
          FROM ductwork_bulks k WHERE k.ended_at IS NULL ORDER BY k.id LIMIT :n");
    /// Runs that are dealt with and were not changed.
    PASS_BULK = "
        UPDATE ductwork_bulks
           SET dealt = :run, skipped = skipped + :skipped, failed = failed + :failed, failures = :failures
         WHERE id = :id AND ended_at IS NULL AND dealt < :run AND failures = :before";
    /// A run that was set aside, and so counted as one that failed, is dealt with, or put off.
    ///
    /// RACE: two consoles come back to it at once. The transaction that finds another list changes no run. Proven by
    /// `a_run_that_was_set_aside_is_counted_once_whoever_comes_back_to_it`.
    SETTLE_BULK = "
        UPDATE ductwork_bulks
           SET done = done + :done, skipped = skipped + :skipped, failed = failed - :done - :skipped,
               failures = :failures
         WHERE id = :id AND ended_at IS NULL AND failures = :before";
    END_BULK = "
        UPDATE ductwork_bulks SET ended_at = coalesce(ended_at, {now}) WHERE id = :id";
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
    /// Their ids begin with the time: the first of them are the oldest.
    OLD_BULKS = "
        SELECT x.id FROM (SELECT k.id, k.ended_at FROM ductwork_bulks k ORDER BY k.id LIMIT :n) x
         WHERE x.ended_at <= {now} - :age";
    FORGET_BULKS = "{delete:ductwork_bulks;b(id id)} WHERE {of:ductwork_bulks.id;b(id id)}";
}

/// An intervention to make.
#[derive(Clone, Debug)]
pub struct NewBulk<'a> {
    /// The deed.
    pub verb: Verb,
    /// The runs.
    pub selection: &'a Selection,
    /// The definition with which revived runs go on; `None`: each with its own.
    pub definition: Option<&'a Definition>,
    /// No run with a greater id.
    pub newest: RunId,
    /// The person or the program.
    pub by: &'a Actor,
}

/// An intervention in many runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bulk {
    /// Its key.
    pub id: Uuid,
    /// The deed.
    pub verb: Verb,
    /// The runs.
    pub selection: Selection,
    /// The digest of the definition with which revived runs go on.
    pub definition: Option<String>,
    /// No run with a greater id is among them.
    pub newest: Uuid,
    /// All runs up to this one have been dealt with.
    pub dealt: Uuid,
    /// Runs that were changed.
    pub done: i64,
    /// Runs in which there was nothing to do any more.
    pub skipped: i64,
    /// Runs that were left as they are; those that are set aside, too.
    pub failed: i64,
    /// Some of those that failed, and all that are set aside.
    pub failures: Vec<Failure>,
    /// The same, as it is written.
    written: String,
    /// µs since 1970.
    pub created_at: i64,
    /// The person or the program.
    pub by: String,
    /// The way: a newer version may know further ones.
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

    /// Runs that are counted as failed, and are tried again; none when it has ended.
    pub fn aside(&self) -> i64 {
        let again = self.failures.iter().filter(|it| it.again.is_some());
        match self.ended_at {
            None => again.count() as i64,
            Some(_) => 0,
        }
    }

    /// The person or the program in whose name its runs are changed.
    fn actor(&self) -> Actor {
        Actor {
            name: self.by.clone(),
            // One of a newer version is worked on, and its way is told by its own row.
            channel: self.channel.parse().unwrap_or(Channel::Api),
            bulk: Some(self.id),
            again: None,
        }
    }
}

/// The newest run that there is: an intervention in all that match is for no later one.
pub async fn newest(conn: &mut Conn) -> Result<RunId, Error> {
    let row = conn.fetch_optional(&NEWEST_RUN, &[]).await?;
    Ok(RunId(match row {
        Some(row) => row.get("id")?,
        None => Uuid::nil(),
    }))
}

/// Writes an intervention down, for those who will work on it.
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
    conn.execute(&CREATE_BULK, &args).await?;
    Ok(id)
}

/// No run of a selection has an id as small as this.
fn first(selection: &Selection) -> Uuid {
    match selection {
        Selection::Chosen(_) => Uuid::nil(),
        Selection::Matching(filter) => filter.since.map_or(Uuid::nil(), |since| {
            list::id_at(since.saturating_sub(micros(list::SKEW)))
        }),
    }
}

/// One intervention.
pub async fn find(conn: &mut Conn, id: Uuid) -> Result<Option<Bulk>, Error> {
    let row = conn
        .fetch_optional(&FIND_BULK, &[("id", id.into())])
        .await?;
    row.as_ref().map(Bulk::read).transpose()
}

/// An intervention of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// One that can be read.
    Bulk(Box<Bulk>),
    /// One whose row is damaged, or of a newer version.
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

/// True when there is one of this id, whether it can be read or not.
pub async fn is_there(conn: &mut Conn, id: Uuid) -> Result<bool, Error> {
    let row = conn
        .fetch_optional(&FIND_BULK, &[("id", id.into())])
        .await?;
    Ok(row.is_some())
}

/// Interventions in many runs, newest first: at most `n` that are older than `before`.
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

/// The interventions that go on, oldest first: at most `n`. One that this version cannot read is for another.
pub async fn open(conn: &mut Conn, n: usize) -> Result<Vec<Bulk>, Error> {
    let rows = conn.fetch(&OPEN_BULKS, &[("n", n.into())]).await?;
    Ok(rows.iter().filter_map(|row| Bulk::read(row).ok()).collect())
}

/// Stops an intervention: when this has answered, no further run is changed by it. False when it had ended.
pub async fn stop(conn: &mut Conn, id: Uuid, by: &str) -> Result<bool, Error> {
    let args = [("id", id.into()), ("by", by.into())];
    Ok(conn.execute(&STOP_BULK, &args).await? == 1)
}

/// Forgets interventions that ended so long ago; true where there may be more of them.
pub(super) async fn forget(conn: &mut Conn, age: Duration) -> Result<bool, Error> {
    let n = FORGOTTEN_AT_ONCE;
    let args = [("age", micros(age).into()), ("n", (n as i64).into())];
    Ok(super::forget(conn, &OLD_BULKS, &FORGET_BULKS, &args).await? == n)
}

/// How many runs match, as far as `most`. The kind of their ends is not looked at.
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

/// A run that was chosen, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The run.
    pub id: RunId,
    /// Its pipeline.
    pub pipeline: String,
    /// Its state.
    pub status: RunStatus,
    /// The run as which it was revived.
    pub successor: Option<RunId>,
}

impl Chosen {
    /// True when this deed changes it.
    pub fn is_for(&self, verb: Verb) -> bool {
        states(verb).contains(&self.status) && self.successor.is_none()
    }
}

/// Those of these runs that there are, oldest first.
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

/// The states and the pipelines among whose runs those are that match.
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

/// A run that an intervention may be for.
struct Candidate {
    id: RunId,
    /// It is one of those that are meant.
    is_meant: bool,
}

/// The next runs, oldest first, and whether they are the last.
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

/// The result of a look at some runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worked {
    /// There is more to do.
    pub more: bool,
    /// Nothing before so long, where that is known.
    pub later: Option<Duration>,
    /// The pipelines of runs that were changed.
    pub pipelines: BTreeSet<String>,
}

/// The bounds of some work on an intervention.
#[derive(Clone, Copy, Debug)]
pub struct Within<'a> {
    /// No run is begun after this moment.
    pub until: Instant,
    /// A run that has taken too long again and again, and why that is.
    pub given_up: Option<(RunId, &'a str)>,
    /// The waits before each further attempt at a run that somebody else has locked.
    pub pauses: &'a [Duration],
}

/// The deed's result in one run.
enum Outcome {
    Done,
    Skipped,
    Failed(String),
    /// Somebody else has locked its rows.
    Locked,
}

/// Deals with the next runs of an intervention, until there are none or its time is over. `at` is told each run
/// before it is changed.
///
/// A failure of the database leaves the intervention where it is: called again, it goes on from there.
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
        // No run is to blame when nobody can write, or the intervention's own row is locked.
        Err(Error::Retryable { .. }) => (worked.more, worked.later) = (true, Some(LATER)),
        Err(error) => return Err(error),
    }
    Ok(worked)
}

/// Some work on an intervention.
struct Turn<'a> {
    bulk: &'a Bulk,
    definition: Option<&'a Definition>,
    within: Within<'a>,
    account: Account,
    /// The failures as they are written in the intervention's row.
    written: String,
    at: &'a mut (dyn FnMut(RunId) + Send),
    worked: &'a mut Worked,
}

impl Turn<'_> {
    async fn work(&mut self, conn: &mut Conn) -> Result<(), Error> {
        // One at a time, so that those go on that nobody has locked.
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
            None => drop(
                conn.execute(&END_BULK, &[("id", self.bulk.id.into())])
                    .await?,
            ),
        }
        Ok(())
    }

    /// The run that is set aside and comes next, and the wait until then.
    async fn is_due(&self, conn: &mut Conn) -> Result<Option<(Duration, RunId)>, Error> {
        if self.account.aside().next().is_none() {
            return Ok(None);
        }
        let now = query::now(conn).await?;
        Ok(self.account.next(now, self.within.pauses))
    }

    /// The runs behind the cursor; true where there are more of them and no room.
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
            // The run's transaction counts it as the last that was dealt with.
            self.write(conn).await?;
            if Instant::now() >= self.within.until {
                self.worked.more = true;
                return Ok(true);
            }
            match self.deal(conn, run.id, None).await? {
                // It has counted itself, or is gone.
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

    /// A further attempt at a run that was set aside.
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
        let Some(state) = query::run_state(conn, run).await? else {
            return Ok(Outcome::Skipped);
        };
        let by = Actor {
            again,
            ..self.bulk.actor()
        };
        match intervene(conn, self.bulk.verb, run, self.definition, by).await {
            Ok(Outcome::Done) => {
                self.worked.pipelines.insert(state.pipeline);
                Ok(Outcome::Done)
            }
            // Damage is the run's own.
            Err(error @ (Error::Corrupt(_) | Error::Damaged { .. })) => {
                Ok(Outcome::Failed(error.to_string()))
            }
            // Where somebody has locked the intervention's own row, or all of SQLite's file, this cannot be written
            // either, and the run is not to blame.
            Err(Error::Retryable { .. }) => Ok(Outcome::Locked),
            done => done,
        }
    }

    /// Writes down which runs were dealt with and not changed.
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

/// The failures of an account, as they are written.
fn text(account: &Account) -> Result<String, Error> {
    let unwritten = |error| Error::Corrupt(format!("failures cannot be written: {error}"));
    serde_json::to_string(&account.failures).map_err(unwritten)
}

/// Counts a run that was set aside otherwise, or puts it off: 1, or 0 where another was faster.
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
    verb: Verb,
    run: RunId,
    definition: Option<&Definition>,
    by: Actor,
) -> Result<Outcome, Error> {
    Ok(match verb {
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
        Verb::Resume => match resume::resume(conn, run, None, None, Some(&by)).await? {
            Resume::Done(_) => Outcome::Done,
            Resume::NotFound | Resume::NotDampened(_) | Resume::Ambiguous(_) => Outcome::Skipped,
        },
        Verb::Trigger | Verb::Pause | Verb::Unpause | Verb::Send => Outcome::Skipped,
    })
}

/// The rest of a run that is wide is closed by an advancer.
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

/// The word of those who find that an intervention was stopped, or that somebody else works on it.
pub(super) fn moved(bulk: Uuid) -> Error {
    Error::Gone(format!(
        "the bulk action {bulk} was stopped, or another console has gone on with it"
    ))
}
