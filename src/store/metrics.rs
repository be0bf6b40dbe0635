//! The rows of counts, and the current state of the database, for a scrape.
//!
//! Owns: a row for each process and one for all departed processes, and their sum, which never
//! falls. Never: counts anything itself.
//!
//! A departed process leaves its row behind, and a sweep adds that row to the row of the nil id
//! ([`fold`]). A scrape adds up all rows in one statement, so it finds each count in exactly one of
//! the two.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use crate::metrics::{self, Counts, Measured, Owner, Processes, Reading};
use crate::model::*;
use crate::time;

use super::conn::{Conn, Row};
use super::error::Error;
use super::report::{self, AuditFigures};
use super::statement::{Rows, statements};
use super::{overview, pause, query, stuck};

/// How many rows one transaction adds to the row of the nil id.
const FOLDED_AT_ONCE: usize = 100;

/// Invariants of an audit, of any version: there are fewer than this.
const AUDITED_MAX: usize = 100;

/// The number up to which a scrape counts rows.
const COUNTED: u64 = 10_000;

statements! {
    BEGIN_METRICS = "
        INSERT INTO ductwork_metrics (process_id, written_at, body) VALUES (:id, {now}, :body)
        {keep:ductwork_metrics;process_id}";
    /// RACE: a process was declared dead while it lives, and its row was added to the row of the nil id
    /// before the process writes once more. It finds no row, and creates none: the counts of that row are
    /// included already. Proven by `a_process_that_was_folded_adds_nothing`.
    WRITE_METRICS = "
        UPDATE ductwork_metrics SET written_at = {now}, body = :body WHERE process_id = :id";
    /// The oldest first, and the nil id before them: in this order names get series of their own.
    METRICS = "
        SELECT m.body, p.host, p.role, p.pipeline, {now} AS now FROM ductwork_metrics m
          LEFT JOIN ductwork_processes p ON p.id = m.process_id
         ORDER BY m.process_id";
    ANY_BEREFT = "
        SELECT 1 AS found FROM ductwork_metrics m
         WHERE m.process_id <> :nil
           AND NOT EXISTS (SELECT 1 FROM ductwork_processes p WHERE {key:p.id;m.process_id}) LIMIT 1";
    /// RACE: two sweepers fold at once. The second waits here for the first one's transaction, and looks for
    /// rows afterwards. Proven by `rows_that_two_sweepers_fold_at_once_count_once`.
    LOCK_RETIRED = "
        SELECT body FROM ductwork_metrics WHERE process_id = :nil {lock}";
    BEREFT = "
        SELECT m.process_id, m.body FROM ductwork_metrics m
         WHERE m.process_id <> :nil
           AND NOT EXISTS (SELECT 1 FROM ductwork_processes p WHERE {key:p.id;m.process_id})
         ORDER BY m.process_id LIMIT :n {lock}";
    /// RACE: a process registers while rows are folded. A locking read of MySQL and MariaDB finds its row of counts, for
    /// which it has waited, and no process, because it looks for processes as of its own beginning. So it is asked
    /// again, under the locks: a process that is there keeps its row. Raced by
    /// `a_process_that_registers_while_others_are_folded_keeps_its_row`.
    REGISTERED = "
        SELECT p.id FROM ductwork_processes p WHERE {any:p.id;b(id id)}";
    FORGET_METRICS = "
        {delete:ductwork_metrics;b(id id)} WHERE {of:ductwork_metrics.process_id;b(id id)}";
}

/// Makes the row of a process that registers.
pub(super) async fn begin(conn: &mut Conn, process: ProcessId) -> Result<(), Error> {
    let body = Counts::default().to_body();
    let args = [("id", process.0.into()), ("body", (&body).into())];
    conn.execute(&BEGIN_METRICS, &args).await?;
    Ok(())
}

/// Writes the counts of a process since it registered. False when its row is gone: then it was declared dead,
/// and the counts that it had written are included already.
pub async fn write(conn: &mut Conn, process: ProcessId, body: &str) -> Result<bool, Error> {
    let args = [("id", process.0.into()), ("body", body.into())];
    Ok(conn.execute(&WRITE_METRICS, &args).await? == 1)
}

/// The sum of the counts of all processes, living and departed, and the readings that the living have taken of
/// themselves.
pub async fn counts(conn: &mut Conn) -> Result<(Counts, Vec<Reading>), Error> {
    let (mut counts, mut processes) = (Counts::default(), Processes::default());
    for row in conn.fetch(&METRICS, &[]).await? {
        counts.merge(&parsed(&row)?);
        let host: Option<String> = row.get("host")?;
        let role: Option<String> = row.get("role")?;
        if let (Some(host), Some(role)) = (host, role) {
            let pipeline: Option<String> = row.get("pipeline")?;
            let owner = Owner {
                host,
                role,
                pipeline: pipeline.unwrap_or_default(),
            };
            processes.add(owner, Measured::parse(&row.get::<String>("body")?));
        }
    }
    Ok((counts, processes.readings()))
}

/// The sum of the counts of all processes, and the database's time; none where nothing was ever counted.
pub async fn at_a_time(conn: &mut Conn) -> Result<Option<(i64, Counts)>, Error> {
    let rows = conn.fetch(&METRICS, &[]).await?;
    let Some(first) = rows.first() else {
        return Ok(None);
    };
    let mut counts = Counts::default();
    for row in &rows {
        counts.merge(&parsed(row)?);
    }
    Ok(Some((first.get("now")?, counts)))
}

fn parsed(row: &Row) -> Result<Counts, Error> {
    Ok(Counts::parse(&row.get::<String>("body")?))
}

/// Adds rows of departed processes to the row of the nil id. Returns how many; any number of processes
/// may do so at once.
pub async fn fold(conn: &mut Conn) -> Result<usize, Error> {
    let nil = [("nil", Uuid::nil().into())];
    let any = conn.fetch_optional(&ANY_BEREFT, &nil).await?;
    if any.is_none() {
        return Ok(0);
    }
    conn.transaction(async |conn| {
        begin(conn, ProcessId(Uuid::nil())).await?;
        let retired = conn.fetch_optional(&LOCK_RETIRED, &nil).await?;
        let mut retired = match &retired {
            Some(row) => parsed(row)?,
            None => Counts::default(),
        };
        let [nil] = nil.clone();
        let args = [nil, ("n", FOLDED_AT_ONCE.into())];
        let bereft = conn.fetch(&BEREFT, &args).await?;
        let ids = bereft.iter().map(|row| row.get::<Uuid>("process_id"));
        let mut ids = ids.collect::<Result<Vec<_>, _>>()?;
        let rows = Rows::new().ids("id", ids.iter().copied());
        let registered = conn.fetch(&REGISTERED, &[("b", (&rows).into())]).await?;
        let registered = registered.iter().map(|row| row.get::<Uuid>("id"));
        let registered = registered.collect::<Result<Vec<_>, _>>()?;
        ids.retain(|id| !registered.contains(id));
        for row in &bereft {
            if ids.contains(&row.get("process_id")?) {
                retired.merge(&parsed(row)?);
            }
        }
        if ids.is_empty() {
            return Ok(0);
        }
        write(conn, ProcessId(Uuid::nil()), &retired.to_body()).await?;
        let folded = ids.len();
        let rows = Rows::new().ids("id", ids);
        conn.write(&FORGET_METRICS, &[("b", (&rows).into())], folded)
            .await?;
        Ok(folded)
    })
    .await
}

/// Reads the queues and the registered processes. A process whose heartbeat is older than `stale_after`
/// is silent.
pub async fn readings(conn: &mut Conn, stale_after: Duration) -> Result<Vec<Reading>, Error> {
    let (version, database) = (env!("CARGO_PKG_VERSION"), conn.dialect().as_str());
    let mut readings = vec![Reading::new(
        &metrics::BUILD_INFO,
        &[version, database],
        1.0,
    )];
    for queue in overview::queues(conn, COUNTED).await? {
        let name = queue.pipeline.as_str();
        let depth =
            |state, depth: u64| Reading::new(&metrics::QUEUE_DEPTH, &[name, state], depth as f64);
        let oldest = queue.oldest.unwrap_or_default().as_secs_f64();
        readings.extend([
            depth("due", queue.due),
            depth("later", queue.later),
            Reading::new(&metrics::QUEUE_OLDEST_AGE, &[name], oldest),
        ]);
    }
    for pause in pause::pauses(conn).await? {
        let labels = [pause.pipeline.as_str()];
        readings.push(Reading::new(&metrics::PIPELINE_PAUSED, &labels, 1.0));
    }
    readings.extend(audited(conn).await?);
    let mut held: BTreeMap<String, u64> = BTreeMap::new();
    let mut leases = BTreeMap::from([("execution", 0), ("advancement", 0)]);
    let mut processes: BTreeMap<(Role, &str), u64> = BTreeMap::new();
    let mut ages: BTreeMap<(Role, String), Duration> = BTreeMap::new();
    for mover in stuck::movers(conn).await? {
        let state = match &mover {
            mover if mover.age >= stale_after => "silent",
            mover if mover.trouble.is_some() => "trouble",
            mover => match mover.intake {
                Intake::Open => "up",
                Intake::Quiet => "quiet",
                Intake::Stopping => "stopping",
            },
        };
        *processes.entry((mover.role, state)).or_default() += 1;
        let age = ages.entry((mover.role, mover.host)).or_default();
        *age = mover.age.max(*age);
        match (mover.role, mover.pipeline) {
            (Role::Worker, Some(pipeline)) => {
                *leases.entry("execution").or_default() += mover.holds;
                *held.entry(pipeline).or_default() += mover.holds;
            }
            _ => *leases.entry("advancement").or_default() += mover.holds,
        }
    }
    // A role without processes is reported as well: that may be the trouble.
    for role in [Role::Supervisor, Role::Advancer, Role::Worker] {
        processes.entry((role, "up")).or_default();
    }
    let held = held
        .iter()
        .map(|(pipeline, held)| Reading::new(&metrics::EXECUTIONS_HELD, &[pipeline], *held as f64));
    let leases = leases
        .iter()
        .map(|(kind, held)| Reading::new(&metrics::LEASES_HELD, &[kind], *held as f64));
    let processes = processes.iter().map(|((role, state), n)| {
        Reading::new(&metrics::PROCESSES, &[role.as_str(), state], *n as f64)
    });
    let ages = ages.iter().map(|((role, host), age)| {
        let labels = [role.as_str(), host];
        Reading::new(&metrics::HEARTBEAT_AGE, &labels, age.as_secs_f64())
    });
    readings.extend(held.chain(leases).chain(processes).chain(ages));
    Ok(metrics::bounded(readings))
}

/// The findings of the last audit, and its age.
async fn audited(conn: &mut Conn) -> Result<Vec<Reading>, Error> {
    let newest = report::latest(conn, Some(report::Kind::Audit), None, 1).await?;
    let Some(newest) = newest.first() else {
        return Ok(Vec::new());
    };
    let age = time::between(newest.at, query::now(conn).await?);
    let mut readings = vec![Reading::new(&metrics::AUDIT_AGE, &[], age.as_secs_f64())];
    let found: AuditFigures = newest.figures().unwrap_or_default();
    let found = found.invariants.iter().take(AUDITED_MAX);
    readings.extend(found.map(|(name, broken)| {
        let labels = [name.as_str()];
        Reading::new(&metrics::AUDIT_BROKEN, &labels, *broken as f64)
    }));
    Ok(readings)
}

/// The number of runs, counted up to a bound for each state of each pipeline.
pub async fn runs(conn: &mut Conn) -> Result<Vec<Reading>, Error> {
    let counts = overview::counts(conn, None, COUNTED).await?;
    let reading = |count: &overview::Count| {
        let labels = [count.pipeline.as_str(), count.status.as_str()];
        Reading::new(&metrics::RUNS, &labels, count.runs as f64)
    };
    Ok(metrics::bounded(counts.iter().map(reading).collect()))
}

/// True where there are at most `n` runs, except for halted ones that were revived; false where a bounded count
/// cannot tell.
pub async fn has_at_most(conn: &mut Conn, n: u64) -> Result<bool, Error> {
    let counts = overview::counts(conn, None, COUNTED).await?;
    let all: u64 = counts.iter().map(|count| count.runs).sum();
    Ok(all <= n && !counts.iter().any(|count| count.is_more))
}
