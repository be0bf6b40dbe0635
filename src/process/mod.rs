//! Processes and signals: the supervisor's half of the daemon.
//!
//! Owns: which children there are, how they are started, signalled, judged and reaped.
//! Never: mentions a table except through the store; runs user code in the supervisor.
//!
//! - [`roster`] decides (pure); [`spawn`], [`signal`], [`orphan`] carry out.
//! - [`identity`] says who a process is, beyond its number.
//! - [`writer`] finds the process that holds SQLite's lock.
//! - [`live`] is for probes that must not ask the database.
//! - [`wakeup`] and [`systemd`] are hints to others: nothing depends on them.
//! - [`dump`] tells a person what every thread is doing.
//! - [`watcher`] outlives a worker that has no supervisor, and ends what its steps left.
//! - `names` keeps a static program to the name services that it holds.
//! - [`hooks`] runs an operator's own commands around start and stop.

pub mod child;
mod console;
pub mod dump;
pub mod exit_conditions;
pub mod hooks;
pub mod identity;
pub mod live;
#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
pub mod names;
pub mod orphan;
pub mod proof;
pub mod roster;
pub mod signal;
pub mod spawn;
pub mod start;
pub mod supervisor;
pub mod systemd;
pub mod wakeup;
pub mod watcher;
pub mod writer;

#[cfg(test)]
pub(crate) mod testing;
