//! The advancer's loop: claim ready branches, advance them, look again.
//!
//! Owns: when a batch is claimed, and who is notified of its result. Never: decides
//! (`machine::advance`), writes (`store::advance`), or handles a batch that fails
//! (`advancer_state`).
//!
//! One connection, one batch at a time: a batch costs about as many statements as one branch,
//! so `pipeline_advancer.count` widens the batch rather than adding connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::model::{BranchId, ProcessId, Role};
use crate::store::advance::{self, Advanced, BranchClaim, ClaimedBranch};
use crate::store::definition::{Definitions, LeftOut};
use crate::store::process::Counters;
use crate::store::recovery;
use crate::store::{Conn, Error, Location};
use crate::telemetry::events;

use super::advancer_state::{AdvancerState, Answer, Operation, Terms, Why};
use super::counting;
use super::locked::{LOOK_EVERY, Locked};
use super::shared::{Mode, Shared};
use super::trouble::Trouble;
use super::worker::bearable;
use super::{Link, Policy, Waker, deaf_for, spread, wakeup};

/// Branches per batch for each of `count`. A batch holds its branches for one transaction; wider
/// batches gain little and hold them longer.
const BRANCHES_PER_COUNT: usize = 64;

/// The pause between two transactions of a wide expand, on SQLite: a process that waits for the one lock
/// looks for it again within 2 ms, and would find it taken again if we went on as fast as we can. Raced by
/// `a_wide_expand_holds_up_no_other_pipeline`.
const LET_OTHERS_WRITE: Duration = Duration::from_millis(4);

/// The loop of one advancer process. It serves all pipelines, whichever run on this host: a definition is in the
/// database, and a branch may be ready whose pipeline only other hosts run.
pub struct Advancer {
    /// Where to connect.
    pub location: Location,
    /// Branches that may be claimed at once.
    pub count: u32,
    /// The wait between looks when no wakeup comes.
    pub polling_timeout: Duration,
    /// Limits.
    pub policy: Policy,
    /// The state that the process's tasks share.
    pub shared: Arc<Shared>,
    /// The definitions read so far.
    pub definitions: Arc<Definitions>,
    /// Wakes the workers.
    pub waker: Arc<dyn Waker>,
}

/// The branches that somebody has locked.
const BRANCHES: &str = "branches";

/// A process of ours holds a lock for less than this, as a rule.
const MOMENT: Duration = Duration::from_millis(20);

/// The state of the loop.
struct Loop {
    link: Link,
    branches: AdvancerState,
    /// The process that claims.
    process: ProcessId,
    /// The branches that somebody has locked.
    locked: Locked<BranchId>,
    /// When to look again whether branches that could not be given back are still locked.
    look_kept: Instant,
    /// The last error of an advance that waited for a lock.
    waited: Option<Error>,
}

impl Loop {
    /// The time until locks are looked at again.
    fn next_look(&self) -> Duration {
        let now = Instant::now();
        let left_out = self.locked.look_in(now).unwrap_or(Duration::MAX);
        match self.branches.keeps() {
            true => left_out.min(self.look_kept.saturating_duration_since(now)),
            false => left_out,
        }
    }
}

/// Connects if need be. Behind another connection than before, the database is asked for the held branches.
async fn connected(state: &mut Loop) -> Result<(), Error> {
    let another = state.link.is_another().await;
    let doubts = match &another {
        Ok(another) => *another,
        // Where nothing is held there is nothing to ask about, and a stop need not wait for the database. Proven by
        // `an_idle_daemon_that_is_told_to_stop_does_not_wait_for_its_database`.
        Err(_) => state.branches.may_hold(),
    };
    if doubts {
        state.branches.doubt();
    }
    another.map(drop)
}

/// Reports a branch that is given back because it cannot be advanced. The connection is replaced where its session may be
/// the cause.
fn report_blame(operation: &Operation, link: &mut Link) {
    match operation.blames() {
        Some((branch, Why::Refused(error))) => events::advance_refused(branch, error),
        Some((
            branch,
            Why::Hindered {
                error,
                times,
                first: true,
            },
        )) => {
            events::advance_hindered(branch, error, *times);
            // The cause may be a setting of this session, which another one does not have. Proven by
            // `a_branch_that_only_a_session_cannot_advance_is_advanced_by_another`.
            if error.is_of_environment() {
                link.replace();
            }
        }
        _ => {}
    }
}

impl Advancer {
    /// Runs until told to stop.
    pub async fn run(self) {
        let mut modes = self.shared.modes();
        let mut state = Loop {
            link: Link::new(self.location.clone()),
            branches: AdvancerState::default(),
            process: self.shared.process(),
            locked: Locked::default(),
            look_kept: Instant::now(),
            waited: None,
        };
        loop {
            self.shared.progress();
            // If the process was declared dead and has registered anew, the claims in `branches` belonged to its old
            // row. A claim whose rows somebody had locked at that time was left with the old row, and nobody works on
            // it any more.
            let process = self.shared.process();
            if std::mem::replace(&mut state.process, process) != process {
                state.branches.forget();
            }
            let mode = self.shared.mode();
            if mode != Mode::Run {
                state.branches.stop_spreading();
            }
            // Claimed branches are advanced first. If the process left while it may hold others, of which it does not know,
            // a crash would be counted for each of them. Proven by
            // `an_advancer_that_is_told_to_stop_while_it_is_unsure_leaves_no_claim_behind`.
            if let Mode::Drain { until, .. } = mode
                && !state.branches.is_busy()
                && (state.branches.is_sure() || Instant::now() >= until)
            {
                break;
            }
            let may_hold = state.branches.may_hold() || self.shared.has_others();
            let (wait, deaf) = match mode == Mode::Run || may_hold {
                true => self.guarded_turn(&mut state).await,
                false => (self.poll(), Duration::ZERO),
            };
            if wait.is_zero() {
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = wakeup(&self.shared.wake, deaf) => {}
                _ = modes.changed() => {}
            }
        }
        state.link.close().await;
    }

    /// A turn; its error is noted on the link. Returns how long to wait then, and for how much of that
    /// time no wakeup is heard.
    async fn guarded_turn(&self, state: &mut Loop) -> (Duration, Duration) {
        let turned = self.turn(state).await;
        let Loop { link, branches, .. } = state;
        self.shared.set_holding(branches.may_hold());
        self.shared.sent(link.take_statements());
        let deaf = turned.as_ref().err().map_or(Duration::ZERO, deaf_for);
        let wait = match turned {
            Ok(wait) => wait.min(state.next_look()),
            Err(error) if error.is_unavailable() => {
                self.shared.cannot_reach(&error);
                link.failed(&error)
            }
            Err(error) => {
                // A bug or a broken database: say so, and do not spin (E14).
                events::statement_failed(&error);
                let text = crate::telemetry::chain(&error);
                self.shared.over(Trouble::Reaching, "");
                self.shared.trouble(Trouble::Advancing, "", &text);
                link.failed(&error).max(Duration::from_secs(1))
            }
        };
        (wait, deaf)
    }

    fn poll(&self) -> Duration {
        self.shared.polls(self.polling_timeout)
    }

    /// The advancer makes progress: its trouble is over.
    fn works(&self, link: &mut Link) {
        link.worked();
        for trouble in [Trouble::Reaching, Trouble::Advancing] {
            self.shared.over(trouble, "");
        }
    }

    /// One operation of this process, if it is time for it. Returns how long to wait then.
    async fn turn(&self, state: &mut Loop) -> Result<Duration, Error> {
        connected(state).await?;
        if !self.shared.take_others(self.policy.lease()).is_empty() {
            bearable(self.give_back_unknown(state).await)?;
        }
        if state.next_look().is_zero() {
            bearable(self.look_at_locked(state).await)?;
        }
        let operation = self.next_operation(state).await?;
        if let Operation::Claim = operation {
            if self.shared.mode() != Mode::Run {
                return Ok(self.poll());
            }
            if let Some(wait) = self.nothing_ready(state).await? {
                return Ok(wait);
            }
            // From here on there may be leases to extend.
            self.shared.set_holding(true);
        }
        report_blame(&operation, &mut state.link);
        self.perform(state, &operation).await
    }

    /// The next operation. While some branches are locked, others may be locked by the same transaction: a batch is asked
    /// about first.
    async fn next_operation(&self, state: &mut Loop) -> Result<Operation, Error> {
        let operation = state.branches.next();
        match &operation {
            Operation::Advance(batch) if state.locked.keys().next().is_some() => {
                bearable(self.set_aside(state, batch).await)?;
                Ok(state.branches.next())
            }
            _ => Ok(operation),
        }
    }

    /// How long to wait if there is nothing to claim. An advancer that did not ask would often open a transaction and find
    /// nothing.
    async fn nothing_ready(&self, state: &mut Loop) -> Result<Option<Duration>, Error> {
        let conn = state.link.get().await?;
        conn.ask_about_locks(false);
        let next = advance::next_ready(conn).await?;
        let wait = next.unwrap_or_else(|| self.poll());
        if wait.is_zero() {
            return Ok(None);
        }
        if !state.branches.has_suspects() {
            self.works(&mut state.link);
        }
        Ok(Some(match state.branches.pass() {
            true => Duration::ZERO,
            false => wait.min(spread(self.poll())),
        }))
    }

    /// Performs an operation, and takes note of its answer. Returns how long to wait then.
    async fn perform(&self, state: &mut Loop, operation: &Operation) -> Result<Duration, Error> {
        let left_out = self.left_out(state);
        let terms = Terms {
            most: self.most(&mut state.branches),
            lease: self.policy.lease(),
            limits: advance::Limits {
                advance: &|pipeline| self.policy.advance(pipeline),
                step: &|definition, step| self.policy.step(definition, step),
            },
            definitions: &self.definitions,
            left_out: &left_out,
            backoff: &|pipeline, times| self.policy.advance_backoff(pipeline, times),
        };
        let (conn, me) = state.link.claiming(state.process).await?;
        conn.ask_about_locks(matches!(
            operation,
            Operation::Advance(_) | Operation::GiveBack(..)
        ));
        let asked = Instant::now();
        let answer = operation.perform(conn, me, &terms).await;
        let took = asked.elapsed();
        if let (Operation::Advance(batch), Err(error)) = (operation, &answer)
            && error.is_lock_wait()
        {
            let error = error.clone();
            state.branches.settle(operation, answer)?;
            state.waited = Some(error);
            self.waited_for_lock(state, batch).await?;
            return Ok(Duration::ZERO);
        }
        let answer = match state.branches.settle(operation, answer) {
            Err(error) if matches!(operation, Operation::Claim) && error.blames_a_row() => {
                if terms.most == 1 && self.leave_out_first(conn, &left_out, &error).await? {
                    // Without it, others can be claimed at once.
                    return Ok(Duration::ZERO);
                }
                return Err(error);
            }
            answer => answer?,
        };
        // Reading back the claims that an error left behind does not mean that the error is overcome.
        let advanced = matches!(answer, Some(Answer::Advanced(_)));
        let idle = matches!(operation, Operation::Claim) && !state.branches.may_hold();
        if advanced || (idle && !state.branches.has_suspects()) {
            self.works(&mut state.link);
        }
        Ok(answer.map_or(Duration::ZERO, |answer| {
            self.answered(state, operation, answer, took)
        }))
    }

    /// An advance has waited in vain for a lock: the branches that somebody has locked are set aside.
    async fn waited_for_lock(
        &self,
        state: &mut Loop,
        batch: &[ClaimedBranch],
    ) -> Result<(), Error> {
        let found = bearable(self.set_aside(state, batch).await)?;
        if let (Some(false), [alone]) = (found, batch) {
            state.locked.waited_in_vain(alone.id, Instant::now());
        }
        Ok(())
    }

    /// Counts and reports what an operation has done. Returns how long to wait then.
    fn answered(
        &self,
        state: &mut Loop,
        operation: &Operation,
        answer: Answer,
        took: Duration,
    ) -> Duration {
        match answer {
            Answer::Claimed(BranchClaim::Dead) => {
                self.shared.check.notify_one();
                Duration::from_millis(100)
            }
            Answer::Claimed(BranchClaim::Taken(claimed))
                if claimed.is_empty() && !state.branches.is_busy() =>
            {
                spread(self.poll())
            }
            Answer::Claimed(BranchClaim::Taken(claimed)) => {
                let counts = &self.shared.counts;
                counts.count(|counts| counting::granted(counts, "advancement", claimed.len()));
                Duration::ZERO
            }
            Answer::Advanced(advanced) => {
                if let Operation::Advance(batch) = operation {
                    state.locked.moved(batch.iter().map(|branch| branch.id));
                }
                self.shared.counts.count(|counts| {
                    counting::stored(counts, Role::Advancer, took);
                    counting::advanced(counts, &advanced);
                });
                self.advanced(&advanced);
                match advanced.spreading.is_empty() || self.location.file().is_none() {
                    true => Duration::ZERO,
                    false => LET_OTHERS_WRITE,
                }
            }
            Answer::Held(_) | Answer::GivenBack => Duration::ZERO,
        }
    }

    /// How many branches the next claim takes.
    fn most(&self, branches: &mut AdvancerState) -> usize {
        branches.claims((self.count as usize).max(1) * BRANCHES_PER_COUNT)
    }

    /// The branches and the definitions that claims leave out.
    fn left_out(&self, state: &Loop) -> LeftOut {
        let locked = state.locked.keys().map(|id| id.0);
        self.definitions.left_out().and(locked)
    }

    /// Asks which branches of a batch somebody has locked. They are given back, and the next claims leave them out. True
    /// if there are any.
    async fn set_aside(&self, state: &mut Loop, batch: &[ClaimedBranch]) -> Result<bool, Error> {
        let ids: Vec<BranchId> = batch.iter().map(|branch| branch.id).collect();
        let conn = state.link.get().await?;
        let mut locked = advance::locked(conn, &ids).await?;
        if !locked.is_empty() {
            // A lock of ours is over by then.
            tokio::time::sleep(MOMENT).await;
            locked = advance::locked(conn, &locked).await?;
        }
        state.locked.found(&locked, Instant::now());
        if let Some(error) = &state.waited {
            state.branches.set_aside(&locked, error);
        }
        Ok(!locked.is_empty())
    }

    /// A heartbeat has found claims that may be unknown here: asks which they are.
    async fn give_back_unknown(&self, state: &mut Loop) -> Result<(), Error> {
        let held = advance::held(state.link.get().await?, state.process).await?;
        match state.branches.give_back_unknown(&held) {
            0 => {}
            count => events::claims_unknown(count),
        }
        Ok(())
    }

    /// Looks whether the branches that are left out are still locked.
    async fn look_at_locked(&self, state: &mut Loop) -> Result<(), Error> {
        let now = Instant::now();
        state.locked.begin_look(now);
        state.look_kept = now + LOOK_EVERY;
        if state.branches.keeps() {
            let conn = state.link.get().await?;
            let kept = recovery::locked_branches(conn, state.process).await?;
            state.branches.release(&kept);
        }
        let left_out: Vec<_> = state.locked.keys().collect();
        let locked = advance::locked(state.link.get().await?, &left_out).await?;
        state.locked.looked(&locked, Instant::now());
        self.shared
            .locked(BRANCHES, state.locked.waiting(), "they are advanced");
        Ok(())
    }

    /// The first branch that is ready cannot be claimed: the next claims leave it out for a while. False if
    /// there is none, or too many are left out.
    async fn leave_out_first(
        &self,
        conn: &mut Conn,
        left_out: &LeftOut,
        error: &Error,
    ) -> Result<bool, Error> {
        let first = advance::first_ready(conn, left_out);
        let Some(branch) = first.await? else {
            return Ok(false);
        };
        let row = format!("the branch {branch}");
        Ok(self
            .shared
            .leaves_out(&self.definitions, &row, branch.0, error))
    }

    fn advanced(&self, advanced: &Advanced) {
        for pipeline in &advanced.crossed.available {
            self.waker.job_available(pipeline);
        }
        self.shared.count(Counters {
            advanced: advanced.moved as u64,
            stale: advanced.stale.len() as u64,
            ..Counters::default()
        });
        for branch in &advanced.stale {
            events::stale_advance(*branch);
        }
        for (_, unreadable) in &advanced.unreadable {
            let (digest, text) = (&unreadable.digest, unreadable.to_string());
            self.shared.trouble(Trouble::Definition, digest, &text);
        }
        events::crossed(&advanced.crossed);
    }
}
