//! Starting runs.
//!
//! Owns: the rows of a new run: run, root branch, start step, execution, availability; all or
//! nothing, many at once.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::definition::Definition;
use crate::definition::input::Json;
use crate::failpoint::failpoint;
use crate::model::*;

use super::action::{self, Actor};
use super::backend::Asks;
use super::batch::NewRunRow;
use super::batch_size;
use super::conn::Conn;
use super::definition;
use super::error::Error;
use super::micros;
use super::statement::{Args, Rows, Statement, statements};

/// Runs per statement; their bytes have a bound of their own.
const CHUNK: usize = 1_000;

statements! {
    TRIGGER in Postgres from "backend/postgres/trigger.sql";
    TRIGGER_KEYED in Postgres from "backend/postgres/trigger.sql";
    INSERT_RUNS in InTurn from "backend/sqlite/trigger.sql";
    INSERT_KEYED_RUNS in Sqlite from "backend/sqlite/trigger.sql", on Mysql [&KEEP_KEYED_RUNS, &MADE_RUNS];
    KEEP_KEYED_RUNS in Mysql from "backend/mysql/trigger.sql";
    MADE_RUNS in Mysql from "backend/mysql/trigger.sql";
    INSERT_ROOTS in InTurn from "backend/sqlite/trigger.sql";
    INSERT_STARTS in InTurn from "backend/sqlite/trigger.sql";
    INSERT_FIRST_EXECUTIONS in InTurn from "backend/sqlite/trigger.sql";
    INSERT_FIRST_AVAILABILITIES in InTurn from "backend/sqlite/trigger.sql";
    /// An input that is longer than `size` is left out. It is probably a different one; `as_known` reads it alone.
    RUNS_BY_KEY = "
        SELECT r.id, r.trigger_key, r.pruning_at, CASE WHEN octet_length(r.input) <= b.size THEN r.input END AS input
          FROM {rows:b(trigger_key text, size int)}
          JOIN ductwork_runs r {found:ductwork_runs_trigger_key}
            ON r.pipeline = :pipeline AND r.trigger_key = b.trigger_key{narrow: AND r.keyed = :pipeline}";
    /// For databases that statements are sent to in turn.
    BEGIN_RUNS runs [
        &INSERT_ROOTS,
        &INSERT_STARTS,
        &INSERT_FIRST_EXECUTIONS,
        &INSERT_FIRST_AVAILABILITIES,
    ];
    INSERT_AND_BEGIN_RUNS runs [
        &INSERT_RUNS,
        &INSERT_ROOTS,
        &INSERT_STARTS,
        &INSERT_FIRST_EXECUTIONS,
        &INSERT_FIRST_AVAILABILITIES,
    ];
}

/// A run to start.
#[derive(Clone, Debug)]
pub struct NewRun<'a> {
    /// The key that makes a second trigger return the first run.
    pub key: Option<&'a str>,
    /// One JSON value.
    pub input: &'a str,
}

/// The answer for a requested run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Triggered {
    /// The run: a new one, or the one that the key had started.
    pub run_id: RunId,
    /// False when the key had started the run before.
    pub created: bool,
    /// True when the key had started the run with another input.
    pub input_differs: bool,
}

/// The longest key, in characters: the limit of an index in every database.
pub const KEY_MAX: usize = 512;

/// Starts runs of one definition; returns one answer per element of `runs`, in their order.
///
/// One transaction per thousand runs, or fewer where their inputs are large; on PostgreSQL one
/// statement. A second trigger with a key returns the first run. After a lost acknowledgement, or when
/// the database goes away after some of the runs: with a key, trigger again; without a key, the run may
/// exist. An error does not tell whether an earlier transaction succeeded.
pub async fn trigger(
    conn: &mut Conn,
    definition: &Definition,
    runs: &[NewRun<'_>],
    delay: Duration,
) -> Result<Vec<Triggered>, Error> {
    trigger_by(conn, definition, runs, delay, None, None).await
}

/// The same, by somebody, who is recorded with each new run, and for a caller, whose passed-on data each
/// new run keeps.
pub async fn trigger_by(
    conn: &mut Conn,
    definition: &Definition,
    runs: &[NewRun<'_>],
    delay: Duration,
    by: Option<&Actor>,
    within: Option<&Caller>,
) -> Result<Vec<Triggered>, Error> {
    let digest = definition::save(conn, definition).await?;
    let mut triggered = Vec::with_capacity(runs.len());
    while let left @ [_, ..] = &runs[triggered.len()..] {
        let together = batch_size::first(CHUNK, left.iter().map(|run| run.input.len()));
        let runs = &left[..together];
        let inserted = insert(conn, definition, &digest, runs, delay, by, within).await;
        triggered.extend(inserted.map_err(|error| match triggered.is_empty() {
            true => error,
            false => error.after_commit(),
        })?);
    }
    Ok(triggered)
}

/// The run that this key has started, if there is one: the answer that a trigger would give. A caller asks for it
/// before it judges the request, because the run may have begun under other rules than today's.
///
/// RACE: two callers with one key find no run here, and both trigger. The insertion refuses the second of them, which
/// gets the run of the first. Raced by `triggers_with_one_key_make_one_run`.
pub async fn repeated(
    conn: &mut Conn,
    pipeline: &str,
    run: &NewRun<'_>,
) -> Result<Option<Triggered>, Error> {
    let Some(key) = run.key else {
        return Ok(None);
    };
    let known = known(conn, pipeline, &keys(std::slice::from_ref(run))).await?;
    match known.contains_key(key) {
        true => as_known(conn, pipeline, run, &known).await.map(Some),
        false => Ok(None),
    }
}

async fn insert(
    conn: &mut Conn,
    definition: &Definition,
    digest: &str,
    runs: &[NewRun<'_>],
    delay: Duration,
    by: Option<&Actor>,
    within: Option<&Caller>,
) -> Result<Vec<Triggered>, Error> {
    let ids: Vec<RunId> = runs.iter().map(|_| RunId::new()).collect();
    let wanted = wanted(runs, &ids);
    let is_keyed = runs.iter().any(|run| run.key.is_some());
    let asked = rows(runs, &wanted);
    let start = definition.node(crate::definition::NodeIndex(0));
    let part = |of: fn(&Caller) -> Option<&str>| within.and_then(of).into();
    let span = within.and_then(|it| it.span).map(|it| it.to_string());
    let delay = delay.saturating_add(definition.first_delay());
    let args = [
        ("pipeline", (&definition.pipeline).into()),
        ("definition", digest.into()),
        ("node", (&start.name).into()),
        ("step", start.step.as_deref().unwrap_or_default().into()),
        ("delay", micros(delay).into()),
        ("trace_parent", span.as_deref().into()),
        ("trace_state", part(|it| it.state.as_deref())),
        ("baggage", part(|it| it.baggage.as_deref())),
        ("new_runs", (&asked).into()),
    ];
    failpoint!(conn, "trigger.begin");
    let created = match (conn.asks(), is_keyed) {
        (Asks::Joined, true) => joined(conn, &TRIGGER_KEYED, &args, by).await?,
        (Asks::Joined, false) => joined(conn, &TRIGGER, &args, by).await?,
        (Asks::InTurn, true) => keyed_in_turn(conn, &args, (runs, &wanted), by).await?,
        (Asks::InTurn, false) => {
            in_turn(conn, &args, by, &ids).await?;
            ids.iter().copied().collect()
        }
    };
    failpoint!(conn, "trigger.end");
    // The runs have begun, whether or not they can be read.
    answers(conn, &definition.pipeline, runs, &ids, &created)
        .await
        .map_err(Error::after_commit)
}

/// The runs to insert: the same key twice in one call means one run, as in two calls.
fn wanted(runs: &[NewRun<'_>], ids: &[RunId]) -> Vec<(usize, Begun)> {
    let mut seen = HashSet::new();
    let mut wanted = Vec::with_capacity(runs.len());
    for (index, run) in runs.iter().enumerate() {
        if run.key.is_none_or(|key| seen.insert(key)) {
            wanted.push((index, Begun::new(ids[index])));
        }
    }
    wanted
}

/// Inserts in one statement, and returns the runs that it created.
async fn joined(
    conn: &mut Conn,
    statement: &'static Statement,
    args: Args<'_>,
    by: Option<&Actor>,
) -> Result<HashSet<RunId>, Error> {
    if by.is_none() {
        return created(&conn.fetch_autocommit(statement, args).await?);
    }
    let inserted = conn.transaction(async |conn| {
        let created = created(&conn.fetch(statement, args).await?)?;
        record(conn, by, &created).await?;
        Ok(created)
    });
    inserted.await
}

/// Inserts one statement after another, without keys: all runs are new.
async fn in_turn(
    conn: &mut Conn,
    args: Args<'_>,
    by: Option<&Actor>,
    ids: &[RunId],
) -> Result<(), Error> {
    let inserted = conn.transaction(async |conn| {
        if by.is_none() {
            conn.fetch_and_commit(&INSERT_AND_BEGIN_RUNS, args).await?;
            return Ok(());
        }
        conn.fetch(&INSERT_AND_BEGIN_RUNS, args).await?;
        record(conn, by, &ids.iter().copied().collect()).await
    });
    inserted.await
}

/// The same with keys: returns the runs that were created.
async fn keyed_in_turn(
    conn: &mut Conn,
    args: Args<'_>,
    (runs, wanted): (&[NewRun<'_>], &[(usize, Begun)]),
    by: Option<&Actor>,
) -> Result<HashSet<RunId>, Error> {
    let inserted = conn.transaction(async |conn| {
        let created = created(&conn.fetch(&INSERT_KEYED_RUNS, args).await?)?;
        let begun = wanted.iter().filter(|(_, it)| created.contains(&it.run));
        let begun = rows(runs, &begun.copied().collect::<Vec<_>>());
        let others = args.iter().filter(|(name, _)| *name != "new_runs").cloned();
        let args: Vec<_> = others.chain([("new_runs", (&begun).into())]).collect();
        failpoint!(conn, "trigger.written");
        record(conn, by, &created).await?;
        conn.fetch_and_commit(&BEGIN_RUNS, &args).await?;
        Ok(created)
    });
    inserted.await
}

/// One answer for each requested run.
async fn answers(
    conn: &mut Conn,
    pipeline: &str,
    runs: &[NewRun<'_>],
    ids: &[RunId],
    created: &HashSet<RunId>,
) -> Result<Vec<Triggered>, Error> {
    let known = match created.len() < runs.len() {
        true => known(conn, pipeline, &keys(runs)).await?,
        false => Known::new(),
    };
    let mut answers = Vec::with_capacity(runs.len());
    for (run, id) in runs.iter().zip(ids) {
        answers.push(match created.contains(id) {
            true => Triggered {
                run_id: *id,
                created: true,
                input_differs: false,
            },
            false => as_known(conn, pipeline, run, &known).await?,
        });
    }
    Ok(answers)
}

async fn record(
    conn: &mut Conn,
    by: Option<&Actor>,
    created: &HashSet<RunId>,
) -> Result<(), Error> {
    action::record(conn, by, Verb::Trigger, created.iter().copied(), None).await
}

/// The runs that keys had started, with their inputs as far as these were read.
type Known = HashMap<String, (RunId, Option<String>)>;

/// The keys of these runs, each with the length in bytes up to which the key's input is read with all others: many
/// long inputs together might not fit.
fn keys<'a>(runs: &[NewRun<'a>]) -> HashSet<(&'a str, i64)> {
    const ROOM: usize = 16 << 10;
    let length = |input: &str| input.len().saturating_mul(4).saturating_add(ROOM) as i64;
    let keys = runs.iter();
    keys.filter_map(|run| Some((run.key?, length(run.input))))
        .collect()
}

async fn known(
    conn: &mut Conn,
    pipeline: &str,
    asked: &HashSet<(&str, i64)>,
) -> Result<Known, Error> {
    let keys = Rows::new()
        .texts("trigger_key", asked.iter().map(|(key, _)| *key))
        .ints("size", asked.iter().map(|(_, size)| *size));
    let args = [("b", (&keys).into()), ("pipeline", pipeline.into())];
    let mut known = Known::new();
    for row in conn.fetch_latest(&RUNS_BY_KEY, &args).await? {
        let key: String = row.get("trigger_key")?;
        if row.get::<Option<i64>>("pruning_at")?.is_some() {
            let text = format!("the run with the key {key:?} is being deleted: try again later");
            return Err(Error::Gone(text));
        }
        // A key appears once for each requested length.
        let (id, input) = (RunId(row.get("id")?), row.get("input")?);
        let run = known.entry(key).or_insert((id, None));
        run.1 = run.1.take().or(input);
    }
    Ok(known)
}

/// The answer for a run whose key had started a run before.
async fn as_known(
    conn: &mut Conn,
    pipeline: &str,
    run: &NewRun<'_>,
    found: &Known,
) -> Result<Triggered, Error> {
    let key = run.key.unwrap_or_default();
    let alone;
    let found = match found.get(key) {
        // White space and escapes may make the same value as long as they like.
        Some((_, None)) => {
            alone = known(conn, pipeline, &HashSet::from([(key, i64::MAX)])).await?;
            alone.get(key)
        }
        found => found,
    };
    let (run_id, input) = found.ok_or_else(|| {
        // The run existed when ours was refused, and was pruned before we read it.
        Error::Gone(format!(
            "the run with the key {key:?} was deleted at this very moment"
        ))
    })?;
    Ok(Triggered {
        run_id: *run_id,
        created: false,
        input_differs: input.as_deref().is_none_or(|it| !is_same(it, run.input)),
    })
}

/// True for the same value, whatever its spacing and the order of its objects' keys: a client that repeats a
/// request may write it differently.
fn is_same(one: &str, other: &str) -> bool {
    one == other || Json::of(one).spelled() == Json::of(other).spelled()
}

/// The keys of a run's first rows.
#[derive(Clone, Copy)]
struct Begun {
    run: RunId,
    branch: BranchId,
    step: StepId,
    execution: ExecutionId,
}

impl Begun {
    fn new(run: RunId) -> Self {
        Self {
            run,
            branch: BranchId::new(),
            step: StepId::new(),
            execution: ExecutionId::new(),
        }
    }
}

fn rows<'a>(runs: &[NewRun<'a>], begun: &[(usize, Begun)]) -> Rows<'a> {
    NewRunRow::batch(begun.iter().map(|(index, begun)| NewRunRow {
        id: begun.run.0,
        input: runs[*index].input,
        trigger_key: runs[*index].key,
        branch_id: begun.branch.0,
        step_id: begun.step.0,
        execution_id: begun.execution.0,
    }))
}

fn created(rows: &[super::Row]) -> Result<HashSet<RunId>, Error> {
    rows.iter().map(|row| Ok(RunId(row.get("id")?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Pipeline;
    use crate::store::{Location, Purpose, migrate};

    #[tokio::test]
    async fn what_ends_after_a_thousand_runs_may_have_happened() {
        let directory = tempfile::tempdir().expect("a directory");
        let location = Location::sqlite(directory.path().join("t.db"));
        let conn = location.connect(Purpose::Engine).await;
        let mut conn = conn.expect("a file of its own");
        migrate::migrate(&mut conn).await.expect("a new schema");
        // 8 MiB more than an empty database.
        let full = conn.script("FULL", "PRAGMA max_page_count = 2048").await;
        full.expect("a setting that SQLite has");
        let definition = Pipeline::named("Tests").start("Step").build();
        let definition = definition.expect("a definition");
        let large = format!("\"{}\"", "x".repeat(16 << 20));
        let small = NewRun {
            key: None,
            input: "1",
        };
        let mut runs = vec![small; CHUNK];
        runs.push(NewRun {
            key: None,
            input: &large,
        });
        for (runs, some) in [(&runs[CHUNK..], false), (&runs[..], true)] {
            match trigger(&mut conn, &definition, runs, Duration::ZERO).await {
                Err(Error::Unavailable { in_commit, .. }) => assert_eq!(in_commit, some),
                other => panic!("{other:?}"),
            }
        }
    }
}
