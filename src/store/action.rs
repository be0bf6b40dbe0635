//! Actions: who did what to a run or a pipeline, when, and through which channel.
//!
//! Owns: writing the record of each action, in the transaction that intervenes, and reading these
//! records. Never: intervenes (`trigger`, `revive`, `cancel`, `resume`, `pause` do), or checks who somebody
//! is.

use std::time::Duration;

use uuid::Uuid;

use crate::model::*;

use super::conn::{Conn, Row};
use super::error::Error;
use super::micros;
use super::statement::{Rows, statements};

/// One transaction forgets at most this many.
const FORGOTTEN_AT_ONCE: u64 = 500;

// A damaged row may have texts of any length: this bounds how much of them is read.
macro_rules! action_columns {
    () => {
        "a.id, a.at, substr(a.by_whom, 1, 1000) AS by_whom, substr(a.channel, 1, 1000) AS channel,
               substr(a.verb, 1, 1000) AS verb, substr(a.pipeline, 1, 1000) AS pipeline, a.run_id, a.made_run,
               a.bulk_id"
    };
}

statements! {
    RECORD_ACTIONS = "
        INSERT INTO ductwork_actions (id, at, by_whom, channel, verb, pipeline, run_id, made_run, bulk_id)
        SELECT b.id, {now}, :by, :channel, :verb, r.pipeline, r.id, CAST(:made AS {id}), CAST(:bulk AS {id})
          FROM {rows:b(id id, run id)} JOIN ductwork_runs r ON {key:r.id;b.run}";
    RECORD_OF_PIPELINE = "
        INSERT INTO ductwork_actions (id, at, by_whom, channel, verb, pipeline)
        VALUES (:id, {now}, :by, :channel, :verb, :pipeline)";
    ACTIONS = concat!("
        SELECT ", action_columns!(), "
          FROM ductwork_actions a WHERE a.id < :before ORDER BY a.id DESC LIMIT :n");
    ACTIONS_OF_RUN = concat!("
        SELECT ", action_columns!(), "
          FROM ductwork_actions a WHERE a.run_id = :run AND a.id < :before
         ORDER BY a.run_id DESC, a.id DESC LIMIT :n");
    /// A wide cancellation that another person continues is theirs too: the first one began it. The actions before it are
    /// the answers to the run's questions, and those of a run are few.
    CANCELLATION = "
        SELECT substr(a.by_whom, 1, 1000) AS by_whom FROM ductwork_actions a
         WHERE a.run_id = :run AND a.verb = 'cancel' ORDER BY a.run_id, a.id LIMIT 1";
    ACTIONS_OF_BULK = concat!("
        SELECT ", action_columns!(), "
          FROM ductwork_actions a WHERE a.bulk_id = :bulk AND a.id < :before
         ORDER BY a.bulk_id DESC, a.id DESC LIMIT :n");
    /// RACE: two consoles work on one bulk action, or it is stopped meanwhile. All of them write its
    /// row; a transaction that finds it further on, or ended, changes no run. Proven by
    /// `of_two_who_work_on_one_bulk_action_each_run_is_counted_once` and
    /// `after_a_bulk_action_was_stopped_no_run_is_changed`.
    COUNT_IN_BULK = "
        UPDATE ductwork_bulks SET dealt = :run, done = done + 1
         WHERE id = :bulk AND ended_at IS NULL AND dealt < :run";
    /// Ids begin with the time: the first are the oldest, as far as the clocks agree.
    OLD_ACTIONS = "
        SELECT x.id FROM (SELECT a.id, a.at FROM ductwork_actions a ORDER BY a.id LIMIT :n) x
         WHERE x.at <= {now} - :age";
    FORGET_ACTIONS = "{delete:ductwork_actions;b(id id)} WHERE {of:ductwork_actions.id;b(id id)}";
}

/// A person or a program that intervenes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The name, as people read it.
    pub name: String,
    /// The channel of the action.
    pub channel: Channel,
    /// The bulk action that this is a part of.
    pub bulk: Option<Uuid>,
    /// Set where the bulk action set the run aside before.
    pub again: Option<Again>,
}

/// A bulk action comes back to a run that it set aside: its list of failed runs, with that run and without
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// The list as it is stored.
    pub with: String,
    /// The list as it will be stored.
    pub without: String,
}

impl Actor {
    /// Makes the actor of an action in one run or pipeline.
    pub fn new(name: impl Into<String>, channel: Channel) -> Self {
        Self {
            name: name.into(),
            channel,
            bulk: None,
            again: None,
        }
    }
}

/// Records that somebody did this to these runs, in the transaction that does it.
pub(super) async fn record(
    conn: &mut Conn,
    by: Option<&Actor>,
    verb: Verb,
    runs: impl IntoIterator<Item = RunId>,
    made: Option<RunId>,
) -> Result<(), Error> {
    let Some(by) = by else {
        return Ok(());
    };
    let rows: Vec<(Uuid, RunId)> = runs.into_iter().map(|run| (Uuid::now_v7(), run)).collect();
    if rows.is_empty() {
        return Ok(());
    }
    if let Some(bulk) = by.bulk {
        for (_, run) in &rows {
            let args = [("bulk", bulk.into()), ("run", run.0.into())];
            let counted = match &by.again {
                None => conn.execute(&COUNT_IN_BULK, &args).await?,
                Some(again) => super::bulk::settle(conn, bulk, again, 1, 0).await?,
            };
            if counted == 0 {
                return Err(super::bulk::moved(bulk));
            }
        }
    }
    let count = rows.len();
    let rows = Rows::new()
        .ids("id", rows.iter().map(|(id, _)| *id))
        .ids("run", rows.iter().map(|(_, run)| *run));
    let args = [
        ("b", (&rows).into()),
        ("by", (&by.name).into()),
        ("channel", by.channel.as_str().into()),
        ("verb", verb.as_str().into()),
        ("made", made.map(|run| run.0).into()),
        ("bulk", by.bulk.into()),
    ];
    conn.write(&RECORD_ACTIONS, &args, count).await
}

/// Records that somebody did this to a pipeline, in the transaction that does it.
pub(super) async fn record_of_pipeline(
    conn: &mut Conn,
    by: &Actor,
    verb: Verb,
    pipeline: &str,
) -> Result<(), Error> {
    let args = [
        ("id", Uuid::now_v7().into()),
        ("by", (&by.name).into()),
        ("channel", by.channel.as_str().into()),
        ("verb", verb.as_str().into()),
        ("pipeline", pipeline.into()),
    ];
    conn.execute(&RECORD_OF_PIPELINE, &args).await?;
    Ok(())
}

/// An action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Its key.
    pub id: Uuid,
    /// µs since 1970.
    pub at: i64,
    /// The person or the program.
    pub by: String,
    /// The channel: a newer version may know further ones.
    pub channel: String,
    /// The verb: a newer version may know further ones.
    pub verb: String,
    /// The pipeline.
    pub pipeline: String,
    /// The run; none where the action was in the pipeline.
    pub run: Option<RunId>,
    /// The run that a revival made.
    pub made: Option<RunId>,
    /// The bulk action that this was a part of.
    pub bulk: Option<Uuid>,
}

impl Action {
    fn read(row: &Row) -> Result<Self, Error> {
        let run = |name| Ok::<_, Error>(row.get::<Option<Uuid>>(name)?.map(RunId));
        Ok(Self {
            id: row.get("id")?,
            at: row.get("at")?,
            by: row.get("by_whom")?,
            channel: row.get("channel")?,
            verb: row.get("verb")?,
            pipeline: row.get("pipeline")?,
            run: run("run_id")?,
            made: run("made_run")?,
            bulk: row.get("bulk_id")?,
        })
    }
}

/// The actions to list.
#[derive(Clone, Copy, Debug)]
pub enum Of {
    /// All.
    All,
    /// Those in this run.
    Run(RunId),
    /// Those of a bulk action.
    Bulk(Uuid),
}

/// Actions, newest first: at most `n` that are older than `before`.
pub async fn latest(
    conn: &mut Conn,
    of: Of,
    before: Option<Uuid>,
    n: usize,
) -> Result<Vec<Action>, Error> {
    let before = ("before", before.unwrap_or(Uuid::max()).into());
    let n = ("n", n.into());
    let rows = match of {
        Of::Run(run) => {
            let args = [("run", run.0.into()), before, n];
            conn.fetch(&ACTIONS_OF_RUN, &args).await?
        }
        Of::Bulk(bulk) => {
            let args = [("bulk", bulk.into()), before, n];
            conn.fetch(&ACTIONS_OF_BULK, &args).await?
        }
        Of::All => conn.fetch(&ACTIONS, &[before, n]).await?,
    };
    rows.iter().map(Action::read).collect()
}

/// The name of the actor that cancelled a run.
pub(super) async fn cancelled_by(conn: &mut Conn, run: RunId) -> Result<Option<String>, Error> {
    let args = [("run", run.0.into())];
    let row = conn.fetch_optional(&CANCELLATION, &args).await?;
    row.map(|row| row.get("by_whom")).transpose()
}

/// Forgets actions older than `age`; true where more of them may be left.
pub(super) async fn forget(conn: &mut Conn, age: Duration) -> Result<bool, Error> {
    let n = FORGOTTEN_AT_ONCE;
    let args = [("age", micros(age).into()), ("n", (n as i64).into())];
    Ok(super::forget(conn, &OLD_ACTIONS, &FORGET_ACTIONS, &args).await? == n)
}
