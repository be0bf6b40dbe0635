//! The advancer's loop: claim ready branches, advance them, look again.
//!
//! Owns: when a batch is claimed, and who hears of what came of it. Never: decides
//! (`machine::advance`), writes (`store::advance`), or makes something of a batch that fails
//! (`branches`).
//!
//! One connection, one batch at a time: a batch costs about as many statements as one branch,
//! so `pipeline_advancer.count` widens the batch rather than adding connections.

use std::sync::Arc;
use std::time::Duration;

use crate::store::advance::{self, Advanced, BranchClaim};
use crate::store::definition::Definitions;
use crate::store::process::Counters;
use crate::store::{Error, Location};
use crate::telemetry::events;

use super::branches::{Answer, Branches, Operation, Terms};
use super::shared::{Mode, Shared};
use super::{Link, Policy, Ring, spread};

/// Branches per batch for each of `count`. A batch holds its branches for one transaction;
/// wider ones gain little and hold longer.
const BRANCHES_PER_COUNT: usize = 64;

/// About how long until a branch that erred is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The loop of one advancer process.
pub struct Advancer {
    /// Where to connect.
    pub location: Location,
    /// The pipelines it serves; `None` for all.
    pub pipelines: Option<Vec<String>>,
    /// Branches that may be claimed at once.
    pub count: u32,
    /// The wait between looks when nothing rings.
    pub polling_timeout: Duration,
    /// Limits.
    pub policy: Policy,
    /// What the process's tasks share.
    pub shared: Arc<Shared>,
    /// Definitions met so far.
    pub definitions: Arc<Definitions>,
    /// Rings the workers.
    pub ring: Arc<dyn Ring>,
}

impl Advancer {
    /// Runs until told to stop.
    pub async fn run(self) {
        let mut link = Link::new(self.location.clone());
        let mut modes = self.shared.modes();
        let mut branches = Branches::default();
        loop {
            self.shared.progress();
            let mode = self.shared.mode();
            // What is claimed is advanced first.
            if matches!(mode, Mode::Drain { .. }) && !branches.is_busy() {
                break;
            }
            let wait = match mode == Mode::Run || branches.may_hold() {
                true => self.told_turn(&mut link, &mut branches).await,
                false => self.polling_timeout,
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

    /// A turn, and what an error is to the link; how long to wait then.
    async fn told_turn(&self, link: &mut Link, branches: &mut Branches) -> Duration {
        let turned = self.turn(link, branches).await;
        self.shared.set_holding(branches.may_hold());
        self.shared.sent(link.take_statements());
        match turned {
            Ok(wait) => wait,
            Err(error) if error.is_unavailable() => link.failed(&error),
            Err(error) => {
                // A bug or a broken database: say so, and do not spin (E14).
                events::advancing_failed(&error);
                link.failed(&error).max(Duration::from_secs(1))
            }
        }
    }

    /// One operation, if it is time for it; how long to wait then.
    async fn turn(&self, link: &mut Link, branches: &mut Branches) -> Result<Duration, Error> {
        let operation = branches.next();
        if let Some((branch, error)) = operation.blames() {
            events::advance_errored(branch, error);
        }
        let (conn, me) = match link.claiming(self.shared.process()).await {
            Ok(connected) => connected,
            Err(error) => {
                branches.doubt();
                return Err(error);
            }
        };
        if let Operation::Claim = operation {
            // One look, for those who would otherwise open a transaction to find nothing.
            let wait = match advance::next_ready(conn).await? {
                Some(wait) => Duration::from_micros(wait.max(0) as u64),
                None => self.polling_timeout,
            };
            if !wait.is_zero() {
                link.worked();
                return Ok(wait.min(spread(self.polling_timeout)));
            }
            // From here on there may be leases to extend.
            self.shared.set_holding(true);
        }
        let terms = Terms {
            pipelines: self.pipelines.as_deref(),
            most: (self.count as usize).max(1) * BRANCHES_PER_COUNT,
            lease: self.policy.lease(),
            max_payload: self.policy.max_payload(""),
            limits: &|pipeline| self.policy.advance(pipeline),
            definitions: &self.definitions,
            delay: spread(RETRY_DELAY),
        };
        let answer = operation.perform(conn, me, &terms).await;
        let answer = branches.settle(&operation, answer)?;
        // To have read back what an error left behind is not to have got over it.
        let gone_on = matches!(operation, Operation::Claim | Operation::Advance(_));
        if gone_on && !branches.may_hold() {
            link.worked();
        }
        Ok(match answer {
            Some(Answer::Claimed(BranchClaim::Dead)) => {
                self.shared.check.notify_one();
                Duration::from_millis(100)
            }
            Some(Answer::Claimed(BranchClaim::Taken(claimed))) if claimed.is_empty() => {
                spread(self.polling_timeout)
            }
            Some(Answer::Advanced(advanced)) => {
                self.advanced(&advanced);
                Duration::ZERO
            }
            _ => Duration::ZERO,
        })
    }

    fn advanced(&self, advanced: &Advanced) {
        for pipeline in &advanced.crossed.available {
            self.ring.work(pipeline);
        }
        self.shared.count(Counters {
            advanced: advanced.moved as u64,
            stale: advanced.stale.len() as u64,
            ..Counters::default()
        });
        for branch in &advanced.stale {
            events::stale_advance(*branch);
        }
        events::crossed(&advanced.crossed);
    }
}
