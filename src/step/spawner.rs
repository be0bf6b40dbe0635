//! The threads that wait for file systems, so that the thread that beats never does.
//!
//! Owns: the threads that start the programs of steps and read their secret files, and their number. Never: begins
//! a job for which nobody waits any more.
//!
//! One thread does all the work, one job after the other, as long as every job ends soon. A job that waits for a
//! file system that does not answer keeps its thread; another thread then serves the jobs behind it. A thread ends
//! with the spawner and not before, because the kernel kills the programs that it has started when it ends.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout;

/// When no job was begun for this long while jobs wait, the threads are held up. A start takes a millisecond.
const HELD_UP: Duration = Duration::from_millis(100);

/// A caller who waits for longer than this says so in the log, once.
const LONG: Duration = Duration::from_secs(5);

/// The most threads. When all of them are held up, most of the worker's steps need a disk that is gone.
const THREADS_MAX: usize = 64;

/// The name of the threads.
const NAME: &str = "step-spawner";

/// In bytes. They look for a program and start it.
const STACK: usize = 256 * 1024;

/// Why a job was not done. The caller may try again later.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It would be held up as well.
    #[error("an earlier start of this step still waits for a file system that does not answer")]
    HeldUp,
    /// Every thread is held up.
    #[error("{THREADS_MAX} other starts wait for a file system that does not answer")]
    Full,
    /// There is no thread, and none to be had.
    #[error(transparent)]
    NoThread(io::Error),
    /// A bug of ours.
    #[error("the start panicked")]
    Panicked,
}

/// Hands jobs to threads.
pub struct Spawner {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// By number. There is one for each thread that is not idle.
    begun: HashMap<u64, Begun>,
    threads: usize,
    /// The number of the last job.
    last: u64,
    /// When a job was last begun, or a thread started.
    served: Option<Instant>,
    ended: bool,
}

struct Job {
    number: u64,
    step: String,
    work: Box<dyn FnOnce() + Send>,
}

/// A job that a thread is doing.
struct Begun {
    step: String,
    /// Nobody waits for it any more.
    is_given_up: bool,
}

/// A job's place, until it is done or its caller stops waiting.
struct Place<'a> {
    shared: &'a Arc<Shared>,
    number: u64,
    is_done: bool,
}

impl fmt::Debug for Spawner {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Spawner").finish_non_exhaustive()
    }
}

impl Default for Spawner {
    /// Its first thread is started with its first job.
    fn default() -> Self {
        Self {
            shared: Arc::default(),
        }
    }
}

impl Spawner {
    /// Has `work` done for this step on a thread of its own. If the future is dropped, work that has not begun is
    /// dropped as well, and the answer of work that has begun is dropped on its thread.
    pub async fn perform<T: Send + 'static>(
        &self,
        step: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refused> {
        let (give, mut answer) = oneshot::channel();
        let work = Box::new(move || drop(give.send(work())));
        let mut place = self.shared.queue(step, work)?;
        let began = Instant::now();
        let mut is_long = false;
        loop {
            match timeout(HELD_UP, &mut answer).await {
                Ok(answer) => {
                    place.is_done = true;
                    return answer.map_err(|_| Refused::Panicked);
                }
                Err(_) => place.move_up()?,
            }
            if began.elapsed() > LONG && !std::mem::replace(&mut is_long, true) {
                tracing::warn!(
                    step,
                    "a step waits to be started: a file system does not answer"
                );
            }
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step whose start was given up and still holds a thread is not started again meanwhile: its retries would
    /// take one thread after the other, and leave none for other steps.
    fn queue(
        self: &Arc<Self>,
        step: &str,
        work: Box<dyn FnOnce() + Send>,
    ) -> Result<Place<'_>, Refused> {
        let mut state = self.lock();
        let mut begun = state.begun.values();
        if begun.any(|begun| begun.is_given_up && begun.step == step) {
            return Err(Refused::HeldUp);
        }
        if state.threads == 0 {
            self.start(&mut state).map_err(Refused::NoThread)?;
        }
        state.last += 1;
        let number = state.last;
        state.waiting.push_back(Job {
            number,
            step: step.to_owned(),
            work,
        });
        drop(state);
        self.changed.notify_one();
        Ok(Place {
            shared: self,
            number,
            is_done: false,
        })
    }

    /// Starts a thread. It blocks the signals that this thread blocks, which are all that the daemon waits for.
    fn start(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name(NAME.to_owned());
        thread.stack_size(STACK).spawn(move || shared.serve())?;
        state.threads += 1;
        state.served = Some(Instant::now());
        Ok(())
    }

    /// Does jobs until the end.
    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(Job { number, step, work }) = state.waiting.pop_front() {
                let begun = Begun {
                    step,
                    is_given_up: false,
                };
                state.begun.insert(number, begun);
                state.served = Some(Instant::now());
                drop(state);
                // A thread that ended would take the programs that it has started with it.
                let _panicked = catch_unwind(AssertUnwindSafe(work));
                state = self.lock();
                state.begun.remove(&number);
            } else if state.ended {
                return;
            } else {
                let changed = self.changed.wait(state);
                state = changed.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Place<'_> {
    /// Has another thread started if all threads are held up and this job still waits.
    fn move_up(&self) -> Result<(), Refused> {
        let mut state = self.shared.lock();
        let waits = state.waiting.iter().any(|job| job.number == self.number);
        let is_idle = state.begun.len() < state.threads;
        let is_held_up = || {
            state
                .served
                .is_none_or(|served| served.elapsed() >= HELD_UP)
        };
        if !waits || is_idle || !is_held_up() {
            return Ok(());
        }
        if state.threads == THREADS_MAX {
            return Err(Refused::Full);
        }
        self.shared.start(&mut state).map_err(Refused::NoThread)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut state = self.shared.lock();
        if let Some(begun) = state.begun.get_mut(&self.number) {
            begun.is_given_up = true;
            return;
        }
        let place = state
            .waiting
            .iter()
            .position(|job| job.number == self.number);
        let job = place.and_then(|place| state.waiting.remove(place));
        drop(state);
        // It may have descriptors to close.
        drop(job);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::sync::mpsc;

    use super::super::child::Child;
    use super::*;

    /// Longer than anything takes on any machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Begins a job that ends when it is told to, and waits until it has begun.
    async fn holds<'a, T: Send + 'static>(
        spawner: &'a Spawner,
        step: &'a str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> (impl Future<Output = Result<T, Refused>>, mpsc::Sender<()>) {
        let ((end, may_end), (begin, begun)) = (mpsc::channel(), oneshot::channel());
        let mut job = Box::pin(spawner.perform(step, move || {
            begin.send(()).unwrap();
            may_end.recv().unwrap();
            work()
        }));
        tokio::select! {
            _ = &mut job => panic!("it ended by itself"),
            begun = begun => begun.unwrap(),
        }
        (job, end)
    }

    fn threads(spawner: &Spawner) -> usize {
        spawner.shared.lock().threads
    }

    #[tokio::test]
    async fn one_thread_does_all_the_work_as_long_as_it_is_quick() {
        let spawner = Spawner::default();
        let own = std::thread::current().id();
        for n in 0..200 {
            let done = spawner.perform("A", move || (n, std::thread::current().id()));
            let (answer, thread) = done.await.unwrap();
            assert!(answer == n && thread != own);
        }
        assert_eq!(threads(&spawner), 1);
    }

    #[tokio::test]
    async fn what_waits_behind_a_job_that_is_held_up_is_done_by_another_thread() {
        let spawner = Spawner::default();
        let (held, end) = holds(&spawner, "A", || 1).await;
        let others = (0..5).map(|n| spawner.perform("B", move || n));
        let mut done = Vec::new();
        for other in others {
            done.push(timeout(PATIENCE, other).await.unwrap().unwrap());
        }
        assert_eq!((done, threads(&spawner)), (vec![0, 1, 2, 3, 4], 2));
        end.send(()).unwrap();
        assert_eq!(held.await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_step_whose_start_was_given_up_is_not_started_again_while_it_is_held_up() {
        let spawner = Spawner::default();
        let (held, end) = holds(&spawner, "A", || ()).await;
        drop(held);
        let refused = spawner.perform("A", || ()).await;
        assert!(matches!(refused, Err(Refused::HeldUp)), "{refused:?}");
        spawner.perform("B", || ()).await.unwrap();
        end.send(()).unwrap();
        let again = async {
            while spawner.perform("A", || ()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, again).await.unwrap();
    }

    #[tokio::test]
    async fn when_all_threads_are_held_up_nothing_waits_and_what_was_given_up_in_the_queue_is_not_begun()
     {
        let spawner = Spawner::default();
        let mut held = Vec::new();
        for n in 0..THREADS_MAX {
            held.push(holds(&spawner, ["A", "B"][n % 2], || ()).await);
        }
        let (begin, begun) = mpsc::channel();
        let (counted, refused) = (begin.clone(), spawner.perform("C", move || begin.send(())));
        let refused = timeout(PATIENCE, refused).await.unwrap();
        assert!(matches!(refused, Err(Refused::Full)), "{refused:?}");
        {
            let mut dropped = Box::pin(spawner.perform("C", move || counted.send(())));
            let polled = timeout(Duration::ZERO, &mut dropped).await;
            assert!(polled.is_err());
        }
        assert!(spawner.shared.lock().waiting.is_empty());
        for (held, end) in held {
            end.send(()).unwrap();
            held.await.unwrap();
        }
        spawner.perform("C", || ()).await.unwrap();
        assert_eq!(begun.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }

    #[tokio::test]
    async fn a_program_that_starts_after_it_was_given_up_is_ended_at_once() {
        let spawner = Spawner::default();
        let (say, said) = mpsc::channel();
        let (held, end) = holds(&spawner, "A", move || {
            let mut command = std::process::Command::new("sleep");
            let process = command.arg("1000").process_group(0).spawn().unwrap();
            say.send(process.id()).unwrap();
            Child::new(process.into())
        })
        .await;
        drop(held);
        end.send(()).unwrap();
        let pid = said.recv_timeout(PATIENCE).unwrap();
        let began = Instant::now();
        while std::path::Path::new(&format!("/proc/{pid}")).exists() {
            assert!(began.elapsed() < PATIENCE, "it lives");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn a_panic_ends_no_thread() {
        let spawner = Spawner::default();
        let panicked = spawner.perform("A", || panic!("on purpose")).await;
        let refused: Result<(), Refused> = panicked;
        assert!(matches!(refused, Err(Refused::Panicked)));
        spawner.perform("A", || ()).await.unwrap();
        assert_eq!(threads(&spawner), 1);
    }
}
