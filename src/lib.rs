//! Durable pipelines on the database you already have.
//!
//! A *pipeline* is a graph of *steps*; each triggered instance of it is a *run*. Every unit of
//! work and every transition is a row in SQLite, PostgreSQL or MySQL before it is acted upon, claims
//! are atomic, commits are guarded, and one clock decides: the database's. `ductworkd` is the
//! daemon; this crate is the same daemon for programs that bring their own steps: see
//! [`Program`].

// # Map
// From the bottom up. A module uses only modules in lines above its own; `tests/tidy.rs` reads this
// list.
//
// - [`model`]: ids and status words · [`problem`], [`duration`], [`time`], [`number`], [`percent`], [`file`], [`secret`]: small
//   common forms
// - [`failpoint`]: faults on purpose · [`exec`]: system calls of children · [`proc`]: `/proc` · [`task`]: tasks in boxes
// - [`yaml`]: files as trees, every value with its place
// - [`definition`]: the form of a pipeline
// - [`machine`]: the next move, without effects
// - [`svg`]: a graph as a picture
// - [`metrics`]: the counts, and how they add up
// - [`store`]: the only SQL · [`step`]: the users' steps
// - [`wire`]: the data that programs read
// - [`telemetry`]: events, for people
// - [`config`]: the settings of a daemon
// - [`engine`]: claim, run or decide, commit · [`explorer`]: every order of its operations, in tests
// - [`view`]: rows in the form that people see
// - [`web`]: the console's pages and its API, over HTTP
// - [`process`]: forks, signals, heartbeats
// - [`mod@bench`]: the speed of all that, measured on real processes
// - [`drill`]: races, forced and shown
// - [`cli`]: the command line
// - [`program`]: the embedding program
//
// A program sees only the facade at the end. The project's own tests see the modules, through the
// feature `internals`; without it the compiler reports unused items.

#[cfg(feature = "internals")]
pub mod bench;
#[cfg(not(feature = "internals"))]
mod bench;
#[cfg(feature = "internals")]
pub mod cli;
#[cfg(not(feature = "internals"))]
mod cli;
#[cfg(feature = "internals")]
pub mod config;
#[cfg(not(feature = "internals"))]
mod config;
#[cfg(feature = "internals")]
pub mod definition;
#[cfg(not(feature = "internals"))]
mod definition;
#[cfg(feature = "internals")]
pub mod drill;
#[cfg(not(feature = "internals"))]
mod drill;
#[cfg(feature = "internals")]
pub mod duration;
#[cfg(not(feature = "internals"))]
mod duration;
#[cfg(feature = "internals")]
pub mod engine;
#[cfg(not(feature = "internals"))]
mod engine;
#[cfg(feature = "internals")]
pub mod exec;
#[cfg(not(feature = "internals"))]
mod exec;
#[cfg(test)]
mod explorer;
#[cfg(feature = "internals")]
pub mod failpoint;
#[cfg(not(feature = "internals"))]
mod failpoint;
#[cfg(feature = "internals")]
pub mod file;
#[cfg(not(feature = "internals"))]
mod file;
#[cfg(feature = "internals")]
pub mod machine;
#[cfg(not(feature = "internals"))]
mod machine;
#[cfg(feature = "internals")]
pub mod metrics;
#[cfg(not(feature = "internals"))]
mod metrics;
#[cfg(feature = "internals")]
pub mod model;
#[cfg(not(feature = "internals"))]
mod model;
#[cfg(feature = "internals")]
pub mod number;
#[cfg(not(feature = "internals"))]
mod number;
#[cfg(feature = "internals")]
pub mod percent;
#[cfg(not(feature = "internals"))]
mod percent;
#[cfg(feature = "internals")]
pub mod problem;
#[cfg(not(feature = "internals"))]
mod problem;
#[cfg(feature = "internals")]
pub mod proc;
#[cfg(not(feature = "internals"))]
mod proc;
#[cfg(feature = "internals")]
pub mod process;
#[cfg(not(feature = "internals"))]
mod process;
#[cfg(feature = "internals")]
pub mod program;
#[cfg(not(feature = "internals"))]
mod program;
#[cfg(feature = "internals")]
pub mod secret;
#[cfg(not(feature = "internals"))]
mod secret;
#[cfg(feature = "internals")]
pub mod step;
#[cfg(not(feature = "internals"))]
mod step;
#[cfg(feature = "internals")]
pub mod store;
#[cfg(not(feature = "internals"))]
mod store;
#[cfg(feature = "internals")]
pub mod svg;
#[cfg(not(feature = "internals"))]
mod svg;
mod task;
#[cfg(feature = "internals")]
pub mod telemetry;
#[cfg(not(feature = "internals"))]
mod telemetry;
#[cfg(feature = "internals")]
pub mod time;
#[cfg(not(feature = "internals"))]
mod time;
#[cfg(feature = "internals")]
pub mod view;
#[cfg(not(feature = "internals"))]
mod view;
#[cfg(feature = "internals")]
pub mod web;
#[cfg(not(feature = "internals"))]
mod web;
#[cfg(feature = "internals")]
pub mod wire;
#[cfg(not(feature = "internals"))]
mod wire;
#[cfg(feature = "internals")]
pub mod yaml;
#[cfg(not(feature = "internals"))]
mod yaml;

pub use definition::builder::To;
pub use definition::{Backoff, Path, Pipeline, Question, StepRunner, StepSpec};
pub use definition::{RunTrace, Unanswered};
pub use model::{RunId, StepId};
pub use problem::{Position, Problem, Problems};
pub use process::hooks::Moment;
pub use program::Program;
pub use step::StepError;
pub use step::context::{ContextError, RunContext, StepContext, Tuples};
