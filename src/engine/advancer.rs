//! The advancer's loop: claim ready branches, advance them, look again.
//!
//! Owns: when a batch is claimed, and who is told of its result. Never: decides
//! (`machine::advance`), writes (`store::advance`), or handles a batch that fails
//! (`advancer_state`).
//!
//! One connection, one batch at a time: a batch costs about as many statements as one branch,
//! so `pipeline_advancer.count` widens the batch rather than adding connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::model::{ProcessId, Role};
use crate::store::advance::{self, Advanced, BranchClaim};
use crate::store::definition::Definitions;
use crate::store::process::Counters;
use crate::store::{Conn, Error, Location};
use crate::telemetry::events;

use super::advancer_state::{AdvancerState, Answer, Operation, Terms, Why};
use super::counting;
use super::shared::{Mode, Shared};
use super::trouble::Trouble;
use super::{Link, Policy, Waker, spread};

/// Branches per batch for each of `count`. A batch holds its branches for one transaction; wider
/// batches gain little and hold them longer.
const BRANCHES_PER_COUNT: usize = 64;

/// The pause between two transactions of a wide expand, on SQLite: a process that waits for the one lock
/// looks for it again within 2 ms, and would find it taken again if we went on as fast as we can. Raced by
/// `a_wide_expand_holds_up_no_other_pipeline`.
const LET_OTHERS_WRITE: Duration = Duration::from_millis(4);

/// The loop of one advancer process.
pub struct Advancer {
    /// Where to connect.
    pub location: Location,
    /// The pipelines it serves; `None` for all.
    pub pipelines: Option<Vec<String>>,
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

impl Advancer {
    /// Runs until told to stop.
    pub async fn run(self) {
        let mut link = Link::new(self.location.clone());
        let mut modes = self.shared.modes();
        let mut branches = AdvancerState::default();
        let mut process = self.shared.process();
        loop {
            self.shared.progress();
            // Its claims were those of the process that was declared dead. A claim that somebody had locked at that time
            // was left to that process, and nobody uses it any more.
            if std::mem::replace(&mut process, self.shared.process()) != process {
                branches.forget();
            }
            let mode = self.shared.mode();
            if mode != Mode::Run {
                branches.stop_spreading();
            }
            // Claimed branches are advanced first.
            if matches!(mode, Mode::Drain { .. }) && !branches.is_busy() {
                break;
            }
            let wait = match mode == Mode::Run || branches.may_hold() {
                true => self.guarded_turn(&mut link, &mut branches, process).await,
                false => self.poll(),
            };
            if wait.is_zero() {
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.shared.wake.notified() => {}
                _ = modes.changed() => {}
            }
        }
        link.close().await;
    }

    /// A turn; its error is noted on the link. Returns how long to wait then.
    async fn guarded_turn(
        &self,
        link: &mut Link,
        branches: &mut AdvancerState,
        process: ProcessId,
    ) -> Duration {
        let turned = self.turn(link, branches, process).await;
        self.shared.set_holding(branches.may_hold());
        self.shared.sent(link.take_statements());
        match turned {
            Ok(wait) => wait,
            Err(error) if error.is_unavailable() => link.failed(&error),
            Err(error) => {
                // A bug or a broken database: say so, and do not spin (E14).
                events::statement_failed(&error);
                let text = crate::telemetry::chain(&error);
                self.shared.trouble(Trouble::Advancing, "", &text);
                link.failed(&error).max(Duration::from_secs(1))
            }
        }
    }

    fn poll(&self) -> Duration {
        self.shared.polls(self.polling_timeout)
    }

    /// The advancer makes progress: its trouble is over.
    fn works(&self, link: &mut Link) {
        link.worked();
        self.shared.over(Trouble::Advancing, "");
    }

    /// One operation of this process, if it is time for it. Returns how long to wait then.
    async fn turn(
        &self,
        link: &mut Link,
        branches: &mut AdvancerState,
        process: ProcessId,
    ) -> Result<Duration, Error> {
        match link.is_another().await {
            Ok(false) => {}
            Ok(true) => branches.doubt(),
            Err(error) => {
                branches.doubt();
                return Err(error);
            }
        }
        let operation = branches.next();
        match operation.blames() {
            Some((branch, Why::Refused(error))) => events::advance_refused(branch, error),
            Some((
                branch,
                Why::Hindered {
                    error,
                    times,
                    first,
                },
            )) if *first => {
                events::advance_hindered(branch, error, *times);
            }
            _ => {}
        }
        let (conn, me) = link.claiming(process).await?;
        if let Operation::Claim = operation {
            // One look first, because an advancer would otherwise often open a transaction and find
            // nothing.
            let wait = match advance::next_ready(conn).await? {
                Some(wait) => Duration::from_micros(wait.max(0) as u64),
                None => self.poll(),
            };
            if !wait.is_zero() {
                if !branches.has_suspects() {
                    self.works(link);
                }
                return Ok(match branches.pass() {
                    true => Duration::ZERO,
                    false => wait.min(spread(self.poll())),
                });
            }
            // From here on there may be leases to extend.
            self.shared.set_holding(true);
        }
        let terms = Terms {
            pipelines: self.pipelines.as_deref(),
            most: branches.claims((self.count as usize).max(1) * BRANCHES_PER_COUNT),
            lease: self.policy.lease(),
            limits: &|pipeline| self.policy.advance(pipeline),
            definitions: &self.definitions,
            backoff: &|pipeline, times| self.policy.advance_backoff(pipeline, times),
        };
        let asked = Instant::now();
        let answer = operation.perform(conn, me, &terms).await;
        let took = asked.elapsed();
        let answer = match branches.settle(&operation, answer) {
            Err(error) if matches!(operation, Operation::Claim) && error.blames_a_row() => {
                if terms.most == 1 && self.leaves_out_first(conn, &error).await? {
                    // Without it, others can be claimed at once.
                    return Ok(Duration::ZERO);
                }
                return Err(error);
            }
            answer => answer?,
        };
        // Reading back the claims that an error left behind does not mean that the error is overcome.
        let advanced = matches!(answer, Some(Answer::Advanced(_)));
        let idle = matches!(operation, Operation::Claim) && !branches.may_hold();
        if advanced || (idle && !branches.has_suspects()) {
            self.works(link);
        }
        Ok(match answer {
            Some(Answer::Claimed(BranchClaim::Dead)) => {
                self.shared.check.notify_one();
                Duration::from_millis(100)
            }
            Some(Answer::Claimed(BranchClaim::Taken(claimed)))
                if claimed.is_empty() && !branches.is_busy() =>
            {
                spread(self.poll())
            }
            Some(Answer::Claimed(BranchClaim::Taken(claimed))) => {
                let counts = &self.shared.counts;
                counts.count(|counts| counting::granted(counts, "advancement", claimed.len()));
                Duration::ZERO
            }
            Some(Answer::Advanced(advanced)) => {
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
            _ => Duration::ZERO,
        })
    }

    /// The first branch that is ready cannot be claimed: the next claims leave it out for a while. False if
    /// there is none, or too many are left out.
    async fn leaves_out_first(&self, conn: &mut Conn, error: &Error) -> Result<bool, Error> {
        let left_out = self.definitions.left_out();
        let first = advance::first_ready(conn, self.pipelines.as_deref(), &left_out);
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
