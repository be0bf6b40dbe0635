//! A program that embeds the library and is its own daemon.
//!
//! Owns: collecting pipelines and native steps. Never: runs them; [`Program::main`] hands over to
//! the command line, which is the same as that of `ductworkd`.

use std::process::ExitCode;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cli::{self, Embedded};
use crate::definition::{Definition, Pipeline};
use crate::problem::{Problem, Problems};
use crate::process::hooks::{Functions, Moment};
use crate::step::StepError;
use crate::step::context::StepContext;
use crate::step::registry::Registry;

/// A program with pipelines and native steps of its own, and with the whole command line of
/// `ductworkd`: its `main` is one call.
///
/// ```no_run
/// use ductwork::{Pipeline, Program, StepContext};
///
/// async fn greet(_: StepContext, name: String) -> Result<String, std::convert::Infallible> {
///     Ok(format!("Hello, {name}!"))
/// }
///
/// fn main() -> std::process::ExitCode {
///     Program::new()
///         .pipeline(Pipeline::named("Hello").start("Greet"))
///         .step("Greet", greet)
///         .main()
/// }
/// ```
///
/// `cargo run -- run Hello '"world"'` then runs it once, and `cargo run` is the daemon. The daemon
/// forks and execs the program itself, so before `main` calls [`Program::main`] it must not do
/// anything that you would not want done once per child.
#[derive(Default)]
pub struct Program {
    pipelines: Vec<Definition>,
    registry: Registry,
    hooks: Functions,
    problems: Vec<Problem>,
}

impl Program {
    /// A program without pipelines; those in the files of its configuration are added when it runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a pipeline. [`Program::main`] reports its mistakes, together with all others.
    pub fn pipeline(mut self, pipeline: Pipeline) -> Self {
        match pipeline.definition() {
            Ok(definition) => self.pipelines.push(definition),
            Err(problems) => self.problems.extend(problems.0),
        }
        self
    }

    /// Adds an async step. It is dropped at its timeout, at its next `await`.
    ///
    /// A step takes its context and any input that deserialises, and returns any output that
    /// serialises, or an error: a [`StepError`], or any [`std::error::Error`], which may then be
    /// raised with `?`. A floating-point number that is not finite serialises as `null`.
    ///
    /// ```
    /// use ductwork::{Program, StepContext, StepError};
    ///
    /// async fn parse(_: StepContext, text: String) -> Result<u64, std::num::ParseIntError> {
    ///     text.parse()
    /// }
    ///
    /// fn divide(_: StepContext, (a, b): (u64, u64)) -> Result<u64, StepError> {
    ///     a.checked_div(b)
    ///         .ok_or_else(|| StepError::new("divided_by_zero", "b is zero").no_retry())
    /// }
    ///
    /// let program = Program::new()
    ///     .step("Parse", parse)
    ///     .blocking_step("Divide", divide);
    /// ```
    pub fn step<F, Fut, I, O, E>(mut self, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(StepContext, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: DeserializeOwned + 'static,
        O: Serialize + 'static,
        E: Into<StepError> + 'static,
    {
        self.registry = self.registry.step(name, function);
        self
    }

    /// Adds a step that blocks its thread. At its timeout it is asked to end, through its context,
    /// and then left alone: it may run beside its own next attempt, so it must guard its effects
    /// with the fencing token ([`StepContext::fencing_token`]).
    pub fn blocking_step<F, I, O, E>(mut self, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(StepContext, I) -> Result<O, E> + Send + Sync + 'static,
        I: DeserializeOwned + 'static,
        O: Serialize + 'static,
        E: Into<StepError> + 'static,
    {
        self.registry = self.registry.blocking_step(name, function);
        self
    }

    /// Adds a function that is called at this moment, in the process concerned, after the
    /// configuration's commands for this moment: for example, to prepare a worker before its first
    /// step. It may block for a minute. A failure is logged and stops nothing, except at a
    /// supervisor's start, which it stops.
    pub fn on<F, E>(mut self, moment: Moment, function: F) -> Self
    where
        F: Fn() -> Result<(), E> + Send + Sync + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.hooks
            .add(moment, move || function().map_err(Into::into));
        self
    }

    /// Does what the command line says: runs the daemon, one of its children, or any other verb of
    /// `ductworkd`. Call it first in `main`, before any thread is started.
    pub fn main(mut self) -> ExitCode {
        self.problems.extend(self.registry.problems());
        self.problems.extend(self.without_code());
        if !self.problems.is_empty() {
            return cli::exit::Failure::from(Problems(self.problems)).report(false);
        }
        cli::main(Embedded {
            pipelines: self.pipelines,
            registry: Arc::new(self.registry),
            hooks: self.hooks,
        })
    }

    /// The native steps of its own pipelines that have no function: each run would halt.
    fn without_code(&self) -> Vec<Problem> {
        let names: Vec<&str> = self.registry.names().collect();
        let missing = |definition: &Definition| {
            let steps = definition.steps.iter();
            let native =
                steps.filter(|(_, spec)| spec.run == crate::definition::StepRunner::Native);
            native
                .filter(|(name, _)| !names.contains(&name.as_str()))
                .map(|(name, _)| {
                    let pipeline = &definition.pipeline;
                    Problem::new(format!(
                        "step {name} of pipeline {pipeline} has no function"
                    ))
                    .help(format!("add `.step(\"{name}\", …)`, or make it a command"))
                })
                .collect::<Vec<_>>()
        };
        self.pipelines.iter().flat_map(missing).collect()
    }
}
