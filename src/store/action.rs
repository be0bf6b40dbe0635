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
    RECORD_ACTIONS = "
        INSERT INTO ductwork_actions (id, at, by_whom, channel, verb, pipeline, run_id, made_run)
        SELECT b.id, {now}, :by, :channel, :verb, r.pipeline, r.id, CAST(:made AS {id})
          FROM {rows:b(id id, run id)} JOIN ductwork_runs r ON {key:r.id;b.run}";
    RECORD_OF_PIPELINE = "
        INSERT INTO ductwork_actions (id, at, by_whom, channel, verb, pipeline)
        VALUES (:id, {now}, :by, :channel, :verb, :pipeline)";
    ACTIONS = "
        SELECT a.id, a.at, a.by_whom, a.channel, a.verb, a.pipeline, a.run_id, a.made_run
          FROM ductwork_actions a WHERE a.id < :before ORDER BY a.id DESC LIMIT :n";
    ACTIONS_OF_RUN = "
        SELECT a.id, a.at, a.by_whom, a.channel, a.verb, a.pipeline, a.run_id, a.made_run
          FROM ductwork_actions a WHERE a.run_id = :run AND a.id < :before
         ORDER BY a.run_id DESC, a.id DESC LIMIT :n";
    /// Their ids begin with the time: the first of them are the oldest, as far as clocks agree.
    FORGET_ACTIONS = "
        DELETE FROM ductwork_actions
         WHERE at <= {now} - :age AND id IN (SELECT id FROM ductwork_actions ORDER BY id LIMIT :n)";
}

/// A person or a program that intervenes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The name, as people read it.
    pub name: String,
    /// The way.
    pub channel: Channel,
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
        })
    }
}

/// Interventions, newest first: those in this run, or all; at most `n` that are older than `before`.
pub async fn latest(
    conn: &mut Conn,
    run: Option<RunId>,
    before: Option<Uuid>,
    n: usize,
) -> Result<Vec<Action>, Error> {
    let before = ("before", before.unwrap_or(Uuid::max()).into());
    let n = ("n", n.into());
    let rows = match run {
        Some(run) => {
            let args = [("run", run.0.into()), before, n];
            conn.fetch(&ACTIONS_OF_RUN, &args).await?
        }
        None => conn.fetch(&ACTIONS, &[before, n]).await?,
    };
    rows.iter().map(Action::read).collect()
}

/// Forgets interventions of so long ago; true where there may be more of them.
pub(super) async fn forget(conn: &mut Conn, age: Duration) -> Result<bool, Error> {
    let n = FORGOTTEN_AT_ONCE;
    let args = [("age", micros(age).into()), ("n", (n as i64).into())];
    Ok(conn.execute(&FORGET_ACTIONS, &args).await? == n)
}
