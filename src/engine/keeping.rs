//! Work that may take long and that no turn of a loop does: deleting runs whose retention is over,
//! finishing cancellations and deletions that were left half done, and deciding questions that nobody
//! has answered in time.
//!
//! Owns: its pace, and a connection of its own, which is open only during this work: no heartbeat
//! waits for it ([ADR 20](docs/adr/0020-wide-runs-part-by-part.md)). Never: claims work.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::store::cancel::{self, Cancelling};
use crate::store::prune::Pruning;
use crate::store::resume;
use crate::store::{Conn, Error, Location, Purpose};
use crate::telemetry::events;

/// How often the number of deleted runs is logged while the deletion goes on.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// The task that does this work, one at a time.
#[derive(Default)]
pub struct Keeping {
    task: Option<JoinHandle<()>>,
    stopped: Rc<Cell<bool>>,
}

impl Keeping {
    /// Begins, unless the task is running: deletes runs that ended longer ago than `retention`, if
    /// that is given, and finishes work that nobody has continued for `abandoned`.
    pub fn begin(&mut self, location: &Location, retention: Option<Duration>, abandoned: Duration) {
        if self.task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let location = location.clone();
        let stopped = Rc::clone(&self.stopped);
        self.task = Some(tokio::task::spawn_local(async move {
            if let Err(error) = keep(&location, retention, abandoned, &stopped).await {
                // The next look finds the rest.
                events::keeping_failed(&error);
            }
        }));
    }

    /// Lets the current transaction end, and no other begin.
    pub async fn stop(self) {
        self.stopped.set(true);
        if let Some(task) = self.task {
            let _ = task.await;
        }
    }
}

async fn keep(
    location: &Location,
    retention: Option<Duration>,
    abandoned: Duration,
    stopped: &Cell<bool>,
) -> Result<(), Error> {
    let mut conn = location.connect(Purpose::Engine).await?;
    let kept = work(&mut conn, retention, abandoned, stopped).await;
    conn.close().await;
    kept
}

async fn work(
    conn: &mut Conn,
    retention: Option<Duration>,
    abandoned: Duration,
    stopped: &Cell<bool>,
) -> Result<(), Error> {
    loop {
        let passed = resume::pass_deadlines(conn).await?;
        if passed.approved + passed.halted > 0 {
            events::deadlines_passed(passed.approved, passed.halted);
        }
        if !passed.more || stopped.get() {
            break;
        }
    }
    for run in cancel::unfinished(conn, abandoned).await? {
        let mut cancelling = Cancelling::of(run, cancel::BATCH);
        loop {
            if stopped.get() {
                return Ok(());
            }
            let asked = Instant::now();
            if cancelling.step(conn).await?.is_some() {
                events::cancellation_finished(run);
                break;
            }
            // A run that cannot be closed yet, because somebody holds it, is not asked for all the time.
            tokio::time::sleep(pause(asked.elapsed()).max(cancel::AGAIN)).await;
        }
    }
    let mut pruning = Pruning::of(retention, u64::MAX);
    let mut reported = (0, Instant::now());
    let mut more = true;
    while more && !stopped.get() {
        let asked = Instant::now();
        more = pruning.step(conn).await?;
        tokio::time::sleep(pause(asked.elapsed())).await;
        let due = reported.1.elapsed() >= REPORT_EVERY || !more || stopped.get();
        if due && pruning.runs > reported.0 {
            events::pruned(pruning.runs - reported.0);
            reported = (pruning.runs, Instant::now());
        }
    }
    Ok(())
}

/// Three times as long as the transaction took, so that the work has three quarters of the database,
/// and more than half as many runs can be deleted as are created meanwhile (`bench retention`).
pub(crate) fn pause(took: Duration) -> Duration {
    took * 3
}
