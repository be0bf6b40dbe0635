//! A worker: claims, commits what has run, and reads back what it is not sure of.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::{Cx, Held, Told, Unsure, WAITS, Worker, asked, holds, step_limits};
use crate::machine::outcome::{self, Ending, ExecutionView, Verdict};
use crate::model::*;
use crate::store::claim::{self, Claim, Claimed};
use crate::store::commit::{self, Committer, Finished, StoredError};
use crate::store::explorer::flows::{self, LEASE};
use crate::store::explorer::local::tripped;
use crate::store::{Conn, Error, process};

impl Worker {
    pub(super) async fn act(&mut self, verb: u8, cx: &mut Cx<'_>) -> Result<(), Error> {
        match verb {
            b'r' => {
                // What it still holds has run: it commits it, as whoever it is by then.
                self.life.register(Role::Worker, cx).await
            }
            b'b' => {
                let holds = !self.held.is_empty();
                if let Some(ours) = self.life.beat(holds, cx).await?.filter(|_| holds) {
                    for held in &mut self.held {
                        held.cancelled |= !ours.contains(&held.claimed.execution_id);
                    }
                }
                Ok(())
            }
            b'c' => {
                let (process, n) = (self.life.process(), self.slots - self.held.len());
                let me = self.life.claimant();
                let waits = asked(cx.conn, &WAITS, process).await?;
                let claim =
                    async |conn: &mut Conn| claim::claim(conn, me, flows::PIPELINE, n, LEASE).await;
                match cx.told(claim).await? {
                    Told::Done(Claim::Taken(claimed)) => {
                        let early = |claimed: &Claimed| waits.contains(&claimed.execution_id.0);
                        if claimed.iter().any(early) {
                            return Err(tripped("a step is claimed before its wait is over"));
                        }
                        self.hold(claimed);
                    }
                    Told::Done(Claim::Dead) => self.life.check = true,
                    Told::Lost => {
                        self.life.epoch += 1;
                        self.unsure = Unsure::Landed;
                    }
                    Told::Cut => self.life.epoch += 1,
                    Told::Refused => {}
                }
                Ok(())
            }
            b'd' => self.commit(self.held.len(), cx).await,
            b'e' => self.commit(1, cx).await,
            b'p' => {
                let me = self.life.claimant();
                let ids: Vec<_> = self
                    .held
                    .iter()
                    .map(|held| held.claimed.execution_id)
                    .collect();
                let back =
                    async |conn: &mut Conn| claim::put_back(conn, me, flows::PIPELINE, &ids).await;
                // It withdraws what waits before it asks; if that fails it reads back.
                self.held.clear();
                if !matches!(cx.told(back).await?, Told::Done(_)) {
                    self.life.epoch += 1;
                    self.unsure = Unsure::Landed;
                }
                Ok(())
            }
            b'u' => {
                let finished = self.finished(self.held.len(), cx).await?;
                process::fence_earlier(cx.conn, self.life.claimant()).await?;
                let landed = commit::landed(cx.conn, &finished, self.life.process()).await?;
                self.held
                    .retain(|held| !landed.contains(&held.claimed.execution_id));
                self.unsure = Unsure::Held;
                Ok(())
            }
            b'v' => {
                let process = self.life.process();
                let held = claim::held(cx.conn, process).await?;
                let said = held.iter().map(|claimed| claimed.execution_id.0).collect();
                holds(cx.conn, process, said).await?;
                self.hold(held);
                self.unsure = Unsure::No;
                Ok(())
            }
            verb => unreachable!("a worker does not {verb}"),
        }
    }

    /// Takes up what is not known yet.
    fn hold(&mut self, claimed: Vec<Claimed>) {
        for claimed in claimed {
            let id = claimed.execution_id;
            if self.held.iter().all(|held| held.claimed.execution_id != id) {
                self.held.push(Held {
                    claimed: Arc::new(claimed),
                    cancelled: false,
                });
            }
        }
    }

    async fn commit(&mut self, n: usize, cx: &mut Cx<'_>) -> Result<(), Error> {
        let finished = self.finished(n, cx).await?;
        let committer = Committer {
            claimant: self.life.claimant(),
            pipeline: flows::PIPELINE,
            lease: LEASE,
            room: if self.leases { self.slots } else { 0 },
        };
        let commit = async |conn: &mut Conn| commit::commit(conn, &finished, committer).await;
        match cx.told(commit).await? {
            Told::Done(committed) => {
                self.held.drain(..n);
                self.life.check |= committed.dead;
                self.hold(committed.born);
            }
            Told::Lost => {
                self.life.epoch += 1;
                self.unsure = Unsure::Landed;
            }
            Told::Cut => self.life.epoch += 1,
            Told::Refused => {}
        }
        Ok(())
    }

    async fn finished(&self, n: usize, cx: &mut Cx<'_>) -> Result<Vec<Finished>, Error> {
        let mut finished = Vec::with_capacity(n);
        for held in &self.held[..n] {
            finished.push(ended(&held.claimed, held.cancelled, cx).await?);
        }
        Ok(finished)
    }
}

/// An execution that has run.
async fn ended(
    claimed: &Arc<Claimed>,
    cancelled: bool,
    cx: &mut Cx<'_>,
) -> Result<Finished, Error> {
    let definition = cx.definitions.load(cx.conn, &claimed.definition).await?;
    let view = ExecutionView {
        retry_count: claimed.retry_count,
        crash_count: claimed.crash_count,
    };
    let output = flows::run(&claimed.step, claimed.input.get(), claimed.retry_count);
    let (ending, output) = match output {
        _ if cancelled => (Ending::Cancelled, None),
        Some(text) => {
            let output = RawValue::from_string(text).expect("outputs are JSON");
            (Ending::Success, Some(output))
        }
        None => {
            let ending = Ending::Error {
                retryable: true,
                retry_after: None,
            };
            (ending, None)
        }
    };
    let limits = step_limits(&definition, &claimed.step);
    let verdict = outcome::decide(view, ending, &limits, 0.5);
    debug_assert!(verdict != Verdict::Drop || cancelled);
    Ok(Finished {
        claimed: Arc::clone(claimed),
        definition,
        ending,
        verdict,
        error: output.is_none().then(|| StoredError {
            class: "Said".to_owned(),
            message: "no".to_owned(),
            backtrace: None,
        }),
        output,
    })
}
