//! Proofs of death for rows of the database, from what the kernel knows.
//!
//! Owns: telling that a row's process cannot exist any more. Never: guesses; a row of another
//! boot or pid namespace proves nothing, whatever its pid (H12).

use crate::engine::reaper::{Proof, ProvenDeath};
use crate::store::process::ProcessRow;

use super::identity::Identity;
use super::roster::Pid;

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

/// The proof that a process without children has: predecessors on this host that are gone.
pub fn of_strangers() -> Box<Proof> {
    let me = Identity::current();
    Box::new(move |row| {
        let gone = me.is_provably_dead(&identity(row));
        gone.then(|| ProvenDeath::Crashed("it does not exist any more".to_owned()))
    })
}
