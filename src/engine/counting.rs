//! The counts of the loops, and how they get into the row of the process.
//!
//! Owns: which event counts for which metrics; when the row is written. Never: makes a heartbeat late, or
//! makes anything else fail: counts that cannot be written now are written later.

use std::collections::HashSet;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use crate::machine::outcome::{Ending, Verdict};
use crate::machine::webhook::Follows;
use crate::metrics::{self, Counts, Measured};
use crate::model::*;
use crate::proc::Usage;
use crate::store::advance::Advanced;
use crate::store::claim::Claimed;
use crate::store::commit::{Committed, Finished};
use crate::store::process::Holding;
use crate::store::recovery::{Death, Recovered};
use crate::store::transition::Crossed;
use crate::store::{Conn, Error, error, metrics as rows};

use super::lifeline::Beat;
use super::shared::Shared;

/// The time between two writes of a process's row: a process that is killed loses only counts that are
/// younger.
pub const WRITE_EVERY: Duration = Duration::from_secs(10);

/// How often a console at which nothing happens writes its row: its heartbeats alone are no reason for a write.
const WRITE_QUIET_EVERY: Duration = Duration::from_secs(60);

/// An execution whose result was sent to the database.
pub struct Sent {
    claimed: Arc<Claimed>,
    /// How it ended.
    pub ending: Ending,
    verdict: Verdict,
}

impl Sent {
    /// Keeps the parts of these results that are counted once their fate is known.
    pub fn all(finished: &[Finished]) -> Vec<Self> {
        let sent = |finished: &Finished| Self {
            claimed: Arc::clone(&finished.claimed),
            ending: finished.ended.ending,
            verdict: finished.verdict,
        };
        finished.iter().map(sent).collect()
    }

    /// The execution.
    pub fn id(&self) -> ExecutionId {
        self.claimed.execution_id
    }
}

/// Creates the series of a process that registers, so that the first rise of each is seen. One that `sweeps` finds
/// processes dead, with a supervisor or without.
pub fn begin(counts: &mut Counts, role: Role, pipeline: Option<&str>, sweeps: bool) {
    let own = [role.as_str()];
    counts.add(&metrics::DB_STATEMENTS, &own, 0);
    counts.add(&metrics::LOG_LINES_DROPPED, &[], 0);
    for class in error::CLASSES {
        counts.add(&metrics::DB_ERRORS, &[class], 0);
    }
    match (role, pipeline) {
        (Role::Worker, Some(pipeline)) => {
            counts.add(&metrics::STALE_WRITES, &own, 0);
            counts.add(&metrics::RUNS_STARTED, &[pipeline], 0);
            counts.add(&metrics::DUPLICATE_TRIGGERS, &[pipeline], 0);
            for status in [RunStatus::Completed, RunStatus::Halted] {
                counts.add(&metrics::RUNS_ENDED, &[pipeline, status.as_str()], 0);
            }
            for hook in [Via::OnHalt, Via::OnComplete, Via::OnWait] {
                counts.add(&metrics::HOOKS_FAILED, &[pipeline, hook.as_str()], 0);
            }
        }
        (Role::Advancer, _) => counts.add(&metrics::STALE_WRITES, &own, 0),
        (Role::Console, _) => {
            for outcome in [DELIVERED, AGAIN, FAILED] {
                counts.add(&metrics::WEBHOOK_DELIVERIES, &[outcome], 0);
            }
        }
        (Role::Supervisor, _) => {
            for role in [Role::Worker, Role::Advancer] {
                for cause in ["ended", "failed", "killed"] {
                    counts.add(&metrics::PROCESS_EXITS, &[role.as_str(), cause], 0);
                }
            }
        }
        _ => {}
    }
    if sweeps {
        for kind in KINDS {
            counts.add(&metrics::LEASES_EXPIRED, &[kind], 0);
        }
        for proof in [EXIT, STOP, SILENCE] {
            counts.add(&metrics::RECOVERIES, &[proof], 0);
        }
        counts.add(&metrics::SUPERVISORS_LOST, &[], 0);
    }
}

/// The signs by which a process is known to be dead.
const EXIT: &str = "exit";
const STOP: &str = "stop";
const SILENCE: &str = "silence";

/// The outcomes of an attempt to notify an endpoint of a run.
const DELIVERED: &str = "delivered";
const AGAIN: &str = "again";
const FAILED: &str = "failed";

/// The kinds of claims.
const KINDS: [&str; 2] = ["execution", "advancement"];

/// A worker has claimed executions, which had been due for this long.
pub fn claimed(counts: &mut Counts, pipeline: &str, waited: &[Duration]) {
    granted(counts, "execution", waited.len());
    for waited in waited {
        counts.observe(&metrics::STEP_WAIT, &[pipeline], *waited);
    }
}

/// A process has claimed this many of a kind.
pub fn granted(counts: &mut Counts, kind: &'static str, claimed: usize) {
    counts.add(&metrics::LEASES_GRANTED, &[kind], claimed as u64);
}

/// An attempt of a worker has ended by itself, after this long.
pub fn ran(counts: &mut Counts, pipeline: &str, step: &str, ending: Ending, took: Duration) {
    if !matches!(ending, Ending::Released { .. } | Ending::Cancelled) {
        counts.observe(&metrics::STEP_DURATION, &[pipeline, step], took);
    }
}

/// A worker's commit was answered.
pub fn committed(counts: &mut Counts, pipeline: &str, sent: &[Sent], committed: &Committed) {
    let stale: HashSet<ExecutionId> = committed.stale.iter().copied().collect();
    let mut late = 0;
    for sent in sent {
        match stale.contains(&sent.id()) {
            // The attempt was ended because its run was cancelled, and has no result that could be late.
            true => late += usize::from(sent.ending != Ending::Cancelled),
            false => execution_ended(counts, pipeline, sent),
        }
    }
    stale_writes(counts, Role::Worker, late);
    granted(counts, "execution", committed.leased_next.len());
    let moved = committed.advanced as u64;
    counts.add(&metrics::ADVANCEMENTS, &[pipeline, "success"], moved);
    crossed(counts, &committed.crossed);
}

/// A commit's answer was lost, and these of its results turned out to be stored. Whether a run ended
/// with one of them is no longer known.
pub fn landed(counts: &mut Counts, pipeline: &str, sent: &[Sent], landed: &HashSet<ExecutionId>) {
    for sent in sent.iter().filter(|sent| landed.contains(&sent.id())) {
        execution_ended(counts, pipeline, sent);
    }
}

fn execution_ended(counts: &mut Counts, pipeline: &str, sent: &Sent) {
    let Sent {
        claimed,
        ending,
        verdict,
    } = sent;
    let (step, result) = (claimed.step.as_str(), ending.result());
    let labels = [pipeline, step, result.as_str()];
    counts.add(&metrics::EXECUTIONS_ENDED, &labels, 1);
    let is_retry = !matches!(ending, Ending::Released { .. });
    if is_retry && matches!(verdict, Verdict::Again { .. }) {
        counts.add(&metrics::RETRIES, &labels, 1);
    }
    if *verdict == Verdict::Fail {
        hook_failed(counts, pipeline, claimed.via);
    }
    if claimed.attempt == 1 && claimed.via == Via::Start {
        counts.add(&metrics::RUNS_STARTED, &[pipeline], 1);
    }
}

fn hook_failed(counts: &mut Counts, pipeline: &str, via: Via) {
    if via.is_hook() {
        counts.add(&metrics::HOOKS_FAILED, &[pipeline, via.as_str()], 1);
    }
}

/// An advancer has moved branches.
pub fn advanced(counts: &mut Counts, advanced: &Advanced) {
    for (pipeline, moved) in &advanced.moved_of {
        counts.add(&metrics::ADVANCEMENTS, &[pipeline, "success"], *moved);
    }
    stale_writes(counts, Role::Advancer, advanced.stale.len());
    crossed(counts, &advanced.crossed);
}

fn stale_writes(counts: &mut Counts, role: Role, stale: usize) {
    if stale > 0 {
        counts.add(&metrics::STALE_WRITES, &[role.as_str()], stale as u64);
    }
}

fn crossed(counts: &mut Counts, crossed: &Crossed) {
    for (run, pipeline, status) in &crossed.ended {
        let labels = [pipeline.as_str(), status.as_str()];
        counts.add(&metrics::RUNS_ENDED, &labels, 1);
        if let Some(lasted) = lasted(*run) {
            counts.observe(&metrics::RUN_DURATION, &labels, lasted);
        }
    }
}

/// How long a run has existed: its id begins with the time of its trigger, as the id of a new run would
/// begin with the present time.
fn lasted(run: RunId) -> Option<Duration> {
    let time = |run: RunId| {
        let (seconds, nanoseconds) = run.0.get_timestamp()?.to_unix();
        Some(Duration::new(seconds, nanoseconds))
    };
    Some(time(RunId::new())?.saturating_sub(time(run)?))
}

/// A transaction that stored results, or moved branches, was answered.
pub fn stored(counts: &mut Counts, role: Role, took: Duration) {
    counts.observe(&metrics::COMMIT, &[role.as_str()], took);
}

/// A heartbeat was written, or was not. One that was withheld is none.
pub fn beaten(counts: &mut Counts, role: Role, beaten: &Result<Beat, Error>) {
    let outcome = match beaten {
        Ok(Beat::Dead) => "dead",
        Ok(Beat::Written) => "written",
        Ok(Beat::Waits) => "waited",
        Ok(Beat::Withheld) => return,
        Err(_) => "failed",
    };
    counts.add(&metrics::HEARTBEATS, &[role.as_str(), outcome], 1);
}

/// Leases were extended with a heartbeat.
pub fn extended(counts: &mut Counts, holding: &Holding) {
    let extended = [holding.executions_extended, holding.branches.len() as u64];
    for (kind, extended) in KINDS.into_iter().zip(extended) {
        if extended > 0 {
            counts.add(&metrics::LEASES_EXTENDED, &[kind], extended);
        }
    }
}

/// A dead process was recovered, this long after its last heartbeat, if that is known.
pub fn recovered(
    counts: &mut Counts,
    death: Death<'_>,
    recovered: &Recovered,
    silence: Option<Duration>,
) {
    let (proof, result) = match death {
        Death::Proven { .. } => (EXIT, ExecutionResult::ProcessCrashed),
        Death::Stopped => (STOP, ExecutionResult::Released),
        Death::Witnessed { .. } => (SILENCE, ExecutionResult::ProcessCrashed),
    };
    if recovered.declared {
        counts.add(&metrics::RECOVERIES, &[proof], 1);
        if let Some(silence) = silence {
            counts.observe(&metrics::RECOVERY, &[], silence);
        }
        if recovered.role == Some(Role::Supervisor) && result == ExecutionResult::ProcessCrashed {
            counts.add(&metrics::SUPERVISORS_LOST, &[], 1);
        }
    }
    for closed in &recovered.closed {
        let labels = [
            closed.pipeline.as_str(),
            closed.step.as_str(),
            result.as_str(),
        ];
        counts.add(&metrics::EXECUTIONS_ENDED, &labels, 1);
        if closed.again && result == ExecutionResult::ProcessCrashed {
            counts.add(&metrics::RETRIES, &labels, 1);
        }
        if let Some(via) = closed.via.filter(|_| !closed.again) {
            hook_failed(counts, &closed.pipeline, via);
        }
        if closed.starts {
            counts.add(&metrics::RUNS_STARTED, &[&closed.pipeline], 1);
        }
    }
    if let Death::Witnessed { .. } = death {
        let lost = [recovered.closed.len(), recovered.advancements];
        for (kind, lost) in KINDS.into_iter().zip(lost) {
            counts.add(&metrics::LEASES_EXPIRED, &[kind], lost as u64);
        }
    }
}

/// A supervisor has started a process; `again`: in place of one that died.
pub fn started(counts: &mut Counts, role: Role, again: bool) {
    let cause = match again {
        true => "death",
        false => "start",
    };
    counts.add(&metrics::PROCESS_STARTS, &[role.as_str(), cause], 1);
}

/// A process of a supervisor has ended.
pub fn exited(counts: &mut Counts, role: Role, status: ExitStatus) {
    let cause = match status.code() {
        Some(0) => "ended",
        Some(_) => "failed",
        None => "killed",
    };
    counts.add(&metrics::PROCESS_EXITS, &[role.as_str(), cause], 1);
}

/// A process that was told to end has done so.
pub fn stopped(counts: &mut Counts, role: Role, outcome: &'static str, took: Duration) {
    counts.add(&metrics::SHUTDOWNS, &[role.as_str(), outcome], 1);
    counts.observe(&metrics::SHUTDOWN, &[role.as_str()], took);
}

/// A console has answered a request to a route of this pattern, if there is one.
pub fn answered(counts: &mut Counts, route: Option<&str>, status: u16, took: Duration) {
    let class = match status / 100 {
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    };
    let route = route.unwrap_or(metrics::OTHER);
    counts.observe(&metrics::HTTP_REQUEST, &[route, class], took);
}

/// A trigger's key belongs to a run already.
pub fn triggered_again(counts: &mut Counts, pipeline: &str) {
    counts.add(&metrics::DUPLICATE_TRIGGERS, &[pipeline], 1);
}

/// An attempt to notify an endpoint of a run has ended.
pub fn delivered(counts: &mut Counts, follows: Follows) {
    let outcome = match follows {
        Follows::Delivered => DELIVERED,
        Follows::Again(_) => AGAIN,
        Follows::Failed => FAILED,
    };
    counts.add(&metrics::WEBHOOK_DELIVERIES, &[outcome], 1);
}

/// When the row of a process is written.
pub struct Writing {
    /// The next write.
    pub due: tokio::time::Instant,
    /// The statements that are already counted.
    statements: u64,
    is_first: bool,
    /// A console writes by then, whether or not anything has happened.
    quiet_until: tokio::time::Instant,
}

impl Writing {
    /// The first write comes after a while. Of a program's loops, the first one reports the program's
    /// resource usage.
    pub fn new(is_first: bool) -> Self {
        Self {
            due: tokio::time::Instant::now() + WRITE_EVERY,
            statements: 0,
            is_first,
            quiet_until: tokio::time::Instant::now(),
        }
    }

    /// Writes the row when it is due. The row of a console that only beats can wait.
    pub async fn write_in_turn(
        &mut self,
        conn: &mut Conn,
        shared: &Shared,
        role: Role,
    ) -> Result<(), Error> {
        let rising = [&metrics::HEARTBEATS, &metrics::DB_STATEMENTS];
        let is_quiet = role == Role::Console && shared.counts.is_quiet(&rising);
        let now = tokio::time::Instant::now();
        if is_quiet && now < self.quiet_until {
            self.due = now + WRITE_EVERY;
            return Ok(());
        }
        self.quiet_until = now + WRITE_QUIET_EVERY;
        self.write(conn, shared, role).await
    }

    /// Writes the row, if it changes: one statement, which waits for a lock no longer than a heartbeat
    /// does. It fails only with an error that ends the connection.
    pub async fn write(
        &mut self,
        conn: &mut Conn,
        shared: &Shared,
        role: Role,
    ) -> Result<(), Error> {
        self.due = tokio::time::Instant::now() + WRITE_EVERY;
        self.take(shared, role);
        shared.counts.measure(self.measured(shared));
        let Some(body) = shared.counts.to_write() else {
            return Ok(());
        };
        match rows::write(conn, shared.process(), &body).await {
            Ok(true) => shared.counts.written(body),
            // The next heartbeat finds that the row is gone, and registers another one.
            Ok(false) => {}
            Err(error) if error.is_unavailable() || conn.is_broken() => {
                // The row may have been written.
                shared.counts.written(body);
                return Err(error);
            }
            // Nothing was written; the next write has it all.
            Err(error) => tracing::debug!(
                error = crate::telemetry::chain(&error),
                "counts were not written"
            ),
        }
        Ok(())
    }

    fn measured(&self, shared: &Shared) -> Measured {
        let (slots, busy) = shared.slots().unzip();
        let own = Measured {
            slots,
            busy,
            ..Measured::default()
        };
        match self.is_first {
            true => {
                let usage = Usage::now();
                let milliseconds = |time: Duration| u64::try_from(time.as_millis()).ok();
                Measured {
                    memory: usage.resident,
                    cpu_ms: usage.cpu.and_then(milliseconds),
                    open_fds: usage.open_fds,
                    ..own
                }
            }
            false => own,
        }
    }

    /// Takes over counts that are kept elsewhere: the statements of this process, and the errors and dropped log lines
    /// of the whole program, which go to the loop that asks for them first.
    fn take(&mut self, shared: &Shared, role: Role) {
        let statements = shared.counters().statements;
        let sent = statements - std::mem::replace(&mut self.statements, statements);
        let failed = error::take_failed();
        let dropped = crate::telemetry::take_dropped();
        shared.counts.count(|counts| {
            counts.add(&metrics::DB_STATEMENTS, &[role.as_str()], sent);
            for (class, failed) in error::CLASSES.into_iter().zip(failed) {
                if failed > 0 {
                    counts.add(&metrics::DB_ERRORS, &[class], failed);
                }
            }
            counts.add(&metrics::LOG_LINES_DROPPED, &[], dropped);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_counted_from_zero_by_all_that_sweep_with_a_supervisor_or_without() {
        for role in [Role::Supervisor, Role::Advancer, Role::Worker] {
            let (mut begun, mut beside) = (Counts::default(), Counts::default());
            begin(&mut begun, role, Some("P"), true);
            begin(&mut beside, role, Some("P"), false);
            assert_ne!(begun, beside, "{role:?}");
            for kind in KINDS {
                beside.add(&metrics::LEASES_EXPIRED, &[kind], 0);
            }
            for proof in [EXIT, STOP, SILENCE] {
                beside.add(&metrics::RECOVERIES, &[proof], 0);
            }
            beside.add(&metrics::SUPERVISORS_LOST, &[], 0);
            assert_eq!(begun, beside, "{role:?}");
        }
    }
}
