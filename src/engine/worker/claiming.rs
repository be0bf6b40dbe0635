//! Claims, and what becomes of them: an execution begins, or is put back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use crate::definition::{Definition, RunTrace};
use crate::engine::prefetch::in_vain;
use crate::engine::shared::Mode;
use crate::engine::slots::Job;
use crate::engine::trouble::Trouble;
use crate::engine::worker_state::{Answer, Operation};
use crate::engine::{counting, locked, spread};
use crate::machine::trace::handed;
use crate::model::ExecutionId;
use crate::step::Assignment;
use crate::store::Error;
use crate::store::claim::{self, Claim, Claimed, Rest, Unread};
use crate::store::cursor::Cursor;
use crate::store::definition::{LeftOut, Unreadable, VERSION};
use crate::store::process::Counters;
use crate::telemetry::events;

use super::{Loop, Scope, Worker, bearable};

/// After a claim that took something but not as much as it could, nothing else was due: the worker
/// asks the queue again after this, or as soon as it has nothing left to do.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// In a backlog each claim begins where the last one ended, and this often at the beginning: for
/// executions that have arrived before that place since, or that somebody had locked.
const LOOK_BEFORE: Duration = Duration::from_secs(1);

/// The rows that somebody has locked.
const QUEUED: &str = "due executions";

impl Worker {
    /// Takes as many executions off the queue as there is room for, when it is time to ask. False
    /// when this process was declared dead.
    pub(super) async fn claim(&self, state: &mut Loop) -> Result<bool, Error> {
        let Some(room) = self.room(state).await? else {
            return Ok(true);
        };
        state.eager = false;
        let now = Instant::now();
        let (behind, since) = match state.behind.take() {
            Some((place, since)) if now < since + LOOK_BEFORE => (place, since),
            _ => (Cursor::FIRST, now),
        };
        // Those that have become due since the last look may be locked as well.
        if state.locked.keys().next().is_some() {
            bearable(self.leave_out_locked(state, room).await)?;
        }
        let claim = Operation::Claim { behind, room };
        let answer = self.perform(state, &claim).await;
        state.claim_failed = answer.is_err();
        if let Err(error) = &answer
            && self.leave_out_cause(state, error, behind, room).await?
        {
            // The next claim can take others at once.
            state.eager = true;
            return Ok(true);
        }
        let Some(Answer::Claimed(claim, rest)) = answer? else {
            unreachable!("a claim is answered by what was claimed");
        };
        match claim {
            Claim::Dead => {
                self.shared.check.notify_one();
                return Ok(false);
            }
            // A wakeup announces the end of the pause, and so does a heartbeat; an occasional look covers
            // the case that both are missed.
            Claim::Paused => state.look = Instant::now() + self.poll(),
            Claim::Taken(claimed) => {
                let count = claimed.len() + rest.excess.len() + rest.unread.len();
                let full = count == room;
                // Only a claim from the beginning shows that nothing more is due.
                state.eager = full || behind != Cursor::FIRST;
                if full {
                    state.behind = Some((rest.last, since));
                }
                self.take(state, claimed, rest, behind, room).await?;
            }
        }
        Ok(true)
    }

    /// The number of executions that the next claim may take; none if it would take none, or not yet.
    async fn room(&self, state: &mut Loop) -> Result<Option<usize>, Error> {
        let beyond = state.slots.beyond(state.unstored.len());
        let room = state.slots.appetite(state.work.finished().len() + beyond);
        let room = state.work.claims(room.min(state.most));
        if room == 0 {
            return Ok(None);
        }
        if !state.eager {
            // One look first, because a worker would otherwise often open a transaction and find nothing.
            let waits = Instant::now() < state.look || self.next_due(state).await? > Duration::ZERO;
            return Ok((!waits).then_some(room));
        }
        Ok(Some(room))
    }

    /// After a claim of up to `room` executions `behind` a place has failed: the next claims leave out those that are
    /// to blame. False if none are found.
    async fn leave_out_cause(
        &self,
        state: &mut Loop,
        error: &Error,
        behind: Cursor,
        room: usize,
    ) -> Result<bool, Error> {
        if error.blames_a_row()
            && (room, behind) == (1, Cursor::FIRST)
            && self.leave_out_first(state, error).await?
        {
            return Ok(true);
        }
        if error.is_not_now() {
            events::kept_waiting(error);
            let most = room.max(locked::MOST);
            return Ok(bearable(self.leave_out_locked(state, most).await)? == Some(true));
        }
        Ok(false)
    }

    /// Begins what a claim of up to `room` executions `behind` a place took, or puts it back.
    async fn take(
        &self,
        state: &mut Loop,
        claimed: Vec<Claimed>,
        rest: Rest,
        behind: Cursor,
        room: usize,
    ) -> Result<(), Error> {
        let Rest {
            mut excess,
            unread,
            waited,
            ..
        } = rest;
        if !waited.is_empty() {
            let counts = &self.shared.counts;
            counts.count(|counts| counting::claimed(counts, &self.pipeline, &waited));
        }
        // Claims may succeed while commits fail.
        if state.work.finished().is_empty() {
            self.shared.over(Trouble::Working, "");
        }
        // Executions that were too much to hold are put back, and the next claims are as small as this one was; then
        // they grow again.
        state.most = match excess.is_empty() {
            true => state.most.saturating_mul(2),
            false => claimed.len().max(1),
        };
        let suspect = claimed.iter().any(|claimed| claimed.crash_count > 0);
        state.slots.suspect(suspect);
        let free = if suspect { state.slots.free() } else { room };
        excess.extend(claimed.iter().skip(free).map(|c| c.execution_id));
        // RACE: a step kills us as soon as it has begun: the executions that are to be put back,
        // because they have died in such company before, would die again. So they are put back first.
        // Raced by `a_step_that_kills_its_worker_takes_nobody_along`.
        if !excess.is_empty() {
            self.put_back(state, excess, Duration::ZERO).await?;
        }
        if claimed.is_empty() && unread.is_empty() {
            // Somebody holds a lock on the executions that are due: without a wait we would ask for them all
            // the time.
            if self.next_due(state).await?.is_zero() && behind == Cursor::FIRST {
                state.look = Instant::now() + spread(in_vain(state.vain)).min(self.poll());
                state.vain = state.vain.saturating_add(1);
            }
        } else {
            state.look = Instant::now() + LOOK_AGAIN;
            state.vain = 0;
        }
        let begun = claimed.into_iter().take(free).collect();
        self.begin_all(state, begun, unread).await
    }

    /// The executions that the next claim leaves out.
    pub(super) fn left_out(&self, state: &Loop) -> LeftOut {
        let locked = state.locked.keys().map(|id| id.0);
        self.definitions.left_out().and(locked)
    }

    /// The first execution that is due cannot be claimed: the next claims leave it out for a while. False if
    /// there is none, or too many are left out.
    pub(super) async fn leave_out_first(
        &self,
        state: &mut Loop,
        error: &Error,
    ) -> Result<bool, Error> {
        let left_out = self.left_out(state);
        let conn = state.link.get().await?;
        let due = claim::due(conn, &self.pipeline, &left_out, 1).await?;
        let Some(first) = due.first() else {
            return Ok(false);
        };
        let row = format!("the execution {first}");
        Ok(self
            .shared
            .leaves_out(&self.definitions, &row, first.0, error))
    }

    /// The next claims leave out those of the first `most` due executions that somebody has locked. False if there
    /// are none, or too many are left out. Told by the next look, if they are still locked then.
    pub(super) async fn leave_out_locked(
        &self,
        state: &mut Loop,
        most: usize,
    ) -> Result<bool, Error> {
        let left_out = self.left_out(state);
        let conn = state.link.get().await?;
        let due = claim::due(conn, &self.pipeline, &left_out, most).await?;
        let locked = claim::locked(conn, &due).await?;
        Ok(state.locked.found(&locked, Instant::now()))
    }

    /// Looks whether the rows for which executions and results wait are still locked, if it is time to.
    pub(super) async fn look_at_locks(&self, state: &mut Loop) -> Result<(), Error> {
        let now = Instant::now();
        if state.locked.look_in(now) == Some(Duration::ZERO) {
            bearable(self.look_at_locked(state).await)?;
        }
        if now >= state.look_aside && !(state.work.aside().is_empty() && state.unstored.is_empty())
        {
            self.forget_stored(state);
            bearable(self.set_aside_locked(state, Scope::All).await)?;
        }
        Ok(())
    }

    pub(super) async fn look_at_locked(&self, state: &mut Loop) -> Result<(), Error> {
        state.locked.begin_look(Instant::now());
        let left_out: Vec<_> = state.locked.keys().collect();
        let conn = state.link.get().await?;
        let locked = claim::locked(conn, &left_out).await?;
        state.eager |= state.locked.looked(&locked, Instant::now());
        // One line of the log for all of them: a transaction may have locked very many.
        self.shared.locked(QUEUED, locked, "they begin");
        Ok(())
    }

    /// Asks when the next execution is due, and sets the next look to that time. Returns how long until then.
    pub(super) async fn next_due(&self, state: &mut Loop) -> Result<Duration, Error> {
        let left_out = self.left_out(state);
        let conn = state.link.get().await?;
        let next = claim::next_due(conn, &self.pipeline, &left_out).await?;
        let wait = next.unwrap_or(Duration::MAX).min(self.poll());
        state.look = Instant::now() + wait;
        Ok(wait)
    }

    /// Gives back claimed executions that were not started; they are due again after `delay`. Returns how many.
    pub(super) async fn put_back(
        &self,
        state: &mut Loop,
        waiting: Vec<ExecutionId>,
        delay: Duration,
    ) -> Result<usize, Error> {
        let put_back = Operation::PutBack(waiting, delay);
        let Some(Answer::PutBack(count)) = self.perform(state, &put_back).await? else {
            return Ok(0);
        };
        events::put_back(count);
        if delay.is_zero() {
            self.waker.job_available(&self.pipeline);
        }
        Ok(count)
    }

    /// Gives claimed executions to the slots. Those that this version cannot read are left to others: they are
    /// put back at once, for a newer version to take, and this process's own claims leave them out for a
    /// while. They hold up nobody else.
    ///
    /// RACE: while we waited for the database to answer, we were told to claim no more, or the answer says that
    /// our pipeline is paused. Executions that we got all the same are put back: a step that starts now would be
    /// killed soon, or must not start. Proven by `what_is_claimed_by_a_worker_that_is_to_end_is_never_started`
    /// and `a_worker_that_commits_while_its_pipeline_is_paused_begins_nothing_more`.
    pub(super) async fn begin_all(
        &self,
        state: &mut Loop,
        claimed: Vec<Claimed>,
        unread: Vec<Unread>,
    ) -> Result<(), Error> {
        let mut left: Vec<ExecutionId> = unread.iter().map(|it| it.execution_id).collect();
        let rests = self.shared.mode() != Mode::Run || state.work.is_paused();
        if rests && !(claimed.is_empty() && left.is_empty()) {
            left.extend(claimed.iter().map(|it| it.execution_id));
            return self.put_back(state, left, Duration::ZERO).await.map(drop);
        }
        let mut delay = Duration::ZERO;
        for unread in unread {
            delay = delay.max(self.definitions.leave_out(unread.execution_id.0));
            let text = format!(
                "an execution cannot be run by this version ({VERSION}): {}",
                unread.reason
            );
            self.shared.trouble(Trouble::Row, &unread.reason, &text);
        }
        let mut begun = claimed.len();
        let mut unknown = Vec::new();
        for claimed in claimed {
            match self.definitions.get(&claimed.definition) {
                Some(definition) => self.begin(state, claimed, definition),
                None => unknown.push(claimed),
            }
        }
        for claimed in unknown {
            match self.definition(state, &claimed).await {
                Ok(Ok(definition)) => {
                    self.shared.over(Trouble::Definition, &claimed.definition);
                    self.begin(state, claimed, definition);
                }
                Ok(Err(unreadable)) => {
                    begun -= 1;
                    delay = delay.max(unreadable.delay);
                    left.push(claimed.execution_id);
                    let (digest, text) = (&unreadable.digest, unreadable.to_string());
                    self.shared.trouble(Trouble::Definition, digest, &text);
                }
                Err(error) => {
                    // It is still ours, and is read back when the database is back.
                    state.work.doubt();
                    return Err(error);
                }
            }
        }
        self.shared.count(Counters {
            claimed: begun as u64,
            ..Counters::default()
        });
        if !left.is_empty() {
            self.put_back(state, left, delay).await?;
        }
        Ok(())
    }

    pub(super) async fn definition(
        &self,
        state: &mut Loop,
        claimed: &Claimed,
    ) -> Result<Result<Arc<Definition>, Unreadable>, Error> {
        let conn = state.link.get().await?;
        self.definitions.read(conn, &claimed.definition).await
    }

    pub(super) fn begin(&self, state: &Loop, mut claimed: Claimed, definition: Arc<Definition>) {
        // Nobody needs the input twice, nor once the step has ended.
        let input = std::mem::replace(&mut claimed.input, Arc::new(RawValue::NULL.to_owned()));
        let caller = claimed.caller.as_deref();
        let assignment = Arc::new(Assignment {
            process: self.shared.process(),
            run_id: claimed.run_id,
            pipeline: self.pipeline.clone(),
            step: claimed.step.clone(),
            step_id: claimed.step_id,
            execution_id: claimed.execution_id,
            attempt: claimed.attempt,
            input,
            timeout: self.policy.timeout(&definition, &claimed.step),
            span: handed(
                claimed.run_id,
                definition.trace,
                caller.and_then(|it| it.span),
                claimed.execution_id,
            ),
            // This state belongs to the caller's trace, and to no other.
            trace_state: caller
                .filter(|_| definition.trace == RunTrace::Parent)
                .and_then(|it| it.state.clone()),
            baggage: caller.and_then(|it| it.baggage.clone()),
        });
        let stop = self.shared.hold(Arc::clone(&assignment));
        // RACE: the answer to a claim comes after a heartbeat has told that this process was declared dead. The new
        // incarnation beats in time, but what it ends are the executions that were held by then. From the call above
        // on, this is one of them. Proven by
        // `a_claim_whose_answer_comes_after_the_worker_was_declared_dead_starts_nothing`.
        if self.shared.process() != state.claimant {
            self.shared.let_go(claimed.execution_id);
            return;
        }
        state.slots.put(Job {
            claimed: Arc::new(claimed),
            definition,
            assignment,
            stop,
        });
    }
}
