//! A worker: the daemon's own operations, and steps that end on request.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::{Cx, Held, WAITS, Worker, asked, holds, step_limits};
use crate::engine::worker_state::{Answer, Operation, Terms, WorkerState};
use crate::explorer::canon::Canon;
use crate::explorer::flows::{self, LEASE};
use crate::explorer::local::tripped;
use crate::machine::outcome::{Ending, Verdict};
use crate::model::*;
use crate::store::claim::{Claim, Claimed};
use crate::store::commit::{Ended, Finished};
use crate::store::cursor::Cursor;
use crate::store::{Conn, Error, pause};

impl Worker {
    /// The letters of its possible next moves.
    pub(super) fn verbs(&self, verbs: &mut Vec<u8>) {
        match self.executions.first() {
            Some(Operation::ReadLanded) => return verbs.push(b'u'),
            Some(_) => return verbs.push(b'v'),
            None => {}
        }
        if !self.back.is_empty() {
            return verbs.push(b'p');
        }
        if self.held() < self.slots {
            verbs.push(b'c');
        }
        let aside = self.executions.aside().len();
        if self.held() > aside {
            verbs.push(b'd');
        }
        if self.held() > aside + 1 {
            verbs.push(b'e');
        }
        if self.sets_aside && aside == 0 && self.held() > 0 {
            verbs.push(b'h');
        }
        if aside > 0 {
            verbs.push(b's');
        }
        if self.puts_back && !self.running.is_empty() {
            verbs.push(b'p');
        }
    }

    fn held(&self) -> usize {
        let results = self.executions.finished().len() + self.executions.aside().len();
        self.running.len() + results
    }

    pub(super) async fn act(&mut self, verb: u8, cx: &mut Cx<'_>) -> Result<(), Error> {
        let operation = match verb {
            // Executions that it still holds go on: it commits them, under its new identity.
            b'r' => return self.life.register(Role::Worker, cx).await,
            b'b' => return self.beat(cx).await,
            b'c' => Operation::Claim {
                behind: Cursor::FIRST,
                room: self.slots - self.held(),
            },
            b'd' => {
                self.end(self.running.len(), cx).await?;
                self.commit(self.executions.batch())
            }
            b'e' => {
                let none = self.executions.finished().is_empty();
                self.end(usize::from(none), cx).await?;
                self.commit(1)
            }
            // Somebody has locked a row of the first result, whether it was sent before or not.
            b'h' => {
                if self.executions.finished().is_empty() {
                    self.end(1, cx).await?;
                }
                let id = self.executions.finished()[0].claimed.execution_id;
                self.executions.set_aside(&HashSet::from([id]));
                return Ok(());
            }
            b's' => {
                self.executions.set_aside(&HashSet::new());
                self.commit(self.executions.batch())
            }
            b'p' if !self.back.is_empty() => {
                Operation::PutBack(std::mem::take(&mut self.back), Duration::ZERO)
            }
            b'p' => {
                let withdrawn = self.running.drain(..);
                let withdrawn = withdrawn.map(|held| held.claimed.execution_id);
                Operation::PutBack(withdrawn.collect(), Duration::ZERO)
            }
            b'u' | b'v' => self.executions.first().expect("it is not sure"),
            verb => unreachable!("a worker does not {verb}"),
        };
        self.perform(&operation, cx).await
    }

    fn commit(&self, batch: usize) -> Operation {
        let room = match self.leases && !self.executions.is_paused() {
            true => self.slots,
            false => 0,
        };
        Operation::Commit { batch, room }
    }

    async fn beat(&mut self, cx: &mut Cx<'_>) -> Result<(), Error> {
        let holds = !self.running.is_empty() || self.executions.may_hold();
        let ours = self.life.beat(holds, cx).await?;
        if ours.is_some() {
            self.executions.hear(self.life.paused);
        }
        if let Some(ours) = ours.filter(|_| holds) {
            for held in &mut self.running {
                held.cancelled |= !ours.contains(&held.claimed.execution_id);
            }
        }
        Ok(())
    }

    async fn perform(&mut self, operation: &Operation, cx: &mut Cx<'_>) -> Result<(), Error> {
        let me = self.life.claimant();
        let terms = Terms {
            pipeline: flows::PIPELINE,
            lease: LEASE,
            left_out: &cx.definitions.left_out(),
        };
        let waits = match operation {
            Operation::Claim { .. } => asked(cx.conn, &WAITS, me.process).await?,
            _ => Vec::new(),
        };
        let executions = &self.executions;
        let done = async |conn: &mut Conn| executions.perform(operation, conn, me, terms).await;
        let answer = cx.outcome(done).await?;
        if let Ok(Answer::Held(held)) = &answer {
            let said = held
                .whole
                .iter()
                .map(|claimed| claimed.execution_id.0)
                .collect();
            holds(cx.conn, me.process, said).await?;
        }
        match self.executions.settle(operation, answer) {
            Ok(Some(Answer::Claimed(Claim::Taken(claimed), ..))) => {
                let early = |claimed: &Claimed| waits.contains(&claimed.execution_id.0);
                if claimed.iter().any(early) {
                    return Err(tripped("a step is claimed before its wait is over"));
                }
                let paused = pause::of_pipeline(cx.conn, flows::PIPELINE).await?;
                if paused.is_some() && !claimed.is_empty() {
                    return Err(tripped("a step is claimed while its pipeline is paused"));
                }
                self.begin(claimed);
            }
            Ok(Some(Answer::Claimed(Claim::Dead, ..))) => self.life.check = true,
            Ok(Some(Answer::Committed(committed))) => {
                self.life.check |= committed.dead;
                self.begin(committed.leased_next);
            }
            Ok(Some(Answer::Held(held))) => self.begin(held.whole),
            Ok(_) => {}
            Err(_) => self.life.epoch += 1,
        }
        Ok(())
    }

    /// Begins the executions that do not run yet.
    fn begin(&mut self, claimed: Vec<Claimed>) {
        for claimed in claimed {
            let id = claimed.execution_id;
            let mut running = self.running.iter();
            if running.any(|held| held.claimed.execution_id == id) {
                continue;
            }
            if self.executions.is_paused() {
                self.back.push(id);
            } else {
                self.running.push(Held {
                    claimed: Arc::new(claimed),
                    cancelled: false,
                });
            }
        }
    }

    /// Ends the first `n` of the running executions.
    async fn end(&mut self, n: usize, cx: &mut Cx<'_>) -> Result<(), Error> {
        for held in self.running.drain(..n) {
            self.executions.finish(ended(held, cx).await?);
        }
        Ok(())
    }

    pub(super) fn crash(&mut self) {
        self.running.clear();
        self.back.clear();
        self.executions = WorkerState::default();
    }

    pub(super) fn write(&self, to: &mut Canon) {
        let [batch, lost, doubt, paused] = self.executions.memory();
        // A batch of everything that it can hold and a larger batch are the same.
        to.number(batch.min(self.slots as i64));
        to.number(lost);
        to.number(doubt);
        to.number(paused);
        for held in &self.running {
            to.id(held.claimed.execution_id.0.as_u128());
            to.number(i64::from(held.cancelled));
        }
        to.number(-1);
        for id in &self.back {
            to.id(id.0.as_u128());
        }
        to.number(-1);
        for results in [self.executions.finished(), self.executions.aside()] {
            for finished in results {
                to.id(finished.claimed.execution_id.0.as_u128());
                to.number(i64::from(finished.ended.ending == Ending::Cancelled));
            }
            to.number(-1);
        }
    }
}

/// An execution that has run.
async fn ended(held: Held, cx: &mut Cx<'_>) -> Result<Finished, Error> {
    let Held { claimed, cancelled } = held;
    let definition = cx.definitions.load(cx.conn, &claimed.definition).await?;
    let ended = match flows::run(&claimed.step, claimed.input.get(), claimed.retry_count) {
        _ if cancelled => Ended::without_value(Ending::Cancelled, "Said", "no"),
        Some(text) => Ended::success(RawValue::from_string(text).expect("outputs are JSON")),
        None => {
            let ending = Ending::Error {
                retryable: true,
                retry_after: None,
            };
            Ended::without_value(ending, "Said", "no")
        }
    };
    let limits = step_limits(&definition, &claimed.step);
    let finished = Finished::new(claimed, definition, ended, &limits, 0.5);
    debug_assert!(finished.verdict != Verdict::Drop || cancelled);
    Ok(finished)
}
