//! The worker's loop: claim, let the slots run, commit together the executions that have ended.
//!
//! Owns: what one process of one pipeline asks the database for, and when. One claimer and one
//! committer for all slots: a commit takes everything that has ended while the last one was in
//! flight, and takes the steps that follow along.
//! Never: runs a step (`slots` do), decides what an ending costs (`machine::outcome`), writes
//! (`store::commit`), or handles a lost answer (`worker_state`).

mod claiming;
mod committing;
mod draining;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::model::{ExecutionId, ProcessId};
use crate::store::claim::Held;
use crate::store::commit::Finished;
use crate::store::cursor::Cursor;
use crate::store::definition::{Definitions, LeftOut};
use crate::store::{Error, Location};
use crate::telemetry::events;

use super::counting::{self, Sent};
use super::locked::Locked;
use super::runner::Runner;
use super::shared::{Mode, Shared};
use super::slots::Slots;
use super::trouble::Trouble;
use super::worker_state::{Answer, Operation, Terms, WorkerState};
use super::{Link, Policy, Waker, deaf_for, spread, wakeup};

use draining::Drain;
pub use draining::LAST_COMMIT;

/// How long jobs that were claimed ahead wait while no slot takes any of them, before somebody else
/// may have them.
const STUCK_AFTER: Duration = Duration::from_millis(250);

/// A claim that leaves out executions that this process could not read passes over all of them that are due. If the
/// claim takes longer than the first value, the next claim waits for three times the excess, so that others can use the
/// database.
const LONG_CLAIM: (Duration, u32) = (Duration::from_millis(50), 3);

/// The pause after a claim that failed because of a row.
const CLAIMS_AGAIN: Duration = Duration::from_secs(1);

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
    drain: Drain,
}

/// Which results are asked about for locks: those that are to be sent, and those that were set aside, too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
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
        self.runner.begin();
        let mut state = self.start();
        let mut modes = self.shared.modes();
        loop {
            self.shared.progress();
            for done in state.slots.take_done() {
                self.finish(&mut state, done);
            }
            self.report_held(&state);
            let mode = self.shared.mode();
            if let Mode::Drain { until, cause } = mode
                && self.is_drained(&mut state, until, cause)
            {
                break;
            }
            let (wait, deaf) = self.guarded_turn(&mut state, mode).await;
            if wait.is_zero() {
                // Let the executions that have ended meanwhile join the next batch.
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                () = wakeup(&state.slots.ended, deaf) => {}
                () = wakeup(&self.shared.wake, deaf) => {
                    state.eager = true;
                    state.vain = 0;
                }
                _ = modes.changed() => {}
                () = tokio::time::sleep(state.drain.longest(mode, wait)) => {}
            }
        }
        state.link.close().await;
    }

    /// The state with which the loop begins.
    fn start(&self) -> Loop {
        let count = self.policy.config().job_worker.count(&self.pipeline) as usize;
        self.shared.set_slots(count as u64);
        let (runner, shared) = (Arc::clone(&self.runner), Arc::clone(&self.shared));
        let now = Instant::now();
        Loop {
            link: Link::new(self.location.clone()),
            slots: Slots::new(count, self.policy.lease(), runner, shared),
            work: WorkerState::default(),
            claimant: self.shared.process(),
            eager: true,
            look: now,
            rest: now,
            behind: None,
            vain: 0,
            claim_failed: false,
            locked: Locked::default(),
            look_aside: now,
            unstored: HashMap::new(),
            most: usize::MAX,
            paused: false,
            not_started: HashMap::new(),
            drain: Drain::default(),
        }
    }

    /// Tells the slots and the heartbeat how much is held.
    fn report_held(&self, state: &Loop) {
        state.slots.keeps(state.work.bytes());
        self.shared.set_holding(state.work.may_hold());
    }

    /// A turn; its error is noted on the link. Returns how long to wait then, and for how much of that
    /// time no wakeup is heard.
    async fn guarded_turn(&self, state: &mut Loop, mode: Mode) -> (Duration, Duration) {
        let turned = self.turn(state, mode).await;
        let paused = state.work.is_paused();
        if std::mem::replace(&mut state.paused, paused) != paused {
            events::paused(paused);
        }
        self.report_held(state);
        self.shared.sent(state.link.take_statements());
        let error = match turned {
            Ok(wait) => {
                state.link.worked();
                if state.work.finished().is_empty() {
                    self.shared.over(Trouble::Reaching, "");
                }
                return (wait, Duration::ZERO);
            }
            Err(error) => error,
        };
        state.eager = true;
        let wait = state.link.failed(&error);
        let wait = if error.is_unavailable() {
            self.shared.cannot_reach(&error);
            wait
        } else {
            self.failed(&error);
            wait.max(Duration::from_secs(1))
        };
        (wait, deaf_for(&error))
    }

    /// One exchange with the database, if there is a reason for one. Returns how long to wait then.
    async fn turn(&self, state: &mut Loop, mode: Mode) -> Result<Duration, Error> {
        // A process that could not beat for a whole lease may have been declared dead.
        let fresh = self.shared.since_beat() < self.policy.lease();
        let claiming = mode == Mode::Run && fresh;
        if state.link.is_another().await? {
            state.work.doubt();
        }
        self.settle_doubts(state).await?;
        self.put_back_unknown(state).await?;
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
        if claiming
            && !first
            && Instant::now() >= state.rest
            && let Some(wait) = self.claim_now(state).await?
        {
            return Ok(wait);
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

    /// After a transaction whose fate is unknown: forgets the results that had been committed,
    /// and takes up the executions that had been claimed for us (E11).
    async fn settle_doubts(&self, state: &mut Loop) -> Result<(), Error> {
        while let Some(first) = state.work.first() {
            let sent = Sent::all(state.work.finished());
            match self.perform(state, &first).await? {
                Some(Answer::Landed(landed)) => {
                    let counts = &self.shared.counts;
                    counts.count(|counts| counting::landed(counts, &self.pipeline, &sent, &landed));
                }
                Some(Answer::Held(held)) => self.take_up(state, held).await?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Of the executions that this process holds, begins those that no slot has; the ones that are too large to hold are
    /// put back.
    async fn take_up(&self, state: &mut Loop, held: Held) -> Result<(), Error> {
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
        Ok(())
    }

    /// A heartbeat has found claims that may be unknown here: puts back those that are.
    async fn put_back_unknown(&self, state: &mut Loop) -> Result<(), Error> {
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
        Ok(())
    }

    /// Claims, and returns how long to wait then; nothing if results may be stored in this turn.
    async fn claim_now(&self, state: &mut Loop) -> Result<Option<Duration>, Error> {
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
                return Ok(Some(Duration::from_millis(1)));
            }
            claimed => claimed?,
        };
        // A claim that failed may have been made all the same: that is asked first.
        if !state.work.is_sure() {
            return Ok(Some(Duration::ZERO));
        }
        if !self.definitions.left_out().is_empty() {
            let (long, share) = LONG_CLAIM;
            state.rest = Instant::now() + began.elapsed().saturating_sub(long) * share;
        }
        Ok((!lives).then_some(Duration::from_millis(100)))
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
}
