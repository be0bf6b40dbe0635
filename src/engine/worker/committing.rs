//! Results: they are committed together, and one that cannot be stored holds up no other.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::counting::{self, Sent};
use crate::engine::locked;
use crate::engine::slots::Done;
use crate::engine::trouble::Trouble;
use crate::engine::worker_state::{self, Answer, Operation};
use crate::machine::outcome::{self, Ending};
use crate::machine::stuck::UNSTORED;
use crate::model::{ExecutionId, ExecutionResult, Role};
use crate::step::{Outcome, Performed};
use crate::store::claim::Claimed;
use crate::store::commit::{self, Committed, Ended, Finished, StoredError};
use crate::store::process::Counters;
use crate::store::{Error, chance};
use crate::telemetry::events;

use super::{Loop, Scope, Worker, bearable};

/// A result that cannot be stored for a reason that is neither its value nor a lock is tried again after this.
const STORED_AGAIN: Duration = Duration::from_secs(30);

/// The rows that somebody has locked.
const ASIDE: &str = "results";

/// Steps can be started again when no start has failed for this long, and one has succeeded.
const STARTS_AGAIN: Duration = Duration::from_secs(3);

impl Worker {
    /// Commits the executions that have ended, and begins the steps that follow.
    pub(super) async fn commit(&self, state: &mut Loop, claiming: bool) -> Result<(), Error> {
        let claim_failed = std::mem::take(&mut state.claim_failed);
        if let Some(error) = state.work.take_unsent() {
            self.refused(state, &error);
        }
        // Those that have ended since the last look may write the same rows.
        if !state.work.aside().iter().all(|it| state.is_unstored(it)) {
            bearable(self.set_aside_locked(state, Scope::Sent).await)?;
            if state.work.finished().is_empty() {
                return Ok(());
            }
        }
        let batch = state.work.batch();
        let finished = state.work.finished();
        let room = match claiming && !state.work.is_paused() {
            true => {
                let beyond = state.slots.beyond(state.unstored.len());
                state.slots.room(finished.len() - batch + beyond)
            }
            false => 0,
        };
        // Committed results are forgotten at once.
        let mut sent = Sent::all(&finished[..batch]);
        let asked = Instant::now();
        match self
            .perform(state, &Operation::Commit { batch, room })
            .await
        {
            Ok(Some(Answer::Committed(committed))) => {
                sent.retain(|sent| !committed.unwritten.contains(&sent.id()));
                let (unwritten, unasked) = (committed.unwritten.clone(), committed.unasked.clone());
                // Commits may succeed while claims fail.
                if !claim_failed {
                    self.shared.over(Trouble::Working, "");
                }
                self.shared.counts.count(|counts| {
                    counting::stored(counts, Role::Worker, asked.elapsed());
                    counting::committed(counts, &self.pipeline, &sent, &committed);
                });
                self.committed(state, &sent, committed).await?;
                match (unasked, unwritten.len()) {
                    (Some(error), _) => Err(error),
                    (None, 0) => Ok(()),
                    (None, rows) => {
                        self.set_aside_unstorable(state, &unwritten, Error::unwritten(rows))
                    }
                }
            }
            refused => {
                if let Some(error) = state.work.take_contended() {
                    events::kept_waiting(&error);
                    if bearable(self.set_aside_locked(state, Scope::All).await)? == Some(true) {
                        return Ok(());
                    }
                }
                let Err(error) = refused else { return Ok(()) };
                if error.blames_the_value() {
                    self.refused(state, &error);
                } else if batch == 1 && error.blames_a_row() {
                    return self.set_aside_unstorable(state, &[sent[0].id()], error);
                }
                Err(error)
            }
        }
    }

    /// These results cannot be stored now, and the others are sent without them. Fails if too many are set aside.
    pub(super) fn set_aside_unstorable(
        &self,
        state: &mut Loop,
        results: &[ExecutionId],
        error: Error,
    ) -> Result<(), Error> {
        let again = Instant::now() + STORED_AGAIN;
        state.unstored.extend(results.iter().map(|id| (*id, again)));
        let aside = state.work.aside().iter();
        let mut apart: HashSet<ExecutionId> = aside.map(|it| it.claimed.execution_id).collect();
        apart.extend(results);
        let is_moved = state.work.set_aside(&apart);
        let mut aside = state.work.aside().iter();
        if let Some(one) = aside.find(|it| results.contains(&it.claimed.execution_id)) {
            let (claimed, count) = (&one.claimed, state.unstored.len());
            let text = format!(
                "{UNSTORED} (now: {count}; one is that of step {} of the run {}): {}",
                claimed.step,
                claimed.run_id,
                crate::telemetry::chain(&error)
            );
            self.shared.trouble(Trouble::Storing, "", &text);
        }
        match is_moved {
            true => Ok(()),
            false => Err(error),
        }
    }

    /// Forgets those of the results that could not be stored which are stored, or stale, by now.
    pub(super) fn forget_stored(&self, state: &mut Loop) {
        let before = state.unstored.len();
        state.unstored.retain(|id, _| state.work.has(*id));
        if before > 0 && state.unstored.is_empty() {
            self.shared.over(Trouble::Storing, "");
        }
    }

    /// Sets aside the results of which somebody has locked a row, and takes back those whose rows are free again.
    /// False if that changes nothing.
    pub(super) async fn set_aside_locked(
        &self,
        state: &mut Loop,
        scope: Scope,
    ) -> Result<bool, Error> {
        let all = scope == Scope::All;
        if all {
            state.look_aside = Instant::now() + locked::LOOK_EVERY;
        }
        let were_aside = !state.work.aside().is_empty();
        let kept = state.work.aside().iter();
        let kept = kept.filter(|it| !all || state.is_unstored(it));
        let kept: HashSet<ExecutionId> = kept.map(|it| it.claimed.execution_id).collect();
        let conn = state.link.get().await?;
        let sent = state.work.finished().iter().take(worker_state::ASIDE_MAX);
        let others = state.work.aside().iter();
        let others = others.filter(|it| !kept.contains(&it.claimed.execution_id));
        let mut locked = commit::locked(conn, sent.chain(others)).await?;
        locked.extend(kept);
        let moved = state.work.set_aside(&locked);
        let aside = state.work.aside().iter();
        let aside: Vec<_> = aside.filter(|it| !state.is_unstored(it)).collect();
        // Told when a second look has found them: a row may be locked for a moment.
        if aside.is_empty() || (all && were_aside) {
            let aside = aside.iter().map(|it| {
                let (execution, step) = (it.claimed.execution_id, &it.claimed.step);
                format!("of the execution {execution}, step {step}")
            });
            self.shared.locked(ASIDE, aside, "they are stored");
        }
        Ok(moved)
    }

    /// The database refuses one result, which is the first: it is turned into an error of its step.
    /// The work is done but cannot be stored, and without this it would be tried for ever.
    pub(super) fn refused(&self, state: &mut Loop, error: &Error) {
        let Some(finished) = state.work.first_mut() else {
            return;
        };
        let ended = &mut finished.ended;
        // The log is worth less than the output, and too small to cost a connection.
        if ended.log.take().is_some() && error.blames_the_value() {
            return;
        }
        let Some(output) = ended.output.take() else {
            // It is an error already, and its text is refused: a text of ours is stored, at last without the reason, in
            // which a database may repeat what it refuses.
            let mut message = "its error could not be stored".to_owned();
            let is_first = |error: &StoredError| error.message.starts_with(&message);
            if !ended.error.as_ref().is_some_and(is_first) {
                let why = crate::telemetry::chain(error);
                message += &format!(": {}", why.replace(|c: char| !c.is_ascii(), "?"));
            }
            *ended = Ended::without_value(ended.ending, "error_not_stored", message);
            return;
        };
        let bytes = output.get().len();
        let lost = match error.is_unavailable() {
            true => "the connection was lost each time that it was sent: ",
            false => "",
        };
        let why = crate::telemetry::chain(error);
        let message = format!("its output of {bytes} bytes could not be stored: {lost}{why}");
        let ending = Ending::Error {
            retryable: true,
            retry_after: None,
        };
        let ended = Ended::without_value(ending, "output_not_stored", message);
        let (claimed, definition) = (&finished.claimed, &finished.definition);
        let limits = self.policy.step(definition, &claimed.step);
        let (claimed, definition) = (Arc::clone(claimed), Arc::clone(definition));
        *finished = Finished::new(claimed, definition, ended, &limits, chance());
    }

    pub(super) async fn committed(
        &self,
        state: &mut Loop,
        sent: &[Sent],
        committed: Committed,
    ) -> Result<(), Error> {
        let mut counters = Counters {
            stale: committed.stale.len() as u64,
            ..Counters::default()
        };
        let mut stale = Vec::new();
        for sent in sent {
            if committed.stale.contains(&sent.id()) {
                if sent.ending != Ending::Cancelled {
                    stale.push(sent.id());
                }
                continue;
            }
            match sent.ending.result() {
                ExecutionResult::Success => counters.succeeded += 1,
                ExecutionResult::ProcessCrashed => counters.crashed += 1,
                ExecutionResult::Error | ExecutionResult::TimedOut => counters.errored += 1,
                ExecutionResult::Cancelled | ExecutionResult::Released => {}
            }
        }
        events::stale_commits(&stale);
        counters.advanced = committed.advanced as u64;
        self.shared.count(counters);
        if committed.ready {
            self.waker.branch_available();
        }
        // New work of our own pipeline that found no free slot here: it is for the pipeline's other
        // processes, and for us as soon as a slot is free.
        for pipeline in &committed.crossed.available {
            if *pipeline == self.pipeline {
                state.eager |= !state.work.is_paused();
            }
            self.waker.job_available(pipeline);
        }
        events::crossed(&committed.crossed);
        if committed.dead {
            self.shared.check.notify_one();
        }
        self.begin_all(state, committed.leased_next, Vec::new())
            .await?;
        if state.is_empty() {
            // A wakeup that came while we worked may not have been heard.
            state.look = Instant::now();
        }
        Ok(())
    }

    /// Turns an outcome into a result to commit.
    pub(super) fn finish(&self, state: &mut Loop, done: Done) {
        let Done {
            job,
            performed: Performed { outcome, log },
            took,
        } = done;
        let starts = match &outcome {
            Outcome::NotStarted { message } => {
                let (step, text) = (&job.claimed.step, message);
                let text = format!("step {step} cannot be started: {text}");
                self.shared.trouble(Trouble::Starting, step, &text);
                state.not_started.insert(step.clone(), Instant::now());
                false
            }
            Outcome::Released | Outcome::Cancelled => true,
            _ => {
                // Some starts of a step may succeed while others fail.
                let step = &job.claimed.step;
                let last = state.not_started.get(step);
                if last.is_some_and(|last| last.elapsed() > STARTS_AGAIN) {
                    state.not_started.remove(step);
                    self.shared.over(Trouble::Starting, step);
                }
                true
            }
        };
        let ended = ended(outcome, &job.claimed).with_log(log);
        let limits = self.policy.step(&job.definition, &job.claimed.step);
        let finished = Finished::new(job.claimed, job.definition, ended, &limits, chance());
        self.shared.counts.count(|counts| {
            let (step, ending) = (&finished.claimed.step, finished.ended.ending);
            counting::ran(counts, &self.pipeline, step, ending, took);
        });
        let ended = &finished.ended;
        match ended.ending {
            Ending::Success => events::succeeded(&job.assignment, took),
            // The failure to start is logged once for all executions, not for each one at each attempt.
            _ if !starts => {}
            _ => {
                let next = match finished.verdict {
                    outcome::Verdict::Again { delay, .. } => match delay.is_zero() {
                        true => "retry now".to_owned(),
                        false => format!("retry in {:.1} s", delay.as_secs_f64()),
                    },
                    outcome::Verdict::Fail => match ended.ending {
                        Ending::Error { retryable, .. } if !retryable => {
                            "none: not retryable".to_owned()
                        }
                        _ => "none: out of budget".to_owned(),
                    },
                    _ => "none".to_owned(),
                };
                let result = ended.ending.result().as_str();
                let hook = Some(finished.claimed.via).filter(|via| via.is_hook());
                let error = ended.error.as_ref();
                events::unsuccessful(&job.assignment, result, error, &next, hook);
            }
        }
        state.work.finish(finished);
    }
}

/// A step's outcome in the terms of the state machine, and the parts of it that are stored.
fn ended(outcome: Outcome, claimed: &Claimed) -> Ended {
    match outcome {
        Outcome::Success(output) => Ended::success(output),
        Outcome::Error(stated) => {
            let ending = Ending::Error {
                retryable: stated.retryable,
                retry_after: stated.retry_after,
            };
            Ended::without_value(ending, &stated.class, stated.message)
                .with_backtrace(stated.backtrace)
        }
        Outcome::Crashed { message } => Ended::without_value(Ending::Crashed, "crashed", message),
        Outcome::TimedOut { message, backtrace } => {
            Ended::without_value(Ending::TimedOut, "timed_out", message).with_backtrace(backtrace)
        }
        Outcome::NotStarted { message } => {
            let delay = outcome::not_started_delay(claimed.attempt, claimed.view());
            Ended::without_value(Ending::Released { delay }, "not_started", message)
        }
        Outcome::Released => {
            let delay = Duration::ZERO;
            let message = "the daemon stopped before it had ended";
            Ended::without_value(Ending::Released { delay }, "released", message)
        }
        Outcome::Cancelled => {
            let message = "it no longer belongs to this process: its run was cancelled or deleted, or the process was taken for dead";
            Ended::without_value(Ending::Cancelled, "cancelled", message)
        }
    }
}
