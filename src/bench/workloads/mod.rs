//! The workloads: their work, and their measurements.
//!
//! Owns: each workload's procedure. Throughput is measured by the database's clock, from the first
//! claim until the last run was completed, so that watching does not change it. Latency is measured
//! by this process's clock, because it begins and ends here.

mod history;
mod idle;
mod kills;
mod limits;
mod pages;
mod prompt;
mod scale;
mod watched;

use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::definition::Definition;
use crate::model::{ProcessId, Role, RunId, RunStatus};
use crate::process::wakeup::Wakeup;
use crate::store::bench::baseline::Load;
use crate::store::bench::{data, measure};
use crate::store::trigger::{NewRun, trigger};
use crate::store::{Conn, query};

use super::daemon::Set;
use super::pipelines::{self, CHAIN, FLAT};
use super::report::BenchReport;
use super::{Bench, Error, Workload, proc};

/// Runs per call of the library, as an application would batch them.
const BATCH: usize = 1_000;

/// The interval at which the end of a throughput workload is checked.
const LOOK: Duration = Duration::from_millis(50);

/// A throughput workload without any progress for this long is stuck.
const NO_PROGRESS: Duration = Duration::from_secs(60);

/// Runs before the measured ones, so that every process has prepared its statements.
const WARM_UP: usize = 10;

/// The pause between two runs of the latency workload, so that each finds an idle daemon.
const PAUSE: Duration = Duration::from_millis(10);

/// The pause between two looks at something that takes less than a millisecond, which is the grain
/// of the runtime's own timer.
const SHORT_LOOK: Duration = Duration::from_micros(100);

/// The time that one small thing may take before something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

impl Bench {
    pub(super) async fn perform(
        &mut self,
        workload: Workload,
        conn: &mut Conn,
        report: &mut BenchReport,
    ) -> Result<(), Error> {
        let runs = self.options.runs as usize;
        match workload {
            Workload::Chain5 => {
                let rate = self.throughput(workload, CHAIN, runs, conn, report).await?;
                self.limit(workload, Load::Chain, rate, report).await
            }
            Workload::Flat => {
                let rate = self
                    .throughput(workload, FLAT, runs * 10, conn, report)
                    .await?;
                self.limit(workload, Load::Flat, rate, report).await
            }
            Workload::Trigger => self.trigger(runs * 5, conn, report).await,
            Workload::Latency => {
                self.latency(runs.div_ceil(10), conn, report).await?;
                self.commits(report).await
            }
            Workload::Idle => self.idle(conn, report).await,
            Workload::Fanout => self.fanout(conn, report).await,
            Workload::Commands => self.commands(runs, conn, report).await,
            Workload::Backlog => self.backlog(conn, report).await,
            Workload::Audit => self.audit(conn, report).await,
            Workload::Retention => self.retention(runs, conn, report).await,
            Workload::Prompt => self.prompt(conn, report).await,
            Workload::Pages => self.pages(conn, report).await,
            Workload::Watched => self.watched(conn, report).await,
            // More than the others: with many processes, a short workload measures their start.
            Workload::Contention => self.contention(runs * 5 / 2, conn, report).await,
            Workload::Recovery => self.recovery(conn, report).await,
            Workload::Storm => self.storm(conn, report).await,
        }
    }

    fn set<'a>(&self, pipeline: &'a str) -> Set<'a> {
        Set {
            pipelines: pipeline,
            slots: self.slots,
            advancers: None,
            alone: false,
            console: None,
            target: false,
        }
    }

    /// Queues `runs`, then lets a daemon work through them; returns steps per second.
    async fn throughput(
        &mut self,
        workload: Workload,
        pipeline: &str,
        runs: usize,
        conn: &mut Conn,
        report: &mut BenchReport,
    ) -> Result<f64, Error> {
        let name = workload.as_str();
        let took = self.queue(workload, pipeline, runs, conn).await?;
        let note = format!(
            "{runs} runs in {:.2} s, {BATCH} at a time",
            took.as_secs_f64()
        );
        let rate = per_second(runs as u64, took);
        report.add(workload, "triggered", rate, "runs/s", note);

        let processes = self.start(conn, self.set(pipeline)).await?;
        self.drained(workload, conn).await?;
        // Read before the daemon stops; it does next to nothing in between.
        let used: Vec<proc::Usage> = processes
            .all
            .iter()
            .map(|row| proc::usage(row.pid))
            .collect();
        let worker = processes.of(Role::Worker);
        let peak = worker.map(|row| proc::usage(row.pid).rss_peak);

        let span = measure::work_span(conn, pipeline, 0).await?;
        let span = span.ok_or_else(|| Error::Nonsense(format!("{name}: nothing was done")))?;
        if span.runs != runs as u64 {
            let text = format!("{name}: {} of {runs} runs were completed", span.runs);
            return Err(Error::Nonsense(text));
        }
        let each = span.steps / span.runs.max(1);
        let seconds = span.took.as_secs_f64();
        let note = format!("{runs} runs of {each} steps in {seconds:.2} s");
        let worked = per_second(span.steps, span.took);
        report.add(workload, "worked", worked, "steps/s", note);
        if each > 1 {
            let rate = per_second(span.runs, span.took);
            report.add(workload, "completed", rate, "runs/s", "");
        }
        let cpu: Duration = used.iter().map(|usage| usage.cpu).sum();
        let per_step = cpu.as_secs_f64() * 1e6 / span.steps.max(1) as f64;
        let share = cpu.as_secs_f64() / seconds.max(1e-6) * 100.0;
        let database = match self.sandbox.file() {
            Some(_) => "the database's included",
            None => "the server's not included",
        };
        let note = format!("{share:.0} % of a core, {database}");
        report.add(workload, "CPU per step", per_step, "µs", note);
        if let Some(peak) = peak {
            report.add(
                workload,
                "worker's memory, peak",
                mebibytes(peak),
                "MiB",
                "",
            );
        }
        Ok(worked)
    }

    /// Triggers `runs` through the library; returns the time that it took.
    async fn queue(
        &self,
        workload: Workload,
        pipeline: &str,
        runs: usize,
        conn: &mut Conn,
    ) -> Result<Duration, Error> {
        let definition = definition(pipeline)?;
        let began = Instant::now();
        let mut left = runs;
        while left > 0 {
            self.progress
                .say(&format!("{}: {left} to trigger", workload.as_str()));
            let batch = vec![EMPTY; left.min(BATCH)];
            trigger(conn, &definition, &batch, Duration::ZERO).await?;
            left -= batch.len();
        }
        Ok(began.elapsed())
    }

    /// Returns when no run is in progress any more.
    async fn drained(&self, workload: Workload, conn: &mut Conn) -> Result<(), Error> {
        let name = workload.as_str();
        let (mut fewest, mut since) = (u64::MAX, Instant::now());
        loop {
            self.daemon()?;
            let left = measure::in_progress(conn).await?;
            if left == 0 {
                return Ok(());
            }
            if left < fewest {
                (fewest, since) = (left, Instant::now());
            }
            if since.elapsed() > NO_PROGRESS {
                return Err(Error::Stuck("no run was completed for a minute"));
            }
            self.progress.say(&format!("{name}: {left} to complete"));
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Runs on which nobody works.
    async fn trigger(
        &mut self,
        runs: usize,
        conn: &mut Conn,
        report: &mut BenchReport,
    ) -> Result<(), Error> {
        let workload = Workload::Trigger;
        let took = self.queue(workload, FLAT, runs, conn).await?;
        let rate = per_second(runs as u64, took);
        let note = format!("{runs} runs, {BATCH} at a time, through the library");
        report.add(workload, "triggered", rate, "runs/s", note);
        let definition = definition(FLAT)?;
        let began = Instant::now();
        let mut numbers = data::Numbers::now(conn).await?;
        let mut left = runs;
        while left > 0 {
            let batch = left.min(BATCH);
            data::waiting(conn, &definition, batch as u64, &mut numbers, &|_| {}).await?;
            left -= batch;
        }
        let limit = per_second(runs as u64, began.elapsed());
        let note = format!(
            "the same rows by INSERT … SELECT; ours is {:.1} % of it",
            rate / limit * 100.0
        );
        report.add(workload, "limit", limit, "runs/s", note);
        let mut alone = Vec::new();
        for _ in 0..runs.div_ceil(50) {
            let began = Instant::now();
            trigger(conn, &definition, &[EMPTY], Duration::ZERO).await?;
            alone.push(began.elapsed());
        }
        let note = format!("{} runs, one at a time", alone.len());
        report.add_times(workload, "one alone", &alone, &note);
        Ok(())
    }

    /// One run at a time, on a daemon that has nothing else to do.
    async fn latency(
        &mut self,
        runs: usize,
        conn: &mut Conn,
        report: &mut BenchReport,
    ) -> Result<(), Error> {
        let workload = Workload::Latency;
        let known = measure::run_times(conn, CHAIN).await?.len();
        self.start(conn, self.set(CHAIN)).await?;
        let definition = definition(CHAIN)?;
        let waker = JobWaker::of(self);
        let mut seen = Vec::with_capacity(runs);
        let mut queued = Vec::with_capacity(runs);
        for index in 0..WARM_UP + runs {
            if index % 20 == 0 {
                self.daemon()?;
                self.progress.say(&format!("latency: {index} of {runs}"));
            }
            tokio::time::sleep(PAUSE).await;
            let began = Instant::now();
            let triggered = trigger(conn, &definition, &[EMPTY], Duration::ZERO).await?;
            waker.job_available(CHAIN);
            let accepted = began.elapsed();
            self.completed(conn, triggered[0].run_id).await?;
            if index >= WARM_UP {
                seen.push(began.elapsed());
                queued.push(accepted);
            }
        }
        let note = format!("{runs} runs of 5 steps, from before the trigger until it was seen");
        report.add_times(workload, "end to end", &seen, &note);
        report.add_times(workload, "of it: trigger", &queued, "");
        let times = measure::run_times(conn, CHAIN).await?;
        let times = times.get(known + WARM_UP..).unwrap_or_default();
        let note = "by the database's clock, from triggered to completed";
        report.add_times(workload, "in the database", times, note);
        Ok(())
    }

    /// Returns as soon as a run is seen to be completed.
    async fn completed(&self, conn: &mut Conn, run: RunId) -> Result<(), Error> {
        let since = Instant::now();
        loop {
            self.daemon()?;
            let state = query::run_state(conn, run).await?;
            match state.map(|state| state.status) {
                Some(RunStatus::Completed) => return Ok(()),
                Some(RunStatus::InProgress) if since.elapsed() < PATIENCE => {}
                Some(RunStatus::InProgress) => {
                    return Err(Error::Stuck("a run was not completed within a minute"));
                }
                other => return Err(Error::Nonsense(format!("run {run} is {other:?}"))),
            }
            // Nothing else needs this thread.
            std::thread::sleep(SHORT_LOOK);
        }
    }

    /// Returns as soon as `process` is seen to hold `count` executions.
    async fn held(&self, conn: &mut Conn, process: ProcessId, count: u64) -> Result<(), Error> {
        let since = Instant::now();
        while measure::held(conn, process).await? != count {
            self.daemon()?;
            if since.elapsed() > PATIENCE {
                return Err(Error::Stuck("work did not change hands within a minute"));
            }
            std::thread::sleep(SHORT_LOOK);
        }
        Ok(())
    }
}

/// A run without input.
const EMPTY: NewRun<'static> = NewRun {
    key: None,
    input: "null",
};

/// Tells a worker about new runs, as `ductworkd trigger` does.
struct JobWaker {
    waker: std::sync::Arc<dyn crate::engine::Waker>,
}

impl JobWaker {
    fn of(bench: &Bench) -> Self {
        // There is no other host to notify.
        let (requests, _) = mpsc::unbounded_channel();
        let wakeup = Wakeup::new(bench.sandbox.location(), requests);
        Self {
            waker: wakeup.waker(),
        }
    }

    fn job_available(&self, pipeline: &str) {
        self.waker.job_available(pipeline);
    }
}

fn definition(pipeline: &str) -> Result<Definition, Error> {
    let definitions = pipelines::definitions();
    let definitions = definitions.map_err(|problems| Error::Nonsense(problems.to_string()))?;
    let mut found = definitions.into_iter().filter(|d| d.pipeline == pipeline);
    let none = || Error::Nonsense(format!("there is no pipeline {pipeline}"));
    found.next().ok_or_else(none)
}

fn per_second(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64().max(1e-6)
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
