//! The stage of a drill and its players: processes that do one thing at a time, on command.
//!
//! Owns: the trace, which records each call of an actor with its answer. Never: decides what happens next
//! (`races` does), or how a call is made (`engine::actor`).

use std::cell::RefCell;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use crate::definition::Definition;
use crate::engine::actor::{self, Actor};
use crate::model::*;
use crate::store::advance::{BranchClaim, ClaimedBranch};
use crate::store::claim::{Claim, Claimed};
use crate::store::commit::{self, Committed, Ended, Finished};
use crate::store::process;
use crate::store::query::{self, ExecutionRow, RunDetail};
use crate::store::recovery::Death;
use crate::store::{Conn, Location, Purpose};

use super::{Error, Event};

/// Longer than any drill: a player here loses a claim to another player, never to time.
const LEASE: Duration = Duration::from_secs(3_600);

/// The pipeline of all drills.
pub(super) const PIPELINE: &str = "Drill";

/// The place where a drill is played, and its record.
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

    /// Records an action.
    pub(super) fn did(&self, actor: &'static str, what: impl Into<String>) {
        self.note(actor, what.into(), false);
    }

    /// Records a refused action.
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

    /// All recorded events.
    pub(super) fn events(self) -> Vec<Event> {
        self.events.into_inner()
    }

    /// A connection that belongs to no player of the drill.
    pub(super) async fn connect(&self) -> Result<Conn, Error> {
        Ok(self.location.connect(Purpose::Engine).await?)
    }

    /// A process that has just registered.
    pub(super) async fn player(&self, name: &'static str) -> Result<Player<'_>, Error> {
        let conn = self.connect().await?;
        let mut actor = Actor::register(conn, "drill", LEASE).await?;
        actor.limits = actor::limits(0, 3);
        self.did(name, "registers");
        Ok(Player {
            stage: self,
            name,
            actor,
        })
    }
}

/// A player.
pub(super) struct Player<'a> {
    stage: &'a Stage,
    pub(super) name: &'static str,
    pub(super) actor: Actor,
}

impl Player<'_> {
    /// Starts a run.
    pub(super) async fn trigger(&mut self, definition: &Definition) -> Result<RunId, Error> {
        let run = self.actor.trigger(definition, "1").await?;
        self.stage
            .did(self.name, format!("triggers run {}", short(run)));
        Ok(run)
    }

    /// Claims at most `n` of the due executions.
    async fn claim(&mut self, n: usize) -> Result<Vec<Claimed>, Error> {
        match self.actor.claim(PIPELINE, n).await? {
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
        let output = RawValue::from_string(output.to_owned());
        let output = output.map_err(|error| Error::Broken(error.to_string()))?;
        Ok(self.actor.finish(claimed, Ended::success(output)).await?)
    }

    /// Commits results.
    pub(super) async fn commit(&mut self, finished: &[Finished]) -> Result<Committed, Error> {
        let committed = self.commit_unseen(finished).await?;
        for row in finished {
            let id = row.claimed.execution_id;
            let (execution, step) = (short(id), &row.claimed.node);
            let output = row.ended.output.as_deref();
            let output = output.map_or("nothing", |output| output.get());
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

    /// The same, but nobody sees the answer.
    pub(super) async fn commit_unseen(
        &mut self,
        finished: &[Finished],
    ) -> Result<Committed, Error> {
        Ok(self.actor.commit(finished).await?)
    }

    /// After a lost answer: the number of these results that are in the database.
    pub(super) async fn landed(&mut self, finished: &[Finished]) -> Result<usize, Error> {
        let (conn, me) = (&mut self.actor.conn, self.actor.process);
        let landed = commit::landed(conn, finished, me).await?.len();
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
        match self.actor.claim_branches(100).await? {
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

    /// Advances branches; returns their number.
    pub(super) async fn advance(&mut self, claimed: &[ClaimedBranch]) -> Result<usize, Error> {
        let advanced = self.actor.advance(claimed).await?;
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

    /// The heartbeat of a process, as this one sees it now.
    pub(super) async fn look_at(&mut self, other: ProcessId) -> Result<i64, Error> {
        let rows = process::processes(&mut self.actor.conn).await?;
        let row = rows.iter().find(|row| row.id == other);
        let beat = row.map(|row| row.beat_seq);
        beat.ok_or_else(|| Error::Broken("a process has no row before it was declared dead".into()))
    }

    /// Takes a process's work from it, if it is dead; true if this player took it.
    pub(super) async fn recover(
        &mut self,
        other: (&'static str, ProcessId),
        death: Death<'_>,
    ) -> Result<bool, Error> {
        let recovered = self.actor.recover(other.1, death).await?;
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

    /// Loses its connection and its memory.
    pub(super) fn die(self) -> (&'static str, ProcessId) {
        self.stage.did(self.name, "dies");
        (self.name, self.actor.process)
    }

    /// Opens a connection in place of one that was lost.
    pub(super) async fn reconnect(&mut self) -> Result<(), Error> {
        self.actor.conn = self.stage.connect().await?;
        self.stage.did(self.name, "connects again");
        Ok(())
    }

    /// Does all the work that is left.
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

    /// The run as it is, with everything that it has become.
    pub(super) async fn read(&mut self, run: RunId) -> Result<RunDetail, Error> {
        let detail = query::show(&mut self.actor.conn, run, usize::MAX, usize::MAX).await?;
        detail.ok_or_else(|| Error::Broken("the run is gone".to_owned()))
    }
}

/// The end of an id: its random part, which tells two ids apart.
fn short(id: impl std::fmt::Display) -> String {
    let text = id.to_string();
    text[text.len().saturating_sub(6)..].to_owned()
}

/// All attempts at a node's steps, oldest first.
pub(super) fn attempts<'a>(detail: &'a RunDetail, node: &str) -> Vec<&'a ExecutionRow> {
    let steps = detail.steps.iter().filter(|step| step.node == node);
    steps.flat_map(|step| &step.executions).collect()
}
