//! The workloads: what is done, and what is read off.
//!
//! Owns: each workload's procedure. Throughput is told by the database's clock, from the first
//! claim until the last run was completed, so that looking on does not change it. Latency is
//! told by this process's clock, because it begins and ends here.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::mpsc;

use crate::definition::Definition;
use crate::model::{ProcessId, Role, RunId, RunStatus};
use crate::process::bells::Bells;
use crate::store::trigger::{NewRun, trigger};
use crate::store::{Conn, measure, query};

use super::daemon::{Processes, Set};
use super::pipelines::{self, CHAIN, FLAT, HOLD};
use super::report::{BenchReport, millis};
use super::{Bench, Error, Workload, proc};

/// Runs per call of the library, as an application would batch them.
const BATCH: usize = 1_000;

/// How often the end of a throughput workload is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// A throughput workload without any progress for this long is stuck.
const NO_PROGRESS: Duration = Duration::from_secs(60);

/// Runs before the measured ones, so that every process has prepared its statements.
const WARM_UP: usize = 10;

/// Between two runs of the latency workload, so that each finds an idle daemon.
const PAUSE: Duration = Duration::from_millis(10);

/// Between two looks at something that takes less than a millisecond, which is the grain of
/// the runtime's own timer.
const SHORT_LOOK: Duration = Duration::from_micros(100);

/// How long nothing is done.
const IDLE: Duration = Duration::from_secs(10);

/// How long a daemon settles before that.
const SETTLE: Duration = Duration::from_secs(2);

/// How many workers are killed.
const KILLS: usize = 20;

/// How long one small thing may take before something is wrong.
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
            Workload::Chain5 => self.throughput(workload, CHAIN, runs, conn, report).await,
            Workload::Flat => {
                self.throughput(workload, FLAT, runs * 10, conn, report)
                    .await
            }
            Workload::Latency => self.latency(runs.div_ceil(10), conn, report).await,
            Workload::Idle => self.idle(conn, report).await,
            Workload::Recovery => self.recovery(conn, report).await,
        }
    }

    fn set<'a>(&self, pipeline: &'a str) -> Set<'a> {
        Set {
            pipeline,
            slots: self.slots,
            target: false,
        }
    }

    /// Queues `runs`, then lets a daemon work them off.
    async fn throughput(
        &mut self,
        workload: Workload,
        pipeline: &str,
        runs: usize,
        conn: &mut Conn,
        report: &mut BenchReport,
    ) -> Result<(), Error> {
        let name = workload.as_str();
        let definition = definition(pipeline)?;
        let began = Instant::now();
        let mut left = runs;
        while left > 0 {
            self.progress.say(&format!("{name}: {left} to trigger"));
            let batch = vec![EMPTY; left.min(BATCH)];
            trigger(conn, &definition, &batch, Duration::ZERO).await?;
            left -= batch.len();
        }
        let took = began.elapsed();
        let note = format!(
            "{runs} runs in {:.2} s, {BATCH} at a time",
            took.as_secs_f64()
        );
        let rate = per_second(runs as u64, took);
        report.add(workload, "triggered", rate, "runs/s", note);

        let processes = self.start(conn, self.set(pipeline)).await?;
        let (mut fewest, mut since) = (u64::MAX, Instant::now());
        loop {
            self.daemon()?;
            let left = measure::in_progress(conn).await?;
            if left == 0 {
                break;
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
        // Read before it stops; what it does in between is next to nothing.
        let used: Vec<proc::Usage> = processes
            .all
            .iter()
            .map(|row| proc::usage(row.pid))
            .collect();
        let worker = processes.of(Role::Worker);
        let peak = worker.map(|row| proc::usage(row.pid).rss_peak);

        let span = measure::work_span(conn, pipeline).await?;
        let span = span.ok_or_else(|| Error::Nonsense(format!("{name}: nothing was done")))?;
        if span.runs != runs as u64 {
            let text = format!("{name}: {} of {runs} runs were completed", span.runs);
            return Err(Error::Nonsense(text));
        }
        let each = span.steps / span.runs.max(1);
        let seconds = span.took.as_secs_f64();
        let note = format!("{runs} runs of {each} steps in {seconds:.2} s");
        let rate = per_second(span.steps, span.took);
        report.add(workload, "worked", rate, "steps/s", note);
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
        let bell = Bell::of(self);
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
            bell.work(CHAIN);
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

    /// Nothing at all; what it costs.
    async fn idle(&mut self, conn: &mut Conn, report: &mut BenchReport) -> Result<(), Error> {
        let workload = Workload::Idle;
        let began = Instant::now();
        let processes = self.start(conn, self.set(CHAIN)).await?;
        let note = "until all processes are in the database";
        report.add(workload, "start", millis(began.elapsed()), "ms", note);
        // An idle process that has never worked is smaller than those that people have.
        let definition = definition(CHAIN)?;
        let bell = Bell::of(self);
        for _ in 0..WARM_UP {
            let triggered = trigger(conn, &definition, &[EMPTY], Duration::ZERO).await?;
            bell.work(CHAIN);
            self.completed(conn, triggered[0].run_id).await?;
        }
        self.progress.say("idle: doing nothing for a while");
        tokio::time::sleep(SETTLE).await;
        let usage = || -> Vec<proc::Usage> {
            let pids = processes.all.iter().map(|row| row.pid);
            pids.map(proc::usage).collect()
        };
        // Our own look is a scan as well, but of the server's tables.
        let (scans, before, since) = (measure::scans(conn).await?, usage(), Instant::now());
        tokio::time::sleep(IDLE).await;
        let (took, after) = (since.elapsed(), usage());
        let scans = measure::scans(conn).await?.zip(scans);
        self.daemon()?;
        if let Some((after, before)) = scans {
            let rate = per_second(after.saturating_sub(before), took);
            let note = "of tables and indexes, all processes; most statements make one";
            report.add(workload, "scans", rate, "/s", note);
        }
        self.costs(&processes, &before, &after, took, report);
        Ok(())
    }

    /// What each process cost while nothing was done.
    fn costs(
        &self,
        processes: &Processes,
        before: &[proc::Usage],
        after: &[proc::Usage],
        took: Duration,
        report: &mut BenchReport,
    ) {
        let workload = Workload::Idle;
        let rows = processes.all.iter().zip(before.iter().zip(after));
        for (row, (before, after)) in rows {
            let role = row.role.as_str();
            let pid = row.pid;
            if let Some(count) = proc::connections(pid, self.sandbox.file()) {
                let name = format!("{role}: connections");
                report.add(workload, name, count as f64, "", "");
            }
            let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
            let share = cpu / took.as_secs_f64() * 100.0;
            report.add(workload, format!("{role}: CPU"), share, "%", "of one core");
            let wakes = per_second(after.sleeps.saturating_sub(before.sleeps), took);
            report.add(workload, format!("{role}: wake-ups"), wakes, "/s", "");
            let note = format!("{:.1} MiB with shared pages divided", mebibytes(after.pss));
            let name = format!("{role}: memory");
            report.add(workload, name, mebibytes(after.rss), "MiB", note);
        }
    }

    /// Workers are killed while all their slots are taken.
    async fn recovery(&mut self, conn: &mut Conn, report: &mut BenchReport) -> Result<(), Error> {
        let workload = Workload::Recovery;
        let slots = u64::from(self.slots);
        let batch = vec![EMPTY; self.slots as usize];
        trigger(conn, &definition(HOLD)?, &batch, Duration::ZERO).await?;
        let (mut given_back, mut taken_again) = (Vec::new(), Vec::new());
        for index in 0..KILLS {
            self.progress
                .say(&format!("recovery: {index} of {KILLS} killed"));
            // A fresh daemon for each: one whose worker dies again and again waits, as it
            // should, longer and longer before it starts the next.
            let set = Set {
                target: true,
                ..self.set(HOLD)
            };
            let processes = self.start(conn, set).await?;
            let worker = processes.of(Role::Worker).ok_or(Error::DaemonEnded)?;
            self.held(conn, worker.id, slots).await?;
            let killed = Instant::now();
            kill(Pid::from_raw(worker.pid as i32), Signal::SIGKILL).map_err(|error| {
                Error::System {
                    what: "the worker cannot be killed",
                    source: error.into(),
                }
            })?;
            self.held(conn, worker.id, 0).await?;
            given_back.push(killed.elapsed());
            let successor = self.daemon()?.successor(conn, worker.id).await?;
            self.held(conn, successor, slots).await?;
            taken_again.push(killed.elapsed());
            self.stop().await?;
        }
        let note = format!("{KILLS} workers killed with {slots} executions each; from the kill");
        report.add_times(workload, "claimable again", &given_back, &note);
        report.add_times(workload, "claimed again", &taken_again, "");
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
            // Nothing else wants this thread.
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

/// Tells a worker of new runs, as `ductworkd trigger` does.
struct Bell {
    ring: std::sync::Arc<dyn crate::engine::Ring>,
}

impl Bell {
    fn of(bench: &Bench) -> Self {
        // There is nobody on another host to be notified.
        let (requests, _) = mpsc::unbounded_channel();
        let bells = Bells::new(bench.sandbox.location(), requests);
        Self {
            ring: bells.ringer(),
        }
    }

    fn work(&self, pipeline: &str) {
        self.ring.work(pipeline);
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
