//! Runs an assignment: a command, or a native step.
//!
//! Owns: the choice of the runner. Never: knows the database; steps reach their run's context
//! through the process's lifeline.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use crate::config::{Config, DEFAULT_ENVIRONMENT};
use crate::definition::{Definition, StepRunner};
use crate::machine::outcome::STEP_UNDEFINED;
use crate::model::RunId;
use crate::step::command::CommandRunner;
use crate::step::context::{Attempt, BoxFuture, ContextError, ContextStore, Tuples, too_large};
use crate::step::native::NativeRunner;
use crate::step::output::unkept;
use crate::step::registry::Registry;
use crate::step::{Assignment, Limits, Outcome, Performed, StepError, StopSignal};
use crate::store::context::{MAX_KEY, Writer};

use super::lifeline::{Reply, Request};

/// All runners of a worker.
pub struct Runner {
    commands: CommandRunner,
    native: NativeRunner,
    contexts: Arc<dyn ContextStore>,
}

impl Runner {
    /// The runners of a pipeline, with the native steps of `registry`.
    pub fn new(
        config: &Config,
        pipeline: &str,
        registry: Arc<Registry>,
        requests: mpsc::UnboundedSender<Request>,
    ) -> Self {
        let max_payload =
            usize::try_from(config.job_worker.max_payload(pipeline)).unwrap_or(usize::MAX);
        let limits = Limits {
            max_payload,
            ..Limits::default()
        };
        let contexts: Arc<dyn ContextStore> = Arc::new(Contexts {
            requests,
            max_payload,
        });
        let commands = CommandRunner::new(
            config.base_dir.clone(),
            config.file.clone(),
            config.secret_variables(),
            limits.clone(),
        );
        Self {
            commands: commands
                .inheriting(config.job_worker.env(pipeline), config.secret_variables())
                .in_section(&config.environment, DEFAULT_ENVIRONMENT)
                .with_contexts(Arc::clone(&contexts)),
            native: NativeRunner::new(registry, limits),
            contexts,
        }
    }

    /// Starts the threads that native steps need. To be called before anything is claimed.
    pub fn begin(&self) {
        self.native.begin();
    }

    /// True where running it starts a program.
    pub fn starts_program(&self, definition: &Definition, assignment: &Assignment) -> bool {
        let spec = definition.steps.get(&assignment.step);
        spec.is_some_and(|spec| matches!(spec.run, StepRunner::Command(_)))
    }

    /// Runs `assignment` as its run's definition says. `started` receives the pid of a command.
    pub async fn run(
        &self,
        definition: &Definition,
        assignment: &Arc<Assignment>,
        stop: StopSignal,
        started: impl FnOnce(u32),
    ) -> Performed {
        let Some(spec) = definition.steps.get(&assignment.step) else {
            let message = format!("the run's definition has no step `{}`", assignment.step);
            return Outcome::Error(StepError::new(STEP_UNDEFINED, message).no_retry()).into();
        };
        match &spec.run {
            StepRunner::Command(argv) => {
                let cwd = spec.cwd.as_deref();
                self.commands
                    .run(assignment, argv, spec, cwd, stop, started)
                    .await
            }
            StepRunner::Native => {
                let contexts = Arc::clone(&self.contexts);
                self.native
                    .run(Arc::clone(assignment), stop, contexts)
                    .await
                    .into()
            }
        }
    }
}

/// The answer to an attempt that writes although it is over.
const TAKEN_AWAY: &str =
    "this attempt of the step is over, or another worker has taken the step over";

/// Run contexts, through the lifeline's connection.
struct Contexts {
    requests: mpsc::UnboundedSender<Request>,
    /// The longest value, in bytes.
    max_payload: usize,
}

impl Contexts {
    /// The reason why a value cannot be set, in words. The values of a command have been checked; a native step may
    /// set any.
    fn refuses(&self, key: &str, value: &RawValue) -> Option<String> {
        if !(1..=MAX_KEY).contains(&key.chars().count()) {
            return Some(format!("a key has 1 to {MAX_KEY} characters"));
        }
        let length = value.get().len();
        if length > self.max_payload {
            return Some(too_large(length, self.max_payload));
        }
        unkept(value.get()).map(|problem| format!("the value cannot be kept: {problem}"))
    }

    fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> BoxFuture<'_, Result<T, ContextError>> {
        let (reply, answer) = oneshot::channel();
        let sent = self.requests.send(request(reply));
        Box::pin(async move {
            sent.map_err(|_| ContextError::Store("the worker is stopping".into()))?;
            match answer.await {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(error)) if error.is_unavailable() || error.is_not_now() => {
                    Err(ContextError::Away(error.into()))
                }
                Ok(Err(error)) => Err(ContextError::Store(error.into())),
                Err(_) => Err(ContextError::Store("the worker is stopping".into())),
            }
        })
    }
}

impl ContextStore for Contexts {
    fn get(
        &self,
        run: RunId,
        key: String,
    ) -> BoxFuture<'_, Result<Option<Box<RawValue>>, ContextError>> {
        self.ask(|reply| Request::Get(run, key, reply))
    }

    fn set(
        &self,
        by: Attempt,
        key: String,
        value: Box<RawValue>,
    ) -> BoxFuture<'_, Result<(), ContextError>> {
        if let Some(refused) = self.refuses(&key, &value) {
            return Box::pin(async { Err(ContextError::Store(refused.into())) });
        }
        let writer = Writer {
            run: by.run_id,
            execution: by.execution_id,
            process: by.process,
        };
        let set = self.ask(|reply| Request::Set(writer, key, value, reply));
        Box::pin(async move {
            match set.await? {
                true => Ok(()),
                false => Err(ContextError::Store(TAKEN_AWAY.into())),
            }
        })
    }

    fn list(&self, run: RunId, after: String) -> BoxFuture<'_, Result<Tuples, ContextError>> {
        self.ask(|reply| Request::List(run, after, reply))
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use crate::model::{ExecutionId, ProcessId};

    use super::*;

    #[tokio::test]
    async fn a_value_that_is_too_large_or_cannot_be_kept_never_reaches_the_lifeline() {
        let (requests, mut asked) = mpsc::unbounded_channel();
        let contexts = Contexts {
            requests,
            max_payload: 1_000,
        };
        let by = Attempt {
            run_id: RunId::new(),
            execution_id: ExecutionId::new(),
            process: ProcessId::new(),
        };
        let value = |text: String| RawValue::from_string(text).unwrap();
        let deep = [&"[".repeat(129)[..], &"]".repeat(129)[..]].concat();
        for (text, told) in [
            (
                format!("\"{}\"", "x".repeat(999)),
                "`job_worker.max_payload`",
            ),
            (deep, "cannot be kept: "),
            (r#""\ud800""#.to_owned(), "cannot be kept: it "),
        ] {
            let refused = contexts.set(by, "k".into(), value(text)).await.unwrap_err();
            let why = refused.source().unwrap().to_string();
            assert!(why.contains(told), "{why}");
            assert!(matches!(refused, ContextError::Store(_)), "{refused:?}");
        }
        assert!(asked.try_recv().is_err(), "one of them was asked for");
        let longest = value(format!("\"{}\"", "x".repeat(998)));
        let setting = contexts.set(by, "k".into(), longest);
        assert!(matches!(asked.try_recv(), Ok(Request::Set(..))));
        drop(setting);
    }
}
