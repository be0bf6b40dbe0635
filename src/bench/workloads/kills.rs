//! Workers that are killed.
//!
//! Owns: how fast their work is taken up again, and how fast the throughput recovers. Each kill
//! gets a fresh daemon: a daemon whose worker dies again and again waits, as it should, longer and
//! longer before it starts the next.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bench::daemon::{Processes, Set};
use crate::bench::pipelines::{HOLD, NAP, NAP_TIME};
use crate::bench::report::BenchReport;
use crate::bench::{Bench, Error, Workload};
use crate::model::Role;
use crate::store::bench::measure;
use crate::store::process::ProcessRow;
use crate::store::trigger::trigger;
use crate::store::{Conn, query};

use super::{EMPTY, PATIENCE, definition};

/// The number of workers that are killed while they hold their work.
const KILLS: u32 = 20;

/// The number of workers that are killed in a storm: each takes seconds.
const STORM_KILLS: u32 = 5;

/// Executions at once in a storm.
const STORM_SLOTS: u32 = 50;

/// The time for which a daemon works before its throughput counts.
const SETTLE: Duration = Duration::from_secs(1);

/// The time for which its throughput is measured, before the kill and at least after it.
const SPAN: Duration = Duration::from_secs(2);

/// Throughput is measured over a window of this length, ...
const WINDOW: Duration = Duration::from_millis(250);

/// ... which moves by this step.
const SLICE: Duration = Duration::from_millis(10);

/// The share of the earlier throughput that counts as full recovery.
const BACK: f64 = 0.95;

impl Bench {
    /// Workers are killed while all their slots are taken.
    pub(super) async fn recovery(
        &mut self,
        conn: &mut Conn,
        report: &mut BenchReport,
    ) -> Result<(), Error> {
        let workload = Workload::Recovery;
        let kills = self.options.kills.unwrap_or(KILLS);
        let slots = u64::from(self.slots);
        let batch = vec![EMPTY; self.slots as usize];
        trigger(conn, &definition(HOLD)?, &batch, Duration::ZERO).await?;
        let (mut given_back, mut taken_again) = (Vec::new(), Vec::new());
        for index in 0..kills {
            self.progress
                .say(&format!("recovery: {index} of {kills} killed"));
            let set = Set {
                target: true,
                ..self.set(HOLD)
            };
            let processes = self.start(conn, set).await?;
            let worker = worker(&processes)?;
            self.held(conn, worker.id, slots).await?;
            let killed = Instant::now();
            shoot(worker)?;
            self.held(conn, worker.id, 0).await?;
            given_back.push(killed.elapsed());
            let successor = self.daemon()?.successor(conn, worker.id).await?;
            self.held(conn, successor, slots).await?;
            taken_again.push(killed.elapsed());
            self.stop().await?;
        }
        let note = format!("{kills} workers killed with {slots} executions each; from the kill");
        report.add_times(workload, "claimable again", &given_back, &note);
        report.add_times(workload, "claimed again", &taken_again, "");
        Ok(())
    }

    /// Workers are killed while all their slots are busy with short steps.
    pub(super) async fn storm(
        &mut self,
        conn: &mut Conn,
        report: &mut BenchReport,
    ) -> Result<(), Error> {
        let workload = Workload::Storm;
        let kills = self.options.kills.unwrap_or(STORM_KILLS);
        // As much as fifty slots can do until everything is measured, with some to spare.
        let each = (SETTLE + SPAN * 3).as_millis() / NAP_TIME.as_millis();
        let enough = each as usize * STORM_SLOTS as usize;
        let (mut rates, mut back, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..kills {
            self.progress
                .say(&format!("storm: {index} of {kills} killed"));
            self.queue(workload, NAP, enough, conn).await?;
            let set = Set {
                slots: STORM_SLOTS,
                target: true,
                ..self.set(NAP)
            };
            let processes = self.start(conn, set).await?;
            tokio::time::sleep(SETTLE).await;
            let from = query::now(conn).await?;
            tokio::time::sleep(SPAN).await;
            let killed = query::now(conn).await?;
            shoot(worker(&processes)?)?;
            let since = Instant::now();
            let before: u64 = slices(conn, from, killed).await?.iter().sum();
            let rate = before as f64 / (killed - from) as f64 * 1e6;
            if rate <= 0.0 {
                return Err(Error::Stuck("storm: nothing was done before the kill"));
            }
            let after = loop {
                tokio::time::sleep(SPAN.saturating_sub(since.elapsed()).max(WINDOW)).await;
                self.daemon()?;
                let now = query::now(conn).await?;
                let after = slices(conn, killed, now).await?;
                if let Some(at) = recovered(&after, rate) {
                    back.push(SLICE * at as u32);
                    break after;
                }
                if since.elapsed() > PATIENCE {
                    return Err(Error::Stuck("the throughput was not back within a minute"));
                }
            };
            let done: u64 = after.iter().sum();
            let due = rate * SLICE.as_secs_f64() * after.len() as f64;
            lost.push(Duration::from_secs_f64((due - done as f64).max(0.0) / rate));
            rates.push(rate);
            self.stop().await?;
        }
        rates.sort_by(f64::total_cmp);
        let note = format!(
            "before the kill, median; {STORM_SLOTS} slots, steps of {} ms",
            NAP_TIME.as_millis()
        );
        let median = rates.get(rates.len() / 2).copied().unwrap_or_default();
        report.add(workload, "throughput", median, "steps/s", note);
        let note = format!(
            "{kills} kills, each of a fresh daemon: from the kill until {} ms make {:.0} % of it",
            WINDOW.as_millis(),
            BACK * 100.0
        );
        report.add_times(workload, "throughput is back", &back, &note);
        let note = "work that was not done meanwhile, in time at full throughput";
        report.add_times(workload, "throughput lost", &lost, note);
        Ok(())
    }
}

async fn slices(conn: &mut Conn, from: i64, until: i64) -> Result<Vec<u64>, Error> {
    let width = SLICE.as_micros() as i64;
    Ok(measure::slices(conn, NAP, from, until, width).await?)
}

/// The first slice from which a window reaches the share of `rate` that counts as recovery. It does
/// not lie before the end of the longest silence: a catch-up must not hide that nothing was done at
/// first.
fn recovered(slices: &[u64], rate: f64) -> Option<usize> {
    let wide = (WINDOW.as_micros() / SLICE.as_micros()) as usize;
    let due = rate * WINDOW.as_secs_f64() * BACK;
    let (mut silent, mut longest, mut spoken) = (0, 0, 0);
    for (index, count) in slices.iter().enumerate() {
        silent = if *count == 0 { silent + 1 } else { 0 };
        if silent > longest {
            (longest, spoken) = (silent, index + 1);
        }
    }
    let mut windows = slices.get(spoken..)?.windows(wide);
    let first = windows.position(|window| window.iter().sum::<u64>() as f64 >= due)?;
    Some(spoken + first)
}

fn worker(processes: &Processes) -> Result<&ProcessRow, Error> {
    processes.of(Role::Worker).ok_or(Error::DaemonEnded)
}

fn shoot(worker: &ProcessRow) -> Result<(), Error> {
    kill(Pid::from_raw(worker.pid as i32), Signal::SIGKILL).map_err(|error| Error::System {
        what: "the worker cannot be killed",
        source: error.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_is_back_where_a_whole_window_has_it() {
        // One per slice makes a hundred a second.
        let mut slices = vec![0; 7];
        slices.extend([1; 40]);
        assert_eq!(recovered(&slices, 100.0), Some(7));
        // Twice as many afterwards do not make up for the silence before.
        slices[7..].fill(2);
        assert_eq!(recovered(&slices, 100.0), Some(7));
        // Slow at first; a window may lack a twentieth, so it may begin with an empty slice.
        slices[7..20].fill(0);
        slices[10] = 1;
        assert_eq!(recovered(&slices, 200.0), Some(19));
        assert_eq!(recovered(&slices, 300.0), None);
        assert_eq!(recovered(&[1; 24], 1.0), None);
    }
}
