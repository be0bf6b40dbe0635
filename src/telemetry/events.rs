//! The events of the engine: one function each, fields typed, prose once.
//!
//! Owns: what is said when something happens. Never: decides that it happened. Payloads are
//! never among the fields.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{debug, error, info, warn};

use crate::model::{BranchId, ExecutionId, HaltReason, ProcessId, RunId, RunStatus, Via};
use crate::step::Assignment;
use crate::store::clock::Overtaken;
use crate::store::commit::StoredError;
use crate::store::recovery::{Death, Recovered};
use crate::store::transition::Crossed;

use super::chain;

/// The database went away, or cannot be reached. Logged once per outage and connection, and now and
/// then while it lasts.
pub fn database_lost(error: &crate::store::Error) {
    warn!(
        error = chain(error),
        remedy = error.remedy(),
        "waiting for the database"
    );
}

/// The database answers, but could not do what it was asked. Logged as rarely.
pub fn database_hindered(error: &crate::store::Error) {
    warn!(
        error = chain(error),
        statement = error.statement(),
        remedy = error.remedy(),
        "the database cannot do this at the moment; trying again until it can"
    );
}

/// Connections are lost again and again. Logged instead of each loss, ever more rarely.
pub fn database_comes_and_goes(error: &crate::store::Error) {
    warn!(
        error = chain(error),
        "connections to the database are lost again and again; from now on only an outage that lasts is \
         told"
    );
}

/// The database is back, or does its part again; of several servers, this is the one.
pub fn database_back(attempts: u32, reached: bool, server: Option<String>) {
    match reached {
        true => info!(attempts, server, "the database does its part again"),
        false => info!(attempts, server, "the database is back"),
    }
}

/// The database did not do what a loop asked of it. Logged each time, beside the trouble that is reported
/// for it.
pub fn statement_failed(error: &crate::store::Error) {
    debug!(
        error = chain(error),
        statement = error.statement(),
        "a statement failed"
    );
}

/// A process is in the database (of several servers, in this one) and works.
pub fn registered(process: ProcessId, server: Option<String>) {
    info!(process_id = %process, server, "registered");
}

/// The row of a process that ends could not be removed: it will be reaped.
pub fn deregister_failed(error: &crate::store::Error) {
    warn!(
        error = chain(error),
        "could not deregister; a reaper will remove this process"
    );
}

/// A child cannot register. Logged at once, and ever more rarely while it lasts.
pub fn not_registered(text: &str, lasted: Duration) {
    warn!(
        error = text,
        seconds = lasted.as_secs(),
        "a child has not registered yet"
    );
}

/// The console cannot listen. Logged once, and now and then while it lasts.
pub fn not_listening(text: &str, lasted: Duration) {
    warn!(
        error = text,
        seconds = lasted.as_secs(),
        "the console cannot listen at its address; it tries again every second"
    );
}

/// The last reload failed. Logged now and then while no other follows.
pub fn reload_failed(text: &str, lasted: Duration) {
    warn!(
        error = text,
        seconds = lasted.as_secs(),
        "the old configuration is still in use"
    );
}

/// Traces cannot be sent. Logged once, and now and then while it lasts.
pub fn not_exported(text: &str, lasted: Duration) {
    warn!(
        error = text,
        seconds = lasted.as_secs(),
        "traces of runs cannot be sent to their collector; the next attempt follows after a pause"
    );
}

/// Steps cannot be started. Logged once, and now and then while it lasts.
pub fn not_started(text: &str, lasted: Duration) {
    warn!(
        error = text,
        seconds = lasted.as_secs(),
        "steps cannot be started; each is tried again after a pause, and spends no budget"
    );
}

/// The database refused something that the lifeline asked of it. Logged at once, and ever more rarely while it lasts.
pub fn lifeline_failed(error: &str) {
    error!(error, "heartbeat or request failed");
}

/// A heartbeat is late, because somebody else holds what it needs. Logged once until one was written.
pub fn beat_waits(error: &crate::store::Error) {
    match error {
        crate::store::Error::Retryable { .. } => warn!(
            error = chain(error),
            "the heartbeat waits for a lock that somebody else has; it is tried again and again"
        ),
        _ => warn!(
            error = chain(error),
            "the heartbeat cannot be written; it is tried again and again"
        ),
    }
}

/// A heartbeat was written after all.
pub fn beat_written(late: Duration) {
    info!(
        seconds = late.as_secs(),
        "the heartbeat was written after its wait"
    );
}

/// Nobody has been able to write to the SQLite database for longer than a lease.
pub fn kept_out(writer: &str, since: Duration) {
    warn!(
        writer,
        seconds = since.as_secs(),
        "another process has SQLite's write lock; nobody is taken for dead meanwhile"
    );
}

/// A process of ours stands still with SQLite's lock, and its lease is over.
pub fn writer_ended(writer: &str) {
    warn!(
        writer,
        "killing a process that stands still with SQLite's write lock"
    );
}

/// The lifeline could not get a lock that it needed for other work, and goes on without it. Logged ever more rarely.
pub fn lifeline_waits(error: &crate::store::Error) {
    info!(
        error = chain(error),
        "another session was in the way; this process tries again"
    );
}

/// A child ends because it alone is kept out of the database.
pub fn gave_up() {
    warn!(
        "the database lets the supervisor in and this process no more: it ends, and its supervisor releases its work"
    );
}

/// The loop shows no progress: the heartbeat is withheld.
pub fn wedged(since: Duration) {
    error!(
        seconds = since.as_secs(),
        "no progress; withholding the heartbeat, so that this process is replaced"
    );
}

/// This process was declared dead, and is a new one from now on. If it had sent its heartbeats in time, somebody else
/// judges by a shorter lease.
pub fn declared_dead(old: ProcessId, new: ProcessId, in_time: bool) {
    let help = in_time.then_some(
        "its heartbeats came in time: another `ductworkd` on this database may have a shorter \
         `supervisor.reaper_timeout`, which must be the same on all hosts, or a backup of the database was restored",
    );
    warn!(old = %old, new = %new, help, "was declared dead; registered anew as a new process");
}

/// Executions that run here are not ours any more: cancelled, or given to another process.
pub fn claims_lost(count: usize) {
    warn!(count, "ending executions that are not ours any more");
}

/// Claims that this process has had for a whole lease without knowing of them.
pub fn claims_unknown(count: usize) {
    warn!(
        count,
        "giving back claims of which this process knew nothing"
    );
}

/// A worker takes no more work, and waits for these steps.
pub fn draining(steps: Vec<Arc<Assignment>>, left: Duration) {
    const NAMED: usize = 5;
    if steps.is_empty() {
        return;
    }
    let named = steps.iter().take(NAMED);
    let named: Vec<String> = named
        .map(|it| format!("{} of {}", it.step, crate::model::short(it.run_id)))
        .collect();
    let more = steps.len().saturating_sub(NAMED);
    let (count, seconds) = (steps.len(), left.as_secs_f64().round() as u64);
    let running = match count {
        1 => "1 running step".to_owned(),
        count => format!("{count} running steps"),
    };
    info!(
        steps = count,
        seconds,
        at_work = named.join(", "),
        more,
        "stopping: waiting up to {seconds} s for {running}"
    );
}

/// The configuration was read again. This many workers have the same settings as before.
pub fn reloaded(before: &[String], now: &[String], workers_unchanged: usize) {
    let without = |names: &[String], others: &[String]| {
        let names = names.iter().filter(|name| !others.contains(name));
        let names: Vec<&str> = names.map(String::as_str).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let (added, removed) = (without(now, before), without(before, now));
    info!(
        pipelines = now.len(),
        added, removed, workers_unchanged, "configuration reloaded"
    );
}

/// A daemon that ends once no work is left has waited for this run for a while.
pub fn not_idle(run: RunId) {
    info!(
        run_id = %run,
        "not idle: this run is still in progress; `ductworkd why {}` says what it waits for",
        crate::model::short(run)
    );
}

/// A daemon that ends once no work is left cannot find out whether any is.
pub fn idleness_unknown(error: &crate::store::Error) {
    error!(
        error = chain(error),
        "cannot find out whether work is left; trying again"
    );
}

/// Results came too late and were refused. After a wide run was cancelled, there may be hundreds at once.
pub fn stale_commits(executions: &[ExecutionId]) {
    const EACH: usize = 5;
    let (named, counted) = executions.split_at(executions.len().min(EACH));
    for execution in named {
        warn!(execution_id = %execution, "stale commit refused: the claim had been taken away");
    }
    if !counted.is_empty() {
        warn!(
            executions = counted.len(),
            "more stale commits refused with these"
        );
    }
}

/// A branch was to be advanced under a claim that had been taken away.
pub fn stale_advance(branch: BranchId) {
    warn!(branch_id = %branch, "stale advance refused: the claim had been taken away");
}

/// The advancer's turn failed as a whole. Logged at once, and ever more rarely while it lasts.
pub fn advancing_failed(error: &str, lasted: Duration) {
    error!(error, seconds = lasted.as_secs(), "advancing failed");
}

/// The database rejects what advancing a branch was to write.
pub fn advance_refused(branch: BranchId, error: &crate::store::Error) {
    error!(
        branch_id = %branch,
        error = chain(error),
        statement = error.statement(),
        "advancing a branch was refused; it spends a retry"
    );
}

/// The database could not advance a branch now, this many times in a row. Logged each time the number doubles.
pub fn advance_hindered(branch: BranchId, error: &crate::store::Error, times: u32) {
    if times.is_power_of_two() {
        warn!(branch_id = %branch, error = chain(error), times,
            "the database could not advance a branch; it is tried again, and spends no retry");
    }
}

/// The worker's turn failed as a whole. Logged at once, and ever more rarely while it lasts.
pub fn working_failed(error: &str, lasted: Duration) {
    error!(
        error,
        seconds = lasted.as_secs(),
        "claiming or committing failed"
    );
}

/// This version does not understand what is stored, and leaves it to a newer one. Logged at once, and
/// ever more rarely while it lasts.
pub fn unreadable(error: &str, lasted: Duration) {
    error!(
        error,
        seconds = lasted.as_secs(),
        "cannot run work that a newer version wrote; start a newer ductworkd"
    );
}

/// A row is damaged: nothing can be claimed together with it. Logged at once, and ever more rarely while it lasts.
pub fn unclaimable(error: &str, lasted: Duration) {
    error!(
        error,
        seconds = lasted.as_secs(),
        "left out a row that cannot be claimed"
    );
}

/// Some results cannot be stored. Logged at once, and ever more rarely while it lasts.
pub fn not_stored(text: &str, lasted: Duration) {
    error!(
        error = text,
        seconds = lasted.as_secs(),
        "set results aside; they are tried again every 30 s"
    );
}

/// Somebody was in the way of a claim or a commit, for as long as either waits.
pub fn kept_waiting(error: &crate::store::Error) {
    debug!(
        error = chain(error),
        statement = error.statement(),
        "kept waiting"
    );
}

/// Executions that are due, or rows of results, are locked by another session. Logged at once, and ever more rarely
/// while it lasts.
pub fn locked(error: &str, lasted: Duration) {
    warn!(
        error,
        seconds = lasted.as_secs(),
        "rows are locked by another session"
    );
}

/// Nobody has locked them any more.
pub fn unlocked(about: &str, lasted: Duration) {
    info!(
        about,
        seconds = lasted.as_secs(),
        "another session has released the rows that it had locked"
    );
}

/// The claims of a process could not be recovered. Logged at once, and ever more rarely while it lasts.
pub fn recovery_failed(process: ProcessId, error: &crate::store::Error) {
    error!(
        process_id = %process,
        error = chain(error),
        "recovering the work of a dead process failed; trying again"
    );
}

/// A part of a sweep failed; the rest of it goes on.
pub fn sweep_failed(error: &crate::store::Error) {
    error!(
        error = chain(error),
        "a part of a sweep failed; the next sweep tries it again"
    );
}

/// A worker ends, and the database has not been there to take its last results.
pub fn results_lost(count: usize) {
    error!(
        count,
        "ending without storing results, because the database has accepted none of them; their steps will run again"
    );
}

/// A loop that is to end waits for a database that neither answers nor is gone.
pub fn loops_given_up() {
    error!("ending without an answer of the database; what is held is recovered, and runs again");
}

/// Something does not move although it should; `health` reports it as well.
pub fn stuck(stuck: &crate::machine::stuck::Stuck) {
    warn!(
        cause = stuck.cause,
        pipeline = stuck.pipeline,
        run_id = stuck.run_id.map(tracing::field::display),
        remedy = stuck.remedy,
        "stuck: {}",
        stuck.fact
    );
}

/// Executions that were claimed ahead go back to the queue.
pub fn put_back(count: usize) {
    debug!(count, "claimed executions put back: they were not started");
}

/// The pipeline of this worker is paused, or is paused no longer.
pub fn paused(paused: bool) {
    match paused {
        true => info!("paused: claiming nothing, finishing what runs; `unpause` claims again"),
        false => info!("not paused any more: claiming again"),
    }
}

/// An execution starts.
pub fn started(assignment: &Assignment) {
    debug!(
        run_id = %assignment.run_id,
        step = assignment.step,
        execution_id = %assignment.execution_id,
        attempt = assignment.attempt,
        "step started"
    );
}

/// An execution succeeded.
pub fn succeeded(assignment: &Assignment, took: Duration) {
    debug!(
        run_id = %assignment.run_id,
        step = assignment.step,
        execution_id = %assignment.execution_id,
        attempt = assignment.attempt,
        ms = took.as_millis() as u64,
        "step succeeded"
    );
}

/// An execution ended in anything but success.
pub fn unsuccessful(
    assignment: &Assignment,
    result: &str,
    error: Option<&StoredError>,
    next: &str,
    hook: Option<Via>,
) {
    warn!(
        run_id = %assignment.run_id,
        step = assignment.step,
        hook = hook.map(Via::as_str),
        execution_id = %assignment.execution_id,
        attempt = assignment.attempt,
        result,
        error_class = error.map(|error| error.class.as_str()),
        error = error.map(|error| error.message.as_str()),
        next,
        "step did not succeed"
    );
}

/// Runs that ended and branches that halted in a batch.
pub fn crossed(crossed: &Crossed) {
    for (run, branch, reason) in &crossed.halted {
        let reason = HaltReason::as_str(*reason);
        warn!(run_id = %run, branch_id = %branch, reason, "branch halted");
    }
    for (run, pipeline, status) in &crossed.ended {
        match status {
            RunStatus::Halted => {
                let first = crossed.halted.iter().find(|(of, _, _)| of == run);
                let reason = first.map(|(_, _, reason)| reason.as_str());
                warn!(run_id = %run, pipeline, reason, "run halted");
            }
            _ => info!(run_id = %run, pipeline, status = status.as_str(), "run ended"),
        }
    }
}

/// The daemon ends: its last line. `since`: when it was asked to.
pub fn stopped(signal: Option<&str>, since: Option<Instant>) {
    let ms = since.map(|since| since.elapsed().as_millis() as u64);
    info!(signal, ms, "stopped");
}

/// A dead process was removed from the database, and its claims were given back.
pub fn recovered(process: ProcessId, death: Death<'_>, recovered: &Recovered) {
    let how = match death {
        Death::Proven { how } => how,
        Death::Stopped => "stopped by its supervisor",
        Death::Witnessed { .. } => "no heartbeat, by two witnesses",
    };
    if recovered.again + recovered.failed + recovered.branches == 0 {
        if recovered.removed {
            debug!(process_id = %process, how, "a dead process held nothing");
        }
        return;
    }
    warn!(
        process_id = %process,
        how,
        executions = recovered.again,
        failed = recovered.failed,
        branches = recovered.branches,
        left = (!recovered.left.is_empty()).then_some(recovered.left.len()),
        "recovered the work of a dead process"
    );
}

/// The database's clock was set back, and work that had been due was not due any more.
pub fn clock_set_back(overtaken: &Overtaken) {
    warn!(
        executions = overtaken.executions,
        branches = overtaken.branches,
        "the database's clock was set back; the work that was due before is due again"
    );
}

/// A cancellation that somebody had left half done was finished.
pub fn cancellation_finished(run: crate::model::RunId) {
    info!(%run, "finished a cancellation that was left half done");
}

/// Questions were decided because nobody had answered in time.
pub fn deadlines_passed(approved: usize, halted: usize) {
    info!(
        approved,
        halted, "decided questions that nobody has answered in time"
    );
}

/// Deadlines, or deleting or finishing what was left half done, failed, or waits for somebody's lock; it is tried again
/// later. Logged once, and now and then while it lasts.
pub fn keeping_failed(text: &str, lasted: Duration) {
    error!(
        error = text,
        seconds = lasted.as_secs(),
        "passing deadlines, deleting old runs, or finishing an action that was left half done, failed; trying again"
    );
}

/// The database hides rows from this program. Logged once, and now and then while it lasts.
pub fn rows_hidden(text: &str, lasted: Duration) {
    error!(
        error = text,
        seconds = lasted.as_secs(),
        "the database hides rows from this program; work stands still"
    );
}

/// A step waits to write the context of its run. Logged while it lasts, ever more rarely.
pub fn context_waits(text: &str, lasted: Duration) {
    warn!(
        error = text,
        seconds = lasted.as_secs(),
        "a value of a context could not be written; trying again until it can"
    );
}

/// The database refuses a statement of the console. Logged once, and now and then while it lasts.
pub fn console_refused(text: &str, lasted: Duration) {
    warn!(
        error = text,
        seconds = lasted.as_secs(),
        "the console cannot do all of its work; trying again"
    );
}

/// Runs were deleted because their retention is over, or because their deletion had begun.
pub fn pruned(runs: u64, by_retention: bool) {
    match by_retention {
        true => info!(runs, "deleted runs whose retention is over"),
        false => info!(runs, "completed the deletion of runs"),
    }
}

/// A hook takes long. Logged at once, and ever more rarely while it lasts.
pub fn hook_takes_long(text: &str, lasted: Duration) {
    warn!(
        error = text,
        seconds = lasted.as_secs(),
        "a hook takes long"
    );
}

/// A hook failed; it stops nothing.
pub fn hook_failed(error: &dyn std::error::Error) {
    error!(error = chain(error), "a hook failed");
}
