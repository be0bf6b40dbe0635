//! The limit of the database, beside Ductwork's share of it.
//!
//! Owns: the shapes in which it is measured, and how that share is reported.

use crate::bench::pipelines::FLAT;
use crate::bench::report::BenchReport;
use crate::bench::{Bench, Error, Workload};
use crate::store::bench::baseline::{self, Load};

use super::definition;

/// Connections and steps per transaction.
const SHAPES: [(u64, u64); 4] = [(1, 100), (1, 500), (2, 100), (2, 500)];

/// Steps written in each shape.
const STEPS: u64 = 10_000;

/// Commits of one row.
const COMMITS: usize = 200;

impl Bench {
    /// The same row writes as plain SQL; `ours` is the rate that Ductwork reached.
    pub(super) async fn limit(
        &mut self,
        workload: Workload,
        load: Load,
        ours: f64,
        report: &mut BenchReport,
    ) -> Result<(), Error> {
        // The daemon's commits and these would share the disk.
        self.stop().await?;
        let steps = STEPS.min(u64::from(self.options.runs) * 10);
        let definition = definition(FLAT)?;
        for (connections, batch) in SHAPES {
            let text = format!("{}: limit, {connections} × {batch}", workload.as_str());
            self.progress.say(&text);
            self.yard.remove().await?;
            self.yard.create().await?.close().await;
            let place = self.yard.location();
            let done = baseline::write(place, &definition, load, connections, batch, steps);
            let done = done.await?;
            let rate = super::per_second(done.steps, done.took);
            let plural = if connections == 1 { "" } else { "s" };
            let name = format!("limit, {connections} connection{plural}, batch {batch}");
            let note = format!("plain SQL; ours is {:.1} % of it", ours / rate * 100.0);
            report.add(workload, name, rate, "steps/s", note);
        }
        self.yard.remove().await?;
        Ok(())
    }

    /// The time of a commit, however small it is.
    pub(super) async fn commits(&mut self, report: &mut BenchReport) -> Result<(), Error> {
        self.stop().await?;
        self.progress.say("latency: commits");
        let times = baseline::commits(self.sandbox.location(), COMMITS).await?;
        let note = format!("{COMMITS} updates of one row, each committed: the disk's share");
        report.add_times(Workload::Latency, "one commit", &times, &note);
        Ok(())
    }
}
