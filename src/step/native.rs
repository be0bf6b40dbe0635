//! Native steps: one execution, one task.
//!
//! Owns: the runtime on which user code runs, apart from the daemon's own, so that code that
//! blocks can never keep the heart from beating. Never: lets a panic out.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Once, OnceLock};

use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::context::{ContextStore, StepContext};
use super::output::unkept;
use super::registry::{Answer, Body, Registry};
use super::verdict::too_large;
use super::{
    Assignment, Limits, Outcome, StepError, StopCause, StopSignal, abandoned, elapsed, stopped,
};

/// Enough for steps that wait; steps that compute or block belong in `blocking_step`.
const THREADS: usize = 2;

/// The name of each thread that runs steps.
const THREAD: &str = "native-step";

/// While this many blocking steps run on that were left to themselves, no other one starts: each has a thread, and
/// attempt after attempt of a step that never ends would take all the threads that the system has.
const LEFT_MAX: usize = 100;

/// Runs native steps.
#[derive(Debug)]
pub struct NativeRunner {
    registry: Arc<Registry>,
    limits: Limits,
    runtime: OnceLock<Runtime>,
    /// How many threads run blocking steps for which nobody waits any more.
    left: Arc<AtomicUsize>,
}

/// The thread of a blocking step. Nothing ends it but the step itself.
struct Thread {
    state: AtomicU8,
    left: Arc<AtomicUsize>,
}

impl Thread {
    const WAITED_FOR: u8 = 0;
    const LEFT: u8 = 1;
    const ENDED: u8 = 2;

    /// Nobody waits for it any more.
    fn leave(&self) {
        let (from, to) = (Self::WAITED_FOR, Self::LEFT);
        let order = Ordering::SeqCst;
        if self.state.compare_exchange(from, to, order, order).is_ok() {
            self.left.fetch_add(1, order);
        }
    }

    fn end(&self) {
        if self.state.swap(Self::ENDED, Ordering::SeqCst) == Self::LEFT {
            self.left.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Tells that the thread has ended, however it did.
struct Ends(Arc<Thread>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A running step; it is told to end, and dropped, when nobody waits for it any more.
struct Task {
    context: StepContext,
    body: Running,
}

/// The part of a running step that answers.
enum Running {
    Async(JoinHandle<Answer>),
    Blocking(oneshot::Receiver<Answer>, Arc<Thread>),
}

impl Task {
    /// The step's answer; `None` when nobody can give it any more. Not to be asked again afterwards.
    async fn answer(&mut self) -> Option<Answer> {
        // A panic of the step is caught where it happens (`guarded`). A value that a panic leaves behind may panic again
        // when it is dropped, which ends the task or the thread.
        match &mut self.body {
            Running::Async(task) => match task.await {
                Ok(answer) => Some(answer),
                Err(error) if error.is_panic() => Some(Err(panicked(&*error.into_panic()))),
                Err(_) => None,
            },
            Running::Blocking(answer, _) => {
                Some(answer.await.unwrap_or_else(|_| Err(panicked(&()))))
            }
        }
    }

    /// Ends an async step where it waits. Nothing ends a blocking step but itself.
    fn abort(&self) {
        if let Running::Async(task) = &self.body {
            task.abort();
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.context.cancel();
        self.abort();
        if let Running::Blocking(_, thread) = &self.body {
            thread.leave();
        }
    }
}

impl NativeRunner {
    /// A runner for the steps of one program.
    pub fn new(registry: impl Into<Arc<Registry>>, limits: Limits) -> Self {
        Self {
            registry: registry.into(),
            limits,
            runtime: OnceLock::new(),
            left: Arc::default(),
        }
    }

    /// Starts the threads of the async steps, if the program has steps. To be called before anything is claimed:
    /// tokio panics when the system has no thread to give, and leaves behind the threads and descriptors that it
    /// had by then. A process that holds nothing may end of that, and its successor tries again.
    pub fn begin(&self) {
        if self.registry.names().next().is_some()
            && let Err(error) = self.runtime()
        {
            // The first step tries again.
            tracing::warn!(%error, "no threads for native steps could be started");
        }
    }

    /// Performs `assignment` with the registered step of its name.
    pub async fn run(
        &self,
        assignment: Arc<Assignment>,
        mut stop: StopSignal,
        store: Arc<dyn ContextStore>,
    ) -> Outcome {
        if let Some(cause) = *stop.borrow() {
            return cause.into();
        }
        let Some(body) = self.registry.get(&assignment.step) else {
            let step = &assignment.step;
            let message = format!("this program has no native step `{step}`");
            return Outcome::Error(StepError::new("step_undefined", message).no_retry());
        };
        let runtime = match self.runtime() {
            Ok(runtime) => runtime,
            Err(error) => {
                return Outcome::NotStarted {
                    message: format!("no threads for native steps could be started: {error}"),
                };
            }
        };
        let left = self.left.load(Ordering::SeqCst);
        if matches!(body, Body::Blocking(_)) && left >= LEFT_MAX {
            return Outcome::NotStarted {
                message: format!(
                    "{left} blocking steps that were left to themselves, because they did not end when they were told \
                     to, still run: no other one starts until some of them end"
                ),
            };
        }
        let limit = assignment.timeout;
        let context = StepContext::new(assignment, store);
        let mut task = match start(runtime, body, context, &self.left) {
            Ok(task) => task,
            Err(error) => {
                return Outcome::NotStarted {
                    message: format!("no thread for the step could be started: {error}"),
                };
            }
        };
        let timed_out = tokio::select! {
            biased;
            answer = task.answer() => return self.judge(answer),
            limit = elapsed(limit) => Err(limit),
            cause = stopped(&mut stop) => Ok(cause),
        };
        task.context.cancel();
        if timed_out.is_err() {
            task.abort();
        }
        let grace = self.limits.kill_grace;
        let ended = tokio::select! {
            biased;
            ended = timeout(grace, task.answer()) => ended.ok(),
            () = abandoned(&mut stop) => None,
        };
        match (timed_out, ended) {
            (Err(limit), ended) => {
                let how = match ended {
                    Some(_) => "it was ended".to_owned(),
                    None if *stop.borrow() == Some(StopCause::Abandon) => {
                        "it was left to itself, because the daemon was to end at once".to_owned()
                    }
                    None => format!("{grace:?} later it still ran, and was left to itself"),
                };
                Outcome::TimedOut {
                    message: format!("timed out after {limit:?}; {how}"),
                    backtrace: None,
                }
            }
            // The work is done: doing it twice would not make it better.
            (Ok(StopCause::Shutdown), Some(answer)) => match self.judge(answer) {
                success @ Outcome::Success(_) => success,
                _ => Outcome::Released,
            },
            (Ok(cause), _) => cause.into(),
        }
    }

    fn runtime(&self) -> io::Result<&Runtime> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name(THREAD)
            .enable_all()
            .build()?;
        if let Err(second) = self.runtime.set(runtime) {
            // Somebody else was first, and may be waiting: an async caller must not wait here.
            second.shutdown_background();
        }
        Ok(self.runtime.get().expect("it was set just now"))
    }

    fn judge(&self, answer: Option<Answer>) -> Outcome {
        let Some(answer) = answer else {
            return Outcome::Crashed {
                message: "the runtime of the native steps was shut down".into(),
            };
        };
        let value = match answer {
            Ok(value) => value,
            Err(error) => return Outcome::Error(error),
        };
        if value.get().len() > self.limits.max_payload {
            return Outcome::Error(too_large("returned", self.limits.max_payload));
        }
        match unkept(value.get()) {
            None => Outcome::Success(value),
            Some(problem) => Outcome::Error(StepError::new(
                "output_invalid",
                format!("the output cannot be kept: {problem}"),
            )),
        }
    }
}

impl Drop for NativeRunner {
    fn drop(&mut self) {
        // The ordinary drop waits for the threads, and panics in async code.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Starts a step. A blocking step has a thread of its own, and not one of tokio's: tokio panics when there is none
/// to be had, or keeps the step waiting for a thread while the time of its timeout passes.
fn start(
    runtime: &Runtime,
    body: &Body,
    context: StepContext,
    left: &Arc<AtomicUsize>,
) -> io::Result<Task> {
    note_where_steps_panic();
    let body = match body {
        Body::Async(function) => {
            let mut future = function(context.clone());
            Running::Async(runtime.spawn(poll_fn(move |task| {
                match guarded(|| future.as_mut().poll(task)) {
                    Ok(polled) => polled,
                    Err(error) => std::task::Poll::Ready(Err(error)),
                }
            })))
        }
        Body::Blocking(function) => {
            let function = Arc::clone(function);
            let (give, answer) = oneshot::channel();
            let (context, runtime) = (context.clone(), runtime.handle().clone());
            let thread = Arc::new(Thread {
                state: AtomicU8::new(Thread::WAITED_FOR),
                left: Arc::clone(left),
            });
            let ends = Ends(Arc::clone(&thread));
            std::thread::Builder::new()
                .name(THREAD.to_owned())
                .spawn(move || {
                    let _ends = ends;
                    let _within = runtime.enter();
                    let answer = guarded(|| function(context)).and_then(|done| done);
                    // Perhaps nobody waits any more.
                    let _ = give.send(answer);
                })?;
            Running::Blocking(answer, thread)
        }
    };
    Ok(Task { context, body })
}

thread_local! {
    /// True while this thread runs a step's code.
    static IN_STEP: Cell<bool> = const { Cell::new(false) };
    /// Where the last step on this thread panicked.
    static PANICKED_AT: RefCell<Option<Place>> = const { RefCell::new(None) };
}

struct Place {
    location: String,
    backtrace: std::backtrace::Backtrace,
}

/// Only the panic hook knows the place of a panic. The whole program shares the hook, so a panic that
/// is not a step's is handed on to the previous hook.
fn note_where_steps_panic() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IN_STEP.get() {
                return before(panic);
            }
            let place = panic.location().map(|at| Place {
                location: format!("{}:{}:{}", at.file(), at.line(), at.column()),
                // Empty unless RUST_BACKTRACE asks for it.
                backtrace: std::backtrace::Backtrace::capture(),
            });
            PANICKED_AT.set(place);
        }));
    });
}

/// Runs a step's code; its panic becomes its error.
fn guarded<T>(code: impl FnOnce() -> T) -> Result<T, StepError> {
    IN_STEP.set(true);
    // State that a panic may leave half done belongs to the step, and is dropped with it.
    let done = catch_unwind(AssertUnwindSafe(code));
    IN_STEP.set(false);
    done.map_err(|payload| panicked(&*payload))
}

/// The text of a panic.
pub fn said(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("something that is not text")
}

fn panicked(payload: &(dyn Any + Send)) -> StepError {
    let said = said(payload);
    match PANICKED_AT.take() {
        Some(Place {
            location,
            backtrace,
        }) => {
            let error = StepError::new("panic", format!("{said}, at {location}"));
            match backtrace.status() {
                std::backtrace::BacktraceStatus::Captured => error.backtrace(backtrace.to_string()),
                _ => error,
            }
        }
        None => StepError::new("panic", said),
    }
}
