//! Proofs of death for rows of the database, from what the kernel knows.
//!
//! Owns: the proof that a row's process cannot exist any more, nor anything that its steps left behind: that is
//! ended first. Never: guesses; a row of another boot or pid namespace proves nothing, whatever its pid (H12).

use std::time::Duration;

use crate::engine::reaper::{Proof, ProvenDeath};
use crate::model::Role;
use crate::store::process::ProcessRow;

use super::identity::Identity;
use super::orphan;
use super::roster::Pid;

/// The longest hunt for the processes that one dead worker's steps left behind. The caller waits for it.
const HUNT_BOUND: Duration = Duration::from_millis(100);

/// The identity that a row recorded.
pub fn identity(row: &ProcessRow) -> Identity {
    Identity {
        host: row.host.clone(),
        boot_id: row.boot_id.clone(),
        pid_namespace: row.pid_namespace.clone(),
        pid: row.pid as Pid,
        started_ticks: row.pid_started_at,
    }
}

/// True when it can be proven from here that a row's process is dead. Ends nothing.
pub fn is_dead(me: &Identity, row: &ProcessRow) -> bool {
    me.is_provably_dead(&identity(row))
}

/// True when it can be proven from here that a row's process is dead, and when nothing is left of what
/// its steps started: only then may they run again.
///
/// RACE: a worker was killed together with its supervisor, which would have hunted what the worker's
/// steps left behind. So the process that proves the death hunts it before it reports the death; where
/// there was more than it could find in time, the next look tries again. Proven by
/// `what_the_steps_of_the_dead_left_behind_is_gone_before_they_run_again`.
pub fn is_gone(me: &Identity, row: &ProcessRow) -> bool {
    is_dead(me, row) && (row.role != Role::Worker || left_nothing(row))
}

fn left_nothing(row: &ProcessRow) -> bool {
    match orphan::hunt(row.id, HUNT_BOUND) {
        Ok(hunt) => {
            if hunt.killed > 0 {
                tracing::warn!(
                    worker = %row.id,
                    processes = hunt.killed,
                    "ended what a dead worker's steps left behind"
                );
            }
            hunt.left == 0
        }
        Err(error) => {
            tracing::error!(%error, "cannot look for what a dead worker's steps left behind");
            true
        }
    }
}

/// The proof that a process without children can give: predecessors on this host that are gone.
pub fn of_strangers() -> Box<Proof> {
    let me = Identity::current();
    Box::new(move |row| {
        is_gone(&me, row).then(|| ProvenDeath::Crashed("it does not exist any more".to_owned()))
    })
}
