//! The worker's loop: claim, let the slots run, commit together the executions that have ended.
//!
//! Owns: what one process of one pipeline asks the database for, and when. One claimer and one
//! committer for all slots: a commit takes everything that has ended while the last one was in
//! flight, and takes the steps that follow along.
//! Never: runs a step (`slots` do), decides what an ending costs (`machine::outcome`), writes
//! (`store::commit`), or handles a lost answer (`worker_state`).

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use crate::definition::Definition;
use crate::definition::RunTrace;
use crate::machine::outcome::{self, Ending};
use crate::machine::stuck::UNSTORED;
use crate::machine::trace::handed;
use crate::model::{ExecutionId, ExecutionResult, ProcessId, Role};
use crate::step::{Assignment, Outcome, Performed};
use crate::store::claim::{self, Claim, Claimed, Held, Rest, Unread};
use crate::store::commit::{self, Committed, Ended, Finished, StoredError};
use crate::store::cursor::Cursor;
use crate::store::definition::{Definitions, LeftOut, Unreadable, VERSION};
use crate::store::process::Counters;
use crate::store::{Error, Location};
use crate::telemetry::events;

use super::counting::{self, Sent};
use super::locked::{self, Locked};
use super::prefetch::in_vain;
use super::runner::Runner;
use super::shared::{Mode, Shared};
use super::slots::{Done, Job, Slots};
use super::trouble::Trouble;
use super::worker_state::{self, Answer, Operation, Terms, WorkerState};
use super::{Link, Policy, Waker, deaf_for, spread, wakeup};
use crate::store::chance;

/// How long a worker that is to end tries to store its last results when the database is away. The time counts from
/// the end of its last step, which may have taken all the time between TERM and KILL. Then the worker ends without
/// storing them: its claims are recovered, and the steps run again.
pub const LAST_COMMIT: Duration = Duration::from_secs(5);

/// How long jobs that were claimed ahead wait while no slot takes any of them, before somebody else
/// may have them.
const STUCK_AFTER: Duration = Duration::from_millis(250);

/// After a claim that took something but not as much as it could, nothing else was due: the worker
/// asks the queue again after this, or as soon as it has nothing left to do.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// In a backlog each claim begins where the last one ended, and this often at the beginning: for
/// executions that have arrived before that place since, or that somebody had locked.
const LOOK_BEFORE: Duration = Duration::from_secs(1);

/// A claim that leaves out executions that this process could not read passes over all of them that are due. If the
/// claim takes longer than the first value, the next claim waits for three times the excess, so that others can use the
/// database.
const LONG_CLAIM: (Duration, u32) = (Duration::from_millis(50), 3);

/// The pause after a claim that failed because of a row.
const CLAIMS_AGAIN: Duration = Duration::from_secs(1);

/// A result that cannot be stored for a reason that is neither its value nor a lock is tried again after this.
const STORED_AGAIN: Duration = Duration::from_secs(30);

/// The rows that somebody has locked: executions in the queue, or rows of results.
const QUEUED: &str = "due executions";
const ASIDE: &str = "results";

/// Steps can be started again when no start has failed for this long, and one has succeeded.
const STARTS_AGAIN: Duration = Duration::from_secs(3);

/// The loop of one worker process.
pub struct Worker {
    /// Where to connect.
    pub location: Location,
    /// The pipeline whose jobs it works on.
    pub pipeline: String,
    /// Limits.
    pub policy: Policy,
    /// The state that the process's tasks share.
    pub shared: Arc<Shared>,
    /// The definitions read so far.
    pub definitions: Arc<Definitions>,
    /// Runs the steps.
    pub runner: Arc<Runner>,
    /// Wakes the others.
    pub waker: Arc<dyn Waker>,
}

/// The loop's own state.
struct Loop {
    link: Link,
    slots: Rc<Slots>,
    work: WorkerState,
    /// The incarnation of the process for which the executions that begin next were claimed.
    claimant: ProcessId,
    /// The last claim was full, or a wakeup came: claim without asking whether anything is due.
    eager: bool,
    /// When to ask the queue although no wakeup comes.
    look: Instant,
    /// Not before this time, even after a wakeup.
    rest: Instant,
    /// Where the last claim ended, while claims are full, and since when none has begun at the beginning.
    behind: Option<(Cursor, Instant)>,
    /// How many claims in a row took nothing although something was due.
    vain: u32,
    /// The last claim failed, and no commit has been tried since.
    claim_failed: bool,
    /// The executions that somebody has locked.
    locked: Locked<ExecutionId>,
    /// When to look again whether the results that were set aside are still locked.
    look_aside: Instant,
    /// The results that were set aside because their rows are damaged, or because the database does not write them; and
    /// when each is tried again.
    unstored: HashMap<ExecutionId, Instant>,
    /// The most to claim at once: where inputs are large, as many as could be held.
    most: usize,
    /// The pause of the pipeline was logged.
    paused: bool,
    /// The steps that could not be started, and when each last failed to start.
    not_started: HashMap<String, Instant>,
}

/// Which results are asked about for locks: those that are to be sent, and those that were set aside, too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Sent,
    All,
}

/// An answer that the caller can do without: only a lost connection is an error.
pub(super) fn bearable<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_unavailable() => Err(error),
        Err(_) => Ok(None),
    }
}

impl Loop {
    /// The time until locks are looked at again.
    fn next_look(&self) -> Duration {
        let now = Instant::now();
        let queued = self.locked.look_in(now).unwrap_or(Duration::MAX);
        match self.work.aside().is_empty() {
            true => queued,
            false => queued.min(self.look_aside.saturating_duration_since(now)),
        }
    }

    fn is_empty(&self) -> bool {
        self.work.finished().is_empty() && self.slots.is_empty()
    }

    /// Whether this result waits for its next try, and not for a lock.
    fn is_unstored(&self, result: &Finished) -> bool {
        let again = self.unstored.get(&result.claimed.execution_id);
        again.is_some_and(|again| Instant::now() < *again)
    }
}

impl Worker {
    /// Runs until it is told to stop, and everything in flight is committed.
    pub async fn run(self) {
        let count = self.policy.config().job_worker.count(&self.pipeline) as usize;
        self.shared.set_slots(count as u64);
        self.runner.begin();
        let runner = Arc::clone(&self.runner);
        let mut state = Loop {
            link: Link::new(self.location.clone()),
            slots: Slots::new(count, self.policy.lease(), runner, Arc::clone(&self.shared)),
            work: WorkerState::default(),
            claimant: self.shared.process(),
            eager: true,
            look: Instant::now(),
            rest: Instant::now(),
            behind: None,
            vain: 0,
            claim_failed: false,
            locked: Locked::default(),
            look_aside: Instant::now(),
            unstored: HashMap::new(),
            most: usize::MAX,
            paused: false,
            not_started: HashMap::new(),
        };
        let mut modes = self.shared.modes();
        // The cause for which everything that runs was told to end.
        let mut told = None;
        let mut draining = false;
        let mut last_step_ended = None;
        loop {
            self.shared.progress();
            for done in state.slots.take_done() {
                self.finish(&mut state, done);
            }
            state.slots.keeps(state.work.bytes());
            self.shared.set_holding(state.work.may_hold());
            let mode = self.shared.mode();
            if let Mode::Drain { until, cause } = mode {
                if !std::mem::replace(&mut draining, true) {
                    let left = until.saturating_duration_since(Instant::now());
                    events::draining(self.shared.at_work(), left);
                    // The last try.
                    state
                        .unstored
                        .values_mut()
                        .for_each(|again| *again = Instant::now());
                    state.look_aside = Instant::now();
                }
                // Executions that may be claimed for us without our knowledge would count as lost.
                if state.is_empty()
                    && state.work.aside().iter().all(|it| state.is_unstored(it))
                    && (state.work.is_sure() || Instant::now() >= until)
                {
                    if !state.work.aside().is_empty() {
                        events::results_lost(state.work.aside().len());
                    }
                    break;
                }
                // Again when it is to end at once, because its steps may still be in their grace.
                if Instant::now() >= until && told != Some(cause) {
                    told = Some(cause);
                    self.shared.stop_all(cause);
                }
                if state.slots.is_empty() {
                    let ended = *last_step_ended.get_or_insert_with(Instant::now);
                    if Instant::now() >= until.max(ended) + LAST_COMMIT {
                        let work = &state.work;
                        events::results_lost(work.finished().len() + work.aside().len());
                        break;
                    }
                }
            }
            let turned = self.turn(&mut state, mode).await;
            let paused = state.work.is_paused();
            if std::mem::replace(&mut state.paused, paused) != paused {
                events::paused(paused);
            }
            state.slots.keeps(state.work.bytes());
            self.shared.set_holding(state.work.may_hold());
            self.shared.sent(state.link.take_statements());
            let deaf = turned.as_ref().err().map_or(Duration::ZERO, deaf_for);
            let wait = match turned {
                Ok(wait) => {
                    state.link.worked();
                    if state.work.finished().is_empty() {
                        self.shared.over(Trouble::Reaching, "");
                    }
                    wait
                }
                Err(error) => {
                    state.eager = true;
                    let wait = state.link.failed(&error);
                    if error.is_unavailable() {
                        self.shared.cannot_reach(&error);
                        wait
                    } else {
                        self.failed(&error);
                        wait.max(Duration::from_secs(1))
                    }
                }
            };
            if wait.is_zero() {
                // Let the executions that have ended meanwhile join the next batch.
                tokio::task::yield_now().await;
                continue;
            }
            let wait = match mode {
                Mode::Drain { until, cause } if told != Some(cause) => {
                    wait.min(until.saturating_duration_since(Instant::now()))
                }
                _ => wait,
            };
            tokio::select! {
                () = wakeup(&state.slots.ended, deaf) => {}
                () = wakeup(&self.shared.wake, deaf) => {
                    state.eager = true;
                    state.vain = 0;
                }
                _ = modes.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        state.link.close().await;
    }

    /// One exchange with the database, if there is a reason for one. Returns how long to wait then.
    async fn turn(&self, state: &mut Loop, mode: Mode) -> Result<Duration, Error> {
        // A process that could not beat for a whole lease may have been declared dead.
        let fresh = self.shared.since_beat() < self.policy.lease();
        let claiming = mode == Mode::Run && fresh;
        if state.link.is_another().await? {
            state.work.doubt();
        }
        // After a transaction whose fate is unknown: forgets the results that had been committed,
        // and takes up the executions that had been claimed for us (E11).
        while let Some(first) = state.work.first() {
            let sent = Sent::all(state.work.finished());
            let answer = self.perform(state, &first).await?;
            if let Some(Answer::Landed(landed)) = &answer {
                let counts = &self.shared.counts;
                counts.count(|counts| counting::landed(counts, &self.pipeline, &sent, landed));
            }
            if let Some(Answer::Held(held)) = answer {
                let Held {
                    whole,
                    large,
                    unread,
                } = held;
                let unknown = whole.into_iter();
                let unknown = unknown.filter(|claimed| !state.slots.has(claimed.execution_id));
                self.begin_all(state, unknown.collect(), unread).await?;
                let unknown = large.into_iter().filter(|id| !state.slots.has(*id));
                let unknown: Vec<ExecutionId> = unknown.collect();
                if !unknown.is_empty() {
                    self.put_back(state, unknown, Duration::ZERO).await?;
                }
            }
        }
        let others = self.shared.take_others(self.policy.lease()).into_iter();
        let is_known = |id: &ExecutionId| state.slots.has(*id) || state.work.has(*id);
        let unknown = others.map(ExecutionId).filter(|id| !is_known(id));
        let unknown: Vec<ExecutionId> = unknown.collect();
        if !unknown.is_empty() {
            // Those that have been given away since are not put back.
            match self.put_back(state, unknown, Duration::ZERO).await? {
                0 => {}
                count => events::claims_unknown(count),
            }
        }
        if let Some(paused) = self.shared.take_told() {
            state.work.hear(paused);
        }
        let stuck = state.slots.stuck();
        let at_once = matches!(mode, Mode::Drain { .. }) || state.work.is_paused();
        if stuck.is_some_and(|stuck| at_once || stuck > STUCK_AFTER) {
            let waiting = state.slots.withdraw();
            self.put_back(state, waiting, Duration::ZERO).await?;
        }
        self.look_at_locks(state).await?;
        // If a step may kill this process, no execution that has ended still waits for its commit when that step
        // starts, except for results that wait for somebody's lock: nobody knows for how long. Results also go first
        // after a claim that failed, because the next one may fail for the same reason. Proven by
        // `results_are_stored_while_claims_are_refused`.
        let go_first = state.slots.is_suspect() || state.claim_failed;
        let first = go_first && !state.work.finished().is_empty();
        if claiming && !first && Instant::now() >= state.rest {
            let began = Instant::now();
            let claimed = self.claim(state).await;
            // Also where a question after a claim failed: the next turn would ask it again.
            state.claim_failed |= claimed.is_err();
            let lives = match claimed {
                // Results do not wait until the row that is to blame has been found.
                Err(error) if error.blames_a_row() => {
                    self.failed(&error);
                    state.eager = true;
                    state.rest = Instant::now() + CLAIMS_AGAIN;
                    return Ok(Duration::from_millis(1));
                }
                claimed => claimed?,
            };
            // A claim that failed may have been made all the same: that is asked first.
            if !state.work.is_sure() {
                return Ok(Duration::ZERO);
            }
            if !self.definitions.left_out().is_empty() {
                let (long, share) = LONG_CLAIM;
                state.rest = Instant::now() + began.elapsed().saturating_sub(long) * share;
            }
            if !lives {
                return Ok(Duration::from_millis(100));
            }
        }
        if !state.work.finished().is_empty() {
            self.commit(state, claiming).await?;
            // Steps that ended meanwhile are committed at once.
            return Ok(Duration::ZERO);
        }
        let stuck = stuck.map_or(Duration::MAX, |stuck| STUCK_AFTER.saturating_sub(stuck));
        let look = match claiming && state.slots.appetite(0) > 0 {
            true => {
                let look = state.look.max(state.rest);
                look.saturating_duration_since(Instant::now())
            }
            false => Duration::MAX,
        };
        // Never zero: that would be a loop that does not wait.
        Ok(look
            .min(stuck)
            .min(state.next_look())
            .clamp(Duration::from_millis(1), self.poll()))
    }

    /// A bug or a broken database: says so. The caller does not spin (E14).
    fn failed(&self, error: &Error) {
        events::statement_failed(error);
        let text = crate::telemetry::chain(error);
        self.shared.over(Trouble::Reaching, "");
        self.shared.trouble(Trouble::Working, "", &text);
    }

    /// One transaction, whose answer the loop's state takes in.
    async fn perform(
        &self,
        state: &mut Loop,
        operation: &Operation,
    ) -> Result<Option<Answer>, Error> {
        let left_out = match operation {
            Operation::Claim { .. } => self.left_out(state),
            _ => LeftOut::default(),
        };
        let terms = Terms {
            pipeline: &self.pipeline,
            lease: self.policy.lease(),
            left_out: &left_out,
        };
        let (conn, me) = match state.link.claiming(self.shared.process()).await {
            Ok(connected) => connected,
            Err(error) => {
                state.work.not_begun(operation);
                return Err(error);
            }
        };
        // Between a claim and the beginning of what it took, some of that may be put back.
        if !matches!(operation, Operation::PutBack(..)) {
            state.claimant = me.process;
        }
        conn.ask_about_locks(true);
        let answer = state.work.perform(operation, conn, me, terms).await;
        state.work.settle(operation, answer)
    }

    fn poll(&self) -> Duration {
        let config = self.policy.config();
        let configured = config.job_worker.polling_timeout(&self.pipeline);
        spread(self.shared.polls(configured))
    }

    /// Takes as many executions off the queue as there is room for, when it is time to ask. False
    /// when this process was declared dead.
    async fn claim(&self, state: &mut Loop) -> Result<bool, Error> {
        let beyond = state.slots.beyond(state.unstored.len());
        let room = state.slots.appetite(state.work.finished().len() + beyond);
        let room = state.work.claims(room.min(state.most));
        if room == 0 {
            return Ok(true);
        }
        if !state.eager {
            if Instant::now() < state.look {
                return Ok(true);
            }
            // One look first, because a worker would otherwise often open a transaction and find nothing.
            if self.next_due(state).await? > Duration::ZERO {
                return Ok(true);
            }
        }
        state.eager = false;
        let now = Instant::now();
        let (behind, since) = match state.behind.take() {
            Some((place, since)) if now < since + LOOK_BEFORE => (place, since),
            _ => (Cursor::FIRST, now),
        };
        // Those that have become due since the last look may be locked as well.
        if state.locked.keys().next().is_some() {
            bearable(self.leaves_out_locked(state, room).await)?;
        }
        let claim = Operation::Claim { behind, room };
        let answer = self.perform(state, &claim).await;
        state.claim_failed = answer.is_err();
        if let Err(error) = &answer
            && error.blames_a_row()
            && (room, behind) == (1, Cursor::FIRST)
            && self.leaves_out_first(state, error).await?
        {
            // Without it, others can be claimed at once.
            state.eager = true;
            return Ok(true);
        }
        if let Err(error) = &answer
            && error.is_not_now()
        {
            events::kept_waiting(error);
            let most = room.max(locked::MOST);
            if bearable(self.leaves_out_locked(state, most).await)? == Some(true) {
                // The next claim leaves out the locked executions, so it can take others at once.
                state.eager = true;
                return Ok(true);
            }
        }
        let Some(Answer::Claimed(claim, rest)) = answer? else {
            unreachable!("a claim is answered by what was claimed");
        };
        let Rest {
            last,
            mut excess,
            unread,
            waited,
        } = rest;
        let claimed = match claim {
            Claim::Dead => {
                self.shared.check.notify_one();
                return Ok(false);
            }
            // A wakeup announces the end of the pause, and so does a heartbeat; an occasional look covers
            // the case that both are missed.
            Claim::Paused => {
                state.look = Instant::now() + self.poll();
                return Ok(true);
            }
            Claim::Taken(claimed) => claimed,
        };
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
        let full = claimed.len() + excess.len() + unread.len() == room;
        // Only a claim from the beginning shows that nothing more is due.
        state.eager = full || behind != Cursor::FIRST;
        if full {
            state.behind = Some((last, since));
        }
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
        self.begin_all(state, begun, unread).await?;
        Ok(true)
    }

    /// The executions that the next claim leaves out.
    fn left_out(&self, state: &Loop) -> LeftOut {
        let locked = state.locked.keys().map(|id| id.0);
        self.definitions.left_out().and(locked)
    }

    /// The first execution that is due cannot be claimed: the next claims leave it out for a while. False if
    /// there is none, or too many are left out.
    async fn leaves_out_first(&self, state: &mut Loop, error: &Error) -> Result<bool, Error> {
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
    async fn leaves_out_locked(&self, state: &mut Loop, most: usize) -> Result<bool, Error> {
        let left_out = self.left_out(state);
        let conn = state.link.get().await?;
        let due = claim::due(conn, &self.pipeline, &left_out, most).await?;
        let locked = claim::locked(conn, &due).await?;
        Ok(state.locked.found(&locked, Instant::now()))
    }

    /// Looks whether the rows for which executions and results wait are still locked, if it is time to.
    async fn look_at_locks(&self, state: &mut Loop) -> Result<(), Error> {
        let now = Instant::now();
        if state.locked.look_in(now) == Some(Duration::ZERO) {
            bearable(self.look_at_locked(state).await)?;
        }
        if now >= state.look_aside && !(state.work.aside().is_empty() && state.unstored.is_empty())
        {
            self.forget_stored(state);
            bearable(self.set_aside(state, Asked::All).await)?;
        }
        Ok(())
    }

    async fn look_at_locked(&self, state: &mut Loop) -> Result<(), Error> {
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
    async fn next_due(&self, state: &mut Loop) -> Result<Duration, Error> {
        let left_out = self.left_out(state);
        let conn = state.link.get().await?;
        let next = claim::next_due(conn, &self.pipeline, &left_out).await?;
        let wait = next.unwrap_or(Duration::MAX).min(self.poll());
        state.look = Instant::now() + wait;
        Ok(wait)
    }

    /// Gives back claimed executions that were not started; they are due again after `delay`. Returns how many.
    async fn put_back(
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

    /// Commits the executions that have ended, and begins the steps that follow.
    async fn commit(&self, state: &mut Loop, claiming: bool) -> Result<(), Error> {
        let claim_failed = std::mem::take(&mut state.claim_failed);
        if let Some(error) = state.work.take_unsent() {
            self.refused(state, &error);
        }
        // Those that have ended since the last look may write the same rows.
        if !state.work.aside().iter().all(|it| state.is_unstored(it)) {
            bearable(self.set_aside(state, Asked::Sent).await)?;
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
                    (None, rows) => self.sets_apart(state, &unwritten, Error::unwritten(rows)),
                }
            }
            refused => {
                if let Some(error) = state.work.take_contended() {
                    events::kept_waiting(&error);
                    if bearable(self.set_aside(state, Asked::All).await)? == Some(true) {
                        return Ok(());
                    }
                }
                let Err(error) = refused else { return Ok(()) };
                if error.blames_the_value() {
                    self.refused(state, &error);
                } else if batch == 1 && error.blames_a_row() {
                    return self.sets_apart(state, &[sent[0].id()], error);
                }
                Err(error)
            }
        }
    }

    /// These results cannot be stored now, and the others are sent without them. Fails if too many are set aside.
    fn sets_apart(
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
    fn forget_stored(&self, state: &mut Loop) {
        let before = state.unstored.len();
        state.unstored.retain(|id, _| state.work.has(*id));
        if before > 0 && state.unstored.is_empty() {
            self.shared.over(Trouble::Storing, "");
        }
    }

    /// Sets aside the results of which somebody has locked a row, and takes back those whose rows are free again.
    /// False if that changes nothing.
    async fn set_aside(&self, state: &mut Loop, asked: Asked) -> Result<bool, Error> {
        let all = asked == Asked::All;
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
    fn refused(&self, state: &mut Loop, error: &Error) {
        let Some(finished) = state.work.first_mut() else {
            return;
        };
        // The log is worth less than the output, and too small to cost a connection.
        if finished.log.take().is_some() && error.blames_the_value() {
            return;
        }
        let Some(output) = finished.output.take() else {
            // It is an error already, and its text is refused: a text of ours is stored, at last without the reason, in
            // which a database may repeat what it refuses.
            let mut message = "its error could not be stored".to_owned();
            let is_first = |error: &StoredError| error.message.starts_with(&message);
            if !finished.error.as_ref().is_some_and(is_first) {
                let why = crate::telemetry::chain(error);
                message += &format!(": {}", why.replace(|c: char| !c.is_ascii(), "?"));
            }
            let ended = Ended::without_value(finished.ending, "error_not_stored", message);
            finished.error = ended.error;
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

    async fn committed(
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

    /// Gives claimed executions to the slots. Those that this version cannot read are left to others: they are
    /// put back at once, for a newer version to take, and this process's own claims leave them out for a
    /// while. They hold up nobody else.
    ///
    /// RACE: while we waited for the database to answer, we were told to claim no more, or the answer says that
    /// our pipeline is paused. Executions that we got all the same are put back: a step that starts now would be
    /// killed soon, or must not start. Proven by `what_is_claimed_by_a_worker_that_is_to_end_is_never_started`
    /// and `a_worker_that_commits_while_its_pipeline_is_paused_begins_nothing_more`.
    async fn begin_all(
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

    async fn definition(
        &self,
        state: &mut Loop,
        claimed: &Claimed,
    ) -> Result<Result<Arc<Definition>, Unreadable>, Error> {
        let conn = state.link.get().await?;
        self.definitions.read(conn, &claimed.definition).await
    }

    fn begin(&self, state: &Loop, mut claimed: Claimed, definition: Arc<Definition>) {
        // Nobody needs the input twice, nor once the step has ended.
        let input = std::mem::replace(&mut claimed.input, RawValue::NULL.to_owned());
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

    /// Turns an outcome into a result to commit.
    fn finish(&self, state: &mut Loop, done: Done) {
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
        let ended = ended(outcome, job.claimed.attempt).with_log(log);
        let limits = self.policy.step(&job.definition, &job.claimed.step);
        let finished = Finished::new(job.claimed, job.definition, ended, &limits, chance());
        self.shared.counts.count(|counts| {
            let (step, ending) = (&finished.claimed.step, finished.ending);
            counting::ran(counts, &self.pipeline, step, ending, took);
        });
        match finished.ending {
            Ending::Success => events::succeeded(&job.assignment, took),
            // The failure to start is logged once for all executions, not for each one at each attempt.
            _ if !starts => {}
            _ => {
                let next = match finished.verdict {
                    outcome::Verdict::Again { delay, .. } => match delay.is_zero() {
                        true => "retry now".to_owned(),
                        false => format!("retry in {:.1} s", delay.as_secs_f64()),
                    },
                    outcome::Verdict::Fail => match finished.ending {
                        Ending::Error { retryable, .. } if !retryable => {
                            "none: not retryable".to_owned()
                        }
                        _ => "none: out of budget".to_owned(),
                    },
                    _ => "none".to_owned(),
                };
                let result = finished.ending.result().as_str();
                let hook = Some(finished.claimed.via).filter(|via| via.is_hook());
                let error = finished.error.as_ref();
                events::unsuccessful(&job.assignment, result, error, &next, hook);
            }
        }
        state.work.finish(finished);
    }
}

/// A step's outcome in the terms of the state machine, and the parts of it that are stored.
fn ended(outcome: Outcome, attempt: u32) -> Ended {
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
            let delay = outcome::not_started_delay(attempt);
            Ended::without_value(Ending::Released { delay }, "not_started", message)
        }
        Outcome::Released => {
            let delay = Duration::ZERO;
            let message = "the daemon stopped before it had ended";
            Ended::without_value(Ending::Released { delay }, "released", message)
        }
        Outcome::Cancelled => {
            let message = "it is not this process's any more: its run was cancelled, or the process was taken for dead";
            Ended::without_value(Ending::Cancelled, "cancelled", message)
        }
    }
}
