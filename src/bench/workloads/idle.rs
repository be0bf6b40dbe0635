//! The cost of doing nothing.
//!
//! Owns: the idle workload: with the configured daemon, and with one that has more pipelines and
//! more slots.

use std::time::{Duration, Instant};

use crate::bench::daemon::{Processes, Set};
use crate::bench::pipelines::{CHAIN, FLAT, NAP};
use crate::bench::report::{BenchReport, millis};
use crate::bench::{Bench, Error, Workload, proc};
use crate::store::bench::measure;
use crate::store::process::{self, ProcessRow};
use crate::store::trigger::trigger;
use crate::store::{Conn, query};

use super::{EMPTY, JobWaker, LOOK, PATIENCE, WARM_UP, definition, mebibytes, per_second};

/// The number of heartbeats during which nothing is done.
const BEATS: u32 = 2;

/// `count` of the wide daemon.
const WIDE_COUNT: u32 = 50;

/// The cost of one process.
struct Cost<'a> {
    row: &'a ProcessRow,
    connections: Option<u64>,
    /// Percent of one core.
    cpu: f64,
    /// Per second.
    wakes: f64,
    /// Per second; none if the process gave no sign of life in between.
    statements: Option<f64>,
    usage: proc::Usage,
}

/// The cost of idling.
struct Nothing<'a> {
    costs: Vec<Cost<'a>>,
    /// Scans of tables and indexes, per second; none if the database does not count them.
    scans: Option<f64>,
}

impl Bench {
    pub(super) async fn idle(
        &mut self,
        conn: &mut Conn,
        report: &mut BenchReport,
    ) -> Result<(), Error> {
        let workload = Workload::Idle;
        let began = Instant::now();
        let processes = self.start(conn, self.set(CHAIN)).await?;
        let note = "until all processes are in the database";
        report.add(workload, "start", millis(began.elapsed()), "ms", note);
        let Nothing { costs, scans } = self.nothing(&processes, conn).await?;
        if let Some(rate) = scans {
            let note = "of tables and indexes, all processes; most statements make one";
            report.add(workload, "scans", rate, "/s", note);
        }
        for cost in &costs {
            add_each(cost, report);
        }

        let pipelines = format!("{CHAIN}, {FLAT}, {NAP}");
        let set = Set {
            slots: WIDE_COUNT,
            advancers: Some(WIDE_COUNT),
            ..self.set(&pipelines)
        };
        let processes = self.start(conn, set).await?;
        let Nothing { costs, .. } = self.nothing(&processes, conn).await?;
        add_all(&costs, report);
        Ok(())
    }

    /// Does a little work, so that every process is as large as in real use; then nothing.
    async fn nothing<'a>(
        &self,
        processes: &'a Processes,
        conn: &mut Conn,
    ) -> Result<Nothing<'a>, Error> {
        let definition = definition(CHAIN)?;
        let waker = JobWaker::of(self);
        for _ in 0..WARM_UP {
            let triggered = trigger(conn, &definition, &[EMPTY], Duration::ZERO).await?;
            waker.job_available(CHAIN);
            self.completed(conn, triggered[0].run_id).await?;
        }
        self.progress.say("idle: doing nothing for a while");
        // A process's own counters are as old as its last heartbeat.
        let before = self.beaten(processes, conn).await?;
        let usage = |row: &ProcessRow| proc::usage(row.pid);
        // This query is a scan as well, but of the server's own tables.
        let scans = measure::scans(conn).await?;
        let used: Vec<proc::Usage> = processes.all.iter().map(usage).collect();
        let since = Instant::now();
        tokio::time::sleep(self.beat_interval() * BEATS).await;
        let took = since.elapsed();
        let now: Vec<proc::Usage> = processes.all.iter().map(usage).collect();
        let scans = measure::scans(conn).await?.zip(scans);
        let scans = scans.map(|(after, before)| per_second(after.saturating_sub(before), took));
        let after = self.beaten(processes, conn).await?;
        self.daemon()?;
        let cost = |(row, (before_use, usage)): (&'a ProcessRow, (&proc::Usage, &proc::Usage))| {
            let of = |rows: &[ProcessRow]| rows.iter().find(|other| other.id == row.id).cloned();
            let counted = of(&before).zip(of(&after)).map(|(before, after)| {
                let sent = after.counters.statements - before.counters.statements;
                let micros = after.last_heartbeat_at - before.last_heartbeat_at;
                per_second(sent, Duration::from_micros(micros.max(0) as u64))
            });
            let cpu = usage.cpu.saturating_sub(before_use.cpu).as_secs_f64();
            let wakes = usage.sleeps.saturating_sub(before_use.sleeps);
            Cost {
                row,
                connections: proc::connections(row.pid, self.sandbox.file()),
                cpu: cpu / took.as_secs_f64() * 100.0,
                wakes: per_second(wakes, took),
                statements: counted,
                usage: *usage,
            }
        };
        let rows = processes.all.iter().zip(used.iter().zip(&now));
        Ok(Nothing {
            costs: rows.map(cost).collect(),
            scans,
        })
    }

    /// All rows, as soon as each of these processes has given a new sign of life.
    async fn beaten(
        &self,
        processes: &Processes,
        conn: &mut Conn,
    ) -> Result<Vec<ProcessRow>, Error> {
        let now = query::now(conn).await?;
        let since = Instant::now();
        loop {
            let rows = process::processes(conn).await?;
            let beaten = |id| {
                rows.iter()
                    .any(|row| row.id == id && row.last_heartbeat_at > now)
            };
            if processes.all.iter().all(|row| beaten(row.id)) {
                return Ok(rows);
            }
            self.daemon()?;
            if since.elapsed() > PATIENCE.max(self.beat_interval() * 2) {
                return Err(Error::Stuck("a process gave no sign of life for a minute"));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn beat_interval(&self) -> Duration {
        let config = std::sync::Arc::new(self.config.clone());
        crate::engine::Policy::new(config).beat_interval()
    }
}

/// Every number of one process.
fn add_each(cost: &Cost<'_>, report: &mut BenchReport) {
    let workload = Workload::Idle;
    let role = cost.row.role.as_str();
    if let Some(count) = cost.connections {
        let name = format!("{role}: connections");
        report.add(workload, name, count as f64, "", "");
    }
    if let Some(rate) = cost.statements {
        let note = "round trips to the database, as the process counts them";
        report.add(workload, format!("{role}: statements"), rate, "/s", note);
    }
    let name = format!("{role}: CPU");
    report.add(workload, name, cost.cpu, "%", "of one core");
    report.add(workload, format!("{role}: wake-ups"), cost.wakes, "/s", "");
    let shared = mebibytes(cost.usage.pss);
    let note = format!("{shared:.1} MiB with shared pages divided");
    let memory = mebibytes(cost.usage.rss);
    report.add(workload, format!("{role}: memory"), memory, "MiB", note);
}

/// Sums and extremes of the processes of the wide daemon.
fn add_all(costs: &[Cost<'_>], report: &mut BenchReport) {
    let workload = Workload::Idle;
    let most = |of: fn(&Cost<'_>) -> f64| costs.iter().map(of).fold(0.0, f64::max);
    let note = format!(
        "{} processes: 3 pipelines, job_worker.count and pipeline_advancer.count {WIDE_COUNT}",
        costs.len()
    );
    let connections: Option<u64> = costs.iter().map(|cost| cost.connections).sum();
    if let Some(connections) = connections {
        let name = "wide: connections";
        report.add(workload, name, connections as f64, "", note);
    }
    let of_any = "the most of any process";
    let statements = most(|cost| cost.statements.unwrap_or_default());
    report.add(workload, "wide: statements", statements, "/s", of_any);
    let cpu = most(|cost| cost.cpu);
    report.add(workload, "wide: CPU", cpu, "%", of_any);
    let memory = most(|cost| mebibytes(cost.usage.rss));
    report.add(workload, "wide: memory", memory, "MiB", of_any);
    let all: f64 = costs.iter().map(|cost| mebibytes(cost.usage.pss)).sum();
    let note = "all of them, shared pages divided";
    report.add(workload, "wide: memory, all", all, "MiB", note);
}
