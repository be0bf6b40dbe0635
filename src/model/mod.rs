//! Words and rows: the vocabulary shared by every other module.
//!
//! Owns: ids and the closed lists of status words. Never: does I/O, reads a clock.

pub mod id;
pub mod status;
pub mod trace;

pub use id::*;
pub use status::*;
pub use trace::{Caller, TraceParent};
