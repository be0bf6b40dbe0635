//! The state machine: the next move, decided from views, without effects.
//!
//! Owns: every decision about a branch, an execution, a barrier, a run. Pure and total: no
//! database, no clock, no randomness; each is handed in. Never: writes, waits, or mints an id.
//! Tested here, cell by cell; `docs/state-machine.md` is written by those tests.

pub mod advance;
pub mod barrier;
pub mod bulk;
pub mod export;
pub mod halt;
pub mod intake;
pub mod kind;
pub mod layout;
pub mod letters;
pub mod outcome;
pub mod pause;
pub mod retry_after;
pub mod revive;
pub mod stuck;
pub mod timeline;
pub mod trace;
#[cfg(feature = "internals")]
pub mod transition;
pub mod webhook;
pub mod why;

#[cfg(test)]
mod tests;
