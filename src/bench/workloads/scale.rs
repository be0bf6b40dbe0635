//! Throughput at a larger scale.
//!
//! Owns: wider fan-outs, real commands, longer queues and histories, more processes.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bench::daemon::{Processes, Set};
use crate::bench::pipelines::{CHAIN, COMMAND, DIAMOND, FLAT, TRUE, WIDE};
use crate::bench::report::BenchReport;
use crate::bench::{Bench, Error, Workload, proc};
use crate::store::bench::{data, measure};
use crate::store::definition::LeftOut;
use crate::store::trigger::{NewRun, trigger};
use crate::store::{Conn, claim, query};

use super::{BATCH, EMPTY, JobWaker, LOOK, definition, mebibytes, per_second};

/// The narrowest fan-out, with which wider ones are compared.
const NARROW: u32 = 1_000;

/// The short queue, and how often it is filled; the first time is a warm-up.
const SHORT: u32 = 1_000;
const ROUNDS: usize = 4;

/// The time for which a daemon with a long queue works before its throughput counts, and the time
/// for which it counts then.
const SETTLE: Duration = Duration::from_millis(500);
const WINDOW: Duration = Duration::from_secs(4);

/// The number of steps of a run in the history.
const HISTORY_STEPS: u32 = 5;

/// The numbers of worker processes.
const WORKERS: [usize; 4] = [1, 2, 4, 8];

/// `pipeline_advancer.count`.
const ADVANCERS: [u32; 5] = [1, 2, 4, 8, 16];

impl Bench {
    /// One run that expands and collapses again; wider and wider.
    pub(super) async fn fanout(
        &mut self,
        conn: &mut Conn,
        report: &mut BenchReport,
    ) -> Result<(), Error> {
        let workload = Workload::Fanout;
        let definition = definition(WIDE)?;
        let mut narrow = None;
        for (index, width) in widths(self.options.width).into_iter().enumerate() {
            self.progress.say(&format!("fanout: {width} branches"));
            let processes = self.start(conn, self.set(WIDE)).await?;
            let input = width.to_string();
            let run = NewRun {
                key: None,
                input: &input,
            };
            trigger(conn, &definition, &[run], Duration::ZERO).await?;
            JobWaker::of(self).job_available(WIDE);
            self.drained(workload, conn).await?;
            let peak = peak(&processes);
            let times = measure::run_times(conn, WIDE).await?;
            let took = times.get(index).copied().unwrap_or_default().as_secs_f64();
            let each = took / f64::from(width) * 1e6;
            let first = *narrow.get_or_insert(each);
            let note = format!(
                "{each:.0} µs per branch, {:.2} times that of the first; from triggered to \
                 completed",
                each / first
            );
            report.add(workload, format!("{width} branches"), took, "s", note);
            let name = format!("{width} branches: memory, peak");
            let note = "the most of any process";
            report.add(workload, name, mebibytes(peak), "MiB", note);
        }
        Ok(())
    }

    /// Commands that do nothing, through Ductwork and through xargs.
    pub(super) async fn commands(
        &mut self,
        runs: usize,
        conn: &mut Conn,
        report: &mut BenchReport,
    ) -> Result<(), Error> {
        let workload = Workload::Commands;
        self.queue(workload, COMMAND, runs, conn).await?;
        self.start(conn, self.set(COMMAND)).await?;
        self.drained(workload, conn).await?;
        let span = measure::work_span(conn, COMMAND, 0).await?;
        let span = span.ok_or_else(|| Error::Nonsense("commands: nothing was done".to_owned()))?;
        if span.steps != runs as u64 {
            let text = format!("commands: {} of {runs} succeeded", span.steps);
            return Err(Error::Nonsense(text));
        }
        let ours = per_second(span.steps, span.took);
        let note = format!(
            "{runs} runs of `{TRUE}` in {:.2} s",
            span.took.as_secs_f64()
        );
        report.add(workload, "worked", ours, "steps/s", note);
        self.stop().await?;
        self.progress.say("commands: xargs");
        let cores = report.cores;
        let took = xargs(runs, cores).map_err(|source| Error::System {
            what: "xargs, which commands are compared with, cannot be run",
            source,
        })?;
        let theirs = per_second(runs as u64, took);
        let note = format!(
            "xargs -n 1 -P {cores} {TRUE}: nothing but starting them; ours is {:.1} % of it",
            ours / theirs * 100.0
        );
        report.add(workload, "limit", theirs, "commands/s", note);
        Ok(())
    }

    /// The same work with a short queue, with a long one, and with a long history.
    pub(super) async fn backlog(
        &mut self,
        conn: &mut Conn,
        report: &mut BenchReport,
    ) -> Result<(), Error> {
        let workload = Workload::Backlog;
        let (long, short) = (
            self.options.backlog,
            SHORT.min(self.options.backlog) as usize,
        );
        let flat = definition(FLAT)?;
        self.start(conn, self.set(FLAT)).await?;
        let waker = JobWaker::of(self);
        let mut rates = Vec::new();
        for _ in 0..ROUNDS {
            let since = query::now(conn).await?;
            trigger(conn, &flat, &vec![EMPTY; short], Duration::ZERO).await?;
            waker.job_available(FLAT);
            self.drained(workload, conn).await?;
            if let Some(span) = measure::work_span(conn, FLAT, since).await? {
                rates.push(per_second(span.steps, span.took));
            }
        }
        let mut rates = rates.split_off(rates.len().min(1));
        rates.sort_by(f64::total_cmp);
        let first = rates.get(rates.len() / 2).copied().unwrap_or_default();
        let note = format!("the median of {} times", rates.len());
        let name = format!("{short} waiting");
        report.add(workload, name, first, "steps/s", note);

        self.stop().await?;
        self.fill_queue(long, conn).await?;
        let rate = self.window(conn).await?;
        let note = format!("{:.2} times that", rate / first);
        let name = format!("{long} waiting");
        report.add(workload, name, rate, "steps/s", note);

        let runs = u64::from(long);
        let chain = definition(CHAIN)?;
        let mut numbers = data::Numbers::now(conn).await?;
        let progress = &self.progress;
        let say = |done: u64| progress.say(&format!("backlog: {done} of {runs} runs of history"));
        data::completed(conn, &chain, runs, &mut numbers, &say).await?;
        self.fill_queue(long, conn).await?;
        let rate = self.window(conn).await?;
        let history = u64::from(long) * u64::from(HISTORY_STEPS);
        let note = format!("{:.2} times that", rate / first);
        let name = format!("{long} waiting, {history} finished");
        report.add(workload, name, rate, "steps/s", note);
        Ok(())
    }

    async fn fill_queue(&self, runs: u32, conn: &mut Conn) -> Result<(), Error> {
        let definition = definition(FLAT)?;
        let mut numbers = data::Numbers::now(conn).await?;
        let progress = &self.progress;
        let say = |done: u64| progress.say(&format!("backlog: {done} of {runs} waiting"));
        data::waiting(conn, &definition, u64::from(runs), &mut numbers, &say).await?;
        Ok(data::settle(conn).await?)
    }

    /// Steps per second of a fresh daemon on the waiting work, for a while; then the daemon is
    /// stopped.
    async fn window(&mut self, conn: &mut Conn) -> Result<f64, Error> {
        self.progress.say("backlog: working");
        let began = query::now(conn).await?;
        self.start(conn, self.set(FLAT)).await?;
        // With less than a second's work, all of it is measured.
        let enough = self.options.backlog > SHORT * 10;
        if enough {
            tokio::time::sleep(SETTLE).await;
        }
        let from = if enough {
            query::now(conn).await?
        } else {
            began
        };
        let since = Instant::now();
        while since.elapsed() < WINDOW
            && claim::next_due(conn, FLAT, &LeftOut::default())
                .await?
                .is_some()
        {
            self.daemon()?;
            tokio::time::sleep(LOOK).await;
        }
        if claim::next_due(conn, FLAT, &LeftOut::default())
            .await?
            .is_none()
        {
            self.drained(Workload::Backlog, conn).await?;
        }
        let until = query::now(conn).await?;
        self.stop().await?;
        // The rest of the queue stays, so the runs have no end to read.
        let slices = measure::slices(conn, FLAT, from, until, until - from).await?;
        let micros = Duration::from_micros((until - from) as u64);
        Ok(per_second(slices.iter().sum(), micros))
    }

    /// One queue, and more and more workers or advancers on it.
    pub(super) async fn contention(
        &mut self,
        runs: usize,
        conn: &mut Conn,
        report: &mut BenchReport,
    ) -> Result<(), Error> {
        let workload = Workload::Contention;
        let mut first = None;
        for workers in WORKERS {
            let set = self.set(CHAIN);
            self.start(conn, set).await?;
            for _ in 1..workers {
                let set = Set {
                    alone: true,
                    ..self.set(CHAIN)
                };
                self.start_another(conn, set).await?;
            }
            let rate = self.all_at_once(workload, CHAIN, runs, conn).await?;
            let ratio = rate / *first.get_or_insert(rate);
            let plural = if workers == 1 { "" } else { "s" };
            let note = match workers {
                1 => format!("{runs} runs of 5 steps"),
                _ => format!("{ratio:.2} times that"),
            };
            let name = format!("{workers} worker{plural}");
            report.add(workload, name, rate, "steps/s", note);
        }
        let runs = runs.div_ceil(2);
        let mut first = None;
        for count in ADVANCERS {
            let set = Set {
                advancers: Some(count),
                ..self.set(DIAMOND)
            };
            self.start(conn, set).await?;
            let rate = self.all_at_once(workload, DIAMOND, runs, conn).await?;
            let ratio = rate / *first.get_or_insert(rate);
            let note = match count {
                1 => format!("{runs} runs of 4 steps that split and meet"),
                _ => format!("{ratio:.2} times that"),
            };
            let name = format!("pipeline_advancer.count {count}");
            report.add(workload, name, rate, "steps/s", note);
        }
        Ok(())
    }

    /// Gives `runs` to running daemons; returns steps per second.
    pub(super) async fn all_at_once(
        &self,
        workload: Workload,
        pipeline: &str,
        runs: usize,
        conn: &mut Conn,
    ) -> Result<f64, Error> {
        let definition = definition(pipeline)?;
        let waker = JobWaker::of(self);
        let since = query::now(conn).await?;
        let mut left = runs;
        while left > 0 {
            let batch = vec![EMPTY; left.min(BATCH)];
            trigger(conn, &definition, &batch, Duration::ZERO).await?;
            waker.job_available(pipeline);
            left -= batch.len();
        }
        self.drained(workload, conn).await?;
        let span = measure::work_span(conn, pipeline, since).await?;
        let span = span.filter(|span| span.runs == runs as u64);
        let name = workload.as_str();
        let none = || Error::Nonsense(format!("{name}: not all {runs} runs were completed"));
        let span = span.ok_or_else(none)?;
        Ok(per_second(span.steps, span.took))
    }
}

/// The narrowest, ten times as wide, …, the widest.
fn widths(widest: u32) -> Vec<u32> {
    let grow = |width: &u32| width.checked_mul(10);
    let below = std::iter::successors(Some(NARROW), grow).take_while(|width| *width < widest);
    below.chain([widest]).collect()
}

fn peak(processes: &Processes) -> u64 {
    let peaks = processes
        .all
        .iter()
        .map(|row| proc::usage(row.pid).rss_peak);
    peaks.max().unwrap_or_default()
}

/// Runs `count` commands, `at_once` at a time.
fn xargs(count: usize, at_once: usize) -> std::io::Result<Duration> {
    let began = Instant::now();
    let mut child = Command::new("xargs")
        .args(["-n", "1", "-P", &at_once.to_string(), TRUE])
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut to) = child.stdin.take() {
        // One argument each, which the command ignores.
        to.write_all("x\n".repeat(count).as_bytes())?;
    }
    match child.wait()? {
        status if status.success() => Ok(began.elapsed()),
        status => Err(std::io::Error::other(format!("it ended with {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_grow_tenfold_up_to_the_widest() {
        assert_eq!(widths(100_000), [1_000, 10_000, 100_000]);
        assert_eq!(widths(50_000), [1_000, 10_000, 50_000]);
        assert_eq!(widths(20), [20]);
    }
}
