//! The worker's loop: fill the free slots, run, commit what has finished together.
//!
//! Owns: the slots of one process of one pipeline, and the batches of its results. One
//! claimer and one committer for all slots: a commit takes whatever has finished while the
//! last one was in flight, and fetches new work in the same transaction.
//! Never: decides what an ending costs (`machine::outcome`), writes (`store::commit`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::definition::Definition;
use crate::machine::outcome::{self, Ending, ExecutionView};
use crate::model::{ExecutionId, ExecutionResult};
use crate::step::{Assignment, Outcome};
use crate::store::claim::{self, Claim, Claimed};
use crate::store::commit::{self, Committed, Finished, NOT_STARTED_DELAY, Room, StoredError};
use crate::store::crossing::Mover;
use crate::store::definition::Definitions;
use crate::store::process::Counters;
use crate::store::{Conn, Error, Location};
use crate::telemetry::events;

use super::perform::Performer;
use super::shared::{Mode, Shared};
use super::{Link, Policy, Ring, chance, spread};

/// Results per transaction: a bound on how much one refused commit has to take apart.
const BATCH_MAX: usize = 500;

/// How long a worker that is to end tries to store its last results when the database is away.
/// Then it ends without: its claims are recovered, and the steps run again.
const LAST_COMMIT: Duration = Duration::from_secs(5);

/// The loop of one worker process.
pub struct Worker {
    /// Where to connect.
    pub location: Location,
    /// Whose jobs it works.
    pub pipeline: String,
    /// Limits.
    pub policy: Policy,
    /// What the process's tasks share.
    pub shared: Arc<Shared>,
    /// Definitions met so far.
    pub definitions: Arc<Definitions>,
    /// Runs the steps.
    pub performer: Arc<Performer>,
    /// Rings the others.
    pub ring: Arc<dyn Ring>,
}

/// The loop's own state.
struct Loop {
    link: Link,
    slots: usize,
    running: HashMap<ExecutionId, Job>,
    finished: Vec<Finished>,
    /// The last fetch was full, or somebody rang: ask the queue without asking whether it is due.
    eager: bool,
    /// A transaction's fate is unknown: what it claimed for us has to be read back.
    unsure: bool,
    ended: mpsc::UnboundedSender<(ExecutionId, Outcome)>,
    ends: mpsc::UnboundedReceiver<(ExecutionId, Outcome)>,
}

struct Job {
    claimed: Arc<Claimed>,
    definition: Arc<Definition>,
    assignment: Arc<Assignment>,
    since: Instant,
}

impl Worker {
    /// Runs until told to stop, and everything in flight is committed.
    pub async fn run(self) {
        let (ended, ends) = mpsc::unbounded_channel();
        let mut state = Loop {
            link: Link::new(self.location.clone()),
            slots: self.policy.config().job_worker.count(&self.pipeline) as usize,
            running: HashMap::new(),
            finished: Vec::new(),
            eager: true,
            unsure: false,
            ended,
            ends,
        };
        let mut modes = self.shared.modes();
        let mut stopped = false;
        loop {
            self.shared.progress();
            while let Ok((id, outcome)) = state.ends.try_recv() {
                self.finish(&mut state, id, outcome);
            }
            let mode = self.shared.mode();
            if let Mode::Drain { until, cause } = mode {
                if state.running.is_empty() && state.finished.is_empty() {
                    break;
                }
                if Instant::now() >= until && !stopped {
                    stopped = true;
                    self.shared.stop_all(cause);
                }
                if state.running.is_empty() && Instant::now() >= until + LAST_COMMIT {
                    events::results_lost(state.finished.len());
                    break;
                }
            }
            let wait = match self.turn(&mut state, mode).await {
                Ok(wait) => {
                    state.link.worked();
                    wait
                }
                Err(error) => {
                    state.eager = true;
                    match &error {
                        Error::Unavailable { in_commit, .. } => state.unsure |= in_commit,
                        // A bug or a broken database: say so, and do not spin (E14).
                        _ => events::working_failed(&error),
                    }
                    let wait = state.link.failed(&error);
                    if error.is_unavailable() {
                        wait
                    } else {
                        wait.max(Duration::from_secs(1))
                    }
                }
            };
            if wait.is_zero() {
                // Let what has finished meanwhile join the next batch.
                tokio::task::yield_now().await;
                continue;
            }
            let wait = match mode {
                Mode::Drain { until, .. } if !stopped => {
                    wait.min(until.saturating_duration_since(Instant::now()))
                }
                _ => wait,
            };
            tokio::select! {
                Some((id, outcome)) = state.ends.recv() => self.finish(&mut state, id, outcome),
                () = self.shared.wake.notified() => state.eager = true,
                _ = modes.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        state.link.close().await;
    }

    /// One round trip with the database, if there is anything to say; how long to wait then.
    async fn turn(&self, state: &mut Loop, mode: Mode) -> Result<Duration, Error> {
        let polling_timeout = self
            .policy
            .config()
            .job_worker
            .polling_timeout(&self.pipeline);
        let poll = spread(polling_timeout);
        // A process that could not beat for a whole lease may have been declared dead.
        let fresh = self.shared.since_beat() < self.policy.lease();
        let claiming = mode == Mode::Run && fresh;
        let free = state.slots.saturating_sub(state.running.len());
        if state.unsure {
            self.read_back(state).await?;
        }
        if !state.finished.is_empty() {
            return self.commit(state, claiming, free).await;
        }
        if !claiming || free == 0 {
            return Ok(poll);
        }
        let conn = state.link.get().await?;
        if !std::mem::take(&mut state.eager) {
            // One look, for those who would otherwise open a transaction to find nothing.
            match claim::next_due(conn, &self.pipeline).await? {
                Some(Duration::ZERO) => {}
                Some(wait) => return Ok(wait.min(poll)),
                None => return Ok(poll),
            }
        }
        let process = self.shared.process();
        let lease = self.policy.lease();
        match claim::claim(conn, process, &self.pipeline, free, lease).await? {
            Claim::Dead => {
                self.shared.check.notify_one();
                Ok(Duration::from_millis(100))
            }
            Claim::Taken(claimed) => {
                let full = claimed.len() == free;
                let none = claimed.is_empty();
                self.begin_all(state, claimed).await?;
                state.eager = full;
                Ok(match none {
                    // Nothing was due: when will it be?
                    true => {
                        let conn = state.link.get().await?;
                        let next = claim::next_due(conn, &self.pipeline).await?;
                        next.map_or(poll, |next| next.min(poll))
                    }
                    false => poll,
                })
            }
        }
    }

    /// Commits what has finished, and starts what came with it.
    async fn commit(
        &self,
        state: &mut Loop,
        claiming: bool,
        free: usize,
    ) -> Result<Duration, Error> {
        let batch = state.finished.len().min(BATCH_MAX);
        let mover = Mover {
            process: self.shared.process(),
            lease: self.policy.lease(),
            free_slots: if claiming { free } else { 0 },
            max_payload: self.policy.max_payload(&self.pipeline),
        };
        let room = Room {
            pipeline: &self.pipeline,
            claim: claiming && std::mem::take(&mut state.eager),
        };
        let conn = state.link.get().await?;
        let finished = &state.finished[..batch];
        let result = commit::commit(conn, finished, mover, room, &self.definitions).await;
        let committed = match result {
            Ok(committed) => committed,
            Err(error) if error.is_unavailable() || batch == 1 => {
                return self.refused(state, error);
            }
            // One result that the database refuses must not hold up the others.
            Err(_) => {
                let room = Room {
                    claim: false,
                    ..room
                };
                let mover = Mover {
                    free_slots: 0,
                    ..mover
                };
                let alone = &state.finished[..1];
                match commit::commit(conn, alone, mover, room, &self.definitions).await {
                    Ok(committed) => {
                        self.committed(state, 1, committed).await?;
                        return Ok(Duration::ZERO);
                    }
                    Err(error) => return self.refused(state, error),
                }
            }
        };
        state.eager |= committed.full;
        self.committed(state, batch, committed).await?;
        // Something finished meanwhile, or there is more to fetch: at once.
        Ok(Duration::ZERO)
    }

    /// A commit failed. When the database took no offence at anything but this one result, the
    /// result is turned into an error of its step: the work is done but cannot be stored, and
    /// without this it would be tried for ever.
    fn refused(&self, state: &mut Loop, error: Error) -> Result<Duration, Error> {
        if let Error::Refused { .. } | Error::Constraint { .. } = &error
            && let Some(finished) = state.finished.first_mut()
            && finished.output.is_some()
        {
            let message = format!(
                "its output could not be stored: {}",
                crate::telemetry::chain(&error)
            );
            finished.output = None;
            finished.error = Some(StoredError {
                class: "output_not_stored".to_owned(),
                message,
                backtrace: None,
            });
            finished.ending = Ending::Error {
                retryable: true,
                retry_after: None,
            };
            let limits = self
                .policy
                .step(&finished.definition, &finished.claimed.step);
            let view = view(&finished.claimed);
            finished.verdict = outcome::decide(view, finished.ending, &limits, chance());
        }
        Err(error)
    }

    async fn committed(
        &self,
        state: &mut Loop,
        batch: usize,
        committed: Committed,
    ) -> Result<(), Error> {
        let done: Vec<Finished> = state.finished.drain(..batch).collect();
        let mut counters = Counters {
            stale: committed.stale.len() as u64,
            ..Counters::default()
        };
        for finished in &done {
            if committed.stale.contains(&finished.claimed.execution_id) {
                if finished.ending != Ending::Cancelled {
                    events::stale_commit(finished.claimed.execution_id);
                }
                continue;
            }
            match finished.ending.result() {
                ExecutionResult::Success => counters.succeeded += 1,
                ExecutionResult::ProcessCrashed => counters.crashed += 1,
                ExecutionResult::Error | ExecutionResult::TimedOut => counters.errored += 1,
                ExecutionResult::Cancelled | ExecutionResult::Released => {}
            }
        }
        counters.advanced = (committed.crossed.leased.len() + committed.crossed.ended.len()) as u64;
        self.shared.count(counters);
        if committed.ready {
            self.ring.branches();
        }
        // Our own pipeline's new work that found no free slot here: for its other processes, and
        // for us as soon as a slot is free.
        for pipeline in &committed.crossed.available {
            if *pipeline == self.pipeline {
                state.eager = true;
            }
            self.ring.work(pipeline);
        }
        events::crossed(&committed.crossed);
        if committed.dead {
            self.shared.check.notify_one();
        }
        self.begin_all(state, committed.claimed).await
    }

    /// Starts claimed executions.
    async fn begin_all(&self, state: &mut Loop, claimed: Vec<Claimed>) -> Result<(), Error> {
        self.shared.count(Counters {
            claimed: claimed.len() as u64,
            ..Counters::default()
        });
        let mut unknown = Vec::new();
        for claimed in claimed {
            match self.definitions.get(&claimed.definition) {
                Some(definition) => self.begin(state, claimed, definition),
                None => unknown.push(claimed),
            }
        }
        for claimed in unknown {
            // If this fails the claim is still ours, and is read back when the database is.
            state.unsure = true;
            let conn = state.link.get().await?;
            let definition = self.definitions.load(conn, &claimed.definition).await?;
            state.unsure = false;
            self.begin(state, claimed, definition);
        }
        Ok(())
    }

    fn begin(&self, state: &mut Loop, claimed: Claimed, definition: Arc<Definition>) {
        let assignment = Arc::new(Assignment {
            run_id: claimed.run_id,
            pipeline: self.pipeline.clone(),
            step: claimed.step.clone(),
            step_id: claimed.step_id,
            execution_id: claimed.execution_id,
            attempt: claimed.attempt,
            input: claimed.input.clone(),
            timeout: self.policy.timeout(&definition, &claimed.step),
        });
        events::started(&assignment);
        let stop = self.shared.hold(Arc::clone(&assignment));
        let ended = state.ended.clone();
        let shared = Arc::clone(&self.shared);
        let performer = Arc::clone(&self.performer);
        let id = claimed.execution_id;
        state.running.insert(
            id,
            Job {
                claimed: Arc::new(claimed),
                definition: Arc::clone(&definition),
                assignment: Arc::clone(&assignment),
                since: Instant::now(),
            },
        );
        tokio::task::spawn_local(async move {
            let started = |pid| shared.set_pid(id, pid);
            let outcome = performer
                .perform(&definition, &assignment, stop, started)
                .await;
            // The loop ends only when everything that runs has been heard of.
            let _ = ended.send((id, outcome));
        });
    }

    /// Turns an outcome into what is to be committed.
    fn finish(&self, state: &mut Loop, id: ExecutionId, outcome: Outcome) {
        let Some(job) = state.running.remove(&id) else {
            return;
        };
        self.shared.let_go(id);
        let (ending, output, error) = ending(outcome);
        let limits = self.policy.step(&job.definition, &job.claimed.step);
        let verdict = outcome::decide(view(&job.claimed), ending, &limits, chance());
        match ending {
            Ending::Success => events::succeeded(&job.assignment, job.since.elapsed()),
            _ => {
                let next = match verdict {
                    outcome::Verdict::Again { delay, .. } => {
                        format!("again in {:.1} s", delay.as_secs_f64())
                    }
                    outcome::Verdict::Fail => "none: out of budget".to_owned(),
                    _ => "none".to_owned(),
                };
                let result = ending.result().as_str();
                events::unsuccessful(&job.assignment, result, error.as_ref(), &next);
            }
        }
        state.finished.push(Finished {
            claimed: job.claimed,
            definition: job.definition,
            ending,
            verdict,
            output,
            error,
        });
    }

    /// After a transaction whose fate is unknown: forgets the results that had been committed,
    /// and takes up what had been claimed for us (E11).
    async fn read_back(&self, state: &mut Loop) -> Result<(), Error> {
        let process = self.shared.process();
        let conn: &mut Conn = state.link.get().await?;
        let landed = commit::landed(conn, &state.finished, process).await?;
        let held = claim::held(conn, process).await?;
        state
            .finished
            .retain(|finished| !landed.contains(&finished.claimed.execution_id));
        let known = |id: &ExecutionId| {
            let finished = &state.finished;
            state.running.contains_key(id)
                || finished
                    .iter()
                    .any(|finished| finished.claimed.execution_id == *id)
        };
        let adopted: Vec<Claimed> = held
            .into_iter()
            .filter(|claimed| !known(&claimed.execution_id))
            .collect();
        self.begin_all(state, adopted).await?;
        state.unsure = false;
        Ok(())
    }
}

fn view(claimed: &Claimed) -> ExecutionView {
    ExecutionView {
        retry_count: claimed.retry_count,
        crash_count: claimed.crash_count,
    }
}

/// What a step's outcome is to the state machine, and what is kept of it.
fn ending(
    outcome: Outcome,
) -> (
    Ending,
    Option<Box<serde_json::value::RawValue>>,
    Option<StoredError>,
) {
    let error = |class: &str, message: String, backtrace| {
        Some(StoredError {
            class: class.to_owned(),
            message,
            backtrace,
        })
    };
    match outcome {
        Outcome::Success(output) => (Ending::Success, Some(output), None),
        Outcome::Error(stated) => {
            let ending = Ending::Error {
                retryable: stated.retryable,
                retry_after: stated.retry_after,
            };
            (
                ending,
                None,
                error(&stated.class, stated.message, stated.backtrace),
            )
        }
        Outcome::Crashed { message } => (Ending::Crashed, None, error("crashed", message, None)),
        Outcome::TimedOut { message, backtrace } => (
            Ending::TimedOut,
            None,
            error("timed_out", message, backtrace),
        ),
        Outcome::NotStarted { message } => {
            let delay = NOT_STARTED_DELAY;
            (
                Ending::Released { delay },
                None,
                error("not_started", message, None),
            )
        }
        Outcome::Released => {
            let delay = Duration::ZERO;
            let message = "the daemon stopped before it had ended".to_owned();
            (
                Ending::Released { delay },
                None,
                error("released", message, None),
            )
        }
        Outcome::Cancelled => {
            let message = "its run was cancelled".to_owned();
            (Ending::Cancelled, None, error("cancelled", message, None))
        }
    }
}
