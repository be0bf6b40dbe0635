//! The slots of a worker: the jobs that wait for one, that run in one, that have ended.
//!
//! Owns: which job runs when. A slot whose job ends takes the next waiting job by itself, whatever
//! the worker's loop waits for meanwhile. Never: touches the database.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::definition::Definition;
use crate::model::ExecutionId;
use crate::step::native::said;
use crate::step::{Assignment, Outcome, Performed, StopSignal};
use crate::store::claim::Claimed;
use crate::store::{batch_size, commit};
use crate::telemetry::events;

use super::prefetch::Prefetch;
use super::runner::Runner;
use super::shared::Shared;

/// Uncommitted results of this many bytes hold up the waiting jobs: otherwise a worker whose steps are
/// quicker than its commits would hold the outputs of everything that it has claimed ahead.
const RESULTS_MAX: usize = 4 * batch_size::BYTES_MAX;

/// The slots of one worker.
pub struct Slots {
    count: usize,
    /// How long a claim is ours without a heartbeat.
    lease: Duration,
    runner: Arc<Runner>,
    shared: Arc<Shared>,
    state: RefCell<State>,
    /// Notified when a job has ended.
    pub ended: Notify,
}

struct State {
    waiting: Waiting,
    /// The bytes of their inputs.
    waiting_bytes: usize,
    running: HashMap<ExecutionId, Instant>,
    done: Vec<Done>,
    /// The bytes of their results.
    done_bytes: usize,
    /// The bytes of the results that were taken and are not yet committed.
    kept: usize,
    /// When a waiting job was last taken, or began to wait in an empty queue.
    served: Instant,
    prefetch: Prefetch,
}

/// The jobs that wait for a slot. A branch that has begun goes before one that has not: otherwise a
/// fan-out runs all its first steps before any second one, and none of it is ready for long.
#[derive(Default)]
struct Waiting {
    begun: VecDeque<Job>,
    others: VecDeque<Job>,
}

impl Waiting {
    fn push(&mut self, job: Job) {
        match job.claimed.has_begun() {
            true => self.begun.push_back(job),
            false => self.others.push_back(job),
        }
    }

    fn pop(&mut self) -> Option<Job> {
        self.begun.pop_front().or_else(|| self.others.pop_front())
    }

    fn iter(&self) -> impl Iterator<Item = &Job> {
        self.begun.iter().chain(&self.others)
    }

    fn len(&self) -> usize {
        self.begun.len() + self.others.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A claimed execution.
pub struct Job {
    /// The claim, without its input.
    pub claimed: Arc<Claimed>,
    /// Its run's definition.
    pub definition: Arc<Definition>,
    /// The job that its step is given, with its input.
    pub assignment: Arc<Assignment>,
    /// Tells it to stop.
    pub stop: StopSignal,
}

impl Job {
    fn bytes(&self) -> usize {
        self.assignment.input.get().len()
    }
}

/// A job that has ended.
pub struct Done {
    /// The job.
    pub job: Job,
    /// Its outcome, and its log.
    pub performed: Performed,
    /// How long it ran.
    pub took: Duration,
}

impl Done {
    fn bytes(&self) -> usize {
        let (output, message, backtrace) = match &self.performed.outcome {
            Outcome::Success(output) => (Some(output.get()), None, None),
            Outcome::Error(stated) => (None, Some(&stated.message), stated.backtrace.as_deref()),
            Outcome::TimedOut { message, backtrace } => (None, Some(message), backtrace.as_deref()),
            Outcome::Crashed { message } | Outcome::NotStarted { message } => {
                (None, Some(message), None)
            }
            Outcome::Released | Outcome::Cancelled => (None, None, None),
        };
        let log = self.performed.log.as_deref();
        commit::bytes_of([output, message.map(String::as_str), backtrace, log])
    }
}

impl Slots {
    /// `count` empty slots, for executions that are leased for `lease`.
    pub fn new(
        count: usize,
        lease: Duration,
        runner: Arc<Runner>,
        shared: Arc<Shared>,
    ) -> Rc<Self> {
        Rc::new(Self {
            count,
            lease,
            runner,
            shared,
            state: RefCell::new(State {
                waiting: Waiting::default(),
                waiting_bytes: 0,
                running: HashMap::new(),
                done: Vec::new(),
                done_bytes: 0,
                kept: 0,
                served: Instant::now(),
                prefetch: Prefetch::default(),
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
        state.waiting_bytes += job.bytes();
        state.waiting.push(job);
        self.fill(&mut state);
    }

    /// Takes note of how many bytes the results have that were taken and are not yet committed.
    pub fn keeps(self: &Rc<Self>, bytes: usize) {
        let mut state = self.state.borrow_mut();
        state.kept = bytes;
        self.fill(&mut state);
    }

    /// Runs waiting jobs in the free slots.
    fn fill(self: &Rc<Self>, state: &mut State) {
        while state.running.len() < self.count
            && let Some(job) = self.next(state)
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
            let performed = caught(async {
                events::started(&job.assignment);
                let started = |pid| self.shared.set_pid(id, pid);
                let (definition, stop) = (&job.definition, job.stop.clone());
                let run = self.runner.run(definition, &job.assignment, stop, started);
                let mut run = pin!(run);
                tokio::select! {
                    biased;
                    performed = &mut run => performed,
                    () = self.is_too_late_to_start(&job) => {
                        self.shared.abandon(id);
                        run.await
                    }
                }
            });
            let performed = performed.await;
            let took = began.elapsed();
            let mut state = self.state.borrow_mut();
            state.running.remove(&id);
            state.prefetch.took(took);
            let done = Done {
                job,
                performed,
                took,
            };
            state.done_bytes += done.bytes();
            state.done.push(done);
            let next = self.next(&mut state);
            drop(state);
            self.ended.notify_one();
            match next {
                Some(next) => job = next,
                None => return,
            }
        }
    }

    /// Resolves when the lease is over and the job's program has not started yet.
    ///
    /// RACE: the start waits for a file system that does not answer, and meanwhile the process cannot beat: the
    /// execution is another's by now, and must not begin here when the file system answers. Proven by
    /// `a_program_that_waits_to_be_started_is_not_started_once_the_lease_is_over`.
    async fn is_too_late_to_start(&self, job: &Job) {
        let starts = self.runner.starts_program(&job.definition, &job.assignment);
        while starts && !self.shared.has_pid(job.claimed.execution_id) {
            let left = self.lease.saturating_sub(self.shared.since_beat());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
        std::future::pending().await
    }

    /// The next job to run.
    ///
    /// RACE: the process stood still, and wakes up after its leases are over: the jobs that wait
    /// here are another's by now. They stay until a heartbeat is written, which says which of them
    /// are still ours, or are put back because they have waited here too long. Proven by
    /// `what_was_claimed_ahead_by_a_worker_that_stood_still_is_not_started_by_it`.
    ///
    /// RACE: the process is told to end or to claim nothing, or a heartbeat finds the pipeline paused, while the
    /// worker's loop waits for an answer of the database. A slot that becomes free meanwhile must take none of the
    /// jobs that wait here: their steps would be killed soon, or must not start. They stay until the loop's next turn
    /// puts them back. Proven by `what_was_claimed_ahead_is_not_started_once_the_worker_is_to_begin_nothing`.
    fn next(&self, state: &mut State) -> Option<Job> {
        let is_ours = self.shared.since_beat() < self.lease;
        match is_ours && state.has_room() && self.shared.may_begin() {
            true => state.take(),
            false => None,
        }
    }

    /// Takes the jobs that have ended.
    pub fn take_done(&self) -> Vec<Done> {
        let mut state = self.state.borrow_mut();
        state.done_bytes = 0;
        let done = std::mem::take(&mut state.done);
        drop(state);
        // Until a job's result is taken the job is held here, and heartbeats have to extend its lease.
        let ids = done.iter().map(|done| done.job.claimed.execution_id);
        ids.for_each(|id| self.shared.let_go(id));
        done
    }

    /// How many more executions may be held, besides those that wait and run, and `others`: results
    /// whose subsequent steps may take their places.
    pub fn room(&self, others: usize) -> usize {
        let state = self.state.borrow();
        let all = self.count + state.ahead(self.count);
        all.saturating_sub(state.held() + others)
    }

    /// How many executions to claim off the queue. Zero while they would be few beside many that
    /// are held: the rows are only a small part of a claim's cost.
    pub fn appetite(&self, others: usize) -> usize {
        let room = self.room(others);
        let state = self.state.borrow();
        // Claimed now, they would wait, and soon be put back.
        if !state.has_room() {
            return 0;
        }
        let hungry = state.waiting.len() + state.running.len() < self.count;
        match hungry || room * 4 >= self.count + state.ahead(self.count) {
            true => room,
            false => 0,
        }
    }

    /// How many of the `unstored` results, which cannot be stored now, count against the room of the slots: those
    /// beyond the number of slots. Otherwise a worker that can store no result would run everything that is due.
    pub fn beyond(&self, unstored: usize) -> usize {
        unstored.saturating_sub(self.count)
    }

    /// The slots in which nothing runs and for which nothing waits.
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

    /// Takes note of whether a claim brought an execution that has seen a process die.
    pub fn suspect(&self, suspect: bool) {
        self.state.borrow_mut().prefetch.suspect(suspect);
    }

    /// True when the last claim brought an execution that has seen a process die.
    pub fn is_suspect(&self) -> bool {
        self.state.borrow().prefetch.is_suspect()
    }

    /// For how long the waiting jobs have waited without any of them being taken; `None` when
    /// nothing waits.
    pub fn stuck(&self) -> Option<Duration> {
        let state = self.state.borrow();
        (!state.waiting.is_empty()).then(|| state.served.elapsed())
    }

    /// Takes out the waiting jobs: they will not run here.
    pub fn withdraw(&self) -> Vec<ExecutionId> {
        let mut state = self.state.borrow_mut();
        state.waiting_bytes = 0;
        let waiting = std::mem::take(&mut state.waiting);
        let ids = waiting.iter().map(|job| job.claimed.execution_id);
        ids.inspect(|id| self.shared.let_go(*id)).collect()
    }
}

/// The result of `running`. A panic, which is a mistake of ours, is a crash of this attempt alone: nobody looks after
/// the task of a slot, so the execution would be held for ever, and the slot lost. Proven by
/// `a_panic_costs_one_attempt_and_neither_its_slot_nor_its_worker`.
async fn caught(running: impl Future<Output = Performed>) -> Performed {
    let mut running = pin!(running);
    poll_fn(|task| {
        // It is dropped, and not polled again.
        match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(task))) {
            Ok(polled) => polled,
            Err(panic) => {
                let message = format!("its worker panicked: {}", said(&*panic));
                Poll::Ready(Outcome::Crashed { message }.into())
            }
        }
    })
    .await
}

impl State {
    /// The executions that wait, run, or have ended without having been taken.
    fn held(&self) -> usize {
        self.waiting.len() + self.running.len() + self.done.len()
    }

    /// True while the results that are held leave room for those of further steps.
    fn has_room(&self) -> bool {
        self.done_bytes + self.kept < RESULTS_MAX
    }

    /// The next waiting job, which runs from now on.
    fn take(&mut self) -> Option<Job> {
        let job = self.waiting.pop()?;
        self.waiting_bytes -= job.bytes();
        self.served = Instant::now();
        self.running.insert(job.claimed.execution_id, self.served);
        Some(job)
    }

    fn ahead(&self, slots: usize) -> usize {
        if self.waiting_bytes >= batch_size::BYTES_MAX {
            return 0;
        }
        let longest = self.running.values().map(Instant::elapsed).max();
        self.prefetch.ahead(slots, longest.unwrap_or_default())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use tokio::sync::{Semaphore, mpsc};

    use super::*;
    use crate::config::{Config, LoadOptions};
    use crate::definition::{Pipeline, StepSpec};
    use crate::engine::shared::Mode;
    use crate::model::*;
    use crate::step::command::tests::{Lease, assignment};
    use crate::step::context::StepContext;
    use crate::step::registry::Registry;
    use crate::step::{StepError, StopCause};

    /// An execution of a step, in a run of its own.
    pub fn claimed(definition: &Definition, assignment: &Assignment) -> Claimed {
        Claimed {
            execution_id: assignment.execution_id,
            step_id: assignment.step_id,
            run_id: assignment.run_id,
            branch_id: BranchId::new(),
            step_ordinal: 0,
            fan_out_id: None,
            ordinal: 0,
            node: "Step".to_owned(),
            step: "Step".to_owned(),
            via: Via::Start,
            attempt: 1,
            retry_count: 0,
            crash_count: 0,
            definition: definition.digest(),
            caller: None,
            input: assignment.input.clone(),
        }
    }

    /// Longer than any test takes on any machine.
    const LEASE: Duration = Duration::from_secs(3_600);

    /// So short that a test can outlast it.
    const SHORT_LEASE: Duration = Duration::from_secs(1);

    /// One slot whose steps count how often they have begun, and end when they are let go.
    struct Stage {
        slots: Rc<Slots>,
        shared: Arc<Shared>,
        definition: Arc<Definition>,
        begun: Arc<AtomicUsize>,
        may_end: Arc<Semaphore>,
    }

    impl Stage {
        fn new() -> Self {
            Self::with(LEASE)
        }

        fn with(lease: Duration) -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            let options = LoadOptions {
                file: None,
                env: None,
                vars: &|_| None,
                names: &[],
                cwd: directory.path().to_owned(),
                handed: None,
            };
            let config = Config::load(options).unwrap_or_else(|problems| panic!("{problems}"));
            let begun = Arc::new(AtomicUsize::new(0));
            let may_end = Arc::new(Semaphore::new(0));
            let (count, end) = (Arc::clone(&begun), Arc::clone(&may_end));
            let step = move |_: StepContext, input: i64| {
                let end = Arc::clone(&end);
                count.fetch_add(1, Ordering::Relaxed);
                async move {
                    end.acquire().await.expect("it is open").forget();
                    Ok::<_, StepError>(input)
                }
            };
            let registry = Arc::new(Registry::new().step("Step", step));
            let requests = mpsc::unbounded_channel().0;
            let runner = Arc::new(Runner::new(&config, "Tests", registry, requests));
            let shared = Shared::new(ProcessId::new());
            let definition = Pipeline::named("Tests").start("Step").build();
            Self {
                slots: Slots::new(1, lease, runner, Arc::clone(&shared)),
                shared,
                definition: Arc::new(definition.expect("a definition")),
                begun,
                may_end,
            }
        }

        fn put(&self) {
            self.put_with("1");
        }

        fn put_with(&self, input: &str) {
            self.put_via(Via::Start, input);
        }

        fn put_via(&self, via: Via, input: &str) {
            let assignment = Arc::new(assignment(input));
            let stop = self.shared.hold(Arc::clone(&assignment));
            let claimed = claimed(&self.definition, &assignment);
            self.slots.put(Job {
                claimed: Arc::new(Claimed { via, ..claimed }),
                definition: Arc::clone(&self.definition),
                assignment,
                stop,
            });
        }

        async fn one_ends(&self) {
            self.may_end.add_permits(1);
            self.slots.ended.notified().await;
            assert_eq!(self.slots.take_done().len(), 1);
        }

        async fn have_begun(&self, times: usize) {
            while self.begun.load(Ordering::Relaxed) < times {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    #[tokio::test]
    async fn a_program_that_waits_to_be_started_is_not_started_once_the_lease_is_over() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        std::fs::write(&program, "#!/bin/sh\necho >> ran\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut stage = Stage::with(SHORT_LEASE);
        let step =
            StepSpec::command([program.to_str().unwrap()]).cwd(directory.path().to_str().unwrap());
        let definition = Pipeline::named("Tests").step("Step", step).start("Step");
        stage.definition = Arc::new(definition.build().unwrap());
        let held_up = Lease::on(&program);
        let steps = async {
            stage.shared.beaten();
            stage.put();
            stage.slots.ended.notified().await;
            assert!(stage.shared.since_beat() >= SHORT_LEASE);
            let outcomes = stage.slots.take_done();
            let outcomes: Vec<&Outcome> = outcomes.iter().map(|it| &it.performed.outcome).collect();
            assert!(matches!(outcomes[..], [Outcome::Released]), "{outcomes:?}");
            drop(held_up);
            // One that has its lease is started.
            stage.shared.beaten();
            stage.put();
            stage.slots.ended.notified().await;
            assert_eq!(stage.slots.take_done().len(), 1);
        };
        tokio::task::LocalSet::new().run_until(steps).await;
    }

    #[tokio::test]
    async fn what_has_ended_is_held_until_its_result_is_taken() {
        let stage = Stage::new();
        let steps = async {
            stage.shared.beaten();
            stage.put();
            stage.may_end.add_permits(1);
            stage.slots.ended.notified().await;
            assert!(stage.shared.holds(), "no heartbeat extends its lease");
            assert_eq!(stage.slots.take_done().len(), 1);
            assert!(!stage.shared.holds());
        };
        tokio::task::LocalSet::new().run_until(steps).await;
    }

    #[tokio::test]
    async fn a_branch_that_has_begun_is_served_before_one_that_has_not() {
        let stage = Stage::new();
        let steps = async {
            stage.shared.beaten();
            for (via, input) in [
                (Via::Start, "1"),
                (Via::Start, "2"),
                (Via::Expand, "3"),
                (Via::Chain, "4"),
                (Via::Combine, "5"),
            ] {
                stage.put_via(via, input);
            }
            let mut served = Vec::new();
            for _ in 0..5 {
                stage.may_end.add_permits(1);
                stage.slots.ended.notified().await;
                let done = stage.slots.take_done();
                served.extend(
                    done.iter()
                        .map(|done| done.job.assignment.input.get().to_owned()),
                );
            }
            assert_eq!(served, ["1", "4", "5", "2", "3"]);
        };
        tokio::task::LocalSet::new().run_until(steps).await;
    }

    #[tokio::test]
    async fn what_was_claimed_ahead_by_a_worker_that_stood_still_is_not_started_by_it() {
        let stage = Stage::with(SHORT_LEASE);
        let steps = async {
            (0..3).for_each(|_| stage.put());
            stage.have_begun(1).await;
            // As long as it beats, a slot whose job ends takes the next by itself.
            stage.shared.beaten();
            stage.one_ends().await;
            stage.have_begun(2).await;

            while stage.shared.since_beat() < SHORT_LEASE {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            stage.one_ends().await;
            let left = stage.slots.withdraw();
            assert_eq!(left.len(), 1, "it was started after its lease was over");
            assert_eq!(stage.begun.load(Ordering::Relaxed), 2);

            // The execution that was put in vain begins together with those that are put once it beats
            // again.
            stage.put();
            assert!(stage.slots.stuck().is_some());
            stage.shared.beaten();
            stage.put();
            stage.have_begun(3).await;
            stage.one_ends().await;
            stage.have_begun(4).await;
            stage.one_ends().await;
            assert!(stage.slots.is_empty());
        };
        tokio::task::LocalSet::new().run_until(steps).await;
    }

    #[tokio::test]
    async fn what_was_claimed_ahead_is_not_started_once_the_worker_is_to_begin_nothing() {
        type Order = (&'static str, fn(&Shared));
        let orders: [Order; 3] = [
            ("it is to end", |shared| {
                shared.set_mode(Mode::Drain {
                    until: Instant::now() + LEASE,
                    cause: StopCause::Shutdown,
                });
            }),
            ("it is quiet", |shared| shared.set_mode(Mode::Quiet)),
            ("its pipeline is paused", |shared| shared.tell(true)),
        ];
        for (what, order) in orders {
            let stage = Stage::new();
            let steps = async {
                stage.shared.beaten();
                (0..2).for_each(|_| stage.put());
                stage.have_begun(1).await;
                order(&stage.shared);
                stage.one_ends().await;
                stage.put();
                assert!(
                    stage.slots.state.borrow().running.is_empty(),
                    "{what}, and its slot has taken another job"
                );
                assert_eq!(stage.slots.withdraw().len(), 2, "{what}");

                // The loop has noticed the pause, and puts nothing into the slots until that is over.
                stage.shared.take_told();
                stage.shared.set_mode(Mode::Run);
                stage.put();
                stage.have_begun(2).await;
                stage.one_ends().await;
                assert!(stage.slots.is_empty(), "{what}");
                assert_eq!(stage.begun.load(Ordering::Relaxed), 2, "{what}");
            };
            tokio::task::LocalSet::new().run_until(steps).await;
        }
    }

    #[tokio::test]
    async fn a_panic_costs_one_attempt_and_neither_its_slot_nor_its_worker() {
        let stage = Stage::new();
        // The first line of the log is that of the first step's start.
        let is_first = AtomicBool::new(true);
        let log = move || {
            assert!(!is_first.swap(false, Ordering::Relaxed), "the log is torn");
            std::io::sink()
        };
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(log);
        let _logging = tracing::subscriber::set_default(subscriber.finish());
        let steps = async {
            stage.shared.beaten();
            stage.put();
            stage.put();
            stage.slots.ended.notified().await;
            let done = stage.slots.take_done();
            let outcomes: Vec<&Outcome> = done.iter().map(|it| &it.performed.outcome).collect();
            let [Outcome::Crashed { message }] = outcomes.as_slice() else {
                panic!("{outcomes:?}");
            };
            assert_eq!(message, "its worker panicked: the log is torn");
            stage.have_begun(1).await;
            stage.one_ends().await;
            assert!(stage.slots.is_empty() && !stage.shared.holds());
            assert_eq!(stage.slots.free(), 1);
        };
        tokio::task::LocalSet::new().run_until(steps).await;
    }

    #[tokio::test]
    async fn nothing_is_claimed_ahead_of_inputs_that_are_large() {
        let stage = Stage::new();
        let steps = async {
            stage.shared.beaten();
            // So that everything that is put waits.
            stage.slots.keeps(RESULTS_MAX);
            // Steps so quick that many would be claimed ahead.
            (0..200).for_each(|_| stage.slots.state.borrow_mut().prefetch.took(Duration::ZERO));
            let room = stage.slots.room(0);
            assert!(room > 100, "{room}");
            stage.put();
            stage.put();
            assert_eq!(stage.slots.room(0), room - 2);
            let large = format!("\"{}\"", "x".repeat(batch_size::BYTES_MAX - 2));
            stage.put_with(&large);
            assert_eq!(stage.slots.room(0), 0);
            assert_eq!(stage.slots.withdraw().len(), 3);
            assert_eq!(stage.slots.room(0), room);
            // Once it runs, it no longer waits; it ends at once, because its step takes a number.
            stage.put_with(&large);
            assert_eq!(stage.slots.room(0), 0);
            stage.slots.keeps(0);
            stage.slots.ended.notified().await;
            assert_eq!(stage.slots.take_done().len(), 1);
            assert_eq!(stage.slots.state.borrow().waiting_bytes, 0);
        };
        tokio::task::LocalSet::new().run_until(steps).await;
    }

    #[tokio::test]
    async fn a_result_without_an_output_has_the_bytes_of_its_error_and_of_its_log() {
        let stage = Stage::new();
        let assignment = Arc::new(assignment("1"));
        let mut done = Done {
            job: Job {
                claimed: Arc::new(claimed(&stage.definition, &assignment)),
                definition: Arc::clone(&stage.definition),
                stop: stage.shared.hold(Arc::clone(&assignment)),
                assignment,
            },
            performed: Outcome::Released.into(),
            took: Duration::ZERO,
        };
        let text = |bytes| "x".repeat(bytes);
        let error = StepError {
            backtrace: Some(text(1_000)),
            ..StepError::new("ExitStatus(1)", text(100))
        };
        let timed_out = Outcome::TimedOut {
            message: text(100),
            backtrace: Some(text(1_000)),
        };
        for (outcome, bytes) in [
            (Outcome::Error(error), 1_107),
            (timed_out, 1_107),
            (Outcome::Crashed { message: text(50) }, 57),
            (Outcome::Released, 7),
        ] {
            let log = Some(text(7));
            done.performed = Performed { outcome, log };
            assert_eq!(done.bytes(), bytes, "{:?}", done.performed.outcome);
        }
    }

    #[tokio::test]
    async fn results_that_are_not_committed_hold_up_what_waits_once_they_are_large() {
        let stage = Stage::new();
        let steps = async {
            stage.shared.beaten();
            stage.slots.keeps(RESULTS_MAX - 1);
            stage.put();
            stage.put();
            stage.have_begun(1).await;
            stage.may_end.add_permits(1);
            stage.slots.ended.notified().await;
            // Its result of one byte is over the limit.
            assert_eq!(stage.slots.free(), 0);
            assert!(stage.slots.state.borrow().running.is_empty());
            assert_eq!(stage.slots.take_done().len(), 1);
            stage.slots.keeps(RESULTS_MAX);
            assert!(stage.slots.state.borrow().running.is_empty());
            stage.slots.keeps(0);
            stage.have_begun(2).await;
            stage.one_ends().await;
            assert!(stage.slots.is_empty());
        };
        tokio::task::LocalSet::new().run_until(steps).await;
    }
}
