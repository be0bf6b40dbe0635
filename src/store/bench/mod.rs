//! SQL of `ductworkd bench`: a history to work on, a baseline to compare with, and the figures.
//!
//! Owns: no rows of users: a benchmark has a database of its own. Never: used by the daemon.

pub mod baseline;
pub mod data;
pub mod measure;
