//! Interventions: who did what to a run or a pipeline, when, and by which way.
//!
//! Owns: the record of each, which the transaction writes that does it, and reading them. Never: intervenes
//! (`trigger`, `revive`, `cancel`, `resume`, `pause` do), or asks who somebody is.

use std::time::Duration;

use uuid::Uuid;

use crate::model::*;

use super::conn::{Conn, Row};
use super::error::Error;
use super::micros;
use super::statement::{Rows, statements};

/// As many are forgotten in one transaction.
const FORGOTTEN_AT_ONCE: u64 = 500;

statements! {
    // A row that somebody has damaged may have texts of any length: so much of them is read.
    RECORD_ACTIONS = "
        INSERT INTO ductwork_actions (id, at, by_whom, channel, verb, pipeline, run_id, made_run, bulk_id)
        SELECT b.id, {now}, :by, :channel, :verb, r.pipeline, r.id, CAST(:made AS {id}), CAST(:bulk AS {id})
          FROM {rows:b(id id, run id)} JOIN ductwork_runs r ON {key:r.id;b.run}";
    RECORD_OF_PIPELINE = "
        INSERT INTO ductwork_actions (id, at, by_whom, channel, verb, pipeline)
        VALUES (:id, {now}, :by, :channel, :verb, :pipeline)";
    ACTIONS = "
        SELECT a.id, a.at, substr(a.by_whom, 1, 1000) AS by_whom, substr(a.channel, 1, 1000) AS channel,
               substr(a.verb, 1, 1000) AS verb, substr(a.pipeline, 1, 1000) AS pipeline, a.run_id, a.made_run,
               a.bulk_id
          FROM ductwork_actions a WHERE a.id < :before ORDER BY a.id DESC LIMIT :n";
    ACTIONS_OF_RUN = "
        SELECT a.id, a.at, substr(a.by_whom, 1, 1000) AS by_whom, substr(a.channel, 1, 1000) AS channel,
               substr(a.verb, 1, 1000) AS verb, substr(a.pipeline, 1, 1000) AS pipeline, a.run_id, a.made_run,
               a.bulk_id
          FROM ductwork_actions a WHERE a.run_id = :run AND a.id < :before
         ORDER BY a.run_id DESC, a.id DESC LIMIT :n";
    ACTIONS_OF_BULK = "
        SELECT a.id, a.at, substr(a.by_whom, 1, 1000) AS by_whom, substr(a.channel, 1, 1000) AS channel,
               substr(a.verb, 1, 1000) AS verb, substr(a.pipeline, 1, 1000) AS pipeline, a.run_id, a.made_run,
               a.bulk_id
          FROM ductwork_actions a WHERE a.bulk_id = :bulk AND a.id < :before
         ORDER BY a.bulk_id DESC, a.id DESC LIMIT :n";
    /// RACE: two consoles work on one bulk intervention, or it is stopped meanwhile. All write its row; the
    /// transaction that finds it further on, or at its end, changes no run. Proven by
    /// `of_two_who_work_on_one_bulk_action_each_run_is_counted_once` and
    /// `after_a_bulk_action_was_stopped_no_run_is_changed`.
    COUNT_IN_BULK = "
        UPDATE ductwork_bulks SET dealt = :run, done = done + 1
         WHERE id = :bulk AND ended_at IS NULL AND dealt < :run";
    /// Their ids begin with the time: the first of them are the oldest, as far as clocks agree.
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
    /// The way.
    pub channel: Channel,
    /// The intervention in many runs of which this is a part.
    pub bulk: Option<Uuid>,
    /// The run was set aside by it before.
    pub again: Option<Again>,
}

/// An intervention in many runs comes back to one that it has set aside: its list of those that failed, with that
/// run and without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// As it is written.
    pub with: String,
    /// As it will be.
    pub without: String,
}

impl Actor {
    /// Somebody who intervenes in one run or pipeline.
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

/// An intervention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Its key.
    pub id: Uuid,
    /// µs since 1970.
    pub at: i64,
    /// The person or the program.
    pub by: String,
    /// The way: a newer version may know further ones.
    pub channel: String,
    /// The deed; likewise.
    pub verb: String,
    /// The pipeline.
    pub pipeline: String,
    /// The run, unless it was the pipeline's.
    pub run: Option<RunId>,
    /// The run that a revival made.
    pub made: Option<RunId>,
    /// The intervention in many runs of which it was a part.
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

/// The interventions to list.
#[derive(Clone, Copy, Debug)]
pub enum Of {
    /// All.
    All,
    /// Those in this run.
    Run(RunId),
    /// Those of an intervention in many runs.
    Bulk(Uuid),
}

/// Interventions, newest first: at most `n` that are older than `before`.
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

/// Forgets interventions of so long ago; true where there may be more of them.
pub(super) async fn forget(conn: &mut Conn, age: Duration) -> Result<bool, Error> {
    let n = FORGOTTEN_AT_ONCE;
    let args = [("age", micros(age).into()), ("n", (n as i64).into())];
    Ok(super::forget(conn, &OLD_ACTIONS, &FORGET_ACTIONS, &args).await? == n)
}
