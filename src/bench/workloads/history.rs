//! What it takes to audit a long history.
//!
//! Owns: that one workload.

use std::time::{Duration, Instant};

use crate::bench::pipelines::{CHAIN, FLAT};
use crate::bench::report::BenchReport;
use crate::bench::{Bench, Error, Workload};
use crate::store::{Conn, audit, fill};

use super::definition;

/// How often it is done; the median counts. The first time warms the caches.
const ROUNDS: usize = 5;

/// Runs that wait in the queue meanwhile, if the history is not even shorter.
const WAITING: u64 = 1_000;

/// How many of the invariants are shown.
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
        let mut numbers = fill::Numbers::now(conn).await?;
        let progress = &self.progress;
        let told = |done: u64| progress.say(&format!("audit: {done} of {runs} runs of history"));
        fill::completed(conn, &chain, runs, &mut numbers, &told).await?;
        fill::waiting(conn, &flat, waiting, &mut numbers, &|_| {}).await?;
        fill::settle(conn).await?;

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
            seconds(&audited.sketch),
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
}
