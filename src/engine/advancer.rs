//! The advancer's loop: claim ready branches, advance them, look again.
//!
//! Owns: batches, and what happens to a batch that fails. Never: decides (`machine::advance`),
//! writes (`store::advance`).
//!
//! One connection, one batch at a time: a batch costs about as many statements as one branch,
//! so `pipeline_advancer.count` widens the batch rather than adding connections.

use std::sync::Arc;
use std::time::Duration;

use crate::store::advance::{self, Advanced, BranchClaim, ClaimedBranch, GiveBack};
use crate::store::definition::Definitions;
use crate::store::process::{self, Counters};
use crate::store::{Error, Location};
use crate::telemetry::events;

use super::shared::{Mode, Shared};
use super::{Link, Policy, Ring, spread};

/// Branches per batch for each of `count`. A batch holds its branches for one transaction;
/// wider ones gain little and hold longer.
const BRANCHES_PER_COUNT: usize = 64;

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
        let mut unsure = false;
        loop {
            self.shared.progress();
            let mode = self.shared.mode();
            if matches!(mode, Mode::Drain { .. }) {
                break;
            }
            let wait = match mode {
                Mode::Run => match self.counted_turn(&mut link, &mut unsure).await {
                    Ok(Turn::More) => {
                        unsure = false;
                        link.worked();
                        continue;
                    }
                    Ok(Turn::Wait(wait)) => {
                        unsure = false;
                        link.worked();
                        wait
                    }
                    Err(error) if error.is_unavailable() => link.failed(&error),
                    Err(error) => {
                        // A bug or a broken database: say so, and do not spin (E14).
                        events::advancing_failed(&error);
                        link.failed(&error).max(Duration::from_secs(1))
                    }
                },
                _ => self.polling_timeout,
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.shared.wake.notified() => {}
                _ = modes.changed() => {}
            }
        }
        link.close().await;
    }

    async fn counted_turn(&self, link: &mut Link, unsure: &mut bool) -> Result<Turn, Error> {
        let turned = self.turn(link, unsure).await;
        if turned.is_ok() {
            self.shared.set_advancing(false);
        }
        self.shared.sent(link.take_statements());
        turned
    }

    /// Claims a batch and advances it.
    ///
    /// A turn that failed may have left branches claimed: its connection went away between the
    /// claim and the advance, or with the answer to either. We live, so our heartbeat would
    /// extend their leases for ever and no reaper would take them; between two turns we hold
    /// nothing, so whatever is there is given back (`unsure` says that there may be).
    async fn turn(&self, link: &mut Link, unsure: &mut bool) -> Result<Turn, Error> {
        let n = (self.count as usize).max(1) * BRANCHES_PER_COUNT;
        let (conn, me) = link.claiming(self.shared.process()).await?;
        if *unsure {
            process::fence_earlier(conn, me).await?;
            let left = advance::held(conn, me.process).await?;
            if !left.is_empty() {
                advance::give_back(conn, &left, GiveBack::Released).await?;
            }
        }
        *unsure = true;
        let wait = match advance::next_ready(conn).await? {
            Some(wait) if wait <= 0 => None,
            Some(wait) => Some(Duration::from_micros(wait as u64)),
            None => Some(self.polling_timeout),
        };
        if let Some(wait) = wait {
            return Ok(Turn::Wait(wait.min(spread(self.polling_timeout))));
        }
        let lease = self.policy.lease();
        // From here until a turn has gone well there may be leases to extend.
        self.shared.set_advancing(true);
        let claimed = match advance::claim(conn, me, self.pipelines.as_deref(), n, lease).await? {
            BranchClaim::Taken(claimed) => claimed,
            BranchClaim::Dead => {
                self.shared.check.notify_one();
                return Ok(Turn::Wait(Duration::from_millis(100)));
            }
        };
        if claimed.is_empty() {
            return Ok(Turn::Wait(spread(self.polling_timeout)));
        }
        self.advance(link, &claimed).await?;
        Ok(Turn::More)
    }

    /// Advances a batch; when it fails, each branch alone, so that one bad branch spends its own
    /// retries and nobody else's.
    async fn advance(&self, link: &mut Link, claimed: &[ClaimedBranch]) -> Result<(), Error> {
        let mut claimed = claimed.to_vec();
        while !claimed.is_empty() {
            match self.attempt(link, &claimed).await {
                Ok(advanced) => {
                    self.advanced(&advanced);
                    claimed = advanced.left;
                }
                Err(error) if error.is_unavailable() => return Err(error),
                Err(error) if claimed.len() == 1 => {
                    return self.errored(link, &claimed, &error).await;
                }
                Err(_) => return self.one_by_one(link, &claimed).await,
            }
            self.shared.progress();
        }
        Ok(())
    }

    async fn one_by_one(&self, link: &mut Link, claimed: &[ClaimedBranch]) -> Result<(), Error> {
        for branch in claimed {
            let alone = std::slice::from_ref(branch);
            match self.attempt(link, alone).await {
                Ok(advanced) => self.advanced(&advanced),
                Err(error) if error.is_unavailable() => return Err(error),
                Err(error) => self.errored(link, alone, &error).await?,
            }
        }
        Ok(())
    }

    async fn attempt(&self, link: &mut Link, claimed: &[ClaimedBranch]) -> Result<Advanced, Error> {
        let max_payload = self.policy.max_payload("");
        let limits = |pipeline: &str| self.policy.advance(pipeline);
        let conn = link.get().await?;
        advance::advance(conn, claimed, max_payload, &limits, &self.definitions).await
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

    async fn errored(
        &self,
        link: &mut Link,
        claimed: &[ClaimedBranch],
        error: &Error,
    ) -> Result<(), Error> {
        events::advance_errored(claimed[0].id, error);
        let message = crate::telemetry::chain(error);
        let why = GiveBack::Errored {
            class: "advance_failed",
            message: &message,
            delay: spread(Duration::from_secs(1)),
        };
        advance::give_back(link.get().await?, claimed, why).await
    }
}

enum Turn {
    More,
    Wait(Duration),
}
