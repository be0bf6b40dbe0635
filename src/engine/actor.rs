//! A process whose operations the caller invokes one by one: an advancer and a worker in one, for drills and
//! tests.
//!
//! Owns: the calls that the loops of the engine make, with the budgets and the lease of one actor. Never: decides
//! which call is next, repeats one, or beats.

use std::sync::Arc;
use std::time::Duration;

use crate::definition::{Backoff, Definition};
use crate::machine::advance::AdvanceLimits;
use crate::machine::outcome::StepLimits;
use crate::model::{ProcessId, Role, RunId};
use crate::store::advance::{self, Advanced, BranchClaim, ClaimedBranch};
use crate::store::claim::{self, Claim, Claimed};
use crate::store::commit::{self, Committed, Committer, Ended, Finished};
use crate::store::definition::Definitions;
use crate::store::process::{self, Claimant, NewProcess};
use crate::store::recovery::{self, Death, Recovered};
use crate::store::trigger::{self, NewRun};
use crate::store::{Conn, Error};

/// The budgets of an actor's steps, which are tried again at once.
pub const fn limits(max_retry: u32, max_crash: u32) -> StepLimits {
    StepLimits {
        max_retry,
        max_crash,
        backoff: Backoff {
            initial: Duration::ZERO,
            factor: 1.0,
            max: Duration::ZERO,
            jitter: 0.0,
        },
    }
}

/// The row of a worker of this pipeline, or of any, to be registered as a process of `host`.
pub fn process_of(host: &str, pipeline: Option<&str>) -> NewProcess {
    NewProcess {
        id: ProcessId::new(),
        supervisor: None,
        role: Role::Worker,
        pipeline: pipeline.map(str::to_owned),
        host: host.to_owned(),
        boot_id: host.to_owned(),
        pid_namespace: host.to_owned(),
        pid: std::process::id(),
        pid_started_at: 1,
    }
}

/// One process.
pub struct Actor {
    /// Its connection.
    pub conn: Conn,
    /// The key of its row.
    pub process: ProcessId,
    /// The definitions that it has read.
    pub definitions: Definitions,
    /// The budgets of its steps.
    pub limits: StepLimits,
    /// The limits of its advances.
    pub advance_limits: AdvanceLimits,
    /// How long it holds its claims.
    pub lease: Duration,
    /// How many of the steps that follow are leased to it by a commit.
    pub room: usize,
}

impl Actor {
    /// An actor that has just registered, without budgets.
    pub async fn register(mut conn: Conn, host: &str, lease: Duration) -> Result<Self, Error> {
        let row = process_of(host, None);
        process::register(&mut conn, &row).await?;
        Ok(Self {
            conn,
            process: row.id,
            definitions: Definitions::default(),
            limits: limits(0, 1),
            advance_limits: AdvanceLimits {
                max_retry: 0,
                max_crash: 3,
                max_fan_out: None,
                max_payload: 16 << 20,
            },
            lease,
            room: 0,
        })
    }

    /// Starts a run.
    pub async fn trigger(&mut self, definition: &Definition, input: &str) -> Result<RunId, Error> {
        let runs = [NewRun { key: None, input }];
        let triggered = trigger::trigger(&mut self.conn, definition, &runs, Duration::ZERO).await?;
        Ok(triggered[0].run_id)
    }

    /// Claims executions that are due, at most `n` of them.
    pub async fn claim(&mut self, pipeline: &str, n: usize) -> Result<Claim, Error> {
        let me = Claimant::new(self.process);
        claim::claim(&mut self.conn, me, pipeline, n, self.lease).await
    }

    /// The result to commit for an execution that ended this way.
    pub async fn finish(&mut self, claimed: Claimed, ended: Ended) -> Result<Finished, Error> {
        let definition = self.definitions.load(&mut self.conn, &claimed.definition);
        let definition = definition.await?;
        let claimed = Arc::new(claimed);
        Ok(Finished::new(claimed, definition, ended, &self.limits, 0.5))
    }

    /// Commits results of one pipeline.
    pub async fn commit(&mut self, finished: &[Finished]) -> Result<Committed, Error> {
        let Some(first) = finished.first() else {
            return Ok(Committed::default());
        };
        let committer = Committer {
            claimant: Claimant::new(self.process),
            pipeline: &first.definition.pipeline,
            lease: self.lease,
            room: self.room,
        };
        commit::commit(&mut self.conn, finished, committer).await
    }

    /// Claims branches that are ready, at most `n` of them.
    pub async fn claim_branches(&mut self, n: usize) -> Result<BranchClaim, Error> {
        let me = Claimant::new(self.process);
        let left_out = self.definitions.left_out();
        advance::claim(&mut self.conn, me, n, self.lease, &left_out).await
    }

    /// Advances branches.
    pub async fn advance(&mut self, claimed: &[ClaimedBranch]) -> Result<Advanced, Error> {
        let (of_steps, of_advances) = (self.limits, self.advance_limits);
        let limits = advance::Limits {
            advance: &|_| of_advances,
            step: &|_, _| of_steps,
        };
        advance::advance(&mut self.conn, claimed, limits, &self.definitions).await
    }

    /// Recovers the claims of a process, if it is dead.
    pub async fn recover(
        &mut self,
        other: ProcessId,
        death: Death<'_>,
    ) -> Result<Recovered, Error> {
        let limits = self.limits;
        let limits = move |_: &Definition, _: &str| limits;
        recovery::recover(&mut self.conn, other, death, &limits, &self.definitions).await
    }
}
