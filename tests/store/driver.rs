//! A tiny engine: claims, runs a pure function, commits and advances, until no work is left.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use ductwork::definition::Definition;
use ductwork::engine::actor::{self, Actor};
use ductwork::machine::outcome::Ending;
use ductwork::model::*;
use ductwork::store::advance::{self, BranchClaim, ClaimedBranch};
use ductwork::store::audit;
use ductwork::store::claim::{Claim, Claimed};
use ductwork::store::commit::{Committed, Ended, Finished};
use ductwork::store::process::{self, NewProcess};
use ductwork::store::prune;
use ductwork::store::recovery::{Death, Recovered};
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Row};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::support::Db;

/// Long enough that no test waits for it.
pub const LEASE: Duration = Duration::from_secs(600);

/// The host of all processes of a test.
const HOST: &str = "here";

/// The outcome of a step for an input.
#[derive(Clone)]
pub enum Did {
    /// The step returned this.
    Returned(Value),
    /// The step failed.
    Erred,
    /// The step failed, and said that another attempt is useless.
    Refused,
    /// The step took too long.
    TimedOut,
    /// Its process died.
    Crashed,
    /// Its worker stopped.
    Released,
}

/// A process of a test, for which every call must succeed.
pub struct Driver {
    pub actor: Actor,
    /// True if the invariants are checked after each transaction.
    pub audited: bool,
}

/// The number of advancers' deaths that halts a branch.
pub const ADVANCER_MAX_CRASH: u32 = 3;

impl Deref for Driver {
    type Target = Actor;

    fn deref(&self) -> &Actor {
        &self.actor
    }
}

impl DerefMut for Driver {
    fn deref_mut(&mut self) -> &mut Actor {
        &mut self.actor
    }
}

impl Driver {
    /// A registered process with a connection of its own.
    pub async fn new(db: &Db) -> Self {
        Self::over(db.conn().await).await
    }

    /// The same, over this connection.
    pub async fn over(conn: Conn) -> Self {
        let actor = Actor::register(conn, HOST, LEASE).await;
        let mut actor = actor.expect("a row");
        actor.advance_limits.max_retry = 2;
        actor.advance_limits.max_crash = ADVANCER_MAX_CRASH;
        Self {
            actor,
            audited: true,
        }
    }

    /// Starts one run.
    pub async fn trigger(&mut self, definition: &Definition, input: &str) -> RunId {
        let run = self.actor.trigger(definition, input).await;
        run.expect("a trigger")
    }

    /// Claims due executions.
    pub async fn claim(&mut self, pipeline: &str, n: usize) -> Vec<Claimed> {
        match self.actor.claim(pipeline, n).await {
            Ok(Claim::Taken(taken)) => taken,
            Ok(Claim::Dead) => panic!("the process was declared dead"),
            Ok(Claim::Paused) => panic!("the pipeline is paused"),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Claims ready branches.
    pub async fn claim_branches(&mut self, n: usize) -> Vec<ClaimedBranch> {
        match self.actor.claim_branches(n).await {
            Ok(BranchClaim::Taken(taken)) => taken,
            Ok(BranchClaim::Dead) => panic!("the process was declared dead"),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Claims ready branches, as soon as there is one.
    pub async fn wait_for_branches(&mut self) -> Vec<ClaimedBranch> {
        loop {
            let taken = self.claim_branches(9).await;
            if !taken.is_empty() {
                return taken;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The result to commit for an execution with this outcome.
    pub async fn finished(&mut self, claimed: Claimed, did: Did) -> Finished {
        let failed = |ending| Ended::without_value(ending, "Said", "no");
        let ended = match did {
            Did::Returned(value) => {
                Ended::success(RawValue::from_string(value.to_string()).unwrap())
            }
            Did::Erred => failed(error(true)),
            Did::Refused => failed(error(false)),
            Did::TimedOut => failed(Ending::TimedOut),
            Did::Crashed => failed(Ending::Crashed),
            Did::Released => failed(Ending::Released {
                delay: Duration::ZERO,
            }),
        };
        let finished = self.actor.finish(claimed, ended).await;
        finished.expect("the run's definition")
    }

    /// Commits results.
    pub async fn commit(&mut self, finished: &[Finished]) -> Committed {
        let committed = self.actor.commit(finished).await;
        let committed = committed.unwrap_or_else(|error| panic!("{error:?}"));
        self.audit().await;
        committed
    }

    /// Advances claimed branches.
    pub async fn advance(&mut self, claimed: &[ClaimedBranch]) -> advance::Advanced {
        let advanced = self.actor.advance(claimed).await;
        let advanced = advanced.unwrap_or_else(|error| panic!("{error:?}"));
        self.audit().await;
        advanced
    }

    /// Declares a process dead, with proof.
    pub async fn recover(&mut self, process: ProcessId) -> Recovered {
        let death = Death::Proven { how: "killed" };
        let recovered = self.actor.recover(process, death);
        let recovered = recovered.await.unwrap_or_else(|error| panic!("{error:?}"));
        self.audit().await;
        recovered
    }

    /// One round: runs everything that is due, and advances everything that is ready. False
    /// when there was nothing.
    pub async fn round(&mut self, pipeline: &str, step: &mut dyn FnMut(&Claimed) -> Did) -> bool {
        let mut claimed = self.claim(pipeline, 100).await;
        let mut worked = !claimed.is_empty();
        while !claimed.is_empty() {
            let mut finished = Vec::new();
            for claimed in claimed.drain(..) {
                let did = step(&claimed);
                finished.push(self.finished(claimed, did).await);
            }
            let committed = self.commit(&finished).await;
            assert!(!committed.dead);
            claimed = committed.leased_next;
        }
        let mut branches = self.claim_branches(100).await;
        while !branches.is_empty() {
            worked = true;
            let advanced = self.advance(&branches).await;
            assert_eq!(advanced.stale, []);
            branches = advanced.spreading;
        }
        worked
    }

    /// Works until nothing is left to do; returns the node of each step that ran.
    pub async fn work(
        &mut self,
        pipeline: &str,
        mut step: impl FnMut(&Claimed) -> Did,
    ) -> Vec<String> {
        let mut ran = Vec::new();
        let mut recorded = |claimed: &Claimed| {
            ran.push(claimed.node.clone());
            step(claimed)
        };
        while self.round(pipeline, &mut recorded).await {}
        ran
    }

    /// Deletes all runs that are over, so that the next audit is quick.
    pub async fn forget(&mut self) {
        let pruned = prune::prune(&mut self.conn, Duration::ZERO, u64::MAX).await;
        assert!(pruned.expect("a prune") > 0);
    }

    /// Checks every invariant, unless the test checks them itself.
    pub async fn audit(&mut self) {
        if self.audited {
            audit(&mut self.conn).await;
        }
    }

    /// A run's status and output.
    pub async fn run(&mut self, run: RunId) -> (RunStatus, Option<Value>) {
        static RUN: Statement = Statement::new(
            "test run",
            "SELECT status, output FROM ductwork_runs WHERE id = :run",
        );
        let args = [("run", run.0.into())];
        let row = self.conn.fetch_optional(&RUN, &args).await.unwrap();
        let row = row.expect("the run exists");
        let output: Option<String> = row.get("output").unwrap();
        let output = output.map(|text| serde_json::from_str(&text).expect("JSON"));
        (row.word("status").unwrap(), output)
    }

    /// The reasons for which branches of a run halted.
    pub async fn halt_reasons(&mut self, run: RunId) -> Vec<String> {
        static REASONS: Statement = Statement::new(
            "test halt reasons",
            "SELECT halt_reason FROM ductwork_branches
              WHERE run_id = :run AND halt_reason IS NOT NULL ORDER BY halt_reason",
        );
        let rows = self.rows(&REASONS, &[("run", run.0.into())]).await;
        rows.iter()
            .map(|row| row.get("halt_reason").unwrap())
            .collect()
    }

    pub async fn rows(
        &mut self,
        statement: &'static Statement,
        args: ductwork::store::statement::Args<'_>,
    ) -> Vec<Row> {
        self.conn.fetch(statement, args).await.unwrap()
    }
}

fn error(retryable: bool) -> Ending {
    Ending::Error {
        retryable,
        retry_after: None,
    }
}

/// A process row, as if this process had just started.
pub async fn register(conn: &mut Conn) -> ProcessId {
    let process = process_of(None);
    process::register(conn, &process).await.expect("a row");
    process.id
}

/// A worker of a pipeline, to be registered.
pub fn process_of(pipeline: Option<&str>) -> NewProcess {
    actor::process_of(HOST, pipeline)
}

/// The input of a step.
pub fn input(claimed: &Claimed) -> Value {
    serde_json::from_str(claimed.input.get()).expect("JSON")
}

/// Panics with all violations, unless every invariant holds.
pub async fn audit(conn: &mut Conn) {
    let broken = audit::audit(conn, audit::GRACE).await;
    assert_eq!(broken.expect("the audit can be asked"), []);
}

/// Runs all of them at once, in a body of `on_every_database`; returns their values, in order.
pub async fn together<T: 'static, F: Future<Output = T> + 'static>(
    all: impl IntoIterator<Item = F>,
) -> Vec<T> {
    let tasks: Vec<_> = all.into_iter().map(tokio::task::spawn_local).collect();
    let mut values = Vec::with_capacity(tasks.len());
    for task in tasks {
        match task.await {
            Ok(value) => values.push(value),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    values
}
