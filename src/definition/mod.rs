//! A pipeline's definition: the graph of its steps, the same from YAML and from Rust.
//!
//! Owns: the graph types, the builder, the YAML front end (which makes the same builder
//! calls), validation of everything at once, the canonical form and its digest.
//! Never: runs anything, reads a clock, touches the database.

pub mod builder;
pub mod canonical;
pub mod check;
pub mod difference;
pub mod graph;
pub mod input;
pub mod schema;
mod tree;
pub mod variables;
pub mod yaml;

#[cfg(test)]
pub mod properties;

pub use builder::{Path, Pipeline, Question};
pub use check::{MAX_BUDGET, MAX_FACTOR};
pub use graph::{
    Backoff, Definition, Edge, NodeIndex, RunTrace, StepRunner, StepSpec, Target, Then, Unanswered,
};
