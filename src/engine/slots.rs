//! The slots of a worker: what waits for one, what runs, what has ended.
//!
//! Owns: which job runs when. A slot that ends takes the next waiting job by itself, whatever
//! the worker's loop waits for meanwhile. Never: touches the database.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::definition::Definition;
use crate::model::ExecutionId;
use crate::step::{Assignment, Outcome, StopSignal};
use crate::store::claim::Claimed;
use crate::telemetry::events;

use super::pace::Pace;
use super::perform::Performer;
use super::shared::Shared;

/// The slots of one worker.
pub struct Slots {
    count: usize,
    performer: Arc<Performer>,
    shared: Arc<Shared>,
    state: RefCell<State>,
    /// Rings when a job has ended.
    pub ended: Notify,
}

struct State {
    waiting: VecDeque<Job>,
    running: HashMap<ExecutionId, Instant>,
    done: Vec<Done>,
    /// When a waiting job was last taken, or began to wait in an empty queue.
    served: Instant,
    pace: Pace,
}

/// A claimed execution.
pub struct Job {
    /// What was claimed.
    pub claimed: Arc<Claimed>,
    /// Its run's definition.
    pub definition: Arc<Definition>,
    /// What its step is told.
    pub assignment: Arc<Assignment>,
    /// Tells it to stop.
    pub stop: StopSignal,
}

/// A job that has ended.
pub struct Done {
    /// The job.
    pub job: Job,
    /// What it came to.
    pub outcome: Outcome,
    /// How long it ran.
    pub took: Duration,
}

impl Slots {
    /// `count` empty slots.
    pub fn new(count: usize, performer: Arc<Performer>, shared: Arc<Shared>) -> Rc<Self> {
        Rc::new(Self {
            count,
            performer,
            shared,
            state: RefCell::new(State {
                waiting: VecDeque::new(),
                running: HashMap::new(),
                done: Vec::new(),
                served: Instant::now(),
                pace: Pace::default(),
            }),
            ended: Notify::new(),
        })
    }

    /// Runs `job` as soon as a slot is free.
    pub fn put(self: &Rc<Self>, job: Job) {
        let mut state = self.state.borrow_mut();
        if state.waiting.is_empty() {
            state.served = Instant::now();
        }
        state.waiting.push_back(job);
        if state.running.len() < self.count
            && let Some(job) = state.take()
        {
            let slot = Rc::clone(self);
            tokio::task::spawn_local(slot.serve(job));
        }
    }

    /// Runs jobs, one after the other, until none waits.
    async fn serve(self: Rc<Self>, mut job: Job) {
        loop {
            let id = job.claimed.execution_id;
            let began = Instant::now();
            self.shared.started(id);
            events::started(&job.assignment);
            let started = |pid| self.shared.set_pid(id, pid);
            let outcome = self
                .performer
                .perform(&job.definition, &job.assignment, job.stop.clone(), started)
                .await;
            let took = began.elapsed();
            self.shared.let_go(id);
            let mut state = self.state.borrow_mut();
            state.running.remove(&id);
            state.pace.took(took);
            state.done.push(Done { job, outcome, took });
            let next = state.take();
            drop(state);
            self.ended.notify_one();
            match next {
                Some(next) => job = next,
                None => return,
            }
        }
    }

    /// Takes what has ended.
    pub fn take_done(&self) -> Vec<Done> {
        std::mem::take(&mut self.state.borrow_mut().done)
    }

    /// How many more may be held, beside those that wait and run, and `others`: results whose
    /// steps that follow may take their places.
    pub fn room(&self, others: usize) -> usize {
        let state = self.state.borrow();
        let all = self.count + state.ahead(self.count);
        all.saturating_sub(state.held() + others)
    }

    /// How many to claim off the queue. None while that would be a few for many that are held:
    /// a claim's cost is hardly its rows'.
    pub fn appetite(&self, others: usize) -> usize {
        let room = self.room(others);
        let state = self.state.borrow();
        let hungry = state.waiting.len() + state.running.len() < self.count;
        match hungry || room * 4 >= self.count + state.ahead(self.count) {
            true => room,
            false => 0,
        }
    }

    /// Slots that nothing runs in or waits for.
    pub fn free(&self) -> usize {
        let state = self.state.borrow();
        self.count
            .saturating_sub(state.waiting.len() + state.running.len())
    }

    /// True when nothing waits or runs.
    pub fn is_empty(&self) -> bool {
        let state = self.state.borrow();
        state.waiting.is_empty() && state.running.is_empty() && state.done.is_empty()
    }

    /// Whether this execution waits, runs, or has ended without having been taken.
    pub fn has(&self, id: ExecutionId) -> bool {
        let state = self.state.borrow();
        let is = |job: &Job| job.claimed.execution_id == id;
        state.running.contains_key(&id)
            || state.waiting.iter().any(is)
            || state.done.iter().any(|done| is(&done.job))
    }

    /// Takes note of whether a claim brought something that has seen a process die.
    pub fn suspect(&self, suspect: bool) {
        self.state.borrow_mut().pace.suspect(suspect);
    }

    /// For how long what waits has waited without any of it being taken; `None` when nothing
    /// waits.
    pub fn stuck(&self) -> Option<Duration> {
        let state = self.state.borrow();
        (!state.waiting.is_empty()).then(|| state.served.elapsed())
    }

    /// Takes out what waits: it will not run here.
    pub fn withdraw(&self) -> Vec<ExecutionId> {
        let waiting = std::mem::take(&mut self.state.borrow_mut().waiting);
        let ids = waiting.iter().map(|job| job.claimed.execution_id);
        ids.inspect(|id| self.shared.let_go(*id)).collect()
    }
}

impl State {
    /// What waits, runs, or has ended without having been taken.
    fn held(&self) -> usize {
        self.waiting.len() + self.running.len() + self.done.len()
    }

    /// The next waiting job, which runs from now on.
    fn take(&mut self) -> Option<Job> {
        let job = self.waiting.pop_front()?;
        self.served = Instant::now();
        self.running.insert(job.claimed.execution_id, self.served);
        Some(job)
    }

    fn ahead(&self, slots: usize) -> usize {
        let longest = self.running.values().map(Instant::elapsed).max();
        self.pace.ahead(slots, longest.unwrap_or_default())
    }
}
