//! Copies everything in one database to another of any kind.
//!
//! Owns: the tables and their columns, in one list; the order in which rows are read; the mark that keeps everybody
//! away from an incomplete copy. Never: deletes or changes anything in the source database, or writes into a
//! database that is in use.
//!
//! Processes and their duties are not copied: none of them is at work when a copy is made. The processes of the
//! other database register there, and take up the work that a killed process held when its leases are over.
//! Everything else is copied, including ids and times, so that a run is the same run afterwards.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use uuid::Uuid;

use super::backend::Setting;
use super::batch::Kind;
use super::batch_size;
use super::conn::{Conn, Row};
use super::error::Error;
use super::migrate;
use super::process::{self, ProcessRow};
use super::statement::{Arg, Column, Rows, Statement, statements};

/// The migration that a copy seems to be waiting for while it is made: no program knows it, and its record says that
/// every program must.
pub const UNFINISHED: i64 = i64::MAX;

/// How many rows are read, and written, at once.
const ROWS: usize = 2_000;

/// A value is in several places on its way, and in some of them written as JSON: each of its bytes counts this many
/// times.
const WEIGHT: usize = 4;

/// The tables that get a row with everything that a person does, and with every process that has come and gone.
const TELLING: [&str; 3] = ["ductwork_runs", "ductwork_actions", "ductwork_departed"];

statements! {
    MARK = "
        INSERT INTO ductwork_migrations (version, name, applied_at, needs)
        VALUES (:version, 'a copy that is not complete', {now}, :version)";
    /// For a database without a schema: the column that tells which version a program needs comes with the schema.
    MARK_FRESH = "
        INSERT INTO ductwork_migrations (version, name, applied_at)
        VALUES (:version, 'a copy that is not complete', {now})";
    UNMARK = "DELETE FROM ductwork_migrations WHERE version = :version";
}

/// The copied tables: the name of each, the columns of its primary key, and all columns with their types.
const DECLARED: &[(&str, &str, &str)] = &[
    (
        "ductwork_definitions",
        "digest",
        "digest text, pipeline text, body text, created_at int",
    ),
    (
        "ductwork_runs",
        "id",
        "id id, pipeline text, definition text, status text, input text, output text, trigger_key text, \
                  revived_from id, dampened int, triggered_at int, completed_at int, halted_at int, cancelled_at int, \
                  cancelling_at int, pruning_at int, trace_parent text, trace_state text, baggage text, revivals int",
    ),
    (
        "ductwork_branches",
        "id",
        "id id, run_id id, pipeline text, fan_out_id id, ordinal int, status text, halt_reason text, step_id \
                  id, output text, ready_at int, claim_token id, claimed_for_advancing_at int, last_advanced_at int",
    ),
    (
        "ductwork_fan_outs",
        "id",
        "id id, run_id id, branch_id id, node text, via text, width int, arrived int, halted int, \
                  parent_fan_out_id id, parent_ordinal int, created_at int, fired_at int",
    ),
    (
        "ductwork_steps",
        "id",
        "id id, run_id id, branch_id id, ordinal int, node text, step text, via text, transition_id id, \
                  source_step_id id, status text, input text, output text, created_at int, completed_at int, \
                  answered_by text",
    ),
    (
        "ductwork_executions",
        "id",
        "id id, step_id id, pipeline text, attempt int, retry_count int, crash_count int, process_id id, \
                  claimed_at int, lease_until int, completed_at int, result text, error_class text, error_message \
                  text, error_backtrace text, log text",
    ),
    (
        "ductwork_availabilities",
        "execution_id",
        "execution_id id, pipeline text, due_at int",
    ),
    (
        "ductwork_transitions",
        "id",
        "id id, run_id id, branch_id id, from_step_id id, via text, produced int, retry_count int, \
                  crash_count int, opened_at int, completed_at int",
    ),
    (
        "ductwork_advancements",
        "transition_id, id",
        "id id, transition_id id, branch_id id, process_id id, claim_token id, crash_count int, claimed_at \
                  int, lease_until int, completed_at int, result text, error_class text, error_message text",
    ),
    (
        "ductwork_tuples",
        "run_id, key",
        "run_id id, key text, value text, first_set_at int, last_set_at int",
    ),
    (
        "ductwork_deadlines",
        "branch_id",
        "branch_id id, answer_by int, unanswered text",
    ),
    (
        "ductwork_departed",
        "id",
        "id id, role text, pipeline text, host text, pid int, version text, started_at int, gone_at int, \
                  death text, went_on_as id",
    ),
    (
        "ductwork_metrics",
        "process_id",
        "process_id id, written_at int, body text",
    ),
    (
        "ductwork_actions",
        "id",
        "id id, at int, by_whom text, channel text, verb text, pipeline text, run_id id, made_run id, bulk_id \
                  id",
    ),
    (
        "ductwork_tokens",
        "id",
        "id text, kind text, name text, digest text, scope text, pipelines text, created_at int, created_by \
                  text, expires_at int, ended_at int, parent text, payloads int",
    ),
    (
        "ductwork_pauses",
        "pipeline",
        "pipeline text, reason text, paused_by text, paused_at int, holds int",
    ),
    (
        "ductwork_bulks",
        "id",
        "id id, verb text, selection text, definition text, newest id, dealt id, done int, skipped int, \
                  failed int, failures text, created_at int, by_whom text, channel text, ended_at int, stopped_by text",
    ),
    (
        "ductwork_webhooks",
        "name",
        "name text, since int, seen int",
    ),
    (
        "ductwork_deliveries",
        "id",
        "id id, endpoint text, run_id id, event text, pipeline text, body text, state text, attempts int, \
                  created_at int, due_at int, tried_at int, status int, error text",
    ),
    (
        "ductwork_reports",
        "id",
        "id id, kind text, at int, ok int, figures text",
    ),
    (
        "ductwork_series",
        "pipeline, grain, at",
        "pipeline text, grain text, at int, since int, started int, completed int, halted int, retries int, \
                  waited text, lasted text",
    ),
    ("ductwork_series_looks", "id", "id int, turn int, body text"),
];

/// Names for the columns of a batch: some names of a table's columns are keywords of SQL.
const IN_BATCH: [&str; 20] = [
    "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11", "c12", "c13", "c14",
    "c15", "c16", "c17", "c18", "c19",
];

/// Names of the parameters that contain the key of the last row.
const AFTER: [&str; 3] = ["after0", "after1", "after2"];

/// A table, and the statements for it.
struct Table {
    name: &'static str,
    columns: Vec<(&'static str, Kind)>,
    /// The positions of the key's columns among them.
    key: Vec<usize>,
    /// The first page: a key may be the least possible one, such as that of a row with nobody's id.
    first: Page,
    /// The page after a row.
    next: Page,
    write: Statement,
    /// Writes one row, with its values sent separately: a server's packet may have room for each value, and
    /// not for all.
    write_one: Statement,
    count: Statement,
}

/// A page of rows of a table.
struct Page {
    /// The sizes of the rows.
    sizes: Statement,
    read: Statement,
}

static TABLES: LazyLock<Vec<Table>> = LazyLock::new(|| {
    let table = |(name, key, columns): &(&'static str, &str, &'static str)| {
        let columns = columns.split(", ").map(|column| {
            let (name, kind) = column.split_once(' ').expect("a column has a type");
            (name, Kind::named(kind))
        });
        Table::of(name, key, columns.collect())
    };
    DECLARED.iter().map(table).collect()
});

impl Table {
    fn of(name: &'static str, key: &str, columns: Vec<(&'static str, Kind)>) -> Self {
        let keys: Vec<String> = key.split(", ").map(|key| format!("t.\"{key}\"")).collect();
        let rest = format!("ORDER BY {} LIMIT :n", keys.join(", "));
        let (mut names, mut read, mut given, mut bound, mut kinds) =
            (vec![], vec![], vec![], vec![], vec![]);
        let mut size = String::from("100");
        for ((column, kind), short) in columns.iter().zip(IN_BATCH) {
            names.push(format!("\"{column}\""));
            read.push(match kind {
                Kind::Int => format!("{{big:t.\"{column}\"}} AS {short}"),
                Kind::Id | Kind::Text => format!("t.\"{column}\" AS {short}"),
            });
            given.push(format!("b.{short}"));
            bound.push(format!(":{short}"));
            kinds.push(format!("{short} {}", kind.name()));
            if *kind == Kind::Text {
                let text = format!(" + coalesce(octet_length(t.\"{column}\"), 0)");
                size.push_str(&text);
            }
        }
        let (names, read) = (names.join(", "), read.join(", "));
        let (given, kinds) = (given.join(", "), kinds.join(", "));
        // This leaks once in the life of a process.
        let statement = |text: String| Statement::new(name, text.leak());
        let page = |behind: &str| Page {
            sizes: statement(format!(
                "SELECT {{big:{size}}} AS size FROM {name} t {behind} {rest}"
            )),
            read: statement(format!("SELECT {read} FROM {name} t {behind} {rest}")),
        };
        let place = |key| columns.iter().position(|(column, _)| *column == key);
        Self {
            name,
            key: key.split(", ").filter_map(place).collect(),
            first: page(""),
            next: page(&format!("WHERE {}", after(&keys))),
            write: statement(format!(
                "INSERT INTO {name} ({names}) SELECT {given} FROM {{rows:b({kinds})}}"
            )),
            write_one: statement(format!(
                "INSERT INTO {name} ({names}) VALUES ({})",
                bound.join(", ")
            )),
            count: statement(format!("SELECT {{big:count(*)}} AS n FROM {name}")),
            columns,
        }
    }
}

/// The condition for rows after the row of this key, written so that each database begins at that
/// place of the index.
fn after(keys: &[String]) -> String {
    match keys {
        [one] => format!("{one} > :after0"),
        [one, two] => format!("{one} >= :after0 AND ({one} > :after0 OR {two} > :after1)"),
        [one, two, three] => format!(
            "{one} >= :after0 AND ({one} > :after0 OR {two} > :after1 OR ({two} = :after1 AND {three} > :after2))"
        ),
        _ => unreachable!("no key is longer"),
    }
}

/// The values of a column.
enum Values {
    Ids(Vec<Option<Uuid>>),
    Texts(Vec<Option<String>>),
    Ints(Vec<Option<i64>>),
}

impl Values {
    fn read(kind: Kind, column: &str, rows: &[Row]) -> Result<Self, Error> {
        Ok(match kind {
            Kind::Id => Self::Ids(all(column, rows)?),
            Kind::Text => Self::Texts(all(column, rows)?),
            Kind::Int => Self::Ints(all(column, rows)?),
        })
    }

    fn column(&self) -> Column<'_> {
        match self {
            Self::Ids(values) => Column::Ids(values.clone()),
            Self::Texts(values) => Column::Texts(values.iter().map(Option::as_deref).collect()),
            Self::Ints(values) => Column::Ints(values.clone()),
        }
    }

    /// The first value.
    fn first(&self) -> Arg<'_> {
        match self {
            Self::Ids(values) => values.first().copied().flatten().into(),
            Self::Texts(values) => values.first().and_then(Option::as_deref).into(),
            Self::Ints(values) => values.first().copied().flatten().into(),
        }
    }

    /// The last value.
    fn into_last(self) -> Key {
        match self {
            Self::Ids(mut values) => Key::Id(values.pop().flatten().unwrap_or_default()),
            Self::Texts(mut values) => Key::Text(values.pop().flatten().unwrap_or_default()),
            Self::Ints(mut values) => Key::Int(values.pop().flatten().unwrap_or_default()),
        }
    }
}

fn all<T: super::conn::Read>(column: &str, rows: &[Row]) -> Result<Vec<T>, Error> {
    rows.iter().map(|row| row.get(column)).collect()
}

/// One column of the key of the last row.
enum Key {
    Id(Uuid),
    Text(String),
    Int(i64),
}

impl Key {
    fn arg(&self) -> Arg<'_> {
        match self {
            Self::Id(id) => (*id).into(),
            Self::Text(text) => text.into(),
            Self::Int(number) => (*number).into(),
        }
    }
}

/// The outcome of a copy.
#[derive(Debug)]
pub enum Copied {
    /// The copy is complete.
    Done {
        /// How many runs were copied.
        runs: u64,
        /// How many rows of each table were copied.
        rows: BTreeMap<&'static str, u64>,
    },
    /// These processes are at work on the source database.
    InUse(Vec<ProcessRow>),
    /// The source's schema is of a newer version, which may have more than this program would copy.
    Newer(i64),
    /// The target database already has rows, in this table.
    NotEmpty(&'static str),
    /// The source has changed since the moment of the copy, which stays marked as incomplete.
    Outdated,
}

/// Copies everything in `from`, as of one moment, to `to`, which gets the schema, and must be empty except for a
/// schema. No program works with `to` until the copy is complete. A process prevents the copy of `from` where
/// `is_at_work` says so about its row. `report` receives how many rows have been copied.
pub async fn copy(
    from: &mut Conn,
    to: &mut Conn,
    is_at_work: &dyn Fn(&ProcessRow) -> bool,
    report: &mut dyn FnMut(u64),
) -> Result<Copied, Error> {
    migrate::check(from).await?;
    let mut has_begun = false;
    let copied = from.snapshot(async |from| {
        // Rows that were copied at another moment cannot be taken back.
        if has_begun {
            let lost = "the database that is copied was lost on the way";
            return Err(Error::Schema(lost.to_owned()));
        }
        // It is silent while the target gets its schema, and while the target writes a batch.
        from.set(Setting::LongSilence).await?;
        if let Some(refused) = refused(from, to, is_at_work).await? {
            return Ok(refused);
        }
        has_begun = true;
        let copied = all_copied(from, to, report).await?;
        if let Copied::Done { rows, .. } = &copied {
            are_there(to, rows).await?;
        }
        Ok(copied)
    });
    let copied = copied.await?;
    if let Copied::Done { rows, .. } = &copied {
        if is_outdated(from, rows, is_at_work).await? {
            return Ok(Copied::Outdated);
        }
        to.execute(&UNMARK, &[("version", UNFINISHED.into())])
            .await?;
    }
    Ok(copied)
}

/// Fails unless the target has as many rows as were copied.
async fn are_there(to: &mut Conn, rows: &BTreeMap<&'static str, u64>) -> Result<(), Error> {
    for table in TABLES.iter() {
        let (there, rows) = (count(to, table).await?, rows[table.name]);
        if there != rows {
            return Err(Error::Corrupt(format!(
                "{rows} rows of {} were copied, and {there} are there",
                table.name
            )));
        }
    }
    Ok(())
}

/// True if somebody has worked or acted in `from` since these rows were counted.
async fn is_outdated(
    from: &mut Conn,
    rows: &BTreeMap<&'static str, u64>,
    is_at_work: &dyn Fn(&ProcessRow) -> bool,
) -> Result<bool, Error> {
    if hindrance(from, is_at_work).await?.is_some() {
        return Ok(true);
    }
    for table in TABLES.iter().filter(|it| TELLING.contains(&it.name)) {
        if count(from, table).await? != rows[table.name] {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The reason in `from` itself why it cannot be copied, if there is one.
pub async fn hindrance(
    from: &mut Conn,
    is_at_work: &dyn Fn(&ProcessRow) -> bool,
) -> Result<Option<Copied>, Error> {
    if let Some(version) = migrate::newer(from).await? {
        return Ok(Some(Copied::Newer(version)));
    }
    let mut processes = process::processes(from).await?;
    processes.retain(is_at_work);
    Ok(match processes.is_empty() {
        true => None,
        false => Some(Copied::InUse(processes)),
    })
}

/// The reason why `from` cannot be copied to `to`, if there is one. Otherwise `to` gets the schema, and the mark that
/// keeps every program away from an incomplete copy.
async fn refused(
    from: &mut Conn,
    to: &mut Conn,
    is_at_work: &dyn Fn(&ProcessRow) -> bool,
) -> Result<Option<Copied>, Error> {
    if let Some(refused) = hindrance(from, is_at_work).await? {
        return Ok(Some(refused));
    }
    // This also refuses an unfinished copy.
    migrate::newer(to).await?;
    let begun = match migrate::applied(to).await?.is_empty() {
        true => begin_fresh(to).await,
        false => {
            migrate::migrate(to).await?;
            for table in TABLES.iter() {
                if count(to, table).await? > 0 {
                    return Ok(Some(Copied::NotEmpty(table.name)));
                }
            }
            to.execute(&MARK, &[("version", UNFINISHED.into())])
                .await
                .map(drop)
        }
    };
    match begun {
        Err(Error::Constraint { .. }) => {
            let text = "another `ductworkd copy` to this database is at work";
            Err(Error::Schema(text.to_owned()))
        }
        begun => begun.map(|()| None),
    }
}

/// Makes the schema after setting the mark: a copy that is killed midway leaves nothing that a program would work
/// with.
async fn begin_fresh(to: &mut Conn) -> Result<(), Error> {
    let version = [("version", UNFINISHED.into())];
    migrate::migrate_marked(to, &MARK_FRESH, &version).await?;
    // Sets the mark again, with the column.
    to.transaction(async |to| {
        to.execute(&UNMARK, &version).await?;
        to.execute(&MARK, &version).await.map(drop)
    })
    .await
}

async fn all_copied(
    from: &mut Conn,
    to: &mut Conn,
    report: &mut dyn FnMut(u64),
) -> Result<Copied, Error> {
    let mut copied = BTreeMap::new();
    let mut before = 0;
    for table in TABLES.iter() {
        let mut report = |rows| report(before + rows);
        let rows = table_copied(table, from, to, &mut report).await?;
        let all = count(from, table).await?;
        if rows != all {
            return Err(Error::Corrupt(format!(
                "{all} rows of {} are there, and {rows} were copied",
                table.name
            )));
        }
        before += rows;
        copied.insert(table.name, rows);
    }
    Ok(Copied::Done {
        runs: copied["ductwork_runs"],
        rows: copied,
    })
}

async fn count(conn: &mut Conn, table: &Table) -> Result<u64, Error> {
    let row = conn.fetch_optional(&table.count, &[]).await?;
    let count: i64 = row.map_or(Ok(0), |row| row.get("n"))?;
    Ok(count as u64)
}

async fn table_copied(
    table: &Table,
    from: &mut Conn,
    to: &mut Conn,
    report: &mut dyn FnMut(u64),
) -> Result<u64, Error> {
    let mut last: Vec<Key> = Vec::new();
    let mut copied = 0;
    loop {
        let page = match last.is_empty() {
            true => &table.first,
            false => &table.next,
        };
        let after = AFTER.iter().zip(&last);
        let mut args: Vec<_> = after.map(|(name, key)| (*name, key.arg())).collect();
        args.push(("n", ROWS.into()));
        let sizes = from.fetch(&page.sizes, &args).await?;
        let weight = |row: &Row| {
            let size: i64 = row.get("size")?;
            Ok::<_, Error>(WEIGHT.saturating_mul(size as usize))
        };
        let weights: Vec<usize> = sizes.iter().map(weight).collect::<Result<_, _>>()?;
        let n = batch_size::first(ROWS, weights);
        if n == 0 {
            return Ok(copied);
        }
        args.pop();
        args.push(("n", n.into()));
        let rows = from.fetch(&page.read, &args).await?;
        let columns = table.columns.iter().zip(IN_BATCH);
        let values = columns.map(|((_, kind), short)| Values::read(*kind, short, &rows));
        let mut values = values.collect::<Result<Vec<_>, _>>()?;
        let names = IN_BATCH.into_iter();
        if n == 1 {
            let args: Vec<_> = names.zip(values.iter().map(Values::first)).collect();
            to.write(&table.write_one, &args, 1).await?;
        } else {
            let columns = names.zip(values.iter().map(Values::column)).collect();
            let batch = Rows { columns };
            to.write(&table.write, &[("b", (&batch).into())], n).await?;
        }
        copied += rows.len() as u64;
        report(copied);
        let mut end = |place: &usize| {
            let none = Values::Ints(Vec::new());
            std::mem::replace(&mut values[*place], none).into_last()
        };
        last = table.key.iter().map(&mut end).collect();
    }
}
