//! Durable pipelines on the database you already have.
//!
//! A *pipeline* is a graph of *steps*; each triggered instance of it is a *run*. Every unit of
//! work and every transition is a row in SQLite or PostgreSQL before it is acted upon, claims
//! are atomic, commits are guarded, and one clock decides: the database's. `ductworkd` is the
//! daemon; this crate is the same daemon for programs that bring their own steps: see
//! [`Program`].
//!
//! # Map
//! From the bottom up. A module uses only those in lines above its own; `tests/tidy.rs` reads
//! this list.
//!
//! - [`model`]: ids and status words · [`problem`], [`duration`], [`time`], [`file`]: small common
//!   forms
//! - [`failpoint`]: faults on purpose
//! - [`definition`]: what a pipeline is
//! - [`machine`]: what happens next, pure
//! - [`store`]: the only SQL · [`step`]: what users run
//! - [`telemetry`]: what happened, for people
//! - [`config`]: what a daemon is told
//! - [`engine`]: claim, run or decide, commit
//! - [`process`]: forks, signals, heartbeats
//! - [`mod@bench`]: how fast that is, measured on real processes
//! - [`drill`]: races, forced and told
//! - [`cli`]: the command line
//! - [`program`]: the embedding program

pub mod bench;
pub mod cli;
pub mod config;
pub mod definition;
pub mod drill;
pub mod duration;
pub mod engine;
pub mod failpoint;
pub mod file;
pub mod machine;
pub mod model;
pub mod problem;
pub mod process;
pub mod program;
pub mod step;
pub mod store;
pub mod telemetry;
pub mod time;

pub use definition::{Path, Pipeline, StepSpec};
pub use process::hooks::Moment;
pub use program::Program;
pub use step::StepError;
pub use step::context::StepContext;
