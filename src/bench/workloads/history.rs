//! The cost of auditing a long history, and of deleting it.
//!
//! Owns: these two workloads.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::bench::pipelines::{CHAIN, FLAT};
use crate::bench::report::BenchReport;
use crate::bench::{Bench, Error, Workload};
use crate::engine::keeping::pause;
use crate::store::bench::data;
use crate::store::prune::Pruning;
use crate::store::{Conn, Purpose, audit};

use super::{definition, per_second};

/// The number of repetitions; the median counts. The first one warms the caches.
const ROUNDS: usize = 5;

/// Runs that wait in the queue meanwhile, unless the history is even shorter.
const WAITING: u64 = 1_000;

/// The longest time for which a deletion is measured; a short history is deleted sooner.
const WINDOW: Duration = Duration::from_secs(10);

/// The number of invariants that are shown.
const SLOWEST: usize = 5;

impl Bench {
    /// Every invariant, on finished runs and a queue.
    pub(super) async fn audit(
        &mut self,
        conn: &mut Conn,
        report: &mut BenchReport,
    ) -> Result<(), Error> {
        let workload = Workload::Audit;
        let (chain, flat) = (definition(CHAIN)?, definition(FLAT)?);
        let steps = chain.nodes.len() as u64;
        let runs = u64::from(self.options.history).div_ceil(steps);
        let waiting = WAITING.min(runs);
        let mut numbers = data::Numbers::now(conn).await?;
        let progress = &self.progress;
        let say = |done: u64| progress.say(&format!("audit: {done} of {runs} runs of history"));
        data::completed(conn, &chain, runs, &mut numbers, &say).await?;
        data::waiting(conn, &flat, waiting, &mut numbers, &|_| {}).await?;
        data::settle(conn).await?;

        progress.say("audit: auditing");
        let mut rounds = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let began = Instant::now();
            let audited = audit::audited(conn, audit::GRACE).await?;
            rounds.push((began.elapsed(), audited));
        }
        rounds.sort_by_key(|(took, _)| *took);
        let (took, audited) = &rounds[ROUNDS / 2];
        let executions = runs * steps;
        let seconds = |span: &Duration| span.as_secs_f64();
        let note = format!(
            "{} invariants, {executions} finished executions and {waiting} waiting; \
             the median of {ROUNDS} times",
            audited.took.len()
        );
        report.add(workload, "all", seconds(took), "s", note);
        let note = "what clears most of them";
        report.add(
            workload,
            "of it: a look at each table",
            seconds(&audited.prefilter),
            "s",
            note,
        );
        let mut slowest = audited.took.clone();
        slowest.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        for (name, took) in slowest.iter().take(SLOWEST) {
            report.add(workload, format!("of it: {name}"), seconds(took), "s", "");
        }
        Ok(())
    }

    /// Expired runs of the chain are deleted as a daemon deletes them, alone and beside new ones.
    pub(super) async fn retention(
        &mut self,
        runs: usize,
        conn: &mut Conn,
        report: &mut BenchReport,
    ) -> Result<(), Error> {
        let workload = Workload::Retention;
        let chain = definition(CHAIN)?;
        let steps = chain.nodes.len() as u64;
        let expired = u64::from(self.options.history).div_ceil(steps);
        let mut numbers = data::Numbers::now(conn).await?;
        let progress = &self.progress;
        let say =
            |done: u64| progress.say(&format!("retention: {done} of {expired} runs of history"));
        data::completed(conn, &chain, expired, &mut numbers, &say).await?;
        data::settle(conn).await?;
        let made = Instant::now();

        self.start(conn, self.set(CHAIN)).await?;
        // The first time is a warm-up.
        let mut alone = 0.0;
        for _ in 0..2 {
            alone = self.all_at_once(workload, CHAIN, runs, conn).await?;
        }
        let note = format!("{runs} runs of {steps} steps beside {expired} finished ones");
        report.add(workload, "worked alone", alone, "steps/s", note);

        // Runs that were made before that moment have expired; later ones have not.
        let mut pruning = Pruning::of(Some(made.elapsed()), expired);
        let mut other = self.sandbox.location().connect(Purpose::Engine).await?;
        let began = Instant::now();
        while began.elapsed() < WINDOW && pruning.runs < expired / 2 {
            if !delete(&mut pruning, made, &mut other).await? {
                break;
            }
        }
        let deleted = per_second(pruning.runs, began.elapsed());
        let made_per_second = alone / steps as f64;
        let note = format!(
            "{:.2} times as many as were made",
            deleted / made_per_second
        );
        report.add(workload, "deleted alone", deleted, "runs/s", note);

        let before = pruning.runs;
        let began = Instant::now();
        let over = Cell::new(false);
        let works = async {
            let worked = self.all_at_once(workload, CHAIN, runs, conn).await;
            over.set(true);
            worked
        };
        let deletes = async {
            while !over.get() && delete(&mut pruning, made, &mut other).await? {}
            Ok::<_, Error>(began.elapsed())
        };
        let (beside, deleting) = tokio::join!(works, deletes);
        let (beside, deleting) = (beside?, deleting?);
        other.close().await;
        let note = format!("{:.2} times that", beside / alone);
        report.add(
            workload,
            "worked beside a deletion",
            beside,
            "steps/s",
            note,
        );
        let rate = per_second(pruning.runs - before, deleting);
        let note = format!(
            "{} runs; {:.2} times as many as were made",
            pruning.runs - before,
            rate / (beside / steps as f64)
        );
        report.add(workload, "deleted beside the work", rate, "runs/s", note);
        Ok(())
    }
}

/// Runs one transaction, and the pause that a daemon makes after it; false if nothing is left.
async fn delete(pruning: &mut Pruning, made: Instant, conn: &mut Conn) -> Result<bool, Error> {
    let asked = Instant::now();
    pruning.older_than(made.elapsed());
    let more = pruning.step(conn).await?;
    tokio::time::sleep(pause(asked.elapsed())).await;
    Ok(more)
}
