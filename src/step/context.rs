//! The context of a native step, beside its input.
//!
//! Owns: the view of the execution and of the run's key/value store that user code sees.
//! Never: knows where the store is; the engine supplies it.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use uuid::Uuid;

use super::Assignment;
use crate::model::{ExecutionId, ProcessId, RunId, StepId};

/// A future that a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Keys and their values.
pub type Tuples = Vec<(String, Box<RawValue>)>;

/// The key/value store shared by the steps of a run, as the engine supplies it. Its futures
/// are polled on the native steps' runtime.
pub trait ContextStore: Send + Sync + 'static {
    /// The value of `key`, if it was ever set.
    fn get(
        &self,
        run: RunId,
        key: String,
    ) -> BoxFuture<'_, Result<Option<Box<RawValue>>, ContextError>>;

    /// Sets `key` of the attempt's run, whatever it was before, unless the attempt is over.
    fn set(
        &self,
        by: Attempt,
        key: String,
        value: Box<RawValue>,
    ) -> BoxFuture<'_, Result<(), ContextError>>;

    /// The next keys and values after the key `after`, ordered by key; none when there are no more.
    fn list(&self, run: RunId, after: String) -> BoxFuture<'_, Result<Tuples, ContextError>>;
}

/// The words in which a value of this length is refused, where at most `max` bytes are allowed.
pub(crate) fn too_large(length: usize, max: usize) -> String {
    format!(
        "the value has {length} bytes, more than the {max} of `job_worker.max_payload`: keep large values elsewhere \
         and set their location"
    )
}

/// The attempt that writes, which must still belong to its process.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// Its run.
    pub run_id: RunId,
    /// The attempt itself.
    pub execution_id: ExecutionId,
    /// The process that has claimed it.
    pub process: ProcessId,
}

impl From<&Assignment> for Attempt {
    fn from(assignment: &Assignment) -> Self {
        Self {
            run_id: assignment.run_id,
            execution_id: assignment.execution_id,
            process: assignment.process,
        }
    }
}

/// Why the run's context could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// A value that is not of the type asked for, or that is not JSON.
    #[error("the context's value of `{key}` does not fit")]
    Value {
        /// The key of the value.
        key: String,
        /// The value that did not fit.
        #[source]
        source: serde_json::Error,
    },
    /// The database is away, or somebody holds what the call needs: a later call may reach it.
    #[error("the run's context cannot be reached now")]
    Away(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The store refused.
    #[error("the run's context cannot be reached")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// One execution, as its code sees it.
#[derive(Clone)]
pub struct StepContext {
    shared: Arc<Shared>,
}

struct Shared {
    assignment: Arc<Assignment>,
    store: Arc<dyn ContextStore>,
    cancelled: AtomicBool,
    cancel: Notify,
}

impl StepContext {
    pub(super) fn new(assignment: Arc<Assignment>, store: Arc<dyn ContextStore>) -> Self {
        Self {
            shared: Arc::new(Shared {
                assignment,
                store,
                cancelled: AtomicBool::new(false),
                cancel: Notify::new(),
            }),
        }
    }

    pub(super) fn assignment(&self) -> &Assignment {
        &self.shared.assignment
    }

    pub(super) fn cancel(&self) {
        self.shared.cancelled.store(true, Ordering::Release);
        self.shared.cancel.notify_waiters();
    }

    /// The key for a side effect: the same for every attempt, and after a restored database has made the step once more
    /// with the same input.
    pub fn idempotency_key(&self) -> Uuid {
        self.assignment().idempotency_key()
    }

    /// The guard for a side effect: rises with every attempt.
    pub fn fencing_token(&self) -> u64 {
        u64::from(self.attempt())
    }

    /// The step.
    pub fn step_id(&self) -> StepId {
        self.assignment().step_id
    }

    /// 1, 2, …
    pub fn attempt(&self) -> u32 {
        self.assignment().attempt
    }

    /// The run.
    pub fn run_id(&self) -> RunId {
        self.assignment().run_id
    }

    /// The run's pipeline.
    pub fn pipeline(&self) -> &str {
        &self.assignment().pipeline
    }

    /// The step's name.
    pub fn step(&self) -> &str {
        &self.assignment().step
    }

    /// True when the step should come to its end: its time is up, its run was cancelled, or the
    /// daemon stops. A blocking step that takes long has to check this.
    pub fn is_cancelled(&self) -> bool {
        self.shared.cancelled.load(Ordering::Acquire)
    }

    /// Resolves when the step should come to its end.
    pub async fn cancelled(&self) {
        let mut cancel = pin!(self.shared.cancel.notified());
        // We listen before we look, so that no call falls in between.
        cancel.as_mut().enable();
        if !self.is_cancelled() {
            cancel.await;
        }
    }

    /// The key/value store of the run.
    pub fn context(&self) -> RunContext<'_> {
        RunContext {
            shared: &self.shared,
        }
    }
}

impl fmt::Debug for StepContext {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("StepContext")
            .field("assignment", self.assignment())
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// The key/value store of one run.
#[derive(Clone, Copy)]
pub struct RunContext<'a> {
    shared: &'a Shared,
}

impl RunContext<'_> {
    /// The value of `key`; `None` when it was never set.
    pub async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, ContextError> {
        let run = self.shared.assignment.run_id;
        let Some(value) = self.shared.store.get(run, key.to_owned()).await? else {
            return Ok(None);
        };
        serde_json::from_str(value.get())
            .map(Some)
            .map_err(|source| ContextError::Value {
                key: key.to_owned(),
                source,
            })
    }

    /// Sets `key`, whatever it was before. Other steps see it at once.
    pub async fn set<T: Serialize + ?Sized>(
        &self,
        key: &str,
        value: &T,
    ) -> Result<(), ContextError> {
        let value = serde_json::value::to_raw_value(value).map_err(|source| ContextError::Value {
            key: key.to_owned(),
            source,
        });
        let by = Attempt::from(&*self.shared.assignment);
        self.shared.store.set(by, key.to_owned(), value?).await
    }

    /// All keys and values, ordered by key.
    pub async fn list(&self) -> Result<Tuples, ContextError> {
        let run = self.shared.assignment.run_id;
        let mut all = Tuples::new();
        let mut after = String::new();
        loop {
            let page = self.shared.store.list(run, after).await?;
            let Some((last, _)) = page.last() else {
                return Ok(all);
            };
            after = last.clone();
            all.extend(page);
        }
    }

    /// [`Self::get`] for blocking steps.
    ///
    /// # Panics
    /// In an async step, which has to await instead.
    pub fn get_blocking<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, ContextError> {
        Handle::current().block_on(self.get(key))
    }

    /// [`Self::set`] for blocking steps.
    ///
    /// # Panics
    /// In an async step, which has to await instead.
    pub fn set_blocking<T: Serialize + ?Sized>(
        &self,
        key: &str,
        value: &T,
    ) -> Result<(), ContextError> {
        Handle::current().block_on(self.set(key, value))
    }
}
