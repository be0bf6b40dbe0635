//! Those who play a drill: processes with a row and a connection of their own, that do one thing
//! at a time, when they are told to.
//!
//! Owns: the calls that an engine would make, each told in the trace as it is answered. Never:
//! decides what happens next (`races` does).

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use crate::definition::{Backoff, Definition};
use crate::machine::advance::AdvanceLimits;
use crate::machine::outcome::StepLimits;
use crate::model::*;
use crate::store::advance::{self, BranchClaim, ClaimedBranch};
use crate::store::claim::{self, Claim, Claimed};
use crate::store::commit::{self, Committed, Committer, Ended, Finished};
use crate::store::definition::{Definitions, LeftOut};
use crate::store::process::{self, Claimant, Death, NewProcess};
use crate::store::query::{self, ExecutionRow, RunDetail};
use crate::store::trigger::{self, NewRun};
use crate::store::{Conn, Location, Purpose};

use super::{Error, Event};

/// Longer than any drill: whoever loses a claim here loses it to somebody, never to time.
const LEASE: Duration = Duration::from_secs(3_600);

/// The pipeline of all drills.
pub(super) const PIPELINE: &str = "Drill";

const MAX_PAYLOAD: usize = 1 << 20;

/// Where a drill is played, and what has been seen of it.
pub(super) struct Stage {
    location: Location,
    began: Instant,
    events: RefCell<Vec<Event>>,
}

impl Stage {
    pub(super) fn new(location: Location) -> Self {
        Self {
            location,
            began: Instant::now(),
            events: RefCell::default(),
        }
    }

    /// Notes what somebody did.
    pub(super) fn did(&self, actor: &'static str, what: impl Into<String>) {
        self.note(actor, what.into(), false);
    }

    /// Notes that somebody was refused.
    pub(super) fn refused(&self, actor: &'static str, what: impl Into<String>) {
        self.note(actor, what.into(), true);
    }

    fn note(&self, actor: &'static str, what: String, refused: bool) {
        self.events.borrow_mut().push(Event {
            ms: self.began.elapsed().as_secs_f64() * 1e3,
            actor,
            what,
            refused,
        });
    }

    /// All that was noted.
    pub(super) fn events(self) -> Vec<Event> {
        self.events.into_inner()
    }

    /// A connection that belongs to nobody in the drill.
    pub(super) async fn connect(&self) -> Result<Conn, Error> {
        Ok(self.location.connect(Purpose::Engine).await?)
    }

    /// A process that has just registered.
    pub(super) async fn actor(&self, name: &'static str) -> Result<Actor<'_>, Error> {
        let mut conn = self.connect().await?;
        let process = ProcessId::new();
        let row = NewProcess {
            id: process,
            supervisor: None,
            role: Role::Worker,
            pipeline: None,
            host: "drill".to_owned(),
            boot_id: "drill".to_owned(),
            pid_namespace: "drill".to_owned(),
            pid: std::process::id(),
            pid_started_at: 0,
        };
        process::register(&mut conn, &row).await?;
        self.did(name, "registers");
        Ok(Actor {
            stage: self,
            name,
            process,
            conn,
            definitions: Definitions::default(),
        })
    }
}

/// One of them.
pub(super) struct Actor<'a> {
    stage: &'a Stage,
    pub(super) name: &'static str,
    pub(super) process: ProcessId,
    pub(super) conn: Conn,
    definitions: Definitions,
}

impl Actor<'_> {
    /// Starts a run.
    pub(super) async fn trigger(&mut self, definition: &Definition) -> Result<RunId, Error> {
        let runs = [NewRun {
            key: None,
            input: "1",
        }];
        let triggered = trigger::trigger(&mut self.conn, definition, &runs, Duration::ZERO).await?;
        let run = triggered[0].run_id;
        self.stage
            .did(self.name, format!("triggers run {}", short(run)));
        Ok(run)
    }

    /// Claims what is due, at most `n` of it.
    async fn claim(&mut self, n: usize) -> Result<Vec<Claimed>, Error> {
        let me = Claimant::new(self.process);
        match claim::claim(&mut self.conn, me, PIPELINE, n, LEASE).await? {
            Claim::Taken(taken) => {
                for claimed in &taken {
                    self.report_claim("claims", claimed);
                }
                Ok(taken)
            }
            Claim::Dead => {
                self.stage
                    .refused(self.name, "claims: refused, it was declared dead");
                Ok(Vec::new())
            }
            Claim::Paused => {
                self.stage
                    .refused(self.name, "claims: refused, the pipeline is paused");
                Ok(Vec::new())
            }
        }
    }

    /// Claims one execution, which must be due.
    pub(super) async fn claim_one(&mut self) -> Result<Claimed, Error> {
        let claimed = self.claim(1).await?.pop();
        claimed.ok_or_else(|| Error::Broken(format!("{} found nothing due", self.name)))
    }

    fn report_claim(&self, how: &str, claimed: &Claimed) {
        let (step, attempt) = (&claimed.node, claimed.attempt);
        let execution = short(claimed.execution_id);
        self.stage.did(
            self.name,
            format!("{how} {step}, attempt {attempt} (execution {execution})"),
        );
    }

    /// The result to commit for an execution that returned `output`.
    pub(super) async fn finish(
        &mut self,
        claimed: Claimed,
        output: &str,
    ) -> Result<Finished, Error> {
        let definition = self
            .definitions
            .load(&mut self.conn, &claimed.definition)
            .await?;
        let output = RawValue::from_string(output.to_owned());
        let output = output.map_err(|error| Error::Broken(error.to_string()))?;
        let (claimed, ended) = (Arc::new(claimed), Ended::success(output));
        Ok(Finished::new(claimed, definition, ended, &limits(), 0.5))
    }

    /// Commits results.
    pub(super) async fn commit(&mut self, finished: &[Finished]) -> Result<Committed, Error> {
        let committed = self.commit_unseen(finished).await?;
        for row in finished {
            let id = row.claimed.execution_id;
            let (execution, step) = (short(id), &row.claimed.node);
            let output = row.output.as_deref().map_or("nothing", RawValue::get);
            match committed.stale.contains(&id) {
                true => self.stage.refused(
                    self.name,
                    format!("commits {output} for {step}: refused, execution {execution} is not open and its own any more"),
                ),
                false => self
                    .stage
                    .did(self.name, format!("commits {output} for {step} (execution {execution})")),
            }
        }
        for claimed in &committed.leased_next {
            self.report_claim("holds", claimed);
        }
        Ok(committed)
    }

    /// The same, and the answer is seen by nobody.
    pub(super) async fn commit_unseen(
        &mut self,
        finished: &[Finished],
    ) -> Result<Committed, Error> {
        let committer = Committer {
            claimant: Claimant::new(self.process),
            pipeline: PIPELINE,
            lease: LEASE,
            room: 0,
        };
        Ok(commit::commit(&mut self.conn, finished, committer).await?)
    }

    /// After an answer that was lost: which of these results are in the database.
    pub(super) async fn landed(&mut self, finished: &[Finished]) -> Result<usize, Error> {
        let landed = commit::landed(&mut self.conn, finished, self.process)
            .await?
            .len();
        self.stage.did(
            self.name,
            format!(
                "reads back: {landed} of {} results had been committed",
                finished.len()
            ),
        );
        Ok(landed)
    }

    /// Claims the branches that are ready.
    pub(super) async fn claim_branches(&mut self) -> Result<Vec<ClaimedBranch>, Error> {
        let me = Claimant::new(self.process);
        match advance::claim(&mut self.conn, me, None, 100, LEASE, &LeftOut::default()).await? {
            BranchClaim::Taken(taken) => {
                for branch in &taken {
                    let (id, token) = (short(branch.id), short(branch.token));
                    self.stage
                        .did(self.name, format!("claims branch {id} with token {token}"));
                }
                Ok(taken)
            }
            BranchClaim::Dead => {
                self.stage
                    .refused(self.name, "claims branches: refused, it was declared dead");
                Ok(Vec::new())
            }
        }
    }

    /// Advances branches; how many of them.
    pub(super) async fn advance(&mut self, claimed: &[ClaimedBranch]) -> Result<usize, Error> {
        let limits = |_: &str| AdvanceLimits {
            max_retry: 0,
            max_crash: 3,
            max_fan_out: None,
            max_payload: MAX_PAYLOAD,
        };
        let (conn, definitions) = (&mut self.conn, &self.definitions);
        let advanced = advance::advance(conn, claimed, &limits, definitions).await?;
        for branch in claimed {
            let (id, token) = (short(branch.id), short(branch.token));
            match advanced.stale.contains(&branch.id) {
                true => self.stage.refused(
                    self.name,
                    format!(
                        "advances branch {id}: refused, token {token} is not the branch's any more"
                    ),
                ),
                false => self.stage.did(
                    self.name,
                    format!("advances branch {id} with token {token}"),
                ),
            }
        }
        Ok(advanced.moved)
    }

    /// The heartbeat of a process as this one sees it now.
    pub(super) async fn look_at(&mut self, other: ProcessId) -> Result<i64, Error> {
        let rows = process::processes(&mut self.conn).await?;
        let row = rows.iter().find(|row| row.id == other);
        let beat = row.map(|row| row.beat_seq);
        beat.ok_or_else(|| Error::Broken("a process has no row before it was declared dead".into()))
    }

    /// Takes from a process what it holds, if it is dead; true when it was this one who did.
    pub(super) async fn recover(
        &mut self,
        other: (&'static str, ProcessId),
        death: Death<'_>,
    ) -> Result<bool, Error> {
        let limits = |_: &Definition, _: &str| limits();
        let (conn, definitions) = (&mut self.conn, &self.definitions);
        let recovered = process::recover(conn, other.1, death, &limits, definitions).await?;
        let (name, other) = (self.name, other.0);
        match recovered.removed {
            true => self.stage.did(
                name,
                format!(
                    "declares {other} dead; to be claimed again: executions {}, branches {}",
                    recovered.again, recovered.branches
                ),
            ),
            false => self.stage.refused(
                name,
                format!("declares {other} dead: refused, somebody did before, or it lives"),
            ),
        }
        Ok(recovered.removed)
    }

    /// Loses its connection and whatever it had in mind.
    pub(super) fn die(self) -> (&'static str, ProcessId) {
        self.stage.did(self.name, "dies");
        (self.name, self.process)
    }

    /// Opens a connection in place of one that was lost.
    pub(super) async fn reconnect(&mut self) -> Result<(), Error> {
        self.conn = self.stage.connect().await?;
        self.stage.did(self.name, "connects again");
        Ok(())
    }

    /// Does all that is left to do.
    pub(super) async fn work(&mut self) -> Result<(), Error> {
        loop {
            let claimed = self.claim(100).await?;
            let branches = self.claim_branches().await?;
            if claimed.is_empty() && branches.is_empty() {
                return Ok(());
            }
            for claimed in claimed {
                let output = format!("\"{}\"", claimed.node);
                let finished = [self.finish(claimed, &output).await?];
                self.commit(&finished).await?;
            }
            if !branches.is_empty() {
                self.advance(&branches).await?;
            }
        }
    }

    /// The run as it is; all that was made of it.
    pub(super) async fn read(&mut self, run: RunId) -> Result<RunDetail, Error> {
        let detail = query::show(&mut self.conn, run, None).await?;
        detail.ok_or_else(|| Error::Broken("the run is gone".to_owned()))
    }
}

/// Budgets without waits.
fn limits() -> StepLimits {
    StepLimits {
        max_retry: 0,
        max_crash: 3,
        backoff: Backoff {
            initial: Duration::ZERO,
            factor: 1.0,
            max: Duration::ZERO,
            jitter: 0.0,
        },
    }
}

/// The end of an id: its random part, which is what tells two apart.
fn short(id: impl std::fmt::Display) -> String {
    let text = id.to_string();
    text[text.len().saturating_sub(6)..].to_owned()
}

/// All attempts at a node's steps, oldest first.
pub(super) fn attempts<'a>(detail: &'a RunDetail, node: &str) -> Vec<&'a ExecutionRow> {
    let steps = detail.steps.iter().filter(|step| step.node == node);
    steps.flat_map(|step| &step.executions).collect()
}
